/* muon.cuh: Muon (Jordan et al., 2024), in PyTorch's order of operations, for matrices of rows x
 * cols elements, rows ld apart, each from its `first` on.  The Newton-Schulz iteration runs
 * between these tasks, as GEMMs (codegen/ops/muon.c).  x has the matrices stacked.
 *
 *      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *      m = m + (1 - MU) * (g - m)
 *      x = bf16(g + MU * (m - g))                      Nesterov momentum
 *      x = x / max(|x|, 1e-7), bf16                    Frobenius norm
 *      x = 5 times: G = x x^T, x = A x + (B G + C G G) x, all bf16
 *      p = p * (1 - lr * weight_decay) - lr * 0.2 sqrt(max(rows, cols)) * x
 *
 * muon_momentum_task: m, x and partial[tile], sums of squares of x.  muon_scale_task: x.
 * muon_apply_task: p.  each: tiles per matrix; partial has room for all.  V elements at a time: V
 * divides cols, ld and every `first`.  If *norm is not finite nothing changes. */
#ifndef TGC_MUON_CUH
#define TGC_MUON_CUH

#include "update.cuh"

#define MUON_MU 0.95f

struct MuonMatrices {
        const long long *first;
        long long ld, n; /* n: rows * cols */
        int cols;
        __device__ long long at(int z, long long i) const
        {
                return first[z] + i / cols * ld + i % cols;
        }
};

template <int V>
TGC_DEV void grad_at(const Rt *rt, const Grads &g, long long i, float (&v)[V])
{
        if (i >= g.n_low)
                load<V>(v, g.rest + (i - g.n_low));
        else if (rt->n_micro > 1)
                load<V>(v, g.sum + i);
        else
                load<V>(v, g.low + i);
}

template <int THREADS, int V, bool SCALED>
TGC_DEV void muon_momentum_task(const Rt *rt, const MuonMatrices &w, const Grads &g, float *m,
                                bf16 *x, float *partial, const float *norm, int tile, int each,
                                char *smem)
{
        const int z = tile / each;
        float grad, sum = 0.f;
        const bool good = clip_factor<SCALED>(rt, norm, grad);
        x += z * w.n;
#pragma unroll 2
        for (long long i = ((long long)(tile - z * each) * THREADS + threadIdx.x) * V; i < w.n;
             i += (long long)each * THREADS * V) {
                const long long at = w.at(z, i);
                float u[V] = {}, d[V], now[V];
                if (good) {
                        grad_at<V>(rt, g, at, d);
                        load<V>(now, m + at);
#pragma unroll
                        for (int j = 0; j < V; j++) {
                                d[j] *= grad;
                                now[j] += (1.f - MUON_MU) * (d[j] - now[j]);
                                u[j] = now[j] - (now[j] - d[j]) * (1.f - MUON_MU);
                        }
                        store<V>(m + at, now);
                }
#pragma unroll
                for (int j = 0; j < V; j++) {
                        bf16 low;
                        from_float(&low, u[j]);
                        u[j] = to_float(low);
                        sum += u[j] * u[j];
                }
                store<V>(x + i, u);
        }
        sum = block_sum<THREADS>(sum, (float *)smem);
        if (threadIdx.x == 0)
                partial[tile] = sum;
}

template <int THREADS, int V>
TGC_DEV void muon_scale_task(const MuonMatrices &w, bf16 *x, const float *partial, int tile,
                             int each, char *smem)
{
        const int z = tile / each;
        float sum = 0.f;
        for (int i = (int)threadIdx.x; i < each; i += THREADS)
                sum += partial[z * each + i];
        sum = block_sum<THREADS>(sum, (float *)smem);
        const float scale = 1.f / fmaxf(sqrtf(sum), 1e-7f);
        x += z * w.n;
#pragma unroll 2
        for (long long i = ((long long)(tile - z * each) * THREADS + threadIdx.x) * V; i < w.n;
             i += (long long)each * THREADS * V) {
                float v[V];
                load<V>(v, x + i);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] *= scale;
                store<V>(x + i, v);
        }
}

template <int THREADS, int V, class Param>
TGC_DEV void muon_apply_task(const Rt *rt, const MuonMatrices &w, const Param &param, const bf16 *x,
                             float factor, bool decays, const float *norm, int tile, int each)
{
        const int z = tile / each;
        const long long i = ((long long)(tile - z * each) * THREADS + threadIdx.x) * V;
        if (i >= w.n || !(*norm < INFINITY))
                return;
        const long long at = w.at(z, i);
        float p[V], v[V];
        param.get(p, at);
        load<V>(v, x + z * w.n + i);
#pragma unroll
        for (int j = 0; j < V; j++) {
                if (decays)
                        p[j] *= 1.f - rt->lr * rt->weight_decay;
                p[j] -= rt->lr * factor * v[j];
        }
        param.put(at, p);
}

#endif
