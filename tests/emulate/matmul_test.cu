/* matmul_test.cu: matmul.cuh, matvec.cuh and expert.cuh against plain loops, in the
 * emulator or on a GPU:
 *
 *      g++ -std=c++17 -O1 -fno-strict-aliasing -fopenmp -x c++ -include codegen/kernels/emulate.h
 *          -Icodegen -Icodegen/kernels -Iruntime tests/emulate/matmul_test.cu
 *      nvcc -std=c++17 -arch=sm_80 -Icodegen -Icodegen/kernels -Iruntime tests/emulate/matmul_test.cu
 *      nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A ...          (wgmma as well)
 *
 * Inputs of the matmuls are small integers, so every sum is exact and results are
 * compared for equality.  What lies between the rows of a strided operand is NaN:
 * an element taken from there shows.  The tails count how often each place of C is
 * delivered, which must be once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include "expert.cuh"
#include "matvec_narrow.cuh"
#include "matvec_shape.h"
#include "matvec_mma.cuh"
#include "matvec_short.cuh"

/* ---- memory and launches of both kinds ------------------------------------ */

#ifdef TGC_EMULATE
static void *mem(size_t n) { return aligned_alloc(256, (n + 255) / 256 * 256); }
static void mem_free(void *p) { free(p); }
#else
static void *mem(size_t n)
{
        void *p = 0;
        if (cudaMallocManaged(&p, n) != cudaSuccess) {
                printf("skip matmul_test: no GPU\n");
                exit(0);
        }
        return p;
}
static void mem_free(void *p) { cudaFree(p); }
#endif

/* A task as an object f with f(tile, smem), run by one kernel of F::MOST threads, 256 where F does not say. */
template <class F, class = void> struct Threads { static constexpr int MOST = 256; };
template <class F> struct Threads<F, std::void_t<decltype(F::MOST)>> { static constexpr int MOST = F::MOST; };

template <class F>
__global__ void __launch_bounds__(Threads<F>::MOST) task_kernel(const F *f)
{
        TGC_SMEM(smem);
        (*f)((int)blockIdx.x, smem);
}

template <class F>
static bool task_run(const F &f, int tiles, int threads, int smem, const char *name)
{
        F *g = (F *)mem(sizeof f);
        memcpy((void *)g, (const void *)&f, sizeof f);
#ifdef TGC_EMULATE
        emu::Entry<1> entry(name, task_kernel<F>);
        void *args[1] = { g };
        char err[512];
        int bad = tgc_emulate_launch(name, tiles, threads, smem, args, 1, err, sizeof err);
        emu::kernels = entry.next;
        if (bad)
                printf("  %s\n", err);
#else
        cudaFuncSetAttribute(task_kernel<F>, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
        task_kernel<F><<<tiles, threads, smem>>>(g);
        cudaError_t e = cudaGetLastError();             /* of the launch itself */
        e = e == cudaSuccess ? cudaDeviceSynchronize() : e;
        int bad = e != cudaSuccess;
        if (bad)
                printf("  %s: %s\n", name, cudaGetErrorString(e));
#endif
        mem_free(g);
        return !bad;
}

static int failures, runs;

static void report(bool ok, const char *name)
{
        runs++;
        failures += !ok;
        if (!ok)
                printf("not ok %s\n", name);
}

/* ---- operands ---------------------------------------------------------------- */

static unsigned random_state = 1;
static unsigned next_random() { return random_state = random_state * 1664525u + 1013904223u, random_state >> 10; }

template <class T> static void put(T *p, float x)
{
#ifdef TGC_EMULATE
        *p = (T)x;
#else
        *p = T(x);
#endif
}
template <class T> static float get(T x) { return (float)x; }

/* rows x cols with row stride ld; integers -4..4, or normal-like numbers. */
template <class T>
struct Matrix {
        T *p;
        int rows, cols, ld;
        Matrix(int r, int c, int l, bool integers = true) : rows(r), cols(c), ld(l)
        {
                /* nothing behind the last row */
                size_t n = rows ? (size_t)(rows - 1) * ld + cols : 1;
                p = (T *)mem(n * sizeof(T));
                for (size_t i = 0; i < n; i++) {
                        float u = (float)(next_random() % 4096) / 2048.f - 1.f;
                        put(p + i, i % ld >= (size_t)cols ? NAN : integers ? (float)(int)(next_random() % 9) - 4.f : u);
                }
        }
        ~Matrix() { mem_free(p); }
        Matrix(const Matrix &) = delete;
        double at(int r, int c) const { return (double)get(p[(size_t)r * ld + c]); }
};

/* C with the count of deliveries; -1 row or expert errors land in `wrong`. */
struct Result {
        float *c;
        int *count;
        int *wrong;
        int M, N;
        Result(int m, int n) : M(m), N(n)
        {
                c = (float *)mem((size_t)(M * N + 1) * 4);
                count = (int *)mem((size_t)(M * N + 1) * 4);
                wrong = (int *)mem(4);
                memset(count, 0, (size_t)(M * N + 1) * 4);
                *wrong = 0;
        }
        ~Result() { mem_free(c); mem_free(count); mem_free(wrong); }
        Result(const Result &) = delete;
};

template <int V_, int MINV_ = 1>
struct Keep {
        static constexpr int MAXV = V_, MINV = MINV_;
        float *c;
        int *count, *wrong, M, N;
        const int *expert_of;           /* by result row, or 0 */
        int grad_rows;                  /* of C per expert: C is (E,grad_rows,N); 0: not a gradient */
        Keep(const Result &r, const int *expert = 0, int rows = 0)
                : c(r.c), count(r.count), wrong(r.wrong), M(r.M), N(r.N), expert_of(expert), grad_rows(rows) { }
        template <int V> __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                static_assert(V <= V_ && V >= MINV_, "V is between MINV and MAXV");
                if (row < 0 || row >= M || col < 0 || col + V > N || col % V) {
                        *wrong = 1;
                        return;
                }
                for (int i = 0; i < V; i++) {
                        c[(size_t)row * N + col + i] = v[i];
                        count[(size_t)row * N + col + i]++;
                }
        }
        template <int V> __device__ void operator()(int row, int col, float (&v)[V], int e) const
        {
                if (expert_of && row >= 0 && row < M && expert_of[row] != e)
                        *wrong = 2;
                (*this)(row + e * grad_rows, col, v);
        }
};

template <class F>
static bool result_is(const Result &r, const F &want, double tolerance, const char *name)
{
        if (*r.wrong) {
                printf("  %s: tail called outside of C, or with a wrong expert (%d)\n", name, *r.wrong);
                return false;
        }
        for (int i = 0; i < r.M; i++)
                for (int j = 0; j < r.N; j++) {
                        double w = want(i, j), c = r.c[(size_t)i * r.N + j];
                        if (r.count[(size_t)i * r.N + j] != 1 || !(fabs(c - w) <= tolerance)) {
                                printf("  %s: C[%d][%d] is %g, delivered %d times; want %g\n", name, i, j, c,
                                       r.count[(size_t)i * r.N + j], w);
                                return false;
                        }
                }
        return true;
}

template <class T> static const char *type_name() { return sizeof(T) == 4 ? "f32" : "16"; }
template <> const char *type_name<bf16>() { return "bf16"; }
template <> const char *type_name<f16>() { return "f16"; }

/* ---- matmul --------------------------------------------------------------------- */

template <class T, class Tile, bool TA, bool TB, int ALIGN, int V>
struct MatmulRun {
        const T *a, *b;
        int lda, ldb, M, N, K;
        Keep<V> tail;
        __device__ void operator()(int tile, char *smem) const
        {
                matmul_task<T, Tile, TA, TB, ALIGN>(a, lda, b, ldb, M, N, K, tile, smem, tail);
        }
};

template <class T, class Tile, bool TA, bool TB, int ALIGN, int V>
struct SplitRun {
        const T *a, *b;
        int lda, ldb, M, N, K, splits;
        float *ws;
        __device__ void operator()(int tile, char *smem) const
        {
                matmul_split_task<T, Tile, TA, TB, ALIGN, V>(a, lda, b, ldb, M, N, K, splits, ws, tile, smem);
        }
};

template <int V>
struct ReduceRun {
        const float *ws;
        int splits, M, N;
        Keep<V> tail;
        __device__ void operator()(int tile, char *) const
        {
                splitk_reduce_task<64>(ws, splits, M, N, tile, tail);
        }
};

template <class Tile>
static int tiles_of(int M, int N) { return (M + Tile::BM - 1) / Tile::BM * ((N + Tile::BN - 1) / Tile::BN); }

/* splits 0: matmul_task */
template <class T, class Tile, bool TA, bool TB, int ALIGN, int V>
static void matmul_case(int M, int N, int K, int splits = 0)
{
        constexpr int PAD = 2 * ALIGN / (int)sizeof(T);
        char name[128];
        snprintf(name, sizeof name, "matmul %s %d%d %dx%dx%d tile %dx%dx%d align %d V %d splits %d",
                 type_name<T>(), TA, TB, M, N, K, Tile::BM, Tile::BN, Tile::BK, ALIGN, V, splits);
        Matrix<T> a(TA ? K : M, TA ? M : K, (TA ? M : K) + PAD), b(TB ? N : K, TB ? K : N, (TB ? K : N) + PAD);
        Result r(M, N);
        Keep<V> keep(r);
        bool ok;
        if (splits) {
                float *ws = (float *)mem((size_t)splits * M * N * 4);
                SplitRun<T, Tile, TA, TB, ALIGN, V> f = { a.p, b.p, a.ld, b.ld, M, N, K, splits, ws };
                ReduceRun<V> g = { ws, splits, M, N, keep };
                ok = task_run(f, splits * tiles_of<Tile>(M, N), Tile::THREADS, Tile::SMEM, name)
                  && task_run(g, (M * N + 64 * V - 1) / (64 * V), 64, 0, name);
                mem_free(ws);
        } else {
                MatmulRun<T, Tile, TA, TB, ALIGN, V> f = { a.p, b.p, a.ld, b.ld, M, N, K, keep };
                ok = task_run(f, tiles_of<Tile>(M, N), Tile::THREADS, Tile::SMEM, name);
        }
        ok = ok && result_is(r, [&](int i, int j) {
                double s = 0;
                for (int k = 0; k < K; k++)
                        s += (TA ? a.at(k, i) : a.at(i, k)) * (TB ? b.at(j, k) : b.at(k, j));
                return s;
        }, 0, name);
        report(ok, name);
}

template <class T, class Tile, int ALIGN, int V>
static void matmul_transposes(int M, int N, int K)
{
        matmul_case<T, Tile, false, true, ALIGN, V>(M, N, K);
        matmul_case<T, Tile, false, false, ALIGN, V>(M, N, K);
        matmul_case<T, Tile, true, false, ALIGN, V>(M, N, K);
        matmul_case<T, Tile, true, true, ALIGN, V>(M, N, K);
}

/* float32 of any digits: off by some 2^-24 of the root of the sum of squares of the products, as a sum of rounded
 * products is; with tf32 alone it would be 2^-12. */
template <class Tile, bool TA, bool TB>
static void matmul_close(int M, int N, int K)
{
        char name[128];
        snprintf(name, sizeof name, "matmul f32 close %d%d %dx%dx%d tile %dx%dx%d", TA, TB, M, N, K, Tile::BM,
                 Tile::BN, Tile::BK);
        Matrix<float> a(TA ? K : M, TA ? M : K, TA ? M : K, false), b(TB ? N : K, TB ? K : N, TB ? K : N, false);
        Result r(M, N);
        for (int i = 0; i < M * K; i++)         /* all 24 bits */
                a.p[i] *= 1.f + (float)(next_random() % 4096) / 16777216.f;
        for (int i = 0; i < N * K; i++)
                b.p[i] *= 1.f + (float)(next_random() % 4096) / 16777216.f;
        MatmulRun<float, Tile, TA, TB, 16, 4> f = { a.p, b.p, a.ld, b.ld, M, N, K, Keep<4>(r) };
        bool ok = task_run(f, tiles_of<Tile>(M, N), Tile::THREADS, Tile::SMEM, name);
        ok = ok && result_is(r, [&](int i, int j) {
                double s = 0;
                for (int k = 0; k < K; k++)
                        s += (TA ? a.at(k, i) : a.at(i, k)) * (TB ? b.at(j, k) : b.at(k, j));
                return s;
        }, 5e-6 * sqrt(K / 9.), name);
        report(ok, name);
}

static void matmul_cases()
{
        /* every tile once, all sides past an edge */
        matmul_transposes<bf16, H128x256x64, 16, 8>(136, 264, 200);
        matmul_transposes<f16, H128x256x32, 16, 8>(136, 264, 104);
        matmul_transposes<bf16, H256x128x32, 16, 4>(264, 136, 72);
        matmul_transposes<bf16, H128x128x64, 16, 8>(8, 136, 256);
        matmul_transposes<f16, H128x128x32, 16, 2>(136, 8, 328);
        matmul_transposes<bf16, H128x64x64, 16, 8>(136, 72, 64);
        matmul_transposes<bf16, H64x128x64, 16, 8>(72, 136, 8);
        matmul_transposes<bf16, H64x64x64, 16, 8>(64, 192, 128);
        matmul_transposes<f16, H32x64x64, 16, 8>(24, 72, 400);
        matmul_transposes<bf16, H16x64x64, 16, 1>(16, 64, 136);
        matmul_transposes<bf16, H16x128x64, 16, 8>(8, 200, 64);
        matmul_transposes<bf16, W128x256x64, 16, 8>(136, 264, 200);
        matmul_transposes<f16, W128x128x64, 16, 8>(264, 136, 520);
        matmul_transposes<f16, W128x256x32, 16, 8>(264, 520, 136);
        matmul_transposes<bf16, W128x256x32, 16, 8>(72, 128, 544);
        matmul_transposes<bf16, W128x192x32, 16, 8>(136, 200, 296);
        matmul_transposes<bf16, W128x128x64, 16, 2>(72, 8, 64);
        /* odd sizes and a single row, column or k */
        matmul_transposes<bf16, H64x64x64, 8, 4>(68, 12, 100);
        matmul_transposes<f16, H64x64x64, 4, 2>(66, 70, 34);
        matmul_transposes<bf16, H64x64x64, 2, 1>(65, 67, 101);
        matmul_transposes<bf16, H16x64x64, 2, 1>(1, 1, 1);
        matmul_transposes<bf16, H128x128x64, 2, 1>(1, 131, 65);
        matmul_transposes<bf16, W128x128x64, 8, 4>(132, 12, 100);
        matmul_transposes<bf16, W64x128x64, 16, 8>(72, 136, 200);
        matmul_transposes<bf16, W64x128x64_3, 16, 8>(72, 136, 200);
        matmul_transposes<bf16, W64x64x64, 16, 8>(72, 72, 328);
        matmul_transposes<f16, W64x64x64, 4, 2>(66, 70, 34);
        matmul_transposes<f16, W128x128x64, 4, 2>(66, 130, 34);
        matmul_transposes<bf16, W128x128x64, 2, 1>(129, 131, 321);
        matmul_case<bf16, H16x64x64, false, true, 16, 1>(1, 1, 64);
        matmul_case<bf16, H64x64x64, false, true, 16, 1>(3, 7, 200);
        matmul_case<bf16, H64x64x64, false, true, 16, 8>(1037, 72, 72);        /* three groups of block rows */

        matmul_transposes<float, F128x128x8, 16, 4>(132, 140, 36);
        matmul_transposes<float, F64x64x16, 16, 8>(64, 72, 100);
        matmul_transposes<float, F32x32x32, 16, 2>(36, 40, 64);
        matmul_transposes<float, F16x64x32, 16, 4>(4, 68, 32);
        matmul_transposes<float, F64x64x16, 8, 2>(66, 70, 18);
        matmul_transposes<float, F32x32x32, 4, 1>(33, 35, 37);
        matmul_transposes<float, F16x64x32, 4, 1>(1, 1, 1);
        matmul_transposes<float, T64x64x32, 16, 4>(132, 72, 164);
        matmul_transposes<float, T32x32x64, 16, 8>(36, 40, 264);
        matmul_transposes<float, T64x64x32, 8, 2>(66, 70, 18);
        matmul_transposes<float, T64x64x32, 4, 1>(65, 3, 33);
        matmul_transposes<float, T32x32x64, 4, 1>(33, 35, 130);

        matmul_close<F32x32x32, false, true>(64, 64, 512);
        matmul_close<T64x64x32, false, true>(64, 64, 512);
        matmul_close<T64x64x32, false, false>(64, 64, 512);
        matmul_close<T32x32x64, true, false>(32, 64, 1024);
        matmul_close<T32x32x64, true, true>(32, 64, 1024);

        matmul_case<bf16, H64x64x64, true, false, 16, 8>(72, 136, 1000, 3);
        matmul_case<bf16, W128x128x64, true, false, 16, 8>(136, 264, 1000, 3);
        matmul_case<f16, H128x128x32, true, false, 16, 4>(8, 136, 40, 4);     /* more splits than K-tiles */
        matmul_case<float, F32x32x32, true, false, 4, 1>(33, 35, 101, 2);
        matmul_case<float, F32x32x32, true, false, 4, 1>(33, 35, 1, 3);
        matmul_case<float, T64x64x32, true, false, 16, 8>(72, 136, 1000, 3);
        matmul_case<float, T32x32x64, true, false, 4, 1>(33, 35, 1, 3);        /* more splits than K-tiles */
}

/* ---- matvec ---------------------------------------------------------------------- */

template <int V_>
struct Give {
        static constexpr int MAXV = V_, MINV = 1;
        const float *x;
        int K, rows;
        template <int V> __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                for (int i = 0; i < V; i++)
                        v[i] = row < rows && col % V == 0 && col + i < K ? x[(size_t)row * K + col + i] : NAN;
        }
};

/* A gain by column, and with layer norm a bias. */
__host__ __device__ static float gain_at(int col) { return 0.5f + (float)(col % 7) * 0.25f; }
__host__ __device__ static float bias_at(int norm, int col) { return norm == NORM_LAYER ? (float)(col % 5) * 0.5f - 1.f : 0.f; }

template <int NORM>
struct Weigh {
        static constexpr int MAXV = 4, MINV = 1;
        int rows;
        template <int V> __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                for (int i = 0; i < V; i++)
                        v[i] = row < rows && col % V == 0 ? v[i] * gain_at(col + i) + bias_at(NORM, col + i) : NAN;
        }
};

template <class T, int N, int K, int THREADS, int ROWS, int SPLIT, int NORM, int ALIGN, int HV, int V, int MINV>
struct ShortRun {
        static constexpr int MOST = THREADS;
        const T *w;
        int ldw;
        Give<HV> head;
        Keep<V, MINV> tail;
        __device__ void operator()(int tile, char *smem) const
        {
                const Weigh<NORM> gain = { 1 };
                if constexpr (NORM == NORM_NONE)
                        matvec_short_task<T, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>(w, ldw, 1e-5f, tile, smem, head, tail);
                else
                        matvec_short_task<T, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>(w, ldw, 1e-5f, tile, smem, head, tail,
                                                                                      gain);
        }
};

template <class T, int M, int N, int K, int WARPS, int TILES, int ROUNDS, int NORM, int HV, int V, int MINV>
struct MmaRun {
        static constexpr int MOST = WARPS * 32;
        const T *w;
        int ldw;
        Give<HV> head;
        Keep<V, MINV> tail;
        __device__ void operator()(int tile, char *smem) const
        {
                const Weigh<NORM> gain = { M };
                if constexpr (NORM == NORM_NONE)
                        matvec_mma_task<T, M, N, K, WARPS, TILES, ROUNDS, NORM>(w, ldw, 1e-5f, tile, smem, head, tail);
                else
                        matvec_mma_task<T, M, N, K, WARPS, TILES, ROUNDS, NORM>(w, ldw, 1e-5f, tile, smem, head, tail, gain);
        }
};

template <class T, int N, int K, int LANES, int TILES, int NORM, int ALIGN, int HV>
struct NarrowRun {
        const T *w;
        int ldw;
        Give<HV> head;
        Keep<4, 1> tail;
        __device__ void operator()(int tile, char *) const
        {
                const Weigh<NORM> gain = { 1 };
                if constexpr (NORM == NORM_NONE)
                        matvec_narrow_task<T, N, K, NARROW_THREADS, LANES, TILES, NORM, ALIGN>(
                                w, ldw, 1e-5f, tile, head, tail);
                else
                        matvec_narrow_task<T, N, K, NARROW_THREADS, LANES, TILES, NORM, ALIGN>(
                                w, ldw, 1e-5f, tile, head, tail, gain);
        }
};

template <class T, int M, int N, int K, int THREADS, int ROWS, int SPLIT, int NORM, int ALIGN, int HV, int V, int MINV>
struct MatvecRun {
        static constexpr int MOST = THREADS;
        const T *w;
        int ldw;
        Give<HV> head;
        Keep<V, MINV> tail;
        __device__ void operator()(int tile, char *smem) const
        {
                const Weigh<NORM> gain = { M };
                if constexpr (NORM == NORM_NONE && SPLIT > 0)
                        matvec_task<T, M, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>(w, ldw, 1e-5f, tile, smem, head,
                                                                                   tail);
                else if constexpr (SPLIT > 0)
                        matvec_task<T, M, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>(w, ldw, 1e-5f, tile, smem, head,
                                                                                   tail, gain);
                else
                        matvec_kn_task<T, M, N, K, THREADS, ROWS, NORM, ALIGN>(w, ldw, 1e-5f, tile, smem, head, tail,
                                                                               gain);
        }
};

template <class T, int M, int K, int NORM, bool ROWS_OF_W>
static bool matvec_is(const Result &r, const Matrix<float> &x, const Matrix<T> &w, const char *name, double rounded = 0)
{
        double mean[M], scale[M];
        for (int m = 0; m < M; m++) {
                double sum = 0, square = 0;
                for (int k = 0; k < K; k++)
                        sum += x.at(m, k);
                mean[m] = NORM == NORM_LAYER ? sum / K : 0;
                for (int k = 0; k < K; k++)
                        square += (x.at(m, k) - mean[m]) * (x.at(m, k) - mean[m]);
                scale[m] = NORM == NORM_NONE ? 1 : 1 / sqrt(square / K + 1e-5);
        }
        /* float32 sums of K products of unit size: K/2^24 of their absolute sum at most */
        return result_is(r, [&](int i, int j) {
                double sum = 0;
                for (int k = 0; k < K; k++)
                        sum += ((x.at(i, k) - mean[i]) * scale[i] * (NORM == NORM_NONE ? 1 : gain_at(k)) + bias_at(NORM, k))
                                * (ROWS_OF_W ? w.at(j, k) : w.at(k, j));
                return sum;
        }, ((NORM == NORM_NONE ? 1 : 2) * 1e-5 + rounded) * sqrt((double)K) + 1e-6, name);
}

/* SPLIT 0: matvec_kn_task with ROWS columns per block */
template <class T, int M, int N, int K, int THREADS, int ROWS, int SPLIT, int NORM, int ALIGN, int HV, int V,
          int MINV = 1>
static void matvec_case()
{
        constexpr int PAD = 2 * ALIGN / (int)sizeof(T);
        char name[128];
        snprintf(name, sizeof name, "matvec %s %dx%dx%d threads %d rows %d split %d norm %d align %d", type_name<T>(),
                 M, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN);
        Matrix<T> w(SPLIT ? N : K, SPLIT ? K : N, (SPLIT ? K : N) + PAD, false);
        Matrix<float> x(M, K, K, false);
        Result r(M, N);
        MatvecRun<T, M, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN, HV, V, MINV> f =
                { w.p, w.ld, { x.p, K, M }, Keep<V, MINV>(r) };
        MatvecShape s = { 0, 0, 0, ROWS, matvec_kn_smem(M, K, THREADS, ROWS) };
        if constexpr (SPLIT > 0) {
                typedef MatvecShapeOf<(int)sizeof(T), M, K, THREADS, ROWS, SPLIT, ALIGN> S;
                s = matvec_shape((int)sizeof(T), M, K, THREADS, ROWS, SPLIT, ALIGN);
                report(s.unit == S::UNIT && s.flight == S::FLIGHT && s.kc == S::KC && s.cols == S::COLS
                       && s.smem == S::SMEM, "matvec_shape.h agrees with MatvecShapeOf");
        }
        const bool ok = task_run(f, (N + s.cols - 1) / s.cols, THREADS, s.smem, name);
        report(ok && matvec_is<T, M, K, NORM, (SPLIT > 0)>(r, x, w, name), name);
}

/* matvec_short_task with the shape the compiler would choose, for SMS multiprocessors */
template <class T, int N, int K, int SMS, int NORM, int ALIGN, int HV, int V, int MINV, int THREADS, int ROWS, int SPLIT>
static void short_case()
{
        char name[128];
        const MatvecShort s = matvec_short((int)sizeof(T), N, K, ALIGN, MINV, SMS);
        snprintf(name, sizeof name, "matvec_short %s %dx%d threads %d rows %d split %d norm %d align %d", type_name<T>(), N, K,
                 THREADS, ROWS, SPLIT, NORM, ALIGN);
        report(s.threads == THREADS && s.rows == ROWS && s.split == SPLIT, "matvec_short's choice");
        Matrix<T> w(N, K, K + 2 * ALIGN / (int)sizeof(T), false);
        Matrix<float> x(1, K, K, false);
        Result r(1, N);
        ShortRun<T, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN, HV, V, MINV> f = { w.p, w.ld, { x.p, K, 1 }, Keep<V, MINV>(r) };
        const bool ok = task_run(f, (N + s.cols - 1) / s.cols, THREADS, s.smem, name);
        report(ok && matvec_is<T, 1, K, NORM, true>(r, x, w, name), name);
}

/* matvec_mma_task, whose x is of T and is rounded to T again after the norm: of values up to 4 by 2^-9, for bf16. */
template <class T, int M, int N, int K, int SMS, int NORM, int HV, int V, int MINV, int WARPS, int TILES, int ROUNDS>
static void mma_case()
{
        char name[128];
        const MatvecMma s = matvec_mma(M, N, K, NORM != NORM_NONE, SMS);
        typedef MatvecMmaShape<M, K, WARPS, TILES, ROUNDS> S;
        snprintf(name, sizeof name, "matvec_mma %s %dx%dx%d warps %d tiles %d rounds %d norm %d", type_name<T>(), M, N, K, WARPS,
                 TILES, ROUNDS, NORM);
        report(s.warps == WARPS && s.tiles == TILES && s.rounds == ROUNDS && s.smem == S::SMEM, "matvec_mma's choice");
        Matrix<T> w(N, K, K + 16, false);
        Matrix<float> x(M, K, K, false);
        for (int m = 0; m < M; m++)
                for (int k = 0; k < K; k++) {
                        T t;
                        put(&t, x.p[m * K + k]);
                        x.p[m * K + k] = get(t);
                }
        Result r(M, N);
        MmaRun<T, M, N, K, WARPS, TILES, ROUNDS, NORM, HV, V, MINV> f = { w.p, w.ld, { x.p, K, M }, Keep<V, MINV>(r) };
        const bool ok = task_run(f, (N + s.cols - 1) / s.cols, WARPS * 32, s.smem, name);
        const double rounded = NORM == NORM_NONE ? 0 : (std::is_same<T, bf16>::value ? 0x1p-7 : 0x1p-10);
        report(ok && matvec_is<T, M, K, NORM, true>(r, x, w, name, rounded), name);
}

/* matvec_narrow_task with the lanes and tiles that the compiler would choose, for SMS multiprocessors */
template <class T, int N, int K, int SMS, int NORM, int ALIGN, int HV, int LANES, int TILES>
static void narrow_case()
{
        char name[128];
        const MatvecNarrow s = matvec_narrow((int)sizeof(T), N, K, ALIGN, SMS);
        snprintf(name, sizeof name, "matvec_narrow %s %dx%d lanes %d tiles %d norm %d align %d", type_name<T>(), N, K,
                 LANES, TILES, NORM, ALIGN);
        report(s.lanes == LANES && s.tiles == TILES, "matvec_narrow's choice");
        Matrix<T> w(N, K, K + 2 * ALIGN / (int)sizeof(T), false);
        Matrix<float> x(1, K, K, false);
        Result r(1, N);
        NarrowRun<T, N, K, LANES, TILES, NORM, ALIGN, HV> f = { w.p, w.ld, { x.p, K, 1 }, Keep<4, 1>(r) };
        const bool ok = task_run(f, TILES, NARROW_THREADS, 0, name);
        report(ok && matvec_is<T, 1, K, NORM, true>(r, x, w, name), name);
}

static void matvec_cases()
{
        mma_case<bf16, 8, 2304, 768, 132, NORM_LAYER, 8, 8, 1, 8, 3, 1>();
        mma_case<bf16, 64, 768, 3072, 132, NORM_NONE, 8, 8, 2, 16, 1, 1>();
        mma_case<f16, 29, 100, 520, 5, NORM_NONE, 8, 4, 1, 8, 3, 1>();
        mma_case<bf16, 16, 768, 2048, 132, NORM_RMS, 8, 8, 2, 16, 1, 1>();
        mma_case<f16, 11, 330, 704, 5, NORM_LAYER, 8, 2, 1, 8, 2, 3>();
        mma_case<bf16, 8, 768, 3072, 132, NORM_NONE, 8, 8, 2, 16, 1, 1>();
        mma_case<f16, 2, 1234, 288, 3, NORM_RMS, 4, 2, 2, 8, 4, 7>();
        mma_case<bf16, 4, 70, 40, 2, NORM_LAYER, 8, 1, 1, 8, 4, 1>();
        mma_case<bf16, 5, 101, 2000, 16, NORM_RMS, 2, 1, 1, 8, 1, 1>();
        mma_case<bf16, 8, 136, 8200, 8, NORM_NONE, 8, 8, 8, 16, 1, 3>();
        mma_case<f16, 7, 33, 4096, 4, NORM_LAYER, 8, 1, 1, 16, 1, 2>();
        narrow_case<bf16, 1001, 288, 2, NORM_RMS, 16, 8, 4, 6>();       /* six rounds, the last one of a part */
        narrow_case<bf16, 1001, 288, 132, NORM_LAYER, 16, 8, 4, 32>();
        narrow_case<f16, 33, 512, 1, NORM_LAYER, 16, 4, 8, 3>();
        narrow_case<float, 129, 96, 1, NORM_NONE, 16, 4, 4, 3>();
        narrow_case<bf16, 7, 36, 1, NORM_RMS, 2, 1, 4, 1>();
        report(!matvec_narrow(2, 32000, 1024, 16, 132).lanes && !matvec_narrow(2, 32000, 300, 8, 132).lanes &&
               !matvec_narrow(2, 64000, 288, 16, 132).lanes, "matvec_narrow: not for long rows, odd pieces, a large W");

        short_case<bf16, 2304, 768, 132, NORM_LAYER, 16, 8, 8, 1, 160, 4, 1>();
        short_case<bf16, 768, 3072, 132, NORM_RMS, 16, 8, 8, 2, 256, 4, 4>();
        short_case<bf16, 101, 2000, 16, NORM_LAYER, 16, 4, 1, 1, 256, 2, 2>();
        short_case<bf16, 40, 4000, 8, NORM_LAYER, 16, 8, 4, 1, 256, 4, 4>();
        short_case<f16, 96, 288, 7, NORM_LAYER, 16, 8, 2, 2, 224, 2, 1>();
        short_case<bf16, 34, 768, 132, NORM_NONE, 16, 8, 2, 1, 32, 1, 1>();
        short_case<float, 66, 1026, 10, NORM_LAYER, 8, 2, 2, 2, 256, 2, 2>();
        short_case<bf16, 9, 101, 9, NORM_RMS, 2, 1, 1, 1, 288, 1, 1>();

        matvec_case<bf16, 1, 136, 512, 128, 2, 1, NORM_RMS, 16, 8, 2, 2>();
        matvec_case<bf16, 1, 36, 2048, 128, 4, 1, NORM_LAYER, 16, 8, 8>();
        matvec_case<bf16, 1, 7, 1000, 128, 1, 4, NORM_RMS, 16, 4, 1>();
        matvec_case<f16, 8, 40, 4096, 64, 4, 2, NORM_RMS, 16, 8, 4, 2>();       /* two passes over K */
        matvec_case<bf16, 8, 40, 4096, 64, 2, 1, NORM_LAYER, 16, 8, 2>();
        matvec_case<f16, 3, 33, 1004, 64, 2, 2, NORM_NONE, 8, 4, 1>();
        matvec_case<bf16, 5, 34, 70, 64, 4, 1, NORM_LAYER, 4, 2, 2>();
        matvec_case<bf16, 2, 9, 301, 64, 2, 1, NORM_RMS, 2, 1, 1>();
        matvec_case<bf16, 1, 1, 1, 32, 1, 1, NORM_NONE, 2, 1, 1>();
        matvec_case<float, 1, 64, 520, 128, 2, 2, NORM_RMS, 16, 4, 2, 2>();
        matvec_case<float, 4, 33, 301, 64, 4, 1, NORM_LAYER, 4, 1, 1>();
        matvec_case<float, 7, 10, 3000, 64, 8, 1, NORM_RMS, 16, 8, 2>();

        matvec_case<bf16, 1, 136, 512, 128, 64, 0, NORM_RMS, 16, 8, 8, 2>();
        matvec_case<f16, 8, 72, 2500, 64, 32, 0, NORM_LAYER, 16, 4, 8>();
        matvec_case<bf16, 3, 34, 77, 64, 16, 0, NORM_LAYER, 4, 1, 2, 2>();
        matvec_case<float, 2, 35, 101, 64, 16, 0, NORM_RMS, 4, 1, 1>();
        matvec_case<bf16, 1, 1, 3, 32, 8, 0, NORM_NONE, 2, 1, 1>();
}

/* ---- experts ----------------------------------------------------------------------- */

struct Routing {
        int P, E, *perm, *offs, *expert;        /* expert: by sorted position */
        Routing(int p, int e, int skip) : P(p), E(e)
        {
                perm = (int *)mem((size_t)(P + 1) * 4);
                offs = (int *)mem((size_t)(E + 1) * 4);
                expert = (int *)mem((size_t)(P + 1) * 4);
                int *of = (int *)malloc((size_t)(P + 1) * sizeof(int)), at = 0;
                for (int s = 0; s < P; s++) {
                        do
                                of[s] = (int)(next_random() % E);
                        while (of[s] == skip && E > 1);
                }
                for (int x = 0; x < E; x++) {
                        offs[x] = at;
                        for (int s = 0; s < P; s++)
                                if (of[s] == x) {
                                        expert[at] = x;
                                        perm[at++] = s;
                                }
                }
                offs[E] = at;
                free(of);
        }
        ~Routing() { mem_free(perm); mem_free(offs); mem_free(expert); }
        Routing(const Routing &) = delete;
        int row(int p, int div) const { return div ? perm[p] / div : p; }
};

template <class T, class Tile, bool TW, int ADIV, bool SCATTER, int ALIGN, int V>
struct ExpertRun {
        const T *a, *w;
        int lda, N, K, E;
        const int *perm, *offs;
        Keep<V> tail;
        __device__ void operator()(int tile, char *smem) const
        {
                expert_matmul_task<T, Tile, TW, ADIV, SCATTER, ALIGN>(a, lda, w, perm, offs, E, N, K, tile, smem, tail);
        }
};

template <class T, class Tile, int YDIV, int ADIV, int ALIGN, int V>
struct GradRun {
        const T *dy, *a;
        int ldy, lda, N, K, E;
        const int *perm, *offs;
        Keep<V> tail;
        __device__ void operator()(int tile, char *smem) const
        {
                expert_grad_task<T, Tile, YDIV, ADIV, ALIGN>(dy, ldy, a, lda, perm, offs, E, N, K, tile, smem, tail);
        }
};

template <class T, int N, int K, int ADIV, bool SCATTER, int ALIGN, int HV, int V>
struct SlotsRun {
        const T *w;
        int E;
        const int *perm, *offs;
        Give<HV> head;
        Keep<V> tail;
        __device__ void operator()(int tile, char *smem) const
        {
                expert_matvec_task<T, N, K, 64, 2, 1, ADIV, SCATTER, ALIGN>(w, perm, offs, E, tile, smem, head, tail);
        }
};

/* Result row of each sorted position, and the expert by result row. */
static void result_rows(const Routing &g, bool scatter, int *row_of, int *expert_of)
{
        for (int p = 0; p < g.P; p++) {
                row_of[p] = scatter ? g.perm[p] : p;
                expert_of[row_of[p]] = g.expert[p];
        }
}

template <class T, class Tile, bool TW, int ADIV, bool SCATTER, int ALIGN, int V>
static void expert_case(int P, int E, int N, int K, int skip)
{
        constexpr int PAD = 2 * ALIGN / (int)sizeof(T);
        char name[128];
        snprintf(name, sizeof name, "expert %s W%s %d slots %d experts %dx%d adiv %d scatter %d align %d",
                 type_name<T>(), TW ? "t" : "", P, E, N, K, ADIV, SCATTER, ALIGN);
        Routing g(P, E, skip);
        Matrix<T> a(ADIV ? P / ADIV + 1 : P, K, K + PAD), w(E * (TW ? N : K), TW ? K : N, TW ? K : N);
        Result r(P, N);
        int *row_of = (int *)mem((size_t)(P + 1) * 4), *expert_of = (int *)mem((size_t)(P + 1) * 4);
        int *p_of = (int *)mem((size_t)(P + 1) * 4);
        result_rows(g, SCATTER, row_of, expert_of);
        for (int p = 0; p < P; p++)
                p_of[row_of[p]] = p;
        ExpertRun<T, Tile, TW, ADIV, SCATTER, ALIGN, V> f =
                { a.p, w.p, a.ld, N, K, E, g.perm, g.offs, Keep<V>(r, expert_of) };
        bool ok = task_run(f, ((P + Tile::BM - 1) / Tile::BM + E) * ((N + Tile::BN - 1) / Tile::BN), Tile::THREADS,
                           Tile::SMEM, name);
        ok = ok && result_is(r, [&](int i, int j) {
                int p = p_of[i], e = g.expert[p];
                double s = 0;
                for (int k = 0; k < K; k++)
                        s += a.at(g.row(p, ADIV), k) * (TW ? w.at(e * N + j, k) : w.at(e * K + k, j));
                return s;
        }, 0, name);
        report(ok, name);
        mem_free(row_of);
        mem_free(expert_of);
        mem_free(p_of);
}

template <class T, class Tile, int YDIV, int ADIV, int ALIGN, int V>
static void grad_case(int P, int E, int N, int K, int skip)
{
        constexpr int PAD = 2 * ALIGN / (int)sizeof(T);
        char name[128];
        snprintf(name, sizeof name, "expert_grad %s %d slots %d experts %dx%d ydiv %d adiv %d align %d", type_name<T>(),
                 P, E, N, K, YDIV, ADIV, ALIGN);
        Routing g(P, E, skip);
        Matrix<T> dy(YDIV ? P / YDIV + 1 : P, N, N + PAD), a(ADIV ? P / ADIV + 1 : P, K, K + PAD);
        Result r(E * N, K);
        GradRun<T, Tile, YDIV, ADIV, ALIGN, V> f =
                { dy.p, a.p, dy.ld, a.ld, N, K, E, g.perm, g.offs, Keep<V>(r, 0, N) };
        bool ok = task_run(f, E * tiles_of<Tile>(N, K), Tile::THREADS, Tile::SMEM, name);
        ok = ok && result_is(r, [&](int i, int j) {
                int e = i / N;
                double s = 0;
                for (int p = g.offs[e]; p < g.offs[e + 1]; p++)
                        s += dy.at(g.row(p, YDIV), i % N) * a.at(g.row(p, ADIV), j);
                return s;
        }, 0, name);
        report(ok, name);
}

template <class T, int N, int K, int ADIV, bool SCATTER, int ALIGN, int HV, int V>
static void slots_case(int P, int E)
{
        char name[128];
        snprintf(name, sizeof name, "expert_matvec %s %d slots %d experts %dx%d adiv %d scatter %d",
                 type_name<T>(), P, E, N, K, ADIV, SCATTER);
        Routing g(P, E, -1);
        const int rows = ADIV ? P / ADIV + 1 : P;
        Matrix<float> x(rows, K, K);
        Matrix<T> w(E * N, K, K);
        Result r(P, N);
        int *row_of = (int *)mem((size_t)(P + 1) * 4), *expert_of = (int *)mem((size_t)(P + 1) * 4);
        int *p_of = (int *)mem((size_t)(P + 1) * 4);
        result_rows(g, SCATTER, row_of, expert_of);
        for (int p = 0; p < P; p++)
                p_of[row_of[p]] = p;
        MatvecShape s = matvec_shape((int)sizeof(T), 1, K, 64, 2, 1, ALIGN);
        SlotsRun<T, N, K, ADIV, SCATTER, ALIGN, HV, V> f =
                { w.p, E, g.perm, g.offs, { x.p, K, rows }, Keep<V>(r, expert_of) };
        bool ok = task_run(f, P * ((N + s.cols - 1) / s.cols), 64, s.smem, name);
        ok = ok && result_is(r, [&](int i, int j) {
                int p = p_of[i];
                double sum = 0;
                for (int k = 0; k < K; k++)
                        sum += x.at(g.row(p, ADIV), k) * w.at(g.expert[p] * N + j, k);
                return sum;
        }, 0, name);
        report(ok, name);
        mem_free(row_of);
        mem_free(expert_of);
        mem_free(p_of);
}

static void expert_cases()
{
        expert_case<bf16, H64x64x64, true, 2, false, 16, 8>(150, 5, 72, 136, 3);
        expert_case<bf16, H64x64x64, true, 0, true, 16, 8>(150, 5, 72, 136, 0);
        expert_case<f16, H16x64x64, false, 1, true, 16, 8>(70, 40, 64, 64, 39);
        expert_case<bf16, H128x128x64, true, 0, false, 16, 2>(300, 2, 130, 72, -1);
        expert_case<bf16, W128x128x64, true, 2, true, 16, 8>(600, 5, 136, 264, 1);
        expert_case<f16, W128x128x64, false, 0, false, 16, 8>(300, 3, 136, 72, -1);
        expert_case<bf16, H64x64x64, false, 2, false, 2, 1>(9, 3, 65, 33, 1);
        expert_case<float, F32x32x32, true, 3, true, 4, 1>(100, 70, 33, 35, 64);
        expert_case<float, F64x64x16, false, 0, false, 16, 4>(130, 1, 68, 36, -1);
        expert_case<float, T64x64x32, true, 3, true, 4, 1>(100, 7, 33, 35, 2);
        expert_case<bf16, H64x64x64, true, 2, false, 16, 8>(1, 256, 64, 64, 0);

        grad_case<bf16, H64x64x64, 0, 2, 16, 8>(300, 5, 72, 136, 2);
        grad_case<bf16, W128x128x64, 1, 2, 16, 8>(500, 3, 136, 264, 1);
        grad_case<f16, H128x128x32, 1, 2, 16, 8>(100, 3, 136, 8, 0);
        grad_case<bf16, H64x64x64, 2, 0, 2, 1>(65, 2, 65, 67, -1);
        grad_case<float, F32x32x32, 1, 3, 4, 1>(100, 7, 33, 35, 6);
        grad_case<float, T32x32x64, 1, 3, 16, 4>(200, 3, 36, 40, 1);

        slots_case<bf16, 34, 520, 2, true, 16, 8, 2>(8, 8);
        slots_case<f16, 33, 101, 0, false, 2, 1, 1>(3, 70);
        slots_case<float, 36, 64, 1, false, 16, 4, 2>(5, 33);
}

/* ---- the table, and main ----------------------------------------------------------- */

#define TILE(name, class, bm, bn, bk, wm, wn, stages, threads, minb, smem, ps) \
        static_assert(name::BM == bm && name::BN == bn && name::BK == bk, #name); \
        static_assert(name::WGMMA || (name::WARPS_M == wm && name::WARPS_N == wn), #name); \
        static_assert(name::STAGES == stages, #name); \
        static_assert(name::THREADS == threads && name::MINB == minb && name::SMEM == smem, #name); \
        static_assert((name::SIMT || name::TF32) == (#class[0] == 'F'), #name);
#include "matmul_tiles.def"
#undef TILE

int main(int argc, char **argv)
{
        const char *only = argc > 1 ? argv[1] : "";
        if (strstr("matmul", only))
                matmul_cases();
        if (strstr("matvec", only))
                matvec_cases();
        if (strstr("expert", only))
                expert_cases();
        printf("%s matmul, matvec and expert tasks: %d runs, %d wrong\n", failures ? "not ok" : "ok", runs, failures);
        return failures != 0;
}
