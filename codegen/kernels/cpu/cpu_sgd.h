/* cpu_sgd.h: stochastic gradient descent with momentum, as torch.optim.SGD has it (dampening 0).
 *
 *      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *      g = g + weight_decay * p                        where weights decay
 *      m = beta1 * m + g
 *      p = p - lr * m */
#ifndef TGC_CPU_SGD_H
#define TGC_CPU_SGD_H

#include "cpu_update.h"

TGC_INLINE void sgd_rule(const Rt *rt, float *restrict p, float *const s[2],
                         const float *restrict g, long n, float scale, int decay)
{
        float *restrict m = s[0];
        const float momentum = rt->beta1, lr = rt->lr, wd = decay ? rt->weight_decay : 0.f;
        for (long i = 0; i < n; i++) {
                m[i] = momentum * m[i] + (g[i] * scale + wd * p[i]);
                p[i] -= lr * m[i];
        }
}

#endif
