/* ranges.c: bounds the values of a graph, by interval arithmetic.
 *
 * The bounds hold for what the kernels compute, rounding included: float32 arithmetic rounds, and
 * so does 16-bit storage, which precision.c gives to whatever comes from parameters.  An int from
 * memory is a float32 in arithmetic.  Parameters and the results of most ops are unbounded.  That
 * is safe: an index that comes from them gets a clamp (tables.c). */
#include "compiler.h"
#include <float.h>
#include <math.h>
#include <string.h>

static const Range unknown = { .least = -INFINITY, .most = INFINITY, .nan = true, .soft = true };

static Range between(double least, double most)
{
        return (Range) { .least = least, .most = most, .exact = true };
}
static bool varies(const Range *a) { return a->least != a->most; }

static double rounded(DType dt, double x)
{
        return fabs(x) > FLT_MAX ? copysign(INFINITY, x) : dt_round(dt, x);
}

/* It may have been stored as dt, or not: both belong to it. */
static void widen(Range *a, DType dt)
{
        a->least = fmin(a->least, rounded(dt, a->least));
        a->most = fmax(a->most, rounded(dt, a->most));
}

/* In bounds that sums and products of infinite ones gave there may be no numbers. */
static Range checked(Range a)
{
        return isnan(a.least) || isnan(a.most) || a.least > a.most ? unknown : a;
}

static Range either(Range a, const Range *b)
{
        a.nan |= b->nan;
        a.soft |= b->soft;
        a.exact &= b->exact;
        a.least = fmin(a.least, b->least);
        a.most = fmax(a.most, b->most);
        a.below = (Dim) { 0 };
        return a;
}

/* The ends of an op that is monotonous in each of its inputs are among these four. */
static void corners(Range *y, double p, double q, double r, double s)
{
        if (isnan(p) || isnan(q) || isnan(r) || isnan(s)) {
                *y = unknown;
                return;
        }
        y->least = fmin(fmin(p, q), fmin(r, s));
        y->most = fmax(fmax(p, q), fmax(r, s));
}

/* fmax and fmin hand back the other one where one is no number. */
static void larger(Range *y, const Range *a, const Range *b)
{
        y->least = fmax(a->least, b->least);
        y->least = a->nan ? fmin(y->least, b->least) : y->least;
        y->least = b->nan ? fmin(y->least, a->least) : y->least;
        y->most = fmax(a->most, b->most);
        y->nan = a->nan && b->nan;
}

static void smaller(Range *y, const Range *a, const Range *b)
{
        y->most = fmin(a->most, b->most);
        y->most = a->nan ? fmax(y->most, b->most) : y->most;
        y->most = b->nan ? fmax(y->most, a->most) : y->most;
        y->least = fmin(a->least, b->least);
        y->nan = a->nan && b->nan;
}

static Range as_int(Range a)
{
        a.least = fmax(trunc(a.nan ? fmin(a.least, 0) : a.least), INT32_MIN);
        a.most = fmin(trunc(a.nan ? fmax(a.most, 0) : a.most), INT32_MAX);
        a.nan = a.soft = false;
        a.least = fmin(a.least, INT32_MAX);
        a.most = fmax(a.most, INT32_MIN);
        return a;
}

static Range of_input(const Node *n, const RangeFacts *f)
{
        Range y = unknown;
        y.nan = false;
        y.least = INT32_MIN;
        y.most = INT32_MAX;
        if (!strcmp(n->name, "ids") && f->vocab) {
                y = between(0, (double)f->vocab - 1);
                y.ids = true;
        } else if (!strcmp(n->name, "documents")) {
                y = between(0, f->length);
                y.documents = 1;
        } else if (!strcmp(n->name, "sampled")) { /* sampled_rows.c's */
                y.least = 0;
                y.below = DIM_SYM(SYM_T);
        }
        return y;
}

static Range of_data(const Node *n)
{
        Range y = { .least = INFINITY, .most = -INFINITY, .exact = true };
        for (int64_t i = 0; i < n->a.data.n; i++) {
                y.nan |= isnan(n->a.data.data[i]);
                y.least = fmin(y.least, n->a.data.data[i]);
                y.most = fmax(y.most, n->a.data.data[i]);
        }
        widen(&y, DT_F32);
        y = checked(y);
        return n->type.dt == DT_I32 ? as_int(y) : y;
}

/* What is one of d. */
static Range one_of(Dim d)
{
        Range y = between(0, dim_is_const(d) ? (double)d.n - 1 : INT32_MAX);
        y.exact = false;
        y.below = d;
        return y;
}

static Range of_result(const Graph *g, Ref r, int index)
{
        const Node *n = &g->node[r];
        Range y;
        switch (n->op) {
        case OP_TOPK:
        case OP_ROUTE:
                return index == 1
                               ? one_of(g->node[n->in[0]].type.dim[g->node[n->in[0]].type.rank - 1])
                               : unknown;
        case OP_BUCKET:
                y = one_of(type_elems(&g->node[n->in[0]].type));
                y.most += index;
                y.below = index ? (Dim) { 0 } : y.below;
                return y;
        default: return unknown;
        }
}

/* Of documents: their begins are a slice, and a token lies behind its document's.  1: the input, 2:
 * the begins of all tokens. */
static int documents_seen(const Graph *g, const Node *n, int below)
{
        if (n->op == OP_SLICE && below == 1 && n->a.slice.axis == 2 && !n->a.slice.start &&
            n->a.slice.len == 1)
                return 2;
        return n->op == OP_RESHAPE && below == 2 && n->type.rank == 2 &&
                               dim_eq(n->type.dim[0], g->node[n->in[0]].type.dim[0]) &&
                               dim_eq(n->type.dim[1], g->node[n->in[0]].type.dim[1])
                       ? 2
                       : 0;
}

static Range of_map(const Graph *g, const Node *n, Range a, Range b, const Range *c,
                    const RangeFacts *f)
{
        const double x = n->a.num.x;
        const bool finite = isfinite(a.least) && isfinite(a.most) && isfinite(b.least) &&
                            isfinite(b.most);
        Range y = { .nan = a.nan || b.nan || !finite,
                    .soft = a.soft || b.soft,
                    .exact = a.exact && b.exact,
                    .position = a.position || b.position,
                    .ids = a.ids || b.ids };
        switch (n->op) {
        case OP_POSITION:
                y = between(0, f->length - 1);
                y.position = true;
                return y;
        case OP_FILL: return isnan(x) ? unknown : between(x, x);
        case OP_ADD: y.least = a.least + b.least, y.most = a.most + b.most; break;
        case OP_SUB:
                if (g->node[n->in[0]].op == OP_POSITION && b.documents == 2) {
                        y = a;
                        break;
                }
                y.least = a.least - b.most, y.most = a.most - b.least;
                y.exact &= !varies(&a) || !varies(&b);
                break;
        case OP_MUL:
                corners(&y, a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most);
                y.exact &= !varies(&a) || !varies(&b);
                break;
        case OP_DIV:
                if (b.least <= 0 && b.most >= 0)
                        return unknown;
                corners(&y, a.least / b.least, a.least / b.most, a.most / b.least, a.most / b.most);
                y.exact &= !varies(&b);
                break;
        case OP_MAX: larger(&y, &a, &b); break;
        case OP_MIN: smaller(&y, &a, &b); break;
        case OP_RELU:
                b = between(0, 0);
                larger(&y, &a, &b);
                break;
        case OP_GT:
        case OP_EQ: return (Range) { .least = 0, .most = 1 };
        case OP_WHERE:
                y = either(b, c);
                y.exact = false;
                break;
        case OP_SCALE: corners(&y, a.least * x, a.most * x, a.least * x, a.most * x); break;
        case OP_OFFSET: y.least = a.least + x, y.most = a.most + x; break;
        case OP_NEG: y.least = -a.most, y.most = -a.least; break;
        case OP_ABS:
        case OP_SQUARE:
                y.least = a.least > 0 ? a.least : a.most < 0 ? -a.most : 0;
                y.most = fmax(fabs(a.least), fabs(a.most));
                if (n->op == OP_SQUARE)
                        y.least *= y.least, y.most *= y.most;
                y.exact = false;
                break;
        case OP_INTERLEAVE: y = either(a, &b); break;
        case OP_CAST:
                y = a;
                if (n->type.dt != g->node[n->in[0]].type.dt)
                        y.below = (Dim) { 0 }; /* a float32 may be rounded up */
                break;
        case OP_CLAMP: {
                const Dim rows = clamp_rows(&n->a);
                y = one_of(rows);
                y.least = fmin(fmax(y.least, a.least), y.most);
                y.most = fmin(fmax(y.least, a.most), y.most);
                return y;
        }
        default: y = unknown;
        }
        return checked(y);
}

static Range of_node(const Graph *g, Ref r, const Range *at, const RangeFacts *f)
{
        const Node *n = &g->node[r];
        const Range none = between(0, 0);
        Range in[3] = { none, none, none }, y;
        for (int i = 0; i < 3 && i < n->n_in; i++)
                in[i] = at[n->in[i]];
        if (op_is_view(n->op) || n->op == OP_GATHER) {
                y = in[0];
                y.documents = documents_seen(g, n, in[0].documents);
                y.exact &= n->op != OP_GATHER && n->op != OP_SLICE;
                return y;
        }
        switch (n->op) {
        case OP_INPUT: return of_input(n, f);
        case OP_CONST: return of_data(n);
        case OP_ARGMAX: return one_of(g->node[n->in[0]].type.dim[g->node[n->in[0]].type.rank - 1]);
        case OP_ITEM: return of_result(g, n->in[0], (int)n->a.item.index);
        case OP_BUCKET: return of_result(g, r, 0);
        case OP_CONCAT:
                y = at[n->in[0]];
                for (int i = 1; i < n->n_in; i++)
                        y = either(y, &at[n->in[i]]);
                return y;
        default: break;
        }
        if (op_info[n->op].cls != CLASS_MAP) {
                return n->type.dt == DT_I32 ? as_int(unknown) : unknown;
        }
        for (int i = 0; i < 3; i++)
                widen(&in[i], DT_F32);
        y = of_map(g, n, in[0], in[1], &in[2], f);
        if (n->type.dt == DT_I32)
                return as_int(y);
        widen(&y, DT_F32);
        y.soft |= n->type.dt != DT_F32;
        if (y.soft || n->type.dt != DT_F32)
                widen(&y, n->type.dt != DT_F32 ? n->type.dt : f->dt);
        return y;
}

Range *ranges(const Graph *g, const RangeFacts *f, Arena *a)
{
        Range *at = arena_alloc(a, (size_t)g->n_nodes * sizeof *at);
        for (Ref r = 1; r < g->n_nodes; r++)
                at[r] = of_node(g, r, at, f);
        return at;
}

bool range_below(const Range *a, Dim rows, double rows_least)
{
        Dim q;
        if (a->nan || !(a->least >= 0))
                return false;
        if (a->most < rows_least)
                return true;
        return a->below.n && dim_div(rows, a->below, &q) && q.n >= 1;
}
