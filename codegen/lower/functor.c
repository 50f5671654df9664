/* functor.c: writes a prologue, an epilogue or a map as text, in CUDA and in C.
 *
 * The members of a functor are evaluated for neighbouring elements of one row.
 * Every member lives in a domain, which says how its columns relate to those the
 * functor was called for:
 *
 *      root     the same columns
 *      slice    columns [start, start+n) of the parent: a branch of its own
 *      half     every second column of the parent (of interleaved pairs)
 *      twice    the pairs that interleave makes of the parent's columns
 *
 * Domains that are not behind a slice share one loop.  One step of it handles
 * `lanes` elements of the loop's first domain: 2 where neighbours are a pair.
 *
 * CUDA loads and stores vectors around an unrolled loop of scalar code.  C has one loop, which the
 * compiler vectorises.
 *
 *      node      %s = silu %v, %y = mul %s, %u     an epilogue; %v arrives, %u is loaded
 *      domain    root: rows T, columns 512         functor_domain.c
 *      address   u, y: row * 512 + col             functor_address.c, index.c
 *      text      load<V>(u, p0 + col);             functor_read.c, index_text.c
 *                float silu = v[j] / (1.f + expf(-v[j]));    functor_value.c
 *                float y = silu * u[j];
 *                store<V>(a.y + (long)row * 512 + col, y_v); functor_write.c */
#include "functor.h"
#include <string.h>

/* A note on what a line computes. */
static const char *note(F *f, Ref r) { return op_info[NODE(f->g, r)->op].text; }

/* What costs more for fewer neighbours at a time. */
static bool wants_many(Op op) { return op_is(op, FACT_RANDOM) || op == OP_ROPE; }

/* Arrays of what the loop makes for others, and dropout's numbers. */
static void emit_results(F *f, int loop, int depth)
{
        const Functor *fn = f->f;
        for (int i = 0; i < fn->n_nodes; i++) {
                Ref r = fn->node[i];
                f->mixed |= wants_many(NODE(f->g, r)->op);
                if (f->dom[f->dom_of[r] - 1].loop == loop && NODE(f->g, r)->op == OP_DROPOUT)
                        LINE(depth, "const unsigned %s_id = (unsigned)*%s;", f_name_of(f, r),
                             f_member(f, arg_int(f->e, f->a, (int)NODE(f->g, r)->a.drop.id,
                                                 "drop_id")));
        }
        for (int i = 0; i < fn->n_nodes; i++) {
                Ref r = fn->node[i];
                int d = f->dom_of[r] - 1;
                if (f->dom[d].loop != loop)
                        continue;
                if (f->cuda ? f_written(f, r) || f->exported[r] : f->exported[r])
                        LINE(depth, "float %s_v[%s];", f_name_of(f, r),
                             f->cuda                         ? f_width(f, d)
                             : f->dom[d].num > f->dom[d].den ? "2 * TGC_SEG"
                                                             : "TGC_SEG");
                if (!f->cuda && f_written(f, r))
                        f_emit_row(f, depth, r);
        }
}

/* The loop itself.  root: C, the functor's root is stored here. */
static void emit_values(F *f, int loop, int depth, bool root)
{
        const Functor *fn = f->f;
        int step = f->dom[loop].lanes;
        const char *inc = step == 1 ? "j++" : f_fmt(f, "j += %d", step);
        if (f->cuda) {
                LINE(depth, "#pragma unroll");
                LINE(depth, "for (int j = 0; j < V; %s) {", inc);
        } else {
                LINE(depth, "TGC_IVDEP");
                LINE(depth, "for (int j = 0; j < %s; %s) {", loop ? f_fmt(f, "n%d", loop) : "n",
                     inc);
        }
        if (root)
                for (int k = 0; k < f->dom[0].lanes; k++)
                        f_store_lane(f, depth + 1, fn->root, k, f_var(f, fn->root, k));
        for (int i = 0; i < fn->n_nodes; i++) {
                Ref r = fn->node[i];
                int d = f->dom_of[r] - 1, lanes = f->dom[d].lanes;
                if (f->dom[d].loop != loop)
                        continue;
                for (int k = 0; k < lanes; k++) {
                        if (NODE(f->g, r)->op == OP_ROPE) {
                                if (k % 2 == 0)
                                        f_rope_lines(f, depth + 1, r, k);
                        } else {
                                LINE(depth + 1, "float %s = %s;%s", f_var(f, r, k), f_expr(f, r, k),
                                     k ? "" : f_fmt(f, "   // %s", note(f, r)));
                        }
                }
                for (int k = 0; k < lanes; k++) {
                        if (f->cuda ? f_written(f, r) || f->exported[r] : f->exported[r])
                                LINE(depth + 1, "%s_v[%s] = %s;", f_name_of(f, r), f_lane(f, d, k),
                                     f_var(f, r, k));
                        if (!f->cuda && f_written(f, r))
                                f_store_lane(f, depth + 1, r, k, f_var(f, r, k));
                        if (fn->prologue && r == fn->root)
                                LINE(depth + 1, "v[%s] = %s;", f_lane(f, d, k), f_var(f, r, k));
                }
                f->out->flops += f->elems * f->dom[d].num / f->dom[d].den;
        }
        for (int i = 0; i < fn->n_nodes && fn->result; i++) { /* once nothing reads v any more */
                int d = f->dom_of[fn->node[i]] - 1;
                for (int k = 0;
                     fn->node[i] == fn->result && f->dom[d].loop == loop && k < f->dom[d].lanes;
                     k++)
                        LINE(depth + 1, "v[%s] = %s;", f_lane(f, d, k), f_var(f, fn->result, k));
        }
        LINE(depth, "}");
}

/* Opens a block for the columns that a slice takes. */
static void open_slice(F *f, int d, int loop, int depth)
{
        const Dom *x = &f->dom[d];
        const char *c = x->parent == loop || f->dom[x->parent].num == f->dom[x->parent].den
                                ? (loop ? f_fmt(f, "c%d", loop) : "col")
                                : "col";
        int64_t end = x->start + x->n, m = x->start | x->n | 8;
        m &= -m;
        f->align = m < f->align ? m : f->align;
        if (f->cuda) {
                if (x->start == 0)
                        LINE(depth, "if (%s < %lld) {", c, (long long)end);
                else if (end == f->dom[x->parent].n)
                        LINE(depth, "if (%s >= %lld) {", c, (long long)x->start);
                else
                        LINE(depth, "if (%s >= %lld && %s < %lld) {", c, (long long)x->start, c,
                             (long long)end);
                LINE(depth + 1, "const int c%d = %s - %lld;", d, c, (long long)x->start);
        } else {
                const char *n = loop ? f_fmt(f, "n%d", loop) : "n";
                LINE(depth, "if (%s < %lld && %s + %s > %lld) {", c, (long long)end, c, n,
                     (long long)x->start);
                LINE(depth + 1, "const int o%d = %s < %lld ? %lld - %s : 0, c%d = %s + o%d - %lld;",
                     d, c, (long long)x->start, (long long)x->start, c, d, c, d,
                     (long long)x->start);
                LINE(depth + 1, "const int n%d = %s + %s > %lld ? %lld - %s - o%d : %s - o%d;", d,
                     c, n, (long long)end, (long long)end, c, d, n, d);
        }
}

static void emit_loop(F *f, int loop, int depth)
{
        const Functor *fn = f->f;
        bool any = false,
             root_here = fn->root && !fn->prologue && loop == 0 && f_written(f, fn->root);
        for (int i = 0; i < fn->n_nodes; i++)
                any |= f->dom[f->dom_of[fn->node[i]] - 1].loop == loop;
        f_emit_loads(f, loop, depth);
        emit_results(f, loop, depth);
        if (root_here && !f->cuda)
                f_emit_row(f, depth, fn->root);
        if (any || (root_here && !f->cuda))
                emit_values(f, loop, depth, root_here && !f->cuda);
        if (f->cuda) {
                if (root_here)
                        f_emit_stores(f, depth, fn->root);
                for (int i = 0; i < fn->n_nodes; i++)
                        if (f->dom[f->dom_of[fn->node[i]] - 1].loop == loop &&
                            f_written(f, fn->node[i]))
                                f_emit_stores(f, depth, fn->node[i]);
        }
        for (int d = 0; d < f->n_dom; d++) {
                if (f->dom[d].kind != DOM_SLICE || d == loop ||
                    f->dom[f->dom[d].parent].loop != loop)
                        continue;
                open_slice(f, d, loop, depth);
                emit_loop(f, d, depth + 1);
                LINE(depth, "}");
        }
}

/* Does it move float32 and nothing else? */
static bool floats_alone(F *f)
{
        bool yes = !f_written(f, f->f->root);
        for (int i = 0; i < f->n_load; i++)
                yes &= f->load[i].from.dt == DT_F32;
        for (int i = 0; i < f->f->n_nodes; i++) {
                const Node *n = NODE(f->g, f->f->node[i]);
                yes &= !f_written(f, f->f->node[i]) || n->type.dt == DT_F32;
        }
        return yes;
}

static double slot_bytes(F *f)
{
        double b = 0;
        for (int i = 0; i < f->n_load; i++) /* what is the same in all rows is read once */
                if (!f->load[i].scalar)
                        b += (index_has_base(&f->load[i].from.at) ? f->elems : (double)f->f->n) *
                             dt_size[f->load[i].from.dt];
        for (int i = 0; i < f->f->n_nodes; i++)
                if (f_written(f, f->f->node[i]))
                        b += f->elems * dt_size[NODE(f->g, f->f->node[i])->type.dt];
        if (f->f->root &&
            (f->f->prologue ? !f->f->n_nodes
                            : f_written(f, f->f->root))) /* a plain prologue reads it */
                b += f->elems * dt_size[NODE(f->g, f->f->root)->type.dt];
        return b;
}

void f_size_lines(F *f, int d)
{
        if (f->print.uses_T)
                LINE(d, "const int T = %s;", f_rt(f, "T"));
        if (f->print.uses_B)
                LINE(d, "const int B = %s;", f_rt(f, "B"));
}

/* Of as many entries as there are nodes a functor needs a few: they are emptied after it. */
typedef struct Scratch {
        int *dom_of;
        bool *exported;
        char (*name)[48];
        Ref *named;
} Scratch;

static Scratch *scratch_new(Emit *e)
{
        const size_t n = (size_t)e->g->n_nodes;
        Arena *a = e->m->arena;
        Scratch *x = arena_alloc(a, sizeof *x);
        x->dom_of = arena_alloc(a, n * sizeof *x->dom_of);
        x->exported = arena_alloc(a, n);
        x->name = arena_alloc(a, n * sizeof *x->name);
        x->named = arena_alloc(a, n * sizeof *x->named);
        return x;
}

static void scratch_empty(F *f)
{
        for (int i = 0; i < f->n_named; i++)
                f->name[f->named[i]][0] = 0;
        for (int i = -1; i < f->f->n_nodes; i++) {
                const Ref r = i < 0 ? f->f->root : f->f->node[i];
                f->dom_of[r] = 0;
                f->exported[r] = false;
        }
}

/* A product's epilogue, of the one token of one sequence: what it reads beside the product starts
 * before it. */
static bool one_token(const F *f)
{
        return f->cuda && f->f->root && !f->f->prologue &&
               NODE(f->g, f->f->root)->op == OP_MATMUL && f->g->sizes.v[SYM_B] == 1 &&
               f->g->sizes.v[SYM_T] == 1;
}

void functor_emit(Emit *e, Args *a, const Functor *fn, const char *name, FunctorText *out)
{
        F *f = arena_alloc(e->tmp, sizeof *f);
        Graph *g = e->g;
        *f = (F) { .e = e,
                   .a = a,
                   .f = fn,
                   .g = g,
                   .cuda = e->m->target == TARGET_CUDA,
                   .align = 8,
                   .out = out };
        f->print = (IndexPrinter) { .e = e,
                                    .cuda = f->cuda,
                                    .position = one_token(f) ? "in.pos" : NULL };
        Scratch *x = e->scratch = e->scratch ? e->scratch : scratch_new(e);
        f->dom_of = x->dom_of, f->exported = x->exported, f->name = x->name, f->named = x->named;
        *out = (FunctorText) { .minv = fn->least ? fn->least : 1 };
        f->elems = (double)dim_most(e, fn->rows) * (double)(fn->n ? fn->n : 1);
        f_place_members(f);
        if (fn->prologue && !fn->n_nodes)
                f_emit_plain_prologue(f, f->cuda ? 2 : 1);
        else
                emit_loop(f, 0, f->cuda ? 2 : 1);
        Text body = out->text;
        out->text = (Text) { 0 };
        int64_t v = f->align;
        while (fn->n && fn->n % v)
                v /= 2;
        if (!fn->n)
                v = 1;
        if (v > 4 && fn->root && !fn->prologue && NODE(g, fn->root)->op == OP_MATMUL &&
            floats_alone(f))
                v = 4; /* a quad of lanes then covers 64 bytes in one piece */
        if (v < out->minv)
                v = out->minv;
        out->maxv = (int)v;
        out->bytes = slot_bytes(f);
        for (int i = 0; i < f->n_load; i++) {
                out->reads |= index_has_base(&f->load[i].from.at) && !f->load[i].scalar;
                out->by_row |= index_has_base(&f->load[i].from.at);
        }
        if (f->cuda) {
                text_add(&out->text,
                         "struct %s {\n"
                         "        static constexpr int MAXV = %d, MINV = %d;\n"
                         "        const \1_args &a;\n",
                         name, out->maxv, out->minv);
                const bool ahead = f->in.s || f->in_rows.s;
                if (f->stores)
                        text_add(&out->text,
                                 "        static constexpr int STORES = %d, WIDTH0 = %d, WIDTH1 = "
                                 "%d, READ = %d;\n",
                                 f->mixed ? 0 : f->stores, f->stored[0].width, f->stored[1].width,
                                 f->read);
                if (!f->mixed && f->stores <= MOST_STORED && v == 8 &&
                    (!f->read || f->read == f->stored[0].width))
                        out->n_stored = f->stores;
                memcpy(out->stored, f->stored, sizeof out->stored);
                if (f->read > 0)
                        out->from = f->from;
                if (ahead)
                        f_emit_in(f);
                text_add(&out->text,
                         "        template <int V%s> __device__ __forceinline__ void "
                         "operator()(int row, int col, float (&v)[V]%s%s) const\n"
                         "        {\n",
                         f->stores ? ", class Out = Straight" : "",
                         ahead ? ", const In<V> &in" : "",
                         f->stores ? ", const Out &out = Out()" : "");
        } else {
                text_add(&out->text,
                         "TGC_INLINE void %s(const void *args, long row, int col, int n, float "
                         "*v)\n"
                         "{\n"
                         "        const \1_args *a = args;\n",
                         name);
                text_add(&out->text, "        (void)row, (void)col, (void)n, (void)v, (void)a;\n");
        }
        f_size_lines(f, f->cuda ? 2 : 1);
        if (body.s)
                text_put(&out->text, body.s, body.n);
        text_add(&out->text, f->cuda ? "        }\n};\n\n" : "}\n\n");
        text_free(&body);
        scratch_empty(f);
}
