/* tgc.c: the public functions; each calls one of a session's. */
#include "tgc.h"
#include <stdlib.h>
#include <string.h>
#include "util/c_locale.h"
#include "batch/batch.h"
#include "session/embed_text.h"
#include "session/session.h"
#include "tokenizer/tokenizer.h"

struct Tgc {
        Plan plan;
        Session *session;
        Tokenizer *tokenizer; /* NULL: the plan has none */
        const char *serves;   /* what the session is kept by; NULL: nothing */
};

static int result(int code, const Err *e, TgcError *out)
{
        if (code && out) {
                out->status = code;
                memcpy(out->message, e->msg, sizeof out->message);
        }
        return code;
}

_Static_assert(sizeof(((Err *)0)->msg) == sizeof(((TgcError *)0)->message),
               "messages are copied whole");

/* A usage error where a pointer that would be read or written is NULL. */
static int need(const char *function, const char *name, const void *p, Err *e)
{
        return p ? TGC_OK : err_set(e, TGC_USAGE, "%s: %s is NULL", function, name);
}

#define NEED(code, p) NEED_AS(code, p, #p)
#define NEED_AS(code, p, name) ((code) ? (code) : need(__func__, name, p, &e))
/* n of them, which may be none */
#define NEED_N(code, p, n) ((code) || (n) <= 0 ? (code) : need(__func__, #p, p, &e))

/* The session's state is a batch's, or a generation's whose callback calls: nobody else may change
 * it. */
static int is_free(const Tgc *t, Err *e)
{
        return t->serves ? err_set(e, TGC_USAGE, "the plan is in use until %s", t->serves) : TGC_OK;
}

static int open_all(Tgc *t, const char *path, const TgcOptions *o, Err *e)
{
        SessionOptions so = { .device = DEV_AUTO };
        int code, kind;
        if (o) {
                kind = dev_kind(o->device ? o->device : "auto");
                if (kind < 0)
                        return err_set(e, TGC_USAGE,
                                       "unknown device '%.40s': auto, cuda, cpu or emulate",
                                       o->device);
                so.device = (DevKind)kind;
                so.dev.index = o->device_index;
                so.dev.threads = o->threads;
                so.mode = (o->infer ? SESSION_INFER : 0) | (o->train ? SESSION_TRAIN : 0);
                so.seed = o->seed;
        }
        if ((code = plan_open_copy(&t->plan, path, e)) ||
            (code = session_open(&t->session, &t->plan, &so, e)))
                return code;
        if (!session_borrows(t->session))
                plan_drop_copy(&t->plan, "weights");
        const Section *tok = plan_find(&t->plan, "tokenizer");
        return tok ? tokenizer_unpack(&t->tokenizer, tok->data, tok->size, e) : TGC_OK;
}

int tgc_open(Tgc **out, const char *path, const TgcOptions *o, TgcError *error)
{
        Err e = { 0, "" };
        int code = NEED_AS(TGC_OK, out, "t");
        if (out)
                *out = 0;
        if ((code = NEED(code, path)))
                return result(code, &e, error);
        Tgc *t = calloc(1, sizeof *t);
        locale_t was = c_locale_begin();
        code = t ? open_all(t, path, o, &e) : err_set(&e, TGC_NO_MEMORY, "no memory");
        c_locale_end(was);
        if (code)
                tgc_close(t);
        else
                *out = t;
        return result(code, &e, error);
}

void tgc_close(Tgc *t)
{
        if (!t)
                return;
        session_close(t->session);
        if (t->tokenizer)
                tokenizer_free(t->tokenizer);
        plan_close(&t->plan);
        free(t);
}

void tgc_free(void *p) { free(p); }

const char *tgc_device(const Tgc *t) { return t ? dev_name(session_device(t->session)) : NULL; }
int tgc_vocab(const Tgc *t) { return t ? session_manifest(t->session)->vocab : 0; }
int tgc_context(const Tgc *t) { return t ? session_manifest(t->session)->ctx : 0; }
int tgc_batch(const Tgc *t) { return t ? session_manifest(t->session)->batch : 0; }

/* ---- text ---- */

static int no_tokenizer(Err *e)
{
        return err_set(e, TGC_USAGE,
                       "the plan has no tokenizer: tgc compile PLAN --tokenizer FILE -o NEW adds "
                       "one");
}

int tgc_encode(Tgc *t, const char *text, size_t n, int **ids, int *n_ids, TgcError *error)
{
        Err e = { 0, "" };
        int code = NEED(NEED(NEED(TGC_OK, t), ids), n_ids);
        code = NEED_N(code, text, n);
        if (ids)
                *ids = NULL;
        if (!code)
                code = t->tokenizer ? tokenizer_encode(t->tokenizer, text, n, -1, ids, n_ids, &e)
                                    : no_tokenizer(&e);
        return result(code, &e, error);
}

size_t tgc_decode(Tgc *t, int previous, int id, char *out, size_t cap)
{
        TokStream at = { 0 };
        size_t n = 0;
        const char *s = "";
        if (!t || !out)
                return 0;
        if (t->tokenizer && previous >= 0)
                tokenizer_next(t->tokenizer, &at, previous, &n);
        if (t->tokenizer)
                s = tokenizer_next(t->tokenizer, &at, id, &n);
        n = n < cap ? n : cap;
        if (n)
                memcpy(out, s, n);
        return n;
}

int tgc_text(Tgc *t, const int *ids, int n_ids, char **text, size_t *n, TgcError *error)
{
        Err e = { 0, "" };
        int code = NEED(NEED(NEED(TGC_OK, t), text), n);
        code = NEED_N(code, ids, n_ids);
        if (text)
                *text = NULL;
        if (!code)
                code = t->tokenizer ? tokenizer_text(t->tokenizer, ids, n_ids, text, n, &e)
                                    : no_tokenizer(&e);
        return result(code, &e, error);
}

int tgc_is_end(const Tgc *t, int id)
{
        return t && t->tokenizer && tokenizer_is_eos(t->tokenizer, id);
}

/* ---- generation ---- */

TgcSampling tgc_sampling(void) { return sampling_default(); }

int tgc_reset(Tgc *t, TgcError *error)
{
        Err e = { 0, "" };
        int code = NEED(TGC_OK, t);
        code = code ? code : is_free(t, &e);
        return result(code ? code : session_reset(t->session, &e), &e, error);
}

int tgc_prompt(Tgc *t, const int *ids, int n, TgcError *error)
{
        Err e = { 0, "" };
        int code = NEED(TGC_OK, t);
        code = NEED_N(code, ids, n);
        code = code ? code : is_free(t, &e);
        return result(code ? code : session_prefill(t->session, ids, 1, n, &e), &e, error);
}

typedef struct Forward {
        TgcTokenFn *fn;
        void *user;
} Forward;

static int forward(void *user, int i, const int *token, int B)
{
        Forward *f = user;
        (void)i;
        (void)B;
        return f->fn ? f->fn(f->user, token[0]) : 0;
}

int tgc_generate(Tgc *t, const TgcSampling *h, int n, TgcTokenFn *fn, void *user, TgcError *error)
{
        Err e = { 0, "" };
        Forward f = { fn, user };
        int code = NEED(TGC_OK, t);
        code = code ? code : is_free(t, &e);
        if (!code) {
                t->serves = "tgc_generate returns";
                code = session_decode(t->session, h, n, forward, &f, &e);
                t->serves = NULL;
        }
        return result(code, &e, error);
}

/* ---- batches ---- */

struct TgcBatch {
        Tgc *of;
        Batch *b;
        BatchToken token[TGC_MAX_BATCH];
};

_Static_assert((int)TGC_MOST_TOKENS == TGC_MAX_BATCH && (int)TGC_END_CONTEXT == (int)BATCH_FULL,
               "a step's tokens");

int tgc_batch_open(TgcBatch **out, Tgc *t, TgcError *error)
{
        Err e = { 0, "" };
        int code = NEED(NEED_AS(TGC_OK, out, "b"), t);
        code = code ? code : is_free(t, &e);
        TgcBatch *b = code ? NULL : calloc(1, sizeof *b);
        if (!code)
                code = b ? batch_open(&b->b, t->session, NULL, &e)
                         : err_set(&e, TGC_NO_MEMORY, "no memory for a batch");
        if (out)
                *out = code ? NULL : b;
        if (code)
                free(b);
        else {
                b->of = t;
                t->serves = "tgc_batch_close";
        }
        return result(code, &e, error);
}

void tgc_batch_close(TgcBatch *b)
{
        if (!b)
                return;
        batch_close(b->b);
        b->of->serves = NULL;
        free(b);
}

int tgc_adapter(const Tgc *t, const char *name)
{
        const Section *s = t && name ? plan_find(&t->plan, "manifest") : NULL;
        const char *text = s ? s->data : "", *end = text + (s ? s->size : 0);
        char line[512];
        for (int i = 1; s && i <= session_manifest(t->session)->n_adapters; i++) {
                const size_t n = (size_t)snprintf(line, sizeof line, "\nmeta adapter %d %.400s\n",
                                                  i, name);
                if (memmem(text, (size_t)(end - text), line, n))
                        return i;
        }
        return 0;
}

static int how_of(const TgcSequence *q, BatchHow *how, Err *e)
{
        static const TgcSequence defaults = { .predict = -1 };
        if (!q)
                q = &defaults;
        *how = (BatchHow) { .sampling = q->sampling ? *q->sampling : sampling_default(),
                            .predict = q->predict,
                            .n_stop = q->n_stop,
                            .adapter = q->adapter };
        if (q->n_stop < 0 || q->n_stop > BATCH_STOPS)
                return err_set(e, TGC_USAGE, "%d tokens stop the sequence, the limit is %d",
                               q->n_stop, BATCH_STOPS);
        if (q->n_stop && !q->stop)
                return err_set(e, TGC_USAGE, "n_stop is %d, and stop is NULL", q->n_stop);
        if (q->n_stop)
                memcpy(how->stop, q->stop, (size_t)q->n_stop * sizeof *q->stop);
        return TGC_OK;
}

int tgc_batch_add(TgcBatch *b, const int *ids, int n, const TgcSequence *q, int *sequence,
                  TgcError *error)
{
        Err e = { 0, "" };
        BatchHow how;
        int code = NEED(NEED(TGC_OK, b), sequence);
        code = NEED_N(code, ids, n);
        code = code ? code : how_of(q, &how, &e);
        return result(code ? code : batch_add(b->b, ids, n, &how, sequence, &e), &e, error);
}

int tgc_batch_fork(TgcBatch *b, int sequence, const TgcSequence *q, int *child, TgcError *error)
{
        Err e = { 0, "" };
        BatchHow how;
        int code = NEED(NEED(TGC_OK, b), child);
        code = code ? code : how_of(q, &how, &e);
        return result(code ? code : batch_fork(b->b, sequence, &how, child, &e), &e, error);
}

int tgc_batch_drop(TgcBatch *b, int sequence, TgcError *error)
{
        Err e = { 0, "" };
        const int code = NEED(TGC_OK, b);
        return result(code ? code : batch_drop(b->b, sequence, &e), &e, error);
}

int tgc_batch_left(const TgcBatch *b) { return b ? batch_left(b->b) : 0; }

int tgc_batch_step(TgcBatch *b, TgcToken *out, int *n, TgcError *error)
{
        Err e = { 0, "" };
        int code = NEED(NEED(NEED(TGC_OK, b), out), n);
        if (code)
                return result(code, &e, error);
        code = batch_step(b->b, b->token, n, &e);
        for (int i = 0; i < *n; i++)
                out[i] = (TgcToken) { b->token[i].seq, b->token[i].token, (int)b->token[i].end,
                                      b->token[i].drawn.logprob };
        return result(code, &e, error);
}

int tgc_score(Tgc *t, const int *ids, int n, float *logits, double *nll, TgcError *error)
{
        Err e = { 0, "" };
        int code = NEED(TGC_OK, t);
        code = NEED_N(code, ids, n);
        code = code ? code : is_free(t, &e);
        return result(code ? code : session_score(t->session, ids, n, logits, nll, &e), &e, error);
}

/* ---- embedding ---- */

int tgc_width(const Tgc *t) { return t ? session_manifest(t->session)->hidden : 0; }

static int embed_ids(Tgc *t, const Sentence *how, const int *const *ids, const int *n, int n_texts,
                     float *out, Err *e)
{
        EmbedText *x = n_texts > 0 ? calloc((size_t)n_texts, sizeof *x) : NULL;
        if (!x)
                return n_texts > 0 ? err_set(e, TGC_NO_MEMORY, "no memory for %d texts", n_texts)
                                   : TGC_OK;
        int code = TGC_OK;
        for (int i = 0; i < n_texts && !code; i++) {
                x[i] = (EmbedText) { ids[i], n[i] };
                if (!ids[i] && n[i] > 0)
                        code = err_set(e, TGC_USAGE, "tgc_embed_ids: ids[%d] is NULL", i);
        }
        if (!code)
                code = session_embed(t->session, x, n_texts, how->pooling, how->unit, out, e);
        free(x);
        return code;
}

int tgc_embed_ids(Tgc *t, const int *const *ids, const int *n, int n_texts, float *out,
                  TgcError *error)
{
        Err e = { 0, "" };
        Sentence how = { 0 };
        int code = NEED(TGC_OK, t);
        code = NEED_N(NEED_N(NEED_N(code, ids, n_texts), n, n_texts), out, n_texts);
        if (!code)
                code = embed_settings(&how, &t->plan, &e);
        if (!code)
                code = embed_ids(t, &how, ids, n, n_texts, out, &e);
        sentence_free(&how);
        return result(code, &e, error);
}

static int embed_texts(Tgc *t, const Sentence *how, const char *const *text, const size_t *n,
                       int n_texts, float *out, Err *e)
{
        int code = TGC_OK, cut, most = tgc_context(t);
        int **ids = n_texts > 0 ? calloc((size_t)n_texts, sizeof *ids) : NULL,
            *k = n_texts > 0 ? calloc((size_t)n_texts, sizeof *k) : NULL;
        if (n_texts > 0 && (!ids || !k))
                code = err_set(e, TGC_NO_MEMORY, "no memory for %d texts", n_texts);
        for (int i = 0; i < n_texts && !code; i++)
                if (!text[i] && n[i])
                        code = err_set(e, TGC_USAGE, "tgc_embed: text[%d] is NULL", i);
        for (int i = 0; i < n_texts && !code; i++)
                code = embed_encode(t->tokenizer, how, most, text[i], n[i], &ids[i], &k[i], &cut,
                                    e);
        if (!code)
                code = embed_ids(t, how, (const int *const *)ids, k, n_texts, out, e);
        for (int i = 0; i < n_texts && ids; i++)
                free(ids[i]);
        free(ids);
        free(k);
        return code;
}

int tgc_embed(Tgc *t, const char *const *text, const size_t *n, int n_texts, float *out,
              TgcError *error)
{
        Err e = { 0, "" };
        Sentence how = { 0 };
        int code = NEED(TGC_OK, t);
        code = NEED_N(NEED_N(NEED_N(code, text, n_texts), n, n_texts), out, n_texts);
        if (!code)
                code = !tgc_width(t)   ? err_set(&e, TGC_USAGE,
                                                 "the plan is of a model that generates text; only "
                                                   "encoders (BERT) embed")
                       : !t->tokenizer ? no_tokenizer(&e)
                                       : embed_settings(&how, &t->plan, &e);
        if (!code)
                code = embed_texts(t, &how, text, n, n_texts, out, &e);
        sentence_free(&how);
        return result(code, &e, error);
}

/* ---- training ---- */

int tgc_train_step(Tgc *t, TgcStep *x, TgcError *error)
{
        Err e = { 0, "" };
        TrainResult r;
        int code = NEED_AS(NEED(TGC_OK, t), x, "step");
        if (!code)
                code = NEED_AS(NEED_AS(TGC_OK, x->ids, "step->ids"), x->targets, "step->targets");
        if (code)
                return result(code, &e, error);
        TrainStep in = { .B = x->batch,
                         .T = x->tokens,
                         .n_micro = x->micro,
                         .ids = x->ids,
                         .targets = x->targets,
                         .lr = x->lr,
                         .beta1 = x->beta1,
                         .beta2 = x->beta2,
                         .eps = x->eps,
                         .weight_decay = x->weight_decay,
                         .clip = x->clip,
                         .step = x->step };
        if ((code = is_free(t, &e)))
                return result(code, &e, error);
        code = session_train_step(t->session, &in, &r, &e);
        x->loss = r.loss;
        x->aux_loss = r.aux_loss;
        x->grad_norm = r.grad_norm;
        x->skipped = r.bad;
        return result(code, &e, error);
}

/* ---- parameters ---- */

int tgc_param_count(const Tgc *t) { return t ? session_manifest(t->session)->n_params : 0; }

static const Param *param(const Tgc *t, int i)
{
        const Manifest *m = t ? session_manifest(t->session) : NULL;
        return m && i >= 0 && i < m->n_params ? &m->param[i] : 0;
}

const char *tgc_param_name(const Tgc *t, int i) { return param(t, i) ? param(t, i)->name : 0; }

int tgc_param_shape(const Tgc *t, int i, int64_t dim[8], uint64_t *n)
{
        const Param *p = param(t, i);
        for (int d = 0; p && dim && d < p->n_dims; d++)
                dim[d] = p->dim[d];
        if (n)
                *n = p ? p->count : 0;
        return p ? p->n_dims : 0;
}

int tgc_param_get(Tgc *t, int i, float *data, TgcError *error)
{
        Err e = { 0, "" };
        int code = NEED(NEED(TGC_OK, t), data);
        if (!code)
                code = param(t, i) ? session_param_get(t->session, i, data, &e)
                                   : err_set(&e, TGC_USAGE, "no parameter %d; there are 0 to %d", i,
                                             tgc_param_count(t) - 1);
        return result(code, &e, error);
}

int tgc_param_set(Tgc *t, int i, const float *data, TgcError *error)
{
        Err e = { 0, "" };
        int code = NEED(NEED(TGC_OK, t), data);
        code = code ? code : is_free(t, &e);
        if (!code)
                code = param(t, i) ? session_param_set(t->session, i, data, &e)
                                   : err_set(&e, TGC_USAGE, "no parameter %d; there are 0 to %d", i,
                                             tgc_param_count(t) - 1);
        return result(code, &e, error);
}
