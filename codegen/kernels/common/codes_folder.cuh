/* codes_folder.cuh: reads the codes of blocks that quantised folders become
 * (runtime/weights/packed_blocks.c): a scale in float32, then nibbles or bytes.  Codes_NAME<VALUES,
 * BYTES> follows stored_codes.cuh, for blocks of any multiple of 32 values. */
#ifndef TGC_CODES_FOLDER_CUH
#define TGC_CODES_FOLDER_CUH

#include "codes_words.cuh"
#include "e4m3.cuh"

/* Of blocks of any number of values: where chunk c lies. */
template <int VALUES, int BYTES>
TGC_DEV const unsigned char *block_of_chunk(const unsigned char *b, int c)
{
        return b + c / (VALUES / 32) * BYTES;
}

/* The zero point is in the scale's last byte. */
template <int VALUES, int BYTES>
struct Codes_i4 : CodesHeadless<false, 0> {
        template <CodesOrder O>
        static __device__ __forceinline__ RawWords fetch(const unsigned char *b, int c, int t)
        {
                return raw_nibbles<O>(block_of_chunk<VALUES, BYTES>(b, c) + 4 +
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
        }
};

/* Bytes; of bitsandbytes a scale is of 127 steps. */
template <int VALUES, int BYTES, bool SCB>
struct Codes_i8 : CodesHeadless<true, 128> {
        static constexpr bool LONG = true;
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

/* ---- values of a table of float32, and of 8 bits -------------- */

/* Bytes or nibbles as Bits has them, which value() looks up. */
template <class Bits, int VALUES, int BYTES>
struct CodesLookup : Bits {
        static constexpr bool VALUE = true;
        template <CodesOrder O>
        static __device__ __forceinline__ void codes(Codes &y, const NoHead &, const RawWords &r,
                                                     const unsigned char *b, int c, int)
        {
                codes_words(y, r);
                codes_scale(y, f32_at(block_of_chunk<VALUES, BYTES>(b, c)));
        }
};

template <int VALUES, int BYTES, bool NF4>
struct Codes_floats : CodesLookup<Codes_i4<VALUES, BYTES>, VALUES, BYTES> {
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
struct Codes_f8 : CodesLookup<Codes_i8<VALUES, BYTES, false>, VALUES, BYTES> {
        static constexpr bool PAIRS = true;
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

#endif
