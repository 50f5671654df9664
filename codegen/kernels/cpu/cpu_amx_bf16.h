/* cpu_amx_bf16.h: cpu_bf16_gemm.h's step by AMX.  Sums stay in tiles over a whole step of k.  A is
 * packed in blocks of 16 rows by 32 values of k (rows of a long A would share cache sets).  (The
 * instruction treats denormals as 0.) */
#ifndef TGC_CPU_AMX_BF16_H
#define TGC_CPU_AMX_BF16_H

typedef struct PairBlock {
        bf16 a[16][BG_K];
} PairBlock;

/* Columns of a panel; two: of 32 rows, else of 16 or fewer, as the tiles are configured. */
TGC_INLINE void amx_pairs_micro(int two, int steps, const PairBlock *a, long lda,
                                const PairPanel *w, float *c, long ldc, int add)
{
        const long row = ldc * (long)sizeof *c;
        float *const c1 = c + 16 * ldc;
        if (add) {
                AMX_LOAD(0, c, row);
                AMX_LOAD(1, c + 16, row);
                if (two)
                        AMX_LOAD(2, c1, row);
                if (two)
                        AMX_LOAD(3, c1 + 16, row);
        } else {
                AMX_ZERO(0);
                AMX_ZERO(1);
                AMX_ZERO(2);
                AMX_ZERO(3);
        }
        for (int k = 0; k < steps; k++, w += BG_K / 2) {
                AMX_LOAD(4, a[k].a[0], 64);
                AMX_LOAD(6, w->w[0], sizeof *w);
                AMX_LOAD(7, w->w[1], sizeof *w);
                AMX_BF16(0, 4, 6);
                AMX_BF16(1, 4, 7);
                if (two) {
                        AMX_LOAD(5, a[lda + k].a[0], 64);
                        AMX_BF16(2, 5, 6);
                        AMX_BF16(3, 5, 7);
                }
        }
        AMX_STORE(0, c, row);
        AMX_STORE(1, c + 16, row);
        if (two) {
                AMX_STORE(2, c1, row);
                AMX_STORE(3, c1 + 16, row);
        }
}

/* C (m, n rounded up to 32; ldc) (+)= A W^T over one step of k; lda: blocks to the next 16 rows. */
TGC_NOINLINE void amx_pairs(const PairBlock *a, long lda, const PairPanel *w, int m, int n, int k,
                            float *c, long ldc, int add)
{
        const int steps = k / BG_K;
        int i = 0;
        amx_configure(amx_shapes(16, 64, 16));
        for (; i + 32 <= m; i += 32)
                for (int j = 0; j < n; j += BG_COLS)
                        amx_pairs_micro(1, steps, a + i / 16 * lda, lda, w + (long)j * k / 64,
                                        c + i * ldc + j, ldc, add);
        for (int now; i < m; i += now) {
                now = m - i < 16 ? m - i : 16;
                amx_configure(amx_shapes(now, 64, 16));
                for (int j = 0; j < n; j += BG_COLS)
                        amx_pairs_micro(0, steps, a + i / 16 * lda, lda, w + (long)j * k / 64,
                                        c + i * ldc + j, ldc, add);
        }
        AMX_RELEASE();
}

#endif
