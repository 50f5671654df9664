/* shape_move.c: shapes of views, and of ops that select, sort and add rows. */
#include "shape.h"

enum { MOST_BUCKETS = 1 << 30 };

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
