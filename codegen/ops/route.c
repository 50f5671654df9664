/* route.c: top-k, bucket sort, scatter, combine; the optimiser. */
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
                                       "int", "index");
        if (is_cuda(e)) {
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "topk_task<%lld, %lld, 128>(%s, tile, prologue, a.%s, a.%s);",
                           (long long)x->n, (long long)n->a.k.k, rows, v, i);
                build_end(&b, arena_fmt(e->tmp, "ceil(%s/4)", dim_grid(e, x->rows)));
        } else {
                build_cpu_loop(
                        &b, rows, b.bytes,
                        arena_fmt(e->tmp,
                                  "topk_task(%lld, %lld, a.%s, a.%s, tile, &a, \1_prologue);",
                                  (long long)x->n, (long long)n->a.k.k, v, i));
                build_end(&b, "1");
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
                            : arg_work(e, &b.args, work_new(e, dim_mul(x->rows, DIM(k)), 4), "int",
                                       "index");
        if (is_cuda(e)) {
                build_line(&b, "\1_prologue prologue = { a };");
                build_line(&b, "route_task<%lld, %lld, %s, 128>(%s, tile, prologue, a.%s, a.%s);",
                           E, k, n->a.route.renorm ? "true" : "false", rows, v, i);
                build_end(&b, arena_fmt(e->tmp, "ceil(%s/4)", dim_grid(e, x->rows)));
        } else {
                build_cpu_loop(
                        &b, rows, b.bytes,
                        arena_fmt(
                                e->tmp,
                                "route_task(%lld, %lld, %lld, a.%s, a.%s, tile, &a, \1_prologue);",
                                E, k, (long long)n->a.route.renorm, v, i));
                build_end(&b, "1");
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
                build_end(&b, arena_fmt(e->tmp, "ceil(%s/4096)",
                                        dim_grid(e, dim_mul(x->rows, DIM(n->a.k.k)))));
        } else {
                build_cpu_loop(
                        &b, rows, b.bytes,
                        arena_fmt(
                                e->tmp,
                                "topk_grad_task(%lld, %lld, %s, tile, &a, \1_prologue, \1_epilogue);",
                                (long long)n->a.k.k, (long long)x->n, i));
                build_end(&b, "1");
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
                             : arg_work(e, &b.args, work_new(e, DIM(k + 1), 4), "int", "offs");
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
                build_end(&b, arena_fmt(e->tmp, "%lld", (long long)tiles));
        } else {
                build_line(&b, "bucket_task(%s, %s, %lld, a.%s, NULL, a.%s);", ids, P, (long long)k,
                           perm, o);
                build_end(&b, "1");
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
                build_line(
                        &b,
                        "scatter_rows_task<%lld, %d, 256%s>(%lld, %s, %s, %s, tile, smem, prologue, epilogue);",
                        (long long)N, cols, long_ones ? ", 1" : "", (long long)k, perm, offs,
                        adds_only(e, &t));
                build_end(&b, arena_fmt(e->tmp, "ceil(%lld/%d)*ceil(%lld/%d)", (long long)k,
                                        long_ones ? 1 : 8, (long long)N, cols));
        } else {
                build_cpu_loop(
                        &b, arena_fmt(e->tmp, "%lld", (long long)k), b.bytes,
                        arena_fmt(
                                e->tmp,
                                "scatter_rows_task(%lld, %s, %s, %s, tile, &a, \1_prologue, \1_epilogue);",
                                (long long)N, perm, offs, adds_only(e, &t)));
                build_end(&b, "1");
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
                build_end(&b, arena_fmt(e->tmp, "ceil(%s/4096)",
                                        dim_grid(e, dim_mul(gr->epilogue[0].rows, DIM(N)))));
        } else {
                build_cpu_loop(
                        &b, rows, b.bytes,
                        arena_fmt(
                                e->tmp,
                                "combine_task(%lld, %lld, %s, tile, &a, \1_prologue, \1_epilogue);",
                                (long long)k, (long long)N, gate));
                build_end(&b, "1");
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

enum { NORM_TILES = 528 };

/* The text of adamw.cuh's Grads. */
static const char *grads(Build *b, int64_t n, int64_t n_low)
{
        Emit *e = b->e;
        const char *g = arg_arena(e, &b->args, "g", n_low ? "bf16" : "float", "g");
        if (!n_low)
                return arena_fmt(e->tmp, "{ 0, 0, a.%s, 0, %lldll }", g, (long long)n);
        return arena_fmt(e->tmp, "{ a.%s, a.%s, (const float *)(a.%s + %lldll), %lldll, %lldll }",
                         g, arg_arena(e, &b->args, "gsum", "float", "sum"), g, (long long)n_low,
                         (long long)n_low, (long long)n);
}

/* CUDA alone: elsewhere all gradients are float32. */
void gen_add_grads(Emit *e, int64_t n, int64_t n_low)
{
        Build b = build_start(e, NULL, "adamw", "grad_add");
        const char *g = grads(&b, n, n_low);
        b.any.threads = 256;
        b.bytes = 10.0 * (double)n_low;
        build_line(&b, "const Grads grads = %s;", g);
        build_line(&b, "grad_add_task<256>(rt, grads, a.sum, tile);");
        build_end(&b, arena_fmt(e->tmp, "ceil(%lld/2048)", (long long)n_low));
}

/* Gradient norm, then AdamW, over the arenas g, p (or w where weights are float32), m, v. */
void gen_update(Emit *e, int64_t n, int64_t n_decay, int64_t n_low, DType dt)
{
        bool cuda = is_cuda(e), low = dt != DT_F32;
        /* nothing of it in the activations: a step's losses may lie there still */
        int parts = work_keep(e, DIM(cuda ? NORM_TILES : (n + 16383) / 16384), cuda ? 4 : 8,
                              "grad_parts");
        int norm = work_keep(e, DIM(1), 4, "grad_norm"), bad = work_keep(e, DIM(1), 4, "bad");
        Build b = build_start(e, NULL, "adamw", cuda ? "grad_norm" : "grad_sumsq");
        const char *g = cuda ? grads(&b, n, n_low) : arg_arena(e, &b.args, "g", "float", "g"),
                   *w = arg_work(e, &b.args, parts, cuda ? "float" : "double", "parts"), *nm;
        b.bytes = 4.0 * (double)n - 2.0 * (double)n_low;
        b.flops = 2.0 * (double)n;
        if (cuda) {
                const char *done = arg_work(e, &b.args, work_keep(e, DIM(1), 4, "grad_done"), "int",
                                            "done");
                nm = arg_work(e, &b.args, norm, "float", "norm");
                const char *bd = arg_work(e, &b.args, bad, "int", "bad");
                b.any.threads = 256;
                b.any.smem = 256;
                build_line(&b, "const Grads grads = %s;", g);
                build_line(
                        &b,
                        "grad_norm_task<256>(rt, grads, tile, %d, a.%s, a.%s, a.%s, a.%s, smem);",
                        NORM_TILES, w, done, nm, bd);
                build_end(&b, arena_fmt(e->tmp, "%d", NORM_TILES));
        } else {
                build_cpu_loop(&b, arena_fmt(e->tmp, "update_tiles(%lld)", (long long)n), 1e9,
                               arena_fmt(e->tmp, "sumsq_task(a.%s, %lld, a.%s, tile);", g,
                                         (long long)n, w));
                build_end(&b, "1");
                b = build_start(e, NULL, "adamw", "grad_norm");
                w = arg_work(e, &b.args, parts, "double", "parts");
                nm = arg_work(e, &b.args, norm, "float", "norm");
                build_line(&b, "norm_finish_task(a.%s, update_tiles(%lld), a.%s, a.%s);", w,
                           (long long)n, nm, arg_work(e, &b.args, bad, "int", "bad"));
                build_end(&b, "1");
        }

        b = build_start(e, NULL, "adamw", "adamw");
        bool split = cuda && dt == DT_BF16;
        const char *p = split ? arg_arena(e, &b.args, "lo", "unsigned short", "lo")
                              : arg_arena(e, &b.args, low ? "p" : "w", "float", "param");
        const char *m = arg_arena(e, &b.args, "m", "float", "m"),
                   *v = arg_arena(e, &b.args, "v", "float", "v_");
        g = cuda ? grads(&b, n, n_low) : arg_arena(e, &b.args, "g", "float", "g");
        const char *l = low ? arg_arena(e, &b.args, "w", c_type(dt), "low") : NULL;
        nm = arg_work(e, &b.args, norm, "float", "norm");
        b.any.threads = 256;
        b.bytes = (double)n * (28 + (low && !split ? 2 : 0)) - 2.0 * (double)n_low;
        b.flops = 12.0 * (double)n;
        if (cuda) {
                b.any.waits = true;
                build_line(&b, "const Grads grads = %s;", g);
                build_line(&b,
                           split ? "const SplitParams params = { a.%s, a.%s };"
                                 : "const Params<%s> params = { a.%s, %s };",
                           split ? l : c_type(dt), p, low ? arena_fmt(e->tmp, "a.%s", l) : "0");
                build_line(&b,
                           "adamw_task<256>(rt, params, a.%s, a.%s, grads, %lldll, a.%s, tile);", m,
                           v, (long long)n_decay, nm);
                build_end(&b, arena_fmt(e->tmp, "ceil(%lld/1024)", (long long)n));
        } else {
                build_cpu_loop(
                        &b, arena_fmt(e->tmp, "update_tiles(%lld)", (long long)n), 1e9,
                        arena_fmt(
                                e->tmp,
                                "adamw_task(rt, a.%s, a.%s, a.%s, a.%s, %s, %s, %lld, %lld, a.%s, tile);",
                                p, m, v, g, low ? arena_fmt(e->tmp, "a.%s", l) : "NULL",
                                ty(low ? dt : DT_F32), (long long)n, (long long)n_decay, nm));
                build_end(&b, "1");
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
