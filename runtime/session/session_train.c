/* session_train.c: optimiser steps, and the loss of a batch.
 *
 * `loss` of a micro-step is the mean over its own counted targets.  The step's loss is their mean
 * weighted by share, so that four micro-batches equal one batch.  If the objective has more terms
 * and the model also gives the cross-entropy (`ce`), `ce` is reported, so that runs and validations
 * with and without the terms can be compared.
 *
 * Two steps may be in flight: the host queues the next step before it reads the numbers of the
 * last, so that a GPU with short steps never waits for the host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../weights/ck_tensor.h"
#include "session_impl.h"

/* Each step under way has its own slots of device.h: a ring of pairs for the
 * micro-steps, two for the update. */
enum { RING = TRAIN_RING, SLOT_NORM = 2 * RING, SLOT_BAD, SLOTS };
_Static_assert((int)SLOTS *N_FLIGHTS <= (int)DEV_FETCH_SLOTS, "slots");

static uint64_t count_targets(const int *t, size_t n)
{
        uint64_t counted = 0;
        for (size_t i = 0; i < n; i++)
                counted += t[i] >= 0;
        return counted;
}

/* Kernels read keys from where documents say. */
static int check_documents(const int *d, size_t n, int T, Err *e)
{
        for (size_t i = 0; d && i < n; i++) {
                const int t = (int)(i % (size_t)T);
                if (d[2 * i] < 0 || d[2 * i] > t || d[2 * i + 1] <= t || d[2 * i + 1] > T)
                        return err_set(e, TGC_USAGE,
                                       "token %d of a row: its document is %d to %d, which must "
                                       "hold the token and lie within 0 to %d",
                                       t, d[2 * i], d[2 * i + 1], T);
        }
        return TGC_OK;
}

static int check_batch(const Session *s, const int *ids, const int *targets, size_t n, Err *e)
{
        for (size_t i = 0; i < n; i++)
                if (ids[i] < 0 || ids[i] >= s->m.vocab || targets[i] >= s->m.vocab)
                        return err_set(e, TGC_USAGE, "token %d is outside the vocabulary of %d",
                                       targets[i] >= s->m.vocab ? targets[i] : ids[i], s->m.vocab);
        return TGC_OK;
}

/* Queue reading one float or int, aside of the kernels or in turn; absent io reads as 0. */
static int fetch_io(Session *s, const char *prog, const char *io, int slot, bool aside,
                    bool *present, Err *e)
{
        const Io *x;
        void *mem;
        size_t bytes;
        *present = prog_io(program_find(&s->p, prog), io) != 0;
        if (!*present)
                return TGC_OK;
        int code = find_io(s, prog, io, &x, &mem, &bytes, e);
        if (!code && bytes < 4)
                code = err_set(e, TGC_BAD_FILE,
                               "program %s: io %s has %zu bytes, and 4 are needed: compile the "
                               "model again",
                               prog, io, bytes);
        return code ? code : dev_fetch(s->d, slot, mem, 4, aside, e);
}

static const char *loss_io(const Session *s, const char *prog)
{
        return prog_io(program_find(&s->p, prog), "ce") ? "ce" : "loss";
}

static int take_float(Session *s, int slot, bool present, float *x, Err *e)
{
        *x = 0;
        return present ? dev_fetched(s->d, slot, x, sizeof *x, e) : TGC_OK;
}

/* What the next step (place 0) or update (1) reads of the host is uploaded beside the kernels that
 * still run: the step's beside the last update's, the update's beside the step's. */
static int upload_ahead(Session *s, int place, void *to, const void *from, size_t n, Err *e)
{
        int code = s->passed[place] ? TGC_OK : dev_passed(s->d, place, e);
        s->passed[place] = true;
        return code ? code : dev_upload_ahead(s->d, place, to, from, n, e);
}

static int upload_rt(Session *s, int place, Err *e)
{
        s->rt_changed[place] = false;
        return upload_ahead(s, place, s->rt_mem[place], &s->rt, sizeof s->rt, e);
}

void session_documents(const Session *s, const int *ids, int B, int T, int *out)
{
        for (int b = 0; b < B; b++, ids += T, out += 2 * T)
                for (int begin = 0, end; begin < T; begin = end) {
                        for (end = begin + 1; end < T && ids[end] != s->m.documents; end++)
                                ;
                        for (int t = begin; t < end; t++)
                                out[2 * t] = begin, out[2 * t + 1] = end;
                }
}

typedef int Write(Session *s, const char *prog, const char *io, const void *data, size_t bytes,
                  Err *e);

/* given: what the caller says of them; NULL: by the ids */
static int give_documents(Session *s, const char *prog, const int *ids, const int *given, int B,
                          int T, Write *give, Err *e)
{
        size_t n = (size_t)B * (size_t)T * 2;
        int *d, code;
        if (!prog_io(program_find(&s->p, prog), "documents"))
                return TGC_OK;
        if (given)
                return give(s, prog, "documents", given, n * sizeof *given, e);
        if (!(d = malloc(n * sizeof *d)))
                return err_set(e, TGC_NO_MEMORY, "no memory for the documents of %d x %d tokens", B,
                               T);
        session_documents(s, ids, B, T, d);
        code = give(s, prog, "documents", d, n * sizeof *d, e);
        free(d);
        return code;
}

int session_write_documents(Session *s, const char *prog, const int *ids, int B, int T, Err *e)
{
        return give_documents(s, prog, ids, NULL, B, T, session_write, e);
}

static int write_ahead(Session *s, const char *prog, const char *io, const void *data, size_t bytes,
                       Err *e)
{
        void *mem;
        int code = io_at(s, prog, io, bytes, &mem, e);
        return code ? code : upload_ahead(s, 0, mem, data, bytes, e);
}

/* Micro-step m of what the program reads beside ids. */
static int give_feeds(Session *s, const char *prog, const TrainStep *in, int m, Write *give, Err *e)
{
        const Prog *g = program_find(&s->p, prog);
        const size_t n = (size_t)in->B * (size_t)in->T;
        int code = TGC_OK;
        for (int k = 0; g && k < g->n_io && !code; k++) {
                const Feed *f = NULL;
                if (strncmp(g->io[k].name, "objective.", 10))
                        continue;
                for (int i = 0; i < in->n_feeds && !f; i++)
                        f = strcmp(in->feed[i].name, g->io[k].name) ? NULL : &in->feed[i];
                const size_t most = (size_t)expr_eval(g->io[k].shape, g->B, g->T);
                if (!f || n * f->each > most || most != (size_t)g->B * (size_t)g->T * f->each)
                        return err_set(e, TGC_USAGE,
                                       "program %s reads %.60s, and nothing of its size was given: "
                                       "it was compiled for an objective (tgc train --objective)",
                                       prog, g->io[k].name);
                code = give(s, prog, f->name, f->v + (size_t)m * n * f->each,
                            n * f->each * sizeof *f->v, e);
        }
        return code;
}

static int give_batch(Session *s, const char *prog, const TrainStep *in, int m, Write *give, Err *e)
{
        const Prog *g = program_find(&s->p, prog);
        const size_t n = (size_t)in->B * (size_t)in->T, at = (size_t)m * n;
        int code = give(s, prog, "ids", in->ids + at, n * sizeof *in->ids, e);
        if (!code && (!g || prog_io(g, "targets") || !strcmp(prog, "step")))
                code = give(s, prog, "targets", in->targets + at, n * sizeof *in->targets, e);
        if (!code)
                code = give_documents(s, prog, in->ids + at,
                                      in->documents ? in->documents + 2 * at : NULL, in->B, in->T,
                                      give, e);
        return code ? code : give_feeds(s, prog, in, m, give, e);
}

static int slot_of(const Session *s, const Flight *f, int k)
{
        return (int)(f - s->flight) * SLOTS + k;
}

static int take_micro(Session *s, Flight *f, int m, Err *e)
{
        float loss, aux, share = f->share[m % RING];
        int slot = slot_of(s, f, m % RING * 2), code = take_float(s, slot, f->has_loss, &loss, e);
        if (code || (code = take_float(s, slot + 1, f->has_aux, &aux, e)))
                return code;
        f->loss += share > 0 ? (double)share * loss : 0;
        f->aux_loss += share > 0 ? (double)share * aux : 0;
        return TGC_OK;
}

static int queue_micro(Session *s, Flight *f, const TrainStep *in, int m, Err *e)
{
        size_t n = (size_t)in->B * in->T;
        uint64_t counted = count_targets(in->targets + m * n, n);
        int slot = slot_of(s, f, m % RING * 2), code;

        s->rt.B = in->B;
        s->rt.T = in->T;
        s->rt.micro = m;
        f->share[m % RING] = (float)((double)counted / (double)f->tokens);
        s->rt.share = (float)(f->share[m % RING] * f->scale);
        s->rt.inv_tokens = counted ? (float)(1.0 / (double)counted) : 0.f;
        session_rt_changed(s);
        if ((code = give_batch(s, "step", in, m, write_ahead, e)) || (code = upload_rt(s, 0, e)) ||
            (code = dev_join(s->d, e)) || (code = session_run(s, "step", in->B, in->T, e)) ||
            (in->n_micro > 1 && program_find(&s->p, "add_grads") &&
             (code = session_run(s, "add_grads", 1, 1, e))) ||
            (code = dev_passed(s->d, 0, e)) ||
            (code = fetch_io(s, "step", loss_io(s, "step"), slot, true, &f->has_loss, e)))
                return code;
        s->passed[0] = true;
        return fetch_io(s, "step", "aux_loss", slot + 1, true, &f->has_aux, e);
}

/* A micro-step's losses lie in `act`, where every program has its values: the next one to write
 * there waits for this. */
static int settle_micro(Session *s, Flight *f, int m, Err *e)
{
        return dev_settle(s->d, slot_of(s, f, m % RING * 2 + (f->has_aux ? 1 : 0)), e);
}

static bool uses_act(const Session *s, const Prog *g)
{
        int act = program_arena(&s->p, "act");
        for (int r = 0; r < g->n_run; r++)
                for (int i = 0; i < s->p.kernel[g->run[r].kernel].n_args; i++)
                        if (g->run[r].arg[i].arena == act)
                                return true;
        return false;
}

/* Norm and flag have places of their own, unless the update has something in `act`: they are read
 * aside, and the next update waits for that. */
static int queue_update(Session *s, Flight *f, Err *e)
{
        const Prog *g = 0;
        const Flight *last = &s->flight[(f - s->flight + N_FLIGHTS - 1) % N_FLIGHTS];
        int code = find_prog(s, "update", &g, e), micro = f->n_micro - 1;
        if (code)
                return code;
        bool act = uses_act(s, g);
        if ((code = dev_settle(s->d, slot_of(s, last, last->has_bad ? SLOT_BAD : SLOT_NORM), e)) ||
            (act && (code = settle_micro(s, f, micro, e))))
                return code;
        if ((code = upload_rt(s, 1, e)) || (code = dev_join(s->d, e)) ||
            (code = session_run(s, "update", 1, 1, e)) || (code = dev_passed(s->d, 1, e)) ||
            (!act && (code = settle_micro(s, f, micro, e))) ||
            (code = fetch_io(s, "update", "grad_norm", slot_of(s, f, SLOT_NORM), !act, &f->has_norm,
                             e)))
                return code;
        s->passed[0] = s->passed[0] && !act;
        s->passed[1] = true;
        return fetch_io(s, "update", "bad", slot_of(s, f, SLOT_BAD), !act, &f->has_bad, e);
}

static void set_optimiser(Session *s, const TrainStep *in)
{
        Rt *rt = &s->rt;
        memset(rt->pos, 0, sizeof rt->pos);
        rt->step = in->step;
        rt->n_micro = in->n_micro;
        rt->lr = (float)in->lr;
        rt->beta1 = (float)in->beta1;
        rt->beta2 = (float)in->beta2;
        rt->eps = (float)in->eps;
        rt->weight_decay = (float)in->weight_decay;
        rt->clip = (float)in->clip;
        rt->most_norm = (float)in->most_norm;
        rt->ema_weight = (float)in->ema;
        rt->unscale = in->scale > 0 ? (float)(1 / in->scale) : 1;
        rt->bias1 = (float)(1 - pow(in->beta1, in->step - in->skipped + 1.0));
        rt->bias2 = (float)(1 - pow(in->beta2, in->step - in->skipped + 1.0));
        set_seed(s, s->seed);
}

int session_train_begin(Session *s, const TrainStep *in, Err *e)
{
        /* its window need not fit the context of what is run */
        const Prog *step = program_find(&s->p, "step");
        int code;

        if (!(s->mode & SESSION_TRAIN) || !step)
                return err_set(
                        e, TGC_USAGE,
                        "this session was opened for inference only: open the plan for training");
        if (in->B < 1 || in->T < 1 || in->n_micro < 1 || in->step < 0 || in->skipped < 0 ||
            in->skipped > in->step || in->B > step->B || in->T > step->T)
                return err_set(e, TGC_USAGE,
                               "a batch of %d x %d tokens, %d times: the plan takes up to %d x %d",
                               in->B, in->T, in->n_micro, step->B, step->T);
        if (s->n_flights == N_FLIGHTS)
                return err_set(e, TGC_USAGE, "%d steps are under way already: end one first",
                               N_FLIGHTS);
        size_t n = (size_t)in->n_micro * in->B * in->T;
        if ((code = check_batch(s, in->ids, in->targets, n, e)) ||
            (code = check_documents(in->documents, n, in->T, e)))
                return code;
        Flight *f = &s->flight[(s->first_flight + s->n_flights) % N_FLIGHTS];
        *f = (Flight) { .n_micro = in->n_micro,
                        .tokens = count_targets(in->targets, n),
                        .scale = in->scale > 0 ? in->scale : 1 };
        if (!f->tokens)
                return err_set(e, TGC_USAGE, "no target of this step counts: all %zu are negative",
                               n);
        if (in->n_micro > 1 && (code = session_sum_grads(s, e)))
                return code;
        s->grads_summed = in->n_micro > 1;
        session_reset(s, 0);
        set_optimiser(s, in);
        for (int m = 0; m < in->n_micro; m++) {
                if (m >= RING && (code = take_micro(s, f, m - RING, e)))
                        return code;
                if ((m > 0 && (code = settle_micro(s, f, m - 1, e))) ||
                    (code = queue_micro(s, f, in, m, e)))
                        return code;
        }
        if (!(code = queue_update(s, f, e)))
                s->n_flights++;
        return code;
}

int session_train_end(Session *s, TrainResult *out, Err *e)
{
        Flight *f = &s->flight[s->first_flight];
        float norm;
        int bad = 0, code;

        *out = (TrainResult) { 0 };
        if (!s->n_flights)
                return err_set(e, TGC_USAGE, "no step is under way: begin one first");
        s->first_flight = (s->first_flight + 1) % N_FLIGHTS;
        s->n_flights--;
        for (int m = f->n_micro > RING ? f->n_micro - RING : 0; m < f->n_micro; m++)
                if ((code = take_micro(s, f, m, e)))
                        return code;
        if ((code = take_float(s, slot_of(s, f, SLOT_NORM), f->has_norm, &norm, e)))
                return code;
        if (f->has_bad && (code = dev_fetched(s->d, slot_of(s, f, SLOT_BAD), &bad, sizeof bad, e)))
                return code;
        norm = (float)(norm / f->scale);
        *out = (TrainResult) { f->loss,
                               f->aux_loss,
                               norm,
                               bad == 1 || (bad != 2 && !isfinite(norm)) || !isfinite(f->loss),
                               bad == 2 && isfinite(f->loss),
                               f->tokens };
        return TGC_OK;
}

int session_train_step(Session *s, const TrainStep *in, TrainResult *out, Err *e)
{
        *out = (TrainResult) { 0 };
        if (s->n_flights)
                return err_set(e, TGC_USAGE, "a step is under way: end it first");
        int code = session_train_begin(s, in, e);
        return code ? code : session_train_end(s, out, e);
}

int session_eval(Session *s, const int *ids, const int *targets, int B, int T, double *loss,
                 uint64_t *tokens, Err *e)
{
        const TrainStep in = { .B = B, .T = T, .n_micro = 1, .ids = ids, .targets = targets };
        return session_eval_fed(s, &in, loss, tokens, e);
}

static int eval_run(Session *s, const char *prog, const TrainStep *in, uint64_t *tokens, Err *e)
{
        const size_t n = (size_t)(in->B > 0 ? in->B : 0) * (size_t)(in->T > 0 ? in->T : 0);
        int code = check_batch(s, in->ids, in->targets, n, e);
        if (code || (code = check_documents(in->documents, n, in->T, e)))
                return code;
        *tokens = count_targets(in->targets, n);
        session_reset(s, 0);
        memset(s->rt.pos, 0, sizeof s->rt.pos);
        s->rt.micro = 0;
        s->rt.n_micro = 1;
        s->rt.share = 1;
        s->rt.inv_tokens = *tokens ? (float)(1.0 / (double)*tokens) : 0;
        session_rt_changed(s);
        code = give_batch(s, prog, in, 0, session_write, e);
        return code ? code : session_run(s, prog, in->B, in->T, e);
}

int session_eval_fed(Session *s, const TrainStep *in, double *loss, uint64_t *tokens, Err *e)
{
        float x = 0;
        *loss = 0;
        const size_t n = (size_t)(in->B > 0 ? in->B : 0) * (size_t)(in->T > 0 ? in->T : 0);
        *tokens = count_targets(in->targets, n);
        if (!*tokens)
                return err_set(e, TGC_USAGE, "no target of this batch counts: all %zu are negative",
                               n);
        int code = eval_run(s, "eval", in, tokens, e);
        if (!code && !(code = session_read(s, "eval", loss_io(s, "eval"), &x, sizeof x, e)))
                *loss = x;
        return code;
}

int session_eval_output(Session *s, const char *prog, const char *out, const TrainStep *in,
                        float *v, size_t n, Err *e)
{
        const Io *x;
        void *mem, *raw;
        size_t bytes;
        uint64_t tokens;
        int code = eval_run(s, prog, in, &tokens, e);
        if (code || (code = find_io(s, prog, out, &x, &mem, &bytes, e)))
                return code;
        const int dtype = ck_dtype_find(x->dtype);
        if (dtype < 0 || bytes < n * x->elem)
                return err_set(e, TGC_BAD_FILE,
                               "program %s: %s has %zu bytes of %s, and %zu numbers are needed: "
                               "compile the model again",
                               prog, out, bytes, x->dtype, n);
        if (dtype == CK_F32)
                return session_read(s, prog, out, v, n * sizeof *v, e);
        if (!(raw = malloc(n * x->elem)))
                return err_set(e, TGC_NO_MEMORY, "no memory for %zu numbers", n);
        if (!(code = session_read(s, prog, out, raw, n * x->elem, e)) &&
            !ck_convert(v, CK_F32, raw, dtype, n, 1))
                code = err_set(e, TGC_BAD_FILE,
                               "program %s: %s is of type %s, and must be f32, bf16 or f16: "
                               "compile the model again",
                               prog, out, x->dtype);
        free(raw);
        return code;
}
