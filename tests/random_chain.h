/* random_chain.h: a model that is a few chains of views and rows: parts of columns, every second or
 * third one, pairs, values beside each other, turned, stretched, and row work between them, all of
 * widths that fit nothing.
 *
 * random_graph.h draws such chains seldom.  Here nearly every reader sees a value through a view,
 * often through several, and whatever nobody reads goes to the logits. */
#ifndef TGC_RANDOM_CHAIN_H
#define TGC_RANDOM_CHAIN_H

#include "random_graph.h"

enum { CHAIN_WIDEST = 96 };

/* Every step'th column of x, n of them if there are as many; at least one. */
static inline Ref part(Gen *q, Ref x, int64_t n, int64_t step)
{
        const int64_t have = width(q, x), most = (have + step - 1) / step,
                      len = n < 1      ? 1
                            : n < most ? n
                                       : most,
                      room = have - (len - 1) * step;
        const int64_t at = chance(&q->d, 25) ? 0 : draw(&q->d, (int)room);
        return slice(q, x, 2, at, len, step);
}

/* x, n columns wide: a part of it, one of its columns, it and itself, or a linear of it. */
static inline Ref as_wide(Gen *q, Ref x, int64_t n)
{
        const int64_t have = width(q, x);
        const Type t = btn(n);
        if (have == n)
                return x;
        if (have == 1 && chance(&q->d, 70))
                return node_of(q, OP_EXPAND, &t, &x, 1, NULL, NULL);
        if (have > n)
                return part(q, x, n, 1 + draw(&q->d, (int)((have - 1) / (n > 1 ? n - 1 : 1))) % 3);
        if (n == 2 * have && chance(&q->d, 50))
                return mk(q, OP_INTERLEAVE, x, safe_unary(q, x), 0);
        if (n < 2 * have && chance(&q->d, 50)) {
                Ref in[2] = { x, part(q, x, n - have, 1) };
                return node_of(q, OP_CONCAT, NULL, in, 2, NULL, NULL);
        }
        return linear(q, x, (int)n);
}

/* As (B,T,h,n/h), turned, worked on, turned back. */
static inline Ref chain_heads(Gen *q, Ref x)
{
        static const int turns[][4] = { { 0, 1, 2, 3 }, { 0, 1, 3, 2 }, { 0, 2, 1, 3 } };
        const int64_t n = width(q, x);
        const int *p = turns[draw(&q->d, 3)];
        int64_t h = 1 + draw(&q->d, (int)n);
        while (n % h)
                h--;
        const Type t = type_of(DT_F32, 4, DIM_SYM(SYM_B), DIM_SYM(SYM_T), DIM(h), DIM(n / h));
        Ref y = turn(q, reshape(q, x, t), p[0], p[1], p[2], p[3]);
        const int64_t D = width(q, y);
        switch (draw(&q->d, 6)) {
        case 0: y = norm(q, y); break;
        case 1: y = mk(q, OP_SOFTMAX, y, 0, 0); break;
        case 2: y = mk(q, OP_SUB, y, mk(q, OP_ROWMAX, y, 0, 0), 0); break;
        case 3: /* pairs change places */
                if (D % 2 == 0)
                        y = mk(q, OP_INTERLEAVE, mk(q, OP_NEG, slice(q, y, 3, 1, D / 2, 2), 0, 0),
                               slice(q, y, 3, 0, D / 2, 2), 0);
                break;
        case 4: /* halves change places */
                if (D > 1) {
                        Ref in[2] = { slice(q, y, 3, D / 2, D - D / 2, 1),
                                      slice(q, y, 3, 0, D / 2, 1) };
                        y = node_of(q, OP_CONCAT, NULL, in, 2, NULL, NULL);
                }
                break;
        default: y = safe_unary(q, y);
        }
        if (p[1] == 1 && D % 2 == 0 && chance(&q->d, 30)) {
                Ref freq = leaf_const(q, type_of(DT_F32, 1, DIM(D / 2)));
                y = rope(q, y, freq, (int)D, (int)D);
        }
        return reshape(q, turn(q, y, p[0], p[1], p[2], p[3]), btn(n));
}

/* What is made of leaves alone, n wide: parts and pairs of parameters. */
static inline Ref chain_leaf(Gen *q, int64_t n)
{
        const Ref w = leaf_param(q, type_of(DT_F32, 1, DIM(2 * n + 1)), 0.5, 0),
                  a = slice(q, w, 0, draw(&q->d, 2), n, 2);
        switch (draw(&q->d, 4)) {
        case 0: return slice(q, w, 0, draw(&q->d, (int)n + 2), n, 1);
        case 1: return slice(q, mk(q, OP_INTERLEAVE, a, safe_unary(q, a), 0), 0, 1, n, 1);
        case 2: return safe_unary(q, a);
        default: return a;
        }
}

/* One link of a chain, of value x. */
static inline Ref chain_link(Gen *q, Ref x)
{
        const int64_t n = width(q, x);
        const Ref y = some(q);
        int kind = draw(&q->d, n > CHAIN_WIDEST ? 25 : 100);
        if (kind < 8)
                return part(q, x, 1 + draw(&q->d, (int)n), 1);
        if (kind < 20)
                return part(q, x, n / 2 + (kind & 1), 2);
        if (kind < 23)
                return part(q, x, n / 2, 3);
        if (kind < 25)
                return part(q, x, 1, 1);
        if (kind < 36)
                return mk(q, OP_INTERLEAVE, x,
                          chance(&q->d, 30) ? safe_unary(q, x) : as_wide(q, y, n), 0);
        if (kind < 46) {
                Ref in[3] = { x, y, part(q, chance(&q->d, 50) ? x : some(q), n, 1) };
                return node_of(q, OP_CONCAT, NULL, in, 2 + draw(&q->d, 2), NULL, NULL);
        }
        if (kind < 58)
                return binary(q, x, as_wide(q, y, n));
        if (kind < 68)
                return safe_unary(q, x);
        if (kind < 72)
                return binary(q, x, chain_leaf(q, n));
        if (kind < 80)
                return row_op(q, x);
        if (kind < 87)
                return chain_heads(q, x);
        if (kind < 91)
                return linear(q, x, 1 + draw(&q->d, 40));
        if (kind < 93)
                return mk(q, OP_MUL, x,
                          mk(q, OP_GATHER,
                             leaf_param(q, type_of(DT_F32, 2, DIM(q->V), DIM(n)), 0.5, 0), q->ids,
                             0),
                          0);
        if (kind < 96)
                return cast(q, cast(q, x, chance(&q->d, 50) ? DT_BF16 : DT_F16), DT_F32);
        return view(q, x);
}

/* What can go wrong goes to error_at. */
static inline Model *chain_model(Draw d)
{
        static const int widths[] = { 1, 2, 3, 5, 6, 7, 8, 10, 12, 14, 16, 18, 24, 33, 36 };
        Gen q = { .m = model_new("random"), .d = d };
        q.g = q.m->graph;
        q.V = 2 + draw(&q.d, 40);
        q.C = widths[draw(&q.d, 15)];
        q.ctx = q.m->ctx = 12 + draw(&q.d, 20);
        q.dropout = chance(&q.d, 20);
        Type bt = type_of(DT_I32, 2, DIM_SYM(SYM_B), DIM_SYM(SYM_T));
        q.ids = node_of(&q, OP_INPUT, &bt, NULL, 0, NULL, "ids");
        bool trains = chance(&q.d, 90);
        if (trains)
                q.targets = node_of(&q, OP_INPUT, &bt, NULL, 0, NULL, "targets");
        q.g->next_id = q.g->next_id ? q.g->next_id : 1;
        embed(&q);
        for (int i = 0, n = 2 + draw(&q.d, chance(&q.d, 70) ? 5 : 12); i < n; i++) {
                Ref x = some(&q);
                if (chance(&q.d, 40)) /* a kernel whose result is read in parts */
                        x = linear(&q, x, 1 + draw(&q.d, CHAIN_WIDEST));
                for (int k = 1 + draw(&q.d, 4); k > 0; k--) {
                        x = chain_link(&q, x);
                        if (chance(&q.d, 30))
                                x = drop(&q, x);
                        if (chance(&q.d, 40))
                                keep(&q, x);
                }
                keep(&q, x);
        }
        graph_count_uses(q.g);
        Ref x = q.value[0], w, l, ends[MOST_VALUES];
        int n_ends = 0;
        for (int i = 0; i < q.n_values; i++)
                if (!NODE(q.g, q.value[i])->uses)
                        ends[n_ends++] = q.value[i];
        for (int i = 0; i < n_ends; i++)
                x = mk(&q, OP_ADD, x,
                       chance(&q.d, 40) && width(&q, ends[i]) > 1 /* all alike: a norm ignores it */
                               ? as_wide(&q, ends[i], q.C)
                               : linear(&q, ends[i], q.C),
                       0);
        x = head(&q, x, &w);
        l = logits_of(&q, x, w);
        if (trains && chance(&q.d, 25)) /* logits are read in parts, too */
                q.aux = mkx(&q, OP_SCALE,
                            total(&q,
                                  mk(&q, OP_SUM, mk(&q, OP_SQUARE, chain_link(&q, l), 0, 0), 0, 0)),
                            0.1);
        return with_logits(&q, x, w, l, trains);
}

#endif
