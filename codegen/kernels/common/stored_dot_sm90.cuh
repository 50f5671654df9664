/* stored_dot_sm90.cuh: factors of dot products (stored_dot.cuh) whose codes are no bytes, for
 * kernels of sm_90a.
 *
 *      NF4, FP4        PASSES 2, PLANES 2: a code is 128 times a number, of pass 0, and another, of
 *                      pass 1.  A number is a byte below 128, in unit e, less another, in unit
 *                      UNITS + e, of which one is 0.  FP4's are exact; NF4's are within 1.6e-5 of
 *                      the largest value.  Byte i of unit e is the lane's value 8 e + i / 2, and 16
 *                      more where i is odd: so neighbours lie in W, and x is to lie likewise.
 *                      D::read takes D::Table, of a zero that the compiler does not know: else it
 *                      keeps the table elsewhere than in registers
 *      F8              HALVES: a code is an f16, exact; unit e's 16 are 8 words from word 8 e on */
#ifndef TGC_STORED_DOT_SM90_CUH
#define TGC_STORED_DOT_SM90_CUH

#include "stored_dot.cuh"
#ifdef TGC_SM90A

struct Decoder_nf4;
struct Decoder_fp4;
struct Decoder_f8;

/* Bytes of eight codes each: upper halves of codes from 8 on and of those below, then lower
 * halves. */
struct DotTable16 {
        unsigned word[4][2];
};

/* 16 low nibbles, then their high ones, which choose a value: table / ONE, and less than 0 for
 * codes below 8. */
template <int VALUES, int ONE>
struct DotTabled : DotShape<2, 1, 0, VALUES / 32, false, false> {
        static constexpr int PLANES = 2, PASSES = 2;
        typedef DotUnits<4, 1> Units;
        typedef DotTable16 Table;
        static __device__ __forceinline__ void read(Units &u, const unsigned char *p, int sub,
                                                    const Table &table, int pass)
        {
                unsigned w[4], t[2][2];
                dot_words<4>(w, p + 4 + 16 * sub);
#pragma unroll
                for (int j = 0; j < 2; j++)
#pragma unroll
                        for (int i = 0; i < 2; i++)
                                t[j][i] = pass ? table.word[2 + j][i] : table.word[j][i];
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                                const unsigned at = j ? w[i] : w[i] ^ 0x88888888u;
                                unsigned *const to = &u.code[2 * j + i / 2][i % 2 * 2];
                                to[0] = pick_below_8(t[j][0], t[j][1], at);
                                to[1] = pick_below_8(t[j][0], t[j][1], at >> 16);
                        }
                u.scale[0] = *(const float *)p * ((pass ? 1.f : 128.f) / ONE);
        }
};

template <int VALUES>
struct Dot<Decoder_nf4, VALUES> : DotTabled<VALUES, 15684> {
        static __device__ __forceinline__ DotTable16 table(unsigned zero)
        {
                return { { { zero ^ 0x291e1309u, zero ^ 0x7a584436u },
                           { zero ^ 0x3040557au, zero ^ 0x000b1622u },
                           { zero ^ 0x34145c60u, zero ^ 0x444b7800u },
                           { zero ^ 0x322b2744u, zero ^ 0x0014526du } } };
        }
};

/* ... for codes from 8 on. */
template <int VALUES>
struct Dot<Decoder_fp4, VALUES> : DotTabled<VALUES, -16320> {
        static __device__ __forceinline__ DotTable16 table(unsigned zero)
        {
                const unsigned upper[2] = { zero ^ 0x7f550000u, zero ^ 0x1f153f2au },
                               lower[2] = { zero ^ 0x40005500u, zero ^ 0x70206040u };
                return { { { upper[0], upper[1] },
                           { upper[0], upper[1] },
                           { lower[0], lower[1] },
                           { lower[0], lower[1] } } };
        }
};

template <int VALUES>
struct Dot<Decoder_f8, VALUES> : DotShape<2, 1, 0, VALUES / 32, true, false> {
        static constexpr bool HALVES = true, TURNS = true;
        typedef DotUnits<4, 1> Units;
        static __device__ __forceinline__ void read(Units &u, const unsigned char *p, int sub,
                                                    int turn)
        {
                unsigned w[8];
                dot_words_turned(w, p + 4 + 32 * sub, turn);
#pragma unroll
                for (int i = 0; i < 8; i++)
                        e4m3_halves(w[i], u.code[i / 2][i % 2 * 2], u.code[i / 2][i % 2 * 2 + 1]);
                u.scale[0] = *(const float *)p;
        }
};

#endif
#endif
