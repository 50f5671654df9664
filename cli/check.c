/* check.c: every program of a plan against the reference, on the session's device.
 *
 * Weights are the initial ones with noise added, so that no bias is zero and no
 * gain is one.  An error is the largest difference, over the largest value of the
 * reference; gradients that are nearly nothing beside the others count against a
 * hundredth of the largest gradient (a key's bias has no gradient at all).
 *
 * With `shake`, where the device differs, the reference runs again with arithmetic that is only as
 * exact as the device's (asked.h).  The amount by which its own results move is no error of the
 * device: a sum cancels, or an expert or a maximum is chosen by a hair. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ir/optimizer.h"
#include "asked.h"
#include "check.h"

typedef struct Check {
        const CheckOptions *a;
        Session *s;
        const Manifest *m;
        const Section *ir;
        double tolerance;
        bool rounds;   /* products are tf32 */
        double *x;     /* one parameter, double */
        float *f;      /* and float */
        float *before; /* all of them, as the optimiser has them */
        CheckFn *fn;
        void *user;
        CheckSum *sum;
} Check;

/* The reference is slow: beyond this many operations it is not asked. */
static const double MAX_WORK = 4e12;

/* Numbers without a pattern, the same everywhere. */
static uint64_t hash(uint64_t x)
{
        x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
        x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
        return x ^ x >> 33;
}

/* Between -1/2 and 1/2. */
static float noise(uint64_t x) { return (float)(hash(x) >> 40) / (1 << 24) - 0.5f; }

/* Of an output: how far it is from the reference, and whether that is as near as it should be, or
 * as the reference is to itself. */
typedef struct Distance {
        double err;
        bool ok, moved;
} Distance;

static Distance within(double err, double tolerance)
{
        return (Distance) { .err = err, .ok = err <= tolerance }; /* a NaN is not */
}

static void result(Check *c, const char *program, const char *what, Distance d)
{
        CheckSum *sum = c->sum;
        sum->shaken += d.moved;
        if (!d.ok && !sum->bad++)
                snprintf(sum->first, sizeof sum->first, "%s %s: %.1e", program, what, d.err);
        sum->compared++;
        if (c->fn)
                c->fn(c->user, program, what, d.err, d.ok);
}

static double largest(const double *v, int64_t n)
{
        double x = 0;
        for (int64_t i = 0; i < n; i++)
                x = fabs(v[i]) > x ? fabs(v[i]) : x;
        return x;
}

/* A device is one sample, and samples are few: it may be off by SPREAD times what they are. */
static const double SPREAD = 4;

/* Where an output is further off than it should be: is the reference, by itself? */
static int excuse(Check *c, Asked *a, const Piece *p, Distance *d, Err *e)
{
        double moves;
        int code;
        for (int n = FEW_SAMPLES; n <= MOST_SAMPLES && !d->ok && c->a->shake;
             n += MOST_SAMPLES - FEW_SAMPLES) {
                if ((code = asked_moves(a, p, n, &moves, e)))
                        return code;
                if (moves > c->sum->natural)
                        c->sum->natural = moves;
                d->ok = d->moved = isinf(moves) || d->err <= c->tolerance + SPREAD * moves;
        }
        return TGC_OK;
}

/* got against a piece of the reference's answer. */
static int compare(Check *c, Asked *a, const Piece *p, const float *got, Distance *out, Err *e)
{
        int64_t all;
        const double *want = p->of(a->o, p->name, &all) + p->from, scale = asked_scale(a, p);
        double worst = 0;
        for (int64_t i = 0; i < p->n; i++) {
                double d = fabs((double)got[i] - want[i]);
                if (!(d <= worst))
                        worst = d;
                if (isnan(worst))
                        break;
        }
        *out = within(worst / scale, c->tolerance);
        return excuse(c, a, p, out, e);
}

static int compare_result(Check *c, Asked *a, const char *program, const char *what, const Piece *p,
                          const float *got, Err *e)
{
        Distance d;
        int code = compare(c, a, p, got, &d, e);
        if (!code)
                result(c, program, what, d);
        return code;
}

/* ---- the same weights on both sides ---- */

static int disturb(Check *c, uint64_t seed, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < c->m->n_params && !code; i++) {
                uint64_t n = c->m->param[i].count;
                if (c->m->param[i].blocks) /* they stay as the file has them */
                        continue;
                if ((code = session_param_get(c->s, i, c->f, e)))
                        break;
                for (uint64_t k = 0; k < n; k++)
                        c->f[k] += 0.1f * noise(hash(seed + (uint64_t)i) + k);
                code = session_param_set(c->s, i, c->f, e);
        }
        return code;
}

static int consult(Check *c, Asked *a, Ask what, int B, int T, const int *ids, const int *targets,
                   Err *e)
{
        int code = asked_new(a, c->s, c->ir, what, B, T, ids, targets, c->a->shake, c->rounds, e);
        if (!code && oracle_nearest(a->o) < c->sum->nearest)
                c->sum->nearest = oracle_nearest(a->o);
        return code;
}

static int random_ids(const Check *c, int n, uint64_t seed, int **ids, Err *e)
{
        *ids = malloc((size_t)n * sizeof **ids);
        if (!*ids)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d ids", n);
        for (int i = 0; i < n; i++)
                (*ids)[i] = (int)(hash(seed * 1000003 + (uint64_t)i) % (uint64_t)c->m->vocab);
        for (int i = 0; c->m->documents >= 0 && i < n;
             i++) /* documents of a few tokens, and long ones */
                if (i / 160 % 2 == 0 && hash(seed + (uint64_t)i) % 8 == 0)
                        (*ids)[i] = c->m->documents;
        return TGC_OK;
}

/* ---- training ---- */

static int check_grads(Check *c, Asked *a, Err *e)
{
        double most = 0;
        int64_t n;
        int code = TGC_OK;
        for (int i = 0; i < c->m->n_params; i++) {
                const double *g = oracle_grad(a->o, c->m->param[i].name, &n);
                double x = g ? largest(g, n) : 0;
                most = x > most ? x : most;
        }
        for (int i = 0; i < c->m->n_params && !code; i++) {
                const Param *p = &c->m->param[i];
                const double *g = oracle_grad(a->o, p->name, &n);
                char what[64];
                if (!p->trainable || !g || (uint64_t)n != p->count)
                        continue;
                if (!(code = session_part_read(c->s, PART_GRAD, i, c->f, e))) {
                        snprintf(what, sizeof what, "d %.60s", p->name);
                        code = compare_result(c, a, "step", what,
                                              &(Piece) { oracle_grad, p->name, 0, n, most * 0.01 },
                                              c->f, e);
                }
        }
        return code;
}

static int check_loss(Check *c, Asked *a, const char *program, const char *name, double got, Err *e)
{
        int64_t n;
        const char *of = !strcmp(name, "loss") && oracle_output(a->o, "ce", &n) ? "ce" : name;
        float x = (float)got;
        if (!oracle_output(a->o, of, &n) || n != 1)
                return TGC_OK;
        return compare_result(c, a, program, name, &(Piece) { oracle_output, of, 0, 1, 0.01 }, &x,
                              e);
}

/* A step of the 16 bits that parameters are rounded to, where they have no master copy, of their
 * size. */
static double rounding(const Check *c)
{
        if (c->m->dtype == STORE_F32 || session_has_part(c->s, PART_MASTER))
                return 0;
        return c->m->dtype == STORE_BF16 ? 1. / 128 : 1. / 1024;
}

static int remember(Check *c, Err *e)
{
        int code = TGC_OK;
        c->before = malloc((c->m->n_all + 1) * sizeof *c->before);
        if (!c->before)
                return err_set(e, TGC_NO_MEMORY, "no memory for %llu parameters",
                               (unsigned long long)c->m->n_all);
        for (int i = 0; i < c->m->n_params && !code; i++)
                if (c->m->param[i].trainable)
                        code = session_param_get(c->s, i, c->before + c->m->param[i].offset, e);
        return code;
}

static bool in_matrices(const Check *c, const Param *p)
{
        for (int i = 0; i < c->m->n_matrices; i++)
                if (c->m->matrix[i].first - p->offset < p->count &&
                    c->m->matrix[i].first >= p->offset)
                        return true;
        return false;
}

/* Muon's first step of p's matrices, of which c->f has what they became.  *worst: in steps of the
 * largest element.  A gradient of few tokens has a low rank; what bf16 rounds there is enlarged
 * some 500 times, by the definition too, so it is not looked at. */
static int check_matrices(Check *c, const Param *p, const OptimizerStep *step, double scale,
                          int64_t tokens, const float *old, const float *g, double *worst, Err *e)
{
        double *x = calloc((size_t)p->count * 3 + 1, sizeof *x);
        if (!x)
                return err_set(e, TGC_NO_MEMORY, "no memory for %llu elements",
                               (unsigned long long)p->count);
        double *want = x + p->count, *m = want + p->count;
        for (uint64_t k = 0; k < p->count; k++)
                x[k] = scale * g[k], want[k] = old[k];
        for (int i = 0; i < c->m->n_matrices; i++) {
                const ParamMatrix *w = &c->m->matrix[i];
                const uint64_t at = w->first - p->offset;
                double most = 0, off = 0;
                if (w->first < p->offset || at >= p->count ||
                    2 * (int64_t)(w->rows < w->cols ? w->rows : w->cols) > tokens)
                        continue;
                muon_step(step, want + at, x + at, m, (int64_t)w->rows, (int64_t)w->cols,
                          (int64_t)w->ld, p->offset < c->m->n_decay);
                for (uint64_t k = 0; k < w->rows * w->cols; k++) {
                        const uint64_t to = at + k / w->cols * w->ld + k % w->cols;
                        const double d = fabs(c->f[to] - want[to]) - rounding(c) * fabs(want[to]);
                        most = fmax(most, fabs(want[to] - old[to]));
                        if (!isnan(off) && !(d <= off))
                                off = d;
                }
                off /= most > 0 ? most : 1;
                if (!isnan(*worst) && !(off <= *worst)) /* below 0: none yet */
                        *worst = off;
                memset(m, 0, p->count * sizeof *m);
        }
        free(x);
        return TGC_OK;
}

/* The optimiser's first step and the norm, from the device's own gradients; the step's error is in
 * learning rates. */
static int check_update(Check *c, const TrainStep *in, double norm, Err *e)
{
        double scale = in->clip < norm ? in->clip / norm : 1, worst = 0, squares = 0, muon = -1;
        const Optimizer rule = optimizer_find(c->m->optimizer);
        const double grain = rounding(c);
        const OptimizerStep all = { in->lr,           in->beta1,     in->beta2,    in->eps,
                                    in->weight_decay, 1 - in->beta1, 1 - in->beta2 };
        int code = TGC_OK;
        for (int i = 0; i < c->m->n_params && !code; i++) {
                const Param *p = &c->m->param[i];
                const float *old = c->before + p->offset;
                float *g = (float *)c->x; /* a double's room each */
                if (!p->trainable || (code = session_part_read(c->s, PART_GRAD, i, g, e)) ||
                    (code = session_param_get(c->s, i, c->f, e)))
                        continue;
                OptimizerStep step = all;
                step.lr *= p->rate > 0 ? p->rate : 1;
                step.weight_decay = p->decay > 0 ? p->decay : step.weight_decay;
                if (in_matrices(c, p)) {
                        if (!(code = check_matrices(c, p, &step, scale, (int64_t)in->B * in->T, old,
                                                    g, &muon, e)))
                                for (uint64_t k = 0; k < p->count; k++)
                                        squares += (double)g[k] * g[k];
                        continue;
                }
                for (uint64_t k = 0; k < p->count; k++) {
                        double want = old[k], states[MAX_OPTIMIZER_STATES] = { 0 };
                        squares += (double)g[k] * g[k];
                        optimizer_step(rule, &step, &want, scale * g[k], states,
                                       p->offset + k < c->m->n_decay);
                        double err = (fabs(c->f[k] - want) - grain * fabs(want)) / in->lr;
                        if (!isnan(worst) && !(err <= worst)) /* once it is NaN it stays */
                                worst = err;
                }
        }
        if (!code) {
                result(c, "update", "gradient norm",
                       within(squares > 0 ? fabs(norm / sqrt(squares) - 1) : norm, 1e-5));
                result(c, "update", "parameters", within(worst, 1e-3));
                if (muon >= 0 || isnan(muon))
                        result(c, "update", "parameters by Muon", within(muon, 0.2));
        }
        return code;
}

/* Numbers for the inputs of an objective, as the reference has them. */
static int make_feeds(const Prog *p, Feed *feed, int *n, Err *e)
{
        const size_t tokens = (size_t)p->B * (size_t)p->T;
        for (int i = 0; i < p->n_io; i++) {
                const Io *x = &p->io[i];
                if (strncmp(x->name, "objective.", 10))
                        continue;
                if (*n == MOST_FEEDS)
                        return err_set(e, TGC_BAD_FILE, "more than %d inputs of an objective", *n);
                const size_t all = (size_t)expr_eval(x->shape, p->B, p->T);
                float *v = malloc((all + 1) * sizeof *v);
                if (!v)
                        return err_set(e, TGC_NO_MEMORY, "no memory for %zu numbers", all);
                for (size_t k = 0; k < all; k++)
                        v[k] = (float)feed_trial(x->name, (int64_t)k);
                feed[(*n)++] = (Feed) { x->name, v, all / tokens };
        }
        return TGC_OK;
}

static int check_step(Check *c, uint64_t seed, Err *e)
{
        const Prog *p = program_find(session_program(c->s), "step");
        int B = p->B, T = p->T, *ids = NULL, *targets = NULL;
        double loss;
        uint64_t counted;
        TrainResult r;
        Asked o = { 0 };
        if (6.0 * (double)c->m->n_all * B * T > MAX_WORK)
                return err_set(
                        e, TGC_USAGE,
                        "check: a step of %d x %d tokens is too much for the reference; give the "
                        "model, which is then compiled small, or compile with --batch-size 2 "
                        "--block-size 16",
                        B, T);
        Feed feed[MOST_FEEDS];
        int n_feeds = 0, code = random_ids(c, B * T, seed, &ids, e);
        if (!code)
                code = random_ids(c, B * T, seed + 1, &targets, e);
        if (!code)
                code = make_feeds(p, feed, &n_feeds, e);
        TrainStep in = { .B = B,
                         .T = T,
                         .n_micro = 1,
                         .ids = ids,
                         .targets = targets,
                         .feed = feed,
                         .n_feeds = n_feeds,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8,
                         .lr = 0.01,
                         .weight_decay = 0.1,
                         .clip = 0.5 };
        if (!code && !(code = remember(c, e)) &&
            !(code = consult(c, &o, ASK_STEP, B, T, ids, targets, e)) &&
            !(code = session_train_step(c->s, &in, &r, e)) &&
            !(code = check_loss(c, &o, "step", "loss", r.loss, e)) &&
            !(code = check_loss(c, &o, "step", "aux_loss", r.aux_loss, e)) &&
            !(code = check_grads(c, &o, e)))
                code = check_update(c, &in, r.grad_norm, e);
        asked_free(&o);
        if (!code && session_has(c->s, "eval") &&
            !(code = session_eval_fed(c->s, &in, &loss, &counted, e)) &&
            !(code = consult(c, &o, ASK_LOSS, B, T, ids, targets, e)))
                code = check_loss(c, &o, "eval", "loss", loss, e);
        asked_free(&o);
        for (int i = 0; i < n_feeds; i++)
                free((float *)feed[i].v);
        free(ids);
        free(targets);
        return code;
}

/* ---- inference ---- */

static int one_token(void *user, int i, const int *token, int B)
{
        (void)user, (void)i, (void)token, (void)B;
        return 1;
}

static int keep_token(void *user, int i, const int *token, int B)
{
        (void)B;
        ((int *)user)[i] = *token;
        return 0;
}

static int keep_tokens(void *user, int i, const int *token, int B)
{
        memcpy((int *)user + (size_t)i * (size_t)B, token, (size_t)B * sizeof *token);
        return 0;
}

static const Sampling greedy = { .top_p = 1, .typical_p = 1, .repeat_penalty = 1 };

/* The logits of the last token, by way of the cache. */
static int check_decode(Check *c, Asked *a, const int *ids, int n, float *logits, Err *e)
{
        const char *prog = session_has(c->s, "decode1") ? "decode1" : "decode";
        int V = c->m->vocab, code = session_reset(c->s, e);
        if (code || (code = session_prefill(c->s, ids, 1, n, e)) ||
            (code = session_decode(c->s, &greedy, 1, one_token, NULL, e)))
                return code;
        if ((code = session_read(c->s, prog, "logits", logits, (size_t)V * sizeof *logits, e)))
                return code;
        return compare_result(c, a, "decode", "logits",
                              &(Piece) { oracle_output, "logits", (int64_t)(n - 1) * V, V, 0 },
                              logits, e);
}

/* Texts that differ, decoded side by side: the logits after the last of what the device said
 * itself. */
static int check_batch(Check *c, const char *prog, int B, uint64_t seed, Err *e)
{
        enum { PROMPT = 5, SAID = 3, N = PROMPT + SAID - 1 };
        int V = c->m->vocab, said[SAID * TGC_MAX_BATCH], *ids = NULL, *text = NULL, code;
        float *logits = malloc((size_t)B * (size_t)V * sizeof *logits);
        int64_t n;
        Distance worst = { .ok = true };
        Asked o = { 0 };
        if (!logits || !(text = malloc((size_t)B * N * sizeof *text)))
                code = err_set(e, TGC_NO_MEMORY, "no memory for %d texts", B);
        else if (!(code = random_ids(c, B * PROMPT, seed + (uint64_t)B, &ids, e)) &&
                 !(code = session_reset(c->s, e)) &&
                 !(code = session_prefill(c->s, ids, B, PROMPT, e)) &&
                 !(code = session_decode(c->s, &greedy, SAID, keep_tokens, said, e)))
                code = session_read(c->s, prog, "logits", logits,
                                    (size_t)B * (size_t)V * sizeof *logits, e);
        for (int b = 0; b < B && !code; b++)
                for (int t = 0; t < N; t++)
                        text[b * N + t] = t < PROMPT ? ids[b * PROMPT + t]
                                                     : said[(t - PROMPT) * B + b];
        if (!code && !(code = consult(c, &o, ASK_TEXT, B, N, text, text, e)) &&
            oracle_output(o.o, "logits", &n)) {
                for (int b = 0; b < B && !code; b++) {
                        const Piece row = { oracle_output, "logits", ((int64_t)b * N + N - 1) * V,
                                            V, 0 };
                        Distance d;
                        code = compare(c, &o, &row, logits + (int64_t)b * V, &d, e);
                        if (d.ok < worst.ok || (d.ok == worst.ok && !(d.err <= worst.err)))
                                worst = d;
                }
                if (!code)
                        result(c, prog, "logits", worst);
        }
        asked_free(&o);
        free(ids);
        free(text);
        free(logits);
        return code;
}

/* Every decode program for several sequences. */
static int check_batches(Check *c, uint64_t seed, Err *e)
{
        const Program *p = session_program(c->s);
        int code = TGC_OK;
        for (int i = 0; i < p->n_progs && !code; i++)
                if (!strncmp(p->prog[i].name, "decode", 6) && p->prog[i].B > 1)
                        code = check_batch(c, p->prog[i].name, p->prog[i].B, seed, e);
        return code;
}

/* What the device said after each of the last `said` rows of logits is the reference's own choice,
 * or as good as that.  Where two logits are each wrong by up to x the likelier one may lose by 2x,
 * so half of what a choice is short of the best counts as its error.
 * ids (n+1): the prompt and all that was said. */
static int check_choices(Check *c, Asked *a, const int *ids, int n, int said, Err *e)
{
        int64_t count;
        const double *want = oracle_output(a->o, "logits", &count);
        double scale = largest(want, (int64_t)n * c->m->vocab), worst = 0;
        int by_margin = 0, distinct = 0;
        char what[64];
        for (int t = n - said; t < n; t++) {
                const double *row = want + (int64_t)t * c->m->vocab;
                double best = row[0], chosen = row[ids[t + 1]];
                int again = 0;
                for (int v = 1; v < c->m->vocab; v++)
                        best = row[v] > best ? row[v] : best;
                by_margin += chosen < best;
                if (!((best - chosen) / 2 <= worst))
                        worst = (best - chosen) / 2;
                for (int i = t + 1; i < n && !again; i++)
                        again = ids[i + 1] == ids[t + 1];
                distinct += !again;
        }
        snprintf(what, sizeof what, "%d greedy tokens, %d kinds, %d by margin", said, distinct,
                 by_margin);
        Distance d = within(scale > 0 ? worst / scale : worst, c->tolerance);
        int code = excuse(c, a, &(Piece) { oracle_output, "logits", 0, count, 0 }, &d, e);
        if (!code)
                result(c, "decode", what, d);
        return code;
}

/* --tokens random ids, and with --greedy what the device says after them: the reference sees it as
 * one text.  The last word is not given back to the model: *ids has n+1 of them. */
static int make_text(Check *c, uint64_t seed, int **ids, int *n, int *said, Err *e)
{
        int prompt = c->a->tokens, ctx = c->m->ctx, code;
        *said = c->a->greedy;
        *n = prompt + (*said ? *said - 1 : 0);
        if (*n > ctx) /* --tokens was not given: fits() */
                *n = ctx;
        if ((code = random_ids(c, *n + 1, seed, ids, e)) || !*said)
                return code;
        if ((code = session_reset(c->s, e)) || (code = session_prefill(c->s, *ids, 1, prompt, e)))
                return code;
        return session_decode(c->s, &greedy, *said, keep_token, *ids + prompt, e);
}

/* What was asked for, before anything is compared.  Of what is said the last is not given back to
 * the model. */
static int fits(const Check *c, Err *e)
{
        int prompt = c->a->tokens, said = c->a->greedy, ctx = c->m->ctx;
        if (said && prompt + said > ctx)
                return err_set(
                        e, TGC_USAGE,
                        "check: %d tokens and %d said after them do not fit the context of %d",
                        prompt, said, ctx);
        if (c->a->tokens_given && prompt > ctx)
                return err_set(e, TGC_USAGE, "check: --tokens %d: the context is %d", prompt, ctx);
        return TGC_OK;
}

static int check_infer(Check *c, uint64_t seed, Err *e)
{
        int n, said, *ids = NULL;
        int64_t count;
        Asked o = { 0 };
        float *logits = NULL;
        const double *want = NULL;
        int code = make_text(c, seed, &ids, &n, &said, e);
        size_t elems = code ? 0 : (size_t)n * (size_t)c->m->vocab;
        if (!code && !(logits = malloc(elems * sizeof *logits)))
                code = err_set(e, TGC_NO_MEMORY, "no memory for logits");
        if (!code && !(code = consult(c, &o, ASK_TEXT, 1, n, ids, ids, e)))
                want = oracle_output(o.o, "logits", &count);
        if (!code && (!want || (size_t)count != elems))
                code = err_set(e, TGC_FAIL, "check: the reference gave %lld logits, %zu are wanted",
                               want ? (long long)count : 0, elems);
        if (!code && session_has(c->s, "score") &&
            !(code = session_score(c->s, ids, n, logits, NULL, e)))
                code = compare_result(c, &o, "score", "logits",
                                      &(Piece) { oracle_output, "logits", 0, count, 0 }, logits, e);
        if (!code)
                code = check_decode(c, &o, ids, n, logits, e);
        if (!code && said)
                code = check_choices(c, &o, ids, n, said, e);
        if (!code)
                code = check_batches(c, seed, e);
        asked_free(&o);
        free(logits);
        free(ids);
        return code;
}

/* ---- embedding ---- */

/* Texts of several lengths in one call, each against the reference that sees it alone. */
static int check_embed(Check *c, uint64_t seed, Err *e)
{
        enum { TEXTS = 4 };
        const int n = c->a->tokens < c->m->ctx ? c->a->tokens : c->m->ctx, C = c->m->hidden;
        const int more = 2 * n + 3 < c->m->ctx ? 2 * n + 3 : c->m->ctx;
        EmbedText text[TEXTS] = { { NULL, n }, { NULL, 1 }, { NULL, more }, { NULL, (n + 1) / 2 } };
        int *ids = NULL, all = 0, code;
        Distance worst = { .ok = true };
        for (int i = 0; i < TEXTS; i++)
                all += text[i].n;
        float *got = malloc((size_t)all * (size_t)C * sizeof *got), *row = got;
        if (!(code = got ? random_ids(c, all, seed, &ids, e)
                         : err_set(e, TGC_NO_MEMORY, "no memory for %d vectors", all))) {
                for (int i = 0, at = 0; i < TEXTS; at += text[i++].n)
                        text[i].ids = ids + at;
                code = session_embed_tokens(c->s, text, TEXTS, got, e);
        }
        for (int i = 0; i < TEXTS && !code; row += (size_t)text[i++].n * (size_t)C) {
                const Piece whole = { oracle_output, "hidden", 0, (int64_t)text[i].n * C, 0 };
                Asked o = { 0 };
                Distance d;
                if (!(code = consult(c, &o, ASK_TEXT, 1, text[i].n, text[i].ids, text[i].ids, e)) &&
                    !(code = compare(c, &o, &whole, row, &d, e)) &&
                    (d.ok < worst.ok || (d.ok == worst.ok && !(d.err <= worst.err))))
                        worst = d;
                asked_free(&o);
        }
        if (!code)
                result(c, "embed", "hidden", worst);
        free(got);
        free(ids);
        return code;
}

/* ---- all ---- */

static int check_all(Check *c, Err *e)
{
        static const double by_dtype[] = { [STORE_F32] = 2e-4,
                                           [STORE_BF16] = 0.05,
                                           [STORE_F16] = 0.01,
                                           [STORE_FP8] = 0 },
                            tf32 = 0.01;
        uint64_t most = 1, seed = c->a->seed;
        c->rounds = c->m->tf32 && dev_which(session_device(c->s)) != DEV_CPU;
        c->tolerance = c->a->tolerance >= 0 ? c->a->tolerance
                       : c->rounds          ? tf32
                                            : by_dtype[c->m->dtype];
        if (c->a->tolerance < 0 && c->m->act8 && dev_which(session_device(c->s)) == DEV_CPU)
                c->tolerance = by_dtype[STORE_BF16]; /* 127 steps are as many as bf16's 128 */
        if (c->a->tolerance < 0 && by_dtype[c->m->cache] > c->tolerance)
                c->tolerance = by_dtype[c->m->cache];
        c->sum->tolerance = c->tolerance;
        for (int i = 0; i < c->m->n_params; i++)
                most = c->m->param[i].count > most ? c->m->param[i].count : most;
        c->x = malloc(most * sizeof *c->x);
        c->f = malloc(most * sizeof *c->f);
        if (!c->x || !c->f)
                return err_set(e, TGC_NO_MEMORY, "no memory for %llu elements",
                               (unsigned long long)most);
        int code = fits(c, e);
        if (!code)
                code = disturb(c, seed, e);
        if (!code && session_mode(c->s) & SESSION_TRAIN && session_has(c->s, "step"))
                code = check_step(c, seed, e);
        if (!code && session_mode(c->s) & SESSION_INFER && session_has(c->s, "decode"))
                code = check_infer(c, seed, e);
        if (!code && session_mode(c->s) & SESSION_INFER && session_has(c->s, "embed"))
                code = check_embed(c, seed, e);
        return code;
}

int check_session(Session *s, const Section *ir, const CheckOptions *o, CheckFn *fn, void *user,
                  CheckSum *sum, Err *e)
{
        Check c = { .a = o,
                    .s = s,
                    .m = session_manifest(s),
                    .ir = ir,
                    .fn = fn,
                    .user = user,
                    .sum = sum };
        *sum = (CheckSum) { .nearest = 1 };
        int code = check_all(&c, e);
        free(c.x);
        free(c.f);
        free(c.before);
        return code;
}

int check_plan(const Plan *p, const char *device, const CheckOptions *o, CheckSum *sum, Err *e)
{
        Session *s = NULL;
        const Section *ir = plan_find(p, "ir");
        SessionOptions how = { .device = (DevKind)dev_kind(device),
                               .seed = o ? o->seed : 0,
                               .dev = { .threads = 1 } };
        if (!ir)
                return err_set(e, TGC_BAD_FILE,
                               "the plan has no section ir, so there is nothing to compare with");
        int code = session_open(&s, p, &how, e);
        if (!code && o)
                code = check_session(s, ir, o, NULL, NULL, sum, e);
        session_close(s);
        return code;
}
