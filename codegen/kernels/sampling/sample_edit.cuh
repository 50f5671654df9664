/* sample_edit.cuh: edits logits in place, on a row y of V: mask, biases, penalties, DRY. */
#ifndef TGC_SAMPLE_EDIT_CUH
#define TGC_SAMPLE_EDIT_CUH

#include "sample_view.cuh"

/* y = x where the token's mask bit is set (or there is no mask), else -infinity. */
template <int V, int THREADS>
TGC_DEV void sample_copy(float *y, const float *x, const unsigned *mask)
{
#pragma unroll 4
        for (int i = (int)threadIdx.x; i < V; i += THREADS)
                y[i] = !mask || mask[i >> 5] >> (i & 31) & 1 ? x[i] : -INFINITY;
        __syncthreads();
}

/* Biases of one token add up, in their order. */
template <int V, int THREADS>
TGC_DEV void sample_bias(float *y, const RtBias *bias, int n)
{
        for (int i = (int)threadIdx.x; i < n && i < RT_BIASES; i += THREADS) {
                const int token = bias[i].token;
                bool first = token >= 0 && token < V;
                for (int j = 0; j < i && first; j++)
                        first = bias[j].token != token;
                for (int j = i; j < n && first; j++)
                        if (bias[j].token == token)
                                y[token] += bias[j].bias;
        }
        __syncthreads();
}

/* The last tokens of a sequence: at(0) is the newest of n. */
template <int CAP>
struct SampleHistory {
        const int *hist;
        int all, n;
        __device__ SampleHistory(const int *hist, int all, int most) : hist(hist), all(all)
        {
                n = all < CAP ? all : CAP;
                n = most < n ? most > 0 ? most : 0 : n;
        }
        __device__ int at(int i) const { return hist[(unsigned)(all - 1 - i) % CAP]; }
};

/* Each distinct token among the last repeat_last_n, `count` times there: its logit is divided by
 * repeat_penalty if above 0, else multiplied by it; then less count * frequency_penalty +
 * presence_penalty. */
template <int V, int CAP, int THREADS>
TGC_DEV void sample_penalties(const RtSample *s, float *y, const int *hist)
{
        const SampleHistory<CAP> h(hist, s->n_hist, s->repeat_last_n);
        const float repeat = s->repeat_penalty, presence = s->presence_penalty,
                    frequency = s->frequency_penalty;
        if (repeat == 1.f && presence == 0.f && frequency == 0.f)
                return;
        for (int i = (int)threadIdx.x; i < h.n; i += THREADS) {
                const int token = h.at(i);
                bool first = token >= 0 && token < V;
                for (int j = 0; j < i && first; j++)
                        first = h.at(j) != token;
                if (!first)
                        continue;
                int count = 1;
                for (int j = i + 1; j < h.n; j++)
                        count += h.at(j) == token;
                const float v = y[token], p = v > 0.f ? v / repeat : v * repeat;
                y[token] = p - ((float)count * frequency + presence);
        }
        __syncthreads();
}

/* Number of tokens from i to the newest that a breaker starting at i covers; 0: none starts
 * there. */
template <int CAP>
TGC_DEV int sample_breaker(const RtSample *s, const SampleHistory<CAP> &h, int i,
                           const unsigned *single, const int *breaker, int V)
{
        const int token = h.at(i);
        int longest = token >= 0 && token < V && single[token >> 5] >> (token & 31) & 1;
        for (int at = 0; at + 1 < s->n_breaker; at += 2 + breaker[at + 1]) {
                const int others = breaker[at + 1];
                bool same = breaker[at] == token && others <= i && others + 1 > longest;
                for (int k = 0; k < others && same; k++)
                        same = breaker[at + 2 + k] == h.at(i - 1 - k);
                longest = same ? others + 1 : longest;
        }
        return longest;
}

/* DRY: if the newest tokens repeat a stretch of the last dry_last_n, `length` tokens long, the
 * token that followed the stretch loses multiplier * base^(length - allowed_length), for length >=
 * allowed_length; the longest stretch before a token counts.  Stretches end at the newest breaker.
 * A token that is a breaker by itself loses nothing. */
template <int V, int CAP, int THREADS>
TGC_DEV void sample_dry(const RtSample *s, float *y, const int *hist, const unsigned *single,
                        const int *breaker, const SampleSmem &m)
{
        const SampleHistory<CAP> h(hist, s->n_hist, s->dry_last_n);
        const int allowed = s->dry_allowed_length, tid = (int)threadIdx.x;
        const float base = s->dry_base, multiplier = s->dry_multiplier;
        static_assert(CAP <= 4 * SAMPLE_LIST, "lengths lie in the list's memory");
        unsigned short *length = (unsigned short *)
                                         m.val; /* at k: length of the stretch before at(k - 1) */
        if (multiplier == 0.f || base < 1.f || h.n <= allowed)
                return;
        u64 newest = 0; /* of the largest key: the least i */
        for (int i = tid; i < h.n && !newest; i += THREADS) {
                const int n = sample_breaker(s, h, i, single, breaker, V);
                if (n)
                        newest = (u64)(unsigned)~i << 32 | (unsigned)(i + 1 - n);
        }
        newest = block_max_u64<THREADS>(newest, m.red);
        const int limit = newest ? (int)(unsigned)newest : h.n;
        __syncthreads();
        if (limit < allowed)
                return;
        for (int k = tid + 1; k < h.n; k += THREADS) {
                int n = 0;
                while (n < limit && n + k < h.n && h.at(n) == h.at(n + k))
                        n++;
                length[k] = (unsigned short)n;
        }
        __syncthreads();
        const float most = base > 1.000001f ? 88.7228391f / logf(base) : 0.f;
        for (int k = tid + 1; k < h.n; k += THREADS) {
                const int n = length[k], token = h.at(k - 1);
                bool counts = n >= allowed && token >= 0 && token < V &&
                              !(single[token >> 5] >> (token & 31) & 1);
                for (int j = 1; j < h.n && counts; j++)
                        counts = h.at(j - 1) != token || length[j] < n ||
                                 (length[j] == n && j >= k);
                if (!counts)
                        continue;
                int power = n - allowed;
                power = most > 0.f && power > (int)most ? (int)most : power;
                y[token] -= multiplier * powf(base, (float)power);
        }
        __syncthreads();
}

#endif
