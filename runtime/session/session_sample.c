/* session_sample.c: translates sampling settings into what the sampler reads (rt.h).
 *
 * Samplers that change nothing are left out of the chain.  The others decide what the device does:
 * take the largest logit, draw from the top k, or run the whole chain. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "session_impl.h"

Sampling sampling_default(void)
{
        return (Sampling) { .temp = 0.8f,
                            .dynatemp_exponent = 1.f,
                            .top_k = 40,
                            .top_p = 0.95f,
                            .min_p = 0.05f,
                            .typical_p = 1.f,
                            .xtc_threshold = 0.1f,
                            .repeat_penalty = 1.f,
                            .repeat_last_n = 64,
                            .dry_base = 1.75f,
                            .dry_allowed_length = 2,
                            .dry_last_n = 64,
                            .mirostat_tau = 5.f,
                            .mirostat_eta = 0.1f };
}

const RtDrawn *session_drawn(const Session *s, int b) { return s->drawn + b; }

/* ---- checks ---- */

static int check_range(const char *name, double x, double low, double high, Err *e)
{
        return x >= low && x <= high
                       ? TGC_OK
                       : err_set(e, TGC_USAGE, "%s is %g, must be %g to %g", name, x, low, high);
}

static int check_look_back(const char *name, int n, int cap, int ctx, Err *e)
{
        if (n < 0 || (n > cap && cap < ctx))
                return err_set(e, TGC_USAGE, "%s is %d, must be 0 to %d", name, n, cap);
        return TGC_OK;
}

static int check_numbers(const Sampling *h, Err *e)
{
        const struct {
                const char *name;
                float x, low, high;
        } row[] = {
                { "temp", h->temp, 0, 1e6f },
                { "dynatemp_range", h->dynatemp_range, 0, 1e6f },
                { "dynatemp_exponent", h->dynatemp_exponent, 0, 1e6f },
                { "top_p", h->top_p, 0, 1e6f },
                { "min_p", h->min_p, 0, 1 },
                { "typical_p", h->typical_p, 0, 1e6f },
                { "top_n_sigma", h->top_n_sigma, -1e6f, 1e6f },
                { "xtc_probability", h->xtc_probability, 0, 1 },
                { "xtc_threshold", h->xtc_threshold, 0, 1e6f },
                { "repeat_penalty", h->repeat_penalty, 1e-6f, 1e6f },
                { "presence_penalty", h->presence_penalty, -1e6f, 1e6f },
                { "frequency_penalty", h->frequency_penalty, -1e6f, 1e6f },
                { "dry_multiplier", h->dry_multiplier, -1e6f, 1e6f },
                { "dry_base", h->dry_base, 0, 1e6f },
                { "dry_allowed_length", (float)h->dry_allowed_length, 0, 1e6f },
                { "mirostat_tau", h->mirostat_tau, 0, 1e6f },
                { "mirostat_eta", h->mirostat_eta, 0, 1e6f },
                { "n_logprobs", (float)h->n_logprobs, 0, RT_LOGPROBS },
                { "n_bias", (float)h->n_bias, 0, RT_BIASES },
                { "n_dry_breakers", (float)h->n_dry_breakers, 0, RT_BREAKERS },
        };
        int code = TGC_OK;
        for (size_t i = 0; i < sizeof row / sizeof *row && !code; i++)
                code = check_range(row[i].name, row[i].x, row[i].low, row[i].high, e);
        if (!code && h->mirostat != 0 && h->mirostat != 2)
                code = err_set(e, TGC_USAGE, "mirostat is %d, must be 0 or 2", h->mirostat);
        return code;
}

static int check_lists(const Sampling *h, int V, Err *e)
{
        if ((h->n_bias && !h->bias) || (h->n_dry_breakers && !h->dry_breakers))
                return err_set(e, TGC_USAGE, "%s is %d, and %s is NULL",
                               h->n_bias && !h->bias ? "n_bias" : "n_dry_breakers",
                               h->n_bias && !h->bias ? h->n_bias : h->n_dry_breakers,
                               h->n_bias && !h->bias ? "bias" : "dry_breakers");
        for (int i = 0; i < h->n_bias; i++) {
                const TgcBias *b = &h->bias[i];
                if (b->token < 0 || b->token >= V)
                        return err_set(e, TGC_USAGE, "a bias for token %d: the vocabulary has %d",
                                       b->token, V);
                if (!(b->bias < INFINITY))
                        return err_set(e, TGC_USAGE,
                                       "the bias of token %d is %g, and must be a number or -inf",
                                       b->token, (double)b->bias);
        }
        for (int i = 0; i < RT_ORDER && h->order[i]; i++)
                if (h->order[i] >= N_SAMPLERS)
                        return err_set(e, TGC_USAGE,
                                       "there is no sampler number %d; the last is %d", h->order[i],
                                       N_SAMPLERS - 1);
        for (int i = 0; i < h->n_dry_breakers; i += 2 + h->dry_breakers[i + 1])
                if (i + 1 >= h->n_dry_breakers || h->dry_breakers[i + 1] < 0 ||
                    h->dry_breakers[i + 1] > h->n_dry_breakers - i - 2)
                        return err_set(e, TGC_USAGE,
                                       "dry_breakers has %d numbers and ends within the sequence "
                                       "that begins at number %d",
                                       h->n_dry_breakers, i);
        return TGC_OK;
}

/* ---- what the device does ---- */

static bool acts(const Sampling *h, int sampler, int V)
{
        switch (sampler) {
        case SAMPLER_PENALTIES:
                return h->repeat_last_n && (h->repeat_penalty != 1 || h->presence_penalty != 0 ||
                                            h->frequency_penalty != 0);
        case SAMPLER_DRY: return h->dry_multiplier != 0 && h->dry_base >= 1 && h->dry_last_n;
        case SAMPLER_TOP_N_SIGMA: return h->top_n_sigma > 0;
        case SAMPLER_TOP_K: return h->top_k > 0 && h->top_k < V;
        case SAMPLER_TYP_P: return h->typical_p < 1;
        case SAMPLER_TOP_P: return h->top_p < 1;
        case SAMPLER_MIN_P: return h->min_p > 0;
        case SAMPLER_XTC: return h->xtc_probability > 0 && h->xtc_threshold <= 0.5f;
        default: return h->temp != 1 || h->dynatemp_range > 0;
        }
}

/* The samplers that act, in order; how many. */
static int chain_of(const Sampling *h, int V, unsigned char order[RT_ORDER])
{
        int n = 0;
        memset(order, 0, RT_ORDER);
        for (int i = 0; i < RT_ORDER && (h->order[0] ? h->order[i] != 0 : i + 1 < N_SAMPLERS);
             i++) {
                int sampler = h->order[0] ? h->order[i] : i + 1;
                if (acts(h, sampler, V))
                        order[n++] = (unsigned char)sampler;
        }
        return n;
}

/* The chain is top_k, top_p, min_p, temperature, or some of these in this order. */
static bool is_fast(const Sampling *h, const unsigned char *order, int n)
{
        for (int i = 0; i < n; i++)
                if ((order[i] != SAMPLER_TOP_K && order[i] != SAMPLER_TOP_P &&
                     order[i] != SAMPLER_MIN_P && order[i] != SAMPLER_TEMPERATURE) ||
                    (i && order[i] <= order[i - 1]))
                        return false;
        return h->dynatemp_range <= 0 && !h->mirostat;
}

static RtSample sample_of(const Session *s, const Sampling *h, const SampleState *q)
{
        const uint64_t seed = q->seed;
        RtSample r = { .seed = { (unsigned)seed, (unsigned)(seed >> 32) },
                       .drawn = q->drawn,
                       .n_hist = q->n_ids,
                       .top_k = h->top_k,
                       .temp = h->temp,
                       .top_p = h->top_p,
                       .min_p = h->min_p,
                       .dynatemp_range = h->dynatemp_range,
                       .dynatemp_exponent = h->dynatemp_exponent,
                       .typical_p = h->typical_p,
                       .top_n_sigma = h->top_n_sigma,
                       .xtc_probability = h->xtc_probability,
                       .xtc_threshold = h->xtc_threshold,
                       .repeat_last_n = h->repeat_last_n,
                       .repeat_penalty = h->repeat_penalty,
                       .presence_penalty = h->presence_penalty,
                       .frequency_penalty = h->frequency_penalty,
                       .dry_multiplier = h->dry_multiplier,
                       .dry_base = h->dry_base,
                       .dry_allowed_length = h->dry_allowed_length,
                       .dry_last_n = h->dry_last_n,
                       .n_breaker = h->n_dry_breakers,
                       .n_bias = h->n_bias,
                       .n_logprobs = h->n_logprobs,
                       .mirostat = h->mirostat,
                       .mirostat_tau = h->mirostat_tau,
                       .mirostat_eta = h->mirostat_eta,
                       .mirostat_mu = q->mu != 0 ? q->mu : 2 * h->mirostat_tau };
        int n = chain_of(h, s->m.vocab, r.order);
        bool has[N_SAMPLERS] = { false };
        for (int i = 0; i < n; i++)
                has[r.order[i]] = true;
        if (h->n_bias)
                r.what |= SAMPLE_BIAS;
        if (h->mask)
                r.what |= SAMPLE_MASK;
        if (h->logprobs)
                r.what |= SAMPLE_LOGPROBS;
        if (!is_fast(h, r.order, n)) {
                r.what |= SAMPLE_CHAIN;
        } else if (!has[SAMPLER_TEMPERATURE] || h->temp > 0) {
                r.what |= SAMPLE_DRAW;
                r.top_k = has[SAMPLER_TOP_K] ? r.top_k : 0;
                r.top_p = has[SAMPLER_TOP_P] ? r.top_p : 1;
                r.min_p = has[SAMPLER_MIN_P] ? r.min_p : 0;
                r.temp = has[SAMPLER_TEMPERATURE] ? r.temp : 1;
        }
        return r;
}

/* ---- memory ---- */

int sample_memory(const Session *s, const Prog *g, SampleMemory *m, Err *e)
{
        const Io *slots = prog_io(g, "slots"), *drawn = prog_io(g, "drawn");
        *m = (SampleMemory) { .cap = RT_HISTORY_OF(s->m.ctx), .n = s->m.batch };
        if (!slots && !drawn)
                return TGC_OK;
        if (!slots || !drawn ||
            expr_eval(slots->shape, g->B, g->T) !=
                    (int64_t)m->n * RT_SLOT_WORDS(s->m.vocab, m->cap) ||
            expr_eval(drawn->shape, g->B, g->T) !=
                    (int64_t)m->n * RT_DRAWN * (int64_t)(sizeof(RtDrawn) / 4))
                return err_set(
                        e, TGC_BAD_FILE,
                        "program %.60s: its slots and drawn are not of %d sequences: compile "
                        "the model again",
                        g->name, m->n);
        m->slots = (int *)ref_mem(s, slots->at);
        m->drawn = (RtDrawn *)ref_mem(s, drawn->at);
        return TGC_OK;
}

int sample_slot(Session *s, const SampleMemory *m, const Sampling *h, const SampleState *q, int b,
                Err *e)
{
        const int V = s->m.vocab, cap = m->cap, n = q->n_ids;
        const int *hist = q->ids;
        const RtSample r = sample_of(s, h, q);
        size_t words = RT_SAMPLE_WORDS;
        int *slot = calloc((size_t)RT_SLOT_WORDS(V, cap), sizeof *slot);
        if (!slot)
                return err_set(e, TGC_NO_MEMORY, "no memory for how a sequence is sampled");
        memcpy(slot, &r, sizeof r);
        for (int p = n > cap ? n - cap : 0; p < n; p++)
                slot[RT_SLOT_HISTORY + p % cap] = hist[p];
        for (int i = 0; i < h->n_bias; i++)
                memcpy(slot + RT_SLOT_BIAS(cap) + 2 * i,
                       &(RtBias) { h->bias[i].token, h->bias[i].bias }, sizeof(RtBias));
        if (h->n_dry_breakers)
                memcpy(slot + RT_SLOT_BREAKER(cap), h->dry_breakers,
                       (size_t)h->n_dry_breakers * sizeof(int));
        if (h->dry_breaker_bits)
                memcpy(slot + RT_SLOT_BREAK_MASK(cap), h->dry_breaker_bits,
                       (size_t)RT_MASK_WORDS(V) * 4);
        if (r.what & SAMPLE_BIAS)
                words = (size_t)RT_SLOT_BREAKER(cap);
        if (r.what & SAMPLE_CHAIN)
                words = (size_t)RT_SLOT_MASK(V, cap);
        const int code = dev_upload(s->d, m->slots + (size_t)b * RT_SLOT_WORDS(V, cap), slot,
                                    words * 4, e);
        free(slot);
        return code;
}

int sample_check(const Session *s, const SampleMemory *m, const Sampling *h, Err *e)
{
        int code = check_numbers(h, e);
        if (code || (code = check_lists(h, s->m.vocab, e)) ||
            (code = check_look_back("repeat_last_n", h->repeat_last_n, m->cap, s->m.ctx, e)))
                return code;
        return check_look_back("dry_last_n", h->dry_last_n, m->cap, s->m.ctx, e);
}

int sample_begin(Session *s, const SampleMemory *m, const Sampling *h, Err *e)
{
        int code = sample_check(s, m, h, e);
        if (code || !m->slots)
                return code;
        if (!s->drawn && !(s->drawn = calloc((size_t)s->m.batch, sizeof *s->drawn)))
                return err_set(e, TGC_NO_MEMORY, "no memory to sample %d sequences", s->B);
        for (int b = 0; b < s->B && !code; b++) {
                const SampleState q = { s->hist + (size_t)b * (size_t)s->m.ctx, session_pos(s),
                                        s->n_drawn, s->mu[b], h->seed + (uint64_t)b };
                code = sample_slot(s, m, h, &q, b, e);
        }
        return code;
}

static bool allows_any(const uint32_t *bits, int V)
{
        uint32_t any = V % 32 ? bits[V / 32] & ((UINT32_C(1) << V % 32) - 1) : 0;
        for (int i = 0; i < V / 32 && !any; i++)
                any = bits[i];
        return any;
}

int sample_mask(Session *s, const SampleMemory *m, const Sampling *h, int sequence, int slot,
                int token, Err *e)
{
        const int V = s->m.vocab;
        const uint32_t *bits = h->mask(h->mask_user, sequence, token);
        int *to = m->slots + (size_t)slot * RT_SLOT_WORDS(V, m->cap) + RT_SLOT_MASK(V, m->cap);
        return bits && allows_any(bits, V)
                       ? dev_upload(s->d, to, bits, (size_t)RT_MASK_WORDS(V) * 4, e)
                       : err_set(e, TGC_FAIL,
                                 "no token may come next in sequence %d: the grammar needs a text "
                                 "that no token begins, or is too ambiguous",
                                 sequence);
}

int sample_masks(Session *s, const SampleMemory *m, const Sampling *h, const int *token, Err *e)
{
        int code = TGC_OK;
        for (int b = 0; b < s->B && !code; b++)
                code = sample_mask(s, m, h, b, b, token ? token[b] : -1, e);
        return code;
}
