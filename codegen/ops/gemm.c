/* gemm.c: emits GEMMs, and GEMVs for decoding.  (Over experts: grouped_gemm.c.)
 *
 * The cost model of gemm_tiles.def chooses the tile and the number of splits of K.  Weight
 * gradients are split: C is small and K is long.  A second launch adds the splits in order and runs
 * the epilogue. */
#include "ops.h"
#include "../forms/gemv_shape.h"
#include <string.h>

/* An operand as a matrix of rows, possibly one of a batch. */
bool mat_of(Emit *e, Build *b, Ref r, int lead, Mat *m)
{
        Access a;
        Dim ld;
        Type three;
        access_need(e->g, e->place, r, &a);
        m->align = access_align(&a);
        m->dt = NODE(e->g, a.base)->type.dt;
        m->ty = ty_of(e, a.base);
        m->blocks = blocks_of(e, a.base);
        b->multiplies_bf16 |= m->dt == DT_BF16 && !m->blocks;
        m->step = "0";
        if (lead) {
                Dim batch = DIM(1);
                for (int i = 0; i < lead; i++)
                        batch = dim_mul(batch, a.t.dim[i]);
                three = type_of(a.t.dt, 3, batch, a.t.dim[lead], a.t.dim[lead + 1]);
                if (!access_reshape(&a, &three) ||
                    (!dim_eq(a.stride[2], DIM(1)) && !dim_eq(three.dim[2], DIM(1))))
                        return false;
                ld = dim_eq(three.dim[1], DIM(1)) ? three.dim[2] : a.stride[1];
                m->step = dim_c(e, a.stride[0]);
        } else if (!access_rows(&a, &ld)) {
                return false;
        }
        m->ld = dim_c(e, ld);
        m->stride = dim_known(e, ld) ? dim_value(ld, &e->g->sizes) : 0;
        const char *name = arg_of(e, &b->args, a.base, false);
        m->arg = a.off ? arena_fmt(e->tmp, "(a.%s + %lld)", name, (long long)a.off)
                       : arena_fmt(e->tmp, "a.%s", name);
        return true;
}

void mat_need(Emit *e, Build *b, Ref r, int lead, Mat *m)
{
        if (!mat_of(e, b, r, lead, m))
                error_internal(NODE(e->g, r)->loc, "%%%s cannot be addressed as rows of a matrix",
                               NODE(e->g, r)->name);
}

int align_bytes(DType dt, int64_t elems)
{
        int64_t m = ((elems | 8) & -(elems | 8)) * dt_size[dt];
        return m > 16 ? 16 : (int)m;
}

/* The first block of `threads` stores the standardised row, where the task does not do it by the
 * way. */
static const char *keep_line(const Build *b, int threads, const char *norm, const char *eps,
                             int64_t K, const char *gain)
{
        return arena_fmt(
                b->e->tmp,
                "if (tile == 0)\n                gemv_keep<%lld, %d, %s>(%s, smem, prologue%s, "
                "\1_keep{ a });",
                (long long)K, threads, norm, eps, gain);
}

static void keep_row(Build *b, bool keep, const char *norm, const char *eps, int64_t K,
                     const char *gain)
{
        if (keep)
                build_line(b, "%s", keep_line(b, b->any.threads, norm, eps, K, gain));
}

/* prologue and epilogue are there; ends the kernel. */
static void build_mma(Build *b, const GemvMma *s, const char *type, int M, int64_t N, int64_t K,
                      const char *norm, const char *operands, const char *rest)
{
        b->any.threads = s->warps * 32;
        b->any.min_blocks = M > 16           ? 1
                            : s->rounds == 1 ? 2
                                             : 16 / s->warps; /* two, of two launches */
        b->any.smem = s->smem;
        b->any.include = "gemv_mma";
        b->streams = true;
        build_line(b,
                   "gemv_mma_task<%s, %d, %lld, %lld, %d, %d, %d, %s>(%s, tile, smem, prologue, "
                   "epilogue%s);",
                   type, M, (long long)N, (long long)K, s->warps, s->tiles, s->rounds, norm,
                   operands, rest);
        build_end(b, grid_ceil(b->e, DIM(N), s->cols));
}

/* A few rows.  A norm of x that fuse put into the prologue is applied by the kernel itself. */
static void decode(Emit *e, const Group *gr, Build *b, Mat w, int M, int64_t N, int64_t K, bool tb,
                   int align)
{
        const char *type = c_type(w.dt), *eps = "0.f";
        NormKind kind = NORM_NONE;
        NormPrologue nh;
        Functor prologue = gr->prologue[0];
        Ref row = prologue.root;
        bool gain = false, keep = false, plain = !prologue.n_nodes;
        if (norm_prologue(e->g, &prologue, e->tmp, &nh)) {
                const Node *n = NODE(e->g, nh.norm);
                char s[32];
                num_text(n->a.num.x, s);
                eps = arena_fmt(e->tmp, strpbrk(s, ".en") ? "%sf" : "%s.f", s);
                kind = norm_kind(n->op);
                gain = nh.gain.n_nodes;
                nh.gain.rows = DIM(M);
                prologue = nh.before;
                keep = e->stored[row];
        }
        const char *norm = norm_text(kind);
        prologue.rows = DIM(M);
        int minv = build_functor(b, &prologue, "prologue").minv, narrow = minv;
        if (gain) {
                e->stored[row] = false; /* all blocks call it */
                narrow = build_functor(b, &nh.gain, "gain").minv;
                e->stored[row] = keep;
        }
        if (keep) {
                Functor store = store_of(e->g, row);
                store.rows = DIM(M);
                build_functor(b, &store, "keep");
        }
        narrow = narrow > minv ? narrow : minv;
        minv = build_functor(b, &gr->epilogue[0], "epilogue").minv;
        b->flops = 2.0 * M * (double)N * (double)K;
        b->bytes += w.blocks ? (double)storage_bytes(w.blocks, N * K)
                             : (double)N * (double)K * dt_size[w.dt];
        if (!is_cuda(e)) {
                build_cpu_loop_after(
                        b, arena_fmt(e->tmp, "gemv_tiles(%lld, %lld)", (long long)N, (long long)K),
                        b->flops,
                        arena_fmt(e->tmp, "gemv_begin(%s, %s, %s, %d, %lld, &a, \1_prologue, %s);",
                                  norm, eps, w.ty, M, (long long)K, gain ? "\1_gain" : "NULL"),
                        arena_fmt(e->tmp,
                                  "gemv_tile((Mat){ %s, %s, %d, %s, 0 }, %d, %lld, %lld, tile, &a, "
                                  "%s, \1_epilogue);",
                                  w.arg, w.ty, tb, w.ld, M, (long long)N, (long long)K,
                                  keep ? "\1_keep" : "NULL"));
                build_end(b, grid_blocks(1));
                return;
        }
        build_line(b, "\1_prologue prologue = { a };");
        build_line(b, "\1_epilogue epilogue = { a };");
        if (w.blocks) {
                const char *finish = gain ? ", \1_gain{ a }" : keep ? ", NoGain()" : "";
                gemv_stored(b, &w, M, N, K, kind, eps, finish,
                            keep ? keep_line(b, gemv_stored_threads(w.blocks), norm, eps, K, finish)
                                 : NULL);
                return;
        }
        Gemm several;
        if (plain && gemm_rows_problem(e, NODE(e->g, gr->anchor), align, &several))
                forms_add(b, FAMILY_gemm_rows, &several);
        b->any.waits = true;
        b->any.threads = 256;
        const char *finish = gain ? ", \1_gain{ a }" : keep ? ", NoGain()" : "";
        const char *rest = arena_fmt(e->tmp, "%s, %d>(%s, %s, %s, tile, smem, prologue, epilogue%s",
                                     norm, align, w.arg, w.ld, eps, finish);
        GemvShort few = { 0 };
        GemvMma rows16 = { 0 };
        if (tb && w.dt != DT_F32 && align == 16)
                rows16 = gemv_mma(M, N, (int)K, kind != NORM_NONE, ANY_SMS);
        GemvNarrow slim = { 0 };
        if (tb && M == 1 && align / dt_size[w.dt] >= narrow)
                few = gemv_short(dt_size[w.dt], N, (int)K, align, minv, ANY_SMS);
        if (tb && M == 1 && align / dt_size[w.dt] >= narrow && !few.rows && minv == 1 && !keep)
                slim = gemv_narrow(dt_size[w.dt], N, (int)K, align, ANY_SMS);
        if (few.rows) {
                b->any.include = "gemv_short";
                b->any.threads = few.threads;
                b->any.smem = few.split > 1 ? few.smem : 0;
                const char *kept = keep ? ", \1_keep{ a }" : "";
                forms_add(b, FAMILY_gemv,
                          &(GemvWork) {
                                  .few = &few,
                                  .minv = minv,
                                  .shape = arena_fmt(e->tmp, "%lld, %lld, %s, %d", (long long)N,
                                                     (long long)K, norm, align),
                                  .operands = arena_fmt(e->tmp, "%s, %s, %s", w.arg, w.ld, eps),
                                  .rest = arena_fmt(e->tmp, "%s%s", finish, kept) });
                if (!b->any.smem)
                        build_line(b, "char *const smem = nullptr;");
                build_line(b, "gemv_short_task<%s, %lld, %lld, %d, %d, %d, %s%s);", type,
                           (long long)N, (long long)K, few.threads, few.rows, few.split, rest,
                           kept);
                build_end(b, grid_ceil(e, DIM(N), few.cols));
        } else if (rows16.warps) {
                build_mma(b, &rows16, type, M, N, K, norm,
                          arena_fmt(e->tmp, "%s, %s, %s", w.arg, w.ld, eps), finish);
        } else if (slim.lanes) {
                b->any.include = "gemv_narrow";
                b->any.threads = NARROW_THREADS;
                b->any.min_blocks = NARROW_BLOCKS;
                build_line(b,
                           "gemv_narrow_task<%s, %lld, %lld, %d, %d, %d, %s, %d>(%s, %s, %s, tile, "
                           "prologue, epilogue%s);",
                           type, (long long)N, (long long)K, NARROW_THREADS, slim.lanes, slim.tiles,
                           norm, align, w.arg, w.ld, eps, finish);
                build_end(b, grid_blocks(slim.tiles));
        } else if (tb) {
                /* about 16 warps a multiprocessor, the last 8 of them only as long as a lane has
                 * four loads of each row */
                int rows = M > 1 ? 4 : 2, split = 1, loads = 4 * 32 * align / dt_size[w.dt];
                while (N / rows * split < 16 * ANY_SMS && split < 4 &&
                       K / (split * 2) >= (N / rows * split < 8 * ANY_SMS ? 128 : loads))
                        split *= 2;
                GemvShape s = gemv_shape(dt_size[w.dt], M, (int)K, 256, rows, split, align);
                int64_t blocks = (N + s.cols - 1) / s.cols;
                /* all at once */
                b->after_wait = true;
                b->any.min_blocks = M == 1 && blocks > 2 * ANY_SMS && blocks <= 3 * ANY_SMS ? 3 : 1;
                b->any.smem = s.smem;
                build_line(b, "gemv_task<%s, %d, %lld, %lld, 256, %d, %d, %s);", type, M,
                           (long long)N, (long long)K, rows, split, rest);
                keep_row(b, keep, norm, eps, K, finish);
                build_end(b, grid_ceil(e, DIM(N), s.cols));
        } else {
                int cols = 32;
                b->any.threads = 512;
                b->after_wait = true;
                b->any.smem = gemv_kn_smem(M, (int)K, b->any.threads, cols);
                build_line(b, "gemv_kn_task<%s, %d, %lld, %lld, 512, %d, %s);", type, M,
                           (long long)N, (long long)K, cols, rest);
                keep_row(b, keep, norm, eps, K, finish);
                build_end(b, grid_ceil(e, DIM(N), cols));
        }
}

/* Sizes of a product: the program's, the most they may be, their text. */
typedef struct Shape {
        int lead; /* dimensions of the batch */
        bool ta, tb;
        Dim batch, M, N, K;
        int64_t b_most, m_most, n_most, k_most;
        const char *Bc, *Mc, *Nc, *Kc;
} Shape;

static Shape shape_of(Emit *e, const Node *n)
{
        const Type *at = &NODE(e->g, n->in[0])->type, *bt = &NODE(e->g, n->in[1])->type;
        Shape s = { .lead = bt->rank - 2,
                    .ta = n->a.mm.ta,
                    .tb = n->a.mm.tb,
                    .batch = DIM(1),
                    .N = n->type.dim[n->type.rank - 1] };
        for (int i = 0; i < s.lead; i++)
                s.batch = dim_mul(s.batch, bt->dim[i]);
        s.M = s.lead ? n->type.dim[n->type.rank - 2] : s.ta ? at->dim[at->rank - 1] : type_rows(at);
        s.K = s.lead ? bt->dim[s.tb ? s.lead + 1 : s.lead]
              : s.ta ? type_rows(at)
                     : at->dim[at->rank - 1];
        s.b_most = dim_most(e, s.batch), s.m_most = dim_most(e, s.M), s.n_most = dim_most(e, s.N);
        s.k_most = dim_most(e, s.K);
        s.Bc = dim_c(e, s.batch), s.Mc = dim_c(e, s.M), s.Nc = dim_c(e, s.N), s.Kc = dim_c(e, s.K);
        return s;
}

static Grid tiles_of(Emit *e, const Shape *s, const Tile *t)
{
        return grid_times(grid_ceil(e, s->M, t->bm), grid_ceil(e, s->N, t->bn));
}

/* Sums of columns beside a product (column_beside), of Hopper's form: n of them in `work`; 0:
 * none. */
typedef struct Sums {
        const Group *columns;
        int work;
        int64_t n;
} Sums;

static const char *sums_arg(Emit *e, Build *b, const Sums *sums)
{
        return sums->n ? arg_work(e, &b->args, sums->work, C_F32, "sums") : NULL;
}

/* Hopper's form, where it is none of dense tiles; problem NULL: it is. */
typedef struct Other {
        Family family;
        const void *problem;
} Other;

/* Parts of K, each a product of its own, and a second launch that adds them up; where Hopper's form
 * has K whole one does it all.  b: the product begun, whose epilogue is thrown away. */
static void split_gemm(Emit *e, const Group *gr, Build *b, const Functor *puts, const Shape *s,
                       Gemm *p, const Pick *pick, const Other *other, const Sums *sums)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Tile *t = pick->tile[ARCH_ANY];
        const Tile *sm90 = pick->tile[ARCH_SM90A];
        int splits = pick->splits[ARCH_ANY], splits_sm90 = pick->splits[ARCH_SM90A];
        int64_t N = s->n_most;
        int v = N % 8 == 0 ? 8 : N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1;
        int work = work_new(e,
                            dim_mul(DIM((splits > splits_sm90 ? splits : splits_sm90) * N), s->M),
                            4);
        Build part = build_start(e, gr, "gemm", "matmul_split");
        Mat a, w;
        mat_need(e, &part, n->in[0], 0, &a);
        mat_need(e, &part, n->in[1], 0, &w);
        part.any.threads = b->any.threads, part.any.smem = b->any.smem,
        part.any.min_blocks = b->any.min_blocks;
        part.flops = 2.0 * (double)s->b_most * (double)s->m_most * (double)N * (double)s->k_most;
        part.bytes = b->bytes;
        const char *ws = arg_work(e, &part.args, work, C_F32, "parts");
        const bool whole = other->problem || (sm90 && splits_sm90 == 1);
        if (whole) {
                build_functor(&part, puts, "epilogue");
                build_line(&part, "\1_epilogue epilogue = { a };");
        }
        if (other->problem) {
                forms_add(&part, other->family, other->problem);
        } else if (sm90) {
                sm90_gemm_transpose(&part, p);
                forms_add(&part, FAMILY_gemm,
                          &(GemmWork) { .p = p,
                                        .pick = pick,
                                        .ws = ws,
                                        .sums = sums_arg(e, &part, sums) });
        }
        build_line(
                &part,
                "gemm_split_k_task<%s, %s, %s, %s, %d, %d>(%s, %s, %s, %s, %s, %s, %s, %d, a.%s, "
                "tile, smem);",
                c_type(a.dt), t->name, s->ta ? "true" : "false", s->tb ? "true" : "false", p->align,
                v, a.arg, a.ld, w.arg, w.ld, s->Mc, s->Nc, s->Kc, splits, ws);
        build_end(&part, grid_times(grid_blocks(splits), tiles_of(e, s, t)));
        Build sum = build_start(e, gr, "gemm", "matmul_sum");
        build_drop(b);
        ws = arg_done(e, &sum.args, work, C_F32, "parts");
        FunctorText epilogue = build_functor(&sum, &gr->epilogue[0], "epilogue");
        sum.any.threads = 256;
        build_line(&sum, "\1_epilogue epilogue = { a };");
        const char *parts = arena_fmt(e->tmp, "%d", splits);
        if (sm90 && splits_sm90 != splits)
                parts = form_constant(&sum, "PARTS", parts, ARCH_SM90A, splits_sm90);
        build_line(&sum, "splitk_reduce_task<256>(a.%s, %s, %s, %s, tile, epilogue);", ws, parts,
                   s->Mc, s->Nc);
        if (whole)
                form_leave_out(&sum, ARCH_SM90A);
        build_end(&sum,
                  grid_ceil(e, dim_mul(s->M, s->N), 256 * (epilogue.maxv < 8 ? epilogue.maxv : 8)));
}

/* The call of gemm_task for each item of a batch; `types`: its template's arguments. */
void gemm_batch_body(Build *b, const char *M, const char *N, const char *K, const Tile *t,
                     const char *types, const Mat *a, const Mat *w)
{
        text_add(build_decl(b),
                 "/* rows of item z of the batch */\n"
                 "struct \1_item {\n"
                 "        static constexpr int MAXV = \1_epilogue::MAXV, MINV = "
                 "\1_epilogue::MINV;\n"
                 "        const \1_epilogue &epilogue;\n"
                 "        int first;\n"
                 "        template <int V> __device__ __forceinline__ void operator()(int row, int "
                 "col, float (&v)[V]) const\n"
                 "        {\n"
                 "                epilogue(first + row, col, v);\n        }\n};\n\n");
        build_line(b, "const int each = gemm_tiles<%s>(%s, %s), z = tile / each;", t->name, M, N);
        build_line(b, "\1_item item = { epilogue, z * %s };", M);
        build_line(b,
                   "gemm_task<%s>(%s + (long)z * %s, %s, %s + (long)z * %s, %s, %s, %s, "
                   "%s, tile - z * each, smem, item);",
                   types, a->arg, a->step, a->ld, w->arg, w->step, w->ld, M, N, K);
}

/* C: a launch that makes the rows of A ready for all tiles (ready_task in cpu_gemm.h), where the
 * machine may have use for it; the work, or -1. */
static int cpu_ready(Emit *e, const Group *gr, const Shape *s)
{
        enum { MOST = 8 << 20, ROWS = 16, COLS = 32, BYTES = 1024 }; /* elements; of a block */
        const Node *n = NODE(e->g, gr->anchor);
        const Type *x = &NODE(e->g, n->in[0])->type, *y = &NODE(e->g, n->in[1])->type;
        const bool blocks = node_storage(NODE(e->g, n->in[1])) && e->m->act_int8,
                   pairs = x->dt == DT_BF16 && y->dt == DT_BF16 &&
                           !node_storage(NODE(e->g, n->in[1]));
        Mat a, w;
        if (s->lead || s->ta || !s->tb || s->k_most % COLS || !dim_known(e, s->K) ||
            (!blocks && !pairs) || s->m_most * s->k_most > MOST)
                return -1;
        Build b = build_start(e, gr, "gemm", "ready");
        mat_need(e, &b, n->in[0], 0, &a);
        w.ty = ty_of(e, n->in[1]);
        const int work = work_new(e, DIM((s->m_most + ROWS - 1) / ROWS * (s->k_most / COLS)),
                                  BYTES);
        b.bytes = (double)s->m_most * (double)s->k_most * (dt_size[x->dt] + 2);
        build_cpu_loop(&b,
                       arena_fmt(e->tmp,
                                 "ready_tiles((Mat){ 0, %s, 0 }, (Mat){ 0, %s, 1 }, %s, %s)", a.ty,
                                 w.ty, s->Mc, s->Kc),
                       b.bytes,
                       arena_fmt(e->tmp,
                                 "ready_task((Mat){ %s, %s, 0, %s }, (Mat){ 0, %s, 1 }, %s, %s, "
                                 "a.%s, tile);",
                                 a.arg, a.ty, a.ld, w.ty, s->Mc, s->Kc,
                                 arg_work(e, &b.args, work, C_U8, "ready")));
        build_end(&b, grid_blocks(1));
        return work;
}

static void matmul(Emit *e, const Group *gr)
{
        Graph *g = e->g;
        const Node *n = NODE(g, gr->anchor);
        Shape s = shape_of(e, n);
        int64_t N = s.n_most;
        bool fixed_m = dim_known(e, s.M), fixed = dim_known(e, s.K) && dim_known(e, s.N);
        Mat a, w;
        const int made = is_cuda(e) || gemv_m(g, gr->anchor) ? -1 : cpu_ready(e, gr, &s);
        Build b = build_start(e, gr, "gemm", "matmul");
        const bool decoded = is_cuda(e) && node_storage(NODE(g, n->in[1]));
        const int64_t few = gemv_m(g, gr->anchor);
        const bool tiles = !few || (gemm_over_blocks(g, gr->anchor) && !gr->prologue[0].n_nodes);
        if (decoded && tiles && s.tb && !s.ta && !s.lead &&
            gemm_stored(&b, n->in[0], n->in[1], s.M))
                return;
        if (few) {
                b.any.include = "gemv";
                b.streams = true;
                mat_need(e, &b, n->in[1], 0, &w);
                decode(e, gr, &b, w, (int)s.m_most, N, s.k_most, s.tb,
                       align_bytes(w.dt, w.align | (s.tb ? s.K.n : N)));
                return;
        }
        StoredGemm stored;
        const bool streams = decoded && tiles && s.tb && !s.ta && !s.lead &&
                             !column_beside(e, gr->anchor) &&
                             gemm_stored_problem(e, n->in[0], n->in[1], s.M, &stored) &&
                             sm90_stored_stream_takes(&stored);
        if (decoded)
                blocks_decode(e, gr, n->in[1], !streams);
        mat_need(e, &b, n->in[0], s.lead, &a);
        mat_need(e, &b, n->in[1], s.lead, &w);
        Functor puts = gr->epilogue[0];
        puts.puts = true;
        Ref normed = 0;
        const Group *norm = is_cuda(e) && !s.lead && fixed_m && e->most_t > 1 && !decoded
                                    ? gemm_norm_find(e, gr, N, &normed)
                                    : NULL;
        puts.result = norm && normed != gr->anchor ? normed : 0;
        FunctorText epilogue = build_functor(&b, &puts, "epilogue");
        double products = 2.0 * (double)s.b_most * (double)s.m_most * (double)N * (double)s.k_most;
        b.flops += products;
        b.bytes += (double)s.b_most *
                   ((double)s.m_most * (double)s.k_most + (double)N * (double)s.k_most) *
                   dt_size[a.dt];
        if (!is_cuda(e)) {
                const char *ready = made < 0 ? ""
                                             : arena_fmt(e->tmp, ", a.%s",
                                                         arg_done(e, &b.args, made, C_U8, "ready"));
                build_cpu_loop(
                        &b,
                        arena_fmt(e->tmp,
                                  "gemm_tiles((Mat){ 0, %s, %d, 0, 0%s }, (Mat){ 0, %s, %d, 0, 0 "
                                  "}, %s, %s, %s, %s)",
                                  a.ty, s.ta, ready, w.ty, s.tb, s.Bc, s.Mc, s.Nc, s.Kc),
                        products,
                        arena_fmt(e->tmp,
                                  "gemm_task((Mat){ %s, %s, %d, %s, %s%s }, (Mat){ %s, %s, %d, %s, "
                                  "%s }, %s, %s, %s, %s, tile, &a, \1_epilogue);",
                                  a.arg, a.ty, s.ta, a.ld, a.step, ready, w.arg, w.ty, s.tb, w.ld,
                                  w.step, s.Bc, s.Mc, s.Nc, s.Kc));
                build_end(&b, grid_blocks(1));
                return;
        }
        int align = align_bytes(a.dt,
                                a.align | (s.ta ? s.M : s.K).n | w.align | (s.tb ? s.K : s.N).n);
        Gemm rows;
        const bool several = !decoded && gemm_rows_problem(e, n, align, &rows);
        /* (a kernel that reads its weight before it waits must not get one that was just
         * decoded) */
        if (!decoded && s.tb && !s.ta && !s.lead && e->most_t == 1 && a.dt != DT_F32 &&
            a.dt == w.dt && align == 16 && fixed_m && dim_known(e, s.K)) {
                GemvMma mma = gemv_mma((int)s.m_most, N, (int)s.k_most, false, ANY_SMS);
                if (mma.warps) {
                        b.any.waits = true;
                        b.streams = true;
                        build_line(&b, "const PlainPrologue<%s> prologue = { %s, %s };",
                                   c_type(a.dt), a.arg, a.ld);
                        build_line(&b, "\1_epilogue epilogue = { a };");
                        if (several)
                                forms_add(&b, FAMILY_gemm_rows, &rows);
                        build_mma(&b, &mma, c_type(a.dt), (int)s.m_most, N, s.k_most,
                                  norm_text(NORM_NONE),
                                  arena_fmt(e->tmp, "%s, %s, 0.f", w.arg, w.ld), "");
                        return;
                }
        }
        Gemm p = { .dt = a.dt,
                   .ta = s.ta,
                   .tb = s.tb,
                   .M = s.m_most,
                   .N = N,
                   .K = s.k_most,
                   .align = align,
                   .epilogue_bytes = epilogue.bytes / ((double)s.m_most * (double)N),
                   .reads = epilogue.reads,
                   .fixed = fixed_m,
                   .rows = s.M,
                   .single_wave = fixed_m };
        p.n_stored = epilogue.n_stored;
        memcpy(p.stored, epilogue.stored, sizeof p.stored);
        p.from = epilogue.from;
        Sums sums = { column_beside(e, gr->anchor), -1, 0 };
        Ways ways = { .cut = !s.lead,
                      .most = !fixed || !p.fixed,
                      .sums = sums.columns,
                      .batch = s.b_most,
                      .epilogue = epilogue_key(e, &gr->epilogue[0]) };
        ways.maps = !s.lead && fixed && (p.fixed || !s.ta) && sm90_gemm_takes(e, a.dt) &&
                    slot_of(e, n->in[0], &p.a, &p.lda) && slot_of(e, n->in[1], &p.w, &p.ldw);
        Pick pick = product_pick(e, &p, &ways);
        const Other other = several   ? (Other) { FAMILY_gemm_rows, &rows }
                            : streams ? (Other) { FAMILY_stored_gemm, &stored }
                                      : (Other) { 0 };
        if (other.problem)
                pick.tile[ARCH_SM90A] = NULL, pick.splits[ARCH_SM90A] = 1;
        const Tile *t = pick.tile[ARCH_ANY];
        const Tile *sm90 = pick.tile[ARCH_SM90A];
        b.any.threads = t->threads;
        b.any.smem = t->smem;
        b.any.min_blocks = t->min_blocks;
        b.alone = t->rounds;
        if (sm90 && sm90->schedule && sums.columns) {
                sums.n = sm90_row_sums(&p, sm90, pick.splits[ARCH_SM90A]);
                sums.work = column_work(e, sums.columns, sums.n);
        }
        if (pick.splits[ARCH_ANY] > 1) {
                split_gemm(e, gr, &b, &puts, &s, &p, &pick, &other, &sums);
        } else {
                const char *types = arena_fmt(e->tmp, "%s, %s, %s, %s, %d", c_type(a.dt), t->name,
                                              s.ta ? "true" : "false", s.tb ? "true" : "false",
                                              align);
                const char *operands = arena_fmt(e->tmp, "%s, %s, %s, %s, %s, %s, %s", a.arg, a.ld,
                                                 w.arg, w.ld, s.Mc, s.Nc, s.Kc);
                build_line(&b, "\1_epilogue epilogue = { a };");
                const GemmNormWork with_norm = { norm, &pick, &p, types, operands };
                if (other.problem)
                        forms_add(&b, other.family, other.problem);
                else if (!(norm && fixed && forms_add(&b, FAMILY_gemm_norm, &with_norm)) && sm90) {
                        sm90_gemm_transpose(&b, &p);
                        forms_add(&b, FAMILY_gemm,
                                  &(GemmWork) { .p = &p,
                                                .pick = &pick,
                                                .forced = pick.forced,
                                                .sums = sums_arg(e, &b, &sums) });
                }
                if (s.lead)
                        gemm_batch_body(&b, s.Mc, s.Nc, s.Kc, t, types, &a, &w);
                else
                        build_line(&b, "gemm_task<%s>(%s, tile, smem, epilogue);", types, operands);
                build_end(&b, grid_times(grid_dim(e, s.batch), tiles_of(e, &s, t)));
        }
        if (sums.columns)
                column_sums(e, sums.columns, sums.work, sums.n);
        product_end(e, &pick);
        if (decoded)
                blocks_done(e, n->in[1]);
}

void gen_gemm(Emit *e, const Group *gr)
{
        switch (NODE(e->g, gr->anchor)->op) {
        case OP_MATMUL: matmul(e, gr); break;
        case OP_EXPERT_MATMUL:
        case OP_EXPERT_GRAD:
        case OP_EXPERT_ROWS: gen_grouped_gemm(e, gr); break;
        default: gen_loss(e, gr);
        }
}
