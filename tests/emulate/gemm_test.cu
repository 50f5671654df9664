/* gemm_test.cu: gemm.cuh and grouped_gemm.cuh against plain loops, in the emulator or on a GPU:
 *
 *      tests/emulate/play.sh gemm_test            the emulator
 *      tests/emulate/play.sh --gpu gemm_test      a GPU; with -DTGC_SM90A wgmma as well
 *
 * Inputs of the matmuls are small integers, so every sum is exact and results are compared for
 * equality, but where a norm follows. */
#include "task.h"
#include "grouped_gemm.cuh"
#include "gemm_norm.cuh"
#include "gemv_shape.h"

/* ---- matmul --------------------------------------------------------------------- */

template <class T, class Tile, bool TA, bool TB, int ALIGN, int V>
struct MatmulRun {
        const T *a, *b;
        int lda, ldb, M, N, K;
        Keep<V> epilogue;
        __device__ void operator()(int tile, char *smem) const
        {
                gemm_task<T, Tile, TA, TB, ALIGN>(a, lda, b, ldb, M, N, K, tile, smem, epilogue);
        }
};

template <class T, class Tile, bool TA, bool TB, int ALIGN, int V>
struct SplitRun {
        const T *a, *b;
        int lda, ldb, M, N, K, splits;
        float *ws;
        __device__ void operator()(int tile, char *smem) const
        {
                gemm_split_k_task<T, Tile, TA, TB, ALIGN, V>(a, lda, b, ldb, M, N, K, splits, ws,
                                                             tile, smem);
        }
};

template <int V>
struct ReduceRun {
        const float *ws;
        int splits, M, N;
        Keep<V> epilogue;
        __device__ void operator()(int tile, char *) const
        {
                splitk_reduce_task<64>(ws, splits, M, N, tile, epilogue);
        }
};

/* Random operands of op(A) op(B), rows PAD elements longer than they need be; what it must give. */
template <class T, bool TA, bool TB, int PAD = 0>
struct Operands {
        int K;
        Matrix<T> a, b;
        Operands(int M, int N, int k, bool integers = true)
            : K(k), a(TA ? K : M, TA ? M : K, (TA ? M : K) + PAD, integers),
              b(TB ? N : K, TB ? K : N, (TB ? K : N) + PAD, integers)
        {
        }
        double operator()(int i, int j) const
        {
                double s = 0;
                for (int k = 0; k < K; k++)
                        s += (TA ? a.at(k, i) : a.at(i, k)) * (TB ? b.at(j, k) : b.at(k, j));
                return s;
        }
};

template <class Tile>
static int tiles_of(int M, int N)
{
        return (M + Tile::BM - 1) / Tile::BM * ((N + Tile::BN - 1) / Tile::BN);
}

/* splits 0: gemm_task */
template <class T, class Tile, bool TA, bool TB, int ALIGN, int V>
static void gemm_case(int M, int N, int K, int splits = 0)
{
        char name[128];
        snprintf(name, sizeof name, "matmul %s %d%d %dx%dx%d tile %dx%dx%d align %d V %d splits %d",
                 type_name<T>(), TA, TB, M, N, K, Tile::BM, Tile::BN, Tile::BK, ALIGN, V, splits);
        const Operands<T, TA, TB, 2 * ALIGN / (int)sizeof(T)> x(M, N, K);
        Result r(M, N);
        Keep<V> keep(r);
        bool ok;
        if (splits) {
                float *ws = (float *)mem((size_t)splits * M * N * 4);
                SplitRun<T, Tile, TA, TB, ALIGN, V> f = { x.a.p, x.b.p, x.a.ld, x.b.ld, M,
                                                          N,     K,     splits, ws };
                ReduceRun<V> g = { ws, splits, M, N, keep };
                ok = task_run(f, splits * tiles_of<Tile>(M, N), Tile::THREADS, Tile::SMEM, name) &&
                     task_run(g, (M * N + 64 * V - 1) / (64 * V), 64, 0, name);
                mem_free(ws);
        } else {
                MatmulRun<T, Tile, TA, TB, ALIGN, V> f = { x.a.p, x.b.p, x.a.ld, x.b.ld,
                                                           M,     N,     K,      keep };
                ok = task_run(f, tiles_of<Tile>(M, N), Tile::THREADS, Tile::SMEM, name);
        }
        report(ok && result_is(r, x, 0, name), name);
}

template <class T, class Tile, int ALIGN, int V>
static void matmul_transposes(int M, int N, int K)
{
        gemm_case<T, Tile, false, true, ALIGN, V>(M, N, K);
        gemm_case<T, Tile, false, false, ALIGN, V>(M, N, K);
        gemm_case<T, Tile, true, false, ALIGN, V>(M, N, K);
        gemm_case<T, Tile, true, true, ALIGN, V>(M, N, K);
}

/* float32 of any digits: off by some 2^-24 of the root of the sum of squares of the products, as a
 * sum of rounded products is; with tf32 alone it would be 2^-12. */
template <class Tile, bool TA, bool TB>
static void gemm_close(int M, int N, int K)
{
        char name[128];
        snprintf(name, sizeof name, "matmul f32 close %d%d %dx%dx%d tile %dx%dx%d", TA, TB, M, N, K,
                 Tile::BM, Tile::BN, Tile::BK);
        const Operands<float, TA, TB> x(M, N, K, false);
        Result r(M, N);
        for (int i = 0; i < M * K; i++) /* all 24 bits */
                x.a.p[i] *= 1.f + (float)(next_random() % 4096) / 16777216.f;
        for (int i = 0; i < N * K; i++)
                x.b.p[i] *= 1.f + (float)(next_random() % 4096) / 16777216.f;
        MatmulRun<float, Tile, TA, TB, 16, 4> f = { x.a.p, x.b.p, x.a.ld, x.b.ld,
                                                    M,     N,     K,      Keep<4>(r) };
        bool ok = task_run(f, tiles_of<Tile>(M, N), Tile::THREADS, Tile::SMEM, name);
        report(ok && result_is(r, x, 5e-6 * sqrt(K / 9.), name), name);
}

static void gemm_cases()
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
        gemm_case<bf16, H16x64x64, false, true, 16, 1>(1, 1, 64);
        gemm_case<bf16, H64x64x64, false, true, 16, 1>(3, 7, 200);
        /* three groups of block rows */
        gemm_case<bf16, H64x64x64, false, true, 16, 8>(1037, 72, 72);

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

        gemm_close<F32x32x32, false, true>(64, 64, 512);
        gemm_close<T64x64x32, false, true>(64, 64, 512);
        gemm_close<T64x64x32, false, false>(64, 64, 512);
        gemm_close<T32x32x64, true, false>(32, 64, 1024);
        gemm_close<T32x32x64, true, true>(32, 64, 1024);

        gemm_case<bf16, H64x64x64, true, false, 16, 8>(72, 136, 1000, 3);
        gemm_case<bf16, W128x128x64, true, false, 16, 8>(136, 264, 1000, 3);
        /* more splits than K-tiles */
        gemm_case<f16, H128x128x32, true, false, 16, 4>(8, 136, 40, 4);
        gemm_case<float, F32x32x32, true, false, 4, 1>(33, 35, 101, 2);
        gemm_case<float, F32x32x32, true, false, 4, 1>(33, 35, 1, 3);
        gemm_case<float, T64x64x32, true, false, 16, 8>(72, 136, 1000, 3);
        /* more splits than K-tiles */
        gemm_case<float, T32x32x64, true, false, 4, 1>(33, 35, 1, 3);
}

/* ---- a product and its norm --------------------------------------------------------- */

template <class T, class Tile, bool TB, class Norm, int V, int NV>
struct NormRun {
        const T *a, *b;
        int lda, ldb, M, N, K;
        Keep<V> epilogue;
        Keep<NV> norm;
        __device__ void operator()(int tile, char *smem) const
        {
                gemm_norm_task<T, Tile, false, TB, 16, Norm>(a, lda, b, ldb, M, N, K, 1e-3f, tile,
                                                             smem, epilogue, norm);
        }
};

template <class T, class Tile, bool TB, int KIND, int CLUSTER, int V, int NV>
static void norm_case(int M, int N, int K)
{
        typedef RowNorm<KIND, CLUSTER> Norm;
        char name[128];
        snprintf(name, sizeof name, "matmul %s and %s %dx%dx%d tile %dx%d in clusters of %d",
                 type_name<T>(), KIND == NORM_LAYER ? "layernorm" : "rmsnorm", M, N, K, Tile::BM,
                 Tile::BN, CLUSTER);
        const Operands<T, false, TB, 16> x(M, N, K);
        Result r(M, N), normed(M, N);
        NormRun<T, Tile, TB, Norm, V, NV> f = { x.a.p, x.b.p, x.a.ld,     x.b.ld,          M,
                                                N,     K,     Keep<V>(r), Keep<NV>(normed) };
        bool ok = task_run(f, (M + Tile::BM - 1) / Tile::BM * CLUSTER, Tile::THREADS,
                           gemm_norm_smem<Tile, Norm>(), name, CLUSTER);
        ok = ok && result_is(r, x, 0, name);
        for (int i = 0; ok && i < M; i++) { /* rows to their norms */
                double mean = 0, var = 0;
                float *row = r.c + (size_t)i * N;
                for (int j = 0; j < N; j++)
                        mean += KIND == NORM_LAYER ? row[j] / (double)N : 0;
                for (int j = 0; j < N; j++)
                        var += (row[j] - mean) * (row[j] - mean) / N;
                for (int j = 0; j < N; j++)
                        row[j] = (float)((row[j] - mean) / sqrt(var + 1e-3));
        }
        ok = ok && result_is(
                           normed, [&](int i, int j) { return (double)r.c[(size_t)i * N + j]; },
                           4e-6, name);
        report(ok, name);
}

template <class T, class Tile, int CLUSTER, int V, int NV>
static void norm_kinds(int M, int N, int K)
{
        norm_case<T, Tile, true, NORM_RMS, CLUSTER, V, NV>(M, N, K);
        norm_case<T, Tile, true, NORM_LAYER, CLUSTER, V, NV>(M, N, K);
        norm_case<T, Tile, false, NORM_LAYER, CLUSTER, V, NV>(M, N, K);
}

static void norm_cases()
{
        norm_kinds<bf16, W64x128x64, 1, 8, 8>(136, 128, 200);
        norm_kinds<bf16, W64x128x64, 1, 8, 4>(72, 56, 200);
        norm_kinds<bf16, W64x64x64, 1, 1, 1>(65, 8, 72);
        norm_kinds<f16, H16x64x64, 1, 8, 2>(16, 48, 72);
        norm_kinds<f16, H128x128x64, 1, 2, 8>(136, 72, 72);
        norm_kinds<float, T32x32x64, 1, 8, 8>(36, 24, 264);
        norm_kinds<float, T64x64x32, 1, 4, 4>(65, 64, 100);
        norm_kinds<float, T32x32x64, 1, 2, 8>(33, 8, 64);
#ifdef TGC_SM90A
        norm_kinds<bf16, W64x128x64, 3, 8, 8>(1536, 384, 384);
        norm_kinds<bf16, W64x128x64, 3, 8, 4>(72, 264, 200);
        norm_kinds<bf16, W64x64x64, 6, 8, 8>(136, 328, 72);
        norm_kinds<bf16, W64x128x64_3, 8, 8, 8>(136, 1024, 72);
        norm_kinds<f16, W128x128x64, 2, 8, 8>(264, 136, 72);
        norm_kinds<float, T32x32x64, 4, 8, 8>(1024, 128, 512);
        norm_kinds<float, T32x32x64, 5, 4, 4>(36, 132, 264);
        norm_kinds<float, T64x64x32, 2, 4, 2>(65, 68, 100);
        norm_kinds<f16, H32x64x64, 2, 4, 8>(40, 96, 104);
#endif
}

/* ---- experts ----------------------------------------------------------------------- */

struct Routing {
        int P, E, *perm, *offs, *expert; /* expert: by sorted position */
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
        ~Routing()
        {
                mem_free(perm);
                mem_free(offs);
                mem_free(expert);
        }
        Routing(const Routing &) = delete;
        int row(int p, int div) const { return div ? perm[p] / div : p; }
};

template <class T, class Tile, bool TW, int ADIV, bool SCATTER, int ALIGN, int V>
struct ExpertRun {
        const T *a, *w;
        int lda, N, K, E;
        const int *perm, *offs;
        Keep<V> epilogue;
        __device__ void operator()(int tile, char *smem) const
        {
                grouped_gemm_task<T, Tile, TW, ADIV, SCATTER, ALIGN>(a, lda, w, perm, offs, E, N, K,
                                                                     tile, smem, epilogue);
        }
};

template <class T, class Tile, int YDIV, int ADIV, int ALIGN, int V>
struct GradRun {
        const T *dy, *a;
        int ldy, lda, N, K, E;
        const int *perm, *offs;
        Keep<V> epilogue;
        __device__ void operator()(int tile, char *smem) const
        {
                grouped_gemm_grad_task<T, Tile, YDIV, ADIV, ALIGN>(dy, ldy, a, lda, perm, offs, E,
                                                                   N, K, tile, smem, epilogue);
        }
};

template <class T, int N, int K, int ADIV, bool SCATTER, int ALIGN, int HV, int V>
struct SlotsRun {
        const T *w;
        int E;
        const int *perm, *offs;
        Give<HV> prologue;
        Keep<V> epilogue;
        __device__ void operator()(int tile, char *smem) const
        {
                grouped_gemv_task<T, N, K, 64, 2, 1, ADIV, SCATTER, ALIGN>(w, perm, offs, E, tile,
                                                                           smem, prologue,
                                                                           epilogue);
        }
};

/* Of a result's rows: which sorted position each is of, and its expert. */
struct ResultRows {
        int *position, *expert;
        ResultRows(const Routing &g, bool scatter)
            : position((int *)mem((size_t)(g.P + 1) * 4)), expert((int *)mem((size_t)(g.P + 1) * 4))
        {
                for (int p = 0; p < g.P; p++) {
                        const int row = scatter ? g.perm[p] : p;
                        position[row] = p;
                        expert[row] = g.expert[p];
                }
        }
        ~ResultRows()
        {
                mem_free(position);
                mem_free(expert);
        }
        ResultRows(const ResultRows &) = delete;
};

template <class T, class Tile, bool TW, int ADIV, bool SCATTER, int ALIGN, int V>
static void expert_case(int P, int E, int N, int K, int skip)
{
        constexpr int PAD = 2 * ALIGN / (int)sizeof(T);
        char name[128];
        snprintf(name, sizeof name,
                 "expert %s W%s %d slots %d experts %dx%d adiv %d scatter %d align %d",
                 type_name<T>(), TW ? "t" : "", P, E, N, K, ADIV, SCATTER, ALIGN);
        Routing g(P, E, skip);
        Matrix<T> a(ADIV ? P / ADIV + 1 : P, K, K + PAD),
                w(E * (TW ? N : K), TW ? K : N, TW ? K : N);
        Result r(P, N);
        const ResultRows rows(g, SCATTER);
        ExpertRun<T, Tile, TW, ADIV, SCATTER, ALIGN, V> f = {
                a.p, w.p, a.ld, N, K, E, g.perm, g.offs, Keep<V>(r, rows.expert)
        };
        bool ok = task_run(f, ((P + Tile::BM - 1) / Tile::BM + E) * ((N + Tile::BN - 1) / Tile::BN),
                           Tile::THREADS, Tile::SMEM, name);
        ok = ok && result_is(
                           r,
                           [&](int i, int j) {
                                   int p = rows.position[i], e = g.expert[p];
                                   double s = 0;
                                   for (int k = 0; k < K; k++)
                                           s += a.at(g.row(p, ADIV), k) *
                                                (TW ? w.at(e * N + j, k) : w.at(e * K + k, j));
                                   return s;
                           },
                           0, name);
        report(ok, name);
}

template <class T, class Tile, int YDIV, int ADIV, int ALIGN, int V>
static void grad_case(int P, int E, int N, int K, int skip)
{
        constexpr int PAD = 2 * ALIGN / (int)sizeof(T);
        char name[128];
        snprintf(name, sizeof name,
                 "expert_grad %s %d slots %d experts %dx%d ydiv %d adiv %d align %d",
                 type_name<T>(), P, E, N, K, YDIV, ADIV, ALIGN);
        Routing g(P, E, skip);
        Matrix<T> dy(YDIV ? P / YDIV + 1 : P, N, N + PAD), a(ADIV ? P / ADIV + 1 : P, K, K + PAD);
        Result r(E * N, K);
        GradRun<T, Tile, YDIV, ADIV, ALIGN, V> f = { dy.p, a.p, dy.ld,  a.ld,   N,
                                                     K,    E,   g.perm, g.offs, Keep<V>(r, 0, N) };
        bool ok = task_run(f, E * tiles_of<Tile>(N, K), Tile::THREADS, Tile::SMEM, name);
        ok = ok &&
             result_is(
                     r,
                     [&](int i, int j) {
                             int e = i / N;
                             double s = 0;
                             for (int p = g.offs[e]; p < g.offs[e + 1]; p++)
                                     s += dy.at(g.row(p, YDIV), i % N) * a.at(g.row(p, ADIV), j);
                             return s;
                     },
                     0, name);
        report(ok, name);
}

template <class T, int N, int K, int ADIV, bool SCATTER, int ALIGN, int HV, int V>
static void slots_case(int P, int E)
{
        char name[128];
        snprintf(name, sizeof name, "grouped_gemv %s %d slots %d experts %dx%d adiv %d scatter %d",
                 type_name<T>(), P, E, N, K, ADIV, SCATTER);
        Routing g(P, E, -1);
        const int rows_x = ADIV ? P / ADIV + 1 : P;
        Matrix<float> x(rows_x, K, K);
        Matrix<T> w(E * N, K, K);
        Result r(P, N);
        const ResultRows rows(g, SCATTER);
        GemvShape s = gemv_shape((int)sizeof(T), 1, K, 64, 2, 1, ALIGN);
        SlotsRun<T, N, K, ADIV, SCATTER, ALIGN, HV, V> f = {
                w.p, E, g.perm, g.offs, { x.p, K, rows_x }, Keep<V>(r, rows.expert)
        };
        bool ok = task_run(f, P * ((N + s.cols - 1) / s.cols), 64, s.smem, name);
        ok = ok &&
             result_is(
                     r,
                     [&](int i, int j) {
                             int p = rows.position[i];
                             double sum = 0;
                             for (int k = 0; k < K; k++)
                                     sum += x.at(g.row(p, ADIV), k) * w.at(g.expert[p] * N + j, k);
                             return sum;
                     },
                     0, name);
        report(ok, name);
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

#define TILE(name, math, rounds, bm, bn, bk, wm, wn, stages, threads, minb, smem, ps)       \
        static_assert(name::BM == bm && name::BN == bn && name::BK == bk, #name);           \
        static_assert(name::WGMMA || (name::WARPS_M == wm && name::WARPS_N == wn), #name);  \
        static_assert(name::STAGES == stages, #name);                                       \
        static_assert(name::THREADS == threads && name::MINB == minb && name::SMEM == smem, \
                      #name);                                                               \
        static_assert((name::SIMT || name::TF32) == (#math[0] == 'F' || #math[0] == 'T'), #name);
#include "gemm_tiles.def"
#undef TILE

int main(int argc, char **argv)
{
        const char *only = argc > 1 ? argv[1] : "";
        if (strstr("matmul", only))
                gemm_cases();
        if (strstr("norm", only))
                norm_cases();
        if (strstr("expert", only))
                expert_cases();
        printf("%s matmul and expert tasks: %d runs, %d wrong\n", failures ? "not ok" : "ok", runs,
               failures);
        return failures != 0;
}
