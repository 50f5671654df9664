/* indices.c: tells which inputs of an op are indices, and how many rows they choose from.
 *
 * An i32 input of an op that looks things up has a mark in ops.def.  Shape rules require it, so a
 * new op cannot omit it. */
#include "ir.h"

IndexKind index_kind(const Graph *g, const Node *n, int input, Dim *rows)
{
        const Op op = n->op;
        if (op_info[op].cls == CLASS_ATTENTION && n->a.att.documents && input == att_documents(n))
                return INDEX_DOCUMENTS;
        for (int of = 0; of < 2; of++)
                if (op_input_is(op, input, (char)('0' + of))) {
                        *rows = g->node[n->in[of]].type.dim[0];
                        return INDEX_BELOW;
                }
        if (op_input_is(op, input, 'k')) {
                *rows = DIM(n->a.k.k);
                return INDEX_BELOW;
        }
        return op_input_is(op, input, 'x')   ? INDEX_ANY
               : op_input_is(op, input, 'g') ? INDEX_PERM
               : op_input_is(op, input, 'o') ? INDEX_OFFS
                                             : INDEX_NONE;
}

Dim clamp_rows(const Attr *a)
{
        return (Dim) { a->below.rows,
                       { (signed char)a->below.B, (signed char)a->below.T,
                         (signed char)a->below.S } };
}
