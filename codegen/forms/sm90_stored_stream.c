/* sm90_stored_stream.c: GEMMs of many rows with block-quantised weights on sm_90a, persistent
 * (kernels/gemm/gemm_stored_persistent_sm90.cuh).
 *
 * Weights are decoded on the way to the tensor cores.  Other architectures decode them into memory
 * in a launch before (STORED_MANY). */
#include "forms.h"
#include <math.h>

/* LEAST: rows from which tiles are full.  PS: picoseconds per 256 of K of a tile of int4:128; NS:
 * nanoseconds per launch; measured on an H100. */
enum {
        LEAST = 129,
        ROWS = 256,
        COLUMNS = 128,
        SLICE = 256,
        STAGES = 4,
        PANELS = 8 * 16 * 20 * 4,
        PS = 2650000,
        NS = 4000,
        MOST_SPLITS = 8,
        LEAST_SLICES = 2
};

static int smem_of(const StoredGemm *p, int slices)
{
        return STAGES * (ROWS * 128 + 16) +
               slices * (16 + COLUMNS * stored_slice_bytes(p->blocks, p->K)) + PANELS;
}

bool sm90_stored_stream_takes(const StoredGemm *p)
{
        return !p->codes && p->boxes && p->M >= LEAST && p->N % (2 * COLUMNS) == 0 &&
               p->K % SLICE == 0 && stored_gemm_takes(p->blocks, p->dt) &&
               storage_bytes(p->blocks, p->N * p->K) <= INT32_MAX && smem_of(p, 2) <= SM90A_SMEM;
}

/* Relative cost of other types: Q4_K 1.07, NF4, E4M3 and Q6_K 1.17, Q8_0 1.2, about half of the
 * factors of the tiles that this competes with.  splits: of K, if tiles are too few for the
 * multiprocessors. */
static double us_of(const StoredGemm *p, int *splits)
{
        const int64_t places = (p->M + ROWS - 1) / ROWS * (p->N / COLUMNS), slices = p->K / SLICE;
        double best = INFINITY;
        for (int s = 1; s == 1 || (p->splits && s <= MOST_SPLITS && slices / s >= LEAST_SLICES &&
                                   places * s <= SM90A_SMS);
             s++) {
                const int64_t rounds = (places * s + SM90A_SMS - 1) / SM90A_SMS;
                const double sums = (double)(places * s) * ROWS * COLUMNS * 8,
                             us = NS * 1e-3 + (s > 1 ? 1 + sums / 2.5e6 : 0) +
                                  (double)(rounds * ((slices + s - 1) / s)) * PS * 1e-6 *
                                          (1 + (stored_gemm_slower(p->blocks) - 1) / 2);
                if (us < best)
                        best = us, *splits = s;
        }
        return best;
}

bool sm90_stored_stream(Build *b, const void *problem)
{
        const StoredGemm *p = problem;
        int splits = 1;
        if (!sm90_stored_stream_takes(p))
                return false;
        const double us = us_of(p, &splits);
        if (p->M < STORED_MANY && us >= sm90_stored_gemm_us(p))
                return false;
        Emit *e = b->e;
        const int slices = smem_of(p, 3) <= SM90A_SMEM ? 3 : 2;
        const TensorMap x = { .of = p->x, .dt = p->dt, .rows = p->M, .cols = p->K, .ld = p->ldx };
        const char *map = arg_map(e, &b->args, &x, "map_x"),
                   *blocks = blocks_arg(e, &b->args, p->w);
        Form *f = form_begin(b, ARCH_SM90A, "gemm_stored_persistent_sm90");
        f->threads = 384;
        f->smem = smem_of(p, slices);
        f->min_blocks = 1;
        f->waits = true;
        f->persistent = f->pairs = true;
        f->grid = grid_times(grid_blocks(p->N / COLUMNS * splits), grid_ceil(e, p->rows, ROWS));
        const char *type = arena_fmt(e->tmp, "Stored_%s", storage_name[p->blocks]),
                   *tile = arena_fmt(e->tmp, "StoredStream<%d, %d>", ROWS, slices);
        build_line(b, "static_assert(%s::smem<%s, %lld>() == %d, \"as it is counted\");", tile,
                   type, (long long)p->K, f->smem);
        const char *parts = "(float *)0", *joined = "(int *)0";
        if (splits > 1)
                stored_parts(b, (p->M + ROWS - 1) / ROWS * ROWS * p->N * splits, &parts, &joined);
        build_line(b,
                   "stored_gemm_persistent<%s, %s, %s, %lld, %lld, %d>(a.%s, a.%s, %s, (%s + %d) / "
                   "%d, %s, %s, tile, (int)gridDim.x, smem, epilogue);",
                   c_type(p->dt), type, tile, (long long)p->N, (long long)p->K, splits, map, blocks,
                   p->M_text, p->M_text, ROWS - 1, ROWS, parts, joined);
        return true;
}
