/* continuations.c: tgc eval --continuations: log-probabilities of given continuations of given
 * prompts.
 *
 * Input and output are JSON lines, one object each, in the same order:
 *
 *      {"prompt": "2 + 2 =", "continuation": " 4"}     {"prompt_ids": [5, 7], "continuation_ids":
 *                                                      [2]}
 *      {"logprob": -0.25, "tokens": 1, "greedy": true}
 *
 * `logprob` is the natural logarithm of the whole continuation's probability.  `greedy` is true if
 * each of its tokens is the likeliest.  Texts become ids as in lm-evaluation-harness.  Blanks that
 * end a prompt move to the continuation.  Prompt and continuation are tokenized together; the
 * continuation's ids are those after as many ids as the prompt alone has.  An empty prompt is the
 * token that begins texts, or else the one that ends them.  A prompt that does not fit loses its
 * beginning ("truncated": tokens). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "continuations.h"
#include "../run/prompts.h"

void continuations_free(Continuations *c)
{
        for (int i = 0; i < c->n; i++)
                free(c->list[i].ids);
        free(c->list);
        *c = (Continuations) { 0 };
}

/* Takes ids over. */
static int add(Continuations *c, int *ids, int n, int from, int ctx, const char *where, Err *e)
{
        const int cut = n > ctx + 1 ? n - ctx - 1 : 0;
        int code = TGC_OK;
        if (from - cut < 1)
                code = err_set(e, TGC_USAGE,
                               "%s: the continuation has %d tokens, the context is %d; compile "
                               "with a larger --ctx-size",
                               where, n - from, ctx);
        if (!code && c->n == c->cap) {
                const int cap = c->cap ? 2 * c->cap : 64;
                Continuation *list = realloc(c->list, (size_t)cap * sizeof *list);
                if (list) {
                        c->list = list;
                        c->cap = cap;
                } else {
                        code = err_set(e, TGC_NO_MEMORY, "no memory for %d continuations", cap);
                }
        }
        if (code) {
                free(ids);
                return code;
        }
        memmove(ids, ids + cut, (size_t)(n - cut) * sizeof *ids);
        c->list[c->n++] = (Continuation) { ids, n - cut, from - cut, cut };
        return TGC_OK;
}

/* Nothing stands before it but the token that begins a text, which may be its own first. */
static int add_unprompted(Continuations *c, const Tokenizer *tok, const char *s, size_t n,
                          int vocab, int ctx, const char *where, Err *e)
{
        const int *eos, n_eos = tokenizer_eos(tok, &eos), bos = tokenizer_bos(tok),
                        first = bos >= 0 ? bos
                                : n_eos  ? eos[0]
                                         : -1;
        int *ids, k, code;
        if (first < 0)
                return err_set(e, TGC_BAD_FILE,
                               "%s: the prompt is empty, and the tokenizer has no token that "
                               "begins or ends a text",
                               where);
        if ((code = ids_of_text(tok, s, n, 0, vocab, where, &ids, &k, e)))
                return code;
        if (k && ids[0] == first && k > 1)
                return add(c, ids, k, 1, ctx, where, e);
        int *all = realloc(ids, ((size_t)k + 1) * sizeof *all);
        if (!all) {
                free(ids);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", where);
        }
        memmove(all + 1, all, (size_t)k * sizeof *all);
        all[0] = first;
        return add(c, all, k + 1, 1, ctx, where, e);
}

static int add_texts(Continuations *c, const Tokenizer *tok, const char *both, size_t prompt,
                     size_t n, int vocab, int ctx, const char *where, Err *e)
{
        int *ids, k, *alone, from, code;
        if (!prompt)
                return add_unprompted(c, tok, both, n, vocab, ctx, where, e);
        while (prompt && (strchr(" \t\n\v\f\r", both[prompt - 1]) ||
                          (both[prompt - 1] >= 28 && both[prompt - 1] < 32)))
                prompt--;
        if ((code = ids_of_text(tok, both, prompt, -1, vocab, where, &alone, &from, e)))
                return code;
        free(alone);
        if ((code = ids_of_text(tok, both, n, -1, vocab, where, &ids, &k, e)))
                return code;
        if (from >= 1 && from < k)
                return add(c, ids, k, from, ctx, where, e);
        free(ids);
        return err_set(e, TGC_BAD_FILE,
                       "%s: the prompt alone is %d tokens, with the continuation it is %d: there "
                       "must be one of each",
                       where, from, k);
}

static int add_ids(Continuations *c, Json prompt, Json more, int vocab, int ctx, const char *where,
                   Err *e)
{
        int *a = NULL, *b = NULL, n = 0, m = 0, code;
        if ((code = ids_of_list(prompt, "prompt_ids", vocab, &a, &n, e)) ||
            (code = ids_of_list(more, "continuation_ids", vocab, &b, &m, e))) {
                free(a);
                return code;
        }
        int *all = realloc(a, ((size_t)n + (size_t)m + 1) * sizeof *all);
        if (all)
                memcpy(all + n, b, (size_t)m * sizeof *all);
        else
                free(a);
        free(b);
        if (!all)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", where);
        if (n && m)
                return add(c, all, n + m, n, ctx, where, e);
        free(all);
        return err_set(e, TGC_BAD_FILE, "%s: %s is empty", where,
                       n ? "continuation_ids" : "prompt_ids");
}

/* Both texts of an object, one after the other. */
static int both_texts(Json prompt, Json more, char **both, size_t *at, size_t *n, const char *where,
                      Err *e)
{
        JsonBuf b = { 0 };
        size_t k = 0;
        const char *s = json_string(prompt, &b, at);
        int code = TGC_OK;
        *both = s ? malloc(*at + 1) : NULL;
        if (*both)
                memcpy(*both, s, *at);
        s = *both ? json_string(more, &b, &k) : NULL;
        char *all = s ? realloc(*both, *at + k + 1) : NULL;
        if (all) {
                memcpy(all + *at, s, k);
                all[ *n = *at + k] = 0;
                *both = all;
        } else {
                free(*both);
                *both = NULL;
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", where);
        }
        json_buf_free(&b);
        if (!code && !k) {
                free(*both);
                *both = NULL;
                code = err_set(e, TGC_BAD_FILE, "%s: the continuation is empty", where);
        }
        return code;
}

static int add_line(Continuations *c, const char *line, size_t n, const char *where,
                    const Tokenizer *tok, int vocab, int ctx, Err *e)
{
        JsonText in;
        Json o;
        char *both;
        size_t at = 0, all = 0;
        int code = json_open_line(&in, &o, line, n, where, false, e);
        if (code)
                return code;
        const Json prompt = json_get(o, "prompt"), more = json_get(o, "continuation"),
                   ids = json_get(o, "prompt_ids"), more_ids = json_get(o, "continuation_ids");
        if ((code = json_only(o, "prompt continuation prompt_ids continuation_ids id", "a request",
                              e))) {
                /* said */
        } else if (json_type(ids) == '[' && json_type(more_ids) == '[' && !prompt.at && !more.at) {
                code = add_ids(c, ids, more_ids, vocab, ctx, where, e);
        } else if (json_type(prompt) != '"' || json_type(more) != '"' || ids.at || more_ids.at) {
                code = err_set(
                        e, TGC_BAD_FILE,
                        "%s: not an object with `prompt` and `continuation` (texts), or with "
                        "`prompt_ids` and `continuation_ids` (lists)",
                        where);
        } else if (!tok) {
                code = err_set(e, TGC_USAGE,
                               "%s: texts, and the model has no tokenizer: give prompt_ids and "
                               "continuation_ids, or --tokenizer FILE",
                               where);
        } else if (!(code = both_texts(prompt, more, &both, &at, &all, where, e))) {
                code = add_texts(c, tok, both, at, all, vocab, ctx, where, e);
                free(both);
        }
        json_close(&in);
        return code;
}

int continuations_read(Continuations *c, const char *text, size_t n, const char *name,
                       const Tokenizer *tok, int vocab, int ctx, Err *e)
{
        int code = TGC_OK, line = 1;
        size_t k;
        *c = (Continuations) { 0 };
        for (size_t at = text_mark(text, n); at < n && !code; at += k + 1, line++) {
                char where[300];
                const char *eol = memchr(text + at, '\n', n - at);
                k = eol ? (size_t)(eol - text) - at : n - at;
                size_t own = k;
                while (own && strchr(" \t\r", text[at + own - 1]))
                        own--;
                snprintf(where, sizeof where, "%.200s:%d", name, line);
                if (own)
                        code = add_line(c, text + at, own, where, tok, vocab, ctx, e);
        }
        if (!code && !c->n)
                code = err_set(e, TGC_BAD_FILE, "%s: no continuations", name);
        return code;
}

/* ---- what comes out ---- */

static int print_line(const Continuation *c, const ScoreText *t, Err *e)
{
        double sum = 0;
        bool greedy = true;
        for (int i = c->from; i < c->n; i++) {
                sum -= t->nll[i];
                greedy &= t->likeliest[i];
        }
        if (!isfinite(sum))
                return err_set(
                        e, TGC_NON_FINITE,
                        "a continuation of %d tokens has the log-probability %g: `tgc check` "
                        "tells whether the weights or the kernels are to blame",
                        c->n - c->from, sum);
        cJSON *o = cJSON_CreateObject();
        cJSON_AddNumberToObject(o, "logprob", sum);
        cJSON_AddNumberToObject(o, "tokens", c->n - c->from);
        cJSON_AddBoolToObject(o, "greedy", greedy);
        if (c->cut)
                cJSON_AddNumberToObject(o, "truncated", c->cut);
        return json_print_line(o, e);
}

/* Scores and prints a group after the other; a text has ctx + 1 tokens at most. */
static int score_all(Session *s, const Args *a, const Continuations *c, Err *e)
{
        enum { GROUP = 64 };
        const size_t most = (size_t)session_manifest(s)->ctx + 1;
        Progress talk = progress_new(a);
        ScoreText t[GROUP];
        double *nll = malloc(GROUP * most * sizeof *nll);
        bool *likeliest = malloc(GROUP * most * sizeof *likeliest);
        int code = nll && likeliest ? TGC_OK
                                    : err_set(e, TGC_NO_MEMORY, "no memory for %d texts", GROUP);
        for (int at = 0; at < c->n && !code && !signal_seen(); at += GROUP) {
                const int n = c->n - at < GROUP ? c->n - at : GROUP;
                progress_bar(&talk, (double)at / c->n, "%d of %d continuations", at, c->n);
                for (size_t i = 0; i < (size_t)n; i++) {
                        const Continuation *x = &c->list[at + (int)i];
                        t[i] = (ScoreText) { .ids = x->ids,
                                             .n = x->n,
                                             .from = x->from,
                                             .nll = nll + i * most,
                                             .likeliest = likeliest + i * most };
                }
                code = session_score_texts(s, t, n, opt_int(a, O_TOGETHER), e);
                progress_bar_end(&talk);
                for (int i = 0; i < n && !code; i++)
                        code = print_line(&c->list[at + i], &t[i], e);
        }
        free(nll);
        free(likeliest);
        return !code && signal_seen() ? 128 + signal_seen() : code;
}

int eval_continuations(const Args *a, const Loaded *l, int vocab, Err *e)
{
        const char *file = opt_str(a, O_REQUESTS);
        const bool piped = !strcmp(file, "-");
        Continuations c = { 0 };
        Session *s = NULL;
        char *text, word[32] = "0";
        size_t n;
        manifest_word(&l->plan, "ctx", word, sizeof word);
        const int ctx = opt_int(a, O_CTX) ? opt_int(a, O_CTX) : atoi(word);
        int64_t tokens = 0;
        if (ctx > atoi(word))
                return err_set(e, TGC_USAGE, "--ctx-size %d: the plan was compiled for %s", ctx,
                               word);
        int code = piped ? read_stdin(&text, &n, e)
                         : file_read_text(file, TOK_MAX_TEXT, &text, &n, e);
        if (code)
                return code;
        code = continuations_read(&c, text, n, piped ? "standard input" : file, l->tok, vocab, ctx,
                                  e);
        free(text);
        if (!code)
                code = open_session(&s, &l->plan, a, SESSION_INFER, WEIGHTS_SEED, "score", 0, e);
        const double start = clock_s();
        if (!code) {
                say_random(a, l);
                signals_defer();
                code = score_all(s, a, &c, e);
        }
        for (int i = 0; i < c.n; i++)
                tokens += c.list[i].n;
        Progress talk = progress_new(a);
        if (!code)
                say(&talk, "%s: %d continuations, %lld tokens with their prompts, in %.2f s\n",
                    dev_name(session_device(s)), c.n, (long long)tokens, clock_s() - start);
        session_close(s);
        continuations_free(&c);
        return code;
}
