/* cpu_stored_gemm.h: a tile of C = A W^T with block-quantised W, in int8 (TGC_ACT_INT8), by
 * AVX-512 VNNI or AMX.  Rows of A are rounded to 8 bits in groups of 32, as in cpu_stored_x86.h.
 *
 * A panel is 32 columns of W by 32 values of k: bytes, four values of k for each of 16 columns per
 * register, and scales.  vpdpbusd takes unsigned bytes: weights are stored plus 128, and sums
 * start at -128 times the sum of x.
 *
 *      C[i][j] += d[j] dx[i] sum(w x) + m[j] dx[i] sum(x)          for each 32 values of k
 *
 * Q6_K has a scale per 16 values, so two such sums.  Included by cpu_gemm.h. */
#ifndef TGC_CPU_STORED_GEMM_H
#define TGC_CPU_STORED_GEMM_H

#include "cpu_stored_x86.h"

enum { QG_COLS = 32, QG_ROWS = 4, QG_CHUNK = 32 };

/* 32 columns by 32 values of k. */
typedef struct QuantPanel {
        uint8_t w[2][8][16][4]; /* columns by 16, k by 4 */
        float d0[QG_COLS], d1[QG_COLS], m[QG_COLS];
} QuantPanel;

/* 32 values of 16 rows of A. */
typedef struct QuantBlock {
        int8_t q[16][QG_CHUNK];
        float scale[16], sum[16];     /* of the quantisation; of the values */
        int32_t less0[16], less1[16]; /* -128 times the sum of the first 16 of q, of the last 16 */
} QuantBlock;

/* Row r of `chunks` blocks. */
TGC_NOINLINE void quant_row_pack(QuantBlock *to, int r, const float *x, int chunks)
{
        const __m256i flip = _mm256_set1_epi8((char)0x80);
        for (int c = 0; c < chunks; c++, to++, x += QG_CHUNK) {
                const __m256i q = quant_32(x, &to->scale[r]),
                              by8 = _mm256_sad_epu8(_mm256_xor_si256(q, flip),
                                                    _mm256_setzero_si256()); /* plus 8 * 128 each */
                const __m128i low = _mm256_castsi256_si128(by8),
                              high = _mm256_extracti128_si256(by8, 1),
                              by16 = _mm_add_epi32(_mm_unpacklo_epi64(low, high),
                                                   _mm_unpackhi_epi64(low, high));
                const int s0 = _mm_cvtsi128_si32(by16) - 16 * 128,
                          s1 = _mm_extract_epi32(by16, 2) - 16 * 128;
                _mm256_storeu_si256((__m256i *)(void *)to->q[r], q);
                to->sum[r] = to->scale[r] * (float)(s0 + s1);
                to->less0[r] = -128 * s0;
                to->less1[r] = -128 * s1;
        }
}

/* y += the sums of a chunk, for rows r ..; half 0: all of it or, if there are two scales, its
 * first half. */
TGC_INLINE void quant_half(int rows, int two, int half, const QuantBlock *x, int r,
                           const QuantPanel *w, __m512 (*y)[2])
{
        __m512i s[QG_ROWS][2];
        const float *d = half ? w->d1 : w->d0;
        const __m512 d0 = _mm512_loadu_ps(d), d1 = _mm512_loadu_ps(d + 16);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
                s[i][0] = s[i][1] = _mm512_set1_epi32(half  ? x->less1[r + i]
                                                      : two ? x->less0[r + i]
                                                            : x->less0[r + i] + x->less1[r + i]);
        for (int q = half * 4; q < (two && !half ? 4 : 8); q++) {
                const __m512i a = _mm512_loadu_si512(w->w[0][q]),
                              b = _mm512_loadu_si512(w->w[1][q]);
#pragma GCC unroll 4
                for (int i = 0; i < rows; i++) {
                        int32_t four;
                        memcpy(&four, x->q[r + i] + 4 * q, 4);
                        const __m512i v = _mm512_set1_epi32(four);
                        s[i][0] = _mm512_dpbusd_epi32(s[i][0], a, v);
                        s[i][1] = _mm512_dpbusd_epi32(s[i][1], b, v);
                }
        }
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
                const __m512 by = _mm512_set1_ps(x->scale[r + i]);
                y[i][0] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(s[i][0]), by), d0,
                                          y[i][0]);
                y[i][1] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(s[i][1]), by), d1,
                                          y[i][1]);
        }
}

/* Rows r .. of the blocks x.  two: there are two scales; mins: there is an addend. */
TGC_INLINE void quant_micro(int rows, int two, int mins, const QuantBlock *x, int r,
                            const QuantPanel *w, int chunks, float *c, long ldc, int add)
{
        __m512 y[QG_ROWS][2];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
                y[i][0] = y[i][1] = _mm512_setzero_ps();
        for (int k = 0; k < chunks; k++, w++, x++) {
                quant_half(rows, two, 0, x, r, w, y);
                if (two)
                        quant_half(rows, two, 1, x, r, w, y);
                if (mins) {
                        const __m512 m0 = _mm512_loadu_ps(w->m), m1 = _mm512_loadu_ps(w->m + 16);
#pragma GCC unroll 4
                        for (int i = 0; i < rows; i++) {
                                const __m512 by = _mm512_set1_ps(x->sum[r + i]);
                                y[i][0] = _mm512_fmadd_ps(m0, by, y[i][0]);
                                y[i][1] = _mm512_fmadd_ps(m1, by, y[i][1]);
                        }
                }
        }
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++, c += ldc) {
                if (add) {
                        y[i][0] = _mm512_add_ps(y[i][0], _mm512_loadu_ps(c));
                        y[i][1] = _mm512_add_ps(y[i][1], _mm512_loadu_ps(c + 16));
                }
                _mm512_storeu_ps(c, y[i][0]);
                _mm512_storeu_ps(c + 16, y[i][1]);
        }
}

/* C (m, n rounded up to 32) (+)= x w over one step of k.  ldx: blocks per 16 rows. */
TGC_INLINE void quant_block(int two, int mins, int m, int n, int chunks, const QuantBlock *x,
                            long ldx, const QuantPanel *w, float *c, long ldc, int add)
{
        for (int j = 0; j < n; j += QG_COLS, w += chunks) {
                int i = 0;
                for (; i + QG_ROWS <= m; i += QG_ROWS)
                        quant_micro(QG_ROWS, two, mins, x + i / 16 * ldx, i % 16, w, chunks,
                                    c + i * ldc + j, ldc, add);
                for (; i < m; i++)
                        quant_micro(1, two, mins, x + i / 16 * ldx, i % 16, w, chunks,
                                    c + i * ldc + j, ldc, add);
        }
}

#ifdef TGC_AMX_INT8
#include "cpu_amx_int8.h"
TGC_INLINE int quant_by_tiles(void) { return amx_allowed(); }
#define QUANT_BLOCK(...) (amx_allowed() ? amx_block(__VA_ARGS__) : quant_block(__VA_ARGS__))
#else
TGC_INLINE int quant_by_tiles(void) { return 0; }
#define QUANT_BLOCK(...) quant_block(__VA_ARGS__)
#endif

/* Decoded rows of W, the columns of half a panel, before the transpose. */
typedef struct QuantColumns {
        uint8_t w[MATMUL_KC / QG_CHUNK][16][QG_CHUNK];
        float d0[MATMUL_KC / QG_CHUNK][16], d1[MATMUL_KC / QG_CHUNK][16],
                m[MATMUL_KC / QG_CHUNK][16];
} QuantColumns;

/* Transposes: four bytes of each of 16 rows to a register, for eight groups of four. */
TGC_INLINE void quant_turn(uint8_t (*to)[16][4], const uint8_t (*w)[QG_CHUNK], __m512i flip)
{
        __m512i a[8], b[8]; /* rows i and i + 4 of the first eight; of the last eight */
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
                const int r = i < 4 ? i : i + 4;
                b[i] = _mm512_inserti64x4(_mm512_castsi256_si512(bytes32(w[r])), bytes32(w[r + 4]),
                                          1);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 8; i += 4) {
                const __m512i l0 = _mm512_unpacklo_epi32(b[i], b[i + 1]),
                              l1 = _mm512_unpacklo_epi32(b[i + 2], b[i + 3]),
                              h0 = _mm512_unpackhi_epi32(b[i], b[i + 1]),
                              h1 = _mm512_unpackhi_epi32(b[i + 2], b[i + 3]);
                a[i] = _mm512_unpacklo_epi64(l0, l1), a[i + 1] = _mm512_unpackhi_epi64(l0, l1);
                a[i + 2] = _mm512_unpacklo_epi64(h0, h1), a[i + 3] = _mm512_unpackhi_epi64(h0, h1);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
                _mm512_storeu_si512(to[i],
                                    _mm512_xor_si512(flip,
                                                     _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88)));
                _mm512_storeu_si512(to[i + 4],
                                    _mm512_xor_si512(flip,
                                                     _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd)));
        }
}

/* Half h of the panels of `chunks` chunks. */
TGC_NOINLINE void quant_half_panels(QuantPanel *to, int h, const QuantColumns *from, int chunks)
{
        /* AMX multiplies signed bytes */
        const __m512i flip = quant_by_tiles() ? _mm512_setzero_si512()
                                              : _mm512_set1_epi8((char)0x80);
        for (int c = 0; c < chunks; c++) {
                quant_turn(to[c].w[h], from->w[c], flip);
                memcpy(to[c].d0 + 16 * h, from->d0[c], sizeof from->d0[c]);
                memcpy(to[c].d1 + 16 * h, from->d1[c], sizeof from->d1[c]);
                memcpy(to[c].m + 16 * h, from->m[c], sizeof from->m[c]);
        }
}

/* quant_pack_TYPE: n rows of W, `stride` bytes apart, `chunks` of 32 values each, to panels. */
#define X(name, values, bytes, decode)                                                             \
        TGC_NOINLINE TGC_QUANT_O3 void quant_pack_##name(QuantPanel *to, const unsigned char *w,   \
                                                         long stride, int n, int chunks)           \
        {                                                                                          \
                QuantColumns s;                                                                    \
                for (int j = 0; j < (n + QG_COLS - 1) / QG_COLS * QG_COLS; j += 16) {              \
                        for (int jj = 0; jj < 16; jj++) {                                          \
                                const int there = j + jj < n;                                      \
                                const unsigned char *b = w + (there ? j + jj : 0) * stride;        \
                                for (int c = 0; c < chunks; b += (bytes))                          \
                                        for (int i = 0; i < (values) / QG_CHUNK; i++, c++) {       \
                                                const Quants q = quants_##decode(b, i);            \
                                                _mm256_storeu_si256((__m256i *)(void *)s.w[c][jj], \
                                                                    q.q);                          \
                                                s.d0[c][jj] = there ? q.d0 : 0.f;                  \
                                                s.d1[c][jj] = there ? q.d1 : 0.f;                  \
                                                s.m[c][jj] = there ? q.m : 0.f;                    \
                                        }                                                          \
                        }                                                                          \
                        quant_half_panels(to + (long)j / QG_COLS * chunks, j / 16 % 2, &s,         \
                                          chunks);                                                 \
                }                                                                                  \
        }
TGC_STORED(X)
#undef X

/* Are weights of this type multiplied in int8? */
TGC_INLINE int quant_gemm_has(int ty)
{
        switch (ty) {
#define X(name, values, bytes, decode) \
        case TY_##name: return QUANT_##decode;
                TGC_STORED(X)
#undef X
        }
        return 0;
}

/* m rows of floats, ldx apart, to blocks. */
TGC_NOINLINE void quant_rows_pack(QuantBlock *to, const float *x, long ldx, int m, int chunks)
{
        for (int i = 0; i < m; i++)
                quant_row_pack(to + (long)(i / 16) * chunks, i % 16, x + i * ldx, chunks);
}

/* gemm_tile's step: k columns of m rows of x, ldx blocks per 16 rows.  w_at: index of the first
 * weight; ld: values per row.  room: for panels. */
TGC_NOINLINE void quant_gemm_step(int ty, const void *w, long w_at, long ld, const QuantBlock *x,
                                  long ldx, int m, int n, int k, float *room, float *c, long ldc,
                                  int add)
{
        const int chunks = k / QG_CHUNK;
        QuantPanel *panels = (QuantPanel *)(void *)room;
        switch (ty) {
#define X(name, values, bytes, decode)                                                            \
        case TY_##name:                                                                           \
                quant_pack_##name(panels, (const unsigned char *)at_##name(w, w_at),              \
                                  ld / (values) * (bytes), n, chunks);                            \
                QUANT_BLOCK(QUANT_TWO_##decode, QUANT_MIN_##decode, m, n, chunks, x, ldx, panels, \
                            c, ldc, add);                                                         \
                break;
                TGC_STORED(X)
#undef X
        }
}

#endif
