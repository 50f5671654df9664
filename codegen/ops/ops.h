/* ops.h: turns one group of nodes into kernels, by the class of its anchor: the problem and its
 * portable form.  Functions are grouped by the file that defines them. */
#ifndef TGC_OPS_H
#define TGC_OPS_H

#include "../forms/forms.h"
#include "../forms/gemv_shape.h"

/* ---- route.c: the switch over all classes; experts' routes ---- */

void gen_group(Emit *e, const Group *gr);

/* ---- update.c: gradient norm and optimiser over the arenas; sums over micro-steps ---- */

void gen_update(Emit *e, const Shared *sh, DType dt);
void gen_add_grads(Emit *e, const Shared *sh);
/* Texts of update.cuh's and cpu_update.h's arguments: Grads (CUDA), parameters, and a group's rates
 * as `own`. */
const char *update_grads(Build *b, int64_t n, int64_t n_low);
const char *update_params(Build *b, const Shared *sh, DType dt);
const char *update_rates(Emit *e, const UpdateRange *r);

/* ---- muon.c ---- */

void gen_muon(Emit *e, const Shared *sh, DType dt, int norm); /* norm: a work */

/* ---- ema.c ---- */

void gen_ema(Emit *e, const Shared *sh, DType dt, int norm); /* norm: a work */
void gen_ema_swap(Emit *e, const Shared *sh, DType dt);

/* ---- sample.c ---- */

void gen_sample(Emit *e, const Group *gr);

/* ---- map.c ---- */

void gen_map(Emit *e, const Group *gr);

/* ---- row.c: norms, softmax, reductions ---- */

void gen_row(Emit *e, const Group *gr);

/* ---- column.c: sums over rows ---- */

void gen_column(Emit *e, const Group *gr);
/* A product dW = dy^T x can sum dy's columns by the way on sm_90a (column.c).  gen_column leaves
 * the group to gen_gemm, which calls column_sums after the product; parts_sm90: how many parts it
 * put into `work`, or 0. */
void columns_find(Emit *e);                       /* before the first kernel */
const Group *column_beside(Emit *e, Ref product); /* the sums' group, or NULL */
int column_work(Emit *e, const Group *gr, int64_t parts_sm90);
void column_sums(Emit *e, const Group *gr, int work, int64_t parts_sm90);
/* Sum of a (parts, N) table of partial sums, to an output's epilogue; parts_sm90: how many there
 * are on sm_90a, 0: as many. */
void column_parts(Emit *e, const Group *gr, int work, const char *parts, int64_t parts_sm90,
                  const Functor *epilogue, const char *title);

/* ---- gemm.c: products; their operands, also for the loss ---- */

void gen_gemm(Emit *e, const Group *gr);
/* C text; align in elements; stride: ld where it is a constant, else 0 */
typedef struct Mat {
        const char *arg, *ld, *step;
        int64_t align, stride;
        DType dt;
        const char *ty; /* C: TY_F32 ..., of blocks too */
        Storage blocks;
} Mat;
bool mat_of(Emit *e, Build *b, Ref r, int lead, Mat *m) MUST_USE; /* lead: batch axes */
void mat_need(Emit *e, Build *b, Ref r, int lead, Mat *m);        /* or it is our mistake */
/* The call of gemm_task for each item of a batch; C text: M, N, K, types (its template's
 * arguments). */
void gemm_batch_body(Build *b, const char *M, const char *N, const char *K, const Tile *t,
                     const char *types, const Mat *a, const Mat *w);
/* bytes at a time where addresses are multiples of elems (of a, b and c: a | b | c); 16 at most */
int align_bytes(DType dt, int64_t elems);

/* ---- dense_gemm.c: a product with the functor \1_epilogue that the caller has written ---- */

typedef struct DenseGemm {
        const Mat *a, *w; /* M x K and K x N, or stored with the axes swapped: ta, tb */
        bool ta, tb;
        Slot at, wt; /* where they lie, for tensor maps */
        int64_t M, N, K;
        int align;             /* align_bytes */
        double epilogue_bytes; /* that it moves, an element */
        const Stored *to;      /* what it puts (16 bits; for eight columns), or NULL */
        int64_t batch;         /* each operand's matrices one below another, results too; 0: one */
        /* C text of where a symmetric result lies, whose lower half may be the upper one's copy, or
         * NULL */
        const char *out;
} DenseGemm;
/* How many tiles there are across N on Hopper; 0: it has no form of its own there. */
int dense_gemm(Build *b, DType dt, const DenseGemm *x);
/* columns at a time: a power of two up to `most` that divides n */
int column_v(int64_t n, int most);

/* ---- stored.c: CUDA's products with weights in blocks ---- */

/* From here to blocks_done whoever mentions the parameter gets it decoded; on_sm90a: there, too. */
void blocks_decode(Emit *e, const Group *gr, Ref param, bool on_sm90a);
void blocks_done(Emit *e, Ref param);
/* A product of more rows by its blocks, y = x w^T: the kernel is begun, ends here; false: blocks
 * are to be decoded first. */
bool gemm_stored(Build *b, Ref x, Ref w, Dim M) MUST_USE;
/* y = x w^T with weights in blocks, without operands; false: no kernel knows such blocks. */
bool gemm_stored_problem(Emit *e, Ref x, Ref w, Dim M, StoredGemm *p) MUST_USE;
enum { GEMV_STORED_THREADS = 256 };
int gemv_stored_threads(Storage s);
/* gemv_stored.cuh; finish: ", gain" or "", keep: a line or NULL */
void gemv_stored(Build *b, const Mat *w, int M, int64_t N, int64_t K, NormKind norm,
                 const char *eps, const char *finish, const char *keep);

/* ---- grouped_gemm.c ---- */

void gen_grouped_gemm(Emit *e, const Group *gr);

/* ---- loss.c ---- */

void gen_loss(Emit *e, const Group *gr);

/* ---- attention.c ---- */

void gen_attention(Emit *e, const Group *gr);
void att_operands(Build *b, const Group *attention); /* \1_att, and `in`, for CUDA */

#endif
