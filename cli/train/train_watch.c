/* train_watch.c: observes a model in training: losses on a fixed set of windows, and samples. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../objective/objective.h"

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
                TrainStep in = { .B = t->B,
                                 .T = t->T,
                                 .n_micro = 1,
                                 .ids = t->x,
                                 .targets = t->y,
                                 .documents = t->d };
                if (aim_drives(t))
                        code = aim_fill(t, w, i, 1, &in, e);
                else
                        windows_fill(w, i, 0, 1, t->B, t->x, t->y, t->d);
                if (code || (w->once && !any_target(t))) /* each record was there */
                        break;
                if (!(code = session_eval_fed(t->s, &in, &loss, &n, e))) {
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
        int code = ema_swap(t, EMA_EVAL, e);
        if (code || (code = mean_loss(t, &w, train, e)) || (code = mean_loss(t, &t->val, val, e)))
                return code;
        return ema_swap(t, EMA_EVAL, e);
}

/* ---- samples ---- */

typedef struct Sample {
        Train *t;
        int *ids, n, cap, end; /* end: this token ends it too */
} Sample;

static int on_token(void *user, int i, const int *token, int B)
{
        Sample *x = user;
        (void)i, (void)B;
        if (tokenizer_is_eos(x->t->l.tok, *token) || *token == x->end || x->n == x->cap)
                return 1;
        x->ids[x->n++] = *token;
        return signal_seen() != 0;
}

/* The seed is the run's: dropout goes on with it.  Equal noise each time, so that samples
 * compare. */
static int sample(Train *t, const Prompt *p, bool fixed, double *score, Err *e)
{
        const int ctx = session_manifest(t->s)->ctx, more = opt_int(t->a, O_SAMPLE_TOKENS);
        Sample x = { .t = t,
                     .n = p->n,
                     .cap = p->n + more < ctx ? p->n + more : ctx,
                     .end = fixed ? -1 : t->end_of_turn };
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
        text = NULL;
        if (!code && !fixed &&
            !(code = tokenizer_text(t->l.tok, x.ids + p->n, x.n - p->n, &text, &n, e)))
                *score += eval_score(&t->score, text, n);
        free(text);
        free(x.ids);
        return code;
}

int train_sample(Train *t, Err *e)
{
        const int asked = t->samples.n - t->n_fixed;
        double score = 0;
        int code = TGC_OK;
        progress_bar_end(&t->talk);
        code = ema_swap(t, EMA_EVAL, e);
        for (int i = 0; i < t->samples.n && !code; i++)
                code = sample(t, &t->samples.prompt[i], i < t->n_fixed, &score, e);
        if (!code)
                code = ema_swap(t, EMA_EVAL, e);
        if (code || !t->score.n || !asked)
                return code;
        LogRow row = LOG_ROW_NONE;
        row.step = t->state.step - 1;
        row.score = score / asked;
        say(&t->talk, "step %lld: score %.4g, of %d answers\n", (long long)t->state.step, row.score,
            asked);
        return log_score_row(&t->log, &row, e);
}

static int add_question(Train *t, Chat *chat, const char *line, size_t n, Err *e)
{
        JsonText in;
        Json root;
        char *text = NULL;
        int *ids = NULL, k = 0, code;
        if (!chat) {
                code = tokenizer_encode(t->l.tok, line, n, -1, &ids, &k, e);
                return code ? code : prompts_add(&t->samples, ids, k, e);
        }
        cJSON *list = cJSON_CreateArray(), *message = cJSON_CreateObject();
        json_add_text(message, "role", "user", 4);
        json_add_text(message, "content", line, n);
        cJSON_AddItemToArray(list, message);
        text = cJSON_PrintUnformatted(list);
        cJSON_Delete(list);
        if (!text)
                return err_set(e, TGC_NO_MEMORY, "no memory for --eval_prompt");
        if (!(code = json_open(&in, &root, text, strlen(text), "--eval_prompt", true, e))) {
                code = chat_ids(chat, t->a, root, t->l.tok, session_manifest(t->s)->vocab, &ids, &k,
                                e);
                json_close(&in);
        }
        free(text);
        return code ? code : prompts_add(&t->samples, ids, k, e);
}

typedef struct Questions {
        Train *t;
        Chat *chat; /* NULL: there is no template */
} Questions;

static int on_question(void *to, const char *from, const char *line, size_t n, Err *e)
{
        const Questions *q = to;
        (void)from;
        return add_question(q->t, q->chat, line, n, e);
}

/* Each line of --eval_prompt is a user's message; a model without a template goes on with the
 * line. */
static int add_questions(Train *t, Err *e)
{
        const char *path = opt_str(t->a, O_EVAL_PROMPT);
        Chat chat = { 0 };
        const bool has = !chat_open(&chat, t->a, plan_find(&t->l.plan, "chat"), path, NULL);
        chat.now = t->chat.now;
        t->end_of_turn = has ? chat_end_of_turn(&chat, t->l.tok) : -1;
        int code = lines_each(path, on_question, &(Questions) { t, has ? &chat : NULL }, e);
        if (!code && t->samples.n == t->n_fixed)
                code = err_set(e, TGC_BAD_FILE, "%s: no prompts", path);
        chat_close(&chat);
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
        const bool asks = opt_str(t->a, O_EVAL_PROMPT);
        int code = TGC_OK;
        if (!asks || t->a->v[O_SAMPLE_PROMPT].n)
                code = prompts_of(&t->samples, &t->a->v[O_SAMPLE_PROMPT], t->l.tok, e);
        t->n_fixed = t->samples.n;
        if (!code && opt_str(t->a, O_EVAL_SCORE))
                code = eval_score_parse(&t->score, opt_str(t->a, O_EVAL_SCORE), e);
        if (!code && asks)
                code = add_questions(t, e);
        for (int i = 0; i < t->samples.n && !code; i++)
                if (t->samples.prompt[i].n > ctx)
                        code = err_set(e, TGC_USAGE, "%s has %d tokens, the context is %d",
                                       i < t->n_fixed ? "--sample_prompt" : "--eval_prompt",
                                       t->samples.prompt[i].n, ctx);
        return code;
}
