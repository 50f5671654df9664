/* access.c: addresses views by strides.
 *
 * A view has no storage.  It is addressed by an offset and strides over the storage of the value
 * below it.  The parts of a concat lie inside the concat's storage.
 *
 *      node       %k = transpose(slice(reshape %qkv))   no storage of its own
 *      access     base %qkv, offset 256, strides (768*T, 64, 768, 1)
 *      address    that of a kernel's (row, column): functor_address.c makes it of an access
 *      text       a.qkv + (long)row * 768 + 256
 *
 * place_concats handles the whole graph in one pass, each value from the one below it.  So a chain
 * of views costs its length, and nothing here recurses. */
#include "lower.h"
#include <string.h>

Ref part_value(const Graph *g, Ref r)
{
        while (g->node[r].op == OP_RESHAPE)
                r = g->node[r].in[0];
        return r;
}

bool access_reshape(Access *a, const Type *shape)
{
        /* source axes as runs: (size, stride), contiguous neighbours joined */
        struct {
                Dim size, stride;
        } run[MAX_RANK];
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

static bool looks_through(const Node *n) { return op_is_view(n->op) || op_appends(n->op); }

static bool slice(const Node *n, Access *a)
{
        int ax = (int)n->a.slice.axis;
        a->t.dim[ax].n = n->a.slice.len;
        if (!dim_is_const(a->stride[ax]))
                return n->a.slice.start == 0 && n->a.slice.step == 1;
        a->off += n->a.slice.start * a->stride[ax].n;
        a->stride[ax].n *= n->a.slice.step;
        return true;
}

/* View n over what lies at `in`. */
static bool access_view(const Node *n, const Access *in, Access *a)
{
        *a = *in;
        switch (n->op) {
        case OP_RESHAPE: return access_reshape(a, &n->type);
        case OP_SLICE: return slice(n, a);
        case OP_TRANSPOSE:
                for (int i = 0; i < n->type.rank; i++) {
                        a->t.dim[i] = in->t.dim[n->a.perm.perm[i]];
                        a->stride[i] = in->stride[n->a.perm.perm[i]];
                }
                return true;
        case OP_EXPAND:
                a->t = n->type;
                a->t.dt = in->t.dt;
                for (int i = 0; i < n->type.rank; i++) {
                        int j = i - (n->type.rank - in->t.rank);
                        a->stride[i] = j < 0 || !dim_eq(in->t.dim[j], n->type.dim[i])
                                               ? DIM(0)
                                               : in->stride[j];
                }
                return true;
        default: /* append: the state */ return true;
        }
}

/* Value v, which input i of the concat at p[r] is through reshapes, `at` columns behind its
 * first. */
static void place_part(const Graph *g, Place *p, Ref r, int i, Ref v, int64_t at)
{
        const Node *whole = &g->node[r];
        Access a = p[r].lies;
        bool ok = p[r].ok;
        a.off += at * a.stride[whole->type.rank - 1].n;
        a.t = g->node[whole->in[i]].type;
        a.t.dt = whole->type.dt;
        ok = ok && access_reshape(&a, &g->node[v].type);
        p[v] = (Place) { r, at, ok, a };
}

void place_view(const Graph *g, Place *p, Ref r, const Access *in)
{
        p[r].ok = access_view(&g->node[r], in, &p[r].lies);
}

void access_plain(Access *a, Ref base, const Type *t)
{
        Dim s = DIM(1);
        *a = (Access) { .base = base, .t = *t };
        for (int i = t->rank - 1; i >= 0; i--) {
                a->stride[i] = s;
                s = dim_mul(s, t->dim[i]);
        }
}

Place *place_concats(const Graph *g, Arena *arena)
{
        Place *p = arena_alloc(arena, (size_t)g->n_nodes * sizeof *p);
        /* a whole before its parts, which may be wholes */
        for (Ref r = g->n_nodes - 1; r > 0; r--) {
                const Node *n = &g->node[r];
                int64_t at = 0;
                if (!looks_through(n) && !p[r].whole) {
                        access_plain(&p[r].lies, r, &n->type);
                        p[r].ok = true;
                }
                for (int i = 0; n->op == OP_CONCAT && i < n->n_in; i++) {
                        place_part(g, p, r, i, part_value(g, n->in[i]), at);
                        at += g->node[n->in[i]].type.dim[n->type.rank - 1].n;
                }
        }
        for (Ref r = 1; r < g->n_nodes; r++)
                if (looks_through(&g->node[r]) && !p[r].whole && p[g->node[r].in[0]].ok)
                        place_view(g, p, r, &p[g->node[r].in[0]].lies);
        return p;
}

bool access_of(const Graph *g, const Place *place, Ref r, Access *a)
{
        (void)g;
        *a = place[r].lies;
        return place[r].ok;
}

void access_need(const Graph *g, const Place *place, Ref r, Access *a)
{
        if (!access_of(g, place, r, a))
                error_internal(g->node[r].loc, "%%%s cannot be addressed", g->node[r].name);
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
