/* cpu_muon.h: Muon for one matrix (formula: kernels/optimizer/muon.cuh).  A tile is some rows;
 * muon_tiles of them.  partial: a double per tile. */
#ifndef TGC_CPU_MUON_H
#define TGC_CPU_MUON_H

#include "cpu_update.h"

#define MUON_MU 0.95f

typedef struct MuonMatrix {
        long first, ld, rows, cols; /* element (r, c) is first + r * ld + c of the arenas */
} MuonMatrix;

enum { MUON_ROWS = 32 };
TGC_INLINE long muon_tiles(long rows) { return tgc_ceil_div(rows, MUON_ROWS); }

TGC_INLINE void muon_momentum_task(const Rt *rt, MuonMatrix w, const float *g, float *m, bf16 *x,
                                   double *partial, const float *norm, long tile)
{
        const float scale = clip_factor(rt, norm);
        double sum = 0.;
        for (long r = tile * MUON_ROWS, end = tgc_min(w.rows, r + MUON_ROWS); r < end; r++)
                for (long c = 0; c < w.cols; c++) {
                        const long at = w.first + r * w.ld + c;
                        float u = 0.f;
                        if (scale >= 0.f) {
                                const float d = scale * g[at];
                                m[at] += (1.f - MUON_MU) * (d - m[at]);
                                u = m[at] - (m[at] - d) * (1.f - MUON_MU);
                        }
                        x[r * w.cols + c] = bf16_from_float(u);
                        u = bf16_to_float(x[r * w.cols + c]);
                        sum += (double)u * (double)u;
                }
        partial[tile] = sum;
}

TGC_INLINE void muon_scale_task(MuonMatrix w, bf16 *x, const double *partial, long tile)
{
        double sum = 0.;
        for (long i = 0; i < muon_tiles(w.rows); i++)
                sum += partial[i];
        const float length = (float)sqrt(sum), scale = 1.f / (length > 1e-7f ? length : 1e-7f);
        const long begin = tile * MUON_ROWS * w.cols,
                   end = tgc_min(w.rows, (tile + 1) * MUON_ROWS) * w.cols;
        for (long i = begin; i < end; i++)
                x[i] = bf16_from_float(bf16_to_float(x[i]) * scale);
}

TGC_INLINE void muon_apply_task(const Rt *rt, MuonMatrix w, UpdateParams to, const bf16 *x,
                                float factor, int decays, const float *norm, long tile)
{
        const float keep = decays ? 1.f - rt->lr * rt->weight_decay : 1.f;
        if (!(*norm < INFINITY))
                return;
        for (long r = tile * MUON_ROWS, end = tgc_min(w.rows, r + MUON_ROWS); r < end; r++)
                for (long c = 0, n; c < w.cols; c += n) {
                        float low[TGC_SEG];
                        const long at = w.first + r * w.ld + c;
                        n = tgc_min(w.cols - c, TGC_SEG);
                        float *p = to.f32 ? to.f32 + at : low;
                        if (!to.f32)
                                ty_load(to.low_ty, p, to.low, at, (int)n);
                        for (long j = 0; j < n; j++)
                                p[j] = p[j] * keep -
                                       rt->lr * factor * bf16_to_float(x[r * w.cols + c + j]);
                        if (to.low && !to.f32 && to.stochastic)
                                store_stochastic(rt, to.low, at, p, n);
                        else if (to.low)
                                ty_store(to.low_ty, to.low, at, p, (int)n);
                }
}

#endif
