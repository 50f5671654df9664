/* loss.c: emits the last linear with cross-entropy, in chunks of rows.
 *
 * A chunk's logits go to a scratch matrix.  From them come the loss and, for training, their
 * gradient in the same place; from that come the chunk's rows of dx and its share of dw.  The
 * scratch takes at most CHUNK_CUDA (or ONE_CUDA) or CHUNK_CPU bytes, whatever the batch, so logits
 * never exist whole in memory.
 *
 *      for each chunk:  s = x w^T (+ bias);  loss, s = ce(s);  dx = s w;  dw += s^T x;  dbias +=
 *      columns of s
 *
 * loss_exp.c needs no pass over s between the GEMMs.  loss_small_vocab.c does all but dw in one
 * launch.
 *
 * Rows of the scratch are padded with zeros to a multiple of 8 elements, large ones to a multiple
 * of 64.  So GEMMs can read 16 bytes at a time although the vocabulary is odd, and TMA reads whole
 * lines. */
#include "loss.h"
#include <stdlib.h>
#include <string.h>

/* The GPU needs rows enough for all multiprocessors in the product with K = V, and all of them in
 * one chunk, if they are no more than ONE_CUDA, spare dw a sum; the CPU needs cache. */
static const int64_t CHUNK_CUDA = 1 << 30, ONE_CUDA = (int64_t)1 << 31, CHUNK_CPU = 64 << 20;

const char *scratch_arg(Loss *l, Build *b, bool write)
{
        return (write ? arg_work : arg_done)(l->e, &b->args, l->scratch, ctype_of(l->dt), "logits");
}

/* An epilogue that stores to `to` as dt, rows ld elements apart, after `pre`; CUDA: maxv neighbours
 * at a time at most. */
static void store_epilogue(Loss *l, Build *b, DType dt, int maxv, const char *to, int64_t ld,
                           const char *pre)
{
        if (is_cuda(l->e))
                text_add(build_decl(b),
                         "struct \1_epilogue {\n"
                         "        static constexpr int MAXV = %d, MINV = 1;\n"
                         "        const \1_args &a;\n"
                         "        static constexpr int STORES = %d, WIDTH0 = 2, WIDTH1 = 0, READ = "
                         "0;\n"
                         "        template <int V, class Out = Straight> __device__ "
                         "__forceinline__ void operator()(int row, int col, float (&v)[V], const "
                         "Out &out = Out()) const\n"
                         "        {\n"
                         "%s                out.template put<0>(a.%s + (long)row * %lld + col, "
                         "v);\n"
                         "        }\n};\n\n",
                         maxv, dt_size[dt] == 2, pre, to, (long long)ld);
        else
                build_cpu_functor(b, "epilogue",
                                  arena_fmt(l->e->tmp,
                                            "%s        store_%s(a->%s + row * %lld + col, v, n);\n",
                                            pre, c_type(dt), to, (long long)ld));
}

/* The scratch that argument s is: logits, or their gradient. */
static Mat scratch_mat(const Loss *l, const char *s)
{
        Arena *a = l->e->tmp;
        return (Mat) { .arg = arena_fmt(a, "a.%s", s),
                       .ld = arena_fmt(a, "%lld", (long long)l->ld),
                       .stride = l->ld };
}

void shift(Build *b, Ref r, int64_t bytes)
{
        Access a;
        access_need(b->e->g, b->e->place, r, &a);
        build_shift(b, arg_of(b->e, &b->args, a.base, false), bytes);
}

static Slot work_slot(int work) { return (Slot) { .kind = SLOT_WORK, .id = work }; }

Slot place_of(Loss *l, Ref r)
{
        Slot s = { 0 };
        int64_t ld;
        if (is_cuda(l->e)) /* C asks for no place, and reads weights in blocks */
                slot_need(l->e, r, &s, &ld);
        return s;
}

Slot chunk_of(Loss *l, Ref r)
{
        Slot s = { 0 };
        int64_t ld = 0;
        slot_need(l->e, r, &s, &ld);
        s.off += l->r0 * ld * dt_size[l->dt];
        return s;
}

Stored logits_rows(const Loss *l)
{
        return (Stored) { work_slot(l->scratch), l->dt, (l->V + 7) / 8 * 8, l->ld, 2 };
}

int logits_gemm(Loss *l, Build *b, const Mat *x, const Mat *w, const Stored *to)
{
        shift(b, l->x, l->r0 * x->stride * dt_size[l->dt]);
        return dense_gemm(b, l->dt,
                          &(DenseGemm) { .a = x,
                                         .w = w,
                                         .tb = true,
                                         .at = chunk_of(l, l->x),
                                         .wt = place_of(l, l->w),
                                         .M = l->rc,
                                         .N = l->V,
                                         .K = l->C,
                                         .align = align_bytes(l->dt, l->C | x->align | w->align),
                                         .epilogue_bytes = dt_size[l->dt],
                                         .to = to });
}

static void logits(Loss *l)
{
        Emit *e = l->e;
        Mat x, w;
        Build b = build_start(e, l->gr, "gemm", "linear_ce_logits");
        mat_need(e, &b, l->x, 0, &x);
        mat_need(e, &b, l->w, 0, &w);
        const char *s = scratch_arg(l, &b, true), *pre = "";
        int maxv = 8; /* whatever V is: a row has room for its padding, which stays zero */
        const Stored to = logits_rows(l);
        if (l->bias && is_cuda(e)) {
                maxv = column_v(l->V, 8);
                pre = arena_fmt(e->tmp,
                                "                float bias[V];\n                if (col < %lld)\n"
                                "                        load<V>(bias, %s + col);\n"
                                "                for (int j = 0; j < V; j++)\n"
                                "                        v[j] += bias[j];\n",
                                (long long)l->V, plain_arg(e, &b, l->bias));
        } else if (l->bias) {
                Access ba;
                access_need(e->g, e->place, l->bias, &ba);
                pre = arena_fmt(e->tmp,
                                "        float bias[TGC_SEG];\n"
                                "        load_%s(bias, (a->%s + %lld) + col, n);\n"
                                "        for (int j = 0; j < n; j++)\n"
                                "                v[j] += bias[j];\n",
                                c_type(NODE(e->g, ba.base)->type.dt),
                                arg_of(e, &b.args, ba.base, false), (long long)ba.off);
        } else if (is_cuda(e) && l->ld != l->V) {
                pre = arena_fmt(e->tmp,
                                "#pragma unroll\n                for (int j = 0; j < V; j++)\n"
                                "                        v[j] = col + j < %lld ? v[j] : 0.f;\n",
                                (long long)l->V);
        }
        store_epilogue(l, &b, l->dt, maxv, s, l->ld, pre);
        logits_gemm(l, &b, &x, &w, maxv == 8 ? &to : NULL);
}

void dloss_text(Loss *l, Build *b)
{
        FunctorText d = build_functor(b, &l->gr->prologue[3], "dloss_all");
        long long r0 = d.by_row ? (long long)l->r0 : 0;
        if (is_cuda(l->e))
                text_add(build_decl(b),
                         "struct \1_dloss {\n"
                         "        static constexpr int MAXV = 1, MINV = 1;\n"
                         "        const \1_args &a;\n"
                         "        template <int V> __device__ __forceinline__ void operator()(int "
                         "row, int col, float (&v)[V]) const\n"
                         "        {\n"
                         "                \1_dloss_all all = { a };\n"
                         "                all(row + %lld, col, v);\n        }\n};\n\n",
                         r0);
        else
                text_add(build_decl(b),
                         "TGC_INLINE void \1_dloss(const void *args, long row, int col, int n, "
                         "float *v)\n"
                         "{\n"
                         "        \1_dloss_all(args, row + %lld, col, n, v);\n}\n\n",
                         r0);
}

static void losses(Loss *l, bool grad)
{
        Emit *e = l->e;
        bool cuda = is_cuda(e);
        Build b = build_start(e, l->gr, "cross_entropy",
                              grad ? "linear_ce_both" : "linear_ce_loss");
        const char *s = scratch_arg(l, &b, true), *targets = plain_arg(e, &b, l->targets);
        const char *lse = arg_work(e, &b.args, l->lse, C_F32, "lse");
        const char *loss = l->loss ? arg_of(e, &b.args, l->loss, true) : lse;
        /* of a short row a warp holds all, without barriers */
        int th = l->V >= 8192 ? 1024 : l->V >= 1024 ? 256 : 32;
        b.any.threads = th;
        b.any.smem = 256;
        if (grad)
                dloss_text(l, &b);
        shift(&b, l->targets, l->r0 * 4);
        build_shift(&b, loss, l->r0 * 4);
        build_shift(&b, lse, l->r0 * 4);
        b.flops = 5.0 * (double)l->rc * (double)l->V;
        b.bytes = (grad ? 2.0 : 1.0) * (double)l->rc * (double)l->V * dt_size[l->dt];
        if (cuda) {
                if (grad) {
                        build_line(&b, "\1_dloss dloss = { a };");
                        build_line(&b,
                                   "ce_both_task<%s, %lld, %d>(a.%s, %lld, %s, a.%s, a.%s, tile, "
                                   "smem, dloss);",
                                   c_type(l->dt), (long long)l->V, th, s, (long long)l->ld, targets,
                                   loss, lse);
                } else {
                        build_line(&b,
                                   "ce_task<%s, %lld, %d>(a.%s, %lld, %s, a.%s, a.%s, tile, smem);",
                                   c_type(l->dt), (long long)l->V, th, s, (long long)l->ld, targets,
                                   loss, lse);
                }
                build_end(&b, grid_blocks(l->rc));
                return;
        }
        build_cpu_rows(&b, l->dt, s, l->ld);
        if (grad)
                store_epilogue(l, &b, l->dt, 0, s, l->ld, "");
        build_cpu_loop(&b, arena_fmt(e->tmp, "%lld", (long long)l->rc), b.flops,
                       grad ? arena_fmt(e->tmp,
                                        "ce_both_task(%lld, %s, a.%s, a.%s, tile, &a, \1_prologue, "
                                        "\1_dloss, \1_epilogue);",
                                        (long long)l->V, targets, loss, lse)
                            : arena_fmt(e->tmp,
                                        "ce_task(%lld, %s, a.%s, a.%s, tile, &a, \1_prologue);",
                                        (long long)l->V, targets, loss, lse));
        build_end(&b, grid_blocks(1));
}

static void grad_x(Loss *l)
{
        Emit *e = l->e;
        Mat w;
        Build b = build_start(e, l->gr, "gemm", "linear_ce_dx");
        const char *s = scratch_arg(l, &b, false), *dx;
        DType out = NODE(e->g, l->dx)->type.dt;
        mat_need(e, &b, l->w, 0, &w);
        dx = arg_of(e, &b.args, l->dx, true);
        if (l->exps)
                exp_dx_epilogue(l, &b, out, dx);
        else
                store_epilogue(l, &b, out, column_v(l->C, 8), dx, l->C, "");
        build_shift(&b, dx, l->r0 * l->C * dt_size[out]);
        const Mat d = scratch_mat(l, s);
        const Stored to = { { .kind = SLOT_NODE, .id = l->dx, .off = l->r0 * l->C * dt_size[out] },
                            out,
                            l->C,
                            l->C,
                            2 };
        dense_gemm(&b, l->dt,
                   &(DenseGemm) { .a = &d,
                                  .w = &w,
                                  .at = work_slot(l->scratch),
                                  .wt = place_of(l, l->w),
                                  .M = l->rc,
                                  .N = l->C,
                                  .K = l->V,
                                  .align = align_bytes(l->dt, l->C | w.align),
                                  .epilogue_bytes = dt_size[out],
                                  .to = column_v(l->C, 8) == 8 ? &to : NULL });
}

/* The accumulation an output was fused with, if it was: its kernel adds to the
 * parameter's gradient; else to the output's own storage. */
static const char *sum_target(Loss *l, Build *b, Ref out, int index, const char **flag)
{
        const Functor *t = &l->gr->epilogue[index];
        Emit *e = l->e;
        const char *yes = is_cuda(e) ? "true" : "1", *no = is_cuda(e) ? "false" : "0";
        for (int i = 0; i < t->n_nodes; i++) {
                const Node *a = NODE(e->g, t->node[i]);
                if (a->op == OP_ACCUM) {
                        *flag = !l->first || a->a.accum.more ? yes
                                : is_cuda(e)                 ? "a.rt->micro > 0"
                                                             : "a->rt->micro > 0";
                        return arg_grad(e, &b->args, a->in[0], DT_F32);
                }
        }
        *flag = l->first ? no : yes;
        return arg_of(e, &b->args, out, true);
}

/* rows: of the target; the product's padding rows lie beyond.  CUDA: the sum so far is read ahead
 * (EpilogueReads). */
static void sum_epilogue(Loss *l, Build *b, const char *to, const char *flag, int64_t rows,
                         int64_t cols)
{
        if (!is_cuda(l->e)) {
                const char *guard = rows ? arena_fmt(l->e->tmp, "if (row < %lld) ", (long long)rows)
                                         : "";
                build_cpu_functor(
                        b, "epilogue",
                        arena_fmt(l->e->tmp,
                                  "        %saccumulate_n(a->%s + row * %lld + col, v, n, %s);\n",
                                  guard, to, (long long)cols, flag));
                return;
        }
        const char *at = arena_fmt(l->e->tmp, "a.%s + (long)row * %lld + col", to, (long long)cols),
                   *inside = rows ? arena_fmt(l->e->tmp, "row < %lld", (long long)rows) : "true",
                   *open = "        template <int V> __device__ __forceinline__ void";
        text_add(build_decl(b),
                 "struct \1_epilogue {\n"
                 "        static constexpr int MAXV = %d, MINV = 1, READS = 2, ROW_READS = 2;\n"
                 "        const \1_args &a;\n"
                 "        template <int V> struct In { Raw<V, float> sum; };\n",
                 cols ? column_v(cols, 4) : 1);
        text_add(build_decl(b),
                 "%s get_rows(int row, int col, In<V> &in) const\n        {\n"
                 "                if (%s && %s)\n"
                 "                        in.sum.get(%s);\n        }\n",
                 open, inside, flag, at);
        text_add(build_decl(b), "%s get_cols(int, In<V> &) const {}\n", open);
        text_add(build_decl(b),
                 "%s operator()(int row, int col, float (&v)[V]) const\n        {\n"
                 "                In<V> in;\n                get_rows(row, col, in);\n"
                 "                (*this)(row, col, v, in);\n        }\n",
                 open);
        text_add(build_decl(b),
                 "%s operator()(int row, int col, float (&v)[V], const In<V> &in) const\n"
                 "        {\n"
                 "                if (%s)\n"
                 "                        accumulate<V>(%s, v, %s, in.sum);\n        }\n};\n\n",
                 open, inside, at, flag);
}

/* Parts of K for dw of a small vocabulary and many rows.  A few tiles of 16-bit products would
 * leave most multiprocessors idle for as long as one takes over all of K: as many parts as fill
 * them, of 192 or more (docs/notebook/loss.md). */
static const Tile *parts_of_k(Loss *l, int *splits)
{
        enum { LEAST_K = 192 };
        *splits = 1;
        if (!is_cuda(l->e))
                return NULL;
        if (l->dt == DT_F32)
                return tile_pick(l->dt, l->ld, l->C, l->rc, 1, splits);
        const Tile *t = tile_pick(l->dt, l->ld, l->C, l->rc, 1, NULL);
        int64_t tiles = (l->ld + t->bm - 1) / t->bm * ((l->C + t->bn - 1) / t->bn);
        if (tiles * 4 <= ANY_SMS)
                *splits = (int)(l->rc / LEAST_K < ANY_SMS / tiles ? l->rc / LEAST_K
                                                                  : ANY_SMS / tiles);
        if (*splits < 1)
                *splits = 1;
        return t;
}

/* dw in such parts, as other gradients of weights.  false: it is one product. */
static bool grad_w_parts(Loss *l, int index)
{
        Emit *e = l->e;
        int splits;
        const Tile *t = parts_of_k(l, &splits);
        long long M = l->ld, N = l->C, K = l->rc;
        if (splits == 1)
                return false;
        Mat x;
        int work = work_new(e, DIM(splits * M * N), 4);
        Build b = build_start(e, l->gr, "gemm", "linear_ce_dw");
        const char *s = scratch_arg(l, &b, false), *flag;
        mat_need(e, &b, l->x, 0, &x);
        const char *ws = arg_work(e, &b.args, work, C_F32, "parts");
        b.any.threads = t->threads;
        b.any.smem = t->smem;
        b.any.min_blocks = t->min_blocks;
        b.flops = 2.0 * (double)M * (double)N * (double)K;
        b.bytes = dt_size[l->dt] * (double)K * (double)(M + N) +
                  4.0 * (double)splits * (double)M * (double)N;
        shift(&b, l->x, l->r0 * x.stride * dt_size[l->dt]);
        build_line(&b,
                   "gemm_split_k_task<%s, %s, true, false, %d, %d>(a.%s, %lld, %s, %s, %lld, %lld, "
                   "%lld, %d, a.%s, tile, smem);",
                   c_type(l->dt), t->name, align_bytes(l->dt, l->C | x.align), column_v(N, 8), s, M,
                   x.arg, x.ld, M, N, K, splits, ws);
        build_end(&b, grid_blocks(splits * ((M + t->bm - 1) / t->bm) * ((N + t->bn - 1) / t->bn)));
        b = build_start(e, l->gr, "gemm", "linear_ce_dw_sum");
        ws = arg_done(e, &b.args, work, C_F32, "parts");
        const char *to = sum_target(l, &b, l->dw, index, &flag);
        sum_epilogue(l, &b, to, flag, l->ld == l->V ? 0 : l->V, N);
        b.any.threads = 256;
        b.flops = (double)splits * (double)M * (double)N;
        b.bytes = 4.0 * b.flops;
        build_line(&b, "\1_epilogue epilogue = { a };");
        build_line(&b, "splitk_reduce_task<256>(a.%s, %d, %lld, %lld, tile, epilogue);", ws, splits,
                   M, N);
        build_end(&b, grid_ceil(e, DIM(M * N), 256 * column_v(N, 4)));
        return true;
}

static void grad_w(Loss *l, int index, bool whole)
{
        Emit *e = l->e;
        Mat x;
        const char *flag;
        if (!whole && grad_w_parts(l, index))
                return;
        Build b = build_start(e, l->gr, "gemm", "linear_ce_dw");
        const char *s = scratch_arg(l, &b, false);
        Slot place;
        if (l->exps) {
                place = exp_x(l, &b, &x);
        } else {
                mat_need(e, &b, l->x, 0, &x);
                shift(&b, l->x, l->r0 * x.stride * dt_size[l->dt]);
                place = chunk_of(l, l->x);
        }
        const char *to = sum_target(l, &b, l->dw, index, &flag);
        sum_epilogue(l, &b, to, flag, l->ld == l->V ? 0 : l->V, l->C);
        const Mat d = scratch_mat(l, s);
        dense_gemm(&b, l->dt,
                   &(DenseGemm) { .a = &d,
                                  .w = &x,
                                  .ta = true,
                                  .at = work_slot(l->scratch),
                                  .wt = place,
                                  .M = l->ld,
                                  .N = l->C,
                                  .K = l->rc,
                                  .align = align_bytes(l->dt, l->C | x.align),
                                  .epilogue_bytes = l->first ? 4 : 8 });
}

static void grad_bias(Loss *l, int index)
{
        Emit *e = l->e;
        const char *flag;
        bool cuda = is_cuda(e);
        Build b = build_start(e, l->gr, cuda ? "columns" : "rows", "linear_ce_dbias");
        const char *s = scratch_arg(l, &b, false), *to = sum_target(l, &b, l->db, index, &flag);
        sum_epilogue(l, &b, to, flag, 0, 0);
        if (cuda) {
                text_add(build_decl(&b),
                         "struct \1_prologue {\n"
                         "        static constexpr int MAXV = 1, MINV = 1;\n"
                         "        const \1_args &a;\n"
                         "        template <int V> __device__ __forceinline__ void operator()(int "
                         "row, int col, float (&v)[V]) const\n"
                         "        {\n"
                         "                load<V>(v, a.%s + (long)row * %lld + col);\n        }\n"
                         "};\n\n",
                         s, (long long)l->ld);
                b.any.threads = 256;
                b.any.smem = 32 * 256;
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "\1_epilogue epilogue = { a };");
                int cols = l->V < 4096 ? 4 : 32; /* a small vocabulary: more rows at once */
                build_line(
                        &b,
                        "column_sum_task<%lld, %d, 256>(%lld, 1, tile, smem, prologue, epilogue);",
                        (long long)l->V, cols, (long long)l->rc);
                build_end(&b, grid_ceil(e, DIM(l->V), cols));
        } else {
                build_cpu_rows(&b, l->dt, s, l->ld);
                build_cpu_loop(
                        &b, arena_fmt(e->tmp, "column_sum_tiles(%lld)", (long long)l->V), 1e9,
                        arena_fmt(
                                e->tmp,
                                "column_sum_task(%lld, %lld, tile, &a, \1_prologue, \1_epilogue);",
                                (long long)l->rc, (long long)l->V));
                build_end(&b, grid_blocks(1));
        }
}

void gen_loss(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        bool grad = n->op == OP_LINEAR_CE_GRAD, both = grad && n->a.ce.both;
        const Type *xt = &NODE(e->g, n->in[0])->type, *wt = &NODE(e->g, n->in[1])->type;
        Access xa;
        access_need(e->g, e->place, n->in[0], &xa);
        Loss l = { .e = e, .gr = gr, .n = n, .x = n->in[0], .w = n->in[1], .targets = n->in[2] };
        int at = both ? 1 : 0;
        l.bias = n->n_in > (grad ? 4 : 3) ? n->in[grad ? 4 : 3] : 0;
        l.loss = !grad || both ? gr->anchor : 0;
        if (grad) {
                l.dx = both ? item_of(e, gr->anchor, 1) : gr->anchor;
                l.dw = item_of(e, gr->anchor, at + 1);
                l.db = item_of(e, gr->anchor, at + 2);
        }
        l.rows = dim_most(e, type_rows(xt));
        l.V = wt->dim[0].n;
        l.C = wt->dim[1].n;
        l.dt = NODE(e->g, xa.base)->type.dt;
        l.ld = l.V < 1024 ? (l.V + 7) / 8 * 8 : (l.V + 63) / 64 * 64;
        int64_t chunk = (is_cuda(e) ? CHUNK_CUDA : CHUNK_CPU) / (l.ld * dt_size[l.dt]);
        chunk = chunk < 128 ? 128 : chunk / 128 * 128;
        if (chunk > l.rows || (is_cuda(e) && l.rows * l.ld * dt_size[l.dt] <= ONE_CUDA))
                chunk = l.rows;
        /* equal chunks, if a count near the least divides the rows: their kernels are then one */
        for (int64_t k = (l.rows + chunk - 1) / chunk, end = k * 2; k <= end; k++)
                if (l.rows % k == 0 && (l.rows / k) % 128 == 0) {
                        chunk = l.rows / k;
                        break;
                }
        l.scratch = work_keep(e, DIM(chunk * l.ld), dt_size[l.dt], "linear_ce_scratch");
        l.lse = work_new(e, DIM(l.rows), 4);
        const bool decoded = is_cuda(e) && node_storage(NODE(e->g, l.w));
        if (decoded)
                blocks_decode(e, gr, l.w, true);
        const bool single_wave = short_fits(&l);
        if (exp_fits(&l))
                exp_start(&l, chunk);
        for (l.r0 = 0; l.r0 < l.rows; l.r0 += chunk) {
                l.rc = l.rows - l.r0 < chunk ? l.rows - l.r0 : chunk;
                l.first = l.r0 == 0;
                if (l.exps) {
                        exp_logits(&l);
                        exp_finish(&l, grad);
                } else if (single_wave) {
                        small_vocab_losses(&l);
                } else {
                        logits(&l);
                        losses(&l, grad);
                }
                if (l.dx && !single_wave)
                        grad_x(&l);
                if (l.dw)
                        grad_w(&l, at + 1, single_wave && dt_size[l.dt] == 2);
                if (l.db)
                        grad_bias(&l, at + 2);
        }
        if (decoded)
                blocks_done(e, l.w);
}
