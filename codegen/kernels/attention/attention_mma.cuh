/* attention_mma.cuh: operands of attention on mma.sync: 16-bit rows in shared memory and their
 * products, for attention.cuh and attention_backward.cuh.  attention_tf32.cuh overloads what
 * differs for floats.
 *
 *      att_copy        rows to shared memory
 *      AttRows         the warp's own rows, as A
 *      AttScores       an accumulator, as A
 *      att_mma_nt      A times rows of B:        x = a b^T
 *      att_mma_nn      scores times rows of B:   x = p b
 *      att_store       an accumulator of att_mma_nn to the epilogue */
#ifndef TGC_ATTENTION_MMA_CUH
#define TGC_ATTENTION_MMA_CUH

#include "attention_common.cuh"
#include "attention_fragment.cuh"

/* Copies rows [row0, row0 + N) of a (rows, D) matrix to shared memory, zeros outside of it.  A
 * thread keeps its column where possible, so its addresses differ by constants. */
template <int N, int THREADS, class Path, int D, class E>
TGC_DEV void att_copy(E *s, const E *g, long stride, int row0, int rows)
{
        constexpr int C = Path::DP / Path::CHUNK;
        constexpr bool SAME = THREADS % C == 0;
        const int tid = threadIdx.x;
        const E *first = g + (row0 + tid / C) * stride + tid % C * Path::CHUNK;
#pragma unroll
        for (int i = 0; i < (N * C + THREADS - 1) / THREADS; i++) {
                const int r = SAME ? tid / C + i * (THREADS / C) : (tid + i * THREADS) / C;
                const int c = (SAME ? tid % C : (tid + i * THREADS) % C) * Path::CHUNK;
                if (N * C % THREADS && tid + i * THREADS >= N * C)
                        break;
                cp_async16(s + r * Path::LD + c,
                           SAME ? first + i * (THREADS / C * stride) : g + (row0 + r) * stride + c,
                           row0 + r < rows && (Path::DP == D || c < D));
        }
}

/* The same for keys or values. */
template <int N, int THREADS, class Path, int D, class E, class Att>
TGC_DEV void att_copy_keys(E *s, const AttKeys<E, Att> &g, int row0, int rows)
{
        if constexpr (Att::FP8) { /* 8-bit values are converted here */
                constexpr int C = Path::DP / Path::CHUNK;
#pragma unroll 4
                for (int i = 0; i < (N * C + THREADS - 1) / THREADS; i++) {
                        const int at = (int)threadIdx.x + i * THREADS, r = at / C,
                                  c = at % C * Path::CHUNK;
                        if (N * C % THREADS && at >= N * C)
                                break;
                        uint4 x = { 0, 0, 0, 0 };
                        if (row0 + r < rows && (Path::DP == D || c < D))
                                x = fp8_get16<E, false>(g.at(row0 + r), c);
                        *(uint4 *)(s + r * Path::LD + c) = x;
                }
        } else if constexpr (!Att::PAGE) {
                att_copy<N, THREADS, Path, D>(s, g.base, g.step, row0, rows);
        } else {
                constexpr int C = Path::DP / Path::CHUNK;
#pragma unroll
                for (int i = 0; i < (N * C + THREADS - 1) / THREADS; i++) {
                        const int at = (int)threadIdx.x + i * THREADS, r = at / C,
                                  c = at % C * Path::CHUNK;
                        if (N * C % THREADS && at >= N * C)
                                break;
                        const bool have = row0 + r < rows && (Path::DP == D || c < D);
                        cp_async16(s + r * Path::LD + c, have ? g.at(row0 + r) + c : g.base, have);
                }
        }
}

/* A lane's row and column for ldmatrix_x4, whose matrices are 8 rows of CHUNK elements: four of
 * them as an A operand (or a transposed B), or as two blocks of 8 columns of B. */
template <class E>
constexpr int att_chunk = 16 / (int)sizeof(E);
template <class E, int LD>
TGC_DEV int att_lane_a()
{
        int l = threadIdx.x & 31;
        return (l & 15) * LD + (l >> 4) * att_chunk<E>;
}
template <class E, int LD>
TGC_DEV int att_lane_b()
{
        int l = threadIdx.x & 31;
        return ((l & 7) + (l >> 4) * 8) * LD + ((l >> 3) & 1) * att_chunk<E>;
}

/* Adjusts what ldmatrix loaded of A; nothing to do for 16-bit types. */
template <class E>
TGC_DEV void att_loaded(unsigned (&)[4], E)
{
}
TGC_DEV void att_loaded(unsigned (&)[4], float);

/* 16 MT rows as A over KT k steps of two chunks: in registers (KEEP), or loaded at each use. */
template <class E, int MT, int KT, int LD, bool KEEP>
struct AttRows;
template <class E, int MT, int KT, int LD>
struct AttRows<E, MT, KT, LD, true> {
        unsigned f[KT][MT][4];
        __device__ void init(const E *s)
        {
#pragma unroll
                for (int k = 0; k < KT; k++)
#pragma unroll
                        for (int m = 0; m < MT; m++) {
                                ldmatrix_x4(f[k][m], s + att_lane_a<E, LD>() + m * 16 * LD +
                                                             k * 2 * att_chunk<E>);
                                att_loaded(f[k][m], E());
                        }
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
template <class E, int MT, int KT, int LD>
struct AttRows<E, MT, KT, LD, false> {
        const E *p;
        __device__ void init(const E *s) { p = s + att_lane_a<E, LD>(); }
        __device__ void get(unsigned (&a)[MT][4], int k) const
        {
#pragma unroll
                for (int m = 0; m < MT; m++) {
                        ldmatrix_x4(a[m], p + m * 16 * LD + k * 2 * att_chunk<E>);
                        att_loaded(a[m], E());
                }
        }
};

/* x += rows of a times rows of b:  x[i][j] = sum_d a[i][d] b[j][d]. */
template <class E, int MT, int NT, int KT, int LD, bool KEEP>
TGC_DEV void att_mma_nt(float (&x)[MT][NT][4], const AttRows<E, MT, KT, LD, KEEP> &a, const E *b)
{
        b += att_lane_b<E, LD>();
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

/* An accumulator as A. */
template <class E, int MT, int NT>
struct AttScores {
        unsigned f[MT][NT / 2][4];
        __device__ void set(float (&x)[MT][NT][4])
        {
#pragma unroll
                for (int m = 0; m < MT; m++)
                        att_pack<E>(f[m], att_flat(x[m]));
        }
};

/* x += p b:  x[i][d] = sum_j p[i][j] b[j][d]. */
template <int LD, class E, int MT, int NT, int DT>
TGC_DEV void att_mma_nn(float (&x)[MT][DT][4], const AttScores<E, MT, NT> &p, const E *b)
{
        b += att_lane_a<E, LD>();
#pragma unroll
        for (int k = 0; k < NT / 2; k++)
#pragma unroll
                for (int n = 0; n < DT; n += 2) {
                        unsigned r[4];
                        ldmatrix_x4_trans(r, b + k * 16 * LD + n * 8);
#pragma unroll
                        for (int m = 0; m < MT; m++) {
                                mma_16816<E>(x[m][n], p.f[m][k], r[0], r[1]);
                                mma_16816<E>(x[m][n + 1], p.f[m][k], r[2], r[3]);
                        }
                }
}

/* Scales row r of block m, half i, by f[m][i] and passes it to the epilogue.  Two lanes swap
 * halves of two column blocks, so that each quad writes 16 neighbours.  t: the lane's first row;
 * rows below `rows` exist; row_base and col_base are added. */
template <int D, int MT, int NT, class Epilogue, class E>
TGC_DEV void att_store(const float (&x)[MT][NT][4], const float (&f)[MT][2], int t, int rows,
                       int row_base, int d0, int col_base, Epilogue &epilogue, E)
{
        int l = threadIdx.x & 3;
        bool odd = l & 1;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                        for (int n = 0; n < NT; n += 2) {
                                float a0 = x[m][n][2 * i] * f[m][i],
                                      a1 = x[m][n][2 * i + 1] * f[m][i];
                                float b0 = x[m][n + 1][2 * i] * f[m][i],
                                      b1 = x[m][n + 1][2 * i + 1] * f[m][i];
                                float r0 = __shfl_xor_sync(0xffffffffu, odd ? a0 : b0, 1);
                                float r1 = __shfl_xor_sync(0xffffffffu, odd ? a1 : b1, 1);
                                int row = t + m * 16 + i * 8;
                                int d = d0 + n * 8 + (odd ? 8 : 0) + (l & 2) * 2;
                                if (row < rows && d < D)
                                        att_put4(epilogue, row_base + row, col_base + d,
                                                 odd ? r0 : a0, odd ? r1 : a1, odd ? b0 : r0,
                                                 odd ? b1 : r1);
                        }
}

#endif
