/* cpu_grouped_gemm.h: GEMMs of a mixture of experts, each expert over its own rows.
 *
 * bucket_task sorts the pairs (token, choice) by expert: expert e has positions offs[e] ..
 * offs[e+1]-1, position i is pair perm[i].  An operand with a row per pair or token has a DIV: 0,
 * row i (already sorted); d > 0, row perm[i] / d (1: by pair, k: by token).  Results go to row i,
 * or to row perm[i] if scatter is set.  Epilogues also get the expert, for its bias. */
#ifndef TGC_CPU_GROUPED_GEMM_H
#define TGC_CPU_GROUPED_GEMM_H

#include "cpu_gemv.h"

typedef void ExpertEpilogueFn(const void *args, long row, int col, int n, float *v, int expert);

enum { EXPERT_MT = 128, EXPERT_NT = 256 };

/* Source rows of positions i0..i0+n. */
TGC_INLINE void expert_rows(int *rows, const int *perm, long i0, int n, int div)
{
        for (int i = 0; i < n; i++)
                rows[i] = div ? perm[i0 + i] / div : (int)(i0 + i);
}

/* y_i = op(W[expert])^T a_i, as gemm_task: op(W) is (K,N), w.batch elements per expert (w.trans 1:
 * stored (E,N,K)).  a: row r at r*lda, K elements.  P: pairs, an upper bound of offs[E]; surplus
 * tiles return. */
TGC_INLINE long grouped_gemm_tiles(int E, long P, long N)
{
        return (tgc_ceil_div(P, EXPERT_MT) + E) * tgc_ceil_div(N, EXPERT_NT);
}

TGC_INLINE void grouped_gemm_task(const void *a, int a_ty, long lda, int adiv, Mat w, int E, long N,
                                  long K, const int *perm, const int *offs, int scatter, long tile,
                                  const void *args, ExpertEpilogueFn *epilogue)
{
        long n_tiles = tgc_ceil_div(N, EXPERT_NT), block = tile / n_tiles,
             n0 = tile % n_tiles * EXPERT_NT;
        int e = 0, rows[EXPERT_MT];
        for (; e < E; e++) {
                long blocks = tgc_ceil_div(offs[e + 1] - offs[e], EXPERT_MT);
                if (block < blocks)
                        break;
                block -= blocks;
        }
        if (e == E)
                return;
        long i0 = offs[e] + block * EXPERT_MT;
        int m = (int)tgc_min(EXPERT_MT, offs[e + 1] - i0), n = (int)tgc_min(EXPERT_NT, N - n0);
        Mat am = { a, a_ty, 0, lda, 0 };
        float *pa = tgc_scratch, *pb = pa + MATMUL_MT * MATMUL_KC, *c = pb + MATMUL_KC * MATMUL_NT;
        expert_rows(rows, perm, i0, m, adiv);
        gemm_tile(am, w, e, 0, m, n0, n, K, rows, pa, pb, c, EXPERT_NT);
        for (int i = 0; i < m; i++)
                for (int j = 0; j < n; j += TGC_SEG)
                        epilogue(args, scatter ? perm[i0 + i] : i0 + i, (int)n0 + j,
                                 n - j < TGC_SEG ? n - j : TGC_SEG, c + i * EXPERT_NT + j, e);
}

/* dW_e (M,N) = sum over positions i of e of a_i (M) times g_i^T (N); zeros if e has none.
 * epilogue(row = e*M + m, col).  For weights stored (E,N,K): a is dy with M = N, g is x. */
TGC_INLINE long grouped_gemm_grad_tiles(int E, long M, long N)
{
        return E * tgc_ceil_div(M, EXPERT_MT) * tgc_ceil_div(N, EXPERT_NT);
}

TGC_INLINE void grouped_gemm_grad_task(const void *a, int a_ty, long lda, int adiv, const void *g,
                                       int g_ty, long ldg, int gdiv, long M, long N,
                                       const int *perm, const int *offs, long tile,
                                       const void *args, EpilogueFn *epilogue)
{
        long n_tiles = tgc_ceil_div(N, EXPERT_NT), m_tiles = tgc_ceil_div(M, EXPERT_MT);
        long n0 = tile % n_tiles * EXPERT_NT, m0 = tile / n_tiles % m_tiles * EXPERT_MT,
             e = tile / n_tiles / m_tiles;
        int m = (int)tgc_min(EXPERT_MT, M - m0), n = (int)tgc_min(EXPERT_NT, N - n0),
            rows[MATMUL_KC];
        float *pa = tgc_scratch, *pb = pa + MATMUL_MT * MATMUL_KC, *c = pb + MATMUL_KC * MATMUL_NT;
        if (offs[e] == offs[e + 1])
                memset(c, 0, sizeof(float) * EXPERT_MT * EXPERT_NT);
        for (long i = offs[e]; i < offs[e + 1]; i += MATMUL_KC) {
                int k = (int)tgc_min(MATMUL_KC, offs[e + 1] - i);
                expert_rows(rows, perm, i, k, adiv);
                pack_a(pa, a, a_ty, m0, lda, m, k, rows);
                expert_rows(rows, perm, i, k, gdiv);
                pack_b(pb, g, g_ty, n0, ldg, n, k, rows);
                gemm_block(m, n, k, pa, 1, GEMM_MR, pb, c, EXPERT_NT, i > offs[e]);
        }
        for (int i = 0; i < m; i++)
                for (int j = 0; j < n; j += TGC_SEG)
                        epilogue(args, e * M + m0 + i, (int)n0 + j,
                                 n - j < TGC_SEG ? n - j : TGC_SEG, c + i * EXPERT_NT + j);
}

/* The same for a few pairs (decoding), one pair and a range of columns at a time.  x comes from
 * the prologue, which must be pure; its row is the row of a.  norm: as in gemv_task. */
TGC_INLINE long grouped_gemv_tiles(long P, long N, long K) { return P * gemv_tiles(N, K); }

TGC_INLINE void grouped_gemv_task(int norm, float eps, Mat w, int E, long N, long K, int adiv,
                                  const int *perm, const int *offs, int scatter, long tile,
                                  const void *args, PrologueFn *prologue,
                                  ExpertEpilogueFn *epilogue)
{
        long parts = gemv_tiles(N, K), i = tile / parts, nt = parts == 1 ? N : gemv_nt(N, K);
        long n0 = tile % parts * nt, n = tgc_min(nt, N - n0);
        float *x = tgc_scratch, *y = tgc_scratch + GEMV_K_MAX;
        int e = 0;
        if (i >= offs[E])
                return;
        while (i >= offs[e + 1])
                e++;
        gemv_fill(norm, eps, 1, adiv ? perm[i] / adiv : i, K, x, K + TGC_VEC, args, prologue, NULL);
        gemv_rounds(1, w.ty, x, K);
        gemv_rows(1, w.ty, w.trans, w.p, e * w.batch + (w.trans ? n0 * w.ld : n0), w.ld, n, K, x, 0,
                  y, 0, 0);
        for (long j = 0; j < n; j += TGC_SEG)
                epilogue(args, scatter ? perm[i] : i, (int)(n0 + j), (int)tgc_min(n - j, TGC_SEG),
                         y + j, e);
}

/* A few unsorted pairs: pair p has expert ids[p] and row p / adiv of a.  mix k: row t of the
 * result is the sum of pairs t*k .., times their gates.  w: (E,N,K).  bias (E,N) or NULL.  An
 * ordinary epilogue. */
TGC_INLINE long grouped_rows_tiles(long rows, long N, long K) { return rows * gemv_tiles(N, K); }

TGC_INLINE void grouped_rows_task(Mat w, long N, long K, int adiv, int mix, const int *ids,
                                  int bias_ty, const void *bias, const float *gates, long tile,
                                  const void *args, PrologueFn *prologue, EpilogueFn *epilogue)
{
        long parts = gemv_tiles(N, K), row = tile / parts, nt = parts == 1 ? N : gemv_nt(N, K);
        long n0 = tile % parts * nt, n = tgc_min(nt, N - n0);
        float *x = tgc_scratch, *y = tgc_scratch + GEMV_K_MAX, sum[GEMV_NT];
        memset(sum, 0, sizeof sum);
        for (long p = mix ? row * mix : row, end = p + (mix ? mix : 1); p < end; p++) {
                float gate = mix ? gates[p] : 1.f;
                gemv_fill(NORM_NONE, 0.f, 1, p / adiv, K, x, K + TGC_VEC, args, prologue, NULL);
                gemv_rounds(1, w.ty, x, K);
                gemv_rows(1, w.ty, 1, w.p, ids[p] * w.batch + n0 * w.ld, w.ld, n, K, x, 0, y, 0, 0);
                for (long j = 0; j < n; j++)
                        sum[j] += gate * (y[j] + (bias ? ty_get(bias_ty, bias, ids[p] * N + n0 + j)
                                                       : 0.f));
        }
        for (long j = 0; j < n; j += TGC_SEG)
                epilogue(args, row, (int)(n0 + j), (int)tgc_min(n - j, TGC_SEG), sum + j);
}

#endif
