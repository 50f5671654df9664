/* cpu_bf16_gemm.h: a step of a tile of C = A W^T, A and W in bf16, by AVX-512 BF16.  vdpbf16ps
 * adds two bf16 products to a float32 sum, twice the rate of float32 FMA.  A is read in place, two
 * values of k at a time.  W is transposed to panels of 32 columns, whose registers hold two values
 * of k for each of 16 columns.  (The instruction treats denormals as 0.)
 *
 * Included by cpu_gemm.h if the source uses bf16 (TGC_BF16). */
#ifndef TGC_CPU_BF16_GEMM_H
#define TGC_CPU_BF16_GEMM_H

enum { BG_ROWS = 8, BG_COLS = 32, BG_K = 32 };

/* Pairs of k for 32 columns: BG_K of k are 16 of these. */
typedef struct PairPanel {
        uint32_t w[2][16];
} PairPanel;

/* Transposes BG_K values of 16 rows of W, ld apart, to half h of 16 panels.  there: rows that
 * exist. */
TGC_INLINE void pairs_turn(PairPanel *to, int h, const bf16 *w, long ld, int there)
{
        __m512i b[16];
        for (int i = 0; i < 16; i += 4) { /* lanes: a column of four rows */
                __m512i a[4];
#pragma GCC unroll 4
                for (int r = 0; r < 4; r++)
                        a[r] = i + r < there ? _mm512_loadu_si512(w + (i + r) * ld)
                                             : _mm512_setzero_si512();
                const __m512i l0 = _mm512_unpacklo_epi32(a[0], a[1]),
                              l1 = _mm512_unpacklo_epi32(a[2], a[3]),
                              h0 = _mm512_unpackhi_epi32(a[0], a[1]),
                              h1 = _mm512_unpackhi_epi32(a[2], a[3]);
                b[i] = _mm512_unpacklo_epi64(l0, l1), b[i + 1] = _mm512_unpackhi_epi64(l0, l1);
                b[i + 2] = _mm512_unpacklo_epi64(h0, h1), b[i + 3] = _mm512_unpackhi_epi64(h0, h1);
        }
        for (int i = 0; i < 4; i++) { /* lane q of b[i + 4 g]: column i + 4 q of rows 4 g on */
                const __m512i l0 = _mm512_shuffle_i32x4(b[i], b[i + 4], 0x88),
                              h0 = _mm512_shuffle_i32x4(b[i], b[i + 4], 0xdd),
                              l1 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0x88),
                              h1 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0xdd);
                _mm512_storeu_si512(to[i].w[h], _mm512_shuffle_i32x4(l0, l1, 0x88));
                _mm512_storeu_si512(to[i + 4].w[h], _mm512_shuffle_i32x4(h0, h1, 0x88));
                _mm512_storeu_si512(to[i + 8].w[h], _mm512_shuffle_i32x4(l0, l1, 0xdd));
                _mm512_storeu_si512(to[i + 12].w[h], _mm512_shuffle_i32x4(h0, h1, 0xdd));
        }
}

/* n rows of W from w on, k of each, as panels; columns up to a multiple of 32 are 0. */
TGC_NOINLINE void pairs_pack(PairPanel *to, const bf16 *w, long ld, int n, int k)
{
        for (int j = 0; j < n; j += BG_COLS, to += k / 2)
                for (int h = 0; h < 2; h++)
                        for (int p = 0; p < k; p += BG_K)
                                pairs_turn(to + p / 2, h, w + (j + 16 * h) * ld + p, ld,
                                           n - j - 16 * h);
}

/* C[rows][32] (+)= A W^T. */
TGC_INLINE void pairs_micro(int rows, int k, const bf16 *a, long lda, const PairPanel *w, float *c,
                            long ldc, int add)
{
        __m512 s[BG_ROWS][2];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
                s[i][0] = s[i][1] = _mm512_setzero_ps();
        for (int p = 0; p < k; p += 2, w++) {
                const __m512bh b0 = (__m512bh)_mm512_loadu_si512(w->w[0]),
                               b1 = (__m512bh)_mm512_loadu_si512(w->w[1]);
#pragma GCC unroll 8
                for (int i = 0; i < rows; i++) {
                        int32_t two;
                        memcpy(&two, a + i * lda + p, sizeof two);
                        const __m512bh x = (__m512bh)_mm512_set1_epi32(two);
                        s[i][0] = _mm512_dpbf16_ps(s[i][0], b0, x);
                        s[i][1] = _mm512_dpbf16_ps(s[i][1], b1, x);
                }
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++, c += ldc) {
                if (add) {
                        s[i][0] = _mm512_add_ps(s[i][0], _mm512_loadu_ps(c));
                        s[i][1] = _mm512_add_ps(s[i][1], _mm512_loadu_ps(c + 16));
                }
                _mm512_storeu_ps(c, s[i][0]);
                _mm512_storeu_ps(c + 16, s[i][1]);
        }
}

/* C (m, n rounded up to 32; ldc) (+)= A W^T over one step of k, a multiple of BG_K. */
TGC_NOINLINE void pairs_step(const bf16 *a, long lda, const bf16 *w, long ld, int m, int n, int k,
                             float *room, float *c, long ldc, int add)
{
        PairPanel *panel = (PairPanel *)(void *)room;
        pairs_pack(panel, w, ld, n, k);
        for (int j = 0; j < n; j += BG_COLS, panel += k / 2) {
                int i = 0;
                for (; i + BG_ROWS <= m; i += BG_ROWS)
                        pairs_micro(BG_ROWS, k, a + i * lda, lda, panel, c + i * ldc + j, ldc, add);
                for (; i < m; i++)
                        pairs_micro(1, k, a + i * lda, lda, panel, c + i * ldc + j, ldc, add);
        }
}

#endif
