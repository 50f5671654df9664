/* gemm_single_wave_sm90.cuh: short GEMMs on Hopper (sm_90a), bf16 and f16: one tile per block, all
 * blocks resident at once.
 *
 *      gemm_single_wave<T, Tile, TRANS_A, TRANS_B, PREFETCH>(map_a, map_b, M, N, K, tile, smem,
 *              epilogue)
 *              in place of gemm_task; operands, maps and epilogues as in gemm_sm90.cuh; M, N, K >=
 *              1.  Calls pdl_wait.  PREFETCH (PREFETCH_A, PREFETCH_B, both or 0): operands that the
 *              previous launch does not write, loaded before pdl_wait.
 *
 * A small model's GEMM takes three to ten microseconds, two of them before the first step and
 * after the last.  So a block starts during the previous launch, as soon as its multiprocessor is
 * free, and loads what it may.  Each operand has a producer thread that requests all stages at
 * once (one thread for both takes a microsecond for eight stages).  Every 64 rows of the tile have
 * a warpgroup.
 *
 * Multicast in clusters was slower by a microsecond: a multiprocessor receives no more data that
 * way, and waits for its partner.
 *
 * Tiles of GEMMs of different shapes may share a launch (schedule.c): a block calls this once,
 * after threads that its tile does not need have left. */
#ifndef TGC_GEMM_SINGLE_WAVE_SM90_CUH
#define TGC_GEMM_SINGLE_WAVE_SM90_CUH

#include "gemm_sm90.cuh"
#ifdef TGC_SM90A

enum { PREFETCH_A = 1, PREFETCH_B = 2 };

template <int BM_, int BN_, int STAGES_>
struct SingleWaveTile {
        static constexpr int BM = BM_, BN = BN_, BK = 64, STAGES = STAGES_, SHARE = 0, PARTS = 1,
                             COPIERS = 0;
        static constexpr bool PAIR = false, SIMT = false, TF32 = false;
        static constexpr int WHOLE_M = BM, WHOLE_N = BN, MINB = 1, WARPS_N = 1;
        /* the last two warps load B and A */
        static constexpr int GROUPS = BM / 64, THREADS = 128 * GROUPS + 64;
        static constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2,
                             STAGE = A_BYTES + B_BYTES;
        static constexpr int RING = STAGES * STAGE + STAGES * 2 * 8;
        /* an epilogue panel per warp */
        static constexpr int PANEL = 2048, PANELS = (RING + 127) / 128 * 128, EACH = 1, BOTH = 0;
        static constexpr int SMEM = PANELS + GROUPS * 4 * PANEL;
        /* 16-byte reads beside the sums */
        static constexpr int SPARE = GROUPS > 2 ? 4 : (180 - BN / 2) / 4;
        static_assert(BM % 64 == 0 && BN % 64 == 0, "boxes are 64x64");
};

/* The rows of ../../forms/sm90_gemm_tiles.def. */
typedef SingleWaveTile<64, 64, 8> S64x64s;
typedef SingleWaveTile<64, 128, 8> S64x128s;
typedef SingleWaveTile<128, 128, 6> S128x128s;
typedef SingleWaveTile<192, 128, 5> S192x128s;

/* Producer thread of one operand: all K-steps, the boxes of C's side from `first` on. */
template <class Tile, bool KMAJOR, int BOXES, int AT, bool PREFETCH>
TGC_DEV void single_wave_load(Pipeline<Tile> pipe, const void *map, int first, int steps)
{
        if (!PREFETCH) {
                tma_prefetch_map(map);
                pdl_wait();
        }
#pragma unroll 1
        for (int kt = 0; kt < steps; kt++, pipe.next()) {
                Mbar *const full = pipe.full(pipe.stage);
                pipe.wait_empty();
                mbarrier_expect_tx(full, BOXES * 8192);
#pragma unroll
                for (int j = 0; j < BOXES; j++) {
                        const int x = first + 64 * j, y = kt * 64;
                        tma_load_2d(pipe.a() + AT + j * 8192, map, full, KMAJOR ? y : x,
                                    KMAJOR ? x : y);
                }
        }
}

/* Epilogue of a warp's rows: as in other Hopper tiles (whose panels begin with warp 4's, as warps
 * 0-3 load there), or one that wants whole rows of the tile. */
template <class Tile, class Epilogue, bool WHOLE = EpilogueRows<Epilogue>::WHOLE>
struct SingleWaveEpilogue : Ends<Tile, 1, Tile::SPARE, Epilogue> {
        typedef Ends<Tile, 1, Tile::SPARE, Epilogue> Base;
        __device__ __forceinline__ SingleWaveEpilogue(const Epilogue &epilogue, char *smem,
                                                      int row0, int col0, int M, int N)
            : Base(epilogue, smem + 4 * Tile::PANEL, row0, col0, M, N, is_whole<Tile>(M, N))
        {
        }
};
template <class Tile, class Epilogue>
struct SingleWaveEpilogue<Tile, Epilogue, true> {
        const Epilogue &epilogue;
        int row0, col0;
        __device__ __forceinline__ SingleWaveEpilogue(const Epilogue &epilogue_, char *, int row0_,
                                                      int col0_, int, int)
            : epilogue(epilogue_), row0(row0_), col0(col0_)
        {
        }
        __device__ __forceinline__ void start() {}
        __device__ __forceinline__ void run(const float (&acc)[1][Tile::BN / 8][4])
        {
                epilogue.template fragments<1, Tile::BN>(acc, row0, col0);
        }
};

/* Computes the tile at `at`. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, int PREFETCH, class Epilogue>
TGC_DEV void single_wave_tile(const void *map_a, const void *map_b, int M, int N, int K, TileAt at,
                              char *smem, const Epilogue &epilogue)
{
        const int warp = (int)threadIdx.x / 32, lane = threadIdx.x & 31, steps = k_steps<Tile>(K);
        Pipeline<Tile> pipe(smem);
        if (warp == 4 * Tile::GROUPS) {
                if (lane == 0) {
                        for (int s = 0; s < Tile::STAGES; s++) {
                                mbarrier_init(pipe.full(s), 2);
                                mbarrier_init(pipe.empty(s), 4 * Tile::GROUPS);
                        }
                        fence_barrier_init();
                        fence_proxy_async();
                }
                __syncwarp();
                bar_arrive(1, Tile::THREADS);
                if (lane == 0)
                        single_wave_load<Tile, TRANS_B, Tile::BN / 64, Tile::A_BYTES,
                                         (PREFETCH & PREFETCH_B) != 0>(pipe, map_b, at.n, steps);
                return;
        }
        if (warp == 4 * Tile::GROUPS + 1) {
                bar_sync(1, Tile::THREADS);
                if (lane == 0)
                        single_wave_load<Tile, !TRANS_A, Tile::BM / 64, 0,
                                         (PREFETCH & PREFETCH_A) != 0>(pipe, map_a, at.m, steps);
                return;
        }
        bar_sync(1, Tile::THREADS);
        pdl_wait();
        /* warp-uniform, as wgmma requires */
        const int group = __shfl_sync(0xffffffffu, warp / 4, 0);
        const unsigned long long a0 = panel_desc<!TRANS_A, 64>(smem) +
                                      group * desc_64<!TRANS_A, 64>();
        const unsigned long long b0 = panel_desc<TRANS_B, 64>(smem + Tile::A_BYTES);
        float acc[1][Tile::BN / 8][4], none[1][4];
        SingleWaveEpilogue<Tile, Epilogue> ends(epilogue, smem, at.m + warp * 16, at.n, M, N);
        const int early = steps < LAST_STEPS ? 0 : steps - LAST_STEPS;
        for (int k = 0; k < steps; k++) {
                if (k == early)
                        ends.start();
                wgmma_step<false, T, Tile, TRANS_A, TRANS_B>(pipe, a0, b0, 0, acc, none, k, 0,
                                                             lane);
        }
        wgmma_wait<0>();
        wgmma_hold(reinterpret_cast<float(&)[Tile::BN / 2]>(acc[0]));
        ends.run(acc);
}

template <class T, class Tile, bool TRANS_A, bool TRANS_B, int PREFETCH, class Epilogue>
TGC_DEV void gemm_single_wave(const void *map_a, const void *map_b, int M, int N, int K, int tile,
                              char *smem, const Epilogue &epilogue)
{
        single_wave_tile<T, Tile, TRANS_A, TRANS_B, PREFETCH>(map_a, map_b, M, N, K,
                                                              tile_at<Tile>(tile, M, N), smem,
                                                              epilogue);
}

#endif
#endif
