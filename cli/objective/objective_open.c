/* objective_open.c: opens the models and files of --objective, --reference and --embedder. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/session/embed_text.h"
#include "../load/lora.h"
#include "objective.h"

static const ObjectiveFacts *facts(const Train *t) { return objective_facts(t->aim.objective); }

/* ---- the model that embeds ---- */

static int embed(void *user, const char *const *text, const size_t *bytes, int n, float **v,
                 int *width, char *why, size_t cap)
{
        Train *t = user;
        EmbedText in[OBJECTIVE_MOST] = { { 0 } };
        int *ids[OBJECTIVE_MOST] = { 0 }, cut, code = TGC_OK;
        Err e = { 0 };
        *width = session_manifest(t->aim.embedder)->hidden;
        *v = malloc((size_t)n * (size_t)*width * sizeof **v);
        if (!*v)
                code = err_set(&e, TGC_NO_MEMORY, "no memory for %d vectors", n);
        for (int i = 0; i < n && !code; i++) {
                code = embed_encode(t->aim.embed.tok, &t->aim.how,
                                    session_manifest(t->aim.embedder)->ctx, text[i], bytes[i],
                                    &ids[i], &in[i].n, &cut, &e);
                in[i].ids = ids[i];
        }
        if (!code)
                code = session_embed(t->aim.embedder, in, n, t->aim.how.pooling, t->aim.how.unit,
                                     *v, &e);
        for (int i = 0; i < n; i++)
                free(ids[i]);
        if (code) {
                snprintf(why, cap, "%.280s", e.msg);
                free(*v);
        }
        return code;
}

static int open_embedder(Train *t, Err *e)
{
        char *model = (char *)opt_str(t->a, O_EMBEDDER);
        static const OptionId same[] = { O_DEVICE, O_GPU, O_THREADS, O_QUIET };
        Args a;
        if (!model)
                return TGC_OK;
        int code = args_parse(&a, CMD_EMBED, 1, &model, e);
        if (code)
                return code;
        for (size_t i = 0; i < sizeof same / sizeof *same; i++)
                a.v[same[i]] = t->a->v[same[i]];
        code = load(&t->aim.embed, &a, &(LoadHow) { .mode = BUILD_INFER }, e);
        args_free(&a);
        if (!code && !t->aim.embed.tok)
                code = err_set(e, TGC_USAGE, "--embedder %s: it has no tokenizer", model);
        if (!code && !(code = embed_settings(&t->aim.how, &t->aim.embed.plan, e)))
                code = open_session(&t->aim.embedder, &t->aim.embed.plan, t->a, SESSION_INFER,
                                    WEIGHTS_SEED, "embed", 1, e);
        if (!code)
                objective_embedder(t->aim.objective, embed, t);
        return code;
}

/* ---- the second model ---- */

static int open_reference(Train *t, Err *e)
{
        const ObjectiveFacts *f = facts(t);
        const bool teacher = objective_feeds(f, "teacher");
        char *model = (char *)opt_str(t->a, O_REFERENCE), path[4400];
        static const OptionId same[] = { O_DEVICE, O_GPU,  O_THREADS,   O_QUIET,      O_DTYPE,
                                         O_OPT,    O_TF32, O_OBJECTIVE, O_LUA_TIMEOUT };
        ModelKind kind;
        Args a;
        if (!model)
                return TGC_OK;
        int code = args_parse(&a, CMD_TRAIN, 1, &model, e);
        if (code)
                return code;
        for (size_t i = 0; i < sizeof same / sizeof *same; i++)
                a.v[same[i]] = t->a->v[same[i]];
        a.v[O_BATCH].i = t->B;
        a.v[O_BLOCK].i = t->T;
        code = model_kind(model, &kind, path, sizeof path, e);
        if (!code && kind == MODEL_PLAN)
                code = err_set(e, TGC_USAGE,
                               "--reference %s: a plan has no program for this; give the model, "
                               "or the folder that `tgc export` writes",
                               model);
        if (!code && (kind == MODEL_LUA || kind == MODEL_JSON))
                code = err_set(
                        e, TGC_USAGE,
                        "--reference %s: it has no weights; give a folder, a .gguf or a .bin",
                        model);
        if (!code)
                code = load(&t->aim.second, &a,
                            &(LoadHow) { .mode = BUILD_TRAIN,
                                         .bounds = t->d != NULL,
                                         .reference = teacher ? "logits" : "logp" },
                            e);
        if (!code)
                code = open_session(&t->aim.other, &t->aim.second.plan, t->a, SESSION_TRAIN,
                                    WEIGHTS_SEED, NULL, 0, e);
        a.v[O_OBJECTIVE] = (OptionValue) { 0 }; /* whose list is t->a's */
        args_free(&a);
        const int mine = session_manifest(t->s)->vocab,
                  theirs = code ? mine : session_manifest(t->aim.other)->vocab;
        if (mine != theirs)
                code = err_set(e, TGC_USAGE,
                               "--reference %s has a vocabulary of %d, the model has %d: their "
                               "tokens must be the same",
                               model, theirs, mine);
        return code;
}

/* ---- what is asked for must be there ---- */

static int check_options(const Train *t, Err *e)
{
        static const OptionId rows[] = { O_LONG, O_PACKING, O_PAD_TO, O_LOSS },
                              val[] = { O_VAL_DATA, O_EVAL_ITERS };
        const ObjectiveData data = facts(t)->data;
        const char *spec = t->a->v[O_OBJECTIVE].list[0];
        for (size_t i = 0; i < sizeof rows / sizeof *rows && data; i++)
                if (opt_set(t->given, rows[i]))
                        return err_set(
                                e, TGC_USAGE,
                                "--%s has no effect: --objective %.200s says what is in a row",
                                option_info[rows[i]].name, spec);
        for (size_t i = 0; i < sizeof val / sizeof *val && data == OBJECTIVE_PROMPTS; i++)
                if (opt_set(t->given, val[i]) || t->given->v[val[i]].n)
                        return err_set(e, TGC_USAGE,
                                       "--%s has no effect: there is no validation of texts that "
                                       "--objective %.200s samples",
                                       option_info[val[i]].name, spec);
        return TGC_OK;
}

static int check_needs(const Train *t, Err *e)
{
        const ObjectiveFacts *f = facts(t);
        const char *spec = t->a->v[O_OBJECTIVE].list[0];
        const bool frozen = objective_feeds(f, "reference"),
                   teacher = objective_feeds(f, "teacher");
        if (frozen && teacher)
                return err_set(e, TGC_USAGE,
                               "--objective %.200s reads both `reference` and `teacher`, and one "
                               "model cannot be both",
                               spec);
        if (teacher && !opt_str(t->a, O_REFERENCE))
                return err_set(e, TGC_USAGE,
                               "--objective %.200s needs a teacher: --reference "
                               "MODEL",
                               spec);
        if (frozen && !opt_str(t->a, O_REFERENCE) && !t->a->v[O_LORA].n)
                return err_set(e, TGC_USAGE,
                               "--objective %.200s needs the frozen model: with --lora that is "
                               "the base beneath the adapter, else --reference MODEL",
                               spec);
        if (!frozen && !teacher && opt_str(t->a, O_REFERENCE))
                return err_set(e, TGC_USAGE,
                               "--reference has no effect: --objective %.200s reads neither "
                               "`reference` nor `teacher`",
                               spec);
        if (f->data && !t->records)
                return err_set(e, TGC_USAGE, "--objective %.200s learns from %s: --data FILE.jsonl",
                               spec,
                               f->data == OBJECTIVE_PAIRS ? "records of prompt, chosen and rejected"
                                                          : "records with a prompt");
        for (int i = 0; f->data && i < t->data.n; i++)
                if (!t->data.source[i].records)
                        return err_set(e, TGC_USAGE,
                                       "%s: --objective %.200s learns from .jsonl alone",
                                       t->data.source[i].name, spec);
        if (f->data == OBJECTIVE_PROMPTS && f->updates > 1 &&
            (opt_int(t->a, O_EVAL_INTERVAL) % f->updates ||
             opt_int(t->a, O_MAX_ITERS) % f->updates))
                return err_set(e, TGC_USAGE,
                               "--objective %.200s: updates=%d steps learn from the same samples, "
                               "which are not saved: --eval_interval and --max_iters are multiples "
                               "of it",
                               spec, f->updates);
        return TGC_OK;
}

int aim_open(Train *t, Err *e)
{
        const OptionValue *v = &t->a->v[O_OBJECTIVE];
        t->aim.rows_of = -1;
        if (!v->n && (opt_str(t->a, O_REFERENCE) || opt_str(t->a, O_EMBEDDER)))
                return err_set(e, TGC_USAGE, "--%s has no effect: it goes with --objective",
                               opt_str(t->a, O_REFERENCE) ? "reference" : "embedder");
        if (!v->n)
                return TGC_OK;
        int code = objective_load(&t->aim.objective, v->list[0], opt_num(t->a, O_LUA_TIMEOUT), e);
        if (code || (code = check_options(t, e)))
                return code;
        return check_needs(t, e);
}

/* Sequences that are sampled together; 0: none are. */
int aim_sequences(const Train *t)
{
        enum { MOST = 64 };
        if (!t->aim.objective || facts(t)->data != OBJECTIVE_PROMPTS)
                return 0;
        const int b = opt_int(t->a, O_BATCH) ? opt_int(t->a, O_BATCH) : 8,
                  n = b * facts(t)->samples;
        return n < 2 ? 2 : n < MOST ? n : MOST;
}

int aim_ready(Train *t, Err *e)
{
        if (!t->aim.objective)
                return TGC_OK;
        const ObjectiveFacts *f = facts(t);
        const size_t n = (size_t)t->n_micro * (size_t)t->B * (size_t)t->T;
        int code = open_reference(t, e);
        if (!code && f->data && !t->d)
                code = err_set(e, TGC_USAGE,
                               "--objective %.200s puts several texts in a row, which needs a "
                               "model with documents, and this one has none",
                               t->a->v[O_OBJECTIVE].list[0]);
        if (!code && f->data == OBJECTIVE_PROMPTS && !session_has(t->s, "decode"))
                code = err_set(e, TGC_USAGE,
                               "--objective %.200s samples texts, and this model cannot generate "
                               "any",
                               t->a->v[O_OBJECTIVE].list[0]);
        if (!code)
                code = open_embedder(t, e);
        for (int i = 0; i < f->n_feeds && !code; i++) {
                const size_t each = strcmp(f->feed[i], "teacher")
                                            ? 1
                                            : (size_t)session_manifest(t->s)->vocab;
                snprintf(t->aim.name[i], sizeof t->aim.name[i], "objective.%.60s", f->feed[i]);
                t->aim.feed[i] = calloc(n * each, sizeof *t->aim.feed[i]);
                t->aim.feeds[i] = (Feed) { t->aim.name[i], t->aim.feed[i], each };
                if (!t->aim.feed[i])
                        code = err_set(e, TGC_NO_MEMORY,
                                       "no memory for %zu numbers of objective.%.60s", n * each,
                                       f->feed[i]);
        }
        if (!code && !(t->aim.unit = malloc(n * sizeof *t->aim.unit)))
                code = err_set(e, TGC_NO_MEMORY, "no memory for batches of %zu tokens", n);
        t->aim.end_of_turn = !code && t->l.tok && t->chat.plain
                                     ? chat_end_of_turn(&t->chat, t->l.tok)
                                     : -1;
        return code;
}

void aim_close(Train *t)
{
        objective_close(t->aim.objective);
        session_close(t->aim.other);
        session_close(t->aim.embedder);
        sentence_free(&t->aim.how);
        loaded_free(&t->aim.second);
        loaded_free(&t->aim.embed);
        for (int i = 0; i < OBJECTIVE_FEEDS; i++)
                free(t->aim.feed[i]);
        free(t->aim.unit);
}
