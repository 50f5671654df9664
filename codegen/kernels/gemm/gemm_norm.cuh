/* gemm_norm.cuh: a GEMM and the norm of the rows that its epilogue produces, in one launch.
 *
 *      gemm_norm_task<T, Tile, TRANS_A, TRANS_B, ALIGN, RowNorm<KIND, CLUSTER>>(a, lda, b, ldb, M,
 *              N, K, eps, tile, smem, epilogue, finish)
 *              ceil(M / BM) clusters of CLUSTER = ceil(N / BN) blocks (on sm_90a; CLUSTER 1
 *              anywhere).  A block has this task alone.  gemm_norm_smem<Tile, RowNorm>() bytes.
 *
 * For rows a few tiles wide, where a norm in its own launch would mostly wait.  Blocks whose tiles
 * share rows form a cluster.  Each block keeps its epilogue's results in registers, sends the sums
 * of its part of each row to the other blocks, adds the received sums in the order of columns, and
 * normalises its part.
 *
 * As gemm_task, except that the epilogue leaves the values to be normalised in v.  finish: the
 * epilogue of norm_task (norm.cuh).  MAXV of both divides N.  Any tile but FTiles.
 *
 * NORM_RMS needs the sum of squares.  NORM_LAYER needs the sum, and the squares q about the part's
 * own mean; about the row's mean they are q + n (mean - row's mean)^2. */
#ifndef TGC_GEMM_NORM_CUH
#define TGC_GEMM_NORM_CUH

#include "epilogue_protocol.cuh"
#include "gemm.cuh"
#include "row_part.cuh"

template <int KIND_, int CLUSTER_>
struct RowNorm {
        static constexpr int KIND = KIND_, CLUSTER = CLUSTER_, SUMS = KIND == NORM_LAYER ? 2 : 1;
};

/* Behind the GEMM's shared memory: float (CLUSTER * ACROSS, BM, SUMS), the sums of all parts of
 * the block's rows (ACROSS warps of a block share a row), and the mbarrier that counts their
 * bytes. */
template <class Tile, class Norm>
struct NormSmem {
        static constexpr int ACROSS = Tile::SIMT || Tile::TF32 ? 1 : Tile::WARPS_N;
        static constexpr int PARTS = Norm::CLUSTER * ACROSS,
                             BYTES = PARTS * Tile::BM * Norm::SUMS * 4, BAR = BYTES;
        static constexpr int SIZE = BYTES + 16;
};
template <class Tile, class Norm>
__host__ __device__ constexpr int gemm_norm_smem()
{
        return Tile::SMEM + NormSmem<Tile, Norm>::SIZE;
}

template <class Epilogue, int V>
struct NarrowEpilogue : Epilogue {
        static constexpr int MAXV = V;
};

/* The epilogue of a tile whose corner is (m, n), in block `rank` of its cluster; sums: NormSmem. */
template <class Tile, class Norm, class Epilogue, class Finish>
struct NormEpilogue {
        typedef NormSmem<Tile, Norm> At;
        static constexpr int MAXV = vec_min(Epilogue::MAXV, Finish::MAXV),
                             MINV = vec_max(Epilogue::MINV, Finish::MINV);
        typedef NarrowEpilogue<Epilogue, MAXV> WholeRows;
        WholeRows epilogue;
        const Finish &finish;
        float eps;
        int m, n, M, N, rank;
        char *sums;

        /* Sends the sums of row `row` of the tile, part `part` of this block, to all blocks of the
         * cluster; LANES lanes hold them. */
        template <int LANES>
        __device__ __forceinline__ void send(int part, int row, int lane,
                                             const float (&x)[Norm::SUMS]) const
        {
                float *p = (float *)sums +
                           ((rank * At::ACROSS + part) * Tile::BM + row) * Norm::SUMS;
#ifdef TGC_SM90A
                Mbar *bar = (Mbar *)(sums + At::BAR);
                if constexpr (Norm::CLUSTER > 1) {
#pragma unroll
                        for (int to = 0; to < Norm::CLUSTER; to += LANES)
                                if (to + lane < Norm::CLUSTER)
#pragma unroll
                                        for (int k = 0; k < Norm::SUMS; k++)
                                                send_cluster(p + k, bar, to + lane,
                                                             __float_as_uint(x[k]));
                        return;
                }
#endif
                if (lane == 0)
                        store<Norm::SUMS>(p, x);
        }

        /* Waits until all blocks have initialised their barriers; bytes may arrive before they are
         * expected. */
        __device__ __forceinline__ void ready() const
        {
#ifdef TGC_SM90A
                if constexpr (Norm::CLUSTER > 1) {
                        cluster_wait();
                        if (threadIdx.x == 0)
                                mbarrier_expect_tx((Mbar *)(sums + At::BAR), At::BYTES);
                        __syncwarp();
                }
#endif
        }

        /* Waits for the sums of all parts. */
        __device__ __forceinline__ void await() const
        {
#ifdef TGC_SM90A
                if constexpr (Norm::CLUSTER > 1) {
                        mbarrier_wait((Mbar *)(sums + At::BAR), 0);
                        return;
                }
#endif
                __syncthreads();
        }

        /* Statistics of a row of N columns from its parts: ACROSS per block, WIDE columns each. */
        template <int WIDE>
        __device__ __forceinline__ void stats(int row, const float (&own)[Norm::SUMS], float &mean,
                                              float &rstd) const
        {
                float x[At::PARTS][Norm::SUMS], var = 0.f;
                mean = 0.f;
#pragma unroll
                for (int c = 0; c < At::PARTS; c++)
                        if constexpr (At::PARTS > 1)
                                load<Norm::SUMS>(x[c], (const float *)sums +
                                                               (c * Tile::BM + row) * Norm::SUMS);
                        else
#pragma unroll
                                for (int k = 0; k < Norm::SUMS; k++)
                                        x[c][k] = own[k];
#pragma unroll
                for (int c = 0; c < At::PARTS; c++)
                        (Norm::KIND == NORM_LAYER ? mean : var) += x[c][0];
                mean *= 1.f / (float)N;
                if constexpr (Norm::KIND == NORM_LAYER)
#pragma unroll
                        for (int c = 0; c < At::PARTS; c++) {
                                const int left = N - c * WIDE, wide = left < WIDE ? left : WIDE;
                                const float d = x[c][0] * (1.f / (float)(wide > 0 ? wide : 1)) -
                                                mean;
                                var += wide > 0 ? x[c][1] + (float)wide * d * d : 0.f;
                        }
                rstd = rsqrtf(var * (1.f / (float)N) + eps);
        }

        /* Normalises the values of COUNT calls, in SLOTS rows of the tile.  Call p belongs to row
         * slot Place::slot(p) and column group Place::group(p).  LANES neighbouring lanes share a
         * row's part of WIDE columns. */
        template <int SLOTS, int GROUPS, int LANES, int WIDE, class Place, int COUNT, int V>
        __device__ __forceinline__ void norm(const Place &at, int part, float (&v)[COUNT][V]) const
        {
                typedef EpilogueReads<Finish, V> Reads;
                const int lane = (int)threadIdx.x % LANES, left = N - (n + part * WIDE);
                const bool whole = N % Tile::BN == 0;
                const int wide = whole || left > WIDE ? WIDE : left > 0 ? left : 1;
                float x[SLOTS][Norm::SUMS];
                Reads reads[GROUPS];
#pragma unroll
                for (int g = 0; g < GROUPS; g++)
                        if (whole || at.col(g) < N)
                                reads[g].get_cols(finish, at.col(g));
                ready();
#pragma unroll
                for (int i = 0; i < SLOTS; i++) {
#pragma unroll
                        for (int k = 0; k < Norm::SUMS; k++) {
                                const float mean = k ? x[i][0] * (1.f / (float)wide) : 0.f;
                                float s = 0.f;
#pragma unroll
                                for (int p = 0; p < COUNT; p++)
                                        if (Place::slot(p) == i &&
                                            (whole || at.col(Place::group(p)) < N))
#pragma unroll
                                                for (int j = 0; j < V; j++) {
                                                        const float d = v[p][j] - mean;
                                                        s += k || Norm::KIND == NORM_RMS ? d * d
                                                                                         : d;
                                                }
                                x[i][k] = lanes_sum<LANES, Tile::THREADS>(s, 0);
                        }
                        if constexpr (At::PARTS > 1)
                                send<LANES>(part, at.row(i), lane, x[i]);
                }
                if constexpr (At::PARTS > 1)
                        await();
                float mean[SLOTS], rstd[SLOTS];
#pragma unroll
                for (int i = 0; i < SLOTS; i++)
                        stats<WIDE>(at.row(i), x[i], mean[i], rstd[i]);
#pragma unroll
                for (int p = 0; p < COUNT; p++) {
                        const int i = Place::slot(p), g = Place::group(p), row = m + at.row(i),
                                  col = at.col(g);
                        if (row >= M || !(whole || col < N))
                                continue;
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[p][j] = (v[p][j] - mean[i]) * rstd[i];
                        reads[g].get_rows(finish, row, col);
                        reads[g].call(finish, row, col, v[p]);
                }
        }

        /* A warp's fragments as MmaEpilogue cuts them: a quad has a row. */
        template <class Calls>
        struct Fragments {
                int row0, col0; /* in the tile; in C */
                static __device__ __forceinline__ constexpr int slot(int p)
                {
                        return Calls::i(p) * 2 + Calls::h(p);
                }
                static __device__ __forceinline__ constexpr int group(int p)
                {
                        return Calls::j(p) / Calls::STEP * Calls::PARTS + Calls::c(p);
                }
                static __device__ __forceinline__ constexpr int call_of(int i, int g)
                {
                        return i / 2 * Calls::ACROSS +
                               (g / Calls::PARTS * 2 + i % 2) * Calls::PARTS + g % Calls::PARTS;
                }
                __device__ __forceinline__ int row(int i) const
                {
                        return row0 + Calls::row(call_of(i, 0));
                }
                __device__ __forceinline__ int col(int g) const
                {
                        return col0 + Calls::col(call_of(0, g));
                }
        };
        template <int ROWS, int WN>
        __device__ __forceinline__ void fragments(const float (&acc)[ROWS][WN / 8][4], int row0,
                                                  int col0) const
        {
                typedef MmaEpilogue<ROWS, WN, 16, 24, WholeRows> Plain;
                typedef typename Plain::Calls Calls;
                float v[Plain::COUNT][Plain::V];
                Plain t(epilogue, row0, col0, M, N, false);
                t.start();
                t.run(acc, v);
                norm<2 * ROWS, Calls::ACROSS / 2, 4, WN>(Fragments<Calls> { row0 - m, col0 },
                                                         (col0 - n) / WN, v);
        }

        /* 4-float chunks of the tile's rows, as groups_epilogue cuts them (gemm_tf32.cuh). */
        struct Chunks {
                static constexpr int EACH = 4 / MAXV < 1 ? 1 : 4 / MAXV, ROW = Tile::BN / 4;
                int n;
                static __device__ __forceinline__ constexpr int slot(int p) { return p / EACH; }
                static __device__ __forceinline__ constexpr int group(int p) { return p % EACH; }
                __device__ __forceinline__ int row(int i) const
                {
                        return ((int)threadIdx.x + i * Tile::THREADS) / ROW;
                }
                __device__ __forceinline__ int col(int g) const
                {
                        return n + (int)threadIdx.x % ROW * 4 + g * (4 / EACH);
                }
        };
        template <int COUNT, int V>
        __device__ __forceinline__ void chunks(float (&v)[COUNT][V]) const
        {
                static_assert(Tile::THREADS % Chunks::ROW == 0 && Chunks::ROW <= 32,
                              "a thread's chunks are of one column");
                norm<COUNT / Chunks::EACH, Chunks::EACH, Chunks::ROW, Tile::BN>(Chunks { n }, 0, v);
        }
};

/* The epilogue of the tile at (m, n); all threads call it before anything else.  smem: the
 * block's. */
template <class Tile, class Norm, class Epilogue, class Finish>
TGC_DEV NormEpilogue<Tile, Norm, Epilogue, Finish> norm_begin(int M, int N, float eps, int tile,
                                                              char *smem, const Epilogue &epilogue,
                                                              const Finish &finish)
{
        typedef NormEpilogue<Tile, Norm, Epilogue, Finish> Normed;
        const int rank = tile % Norm::CLUSTER;
        const TileAt at = { tile / Norm::CLUSTER * Tile::BM, rank * Tile::BN };
        char *sums = smem + Tile::SMEM;
#ifdef TGC_SM90A
        if constexpr (Norm::CLUSTER > 1) {
                Mbar *bar = (Mbar *)(sums + Normed::At::BAR);
                if (threadIdx.x == 0) {
                        mbarrier_init(bar, 1);
                        fence_barrier_init();
                }
                __syncwarp();
                cluster_arrive_relaxed();
        }
#else
        static_assert(Norm::CLUSTER == 1, "clusters are sm_90a's");
#endif
        return Normed { { epilogue }, finish, eps, at.m, at.n, M, N, rank, sums };
}

template <class T, class Tile, bool TRANS_A, bool TRANS_B, int ALIGN, class Norm, class Epilogue,
          class Finish>
TGC_DEV void gemm_norm_task(const T *a, long lda, const T *b, long ldb, int M, int N, int K,
                            float eps, int tile, char *smem, const Epilogue &epilogue,
                            const Finish &finish)
{
        const auto normed = norm_begin<Tile, Norm>(M, N, eps, tile, smem, epilogue, finish);
        const TileAt at = { normed.m, normed.n };
        gemm_block<T, Tile, TRANS_A, TRANS_B, ALIGN>(a, lda, SameRows(), b, ldb, SameRows(), M, N,
                                                     K, at, 0, (K + Tile::BK - 1) / Tile::BK, smem,
                                                     normed);
}

#endif
