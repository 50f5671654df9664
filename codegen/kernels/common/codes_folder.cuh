/* codes_folder.cuh: classes of stored_codes.cuh for the blocks that quantised folders become
 * (runtime/weights/packed_blocks.c): a float32 scale, then nibbles or bytes, in blocks of any
 * multiple of 32 values. */
#ifndef TGC_CODES_FOLDER_CUH
#define TGC_CODES_FOLDER_CUH

#include "codes_words.cuh"
#include "e4m3.cuh"

/* The block that holds chunk c. */
template <int VALUES, int BYTES>
TGC_DEV const unsigned char *block_of_chunk(const unsigned char *b, int c)
{
        return b + c / (VALUES / 32) * BYTES;
}

/* The last byte of the float32 scale is the zero point. */
template <int VALUES, int BYTES>
struct Codes_i4 : CodesHeadless<false, 0> {
        static constexpr bool ZEROS = true;
        static constexpr int CHAIN = VALUES / 32;
        template <CodesOrder O>
        static __device__ __forceinline__ RawWords fetch(const unsigned char *b, int c, int t)
        {
                return raw_nibbles<O, 4>(block_of_chunk<VALUES, BYTES>(b, c) + 4 +
                                                 c % (VALUES / 32) * 16,
                                         t);
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int)
        {
                const unsigned u = u32_aligned(block_of_chunk<VALUES, BYTES>(b, c));
                const float d = __uint_as_float(u & ~255u);
                codes_words(y, r);
                codes_scale(y, d, -d * (float)(u & 255));
                y.zero = (float)(u & 255);
        }
};

/* Signed bytes.  SCB (bitsandbytes): the scale is that of 127 steps. */
template <int VALUES, int BYTES, bool SCB>
struct Codes_i8 : CodesHeadless<true, 128> {
        static constexpr bool LONG = true;
        static constexpr int CHAIN = VALUES / 32;
        template <CodesOrder O>
        static __device__ __forceinline__ RawWords fetch(const unsigned char *b, int c, int t)
        {
                return raw_bytes<O, 4>(block_of_chunk<VALUES, BYTES>(b, c) + 4 +
                                               c % (VALUES / 32) * 32,
                                       t);
        }
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int)
        {
                const float d = f32_at(block_of_chunk<VALUES, BYTES>(b, c));
                codes_signed(y, r);
                codes_scale(y, SCB ? d * (1 / 127.f) : d);
        }
};

/* ---- table lookups (NF4, FP4) and E4M3: value() and pairs() -------------- */

/* Takes nibbles or bytes from Bits; derived classes convert them in value() and pairs(). */
template <class Bits, int VALUES, int BYTES>
struct CodesLookup : Bits {
        static constexpr bool VALUE = true, ZEROS = false;
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int)
        {
                codes_words(y, r);
                codes_scale(y, f32_at(block_of_chunk<VALUES, BYTES>(b, c)));
        }
};

/* Rounds a float's bits to T's bits; for f16 only normal numbers and 0. */
template <class T>
struct BitsAs {
        static __device__ __forceinline__ constexpr unsigned of(unsigned u) { return u; }
};
template <>
struct BitsAs<bf16> {
        static __device__ __forceinline__ constexpr unsigned of(unsigned u)
        {
                return (u + 0x7fffu + (u >> 16 & 1)) >> 16;
        }
};
template <>
struct BitsAs<f16> {
        static __device__ __forceinline__ constexpr unsigned of(unsigned u)
        {
                const unsigned size = u & 0x7fffffffu;
                return (u >> 16 & 0x8000u) |
                       (size ? (size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13 : 0);
        }
};

/* Byte `byte` of T's bits of entries i .. i+3 of nf4_values or fp4_values (block_decode.h). */
template <class T, bool NF4>
TGC_DEV constexpr unsigned table_word(int byte, int i)
{
        constexpr unsigned NF[16] = { 0xbf800000u, 0xbf3239b1u, 0xbf066b30u, 0xbeca32a0u,
                                      0xbe91a24du, 0xbe3d353fu, 0xbdba7871u, 0x00000000u,
                                      0x3da2faffu, 0x3e24cae3u, 0x3e7c04ddu, 0x3ead033au,
                                      0x3ee1a4b8u, 0x3f1007abu, 0x3f3913b3u, 0x3f800000u },
                           FP[16] = { 0x00000000u, 0x3baaaaabu, 0x3f2aaaabu, 0x3f800000u,
                                      0x3eaaaaabu, 0x3f000000u, 0x3e2aaaabu, 0x3e800000u,
                                      0x00000000u, 0xbbaaaaabu, 0xbf2aaaabu, 0xbf800000u,
                                      0xbeaaaaabu, 0xbf000000u, 0xbe2aaaabu, 0xbe800000u };
        unsigned word = 0;
        for (int j = 0; j < 4; j++)
                word |= (BitsAs<T>::of(NF4 ? NF[i + j] : FP[i + j]) >> 8 * byte & 0xff) << 8 * j;
        return word;
}

/* Byte BYTE of the four table entries that `at` selects. */
template <class T, bool NF4, int BYTE>
TGC_DEV unsigned float_bytes(const TablePlaces &at)
{
        constexpr unsigned A = table_word<T, NF4>(BYTE, 0), B = table_word<T, NF4>(BYTE, 4),
                           C = table_word<T, NF4>(BYTE, 8), D = table_word<T, NF4>(BYTE, 12);
        const unsigned table[4] = { A, B, C, D };
        return table_bytes(at, table);
}

template <int VALUES, int BYTES, bool NF4>
struct Codes_floats : CodesLookup<Codes_i4<VALUES, BYTES>, VALUES, BYTES> {
        static __device__ __forceinline__ void value(float (&v)[4], unsigned word)
        {
                const TablePlaces at = table_places(word);
                unsigned low[2], high[2];
                table_pairs(low, float_bytes<float, NF4, 0>(at), float_bytes<float, NF4, 1>(at));
                table_pairs(high, float_bytes<float, NF4, 2>(at), float_bytes<float, NF4, 3>(at));
#pragma unroll
                for (int j = 0; j < 4; j++)
                        v[j] = __uint_as_float(
                                __byte_perm(low[j / 2], high[j / 2], j % 2 ? 0x7632 : 0x5410));
        }
        template <class T>
        static __device__ __forceinline__ void pairs(unsigned (&w)[2][2], const Codes &y)
        {
#pragma unroll
                for (int s = 0; s < 2; s++) {
                        const TablePlaces at = table_places(y.code[s]);
                        table_pairs(w[s], float_bytes<T, NF4, 0>(at), float_bytes<T, NF4, 1>(at));
                }
        }
};

/* E4M3; codes 0x7f and 0xff are NaN. */
template <int VALUES, int BYTES>
struct Codes_f8 : CodesLookup<Codes_i8<VALUES, BYTES, false>, VALUES, BYTES> {
        static __device__ __forceinline__ void value(float (&v)[4], unsigned word)
        {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                        const unsigned u = word >> 8 * j & 0x7f;
                        /* read as an f16, E4M3 is 2^8 too small, subnormals too */
                        const float x = u == 0x7f ? __uint_as_float(0x7fc00000u)
                                                  : f16_bits(u << 7) * 256.f;
                        v[j] = word >> 8 * j & 0x80 ? -x : x;
                }
        }
        /* One NaN makes all eight NaN; the sums of that row are NaN in any case. */
        template <class T>
        static __device__ __forceinline__ void pairs(unsigned (&w)[2][2], const Codes &y)
        {
                const unsigned up = e4m3_nan(y.code[0]) | e4m3_nan(y.code[1])
                                            ? 0x7fff7fffu
                                            : pack2<T>(E4m3<T>::UP, E4m3<T>::UP);
#pragma unroll
                for (int i = 0; i < 4; i++)
                        w[i / 2][i % 2] = fma2<T>(e4m3_pair<T>(y.code[i / 2], i % 2 * 2), up,
                                                  0x80008000u);
        }
};

#endif
