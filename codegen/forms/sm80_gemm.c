/* sm80_gemm.c: the tiles of portable GEMMs (kernels/gemm/gemm.cuh): resources, and estimated time.
 * One list holds the tiles of all architectures; sm90_gemm.c uses those of sm_90a. */
#include "forms.h"
#include <string.h>

static const Tile tiles[] = {
#define TILE(name, math, rounds, bm, bn, bk, wm, wn, stages, threads, minb, smem, ps) \
        { #name, ARCH_ANY, MATH_##math, bm, bn, threads, minb, smem, ps, rounds, 0, 1, 0, 1 },
#include "gemm_tiles.def"
#undef TILE
#define SM90_TILE(name, bm, bn, share, stages, parts, threads, smem, ps, ps_tf32, ta) \
        {                                                                             \
                #name, ARCH_SM90A, MATH_WGMMA, bm,    bn,    threads, 1,              \
                smem,  ps,         0,          share, parts, ps_tf32, ta              \
        },
#include "sm90_gemm_tiles.def"
#undef SM90_TILE
};

const Tile *tile_next(ArchId arch, const Tile *t)
{
        for (t = t ? t + 1 : tiles; t < tiles + sizeof tiles / sizeof *tiles; t++)
                if (t->arch == arch)
                        return t;
        return NULL;
}

bool tile_known(const char *name)
{
        for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
                if (!strcmp(tiles[i].name, name))
                        return true;
        return false;
}

static bool is_f32(const Tile *t) { return t->math == MATH_FMA || t->math == MATH_TF32X3; }

int64_t tile_rounds(int bm, int bn, int64_t M, int64_t N, int64_t parts)
{
        return ((M + bm - 1) / bm * ((N + bn - 1) / bn) * parts + ANY_SMS - 1) / ANY_SMS;
}

/* Cost model, in microseconds on an H100: a launch, then the tiles of the busiest multiprocessor,
 * one after the other: mainloop and epilogue, which overlaps with another block's mainloop where
 * two blocks fit.  Split-K parts are written and read once, from L2 where they fit, by one more
 * launch; for 16-bit GEMMs that costs 10 us, for float32, whose parts are small, half the
 * bandwidth (docs/notebook/gemm.md). */
double tile_time(const Tile *t, int64_t M, int64_t N, int64_t K, int64_t batch, int splits)
{
        int64_t most = tile_rounds(t->bm, t->bn, M, N, batch * splits);
        double epilogue = (double)t->bm * t->bn * (t->min_blocks > 1 ? 5e-5 : 1e-4);
        double alone = most < t->min_blocks ? 1.1 : 1; /* latency that another block would hide */
        double us = 2 + (double)most * ((double)K / splits * t->ps * 1e-6 * alone + epilogue);
        double parts = (double)M * (double)N * 4 * splits;
        if (splits > 1)
                us += (is_f32(t) ? 2.5 : 10) + 2 * parts /
                                                       (parts >= 32e6 ? 1.5e6
                                                        : is_f32(t)   ? 2.5e6
                                                                      : 5e6);
        return us;
}

enum { SINGLE_WAVE_US = 15 };

/* The same for short 16-bit GEMMs, all of whose tiles run at once: together they take less than
 * one after the other, and each at least 3.35 ns per unit of K.  schedule.c may join them with
 * others, so idle multiprocessors are worth something (docs/notebook/gemm.md). */
static double single_wave_time(const Tile *t, int64_t M, int64_t N, int64_t K, int64_t batch)
{
        int64_t tiles = (M + t->bm - 1) / t->bm * ((N + t->bn - 1) / t->bn) * batch,
                most = (tiles + ANY_SMS - 1) / ANY_SMS;
        double us = tile_time(t, M, N, K, batch, 1), n = (double)most;
        double ps = n * t->ps * 0.82, least = t->math == MATH_WGMMA ? 3350 : 4700; /* wgmma, mma */
        if (is_f32(t) || M <= 64 || us >= SINGLE_WAVE_US || most > t->min_blocks)
                return us;
        us = (double)K * (ps > least ? ps : least) * 1e-6 +
             n * t->bm * t->bn * (t->min_blocks > 1 ? 5e-5 : 1e-4);
        return 2 + us - 0.4 * us * (1 - (double)tiles / (n * ANY_SMS));
}

/* BLOCK_BYTES: shared memory that every GPU from sm_80 on gives a block. */
enum { MOST_SPLITS = 16, LEAST_K = 128, BLOCK_BYTES = 99 * 1024 };

static bool tile_fits(const Tile *t, DType dt, int64_t M, int64_t N, int64_t K, int64_t batch)
{
        if (is_f32(t) != (dt == DT_F32) || t->smem > BLOCK_BYTES)
                return false;
        if (t->rounds && (tile_rounds(t->bm, t->bn, M, N, batch) != t->rounds ||
                          tile_time(t, M, N, K, batch, 1) >= SINGLE_WAVE_US))
                return false;
        return t->math != MATH_MMA || t->bm >= 64 || M <= 64; /* short MMA tiles are for few
                                                               * tokens */
}

int tile_list(DType dt, int64_t M, int64_t N, int64_t K, int64_t batch, bool cut, Candidate *out)
{
        int n = 0;
        for (const Tile *t = NULL; (t = tile_next(ARCH_ANY, t));) {
                if (!tile_fits(t, dt, M, N, K, batch))
                        continue;
                for (int s = 1;
                     s == 1 || (cut && !t->rounds && s <= MOST_SPLITS && K / s >= LEAST_K); s++)
                        out[n++] = (Candidate) { t, s,
                                                 s > 1 ? tile_time(t, M, N, K, batch, s)
                                                       : single_wave_time(t, M, N, K, batch) };
        }
        return n;
}

const Tile *tile_pick(DType dt, int64_t M, int64_t N, int64_t K, int64_t batch, int *splits)
{
        Candidate c[MOST_CANDIDATES];
        int n = tile_list(dt, M, N, K, batch, splits, c), best = 0;
        for (int i = 1; i < n; i++)
                if (c[i].us < c[best].us)
                        best = i;
        if (splits)
                *splits = c[best].splits;
        return c[best].t;
}
