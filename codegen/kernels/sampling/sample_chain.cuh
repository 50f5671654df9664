/* sample_chain.cuh: applies llama.cpp's samplers in the order that a sequence chooses, then draws.
 *
 * They work on a row y in global memory, later on a list of the tokens left.  With d = x - max
 * over the tokens left, w = weight(d), Z their sum, p = w / Z:
 *
 *      top_n_sigma   keeps d >= -n * standard deviation of x
 *      top_k         keeps the k largest, and ties with the last of them
 *      typ_p         m = sum of p * d; |d - m| is the distance of -log p from the entropy;
 *                    keeps the nearest whose p together exceed typical_p
 *      top_p         keeps the largest whose p together are at least top_p
 *      min_p         keeps d >= log(min_p)
 *      xtc           with xtc_probability: of those with p >= xtc_threshold keeps the least
 *      temperature   x / temp; with a range: temp - range + 2 * range * (entropy / log(number
 *                    left)) ^ exponent, not below 0; 0: keeps the first of the largest
 *
 * Ties are kept or dropped together.  Mirostat 2: temperature, then keeps -log2 p <= mu (at least
 * the largest), draws, and mu -= eta * (-log2 p' - tau), p' being relative to what was kept. */
#ifndef TGC_SAMPLE_CHAIN_CUH
#define TGC_SAMPLE_CHAIN_CUH

#include "sample_edit.cuh"

#define SAMPLE_LN2 0.69314718056f

template <int THREADS>
struct SampleChain {
        SampleView view;
        SampleSmem m;
        float max;

        __device__ SampleChain(float *y, int V, const SampleSmem &m) : view { y, 0, 0, V }, m(m)
        {
                find_max();
        }

        __device__ float own_max() const
        {
                float best = -INFINITY;
#pragma unroll 4
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS)
                        best = fmaxf(best, view.at(i));
                return best;
        }

        __device__ void find_max() { max = block_max<THREADS>(own_max(), (float *)m.red); }

        /* Keeps keys at or above t.  A short remainder becomes a list. */
        __device__ void keep(unsigned t)
        {
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS)
                        if (order_key(view.at(i)) < t)
                                view.set(i, -INFINITY);
                __syncthreads();
                if (view.val)
                        return;
                const int n = sample_gather<THREADS>(view, order_key(-INFINITY) + 1, m);
                if (n >= 0)
                        view = SampleView { view.x, m.val, m.idx, n };
        }

        __device__ void keep_from(float least) { keep(order_key(least)); }

        /* Goes back to the row in global memory. */
        template <int V>
        __device__ void spread()
        {
                if (!view.val)
                        return;
                for (int i = (int)threadIdx.x; i < V; i += THREADS)
                        view.x[i] = -INFINITY;
                __syncthreads();
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS)
                        view.x[view.idx[i]] = view.val[i];
                __syncthreads();
                view = SampleView { view.x, 0, 0, V };
        }

        __device__ int left() const
        {
                u64 n = 0;
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS)
                        n += view.at(i) > -INFINITY;
                return (int)block_sum_u64<THREADS>(n, m.red);
        }

        __device__ u64 total() const { return sample_mass<THREADS, true>(view, 0, max, m.red); }

        /* The sum of p * d. */
        __device__ float mean_depth(u64 Z) const
        {
                float sum = 0.f;
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS) {
                        const float d = view.at(i) - max;
                        const u64 w = sample_weight(d);
                        sum += w ? (float)((double)w / (double)Z) * d : 0.f;
                }
                return block_sum<THREADS>(sum, (float *)m.red);
        }

        static __device__ float log_total(u64 Z) { return logf((float)((double)Z * 0x1p-32)); }

        __device__ void top_n_sigma(float n)
        {
                if (!(n > 0.f))
                        return;
                const float count = (float)left();
                float sum = 0.f, square = 0.f;
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS) {
                        const float v = view.at(i);
                        sum += v > -INFINITY ? v : 0.f;
                }
                const float mean = block_sum<THREADS>(sum, (float *)m.red) / count;
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS) {
                        const float v = view.at(i);
                        square += v > -INFINITY ? (v - mean) * (v - mean) : 0.f;
                }
                square = block_sum<THREADS>(square, (float *)m.red);
                keep_from(max - n * sqrtf(square / count));
        }

        template <bool WEIGHT>
        __device__ void largest(u64 need)
        {
                if (!view.val)
                        view = sample_narrow<THREADS, WEIGHT>(view, own_max(), need, max, m);
                keep(sample_threshold<THREADS, WEIGHT>(view, need, max, m.red));
        }

        __device__ void typical(float p)
        {
                if (p >= 1.f)
                        return;
                const u64 Z = total();
                const float mean = mean_depth(Z), top = max;
                auto key = [=](float v) {
                        return v > -INFINITY ? order_key(-fabsf(v - top - mean)) : 0u;
                };
                const u64 need = (p > 0.f ? (u64)(p * (double)Z) : 0) + 1;
                const unsigned t = sample_threshold_by<THREADS, true>(view, need, max, m.red, key);
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS)
                        if (key(view.at(i)) < t)
                                view.set(i, -INFINITY);
                __syncthreads();
                keep(0);
                find_max();
        }

        __device__ void xtc(float probability, float threshold, unsigned u)
        {
                if (probability <= 0.f || threshold > 0.5f || left() < 2 ||
                    (float)(u >> 8) * (1.f / 16777216.f) >= probability)
                        return;
                const double need = (double)threshold * (double)total();
                float least = INFINITY; /* of those at or above the threshold */
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS) {
                        const float v = view.at(i);
                        if ((double)sample_weight(v - max) >= need && v > -INFINITY)
                                least = fminf(least, v);
                }
                least = -block_max<THREADS>(-least, (float *)m.red);
                if (least == INFINITY)
                        return;
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS)
                        if (view.at(i) > least)
                                view.set(i, -INFINITY);
                __syncthreads();
                find_max();
        }

        __device__ void temperature(float temp, float range, float exponent)
        {
                if (range > 0.f) {
                        const int n = left();
                        if (n <= 1)
                                return;
                        const u64 Z = total();
                        const float entropy = log_total(Z) - mean_depth(Z);
                        const float low = fmaxf(0.f, temp - range), high = temp + range;
                        const float part = fmaxf(entropy, 0.f) / logf((float)n);
                        temp = low + (high - low) * powf(part, exponent);
                }
                if (temp <= 0.f) {
                        u64 best = 0;
                        for (int i = (int)threadIdx.x; i < view.n; i += THREADS) {
                                const u64 k = order_key_at(view.at(i), view.index(i));
                                best = k > best ? k : best;
                        }
                        const int first = order_index(block_max_u64<THREADS>(best, m.red));
                        for (int i = (int)threadIdx.x; i < view.n; i += THREADS)
                                if (view.index(i) != first)
                                        view.set(i, -INFINITY);
                } else {
                        for (int i = (int)threadIdx.x; i < view.n; i += THREADS)
                                view.set(i, view.at(i) / temp);
                }
                __syncthreads();
                find_max();
        }

        __device__ int draw(unsigned u)
        {
                return sample_draw<THREADS>(view, 0, -INFINITY, max, 1.f, u, m);
        }

        /* Draws, and updates mu of s. */
        __device__ int mirostat(RtSample *s, unsigned u)
        {
                const float log_z = log_total(total());
                keep_from(fminf(max, max + log_z - s->mirostat_mu * SAMPLE_LN2));
                const float log_kept = log_total(total());
                const int token = draw(u);
                for (int i = (int)threadIdx.x; i < view.n; i += THREADS)
                        if (view.index(i) == token)
                                s->mirostat_mu -= s->mirostat_eta *
                                                  ((log_kept - (view.at(i) - max)) / SAMPLE_LN2 -
                                                   s->mirostat_tau);
                __syncthreads();
                return token;
        }
};

/* The token that s draws from row y, which is overwritten.  y's largest is finite.  r: random
 * words. */
template <int V, int CAP, int THREADS>
TGC_DEV int sample_chain(RtSample *s, float *y, const int *slot, uint4 r, const SampleSmem &m)
{
        SampleChain<THREADS> c(y, V, m);
        if (s->mirostat == 2) {
                c.temperature(s->temp, s->dynatemp_range, s->dynatemp_exponent);
                return c.mirostat(s, r.x);
        }
        for (int i = 0; i < RT_ORDER && s->order[i] != SAMPLER_END; i++)
                switch (s->order[i]) {
                case SAMPLER_PENALTIES:
                case SAMPLER_DRY:
                        c.template spread<V>();
                        if (s->order[i] == SAMPLER_PENALTIES)
                                sample_penalties<V, CAP, THREADS>(s, y, slot + RT_SLOT_HISTORY);
                        else
                                sample_dry<V, CAP, THREADS>(s, y, slot + RT_SLOT_HISTORY,
                                                            (const unsigned *)slot +
                                                                    RT_SLOT_BREAK_MASK(CAP),
                                                            slot + RT_SLOT_BREAKER(CAP), m);
                        c.find_max();
                        break;
                case SAMPLER_TOP_N_SIGMA: c.top_n_sigma(s->top_n_sigma); break;
                case SAMPLER_TOP_K:
                        if (s->top_k > 0 && s->top_k < V)
                                c.template largest<false>((u64)s->top_k);
                        break;
                case SAMPLER_TYP_P: c.typical(s->typical_p); break;
                case SAMPLER_TOP_P:
                        if (s->top_p < 1.f)
                                c.template largest<true>(sample_share(s->top_p, c.total()));
                        break;
                case SAMPLER_MIN_P:
                        if (s->min_p > 0.f)
                                c.keep_from(c.max + logf(s->min_p));
                        break;
                case SAMPLER_XTC: c.xtc(s->xtc_probability, s->xtc_threshold, r.y); break;
                case SAMPLER_TEMPERATURE:
                        c.temperature(s->temp, s->dynatemp_range, s->dynatemp_exponent);
                        break;
                }
        return c.draw(r.x);
}

#endif
