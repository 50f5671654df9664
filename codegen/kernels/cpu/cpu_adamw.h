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

TGC_INLINE void adamw_rule(const Rt *rt, float *restrict p, float *const s[2],
                           const float *restrict g, long n, float scale, int decay)
{
        float *restrict m = s[0], *restrict v = s[1];
        const float a1 = 1.f - rt->beta1, b2 = rt->beta2, a2 = 1.f - rt->beta2, eps = rt->eps;
        const float step = rt->lr / rt->bias1, root = sqrtf(rt->bias2),
                    keep = decay ? 1.f - rt->lr * rt->weight_decay : 1.f;
        for (long i = 0; i < n; i++) {
                float x = g[i] * scale;
                float mi = m[i] + a1 * (x - m[i]);
                float vi = b2 * v[i] + a2 * x * x;
                m[i] = mi;
                v[i] = vi;
                p[i] = p[i] * keep - step * mi / (sqrtf(vi) / root + eps);
        }
}

#endif
