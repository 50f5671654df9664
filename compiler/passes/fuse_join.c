/* fuse_join.c: decides which nodes may share a kernel (fuse.h).
 *
 * Three rules, all about structure: no kernel waits for itself; an epilogue sees the columns that
 * it needs; a value comes either from the kernel or from memory.  fuse.c decides whether sharing
 * pays. */
#include "fuse.h"

static bool takes_epilogue(const Graph *g, Ref anchor, Ref root)
{
        const Op op = g->node[anchor].op;
        /* attention's second result is a statistic of its rows */
        return !op_is(op, FACT_FINAL) && (op != OP_ATTENTION || root == anchor);
}

/* Rows of a kernel's result, as its epilogue sees it: a column each of a sum, a token of heads. */
static Dim rows_of(const Type *t, Op anchor)
{
        if (op_info[anchor].cls == CLASS_COL)
                return DIM(1);
        return op_info[anchor].cls == CLASS_ATTENTION ? dim_mul(t->dim[0], t->dim[1])
                                                      : type_rows(t);
}

/* The columns value `in` occupies of the kernel's domain; false if it is not a
 * value the kernel's epilogue or map can see. */
static bool seen(Fuse *f, int id, Ref in, Span *s)
{
        Graph *g = f->g;
        const Ref b = base_of(f, in), anchor = f->gr[id].anchor;
        const Type *t = &NODE(g, b)->type;
        const bool result = b == anchor ||
                            (NODE(g, b)->op == OP_ITEM && NODE(g, b)->in[0] == anchor);
        Dim rows, n;
        if (NODE(g, b)->group != id || (!result && !is_member(g, b)))
                return false;
        if (result && t->rank == 0) {
                *s = (Span) { 0, 1, 1 };
                return in == b;
        }
        if (result && !dim_is_const(t->dim[t->rank - 1]))
                return false;
        rows = anchor ? rows_of(&NODE(g, result ? b : anchor)->type, NODE(g, anchor)->op)
                      : f->gr[id].rows; /* members of a map share its rows */
        if (!dim_div(type_elems(t), rows, &n) || !dim_is_const(n))
                return false;
        return span_of(g, in, b, n.n, s);
}

bool fits(const Type *t, int64_t n)
{
        int64_t c = 1;
        int i = t->rank;
        while (i > 0 && c < n && dim_is_const(t->dim[i - 1]))
                c *= t->dim[--i].n;
        return c == n;
}

static Ref epilogue_root(Fuse *f, int id, Ref r)
{
        Graph *g = f->g;
        Ref b = base_of(f, r);
        if (NODE(g, b)->group != id)
                return 0;
        if (!is_member(g, b))
                return b;
        for (int i = 0; i < NODE(g, b)->n_in; i++) {
                Ref x = epilogue_root(f, id, NODE(g, b)->in[i]);
                if (x)
                        return x;
        }
        return 0;
}

/* Columns s of base b as columns of the kernel. */
static Span within(const Fuse *f, Ref b, Span s)
{
        Span d = f->dom[b].span;
        return d.step ? (Span) { d.start + s.start * d.step, s.len, d.step * s.step } : s;
}

typedef struct Columns {
        bool pairs; /* some member takes two columns at a time */
        bool odd;   /* some member's columns begin or end between two of a pair */
} Columns;

static Columns columns_of(const Node *n, Extent dom)
{
        const Span s = dom.span;
        return (Columns) { op_is(n->op, FACT_PAIRS) || s.step == 2,
                           dom.odd || (s.step == 1 && ((s.start | s.len) & 1)) };
}

bool has_all_columns(const Fuse *f, Ref r, int id)
{
        const Gr *k = &f->gr[id];
        const Extent *p = &f->dom[r];
        const Dim rows = k->anchor ? rows_of(&f->g->node[k->anchor].type, f->g->node[k->anchor].op)
                                   : k->rows;
        Dim n;
        if (p->twice || (p->span.step && (p->span.step != 1 || p->span.start)))
                return false;
        return dim_div(type_elems(&f->g->node[r].type), rows, &n) && dim_is_const(n) &&
               (!p->span.step || n.n == p->span.len) && (k->anchor || n.n == k->n);
}

bool cuts_pairs(const Fuse *f, int id, Ref r, Extent dom)
{
        const Graph *g = f->g;
        const Ref anchor = f->gr[id].anchor;
        Columns all = columns_of(&g->node[r], dom);
        if (!anchor)
                all.odd |= f->gr[id].n & 1;
        for (Ref s = f->order->first[id]; s; s = f->order->next[s]) {
                const Type *t = &g->node[s].type;
                const Columns c = columns_of(&g->node[s], f->dom[s]);
                Dim n;
                all.pairs |= c.pairs && s != anchor, all.odd |= c.odd;
                /* a result of the kernel's own */
                if ((s == anchor || g->node[s].op == OP_ITEM) &&
                    dim_div(type_elems(t), rows_of(t, g->node[anchor].op), &n) && dim_is_const(n))
                        all.odd |= n.n & 1;
        }
        return all.pairs && all.odd;
}

/* Elements of the domain that a reader of value b, through view `in`, has for each column; see
 * Extent.  Columns that are taken in pairs are seen whole: *no says why a reader may not join. */
static int columns_twice(const Fuse *f, Ref in, Ref b, const Span *s, const char **no)
{
        const Graph *g = f->g;
        const Dim n = dim_mul(type_elems(&g->node[in].type), DIM(s->step));
        const bool part = !dim_eq(n, type_elems(&g->node[b].type));
        int twice = f->dom[b].twice;
        if (part && twice)
                *no = "it takes a part of columns that are in pairs";
        if (part) /* a slice, whose columns are counted anew */
                twice = 0;
        if (s->step == 2 && twice < 0)
                *no = "it takes every second of every second column";
        return s->step == 2 ? twice - 1 : twice;
}

const char *join(Fuse *f, Ref r, int id, Extent *dom)
{
        Graph *g = f->g;
        const Node *n = NODE(g, r);
        Gr *k = &f->gr[id];
        int from_inside = 0, outside = 0, twice = 0;
        bool odd = false;
        Span first = { 0 };
        Ref root = 0;
        if (k->members >= MAX_MEMBERS)
                return "it is large already";
        for (int i = 0; i < n->n_in; i++) {
                Ref in = n->in[i], b = base_of(f, in);
                Span s;
                if (op_updates(n->op, i))
                        continue;
                if (is_virtual(g, b) || op_info[NODE(g, b)->op].cls == CLASS_LEAF)
                        continue;
                if (NODE(g, b)->group != id) {
                        if (depends(f, in, id))
                                return "another input waits for that kernel";
                        outside++;
                        continue;
                }
                if (op_from_memory(n->op, i))
                        return "it reads that value from memory";
                if (!seen(f, id, in, &s))
                        return "it sees the value through a view that an epilogue cannot follow";
                const char *no = NULL;
                const int each = columns_twice(f, in, b, &s, &no);
                if (no)
                        return no;
                odd |= s.step == 1 && ((s.start | s.len) & 1);
                s = within(f, b, s);
                if (k->anchor) {
                        Ref t = epilogue_root(f, id, in);
                        Ref ao = t ? anchor_output(g, t) : 0;
                        bool accum_of_loss = NODE(g, k->anchor)->op == OP_LINEAR_CE_GRAD &&
                                             n->op == OP_ACCUM && in == t &&
                                             NODE(g, t)->uses == 1 && t != k->anchor;
                        if (!ao)
                                return "the value is made before that kernel's own work";
                        if ((!takes_epilogue(g, k->anchor, t) && !accum_of_loss))
                                return "that kernel writes its result itself";
                        if (root && t != root)
                                return "it needs two results of that kernel";
                        root = t;
                }
                /* broadcasting an inner value would compute it again */
                Type want = n->op == OP_APPEND ? NODE(g, n->in[1])->type : n->type;
                if (n->op == OP_INTERLEAVE)
                        want.dim[want.rank - 1].n /= 2;
                if (!dim_eq(type_elems(&want), type_elems(&NODE(g, in)->type)))
                        return "it stretches the value";
                if (!fits(&want, s.len) ||
                    (n->op == OP_APPEND && s.len > want.dim[2].n * want.dim[3].n))
                        return "its shape does not fit the kernel's columns";
                if (from_inside &&
                    (s.start != first.start || s.len != first.len || s.step != first.step)) {
                        /* the two halves of pairs meet in one loop; slices of different columns do
                         * not */
                        if (!(s.step == 2 && first.step == 2 && s.len == first.len &&
                              s.start / 2 == first.start / 2))
                                return "its inputs lie in different columns";
                }
                if (from_inside && each != twice)
                        return "its inputs lie in different columns";
                if (!from_inside)
                        first = s, twice = each;
                from_inside++;
        }
        if (!from_inside)
                return "it reads nothing of that kernel";
        if (outside > MAX_READS)
                return "it reads too many values";
        *dom = (Extent) { first, twice, odd };
        if (n->op == OP_ROPE && twice < 0)
                return "it turns pairs of every second column";
        if ((n->op == OP_INTERLEAVE && !fits(&n->type, first.len * 2)) ||
            (n->op == OP_ROPE && first.len % n->type.dim[n->type.rank - 1].n))
                return "its shape does not fit the kernel's columns";
        if (n->op ==
            OP_INTERLEAVE) /* two halves become the whole again, or a whole twice as long */
                *dom = (Extent) { { first.step == 2 ? first.start & ~(int64_t)1 : first.start,
                                    first.len * 2, 1 },
                                  twice + 1,
                                  odd };
        if (cuts_pairs(f, id, r, *dom))
                return "it would part two columns that belong together";
        return NULL;
}

bool sees_whole(const Graph *g, Ref r, Ref in)
{
        const Node *n = &g->node[r];
        Type want = n->op == OP_APPEND ? g->node[n->in[1]].type : n->type;
        if (n->op == OP_INTERLEAVE)
                want.dim[want.rank - 1].n /= 2;
        if (!dim_eq(type_elems(&want), type_elems(&g->node[in].type)))
                return false;
        return g->node[part_value(g, in)].op != OP_SLICE;
}
