/* session_run.c: runs one program: its inputs, its outputs, and its launches, one by one or as a
 * recorded graph. */
#include <string.h>
#include "session_impl.h"

/* A graph pays from the third run at one shape on; the first two also load code,
 * which must not happen while a graph is recorded. */
enum { RUNS_BEFORE_GRAPH = 2 };

/* ---- io ---- */

int find_prog(Session *s, const char *name, const Prog **out, Err *e)
{
        const Prog *g = program_find(&s->p, name);
        if (!g)
                return err_set(e, TGC_USAGE,
                               "the plan has no program %.60s; was it compiled for %s?", name,
                               s->m.infer ? "training" : "inference");
        int lacks = s->prog[g - s->p.prog].lacks;
        if (lacks >= 0)
                return err_set(
                        e, TGC_USAGE,
                        "program %.60s needs arena %s, which this session was opened without", name,
                        s->p.arena[lacks].name);
        *out = g;
        return TGC_OK;
}

int find_io(Session *s, const char *prog, const char *io, const Io **out, void **mem, size_t *bytes,
            Err *e)
{
        const Prog *g = 0;
        int code = find_prog(s, prog, &g, e);
        if (code)
                return code;
        if (!(*out = prog_io(g, io)))
                return err_set(e, TGC_BAD_FILE, "program %.60s has no io named %.60s", prog, io);
        *mem = ref_mem(s, (*out)->at);
        *bytes = (size_t)expr_eval((*out)->shape, g->B, g->T) * (*out)->elem;
        if (!*mem && *bytes)
                return err_set(e, TGC_USAGE,
                               "io %.60s of %.60s lies in an arena this session was opened without",
                               io, prog);
        return TGC_OK;
}

int io_at(Session *s, const char *prog, const char *io, size_t bytes, void **mem, Err *e)
{
        const Io *x;
        size_t most;
        int code = find_io(s, prog, io, &x, mem, &most, e);
        if (!code && bytes > most)
                code = err_set(e, TGC_USAGE, "%zu bytes for io %.60s of %.60s, which has %zu",
                               bytes, io, prog, most);
        return code;
}

int session_write(Session *s, const char *prog, const char *io, const void *data, size_t bytes,
                  Err *e)
{
        void *mem;
        int code = io_at(s, prog, io, bytes, &mem, e);
        s->passed[0] = false;
        return code ? code : dev_upload(s->d, mem, data, bytes, e);
}

int session_read(Session *s, const char *prog, const char *io, void *data, size_t bytes, Err *e)
{
        void *mem;
        int code = io_at(s, prog, io, bytes, &mem, e);
        return code ? code : dev_download(s->d, data, mem, bytes, e);
}

/* ---- running ---- */

/* The moves that end or begin before run r. */
static int move_some(Session *s, const Prog *g, int r, Err *e)
{
        int code = TGC_OK;
        for (int begins = 0; begins < 2; begins++)
                for (int i = 0; i < g->n_move && !code; i++) {
                        const Move *m = &g->move[i];
                        const DevMove x = { ref_mem(s, m->here), ref_mem(s, m->host), m->size,
                                            m->out };
                        if (begins && m->begin == r)
                                code = dev_move(s->d, i, &x, e);
                        if (!code && m->end == r && begins == (m->begin == r))
                                code = dev_moved(s->d, i, &x, e);
                }
        return code;
}

/* Queue the launches of a program; with marks, time stamp i precedes run i. */
static int launch_all(Session *s, const Prog *g, int B, int T, RunPart part, bool marks, Err *e)
{
        const int from = part == RUN_LAST ? g->n_run - 1 : 0,
                  to = part == RUN_BUT_LAST ? g->n_run - 1 : g->n_run;
        void **arg = s->prog[g - s->p.prog].addr;
        bool cpu = dev_which(s->d) == DEV_CPU; /* its kernels loop over their own tiles */
        int code = TGC_OK;
        for (int r = 0; r < to && !code; r++) {
                const Run *run = &g->run[r];
                const char *own = run->grid[dev_arch(s->d)];
                int64_t grid = cpu ? 1 : expr_eval(own ? own : run->grid[FORM_ANY], B, T);
                if (marks)
                        code = dev_mark(s->d, r, e);
                if (!code && g->n_move)
                        code = move_some(s, g, r, e);
                if (!code && r >= from)
                        code = dev_launch(s->d, run->kernel, (unsigned)grid, arg, e);
                arg += s->p.kernel[run->kernel].n_args;
        }
        if (!code && g->n_move)
                code = move_some(s, g, g->n_run, e);
        return code || !marks ? code : dev_mark(s->d, g->n_run, e);
}

static int record(Session *s, const Prog *g, ProgState *ps, int B, int T, Err *e)
{
        int code = dev_capture_begin(s->d, e);
        if (code)
                return code;
        code = launch_all(s, g, B, T, ps->part, false, e);
        int end = dev_capture_end(s->d, &ps->graph, code ? 0 : e);
        if (code && !end) {
                dev_graph_free(s->d, ps->graph);
                ps->graph = 0;
        }
        return code ? code : end;
}

/* Programs that write the cache begin at the host's positions. */
static bool past_context(const Session *s, const char *name, bool ragged, int B, int T)
{
        static const char *const cached[] = { "prefill", "decode", "score", "mixed" };
        bool is = false, past = false;
        for (int i = 0; i < 4; i++)
                is |= !strncmp(name, cached[i], strlen(cached[i]));
        for (int b = 0; b < B && is; b++) {
                const int n = ragged ? s->rt.start[b + 1] - s->rt.start[b] : T;
                past |= s->rt.pos[b] < 0 || s->rt.pos[b] > s->m.ctx - n;
        }
        return past;
}

static int begin_run(Session *s, const char *name, int B, int T, const Prog **out, Err *e)
{
        const Prog *g = 0;
        int code = find_prog(s, name, &g, e);
        if (code)
                return code;
        if (B < 1 || T < 1 || B > g->B || T > g->T)
                return err_set(e, TGC_USAGE,
                               "program %.60s takes B=1..%d and T=1..%d, not B=%d and T=%d", name,
                               g->B, g->T, B, T);
        const bool ragged = is_ragged(s, g), laid = s->laid;
        s->laid = false;
        if (!laid && prog_io(g, "sampled"))
                return err_set(e, TGC_USAGE, "program %.60s is for the calls of a batch", name);
        if (ragged && !laid && (code = session_even_call(s, B, T, e)))
                return code;
        if (past_context(s, name, ragged, B, T))
                return err_set(
                        e, TGC_USAGE,
                        "program %.60s: %d tokens from position %d are beyond the context of "
                        "%d",
                        name, T, s->rt.pos[0], s->m.ctx);
        int update = is_update(g);
        const int sampled = laid ? s->rt.sampled : B;
        if ((s->rt.B != B || s->rt.T != T || s->rt.sampled != sampled) &&
            !update) { /* which has no use for them */
                s->rt.B = B;
                s->rt.T = T;
                s->rt.sampled = sampled;
                s->rt_changed[0] = true;
        }
        if (!s->prog[g - s->p.prog].ready) {
                s->prog[g - s->p.prog].ready = true;
                if ((code = session_load_kernels(s, e))) {
                        s->prog[g - s->p.prog].ready = false; /* to be tried again */
                        return code;
                }
        }
        s->passed[update] = false;
        if (s->rt_changed[update] &&
            (code = dev_upload(s->d, s->rt_mem[update], &s->rt, sizeof s->rt, e)))
                return code;
        s->rt_changed[update] = false;
        *out = g;
        return TGC_OK;
}

int session_run(Session *s, const char *name, int B, int T, Err *e)
{
        return session_run_part(s, name, B, T, RUN_ALL, e);
}

int session_run_part(Session *s, const char *name, int B, int T, RunPart part, Err *e)
{
        const Prog *g = 0;
        int code = begin_run(s, name, B, T, &g, e);
        if (code)
                return code;
        ProgState *ps = &s->prog[g - s->p.prog];
        if (part == RUN_LAST) /* one launch: no graph */
                return launch_all(s, g, B, T, part, false, e);
        if (ps->B != B || ps->T != T || ps->part != part) {
                dev_graph_free(s->d, ps->graph);
                *ps = (ProgState) {
                        .addr = ps->addr, .lacks = -1, .ready = true, .B = B, .T = T, .part = part
                };
        }
        if (!ps->graph && dev_can_capture(s->d) && ps->seen++ >= RUNS_BEFORE_GRAPH)
                if ((code = record(s, g, ps, B, T, e)))
                        return code;
        return ps->graph ? dev_replay(s->d, ps->graph, e) : launch_all(s, g, B, T, part, false, e);
}

int session_time_kernels(Session *s, const char *name, int B, int T, double *ms, int cap, int *n_ms,
                         Err *e)
{
        const Prog *g = 0;
        int code = begin_run(s, name, B, T, &g, e);
        *n_ms = 0;
        if (code)
                return code;
        if (g->n_run >= DEV_MARKS)
                return err_set(e, TGC_FAIL, "program %.60s has %d runs, more than %d can be timed",
                               name, g->n_run, DEV_MARKS - 1);
        code = launch_all(s, g, B, T, RUN_ALL, true, e);
        for (int i = 0; i < g->n_run && i < cap && !code; i++)
                if (!(code = dev_elapsed(s->d, i, i + 1, &ms[i], e)))
                        *n_ms = i + 1;
        return code;
}
