/* cpu_matmul.h: C = op(A) op(B), then the tail, for M above a handful of rows.
 *
 * A tile is a block of C, MATMUL_MT x MATMUL_NT at most; it packs its own panels
 * of A and B into float, so tiles share nothing.  Each element of C is one sum in
 * the order of k, cut in the same places whatever the tile: the bits do not depend
 * on threads. */
#ifndef TGC_CPU_MATMUL_H
#define TGC_CPU_MATMUL_H

#include "tgc.h"

/* A matrix operand.  trans 0: rows of op() are contiguous, element (r, c) at r*ld + c;
 * trans 1: stored transposed, (r, c) at c*ld + r.  batch: elements from one matrix of
 * a batch to the next (0: shared). */
typedef struct Mat { const void *p; int ty, trans; long ld, batch; } Mat;

/* op(A) (M,K), op(B) (K,N), `batch` times; tail rows are batch_index*M + m.
 * A linear layer with weights (N,K) has b.trans = 1. K may be 0: C = 0. */
TGC_INLINE long matmul_tiles(long batch, long M, long N, long K);
TGC_INLINE void matmul_task(Mat a, Mat b, long M, long N, long K, long tile, const void *args, TailFn *tail);

#endif
