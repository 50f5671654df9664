/* load.c: gives a command its PLAN argument: maps a plan file, or compiles a MODEL. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/plan/manifest.h"
#include "gguf_model.h"
#include "load_impl.h"

int manifest_word(const Plan *p, const char *key, char *out, size_t cap)
{
        const Section *s = plan_find(p, "manifest");
        const char *at = s ? s->data : "", *end = at + (s ? s->size : 0);
        size_t len = strlen(key);
        while (at < end) {
                const char *eol = memchr(at, '\n', (size_t)(end - at));
                size_t n = (size_t)((eol ? eol : end) - at);
                if (n > len && !memcmp(at, key, len) && at[len] == ' ') {
                        snprintf(out, cap, "%.*s", (int)(n - len - 1), at + len + 1);
                        return 1;
                }
                at += n + 1;
        }
        return 0;
}

static int check_batch(const Args *a, const Plan *p, const char *path, Err *e)
{
        char batch[32];
        if (!opt_set(a, O_BATCH) || !manifest_word(p, "batch", batch, sizeof batch) ||
            opt_int(a, O_BATCH) <= atoi(batch))
                return TGC_OK;
        return err_set(e, TGC_USAGE, "--batch-size %d: %s was compiled for %s", opt_int(a, O_BATCH),
                       path, batch);
}

/* Were the same parameters laid out in the same way? */
static int same_layout(const Plan *a, const Plan *b, Err *e)
{
        const Section *s = plan_find(a, "manifest"), *t = plan_find(b, "manifest");
        Manifest m, n;
        int code;
        if (!s || !t)
                return err_set(e, TGC_BAD_FILE,
                               "the plan has no manifest: compile the model again");
        if ((code = manifest_parse(&m, s->data, s->size, e)))
                return code;
        if (!(code = manifest_parse(&n, t->data, t->size, e))) {
                bool same = m.n_all == n.n_all && m.n_params == n.n_params && m.dtype == n.dtype;
                for (int i = 0; same && i < m.n_params; i++) {
                        const Param *p = &m.param[i], *q = &n.param[i];
                        same = !strcmp(p->name, q->name) && p->offset == q->offset &&
                               p->blocks == q->blocks && p->n_dims == q->n_dims &&
                               !memcmp(p->dim, q->dim, (size_t)p->n_dims * sizeof *p->dim);
                }
                if (!same)
                        code = err_set(
                                e, TGC_BAD_FILE,
                                "the plan's weights do not lie where its graph puts them; it was "
                                "compiled by another tgc, or changed: compile the model again");
                manifest_free(&n);
        }
        manifest_free(&m);
        return code;
}

static int rebuild(Loaded *l, const char *path, Err *e)
{
        Err why;
        l->given = l->plan;
        l->plan = (Plan) { 0 };
        int code = plan_rebuild(&l->plan, &l->given, &why);
        if (!code && plan_find(&l->given, "weights"))
                code = same_layout(&l->given, &l->plan, &why);
        return code ? err_set(e, code, "%s: --rebuild: %s", path, why.msg) : TGC_OK;
}

static int load_plan(Loaded *l, const Args *a, const char *path, const LoadHow *how, Err *e)
{
        const Section *s;
        char vocab[32] = "0";
        int code = plan_open(&l->plan, path, e);
        if (code || (opt_flag(a, O_REBUILD) && (code = rebuild(l, path, e))) ||
            (code = check_batch(a, &l->plan, path, e)))
                return code;
        (void)how;
        manifest_word(&l->plan, "vocab", vocab, sizeof vocab);
        if (!l->tok && opt_str(a, O_TOKENIZER) &&
            (code = tokenizer_for(&l->tok, opt_str(a, O_TOKENIZER), path, MODEL_PLAN, atoi(vocab),
                                  e)))
                return code;
        if (l->tok) { /* what is written of the plan has it too */
                model_files_drop_tokenizer(&l->plan);
                if (opt_str(a, O_TOKENIZER) &&
                    (code = plan_add_chat_beside(&l->plan, opt_str(a, O_TOKENIZER), path,
                                                 MODEL_PLAN, e)))
                        return code;
                return plan_add_tokenizer(&l->plan, l->tok, e);
        }
        if ((s = plan_find(&l->plan, "tokenizer")))
                code = tokenizer_unpack(&l->tok, s->data, s->size, e);
        return code;
}

static int load_model(Loaded *l, const Args *a, const char *path, const LoadHow *how, Err *e)
{
        GgufModel g = { 0 };
        int code = l->kind == MODEL_GGUF ? gguf_model(&g, path, opt_str(a, O_MODEL_FILE), e)
                                         : TGC_OK;
        if (!code)
                code = load_compiled(l, a, path, how, &g, e);
        gguf_model_free(&g);
        return code;
}

/* Encoders embed, the others do everything else. */
static int check_kind(const Loaded *l, const Args *a, Err *e)
{
        enum { SAYS = ON_SAY | ON_EVAL | ON_TRAIN | ON_BENCH | ON_TUNE };
        char word[32];
        const bool encoder = manifest_word(&l->plan, "hidden", word, sizeof word);
        if (encoder && SAYS >> a->cmd & 1)
                return err_set(e, TGC_USAGE,
                               "%s: %s is an encoder, whose tokens see those behind them, so it "
                               "makes no text; `tgc embed %s -p TEXT` makes vectors",
                               command_info[a->cmd].name, a->pos[0], a->pos[0]);
        if (!encoder && a->cmd == CMD_EMBED)
                return err_set(e, TGC_USAGE,
                               "embed: %s generates text, and only encoders (BERT, MiniLM, "
                               "RoBERTa) make vectors; `tgc run %s -p TEXT` goes on with a text",
                               a->pos[0], a->pos[0]);
        return TGC_OK;
}

int load(Loaded *l, const Args *a, const LoadHow *how, Err *e)
{
        char path[4400];
        double start = clock_s();
        *l = (Loaded) { .tok = how->tok };
        int code = model_kind(a->pos[0], &l->kind, path, sizeof path, e);
        if (!code && l->kind == MODEL_HF)
                code = folder_model(path, &l->own, e);
        if (!code)
                code = l->kind == MODEL_PLAN ? load_plan(l, a, path, how, e)
                                             : load_model(l, a, path, how, e);
        l->seconds = clock_s() - start;
        if (!code)
                code = check_kind(l, a, e);
        if (code)
                loaded_free(l);
        return code;
}

void loaded_free(Loaded *l)
{
        tokenizer_free(l->tok);
        plan_close(&l->plan);
        plan_close(&l->given);
        free(l->weights);
        free(l->own);
        *l = (Loaded) { 0 };
}
