/* check_mixed.c: compares calls that decode and read prompts (the program `mixed`, --fast) with the
 * reference.
 *
 * Sequences come while others decode.  The log-probability of each token that is said is compared
 * with the reference's, which sees a sequence as one text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "check_impl.h"
#include "../../runtime/batch/batch.h"

enum { MOST_TEXTS = 4, MOST_SAID = 12, LEAST_PROMPT = 5, STEPS_APART = 2 };

typedef struct Text {
        int seq; /* of the batch; 0: it has not come yet */
        int n, prompt, said;
        int ids[LEAST_PROMPT + 3 * MOST_TEXTS + MOST_SAID];
        float logprob[MOST_SAID];
} Text;

/* Each comes STEPS_APART steps after the one before. */
static int say_all(Check *c, Text *text, int n, uint64_t *mixed, Err *e)
{
        BatchToken *out = malloc(TGC_MAX_BATCH * sizeof *out);
        BatchHow how = { .sampling = sampling_default(), .predict = text->said };
        Batch *b = NULL;
        int got, came = 0,
                 code = out ? batch_open(&b, c->s, NULL, e)
                            : err_set(e, TGC_NO_MEMORY, "no memory for a batch");
        how.sampling.temp = 0;
        how.sampling.logprobs = true;
        for (int step = 0; !code && (came < n || batch_left(b)); step++) {
                if (came < n && step == came * STEPS_APART) {
                        Text *t = &text[came++];
                        code = batch_add(b, t->ids, t->prompt, &how, &t->seq, e);
                }
                if (code || (code = batch_step(b, out, &got, e)))
                        break;
                for (int i = 0; i < got; i++)
                        for (int k = 0; k < came; k++)
                                if (text[k].seq == out[i].seq) {
                                        Text *t = &text[k];
                                        t->logprob[t->n - t->prompt] = out[i].drawn.logprob;
                                        t->ids[t->n++] = out[i].token;
                                }
        }
        if (!code)
                *mixed = batch_stats(b).mixed;
        batch_close(b);
        free(out);
        return code;
}

/* Two logits that are each wrong by x change a log-probability by 2x. */
static int compare(Check *c, const Text *t, Distance *d, Err *e)
{
        Asked o = { 0 };
        const int V = c->m->vocab, n = t->n - 1;
        int64_t count;
        int code = check_consult(c, &o, ASK_TEXT, 1, n, t->ids, t->ids, e);
        const double *want = code ? NULL : oracle_output(o.o, "logits", &count);
        double worst = 0;
        for (int i = t->prompt - 1; i < n && want; i++) {
                const double *row = want + (int64_t)i * V;
                double most = row[0], sum = 0;
                for (int v = 1; v < V; v++)
                        most = row[v] > most ? row[v] : most;
                for (int v = 0; v < V; v++)
                        sum += exp(row[v] - most);
                const double is = row[t->ids[i + 1]] - most - log(sum),
                             off = fabs((double)t->logprob[i + 1 - t->prompt] - is) / 2;
                if (!(off <= worst))
                        worst = off;
        }
        if (want) {
                const Piece all = { oracle_output, "logits", 0, count, 0 };
                *d = check_distance(worst / asked_scale(&o, &all), c->tolerance);
                code = check_excuse(c, &o, &all, d, e);
        }
        asked_free(&o);
        return code;
}

int check_mixed(Check *c, uint64_t seed, Err *e)
{
        const int ctx = c->m->ctx, said = ctx / 2 < MOST_SAID ? ctx / 2 : MOST_SAID,
                  n = c->m->batch < MOST_TEXTS ? c->m->batch : MOST_TEXTS;
        Text *text = calloc(MOST_TEXTS, sizeof *text);
        Distance worst = { .ok = true };
        uint64_t mixed = 0;
        int code = text ? session_reset(c->s, e) : err_set(e, TGC_NO_MEMORY, "no memory for texts");
        for (int i = 0; i < n && !code; i++) {
                Text *t = &text[i];
                const int most = LEAST_PROMPT + 3 * i;
                int *ids = NULL;
                t->said = said;
                t->prompt = t->n = most < ctx - said ? most : ctx - said;
                if (!(code = check_ids(c, t->n, seed + (uint64_t)i, &ids, e)))
                        memcpy(t->ids, ids, (size_t)t->n * sizeof *ids);
                free(ids);
        }
        if (!code)
                code = say_all(c, text, n, &mixed, e);
        for (int i = 0; i < n && !code; i++) {
                Distance d;
                if (!(code = compare(c, &text[i], &d, e)) &&
                    (d.ok < worst.ok || (d.ok == worst.ok && !(d.err <= worst.err))))
                        worst = d;
        }
        if (!code && mixed)
                check_report(c, "mixed", "log-probabilities", worst);
        free(text);
        return code;
}
