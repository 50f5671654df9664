/* forms.h: how each architecture computes a kernel's problem: problems, tiles, and the choice
 * between them.  Functions are grouped by the file that defines them. */
#ifndef TGC_FORMS_H
#define TGC_FORMS_H

#include "../program/program.h"

/* ---- sm80_gemm.c: tiles of GEMMs, and what they cost ---- */

/* math: the instruction.  schedule: cooperative consumers, ping-pong consumers, or single-wave (a
 * warpgroup per 64 rows of a block's only tile). */
typedef enum TileMath { MATH_FMA, MATH_TF32X3, MATH_MMA, MATH_WGMMA } TileMath;
typedef enum TileSchedule { SINGLE_WAVE, PINGPONG, COOPERATIVE } TileSchedule;
/* A row of gemm_tiles.def or sm90_gemm_tiles.def, which explain the columns. */
typedef struct Tile {
        const char *name;
        ArchId arch;
        TileMath math;
        int bm, bn, threads, min_blocks, smem, ps, rounds;
        TileSchedule schedule; /* sm_90a only, like the members that follow */
        int parts, ps_tf32;
        double ta;
} Tile;
const Tile *tile_next(ArchId arch, const Tile *t); /* iterates; NULL begins and ends */

/* The tile with the smallest estimate, and into how many parts to split K (unless splits is
 * NULL). */
const Tile *tile_pick(DType dt, int64_t M, int64_t N, int64_t K, int64_t batch, int *splits);
/* the estimate */
double tile_time(const Tile *t, int64_t M, int64_t N, int64_t K, int64_t batch, int splits);
/* A tile that can compute a GEMM, the number of splits, and the estimate. */
typedef struct Candidate {
        const Tile *t;
        int splits;
        double us;
} Candidate;
enum { MOST_CANDIDATES = 512 };
int tile_list(DType dt, int64_t M, int64_t N, int64_t K, int64_t batch, bool cut, Candidate *out);
bool tile_known(const char *name); /* in either table */
/* Tiles of bm x bn, of `parts` matrices M x N, on the busiest multiprocessor of an H100. */
int64_t tile_rounds(int bm, int bn, int64_t M, int64_t N, int64_t parts);

/* ---- sm90_gemm.c: a GEMM's form on sm_90a ---- */

/* C (M,N) = op(a) op(w): operands as rows of lda and ldw elements; the bytes that divide all
 * addresses; the bytes that the epilogue moves per element of C, and whether it reads.  rows: M,
 * of which a run may have fewer unless `fixed`; a has memory for all. */
typedef struct Gemm {
        DType dt;
        bool ta, tb;
        Slot a, w;
        int64_t lda, ldw, M, N, K;
        int align;
        double epilogue_bytes;
        bool reads, fixed;
        Dim rows;
        bool single_wave; /* single-wave tiles are allowed */
        bool one_order;   /* K is summed in one order, whatever M: prefill over a paged cache */
        bool slabs;       /* w is sm90_gemm_transpose's copy */
        /* number of GEMMs whose matrices are stacked, C's too; 0: one */
        int64_t batch;
        bool triangle; /* of a batch: C is symmetric; out: C text of where it is stored */
        const char *out;
        int n_stored; /* of FunctorText */
        Stored stored[MOST_STORED], from;
} Gemm;
/* The fastest tile if it beats `other`, the tile on other architectures, else NULL.  K is split
 * only if the caller allows. */
const Tile *sm90_tile_pick(const Gemm *p, const Tile *other, int other_splits, int *splits);
int sm90_tile_list(const Gemm *p, bool cut, Candidate *out);
/* tile_time plus what the tile's own epilogue moves */
double tile_time_epilogue(const Tile *t, const Gemm *p, int splits);
bool slot_of(Emit *e, Ref r, Slot *s, int64_t *ld) MUST_USE; /* false: r is not stored as rows */
void slot_need(Emit *e, Ref r, Slot *s, int64_t *ld);
const char *sm90_gemm_maps(Build *b, const Gemm *p); /* C text: maps, M, N, K */
/* Before sm90_gemm, for float32: if w does not have K contiguous, adds a launch that makes a
 * transposed copy, and lets p refer to that. */
void sm90_gemm_transpose(Build *b, Gemm *p);
bool sm90_gemm_takes(const Emit *e, DType dt); /* are such matrices supported? */
int64_t sm90_row_sums(const Gemm *p, const Tile *t, int splits);
/* a name for either number */

/* A GEMM short enough for single-wave tiles; t: the tile asked for, or NULL: the launch's best. */
typedef struct SingleWave {
        Gemm p;
        const Tile *t;
} SingleWave;
enum { MOST_SINGLE_WAVES = 4 };
/* Do both have the same best tiles and times? */
bool single_wave_same(const SingleWave *a, const SingleWave *b);
/* The fastest tiles for n of them in one launch; returns microseconds, or 0 if they do not fit. */
double single_waves_pick(const SingleWave *const *s, int n, const Tile **best);
Form single_wave_form(const Tile *t, const SingleWave *s);

/* ---- sm90_gemm_rows.c: linears of a decode step over a paged cache ---- */

/* The problem of a linear y = x w^T of M rows, for this form; false: the form does not apply. */
bool gemm_rows_problem(Emit *e, const Node *matmul, int align, Gemm *p) MUST_USE;

/* ---- stored_gemm.c: GEMMs with block-quantised weights, more than a few rows ---- */

/* A row of stored_gemm_tiles.def, which explains the columns. */
typedef struct StoredTile {
        ArchId arch;
        TileMath math;
        int bm, mi, warps, blocks, stages, ps;
        enum { TYPES_ALL, TYPES_NOT_I4 } types;
        const char *how;
} StoredTile;
int stored_tile_columns(const StoredTile *t); /* of y, that is rows of W */
/* y (M,N) = x W^T for at most M rows, `rows` of which exist.  splits: K may be split.  operands: C
 * text: x, its row stride, W; M_text: M.  Bodies name `epilogue`. */
typedef struct StoredGemm {
        DType dt;
        Storage blocks;
        int64_t M, N, K;
        Dim rows;
        bool splits;
        int align;
        const char *operands, *M_text;
        /* sm_90a: x as e4m3 codes with a scale per so many columns: C text: x, its row stride in
         * bytes, W; NULL: x has values */
        const char *codes;
        int64_t columns;
        /* where x is, rows of ldx elements; boxes: TMA can move boxes of it */
        Slot x;
        int64_t ldx;
        bool boxes;
        Ref w;
} StoredGemm;
/* t NULL: none. */
typedef struct StoredPick {
        const StoredTile *t;
        int stages, splits, smem;
        double us;
} StoredPick;
/* PLACES: most tiles of a split-K GEMM. MANY: rows from which weights are decoded into memory
 * first (not on sm_90a).  2,048 rows by 28672 x 4096 of Q4_K took an H200 779 us with one tile per
 * block; torch's bf16 GEMM alone takes 604, and decoding 75 (by the bytes moved). */
enum { STORED_PLACES = 1024, STORED_MANY = 1024 };
bool stored_gemm_takes(Storage s, DType dt);     /* kernels know its codes */
double stored_gemm_slower(Storage s);            /* relative to four bits with one scale; 0:
                                                  * unknown */
double sm90_stored_gemm_us(const StoredGemm *p); /* of sm_90a's best tile */
/* ARCH_ANY's; none if so many rows share the weights that decoding them into memory is cheaper. */
StoredPick stored_gemm_pick(const StoredGemm *p);
/* Bytes of 256 of K of a row in shared memory: StoredSlice (kernels/gemm/gemm_stored.cuh). */
int stored_slice_bytes(Storage s, int64_t K);
const char *stored_gemm_tile_text(Arena *a, const StoredPick *k);
/* Memory for partial sums and for counts of finished parts; C text. */
void stored_parts(Build *b, int64_t floats, const char **parts, const char **joined);
/* Fills and writes the form that is being written. */
void stored_gemm_body(Build *b, const StoredGemm *p, const StoredPick *k, Form *f);

/* ---- sm90_stored_stream.c: persistent GEMMs with block-quantised weights ---- */

/* Is there a persistent form?  Then weights need not be decoded into memory. */
bool sm90_stored_stream_takes(const StoredGemm *p);

/* ---- sm90_fp8_gemm.c: GEMMs of many rows with both operands fp8 ---- */

/* Is r a round_fp8 whose result is codes and scales on sm_90a (kernels/norm/round_fp8.cuh)? */
bool sm90_fp8_codes(Emit *e, Ref r);

/* ---- sm90_gemv_stored.c: few rows by block-quantised weights ---- */

/* y (M,N) = norm(x) W^T; units, runs: per lane (kernels/common/stored_dot.cuh).  C text: operands,
 * W, its row stride and eps; finish: the arguments after the epilogue. */
typedef struct GemvStoredWork {
        Storage blocks;
        DType dt;
        int units, runs, M;
        int64_t N, K;
        NormKind norm;
        const char *operands, *finish;
} GemvStoredWork;

/* ---- GEMMs over experts ---- */

/* E experts: y (M slots, N) = a W_e^T (tb) or a W_e; grad: dW_e (M,N), the sum over K slots of a_p
 * w_p^T.  adiv, wdiv: 0: rows sorted by expert; else gathered (kernels/moe/grouped_gemm.cuh).
 * rows_a, rows_w, order: C text: address and row stride of a and of w; perm and offs. */
typedef struct GroupedGemm {
        bool grad, tb, scatter;
        DType dt;
        Ref a, w;
        int64_t E, M, N, K, adiv, wdiv;
        int align;
        double epilogue_bytes; /* per element of y or dW */
        const char *rows_a, *rows_w, *order;
        const Tile *any; /* the tile of ARCH_ANY's form; the body names `epilogue` */
} GroupedGemm;

/* ---- tile_choice.c: a GEMM's tile: measured, else the cost model's ---- */

/* The fastest tile for GEMMs of this key, found by `tgc tune` (tile_choice.c). */
typedef struct Choice {
        const char *key, *tile;
        int splits;
        Loc loc;
        bool used;
} Choice;
/* wrong: the mistake, and where; NULL: none.  The compilation's caller reports it. */
typedef struct Choices {
        const char *gpu;
        Choice *choice;
        int n;
        Arena *arena;
        const char *wrong;
        Loc at;
} Choices;

/* GEMMs of one key: the tile, sm_90a's tile or NULL, other promising ones; joined: some launches
 * compute it together with others. */
typedef struct Product {
        const char *key, *tile, *tile_sm90, *others;
        bool joined;
} Product;

Choices *choices_read(Arena *a, const char *text, const char *name);
/* the used ones, sorted, as text; returns how many */
int choices_used(Choices *c, Text *out);
/* How a GEMM may be computed: K split; through tensor maps; M is an upper bound.  epilogue: its
 * name in the key.  sums: sums of op(a)'s rows are wanted too. */
typedef struct Ways {
        bool cut, maps, most, sums;
        int64_t batch;
        const char *epilogue;
} Ways;
/* tile NULL: ARCH_ANY's serves there as well.  forced: measured. */
typedef struct Pick {
        const Tile *tile[N_ARCHS];
        int splits[N_ARCHS], product, first;
        bool forced;
} Pick;
Pick product_pick(Emit *e, const Gemm *p, const Ways *w);
void product_end(Emit *e, const Pick *k);            /* the launches since then compute this GEMM */
const char *epilogue_key(Emit *e, const Functor *f); /* names of its ops */
/* for `tgc tune`, see runtime/plan/plan.h */
void products_run(Emit *e, const char *program, Text *out);
void products_text(const Module *m, Text *out); /* after the last products_run */

/* ---- forms.c: which forms a kernel gets (forms/forms.def) ---- */

typedef enum Family {
        FAMILY_gemm,
        FAMILY_gemm_norm,
        FAMILY_gemm_rows,
        FAMILY_gemv,
        FAMILY_gemv_stored,
        FAMILY_stored_gemm,
        FAMILY_grouped_gemm,
        FAMILY_attention,
        FAMILY_attention_decode,
        FAMILY_attention_backward
} Family;

/* Adds to b the forms of its problem on other architectures, in the order of forms.def; what is
 * written after is ARCH_ANY's alone.  problem: the family's struct.  Returns whether there is
 * any. */
bool forms_add(Build *b, Family family, const void *problem);

#define FORM(family, arch, adds) bool adds(Build *b, const void *problem);
#include "forms.def"
#undef FORM

/* A GEMM with the picked tile; splits > 1: partial sums go to the argument ws.  sums: the argument
 * for sums of op(a)'s rows, in sm90_row_sums parts, or NULL.  forced: the tile was asked for.  Its
 * body names `epilogue`. */
typedef struct GemmWork {
        const Gemm *p;
        const Pick *pick;
        bool forced;
        const char *ws, *sums;
} GemmWork;

/* Either GEMM, with the norm of the rows that its epilogue makes.  shape, operands: C text:
 * gemm_task's template arguments T to ALIGN, and arguments a to K. */
typedef struct GemmNormWork {
        const Group *norm;
        const Pick *pick;
        const Gemm *p;
        const char *shape, *operands;
} GemmNormWork;

/* A gemv_short GEMV with prologue and epilogue.  minv: the epilogue's.  C text: template arguments
 * N to ALIGN; operands w, ldw and eps; gain and keep, each after a comma. */
struct GemvShort;
typedef struct GemvWork {
        const struct GemvShort *few;
        int minv;
        const char *shape, *operands, *rest;
} GemvWork;

/* r: the attention; lse: C text.  Bodies name `in` and `epilogue`. */
typedef struct AttentionWork {
        Ref r;
        const char *lse;
} AttentionWork;

/* Few queries, `rows` at a time, over a cache in `splits` parts, each of a multiple of `least` keys
 * (0: of what a block takes in a step); the grid is ARCH_ANY's.  parts, done: C text; counts:
 * sequences, and tokens of each.  ring: attention_decode_ring_sm90.cuh may serve, with `heads`
 * sets of rows at most; of_heads is the grid with one block for each. */
typedef struct DecodeWork {
        Ref r;
        int rows, splits, least;
        Grid grid;
        const char *parts, *done, *counts;
        bool ring;
        int64_t heads;
        Grid of_heads;
} DecodeWork;

/* What the kernel of dq computes: dq alone, or all three (dk's and dv's kernel is left out). */
typedef enum GradKind { GRAD_Q, GRAD_KV, GRAD_BOTH, GRAD_SHORT } GradKind;
/* sums: C text: for dq lse and delta, after the output and its strides; for both, after { output,
 * its strides, its gradient, its strides }; for short sequences no delta.  Bodies name `epilogue`,
 * `epilogue_k` and `epilogue_v`. */
typedef struct BackwardWork {
        Ref r;
        GradKind kind;
        const char *sums;
} BackwardWork;

/* ---- sm90_attention.c ---- */

bool sm90_attention_backward_fits(Emit *e,
                                  Ref r); /* r: an attention's gradient with such kernels */
GradKind sm90_attention_backward_kind(Emit *e, Ref r);

/* ---- sm90_gemm_norm.c ---- */

/* The group of a norm that reads, as rows of N, what the GEMM's epilogue stores as `of`, or NULL.
 * The epilogue must then hand it back. */
void norms_find(Emit *e); /* before the first kernel */
const Group *gemm_norm_find(Emit *e, const Group *product, int64_t N, Ref *of);

#endif
