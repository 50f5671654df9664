/* cmd_eval.c: tgc eval.  A long text is scored in windows of the context's size,
 * one after another; each begins anew, and the next one repeats the last token so
 * that every token but the first is predicted once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../runtime/weights/npy.h"
#include "work.h"

typedef struct Score {
        double sum;
        int64_t counted;
        int windows;
} Score;

static int read_ids(const Args *a, const Loaded *l, int vocab, int **ids, int *n, Err *e)
{
        const char *text = opt_str(a, O_DATA), *list = opt_str(a, O_IDS);
        if (!text == !list)
                return err_set(e, TGC_USAGE, "eval: give one of --data FILE and --ids FILE");
        if (list)
                return ids_of_id_file(list, vocab, ids, n, e);
        if (!l->tok)
                return err_set(e, TGC_USAGE,
                               "eval: %s has no tokenizer: give --ids FILE or --tokenizer FILE",
                               a->pos[0]);
        int code = ids_of_text_file(l->tok, text, vocab, ids, n, e), bos = tokenizer_bos(l->tok);
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

/* The size of a window; texts may be shorter. */
static int window_size(const Args *a, const Plan *p, int *size, Err *e)
{
        char ctx[32] = "0";
        manifest_word(p, "ctx", ctx, sizeof ctx);
        *size = opt_int(a, O_CTX) ? opt_int(a, O_CTX) : atoi(ctx);
        if (*size > atoi(ctx))
                return err_set(e, TGC_USAGE, "--ctx-size %d: the plan was compiled for %s", *size,
                               ctx);
        if (*size < 2)
                return err_set(e, TGC_USAGE, "eval: windows of %d token; a loss needs two", *size);
        return TGC_OK;
}

/* One window; its logits but for the row that the next window repeats. */
static int score_window(Session *s, const int *ids, int n, bool last, float *logits, double *nll,
                        NpyOut *out, Score *sum, Err *e)
{
        int code = session_score(s, ids, n, logits, nll, e);
        if (code)
                return code;
        for (int i = 0; i < n - 1; i++)
                sum->sum += nll[i];
        sum->counted += n - 1;
        sum->windows++;
        size_t rows = (size_t)(last ? n : n - 1);
        return out ? npy_out_write(out, logits, rows * (size_t)session_manifest(s)->vocab, e)
                   : TGC_OK;
}

static int score(Session *s, const Args *a, const int *ids, int n, int size, Score *sum, Err *e)
{
        const Manifest *m = session_manifest(s);
        Progress talk = progress_new(a);
        int code = TGC_OK;
        if (size > n)
                size = n;
        NpyOut *out = NULL;
        double *nll = calloc((size_t)size + 1, sizeof *nll);
        float *logits = opt_str(a, O_LOGITS)
                                ? malloc((size_t)size * (size_t)m->vocab * sizeof *logits)
                                : NULL;
        if (!nll || (opt_str(a, O_LOGITS) && !logits))
                code = err_set(e, TGC_NO_MEMORY, "no memory for the logits of %d tokens", size);
        if (!code && logits)
                code = npy_out_open(&out, opt_str(a, O_LOGITS), 2, (int64_t[]) { n, m->vocab }, e);
        for (int at = 0; at + 1 < n && !code; at += size - 1) {
                int k = n - at < size ? n - at : size;
                progress_bar(&talk, (double)at / n, "%d of %d tokens", at, n);
                code = score_window(s, ids + at, k, at + k == n, logits, nll, out, sum, e);
                if (signal_seen())
                        break;
        }
        progress_bar_end(&talk);
        if (!code && signal_seen())
                code = 128 + signal_seen();
        if (!code && out)
                code = npy_out_commit(out, e);
        else
                npy_out_abort(out);
        free(nll);
        free(logits);
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
        return code || isfinite(mean) ? code : err_set(e, TGC_NON_FINITE, "the loss is not finite");
}

int cmd_eval(const Args *a, Err *e)
{
        Loaded l;
        Session *s = NULL;
        Score sum = { 0 };
        char vocab[32] = "0";
        int *ids = NULL, n = 0, size, code = load(&l, a, &(LoadHow) { .mode = BUILD_INFER }, e);
        if (code)
                return code;
        manifest_word(&l.plan, "vocab", vocab, sizeof vocab);
        if (!(code = window_size(a, &l.plan, &size, e)))
                code = read_ids(a, &l, atoi(vocab), &ids, &n, e);
        if (!code && n < 2)
                code = err_set(e, TGC_BAD_FILE, "%s: %d token; a loss needs two",
                               opt_str(a, O_DATA) ? opt_str(a, O_DATA) : opt_str(a, O_IDS), n);
        if (!code)
                code = open_session(&s, &l.plan, a, SESSION_INFER, WEIGHTS_SEED, "score", 0, e);
        double start = clock_s();
        if (!code) {
                say_random(a, &l);
                signals_defer();
                code = score(s, a, ids, n, size, &sum, e);
        }
        if (!code)
                code = report(a, &sum, clock_s() - start, e);
        session_close(s);
        free(ids);
        loaded_free(&l);
        return code;
}
