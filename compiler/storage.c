/* storage.c: decides which parameters may lie in blocks (ir/storage.def), and checks those that do.
 *
 * Blocks run along a row, so every reader of the parameter must take whole rows: a linear's weight
 * (N,K), an embedding's table (V,C), experts' weights (E,N,K).  All other parameters are stored by
 * elements.  A parameter in blocks is frozen: training reads it, also to take the gradient of a
 * linear's input through it, but computes no gradient of it. */
#include "compiler.h"
#include <stdlib.h>

/* Does node n take its input i by rows that its kernel decodes? */
static bool takes_blocks(const Node *n, int i)
{
        switch (n->op) {
        case OP_MATMUL: return i == 1 && n->a.mm.tb && !n->a.mm.ta;
        case OP_EXPERT_MATMUL: return i == 1 && n->a.expert.tb;
        case OP_EXPERT_ROWS: return i == 1;
        case OP_GATHER: return i == 0;
        default: return false;
        }
}

void storage_mark(const Graph *g, bool *may)
{
        for (Ref r = 1; r < g->n_nodes; r++)
                may[r] = g->node[r].op == OP_PARAM;
        for (int i = 0; i < g->n_out; i++)
                may[g->out[i].ref] = false;
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; i < g->node[r].n_in; i++)
                        may[g->node[r].in[i]] &= takes_blocks(&g->node[r], i);
}

const char *storage_fault(const Node *n, Storage s, bool may)
{
        const Type *t = &n->type;
        if (!storage_is_blocks(s))
                return "that is no type of blocks that can be decoded";
        if (t->rank < 2 || !dim_is_const(type_elems(t)))
                return "blocks hold matrices alone";
        if (t->dim[t->rank - 1].n % storage_values(s))
                return "a row of it is no whole number of blocks";
        if (!may)
                return "something reads it otherwise than by rows";
        return n->a.param.trainable ? "a parameter in blocks is frozen" : NULL;
}

void check_storage(const Graph *g)
{
        bool *may = NULL;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = &g->node[r];
                if (n->op != OP_PARAM || !n->a.param.storage)
                        continue;
                if (!may) {
                        may = mem_new((size_t)g->n_nodes * sizeof *may);
                        storage_mark(g, may);
                }
                const char *why = storage_fault(n, (Storage)n->a.param.storage, may[r]);
                if (why) {
                        free(may);
                        error_at(n->loc, "parameter %s cannot be stored as %s: %s", n->name,
                                 storage_name[n->a.param.storage], why);
                }
        }
        free(may);
}
