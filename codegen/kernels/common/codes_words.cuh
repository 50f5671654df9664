/* codes_words.cuh: helpers of the decoders of codes (stored_codes.cuh): a lane's bytes, nibbles and
 * bits of a chunk of 32 as two words, and the bases of their classes.
 *
 *      bytes_of_32<O, ALIGN>(w, q, t)     lane t's bytes of the 32 at q, which ALIGN divides
 *      nibbles_of_16<O, ALIGN>(w, q, t)   its nibbles of the 16 bytes at q
 *      bits_of_32<O>(w, h, t)             its bits of h, as bytes 0 or 1
 *      table_places(w), table_bytes       nibbles in bytes, looked up in 16 bytes
 *      table_pairs(w, low, high)          bytes of two tables as 16 bits each
 *      CodesBase, CodesHeadless           what a decoder says of its codes
 *      codes_words, codes_signed          codes that are the words, or signed bytes
 *      codes_scale, code_float            one scale for all eight; a code as a float */
#ifndef TGC_CODES_WORDS_CUH
#define TGC_CODES_WORDS_CUH

#include "ptx.cuh"
#include "stored.cuh"

enum CodesOrder { CODES_RUN, CODES_PAIRS };

struct Codes {
        unsigned code[2];
        float scale[2], minus[2];
        float zero; /* of ZEROS types: codes - zero are to be scaled; then minus has it, too */
};

TGC_DEV unsigned u16_even(const unsigned char *p) { return *(const unsigned short *)p; }
/* Four bytes at an even address, or at one that 4 divides. */
TGC_DEV unsigned u32_even(const unsigned char *p) { return u16_even(p) | u16_even(p + 2) << 16; }
TGC_DEV unsigned u32_aligned(const unsigned char *p) { return *(const unsigned *)p; }
/* At any address. */
TGC_DEV unsigned u32_any(const unsigned char *p)
{
        return p[0] | (unsigned)p[1] << 8 | (unsigned)p[2] << 16 | (unsigned)p[3] << 24;
}
TGC_DEV float f16_bits(unsigned u)
{
        union {
                unsigned short u;
                f16 h;
        } c;
        c.u = (unsigned short)u;
        return __half2float(c.h);
}
TGC_DEV float f16_at(const unsigned char *p) { return f16_bits(u16_even(p)); }
TGC_DEV float f32_at(const unsigned char *p) { return __uint_as_float(u32_aligned(p)); }

/* Lane t's bytes of 32 that are the chunk's values in order, as two words. */
template <CodesOrder O, int ALIGN>
TGC_DEV void bytes_of_32(unsigned (&w)[2], const unsigned char *q, int t)
{
        if constexpr (O == CODES_PAIRS) {
#pragma unroll
                for (int i = 0; i < 2; i++)
                        w[i] = u16_even(q + 16 * i + 2 * t) | u16_even(q + 16 * i + 2 * t + 8)
                                                                      << 16;
        } else if constexpr (ALIGN >= 4) {
#pragma unroll
                for (int i = 0; i < 2; i++)
                        w[i] = u32_aligned(q + 8 * t + 4 * i);
        } else {
#pragma unroll
                for (int i = 0; i < 2; i++)
                        w[i] = u32_even(q + 8 * t + 4 * i);
        }
}

/* Lane t's nibbles of 16 bytes whose low nibbles are the first 16 values, as bytes of two words;
 * ALIGN divides q. */
template <CodesOrder O, int ALIGN>
TGC_DEV void nibbles_of_16(unsigned (&w)[2], const unsigned char *q, int t)
{
        if constexpr (O == CODES_PAIRS) {
                const unsigned x = u16_even(q + 2 * t) | u16_even(q + 2 * t + 8) << 16;
                w[0] = x & 0x0f0f0f0fu;
                w[1] = x >> 4 & 0x0f0f0f0fu;
        } else {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const unsigned char *at = q + 8 * (t & 1) + 4 * i;
                        const unsigned x = ALIGN >= 4 ? u32_aligned(at) : u32_even(at);
                        w[i] = x >> (t & 2) * 2 & 0x0f0f0f0fu;
                }
        }
}

/* Of 32 bits, one for each value, lane t's as bytes 0 or 1. */
template <CodesOrder O>
TGC_DEV void bits_of_32(unsigned (&w)[2], unsigned h, int t)
{
#pragma unroll
        for (int i = 0; i < 2; i++) {
                if constexpr (O == CODES_PAIRS) {
                        const unsigned x = h >> (16 * i + 2 * t);
                        w[i] = (x & 1) | (x & 2) << 7 | (x & 0x100) << 8 | (x & 0x200) << 15;
                } else {
                        w[i] = (h >> (8 * t + 4 * i) & 15) * 0x00204081u & 0x01010101u;
                }
        }
}

/* Where the nibbles in the bytes of w lie in a table of 16: selectors of its halves, and 0xff for
 * each that is 8 or more. */
struct TablePlaces {
        unsigned low, high;
};
TGC_DEV TablePlaces table_places(unsigned w)
{
        const unsigned pairs = w | w >> 4; /* two nibbles in bytes 0 and 2 */
        return { __byte_perm(pairs, pairs, 0x2020) & 0x7777u, sign_bytes(w << 4) };
}

/* Their bytes of a table of 16 bytes. */
TGC_DEV unsigned table_bytes(const TablePlaces &at, const unsigned (&table)[4])
{
        const unsigned a = __byte_perm(table[0], table[1], at.low),
                       b = __byte_perm(table[2], table[3], at.low);
        return (a & ~at.high) | (b & at.high);
}

/* Two tables' bytes of four nibbles as two pairs: those of `low` and `high` are neighbours. */
TGC_DEV void table_pairs(unsigned (&w)[2], unsigned low, unsigned high)
{
        w[0] = __byte_perm(low, high, 0x5140);
        w[1] = __byte_perm(low, high, 0x7362);
}

/* The half of the chunk that word i of lane t is of: which of two scales serves. */
template <CodesOrder O>
TGC_DEV int half_of_chunk(int i, int t)
{
        return O == CODES_PAIRS ? i : t >> 1;
}

struct NoHead {
};
struct RawWords {
        unsigned w[2];
};
template <CodesOrder O, int ALIGN>
TGC_DEV RawWords raw_bytes(const unsigned char *q, int t)
{
        RawWords r;
        bytes_of_32<O, ALIGN>(r.w, q, t);
        return r;
}
template <CodesOrder O, int ALIGN>
TGC_DEV RawWords raw_nibbles(const unsigned char *q, int t)
{
        RawWords r;
        nibbles_of_16<O, ALIGN>(r.w, q, t);
        return r;
}

/* Codes below 128; a WIDE type's reach 255.
 *      VALUE   a word's values, and pairs of them, are made by value() and pairs()
 *      LONG    scales have so many bits that BASE is to go before codes are scaled
 *      HALVES  a chunk's halves have scales of their own
 *      MINIMA  a value is more than its scale times a code less a zero
 *      ZEROS   a block has its own zero
 *      CHAIN   so many chunks have one scale */
template <bool WIDE_, int SHARE_, int ZERO_>
struct CodesBase {
        typedef RawWords Raw;
        static constexpr bool WIDE = WIDE_, VALUE = false, LONG = false, HALVES = false,
                              MINIMA = false, ZEROS = false;
        static constexpr int SHARE = SHARE_, ZERO = ZERO_, CHAIN = 1;
        static constexpr float BASE = WIDE ? 32768.f : 128.f;
};
/* Of which nothing is in common. */
template <bool WIDE, int ZERO>
struct CodesHeadless : CodesBase<WIDE, 1, ZERO> {
        typedef NoHead Head;
        static __device__ __forceinline__ Head head(const unsigned char *) { return Head(); }
};

/* Blocks of 256 whose sixteen scales are multiples of the float16 behind AT bytes. */
template <int AT, int SHARE, int ZERO>
struct CodesHalves : CodesBase<false, SHARE, ZERO> {
        static constexpr bool HALVES = true;
        struct Head {
                float d;
        };
        static __device__ __forceinline__ Head head(const unsigned char *b)
        {
                return { f16_at(b + AT) };
        }
};

/* The words as they are; the same of signed bytes, plus 128. */
TGC_DEV void codes_words(Codes &y, const RawWords &r, unsigned flip = 0)
{
        y.code[0] = r.w[0] ^ flip, y.code[1] = r.w[1] ^ flip;
}
TGC_DEV void codes_signed(Codes &y, const RawWords &r) { codes_words(y, r, 0x80808080u); }

/* All eight with one scale; word i with its own. */
TGC_DEV void codes_scale(Codes &y, float d, float minus = 0.f)
{
        y.scale[0] = y.scale[1] = d;
        y.minus[0] = y.minus[1] = minus;
}
TGC_DEV void codes_scale_word(Codes &y, int i, float d, float minus = 0.f)
{
        y.scale[i] = d;
        y.minus[i] = minus;
}

template <class C>
TGC_DEV float code_float(unsigned word, int j)
{
        return C::WIDE ? __uint_as_float(__byte_perm(word, 0x47000000u, 0x7404u | (unsigned)j << 4))
                       : __uint_as_float(
                                 __byte_perm(word, 0x43000000u, 0x7044u | (unsigned)j << 8));
}

#endif
