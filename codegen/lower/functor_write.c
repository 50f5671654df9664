/* functor_write.c: emits a functor's stores (see functor.c).
 *
 *      node       %y: a member that other kernels read
 *      domain     768 columns
 *      address    storage y, index row * 768 + col
 *      text       CUDA  store<V>(a.y + (long)row * 768 + col, y_v);          once a call
 *                 C     uint16_t *y_w = a->y + (long)row * 768;              once a row
 *                       y_w[(col + j)] = bf16_from_float(y);                 in the loop */
#include "functor.h"

bool f_written(F *f, Ref r)
{
        Op op = NODE(f->g, r)->op;
        return op == OP_ACCUM || op == OP_APPEND || f->e->stored[r];
}

/* Of two neighbours, 1, 2 or 4 values; 0: another number. */
static int pair_width(const Dom *d)
{
        return d->num == d->den ? 2 : d->num * 2 == d->den ? 1 : d->num == d->den * 2 ? 4 : 0;
}

/* Where a store of member r lies as rows of its domain's columns. */
static Stored stored_rows(F *f, Ref r)
{
        const Node *n = NODE(f->g, r);
        const Dom *d = &f->dom[f->dom_of[r] - 1];
        Stored s = { .dt = n->type.dt, .cols = d->n, .width = pair_width(d) };
        Access a;
        Type two = type_of(n->type.dt, 2, f->f->rows, DIM(d->n));
        if (n->op == OP_ACCUM) {
                s.slot = (Slot) { .kind = SLOT_GRAD, .id = n->in[0] };
                s.ld = d->n;
        } else if (n->op != OP_APPEND && access_of(f->g, f->e->place, r, &a) &&
                   access_reshape(&a, &two) && dim_eq(a.stride[1], DIM(1)) &&
                   dim_is_const(a.stride[0])) {
                s.dt = NODE(f->g, a.base)->type.dt;
                s.slot = (Slot) { .kind = SLOT_NODE, .id = a.base, .off = a.off * dt_size[s.dt] };
                s.ld = a.stride[0].n;
        }
        return s;
}

void f_emit_stores(F *f, int depth, Ref r)
{
        const Node *n = NODE(f->g, r);
        const int d = f->dom_of[r] - 1;
        const Address a = f_store_address(f, r);
        const bool accum = n->op == OP_ACCUM && n->type.dt == DT_F32,
                   scalar = !index_needs(&a.at, IX_COL);
        const char *add = !accum            ? ""
                          : n->a.accum.more ? "true"
                                            : f_fmt(f, "%s > 0", f_rt(f, "micro")),
                   *src = !f->f->prologue && r == f->f->root ? "v"
                                                             : f_fmt(f, "%s_v", f_name_of(f, r)),
                   *more = accum ? f_fmt(f, ", %s", add) : "",
                   *ptr = index_pointer(&f->print, a.arg, &a.at), *width = f_width(f, d),
                   *first = f_first_col(f, d), *col = index_column_text(&f->print, &a.at, first);
        if (accum && a.vector && f_early(f, f->dom[d].loop)) {
                const char *name = f_name_of(f, r);
                const int units = (8 * f->dom[d].num / f->dom[d].den * 4 + 15) / 16;
                text_add(&f->in_rows, "                Raw<%s, float> %s_sum;\n", width, name);
                text_add(&f->get_rows,
                         "                if (%s)\n"
                         "                        in.%s_sum.get(%s + %s);\n",
                         add, name, ptr, col);
                f->reads += units;
                f->row_reads += units;
                LINE(depth, "accumulate<%s>(%s + %s, %s, %s, in.%s_sum);", width, ptr, col, src,
                     add, name);
        } else if (f->f->puts && a.vector && pair_width(&f->dom[d]) && dt_size[a.dt] == 2 &&
                   f_early(f, f->dom[d].loop)) {
                if (f->stores < MOST_STORED)
                        f->stored[f->stores] = stored_rows(f, r);
                LINE(depth, "out.template put<%d>(%s + %s, %s);", f->stores++, ptr, col, src);
                return;
        } else if (a.vector || scalar) {
                LINE(depth, "%s<%s>(%s + %s, %s%s);", accum ? "accumulate" : "store", width, ptr,
                     col, src, more);
        } else {
                col = index_column_text(&f->print, &a.at, f_fmt(f, "(%s + j)", first));
                LINE(depth, "for (int j = 0; j < %s; j++)", width);
                LINE(depth + 1, "%s(%s + %s, %s[j]%s);", accum ? "accumulate" : "from_float", ptr,
                     col, src, more);
        }
        f->mixed = true;
}

void f_store_lane(F *f, int depth, Ref r, int k, const char *value)
{
        const Node *n = NODE(f->g, r);
        const Address a = f_store_address(f, r);
        const char *col = index_column_text(&f->print, &a.at, f_col_at(f, f->dom_of[r] - 1, k)),
                   *at = f_fmt(f, "%s_w[%s]", f_name_of(f, r), col);
        if (n->op != OP_ACCUM)
                LINE(depth, "%s = %s;", at, f_from_float(a.dt, value, f));
        else if (n->a.accum.more)
                LINE(depth, "%s = %s + %s;", at, at, value);
        else
                LINE(depth, "%s = (%s > 0 ? %s : 0.f) + %s;", at, f_rt(f, "micro"), at, value);
}

void f_emit_row(F *f, int depth, Ref r)
{
        const Address a = f_store_address(f, r);
        LINE(depth, "%s *%s_w = %s;", c_type(a.dt), f_name_of(f, r),
             index_pointer(&f->print, a.arg, &a.at));
}
