/* gemm_stream_sm90.cuh: what the persistent, warp-specialised GEMMs by block-quantised weights
 * share (gemm_fp8_persistent_sm90.cuh, gemm_stored_persistent_sm90.cuh; many rows of x).
 *
 * Warpgroup 0 is the producer, ahead into the next tile too: slices of 256 of K of W, and steps of
 * 128 bytes of x's rows.  Each consumer warpgroup has 64 rows of W.
 *
 * L2 bandwidth is the limit.  So the two blocks of a cluster have the same rows of x, and each
 * multicasts half of them.  A slice of W is not 16-byte aligned, so TMA cannot load it; 128
 * threads copy it by cp.async, fast enough only with few instructions per copy (stored_copy for
 * rows of equal alignment).  With 24 instructions per 16 bytes, or a bulk copy per row, steps took
 * twice as long. */
#ifndef TGC_GEMM_STREAM_SM90_CUH
#define TGC_GEMM_STREAM_SM90_CUH

#include "gemm_stored.cuh"
#include "pipeline_sm90.cuh"
#ifdef TGC_SM90A

/* ROWS of x (128, 256) by 64 of W per consumer, of which there are two.  BESIDE: further bytes per
 * row in a stage of x. */
template <int ROWS_, int X_STAGES, int W_STAGES, int BESIDE>
struct StreamTile {
        static constexpr int BM = ROWS_, BN = 128, THREADS = 384, MINB = 1;
        static constexpr int PIECE = 64, PIECES = BM / PIECE;
        static constexpr int X_BYTES = BM * 128, PIECE_BYTES = PIECE * 128;
        static constexpr int TOKENS = 16, LDT = 20, PANEL_BYTES = TOKENS * LDT * 4;
        /* registers; 168 at entry */
        static constexpr int LOADS = 40, MULTIPLIES = (168 * 3 - LOADS) / 2;
        struct X {
                static constexpr int STAGES = X_STAGES, STAGE = 0, A_BYTES = 0;
                static constexpr bool PAIR = true;
        };
        struct W {
                static constexpr int STAGES = W_STAGES, STAGE = 0, A_BYTES = 0;
                static constexpr bool PAIR = false;
        };
        struct Copies { /* what stored_copy asks of a tile */
                static constexpr int BN = 128, THREADS = 128;
        };
        /* Offsets: x's panels from 0 on, then these. */
        static constexpr int BARS_X = X_STAGES * X_BYTES, BARS_W = BARS_X + 16 * X_STAGES,
                             SCALES = BARS_W + 16 * W_STAGES,
                             PANELS = SCALES + X_STAGES * BM * BESIDE,
                             BLOCKS = PANELS + 8 * PANEL_BYTES;

        template <class S, int K>
        static __host__ __device__ constexpr int smem()
        {
                return BLOCKS + W_STAGES * BN * StoredSlice<S, K>::STRIDE;
        }
};

/* A block's tiles: the two blocks of a cluster have the same rows of x and adjacent rows of W. */
template <class Tile>
TGC_DEV TileAt stream_tile(int tile, int down)
{
        return { tile / 2 % down * Tile::BM, (tile / 2 / down * 2 + tile % 2) * Tile::BN };
}

/* Producer thread: step i of x's rows from m on, half by each block, to both.  map: boxes of 64 x
 * 64 16-bit values. */
template <class Tile>
TGC_DEV void stream_load_x(char *to, const void *map, Mbar *full, int i, int m, int rank)
{
        constexpr int HALF = Tile::BM / 2;
        mbarrier_expect_tx(full, Tile::X_BYTES);
#pragma unroll
        for (int r = 0; r < HALF; r += 64)
                tma_load_2d_multicast(to + (rank * HALF + r) * 128, map, full, i * 64,
                                      m + rank * HALF + r, 3);
}

/* A warp's sums of a tile (W's rows down), from column n on, to the epilogue.  They pass through
 * the warp's panel, 16 rows of y at a time, to make a row's 16 values neighbours. */
template <class Tile, class Epilogue>
TGC_DEV void stream_epilogue(const float (&acc)[Tile::PIECES][Tile::PIECE / 2], float *panel, int m,
                             int n, int M, const Epilogue &epilogue)
{
        constexpr int V = Epilogue::MAXV < 8 ? Epilogue::MAXV : 8, LD = Tile::LDT,
                      EACH = Tile::PIECE / Tile::TOKENS;
        const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, token = lane % 16,
                  side = lane / 16 * 8;
#pragma unroll
        for (int q = 0; q < Tile::BM / Tile::TOKENS; q++) {
                if (m + q * Tile::TOKENS >= M)
                        break;
#pragma unroll
                for (int j = 0; j < Tile::TOKENS / 8; j++)
#pragma unroll
                        for (int k = 0; k < 4; k++)
                                panel[(8 * j + 2 * t + (k & 1)) * LD + g + 8 * (k >> 1)] =
                                        acc[q / EACH][(q % EACH * (Tile::TOKENS / 8) + j) * 4 + k];
                __syncwarp();
                const int row = m + q * Tile::TOKENS + token;
#pragma unroll
                for (int c = side; c < side + 8; c += V) {
                        float v[V];
                        if (row >= M)
                                break;
#pragma unroll
                        for (int k = 0; k < V; k++)
                                v[k] = panel[token * LD + c + k];
                        epilogue(row, n + c, v);
                }
                __syncwarp();
        }
}

/* All threads: initialises the barriers (x's wait for `arrivals` of this block), synchronises the
 * cluster; and the same at the end. */
template <class Tile>
TGC_DEV void stream_begin(char *smem, int arrivals)
{
        const Pipeline<typename Tile::X> of_x(smem + Tile::BARS_X);
        const Pipeline<typename Tile::W> of_w(smem + Tile::BARS_W);
        if (threadIdx.x == 0) {
                for (int s = 0; s < Tile::X::STAGES; s++) {
                        mbarrier_init(of_x.full(s), arrivals);
                        mbarrier_init(of_x.empty(s), 16); /* from both blocks */
                }
                for (int s = 0; s < Tile::W::STAGES; s++) {
                        mbarrier_init(of_w.full(s), 128);
                        mbarrier_init(of_w.empty(s), 8);
                }
                fence_barrier_init();
                fence_proxy_async();
        }
        __syncthreads();
        cluster_sync();
}
template <class Tile>
TGC_DEV void stream_end(char *smem)
{
        const Pipeline<typename Tile::X> of_x(smem + Tile::BARS_X);
        const Pipeline<typename Tile::W> of_w(smem + Tile::BARS_W);
        cluster_sync();
        if (threadIdx.x == 0) {
                for (int s = 0; s < 2 * Tile::X::STAGES; s++)
                        mbarrier_inval(of_x.full(s));
                for (int s = 0; s < 2 * Tile::W::STAGES; s++)
                        mbarrier_inval(of_w.full(s));
        }
        __syncthreads();
}

#endif
#endif
