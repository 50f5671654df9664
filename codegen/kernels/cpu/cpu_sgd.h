/* cpu_sgd.h: stochastic gradient descent with momentum, as torch.optim.SGD has it (dampening 0).
 *
 *      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *      g = g + weight_decay * p                        where weights decay
 *      m = beta1 * m + g
 *      p = p - lr * m */
#ifndef TGC_CPU_SGD_H
#define TGC_CPU_SGD_H

#include "cpu_update.h"

TGC_INLINE void sgd_task(const Rt *rt, float *param, float *m, const float *grad, void *low,
                         int low_ty, long n, long n_decay, const float *norm, long tile)
{
        const float scale = clip_factor(rt, norm);
        if (scale < 0.f)
                return;
        const UpdateSpan t = update_span(n, n_decay, tile);
        float momentum = rt->beta1, lr = rt->lr;
        for (int part = 0; part < 2; part++) { /* first what decays */
                long b = part ? t.decay : t.begin, e = part ? t.end : t.decay;
                float wd = part ? 0.f : rt->weight_decay;
                for (long i = b; i < e; i++) {
                        m[i] = momentum * m[i] + (grad[i] * scale + wd * param[i]);
                        param[i] -= lr * m[i];
                }
        }
        round_tile(t, param, low, low_ty);
}

#endif
