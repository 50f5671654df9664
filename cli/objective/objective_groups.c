/* objective_groups.c: makes rows from prompts and their continuations, which are sampled and then
 * scored. */
#include <stdlib.h>
#include <string.h>
#include "objective.h"

/* The tokens of a record that are its prompt. */
static int prompt_length(const uint32_t *id, int n)
{
        int k = 0;
        while (k < n && !(id[k] & RECORD_COUNTS))
                k++;
        return k;
}

typedef struct Group {
        const uint32_t *id; /* the record: its prompt, then its completion, if it has one */
        int n, n_prompt;
        int *prompt;
        Said *said; /* (samples), or NULL: none were made */
        ObjectiveValues values;
} Group;

static int text_of(const Train *t, const uint32_t *id, int n, char **text, size_t *size, Err *e)
{
        int *plain = malloc(((size_t)n + 1) * sizeof *plain);
        if (!plain)
                return err_set(e, TGC_NO_MEMORY, "no memory for a prompt");
        for (int i = 0; i < n; i++)
                plain[i] = (int)(id[i] & ~RECORD_COUNTS);
        if (n && tokenizer_is_eos(t->l.tok, plain[n - 1]))
                n--;
        int code = tokenizer_text(t->l.tok, plain, n, text, size, e);
        free(plain);
        return code;
}

static int judge(Train *t, Group *g, Err *e)
{
        const ObjectiveFacts *f = aim_facts(t);
        ObjectiveGroup in = { .n = f->samples };
        char *prompt = NULL, *completion = NULL;
        const char *why;
        int code = text_of(t, g->id, g->n_prompt, &prompt, &in.n_prompt, e);
        if (!code && g->n > g->n_prompt)
                code = text_of(t, g->id + g->n_prompt, g->n - g->n_prompt, &completion,
                               &in.n_completion, e);
        in.prompt = prompt;
        in.completion = completion;
        for (int i = 0; i < f->samples && !code; i++) {
                in.text[i] = g->said[i].text;
                in.n_text[i] = g->said[i].n_text;
                in.ids[i] = g->said[i].ids;
                in.tokens[i] = g->said[i].n;
                in.ended[i] = g->said[i].ended;
        }
        if (!code && (code = objective_judge(t->aim.objective, &in, &g->values, &why)))
                err_set(e, code, "%s", why);
        size_t n_said = 0;
        const char *said = objective_said(t->aim.objective, &n_said);
        if (n_said && !t->talk.quiet) {
                progress_bar_end(&t->talk);
                put_plain(stderr, said, n_said);
        }
        if (!code && g->values.has_score) {
                t->aim.scores += g->values.score;
                t->aim.n_scores++;
        }
        free(prompt);
        free(completion);
        return code;
}

/* A continuation behind its prompt.  learned: its tokens are targets; else they are inputs, all of
 * them, and what ends it is left out. */
static void lay_said(Train *t, FedRow *r, const Group *g, int i, bool learned, uint32_t *room)
{
        const ObjectiveFacts *f = aim_facts(t);
        const Said *s = &g->said[i];
        const int n = learned ? s->n : s->n - s->ended, from = r->at;
        for (int k = 0; k < g->n_prompt; k++)
                room[k] = (uint32_t)g->prompt[k];
        for (int k = 0; k < n; k++)
                room[g->n_prompt + k] = (uint32_t)s->ids[k] | RECORD_COUNTS;
        row_document(r, room, g->n_prompt + n, !learned);
        const int own = from + g->n_prompt - learned;
        row_value(t, aim_feed(t, "member"), r, own, (float)(i + 1));
        for (int k = 0; k < f->n_feeds; k++)
                if (g->values.has[k])
                        row_value(t, t->aim.feed[k], r, own, (float)g->values.value[k][i]);
}

/* Are continuations in the rows? */
static bool aim_members(const Train *t)
{
        const ObjectiveFacts *f = aim_facts(t);
        return !f->completion || prog_io(program_find(&t->p, "step"), "objective.member");
}

static int lay_groups(Train *t, Group *g, int n_micro, int pad, Err *e)
{
        const ObjectiveFacts *f = aim_facts(t);
        const bool members = aim_members(t);
        uint32_t *room = malloc(((size_t)t->T + 1) * sizeof *room);
        int units = 0;
        if (!room)
                return err_set(e, TGC_NO_MEMORY, "no memory for a row");
        for (int m = 0; m < n_micro; m++)
                for (int b = 0; b < t->B; b++, g++) {
                        FedRow r = row_begin(t, m, b);
                        if (f->completion) {
                                row_document(&r, g->id, g->n, false);
                                row_unit(t, &r, 0, units++);
                                for (int k = 0; k < f->n_feeds; k++)
                                        if (g->values.has[k])
                                                row_value(t, t->aim.feed[k], &r, 0,
                                                          (float)g->values.value[k][0]);
                        }
                        for (int i = 0; i < f->samples && g->said && members; i++) {
                                const int from = r.at;
                                lay_said(t, &r, g, i, !f->completion, room);
                                if (!f->completion)
                                        row_unit(t, &r, from, units++);
                        }
                        row_end(&r, pad);
                }
        free(room);
        return rows_weights(t, n_micro, units, e);
}

int rows_of_groups(Train *t, const Windows *w, int64_t step, int n_micro, Err *e)
{
        const ObjectiveFacts *f = aim_facts(t);
        const int n = n_micro * t->B;
        const bool samples = step % f->every == 0;
        Group *g = calloc((size_t)n, sizeof *g);
        Ask *ask = calloc((size_t)n, sizeof *ask);
        Said *said = samples ? calloc((size_t)n * (size_t)f->samples, sizeof *said) : NULL;
        int code = g && ask && (said || !samples)
                           ? TGC_OK
                           : err_set(e, TGC_NO_MEMORY, "no memory for %d groups", n);
        for (int i = 0; i < n && !code; i++) {
                int which;
                const Source *s = windows_unit(w, step * n + i, &which);
                g[i].id = s->r.id + s->r.start[which];
                g[i].n = (int)(s->r.start[which + 1] - s->r.start[which]);
                g[i].n_prompt = prompt_length(g[i].id, g[i].n);
                if (!(g[i].prompt = malloc((size_t)g[i].n_prompt * sizeof *g[i].prompt)))
                        code = err_set(e, TGC_NO_MEMORY, "no memory for a prompt");
                for (int k = 0; k < g[i].n_prompt && !code; k++)
                        g[i].prompt[k] = (int)(g[i].id[k] & ~RECORD_COUNTS);
                ask[i] = (Ask) { g[i].prompt, g[i].n_prompt,
                                 mix64(mix64(t->state.seed ^ (uint64_t)step) + (uint64_t)i) };
        }
        const double began = clock_s();
        if (!code && samples)
                code = sample_groups(t, f, ask, n, said, e);
        const double sampled = clock_s();
        for (int i = 0; i < n && samples && !code; i++) {
                g[i].said = said + i * f->samples;
                code = judge(t, &g[i], e);
        }
        t->aim.seconds[SAMPLING] += sampled - began;
        t->aim.seconds[JUDGING] += clock_s() - sampled;
        if (!code)
                code = lay_groups(t, g, n_micro, w->pad, e);
        for (int i = 0; i < n && g; i++)
                free(g[i].prompt);
        said_free(said, n * f->samples);
        free(ask);
        free(g);
        return code;
}

int aim_sequence(const Train *t, const Records *r, int which)
{
        const int n = (int)(r->start[which + 1] - r->start[which]),
                  prompt = prompt_length(r->id + r->start[which], n);
        return prompt < 1 ? 0 : prompt + aim_facts(t)->max_tokens;
}

int aim_places(const Train *t, const Records *r, int which)
{
        const ObjectiveFacts *f = aim_facts(t);
        if (f->data == OBJECTIVE_PAIRS)
                return (int)(r->start[2 * which + 2] - r->start[2 * which]) - 2;
        const uint32_t *id = r->id + r->start[which];
        const int n = (int)(r->start[which + 1] - r->start[which]), prompt = prompt_length(id, n);
        if (prompt < 1 || (f->completion && prompt == n) || prompt + f->max_tokens > t->m.ctx)
                return 0;
        return (f->completion ? n - 1 : 0) +
               (aim_members(t) ? f->samples * (prompt + f->max_tokens - !f->completion) : 0);
}
