/* session_train.c: one optimiser step, and the loss of a batch.
 *
 * `loss` of a micro-step is the mean over its own counted targets; the step's is
 * their mean weighted by share, so that four micro-batches equal one batch.  The
 * host queues the whole step and reads the numbers at its end. */
#include <math.h>
#include <string.h>
#include "session_impl.h"

/* Slots of device.h: a ring of pairs for the micro-steps, two for the update. */
enum { RING = 6, SLOT_NORM = 2 * RING, SLOT_BAD };
_Static_assert((int)SLOT_BAD < (int)DEV_FETCH_SLOTS, "slots");

static uint64_t count_targets(const int *t, size_t n)
{
        uint64_t counted = 0;
        for (size_t i = 0; i < n; i++)
                counted += t[i] >= 0;
        return counted;
}

static int check_batch(const Session *s, const int *ids, const int *targets, size_t n, Err *e)
{
        for (size_t i = 0; i < n; i++)
                if (ids[i] < 0 || ids[i] >= s->m.vocab || targets[i] >= s->m.vocab)
                        return err_set(e, TGC_USAGE, "token %d is outside the vocabulary of %d",
                                       targets[i] >= s->m.vocab ? targets[i] : ids[i], s->m.vocab);
        return TGC_OK;
}

/* Queue reading one float or int; absent io reads as 0. */
static int fetch_io(Session *s, const char *prog, const char *io, int slot, bool *present, Err *e)
{
        const Io *x;
        void *mem;
        size_t bytes;
        *present = prog_io(program_find(&s->p, prog), io) != 0;
        if (!*present)
                return TGC_OK;
        int code = find_io(s, prog, io, &x, &mem, &bytes, e);
        if (!code && bytes < 4)
                code = err_set(e, TGC_BAD_FILE, "program %s: io %s is empty", prog, io);
        return code ? code : dev_fetch(s->d, slot, mem, 4, e);
}

static int take_float(Session *s, int slot, bool present, float *x, Err *e)
{
        *x = 0;
        return present ? dev_fetched(s->d, slot, x, sizeof *x, e) : TGC_OK;
}

static int write_batch(Session *s, const char *prog, const int *ids, const int *targets, size_t n, Err *e)
{
        int code = session_write(s, prog, "ids", ids, n * sizeof *ids, e);
        return code ? code : session_write(s, prog, "targets", targets, n * sizeof *targets, e);
}

typedef struct Step {
        Session *s;
        const TrainStep *in;
        TrainResult *out;
        bool has_loss, has_aux;
} Step;

static float share_of(const Step *x, int m)
{
        size_t n = (size_t)x->in->B * x->in->T;
        return (float)((double)count_targets(x->in->targets + m * n, n) / (double)x->out->tokens);
}

static int take_micro(Step *x, int m, Err *e)
{
        float loss, aux;
        int slot = m % RING * 2, code = take_float(x->s, slot, x->has_loss, &loss, e);
        if (code || (code = take_float(x->s, slot + 1, x->has_aux, &aux, e)))
                return code;
        float share = share_of(x, m);
        x->out->loss += share > 0 ? (double)share * loss : 0;
        x->out->aux_loss += share > 0 ? (double)share * aux : 0;
        return TGC_OK;
}

static int run_micro(Step *x, int m, Err *e)
{
        Session *s = x->s;
        const TrainStep *in = x->in;
        size_t n = (size_t)in->B * in->T;
        uint64_t counted = count_targets(in->targets + m * n, n);
        int slot = m % RING * 2, code;

        s->rt.micro = m;
        s->rt.share = share_of(x, m);
        s->rt.inv_tokens = counted ? (float)(1.0 / (double)counted) : 0.f;
        s->rt_changed = true;
        if ((code = write_batch(s, "step", in->ids + m * n, in->targets + m * n, n, e))
            || (code = session_run(s, "step", in->B, in->T, e))
            || (code = fetch_io(s, "step", "loss", slot, &x->has_loss, e)))
                return code;
        return fetch_io(s, "step", "aux_loss", slot + 1, &x->has_aux, e);
}

static int run_update(Step *x, Err *e)
{
        Session *s = x->s;
        const Prog *g = 0;
        const Io *bad = 0;
        bool has_norm, has_bad;
        float norm;
        int flag = 0, code = find_prog(s, "update", &g, e);

        if (code)
                return code;
        if ((bad = prog_io(g, "bad")) && (code = dev_clear(s->d, ref_mem(s, bad->at), 4, e)))
                return code;
        if ((code = session_run(s, "update", 1, 1, e))
            || (code = fetch_io(s, "update", "grad_norm", SLOT_NORM, &has_norm, e))
            || (code = fetch_io(s, "update", "bad", SLOT_BAD, &has_bad, e)))
                return code;
        for (int m = x->in->n_micro > RING ? x->in->n_micro - RING : 0; m < x->in->n_micro; m++)
                if ((code = take_micro(x, m, e)))
                        return code;
        if ((code = take_float(s, SLOT_NORM, has_norm, &norm, e)))
                return code;
        if (has_bad && (code = dev_fetched(s->d, SLOT_BAD, &flag, sizeof flag, e)))
                return code;
        x->out->grad_norm = norm;
        x->out->bad = flag || !isfinite(norm) || !isfinite(x->out->loss);
        return TGC_OK;
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
        rt->bias1 = (float)(1 - pow(in->beta1, in->step + 1.0));
        rt->bias2 = (float)(1 - pow(in->beta2, in->step + 1.0));
        set_seed(s, s->seed);
}

int session_train_step(Session *s, const TrainStep *in, TrainResult *out, Err *e)
{
        Step x = { .s = s, .in = in, .out = out };
        int code;

        *out = (TrainResult){ 0 };
        if (!(s->mode & SESSION_TRAIN))
                return err_set(e, TGC_USAGE, "this session was opened for inference only");
        if (in->B < 1 || in->T < 1 || in->n_micro < 1 || in->step < 0 || in->B > TGC_MAX_BATCH || in->T > s->m.ctx)
                return err_set(e, TGC_USAGE, "a batch of %d x %d tokens, %d times: the plan takes up to %d x %d", in->B,
                               in->T, in->n_micro, s->m.batch, s->m.ctx);
        size_t n = (size_t)in->n_micro * in->B * in->T;
        if ((code = check_batch(s, in->ids, in->targets, n, e)))
                return code;
        if (!(out->tokens = count_targets(in->targets, n)))
                return err_set(e, TGC_USAGE, "no target of this step counts");
        session_reset(s, 0);
        set_optimiser(s, in);
        for (int m = 0; m < in->n_micro; m++) {
                if (m >= RING && (code = take_micro(&x, m - RING, e)))
                        return code;
                if ((code = run_micro(&x, m, e)))
                        return code;
        }
        return run_update(&x, e);
}

int session_eval(Session *s, const int *ids, const int *targets, int B, int T, double *loss, uint64_t *tokens, Err *e)
{
        size_t n = (size_t)(B > 0 ? B : 0) * (size_t)(T > 0 ? T : 0);
        float x = 0;
        int code = check_batch(s, ids, targets, n, e);
        if (code)
                return code;
        *tokens = count_targets(targets, n);
        *loss = 0;
        if (!*tokens)
                return err_set(e, TGC_USAGE, "no target of this batch counts");
        session_reset(s, 0);
        memset(s->rt.pos, 0, sizeof s->rt.pos);
        s->rt.micro = 0;
        s->rt.n_micro = 1;
        s->rt.share = 1;
        s->rt.inv_tokens = (float)(1.0 / (double)*tokens);
        s->rt_changed = true;
        if ((code = write_batch(s, "eval", ids, targets, n, e)) || (code = session_run(s, "eval", B, T, e))
            || (code = session_read(s, "eval", "loss", &x, sizeof x, e)))
                return code;
        *loss = x;
        return TGC_OK;
}
