/* forms.h: how each architecture computes a kernel's problem: problems, tiles, and the choice
 * between them.  Functions are grouped by the file that defines them. */
#ifndef TGC_FORMS_H
#define TGC_FORMS_H

#include "../program/program.h"

/* ---- sm80_gemm.c: tiles of products, and what they cost ---- */

/* What multiplies in a tile, and who: consumers that have the tile together, or whole ones in
 * turns, or a warpgroup for every 64 rows of a block's only tile. */
typedef enum TileMath { MATH_FMA, MATH_TF32X3, MATH_MMA, MATH_WGMMA } TileMath;
typedef enum TileSchedule { SINGLE_WAVE, PINGPONG, COOPERATIVE } TileSchedule;
/* A row of gemm_tiles.def or sm90_gemm_tiles.def, where each column is explained. */
typedef struct Tile {
        const char *name;
        ArchId arch;
        TileMath math;
        int bm, bn, threads, min_blocks, smem, ps, rounds;
        TileSchedule schedule; /* of sm_90a's, and what follows */
        int parts, ps_tf32;
        double ta;
} Tile;
const Tile *tile_next(ArchId arch, const Tile *t); /* NULL begins, and ends */

/* The fastest tile by estimate; into how many parts to split K, unless splits is NULL. */
const Tile *tile_pick(DType dt, int64_t M, int64_t N, int64_t K, int64_t batch, int *splits);
/* its estimate */
double tile_time(const Tile *t, int64_t M, int64_t N, int64_t K, int64_t batch, int splits);
/* A tile that can do a product, K in so many parts, and the estimate. */
typedef struct Candidate {
        const Tile *t;
        int splits;
        double us;
} Candidate;
enum { MOST_CANDIDATES = 512 };
int tile_list(DType dt, int64_t M, int64_t N, int64_t K, int64_t batch, bool cut, Candidate *out);
bool tile_known(const char *name); /* in either table */
/* Tiles of bm x bn, of `parts` matrices M x N, that the busiest multiprocessor of an H100 gets. */
int64_t tile_rounds(int bm, int bn, int64_t M, int64_t N, int64_t parts);

/* ---- sm90_gemm.c: a product's branch for sm_90a ---- */

/* C (M,N) = op(a) op(w): where the operands lie as rows of lda and ldw elements; bytes that divide
 * all addresses; bytes that the epilogue moves per element of C, and whether it reads some.  rows:
 * M, which a run may have fewer of unless it is fixed; a has memory for all. */
typedef struct Gemm {
        DType dt;
        bool ta, tb;
        Slot a, w;
        int64_t lda, ldw, M, N, K;
        int align;
        double epilogue_bytes;
        bool reads, fixed;
        Dim rows;
        bool single_wave; /* it may have a short tile */
        bool one_order;   /* K is summed in one order, whatever M: prefill over a paged cache */
        bool slabs;       /* w is sm90_gemm_transpose's copy */
        /* so many products, each operand's matrices one below another, C's too; 0: one */
        int64_t batch;
        bool triangle; /* of a batch: C is symmetric; out is where it is stored, C text */
        const char *out;
        int n_stored; /* of FunctorText */
        Stored stored[MOST_STORED], from;
} Gemm;
/* The fastest tile if it is faster than `other`, which runs elsewhere, else NULL; K is cut only if
 * it is there. */
const Tile *sm90_tile_pick(const Gemm *p, const Tile *other, int other_splits, int *splits);
int sm90_tile_list(const Gemm *p, bool cut, Candidate *out);
/* tile_time, and what its own epilogue moves */
double tile_time_epilogue(const Tile *t, const Gemm *p, int splits);
bool slot_of(Emit *e, Ref r, Slot *s, int64_t *ld) MUST_USE; /* false: r does not lie as rows */
void slot_need(Emit *e, Ref r, Slot *s, int64_t *ld);
const char *sm90_gemm_maps(Build *b, const Gemm *p); /* C text: maps, M, N, K */
/* Before sm90_gemm: of float32 w must have K contiguous; if it has not, a launch of its own makes
 * what has, of which p speaks then. */
void sm90_gemm_transpose(Build *b, Gemm *p);
bool sm90_gemm_takes(const Emit *e, DType dt); /* it does products of such matrices */
int64_t sm90_row_sums(const Gemm *p, const Tile *t, int splits);
/* a name for either number */

/* A product short enough for tiles that all run at once, a block each; t: which was asked for, or
 * NULL: as is best for the launch. */
typedef struct SingleWave {
        Gemm p;
        const Tile *t;
} SingleWave;
enum { MOST_SINGLE_WAVES = 4 };
/* The same tiles are best for both, in the same time. */
bool single_wave_same(const SingleWave *a, const SingleWave *b);
/* The fastest tiles for n of them in one launch, and its microseconds; 0: they do not fit. */
double single_waves_pick(const SingleWave *const *s, int n, const Tile **best);
Form single_wave_form(const Tile *t, const SingleWave *s);

/* ---- sm90_gemm_rows.c: linears of a decode step over a paged cache ---- */

/* The problem of such a linear, y = x w^T of M rows; false: it has no such form.  w: the node. */
bool gemm_rows_problem(Emit *e, const Node *matmul, int align, Gemm *p) MUST_USE;

/* ---- stored_gemm.c: products with weights in blocks, of more than a few rows ---- */

/* A row of stored_gemm_tiles.def, where each column is explained. */
typedef struct StoredTile {
        ArchId arch;
        TileMath math;
        int bm, mi, warps, blocks, stages, ps;
        enum { TYPES_ALL, TYPES_NOT_I4 } types;
        const char *how;
} StoredTile;
int stored_tile_columns(const StoredTile *t); /* of y, that is rows of W */
/* y (M,N) = x W^T of at most M rows; `rows` of them there are.  splits: K may be cut.  operands: C
 * text, x, its row stride and W; M_text: M.  Bodies name `epilogue`. */
typedef struct StoredGemm {
        DType dt;
        Storage blocks;
        int64_t M, N, K;
        Dim rows;
        bool splits;
        int align;
        const char *operands, *M_text;
        /* on sm_90a x has codes of e4m3, a scale for so many columns: C text, x, its row stride in
         * bytes, W; NULL: it has values */
        const char *codes;
        int64_t columns;
        /* where x is, of rows of ldx elements; boxes: the copy engine moves boxes of it */
        Slot x;
        int64_t ldx;
        bool boxes;
        Ref w;
} StoredGemm;
/* t NULL: there is none. */
typedef struct StoredPick {
        const StoredTile *t;
        int stages, splits, smem;
        double us;
} StoredPick;
/* PLACES: tiles of a product whose K is cut, at most.
 * MANY: rows for which weights are decoded into memory first, but on sm_90a.  2,048 rows by 28672 x
 * 4096 of Q4_K took an H200 779 us in tiles of a block each, torch's bf16 product alone 604, and
 * decoding 75 by the bytes moved. */
enum { STORED_PLACES = 1024, STORED_MANY = 1024 };
bool stored_gemm_takes(Storage s, DType dt);     /* kernels know its codes */
double stored_gemm_slower(Storage s);            /* than four bits with one scale; 0: not known */
double sm90_stored_gemm_us(const StoredGemm *p); /* of the best tile there */
/* Of ARCH_ANY; none where so many rows share the weights that decoding them into memory costs
 * less. */
StoredPick stored_gemm_pick(const StoredGemm *p);
/* Bytes of a row's 256 of K in shared memory: StoredSlice (kernels/gemm/gemm_stored.cuh). */
int stored_slice_bytes(Storage s, int64_t K);
const char *stored_gemm_tile_text(Arena *a, const StoredPick *k);
/* Memory for K's parts and for how many of them are done; C text. */
void stored_parts(Build *b, int64_t floats, const char **parts, const char **joined);
/* fills the form, which is being written, and writes it */
void stored_gemm_body(Build *b, const StoredGemm *p, const StoredPick *k, Form *f);

/* ---- sm90_stored_stream.c: products of many rows with weights in blocks ---- */

/* Is there a form of it in blocks that stay?  With it weights need not be decoded into memory. */
bool sm90_stored_stream_takes(const StoredGemm *p);

/* ---- sm90_fp8_gemm.c: products of many rows of fp8 by weights of fp8 ---- */

/* A round_fp8 whose result lies as codes and scales on sm_90a (kernels/norm/round_fp8.cuh). */
bool sm90_fp8_codes(Emit *e, Ref r);

/* ---- sm90_gemv_stored.c: a few rows by weights in blocks ---- */

/* y (M,N) = norm(x) W^T; units, runs: what a lane reads at once (kernels/common/stored_dot.cuh).  C
 * text: operands, W, its row stride and eps; finish, the arguments behind the epilogue. */
typedef struct GemvStoredWork {
        Storage blocks;
        DType dt;
        int units, runs, M;
        int64_t N, K;
        NormKind norm;
        const char *operands, *finish;
} GemvStoredWork;

/* ---- products over experts ---- */

/* Of E experts: y (M slots, N) = a W_e^T (tb) or a W_e; grad: dW_e (M,N), the sum over K slots of
 * a_p w_p^t.  adiv, wdiv: 0, rows in the order of experts; else they are gathered
 * (kernels/moe/grouped_gemm.cuh).  rows_a, rows_w, order: C text, address and row stride of what a
 * and w are, and perm and offs. */
typedef struct GroupedGemm {
        bool grad, tb, scatter;
        DType dt;
        Ref a, w;
        int64_t E, M, N, K, adiv, wdiv;
        int align;
        double epilogue_bytes; /* per element of y or dW */
        const char *rows_a, *rows_w, *order;
        const Tile *any; /* what ARCH_ANY's form does it in; the body names `epilogue` */
} GroupedGemm;

/* ---- tile_choice.c: the tile of a product: one that was measured, else the cost model's ---- */

/* A tile that `tgc tune` found to be the fastest, for products of this key (tile_choice.c). */
typedef struct Choice {
        const char *key, *tile;
        int splits;
        Loc loc;
        bool used;
} Choice;
/* wrong: what is, and where; NULL: nothing.  Who has the memory of a compilation in hand says
 * it. */
typedef struct Choices {
        const char *gpu;
        Choice *choice;
        int n;
        Arena *arena;
        const char *wrong;
        Loc at;
} Choices;

/* Products of one key: the tile, that for sm_90a or NULL, what else promises something; joined:
 * there are launches that do it together with others. */
typedef struct Product {
        const char *key, *tile, *tile_sm90, *others;
        bool joined;
} Product;

Choices *choices_read(Arena *a, const char *text, const char *name);
/* those that products took, sorted, as text; how many */
int choices_used(Choices *c, Text *out);
/* How a product may be done: K in parts; through tensor maps; M is the most it can be.  epilogue:
 * its name in the key. sums: of op(a)'s rows are wanted too. */
typedef struct Ways {
        bool cut, maps, most, sums;
        int64_t batch;
        const char *epilogue;
} Ways;
/* tile NULL: ARCH_ANY's does it there as well.  forced: measured. */
typedef struct Pick {
        const Tile *tile[N_ARCHS];
        int splits[N_ARCHS], product, first;
        bool forced;
} Pick;
Pick product_pick(Emit *e, const Gemm *p, const Ways *w);
void product_end(Emit *e, const Pick *k);            /* the launches since then are the product's */
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

/* Adds to b the forms that its problem has on other architectures, in their rows' order; what is
 * written then is ARCH_ANY's alone.  problem: the struct of the family.  Is there any? */
bool forms_add(Build *b, Family family, const void *problem);

#define FORM(family, arch, adds) bool adds(Build *b, const void *problem);
#include "forms.def"
#undef FORM

/* A product in the tile that was picked; splits above 1: parts of K go to the argument ws.  sums:
 * the argument for sums of op(a)'s rows, in sm90_row_sums parts, or NULL.  forced: the tile was
 * asked for.  Its body names `epilogue`. */
typedef struct GemmWork {
        const Gemm *p;
        const Pick *pick;
        bool forced;
        const char *ws, *sums;
} GemmWork;

/* The product's tile of either kind, and the norm of the rows that its epilogue makes; shape,
 * operands: C text, gemm_task's template arguments T to ALIGN and a to K. */
typedef struct GemmNormWork {
        const Group *norm;
        const Pick *pick;
        const Gemm *p;
        const char *shape, *operands;
} GemmNormWork;

/* A gemv_short product that has its prologue and epilogue.  minv: the epilogue's.  C text: template
 * arguments N to ALIGN; operands w, ldw and eps; gain and keep, each after a comma. */
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

/* Few queries, `rows` at a time, over a cache in `splits` parts; the grid is ARCH_ANY's.  parts,
 * done: C text; counts: sequences, and tokens of each.  many: a block for the rows of each kv head
 * of each sequence fills the device; blocks: that grid. */
typedef struct DecodeWork {
        Ref r;
        int rows, splits;
        Grid grid;
        const char *parts, *done, *counts;
        bool many;
        Grid blocks;
} DecodeWork;

/* What dq's kernel does of all: dq alone, or everything, and dk's and dv's is left out. */
typedef enum GradKind { GRAD_Q, GRAD_KV, GRAD_BOTH, GRAD_SHORT } GradKind;
/* sums: C text, lse and delta, for dq after the output and its strides, for both after { output,
 * its strides, its gradient, those }; of short sequences no delta.  Bodies name `epilogue`,
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

/* The group of a norm that reads, as its rows of N, what the product's epilogue stores as `of`; or
 * NULL.  The epilogue is then to hand that back. */
void norms_find(Emit *e); /* before the first kernel */
const Group *gemm_norm_find(Emit *e, const Group *product, int64_t N, Ref *of);

#endif
