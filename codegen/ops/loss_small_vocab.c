/* loss_small_vocab.c: the loss of a small vocabulary and its gradients in one launch
 * (kernels/loss/cross_entropy_small_vocab.cuh).
 *
 * A step of a small model is a chain of short launches.  Here logits, loss and dx are one launch;
 * only the update waits for dw.  Used on any GPU, if a block can hold all of w and the rows are so
 * few that dw needs no split of K. */
#include "loss.h"

/* As the kernel has them; and the shared memory that every GPU has, blocks that an H100 holds,
 * rows. */
enum {
        MOST_V = 128,
        ROWS = 16,
        THREADS = 256,
        MOST_SMEM = 99 << 10,
        BLOCKS = 2 * ANY_SMS,
        MOST_ROWS = 4096
};

static int64_t smem_of(int64_t V, int64_t C, int size)
{
        int64_t vp = (V + 15) / 16 * 16, x = ROWS * (C + 8) * size, parts = 4 * ROWS * (vp + 4) * 4;
        return vp * (C + 8) * size + (x > parts ? x : parts) + ROWS * (vp + 8) * size;
}

bool short_fits(const Loss *l)
{
        Access x, w;
        const int size = dt_size[l->dt], unit = 16 / size;
        access_need(l->e->g, l->e->place, l->x, &x);
        access_need(l->e->g, l->e->place, l->w, &w);
        return is_cuda(l->e) && l->V <= MOST_V && l->C % 16 == 0 && l->rows <= MOST_ROWS &&
               smem_of(l->V, l->C, size) <= MOST_SMEM && l->dx && l->loss &&
               access_align(&x) % unit == 0 && access_align(&w) % unit == 0;
}

void small_vocab_losses(Loss *l)
{
        Emit *e = l->e;
        Mat x, w;
        Build b = build_start(e, l->gr, "cross_entropy_small_vocab", "linear_ce");
        mat_need(e, &b, l->x, 0, &x);
        mat_need(e, &b, l->w, 0, &w);
        const char *targets = plain_arg(e, &b, l->targets),
                   *bias = l->bias ? plain_arg(e, &b, l->bias) : "(const float *)0";
        const char *d = scratch_arg(l, &b, true), *loss = arg_of(e, &b.args, l->loss, true),
                   *dx = arg_of(e, &b.args, l->dx, true);
        const int64_t groups = (l->rc + ROWS - 1) / ROWS, tiles = groups < BLOCKS ? groups : BLOCKS;
        dloss_text(l, &b);
        b.any.threads = THREADS;
        b.any.smem = (int)smem_of(l->V, l->C, dt_size[l->dt]);
        b.any.waits = true;
        b.us = 5;
        build_prefetch(&b, PREFETCH_REST,
                       &(Slot) { .kind = SLOT_NODE, .id = value_base(e->g, l->x) }, NULL);
        b.flops = 4.0 * (double)l->rc * (double)l->V * (double)l->C;
        b.bytes = ((double)l->rc * (double)(2 * l->C + l->ld) + (double)l->V * (double)l->C) *
                  dt_size[l->dt];
        const char *shape = arena_fmt(e->tmp, "CeSmallVocab<%s, %lld, %lld>", c_type(l->dt),
                                      (long long)l->V, (long long)l->C);
        build_line(&b, "static_assert(%s::SMEM == %d, \"as loss_small_vocab.c counts it\");", shape,
                   b.any.smem);
        build_line(&b, "\1_dloss dloss = { a };");
        build_line(&b,
                   "ce_small_vocab_task<%s, PREFETCH>(%s, %s, %s, %s, %s, %s, %lld, a.%s, a.%s, "
                   "a.%s, tile, %lld, smem, dloss);",
                   shape, x.arg, x.ld, w.arg, w.ld, bias, targets, (long long)l->rc, d, loss, dx,
                   (long long)tiles);
        build_end(&b, grid_blocks(tiles));
}
