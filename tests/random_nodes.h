/* random_nodes.h: what random graphs are drawn with: choices, and nodes with the checks that
 * readers make. */
#ifndef TGC_RANDOM_NODES_H
#define TGC_RANDOM_NODES_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../compiler/compiler.h"
#include "../compiler/read/read.h"

typedef struct Draw {
        uint64_t state;
        const uint8_t *byte; /* a fuzzer's, or NULL: the seed's */
        size_t n;
} Draw;

static inline uint64_t draw64(Draw *d)
{
        uint64_t z = d->state += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
}

/* 0 .. n-1 */
static inline int draw(Draw *d, int n)
{
        if (!d->byte)
                return (int)(draw64(d) >> 33) % n;
        if (!d->n)
                return 0;
        d->n--;
        return *d->byte++ % n;
}

static inline bool chance(Draw *d, int percent) { return draw(d, 100) < percent; }

enum { MOST_VALUES = 64 };

typedef struct Gen {
        Model *m;
        Graph *g;
        Draw d;
        Ref ids, targets, table; /* the embedding (V,C) */
        int V, C, ctx;
        int n_leaves;
        bool dropout;
        bool mixes;              /* tokens see later ones: for training alone */
        bool wide;               /* weights that are parts of others, and random_stack.h's layers */
        Ref weight[MOST_VALUES]; /* matrices made before (wide) */
        int n_weights;
        Ref value[MOST_VALUES]; /* f32 (B,T,n) */
        int n_values;
        Ref aux; /* a scalar, or 0 */
} Gen;

/* ---- making nodes, with the checks that readers make ---- */

static inline Ref node_of(Gen *q, Op op, const Type *t, const Ref *in, int n, const Attr *a,
                          const char *name)
{
        Attr dflt;
        attr_default(op, &dflt);
        return read_node(q->g, op, t, in, n, a ? a : &dflt, (Loc) { 0 },
                         name ? name : graph_name(q->g, op_info[op].text));
}

static inline Ref mk(Gen *q, Op op, Ref a, Ref b, Ref c)
{
        Ref in[3] = { a, b, c };
        return node_of(q, op, NULL, in, (a != 0) + (b != 0) + (c != 0), NULL, NULL);
}

static inline Ref mkx(Gen *q, Op op, Ref a, double x)
{
        Attr at = { .num = { x } };
        return node_of(q, op, NULL, &a, 1, &at, NULL);
}

static inline const Type *type_at(const Gen *q, Ref r) { return &NODE(q->g, r)->type; }
static inline int64_t width(const Gen *q, Ref r)
{
        const Type *t = type_at(q, r);
        return t->rank ? t->dim[t->rank - 1].n : 1;
}

static inline Type btn(int64_t n)
{
        return type_of(DT_F32, 3, DIM_SYM(SYM_B), DIM_SYM(SYM_T), DIM(n));
}

static inline Ref leaf_param(Gen *q, Type t, double std, double value)
{
        Attr a;
        char name[32];
        attr_default(OP_PARAM, &a);
        snprintf(name, sizeof name, "w%d", q->n_leaves++);
        a.param.decay = t.rank >= 2;
        a.param.init = std > 0      ? chance(&q->d, 85) ? INIT_NORMAL : INIT_UNIFORM
                       : value == 1 ? INIT_ONES
                       : value == 0 ? INIT_ZEROS
                                    : INIT_VALUE;
        a.param.a = a.param.init == INIT_NORMAL    ? std
                    : a.param.init == INIT_UNIFORM ? -1.7 * std
                    : a.param.init == INIT_VALUE   ? value
                                                   : 0;
        a.param.b = a.param.init == INIT_UNIFORM ? 1.7 * std : 0;
        if (chance(&q->d, 5))
                a.param.trainable = 0;
        return node_of(q, OP_PARAM, &t, NULL, 0, &a, name);
}

static inline Ref leaf_const(Gen *q, Type t)
{
        int64_t n = type_elems(&t).n;
        double *v = arena_alloc(q->m->arena, (size_t)n * sizeof *v);
        char name[32];
        for (int64_t i = 0; i < n; i++)
                v[i] = (draw(&q->d, 33) - 16) / 16.0;
        Attr a = { .data = { v, n } };
        snprintf(name, sizeof name, "c%d", q->n_leaves++);
        return node_of(q, OP_CONST, &t, NULL, 0, &a, name);
}

static inline Ref reshape(Gen *q, Ref x, Type t)
{
        return node_of(q, OP_RESHAPE, &t, &x, 1, NULL, NULL);
}

static inline Ref slice(Gen *q, Ref x, int axis, int64_t start, int64_t len, int64_t step)
{
        Attr a = { .slice = { axis, start, len, step } };
        return node_of(q, OP_SLICE, NULL, &x, 1, &a, NULL);
}

static inline Ref turn(Gen *q, Ref x, int a, int b, int c, int d)
{
        Attr at = { .perm = { { a, b, c, d } } };
        return node_of(q, OP_TRANSPOSE, NULL, &x, 1, &at, NULL);
}

static inline Ref item(Gen *q, Ref x, int i)
{
        Attr a = { .item = { i } };
        return node_of(q, OP_ITEM, NULL, &x, 1, &a, NULL);
}

static inline Ref matmul(Gen *q, Ref x, Ref w, int ta, int tb)
{
        Attr a = { .mm = { ta, tb } };
        return node_of(q, OP_MATMUL, NULL, (Ref[]) { x, w }, 2, &a, NULL);
}

static inline Ref with_k(Gen *q, Op op, Ref x, int k)
{
        Attr a = { .k = { k } };
        return node_of(q, op, NULL, &x, 1, &a, NULL);
}

static inline Ref cast(Gen *q, Ref x, DType dt)
{
        Type t = *type_at(q, x);
        t.dt = dt;
        return node_of(q, OP_CAST, &t, &x, 1, NULL, NULL);
}

static inline void keep(Gen *q, Ref r)
{
        if (q->n_values < MOST_VALUES)
                q->value[q->n_values++] = r;
        else
                q->value[draw(&q->d, MOST_VALUES)] = r;
}

/* A value made before, a late one more often than not. */
static inline Ref some(Gen *q)
{
        int n = q->n_values;
        return q->value[chance(&q->d, 60) && n > 3 ? n - 1 - draw(&q->d, 3) : draw(&q->d, n)];
}

#endif
