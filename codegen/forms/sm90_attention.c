/* sm90_attention.c: attention on sm_90a: forward, decoding, gradients.
 *
 * Operands come through tensor maps.  A map's rows are the tokens of all sequences, its columns
 * everything in a token's row.  So q, k and v in one buffer share a map, and a head is a range of
 * columns.  Sequences that fit in shared memory use no maps
 * (kernels/attention/attention_short_sm90.cuh). */
#include "forms.h"
#include <string.h>

/* LEAST_T: shorter sequences cannot use blocks of 128 queries or more. LEAST_GRAD_BLOCKS: fewer
 * blocks of 128 rows leave most of the GPU idle (two of the portable gradients' blocks share a
 * multiprocessor). MOST_WHOLE_BLOCKS: with four blocks per head, attention_short_sm90.cuh is
 * faster below it (docs/notebook/training.md). ALONE_SMEM: enough that no two blocks share a
 * multiprocessor: a prompt's blocks start while some multiprocessors are still busy
 * (triggers_first), and must not crowd onto the others. */
enum {
        LEAST_T = 128,
        LEAST_GRAD_BLOCKS = 64,
        MOST_BOTH_T = 512,
        MOST_WHOLE_BLOCKS = 640,
        ALONE_SMEM = 120 << 10
};

typedef struct AttSm90Row {
        int D, groups, bn, stages;
        const char *turns;
        int threads, smem;
} AttSm90Row;

static const AttSm90Row rows[] = {
#define ATT_SM90(D, groups, bn, stages, turns, threads, smem) \
        { D, groups, bn, stages, #turns, threads, smem },
#define ATT_SHORT(...)
#include "sm90_attention_tiles.def"
#undef ATT_SM90
#undef ATT_SHORT
};

static const struct {
        int nb, smem;
} whole_rows[] = {
#define ATT_SM90(...)
#define ATT_SHORT(nb, smem) { nb, smem },
#include "sm90_attention_tiles.def"
#undef ATT_SM90
#undef ATT_SHORT
};

typedef struct BackwardRow {
        const char *kind;
        int D, stages, owns;
        const char *keep;
        int smem;
} BackwardRow;

static const BackwardRow grad_rows[] = {
#define ATT_BACKWARD(kind, D, stages, owns, keep, smem) { #kind, D, stages, owns, #keep, smem },
#define ATT_SHORT_BACKWARD(...)
#include "sm90_attention_backward_tiles.def"
#undef ATT_BACKWARD
#undef ATT_SHORT_BACKWARD
};

typedef struct ShortBackwardRow {
        int nb;
        bool causal;
        int parts;
        const char *keep_k, *keep_v;
        int many, some, smem;
} ShortBackwardRow;

static const ShortBackwardRow grads_rows[] = {
#define ATT_BACKWARD(...)
#define ATT_SHORT_BACKWARD(nb, causal, parts, keep_k, keep_v, many, some, smem) \
        { nb, causal, parts, #keep_k, #keep_v, many, some, smem },
#include "sm90_attention_backward_tiles.def"
#undef ATT_BACKWARD
#undef ATT_SHORT_BACKWARD
};

/* r (B,T,heads,D) as a tensor map, for the largest B and T; head h's columns begin at *col + h *
 * *head.  false: its layout does not allow that. */
static bool map_of(Emit *e, Ref r, TensorMap *m, int64_t *col, int64_t *head)
{
        Access a;
        if (!access_of(e->g, e->place, r, &a) || a.t.rank != 4)
                return false;
        const Type *all = &NODE(e->g, a.base)->type;
        const bool pool = e->paged && NODE(e->g, a.base)->op == OP_STATE;
        int64_t B = pool ? 1 : dim_most(e, a.t.dim[0]),
                T = pool ? pool_rows(e, pool_of(e, NODE(e->g, a.base)->a.cache.window))
                         : dim_most(e, a.t.dim[1]),
                H = a.t.dim[2].n, D = a.t.dim[3].n;
        if (dt_size[all->dt] != 2 || (D != 64 && D != 128))
                return false;
        if (T < 2 || !dim_eq(a.stride[3], DIM(1)) || (H > 1 && !dim_is_const(a.stride[2])))
                return false;
        int64_t ld = dim_most(e, a.stride[1]);
        *head = H > 1 ? a.stride[2].n : D;
        *col = a.off;
        *m = (TensorMap) { .of = { .kind = SLOT_NODE, .id = a.base },
                           .dt = all->dt,
                           .rows = B * T,
                           .cols = ld,
                           .ld = ld };
        return (B == 1 || dim_most(e, a.stride[0]) == T * ld) && ld % 8 == 0 &&
               a.off + (H - 1) * *head + D <= ld &&
               (pool || dim_most(e, type_elems(all)) >= B * T * ld);
}

static bool sm90_attention_maps_fit(Emit *e, Ref r)
{
        TensorMap m;
        int64_t col, head;
        return map_of(e, r, &m, &col, &head);
}

static const char *boxes_map(Build *b, Ref r, int box_rows, const char *name)
{
        TensorMap m;
        int64_t col, head;
        map_of(b->e, r, &m, &col, &head);
        m.box_rows = box_rows;
        m.box_bytes = box_rows ? 128 : 0;
        return arena_fmt(b->e->tmp, "AttMap{ a.%s, %lld, %lld }", arg_map(b->e, &b->args, &m, name),
                         (long long)col, (long long)head);
}

static const char *sm90_attention_map(Build *b, Ref r, const char *name)
{
        return boxes_map(b, r, 0, name);
}

/* A causal query needs no document end: its own position bounds it. */
static bool acausal_documents(const Node *n) { return n->a.att.documents && !n->a.att.causal; }

/* Number of blocks of 64 tokens if attention_short_sm90.cuh serves, else 0. */
static int whole_blocks(Emit *e, const Node *n)
{
        const Type *q = &NODE(e->g, n->in[0])->type, *k = &NODE(e->g, n->in[1])->type;
        bool serves = dim_is_const(q->dim[0]) && dim_is_const(q->dim[1]) && q->dim[3].n == 64 &&
                      q->dim[2].n == k->dim[2].n && !op_appends(NODE(e->g, n->in[1])->op) &&
                      !n->a.att.mask && !n->a.att.p && !n->a.att.alibi && !n->a.att.softcap &&
                      !n->a.att.window && !n->a.att.documents;
        return serves ? (int)(q->dim[1].n + 63) / 64 : 0;
}

static int64_t heads_of(Emit *e, const Node *n)
{
        const Type *q = &NODE(e->g, n->in[0])->type;
        return dim_most(e, q->dim[0]) * q->dim[2].n;
}

bool sm90_attention_short(Build *b, const void *problem)
{
        const AttentionWork *work = problem;
        Emit *e = b->e;
        const Node *n = NODE(e->g, work->r);
        int nb = whole_blocks(e, n);
        int64_t blocks = heads_of(e, n) * nb;
        for (size_t i = 0; i < sizeof whole_rows / sizeof *whole_rows; i++) {
                if (whole_rows[i].nb != nb || (nb == 4 && blocks > MOST_WHOLE_BLOCKS))
                        continue;
                Form *f = form_begin(b, ARCH_SM90A, "attention_short_sm90");
                f->threads = 128;
                f->smem = whole_rows[i].smem;
                f->cluster = 1;
                f->grid = grid_blocks(blocks);
                f->waits = true;
                build_line(b,
                           "attention_short_wgmma<%s, \1_att, AttShortTileSm90<%d>>(in, %s, B, T, "
                           "tile, smem, epilogue);",
                           c_type(NODE(e->g, n->in[0])->type.dt), nb, work->lse);
                return true;
        }
        return false;
}

/* ---- over a cache ---- */

enum {
        CLUSTER = 8,   /* blocks of a cluster: the most that every GPU of the kind supports */
        RING_KEYS = 16 /* keys of a warp and step: a TMA box */
};

/* Bytes of the record of one query row of a part. */
static int decode_record(int D) { return ((D + 1) / 2 * 2 + 2) * 4; }

static bool decode_maps_fit(Emit *e, const Node *n)
{
        return sm90_attention_maps_fit(e, n->in[1]) && sm90_attention_maps_fit(e, n->in[2]);
}

static const char *decode_tile(Build *b, const DecodeWork *w)
{
        return arena_fmt(b->e->tmp, "AttDecode<%d, %d, %d, %d>", w->rows, w->splits, b->any.threads,
                         w->least);
}

/* A launch of attention_decode_ring_sm90.cuh. */
typedef struct Ring {
        int blocks, clusters, stages, smem;
} Ring;

/* Bytes of a stage: 16 keys and values of every warp (8-bit ones with their exponents), and
 * mbarriers. */
static int ring_stage(int D, bool codes, int threads)
{
        return codes ? threads * (D + 32) : threads * D * 2 + threads / 32 * 8;
}

static int ring_smem(const DecodeWork *w, int D, bool codes, int threads, const Ring *ring)
{
        const int warps = threads / 32, row = decode_record(D),
                  stage = ring_stage(D, codes, threads),
                  parts = ring->blocks == 1     ? 0
                          : ring->clusters == 1 ? w->splits
                                                : ring->blocks;
        return (ring->stages * stage + (warps + parts) * w->rows * row + 15) / 16 * 16 + 16;
}

/* About two blocks a multiprocessor: more of them read memory at more places at once, which is
 * slower.  Two clusters where one block a part leaves multiprocessors idle.  Stages for IN_FLIGHT
 * bytes of the blocks that share a multiprocessor; a block that is alone leaves room for the next
 * launch's.  (docs/notebook/decode.md) */
static Ring ring_choice(const DecodeWork *w, int D, bool codes, int threads)
{
        enum { IN_FLIGHT = 128 << 10, MOST_STAGES = 4 };
        const int by_registers = D == 64 ? 4 : 2, /* 126 a thread, 200 with heads of 128 */
                least = codes ? 3 : 2;
        Ring ring = { .blocks = CLUSTER, .clusters = 1 };
        while (ring.blocks > w->splits ||
               (ring.blocks > 1 && w->heads * ring.blocks > 2 * SM90A_SMS))
                ring.blocks /= 2;
        if (w->splits == 2 * ring.blocks && ring.blocks > 1 && w->heads * w->splits <= SM90A_SMS)
                ring.clusters = 2;
        int64_t share = (w->heads * ring.blocks * ring.clusters + SM90A_SMS - 1) / SM90A_SMS;
        if (ring.blocks == CLUSTER && share > 1)
                share++; /* clusters of eight leave multiprocessors of a GPC over */
        if (share > by_registers)
                share = by_registers;
        const int64_t stages = (IN_FLIGHT / ring_stage(D, codes, threads) + share - 1) / share;
        ring.stages = (int)(share == 1 || stages < least ? least
                            : stages > MOST_STAGES       ? MOST_STAGES
                                                         : stages);
        ring.smem = ring_smem(w, D, codes, threads, &ring);
        return ring;
}

static bool decode_ring(Build *b, const DecodeWork *w)
{
        Emit *e = b->e;
        const Node *n = NODE(e->g, w->r);
        const bool codes = NODE(e->g, n->in[1])->type.dt == DT_FP8;
        const int D = (int)NODE(e->g, n->in[0])->type.dim[3].n;
        const Ring ring = ring_choice(w, D, codes, b->any.threads);
        if (!w->ring || ring.smem > SM90A_SMEM || (!codes && !decode_maps_fit(e, n)))
                return false;
        Form *f = form_begin(b, ARCH_SM90A, "attention_decode_ring_sm90");
        f->threads = b->any.threads;
        f->smem = ring.smem;
        f->cluster = ring.blocks;
        f->grid = grid_times(w->of_heads, grid_blocks(ring.blocks * ring.clusters));
        f->waits = true;
        const char *shape = arena_fmt(e->tmp, "<%s, \1_att, %s, %d, %d, %d>",
                                      c_type(NODE(e->g, value_base(e->g, n->in[0]))->type.dt),
                                      decode_tile(b, w), ring.blocks, ring.clusters, ring.stages);
        build_line(b,
                   "static_assert(attention_decode_ring_smem%s() == %d, \"as sm90_attention.c "
                   "counts it\");",
                   shape, f->smem);
        const char *mk = "AttMap()", *mv = mk;
        if (!codes) {
                mk = boxes_map(b, n->in[1], RING_KEYS, "map_k");
                mv = boxes_map(b, n->in[2], RING_KEYS, "map_v");
        }
        build_line(b, "attention_decode_ring%s(%s, %s, in, %s, %s, %s, rt, tile, smem, epilogue);",
                   shape, mk, mv, w->parts, w->done, w->counts);
        return true;
}

/* Splits of a cache are merged in clusters.  Several queries per kv head only on tensor cores:
 * scalar code takes longer than the merge saves, and a cluster waits until eight multiprocessors
 * have registers for it (docs/notebook/decode.md). */
bool sm90_attention_decode(Build *b, const void *problem)
{
        const DecodeWork *w = problem;
        Emit *e = b->e;
        if (decode_ring(b, w))
                return true;
        if (w->splits == 1)
                return false;
        const Node *n = NODE(e->g, w->r);
        const int D = (int)NODE(e->g, n->in[0])->type.dim[3].n,
                  cluster = w->splits < CLUSTER ? w->splits : CLUSTER,
                  records = b->any.threads / 32 + cluster;
        Form *f = form_begin(b, ARCH_SM90A, "attention_decode_sm90");
        f->threads = b->any.threads;
        f->smem = (records * w->rows * decode_record(D) + 15) / 16 * 16 + 16;
        f->cluster = cluster;
        f->grid = w->grid;
        f->waits = true;
        const char *shape = arena_fmt(e->tmp, "<%s, \1_att, %s, %d>",
                                      c_type(NODE(e->g, value_base(e->g, n->in[0]))->type.dt),
                                      decode_tile(b, w), cluster);
        build_line(b,
                   "static_assert(attention_decode_cluster_smem%s() == %d, \"as sm90_attention.c "
                   "counts it\");",
                   shape, f->smem);
        build_line(b, "attention_decode_cluster%s(in, %s, %s, %s, rt, tile, smem, epilogue);",
                   shape, w->parts, w->done, w->counts);
        return true;
}

/* ---- prompts and training ---- */

bool sm90_attention(Build *b, const void *problem)
{
        const AttentionWork *work = problem;
        const Ref r = work->r;
        Emit *e = b->e;
        const Node *n = NODE(e->g, r);
        const Type *q = &NODE(e->g, n->in[0])->type;
        const AttSm90Row *t = NULL;
        Dim B = q->dim[0];
        int64_t T = dim_most(e, q->dim[1]), heads = heads_of(e, n), blocks = 0;
        if (n->a.att.mask || n->a.att.p || acausal_documents(n) ||
            !sm90_attention_maps_fit(e, n->in[0]) || !sm90_attention_maps_fit(e, n->in[1]) ||
            !sm90_attention_maps_fit(e, n->in[2]) || T < LEAST_T)
                return false;
        for (size_t i = 0; i < sizeof rows / sizeof *rows && blocks < SM90A_SMS; i++)
                if (rows[i].D == q->dim[3].n) {
                        t = &rows[i];
                        blocks = heads * ((T + 64 * t->groups - 1) / (64 * t->groups));
                }
        Form *f = form_begin(b, ARCH_SM90A, "attention_sm90");
        f->threads = t->threads;
        f->smem = !e->g->sizes.v[SYM_T] && blocks <= SM90A_SMS && t->smem < ALONE_SMEM ? ALONE_SMEM
                                                                                       : t->smem;
        f->persistent = true;
        const Grid of_heads = grid_blocks(q->dim[2].n);
        const int by = 64 * t->groups;
        f->grid = e->ragged ? grid_times(of_heads, grid_ragged(e, q->dim[1], by))
                  : dim_is_const(B) && dim_is_const(q->dim[1])
                          ? grid_blocks(blocks)
                          : grid_times(grid_dim(e, B),
                                       grid_times(of_heads, grid_ceil(e, q->dim[1], by)));
        const char *mq = sm90_attention_map(b, n->in[0], "map_q"),
                   *mk = sm90_attention_map(b, n->in[1], "map_k"),
                   *mv = sm90_attention_map(b, n->in[2], "map_v");
        build_line(b,
                   "attention_sm90_persistent<%s, \1_att, AttTileSm90<%d, %d, %d, %d, %s>>(%s, %s, "
                   "%s, in, %s, B, T, rt, tile, (int)gridDim.x, smem, epilogue);",
                   c_type(NODE(e->g, n->in[0])->type.dt), t->D, t->groups, t->bn, t->stages,
                   t->turns, mq, mk, mv, work->lse);
        return true;
}

/* ---- gradients ---- */

static int64_t grad_blocks(Emit *e, const Node *n, Ref r)
{
        const Type *q = &NODE(e->g, n->in[0])->type;
        return dim_most(e, q->dim[0]) * NODE(e->g, r)->type.dim[2].n *
               ((dim_most(e, q->dim[1]) + 127) / 128);
}

/* Half heads (PARTS 2) if every block still has a multiprocessor. */
static const ShortBackwardRow *grads_row(Emit *e, const Node *n)
{
        int nb = whole_blocks(e, n), parts = heads_of(e, n) * 2 <= SM90A_SMS ? 2 : 1;
        for (size_t i = 0; i < sizeof grads_rows / sizeof *grads_rows; i++)
                if (grads_rows[i].nb == nb && grads_rows[i].causal == n->a.att.causal &&
                    grads_rows[i].parts == parts)
                        return &grads_rows[i];
        return NULL;
}

bool sm90_attention_backward_fits(Emit *e, Ref r)
{
        const Node *n = NODE(e->g, r);
        const int operands[] = { 0, 1, 2, 5 };
        if (grads_row(e, n))
                return true;
        if (n->a.att.mask || n->a.att.p || n->a.att.alibi || n->a.att.softcap ||
            acausal_documents(n))
                return false;
        for (int i = 0; i < 4; i++)
                if (!sm90_attention_maps_fit(e, n->in[operands[i]]))
                        return false;
        return grad_blocks(e, n, n->in[1]) >= LEAST_GRAD_BLOCKS;
}

/* Both kinds of jobs in one launch?  If each kind has jobs for half of the multiprocessors or
 * more, but not for all, and sums run over a few hundred queries at most. */
static bool grad_both(Emit *e, const Node *n)
{
        const Type *q = &NODE(e->g, n->in[0])->type;
        return grad_blocks(e, n, n->in[0]) < SM90A_SMS && dim_most(e, q->dim[1]) <= MOST_BOTH_T;
}

GradKind sm90_attention_backward_kind(Emit *e, Ref r)
{
        const Node *n = NODE(e->g, r);
        if (NODE(e->g, n->in[0])->type.dim[2].n != NODE(e->g, n->in[1])->type.dim[2].n)
                return GRAD_Q;
        return grads_row(e, n) ? GRAD_SHORT : grad_both(e, n) ? GRAD_BOTH : GRAD_Q;
}

bool sm90_attention_backward_short(Build *b, const void *problem)
{
        const BackwardWork *work = problem;
        const Node *n = NODE(b->e->g, work->r);
        if (work->kind != GRAD_SHORT)
                return false;
        Emit *e = b->e;
        const ShortBackwardRow *t = grads_row(e, n);
        Form *f = form_begin(b, ARCH_SM90A, "attention_short_backward_sm90");
        f->threads = 384;
        f->smem = t->smem;
        f->cluster = 1;
        f->grid = grid_blocks(heads_of(e, n) * t->parts);
        f->waits = true;
        build_prefetch(b, PREFETCH_REST,
                       &(Slot) { .kind = SLOT_NODE, .id = value_base(e->g, n->in[5]) }, NULL);
        build_line(
                b,
                "attention_short_backward_wgmma<%s, \1_att, AttShortBackwardTile<%d, %s, %d, %s, "
                "%s, %d, %d>, PREFETCH>(in, %s, T, tile, smem, epilogue, epilogue_k, epilogue_v);",
                c_type(NODE(e->g, n->in[0])->type.dt), t->nb, t->causal ? "true" : "false",
                t->parts, t->keep_k, t->keep_v, t->many, t->some, work->sums);
        return true;
}

/* `maps`: q, k, v and the output's gradient, and documents. */
static void backward_maps(Build *b, const Node *n)
{
        Emit *e = b->e;
        const char *mq = sm90_attention_map(b, n->in[0], "map_q"),
                   *mk = sm90_attention_map(b, n->in[1], "map_k"),
                   *mv = sm90_attention_map(b, n->in[2], "map_v"),
                   *mg = sm90_attention_map(b, n->in[5], "map_g");
        const char *documents = n->a.att.documents ? plain_arg(e, b, n->in[att_documents(n)])
                                                   : NULL;
        build_line(b, "const AttGradMaps maps = { %s, %s, %s, %s%s%s };", mq, mk, mv, mg,
                   documents ? ", " : "", documents ? documents : "");
}

bool sm90_attention_backward(Build *b, const void *problem)
{
        static const char *const name[] = { "dq", "dkv", "both" }, *const epilogues[] = {
                "epilogue", "epilogue_k, epilogue_v", "epilogue, epilogue_k, epilogue_v"
        };
        const BackwardWork *work = problem;
        const GradKind kind = work->kind;
        Emit *e = b->e;
        const Node *n = NODE(e->g, work->r);
        const Type *q = &NODE(e->g, n->in[0])->type;
        const BackwardRow *t = grad_rows; /* dq and dkv have the same rows for a width */
        while (strcmp(t->kind, kind == GRAD_KV ? "DKV" : "DQ") || t->D != q->dim[3].n)
                t++;
        int64_t blocks = grad_blocks(e, n, n->in[kind == GRAD_KV]);
        int smem = t->smem, cluster = 0;
        if (kind == GRAD_BOTH) {
                blocks *= 2;
                smem += (int)(dim_most(e, q->dim[1]) + 63) / 64 * 256;
                cluster = 1; /* a block per job, not per multiprocessor */
        }
        Form *f = form_begin(b, ARCH_SM90A, "attention_backward_sm90");
        f->threads = 384;
        f->smem = smem;
        f->cluster = cluster;
        f->persistent = !cluster;
        f->grid = grid_blocks(blocks);
        backward_maps(b, n);
        build_line(b,
                   "attention_%s_tma<%s, \1_att, AttBackwardTileSm90<%d, %d, %d, %s>>(maps, %s, B, "
                   "T, tile, %ssmem, %s);",
                   name[kind], c_type(NODE(e->g, n->in[0])->type.dt), t->D, t->stages, t->owns,
                   t->keep, work->sums, kind == GRAD_BOTH ? "" : "(int)gridDim.x, ",
                   epilogues[kind]);
        return true;
}
