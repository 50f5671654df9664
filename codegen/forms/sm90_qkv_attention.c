/* sm90_qkv_attention.c: on sm_90a, single-token decode fuses the QKV projection and attention into
 * one cluster launch (kernels/attention/qkv_attention_sm90.cuh).
 *
 * Other architectures run two kernels.  So does a paged cache, where a sequence's bits must not
 * depend on which others run beside it.  On sm_90a the projection's kernel also has attention's
 * arguments and body, and attention's own kernel is skipped. */
#include "../ops/ops.h"
#include "gemv_shape.h"
#include <string.h>

/* CLUSTER: the most that every GPU of the kind supports.  A block's part of the cache loads while
 * it waits; beyond MOST_KEYS two launches use more of the GPU. */
enum { CLUSTER = 8, MOST_KEYS = 2048, MOST_W = 64 << 10, MOST_WARPS = 16, MOST_STAGE = 16 << 10 };

/* The column of the projection where r's columns begin, for one token; -1: r is not a run of its
 * columns in order. */
static int64_t column_of(const Graph *g, Ref r, Ref product)
{
        const Node *n = &g->node[r];
        int64_t at = -1;
        if (r == product)
                return 0;
        switch (n->op) {
        case OP_RESHAPE:
        case OP_ROPE: return column_of(g, n->in[0], product);
        case OP_SLICE: {
                int64_t inner = 1;
                for (int i = (int)n->a.slice.axis + 1; i < n->type.rank; i++)
                        inner *= n->type.dim[i].n;
                for (int i = 0; i < n->a.slice.axis; i++)
                        if (!dim_eq(n->type.dim[i], DIM(1)))
                                return -1;
                at = n->a.slice.step == 1 ? column_of(g, n->in[0], product) : -1;
                return at < 0 ? -1 : at + n->a.slice.start * inner;
        }
        default:
                if (!is_member(g, r) || n->op == OP_APPEND || n->op == OP_GATHER ||
                    n->op == OP_INTERLEAVE)
                        return -1;
                for (int i = 0; i < n->n_in && at < 0; i++)
                        if (dim_eq(type_elems(&n->type), type_elems(&g->node[n->in[i]].type)))
                                at = column_of(g, n->in[i], product);
                return at;
        }
}

static bool one_token(const Emit *e, const Type *q)
{
        return e->g->sizes.v[SYM_T] && dim_eq(type_elems(q), dim_mul(q->dim[2], q->dim[3]));
}

/* Per program: groups whose anchor is attention over a cache, and the readers of each storage. */
typedef struct Attentions {
        const Group **group;
        int n;
        Readers by;
} Attentions;

static const Attentions *attentions(Emit *e)
{
        const Graph *g = e->g;
        Arena *a = e->m->arena;
        if (e->attentions)
                return e->attentions;
        Attentions *s = e->attentions = arena_alloc(a, sizeof *s);
        s->group = arena_alloc(a, (size_t)e->n_groups * sizeof *s->group);
        for (int i = 0; i < e->n_groups; i++) {
                const Node *n = NODE(g, e->groups[i].anchor);
                if (e->groups[i].anchor && n->op == OP_ATTENTION &&
                    NODE(g, n->in[1])->op == OP_APPEND && NODE(g, n->in[2])->op == OP_APPEND)
                        s->group[s->n++] = &e->groups[i];
        }
        Ref *base = arena_alloc(a, (size_t)g->n_nodes * sizeof *base);
        for (Ref r = 1; r < g->n_nodes; r++) {
                Access in;
                base[r] = access_of(g, e->place, r, &in) ? in.base : 0;
        }
        s->by = graph_readers(g, base, a);
        return s;
}

/* The attention whose q, k and v this projection makes, and their columns. */
static const Group *attention_of(Emit *e, int product_group, Ref product, int64_t column[3])
{
        Graph *g = e->g;
        const Attentions *s = attentions(e);
        for (int i = 0; i < s->n; i++) {
                const Node *n = NODE(g, s->group[i]->anchor);
                if (NODE(g, n->in[1])->group != product_group ||
                    NODE(g, n->in[2])->group != product_group ||
                    NODE(g, value_base(g, n->in[0]))->group != product_group)
                        continue;
                column[0] = column_of(g, n->in[0], product);
                column[1] = column_of(g, NODE(g, n->in[1])->in[1], product);
                column[2] = column_of(g, NODE(g, n->in[2])->in[1], product);
                if (column[0] >= 0 && column[1] >= 0 && column[2] >= 0)
                        return s->group[i];
        }
        return NULL;
}

/* Do attention and its epilogue read nothing, beside q, k and v, that another kernel makes?  (It
 * might not have run yet.) */
static bool reads_no_more(const Graph *g, const Group *att)
{
        for (int i = 0; i < att->n_nodes; i++) {
                const Node *n = &g->node[att->node[i]];
                for (int j = att->node[i] == att->anchor ? 3 : 0; j < n->n_in; j++) {
                        Ref b = value_base(g, n->in[j]);
                        if (b && g->node[b].group != att->id && !is_virtual(g, b) &&
                            op_info[g->node[b].op].cls != CLASS_LEAF)
                                return false;
                }
        }
        return true;
}

/* The storage of r if its heads of D are contiguous there, and its elements; else 0. */
static Ref side_by_side(Emit *e, Ref r, int64_t D, int64_t *elems)
{
        Access a;
        if (!access_of(e->g, e->place, r, &a) || !dim_eq(a.stride[2], DIM(D)))
                return 0;
        *elems = dim_most(e, type_elems(&NODE(e->g, a.base)->type));
        return a.base;
}

/* Is q's storage read by others?  The kernel fills only q's part of it. */
static bool read_elsewhere(Emit *e, Ref storage, int product, int attention)
{
        const Graph *g = e->g;
        Access a;
        const Readers *by = &attentions(e)->by;
        for (int i = by->start[storage]; i < by->start[storage + 1]; i++) {
                const Node *n = &g->node[by->reader[i]];
                if (op_info[n->op].cls != CLASS_VIEW && n->group != product &&
                    n->group != attention)
                        return true;
        }
        for (int i = 0; i < g->n_out; i++)
                if (access_of(e->g, e->place, g->out[i].ref, &a) && a.base == storage)
                        return true;
        return false;
}

/* Template arguments of QkvAttentionTile for a projection (N,K) to `heads` kv heads with `group`
 * queries each; smem: bytes. */
typedef struct QkvAttentionTile {
        int warps, rows, split, queries, smem;
} QkvAttentionTile;

static int64_t round16(int64_t bytes) { return (bytes + 15) & ~(int64_t)15; }

/* stage: bytes of the storage that holds q. */
static bool tile_of(const Type *w, int64_t heads, int64_t group, int64_t D, int64_t stage,
                    int split, int minv, QkvAttentionTile *t)
{
        int64_t cols = (group + 2) * D / CLUSTER, record = (D + 1) / 2 * 2 + 2,
                size = dt_size[w->dt];
        *t = (QkvAttentionTile) { .rows = 4, .split = split, .queries = 1 };
        while (t->rows > minv && (cols % t->rows || D % t->rows))
                t->rows /= 2;
        while (t->queries < group)
                t->queries *= 2;
        t->warps = (int)cols / t->rows * split;
        t->smem = (int)(round16((t->warps + CLUSTER) * t->queries * record * 4) +
                        round16((group + 2) * D * size) + 16 + round16(2 * D * size) + stage);
        return w->dim[0].n == (group + 2) * D * heads /* it makes nothing else */
               && (group + 2) * D % CLUSTER == 0 && cols % t->rows == 0 && D % t->rows == 0 &&
               t->rows >= minv && t->queries <= 8 && t->warps <= MOST_WARPS &&
               cols * w->dim[1].n * size <= MOST_W && t->rows * size % 4 == 0 &&
               stage <= MOST_STAGE;
}

bool sm90_qkv_attention(Build *b, const void *problem)
{
        const GemvWork *work = problem;
        const GemvShort *few = work->few;
        Emit *e = b->e;
        int64_t column[3];
        QkvAttentionTile t;
        const Group *att = attention_of(e, b->gr->id, b->gr->anchor, column);
        if (!att || item_of(e, att->anchor, 1) || !reads_no_more(e->g, att))
                return false;
        const Node *n = NODE(e->g, att->anchor);
        const Type *q = &NODE(e->g, n->in[0])->type,
                   *w = &NODE(e->g, NODE(e->g, b->gr->anchor)->in[1])->type;
        int64_t D = q->dim[3].n, heads = NODE(e->g, n->in[1])->type.dim[2].n, elems[3];
        Ref at[3];
        for (int i = 0; i < 3; i++)
                if (!(at[i] = side_by_side(e, n->in[i], D, &elems[i])))
                        return false;
        if (elems[0] != dim_most(e, type_elems(q)) && read_elsewhere(e, at[0], b->gr->id, att->id))
                return false;
        if (e->paged || q->dt != w->dt || !one_token(e, q) || n->a.att.mask || n->a.att.p ||
            e->g->sizes.v[SYM_S] > MOST_KEYS ||
            !tile_of(w, heads, q->dim[2].n / heads, D, elems[0] * dt_size[w->dt], few->split,
                     work->minv, &t))
                return false;
        Form *f = form_begin(b, ARCH_SM90A, "qkv_attention_sm90");
        f->threads = t.warps * 32;
        f->smem = t.smem;
        f->cluster = CLUSTER;
        f->grid = grid_blocks(heads * CLUSTER);
        f->waits = true;
        b->after_wait = true;
        if (!b->any.smem)
                build_line(b, "TGC_SMEM(smem);");
        att_operands(b, att);
        build_functor(b, &att->epilogue[0], "att_epilogue");
        build_line(b, "\1_att_epilogue att_epilogue = { a };");
        build_line(b, "\1_args near = a;");
        build_line(b, "const \1_epilogue near_epilogue = { near };");
        build_line(b,
                   "qkv_attention_task<%s, \1_att, QkvAttentionTile<%d, %d, %d, %d, %d, %d>, "
                   "QkvColumns<%lld, %lld, %lld, %lld>, %s>(%s, in, rt, smem, near.%s, near.%s, "
                   "near.%s, prologue, near_epilogue, att_epilogue%s);",
                   c_type(w->dt), CLUSTER, f->threads, t.rows, t.split, t.queries, t.smem,
                   (long long)column[0], (long long)column[1], (long long)column[2],
                   (long long)elems[0], work->shape, work->operands,
                   arg_of(e, &b->args, at[0], true), arg_of(e, &b->args, at[1], true),
                   arg_of(e, &b->args, at[2], true), work->rest);
        e->done_sm90[att->anchor] = true;
        return true;
}
