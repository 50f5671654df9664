/* update_runs.h: a tile of the gradients' norm and of AdamW, as tests and benches launch them. */
#ifndef TGC_UPDATE_RUNS_H
#define TGC_UPDATE_RUNS_H

#include "adamw.cuh"

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

template <class Param>
struct AdamwRun {
        const Rt *rt;
        Param param;
        float *m, *v;
        Grads g;
        long long n_decay;
        const float *norm;
        __device__ void operator()(int tile, char *) const
        {
                adamw_task<256>(rt, param, m, v, g, n_decay, norm, tile);
        }
};

#endif
