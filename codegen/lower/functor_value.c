/* functor_value.c: writes the value of a member in one lane as text.
 *
 *      node       %y = mul %s, %u
 *      domain     half: lane k of it is every second element of the loop's domain
 *      operands   a member: its variable; a load: `u[j + 1]`; a position or number: in place
 *      text       silu * u[j + 1]          ir/ops.def has "$0 * $1" */
#include "functor.h"
#include <math.h>
#include <string.h>

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
        va_start(ap, s);
        const int n = vsnprintf(NULL, 0, s, ap);
        va_end(ap);
        char *out = arena_alloc(f->e->tmp, (size_t)n + 1);
        va_start(ap, s);
        vsnprintf(out, (size_t)n + 1, s, ap);
        va_end(ap);
        return out;
}

const char *f_member(F *f, const char *arg) { return index_field(&f->print, arg); }
const char *f_rt(F *f, const char *field) { return f_member(f, f_fmt(f, "rt->%s", field)); }

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
                return f_fmt(f, "v[%s]", f_lane(f, f->dom_of[r] - 1, k));
        return is_pair(d) ? f_fmt(f, "%s_%d", f_name_of(f, r), k) : f_name_of(f, r);
}

/* A number as a float's literal. */
static const char *literal(F *f, double x)
{
        char num[32];
        num_text(x, num);
        return f_fmt(f, strpbrk(num, ".en") ? "%sf" : "%s.f", num);
}

/* The column of lane k of domain d. */
static const char *column(F *f, int d, int k)
{
        return f->cuda ? f_fmt(f, "(%s + %s)", f_first_col(f, d), f_lane(f, d, k))
                       : f_col_at(f, d, k);
}

/* A value that is computed wherever it is read, stretched to a shape; seen: as what, through any
 * views. */
static const char *virtual_text(F *f, const Access *seen, const Type *shape, int d, int k)
{
        const Node *x = NODE(f->g, seen->base);
        if (x->op == OP_FILL)
                return literal(f, x->a.num.x);
        if (x->op == OP_SHARE || x->op == OP_INV_TOKENS)
                return f_rt(f, x->op == OP_SHARE ? "share" : "inv_tokens");
        const Address a = f_load_address(f, seen, shape, seen->off, f->dom[d].n);
        f_read_position(f);
        const char *token = index_whole_text(&f->print, &a.at, column(f, d, k));
        return f_fmt(f, "(float)(%s)", index_position_text(&f->print, token));
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
        const int at = n->op == OP_INTERLEAVE ? k / 2 : k; /* lane of the operand's domain */
        if (f_internal(f, b)) {
                int s = f_dom_seen(f, in), home = f->dom_of[b] - 1;
                if (f->dom[s].loop != f->dom[home].loop) { /* behind a slice */
                        const char *arr = !f->f->prologue && b == f->f->root
                                                  ? "v"
                                                  : f_fmt(f, "%s_v", f_name_of(f, b));
                        const char *idx = f_lane(f,
                                                 f->dom[s].kind == DOM_HALF ? f->dom[s].parent : s,
                                                 f->dom[s].kind == DOM_HALF
                                                         ? 2 * at + (int)f->dom[s].start
                                                         : at);
                        if (!f->cuda)
                                idx = f_fmt(f, "%s + o%d", idx, f->dom[s].loop);
                        return f_fmt(f, "%s[%s]", arr, idx);
                }
                if (s != home && f->dom[s].kind == DOM_HALF)
                        return f_var(f, b, 2 * at + (int)f->dom[s].start);
                return f_var(f, b, at);
        }
        Load *l = f_load_of(f, r, in);
        const int ld = l->dom;
        if (l->scalar && !l->from.blocks)
                return l->name;
        if (f->cuda)
                return f_fmt(f, "%s[%s]", l->name, f_lane(f, ld, at));
        if (l->from.blocks && f_blocks_at_once(f, l))
                return f_fmt(f, "%s[%s]", l->ptr, f_lane(f, ld, at));
        if (l->from.blocks)
                return f_fmt(f, "stored_get(TY_%s, %s, %s)", storage_name[l->from.blocks],
                             l->from.arg,
                             index_whole_text(&f->print, &l->from.at, f_col_at(f, ld, at)));
        const char *col = index_column_text(&f->print, &l->from.at, f_col_at(f, ld, at));
        return f_to_float(l->from.dt, f_fmt(f, "%s[%s]", l->ptr, col), f);
}

static void scalar_text(F *f, Ref r, int k, Text *out)
{
        const Node *n = NODE(f->g, r);
        for (const char *s = op_info[n->op].scalar; *s; s++) {
                if (*s == '$' && s[1] == 'x') {
                        text_add(out, "%s", literal(f, n->a.num.x));
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
        if (n->op == OP_CAST || op_is_view(n->op))
                return n->type.dt == DT_F32 && is_whole(g, n->in[0], depth + 1);
        switch (n->op) {
        case OP_FILL: return n->a.num.x == trunc(n->a.num.x) && fabs(n->a.num.x) < 1 << 24;
        case OP_OFFSET:
                return n->a.num.x == trunc(n->a.num.x) && fabs(n->a.num.x) < 1 << 24 &&
                       is_whole(g, n->in[0], depth + 1);
        case OP_ADD:
        case OP_SUB:
        case OP_MIN:
        case OP_MAX: return is_whole(g, n->in[0], depth + 1) && is_whole(g, n->in[1], depth + 1);
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
                             index_dim(&f->print, clamp_rows(&n->a)));
        case OP_ACCUM:
        case OP_APPEND: return operand(f, r, 1, k);
        case OP_INTERLEAVE: return operand(f, r, k & 1, k);
        case OP_DROPOUT: {
                Dim stride[MAX_RANK];
                Index ix = { 0 };
                const int d = f->dom_of[r] - 1;
                f_plain_strides(&n->type, stride);
                f_index(&ix, &n->type, stride, 0, f->dom[d].n, NULL);
                return f_fmt(f, "dropout(%s, %s, %s_id, (unsigned long long)(%s), %s)",
                             operand(f, r, 0, k), literal(f, n->a.drop.p), f_name_of(f, r),
                             index_whole_text(&f->print, &ix, column(f, d, k)),
                             f->cuda ? "a.rt" : "a->rt");
        }
        default:
                scalar_text(f, r, k, &t);
                s = arena_str(f->e->tmp, t.s);
                text_free(&t);
                return s;
        }
}

/* Where domain d begins in the columns of the functor; -1: not a run of them. */
static int64_t start_of(const F *f, int d)
{
        int64_t start = 0;
        for (; f->dom[d].kind == DOM_SLICE; d = f->dom[d].parent)
                start += f->dom[d].start;
        return f->dom[d].kind == DOM_ROOT ? start : -1;
}

/* The frequency that turns lanes k and k + 1 of domain d; base: the table of them, rot / 2 long,
 * which heads of D elements, one after the other, share. */
static const char *frequency(F *f, Ref base, int d, int k, int64_t D, int64_t rot)
{
        const char *table = f_member(f, arg_of(f->e, f->a, base, false));
        const int64_t start = start_of(f, d);
        if (rot != D || !f->print.position || start < 0 || start % D ||
            (f->freq && (f->freq != base || f->freq_D != D)))
                return f_fmt(f, f->cuda ? "fixed(&%s[%s %% %lld / 2])" : "%s[%s %% %lld / 2]",
                             table, column(f, d, k), (long long)D);
        if (!f->freq) {
                text_add(&f->in, "                float freq[V / 2];\n");
                text_add(&f->get_cols,
                         "                #pragma unroll\n"
                         "                for (int j = 0; j < V; j += 2)\n"
                         "                        in.freq[j / 2] = fixed(&%s[(col + j) %% %lld / "
                         "2]);\n",
                         table, (long long)D);
        }
        f->freq = base;
        f->freq_D = D;
        return f_fmt(f, "in.freq[(%s) / 2]", f_lane(f, d, k));
}

/* rope: a pair of lanes at once. */
void f_rope_lines(F *f, int depth, Ref r, int k)
{
        const Node *n = NODE(f->g, r);
        int d = f->dom_of[r] - 1;
        int64_t D = n->type.dim[n->type.rank - 1].n, rot = n->a.rope.dims ? n->a.rope.dims : D;
        const char *col = column(f, d, k);
        const Index token = f_token(&n->type, f->dom[d].n);
        f_read_position(f);
        const char *pos = index_position_text(&f->print, index_base_text(&f->print, &token));
        Access acc;
        access_need(f->g, f->e->place, n->in[1], &acc);
        const char *freq = frequency(f, acc.base, d, k, D, rot);
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
