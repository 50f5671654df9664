/* find_nan.c: implements find_nan.h.  Dropout is left out: it does not decide where a value becomes
 * infinite. */
#include "find_nan.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/weights/ck_tensor.h"
#include "oracle.h"

/* Weights as float64; the first that is not finite is said. */
static int give_weights(Session *s, Oracle *o, char says[NAN_SAYS], Err *e)
{
        const Manifest *m = session_manifest(s);
        uint64_t most = 1;
        int code = TGC_OK;
        for (int i = 0; i < m->n_params; i++)
                most = m->param[i].count > most ? m->param[i].count : most;
        float *f = malloc(most * sizeof *f);
        double *x = malloc(most * sizeof *x);
        if (!f || !x)
                code = err_set(e, TGC_NO_MEMORY, "no memory for %llu elements",
                               (unsigned long long)most);
        for (int i = 0; i < m->n_params && !code && !*says; i++) {
                const Param *p = &m->param[i];
                uint64_t bad = 0;
                if ((code = session_param_get(s, i, f, e)))
                        break;
                for (uint64_t k = 0; k < p->count; k++) {
                        x[k] = f[k];
                        bad += !isfinite(f[k]);
                }
                if (bad)
                        snprintf(says, NAN_SAYS,
                                 "the parameter %.200s has %llu values that are not finite, before "
                                 "the step",
                                 p->name, (unsigned long long)bad);
                else
                        code = oracle_set(o, p->name, x, (int64_t)p->count, e);
        }
        free(f);
        free(x);
        return code;
}

static int give_ints(Oracle *o, const char *name, const int *v, int n, Err *e)
{
        double *x = malloc((size_t)n * sizeof *x);
        if (!x)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d ids", n);
        for (int i = 0; i < n; i++)
                x[i] = v[i];
        int code = oracle_set(o, name, x, n, e);
        free(x);
        return code;
}

static int give_feeds(Oracle *o, const NanBatch *b, int row, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < b->n_feeds && !code; i++) {
                const size_t n = (size_t)b->T * b->feed[i].each;
                double *x = malloc((n + 1) * sizeof *x);
                if (!x)
                        return err_set(e, TGC_NO_MEMORY, "no memory for a row");
                for (size_t k = 0; k < n; k++)
                        x[k] = b->feed[i].v[(size_t)row * n + k];
                code = oracle_set(o, b->feed[i].name, x, (int64_t)n, e);
                free(x);
        }
        return code;
}

static int one_row(Session *s, const Section *ir, const NanBatch *b, int row, char says[NAN_SAYS],
                   Err *e)
{
        const Manifest *m = session_manifest(s);
        const Rounding r = { .stored = store_name(m->dtype) };
        const size_t at = (size_t)row * (size_t)b->T;
        Oracle *o = NULL;
        char what[400] = "";
        int *d = malloc(2 * (size_t)b->T * sizeof *d), code;
        if (!d)
                return err_set(e, TGC_NO_MEMORY, "no memory for a row");
        if (b->documents)
                memcpy(d, b->documents + 2 * at, 2 * (size_t)b->T * sizeof *d);
        else
                session_documents(s, b->ids + at, 1, b->T, d);
        code = oracle_new(&o, ir->data, ir->size, true, 1, b->T, session_rt(s)->seed, &r, e);
        if (!code && !(code = give_weights(s, o, says, e)) && !*says &&
            !(code = give_ints(o, "ids", b->ids + at, b->T, e)) &&
            !(code = give_ints(o, "targets", b->targets + at, b->T, e)) &&
            !(code = give_ints(o, "documents", d, 2 * b->T, e)) &&
            !(code = give_feeds(o, b, row, e)) && !(code = oracle_run(o, e)) &&
            oracle_first_bad(o, what, sizeof what))
                snprintf(says, NAN_SAYS, "row %d: %s", row, what);
        oracle_free(o);
        free(d);
        return code;
}

/* Of the rows whose loss the device finds wrong, the first; -1: none, it is in a gradient. */
static int bad_row(Session *s, const NanBatch *b, int *row, Err *e)
{
        const size_t n = (size_t)b->B * (size_t)b->T;
        int *y = malloc(n * sizeof *y), code = TGC_OK;
        *row = -1;
        if (!y)
                return err_set(e, TGC_NO_MEMORY, "no memory for %zu targets", n);
        for (int r = 0; r < b->B && *row < 0 && !code && session_has(s, "eval"); r++) {
                double loss = 0;
                uint64_t counted = 0;
                for (size_t i = 0; i < n; i++) {
                        const bool own = (int)(i / (size_t)b->T) == r;
                        y[i] = own ? b->targets[i] : -1;
                        counted += y[i] >= 0;
                }
                if (!counted)
                        continue;
                code = session_eval_fed(s,
                                        &(TrainStep) { .B = b->B,
                                                       .T = b->T,
                                                       .n_micro = 1,
                                                       .ids = b->ids,
                                                       .targets = y,
                                                       .documents = b->documents,
                                                       .feed = b->feed,
                                                       .n_feeds = b->n_feeds },
                                        &loss, &counted, e);
                if (!code && !isfinite(loss))
                        *row = r;
        }
        free(y);
        return code;
}

int find_nan(Session *s, const Section *ir, const NanBatch *b, char says[NAN_SAYS], Err *e)
{
        int first, code = bad_row(s, b, &first, e);
        *says = 0;
        for (int r = first < 0 ? 0 : first; r < b->B && !code && !*says; r++)
                code = one_row(s, ir, b, r, says, e);
        return code;
}
