/* shape_matmul.c: shapes of products: dense, by expert, and the last linear with its loss. */
#include "shape.h"

/* a (...,M,K) x b (K,N) shared by all rows of a, or b (...,K,N) with the same
 * leading dimensions.  ta, tb: the operand is stored with its last two swapped. */
int shape_matmul(Graph *g, Node *n, Type *out)
{
        const Type *a = IN(0), *b = IN(1);
        char x[256], y[256];
        int lead;
        Dim ka, kb, nn;
        need_rank(g, n, 0, 1);
        need_rank(g, n, 1, 2);
        if (n->a.mm.ta && a->rank < 2)
                error_at(n->loc, "matmul: %%%s is %s and cannot be transposed", NAME(0),
                         shape_text(a, x));
        ka = a->dim[a->rank - 1 - (n->a.mm.ta ? 1 : 0)];
        kb = b->dim[b->rank - 2 + (n->a.mm.tb ? 1 : 0)];
        nn = b->dim[b->rank - 1 - (n->a.mm.tb ? 1 : 0)];
        if (!dim_eq(ka, kb))
                error_at(n->loc, "matmul: inner dimensions differ, %s in %%%s %s and %s in %%%s %s",
                         dim_text(ka, (char[64]) { 0 }), NAME(0), shape_text(a, x),
                         dim_text(kb, (char[64]) { 0 }), NAME(1), shape_text(b, y));
        lead = b->rank - 2;
        if (lead && (lead != a->rank - 2))
                error_at(n->loc, "matmul: leading dimensions differ, %s in %%%s and %s in %%%s",
                         shape_text(a, x), NAME(0), shape_text(b, y), NAME(1));
        for (int i = 0; i < lead; i++)
                if (!dim_eq(a->dim[i], b->dim[i]))
                        error_at(n->loc,
                                 "matmul: leading dimensions differ, %s in %%%s and %s in %%%s",
                                 shape_text(a, x), NAME(0), shape_text(b, y), NAME(1));
        out[0] = *a;
        out[0].dt = float_of(g, n);
        if (n->a.mm.ta)
                out[0].dim[a->rank - 2] = a->dim[a->rank - 1];
        out[0].dim[a->rank - 1] = nn;
        return 1;
}

/* An operand has a row for each sorted position (div 0), or one for div slots. */
static void need_slots(Graph *g, Node *n, int i, int64_t div)
{
        char a[256], b[256];
        Dim rows = IN(i)->dim[0];
        if (div < 0 || div > 1 << 20 || IN(i)->rank != 2 ||
            !dim_eq(dim_mul(rows, DIM(div ? div : 1)), IN(2)->dim[0]))
                error_at(n->loc, "%s: %%%s is %s, whose rows, %lld slots each, do not make %s",
                         TEXT, NAME(i), shape_text(IN(i), a), (long long)(div ? div : 1),
                         shape_text(IN(2), b));
}

/* a rows (P or tokens, K), w (E,K,N) or (E,N,K) with tb, perm (P), offs (E+1) -> (P,N). */
int shape_expert(Graph *g, Node *n, Type *out)
{
        const Type *a = IN(0), *w = IN(1);
        char x[256], y[256];
        need_rank(g, n, 0, 2);
        if (w->rank != 3 || !dim_eq(last(a), w->dim[n->a.expert.tb ? 2 : 1]))
                error_at(n->loc,
                         "expert_matmul: inner dimensions differ, %s in %%%s and %s in %%%s",
                         shape_text(a, x), NAME(0), shape_text(w, y), NAME(1));
        need_int(g, n, 2);
        need_int(g, n, 3);
        if (IN(2)->rank != 1 || IN(3)->rank != 1 || IN(3)->dim[0].n != w->dim[0].n + 1)
                error_at(n->loc, "expert_matmul: perm must be [P] and offs [%lld], not %s and %s",
                         (long long)w->dim[0].n + 1, shape_text(IN(2), x), shape_text(IN(3), y));
        need_slots(g, n, 0, n->a.expert.adiv);
        out[0] = type_of(a->dt, 2, IN(2)->dim[0], w->dim[n->a.expert.tb ? 1 : 2]);
        return 1;
}

/* a (P/adiv,K), w (E,N,K), ids (P), with bias=1 a bias (E,N), with mix gates (rows,mix):
 * y_s = w[ids_s] a[s/adiv] + bias[ids_s], (P,N); with mix the sum of gate times y over each row's
 * slots, (rows,N). */
int shape_expert_rows(Graph *g, Node *n, Type *out)
{
        const Type *a = IN(0), *w = IN(1);
        int64_t mix = n->a.rows.mix, adiv = n->a.rows.adiv;
        int want = 3 + (n->a.rows.bias != 0) + (mix != 0), gates = want - 1;
        char x[256], y[256];
        need_inputs(n, want, want);
        need_rank(g, n, 0, 2);
        need_int(g, n, 2);
        if (w->rank != 3 || a->rank != 2 || !dim_eq(last(a), w->dim[2]))
                error_at(n->loc, "expert_rows: inner dimensions differ, %s in %%%s and %s in %%%s",
                         shape_text(a, x), NAME(0), shape_text(w, y), NAME(1));
        if (IN(2)->rank != 1 || adiv < 1 || adiv > 1 << 20 ||
            !dim_eq(dim_mul(a->dim[0], DIM(adiv)), IN(2)->dim[0]))
                error_at(n->loc, "expert_rows: %s of %%%s, %lld slots each, do not make %s",
                         shape_text(a, x), NAME(0), (long long)adiv, shape_text(IN(2), y));
        if (n->a.rows.bias && (IN(3)->rank != 2 || !dim_eq(IN(3)->dim[0], w->dim[0]) ||
                               !dim_eq(IN(3)->dim[1], w->dim[1])))
                error_at(n->loc, "expert_rows: the bias %%%s is %s, weights are %s", NAME(3),
                         shape_text(IN(3), x), shape_text(w, y));
        if (mix && (mix < 0 || mix > 64 || adiv != 1 || IN(gates)->rank != 2 ||
                    !dim_eq(IN(gates)->dim[1], DIM(mix)) ||
                    !dim_eq(dim_mul(IN(gates)->dim[0], DIM(mix)), IN(2)->dim[0])))
                error_at(n->loc, "expert_rows: gates %%%s are %s, there are %s of %lld slots a row",
                         NAME(gates), shape_text(IN(gates), x), shape_text(IN(2), y),
                         (long long)mix);
        out[0] = type_of(a->dt, 2, mix ? IN(gates)->dim[0] : IN(2)->dim[0], w->dim[1]);
        return 1;
}

int shape_expert_grad(Graph *g, Node *n, Type *out)
{
        need_rank(g, n, 0, 2);
        need_rank(g, n, 1, 2);
        need_int(g, n, 2);
        need_int(g, n, 3);
        if (IN(2)->rank != 1 || IN(3)->rank != 1 || IN(3)->dim[0].n < 2)
                error_at(n->loc, "expert_grad: perm must be [P] and offs [E+1], not %s and %s",
                         shape_text(IN(2), (char[256]) { 0 }),
                         shape_text(IN(3), (char[256]) { 0 }));
        need_slots(g, n, 0, n->a.expert.adiv);
        need_slots(g, n, 1, n->a.expert.bdiv);
        Dim e = IN(3)->dim[0], k = last(IN(0)), m = last(IN(1));
        e.n--;
        out[0] = n->a.expert.tb ? type_of(DT_F32, 3, e, m, k) : type_of(DT_F32, 3, e, k, m);
        return 1;
}

static void need_linear(Graph *g, Node *n)
{
        char x[256], y[256];
        need_targets(g, n, 0, 2);
        if (IN(1)->rank != 2 || !dim_eq(last(IN(0)), IN(1)->dim[1]))
                error_at(n->loc, "%s: inner dimensions differ, %s in %%%s and %s in %%%s", TEXT,
                         shape_text(IN(0), x), NAME(0), shape_text(IN(1), y), NAME(1));
        Type bias = type_of(DT_F32, 1, IN(1)->dim[0]);
        int first = op_least_inputs(n->op);
        if (first == 4)
                need_same(g, n, 3, 2);
        if (n->n_in > first)
                need_shape(g, n, first, &bias);
}

int shape_linear_ce(Graph *g, Node *n, Type *out)
{
        need_linear(g, n);
        out[0] = *IN(2);
        out[0].dt = DT_F32;
        out[1] = out[0];
        return 2;
}

int shape_linear_ce_grad(Graph *g, Node *n, Type *out)
{
        int k = 0;
        need_linear(g, n);
        if (n->a.ce.both) {
                out[k] = *IN(2);
                out[k++].dt = DT_F32;
        }
        out[k++] = *IN(0);
        out[k] = *IN(1);
        out[k++].dt = DT_F32;
        if (n->n_in == 5)
                out[k++] = type_of(DT_F32, 1, IN(1)->dim[0]);
        return k;
}
