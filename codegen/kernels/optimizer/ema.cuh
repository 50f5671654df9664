/* ema.cuh: exponential moving average of the parameters (Polyak and Juditsky, 1992).
 *
 *      ema = ema + w * (p - ema)       w = rt->ema_weight = 1 - decay; 1: ema = p; 0: nothing
 *
 *      ema_task<THREADS>(rt, param, ema, n, norm, tile)
 *              after an optimiser step; if *norm is not finite, that step did nothing, nor does
 *              this
 *      ema_swap_task<THREADS>(param, ema, n, tile)
 *              exchanges the two
 *
 * param: update.cuh's Params or SplitParams; ema: n floats.  tiles: ceil(n / (THREADS * 4)). */
#ifndef TGC_EMA_CUH
#define TGC_EMA_CUH

#include "update.cuh"

/* As torch.lerp: exact at both ends. */
TGC_DEV float ema_lerp(float ema, float p, float w)
{
        return w < 0.5f ? ema + w * (p - ema) : p - (p - ema) * (1.f - w);
}

template <int V, class Param>
TGC_DEV void ema_step(const Param &param, float *ema, long long i, float w)
{
        float p[V], a[V];
        param.get(p, i);
        load<V>(a, ema + i);
#pragma unroll
        for (int j = 0; j < V; j++)
                a[j] = ema_lerp(a[j], p[j], w);
        store<V>(ema + i, a);
}

template <int THREADS, class Param>
TGC_DEV void ema_task(const Rt *rt, const Param &param, float *ema, long long n, const float *norm,
                      int tile)
{
        long long i = ((long long)tile * THREADS + threadIdx.x) * 4;
        const float w = rt->ema_weight;
        if (w == 0.f || !(*norm < INFINITY))
                return;
        if (i + 4 <= n)
                ema_step<4>(param, ema, i, w);
        else
                for (; i < n; i++)
                        ema_step<1>(param, ema, i, w);
}

template <int V, class Param>
TGC_DEV void ema_exchange(const Param &param, float *ema, long long i)
{
        float p[V], a[V];
        param.get(p, i);
        load<V>(a, ema + i);
        param.put(i, a);
        store<V>(ema + i, p);
}

template <int THREADS, class Param>
TGC_DEV void ema_swap_task(const Param &param, float *ema, long long n, int tile)
{
        long long i = ((long long)tile * THREADS + threadIdx.x) * 4;
        if (i + 4 <= n)
                ema_exchange<4>(param, ema, i);
        else
                for (; i < n; i++)
                        ema_exchange<1>(param, ema, i);
}

#endif
