/* materialize.c: copies where a view cannot be addressed.
 * needs: types.   keeps: types.   Runs last before fusion.
 *
 * Views are free as long as strides describe them.  A reshape of a transposed value,
 * a matmul operand whose rows are not evenly spaced, a part of a concat that has no
 * storage of its own: there a cast to the same type is put in, an elementwise op that
 * fusion treats like any other. */
#include "../compiler.h"
#include "../../codegen/codegen.h"
#include <string.h>

static bool writes_itself(Op op)
{
        switch (op) {
        case OP_TOPK:
        case OP_ROUTE:
        case OP_BUCKET:
        case OP_ARGMAX:
        case OP_CE:
        case OP_CE_GRAD:
        case OP_LINEAR_CE:
        case OP_LINEAR_CE_GRAD:
        case OP_SAMPLE:
        case OP_APPEND: case OP_ACCUM:
                return true;
        default:
                return false;
        }
}

static bool has_own_place(Graph *g, Ref part, const int *parts)
{
        Ref v = part;
        while (NODE(g, v)->op == OP_RESHAPE)
                v = NODE(g, v)->in[0];
        const Node *n = NODE(g, v);
        Class c = op_info[n->op].cls;
        if (c == CLASS_LEAF || is_virtual(g, v) || (c == CLASS_VIEW && n->op != OP_ITEM && n->op != OP_CONCAT))
                return false;
        return !writes_itself(n->op == OP_ITEM ? NODE(g, n->in[0])->op : n->op) && parts[v] <= 1;
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
        return access_reshape(&a, &three) && (dim_eq(a.stride[2], DIM(1)) || dim_eq(three.dim[2], DIM(1)));
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

/* Must input i of node r be copied first? */
static bool copy_needed(Graph *g, const Place *p, const int *parts, Ref r, int i)
{
        const Node *n = NODE(g, r);
        Ref in = n->in[i];
        Access a;
        switch (n->op) {
        case OP_CONCAT:
                return NODE(g, in)->type.dt != n->type.dt || !has_own_place(g, in, parts);
        case OP_RESHAPE:
                return !access_of(g, p, in, &a) || !access_reshape(&a, &n->type);
        case OP_MATMUL:
                return !rows_ok(g, p, in, NODE(g, n->in[1])->type.rank - 2);
        case OP_EXPERT_MATMUL: case OP_EXPERT_GRAD:
                return i < (n->op == OP_EXPERT_GRAD ? 2 : 1) ? !rows_ok(g, p, in, 0) : !plain_ok(g, p, in);
        case OP_EXPERT_ROWS:
                return i ? !plain_ok(g, p, in) : !access_of(g, p, in, &a);
        case OP_LINEAR_CE: case OP_LINEAR_CE_GRAD:
                return i < 2                             ? !rows_ok(g, p, in, 0)
                       : i == 2                          ? !plain_ok(g, p, in)
                       : i == 4 || n->op == OP_LINEAR_CE ? !plain_ok(g, p, in)
                                                         : false;
        case OP_ATTENTION:
                return i < 3 ? !heads_ok(g, p, in) : !plain_ok(g, p, in);
        case OP_ATTENTION_GRAD:
                return i < 4 || i == 5 ? !heads_ok(g, p, in) : !plain_ok(g, p, in);
        case OP_CE: case OP_CE_GRAD:
                return i == 0 ? !rows_ok(g, p, in, 0) : i < 3 && !plain_ok(g, p, in);
        case OP_BUCKET: case OP_SAMPLE:
                return !plain_ok(g, p, in);
        case OP_SCATTER: case OP_TOPK_GRAD: case OP_COMBINE:
                return i > 0 && !plain_ok(g, p, in);
        case OP_RMSNORM_BACK: case OP_LAYERNORM_BACK:
                return i == 2 && !plain_ok(g, p, in);
        default:
                return !access_of(g, p, in, &a);
        }
}

typedef struct Ctx { unsigned char *copy; } Ctx;        /* bit i: input i */

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        unsigned bits = ((Ctx *)ctx)->copy[r];
        Ref in[MAX_IN];
        for (int i = 0; i < NODE(old, r)->n_in; i++) {
                in[i] = map[NODE(old, r)->in[i]];
                if (bits >> i & 1) {
                        Type t = NODE(g, in[i])->type;
                        if (NODE(old, r)->op == OP_CONCAT)
                                t.dt = NODE(old, r)->type.dt;
                        in[i] = graph_typed(g, OP_CAST, &t, &in[i], 1, NULL, NODE(old, r)->loc,
                                            graph_name(g, NODE(g, in[i])->name));
                }
        }
        Ref n = graph_copy_node(old, r, g, map);
        for (int i = 0; i < NODE(old, r)->n_in; i++)
                NODE(g, n)->in[i] = in[i];
        return n;
}

static void copy_outputs(Graph *g, const Place *p)
{
        for (int i = 0; i < g->n_out; i++) {
                Ref r = g->out[i].ref;
                Op op = NODE(g, value_base(g, r))->op;
                if (NODE(g, r)->op == OP_APPEND ||
                    (plain_ok(g, p, r) && op != OP_INPUT && op != OP_PARAM && op != OP_CONST))
                        continue;
                Type t = NODE(g, r)->type;
                g->out[i].ref =
                        graph_typed(g, OP_CAST, &t, &r, 1, NULL, NODE(g, r)->loc, graph_name(g, NODE(g, r)->name));
        }
}

void materialize(Graph *g, Arena *tmp)
{
        for (int round = 0; round < 6; round++) {
                size_t n = (size_t)g->n_nodes;
                Ctx c = { arena_alloc(tmp, n) };
                int *parts = arena_alloc(tmp, n * sizeof *parts), count = 0;
                for (Ref r = 1; r < g->n_nodes; r++)
                        for (int i = 0; NODE(g, r)->op == OP_CONCAT && i < NODE(g, r)->n_in; i++) {
                                Ref v = NODE(g, r)->in[i];
                                while (NODE(g, v)->op == OP_RESHAPE)
                                        v = NODE(g, v)->in[0];
                                parts[v]++;
                        }
                /* first the parts: what they force decides where values lie */
                for (Ref r = 1; r < g->n_nodes; r++)
                        for (int i = 0; NODE(g, r)->op == OP_CONCAT && i < NODE(g, r)->n_in; i++)
                                if (copy_needed(g, NULL, parts, r, i)) {
                                        c.copy[r] |= 1u << i;
                                        count++;
                                }
                if (!count) {
                        Place *p = place_concats(g, tmp);
                        bool *pending = arena_alloc(tmp, n);    /* a view over something that is copied in this round */
                        for (Ref r = 1; r < g->n_nodes; r++)
                                for (int i = 0; i < NODE(g, r)->n_in; i++) {
                                        bool view = op_info[NODE(g, r)->op].cls == CLASS_VIEW;
                                        if (pending[NODE(g, r)->in[i]]) {
                                                pending[r] |= view;
                                        } else if (NODE(g, r)->op != OP_CONCAT && copy_needed(g, p, parts, r, i)) {
                                                c.copy[r] |= 1u << i;
                                                pending[r] |= view;
                                                count++;
                                        }
                                }
                        if (!count) {
                                copy_outputs(g, p);
                                return;
                        }
                }
                graph_rebuild(g, visit, &c);
        }
}
