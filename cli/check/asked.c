/* asked.c: implements asked.h.
 *
 * Monte Carlo arithmetic: each sample evaluates the graph again and rounds every value as the plan
 * stores it, with some chance (EvalCtx.sample).  A device's result is one more sample, since it
 * sums in other orders, keeps values in registers and approximates functions.  A difference that
 * none of many samples shows is an error of the device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/weights/ck_tensor.h"
#include "asked.h"

/* What the device computes with: the stored weight, rounded to the plan's dtype, or the value of
 * its block. */
static int give_weights(Asked *a, Err *e)
{
        const Manifest *m = session_manifest(a->s);
        double *keep = a->weights; /* one parameter after the other */
        uint64_t most = 1;
        for (int i = 0; i < m->n_params; i++)
                most = m->param[i].count > most ? m->param[i].count : most;
        double *x = malloc(most * sizeof *x);
        float *f = malloc(most * sizeof *f);
        int code = x && f ? TGC_OK
                          : err_set(e, TGC_NO_MEMORY, "no memory for %llu elements",
                                    (unsigned long long)most);
        for (int i = 0; i < m->n_params && !code; i++) {
                uint64_t n = m->param[i].count;
                if ((code = session_part_read(a->s, PART_WEIGHT, i, x, e)))
                        break;
                ck_convert(f, CK_F32, x, param_ck(m, i), n, 1);
                for (uint64_t k = 0; k < n; k++)
                        x[k] = f[k];
                if (keep) {
                        memcpy(keep, x, n * sizeof *x);
                        keep += n;
                }
                code = oracle_set(a->o, m->param[i].name, x, (int64_t)n, e);
        }
        free(x);
        free(f);
        return code;
}

static int give_leaves(const Asked *a, Oracle *o, Err *e)
{
        int64_t n = (int64_t)a->B * a->T;
        int code = oracle_set(o, "ids", a->ids, n, e);
        if (!code)
                code = oracle_set(o, "targets", a->targets, n, e);
        return code ? code : oracle_set(o, "documents", a->documents, 2 * n, e);
}

static int asked_oracle(const Asked *a, Oracle **o, const Rounding *r, Err *e)
{
        int code = oracle_new(o, a->ir->data, a->ir->size, a->what == ASK_STEP, a->B, a->T, a->seed,
                              r, e);
        if (!code && a->what == ASK_TEXT && session_manifest(a->s)->cache == STORE_FP8)
                oracle_fp8(*o);
        return code;
}

static int keep_leaves(Asked *a, const int *ids, const int *targets, Err *e)
{
        size_t n = (size_t)a->B * (size_t)a->T;
        int *d = malloc(2 * n * sizeof *d);
        a->ids = malloc(n * sizeof *a->ids);
        a->targets = malloc(n * sizeof *a->targets);
        a->documents = malloc(2 * n * sizeof *a->documents);
        if (!d || !a->ids || !a->targets || !a->documents) {
                free(d);
                return err_set(e, TGC_NO_MEMORY, "no memory for %zu ids", n);
        }
        for (size_t i = 0; i < 2 * n; i++)
                d[i] = i % 2 ? a->T : 0;
        if (a->what != ASK_TEXT) /* rows are cut into documents, as they are in training */
                session_documents(a->s, ids, a->B, a->T, d);
        for (size_t i = 0; i < 2 * n; i++)
                a->documents[i] = d[i];
        for (size_t i = 0; i < n; i++) {
                a->ids[i] = ids[i];
                a->targets[i] = targets[i];
        }
        free(d);
        return TGC_OK;
}

int asked_new(Asked *a, Session *s, const Section *ir, Ask what, int B, int T, const int *ids,
              const int *targets, bool sampled, bool tf32, Err *e)
{
        const Manifest *m = session_manifest(s);
        const unsigned *seed = session_rt(s)->seed;
        *a = (Asked) { .s = s,
                       .ir = ir,
                       .what = what,
                       .B = B,
                       .T = T,
                       .tf32 = tf32,
                       .seed = { seed[0], seed[1] } };
        const uint64_t n_all = manifest_elements(m);
        if (sampled && !(a->weights = malloc((n_all + 1) * sizeof *a->weights)))
                return err_set(e, TGC_NO_MEMORY, "no memory for %llu parameters",
                               (unsigned long long)n_all);
        int code = keep_leaves(a, ids, targets, e);
        if (code || (code = asked_oracle(a, &a->o, NULL, e)) || (code = give_weights(a, e)) ||
            (code = give_leaves(a, a->o, e)))
                return code;
        return oracle_run(a->o, e);
}

void asked_free(Asked *a)
{
        oracle_free(a->o);
        for (int i = 0; i < a->n_samples; i++)
                oracle_free(a->sample[i]);
        free(a->ids);
        free(a->targets);
        free(a->documents);
        free(a->weights);
        *a = (Asked) { 0 };
}

static int one_more(Asked *a, Err *e)
{
        const Manifest *m = session_manifest(a->s);
        Rounding r = { .stored = store_name(m->dtype),
                       .tf32 = a->tf32,
                       .sample = (unsigned)a->n_samples };
        Oracle **o = &a->sample[a->n_samples];
        int code = asked_oracle(a, o, &r, e);
        if (code)
                return code;
        a->n_samples++;
        const double *x = a->weights; /* one parameter after the other */
        for (int i = 0; i < m->n_params && !code; x += m->param[i++].count)
                code = oracle_set(*o, m->param[i].name, x, (int64_t)m->param[i].count, e);
        if (!code && !(code = give_leaves(a, *o, e)))
                code = oracle_run(*o, e);
        return code;
}

static const double *piece(Oracle *o, const Piece *p)
{
        int64_t all;
        const double *v = p->of(o, p->name, &all);
        return v && p->from + p->n <= all ? v + p->from : NULL;
}

double asked_scale(const Asked *a, const Piece *p)
{
        const double *v = piece(a->o, p);
        double scale = p->least;
        for (int64_t i = 0; v && i < p->n; i++)
                scale = fabs(v[i]) > scale ? fabs(v[i]) : scale;
        return scale > 0 ? scale : 1;
}

int asked_moves(Asked *a, const Piece *p, int samples, double *moves, Err *e)
{
        const double *want = piece(a->o, p), scale = asked_scale(a, p);
        int code = TGC_OK;
        *moves = 0;
        for (int k = 0; k < samples && want; k++) {
                if (k >= a->n_samples && (code = one_more(a, e)))
                        return code;
                const double *v = piece(a->sample[k], p);
                for (int64_t i = 0; v && i < p->n; i++) {
                        double by = fabs(v[i] - want[i]) / scale;
                        if (!(by <= *moves))
                                *moves = isnan(by) ? INFINITY : by;
                }
        }
        return code;
}
