/* cpu_expert.h: matmuls with one weight matrix per expert, rows grouped by bucket_task.
 *
 * Position i of the sorted order stands for pair perm[i].  Where a row is read or
 * written, the mapping says from which row of the tensor: ROW_SORTED i;
 * adiv > 0: perm[i] / adiv (adiv = k: the token; adiv = 1: the pair). */
#ifndef TGC_CPU_EXPERT_H
#define TGC_CPU_EXPERT_H

#include "cpu_matmul.h"

enum { ROW_SORTED = 0 };

typedef void ExpertTailFn(const void *args, long row, int col, int n, float *v, int expert);

/* Row of C = row of A times op(W[expert]); w.batch: elements per expert.  A (rows, K),
 * lda apart.  tail row: scatter ? perm[i] : i.  P: pairs, an upper bound of offs[E]. */
TGC_INLINE long expert_matmul_tiles(int E, long P, long N, long K);
TGC_INLINE void expert_matmul_task(const void *a, int a_ty, long lda, int adiv, Mat w, int E, long N, long K,
                                   const int *perm, const int *offs, int scatter, long tile,
                                   const void *args, ExpertTailFn *tail);

/* dW[e] (M,N) = sum over bucket e of a_row (M) outer g_row (N); tail(row = e*M + m, col).
 * Empty buckets give 0.  For weights stored (N,K), swap a and g. */
TGC_INLINE long expert_grad_tiles(int E, long M, long N);
TGC_INLINE void expert_grad_task(const void *a, int a_ty, long lda, int adiv,
                                 const void *g, int g_ty, long ldg, int gdiv, long M, long N,
                                 const int *perm, const int *offs, long tile, const void *args, TailFn *tail);

/* Decode: pair p = 0..P-1 without sorting, C[p] = x[p / adiv] op(W[ids[p]]), x from the
 * head (pure; row p / adiv).  ids out of range give 0 (expert -1). tail row: p. */
TGC_INLINE long expert_matvec_tiles(long P, long N, long K);
TGC_INLINE void expert_matvec_task(int norm, float eps, Mat w, int E, const int *ids, long P, int adiv, long N, long K,
                                   long tile, const void *args, HeadFn head, ExpertTailFn *tail);

#endif
