/* functor.c: a prologue, an epilogue or a map as text, in CUDA and in C.
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
 * CUDA loads and stores vectors around an unrolled loop of scalar code; C has
 * everything in one loop that the compiler vectorises. */
#include "functor.h"
#include <stdlib.h>
#include <string.h>

/* A prologue with nothing fused: the value as it lies in memory. */
static void emit_plain_prologue(F *f, int depth)
{
        Access acc;
        Index ix;
        char col[512];
        access_need(f->g, f->e->place, f->f->root, &acc);
        f_index_of(f, &acc.t, acc.stride, acc.off, f->f->n, &ix);
        const char *arg = f_member(f, arg_of(f->e, f->a, acc.base, false));
        DType dt = NODE(f->g, acc.base)->type.dt;
        f->out->by_row = ix.row[0] != 0;
        LINE(depth, "const %s *p = %s%s;", c_type(dt), arg, ix.row);
        if (f->cuda && ix.vector) {
                f_subst(col, sizeof col, ix.col, "col");
                LINE(depth, "load<V>(v, p + %s);", col);
                return;
        }
        f_subst(col, sizeof col, ix.col[0] ? ix.col : "0", "(col + j)");
        LINE(depth, "for (int j = 0; j < %s; j++)", f->cuda ? "V" : "n");
        LINE(depth + 1, f->cuda ? "v[j] = to_float(%s);" : "v[j] = %s;",
             f->cuda ? f_fmt(f, "p[%s]", col) : f_to_float(dt, f_fmt(f, "p[%s]", col), f));
}

static bool written(F *f, Ref r)
{
        Op op = NODE(f->g, r)->op;
        return op == OP_ACCUM || op == OP_APPEND || f->e->stored[r];
}

/* Names and loads in the order of use, so that text is stable. */
static void collect(F *f, int loop)
{
        for (int i = 0; i < f->f->n_nodes; i++) {
                Ref r = f->f->node[i];
                const Node *n = NODE(f->g, r);
                if (f->dom[f->dom_of[r] - 1].loop != loop)
                        continue;
                for (int j = 0; j < n->n_in; j++) {
                        Access seen;
                        if (f_internal(f, value_base(f->g, n->in[j])) ||
                            f_virtual(f, n->in[j], &seen))
                                continue;
                        /* an address, frequencies, what is updated in place */
                        if (strchr("afu", op_reads(n->op, j)))
                                continue;
                        f_load_of(f, r, n->in[j]);
                }
        }
}

/* A note on what a line computes: its value and where the user wrote it. */
static const char *note(F *f, Ref r) { return f_fmt(f, "%s", op_info[NODE(f->g, r)->op].text); }

/* What costs more for fewer neighbours at a time. */
static bool wants_many(Op op) { return op_is(op, FACT_RANDOM) || op == OP_ROPE; }

/* Are reads of this loop known before the functor's values are?  (EpilogueReads in
 * kernels/common/tgc.cuh) */
static bool early(const F *f, int loop)
{
        return f->cuda && loop == 0 && f->f->root && !f->f->prologue;
}

/* Of two neighbours, 1, 2 or 4 values; 0: another number. */
static int pair_width(const Dom *d)
{
        return d->num == d->den ? 2 : d->num * 2 == d->den ? 1 : d->num == d->den * 2 ? 4 : 0;
}

/* Where a store of member r lies as rows of its domain's columns. */
static Stored stored_rows(F *f, Ref r)
{
        const Node *n = NODE(f->g, r);
        const Dom *d = &f->dom[f->dom_of[r] - 1];
        Stored s = { .dt = n->type.dt, .cols = d->n, .width = pair_width(d) };
        Access a;
        Type two = type_of(n->type.dt, 2, f->f->rows, DIM(d->n));
        if (n->op == OP_ACCUM) {
                s.slot = (Slot) { .kind = SLOT_GRAD, .id = n->in[0] };
                s.ld = d->n;
        } else if (n->op != OP_APPEND && access_of(f->g, f->e->place, r, &a) &&
                   access_reshape(&a, &two) && dim_eq(a.stride[1], DIM(1)) &&
                   dim_is_const(a.stride[0])) {
                s.dt = NODE(f->g, a.base)->type.dt;
                s.slot = (Slot) { .kind = SLOT_NODE, .id = a.base, .off = a.off * dt_size[s.dt] };
                s.ld = a.stride[0].n;
        }
        return s;
}

static void emit_stores(F *f, int depth, Ref r)
{
        Index ix;
        const char *ptr;
        DType dt;
        int d = f->dom_of[r] - 1;
        char col[512];
        bool accum = NODE(f->g, r)->op == OP_ACCUM && NODE(f->g, r)->type.dt == DT_F32,
             more = accum && NODE(f->g, r)->a.accum.more;
        const char *src = !f->f->prologue && r == f->f->root ? "v"
                                                             : f_fmt(f, "%s_v", f_name_of(f, r));
        f_store_index(f, r, &ptr, &ix, &dt);
        if (!f->cuda)
                return;
        f_subst(col, sizeof col, ix.col[0] ? ix.col : "0", f_first_col(f, d));
        if (accum && ix.vector && early(f, f->dom[d].loop)) {
                const char *name = f_name_of(f, r),
                           *add = more ? "true" : f_fmt(f, "%s > 0", f_rt(f, "micro"));
                text_add(&f->in_rows, "                Raw<%s, float> %s_sum;\n", f_width(f, d),
                         name);
                text_add(
                        &f->get_rows,
                        "                if (%s)\n                        in.%s_sum.get(%s%s + %s);\n",
                        add, name, ptr, ix.row, col);
                int units = (8 * f->dom[d].num / f->dom[d].den * 4 + 15) / 16;
                f->reads += units;
                f->row_reads += units;
                LINE(depth, "accumulate<%s>(%s%s + %s, %s, %s, in.%s_sum);", f_width(f, d), ptr,
                     ix.row, col, src, add, name);
        } else if (f->f->puts && ix.vector && pair_width(&f->dom[d]) && dt_size[dt] == 2 &&
                   early(f, f->dom[d].loop)) {
                if (f->stores < MOST_STORED)
                        f->stored[f->stores] = stored_rows(f, r);
                LINE(depth, "out.template put<%d>(%s%s + %s, %s);", f->stores++, ptr, ix.row, col,
                     src);
                return;
        } else if (ix.vector || ix.scalar) {
                LINE(depth, "%s<%s>(%s%s + %s, %s%s);", accum ? "accumulate" : "store",
                     f_width(f, d), ptr, ix.row, col, src,
                     accum ? more ? ", true" : f_fmt(f, ", %s > 0", f_rt(f, "micro")) : "");
        } else {
                f_subst(col, sizeof col, ix.col, f_fmt(f, "(%s + j)", f_first_col(f, d)));
                LINE(depth, "for (int j = 0; j < %s; j++)", f_width(f, d));
                LINE(depth + 1, "%s(%s%s + %s, %s[j]%s);", accum ? "accumulate" : "from_float", ptr,
                     ix.row, col, src,
                     accum ? more ? ", true" : f_fmt(f, ", %s > 0", f_rt(f, "micro")) : "");
        }
        f->mixed = true;
}

/* C: the assignment of one lane. */
static void store_lane(F *f, int depth, Ref r, int k, const char *value)
{
        Index ix;
        const char *ptr;
        DType dt;
        char col[512];
        int d = f->dom_of[r] - 1;
        Op op = NODE(f->g, r)->op;
        f_store_index(f, r, &ptr, &ix, &dt);
        f_subst(col, sizeof col, ix.col[0] ? ix.col : "0", f_col_at(f, d, k));
        const char *at = f_fmt(f, "%s_w[%s]", f_name_of(f, r), col);
        if (op == OP_ACCUM)
                LINE(depth, "%s = %s%s;", at,
                     NODE(f->g, r)->a.accum.more
                             ? f_fmt(f, "%s + ", at)
                             : f_fmt(f, "(%s > 0 ? %s : 0.f) + ", f_rt(f, "micro"), at),
                     value);
        else
                LINE(depth, "%s = %s;", at, f_from_float(dt, value, f));
}

static bool of_row(const Load *l) { return strcspn(l->key, " ") < strcspn(l->key, "|"); }

/* An earlier read of the same pairs. */
static const Load *same_pairs(const F *f, const Load *l)
{
        size_t n = strcspn(l->key, "|");
        for (const Load *x = f->load; l->half && x < l; x++)
                if (x->half && x->dom == l->dom && !strncmp(x->key, l->key, n + 1) &&
                    !strcmp(x->col, l->col))
                        return x;
        return l;
}

static void emit_prefetch_load(F *f, int depth, const Load *l, const char *at)
{
        const Dom *d = &f->dom[l->dom];
        const Load *from = same_pairs(f, l);
        char col[512];
        const char *width = f_width(f, l->dom);
        if (from == l) {
                f_subst(col, sizeof col, l->col, f_first_col(f, l->dom));
                text_add(of_row(l) ? &f->in_rows : &f->in, "                Raw<%s%s, %s> %s;\n",
                         l->half ? "2 * " : "", width, c_type(l->dt), l->name);
                text_add(
                        of_row(l) ? &f->get_rows : &f->get_cols,
                        "                const %s *%s = %s;\n                in.%s.get(%s + %s);\n",
                        c_type(l->dt), l->ptr, at, l->name, l->ptr, col);
                int units = ((l->half ? 2 : 1) * 8 * d->num / d->den * (int)dt_size[l->dt] + 15) /
                            16;
                f->reads += units;
                f->row_reads += of_row(l) ? units : 0;
                f->mixed |= of_row(l) && (d->num != d->den || dt_size[l->dt] != 2);
                if (of_row(l)) {
                        f->read = f->read ? -1 : l->half ? 4 : 2;
                        f->from = l->rows;
                }
        }
        LINE(depth, "float %s[%s];", l->name, width);
        LINE(depth, "in.%s.template floats<%d, %d>(%s);", from->name, l->half ? l->half - 1 : 0,
             l->half ? 2 : 1, l->name);
}

/* What the loop reads, before it. */
static void emit_loads(F *f, int loop, int depth)
{
        int first_load = f->n_load;
        collect(f, loop);
        for (int i = first_load; i < f->n_load; i++) {
                Load *l = &f->load[i];
                char col[512];
                char *bar = strchr(l->key, '|');
                const char *at = f_fmt(f, "%.*s", (int)(bar - l->key), l->key);
                f->mixed |= l->scalar;
                if (l->scalar) {
                        if (f->cuda)
                                LINE(depth, "const float %s = to_float(*(%s));", l->name, at);
                        else
                                LINE(depth, "const float %s = %s;", l->name,
                                     f_to_float(l->dt, f_fmt(f, "*(%s)", at), f));
                } else if (early(f, loop) && (l->vector || l->half)) {
                        emit_prefetch_load(f, depth, l, at);
                } else if (f->cuda) {
                        f->mixed = true;
                        LINE(depth, "const %s *%s = %s;", c_type(l->dt), l->ptr, at);
                        LINE(depth, "float %s[%s];", l->name, f_width(f, l->dom));
                        if (l->vector || l->half) {
                                f_subst(col, sizeof col, l->col, f_first_col(f, l->dom));
                                LINE(depth, "load%s(%s, %s + %s);",
                                     l->half ? f_fmt(f, "_half<%s, %d>", f_width(f, l->dom),
                                                     l->half - 1)
                                             : f_fmt(f, "<%s>", f_width(f, l->dom)),
                                     l->name, l->ptr, col);
                        } else {
                                f_subst(col, sizeof col, l->col,
                                        f_fmt(f, "(%s + j)", f_first_col(f, l->dom)));
                                LINE(depth, "for (int j = 0; j < %s; j++)", f_width(f, l->dom));
                                LINE(depth + 1, "%s[j] = to_float(%s[%s]);", l->name, l->ptr, col);
                        }
                } else {
                        LINE(depth, "const %s *%s = %s;", c_type(l->dt), l->ptr, at);
                }
        }
}

/* C: where the row of a stored value lies. */
static void emit_row(F *f, int depth, Ref r)
{
        Index ix;
        const char *ptr;
        DType dt;
        f_store_index(f, r, &ptr, &ix, &dt);
        LINE(depth, "%s *%s_w = %s%s;", c_type(dt), f_name_of(f, r), ptr, ix.row);
}

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
                if (f->cuda ? written(f, r) || f->exported[r] : f->exported[r])
                        LINE(depth, "float %s_v[%s];", f_name_of(f, r),
                             f->cuda                         ? f_width(f, d)
                             : f->dom[d].num > f->dom[d].den ? "2 * TGC_SEG"
                                                             : "TGC_SEG");
                if (!f->cuda && written(f, r))
                        emit_row(f, depth, r);
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
                        store_lane(f, depth + 1, fn->root, k, f_var(f, fn->root, k));
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
                        if (f->cuda ? written(f, r) || f->exported[r] : f->exported[r])
                                LINE(depth + 1, "%s_v[%s] = %s;", f_name_of(f, r), f_lane(f, d, k),
                                     f_var(f, r, k));
                        if (!f->cuda && written(f, r))
                                store_lane(f, depth + 1, r, k, f_var(f, r, k));
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
             root_here = fn->root && !fn->prologue && loop == 0 && written(f, fn->root);
        for (int i = 0; i < fn->n_nodes; i++)
                any |= f->dom[f->dom_of[fn->node[i]] - 1].loop == loop;
        emit_loads(f, loop, depth);
        emit_results(f, loop, depth);
        if (root_here && !f->cuda)
                emit_row(f, depth, fn->root);
        if (any || (root_here && !f->cuda))
                emit_values(f, loop, depth, root_here && !f->cuda);
        if (f->cuda) {
                if (root_here)
                        emit_stores(f, depth, fn->root);
                for (int i = 0; i < fn->n_nodes; i++)
                        if (f->dom[f->dom_of[fn->node[i]] - 1].loop == loop &&
                            written(f, fn->node[i]))
                                emit_stores(f, depth, fn->node[i]);
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
        bool yes = !written(f, f->f->root);
        for (int i = 0; i < f->n_load; i++)
                yes &= f->load[i].dt == DT_F32;
        for (int i = 0; i < f->f->n_nodes; i++) {
                const Node *n = NODE(f->g, f->f->node[i]);
                yes &= !written(f, f->f->node[i]) || n->type.dt == DT_F32;
        }
        return yes;
}

static double slot_bytes(F *f)
{
        double b = 0;
        for (int i = 0; i < f->n_load; i++) /* what is the same in all rows is read once */
                if (!f->load[i].scalar)
                        b += (of_row(&f->load[i]) ? f->elems : (double)f->f->n) *
                             dt_size[f->load[i].dt];
        for (int i = 0; i < f->f->n_nodes; i++)
                if (written(f, f->f->node[i]))
                        b += f->elems * dt_size[NODE(f->g, f->f->node[i])->type.dt];
        if (f->f->root && (f->f->prologue ? !f->f->n_nodes
                                          : written(f, f->f->root))) /* a plain prologue reads it */
                b += f->elems * dt_size[NODE(f->g, f->f->root)->type.dt];
        return b;
}

static void size_lines(F *f, int d)
{
        if (f->uses_T)
                LINE(d, "const int T = %s;", f_rt(f, "T"));
        if (f->uses_B)
                LINE(d, "const int B = %s;", f_rt(f, "B"));
}

static void read_function(F *f, const char *prologue, Text *body)
{
        Text *t = &f->out->text;
        text_add(
                t,
                "        template <int V> __device__ __forceinline__ void %s In<V> &in) const\n        {\n",
                prologue);
        size_lines(f, 2);
        if (body->s)
                text_put(t, body->s, body->n);
        text_add(t, "        }\n");
        text_free(body);
}

/* What comes before the epilogue proper: In, its reads, and all at once for families that do not
 * read ahead. */
static void prefetch_reads(F *f)
{
        Text *t = &f->out->text;
        text_add(
                t,
                "        static constexpr int READS = %d, ROW_READS = %d;\n        template <int V> struct In {\n",
                f->reads, f->row_reads);
        text_add(t, "%s%s        };\n", f->in_rows.s ? f->in_rows.s : "", f->in.s ? f->in.s : "");
        read_function(f, "get_rows(int row, int col,", &f->get_rows);
        read_function(f, "get_cols(int col,", &f->get_cols);
        text_add(
                t,
                "        template <int V> __device__ __forceinline__ void operator()(int row, int col, "
                "float (&v)[V]) const\n        {\n                In<V> in;\n"
                "                get_rows(row, col, in);\n                get_cols(col, in);\n"
                "                (*this)(row, col, v, in);\n        }\n");
        text_free(&f->in_rows);
        text_free(&f->in);
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
        Scratch *x = e->scratch = e->scratch ? e->scratch : scratch_new(e);
        f->dom_of = x->dom_of, f->exported = x->exported, f->name = x->name, f->named = x->named;
        *out = (FunctorText) { .minv = 1 };
        f->elems = (double)dim_most(e, fn->rows) * (double)(fn->n ? fn->n : 1);
        f_place_members(f);
        if (fn->prologue && !fn->n_nodes)
                emit_plain_prologue(f, f->cuda ? 2 : 1);
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
                out->reads |= of_row(&f->load[i]) && !f->load[i].scalar;
                out->by_row |= of_row(&f->load[i]);
        }
        if (f->cuda) {
                text_add(
                        &out->text,
                        "struct %s {\n        static constexpr int MAXV = %d, MINV = %d;\n        const \1_args "
                        "&a;\n",
                        name, out->maxv, out->minv);
                const bool ahead = f->in.s || f->in_rows.s;
                if (f->stores)
                        text_add(
                                &out->text,
                                "        static constexpr int STORES = %d, WIDTH0 = %d, WIDTH1 = %d, READ = %d;\n",
                                f->mixed ? 0 : f->stores, f->stored[0].width, f->stored[1].width,
                                f->read);
                if (!f->mixed && f->stores <= MOST_STORED && v == 8 &&
                    (!f->read || f->read == f->stored[0].width))
                        out->n_stored = f->stores;
                memcpy(out->stored, f->stored, sizeof out->stored);
                if (f->read > 0)
                        out->from = f->from;
                if (ahead)
                        prefetch_reads(f);
                text_add(
                        &out->text,
                        "        template <int V%s> __device__ __forceinline__ void operator()(int row, "
                        "int col, float (&v)[V]%s%s) const\n        {\n",
                        f->stores ? ", class Out = Straight" : "", ahead ? ", const In<V> &in" : "",
                        f->stores ? ", const Out &out = Out()" : "");
        } else {
                text_add(
                        &out->text,
                        "TGC_INLINE void %s(const void *args, long row, int col, int n, float *v)\n{\n        const "
                        "\1_args *a = args;\n",
                        name);
                text_add(&out->text, "        (void)row, (void)col, (void)n, (void)v, (void)a;\n");
        }
        size_lines(f, f->cuda ? 2 : 1);
        if (body.s)
                text_put(&out->text, body.s, body.n);
        text_add(&out->text, f->cuda ? "        }\n};\n\n" : "}\n\n");
        text_free(&body);
        scratch_empty(f);
}
