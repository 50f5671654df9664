/* loss.h: private to loss.c, loss_exp.c and loss_small_vocab.c: the last linear with
 * cross-entropy. */
#ifndef TGC_LOSS_H
#define TGC_LOSS_H

#include "ops.h"

typedef struct Loss {
        Emit *e;
        const Group *gr;
        const Node *n;
        Ref x, w, targets, bias, dx, dw, db, loss;
        int64_t rows, V, ld, C, r0, rc; /* all rows; of this chunk */
        int scratch, lse;
        DType dt;
        bool first;
        struct Exps *exps; /* the scratch has exponentials: loss_exp.c; else NULL */
} Loss;

/* ---- loss.c ---- */

/* The chunk's logits, then their gradient: written, or only read. */
const char *scratch_arg(Loss *l, Build *b, bool write);
/* The chunks differ in addresses only, so that they share kernels: launches pass
 * the chunk's first row.  The argument that r lies in begins so many bytes further on. */
void shift(Build *b, Ref r, int64_t bytes);
/* Where tensor maps find a value: the whole, this chunk's rows. */
Slot place_of(Loss *l, Ref r);
Slot chunk_of(Loss *l, Ref r);
void dloss_text(Loss *l, Build *b); /* the functor \1_dloss: the gradient of each token's loss */
/* the chunk's logits, up to the eight columns that the last one is among */
Stored logits_rows(const Loss *l);

/* The chunk's x w^T; to, and what it returns: as dense_gemm. */
int logits_gemm(Loss *l, Build *b, const Mat *x, const Mat *w, const Stored *to);

/* ---- loss_exp.c ---- */

bool exp_fits(const Loss *l);
void exp_start(Loss *l, int64_t chunk); /* sets l->exps; what is computed once for all chunks */
void exp_logits(Loss *l);               /* the chunk's exponentials */
/* their sums: losses, and what the gradients' products need */
void exp_finish(Loss *l, bool grad);
void exp_dx_epilogue(Loss *l, Build *b, DType out, const char *dx);
Slot exp_x(Loss *l, Build *b, Mat *x); /* what dw's product has in place of x: where it lies */

/* ---- loss_small_vocab.c ---- */

bool short_fits(const Loss *l);
/* the chunk's losses, dx, and the gradient of its logits in the scratch */
void small_vocab_losses(Loss *l);

#endif
