/* gemv_epilogue.cuh: the end of every GEMV kernel: adds up the parts of K, in the order of the
 * parts, and passes neighbouring results to the epilogue.
 *
 *      epilogue_width       neighbours that one call of the epilogue takes, of N
 *      parts_sum            partial sums that lie `stride` floats apart
 *      parts_join           those of the warps that share rows of W, in the first of them
 *      rows_finish          a warp's results to the epilogue, lane m those of row m
 *      lanes_finish         all of this for a warp whose lanes share its rows of W */
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

/* acc of SPLIT warps, of which this is number `part`, in the order of the parts; partial: room for
 * all warps' acc. */
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

/* lane is below M.  SCALED: row m's results times scale[m]. */
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

/* acc[r][m]: a lane's part of row m of x by column col0 + r; partial as in parts_join. */
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
