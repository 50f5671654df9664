/* cpu_ema.h: exponential moving average of the parameters (formula: kernels/optimizer/ema.cuh).
 * Parameters are float32 (to.f32): an average in 16 bits would not move. */
#ifndef TGC_CPU_EMA_H
#define TGC_CPU_EMA_H

#include "cpu_update.h"

TGC_INLINE void ema_task(const Rt *rt, UpdateParams to, float *ema, long n, const float *norm,
                         long tile)
{
        const float w = rt->ema_weight;
        const long i = tile * UPDATE_TILE, end = tgc_min(n, i + UPDATE_TILE);
        const float *p = to.f32;
        if (w == 0.f || !(*norm < INFINITY))
                return;
        if (w < 0.5f)
                for (long k = i; k < end; k++)
                        ema[k] = ema[k] + w * (p[k] - ema[k]);
        else
                for (long k = i; k < end; k++)
                        ema[k] = p[k] - (p[k] - ema[k]) * (1.f - w);
}

/* Exchanges the two. */
TGC_INLINE void ema_swap_task(UpdateParams to, float *ema, long n, long tile)
{
        const long i = tile * UPDATE_TILE, end = tgc_min(n, i + UPDATE_TILE);
        for (long k = i; k < end; k++) {
                const float p = to.f32[k];
                to.f32[k] = ema[k];
                ema[k] = p;
        }
        for (long k = i; k < end && to.low; k += TGC_SEG)
                ty_store(to.low_ty, to.low, k, to.f32 + k, (int)tgc_min(end - k, TGC_SEG));
}

#endif
