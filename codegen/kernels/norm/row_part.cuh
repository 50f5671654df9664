/* row_part.cuh: distributes the rows of a matrix over a block's threads, for work along the last
 * dimension (norm.cuh, norm_grad.cuh, softmax.cuh, reduce.cuh, round_fp8.cuh, append_rows.cuh).
 *
 * N is the row length, or 0 if known only at run time (n; N > 0 ignores n).  ROW_LANES(N, THREADS)
 * threads share a row; a tile is a group of ROW_ROWS(N, THREADS) = THREADS / ROW_LANES rows;
 * tiles: ceil(rows / ROW_ROWS).  Suitable THREADS: 128 up to N = 1024, 256 up to 4096, 512 up to
 * 16384 and for run-time n, 1024 above.
 *
 * A row that fits is held in registers, and prologues are called once.  Else they are called up to
 * three times per element: a prologue that also stores (the new residual) must not read what it
 * stores.
 *
 * shared memory: ROW_SMEM bytes, unless a task says otherwise. */
#ifndef TGC_ROW_PART_CUH
#define TGC_ROW_PART_CUH

#include "map.cuh"
#include "ptx.cuh"

#define ROW_SMEM 256

/* Threads per row: eight elements each up to a warp; a warp up to 1024 elements; then the block. */
__host__ __device__ constexpr int row_lanes(int n, int threads)
{
        return n == 0 || n > 1024 ? threads : n > 128 ? 32 : pow2_ceil((n + 7) / 8);
}
#define ROW_LANES(N, THREADS) row_lanes(N, THREADS)
#define ROW_ROWS(N, THREADS) ((THREADS) / ROW_LANES(N, THREADS))

/* Floats of its rows that a thread may hold. */
__host__ __device__ constexpr int row_budget(int threads)
{
        return vec_min(128, vec_min(65536 / threads, 255) - 48);
}

/* Reductions over the LANES threads of a row; each thread gets the result.  All threads of the
 * block call.  red: 64 floats. */
template <int LANES, int THREADS>
TGC_DEV float lanes_sum(float x, float *red)
{
        if constexpr (LANES > 32) {
                return block_sum<THREADS>(x, red);
        } else {
#pragma unroll
                for (int d = LANES / 2; d; d >>= 1)
                        x += __shfl_xor_sync(0xffffffffu, x, d);
                return x;
        }
}

template <int LANES, int THREADS>
TGC_DEV float lanes_max(float x, float *red)
{
        if constexpr (LANES > 32) {
                return block_max<THREADS>(x, red);
        } else {
#pragma unroll
                for (int d = LANES / 2; d; d >>= 1)
                        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
                return x;
        }
}

/* One thread's part of a row: vectors i = 0, 1, ... at columns (i * LANES + lane) * V, in
 * registers (HOLD) or fetched from the prologue at each use. */
template <int N, int THREADS, int V, bool HOLD, class Prologue>
struct RowPart {
        static constexpr int LANES = row_lanes(N, THREADS);
        static constexpr int PER = N ? (N / V + LANES - 1) / LANES : 1;
        const Prologue &prologue;
        int row, lane, end; /* end: number of columns; 0 for a row that does not exist */
        float v[HOLD ? PER : 1][V];

        __device__ RowPart(const Prologue &h, int rows, int n, int group)
            : prologue(h), row(group * (THREADS / LANES) + (int)threadIdx.x / LANES),
              lane((int)threadIdx.x % LANES), end(row < rows ? (N ? N : n) : 0)
        {
                if (HOLD)
#pragma unroll
                        for (int i = 0; i < PER; i++)
                                if (has(i))
                                        prologue(row, col(i), v[HOLD ? i : 0]);
        }
        __device__ int col(int i) const { return (i * LANES + lane) * V; }
        __device__ bool has(int i) const { return col(i) < end; }
        __device__ int count(int n) const { return N ? PER : (n / V + LANES - 1) / LANES; }
        __device__ float (&at(int i))[V]
        {
                if (HOLD)
                        return v[HOLD ? i : 0];
                prologue(row, col(i), v[0]);
                return v[0];
        }
};

/* A run-time row length is processed in wide vectors if they divide it. */
#define ROW_WIDTH(N, n, MINV, MAXV, call)                                                 \
        do {                                                                              \
                constexpr int W_ = N ? vec_of(N, MAXV) : (MAXV);                          \
                static_assert(W_ >= (MINV),                                               \
                              "rows: this functor needs wider vectors than the row has"); \
                if (N || (n) % W_ == 0) {                                                 \
                        constexpr int V = W_;                                             \
                        call;                                                             \
                } else {                                                                  \
                        constexpr int V = MINV;                                           \
                        call;                                                             \
                }                                                                         \
        } while (0)

#endif
