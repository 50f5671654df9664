/* train_watch.c: looking at a model in training: losses on windows that stay the same, and samples. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "train.h"

/* ---- losses ---- */

static bool any_target(const Train *t)
{
        const size_t n = (size_t)t->B * (size_t)t->T;
        size_t i = 0;
        while (i < n && t->y[i] < 0)
                i++;
        return i < n;
}

/* Always the same windows, so that they compare. */
static int mean_loss(Train *t, const Windows *w, double *mean, Err *e)
{
        double sum = 0, loss;
        uint64_t n, counted = 0;
        int code = TGC_OK;
        for (int i = 0; i < opt_int(t->a, O_EVAL_ITERS) && !code; i++) {
                windows_fill(w, i, 0, 1, t->B, t->x, t->y, t->d);
                if (w->once && !any_target(t)) /* each record was there */
                        break;
                if (!(code = session_eval_packed(t->s, t->x, t->y, t->d, t->B, t->T, &loss, &n,
                                                 e))) {
                        sum += loss * (double)n;
                        counted += n;
                }
        }
        *mean = counted ? sum / (double)counted : NAN;
        return code;
}

int train_validate(Train *t, double *train, double *val, Err *e)
{
        Windows w = t->train;
        w.seed = t->val.seed;
        int code = mean_loss(t, &w, train, e);
        return code ? code : mean_loss(t, &t->val, val, e);
}

/* ---- samples ---- */

typedef struct Sample {
        Train *t;
        int *ids, n, cap;
} Sample;

static int on_token(void *user, int i, const int *token, int B)
{
        Sample *x = user;
        (void)i, (void)B;
        if (tokenizer_is_eos(x->t->l.tok, *token) || x->n == x->cap)
                return 1;
        x->ids[x->n++] = *token;
        return signal_seen() != 0;
}

/* The seed is the run's: dropout goes on with it.  Equal noise each time, so that samples compare. */
static int sample(Train *t, const Prompt *p, Err *e)
{
        const int ctx = session_manifest(t->s)->ctx, more = opt_int(t->a, O_SAMPLE_TOKENS);
        Sample x = { .t = t, .n = p->n, .cap = p->n + more < ctx ? p->n + more : ctx };
        Sampling how = sampling_default();
        char *text = NULL;
        size_t n = 0;
        how.seed = t->state.seed;
        if (!(x.ids = malloc(((size_t)x.cap + 1) * sizeof *x.ids)))
                return err_set(e, TGC_NO_MEMORY, "no memory for a sample");
        memcpy(x.ids, p->ids, (size_t)p->n * sizeof *x.ids);
        int code = session_reset(t->s, e);
        if (!code)
                code = session_prefill(t->s, p->ids, 1, p->n, e);
        if (!code && x.cap > p->n)
                code = session_decode(t->s, &how, x.cap - p->n, on_token, &x, e);
        if (!code)
                code = session_reset(t->s, e);
        if (!code && !(code = tokenizer_text(t->l.tok, x.ids, x.n, &text, &n, e))) {
                say(&t->talk, "step %lld: sample: ", (long long)t->state.step);
                if (!t->talk.quiet) {
                        put_plain(stderr, text, n);
                        fputc('\n', stderr);
                }
        }
        free(text);
        free(x.ids);
        return code;
}

int train_sample(Train *t, Err *e)
{
        int code = TGC_OK;
        progress_bar_end(&t->talk);
        for (int i = 0; i < t->samples.n && !code; i++)
                code = sample(t, &t->samples.prompt[i], e);
        return code;
}

int train_samples(Train *t, Err *e)
{
        const int ctx = session_manifest(t->s)->ctx;
        if (!opt_int(t->a, O_SAMPLE_INTERVAL))
                return TGC_OK;
        if (!t->l.tok)
                return err_set(e, TGC_USAGE,
                               "--sample_interval: %s has no tokenizer, so a sample has no text; "
                               "--tokenizer FILE gives one",
                               t->a->pos[0]);
        if (!session_has(t->s, "decode") || !session_has(t->s, "prefill"))
                return err_set(
                        e, TGC_USAGE,
                        "--sample_interval: %s has no programs to generate text: compile it with "
                        "--mode both",
                        t->a->pos[0]);
        int code = prompts_of(&t->samples, &t->a->v[O_SAMPLE_PROMPT], t->l.tok, e);
        for (int i = 0; i < t->samples.n && !code; i++)
                if (t->samples.prompt[i].n > ctx)
                        code = err_set(e, TGC_USAGE,
                                       "--sample_prompt has %d tokens, the context is %d",
                                       t->samples.prompt[i].n, ctx);
        return code;
}
