/* dense_gemm.c: emits one product of two matrices, or a batch of them, whose epilogue the caller
 * has written: the loss's and Muon's. */
#include "ops.h"

int column_v(int64_t n, int most)
{
        int v = 8;
        while (v > most || n % v)
                v /= 2;
        return v;
}

/* Products that may have a short tile are no wider or no higher, as of a small vocabulary:
 * schedule.c may change that tile, which sums of rows by tile (loss_exp.c, of large vocabularies)
 * do not allow. */
enum { SHORT_N = 128 };

int dense_gemm(Build *b, DType dt, const DenseGemm *x)
{
        Emit *e = b->e;
        int across = 0;
        const int64_t all = x->batch ? x->batch : 1, M = x->M, N = x->N, K = x->K;
        const Mat *a = x->a, *w = x->w;
        b->flops = 2.0 * (double)all * (double)M * (double)N * (double)K;
        b->bytes = (double)all *
                   ((double)M * (double)K + (double)N * (double)K + (double)M * (double)N) *
                   dt_size[dt];
        if (is_cuda(e)) {
                Gemm p = { dt,
                           x->ta,
                           x->tb,
                           x->at,
                           x->wt,
                           a->stride,
                           w->stride,
                           M,
                           N,
                           K,
                           x->align,
                           x->epilogue_bytes,
                           x->epilogue_bytes > 4,
                           true,
                           DIM(M),
                           b->gr && (M < N ? M : N) <= SHORT_N, /* prefetches beside a step's */
                           .n_stored = x->to && dt_size[x->to->dt] == 2,
                           .batch = x->batch,
                           .triangle = x->batch && x->out,
                           .out = x->out };
                if (x->to)
                        p.stored[0] = *x->to;
                Pick pick = product_pick(e, &p,
                                         &(Ways) { .maps = sm90_gemm_takes(e, dt),
                                                   .batch = all,
                                                   .epilogue = b->title });
                const Tile *t = pick.tile[ARCH_ANY];
                const Tile *sm90 = pick.tile[ARCH_SM90A];
                b->any.threads = t->threads;
                b->any.smem = t->smem;
                b->any.min_blocks = t->min_blocks;
                build_line(b, "\1_epilogue epilogue = { a };");
                if (sm90) {
                        sm90_gemm_transpose(b, &p);
                        forms_add(b, FAMILY_gemm, &(GemmWork) { .p = &p, .pick = &pick });
                }
                const char *types = arena_fmt(e->tmp, "%s, %s, %s, %s, %d", c_type(dt), t->name,
                                              x->ta ? "true" : "false", x->tb ? "true" : "false",
                                              x->align);
                const char *Mc = arena_fmt(e->tmp, "%lld", (long long)M),
                           *Nc = arena_fmt(e->tmp, "%lld", (long long)N),
                           *Kc = arena_fmt(e->tmp, "%lld", (long long)K);
                if (x->batch)
                        gemm_batch_body(b, Mc, Nc, Kc, t, types, a, w);
                else
                        build_line(b,
                                   "gemm_task<%s>(%s, %s, %s, %s, %s, %s, %s, tile, smem, "
                                   "epilogue);",
                                   types, a->arg, a->ld, w->arg, w->ld, Mc, Nc, Kc);
                build_end(b,
                          grid_blocks(all * ((M + t->bm - 1) / t->bm) * ((N + t->bn - 1) / t->bn)));
                product_end(e, &pick);
                across = sm90 ? (int)((N + sm90->bn - 1) / sm90->bn) : 0;
        } else {
                build_cpu_loop(
                        b,
                        arena_fmt(e->tmp,
                                  "gemm_tiles((Mat){ 0, %s, %d, 0, 0 }, (Mat){ 0, %s, %d, 0, 0 }, "
                                  "1, %lld, %lld, %lld)",
                                  ty(dt), x->ta, w->ty ? w->ty : ty(dt), x->tb, (long long)M,
                                  (long long)N, (long long)K),
                        b->flops,
                        arena_fmt(e->tmp,
                                  "gemm_task((Mat){ %s, %s, %d, %s, 0 }, (Mat){ %s, %s, %d, %s, 0 "
                                  "}, 1, %lld, %lld, %lld, tile, &a, \1_epilogue);",
                                  a->arg, ty(dt), x->ta, a->ld, w->arg, w->ty ? w->ty : ty(dt),
                                  x->tb, w->ld, (long long)M, (long long)N, (long long)K));
                build_end(b, grid_blocks(1));
        }
        return across;
}
