/* grouped_gemm.c: emits products over experts.  Op expert multiplies each slot's row by its
 * expert's matrix; expert_grad makes the gradients; expert_rows serves a few rows without sorting.
 * Kernels: kernels/moe/grouped_gemm.cuh, cpu_grouped_gemm.h; Hopper's form is
 * sm90_grouped_gemm.c. */
#include "ops.h"
#include "../forms/gemv_shape.h"
#include <string.h>

/* An adapter that drops the expert: epilogues know it from the slot where they need it. */
static void expert_epilogue(Emit *e, Build *b)
{
        if (is_cuda(e))
                text_add(build_decl(b),
                         "struct \1_slot {\n"
                         "        static constexpr int MAXV = \1_epilogue::MAXV, MINV = "
                         "\1_epilogue::MINV;\n"
                         "        const \1_epilogue &epilogue;\n"
                         "        template <int V> __device__ __forceinline__ void operator()(int "
                         "row, int col, float (&v)[V], int) const { epilogue(row, col, v); }\n"
                         "};\n\n");
        else
                text_add(build_decl(b),
                         "TGC_INLINE void \1_slot(const void *args, long row, int col, int n, "
                         "float *v, int expert)\n"
                         "{\n"
                         "        (void)expert;\n"
                         "        \1_epilogue(args, row, col, n, v);\n}\n\n");
}

/* expert_matmul: slots that are sorted by expert. */
typedef struct Slots {
        bool tb, scatter;
        int64_t E, K, N, adiv, most; /* most: slots, of which there are P */
        Dim P;
        DType dt;
        const char *ty; /* of w: TY_F32 ... */
        Storage blocks; /* as w lies now */
        const char *w, *perm, *offs;
        double products;
} Slots;

static Slots slots_of(Emit *e, const Group *gr, Build *b)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Type *wt = &NODE(e->g, n->in[1])->type;
        bool tb = n->a.expert.tb;
        Slots s = { .tb = tb,
                    .scatter = n->a.expert.scatter,
                    .E = wt->dim[0].n,
                    .K = wt->dim[tb ? 2 : 1].n,
                    .N = wt->dim[tb ? 1 : 2].n,
                    .adiv = n->a.expert.adiv,
                    .most = dim_most(e, n->type.dim[0]),
                    .P = n->type.dim[0] };
        Access wa;
        access_need(e->g, e->place, n->in[1], &wa);
        s.dt = NODE(e->g, wa.base)->type.dt;
        s.ty = ty_of(e, wa.base);
        s.blocks = blocks_of(e, wa.base);
        b->multiplies_bf16 |= s.dt == DT_BF16 && !s.blocks;
        s.w = plain_arg(e, b, n->in[1]);
        s.perm = plain_arg(e, b, n->in[2]);
        s.offs = plain_arg(e, b, n->in[3]);
        s.products = 2.0 * (double)s.most * (double)s.N * (double)s.K;
        return s;
}

/* So few that each one's row of x meets all of its expert's columns by itself. */
static void few_slots(Emit *e, const Group *gr, Build *b, const Slots *s)
{
        const char *P = dim_c(e, s->P), *w = s->w, *perm = s->perm, *offs = s->offs;
        long long E = s->E, N = s->N, K = s->K, adiv = s->adiv;
        build_functor(b, &gr->prologue[0], "prologue");
        build_functor(b, &gr->epilogue[0], "epilogue");
        expert_epilogue(e, b);
        b->title = "grouped_gemv";
        b->flops += s->products;
        b->bytes += s->products / 2 * dt_size[s->dt];
        if (is_cuda(e) && s->blocks) {
                const GemvChunks m = gemv_chunks_shape(1, (int)K, GEMV_STORED_THREADS, 2);
                b->any.include = "grouped_stored";
                b->any.threads = GEMV_STORED_THREADS;
                b->any.smem = m.smem;
                build_line(b, "\1_prologue prologue = { a };");
                build_line(b, "\1_epilogue epilogue = { a };");
                build_line(b, "\1_slot slot = { epilogue };");
                build_line(
                        b,
                        "grouped_stored_gemv_task<Stored_%s, %lld, %lld, %d, 2, %lld, %s>(%s, %s, "
                        "%s, %lld, tile, smem, prologue, slot);",
                        storage_name[s->blocks], N, K, GEMV_STORED_THREADS, adiv,
                        s->scatter ? "true" : "false", w, perm, offs, E);
                build_end(b, grid_times(grid_dim(e, s->P), grid_ceil(e, DIM(N), m.cols)));
        } else if (is_cuda(e)) {
                int align = align_bytes(s->dt, K), split = 1;
                GemvShape m = gemv_shape(dt_size[s->dt], 1, (int)K, 256, 2, 1, align);
                while ((N + m.cols - 1) / m.cols * s->most < 2 * ANY_SMS && split < 4 &&
                       K / (split * 2) >= 256)
                        m = gemv_shape(dt_size[s->dt], 1, (int)K, 256, 2, split *= 2, align);
                b->any.threads = 256;
                b->any.smem = m.smem;
                build_line(b, "\1_prologue prologue = { a };");
                build_line(b, "\1_epilogue epilogue = { a };");
                build_line(b, "\1_slot slot = { epilogue };");
                build_line(
                        b,
                        "grouped_gemv_task<%s, %lld, %lld, 256, 2, %d, %lld, %s, %d>(%s, %s, %s, "
                        "%lld, tile, smem, prologue, slot);",
                        c_type(s->dt), N, K, split, adiv, s->scatter ? "true" : "false", align, w,
                        perm, offs, E);
                build_end(b, grid_times(grid_dim(e, s->P), grid_ceil(e, DIM(N), m.cols)));
        } else {
                build_cpu_loop(
                        b, arena_fmt(e->tmp, "grouped_gemv_tiles(%s, %lld, %lld)", P, N, K),
                        s->products,
                        arena_fmt(e->tmp,
                                  "grouped_gemv_task(NORM_NONE, 0.f, (Mat){ %s, %s, %d, %lld, %lld "
                                  "}, %lld, %lld, %lld, %lld, %s, %s, %lld, tile, &a, \1_prologue, "
                                  "\1_slot);",
                                  w, s->ty, s->tb, s->tb ? K : N, N * K, E, N, K, adiv, perm, offs,
                                  (long long)s->scatter));
                build_end(b, grid_blocks(1));
        }
}

/* In tiles of an expert's slots.  The estimate is of slots that are spread evenly. */
static StoredPick many_slots_pick(const Slots *s)
{
        return stored_gemm_pick(&(StoredGemm) { .dt = s->dt,
                                                .blocks = s->blocks,
                                                .M = s->most / s->E + 1,
                                                .N = s->N * s->E,
                                                .K = s->K });
}

static void many_slots(Emit *e, const Group *gr, Build *b, const Slots *s, const Mat *a)
{
        const StoredPick k = many_slots_pick(s);
        const int bn = stored_tile_columns(k.t), align = align_bytes(s->dt, a->align | s->K);
        const int64_t tiles = ((s->most + k.t->bm - 1) / k.t->bm + s->E) * ((s->N + bn - 1) / bn);
        build_functor(b, &gr->epilogue[0], "epilogue");
        expert_epilogue(e, b);
        b->flops += s->products;
        b->bytes += (double)s->most * (double)s->K * dt_size[s->dt] +
                    (double)storage_bytes(s->blocks, s->E * s->N * s->K);
        b->any.include = "grouped_gemm_stored";
        b->any.threads = 32 * k.t->warps;
        b->any.smem = k.smem;
        b->any.min_blocks = k.t->blocks;
        b->any.waits = true;
        build_line(b, "\1_epilogue epilogue = { a };");
        build_line(b, "\1_slot slot = { epilogue };");
        build_line(
                b,
                "grouped_gemm_stored_task<%s, Stored_%s, %s, %lld, %lld, %lld, %s, %d>(%s, %s, %s, "
                "%s, %s, %lld, tile, smem, slot);",
                c_type(s->dt), storage_name[s->blocks], stored_gemm_tile_text(e->tmp, &k),
                (long long)s->N, (long long)s->K, (long long)s->adiv, s->scatter ? "true" : "false",
                align, a->arg, a->ld, s->w, s->perm, s->offs, (long long)s->E);
        build_end(b, grid_blocks(tiles));
}

static void expert(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        Mat a;
        Build b = build_start(e, gr, "grouped_gemm", "expert_matmul");
        const Slots s = slots_of(e, gr, &b);
        const char *P = dim_c(e, s.P);
        long long E = s.E, N = s.N, K = s.K, adiv = s.adiv;
        bool counted = dim_known(e, s.P);
        const bool along = s.tb || (!is_cuda(e) && !node_storage(NODE(e->g, n->in[1])));
        if (counted && s.most <= 16 && along && K <= 32768) {
                few_slots(e, gr, &b, &s);
                return;
        }
        mat_need(e, &b, n->in[0], 0, &a);
        if (is_cuda(e) && s.blocks) {
                many_slots(e, gr, &b, &s, &a);
                return;
        }
        Functor puts = gr->epilogue[0];
        puts.puts = true;
        FunctorText epilogue = build_functor(&b, &puts, "epilogue");
        expert_epilogue(e, &b);
        b.flops += s.products;
        b.bytes += ((double)s.most * (double)K + (double)E * (double)N * (double)K) * dt_size[s.dt];
        if (is_cuda(e)) {
                int align = align_bytes(s.dt, a.align | K | (s.tb ? K : N));
                const Tile *t = tile_pick(s.dt, s.most, N, K, 1, NULL);
                b.any.threads = t->threads;
                b.any.smem = t->smem;
                b.any.min_blocks = t->min_blocks;
                GroupedGemm x = { .any = t,
                                  .tb = s.tb,
                                  .scatter = s.scatter,
                                  .dt = s.dt,
                                  .a = n->in[0],
                                  .w = n->in[1],
                                  .E = E,
                                  .M = s.most,
                                  .N = N,
                                  .K = K,
                                  .adiv = adiv,
                                  .align = align,
                                  .epilogue_bytes = epilogue.bytes / ((double)s.most * (double)N),
                                  .rows_a = arena_fmt(e->tmp, "%s, %s", a.arg, a.ld),
                                  .order = arena_fmt(e->tmp, "%s, %s", s.perm, s.offs) };
                build_line(&b, "\1_epilogue epilogue = { a };");
                if (a.dt == s.dt && !node_storage(NODE(e->g, n->in[1])))
                        forms_add(&b, FAMILY_grouped_gemm, &x);
                build_line(&b, "\1_slot slot = { epilogue };");
                build_line(
                        &b,
                        "grouped_gemm_task<%s, %s, %s, %lld, %s, %d>(%s, %s, %s, %s, %lld, %lld, "
                        "%lld, tile, smem, slot);",
                        c_type(s.dt), t->name, s.tb ? "true" : "false", adiv,
                        s.scatter ? "true" : "false", align, x.rows_a, s.w, s.perm, s.offs, E, N,
                        K);
                build_end(&b, grid_blocks(((s.most + t->bm - 1) / t->bm + E) *
                                          ((N + t->bn - 1) / t->bn)));
        } else {
                build_cpu_loop(
                        &b, arena_fmt(e->tmp, "grouped_gemm_tiles(%lld, %s, %lld)", E, P, N),
                        s.products,
                        arena_fmt(e->tmp,
                                  "grouped_gemm_task(%s, %s, %s, %lld, (Mat){ %s, %s, %d, %lld, "
                                  "%lld }, %lld, %lld, %lld, %s, %s, %lld, tile, &a, \1_slot);",
                                  a.arg, ty(a.dt), a.ld, adiv, s.w, s.ty, s.tb, s.tb ? K : N, N * K,
                                  E, N, K, s.perm, s.offs, (long long)s.scatter));
                build_end(&b, grid_blocks(1));
        }
}

/* How blocks share the columns of a few slots. */
typedef struct RowsShape {
        int threads, split, min_blocks;
} RowsShape;

/* `slots` products of N columns by K.  One slot's columns that one block on each multiprocessor can
 * have: as many warps as have three loads of a row each (H100, 12x768 with 8 experts, us a token:
 * 247.9 -> 242.8).  Else blocks of 256, two a multiprocessor at least; where a lane has all its
 * loads under way at once, four fit (247.9 -> 246.3). */
static RowsShape rows_shape(int esize, int64_t slots, int64_t N, int K, int align)
{
        enum { ROWS = 2, MOST_THREADS = 768 };
        int step = 32 * align / esize, per = (int)((N / ROWS + ANY_SMS - 1) / ANY_SMS);
        RowsShape r = { 256, 1, 1 };
        if (slots == 1 && per * 32 <= MOST_THREADS && K >= 8 * step) {
                while (per * r.split * 64 <= MOST_THREADS && K / (r.split * 2) >= 3 * step)
                        r.split *= 2;
                r.threads = per * r.split * 32;
                return r;
        }
        GemvShape s = gemv_shape(esize, 1, K, 256, ROWS, 1, align);
        while ((N + s.cols - 1) / s.cols * slots < 2 * ANY_SMS && r.split < 4 &&
               K / (r.split * 2) >= 256)
                s = gemv_shape(esize, 1, K, 256, ROWS, r.split *= 2, align);
        r.min_blocks = K <= s.flight * step * r.split ? 4 : 1;
        return r;
}

/* A few slots, each with its expert's number. */
static void expert_rows(Emit *e, const Group *gr)
{
        Graph *g = e->g;
        const Node *n = NODE(g, gr->anchor);
        const Type *wt = &NODE(g, n->in[1])->type;
        long long N = wt->dim[1].n, K = wt->dim[2].n, mix = n->a.rows.mix, adiv = n->a.rows.adiv;
        int parts = mix ? (int)mix : 1;
        Dim rows = n->type.dim[0];
        Access wa;
        Build b = build_start(e, gr, "grouped_gemm", "expert_rows");
        access_need(g, e->place, n->in[1], &wa);
        DType dt = NODE(g, wa.base)->type.dt;
        const char *none = is_cuda(e) ? arena_fmt(e->tmp, "(const %s *)0", c_type(dt)) : "NULL";
        const char *w = plain_arg(e, &b, n->in[1]), *ids = plain_arg(e, &b, n->in[2]);
        const char *bias = n->a.rows.bias ? plain_arg(e, &b, n->in[3]) : none;
        const char *gates = mix          ? plain_arg(e, &b, n->in[n->n_in - 1])
                            : is_cuda(e) ? "(const float *)0"
                                         : "NULL";
        double products = 2.0 * (double)dim_most(e, rows) * parts * (double)N * (double)K;
        build_functor(&b, &gr->prologue[0], "prologue");
        build_functor(&b, &gr->epilogue[0], "epilogue");
        b.flops += products;
        b.bytes += products / 2 * dt_size[dt];
        const Storage blocks = blocks_of(e, wa.base);
        b.multiplies_bf16 = dt == DT_BF16 && !blocks;
        if (is_cuda(e) && blocks) {
                const GemvChunks s = gemv_chunks_shape(1, parts * (int)K, GEMV_STORED_THREADS, 2);
                b.any.include = "grouped_stored";
                b.any.threads = GEMV_STORED_THREADS;
                b.any.smem = s.smem;
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "\1_epilogue epilogue = { a };");
                build_line(&b,
                           "grouped_stored_rows_task<%s, Stored_%s, %lld, %lld, %d, 2, %lld, "
                           "%lld>(%s, %s, %s, %s, tile, smem, prologue, epilogue);",
                           c_type(dt), storage_name[blocks], N, K, GEMV_STORED_THREADS, adiv, mix,
                           w, ids, bias, gates);
                build_end(&b, grid_times(grid_dim(e, rows), grid_ceil(e, DIM(N), s.cols)));
        } else if (is_cuda(e)) {
                int align = align_bytes(dt, K), all = parts * (int)K;
                RowsShape r = rows_shape(dt_size[dt], dim_most(e, rows), N, all, align);
                GemvShape s = gemv_shape(dt_size[dt], 1, all, r.threads, 2, r.split, align);
                b.any.threads = r.threads;
                b.any.min_blocks = r.min_blocks;
                b.any.smem = s.smem;
                /* which experts, and their gates: then their weights may come */
                if (mix && !node_storage(NODE(g, n->in[1])))
                        build_prefetch(&b, PREFETCH_BOTH,
                                       &(Slot) { .kind = SLOT_NODE, .id = value_base(g, n->in[2]) },
                                       &(Slot) { .kind = SLOT_NODE,
                                                 .id = value_base(g, n->in[n->n_in - 1]) });
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "\1_epilogue epilogue = { a };");
                build_line(
                        &b,
                        "grouped_rows_task<%s, %lld, %lld, %d, 2, %d, %lld, %lld, %d>(%s, %s, %s, "
                        "%s, tile, smem, prologue, epilogue);",
                        c_type(dt), N, K, r.threads, r.split, adiv, mix, align, w, ids, bias,
                        gates);
                build_end(&b, grid_times(grid_dim(e, rows), grid_ceil(e, DIM(N), s.cols)));
        } else {
                build_cpu_loop(
                        &b,
                        arena_fmt(e->tmp, "grouped_rows_tiles(%s, %lld, %lld)", dim_c(e, rows), N,
                                  K),
                        products,
                        arena_fmt(
                                e->tmp,
                                "grouped_rows_task((Mat){ %s, %s, 1, %lld, %lld }, %lld, %lld, "
                                "%lld, %lld, %s, %s, %s, %s, tile, &a, \1_prologue, \1_epilogue);",
                                w, ty_of(e, wa.base), K, N * K, N, K, adiv, mix, ids, ty(dt), bias,
                                gates));
                build_end(&b, grid_blocks(1));
        }
}

/* dW_e: rows are the weight's first axis.  The kernel computes sum over slots of
 * y_row outer a_row, so for weights (E,K,N) the operands change places. */
static void expert_grad(Emit *e, const Group *gr)
{
        Graph *g = e->g;
        const Node *n = NODE(g, gr->anchor);
        int64_t E = n->type.dim[0].n, R = n->type.dim[1].n, C = n->type.dim[2].n;
        bool tb = n->a.expert.tb;
        Ref rows = tb ? n->in[1] : n->in[0], cols = tb ? n->in[0] : n->in[1];
        int64_t rdiv = tb ? n->a.expert.bdiv : n->a.expert.adiv,
                cdiv = tb ? n->a.expert.adiv : n->a.expert.bdiv;
        Mat y, a;
        Build b = build_start(e, gr, "grouped_gemm", "expert_grad");
        mat_need(e, &b, rows, 0, &y);
        mat_need(e, &b, cols, 0, &a);
        const char *perm = plain_arg(e, &b, n->in[2]), *offs = plain_arg(e, &b, n->in[3]);
        Functor puts = gr->epilogue[0];
        puts.puts = true;
        FunctorText epilogue = build_functor(&b, &puts, "epilogue");
        int64_t p = dim_most(e, NODE(g, n->in[2])->type.dim[0]);
        b.flops += 2.0 * (double)p * (double)R * (double)C;
        b.bytes += (double)p * (double)(R + C) * dt_size[a.dt];
        if (is_cuda(e)) {
                const Tile *t = tile_pick(a.dt, R, C, p / E + 1, E, NULL);
                int align = align_bytes(a.dt, y.align | R | a.align | C);
                text_add(
                        build_decl(&b),
                        "/* rows of expert e */\n"
                        "struct \1_slot {\n"
                        "        static constexpr int MAXV = \1_epilogue::MAXV, MINV = "
                        "\1_epilogue::MINV;\n"
                        "        const \1_epilogue &epilogue;\n"
                        "        template <int V> __device__ __forceinline__ void operator()(int "
                        "row, int col, float (&v)[V], int expert) const\n"
                        "        {\n"
                        "                epilogue(expert * %lld + row, col, v);\n        }\n};\n\n",
                        (long long)R);
                b.any.threads = t->threads;
                b.any.smem = t->smem;
                b.any.min_blocks = t->min_blocks;
                GroupedGemm x = { .any = t,
                                  .grad = true,
                                  .dt = a.dt,
                                  .a = rows,
                                  .w = cols,
                                  .E = E,
                                  .M = R,
                                  .N = C,
                                  .K = p,
                                  .adiv = rdiv,
                                  .wdiv = cdiv,
                                  .align = align,
                                  .epilogue_bytes = epilogue.bytes /
                                                    ((double)E * (double)R * (double)C),
                                  .rows_a = arena_fmt(e->tmp, "%s, %s", y.arg, y.ld),
                                  .rows_w = arena_fmt(e->tmp, "%s, %s", a.arg, a.ld),
                                  .order = arena_fmt(e->tmp, "%s, %s", perm, offs) };
                build_line(&b, "\1_epilogue epilogue = { a };");
                if (y.dt == a.dt)
                        forms_add(&b, FAMILY_grouped_gemm, &x);
                build_line(&b, "\1_slot slot = { epilogue };");
                build_line(&b,
                           "grouped_gemm_grad_task<%s, %s, %lld, %lld, %d>(%s, %s, %s, %s, %lld, "
                           "%lld, %lld, tile, smem, slot);",
                           c_type(a.dt), t->name, (long long)rdiv, (long long)cdiv, align, x.rows_a,
                           x.rows_w, perm, offs, (long long)E, (long long)R, (long long)C);
                build_end(&b,
                          grid_blocks(E * ((R + t->bm - 1) / t->bm) * ((C + t->bn - 1) / t->bn)));
        } else {
                build_cpu_loop(
                        &b,
                        arena_fmt(e->tmp, "grouped_gemm_grad_tiles(%lld, %lld, %lld)", (long long)E,
                                  (long long)R, (long long)C),
                        b.flops,
                        arena_fmt(
                                e->tmp,
                                "grouped_gemm_grad_task(%s, %s, %s, %lld, %s, %s, %s, %lld, %lld, "
                                "%lld, %s, %s, tile, &a, \1_epilogue);",
                                y.arg, ty(y.dt), y.ld, (long long)rdiv, a.arg, ty(a.dt), a.ld,
                                (long long)cdiv, (long long)R, (long long)C, perm, offs));
                build_end(&b, grid_blocks(1));
        }
}

/* Kernels read the blocks of experts' weights, or they are decoded first. */
static bool reads_blocks(Emit *e, const Node *n, Ref w)
{
        const Storage blocks = node_storage(NODE(e->g, w));
        const int64_t slots = dim_most(e, n->type.dim[0]), K = NODE(e->g, w)->type.dim[2].n;
        if (n->op == OP_EXPERT_ROWS)
                return true;
        if (n->op != OP_EXPERT_MATMUL || !n->a.expert.tb)
                return false;
        if (dim_known(e, n->type.dim[0]) && slots <= 16 && K <= 32768)
                return true;
        const Slots s = { .E = NODE(e->g, w)->type.dim[0].n,
                          .N = NODE(e->g, w)->type.dim[1].n,
                          .K = K,
                          .most = slots,
                          .dt = NODE(e->g, w)->type.dt,
                          .blocks = blocks };
        return NODE(e->g, value_base(e->g, n->in[0]))->type.dt == s.dt &&
               stored_gemm_takes(blocks, s.dt) && many_slots_pick(&s).t;
}

void gen_grouped_gemm(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Ref w = n->in[1];
        const bool decoded = is_cuda(e) && node_storage(NODE(e->g, w)) && !reads_blocks(e, n, w);
        if (decoded)
                blocks_decode(e, gr, w, true);
        switch (n->op) {
        case OP_EXPERT_MATMUL: expert(e, gr); break;
        case OP_EXPERT_GRAD: expert_grad(e, gr); break;
        default: expert_rows(e, gr);
        }
        if (decoded)
                blocks_done(e, w);
}
