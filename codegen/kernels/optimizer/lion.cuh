/* lion.cuh: Lion (Chen et al., NeurIPS 2023): the sign of a momentum.
 *
 *      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *      p = p * (1 - lr * weight_decay)                 where weights decay
 *      p = p - lr * sign(beta1 * m + (1 - beta1) * g)
 *      m = beta2 * m + (1 - beta2) * g */
#ifndef TGC_LION_CUH
#define TGC_LION_CUH

#include "update.cuh"

struct Lion {
        enum { STATES = 1 }; /* m */
        float grad, keep, beta1, beta2, lr;

        __device__ Lion(const Rt *rt)
        {
                keep = 1.f - rt->lr * rt->weight_decay;
                beta1 = rt->beta1;
                beta2 = rt->beta2;
                lr = rt->lr;
        }
        __device__ void element(float &p, float (&s)[STATES], float g, bool decay) const
        {
                g *= grad;
                if (decay)
                        p *= keep;
                float u = beta1 * s[0] + (1.f - beta1) * g;
                p -= u > 0.f ? lr : u < 0.f ? -lr : 0.f;
                s[0] = beta2 * s[0] + (1.f - beta2) * g;
        }
};

#endif
