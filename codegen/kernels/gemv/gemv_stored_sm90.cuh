/* gemv_stored_sm90.cuh: y = norm(x) W^T for a few rows of x and block-quantised W, on integer
 * tensor cores.
 *
 *      gemv_stored_sm90_task<S, M, N, K, Tile, NORM>(w, ldw, eps, tile, smem,
 *              prologue, epilogue[, gain])
 *              x (M, K) from the prologue; W (N, K), blocks of storage type S
 *              (../common/stored_dot.cuh), rows ldw values apart; y (M, N) to the epilogue.
 *              NORM is none or RMS.  K is a multiple of STEP, and a row of W is a multiple of 16
 *              bytes (gemv_blocks_mma in ../../forms/gemv_shape.h decides).
 *
 * A slab is 16 rows of W, the m of an mma.  Block b computes slabs b, b + BLOCKS, b + 2 BLOCKS,
 * ...
 *
 * Producer (warp WARPS) copies W into a ring of STAGES slots, one bulk copy per row.  A slot holds
 * a K block: 16 rows by KSTEPS steps of every consumer warp.  Its first copies precede pdl_wait;
 * after its last one the next launch may start.
 *
 * Consumers (WARPS warps):
 * 1. Wait for the previous launch.  Convert GROUP rows of x to fixed point in shared memory.
 * 2. Multiply slot by slot (gemv_stored_mma_sm90.cuh).  Warps split K: each has its own steps of a
 *    slot.
 * 3. After FLUSH slabs, add the warps' partial sums in order, scale, call the epilogue.
 *
 * Fixed point (gemv_stored_x_sm90.cuh): 32 neighbouring values of x share a power-of-two scale; a
 * value is 256 * high + low, two signed bytes.
 *
 * The order of summation does not depend on M.
 *
 * Shared memory (blocks_mma_smem), G = min(M, GROUP) rows of x:
 *
 *     slots     STAGES x 16 rows of W, PITCH bytes apart; 16 spare bytes
 *     x         G x (2 K bytes, then float2 { scale, scale * sum of x } per run)
 *     zero      32 UNITS zero bytes: B for lanes off the diagonal
 *     partial   float [FLUSH][G][WARPS][16]
 *     red       float [G][WARPS], sums of squares
 *     full, empty   STAGES mbarriers each */
#ifndef TGC_GEMV_STORED_SM90_CUH
#define TGC_GEMV_STORED_SM90_CUH

#include "gemv_epilogue.cuh"
#include "gemv_stored_mma_sm90.cuh"
#include "gemv_stored_x_sm90.cuh"
#ifdef TGC_SM90A

/* BLOCKS: blocks of the launch.  Interleaved slabs let all blocks read neighbouring rows of W.
 * GROUP: rows of x per pass over W. */
template <int WARPS_, int BLOCKS_, int STAGES_, int KSTEPS_, int GROUP_ = 8>
struct BlocksMmaTile {
        static constexpr int WARPS = WARPS_, BLOCKS = BLOCKS_, STAGES = STAGES_, KSTEPS = KSTEPS_,
                             GROUP = GROUP_;
        static constexpr int ROWS = 16, FLUSH = 4;
        static constexpr int THREADS = (WARPS + 1) * 32;
};

template <class Tile>
__host__ __device__ constexpr int blocks_mma_group(int M)
{
        return Tile::GROUP < M ? Tile::GROUP : M;
}
template <class S, int M, int K, class Tile>
__host__ __device__ constexpr int blocks_mma_smem()
{
        constexpr int G = blocks_mma_group<Tile>(M);
        typedef BlocksMma<S, G, K, Tile> B;
        return Tile::STAGES * (B::SLOT + 16) + 16 + G * B::X + B::ZERO + B::PARTIAL +
               G * Tile::WARPS * 4;
}

/* Adds the warps' partial sums of `slabs` slabs (first, first + each, ...), applies RMSNorm's
 * scale, calls the epilogue. */
template <int N, int K, int M, int WARPS, int THREADS, int NORM, class Epilogue>
TGC_DEV void blocks_finish(const float *partial, const float *red, float eps, int row0, int rows,
                           int first, int each, int slabs, const Epilogue &epilogue)
{
        constexpr int V = epilogue_width<Epilogue, 8>(), PARTS = 16 / V;
#pragma unroll 1
        for (int i = threadIdx.x; i < slabs * M * PARTS; i += THREADS) {
                const int part = i % PARTS * V, m = i / PARTS % M, b = i / PARTS / M,
                          n = (first + b * each) * 16 + part;
                float v[V];
                if (n >= N || m >= rows)
                        continue;
                parts_sum<WARPS>(v, partial, (b * M + m) * WARPS * 16 + part, 16);
                if (NORM == NORM_RMS) {
                        float q = 0.f;
#pragma unroll
                        for (int j = 0; j < WARPS; j++)
                                q += red[m * WARPS + j];
                        const float scale = rsqrtf(q * (1.f / K) + eps);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[j] *= scale;
                }
                epilogue(row0 + m, n, v);
        }
}

/* The parts of shared memory, as the head of this file lists them. */
template <class B, class Tile, int G>
struct BlocksMmaSmem {
        char *slots, *x, *zero;
        float *partial, *red;
        Mbar *full, *empty;

        __device__ __forceinline__ BlocksMmaSmem(char *smem)
            : slots(smem), x(slots + Tile::STAGES * B::SLOT + 16), zero(x + G * B::X),
              partial((float *)(zero + B::ZERO)), red(partial + B::PARTIAL / 4),
              full((Mbar *)(red + G * Tile::WARPS)), empty(full + Tile::STAGES)
        {
        }
        __device__ __forceinline__ char *slot(int i) const { return slots + i * B::SLOT; }
};

/* Position in the ring; the producer and each consumer step through it alike. */
template <int STAGES>
struct RingCursor {
        int slot = 0;
        unsigned phase = 0;

        __device__ __forceinline__ void next()
        {
                if (++slot == STAGES)
                        slot = 0, phase ^= 1;
        }
};

/* ---- producer ----------------------------------------------------------------- */

/* Copies the block's slabs of W, for every group of rows of x.  Lanes 0 to 15 copy a row each. */
template <class B, class S, int GROUPS, int N, class Tile, int G>
TGC_DEV void blocks_produce(const unsigned char *w, long ldw, int tile, int slabs, int lane,
                            const BlocksMmaSmem<B, Tile, G> &s)
{
        RingCursor<Tile::STAGES> at;
        const long row_bytes = ldw / S::VALUES * S::BYTES;
#pragma unroll 1
        for (int i = 0; i < GROUPS * slabs; i++) {
                const int n = (tile + i % slabs * Tile::BLOCKS) * 16 + (lane & 15);
                const unsigned char *from = w + (n < N ? n : N - 1) * row_bytes;
#pragma unroll 1
                for (int k = 0; k < B::K_BLOCKS; k++, from += B::PART) {
                        const int left = B::ROW - k * B::PART,
                                  bytes = left < B::PART ? left : B::PART;
                        mbarrier_wait(s.empty + at.slot, at.phase ^ 1);
                        if (lane == 0)
                                mbarrier_expect_tx(s.full + at.slot, bytes * 16);
                        __syncwarp();
                        if (lane < 16)
                                bulk_load(s.slot(at.slot) + lane * B::PITCH, from, bytes,
                                          s.full + at.slot);
                        at.next();
                }
        }
        if (lane == 0)
                pdl_launch_late();
}

/* ---- consumers ---------------------------------------------------------------- */

/* acc = this warp's steps of a slab, slot by slot. */
template <class B, class S, class Tile, int G>
TGC_DEV void blocks_slab(float (&acc)[2][G], const BlocksMmaSmem<B, Tile, G> &s,
                         RingCursor<Tile::STAGES> &at, bool mine, int warp, int lane,
                         const typename B::Table &table)
{
#pragma unroll
        for (int m = 0; m < G; m++)
                acc[0][m] = acc[1][m] = 0.f;
#pragma unroll 1
        for (int k = 0; k < B::K_BLOCKS; k++) {
                mbarrier_wait(s.full + at.slot, at.phase);
                blocks_stage<B, S, G, Tile>(acc, s.x, s.zero, mine, s.slot(at.slot), k, warp, lane,
                                            table);
                __syncwarp();
                if (lane == 0)
                        mbarrier_arrive(s.empty + at.slot);
                at.next();
        }
}

/* Adds a quad's four runs; the warp's sums of slab `b` of FLUSH go to partial.  (g, t) is the
 * lane. */
template <int G, int WARPS>
TGC_DEV void blocks_put_partial(float *partial, const float (&acc)[2][G], int b, int warp, int g,
                                int t)
{
#pragma unroll
        for (int m = 0; m < G; m++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                        const float v = quad_sum(acc[r][m]);
                        if (t == 0)
                                partial[((b * G + m) * WARPS + warp) * 16 + r * 8 + g] = v;
                }
}

/* All rows of x, G at a time, times the block's slabs: the steps that the head of this file
 * numbers. */
template <class B, class S, int M, int N, int K, class Tile, int NORM, int G, class Prologue,
          class Epilogue, class Gain>
TGC_DEV void blocks_consume(float eps, int tile, int slabs, int warp, int lane,
                            const BlocksMmaSmem<B, Tile, G> &s, const Prologue &prologue,
                            const Epilogue &epilogue, const Gain &gain)
{
        constexpr int WARPS = Tile::WARPS, THREADS = WARPS * 32, ALL = 1;
        const int g = lane >> 2, t = lane & 3;
        /* this lane's column of B, column g, is on the diagonal */
        const bool mine = g >> 1 == t;
        float square[G], acc[2][G];
        RingCursor<Tile::STAGES> at;

        if (threadIdx.x < B::ZERO / 4)
                ((unsigned *)s.zero)[threadIdx.x] = 0;
        pdl_wait();
#pragma unroll 1
        for (int row0 = 0; row0 < M; row0 += G) {
                if (row0)
                        bar_sync(ALL, THREADS);
                /* 1. x to fixed point */
                blocks_x_fill<B, M, G, K, THREADS, NORM>(s.x, row0, square, prologue, gain);
                if (NORM == NORM_RMS)
                        put_squares<G, WARPS>(s.red, square, warp, lane);
                bar_sync(ALL, THREADS);
                const typename B::Table table = BlocksTable<typename B::D>::of(G == 1 ? s.zero
                                                                                      : NULL);
#pragma unroll 1
                for (int slab = 0; slab < slabs; slab++) {
                        /* 2. products */
                        blocks_slab<B, S>(acc, s, at, mine, warp, lane, table);
                        /* 3. sums over a quad; per FLUSH slabs, over the warps */
                        const int b = slab % Tile::FLUSH;
                        blocks_put_partial<G, WARPS>(s.partial, acc, b, warp, g, t);
                        if (b != Tile::FLUSH - 1 && slab != slabs - 1)
                                continue;
                        bar_sync(ALL, THREADS);
                        blocks_finish<N, K, G, WARPS, THREADS, NORM>(s.partial, s.red, eps, row0,
                                                                     M - row0 < G ? M - row0 : G,
                                                                     tile + (slab - b) *
                                                                                     Tile::BLOCKS,
                                                                     Tile::BLOCKS, b + 1, epilogue);
                        if (slab != slabs - 1)
                                bar_sync(ALL, THREADS);
                }
        }
}

template <class S, int M, int N, int K, class Tile, int NORM, class Prologue, class Epilogue,
          class Gain = NoGain>
TGC_DEV void gemv_stored_sm90_task(const unsigned char *w, long ldw, float eps, int tile,
                                   char *smem, const Prologue &prologue, const Epilogue &epilogue,
                                   const Gain &gain = Gain())
{
        constexpr int G = blocks_mma_group<Tile>(M), WARPS = Tile::WARPS, STAGES = Tile::STAGES;
        typedef BlocksMma<S, G, K, Tile> B;
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
        const BlocksMmaSmem<B, Tile, G> s(smem);
        constexpr int SLABS = (N + 15) / 16, BLOCKS = Tile::BLOCKS;
        const int slabs = (SLABS - tile + BLOCKS - 1) / BLOCKS;

        /* one arrival (and its bytes) fills a slot; every consumer warp's arrival empties it */
        if (threadIdx.x == WARPS * 32) {
                for (int i = 0; i < STAGES; i++) {
                        mbarrier_init(s.full + i, 1);
                        mbarrier_init(s.empty + i, WARPS);
                }
                fence_barrier_init();
        }
        __syncthreads();
        if (warp == WARPS)
                blocks_produce<B, S, (M + G - 1) / G, N>(w, ldw, tile, slabs, lane, s);
        else
                blocks_consume<B, S, M, N, K, Tile, NORM>(eps, tile, slabs, warp, lane, s, prologue,
                                                          epilogue, gain);
        __syncthreads();
        if (threadIdx.x < 2 * STAGES)
                mbarrier_inval(s.full + threadIdx.x);
}

#endif
#endif
