/* cpu_adamw.h: the gradient norm and AdamW over flat arenas.  A tile is UPDATE_TILE
 * elements. */
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

/* AdamW (Loshchilov and Hutter, ICLR 2019) in PyTorch's order of operations:
 *
 *      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *      p = p * (1 - lr * weight_decay)                 for elements below n_decay
 *      m = m + (1 - beta1) * (g - m)
 *      v = beta2 * v + (1 - beta2) * g * g
 *      p = p - lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps)
 *
 * If *norm is not finite nothing is changed.  norm may be NULL: no clipping, no test.  low: p
 * rounded to low_ty, or NULL. */
TGC_INLINE void adamw_task(const Rt *rt, float *param, float *m, float *v, const float *grad,
                           void *low, int low_ty, long n, long n_decay, const float *norm,
                           long tile)
{
        float scale = 1.f;
        if (norm) {
                if (!(*norm < INFINITY))
                        return;
                if (rt->clip > 0.f)
                        scale = rt->clip / (*norm + 1e-6f);
                scale = scale < 1.f ? scale : 1.f;
        }
        float a1 = 1.f - rt->beta1, b2 = rt->beta2, a2 = 1.f - rt->beta2, eps = rt->eps;
        float step = rt->lr / rt->bias1, root = sqrtf(rt->bias2),
              keep = 1.f - rt->lr * rt->weight_decay;
        long at = tile * UPDATE_TILE, end = tgc_min(n, at + UPDATE_TILE);
        for (long part = 0; part < 2; part++) { /* first what decays */
                long b = part ? tgc_max(at, n_decay) : at, e = part ? end : tgc_min(end, n_decay);
                float k = part ? 1.f : keep;
                for (long i = b; i < e; i++) {
                        float g = grad[i] * scale;
                        float mi = m[i] + a1 * (g - m[i]);
                        float vi = b2 * v[i] + a2 * g * g;
                        m[i] = mi;
                        v[i] = vi;
                        param[i] = param[i] * k - step * mi / (sqrtf(vi) / root + eps);
                }
        }
        if (low)
                for (long i = at; i < end; i += TGC_SEG)
                        ty_store(low_ty, low, i, param + i, (int)tgc_min(end - i, TGC_SEG));
}

#endif
