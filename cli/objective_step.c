/* objective_step.c: what an objective needs of a step: rows of pairs or of groups, log-probabilities by
 * the weights that are there and by the frozen ones, the teacher's logits, and what Lua says of texts.
 *
 * The frozen model is the one that is trained with its adapters off: their second factors are zeros
 * for the length of a pass, and no weight is there twice.  Without adapters it is --reference MODEL. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../runtime/session/embed_text.h"
#include "objective.h"

enum { SAMPLING, JUDGING, LOG_P }; /* of Aim.seconds */

static const ObjectiveFacts *facts(const Train *t) { return objective_facts(t->aim.objective); }

static int feed_of(const Train *t, const char *name)
{
        const ObjectiveFacts *f = facts(t);
        for (int i = 0; i < f->n_feeds; i++)
                if (!strcmp(f->feed[i], name))
                        return i;
        return -1;
}

static float *feed(const Train *t, const char *name)
{
        const int i = feed_of(t, name);
        return i < 0 ? NULL : t->aim.feed[i];
}

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
        float *teacher = feed(t, "teacher"), *old = feed(t, "old"),
              *reference = feed(t, "reference");
        const size_t V = (size_t)session_manifest(t->s)->vocab;
        int code = TGC_OK;
        for (int m = 0; m < in->n_micro && teacher && !code; m++)
                code = output_of(t, t->aim.other, "reference", "logits", in, m, V, teacher, e);
        if (!code && old)
                code = own_logp(t, in, old, e);
        return !code && reference ? frozen_logp(t, in, reference, e) : code;
}

/* ---- rows ---- */

static FedRow row_of(const Train *t, int micro, int b)
{
        const size_t at = ((size_t)micro * (size_t)t->B + (size_t)b) * (size_t)t->T;
        return (FedRow) { t->x + at, t->y + at, t->d + 2 * at, 0, t->T };
}

/* Places from .. upto of a row belong to a unit where they count. */
static void set_unit(const Train *t, const FedRow *r, int from, int unit)
{
        for (int i = from; i < r->at; i++)
                if (r->targets[i] >= 0)
                        t->aim.unit[r->targets + i - t->y] = unit;
}

/* weight: the mean over units of the means over their tokens is the sum of weight x over the tokens
 * that count. */
static void set_weights(const Train *t, int n_micro, int units)
{
        const size_t n = (size_t)n_micro * (size_t)t->B * (size_t)t->T;
        float *weight = feed(t, "weight");
        int *of = calloc((size_t)units + 1, sizeof *of), counted = 0, met = 0;
        for (size_t i = 0; i < n && of; i++)
                if (t->aim.unit[i] >= 0) {
                        met += !of[t->aim.unit[i]]++;
                        counted++;
                }
        for (size_t i = 0; i < n && of && weight; i++)
                weight[i] = t->aim.unit[i] < 0
                                    ? 0
                                    : (float)((double)counted / met / of[t->aim.unit[i]]);
        free(of);
}

static void fill_value(const Train *t, float *v, const FedRow *r, int from, float x)
{
        for (int i = from; v && i < r->at; i++)
                v[r->targets + i - t->y] = x;
}

/* A row: the chosen answer behind its prompt, and the rejected one. */
static int fill_pairs(Train *t, const Windows *w, int64_t step, int n_micro, Err *e)
{
        float *side = feed(t, "side");
        int units = 0;
        (void)e;
        for (int m = 0; m < n_micro; m++)
                for (int b = 0; b < t->B; b++) {
                        FedRow r = row_of(t, m, b);
                        int which;
                        const Source *s = windows_unit(w, (step * n_micro + m) * t->B + b, &which);
                        for (int k = 0; k < 2 && s; k++) {
                                const uint64_t *start = s->r.start + 2 * which + k;
                                const int from = row_document(&r, s->r.id + start[0],
                                                              (int)(start[1] - start[0]), false);
                                set_unit(t, &r, from, units);
                                for (int i = from; side && i < r.at; i++)
                                        side[r.targets + i - t->y] = r.targets[i] < 0 ? 0
                                                                     : k              ? -1.f
                                                                                      : 1.f;
                        }
                        units += s != NULL;
                        row_end(&r, w->pad);
                }
        set_weights(t, n_micro, units);
        return TGC_OK;
}

/* ---- groups ---- */

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
        const ObjectiveFacts *f = facts(t);
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
        const ObjectiveFacts *f = facts(t);
        const Said *s = &g->said[i];
        const int n = learned ? s->n : s->n - s->ended, from = r->at;
        for (int k = 0; k < g->n_prompt; k++)
                room[k] = (uint32_t)g->prompt[k];
        for (int k = 0; k < n; k++)
                room[g->n_prompt + k] = (uint32_t)s->ids[k] | RECORD_COUNTS;
        row_document(r, room, g->n_prompt + n, !learned);
        const int own = from + g->n_prompt - learned;
        fill_value(t, feed(t, "member"), r, own, (float)(i + 1));
        for (int k = 0; k < f->n_feeds; k++)
                if (g->values.has[k])
                        fill_value(t, t->aim.feed[k], r, own, (float)g->values.value[k][i]);
}

static int lay_groups(Train *t, Group *g, int n_micro, int pad, Err *e)
{
        const ObjectiveFacts *f = facts(t);
        const bool members = aim_members(t);
        uint32_t *room = malloc(((size_t)t->T + 1) * sizeof *room);
        int units = 0;
        if (!room)
                return err_set(e, TGC_NO_MEMORY, "no memory for a row");
        for (int m = 0; m < n_micro; m++)
                for (int b = 0; b < t->B; b++, g++) {
                        FedRow r = row_of(t, m, b);
                        if (f->completion) {
                                row_document(&r, g->id, g->n, false);
                                set_unit(t, &r, 0, units++);
                                for (int k = 0; k < f->n_feeds; k++)
                                        if (g->values.has[k])
                                                fill_value(t, t->aim.feed[k], &r, 0,
                                                           (float)g->values.value[k][0]);
                        }
                        for (int i = 0; i < f->samples && g->said && members; i++) {
                                const int from = r.at;
                                lay_said(t, &r, g, i, !f->completion, room);
                                if (!f->completion)
                                        set_unit(t, &r, from, units++);
                        }
                        row_end(&r, pad);
                }
        free(room);
        set_weights(t, n_micro, units);
        return TGC_OK;
}

static int fill_groups(Train *t, const Windows *w, int64_t step, int n_micro, Err *e)
{
        const ObjectiveFacts *f = facts(t);
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

/* ---- a step ---- */

int aim_places(const Train *t, const Records *r, int which)
{
        const ObjectiveFacts *f = facts(t);
        if (f->data == OBJECTIVE_PAIRS)
                return (int)(r->start[2 * which + 2] - r->start[2 * which]) - 2;
        const uint32_t *id = r->id + r->start[which];
        const int n = (int)(r->start[which + 1] - r->start[which]), prompt = prompt_length(id, n);
        if (prompt < 1 || (f->completion && prompt == n) ||
            prompt + f->max_tokens > session_manifest(t->s)->ctx)
                return 0;
        return (f->completion ? n - 1 : 0) +
               (aim_members(t) ? f->samples * (prompt + f->max_tokens - !f->completion) : 0);
}

bool aim_drives(const Train *t)
{
        return t->aim.objective && (facts(t)->data || facts(t)->n_feeds);
}

int aim_feeds(const Train *t, int micro, Feed *feed)
{
        const int n = aim_drives(t) ? facts(t)->n_feeds : 0;
        for (int i = 0; i < n; i++) {
                feed[i] = t->aim.feeds[i];
                feed[i].v += (size_t)micro * (size_t)t->B * (size_t)t->T * feed[i].each;
        }
        return n;
}

bool aim_members(const Train *t)
{
        const ObjectiveFacts *f = facts(t);
        return !f->completion ||
               prog_io(program_find(session_program(t->s), "step"), "objective.member");
}

void aim_report(const Train *t, double seconds)
{
        const double *s = t->aim.seconds, rest = seconds - s[SAMPLING] - s[JUDGING] - s[LOG_P];
        if (t->aim.objective && facts(t)->data == OBJECTIVE_PROMPTS && seconds > 0)
                say(&t->talk,
                    "time: sampling %.0f%%, judging %.0f%%, log-probabilities %.0f%%, steps %.0f%%\n",
                    100 * s[SAMPLING] / seconds, 100 * s[JUDGING] / seconds,
                    100 * s[LOG_P] / seconds, 100 * rest / seconds);
}

bool aim_between(const Train *t, int64_t step)
{
        return !t->aim.objective || facts(t)->data != OBJECTIVE_PROMPTS ||
               step % facts(t)->updates == 0;
}

int aim_fill(Train *t, const Windows *w, int64_t step, int n_micro, TrainStep *in, Err *e)
{
        const ObjectiveFacts *f = facts(t);
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
                code = fill_pairs(t, w, step, n_micro, e);
        else if (f->data == OBJECTIVE_PROMPTS)
                code = fill_groups(t, w, step, n_micro, e);
        TrainStep rows = *in;
        rows.B = t->B;
        rows.T = t->T;
        rows.n_micro = n_micro;
        const double began = clock_s();
        code = code ? code : run_rows(t, &rows, e);
        t->aim.seconds[LOG_P] += clock_s() - began;
        return code;
}
