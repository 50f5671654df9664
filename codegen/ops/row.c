/* row.c: emits ops along the last axis: norms, softmax, reductions, cross-entropy.
 *
 * A row op is one launch, with one exception: the norms' backward with the gradients of gain and
 * bias (rmsnorm_back, layernorm_back).  There each block sums over its rows, and a second launch
 * adds the blocks' sums in order. */
#include "ops.h"
#include <string.h>

/* Threads of a block for rows of n; 0: known at run time. As row_part.cuh advises. */
static int row_threads(int64_t n)
{
        return n == 0 ? 512 : n <= 1024 ? 128 : n <= 4096 ? 256 : n <= 16384 ? 512 : 1024;
}

/* The mirror of ROW_ROWS in row_part.cuh. */
static int rows_per_tile(int64_t n, int threads)
{
        int lanes = threads;
        if (n && n <= 128)
                for (lanes = 1; lanes < (n + 7) / 8; lanes *= 2)
                        ;
        else if (n && n <= 1024)
                lanes = 32;
        return threads / lanes;
}

/* What does the work: a header of norm/ in CUDA; one for all of them in C. */
static const char *row_header(Emit *e, const char *cuda) { return is_cuda(e) ? cuda : "rows"; }

static const char *num(Emit *e, double x)
{
        char s[32];
        num_text(x, s);
        return arena_fmt(e->tmp, strpbrk(s, ".en") ? "%sf" : "%s.f", s);
}

/* four a multiprocessor on the largest GPUs; with fewer, latency is the time */
enum { NORM_BLOCKS = 4 * ANY_SMS };

static int64_t row_groups(Emit *e, Dim rows, int64_t n, int threads)
{
        int per = rows_per_tile(n, threads);
        return (dim_most(e, rows) + per - 1) / per;
}

static void norm(Emit *e, const Group *gr, const char *kind)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Functor *x = &gr->prologue[0];
        const char *rows = dim_c(e, x->rows), *eps = num(e, n->a.num.x);
        int th = row_threads(x->n);
        Build b = build_start(e, gr, row_header(e, "norm"), op_info[n->op].text);
        build_functor(&b, x, "prologue");
        build_functor(&b, &gr->epilogue[0], "epilogue");
        if (is_cuda(e)) {
                b.any.threads = th;
                b.any.smem = 256;
                if (e->done_sm90[gr->anchor])
                        form_leave_out(&b, ARCH_SM90A);
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "\1_epilogue epilogue = { a };");
                build_line(&b, "norm_task<%s, %lld, %d%s>(%s, tile, %s, smem, prologue, epilogue);",
                           kind, (long long)x->n, th,
                           row_groups(e, x->rows, x->n, th) <= NORM_BLOCKS ? ", true" : "", rows,
                           eps);
                build_end(&b, grid_ceil(e, x->rows, rows_per_tile(x->n, th)));
        } else {
                build_cpu_loop(
                        &b, rows, b.bytes,
                        arena_fmt(e->tmp,
                                  "norm_task(%s, %lld, %s, NULL, NULL, tile, &a, \1_prologue, "
                                  "\1_epilogue);",
                                  kind, (long long)x->n, eps));
                build_end(&b, grid_blocks(1));
        }
}

static void norm_grad(Emit *e, const Group *gr, const char *kind)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Functor *x = &gr->prologue[0];
        const char *rows = dim_c(e, x->rows), *eps = num(e, n->a.num.x);
        int th = row_threads(x->n);
        Build b = build_start(e, gr, row_header(e, "norm_grad"), op_info[n->op].text);
        build_functor(&b, x, "prologue_x");
        build_functor(&b, &gr->prologue[1], "prologue_dy");
        build_functor(&b, &gr->epilogue[0], "epilogue");
        if (is_cuda(e)) {
                b.any.threads = th;
                b.any.smem = 256;
                build_line(&b, "\1_prologue_x prologue_x = { a };");
                build_line(&b, "\1_prologue_dy prologue_dy = { a };");
                build_line(&b, "\1_epilogue epilogue = { a };");
                build_line(&b,
                           "norm_grad_task<%s, %lld, %d, 0>(%s, tile, (%s + %d) / %d, %s, smem, "
                           "prologue_x, prologue_dy, epilogue, (float *)0, (float *)0);",
                           kind, (long long)x->n, th, rows, rows, rows_per_tile(x->n, th) - 1,
                           rows_per_tile(x->n, th), eps);
                build_end(&b, grid_ceil(e, x->rows, rows_per_tile(x->n, th)));
        } else {
                build_cpu_loop(&b, rows, b.bytes,
                               arena_fmt(e->tmp,
                                         "norm_grad_task(%s, %lld, %s, NULL, NULL, tile, &a, "
                                         "\1_prologue_x, \1_prologue_dy, \1_epilogue);",
                                         kind, (long long)x->n, eps));
                build_end(&b, grid_blocks(1));
        }
}

/* A matrix of 16-bit values that is read as it lies, 16 bytes at a time. */
static bool plain_rows(Emit *e, Build *b, const Functor *f, Ref r, Mat *m)
{
        return !f->n_nodes && dt_size[NODE(e->g, r)->type.dt] == 2 && mat_of(e, b, r, 0, m) &&
               m->align % 8 == 0;
}

/* Rows enough that reading them ahead pays (norm_backward.cuh). */
static bool reads_ahead(Build *b, const Group *gr, int64_t groups, int maxv, Mat *x, Mat *g)
{
        const Node *n = NODE(b->e->g, gr->anchor);
        int64_t N = gr->prologue[0].n;
        return is_cuda(b->e) && groups >= 4 * NORM_BLOCKS && N % 8 == 0 && N <= 8192 && maxv == 8 &&
               plain_rows(b->e, b, &gr->prologue[0], n->in[0], x) &&
               plain_rows(b->e, b, &gr->prologue[1], n->in[1], g) && x->dt == g->dt;
}

static void norm_back(Emit *e, const Group *gr, const char *kind)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Functor *x = &gr->prologue[0];
        bool layer = n->op == OP_LAYERNORM_BACK;
        const char *rows = dim_c(e, x->rows), *eps = num(e, n->a.num.x);
        int th = row_threads(x->n), per = rows_per_tile(x->n, th);
        Access gain;
        Build b = build_start(e, gr, row_header(e, "norm_grad"), op_info[n->op].text);
        int64_t groups = row_groups(e, x->rows, x->n, th);
        int blocks = groups < NORM_BLOCKS ? (int)groups : NORM_BLOCKS;
        if (!is_cuda(e))
                blocks = 64; /* NORM_ACC_TILES of cpu_rows.h */
        Mat mx, mg;
        bool ahead = reads_ahead(&b, gr, groups,
                                 build_functor(&b, &gr->epilogue[0], "epilogue").maxv, &mx, &mg);
        int vectors = 0; /* of 8 that a thread has, as norm_backward.cuh has it */
        if (ahead) {
                th = x->n <= 4096 ? 256 : 512;
                per = rows_per_tile(x->n, th);
                vectors = ((int)x->n / 8 + th / per - 1) / (th / per);
                blocks = ANY_SMS * (x->n <= 4096 && vectors <= 2 ? 2 : 1);
        }
        int wg = work_new(e, DIM(blocks * x->n), 4),
            wb = layer ? work_new(e, DIM(blocks * x->n), 4) : 0;
        access_need(e->g, e->place, n->in[2], &gain);
        if (ahead) {
                b.bytes += 4.0 * (double)dim_most(e, x->rows) * (double)x->n;
        } else {
                build_functor(&b, x, "prologue_x");
                build_functor(&b, &gr->prologue[1], "prologue_g");
        }
        const char *ga = arg_of(e, &b.args, gain.base, false),
                   *gt = c_type(NODE(e->g, gain.base)->type.dt);
        const char *dg = arg_work(e, &b.args, wg, C_F32, "dgain"),
                   *db = layer ? arg_work(e, &b.args, wb, C_F32, "dbias") : NULL;
        if (ahead) {
                b.any.include = "norm_backward";
                b.any.threads = th;
                b.any.smem = 256 + 2 * 2 * 16 * th * vectors;
                b.any.min_blocks = blocks / ANY_SMS;
                build_line(&b,
                           "static_assert(NORM_BACK_SMEM(%lld, %d) == %d && NORM_BACK_BLOCKS(%lld) "
                           "== %d, \"as row.c counts it\");",
                           (long long)x->n, th, b.any.smem, (long long)x->n, b.any.min_blocks);
                build_line(&b, "\1_epilogue epilogue = { a };");
                build_line(
                        &b,
                        "norm_back_task<%s, %lld, %d, %s>(%s, tile, %d, %s, smem, %s, %s, %s, %s, "
                        "a.%s + %lld, epilogue, a.%s, %s);",
                        kind, (long long)x->n, th, layer ? "ACC_GAIN | ACC_BIAS" : "ACC_GAIN", rows,
                        blocks, eps, mx.arg, mx.ld, mg.arg, mg.ld, ga, (long long)gain.off, dg,
                        layer ? arena_fmt(e->tmp, "a.%s", db) : "(float *)0");
                build_end(&b, grid_blocks(blocks));
        } else if (is_cuda(e)) {
                b.any.threads = th;
                b.us = 3;
                b.any.smem = 256 + (x->n <= 1024 ? 12 : 8) * (int)x->n;
                text_add(build_decl(&b),
                         "/* the gradient of the output, and that times the gain */\n"
                         "struct \1_prologue_dy {\n"
                         "        static constexpr int MAXV = \1_prologue_g::MAXV, MINV = 1;\n"
                         "        const \1_args &a;\n"
                         "        template <int V> __device__ __forceinline__ void operator()(int "
                         "row, int col, float (&dy)[V], float (&g)[V]) const\n"
                         "        {\n"
                         "                float gain[V];\n"
                         "                \1_prologue_g prologue = { a };\n"
                         "                prologue(row, col, g);\n"
                         "                load<V>(gain, a.%s + %lld + col);\n"
                         "#pragma unroll\n"
                         "                for (int j = 0; j < V; j++)\n"
                         "                        dy[j] = g[j] * gain[j];\n        }\n};\n\n",
                         ga, (long long)gain.off);
                build_line(&b, "\1_prologue_x prologue_x = { a };");
                build_line(&b, "\1_prologue_dy prologue_dy = { a };");
                build_line(&b, "\1_epilogue epilogue = { a };");
                if (groups <= NORM_BLOCKS)
                        build_prefetch(&b, PREFETCH_REST,
                                       &(Slot) { .kind = SLOT_NODE,
                                                 .id = value_base(e->g, n->in[1]) },
                                       NULL);
                build_line(&b,
                           "norm_grad_task<%s, %lld, %d, %s%s>(%s, tile, %d, %s, smem, prologue_x, "
                           "prologue_dy, epilogue, a.%s, %s);",
                           kind, (long long)x->n, th, layer ? "ACC_GAIN | ACC_BIAS" : "ACC_GAIN",
                           groups <= NORM_BLOCKS ? ", true, PREFETCH" : "", rows, blocks, eps, dg,
                           layer ? arena_fmt(e->tmp, "a.%s", db) : "(float *)0");
                build_end(&b, grid_blocks(blocks));
        } else {
                text_add(build_decl(&b),
                         "/* the gradient of the output, and that times the gain */\n"
                         "TGC_INLINE void \1_prologue_dy(const void *args, long row, int col, int "
                         "n, float *dy, float *g)\n"
                         "{\n"
                         "        const \1_args *a = args;\n"
                         "        float gain[TGC_SEG];\n"
                         "        \1_prologue_g(args, row, col, n, g);\n"
                         "        load_%s(gain, a->%s + %lld + col, n);\n"
                         "        for (int j = 0; j < n; j++)\n"
                         "                dy[j] = g[j] * gain[j];\n}\n\n",
                         gt, ga, (long long)gain.off);
                build_cpu_loop(&b, arena_fmt(e->tmp, "norm_acc_tiles(%s)", rows), b.bytes,
                               arena_fmt(e->tmp,
                                         "norm_grad_acc_task(%s, %lld, %s, %s, a.%s, %s, tile, &a, "
                                         "\1_prologue_x, \1_prologue_dy, \1_epilogue);",
                                         kind, (long long)x->n, eps, rows, dg,
                                         layer ? arena_fmt(e->tmp, "a.%s", db) : "NULL"));
                build_end(&b, grid_blocks(1));
        }
        const char *parts = is_cuda(e) ? arena_fmt(e->tmp, "%d", blocks)
                                       : arena_fmt(e->tmp, "norm_acc_tiles(%s)", rows);
        if (gr->epilogue[1].root)
                column_parts(e, gr, wg, parts, 0, &gr->epilogue[1], "norm_gain_grad");
        if (layer && gr->epilogue[2].root)
                column_parts(e, gr, wb, parts, 0, &gr->epilogue[2], "norm_bias_grad");
}

/* softmax and its gradient, and reductions: the row's length may be a run-time value. */
static void row_general(Emit *e, const Group *gr, const char *header, const char *task,
                        const char *kind, int prologues)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Functor *x = &gr->prologue[0];
        const char *rows = dim_c(e, x->rows), *len = dim_c(e, x->shape.dim[x->shape.rank - 1]),
                   *k = *kind ? arena_fmt(e->tmp, "%s, ", kind) : "";
        int th = row_threads(x->n);
        Build b = build_start(e, gr, row_header(e, header), op_info[n->op].text);
        build_functor(&b, x, "prologue");
        if (prologues == 2)
                build_functor(&b, &gr->prologue[1], "prologue_dy");
        build_functor(&b, &gr->epilogue[0], "epilogue");
        const char *extra = prologues == 2 ? "prologue_dy, " : "";
        if (is_cuda(e)) {
                b.any.threads = th;
                b.any.smem = 256;
                build_line(&b, "\1_prologue prologue = { a };");
                if (prologues == 2)
                        build_line(&b, "\1_prologue_dy prologue_dy = { a };");
                build_line(&b, "\1_epilogue epilogue = { a };");
                build_line(&b, "%s<%s%lld, %d>(%s, %s, tile, smem, prologue, %sepilogue);", task, k,
                           (long long)x->n, th, rows, len, extra);
                build_end(&b, grid_ceil(e, x->rows, rows_per_tile(x->n, th)));
        } else {
                build_cpu_loop(&b, rows, b.bytes,
                               arena_fmt(e->tmp, "%s(%s%s, tile, &a, \1_prologue, %s\1_epilogue);",
                                         task, k, len, prologues == 2 ? "\1_prologue_dy, " : ""));
                build_end(&b, grid_blocks(1));
        }
}

static void argmax(Emit *e, const Group *gr)
{
        const Functor *x = &gr->prologue[0];
        const char *rows = dim_c(e, x->rows), *len = dim_c(e, x->shape.dim[x->shape.rank - 1]);
        int th = row_threads(x->n);
        Build b = build_start(e, gr, row_header(e, "reduce"), "argmax");
        build_functor(&b, x, "prologue");
        const char *out = arg_of(e, &b.args, gr->anchor, true);
        if (is_cuda(e)) {
                b.any.threads = th;
                b.any.smem = 256;
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "argmax_task<%lld, %d>(%s, %s, tile, smem, prologue, a.%s);",
                           (long long)x->n, th, rows, len, out);
                build_end(&b, grid_ceil(e, x->rows, rows_per_tile(x->n, th)));
        } else {
                build_cpu_loop(&b, rows, b.bytes,
                               arena_fmt(e->tmp,
                                         "a.%s[tile] = argmax_task(%s, tile, &a, \1_prologue);",
                                         out, len));
                build_end(&b, grid_blocks(1));
        }
}

/* Storage that a family addresses by itself: a plain matrix of rows. */
static const char *matrix_arg(Emit *e, Build *b, Ref r, bool write, const char **ld)
{
        Access a;
        Dim d;
        access_need(e->g, e->place, r, &a);
        if (!access_rows(&a, &d))
                error_internal(NODE(e->g, r)->loc, "%%%s is no matrix of rows",
                               NODE(e->g, r)->name);
        *ld = dim_c(e, d);
        const char *name = arg_of(e, &b->args, a.base, write);
        return a.off ? arena_fmt(e->tmp, "(a.%s + %lld)", name, (long long)a.off)
                     : arena_fmt(e->tmp, "a.%s", name);
}

/* By node: the first of its results that is a node, and after such a one the next. */
static void ce(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        bool grad = n->op == OP_CE_GRAD;
        const Type *lt = &NODE(e->g, n->in[0])->type;
        int64_t V = lt->dim[lt->rank - 1].n;
        const char *ld, *ldd, *t, *rows = dim_c(e, type_rows(lt)), *type;
        Build b = build_start(e, gr, "cross_entropy", op_info[n->op].text);
        const char *logits = matrix_arg(e, &b, n->in[0], false, &ld),
                   *targets = matrix_arg(e, &b, n->in[1], false, &t);
        Access la;
        access_need(e->g, e->place, n->in[0], &la);
        type = c_type(NODE(e->g, la.base)->type.dt);
        int th = V >= 8192 ? 512 : 256;
        b.any.threads = th;
        b.any.smem = 256;
        b.bytes = b.flops = 0;
        if (!grad) {
                Ref lse = item_of(e, gr->anchor, 1);
                const char *loss = arg_of(e, &b.args, gr->anchor, true), *l;
                l = lse          ? arena_fmt(e->tmp, "a.%s", arg_of(e, &b.args, lse, true))
                    : is_cuda(e) ? "(float *)0"
                                 : "NULL";
                if (is_cuda(e)) {
                        build_line(&b, "ce_task<%s, %lld, %d>(%s, %s, %s, a.%s, %s, tile, smem);",
                                   type, (long long)V, th, logits, ld, targets, loss, l);
                        build_end(&b, grid_dim(e, type_rows(lt)));
                } else {
                        build_functor(&b, &gr->prologue[0], "prologue");
                        build_cpu_loop(
                                &b, rows, 1e9,
                                arena_fmt(e->tmp,
                                          "ce_task(%lld, %s, a.%s, %s, tile, &a, \1_prologue);",
                                          (long long)V, targets, loss, l));
                        build_end(&b, grid_blocks(1));
                }
                return;
        }
        build_functor(&b, &gr->prologue[3], "dloss");
        const char *lse = matrix_arg(e, &b, n->in[2], false, &t);
        if (is_cuda(e)) {
                const char *d = matrix_arg(e, &b, gr->anchor, true, &ldd);
                build_line(&b, "\1_dloss dloss = { a };");
                build_line(&b, "ce_grad_task<%s, %lld, %d>(%s, %s, %s, %s, %s, %s, tile, dloss);",
                           type, (long long)V, th, logits, ld, d, ldd, targets, lse);
                build_end(&b, grid_dim(e, type_rows(lt)));
        } else {
                build_functor(&b, &gr->prologue[0], "prologue");
                build_functor(&b, &gr->epilogue[0], "epilogue");
                build_cpu_loop(
                        &b, rows, 1e9,
                        arena_fmt(e->tmp,
                                  "ce_grad_task(%lld, %s, %s, tile, &a, \1_prologue, \1_dloss, "
                                  "\1_epilogue);",
                                  (long long)V, targets, lse));
                build_end(&b, grid_blocks(1));
        }
}

/* A token's row of the cache, of which n is the append: text of an expression. */
static const char *place_text(Emit *e, const Node *n, const char *token)
{
        const Node *state = NODE(e->g, n->in[0]);
        const Type *x = &NODE(e->g, n->in[1])->type;
        const int pool = pool_of(e, state->a.cache.window);
        Arena *a = e->tmp;
        if (e->ragged)
                return arena_fmt(a, "rt->token[%s].place[%d]", token, pool);
        if (e->paged)
                return arena_fmt(a, "rt->place[%d][%s]", pool, token);
        const char *T = dim_c(e, x->dim[1]), *slots = dim_c(e, state->type.dim[1]);
        return arena_fmt(a, "(long)(%s / %s) * %s + rt->pos[%s / %s] + %s %% %s", token, T, slots,
                         token, T, token, T);
}

static void append_rows(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Functor *x = &gr->prologue[1];
        const Type *t = &NODE(e->g, n->in[0])->type;
        const long long K = t->dim[2].n, D = t->dim[3].n, row = fp8_row_bytes(K, D);
        const char *rows = dim_c(e, x->rows);
        const int th = 128;
        Build b = build_start(e, gr, is_cuda(e) ? "append_rows" : "fp8", "append_rows");
        build_functor(&b, x, "prologue");
        const char *cache = arg_of(e, &b.args, n->in[0], true);
        b.bytes += (double)dim_most(e, x->rows) * (double)(D + 1);
        if (is_cuda(e)) {
                b.any.threads = th;
                b.any.smem = 256;
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "const auto place = [&](int token) { return %s; };",
                           place_text(e, n, "token"));
                build_line(&b,
                           "append_rows_task<%lld, %lld, %d>(a.%s, %lld, %s, tile, smem, prologue, "
                           "place);",
                           K, D, th, cache, row, rows);
                build_end(&b, grid_ceil(e, x->rows, rows_per_tile(x->n, th)));
        } else {
                build_cpu_loop(&b, rows, b.bytes,
                               arena_fmt(e->tmp,
                                         "append_rows_task(%lld, %lld, %lld, a.%s, %s, tile, &a, "
                                         "\1_prologue);",
                                         K, D, row, cache,
                                         place_text(e, n, arena_fmt(e->tmp, "(tile / %lld)", K))));
                build_end(&b, grid_blocks(1));
        }
}

static void round_fp8(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Functor *x = &gr->prologue[0];
        const int64_t N = x->n, k = n->a.k.k, G = k && k < N ? k : N;
        const char *rows = dim_c(e, x->rows);
        const int th = row_threads(G);
        Build b = build_start(e, gr, "round_fp8", "round_fp8");
        build_functor(&b, x, "prologue");
        build_functor(&b, &gr->epilogue[0], "epilogue");
        if (!is_cuda(e)) {
                build_cpu_loop(&b, rows, b.bytes,
                               arena_fmt(e->tmp,
                                         "round_fp8_task(%lld, %lld, tile, &a, \1_prologue, "
                                         "\1_epilogue);",
                                         (long long)N, (long long)G));
                build_end(&b, grid_blocks(1));
                return;
        }
        const Grid grid = grid_ceil(e, dim_mul(x->rows, DIM((N + G - 1) / G)),
                                    rows_per_tile(G, th));
        const char *task = arena_fmt(e->tmp, "<%lld, %lld, %d>", (long long)N, (long long)G, th);
        b.any.threads = th;
        b.any.smem = 256;
        build_line(&b, "\1_prologue prologue = { a };");
        if (sm90_fp8_codes(e, gr->anchor)) { /* in place of its values */
                const char *to = arg_of(e, &b.args, gr->anchor, true);
                Form *f = form_begin(&b, ARCH_SM90A, "round_fp8");
                f->threads = th;
                f->smem = 256;
                f->cluster = 1; /* a block each, none stays */
                f->grid = grid;
                build_line(&b,
                           "round_fp8_codes_task%s((unsigned char *)a.%s, %lldl, %s, tile, smem, "
                           "prologue);",
                           task, to, (long long)(2 * N), rows);
                form_begin(&b, ARCH_ANY, NULL);
        }
        build_line(&b, "\1_epilogue epilogue = { a };");
        build_line(&b, "round_fp8_task%s(%s, tile, smem, prologue, epilogue);", task, rows);
        build_end(&b, grid);
}

void gen_row(Emit *e, const Group *gr)
{
        switch (NODE(e->g, gr->anchor)->op) {
        case OP_RMSNORM: norm(e, gr, "NORM_RMS"); break;
        case OP_APPEND_ROWS: append_rows(e, gr); break;
        case OP_ROUND_FP8: round_fp8(e, gr); break;
        case OP_LAYERNORM: norm(e, gr, "NORM_LAYER"); break;
        case OP_RMSNORM_GRAD: norm_grad(e, gr, "NORM_RMS"); break;
        case OP_LAYERNORM_GRAD: norm_grad(e, gr, "NORM_LAYER"); break;
        case OP_RMSNORM_BACK: norm_back(e, gr, "NORM_RMS"); break;
        case OP_LAYERNORM_BACK: norm_back(e, gr, "NORM_LAYER"); break;
        case OP_SOFTMAX: row_general(e, gr, "softmax", "softmax_task", "", 1); break;
        case OP_SOFTMAX_GRAD: row_general(e, gr, "softmax", "softmax_grad_task", "", 2); break;
        case OP_SUM: row_general(e, gr, "reduce", "reduce_task", "RED_SUM", 1); break;
        case OP_ROWMAX: row_general(e, gr, "reduce", "reduce_task", "RED_MAX", 1); break;
        case OP_LOGSUMEXP: row_general(e, gr, "reduce", "reduce_task", "RED_LOGSUMEXP", 1); break;
        case OP_ARGMAX: argmax(e, gr); break;
        default: ce(e, gr);
        }
}
