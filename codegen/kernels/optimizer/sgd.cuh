/* sgd.cuh: stochastic gradient descent with momentum, as torch.optim.SGD has it (dampening 0).
 *
 *      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *      g = g + weight_decay * p                        where weights decay
 *      m = beta1 * m + g
 *      p = p - lr * m */
#ifndef TGC_SGD_CUH
#define TGC_SGD_CUH

#include "update.cuh"

struct Sgd {
        enum { STATES = 1 }; /* m */
        float grad, decay_by, momentum, lr;

        __device__ Sgd(const Rt *rt)
        {
                decay_by = rt->weight_decay;
                momentum = rt->beta1;
                lr = rt->lr;
        }
        __device__ void element(float &p, float (&s)[STATES], float g, bool decay) const
        {
                g *= grad;
                if (decay)
                        g += decay_by * p;
                s[0] = momentum * s[0] + g;
                p -= lr * s[0];
        }
};

#endif
