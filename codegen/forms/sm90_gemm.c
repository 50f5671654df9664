/* sm90_gemm.c: GEMMs on sm_90a (kernels/gemm/gemm_sm90.cuh).
 *
 * Operands come through tensor maps; blocks are persistent.  A prompt's map has the rows of the
 * longest prompt, and the launch counts those that exist.  A GEMM that fits in a single wave has
 * one tile per block; schedule.c chooses that tile, since it knows what else is in the launch.
 *
 * With --tf32, float32 uses the persistent tiles.  The second operand must be contiguous along K,
 * so dx = dy W and dW = dy^T x read transposed copies of W and x, made by a launch before
 * (sm90_gemm_transpose). */
#include "forms.h"
#include <string.h>

/* TRANSPOSE_*: as in kernels/common/transpose.cuh. LEAST_US: shorter GEMMs use single-wave tiles
 * if they fit, and may be joined with others (schedule.c); not those of prompts, whose rows are
 * counted at run time. SHORT_M: with fewer rows, blocks wait for weights. */
enum {
        LEAST_K = 256,
        MOST_SPLITS = 16,
        LEAST_US = 15,
        ROW_SUMS_SMEM = 256,
        SUMS_MS = 350, /* ms of compile time */
        SLABS_MS = 350,
        SHORT_M = 65,
        TRANSPOSE_SIDE = 64,
        TRANSPOSE_SMEM = TRANSPOSE_SIDE * (TRANSPOSE_SIDE + 1) * 4
};

static int64_t batch_of(const Gemm *p) { return p->batch ? p->batch : 1; }

static int64_t tiles_of(const Tile *t, const Gemm *p)
{
        const int64_t high = (p->M + t->bm - 1) / t->bm;
        return batch_of(p) *
               (p->triangle ? high * (high + 1) / 2 : high * ((p->N + t->bn - 1) / t->bn));
}

/* tile_rounds for all parts and matrices. */
static int64_t rounds_of(const Tile *t, const Gemm *p, int splits)
{
        return p->triangle ? (tiles_of(t, p) + ANY_SMS - 1) / ANY_SMS
                           : tile_rounds(t->bm, t->bn, p->M, p->N, splits * batch_of(p));
}

/* Batched GEMMs use persistent tiles.  Where K runs across rows, a step must not reach the next
 * matrix.  A triangle needs square tiles. */
static bool batch_takes(const Tile *t, const Gemm *p)
{
        return !p->batch ||
               (t->schedule != SINGLE_WAVE && t->parts == 1 &&
                ((!p->ta && p->tb) || p->K % 64 == 0) && (!p->triangle || t->bm == t->bn));
}

/* Blocks of a split-K tile's GEMM: all parts of all tiles, tile rows rounded up to pairs. */
static int64_t split_k_blocks(const Tile *t, const Gemm *p)
{
        return (p->M + 2 * t->bm - 1) / (2 * t->bm) * 2 * ((p->N + t->bn - 1) / t->bn) * t->parts;
}

/* For prompts whose split-K blocks fit in one wave. */
static bool split_k_fits(const Tile *t, const Gemm *p)
{
        return !p->fixed && !p->ta && split_k_blocks(t, p) <= SM90A_SMS && p->K >= 128 * t->parts;
}

static bool turns(const Gemm *p) { return p->dt == DT_F32 && !p->tb; }

/* float32: an operand with K as rows goes through registers, enough of them only with 64 rows per
 * warpgroup.  Single-wave and split-K tiles are for 16 bits. */
static bool tile_takes(const Tile *t, const Gemm *p)
{
        return p->dt != DT_F32 ||
               (t->ps_tf32 && (!p->ta || (t->schedule == COOPERATIVE && t->bm == 128)));
}

/* Can TMA move boxes of it?  Rows must be 16-byte aligned. */
static bool boxes_of(const Stored *s)
{
        return s->ld && s->ld * dt_size[s->dt] % 16 == 0 && s->slot.off % 16 == 0;
}

/* Can TMA store all of the epilogue's results?  Not three values of a pair in one panel. */
static bool boxed(const Gemm *p)
{
        bool rows = p->fixed && p->n_stored;
        for (int i = 0; i < p->n_stored; i++)
                rows &= !p->batch && boxes_of(&p->stored[i]);
        return rows && !(p->n_stored == 2 && p->stored[0].width + p->stored[1].width == 5);
}

/* And load its reads?  Ping-pong only. */
static bool fetched(const Gemm *p, const Tile *t)
{
        return boxed(p) && t->schedule == PINGPONG && boxes_of(&p->from);
}

/* Microseconds on an H100, fitted to the GEMMs of GPT-2's and Llama-1B's training steps.  An
 * epilogue costs a warpgroup 0.14 ns per byte.  Cooperative: a third of that shows (a fifth for a
 * weight gradient's whole sectors); the rest overlaps with the other consumer (LEAD).  Ping-pong:
 * all may overlap; but tiles without registers for reading ahead read slowly, in proportion to
 * what they read, unless it is fetched by TMA.  If all tiles run at once, idle multiprocessors
 * leave their power to the others.  Weight gradients, with K contiguous in neither operand, take
 * longer (ta). */
static double long_time(const Tile *t, const Gemm *p, int splits)
{
        int64_t most = rounds_of(t, p, splits), tiles = tiles_of(t, p) * splits;
        double main = (double)p->K / splits * t->ps * 1e-6,
               parts = (double)p->M * (double)p->N * 4 * splits;
        double bytes = splits > 1 ? 4 : p->epilogue_bytes,
               epilogue = 1.4e-4 * t->bm * t->bn * bytes, each;
        bool fetches = splits == 1 && fetched(p, t), reads = p->reads && splits == 1 && !fetches;
        if (most == 1)
                main *= 0.65 + 0.35 * (double)tiles / SM90A_SMS;
        if (p->ta)
                main *= t->ta;
        if (t->schedule == COOPERATIVE)
                each = main + (p->ta ? 0.2 : 0.33) * epilogue;
        else
                each = (main + epilogue * (!reads ? 0.75 : t->bn > 128 ? 0.4 * bytes : 0.8)) / 2;
        each = (each > main ? each : main) * (fetches ? 1.04 : 1);
        double us = 3 + (double)most * each + (t->schedule == PINGPONG ? 0.7 * epilogue : 0);
        return splits > 1 ? us + 2.5 + 2 * parts / (parts < 48e6 ? 3e6 : 1.5e6) : us;
}

/* The same for tf32, fitted to GPT-2's GEMMs of 8192 tokens, each by itself: power is no limit
 * there, and most of a reading epilogue shows. */
static double long_time_tf32(const Tile *t, const Gemm *p, int splits)
{
        double most = (double)tile_rounds(t->bm, t->bn, p->M, p->N, splits),
               parts = (double)p->M * (double)p->N * 4 * splits;
        double main = (double)p->K / splits * t->ps_tf32 * 1e-6,
               bytes = splits > 1 ? 4 : p->epilogue_bytes;
        double epilogue = 1.4e-4 * t->bm * t->bn * bytes,
               turn = turns(p) ? 2 + (double)p->K * (double)p->N * 8 / 2.4e6 : 0;
        bool reads = p->reads && splits == 1;
        double each = t->schedule == COOPERATIVE ? main + (reads ? 0.46 : 0.2) * epilogue
                                                 : (main + (reads ? 0.95 : 0.75) * epilogue) / 2;
        each = each > main ? each : main;
        double us = 3 + turn + most * each + (t->schedule == PINGPONG ? 0.7 * epilogue : 0);
        return splits > 1 ? us + 12 + 2 * parts / 3e6 : us;
}

/* The same for a split-K tile, whose parts send all columns but their own. */
static double split_k_time(const Tile *t, const Gemm *p)
{
        double main = (double)p->K / t->parts * t->ps * 1e-6,
               sent = 1.6e-4 * t->bm * t->bn * (t->parts - 1) / t->parts;
        return 5 + main + sent + 5e-5 * t->bm * t->bn / t->parts * (p->epilogue_bytes - 2);
}

/* Do single-wave tiles cover M x N in one wave? */
static bool short_fits(const Tile *t, const Gemm *p)
{
        return t->schedule == SINGLE_WAVE && p->single_wave && p->M >= SHORT_M &&
               tiles_of(t, p) <= SM90A_SMS;
}

/* Microseconds of a launch before and after its tiles, and of one tile beside `n` others: the more
 * there are, the less L2 bandwidth each has.  The start is 1.9 if nothing is prefetched; 0.9 is a
 * fit, not a measurement (docs/notebook/training.md). */
static const double SINGLE_WAVE_START = 0.9;
static double single_wave_us(const Tile *t, const Gemm *p, int64_t blocks)
{
        double main = (double)p->K * t->ps * 1e-6 * (1 + 0.2 * (double)blocks / SM90A_SMS);
        return main + 1.4e-5 * t->bm * t->bn * p->epilogue_bytes;
}

bool single_wave_same(const SingleWave *a, const SingleWave *b)
{
        return a->t == b->t && a->p.M == b->p.M && a->p.N == b->p.N && a->p.K == b->p.K &&
               a->p.single_wave == b->p.single_wave && a->p.epilogue_bytes == b->p.epilogue_bytes;
}

/* Tries tiles for s[k] and those behind it, beside `blocks` other blocks. */
static void single_waves_try(const SingleWave *const *s, int n, int k, int64_t blocks,
                             const Tile **t, double *least, const Tile **best)
{
        for (const Tile *next = NULL; k < n && (next = tile_next(ARCH_SM90A, next));) {
                int64_t own = tiles_of(next, &s[k]->p);
                t[k] = next;
                if ((s[k]->t ? t[k] == s[k]->t : short_fits(t[k], &s[k]->p)) &&
                    blocks + own <= SM90A_SMS)
                        single_waves_try(s, n, k + 1, blocks + own, t, least, best);
        }
        if (k < n)
                return;
        double us = 0;
        for (int i = 0; i < n; i++) {
                double x = single_wave_us(t[i], &s[i]->p, blocks);
                us = x > us ? x : us;
        }
        if (*least <= 0 || us < *least) {
                *least = us;
                memcpy(best, t, (size_t)n * sizeof *t);
        }
}

double single_waves_pick(const SingleWave *const *s, int n, const Tile **best)
{
        const Tile *t[MOST_SINGLE_WAVES];
        double least = 0;
        single_waves_try(s, n, 0, 0, t, &least, best);
        return least > 0 ? SINGLE_WAVE_START + least : 0;
}

Form single_wave_form(const Tile *t, const SingleWave *s)
{
        return (Form) { .threads = t->threads,
                        .smem = t->smem,
                        .cluster = 1,
                        .grid = grid_blocks(tiles_of(t, &s->p)) };
}

/* A prompt's weights come from memory, which a portable tile's blocks wait for longer. */
double tile_time_epilogue(const Tile *t, const Gemm *p, int splits)
{
        int64_t most = tile_rounds(t->bm, t->bn, p->M, p->N, splits * batch_of(p));
        double epilogue = splits > 1 ? 0 : 3.7e-5 * t->bm * t->bn * (p->epilogue_bytes - 2);
        return tile_time(t, p->M, p->N, p->K, batch_of(p), splits) + (double)most * epilogue +
               (p->fixed ? 0 : 2.5);
}

int sm90_tile_list(const Gemm *p, bool cut, Candidate *out)
{
        int n = 0;
        for (const Tile *t = NULL; p->align >= 16 && (t = tile_next(ARCH_SM90A, t));) {
                if (!tile_takes(t, p) || !batch_takes(t, p))
                        continue;
                if (short_fits(t, p))
                        out[n++] = (Candidate) {
                                t, 1, SINGLE_WAVE_START + single_wave_us(t, p, tiles_of(t, p))
                        };
                if (t->schedule == SINGLE_WAVE)
                        continue;
                if (t->parts > 1 && split_k_fits(t, p))
                        out[n++] = (Candidate) { t, 1, split_k_time(t, p) };
                for (int s = 1;
                     t->parts == 1 && (s == 1 || (cut && s <= MOST_SPLITS && p->K / s >= LEAST_K));
                     s++)
                        out[n++] = (Candidate) { t, s,
                                                 p->dt == DT_F32 ? long_time_tf32(t, p, s)
                                                                 : long_time(t, p, s) };
        }
        return n;
}

const Tile *sm90_tile_pick(const Gemm *p, const Tile *other, int other_splits, int *splits)
{
        Candidate c[MOST_CANDIDATES];
        const Tile *best = NULL;
        double us = tile_time_epilogue(other, p, other_splits);
        bool single_wave = us < LEAST_US && p->fixed && !p->batch;
        int n = single_wave && other_splits > 1 ? 0 : sm90_tile_list(p, other_splits > 1, c);
        *splits = 1;
        if (p->one_order) { /* always a tile of sm_90a: the portable one sums in another order */
                us = 1e30;
                for (int i = 0; i < n; i++)
                        if (c[i].us < us && c[i].t->parts == 1 && c[i].splits == 1 &&
                            c[i].t->schedule != SINGLE_WAVE)
                                best = c[i].t, us = c[i].us;
                return best;
        }
        for (int i = 0; i < n; i++)
                if (c[i].us < us && (c[i].t->schedule == SINGLE_WAVE) == single_wave)
                        best = c[i].t, us = c[i].us, *splits = c[i].splits;
        return best;
}

bool slot_of(Emit *e, Ref r, Slot *s, int64_t *ld)
{
        Access a;
        Dim d;
        if (!access_of(e->g, e->place, r, &a) || !access_rows(&a, &d))
                return false;
        *s = (Slot) { .kind = SLOT_NODE,
                      .id = a.base,
                      .off = a.off * dt_size[NODE(e->g, a.base)->type.dt] };
        *ld = dim_most(e, d);
        if (e->decoded && e->decoded[a.base]) {
                s->kind = SLOT_WORK;
                s->id = e->decoded[a.base] - 1;
        }
        return !blocks_of(e, a.base);
}

void slot_need(Emit *e, Ref r, Slot *s, int64_t *ld)
{
        if (!slot_of(e, r, s, ld))
                error_internal(NODE(e->g, r)->loc, "%%%s is no matrix of rows",
                               NODE(e->g, r)->name);
}

bool sm90_gemm_takes(const Emit *e, DType dt) { return dt != DT_F32 || e->m->tf32; }

void sm90_gemm_transpose(Build *b, Gemm *p)
{
        Emit *e = b->e;
        if (!turns(p))
                return;
        Build t = build_start(e, b->gr, "transpose", "transpose");
        int64_t down = (p->K + TRANSPOSE_SIDE - 1) / TRANSPOSE_SIDE,
                across = (p->N + TRANSPOSE_SIDE - 1) / TRANSPOSE_SIDE;
        int work = work_new(e, DIM((p->K + 31) / 32 * 32 * p->N), 4);
        const char *from = arg_of(e, &t.args, p->w.id, false),
                   *to = arg_work(e, &t.args, work, C_F32, "turned");
        build_shift(&t, from, p->w.off);
        build_line(&t, "transpose_task(a.%s, %lld, %lld, %lld, a.%s, tile, smem);", from,
                   (long long)p->ldw, (long long)p->K, (long long)p->N, to);
        t.any.threads = 256;
        t.any.smem = TRANSPOSE_SMEM;
        t.bytes = 8.0 * (double)p->K * (double)p->N;
        t.form[ARCH_SM90A] = t.any;
        t.form[ARCH_SM90A].cluster = 1;
        t.form[ARCH_SM90A].grid = grid_blocks(down * across);
        build_end(&t, grid_blocks(0));
        arg_done(e, &b->args, work, C_F32, "turned");
        p->w = (Slot) { .kind = SLOT_WORK, .id = work };
        p->ldw = 32;
        p->slabs = true;
}

int64_t sm90_row_sums(const Gemm *p, const Tile *t, int splits)
{
        return (p->N + t->bn - 1) / t->bn * splits;
}

const char *sm90_gemm_maps(Build *b, const Gemm *p)
{
        Emit *e = b->e;
        const TensorMap a = { .of = p->a,
                              .dt = p->dt,
                              .rows = batch_of(p) * (p->ta ? p->K : p->M),
                              .cols = p->ta ? p->M : p->K,
                              .ld = p->lda },
                        w = { .of = p->w,
                              .dt = p->dt,
                              .rows = p->slabs ? (p->K + 31) / 32 * p->N
                                               : batch_of(p) * (p->tb ? p->N : p->K),
                              .cols = p->slabs ? 32
                                      : p->tb  ? p->K
                                               : p->N,
                              .ld = p->ldw };
        const char *ma = arg_map(e, &b->args, &a, "map_a"), *mw = arg_map(e, &b->args, &w, "map_b");
        return arena_fmt(e->tmp, "a.%s, a.%s, %s, %lld, %lld", ma, mw, dim_c(e, p->rows),
                         (long long)p->N, (long long)p->K);
}

static const char *box_map(Build *b, const Gemm *p, const Stored *s, int columns, const char *name)
{
        const TensorMap m = { s->slot, s->dt, p->M, s->cols, s->ld, 16, columns * s->width };
        return arena_fmt(b->e->tmp, ", a.%s", arg_map(b->e, &b->args, &m, name));
}

/* The epilogue, wrapped so that TMA stores its results and loads its reads where possible.  A box
 * is 16 rows by one panel row's share of that store (PairEpilogue in
 * kernels/gemm/epilogue_pair_sm90.cuh). */
static const char *epilogue_text(Build *b, const Gemm *p, const Tile *t)
{
        int bytes = 0;
        const char *maps = "";
        if (!boxed(p))
                return "epilogue";
        for (int i = 0; i < p->n_stored; i++)
                bytes += 8 * p->stored[i].width;
        int columns = bytes <= 16 ? 64 : bytes <= 32 ? 32 : 16;
        if (fetched(p, t))
                maps = box_map(b, p, &p->from, columns, "map_r");
        for (int i = 0; i < p->n_stored; i++)
                maps = arena_fmt(b->e->tmp, "%s%s", maps,
                                 box_map(b, p, &p->stored[i], columns, i ? "map_d" : "map_c"));
        return arena_fmt(b->e->tmp, "%s<%d>(epilogue%s)", fetched(p, t) ? "fetched" : "boxed",
                         columns, maps);
}

bool sm90_gemm(Build *b, const void *problem)
{
        const GemmWork *work = problem;
        const Gemm *p = work->p;
        const Tile *t = work->pick->tile[ARCH_SM90A];
        const int splits = work->pick->splits[ARCH_SM90A];
        const char *ws = work->ws, *sums = work->sums;
        if (!t)
                return false;
        Emit *e = b->e;
        const char *maps = sm90_gemm_maps(b, p);
        const char *kind = arena_fmt(e->tmp, "%s, %s", p->ta ? "true" : "false",
                                     p->tb || p->slabs ? "true" : "false");
        bool even = (p->M + t->bm - 1) / t->bm % 2 == 0, shared = t->schedule == COOPERATIVE;
        /* pairs of cooperative 16-bit tiles gain nothing */
        bool pairs = p->fixed && even && !p->triangle &&
                     (t->schedule == PINGPONG || (shared && p->dt == DT_F32));
        /* S128x128t becomes S128x128p */
        const char *tile = arena_fmt(e->tmp,
                                     pairs && shared ? "Pairs<%.*s>"
                                     : pairs         ? "%.*sp"
                                                     : "%.*s",
                                     (int)strlen(t->name) - (pairs && !shared), t->name);
        const char *how = arena_fmt(e->tmp, p->slabs ? "<%s, Slabs<%s>, %s" : "<%s, %s, %s",
                                    c_type(p->dt), tile, kind);
        const char *rows = sums ? arena_fmt(e->tmp, ", RowSums{ a.%s }", sums) : "";
        b->compile_ms += (sums ? SUMS_MS : 0) + (p->slabs ? SLABS_MS : 0);
        long long across = (p->N + t->bn - 1) / t->bn * splits;
        if (t->schedule == SINGLE_WAVE) {
                SingleWave *s = arena_alloc(e->m->arena, sizeof *s);
                *s = (SingleWave) { *p, work->forced ? t : NULL };
                Form *f = form_begin(b, ARCH_SM90A, "gemm_single_wave_sm90");
                *f = single_wave_form(t, s);
                f->include = "gemm_single_wave_sm90";
                f->waits = true;
                b->single_wave = s;
                b->tile = t->name;
                build_prefetch(b, PREFETCH_EACH, &p->a, &p->w);
                build_line(b, "gemm_single_wave<%s, Tile, %s, PREFETCH>(%s, tile, smem, epilogue);",
                           c_type(p->dt), kind, maps);
                return true;
        }
        Form *f = form_begin(b, ARCH_SM90A, "gemm_sm90");
        f->threads = t->threads;
        f->smem = t->smem + (sums ? ROW_SUMS_SMEM : 0);
        f->persistent = t->parts == 1;
        f->pairs = pairs;
        f->grid = p->fixed ? grid_blocks(tiles_of(t, p) * splits)
                           : grid_times(grid_blocks(across), grid_ceil(e, p->rows, t->bm));
        f->waits = !p->fixed && p->w.kind == SLOT_NODE && NODE(e->g, p->w.id)->op == OP_PARAM;
        const char *waits = f->waits ? ", true" : "";
        if (t->parts > 1) {
                int64_t sent = split_k_blocks(t, p) / t->parts * (t->parts - 1) * t->bm * t->bn;
                int counts = work_keep(e, DIM(SM90A_SMS), 4, t->parts == 2 ? "joined2" : "joined4");
                ws = arg_work(e, &b->args, work_new(e, DIM(sent), 4), C_F32, "parts");
                f->cluster = 2;
                f->grid = grid_times(grid_blocks(across * t->parts * 2),
                                     grid_ceil(e, p->rows, 2 * t->bm));
                build_line(b, "gemm_tma_split_k%s%s>(%s, a.%s, a.%s, rt->sms, smem, epilogue);",
                           how, waits, maps, ws, arg_work(e, &b->args, counts, C_I32, "joined"));
        } else if (splits > 1) {
                build_line(b,
                           "gemm_tma_split_k_parts%s, 4%s>(%s, %d, a.%s, tile, (int)gridDim.x, "
                           "smem%s);",
                           how, waits, maps, splits, ws, rows);
        } else if (p->batch) {
                const char *ends = "epilogue";
                if (p->triangle)
                        ends = arena_fmt(e->tmp,
                                         "Mirrored<%s, %s, \1_epilogue>{ epilogue, %s, %lld }",
                                         tile, c_type(p->dt), p->out, (long long)p->N);
                build_line(b, "gemm_tma_batch%s, %s>(%s, %lld, tile, (int)gridDim.x, smem, %s);",
                           how, p->triangle ? "true" : "false", maps, (long long)p->batch, ends);
        } else {
                build_line(b, "gemm_tma_persistent%s%s>(%s, tile, (int)gridDim.x, smem, %s%s);",
                           how, waits, maps, epilogue_text(b, p, t), rows);
        }
        return true;
}
