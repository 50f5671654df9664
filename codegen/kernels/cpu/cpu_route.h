/* cpu_route.h: chooses experts, and moves rows to and from the experts' order.
 *
 * A token row t makes k pairs p = t*k + j, each with an id.  Buckets list the
 * pairs by id: those of id e are perm[offs[e]] .. perm[offs[e+1]-1], ascending. */
#ifndef TGC_CPU_ROUTE_H
#define TGC_CPU_ROUTE_H

#include "cpu_rows.h"

/* Index of the largest of those that follow value `last` at `at` in the order; ties: lowest index
 * first; NaN counts as -inf.  buf: see row_seg. */
TGC_INLINE long topk_next(Row r, PrologueFn *prologue, long N, float last, long at, float *buf,
                          float *value)
{
        long best = -1;
        EACH_SEG(c, n, N)
        {
                const float *v = row_seg(r, prologue, c, n, buf);
                for (long i = 0; i < n; i++) {
                        float x = v[i] == v[i] ? v[i] : -INFINITY;
                        if ((at < 0 || x < last || (x == last && c + i > at)) &&
                            (best < 0 || x > *value)) {
                                best = c + i;
                                *value = x;
                        }
                }
        }
        return best;
}

/* The k largest of a row, descending; ties: lowest index first; NaN counts as -inf.  ids (rows,
 * k), values (rows, k) or NULL; k <= N. */
TGC_INLINE void topk_task(long N, int k, float *values, int *ids, long row, const void *args,
                          PrologueFn *prologue)
{
        float buf[TGC_SEG], last = 0.f;
        Row r = row_fetch(N, row, args, prologue, tgc_scratch, TGC_ROW_MAX);
        long at = -1;
        for (int j = 0; j < k; j++) {
                float value = 0.f;
                at = topk_next(r, prologue, N, last, at, buf, &value);
                last = value;
                ids[row * k + j] = (int)at;
                if (values)
                        values[row * k + j] = value;
        }
}

/* topk_task's choice of logits, and its softmax over the row or, with renorm, over the choice. */
TGC_INLINE void route_task(long N, int k, int renorm, float *gates, int *ids, long row,
                           const void *args, PrologueFn *prologue)
{
        float buf[TGC_SEG], *gate = gates + row * k, all = 0;
        topk_task(N, k, gates, ids, row, args, prologue);
        float top = gate[0];
        for (int j = 0; renorm && j < k; j++)
                all += expf(gate[j] - top);
        /* topk_task left the row in scratch, unless it is too long */
        Row r = { args, prologue, row, N <= TGC_ROW_MAX ? tgc_scratch : 0 };
        EACH_SEG(c, n, renorm ? 0 : N)
        {
                const float *v = row_seg(r, prologue, c, n, buf);
                for (long i = 0; i < n; i++)
                        all += expf((v[i] == v[i] ? v[i] : -INFINITY) - top);
        }
        for (int j = 0; j < k; j++)
                gate[j] = expf(gate[j] - top) / all;
}

/* Gradient: zeros but for prologue(row, j) at ids[row*k + j]. */
TGC_INLINE void topk_grad_task(long N, int k, const int *ids, long row, const void *args,
                               PrologueFn *prologue, EpilogueFn *epilogue)
{
        float d[TGC_SEG], v[TGC_SEG];
        EACH_SEG(c, n, N)
        {
                memset(v, 0, sizeof v);
                EACH_SEG(j0, m, k)
                {
                        if (!c || k > TGC_SEG)
                                prologue(args, row, (int)j0, (int)m, d);
                        for (long j = 0; j < m; j++) {
                                long i = ids[row * k + j0 + j] - c;
                                if (i >= 0 && i < n)
                                        v[i] = d[j];
                        }
                }
                epilogue(args, row, (int)c, (int)n, v);
        }
}

/* Stable counting sort of P ids into n buckets: offs (n+1), perm (P, the first offs[n] written),
 * inv (P) the position of each pair in perm, -1 if dropped, or NULL.  Ids out of range are
 * dropped.  One tile. */
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

/* Row e of the result is the sum of prologue rows over bucket e, in order (0 if empty; skipped if
 * the epilogue only adds): the gradient of a gather, without atomics.  A tile is one row e. */
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
