/* ema.c: emits the average of the parameters (--ema): its update after the optimiser's step, and
 * the program that exchanges average and parameters.
 *
 * The update is a launch of its own: it moves 12 bytes a parameter, beside AdamW's 26 to 28. */
#include "ops.h"

static Build start(Emit *e, const char *title)
{
        Build b = build_start(e, NULL, "ema", title);
        b.any.threads = 256;
        return b;
}

/* `params`, and in CUDA a statement of its own that defines it. */
static const char *params(Build *b, const Shared *sh, DType dt)
{
        const char *text = update_params(b, sh, dt);
        if (!is_cuda(b->e))
                return text;
        build_line(b, "const %s;", text);
        return "params";
}

static void finish(Build *b, const Shared *sh, const char *call)
{
        const long long n = sh->n_train;
        if (is_cuda(b->e)) {
                build_line(b, "%s", call);
                build_end(b, grid_ceil(b->e, DIM(n), 1024));
                return;
        }
        build_cpu_loop(b, arena_fmt(b->e->tmp, "update_tiles(%lld)", n), 1e9, call);
        build_end(b, grid_blocks(1));
}

void gen_ema(Emit *e, const Shared *sh, DType dt, int norm)
{
        Build b = start(e, "ema");
        const char *to = params(&b, sh, dt), *ema = arg_arena(e, &b.args, "ema", C_F32, "ema"),
                   *nm = arg_work(e, &b.args, norm, C_F32, "norm");
        b.bytes = 12.0 * (double)sh->n_train;
        b.flops = 3.0 * (double)sh->n_train;
        finish(&b, sh,
               arena_fmt(e->tmp, "ema_task%s(rt, %s, a.%s, %lld, a.%s, tile);",
                         is_cuda(e) ? "<256>" : "", to, ema, (long long)sh->n_train, nm));
}

void gen_ema_swap(Emit *e, const Shared *sh, DType dt)
{
        Build b = start(e, "ema_swap");
        const char *to = params(&b, sh, dt), *ema = arg_arena(e, &b.args, "ema", C_F32, "ema");
        b.bytes = 16.0 * (double)sh->n_train;
        finish(&b, sh,
               arena_fmt(e->tmp, "ema_swap_task%s(%s, a.%s, %lld, tile);",
                         is_cuda(e) ? "<256>" : "", to, ema, (long long)sh->n_train));
}
