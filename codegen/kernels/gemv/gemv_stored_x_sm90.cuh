/* gemv_stored_x_sm90.cuh: rows of x in shared memory as gemv_stored_sm90.cuh multiplies them: in
 * fixed point, or f16 beside F8 codes.
 *
 * 32 neighbouring values share a power-of-two scale.  B is a BlocksMma (gemv_stored_sm90.cuh),
 * which says where values and scales go.  Three formats:
 *
 *      bytes       a value is 256 * high + low; the high bytes of a lane's units, then the low ones
 *      paired      the same, where NF4 and FP4 have codes k and k + 16 side by side
 *      halves      f16 (F8: D::HALVES)
 *
 *      blocks_x_fill     all rows through the prologue, and their sums of squares
 *      blocks_x_put      eight values, in the format of B::D */
#ifndef TGC_GEMV_STORED_X_SM90_CUH
#define TGC_GEMV_STORED_X_SM90_CUH

#include "gemv_prologue.cuh"
#include "stored_dot_sm90.cuh"
#ifdef TGC_SM90A

/* The scale of 32 values, and its inverse.  NaN if one of them is not finite. */
struct BlocksXScale {
        float scale, inverse;
};

/* Called by the four neighbouring threads that hold the 32 values, eight each. */
TGC_DEV BlocksXScale blocks_x_scale(const float (&v)[8])
{
        float largest = fabsf(v[0]);
#pragma unroll
        for (int j = 1; j < 8; j++)
                largest = max_nan(largest, fabsf(v[j]));
#pragma unroll
        for (int d = 1; d <= 2; d *= 2)
                largest = max_nan(largest, __shfl_xor_sync(0xffffffffu, largest, d));
        const unsigned most = __float_as_uint(largest) & 0x7fffffffu;
        /* Smallest power of two with largest < 127.49 * 256, so that high bytes are at most 127. */
        int power = (int)((most + 0x10400u) >> 23) - 14;
        power = power < 1 ? 1 : power;
        const float inverse = __uint_as_float((unsigned)(254 - power) << 23),
                    scale = __uint_as_float(most < 0x7f800000u ? (unsigned)power << 23
                                                               : 0x7fc00000u);
        return { scale, inverse };
}

/* Eight values, x[m][k .. k+7]: in part e of what a lane multiplies. */
struct BlocksXPlace {
        char *x;
        int m, k, e, lane;
        bool there; /* false: x has no such elements, and nothing is stored */
};

/* Halves. */
template <class B>
TGC_DEV void blocks_x_put_halves(const BlocksXPlace &p, const float (&v)[8], BlocksXScale s)
{
        if (!p.there)
                return;
        unsigned w[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
                w[i] = pack2<f16>(v[2 * i] * s.inverse, v[2 * i + 1] * s.inverse);
        char *const to = B::digits(p.x, p.m, 0, 0, p.lane) + p.e * 32;
        const int word = p.k / 4 % 4 - B::turn(p.lane);
        *(uint2 *)(to + (word & 3) * 8) = { w[0], w[1] };
        *(uint2 *)(to + ((word + 1) & 3) * 8) = { w[2], w[3] };
        if (p.k % 32 == 0)
                *(float2 *)B::scales(p.x, p.m, 0, p.lane) = { s.scale, 0.f };
}

/* High and low bytes of eight values, in order, and the sum of the run that they are in.  The
 * threads of a run call together. */
struct BlocksXBytes {
        unsigned high[2], low[2];
        int sum;
};
template <class B>
TGC_DEV BlocksXBytes blocks_x_bytes(const float (&v)[8], float inverse)
{
        BlocksXBytes x;
        unsigned n[8];
        /* Adding 1.5 * 2^23 leaves the integer in the low bits.  The extra 128 rounds the high
         * byte, and flips the sign bit of the low one. */
#pragma unroll
        for (int j = 0; j < 8; j++)
                n[j] = __float_as_uint(fmaf(v[j], inverse, 12583040.f));
        int sums[2] = { 0, 0 };
#pragma unroll
        for (int i = 0; i < 2; i++) {
                const unsigned a = __byte_perm(n[4 * i], n[4 * i + 1], 0x5140),
                               b = __byte_perm(n[4 * i + 2], n[4 * i + 3], 0x5140);
                x.low[i] = __byte_perm(a, b, 0x5410) ^ 0x80808080u;
                x.high[i] = __byte_perm(a, b, 0x7632);
                sums[0] = dot4<true, true>(x.high[i], 0x01010101u, sums[0]);
                sums[1] = dot4<true, true>(x.low[i], 0x01010101u, sums[1]);
        }
        x.sum = sums[0] * 256 + sums[1];
        x.sum += __shfl_xor_sync(0xffffffffu, x.sum, 1);
        if (B::RUN_UNITS == 2)
                x.sum += __shfl_xor_sync(0xffffffffu, x.sum, 2);
        return x;
}

/* Stores bytes `at` .. at+7 of a lane's part `part`, and the scale at the start of a run. */
template <class B>
TGC_DEV void blocks_x_store(const BlocksXPlace &p, int part, int at, const BlocksXBytes &b,
                            float scale)
{
        typedef typename B::D D;
        char *const to[2] = { B::digits(p.x, p.m, 0, part, p.lane),
                              B::digits(p.x, p.m, 1, part, p.lane) };
        if constexpr (D::TURNS) {
                const int word = at / 4 - B::turn(p.lane), first = (word & 3) * 4,
                          second = ((word + 1) & 3) * 4;
                *(unsigned *)(to[0] + first) = b.high[0];
                *(unsigned *)(to[0] + second) = b.high[1];
                *(unsigned *)(to[1] + first) = b.low[0];
                *(unsigned *)(to[1] + second) = b.low[1];
        } else {
                *(uint2 *)(to[0] + at) = { b.high[0], b.high[1] };
                *(uint2 *)(to[1] + at) = { b.low[0], b.low[1] };
        }
        if (p.k % (16 * B::RUN_UNITS) == 0)
                *(float2 *)B::scales(p.x, p.m, p.e / B::RUN_UNITS,
                                     p.lane) = { scale, scale * (float)b.sum };
}

/* Bytes. */
template <class B>
TGC_DEV void blocks_x_put_bytes(const BlocksXPlace &p, const float (&v)[8], BlocksXScale s)
{
        const BlocksXBytes b = blocks_x_bytes<B>(v, s.inverse);
        if (p.there)
                blocks_x_store<B>(p, p.e, p.k % 16, b, s.scale);
}

/* Interleaves the bytes of this lane (w: x[k .. k+7]) with those of lane ^ 2, which has x[k ^ 16
 * ..]: NF4 and FP4 codes k and k + 16 are neighbours in W.  The lane of the lower k gets the first
 * four of both, the other lane the last four. */
TGC_DEV void blocks_x_pair(unsigned (&w)[2], int k)
{
        const bool late = k & 16;
        const unsigned own = late ? w[1] : w[0],
                       other = __shfl_xor_sync(0xffffffffu, late ? w[0] : w[1], 2),
                       a = late ? other : own, b = late ? own : other;
        w[0] = __byte_perm(a, b, 0x5140);
        w[1] = __byte_perm(a, b, 0x7362);
}

/* Paired bytes. */
template <class B>
TGC_DEV void blocks_x_put_paired(const BlocksXPlace &p, const float (&v)[8], BlocksXScale s)
{
        BlocksXBytes b = blocks_x_bytes<B>(v, s.inverse);
        blocks_x_pair(b.high, p.k);
        blocks_x_pair(b.low, p.k);
        if (p.there)
                blocks_x_store<B>(p, p.k >> 3 & 1, p.k >> 1 & 8, b, s.scale);
}

/* Converts v = x[m][k .. k+7] and stores it.  Four neighbouring threads hold the 32 values that
 * share a scale.  there: false where x has no such element; the thread still takes part in the
 * shuffles. */
template <class B>
TGC_DEV void blocks_x_put(char *x, int m, int k, const float (&v)[8], bool there)
{
        typedef typename B::D D;
        const BlocksXScale s = blocks_x_scale(v);
        const BlocksXPlace p = { x, m, k, D::part_of(k / 16), D::lane_of(k / 16), there };
        if constexpr (D::HALVES)
                blocks_x_put_halves<B>(p, v, s);
        else if constexpr (D::PASSES == 2)
                blocks_x_put_paired<B>(p, v, s);
        else
                blocks_x_put_bytes<B>(p, v, s);
}

/* Fills rows row0 .. row0+M-1 of x through the prologue; zeros from row ROWS on.  square[m]: sum
 * of squares of this thread's elements of row m.  gain only multiplies. */
template <class B, int ROWS, int M, int K, int THREADS, int NORM, class Prologue, class Gain>
TGC_DEV void blocks_x_fill(char *x, int row0, float (&square)[M], const Prologue &prologue,
                           const Gain &gain)
{
        /* Without a branch between the vectors of 8, a thread's shuffles overlap. */
        constexpr bool EVEN = K % (THREADS * 8) == 0;
#pragma unroll 1
        for (int m = 0; m < M; m++) {
                const float q = x_row<K, 8, THREADS, NORM>(
                        row0 + m, 0, prologue, gain,
                        [&](int k) {
                                return (EVEN || k < K) && (ROWS % M == 0 || row0 + m < ROWS);
                        },
                        [&](int k, const float(&v)[8], bool) {
                                blocks_x_put<B>(x, m, k, v, EVEN || k < K);
                        });
#pragma unroll
                for (int i = 0; i < M; i++)
                        if (i == m)
                                square[i] = q;
        }
}

#endif
#endif
