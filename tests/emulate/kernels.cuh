/* kernels.cuh: small kernels that use every portable part of tgc.cuh and ptx.cuh.
 * Device code only, so that NVRTC takes it too; kernels.cu checks the results. */
#include "ptx.cuh"
#define TGC_FAST_MATH 1
#include "functor.cuh"

/* ---- arithmetic -------------------------------------------------------- */

extern "C" __global__ void k_philox(const Rt *, uint4 *y)
{
        if (threadIdx.x == 0) {
                y[0] = philox(make_uint4(0, 0, 0, 0), 0, 0);
                y[1] = philox(make_uint4(~0u, ~0u, ~0u, ~0u), ~0u, ~0u);
                y[2] = philox(make_uint4(0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u),
                              0xa4093822u, 0x299f31d0u);
        }
}
TGC_KERNEL(k_philox, 2)

/* GELU and its slope of x, as kernels on 16-bit storage compute them. */
extern "C" __global__ void k_gelu(const Rt *, const float *x, float *y, float *slope)
{
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = gelu(x[i]);
        slope[i] = gelu_slope(x[i]);
}
TGC_KERNEL(k_gelu, 4)

extern "C" __global__ void k_dropout(const Rt *rt, float *y)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = dropout(1.f, 0.25f, 7, (unsigned long long)i + 0x3fffffff0ull, rt);
}
TGC_KERNEL(k_dropout, 2)

/* y = what x rounds to, as raw bits, by each way there is. */
extern "C" __global__ void k_round(const Rt *, unsigned *y, const float *x)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        bf16 b;
        f16 h;
        from_float(&b, x[i]);
        from_float(&h, x[i]);
        y[4 * i] = pack2<bf16>(to_float(b), x[i]);
        y[4 * i + 1] = pack2<f16>(to_float(h), x[i]);
        y[4 * i + 2] = to_tf32(x[i]);
        float lo, hi;
        unpack2<f16>(pack2<f16>(1.f, x[i]), lo, hi);
        y[4 * i + 3] = __float_as_uint(hi) + (lo != 1.f);
        unpack2<bf16>(pack2<bf16>(x[i], 2.f), lo, hi);
        y[4 * i + 3] ^= __float_as_uint(lo) + (hi != 2.f);
}
TGC_KERNEL(k_round, 3)

extern "C" __global__ void k_fast(const Rt *, float *y, const float *x)
{
        int i = threadIdx.x;
        y[5 * i] = fast_exp2(x[i]);
        y[5 * i + 1] = fast_rcp(x[i]);
        y[5 * i + 2] = fast_rsqrt(x[i]);
        y[5 * i + 3] = fast_log2(x[i]);
        y[5 * i + 4] = fast_tanh(x[i]);
}
TGC_KERNEL(k_fast, 3)

/* ---- load and store ---------------------------------------------------- */

template <int V, class T>
TGC_DEV void copy_as(T *y, const T *x, int n)
{
        for (int i = threadIdx.x * V; i < n; i += blockDim.x * V) {
                float v[V];
                load<V>(v, x + i);
                store<V>(y + i, v);
        }
}

/* y holds x four times, once per V. */
template <class T>
TGC_DEV void copy_all(T *y, const T *x, int n)
{
        copy_as<1>(y, x, n);
        copy_as<2>(y + n, x, n);
        copy_as<4>(y + 2 * n, x, n);
        copy_as<8>(y + 3 * n, x, n);
}

extern "C" __global__ void k_copy(const Rt *rt, float *yf, bf16 *yb, f16 *yh, int *yi,
                                  const float *xf, const bf16 *xb, const f16 *xh, const int *xi)
{
        copy_all(yf, xf, rt->T);
        copy_all(yb, xb, rt->T);
        copy_all(yh, xh, rt->T);
        copy_all(yi, xi, rt->T);
}
TGC_KERNEL(k_copy, 9)

extern "C" __global__ void k_stream(const Rt *, uint4 *y, const uint4 *x)
{
        int i = threadIdx.x;
        prefetch_l2(x + i);
        uint4 a = load_streaming(x + i), b = load_nc(x + i);
        a.x += b.y;
        st_streaming(y + i, a);
}
TGC_KERNEL(k_stream, 3)

/* ---- warps and blocks -------------------------------------------------- */

/* y[17 * i ...] of thread i. */
extern "C" __global__ void k_shuffle(const Rt *, int *y, const int *x)
{
        int i = threadIdx.x, v = x[i];
        int *o = y + 17 * i;
        o[0] = __shfl_sync(0xffffffffu, v, 5);
        o[1] = __shfl_sync(0xffffffffu, v, (i * 7 + 3) & 31);
        o[2] = __shfl_sync(0xffffffffu, v, 3, 8);
        o[3] = __shfl_up_sync(0xffffffffu, v, 1);
        o[4] = __shfl_up_sync(0xffffffffu, v, 3, 8);
        o[5] = __shfl_down_sync(0xffffffffu, v, 2);
        o[6] = __shfl_down_sync(0xffffffffu, v, 5, 16);
        o[7] = __shfl_xor_sync(0xffffffffu, v, 9);
        o[8] = __shfl_xor_sync(0xffffffffu, v, 1, 4);
        o[9] = (int)__ballot_sync(0xffffffffu, v & 1);
        o[10] = __any_sync(0xffffffffu, v == x[0]);
        o[11] = __all_sync(0xffffffffu, v == x[0]);
        /* Two halves of a warp, each by itself. */
        if ((i & 31) < 16)
                o[12] = __shfl_xor_sync(0x0000ffffu, v, 15);
        else
                o[12] = __shfl_sync(0xffff0000u, v, 16 + (i & 3));
        __syncwarp();
        o[13] = (int)__reduce_add_sync(0xffffffffu, (unsigned)v);
        o[14] = __reduce_max_sync(0xffffffffu, v - 50);
        o[15] = __syncthreads_count(v & 1);
        float f = __shfl_xor_sync(0xffffffffu, (float)v, 16);
        unsigned long long w = __shfl_sync(0xffffffffu, (unsigned long long)v << 40 | 9, 31);
        o[16] = (int)f + (int)(w >> 40) * 1000 + (int)(w & 15) * 1000000;
}
TGC_KERNEL(k_shuffle, 3)

/* Sum and maximum of each block's n values, in every thread. */
template <int N>
TGC_DEV void reduce(float *y, const float *x, char *smem)
{
        int i = blockIdx.x * N + threadIdx.x;
        y[2 * i] = block_sum<N>(x[i], (float *)smem);
        __syncthreads();
        y[2 * i + 1] = block_max<N>(x[i], (float *)smem);
}
extern "C" __global__ void k_reduce32(const Rt *, float *y, const float *x)
{
        TGC_SMEM(smem);
        reduce<32>(y, x, smem);
}
TGC_KERNEL(k_reduce32, 3)

extern "C" __global__ void k_reduce96(const Rt *, float *y, const float *x)
{
        TGC_SMEM(smem);
        reduce<96>(y, x, smem);
}
TGC_KERNEL(k_reduce96, 3)

extern "C" __global__ void k_reduce256(const Rt *, float *y, const float *x)
{
        TGC_SMEM(smem);
        reduce<256>(y, x, smem);
}
TGC_KERNEL(k_reduce256, 3)

extern "C" __global__ void k_reduce1024(const Rt *, float *y, const float *x)
{
        TGC_SMEM(smem);
        reduce<1024>(y, x, smem);
}
TGC_KERNEL(k_reduce1024, 3)

/* Warp 0 fills a slot, warps 1 and 2 read it, through two named barriers. */
extern "C" __global__ void k_named(const Rt *, int *y)
{
        TGC_SMEM(smem);
        volatile int *slot = (volatile int *)smem;
        int i = threadIdx.x;
        for (int round = 0; round < 5; round++)
                if (i < 32) {
                        if (round)
                                bar_sync(2, 96);
                        slot[i] = 100 * round + i;
                        __threadfence_block();
                        bar_arrive(1, 96);
                } else {
                        bar_sync(1, 96);
                        y[round * 64 + i - 32] = slot[i & 31];
                        if (round < 4)
                                bar_arrive(2, 96);
                }
}
TGC_KERNEL(k_named, 2)

/* The block that comes last sums what all blocks wrote. */
extern "C" __global__ void k_last(const Rt *, int *y, int *part, int *count)
{
        TGC_SMEM(smem);
        int *last = (int *)smem;
        if (threadIdx.x == 0) {
                part[blockIdx.x] = (int)blockIdx.x + 1;
                __threadfence();
                *last = atomicAdd(count, 1) == (int)gridDim.x - 1;
        }
        __syncthreads();
        if (*last && threadIdx.x == 0) {
                __threadfence();
                int s = 0;
                for (unsigned i = 0; i < gridDim.x; i++)
                        s += load_acquire(part + i);
                *y = s;
        }
        if (threadIdx.x == 1)
                add_release(y + 1, 2);
        if (threadIdx.x == 2)
                atomicMax((unsigned *)y + 2, blockIdx.x);
}
TGC_KERNEL(k_last, 4)

/* ---- matrices ---------------------------------------------------------- */

/* x: 32 rows of 8 values of 16 bits.  y: lane's registers, x4, x4_trans, x2, x2_trans. */
extern "C" __global__ void k_ldmatrix(const Rt *, unsigned *y, const unsigned *x)
{
        TGC_SMEM(smem);
        int l = threadIdx.x;
        unsigned r[4], s[2];
        for (int i = 0; i < 4; i++)
                ((unsigned *)smem)[4 * l + i] = x[4 * l + i];
        __syncthreads();
        ldmatrix_x4(r, smem + 16 * l);
        for (int i = 0; i < 4; i++)
                y[12 * l + i] = r[i];
        ldmatrix_x4_trans(r, smem + 16 * l);
        for (int i = 0; i < 4; i++)
                y[12 * l + 4 + i] = r[i];
        ldmatrix_x2(s, smem + 16 * l);
        y[12 * l + 8] = s[0];
        y[12 * l + 9] = s[1];
        ldmatrix_x2_trans(s, smem + 16 * l);
        y[12 * l + 10] = s[0];
        y[12 * l + 11] = s[1];
}
TGC_KERNEL(k_ldmatrix, 3)

template <class T>
TGC_DEV unsigned two(T lo, T hi)
{
        return pack2<T>(to_float(lo), to_float(hi));
}

/* D (16,8) = C + A (16,16) B (16,8), row-major in memory, fragments element by element. */
template <class T>
TGC_DEV void mma_plain(float *D, const T *A, const T *B, const float *C)
{
        int g = threadIdx.x / 4, t = threadIdx.x % 4;
        unsigned a[4], b[2];
        float d[4];
        for (int i = 0; i < 4; i++) {
                int row = g + i % 2 * 8, col = 2 * t + i / 2 * 8;
                a[i] = two(A[16 * row + col], A[16 * row + col + 1]);
        }
        for (int i = 0; i < 2; i++)
                b[i] = two(B[8 * (2 * t + 8 * i) + g], B[8 * (2 * t + 8 * i + 1) + g]);
        for (int i = 0; i < 4; i++)
                d[i] = C[8 * (g + i / 2 * 8) + 2 * t + i % 2];
        mma_16816<T>(d, a, b);
        for (int i = 0; i < 4; i++)
                D[8 * (g + i / 2 * 8) + 2 * t + i % 2] = d[i];
}

extern "C" __global__ void k_mma_bf16(const Rt *, float *D, const bf16 *A, const bf16 *B,
                                      const float *C)
{
        mma_plain(D, A, B, C);
}
TGC_KERNEL(k_mma_bf16, 5)

extern "C" __global__ void k_mma_f16(const Rt *, float *D, const f16 *A, const f16 *B,
                                     const float *C)
{
        mma_plain(D, A, B, C);
}
TGC_KERNEL(k_mma_f16, 5)

/* D (16,8) = C + A (16,8) B (8,8). */
extern "C" __global__ void k_mma_tf32(const Rt *, float *D, const float *A, const float *B,
                                      const float *C)
{
        int g = threadIdx.x / 4, t = threadIdx.x % 4;
        unsigned a[4], b[2];
        float d[4];
        for (int i = 0; i < 4; i++)
                a[i] = to_tf32(A[8 * (g + i % 2 * 8) + t + i / 2 * 4]);
        for (int i = 0; i < 2; i++)
                b[i] = to_tf32(B[8 * (t + 4 * i) + g]);
        for (int i = 0; i < 4; i++)
                d[i] = C[8 * (g + i / 2 * 8) + 2 * t + i % 2];
        mma_1688_tf32(d, a, b);
        for (int i = 0; i < 4; i++)
                D[8 * (g + i / 2 * 8) + 2 * t + i % 2] = d[i];
}
TGC_KERNEL(k_mma_tf32, 5)

/* One 64x64 tile of Y (M,N) = A (M,K) B (K,N), 8 warps of 16x32, K in steps of 32,
 * two stages of cp.async; M, N need not fill the tile; K a multiple of 32, N of 8.
 * WAIT = false leaves out the wait that makes it right. */
template <class T, bool WAIT>
TGC_DEV void tile_gemm(float *Y, const T *A, const T *B, int M, int N, int K, int tile, char *smem)
{
        enum { LA = 40, LB = 72, STAGE = 64 * LA + 32 * LB }; /* padded rows */
        int tiles_n = (N + 63) / 64, m0 = tile / tiles_n * 64, n0 = tile % tiles_n * 64;
        int i = threadIdx.x, lane = i % 32, warp = i / 32, wm = warp % 4 * 16, wn = warp / 4 * 32;
        float d[4][4] = {};
        for (int k = 0; k <= K; k += 32) {
                if (k < K) {
                        T *s = (T *)smem + k / 32 % 2 * STAGE;
                        int row = i / 4, c = i % 4 * 8;
                        bool in = m0 + row < M;
                        cp_async16(s + row * LA + c, A + (in ? (size_t)(m0 + row) * K + k + c : 0),
                                   in);
                        row = i / 8, c = i % 8 * 8;
                        in = n0 + c < N;
                        cp_async16(s + 64 * LA + row * LB + c,
                                   B + (in ? (size_t)(k + row) * N + n0 + c : 0), in);
                }
                cp_async_commit();
                if (k == 0)
                        continue;
                if (WAIT)
                        cp_async_wait<1>();
                __syncthreads();
                const T *s = (const T *)smem + (k / 32 - 1) % 2 * STAGE;
                for (int kk = 0; kk < 32; kk += 16) {
                        unsigned a[4];
                        ldmatrix_x4(a, s + (wm + lane % 16) * LA + kk + lane / 16 * 8);
                        for (int j = 0; j < 4; j += 2) {
                                unsigned b[4];
                                ldmatrix_x4_trans(b, s + 64 * LA + (kk + lane % 16) * LB + wn +
                                                             j * 8 + lane / 16 * 8);
                                mma_16816<T>(d[j], a, b[0], b[1]);
                                mma_16816<T>(d[j + 1], a, b[2], b[3]);
                        }
                }
                __syncthreads();
        }
        cp_async_wait<0>();
        __syncthreads();
        for (int j = 0; j < 4; j++)
                for (int e = 0; e < 4; e++) {
                        int row = m0 + wm + lane / 4 + e / 2 * 8,
                            col = n0 + wn + j * 8 + lane % 4 * 2 + e % 2;
                        if (row < M && col < N)
                                Y[(size_t)row * N + col] = d[j][e];
                }
}

/* rt->B, rt->T, rt->step are M, N, K here. */
extern "C" __global__ void __launch_bounds__(256)
        k_gemm_bf16(const Rt *rt, float *Y, const bf16 *A, const bf16 *B)
{
        TGC_SMEM(smem);
        tile_gemm<bf16, true>(Y, A, B, rt->B, rt->T, rt->step, blockIdx.x, smem);
}
TGC_KERNEL(k_gemm_bf16, 4)

extern "C" __global__ void __launch_bounds__(256)
        k_gemm_f16(const Rt *rt, float *Y, const f16 *A, const f16 *B)
{
        TGC_SMEM(smem);
        tile_gemm<f16, true>(Y, A, B, rt->B, rt->T, rt->step, blockIdx.x, smem);
}
TGC_KERNEL(k_gemm_f16, 4)

extern "C" __global__ void __launch_bounds__(256)
        k_gemm_stale(const Rt *rt, float *Y, const bf16 *A, const bf16 *B)
{
        TGC_SMEM(smem);
        tile_gemm<bf16, false>(Y, A, B, rt->B, rt->T, rt->step, blockIdx.x, smem);
}
TGC_KERNEL(k_gemm_stale, 4)

/* cp.async of all three sizes, with zero fill. */
extern "C" __global__ void k_cp_async(const Rt *, unsigned *y, const unsigned *x)
{
        TGC_SMEM(smem);
        int i = threadIdx.x;
        cp_async16(smem + 16 * i, x + 4 * i, i % 3 != 0);
        cp_async_commit();
        cp_async8(smem + 1024 + 8 * i, x + 2 * i, i % 5 != 0);
        cp_async4(smem + 2048 + 4 * i, x + i, i % 7 != 0);
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
        for (int j = i; j < 448; j += 64)
                y[j] = ((unsigned *)smem)[j < 256 ? j : j < 384 ? j : j + 128];
        pdl_wait();
        pdl_launch();
}
TGC_KERNEL(k_cp_async, 3)

/* As in a kernel of several pieces: one block keeps 32 of its threads, which meet at barriers
 * alone. */
extern "C" __global__ void k_surplus(const Rt *, int *y)
{
        TGC_SMEM(smem);
        int *s = (int *)smem, i = (int)threadIdx.x, n = (int)blockDim.x;
        if (blockIdx.x == 0) {
                TGC_SURPLUS(32);
                n = 32;
        }
        s[i] = i;
        __syncthreads();
        y[blockIdx.x * blockDim.x + i] = s[n - 1 - i];
}
TGC_KERNEL(k_surplus, 2)
