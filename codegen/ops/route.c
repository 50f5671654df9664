/* route.c: emits top-k, bucket sort, scatter and combine. */
#include "ops.h"

static void topk(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Functor *x = &gr->prologue[0];
        Ref idx = item_of(e, gr->anchor, 1);
        const char *rows = dim_c(e, x->rows);
        Build b = build_start(e, gr, "route", "topk");
        build_functor(&b, x, "prologue");
        const char *v = arg_of(e, &b.args, gr->anchor, true);
        const char *i = idx ? arg_of(e, &b.args, idx, true)
                            : arg_work(e, &b.args, work_new(e, dim_mul(x->rows, DIM(n->a.k.k)), 4),
                                       C_I32, "index");
        if (is_cuda(e)) {
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "topk_task<%lld, %lld, 128>(%s, tile, prologue, a.%s, a.%s);",
                           (long long)x->n, (long long)n->a.k.k, rows, v, i);
                build_end(&b, grid_ceil(e, x->rows, 4));
        } else {
                build_cpu_loop(
                        &b, rows, b.bytes,
                        arena_fmt(e->tmp,
                                  "topk_task(%lld, %lld, a.%s, a.%s, tile, &a, \1_prologue);",
                                  (long long)x->n, (long long)n->a.k.k, v, i));
                build_end(&b, grid_blocks(1));
        }
}

static void route(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Functor *x = &gr->prologue[0];
        long long k = n->a.route.k, E = x->n;
        Ref idx = item_of(e, gr->anchor, 1);
        const char *rows = dim_c(e, x->rows);
        Build b = build_start(e, gr, "route", "route");
        build_functor(&b, x, "prologue");
        const char *v = arg_of(e, &b.args, gr->anchor, true);
        const char *i = idx ? arg_of(e, &b.args, idx, true)
                            : arg_work(e, &b.args, work_new(e, dim_mul(x->rows, DIM(k)), 4), C_I32,
                                       "index");
        if (is_cuda(e)) {
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "route_task<%lld, %lld, %s, 128>(%s, tile, prologue, a.%s, a.%s);",
                           E, k, n->a.route.renorm ? "true" : "false", rows, v, i);
                build_end(&b, grid_ceil(e, x->rows, 4));
        } else {
                build_cpu_loop(
                        &b, rows, b.bytes,
                        arena_fmt(
                                e->tmp,
                                "route_task(%lld, %lld, %lld, a.%s, a.%s, tile, &a, \1_prologue);",
                                E, k, (long long)n->a.route.renorm, v, i));
                build_end(&b, grid_blocks(1));
        }
}

static void topk_grad(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Functor *x = &gr->prologue[0];
        const char *rows = dim_c(e, x->rows);
        Build b = build_start(e, gr, "route", "topk_grad");
        build_functor(&b, x, "prologue");
        build_functor(&b, &gr->epilogue[0], "epilogue");
        const char *i = plain_arg(e, &b, n->in[1]);
        if (is_cuda(e)) {
                b.any.threads = 256;
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "\1_epilogue epilogue = { a };");
                build_line(&b, "topk_grad_task<%lld, %lld, 256>(%s, tile, %s, prologue, epilogue);",
                           (long long)n->a.k.k, (long long)x->n, rows, i);
                build_end(&b, grid_ceil(e, dim_mul(x->rows, DIM(n->a.k.k)), 4096));
        } else {
                build_cpu_loop(&b, rows, b.bytes,
                               arena_fmt(e->tmp,
                                         "topk_grad_task(%lld, %lld, %s, tile, &a, \1_prologue, "
                                         "\1_epilogue);",
                                         (long long)n->a.k.k, (long long)x->n, i));
                build_end(&b, grid_blocks(1));
        }
}

enum { FEW_IDS = 2048 };

static void bucket(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        int64_t k = n->a.k.k, tiles = k < 128 ? k : 128;
        Ref offs = item_of(e, gr->anchor, 1);
        const char *P = dim_c(e, type_elems(&NODE(e->g, n->in[0])->type));
        if (tiles < (k + 511) / 512)
                tiles = (k + 511) / 512;
        Build b = build_start(e, gr, "route", "bucket");
        const char *ids = plain_arg(e, &b, n->in[0]), *perm = arg_of(e, &b.args, gr->anchor, true);
        const char *o = offs ? arg_of(e, &b.args, offs, true)
                             : arg_work(e, &b.args, work_new(e, DIM(k + 1), 4), C_I32, "offs");
        if (is_cuda(e)) {
                /* few ids are at once in the registers of as many threads as a norm's launch has
                 * room for */
                const bool few = dim_most(e, type_elems(&NODE(e->g, n->in[0])->type)) <= FEW_IDS;
                /* a thread for each bucket of a tile */
                b.any.threads = few && (k + tiles - 1) / tiles <= 256 ? 256 : 512;
                b.any.min_blocks = 2; /* of what it is launched with, too */
                b.us = 4.5;           /* 1024 ids: reading them twice, and a few barriers */
                b.plain = true;
                b.any.smem = (int)((b.any.threads / 32 * ((k + tiles - 1) / tiles) + 64) * 4);
                build_line(&b,
                           "bucket_task<%d>(%s, %s, %lld, tile, %lld, a.%s, (int *)0, a.%s, smem);",
                           b.any.threads, ids, P, (long long)k, (long long)tiles, perm, o);
                build_end(&b, grid_blocks(tiles));
        } else {
                build_line(&b, "bucket_task(%s, %s, %lld, a.%s, NULL, a.%s);", ids, P, (long long)k,
                           perm, o);
                build_end(&b, grid_blocks(1));
        }
}

/* C text: whether the epilogue does nothing but add to a gradient.  Of an embedding that is the
 * output's weight too most rows get nothing. */
static const char *adds_only(const Emit *e, const Functor *epilogue)
{
        const Node *a = epilogue->n_nodes == 1 && !e->stored[epilogue->root]
                                ? NODE(e->g, epilogue->node[0])
                                : NULL;
        return !a || a->op != OP_ACCUM ? "0" : a->a.accum.more ? "1" : "a.rt->micro > 0";
}

/* Buckets that are so long on average are summed by many blocks: all of an expert's slots, not an
 * embedding's few. */
enum { LONG_BUCKET = 128 };

static void scatter(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        int64_t k = n->a.k.k, N = n->type.rank > 1 ? n->type.dim[1].n : 1;
        Functor x = gr->prologue[0], t = gr->epilogue[0];
        if (n->type.rank == 1) {
                x.rows = x.shape.dim[0];
                x.n = t.n = 1;
                t.rows = DIM(k);
        }
        Build b = build_start(e, gr, "route", "scatter");
        build_functor(&b, &x, "prologue");
        build_functor(&b, &t, "epilogue");
        const char *perm = plain_arg(e, &b, n->in[1]), *offs = plain_arg(e, &b, n->in[2]);
        if (is_cuda(e)) {
                const int cols = k < ANY_SMS ? 64 : (int)(N + 255) / 256 * 256;
                const int64_t rows = dim_most(e, NODE(e->g, n->in[1])->type.dim[0]);
                const bool long_ones = k < ANY_SMS && rows >= LONG_BUCKET * k;
                b.any.threads = 256;
                b.any.smem = 32 * 256;
                b.plain = *adds_only(e, &t) != '0';
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "\1_epilogue epilogue = { a };");
                build_line(&b,
                           "scatter_rows_task<%lld, %d, 256%s>(%lld, %s, %s, %s, tile, smem, "
                           "prologue, epilogue);",
                           (long long)N, cols, long_ones ? ", 1" : "", (long long)k, perm, offs,
                           adds_only(e, &t));
                build_end(&b, grid_times(grid_ceil(e, DIM(k), long_ones ? 1 : 8),
                                         grid_ceil(e, DIM(N), cols)));
        } else {
                build_cpu_loop(
                        &b, arena_fmt(e->tmp, "%lld", (long long)k), b.bytes,
                        arena_fmt(e->tmp,
                                  "scatter_rows_task(%lld, %s, %s, %s, tile, &a, \1_prologue, "
                                  "\1_epilogue);",
                                  (long long)N, perm, offs, adds_only(e, &t)));
                build_end(&b, grid_blocks(1));
        }
}

static void combine(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Type *y = &NODE(e->g, n->in[0])->type;
        int64_t k = y->dim[y->rank - 2].n, N = y->dim[y->rank - 1].n;
        const char *rows = dim_c(e, gr->epilogue[0].rows);
        Build b = build_start(e, gr, "route", "combine");
        build_functor(&b, &gr->prologue[0], "prologue");
        build_functor(&b, &gr->epilogue[0], "epilogue");
        const char *gate = n->n_in == 2 ? plain_arg(e, &b, n->in[1])
                           : is_cuda(e) ? "(const float *)0"
                                        : "NULL";
        if (is_cuda(e)) {
                b.any.threads = 256;
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "\1_epilogue epilogue = { a };");
                build_line(&b, "combine_task<%lld, %lld, 256>(%s, tile, %s, prologue, epilogue);",
                           (long long)N, (long long)k, rows, gate);
                build_end(&b, grid_ceil(e, dim_mul(gr->epilogue[0].rows, DIM(N)), 4096));
        } else {
                build_cpu_loop(
                        &b, rows, b.bytes,
                        arena_fmt(
                                e->tmp,
                                "combine_task(%lld, %lld, %s, tile, &a, \1_prologue, \1_epilogue);",
                                (long long)k, (long long)N, gate));
                build_end(&b, grid_blocks(1));
        }
}

static void gen_route(Emit *e, const Group *gr)
{
        switch (NODE(e->g, gr->anchor)->op) {
        case OP_TOPK: topk(e, gr); break;
        case OP_ROUTE: route(e, gr); break;
        case OP_TOPK_GRAD: topk_grad(e, gr); break;
        case OP_BUCKET: bucket(e, gr); break;
        case OP_SCATTER: scatter(e, gr); break;
        default: combine(e, gr);
        }
}

void gen_group(Emit *e, const Group *gr)
{
        if (!gr->anchor) {
                gen_map(e, gr);
                return;
        }
        switch (op_info[NODE(e->g, gr->anchor)->op].cls) {
        case CLASS_ROW: gen_row(e, gr); break;
        case CLASS_COL: gen_column(e, gr); break;
        case CLASS_MATMUL: gen_gemm(e, gr); break;
        case CLASS_ATTENTION: gen_attention(e, gr); break;
        case CLASS_UPDATE: gen_sample(e, gr); break;
        default: gen_route(e, gr);
        }
}
