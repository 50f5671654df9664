/* update.cuh: the optimiser over flat float32 arenas: gradient norm, then AdamW.
 *
 *      sumsq_task<THREADS>(g, n, tile, tiles, partial, smem)
 *              partial[tile] = sum of squares of its share of g.  tiles: fixed, 1056 at most.
 *      norm_finish_task<THREADS>(partial, tiles, norm, smem)        one tile
 *              *norm = sqrt(sum of partial).
 *      adamw_task<THREADS>(rt, param, m, v, grad, low, n, n_decay, norm, flag, tile)
 *              one step of AdamW (Loshchilov and Hutter, ICLR 2019) in PyTorch's order of operations:
 *                      g = grad * min(1, clip / (norm + 1e-6))         if clip > 0
 *                      p = p * (1 - lr * weight_decay)                 for elements below n_decay
 *                      m = m + (1 - beta1) * (g - m)
 *                      v = beta2 * v + (1 - beta2) * g * g
 *                      p = p - lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps)
 *              low (bf16, f16 or float; may be null) gets p rounded to nearest even.  If *norm is
 *              not finite nothing is changed and *flag becomes 1, so that a bad step cannot spoil
 *              the weights; flag is never set to 0 here.  norm may be null: no clipping, no test.
 *              tiles: ceil(n / (THREADS * ADAMW_PER_THREAD)).
 *
 * Arenas are aligned to 16 bytes; n is arbitrary.  THREADS: 256.  shared memory: UPDATE_SMEM. */
#ifndef TGC_UPDATE_CUH
#define TGC_UPDATE_CUH

#include "tgc.cuh"

#define UPDATE_SMEM 256
#define ADAMW_PER_THREAD 4

template <int THREADS>
TGC_DEV void sumsq_task(const float *g, long long n, int tile, int tiles, float *partial, char *smem);

template <int THREADS>
TGC_DEV void norm_finish_task(const float *partial, int tiles, float *norm, char *smem);

template <int THREADS, class Low>
TGC_DEV void adamw_task(const Rt *rt, float *param, float *m, float *v, const float *grad, Low *low, long long n,
                        long long n_decay, const float *norm, int *flag, int tile);

#endif
