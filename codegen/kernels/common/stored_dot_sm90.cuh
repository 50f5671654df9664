/* stored_dot_sm90.cuh: factors of dot products (stored_dot.cuh) whose codes are no bytes, for
 * kernels of sm_90a.
 *
 *      NF4, FP4        PLANES 2: a code is 256 times a signed byte, in unit e, and another in unit
 *                      UNITS + e.  FP4's are exact; NF4's are within 1.6e-5 of the largest value.
 *      F8              HALVES: a code is an f16, exact; unit e's 16 are 8 words from word 8 e on */
#ifndef TGC_STORED_DOT_SM90_CUH
#define TGC_STORED_DOT_SM90_CUH

#include "stored_dot.cuh"
#ifdef TGC_SM90A

struct Decoder_nf4;
struct Decoder_fp4;
struct Decoder_f8;

/* Nibbles of w to both bytes of numbers of a table: of the low ones, of the high ones. */
struct DotPlanes {
        unsigned low, high;
};
TGC_DEV void dot_planes(DotPlanes &upper, DotPlanes &lower, unsigned w, const unsigned (&table)[8])
{
        const unsigned a[4] = { table[0], table[1], table[2], table[3] },
                       b[4] = { table[4], table[5], table[6], table[7] };
        dot_table(w, upper.low, upper.high, a);
        dot_table(w, lower.low, lower.high, b);
}

/* 16 low nibbles, then their high ones; value = d * number / ONE. */
template <int VALUES, int ONE>
struct DotTable16 : DotShape<2, 1, 0, VALUES / 32, true, false> {
        static constexpr int PLANES = 2;
        typedef DotUnits<4, 1> Units;
        static __device__ __forceinline__ void units(Units &u, const unsigned char *p, int sub,
                                                     const unsigned (&table)[8])
        {
                unsigned w[4];
                dot_words<4>(w, p + 4 + 16 * sub);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        DotPlanes upper, lower;
                        dot_planes(upper, lower, w[i], table);
                        u.code[0][i] = upper.low, u.code[1][i] = upper.high;
                        u.code[2][i] = lower.low, u.code[3][i] = lower.high;
                }
                u.scale[0] = *(const float *)p * (1.f / ONE);
        }
};

template <int VALUES>
struct Dot<Decoder_nf4, VALUES> : DotTable16<VALUES, 32512> {
        static __device__ __forceinline__ void read(DotUnits<4, 1> &u, const unsigned char *p,
                                                    int sub)
        {
                const unsigned table[8] = { 0xcebda881u, 0x00f4e9dcu, 0x2b1f140au, 0x7f5c4738u,
                                            0xd8519500u, 0x007089e0u, 0xea42701bu, 0x00d174f8u };
                DotTable16<VALUES, 32512>::units(u, p, sub, table);
        }
};

template <int VALUES>
struct Dot<Decoder_fp4, VALUES> : DotTable16<VALUES, 32256> {
        static __device__ __forceinline__ void read(DotUnits<4, 1> &u, const unsigned char *p,
                                                    int sub)
        {
                const unsigned table[8] = { 0x7e540100u, 0x20153f2au, 0x82acff00u, 0xe1ebc1d6u,
                                            0x0000a800u, 0x80000000u, 0x00005800u, 0x80000000u };
                DotTable16<VALUES, 32256>::units(u, p, sub, table);
        }
};

template <int VALUES>
struct Dot<Decoder_f8, VALUES> : DotShape<2, 1, 0, VALUES / 32, true, false> {
        static constexpr bool HALVES = true;
        typedef DotUnits<4, 1> Units;
        static __device__ __forceinline__ void read(Units &u, const unsigned char *p, int sub)
        {
                unsigned w[8];
                dot_words<4>(w, p + 4 + 32 * sub);
#pragma unroll
                for (int i = 0; i < 8; i++)
                        e4m3_halves(w[i], u.code[i / 2][i % 2 * 2], u.code[i / 2][i % 2 * 2 + 1]);
                u.scale[0] = *(const float *)p;
        }
};

#endif
#endif
