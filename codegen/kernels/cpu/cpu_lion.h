/* cpu_lion.h: Lion (Chen et al., NeurIPS 2023): the sign of a momentum.
 *
 *      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *      p = p * (1 - lr * weight_decay)                 where weights decay
 *      p = p - lr * sign(beta1 * m + (1 - beta1) * g)
 *      m = beta2 * m + (1 - beta2) * g */
#ifndef TGC_CPU_LION_H
#define TGC_CPU_LION_H

#include "cpu_update.h"

TGC_INLINE void lion_task(const Rt *rt, float *param, float *m, const float *grad, void *low,
                          int low_ty, long n, long n_decay, const float *norm, long tile)
{
        const float scale = clip_factor(rt, norm);
        if (scale < 0.f)
                return;
        const UpdateSpan t = update_span(n, n_decay, tile);
        float b1 = rt->beta1, a1 = 1.f - b1, b2 = rt->beta2, a2 = 1.f - b2, lr = rt->lr,
              keep = 1.f - rt->lr * rt->weight_decay;
        for (int part = 0; part < 2; part++) { /* first what decays */
                long b = part ? t.decay : t.begin, e = part ? t.end : t.decay;
                float k = part ? 1.f : keep;
                for (long i = b; i < e; i++) {
                        float g = grad[i] * scale, u = b1 * m[i] + a1 * g;
                        param[i] = param[i] * k - (u > 0.f ? lr : u < 0.f ? -lr : 0.f);
                        m[i] = b2 * m[i] + a2 * g;
                }
        }
        round_tile(t, param, low, low_ty);
}

#endif
