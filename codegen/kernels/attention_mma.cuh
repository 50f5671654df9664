/* attention_mma.cuh: tiles of rows in shared memory, and their products on tensor cores, for attention.cuh and
 * attention_grad.cuh. */
#ifndef TGC_ATTENTION_MMA_CUH
#define TGC_ATTENTION_MMA_CUH

#include "attention_head.cuh"

/* Rows [row0, row0 + N) of a (rows, D) matrix to shared memory, zeros outside of it.
 * Where a thread's column never changes, its addresses differ by constants. */
template <int N, int THREADS, class Path, int D, class E>
TGC_DEV void att_copy(E *s, const E *g, long stride, int row0, int rows)
{
        constexpr int C = Path::DP / 8;
        const int tid = threadIdx.x;
#pragma unroll
        for (int i = 0; i < (N * C + THREADS - 1) / THREADS; i++) {
                const int r = THREADS % C == 0 ? tid / C + i * (THREADS / C) : (tid + i * THREADS) / C;
                const int c = (THREADS % C == 0 ? tid % C : (tid + i * THREADS) % C) * 8;
                if (N * C % THREADS && tid + i * THREADS >= N * C)
                        break;
                const bool ok = row0 + r < rows && (Path::DP == D || c < D);
                const int row = row0 + r < rows ? row0 + r : rows - 1;
                cp_async16(s + r * Path::LD + c, g + row * stride + (Path::DP == D || c < D ? c : 0), ok);
        }
}

/* A lane's place in ldmatrix_x4: of a 16 x 16 block as A operand (or transposed B
 * operand), and of a 16 x 16 block of rows that are columns of B. */
template <int LD> TGC_DEV int att_lane_a() { int l = threadIdx.x & 31; return (l & 15) * LD + (l >> 4) * 8; }
template <int LD> TGC_DEV int att_lane_b()
{
        int l = threadIdx.x & 31;
        return ((l & 7) + (l >> 4) * 8) * LD + ((l >> 3) & 1) * 8;
}

/* 16 MT rows as A operand over 16 KT columns: in registers, or read at each use. */
template <class E, int MT, int KT, int LD, bool KEEP> struct AttRows;
template <class E, int MT, int KT, int LD> struct AttRows<E, MT, KT, LD, true> {
        unsigned f[KT][MT][4];
        __device__ void init(const E *s)
        {
#pragma unroll
                for (int k = 0; k < KT; k++)
#pragma unroll
                        for (int m = 0; m < MT; m++)
                                ldmatrix_x4(f[k][m], s + att_lane_a<LD>() + m * 16 * LD + k * 16);
        }
        __device__ void get(unsigned (&a)[MT][4], int k) const
        {
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                a[m][i] = f[k][m][i];
        }
};
template <class E, int MT, int KT, int LD> struct AttRows<E, MT, KT, LD, false> {
        const E *p;
        __device__ void init(const E *s) { p = s + att_lane_a<LD>(); }
        __device__ void get(unsigned (&a)[MT][4], int k) const
        {
#pragma unroll
                for (int m = 0; m < MT; m++)
                        ldmatrix_x4(a[m], p + m * 16 * LD + k * 16);
        }
};

template <int MT, int NT>
TGC_DEV void att_zero(float (&x)[MT][NT][4])
{
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                x[m][n][i] = 0.f;
}

/* x += rows of a times rows of b:  x[i][j] = sum_d a[i][d] b[j][d]. */
template <class E, int MT, int NT, int KT, int LD, bool KEEP>
TGC_DEV void att_mma_nt(float (&x)[MT][NT][4], const AttRows<E, MT, KT, LD, KEEP> &a, const E *b)
{
        b += att_lane_b<LD>();
#pragma unroll
        for (int k = 0; k < KT; k++) {
                unsigned f[MT][4];
                a.get(f, k);
#pragma unroll
                for (int n = 0; n < NT; n += 2) {
                        unsigned r[4];
                        ldmatrix_x4(r, b + n * 8 * LD + k * 16);
#pragma unroll
                        for (int m = 0; m < MT; m++) {
                                mma_16816<E>(x[m][n], f[m], r[0], r[1]);
                                mma_16816<E>(x[m][n + 1], f[m], r[2], r[3]);
                        }
                }
        }
}

/* x += p b:  x[i][d] = sum_j p[i][j] b[j][d], p as fragments. */
template <class E, int LD, int MT, int KT, int NT>
TGC_DEV void att_mma_nn(float (&x)[MT][NT][4], const unsigned (&p)[KT][MT][4], const E *b)
{
        b += att_lane_a<LD>();
#pragma unroll
        for (int k = 0; k < KT; k++)
#pragma unroll
                for (int n = 0; n < NT; n += 2) {
                        unsigned r[4];
                        ldmatrix_x4_trans(r, b + k * 16 * LD + n * 8);
#pragma unroll
                        for (int m = 0; m < MT; m++) {
                                mma_16816<E>(x[m][n], p[k][m], r[0], r[1]);
                                mma_16816<E>(x[m][n + 1], p[k][m], r[2], r[3]);
                        }
                }
}

/* An accumulator's two neighbouring 8-column blocks are an A operand of 16 columns. */
template <class E, int MT, int NT>
TGC_DEV void att_pack(unsigned (&p)[NT / 2][MT][4], const float (&x)[MT][NT][4])
{
#pragma unroll
        for (int n = 0; n < NT; n += 2)
#pragma unroll
                for (int m = 0; m < MT; m++) {
                        p[n / 2][m][0] = pack2<E>(x[m][n][0], x[m][n][1]);
                        p[n / 2][m][1] = pack2<E>(x[m][n][2], x[m][n][3]);
                        p[n / 2][m][2] = pack2<E>(x[m][n + 1][0], x[m][n + 1][1]);
                        p[n / 2][m][3] = pack2<E>(x[m][n + 1][2], x[m][n + 1][3]);
                }
}

/* Row r of block m, half i of a fragment scaled by f[m][i], to the tail: two lanes swap
 * halves of two column blocks, so that each quad writes 16 neighbours.
 * t: the lane's first row; rows below `rows` exist; row_base, col_base are added. */
template <int D, int MT, int NT, class Tail>
TGC_DEV void att_store(const float (&x)[MT][NT][4], const float (&f)[MT][2], int t, int rows,
                       int row_base, int d0, int col_base, Tail &tail)
{
        int l = threadIdx.x & 3;
        bool odd = l & 1;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                        for (int n = 0; n < NT; n += 2) {
                                float a0 = x[m][n][2 * i] * f[m][i],     a1 = x[m][n][2 * i + 1] * f[m][i];
                                float b0 = x[m][n + 1][2 * i] * f[m][i], b1 = x[m][n + 1][2 * i + 1] * f[m][i];
                                float r0 = __shfl_xor_sync(0xffffffffu, odd ? a0 : b0, 1);
                                float r1 = __shfl_xor_sync(0xffffffffu, odd ? a1 : b1, 1);
                                int row = t + m * 16 + i * 8;
                                int d = d0 + n * 8 + (odd ? 8 : 0) + (l & 2) * 2;
                                if (row < rows && d < D)
                                        att_put4(tail, row_base + row, col_base + d, odd ? r0 : a0, odd ? r1 : a1,
                                                 odd ? b0 : r0, odd ? b1 : r1);
                        }
}

TGC_DEV float att_quad_sum(float x)
{
        x += __shfl_xor_sync(0xffffffffu, x, 1);
        return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

TGC_DEV float att_quad_max(float x)
{
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
        return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

#endif
