/* session_arenas.c: a session's memory, and the addresses that its programs use.
 *
 * Decides which arenas a mode needs and where each lies: in the plan's mapping, on the device, or
 * in the host's pinned memory.  Addresses in runs and tensor maps are computed again after an arena
 * has moved. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "session_impl.h"

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

int session_alloc_arenas(Session *s, Err *e)
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

bool is_update(const Prog *g) { return !strcmp(g->name, "update"); }

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

int session_fill_arenas(Session *s, Err *e)
{
        const Section *c = plan_find(s->plan, "consts");
        int code = session_load_weights(s, e), a = program_arena(&s->p, "const");
        if (!code && c && c->size) {
                if (a < 0 || c->size > s->p.arena[a].size)
                        return err_set(
                                e, TGC_BAD_FILE,
                                "section consts does not fit arena const: compile the model again");
                code = dev_upload(s->d, s->arena[a].mem, c->data, c->size, e);
        }
        for (int i = 0; i < s->p.n_zeros && !code; i++) {
                void *mem = ref_mem(s, s->p.zero[i].at);
                if (mem && !s->arena[s->p.zero[i].at.arena].borrowed)
                        code = dev_clear(s->d, mem, s->p.zero[i].size, e);
        }
        return code;
}
