/* cpu_stored_vnni.h: dot products with one row by AVX-512 VNNI (TGC_ACT_INT8), 64 weights at a
 * time, for the most common types.  cpu_stored_x86.h has the other types and defines the result.
 *
 * vpdpbusd multiplies unsigned by signed bytes.  Weights that are never negative are used
 * unchanged.  Others get 8, 32 or 128 added, and their sums start at minus that number times the
 * sum of x (QuantX.less).  A lane sums four products, so eight lanes are a chunk of 32. */
#ifndef TGC_CPU_STORED_VNNI_H
#define TGC_CPU_STORED_VNNI_H

typedef struct VnniSum {
        __m512 s;
        __m256 m; /* what the addends contribute */
        __m512 k; /* the same for Q4_K and Q5_K, in the upper half */
} VnniSum;

TGC_INLINE __m512i vnni_halves(__m256i low, __m256i high)
{
        return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

TGC_INLINE __m256i vnni_twice(const unsigned char *b)
{
        return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)b));
}

/* Low nibbles in halves whose `shift` is 0, high ones where it is 4. */
TGC_INLINE __m512i vnni_nibbles(__m512i raw, __m512i shift)
{
        return _mm512_and_si512(_mm512_srlv_epi64(raw, shift), _mm512_set1_epi8(15));
}

/* s + by * dot(w, x) for chunks c and c + 1 of x.  first: start of the sums of four. */
TGC_INLINE __m512 vnni_dot(__m512 s, __m512i first, __m512i w, const QuantX *x, long c, __m512 by)
{
        const __m512i q = _mm512_loadu_si512(x->q + c * DECODE_CHUNK);
        return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_dpbusd_epi32(first, w, q)), by, s);
}

/* -128 times the sums of four values. */
TGC_INLINE __m512i vnni_less(const QuantX *x, long c)
{
        return _mm512_loadu_si512(x->less + c * (DECODE_CHUNK / 4));
}

/* Lane i of v for the first chunk, lane j for the second. */
TGC_INLINE __m512 vnni_pair(__m128 v, int i, int j)
{
        const __m512i at = vnni_halves(_mm256_set1_epi32(i), _mm256_set1_epi32(j));
        return _mm512_permutexvar_ps(at, _mm512_castps128_ps512(v));
}

/* Scales of two blocks of 32, times those of x. */
TGC_INLINE __m512 vnni_scales(const unsigned char *b, int bytes, const QuantX *x, long c)
{
        const uint32_t d0 = (uint32_t)(b[0] | b[1] << 8),
                       d1 = (uint32_t)(b[bytes] | b[bytes + 1] << 8);
        const __m128 d = _mm_cvtph_ps(_mm_cvtsi32_si128((int)(d0 | d1 << 16))),
                     dx = _mm_castsi128_ps(
                             _mm_loadl_epi64((const __m128i *)(const void *)(x->scale + c)));
        return vnni_pair(_mm_mul_ps(d, dx), 0, 1);
}

/* Two chunks, types with blocks of 32. */
TGC_INLINE VnniSum vnni_q8_0(VnniSum t, const unsigned char *b, const QuantX *x, long c)
{
        const __m512i w = _mm512_xor_si512(vnni_halves(bytes32(b + 2), bytes32(b + 36)),
                                           _mm512_set1_epi8((char)0x80));
        t.s = vnni_dot(t.s, vnni_less(x, c), w, x, c, vnni_scales(b, 34, x, c));
        return t;
}

TGC_INLINE __m512i vnni_shift_16(void) { return _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4); }

TGC_INLINE VnniSum vnni_q4_0(VnniSum t, const unsigned char *b, const QuantX *x, long c)
{
        const __m512i w = vnni_nibbles(vnni_halves(vnni_twice(b + 2), vnni_twice(b + 20)),
                                       vnni_shift_16());
        t.s = vnni_dot(t.s, _mm512_srai_epi32(vnni_less(x, c), 4), w, x, c,
                       vnni_scales(b, 18, x, c));
        return t;
}

TGC_INLINE VnniSum vnni_q4_1(VnniSum t, const unsigned char *b, const QuantX *x, long c)
{
        const __m512i w = vnni_nibbles(vnni_halves(vnni_twice(b + 4), vnni_twice(b + 24)),
                                       vnni_shift_16());
        const __m128 dm = _mm_cvtph_ps(_mm_set_epi32(0, 0, (int)u32_at(b + 20), (int)u32_at(b))),
                     by = _mm_loadu_ps(x->pair + 2 * c), p = _mm_mul_ps(dm, by);
        t.s = vnni_dot(t.s, _mm512_setzero_si512(), w, x, c, vnni_pair(p, 0, 2));
        t.m = _mm256_add_ps(t.m, _mm256_zextps128_ps256(_mm_movehdup_ps(p))); /* twice each */
        return t;
}

/* Q4_K and Q5_K: eight chunks' scales times x's, then addends times x's sums.  Both have 6 bits;
 * from the fifth chunk on the low four are in the last bytes, the high two above the first eight
 * bytes' own. */
TGC_INLINE __m512 vnni_k_scales(const unsigned char *b, const QuantX *x, long c)
{
        const __m128i raw = _mm_loadu_si128(
                              (const __m128i *)(const void *)b), /* d, dmin, 12 bytes */
                low = _mm_shuffle_epi8(raw, _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11,
                                                          12, 13, 14, 15)),
                      high = _mm_shuffle_epi8(raw, _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1,
                                                                 -1, -1, 8, 9, 10, 11)),
                      six = _mm_or_si128(
                              _mm_and_si128(_mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 0, 4)),
                                            _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f,
                                                           0x0f0f0f0f)),
                              _mm_and_si128(_mm_srli_epi32(high, 2), _mm_set1_epi8(0x30)));
        const __m512i half = vnni_halves(_mm256_setzero_si256(), _mm256_set1_epi32(1));
        const __m512 d = _mm512_permutexvar_ps(half, _mm512_castps128_ps512(_mm_cvtph_ps(raw)));
        return _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(six)), d),
                             _mm512_loadu_ps(x->eight + 2 * c));
}

/* Eight chunks. */
TGC_INLINE VnniSum vnni_k(VnniSum t, int fifth, const unsigned char *b, const QuantX *x, long c)
{
        const __m512 d = vnni_k_scales(b, x, c);
        const __m512i shift = vnni_halves(_mm256_setzero_si256(), _mm256_set1_epi64x(4)),
                      high = _mm512_broadcast_i64x4(bytes32(b + 16)),
                      first = vnni_halves(_mm256_setzero_si256(), _mm256_set1_epi32(1));
        t.k = _mm512_sub_ps(t.k, d); /* only the upper half is used */
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
                const unsigned char *q = b + (fifth ? 48 : 16) + 32 * i;
                __m512i w = vnni_nibbles(_mm512_broadcast_i64x4(bytes32(q)), shift);
                if (fifth) {
                        const __m512i bit = vnni_halves(_mm256_set1_epi8((char)(1 << 2 * i)),
                                                        _mm256_set1_epi8((char)(2 << 2 * i)));
                        w = _mm512_mask_add_epi8(w, _mm512_test_epi8_mask(high, bit), w,
                                                 _mm512_set1_epi8(16));
                }
                t.s = vnni_dot(t.s, _mm512_setzero_si512(), w, x, c + 2 * i,
                               _mm512_permutexvar_ps(_mm512_add_epi32(first,
                                                                      _mm512_set1_epi32(2 * i)),
                                                     d));
        }
        return t;
}

TGC_INLINE VnniSum vnni_q4_k(VnniSum t, const unsigned char *b, const QuantX *x, long c)
{
        return vnni_k(t, 0, b, x, c);
}

TGC_INLINE VnniSum vnni_q5_k(VnniSum t, const unsigned char *b, const QuantX *x, long c)
{
        return vnni_k(t, 1, b, x, c);
}

TGC_INLINE VnniSum vnni_q6_k(VnniSum t, const unsigned char *b, const QuantX *x, long c)
{
        const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                      fours = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        const __m512 dx = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(
                                                               _mm256_loadu_ps(x->scale + c))),
                     of16 = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
                             _mm_loadu_si128((const __m128i *)(const void *)(b + 192)))),
                     d = _mm512_mul_ps(_mm512_mul_ps(of16, _mm512_set1_ps(half_of(b + 208))), dx);
        const __m512i upper = vnni_halves(_mm256_setzero_si256(), _mm256_set1_epi64x(2)),
                      left = _mm512_sub_epi64(_mm512_set1_epi64(4), upper),
                      two = _mm512_set1_epi8(0x30), four = _mm512_set1_epi8(15);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
                const __m512i l = _mm512_loadu_si512(b + i / 2 * 64),
                              h = _mm512_broadcast_i64x4(bytes32(b + 128 + i / 2 * 32)),
                              low = i % 2 ? _mm512_srli_epi16(l, 4) : l,
                              high = i % 2 ? _mm512_srlv_epi64(h, upper)
                                           : _mm512_sllv_epi64(h, left),
                              w = _mm512_or_si512(_mm512_and_si512(low, four),
                                                  _mm512_and_si512(high, two)),
                              at = _mm512_add_epi32(fours, _mm512_set1_epi32(4 * i));
                t.s = vnni_dot(t.s, _mm512_srai_epi32(vnni_less(x, c + 2 * i), 2), w, x, c + 2 * i,
                               _mm512_permutexvar_ps(at, d));
        }
        return t;
}

/* vnni_dots_TYPE: as quant_dots_TYPE; `chunks` of 32, which are `blocks` blocks, at a time. */
#define VNNI_DOTS(decode, bytes, blocks, chunks, addends)                                     \
        TGC_NOINLINE void vnni_dots_##decode(const unsigned char *first, long stride, long N, \
                                             long K, const float *x, float *room, float *y)   \
        {                                                                                     \
                const QuantX to = quant_parts(x, K, room);                                    \
                const long n = K / DECODE_CHUNK;                                              \
                for (long j = 0; j < N; j++) {                                                \
                        const unsigned char *b = first + j * stride;                          \
                        VnniSum t = { _mm512_setzero_ps(), _mm256_setzero_ps(),               \
                                      _mm512_setzero_ps() };                                  \
                        long c = 0;                                                           \
                        for (; c + (chunks) <= n; c += (chunks), b += (blocks) * (bytes)) {   \
                                quant_ahead(b, (blocks) * (bytes));                           \
                                t = vnni_##decode(t, b, &to, c);                              \
                        }                                                                     \
                        if ((chunks) == 8 && (addends) > 0.f)                                 \
                                t.m = _mm512_castps512_ps256(                                 \
                                        _mm512_shuffle_f32x4(t.k, t.k, 0xee));                \
                        float sum = vec_sum((Vec)t.s) + (addends)*quant_total(t.m);           \
                        if (c < n) { /* the last block of 32 */                               \
                                const Quants w = quants_##decode(b, 0);                       \
                                sum += quant_total(quant_step(quant_zero(), w, &to, c));      \
                                sum += w.m * to.sum[c];                                       \
                        }                                                                     \
                        y[j] = sum;                                                           \
                }                                                                             \
        }
VNNI_DOTS(q8_0, 34, 2, 2, 0.f)
VNNI_DOTS(q4_0, 18, 2, 2, 0.f)
VNNI_DOTS(q4_1, 20, 2, 2, .5f)
VNNI_DOTS(q4_k, 144, 1, 8, 1.f)
VNNI_DOTS(q5_k, 176, 1, 8, 1.f)
VNNI_DOTS(q6_k, 210, 1, 8, 0.f)
#undef VNNI_DOTS

/* Does the decoder have vnni_dots_?  Those without are never called. */
#define VNNI_NONE(decode)                                                                   \
        TGC_INLINE void vnni_dots_##decode(const unsigned char *first, long stride, long N, \
                                           long K, const float *x, float *room, float *y)   \
        {                                                                                   \
                (void)first, (void)stride, (void)N, (void)K, (void)x, (void)room, (void)y;  \
        }                                                                                   \
        enum { VNNI_##decode = 0 };
VNNI_NONE(q5_0)
VNNI_NONE(q5_1)
VNNI_NONE(q2_k)
VNNI_NONE(q3_k)
VNNI_NONE(iq4_nl)
VNNI_NONE(iq4_xs)
VNNI_NONE(mxfp4)
VNNI_NONE(nvfp4)
VNNI_NONE(nf4)
VNNI_NONE(fp4)
VNNI_NONE(i4)
VNNI_NONE(i8)
VNNI_NONE(scb)
VNNI_NONE(f8)
#undef VNNI_NONE
enum { VNNI_q8_0 = 1, VNNI_q4_0 = 1, VNNI_q4_1 = 1, VNNI_q4_k = 1, VNNI_q5_k = 1, VNNI_q6_k = 1 };

#endif
