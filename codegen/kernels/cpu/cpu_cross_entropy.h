/* cpu_cross_entropy.h: -log softmax(logits)[target]; a tile is one row of V logits.
 *
 * A target outside of 0..V-1 is ignored: loss 0, lse 0, gradient 0, and the prologue is not
 * called.  dloss(row, 0, 1, v) is a plain prologue: the factor of the row's gradient, including
 * the division by the token count. */
#ifndef TGC_CPU_CROSS_ENTROPY_H
#define TGC_CPU_CROSS_ENTROPY_H

#include "cpu_rows.h"

TGC_INLINE int ce_ignored(long V, int target) { return target < 0 || target >= V; }

TGC_INLINE void ce_zero(long V, long row, const void *args, EpilogueFn *epilogue)
{
        EACH_SEG(c, n, V)
        {
                float v[TGC_SEG];
                memset(v, 0, sizeof v); /* each time: the epilogue may change it */
                epilogue(args, row, (int)c, (int)n, v);
        }
}

/* The logit of the target and the log of the sum of exponentials. */
TGC_INLINE float ce_row(Row r, PrologueFn *prologue, long V, int target, float *lse)
{
        float m, buf[TGC_SEG], s = row_expsum(r, prologue, V, &m);
        *lse = (m == -INFINITY ? 0.f : m) + fast_logf(s);
        long c = target / TGC_SEG * TGC_SEG;
        return row_seg(r, prologue, c, tgc_min(V - c, TGC_SEG), buf)[target - c];
}

/* v[0..n), logits from column c on, become scale * (softmax - one_hot). */
TGC_INLINE void ce_grad_seg(float *v, long c, long n, int target, float lse, float scale)
{
        for (long i = 0; i < n; i++)
                v[i] = scale * (fast_exp_negf(v[i] - lse) - (c + i == target ? 1.f : 0.f));
}

/* loss[row], lse[row]; lse may be NULL. */
TGC_INLINE void ce_task(long V, const int *target, float *loss, float *lse, long row,
                        const void *args, PrologueFn *prologue)
{
        int t = target[row];
        float l = 0.f, z = 0.f;
        if (!ce_ignored(V, t)) {
                float x = ce_row(row_fetch(V, row, args, prologue, tgc_scratch, TGC_ROW_MAX),
                                 prologue, V, t, &z);
                l = z - x;
        }
        loss[row] = l;
        if (lse)
                lse[row] = z;
}

/* epilogue gets dloss * (softmax - one_hot), from the lse of ce_task. */
TGC_INLINE void ce_grad_task(long V, const int *target, const float *lse, long row,
                             const void *args, PrologueFn *prologue, PrologueFn *dloss,
                             EpilogueFn *epilogue)
{
        float v[TGC_SEG], scale;
        if (ce_ignored(V, target[row])) {
                ce_zero(V, row, args, epilogue);
                return;
        }
        dloss(args, row, 0, 1, &scale);
        EACH_SEG(c, n, V)
        {
                prologue(args, row, (int)c, (int)n, v);
                ce_grad_seg(v, c, n, target[row], lse[row], scale);
                epilogue(args, row, (int)c, (int)n, v);
        }
}

/* Both at once, the row read once (see TGC_ROW_MAX). */
TGC_INLINE void ce_both_task(long V, const int *target, float *loss, float *lse, long row,
                             const void *args, PrologueFn *prologue, PrologueFn *dloss,
                             EpilogueFn *epilogue)
{
        int t = target[row];
        float buf[TGC_SEG], scale, z = 0.f, l = 0.f;
        if (ce_ignored(V, t)) {
                ce_zero(V, row, args, epilogue);
        } else {
                Row r = row_fetch(V, row, args, prologue, tgc_scratch, TGC_ROW_MAX);
                l = -ce_row(r, prologue, V, t, &z);
                l += z;
                dloss(args, row, 0, 1, &scale);
                EACH_SEG(c, n, V)
                {
                        float *v = row_seg(r, prologue, c, n, buf);
                        ce_grad_seg(v, c, n, t, z, scale);
                        epilogue(args, row, (int)c, (int)n, v);
                }
        }
        loss[row] = l;
        if (lse)
                lse[row] = z;
}

#endif
