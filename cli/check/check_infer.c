/* check_infer.c: compares inference with the reference: logits of all tokens, logits of the next
 * token, sequences side by side, tokens that the device chooses by itself, and vectors of texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "check_impl.h"

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
        return check_result(c, a, "decode", "logits",
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
        else if (!(code = check_ids(c, B * PROMPT, seed + (uint64_t)B, &ids, e)) &&
                 !(code = session_reset(c->s, e)) &&
                 !(code = session_prefill(c->s, ids, B, PROMPT, e)) &&
                 !(code = session_decode(c->s, &greedy, SAID, keep_tokens, said, e)))
                code = session_read(c->s, prog, "logits", logits,
                                    (size_t)B * (size_t)V * sizeof *logits, e);
        for (int b = 0; b < B && !code; b++)
                for (int t = 0; t < N; t++)
                        text[b * N + t] = t < PROMPT ? ids[b * PROMPT + t]
                                                     : said[(t - PROMPT) * B + b];
        if (!code && !(code = check_consult(c, &o, ASK_TEXT, B, N, text, text, e)) &&
            oracle_output(o.o, "logits", &n)) {
                for (int b = 0; b < B && !code; b++) {
                        const Piece row = { oracle_output, "logits", ((int64_t)b * N + N - 1) * V,
                                            V, 0 };
                        Distance d;
                        code = check_compare(c, &o, &row, logits + (int64_t)b * V, &d, e);
                        if (d.ok < worst.ok || (d.ok == worst.ok && !(d.err <= worst.err)))
                                worst = d;
                }
                if (!code)
                        check_report(c, prog, "logits", worst);
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
        double scale = check_largest(want, (int64_t)n * c->m->vocab), worst = 0;
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
        Distance d = check_distance(scale > 0 ? worst / scale : worst, c->tolerance);
        int code = check_excuse(c, a, &(Piece) { oracle_output, "logits", 0, count, 0 }, &d, e);
        if (!code)
                check_report(c, "decode", what, d);
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
        if ((code = check_ids(c, *n + 1, seed, ids, e)) || !*said)
                return code;
        if ((code = session_reset(c->s, e)) || (code = session_prefill(c->s, *ids, 1, prompt, e)))
                return code;
        return session_decode(c->s, &greedy, *said, keep_token, *ids + prompt, e);
}

/* What was asked for, before anything is compared.  Of what is said the last is not given back to
 * the model. */
int check_infer(Check *c, uint64_t seed, Err *e)
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
        if (!code && !(code = check_consult(c, &o, ASK_TEXT, 1, n, ids, ids, e)))
                want = oracle_output(o.o, "logits", &count);
        if (!code && (!want || (size_t)count != elems))
                code = err_set(e, TGC_FAIL, "check: the reference gave %lld logits, %zu are needed",
                               want ? (long long)count : 0, elems);
        if (!code && session_has(c->s, "score") &&
            !(code = session_score(c->s, ids, n, logits, NULL, e)))
                code = check_result(c, &o, "score", "logits",
                                    &(Piece) { oracle_output, "logits", 0, count, 0 }, logits, e);
        if (!code)
                code = check_decode(c, &o, ids, n, logits, e);
        if (!code && said)
                code = check_choices(c, &o, ids, n, said, e);
        if (!code)
                code = check_batches(c, seed, e);
        if (!code && session_has(c->s, "mixed"))
                code = check_mixed(c, seed, e);
        asked_free(&o);
        free(logits);
        free(ids);
        return code;
}

/* ---- embedding ---- */

/* Texts of several lengths in one call, each against the reference that sees it alone. */
int check_embed(Check *c, uint64_t seed, Err *e)
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
        if (!(code = got ? check_ids(c, all, seed, &ids, e)
                         : err_set(e, TGC_NO_MEMORY, "no memory for %d vectors", all))) {
                for (int i = 0, at = 0; i < TEXTS; at += text[i++].n)
                        text[i].ids = ids + at;
                code = session_embed_tokens(c->s, text, TEXTS, got, e);
        }
        for (int i = 0; i < TEXTS && !code; row += (size_t)text[i++].n * (size_t)C) {
                const Piece whole = { oracle_output, "hidden", 0, (int64_t)text[i].n * C, 0 };
                Asked o = { 0 };
                Distance d;
                if (!(code = check_consult(c, &o, ASK_TEXT, 1, text[i].n, text[i].ids, text[i].ids,
                                           e)) &&
                    !(code = check_compare(c, &o, &whole, row, &d, e)) &&
                    (d.ok < worst.ok || (d.ok == worst.ok && !(d.err <= worst.err))))
                        worst = d;
                asked_free(&o);
        }
        if (!code)
                check_report(c, "embed", "hidden", worst);
        free(got);
        free(ids);
        return code;
}
