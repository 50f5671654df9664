/* rows_bench.h: what the benches of families that are bound by memory share: arrays on the GPU,
 * launches, times.
 *
 * time_ms: one call between two events, so with some microseconds of its start and end. 
 * time_queued_ms: a call of QUEUED in a graph, as a step has them, each with arrays that L2 has
 * forgotten. GB/s counts each operand once, as if caches were perfect.  `error` is the worst
 * |got - want| / (1 + |want|) against loops in double over a few rows. */
#ifndef TGC_ROWS_BENCH_H
#define TGC_ROWS_BENCH_H

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "tgc.cuh"

static const char *only = "";

static void ok(cudaError_t e)
{
        if (e == cudaSuccess)
                return;
        fprintf(stderr, "%s\n", cudaGetErrorString(e));
        exit(4);
}

template <class T>
struct Dev {
        T *p;
        size_t n;
        explicit Dev(size_t count) : n(count)
        {
                ok(cudaMalloc(&p, n * sizeof(T)));
                ok(cudaMemset(p, 0, n * sizeof(T)));
        }
        ~Dev() { cudaFree(p); }
        Dev(const Dev &) = delete;
        std::vector<T> get(size_t at, size_t count) const
        {
                std::vector<T> v(count);
                ok(cudaMemcpy(v.data(), p + at, count * sizeof(T), cudaMemcpyDeviceToHost));
                return v;
        }
        void put(const std::vector<T> &v)
        {
                ok(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
        }
};

template <class T>
__global__ void fill_kernel(T *p, size_t n, unsigned seed, float scale)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += (size_t)gridDim.x * blockDim.x) {
                uint4 r = philox(make_uint4((unsigned)i, (unsigned)(i >> 32), seed, 0), 1, 2);
                float x = (float)(r.x >> 8) + (float)(r.y >> 8) + (float)(r.z >> 8) +
                          (float)(r.w >> 8);
                from_float(p + i, (x / 16777216.f - 2.f) * 1.7f * scale);
        }
}

template <class T>
static void fill(Dev<T> &d, unsigned seed, float scale = 1.f)
{
        fill_kernel<<<1024, 256>>>(d.p, d.n, seed, scale);
}

template <int THREADS, int MOST, class F>
__global__ void __launch_bounds__(THREADS, MOST) shell(F f)
{
        TGC_SMEM(smem);
        f((int)blockIdx.x, smem);
}

static cudaStream_t stream()
{
        static cudaStream_t s;
        if (!s)
                ok(cudaStreamCreate(&s));
        return s;
}

/* MOST: blocks that a multiprocessor shall have room for. */
template <int THREADS, int MOST = 1, class F>
static void launch(const F &f, int tiles, int smem)
{
        ok(cudaFuncSetAttribute(shell<THREADS, MOST, F>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
        shell<THREADS, MOST, F><<<tiles, THREADS, smem, stream()>>>(f);
}

/* Milliseconds of one call, the median of 15 after 3. */
template <class Call>
static double time_ms(const Call &call)
{
        cudaEvent_t a, b;
        std::vector<float> ms;
        cudaEventCreate(&a);
        cudaEventCreate(&b);
        for (int i = 0; i < 18; i++) {
                float t;
                cudaEventRecord(a, stream());
                call();
                cudaEventRecord(b, stream());
                ok(cudaEventSynchronize(b));
                ok(cudaGetLastError());
                cudaEventElapsedTime(&t, a, b);
                if (i >= 3)
                        ms.push_back(t);
        }
        cudaEventDestroy(a);
        cudaEventDestroy(b);
        std::sort(ms.begin(), ms.end());
        return ms[ms.size() / 2];
}

enum { QUEUED = 20 };

/* How many sets of arrays of so many bytes time_queued_ms goes round in: 200 MB in all, but 16 at
 * most. */
static int sets_of(double bytes) { return bytes > 13e6 ? 1 + (int)(200e6 / bytes) : 16; }

/* Milliseconds of a call among QUEUED, call(set), that a graph has one after another. */
template <class Call>
static double time_queued_ms(int sets, const Call &call)
{
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        call(0); /* what a launch sets is set outside of the graph */
        ok(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < QUEUED; i++)
                call(i % sets);
        ok(cudaStreamEndCapture(stream(), &graph));
        ok(cudaGraphInstantiate(&exec, graph, 0));
        const double ms = time_ms([&] { ok(cudaGraphLaunch(exec, stream())); });
        ok(cudaGraphExecDestroy(exec));
        ok(cudaGraphDestroy(graph));
        return ms / QUEUED;
}

static void report(const char *name, double ms, double bytes, double error)
{
        printf("%-44s %9.1f us %8.0f GB/s   error %.1e\n", name, ms * 1e3, bytes / ms * 1e-6,
               error);
}

static bool wanted(const char *name) { return strstr(name, only) != 0; }
static int ceil_div(long long a, long long b) { return (int)((a + b - 1) / b); }
static double host(bf16 x) { return __bfloat162float(x); }
static double worse(double e, double got, double want)
{
        double d = fabs(got - want) / (1 + fabs(want));
        return d <= e ? e : d; /* NaN is worst */
}

template <class T>
struct In {
        static constexpr int MAXV = 8, MINV = 1;
        const T *p;
        int ld;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                load<V>(v, p + (long long)row * ld + col);
        }
};

template <class T>
struct Out {
        static constexpr int MAXV = 8, MINV = 1;
        T *p;
        int ld;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                store<V>(p + (long long)row * ld + col, v);
        }
};

#endif
