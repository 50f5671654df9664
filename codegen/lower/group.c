/* group.c: the nodes of a kernel, by their roles.
 *
 * Fusion (compiler/passes/fuse.c) only writes Node.group.  This file answers the questions that
 * fusion and the emitters ask about groups, and turns groups into prologues, anchor and epilogues:
 *
 *      %n = rmsnorm %x, %g      group 4     prologue[0], of the anchor's first input
 *      %y = matmul %n, %w       group 4     anchor
 *      %z = add %y, %b          group 4     epilogue[0], of the anchor's only output
 *
 * group_order.c orders the groups. */
#include "group.h"

/* Rows of x, and elements of it; M16, X16: of several 16-bit rows, which kernels/gemv/gemv_mma.cuh
 * takes, no more than the CPU's scratch memory holds. */
enum { GEMV_MOST_M = 8, GEMV_MOST_M16 = 16, GEMV_MOST_X = 32768, GEMV_MOST_X16 = 130000 };

bool is_virtual(const Graph *g, Ref r)
{
        return op_info[g->node[r].op].cls == CLASS_MAP && g->node[r].n_in == 0;
}

bool is_member(const Graph *g, Ref r)
{
        const Node *n = &g->node[r];
        Class c = op_info[n->op].cls;
        return (c == CLASS_MAP && n->n_in) || op_is(n->op, FACT_MEMBER);
}

Ref value_base(const Graph *g, Ref r)
{
        while (op_is(g->node[r].op, FACT_FOLLOWED))
                r = g->node[r].in[0];
        return r;
}

Ref anchor_output(const Graph *g, Ref r)
{
        if (g->node[r].op == OP_ITEM)
                r = g->node[r].in[0];
        if (is_member(g, r) || is_virtual(g, r) || op_info[g->node[r].op].cls == CLASS_VIEW ||
            op_info[g->node[r].op].cls == CLASS_LEAF)
                return 0;
        return r;
}

/* Constant trailing dimensions are columns, the rest rows. */
bool domain_of(const Type *t, int64_t *n, Dim *rows)
{
        int i = t->rank;
        *n = 1;
        *rows = DIM(1);
        while (i > 0 && dim_is_const(t->dim[i - 1]) && *n * t->dim[i - 1].n < (int64_t)1 << 30)
                *n *= t->dim[--i].n;
        while (i > 0)
                *rows = dim_mul(*rows, t->dim[--i]);
        /* all constant: keep rows */
        if (t->rank > 1 && dim_eq(*rows, DIM(1)) && t->dim[t->rank - 1].n > 1) {
                *n = t->dim[t->rank - 1].n;
                *rows = type_rows(t);
        } else if (t->rank == 4 &&
                   dim_eq(*rows, DIM(1))) { /* prologues of width 1: a cache's rows are tokens */
                *n = t->dim[2].n;
                *rows = dim_mul(t->dim[0], t->dim[1]);
        }
        return *n > 0;
}

bool span_of(const Graph *g, Ref r, Ref base, int64_t n, Span *s)
{
        if (r == base) {
                *s = (Span) { 0, n, 1 };
                return true;
        }
        const Node *x = &g->node[r];
        if (!span_of(g, x->in[0], base, n, s))
                return false;
        if (x->op == OP_RESHAPE) { /* trailing dimensions must still make up the columns */
                int64_t c = 1;
                int i = x->type.rank;
                while (i > 0 && c < s->len && dim_is_const(x->type.dim[i - 1]))
                        c *= x->type.dim[--i].n;
                return c == s->len;
        }
        if (x->op == OP_SLICE) {
                const Type *t = &g->node[x->in[0]].type;
                int ax = (int)x->a.slice.axis;
                int64_t inner = 1, c = 1;
                for (int i = ax + 1; i < t->rank; i++)
                        inner *= t->dim[i].n;
                for (int i = ax; i < t->rank; i++) {
                        if (!dim_is_const(t->dim[i]))
                                return false;
                        c *= t->dim[i].n;
                }
                if (c != s->len || s->step != 1)
                        return false; /* the sliced axis must lead the columns */
                if (x->a.slice.step == 1) {
                        s->start += x->a.slice.start * inner;
                        s->len = x->a.slice.len * inner;
                        return true;
                }
                if (x->a.slice.step == 2 && inner == 1 && x->a.slice.len * 2 == c) {
                        s->start += x->a.slice.start;
                        s->len = x->a.slice.len;
                        s->step = 2;
                        return true;
                }
        }
        return false;
}

static Functor functor(Ref root, bool prologue, const Type *shape)
{
        Functor f = { .root = root, .prologue = prologue, .shape = *shape };
        domain_of(shape, &f.n, &f.rows);
        return f;
}

/* Row families walk the last dimension, whatever makes up a map's columns. */
static void by_rows(Functor *f)
{
        if (f->shape.rank == 0) {
                f->n = 1;
                f->rows = DIM(1);
        } else {
                f->n = f->shape.dim[f->shape.rank - 1].n;
                f->rows = type_rows(&f->shape);
                if (!dim_is_const(f->shape.dim[f->shape.rank - 1]))
                        f->n = 0; /* length known at run time */
        }
}

static void push(Functor *f, Ref r, Arena *a, int cap)
{
        if (!f->node)
                f->node = arena_alloc(a, (size_t)cap * sizeof(Ref));
        f->node[f->n_nodes++] = r;
}

/* Does some member take columns in pairs?  Interleave makes them, of one column each. */
static bool takes_pairs(const Graph *g, const Functor *f)
{
        for (int i = 0; i < f->n_nodes; i++) {
                const Node *n = &g->node[f->node[i]];
                if (op_is(n->op, FACT_PAIRS) && n->op != OP_INTERLEAVE)
                        return true;
                for (int j = 0; j < n->n_in; j++) {
                        if (g->node[value_base(g, n->in[j])].group != n->group)
                                continue;
                        for (Ref r = n->in[j]; op_is(g->node[r].op, FACT_FOLLOWED);
                             r = g->node[r].in[0])
                                if (g->node[r].op == OP_SLICE && g->node[r].a.slice.step == 2)
                                        return true;
                }
        }
        return false;
}

void group_fill(Graph *g, Group *gr, Arena *a, int *side, bool *in)
{
        Node *an = gr->anchor ? NODE(g, gr->anchor) : NULL;
        if (an) {
                Type out[MAX_OUT];
                gr->n_out = graph_types(g, gr->anchor, out);
                for (int i = 0; i < gr->n_out; i++) {
                        gr->epilogue[i] = functor(0, false, &out[i]);
                        by_rows(&gr->epilogue[i]);
                }
                if (an->op == OP_ATTENTION) { /* epilogues see (B*T, H*D) */
                        gr->epilogue[0].n = an->type.dim[2].n * an->type.dim[3].n;
                        gr->epilogue[0].rows = dim_mul(an->type.dim[0], an->type.dim[1]);
                }
                if (an->op == OP_ATTENTION_GRAD)
                        for (int i = 0; i < 3; i++) {
                                gr->epilogue[i].n = out[i].dim[2].n * out[i].dim[3].n;
                                gr->epilogue[i].rows = dim_mul(out[i].dim[0], out[i].dim[1]);
                        }
                gr->epilogue[0].root = gr->anchor;
                for (int i = 0; i < an->n_in; i++) {
                        gr->prologue[i] = functor(an->in[i], true, &NODE(g, an->in[i])->type);
                        by_rows(&gr->prologue[i]);
                }
                if (an->op == OP_CE_GRAD || an->op == OP_LINEAR_CE_GRAD) { /* one value a token */
                        gr->prologue[3].n = 1;
                        gr->prologue[3].rows = type_elems(&gr->prologue[3].shape);
                }
                for (int i = 0; i < gr->n_nodes; i++)
                        if (NODE(g, gr->node[i])->op == OP_ITEM &&
                            NODE(g, gr->node[i])->in[0] == gr->anchor)
                                gr->epilogue[NODE(g, gr->node[i])->a.item.index].root = gr->node[i];
        } else {
                gr->n_out = 1;
                /* of what goes in, where the result is another shape */
                const Node *first = NODE(g, gr->node[0]);
                Ref of = first->op == OP_APPEND       ? first->in[1]
                         : first->op == OP_INTERLEAVE ? first->in[0]
                                                      : gr->node[0];
                gr->epilogue[0] = functor(0, false, &NODE(g, of)->type);
        }
        for (int i = 0; i < gr->n_nodes; i++) {
                Ref r = gr->node[i];
                if (r == gr->anchor || NODE(g, r)->op == OP_ITEM)
                        continue;
                const Node *n = NODE(g, r);
                int s = an && r < gr->anchor ? 0 : -1;
                for (int j = 0; j < n->n_in; j++) {
                        Ref b = value_base(g, n->in[j]);
                        for (int o = 0; o < gr->n_out; o++)
                                if (b && b == gr->epilogue[o].root)
                                        s = -(1 + o);
                        if (NODE(g, b)->group == gr->id && side[b] < 0)
                                s = side[b];
                }
                side[r] = s;
        }
        for (int k = 0; an && k < an->n_in; k++) { /* prologues: walk back from each input */
                Ref b = value_base(g, an->in[k]);
                if (NODE(g, b)->group != gr->id || b == gr->anchor || side[b] < 0 || b != an->in[k])
                        continue;
                in[b] = true;
                for (int i = gr->n_nodes - 1; i >= 0; i--) {
                        const Node *n = NODE(g, gr->node[i]);
                        for (int j = 0; in[gr->node[i]] && j < n->n_in; j++) {
                                Ref c = value_base(g, n->in[j]);
                                if (NODE(g, c)->group == gr->id)
                                        in[c] = true;
                        }
                }
                for (int i = 0; i < gr->n_nodes; i++) {
                        if (in[gr->node[i]] && gr->node[i] != gr->anchor &&
                            NODE(g, gr->node[i])->op != OP_ITEM)
                                push(&gr->prologue[k], gr->node[i], a, gr->n_nodes);
                        in[gr->node[i]] = false;
                }
        }
        for (int i = 0; i < gr->n_nodes; i++)
                if (gr->node[i] != gr->anchor && NODE(g, gr->node[i])->op != OP_ITEM &&
                    side[gr->node[i]] < 0)
                        push(&gr->epilogue[-side[gr->node[i]] - 1], gr->node[i], a, gr->n_nodes);
        /* a row op asks its prologues for as many columns as its epilogue wants */
        if (an && op_info[an->op].cls != CLASS_MATMUL && takes_pairs(g, &gr->epilogue[0])) {
                gr->prologue[0].least = gr->epilogue[0].least = 2;
                if (an->n_in > 1 && op_takes_rows(an->op, 1))
                        gr->prologue[1].least = 2;
        }
        /* side results of prologues that no input needs: give them to the first prologue */
        for (int i = 0; i < gr->n_nodes; i++) {
                Ref r = gr->node[i];
                bool have = r == gr->anchor || NODE(g, r)->op == OP_ITEM || side[r] < 0;
                for (int k = 0; an && k < an->n_in && !have; k++)
                        for (int j = 0; j < gr->prologue[k].n_nodes; j++)
                                have |= gr->prologue[k].node[j] == r;
                for (int k = 0; an && k < an->n_in && !have; k++)
                        if (gr->prologue[k].n_nodes) {
                                push(&gr->prologue[k], r, a, gr->n_nodes);
                                have = true;
                        }
        }
        for (int i = 0; i < gr->n_nodes; i++)
                side[gr->node[i]] = 0;
}

NormKind norm_kind(Op op)
{
        if (!op_is(op, FACT_NORM))
                return NORM_NONE;
        return op == OP_LAYERNORM ? NORM_LAYER : NORM_RMS;
}

const char *norm_text(NormKind kind)
{
        static const char *const text[] = { "NORM_NONE", "NORM_RMS", "NORM_LAYER" };
        return text[kind];
}

bool norm_prologue(Graph *g, const Functor *prologue, Arena *a, NormPrologue *out)
{
        *out = (NormPrologue) { .norm = 0 };
        for (int i = 0; i < prologue->n_nodes; i++)
                if (op_is(NODE(g, prologue->node[i])->op, FACT_NORM))
                        out->norm = prologue->node[i];
        if (!out->norm)
                return false;
        out->before = functor(NODE(g, out->norm)->in[0], true, &NODE(g, out->norm)->type);
        out->gain = functor(out->norm, false, &NODE(g, out->norm)->type);
        by_rows(&out->before);
        by_rows(&out->gain);
        for (int i = 0; i < prologue->n_nodes; i++)
                if (prologue->node[i] != out->norm)
                        push(&out->gain, prologue->node[i], a, prologue->n_nodes);
        out->gain.result = prologue->root;
        return true;
}

int64_t gemv_m(const Graph *g, Ref r)
{
        const Node *n = &g->node[r];
        const Type *a = &g->node[n->in[0]].type, *w = &g->node[n->in[1]].type;
        Dim m = type_rows(a), k = a->dim[a->rank - 1];
        const bool blocks = node_storage(&g->node[n->in[1]]) != STORAGE_PLAIN;
        if (n->op != OP_MATMUL || n->a.mm.ta || w->rank != 2 || !dim_is_const(m) ||
            !dim_is_const(k) || (blocks && !n->a.mm.tb)) /* blocks are read along a row */
                return 0;
        bool half = dt_size[w->dt] == 2 && n->a.mm.tb && m.n > 1 && k.n % 8 == 0 && !blocks;
        return m.n <= (half ? GEMV_MOST_M16 : GEMV_MOST_M) && k.n >= 1 &&
                               m.n * k.n <= (half ? GEMV_MOST_X16 : GEMV_MOST_X)
                       ? m.n
                       : 0;
}

bool gemm_over_blocks(const Graph *g, Ref r)
{
        const Node *w = &g->node[g->node[r].in[1]];
        const Storage s = node_storage(w);
        /* the 4-bit types of quantised folders need the most instructions of the GEMV for a row */
        const int most = s == STORAGE_NF4 || s == STORAGE_FP4 || s == STORAGE_I4_32 ||
                                         s == STORAGE_I4_64 || s == STORAGE_I4_128
                                 ? 2
                                 : 4;
        return s != STORAGE_PLAIN && dt_size[w->type.dt] == 2 && gemv_m(g, r) > most;
}

bool gemv_norms(const Graph *g, Ref r)
{
        enum { MOST_K16 = 2048 }; /* more than 8 rows in registers */
        const Type *a = &g->node[g->node[r].in[0]].type;
        int64_t m = gemv_m(g, r), k = a->dim[a->rank - 1].n;
        if (gemm_over_blocks(g, r))
                return false;
        return m && m * k <= GEMV_MOST_X && (m <= GEMV_MOST_M || k <= MOST_K16);
}

bool gemv_keeps(const Graph *g, Ref r)
{
        const Type *w = &g->node[g->node[r].in[1]].type;
        enum { SMALL = 6 << 20 };
        return gemv_m(g, r) == 1 && type_elems(w).n * dt_size[w->dt] <= SMALL;
}

Functor store_of(Graph *g, Ref r)
{
        Functor f = functor(r, false, &NODE(g, r)->type);
        by_rows(&f);
        return f;
}
