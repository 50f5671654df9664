/* cpu_stored_x86.h: dot products with block-quantised weights by AVX2, AVX-512 and VNNI, for the
 * most common types; other types use cpu_stored.h's decoders.
 *
 * A chunk of 32 weights is 32 bytes q, two scales and an addend: value j is q[j] d0 + m (j < 16)
 * or q[j] d1 + m.  Its dot product with x is d0 sum(q x) + d1 sum(q x) + m sum(x): scales apply
 * once per chunk, and m multiplies sums of x that were computed before.
 *
 *      float32 (default)       q is converted; results equal the decoder's except for the rounding
 *                              of sums
 *      TGC_ACT_INT8            x is rounded to 8 bits too, in groups of 32 (largest magnitude 127),
 *                              and sums of 32 are integers, as in llama.cpp */
#ifndef TGC_CPU_STORED_X86_H
#define TGC_CPU_STORED_X86_H

#include "cpu_tgc.h"

typedef struct Quants {
        __m256i q;
        float d0, d1, m;
} Quants;

/* half_at in one instruction. */
TGC_INLINE float half_of(const unsigned char *b)
{
#if defined __F16C__
        uint16_t h;
        memcpy(&h, b, 2);
        return _cvtsh_ss(h);
#else
        return half_at(b);
#endif
}

TGC_INLINE __m256i low_nibbles(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }

/* The low nibbles of 16 bytes, then the high ones. */
TGC_INLINE __m256i both_nibbles(const unsigned char *b)
{
        const __m128i raw = _mm_loadu_si128((const __m128i *)(const void *)b);
        return low_nibbles(_mm256_set_m128i(_mm_srli_epi16(raw, 4), raw));
}

TGC_INLINE __m256i bytes32(const unsigned char *b)
{
        return _mm256_loadu_si256((const __m256i *)(const void *)b);
}

TGC_INLINE Quants quants_q4_0(const unsigned char *b, int c)
{
        const float d = half_of(b);
        (void)c;
        return (Quants) { _mm256_sub_epi8(both_nibbles(b + 2), _mm256_set1_epi8(8)), d, d, 0.f };
}

TGC_INLINE Quants quants_q4_1(const unsigned char *b, int c)
{
        const float d = half_of(b);
        (void)c;
        return (Quants) { both_nibbles(b + 4), d, d, half_of(b + 2) };
}

TGC_INLINE Quants quants_q8_0(const unsigned char *b, int c)
{
        const float d = half_of(b);
        (void)c;
        return (Quants) { bytes32(b + 2), d, d, 0.f };
}

TGC_INLINE Quants quants_iq4_nl(const unsigned char *b, int c)
{
        const float d = half_of(b);
        const __m256i table = _mm256_broadcastsi128_si256(
                _mm_loadu_si128((const __m128i *)(const void *)iq4_values));
        (void)c;
        return (Quants) { _mm256_shuffle_epi8(table, both_nibbles(b + 2)), d, d, 0.f };
}

TGC_INLINE Quants quants_iq4_xs(const unsigned char *b, int c)
{
        const unsigned high = (unsigned)(b[2] | b[3] << 8);
        const int low = b[4 + c / 2] >> c % 2 * 4 & 15,
                  scale = (low | (int)(high >> 2 * c & 3) << 4) - 32;
        const float d = half_of(b) * (float)scale;
        const __m256i table = _mm256_broadcastsi128_si256(
                _mm_loadu_si128((const __m128i *)(const void *)iq4_values));
        return (Quants) { _mm256_shuffle_epi8(table, both_nibbles(b + 8 + 16 * c)), d, d, 0.f };
}

TGC_INLINE Quants quants_mxfp4(const unsigned char *b, int c)
{
        const float d = bits_float(b[0] < 2 ? 0x00200000u << b[0] : (unsigned)(b[0] - 1) << 23);
        const __m256i table = _mm256_broadcastsi128_si256(
                _mm_loadu_si128((const __m128i *)(const void *)e2m1_values));
        (void)c;
        return (Quants) { _mm256_shuffle_epi8(table, both_nibbles(b + 1)), d, d, 0.f };
}

/* 16 in byte j where bit j of h is set. */
TGC_INLINE __m256i fifth_bits(unsigned h)
{
        const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)h),
                                                  _mm256_setr_epi64x(0, 0x0101010101010101,
                                                                     0x0202020202020202,
                                                                     0x0303030303030303)),
                      bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
        return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit),
                                _mm256_set1_epi8(16));
}

TGC_INLINE Quants quants_q5_0(const unsigned char *b, int c)
{
        const float d = half_of(b);
        (void)c;
        return (Quants) { _mm256_sub_epi8(_mm256_or_si256(both_nibbles(b + 6),
                                                          fifth_bits(u32_at(b + 2))),
                                          _mm256_set1_epi8(16)),
                          d, d, 0.f };
}

TGC_INLINE Quants quants_q5_1(const unsigned char *b, int c)
{
        const float d = half_of(b);
        (void)c;
        return (Quants) { _mm256_or_si256(both_nibbles(b + 8), fifth_bits(u32_at(b + 4))), d, d,
                          half_of(b + 2) };
}

TGC_INLINE Quants quants_q4_k(const unsigned char *b, int c)
{
        int scale, min;
        k_scale(b + 4, c, &scale, &min);
        const float d = half_of(b) * (float)scale, m = half_of(b + 2) * (float)min;
        const __m256i raw = bytes32(b + 16 + c / 2 * 32);
        return (Quants) { low_nibbles(c % 2 ? _mm256_srli_epi16(raw, 4) : raw), d, d, -m };
}

TGC_INLINE Quants quants_q5_k(const unsigned char *b, int c)
{
        int scale, min;
        k_scale(b + 4, c, &scale, &min);
        const float d = half_of(b) * (float)scale, m = half_of(b + 2) * (float)min;
        const __m256i raw = bytes32(b + 48 + c / 2 * 32), bit = _mm256_set1_epi8((char)(1 << c)),
                      high = _mm256_cmpeq_epi8(_mm256_and_si256(bytes32(b + 16), bit), bit);
        return (Quants) { _mm256_or_si256(low_nibbles(c % 2 ? _mm256_srli_epi16(raw, 4) : raw),
                                          _mm256_and_si256(high, _mm256_set1_epi8(16))),
                          d, d, -m };
}

TGC_INLINE Quants quants_q6_k(const unsigned char *b, int c)
{
        const signed char *scale = (const signed char *)b + 192 + 2 * c;
        const float d = half_of(b + 208);
        const int part = c % 4;
        const __m256i l = bytes32(b + c / 4 * 64 + part % 2 * 32),
                      h = bytes32(b + 128 + c / 4 * 32),
                      two = _mm256_and_si256(_mm256_srl_epi16(h, _mm_cvtsi32_si128(part * 2)),
                                             _mm256_set1_epi8(3)),
                      q = _mm256_or_si256(low_nibbles(part / 2 ? _mm256_srli_epi16(l, 4) : l),
                                          _mm256_slli_epi16(two, 4));
        return (Quants) { _mm256_sub_epi8(q, _mm256_set1_epi8(32)), d * (float)scale[0],
                          d * (float)scale[1], 0.f };
}

TGC_INLINE Quants quants_i4(const unsigned char *b, int c)
{
        const unsigned u = u32_at(b);
        const float d = bits_float(u & ~255u);
        return (Quants) { _mm256_sub_epi8(both_nibbles(b + 4 + 16 * c),
                                          _mm256_set1_epi8((char)(u & 255))),
                          d, d, 0.f };
}

TGC_INLINE Quants quants_i8(const unsigned char *b, int c)
{
        const float d = bits_float(u32_at(b));
        return (Quants) { bytes32(b + 4 + 32 * c), d, d, 0.f };
}

TGC_INLINE Quants quants_scb(const unsigned char *b, int c)
{
        const float d = bits_float(u32_at(b)) * (1 / 127.f);
        return (Quants) { bytes32(b + 4 + 32 * c), d, d, 0.f };
}

/* Values that are not integers, or a scale per 16 values: left to the decoders. */
TGC_INLINE Quants quants_none(const unsigned char *b, int c)
{
        (void)b, (void)c;
        return (Quants) { _mm256_setzero_si256(), 0.f, 0.f, 0.f };
}
/* Per decoder: does it have quants_?  An addend?  Two scales? */
#define QUANTS(decode, min, two) \
        enum { QUANT_##decode = 1, QUANT_MIN_##decode = min, QUANT_TWO_##decode = two };
#define QUANTS_NONE(decode)                                              \
        TGC_INLINE Quants quants_##decode(const unsigned char *b, int c) \
        {                                                                \
                return quants_none(b, c);                                \
        }                                                                \
        enum { QUANT_##decode = 0, QUANT_MIN_##decode = 0, QUANT_TWO_##decode = 0 };
QUANTS(q4_0, 0, 0)
QUANTS(q4_1, 1, 0)
QUANTS(q5_0, 0, 0)
QUANTS(q5_1, 1, 0)
QUANTS(q8_0, 0, 0)
QUANTS(iq4_nl, 0, 0)
QUANTS(mxfp4, 0, 0)
QUANTS(q4_k, 1, 0)
QUANTS(q5_k, 1, 0)
QUANTS(q6_k, 0, 1)
QUANTS(iq4_xs, 0, 0)
QUANTS(i4, 0, 0)
QUANTS(i8, 0, 0)
QUANTS(scb, 0, 0)
QUANTS_NONE(q2_k)
QUANTS_NONE(q3_k)
QUANTS_NONE(nvfp4)
QUANTS_NONE(nf4)
QUANTS_NONE(fp4)
QUANTS_NONE(f8)
#undef QUANTS
#undef QUANTS_NONE

#if defined TGC_ACT_INT8 && defined __AVX512VNNI__ && defined __AVX512BW__ && TGC_VEC == 16
#define TGC_VNNI_ROW 1
#endif

/* x prepared, in scratch: sums of 32, and with TGC_ACT_INT8 bytes and their scales. */
typedef struct QuantX {
        const float *x;
        float *sum, *scale;
        int8_t *q;
        float *pair;   /* TGC_VNNI_ROW: scale and sum per 32 */
        int32_t *less; /* TGC_VNNI_ROW: -128 times the sum of each four of q */
        float *eight;  /* TGC_VNNI_ROW: per eight chunks: scales, then sums */
} QuantX;

#ifdef TGC_VNNI_ROW
/* Rounds 32 values to 8 bits.  *scale is NaN if a value is NaN or infinite.  Magnitudes are
 * compared as integers, which orders infinities and NaN above all numbers. */
TGC_INLINE __m256i quant_32(const float *v, float *scale)
{
        const __m512 a = _mm512_loadu_ps(v), b = _mm512_loadu_ps(v + 16);
        const __m512i bits = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(a)),
                                              _mm512_castps_si512(_mm512_abs_ps(b)));
        const __m256i top8 = _mm256_max_epi32(_mm512_castsi512_si256(bits),
                                              _mm512_extracti64x4_epi64(bits, 1));
        const __m128i top4 = _mm_max_epi32(_mm256_castsi256_si128(top8),
                                           _mm256_extracti128_si256(top8, 1)),
                      top2 = _mm_max_epi32(top4, _mm_shuffle_epi32(top4, 0x4e)),
                      top = _mm_max_epi32(top2, _mm_shuffle_epi32(top2, 0xb1));
        const float most = _mm_cvtss_f32(_mm_castsi128_ps(top)),
                    up = most > 0.f ? 127.f / most : 0.f;
        const __m512 by = _mm512_set1_ps(up);
        *scale = most < INFINITY ? most * (1 / 127.f) : NAN;
        return _mm256_set_m128i(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, by))),
                                _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, by))));
}

TGC_INLINE void quant_chunk(QuantX to, long c)
{
        const __m256i q = quant_32(to.x + c * DECODE_CHUNK, to.scale + c),
                      four = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
        const __m128i two = _mm_add_epi32(_mm256_castsi256_si128(four),
                                          _mm256_extracti128_si256(four, 1)),
                      one = _mm_add_epi32(two, _mm_shuffle_epi32(two, 0x4e));
        const int sum = _mm_cvtsi128_si32(_mm_add_epi32(one, _mm_shuffle_epi32(one, 0xb1)));
        _mm256_storeu_si256((__m256i *)(void *)(to.q + c * DECODE_CHUNK), q);
        _mm256_storeu_si256((__m256i *)(void *)(to.less + c * (DECODE_CHUNK / 4)),
                            _mm256_slli_epi32(_mm256_sub_epi32(_mm256_setzero_si256(), four), 7));
        to.pair[2 * c] = to.scale[c];
        to.pair[2 * c + 1] = to.sum[c] = to.scale[c] * (float)sum;
        to.eight[c / 8 * 16 + c % 8] = to.scale[c];
        to.eight[c / 8 * 16 + 8 + c % 8] = to.sum[c];
}
#elif defined TGC_ACT_INT8
TGC_INLINE void quant_chunk(QuantX to, long c)
{
        const float *v = to.x + c * DECODE_CHUNK;
        float most = 0.f, some = 0.f; /* NaN if a value is NaN or infinite */
        int sum = 0;
        for (int j = 0; j < DECODE_CHUNK; j++) {
                most = fabsf(v[j]) > most ? fabsf(v[j]) : most;
                some += v[j] - v[j];
        }
        const float up = most > 0.f ? 127.f / most : 0.f;
        for (int j = 0; j < DECODE_CHUNK; j++) {
                const int k = (int)rintf(v[j] * up);
                to.q[c * DECODE_CHUNK + j] = (int8_t)k;
                sum += k;
        }
        to.scale[c] = most / 127.f + some;
        to.sum[c] = to.scale[c] * (float)sum;
}
#else
TGC_INLINE void quant_chunk(QuantX to, long c)
{
        Vec s = vec_all(0.f);
        for (int j = 0; j < DECODE_CHUNK; j += TGC_VEC)
                s += vec_load(to.x + c * DECODE_CHUNK + j);
        to.sum[c] = vec_sum(s);
}
#endif

/* The offsets of its parts in room. */
TGC_INLINE QuantX quant_parts(const float *x, long K, float *room)
{
        const long n = K / DECODE_CHUNK;
        return (QuantX) { x,
                          room,
                          room + n,
                          (int8_t *)(room + 2 * n),
                          room + 10 * n,
                          (int32_t *)(void *)(room + 12 * n),
                          room + 20 * n };
}

TGC_NOINLINE void quant_x(const float *x, long K, float *room)
{
        const QuantX to = quant_parts(x, K, room);
        for (long c = 0; c < K / DECODE_CHUNK; c++)
                quant_chunk(to, c);
}

#ifdef TGC_ACT_INT8
typedef __m256 QuantSum;
TGC_INLINE QuantSum quant_zero(void) { return _mm256_setzero_ps(); }
TGC_INLINE float quant_total(QuantSum s)
{
        const __m128 a = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)),
                     b = _mm_add_ps(a, _mm_movehl_ps(a, a));
        return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

/* Sums of 4 byte products; x takes w's sign, so that w is unsigned. */
TGC_INLINE __m256i dots_of_4(__m256i w, __m256i x)
{
        const __m256i size = _mm256_abs_epi8(w), by = _mm256_sign_epi8(x, w);
#if defined __AVX512VNNI__ && defined __AVX512VL__
        return _mm256_dpbusd_epi32(_mm256_setzero_si256(), size, by);
#else
        return _mm256_madd_epi16(_mm256_maddubs_epi16(size, by), _mm256_set1_epi16(1));
#endif
}

TGC_INLINE QuantSum quant_step(QuantSum s, Quants w, const QuantX *x, long c)
{
        const float d = x->scale[c];
        const __m256i xq = _mm256_loadu_si256(
                (const __m256i *)(const void *)(x->q + c * DECODE_CHUNK));
        const __m256 by = _mm256_set_m128(_mm_set1_ps(w.d1 * d), _mm_set1_ps(w.d0 * d));
        return _mm256_fmadd_ps(by, _mm256_cvtepi32_ps(dots_of_4(w.q, xq)), s);
}
#else
typedef Vec QuantSum;
TGC_INLINE QuantSum quant_zero(void) { return vec_all(0.f); }
TGC_INLINE float quant_total(QuantSum s) { return vec_sum(s); }

#if TGC_VEC == 16
TGC_INLINE QuantSum quant_step(QuantSum s, Quants w, const QuantX *x, long c)
{
        const float *v = x->x + c * DECODE_CHUNK;
        const Vec q0 = (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(w.q))),
                  q1 = (Vec)_mm512_cvtepi32_ps(
                          _mm512_cvtepi8_epi32(_mm256_extracti128_si256(w.q, 1)));
        return q1 * vec_load(v + 16) * w.d1 + (q0 * vec_load(v) * w.d0 + s);
}
#else
TGC_INLINE Vec quant_vec(__m128i q) { return (Vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)); }

TGC_INLINE QuantSum quant_step(QuantSum s, Quants w, const QuantX *x, long c)
{
        const float *v = x->x + c * DECODE_CHUNK;
        const __m128i a = _mm256_castsi256_si128(w.q), b = _mm256_extracti128_si256(w.q, 1);
        const Vec t = quant_vec(_mm_srli_si128(a, 8)) * vec_load(v + 8) +
                      quant_vec(a) * vec_load(v),
                  u = quant_vec(_mm_srli_si128(b, 8)) * vec_load(v + 24) +
                      quant_vec(b) * vec_load(v + 16);
        return u * w.d1 + (t * w.d0 + s);
}
#endif
#endif

/* quant_dots_TYPE: y[j] = sum_k x[k] w[j*ld ...] for types with QUANT_: rows of K values, `stride`
 * bytes apart, from `first` on; quant_x has prepared x.  Blocks are prefetched QUANT_AHEAD bytes
 * ahead: with the hardware prefetcher alone a core waits half of the time. */
enum { QUANT_AHEAD = 8192 };
TGC_INLINE void quant_ahead(const unsigned char *b, int bytes)
{
#pragma GCC unroll 4
        for (int a = 0; a < bytes; a += 64)
                TGC_PREFETCH_L2(b + QUANT_AHEAD + a);
}

#define X(name, values, bytes, decode)                                                       \
        TGC_NOINLINE void quant_dots_##name(const unsigned char *first, long stride, long N, \
                                            long K, const float *x, float *room, float *y)   \
        {                                                                                    \
                const QuantX to = quant_parts(x, K, room);                                   \
                for (long j = 0; j < N; j++) {                                               \
                        const unsigned char *b = first + j * stride;                         \
                        QuantSum s = quant_zero(), t = s; /* alternate: no add waits */      \
                        float m = 0.f;                                                       \
                        for (long c = 0; c < K / DECODE_CHUNK; b += (bytes)) {               \
                                quant_ahead(b, bytes);                                       \
                                _Pragma("GCC unroll 8") for (int i = 0;                      \
                                                             i < (values) / DECODE_CHUNK;    \
                                                             i++, c++)                       \
                                {                                                            \
                                        const Quants w = quants_##decode(b, i);              \
                                        const QuantSum next = quant_step(t, w, &to, c);      \
                                        t = s;                                               \
                                        s = next;                                            \
                                        if (QUANT_MIN_##decode)                              \
                                                m += w.m * to.sum[c];                        \
                                }                                                            \
                        }                                                                    \
                        y[j] = quant_total(s + t) + m;                                       \
                }                                                                            \
        }
TGC_STORED(X)
#undef X

#ifdef TGC_VNNI_ROW
#include "cpu_stored_vnni.h"
#define QUANT_OR(name, decode, arguments)     \
        if (VNNI_##decode)                    \
                vnni_dots_##decode arguments; \
        else if (QUANT_##decode)              \
                quant_dots_##name arguments;  \
        else
#else
#define QUANT_OR(name, decode, arguments)    \
        if (QUANT_##decode)                  \
                quant_dots_##name arguments; \
        else
#endif

#endif
