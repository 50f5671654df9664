/* cmd_eval.c: tgc eval.  A long text is scored in windows that begin `stride` tokens apart; as many
 * windows run together as the plan has room for.  Each window starts without context.  A token
 * counts in the first window where a token stands before it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/weights/npy.h"
#include "continuations.h"
#include "eval_kl.h"

typedef struct Score {
        double sum;
        int64_t counted;
        int windows, size, stride;
} Score;

static int read_ids(const Args *a, const Loaded *l, int vocab, int **ids, int *n, Err *e)
{
        const char *text = opt_str(a, O_DATA), *list = opt_str(a, O_IDS);
        if (list)
                return ids_of_id_file(list, vocab, ids, n, e);
        if (!l->tok)
                return err_set(e, TGC_USAGE,
                               "eval: %s has no tokenizer: give --ids FILE or --tokenizer FILE",
                               a->pos[0]);
        const Progress talk = progress_new(a);
        int code = ids_of_text_file(l->tok, text, vocab, &talk, ids, n, e),
            bos = tokenizer_bos(l->tok);
        if (code || !tokenizer_adds_bos(l->tok) || bos < 0)
                return code;
        int *p = realloc(*ids, ((size_t)*n + 1) * sizeof *p);
        if (!p)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", text);
        memmove(p + 1, p, (size_t)*n * sizeof *p);
        p[0] = bos;
        *ids = p;
        ++*n;
        return TGC_OK;
}

/* Windows; texts may be shorter. */
static int window_size(const Args *a, const Plan *p, Score *w, Err *e)
{
        char ctx[32] = "0";
        manifest_word(p, "ctx", ctx, sizeof ctx);
        const int most = opt_int(a, O_CTX) ? opt_int(a, O_CTX) : atoi(ctx);
        if (most > atoi(ctx))
                return err_set(e, TGC_USAGE, "--ctx-size %d: the plan was compiled for %s", most,
                               ctx);
        w->size = opt_int(a, O_WINDOW) ? opt_int(a, O_WINDOW) : most;
        w->stride = opt_int(a, O_STRIDE) ? opt_int(a, O_STRIDE) : w->size - 1;
        if (w->size > most)
                return err_set(e, TGC_USAGE, "--window %d: the context is %d", w->size, most);
        if (w->size < 2)
                return err_set(e, TGC_USAGE, "eval: windows of %d token; a loss needs two",
                               w->size);
        if (w->stride >= w->size)
                return err_set(e, TGC_USAGE,
                               "--stride %d: the most is one less than the window, %d, or tokens "
                               "between two windows would count in none",
                               w->stride, w->size - 1);
        return TGC_OK;
}

typedef struct Work {
        Session *s;
        const int *ids;
        int n, at, done; /* tokens; where the next window begins; tokens that count already */
        int most, rows;  /* windows of a group; of them in the cache at once */
        ScoreText *text; /* (most) */
        double *nll;     /* (most, size) */
        float *logits;   /* (most, size, V), or NULL */
        NpyOut *out;
} Work;

/* A group of windows: log-probabilities, and logits of the tokens that count and of the last. */
static int score_group(Work *w, Score *sum, Err *e)
{
        const size_t V = (size_t)session_manifest(w->s)->vocab, size = (size_t)sum->size;
        int k = 0, done = w->done, code;
        for (; k < w->most && done < w->n; k++, w->at += sum->stride) {
                const int end = w->n - w->at < sum->size ? w->n : w->at + sum->size;
                w->text[k] = (ScoreText) { .ids = w->ids + w->at,
                                           .n = end - w->at,
                                           .from = done - w->at,
                                           .nll = w->nll + (size_t)k * size,
                                           .logits = w->logits ? w->logits + (size_t)k * size * V
                                                               : NULL };
                done = end;
        }
        if ((code = session_score_texts(w->s, w->text, k, w->rows, e)))
                return code;
        w->done = done;
        for (int i = 0; i < k && !code; i++) {
                const ScoreText *t = &w->text[i];
                for (int j = t->from; j < t->n; j++)
                        sum->sum += t->nll[j];
                sum->counted += t->n - t->from;
                sum->windows++;
                if (w->out) {
                        const int last = i + 1 == k && done == w->n;
                        code = npy_out_write(w->out, t->logits + (size_t)(t->from - 1) * V,
                                             (size_t)(t->n - t->from + last) * V, e);
                }
        }
        return code;
}

static int score(Session *s, const Args *a, const int *ids, int n, Score *sum, Err *e)
{
        enum { GROUP = 4 }; /* so that calls are full, and progress is seen */
        const Manifest *m = session_manifest(s);
        const char *file = opt_str(a, O_LOGITS);
        Progress talk = progress_new(a);
        int code = TGC_OK;
        if (sum->size > n)
                sum->size = n;
        Work w = { .s = s, .ids = ids, .n = n, .done = 1 };
        w.rows = session_score_rows(s, opt_int(a, O_TOGETHER), sum->size);
        w.rows = w.rows > 0 ? w.rows : 1; /* who scores says what is missing */
        w.most = file ? w.rows : w.rows * GROUP;
        const size_t tokens = (size_t)w.most * (size_t)sum->size;
        w.text = calloc((size_t)w.most, sizeof *w.text);
        w.nll = calloc(tokens, sizeof *w.nll);
        w.logits = file ? malloc(tokens * (size_t)m->vocab * sizeof *w.logits) : NULL;
        if (!w.text || !w.nll || (file && !w.logits))
                code = err_set(e, TGC_NO_MEMORY, "no memory for the logits of %zu tokens", tokens);
        if (!code && file)
                code = npy_out_open(&w.out, file, 2, (int64_t[]) { n, m->vocab }, e);
        while (w.done < n && !code && !signal_seen()) {
                progress_bar(&talk, (double)w.done / n, "%d of %d tokens", w.done, n);
                code = score_group(&w, sum, e);
        }
        progress_bar_end(&talk);
        if (!code && signal_seen())
                code = 128 + signal_seen();
        if (!code && w.out)
                code = npy_out_commit(w.out, e);
        else
                npy_out_abort(w.out);
        free(w.text);
        free(w.nll);
        free(w.logits);
        return code;
}

static int report(const Args *a, const Score *r, double seconds, Err *e)
{
        double mean = r->sum / (double)r->counted;
        int code = TGC_OK;
        if (opt_flag(a, O_JSON)) {
                cJSON *o = cJSON_CreateObject();
                cJSON_AddNumberToObject(o, "loss_nats_per_token", mean);
                cJSON_AddNumberToObject(o, "perplexity", exp(mean));
                cJSON_AddNumberToObject(o, "tokens", (double)r->counted);
                cJSON_AddNumberToObject(o, "windows", r->windows);
                cJSON_AddNumberToObject(o, "seconds", seconds);
                code = json_print(o, e);
        } else {
                printf("%.6f nats per token, perplexity %.4f, %lld tokens\n", mean, exp(mean),
                       (long long)r->counted);
        }
        if (!code && !isfinite(mean))
                code = err_set(
                        e, TGC_NON_FINITE,
                        "the loss of %lld tokens is not finite: `tgc check` tells whether the "
                        "weights or the kernels are to blame",
                        (long long)r->counted);
        return code;
}

static int eval_text(const Args *a, const Loaded *l, int vocab, Err *e)
{
        const bool base = opt_str(a, O_KL) || opt_str(a, O_SAVE_BASE);
        Session *s = NULL;
        Score sum = { 0 };
        int *ids = NULL, n = 0, code = base ? TGC_OK : window_size(a, &l->plan, &sum, e);
        if (!code)
                code = read_ids(a, l, vocab, &ids, &n, e);
        if (!code && n < 2)
                code = err_set(e, TGC_BAD_FILE, "%s: %d token; a loss needs two",
                               opt_str(a, O_DATA) ? opt_str(a, O_DATA) : opt_str(a, O_IDS), n);
        if (!code && base) {
                say_random(a, l);
                code = eval_kl(a, l, ids, n, vocab, e);
                free(ids);
                return code;
        }
        if (!code)
                code = open_session(&s, &l->plan, a, SESSION_INFER, WEIGHTS_SEED, "score", 0, e);
        double start = clock_s();
        if (!code) {
                say_random(a, l);
                signals_defer();
                code = score(s, a, ids, n, &sum, e);
        }
        if (!code)
                code = report(a, &sum, clock_s() - start, e);
        session_close(s);
        free(ids);
        return code;
}

int cmd_eval(const Args *a, Err *e)
{
        const char *requests = opt_str(a, O_REQUESTS);
        Loaded l;
        char vocab[32] = "0", batch[32] = "1";
        if ((opt_str(a, O_DATA) != NULL) + (opt_str(a, O_IDS) != NULL) + (requests != NULL) != 1)
                return err_set(
                        e, TGC_USAGE,
                        "eval: give one of --data FILE, --ids FILE and --continuations FILE");
        int code = load(&l, a, &(LoadHow) { .mode = BUILD_INFER }, e);
        if (code)
                return code;
        manifest_word(&l.plan, "vocab", vocab, sizeof vocab);
        manifest_word(&l.plan, "batch", batch, sizeof batch);
        if (opt_int(a, O_TOGETHER) > atoi(batch))
                code = err_set(e, TGC_USAGE,
                               "--batch %d: %s was compiled for %s; compile with --mode infer "
                               "--batch-size %d",
                               opt_int(a, O_TOGETHER), a->pos[0], batch, opt_int(a, O_TOGETHER));
        if (!code)
                code = requests ? eval_continuations(a, &l, atoi(vocab), e)
                                : eval_text(a, &l, atoi(vocab), e);
        loaded_free(&l);
        return code;
}
