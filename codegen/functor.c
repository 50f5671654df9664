/* functor.c: a head, a tail or a map as text, in CUDA and in C.
 *
 * The members of a functor are evaluated for neighbouring elements of one row.
 * Every member lives in a domain, which says how its columns relate to those the
 * functor was called for:
 *
 *      root     the same columns
 *      slice    columns [start, start+n) of the parent: a branch of its own
 *      half     every second column of the parent (of interleaved pairs)
 *      twice    the pairs that interleave makes of the parent's columns
 *
 * Domains that are not behind a slice share one loop.  One step of it handles
 * `lanes` elements of the loop's first domain: 2 where neighbours are a pair.
 *
 * CUDA loads and stores vectors around an unrolled loop of scalar code; C has
 * everything in one loop that the compiler vectorises. */
#include "codegen.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_DOM = 40, MAX_LOAD = 64 };

typedef enum { DOM_ROOT, DOM_SLICE, DOM_HALF, DOM_TWICE } DomKind;

typedef struct Dom {
        DomKind kind;
        int     parent, loop;           /* loop: the domain that opens this one's loop */
        int64_t start, n;
        int     num, den;               /* elements here per element of the loop's domain */
        int     lanes;                  /* elements here per step of the loop */
} Dom;

/* A pointer into some storage, with the row's part of the address added. */
typedef struct Load {
        char   key[1400];               /* what makes two loads one */
        int    dom;
        char   col[400];                /* the column's part, with \2 for the column */
        char   name[40];                /* value */
        char   ptr[40];
        bool   vector, scalar;          /* neighbours are neighbours in memory; one value for the row */
        DType  dt;
} Load;

typedef struct F {
        Emit   *e;
        Args   *a;
        const Functor *f;
        Graph  *g;
        bool    cuda;
        Dom     dom[MAX_DOM];
        int     n_dom;
        int    *dom_of;                 /* node -> domain + 1, 0: not here */
        bool   *exported;               /* read behind a slice: kept in an array */
        Load    load[MAX_LOAD];
        int     n_load, n_name;
        char  (*name)[48];              /* node -> C name */
        int64_t align;                  /* widest vector that all addresses allow */
        bool    uses_T, uses_B;
        FunctorText *out;
        double  elems;
} F;

static int indent_of(int depth) { return 8 * depth; }
#define LINE(d, ...)                                                                                                 \
        (text_add(&f->out->text, "%*s", indent_of(d), ""), text_add(&f->out->text, __VA_ARGS__),                     \
         text_add(&f->out->text, "\n"))

static bool internal(F *f, Ref r) { return f->dom_of[r] != 0; }

/* ---- domains ------------------------------------------------------------ */

static int dom_child(F *f, int parent, DomKind kind, int64_t start, int64_t n)
{
        Dom *p = &f->dom[parent], d = { kind, parent, p->loop, start, n, p->num, p->den, 0 };
        for (int i = 0; i < f->n_dom; i++)
                if (f->dom[i].kind == kind && f->dom[i].parent == parent && f->dom[i].start == start &&
                    f->dom[i].n == n)
                        return i;
        if (f->n_dom == MAX_DOM) {
                fprintf(stderr, "tgc: internal error: a kernel has too many domains\n");
                abort();
        }
        if (kind == DOM_SLICE)
                d.loop = f->n_dom, d.num = d.den = 1;
        else if (kind == DOM_HALF)
                d.den *= 2;
        else
                d.num *= 2;
        if (d.num % 2 == 0 && d.den % 2 == 0)
                d.num /= 2, d.den /= 2;
        f->dom[f->n_dom] = d;
        return f->n_dom++;
}

/* The domain of value r as a reader sees it through views from its base. */
static int dom_seen(F *f, Ref r)
{
        Ref b = value_base(f->g, r);
        int d = f->dom_of[b] - 1;
        Span s;
        if (!span_of(f->g, r, b, f->dom[d].n, &s)) {
                fprintf(stderr, "tgc: internal error: %%%s was fused through a view it cannot follow\n",
                        f->g->node[r].name);
                abort();
        }
        if (s.step == 2) {
                if (s.start >= 2 || s.len * 2 != f->dom[d].n)
                        d = dom_child(f, d, DOM_SLICE, s.start & ~(int64_t)1, s.len * 2);
                return dom_child(f, d, DOM_HALF, s.start & 1, s.len);
        }
        return s.len == f->dom[d].n ? d : dom_child(f, d, DOM_SLICE, s.start, s.len);
}

static void place_members(F *f)
{
        const Functor *fn = f->f;
        f->dom[f->n_dom++] = (Dom){ DOM_ROOT, 0, 0, 0, fn->n, 1, 1, 0 };
        if (!fn->head && fn->root)
                f->dom_of[fn->root] = 1;
        for (int i = 0; i < fn->n_nodes; i++) {
                Ref r = fn->node[i];
                const Node *n = NODE(f->g, r);
                int d = 0;
                for (int j = 0; j < n->n_in; j++) {
                        Ref b = value_base(f->g, n->in[j]);
                        if (internal(f, b) && !(n->op == OP_GATHER)) {
                                int s = dom_seen(f, n->in[j]);
                                d = s;
                                if (f->dom[s].loop != f->dom[f->dom_of[b] - 1].loop)
                                        f->exported[b] = true;
                        }
                }
                if (n->op == OP_INTERLEAVE)
                        d = dom_child(f, d, DOM_TWICE, 0, f->dom[d].n * 2);
                f->dom_of[r] = d + 1;
        }
        /* lanes per step: enough that every domain of the loop has whole elements, and rotary pairs stay together */
        for (int l = 0; l < f->n_dom; l++) {
                int base = 1;
                if (f->dom[l].loop != l)
                        continue;
                for (int again = 1; again; ) {
                        again = 0;
                        for (int d = 0; d < f->n_dom; d++)
                                if (f->dom[d].loop == l && (base * f->dom[d].num) % f->dom[d].den)
                                        base *= 2, again = 1;
                }
                for (int i = 0; i < fn->n_nodes; i++) {
                        Dom *d = &f->dom[f->dom_of[fn->node[i]] - 1];
                        while (NODE(f->g, fn->node[i])->op == OP_ROPE && d->loop == l && (base * d->num / d->den) % 2)
                                base *= 2;
                }
                for (int d = 0; d < f->n_dom; d++)
                        if (f->dom[d].loop == l)
                                f->dom[d].lanes = base * f->dom[d].num / f->dom[d].den;
                if (base > f->out->minv)
                        f->out->minv = base;
        }
}

/* ---- addresses ---------------------------------------------------------- */

static void note_dim(F *f, Dim d)
{
        const Sizes *s = &f->g->sizes;
        f->uses_T |= d.e[SYM_T] && !s->v[SYM_T];
        f->uses_B |= d.e[SYM_B] && !s->v[SYM_B];
}

static const char *dimc(F *f, Dim d)
{
        note_dim(f, d);
        return dim_c(f->e, d);
}

/* Sum of (x / inner % size) * stride over the axes [lo, hi), neighbours joined.
 * Returns whether the innermost step is 1 and its run's length. */
static bool part(F *f, const Type *t, const Dim *stride, int lo, int hi, const char *x, Text *out, int64_t *run_len,
                 bool *zero)
{
        struct { Dim size, stride; } run[MAX_RANK];
        int n = 0;
        Dim inner = DIM(1);
        bool unit = false;
        *zero = true;
        *run_len = 0;
        for (int i = hi - 1; i >= lo; i--) {            /* run[0] is the innermost */
                if (dim_eq(t->dim[i], DIM(1)))
                        continue;
                bool z = stride[i].n == 0;
                if (n &&
                    ((z && run[n - 1].stride.n == 0) ||
                     (!z && run[n - 1].stride.n && dim_eq(stride[i], dim_mul(run[n - 1].stride, run[n - 1].size))))) {
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
                                f->align |= run[k].stride.n & 7 ? run[k].stride.n
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
                                text_add(out, " / %s", dimc(f, inner));
                        if (mod)
                                text_add(out, " %% %s", dimc(f, run[k].size));
                        if (div || mod)
                                text_add(out, ")");
                        if (!one)
                                text_add(out, " * %s", dimc(f, run[k].stride));
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
        if (c != n) {
                fprintf(stderr, "tgc: internal error: a value's shape does not fit its kernel's columns\n");
                abort();
        }
        return i;
}

typedef struct Index { char row[512], col[400]; bool vector, scalar; } Index;

/* Address of element (row, col) of a domain with n columns, for strides over shape t. */
static void index_of(F *f, const Type *t, const Dim *stride, int64_t off, int64_t n, Index *ix)
{
        Text row = { 0 }, col = { 0 };
        int k = split(t, n);
        int64_t run, keep = f->align, m;
        bool row_zero, col_zero;
        f->align = 0;
        part(f, t, stride, 0, k, "row", &row, &run, &row_zero);
        ix->vector = part(f, t, stride, k, t->rank, "\2", &col, &run, &col_zero);
        for (int i = 0; i < k; i++)                     /* a unit stride in the rows also binds vectors */
                if (!dim_eq(t->dim[i], DIM(1)) && stride[i].n)
                        f->align |= stride[i].n;
        ix->scalar = col_zero;
        m = f->align | off | run | 8;
        m &= -m;
        f->align = ix->vector && m < keep ? m : keep;
        if (off)
                text_add(&row, " + %lld", (long long)off);
        snprintf(ix->row, sizeof ix->row, "%s", row.s ? row.s : "");
        snprintf(ix->col, sizeof ix->col, "%s", col.s ? col.s + 3 : "");
        text_free(&row);
        text_free(&col);
}

/* Strides of an operand stretched to shape t. */
static void stretch(const Access *a, const Type *t, Dim *stride)
{
        for (int i = 0; i < t->rank; i++) {
                int j = i - (t->rank - a->t.rank);
                stride[i] =
                        j < 0 || (dim_eq(a->t.dim[j], DIM(1)) && !dim_eq(t->dim[i], DIM(1))) ? DIM(0) : a->stride[j];
        }
}

static void plain_strides(const Type *t, Dim *stride)
{
        Dim s = DIM(1);
        for (int i = t->rank - 1; i >= 0; i--) {
                stride[i] = s;
                s = dim_mul(s, t->dim[i]);
        }
}

/* A C name for node r, unique in this functor. */
static const char *name_of(F *f, Ref r)
{
        if (!f->name[r][0]) {
                const char *s = short_name(f->e, r);
                int k = 0;
                snprintf(f->name[r], sizeof f->name[r], "%.30s", s);
                for (Ref i = 1; i < f->g->n_nodes; i++)
                        if (i != r && !strcmp(f->name[i], f->name[r])) {
                                snprintf(f->name[r], sizeof f->name[r], "%.30s%d", s, ++k + 1);
                                i = 0;
                        }
        }
        return f->name[r];
}

static const char *fmt(F *f, const char *s, ...)
{
        va_list ap;
        char buf[1024];
        va_start(ap, s);
        vsnprintf(buf, sizeof buf, s, ap);
        va_end(ap);
        return arena_str(f->e->tmp, buf);
}

static const char *member(F *f, const char *arg) { return fmt(f, f->cuda ? "a.%s" : "a->%s", arg); }
static const char *rt(F *f, const char *field) { return fmt(f, f->cuda ? "a.rt->%s" : "a->rt->%s", field); }

/* Position of linear index x over (B,T). */
static const char *position(F *f, const char *x)
{
        Dim T = DIM_SYM(SYM_T);
        const char *t = dimc(f, T);
        if (!strcmp(t, "1"))
                return fmt(f, "%s[%s]", rt(f, "pos"), x);
        return fmt(f, "%s[(%s) / %s] + (%s) %% %s", rt(f, "pos"), x, t, x, t);
}

static void subst(char *out, size_t cap, const char *s, const char *col)
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

/* The integer text of a row's index: ids of a gather. */
static const char *row_id(F *f, Ref ids, const Type *shape, int64_t n, bool *per_element, char *col_text)
{
        const Node *x = NODE(f->g, ids);
        Access acc;
        Dim stride[MAX_RANK];
        Index ix;
        int64_t keep = f->align;
        Type t = *shape;
        t.rank = x->type.rank;                          /* ids lead the result's shape */
        *per_element = false;
        Ref b = ids;
        while (NODE(f->g, b)->op == OP_RESHAPE)
                b = NODE(f->g, b)->in[0];
        if (is_virtual(f->g, b)) {
                plain_strides(&t, stride);
                Type whole = *shape;
                for (int i = t.rank; i < whole.rank; i++)
                        stride[i] = DIM(0);
                index_of(f, &whole, stride, 0, n, &ix);
                f->align = keep;
                const char *lin = ix.row[0] ? fmt(f, "(%s)", ix.row + 3) : "0";
                if (NODE(f->g, b)->op == OP_LAST_ROW)
                        return fmt(f, "%s * %s + %s - 1", lin, dimc(f, DIM_SYM(SYM_T)), dimc(f, DIM_SYM(SYM_T)));
                return position(f, lin);
        }
        access_of(f->g, f->e->place, ids, &acc);
        Type whole = *shape;
        stretch(&acc, &t, stride);
        for (int i = t.rank; i < whole.rank; i++)
                stride[i] = DIM(0);
        index_of(f, &whole, stride, acc.off, n, &ix);
        f->align = keep;
        const char *arg = member(f, arg_of(f->e, f->a, acc.base, false));
        if (!ix.scalar) {
                *per_element = true;
                strcpy(col_text, fmt(f, "%s[%s%s%s]", arg, ix.row[0] ? ix.row + 3 : "0", " + ", ix.col));
                return "";
        }
        return fmt(f, "%s[%s]", arg, ix.row[0] ? ix.row + 3 : "0");
}

static const char *to_float(DType dt, const char *x, F *f);

/* A head with nothing fused: the value as it lies in memory. */
static void emit_plain_head(F *f, int depth)
{
        Access acc;
        Index ix;
        char col[512];
        if (!access_of(f->g, f->e->place, f->f->root, &acc)) {
                fprintf(stderr, "tgc: internal error: %%%s cannot be addressed\n", NODE(f->g, f->f->root)->name);
                abort();
        }
        index_of(f, &acc.t, acc.stride, acc.off, f->f->n, &ix);
        const char *arg = member(f, arg_of(f->e, f->a, acc.base, false));
        DType dt = NODE(f->g, acc.base)->type.dt;
        LINE(depth, "const %s *p = %s%s;", c_type(dt), arg, ix.row);
        if (f->cuda && ix.vector) {
                subst(col, sizeof col, ix.col, "col");
                LINE(depth, "load<V>(v, p + %s);", col);
                return;
        }
        subst(col, sizeof col, ix.col[0] ? ix.col : "0", "(col + j)");
        LINE(depth, "for (int j = 0; j < %s; j++)", f->cuda ? "V" : "n");
        LINE(depth + 1, f->cuda ? "v[j] = to_float(%s);" : "v[j] = %s;",
             f->cuda ? fmt(f, "p[%s]", col) : to_float(dt, fmt(f, "p[%s]", col), f));
        f->out->bytes += f->elems * dt_size[dt];
}

/* The load of external operand `in` of node r; creates it on first use. */
static Load *load_of(F *f, Ref r, Ref in)
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
                access_of(g, f->e->place, n->in[0], &acc);
                Dim s0 = acc.stride[0];
                const char *id = row_id(f, n->in[1], &shape, cols, &each, each_text);
                int k = NODE(g, n->in[1])->type.rank;
                for (int i = 0; i < shape.rank; i++)
                        stride[i] = i < k ? DIM(0) : acc.stride[i - k + 1];
                index_of(f, &shape, stride, acc.off, cols, &ix);
                if (each) {
                        const char *at =
                                fmt(f, "(long)%s * %s%s%s", each_text, dimc(f, s0), ix.col[0] ? " + " : "", ix.col);
                        snprintf(ix.col, sizeof ix.col, "%s", at);
                        ix.vector = ix.scalar = false;
                } else {
                        row = fmt(f, " + (long)(%s) * %s", id, dimc(f, s0));
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
                if (!access_of(g, f->e->place, in, &acc)) {
                        fprintf(stderr, "tgc: internal error: %%%s cannot be addressed\n", NODE(g, in)->name);
                        abort();
                }
                stretch(&acc, &shape, stride);
                index_of(f, &shape, stride, acc.off, cols, &ix);
        }
        const char *arg = member(f, arg_of(f->e, f->a, acc.base, false));
        l.vector = ix.vector;
        l.scalar = ix.scalar;
        l.dt = NODE(g, acc.base)->type.dt;
        snprintf(l.col, sizeof l.col, "%s", ix.col[0] ? ix.col : "0");
        snprintf(l.key, sizeof l.key, "%.100s%.400s%.400s|%.400s|%d", arg, ix.row, row, ix.col, l.dom);
        for (int i = 0; i < f->n_load; i++)
                if (!strcmp(f->load[i].key, l.key))
                        return &f->load[i];
        if (f->n_load == MAX_LOAD) {
                fprintf(stderr, "tgc: internal error: a kernel reads too many values\n");
                abort();
        }
        snprintf(l.ptr, sizeof l.ptr, "p%d", f->n_load);
        snprintf(l.name, sizeof l.name, "%s", name_of(f, named));
        for (int i = 0; i < f->n_load; i++)             /* the same value at two places */
                if (!strcmp(f->load[i].name, l.name))
                        snprintf(l.name, sizeof l.name, "%.24s_%d", name_of(f, named), f->n_load);
        /* the row's pointer, kept in the key's place after the comparison */
        snprintf(l.key, sizeof l.key, "%.100s%.400s%.400s|%.400s|%d", arg, ix.row, row, ix.col, l.dom);
        f->load[f->n_load] = l;
        return &f->load[f->n_load++];
}

/* ---- text --------------------------------------------------------------- */

static const char *width(F *f, int d)
{
        const Dom *x = &f->dom[d];
        if (x->num == x->den)
                return "V";
        return x->den > 1 ? fmt(f, "V / %d", x->den) : fmt(f, "%d * V", x->num);
}

/* Column of the first element of domain d at this call (CUDA) or of step j (C). */
static const char *first_col(F *f, int d)
{
        const Dom *x = &f->dom[d];
        const char *c = x->loop ? fmt(f, "c%d", x->loop) : "col";
        if (x->num == x->den)
                return c;
        return x->den > 1 ? fmt(f, "%s / %d", c, x->den) : fmt(f, "%s * %d", c, x->num);
}

/* Index of lane k of domain d in its vector. */
static const char *lane(F *f, int d, int k)
{
        const Dom *x = &f->dom[d];
        const Dom *l = &f->dom[x->loop];
        const char *j = "j";
        if (x->lanes != l->lanes)                       /* j counts the loop's domain */
                j = x->lanes > l->lanes ? fmt(f, "j * %d", x->lanes / l->lanes) : fmt(f, "j / %d", l->lanes / x->lanes);
        return k ? fmt(f, "%s + %d", j, k) : j;
}

/* C: column of lane k. */
static const char *col_at(F *f, int d, int k)
{
        const Dom *x = &f->dom[d];
        const char *c = x->loop ? fmt(f, "c%d", x->loop) : "col";
        const char *s = fmt(f, "%s + j", c);
        if (x->num != x->den)
                s = x->den > 1 ? fmt(f, "(%s) / %d", s, x->den) : fmt(f, "(%s) * %d", s, x->num);
        return k ? fmt(f, "(%s + %d)", s, k) : fmt(f, "(%s)", s);
}

static const char *to_float(DType dt, const char *x, F *f)
{
        switch (dt) {
        case DT_BF16: return fmt(f, "bf16_to_float(%s)", x);
        case DT_F16: return fmt(f, "f16_to_float(%s)", x);
        case DT_F32: return x;
        default: return fmt(f, "(float)%s", x);
        }
}

static const char *from_float(DType dt, const char *x, F *f)
{
        switch (dt) {
        case DT_BF16: return fmt(f, "bf16_from_float(%s)", x);
        case DT_F16: return fmt(f, "f16_from_float(%s)", x);
        case DT_I32: return fmt(f, "(int)%s", x);
        default: return x;
        }
}

static bool is_pair(const Dom *d) { return d->lanes > 1; }

/* The variable of value r (a member or the root) in lane k of its domain. */
static const char *var(F *f, Ref r, int k)
{
        const Dom *d = &f->dom[f->dom_of[r] - 1];
        if (!f->f->head && r == f->f->root)
                return f->cuda ? fmt(f, "v[%s]", lane(f, f->dom_of[r] - 1, k))
                               : fmt(f, "v[%s]", lane(f, f->dom_of[r] - 1, k));
        return is_pair(d) ? fmt(f, "%s_%d", name_of(f, r), k) : name_of(f, r);
}

/* A value that is computed wherever it is read, stretched to a shape. */
static const char *virtual_text(F *f, Ref b, const Type *shape, int d, int k)
{
        const Node *x = NODE(f->g, b);
        char num[32], col[256];
        Dim stride[MAX_RANK];
        Access acc = { .t = x->type };
        Index ix;
        int64_t keep = f->align;
        if (x->op == OP_FILL) {
                num_text(x->a.num.x, num);
                return fmt(f, strpbrk(num, ".en") ? "%sf" : "%s.f", num);
        }
        if (x->op == OP_SHARE || x->op == OP_INV_TOKENS)
                return rt(f, x->op == OP_SHARE ? "share" : "inv_tokens");
        plain_strides(&x->type, acc.stride);
        stretch(&acc, shape, stride);
        index_of(f, shape, stride, 0, f->dom[d].n, &ix);
        f->align = keep;
        subst(col, sizeof col, ix.col[0] ? ix.col : "0",
              f->cuda ? fmt(f, "(%s + %s)", first_col(f, d), lane(f, d, k)) : col_at(f, d, k));
        const char *at = fmt(f, "%s + %s", ix.row[0] ? ix.row + 3 : "0", col);
        if (x->op == OP_LAST_ROW)
                return fmt(f, "(float)((%s) * %s + %s - 1)", at, dimc(f, DIM_SYM(SYM_T)), dimc(f, DIM_SYM(SYM_T)));
        return fmt(f, "(float)(%s)", position(f, at));
}

/* Operand j of member r, lane k of r's domain. */
static const char *operand(F *f, Ref r, int j, int k)
{
        Graph *g = f->g;
        const Node *n = NODE(g, r);
        Ref in = n->in[j], b = value_base(g, in);
        int d = f->dom_of[r] - 1;
        if (is_virtual(g, b))
                return virtual_text(f, b, &n->type, d, k);
        if (internal(f, b)) {
                int s = dom_seen(f, in), home = f->dom_of[b] - 1;
                if (f->dom[s].loop != f->dom[home].loop) {      /* behind a slice */
                        const char *arr = !f->f->head && b == f->f->root ? "v" : fmt(f, "%s_v", name_of(f, b));
                        const char *idx = lane(f, f->dom[s].kind == DOM_HALF ? f->dom[s].parent : s,
                                               f->dom[s].kind == DOM_HALF ? 2 * k + (int)f->dom[s].start : k);
                        if (!f->cuda)
                                idx = fmt(f, "%s + o%d", idx, f->dom[s].loop);
                        return fmt(f, "%s[%s]", arr, idx);
                }
                if (s != home && f->dom[s].kind == DOM_HALF)
                        return var(f, b, 2 * k + (int)f->dom[s].start);
                if (n->op == OP_INTERLEAVE)
                        return var(f, b, k / 2);
                return var(f, b, k);
        }
        Load *l = load_of(f, r, in);
        int ld = l->dom, lk = n->op == OP_INTERLEAVE ? k / 2 : k;
        if (l->scalar)
                return l->name;
        if (f->cuda)
                return fmt(f, "%s[%s]", l->name, lane(f, ld, lk));
        char col[512];
        subst(col, sizeof col, l->col, col_at(f, ld, lk));
        return to_float(l->dt, fmt(f, "%s[%s]", l->ptr, col), f);
}

static void scalar_text(F *f, Ref r, int k, Text *out)
{
        const Node *n = NODE(f->g, r);
        char num[32];
        for (const char *s = op_info[n->op].scalar; *s; s++) {
                if (*s == '$' && s[1] == 'x') {
                        num_text(n->a.num.x, num);
                        text_add(out, strpbrk(num, ".en") ? "%sf" : "%s.f", num);
                        s++;
                } else if (*s == '$') {
                        text_add(out, "%s", operand(f, r, s[1] - '0', k));
                        s++;
                } else {
                        text_put(out, s, 1);
                }
        }
}

static const char *expr(F *f, Ref r, int k)
{
        Graph *g = f->g;
        const Node *n = NODE(g, r);
        Text t = { 0 };
        const char *s;
        if (is_virtual(g, r))
                return virtual_text(f, r, &n->type, f->dom_of[r] - 1, k);
        switch (n->op) {
        case OP_GATHER:
        case OP_CAST:
                return operand(f, r, 0, k);
        case OP_ACCUM: case OP_APPEND:
                return operand(f, r, 1, k);
        case OP_INTERLEAVE:
                return operand(f, r, k & 1, k);
        case OP_DROPOUT: {
                Dim stride[MAX_RANK];
                Index ix;
                char col[256];
                int d = f->dom_of[r] - 1;
                int64_t keep = f->align;
                plain_strides(&n->type, stride);
                index_of(f, &n->type, stride, 0, f->dom[d].n, &ix);
                f->align = keep;
                subst(col, sizeof col, ix.col[0] ? ix.col : "0",
                      f->cuda ? fmt(f, "(%s + %s)", first_col(f, d), lane(f, d, k)) : col_at(f, d, k));
                char p[32];
                num_text(n->a.drop.p, p);
                return fmt(f, "dropout(%s, %sf, %lldu, (unsigned long long)(%s + %s), %s)", operand(f, r, 0, k),
                           strpbrk(p, ".en") ? p : "0.", (long long)n->a.drop.id, ix.row[0] ? ix.row + 3 : "0", col,
                           f->cuda ? "a.rt" : "a->rt");
        }
        default:
                scalar_text(f, r, k, &t);
                s = arena_str(f->e->tmp, t.s);
                text_free(&t);
                return s;
        }
}

/* The token (of B*T) that a row of n columns belongs to; shape's last two axes are
 * heads and their elements. */
static const char *token(F *f, const Type *shape, int64_t n)
{
        Type lead = *shape;
        Dim stride[MAX_RANK] = { 0 };
        Index ix;
        int64_t keep = f->align;
        lead.rank -= 2;
        plain_strides(&lead, stride);
        index_of(f, shape, stride, 0, n, &ix);
        f->align = keep;
        return ix.row[0] ? fmt(f, "%s", ix.row + 3) : "0";
}

/* rope: a pair of lanes at once. */
static void rope_lines(F *f, int depth, Ref r, int k)
{
        const Node *n = NODE(f->g, r);
        int d = f->dom_of[r] - 1;
        int64_t D = n->type.dim[n->type.rank - 1].n, rot = n->a.rope.dims ? n->a.rope.dims : D;
        const char *col = f->cuda ? fmt(f, "(%s + %s)", first_col(f, d), lane(f, d, k)) : col_at(f, d, k);
        const char *pos = position(f, token(f, &n->type, f->dom[d].n));
        Access acc;
        access_of(f->g, f->e->place, n->in[1], &acc);
        const char *freq = member(f, arg_of(f->e, f->a, acc.base, false));
        const char *x0 = operand(f, r, 0, k), *x1 = operand(f, r, 0, k + 1);
        const char *y0 = var(f, r, k), *y1 = var(f, r, k + 1);
        LINE(depth, "float %s, %s;", y0, y1);
        if (rot < D) {
                LINE(depth, "if (%s %% %lld < %lld)", col, (long long)D, (long long)rot);
                LINE(depth + 1, "rope(%s, %s, %s(float)(%s), %s[%s %% %lld / 2], &%s, &%s);", x0, x1,
                     n->a.rope.back ? "-" : "", pos, freq, col, (long long)D, y0, y1);
                LINE(depth, "else");
                LINE(depth + 1, "%s = %s, %s = %s;", y0, x0, y1, x1);
        } else {
                LINE(depth, "rope(%s, %s, %s(float)(%s), %s[%s %% %lld / 2], &%s, &%s);", x0, x1,
                     n->a.rope.back ? "-" : "", pos, freq, col, (long long)D, y0, y1);
        }
}

/* Where the result of member (or root) r goes; base: pointer text without the column. */
static void store_index(F *f, Ref r, const char **ptr, Index *ix, DType *dt)
{
        Graph *g = f->g;
        const Node *n = NODE(g, r);
        Dim stride[MAX_RANK];
        int d = f->dom_of[r] - 1;
        if (n->op == OP_ACCUM) {
                Type t = n->type;
                plain_strides(&t, stride);
                index_of(f, &t, stride, 0, f->dom[d].n, ix);
                *ptr = member(f, arg_grad(f->e, f->a, n->in[0]));
                *dt = DT_F32;
        } else if (n->op == OP_APPEND) {
                const Type *s = &NODE(g, n->in[0])->type, *t = &NODE(g, n->in[1])->type;
                int64_t cols = s->dim[2].n * s->dim[3].n, m = cols | 8;
                const char *T = dimc(f, DIM_SYM(SYM_T)), *S = dimc(f, s->dim[1]), *tok = token(f, t, f->dom[d].n);
                Dim stride[MAX_RANK] = {
                        [2] = s->dim[3], [3] = DIM(1)
                }; /* within a token; its place is the cache's */
                m &= -m;
                f->align = m < f->align ? m : f->align;
                index_of(f, t, stride, 0, f->dom[d].n, ix);
                const char *seq = strcmp(T, "1") ? fmt(f, "(%s) / %s", tok, T) : fmt(f, "(%s)", tok);
                const char *place = fmt(f, " + ((long)(%s) * %s + %s) * %lld%s", seq, S, position(f, tok),
                                        (long long)cols, ix->row);
                snprintf(ix->row, sizeof ix->row, "%s", place);
                *ptr = member(f, arg_of(f->e, f->a, n->in[0], true));
                *dt = s->dt;
        } else {
                Access acc;
                access_of(g, f->e->place, r, &acc);
                Type t = n->type;
                if (!f->f->head && r == f->f->root && NODE(g, r)->op == OP_ITEM)
                        t = acc.t;
                index_of(f, &t, acc.stride, acc.off, f->dom[d].n, ix);
                *ptr = member(f, arg_of(f->e, f->a, acc.base, true));
                *dt = NODE(g, acc.base)->type.dt;
        }
}

static bool written(F *f, Ref r)
{
        Op op = NODE(f->g, r)->op;
        return op == OP_ACCUM || op == OP_APPEND || f->e->stored[r];
}

static void emit_loop(F *f, int loop, int depth);

/* Names and loads in the order of use, so that text is stable. */
static void collect(F *f, int loop)
{
        for (int i = 0; i < f->f->n_nodes; i++) {
                Ref r = f->f->node[i];
                const Node *n = NODE(f->g, r);
                if (f->dom[f->dom_of[r] - 1].loop != loop)
                        continue;
                for (int j = 0; j < n->n_in; j++) {
                        Ref b = value_base(f->g, n->in[j]);
                        if (is_virtual(f->g, b) || internal(f, b))
                                continue;
                        if ((n->op == OP_GATHER && j) || (n->op == OP_ROPE && j) ||
                            ((n->op == OP_ACCUM || n->op == OP_APPEND) && !j))
                                continue;
                        load_of(f, r, n->in[j]);
                }
        }
}

/* A note on what a line computes: its value and where the user wrote it. */
static const char *note(F *f, Ref r)
{
        return fmt(f, "%s", op_info[NODE(f->g, r)->op].text);
}

static void emit_stores(F *f, int depth, Ref r)
{
        Index ix;
        const char *ptr;
        DType dt;
        int d = f->dom_of[r] - 1;
        char col[512];
        bool accum = NODE(f->g, r)->op == OP_ACCUM, more = accum && NODE(f->g, r)->a.accum.more;
        const char *src = !f->f->head && r == f->f->root ? "v" : fmt(f, "%s_v", name_of(f, r));
        store_index(f, r, &ptr, &ix, &dt);
        if (!f->cuda)
                return;
        subst(col, sizeof col, ix.col[0] ? ix.col : "0", first_col(f, d));
        if (ix.vector || ix.scalar) {
                LINE(depth, "%s<%s>(%s%s + %s, %s%s);", accum ? "accumulate" : "store", width(f, d), ptr, ix.row, col,
                     src, accum ? more ? ", true" : fmt(f, ", %s > 0", rt(f, "micro")) : "");
        } else {
                subst(col, sizeof col, ix.col, fmt(f, "(%s + j)", first_col(f, d)));
                LINE(depth, "for (int j = 0; j < %s; j++)", width(f, d));
                LINE(depth + 1, "%s(%s%s + %s, %s[j]%s);", accum ? "accumulate" : "from_float", ptr, ix.row, col, src,
                     accum ? more ? ", true" : fmt(f, ", %s > 0", rt(f, "micro")) : "");
        }
}

/* C: the assignment of one lane. */
static void store_lane(F *f, int depth, Ref r, int k, const char *value)
{
        Index ix;
        const char *ptr;
        DType dt;
        char col[512];
        int d = f->dom_of[r] - 1;
        Op op = NODE(f->g, r)->op;
        store_index(f, r, &ptr, &ix, &dt);
        subst(col, sizeof col, ix.col[0] ? ix.col : "0", col_at(f, d, k));
        const char *at = fmt(f, "%s_w[%s]", name_of(f, r), col);
        if (op == OP_ACCUM)
                LINE(depth, "%s = %s%s;", at,
                     NODE(f->g, r)->a.accum.more ? fmt(f, "%s + ", at)
                                                 : fmt(f, "(%s > 0 ? %s : 0.f) + ", rt(f, "micro"), at),
                     value);
        else
                LINE(depth, "%s = %s;", at, from_float(dt, value, f));
}

static void emit_loop(F *f, int loop, int depth)
{
        const Functor *fn = f->f;
        bool any = false, slices = false;
        bool root_here = fn->root && !fn->head && loop == 0;
        for (int i = 0; i < fn->n_nodes; i++)
                any |= f->dom[f->dom_of[fn->node[i]] - 1].loop == loop;
        for (int d = 0; d < f->n_dom; d++)
                slices |= f->dom[d].kind == DOM_SLICE && f->dom[f->dom[d].parent].loop == loop && d != loop;
        int first_load = f->n_load;
        collect(f, loop);
        for (int i = first_load; i < f->n_load; i++) {
                Load *l = &f->load[i];
                char col[512];
                char *bar = strchr(l->key, '|');
                const char *at = fmt(f, "%.*s", (int)(bar - l->key), l->key);
                if (l->scalar) {
                        if (f->cuda)
                                LINE(depth, "const float %s = to_float(*(%s));", l->name, at);
                        else
                                LINE(depth, "const float %s = %s;", l->name, to_float(l->dt, fmt(f, "*(%s)", at), f));
                } else if (f->cuda) {
                        LINE(depth, "const %s *%s = %s;", c_type(l->dt), l->ptr, at);
                        LINE(depth, "float %s[%s];", l->name, width(f, l->dom));
                        if (l->vector) {
                                subst(col, sizeof col, l->col, first_col(f, l->dom));
                                LINE(depth, "load<%s>(%s, %s + %s);", width(f, l->dom), l->name, l->ptr, col);
                        } else {
                                subst(col, sizeof col, l->col, fmt(f, "(%s + j)", first_col(f, l->dom)));
                                LINE(depth, "for (int j = 0; j < %s; j++)", width(f, l->dom));
                                LINE(depth + 1, "%s[j] = to_float(%s[%s]);", l->name, l->ptr, col);
                        }
                } else {
                        LINE(depth, "const %s *%s = %s;", c_type(l->dt), l->ptr, at);
                }
        }
        /* result arrays */
        for (int i = 0; i < fn->n_nodes; i++) {
                Ref r = fn->node[i];
                int d = f->dom_of[r] - 1;
                if (f->dom[d].loop != loop)
                        continue;
                if (f->cuda ? written(f, r) || f->exported[r] : f->exported[r])
                        LINE(depth, "float %s_v[%s];", name_of(f, r),
                             f->cuda                         ? width(f, d)
                             : f->dom[d].num > f->dom[d].den ? "2 * TGC_SEG"
                                                             : "TGC_SEG");
                if (!f->cuda && written(f, r)) {
                        Index ix;
                        const char *ptr;
                        DType dt;
                        store_index(f, r, &ptr, &ix, &dt);
                        LINE(depth, "%s *%s_w = %s%s;", c_type(dt), name_of(f, r), ptr, ix.row);
                }
        }
        if (root_here && written(f, fn->root) && !f->cuda) {
                Index ix;
                const char *ptr;
                DType dt;
                store_index(f, fn->root, &ptr, &ix, &dt);
                LINE(depth, "%s *%s_w = %s%s;", c_type(dt), name_of(f, fn->root), ptr, ix.row);
        }
        if (any || (root_here && written(f, fn->root) && !f->cuda)) {
                int step = f->dom[loop].lanes;
                const char *inc = step == 1 ? "j++" : fmt(f, "j += %d", step);
                if (f->cuda) {
                        LINE(depth, "#pragma unroll");
                        LINE(depth, "for (int j = 0; j < V; %s) {", inc);
                } else {
                        LINE(depth, "TGC_IVDEP");
                        LINE(depth, "for (int j = 0; j < %s; %s) {", loop ? fmt(f, "n%d", loop) : "n", inc);
                }
                if (root_here && written(f, fn->root) && !f->cuda)
                        for (int k = 0; k < f->dom[0].lanes; k++)
                                store_lane(f, depth + 1, fn->root, k, var(f, fn->root, k));
                for (int i = 0; i < fn->n_nodes; i++) {
                        Ref r = fn->node[i];
                        int d = f->dom_of[r] - 1, lanes = f->dom[d].lanes;
                        if (f->dom[d].loop != loop)
                                continue;
                        for (int k = 0; k < lanes; k++) {
                                if (NODE(f->g, r)->op == OP_ROPE) {
                                        if (k % 2 == 0)
                                                rope_lines(f, depth + 1, r, k);
                                } else {
                                        LINE(depth + 1, "float %s = %s;%s", var(f, r, k), expr(f, r, k),
                                             k ? "" : fmt(f, "   // %s", note(f, r)));
                                }
                        }
                        for (int k = 0; k < lanes; k++) {
                                if (f->cuda ? written(f, r) || f->exported[r] : f->exported[r])
                                        LINE(depth + 1, "%s_v[%s] = %s;", name_of(f, r), lane(f, d, k), var(f, r, k));
                                if (!f->cuda && written(f, r))
                                        store_lane(f, depth + 1, r, k, var(f, r, k));
                                if (fn->head ? r == fn->root : r == fn->result)
                                        LINE(depth + 1, "v[%s] = %s;", lane(f, d, k), var(f, r, k));
                        }
                        f->out->flops += f->elems * f->dom[d].num / f->dom[d].den;
                }
                LINE(depth, "}");
        }
        if (f->cuda) {
                if (root_here && written(f, fn->root))
                        emit_stores(f, depth, fn->root);
                for (int i = 0; i < fn->n_nodes; i++)
                        if (f->dom[f->dom_of[fn->node[i]] - 1].loop == loop && written(f, fn->node[i]))
                                emit_stores(f, depth, fn->node[i]);
        }
        for (int d = 0; slices && d < f->n_dom; d++) {
                const Dom *x = &f->dom[d];
                if (x->kind != DOM_SLICE || d == loop || f->dom[x->parent].loop != loop)
                        continue;
                const char *c = x->parent == loop || f->dom[x->parent].num == f->dom[x->parent].den
                                        ? (loop ? fmt(f, "c%d", loop) : "col")
                                        : "col";
                int64_t end = x->start + x->n, m = x->start | x->n | 8;
                m &= -m;
                f->align = m < f->align ? m : f->align;
                if (f->cuda) {
                        if (x->start == 0)
                                LINE(depth, "if (%s < %lld) {", c, (long long)end);
                        else if (end == f->dom[x->parent].n)
                                LINE(depth, "if (%s >= %lld) {", c, (long long)x->start);
                        else
                                LINE(depth, "if (%s >= %lld && %s < %lld) {", c, (long long)x->start, c,
                                     (long long)end);
                        LINE(depth + 1, "const int c%d = %s - %lld;", d, c, (long long)x->start);
                } else {
                        const char *n = loop ? fmt(f, "n%d", loop) : "n";
                        LINE(depth, "if (%s < %lld && %s + %s > %lld) {", c, (long long)end, c, n, (long long)x->start);
                        LINE(depth + 1, "const int o%d = %s < %lld ? %lld - %s : 0, c%d = %s + o%d - %lld;", d, c,
                             (long long)x->start, (long long)x->start, c, d, c, d, (long long)x->start);
                        LINE(depth + 1, "const int n%d = %s + %s > %lld ? %lld - %s - o%d : %s - o%d;", d, c, n,
                             (long long)end, (long long)end, c, d, n, d);
                }
                emit_loop(f, d, depth + 1);
                LINE(depth, "}");
        }
}

static double slot_bytes(F *f)
{
        double b = 0;
        for (int i = 0; i < f->n_load; i++)
                b += f->load[i].scalar ? 0 : f->elems * dt_size[f->load[i].dt];
        for (int i = 0; i < f->f->n_nodes; i++)
                if (written(f, f->f->node[i]))
                        b += f->elems * dt_size[NODE(f->g, f->f->node[i])->type.dt];
        return b;
}

void functor_emit(Emit *e, Args *a, const Functor *fn, const char *name, FunctorText *out)
{
        F *f = arena_alloc(e->tmp, sizeof *f);
        Graph *g = e->g;
        Sizes most = g->sizes;
        *f = (F){ .e = e, .a = a, .f = fn, .g = g, .cuda = e->m->target == TARGET_CUDA, .align = 8, .out = out };
        f->dom_of = arena_alloc(e->tmp, (size_t)g->n_nodes * sizeof(int));
        f->exported = arena_alloc(e->tmp, (size_t)g->n_nodes);
        f->name = arena_alloc(e->tmp, (size_t)g->n_nodes * sizeof *f->name);
        *out = (FunctorText){ .minv = 1 };
        for (int i = 0; i < N_SYM; i++)
                if (!most.v[i])
                        most.v[i] = 1;
        f->elems = (double)dim_value(fn->rows, &most) * (double)(fn->n ? fn->n : 1);
        place_members(f);
        if (fn->head && !fn->n_nodes)
                emit_plain_head(f, f->cuda ? 2 : 1);
        else
                emit_loop(f, 0, f->cuda ? 2 : 1);
        Text body = out->text;
        out->text = (Text){ 0 };
        int64_t v = f->align;
        while (fn->n && fn->n % v)
                v /= 2;
        if (!fn->n)
                v = 1;
        if (v < out->minv)
                v = out->minv;
        out->maxv = (int)v;
        out->bytes = slot_bytes(f);
        if (f->cuda) {
                text_add(&out->text,
                         "struct %s {\n        static constexpr int MAXV = %d, MINV = %d;\n        const \1_args "
                         "&a;\n",
                         name, out->maxv, out->minv);
                text_add(&out->text, "        template <int V> __device__ __forceinline__ void operator()(int row, "
                                     "int col, float (&v)[V]) const\n        {\n");
        } else {
                text_add(&out->text,
                         "TGC_INLINE void %s(const void *args, long row, int col, int n, float *v)\n{\n        const "
                         "\1_args *a = args;\n",
                         name);
                text_add(&out->text, "        (void)row, (void)col, (void)n, (void)v, (void)a;\n");
        }
        int d = f->cuda ? 2 : 1;
        if (f->uses_T)
                LINE(d, "const int T = %s;", rt(f, "T"));
        if (f->uses_B)
                LINE(d, "const int B = %s;", rt(f, "B"));
        if (body.s)
                text_put(&out->text, body.s, body.n);
        text_add(&out->text, f->cuda ? "        }\n};\n\n" : "}\n\n");
        text_free(&body);
}
