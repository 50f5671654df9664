/* round_acts.c: --act fp8: what meets weights of fp8 is rounded to e4m3.
 * needs: types.   keeps: types.   Runs after merge_linears: linears of one input are rounded once.
 *
 *      %y = matmul %x, %w {tb=1}       ->      %x.1 = round_fp8 %x
 *                                              %y = matmul %x.1, %w {tb=1}
 *
 * A scale is of a token, or of a token and as many columns as a block of the weights has (fp8.c).
 * Experts' linears too; embeddings, which are no products, not. */
#include "../compiler.h"

static bool is_fp8(Storage s)
{
        return s == STORAGE_F8_32 || s == STORAGE_F8_64 || s == STORAGE_F8_128;
}

static bool meets_fp8(const Graph *g, const Node *n)
{
        return (n->op == OP_MATMUL || n->op == OP_EXPERT_MATMUL) &&
               is_fp8(node_storage(&g->node[n->in[1]]));
}

typedef struct Ctx {
        int columns;  /* of a scale; 0: all */
        Ref *rounded; /* by old node: the new one that is it rounded; 0: none yet */
} Ctx;

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Ctx *c = ctx;
        const Node *o = NODE(old, r);
        if (!meets_fp8(old, o))
                return graph_copy_node(old, r, g, map);
        const Ref x = o->in[0];
        if (!c->rounded[x]) {
                const Attr a = { .k = { c->columns } };
                c->rounded[x] = graph_add(g, OP_ROUND_FP8, &map[x], 1, &a, o->loc,
                                          graph_name(g, NODE(old, x)->name));
        }
        const Ref n = graph_copy_node(old, r, g, map);
        NODE(g, n)->in[0] = c->rounded[x];
        return n;
}

void round_acts(Graph *g, Arena *tmp, int columns)
{
        Ctx c = { columns, arena_alloc(tmp, (size_t)g->n_nodes * sizeof *c.rounded) };
        int n = 0;
        for (Ref r = 1; r < g->n_nodes; r++)
                n += meets_fp8(g, NODE(g, r));
        if (!n)
                error_code(2, (Loc) { 0 },
                           "--act fp8 has no effect: no linear's weight is stored as fp8; it goes "
                           "with --weight-type keep of a folder in fp8, or --weight-type fp8 of "
                           "random weights");
        graph_rebuild(g, visit, &c);
}
