/* cpu_update.h: the gradient norm over a flat arena, and what all rules of the update share.  A
 * tile is UPDATE_TILE elements.
 *
 * RULE_task(rt, param, states ..., grad, low, low_ty, n, n_decay, norm, tile), of cpu_adamw.h,
 * cpu_lion.h and cpu_sgd.h, does one step over a tile: the first n_decay elements have weight decay.
 * If *norm is not finite nothing is changed.  norm may be NULL: no clipping, no test.  low: param
 * rounded to low_ty, or NULL. */
#ifndef TGC_CPU_UPDATE_H
#define TGC_CPU_UPDATE_H

#include "cpu_tgc.h"

enum { UPDATE_TILE = 16384 };
TGC_INLINE long update_tiles(long n) { return tgc_ceil_div(n, UPDATE_TILE); }

/* partial[tile] = sum of squares of g's tile, in double; partial: double (update_tiles(n)). */
TGC_INLINE void sumsq_task(const float *g, long n, double *partial, long tile)
{
        double s[8] = { 0 }, t = 0.;
        long i = tile * UPDATE_TILE, end = tgc_min(n, i + UPDATE_TILE);
        for (; i + 8 <= end; i += 8)
                for (int l = 0; l < 8; l++)
                        s[l] += (double)g[i + l] * (double)g[i + l];
        for (; i < end; i++)
                t += (double)g[i] * (double)g[i];
        for (int l = 0; l < 8; l++)
                t += s[l];
        partial[tile] = t;
}

/* *norm = sqrt of the sum of partial; *flag = 1 if that is not finite, else 0.  One tile. */
TGC_INLINE void norm_finish_task(const double *partial, long tiles, float *norm, int *flag)
{
        double s = 0.;
        for (long i = 0; i < tiles; i++)
                s += partial[i];
        *norm = (float)sqrt(s);
        *flag = !(*norm < INFINITY);
}

/* The factor that clips the gradient and takes the loss's scale out of it; below 0: the step is bad. */
TGC_INLINE float clip_factor(const Rt *rt, const float *norm)
{
        if (!norm)
                return rt->unscale;
        if (!(*norm < INFINITY))
                return -1.f;
        float clip = rt->clip > 0.f ? rt->clip / (*norm * rt->unscale + 1e-6f) : 1.f;
        return rt->unscale * (clip < 1.f ? clip : 1.f);
}

/* Of a tile: where it begins, where weight decay ends, and where it ends. */
typedef struct UpdateSpan {
        long begin, decay, end;
} UpdateSpan;

TGC_INLINE UpdateSpan update_span(long n, long n_decay, long tile)
{
        long begin = tile * UPDATE_TILE, end = tgc_min(n, begin + UPDATE_TILE);
        return (UpdateSpan) { begin, tgc_max(begin, tgc_min(end, n_decay)), end };
}

TGC_INLINE void round_tile(UpdateSpan t, const float *param, void *low, int low_ty)
{
        if (low)
                for (long i = t.begin; i < t.end; i += TGC_SEG)
                        ty_store(low_ty, low, i, param + i, (int)tgc_min(t.end - i, TGC_SEG));
}

#endif
