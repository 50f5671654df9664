/* functor_read.c: finds and emits a functor's loads (see functor.c).
 *
 *      node       %y = add %v, %b                        %b lies elsewhere: a load
 *      domain     64 columns
 *      address    storage b, index col + 64
 *      text       CUDA  const bf16 *p0 = a.b + 64;
 *                       float b[V];
 *                       load<V>(b, p0 + col);
 *                 C     const uint16_t *p0 = a->b + 64;  ... bf16_to_float(p0[(col + j)])
 *
 * On CUDA an epilogue's loads are separate from their use, so that they start before the product
 * has ended: struct In holds them (EpilogueReads in
 * kernels/common/epilogue_protocol.cuh). */
#include "functor.h"
#include <string.h>

/* A prologue with nothing fused: the value as it lies in memory. */
void f_emit_plain_prologue(F *f, int depth)
{
        Access acc;
        access_need(f->g, f->e->place, f->f->root, &acc);
        Address a = f_load_address(f, &acc, &acc.t, acc.off, f->f->n);
        a.vector = f_vector(f, &a.at, 0);
        a.arg = f_member(f, arg_of(f->e, f->a, acc.base, false));
        f->out->by_row = index_has_base(&a.at);
        LINE(depth, "const %s *p = %s;", c_type(a.dt), index_pointer(&f->print, a.arg, &a.at));
        if (f->cuda && a.vector) {
                LINE(depth, "load<V>(v, p + %s);", index_column_text(&f->print, &a.at, "col"));
                return;
        }
        const char *x = f_fmt(f, "p[%s]", index_column_text(&f->print, &a.at, "(col + j)"));
        LINE(depth, "for (int j = 0; j < %s; j++)", f->cuda ? "V" : "n");
        LINE(depth + 1, "v[j] = %s;",
             f->cuda ? f_fmt(f, "to_float(%s)", x) : f_to_float(a.dt, x, f));
}

/* Every second element of a row whose pairs are aligned to 16 elements: 1 the first of each pair, 2
 * the second; else 0. */
static int half_of(const Access *a, const Type *shape)
{
        Dim stride[MAX_RANK];
        int last = shape->rank - 1;
        f_stretch(a, shape, stride);
        if (last < 0 || !dim_eq(stride[last], DIM(2)) || (a->off & 15) > 1)
                return 0;
        for (int i = 0; i < last; i++)
                if (stride[i].n & 15)
                        return 0;
        return 1 + (int)(a->off & 1);
}

/* Where a load lies as rows: of its domain's columns, or (half) of pairs. */
static Stored load_rows(const F *f, Access a, const Load *l)
{
        int64_t n = f->dom[l->dom].n;
        Stored s = { .dt = NODE(f->g, a.base)->type.dt,
                     .cols = l->half ? 2 * n : n,
                     .width = l->half ? 4 : 2 };
        Type two = type_of(s.dt, 2, f->f->rows, DIM(n));
        int64_t first = a.off - (l->half == 2);
        if (access_reshape(&a, &two) && dim_eq(a.stride[1], DIM(l->half ? 2 : 1)) &&
            dim_is_const(a.stride[0])) {
                s.slot = (Slot) { .kind = SLOT_NODE, .id = a.base, .off = first * dt_size[s.dt] };
                s.ld = a.stride[0].n;
        }
        return s;
}

/* Same address in the same domain: one load. */
static bool same_load(const F *f, const Load *a, const Load *b)
{
        return a->dom == b->dom && a->half == b->half && a->from.base == b->from.base &&
               index_equal(&a->from.at, &b->from.at, &f->g->sizes);
}

/* The term of a gather: the row of the table that ids say, times the rows' stride. */
static Term gathered(F *f, Ref ids, const Type *shape, int64_t n, Dim row)
{
        Access acc;
        Dim stride[MAX_RANK];
        Type lead = *shape;
        Index *at = arena_alloc(f->e->tmp, sizeof *at);
        lead.rank = NODE(f->g, ids)->type.rank; /* ids lead the result's shape */
        access_need(f->g, f->e->place, ids, &acc);
        f_stretch(&acc, &lead, stride);
        for (int i = lead.rank; i < shape->rank; i++)
                stride[i] = DIM(0);
        *at = (Index) { 0 };
        f_index(at, shape, stride, acc.off, n, NULL);
        const Node *x = NODE(f->g, acc.base);
        if (is_virtual(f->g, acc.base) && x->op == OP_FILL) /* one number for all */
                return (Term) { .var = IX_ONE, .coef = dim_mul(DIM((int64_t)x->a.num.x), row) };
        if (is_virtual(f->g, acc.base)) {
                f_read_position(f);
                return (Term) { .var = IX_POSITION, .coef = row, .of = at };
        }
        return (Term) { .var = IX_LOADED,
                        .coef = row,
                        .of = at,
                        .storage = acc.base,
                        .arg = f_member(f, arg_of(f->e, f->a, acc.base, false)) };
}

/* The table's row for each element, and the column in it. */
static Address gather_address(F *f, const Node *n, const Type *shape, int64_t cols, int d)
{
        Access acc;
        Dim stride[MAX_RANK];
        const int k = NODE(f->g, n->in[1])->type.rank;
        access_need(f->g, f->e->place, n->in[0], &acc);
        const Term id = gathered(f, n->in[1], shape, cols, acc.stride[0]);
        Address a = { .base = acc.base,
                      .dt = NODE(f->g, acc.base)->type.dt,
                      .blocks = node_storage(NODE(f->g, acc.base)) };
        for (int i = 0; i < shape->rank; i++)
                stride[i] = i < k ? DIM(0) : acc.stride[i - k + 1];
        f_index(&a.at, shape, stride, acc.off, cols, NULL);
        (void)f_vector(f, &a.at,
                       d); /* a bound even where each element has an id: not needed there */
        a.at = (Index) { 0 };
        f_index(&a.at, shape, stride, acc.off, cols, &id);
        return a;
}

/* The load of external operand `in` of node r; creates it on first use. */
Load *f_load_of(F *f, Ref r, Ref in)
{
        Graph *g = f->g;
        const Node *n = NODE(g, r);
        Load l = { .dom = f->dom_of[r] - 1 };
        Type shape = n->op == OP_APPEND ? NODE(g, n->in[1])->type : n->type;
        int64_t cols = f->dom[l.dom].n;
        Ref named = in;
        if (n->op == OP_ROPE && in == n->in[1])
                return NULL;
        if (n->op == OP_INTERLEAVE) {
                shape = NODE(g, in)->type;
                cols /= 2;
                l.dom = f->dom[l.dom].parent;
        }
        if (n->op == OP_GATHER) {
                l.from = gather_address(f, n, &shape, cols, l.dom);
                named = n->in[0];
        } else {
                Access acc;
                access_need(g, f->e->place, in, &acc);
                l.half = f->cuda ? half_of(&acc, &shape) : 0;
                l.from = f_load_address(f, &acc, &shape, acc.off - (l.half == 2), cols);
                if (l.half && !index_steps(&l.from.at, 2)) {
                        l.half = 0;
                        l.from = f_load_address(f, &acc, &shape, acc.off, cols);
                }
                l.rows = load_rows(f, acc, &l);
        }
        l.from.vector = f_vector(f, &l.from.at, l.dom);
        l.from.arg = f_member(f, arg_of(f->e, f->a, l.from.base, false));
        l.scalar = !index_needs(&l.from.at, IX_COL);
        for (int i = 0; i < f->n_load; i++)
                if (same_load(f, &f->load[i], &l))
                        return &f->load[i];
        if (f->n_load == MAX_LOAD)
                error_internal(n->loc, "a kernel reads too many values");
        snprintf(l.ptr, sizeof l.ptr, "p%d", f->n_load);
        snprintf(l.name, sizeof l.name, "%s", f_name_of(f, named));
        for (int i = 0; i < f->n_load; i++) /* the same value at two places */
                if (!strcmp(f->load[i].name, l.name))
                        snprintf(l.name, sizeof l.name, "%.24s_%d", f_name_of(f, named), f->n_load);
        f->load[f->n_load] = l;
        return &f->load[f->n_load++];
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

/* Are reads of this loop known before the functor's values are?  (EpilogueReads in
 * kernels/common/epilogue_protocol.cuh) */
bool f_early(const F *f, int loop) { return f->cuda && loop == 0 && f->f->root && !f->f->prologue; }

/* An earlier read of the same pairs. */
static const Load *same_pairs(const F *f, const Load *l)
{
        for (const Load *x = f->load; l->half && x < l; x++)
                if (x->half && x->dom == l->dom && x->from.base == l->from.base &&
                    index_equal(&x->from.at, &l->from.at, &f->g->sizes))
                        return x;
        return l;
}

static void emit_prefetch_load(F *f, int depth, const Load *l, const char *at)
{
        const Dom *d = &f->dom[l->dom];
        const Load *from = same_pairs(f, l);
        const char *width = f_width(f, l->dom);
        if (from == l) {
                const char *col = index_column_text(&f->print, &l->from.at, f_first_col(f, l->dom));
                text_add(index_has_base(&l->from.at) ? &f->in_rows : &f->in,
                         "                Raw<%s%s, %s> %s;\n", l->half ? "2 * " : "", width,
                         c_type(l->from.dt), l->name);
                text_add(
                        index_has_base(&l->from.at) ? &f->get_rows : &f->get_cols,
                        "                const %s *%s = %s;\n                in.%s.get(%s + %s);\n",
                        c_type(l->from.dt), l->ptr, at, l->name, l->ptr, col);
                int units = ((l->half ? 2 : 1) * 8 * d->num / d->den * (int)dt_size[l->from.dt] +
                             15) /
                            16;
                f->reads += units;
                f->row_reads += index_has_base(&l->from.at) ? units : 0;
                f->mixed |= index_has_base(&l->from.at) &&
                            (d->num != d->den || dt_size[l->from.dt] != 2);
                if (index_has_base(&l->from.at)) {
                        f->read = f->read ? -1 : l->half ? 4 : 2;
                        f->from = l->rows;
                }
        }
        LINE(depth, "float %s[%s];", l->name, width);
        LINE(depth, "in.%s.template floats<%d, %d>(%s);", from->name, l->half ? l->half - 1 : 0,
             l->half ? 2 : 1, l->name);
}

/* Columns of rows in blocks: neighbours are decoded together where the loop is over all columns,
 * else each by itself (f_operand). */
bool f_blocks_at_once(const F *f, const Load *l)
{
        const Dom *d = &f->dom[l->dom];
        return d->num == d->den && index_contiguous(&l->from.at) && (f->cuda || !d->loop);
}

static void emit_blocks(F *f, int depth, const Load *l)
{
        const char *type = storage_name[l->from.blocks], *first = f_first_col(f, l->dom);
        const char *at = index_whole_text(&f->print, &l->from.at, first);
        f->mixed = true;
        if (f->cuda) {
                LINE(depth, "float %s[%s];", l->name, f_width(f, l->dom));
                LINE(depth, "load_stored<Stored_%s>(%s, %s, %s);", type, l->name, l->from.arg, at);
        } else if (f_blocks_at_once(f, l)) {
                LINE(depth, "float %s[TGC_SEG];", l->ptr);
                LINE(depth, "stored_load(TY_%s, %s, %s, %s, n);", type, l->ptr, l->from.arg, at);
        }
}

/* What the loop reads, before it. */
void f_emit_loads(F *f, int loop, int depth)
{
        int first_load = f->n_load;
        collect(f, loop);
        for (int i = first_load; i < f->n_load; i++) {
                Load *l = &f->load[i];
                const char *at = index_pointer(&f->print, l->from.arg, &l->from.at),
                           *first = f_first_col(f, l->dom);
                f->mixed |= l->scalar;
                if (l->from.blocks) {
                        emit_blocks(f, depth, l);
                } else if (l->scalar) {
                        if (f->cuda)
                                LINE(depth, "const float %s = to_float(*(%s));", l->name, at);
                        else
                                LINE(depth, "const float %s = %s;", l->name,
                                     f_to_float(l->from.dt, f_fmt(f, "*(%s)", at), f));
                } else if (f_early(f, loop) && (l->from.vector || l->half)) {
                        emit_prefetch_load(f, depth, l, at);
                } else if (f->cuda) {
                        f->mixed = true;
                        LINE(depth, "const %s *%s = %s;", c_type(l->from.dt), l->ptr, at);
                        LINE(depth, "float %s[%s];", l->name, f_width(f, l->dom));
                        if (l->from.vector || l->half) {
                                LINE(depth, "load%s(%s, %s + %s);",
                                     l->half ? f_fmt(f, "_half<%s, %d>", f_width(f, l->dom),
                                                     l->half - 1)
                                             : f_fmt(f, "<%s>", f_width(f, l->dom)),
                                     l->name, l->ptr,
                                     index_column_text(&f->print, &l->from.at, first));
                        } else {
                                const char *col = index_column_text(&f->print, &l->from.at,
                                                                    f_fmt(f, "(%s + j)", first));
                                LINE(depth, "for (int j = 0; j < %s; j++)", f_width(f, l->dom));
                                LINE(depth + 1, "%s[j] = to_float(%s[%s]);", l->name, l->ptr, col);
                        }
                } else {
                        LINE(depth, "const %s *%s = %s;", c_type(l->from.dt), l->ptr, at);
                }
        }
}

static void read_function(F *f, const char *prologue, Text *body)
{
        Text *t = &f->out->text;
        text_add(t,
                 "        template <int V> __device__ __forceinline__ void %s In<V> &in) const\n"
                 "        {\n",
                 prologue);
        f_size_lines(f, 2);
        if (body->s)
                text_put(t, body->s, body->n);
        text_add(t, "        }\n");
        text_free(body);
}

/* What comes before the epilogue proper: In, its reads, and all at once for families that do not
 * read ahead. */
void f_emit_in(F *f)
{
        Text *t = &f->out->text;
        text_add(t,
                 "        static constexpr int READS = %d, ROW_READS = %d;\n"
                 "        template <int V> struct In {\n",
                 f->reads, f->row_reads);
        text_add(t, "%s%s        };\n", f->in_rows.s ? f->in_rows.s : "", f->in.s ? f->in.s : "");
        read_function(f, "get_rows(int row, int col,", &f->get_rows);
        read_function(f, "get_cols(int col,", &f->get_cols);
        text_add(t,
                 "        template <int V> __device__ __forceinline__ void operator()(int row, int "
                 "col, float (&v)[V]) const\n"
                 "        {\n"
                 "                In<V> in;\n"
                 "                get_rows(row, col, in);\n"
                 "                get_cols(col, in);\n"
                 "                (*this)(row, col, v, in);\n        }\n");
        text_free(&f->in_rows);
        text_free(&f->in);
}
