/* columns.cuh: column sums of a rows x N matrix (bias gradients, gain gradients), in one fixed
 * order.
 *
 *      column_sum_task<N, COLS, THREADS>(rows, chunks, tile, smem, prologue, epilogue)
 *              epilogue(c, col, sum of prologue(row, col) over the rows of chunk c).  Chunk c of
 *              `chunks` is rows [c*R, (c+1)*R), R = ceil(rows / chunks); empty chunks give 0.  A
 *              tile is COLS columns of one chunk: tile = chunk * ceil(N / COLS) + column tile.
 *      columns_reduce_task<N, THREADS>(n, partial, tile, smem, epilogue)
 *              epilogue(0, col, sum over the n rows of partial); tiles: ceil(N / 32).  Also reads
 *              the partials of norm_grad_task.
 *
 * Few rows: chunks = 1, COLS = 256, and the epilogue is the real one (row is 0).  Many rows: so
 * many chunks that there are about 400 tiles, with epilogue ColumnsStore<N>{partial}, partial:
 * float (chunks, N); then columns_reduce_task.
 *
 * THREADS: 256.  shared memory: COLUMNS_SMEM(THREADS) bytes. */
#ifndef TGC_COLUMNS_CUH
#define TGC_COLUMNS_CUH

#include "map.cuh"

#define COLUMNS_SMEM(THREADS) (32 * (THREADS))

template <int N>
struct ColumnsStore {
        static constexpr int MAXV = 8, MINV = 1;
        float *partial; /* (chunks, N) */
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                store<V>(partial + (long long)row * N + col, v);
        }
};

template <int N>
struct ColumnsLoad {
        static constexpr int MAXV = 4, MINV = 1;
        const float *partial; /* (chunks, N) */
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                load<V>(v, partial + (long long)row * N + col);
        }
};

template <int N, int COLS, int THREADS, class Prologue, class Epilogue>
TGC_DEV void column_sum_task(int rows, int chunks, int tile, char *smem, const Prologue &prologue,
                             const Epilogue &epilogue)
{
        constexpr int V = vec_of(N, vec_min(Prologue::MAXV, Epilogue::MAXV));
        constexpr int WIDTH = vec_min(N, COLS);               /* columns of a full tile */
        constexpr int LANES = pow2_ceil((WIDTH + V - 1) / V); /* threads along a row */
        constexpr int GROUPS = THREADS / LANES;               /* rows in flight */
        constexpr int COL_TILES = (N + COLS - 1) / COLS;
        static_assert(COLS % V == 0 && LANES <= THREADS, "column_sum: COLS must fit the block");
        static_assert(V >= Prologue::MINV && V >= Epilogue::MINV,
                      "column_sum: needs wider vectors than N has");

        int chunk = tile / COL_TILES, lane = (int)threadIdx.x % LANES,
            group = (int)threadIdx.x / LANES;
        int col = tile % COL_TILES * COLS + lane * V;
        int per = (rows + chunks - 1) / chunks;
        long long first = (long long)chunk * per;
        int r0 = first < rows ? (int)first : rows,
            r1 = first + per < rows ? (int)(first + per) : rows;
        bool live = lane * V < WIDTH && col < N;

        float sum[V] = {};
        if (live)
#pragma unroll 4
                for (int r = r0 + group; r < r1; r += GROUPS) {
                        float v[V];
                        prologue(r, col, v);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                sum[j] += v[j];
                }

        float *part = (float *)smem; /* (GROUPS, LANES, V) */
        if (GROUPS > 1) {
                __syncthreads();
                store<V>(part + threadIdx.x * V, sum);
                __syncthreads();
        }
        if (group == 0 && live) {
#pragma unroll 4
                for (int g = 1; g < GROUPS; g++) {
                        float v[V];
                        load<V>(v, part + (g * LANES + lane) * V);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                sum[j] += v[j];
                }
                epilogue(chunk, col, sum);
        }
        if (GROUPS > 1)
                __syncthreads();
}

template <int N, int THREADS, class Epilogue>
TGC_DEV void columns_reduce_task(int n, const float *partial, int tile, char *smem,
                                 const Epilogue &epilogue)
{
        column_sum_task<N, 32, THREADS>(n, 1, tile, smem, ColumnsLoad<N> { partial }, epilogue);
}

#endif
