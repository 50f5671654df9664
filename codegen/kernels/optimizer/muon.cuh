/* muon.cuh: Muon (Jordan et al., 2024) for a matrix of rows x cols elements that lie ld apart row
 * by row from `first` on, in PyTorch's order of operations; Newton and Schulz's iteration lies
 * between the tasks, as products (codegen/ops/muon.c).
 *
 *      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *      m = m + (1 - MU) * (g - m)
 *      x = bf16(g + MU * (m - g))                      Nesterov's momentum
 *      x = x / max(|x|, 1e-7), bf16                    Frobenius' norm
 *      x = 5 times: G = x x^T, x = A x + (B G + C G G) x, all bf16
 *      p = p * (1 - lr * weight_decay) - lr * 0.2 sqrt(max(rows, cols)) * x
 *
 * muon_momentum_task: m, x and partial[tile], sums of squares of x; muon_scale_task: x;
 * muon_apply_task: p.  tiles: as many as partial has room for, MUON_TILES.  If *norm is not finite
 * nothing is changed. */
#ifndef TGC_MUON_CUH
#define TGC_MUON_CUH

#include "update.cuh"

#define MUON_MU 0.95f

struct MuonMatrix {
        long long first, ld, n; /* n: rows * cols */
        int cols;
        __device__ long long at(long long i) const { return first + i / cols * ld + i % cols; }
};

TGC_DEV float grad_at(const Rt *rt, const Grads &g, long long i)
{
        return i >= g.n_low ? g.rest[i - g.n_low] : rt->n_micro > 1 ? g.sum[i] : to_float(g.low[i]);
}

template <int THREADS, bool SCALED>
TGC_DEV void muon_momentum_task(const Rt *rt, const MuonMatrix &w, const Grads &g, float *m,
                                bf16 *x, float *partial, const float *norm, int tile, int tiles,
                                char *smem)
{
        float grad, sum = 0.f;
        const bool good = clip_factor<SCALED>(rt, norm, grad);
        for (long long i = (long long)tile * THREADS + threadIdx.x; i < w.n;
             i += (long long)tiles * THREADS) {
                const long long at = w.at(i);
                float u = 0.f;
                if (good) {
                        const float d = grad * grad_at(rt, g, at),
                                    now = m[at] + (1.f - MUON_MU) * (d - m[at]);
                        m[at] = now;
                        u = now - (now - d) * (1.f - MUON_MU);
                }
                const float v[1] = { u };
                store<1>(x + i, v);
                u = to_float(x[i]);
                sum += u * u;
        }
        sum = block_sum<THREADS>(sum, (float *)smem);
        if (threadIdx.x == 0)
                partial[tile] = sum;
}

template <int THREADS>
TGC_DEV void muon_scale_task(const MuonMatrix &w, bf16 *x, const float *partial, int parts,
                             int tile, int tiles, char *smem)
{
        float sum = 0.f;
        for (int i = (int)threadIdx.x; i < parts; i += THREADS)
                sum += partial[i];
        sum = block_sum<THREADS>(sum, (float *)smem);
        const float scale = 1.f / fmaxf(sqrtf(sum), 1e-7f);
        for (long long i = (long long)tile * THREADS + threadIdx.x; i < w.n;
             i += (long long)tiles * THREADS) {
                const float v[1] = { to_float(x[i]) * scale };
                store<1>(x + i, v);
        }
}

template <int THREADS, class Param>
TGC_DEV void muon_apply_task(const Rt *rt, const MuonMatrix &w, const Param &param, const bf16 *x,
                             float factor, bool decays, const float *norm, int tile)
{
        const long long i = (long long)tile * THREADS + threadIdx.x;
        if (i >= w.n || !(*norm < INFINITY))
                return;
        float p[1];
        param.get(p, w.at(i));
        if (decays)
                p[0] *= 1.f - rt->lr * rt->weight_decay;
        p[0] -= rt->lr * factor * to_float(x[i]);
        param.put(w.at(i), p);
}

#endif
