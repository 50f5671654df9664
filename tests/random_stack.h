/* random_stack.h: layers as published models have them, several of one kind, with sizes at which
 * kernels have more than one tile.
 *
 * A plan says what all layers share: heads, norms, where they stand, window, soft cap, positions,
 * experts.  Some share more: keys and values of the first layer, or its weights. */
#ifndef TGC_RANDOM_STACK_H
#define TGC_RANDOM_STACK_H

#include "random_graph.h"

typedef enum { BLOCK_PRE, BLOCK_POST, BLOCK_BOTH, BLOCK_PARALLEL, N_BLOCKS } BlockKind;

typedef struct Stack {
        BlockKind kind;
        int H, K, D, DV, F, rotary, every; /* every: that many layers have a window */
        int64_t window;
        double softcap, scale;
        bool layer_norm, gain, bias, qk_norm, alibi, one_linear, gated, experts, scaled, shares_kv;
        Op act;
        Ref freq, slopes, k, v; /* k, v: the first layer's (shares_kv) */
} Stack;

static inline Stack draw_stack(Gen *q)
{
        static const int widths[] = { 1,  2,  4,  5,  6,  7,  8,  10, 12,
                                      14, 16, 16, 18, 20, 24, 32, 40, 64 };
        static const int groups[] = { 1, 1, 1, 2, 2, 3, 4, 5, 7, 8 };
        static const Op acts[] = { OP_GELU, OP_GELU_TANH, OP_SILU, OP_RELU };
        Draw *d = &q->d;
        Stack s = { .kind = (BlockKind)draw(d, N_BLOCKS),
                    .K = 1 + draw(d, 3),
                    .D = widths[draw(d, 18)],
                    .F = 1 + draw(d, 4 * q->C),
                    .every = 1 + draw(d, 2),
                    .window = chance(d, 35) ? 1 + draw(d, q->ctx) : 0,
                    .softcap = chance(d, 20) ? 1 + draw(d, 20) : 0,
                    .layer_norm = chance(d, 50) && q->C > 3,
                    .gain = chance(d, 85),
                    .bias = chance(d, 40),
                    .qk_norm = chance(d, 25),
                    .alibi = chance(d, 15),
                    .one_linear = chance(d, 40),
                    .gated = chance(d, 60),
                    .experts = chance(d, 20),
                    .scaled = chance(d, 25),
                    .shares_kv = chance(d, 10),
                    .act = acts[draw(d, 4)] };
        s.H = s.K * groups[draw(d, 10)];
        s.DV = chance(d, 12) ? widths[draw(d, 18)] : s.D;
        s.scale = chance(d, 80) ? 1 / sqrt(s.D) : 0.2;
        if (s.D > 1 && chance(d, 60)) {
                s.rotary = chance(d, 70) && s.D % 2 == 0 ? s.D : 2 * (1 + draw(d, s.D / 2));
                if (s.D % 2) /* rope wants even heads */
                        s.rotary = 0;
        }
        if (s.rotary)
                s.freq = leaf_const(q, type_of(DT_F32, 1, DIM(s.rotary / 2)));
        if (s.alibi)
                s.slopes = leaf_const(q, type_of(DT_F32, 1, DIM(s.H)));
        return s;
}

static inline Ref stack_linear(Gen *q, const Stack *s, Ref x, int n)
{
        Ref y = matmul(q, x, weight(q, n, width(q, x), 1 / sqrt((double)width(q, x))), 0, 1);
        return s->bias ? mk(q, OP_ADD, y, leaf_param(q, type_of(DT_F32, 1, DIM(n)), 0, 0), 0) : y;
}

static inline Ref stack_norm(Gen *q, const Stack *s, Ref x)
{
        Type row = type_of(DT_F32, 1, DIM(width(q, x)));
        Ref y = mkx(q, s->layer_norm && width(q, x) > 3 ? OP_LAYERNORM : OP_RMSNORM, x,
                    width(q, x) < 4 ? 0.3 : 1e-5);
        if (s->gain)
                y = mk(q, OP_MUL, y, leaf_param(q, row, 0, 1), 0);
        if (s->gain && s->layer_norm)
                y = mk(q, OP_ADD, y, leaf_param(q, row, 0, 0), 0);
        return y;
}

/* Queries, keys or values: (B,T,n) as heads, normed and turned where those are. */
static inline Ref stack_heads(Gen *q, const Stack *s, Ref x, int heads, int width, bool turned)
{
        x = reshape(q, x,
                    type_of(DT_F32, 4, DIM_SYM(SYM_B), DIM_SYM(SYM_T), DIM(heads), DIM(width)));
        if (turned && s->qk_norm)
                x = stack_norm(q, s, x);
        return turned && s->rotary ? rope(q, x, s->freq, s->rotary, width) : x;
}

static inline Ref stack_attention(Gen *q, Stack *s, Ref x, int layer)
{
        const int nq = s->H * s->D, nk = s->K * s->D, nv = s->K * s->DV;
        Ref in[4], qkv[3];
        Attr a;
        bool shared = s->shares_kv && s->k;
        if (s->one_linear && !shared) {
                Ref all = stack_linear(q, s, x, nq + nk + nv);
                qkv[0] = slice(q, all, 2, 0, nq, 1);
                qkv[1] = slice(q, all, 2, nq, nk, 1);
                qkv[2] = slice(q, all, 2, nq + nk, nv, 1);
        } else {
                qkv[0] = stack_linear(q, s, x, nq);
                qkv[1] = shared ? 0 : stack_linear(q, s, x, nk);
                qkv[2] = shared ? 0 : stack_linear(q, s, x, nv);
        }
        in[0] = stack_heads(q, s, qkv[0], s->H, s->D, true);
        in[1] = shared ? s->k : stack_heads(q, s, qkv[1], s->K, s->D, true);
        in[2] = shared ? s->v : stack_heads(q, s, qkv[2], s->K, s->DV, false);
        s->k = in[1], s->v = in[2];
        in[3] = s->slopes;
        attr_default(OP_ATTENTION, &a);
        a.att.causal = !q->mixes;
        a.att.scale = s->scale;
        a.att.window = layer % s->every == 0 ? s->window : 0;
        a.att.softcap = s->softcap;
        a.att.alibi = s->alibi;
        if (q->dropout) {
                a.att.p = 0.1;
                a.att.id = q->g->next_id++;
        }
        Ref y = node_of(q, OP_ATTENTION, NULL, in, 3 + s->alibi, &a, NULL);
        return stack_linear(q, s, reshape(q, y, btn(s->H * s->DV)), q->C);
}

static inline Ref stack_mlp(Gen *q, const Stack *s, Ref x)
{
        if (s->experts) {
                Ref y = moe(q, x);
                return chance(&q->d, 30) ? mk(q, OP_ADD, y, mlp(q, x), 0) : y; /* a shared one */
        }
        Ref y = mk(q, s->act, stack_linear(q, s, x, s->F), 0, 0);
        if (s->gated)
                y = mk(q, OP_MUL, y, stack_linear(q, s, x, s->F), 0);
        return stack_linear(q, s, drop(q, y), q->C);
}

/* What is added to the stream. */
static inline Ref stack_branch(Gen *q, const Stack *s, Ref x)
{
        if (s->scaled)
                x = mk(q, OP_MUL, x, leaf_param(q, type_of(DT_F32, 1, DIM(q->C)), 0, 0.7), 0);
        return drop(q, x);
}

static inline Ref stack_layer(Gen *q, Stack *s, Ref x, int layer)
{
        if (s->kind == BLOCK_PARALLEL) {
                Ref in = stack_norm(q, s, x), a = stack_attention(q, s, in, layer);
                Ref m = stack_mlp(q, s, chance(&q->d, 50) ? in : stack_norm(q, s, x));
                return mk(q, OP_ADD, mk(q, OP_ADD, x, stack_branch(q, s, a), 0),
                          stack_branch(q, s, m), 0);
        }
        for (int i = 0; i < 2; i++) {
                Ref in = s->kind == BLOCK_POST ? x : stack_norm(q, s, x);
                Ref y = i ? stack_mlp(q, s, in) : stack_attention(q, s, in, layer);
                if (s->kind == BLOCK_BOTH)
                        y = stack_norm(q, s, y);
                x = mk(q, OP_ADD, x, stack_branch(q, s, y), 0);
                if (s->kind == BLOCK_POST)
                        x = stack_norm(q, s, x);
        }
        return x;
}

/* The table of embeddings: a parameter, or a product of two. */
static inline void embed_wide(Gen *q)
{
        int r = 1 + draw(&q->d, 8);
        if (chance(&q->d, 75)) {
                embed(q);
                return;
        }
        Ref low = leaf_param(q, type_of(DT_F32, 2, DIM(q->V), DIM(r)), 0.7, 0);
        q->table = leaf_param(q, type_of(DT_F32, 2, DIM(q->V), DIM(q->C)), 0.5, 0);
        keep(q, linear(q, mk(q, OP_GATHER, low, q->ids, 0), q->C));
}

/* Layers, and between some of them what random_graph.h makes.  What can go wrong goes to
 * error_at. */
static inline Model *wide_model(Draw d)
{
        static const int widths[] = { 3, 8, 12, 16, 20, 24, 32, 36, 40, 48, 56, 64, 72, 96 };
        Gen q = { .m = model_new("random"), .d = d, .wide = true };
        q.g = q.m->graph;
        q.V = 2 + draw(&q.d, chance(&q.d, 60) ? 40 : 200);
        q.C = widths[draw(&q.d, 14)];
        q.ctx = q.m->ctx = 16 + draw(&q.d, chance(&q.d, 50) ? 30 : 130);
        q.dropout = chance(&q.d, 15);
        q.mixes = chance(&q.d, 3);
        Type bt = type_of(DT_I32, 2, DIM_SYM(SYM_B), DIM_SYM(SYM_T));
        q.ids = node_of(&q, OP_INPUT, &bt, NULL, 0, NULL, "ids");
        bool trains = chance(&q.d, 90);
        if (trains)
                q.targets = node_of(&q, OP_INPUT, &bt, NULL, 0, NULL, "targets");
        q.g->next_id = q.g->next_id ? q.g->next_id : 1;
        embed_wide(&q);
        Stack s = draw_stack(&q);
        Ref x = q.value[0], w, l;
        for (int i = 0, n = 1 + draw(&q.d, 4); i < n; i++) {
                x = stack_layer(&q, &s, x, i);
                keep(&q, x);
                if (chance(&q.d, 25))
                        steps(&q, &x, 1 + draw(&q.d, 3));
        }
        x = head(&q, x, &w);
        l = logits_of(&q, x, w);
        return with_logits(&q, x, w, l, trains);
}

#endif
