/* page_times.c: times every launch of a plan on this device, for its page.
 *
 * The method is that of `tgc bench --kernels`: the shortest of several runs, each launch by
 * itself. */
#include <stdlib.h>
#include <string.h>
#include "../load/open.h"
#include "page.h"

enum { RUNS = 5, MOST_PROMPT = 512 };

typedef struct Timing {
        JsonOut *j;
        Session *s;
        const Manifest *m;
        int *ids;
} Timing;

/* Shortest time of every launch of a program at these sizes, after one run that is not counted. */
static int time_program(Timing *t, const char *name, int B, int T, Err *e)
{
        const Prog *p = program_find(session_program(t->s), name);
        if (!p)
                return TGC_OK;
        double *ms = calloc((size_t)p->n_run + 1, 2 * sizeof *ms), *one = ms + p->n_run + 1;
        int n = 0, code = ms ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for times");
        for (int r = 0; r <= RUNS && !code && !signal_seen(); r++) {
                session_rt_changed(t->s);
                code = session_time_kernels(t->s, name, B, T, one, p->n_run, &n, e);
                for (int i = 0; i < n && !code; i++)
                        if (r < 2 || one[i] < ms[i])
                                ms[i] = one[i];
        }
        if (!code && n) {
                js_begin(t->j, NULL, '{');
                js_str(t->j, "program", name);
                js_num(t->j, "B", B);
                js_num(t->j, "T", T);
                js_begin(t->j, "ms", '[');
                for (int i = 0; i < n; i++)
                        js_num(t->j, NULL, ms[i]);
                js_end(t->j, ']');
                js_end(t->j, '}');
        }
        free(ms);
        return code;
}

static int time_training(Timing *t, Err *e)
{
        const Prog *p = program_find(session_program(t->s), "step");
        TrainResult r;
        TrainStep in = plain_step(p, t->ids);
        int code = session_train_begin(t->s, &in, e);
        if (!code && !(code = session_train_end(t->s, &r, e)) &&
            !(code = time_program(t, "step", p->B, p->T, e)))
                code = time_program(t, "update", 1, 1, e);
        return code;
}

static int no_token(void *user, int i, const int *token, int B)
{
        (void)user, (void)i, (void)token, (void)B;
        return signal_seen();
}

/* A prompt that fills prefill once, from an empty cache; then a token after a short one. */
static int time_inference(Timing *t, Err *e)
{
        const Prog *p = program_find(session_program(t->s), "prefill"),
                   *d = program_find(session_program(t->s), "decode");
        Sampling greedy = sampling_default();
        const int ctx = t->m->ctx;
        int n = ctx < MOST_PROMPT ? ctx : MOST_PROMPT, code;
        greedy.temp = 0;
        if (p && p->T < n)
                n = p->T;
        if ((code = session_reset(t->s, e)) || (code = session_prefill(t->s, t->ids, 1, n, e)) ||
            (code = session_sync(t->s, e)) || (code = session_reset(t->s, e)) ||
            (code = time_program(t, "prefill", 1, n, e)))
                return code;
        if (!d || d->B != 1 || ctx < 4)
                return TGC_OK;
        if ((code = session_reset(t->s, e)) ||
            (code = session_prefill(t->s, t->ids, 1, ctx > 16 ? 8 : 1, e)) ||
            (code = session_decode(t->s, &greedy, 1, no_token, NULL, e)))
                return code;
        return time_program(t, "decode", 1, 1, e);
}

/* What was measured on. */
typedef struct Machine {
        char name[256];
        const char *target; /* whose kernels it runs */
        Ceiling most;
} Machine;

/* One session a mode: the memory of training is another than that of inference. */
static int time_mode(JsonOut *j, const Plan *p, const Args *a, int mode, Machine *on, Err *e)
{
        Timing t = { .j = j };
        const bool train = mode == SESSION_TRAIN;
        int code = open_session(&t.s, p, a, mode, WEIGHTS_SEED,
                                train ? "step update" : "prefill decode", 1, e);
        if (code)
                return code;
        if (dev_which(session_device(t.s)) == DEV_EMULATE)
                code = err_set(e, TGC_USAGE,
                               "dump: --measured: the emulator's times say nothing about a GPU; "
                               "--device cpu measures the CPU");
        t.m = session_manifest(t.s);
        const Prog *step = program_find(session_program(t.s), "step");
        size_t n = (size_t)t.m->ctx;
        if (train && step)
                n = (size_t)step->B * (size_t)step->T;
        if (!code && !(t.ids = malloc((n + 1) * sizeof *t.ids)))
                code = err_set(e, TGC_NO_MEMORY, "no memory for %zu ids", n);
        for (size_t i = 0; i < n && !code; i++)
                t.ids[i] = (int)((i * 2654435761u >> 7) % (size_t)t.m->vocab);
        if (!code)
                code = train ? time_training(&t, e) : time_inference(&t, e);
        if (!code && !*on->name) {
                snprintf(on->name, sizeof on->name, "%s", dev_name(session_device(t.s)));
                on->target = dev_which(session_device(t.s)) == DEV_CUDA ? "cuda" : "cpu";
                code = dev_ceiling(session_device(t.s), &on->most, e);
        }
        free(t.ids);
        session_close(t.s);
        return code;
}

int page_times(JsonOut *j, const Plan *p, const Args *a, Err *e)
{
        const Section *s = plan_find(p, "manifest");
        Machine on = { .target = "" };
        Manifest m;
        int code = s ? manifest_parse(&m, s->data, s->size, e)
                     : err_set(e, TGC_BAD_FILE,
                               "%s: the plan has no manifest: compile the model again", a->pos[0]);
        if (code)
                return code;
        js_begin(j, "measured", '{');
        js_begin(j, "programs", '[');
        if (m.infer)
                code = time_mode(j, p, a, SESSION_INFER, &on, e);
        if (!code && m.train && !signal_seen())
                code = time_mode(j, p, a, SESSION_TRAIN, &on, e);
        if (!code && signal_seen())
                code = 128 + signal_seen();
        js_end(j, ']');
        js_str(j, "device", on.name);
        js_str(j, "target", on.target);
        js_num(j, "bytes_per_s", on.most.bytes);
        js_num(j, "flops_per_s", on.most.flops[m.dtype != STORE_F32]);
        js_end(j, '}');
        manifest_free(&m);
        return code;
}
