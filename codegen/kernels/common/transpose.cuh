/* transpose.cuh: transposes a float32 operand for tf32 wgmma, which needs K contiguous.
 *
 *      transpose_task(from, ld, K, N, to, tile, smem)
 *              to (ceil(K / 32), N, 32) = from (K, N) transposed, in slabs of 32 of K: what a GEMM
 *              tile loads next is one piece of memory.  The last slab is padded with zeros.
 *
 * Addresses are 16-byte aligned; ld and N are multiples of 4 floats. threads: 256.  tiles: ceil(K
 * / 64) ceil(N / 64).  shared memory: TRANSPOSE_SMEM. */
#ifndef TGC_TRANSPOSE_CUH
#define TGC_TRANSPOSE_CUH

#include "ptx.cuh"

enum {
        TRANSPOSE_SIDE = 64,
        TRANSPOSE_LD = TRANSPOSE_SIDE + 1,
        TRANSPOSE_SMEM = TRANSPOSE_SIDE * TRANSPOSE_LD * 4
};

TGC_DEV void transpose_task(const float *from, int ld, int K, int N, float *to, int tile,
                            char *smem)
{
        constexpr int SIDE = TRANSPOSE_SIDE, LD = TRANSPOSE_LD, EACH = SIDE * SIDE / 4 / 256;
        const int across = (N + SIDE - 1) / SIDE, k0 = tile / across * SIDE,
                  n0 = tile % across * SIDE;
        const int t = threadIdx.x, x = t % 16 * 4, end = (K + 31) / 32 * 32;
        float *const s = (float *)smem;
        float v[EACH][4];

#pragma unroll
        for (int i = 0; i < EACH; i++) {
                const int k = k0 + t / 16 + 16 * i;
                v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0.f;
                if (k < K && n0 + x < N)
                        load<4>(v[i], from + (long)k * ld + n0 + x);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                        s[(t / 16 + 16 * i) * LD + x + j] = v[i][j];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < EACH; i++) { /* eight lanes per row of a slab */
                const int n = t / 8 + i % 2 * 32, k = i / 2 * 32 + t % 8 * 4;
#pragma unroll
                for (int j = 0; j < 4; j++)
                        v[i][j] = s[(k + j) * LD + n];
                if (k0 + k < end && n0 + n < N)
                        store<4>(to + ((long)((k0 + k) / 32) * N + n0 + n) * 32 + k % 32, v[i]);
        }
        __syncthreads();
}

#endif
