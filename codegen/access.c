/* access.c: views as strides.
 *
 * A view owns nothing; it is addressed as offset and strides over the storage of
 * the value below.  Parts of a concat live inside it. */
#include "codegen.h"
#include <string.h>

bool owns_storage(const Graph *g, Ref r)
{
        const Node *n = &g->node[r];
        return op_info[n->op].cls != CLASS_VIEW || n->op == OP_CONCAT || n->op == OP_ITEM;
}

static void contiguous(Access *a, Ref base, const Type *t)
{
        Dim s = DIM(1);
        a->base = base;
        a->t = *t;
        a->off = 0;
        for (int i = t->rank - 1; i >= 0; i--) {
                a->stride[i] = s;
                s = dim_mul(s, t->dim[i]);
        }
}

/* The part is the value itself, seen through reshapes. */
static Ref part_value(const Graph *g, Ref r)
{
        while (g->node[r].op == OP_RESHAPE)
                r = g->node[r].in[0];
        return r;
}

Place *place_concats(Graph *g, Arena *a)
{
        Place *p = arena_alloc(a, (size_t)g->n_nodes * sizeof *p);
        for (Ref r = g->n_nodes - 1; r > 0; r--) {
                const Node *n = NODE(g, r);
                int64_t at = 0;
                if (n->op != OP_CONCAT)
                        continue;
                for (int i = 0; i < n->n_in; i++) {
                        Ref v = part_value(g, n->in[i]);
                        p[v] = (Place){ r, at };
                        at += NODE(g, n->in[i])->type.dim[n->type.rank - 1].n;
                }
        }
        return p;
}

bool access_reshape(Access *a, const Type *shape)
{
        /* source axes as runs: (size, stride), contiguous neighbours joined */
        struct { Dim size, stride; } run[MAX_RANK];
        int n = 0, k;
        Access out = *a;
        for (int i = 0; i < a->t.rank; i++) {
                if (dim_eq(a->t.dim[i], DIM(1)))
                        continue;
                if (n && dim_eq(run[n - 1].stride, dim_mul(a->stride[i], a->t.dim[i]))) {
                        run[n - 1].size = dim_mul(run[n - 1].size, a->t.dim[i]);
                        run[n - 1].stride = a->stride[i];
                } else {
                        run[n].size = a->t.dim[i];
                        run[n++].stride = a->stride[i];
                }
        }
        DType dt = a->t.dt;
        out.t = *shape;
        out.t.dt = dt;
        k = n - 1;
        Dim left = k >= 0 ? run[k].size : DIM(1), stride = k >= 0 ? run[k].stride : DIM(1);
        for (int i = shape->rank - 1; i >= 0; i--) {
                Dim d = shape->dim[i], q;
                if (dim_eq(d, DIM(1))) {
                        out.stride[i] = DIM(0);
                        continue;
                }
                while (dim_eq(left, DIM(1)) && k > 0) {
                        k--;
                        left = run[k].size;
                        stride = run[k].stride;
                }
                if (!dim_div(left, d, &q))
                        return false;
                out.stride[i] = stride;
                stride = dim_mul(stride, d);
                left = q;
        }
        *a = out;
        return true;
}

bool access_of(Graph *g, const Place *place, Ref r, Access *a)
{
        const Node *n = NODE(g, r);
        if (place && place[r].whole) {
                Type flat;
                if (!access_of(g, place, place[r].whole, a))
                        return false;
                /* find how wide the part is inside the whole */
                const Node *w = NODE(g, place[r].whole);
                int ax = w->type.rank - 1;
                for (int i = 0; i < w->n_in; i++)
                        if (part_value(g, w->in[i]) == r) {
                                flat = NODE(g, w->in[i])->type;
                                a->off += place[r].at * a->stride[ax].n;
                                a->t = flat;
                                a->t.dt = w->type.dt;
                                return access_reshape(a, &n->type);
                        }
                return false;
        }
        switch (n->op) {
        case OP_RESHAPE:
                return access_of(g, place, n->in[0], a) && access_reshape(a, &n->type);
        case OP_SLICE: {
                int ax = (int)n->a.slice.axis;
                if (!access_of(g, place, n->in[0], a))
                        return false;
                if (!dim_is_const(a->stride[ax]))
                        return n->a.slice.start == 0 ? (a->t.dim[ax].n = n->a.slice.len, n->a.slice.step == 1) : false;
                a->off += n->a.slice.start * a->stride[ax].n;
                a->stride[ax].n *= n->a.slice.step;
                a->t.dim[ax].n = n->a.slice.len;
                return true;
        }
        case OP_TRANSPOSE: {
                Access b;
                if (!access_of(g, place, n->in[0], &b))
                        return false;
                *a = b;
                for (int i = 0; i < n->type.rank; i++) {
                        a->t.dim[i] = b.t.dim[n->a.perm.perm[i]];
                        a->stride[i] = b.stride[n->a.perm.perm[i]];
                }
                return true;
        }
        case OP_EXPAND: {
                Access b;
                if (!access_of(g, place, n->in[0], &b))
                        return false;
                *a = b;
                a->t = n->type;
                a->t.dt = b.t.dt;
                for (int i = 0; i < n->type.rank; i++) {
                        int j = i - (n->type.rank - b.t.rank);
                        a->stride[i] = j < 0 || !dim_eq(b.t.dim[j], n->type.dim[i]) ? DIM(0) : b.stride[j];
                }
                return true;
        }
        case OP_APPEND:
                return access_of(g, place, n->in[0], a);
        default:
                contiguous(a, r, &n->type);
                return true;
        }
}

bool access_contiguous(const Access *a)
{
        Dim s = DIM(1);
        for (int i = a->t.rank - 1; i >= 0; i--) {
                if (!dim_eq(a->t.dim[i], DIM(1)) && !dim_eq(a->stride[i], s))
                        return false;
                s = dim_mul(s, a->t.dim[i]);
        }
        return true;
}

bool access_rows(const Access *a, Dim *ld)
{
        int r = a->t.rank;
        Access b = *a;
        Type two;
        if (r == 0)
                return false;
        if (!dim_eq(a->t.dim[r - 1], DIM(1)) && !dim_eq(a->stride[r - 1], DIM(1)))
                return false;
        two = type_of(a->t.dt, 2, type_rows(&a->t), a->t.dim[r - 1]);
        if (!access_reshape(&b, &two))
                return false;
        *ld = b.stride[0];
        if (dim_eq(two.dim[0], DIM(1)))
                *ld = two.dim[1];
        return true;
}

int64_t access_align(const Access *a)
{
        int64_t m = a->off | 8;
        for (int i = 0; i < a->t.rank; i++)
                if (!dim_eq(a->t.dim[i], DIM(1)) && !dim_eq(a->stride[i], DIM(1)))
                        m |= a->stride[i].n;
        return m & -m;
}
