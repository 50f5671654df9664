/* cpu_lion.h: Lion (Chen et al., NeurIPS 2023): the sign of a momentum.
 *
 *      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *      p = p * (1 - lr * weight_decay)                 where weights decay
 *      p = p - lr * sign(beta1 * m + (1 - beta1) * g)
 *      m = beta2 * m + (1 - beta2) * g */
#ifndef TGC_CPU_LION_H
#define TGC_CPU_LION_H

#include "cpu_update.h"

TGC_INLINE void lion_rule(const Rt *rt, float *restrict p, float *const s[2],
                          const float *restrict g, long n, float scale, int decay)
{
        float *restrict m = s[0];
        const float b1 = rt->beta1, a1 = 1.f - b1, b2 = rt->beta2, a2 = 1.f - b2, lr = rt->lr,
                    keep = decay ? 1.f - rt->lr * rt->weight_decay : 1.f;
        for (long i = 0; i < n; i++) {
                float x = g[i] * scale, u = b1 * m[i] + a1 * x;
                p[i] = p[i] * keep - (u > 0.f ? lr : u < 0.f ? -lr : 0.f);
                m[i] = b2 * m[i] + a2 * x;
        }
}

#endif
