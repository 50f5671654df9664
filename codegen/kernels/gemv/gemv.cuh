/* gemv.cuh: y = norm(x) Wt for a few rows of x (decoding: M = 1..8).
 *
 * The time is that of reading W once, so everything serves the loads of W: 16
 * bytes per lane, the first batch under way before x is looked at (and before the
 * kernel that makes x is waited for: pdl_wait), the next batch under way while one
 * is used.  x comes once per block, as float32, through the
 * prologue, into shared memory; the prologue is called by every tile and must have no
 * side effects.
 *
 *      gemv_task<T, M, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>(w, ldw, eps, tile, smem, prologue,
 *              epilogue[, gain])
 *              W (N,K), row stride ldw.  A warp computes ROWS neighbouring columns of y (even where
 *              the epilogue's MINV is 2); SPLIT warps share them, each with its part of K, for
 *              small N.
 *      gemv_kn_task<T, M, N, K, THREADS, COLS, NORM, ALIGN>(same)
 *              W (K,N).  A block computes COLS columns.
 *
 * NORM_RMS multiplies a row of x by 1/sqrt(mean(x^2) + eps), NORM_LAYER also
 * subtracts its mean first.  gain, called like an epilogue, finishes what was so
 * standardised; with NORM_RMS it must only multiply, as 1/sqrt is applied to y.
 * ALIGN (16, 8, 4, 2 bytes) divides w, ldw in bytes, and K (of gemv_kn: N) in bytes.
 * Prologue::MAXV divides K, Epilogue::MAXV divides N.
 * Tiles and shared memory: ../gemv_shape.h. */
#ifndef TGC_GEMV_CUH
#define TGC_GEMV_CUH

#include "tgc.cuh"
#include "ptx.cuh"

/* What ../gemv_shape.h computes for the host. */
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

/* Standardised values are used as they are. */
struct NoGain {
        static constexpr int MAXV = 8, MINV = 1;
        template <int V>
        __device__ __forceinline__ void operator()(int, int, float (&)[V]) const
        {
        }
};

/* The standardised row goes nowhere else. */
struct NoKeep {
        static constexpr int MAXV = 8, MINV = 1;
        template <int V>
        __device__ __forceinline__ void operator()(int, int, float (&)[V]) const
        {
        }
};
template <class Keep>
struct Keeps {
        static constexpr bool YES = true;
};
template <>
struct Keeps<NoKeep> {
        static constexpr bool YES = false;
};

/* f(j, v) of every V neighbouring elements of x; what it leaves in v takes their place. */
template <int V, int N, class F>
TGC_DEV void by_vectors(float (&x)[N], const F &f)
{
#pragma unroll
        for (int j = 0; j < N; j += V) {
                float v[V];
#pragma unroll
                for (int i = 0; i < V; i++)
                        v[i] = x[j + i];
                f(j, v);
#pragma unroll
                for (int i = 0; i < V; i++)
                        x[j + i] = v[i];
        }
}

/* Place of x[k] in its row of shared memory.  A lane that reads eight in a row does
 * it as two float4: the first halves of all groups lie together, then the second
 * ones, so that the lanes of a quarter warp read neighbours. */
template <int UNIT, int KC>
TGC_DEV int x_at(int k)
{
        return UNIT == 8 ? (k >> 2 & 1) * (KC / 2) + (k >> 3) * 4 + (k & 3) : k;
}

/* x[m][k0..k0+KC) to shared memory, zero beyond K; with NORM_RMS the sum of squares
 * of this thread's elements is added to square[m]. */
template <int M, int K, int KC, int UNIT, int THREADS, int NORM, class Prologue,
          class Gain = NoGain>
TGC_DEV void x_fill(float *x, int row0, int k0, float (&square)[M], const Prologue &prologue,
                    const Gain &gain = Gain())
{
        constexpr int V = Prologue::MAXV < Gain::MAXV ? Prologue::MAXV : Gain::MAXV,
                      PIECE = V < 4 ? V : 4, N = KC / V;
        static_assert(KC % V == 0, "Prologue::MAXV divides K");
#pragma unroll
        for (int m = 0; m < M; m++)
                for (int u = threadIdx.x; u < N; u += THREADS) {
                        float v[V];
                        if (k0 + u * V < K) {
                                prologue(row0 + m, k0 + u * V, v);
                        } else {
#pragma unroll
                                for (int j = 0; j < V; j++)
                                        v[j] = 0.f;
                        }
#pragma unroll
                        for (int j = 0; j < V; j++) {
                                if (NORM == NORM_RMS)
                                        square[m] += v[j] * v[j];
                        }
                        if (NORM == NORM_RMS && k0 + u * V < K)
                                gain(row0 + m, k0 + u * V, v);
#pragma unroll
                        for (int j = 0; j < V; j += PIECE) {
                                float p[PIECE];
#pragma unroll
                                for (int i = 0; i < PIECE; i++)
                                        p[i] = v[j + i];
                                store<PIECE>(x + m * KC + x_at<UNIT, KC>(u * V + j), p);
                        }
                }
}

/* x_fill with NORM_LAYER for rows that a block reads at once, V elements a thread. */
template <int M, int K, int KC, int UNIT, int THREADS, class Prologue, class Gain>
TGC_DEV void x_fill_layer(float *x, int row0, float eps, float *red, const Prologue &prologue,
                          const Gain &gain)
{
        constexpr int V = Prologue::MAXV < Gain::MAXV ? Prologue::MAXV : Gain::MAXV,
                      PIECE = V < 4 ? V : 4;
        static_assert(KC <= THREADS * V, "a row is read at once");
        const int k = threadIdx.x * V;
#pragma unroll 1
        for (int m = 0; m < M; m++) {
                float v[V], s = 0.f, q = 0.f;
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] = 0.f;
                if (k < K)
                        prologue(row0 + m, k, v);
#pragma unroll
                for (int j = 0; j < V; j++)
                        s += v[j];
                const float mean = block_sum<THREADS>(s, red) * (1.f / K);
#pragma unroll
                for (int j = 0; j < V; j++)
                        q += k < K ? (v[j] - mean) * (v[j] - mean) : 0.f;
                const float r = rsqrtf(block_sum<THREADS>(q, red) * (1.f / K) + eps);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] = k < K ? (v[j] - mean) * r : 0.f;
                if (k < K)
                        gain(row0 + m, k, v);
#pragma unroll
                for (int j = 0; j < V; j += PIECE) {
                        float p[PIECE];
#pragma unroll
                        for (int i = 0; i < PIECE; i++)
                                p[i] = v[j + i];
                        if (k < KC)
                                store<PIECE>(x + m * KC + x_at<UNIT, KC>(k + j), p);
                }
        }
}

/* Layer norm of longer rows that x_fill brought whole.  Every thread works on any
 * element: barriers before and after are the caller's. */
template <int M, int K, int KC, int UNIT, int THREADS, class Gain>
TGC_DEV void x_standardise(float *x, int row0, float eps, float *red, const Gain &gain)
{
#pragma unroll 1
        for (int m = 0; m < M; m++) {
                float s = 0.f, q = 0.f;
                for (int k = threadIdx.x; k < K; k += THREADS)
                        s += x[m * KC + x_at<UNIT, KC>(k)];
                const float mean = block_sum<THREADS>(s, red) * (1.f / K);
                for (int k = threadIdx.x; k < K; k += THREADS) {
                        const float d = x[m * KC + x_at<UNIT, KC>(k)] - mean;
                        q += d * d;
                }
                const float r = rsqrtf(block_sum<THREADS>(q, red) * (1.f / K) + eps);
#pragma unroll 4
                for (int k = threadIdx.x; k < K; k += THREADS) {
                        float *p = x + m * KC + x_at<UNIT, KC>(k), v[1] = { (*p - mean) * r };
                        gain(row0 + m, k, v);
                        *p = v[0];
                }
        }
}

/* Layer norm's mean and 1/sqrt(variance + eps) where a row does not fit: the prologue is read twice
 * more. */
template <int M, int K, int THREADS, class Prologue>
TGC_DEV void x_moments(int row0, float eps, float (&mean)[M], float (&scale)[M],
                       const Prologue &prologue, float *red)
{
        constexpr int V = Prologue::MAXV < 8 ? Prologue::MAXV : 8;
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll 1
                for (int pass = 0; pass < 2; pass++) {
                        float s = 0.f;
                        for (int k = threadIdx.x * V; k < K; k += THREADS * V) {
                                float v[V];
                                prologue(row0 + m, k, v);
#pragma unroll
                                for (int j = 0; j < V; j++)
                                        s += pass ? (v[j] - mean[m]) * (v[j] - mean[m]) : v[j];
                        }
                        s = block_sum<THREADS>(s, red) * (1.f / K);
                        if (pass)
                                scale[m] = rsqrtf(s + eps);
                        else
                                mean[m] = s;
                }
        }
}

/* One block hands the standardised row to keep.  smem: 32 floats. */
template <int K, int THREADS, int NORM, class Prologue, class Gain, class Keep>
TGC_DEV void gemv_keep(float eps, char *smem, const Prologue &prologue, const Gain &gain,
                       const Keep &keep)
{
        constexpr int MOST = Prologue::MAXV < Gain::MAXV ? Prologue::MAXV : Gain::MAXV,
                      V = MOST < Keep::MAXV ? MOST : Keep::MAXV;
        float *red = (float *)smem, mean[1] = { 0.f }, scale[1];
        __syncthreads();
        if (NORM == NORM_LAYER) {
                x_moments<1, K, THREADS>(0, eps, mean, scale, prologue, red);
        } else {
                float s = 0.f;
                for (int k = threadIdx.x * V; k < K; k += THREADS * V) {
                        float v[V];
                        prologue(0, k, v);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                s += v[j] * v[j];
                }
                scale[0] = rsqrtf(block_sum<THREADS>(s, red) * (1.f / K) + eps);
        }
        for (int k = threadIdx.x * V; k < K; k += THREADS * V) {
                float v[V];
                prologue(0, k, v);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] = (v[j] - mean[0]) * scale[0];
                gain(0, k, v);
                keep(0, k, v);
        }
}

/* The prologue with those and the gain applied. */
template <int M, class Prologue, class Gain>
struct Standardised {
        static constexpr int MAXV = Prologue::MAXV < Gain::MAXV ? Prologue::MAXV : Gain::MAXV,
                             MINV = Prologue::MINV;
        const Prologue &prologue;
        const Gain &gain;
        const float (&mean)[M], (&scale)[M];
        int row0;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                float a = 0.f, b = 0.f;
                prologue(row, col, v);
#pragma unroll
                for (int m = 0; m < M; m++)
                        if (row - row0 == m) {
                                a = mean[m];
                                b = scale[m];
                        }
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] = (v[j] - a) * b;
                gain(row, col, v);
        }
};

/* ALIGN bytes of W, and the floats in them. */
template <class T, int ALIGN>
struct Bytes {
        static constexpr int UNIT = ALIGN / (int)sizeof(T);
        typename Chunk<ALIGN>::T c;

        __device__ __forceinline__ void get(const T *p)
        {
                if constexpr (ALIGN == 16)
                        c = load_streaming((const uint4 *)p);
                else
                        c = *(const typename Chunk<ALIGN>::T *)p;
        }
        __device__ __forceinline__ void zero()
        {
                const typename Chunk<ALIGN>::T z = {};
                c = z;
        }
        __device__ __forceinline__ void floats(float (&v)[UNIT]) const
        {
                if constexpr (sizeof(T) == 2 && UNIT >= 2) {
                        union {
                                typename Chunk<ALIGN>::T c;
                                unsigned w[UNIT / 2];
                        } u = { c };
#pragma unroll
                        for (int j = 0; j < UNIT / 2; j++)
                                unpack2<T>(u.w[j], v[2 * j], v[2 * j + 1]);
                } else {
                        union U {
                                typename Chunk<ALIGN>::T c;
                                T t[UNIT];
                                __device__ U() {}
                        } u;
                        u.c = c;
#pragma unroll
                        for (int j = 0; j < UNIT; j++)
                                v[j] = to_float(u.t[j]);
                }
        }
};

/* Where a warp's ROWS rows of W lie.  A column beyond N reads the last row. */
template <class T, int ROWS>
struct PlainRows {
        const T *row[ROWS];
        __device__ __forceinline__ PlainRows(const T *w, long ldw, int col0, int N)
        {
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                        row[r] = w + (col0 + r < N ? col0 + r : N - 1) * ldw;
        }
        __device__ __forceinline__ const T *at(int r, int k) const { return row[r] + k; }
};

/* One batch of W: FLIGHT steps of ROWS columns; k is this lane's first element. */
template <int FLIGHT, int ROWS, int STEP, int K, bool WHOLE, class T, int ALIGN, class Rows>
TGC_DEV void batch_get(Bytes<T, ALIGN> (&w)[FLIGHT][ROWS], const Rows &row, int k)
{
#pragma unroll
        for (int f = 0; f < FLIGHT; f++)
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                        if (WHOLE || k + f * STEP < K)
                                w[f][r].get(row.at(r, k + f * STEP));
                        else
                                w[f][r].zero();
}

/* The first column of this warp in a tile. */
template <int THREADS, int ROWS, int SPLIT>
TGC_DEV int gemv_column(int tile)
{
        return (tile * (THREADS / 32 / SPLIT) + (int)(threadIdx.x >> 5) / SPLIT) * ROWS;
}

/* Rows row0 .. row0+M-1 of x by the tile's columns of W, whose rows lie at `row`. */
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
        constexpr bool AT_ONCE = ONE &&
                                 KC <= THREADS * (Prologue::MAXV < Gain::MAXV ? Prologue::MAXV
                                                                              : Gain::MAXV);
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, part = warp % SPLIT;
        const int col0 = gemv_column<THREADS, ROWS, SPLIT>(tile);
        const int own = (part * 32 + lane) * UNIT; /* of every step */
        float *x = (float *)smem, *red = x + M * KC, *partial = red + 32;

        Bytes<T, ALIGN> now[FLIGHT][ROWS], next[FLIGHT][ROWS];
        batch_get<FLIGHT, ROWS, STEP, K, WHOLE>(now, row, own);
        pdl_wait();

        float acc[ROWS][M], square[M], mean[M], scale[M];
#pragma unroll
        for (int m = 0; m < M; m++) {
                square[m] = 0.f;
                mean[m] = 0.f;
                scale[m] = 1.f;
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                        acc[r][m] = 0.f;
        }
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

        if (NORM == NORM_RMS) {
#pragma unroll
                for (int m = 0; m < M; m++)
                        scale[m] = rsqrtf(block_sum<THREADS>(square[m], red) * (1.f / K) + eps);
        }
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                        acc[r][m] = warp_sum(acc[r][m]);
        if (SPLIT > 1) {
                /* in the order of the parts */
#pragma unroll
                for (int i = 0; i < ROWS * M; i++)
                        if (lane == i % 32)
                                partial[warp * (ROWS * M) + i] = acc[i / M][i % M];
                __syncthreads();
#pragma unroll
                for (int i = 0; i < ROWS * M; i++) {
                        float s = 0.f;
#pragma unroll
                        for (int p = 0; p < SPLIT; p++)
                                s += partial[(warp - part + p) * (ROWS * M) + i];
                        acc[i / M][i % M] = s;
                }
        }
        if (part == 0 && lane < M) {
                /* lane m finishes row m */
                constexpr int V = Epilogue::MAXV < ROWS ? Epilogue::MAXV : ROWS;
                float mine[ROWS];
#pragma unroll
                for (int m = 0; m < M; m++)
                        if (m == lane) {
#pragma unroll
                                for (int r = 0; r < ROWS; r++)
                                        mine[r] = NORM == NORM_RMS ? acc[r][m] * scale[m]
                                                                   : acc[r][m];
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

/* W (K,N): a lane owns UNIT neighbouring columns, COLS/UNIT lanes lie along a row,
 * the rest of the block along K. */
template <class T, int M, int N, int K, int THREADS, int COLS, int NORM, int ALIGN, class Prologue,
          class Epilogue, class Gain = NoGain>
TGC_DEV void gemv_kn_task(const T *w, long ldw, float eps, int tile, char *smem,
                          const Prologue &prologue, const Epilogue &epilogue,
                          const Gain &gain = Gain())
{
        constexpr int UNIT = ALIGN / (int)sizeof(T), ACROSS = COLS / UNIT, ALONG = THREADS / ACROSS;
        constexpr int FIT = 16384 / M / 64 * 64, KC = FIT < K ? FIT : K;
        constexpr int FLIGHT = UNIT * M > 32 ? 4 : 8, WARPS = THREADS / 32;
        constexpr bool AT_ONCE = KC == K &&
                                 K <= THREADS * (Prologue::MAXV < Gain::MAXV ? Prologue::MAXV
                                                                             : Gain::MAXV);
        static_assert(ACROSS <= 32 && 32 % ACROSS == 0, "a row segment lies within a warp");
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5,
                  along = (int)threadIdx.x / ACROSS;
        const int col0 = tile * COLS + lane % ACROSS * UNIT;
        const T *src = w + (col0 < N ? col0 : 0);
        float *x = (float *)smem, *red = x + M * KC, *partial = red + 32;
        float acc[M][UNIT], square[M], mean[M], scale[M];

#pragma unroll
        for (int m = 0; m < M; m++) {
                square[m] = 0.f;
                mean[m] = 0.f;
                scale[m] = 1.f;
#pragma unroll
                for (int j = 0; j < UNIT; j++)
                        acc[m][j] = 0.f;
        }
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

        if (NORM == NORM_RMS) {
#pragma unroll
                for (int m = 0; m < M; m++)
                        scale[m] = rsqrtf(block_sum<THREADS>(square[m], red) * (1.f / K) + eps);
        }
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
        constexpr int V = Epilogue::MAXV < UNIT ? (Epilogue::MAXV > Epilogue::MINV ? Epilogue::MAXV
                                                                                   : Epilogue::MINV)
                                                : (UNIT > Epilogue::MINV ? UNIT : Epilogue::MINV);
        for (int u = threadIdx.x; u < M * COLS / V; u += THREADS) {
                const int m = u / (COLS / V), c = u % (COLS / V) * V, col = tile * COLS + c;
                if (col < N) {
                        float v[V];
#pragma unroll
                        for (int j = 0; j < V; j++) {
                                v[j] = 0.f;
#pragma unroll
                                for (int i = 0; i < WARPS; i++)
                                        v[j] += partial[(i * M + m) * COLS + c + j];
                        }
                        epilogue(m, col, v);
                }
        }
        __syncthreads();
}

#endif
