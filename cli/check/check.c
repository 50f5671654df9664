/* check.c: compares every program of a plan, on the session's device, with the reference.
 *
 * Weights are the initial ones with noise added, so that no bias is zero and no gain is one.  An
 * error is the largest difference divided by the reference's largest value.  Gradients that are
 * nearly zero beside the others are divided by a hundredth of the largest gradient instead (a key's
 * bias has no gradient at all).
 *
 * With `shake`, and of plans with --act fp8, a result that differs is asked again: the reference
 * runs with arithmetic that is only as exact as the device's (asked.h).  The amount by which its
 * own results move then is no error of the device: a sum cancels, two experts or two maxima are
 * nearly equal, or an activation lies in the middle of two values of e4m3. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "check_impl.h"

/* Numbers without a pattern, the same everywhere. */
static uint64_t check_hash(uint64_t x)
{
        x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
        x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
        return x ^ x >> 33;
}

/* Between -1/2 and 1/2. */
static float noise(uint64_t x) { return (float)(check_hash(x) >> 40) / (1 << 24) - 0.5f; }

Distance check_distance(double err, double tolerance)
{
        return (Distance) { .err = err, .ok = err <= tolerance }; /* a NaN is not */
}

void check_report(Check *c, const char *program, const char *what, Distance d)
{
        CheckSum *sum = c->sum;
        sum->shaken += d.moved;
        if (!d.ok && !sum->bad++)
                snprintf(sum->first, sizeof sum->first, "%s %s: %.1e", program, what, d.err);
        sum->compared++;
        if (c->fn)
                c->fn(c->user, program, what, d.err, d.ok);
}

double check_largest(const double *v, int64_t n)
{
        double x = 0;
        for (int64_t i = 0; i < n; i++)
                x = fabs(v[i]) > x ? fabs(v[i]) : x;
        return x;
}

/* A device is one sample, and samples are few: it may be off by SPREAD times what they are. */
static const double SPREAD = 4;

int check_excuse(Check *c, Asked *a, const Piece *p, Distance *d, Err *e)
{
        double moves;
        int code;
        for (int n = FEW_SAMPLES; n <= MOST_SAMPLES && !d->ok && c->shakes;
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
int check_compare(Check *c, Asked *a, const Piece *p, const float *got, Distance *out, Err *e)
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
        *out = check_distance(worst / scale, c->tolerance);
        return check_excuse(c, a, p, out, e);
}

int check_result(Check *c, Asked *a, const char *program, const char *what, const Piece *p,
                 const float *got, Err *e)
{
        Distance d;
        int code = check_compare(c, a, p, got, &d, e);
        if (!code)
                check_report(c, program, what, d);
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
                        c->f[k] += 0.1f * noise(check_hash(seed + (uint64_t)i) + k);
                code = session_param_set(c->s, i, c->f, e);
        }
        return code;
}

int check_consult(Check *c, Asked *a, Ask what, int B, int T, const int *ids, const int *targets,
                  Err *e)
{
        int code = asked_new(a, c->s, c->ir, what, B, T, ids, targets, c->shakes, c->rounds, e);
        if (!code && oracle_nearest(a->o) < c->sum->nearest)
                c->sum->nearest = oracle_nearest(a->o);
        return code;
}

int check_ids(const Check *c, int n, uint64_t seed, int **ids, Err *e)
{
        *ids = malloc((size_t)n * sizeof **ids);
        if (!*ids)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d ids", n);
        for (int i = 0; i < n; i++)
                (*ids)[i] = (int)(check_hash(seed * 1000003 + (uint64_t)i) % (uint64_t)c->m->vocab);
        for (int i = 0; c->m->documents >= 0 && i < n;
             i++) /* documents of a few tokens, and long ones */
                if (i / 160 % 2 == 0 && check_hash(seed + (uint64_t)i) % 8 == 0)
                        (*ids)[i] = c->m->documents;
        return TGC_OK;
}

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

/* ---- all ---- */

static int check_all(Check *c, Err *e)
{
        static const double by_dtype[] = { [STORE_F32] = 2e-4,
                                           [STORE_BF16] = 0.05,
                                           [STORE_F16] = 0.01,
                                           [STORE_FP8] = 0 },
                            tf32 = 0.01;
        uint64_t most = 1, seed = c->a->seed;
        c->shakes = c->a->shake || c->m->act_fp8;
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
