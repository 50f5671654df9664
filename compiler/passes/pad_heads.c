/* pad_heads.c: gives attention one head width.
 * needs: types.   keeps: types.   Runs before differentiate and cache_kv.
 *
 *      %y = attention %q, %k, %v       %wide = concat %v, %zeros       v of 16, q and k of 24
 *                               ->     %o = attention %q, %k, %wide
 *                                      %y = slice %o                   its first 16
 *
 * In a graph, values may have another width than queries and keys; in the kernels they may not.
 * The narrower side gets columns of zeros.  Zeros in q and k add nothing to a score; zeros in v
 * become results that are sliced off.  The scale is an attribute and stays that of the model's
 * width. */
#include "../compiler.h"

static Ref padded(Graph *g, Ref x, int64_t width)
{
        Type t = NODE(g, x)->type;
        const Node *n = NODE(g, x);
        Loc loc = n->loc;
        t.dim[3].n = width - t.dim[3].n;
        Ref zeros = graph_leaf(g, OP_FILL, t, &(Attr) { .num = { 0 } }, loc,
                               graph_name(g, n->name));
        return graph_add(g, OP_CONCAT, (Ref[]) { x, zeros }, 2, NULL, loc,
                         graph_name(g, NODE(g, x)->name));
}

/* wide: of the old graph's attentions that were padded, the new ones. */
static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *wide)
{
        const Node *n = NODE(old, r);
        int64_t dk, dv;
        if (n->op == OP_ITEM && n->a.item.index &&
            ((Ref *)wide)[n->in[0]]) /* its lse, which knows no width */
                return graph_item(g, ((Ref *)wide)[n->in[0]], (int)n->a.item.index, n->name);
        if (n->op != OP_ATTENTION)
                return graph_copy_node(old, r, g, map);
        dk = NODE(old, n->in[1])->type.dim[3].n;
        dv = NODE(old, n->in[2])->type.dim[3].n;
        if (dk == dv)
                return graph_copy_node(old, r, g, map);
        Ref in[MAX_IN];
        for (int i = 0; i < n->n_in; i++)
                in[i] = map[n->in[i]];
        for (int i = dk < dv ? 0 : 2; i < (dk < dv ? 2 : 3); i++)
                in[i] = padded(g, in[i], dk < dv ? dv : dk);
        ((Ref *)wide)[r] = graph_add(g, OP_ATTENTION, in, n->n_in, &n->a, n->loc, n->name);
        return op_slice(g, ((Ref *)wide)[r], 3, 0, dv, 1);
}

void pad_heads(Graph *g, Arena *tmp)
{
        graph_rebuild(g, visit, arena_alloc(tmp, (size_t)g->n_nodes * sizeof(Ref)));
}
