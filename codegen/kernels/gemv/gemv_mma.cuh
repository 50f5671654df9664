/* gemv_mma.cuh: y = norm(x) W^T for 2 to 64 rows of 16-bit x, by mma.sync: batched decoding.
 *
 *      gemv_mma_task<T, M, N, K, WARPS, TILES, ROUNDS, NORM>(w, ldw, eps, tile, smem, prologue,
 *              epilogue[, gain])
 *              as gemv_task (gemv.cuh), but x is rounded to T, after norm and gain.  8 divides K
 *              and ldw; W is 16-byte aligned; with a norm STEPS is 1 and M <= 16.
 *
 * Reading W and waiting for x take the time, but with this many rows float32 FMA is too slow for
 * the bandwidth.  The mma's A is 16 rows of x (rows beyond M are zeros), its B 8 rows of W.  Both
 * are loaded straight into fragments, 16 bytes per lane, without shared memory or ldmatrix.  That
 * permutes k, which is harmless as long as A and B agree:
 *
 *      chunk c (32 elements of a row): lane 4g + t holds elements 32c + 8t .. 8t+7 of row g, as k
 *      2t, 2t+1, 2t+8, 2t+9 of two mmas
 *
 * The WARPS of a block share columns and split K: warp w has chunks w, w + WARPS, ...  A block
 * computes ROUNDS times 8 TILES columns and loads the next round's W during the current one.  Up
 * to 16 rows of x stay in registers if all of K fits; else x is read again in every round.
 * Partial sums meet in shared memory and are added in the order of the warps.
 *
 * Tiles and shared memory: ../../forms/gemv_shape.h. */
#ifndef TGC_GEMV_MMA_CUH
#define TGC_GEMV_MMA_CUH

#include "epilogue_protocol.cuh"
#include "gemv.cuh"

/* The same numbers as gemv_mma in ../../forms/gemv_shape.h.  K takes STEPS steps of PER chunks per
 * warp, at most MOST (registers).  HALVES: groups of 8 rows of x. */
template <int M, int K, int WARPS, int TILES, int ROUNDS>
struct GemvMmaShape {
        static constexpr int MOST = M > 8 && M <= 16 ? 4 : 8, CHUNKS = (K + 31) / 32,
                             STEPS = (CHUNKS + MOST * WARPS - 1) / (MOST * WARPS),
                             PER = (CHUNKS + WARPS * STEPS - 1) / (WARPS * STEPS),
                             HALVES = (M + 7) / 8, COLS = 8 * TILES, SUMS = WARPS * M * COLS,
                             MOMENTS = WARPS * 16 * 2,
                             KEPT = M > 16 ? 1 : PER; /* chunks of x in registers */
        static constexpr int SMEM = ((ROUNDS > 1 ? 2 : 1) * SUMS + MOMENTS) * 4;
        static constexpr bool WHOLE = CHUNKS % (WARPS * STEPS * PER) == 0 && K % 32 == 0;
        /* This lane's first element of chunk f of a step is own() + at(step, f). */
        static __device__ __forceinline__ int own()
        {
                return (threadIdx.x >> 5) * 32 + (threadIdx.x & 3) * 8;
        }
        static __device__ __forceinline__ int at(int step, int f)
        {
                return (step * PER + f) * WARPS * 32;
        }
        static __device__ __forceinline__ bool has(int step, int f)
        {
                return WHOLE || own() + at(step, f) < K;
        }
};

/* x as A fragments: [chunk][group of 8 rows][word]. */
template <class S>
struct MmaRows {
        unsigned v[S::KEPT][S::HALVES][4];
};

template <class T, class S, int M, int K, class Prologue>
TGC_DEV void mma_rows_get(MmaRows<S> &x, int step, int first, const Prologue &prologue)
{
        constexpr int V = prologue_width<Prologue, NoGain>();
#pragma unroll
        for (int f = 0; f < S::KEPT; f++)
#pragma unroll
                for (int h = 0; h < S::HALVES; h++) {
                        const int row = ((threadIdx.x & 31) >> 2) + h * 8,
                                  k = S::own() + S::at(step, first + f);
                        float e[8] = {};
                        prologue_vectors<V>(e, [&](int j, float(&v)[V]) {
                                if ((M % 8 == 0 || row < M) && S::has(step, first + f))
                                        prologue(row, k + j, v);
                        });
#pragma unroll
                        for (int j = 0; j < 4; j++)
                                x.v[f][h][j] = pack2<T>(e[2 * j], e[2 * j + 1]);
                }
}

/* Standardises x in place (registers) and applies the gain.  Each warp computes the moments of its
 * part of K; merge_moments joins them. */
template <class T, class S, int M, int K, int WARPS, int NORM, class Gain>
TGC_DEV void mma_rows_norm(MmaRows<S> &x, float eps, float *moments, const Gain &gain)
{
        constexpr int V = prologue_width<NoGain, Gain>();
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2;
        const int own = moments_count<K, S::PER, WARPS * 32, 32>(warp * 32);
        static_assert(S::STEPS == 1 && S::KEPT == S::PER,
                      "a norm wants its whole rows in registers");
        float mean[2], scale[2];
#pragma unroll
        for (int h = 0; h < S::HALVES; h++) {
                float s = 0.f, q = 0.f;
#pragma unroll
                for (int f = 0; f < S::PER; f++)
#pragma unroll
                        for (int j = 0; j < 4; j++) {
                                float a, b;
                                unpack2<T>(x.v[f][h][j], a, b);
                                s += a + b;
                        }
                const float m = NORM == NORM_LAYER && own ? quad_sum(s) / (float)own : 0.f;
#pragma unroll
                for (int f = 0; f < S::PER; f++)
#pragma unroll
                        for (int j = 0; j < 4; j++) {
                                float a, b;
                                unpack2<T>(x.v[f][h][j], a, b);
                                if (S::has(0, f))
                                        q += (a - m) * (a - m) + (b - m) * (b - m);
                        }
                q = quad_sum(q);
                if ((lane & 3) == 0) {
                        moments[(warp * 16 + h * 8 + g) * 2] = m;
                        moments[(warp * 16 + h * 8 + g) * 2 + 1] = q;
                }
        }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < S::HALVES; h++) {
                const float *of = moments + (h * 8 + g) * 2;
                merge_moments<K, WARPS, NORM == NORM_LAYER>(
                        eps, mean[h], scale[h], [=](int p) { return of[p * 32]; },
                        [=](int p) { return of[p * 32 + 1]; },
                        [](int p) {
                                return (float)moments_count<K, S::PER, WARPS * 32, 32>(p * 32);
                        });
        }
#pragma unroll
        for (int f = 0; f < S::PER; f++)
#pragma unroll
                for (int h = 0; h < S::HALVES; h++) {
                        const int row = g + h * 8, k = S::own() + S::at(0, f);
                        const bool here = (M % 8 == 0 || row < M) && S::has(0, f);
                        float e[8];
#pragma unroll
                        for (int j = 0; j < 4; j++) {
                                unpack2<T>(x.v[f][h][j], e[2 * j], e[2 * j + 1]);
                        }
                        standardise(e, mean[h], scale[h]);
                        prologue_vectors<V>(e, [&](int j, float(&v)[V]) {
                                if (here)
                                        gain(row, k + j, v);
                        });
#pragma unroll
                        for (int j = 0; j < 4; j++)
                                x.v[f][h][j] = here ? pack2<T>(e[2 * j], e[2 * j + 1]) : 0u;
                }
}

/* Loads this lane's words of W: TILES groups of 8 rows from col0 on.  Columns beyond N read the
 * last row. */
template <class T, class S, int N, int K, int TILES>
TGC_DEV void mma_columns_get(Bytes<T, 16> (&p)[S::PER][TILES], const T *w, long ldw, int col0,
                             int step)
{
#pragma unroll
        for (int i = 0; i < TILES; i++) {
                const int col = col0 + i * 8 + (int)((threadIdx.x & 31) >> 2);
                const T *row = w + (col < N ? col : N - 1) * ldw + S::own();
#pragma unroll
                for (int f = 0; f < S::PER; f++)
                        if (S::has(step, f))
                                p[f][i].get(row + S::at(step, f));
                        else
                                p[f][i].zero();
        }
}

/* acc += x W^T over the chunks that x holds; chunk `first` of the step is the first of them. */
template <class T, class S, int TILES>
TGC_DEV void mma_multiply(float (&acc)[TILES][(S::HALVES + 1) / 2][4], const MmaRows<S> &x,
                          const Bytes<T, 16> (&p)[S::PER][TILES], int first)
{
#pragma unroll
        for (int f = 0; f < S::KEPT; f++)
#pragma unroll
                for (int m = 0; m < S::HALVES; m += 2)
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                                unsigned a[4] = { x.v[f][m][2 * half], 0, x.v[f][m][2 * half + 1],
                                                  0 };
                                if (m + 1 < S::HALVES) {
                                        a[1] = x.v[f][m + 1 < S::HALVES ? m + 1 : m][2 * half];
                                        a[3] = x.v[f][m + 1 < S::HALVES ? m + 1 : m][2 * half + 1];
                                }
#pragma unroll
                                for (int i = 0; i < TILES; i++) {
                                        const uint4 c = p[first + f][i].c;
                                        mma_16816<T>(acc[i][m / 2], a, half ? c.z : c.x,
                                                     half ? c.w : c.y);
                                }
                        }
}

/* A prologue that reads the rows of a matrix. */
template <class T>
struct PlainPrologue {
        static constexpr int MAXV = 8, MINV = 1;
        const T *x;
        long ld;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                load<V>(v, x + row * ld + col);
        }
};

template <class T, int M, int N, int K, int WARPS, int TILES, int ROUNDS, int NORM, class Prologue,
          class Epilogue, class Gain = NoGain>
TGC_DEV void gemv_mma_task(const T *w, long ldw, float eps, int tile, char *smem,
                           const Prologue &prologue, const Epilogue &epilogue,
                           const Gain &gain = Gain())
{
        typedef GemvMmaShape<M, K, WARPS, TILES, ROUNDS> S;
        constexpr int V = epilogue_width<Epilogue, 2>(), ACROSS = S::COLS / V,
                      EACH = (M * ACROSS + WARPS * 32 - 1) /
                             (WARPS * 32); /* epilogue vectors per thread */
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        int col0 = tile * ROUNDS * S::COLS;
        float *sums = (float *)smem;

        Bytes<T, 16> now[S::PER][TILES], next[S::PER][TILES];
        MmaRows<S> x;
        mma_columns_get<T, S, N, K, TILES>(now, w, ldw, col0, 0);
        pdl_wait();
        if (M <= 16)
                mma_rows_get<T, S, M, K>(x, 0, 0, prologue);
        if constexpr (NORM != NORM_NONE)
                mma_rows_norm<T, S, M, K, WARPS, NORM>(x, eps, sums + S::SMEM / 4 - S::MOMENTS,
                                                       gain);
#pragma unroll 1
        for (int round = 0; round < ROUNDS && col0 < N; round++, col0 += S::COLS) {
                EpilogueReads<Epilogue, V> ahead[EACH];
                float acc[TILES][(S::HALVES + 1) / 2][4];
#pragma unroll
                for (int i = 0; i < TILES; i++)
#pragma unroll
                        for (int m = 0; m < (S::HALVES + 1) / 2; m++)
#pragma unroll
                                for (int j = 0; j < 4; j++)
                                        acc[i][m][j] = 0.f;
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                        const int u = (int)threadIdx.x + i * WARPS * 32,
                                  col = col0 + u % ACROSS * V;
                        if (u / ACROSS < M && col < N)
                                ahead[i].get(epilogue, u / ACROSS, col);
                }
#pragma unroll
                for (int step = 0; step < S::STEPS; step++) {
                        const int then = step + 1 < S::STEPS ? col0 : col0 + S::COLS;
                        if (step + 1 < S::STEPS || (round + 1 < ROUNDS && then < N))
                                mma_columns_get<T, S, N, K, TILES>(next, w, ldw, then,
                                                                   (step + 1) % S::STEPS);
#pragma unroll
                        for (int f = 0; f < S::PER; f += S::KEPT) {
                                if (M > 16 || (S::STEPS > 1 && (step || round)))
                                        mma_rows_get<T, S, M, K>(x, step, f, prologue);
                                mma_multiply<T, S, TILES>(acc, x, now, f);
                        }
#pragma unroll
                        for (int f = 0; f < S::PER; f++)
#pragma unroll
                                for (int i = 0; i < TILES; i++)
                                        now[f][i] = next[f][i];
                }
                /* rounds alternate between two buffers, so one barrier per round suffices */
                float *to = sums + (ROUNDS > 1 ? round & 1 : 0) * S::SUMS;
#pragma unroll
                for (int i = 0; i < TILES; i++)
#pragma unroll
                        for (int h = 0; h < S::HALVES; h++)
                                if (g + h * 8 < M) {
                                        float *p = to + (warp * M + g + h * 8) * S::COLS + i * 8 +
                                                   2 * t;
                                        p[0] = acc[i][h / 2][h % 2 * 2];
                                        p[1] = acc[i][h / 2][h % 2 * 2 + 1];
                                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                        const int u = (int)threadIdx.x + i * WARPS * 32, row = u / ACROSS,
                                  across = u % ACROSS * V;
                        if (row >= M || col0 + across >= N)
                                continue;
                        float v[V];
                        parts_sum<WARPS>(v, to, row * S::COLS + across, M * S::COLS);
                        ahead[i].call(epilogue, row, col0 + across, v);
                }
        }
        __syncthreads();
}

#endif
