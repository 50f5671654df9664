/* cpu_route.h: choosing experts, and moving rows to and from their order.
 *
 * A token row t makes k pairs p = t*k + j, each with an id.  Buckets list the
 * pairs by id: those of id e are perm[offs[e]] .. perm[offs[e+1]-1], ascending. */
#ifndef TGC_CPU_ROUTE_H
#define TGC_CPU_ROUTE_H

#include "cpu_rows.h"

enum { TOPK_N_MAX = 4096 };

/* The k largest of a row of N <= TOPK_N_MAX, largest first, lowest index first among
 * equals; NaN counts as -inf.  ids (rows, k), values (rows, k) or NULL; k <= N. */
TGC_INLINE void topk_task(long N, int k, float *values, int *ids, long row, const void *args,
                          PrologueFn *prologue)
{
        float *v = tgc_scratch;
        char *taken = (char *)(tgc_scratch + TOPK_N_MAX);
        EACH_SEG(c, n, N)
        prologue(args, row, (int)c, (int)n, v + c);
        memset(taken, 0, (size_t)N);
        for (int j = 0; j < k; j++) {
                long best = -1;
                for (long i = 0; i < N; i++) {
                        v[i] = v[i] == v[i] ? v[i] : -INFINITY;
                        if (!taken[i] && (best < 0 || v[i] > v[best]))
                                best = i;
                }
                taken[best] = 1;
                ids[row * k + j] = (int)best;
                if (values)
                        values[row * k + j] = v[best];
        }
}

/* topk_task's choice of logits, and its softmax over the row or, with renorm, over the choice. */
TGC_INLINE void route_task(long N, int k, int renorm, float *gates, int *ids, long row,
                           const void *args, PrologueFn *prologue)
{
        const float *v = tgc_scratch;
        float *gate = gates + row * k, all = 0;
        topk_task(N, k, gates, ids, row, args, prologue);
        float top = gate[0];
        for (long i = 0; i < (renorm ? k : N); i++)
                all += expf((renorm ? gate[i] : v[i]) - top);
        for (int j = 0; j < k; j++)
                gate[j] = expf(gate[j] - top) / all;
}

/* Gradient: zeros but for prologue(row, j) at ids[row*k + j]; prologue is asked for one run of k
 * <= TGC_SEG. */
TGC_INLINE void topk_grad_task(long N, int k, const int *ids, long row, const void *args,
                               PrologueFn *prologue, EpilogueFn *epilogue)
{
        float d[TGC_SEG], v[TGC_SEG];
        prologue(args, row, 0, k, d);
        EACH_SEG(c, n, N)
        {
                memset(v, 0, sizeof v);
                for (int j = 0; j < k; j++) {
                        long i = ids[row * k + j] - c;
                        if (i >= 0 && i < n)
                                v[i] = d[j];
                }
                epilogue(args, row, (int)c, (int)n, v);
        }
}

/* Stable counting sort of P ids into n buckets: offs (n+1), perm (P, the first offs[n] written),
 * inv (P) the place of each pair in perm, -1 where left out, or NULL.  Ids out of range are
 * left out.  One tile. */
TGC_INLINE void bucket_task(const int *ids, long P, int n, int *perm, int *inv, int *offs)
{
        memset(offs, 0, sizeof(int) * (size_t)(n + 1));
        for (long p = 0; p < P; p++)
                if (ids[p] >= 0 && ids[p] < n)
                        offs[ids[p] + 1]++;
        for (int e = 0; e < n; e++)
                offs[e + 1] += offs[e];
        /* offs[e] runs through its bucket and ends at the next one's start */
        for (long p = 0; p < P; p++) {
                int in = ids[p] >= 0 && ids[p] < n;
                int i = in ? offs[ids[p]]++ : -1;
                if (in)
                        perm[i] = (int)p;
                if (inv)
                        inv[p] = i;
        }
        for (int e = n; e > 0; e--)
                offs[e] = offs[e - 1];
        offs[0] = 0;
}

/* Row e of the result is the sum of prologue rows over bucket e, in order (0 where
 * empty; left out if the epilogue only adds): the gradient of a gather, without atomics.
 * A tile is one row e. */
TGC_INLINE void scatter_rows_task(long N, const int *perm, const int *offs, int adds, long e,
                                  const void *args, PrologueFn *prologue, EpilogueFn *epilogue)
{
        float sum[TGC_SEG], v[TGC_SEG];
        if (adds && offs[e] == offs[e + 1])
                return;
        EACH_SEG(c, n, N)
        {
                memset(sum, 0, sizeof sum);
                for (int i = offs[e]; i < offs[e + 1]; i++) {
                        prologue(args, perm[i], (int)c, (int)n, v);
                        for (long j = 0; j < n; j++)
                                sum[j] += v[j];
                }
                epilogue(args, e, (int)c, (int)n, sum);
        }
}

/* epilogue(t) = sum over j < k of gate[t*k + j] * prologue(t*k + j); gate NULL: ones.  A tile is
 * one t. */
TGC_INLINE void combine_task(int k, long N, const float *gate, long t, const void *args,
                             PrologueFn *prologue, EpilogueFn *epilogue)
{
        float sum[TGC_SEG], v[TGC_SEG];
        EACH_SEG(c, n, N)
        {
                memset(sum, 0, sizeof sum);
                for (int j = 0; j < k; j++) {
                        float g = gate ? gate[t * k + j] : 1.f;
                        prologue(args, t * k + j, (int)c, (int)n, v);
                        for (long i = 0; i < n; i++)
                                sum[i] += g * v[i];
                }
                epilogue(args, t, (int)c, (int)n, sum);
        }
}

#endif
