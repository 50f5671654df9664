/* cpu_adamw.h: AdamW (Loshchilov and Hutter, ICLR 2019) in PyTorch's order of operations:
 *
 *      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *      p = p * (1 - lr * weight_decay)                 where weights decay
 *      m = m + (1 - beta1) * (g - m)
 *      v = beta2 * v + (1 - beta2) * g * g
 *      p = p - lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps) */
#ifndef TGC_CPU_ADAMW_H
#define TGC_CPU_ADAMW_H

#include "cpu_update.h"

TGC_INLINE void adamw_task(const Rt *rt, float *param, float *m, float *v, const float *grad,
                           void *low, int low_ty, long n, long n_decay, const float *norm,
                           long tile)
{
        const float scale = clip_factor(rt, norm);
        if (scale < 0.f)
                return;
        const UpdateSpan t = update_span(n, n_decay, tile);
        float a1 = 1.f - rt->beta1, b2 = rt->beta2, a2 = 1.f - rt->beta2, eps = rt->eps;
        float step = rt->lr / rt->bias1, root = sqrtf(rt->bias2),
              keep = 1.f - rt->lr * rt->weight_decay;
        for (int part = 0; part < 2; part++) { /* first what decays */
                long b = part ? t.decay : t.begin, e = part ? t.end : t.decay;
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
        round_tile(t, param, low, low_ty);
}

#endif
