/* stored_dot_sm90.cuh: stored_dot.cuh for types whose codes are not bytes; sm_90a only.
 *
 * NF4, FP4: PASSES 2, PLANES 2.  A value is scale * (128 n0 + n1); pass 0 reads n0, pass 1 n1.
 * Each n is a difference of two bytes below 128: plane 0 in units 0 .. UNITS-1, minus plane 1 in
 * the units behind; one of the two is 0.  FP4 is exact; NF4 is within 1.6e-5 of the block's
 * largest value.  Byte i of unit e is the lane's value 8e + i/2, plus 16 where i is odd: the
 * nibbles of a byte stay neighbours, and x must be stored in that order.
 *
 * D::read takes a D::Table.  D::table(zero) makes it from a zero that the compiler cannot see
 * through; else the compiler would put the table into memory instead of registers.
 *
 * F8: HALVES.  A code is an f16, exact.  The 16 codes of unit e are 8 words, from word 8e
 * on. */
#ifndef TGC_STORED_DOT_SM90_CUH
#define TGC_STORED_DOT_SM90_CUH

#include "stored_dot.cuh"
#ifdef TGC_SM90A

struct Decoder_nf4;
struct Decoder_fp4;
struct Decoder_f8;

/* word[0]: high parts (pass 0) of codes 8..15, word[1]: of codes 0..7; word[2], word[3]: the low
 * parts. */
struct DotTable16 {
        unsigned word[4][2];
};

/* Blocks of 32 nibbles, 16 low ones first.  A value is its table entry / ONE, negated for codes
 * below 8. */
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

/* The negative ONE makes codes from 8 on the negative ones. */
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
