/* program.c: turns a fused graph into one program: kernels, launches and buffers, as text. */
#include "../ops/ops.h"
#include <stdlib.h>
#include <string.h>

/* ---- text ---------------------------------------------------------------- */

static const char *io_shape(Emit *e, const Type *t)
{
        return arena_str(e->tmp, dim_text(dim_here(e, type_elems(t)), (char[64]) { 0 }));
}

static int64_t keep_offset(Shared *sh, const char *name, int64_t bytes)
{
        for (int i = 0; i < sh->n_keep; i++)
                if (!strcmp(sh->keep[i].name, name) && sh->keep[i].bytes == bytes)
                        return sh->keep[i].offset;
        if (sh->n_keep == MAX_KEEP)
                error_internal((Loc) { 0 }, "too many lasting buffers");
        int64_t at = sh->keep_bytes;
        sh->keep[sh->n_keep].name = arena_str(sh->arena, name);
        sh->keep[sh->n_keep].bytes = bytes;
        sh->keep[sh->n_keep++].offset = at;
        sh->keep_bytes += (bytes + 255) & ~(int64_t)255;
        return at;
}

int pool_of(const Emit *e, int64_t window) { return e->narrow_rows && window != e->window; }
int64_t pool_rows(const Emit *e, int pool) { return pool ? e->narrow_rows : e->cache_rows; }

static int64_t state_offset(Emit *e, Shared *sh, Ref r)
{
        const Node *n = NODE(e->g, r);
        Type t = n->type;
        for (int i = 0; i < sh->n_state; i++)
                if (!strcmp(sh->state[i].name, n->name))
                        return sh->state[i].offset;
        for (int i = 0; i < t.rank; i++) { /* room for the largest batch */
                while (t.dim[i].e[SYM_B]) {
                        t.dim[i].n *= sh->batch;
                        t.dim[i].e[SYM_B]--;
                }
        }
        if (sh->cache_rows) /* one pool for all sequences */
                t.dim[0] = DIM(1), t.dim[1] = DIM(pool_rows(e, pool_of(e, n->a.cache.window)));
        int64_t per = t.dt == DT_FP8 ? dim_most(e, dim_mul(t.dim[0], t.dim[1])) *
                                               fp8_row_bytes(t.dim[2].n, t.dim[3].n)
                                     : dim_most(e, type_elems(&t)) * dt_size[t.dt],
                b = sh->cache_rows ? 1
                    : dim_is_const(n->type.dim[0])
                            ? sh->batch / (n->type.dim[0].n ? n->type.dim[0].n : 1)
                            : 1;
        if (b > 1)
                per *= b;
        if (sh->n_state == MAX_STATE)
                error_internal((Loc) { 0 }, "too many caches");
        sh->state[sh->n_state].name = arena_str(sh->arena, n->name);
        sh->state[sh->n_state].offset = sh->kv_bytes;
        sh->state[sh->n_state].bytes = per;
        sh->state[sh->n_state].pool = pool_of(e, n->a.cache.window);
        sh->kv_bytes += (per + 255) & ~(int64_t)255;
        return sh->state[sh->n_state++].offset;
}

/* Bytes of the arena of constants; equal ones share a place. */
static int64_t const_bytes(Shared *sh, const void *mem, int64_t bytes)
{
        for (int64_t at = 0; at + bytes <= (int64_t)sh->consts.n; at += 256)
                if (!memcmp(sh->consts.s + at, mem, (size_t)bytes))
                        return at;
        int64_t at = (int64_t)sh->consts.n;
        text_put(&sh->consts, mem, (size_t)bytes);
        while (sh->consts.n % 256)
                text_put(&sh->consts, "", 1);
        return at;
}

static int64_t const_offset(Emit *e, Shared *sh, Ref r)
{
        const Node *n = NODE(e->g, r);
        int64_t bytes = n->a.data.n * 4;
        char *mem = mem_new((size_t)bytes + 1);
        for (int64_t i = 0; i < n->a.data.n; i++) {
                if (n->type.dt == DT_I32)
                        ((int32_t *)(void *)mem)[i] = (int32_t)dt_round(DT_I32, n->a.data.data[i]);
                else
                        ((float *)(void *)mem)[i] = (float)n->a.data.data[i];
        }
        int64_t at = const_bytes(sh, mem, bytes);
        free(mem);
        return at;
}

static unsigned hash(const char *s)
{
        unsigned h = 2166136261u;
        for (; *s; s++)
                h = (h ^ (unsigned char)*s) * 16777619u;
        return h;
}

const ParamPlace *param_place(Shared *sh, const char *name)
{
        unsigned cap = 16, h;
        while (cap < (unsigned)sh->n_params * 2)
                cap *= 2;
        if (!sh->by_name) {
                sh->by_name = arena_alloc(sh->arena, cap * sizeof *sh->by_name);
                for (int i = 0; i < sh->n_params; i++) {
                        for (h = hash(sh->param[i].name) & (cap - 1); sh->by_name[h];
                             h = (h + 1) & (cap - 1))
                                ;
                        sh->by_name[h] = i + 1;
                }
        }
        for (h = hash(name) & (cap - 1); sh->by_name[h]; h = (h + 1) & (cap - 1))
                if (!strcmp(sh->param[sh->by_name[h] - 1].name, name))
                        return &sh->param[sh->by_name[h] - 1];
        return NULL;
}

static int64_t param_offset(Emit *e, Shared *sh, Ref r)
{
        const ParamPlace *p = param_place(sh, NODE(e->g, r)->name);
        if (p)
                return p->offset;
        error_internal(NODE(e->g, r)->loc, "parameter %%%s has no place", NODE(e->g, r)->name);
}

static int *line_slot(const Shared *sh, const char *line)
{
        unsigned h = hash(line) & (sh->cap_by_line - 1);
        while (sh->by_line[h] && strcmp(sh->map[sh->by_line[h] - 1], line))
                h = (h + 1) & (sh->cap_by_line - 1);
        return &sh->by_line[h];
}

/* The number of the tensor map with such a line. */
static int map_number(Shared *sh, const char *line)
{
        if (sh->n_map * 2 >= (int)sh->cap_by_line) {
                sh->cap_by_line = sh->cap_by_line ? sh->cap_by_line * 2 : 256;
                sh->by_line = arena_alloc(sh->arena, sh->cap_by_line * sizeof *sh->by_line);
                for (int i = 0; i < sh->n_map; i++)
                        *line_slot(sh, sh->map[i]) = i + 1;
        }
        int *slot = line_slot(sh, line);
        if (*slot)
                return *slot - 1;
        sh->map = arena_grow(sh->arena, sh->map, sh->n_map, &sh->cap_map, sizeof *sh->map);
        sh->map[sh->n_map] = arena_str(sh->arena, line);
        *slot = sh->n_map + 1;
        return sh->n_map++;
}

static void ref_text(Emit *e, Shared *sh, const Buffer *b, int n, Slot s, Text *out)
{
        Graph *g = e->g;
        if (s.kind == SLOT_ARENA) {
                text_add(out, " %s+%lld", s.arena, (long long)s.off);
                return;
        }
        if (s.kind == SLOT_INT) {
                int32_t value = s.id;
                text_add(out, " const+%lld", (long long)const_bytes(sh, &value, sizeof value));
                return;
        }
        if (s.kind == SLOT_MAP) {
                const TensorMap *m = &e->map[s.id];
                Text t = { 0 };
                text_add(&t, "%s", m->dt == DT_F32 ? "tf32" : dt_name[m->dt]);
                ref_text(e, sh, b, n, m->of, &t);
                text_add(&t, " %lld %lld %lld", (long long)m->rows, (long long)m->cols,
                         (long long)m->ld);
                if (m->box_rows)
                        text_add(&t, " box %d %d", m->box_rows, m->box_bytes);
                text_add(out, " map:%d", map_number(sh, t.s));
                text_free(&t);
                return;
        }
        if (s.kind == SLOT_GRAD) {
                int64_t at = param_offset(e, sh, s.id);
                text_add(out, " g+%lld",
                         (long long)((at < sh->n_low ? at * 2 : at * 4 - sh->n_low * 2) + s.off));
                return;
        }
        if (s.kind == SLOT_WORK && e->work[s.id].keep) {
                text_add(out, " keep+%lld",
                         (long long)(keep_offset(sh, e->work[s.id].keep, buffer_bytes(e, &s)) +
                                     s.off));
                return;
        }
        if (s.kind == SLOT_NODE) {
                Op op = NODE(g, s.id)->op;
                if (op == OP_PARAM) {
                        text_add(out, " w+%lld",
                                 (long long)(param_offset(e, sh, s.id) *
                                                     dt_size[NODE(g, s.id)->type.dt] +
                                             s.off));
                        return;
                }
                if (op == OP_CONST) {
                        text_add(out, " const+%lld",
                                 (long long)(const_offset(e, sh, s.id) + s.off));
                        return;
                }
                if (op == OP_STATE) {
                        text_add(out, " kv+%lld", (long long)(state_offset(e, sh, s.id) + s.off));
                        return;
                }
                s.id = storage_of(e, s.id);
        }
        const int at = *buffer_of(e, &s);
        if (!at || at > n)
                error_internal((Loc) { 0 }, "a buffer was not planned");
        const Buffer *x = &b[at - 1];
        if (x->again && e->at_launch >= b[x->again - 1].from)
                x = &b[x->again - 1];
        text_add(out, " act+%lld", (long long)(x->offset + s.off));
}

static void io_line(Emit *e, Shared *sh, const Buffer *b, int n, const char *name, Ref r, Text *out)
{
        Access a;
        const Type *t = &NODE(e->g, r)->type;
        access_need(e->g, e->place, r, &a);
        text_add(out, "io %s %s", name, dt_name[t->dt]);
        ref_text(e, sh, b, n,
                 (Slot) { .kind = SLOT_NODE, .id = a.base, .off = a.off * dt_size[t->dt] }, out);
        text_add(out, " %s\n", io_shape(e, t));
}

static void keep_lines(Emit *e, Shared *sh, Text *out)
{
        for (int i = 0; i < e->n_work; i++) {
                const char *k = e->work[i].keep;
                Slot s = { .kind = SLOT_WORK, .id = i };
                if (!k)
                        continue;
                int64_t bytes = buffer_bytes(e, &s);
                if (!strcmp(k, "slots") || !strcmp(k, "drawn") || !strcmp(k, "grad_norm") ||
                    !strcmp(k, "bad"))
                        text_add(out, "io %s %s keep+%lld %lld\n", k,
                                 strcmp(k, "grad_norm") ? "i32" : "f32",
                                 (long long)keep_offset(sh, k, bytes), (long long)bytes / 4);
                text_add(out, "zero keep+%lld %lld\n", (long long)keep_offset(sh, k, bytes),
                         (long long)bytes);
        }
}

static void memory_text(const char *name, const Buffer *b, int n, int64_t total, const Emit *e,
                        Text *out)
{
        text_add(out, "%s: %lld bytes of activations\n%12s %12s %7s %7s  %s\n", name,
                 (long long)total, "offset", "bytes", "first", "last", "value");
        for (int i = 0; i < n; i++)
                text_add(out, "%12lld %12lld %7d %7d  %s\n", (long long)b[i].offset,
                         (long long)b[i].bytes, b[i].first, b[i].last, b[i].name);
        if (e->n_move)
                text_add(out, "%d values rest in the host's memory, %lld bytes\n", e->n_move / 2,
                         (long long)e->host_bytes);
}

static void launches(Emit *e, Shared *sh, const Buffer *b, int n, Text *out)
{
        for (int l = 0; l < e->n_launch; l++) {
                const Launch *x = &e->launch[l];
                e->at_launch = l;
                text_add(out, "run %s grid %s", x->kernel, grid_text(e->tmp, &x->any.grid));
                for (int i = ARCH_ANY + 1; i < N_ARCHS; i++)
                        if (form_is(x->form, i) || (i == ARCH_SM90A && x->spread))
                                text_add(out, " %s %s", archs[i].name,
                                         grid_text(e->tmp, form_is(x->form, i) ? &x->form[i].grid
                                                                               : &x->any.grid));
                text_add(out, " args rt");
                for (int i = 0; i < e->launch[l].n_args; i++)
                        ref_text(e, sh, b, n, e->launch[l].arg[i], out);
                text_add(out, "\n");
        }
        for (int i = 0; i < e->n_move; i++) {
                const HostMove *m = &e->move[i];
                text_add(out, "move %s act+%lld host+%lld %lld %d %d\n", m->out ? "out" : "in",
                         (long long)b[m->buffer].offset, (long long)m->host,
                         (long long)b[m->buffer].bytes, m->begin, m->end);
        }
        text_add(out, "end\n");
}

static void emit_free(Emit *e)
{
        free(e->launch);
        free(e->work);
        free(e->map);
        arena_free(e->tmp);
}

static bool has_gradients(const Emit *e)
{
        for (int l = 0; l < e->n_launch; l++)
                for (int i = 0; i < e->launch[l].n_args; i++)
                        if (e->launch[l].arg[i].kind == SLOT_GRAD)
                                return true;
        return false;
}

/* Bytes of activations that a schedule may take more than the order as it was. */
enum { MORE = 256 << 20 };

/* The plan of the scheduled launches, if it is not much larger than `total`. */
static int64_t scheduled(Emit *e, Arena *a, int64_t total, Buffer **b, int *n)
{
        size_t bytes = (size_t)e->n_launch * sizeof *e->launch;
        Launch *before = memcpy(arena_alloc(a, bytes), e->launch, bytes);
        int n_before = e->n_launch;
        schedule_launches(e, a);
        int64_t now = plan_memory(e, a, b, n);
        if (now <= total + MORE)
                return now;
        memcpy(e->launch, before, bytes);
        e->n_launch = n_before;
        return plan_memory(e, a, b, n);
}

void program_emit(Module *m, Graph *g, Shared *sh, const char *name, int B, int T, Text *out,
                  Text *products, Text *memory)
{
        Arena *a = arena_new();
        Emit e = { .m = m,
                   .g = g,
                   .tmp = arena_new(),
                   .place = place_concats(g, a),
                   .most_t = T,
                   .most_b = B,
                   .slots = (int)sh->batch };
        Buffer *b;
        int n;
        e.paged = sh->cache_rows > 0;
        e.ragged = e.paged && g->sizes.v[SYM_T] != 1;
        e.mixed = e.ragged && graph_find(g, "sampled");
        e.cache_rows = sh->cache_rows;
        e.narrow_rows = e.paged ? sh->narrow_rows : 0;
        e.window = sh->window;
        e.stored = arena_alloc(a, (size_t)g->n_nodes);
        e.done_sm90 = arena_alloc(a, (size_t)g->n_nodes);
        e.n_groups = group_list(g, a, &e.groups);
        stored_find(&e);
        e.decoded = arena_alloc(a, (size_t)g->n_nodes * sizeof *e.decoded);
        if (m->target == TARGET_CUDA)
                columns_find(&e), norms_find(&e);
        for (int i = 0; i < e.n_groups; i++) {
                gen_group(&e, &e.groups[i]);
                arena_clear(e.tmp);
        }
        e.offload = sh->offload && has_gradients(&e);
        int64_t total = plan_memory(&e, a, &b, &n);
        if (sh->merge && (has_gradients(&e) || g->sizes.v[SYM_T] == 1))
                total = scheduled(&e, a, total, &b, &n);
        launches_overlap(&e);
        kernels_name(&e);
        module_count(m, name);
        launches_text(&e, name);
        if (total > sh->act_bytes)
                sh->act_bytes = total;
        if (e.host_bytes > sh->host_bytes)
                sh->host_bytes = e.host_bytes;
        text_add(out, "program %s B %d T %d\n", name, B, T);
        for (Ref r = 1; r < g->n_nodes; r++)
                if (NODE(g, r)->op == OP_INPUT)
                        io_line(&e, sh, b, n, NODE(g, r)->name, r, out);
        for (int i = 0; i < g->n_out; i++)
                if (!op_appends(NODE(g, g->out[i].ref)->op))
                        io_line(&e, sh, b, n, g->out[i].name, g->out[i].ref, out);
        keep_lines(&e, sh, out);
        launches(&e, sh, b, n, out);
        if (products)
                products_run(&e, name, products);
        if (memory)
                memory_text(name, b, n, total, &e, memory);
        emit_free(&e);
        arena_free(a);
}

/* A program of launches over the arenas: the update, or what goes before it. */
static void arena_program(Module *m, Shared *sh, const char *name, DType dt, Text *out)
{
        Graph *g = graph_new(name);
        Emit e = { .m = m, .g = g, .tmp = arena_new(), .most_t = 1, .most_b = 1 };
        Arena *a = arena_new();
        Buffer *b;
        int n;
        g->sizes = (Sizes) { { 1, 1, 1 } };
        if (!strcmp(name, "add_grads"))
                gen_add_grads(&e, sh);
        else if (!strcmp(name, "ema_swap"))
                gen_ema_swap(&e, sh, dt);
        else
                gen_update(&e, sh, dt);
        int64_t total = plan_memory(&e, a, &b, &n);
        kernels_name(&e);
        module_count(m, name);
        launches_text(&e, name);
        if (total > sh->act_bytes)
                sh->act_bytes = total;
        text_add(out, "program %s B 1 T 1\n", name);
        keep_lines(&e, sh, out);
        launches(&e, sh, b, n, out);
        emit_free(&e);
        arena_free(a);
        graph_free(g);
}

void program_update(Module *m, Shared *sh, DType dt, Text *out)
{
        if (sh->n_low)
                arena_program(m, sh, "add_grads", dt, out);
        arena_program(m, sh, "update", dt, out);
        if (sh->ema)
                arena_program(m, sh, "ema_swap", dt, out);
}
