/* stored_codes.cuh: block-quantised weights as integer codes plus scales, for tensor core
 * fragments.
 *
 * A fragment gives lane t of a quad 8 values of a chunk of 32 in each of its rows.  chunk_NAME
 * (block_decode.h) decodes all 32 of a row; here a lane decodes its own 8 alone, four codes per
 * word.
 *
 *      typedef CodesOf<Stored_NAME>::Type C
 *      C::Head h = C::head(b)          what the 256 values (or one smaller block) at b share
 *      C::Raw r = C::fetch<O>(b, c, t) loads lane t's words of chunk c (0..7) of the 256 values at
 *                                      b; the same words for C::SHARE neighbouring chunks
 *      C::codes<O>(y, h, r, b, c, t)   8 codes, with scale and minus per word (four codes):
 *                                      value = scale * (code - C::ZERO) + minus
 *      code_float<C>(word, j)          code j of a word, plus C::BASE
 *      codes_values<C>(v, y, i)        the four values of word i
 *
 * Which 8 values lane t has, by the order O:
 *
 *      CODES_RUN       8t .. 8t+7; a word is four neighbours
 *      CODES_PAIRS     2t, 2t+1, 2t+8, 2t+9, then the same + 16: the k of mma_16816
 *
 * The bytes may lie in shared memory, at even addresses. */
#ifndef TGC_STORED_CODES_CUH
#define TGC_STORED_CODES_CUH

#include "codes_folder.cuh"
#include "codes_gguf.cuh"

/* Maps a decoder to its class of codes. */
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
