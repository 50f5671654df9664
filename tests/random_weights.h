/* random_weights.h: matrices for random models: parameters, and in wide ones also what models make
 * of parameters: parts of a larger one, one of a stack of layers, two beside each other, a turned
 * one, one that is scaled, changed by a product of low rank, or used before. */
#ifndef TGC_RANDOM_WEIGHTS_H
#define TGC_RANDOM_WEIGHTS_H

#include "random_nodes.h"

static inline Ref matrix_param(Gen *q, int64_t n, int64_t k, double std)
{
        return leaf_param(q, type_of(DT_F32, 2, DIM(n), DIM(k)), std, 0);
}

/* (n,k), made of parameters. */
static inline Ref made_weight(Gen *q, int64_t n, int64_t k, double std)
{
        const Type nk = type_of(DT_F32, 2, DIM(n), DIM(k));
        int more = 1 + draw(&q->d, 5), at = draw(&q->d, more + 1);
        switch (draw(&q->d, 9)) {
        case 0: return slice(q, matrix_param(q, n + more, k, std), 0, at, n, 1);
        case 1: return slice(q, matrix_param(q, n, k + more, std), 1, at, k, 1);
        case 2: /* every other row */
                return slice(q, matrix_param(q, 2 * n, k, std), 0, at % 2, n, 2);
        case 3: { /* one of a stack of layers */
                Ref all = leaf_param(q, type_of(DT_F32, 3, DIM(1 + more), DIM(n), DIM(k)), std, 0);
                return reshape(q, slice(q, all, 0, at, 1, 1), nk);
        }
        case 4: { /* two beside each other */
                int64_t left = 1 + draw(&q->d, (int)k);
                if (left >= k)
                        return matrix_param(q, n, k, std);
                Ref in[2] = { matrix_param(q, n, left, std), matrix_param(q, n, k - left, std) };
                return node_of(q, OP_CONCAT, NULL, in, 2, NULL, NULL);
        }
        case 5: return turn(q, matrix_param(q, k, n, std), 1, 0, 0, 0);
        case 6: { /* W + A B */
                Ref ab = matmul(q, matrix_param(q, n, more, 0.5), matrix_param(q, more, k, std), 0,
                                0);
                return mk(q, OP_ADD, matrix_param(q, n, k, std), mkx(q, OP_SCALE, ab, 0.5), 0);
        }
        case 7: { /* a gain for each row, or for all */
                Type g = chance(&q->d, 50) ? type_of(DT_F32, 2, DIM(n), DIM(1)) : (Type) { 0 };
                return mk(q, OP_MUL, matrix_param(q, n, k, std), leaf_param(q, g, 0, 1.2), 0);
        }
        default: return reshape(q, leaf_param(q, type_of(DT_F32, 1, DIM(n * k)), std, 0), nk);
        }
}

static inline Ref weight(Gen *q, int64_t n, int64_t k, double std)
{
        if (!q->wide)
                return matrix_param(q, n, k, std);
        const Type nk = type_of(DT_F32, 2, DIM(n), DIM(k));
        for (int i = 0; i < q->n_weights; i++)
                if (type_eq(type_at(q, q->weight[i]), &nk) && chance(&q->d, 8))
                        return q->weight[i];
        Ref w = chance(&q->d, 70) ? matrix_param(q, n, k, std) : made_weight(q, n, k, std);
        if (q->n_weights < MOST_VALUES)
                q->weight[q->n_weights++] = w;
        return w;
}

#endif
