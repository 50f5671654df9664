/* check_train.c: compares a training step with the reference: the loss, every gradient, and the
 * weights after the optimiser. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../ir/optimizer.h"
#include "check_impl.h"

/* The reference is slow: beyond this many operations it is not asked. */
static const double MAX_WORK = 4e12;

static int check_grads(Check *c, Asked *a, Err *e)
{
        double most = 0;
        int64_t n;
        int code = TGC_OK;
        for (int i = 0; i < c->m->n_params; i++) {
                const double *g = oracle_grad(a->o, c->m->param[i].name, &n);
                double x = g ? check_largest(g, n) : 0;
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
                        code = check_result(c, a, "step", what,
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
        return check_result(c, a, program, name, &(Piece) { oracle_output, of, 0, 1, 0.01 }, &x, e);
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
                check_report(c, "update", "gradient norm",
                             check_distance(squares > 0 ? fabs(norm / sqrt(squares) - 1) : norm,
                                            1e-5));
                check_report(c, "update", "parameters", check_distance(worst, 1e-3));
                if (muon >= 0 || isnan(muon))
                        check_report(c, "update", "parameters by Muon", check_distance(muon, 0.2));
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

int check_step(Check *c, uint64_t seed, Err *e)
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
        int n_feeds = 0, code = check_ids(c, B * T, seed, &ids, e);
        if (!code)
                code = check_ids(c, B * T, seed + 1, &targets, e);
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
            !(code = check_consult(c, &o, ASK_STEP, B, T, ids, targets, e)) &&
            !(code = session_train_step(c->s, &in, &r, e)) &&
            !(code = check_loss(c, &o, "step", "loss", r.loss, e)) &&
            !(code = check_loss(c, &o, "step", "aux_loss", r.aux_loss, e)) &&
            !(code = check_grads(c, &o, e)))
                code = check_update(c, &in, r.grad_norm, e);
        asked_free(&o);
        if (!code && session_has(c->s, "eval") &&
            !(code = session_eval_fed(c->s, &in, &loss, &counted, e)) &&
            !(code = check_consult(c, &o, ASK_LOSS, B, T, ids, targets, e)))
                code = check_loss(c, &o, "eval", "loss", loss, e);
        asked_free(&o);
        for (int i = 0; i < n_feeds; i++)
                free((float *)feed[i].v);
        free(ids);
        free(targets);
        return code;
}
