/* gemm_bench.cu: speed and error of the matmul families on the GPU at hand.
 *
 *      nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A -Icodegen/forms $(make
 *      -s kernel-includes) -Iruntime \
 *           -o gemm_bench tests/bench/gemm_bench.cu
 *      ./gemm_bench [part of a line's name]
 *
 * -DBENCH_PART=1 to 6 builds a part of the cases.
 *
 * Every line is one shape with one tile; the fastest tile of a shape is marked *.
 * Inputs are fresh normal numbers each run.  A time is the median of five replays
 * of a graph of launches; gemvs walk over copies of W that together exceed the
 * L2.  The error is the largest difference from a float64 product over 512
 * random places of C, relative to the root of the sum of squares of the
 * products, so about 2^-9 from rounding the result to bf16 times |c| over that
 * root (up to ~0.012), and 1e-6 for float32.  Exit status 1 when one is larger. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cuda_runtime.h>
#include "checked.h"
#include "grouped_gemm.cuh"

/* ---- inputs and the check ------------------------------------------------ */

template <class T>
__global__ void fill_normal(T *p, long n, unsigned seed, float scale)
{
        for (long i = blockIdx.x * 256L + threadIdx.x; i < n; i += gridDim.x * 256L) {
                uint4 r = philox(make_uint4((unsigned)i, (unsigned)(i >> 32), 0, 0), seed, 0);
                float u = ((r.x >> 8) + 1) * (1.f / 16777217.f),
                      v = (r.y >> 8) * (6.2831853f / 16777216.f);
                from_float(p + i, sqrtf(-2.f * logf(u)) * cosf(v) * scale);
        }
}

/* One place of C per block: |c - sum| / sqrt(sum of squares of the products). */
template <class T>
__global__ void check_places(const T *a, long ams, long aks, const T *b, long bks, long bns,
                             const T *c, int M, int N, int K, unsigned seed, float *err)
{
        uint4 r = philox(make_uint4(blockIdx.x, 0, 0, 1), seed, 1);
        const long m = blockIdx.x & 1 ? M - 1 - r.x % (M < 9 ? M : 9) : r.x % M;
        const long n = blockIdx.x & 2 ? N - 1 - r.y % (N < 9 ? N : 9) : r.y % N;
        double s = 0, q = 0;
        for (int k = threadIdx.x; k < K; k += 32) {
                double x = (double)to_float(a[m * ams + k * aks]) *
                           (double)to_float(b[k * bks + n * bns]);
                s += x;
                q += x * x;
        }
        for (int d = 16; d; d >>= 1) {
                s += __shfl_xor_sync(~0u, s, d);
                q += __shfl_xor_sync(~0u, q, d);
        }
        if (threadIdx.x == 0)
                err[blockIdx.x] = (float)(fabs((double)to_float(c[m * N + n]) - s) /
                                          sqrt(q + 1e-30));
}

/* ---- epilogues and heads ------------------------------------------------------ */

template <class T>
struct Store {
        static constexpr int MAXV = 8, MINV = 1;
        T *c;
        int N;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                store<V>(c + (long)row * N + col, v);
        }
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V], int) const
        {
                store<V>(c + (long)row * N + col, v);
        }
};

template <class T>
struct StoreExpert { /* gradients: (E,M,N) */
        static constexpr int MAXV = 8, MINV = 1;
        T *c;
        int M, N;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V], int e) const
        {
                store<V>(c + ((long)e * M + row) * N + col, v);
        }
};

template <class T>
struct Load {
        static constexpr int MAXV = 8, MINV = 1;
        const T *x;
        int K;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                load<V>(v, x + (long)row * K + col);
        }
};

/* ---- kernels --------------------------------------------------------------- */

struct Args {
        const void *a, *b;
        void *c;
        float *ws;
        const int *perm, *offs;
};

template <class T, class Tile, bool TA, bool TB, int M, int N, int K>
__global__ void __launch_bounds__(Tile::THREADS, Tile::MINB) k_matmul(Args g)
{
        extern __shared__ __align__(1024) char smem[];
        const Store<T> epilogue = { (T *)g.c, N };
        gemm_task<T, Tile, TA, TB, 16>((const T *)g.a, TA ? M : K, (const T *)g.b, TB ? K : N, M, N,
                                       K, blockIdx.x, smem, epilogue);
}

template <class T, class Tile, bool TA, bool TB, int M, int N, int K, int SPLITS>
__global__ void __launch_bounds__(Tile::THREADS, Tile::MINB) k_split(Args g)
{
        extern __shared__ __align__(1024) char smem[];
        gemm_split_k_task<T, Tile, TA, TB, 16, 8>((const T *)g.a, TA ? M : K, (const T *)g.b,
                                                  TB ? K : N, M, N, K, SPLITS, g.ws, blockIdx.x,
                                                  smem);
}

template <class T, int M, int N, int SPLITS>
__global__ void __launch_bounds__(256) k_reduce(Args g)
{
        const Store<T> epilogue = { (T *)g.c, N };
        splitk_reduce_task<256>(g.ws, SPLITS, M, N, blockIdx.x, epilogue);
}

template <class T, int M, int N, int K, int THREADS, int ROWS, int SPLIT>
__global__ void __launch_bounds__(THREADS) k_gemv(Args g)
{
        extern __shared__ __align__(1024) char smem[];
        const Load<T> head = { (const T *)g.a, K };
        const Store<T> epilogue = { (T *)g.c, N };
        gemv_task<T, M, N, K, THREADS, ROWS, SPLIT, NORM_NONE, 16>((const T *)g.b, K, 0.f,
                                                                   blockIdx.x, smem, head,
                                                                   epilogue);
}

template <class T, int M, int N, int K, int THREADS, int COLS>
__global__ void __launch_bounds__(THREADS) k_gemv_kn(Args g)
{
        extern __shared__ __align__(1024) char smem[];
        const Load<T> head = { (const T *)g.a, K };
        const Store<T> epilogue = { (T *)g.c, N };
        gemv_kn_task<T, M, N, K, THREADS, COLS, NORM_NONE, 16>((const T *)g.b, N, 0.f, blockIdx.x,
                                                               smem, head, epilogue);
}

/* Slots in order of the experts, as if perm were the identity: gathered rows, ADIV 1. */
template <class T, class Tile, int N, int K>
__global__ void __launch_bounds__(Tile::THREADS, Tile::MINB) k_expert(Args g, int E)
{
        extern __shared__ __align__(1024) char smem[];
        const Store<T> epilogue = { (T *)g.c, N };
        grouped_gemm_task<T, Tile, true, 1, true, 16>((const T *)g.a, K, (const T *)g.b, g.perm,
                                                      g.offs, E, N, K, blockIdx.x, smem, epilogue);
}

template <class T, class Tile, int N, int K>
__global__ void __launch_bounds__(Tile::THREADS, Tile::MINB) k_expert_grad(Args g, int E)
{
        extern __shared__ __align__(1024) char smem[];
        const StoreExpert<T> epilogue = { (T *)g.c, N, K };
        grouped_gemm_grad_task<T, Tile, 0, 1, 16>((const T *)g.a, N, (const T *)g.b, K, g.perm,
                                                  g.offs, E, N, K, blockIdx.x, smem, epilogue);
}

/* ---- cases ------------------------------------------------------------------ */

struct Case {
        const char *group, *config;
        /* experts: of M slots together (K of them for gradients) */
        int esize, TA, TB, M, N, K, experts;
        bool memory; /* report TB/s of B */
        void (*launch)(Args, cudaStream_t);
        const void *fn;
        int smem;
        size_t ws;
};

template <class T, class Tile, bool TA, bool TB, int M, int N, int K>
void run_gemm(Args g, cudaStream_t s)
{
        const int tiles = ((M + Tile::BM - 1) / Tile::BM) * ((N + Tile::BN - 1) / Tile::BN);
        k_matmul<T, Tile, TA, TB, M, N, K><<<tiles, Tile::THREADS, Tile::SMEM, s>>>(g);
}

template <class T, class Tile, bool TA, bool TB, int M, int N, int K, int SPLITS>
void run_split(Args g, cudaStream_t s)
{
        const int tiles = ((M + Tile::BM - 1) / Tile::BM) * ((N + Tile::BN - 1) / Tile::BN);
        k_split<T, Tile, TA, TB, M, N, K, SPLITS>
                <<<tiles * SPLITS, Tile::THREADS, Tile::SMEM, s>>>(g);
        k_reduce<T, M, N, SPLITS><<<(int)(((long)M * N + 2047) / 2048), 256, 0, s>>>(g);
}

template <class T, int M, int N, int K, int THREADS, int ROWS, int SPLIT>
void run_gemv(Args g, cudaStream_t s)
{
        typedef GemvShapeOf<(int)sizeof(T), M, K, THREADS, ROWS, SPLIT, 16> S;
        k_gemv<T, M, N, K, THREADS, ROWS, SPLIT>
                <<<(N + S::COLS - 1) / S::COLS, THREADS, S::SMEM, s>>>(g);
}

template <int M, int K, int THREADS, int COLS>
constexpr int kn_smem()
{
        return (M * (16384 / M / 64 * 64 < K ? 16384 / M / 64 * 64 : K) + 32 +
                THREADS / 32 * COLS * M) *
               4;
}

template <class T, int M, int N, int K, int THREADS, int COLS>
void run_gemv_kn(Args g, cudaStream_t s)
{
        constexpr int SMEM = kn_smem<M, K, THREADS, COLS>();
        k_gemv_kn<T, M, N, K, THREADS, COLS><<<(N + COLS - 1) / COLS, THREADS, SMEM, s>>>(g);
}

template <class T, class Tile, int E, int P, int N, int K>
void run_expert(Args g, cudaStream_t s)
{
        const int tiles = ((P + Tile::BM - 1) / Tile::BM + E) * ((N + Tile::BN - 1) / Tile::BN);
        k_expert<T, Tile, N, K><<<tiles, Tile::THREADS, Tile::SMEM, s>>>(g, E);
}

template <class T, class Tile, int E, int N, int K>
void run_expert_grad(Args g, cudaStream_t s)
{
        const int tiles = E * ((N + Tile::BM - 1) / Tile::BM) * ((K + Tile::BN - 1) / Tile::BN);
        k_expert_grad<T, Tile, N, K><<<tiles, Tile::THREADS, Tile::SMEM, s>>>(g, E);
}

#define STR_(x) #x
#define STR(x) STR_(x)
#define MM(T, tile, TA, TB, M, N, K)                        \
        { #T " " STR(TA) STR(TB) " " #M "x" #N "x" #K,      \
          #tile,                                            \
          (int)sizeof(T),                                   \
          TA,                                               \
          TB,                                               \
          M,                                                \
          N,                                                \
          K,                                                \
          0,                                                \
          false,                                            \
          run_gemm<T, tile, TA, TB, M, N, K>,               \
          (const void *)k_matmul<T, tile, TA, TB, M, N, K>, \
          tile::SMEM,                                       \
          0 },
#define SK(T, tile, TA, TB, M, N, K, S)                       \
        { #T " " STR(TA) STR(TB) " " #M "x" #N "x" #K,        \
          #tile " /" #S,                                      \
          (int)sizeof(T),                                     \
          TA,                                                 \
          TB,                                                 \
          M,                                                  \
          N,                                                  \
          K,                                                  \
          0,                                                  \
          false,                                              \
          run_split<T, tile, TA, TB, M, N, K, S>,             \
          (const void *)k_split<T, tile, TA, TB, M, N, K, S>, \
          tile::SMEM,                                         \
          (size_t)M * N * S * 4 },
#define MV(T, M, N, K, TH, R, S)                                 \
        { "gemv " #T " " #M "x" #N "x" #K,                       \
          #TH " rows " #R " split " #S,                          \
          (int)sizeof(T),                                        \
          0,                                                     \
          1,                                                     \
          M,                                                     \
          N,                                                     \
          K,                                                     \
          0,                                                     \
          true,                                                  \
          run_gemv<T, M, N, K, TH, R, S>,                        \
          (const void *)k_gemv<T, M, N, K, TH, R, S>,            \
          GemvShapeOf<(int)sizeof(T), M, K, TH, R, S, 16>::SMEM, \
          0 },
#define KN(T, M, N, K, TH, C)                         \
        { "gemv_kn " #T " " #M "x" #N "x" #K,         \
          #TH " cols " #C,                            \
          (int)sizeof(T),                             \
          0,                                          \
          0,                                          \
          M,                                          \
          N,                                          \
          K,                                          \
          0,                                          \
          true,                                       \
          run_gemv_kn<T, M, N, K, TH, C>,             \
          (const void *)k_gemv_kn<T, M, N, K, TH, C>, \
          kn_smem<M, K, TH, C>(),                     \
          0 },
#define EX(T, tile, E, P, N, K)                     \
        { "expert " #T " " #E "*" #P "x" #N "x" #K, \
          #tile,                                    \
          (int)sizeof(T),                           \
          0,                                        \
          1,                                        \
          P,                                        \
          N,                                        \
          K,                                        \
          E,                                        \
          false,                                    \
          run_expert<T, tile, E, P, N, K>,          \
          (const void *)k_expert<T, tile, N, K>,    \
          tile::SMEM,                               \
          0 },
#define EG(T, tile, E, P, N, K)                          \
        { "expert_grad " #T " " #E "*" #N "x" #K "x" #P, \
          #tile,                                         \
          (int)sizeof(T),                                \
          1,                                             \
          0,                                             \
          N,                                             \
          K,                                             \
          P,                                             \
          E,                                             \
          false,                                         \
          run_expert_grad<T, tile, E, N, K>,             \
          (const void *)k_expert_grad<T, tile, N, K>,    \
          tile::SMEM,                                    \
          0 },

#define BIG(TA, TB, M, N, K)                   \
        MM(bf16, W128x256x64, TA, TB, M, N, K) \
        MM(bf16, W128x256x32, TA, TB, M, N, K) \
        MM(bf16, W128x128x64, TA, TB, M, N, K) MM(bf16, H128x128x64, TA, TB, M, N, K)
#define WIDE(TA, TB, M, N, K) \
        MM(bf16, W128x192x32, TA, TB, M, N, K) MM(bf16, W128x192x64, TA, TB, M, N, K)
#define SPLIT(M, N, K, S)                       \
        SK(bf16, W128x256x64, 1, 0, M, N, K, S) \
        SK(bf16, W128x256x32, 1, 0, M, N, K, S) SK(bf16, W128x128x64, 1, 0, M, N, K, S)
#define FLOAT(TA, TB, M, N, K)                \
        MM(float, F64x64x16, TA, TB, M, N, K) \
        MM(float, F32x32x32, TA, TB, M, N, K) \
        MM(float, T64x64x32, TA, TB, M, N, K) MM(float, T32x32x64, TA, TB, M, N, K)
#define PARTS(M, N, K, S)                      \
        SK(float, F32x32x32, 1, 0, M, N, K, S) \
        SK(float, F64x64x16, 1, 0, M, N, K, S) \
        SK(float, T32x32x64, 1, 0, M, N, K, S) SK(float, T64x64x32, 1, 0, M, N, K, S)
#define VEC(T, M, N, K)           \
        MV(T, M, N, K, 256, 1, 1) \
        MV(T, M, N, K, 256, 2, 1) MV(T, M, N, K, 256, 2, 2) MV(T, M, N, K, 256, 2, 4)

#define MS(T, tile, M, N, K)                                     \
        { "gemv " #T " " #M "x" #N "x" #K,                       \
          #tile,                                                 \
          (int)sizeof(T),                                        \
          0,                                                     \
          1,                                                     \
          M,                                                     \
          N,                                                     \
          K,                                                     \
          0,                                                     \
          true,                                                  \
          run_gemm<T, tile, false, true, M, N, K>,               \
          (const void *)k_matmul<T, tile, false, true, M, N, K>, \
          tile::SMEM,                                            \
          0 },
#define COLUMNS(N, K)              \
        KN(bf16, 1, N, K, 256, 64) \
        KN(bf16, 1, N, K, 256, 32) \
        KN(bf16, 1, N, K, 256, 16) \
        KN(bf16, 1, N, K, 128, 16) KN(bf16, 1, N, K, 128, 32) KN(bf16, 1, N, K, 512, 32)
#define FEW(M, N, K)                 \
        MV(bf16, M, N, K, 256, 1, 1) \
        MV(bf16, M, N, K, 256, 2, 1) \
        MV(bf16, M, N, K, 256, 4, 1) \
        MV(bf16, M, N, K, 256, 2, 2) MS(bf16, H16x64x64, M, N, K) MS(bf16, H16x128x64, M, N, K)

#ifndef BENCH_PART
#define PART(n) 1
#else
#define PART(n) (BENCH_PART == (n))
#endif

typedef WTile<128, 192, 64, 2, 4, 2, 2, 0> W128x192x64; /* a candidate, not in the table */

// clang-format off
static const Case cases[] = {
        /* transposes are printed as TA TB: 01 is x Wt, 00 is dy W, 10 is dyt x */
#if PART(1)
        BIG(0, 1, 32768, 2304, 768) BIG(0, 1, 32768, 768, 768) BIG(0, 1, 32768, 3072, 768)
        BIG(0, 1, 32768, 768, 3072) BIG(0, 1, 8192, 50304, 768) BIG(0, 1, 8192, 3072, 2048)
        BIG(0, 1, 8192, 2048, 2048) BIG(0, 1, 8192, 16384, 2048) BIG(0, 1, 8192, 2048, 8192)
        BIG(0, 1, 4096, 4096, 4096)
#endif
#if PART(2)
        BIG(0, 0, 32768, 768, 2304) BIG(0, 0, 32768, 768, 3072) BIG(0, 0, 8192, 768, 50304)
        BIG(0, 0, 8192, 2048, 16384) BIG(1, 0, 3072, 768, 32768) BIG(1, 0, 16384, 2048, 8192)
        BIG(1, 0, 50304, 768, 8192) BIG(1, 0, 2304, 768, 32768) BIG(1, 0, 768, 768, 32768)
        BIG(1, 0, 2048, 2048, 8192) BIG(1, 0, 3072, 2048, 8192)
#endif
#if PART(3)
        SPLIT(2304, 768, 32768, 2) SPLIT(3072, 768, 32768, 3) SPLIT(3072, 768, 32768, 5)
        SPLIT(768, 768, 32768, 7) SPLIT(3072, 2048, 8192, 2)
        MM(bf16, W128x128x64, 0, 1, 512, 2048, 2048)
        MM(bf16, H128x128x64, 0, 1, 512, 2048, 2048) MM(bf16, H128x64x64, 0, 1, 512, 2048, 2048)
        MM(bf16, H64x64x64, 0, 1, 512, 2048, 2048) MM(bf16, H64x64x64, 0, 1, 64, 2048, 2048)
        MM(bf16, H32x64x64, 0, 1, 64, 2048, 2048) MM(bf16, H16x64x64, 0, 1, 64, 2048, 2048)
        MM(bf16, H32x64x64, 0, 1, 32, 8192, 2048) MM(bf16, H16x64x64, 0, 1, 16, 8192, 2048)
        MM(bf16, H16x128x64, 0, 1, 16, 8192, 2048)
#endif
#if PART(4)
        VEC(bf16, 1, 3072, 2048) VEC(bf16, 1, 2048, 2048) VEC(bf16, 1, 16384, 2048)
        VEC(bf16, 1, 2048, 8192) VEC(bf16, 1, 128256, 2048) VEC(bf16, 1, 2304, 768)
        VEC(bf16, 1, 768, 768) VEC(bf16, 1, 3072, 768) VEC(bf16, 1, 768, 3072)
        VEC(bf16, 1, 50304, 768) FEW(2, 8192, 2048) FEW(4, 8192, 2048) FEW(8, 8192, 2048)
        MV(float, 1, 8192, 2048, 256, 2, 1) COLUMNS(8192, 2048) COLUMNS(2304, 768)
        COLUMNS(768, 3072) EX(bf16, W128x256x32, 8, 16384, 3072, 768)
        EX(bf16, W128x128x64, 8, 16384, 3072, 768) EX(bf16, H128x128x64, 8, 16384, 3072, 768)
        EG(bf16, W128x256x32, 8, 16384, 3072, 768) EG(bf16, W128x128x64, 8, 16384, 3072, 768)
        EG(bf16, H128x128x64, 8, 16384, 3072, 768)
#endif
#if PART(5)
        WIDE(0, 1, 32768, 2304, 768) WIDE(0, 1, 32768, 768, 768) WIDE(0, 1, 32768, 3072, 768)
        WIDE(0, 1, 32768, 768, 3072) WIDE(0, 1, 8192, 50304, 768) WIDE(0, 1, 8192, 3072, 2048)
        WIDE(0, 1, 8192, 2048, 2048) WIDE(0, 1, 8192, 16384, 2048) WIDE(0, 1, 8192, 2048, 8192)
        WIDE(0, 1, 4096, 4096, 4096) WIDE(0, 0, 32768, 768, 2304) WIDE(0, 0, 32768, 768, 3072)
        WIDE(0, 0, 8192, 768, 50304) WIDE(0, 0, 8192, 2048, 16384) WIDE(1, 0, 3072, 768, 32768)
        WIDE(1, 0, 16384, 2048, 8192) WIDE(1, 0, 50304, 768, 8192) WIDE(1, 0, 2304, 768, 32768)
        WIDE(1, 0, 768, 768, 32768) WIDE(1, 0, 2048, 2048, 8192) WIDE(1, 0, 3072, 2048, 8192)
        SK(bf16, W128x192x32, 1, 0, 2304, 768, 32768, 3)
        SK(bf16, W128x192x32, 1, 0, 3072, 768, 32768, 5)
        SK(bf16, W128x192x32, 1, 0, 768, 768, 32768, 11)
#endif
#if PART(6)
        MM(float, F128x128x8, 0, 1, 4096, 4096, 4096)
        MM(float, F64x64x16, 0, 1, 4096, 4096, 4096)
        MM(float, T64x64x32, 0, 1, 4096, 4096, 4096) FLOAT(0, 1, 1024, 384, 128)
        FLOAT(0, 1, 1024, 128, 128) FLOAT(0, 1, 1024, 512, 128) FLOAT(0, 1, 1024, 128, 512)
        FLOAT(0, 0, 1024, 512, 128) FLOAT(0, 0, 1024, 128, 512) FLOAT(0, 0, 1024, 128, 384)
        PARTS(512, 128, 1024, 4) PARTS(512, 128, 1024, 8) PARTS(128, 128, 1024, 8)
#endif
};
// clang-format on
enum { N_CASES = sizeof cases / sizeof *cases, PLACES = 512 };

/* Slots are dealt to the experts unevenly: expert e gets about 1 + e%3 shares. */
static void route(int *offs, int E, int P)
{
        int e, sum = 0, at = 0;
        for (e = 0; e < E; e++)
                sum += 1 + e % 3;
        for (e = 0; e < E; e++) {
                offs[e] = (int)((long)P * at / sum);
                at += 1 + e % 3;
        }
        offs[E] = P;
}

template <class T>
static double check(const Case *c, Args g, const int *offs, unsigned seed)
{
        static float *dev, host[PLACES];
        double worst = 0;
        int e, i, E = c->experts ? c->experts : 1;
        const T *a = (const T *)g.a, *b = (const T *)g.b, *out = (const T *)g.c;

        if (!dev)
                CUDA(cudaMalloc(&dev, sizeof host));
        for (e = 0; e < E; e++) {
                int M = c->M, K = c->K;
                const T *ae = a, *be = b, *ce = out;
                if (c->experts && c->TA) { /* gradient: K is the slots */
                        K = offs[e + 1] - offs[e];
                        ae += (long)offs[e] * M;
                        be += (long)offs[e] * c->N;
                        ce += (long)e * M * c->N;
                } else if (c->experts) {
                        M = offs[e + 1] - offs[e];
                        ae += (long)offs[e] * K;
                        be += (long)e * c->N * K;
                        ce += (long)offs[e] * c->N;
                }
                check_places<T><<<PLACES, 32>>>(ae, c->TA ? 1 : K, c->TA ? M : 1, be,
                                                c->TB ? 1 : c->N, c->TB ? K : 1, ce, M, c->N, K,
                                                seed + e, dev);
                CUDA(cudaMemcpy(host, dev, sizeof host, cudaMemcpyDeviceToHost));
                for (i = 0; i < PLACES; i++)
                        worst = host[i] <= worst ? worst : host[i]; /* a NaN stays */
        }
        return worst;
}

static int by_value(const void *a, const void *b)
{
        float x = *(const float *)a, y = *(const float *)b;
        return x < y ? -1 : x > y;
}

/* Milliseconds per launch, and the error.  Copies of W, one after the other, when memory bound. */
static double measure(const Case *c, unsigned seed, double *err)
{
        const int E = c->experts ? c->experts : 1;
        const long na = (long)c->M * c->K, nb = (long)c->N * c->K * (c->experts && !c->TA ? E : 1);
        const long nc = (long)c->M * c->N * (c->experts && c->TA ? E : 1);
        const int copies = c->memory ? (int)((256L << 20) / (nb * c->esize)) + 1 : 1;
        const int launches = c->memory ? copies * (copies < 8 ? 8 / copies + 1 : 1) : 10;
        char *a, *b, *out, *ws = 0;
        int *perm, *offs, host_offs[257], i;
        cudaStream_t s;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaEvent_t from, to;
        float t[5];

        CUDA(cudaMalloc(&a, na * c->esize));
        CUDA(cudaMalloc(&b, nb * c->esize * copies));
        CUDA(cudaMalloc(&out, nc * c->esize));
        if (c->ws)
                CUDA(cudaMalloc(&ws, c->ws));
        const int slots = c->TA ? c->K : c->M;
        CUDA(cudaMalloc(&perm, slots * sizeof(int)));
        CUDA(cudaMalloc(&offs, sizeof host_offs));
        int *identity = (int *)malloc(slots * sizeof(int));
        for (i = 0; i < slots; i++)
                identity[i] = i;
        route(host_offs, E, slots);
        CUDA(cudaMemcpy(perm, identity, slots * sizeof(int), cudaMemcpyHostToDevice));
        CUDA(cudaMemcpy(offs, host_offs, (E + 1) * sizeof(int), cudaMemcpyHostToDevice));
        free(identity);
        CUDA(cudaMemset(out, 0xff, nc * c->esize));
        if (c->esize == 4) {
                fill_normal<<<1024, 256>>>((float *)a, na, seed, 1.f);
                fill_normal<<<1024, 256>>>((float *)b, nb * copies, seed + 1, 1.f);
        } else {
                fill_normal<<<1024, 256>>>((bf16 *)a, na, seed, 1.f);
                fill_normal<<<1024, 256>>>((bf16 *)b, nb * copies, seed + 1, 1.f);
        }
        CUDA(cudaFuncSetAttribute(c->fn, cudaFuncAttributeMaxDynamicSharedMemorySize, c->smem));
        CUDA(cudaStreamCreate(&s));
        CUDA(cudaEventCreate(&from));
        CUDA(cudaEventCreate(&to));

        Args g = { a, b, out, (float *)ws, perm, offs };
        CUDA(cudaDeviceSynchronize());
        c->launch(g, s);
        CUDA(cudaGetLastError());
        CUDA(cudaStreamSynchronize(s));
        *err = c->esize == 4 ? check<float>(c, g, host_offs, seed)
                             : check<bf16>(c, g, host_offs, seed);

        CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
        for (i = 0; i < launches; i++) {
                g.b = b + (i % copies) * nb * c->esize;
                c->launch(g, s);
        }
        CUDA(cudaStreamEndCapture(s, &graph));
        CUDA(cudaGraphInstantiate(&exec, graph, 0));
        CUDA(cudaGraphLaunch(exec, s));
        for (i = 0; i < 5; i++) {
                CUDA(cudaEventRecord(from, s));
                CUDA(cudaGraphLaunch(exec, s));
                CUDA(cudaEventRecord(to, s));
                CUDA(cudaEventSynchronize(to));
                CUDA(cudaEventElapsedTime(t + i, from, to));
        }
        qsort(t, 5, sizeof *t, by_value);
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
        cudaEventDestroy(from);
        cudaEventDestroy(to);
        cudaStreamDestroy(s);
        cudaFree(a);
        cudaFree(b);
        cudaFree(out);
        cudaFree(ws);
        cudaFree(perm);
        cudaFree(offs);
        return t[2] / launches;
}

int main(int argc, char **argv)
{
        const unsigned seed = (unsigned)time(0);
        int bad = 0;
        int i, j, first;
        cudaDeviceProp prop;

        CUDA(cudaGetDeviceProperties(&prop, 0));
        printf("%s, %d multiprocessors, seed %u\n", prop.name, prop.multiProcessorCount, seed);
        printf("%-36s %-24s %9s %9s %9s\n", "shape (M x N x K)", "tile", "ms", "rate", "error");
        for (first = 0; first < N_CASES; first = j) {
                static double ms[N_CASES], err[N_CASES];
                int best = -1;
                for (j = first; j < N_CASES && !strcmp(cases[j].group, cases[first].group); j++) {
                        ms[j] = 0;
                        if (argc > 1 && !strstr(cases[j].group, argv[1]))
                                continue;
                        if ((size_t)cases[j].smem > prop.sharedMemPerBlockOptin)
                                continue;
                        ms[j] = measure(cases + j, seed + j, err + j);
                        if (best < 0 || ms[j] < ms[best])
                                best = j;
                }
                for (i = first; i < j; i++) {
                        const Case *c = cases + i;
                        if (ms[i] == 0)
                                continue;
                        const double limit = c->esize == 4 ? 1e-5 : 0.02;
                        const double flops = 2. * c->M * c->N * c->K;
                        const double bytes = ((double)c->N * c->K + (double)c->M * (c->N + c->K)) *
                                             c->esize;
                        printf("%-36s %-24s %9.4f %6.*f %s %9.1e%s%s\n", c->group, c->config, ms[i],
                               c->memory ? 2 : 0, (c->memory ? bytes : flops) / ms[i] * 1e-9,
                               c->memory ? "TB" : "TF", err[i], i == best ? " *" : "",
                               err[i] <= limit ? "" : "  WRONG");
                        bad |= !(err[i] <= limit);
                }
                fflush(stdout);
        }
        return bad;
}
