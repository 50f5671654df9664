/* attention_tf32.cuh: float operands of attention on tensor cores, under attention_mma.cuh's
 * names.
 *
 * A product is three tf32 mmas (3xTF32), as accurate as float32 (gemm_tf32.cuh); with TGC_TF32 it
 * is one, of rounded factors.  Factors are split or rounded when read as fragments.  (Rounding in
 * shared memory, by the copying threads, is less work but adds a barrier, and is slower.)
 *
 * Fragments are mma_1688_tf32's (ptx.cuh).  With g = lane / 4, t = lane % 4:
 * - Rows as A, and rows as columns of B (att_mma_nt): ldmatrix, whose 8x8 matrix of 16 bits is 8
 *   rows of 4 floats.
 * - Scores as A: an accumulator holds columns 2t and 2t + 1 of 8, where A has t and t + 4.  So k
 *   is permuted: of each 8 rows of B, row 2t is k = t and row 2t + 1 is k = t + 4.
 * - Rows as rows of B (att_mma_nn): one load brings four neighbours.  Column g of block j of 32
 *   columns is 4g + j, so a lane's results are runs of 8.
 *
 * Rows are DP + 4 floats apart, DP a multiple of 32.  So neither 8 neighbouring rows nor rows 2t
 * of two g share banks. */
#ifndef TGC_ATTENTION_TF32_CUH
#define TGC_ATTENTION_TF32_CUH

#include "attention_mma.cuh"
#include "gemm_tf32.cuh"

/* Splits x: x becomes hi, lo is returned.  With TGC_TF32 x becomes what the tensor core truncates
 * to the nearest tf32, ties away from zero (to_tf32 takes three instructions, and keeps NaN, which
 * this may turn into 0). */
TGC_DEV unsigned att_split(unsigned &x)
{
#if TGC_TF32
        x += 0x1000u;
        return 0;
#else
        return split_tf32(x);
#endif
}

/* The same for B: x is hi, truncated by the tensor core.  A's lo is rounded, so the error left has
 * no bias. */
TGC_DEV unsigned att_cut(unsigned &x)
{
        return TGC_TF32 ? att_split(x)
                        : __float_as_uint(__uint_as_float(x) - __uint_as_float(x & ~0x1fffu));
}

/* 16 MT rows by 8 of k. */
template <int MT>
struct AttFactor {
        unsigned hi[MT][4], lo[MT][4];
        __device__ void split()
        {
#pragma unroll
                for (int i = 0; i < MT * 4; i++)
                        lo[i / 4][i % 4] = att_split(hi[i / 4][i % 4]);
        }
};

/* Resident rows are rounded once but split at each use: hi and lo would take too many registers. */
TGC_DEV void att_loaded(unsigned (&a)[4], float)
{
#pragma unroll
        for (int i = 0; i < 4 && TGC_TF32; i++)
                att_split(a[i]);
}

/* d += a b for 16 MT rows and 8 N columns; changes b. */
template <int MT, int N>
TGC_DEV void att_mma_1688(float (&d)[MT][N][4], const AttFactor<MT> &a, unsigned (&b)[N][2])
{
        unsigned lo[N][2];
#pragma unroll
        for (int i = 0; i < N * 2; i++)
                lo[i / 2][i % 2] = att_cut(b[i / 2][i % 2]);
#if !TGC_TF32
#pragma unroll
        for (int i = 0; i < MT * N; i++)
                mma_1688_tf32(d[i / N][i % N], a.lo[i / N], b[i % N]);
#pragma unroll
        for (int i = 0; i < MT * N; i++)
                mma_1688_tf32(d[i / N][i % N], a.hi[i / N], lo[i % N]);
#endif
#pragma unroll
        for (int i = 0; i < MT * N; i++)
                mma_1688_tf32(d[i / N][i % N], a.hi[i / N], b[i % N]);
}

template <int MT, int NT, int KT, int LD, bool KEEP>
TGC_DEV void att_mma_nt(float (&x)[MT][NT][4], const AttRows<float, MT, KT, LD, KEEP> &a,
                        const float *b)
{
        b += att_lane_b<float, LD>();
#pragma unroll
        for (int k = 0; k < KT; k++) {
                AttFactor<MT> f;
                unsigned r[NT][2];
                a.get(f.hi, k);
                if (!TGC_TF32)
                        f.split();
#pragma unroll
                for (int n = 0; n < NT; n += 2) {
                        unsigned v[4];
                        ldmatrix_x4(v, b + n * 8 * LD + k * 8);
                        r[n][0] = v[0], r[n][1] = v[1], r[n + 1][0] = v[2], r[n + 1][1] = v[3];
                }
                att_mma_1688(x, f, r);
        }
}

template <int MT, int NT>
struct AttScores<float, MT, NT> {
        AttFactor<MT> f[NT];
        __device__ void set(const float (&x)[MT][NT][4])
        {
#pragma unroll
                for (int n = 0; n < NT; n++) {
#pragma unroll
                        for (int i = 0; i < MT * 4; i++)
                                f[n].hi[i / 4][i % 4] = __float_as_uint(
                                        x[i / 4][n][i % 4 / 2 + i % 2 * 2]);
                        f[n].split();
                }
        }
};

/* With three mmas each, the products of 8 NT rows are summed from zero, as the tensor core
 * truncates its sums (gemm_tf32.cuh). */
template <int LD, int MT, int NT, int DT>
TGC_DEV void att_mma_nn(float (&x)[MT][DT][4], const AttScores<float, MT, NT> &p, const float *b)
{
        const int lane = threadIdx.x & 31;
        b += lane % 4 * 2 * LD + lane / 4 * 4;
#pragma unroll
        for (int c = 0; c < DT; c += 4) {
                float part[MT][4][4];
#pragma unroll
                for (int i = 0; i < MT * 16; i++)
                        part[i / 16][i / 4 % 4][i % 4] = TGC_TF32 ? x[i / 16][c + i / 4 % 4][i % 4]
                                                                  : 0.f;
#pragma unroll
                for (int n = 0; n < NT; n++) {
                        float v[2][4];
                        unsigned r[4][2];
                        load<4>(v[0], b + n * 8 * LD + c * 8);
                        load<4>(v[1], b + n * 8 * LD + LD + c * 8);
#pragma unroll
                        for (int i = 0; i < 8; i++)
                                r[i / 2][i % 2] = __float_as_uint(v[i % 2][i / 2]);
                        att_mma_1688(part, p.f[n], r);
                }
#pragma unroll
                for (int i = 0; i < MT * 16; i++) {
                        float &sum = x[i / 16][c + i / 4 % 4][i % 4];
                        sum = TGC_TF32 ? part[i / 16][i / 4 % 4][i % 4]
                                       : sum + part[i / 16][i / 4 % 4][i % 4];
                }
        }
}

/* Half a run of 8 at a time. */
template <int D, int MT, int NT, class Epilogue>
TGC_DEV void att_store(const float (&x)[MT][NT][4], const float (&f)[MT][2], int t, int rows,
                       int row_base, int d0, int col_base, Epilogue &epilogue, float)
{
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                        for (int n = 0; n < NT / 2; n++) {
                                const int row = t + m * 16 + i * 8,
                                          d = d0 + n / 2 * 32 + (threadIdx.x & 3) * 8 + n % 2 * 4;
                                const int j = n / 2 * 4, e = 2 * i + n % 2;
                                const float s = f[m][i];
                                if (row < rows && d < D)
                                        att_put4(epilogue, row_base + row, col_base + d,
                                                 x[m][j][e] * s, x[m][j + 1][e] * s,
                                                 x[m][j + 2][e] * s, x[m][j + 3][e] * s);
                        }
}

#endif
