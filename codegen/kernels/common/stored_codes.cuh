/* stored_codes.cuh: weights in blocks as their codes: small whole numbers, still to be scaled.
 *
 * A fragment of a tensor core's operand gives a lane 8 values of a chunk of 32 in each of its rows.
 * decode_chunk (block_decode.h) makes all 32 of one row; here a lane makes its own 8 alone, four
 * codes a word.
 *
 *      typedef CodesOf<Stored_NAME>::Type C
 *      C::Head h = C::head(b)          what 256 values, or a block of fewer, have in common; b:
 *                                      their bytes
 *      C::Raw r = C::fetch<O>(b, c, t) words of chunk c (0..7) of the 256 values at b for lane t of
 *                                      four; the same for C::SHARE chunks, from a multiple of it on
 *      C::codes<O>(y, h, r, b, c, t)   8 codes, and for each four of them what makes them values:
 *                                      value = scale * (code - C::ZERO) + minus
 *      code_float<C>(word, j)          code j of a word, plus C::BASE
 *      codes_values<C>(v, y, i)        the four values of word i
 *
 * Which 8 values, by the order O:
 *      CODES_RUN       8t .. 8t+7: words 0 and 1 are four neighbours each
 *      CODES_PAIRS     2t, 2t+1, 2t+8, 2t+9, then the same + 16: as mma_16816's fragments of k
 *                      ascending
 *
 * Bytes may lie in shared memory, at even addresses. */
#ifndef TGC_STORED_CODES_CUH
#define TGC_STORED_CODES_CUH

#include "stored.cuh"

enum CodesOrder { CODES_RUN, CODES_PAIRS };

struct Codes {
        unsigned code[2];
        float scale[2], minus[2];
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

/* Lane t's nibbles of 16 bytes whose low nibbles are the first 16 values, as bytes of two words. */
template <CodesOrder O>
TGC_DEV void nibbles_of_16(unsigned (&w)[2], const unsigned char *q, int t)
{
        if constexpr (O == CODES_PAIRS) {
                const unsigned x = u16_even(q + 2 * t) | u16_even(q + 2 * t + 8) << 16;
                w[0] = x & 0x0f0f0f0fu;
                w[1] = x >> 4 & 0x0f0f0f0fu;
        } else {
#pragma unroll
                for (int i = 0; i < 2; i++)
                        w[i] = u32_even(q + 8 * (t & 1) + 4 * i) >> (t & 2) * 2 & 0x0f0f0f0fu;
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

/* Nibbles in the bytes of w to bytes of a table of 16 bytes. */
TGC_DEV unsigned table_bytes(unsigned w, const unsigned (&table)[4])
{
        const unsigned at = (w & 0xf) | (w >> 4 & 0xf0) | (w >> 8 & 0xf00) | (w >> 12 & 0xf000),
                       low = at & 0x7777u;
        const unsigned a = __byte_perm(table[0], table[1], low),
                       b = __byte_perm(table[2], table[3], low);
        /* 0xff where the nibble is 8 or more */
        const unsigned high = (w >> 3 & 0x01010101u) * 0xffu;
        return (a & ~high) | (b & high);
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

/* Codes below 128; a WIDE type's reach 255.  VALUE: a word's values are made by value().  LONG:
 * scales have so many bits that BASE is to go before codes are scaled.  HALVES: of a chunk have
 * scales of their own. */
template <bool WIDE_, int SHARE_, int ZERO_>
struct CodesBase {
        static constexpr bool WIDE = WIDE_, VALUE = false, LONG = false, HALVES = false;
        static constexpr int SHARE = SHARE_, ZERO = ZERO_;
        static constexpr float BASE = WIDE ? 32768.f : 128.f;
};

/* All eight with one scale. */
TGC_DEV void codes_scale(Codes &y, float d, float minus = 0.f)
{
        y.scale[0] = y.scale[1] = d;
        y.minus[0] = y.minus[1] = minus;
}

template <class C>
TGC_DEV float code_float(unsigned word, int j)
{
        return C::WIDE ? __uint_as_float(__byte_perm(word, 0x47000000u, 0x7404u | (unsigned)j << 4))
                       : __uint_as_float(
                                 __byte_perm(word, 0x43000000u, 0x7044u | (unsigned)j << 8));
}

/* ---- blocks of 32 ------------------------------------------------------------- */

template <int BYTES, int AT, int ZERO>
struct CodesNibbles : CodesBase<false, 1, ZERO> {
        typedef NoHead Head;
        typedef RawWords Raw;
        static __device__ __forceinline__ Head head(const unsigned char *) { return Head(); }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                Raw r;
                nibbles_of_16<O>(r.w, b + c * BYTES + AT, t);
                return r;
        }
};

struct Codes_q4_0 : CodesNibbles<18, 2, 8> {
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &, const Raw &r,
                                                     const unsigned char *b, int c, int)
        {
                const float d = f16_bits(u16_even(b + c * 18));
                y.code[0] = r.w[0], y.code[1] = r.w[1];
                codes_scale(y, d);
        }
};

struct Codes_q4_1 : CodesNibbles<20, 4, 0> {
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &, const Raw &r,
                                                     const unsigned char *b, int c, int)
        {
                y.code[0] = r.w[0], y.code[1] = r.w[1];
                codes_scale(y, f16_bits(u16_even(b + c * 20)), f16_bits(u16_even(b + c * 20 + 2)));
        }
};

struct Codes_q5_0 : CodesNibbles<22, 6, 16> {
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &, const Raw &r,
                                                     const unsigned char *b, int c, int t)
        {
                const float d = f16_bits(u16_even(b + c * 22));
                unsigned h[2];
                bits_of_32<O>(h, u32_even(b + c * 22 + 2), t);
                y.code[0] = r.w[0] | h[0] << 4, y.code[1] = r.w[1] | h[1] << 4;
                codes_scale(y, d);
        }
};

struct Codes_q5_1 : CodesNibbles<24, 8, 0> {
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &, const Raw &r,
                                                     const unsigned char *b, int c, int t)
        {
                unsigned h[2];
                bits_of_32<O>(h, u32_even(b + c * 24 + 4), t);
                y.code[0] = r.w[0] | h[0] << 4, y.code[1] = r.w[1] | h[1] << 4;
                codes_scale(y, f16_bits(u16_even(b + c * 24)), f16_bits(u16_even(b + c * 24 + 2)));
        }
};

/* Codes are the values plus 128. */
struct Codes_q8_0 : CodesBase<true, 1, 128> {
        typedef NoHead Head;
        typedef RawWords Raw;
        static __device__ __forceinline__ Head head(const unsigned char *) { return Head(); }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                Raw r;
                bytes_of_32<O, 2>(r.w, b + c * 34 + 2, t);
                return r;
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &, const Raw &r,
                                                     const unsigned char *b, int c, int)
        {
                const float d = f16_bits(u16_even(b + c * 34));
                y.code[0] = r.w[0] ^ 0x80808080u, y.code[1] = r.w[1] ^ 0x80808080u;
                codes_scale(y, d);
        }
};

/* ---- blocks of 256 ------------------------------------------------------------ */

struct TwoFloats {
        float d, min;
};

struct Codes_q2_k : CodesBase<false, 4, 0> {
        static constexpr bool HALVES = true;
        typedef TwoFloats Head;
        typedef RawWords Raw;
        static __device__ __forceinline__ Head head(const unsigned char *b)
        {
                return { f16_bits(u16_even(b + 80)), f16_bits(u16_even(b + 82)) };
        }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                Raw r;
                bytes_of_32<O, 4>(r.w, b + 16 + c / 4 * 32, t);
                return r;
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const Raw &r,
                                                     const unsigned char *b, int c, int t)
        {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const unsigned s = b[2 * c + half_of_chunk<O>(i, t)];
                        const float d = h.d * (float)(s & 15);
                        y.code[i] = r.w[i] >> c % 4 * 2 & 0x03030303u;
                        y.scale[i] = d;
                        y.minus[i] = -h.min * (float)(s >> 4);
                }
        }
};

/* A value's third bit is in the first 32 bytes, one for each chunk. */
struct Codes_q3_k : CodesBase<false, 4, 4> {
        static constexpr bool HALVES = true;
        typedef RawWords Raw;
        struct Head {
                float d;
        };
        static __device__ __forceinline__ Head head(const unsigned char *b)
        {
                return { f16_bits(u16_even(b + 108)) };
        }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                Raw r;
                bytes_of_32<O, 2>(r.w, b + 32 + c / 4 * 32, t);
                return r;
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const Raw &r,
                                                     const unsigned char *b, int c, int t)
        {
                unsigned mask[2];
                bytes_of_32<O, 2>(mask, b, t);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const int s = 2 * c + half_of_chunk<O>(i, t),
                                  low = b[96 + s % 8] >> (s < 8 ? 0 : 4) & 15,
                                  high = b[104 + s % 4] >> s / 4 * 2 & 3;
                        const float d = h.d * (float)((low | high << 4) - 32);
                        y.code[i] = (r.w[i] >> c % 4 * 2 & 0x03030303u) |
                                    (mask[i] >> c & 0x01010101u) << 2;
                        y.scale[i] = d;
                        y.minus[i] = 0.f;
                }
        }
};

/* The eight 6-bit scales and minima of a block, as bytes; and its two scales, the second negated,
 * each beside what takes BASE off a code_float. */
struct HeadK {
        float d, d_base, min, min_base;
        unsigned scale[2], least[2];
};
template <class C>
TGC_DEV HeadK head_k(const unsigned char *b)
{
        const unsigned both = u32_aligned(b), x = u32_aligned(b + 4), y = u32_aligned(b + 8),
                       z = u32_aligned(b + 12);
        HeadK h;
        h.d = f16_bits(both & 0xffff);
        h.d_base = -C::BASE * h.d;
        h.min = -f16_bits(both >> 16);
        h.min_base = -C::BASE * h.min;
        h.scale[0] = x & 0x3f3f3f3fu;
        h.least[0] = y & 0x3f3f3f3fu;
        h.scale[1] = (z & 0x0f0f0f0fu) | (x >> 2 & 0x30303030u);
        h.least[1] = (z >> 4 & 0x0f0f0f0fu) | (y >> 2 & 0x30303030u);
        return h;
}
template <class C>
TGC_DEV void codes_scale_k(Codes &y, const HeadK &h, int c)
{
        const unsigned scale = c < 4 ? h.scale[0] : h.scale[1],
                       least = c < 4 ? h.least[0] : h.least[1];
        codes_scale(y, fmaf(code_float<C>(scale, c % 4), h.d, h.d_base),
                    fmaf(code_float<C>(least, c % 4), h.min, h.min_base));
}

struct Codes_q4_k : CodesBase<false, 2, 0> {
        typedef HeadK Head;
        typedef RawWords Raw;
        static __device__ __forceinline__ Head head(const unsigned char *b)
        {
                return head_k<Codes_q4_k>(b);
        }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                Raw r;
                bytes_of_32<O, 4>(r.w, b + 16 + c / 2 * 32, t);
                return r;
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const Raw &r,
                                                     const unsigned char *, int c, int)
        {
#pragma unroll
                for (int i = 0; i < 2; i++)
                        y.code[i] = r.w[i] >> c % 2 * 4 & 0x0f0f0f0fu;
                codes_scale_k<Codes_q4_k>(y, h, c);
        }
};

struct Codes_q5_k : CodesBase<false, 2, 0> {
        typedef HeadK Head;
        typedef RawWords Raw;
        static __device__ __forceinline__ Head head(const unsigned char *b)
        {
                return head_k<Codes_q5_k>(b);
        }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                Raw r;
                bytes_of_32<O, 4>(r.w, b + 48 + c / 2 * 32, t);
                return r;
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const Raw &r,
                                                     const unsigned char *b, int c, int t)
        {
                unsigned high[2];
                bytes_of_32<O, 4>(high, b + 16, t);
#pragma unroll
                for (int i = 0; i < 2; i++)
                        y.code[i] = (r.w[i] >> c % 2 * 4 & 0x0f0f0f0fu) |
                                    (high[i] >> c & 0x01010101u) << 4;
                codes_scale_k<Codes_q5_k>(y, h, c);
        }
};

/* Low nibbles of 64 bytes, then the high ones: chunks c and c + 2 of a half share them; with 2 bits
 * above, which the four chunks of a half share. */
struct Codes_q6_k : CodesBase<false, 1, 32> {
        static constexpr bool HALVES = true;
        typedef RawWords Raw;
        struct Head {
                float d;
        };
        static __device__ __forceinline__ Head head(const unsigned char *b)
        {
                return { f16_bits(u16_even(b + 208)) };
        }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                const int part = c % 4;
                unsigned high[2];
                Raw r;
                bytes_of_32<O, 2>(r.w, b + c / 4 * 64 + part % 2 * 32, t);
                bytes_of_32<O, 2>(high, b + 128 + c / 4 * 32, t);
#pragma unroll
                for (int i = 0; i < 2; i++)
                        r.w[i] = (r.w[i] >> part / 2 * 4 & 0x0f0f0f0fu) |
                                 (high[i] >> part * 2 & 0x03030303u) << 4;
                return r;
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const Raw &r,
                                                     const unsigned char *b, int c, int t)
        {
                const signed char *scale = (const signed char *)b + 192 + 2 * c;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const float d = h.d * (float)scale[half_of_chunk<O>(i, t)];
                        y.code[i] = r.w[i];
                        y.scale[i] = d;
                        y.minus[i] = 0.f;
                }
        }
};

/* ---- 4 bits that choose a value of a table: codes are the values plus 128, or 12 ---- */

TGC_DEV void codes_iq4(Codes &y, const unsigned (&w)[2])
{
        /* -127 -104 -83 -65  -49 -35 -22 -10  1 13 25 38  53 69 89 113 */
        const unsigned table[4] = { 0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u };
        y.code[0] = table_bytes(w[0], table), y.code[1] = table_bytes(w[1], table);
}
TGC_DEV void codes_e2m1(Codes &y, const unsigned (&w)[2])
{
        /* 0 1 2 3  4 6 8 12  0 -1 -2 -3  -4 -6 -8 -12 */
        const unsigned table[4] = { 0x0f0e0d0cu, 0x18141210u, 0x090a0b0cu, 0x00040608u };
        y.code[0] = table_bytes(w[0], table), y.code[1] = table_bytes(w[1], table);
}

template <int BYTES, int AT>
struct CodesTable : CodesBase<true, 1, 128> {
        typedef NoHead Head;
        typedef RawWords Raw;
        static __device__ __forceinline__ Head head(const unsigned char *) { return Head(); }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                Raw r;
                nibbles_of_16<O>(r.w, b + c * BYTES + AT, t);
                return r;
        }
};

struct Codes_iq4_nl : CodesTable<18, 2> {
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &, const Raw &r,
                                                     const unsigned char *b, int c, int)
        {
                const float d = f16_bits(u16_even(b + c * 18));
                codes_iq4(y, r.w);
                codes_scale(y, d);
        }
};

struct Codes_iq4_xs : CodesTable<16, 8> {
        static constexpr bool LONG = true;
        struct Head {
                float d;
                unsigned high, low;
        };
        static __device__ __forceinline__ Head head(const unsigned char *b)
        {
                return { f16_bits(u16_even(b)), u16_even(b + 2), u32_even(b + 4) };
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const Raw &r,
                                                     const unsigned char *, int c, int)
        {
                const int scale = (int)((h.low >> 4 * c & 15) | (h.high >> 2 * c & 3) << 4) - 32;
                const float d = h.d * (float)scale;
                codes_iq4(y, r.w);
                codes_scale(y, d);
        }
};

/* Blocks of 17 bytes: at odd addresses, too. */
struct Codes_mxfp4 : CodesBase<false, 1, 12> {
        typedef NoHead Head;
        typedef RawWords Raw;
        static __device__ __forceinline__ Head head(const unsigned char *) { return Head(); }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                const unsigned char *q = b + c * 17 + 1;
                Raw r;
                if constexpr (O == CODES_PAIRS) {
                        q += 2 * t;
                        const unsigned x = q[0] | (unsigned)q[1] << 8 | (unsigned)q[8] << 16 |
                                           (unsigned)q[9] << 24;
                        r.w[0] = x & 0x0f0f0f0fu;
                        r.w[1] = x >> 4 & 0x0f0f0f0fu;
                } else {
#pragma unroll
                        for (int i = 0; i < 2; i++)
                                r.w[i] = u32_any(q + 8 * (t & 1) + 4 * i) >> (t & 2) * 2 &
                                         0x0f0f0f0fu;
                }
                return r;
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &, const Raw &r,
                                                     const unsigned char *b, int c, int)
        {
                const unsigned e = b[c * 17];
                const float d = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
                codes_e2m1(y, r.w);
                codes_scale(y, d);
        }
};

/* Four parts of 16 values, each with a scale and 8 bytes: low nibbles first. */
struct Codes_nvfp4 : CodesBase<false, 1, 12> {
        static constexpr bool HALVES = true;
        typedef NoHead Head;
        typedef RawWords Raw;
        static __device__ __forceinline__ Head head(const unsigned char *) { return Head(); }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                const unsigned char *q = b + c / 2 * 36 + 4 + c % 2 * 16;
                Raw r;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        if constexpr (O == CODES_PAIRS) {
                                const unsigned x = u16_even(q + 8 * i + 2 * t);
                                r.w[i] = (x & 0x0f0fu) | (x >> 4 & 0x0f0fu) << 16;
                        } else {
                                r.w[i] = u32_aligned(q + t / 2 * 8 + 4 * i) >> (t & 1) * 4 &
                                         0x0f0f0f0fu;
                        }
                }
                return r;
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &, const Raw &r,
                                                     const unsigned char *b, int c, int t)
        {
                codes_e2m1(y, r.w);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const unsigned s = b[c / 2 * 36 + c % 2 * 2 + half_of_chunk<O>(i, t)],
                                       e = s >> 3 & 15, m = s & 7;
                        const float half = e ? __uint_as_float((e + 119) << 23 | m << 20)
                                             : (float)m * 0x1p-10f,
                                    d = s == 0x7f ? 0.f : half;
                        y.scale[i] = d;
                        y.minus[i] = 0.f;
                }
        }
};

/* ---- blocks of quantised folders: a scale in float32, then codes ------------------- */

/* Of blocks of any number of values: where chunk c lies. */
template <int VALUES, int BYTES>
TGC_DEV const unsigned char *block_of_chunk(const unsigned char *b, int c)
{
        return b + c / (VALUES / 32) * BYTES;
}

/* The zero point is in the scale's last byte. */
template <int VALUES, int BYTES>
struct Codes_i4 : CodesBase<false, 1, 0> {
        typedef NoHead Head;
        typedef RawWords Raw;
        static __device__ __forceinline__ Head head(const unsigned char *) { return Head(); }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                Raw r;
                nibbles_of_16<O>(r.w,
                                 block_of_chunk<VALUES, BYTES>(b, c) + 4 + c % (VALUES / 32) * 16,
                                 t);
                return r;
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &, const Raw &r,
                                                     const unsigned char *b, int c, int)
        {
                const unsigned u = u32_aligned(block_of_chunk<VALUES, BYTES>(b, c));
                const float d = __uint_as_float(u & ~255u);
                y.code[0] = r.w[0], y.code[1] = r.w[1];
                codes_scale(y, d, -d * (float)(u & 255));
        }
};

/* Bytes; of bitsandbytes a scale is of 127 steps. */
template <int VALUES, int BYTES, bool SCB>
struct Codes_i8 : CodesBase<true, 1, 128> {
        static constexpr bool LONG = true;
        typedef NoHead Head;
        typedef RawWords Raw;
        static __device__ __forceinline__ Head head(const unsigned char *) { return Head(); }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                Raw r;
                bytes_of_32<O, 4>(r.w,
                                  block_of_chunk<VALUES, BYTES>(b, c) + 4 + c % (VALUES / 32) * 32,
                                  t);
                return r;
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &, const Raw &r,
                                                     const unsigned char *b, int c, int)
        {
                const float d = __uint_as_float(u32_aligned(block_of_chunk<VALUES, BYTES>(b, c)));
                y.code[0] = r.w[0] ^ 0x80808080u, y.code[1] = r.w[1] ^ 0x80808080u;
                codes_scale(y, SCB ? d * (1 / 127.f) : d);
        }
};

/* ---- values of a table of float32, and of 8 bits -------------- */

template <int VALUES, int BYTES, bool NF4>
struct Codes_floats : CodesBase<false, 1, 0> {
        static constexpr bool VALUE = true;
        typedef NoHead Head;
        typedef RawWords Raw;
        static __device__ __forceinline__ Head head(const unsigned char *) { return Head(); }
        template <CodesOrder O>
        static __device__ __forceinline__ Raw fetch(const unsigned char *b, int c, int t)
        {
                return Codes_i4<VALUES, BYTES>::template fetch<O>(b, c, t);
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &, const Raw &r,
                                                     const unsigned char *b, int c, int)
        {
                y.code[0] = r.w[0], y.code[1] = r.w[1];
                codes_scale(y, __uint_as_float(u32_aligned(block_of_chunk<VALUES, BYTES>(b, c))));
        }
        static __device__ __forceinline__ void value(float (&v)[4], unsigned word)
        {
                /* the four bytes of nf4_values and fp4_values (block_decode.h) */
                constexpr unsigned NF[4][4] = {
                        { 0xa030b100u, 0x00713f4du, 0x3adde3ffu, 0x00b3abb8u },
                        { 0x326b3900u, 0x007835a2u, 0x0304cafau, 0x001307a4u },
                        { 0xca063280u, 0x00ba3d91u, 0xad7c24a2u, 0x803910e1u },
                        { 0xbebfbfbfu, 0x00bdbebeu, 0x3e3e3e3du, 0x3f3f3f3eu }
                };
                constexpr unsigned FP[4][4] = {
                        { 0x00abab00u, 0x00ab00abu, 0x00abab00u, 0x00ab00abu },
                        { 0x00aaaa00u, 0x00aa00aau, 0x00aaaa00u, 0x00aa00aau },
                        { 0x802aaa00u, 0x802a00aau, 0x802aaa00u, 0x802a00aau },
                        { 0x3f3f3b00u, 0x3e3e3f3eu, 0xbfbfbb00u, 0xbebebfbeu }
                };
                unsigned b[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        const unsigned table[4] = { NF4 ? NF[i][0] : FP[i][0],
                                                    NF4 ? NF[i][1] : FP[i][1],
                                                    NF4 ? NF[i][2] : FP[i][2],
                                                    NF4 ? NF[i][3] : FP[i][3] };
                        b[i] = table_bytes(word, table);
                }
#pragma unroll
                for (int j = 0; j < 4; j++) {
                        const unsigned both = 0x40u + 0x11u * j;
                        v[j] = __uint_as_float(__byte_perm(__byte_perm(b[0], b[1], both),
                                                           __byte_perm(b[2], b[3], both), 0x5410));
                }
        }
};

/* E4M3; 0x7f and 0xff are NaN. */
template <int VALUES, int BYTES>
struct Codes_f8 : Codes_i8<VALUES, BYTES, false> {
        static constexpr bool VALUE = true;
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int)
        {
                y.code[0] = r.w[0], y.code[1] = r.w[1];
                codes_scale(y, __uint_as_float(u32_aligned(block_of_chunk<VALUES, BYTES>(b, c))));
        }
        static __device__ __forceinline__ void value(float (&v)[4], unsigned word)
        {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                        const unsigned u = word >> 8 * j & 0x7f;
                        /* a half of 5 bits of exponent is 2^8 too small; subnormal ones too */
                        const float x = u == 0x7f ? __uint_as_float(0x7fc00000u)
                                                  : f16_bits(u << 7) * 256.f;
                        v[j] = word >> 8 * j & 0x80 ? -x : x;
                }
        }
};

/* ---- which serves a type ---------------------------------------------------------- */

template <class Decoder, int VALUES, int BYTES>
struct CodesOfDecoder;
#define CODES(decode)                                                   \
        template <int VALUES, int BYTES>                                \
        struct CodesOfDecoder<struct Decoder_##decode, VALUES, BYTES> { \
                typedef Codes_##decode Type;                            \
        };
#define CODES_SIZED(decode, ...)                                        \
        template <int VALUES, int BYTES>                                \
        struct CodesOfDecoder<struct Decoder_##decode, VALUES, BYTES> { \
                typedef __VA_ARGS__ Type;                               \
        };
CODES(q4_0)
CODES(q4_1)
CODES(q5_0)
CODES(q5_1)
CODES(q8_0)
CODES(q2_k)
CODES(q3_k)
CODES(q4_k)
CODES(q5_k)
CODES(q6_k)
CODES(iq4_nl)
CODES(iq4_xs)
CODES(mxfp4)
CODES(nvfp4)
CODES_SIZED(i4, Codes_i4<VALUES, BYTES>)
CODES_SIZED(i8, Codes_i8<VALUES, BYTES, false>)
CODES_SIZED(scb, Codes_i8<VALUES, BYTES, true>)
CODES_SIZED(nf4, Codes_floats<VALUES, BYTES, true>)
CODES_SIZED(fp4, Codes_floats<VALUES, BYTES, false>)
CODES_SIZED(f8, Codes_f8<VALUES, BYTES>)
#undef CODES
#undef CODES_SIZED

template <class S>
struct CodesOf {
        typedef typename CodesOfDecoder<typename S::Decoder, S::VALUES, S::BYTES>::Type Type;
};

/* The four values of word s. */
template <class C>
TGC_DEV void codes_values(float (&v)[4], const Codes &y, int s)
{
        if constexpr (C::VALUE) {
                C::value(v, y.code[s]);
#pragma unroll
                for (int j = 0; j < 4; j++)
                        v[j] *= y.scale[s];
        } else if constexpr (C::LONG) {
#pragma unroll
                for (int j = 0; j < 4; j++)
                        v[j] = fmaf(code_float<C>(y.code[s], j) - (C::BASE + C::ZERO), y.scale[s],
                                    y.minus[s]);
        } else {
                const float offset = fmaf(-(C::BASE + C::ZERO), y.scale[s], y.minus[s]);
#pragma unroll
                for (int j = 0; j < 4; j++)
                        v[j] = fmaf(code_float<C>(y.code[s], j), y.scale[s], offset);
        }
}

#endif
