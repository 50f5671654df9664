/* cpu_update.h: the end of a training step over flat arenas: gradient norm, then one step of a
 * rule (of ir/optimizers.def: cpu_KERNEL.h).  A tile is UPDATE_TILE elements.
 *
 * A rule changes n parameters p and their states s by gradients g.  decay: they have weight decay.
 * scale: the factor that clips the gradient and removes the loss's scale.
 *
 * Parameters are float32, with or without a rounded 16-bit copy; or 16 bits alone, rounded in each
 * step to nearest, or stochastically (unbiased, so that small steps count on average). */
#ifndef TGC_CPU_UPDATE_H
#define TGC_CPU_UPDATE_H

#include "cpu_math.h"
#include "cpu_tgc.h"

enum { UPDATE_TILE = 16384 };
TGC_INLINE long update_tiles(long n) { return tgc_ceil_div(n, UPDATE_TILE); }

/* partial[tile] = sum of squares of g's tile, in double; partial: double (update_tiles(n)). */
TGC_INLINE void sumsq_task(const float *g, long n, double *partial, long tile)
{
        double s[8] = { 0 }, t = 0.;
        long i = tile * UPDATE_TILE, end = tgc_min(n, i + UPDATE_TILE);
        for (; i + 8 <= end; i += 8)
                for (int l = 0; l < 8; l++)
                        s[l] += (double)g[i + l] * (double)g[i + l];
        for (; i < end; i++)
                t += (double)g[i] * (double)g[i];
        for (int l = 0; l < 8; l++)
                t += s[l];
        partial[tile] = t;
}

/* *norm = sqrt of the sum of partial; *flag = 1 if that is not finite, 2 if it is a spike
 * (update.cuh), else 0.  One tile. */
TGC_INLINE void norm_finish_task(const Rt *rt, const double *partial, long tiles, float *norm,
                                 int *flag)
{
        double s = 0.;
        for (long i = 0; i < tiles; i++)
                s += partial[i];
        *norm = (float)sqrt(s);
        *flag = !(*norm < INFINITY);
        if (rt->most_norm > 0.f && !*flag && *norm * rt->unscale > rt->most_norm) {
                *norm = INFINITY;
                *flag = 2;
        }
}

/* The factor that clips the gradient and removes the loss's scale; below 0: the step is bad. */
TGC_INLINE float clip_factor(const Rt *rt, const float *norm)
{
        if (!norm)
                return rt->unscale;
        if (!(*norm < INFINITY))
                return -1.f;
        float clip = rt->clip > 0.f ? rt->clip / (*norm * rt->unscale + 1e-6f) : 1.f;
        return rt->unscale * (clip < 1.f ? clip : 1.f);
}

typedef void UpdateRule(const Rt *rt, float *restrict p, float *const s[2], const float *restrict g,
                        long n, float scale, int decay);

typedef struct UpdateParams {
        float *f32;     /* or NULL: only low exists */
        void *low;      /* or NULL */
        int low_ty;     /* TY_BF16 or TY_F16 */
        int stochastic; /* stochastic rounding where f32 is NULL; bf16 only */
} UpdateParams;

#define ROUND_ID 0x726f756eu

/* Rounds v to bf16 elements low[i..i+n) stochastically, unbiased. */
TGC_INLINE void store_stochastic(const Rt *rt, bf16 *low, long i, const float *v, long n)
{
        uint32_t c[4] = { 0 };
        for (long j = 0; j < n; j++) {
                uint64_t at = (uint64_t)(i + j);
                if (j == 0 || (at & 3) == 0) {
                        c[0] = (uint32_t)(at >> 2), c[1] = (uint32_t)(at >> 34);
                        c[2] = ROUND_ID, c[3] = (uint32_t)rt->step;
                        philox(c, rt->seed[0], rt->seed[1]);
                }
                uint32_t bits;
                memcpy(&bits, v + j, 4);
                bits += c[at & 3] >> 16;
                uint16_t high = (uint16_t)(bits >> 16);
                memcpy(low + i + j, &high, 2);
        }
}

/* One step of elements [i, i + n), with states and gradients.  Elements below n_decay have weight
 * decay. */
TGC_INLINE void update_span(const Rt *rt, UpdateParams to, float *const state[2], const float *grad,
                            long i, long n, long n_decay, float scale, UpdateRule *rule)
{
        for (long j = 0, k; j < n; j += k) {
                float low[TGC_SEG], *p = to.f32 ? to.f32 + i + j : low;
                const int decay = i + j < n_decay;
                k = tgc_min(decay ? tgc_min(n, n_decay - i) - j : n - j, TGC_SEG);
                if (!to.f32)
                        ty_load(to.low_ty, p, to.low, i + j, (int)k);
                rule(rt, p, (float *const[2]) { state[0] + j, state[1] ? state[1] + j : NULL },
                     grad + j, k, scale, decay);
                if (to.low && !to.f32 && to.stochastic)
                        store_stochastic(rt, to.low, i + j, p, k);
                else if (to.low)
                        ty_store(to.low_ty, to.low, i + j, p, (int)k);
        }
}

/* One step over a tile.  If *norm is not finite nothing changes.  norm may be NULL: no clipping,
 * no test. */
TGC_INLINE void update_task(const Rt *rt, UpdateParams to, float *const state[2], const float *grad,
                            long n, long n_decay, const float *norm, long tile, UpdateRule *rule)
{
        const float scale = clip_factor(rt, norm);
        const long i = tile * UPDATE_TILE;
        if (scale >= 0.f)
                update_span(rt, to,
                            (float *const[2]) { state[0] + i, state[1] ? state[1] + i : NULL },
                            grad + i, i, tgc_min(n - i, UPDATE_TILE), n_decay, scale, rule);
}

#endif
