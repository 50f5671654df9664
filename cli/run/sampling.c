/* sampling.c: reads the sampling options, which have llama.cpp's names, into the session's struct.
 *
 * Any combination of these options is allowed, as in llama.cpp: --top-k beside --temp 0 changes
 * nothing and is no error. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "sampling.h"
#include "../../runtime/util/c_locale.h"

static const char *const names[] = { "",      "penalties", "dry",   "top_n_sigma", "top_k",
                                     "typ_p", "top_p",     "min_p", "xtc",         "temperature" };

/* Other words that llama.cpp takes. */
static const struct {
        const char *typed;
        int sampler;
} other_names[] = { { "nucleus", TGC_TOP_P },    { "typical_p", TGC_TYP_P },
                    { "typical", TGC_TYP_P },    { "typ", TGC_TYP_P },
                    { "temp", TGC_TEMPERATURE }, { "top_nsigma", TGC_TOP_N_SIGMA } };

static int sampler_named(const char *s, size_t n)
{
        char name[32];
        if (n >= sizeof name)
                return 0;
        for (size_t i = 0; i < n; i++)
                name[i] = s[i] == '-' ? '_' : s[i];
        name[n] = 0;
        for (size_t i = 1; i < sizeof names / sizeof *names; i++)
                if (!strcmp(name, names[i]))
                        return (int)i;
        for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
                if (!strcmp(name, other_names[i].typed))
                        return other_names[i].sampler;
        return 0;
}

static int read_order(Sampling *s, const char *text, Err *e)
{
        size_t at = 0, n;
        for (const char *p = text;; p += n + 1) {
                n = strcspn(p, ";");
                int sampler = sampler_named(p, n);
                if (!sampler)
                        return err_set(
                                e, TGC_USAGE,
                                "--samplers: there is no sampler '%.*s'; there are penalties, "
                                "dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature",
                                (int)(n < 40 ? n : 40), p);
                if (at + 1 >= sizeof s->order)
                        return err_set(e, TGC_USAGE, "--samplers takes at most %zu samplers",
                                       sizeof s->order - 1);
                s->order[at++] = (unsigned char)sampler;
                if (!p[n])
                        return TGC_OK;
        }
}

/* ---- biases ---- */

static int read_bias(TgcBias *b, const char *text, int vocab, Err *e)
{
        char *end, *rest;
        long token = strtol(text, &end, 10);
        double bias = 0;
        bool good = end > text && (*end == '+' || *end == '-') && end[1] != '+' && end[1] != '-';
        if (good) {
                bias = c_strtod(end, &rest);
                good = rest > end + 1 && !*rest && bias < INFINITY;
        }
        if (!good)
                return err_set(e, TGC_USAGE,
                               "--logit-bias %.60s: give TOKEN+BIAS or TOKEN-BIAS, as 15043-1 or "
                               "15043-inf",
                               text);
        if (token < 0 || token >= vocab)
                return err_set(e, TGC_USAGE, "--logit-bias %.60s: the model has tokens 0 to %d",
                               text, vocab - 1);
        *b = (TgcBias) { (int)token, (float)bias };
        return TGC_OK;
}

static int read_biases(SamplingOptions *o, const Args *a, const Tokenizer *tok, int vocab, Err *e)
{
        const OptionValue *v = &a->v[O_LOGIT_BIAS];
        const int *eos = NULL;
        int n_eos = tok && opt_flag(a, O_IGNORE_EOS) ? tokenizer_eos(tok, &eos) : 0, code = TGC_OK,
            n = 0;
        if (!(o->bias = calloc((size_t)(v->n + n_eos) + 1, sizeof *o->bias)))
                return err_set(e, TGC_NO_MEMORY, "no memory for biases");
        for (int i = 0; i < v->n && !code; i++)
                code = read_bias(&o->bias[n++], v->list[i], vocab, e);
        for (int i = 0; i < n_eos; i++)
                if (eos[i] < vocab)
                        o->bias[n++] = (TgcBias) { eos[i], -INFINITY };
        o->s.bias = o->bias;
        o->s.n_bias = n;
        return code;
}

/* ---- DRY's breakers ---- */

enum { BREAKER_BYTES = 40, BREAKER_TOKENS = 20, BREAKER_WORDS = 1024 };

/* Token `head` ends with the first bytes of a breaker: `rest` completes it. */
static int add_sequence(SamplingOptions *o, int head, const char *rest, const Tokenizer *tok,
                        Err *e)
{
        int *ids, n, code = tokenizer_encode(tok, rest, strlen(rest), 0, &ids, &n, e), *to;
        if (code)
                return code;
        n = n < BREAKER_TOKENS ? n : BREAKER_TOKENS;
        to = o->breakers + o->s.n_dry_breakers;
        if (o->s.n_dry_breakers + 2 + n > BREAKER_WORDS) {
                free(ids);
                return err_set(
                        e, TGC_USAGE,
                        "--dry-sequence-breaker: too many tokens begin one; give a shorter one");
        }
        to[0] = head;
        to[1] = n;
        memcpy(to + 2, ids, (size_t)n * sizeof *ids);
        o->s.n_dry_breakers += 2 + n;
        free(ids);
        return TGC_OK;
}

static bool holds(const char *text, size_t n, const char *part, size_t m)
{
        for (size_t i = 0; i + m <= n; i++)
                if (!memcmp(text + i, part, m))
                        return true;
        return false;
}

static int add_breaker(SamplingOptions *o, const char *b, const Tokenizer *tok, int vocab, Err *e)
{
        size_t m = strlen(b), n;
        int code = TGC_OK;
        if (!m || m > BREAKER_BYTES)
                return err_set(e, TGC_USAGE, "--dry-sequence-breaker takes 1 to %d bytes, not %zu",
                               BREAKER_BYTES, m);
        for (int id = 0; id < vocab && id < tokenizer_vocab(tok) && !code; id++) {
                TokStream middle = { 1, 1 };
                const char *text = tokenizer_next(tok, &middle, id, &n);
                if (holds(text, n, b, m)) {
                        o->bits[id / 32] |= 1u << id % 32;
                        continue;
                }
                for (size_t k = n < m ? n : m - 1; k > 0 && !code; k--)
                        if (!memcmp(text + n - k, b, k))
                                code = add_sequence(o, id, b + k, tok, e);
        }
        return code;
}

static int read_breakers(SamplingOptions *o, const Args *a, const Tokenizer *tok, int vocab, Err *e)
{
        static const char *const usual[] = { "\n", ":", "\"", "*" };
        const OptionValue *v = &a->v[O_DRY_BREAKER];
        const bool own = v->n > 0;
        int n = own ? v->n : (int)(sizeof usual / sizeof *usual), code = TGC_OK;
        if (own && !tok)
                return err_set(e, TGC_USAGE,
                               "run: --dry-sequence-breaker is text, and there is no tokenizer");
        if (o->s.dry_multiplier == 0 || !tok)
                return TGC_OK;
        o->bits = calloc((size_t)vocab / 32 + 1, sizeof *o->bits);
        o->breakers = calloc(BREAKER_WORDS, sizeof *o->breakers);
        if (!o->bits || !o->breakers)
                return err_set(e, TGC_NO_MEMORY, "no memory for sequence breakers");
        o->s.dry_breaker_bits = o->bits;
        o->s.dry_breakers = o->breakers;
        for (int i = 0; i < n && !code; i++)
                if (!own || strcmp(v->list[i], "none"))
                        code = add_breaker(o, own ? v->list[i] : usual[i], tok, vocab, e);
        return code;
}

/* ---- all of them ---- */

int sampling_read(SamplingOptions *o, const Args *a, const Tokenizer *tok, int vocab, uint64_t seed,
                  Err *e)
{
        Sampling *s = &o->s;
        *o = (SamplingOptions) { .s = sampling_default() };
        const struct {
                OptionId id;
                float *f;
                int *i;
        } row[] = { { O_TEMP, &s->temp, NULL },
                    { O_DYNATEMP_RANGE, &s->dynatemp_range, NULL },
                    { O_DYNATEMP_EXP, &s->dynatemp_exponent, NULL },
                    { O_TOP_K, NULL, &s->top_k },
                    { O_TOP_P, &s->top_p, NULL },
                    { O_MIN_P, &s->min_p, NULL },
                    { O_TYPICAL, &s->typical_p, NULL },
                    { O_TOP_NSIGMA, &s->top_n_sigma, NULL },
                    { O_XTC_PROBABILITY, &s->xtc_probability, NULL },
                    { O_XTC_THRESHOLD, &s->xtc_threshold, NULL },
                    { O_REPEAT_PENALTY, &s->repeat_penalty, NULL },
                    { O_PRESENCE_PENALTY, &s->presence_penalty, NULL },
                    { O_FREQUENCY_PENALTY, &s->frequency_penalty, NULL },
                    { O_REPEAT_LAST_N, NULL, &s->repeat_last_n },
                    { O_DRY_MULTIPLIER, &s->dry_multiplier, NULL },
                    { O_DRY_BASE, &s->dry_base, NULL },
                    { O_DRY_ALLOWED_LENGTH, NULL, &s->dry_allowed_length },
                    { O_DRY_LAST_N, NULL, &s->dry_last_n },
                    { O_MIROSTAT, NULL, &s->mirostat },
                    { O_MIROSTAT_ENT, &s->mirostat_tau, NULL },
                    { O_MIROSTAT_LR, &s->mirostat_eta, NULL } };
        for (size_t i = 0; i < sizeof row / sizeof *row; i++)
                if (row[i].f)
                        *row[i].f = (float)opt_num(a, row[i].id);
                else
                        *row[i].i = opt_int(a, row[i].id);
        s->seed = seed;
        s->logprobs = opt_set(a, O_LOGPROBS);
        s->n_logprobs = s->logprobs ? opt_int(a, O_LOGPROBS) : 0;
        int code = TGC_OK;
        if (s->mirostat == 1)
                code = err_set(e, TGC_USAGE, "--mirostat 1 is not supported: 0 or 2");
        if (!code && opt_str(a, O_SAMPLERS))
                code = read_order(s, opt_str(a, O_SAMPLERS), e);
        if (!code)
                code = read_biases(o, a, tok, vocab, e);
        return code ? code : read_breakers(o, a, tok, vocab, e);
}

void sampling_free(SamplingOptions *o)
{
        free(o->bias);
        free(o->bits);
        free(o->breakers);
}

/* ---- log-probabilities, in OpenAI's shape ---- */

/* OpenAI's number for what cannot be. */
static double openai_logprob(float logprob) { return logprob > -9999 ? (double)logprob : -9999; }

static cJSON *token_json(const Tokenizer *tok, int id, float logprob)
{
        cJSON *o = cJSON_CreateObject();
        TokStream middle = { 1, 1 };
        size_t n = 0;
        const char *text = tok ? tokenizer_next(tok, &middle, id, &n) : "";
        json_add_text(o, "token", text, n);
        cJSON_AddNumberToObject(o, "id", id);
        cJSON_AddNumberToObject(o, "logprob", openai_logprob(logprob));
        cJSON *bytes = cJSON_AddArrayToObject(o, "bytes");
        for (size_t i = 0; i < n; i++)
                cJSON_AddItemToArray(bytes, cJSON_CreateNumber((unsigned char)text[i]));
        return o;
}

cJSON *logprobs_json(const Tokenizer *tok, const RtDrawn *d, int n)
{
        cJSON *all = cJSON_CreateObject(), *content = cJSON_AddArrayToObject(all, "content");
        for (int i = 0; i < n; i++) {
                cJSON *o = token_json(tok, d[i].token, d[i].logprob),
                      *top = cJSON_AddArrayToObject(o, "top_logprobs");
                for (int k = 0; k < RT_LOGPROBS && d[i].best[k] >= 0; k++)
                        cJSON_AddItemToArray(top,
                                             token_json(tok, d[i].best[k], d[i].best_logprob[k]));
                cJSON_AddItemToArray(content, o);
        }
        return all;
}
