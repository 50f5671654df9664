/* cpu_sample.h: samples the next token from a row of logits; a tile is one sequence.  sample.cuh
 * defines the steps. */
#ifndef TGC_CPU_SAMPLE_H
#define TGC_CPU_SAMPLE_H

#include "cpu_sample_chain.h"

#define SAMPLE_ID 0x73616d70u

/* The largest logit, and the first token that has it; not finite if one is NaN or +inf, or all are
 * -inf. */
TGC_INLINE float sample_max(const float *x, int V, int *token)
{
        Vec most = vec_all(-INFINITY), none = vec_all(INFINITY);
        __typeof__(most < none) less = most < none; /* all bits set, per lane */
        float max = -INFINITY;
        int i = 0, odd = 0;
        for (; i + TGC_VEC <= V; i += TGC_VEC) {
                Vec v = vec_load_ty(TY_F32, x, i);
                most = vec_max(v, most);
                less &= v < none;
        }
        for (int k = 0; k < TGC_VEC; k++)
                odd |= !less[k];
        for (; i < V; i++) {
                max = x[i] > max ? x[i] : max;
                odd |= !(x[i] < INFINITY);
        }
        *token = 0;
        if (odd)
                return INFINITY;
        max = vec_top(vec_max(vec_all(max), most));
        for (i = 0; max > -INFINITY && x[i] != max;)
                i++;
        *token = i;
        return max;
}

/* Step 4; max is finite, u a random word. */
TGC_INLINE int sample_pick(const RtSample *s, const float *x, int V, float max, uint32_t u)
{
        SampleBy number = { 0, 0, max, 0 }, weight = { 1, 0, max, 0 };
        uint32_t t = 0;
        if (s->top_k > 0 && s->top_k < V)
                t = sample_threshold(x, V, 0, (uint64_t)s->top_k, &number);
        if (s->top_p < 1.f) {
                uint64_t need = sample_share(s->top_p, sample_mass(x, V, t, &weight));
                uint32_t p = sample_threshold(x, V, t, need, &weight);
                t = p > t ? p : t;
        }
        return sample_draw(x, V, t, s->min_p > 0.f ? logf(s->min_p) : -INFINITY, max, s->temp, u);
}

/* Log-softmax of the raw logits x, for the token and the n likeliest. */
TGC_INLINE void sample_logprobs(RtDrawn *d, const float *x, int V, float max, int token, int n)
{
        double sum = 0.;
        int used = 0;
        for (int i = 0; i < V; i++) {
                sum += fast_exp_negf(x[i] - max);
                int at = used;
                while (at > 0 && x[i] > x[d->best[at - 1]])
                        at--;
                if (at >= n || at >= RT_LOGPROBS)
                        continue;
                used += used < n && used < RT_LOGPROBS;
                for (int k = used - 1; k > at; k--)
                        d->best[k] = d->best[k - 1];
                d->best[at] = i;
        }
        const float log_z = (float)log(sum);
        d->logprob = x[token] - max - log_z;
        for (int k = 0; k < used; k++)
                d->best_logprob[k] = x[d->best[k]] - max - log_z;
        for (int k = used; k < RT_LOGPROBS; k++)
                d->best[k] = -1;
}

/* Step 2: the row with mask and biases, as the list of candidates. */
TGC_INLINE void sample_begin(SampleLeft *c, const RtSample *s, const float *x, const int *slot,
                             int V, int cap)
{
        const unsigned *mask = (const unsigned *)slot + RT_SLOT_MASK(V, cap);
        const RtBias *bias = (const RtBias *)(slot + RT_SLOT_BIAS(cap));
        c->n = 0;
        for (int i = 0; i < V; i++)
                if (!(s->what & SAMPLE_MASK) || sample_bit(mask, V, i)) {
                        c->x[c->n] = x[i];
                        c->token[c->n++] = i;
                }
        for (int i = 0; i < s->n_bias && i < RT_BIASES && s->what & SAMPLE_BIAS; i++) {
                float *at = sample_find(c, bias[i].token);
                if (at)
                        *at += bias[i].bias;
        }
}

/* logits: float (B, ld), of the last token of each row; kept.  scratch: (n_slots, 2 * V) words.
 * The rest is as in sample.cuh. */
TGC_INLINE void sample_task(Rt *rt, const float *logits, int V, long ld, float *scratch, int *slots,
                            RtDrawn *drawn, int n_slots, int cap, int *next, long tile)
{
        if (tile >= rt->sampled)
                return;
        const float *x = logits + tile * ld;
        int row = rt->slot[tile], turn = rt->n_out[tile]++, token, finite;
        const int S = ++rt->pos[tile];
        for (int i = 0; i < TGC_POOLS; i++)
                if (rt->pages[i] && row >= 0 && S / TGC_PAGE < rt->slot_pages)
                        rt->place[i][tile] =
                                rt->pages[i][(long)row * rt->slot_pages + S / TGC_PAGE] * TGC_PAGE +
                                S % TGC_PAGE;
        if (row < 0 || row >= n_slots) {
                rt->n_out[tile] = turn;
                return;
        }
        int *slot = slots + (long)row * RT_SLOT_WORDS(V, cap);
        RtSample *s = (RtSample *)slot;
        float raw = sample_max(x, V, &token), max = raw;
        SampleLeft c = { scratch + tile * 2 * V, (int *)(scratch + tile * 2 * V + V), V, 0.f };
        finite = raw > -INFINITY && raw < INFINITY;
        if (s->what & (SAMPLE_MASK | SAMPLE_BIAS | SAMPLE_CHAIN) && finite) {
                sample_begin(&c, s, x, slot, V, cap);
                max = sample_max(c.x, c.n, &token);
                finite = max > -INFINITY && max < INFINITY;
                token = finite ? c.token[token] : 0;
        }
        if (s->what & (SAMPLE_DRAW | SAMPLE_CHAIN) && finite) {
                uint32_t r[4] = { (uint32_t)s->drawn, 0, SAMPLE_ID, 0 };
                philox(r, s->seed[0], s->seed[1]);
                if (s->what & SAMPLE_CHAIN)
                        token = sample_chain(s, &c, slot, V, cap, r);
                else if (s->what & (SAMPLE_MASK | SAMPLE_BIAS))
                        token = c.token[sample_pick(s, c.x, c.n, max, r[0])];
                else
                        token = sample_pick(s, x, V, max, r[0]);
        }
        RtDrawn *d = drawn + (turn % RT_DRAWN * n_slots + tile);
        if (s->what & SAMPLE_LOGPROBS && finite)
                sample_logprobs(d, x, V, raw, token, s->n_logprobs);
        next[tile] = token;
        d->token = finite ? token : -1;
        d->mirostat_mu = s->mirostat_mu;
        slot[RT_SLOT_HISTORY + s->n_hist % cap] = token;
        s->n_hist++;
        s->drawn++;
}

#endif
