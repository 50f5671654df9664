/* gemv_epilogue.cuh: what every GEMV kernel ends with: adds the partial sums of a split K in
 * order, and passes vectors of neighbouring results to the epilogue.
 *
 *      epilogue_width       vector width for the epilogue, at most N (if MINV allows)
 *      parts_sum            sum of PARTS partial sums, `stride` floats apart
 *      parts_join           sum over the SPLIT warps that share columns
 *      rows_finish          epilogue of a warp's results: lane m handles row m
 *      lanes_finish         reduction over lanes, parts_join, rows_finish */
#ifndef TGC_GEMV_EPILOGUE_CUH
#define TGC_GEMV_EPILOGUE_CUH

#include "tgc.cuh"

template <class Epilogue, int N>
__host__ __device__ constexpr int epilogue_width()
{
        return Epilogue::MAXV < N ? Epilogue::MAXV : Epilogue::MINV > N ? Epilogue::MINV : N;
}

/* v[j] = the sum over p of parts[first + p * stride + j]. */
template <int PARTS, int V>
TGC_DEV void parts_sum(float (&v)[V], const float *parts, int first, int stride)
{
#pragma unroll
        for (int j = 0; j < V; j++) {
                v[j] = 0.f;
#pragma unroll
                for (int p = 0; p < PARTS; p++)
                        v[j] += parts[first + p * stride + j];
        }
}

/* acc += over the SPLIT warps that share columns, in order; this warp is number `part` of them.
 * partial: ROWS * M floats per warp of the block. */
template <int SPLIT, int ROWS, int M>
TGC_DEV void parts_join(float (&acc)[ROWS][M], float *partial, int warp, int part, int lane)
{
#pragma unroll
        for (int i = 0; i < ROWS * M; i++)
                if (lane == i % 32)
                        partial[warp * (ROWS * M) + i] = acc[i / M][i % M];
        __syncthreads();
        parts_sum<SPLIT>(reinterpret_cast<float(&)[ROWS * M]>(acc), partial,
                         (warp - part) * (ROWS * M), ROWS * M);
}

/* Called by lanes below M.  SCALED: multiplies row m by scale[m]. */
template <bool SCALED, int N, int ROWS, int M, class Epilogue>
TGC_DEV void rows_finish(const float (&acc)[ROWS][M], const float (&scale)[M], int row0, int col0,
                         int lane, const Epilogue &epilogue)
{
        constexpr int V = epilogue_width<Epilogue, ROWS>();
        float mine[ROWS];
#pragma unroll
        for (int m = 0; m < M; m++)
                if (m == lane) {
#pragma unroll
                        for (int r = 0; r < ROWS; r++)
                                mine[r] = SCALED ? acc[r][m] * scale[m] : acc[r][m];
                }
#pragma unroll
        for (int r = 0; r < ROWS; r += V)
                if (col0 + r < N) {
                        float v[V];
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[j] = mine[r + j];
                        epilogue(row0 + lane, col0 + r, v);
                }
}

/* acc[r][m]: this lane's partial sum of row m of x by column col0 + r.  partial as in
 * parts_join. */
template <bool SCALED, int N, int SPLIT, int ROWS, int M, class Epilogue>
TGC_DEV void lanes_finish(float (&acc)[ROWS][M], const float (&scale)[M], float *partial, int row0,
                          int col0, int warp, int part, int lane, const Epilogue &epilogue)
{
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                        acc[r][m] = warp_sum(acc[r][m]);
        if (SPLIT > 1)
                parts_join<SPLIT, ROWS, M>(acc, partial, warp, part, lane);
        if (part == 0 && lane < M)
                rows_finish<SCALED, N, ROWS, M>(acc, scale, row0, col0, lane, epilogue);
}

#endif
