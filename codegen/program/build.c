/* build.c: kernels under construction: their arguments and their text.
 *
 * The text holds \1 in place of the kernel's name; entry.c names kernels. */
#include "program.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool is_cuda(const Emit *e) { return e->m->target == TARGET_CUDA; }

static const char *ctype_text(CType t)
{
        static const char *const name[] = { "float",         "bf16",           "f16",    "int",
                                            "unsigned char", "unsigned short", "double", "TmaMap" };
        return name[t];
}

CType ctype_of(DType dt)
{
        static const CType type[N_DT] = { C_F32, C_BF16, C_F16, C_I32, C_U8 };
        return type[dt];
}

const char *c_type(DType dt) { return ctype_text(ctype_of(dt)); }

/* Words a value cannot be named: of C and C++, of the system's headers, and of generated bodies. */
static bool taken(const char *s)
{
        static const char words[] =
                " auto bool break case catch char class const continue default delete do double "
                "else enum explicit export extern false float for friend goto if inline int long "
                "mutable namespace new operator private protected public register restrict return "
                "short signed sizeof static struct switch template this throw true try typedef "
                "typename union unsigned using virtual void volatile while and or not xor asm abs "
                "acos asin assert atan ceil cos cosh erf errno exp fabs floor fma index j0 j1 "
                "linux log max min pow rint round signal sin sinh sqrt stderr stdin stdout tan "
                "tanh unix y0 y1 TmaMap accumulate bf16 dropout f16 from_float gelu gelu_grad "
                "gelu_tanh gelu_tanh_grad gelu_slope gelu_tanh_slope load rope share sigmoid silu "
                "silu_grad silu_slope store to_float B T V a arg args att col dloss dout prologue "
                "prologue_dy in j n out row rt scale_ sg norm_epilogue smem so epilogue "
                "epilogue_k epilogue_v tile tiles v work ";
        size_t n = strlen(s);
        for (const char *p = words; (p = strstr(p, s)); p += n)
                if (p[-1] == ' ' && p[n] == ' ')
                        return true;
        if (n > 5 && !strcmp(s + n - 5, "_task"))
                return true;
        /* p0 c1 n2 o3: the functors' own */
        return strchr("pcno", s[0]) && s[1] && strspn(s + 1, "0123456789") == strlen(s + 1);
}

/* The last part of a node's name that is not a number, as a C identifier. */
const char *short_name(Emit *e, Ref r)
{
        const char *s = NODE(e->g, r)->name, *end = s + strlen(s), *b;
        char buf[40];
        int n = 0;
        for (;;) {
                b = end;
                while (b > s && b[-1] != '.')
                        b--;
                size_t len = (size_t)(end - b);
                bool dull = strspn(b, "0123456789") >= len ||
                            (len == 6 && !strncmp(b, "weight", 6)) ||
                            (len == 4 && !strncmp(b, "bias", 4));
                if (!dull || b == s)
                        break;
                end = b - 1;
        }
        if (!isalpha((unsigned char)*b))
                buf[n++] = 'x';
        for (; b < end && n < 30; b++)
                buf[n++] = isalnum((unsigned char)*b) ? *b : '_';
        while (n > 1 && isdigit((unsigned char)buf[n - 1])) /* k0, k1 of two layers are one name */
                n--;
        buf[n] = 0;
        if (taken(buf))
                strcat(buf, "_");
        return arena_str(e->tmp, buf);
}

bool dim_known(const Emit *e, Dim d)
{
        bool known = true;
        for (int i = 0; i < N_SYM; i++)
                known &= !d.e[i] || e->g->sizes.v[i];
        return known;
}

Dim dim_here(const Emit *e, Dim d)
{
        const Sizes *s = &e->g->sizes;
        for (int i = 0; i < N_SYM; i++)
                while (d.e[i] && s->v[i]) {
                        d.n *= s->v[i];
                        d.e[i]--;
                }
        return d;
}

const char *dim_c(Emit *e, Dim d)
{
        char buf[64];
        dim_text(dim_here(e, d), buf);
        return strchr(buf, '*') ? arena_fmt(e->tmp, "(%s)", buf) : arena_str(e->tmp, buf);
}

/* ---- arguments ---------------------------------------------------------- */

/* How a use is known after one more of the same storage: writes of parts add up to the columns
 * from the first to the last of them; with any other use it may be all of the storage. */
static void use_join(Use *u, Use more)
{
        bool parts = u->written && u->hi && more.written && more.hi;
        u->lo = !parts ? 0 : more.lo < u->lo ? more.lo : u->lo;
        u->hi = !parts ? 0 : more.hi > u->hi ? more.hi : u->hi;
        u->written |= more.written;
}

static const char *arg_add(Emit *e, Args *a, Slot s, CType type, const char *name, Use use)
{
        char unique[64];
        for (int i = 0; i < a->n; i++)
                if (a->slot[i].kind == s.kind && a->slot[i].id == s.id &&
                    (s.kind != SLOT_ARENA || !strcmp(a->slot[i].arena, s.arena))) {
                        use_join(&a->use[i], use);
                        return a->name[i];
                }
        if (a->n == 64)
                error_internal((Loc) { 0 }, "a kernel has more than 64 arguments");
        snprintf(unique, sizeof unique, "%.40s", name);
        for (int i = 0, k = 1; i < a->n; i++)
                if (!strcmp(a->name[i], unique)) {
                        snprintf(unique, sizeof unique, "%.40s%d", name, ++k);
                        i = -1;
                }
        a->slot[a->n] = s;
        a->type[a->n] = type;
        a->name[a->n] = arena_str(e->tmp, unique);
        a->use[a->n] = use;
        return a->name[a->n++];
}

static const Use reads = { 0 }, writes = { .written = true };

const char *arg_of(Emit *e, Args *a, Ref base, bool write)
{
        const Storage blocks = blocks_of(e, base);
        if (e->decoded && e->decoded[base])
                return arg_done(e, a, e->decoded[base] - 1, ctype_of(NODE(e->g, base)->type.dt),
                                short_name(e, base));
        e->m->stored |= (uint64_t)(blocks != 0) << blocks;
        return arg_add(e, a, (Slot) { .kind = SLOT_NODE, .id = base },
                       blocks ? C_U8 : ctype_of(NODE(e->g, base)->type.dt), short_name(e, base),
                       write ? writes : reads);
}

const char *arg_part(Emit *e, Args *a, Ref part, Ref base)
{
        Use use = writes;
        const Place *p = &e->place[part];
        if (p->whole == base) { /* not a part of a part: that may be all of it */
                const Type *t = &NODE(e->g, part)->type;
                const Node *w = NODE(e->g, base);
                use.lo = use.hi = p->at;
                for (int i = 0; i < w->n_in; i++) {
                        const Ref v = part_value(e->g, w->in[i]);
                        t = &NODE(e->g, w->in[i])->type;
                        if (v == part)
                                use.hi = use.lo + t->dim[t->rank - 1].n;
                }
        }
        return arg_add(e, a, (Slot) { .kind = SLOT_NODE, .id = base },
                       ctype_of(NODE(e->g, base)->type.dt), short_name(e, base), use);
}

const char *arg_grad(Emit *e, Args *a, Ref param, DType dt)
{
        return arg_add(e, a, (Slot) { .kind = SLOT_GRAD, .id = param }, ctype_of(dt),
                       arena_fmt(e->tmp, "d_%s", short_name(e, param)), writes);
}

const char *arg_work(Emit *e, Args *a, int work, CType type, const char *name)
{
        return arg_add(e, a, (Slot) { .kind = SLOT_WORK, .id = work }, type, name, writes);
}

const char *arg_done(Emit *e, Args *a, int work, CType type, const char *name)
{
        return arg_add(e, a, (Slot) { .kind = SLOT_WORK, .id = work }, type, name, reads);
}

const char *arg_arena(Emit *e, Args *a, const char *arena, CType type, const char *name)
{
        return arg_add(e, a, (Slot) { .kind = SLOT_ARENA, .arena = arena }, type, name, writes);
}

const char *arg_int(Emit *e, Args *a, int value, const char *name)
{
        return arg_add(e, a, (Slot) { .kind = SLOT_INT, .id = value }, C_I32, name, reads);
}

static bool map_equal(const TensorMap *a, const TensorMap *b)
{
        return a->of.kind == b->of.kind && a->of.id == b->of.id && a->of.off == b->of.off &&
               a->dt == b->dt && a->rows == b->rows && a->cols == b->cols && a->ld == b->ld &&
               a->box_rows == b->box_rows && a->box_bytes == b->box_bytes;
}

const char *arg_map(Emit *e, Args *a, const TensorMap *m, const char *name)
{
        if (m->rows < 1 || m->cols < 1 || m->ld < 1)
                error_internal((Loc) { 0 }, "a tensor map of %lld x %lld, rows %lld apart",
                               (long long)m->rows, (long long)m->cols, (long long)m->ld);
        for (int i = 0; i < a->n; i++)
                if (a->slot[i].kind == SLOT_MAP && map_equal(&e->map[a->slot[i].id], m))
                        return a->name[i];
        if (e->n_map == e->cap_map) {
                e->cap_map = e->cap_map ? e->cap_map * 2 : 64;
                e->map = mem_grow(e->map, (size_t)e->cap_map * sizeof *e->map);
        }
        e->map[e->n_map] = *m;
        return arg_add(e, a, (Slot) { .kind = SLOT_MAP, .id = e->n_map++ }, C_MAP, name, reads);
}

int work_new(Emit *e, Dim elems, int size)
{
        if (e->n_work == e->cap_work) {
                e->cap_work = e->cap_work ? e->cap_work * 2 : 16;
                e->work = mem_grow(e->work, (size_t)e->cap_work * sizeof *e->work);
        }
        e->work[e->n_work] = (Work) { elems, size, NULL };
        return e->n_work++;
}

int work_keep(Emit *e, Dim elems, int size, const char *name)
{
        int w = work_new(e, elems, size);
        e->work[w].keep = name;
        return w;
}

/* ---- text --------------------------------------------------------------- */

Build build_start(Emit *e, const Group *gr, const char *include, const char *title)
{
        return (Build) { .e = e,
                         .gr = gr,
                         .title = title,
                         .form[ARCH_ANY] = { .include = include, .threads = 128, .min_blocks = 1 },
                         .at = N_ARCHS };
}

void build_line(Build *b, const char *fmt, ...)
{
        char buf[2048];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(buf, sizeof buf, fmt, ap);
        va_end(ap);
        text_add(build_body(b), "        %s\n", buf);
}

FunctorText build_functor(Build *b, const Functor *f, const char *name)
{
        FunctorText t;
        functor_emit(b->e, &b->args, f, arena_fmt(b->e->tmp, "\1_%s", name), &t);
        text_put(build_decl(b), t.text.s, t.text.n);
        text_free(&t.text);
        b->flops += t.flops;
        b->bytes += t.bytes;
        return t;
}

void build_cpu_functor(Build *b, const char *name, const char *body)
{
        text_add(build_decl(b),
                 "TGC_INLINE void \1_%s(const void *args, long row, int col, int n, float *v)\n"
                 "{\n"
                 "        const \1_args *a = args;\n"
                 "%s}\n\n",
                 name, body);
}

void build_cpu_rows(Build *b, DType dt, const char *arg, int64_t ld)
{
        build_cpu_functor(b, "prologue",
                          arena_fmt(b->e->tmp, "        load_%s(v, a->%s + row * %lld + col, n);\n",
                                    c_type(dt), arg, (long long)ld));
}

/* operations below which a second thread costs more than it brings */
enum { PARALLEL_WORK = 400000 };

void build_cpu_loop(Build *b, const char *tiles, double work, const char *call)
{
        build_cpu_loop_after(b, tiles, work, NULL, call);
}

void build_cpu_loop_after(Build *b, const char *tiles, double work, const char *first,
                          const char *call)
{
        const Sizes *s = &b->e->g->sizes;
        const bool fixed = s->v[SYM_T] && s->v[SYM_B];
        b->shared = true;
        build_line(b, "TeamWork work = team_begin(view, %s, %s);", tiles,
                   !fixed                 ? "rt->T > 1"
                   : work > PARALLEL_WORK ? "1"
                                          : "0");
        build_line(b, "while (team_next(&work)) {");
        if (first) {
                build_line(b, "        if (work.first)");
                build_line(b, "                %s", first);
        }
        build_line(b, "        for (long tile = work.from; tile < work.to; tile++)");
        build_line(b, "                %s", call);
        build_line(b, "}");
}

void build_prefetch(Build *b, PrefetchKind kind, const Slot *first, const Slot *second)
{
        Prefetch *x = arena_alloc(b->e->m->arena, sizeof *x);
        *x = (Prefetch) { { *first, second ? *second : *first }, kind };
        b->prefetch = x;
        b->prefetch_in = b->at;
}

void build_shift(Build *b, const char *arg, int64_t bytes)
{
        for (int i = 0; i < b->args.n; i++)
                if (!strcmp(b->args.name[i], arg))
                        b->args.slot[i].off = bytes;
}

/* What was merged, and from which lines: a comment for people and for dumps. */
static const char *where_text(Emit *e, const Group *gr)
{
        Text t = { 0 };
        const char *s;
        char file[LOC_NAME];
        for (int i = 0; gr && i < gr->n_nodes; i++) {
                const Node *n = NODE(e->g, gr->node[i]);
                if (op_info[n->op].cls == CLASS_VIEW)
                        continue;
                text_add(&t, "%%%s = %s(", n->name, op_info[n->op].text);
                for (int j = 0; j < n->n_in; j++)
                        text_add(&t, "%s%%%s", j ? ", " : "", NODE(e->g, n->in[j])->name);
                text_add(&t, ")");
                if (n->loc.file && n->loc.line)
                        text_add(&t, "\t%s:%d", loc_name(n->loc, file), n->loc.line);
                text_add(&t, "\n");
        }
        s = arena_str(e->m->arena, t.s ? t.s : "");
        text_free(&t);
        return s;
}

/* Names of the arguments that are only read, or written. */
static const char *arg_names(Build *b, bool written)
{
        Text t = { 0 };
        for (int i = 0; i < b->args.n; i++)
                if (b->args.use[i].written == written)
                        text_add(&t, "%s%s", t.n ? ", " : "", b->args.name[i]);
        const char *s = arena_str(b->e->m->arena, t.s ? t.s : "");
        text_free(&t);
        return s;
}

/* The struct of arguments, then the functors.  Maps stay where the launch put them: the struct has
 * their addresses. */
static const char *decl_text(Build *b)
{
        const Args *a = &b->args;
        bool cuda = is_cuda(b->e);
        Text t = { 0 };
        text_add(&t, "%sstruct \1_args {\n        const Rt *rt;\n", cuda ? "" : "typedef ");
        for (int i = 0; i < a->n; i++)
                text_add(&t, "        %s%s *%s;\n", a->use[i].written ? "" : "const ",
                         a->slot[i].kind == SLOT_MAP ? "void" : ctype_text(a->type[i]), a->name[i]);
        text_add(&t, cuda ? "};\n\n" : "} \1_args;\n\n");
        if (b->text[N_ARCHS].decl.s)
                text_put(&t, b->text[N_ARCHS].decl.s, b->text[N_ARCHS].decl.n);
        const char *s = arena_str(b->e->m->arena, t.s);
        text_free(&t);
        return s;
}

/* As a parameter: the launch's copy, whose address the copy engine takes. */
const char map_param[] = "const __grid_constant__ TmaMap ";

void build_drop(Build *b)
{
        for (int i = 0; i <= N_ARCHS; i++) {
                text_free(&b->text[i].decl);
                text_free(&b->text[i].body);
        }
}

/* Milliseconds NVRTC takes for it: the dearest header's, and what members add. */
static int compile_ms(const Build *b)
{
        static const struct {
                const char *include;
                int ms;
        } cost[] = {
#define COST(include, ms) { include, ms },
#include "../forms/compile_cost.def"
        };
        static const struct {
                const char *begins;
                int ms;
        } op_cost[] = {
#define OP_COST(begins, ms) { begins, ms },
#include "../forms/compile_cost.def"
        };
        enum { N_OP_COST = sizeof op_cost / sizeof *op_cost };
        bool has[N_OP_COST] = { false };
        int most = 0, ops = 0;
        for (int i = 0; i < N_ARCHS; i++)
                for (size_t k = 0; b->form[i].include && k < sizeof cost / sizeof *cost; k++)
                        if (!strcmp(cost[k].include, b->form[i].include) && cost[k].ms > most)
                                most = cost[k].ms;
        for (int i = 0; b->gr && i < b->gr->n_nodes; i++) {
                const char *op = op_info[NODE(b->e->g, b->gr->node[i])->op].text;
                for (int k = 0; k < N_OP_COST; k++)
                        has[k] |= !strncmp(op, op_cost[k].begins, strlen(op_cost[k].begins));
        }
        for (int k = 0; k < N_OP_COST; k++)
                ops += has[k] * op_cost[k].ms;
        return most + b->compile_ms + ops;
}

static Piece *piece_of(Build *b, Grid grid)
{
        Arena *m = b->e->m->arena;
        const Args *a = &b->args;
        Piece *p = arena_alloc(m, sizeof *p);
        *p = (Piece) { .title = arena_str(m, b->title),
                       .decl = decl_text(b),
                       .body = arena_str(m, b->text[N_ARCHS].body.s ? b->text[N_ARCHS].body.s : ""),
                       .us = b->us,
                       .n_args = a->n,
                       .prefetch = b->prefetch,
                       .prefetch_in = b->prefetch_in,
                       .alone = b->alone,
                       .plain = b->plain,
                       .streams = b->streams,
                       .shared = b->shared,
                       .after_wait = b->after_wait,
                       .late = b->late,
                       .beside = b->beside,
                       .multiplies_bf16 = b->multiplies_bf16,
                       .single_wave = b->single_wave,
                       .joins = b->joins,
                       .tile = b->tile,
                       .compile_ms = compile_ms(b),
                       .flops = b->flops,
                       .bytes = b->bytes,
                       .where = where_text(b->e, b->gr),
                       .group = b->gr ? b->gr->id : 0,
                       .reads = arg_names(b, false),
                       .writes = arg_names(b, true) };
        b->any.grid = grid;
        for (int i = 0; i < N_ARCHS; i++) {
                const Text *decl = &b->text[i].decl, *body = &b->text[i].body;
                Form *f = &p->form[i];
                *f = b->form[i];
                f->include = f->include ? arena_str(m, f->include) : NULL;
                f->decl = decl->s ? arena_str(m, decl->s) : NULL;
                f->body = body->s ? arena_str(m, body->s) : NULL;
        }
        p->type = arena_alloc(m, (size_t)(a->n + 1) * sizeof *p->type);
        p->ctype = arena_alloc(m, (size_t)(a->n + 1) * sizeof *p->ctype);
        p->name = arena_alloc(m, (size_t)(a->n + 1) * sizeof *p->name);
        for (int i = 0; i < a->n; i++) {
                p->fast |= !p->plain && (a->type[i] == C_BF16 || a->type[i] == C_F16);
                p->ctype[i] = a->type[i];
                p->type[i] = a->slot[i].kind == SLOT_MAP
                                     ? map_param
                                     : arena_fmt(m, "%s%s *", a->use[i].written ? "" : "const ",
                                                 ctype_text(a->type[i]));
                p->name[i] = arena_str(m, a->name[i]);
        }
        return p;
}

void build_end(Build *b, Grid grid)
{
        Emit *e = b->e;
        Arena *m = e->m->arena;
        const Args *a = &b->args;
        if (e->n_launch == e->cap_launch) {
                e->cap_launch = e->cap_launch ? e->cap_launch * 2 : 256;
                e->launch = mem_grow(e->launch, (size_t)e->cap_launch * sizeof *e->launch);
        }
        Launch *l = &e->launch[e->n_launch++];
        *l = (Launch) { .n_args = a->n, .n_pieces = 1 };
        l->arg = arena_alloc(m, (size_t)(a->n + 1) * sizeof *l->arg);
        l->use = arena_alloc(m, (size_t)(a->n + 1) * sizeof *l->use);
        memcpy(l->arg, a->slot, (size_t)a->n * sizeof *l->arg);
        memcpy(l->use, a->use, (size_t)a->n * sizeof *l->use);
        l->piece = arena_alloc(m, sizeof(Piece *));
        l->piece[0] = piece_of(b, grid);
        memcpy(l->form, l->piece[0]->form, sizeof l->form);
        build_drop(b);
}

int64_t dim_most(Emit *e, Dim d)
{
        Sizes s = e->g->sizes;
        for (int i = 0; i < N_SYM; i++)
                if (!s.v[i])
                        s.v[i] = i == SYM_B ? e->most_b : i == SYM_T ? e->most_t : 1;
        return dim_value(d, &s);
}

const char *ty_of(Emit *e, Ref base)
{
        const Storage s = blocks_of(e, base);
        return s ? arena_fmt(e->tmp, "TY_%s", storage_name[s]) : ty(NODE(e->g, base)->type.dt);
}

void stored_list_text(uint64_t bits, Text *t)
{
        if (!bits)
                return;
        text_add(t, "#define TGC_STORED(X)");
#define STORAGE(e, name, gguf, values, bytes, is_float, decode)
#define BLOCKS(e, name, gguf, values, bytes, decode) \
        if (bits >> STORAGE_##e & 1)                 \
                text_add(t, " X(%s, %d, %d, %s)", name, values, bytes, #decode);
#include "../../ir/storage.def"
        text_add(t, "\n");
}

void stored_types_text(uint64_t bits, Text *t)
{
#define STORAGE(e, name, gguf, values, bytes, is_float, decode)
#define BLOCKS(e, name, gguf, values, bytes, decode)                      \
        if (bits >> STORAGE_##e & 1)                                      \
                text_add(t,                                               \
                         "#ifndef TGC_STORED_%s\n#define TGC_STORED_%s\n" \
                         "TGC_STORED_TYPE(%s, %d, %d, %s)\n#endif\n",     \
                         name, name, name, values, bytes, #decode);
#include "../../ir/storage.def"
}

const char *ty(DType dt)
{
        return dt == DT_F32    ? "TY_F32"
               : dt == DT_BF16 ? "TY_BF16"
               : dt == DT_FP8  ? "TY_FP8"
                               : "TY_F16";
}

const char *plain_arg(Emit *e, Build *b, Ref r)
{
        Access a;
        access_need(e->g, e->place, r, &a);
        const char *name = arg_of(e, &b->args, a.base, false);
        return a.off ? arena_fmt(e->tmp, "(a.%s + %lld)", name, (long long)a.off)
                     : arena_fmt(e->tmp, "a.%s", name);
}

/* By node: the first of its results that is a node, and after such a one the next. */
struct Items {
        Ref *first, *next;
};

Ref item_of(Emit *e, Ref r, int index)
{
        if (!e->items) {
                const size_t n = (size_t)e->g->n_nodes;
                e->items = arena_alloc(e->m->arena, sizeof *e->items);
                e->items->first = arena_alloc(e->m->arena, n * sizeof(Ref));
                e->items->next = arena_alloc(e->m->arena, n * sizeof(Ref));
                for (Ref i = e->g->n_nodes - 1; i > 0; i--)
                        if (NODE(e->g, i)->op == OP_ITEM) {
                                e->items->next[i] = e->items->first[NODE(e->g, i)->in[0]];
                                e->items->first[NODE(e->g, i)->in[0]] = i;
                        }
        }
        for (Ref i = e->items->first[r]; i; i = e->items->next[i])
                if (NODE(e->g, i)->a.item.index == index)
                        return i;
        return 0;
}
