/* tgc.cuh: what all CUDA kernel families share, and their protocol.
 *
 * Tasks.  A family is a `__device__` function template
 *
 *      NAME_task<constants...>(pointers, sizes, int tile, char *smem, prologue, epilogue)
 *
 * that computes one tile with one thread block.  It never reads blockIdx: the emitted entry point
 * chooses the tile (one task per launch, or several side by side).  blockDim.x is a template
 * constant THREADS.  At its end no thread waits, and its shared memory is free for the next task
 * (it ends with __syncthreads() if it touched any).
 *
 * Prologues and epilogues.  Operations fused before and after a family's own work arrive as two
 * functors over V neighbouring elements of one row:
 *
 *      prologue(int row, int col, float (&v)[V])    fills v    (loads, residual add, ...)
 *      epilogue(int row, int col, float (&v)[V])    consumes v (bias, activation, store)
 *
 * `row` counts all leading dimensions flattened, `col` the last one, a multiple of V.  A functor
 * states `static constexpr int MAXV` (1, 2, 4 or 8): the family may use any power of two up to it.
 * MINV is 2 if the functor works on pairs (interleaved rotary), else 1.  A functor is never called
 * outside of rows x cols (but see STORES).  Arithmetic is float32 whatever the storage type.  What
 * else an epilogue may offer, such as early reads: epilogue_protocol.cuh.
 *
 * No floating-point atomics: every sum has one order, so results are bitwise reproducible.
 *
 * All PTX is in ptx.cuh.  NVRTC, nvcc (tests) and the emulator's host compiler (g++ with emulate.h
 * in front) all accept this code: C++17, no standard headers. */
#ifndef TGC_CUH
#define TGC_CUH

#ifndef TGC_EMULATE
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define TGC_DEV static __device__ __forceinline__
#endif
#include "rt.h"

typedef __nv_bfloat16 bf16;
typedef __half f16;

/* Macros of emitted entry points; the emulator redefines them. TGC_SMEM(smem) declares the dynamic
 * shared memory, `char *smem`, the only shared memory there is. TGC_SURPLUS(n), first in a block's
 * work: threads from n on exit; barriers no longer count them (sm_70 and up). TGC_KERNEL(k3, n)
 * after the body of entry point k3 tells the emulator's launcher its name and its number of
 * parameters, pointers and tensor maps. */
#ifndef TGC_EMULATE
#define TGC_SMEM(name) extern __shared__ __align__(1024) char name[]
#define TGC_SURPLUS(n)               \
        if ((int)threadIdx.x >= (n)) \
        return
#define TGC_KERNEL(name, n_params)
#define TGC_ACCESS(p, bytes) /* emulator: alignment and bounds check */
#endif

#ifndef INFINITY /* NVRTC has no math.h */
#define INFINITY __int_as_float(0x7f800000)
#endif

/* A tensor map (CUtensorMap) for TMA.  A kernel takes it by value, as `const __grid_constant__
 * TmaMap`, and passes its address on.  Other architectures ignore it.  (The driver requires
 * 64-byte alignment; CUDA 13's type has 128.) */
struct alignas(128) TmaMap {
        unsigned long long word[16];
};

/* One element to and from float. */
TGC_DEV float to_float(float x) { return x; }
TGC_DEV float to_float(bf16 x) { return __bfloat162float(x); }
TGC_DEV float to_float(f16 x) { return __half2float(x); }
TGC_DEV float to_float(int x) { return (float)x; }
TGC_DEV void from_float(float *p, float x) { *p = x; }
TGC_DEV void from_float(bf16 *p, float x) { *p = __float2bfloat16_rn(x); }
TGC_DEV void from_float(f16 *p, float x) { *p = __float2half_rn(x); }
TGC_DEV void from_float(int *p, float x) { *p = __float2int_rz(x); } /* saturates; NaN is 0 */

/* V neighbouring elements, moved as one access of up to 16 bytes (two for eight floats).  p is
 * aligned to min(16, V * sizeof(T)) bytes. */
template <int BYTES>
struct Chunk;
template <>
struct Chunk<2> {
        typedef unsigned short T;
};
template <>
struct Chunk<4> {
        typedef unsigned T;
};
template <>
struct Chunk<8> {
        typedef uint2 T;
};
template <>
struct Chunk<16> {
        typedef uint4 T;
};

template <int V, class T>
TGC_DEV void load(float (&v)[V], const T *p)
{
        constexpr int BYTES = V * (int)sizeof(T) > 16 ? 16 : V * (int)sizeof(T);
        constexpr int N = BYTES / (int)sizeof(T);
        typedef typename Chunk<BYTES>::T C;
        TGC_ACCESS(p, V * sizeof(T));
#pragma unroll
        for (int i = 0; i < V; i += N) {
                union {
                        C c;
                        T t[N];
                } u = { *(const C *)(p + i) };
#pragma unroll
                for (int j = 0; j < N; j++)
                        v[i + j] = to_float(u.t[j]);
        }
}

/* Elements ODD, ODD + 2, ... of the 2 V at p, aligned as for load<2 * V>.  Used by text that
 * codegen/lower/functor_read.c emits. */
template <int V, int ODD, class T>
TGC_DEV void load_half(float (&v)[V], const T *p)
{
        float pairs[2 * V];
        load<2 * V>(pairs, p);
#pragma unroll
        for (int j = 0; j < V; j++)
                v[j] = pairs[2 * j + ODD];
}

template <int V, class T>
TGC_DEV void store(T *p, const float (&v)[V])
{
        constexpr int BYTES = V * (int)sizeof(T) > 16 ? 16 : V * (int)sizeof(T);
        constexpr int N = BYTES / (int)sizeof(T);
        typedef typename Chunk<BYTES>::T C;
        TGC_ACCESS(p, V * sizeof(T));
#pragma unroll
        for (int i = 0; i < V; i += N) {
                union U {
                        C c;
                        T t[N];
                        __device__ U() {}
                } u;
#pragma unroll
                for (int j = 0; j < N; j++)
                        from_float(&u.t[j], v[i + j]);
                *(C *)(p + i) = u.c;
        }
}

/* V neighbouring elements in storage format: a load in flight, converted later. */
template <int V, class T>
struct Raw {
        static constexpr int BYTES = V * (int)sizeof(T) > 16 ? 16 : V *(int)sizeof(T),
                             N = V * (int)sizeof(T) / BYTES;
        typename Chunk<BYTES>::T c[N];

        __device__ __forceinline__ void get(const T *p)
        {
                TGC_ACCESS(p, V * sizeof(T));
#pragma unroll
                for (int i = 0; i < N; i++)
                        c[i] = ((const typename Chunk<BYTES>::T *)p)[i];
        }
        /* Elements FIRST, FIRST + STRIDE, ... as floats. */
        template <int FIRST, int STRIDE>
        __device__ __forceinline__ void floats(float (&v)[V / STRIDE]) const
        {
#pragma unroll
                for (int i = 0; i < N; i++) {
                        union {
                                typename Chunk<BYTES>::T c;
                                T t[BYTES / sizeof(T)];
                        } u = { c[i] };
#pragma unroll
                        for (int j = 0; j < V / N; j++)
                                if (i * (V / N) + j >= FIRST &&
                                    (i * (V / N) + j - FIRST) % STRIDE == 0)
                                        v[(i * (V / N) + j - FIRST) / STRIDE] = to_float(u.t[j]);
                }
        }
};

/* Warp reductions: all 32 lanes call, every lane gets the result. */
TGC_DEV float warp_sum(float x)
{
#pragma unroll
        for (int d = 16; d; d >>= 1)
                x += __shfl_xor_sync(0xffffffffu, x, d);
        return x;
}

/* Sum over groups of LANES neighbouring lanes, LANES a power of two. */
template <int LANES>
TGC_DEV float lanes_sum(float x)
{
#pragma unroll
        for (int d = LANES / 2; d; d >>= 1)
                x += __shfl_xor_sync(0xffffffffu, x, d);
        return x;
}

/* Sum over a quad: the four lanes that share the rows of an mma fragment. */
TGC_DEV float quad_sum(float x)
{
        x += __shfl_xor_sync(0xffffffffu, x, 1);
        return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

TGC_DEV float quad_max(float x)
{
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
        return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

TGC_DEV float warp_max(float x)
{
#pragma unroll
        for (int d = 16; d; d >>= 1)
                x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
        return x;
}

/* Block reduction of x; every thread gets the result.  warp(x) reduces over a warp and broadcasts;
 * none is its neutral element.  red: 32 T of shared memory, not reused before the next
 * __syncthreads() after the call. */
template <int THREADS, class T, class Warp>
TGC_DEV T block_all(T x, T none, T *red, const Warp &warp)
{
        x = warp(x);
        if (THREADS <= 32)
                return x;
        __syncthreads();
        if ((threadIdx.x & 31) == 0)
                red[threadIdx.x >> 5] = x;
        __syncthreads();
        return warp((int)(threadIdx.x & 31) < THREADS / 32 ? red[threadIdx.x & 31] : none);
}

/* Sum and maximum over the block; red as in block_all. */
template <int THREADS>
TGC_DEV float block_sum(float x, float *red)
{
        return block_all<THREADS>(x, 0.f, red, [](float y) { return warp_sum(y); });
}

template <int THREADS>
TGC_DEV float block_max(float x, float *red)
{
        return block_all<THREADS>(x, -INFINITY, red, [](float y) { return warp_max(y); });
}

/* The norm that a kernel applies or differentiates. */
enum { NORM_NONE, NORM_RMS, NORM_LAYER };

/* Philox4x32-10 (Salmon et al., SC 2011): four random words from a 64-bit key
 * and a 128-bit counter. */
TGC_DEV uint4 philox(uint4 c, unsigned k0, unsigned k1)
{
#pragma unroll
        for (int r = 0; r < 10; r++) {
                unsigned h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
                unsigned h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
                c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
                k0 += 0x9E3779B9u;
                k1 += 0xBB67AE85u;
        }
        return c;
}

/* Dropout: element i of tensor `id` survives with probability 1-p and is scaled by 1/(1-p).  One
 * Philox call serves four elements: word i&3 of counter {i>>2 low, i>>2 high, id,
 * step*n_micro+micro}.  The evaluator and the C back end draw the same words. */
TGC_DEV float dropout(float x, float p, unsigned id, unsigned long long i, const Rt *rt)
{
        uint4 r = philox(make_uint4((unsigned)(i >> 2), (unsigned)(i >> 34), id,
                                    (unsigned)(rt->step * rt->n_micro + rt->micro)),
                         rt->seed[0], rt->seed[1]);
        unsigned w = (i & 3) == 0 ? r.x : (i & 3) == 1 ? r.y : (i & 3) == 2 ? r.z : r.w;
        return (float)(w >> 8) * (1.f / 16777216.f) < p ? 0.f : x * (1.f / (1.f - p));
}

#endif
