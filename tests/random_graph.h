/* random_graph.h: a random model, as a graph: layers of attention, MLPs, experts and norms with
 * elementwise arithmetic, views and rows of every kind between them.
 *
 * Every choice is draw()'s, of a seed or of a fuzzer's bytes, so a graph can be had again.  Graphs
 * are valid and tame: arguments of log, sqrt and 1/x stay away from 0.  In a few, tokens see later
 * ones: those must be refused for inference. */
#ifndef TGC_RANDOM_GRAPH_H
#define TGC_RANDOM_GRAPH_H

#include "random_weights.h"

/* ---- parts of models ---- */

static inline Ref linear(Gen *q, Ref x, int n)
{
        int64_t k = width(q, x);
        double std = 1 / sqrt((double)k);
        bool tb = chance(&q->d, 80);
        Ref w = weight(q, tb ? n : k, tb ? k : n, std);
        Ref y = matmul(q, x, w, 0, tb);
        if (chance(&q->d, 40))
                y = mk(q, OP_ADD, y, leaf_param(q, type_of(DT_F32, 1, DIM(n)), 0, 0), 0);
        return y;
}

static inline Ref norm(Gen *q, Ref x)
{
        bool layer = chance(&q->d, 50) && width(q, x) > 1;
        Type row = type_of(DT_F32, 1, DIM(width(q, x)));
        double eps = chance(&q->d, 30) ? 1e-3 : 1e-5;
        if (width(q, x) <=
            (layer ? 3
                   : 2)) /* nearly the same whatever x is: its gradient is what rounding leaves */
                eps = 0.3;
        Ref y = mkx(q, layer ? OP_LAYERNORM : OP_RMSNORM, x, eps);
        if (chance(&q->d, 70)) {
                bool offset = chance(&q->d, 20);
                Ref gain = leaf_param(q, row, 0, offset ? 0 : 1);
                y = mk(q, OP_MUL, y, offset ? mkx(q, OP_OFFSET, gain, 1) : gain, 0);
        }
        if (chance(&q->d, layer ? 60 : 10))
                y = mk(q, OP_ADD, y, leaf_param(q, row, 0, 0), 0);
        return y;
}

static inline Ref drop(Gen *q, Ref x)
{
        Attr a = { .drop = { 0.2, q->g->next_id } };
        if (!q->dropout || !chance(&q->d, 30))
                return x;
        q->g->next_id++;
        return node_of(q, OP_DROPOUT, NULL, &x, 1, &a, NULL);
}

static inline Ref activation(Gen *q, Ref x)
{
        static const Op op[] = { OP_GELU,    OP_GELU_TANH, OP_SILU, OP_RELU,
                                 OP_SIGMOID, OP_TANH,      OP_SIN,  OP_ERF };
        Ref y = mk(q, op[draw(&q->d, 8)], x, 0, 0);
        return NODE(q->g, y)->op == OP_RELU && chance(&q->d, 40) ? mk(q, OP_SQUARE, y, 0, 0) : y;
}

static inline Ref mlp(Gen *q, Ref x)
{
        int F = 1 + draw(&q->d, 3 * q->C), C = (int)width(q, x);
        if (chance(&q->d, 50))
                return linear(q, drop(q, activation(q, linear(q, x, F))), C);
        Ref gate = activation(q, linear(q, x, F));
        return linear(q, mk(q, OP_MUL, gate, linear(q, x, F), 0), C);
}

static inline Ref rope(Gen *q, Ref x, Ref freq, int dims, int width)
{
        Attr a = { .rope = { 0, dims < width ? dims : 0 } };
        return node_of(q, OP_ROPE, NULL, (Ref[]) { x, freq }, 2, &a, NULL);
}

static inline Ref attention(Gen *q, Ref x)
{
        static const int groups[] = { 1, 1, 2, 2, 3, 4, 6 };
        int K = 1 + draw(&q->d, 3), H = K * groups[draw(&q->d, 7)], D = 1 + draw(&q->d, 20),
            C = (int)width(q, x);
        Attr a;
        Ref in[5];
        int n = 3, rotary = chance(&q->d, 50) ? D - D % 2 : 0;
        if (rotary && chance(&q->d, 30))
                rotary = 2 * (1 + draw(&q->d, rotary / 2));
        if (D % 2 && rotary) /* rope wants even heads */
                D++;
        if (chance(&q->d, 10))
                D = 8 << draw(&q->d, 4);
        if (rotary > D)
                rotary = D;
        int DV = chance(&q->d, 20) ? 1 + draw(&q->d, 24) : D;
        Type qt = type_of(DT_F32, 4, DIM_SYM(SYM_B), DIM_SYM(SYM_T), DIM(H), DIM(D)), kt = qt, vt;
        kt.dim[2] = DIM(K);
        vt = kt;
        vt.dim[3] = DIM(DV);
        if (chance(&q->d, 40)) { /* one linear of all three, in any order */
                Ref all = linear(q, x, (H + K) * D + K * DV);
                in[0] = slice(q, all, 2, 0, H * D, 1);
                in[1] = slice(q, all, 2, H * D, K * D, 1);
                in[2] = slice(q, all, 2, (H + K) * D, K * DV, 1);
        } else {
                in[0] = linear(q, x, H * D);
                in[1] = linear(q, x, K * D);
                in[2] = DV == D && chance(&q->d, 10)
                                ? in[1]
                                : linear(q, chance(&q->d, 10) ? some(q) : x, K * DV);
        }
        for (int i = 0; i < 3; i++)
                in[i] = reshape(q, in[i], i == 2 ? vt : i ? kt : qt);
        if (chance(&q->d, 20))
                for (int i = 0; i < 2; i++)
                        in[i] = norm(q, in[i]);
        if (rotary) {
                Ref freq = leaf_const(q, type_of(DT_F32, 1, DIM(rotary / 2)));
                in[0] = rope(q, in[0], freq, rotary, D);
                in[1] = rope(q, in[1], freq, rotary, D);
        }
        attr_default(OP_ATTENTION, &a);
        a.att.causal = !q->mixes;
        a.att.scale = chance(&q->d, 80) ? 1 / sqrt(D) : 0.3;
        if (chance(&q->d, 25))
                a.att.window = 1 + draw(&q->d, 6);
        if (chance(&q->d, 20))
                a.att.softcap = 1 + draw(&q->d, 5);
        if (chance(&q->d, 20)) {
                a.att.alibi = 1;
                in[n++] = leaf_const(q, type_of(DT_F32, 1, DIM(H)));
        }
        if (q->dropout && chance(&q->d, 40)) {
                a.att.p = 0.1;
                a.att.id = q->g->next_id++;
        }
        Ref y = node_of(q, OP_ATTENTION, NULL, in, n, &a, NULL);
        y = reshape(q, y, btn(H * DV));
        if (chance(&q->d, 15)) /* a gate of what attention gives */
                y = mk(q, OP_MUL, y, mk(q, OP_SIGMOID, linear(q, x, H * DV), 0, 0), 0);
        return linear(q, y, C);
}

static inline Ref expert(Gen *q, Ref x, Ref w, Ref perm, Ref offs, int tb, int adiv, int scatter)
{
        Attr a = { .expert = { .tb = tb, .adiv = adiv, .scatter = scatter } };
        return node_of(q, OP_EXPERT_MATMUL, NULL, (Ref[]) { x, w, perm, offs }, 4, &a, NULL);
}

static inline Ref moe(Gen *q, Ref x)
{
        int E = 1 + draw(&q->d, 5), k = 1 + draw(&q->d, E < 3 ? E : 3),
            F = 1 + draw(&q->d, 2 * q->C), C = (int)width(q, x);
        Dim bt = dim_mul(DIM_SYM(SYM_B), DIM_SYM(SYM_T)), slots_n = dim_mul(bt, DIM(k));
        bool tb = chance(&q->d, 80), bias = chance(&q->d, 30), gated = chance(&q->d, 50);
        Ref rows = reshape(q, x, type_of(DT_F32, 2, bt, DIM(C))), scores = linear(q, rows, E),
            gates, chosen, probs = 0;
        if (chance(&q->d, 20)) { /* logits chosen, then made probabilities */
                gates = with_k(q, OP_TOPK, scores, k);
                chosen = item(q, gates, 1);
                gates = mk(q, OP_SOFTMAX, gates, 0, 0);
        } else {
                probs = mk(q, OP_SOFTMAX, scores, 0, 0);
                gates = with_k(q, OP_TOPK, probs, k);
                chosen = item(q, gates, 1);
                if (chance(&q->d, 50))
                        gates = mk(q, OP_DIV, gates, mk(q, OP_SUM, gates, 0, 0), 0);
        }
        Ref slots = reshape(q, chosen, type_of(DT_I32, 1, slots_n)),
            perm = with_k(q, OP_BUCKET, slots, E), offs = item(q, perm, 1);
        Ref w[3], b[3] = { 0 }, h[2];
        for (int i = 0; i < 3; i++) {
                int n = i < 2 ? F : C, in = i < 2 ? C : F;
                w[i] = i == 1 && !gated
                               ? 0
                               : leaf_param(q,
                                            tb ? type_of(DT_F32, 3, DIM(E), DIM(n), DIM(in))
                                               : type_of(DT_F32, 3, DIM(E), DIM(in), DIM(n)),
                                            1 / sqrt(in), 0);
                b[i] = bias && w[i] ? leaf_param(q, type_of(DT_F32, 2, DIM(E), DIM(n)), 0, 0) : 0;
        }
        for (int i = 0; i < 1 + gated; i++) {
                h[i] = expert(q, rows, w[i], perm, offs, tb, k, 0);
                if (bias)
                        h[i] = mk(q, OP_ADD, h[i],
                                  mk(q, OP_GATHER, b[i], mk(q, OP_GATHER, slots, perm, 0), 0), 0);
        }
        Ref y = activation(q, h[0]);
        if (gated)
                y = mk(q, OP_MUL, y, h[1], 0);
        y = expert(q, y, w[2], perm, offs, tb, 0, 1);
        if (bias)
                y = mk(q, OP_ADD, y, mk(q, OP_GATHER, b[2], slots, 0), 0);
        y = reshape(q, y, type_of(DT_F32, 3, bt, DIM(k), DIM(C)));
        Ref in[2] = { y, gates };
        y = node_of(q, OP_COMBINE, NULL, in, chance(&q->d, 90) ? 2 : 1, NULL, NULL);
        if (probs && !q->aux && chance(&q->d, 50)) { /* the balance loss */
                Ref ends = cast(q, slice(q, offs, 0, 1, E, 1), DT_F32),
                    begins = cast(q, slice(q, offs, 0, 0, E, 1), DT_F32);
                Ref count = mk(q, OP_SUB, ends, begins, 0), total = mk(q, OP_SUM, count, 0, 0);
                Ref share = mk(q, OP_DIV, count, total, 0),
                    mass = mk(q, OP_DIV, with_k(q, OP_COLSUM, probs, 1), total, 0);
                q->aux = reshape(q,
                                 mkx(q, OP_SCALE,
                                     mk(q, OP_SUM, mk(q, OP_MUL, share, mass, 0), 0, 0), E),
                                 (Type) { 0 });
        }
        return reshape(q, y, btn(C));
}

/* ---- elementwise ---- */

static inline Ref safe_unary(Gen *q, Ref x)
{
        switch (draw(&q->d, 22)) {
        case 0: return mk(q, OP_NEG, x, 0, 0);
        case 1: return mk(q, OP_ABS, x, 0, 0);
        case 2: return mk(q, OP_SQUARE, x, 0, 0);
        case 3: return mk(q, OP_SQRT, mkx(q, OP_OFFSET, mk(q, OP_ABS, x, 0, 0), 0.5), 0, 0);
        case 4: return mk(q, OP_RSQRT, mkx(q, OP_OFFSET, mk(q, OP_SQUARE, x, 0, 0), 1), 0, 0);
        case 5: return mk(q, OP_RECIP, mkx(q, OP_OFFSET, mk(q, OP_SQUARE, x, 0, 0), 2), 0, 0);
        case 6: return mk(q, OP_EXP, mk(q, OP_TANH, x, 0, 0), 0, 0);
        case 7: return mk(q, OP_LOG, mkx(q, OP_OFFSET, mk(q, OP_SQUARE, x, 0, 0), 0.7), 0, 0);
        case 8: return mk(q, OP_COS, x, 0, 0);
        case 9: return mkx(q, OP_SCALE, x, (draw(&q->d, 9) - 4) / 2.0);
        case 10: return mkx(q, OP_OFFSET, x, (draw(&q->d, 9) - 4) / 2.0);
        case 11: return mkx(q, OP_SCALE, mk(q, OP_TANH, mkx(q, OP_SCALE, x, 0.5), 0, 0), 2);
        case 12: return cast(q, x, DT_F32);
        case 13: return drop(q, x);
        case 14: return mk(q, OP_MUL, x, x, 0);
        default: return activation(q, x);
        }
}

/* Something that stretches to x (..., n). */
static inline Ref operand(Gen *q, Ref x)
{
        int64_t n = width(q, x);
        Type t;
        switch (draw(&q->d, 10)) {
        case 0: return leaf_param(q, type_of(DT_F32, 1, DIM(n)), 0, 0.4);
        case 1: return leaf_param(q, type_of(DT_F32, 1, DIM(1)), 0, 1.1);
        case 2: return leaf_param(q, (Type) { 0 }, 0, 0.7);
        case 3: return leaf_const(q, type_of(DT_F32, 1, DIM(n)));
        case 4: {
                Attr a = { .num = { 0.25 } };
                t = chance(&q->d, 50) ? (Type) { 0 } : type_of(DT_F32, 1, DIM(n));
                return node_of(q, OP_FILL, &t, NULL, 0, &a, NULL);
        }
        case 5: return linear(q, some(q), 1); /* (B,T,1) */
        case 6:
                return reshape(
                        q,
                        mkx(q, OP_SCALE,
                            cast(q,
                                 node_of(q, OP_POSITION,
                                         &(Type) { DT_I32, 2, { DIM_SYM(SYM_B), DIM_SYM(SYM_T) } },
                                         NULL, 0, NULL, NULL),
                                 DT_F32),
                            0.125),
                        btn(1));
        case 7: return mkx(q, OP_SCALE, reshape(q, cast(q, q->ids, DT_F32), btn(1)), 1.0 / q->V);
        default:
                for (int i = 0; i < q->n_values; i++) {
                        Ref y = q->value[q->n_values - 1 - i];
                        if (y != x && (width(q, y) == n || width(q, y) == 1) && chance(&q->d, 60))
                                return y;
                }
                return leaf_param(q, type_of(DT_F32, 1, DIM(n)), 0.5, 0);
        }
}

static inline Ref binary(Gen *q, Ref x, Ref y)
{
        static const Op plain[] = { OP_ADD, OP_SUB, OP_MUL, OP_MAX, OP_MIN };
        bool flip = chance(&q->d, 40);
        Ref a = flip ? y : x, b = flip ? x : y;
        switch (draw(&q->d, type_at(q, x)->rank == 3 ? 8 : 7)) {
        case 0: return mk(q, OP_DIV, a, mkx(q, OP_OFFSET, mk(q, OP_ABS, b, 0, 0), 1), 0);
        case 1:
                return mk(q, OP_WHERE, mk(q, OP_GT, a, b, 0), x,
                          chance(&q->d, 50) ? y : mkx(q, OP_SCALE, x, 0.5));
        case 7: {
                Ref pos = cast(q,
                               node_of(q, OP_POSITION,
                                       &(Type) { DT_I32, 2, { DIM_SYM(SYM_B), DIM_SYM(SYM_T) } },
                                       NULL, 0, NULL, NULL),
                               DT_F32);
                Ref is = mk(q, OP_EQ, reshape(q, pos, btn(1)),
                            mkx(q, OP_SCALE, reshape(q, cast(q, q->ids, DT_F32), btn(1)), 1), 0);
                return mk(q, OP_WHERE, is, a, b);
        }
        default: return mk(q, plain[draw(&q->d, 5)], a, b, 0);
        }
}

/* ---- views and rows ---- */

/* Elementwise work on a view of x, and back; or another width. */
static inline Ref view(Gen *q, Ref x)
{
        int64_t n = width(q, x), h = 1;
        Type t;
        for (int64_t i = 2; i <= 4; i++)
                if (n % i == 0 && chance(&q->d, 60))
                        h = i;
        t = type_of(DT_F32, 4, DIM_SYM(SYM_B), DIM_SYM(SYM_T), DIM(h), DIM(n / h));
        /* wide values become narrower: every other view doubles them, until a shape is refused */
        switch (n > 1024 ? 0 : draw(&q->d, 9)) {
        case 0: {
                int64_t len = 1 + draw(&q->d, (int)n),
                        step = len > 1 ? 1 + draw(&q->d, (int)((n - 1) / (len - 1))) : 1,
                        start = draw(&q->d, (int)(n - (len - 1) * step));
                return slice(q, x, 2, start, len, step);
        }
        case 1: {
                Ref in[4] = { x, some(q), some(q), some(q) };
                return node_of(q, OP_CONCAT, NULL, in, 2 + draw(&q->d, 3), NULL, NULL);
        }
        case 2:
                return mk(q, OP_INTERLEAVE, x,
                          binary(q, x, leaf_param(q, type_of(DT_F32, 1, DIM(n)), 0, 0.4)), 0);
        case 3: { /* heads before tokens and back */
                Ref y = turn(q, reshape(q, x, t), 0, 2, 1, 3);
                y = chance(&q->d, 50)
                            ? safe_unary(q, y)
                            : mk(q, OP_MUL, y,
                                 leaf_param(q, type_of(DT_F32, 3, DIM(h), DIM(1), DIM(n / h)), 0,
                                            0.8),
                                 0);
                return reshape(q, turn(q, y, 0, 2, 1, 3), btn(n));
        }
        case 4: { /* (h,d) as (d,h) */
                Ref y = turn(q, reshape(q, x, t), 0, 1, 3, 2);
                if (chance(&q->d, 50))
                        y = safe_unary(q, y);
                return reshape(q, y, btn(n));
        }
        case 5: { /* work by head, with operands of heads */
                Ref y = reshape(q, x, t),
                    p = leaf_param(q,
                                   type_of(DT_F32, 2, DIM(chance(&q->d, 50) ? h : 1),
                                           DIM(chance(&q->d, 50) ? n / h : 1)),
                                   0.5, 0);
                y = chance(&q->d, 30)   ? norm(q, y)
                    : chance(&q->d, 20) ? mk(q, OP_SOFTMAX, y, 0, 0)
                                        : binary(q, y, p);
                return reshape(q, y, btn(n));
        }
        case 6: { /* a sum of heads */
                Ref y = mk(q, OP_SUM,
                           chance(&q->d, 50) ? reshape(q, x, t)
                                             : turn(q, reshape(q, x, t), 0, 1, 3, 2),
                           0, 0);
                return reshape(q, y, btn(type_at(q, y)->dim[2].n));
        }
        case 7: { /* a product of each token's own matrices */
                Ref y = reshape(q, x, t), z = chance(&q->d, 50) ? y : safe_unary(q, y);
                y = mkx(q, OP_SCALE,
                        chance(&q->d, 50) ? matmul(q, y, z, 0, 1) : matmul(q, y, z, 1, 0), 0.3);
                Type s = *type_at(q, y);
                return reshape(q, y, btn(s.dim[2].n * s.dim[3].n));
        }
        default: { /* one column, stretched */
                Ref y = slice(q, x, 2, draw(&q->d, (int)n), 1, 1);
                t = btn(1 + draw(&q->d, 9));
                return node_of(q, OP_EXPAND, &t, &y, 1, NULL, NULL);
        }
        }
}

/* Every token with every other. */
static inline Ref mixed(Gen *q, Ref x)
{
        Ref all = mk(q, OP_SOFTMAX,
                     mkx(q, OP_SCALE, matmul(q, x, linear(q, x, (int)width(q, x)), 0, 1), 0.3), 0,
                     0);
        return matmul(q, all, x, 0, 0);
}

static inline Ref row_op(Gen *q, Ref x)
{
        int64_t n = width(q, x);
        int k = 1 + draw(&q->d, n < 4 ? (int)n : 4);
        switch (draw(&q->d, 9)) {
        case 0: return mk(q, OP_SOFTMAX, x, 0, 0);
        case 1: return mk(q, OP_LOGSUMEXP, x, 0, 0);
        case 2: return mkx(q, OP_SCALE, mk(q, OP_SUM, x, 0, 0), 1.0 / (double)n);
        case 3: return mk(q, OP_SUB, x, mk(q, OP_ROWMAX, x, 0, 0), 0);
        case 4: return with_k(q, OP_TOPK, x, k);
        case 5:
                return mk(q, OP_GATHER,
                          leaf_param(q, type_of(DT_F32, 2, DIM(n), DIM(1 + draw(&q->d, 9))), 0.5,
                                     0),
                          mk(q, OP_ARGMAX, x, 0, 0), 0);
        case 6: {
                int c = 1 + draw(&q->d, 5);
                Ref best = item(q, with_k(q, OP_TOPK, x, k), 1);
                Ref y = mk(q, OP_GATHER, leaf_param(q, type_of(DT_F32, 2, DIM(n), DIM(c)), 0.5, 0),
                           best, 0);
                return reshape(q, y, btn(k * c));
        }
        case 7: return mk(q, OP_SUB, x, mk(q, OP_LOGSUMEXP, x, 0, 0), 0);
        default: return norm(q, x);
        }
}

/* Something from leaves alone: sums of a parameter's rows, products of parameters. */
static inline Ref leaves(Gen *q, int64_t n)
{
        int64_t k = 1 + draw(&q->d, 9);
        Ref w = leaf_param(q, type_of(DT_F32, 2, DIM(k), DIM(n)), 0.3, 0);
        switch (draw(&q->d, 4)) {
        case 0: return with_k(q, OP_COLSUM, w, 1);
        case 1:
                return reshape(q,
                               matmul(q, leaf_param(q, type_of(DT_F32, 2, DIM(1), DIM(k)), 0.5, 0),
                                      w, 0, 0),
                               type_of(DT_F32, 1, DIM(n)));
        case 2: return slice(q, reshape(q, w, type_of(DT_F32, 1, DIM(n * k))), 0, 0, n, k);
        default:
                return reshape(q, mk(q, OP_SUM, turn(q, w, 1, 0, 0, 0), 0, 0),
                               type_of(DT_F32, 1, DIM(n)));
        }
}

static inline Ref fit(Gen *q, Ref x, int n)
{
        return width(q, x) == n && chance(&q->d, 70) ? x : linear(q, x, n);
}

/* ---- whole models ---- */

static inline void embed(Gen *q)
{
        q->table = leaf_param(q, type_of(DT_F32, 2, DIM(q->V), DIM(q->C)), 0.5, 0);
        Ref x = mk(q, OP_GATHER, q->table, q->ids, 0);
        if (chance(&q->d, 40)) {
                Ref wpe = leaf_param(q, type_of(DT_F32, 2, DIM(q->ctx), DIM(q->C)), 0.3, 0);
                x = mk(q, OP_ADD, x,
                       mk(q, OP_GATHER, wpe,
                          node_of(q, OP_POSITION,
                                  &(Type) { DT_I32, 2, { DIM_SYM(SYM_B), DIM_SYM(SYM_T) } }, NULL,
                                  0, NULL, NULL),
                          0),
                       0);
        }
        keep(q, chance(&q->d, 20) ? mkx(q, OP_SCALE, x, sqrt(q->C)) : x);
}

static inline void steps(Gen *q, Ref *x, int n)
{
        for (int i = 0; i < n; i++) {
                Ref y = some(q);
                int kind = draw(&q->d, 100);
                if (kind < 12)
                        *x = mk(q, OP_ADD, *x,
                                drop(q, attention(q, chance(&q->d, 70) ? norm(q, *x) : *x)), 0);
                else if (kind < 22)
                        *x = mk(q, OP_ADD, *x, mlp(q, chance(&q->d, 70) ? norm(q, *x) : *x), 0);
                else if (kind < 28)
                        *x = mk(q, OP_ADD, *x, moe(q, chance(&q->d, 70) ? norm(q, *x) : *x), 0);
                else if (kind < 32 && q->mixes)
                        keep(q, mixed(q, y));
                else if (kind < 45)
                        keep(q, safe_unary(q, y));
                else if (kind < 62)
                        keep(q, binary(q, y, operand(q, y)));
                else if (kind < 78)
                        keep(q, view(q, y));
                else if (kind < 88)
                        keep(q, row_op(q, y));
                else if (kind < 92)
                        keep(q, mk(q, OP_ADD, y, leaves(q, width(q, y)), 0));
                else if (kind < 96)
                        keep(q, linear(q, y, 1 + draw(&q->d, 20)));
                else
                        *x = mk(q, OP_ADD, *x, fit(q, y, q->C), 0);
                if (kind < 28 || kind >= 96)
                        keep(q, *x);
        }
}

static inline Ref head(Gen *q, Ref x, Ref *w)
{
        if (chance(&q->d, 70))
                x = norm(q, x);
        *w = chance(&q->d, 50)
                     ? q->table
                     : leaf_param(q, type_of(DT_F32, 2, DIM(q->V), DIM(q->C)), 1 / sqrt(q->C), 0);
        return x;
}

static inline Ref logits_of(Gen *q, Ref x, Ref w)
{
        Ref y = matmul(q, x, w, 0, 1);
        if (chance(&q->d, 20))
                y = mk(q, OP_ADD, y, leaf_param(q, type_of(DT_F32, 1, DIM(q->V)), 0, 0), 0);
        if (chance(&q->d, 15))
                y = mkx(q, OP_SCALE, mk(q, OP_TANH, mkx(q, OP_SCALE, y, 0.2), 0, 0), 5);
        return y;
}

static inline Ref total(Gen *q, Ref each)
{
        Dim bt = dim_mul(DIM_SYM(SYM_B), DIM_SYM(SYM_T));
        Ref sum = reshape(q, mk(q, OP_SUM, reshape(q, each, type_of(DT_F32, 1, bt)), 0, 0),
                          (Type) { 0 });
        return mk(q, OP_MUL, sum, mk(q, OP_INV_TOKENS, 0, 0, 0), 0);
}

static inline void loss(Gen *q, Ref x, Ref w, Ref logits)
{
        Ref each = logits && chance(&q->d, 90) ? mk(q, OP_CE, logits, q->targets, 0)
                                               : mk(q, OP_LINEAR_CE, x, w, q->targets),
            all;
        if (chance(&q->d, 15))
                all = total(q, mk(q, OP_MUL, each, each, 0));
        else if (chance(&q->d, 10) && logits) { /* and how far the logits are from probabilities */
                Ref lse = reshape(q, mk(q, OP_LOGSUMEXP, logits, 0, 0), *type_at(q, each));
                all = total(q, mk(q, OP_ADD, each,
                                  mkx(q, OP_SCALE, mk(q, OP_SQUARE, lse, 0, 0), 0.1), 0));
        } else {
                all = total(q, each);
        }
        if (!q->aux) {
                graph_output(q->g, "loss", all);
                return;
        }
        graph_output(q->g, "loss", mk(q, OP_ADD, all, mkx(q, OP_SCALE, q->aux, 0.1), 0));
        graph_output(q->g, "aux_loss", q->aux);
        graph_output(q->g, "ce", all);
}

/* The model, whose logits l are those of x and w; the loss, if it trains. */
static inline Model *with_logits(Gen *q, Ref x, Ref w, Ref l, bool trains)
{
        graph_output(q->g, "logits", l);
        if (trains)
                loss(q, x, w, l);
        graph_sweep(q->g);
        model_finish(q->m, NULL);
        return q->m;
}

/* What can go wrong goes to error_at. */
static inline Model *random_model(Draw d)
{
        Gen q = { .m = model_new("random"), .d = d };
        static const int widths[] = { 1,  2,  3,  4,  5,  6,  7,  8,  8,  12,
                                      12, 15, 16, 16, 20, 24, 24, 32, 33, 48 };
        q.g = q.m->graph;
        q.V = 2 + draw(&q.d, chance(&q.d, 80) ? 30 : 120);
        q.C = widths[draw(&q.d, 20)];
        q.ctx = q.m->ctx = 12 + draw(&q.d, 20);
        q.dropout = chance(&q.d, 20);
        q.mixes = chance(&q.d, 4);
        Type bt = type_of(DT_I32, 2, DIM_SYM(SYM_B), DIM_SYM(SYM_T));
        q.ids = node_of(&q, OP_INPUT, &bt, NULL, 0, NULL, "ids");
        bool trains = chance(&q.d, 95);
        if (trains)
                q.targets = node_of(&q, OP_INPUT, &bt, NULL, 0, NULL, "targets");
        q.g->next_id = q.g->next_id ? q.g->next_id : 1;
        embed(&q);
        Ref x = q.value[0], w, l;
        steps(&q, &x, 1 + draw(&q.d, chance(&q.d, 70) ? 6 : 14));
        if (q.n_values > 1 && chance(&q.d, 80))
                x = mk(&q, OP_ADD, x, fit(&q, q.value[q.n_values - 1], q.C), 0);
        if (q.n_values > 2 && chance(&q.d, 50))
                x = mk(&q, OP_ADD, x, fit(&q, q.value[q.n_values - 2], q.C), 0);
        x = head(&q, x, &w);
        l = logits_of(&q, x, w);
        return with_logits(&q, x, w, l, trains);
}

#endif
