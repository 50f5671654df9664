/* functor_address.c: where operands and results of a functor lie: offsets as text. */
#include "functor.h"
#include <stdlib.h>
#include <string.h>

bool f_internal(F *f, Ref r) { return f->dom_of[r] != 0; }

static void note_dim(F *f, Dim d)
{
        const Sizes *s = &f->g->sizes;
        f->uses_T |= d.e[SYM_T] && !s->v[SYM_T];
        f->uses_B |= d.e[SYM_B] && !s->v[SYM_B];
}

const char *f_dimc(F *f, Dim d)
{
        note_dim(f, d);
        return dim_c(f->e, d);
}

/* Sum of (x / inner % size) * stride over the axes [lo, hi), neighbours joined.
 * Returns whether the innermost step is 1 and its run's length. */
static bool part(F *f, const Type *t, const Dim *stride, int lo, int hi, const char *x, Text *out,
                 int64_t *run_len, bool *zero)
{
        struct {
                Dim size, stride;
        } run[MAX_RANK];
        int n = 0;
        Dim inner = DIM(1);
        bool unit = false;
        *zero = true;
        *run_len = 0;
        for (int i = hi - 1; i >= lo; i--) { /* run[0] is the innermost */
                if (dim_eq(t->dim[i], DIM(1)))
                        continue;
                bool z = stride[i].n == 0;
                if (n && ((z && run[n - 1].stride.n == 0) ||
                          (!z && run[n - 1].stride.n &&
                           dim_eq(stride[i], dim_mul(run[n - 1].stride, run[n - 1].size))))) {
                        run[n - 1].size = dim_mul(run[n - 1].size, t->dim[i]);
                } else {
                        run[n].size = t->dim[i];
                        run[n++].stride = stride[i];
                }
        }
        for (int k = 0; k < n; k++) {
                if (run[k].stride.n) {
                        bool one = dim_eq(run[k].stride, DIM(1));
                        *zero = false;
                        if (k == 0 && one) {
                                unit = true;
                                *run_len = n == 1 ? 0 : run[0].size.n;
                        } else {
                                f->align |= run[k].stride.n & 7
                                                    ? run[k].stride.n
                                                    : 0; /* collected as odd bits, see index_of */
                        }
                        text_add(out, " + ");
                        if (!one)
                                text_add(out, "(long)");
                        bool div = !dim_eq(inner, DIM(1)), mod = k + 1 < n;
                        if (div || mod)
                                text_add(out, "(");
                        text_add(out, "%s", x);
                        if (div)
                                text_add(out, " / %s", f_dimc(f, inner));
                        if (mod)
                                text_add(out, " %% %s", f_dimc(f, run[k].size));
                        if (div || mod)
                                text_add(out, ")");
                        if (!one)
                                text_add(out, " * %s", f_dimc(f, run[k].stride));
                }
                inner = dim_mul(inner, run[k].size);
        }
        return unit;
}

/* First axis of the columns: trailing axes that make up n. */
static int split(const Type *t, int64_t n)
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

/* Address of element (row, col) of a domain with n columns, for strides over shape t. */
void f_index_of(F *f, const Type *t, const Dim *stride, int64_t off, int64_t n, Index *ix)
{
        Text row = { 0 }, col = { 0 };
        int k = split(t, n);
        int64_t run, keep = f->align, m;
        bool row_zero, col_zero;
        f->align = 0;
        part(f, t, stride, 0, k, "row", &row, &run, &row_zero);
        ix->vector = part(f, t, stride, k, t->rank, "\2", &col, &run, &col_zero);
        for (int i = 0; i < k; i++) /* a unit stride in the rows also binds vectors */
                if (!dim_eq(t->dim[i], DIM(1)) && stride[i].n)
                        f->align |= stride[i].n;
        ix->scalar = col_zero;
        m = f->align | off | run | 8;
        m &= -m;
        if (m < f->out->minv) /* what comes together may lie apart: one by one */
                ix->vector = false;
        f->align = ix->vector && m < keep ? m : keep;
        if (off)
                text_add(&row, " + %lld", (long long)off);
        snprintf(ix->row, sizeof ix->row, "%s", row.s ? row.s : "");
        snprintf(ix->col, sizeof ix->col, "%s", col.s ? col.s + 3 : "");
        text_free(&row);
        text_free(&col);
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

/* A C name for node r, unique in this functor. */
const char *f_name_of(F *f, Ref r)
{
        if (!f->name[r][0]) {
                const char *s = short_name(f->e, r);
                int k = 0;
                snprintf(f->name[r], sizeof f->name[r], "%.30s", s);
                for (int i = 0; i < f->n_named; i++)
                        if (!strcmp(f->name[f->named[i]], f->name[r])) {
                                snprintf(f->name[r], sizeof f->name[r], "%.30s%d", s, ++k + 1);
                                i = -1;
                        }
                f->named[f->n_named++] = r;
        }
        return f->name[r];
}

const char *f_fmt(F *f, const char *s, ...)
{
        va_list ap;
        char buf[1024];
        va_start(ap, s);
        vsnprintf(buf, sizeof buf, s, ap);
        va_end(ap);
        return arena_str(f->e->tmp, buf);
}

const char *f_member(F *f, const char *arg) { return f_fmt(f, f->cuda ? "a.%s" : "a->%s", arg); }
const char *f_rt(F *f, const char *field)
{
        return f_fmt(f, f->cuda ? "a.rt->%s" : "a->rt->%s", field);
}

/* A product's epilogue, of the one token of one sequence: what it reads beside the product starts
 * before it. */
static bool one_token(const F *f)
{
        return f->cuda && f->f->root && !f->f->prologue &&
               NODE(f->g, f->f->root)->op == OP_MATMUL && f->g->sizes.v[SYM_B] == 1 &&
               f->g->sizes.v[SYM_T] == 1;
}

/* Tokens of one sequence need no division. */
static bool f_one_sequence(const F *f) { return f->g->sizes.v[SYM_B] == 1; }

/* Sequence of linear index x over (B,T). */
const char *f_sequence(F *f, const char *x)
{
        Dim T = DIM_SYM(SYM_T);
        if (!strcmp(dim_c(f->e, T), "1"))
                return f_fmt(f, "(%s)", x);
        return f_one_sequence(f) ? "0" : f_fmt(f, "(%s) / %s", x, f_dimc(f, T));
}

/* Position of linear index x over (B,T). */
const char *f_position(F *f, const char *x)
{
        Dim T = DIM_SYM(SYM_T);
        const char *t = dim_c(f->e, T);
        if (one_token(f)) {
                if (!f->pos_ahead) {
                        text_add(&f->in, "                int pos;\n");
                        text_add(&f->get_rows, "                in.pos = %s[0];\n", f_rt(f, "pos"));
                }
                f->pos_ahead = true;
                return "in.pos";
        }
        if (!strcmp(t, "1"))
                return f_fmt(f, "%s[%s]", f_rt(f, "pos"), x);
        /* otherwise positions are the host's */
        const char *pos = f_fmt(f, f->cuda ? "fixed(&%s[%s])" : "%s[%s]", f_rt(f, "pos"),
                                f_sequence(f, x));
        return f_one_sequence(f) ? f_fmt(f, "%s + (%s)", pos, x)
                                 : f_fmt(f, "%s + (%s) %% %s", pos, x, f_dimc(f, T));
}

/* Where domain d begins in the columns of the functor; -1: not a run of them. */
static int64_t start_of(const F *f, int d)
{
        int64_t start = 0;
        for (; f->dom[d].kind == DOM_SLICE; d = f->dom[d].parent)
                start += f->dom[d].start;
        return f->dom[d].kind == DOM_ROOT ? start : -1;
}

/* The frequency that turns lanes k and k + 1 of domain d, prologues of D one after the other; col:
 * the column of lane k. */
const char *f_frequency(F *f, const char *freq, int d, int k, const char *col, int64_t D)
{
        int64_t start = start_of(f, d);
        if (!one_token(f) || start < 0 || start % D ||
            (f->freq && (strcmp(f->freq, freq) || f->freq_D != D)))
                return f_fmt(f, f->cuda ? "fixed(&%s[%s %% %lld / 2])" : "%s[%s %% %lld / 2]", freq,
                             col, (long long)D);
        if (!f->freq) {
                text_add(&f->in, "                float freq[V / 2];\n");
                text_add(
                        &f->get_cols,
                        "                #pragma unroll\n                for (int j = 0; j < V; j += 2)\n"
                        "                        in.freq[j / 2] = fixed(&%s[(col + j) %% %lld / 2]);\n",
                        freq, (long long)D);
        }
        f->freq = freq;
        f->freq_D = D;
        return f_fmt(f, "in.freq[(%s) / 2]", f_lane(f, d, k));
}

void f_subst(char *out, size_t cap, const char *s, const char *col)
{
        size_t n = 0;
        for (; *s && n + 1 < cap; s++) {
                if (*s == '\2')
                        n += (size_t)snprintf(out + n, cap - n, "%s", col);
                else
                        out[n++] = *s;
        }
        out[n < cap ? n : cap - 1] = 0;
}

bool f_virtual(const F *f, Ref in, Access *seen)
{
        return access_of(f->g, f->e->place, in, seen) && is_virtual(f->g, seen->base);
}

/* The integer text of a row's index: ids of a gather. */
static const char *row_id(F *f, Ref ids, const Type *shape, int64_t n, bool *per_element,
                          char *col_text)
{
        Access acc;
        Dim stride[MAX_RANK];
        Index ix;
        int64_t keep = f->align;
        Type t = *shape;
        t.rank = NODE(f->g, ids)->type.rank; /* ids lead the result's shape */
        *per_element = false;
        access_need(f->g, f->e->place, ids, &acc);
        Type whole = *shape;
        f_stretch(&acc, &t, stride);
        for (int i = t.rank; i < whole.rank; i++)
                stride[i] = DIM(0);
        f_index_of(f, &whole, stride, acc.off, n, &ix);
        f->align = keep;
        if (is_virtual(f->g, acc.base)) { /* positions, or one number for all */
                const char *row = ix.row[0] ? ix.row + 3 : "0",
                           *lin = ix.scalar ? f_fmt(f, "(%s)", row)
                                            : f_fmt(f, "(%s + %s)", row, ix.col);
                const Node *v = NODE(f->g, acc.base);
                if (v->op == OP_FILL)
                        return f_fmt(f, "%lld", (long long)v->a.num.x);
                if (ix.scalar)
                        return f_position(f, lin);
                *per_element = true;
                strcpy(col_text, f_fmt(f, "(%s)", f_position(f, lin)));
                return "";
        }
        const char *arg = f_member(f, arg_of(f->e, f->a, acc.base, false));
        if (!ix.scalar) {
                *per_element = true;
                strcpy(col_text,
                       f_fmt(f, "%s[%s%s%s]", arg, ix.row[0] ? ix.row + 3 : "0", " + ", ix.col));
                return "";
        }
        return f_fmt(f, "%s[%s]", arg, ix.row[0] ? ix.row + 3 : "0");
}

/* Every second element of a row whose pairs are aligned to 16 elements: 1 the first of each pair, 2
 * the second; else 0. */
static int half_of(const Type *shape, const Dim *stride, int64_t off)
{
        int last = shape->rank - 1;
        if (last < 0 || !dim_eq(stride[last], DIM(2)) || (off & 15) > 1)
                return 0;
        for (int i = 0; i < last; i++)
                if (stride[i].n & 15)
                        return 0;
        return 1 + (int)(off & 1);
}

/* Where a load lies as rows: of its domain's columns, or (half) of pairs. */
static Stored load_rows(const F *f, Access a, const Load *l)
{
        int64_t n = f->dom[l->dom].n;
        Stored s = { .dt = NODE(f->g, a.base)->type.dt,
                     .cols = l->half ? 2 * n : n,
                     .width = l->half ? 4 : 2 };
        Type two = type_of(s.dt, 2, f->f->rows, DIM(n));
        int64_t first = a.off - (l->half == 2);
        if (access_reshape(&a, &two) && dim_eq(a.stride[1], DIM(l->half ? 2 : 1)) &&
            dim_is_const(a.stride[0])) {
                s.slot = (Slot) { .kind = SLOT_NODE, .id = a.base, .off = first * dt_size[s.dt] };
                s.ld = a.stride[0].n;
        }
        return s;
}

/* The load of external operand `in` of node r; creates it on first use. */
Load *f_load_of(F *f, Ref r, Ref in)
{
        Graph *g = f->g;
        const Node *n = NODE(g, r);
        Access acc;
        Dim stride[MAX_RANK];
        Index ix;
        Load l = { .dom = f->dom_of[r] - 1 };
        Type shape = n->op == OP_APPEND ? NODE(g, n->in[1])->type : n->type;
        int64_t cols = f->dom[l.dom].n;
        const char *row = "";
        Ref named = in;
        if (n->op == OP_INTERLEAVE) {
                shape = NODE(g, in)->type;
                cols /= 2;
                l.dom = f->dom[l.dom].parent;
        }
        if (n->op == OP_GATHER) {
                bool each;
                char each_text[256] = "";
                access_need(g, f->e->place, n->in[0], &acc);
                Dim s0 = acc.stride[0];
                const char *id = row_id(f, n->in[1], &shape, cols, &each, each_text);
                int k = NODE(g, n->in[1])->type.rank;
                for (int i = 0; i < shape.rank; i++)
                        stride[i] = i < k ? DIM(0) : acc.stride[i - k + 1];
                f_index_of(f, &shape, stride, acc.off, cols, &ix);
                if (each) {
                        const char *at = f_fmt(f, "(long)%s * %s%s%s", each_text, f_dimc(f, s0),
                                               ix.col[0] ? " + " : "", ix.col);
                        snprintf(ix.col, sizeof ix.col, "%s", at);
                        ix.vector = ix.scalar = false;
                } else {
                        row = f_fmt(f, " + (long)(%s) * %s", id, f_dimc(f, s0));
                        if (s0.n % f->out->minv)
                                ix.vector = false;
                        if (ix.vector) {
                                int64_t m = s0.n | 8;
                                m &= -m;
                                f->align = m < f->align ? m : f->align;
                        }
                }
                named = n->in[0];
        } else if (n->op == OP_ROPE && in == n->in[1]) {
                return NULL;
        } else {
                access_need(g, f->e->place, in, &acc);
                f_stretch(&acc, &shape, stride);
                l.half = f->cuda ? half_of(&shape, stride, acc.off) : 0;
                f_index_of(f, &shape, stride, acc.off - (l.half == 2), cols, &ix);
                if (l.half && strcmp(ix.col, "(long)\2 * 2"))
                        l.half = 0, f_index_of(f, &shape, stride, acc.off, cols, &ix);
                l.rows = load_rows(f, acc, &l);
        }
        const char *arg = f_member(f, arg_of(f->e, f->a, acc.base, false));
        l.vector = ix.vector;
        l.scalar = ix.scalar;
        l.dt = NODE(g, acc.base)->type.dt;
        snprintf(l.col, sizeof l.col, "%s", ix.col[0] ? ix.col : "0");
        snprintf(l.key, sizeof l.key, "%.100s%.400s%.400s|%.400s|%d|%d", arg, ix.row, row, ix.col,
                 l.dom, l.half);
        for (int i = 0; i < f->n_load; i++)
                if (!strcmp(f->load[i].key, l.key))
                        return &f->load[i];
        if (f->n_load == MAX_LOAD)
                error_internal(n->loc, "a kernel reads too many values");
        snprintf(l.ptr, sizeof l.ptr, "p%d", f->n_load);
        snprintf(l.name, sizeof l.name, "%s", f_name_of(f, named));
        for (int i = 0; i < f->n_load; i++) /* the same value at two places */
                if (!strcmp(f->load[i].name, l.name))
                        snprintf(l.name, sizeof l.name, "%.24s_%d", f_name_of(f, named), f->n_load);
        f->load[f->n_load] = l;
        return &f->load[f->n_load++];
}
