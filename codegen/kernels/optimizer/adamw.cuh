/* adamw.cuh: AdamW (Loshchilov and Hutter, ICLR 2019) in PyTorch's order of operations.
 *
 *      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *      p = p * (1 - lr * weight_decay)                 where weights decay
 *      m = m + (1 - beta1) * (g - m)
 *      v = beta2 * v + (1 - beta2) * g * g
 *      p = p - lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps) */
#ifndef TGC_ADAMW_CUH
#define TGC_ADAMW_CUH

#include "update.cuh"

struct AdamW {
        enum { STATES = 2 }; /* m, v */
        float grad, keep, beta1, beta2, rate, inv_root2, eps;

        __device__ AdamW(const Rt *rt)
        {
                keep = 1.f - rt->lr * rt->weight_decay;
                beta1 = rt->beta1;
                beta2 = rt->beta2;
                rate = rt->lr / rt->bias1;
                inv_root2 = 1.f / sqrtf(rt->bias2);
                eps = rt->eps;
        }
        __device__ void element(float &p, float (&s)[STATES], float g, bool decay) const
        {
                g *= grad;
                if (decay)
                        p *= keep;
                s[0] += (1.f - beta1) * (g - s[0]);
                s[1] = beta2 * s[1] + (1.f - beta2) * g * g;
                p -= rate * __fdividef(s[0], fast_sqrt(s[1]) * inv_root2 + eps);
        }
};

#endif
