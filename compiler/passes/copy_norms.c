/* copy_norms.c: gives each single-token product with weights in blocks a norm of its own.
 *
 *      q = matmul(n, wq); v = matmul(n, wv); n = mul(rmsnorm(x), gain)
 *              ->  q = matmul(n, wq); v = matmul(n.1, wv); n.1 = mul(rmsnorm.1(x), gain)
 *
 * needs: types.  keeps: both.
 *
 * Such products are not merged if their types differ, as in llama.cpp's mixtures.  Without this
 * pass, one of a norm's readers computes it and the others wait, or the norm is a launch of its
 * own.  A copy in each kernel costs almost nothing, and then all of them are one launch
 * (codegen/program/schedule.c). */
#include "../compiler.h"
#include "../../codegen/lower/lower.h"

enum { MOST_CHAIN = 4 };

/* The norm that r is made of by factors and casts alone, and those from r down to it; 0: none. */
static int chain_of(const Graph *g, Ref r, Ref chain[MOST_CHAIN])
{
        for (int n = 0; n < MOST_CHAIN; n++) {
                const Node *x = &g->node[r];
                chain[n] = r;
                if (op_info[x->op].facts & FACT_NORM)
                        return n + 1;
                if (x->op != OP_MUL && x->op != OP_CAST)
                        return 0;
                Ref in = x->in[0];
                if (x->op == OP_MUL && op_info[g->node[in].op].cls == CLASS_LEAF)
                        in = x->in[1];
                if (!shape_eq(&g->node[in].type, &x->type))
                        return 0;
                r = in;
        }
        return 0;
}

static bool reads_blocks(const Graph *g, Ref r)
{
        const Node *n = &g->node[r];
        return n->op == OP_MATMUL && node_storage(&g->node[n->in[1]]) && gemv_m(g, r) == 1 &&
               gemv_norms(g, r);
}

/* Of each product: does another one have the norm itself? */
static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const bool *copies = ctx;
        Ref chain[MOST_CHAIN];
        Ref in = 0;
        if (!copies[r])
                return graph_copy_node(old, r, g, map);
        for (int k = chain_of(old, NODE(old, r)->in[0], chain) - 1; k >= 0; k--) {
                const Ref c = graph_copy_node(old, chain[k], g, map);
                Node *x = NODE(g, c);
                for (int i = 0; i < x->n_in && in; i++)
                        if (x->in[i] == map[chain[k + 1]])
                                x->in[i] = in;
                x->name = graph_name(g, x->name);
                in = c;
        }
        const Ref n = graph_copy_node(old, r, g, map);
        NODE(g, n)->in[0] = in;
        return n;
}

void copy_norms(Graph *g, Arena *tmp)
{
        bool *copies = arena_alloc(tmp, (size_t)g->n_nodes),
             *taken = arena_alloc(tmp, (size_t)g->n_nodes), any = false;
        Ref chain[MOST_CHAIN];
        for (Ref r = 1; r < g->n_nodes; r++) {
                if (!reads_blocks(g, r))
                        continue;
                const int n = chain_of(g, NODE(g, r)->in[0], chain);
                if (!n)
                        continue;
                copies[r] = taken[chain[n - 1]];
                any |= copies[r];
                taken[chain[n - 1]] = true;
        }
        if (any)
                graph_rebuild(g, visit, copies);
}
