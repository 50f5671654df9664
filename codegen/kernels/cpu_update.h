/* cpu_update.h: the gradient norm and AdamW over flat arenas.  A tile is UPDATE_TILE
 * elements. */
#ifndef TGC_CPU_UPDATE_H
#define TGC_CPU_UPDATE_H

#include "tgc.h"

enum { UPDATE_TILE = 16384 };
TGC_INLINE long update_tiles(long n);

/* partial[tile] = sum of squares of g, in double; then the norm of all, with one thread. */
TGC_INLINE void grad_norm_task(const float *g, long n, double *partial, long tile);
TGC_INLINE void grad_norm_finish(const double *partial, long n, float *norm);

/* PyTorch's AdamW with rt's lr, betas, eps, weight_decay, bias1, bias2; decay for the
 * first n_decay elements.  norm: scaled by min(1, clip/(norm + 1e-6)) where rt->clip > 0;
 * a norm that is not finite leaves everything as it was and sets *flag to 1 (flag may be
 * NULL).  norm NULL: neither.  copy: the rounded parameters in type copy_ty, or NULL. */
TGC_INLINE void adamw_task(float *param, const float *grad, float *m, float *v, long n, long n_decay,
                           void *copy, int copy_ty, const float *norm, int *flag, const Rt *rt, long tile);

#endif
