/* gemv_stored_bench.cu: gemv_stored.cuh and gemv_stored_sm90.cuh on the GPU at hand: products of
 * one row with weights in blocks, checked and timed.
 *
 *      nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1 -Icodegen/forms \
 *           $(make -s kernel-includes) -Iruntime -Iruntime/weights -Itests/emulate \
 *           -o gemv_stored_bench tests/bench/gemv_stored_bench.cu
 *      ./gemv_stored_bench [WORD]         cases whose name has it
 *
 * Each product is compared with sums in double precision at 64 columns.  A time is the median of
 * five graphs of launches, each of the next weights of a pool that exceeds L2, each starting while
 * the one before runs (programmatic dependent launch), as in decoding.  GB/s: bytes of W; share: of
 * the rate at which a kernel reads that pool.  Exit status 1 when something is wrong. */
#define TGC_PDL_LATE 1
#include <stdio.h>
#include <stdlib.h>
#include <algorithm>
#include <math.h>
#include "gemv_shape.h"
#include "gemv_stored.cuh"
#include "gemv_stored_sm90.cuh"
#include "stored_blocks.h"

enum { SMS = 132, COLUMNS = 64, LAUNCHES = 40 };
static const size_t POOL = (size_t)3 << 29;
static unsigned char *pool;
static bf16 *x, *gain_of, *y;
static double read_rate;
static int bad;

static void ok(cudaError_t e, const char *what)
{
        if (e == cudaSuccess)
                return;
        printf("%s: %s\n", what, cudaGetErrorString(e));
        exit(1);
}

/* ---- functors, as codegen writes them ---- */

struct LoadX {
        static constexpr int MAXV = 8, MINV = 1;
        const bf16 *x;
        template <int V>
        __device__ __forceinline__ void operator()(int, int col, float (&v)[V]) const
        {
                load<V>(v, x + col);
        }
};
struct Gain {
        static constexpr int MAXV = 8, MINV = 1;
        const bf16 *g;
        template <int V>
        __device__ __forceinline__ void operator()(int, int col, float (&v)[V]) const
        {
                float w[V];
                load<V>(w, g + col);
#pragma unroll
                for (int i = 0; i < V; i++)
                        v[i] *= w[i];
        }
};
struct StoreY {
        static constexpr int MAXV = 8, MINV = 1;
        bf16 *y;
        template <int V>
        __device__ __forceinline__ void operator()(int, int col, float (&v)[V]) const
        {
                store<V>(y + col, v);
        }
};

template <class S, int N, int K, int DIGITS, class Tile, int MINB>
__global__ void __launch_bounds__(Tile::THREADS, MINB)
        kernel(const unsigned char *w, const bf16 *x, const bf16 *g, bf16 *y)
{
        TGC_SMEM(smem);
        if (Tile::EARLY < 0)
                pdl_launch();
        const LoadX prologue = { x };
        const StoreY epilogue = { y };
        gemv_stored_task<S, 1, N, K, DIGITS, Tile, NORM_RMS>(w, K, 1e-5f, (int)blockIdx.x, smem,
                                                             prologue, epilogue, Gain { g });
}

template <class S, int N, int K, class Tile>
__global__ void __launch_bounds__(Tile::THREADS, 2)
        mma_kernel(const unsigned char *w, const bf16 *x, const bf16 *g, bf16 *y)
{
        TGC_SMEM(smem);
        const LoadX prologue = { x };
        const StoreY epilogue = { y };
        gemv_stored_sm90_task<S, 1, N, K, Tile, NORM_RMS>(w, K, 1e-5f, (int)blockIdx.x, smem,
                                                          prologue, epilogue, Gain { g });
}

__global__ void read_all(const uint4 *p, size_t n, unsigned *to)
{
        const size_t step = (size_t)gridDim.x * blockDim.x;
        unsigned sum = 0;
        size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
        for (; i + 7 * step < n; i += 8 * step) {
                uint4 v[8];
#pragma unroll
                for (int j = 0; j < 8; j++)
                        v[j] = load_streaming(p + i + j * step);
#pragma unroll
                for (int j = 0; j < 8; j++)
                        sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
        }
        if (sum == 0x12345678u)
                *to = sum;
}

template <class S>
__global__ void reference(const unsigned char *w, const bf16 *x, const bf16 *g, double *y,
                          double *size, int N, int K)
{
        const int n = (int)((long)blockIdx.x * N / COLUMNS);
        double sum = 0, all = 0, squares = 0;
        __shared__ double part[3][256];
        for (int c = threadIdx.x; c < K / 32; c += 256) {
                float v[32];
                S::chunk(v, w, (long)n * K + c * 32);
                for (int j = 0; j < 32; j++) {
                        const double u = (double)(float)x[c * 32 + j];
                        const double p = u * (double)(float)g[c * 32 + j] * (double)v[j];
                        sum += p, all += fabs(p), squares += u * u;
                }
        }
        part[0][threadIdx.x] = sum, part[1][threadIdx.x] = all, part[2][threadIdx.x] = squares;
        __syncthreads();
        if (threadIdx.x)
                return;
        sum = all = squares = 0;
        for (int i = 0; i < 256; i++)
                sum += part[0][i], all += part[1][i], squares += part[2][i];
        y[blockIdx.x] = sum / sqrt(squares / K + 1e-5);
        size[blockIdx.x] = all / sqrt(squares / K + 1e-5);
}

template <class F>
static double time_graph(const F &launches)
{
        cudaStream_t s;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaEvent_t a, b;
        float ms[6];
        cudaStreamCreate(&s), cudaEventCreate(&a), cudaEventCreate(&b);
        cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
        launches(s);
        ok(cudaStreamEndCapture(s, &graph), "capture");
        ok(cudaGraphInstantiate(&exec, graph, 0), "graph");
        for (int i = 0; i < 6; i++) {
                cudaEventRecord(a, s), cudaGraphLaunch(exec, s), cudaEventRecord(b, s);
                ok(cudaStreamSynchronize(s), "launches");
                cudaEventElapsedTime(&ms[i], a, b);
        }
        std::sort(ms + 1, ms + 6);
        cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaStreamDestroy(s);
        return ms[3] / 1e3;
}

/* Wrong columns. */
template <class S>
static int compare(const char *name, const unsigned char *w, int N, int K)
{
        double *want;
        int wrong = 0;
        ok(cudaMallocManaged(&want, 2 * COLUMNS * sizeof *want), "memory");
        reference<S><<<COLUMNS, 256>>>(w, x, gain_of, want, want + COLUMNS, N, K);
        ok(cudaDeviceSynchronize(), "reference");
        for (int i = 0; i < COLUMNS; i++) {
                const double got = (double)(float)y[(long)i * N / COLUMNS];
                const double most = 4e-3 * fabs(want[i]) + 1e-4 * want[COLUMNS + i];
                if (!(fabs(got - want[i]) <= most) && !wrong++)
                        printf("%s: column %ld is %g, want %g\n", name, (long)i * N / COLUMNS, got,
                               want[i]);
        }
        cudaFree(want);
        return wrong;
}

/* Checks and times a kernel of `threads` threads and prints its line, where its name has `only`. */
template <class S, class Kernel>
static void race(const char *name, Kernel *k, int N, int K, int threads, int grid, int smem,
                 const char *only)
{
        const size_t bytes = (size_t)N * K / S::VALUES * S::BYTES, each = (bytes + 255) / 256 * 256;
        const int copies = (int)(POOL / each);
        if (only && !strstr(name, only))
                return;
        ok(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, smem), name);
        cudaLaunchAttribute pdl = {};
        pdl.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        pdl.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t how = {};
        how.gridDim = dim3(grid), how.blockDim = dim3(threads), how.dynamicSmemBytes = smem;
        how.attrs = &pdl, how.numAttrs = 1;
        memset(y, 0, (size_t)N * 2);
        ok(cudaLaunchKernelEx(&how, k, (const unsigned char *)pool, (const bf16 *)x,
                              (const bf16 *)gain_of, y),
           name);
        ok(cudaDeviceSynchronize(), name);
        const int wrong = compare<S>(name, pool, N, K);
        bad += wrong > 0;
        const double t = time_graph([&](cudaStream_t s) {
                how.stream = s;
                for (int i = 0; i < LAUNCHES; i++)
                        ok(cudaLaunchKernelEx(&how, k,
                                              (const unsigned char *)pool + i % copies * each,
                                              (const bf16 *)x, (const bf16 *)gain_of, y),
                           name);
        });
        const double rate = (double)bytes * LAUNCHES / t;
        cudaFuncAttributes a;
        cudaFuncGetAttributes(&a, k);
        printf("%-44s %4d x %6d B %3d regs %8.2f us %5.0f GB/s %5.1f%%%s\n", name, grid, smem,
               a.numRegs, t / LAUNCHES * 1e6, rate / 1e9, 100 * rate / read_rate,
               wrong ? " WRONG" : "");
        fflush(stdout);
}

template <class S, int N, int K, int DIGITS, class Tile, int MINB>
static void run(const char *type, const char *only)
{
        char name[120];
        snprintf(name, sizeof name, "%s %dx%d w%d r%d s%d n%d st%d l%d e%d%s", type, N, K,
                 Tile::WARPS, Tile::ROWS, Tile::SPLIT, Tile::ROUNDS, Tile::STAGES, Tile::KSTEPS,
                 Tile::EARLY, Tile::BULK ? " bulk" : "");
        race<S>(name, kernel<S, N, K, DIGITS, Tile, MINB>, N, K, Tile::THREADS,
                (N + Tile::COLS - 1) / Tile::COLS, dot_smem<S, 1, N, K, DIGITS, Tile>(), only);
}

template <class S, int N, int K, class Tile>
static void run_mma(const char *type, const char *only)
{
        char name[120];
        snprintf(name, sizeof name, "%s %dx%d mma w%d st%d l%d", type, N, K, Tile::WARPS,
                 Tile::STAGES, Tile::KSTEPS);
        race<S>(name, mma_kernel<S, N, K, Tile>, N, K, Tile::THREADS, Tile::BLOCKS,
                blocks_mma_smem<S, 1, K, Tile>(), only);
}

__global__ void spread(unsigned char *p, size_t n, size_t from)
{
        for (size_t i = from + ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 16; i < n;
             i += (size_t)gridDim.x * blockDim.x * 16)
                *(uint4 *)(p + i) = *(const uint4 *)(p + i % from);
}

/* Random blocks of one type all over the pool. */
template <class S>
static void fill(const char *type)
{
        const long blocks = (1 << 14) * 8;
        const size_t n = (size_t)blocks * S::BYTES;
        unsigned char *host = (unsigned char *)malloc(n);
        random_blocks<S>(type, host, blocks);
        ok(cudaMemcpy(pool, host, n, cudaMemcpyHostToDevice), "copy");
        spread<<<1320, 256>>>(pool, POOL, n);
        ok(cudaDeviceSynchronize(), "fill");
        free(host);
}

int main(int argc, char **argv)
{
        const char *only = argc > 1 ? argv[1] : NULL;
        unsigned *sink;
        ok(cudaMalloc(&pool, POOL), "memory");
        ok(cudaMalloc(&sink, 4), "memory");
        ok(cudaMallocManaged(&x, 32768 * 2), "memory");
        ok(cudaMallocManaged(&gain_of, 32768 * 2), "memory");
        ok(cudaMallocManaged(&y, 131072 * 2), "memory");
        for (int i = 0; i < 32768; i++) {
                x[i] = bf16((float)(blocks_random() % 4096) / 1024.f - 2.f);
                gain_of[i] = bf16((float)(blocks_random() % 4096) / 4096.f + 0.5f);
        }
        cudaMemset(pool, 0, POOL);
        read_rate = 4.0 * POOL / time_graph([&](cudaStream_t s) {
                            for (int i = 0; i < 4; i++)
                                    read_all<<<SMS * 8, 256, 0, s>>>((const uint4 *)pool, POOL / 16,
                                                                     sink);
                    });
        cudaDeviceProp prop;
        cudaGetDeviceProperties(&prop, 0);
        printf("%s: a kernel reads %.0f GB/s\n", prop.name, read_rate / 1e9);
#define CASE(S, N, K, ...) run<Stored_##S, N, K, 2, DotTile<__VA_ARGS__>, 2>(#S, only)
#define MMA(S, N, K, ...) run_mma<Stored_##S, N, K, BlocksMmaTile<__VA_ARGS__>>(#S, only)
        fill<Stored_Q4_K>("Q4_K");
        CASE(Q4_K, 28672, 4096, 8, 2, 1, 14, 2, 2);
        MMA(Q4_K, 28672, 4096, 8, 128, 4, 1);
        CASE(Q4_K, 4096, 4096, 8, 2, 1, 2, 2, 2);
        MMA(Q4_K, 4096, 4096, 8, 128, 6, 1);
        CASE(Q4_K, 4096, 14336, 8, 2, 1, 2, 4, 1);
        MMA(Q4_K, 4096, 14336, 8, 128, 5, 1);
        CASE(Q4_K, 16384, 2048, 8, 2, 1, 8, 4, 1);
        CASE(Q4_K, 2048, 8192, 8, 2, 1, 1, 4, 1);
        fill<Stored_Q8_0>("Q8_0");
        CASE(Q8_0, 28672, 4096, 8, 2, 1, 14, 2, 2);
        MMA(Q8_0, 28672, 4096, 8, 128, 4, 1);
        CASE(Q8_0, 4096, 14336, 8, 2, 1, 2, 2, 2);
        MMA(Q8_0, 4096, 14336, 8, 128, 5, 1);
        fill<Stored_Q6_K>("Q6_K");
        CASE(Q6_K, 128256, 4096, 8, 2, 1, 61, 3, 1);
        MMA(Q6_K, 128256, 4096, 8, 132, 7, 1);
        CASE(Q6_K, 4096, 14336, 8, 2, 1, 2, 2, 1);
        MMA(Q6_K, 4096, 14336, 8, 128, 3, 1);
        CASE(Q6_K, 1024, 4096, 8, 2, 2, 1, 3, 1);
        fill<Stored_Q5_K>("Q5_K");
        CASE(Q5_K, 28672, 4096, 8, 2, 1, 14, 3, 1);
        fill<Stored_Q4_0>("Q4_0");
        CASE(Q4_0, 28672, 4096, 16, 2, 1, 7, 2, 2);
        fill<Stored_IQ4_XS>("IQ4_XS");
        CASE(IQ4_XS, 28672, 4096, 16, 2, 1, 7, 2, 2);
        fill<Stored_MXFP4>("MXFP4");
        CASE(MXFP4, 28672, 4096, 16, 2, 1, 7, 2, 2);
        fill<Stored_I4_128>("I4_128");
        MMA(I4_128, 28672, 4096, 8, 128, 4, 2);
        fill<Stored_NF4>("NF4");
        MMA(NF4, 28672, 4096, 8, 128, 4, 2);
        fill<Stored_F8_128>("F8_128");
        MMA(F8_128, 28672, 4096, 8, 128, 4, 1);
        return bad != 0;
}
