/* shape_attention.c: shapes of attention and of its gradient. */
#include "shape.h"

/* Documents come last, and what else there is before them. */
int att_documents(const Node *n) { return n->a.att.documents ? n->n_in - 1 : 0; }

int att_extra(const Node *n)
{
        int first = op_least_inputs(n->op);
        return n->n_in - (n->a.att.documents != 0) > first ? first : 0;
}

static void need_documents(Graph *g, Node *n)
{
        Type want = type_of(DT_I32, 3, IN(0)->dim[0], IN(0)->dim[1], DIM(2));
        need_int(g, n, att_documents(n));
        need_shape(g, n, att_documents(n), &want);
        if (!dim_eq(IN(0)->dim[1], IN(1)->dim[1]))
                error_at(n->loc, "%s: documents need as many keys as queries, not %s in %%%s", TEXT,
                         shape_text(IN(1), (char[256]) { 0 }), NAME(1));
}

/* Of a mask's axis: as many as there are, or a number that is enough; 1: one for all, if there may
 * be. */
static bool fits(Dim have, Dim want, bool one)
{
        return dim_eq(have, want) || (one && dim_eq(have, DIM(1))) ||
               (dim_is_const(have) && (!dim_is_const(want) || have.n >= want.n));
}

static void need_mask(Graph *g, Node *n)
{
        const Type *m = IN(att_extra(n)), *q = IN(0), *k = IN(1);
        char a[256], b[256], c[256];
        if (m->rank < 1 || m->rank > 3 || !fits(last(m), k->dim[1], false) ||
            (m->rank > 1 && !fits(m->dim[m->rank - 2], q->dim[1], true)) ||
            (m->rank > 2 && !dim_eq(m->dim[0], q->dim[0]) && !dim_eq(m->dim[0], DIM(1))))
                error_at(n->loc,
                         "%s: the mask %%%s must be (T,S) or (B,T,S), with 1 for what is the same "
                         "for all, and not %s beside q %s and k %s",
                         TEXT, NAME(att_extra(n)), shape_text(m, a), shape_text(q, b),
                         shape_text(k, c));
}

int shape_attention(Graph *g, Node *n, Type *out)
{
        char x[256], y[256], z[256];
        int first = op_least_inputs(n->op), documents = n->a.att.documents != 0;
        need_inputs(n, first + documents, first + documents + 1);
        const Type *q = IN(0), *k = IN(1), *v = IN(2);
        if (q->rank != 4 || k->rank != 4 || v->rank != 4 || !dim_eq(q->dim[0], k->dim[0]) ||
            !dim_eq(last(q), last(k)) || !dim_eq(k->dim[0], v->dim[0]) ||
            !dim_eq(k->dim[1], v->dim[1]) || !dim_eq(k->dim[2], v->dim[2]) || !k->dim[2].n ||
            q->dim[2].n % k->dim[2].n)
                error_at(n->loc,
                         "%s: q, k, v must be (B,T,H,D), (B,S,K,D), (B,S,K,any width) with K "
                         "dividing H, not %s, %s, %s",
                         TEXT, shape_text(q, x), shape_text(k, y), shape_text(v, z));
        Type slopes = type_of(DT_F32, 1, q->dim[2]);
        if (att_extra(n) && n->a.att.alibi)
                need_shape(g, n, att_extra(n), &slopes);
        if (att_extra(n) && n->a.att.mask)
                need_mask(g, n);
        if (documents)
                need_documents(g, n);
        out[0] = *q;
        out[0].dim[3] = last(v);
        out[1] = type_of(DT_F32, 3, q->dim[0], q->dim[2], q->dim[1]);
        return 2;
}

int shape_attention_grad(Graph *g, Node *n, Type *out)
{
        Type y[MAX_OUT];
        shape_attention(g, n, y);
        need_shape(g, n, 3, &y[0]);
        need_shape(g, n, 4, &y[1]);
        need_shape(g, n, 5, &y[0]);
        for (int i = 0; i < 3; i++)
                out[i] = *IN(i);
        return 3;
}
