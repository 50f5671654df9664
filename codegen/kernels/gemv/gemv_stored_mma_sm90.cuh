/* gemv_stored_mma_sm90.cuh: codes of W times x on integer tensor cores, for gemv_stored_sm90.cuh.
 *
 *      BlocksMma<S, M, K, Tile>     sizes of a step, of a slot, of a row of x; where x's parts lie
 *      blocks_stage                 a warp's steps of a slot: sums of its lanes' runs
 *
 * The mma is m16n8k32: A = codes of W, B = bytes of x.  A run is 16 or 32 neighbouring codes with
 * one scale.  Lane (g, t) = (lane / 4, lane % 4) loads a run of rows g and g + 8; the four lanes
 * of a row load four different runs.  B is block diagonal: columns 2t and 2t + 1 are the high and
 * low bytes of run t's x, and 0 in the k of the other runs.  So the two sums of run t arrive in
 * lane (g, t), which holds that run's scale.  One mma takes 8 codes of each run, and no sum leaves
 * its lane before the slab ends.
 *
 * NF4 and FP4 need two passes of two planes (../common/stored_dot_sm90.cuh).  F8 codes become f16;
 * x is then f16 too, with the same scales and 11 bits, and the mma sums in float32. */
#ifndef TGC_GEMV_STORED_MMA_SM90_CUH
#define TGC_GEMV_STORED_MMA_SM90_CUH

#include "stored_dot_sm90.cuh"
#ifdef TGC_SM90A

/* The lookup table that D::read takes, in registers, or nothing. */
struct NoTable {
};
template <class D, int PASSES = D::PASSES>
struct BlocksTable {
        typedef NoTable Type;
        static __device__ __forceinline__ NoTable of(const char *) { return NoTable(); }
};
template <class D>
struct BlocksTable<D, 2> {
        typedef typename D::Table Type;
        static __device__ __forceinline__ Type of(const char *zero)
        {
                return D::table(zero ? *(const volatile unsigned *)zero : 0);
        }
};

template <class S, int M, int K, class Tile>
struct BlocksMma {
        typedef DotOf<S> D;
        typedef typename BlocksTable<D>::Type Table;
        static constexpr int RUN_UNITS = D::UNITS / D::RUNS;
        static constexpr int STEP = 64 * D::UNITS, STEPS = K / STEP; /* values per warp and step */
        static constexpr int EACH = Tile::WARPS * Tile::KSTEPS,      /* steps per slot */
                K_BLOCKS = (STEPS + EACH - 1) / EACH;                /* slots per slab */
        static constexpr int ROW = K / S::VALUES * S::BYTES;
        static constexpr int PART = EACH * STEP / S::VALUES * S::BYTES;
        /* bytes between a slot's rows; 16 modulo 32, against bank conflicts */
        static constexpr int PITCH = (PART + 31) / 32 * 32 + 16;
        static constexpr int SLOT = Tile::ROWS * PITCH;
        /* one row of x: the bytes of each lane's units, high then low; then scale and sum per
         * run */
        static constexpr int DIGITS = K * 2, X = DIGITS + K / 16 / D::UNITS * D::RUNS * 8;
        static constexpr int ZERO = D::UNITS * 32;
        static constexpr int PARTIAL = Tile::FLUSH * Tile::WARPS * Tile::ROWS * M * 4;
        static_assert(K % STEP == 0 && ROW % 16 == 0 && PART % 16 == 0, "whole steps and pieces");

        /* Lanes that share a block rotate the order of their four words by this much, so that they
         * read different banks.  x is stored in the same order. */
        static __device__ __forceinline__ int turn(int lane)
        {
                return D::TURNS ? lane % D::LANES * (4 / D::LANES) : 0;
        }
        static __device__ __forceinline__ char *digits(char *x, int m, int digit, int e, int lane)
        {
                return x + m * X + (lane * 2 + digit) * (D::UNITS * 16) + e * 16;
        }
        static __device__ __forceinline__ float *scales(char *x, int m, int run, int lane)
        {
                return (float *)(x + m * X + DIGITS + (lane * D::RUNS + run) * 8);
        }
};

/* ---- products ----------------------------------------------------------------- */

/* sum[r] = the integer dot product of run i of row g + 8r with x, for byte codes.  xb: this lane's
 * column of B. */
template <class B, class Units>
TGC_DEV void run_bytes(float (&sum)[2], const Units (&u)[2], int i, const char *xb)
{
        typedef typename B::D D;
        int c[D::PLANES][4];
#pragma unroll
        for (int e = i * B::RUN_UNITS; e < (i + 1) * B::RUN_UNITS; e++) {
                const uint4 v = *(const uint4 *)(xb + e * 16);
                const unsigned b[2][2] = { { v.x, v.y }, { v.z, v.w } };
#pragma unroll
                for (int p = 0; p < D::PLANES; p++) {
                        const int at = p * D::UNITS + e;
#pragma unroll
                        for (int j = 0; j < 4; j++)
                                c[p][j] = e == i * B::RUN_UNITS ? 0
                                          : D::SIXTEEN          ? c[p][j] * 16
                                                                : c[p][j];
#pragma unroll
                        for (int j = 0; j < 4; j += 2) {
                                const unsigned a[4] = { u[0].code[at][j], u[1].code[at][j],
                                                        u[0].code[at][j + 1],
                                                        u[1].code[at][j + 1] };
                                mma_16832<D::SIGNED>(c[p], a, b[j / 2]);
                        }
                }
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
                int n[2] = { c[0][2 * r], c[0][2 * r + 1] };
                if constexpr (D::PLANES == 2)
                        n[0] -= c[1][2 * r], n[1] -= c[1][2 * r + 1];
                sum[r] = (float)(n[0] * 256 + n[1]);
        }
}

/* The same for F8's f16 codes; x is in the even columns of B alone. */
template <class B, class Units>
TGC_DEV void run_halves(float (&sum)[2], const Units (&u)[2], const char *xb)
{
        float c[4] = { 0.f, 0.f, 0.f, 0.f };
#pragma unroll
        for (int e = 0; e < 4; e++) {
                const uint4 v = *(const uint4 *)(xb + e * 16);
                const unsigned b[2][2] = { { v.x, v.y }, { v.z, v.w } };
#pragma unroll
                for (int j = 0; j < 4; j += 2) {
                        const unsigned a[4] = { u[0].code[e][j], u[1].code[e][j],
                                                u[0].code[e][j + 1], u[1].code[e][j + 1] };
                        mma_16816<f16>(c, a, b[j / 2]);
                }
        }
        sum[0] = c[0], sum[1] = c[2];
}

/* Reads the units of one block's lane `sub`: D::read with the arguments that D takes. */
template <class D, class Units, class Table>
TGC_DEV void blocks_read(Units &u, const unsigned char *p, int sub, const Table &table, int pass,
                         int turn)
{
        if constexpr (D::PASSES == 2)
                D::read(u, p, sub, table, pass);
        else if constexpr (D::TURNS)
                D::read(u, p, sub, turn);
        else
                D::read(u, p, sub);
}

/* acc[r][m] += this lane's runs of row g + 8r times row m of x.  own: index of the lane's units
 * within the row's K.  xb, stride: this lane's column of B in row 0 and from row to row of x
 * (lanes off the diagonal: zeros, 0). */
template <class B, int M>
TGC_DEV void blocks_multiply(float (&acc)[2][M], const unsigned char *const (&block)[2], int sub,
                             char *x, int own, const char *xb, int stride,
                             const typename B::Table &table)
{
        typedef typename B::D D;
        /* unroll 1: registers need not keep x of many rows between passes */
#pragma unroll(M == 1 ? D::PASSES : 1)
        for (int pass = 0; pass < D::PASSES; pass++) {
                typename D::Units u[2];
                blocks_read<D>(u[0], block[0], sub, table, pass, B::turn(sub));
                blocks_read<D>(u[1], block[1], sub, table, pass, B::turn(sub));
#pragma unroll
                for (int m = 0; m < M; m++) {
                        float by[D::RUNS][2];
                        if constexpr (D::RUNS == 1)
                                load<2>(by[0], B::scales(x, m, 0, own));
                        else
#pragma unroll
                                for (int i = 0; i < D::RUNS; i += 2)
                                        load<4>(reinterpret_cast<float(&)[4]>(by[i]),
                                                B::scales(x, m, i, own));
#pragma unroll
                        for (int i = 0; i < D::RUNS; i++) {
                                float sum[2];
                                if constexpr (D::HALVES)
                                        run_halves<B>(sum, u, xb + m * stride);
                                else
                                        run_bytes<B>(sum, u, i, xb + m * stride);
#pragma unroll
                                for (int r = 0; r < 2; r++) {
                                        acc[r][m] = fmaf(u[r].scale[i] * by[i][0], sum[r],
                                                         acc[r][m]);
                                        if (D::OFFSETS)
                                                acc[r][m] = fmaf(u[r].offset[i], by[i][1],
                                                                 acc[r][m]);
                                }
                        }
                }
        }
}

/* This warp's steps of K block s (one slot).  mine: this lane's column of B is on the
 * diagonal. */
template <class B, class S, int M, class Tile>
TGC_DEV void blocks_stage(float (&acc)[2][M], char *x, const char *zero, bool mine,
                          const char *slot, int s, int warp, int lane,
                          const typename B::Table &table)
{
        typedef DotOf<S> D;
        const int g = lane >> 2, t = lane & 3;
        mine &= !D::HALVES || !(g & 1);
        const unsigned char *const rows = (const unsigned char *)slot + g * B::PITCH;
#pragma unroll
        for (int l = 0; l < Tile::KSTEPS; l++) {
                const int step = l * Tile::WARPS + warp, all = s * B::EACH + step, u = step * 4 + t,
                          own = all * 4 + t;
                if (B::STEPS % B::EACH && all >= B::STEPS)
                        break;
                const unsigned char *const block[2] = { rows + u / D::LANES * S::BYTES,
                                                        rows + u / D::LANES * S::BYTES +
                                                                8 * B::PITCH };
                blocks_multiply<B, M>(acc, block, u % D::LANES, x, own,
                                      mine ? B::digits(x, 0, g & 1, 0, own) : zero, mine ? B::X : 0,
                                      table);
        }
}

#endif
#endif
