/* sample_reference.h: what the sampler should do with a row, in double, by sorting.
 *
 * From the definitions of llama.cpp's chain (sampling/reference.py states them once more, and its
 * vectors are compared with this).  For C and C++.  Where two numbers that decide what is kept are
 * nearer to each other than float arithmetic tells apart, `margin` is small. */
#ifndef TGC_SAMPLE_REFERENCE_H
#define TGC_SAMPLE_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct RefInput {
        const RtSample *s;
        int V;
        const float *x;
        const int *hist; /* all tokens, the oldest first */
        int n_hist;
        const unsigned *mask, *single; /* NULL: all, none */
        const RtBias *bias;
        const int *breaker;
        uint32_t word[2]; /* random words: the draw's, XTC's */
} RefInput;

typedef struct Ref {
        const RefInput *in;
        double *x, *p; /* (V); x is -INFINITY where dropped */
        int *sorted;   /* tokens left, the likeliest first */
        int n;
        double margin;
        int bad; /* nothing to choose */
} Ref;

static void ref_margin(Ref *r, double a, double b)
{
        double d = fabs(a - b);
        r->margin = d < r->margin ? d : r->margin;
}

/* Softmax of what is left, and the order of it. */
static void ref_softmax(Ref *r)
{
        const int V = r->in->V;
        double max = -INFINITY, sum = 0;
        r->n = 0;
        for (int i = 0; i < V; i++)
                max = r->x[i] > max ? r->x[i] : max;
        for (int i = 0; i < V; i++)
                sum += r->p[i] = r->x[i] > -INFINITY ? exp(r->x[i] - max) : 0;
        for (int i = 0; i < V; i++) {
                r->p[i] /= sum;
                if (!(r->x[i] > -INFINITY))
                        continue;
                int at = r->n++;
                for (; at > 0 && r->x[i] > r->x[r->sorted[at - 1]]; at--)
                        r->sorted[at] = r->sorted[at - 1];
                r->sorted[at] = i;
        }
}

static void ref_keep_first(Ref *r, int n)
{
        for (int i = n; i < r->n; i++)
                r->x[r->sorted[i]] = -INFINITY;
}

/* The end of the tie that item i of the sorted ones is in. */
static int ref_tie(const Ref *r, int i)
{
        int k = i + 1;
        while (k < r->n && r->x[r->sorted[k]] == r->x[r->sorted[i]])
                k++;
        return k;
}

static void ref_edge(Ref *r, int n)
{
        if (n > 0 && n < r->n)
                ref_margin(r, r->x[r->sorted[n - 1]], r->x[r->sorted[n]]);
}

static void ref_top_k(Ref *r, int k)
{
        ref_softmax(r);
        if (k <= 0 || k >= r->n)
                return;
        int n = ref_tie(r, k - 1);
        ref_edge(r, n);
        ref_keep_first(r, n);
}

static void ref_top_p(Ref *r, double p)
{
        double sum = 0;
        ref_softmax(r);
        if (p >= 1)
                return;
        for (int i = 0, k; i < r->n; i = k) {
                k = ref_tie(r, i);
                for (int j = i; j < k; j++)
                        sum += r->p[r->sorted[j]];
                ref_margin(r, sum, p);
                if (sum >= p) {
                        ref_edge(r, k);
                        ref_keep_first(r, k);
                        return;
                }
        }
}

static void ref_min_p(Ref *r, double p)
{
        ref_softmax(r);
        if (p <= 0)
                return;
        double least = r->x[r->sorted[0]] + log(p);
        for (int i = 0; i < r->in->V; i++)
                if (r->x[i] > -INFINITY) {
                        ref_margin(r, r->x[i], least);
                        r->x[i] = r->x[i] < least ? -INFINITY : r->x[i];
                }
}

static void ref_top_n_sigma(Ref *r, double n)
{
        double mean = 0, square = 0;
        ref_softmax(r);
        if (n <= 0)
                return;
        for (int i = 0; i < r->n; i++)
                mean += r->x[r->sorted[i]] / r->n;
        for (int i = 0; i < r->n; i++)
                square += pow(r->x[r->sorted[i]] - mean, 2) / r->n;
        double least = r->x[r->sorted[0]] - n * sqrt(square);
        for (int i = 0; i < r->n; i++) {
                int t = r->sorted[i];
                ref_margin(r, r->x[t], least);
                r->x[t] = r->x[t] < least ? -INFINITY : r->x[t];
        }
}

static double ref_entropy(const Ref *r)
{
        double sum = 0;
        for (int i = 0; i < r->n; i++) {
                double p = r->p[r->sorted[i]];
                sum -= p > 0 ? p * log(p) : 0;
        }
        return sum;
}

static void ref_typical(Ref *r, double p)
{
        ref_softmax(r);
        if (p >= 1)
                return;
        double h = ref_entropy(r), sum = 0, edge = 0;
        double *far = (double *)calloc((size_t)r->in->V, sizeof *far);
        for (int i = 0; i < r->n; i++)
                far[r->sorted[i]] = fabs(-log(r->p[r->sorted[i]]) - h);
        for (;;) { /* the next nearest, all of a tie */
                double next = INFINITY;
                for (int i = 0; i < r->n; i++)
                        if (far[r->sorted[i]] >= edge && far[r->sorted[i]] < next)
                                next = far[r->sorted[i]];
                if (next == INFINITY)
                        break;
                for (int i = 0; i < r->n; i++)
                        if (far[r->sorted[i]] >= edge && far[r->sorted[i]] <= next + 1e-12)
                                sum += r->p[r->sorted[i]];
                edge = nextafter(next + 1e-12, INFINITY);
                ref_margin(r, sum, p);
                if (sum > p)
                        break;
        }
        for (int i = 0; i < r->n; i++) {
                double d = far[r->sorted[i]] - edge;
                if (d >= 0)
                        ref_margin(r, d, 0);
        }
        for (int i = 0; i < r->n; i++)
                if (far[r->sorted[i]] >= edge)
                        r->x[r->sorted[i]] = -INFINITY;
        free(far);
}

static void ref_xtc(Ref *r, double probability, double threshold)
{
        double chance = (double)(r->in->word[1] >> 8) / 16777216;
        ref_softmax(r);
        if (probability <= 0 || threshold > 0.5 || r->n < 2)
                return;
        ref_margin(r, chance, probability);
        if (chance >= probability)
                return;
        int last = -1;
        for (int i = 0; i < r->n; i++) {
                ref_margin(r, r->p[r->sorted[i]], threshold);
                last = r->p[r->sorted[i]] >= threshold ? i : last;
        }
        for (int i = 0; last >= 0 && i < last; i++) {
                int t = r->sorted[i];
                if (r->x[t] > r->x[r->sorted[last]]) {
                        ref_margin(r, r->x[t], r->x[r->sorted[last]]);
                        r->x[t] = -INFINITY;
                }
        }
}

static void ref_temperature(Ref *r, double temp, double range, double exponent)
{
        ref_softmax(r);
        if (range > 0) {
                if (r->n <= 1)
                        return;
                double low = temp - range > 0 ? temp - range : 0, high = temp + range;
                temp = low + (high - low) * pow(ref_entropy(r) / log(r->n), exponent);
        }
        if (temp <= 0) {
                int first = r->sorted[0];
                for (int i = 1; i < r->n; i++)
                        if (r->x[r->sorted[i]] == r->x[first] && r->sorted[i] < first)
                                first = r->sorted[i];
                for (int i = 0; i < r->n; i++)
                        if (r->x[r->sorted[i]] != r->x[first])
                                ref_margin(r, r->x[r->sorted[i]], r->x[first]);
                for (int i = 0; i < r->in->V; i++)
                        r->x[i] = i == first ? r->x[i] : -INFINITY;
                return;
        }
        for (int i = 0; i < r->in->V; i++)
                r->x[i] /= temp;
}

/* Token k from the end of the history, 0 the newest; -1 beyond n. */
static int ref_past(const RefInput *in, int k) { return in->hist[in->n_hist - 1 - k]; }

static void ref_penalties(Ref *r)
{
        const RefInput *in = r->in;
        const RtSample *s = in->s;
        int n = s->repeat_last_n < in->n_hist ? s->repeat_last_n : in->n_hist;
        for (int t = 0; t < in->V; t++) {
                int count = 0;
                for (int k = 0; k < n; k++)
                        count += ref_past(in, k) == t;
                if (!count || !(r->x[t] > -INFINITY))
                        continue;
                r->x[t] = r->x[t] <= 0 ? r->x[t] * s->repeat_penalty : r->x[t] / s->repeat_penalty;
                r->x[t] -= count * (double)s->frequency_penalty + s->presence_penalty;
        }
}

static int ref_bit(const unsigned *bits, int t) { return bits && bits[t / 32] >> (t % 32) & 1; }

static void ref_dry(Ref *r)
{
        const RefInput *in = r->in;
        const RtSample *s = in->s;
        int n = s->dry_last_n < in->n_hist ? s->dry_last_n : in->n_hist, limit = n;
        if (s->dry_multiplier == 0 || s->dry_base < 1 || n <= s->dry_allowed_length)
                return;
        for (int i = 0, found = 0; i < n && !found; i++) {
                int head = ref_past(in, i), longest = ref_bit(in->single, head) ? 0 : -1;
                for (int at = 0; at < s->n_breaker; at += 2 + in->breaker[at + 1]) {
                        int tail = in->breaker[at + 1], same = in->breaker[at] == head && tail <= i;
                        for (int k = 0; k < tail && same; k++)
                                same = in->breaker[at + 2 + k] == ref_past(in, i - 1 - k);
                        longest = same && tail > longest ? tail : longest;
                }
                found = longest >= 0;
                limit = found ? i - longest : limit;
        }
        if (limit < s->dry_allowed_length)
                return;
        for (int t = 0; t < in->V; t++) {
                int longest = -1;
                for (int k = 1; k < n; k++) {
                        int len = 0;
                        while (len + k < n && ref_past(in, len) == ref_past(in, len + k))
                                len++;
                        len = len < limit ? len : limit;
                        if (ref_past(in, k - 1) == t && len > longest)
                                longest = len;
                }
                if (longest >= s->dry_allowed_length && !ref_bit(in->single, t))
                        r->x[t] -= s->dry_multiplier *
                                   pow(s->dry_base, longest - s->dry_allowed_length);
        }
}

/* All of it; p is then the distribution that is drawn from. */
static Ref ref_run(const RefInput *in)
{
        const RtSample *s = in->s;
        Ref r = { in, 0, 0, 0, 0, 1, 0 };
        const size_t V = (size_t)in->V;
        double max = -INFINITY;
        r.x = (double *)calloc(V, sizeof *r.x);
        r.p = (double *)calloc(V, sizeof *r.p);
        r.sorted = (int *)calloc(V, sizeof *r.sorted);
        for (int i = 0; i < in->V; i++) {
                r.bad |= !(in->x[i] < INFINITY);
                r.x[i] = s->what & SAMPLE_MASK && !ref_bit(in->mask, i) ? -INFINITY : in->x[i];
        }
        for (int i = 0; i < s->n_bias && s->what & SAMPLE_BIAS; i++)
                r.x[in->bias[i].token] += in->bias[i].bias;
        for (int i = 0; i < in->V; i++)
                max = r.x[i] > max ? r.x[i] : max;
        r.bad |= max == -INFINITY;
        if (r.bad)
                return r;
        static const unsigned char fast[RT_ORDER] = { SAMPLER_TOP_K, SAMPLER_TOP_P, SAMPLER_MIN_P,
                                                      SAMPLER_TEMPERATURE };
        const unsigned char *order = s->what & SAMPLE_CHAIN ? s->order : fast;
        if (!(s->what & (SAMPLE_DRAW | SAMPLE_CHAIN)))
                ref_temperature(&r, 0, 0, 1);
        else if (s->mirostat == 2 && s->what & SAMPLE_CHAIN) {
                ref_temperature(&r, s->temp, s->dynatemp_range, s->dynatemp_exponent);
                ref_softmax(&r);
                int kept = 0;
                for (int i = 0; i < r.n; i++) {
                        double surprise = -log2(r.p[r.sorted[i]]);
                        ref_margin(&r, surprise, s->mirostat_mu);
                        kept += surprise <= s->mirostat_mu;
                }
                ref_keep_first(&r, kept ? kept : ref_tie(&r, 0));
        } else
                for (int i = 0; i < RT_ORDER && order[i]; i++)
                        switch (order[i]) {
                        case SAMPLER_PENALTIES: ref_penalties(&r); break;
                        case SAMPLER_DRY: ref_dry(&r); break;
                        case SAMPLER_TOP_N_SIGMA: ref_top_n_sigma(&r, s->top_n_sigma); break;
                        case SAMPLER_TOP_K: ref_top_k(&r, s->top_k); break;
                        case SAMPLER_TYP_P: ref_typical(&r, s->typical_p); break;
                        case SAMPLER_TOP_P: ref_top_p(&r, s->top_p); break;
                        case SAMPLER_MIN_P: ref_min_p(&r, s->min_p); break;
                        case SAMPLER_XTC: ref_xtc(&r, s->xtc_probability, s->xtc_threshold); break;
                        case SAMPLER_TEMPERATURE:
                                ref_temperature(&r, s->temp, s->dynatemp_range,
                                                s->dynatemp_exponent);
                                break;
                        }
        ref_softmax(&r);
        return r;
}

static void ref_free(Ref *r) { free(r->x), free(r->p), free(r->sorted); }

/* How far the draw's random number lies outside the token's part of [0, 1). */
static double ref_distance(const Ref *r, int token)
{
        double u = r->in->word[0] * 0x1p-32, below = 0;
        for (int i = 0; i < token; i++)
                below += r->p[i];
        double low = below - u, high = u - (below + r->p[token]);
        return low > 0 ? low : high > 0 ? high : 0;
}

/* ---- random cases ---- */

enum { REF_BIASES = 4, REF_WORDS = 12 };

typedef struct RefCase {
        RtSample s;
        RtBias bias[REF_BIASES];
        int breaker[REF_WORDS];
} RefCase;

/* Parameters that `next` chooses (a number below its argument); V tokens. */
static RefCase ref_case(int (*next)(int), int V)
{
        static const float temps[] = { 0, 0.3f, 0.7f, 1, 1, 1.5f };
        RefCase c;
        RtSample *s = &c.s;
        memset(&c, 0, sizeof c);
        s->seed[0] = (unsigned)next(1 << 30), s->seed[1] = (unsigned)next(1 << 30);
        s->drawn = next(1000);
        s->temp = temps[next(6)];
        s->top_k = next(2) ? 1 + next(V) : 0;
        s->top_p = next(2) ? 0.3f + 0.1f * (float)next(7) : 1;
        s->min_p = next(2) ? 0.02f + 0.05f * (float)next(6) : 0;
        s->what = s->temp > 0 ? SAMPLE_DRAW : 0;
        if (next(3) == 0) {
                s->what |= SAMPLE_BIAS;
                s->n_bias = 1 + next(REF_BIASES);
                for (int i = 0; i < s->n_bias; i++) {
                        c.bias[i].token = next(V);
                        c.bias[i].bias = next(6) ? (float)next(60) * 0.1f - 3 : -INFINITY;
                }
        }
        if (next(3) == 0)
                s->what |= SAMPLE_MASK;
        if (next(3)) {
                s->what = (s->what & ~SAMPLE_DRAW) | SAMPLE_CHAIN;
                s->typical_p = next(3) ? 1 : 0.2f + 0.1f * (float)next(7);
                s->top_n_sigma = next(3) ? 0 : 0.5f + 0.25f * (float)next(6);
                s->xtc_probability = next(3) ? 0 : 0.25f + 0.25f * (float)next(4);
                s->xtc_threshold = 0.03f + 0.1f * (float)next(6);
                s->repeat_penalty = next(2) ? 1 : 0.8f + 0.2f * (float)next(6);
                s->presence_penalty = next(2) ? 0 : (float)next(9) * 0.25f - 1;
                s->frequency_penalty = next(2) ? 0 : (float)next(9) * 0.25f - 1;
                s->repeat_last_n = next(40);
                s->dry_multiplier = next(2) ? 0 : 0.5f * (float)(1 + next(4));
                s->dry_base = 1 + 0.25f * (float)next(5);
                s->dry_allowed_length = next(4);
                s->dry_last_n = next(40);
                for (int at = 0; next(2) && at + 4 <= REF_WORDS; at = s->n_breaker) {
                        c.breaker[at] = next(6), c.breaker[at + 1] = next(3);
                        for (int k = 0; k < c.breaker[at + 1]; k++)
                                c.breaker[at + 2 + k] = next(6);
                        s->n_breaker = at + 2 + c.breaker[at + 1];
                }
                s->dynatemp_range = next(3) ? 0 : 0.25f * (float)(1 + next(4));
                s->dynatemp_exponent = 0.5f * (float)(1 + next(4));
                if (next(8) == 0) {
                        s->mirostat = 2;
                        s->mirostat_tau = (float)next(6), s->mirostat_eta = 0.1f;
                        s->mirostat_mu = 0.5f * (float)next(12);
                }
                for (int i = 0; i < N_SAMPLERS - 1; i++)
                        s->order[i] = (unsigned char)(i + 1);
                for (int i = N_SAMPLERS - 2; next(3) == 0 && i > 0; i--) { /* another order */
                        int k = next(i + 1);
                        unsigned char was = s->order[i];
                        s->order[i] = s->order[k], s->order[k] = was;
                }
                if (next(5) == 0)
                        s->order[next(N_SAMPLERS - 1)] = 0; /* the chain ends there */
        }
        return c;
}

#endif
