/* cpu_matvec.h: Y = X op(W) for M = 1..8 rows (decode): weights pass once through
 * the registers, nothing is packed.
 *
 * A tile is a range of output columns for all M rows; a small layer is one tile.
 * Every tile asks the head for all of X (M x K): the head must be pure. */
#ifndef TGC_CPU_MATVEC_H
#define TGC_CPU_MATVEC_H

#include "cpu_matmul.h"

/* Standardise each row of X first: RMS x*rstd, LAYER (x-mean)*rstd.  The gain is
 * folded into W or the head's business. */
enum { NORM_NONE, NORM_RMS, NORM_LAYER };

enum { MATVEC_K_MAX = 32768 };  /* largest M*K: beyond it use matmul_task */

/* w as Mat b of matmul_task: op(W) is (K,N); trans 1: stored (N,K). */
TGC_INLINE long matvec_tiles(long N, long K);
TGC_INLINE void matvec_task(int norm, float eps, Mat w, int M, long N, long K, long tile,
                            const void *args, HeadFn head, TailFn tail);

#endif
