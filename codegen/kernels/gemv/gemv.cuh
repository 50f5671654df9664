/* gemv.cuh: y = norm(x) W^T for 1..8 rows of x (decoding), by float32 FMA.
 *
 *      gemv_task<T, M, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>(w, ldw, eps, tile, smem, prologue,
 *              epilogue[, gain])
 *              W (N, K), row stride ldw.  A warp computes ROWS neighbouring columns of y (an even
 *              number where the epilogue's MINV is 2).  For small N, SPLIT warps share columns
 *              and split K.
 *      gemv_kn_task<T, M, N, K, THREADS, COLS, NORM, ALIGN>(same)
 *              W (K, N).  A block computes COLS columns of y.
 *
 * Memory-bound: everything serves the loads of W, 16 bytes per lane.
 * 1. Request the first batch of W, which does not depend on the previous launch; then pdl_wait.
 * 2. Store KC elements of each row of x in shared memory as float32, through prologue and norm.
 * 3. Multiply batch by batch; the next batch is in flight meanwhile (registers, double-buffered).
 *    Repeat 2 and 3 until K is done.
 * 4. Reduce over lanes, then over the SPLIT warps in order; call the epilogue.
 *
 * Every tile calls the prologue for all of x, so the prologue must have no side effects.
 *
 * NORM_RMS multiplies a row of x by 1/sqrt(mean(x^2) + eps); NORM_LAYER subtracts the mean first.
 * gain, called like an epilogue, is applied to the standardised row.  With NORM_RMS gain may only
 * multiply, since 1/sqrt is applied to y.
 *
 * ALIGN (16, 8, 4 or 2 bytes) divides w, ldw in bytes, and K (gemv_kn: N) in bytes.
 * Prologue::MAXV divides K; Epilogue::MAXV divides N.  Tiles and shared memory:
 * ../../forms/gemv_shape.h. */
#ifndef TGC_GEMV_CUH
#define TGC_GEMV_CUH

#include "gemv_epilogue.cuh"
#include "gemv_prologue.cuh"

/* The same numbers as gemv_shape in ../../forms/gemv_shape.h.  UNIT: elements per load; STEP:
 * elements of K per load of a warp group; FLIGHT: loads in flight per lane and column. */
template <int ESIZE, int M, int K, int THREADS, int ROWS, int SPLIT, int ALIGN>
struct GemvShapeOf {
        static constexpr int UNIT = ALIGN / ESIZE, STEP = 32 * UNIT * SPLIT;
        static constexpr __host__ __device__ int flight(int f)
        {
                return f > 1 && (f / 2 * STEP >= K || f * STEP * M > 16384) ? flight(f / 2) : f;
        }
        static constexpr int FLIGHT = flight(ROWS >= 8 ? 1 : 8 / ROWS), BATCH = FLIGHT * STEP;
        static constexpr int ALL = (K + BATCH - 1) / BATCH * BATCH;
        static constexpr int FIT = 16384 / M / BATCH < 1 ? BATCH : 16384 / M / BATCH * BATCH;
        static constexpr int KC = FIT < ALL ? FIT : ALL;
        static constexpr int COLS = THREADS / 32 / SPLIT * ROWS;
        static constexpr int SMEM = (M * KC + 32 + THREADS / 32 * ROWS * M) * 4;
};

/* Rows row0 .. row0+M-1 of x times the tile's columns.  row.at(r, k) is the address of
 * W[col0+r][k]. */
template <class T, int M, int N, int K, int THREADS, int ROWS, int SPLIT, int NORM, int ALIGN,
          class Rows, class Prologue, class Epilogue, class Gain = NoGain>
TGC_DEV void gemv_rows(const Rows &row, float eps, int row0, int tile, char *smem,
                       const Prologue &prologue, const Epilogue &epilogue,
                       const Gain &gain = Gain())
{
        typedef GemvShapeOf<(int)sizeof(T), M, K, THREADS, ROWS, SPLIT, ALIGN> S;
        constexpr int UNIT = S::UNIT, STEP = S::STEP, FLIGHT = S::FLIGHT, BATCH = S::BATCH,
                      KC = S::KC;
        constexpr bool WHOLE = K % BATCH == 0, ONE = KC == S::ALL;
        constexpr bool AT_ONCE = ONE && KC <= THREADS * prologue_width<Prologue, Gain>();
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, part = warp % SPLIT;
        const int col0 = gemv_column<THREADS, ROWS, SPLIT>(tile);
        const int own = (part * 32 + lane) * UNIT; /* offset of this lane's elements in every
                                                    * step */
        float *x = (float *)smem, *red = x + M * KC, *partial = red + 32;

        Bytes<T, ALIGN> now[FLIGHT][ROWS], next[FLIGHT][ROWS];
        batch_get<FLIGHT, ROWS, STEP, K, WHOLE>(now, row, own);
        pdl_wait();

        float acc[ROWS][M], square[M], mean[M], scale[M];
        gemv_begin(acc, square, mean, scale);
        if (NORM == NORM_LAYER && !ONE)
                x_moments<M, K, THREADS>(row0, eps, mean, scale, prologue, red);

        for (int k0 = 0; k0 < K; k0 += KC) {
                if constexpr (NORM == NORM_LAYER && AT_ONCE) {
                        x_fill_layer<M, K, KC, UNIT, THREADS>(x, row0, eps, red, prologue, gain);
                } else if (NORM == NORM_LAYER && !ONE) {
                        const Standardised<M, Prologue, Gain> h = { prologue, gain, mean, scale,
                                                                    row0 };
                        x_fill<M, K, KC, UNIT, THREADS, NORM_NONE>(x, row0, k0, square, h);
                } else {
                        x_fill<M, K, KC, UNIT, THREADS, NORM>(x, row0, k0, square, prologue, gain);
                }
                __syncthreads();
                if (NORM == NORM_LAYER && ONE && !AT_ONCE) {
                        x_standardise<M, K, KC, UNIT, THREADS>(x, row0, eps, red, gain);
                        __syncthreads();
                }
#pragma unroll 2
                for (int b = 0; b < KC && k0 + b < K; b += BATCH) {
                        if (k0 + b + BATCH < K)
                                batch_get<FLIGHT, ROWS, STEP, K, WHOLE>(next, row,
                                                                        k0 + b + BATCH + own);
#pragma unroll
                        for (int f = 0; f < FLIGHT; f++) {
                                float wv[ROWS][UNIT];
#pragma unroll
                                for (int r = 0; r < ROWS; r++)
                                        now[f][r].floats(wv[r]);
#pragma unroll
                                for (int m = 0; m < M; m++) {
                                        constexpr int PIECE = UNIT < 4 ? UNIT : 4;
#pragma unroll
                                        for (int j = 0; j < UNIT; j += PIECE) {
                                                float xv[PIECE];
                                                load<PIECE>(xv,
                                                            x + m * KC +
                                                                    x_at<UNIT, KC>(b + f * STEP +
                                                                                   own + j));
#pragma unroll
                                                for (int i = 0; i < PIECE; i++)
#pragma unroll
                                                        for (int r = 0; r < ROWS; r++)
                                                                acc[r][m] = fmaf(xv[i],
                                                                                 wv[r][j + i],
                                                                                 acc[r][m]);
                                        }
                                }
                        }
#pragma unroll
                        for (int f = 0; f < FLIGHT; f++)
#pragma unroll
                                for (int r = 0; r < ROWS; r++)
                                        now[f][r] = next[f][r];
                }
                __syncthreads();
        }

        if (NORM == NORM_RMS)
                rms_scale<K, THREADS>(scale, square, eps, red);
        lanes_finish<NORM == NORM_RMS, N, SPLIT>(acc, scale, partial, row0, col0, warp, part, lane,
                                                 epilogue);
        __syncthreads();
}

template <class T, int M, int N, int K, int THREADS, int ROWS, int SPLIT, int NORM, int ALIGN,
          class Prologue, class Epilogue, class Gain = NoGain>
TGC_DEV void gemv_task(const T *w, long ldw, float eps, int tile, char *smem,
                       const Prologue &prologue, const Epilogue &epilogue,
                       const Gain &gain = Gain())
{
        const PlainRows<T, ROWS> row(w, ldw, gemv_column<THREADS, ROWS, SPLIT>(tile), N);
        gemv_rows<T, M, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>(row, eps, 0, tile, smem, prologue,
                                                                 epilogue, gain);
}

/* A lane owns UNIT neighbouring columns; COLS / UNIT lanes cover a row of the tile, and the rest
 * of the block splits K. */
template <class T, int M, int N, int K, int THREADS, int COLS, int NORM, int ALIGN, class Prologue,
          class Epilogue, class Gain = NoGain>
TGC_DEV void gemv_kn_task(const T *w, long ldw, float eps, int tile, char *smem,
                          const Prologue &prologue, const Epilogue &epilogue,
                          const Gain &gain = Gain())
{
        constexpr int UNIT = ALIGN / (int)sizeof(T), ACROSS = COLS / UNIT, ALONG = THREADS / ACROSS;
        constexpr int FIT = 16384 / M / 64 * 64, KC = FIT < K ? FIT : K;
        constexpr int FLIGHT = UNIT * M > 32 ? 4 : 8, WARPS = THREADS / 32;
        constexpr bool AT_ONCE = KC == K && K <= THREADS * prologue_width<Prologue, Gain>();
        static_assert(ACROSS <= 32 && 32 % ACROSS == 0, "a row segment lies within a warp");
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5,
                  along = (int)threadIdx.x / ACROSS;
        const int col0 = tile * COLS + lane % ACROSS * UNIT;
        const T *src = w + (col0 < N ? col0 : 0);
        float *x = (float *)smem, *red = x + M * KC, *partial = red + 32;
        float acc[M][UNIT], square[M], mean[M], scale[M];
        gemv_begin(acc, square, mean, scale);
        if (NORM == NORM_LAYER && KC < K) {
                pdl_wait();
                x_moments<M, K, THREADS>(0, eps, mean, scale, prologue, red);
        }

        for (int k0 = 0; k0 < K; k0 += KC) {
                Bytes<T, ALIGN> p[FLIGHT];
                const int end = K - k0 < KC ? K - k0 : KC;
                int k = along;
#pragma unroll
                for (int f = 0; f < FLIGHT; f++)
                        if (k + f * ALONG < end)
                                p[f].get(src + (k0 + k + f * ALONG) * ldw);
                if (k0 == 0)
                        pdl_wait();
                if constexpr (NORM == NORM_LAYER && AT_ONCE) {
                        x_fill_layer<M, K, KC, 1, THREADS>(x, 0, eps, red, prologue, gain);
                } else if (NORM == NORM_LAYER && KC < K) {
                        const Standardised<M, Prologue, Gain> h = { prologue, gain, mean, scale,
                                                                    0 };
                        x_fill<M, K, KC, 1, THREADS, NORM_NONE>(x, 0, k0, square, h);
                } else {
                        x_fill<M, K, KC, 1, THREADS, NORM>(x, 0, k0, square, prologue, gain);
                }
                __syncthreads();
                if (NORM == NORM_LAYER && KC == K && !AT_ONCE) {
                        x_standardise<M, K, KC, 1, THREADS>(x, 0, eps, red, gain);
                        __syncthreads();
                }
                for (; k < end; k += FLIGHT * ALONG) {
#pragma unroll
                        for (int f = 0; f < FLIGHT; f++)
                                if (k + f * ALONG < end) {
                                        float wv[UNIT];
                                        p[f].floats(wv);
                                        if (k + (f + FLIGHT) * ALONG < end)
                                                p[f].get(src +
                                                         (k0 + k + (f + FLIGHT) * ALONG) * ldw);
#pragma unroll
                                        for (int m = 0; m < M; m++) {
                                                const float xv = x[m * KC + k + f * ALONG];
#pragma unroll
                                                for (int j = 0; j < UNIT; j++)
                                                        acc[m][j] = fmaf(xv, wv[j], acc[m][j]);
                                        }
                                }
                }
                __syncthreads();
        }

        if (NORM == NORM_RMS)
                rms_scale<K, THREADS>(scale, square, eps, red);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
                for (int j = 0; j < UNIT; j++) {
#pragma unroll
                        for (int d = 16; d >= ACROSS; d >>= 1)
                                acc[m][j] += __shfl_xor_sync(0xffffffffu, acc[m][j], d);
                        if (lane < ACROSS)
                                partial[(warp * M + m) * COLS + lane * UNIT + j] =
                                        NORM == NORM_RMS ? acc[m][j] * scale[m] : acc[m][j];
                }
        __syncthreads();
        constexpr int V = epilogue_width<Epilogue, UNIT>();
        for (int u = threadIdx.x; u < M * COLS / V; u += THREADS) {
                const int m = u / (COLS / V), c = u % (COLS / V) * V, col = tile * COLS + c;
                if (col < N) {
                        float v[V];
                        parts_sum<WARPS>(v, partial, m * COLS + c, M * COLS);
                        epilogue(m, col, v);
                }
        }
        __syncthreads();
}

#endif
