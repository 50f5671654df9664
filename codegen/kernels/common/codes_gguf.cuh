/* codes_gguf.cuh: classes of stored_codes.cuh for GGUF's blocks of 32 and 256 values.  Bytes lie
 * as in ggml-common.h; block_decode.h decodes the same blocks to floats. */
#ifndef TGC_CODES_GGUF_CUH
#define TGC_CODES_GGUF_CUH

#include "codes_words.cuh"

/* ---- blocks of 32 ------------------------------------------------------------- */

template <int BYTES, int AT, int ZERO, bool WIDE = false>
struct CodesNibbles : CodesHeadless<WIDE, ZERO> {
        template <CodesOrder O>
        static __device__ __forceinline__ RawWords fetch(const unsigned char *b, int c, int t)
        {
                return raw_nibbles<O, 2>(b + c * BYTES + AT, t);
        }
};

struct Codes_q4_0 : CodesNibbles<18, 2, 8> {
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int)
        {
                codes_words(y, r);
                codes_scale(y, f16_at(b + c * 18));
        }
};

struct Codes_q4_1 : CodesNibbles<20, 4, 0> {
        static constexpr bool MINIMA = true;
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int)
        {
                codes_words(y, r);
                codes_scale(y, f16_at(b + c * 20), f16_at(b + c * 20 + 2));
        }
};

struct Codes_q5_0 : CodesNibbles<22, 6, 16> {
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int t)
        {
                const float d = f16_at(b + c * 22);
                unsigned h[2];
                bits_of_32<O>(h, u32_even(b + c * 22 + 2), t);
                y.code[0] = r.w[0] | h[0] << 4, y.code[1] = r.w[1] | h[1] << 4;
                codes_scale(y, d);
        }
};

struct Codes_q5_1 : CodesNibbles<24, 8, 0> {
        static constexpr bool MINIMA = true;
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int t)
        {
                unsigned h[2];
                bits_of_32<O>(h, u32_even(b + c * 24 + 4), t);
                y.code[0] = r.w[0] | h[0] << 4, y.code[1] = r.w[1] | h[1] << 4;
                codes_scale(y, f16_at(b + c * 24), f16_at(b + c * 24 + 2));
        }
};

/* Code = value + 128. */
struct Codes_q8_0 : CodesHeadless<true, 128> {
        template <CodesOrder O>
        static __device__ __forceinline__ RawWords fetch(const unsigned char *b, int c, int t)
        {
                return raw_bytes<O, 2>(b + c * 34 + 2, t);
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int)
        {
                const float d = f16_at(b + c * 34);
                codes_signed(y, r);
                codes_scale(y, d);
        }
};

/* ---- blocks of 256 ------------------------------------------------------------ */

struct TwoFloats {
        float d, min;
};

struct Codes_q2_k : CodesBase<false, 4, 0> {
        static constexpr bool HALVES = true, MINIMA = true;
        typedef TwoFloats Head;
        static __device__ __forceinline__ Head head(const unsigned char *b)
        {
                return { f16_at(b + 80), f16_at(b + 82) };
        }
        template <CodesOrder O>
        static __device__ __forceinline__ RawWords fetch(const unsigned char *b, int c, int t)
        {
                return raw_bytes<O, 4>(b + 16 + c / 4 * 32, t);
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const RawWords &r,
                                                     const unsigned char *b, int c, int t)
        {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const unsigned s = b[2 * c + half_of_chunk<O>(i, t)];
                        const float d = h.d * (float)(s & 15);
                        y.code[i] = r.w[i] >> c % 4 * 2 & 0x03030303u;
                        codes_scale_word(y, i, d, -h.min * (float)(s >> 4));
                }
        }
};

/* Bit c of byte i of the first 32 bytes is the third bit of value i of chunk c. */
struct Codes_q3_k : CodesHalves<108, 4, 4> {
        template <CodesOrder O>
        static __device__ __forceinline__ RawWords fetch(const unsigned char *b, int c, int t)
        {
                return raw_bytes<O, 2>(b + 32 + c / 4 * 32, t);
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const RawWords &r,
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
                        codes_scale_word(y, i, d);
                }
        }
};

/* The block's eight 6-bit scales and minima, a byte each; d and -dmin; and -BASE times each, which
 * cancels code_float's BASE. */
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

/* Nibbles from byte AT on; chunks 2i and 2i + 1 are the low and high nibbles of the same 32
 * bytes. */
template <int AT>
struct CodesK : CodesBase<false, 2, 0> {
        static constexpr bool MINIMA = true;
        typedef HeadK Head;
        static __device__ __forceinline__ Head head(const unsigned char *b)
        {
                return head_k<CodesK>(b);
        }
        template <CodesOrder O>
        static __device__ __forceinline__ RawWords fetch(const unsigned char *b, int c, int t)
        {
                return raw_bytes<O, 4>(b + AT + c / 2 * 32, t);
        }
};

struct Codes_q4_k : CodesK<16> {
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const RawWords &r,
                                                     const unsigned char *, int c, int)
        {
#pragma unroll
                for (int i = 0; i < 2; i++)
                        y.code[i] = r.w[i] >> c % 2 * 4 & 0x0f0f0f0fu;
                codes_scale_k<Codes_q4_k>(y, h, c);
        }
};

struct Codes_q5_k : CodesK<48> {
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const RawWords &r,
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

/* Each half (128 values) has 64 bytes of nibbles: chunks 0, 1 the low ones, 2, 3 the high ones;
 * and 32 bytes of two more bits, 2 per chunk. */
struct Codes_q6_k : CodesHalves<208, 1, 32> {
        template <CodesOrder O>
        static __device__ __forceinline__ RawWords fetch(const unsigned char *b, int c, int t)
        {
                const int part = c % 4;
                unsigned high[2];
                RawWords r;
                bytes_of_32<O, 2>(r.w, b + c / 4 * 64 + part % 2 * 32, t);
                bytes_of_32<O, 2>(high, b + 128 + c / 4 * 32, t);
#pragma unroll
                for (int i = 0; i < 2; i++)
                        r.w[i] = (r.w[i] >> part / 2 * 4 & 0x0f0f0f0fu) |
                                 (high[i] >> part * 2 & 0x03030303u) << 4;
                return r;
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const RawWords &r,
                                                     const unsigned char *b, int c, int t)
        {
                const signed char *scale = (const signed char *)b + 192 + 2 * c;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        y.code[i] = r.w[i];
                        codes_scale_word(y, i, h.d * (float)scale[half_of_chunk<O>(i, t)]);
                }
        }
};

/* ---- nibbles that index a table; code = value + 128 (IQ4), value + 12 (E2M1) --------- */

TGC_DEV void codes_table(Codes &y, const unsigned (&w)[2], const unsigned (&table)[4])
{
        y.code[0] = table_bytes(table_places(w[0]), table);
        y.code[1] = table_bytes(table_places(w[1]), table);
}
TGC_DEV void codes_iq4(Codes &y, const unsigned (&w)[2])
{
        /* -127 -104 -83 -65  -49 -35 -22 -10  1 13 25 38  53 69 89 113 */
        const unsigned table[4] = { 0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u };
        codes_table(y, w, table);
}
TGC_DEV void codes_e2m1(Codes &y, const unsigned (&w)[2])
{
        /* 0 1 2 3  4 6 8 12  0 -1 -2 -3  -4 -6 -8 -12 */
        const unsigned table[4] = { 0x0f0e0d0cu, 0x18141210u, 0x090a0b0cu, 0x00040608u };
        codes_table(y, w, table);
}

template <int BYTES, int AT>
struct CodesTable : CodesNibbles<BYTES, AT, 128, true> {
};

struct Codes_iq4_nl : CodesTable<18, 2> {
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int)
        {
                const float d = f16_at(b + c * 18);
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
                return { f16_at(b), u16_even(b + 2), u32_even(b + 4) };
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const Head &h, const RawWords &r,
                                                     const unsigned char *, int c, int)
        {
                const int scale = (int)((h.low >> 4 * c & 15) | (h.high >> 2 * c & 3) << 4) - 32;
                const float d = h.d * (float)scale;
                codes_iq4(y, r.w);
                codes_scale(y, d);
        }
};

/* Blocks of 17 bytes: addresses may be odd. */
struct Codes_mxfp4 : CodesHeadless<false, 12> {
        template <CodesOrder O>
        static __device__ __forceinline__ RawWords fetch(const unsigned char *b, int c, int t)
        {
                const unsigned char *q = b + c * 17 + 1;
                RawWords r;
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
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int)
        {
                const unsigned e = b[c * 17];
                const float d = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
                codes_e2m1(y, r.w);
                codes_scale(y, d);
        }
};

/* Four parts of 16 values, each with an E4M3 scale and 8 bytes, low nibbles first. */
struct Codes_nvfp4 : CodesHeadless<false, 12> {
        static constexpr bool HALVES = true;
        template <CodesOrder O>
        static __device__ __forceinline__ RawWords fetch(const unsigned char *b, int c, int t)
        {
                const unsigned char *q = b + c / 2 * 36 + 4 + c % 2 * 16;
                RawWords r;
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
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
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
                        codes_scale_word(y, i, d);
                }
        }
};

#endif
