/* objective_sample.c: samples continuations of prompts, several at once, from the weights in
 * training. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/batch/batch.h"
#include "objective.h"

void said_free(Said *said, int n)
{
        for (int i = 0; said && i < n; i++) {
                free(said[i].ids);
                free(said[i].text);
        }
        free(said);
}

static int take_token(const Train *t, Said *s, const BatchToken *x)
{
        s->ids[s->n++] = x->token;
        s->ended = tokenizer_is_eos(t->l.tok, x->token) || x->token == t->aim.end_of_turn;
        return s->ended;
}

/* Every prompt has `each` sequences, one after the other. */
static int sample_all(Train *t, Batch *b, const ObjectiveFacts *f, const Ask *ask, int n,
                      Said *said, int *id, BatchToken *out, Err *e)
{
        int code = TGC_OK, k;
        for (int i = 0; i < n * f->samples && !code; i++) {
                const Ask *a = &ask[i / f->samples];
                BatchHow how = { .sampling = sampling_default(), .predict = f->max_tokens };
                how.sampling.temp = (float)f->temp;
                how.sampling.top_k = 0;
                how.sampling.min_p = 0;
                how.sampling.top_p = (float)f->top_p;
                how.sampling.seed = mix64(a->seed + (uint64_t)(i % f->samples));
                said[i].ids = malloc((size_t)f->max_tokens * sizeof *said[i].ids);
                code = said[i].ids ? batch_add(b, a->ids, a->n, &how, &id[i], e)
                                   : err_set(e, TGC_NO_MEMORY, "no memory for what is sampled");
        }
        while (!code && batch_left(b) && !(code = batch_step(b, out, &k, e)))
                for (int j = 0; j < k && !code; j++) {
                        int i = 0;
                        while (i < n * f->samples && id[i] != out[j].seq)
                                i++;
                        if (i < n * f->samples && take_token(t, &said[i], &out[j])) {
                                id[i] = 0;
                                if (!out[j].end)
                                        code = batch_drop(b, out[j].seq, e);
                        }
                }
        return code;
}

int sample_groups(Train *t, const ObjectiveFacts *f, const Ask *ask, int n, Said *said, Err *e)
{
        Batch *b = NULL;
        int *id = calloc((size_t)n * (size_t)f->samples, sizeof *id);
        BatchToken *out = malloc(TGC_MAX_BATCH * sizeof *out);
        int code = id && out ? batch_open(&b, t->s, NULL, e)
                             : err_set(e, TGC_NO_MEMORY, "no memory for what is sampled");
        if (!code)
                code = sample_all(t, b, f, ask, n, said, id, out, e);
        batch_close(b);
        free(id);
        free(out);
        for (int i = 0; i < n * f->samples && !code; i++)
                code = tokenizer_text(t->l.tok, said[i].ids, said[i].n - said[i].ended,
                                      &said[i].text, &said[i].n_text, e);
        return code;
}
