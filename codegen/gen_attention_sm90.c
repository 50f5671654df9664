/* gen_attention_sm90.c: attention's branches for sm_90a (kernels/attention_sm90.cuh).
 *
 * As with products (gen_matmul_sm90.c) a kernel keeps its portable body and launch, and gets a second body
 * under TGC_SM90A whose operands come through tensor maps.  A map's rows are the tokens of all sequences, its
 * columns all that a token's row holds: q, k and v that are parts of one row share a map, and heads are boxes
 * of its columns. */
#include "codegen.h"

enum { LEAST_T = 128 };         /* shorter sequences have no use for blocks of 128 queries and more */

typedef struct Att90Row { int D, groups, bn, stages; const char *turns; int threads, smem; } Att90Row;

static const Att90Row rows[] = {
#define ATT90(D, groups, bn, stages, turns, threads, smem) { D, groups, bn, stages, #turns, threads, smem },
#include "attention_tiles_sm90.def"
#undef ATT90
};

/* r (B,T,heads,D) as a map; head h's columns begin at *col + h * *head.  false: it does not lie so, or B or T
 * may be smaller in a run (then rows past the last token would hold what was there before). */
static bool map_of(Emit *e, Ref r, TensorMap *m, int64_t *col, int64_t *head)
{
        Access a;
        if (!access_of(e->g, e->place, r, &a) || a.t.rank != 4)
                return false;
        const Type *all = &NODE(e->g, a.base)->type;
        const Sizes *s = &e->g->sizes;
        int64_t B = dim_most(e, a.t.dim[0]), T = dim_most(e, a.t.dim[1]), H = a.t.dim[2].n, D = a.t.dim[3].n;
        if (!s->v[SYM_B] || !s->v[SYM_T] || dt_size[all->dt] != 2 || (D != 64 && D != 128))
                return false;
        if (T < 2 || !dim_eq(a.stride[3], DIM(1)) || (H > 1 && !dim_is_const(a.stride[2])))
                return false;
        int64_t ld = dim_most(e, a.stride[1]);
        *head = H > 1 ? a.stride[2].n : D;
        *col = a.off;
        *m = (TensorMap){ { .kind = SLOT_NODE, .id = a.base }, all->dt, B * T, ld, ld };
        return (B == 1 || dim_most(e, a.stride[0]) == T * ld) && ld % 8 == 0 && a.off + (H - 1) * *head + D <= ld &&
               type_count(all, s) >= B * T * ld;
}

bool att90_fits(Emit *e, Ref r)
{
        TensorMap m;
        int64_t col, head;
        return map_of(e, r, &m, &col, &head);
}

const char *att90_map(Build *b, Ref r, const char *name)
{
        TensorMap m;
        int64_t col, head;
        map_of(b->e, r, &m, &col, &head);
        return arena_fmt(b->e->tmp, "AttMap{ a.%s, %lld, %lld }", arg_map(b->e, &b->args, &m, name), (long long)col,
                         (long long)head);
}

bool att90_forward(Build *b, Ref r, const char *lse)
{
        Emit *e = b->e;
        const Node *n = NODE(e->g, r);
        const Type *q = &NODE(e->g, n->in[0])->type;
        const Att90Row *t = NULL;
        if (n->a.att.mask || n->a.att.p || !att90_fits(e, n->in[0]) || !att90_fits(e, n->in[1]) ||
            !att90_fits(e, n->in[2]) || dim_most(e, q->dim[1]) < LEAST_T)
                return false;
        for (size_t i = 0; i < sizeof rows / sizeof *rows && !t; i++)
                if (rows[i].D == q->dim[3].n)
                        t = &rows[i];
        int64_t T = dim_most(e, q->dim[1]), bm = 64 * t->groups, heads = dim_most(e, q->dim[0]) * q->dim[2].n;
        b->include = "attention_sm90";
        b->on90 = (On90){ t->threads, t->smem, arena_fmt(e->tmp, "%lld", (long long)(heads * ((T + bm - 1) / bm))) };
        text_add(&b->body, "#ifdef TGC_SM90A\n");
        const char *mq = att90_map(b, n->in[0], "map_q"), *mk = att90_map(b, n->in[1], "map_k"),
                   *mv = att90_map(b, n->in[2], "map_v");
        build_line(b, "attention_sm90_persistent<%s, \1_att, Att90Tile<%d, %d, %d, %d, %s>>(%s, %s, %s, in, %s, "
                      "B, T, rt, tile, (int)gridDim.x, smem, tail);", c_type(NODE(e->g, n->in[0])->type.dt), t->D,
                   t->groups, t->bn, t->stages, t->turns, mq, mk, mv, lse);
        text_add(&b->body, "#else\n");
        return true;
}
