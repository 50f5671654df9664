/* cross_entropy.cuh: the loss over a vocabulary of V, one row per tile.
 *
 *      ce_task<T, V, THREADS>(logits, ld, targets, loss, lse, tile, smem)
 *              lse[row] = log(sum(exp(logits[row]))), loss[row] = lse - logits[row][target].
 *      ce_grad_task<T, V, THREADS>(logits, dlogits, ld, targets, lse, tile, dloss)
 *              dlogits = (softmax(logits) - onehot(target)) * dloss(row); dlogits may be logits.
 *      ce_both_task<T, V, THREADS>(logits, ld, targets, loss, lse, tile, smem, dloss)
 *              both of the above at once, the gradient in place of the logits.  Up to 64 KiB * 2
 *              the row is held in registers between reading and writing; a longer one is read
 *              twice, the second time from L2.
 *
 * logits: T (rows, ld), ld >= V; columns from V on are neither used nor written.
 * Rows whose size is a multiple of 16 bytes are read 16 bytes at a time, so
 * ld should be rounded up.  targets: int (rows); a target below 0 or from V on is
 * ignored: loss 0, lse 0, gradient 0, and the logits are not read.
 * dloss(row, 0, v[1]) is a plain head; what divides by the token count is in it.
 *
 * tiles: rows.  THREADS: 1024 from V = 8192 on, else 256.  shared memory: CE_SMEM bytes. */
#ifndef TGC_CROSS_ENTROPY_CUH
#define TGC_CROSS_ENTROPY_CUH

#include "tgc.cuh"

#define CE_SMEM 256

template <class T, int V, int THREADS>
TGC_DEV void ce_task(const T *logits, int ld, const int *targets, float *loss, float *lse, int tile, char *smem);

template <class T, int V, int THREADS, class DLoss>
TGC_DEV void ce_grad_task(const T *logits, T *dlogits, int ld, const int *targets, const float *lse, int tile,
                          const DLoss &dloss);

template <class T, int V, int THREADS, class DLoss>
TGC_DEV void ce_both_task(T *logits, int ld, const int *targets, float *loss, float *lse, int tile, char *smem,
                          const DLoss &dloss);

#endif
