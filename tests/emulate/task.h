/* task.h: operands, results and launches of tasks that multiply, in the emulator or on a GPU.
 *
 * What lies between the rows of a strided operand is NaN: an element taken from there shows.  The
 * epilogues count how often each place of a result is delivered, which must be once. */
#ifndef TGC_TEST_TASK_H
#define TGC_TEST_TASK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include "gemm.cuh"

/* ---- memory and launches of both kinds ------------------------------------ */

#ifdef TGC_EMULATE
static void *mem(size_t n) { return aligned_alloc(256, (n + 255) / 256 * 256); }
static void mem_free(void *p) { free(p); }
#else
static void *mem(size_t n)
{
        void *p = 0;
        if (cudaMallocManaged(&p, n) != cudaSuccess) {
                printf("skip: no GPU\n");
                exit(0);
        }
        return p;
}
static void mem_free(void *p) { cudaFree(p); }
#endif

/* A task as an object f with f(tile, smem), run by one kernel of F::MOST threads, 256 where F does
 * not say. */
template <class F, class = void>
struct Threads {
        static constexpr int MOST = 256;
};
template <class F>
struct Threads<F, std::void_t<decltype(F::MOST)>> {
        static constexpr int MOST = F::MOST;
};

template <class F>
__global__ void __launch_bounds__(Threads<F>::MOST) task_kernel(const F *f)
{
        TGC_SMEM(smem);
        (*f)((int)blockIdx.x, smem);
}

/* cluster: blocks of one. */
template <class F>
static bool task_run(const F &f, int tiles, int threads, int smem, const char *name,
                     int cluster = 1)
{
        F *g = (F *)mem(sizeof f);
        memcpy((void *)g, (const void *)&f, sizeof f);
#ifdef TGC_EMULATE
        emu::Entry<1> entry(name, task_kernel<F>);
        void *args[1] = { g };
        char err[512];
        if (cluster > 1)
                tgc_emulate_clusters((unsigned)cluster, (unsigned)cluster);
        int bad = tgc_emulate_launch(name, tiles, threads, smem, args, 1, err, sizeof err);
        if (cluster > 1)
                tgc_emulate_clusters(1, 1);
        emu::kernels = entry.next;
        if (bad)
                printf("  %s\n", err);
#else
        cudaFuncSetAttribute(task_kernel<F>, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
        cudaLaunchAttribute in_clusters = {};
        in_clusters.id = cudaLaunchAttributeClusterDimension;
        in_clusters.val.clusterDim.x = cluster,
        in_clusters.val.clusterDim.y = in_clusters.val.clusterDim.z = 1;
        cudaLaunchConfig_t how = {};
        how.gridDim = dim3(tiles), how.blockDim = dim3(threads), how.dynamicSmemBytes = smem;
        how.attrs = &in_clusters, how.numAttrs = cluster > 1;
        /* of the launch itself */
        cudaError_t e = cudaLaunchKernelEx(&how, task_kernel<F>, (const F *)g);
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
static unsigned next_random()
{
        return random_state = random_state * 1664525u + 1013904223u, random_state >> 10;
}

template <class T>
static void put(T *p, float x)
{
#ifdef TGC_EMULATE
        *p = (T)x;
#else
        *p = T(x);
#endif
}
template <class T>
static float get(T x)
{
        return (float)x;
}

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
                        put(p + i, i % ld >= (size_t)cols ? NAN
                                   : integers             ? (float)(int)(next_random() % 9) - 4.f
                                                          : u);
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
        ~Result()
        {
                mem_free(c);
                mem_free(count);
                mem_free(wrong);
        }
        Result(const Result &) = delete;
};

template <int V_, int MINV_ = 1>
struct Keep {
        static constexpr int MAXV = V_, MINV = MINV_;
        float *c;
        int *count, *wrong, M, N;
        const int *expert_of; /* by result row, or 0 */
        int grad_rows;        /* of C per expert: C is (E,grad_rows,N); 0: not a gradient */
        Keep(const Result &r, const int *expert = 0, int rows = 0)
            : c(r.c), count(r.count), wrong(r.wrong), M(r.M), N(r.N), expert_of(expert),
              grad_rows(rows)
        {
        }
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
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
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V], int e) const
        {
                if (expert_of && row >= 0 && row < M && expert_of[row] != e)
                        *wrong = 2;
                (*this)(row + e * grad_rows, col, v);
        }
};

/* A prologue: rows of x, K wide, of which there are so many. */
template <int V_>
struct Give {
        static constexpr int MAXV = V_, MINV = 1;
        const float *x;
        int K, rows;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                for (int i = 0; i < V; i++)
                        v[i] = row < rows && col % V == 0 && col + i < K
                                       ? x[(size_t)row * K + col + i]
                                       : NAN;
        }
};

template <class F>
static bool result_is(const Result &r, const F &want, double tolerance, const char *name)
{
        if (*r.wrong) {
                printf("  %s: epilogue called outside of C, or with a wrong expert (%d)\n", name,
                       *r.wrong);
                return false;
        }
        for (int i = 0; i < r.M; i++)
                for (int j = 0; j < r.N; j++) {
                        double w = want(i, j), c = r.c[(size_t)i * r.N + j];
                        if (r.count[(size_t)i * r.N + j] != 1 || !(fabs(c - w) <= tolerance)) {
                                printf("  %s: C[%d][%d] is %g, delivered %d times; want %g\n", name,
                                       i, j, c, r.count[(size_t)i * r.N + j], w);
                                return false;
                        }
                }
        return true;
}

template <class T>
static const char *type_name()
{
        return sizeof(T) == 4 ? "f32" : "16";
}
template <>
const char *type_name<bf16>()
{
        return "bf16";
}
template <>
const char *type_name<f16>()
{
        return "f16";
}

#endif
