/* codes_words.cuh: helpers of codes_*.cuh: lane t's bytes, nibbles and bits of a chunk of 32
 * values as two words (four values each), and the base classes.
 *
 *      bytes_of_32<O, ALIGN>(w, q, t)     lane t's bytes of the 32 at q; ALIGN divides q
 *      nibbles_of_16<O, ALIGN>(w, q, t)   lane t's nibbles of the 16 bytes at q
 *      bits_of_32<O>(w, h, t)             lane t's bits of h, as bytes 0 or 1
 *      table_places(w), table_bytes       looks nibbles up in a table of 16 bytes
 *      table_pairs(w, low, high)          joins the bytes of two tables to 16 bits each
 *      CodesBase, CodesHeadless           base classes: the properties of a type's codes
 *      codes_words, codes_signed          the words as codes, unsigned or signed bytes
 *      codes_scale, code_float            sets one scale for all eight; a code as a float */
#ifndef TGC_CODES_WORDS_CUH
#define TGC_CODES_WORDS_CUH

#include "ptx.cuh"
#include "stored.cuh"

enum CodesOrder { CODES_RUN, CODES_PAIRS };

struct Codes {
        unsigned code[2];
        float scale[2], minus[2];
        float zero; /* ZEROS types: the block's zero point; minus includes it */
};

TGC_DEV unsigned u16_even(const unsigned char *p) { return *(const unsigned short *)p; }
/* Four bytes at an even address; at a multiple of 4. */
TGC_DEV unsigned u32_even(const unsigned char *p) { return u16_even(p) | u16_even(p + 2) << 16; }
TGC_DEV unsigned u32_aligned(const unsigned char *p) { return *(const unsigned *)p; }
/* Four bytes at any address. */
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

/* Byte i of the 32 belongs to value i. */
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

/* Low nibbles are values 0..15, high nibbles 16..31. */
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

/* Bit i of h belongs to value i. */
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

/* Selects table entries for four nibbles, one per byte of w.  low: prmt selector of the entry
 * modulo 8; high: 0xff for each nibble from 8 on. */
struct TablePlaces {
        unsigned low, high;
};
TGC_DEV TablePlaces table_places(unsigned w)
{
        const unsigned pairs = w | w >> 4; /* nibbles 0, 1 in byte 0; 2, 3 in byte 2 */
        return { __byte_perm(pairs, pairs, 0x2020) & 0x7777u, sign_bytes(w << 4) };
}

/* The four entries that `at` selects from a table of 16 bytes. */
TGC_DEV unsigned table_bytes(const TablePlaces &at, const unsigned (&table)[4])
{
        const unsigned a = __byte_perm(table[0], table[1], at.low),
                       b = __byte_perm(table[2], table[3], at.low);
        return (a & ~at.high) | (b & at.high);
}

/* Joins two tables' bytes, low and high, of four entries to 16 bits each. */
TGC_DEV void table_pairs(unsigned (&w)[2], unsigned low, unsigned high)
{
        w[0] = __byte_perm(low, high, 0x5140);
        w[1] = __byte_perm(low, high, 0x7362);
}

/* Which half of the chunk word i of lane t belongs to, for types with a scale per half. */
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

/* Properties of a type's codes.
 *
 *      WIDE    codes reach 255, else 127
 *      VALUE   codes are not integers: value() and pairs() convert them
 *      LONG    BASE is subtracted before scaling, as BASE * scale would need too many bits
 *      HALVES  each half of a chunk has its own scale
 *      MINIMA  values have a minimum besides ZERO: `minus` is used
 *      ZEROS   each block has its own zero point
 *      SHARE   chunks with the same raw words
 *      CHAIN   chunks with the same scale */
template <bool WIDE_, int SHARE_, int ZERO_>
struct CodesBase {
        typedef RawWords Raw;
        static constexpr bool WIDE = WIDE_, VALUE = false, LONG = false, HALVES = false,
                              MINIMA = false, ZEROS = false;
        static constexpr int SHARE = SHARE_, ZERO = ZERO_, CHAIN = 1;
        static constexpr float BASE = WIDE ? 32768.f : 128.f;
};
/* For types whose chunks share no header. */
template <bool WIDE, int ZERO>
struct CodesHeadless : CodesBase<WIDE, 1, ZERO> {
        typedef NoHead Head;
        static __device__ __forceinline__ Head head(const unsigned char *) { return Head(); }
};

/* Blocks of 256 with sixteen scales, each times the float16 at byte AT. */
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

/* Codes are the words; for signed bytes, code = value + 128. */
TGC_DEV void codes_words(Codes &y, const RawWords &r, unsigned flip = 0)
{
        y.code[0] = r.w[0] ^ flip, y.code[1] = r.w[1] ^ flip;
}
TGC_DEV void codes_signed(Codes &y, const RawWords &r) { codes_words(y, r, 0x80808080u); }

/* One scale for all eight; for word i alone. */
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
