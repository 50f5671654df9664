/* shape.c: the shape rules named in ops.def.  Each fills the types of all
 * outputs and returns their number, or reports the user's mistake with both
 * sides.  The element type of a result is that of its first float input. */
#include "ir.h"

#define IN(i) (&NODE(g, n->in[i])->type)
#define NAME(i) (NODE(g, n->in[i])->name)
#define TEXT op_info[n->op].text

enum { MOST_BUCKETS = 1 << 30 };

static DType float_of(Graph *g, const Node *n)
{
        for (int i = 0; i < n->n_in; i++)
                if (dt_is_float(NODE(g, n->in[i])->type.dt))
                        return NODE(g, n->in[i])->type.dt;
        return DT_F32;
}

static void need_rank(Graph *g, Node *n, int i, int least)
{
        char t[256];
        if (IN(i)->rank < least)
                error_at(n->loc, "%s: %%%s is %s, but needs at least %d dimension%s", TEXT, NAME(i),
                         type_text(IN(i), t), least, least == 1 ? "" : "s");
}

static void need_same(Graph *g, Node *n, int i, int j)
{
        char a[256], b[256];
        if (!shape_eq(IN(i), IN(j)))
                error_at(n->loc, "%s: shapes differ, %s in %%%s and %s in %%%s", TEXT,
                         shape_text(IN(i), a), NAME(i), shape_text(IN(j), b), NAME(j));
}

static void need_int(Graph *g, Node *n, int i)
{
        char t[256];
        Dim rows;
        if (index_kind(g, n, i, &rows) == INDEX_NONE)
                error_internal(n->loc, "ops.def has no mark at input %d of %s", i, TEXT);
        if (IN(i)->dt != DT_I32)
                error_at(n->loc, "%s: %%%s is %s, but must be i32", TEXT, NAME(i),
                         type_text(IN(i), t));
}

/* Inputs that attributes ask for. */
static void need_inputs(const Node *n, int least, int most)
{
        if (n->n_in < least || n->n_in > most)
                error_at(n->loc, "%s: %d inputs given, %d to %d needed", TEXT, n->n_in, least,
                         most);
}

/* Input i has the given shape. */
static void need_shape(Graph *g, Node *n, int i, const Type *want)
{
        char a[256], b[256];
        if (!shape_eq(IN(i), want))
                error_at(n->loc, "%s: %%%s must be %s, not %s", TEXT, NAME(i), shape_text(want, a),
                         shape_text(IN(i), b));
}

static Dim last(const Type *t) { return t->dim[t->rank - 1]; }

int shape_leaf(Graph *g, Node *n, Type *out)
{
        (void)g;
        out[0] = n->type;
        return 1;
}

int shape_scalar(Graph *g, Node *n, Type *out)
{
        (void)g, (void)n;
        out[0] = type_of(DT_F32, 0);
        return 1;
}

int shape_same(Graph *g, Node *n, Type *out)
{
        if (op_info[n->op].cls == CLASS_ROW)
                need_rank(g, n, 0, 1);
        if (n->n_in == 2)
                need_same(g, n, 0, 1);
        out[0] = *IN(0);
        if (!dt_is_float(out[0].dt))
                out[0].dt = DT_F32;
        return 1;
}

int shape_first(Graph *g, Node *n, Type *out)
{
        need_same(g, n, 0, 1);
        if (n->op == OP_ADAMW) {
                need_same(g, n, 0, 2);
                need_same(g, n, 0, 3);
                need_shape(g, n, 4, &(Type) { 0 });
        }
        out[0] = *IN(0);
        return 1;
}

int shape_cast(Graph *g, Node *n, Type *out)
{
        DType dt = n->type.dt;
        out[0] = *IN(0);
        out[0].dt = dt;
        return 1;
}

/* Trailing dimensions are matched; 1 stretches. */
int shape_bcast(Graph *g, Node *n, Type *out)
{
        Type t = *IN(0);
        char a[256], b[256];
        t.dt = float_of(g, n);
        for (int i = 1; i < n->n_in; i++) {
                const Type *u = IN(i);
                Type r = t.rank >= u->rank ? t : *u;
                r.dt = t.dt;
                for (int k = 1; k <= t.rank && k <= u->rank; k++) {
                        Dim x = t.dim[t.rank - k], y = u->dim[u->rank - k];
                        if (!dim_eq(x, y) && !dim_eq(x, DIM(1)) && !dim_eq(y, DIM(1)))
                                error_at(n->loc,
                                         "%s: shapes do not match, %s in %%%s and %s in %%%s", TEXT,
                                         shape_text(IN(0), a), NAME(0), shape_text(u, b), NAME(i));
                        r.dim[r.rank - k] = dim_eq(x, DIM(1)) ? y : x;
                }
                t = r;
        }
        out[0] = t;
        return 1;
}

int shape_rope(Graph *g, Node *n, Type *out)
{
        char a[256], b[256];
        Dim d;
        need_rank(g, n, 0, 4);
        d = last(IN(0));
        int64_t r = n->a.rope.dims ? n->a.rope.dims : d.n;
        if (!dim_is_const(d) || d.n % 2 || r < 2 || r > d.n || r % 2 || IN(1)->rank != 1 ||
            IN(1)->dim[0].n != r / 2)
                error_at(n->loc,
                         "rope: %%%s is %s and rotates %lld, so the frequencies must be [%lld], "
                         "not %s in %%%s",
                         NAME(0), shape_text(IN(0), a), (long long)r, (long long)r / 2,
                         shape_text(IN(1), b), NAME(1));
        out[0] = *IN(0);
        return 1;
}

int shape_interleave(Graph *g, Node *n, Type *out)
{
        need_same(g, n, 0, 1);
        need_rank(g, n, 0, 1);
        out[0] = *IN(0);
        out[0].dim[out[0].rank - 1].n *= 2;
        return 1;
}

int shape_reduce(Graph *g, Node *n, Type *out)
{
        need_rank(g, n, 0, 1);
        out[0] = *IN(0);
        out[0].dt = DT_F32;
        out[0].dim[out[0].rank - 1] = DIM(1);
        return 1;
}

int shape_argmax(Graph *g, Node *n, Type *out)
{
        need_rank(g, n, 0, 1);
        out[0] = *IN(0);
        out[0].dt = DT_I32;
        out[0].rank--;
        return 1;
}

static void need_targets(Graph *g, Node *n, int x, int t)
{
        char a[256], b[256];
        need_rank(g, n, x, 1);
        need_int(g, n, t);
        Type r = *IN(x);
        r.rank--;
        if (!shape_eq(&r, IN(t)))
                error_at(n->loc, "%s: %%%s is %s, so targets must be %s, not %s in %%%s", TEXT,
                         NAME(x), shape_text(IN(x), a), shape_text(&r, b),
                         type_text(IN(t), (char[256]) { 0 }), NAME(t));
}

int shape_norm_back(Graph *g, Node *n, Type *out)
{
        need_rank(g, n, 0, 1);
        need_same(g, n, 0, 1);
        out[0] = *IN(0);
        out[1] = out[2] = type_of(DT_F32, 1, last(IN(0)));
        need_shape(g, n, 2, &out[1]);
        return n->op == OP_LAYERNORM_BACK ? 3 : 2;
}

int shape_ce(Graph *g, Node *n, Type *out)
{
        need_targets(g, n, 0, 1);
        out[0] = *IN(1);
        out[0].dt = DT_F32;
        out[1] = out[0];
        return 2;
}

int shape_ce_grad(Graph *g, Node *n, Type *out)
{
        need_targets(g, n, 0, 1);
        need_same(g, n, 2, 1);
        need_same(g, n, 3, 1);
        out[0] = *IN(0);
        return 1;
}

int shape_colsum(Graph *g, Node *n, Type *out)
{
        if (n->a.k.k < 1 || n->a.k.k > IN(0)->rank)
                error_at(n->loc, "colsum: cannot sum %lld leading axes of a tensor of rank %d",
                         (long long)n->a.k.k, IN(0)->rank);
        int k = (int)n->a.k.k;
        out[0].dt = DT_F32;
        out[0].rank = IN(0)->rank - k;
        for (int i = 0; i < out[0].rank; i++)
                out[0].dim[i] = IN(0)->dim[i + k];
        return 1;
}

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

int shape_gather(Graph *g, Node *n, Type *out)
{
        char a[256];
        need_rank(g, n, 0, 1);
        need_int(g, n, 1);
        out[0] = *IN(1);
        out[0].dt = IN(0)->dt;
        if (out[0].rank + IN(0)->rank - 1 > MAX_RANK)
                error_at(n->loc, "gather: %%%s is %s, the result has too many dimensions", NAME(1),
                         type_text(IN(1), a));
        for (int i = 1; i < IN(0)->rank; i++)
                out[0].dim[out[0].rank++] = IN(0)->dim[i];
        return 1;
}

int shape_clamp(Graph *g, Node *n, Type *out)
{
        const int64_t e[] = { n->a.below.B, n->a.below.T, n->a.below.S };
        need_int(g, n, 0);
        for (int i = 0; i < N_SYM; i++)
                if (e[i] < 0 || e[i] > 16 || n->a.below.rows < 1)
                        error_at(n->loc, "clamp: there are no rows");
        out[0] = *IN(0);
        return 1;
}

int shape_scatter(Graph *g, Node *n, Type *out)
{
        char a[256], b[256], c[256];
        need_rank(g, n, 0, 1);
        need_int(g, n, 1);
        need_int(g, n, 2);
        if (n->a.k.k < 1 || n->a.k.k > MOST_BUCKETS || IN(0)->rank > 2 || IN(1)->rank != 1 ||
            IN(2)->rank != 1 || !dim_eq(IN(0)->dim[0], IN(1)->dim[0]) ||
            !dim_eq(IN(2)->dim[0], DIM(n->a.k.k + 1)))
                error_at(n->loc,
                         "scatter: needs rows [P,C], perm [P] and offs [%lld], not %s, %s and %s",
                         (long long)n->a.k.k + 1, shape_text(IN(0), a), shape_text(IN(1), b),
                         shape_text(IN(2), c));
        out[0] = type_of(DT_F32, 1, DIM(n->a.k.k));
        if (IN(0)->rank > 1)
                out[0].dim[out[0].rank++] = last(IN(0));
        return 1;
}

int shape_item(Graph *g, Node *n, Type *out)
{
        Type t[MAX_OUT];
        int k = graph_types(g, n->in[0], t);
        if (n->a.item.index < 0 || n->a.item.index >= k)
                error_at(n->loc, "item: %%%s has %d outputs, no number %lld", NAME(0), k,
                         (long long)n->a.item.index);
        out[0] = t[n->a.item.index];
        return 1;
}

int shape_reshape(Graph *g, Node *n, Type *out)
{
        char a[256], b[256];
        n->type.dt = IN(0)->dt;
        if (!dim_eq(type_elems(&n->type), type_elems(IN(0))))
                error_at(n->loc, "reshape: %%%s is %s and cannot become %s", NAME(0),
                         shape_text(IN(0), a), shape_text(&n->type, b));
        out[0] = n->type;
        return 1;
}

int shape_expand(Graph *g, Node *n, Type *out)
{
        char a[256], b[256];
        const Type *t = IN(0);
        n->type.dt = t->dt;
        for (int i = 1; i <= t->rank; i++)
                if (i > n->type.rank ||
                    (!dim_eq(t->dim[t->rank - i], n->type.dim[n->type.rank - i]) &&
                     !dim_eq(t->dim[t->rank - i], DIM(1))))
                        error_at(n->loc, "expand: %%%s is %s and cannot become %s", NAME(0),
                                 shape_text(t, a), shape_text(&n->type, b));
        out[0] = n->type;
        return 1;
}

int shape_slice(Graph *g, Node *n, Type *out)
{
        char a[256];
        int64_t s = n->a.slice.start, len = n->a.slice.len, st = n->a.slice.step;
        if (n->a.slice.axis < 0 || n->a.slice.axis >= IN(0)->rank)
                error_at(n->loc, "slice: %%%s is %s, there is no axis %lld", NAME(0),
                         shape_text(IN(0), a), (long long)n->a.slice.axis);
        int ax = (int)n->a.slice.axis;
        Dim d = IN(0)->dim[ax];
        if (!dim_is_const(d) || s < 0 || len < 1 || st < 1 || s >= d.n ||
            (len - 1) > (d.n - 1 - s) / st)
                error_at(n->loc,
                         "slice: %lld elements from %lld by %lld do not fit axis %d of %%%s %s",
                         (long long)len, (long long)s, (long long)st, ax, NAME(0),
                         shape_text(IN(0), a));
        out[0] = *IN(0);
        out[0].dim[ax].n = len;
        return 1;
}

int shape_transpose(Graph *g, Node *n, Type *out)
{
        int seen = 0, r = IN(0)->rank;
        out[0] = *IN(0);
        for (int i = 0; i < r; i++) {
                int64_t p = n->a.perm.perm[i];
                if (p < 0 || p >= r || seen >> p & 1)
                        error_at(n->loc,
                                 "transpose: the permutation of %%%s must name each of its %d axes "
                                 "once",
                                 NAME(0), r);
                seen |= 1 << p;
                out[0].dim[i] = IN(0)->dim[p];
        }
        return 1;
}

int shape_concat(Graph *g, Node *n, Type *out)
{
        char a[256], b[256];
        need_rank(g, n, 0, 1);
        out[0] = *IN(0);
        for (int i = 1; i < n->n_in; i++) {
                Type t = *IN(i);
                int r = out[0].rank - 1;
                Dim want = out[0].dim[r], have;
                if (t.rank == out[0].rank) {
                        have = t.dim[r];
                        t.dim[r] = want;
                        if (shape_eq(&t, &out[0]) && dim_is_const(have) && dim_is_const(want)) {
                                out[0].dim[r].n += have.n;
                                continue;
                        }
                }
                error_at(n->loc,
                         "concat: shapes differ before the last axis, %s in %%%s and %s in %%%s",
                         shape_text(IN(0), a), NAME(0), shape_text(IN(i), b), NAME(i));
        }
        return 1;
}

/* The k largest of each row, and which they are. */
static int of_largest(Graph *g, Node *n, Type *out, int64_t k, const char *cannot)
{
        char a[256];
        need_rank(g, n, 0, 1);
        if (k < 1 || !dim_is_const(last(IN(0))) || k > last(IN(0)).n)
                error_at(n->loc, "%s %lld of %%%s %s", cannot, (long long)k, NAME(0),
                         shape_text(IN(0), a));
        out[0] = *IN(0);
        out[0].dt = DT_F32;
        out[0].dim[out[0].rank - 1] = DIM(k);
        out[1] = out[0];
        out[1].dt = DT_I32;
        return 2;
}

int shape_topk(Graph *g, Node *n, Type *out)
{
        return of_largest(g, n, out, n->a.k.k, "topk: cannot take");
}
int shape_route(Graph *g, Node *n, Type *out)
{
        return of_largest(g, n, out, n->a.route.k, "route: cannot choose");
}

int shape_topk_grad(Graph *g, Node *n, Type *out)
{
        need_rank(g, n, 0, 1);
        need_same(g, n, 0, 1);
        need_int(g, n, 1);
        out[0] = *IN(0);
        out[0].dim[out[0].rank - 1] = DIM(n->a.k.k);
        return 1;
}

int shape_bucket(Graph *g, Node *n, Type *out)
{
        need_int(g, n, 0);
        if (n->a.k.k < 1 || n->a.k.k > MOST_BUCKETS)
                error_at(n->loc, "bucket: needs 1 to %d buckets, not %lld", MOST_BUCKETS,
                         (long long)n->a.k.k);
        out[0] = type_of(DT_I32, 1, type_elems(IN(0)));
        out[1] = type_of(DT_I32, 1, DIM(n->a.k.k + 1));
        return 2;
}

int shape_combine(Graph *g, Node *n, Type *out)
{
        char a[256], b[256];
        need_rank(g, n, 0, 2);
        out[0] = *IN(0);
        out[0].dim[out[0].rank - 2] = out[0].dim[out[0].rank - 1];
        out[0].rank--;
        if (n->n_in == 2) {
                Type t = *IN(0);
                t.rank--;
                if (!shape_eq(&t, IN(1)))
                        error_at(n->loc,
                                 "combine: %%%s is %s, so the gates must be %s, not %s in %%%s",
                                 NAME(0), shape_text(IN(0), a), shape_text(&t, b),
                                 shape_text(IN(1), (char[256]) { 0 }), NAME(1));
        }
        return 1;
}

int shape_append(Graph *g, Node *n, Type *out)
{
        char a[256], b[256];
        const Type *s = IN(0), *x = IN(1);
        if (s->rank != 4 || x->rank != 4 || !dim_eq(s->dim[0], x->dim[0]) ||
            !dim_eq(s->dim[2], x->dim[2]) || !dim_eq(s->dim[3], x->dim[3]))
                error_at(n->loc, "append: the cache %%%s is %s and cannot take %s from %%%s",
                         NAME(0), shape_text(s, a), shape_text(x, b), NAME(1));
        out[0] = *s;
        return 1;
}

int shape_sample(Graph *g, Node *n, Type *out)
{
        need_rank(g, n, 0, 1);
        out[0] = *IN(0);
        out[0].dt = DT_I32;
        out[0].rank--;
        return 1;
}
