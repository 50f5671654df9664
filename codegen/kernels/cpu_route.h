/* cpu_route.h: choosing experts, and moving rows to and from their order.
 *
 * A token row t makes k pairs p = t*k + j, each with an id.  Buckets list the
 * pairs by id: those of id e are perm[offs[e]] .. perm[offs[e+1]-1], ascending. */
#ifndef TGC_CPU_ROUTE_H
#define TGC_CPU_ROUTE_H

#include "cpu_rows.h"

enum { TOPK_N_MAX = 4096 };

/* The k largest of a row, largest first, lowest index first among equals; NaN counts
 * as -inf.  ids[row*k + j]; the values go to tail(row, j, n, v) as one run.  k <= 256. */
TGC_INLINE void topk_task(long N, int k, int *ids, long row, const void *args, HeadFn head, TailFn tail);
/* Gradient: zeros but for dvals[row*k + j] at ids[row*k + j]; head gives dvals (rows x k). */
TGC_INLINE void topk_grad_task(long N, int k, const int *ids, long row, const void *args, HeadFn head, TailFn tail);

/* Stable counting sort of P ids into n buckets: offs[n+1], perm[offs[n]].  Ids out of
 * range are left out.  One tile. */
TGC_INLINE void bucket_task(const int *ids, long P, int n, int *perm, int *offs);

/* Row e of the result is the sum of head rows over bucket e, in order (0 where
 * empty): the gradient of a gather, without atomics.  A tile is one row e. */
TGC_INLINE void scatter_rows_task(long N, const int *perm, const int *offs, long e,
                                  const void *args, HeadFn head, TailFn tail);

/* tail(t) = sum over j < k of w[t*k + j] * head(t*k + j); w NULL: ones.  A tile is one t. */
TGC_INLINE void combine_task(int k, long N, const float *w, long t, const void *args, HeadFn head, TailFn tail);

#endif
