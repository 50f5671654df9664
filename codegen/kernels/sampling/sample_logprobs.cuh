/* sample_logprobs.cuh: log-softmax of the chosen token and of the likeliest ones.
 *
 * It uses the model's own logits, before masks, penalties and temperature. */
#ifndef TGC_SAMPLE_LOGPROBS_CUH
#define TGC_SAMPLE_LOGPROBS_CUH

#include "sample_view.cuh"

/* x: V finite or -infinite logits, max the largest.  n: alternatives. */
template <int V, int THREADS>
TGC_DEV void sample_logprobs(RtDrawn *d, float *x, float max, int token, int n, const SampleSmem &m)
{
        float sum = 0.f, best = -INFINITY;
#pragma unroll 4
        for (int i = (int)threadIdx.x; i < V; i += THREADS) {
                sum += expf(x[i] - max);
                best = fmaxf(best, x[i]);
        }
        const float log_z = logf(block_sum<THREADS>(sum, (float *)m.red));
        n = n < V ? n < RT_LOGPROBS ? n : RT_LOGPROBS : V;
        SampleView all = { x, 0, 0, V };
        const SampleView view = n > 0 ? sample_narrow<THREADS, false>(all, best, (u64)n, max, m)
                                      : all;
        u64 last = ~(u64)0;
        for (int k = 0; k < n; k++) {
                u64 most = 0;
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS) {
                        const u64 key = order_key_at(view.at(i), view.index(i));
                        most = key < last && key > most ? key : most;
                }
                last = block_max_u64<THREADS>(most, m.red);
                if (threadIdx.x == 0) {
                        d->best[k] = order_index(last);
                        d->best_logprob[k] = order_value((unsigned)(last >> 32)) - max - log_z;
                }
        }
        if ((int)threadIdx.x >= n && threadIdx.x < RT_LOGPROBS)
                d->best[threadIdx.x] = -1;
        if (threadIdx.x == 0)
                d->logprob = x[token] - max - log_z;
        __syncthreads();
}

#endif
