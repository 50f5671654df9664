/* rows.cuh: work along the last dimension: norms, softmax, reductions.
 *
 *      norm_task<KIND, N, THREADS>(rows, tile, eps, smem, head, tail)
 *              tail gets (x - mean) * rstd (NORM_LAYER) or x * rstd (NORM_RMS);
 *              gain and bias are the tail's.
 *      norm_grad_task<KIND, N, THREADS, ACC>(rows, tile, tiles, eps, smem, head_x, head_dy, tail,
 *                                            dgain, dbias)
 *              dx of the above from x (statistics are computed again) and dy.  head_dy(row, col, dy, g)
 *              fills two vectors: g, the gradient of the whole output, and dy = g * gain.
 *              ACC: 0, ACC_GAIN or ACC_GAIN | ACC_BIAS; dgain, dbias: float (tiles, N) partial sums of g * xhat
 *              and g over the rows of each tile, for columns_reduce_task; unused ones may be null.
 *              Tile t works on the row groups t, t + tiles, ...: with ACC, launch a fixed number
 *              (264, or fewer when there are fewer groups); without ACC as many tiles as groups.
 *      softmax_task<N, THREADS>(rows, n, tile, smem, head, tail)
 *              a row that is -inf throughout gives zeros.
 *      softmax_grad_task<N, THREADS>(rows, n, tile, smem, head_y, head_dy, tail)
 *              y * (dy - sum(y * dy)); both heads are plain ones.
 *      reduce_task<KIND, N, THREADS>(rows, n, tile, smem, head, tail)
 *              RED_SUM, RED_MAX, RED_LOGSUMEXP: tail(row, 0, v[1]).  Empty rows cannot be.
 *              A NaN is ignored by RED_MAX as by fmaxf.
 *      argmax_task<N, THREADS>(rows, n, tile, smem, head, int *out)     out: int (rows)
 *              the lowest index wins a tie; a NaN is greater than any number.
 *
 * N is the row length; 0 where it is known only at run time (n; N > 0 ignores n).
 * ROW_LANES(N, THREADS) threads share a row, so that one tile is a group of
 * ROW_ROWS(N, THREADS) = THREADS / ROW_LANES rows; tiles: ceil(rows / ROW_ROWS).
 * THREADS that suit: 128 up to N = 1024, 256 up to 4096, 512 up to 16384 and for
 * run-time n, 1024 above.
 *
 * Where a row fits, it is held in registers and heads are called once.  Else
 * they are called up to three times per element: a head that also stores (the
 * new residual) must therefore not read what it stores.
 *
 * shared memory: ROW_SMEM bytes; norm_grad_task with ACC: NORM_GRAD_SMEM(N). */
#ifndef TGC_ROWS_CUH
#define TGC_ROWS_CUH

#include "columns.cuh"

enum { NORM_RMS, NORM_LAYER };
enum { RED_SUM, RED_MAX, RED_LOGSUMEXP };
enum { ACC_GAIN = 1, ACC_BIAS = 2 };

#define ROW_SMEM 256
#define NORM_GRAD_SMEM(N) (ROW_SMEM + 8 * (N))

/* Threads along a row: eight elements each up to a warp, a warp up to 1024, then the block. */
constexpr int row_lanes(int n, int threads)
{
        return n == 0 || n > 1024 ? threads : n > 128 ? 32 : pow2_ceil((n + 7) / 8);
}
#define ROW_LANES(N, THREADS) row_lanes(N, THREADS)
#define ROW_ROWS(N, THREADS) ((THREADS) / ROW_LANES(N, THREADS))

template <int KIND, int N, int THREADS, class Head, class Tail>
TGC_DEV void norm_task(int rows, int tile, float eps, char *smem, const Head &head, const Tail &tail);

template <int KIND, int N, int THREADS, int ACC, class HeadX, class HeadDY, class Tail>
TGC_DEV void norm_grad_task(int rows, int tile, int tiles, float eps, char *smem, const HeadX &head_x,
                            const HeadDY &head_dy, const Tail &tail, float *dgain, float *dbias);

template <int N, int THREADS, class Head, class Tail>
TGC_DEV void softmax_task(int rows, int n, int tile, char *smem, const Head &head, const Tail &tail);

template <int N, int THREADS, class HeadY, class HeadDY, class Tail>
TGC_DEV void softmax_grad_task(int rows, int n, int tile, char *smem, const HeadY &head_y,
                               const HeadDY &head_dy, const Tail &tail);

template <int KIND, int N, int THREADS, class Head, class Tail>
TGC_DEV void reduce_task(int rows, int n, int tile, char *smem, const Head &head, const Tail &tail);

template <int N, int THREADS, class Head>
TGC_DEV void argmax_task(int rows, int n, int tile, char *smem, const Head &head, int *out);

#endif
