/* limits.c: refuses models larger than the kernels have room for, by name and line.  The kernels
 * define the limits: codegen/kernels/cpu/cpu_limits.h. */
#include "compiler.h"
#include "../codegen/kernels/cpu/cpu_limits.h"

static void check_attention(const Graph *g, const Node *n)
{
        const Type *q = &g->node[n->in[0]].type, *k = &g->node[n->in[1]].type,
                   *v = &g->node[n->in[2]].type;
        const int64_t D = q->dim[3].n > v->dim[3].n ? q->dim[3].n : v->dim[3].n;
        if (D > LIMIT_HEAD)
                error_at(n->loc,
                         "attention: heads of width %lld are not supported (at most %d): use "
                         "more, narrower heads",
                         (long long)D, LIMIT_HEAD);
        if (q->dim[2].n / k->dim[2].n > LIMIT_GROUP)
                error_at(n->loc,
                         "attention: %lld query heads to a key head are not supported (at most "
                         "%d): there are %lld and %lld; use more key heads",
                         (long long)(q->dim[2].n / k->dim[2].n), LIMIT_GROUP,
                         (long long)q->dim[2].n, (long long)k->dim[2].n);
}

void check_limits(const Graph *g)
{
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = &g->node[r];
                if (n->op == OP_ATTENTION)
                        check_attention(g, n);
                if (!op_is(n->op, FACT_NORM))
                        continue;
                const int64_t width = n->type.dim[n->type.rank - 1].n;
                if (width > LIMIT_NORM_ROW)
                        error_at(n->loc,
                                 "%s: rows of %lld columns are not supported (at most %d); a sum "
                                 "of squares and rsqrt make a norm of any width",
                                 op_info[n->op].text, (long long)width, LIMIT_NORM_ROW);
        }
}
