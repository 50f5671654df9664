/* eval_kl.c: tgc eval --kl: the KL divergence of a model's next-token distributions from a base
 * model's.
 *
 * The protocol is that of llama.cpp's perplexity tool.  The text is cut into windows, and each
 * window is scored from its own start.  Only its second half counts, so that every token has half a
 * window before it.  If the tokenizer begins texts with a token, that token replaces each window's
 * first.
 *
 * A base file (--save-base) is a float32 .npy of shape (rows, V+1), a row for each token that
 * counts, in order: the token, then the base's V logits for it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/parallel.h"
#include "../../runtime/weights/npy.h"
#include "eval_kl.h"

enum { WINDOW = 512 };

/* Of the tokens that count. */
typedef struct Sample {
        double kl, base_nll, nll, dp; /* dp: probability of the token, less the base's */
        bool same_top;
} Sample;

typedef struct Kl {
        const Args *a;
        Session *s, *base; /* base NULL: rows are of the file */
        Npy file;
        NpyOut *out; /* --save-base: rows of s are written, and nothing is compared */
        const int *ids;
        int *window;           /* ids of one */
        int size, first, V, n; /* of the n that count; a window's first that counts */
        float *logits, *base_logits;
        double *nll;
        Sample *sample;
        int64_t at; /* of sample and file */
        const float *row, *base_row;
} Kl;

/* ---- one token ---- */

static double log_sum(const float *x, int n, int *best)
{
        double sum = 0;
        *best = 0;
        for (int i = 1; i < n; i++)
                if (x[i] > x[*best])
                        *best = i;
        for (int i = 0; i < n; i++)
                sum += exp((double)x[i] - x[*best]);
        return x[*best] + log(sum);
}

static void compare(void *ctx, int i)
{
        const Kl *k = ctx;
        const float *q = k->row + (size_t)i * (size_t)k->V,
                    *p = k->base_row + (size_t)i * (size_t)(k->base ? k->V : k->V + 1);
        const int id = k->window[k->first + 1 + i];
        int best_p, best_q;
        const double lp = log_sum(p, k->V, &best_p), lq = log_sum(q, k->V, &best_q);
        double kl = 0;
        for (int v = 0; v < k->V; v++) {
                const double a = p[v] - lp, b = q[v] - lq;
                kl += exp(a) * (a - b);
        }
        k->sample[k->at + i] = (Sample) { .kl = kl,
                                          .base_nll = lp - p[id],
                                          .nll = lq - q[id],
                                          .dp = exp(q[id] - lq) - exp(p[id] - lp),
                                          .same_top = best_p == best_q };
}

/* ---- one window ---- */

static int logits_of(Kl *k, Session *s, float *to, Err *e)
{
        ScoreText t = {
                .ids = k->window, .n = k->size, .from = k->first + 1, .nll = k->nll, .logits = to
        };
        return session_score_texts(s, &t, 1, 1, e);
}

static int save_rows(Kl *k, Err *e)
{
        int code = TGC_OK;
        for (int i = k->first; i + 1 < k->size && !code; i++) {
                const float id = (float)k->window[i + 1];
                if (!(code = npy_out_write(k->out, &id, 1, e)))
                        code = npy_out_write(k->out, k->logits + (size_t)i * (size_t)k->V,
                                             (size_t)k->V, e);
        }
        return code;
}

/* The file's rows are of this text. */
static int file_rows(Kl *k, Err *e)
{
        const size_t row = (size_t)k->V + 1;
        const float *r = k->file.u.f32 + (size_t)k->at * row;
        for (int i = 0; i < k->size - 1 - k->first; i++)
                if ((int)r[(size_t)i * row] != k->window[k->first + 1 + i])
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: row %lld is of token %d, the text has %d there: the "
                                       "base file was made with another text, window or tokenizer",
                                       opt_str(k->a, O_KL), (long long)k->at + i,
                                       (int)r[(size_t)i * row], k->window[k->first + 1 + i]);
        k->base_row = r + 1;
        return TGC_OK;
}

static int score_window(Kl *k, const int *ids, int bos, Err *e)
{
        const int rows = k->size - 1 - k->first;
        memcpy(k->window, ids, (size_t)k->size * sizeof *ids);
        if (bos >= 0)
                k->window[0] = bos;
        int code = logits_of(k, k->s, k->logits, e);
        if (!code && k->out)
                return save_rows(k, e);
        if (!code)
                code = k->base ? logits_of(k, k->base, k->base_logits, e) : file_rows(k, e);
        if (code)
                return code;
        k->row = k->logits + (size_t)k->first * (size_t)k->V;
        if (k->base)
                k->base_row = k->base_logits + (size_t)k->first * (size_t)k->V;
        parallel_for(rows, 64, compare, k);
        k->at += rows;
        return TGC_OK;
}

/* ---- all of them ---- */

typedef struct Mean {
        double mean, error;
} Mean;

static int by_value(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* v of every sample, sorted; with its mean and the mean's standard error. */
static Mean mean_of(const Kl *k, double *v, size_t field)
{
        double sum = 0, square = 0, n = (double)k->at;
        for (int64_t i = 0; i < k->at; i++) {
                memcpy(&v[i], (const char *)&k->sample[i] + field, sizeof *v);
                sum += v[i];
        }
        const double mean = sum / n;
        for (int64_t i = 0; i < k->at; i++)
                square += (v[i] - mean) * (v[i] - mean);
        qsort(v, (size_t)k->at, sizeof *v, by_value);
        return (Mean) { mean, n > 1 ? sqrt(square / (n - 1) / n) : 0 };
}

/* Between its neighbours, as numpy's percentile. */
static double percentile(const double *v, int64_t n, double part)
{
        const double at = part * (double)(n - 1);
        const int64_t i = (int64_t)at;
        return i + 1 < n ? v[i] + (at - (double)i) * (v[i + 1] - v[i]) : v[n - 1];
}

typedef struct Row {
        const char *key, *text;
        double value, error; /* error < 0: none */
} Row;

static double covariance(const Kl *k, double mean_nll, double mean_base)
{
        double c = 0;
        for (int64_t i = 0; i < k->at; i++)
                c += (k->sample[i].nll - mean_nll) * (k->sample[i].base_nll - mean_base);
        return k->at > 1 ? c / (double)(k->at - 1) / (double)k->at : 0;
}

static int report(const Kl *k, Err *e)
{
        double *v = malloc((size_t)k->at * sizeof *v), top = 0, square = 0;
        if (!v)
                return err_set(e, TGC_NO_MEMORY, "no memory for %lld tokens", (long long)k->at);
        const double n = (double)k->at;
        for (int64_t i = 0; i < k->at; i++) {
                top += k->sample[i].same_top;
                square += k->sample[i].dp * k->sample[i].dp;
        }
        top /= n;
        const Mean nll = mean_of(k, v, offsetof(Sample, nll)),
                   base = mean_of(k, v, offsetof(Sample, base_nll)),
                   dp = mean_of(k, v, offsetof(Sample, dp));
        const double dp_low = percentile(v, k->at, 0.05), dp_high = percentile(v, k->at, 0.95);
        const Mean kl = mean_of(k, v, offsetof(Sample, kl));
        const double cov = covariance(k, nll.mean, base.mean), both = nll.error * base.error,
                     ratio_error = sqrt(
                             fmax(0, nll.error * nll.error + base.error * base.error - 2 * cov));
        const Row row[] = {
                { "perplexity", "perplexity", exp(nll.mean), exp(nll.mean) * nll.error },
                { "base_perplexity", "of the base", exp(base.mean), exp(base.mean) * base.error },
                { "perplexity_ratio", "ratio", exp(nll.mean - base.mean),
                  exp(nll.mean - base.mean) * ratio_error },
                { "log_perplexity_ratio", "log of the ratio", nll.mean - base.mean, ratio_error },
                { "perplexity_difference", "difference", exp(nll.mean) - exp(base.mean), -1 },
                { "correlation", "correlation of the losses", both > 0 ? cov / both : 1, -1 },
                { "kl_mean", "KL divergence, mean", kl.mean, kl.error },
                { "kl_median", "median", percentile(v, k->at, 0.5), -1 },
                { "kl_90", "90%", percentile(v, k->at, 0.9), -1 },
                { "kl_99", "99%", percentile(v, k->at, 0.99), -1 },
                { "kl_999", "99.9%", percentile(v, k->at, 0.999), -1 },
                { "kl_max", "largest", v[k->at - 1], -1 },
                { "dp_mean", "probability of the token, difference", dp.mean, dp.error },
                { "dp_rms", "root mean square", sqrt(square / n), -1 },
                { "dp_5", "5%", dp_low, -1 },
                { "dp_95", "95%", dp_high, -1 },
                { "same_top", "same likeliest token", top,
                  n > 1 ? sqrt(top * (1 - top) / (n - 1)) : 0 },
        };
        cJSON *o = opt_flag(k->a, O_JSON) ? cJSON_CreateObject() : NULL;
        for (size_t i = 0; i < sizeof row / sizeof *row; i++)
                if (o)
                        cJSON_AddNumberToObject(o, row[i].key, row[i].value);
                else if (row[i].error < 0)
                        printf("%-38s %12.6f\n", row[i].text, row[i].value);
                else
                        printf("%-38s %12.6f +- %.6f\n", row[i].text, row[i].value, row[i].error);
        if (o)
                cJSON_AddNumberToObject(o, "tokens", n);
        else
                printf("%-38s %12lld\n", "tokens", (long long)k->at);
        free(v);
        const int code = o ? json_print(o, e) : TGC_OK;
        return code || isfinite(kl.mean)
                       ? code
                       : err_set(e, TGC_NON_FINITE,
                                 "the KL divergence of %lld tokens is not finite: `tgc check` "
                                 "tells whether the weights or the kernels are to blame",
                                 (long long)k->at);
}

/* The second model: by its own path and the same options, its blocks decoded. */
static int load_base(Loaded *l, const Args *a, int vocab, Err *e)
{
        Args b = *a;
        const char *path = opt_str(a, O_KL);
        char word[32] = "0";
        b.pos = &path;
        b.v[O_WEIGHTS] = (OptionValue) { 0 };
        b.v[O_WEIGHT_TYPE] = (OptionValue) { .s = "decode", .i = 1 };
        int code = load(l, &b, &(LoadHow) { .mode = BUILD_INFER }, e);
        if (code)
                return code;
        manifest_word(&l->plan, "vocab", word, sizeof word);
        if (atoi(word) != vocab) {
                code = err_set(e, TGC_USAGE,
                               "--kl %s: its vocabulary is %s, that of %s is "
                               "%d",
                               path, word, a->pos[0], vocab);
                loaded_free(l);
        }
        return code;
}

static int open_file(Kl *k, const char *path, int64_t rows, Err *e)
{
        int code = npy_open(&k->file, path, e);
        if (!code && (k->file.dtype != CK_F32 || k->file.rank != 2 || k->file.dim[0] != rows ||
                      k->file.dim[1] != k->V + 1)) {
                char has[96];
                code = err_set(e, TGC_BAD_FILE,
                               "%s: a base file of %s; this text and vocabulary make float32 "
                               "[%lld,%d]",
                               path, ck_shape_text(has, sizeof has, k->file.rank, k->file.dim),
                               (long long)rows, k->V + 1);
        }
        return code;
}

static int all_windows(Kl *k, int windows, int bos, Err *e)
{
        Progress talk = progress_new(k->a);
        int code = TGC_OK;
        for (int i = 0; i < windows && !code && !signal_seen(); i++) {
                progress_bar(&talk, (double)i / windows, "%d of %d windows", i, windows);
                code = score_window(k, k->ids + (size_t)i * (size_t)k->size, bos, e);
        }
        progress_bar_end(&talk);
        return code || !signal_seen() ? code : 128 + signal_seen();
}

static bool is_base_file(const char *path)
{
        const size_t n = strlen(path);
        return n > 4 && !strcmp(path + n - 4, ".npy");
}

/* Opens what is compared with, and compares. */
static int with_base(Kl *k, int vocab, int windows, int bos, Err *e)
{
        const char *path = opt_str(k->a, O_KL), *save = opt_str(k->a, O_SAVE_BASE);
        const int64_t rows = (int64_t)windows * (k->size - 1 - k->first);
        Loaded base;
        bool loaded = false;
        int code = TGC_OK;
        if (save)
                code = npy_out_open(&k->out, save, 2, (int64_t[]) { rows, k->V + 1 }, e);
        else if (is_base_file(path))
                code = open_file(k, path, rows, e);
        else if (!(code = load_base(&base, k->a, vocab, e))) {
                loaded = true;
                code = open_session(&k->base, &base.plan, k->a, SESSION_INFER, WEIGHTS_SEED,
                                    "score", 0, e);
        }
        k->sample = calloc((size_t)rows, sizeof *k->sample);
        if (!code && !k->sample)
                code = err_set(e, TGC_NO_MEMORY, "no memory for %lld tokens", (long long)rows);
        if (!code)
                code = all_windows(k, windows, bos, e);
        if (!code && k->out) {
                code = npy_out_commit(k->out, e);
                k->out = NULL;
        } else if (!code)
                code = report(k, e);
        npy_out_abort(k->out);
        npy_close(&k->file);
        session_close(k->base);
        if (loaded)
                loaded_free(&base);
        return code;
}

int eval_kl(const Args *a, const Loaded *l, const int *ids, int n, int vocab, Err *e)
{
        char ctx[32] = "0";
        manifest_word(&l->plan, "ctx", ctx, sizeof ctx);
        const int most = opt_int(a, O_CTX) ? opt_int(a, O_CTX) : atoi(ctx),
                  size = opt_int(a, O_WINDOW) ? opt_int(a, O_WINDOW)
                         : most < WINDOW      ? most
                                              : WINDOW,
                  bos = l->tok && tokenizer_adds_bos(l->tok) ? tokenizer_bos(l->tok) : -1;
        if (size > most || size > atoi(ctx))
                return err_set(e, TGC_USAGE, "--window %d: the context is %d", size, most);
        if (size < 4)
                return err_set(e, TGC_USAGE,
                               "--window %d: the second half of a window has to have "
                               "tokens: 4 at least",
                               size);
        if (n < size)
                return err_set(e, TGC_BAD_FILE,
                               "the text has %d tokens, a window %d: give more text or a shorter "
                               "--window",
                               n, size);
        Kl k = { .a = a, .ids = ids, .size = size, .first = size / 2, .V = vocab, .n = n };
        const size_t logits = (size_t)size * (size_t)vocab;
        k.window = malloc((size_t)size * sizeof *k.window);
        k.nll = calloc((size_t)size, sizeof *k.nll);
        k.logits = malloc(logits * sizeof *k.logits);
        k.base_logits = malloc(logits * sizeof *k.base_logits);
        int code = k.window && k.nll && k.logits && k.base_logits
                           ? open_session(&k.s, &l->plan, a, SESSION_INFER, WEIGHTS_SEED, "score",
                                          0, e)
                           : err_set(e, TGC_NO_MEMORY, "no memory for the logits of %d tokens",
                                     size);
        if (!code) {
                signals_defer();
                code = with_base(&k, vocab, n / size, bos, e);
        }
        session_close(k.s);
        free(k.window);
        free(k.nll);
        free(k.logits);
        free(k.base_logits);
        free(k.sample);
        return code;
}
