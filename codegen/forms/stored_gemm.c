/* stored_gemm.c: GEMMs with block-quantised weights, for more than a few rows of x
 * (kernels/gemm/gemm_stored.cuh, on sm_90a gemm_stored_sm90.cuh).
 *
 * A cost model chooses the tile and the number of splits of K.  A GEMM is bound by reading
 * weights, by decoding, or by the tensor cores. */
#include "forms.h"
#include <math.h>
#include <string.h>

enum { SLICE = 256, MOST_SPLITS = 16, LEAST_SLICES = 2 };

/* Storage types whose codes decode in few instructions (kernels/common/stored_codes.cuh). */
static const struct {
        const char *decode;
        double slower; /* relative to four bits with one scale */
} codes[] = { { "q4_0", 1 },    { "q4_1", 1 },    { "q5_0", 1.2 },   { "q5_1", 1.2 },
              { "q8_0", 1 },    { "q2_k", 1.3 },  { "q3_k", 1.5 },   { "q4_k", 1 },
              { "q5_k", 1.2 },  { "q6_k", 1.25 }, { "iq4_nl", 1.3 }, { "iq4_xs", 1.3 },
              { "mxfp4", 1.4 }, { "nvfp4", 1.4 }, { "i4", 1 },       { "i8", 1 },
              { "scb", 1 },     { "nf4", 1.3 },   { "fp4", 1.3 },    { "f8", 1.4 } };

static const char *const decoder[] = {
#define STORAGE(e, name, gguf, values, bytes, is_float, decode) [STORAGE_##e] = #decode,
#include "../../ir/storage.def"
};

double stored_gemm_slower(Storage s)
{
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
                if (!strcmp(codes[i].decode, decoder[s]))
                        return codes[i].slower;
        return 0;
}

static const StoredTile tiles[] = {
#define STORED_TILE(arch, math, bm, mi, warps, blocks, stages, how, types, ps)   \
        {                                                                        \
                ARCH_##arch,   MATH_##math,   bm, mi, warps, blocks, stages, ps, \
                TYPES_##types, "STORED_" #how                                    \
        },
#include "stored_gemm_tiles.def"
};

int stored_tile_columns(const StoredTile *t) { return 16 * t->mi * t->warps; }

int stored_slice_bytes(Storage s, int64_t K)
{
        const int64_t bytes = storage_bytes(s, SLICE), row = storage_bytes(s, K);
        const int shift = row % 16          ? 15
                          : bytes % 16 == 0 ? 0
                          : bytes % 8 == 0  ? 8
                          : bytes % 4 == 0  ? 12
                                            : 14;
        return (int)((bytes + shift + 15) / 16 | 1) * 16;
}

static int smem_of(const StoredTile *t, const StoredGemm *p, int stages)
{
        const int bn = stored_tile_columns(t), w = bn * stored_slice_bytes(p->blocks, p->K);
        const int all = t->math == MATH_MMA ? stages * (t->bm * SLICE * 2 + w)
                                            : stages * t->bm * 64 * 2 + 2 * w;
        const int sums = t->bm * (bn + 4) * 4 + 16;
        return all > sums ? all : sums;
}

/* Stages that leave room for the tile's other blocks on a multiprocessor; 0: too few. */
static int stages_of(const StoredTile *t, const StoredGemm *p)
{
        const int sm = t->arch == ARCH_ANY ? ANY_SMEM : SM90A_SM_SMEM / t->blocks - 1024,
                  most = t->arch == ARCH_ANY ? ANY_SMEM : SM90A_SMEM,
                  least = t->math == MATH_MMA ? 2 : 3;
        int n = t->stages;
        while (n >= least && (smem_of(t, p, n) > sm || smem_of(t, p, n) > most))
                n--;
        return n >= least ? n : 0;
}

static int64_t places_of(const StoredTile *t, const StoredGemm *p)
{
        const int bn = stored_tile_columns(t);
        return (p->M + t->bm - 1) / t->bm * ((p->N + bn - 1) / bn);
}

/* Cost model, in microseconds on an H200. */
static double time_of(const StoredTile *t, const StoredGemm *p, int stages, int splits)
{
        const int64_t blocks = places_of(t, p) * splits, slices = (p->K + SLICE - 1) / SLICE,
                      rounds = (blocks + SM90A_SMS - 1) / SM90A_SMS;
        const double each = (double)((slices + splits - 1) / splits) * t->ps * 1e-6 *
                            stored_gemm_slower(p->blocks),
                     bytes = (double)storage_bytes(p->blocks, p->N * p->K) +
                             (double)places_of(t, p) * t->bm * (double)p->K * 2 / 3;
        const double alone = rounds < t->blocks ? 1.3 : 1, /* latency that another block would
                                                            * hide */
                few = 1 + 0.09 * (t->stages - stages);     /* fitted: fewer stages wait for loads */
        const double least = bytes / 3.9e6, work = (double)rounds * each * alone * few;
        double us = 2.5 + (work > least ? work : least);
        if (splits > 1)
                us += 1 + (double)blocks * t->bm * stored_tile_columns(t) * 8 / 2.5e6;
        return us;
}

static StoredPick pick(const StoredGemm *p, ArchId arch)
{
        StoredPick best = { 0 };
        for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
                const StoredTile *t = &tiles[i];
                const int stages = stages_of(t, p);
                if (t->types == TYPES_NOT_I4 && !strcmp(decoder[p->blocks], "i4"))
                        continue;
                for (int s = 1; t->arch == arch && stages && s <= MOST_SPLITS; s++) {
                        const int64_t slices = (p->K + SLICE - 1) / SLICE;
                        if (s > 1 && (!p->splits || places_of(t, p) > STORED_PLACES ||
                                      slices / s < LEAST_SLICES))
                                break;
                        const double us = time_of(t, p, stages, s);
                        if (!best.t || us < best.us)
                                best = (StoredPick) { t, stages, s, smem_of(t, p, stages), us };
                }
        }
        return best;
}

bool stored_gemm_takes(Storage s, DType dt)
{
        return dt_size[dt] == 2 && stored_gemm_slower(s) > 0;
}

StoredPick stored_gemm_pick(const StoredGemm *p)
{
        static const StoredPick none;
        /* with codes sm_90a's form serves every M, so the others do as well, in one launch */
        return p->M >= STORED_MANY && !p->codes ? none : pick(p, ARCH_ANY);
}

const char *stored_gemm_tile_text(Arena *a, const StoredPick *k)
{
        const StoredTile *t = k->t;
        return t->math == MATH_MMA ? arena_fmt(a, "StoredTile<%d, %d, %d, %d, %d, %s>", t->bm / 8,
                                               t->mi, t->warps, k->stages, t->blocks, t->how)
                                   : arena_fmt(a, "StoredGroups<%d, %d, %d, %d, %s>", t->bm,
                                               t->warps / 4, k->stages, t->blocks, t->how);
}

void stored_parts(Build *b, int64_t floats, const char **parts, const char **joined)
{
        Emit *e = b->e;
        const int work = work_new(e, DIM(floats), 4),
                  kept = work_keep(e, DIM(STORED_PLACES), 4, "stored_joined");
        *parts = arena_fmt(e->tmp, "a.%s", arg_work(e, &b->args, work, C_F32, "parts"));
        *joined = arena_fmt(e->tmp, "a.%s", arg_work(e, &b->args, kept, C_I32, "joined"));
}

void stored_gemm_body(Build *b, const StoredGemm *p, const StoredPick *k, Form *f)
{
        Emit *e = b->e;
        const StoredTile *t = k->t;
        const char *parts = "(float *)0", *joined = "(int *)0";
        const int bn = stored_tile_columns(t);
        f->threads = 32 * t->warps;
        f->smem = k->smem;
        f->min_blocks = t->blocks;
        f->waits = true;
        f->cluster = t->arch != ARCH_ANY; /* one tile per block, not persistent */
        f->include = t->math == MATH_MMA ? "gemm_stored" : "gemm_stored_sm90";
        f->grid = grid_times(grid_blocks((p->N + bn - 1) / bn * k->splits),
                             grid_ceil(e, p->rows, t->bm));
        if (k->splits > 1)
                stored_parts(b, places_of(t, p) * k->splits * t->bm * bn, &parts, &joined);
        const char *down = dim_known(e, p->rows)
                                   ? arena_fmt(e->tmp, "%lld",
                                               (long long)((p->M + t->bm - 1) / t->bm))
                                   : arena_fmt(e->tmp, "(%s + %d) / %d", p->M_text, t->bm - 1,
                                               t->bm);
        build_line(b,
                   "%s<%s, Stored_%s, %s, %lld, %lld, %d>(%s, %s, %s, %d, %s, %s, tile, smem, "
                   "epilogue);",
                   t->math == MATH_MMA ? "stored_gemm_task" : "stored_wgmma_task", c_type(p->dt),
                   storage_name[p->blocks], stored_gemm_tile_text(e->tmp, k), (long long)p->N,
                   (long long)p->K, p->align, p->operands, p->M_text, down, k->splits, parts,
                   joined);
}

double sm90_stored_gemm_us(const StoredGemm *p)
{
        const StoredPick k = pick(p, ARCH_SM90A);
        return k.t ? k.us : INFINITY;
}

bool sm90_stored_gemm(Build *b, const void *problem)
{
        const StoredGemm *p = problem;
        const StoredPick k = pick(p, ARCH_SM90A);
        if (!k.t)
                return false;
        stored_gemm_body(b, p, &k, form_begin(b, ARCH_SM90A, NULL));
        return true;
}
