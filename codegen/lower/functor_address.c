/* functor_address.c: finds where the operands and results of a functor lie.
 *
 *      node       operand or result of a member
 *      access     offset and strides over its storage (access.c)
 *      domain     rows and columns of the functor, which axes make up either
 *      address    storage, index of (row, column) (index.c), and whether V columns come at once
 *
 * The code that emits a load or a store prints the address (index_text.c). */
#include "functor.h"

bool f_internal(F *f, Ref r) { return f->dom_of[r] != 0; }

bool f_virtual(const F *f, Ref in, Access *seen)
{
        return access_of(f->g, f->e->place, in, seen) && is_virtual(f->g, seen->base);
}

/* The first axis of the columns: trailing axes make up n. */
static int first_column(const Type *t, int64_t n)
{
        int64_t c = 1;
        int i = t->rank;
        if (n == 0)
                return t->rank - 1;
        while (i > 0 && c < n && dim_is_const(t->dim[i - 1]))
                c *= t->dim[--i].n;
        while (i > 0 && dim_eq(t->dim[i - 1], DIM(1)) && n == c && i > 0)
                i--;
        if (c != n)
                error_internal((Loc) { 0 }, "a value's shape does not fit its kernel's columns");
        return i;
}

void f_index(Index *ix, const Type *t, const Dim *stride, int64_t off, int64_t n,
             const Term *between)
{
        const int k = first_column(t, n);
        index_add_axes(ix, IX_ROW, t->dim, stride, k);
        index_add(ix, (Term) { .var = IX_ONE, .coef = DIM(off) });
        if (between)
                index_add(ix, *between);
        index_add_axes(ix, IX_COL, t->dim + k, stride + k, t->rank - k);
}

bool f_vector(F *f, const Index *ix, int d)
{
        const Dom *x = &f->dom[d];
        int64_t m = index_align(ix);
        if (m < 8 && x->num > x->den)
                m = m * x->den / x->num;
        if (!index_contiguous(ix) || m < f->out->minv)
                return false; /* what comes together may lie apart: one by one */
        if (m < f->align)
                f->align = m;
        return true;
}

/* Strides of an operand stretched to shape t. */
void f_stretch(const Access *a, const Type *t, Dim *stride)
{
        for (int i = 0; i < t->rank; i++) {
                int j = i - (t->rank - a->t.rank);
                stride[i] = j < 0 || (dim_eq(a->t.dim[j], DIM(1)) && !dim_eq(t->dim[i], DIM(1)))
                                    ? DIM(0)
                                    : a->stride[j];
        }
}

void f_plain_strides(const Type *t, Dim *stride)
{
        Dim s = DIM(1);
        for (int i = t->rank - 1; i >= 0; i--) {
                stride[i] = s;
                s = dim_mul(s, t->dim[i]);
        }
}

/* The token (of B*T) that a row of n columns belongs to; shape's last two axes are heads and their
 * elements. */
Index f_token(const Type *shape, int64_t n)
{
        Type lead = *shape;
        Dim stride[MAX_RANK] = { 0 };
        Index ix = { 0 };
        lead.rank -= 2;
        f_plain_strides(&lead, stride);
        f_index(&ix, shape, stride, 0, n, NULL);
        return ix;
}

void f_read_position(F *f)
{
        if (!f->print.position || f->pos_ahead)
                return;
        text_add(&f->in, "                int pos;\n");
        text_add(&f->get_rows, "                in.pos = %s[0];\n", f_rt(f, "pos"));
        f->pos_ahead = true;
}

Address f_load_address(F *f, const Access *a, const Type *shape, int64_t off, int64_t n)
{
        Address at = { .base = a->base,
                       .dt = NODE(f->g, a->base)->type.dt,
                       .blocks = node_storage(NODE(f->g, a->base)) };
        Dim stride[MAX_RANK];
        f_stretch(a, shape, stride);
        f_index(&at.at, shape, stride, off, n, NULL);
        return at;
}

/* Of an append: the token's place in the cache, and the column in it. */
static Address append_address(F *f, const Node *n, int64_t cols)
{
        const Type *cache = &NODE(f->g, n->in[0])->type, *t = &NODE(f->g, n->in[1])->type;
        const Dim width = dim_mul(cache->dim[2], cache->dim[3]),
                  stride[MAX_RANK] = { [2] = cache->dim[3], [3] = DIM(1) };
        Address a = { .base = n->in[0], .dt = cache->dt };
        Index *token = arena_alloc(f->e->tmp, sizeof *token);
        *token = f_token(t, cols);
        index_add(&a.at, (Term) { .var = IX_PLACE,
                                  .coef = width,
                                  .of = token,
                                  .slots = cache->dim[1],
                                  .pool = pool_of(f->e, NODE(f->g, n->in[0])->a.cache.window) });
        f_index(&a.at, t, stride, 0, cols, NULL);
        f_read_position(f);
        a.arg = f_member(f, arg_of(f->e, f->a, n->in[0], true));
        return a;
}

/* Where the result of member (or root) r goes. */
Address f_store_address(F *f, Ref r)
{
        const Node *n = NODE(f->g, r);
        const int64_t cols = f->dom[f->dom_of[r] - 1].n;
        Address a = { 0 };
        if (n->op == OP_ACCUM) {
                Dim stride[MAX_RANK];
                f_plain_strides(&n->type, stride);
                f_index(&a.at, &n->type, stride, 0, cols, NULL);
                a.dt = f->cuda ? n->type.dt : DT_F32;
                a.arg = f_member(f, arg_grad(f->e, f->a, n->in[0], a.dt));
        } else if (n->op == OP_APPEND) {
                a = append_address(f, n, cols);
        } else {
                Access acc;
                access_need(f->g, f->e->place, r, &acc);
                const bool item = !f->f->prologue && r == f->f->root && n->op == OP_ITEM;
                f_index(&a.at, item ? &acc.t : &n->type, acc.stride, acc.off, cols, NULL);
                a.base = acc.base;
                a.dt = NODE(f->g, acc.base)->type.dt;
                a.arg = f_member(f, arg_part(f->e, f->a, r, acc.base));
        }
        a.vector = f_vector(f, &a.at, f->dom_of[r] - 1);
        return a;
}
