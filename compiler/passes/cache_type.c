/* cache_type.c: stores keys and values in a type of their own.
 * needs: final types.   keeps: shapes, and what is computed up to the rounding of q, k and v.
 *
 *      attention(%q, append(%kcache, %k), append(%vcache, %v)) : bf16
 *  ->  cast(attention(cast(%q), append(%kcache, cast(%k)), append(%vcache, cast(%v)))) : bf16
 *
 * Attention has one type, so q gets the cache's type too: its kernels are those of a plan of that
 * type.  Sums are float32 in all of them.
 *
 * Only caches have the type fp8: attention computes in q's type and converts what it reads.  The
 * elements of a row share a power of two (ir/fp8.c), so one kernel must see a row whole:
 *
 *      attention(%q, append_rows(%kcache, %k), append_rows(%vcache, %v)) : bf16 */
#include "../compiler.h"

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const DType dt = *(const DType *)ctx;
        const Node *o = NODE(old, r);
        const bool append = o->op == OP_APPEND,
                   attention = o->op == OP_ATTENTION && NODE(old, o->in[1])->op == OP_APPEND;
        /* casts come before who reads them */
        const int i = append ? 1 : 0;
        const Ref in = append || attention ? graph_cast(g, map[o->in[i]], dt) : 0;
        const Ref n = graph_copy_node(old, r, g, map);
        if (in)
                NODE(g, n)->in[i] = in;
        if (o->op == OP_STATE || append || attention)
                NODE(g, n)->type.dt = dt;
        return attention ? graph_cast(g, n, o->type.dt) : n;
}

static Ref visit_fp8(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Ref n = graph_copy_node(old, r, g, map);
        Node *x = NODE(g, n);
        (void)ctx;
        if (x->op == OP_APPEND)
                x->op = OP_APPEND_ROWS;
        if (x->op == OP_STATE || x->op == OP_APPEND_ROWS)
                x->type.dt = DT_FP8;
        return n;
}

void cache_type(Graph *g, DType dt) { graph_rebuild(g, dt == DT_FP8 ? visit_fp8 : visit, &dt); }
