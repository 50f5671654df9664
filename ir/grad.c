/* grad.c: the gradient rules named in ops.def.
 *
 * grad_NAME(g, n, dout, din): dout[i] is the gradient of output i (0: none
 * reached it); the rule appends nodes and sets din[j] for the inputs it
 * reaches.  The gradients of broadcast inputs are summed back to their shapes.
 * Nodes that are read here were computed forward and are simply used. */
#include "ir.h"

#define IN(i) (NODE(g, n)->in[i])
#define TYPE(r) (NODE(g, r)->type)

/* Sum d down to the shape of `to`: leading axes by colsum, a stretched last axis
 * by sum, the one before it by combine. */
static Ref reduce_to(Graph *g, Ref d, Ref to)
{
        Type want = TYPE(to);
        want.dt = TYPE(d).dt;
        if (shape_eq(&TYPE(d), &want))
                return d;
        /* to a scalar: rows first, then the row of sums */
        if (dim_eq(type_elems(&want), DIM(1))) {
                if (TYPE(d).rank > 1 && dim_is_const(TYPE(d).dim[TYPE(d).rank - 1]) &&
                    TYPE(d).dim[TYPE(d).rank - 1].n > 1)
                        d = op1(g, OP_SUM, d);
                d = graph_reshape(g, d, type_of(DT_F32, 1, type_elems(&TYPE(d))));
                d = op1(g, OP_SUM, d);
                return graph_reshape(g, d, want);
        }
        int extra = TYPE(d).rank - want.rank;
        while (extra < TYPE(d).rank &&
               dim_eq(want.dim[extra - (TYPE(d).rank - want.rank)], DIM(1)) &&
               !dim_eq(TYPE(d).dim[extra], DIM(1)) && extra + 1 < TYPE(d).rank)
                extra++; /* stretched axes right after the missing ones */
        if (extra > 0) {
                Attr a = { .k = { extra } };
                d = graph_add(g, OP_COLSUM, &d, 1, &a, NODE(g, to)->loc,
                              graph_name(g, NODE(g, to)->name));
        }
        Type t = TYPE(d);
        if (t.rank && want.rank && dim_eq(want.dim[want.rank - 1], DIM(1)) &&
            !dim_eq(t.dim[t.rank - 1], DIM(1)))
                d = op1(g, OP_SUM, d);
        t = TYPE(d);
        if (t.rank > 1 && want.rank > 1 && t.rank >= want.rank &&
            dim_eq(want.dim[want.rank - 2], DIM(1)) && !dim_eq(t.dim[t.rank - 2], DIM(1)))
                d = graph_add(g, OP_COMBINE, &d, 1, NULL, NODE(g, to)->loc,
                              graph_name(g, NODE(g, to)->name));
        if (!dim_eq(type_elems(&TYPE(d)), type_elems(&want)))
                error_at(
                        NODE(g, to)->loc,
                        "the gradient of %%%s cannot be summed back over the axes it was stretched "
                        "along; use reshape so that they lead, or come last",
                        NODE(g, to)->name);
        return graph_reshape(g, d, want);
}

void grad_none(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        (void)g, (void)n, (void)dout, (void)din;
}

void grad_add(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = reduce_to(g, dout[0], IN(0));
        din[1] = reduce_to(g, dout[0], IN(1));
}

void grad_sub(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = reduce_to(g, dout[0], IN(0));
        din[1] = reduce_to(g, op1(g, OP_NEG, dout[0]), IN(1));
}

void grad_mul(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = reduce_to(g, op2(g, OP_MUL, dout[0], IN(1)), IN(0));
        din[1] = reduce_to(g, op2(g, OP_MUL, dout[0], IN(0)), IN(1));
}

void grad_div(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Ref q = op2(g, OP_DIV, dout[0], IN(1));
        din[0] = reduce_to(g, q, IN(0));
        din[1] = reduce_to(g, op1(g, OP_NEG, op2(g, OP_MUL, q, n)), IN(1));
}

static void pick(Graph *g, Ref n, const Ref *dout, Ref *din, Ref first)
{
        Ref d = op2(g, OP_MUL, dout[0], first);
        din[0] = reduce_to(g, d, IN(0));
        din[1] = reduce_to(g, op2(g, OP_SUB, dout[0], d), IN(1));
}

void grad_max(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        pick(g, n, dout, din, op2(g, OP_GT, IN(0), IN(1)));
}

void grad_min(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        pick(g, n, dout, din, op2(g, OP_GT, IN(1), IN(0)));
}

void grad_where(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Ref zero = op1x(g, OP_SCALE, dout[0], 0);
        din[1] = reduce_to(g, op3(g, OP_WHERE, IN(0), dout[0], zero), IN(1));
        din[2] = reduce_to(g, op3(g, OP_WHERE, IN(0), zero, dout[0]), IN(2));
}

void grad_cast(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        if (dt_is_float(TYPE(IN(0)).dt) && dt_is_float(TYPE(n).dt))
                din[0] = dout[0];
}

void grad_scale(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op1x(g, OP_SCALE, dout[0], NODE(g, n)->a.num.x);
}

void grad_offset(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        (void)g, (void)n;
        din[0] = dout[0];
}
void grad_neg(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        (void)n;
        din[0] = op1(g, OP_NEG, dout[0]);
}

void grad_abs(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Ref neg = op1(g, OP_NEG, dout[0]), zero = op1x(g, OP_SCALE, IN(0), 0);
        din[0] = op3(g, OP_WHERE, op2(g, OP_GT, IN(0), zero), dout[0], neg);
}

void grad_square(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op1x(g, OP_SCALE, op2(g, OP_MUL, dout[0], IN(0)), 2);
}

void grad_sqrt(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op1x(g, OP_SCALE, op2(g, OP_DIV, dout[0], n), 0.5);
}

/* y = x^-1/2, dy/dx = -y^3 / 2 */
void grad_rsqrt(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Ref y3 = op2(g, OP_MUL, op1(g, OP_SQUARE, n), n);
        din[0] = op1x(g, OP_SCALE, op2(g, OP_MUL, dout[0], y3), -0.5);
}

void grad_recip(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op1(g, OP_NEG, op2(g, OP_MUL, dout[0], op1(g, OP_SQUARE, n)));
}

void grad_exp(Graph *g, Ref n, const Ref *dout, Ref *din) { din[0] = op2(g, OP_MUL, dout[0], n); }
void grad_log(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op2(g, OP_DIV, dout[0], IN(0));
}
void grad_sin(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op2(g, OP_MUL, dout[0], op1(g, OP_COS, IN(0)));
}

void grad_cos(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op1(g, OP_NEG, op2(g, OP_MUL, dout[0], op1(g, OP_SIN, IN(0))));
}

/* dy (1 - y^2) */
void grad_tanh(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op2(g, OP_SUB, dout[0], op2(g, OP_MUL, dout[0], op1(g, OP_SQUARE, n)));
}

/* 2/sqrt(pi) exp(-x^2) */
void grad_erf(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Ref e = op1(g, OP_EXP, op1(g, OP_NEG, op1(g, OP_SQUARE, IN(0))));
        din[0] = op1x(g, OP_SCALE, op2(g, OP_MUL, dout[0], e), 1.1283791670955126);
}

/* dy y (1 - y) */
void grad_sigmoid(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Ref dy = op2(g, OP_MUL, dout[0], n);
        din[0] = op2(g, OP_SUB, dy, op2(g, OP_MUL, dy, n));
}

void grad_relu(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Ref zero = op1x(g, OP_SCALE, IN(0), 0);
        din[0] = op2(g, OP_MUL, dout[0], op2(g, OP_GT, IN(0), zero));
}

void grad_silu(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op2(g, OP_SILU_GRAD, IN(0), dout[0]);
}
void grad_gelu(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op2(g, OP_GELU_GRAD, IN(0), dout[0]);
}
void grad_gelu_tanh(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op2(g, OP_GELU_TANH_GRAD, IN(0), dout[0]);
}

/* The same mask again: the attribute carries its id. */
void grad_dropout(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Attr a = NODE(g, n)->a;
        din[0] = graph_add(g, OP_DROPOUT, dout, 1, &a, NODE(g, n)->loc,
                           graph_name(g, NODE(g, n)->name));
}

/* A rotation's transpose is the rotation back. */
void grad_rope(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Attr a = NODE(g, n)->a;
        a.rope.back = !a.rope.back;
        din[0] = graph_add(g, OP_ROPE, (Ref[]) { dout[0], IN(1) }, 2, &a, NODE(g, n)->loc,
                           graph_name(g, NODE(g, n)->name));
}

void grad_interleave(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        int ax = TYPE(n).rank - 1;
        int64_t len = TYPE(IN(0)).dim[ax].n;
        Attr a = { .slice = { ax, 0, len, 2 } }, b = { .slice = { ax, 1, len, 2 } };
        din[0] = graph_add(g, OP_SLICE, dout, 1, &a, NODE(g, n)->loc,
                           graph_name(g, NODE(g, n)->name));
        din[1] = graph_add(g, OP_SLICE, dout, 1, &b, NODE(g, n)->loc,
                           graph_name(g, NODE(g, n)->name));
}

static Ref stretch(Graph *g, Ref d, Ref like)
{
        Type t = TYPE(like);
        return graph_typed(g, OP_EXPAND, &t, &d, 1, NULL, NODE(g, like)->loc,
                           graph_name(g, NODE(g, like)->name));
}

void grad_sum(Graph *g, Ref n, const Ref *dout, Ref *din) { din[0] = stretch(g, dout[0], IN(0)); }

/* To the first of the largest: by its place, for in 16 bits what was stored may equal no
 * maximum. */
void grad_rowmax(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Attr a = { .k = { TYPE(IN(0)).dim[TYPE(IN(0)).rank - 1].n } };
        Ref place = graph_reshape(g, op1(g, OP_ARGMAX, IN(0)), TYPE(dout[0]));
        din[0] = graph_add(g, OP_TOPK_GRAD, (Ref[]) { dout[0], place }, 2, &a, NODE(g, n)->loc,
                           graph_name(g, NODE(g, n)->name));
}

/* d logsumexp(x) = softmax(x), written so that no row op is needed: exp(x - y). */
void grad_logsumexp(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op2(g, OP_MUL, op1(g, OP_EXP, op2(g, OP_SUB, IN(0), n)), dout[0]);
}

void grad_softmax(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = op2(g, OP_SOFTMAX_GRAD, n, dout[0]);
}

static Ref norm_grad(Graph *g, Op op, Ref n, Ref dy)
{
        Attr a = NODE(g, n)->a;
        return graph_add(g, op, (Ref[]) { IN(0), dy }, 2, &a, NODE(g, n)->loc,
                         graph_name(g, NODE(g, n)->name));
}

void grad_rmsnorm(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = norm_grad(g, OP_RMSNORM_GRAD, n, dout[0]);
}

void grad_layernorm(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = norm_grad(g, OP_LAYERNORM_GRAD, n, dout[0]);
}

/* Statistics are given for reading only. */
static void need_first(Graph *g, Ref n, const Ref *dout)
{
        if (dout[1])
                error_at(NODE(g, n)->loc,
                         "%s: no gradient passes through the second result of %%%s; use logsumexp",
                         op_info[NODE(g, n)->op].text, NODE(g, n)->name);
}

void grad_ce(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        need_first(g, n, dout);
        Ref lse = graph_item(g, n, 1, NULL);
        if (dout[0])
                din[0] = graph_add(g, OP_CE_GRAD, (Ref[]) { IN(0), IN(1), lse, dout[0] }, 4, NULL,
                                   NODE(g, n)->loc, graph_name(g, NODE(g, n)->name));
}

void grad_colsum(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = stretch(g, dout[0], IN(0));
}

/* With y = op(a) op(b):  da = dy op(b)^T, db = op(a)^T dy, each written in the
 * orientation its operand is stored in. */
void grad_matmul(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        bool ta = NODE(g, n)->a.mm.ta, tb = NODE(g, n)->a.mm.tb;
        Ref a = IN(0), b = IN(1), dy = dout[0];
        din[0] = ta ? op_matmul(g, b, dy, tb, true) : op_matmul(g, dy, b, false, !tb);
        /* one weight, many rows: fold the rows together */
        if (TYPE(b).rank == 2 && TYPE(a).rank != 2) {
                Type ra = type_of(TYPE(a).dt, 2, type_rows(&TYPE(a)),
                                  TYPE(a).dim[TYPE(a).rank - 1]);
                Type rd = type_of(TYPE(dy).dt, 2, type_rows(&TYPE(dy)),
                                  TYPE(dy).dim[TYPE(dy).rank - 1]);
                if (ta)
                        error_at(NODE(g, n)->loc,
                                 "matmul: no gradient for a transposed %%%s of rank %d",
                                 NODE(g, a)->name, TYPE(a).rank);
                a = graph_reshape(g, a, ra);
                dy = graph_reshape(g, dy, rd);
        }
        din[1] = tb ? op_matmul(g, dy, a, true, ta) : op_matmul(g, a, dy, !ta, false);
}

/* a rows come through adiv; the result is in sorted order, or slot order with
 * scatter.  Gradients take the rows of dy the other way round. */
void grad_expert(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Attr a = NODE(g, n)->a;
        int64_t adiv = a.expert.adiv, from = a.expert.scatter ? 1 : 0;
        Ref w = IN(1), perm = IN(2), offs = IN(3), x = IN(0);
        Loc loc = NODE(g, n)->loc;
        Attr b = { .expert = { .tb = !a.expert.tb, .adiv = from, .scatter = adiv != 0 } };
        Ref dx = graph_add(g, OP_EXPERT_MATMUL, (Ref[]) { dout[0], w, perm, offs }, 4, &b, loc,
                           graph_name(g, NODE(g, n)->name));
        if (adiv > 1) { /* k slots read one row: sum them */
                Type t = type_of(TYPE(dx).dt, 3, TYPE(x).dim[0], DIM(adiv), TYPE(x).dim[1]);
                dx = graph_reshape(g, dx, t);
                dx = graph_add(g, OP_COMBINE, &dx, 1, NULL, loc, graph_name(g, NODE(g, n)->name));
        }
        din[0] = dx;
        Attr c = { .expert = { .tb = a.expert.tb, .adiv = adiv, .bdiv = from } };
        din[1] = graph_add(g, OP_EXPERT_GRAD, (Ref[]) { x, dout[0], perm, offs }, 4, &c, loc,
                           graph_name(g, NODE(g, w)->name));
}

void grad_linear_ce(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Ref in[5] = { IN(0), IN(1), IN(2), dout[0], IN(3) };
        int n_in = NODE(g, n)->n_in == 4 ? 5 : 4;
        need_first(g, n, dout);
        if (!dout[0])
                return;
        Ref d = graph_add(g, OP_LINEAR_CE_GRAD, in, n_in, NULL, NODE(g, n)->loc,
                          graph_name(g, NODE(g, n)->name));
        din[0] = d;
        din[1] = graph_item(g, d, 1, NULL);
        if (n_in == 5)
                din[3] = graph_item(g, d, 2, NULL);
}

/* x (...,D) with n columns of value behind it. */
static Ref columns(Graph *g, Ref x, int64_t n, double value)
{
        Type t = TYPE(x);
        Loc loc = NODE(g, x)->loc;
        t.dim[3] = DIM(n);
        Ref more = graph_leaf(g, OP_FILL, t, &(Attr) { .num = { value } }, loc,
                              graph_name(g, "columns"));
        return graph_add(g, OP_CONCAT, (Ref[]) { x, more }, 2, NULL, loc,
                         graph_name(g, NODE(g, x)->name));
}

/* A gradient of lse takes part as a column: scores get ds = P (dP - sum(do o) + dlse), and with
 * 1 behind o, -dlse behind do and 0 behind v the sum is sum(do o) - dlse, while dP is what it was.
 * q and k get zeros, since kernels have one head width, a multiple of 16. */
static void widen_attention(Graph *g, Ref n, Ref dlse, Ref in[6], int64_t D)
{
        int64_t pad = 16 - D % 16;
        Loc loc = NODE(g, n)->loc;
        Type t = TYPE(n);
        if (!in[5])
                in[5] = graph_leaf(g, OP_FILL, t, &(Attr) { .num = { 0 } }, loc,
                                   graph_name(g, "no_gradient"));
        Ref turned = graph_add(g, OP_TRANSPOSE, (Ref[]) { dlse }, 1,
                               &(Attr) { .perm = { { 0, 2, 1 } } }, loc, graph_name(g, "dlse"));
        t.dim[3] = DIM(1);
        Ref less = graph_reshape(
                g, graph_add(g, OP_NEG, &turned, 1, NULL, loc, graph_name(g, "dlse.less")), t);
        in[5] = graph_add(g, OP_CONCAT, (Ref[]) { in[5], less }, 2, NULL, loc,
                          graph_name(g, "do.dlse"));
        in[3] = columns(g, in[3], 1, 1);
        for (int i = 0; i < 6; i++)
                if (i != 4 && (i < 3 || pad > 1))
                        in[i] = columns(g, in[i], i < 3 ? pad : pad - 1, 0);
}

void grad_attention(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Attr a = NODE(g, n)->a;
        int more = NODE(g, n)->n_in - 3;
        Ref in[MAX_IN] = { IN(0), IN(1), IN(2), n, graph_item(g, n, 1, NULL), dout[0] };
        if (!dout[0] && !dout[1])
                return;
        if (dout[1])
                widen_attention(g, n, dout[1], in, TYPE(IN(0)).dim[3].n);
        for (int i = 0; i < more; i++)
                in[6 + i] = IN(3 + i);
        Ref d = graph_add(g, OP_ATTENTION_GRAD, in, 6 + more, &a, NODE(g, n)->loc,
                          graph_name(g, NODE(g, n)->name));
        for (int i = 0; i < 3; i++) {
                din[i] = i ? graph_item(g, d, i, NULL) : d;
                if (dout[1])
                        din[i] = op_slice(g, din[i], 3, 0, TYPE(IN(i)).dim[3].n, 1);
        }
}

/* The rows of dy that read one table row are summed in order: sort, then add. */
void grad_gather(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Ref table = IN(0), ids = IN(1);
        Attr k = { .k = { TYPE(table).dim[0].n } };
        Loc loc = NODE(g, n)->loc;
        Type flat = type_of(DT_I32, 1, type_elems(&TYPE(ids)));
        /* named first: C leaves open which argument is made before another */
        const char *name = graph_name(g, "bucket");
        Ref sort = graph_add(g, OP_BUCKET, (Ref[]) { graph_reshape(g, ids, flat) }, 1, &k, loc,
                             name);
        Ref offs = graph_item(g, sort, 1, NULL);
        Dim c = DIM(1), rest;
        for (int i = 1; i < TYPE(table).rank; i++)
                c = dim_mul(c, TYPE(table).dim[i]);
        dim_div(type_elems(&TYPE(dout[0])), c, &rest);
        Type rows = TYPE(table).rank == 1 ? type_of(TYPE(dout[0]).dt, 1, rest)
                                          : type_of(TYPE(dout[0]).dt, 2, rest, c);
        Ref dy = graph_reshape(g, dout[0], rows);
        Ref d = graph_add(g, OP_SCATTER, (Ref[]) { dy, sort, offs }, 3, &k, loc,
                          graph_name(g, NODE(g, table)->name));
        Type t = TYPE(table);
        t.dt = DT_F32;
        din[0] = graph_reshape(g, d, t);
}

/* item, slice: handled by differentiate, which sees all readers at once. */
void grad_item(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        (void)g, (void)n, (void)dout, (void)din;
}
void grad_slice(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        (void)g, (void)n, (void)dout, (void)din;
}

void grad_reshape(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = graph_reshape(g, dout[0], TYPE(IN(0)));
}
void grad_expand(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        din[0] = reduce_to(g, dout[0], IN(0));
}

void grad_transpose(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Attr a = { 0 };
        for (int i = 0; i < TYPE(n).rank; i++)
                a.perm.perm[NODE(g, n)->a.perm.perm[i]] = i;
        din[0] = graph_add(g, OP_TRANSPOSE, dout, 1, &a, NODE(g, n)->loc,
                           graph_name(g, NODE(g, n)->name));
}

void grad_concat(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        int ax = TYPE(n).rank - 1;
        int64_t at = 0;
        for (int i = 0, k = NODE(g, n)->n_in; i < k; i++) {
                int64_t len = TYPE(IN(i)).dim[ax].n;
                din[i] = op_slice(g, dout[0], ax, at, len, 1);
                at += len;
        }
}

void grad_topk(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Attr a = { .k = { TYPE(IN(0)).dim[TYPE(IN(0)).rank - 1].n } };
        if (dout[0])
                din[0] = graph_add(g, OP_TOPK_GRAD, (Ref[]) { dout[0], graph_item(g, n, 1, NULL) },
                                   2, &a, NODE(g, n)->loc, graph_name(g, NODE(g, n)->name));
}

/* out = sum_j gate_j y_j:  dy_j = gate_j dout, dgate_j = <y_j, dout>. */
void grad_combine(Graph *g, Ref n, const Ref *dout, Ref *din)
{
        Ref y = IN(0), d;
        Type t = TYPE(y), one = TYPE(y);
        one.dt = TYPE(dout[0]).dt;
        one.dim[one.rank - 2] = DIM(1);
        d = graph_reshape(g, dout[0], one);
        if (NODE(g, n)->n_in == 1) {
                din[0] = stretch(g, d, y);
                return;
        }
        Type gt = TYPE(IN(1));
        gt.dim[gt.rank++] = DIM(1);
        Ref gate = graph_reshape(g, IN(1), gt);
        din[0] = op2(g, OP_MUL, d, gate);
        (void)t;
        Ref s = op1(g, OP_SUM, op2(g, OP_MUL, y, d));
        gt.rank--;
        gt.dt = TYPE(s).dt;
        din[1] = graph_reshape(g, s, gt);
}
