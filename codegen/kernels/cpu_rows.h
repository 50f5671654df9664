/* cpu_rows.h: what runs along the last axis (norms, softmax, reductions), plain maps,
 * and sums down the columns. A tile is one row, except where said.
 *
 * N may be a run-time value.  Rows longer than TGC_ROW_MAX ask the head twice. */
#ifndef TGC_CPU_ROWS_H
#define TGC_CPU_ROWS_H

#include "cpu_math.h"
#include "cpu_matvec.h"                 /* NORM_RMS, NORM_LAYER */

/* tail gets (x - mean) * rstd; RMS: mean = 0, rstd = 1/sqrt(mean(x^2) + eps).  mean and
 * rstd, one value per row, are stored where not NULL. */
TGC_INLINE void norm_task(int kind, long N, float eps, float *mean, float *rstd, long row,
                          const void *args, HeadFn head, TailFn tail);
/* Two sources: x from head_x, g (gradient of the standardised value, gain already
 * multiplied in) from head_g; tail gets rstd * (g - [mean(g)] - xhat * mean(g * xhat)).
 * mean, rstd: what norm_task stored; rstd NULL: computed again from x. */
TGC_INLINE void norm_grad_task(int kind, long N, float eps, const float *mean, const float *rstd, long row,
                               const void *args, HeadFn head_x, HeadFn head_g, TailFn tail);

/* -inf everywhere gives 0. */
TGC_INLINE void softmax_task(long N, long row, const void *args, HeadFn head, TailFn tail);
/* y from head_y, dy from head_dy; tail gets y * (dy - sum(y*dy)). */
TGC_INLINE void softmax_grad_task(long N, long row, const void *args, HeadFn head_y, HeadFn head_dy, TailFn tail);

/* One value per row: tail(row, 0, 1, v).  N = 0: 0, -inf, -inf. */
enum { REDUCE_SUM, REDUCE_MAX, REDUCE_LOGSUMEXP };
TGC_INLINE void reduce_task(int kind, long N, long row, const void *args, HeadFn head, TailFn tail);
/* Index of the largest, the first of equals; NaN is never the largest. */
TGC_INLINE int argmax_task(long N, long row, const void *args, HeadFn head);

/* body(args, row, col, n, v) loads, computes and stores by itself; v is scratch.  A
 * tile is a run of rows of about MAP_TILE elements, or part of one long row. */
TGC_INLINE long map_tiles(long rows, long N);
TGC_INLINE void map_task(long rows, long N, long tile, const void *args, HeadFn body);

/* Sums over all rows; a tile is a strip of columns: tail(0, col, n, v). */
TGC_INLINE long column_sum_tiles(long N);
TGC_INLINE void column_sum_task(long rows, long N, long tile, const void *args, HeadFn head, TailFn tail);

#endif
