/* cross_entropy_exp.cuh: cross-entropy loss over a vocabulary, and its gradient, without storing
 * logits.
 *
 * The last linear's epilogue stores exponentials relative to that of the row's target t, whose
 * logit is computed first:
 *
 *      e_ij = exp(l_ij - l_it)         z_i = sum over j of e_ij, including the target's 1
 *      loss_i = log z_i                dloss/dl_ij = d_i / z_i * (j = t ? -(z_i - 1) : e_ij)
 *
 * So the stored matrix is the gradient, except for the target's column and a factor per row.
 * ce_finish corrects the column, dx applies the factor in its epilogue, and dw multiplies x scaled
 * by it: no further pass over rows x V values.  z >= 1.  e is cut off at 2^CE_MOST, which only a
 * token with a loss beyond 69 nats reaches.
 *
 *      ce_shift_task<T, C, W>(x, ldx, w, ldw, V, rows, targets, shift, tile)
 *              shift[row] = log2(e) * x[row] . w[target]; tiles of CE_SHIFT_ROWS rows.  w: (V, C)
 *      ce_exp(v, shift)
 *              for the epilogue: e of a logit (functor.cuh)
 *      ce_finish_task<T, V, C, W, PARTS, GRAD>(e, lde, rows, sums, targets, loss, x, ldx, xs,
 *              factor, tile, smem, dloss)
 *              sums: float (PARTS, rows), sums of e over parts of the columns; PARTS 0: e is read
 *              instead.  Writes loss[row]; with GRAD also factor[row] = d / z, xs[row] = x[row] *
 *              factor (rows, C), and e's column of the target.  tiles of CE_FINISH_ROWS rows;
 *              shared memory: CE_FINISH_SMEM
 *
 * W divides C: vector width for x and w.  256 threads.  A target outside of [0, V) is ignored: its
 * shift is so large that e, factor and loss are 0. */
#ifndef TGC_CROSS_ENTROPY_EXP_CUH
#define TGC_CROSS_ENTROPY_EXP_CUH

#include "ptx.cuh"

enum { CE_SHIFT_ROWS = 8, CE_FINISH_ROWS = 32, CE_FINISH_SMEM = 9 * 32 * 4 };

template <class T, int C, int W>
TGC_DEV void ce_shift_task(const T *x, int ldx, const T *w, int ldw, int V, int rows,
                           const int *targets, float *shift, int tile)
{
        const int row = tile * CE_SHIFT_ROWS + (int)threadIdx.x / 32, lane = threadIdx.x & 31;
        if (row >= rows)
                return;
        const int target = targets[row];
        float sum = 0.f;
        if (target >= 0 && target < V) {
#pragma unroll 4
                for (int c = lane * W; c < C; c += 32 * W) {
                        float a[W], b[W];
                        load<W>(a, x + (long)row * ldx + c);
                        load<W>(b, w + (long)target * ldw + c);
#pragma unroll
                        for (int j = 0; j < W; j++)
                                sum = fmaf(a[j], b[j], sum);
                }
                sum = warp_sum(sum) * 1.4426950408889634f;
        } else {
                sum = 1e30f;
        }
        if (lane == 0)
                shift[row] = sum;
}

/* z of the block's rows, to z[0..31]; part: 8 x 32 floats. */
template <class T, int V, int PARTS>
TGC_DEV void ce_row_sums(const T *e, int lde, int rows, int row0, const float *sums, float *z,
                         float *part)
{
        const int lane = threadIdx.x & 31, warp = (int)threadIdx.x / 32;
        if constexpr (PARTS > 0) {
                float s = 0.f;
#pragma unroll 8
                for (int p = warp; p < PARTS; p += 8)
                        s += row0 + lane < rows ? sums[(long)p * rows + row0 + lane] : 0.f;
                part[warp * 32 + lane] = s;
                __syncthreads();
                if (warp == 0) {
                        s = 0.f;
#pragma unroll
                        for (int p = 0; p < 8; p++)
                                s += part[p * 32 + lane];
                        z[lane] = s;
                }
        } else {
                constexpr int W = 16 / (int)sizeof(T), WHOLE = V / W * W;
                for (int r = warp; r < 32 && row0 + r < rows; r += 8) {
                        const T *row = e + (long)(row0 + r) * lde;
                        float s = 0.f, v[W];
#pragma unroll 4
                        for (int c = lane * W; c < WHOLE; c += 32 * W) {
                                load<W>(v, row + c);
#pragma unroll
                                for (int j = 0; j < W; j++)
                                        s += v[j];
                        }
                        if (WHOLE + lane < V)
                                s += to_float(row[WHOLE + lane]);
                        s = warp_sum(s);
                        if (lane == 0)
                                z[r] = s;
                }
        }
        __syncthreads();
}

template <class T, int V, int C, int W, int PARTS, bool GRAD, class DLoss>
TGC_DEV void ce_finish_task(T *e, int lde, int rows, const float *sums, const int *targets,
                            float *loss, const T *x, int ldx, T *xs, float *factor, int tile,
                            char *smem, const DLoss &dloss)
{
        const int lane = threadIdx.x & 31, row0 = tile * CE_FINISH_ROWS;
        float *z = (float *)smem;
        ce_row_sums<T, V, PARTS>(e, lde, rows, row0, sums, z, z + 32);
        for (int r = (int)threadIdx.x / 32; r < CE_FINISH_ROWS && row0 + r < rows; r += 8) {
                const int row = row0 + r, target = targets[row];
                const bool counts = target >= 0 && target < V;
                float d[1] = { 0.f };
                if (lane == 0)
                        loss[row] = counts ? logf(z[r]) : 0.f;
                if constexpr (GRAD) {
                        if (counts)
                                dloss(row, 0, d);
                        const float f = counts ? d[0] / z[r] : 0.f;
                        if (lane == 0) {
                                factor[row] = f;
                                if (counts)
                                        from_float(e + (long)row * lde + target,
                                                   -fmaxf(z[r] - 1.f, 0.f));
                        }
#pragma unroll 4
                        for (int c = lane * W; c < C; c += 32 * W) {
                                float v[W];
                                load<W>(v, x + (long)row * ldx + c);
#pragma unroll
                                for (int j = 0; j < W; j++)
                                        v[j] *= f;
                                store<W>(xs + (long)row * C + c, v);
                        }
                }
        }
        __syncthreads();
}

#endif
