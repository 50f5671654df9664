/* session.c: arenas, and running one program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "session_impl.h"

/* A graph pays from the third run at one shape on; the first two also load code,
 * which must not happen while a graph is recorded. */
enum { RUNS_BEFORE_GRAPH = 2 };

bool is_state_arena(const char *name)
{
        static const char *const state[] = {
                "p", "lo", "m", "v", "m8", "v8", "mmax", "vmax", "ema"
        };
        for (size_t i = 0; i < sizeof state / sizeof *state; i++)
                if (!strcmp(name, state[i]))
                        return true;
        return false;
}

static bool wants_arena(const Session *s, const char *name)
{
        if (!strcmp(name, "kv"))
                return s->mode & SESSION_INFER;
        if (!strcmp(name, "gsum"))
                return false; /* session_sum_grads */
        if (!strcmp(name, "host"))
                return s->mode & SESSION_TRAIN;
        return is_state_arena(name) || !strcmp(name, "g") ? s->mode & SESSION_TRAIN : true;
}

/* ---- opening ---- */

/* Weights that can stay where the plan is mapped. */
static const void *borrow(const Session *s, const ArenaDef *a)
{
        const Section *w = strcmp(a->name, "w") ? 0 : plan_find(s->plan, "weights");
        return w && w->size == a->size && dev_host_memory(s->d) && s->mode == SESSION_INFER &&
                               (uintptr_t)w->data % 64 == 0
                       ? w->data
                       : 0;
}

/* SessionOptions.offload and arena host: pinned memory, where there is another. */
static bool is_host_arena(const Session *s, const char *name)
{
        return !dev_host_memory(s->d) &&
               ((s->offload && is_state_arena(name)) || !strcmp(name, "host"));
}

static uint64_t offloaded(const Session *s)
{
        uint64_t n = 0;
        for (int i = 0; i < s->p.n_arenas; i++)
                if (wants_arena(s, s->p.arena[i].name) && is_host_arena(s, s->p.arena[i].name))
                        n += s->p.arena[i].size;
        return n;
}

static int check_offload(const Session *s, Err *e)
{
        const uint64_t need = offloaded(s), room = dev_host_free();
        if (s->offload && dev_host_memory(s->d))
                return err_set(e, TGC_USAGE,
                               "--offload optimizer has no effect on %s: all of its memory is the "
                               "host's",
                               dev_name(s->d));
        if (need > room)
                return err_set(e, TGC_NO_MEMORY,
                               "--offload: %.3f GB of the host's memory needed, %.3f GB free; try "
                               "%s",
                               (double)need / 1e9, (double)room / 1e9,
                               s->offload ? "--optimizer adamw8bit" : "a smaller batch");
        return TGC_OK;
}

static int check_memory(Session *s, Err *e)
{
        uint64_t need = 0, available, total;
        char table[700] = "";
        size_t at = 0;
        int code = dev_memory(s->d, &available, &total, e);
        for (int i = 0; i < s->p.n_arenas; i++) {
                const ArenaDef *a = &s->p.arena[i];
                if (!wants_arena(s, a->name) || borrow(s, a) || is_host_arena(s, a->name))
                        continue;
                need += a->size; /* at most 64 of 2^60; compared only */
                if (need > (uint64_t)1 << 61)
                        need = (uint64_t)1 << 61;
                if (at < sizeof table)
                        at += (size_t)snprintf(table + at, sizeof table - at,
                                               "\n  %-8.20s %12.3f GB", a->name,
                                               (double)a->size / 1e9);
        }
        if (!code && need > available)
                code = err_set(e, TGC_NO_MEMORY,
                               "%s: %.3f GB needed, %.3f of %.3f GB free; try a smaller batch or "
                               "context when compiling%s",
                               dev_name(s->d), (double)need / 1e9, (double)available / 1e9,
                               (double)total / 1e9, table);
        return code;
}

static int alloc_arenas(Session *s, Err *e)
{
        int code = check_offload(s, e);
        if (!code)
                code = check_memory(s, e);
        for (int i = 0; i < s->p.n_arenas && !code; i++) {
                const ArenaDef *a = &s->p.arena[i];
                if (!wants_arena(s, a->name))
                        continue;
                if (borrow(s, a))
                        s->arena[i] = (ArenaState) { (void *)borrow(s, a), true, false };
                else if ((s->arena[i].host = is_host_arena(s, a->name)))
                        code = dev_alloc_host(s->d, a->size, &s->arena[i].mem, e);
                else
                        code = dev_alloc(s->d, a->size, &s->arena[i].mem, e);
        }
        for (int i = 0; i < 2 && !code; i++)
                code = dev_alloc(s->d, sizeof(Rt), &s->rt_mem[i], e);
        return code;
}

void *ref_mem(const Session *s, Ref r)
{
        if (r.arena == REF_RT)
                return s->rt_mem[0];
        char *mem = s->arena[r.arena].mem;
        return mem ? mem + r.offset : 0;
}

static bool is_update(const Prog *g) { return !strcmp(g->name, "update"); }

bool is_ragged(const Session *s, const Prog *g)
{
        return s->m.pages && (!strncmp(g->name, "prefill", 7) || !strcmp(g->name, "score"));
}

/* Zeros where nothing reads them. */
static int make_maps(Session *s, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < s->p.n_maps && dev_arch(s->d) != FORM_ANY && !code; i++) {
                void *matrix = ref_mem(s, s->p.map[i].of);
                if (matrix)
                        code = dev_tensor_map(s->d, s->map + (size_t)i * MAP_BYTES, &s->p.map[i],
                                              matrix, e);
        }
        return code;
}

int session_resolve(Session *s, Err *e)
{
        for (int i = 0; i < s->p.n_progs; i++) {
                const Prog *g = &s->p.prog[i];
                ProgState *ps = &s->prog[i];
                size_t n = 1, k = 0;
                for (int r = 0; r < g->n_run; r++)
                        n += (size_t)s->p.kernel[g->run[r].kernel].n_args;
                if (!ps->addr && !(ps->addr = calloc(n, sizeof *ps->addr)))
                        return err_set(e, TGC_NO_MEMORY, "no memory for program %s", g->name);
                ps->lacks = -1;
                for (int r = 0; r < g->n_run; r++)
                        for (int a = 0; a < s->p.kernel[g->run[r].kernel].n_args; a++) {
                                Ref ref = g->run[r].arg[a];
                                if (ref.arena == REF_MAP) {
                                        ps->addr[k++] = s->map + ref.offset * MAP_BYTES;
                                        continue;
                                }
                                void *mem = ref.arena == REF_RT ? s->rt_mem[is_update(g)]
                                                                : ref_mem(s, ref);
                                if (!(ps->addr[k++] = mem) && s->p.arena[ref.arena].size &&
                                    strcmp(s->p.arena[ref.arena].name, "gsum"))
                                        ps->lacks = ref.arena;
                        }
                for (int i = 0; i < g->n_move; i++)
                        for (int k = 0; k < 2; k++) {
                                const Ref ref = k ? g->move[i].host : g->move[i].here;
                                if (!s->arena[ref.arena].mem && s->p.arena[ref.arena].size)
                                        ps->lacks = ref.arena;
                        }
                dev_graph_free(s->d, ps->graph);
                ps->graph = 0;
                ps->seen = 0;
        }
        return make_maps(s, e);
}

int session_sum_grads(Session *s, Err *e)
{
        int a = program_arena(&s->p, "gsum"), code;
        if (a < 0 || s->arena[a].mem)
                return TGC_OK;
        if ((code = dev_sync(s->d, e)) ||
            (code = dev_alloc(s->d, s->p.arena[a].size, &s->arena[a].mem, e)))
                return code;
        return session_resolve(s, e);
}

static int fill_arenas(Session *s, Err *e)
{
        const Section *c = plan_find(s->plan, "consts");
        int code = session_load_weights(s, e), a = program_arena(&s->p, "const");
        if (!code && c && c->size) {
                if (a < 0 || c->size > s->p.arena[a].size)
                        return err_set(e, TGC_BAD_FILE, "section consts does not fit arena const");
                code = dev_upload(s->d, s->arena[a].mem, c->data, c->size, e);
        }
        for (int i = 0; i < s->p.n_zeros && !code; i++) {
                void *mem = ref_mem(s, s->p.zero[i].at);
                if (mem && !s->arena[s->p.zero[i].at.arena].borrowed)
                        code = dev_clear(s->d, mem, s->p.zero[i].size, e);
        }
        return code;
}

/* Is it a program that the runtime gives tokens to?  PREDICTS: tokens alone; EMBEDS: and where
 * texts begin and end; LEARNS: targets, too. */
enum { OTHER, PREDICTS, EMBEDS, LEARNS };

static int kind_of(const char *prog)
{
        if (!strncmp(prog, "prefill", 7) || !strncmp(prog, "decode", 6))
                return PREDICTS;
        if (!strcmp(prog, "embed"))
                return EMBEDS;
        return !strcmp(prog, "step") || !strcmp(prog, "eval") || !strcmp(prog, "score") ||
                               !strcmp(prog, "logp") || !strcmp(prog, "reference")
                       ? LEARNS
                       : OTHER;
}

/* A program that reads what nothing writes would answer from whatever lies there. */
static int check_io(const Session *s, const Prog *g, const Io *x, const char *text, Err *e)
{
        static const struct {
                const char *name;
                int each, least;
        } in[] = { { "ids", 1, PREDICTS }, { "targets", 1, LEARNS }, { "documents", 2, EMBEDS } };
        static const char *const out[] = { "logits",    "next",     "slots",  "drawn",
                                           "loss",      "aux_loss", "ce",     "nll",
                                           "grad_norm", "bad",      "hidden", "logp" };
        for (size_t i = 0; i < sizeof out / sizeof *out; i++)
                if (!strcmp(x->name, out[i]))
                        return TGC_OK;
        const int64_t tokens = (int64_t)g->B * g->T;
        if (!strncmp(x->name, "objective.", 10) && kind_of(g->name) == LEARNS &&
            !strcmp(x->dtype, "f32") && tokens > 0 && expr_eval(x->shape, g->B, g->T) > 0 &&
            expr_eval(x->shape, g->B, g->T) % tokens == 0)
                return TGC_OK;
        if (!strcmp(x->name, "adapters") && kind_of(g->name) != OTHER && !strcmp(x->dtype, "f32") &&
            s->m.n_adapters &&
            expr_eval(x->shape, g->B, g->T) ==
                    (is_ragged(s, g) ? 1 : (int64_t)g->B) * g->T * s->m.n_adapters)
                return TGC_OK;
        for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
                int64_t want = (is_ragged(s, g) ? 1 : (int64_t)g->B) * g->T * in[i].each;
                if (strcmp(x->name, in[i].name) || kind_of(g->name) < in[i].least)
                        continue;
                if (!strcmp(x->dtype, "i32") && expr_eval(x->shape, g->B, g->T) == want)
                        return TGC_OK;
                return err_set(e, TGC_BAD_FILE,
                               "%s: input %.60s of program %.60s must be i32 and %lld numbers",
                               text, x->name, g->name, (long long)want);
        }
        return err_set(e, TGC_BAD_FILE,
                       "%s: nothing feeds or reads %.60s of program %.60s; its inputs are ids%s",
                       text, x->name, g->name,
                       kind_of(g->name) == LEARNS   ? ", targets and documents"
                       : kind_of(g->name) == EMBEDS ? " and documents"
                                                    : "");
}

static int check_inputs(const Session *s, const char *text, Err *e)
{
        const Program *p = &s->p;
        int code = TGC_OK;
        for (int i = 0; i < p->n_progs; i++)
                for (int k = 0; k < p->prog[i].n_io && !code && kind_of(p->prog[i].name) != OTHER;
                     k++)
                        code = check_io(s, &p->prog[i], &p->prog[i].io[k], text, e);
        return code;
}

static int parse_texts(Session *s, Err *e)
{
        char name[32] = "program.";
        const Section *m = plan_find(s->plan, "manifest"), *p;
        int code;

        strncat(name, dev_target(s->d), 8);
        p = plan_find(s->plan, name);
        if (!m)
                return err_set(e, TGC_BAD_FILE, "the plan has no manifest");
        if (!p)
                return err_set(
                        e, TGC_NO_DEVICE,
                        "the plan was not compiled for %s: compile the model with --target %s",
                        dev_target(s->d), dev_target(s->d));
        if ((code = manifest_parse(&s->m, m->data, m->size, e)))
                return code;
        if ((code = program_parse(&s->p, p->data, p->size, name, e)))
                return code;
        return check_inputs(s, name, e);
}

/* ---- kernels ---- */

static bool has_word(const char *list, const char *word)
{
        size_t n = strlen(word);
        for (; *list; list += strcspn(list, " "), list += strspn(list, " "))
                if (strcspn(list, " ") == n && !memcmp(list, word, n))
                        return true;
        return false;
}

/* Those of programs that are ready, or shall be. */
static int load_kernels(Session *s, Err *e)
{
        char *need = calloc((size_t)s->p.n_kernels + 1, 1);
        if (!need)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d kernels", s->p.n_kernels);
        for (int i = 0; i < s->p.n_progs; i++)
                for (int r = 0; r < s->p.prog[i].n_run && s->prog[i].ready; r++)
                        need[s->p.prog[i].run[r].kernel] = 1;
        int code = dev_load(s->d, s->plan, &s->p, need, e);
        free(need);
        return code;
}

static int load_first(Session *s, const SessionOptions *o, Err *e)
{
        bool all = !o->ready || dev_which(s->d) != DEV_CUDA;
        const int most = o->batch ? o->batch : s->m.batch;
        const Prog *decode = program_decode(&s->p, most);
        for (int i = 0; i < s->p.n_progs; i++) {
                const Prog *g = &s->p.prog[i];
                if (strncmp(g->name, "decode", 6))
                        s->prog[i].ready = all || has_word(o->ready, g->name);
                else /* sequences of a batch come and go: fewer of them, with no compiler then */
                        s->prog[i].ready = all || (has_word(o->ready, "decode") &&
                                                   (g == decode || (decode && s->m.pages &&
                                                                    most > 1 && g->B < decode->B)));
        }
        return all ? dev_load(s->d, s->plan, &s->p, 0, e) : load_kernels(s, e);
}

static int open_session(Session *s, const SessionOptions *o, Err *e)
{
        DevKind kind = o->device;
        int code, has;

        if (kind == DEV_AUTO && !plan_find(s->plan, "program.cuda"))
                kind = DEV_CPU;
        if ((code = dev_open(&s->d, kind, &o->dev, e)) || (code = parse_texts(s, e)))
                return code;
        has = (s->m.infer ? SESSION_INFER : 0) | (s->m.train ? SESSION_TRAIN : 0);
        s->mode = o->mode ? o->mode : has;
        if (s->mode & ~has)
                return err_set(
                        e, TGC_USAGE,
                        "the plan was compiled for %s only: compile the model with --mode both",
                        s->m.infer ? "inference" : "training");
        s->offload = o->offload;
        s->seed = o->seed;
        s->rt.sms = dev_sms(s->d);
        set_seed(s, o->seed);
        s->arena = calloc((size_t)s->p.n_arenas + 1, sizeof *s->arena);
        s->prog = calloc((size_t)s->p.n_progs + 1, sizeof *s->prog);
        s->map = aligned_alloc(MAP_BYTES, ((size_t)s->p.n_maps + 1) * MAP_BYTES);
        if (!s->arena || !s->prog || !s->map)
                return err_set(e, TGC_NO_MEMORY, "no memory for a session");
        memset(s->map, 0, ((size_t)s->p.n_maps + 1) * MAP_BYTES);
        if ((code = alloc_arenas(s, e)) || (code = load_first(s, o, e)) ||
            (code = session_resolve(s, e)) || (code = fill_arenas(s, e)) ||
            (code = session_pages_open(s, e)))
                return code;
        return dev_sync(s->d, e);
}

int session_open(Session **out, const Plan *plan, const SessionOptions *o, Err *e)
{
        static const SessionOptions none;
        *out = 0;
        Session *s = calloc(1, sizeof *s);
        if (!s)
                return err_set(e, TGC_NO_MEMORY, "no memory for a session");
        s->plan = plan;
        session_rt_changed(s);
        s->rt.n_micro = 1;
        for (int b = 0; b < TGC_MAX_BATCH; b++)
                s->rt.slot[b] = b;
        int code = open_session(s, o ? o : &none, e);
        if (code)
                session_close(s);
        else
                *out = s;
        return code;
}

void session_close(Session *s)
{
        if (!s)
                return;
        for (int i = 0; s->prog && i < s->p.n_progs; i++) {
                dev_graph_free(s->d, s->prog[i].graph);
                free(s->prog[i].addr);
        }
        for (int i = 0; s->arena && i < s->p.n_arenas; i++)
                if (s->arena[i].host)
                        dev_free_host(s->d, s->arena[i].mem);
                else if (!s->arena[i].borrowed)
                        dev_free(s->d, s->arena[i].mem, s->p.arena[i].size);
        for (int i = 0; i < 2 && s->d; i++)
                dev_free(s->d, s->rt_mem[i], sizeof(Rt));
        session_pages_close(s);
        dev_close(s->d);
        manifest_free(&s->m);
        program_free(&s->p);
        free(s->arena);
        free(s->prog);
        free(s->map);
        free(s->hist);
        free(s->drawn);
        free(s);
}

/* ---- what it is ---- */

const Manifest *session_manifest(const Session *s) { return &s->m; }
const Program *session_program(const Session *s) { return &s->p; }
Device *session_device(const Session *s) { return s->d; }

bool session_borrows(const Session *s)
{
        for (int i = 0; i < s->p.n_arenas; i++)
                if (s->arena[i].borrowed)
                        return true;
        return false;
}

int session_mode(const Session *s) { return s->mode; }

bool session_has(const Session *s, const char *prog)
{
        const Prog *g = program_find(&s->p, prog);
        return g && s->prog[g - s->p.prog].lacks < 0;
}

int session_arenas(const Session *s, ArenaUse *use, int cap)
{
        for (int i = 0; i < s->p.n_arenas && i < cap; i++)
                use[i] = (ArenaUse) { s->p.arena[i].name, s->p.arena[i].size, s->arena[i].mem != 0,
                                      s->arena[i].host };
        return s->p.n_arenas;
}

Rt *session_rt(Session *s) { return &s->rt; }

void session_rt_changed(Session *s) { s->rt_changed[0] = s->rt_changed[1] = true; }

void set_seed(Session *s, uint64_t seed)
{
        s->rt.seed[0] = (unsigned)seed;
        s->rt.seed[1] = (unsigned)(seed >> 32);
        session_rt_changed(s);
}

int session_sync(Session *s, Err *e) { return dev_sync(s->d, e); }

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
        static const char *const cached[] = { "prefill", "decode", "score" };
        bool is = false, past = false;
        for (int i = 0; i < 3; i++)
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
        if (ragged && !laid && (code = session_even_call(s, B, T, e)))
                return code;
        if (past_context(s, name, ragged, B, T))
                return err_set(
                        e, TGC_USAGE,
                        "program %.60s: %d tokens from position %d are beyond the context of "
                        "%d",
                        name, T, s->rt.pos[0], s->m.ctx);
        int update = is_update(g);
        if ((s->rt.B != B || s->rt.T != T) && !update) { /* which has no use for them */
                s->rt.B = B;
                s->rt.T = T;
                s->rt_changed[0] = true;
        }
        if (!s->prog[g - s->p.prog].ready) {
                s->prog[g - s->p.prog].ready = true;
                if ((code = load_kernels(s, e))) {
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
