/* keep_slope.c: an activation's slope is kept for the backward pass in place of its input.
 * needs: a differentiated graph, types.   keeps: types.
 *
 *      gelu(x) ... gelu_grad(x, dy)    ->      gelu(x), s = gelu_slope(x) ... mul(s, dy)
 *
 * where nothing else reads x and a product makes it.  The kernel that makes x computes s beside gelu(x), from the same
 * exponential, and stores s where it stored x; the backward pass, whose products have no time to spare, has one
 * multiplication left. */
#include "../compiler.h"

static const struct { Op of, grad, slope; } rules[] = {
        { OP_GELU, OP_GELU_GRAD, OP_GELU_SLOPE },
        { OP_GELU_TANH, OP_GELU_TANH_GRAD, OP_GELU_TANH_SLOPE },
};

enum { N_RULES = sizeof rules / sizeof *rules };

/* A matmul, or a sum with one: a product's bias. */
static bool by_product(const Graph *g, Ref x)
{
        const Node *n = &g->node[x];
        return n->op == OP_MATMUL ||
               (n->op == OP_ADD && (g->node[n->in[0]].op == OP_MATMUL || g->node[n->in[1]].op == OP_MATMUL));
}

/* The rule that node r, a gradient, falls under, or -1. */
static int rule_of(const Graph *g, Ref r)
{
        const Node *n = &g->node[r];
        const Ref x = n->in[0];
        int k = 0;
        while (k < N_RULES && rules[k].grad != n->op)
                k++;
        if (k == N_RULES || g->node[x].uses != 2 || !by_product(g, x) || !shape_eq(&g->node[x].type, &n->type))
                return -1;
        for (Ref s = x + 1; s < r; s++)
                if (g->node[s].op == rules[k].of && g->node[s].in[0] == x)
                        return k;
        return -1;
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Node *n = NODE(old, r);
        const int k = rule_of(old, r);
        (void)ctx;
        if (k < 0)
                return graph_copy_node(old, r, g, map);
        const char *name = graph_name(g, NODE(old, n->in[0])->name);
        Ref s = graph_add(g, rules[k].slope, (Ref[]) { map[n->in[0]] }, 1, &n->a, n->loc, name);
        return graph_add(g, OP_MUL, (Ref[]) { s, map[n->in[1]] }, 2, &n->a, n->loc, n->name);
}

void keep_slope(Graph *g, Arena *tmp)
{
        (void)tmp;
        graph_count_uses(g);
        graph_rebuild(g, visit, NULL);
}
