/* materialize.c: inserts copies where a view cannot be addressed.
 * needs: types.   keeps: types.   Runs last before fusion.
 *
 * A view is free as long as strides describe it.  Strides cannot describe a reshape of a transposed
 * value, a matmul operand whose rows are not evenly spaced, or a part of a concat without storage
 * of its own.  There a cast to the same type is inserted, an elementwise op that fusion treats like
 * any other.  Afterwards every input of every node can be addressed. */
#include "../compiler.h"
#include "../../codegen/lower/lower.h"
#include <string.h>

/* May a concat's part, seen through reshapes all of which can be followed, be made inside of it? */
static bool has_own_place(Graph *g, const Place *p, Ref part, const int *parts)
{
        Ref v = part;
        bool ok = p[v].ok;
        while (NODE(g, v)->op == OP_RESHAPE) {
                v = NODE(g, v)->in[0];
                ok &= p[v].ok;
        }
        const Node *n = NODE(g, v);
        const Op maker = n->op == OP_ITEM ? NODE(g, n->in[0])->op : n->op;
        if (!ok || op_info[n->op].cls == CLASS_LEAF || is_virtual(g, v) || op_is_view(n->op))
                return false;
        return !op_is(maker, FACT_FINAL) && parts[v] <= 1;
}

static bool rows_ok(Graph *g, const Place *p, Ref r, int lead)
{
        Access a;
        Dim ld;
        if (!access_of(g, p, r, &a))
                return false;
        if (!lead)
                return access_rows(&a, &ld);
        Dim batch = DIM(1);
        for (int i = 0; i < lead; i++)
                batch = dim_mul(batch, a.t.dim[i]);
        Type three = type_of(a.t.dt, 3, batch, a.t.dim[lead], a.t.dim[lead + 1]);
        return access_reshape(&a, &three) &&
               (dim_eq(a.stride[2], DIM(1)) || dim_eq(three.dim[2], DIM(1)));
}

static bool heads_ok(Graph *g, const Place *p, Ref r)
{
        Access a;
        return access_of(g, p, r, &a) && dim_eq(a.stride[3], DIM(1));
}

static bool plain_ok(Graph *g, const Place *p, Ref r)
{
        Access a;
        return access_of(g, p, r, &a) && access_contiguous(&a);
}

/* Nor anything before it: kernels take the address of the storage. */
static bool first_ok(Graph *g, const Place *p, Ref r)
{
        Access a;
        return access_of(g, p, r, &a) && access_contiguous(&a) && a.off == 0;
}

/* Must input i of node r, no concat, be copied first?  The table of ops says how kernels read
 * it. */
static bool copy_needed(Graph *g, const Place *p, Ref r, int i)
{
        const Node *n = NODE(g, r);
        const Class cls = op_info[n->op].cls;
        const char how = op_reads(n->op, i);
        Ref in = n->in[i];
        Access a;
        if (!access_of(g, p, in, &a))
                return true;
        /* a value without storage: elementwise ops and prologues of rows alone can do without */
        if (is_virtual(g, a.base) && !is_member(g, r) && cls != CLASS_VIEW &&
            !(cls == CLASS_ROW && in == a.base && (how == 'w' || how == 'f')))
                return true;
        switch (how) {
        case 'r':
                return !rows_ok(g, p, in,
                                n->op == OP_MATMUL ? NODE(g, n->in[1])->type.rank - 2 : 0);
        case 'h': return !heads_ok(g, p, in);
        case 'p': return !plain_ok(g, p, in);
        case 'f': return !first_ok(g, p, in);
        default: return n->op == OP_RESHAPE && !access_reshape(&a, &n->type);
        }
}

/* copy: bit i, input i; last: see copy_moved */
typedef struct Ctx {
        unsigned char *copy;
        bool *last;
} Ctx;

static Ref copy_as(Graph *g, Ref r, DType dt, Loc loc)
{
        Type t = NODE(g, r)->type;
        t.dt = dt;
        return graph_typed(g, OP_CAST, &t, &r, 1, NULL, loc, graph_name(g, NODE(g, r)->name));
}

static Ref swap_axes(Graph *g, Ref r, int i, int j, Loc loc)
{
        Attr a = { 0 };
        for (int k = 0; k < NODE(g, r)->type.rank; k++)
                a.perm.perm[k] = k == i ? j : k == j ? i : k;
        return graph_typed(g, OP_TRANSPOSE, NULL, &r, 1, &a, loc, graph_name(g, NODE(g, r)->name));
}

/* A copy in which `axis` is the last one in memory.  An axis before B or T has a stride that is
 * known at run time alone, and what begins in its middle no address. */
static Ref copy_moved(Graph *g, Ref r, int axis, Loc loc)
{
        const int last = NODE(g, r)->type.rank - 1;
        r = copy_as(g, swap_axes(g, r, axis, last, loc), NODE(g, r)->type.dt, loc);
        return swap_axes(g, r, axis, last, loc);
}

static void access_moved(Access *a, int axis)
{
        const int last = a->t.rank - 1;
        Type t = a->t;
        t.dim[axis] = a->t.dim[last];
        t.dim[last] = a->t.dim[axis];
        access_plain(a, a->base, &t);
        Dim stride = a->stride[axis];
        a->stride[axis] = a->stride[last];
        a->stride[last] = stride;
        a->t.dim[last] = t.dim[axis];
        a->t.dim[axis] = t.dim[last];
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Ctx *c = ctx;
        const Node *o = NODE(old, r);
        unsigned bits = c->copy[r];
        Ref in[MAX_IN];
        for (int i = 0; i < o->n_in; i++) {
                in[i] = map[o->in[i]];
                if (bits >> i & 1 && c->last[r])
                        in[i] = copy_moved(g, in[i], (int)o->a.slice.axis, o->loc);
                else if (bits >> i & 1)
                        in[i] = copy_as(g, in[i],
                                        o->op == OP_CONCAT ? o->type.dt : NODE(g, in[i])->type.dt,
                                        o->loc);
        }
        Ref n = graph_copy_node(old, r, g, map);
        for (int i = 0; i < o->n_in; i++)
                NODE(g, n)->in[i] = in[i];
        return n;
}

static void copy_outputs(Graph *g, const Place *p)
{
        for (int i = 0; i < g->n_out; i++) {
                Ref r = g->out[i].ref;
                Op op = NODE(g, value_base(g, r))->op;
                if (op_appends(NODE(g, r)->op) ||
                    (plain_ok(g, p, r) && op != OP_INPUT && op != OP_PARAM && op != OP_CONST))
                        continue;
                g->out[i].ref = copy_as(g, r, NODE(g, r)->type.dt, NODE(g, r)->loc);
        }
}

/* What the parts of concats force decides where values lie, so that comes first.  A copy has
 * storage of its own: nothing that lay elsewhere moves, and no part needs another one. */
static int copy_parts(Graph *g, const Place *p, Ctx *c, Arena *tmp)
{
        int *parts = arena_alloc(tmp, (size_t)g->n_nodes * sizeof *parts), count = 0;
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; NODE(g, r)->op == OP_CONCAT && i < NODE(g, r)->n_in; i++)
                        parts[part_value(g, NODE(g, r)->in[i])]++;
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; NODE(g, r)->op == OP_CONCAT && i < NODE(g, r)->n_in; i++) {
                        Ref in = NODE(g, r)->in[i];
                        if (NODE(g, in)->type.dt != NODE(g, r)->type.dt ||
                            !has_own_place(g, p, in, parts)) {
                                c->copy[r] |= 1u << i;
                                count++;
                        }
                }
        return count;
}

/* All others, in order: what a view lies over is known, copies of this pass included.  Parts of
 * concats, and the reshapes behind them, are followed and stay as they are. */
static int copy_views(Graph *g, Place *p, Ctx *c)
{
        int count = 0;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                const bool view = op_is_view(n->op);
                for (int i = 0; i < n->n_in && n->op != OP_CONCAT; i++)
                        if (copy_needed(g, p, r, i)) {
                                c->copy[r] |= 1u << i;
                                count++;
                        }
                if (!view || p[r].whole)
                        continue;
                Access in = p[n->in[0]].lies;
                if (c->copy[r])
                        access_plain(&in, n->in[0], &NODE(g, n->in[0])->type);
                place_view(g, p, r, &in);
                /* a slice: of a copy, if need be one with its axis last */
                for (int moved = 0; !p[r].ok; moved = 1) {
                        if (moved)
                                access_moved(&in, (int)n->a.slice.axis);
                        else
                                access_plain(&in, n->in[0], &NODE(g, n->in[0])->type);
                        place_view(g, p, r, &in);
                        count += !c->copy[r];
                        c->copy[r] = 1;
                        c->last[r] = moved;
                }
        }
        return count;
}

void materialize(Graph *g, Arena *tmp)
{
        for (int stage = 0; stage < 2; stage++) {
                size_t n = (size_t)g->n_nodes;
                Ctx c = { arena_alloc(tmp, n), arena_alloc(tmp, n) };
                Place *p = place_concats(g, tmp);
                if (stage ? copy_views(g, p, &c) : copy_parts(g, p, &c, tmp))
                        graph_rebuild(g, visit, &c);
        }
        Place *p = place_concats(g, tmp);
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; i < NODE(g, r)->n_in; i++)
                        if (NODE(g, r)->op != OP_CONCAT && copy_needed(g, p, r, i))
                                error_internal(NODE(g, r)->loc, "%%%s cannot be addressed by %%%s",
                                               NODE(g, NODE(g, r)->in[i])->name, NODE(g, r)->name);
        copy_outputs(g, p);
}
