/* functor_value.c: the value of a member in one lane, as text. */
#include "functor.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *f_width(F *f, int d)
{
        const Dom *x = &f->dom[d];
        if (x->num == x->den)
                return "V";
        return x->den > 1 ? f_fmt(f, "V / %d", x->den) : f_fmt(f, "%d * V", x->num);
}

/* Column of the first element of domain d at this call (CUDA) or of step j (C). */
const char *f_first_col(F *f, int d)
{
        const Dom *x = &f->dom[d];
        const char *c = x->loop ? f_fmt(f, "c%d", x->loop) : "col";
        if (x->num == x->den)
                return c;
        return x->den > 1 ? f_fmt(f, "%s / %d", c, x->den) : f_fmt(f, "%s * %d", c, x->num);
}

/* Index of lane k of domain d in its vector. */
const char *f_lane(F *f, int d, int k)
{
        const Dom *x = &f->dom[d];
        const Dom *l = &f->dom[x->loop];
        const char *j = "j";
        if (x->lanes != l->lanes) /* j counts the loop's domain */
                j = x->lanes > l->lanes ? f_fmt(f, "j * %d", x->lanes / l->lanes)
                                        : f_fmt(f, "j / %d", l->lanes / x->lanes);
        return k ? f_fmt(f, "%s + %d", j, k) : j;
}

/* C: column of lane k. */
const char *f_col_at(F *f, int d, int k)
{
        const Dom *x = &f->dom[d];
        const char *c = x->loop ? f_fmt(f, "c%d", x->loop) : "col";
        const char *s = f_fmt(f, "%s + j", c);
        if (x->num != x->den)
                s = x->den > 1 ? f_fmt(f, "(%s) / %d", s, x->den)
                               : f_fmt(f, "(%s) * %d", s, x->num);
        return k ? f_fmt(f, "(%s + %d)", s, k) : f_fmt(f, "(%s)", s);
}

const char *f_to_float(DType dt, const char *x, F *f)
{
        switch (dt) {
        case DT_BF16: return f_fmt(f, "bf16_to_float(%s)", x);
        case DT_F16: return f_fmt(f, "f16_to_float(%s)", x);
        case DT_F32: return x;
        default: return f_fmt(f, "(float)%s", x);
        }
}

const char *f_from_float(DType dt, const char *x, F *f)
{
        switch (dt) {
        case DT_BF16: return f_fmt(f, "bf16_from_float(%s)", x);
        case DT_F16: return f_fmt(f, "f16_from_float(%s)", x);
        case DT_I32: return f_fmt(f, "int_from_float(%s)", x);
        default: return x;
        }
}

static bool is_pair(const Dom *d) { return d->lanes > 1; }

/* The variable of value r (a member or the root) in lane k of its domain. */
const char *f_var(F *f, Ref r, int k)
{
        const Dom *d = &f->dom[f->dom_of[r] - 1];
        if (!f->f->prologue && r == f->f->root)
                return f->cuda ? f_fmt(f, "v[%s]", f_lane(f, f->dom_of[r] - 1, k))
                               : f_fmt(f, "v[%s]", f_lane(f, f->dom_of[r] - 1, k));
        return is_pair(d) ? f_fmt(f, "%s_%d", f_name_of(f, r), k) : f_name_of(f, r);
}

/* A value that is computed wherever it is read, stretched to a shape; seen: as what, through any
 * views. */
static const char *virtual_text(F *f, const Access *seen, const Type *shape, int d, int k)
{
        const Node *x = NODE(f->g, seen->base);
        char num[32], col[256];
        Dim stride[MAX_RANK];
        Index ix;
        int64_t keep = f->align;
        if (x->op == OP_FILL) {
                num_text(x->a.num.x, num);
                return f_fmt(f, strpbrk(num, ".en") ? "%sf" : "%s.f", num);
        }
        if (x->op == OP_SHARE || x->op == OP_INV_TOKENS)
                return f_rt(f, x->op == OP_SHARE ? "share" : "inv_tokens");
        f_stretch(seen, shape, stride);
        f_index_of(f, shape, stride, seen->off, f->dom[d].n, &ix);
        f->align = keep;
        f_subst(col, sizeof col, ix.col[0] ? ix.col : "0",
                f->cuda ? f_fmt(f, "(%s + %s)", f_first_col(f, d), f_lane(f, d, k))
                        : f_col_at(f, d, k));
        const char *at = f_fmt(f, "%s + %s", ix.row[0] ? ix.row + 3 : "0", col);
        return f_fmt(f, "(float)(%s)", f_position(f, at));
}

/* Operand j of member r, lane k of r's domain. */
static const char *operand(F *f, Ref r, int j, int k)
{
        Graph *g = f->g;
        const Node *n = NODE(g, r);
        Ref in = n->in[j], b = value_base(g, in);
        int d = f->dom_of[r] - 1;
        Access seen;
        if (f_virtual(f, in, &seen))
                return virtual_text(f, &seen, &n->type, d, k);
        if (f_internal(f, b)) {
                int s = f_dom_seen(f, in), home = f->dom_of[b] - 1;
                if (f->dom[s].loop != f->dom[home].loop) { /* behind a slice */
                        const char *arr = !f->f->prologue && b == f->f->root
                                                  ? "v"
                                                  : f_fmt(f, "%s_v", f_name_of(f, b));
                        const char *idx = f_lane(f,
                                                 f->dom[s].kind == DOM_HALF ? f->dom[s].parent : s,
                                                 f->dom[s].kind == DOM_HALF
                                                         ? 2 * k + (int)f->dom[s].start
                                                         : k);
                        if (!f->cuda)
                                idx = f_fmt(f, "%s + o%d", idx, f->dom[s].loop);
                        return f_fmt(f, "%s[%s]", arr, idx);
                }
                if (s != home && f->dom[s].kind == DOM_HALF)
                        return f_var(f, b, 2 * k + (int)f->dom[s].start);
                if (n->op == OP_INTERLEAVE)
                        return f_var(f, b, k / 2);
                return f_var(f, b, k);
        }
        Load *l = f_load_of(f, r, in);
        int ld = l->dom, lk = n->op == OP_INTERLEAVE ? k / 2 : k;
        if (l->scalar)
                return l->name;
        if (f->cuda)
                return f_fmt(f, "%s[%s]", l->name, f_lane(f, ld, lk));
        char col[512];
        f_subst(col, sizeof col, l->col, f_col_at(f, ld, lk));
        return f_to_float(l->dt, f_fmt(f, "%s[%s]", l->ptr, col), f);
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

/* Surely without a fraction, and an int: what a cast to i32 leaves as it is. */
static bool is_whole(const Graph *g, Ref r, int depth)
{
        const Node *n = &g->node[r];
        if (n->type.dt == DT_I32)
                return true;
        if (depth == 4)
                return false;
        switch (n->op) {
        case OP_FILL: return n->a.num.x == trunc(n->a.num.x) && fabs(n->a.num.x) < 1 << 24;
        case OP_OFFSET:
                return n->a.num.x == trunc(n->a.num.x) && fabs(n->a.num.x) < 1 << 24 &&
                       is_whole(g, n->in[0], depth + 1);
        case OP_ADD:
        case OP_SUB:
        case OP_MIN:
        case OP_MAX: return is_whole(g, n->in[0], depth + 1) && is_whole(g, n->in[1], depth + 1);
        case OP_CAST:
        case OP_RESHAPE:
        case OP_EXPAND:
        case OP_SLICE:
        case OP_TRANSPOSE: return n->type.dt == DT_F32 && is_whole(g, n->in[0], depth + 1);
        default: return false;
        }
}

const char *f_expr(F *f, Ref r, int k)
{
        Graph *g = f->g;
        const Node *n = NODE(g, r);
        Text t = { 0 };
        const char *s;
        Access seen;
        if (f_virtual(f, r, &seen))
                return virtual_text(f, &seen, &n->type, f->dom_of[r] - 1, k);
        switch (n->op) {
        case OP_GATHER: return operand(f, r, 0, k);
        case OP_CAST:
                return f_fmt(f,
                             n->type.dt == DT_I32 && !is_whole(g, n->in[0], 0) ? "whole(%s)" : "%s",
                             operand(f, r, 0, k));
        case OP_CLAMP:
                return f_fmt(f, "fminf(fmaxf(%s, 0.f), (float)(%s - 1))", operand(f, r, 0, k),
                             f_dimc(f, clamp_rows(&n->a)));
        case OP_ACCUM:
        case OP_APPEND: return operand(f, r, 1, k);
        case OP_INTERLEAVE: return operand(f, r, k & 1, k);
        case OP_DROPOUT: {
                Dim stride[MAX_RANK];
                Index ix;
                char col[256];
                int d = f->dom_of[r] - 1;
                int64_t keep = f->align;
                f_plain_strides(&n->type, stride);
                f_index_of(f, &n->type, stride, 0, f->dom[d].n, &ix);
                f->align = keep;
                f_subst(col, sizeof col, ix.col[0] ? ix.col : "0",
                        f->cuda ? f_fmt(f, "(%s + %s)", f_first_col(f, d), f_lane(f, d, k))
                                : f_col_at(f, d, k));
                char p[32];
                num_text(n->a.drop.p, p);
                return f_fmt(f, "dropout(%s, %sf, %s_id, (unsigned long long)(%s + %s), %s)",
                             operand(f, r, 0, k), strpbrk(p, ".en") ? p : "0.", f_name_of(f, r),
                             ix.row[0] ? ix.row + 3 : "0", col, f->cuda ? "a.rt" : "a->rt");
        }
        default:
                scalar_text(f, r, k, &t);
                s = arena_str(f->e->tmp, t.s);
                text_free(&t);
                return s;
        }
}

/* The token (of B*T) that a row of n columns belongs to; shape's last two axes are
 * prologues and their elements. */
const char *f_token(F *f, const Type *shape, int64_t n)
{
        Type lead = *shape;
        Dim stride[MAX_RANK] = { 0 };
        Index ix;
        int64_t keep = f->align;
        lead.rank -= 2;
        f_plain_strides(&lead, stride);
        f_index_of(f, shape, stride, 0, n, &ix);
        f->align = keep;
        return ix.row[0] ? f_fmt(f, "%s", ix.row + 3) : "0";
}

/* rope: a pair of lanes at once. */
void f_rope_lines(F *f, int depth, Ref r, int k)
{
        const Node *n = NODE(f->g, r);
        int d = f->dom_of[r] - 1;
        int64_t D = n->type.dim[n->type.rank - 1].n, rot = n->a.rope.dims ? n->a.rope.dims : D;
        const char *col = f->cuda ? f_fmt(f, "(%s + %s)", f_first_col(f, d), f_lane(f, d, k))
                                  : f_col_at(f, d, k);
        const char *pos = f_position(f, f_token(f, &n->type, f->dom[d].n));
        Access acc;
        access_need(f->g, f->e->place, n->in[1], &acc);
        const char *freq = f_member(f, arg_of(f->e, f->a, acc.base, false));
        if (rot == D)
                freq = f_frequency(f, freq, d, k, col, D);
        else
                freq = f_fmt(f, f->cuda ? "fixed(&%s[%s %% %lld / 2])" : "%s[%s %% %lld / 2]", freq,
                             col, (long long)D);
        const char *x0 = operand(f, r, 0, k), *x1 = operand(f, r, 0, k + 1);
        const char *y0 = f_var(f, r, k), *y1 = f_var(f, r, k + 1);
        LINE(depth, "float %s, %s;", y0, y1);
        if (rot < D) {
                LINE(depth, "if (%s %% %lld < %lld)", col, (long long)D, (long long)rot);
                LINE(depth + 1, "rope(%s, %s, %s(float)(%s), %s, &%s, &%s);", x0, x1,
                     n->a.rope.back ? "-" : "", pos, freq, y0, y1);
                LINE(depth, "else");
                LINE(depth + 1, "%s = %s, %s = %s;", y0, x0, y1, x1);
        } else {
                LINE(depth, "rope(%s, %s, %s(float)(%s), %s, &%s, &%s);", x0, x1,
                     n->a.rope.back ? "-" : "", pos, freq, y0, y1);
        }
}

/* Where the result of member (or root) r goes; base: pointer text without the column. */
void f_store_index(F *f, Ref r, const char **ptr, Index *ix, DType *dt)
{
        Graph *g = f->g;
        const Node *n = NODE(g, r);
        Dim stride[MAX_RANK];
        int d = f->dom_of[r] - 1;
        if (n->op == OP_ACCUM) {
                Type t = n->type;
                f_plain_strides(&t, stride);
                f_index_of(f, &t, stride, 0, f->dom[d].n, ix);
                *dt = f->cuda ? n->type.dt : DT_F32;
                *ptr = f_member(f, arg_grad(f->e, f->a, n->in[0], *dt));
        } else if (n->op == OP_APPEND) {
                const Type *s = &NODE(g, n->in[0])->type, *t = &NODE(g, n->in[1])->type;
                int64_t cols = s->dim[2].n * s->dim[3].n, m = cols | 8;
                const char *S = f_dimc(f, s->dim[1]), *tok = f_token(f, t, f->dom[d].n);
                Dim stride[MAX_RANK] = {
                        [2] = s->dim[3], [3] = DIM(1)
                }; /* within a token; its place is the cache's */
                m &= -m;
                f->align = m < f->align ? m : f->align;
                f_index_of(f, t, stride, 0, f->dom[d].n, ix);
                ix->vector &= cols % f->out->minv == 0;
                const char *place = f_fmt(f, " + ((long)(%s) * %s + %s) * %lld%s",
                                          f_sequence(f, tok), S, f_position(f, tok),
                                          (long long)cols, ix->row);
                snprintf(ix->row, sizeof ix->row, "%s", place);
                *ptr = f_member(f, arg_of(f->e, f->a, n->in[0], true));
                *dt = s->dt;
        } else {
                Access acc;
                access_need(g, f->e->place, r, &acc);
                Type t = n->type;
                if (!f->f->prologue && r == f->f->root && NODE(g, r)->op == OP_ITEM)
                        t = acc.t;
                f_index_of(f, &t, acc.stride, acc.off, f->dom[d].n, ix);
                *ptr = f_member(f, arg_part(f->e, f->a, r, acc.base));
                *dt = NODE(g, acc.base)->type.dt;
        }
}
