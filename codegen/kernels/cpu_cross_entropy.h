/* cpu_cross_entropy.h: -log softmax(logits)[target], a tile is one row of V logits.
 *
 * A target outside of 0..V-1 is ignored: loss 0, gradient 0. */
#ifndef TGC_CPU_CROSS_ENTROPY_H
#define TGC_CPU_CROSS_ENTROPY_H

#include "cpu_rows.h"

/* loss[row], lse[row] (log of the sum of exponentials); lse may be NULL. */
TGC_INLINE void ce_task(long V, const int *target, float *loss, float *lse, long row, const void *args, HeadFn head);
/* tail gets scale[row] * (softmax - one_hot); scale_stride 0: one scale for all rows. */
TGC_INLINE void ce_grad_task(long V, const int *target, const float *lse, const float *scale, long scale_stride,
                             long row, const void *args, HeadFn head, TailFn tail);
/* Both at once: the row is read once.  tail gets scale * (softmax - one_hot). */
TGC_INLINE void ce_both_task(long V, const int *target, float *loss, float *lse, float scale,
                             long row, const void *args, HeadFn head, TailFn tail);

#endif
