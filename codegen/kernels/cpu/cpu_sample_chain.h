/* cpu_sample_chain.h: masks, biases, penalties and llama.cpp's samplers on one sequence's logits
 * (definitions: sample_edit.cuh, sample_chain.cuh).  Here the remaining tokens are always a list,
 * ascending by token; sums of integer weights are histograms over the floats' order keys, eight
 * bits at a time. */
#ifndef TGC_CPU_SAMPLE_CHAIN_H
#define TGC_CPU_SAMPLE_CHAIN_H

#include "cpu_math.h"

#define SAMPLE_LN2 0.69314718056f

typedef struct SampleLeft {
        float *x;
        int *token;
        int n;
        float max;
} SampleLeft;

/* Keys in the order of floats. */
TGC_INLINE uint32_t sample_key(float x)
{
        uint32_t u = float_bits(x + 0.f);
        return u & 0x80000000u ? ~u : u | 0x80000000u;
}

TGC_INLINE uint64_t sample_weight(float d) { return (uint64_t)(fast_exp_negf(d) * 4294967296.f); }

/* The fraction p of z, at least 1. */
TGC_INLINE uint64_t sample_share(float p, uint64_t z)
{
        uint64_t need = p > 0.f ? (uint64_t)(p * (double)z) : 0;
        return need ? need : 1;
}

/* What is searched: keys of values, or of their distance to `to`. */
typedef struct SampleBy {
        int weights; /* sums of weights, not counts */
        int near;
        float max, to;
} SampleBy;

TGC_INLINE uint32_t sample_key_by(const SampleBy *by, float v)
{
        return sample_key(by->near ? -fabsf(v - by->to) : v);
}

TGC_INLINE uint64_t sample_mass(const float *x, int n, uint32_t from, const SampleBy *by)
{
        uint64_t s = 0;
        for (int i = 0; i < n; i++)
                if (sample_key_by(by, x[i]) >= from)
                        s += by->weights ? sample_weight(x[i] - by->max) : 1;
        return s;
}

/* The largest key t >= from such that keys >= t have a mass of at least need; 0: none. */
TGC_INLINE uint32_t sample_threshold(const float *x, int n, uint32_t from, uint64_t need,
                                     const SampleBy *by)
{
        uint32_t t = 0;
        uint64_t above = 0;
        for (int shift = 24; shift >= 0; shift -= 8) {
                uint64_t bin[256] = { 0 };
                for (int i = 0; i < n; i++) {
                        uint32_t k = sample_key_by(by, x[i]);
                        if (k >= from && (shift == 24 || k >> (shift + 8) == t >> (shift + 8)))
                                bin[k >> shift & 255] += by->weights ? sample_weight(x[i] - by->max)
                                                                     : 1;
                }
                int b = 255;
                while (b >= 0 && above + bin[b] < need)
                        above += bin[b--];
                if (b < 0)
                        return 0;
                t |= (uint32_t)b << shift;
        }
        return t;
}

/* ---- single logits ---- */

/* A token's logit; NULL: it was dropped. */
TGC_INLINE float *sample_find(const SampleLeft *c, int token)
{
        int low = 0, high = c->n;
        while (low < high) {
                int mid = (low + high) / 2;
                if (c->token[mid] < token)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low < c->n && c->token[low] == token ? c->x + low : 0;
}

/* The last tokens of a sequence, 0 the newest; *n of them, at most `most`. */
typedef struct SampleHistory {
        const int *hist;
        int all, cap, n;
} SampleHistory;

TGC_INLINE SampleHistory sample_history(const RtSample *s, const int *hist, int cap, int most)
{
        SampleHistory h = { hist, s->n_hist, cap, s->n_hist < cap ? s->n_hist : cap };
        h.n = most < h.n ? most > 0 ? most : 0 : h.n;
        return h;
}

TGC_INLINE int sample_past(const SampleHistory *h, int i)
{
        return h->hist[(h->all - 1 - i) % h->cap];
}

TGC_INLINE void sample_penalties(const RtSample *s, SampleLeft *c, const int *hist, int cap)
{
        SampleHistory h = sample_history(s, hist, cap, s->repeat_last_n);
        if (s->repeat_penalty == 1.f && s->presence_penalty == 0.f && s->frequency_penalty == 0.f)
                return;
        for (int i = 0; i < h.n; i++) {
                int token = sample_past(&h, i), first = 1, count = 1;
                float *x = sample_find(c, token);
                for (int j = 0; j < i && first && x; j++)
                        first = sample_past(&h, j) != token;
                if (!x || !first)
                        continue;
                for (int j = i + 1; j < h.n; j++)
                        count += sample_past(&h, j) == token;
                float v = *x > 0.f ? *x / s->repeat_penalty : *x * s->repeat_penalty;
                *x = v - ((float)count * s->frequency_penalty + s->presence_penalty);
        }
}

TGC_INLINE int sample_bit(const unsigned *mask, int V, int token)
{
        return token >= 0 && token < V && mask[token >> 5] >> (token & 31) & 1;
}

/* Number of tokens from i to the newest that a breaker starting at i covers; 0: none starts
 * there. */
TGC_INLINE int sample_breaker(const RtSample *s, const SampleHistory *h, int i,
                              const unsigned *single, const int *breaker, int V)
{
        int token = sample_past(h, i), longest = sample_bit(single, V, token);
        for (int at = 0; at + 1 < s->n_breaker; at += 2 + breaker[at + 1]) {
                int others = breaker[at + 1];
                int same = breaker[at] == token && others <= i && others + 1 > longest;
                for (int k = 0; k < others && same; k++)
                        same = breaker[at + 2 + k] == sample_past(h, i - 1 - k);
                longest = same ? others + 1 : longest;
        }
        return longest;
}

/* How far the stretch before past(k - 1) repeats the newest tokens. */
TGC_INLINE int sample_repeats(const SampleHistory *h, int k, int limit)
{
        int n = 0;
        while (n < limit && n + k < h->n && sample_past(h, n) == sample_past(h, n + k))
                n++;
        return n;
}

TGC_INLINE void sample_dry(const RtSample *s, SampleLeft *c, int V, const int *hist, int cap,
                           const unsigned *single, const int *breaker)
{
        SampleHistory h = sample_history(s, hist, cap, s->dry_last_n);
        int limit = h.n, allowed = s->dry_allowed_length;
        if (s->dry_multiplier == 0.f || s->dry_base < 1.f || h.n <= allowed)
                return;
        for (int i = 0, n = 0; i < h.n && !n; i++)
                if ((n = sample_breaker(s, &h, i, single, breaker, V)))
                        limit = i + 1 - n;
        if (limit < allowed)
                return;
        float most = s->dry_base > 1.000001f ? 88.7228391f / logf(s->dry_base) : 0.f;
        for (int k = 1; k < h.n; k++) {
                int token = sample_past(&h, k - 1), longest = 0, first = 1;
                float *x = sample_find(c, token);
                for (int j = 1; j < k && first && x; j++)
                        first = sample_past(&h, j - 1) != token;
                if (!x || !first || sample_bit(single, V, token))
                        continue;
                for (int j = k; j < h.n; j++) {
                        int n = sample_past(&h, j - 1) == token ? sample_repeats(&h, j, limit) : 0;
                        longest = n > longest ? n : longest;
                }
                int power = longest - allowed;
                if (power < 0)
                        continue;
                power = most > 0.f && power > (int)most ? (int)most : power;
                *x -= s->dry_multiplier * powf(s->dry_base, (float)power);
        }
}

/* ---- the remaining tokens ---- */

TGC_INLINE void sample_find_max(SampleLeft *c)
{
        c->max = -INFINITY;
        for (int i = 0; i < c->n; i++)
                c->max = c->x[i] > c->max ? c->x[i] : c->max;
}

/* Keeps keys at or above t, and values up to `most`. */
TGC_INLINE void sample_keep(SampleLeft *c, uint32_t t, float most, const SampleBy *by)
{
        int n = 0;
        for (int i = 0; i < c->n; i++)
                if (c->x[i] > -INFINITY && c->x[i] <= most && sample_key_by(by, c->x[i]) >= t) {
                        c->x[n] = c->x[i];
                        c->token[n++] = c->token[i];
                }
        c->n = n;
}

TGC_INLINE SampleBy sample_by(const SampleLeft *c, int weights)
{
        return (SampleBy) { weights, 0, c->max, 0 };
}

TGC_INLINE void sample_keep_from(SampleLeft *c, float least)
{
        SampleBy by = sample_by(c, 0);
        sample_keep(c, sample_key(least), INFINITY, &by);
}

TGC_INLINE uint64_t sample_total(const SampleLeft *c)
{
        SampleBy by = sample_by(c, 1);
        return sample_mass(c->x, c->n, 0, &by);
}

/* The sum of p * d. */
TGC_INLINE float sample_depth(const SampleLeft *c, uint64_t Z)
{
        double sum = 0.;
        for (int i = 0; i < c->n; i++) {
                float d = c->x[i] - c->max;
                uint64_t w = sample_weight(d);
                sum += w ? (double)w / (double)Z * d : 0.;
        }
        return (float)sum;
}

TGC_INLINE float sample_log_total(uint64_t Z) { return logf((float)((double)Z * 0x1p-32)); }

TGC_INLINE void sample_top_n_sigma(SampleLeft *c, float n)
{
        double sum = 0., square = 0.;
        if (!(n > 0.f))
                return;
        sample_keep_from(c, -3.402823466e38f);
        for (int i = 0; i < c->n; i++)
                sum += c->x[i];
        sum /= c->n;
        for (int i = 0; i < c->n; i++)
                square += (c->x[i] - sum) * (c->x[i] - sum);
        sample_keep_from(c, c->max - n * (float)sqrt(square / c->n));
}

TGC_INLINE void sample_largest(SampleLeft *c, int weights, uint64_t need)
{
        SampleBy by = sample_by(c, weights);
        sample_keep(c, sample_threshold(c->x, c->n, 0, need, &by), INFINITY, &by);
}

TGC_INLINE void sample_typical(SampleLeft *c, float p)
{
        if (p >= 1.f)
                return;
        sample_keep_from(c, -3.402823466e38f);
        uint64_t Z = sample_total(c);
        SampleBy by = { 1, 1, c->max, c->max + sample_depth(c, Z) };
        uint64_t need = (p > 0.f ? (uint64_t)(p * (double)Z) : 0) + 1;
        sample_keep(c, sample_threshold(c->x, c->n, 0, need, &by), INFINITY, &by);
        sample_find_max(c);
}

TGC_INLINE void sample_xtc(SampleLeft *c, float probability, float threshold, uint32_t u)
{
        sample_keep_from(c, -3.402823466e38f);
        if (probability <= 0.f || threshold > 0.5f || c->n < 2 ||
            (float)(u >> 8) * (1.f / 16777216.f) >= probability)
                return;
        double need = (double)threshold * (double)sample_total(c);
        float least = INFINITY;
        for (int i = 0; i < c->n; i++)
                if ((double)sample_weight(c->x[i] - c->max) >= need && c->x[i] < least)
                        least = c->x[i];
        SampleBy by = sample_by(c, 0);
        sample_keep(c, 0, least, &by);
        sample_find_max(c);
}

TGC_INLINE void sample_temperature(SampleLeft *c, float temp, float range, float exponent)
{
        if (range > 0.f) {
                sample_keep_from(c, -3.402823466e38f);
                if (c->n <= 1)
                        return;
                uint64_t Z = sample_total(c);
                float entropy = sample_log_total(Z) - sample_depth(c, Z), low = temp - range;
                low = low > 0.f ? low : 0.f;
                entropy = entropy > 0.f ? entropy : 0.f;
                temp = low + (temp + range - low) * powf(entropy / logf((float)c->n), exponent);
        }
        if (temp <= 0.f) {
                int i = 0;
                while (i < c->n && c->x[i] < c->max)
                        i++;
                c->x[0] = c->x[i];
                c->token[0] = c->token[i];
                c->n = 1;
        }
        for (int i = 0; i < c->n && temp > 0.f; i++)
                c->x[i] /= temp;
        sample_find_max(c);
}

/* Draws by weight((x - max) / temp) among keys from t on, within `least` of max: the first index,
 * ascending, at which the running sum exceeds floor(u * total / 2^32). */
TGC_INLINE int sample_draw(const float *x, int n, uint32_t t, float least, float max, float temp,
                           uint32_t u)
{
        uint64_t r = 0, run = 0;
        for (int pass = 0; pass < 2; pass++, run = 0) {
                for (int i = 0; i < n; i++) {
                        if (sample_key(x[i]) < t || !(x[i] - max >= least))
                                continue;
                        run += sample_weight((x[i] - max) / temp);
                        if (pass && run > r)
                                return i;
                }
                r = (run >> 32) * u + (((run & 0xffffffffu) * u) >> 32);
        }
        return 0; /* unreachable: max itself has weight 2^32 */
}

TGC_INLINE int sample_mirostat(RtSample *s, SampleLeft *c, uint32_t u)
{
        float least = c->max + sample_log_total(sample_total(c)) - s->mirostat_mu * SAMPLE_LN2;
        sample_keep_from(c, least < c->max ? least : c->max);
        float log_kept = sample_log_total(sample_total(c));
        int i = sample_draw(c->x, c->n, 0, -INFINITY, c->max, 1.f, u);
        s->mirostat_mu -= s->mirostat_eta *
                          ((log_kept - (c->x[i] - c->max)) / SAMPLE_LN2 - s->mirostat_tau);
        return c->token[i];
}

/* The token that s draws.  The largest logit is finite.  r: random words. */
TGC_INLINE int sample_chain(RtSample *s, SampleLeft *c, const int *slot, int V, int cap,
                            const uint32_t *r)
{
        const unsigned *single = (const unsigned *)slot + RT_SLOT_BREAK_MASK(cap);
        sample_find_max(c);
        if (s->mirostat == 2) {
                sample_temperature(c, s->temp, s->dynatemp_range, s->dynatemp_exponent);
                return sample_mirostat(s, c, r[0]);
        }
        for (int i = 0; i < RT_ORDER && s->order[i] != SAMPLER_END; i++)
                switch (s->order[i]) {
                case SAMPLER_PENALTIES:
                        sample_penalties(s, c, slot + RT_SLOT_HISTORY, cap);
                        sample_find_max(c);
                        break;
                case SAMPLER_DRY:
                        sample_dry(s, c, V, slot + RT_SLOT_HISTORY, cap, single,
                                   slot + RT_SLOT_BREAKER(cap));
                        sample_find_max(c);
                        break;
                case SAMPLER_TOP_N_SIGMA: sample_top_n_sigma(c, s->top_n_sigma); break;
                case SAMPLER_TOP_K:
                        if (s->top_k > 0 && s->top_k < V)
                                sample_largest(c, 0, (uint64_t)s->top_k);
                        break;
                case SAMPLER_TYP_P: sample_typical(c, s->typical_p); break;
                case SAMPLER_TOP_P:
                        if (s->top_p < 1.f)
                                sample_largest(c, 1, sample_share(s->top_p, sample_total(c)));
                        break;
                case SAMPLER_MIN_P:
                        if (s->min_p > 0.f)
                                sample_keep_from(c, c->max + logf(s->min_p));
                        break;
                case SAMPLER_XTC: sample_xtc(c, s->xtc_probability, s->xtc_threshold, r[1]); break;
                case SAMPLER_TEMPERATURE:
                        sample_temperature(c, s->temp, s->dynatemp_range, s->dynatemp_exponent);
                        break;
                }
        return c->token[sample_draw(c->x, c->n, 0, -INFINITY, c->max, 1.f, r[0])];
}

#endif
