/* recompute.c: computes cheap values again for the backward pass instead of keeping them.
 * needs: a differentiated graph (the seed `share` divides it), types.   keeps: types.
 *
 *      %a = gelu %u ... (forward)                    %a = gelu %u
 *      %dw = matmul %dd, %a (backward)       ->      %a.9 = gelu %u
 *                                                    %dw = matmul %dd, %a.9
 *
 * The copy stands just before its first backward reader.
 *
 *      always         a function of one value, if only elementwise gradients read it and they read
 *                     that value too (SwiGLU's silu): it is free
 *      always         the product of two such values, if it is large and only a weight's gradient
 *                     reads it (SwiGLU's up * silu).  The kernel of the elementwise gradients
 *                     stores it: one write more, one activation a layer less
 *      cheap          elementwise ops and norms whose inputs are kept anyway, or are cheap
 *                     themselves.  A few percent of time for one activation per op and layer
 *      block          everything but the first value of each block (checkpoints.c): a forward
 *                     pass more, for one activation a layer
 *
 * After keep_slope.c the first two do not occur. */
#include "../compiler.h"
#include <string.h>

typedef struct Ctx {
        Ref seed;   /* first node of the backward pass */
        Ref *again; /* old forward node -> its clone in the new graph */
        bool *cheap;
} Ctx;

static bool is_cheap(const Graph *g, Ref r)
{
        const Node *n = &g->node[r];
        if (op_info[n->op].cls == CLASS_MAP)
                return n->n_in > 0 && !op_is(n->op, FACT_RANDOM);
        return op_is(n->op, FACT_NORM | FACT_FOLLOWED);
}

/* Views are looked through: a clone of a view reads the clone of what it views. */
static Ref clone(Graph *old, Ref r, Graph *g, Ref *map, Ctx *c)
{
        if (r >= c->seed || !c->cheap[r])
                return map[r];
        if (!c->again[r]) {
                Ref in[MAX_IN];
                Node n = *NODE(old, r);
                for (int i = 0; i < n.n_in; i++)
                        in[i] = clone(old, n.in[i], g, map, c);
                Type t = n.type;
                c->again[r] = graph_typed(g, n.op, &t, in, n.n_in, &n.a, n.loc,
                                          graph_name(g, n.name));
                NODE(g, c->again[r])->type = t;
        }
        return c->again[r];
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Ctx *c = ctx;
        Ref in[MAX_IN];
        if (r < c->seed)
                return graph_copy_node(old, r, g, map);
        for (int i = 0; i < NODE(old, r)->n_in; i++)
                in[i] = clone(old, NODE(old, r)->in[i], g, map, c);
        Ref n = graph_copy_node(old, r, g, map);
        for (int i = 0; i < NODE(old, r)->n_in; i++)
                NODE(g, n)->in[i] = in[i];
        return n;
}

/* For each node before the seed: is it read after it, by elementwise ops alone? */
static void readers(const Graph *g, Ref seed, bool *by_map, bool *by_other)
{
        for (Ref r = seed; r < g->n_nodes; r++)
                for (int i = 0; i < NODE(g, r)->n_in; i++)
                        (op_info[NODE(g, r)->op].cls == CLASS_MAP
                                 ? by_map
                                 : by_other)[NODE(g, r)->in[i]] = true;
        for (int i = 0; i < g->n_out; i++)
                by_other[g->out[i].ref] = true;
}

enum { LARGE = 16 << 20 }; /* bytes in 16-bit storage: what is smaller stays */

/* Is r a large product of what elementwise gradients read, or compute again anyway? */
static bool is_gated(const Graph *g, Ref r, const bool *by_map, const bool *by_other,
                     const bool *cheap)
{
        const Node *n = &g->node[r];
        if (n->op != OP_MUL || by_map[r] || !by_other[r] ||
            type_count(&n->type, &g->sizes) * 2 < LARGE)
                return false;
        for (int i = 0; i < 2; i++)
                if (!(by_map[n->in[i]] || cheap[n->in[i]]) ||
                    !shape_eq(&g->node[n->in[i]].type, &n->type))
                        return false;
        return cheap[n->in[0]] || cheap[n->in[1]];
}

void recompute(Graph *g, Arena *tmp, Recompute how)
{
        bool *by_map = arena_alloc(tmp, (size_t)g->n_nodes),
             *by_other = arena_alloc(tmp, (size_t)g->n_nodes);
        Ctx c = { 0, arena_alloc(tmp, (size_t)g->n_nodes * sizeof(Ref)),
                  arena_alloc(tmp, (size_t)g->n_nodes) };
        for (Ref r = 1; r < g->n_nodes && !c.seed; r++)
                if (NODE(g, r)->op == OP_SHARE)
                        c.seed = r;
        if (!c.seed)
                return;
        readers(g, c.seed, by_map, by_other);
        if (how == RECOMPUTE_BLOCK)
                checkpoints(g, c.seed, tmp, c.cheap);
        for (Ref r = 1; r < c.seed && how != RECOMPUTE_BLOCK; r++) {
                /* a sum that joins the residual stream is kept: all later layers hang on it */
                const Node *n = NODE(g, r);
                c.cheap[r] = is_cheap(g, r);
                if (n->op == OP_ADD && NODE(g, n->in[0])->type.rank >= 2 &&
                    shape_eq(&NODE(g, n->in[0])->type, &NODE(g, n->in[1])->type))
                        c.cheap[r] = false;
                if (op_info[n->op].cls == CLASS_VIEW && n->n_in && !c.cheap[n->in[0]])
                        c.cheap[r] = false;
                if (how == RECOMPUTE_FREE)
                        c.cheap[r] &= op_info[n->op].cls == CLASS_MAP &&
                                      ((n->n_in == 1 && by_map[r] && !by_other[r] &&
                                        by_map[n->in[0]]) ||
                                       is_gated(g, r, by_map, by_other, c.cheap));
        }
        graph_rebuild(g, visit, &c);
        graph_sweep(g);
}
