/* gemv_prologue.cuh: what every GEMV kernel starts with: loads x through the prologue, normalises
 * it, applies the gain, and requests W.
 *
 *      prologue_width       vector width that prologue and gain both accept
 *      prologue_vectors     f(j, v) for each vector of V elements of a lane's x
 *      standardise          v = (v - mean) scale
 *      moments_count, merge_moments     mean and 1/sqrt(variance + eps) from parts of a row
 *      x_fill, x_fill_layer, x_standardise, x_moments     rows of x in shared memory (gemv.cuh)
 *      x_row                a row of x in vectors of 8, for kernels that quantise it
 *      gemv_begin, rms_scale    zeroes sums and moments; RMSNorm's scale at the end
 *      put_squares              a warp's sums of squares to shared memory
 *      gemv_keep            one block stores the standardised row
 *      Bytes, PlainRows, batch_get      vectors of W in registers */
#ifndef TGC_GEMV_PROLOGUE_CUH
#define TGC_GEMV_PROLOGUE_CUH

#include "tgc.cuh"
#include "ptx.cuh"

/* The default gain: identity. */
struct NoGain {
        static constexpr int MAXV = 8, MINV = 1;
        template <int V>
        __device__ __forceinline__ void operator()(int, int, float (&)[V]) const
        {
        }
};

/* The default keep: the standardised row is not stored. */
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

/* Calls f(j, v) for every V neighbouring elements of x; f changes v in place. */
template <int V, int N, class F>
TGC_DEV void prologue_vectors(float (&x)[N], const F &f)
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

/* The vector width that prologue and gain both accept, at most N. */
template <class Prologue, class Gain, int N = 8>
__host__ __device__ constexpr int prologue_width()
{
        return Prologue::MAXV < Gain::MAXV ? (Prologue::MAXV < N ? Prologue::MAXV : N)
                                           : (Gain::MAXV < N ? Gain::MAXV : N);
}

/* Joins the moments of PARTS parts of a row into its mean and 1/sqrt(variance + eps), without
 * cancellation (Chan, Golub and LeVeque, 1979).  mean_of(p), square_of(p), count(p): a part's
 * mean, sum of squared deviations from it, number of elements.  LAYER false: the mean is taken as
 * 0. */
template <int K, int PARTS, bool LAYER, class Mean, class Square, class Count>
TGC_DEV void merge_moments(float eps, float &mean, float &scale, const Mean &mean_of,
                           const Square &square_of, const Count &count)
{
        float q = 0.f;
        mean = 0.f;
        if (LAYER) {
#pragma unroll
                for (int p = 0; p < PARTS; p++)
                        mean += mean_of(p) * (count(p) / K);
        }
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
                const float d = mean_of(p) - mean;
                q += square_of(p) + count(p) * d * d;
        }
        scale = rsqrtf(q * (1.f / K) + eps);
}

/* Number of elements of a part: PER pieces of PIECE elements, STEP apart, from `first` on, cut at
 * K. */
template <int K, int PER, int STEP, int PIECE>
TGC_DEV int moments_count(int first)
{
        int n = 0;
#pragma unroll
        for (int f = 0; f < PER; f++) {
                const int left = K - f * STEP - first;
                n += left <= 0 ? 0 : left < PIECE ? left : PIECE;
        }
        return n;
}

template <int V>
TGC_DEV void standardise(float (&v)[V], float mean, float scale)
{
#pragma unroll
        for (int j = 0; j < V; j++)
                v[j] = (v[j] - mean) * scale;
}

/* Index of x[k] in its row of shared memory.  A lane reads 8 neighbours as two float4.  All first
 * halves are stored together, then all second halves, so that lanes of a quarter warp read
 * neighbours. */
template <int UNIT, int KC>
TGC_DEV int x_at(int k)
{
        return UNIT == 8 ? (k >> 2 & 1) * (KC / 2) + (k >> 3) * 4 + (k & 3) : k;
}

/* Fills x[m][k0..k0+KC) in shared memory, zeros beyond K.  NORM_RMS: square[m] += squares of this
 * thread's elements. */
template <int M, int K, int KC, int UNIT, int THREADS, int NORM, class Prologue,
          class Gain = NoGain>
TGC_DEV void x_fill(float *x, int row0, int k0, float (&square)[M], const Prologue &prologue,
                    const Gain &gain = Gain())
{
        constexpr int V = prologue_width<Prologue, Gain>(), PIECE = V < 4 ? V : 4, N = KC / V;
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

/* x_fill with layer norm for rows that the block holds in registers at once, V elements a
 * thread. */
template <int M, int K, int KC, int UNIT, int THREADS, class Prologue, class Gain>
TGC_DEV void x_fill_layer(float *x, int row0, float eps, float *red, const Prologue &prologue,
                          const Gain &gain)
{
        constexpr int V = prologue_width<Prologue, Gain>(), PIECE = V < 4 ? V : 4;
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

/* Reads x[row][k0 .. k0+SPAN) through the prologue in vectors of 8 and calls put(k, v, there(k))
 * for each; k counts from k0, and v is zeros where there(k) is false.  A thread has up to MOST
 * vectors in flight.  Returns the sum of squares of this thread's elements.  With NORM_RMS gain
 * multiplies what is put. */
template <int SPAN, int MOST, int THREADS, int NORM, class Prologue, class Gain, class There,
          class Put>
TGC_DEV float x_row(int row, int k0, const Prologue &prologue, const Gain &gain, const There &there,
                    const Put &put)
{
        constexpr int V = prologue_width<Prologue, Gain>();
        constexpr int NEED = (SPAN + THREADS * 8 - 1) / (THREADS * 8),
                      PASSES = NEED < MOST ? NEED : MOST;
        float q = 0.f;
#pragma unroll 1
        for (int from = 0; from < NEED; from += PASSES) {
                float v[PASSES][8];
#pragma unroll
                for (int p = 0; p < PASSES; p++) {
                        const int k = ((from + p) * THREADS + (int)threadIdx.x) * 8;
#pragma unroll
                        for (int j = 0; j < 8; j += V) {
                                float part[V];
#pragma unroll
                                for (int i = 0; i < V; i++)
                                        part[i] = 0.f;
                                if (there(k)) {
                                        prologue(row, k0 + k + j, part);
#pragma unroll
                                        for (int i = 0; i < V; i++)
                                                q += part[i] * part[i];
                                        if (NORM == NORM_RMS)
                                                gain(row, k0 + k + j, part);
                                }
#pragma unroll
                                for (int i = 0; i < V; i++)
                                        v[p][j + i] = part[i];
                        }
                }
#pragma unroll
                for (int p = 0; p < PASSES; p++) {
                        const int k = ((from + p) * THREADS + (int)threadIdx.x) * 8;
                        put(k, v[p], there(k));
                }
        }
        return q;
}

/* Layer norm, in shared memory, of whole rows that x_fill stored.  Threads touch any element: the
 * caller puts barriers before and after. */
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

/* Layer norm's mean and 1/sqrt(variance + eps) of rows too long for shared memory: calls the
 * prologue for every element twice. */
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

template <int A, int B, int M>
TGC_DEV void gemv_begin(float (&acc)[A][B], float (&square)[M], float (&mean)[M], float (&scale)[M])
{
#pragma unroll
        for (int m = 0; m < M; m++) {
                square[m] = 0.f;
                mean[m] = 0.f;
                scale[m] = 1.f;
        }
#pragma unroll
        for (int a = 0; a < A; a++)
#pragma unroll
                for (int b = 0; b < B; b++)
                        acc[a][b] = 0.f;
}

/* scale[m] = 1/sqrt(mean square of row m + eps).  square[m]: squares of this thread's elements. */
template <int K, int THREADS, int M>
TGC_DEV void rms_scale(float (&scale)[M], const float (&square)[M], float eps, float *red)
{
#pragma unroll
        for (int m = 0; m < M; m++)
                scale[m] = rsqrtf(block_sum<THREADS>(square[m], red) * (1.f / K) + eps);
}

/* red[m * WARPS + warp] = the warp's sum of squares of row m, from those of its lanes. */
template <int M, int WARPS>
TGC_DEV void put_squares(float *red, float (&square)[M], int warp, int lane)
{
#pragma unroll
        for (int m = 0; m < M; m++) {
                square[m] = warp_sum(square[m]);
                if (lane == 0)
                        red[m * WARPS + warp] = square[m];
        }
}

/* Standardises the row again and passes it to keep, in one block.  smem: 32 floats. */
template <int K, int THREADS, int NORM, class Prologue, class Gain, class Keep>
TGC_DEV void gemv_keep(float eps, char *smem, const Prologue &prologue, const Gain &gain,
                       const Keep &keep)
{
        constexpr int V = prologue_width<Prologue, Gain, Keep::MAXV>();
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
                standardise(v, mean[0], scale[0]);
                gain(0, k, v);
                keep(0, k, v);
        }
}

/* A prologue followed by standardisation and gain. */
template <int M, class Prologue, class Gain>
struct Standardised {
        static constexpr int MAXV = prologue_width<Prologue, Gain>(), MINV = Prologue::MINV;
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
                standardise(v, a, b);
                gain(row, col, v);
        }
};

/* ALIGN bytes of W in registers. */
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

/* Addresses of a warp's ROWS rows of W.  Columns beyond N read the last row. */
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

/* Loads one batch of W: FLIGHT steps of ROWS columns.  k: this lane's first element. */
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

#endif
