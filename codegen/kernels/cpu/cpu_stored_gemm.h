/* cpu_stored_gemm.h: a tile of C = A W^T with W in blocks, in integers (TGC_ACT_INT8), by AVX-512
 * VNNI: rows of A are rounded to 8 bits in groups of 32, as cpu_stored_x86.h does it for one row.
 *
 * Of 32 columns of W and 32 values of k a panel has bytes, four values of k for each of 16 columns
 * in a register, and their scales.  vpdpbusd wants unsigned bytes: weights are stored plus 128, and
 * sums begin with -128 times the sum of x.
 *
 *      C[i][j] += d[j] dx[i] sum(w x) + m[j] dx[i] sum(x)          for each 32 values of k
 *
 * Q6_K has a scale for 16 values, and two such sums.  Included by cpu_gemm.h. */
#ifndef TGC_CPU_STORED_GEMM_H
#define TGC_CPU_STORED_GEMM_H

#include "cpu_stored_x86.h"

enum { QG_COLS = 32, QG_ROWS = 4, QG_CHUNK = 32 };

/* 32 columns by 32 values of k. */
typedef struct QuantPanel {
        uint8_t w[2][8][16][4]; /* columns by 16, k by 4 */
        float d0[QG_COLS], d1[QG_COLS], m[QG_COLS];
} QuantPanel;

/* 32 values of a row of A. */
typedef struct QuantRow {
        int8_t q[QG_CHUNK];
        float scale, sum;     /* of a step; of the values */
        int32_t less0, less1; /* -128 times the sum of the first 16 steps, of the others */
} QuantRow;

TGC_NOINLINE TGC_QUANT_O3 void quant_rows_pack(QuantRow *to, const float *x, int chunks)
{
        for (int c = 0; c < chunks; c++, to++, x += QG_CHUNK) {
                float most = 0.f, some = 0.f; /* NaN where a value is no number */
                int s0 = 0, s1 = 0;
                for (int j = 0; j < QG_CHUNK; j++) {
                        most = fabsf(x[j]) > most ? fabsf(x[j]) : most;
                        some += x[j] - x[j];
                }
                const float up = most > 0.f ? 127.f / most : 0.f;
                for (int j = 0; j < QG_CHUNK; j++)
                        to->q[j] = (int8_t)(int)rintf(x[j] * up);
                for (int j = 0; j < 16; j++)
                        s0 += to->q[j], s1 += to->q[j + 16];
                to->scale = most / 127.f + some;
                to->sum = to->scale * (float)(s0 + s1);
                to->less0 = -128 * s0;
                to->less1 = -128 * s1;
        }
}

/* y += what a chunk gives: half 0 all of it or, where there are two scales, its first half. */
TGC_INLINE void quant_half(int rows, int two, int half, const QuantRow *x, long ldx,
                           const QuantPanel *w, __m512 (*y)[2])
{
        __m512i s[QG_ROWS][2];
        const float *d = half ? w->d1 : w->d0;
        const __m512 d0 = _mm512_loadu_ps(d), d1 = _mm512_loadu_ps(d + 16);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
                const QuantRow *r = x + i * ldx;
                s[i][0] = s[i][1] = _mm512_set1_epi32(half  ? r->less1
                                                      : two ? r->less0
                                                            : r->less0 + r->less1);
        }
        for (int q = half * 4; q < (two && !half ? 4 : 8); q++) {
                const __m512i a = _mm512_loadu_si512(w->w[0][q]),
                              b = _mm512_loadu_si512(w->w[1][q]);
#pragma GCC unroll 4
                for (int i = 0; i < rows; i++) {
                        int32_t four;
                        memcpy(&four, x[i * ldx].q + 4 * q, 4);
                        const __m512i v = _mm512_set1_epi32(four);
                        s[i][0] = _mm512_dpbusd_epi32(s[i][0], a, v);
                        s[i][1] = _mm512_dpbusd_epi32(s[i][1], b, v);
                }
        }
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
                const __m512 by = _mm512_set1_ps(x[i * ldx].scale);
                y[i][0] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(s[i][0]), by), d0,
                                          y[i][0]);
                y[i][1] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(s[i][1]), by), d1,
                                          y[i][1]);
        }
}

/* two: there are two scales; mins: there is an addend. */
TGC_INLINE void quant_micro(int rows, int two, int mins, const QuantRow *x, long ldx,
                            const QuantPanel *w, int chunks, float *c, long ldc, int add)
{
        __m512 y[QG_ROWS][2];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
                y[i][0] = y[i][1] = _mm512_setzero_ps();
        for (int k = 0; k < chunks; k++, w++, x++) {
                quant_half(rows, two, 0, x, ldx, w, y);
                if (two)
                        quant_half(rows, two, 1, x, ldx, w, y);
                if (mins) {
                        const __m512 m0 = _mm512_loadu_ps(w->m), m1 = _mm512_loadu_ps(w->m + 16);
#pragma GCC unroll 4
                        for (int i = 0; i < rows; i++) {
                                const __m512 by = _mm512_set1_ps(x[i * ldx].sum);
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

/* C (m, n rounded up to 32) (+)= x w over one step of k. */
TGC_INLINE void quant_block(int two, int mins, int m, int n, int chunks, const QuantRow *x,
                            const QuantPanel *w, float *c, long ldc, int add)
{
        for (int j = 0; j < n; j += QG_COLS, w += chunks) {
                int i = 0;
                for (; i + QG_ROWS <= m; i += QG_ROWS)
                        quant_micro(QG_ROWS, two, mins, x + (long)i * chunks, chunks, w, chunks,
                                    c + i * ldc + j, ldc, add);
                for (; i < m; i++)
                        quant_micro(1, two, mins, x + (long)i * chunks, chunks, w, chunks,
                                    c + i * ldc + j, ldc, add);
        }
}

/* Column j of a panel from one row of W. */
TGC_INLINE void quant_column(QuantPanel *to, int j, Quants q)
{
        uint32_t four[8];
        _mm256_storeu_si256((__m256i *)(void *)four,
                            _mm256_xor_si256(q.q, _mm256_set1_epi8((char)0x80)));
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++)
                memcpy(to->w[j / 16][k][j % 16], &four[k], 4);
        to->d0[j] = q.d0;
        to->d1[j] = q.d1;
        to->m[j] = q.m;
}

/* quant_pack_TYPE: n rows of W, `stride` bytes apart, chunks of 32 values each, as panels. */
#define X(name, values, bytes, decode)                                                           \
        TGC_NOINLINE TGC_QUANT_O3 void quant_pack_##name(QuantPanel *to, const unsigned char *w, \
                                                         long stride, int n, int chunks)         \
        {                                                                                        \
                for (int j = 0; j < n; j += QG_COLS, to += chunks)                               \
                        for (int jj = 0; jj < QG_COLS; jj++) {                                   \
                                const int there = j + jj < n;                                    \
                                const unsigned char *b = w + (there ? j + jj : 0) * stride;      \
                                for (int c = 0; c < chunks; b += (bytes))                        \
                                        for (int i = 0; i < (values) / QG_CHUNK; i++, c++) {     \
                                                Quants q = quants_##decode(b, i);                \
                                                if (!there)                                      \
                                                        q.d0 = q.d1 = q.m = 0.f;                 \
                                                quant_column(to + c, jj, q);                     \
                                        }                                                        \
                        }                                                                        \
        }
TGC_STORED(X)
#undef X

/* Do weights of the type go by integers here? */
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

/* gemm_tile's step from k0: x (m, k) floats, ldx apart; w_at: the index of the first weight, ld
 * values to the next row.  room: for the rows, and for the panels. */
TGC_NOINLINE void quant_gemm_step(int ty, const void *w, long w_at, long ld, const float *x,
                                  long ldx, int m, int n, int k, float *room_a, float *room_b,
                                  float *c, long ldc, int add)
{
        const int chunks = k / QG_CHUNK;
        QuantRow *rows = (QuantRow *)(void *)room_a;
        QuantPanel *panels = (QuantPanel *)(void *)room_b;
        for (int i = 0; i < m; i++)
                quant_rows_pack(rows + (long)i * chunks, x + i * ldx, chunks);
        switch (ty) {
#define X(name, values, bytes, decode)                                                             \
        case TY_##name:                                                                            \
                quant_pack_##name(panels, (const unsigned char *)at_##name(w, w_at),               \
                                  ld / (values) * (bytes), n, chunks);                             \
                quant_block(QUANT_TWO_##decode, QUANT_MIN_##decode, m, n, chunks, rows, panels, c, \
                            ldc, add);                                                             \
                break;
                TGC_STORED(X)
#undef X
        }
}

#endif
