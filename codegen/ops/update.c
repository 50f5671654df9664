/* update.c: emits the end of a training step: sums of gradients over micro-steps, their norm, and
 * one step of the optimiser (ir/optimizers.def) over the arenas. */
#include "ops.h"

/* EIGHT_SMEM: ADAMW8BIT_SMEM of kernels/optimizer/adamw8bit.cuh. */
enum {
        NORM_TILES = 4 * ANY_SMS,
        EIGHT_TILES = 4 * ANY_SMS,
        EIGHT_SMEM = 4096 + (2 * 2945 + 14) / 16 * 16
};

/* The text of update.cuh's Grads. */
const char *update_grads(Build *b, int64_t n, int64_t n_low)
{
        Emit *e = b->e;
        const char *g = arg_arena(e, &b->args, "g", n_low ? C_BF16 : C_F32, "g");
        if (!n_low)
                return arena_fmt(e->tmp, "{ 0, 0, a.%s, 0, %lldll }", g, (long long)n);
        return arena_fmt(e->tmp, "{ a.%s, a.%s, (const float *)(a.%s + %lldll), %lldll, %lldll }",
                         g, arg_arena(e, &b->args, "gsum", C_F32, "sum"), g, (long long)n_low,
                         (long long)n_low, (long long)n);
}

/* CUDA alone: elsewhere all gradients are float32. */
void gen_add_grads(Emit *e, const Shared *sh)
{
        const int64_t n = sh->n_train, n_low = sh->n_low;
        Build b = build_start(e, NULL, "update", "grad_add");
        const char *g = update_grads(&b, n, n_low);
        b.any.threads = 256;
        b.bytes = 10.0 * (double)n_low;
        build_line(&b, "const Grads grads = %s;", g);
        build_line(&b, "grad_add_task<256>(rt, grads, a.sum, tile);");
        build_end(&b, grid_ceil(e, DIM(n_low), 2048));
}

/* A table of the small parameters (SmallState), by the name `small`; their number. */
static int small_states(const Shared *sh, Build *b, bool cuda)
{
        int n = 0, at = 0;
        text_add(build_decl(b), "static %sconst SmallState small_states[] = {",
                 cuda ? "__device__ " : "");
        for (int i = 0; i < sh->n_params; i++) { /* in order of their offsets */
                const ParamPlace *p = &sh->param[i];
                const int blocks = (int)((p->count + OPTIMIZER_BLOCK - 1) / OPTIMIZER_BLOCK),
                          begin = (int)(p->offset / OPTIMIZER_BLOCK);
                if (p->offset >= sh->n_train || p->count >= OPTIMIZER_SMALL)
                        continue;
                text_add(build_decl(b), "%s{ %d, %d, %d },", n % 4 ? " " : "\n        ", begin,
                         begin + blocks, at);
                at += blocks;
                n++;
        }
        text_add(build_decl(b), n ? "\n};\n" : " { 0, 0, 0 } };\n");
        return n;
}

/* What a group's rates make of rt, for the text of a kernel; in C a statement begins there. */
const char *update_rates(Emit *e, const UpdateRange *r)
{
        char rate[32], decay[32];
        num_text(r->rate, rate);
        num_text(r->decay, decay);
        return arena_fmt(e->tmp, "%sRt own = *rt; %s%s%s%s%s%s", is_cuda(e) ? "" : "{ ",
                         r->rate != 0 ? "own.lr *= (float)" : "", r->rate != 0 ? rate : "",
                         r->rate != 0 ? "; " : "",
                         r->decay != 0 ? "own.weight_decay = (float)" : "",
                         r->decay != 0 ? decay : "", r->decay != 0 ? "; " : "");
}

static const char *shifted(Emit *e, int64_t from, int elements)
{
        return arena_fmt(e->tmp, "tile + %lld", (long long)(from / elements));
}

/* The argument that has parameters in float32, or what a bf16 lacks of one; NULL: there is none. */
static const char *master_arg(Build *b, const Shared *sh, DType dt)
{
        const bool own = dt != DT_F32 && sh->masters == MASTERS_F32,
                   split = is_cuda(b->e) && own && dt == DT_BF16;
        return dt == DT_F32 ? arg_arena(b->e, &b->args, "w", C_F32, "param")
               : !own       ? NULL
                            : arg_arena(b->e, &b->args, split ? "lo" : "p", split ? C_U16 : C_F32,
                                  split ? "lo" : "param");
}

/* Parameters as update.cuh and cpu_update.h have them; p: of master_arg, l: of 16 bits, or NULL. */
static const char *params_text(Emit *e, const Shared *sh, DType dt, const char *p, const char *l)
{
        if (!is_cuda(e))
                return arena_fmt(e->tmp, "(UpdateParams) { %s, %s, %s, %d }",
                                 p ? arena_fmt(e->tmp, "a.%s", p) : "NULL",
                                 l ? arena_fmt(e->tmp, "a.%s", l) : "NULL", ty(dt),
                                 sh->masters == MASTERS_STOCHASTIC);
        if (p && l && dt == DT_BF16)
                return arena_fmt(e->tmp, "SplitParams params = { a.%s, a.%s }", l, p);
        if (p)
                return arena_fmt(e->tmp, "Params<%s> params = { a.%s, %s }", c_type(dt), p,
                                 l ? arena_fmt(e->tmp, "a.%s", l) : "0");
        return sh->masters == MASTERS_STOCHASTIC
                       ? arena_fmt(e->tmp, "StochasticParams params = { a.%s, rt }", l)
                       : arena_fmt(e->tmp, "LowParams<%s> params = { a.%s }", c_type(dt), l);
}

const char *update_params(Build *b, const Shared *sh, DType dt)
{
        const char *p = master_arg(b, sh, dt),
                   *l = dt != DT_F32 ? arg_arena(b->e, &b->args, "w", ctype_of(dt), "low") : NULL;
        return params_text(b->e, sh, dt, p, l);
}

/* One step of all parameters, or of those of a group (pipeline.c has none with 8-bit states); norm:
 * of the gradient. */
static void gen_rule(Emit *e, const Shared *sh, DType dt, int norm, const UpdateRange *range)
{
        const OptimizerInfo *o = &optimizer_info[sh->optimizer];
        const bool cuda = is_cuda(e), low = dt != DT_F32;
        const int64_t n = range ? range->end : sh->n_train, n_low = sh->n_low,
                      from = range ? range->begin : 0;
        const bool own_rates = range && (range->rate != 0 || range->decay != 0);
        const char *rt = own_rates ? update_rates(e, range) : "",
                   *tile = range ? shifted(e, from, cuda ? 1024 : UPDATE_ALIGN) : "tile";
        Build b = build_start(e, NULL, o->kernel, o->name);
        const bool own = low && sh->masters == MASTERS_F32, split = cuda && own && dt == DT_BF16;
        const char *p = master_arg(&b, sh, dt);
        const bool eight = sh->optimizer == OPTIMIZER_ADAMW8BIT;
        const char *s8[4] = { "" };
        for (int i = 0; i < 4 && eight; i++) {
                static const char *const arena[] = { "m8", "v8", "mmax", "vmax" };
                s8[i] = arg_arena(e, &b.args, arena[i], i < 2 ? C_U8 : C_F32, arena[i]);
        }
        const char *m = arg_arena(e, &b.args, "m", C_F32, "m"),
                   *v = o->states > 1 ? arg_arena(e, &b.args, "v", C_F32, "v_") : NULL;
        const char *states8 = !eight ? NULL
                                     : arena_fmt(e->tmp, "{ a.%s, a.%s, a.%s, a.%s, a.%s, a.%s }",
                                                 s8[0], s8[1], s8[2], s8[3], m, v);
        const int n_small = eight ? small_states(sh, &b, cuda) : 0;
        const char *g = cuda ? update_grads(&b, n, n_low) : arg_arena(e, &b.args, "g", C_F32, "g");
        const char *l = low ? arg_arena(e, &b.args, "w", ctype_of(dt), "low") : NULL;
        const char *nm = arg_work(e, &b.args, norm, C_F32, "norm");
        b.any.threads = 256;
        b.bytes = (double)(n - from) * (8 + (eight ? 2 : 8) * o->states +
                                        (low && !own     ? 0
                                         : low && !split ? 6
                                                         : 4)) -
                  (from < n_low ? 2.0 * (double)((n < n_low ? n : n_low) - from) : 0);
        b.flops = (4.0 + 4.0 * o->states) * (double)(n - from);
        if (cuda) {
                const char *params = params_text(e, sh, dt, p, l);
                b.any.waits = true;
                build_line(&b, "const Grads grads = %s;", g);
                build_line(&b, "const %s;", params);
                if (eight) {
                        const int64_t most = (n + 2047) / 2048,
                                      tiles = most < EIGHT_TILES ? most : EIGHT_TILES;
                        b.any.smem = EIGHT_SMEM;
                        b.any.min_blocks = 4;
                        build_line(
                                &b,
                                "adamw8bit_task<256, %s>(rt, params, %s, small_states, %d, grads, "
                                "%lldll, a.%s, tile, %lld, smem);",
                                dt == DT_F16 ? "true" : "false", states8, n_small,
                                (long long)sh->n_decay, nm, (long long)tiles);
                        build_end(&b, grid_blocks(tiles));
                        return;
                }
                if (own_rates)
                        build_line(&b, "%s", rt);
                build_line(
                        &b,
                        "update_task<256, %s%s>(%s, params, { a.%s%s }, grads, %lldll, a.%s, %s);",
                        o->rule, dt == DT_F16 ? ", true" : "", own_rates ? "&own" : "rt", m,
                        v ? arena_fmt(e->tmp, ", a.%s", v) : "", (long long)sh->n_decay, nm, tile);
                build_end(&b, grid_ceil(e, DIM(n - from), 1024));
        } else {
                const char *params = params_text(e, sh, dt, p, l);
                const char *call =
                        eight ? arena_fmt(e->tmp,
                                          "adamw8bit_task(rt, %s, (States8) %s, small_states, %d, "
                                          "a.%s, %lld, %lld, a.%s, tile);",
                                          params, states8, n_small, g, (long long)n,
                                          (long long)sh->n_decay, nm)
                              : arena_fmt(e->tmp,
                                          "%supdate_task(%s, %s, (float *const[2]) { a.%s, %s }, "
                                          "a.%s, %lld, %lld, a.%s, %s, %s_rule);%s",
                                          rt, own_rates ? "&own" : "rt", params, m,
                                          v ? arena_fmt(e->tmp, "a.%s", v) : "NULL", g,
                                          (long long)n, (long long)sh->n_decay, nm, tile, o->kernel,
                                          own_rates ? " }" : "");
                build_cpu_loop(&b, arena_fmt(e->tmp, "update_tiles(%lld)", (long long)(n - from)),
                               1e9, call);
                build_end(&b, grid_blocks(1));
        }
}

/* Over the arenas g, p (or w where weights are float32) and the optimiser's states. */
void gen_update(Emit *e, const Shared *sh, DType dt)
{
        const int64_t n = sh->n_train, n_low = sh->n_low;
        const bool cuda = is_cuda(e);
        /* nothing of it in the activations: a step's losses may lie there still */
        int parts = work_keep(e, DIM(cuda ? NORM_TILES : (n + 16383) / 16384), cuda ? 4 : 8,
                              "grad_parts");
        int norm = work_keep(e, DIM(1), 4, "grad_norm"), bad = work_keep(e, DIM(1), 4, "bad");
        Build b = build_start(e, NULL, "update", cuda ? "grad_norm" : "grad_sumsq");
        const char *g = cuda ? update_grads(&b, n, n_low) : arg_arena(e, &b.args, "g", C_F32, "g"),
                   *w = arg_work(e, &b.args, parts, cuda ? C_F32 : C_F64, "parts"), *nm;
        b.bytes = 4.0 * (double)n - 2.0 * (double)n_low;
        b.flops = 2.0 * (double)n;
        if (cuda) {
                const char *done = arg_work(e, &b.args, work_keep(e, DIM(1), 4, "grad_done"), C_I32,
                                            "done");
                nm = arg_work(e, &b.args, norm, C_F32, "norm");
                const char *bd = arg_work(e, &b.args, bad, C_I32, "bad");
                b.any.threads = 256;
                b.any.smem = 256;
                build_line(&b, "const Grads grads = %s;", g);
                build_line(
                        &b,
                        "grad_norm_task<256>(rt, grads, tile, %d, a.%s, a.%s, a.%s, a.%s, smem);",
                        NORM_TILES, w, done, nm, bd);
                build_end(&b, grid_blocks(NORM_TILES));
        } else {
                build_cpu_loop(&b, arena_fmt(e->tmp, "update_tiles(%lld)", (long long)n), 1e9,
                               arena_fmt(e->tmp, "sumsq_task(a.%s, %lld, a.%s, tile);", g,
                                         (long long)n, w));
                build_end(&b, grid_blocks(1));
                b = build_start(e, NULL, "update", "grad_norm");
                w = arg_work(e, &b.args, parts, C_F64, "parts");
                nm = arg_work(e, &b.args, norm, C_F32, "norm");
                build_line(&b, "norm_finish_task(rt, a.%s, update_tiles(%lld), a.%s, a.%s);", w,
                           (long long)n, nm, arg_work(e, &b.args, bad, C_I32, "bad"));
                build_end(&b, grid_blocks(1));
        }

        if (!sh->n_ranges)
                gen_rule(e, sh, dt, norm, NULL);
        for (int i = 0; i < sh->n_ranges; i++)
                if (!sh->range[i].muon)
                        gen_rule(e, sh, dt, norm, &sh->range[i]);
        if (sh->n_matrices)
                gen_muon(e, sh, dt, norm);
        if (sh->ema)
                gen_ema(e, sh, dt, norm);
}
