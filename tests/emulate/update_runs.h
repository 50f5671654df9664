/* update_runs.h: a tile of the gradients' norm and of a rule of the optimiser, as tests and benches
 * launch them. */
#ifndef TGC_UPDATE_RUNS_H
#define TGC_UPDATE_RUNS_H

#include "adamw8bit.cuh"
#include "ema.cuh"
#include "lion.cuh"
#include "sgd.cuh"

struct GradNormRun {
        const Rt *rt;
        Grads g;
        int tiles;
        float *partial;
        int *done;
        float *norm;
        int *flag;
        __device__ void operator()(int tile, char *smem) const
        {
                grad_norm_task<256>(rt, g, tile, tiles, partial, done, norm, flag, smem);
        }
};

template <class Rule, class Param, bool SCALED = false>
struct UpdateRun {
        const Rt *rt;
        Param param;
        States<Rule::STATES> states;
        Grads g;
        long long n_decay;
        const float *norm;
        __device__ void operator()(int tile, char *) const
        {
                update_task<256, Rule, SCALED>(rt, param, states, g, n_decay, norm, tile);
        }
};

template <class Param>
struct Adamw8Run {
        const Rt *rt;
        Param param;
        States8 states;
        const SmallState *small;
        int n_small;
        Grads g;
        long long n_decay;
        const float *norm;
        int tiles;
        __device__ void operator()(int tile, char *smem) const
        {
                adamw8bit_task<256, false>(rt, param, states, small, n_small, g, n_decay, norm,
                                           tile, tiles, smem);
        }
};

#endif
