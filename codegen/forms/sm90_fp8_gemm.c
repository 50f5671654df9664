/* sm90_fp8_gemm.c: --act fp8 on sm_90a: GEMMs of many rows with both operands e4m3
 * (kernels/gemm/gemm_fp8_sm90.cuh; with enough tiles for every multiprocessor
 * gemm_fp8_persistent_sm90.cuh).
 *
 * round_fp8 then writes codes and scales in place of its values (round_fp8.cuh).  All its readers
 * must agree on whether it does. */
#include "forms.h"

/* LEAST: rows from which it pays; fewer are bound by the weights' bytes, which other kernels read
 * as fast. */
enum { LEAST = 48, BLOCK = 128, STAGES = 4, SLICES = 3, MOST_SPLITS = 16 };

/* ps: per 256 of K, measured on an H100. */
static const struct {
        int bm, groups, ps;
} tiles[] = { { 64, 2, 1500000 }, { 128, 2, 1900000 } };

/* The same for persistent blocks. */
static const struct {
        int bm, stages, ps;
} streams[] = { { 256, 3, 2200000 }, { 128, 5, 1250000 } };
enum { STREAM_BN = 128 };

/* Does n read r only as rows of a GEMM with fp8 weights? */
static bool reads_codes(Emit *e, Ref matmul, Ref r)
{
        const Graph *g = e->g;
        const Node *n = NODE(g, matmul), *w = NODE(g, n->in[1]);
        const int64_t K = NODE(g, r)->type.dim[NODE(g, r)->type.rank - 1].n;
        Access a;
        Dim ld;
        return n->op == OP_MATMUL && w->type.dt == NODE(g, r)->type.dt && n->a.mm.tb &&
               !n->a.mm.ta && w->type.rank == 2 && node_storage(w) == STORAGE_F8_128 &&
               dim_is_const(type_elems(&w->type)) && w->type.dim[1].n == K &&
               storage_bytes(STORAGE_F8_128, w->type.dim[0].n * K) <= INT32_MAX &&
               !gemv_m(g, matmul) && dim_most(e, type_rows(&NODE(g, n->in[0])->type)) >= LEAST &&
               access_of(g, e->place, n->in[0], &a) && a.base == r && a.off == 0 &&
               access_rows(&a, &ld) && dim_eq(ld, DIM(K));
}

bool sm90_fp8_codes(Emit *e, Ref r)
{
        const Graph *g = e->g;
        const Node *n = NODE(g, r);
        const int64_t K = n->op == OP_ROUND_FP8 ? n->type.dim[n->type.rank - 1].n : 0;
        Access own;
        bool read = false;
        if (e->m->target != TARGET_CUDA || n->op != OP_ROUND_FP8 || dt_size[n->type.dt] != 2 ||
            K % BLOCK || (n->a.k.k && n->a.k.k != BLOCK && n->a.k.k < K) ||
            !access_of(g, e->place, r, &own) || own.base != r || own.off)
                return false;
        for (int i = 0; i < g->n_out; i++)
                if (value_base(g, g->out[i].ref) == r)
                        return false;
        for (Ref k = r + 1; k < g->n_nodes; k++)
                for (int i = 0; i < NODE(g, k)->n_in; i++) {
                        if (value_base(g, NODE(g, k)->in[i]) != r ||
                            op_is(NODE(g, k)->op, FACT_FOLLOWED))
                                continue;
                        if (i || !reads_codes(e, k, r))
                                return false;
                        read = true;
                }
        return read;
}

/* The best persistent tile; us: its microseconds; -1: none takes the problem. */
static int stream_pick(const StoredGemm *p, double *us)
{
        int best = -1;
        if (p->N % (2 * STREAM_BN) || p->K % (4 * BLOCK))
                return -1;
        for (int i = 0; i < (int)(sizeof streams / sizeof *streams); i++) {
                const int64_t places = (p->M + streams[i].bm - 1) / streams[i].bm *
                                       (p->N / STREAM_BN),
                              rounds = (places + SM90A_SMS - 1) / SM90A_SMS;
                const double t = (double)rounds * (double)(p->K / (2 * BLOCK)) * streams[i].ps *
                                 1e-6;
                if (best < 0 || t < *us)
                        best = i, *us = t;
        }
        return best;
}

/* The persistent kernel, in clusters of two. */
static void stream(Build *b, const StoredGemm *p, int i)
{
        enum { W = 3, PANELS = 8 * 16 * 20 * 4 };
        const int bm = streams[i].bm;
        Form *f = form_begin(b, ARCH_SM90A, "gemm_fp8_persistent_sm90");
        f->threads = 384;
        f->smem = streams[i].stages * (bm * BLOCK + 16 + bm * 4) +
                  W * (16 + STREAM_BN * stored_slice_bytes(p->blocks, p->K)) + PANELS;
        f->min_blocks = 1;
        f->waits = true;
        f->persistent = f->pairs = true;
        f->grid = grid_times(grid_blocks(p->N / STREAM_BN), grid_ceil(b->e, p->rows, bm));
        /* two codes per 16-bit value */
        const TensorMap x = { .of = p->x, .dt = p->dt, .rows = p->M, .cols = p->K, .ld = p->K };
        build_line(b,
                   "static_assert(Fp8Stream<%d>::smem<Stored_F8_128, %lld>() == %d, \"as it is "
                   "counted\");",
                   bm, (long long)p->K, f->smem);
        build_line(b,
                   "fp8_gemm_persistent<Stored_F8_128, Fp8Stream<%d>, %lld, %lld, %lld>(a.%s, %s, "
                   "%s, (%s + %d) / %d, tile, (int)gridDim.x, smem, epilogue);",
                   bm, (long long)p->N, (long long)p->K, (long long)p->columns,
                   arg_map(b->e, &b->args, &x, "map_x"), p->codes, p->M_text, p->M_text, bm - 1,
                   bm);
}

bool sm90_fp8_gemm(Build *b, const void *problem)
{
        const StoredGemm *p = problem;
        Emit *e = b->e;
        const int64_t slices = (p->K + 2 * BLOCK - 1) / (2 * BLOCK);
        int best = -1, splits = 1;
        double least = 0;
        if (!p->codes)
                return false;
        for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
                for (int s = 1; s <= MOST_SPLITS; s++) {
                        const int bn = 64 * tiles[i].groups;
                        const int64_t places = (p->M + tiles[i].bm - 1) / tiles[i].bm *
                                               ((p->N + bn - 1) / bn),
                                      rounds = (places * s + SM90A_SMS - 1) / SM90A_SMS;
                        if (s > 1 && (!p->splits || places > STORED_PLACES || slices / s < 2))
                                break;
                        const double bytes = (double)p->N * (double)p->K / 3.9e6,
                                     work = (double)rounds * (double)((slices + s - 1) / s) *
                                            tiles[i].ps * 1e-6,
                                     us = (bytes > work ? bytes : work) +
                                          (s > 1 ? 1 + (double)(places * s) * tiles[i].bm * bn * 8 /
                                                                   2.5e6
                                                 : 0);
                        if (best < 0 || us < least)
                                best = (int)i, splits = s, least = us;
                }
        double us;
        const int pick = stream_pick(p, &us);
        if (pick >= 0 && us < least) {
                stream(b, p, pick);
                return true;
        }
        const int bm = tiles[best].bm, bn = 64 * tiles[best].groups;
        const int64_t places = (p->M + bm - 1) / bm * ((p->N + bn - 1) / bn);
        const char *tile = arena_fmt(e->tmp, "Fp8Tile<%d, %d, 1>", bm, tiles[best].groups),
                   *parts = "(float *)0", *joined = "(int *)0";
        const int all = STAGES * (bm * BLOCK + bm * 4) +
                        SLICES * bn * stored_slice_bytes(p->blocks, p->K),
                  sums = bm * (bn + 4) * 4 + 16;
        Form *f = form_begin(b, ARCH_SM90A, "gemm_fp8_sm90");
        f->threads = 128 * tiles[best].groups;
        f->smem = all > sums ? all : sums;
        f->min_blocks = 1;
        f->waits = true;
        f->cluster = 1; /* one tile per block, not persistent */
        f->grid = grid_times(grid_blocks((p->N + bn - 1) / bn * splits), grid_ceil(e, p->rows, bm));
        if (splits > 1)
                stored_parts(b, places * splits * bm * bn, &parts, &joined);
        build_line(b, "static_assert(%s::smem<Stored_F8_128, %lld>() == %d, \"as it is counted\");",
                   tile, (long long)p->K, f->smem);
        build_line(b,
                   "fp8_gemm_task<Stored_F8_128, %s, %lld, %lld, %lld>(%s, %s, (%s + %d) / %d, %d, "
                   "%s, %s, tile, smem, epilogue);",
                   tile, (long long)p->N, (long long)p->K, (long long)p->columns, p->codes,
                   p->M_text, p->M_text, bm - 1, bm, splits, parts, joined);
        return true;
}
