/* shape.c: what shape rules ask of their inputs; shapes of elementwise ops, and of ops on rows and
 * columns. */
#include "shape.h"

DType float_of(Graph *g, const Node *n)
{
        for (int i = 0; i < n->n_in; i++)
                if (dt_is_float(NODE(g, n->in[i])->type.dt))
                        return NODE(g, n->in[i])->type.dt;
        return DT_F32;
}

void need_rank(Graph *g, Node *n, int i, int least)
{
        char t[256];
        if (IN(i)->rank < least)
                error_at(n->loc, "%s: %%%s is %s, but needs at least %d dimension%s", TEXT, NAME(i),
                         type_text(IN(i), t), least, least == 1 ? "" : "s");
}

void need_same(Graph *g, Node *n, int i, int j)
{
        char a[256], b[256];
        if (!shape_eq(IN(i), IN(j)))
                error_at(n->loc, "%s: shapes differ, %s in %%%s and %s in %%%s", TEXT,
                         shape_text(IN(i), a), NAME(i), shape_text(IN(j), b), NAME(j));
}

void need_int(Graph *g, Node *n, int i)
{
        char t[256];
        Dim rows;
        if (index_kind(g, n, i, &rows) == INDEX_NONE)
                error_internal(n->loc, "ops.def has no mark at input %d of %s", i, TEXT);
        if (IN(i)->dt != DT_I32)
                error_at(n->loc, "%s: %%%s is %s, but must be i32", TEXT, NAME(i),
                         type_text(IN(i), t));
}

void need_inputs(const Node *n, int least, int most)
{
        if (n->n_in < least || n->n_in > most)
                error_at(n->loc, "%s: %d inputs given, %d to %d needed", TEXT, n->n_in, least,
                         most);
}

void need_shape(Graph *g, Node *n, int i, const Type *want)
{
        char a[256], b[256];
        if (!shape_eq(IN(i), want))
                error_at(n->loc, "%s: %%%s must be %s, not %s", TEXT, NAME(i), shape_text(want, a),
                         shape_text(IN(i), b));
}

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

void need_targets(Graph *g, Node *n, int x, int t)
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

int shape_sample(Graph *g, Node *n, Type *out)
{
        need_rank(g, n, 0, 1);
        out[0] = *IN(0);
        out[0].dt = DT_I32;
        out[0].rank--;
        return 1;
}
