/* objective_step.c: what an objective adds to a step: its rows, log-probabilities under the current
 * and the frozen weights, the teacher's logits.
 *
 * With adapters, the frozen model is the model itself with its adapters off: their second factors
 * are zero for one pass, so no weight is stored twice.  Without adapters it is --reference
 * MODEL. */
#include <stdlib.h>
#include <string.h>
#include "objective.h"

/* ---- log-probabilities ---- */

static bool is_adapter(const Train *t, int param)
{
        return strstr(session_manifest(t->s)->param[param].name, "lora_B") != NULL;
}

/* Zeros in place of the adapters' second factors, which go to `kept`; or these back. */
static int switch_adapters(Train *t, void **kept, bool off, Err *e)
{
        const Manifest *m = session_manifest(t->s);
        int code = TGC_OK;
        for (int i = 0; i < m->n_params && !code; i++) {
                const size_t n = is_adapter(t, i) ? session_part_size(t->s, PART_WEIGHT, i) : 0;
                if (!n)
                        continue;
                if (!off) {
                        code = kept[i] ? session_part_write(t->s, PART_WEIGHT, i, kept[i], e)
                                       : TGC_OK;
                        continue;
                }
                void *zeros = calloc(n, 1);
                kept[i] = zeros ? malloc(n) : NULL;
                code = !kept[i] ? err_set(e, TGC_NO_MEMORY, "no memory to set adapters aside")
                                : session_part_read(t->s, PART_WEIGHT, i, kept[i], e);
                if (!code)
                        code = session_part_write(t->s, PART_WEIGHT, i, zeros, e);
                free(zeros);
        }
        return code;
}

/* One micro-batch of `in`, whose output of so many numbers a token goes to its place in v. */
static int output_of(const Train *t, Session *s, const char *prog, const char *out,
                     const TrainStep *in, int micro, size_t each, float *v, Err *e)
{
        const size_t n = (size_t)t->B * (size_t)t->T, at = n * (size_t)micro;
        TrainStep one = *in;
        one.n_micro = 1;
        one.ids += at;
        one.targets += at;
        one.documents = in->documents ? in->documents + 2 * at : NULL;
        one.n_feeds = 0;
        return session_eval_output(s, prog, out, &one, v + at * each, n * each, e);
}

static int own_logp(const Train *t, const TrainStep *in, float *v, Err *e)
{
        int code = TGC_OK;
        for (int m = 0; m < in->n_micro && !code; m++)
                code = output_of(t, t->s, "logp", "logp", in, m, 1, v, e);
        return code;
}

static int frozen_logp(Train *t, const TrainStep *in, float *v, Err *e)
{
        int code = TGC_OK;
        Err ignored;
        if (t->aim.other) {
                for (int m = 0; m < in->n_micro && !code; m++)
                        code = output_of(t, t->aim.other, "reference", "logp", in, m, 1, v, e);
                return code;
        }
        const int n = session_manifest(t->s)->n_params;
        void **kept = calloc((size_t)n + 1, sizeof *kept);
        if (!kept)
                return err_set(e, TGC_NO_MEMORY, "no memory to set adapters aside");
        if (!(code = switch_adapters(t, kept, true, e)))
                code = own_logp(t, in, v, e);
        const int back = switch_adapters(t, kept, false, code ? &ignored : e);
        for (int i = 0; i < n; i++)
                free(kept[i]);
        free(kept);
        return code ? code : back;
}

/* What comes by running the rows that are laid out. */
static int run_rows(Train *t, const TrainStep *in, Err *e)
{
        float *teacher = aim_feed(t, "teacher"), *old = aim_feed(t, "old"),
              *reference = aim_feed(t, "reference");
        const size_t V = (size_t)session_manifest(t->s)->vocab;
        int code = TGC_OK;
        for (int m = 0; m < in->n_micro && teacher && !code; m++)
                code = output_of(t, t->aim.other, "reference", "logits", in, m, V, teacher, e);
        if (!code && old)
                code = own_logp(t, in, old, e);
        return !code && reference ? frozen_logp(t, in, reference, e) : code;
}

/* ---- a step ---- */

bool aim_drives(const Train *t)
{
        return t->aim.objective && (aim_facts(t)->data || aim_facts(t)->n_feeds);
}

int aim_feeds(const Train *t, int micro, Feed *feed)
{
        const int n = aim_drives(t) ? aim_facts(t)->n_feeds : 0;
        for (int i = 0; i < n; i++) {
                feed[i] = t->aim.feeds[i];
                feed[i].v += (size_t)micro * (size_t)t->B * (size_t)t->T * feed[i].each;
        }
        return n;
}

void aim_report(const Train *t, double seconds)
{
        const double *s = t->aim.seconds, rest = seconds - s[SAMPLING] - s[JUDGING] - s[LOG_P];
        if (t->aim.objective && aim_facts(t)->data == OBJECTIVE_PROMPTS && seconds > 0)
                say(&t->talk,
                    "time: sampling %.0f%%, judging %.0f%%, log-probabilities %.0f%%, steps "
                    "%.0f%%\n",
                    100 * s[SAMPLING] / seconds, 100 * s[JUDGING] / seconds,
                    100 * s[LOG_P] / seconds, 100 * rest / seconds);
}

bool aim_between(const Train *t, int64_t step)
{
        return !t->aim.objective || aim_facts(t)->data != OBJECTIVE_PROMPTS ||
               step % aim_facts(t)->updates == 0;
}

int aim_fill(Train *t, const Windows *w, int64_t step, int n_micro, TrainStep *in, Err *e)
{
        const ObjectiveFacts *f = aim_facts(t);
        const size_t n = (size_t)n_micro * (size_t)t->B * (size_t)t->T;
        int code = TGC_OK;
        in->ids = t->x;
        in->targets = t->y;
        in->documents = t->d;
        in->feed = t->aim.feeds;
        in->n_feeds = f->n_feeds;
        if (f->data == OBJECTIVE_PROMPTS && step % f->updates && t->aim.rows_of >= 0 &&
            t->aim.rows_of / f->updates == step / f->updates)
                return TGC_OK;
        t->aim.rows_of = f->data == OBJECTIVE_PROMPTS ? step : -1;
        t->aim.scores = t->aim.n_scores = 0;
        for (int k = 0; k < f->n_feeds; k++)
                memset(t->aim.feed[k], 0, n * t->aim.feeds[k].each * sizeof *t->aim.feed[k]);
        for (size_t i = 0; i < n; i++)
                t->aim.unit[i] = -1;
        for (int m = 0; m < n_micro && !f->data; m++) {
                const size_t at = (size_t)m * (size_t)t->B * (size_t)t->T;
                windows_fill(w, step, m, n_micro, t->B, t->x + at, t->y + at,
                             t->d ? t->d + 2 * at : NULL);
        }
        if (f->data == OBJECTIVE_PAIRS)
                code = rows_of_pairs(t, w, step, n_micro, e);
        else if (f->data == OBJECTIVE_PROMPTS)
                code = rows_of_groups(t, w, step, n_micro, e);
        TrainStep rows = *in;
        rows.B = t->B;
        rows.T = t->T;
        rows.n_micro = n_micro;
        const double began = clock_s();
        code = code ? code : run_rows(t, &rows, e);
        t->aim.seconds[LOG_P] += clock_s() - began;
        return code;
}
