/* indices.c: which inputs of an op pick rows of something, and of how many.
 *
 * An i32 input of an op that looks things up has a row here; shape rules ask for it, so that a new
 * op cannot do without. */
#include "ir.h"

/* input: LAST, of attention what att_documents says.  of: INDEX_BELOW, the input whose first axis
 * it picks from; FIELD: as many as attribute k says. */
enum { FIELD = -1, DOCUMENTS = -1 };

static const struct Fact {
        Op op;
        int input;
        IndexKind kind;
        int of;
} facts[] = {
        { OP_GATHER, 1, INDEX_BELOW, 0 },
        { OP_SCATTER, 1, INDEX_PERM, 0 },
        { OP_SCATTER, 2, INDEX_OFFS, 0 },
        { OP_EXPERT_MATMUL, 2, INDEX_PERM, 0 },
        { OP_EXPERT_MATMUL, 3, INDEX_OFFS, 0 },
        { OP_EXPERT_GRAD, 2, INDEX_PERM, 0 },
        { OP_EXPERT_GRAD, 3, INDEX_OFFS, 0 },
        { OP_EXPERT_ROWS, 2, INDEX_BELOW, 1 },
        { OP_CE, 1, INDEX_ANY, 0 },
        { OP_CE_GRAD, 1, INDEX_ANY, 0 },
        { OP_LINEAR_CE, 2, INDEX_ANY, 0 },
        { OP_LINEAR_CE_GRAD, 2, INDEX_ANY, 0 },
        { OP_TOPK_GRAD, 1, INDEX_ANY, 0 },
        { OP_BUCKET, 0, INDEX_BELOW, FIELD },
        { OP_CLAMP, 0, INDEX_ANY, 0 },
        { OP_ATTENTION, DOCUMENTS, INDEX_DOCUMENTS, 0 },
        { OP_ATTENTION_GRAD, DOCUMENTS, INDEX_DOCUMENTS, 0 },
};

IndexKind index_kind(const Graph *g, const Node *n, int input, Dim *rows)
{
        for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
                const struct Fact *f = &facts[i];
                if (f->op != n->op ||
                    input != (f->input == DOCUMENTS ? att_documents(n) : f->input))
                        continue;
                if (f->input == DOCUMENTS && !n->a.att.documents)
                        continue;
                if (f->kind == INDEX_BELOW)
                        *rows = f->of == FIELD ? DIM(n->a.k.k) : g->node[n->in[f->of]].type.dim[0];
                return f->kind;
        }
        return INDEX_NONE;
}

Dim clamp_rows(const Attr *a)
{
        return (Dim) { a->below.rows,
                       { (signed char)a->below.B, (signed char)a->below.T,
                         (signed char)a->below.S } };
}
