/* sm90_grouped_gemm.c: GEMMs over experts on sm_90a (kernels/moe/grouped_gemm_sm90.cuh).
 *
 * The number of tiles is known only after the slots are sorted, since every expert may end with a
 * partial tile.  So each block finds its tiles at run time. */
#include "forms.h"

/* LEAST_US: shorter GEMMs use the portable form. */
enum { LEAST_US = 15 };

/* Microseconds on an H100 (tests/bench/grouped_gemm_sm90_bench.cu).  An expert's slots leave half
 * a tile empty on average. */
static double expert_time(const Tile *t, const GroupedGemm *x)
{
        int64_t across = (x->N + t->bn - 1) / t->bn, down = (x->M + t->bm - 1) / t->bm;
        int64_t tiles = (x->grad ? x->E * down : down + x->E / 2) * across,
                most = (tiles + SM90A_SMS - 1) / SM90A_SMS;
        double K = x->grad ? (double)x->K / (double)x->E + 32 : (double)x->K;
        double main = K * t->ps * 1e-6 * (x->grad ? t->ta : 1),
               epilogue = 1.4e-4 * t->bm * t->bn * x->epilogue_bytes;
        return 3 + (double)most * (main * (x->grad || t->bn > 192 ? 1 : 1.1) +
                                   (x->grad ? 0.2 : 0.38) * epilogue);
}

/* The same for the portable form, which gathers as well. */
static double portable_time(const Tile *t, const GroupedGemm *x)
{
        Gemm p = { .M = x->grad ? x->M * x->E : x->M + x->E * t->bm / 2,
                   .N = x->N,
                   .K = x->grad ? x->K / x->E : x->K,
                   .epilogue_bytes = x->epilogue_bytes,
                   .fixed = true };
        return 1.2 * tile_time_epilogue(t, &p, 1);
}

/* Cooperative, wide tiles only: in ping-pong an epilogue has too few registers. */
static const Tile *expert_tile(const GroupedGemm *x, const Tile *other)
{
        const Tile *best = NULL, *t = NULL;
        double us = portable_time(other, x);
        while (us >= LEAST_US && (t = tile_next(ARCH_SM90A, t))) {
                double mine = expert_time(t, x);
                if (t->schedule == COOPERATIVE && t->parts == 1 && t->bm == 128 && t->bn > 128 &&
                    mine < us)
                        best = t, us = mine;
        }
        return best;
}

/* The argument that is the tensor map of r as rows of `cols`. */
static const char *map_of(Build *b, Ref r, int64_t cols, const char *name)
{
        Emit *e = b->e;
        TensorMap m = { .dt = NODE(e->g, r)->type.dt, .cols = cols };
        m.rows = dim_most(e, type_elems(&NODE(e->g, r)->type)) / cols;
        slot_need(e, r, &m.of, &m.ld);
        return arena_fmt(e->tmp, "a.%s", arg_map(e, &b->args, &m, name));
}

static bool mapped(Emit *e, Ref r)
{
        Slot s;
        int64_t ld;
        return slot_of(e, r, &s, &ld);
}

bool sm90_grouped_gemm(Build *b, const void *problem)
{
        const GroupedGemm *x = problem;
        Emit *e = b->e;
        bool gathers = x->adiv || x->wdiv, all = x->dt != DT_F32 && x->align >= 16;
        if (!all || (x->grad && (!gathers || (x->adiv && x->wdiv))) ||
            !(x->adiv || mapped(e, x->a)) || !(x->wdiv || mapped(e, x->w)))
                return false;
        const Tile *t = expert_tile(x, x->any);
        if (!t)
                return false;
        int64_t across = (x->N + t->bn - 1) / t->bn, down = (x->M + t->bm - 1) / t->bm;
        const char *map_a = x->adiv ? "nullptr" : map_of(b, x->a, x->grad ? x->M : x->K, "map_a");
        const char *map_w = x->wdiv ? "nullptr"
                                    : map_of(b, x->w, x->grad || !x->tb ? x->N : x->K, "map_b");
        const char *rest = arena_fmt(e->tmp,
                                     "%s, %lld, %lld, %lld, tile, (int)gridDim.x, smem, epilogue",
                                     x->order, (long long)x->E, (long long)(x->grad ? x->M : x->N),
                                     (long long)(x->grad ? x->N : x->K));
        Form *f = form_begin(b, ARCH_SM90A, "grouped_gemm_sm90");
        f->threads = t->threads;
        f->smem = t->smem;
        f->persistent = true;
        f->grid = grid_blocks((x->grad ? x->E * down : down + x->E) * across);
        if (x->grad)
                build_line(b, "grouped_gemm_grad_tma<%s, %s, %lld, %lld>(%s, %s, %s, %s, %s);",
                           c_type(x->dt), t->name, (long long)x->adiv, (long long)x->wdiv,
                           x->rows_a, map_a, x->rows_w, map_w, rest);
        else
                build_line(b, "grouped_gemm_tma<%s, %s, %s, %lld, %s>(%s, %s, %s, %s);",
                           c_type(x->dt), t->name, x->tb ? "true" : "false", (long long)x->adiv,
                           x->scatter ? "true" : "false", x->rows_a, map_a, map_w, rest);
        return true;
}
