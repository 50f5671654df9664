/* gemv_chunks.cuh: y = norm(x) W^T for 1..8 rows of x and W in blocks of any storage type, by
 * float32 FMA.
 *
 *      gemv_chunks_task<S, M, N, K, THREADS, ROWS, NORM>(w, ldw, eps, tile, smem, prologue,
 *              epilogue[, gain])
 *              as gemv_task (gemv.cuh); W (N, K), blocks of type S (../common/stored.cuh), rows
 *              ldw values apart
 *      gemv_chunks_rows      the same over rows that a functor locates (MoE experts)
 *
 * The portable kernel of types whose codes are not small integers (NF4, FP4, F8), and of MoE
 * experts.  A lane owns whole chunks of 32 weights.  It decodes one chunk of each of ROWS rows
 * into registers and multiplies them by the same 32 values of every row of x.  x lies in shared
 * memory as float32; 4 floats of padding per 32 avoid bank conflicts within a quarter warp.
 *
 * Shared memory: ChunksShape (gemv_chunks_shape in ../../forms/gemv_shape.h). */
#ifndef TGC_GEMV_CHUNKS_CUH
#define TGC_GEMV_CHUNKS_CUH

#include "gemv_epilogue.cuh"
#include "gemv_prologue.cuh"
#include "stored.cuh"

template <int M, int K>
struct ChunksShape {
        static constexpr int FIT = 12288 / M / 32 * 32, KC = FIT < K ? FIT : K;
        static constexpr int ROW = KC / 32 * 36; /* floats per row of x, with padding */
        static_assert(K % 32 == 0, "rows are whole chunks");
};

TGC_DEV int chunks_x_at(int k) { return k + (k >> 5) * 4; }

/* Fills x[m][k0 .. k0+KC) through the prologue.  square[m] += squares of this thread's elements.
 * With NORM_RMS gain only multiplies. */
template <int M, int K, int THREADS, int NORM, class Prologue, class Gain>
TGC_DEV void chunks_x_fill(float *x, int row0, int k0, float (&square)[M], const Prologue &prologue,
                           const Gain &gain)
{
        typedef ChunksShape<M, K> S;
        constexpr int V = prologue_width<Prologue, Gain>();
#pragma unroll 1
        for (int m = 0; m < M; m++) {
                float q = 0.f;
                for (int k = threadIdx.x * V; k < S::KC && k0 + k < K; k += THREADS * V) {
                        float v[V];
                        prologue(row0 + m, k0 + k, v);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                q += v[j] * v[j];
                        if (NORM == NORM_RMS)
                                gain(row0 + m, k0 + k, v);
                        store<V>(x + m * S::ROW + chunks_x_at(k), v);
                }
#pragma unroll
                for (int i = 0; i < M; i++)
                        if (i == m)
                                square[i] += q;
        }
}

/* Rows row0 .. row0+M-1 of x times ROWS columns per warp.  row.at(r, k): index in w of value k of
 * column r. */
template <class S, int M, int N, int K, int THREADS, int ROWS, int NORM, class Rows, class Prologue,
          class Epilogue, class Gain = NoGain>
TGC_DEV void gemv_chunks_rows(const unsigned char *w, const Rows &row, float eps, int row0,
                              int tile, char *smem, const Prologue &prologue,
                              const Epilogue &epilogue, const Gain &gain = Gain())
{
        typedef ChunksShape<M, K> Shape;
        constexpr int KC = Shape::KC, ROW = Shape::ROW;
        const int lane = threadIdx.x & 31, col0 = gemv_column<THREADS, ROWS, 1>(tile);
        float *x = (float *)smem, *red = x + M * ROW;
        float acc[ROWS][M], square[M], mean[M], scale[M];
        gemv_begin(acc, square, mean, scale);
        if (NORM == NORM_LAYER)
                x_moments<M, K, THREADS>(row0, eps, mean, scale, prologue, red);
        for (int k0 = 0; k0 < K; k0 += KC) {
                if constexpr (NORM == NORM_LAYER) {
                        const Standardised<M, Prologue, Gain> h = { prologue, gain, mean, scale,
                                                                    row0 };
                        chunks_x_fill<M, K, THREADS, NORM_NONE>(x, row0, k0, square, h, NoGain());
                } else {
                        chunks_x_fill<M, K, THREADS, NORM>(x, row0, k0, square, prologue, gain);
                }
                __syncthreads();
                for (int k = lane * 32; k < KC && k0 + k < K; k += 32 * 32) {
                        float wv[ROWS][32];
#pragma unroll
                        for (int r = 0; r < ROWS; r++)
                                S::chunk(wv[r], w, row.at(r, k0 + k));
#pragma unroll
                        for (int m = 0; m < M; m++)
#pragma unroll
                                for (int j = 0; j < 32; j += 4) {
                                        float xv[4];
                                        load<4>(xv, x + m * ROW + chunks_x_at(k) + j);
#pragma unroll
                                        for (int i = 0; i < 4; i++)
#pragma unroll
                                                for (int r = 0; r < ROWS; r++)
                                                        acc[r][m] = fmaf(xv[i], wv[r][j + i],
                                                                         acc[r][m]);
                                }
                }
                __syncthreads();
        }
        if (NORM == NORM_RMS)
                rms_scale<K, THREADS>(scale, square, eps, red);
        lanes_finish<NORM == NORM_RMS, N, 1>(acc, scale, nullptr, row0, col0, 0, 0, lane, epilogue);
        __syncthreads();
}

/* Columns beyond N read the last row. */
template <int ROWS>
struct ChunksRows {
        int col0, last;
        long ldw, first;
        __device__ __forceinline__ long at(int r, int k) const
        {
                return first + (col0 + r < last ? col0 + r : last) * ldw + k;
        }
};

template <class S, int M, int N, int K, int THREADS, int ROWS, int NORM, class Prologue,
          class Epilogue, class Gain = NoGain>
TGC_DEV void gemv_chunks_task(const unsigned char *w, long ldw, float eps, int tile, char *smem,
                              const Prologue &prologue, const Epilogue &epilogue,
                              const Gain &gain = Gain())
{
        const ChunksRows<ROWS> row = { gemv_column<THREADS, ROWS, 1>(tile), N - 1, ldw, 0 };
        gemv_chunks_rows<S, M, N, K, THREADS, ROWS, NORM>(w, row, eps, 0, tile, smem, prologue,
                                                          epilogue, gain);
}

#endif
