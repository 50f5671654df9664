/* gemm_rows_sm90.cuh: y (M,N) = x (M,K) w (N,K)^T for 1 to 256 rows of bf16 or f16 on Hopper
 * (sm_90a): batched decoding, bound by reading w once.
 *
 *      gemm_rows<T, RowsTile<ROWS, STAGES>, PARTS, PREFETCH>(map_x, map_w, M, N, K, tile, smem,
 *              epilogue)
 *              M <= ROWS: 8, 32, 64, 128 or 256.  Boxes of map_w are 64 x 64 values, of map_x
 *              min(ROWS, 64) rows; 128-byte swizzle.  Calls pdl_wait.  PREFETCH & PREFETCH_B: the
 *              previous launch does not write w.
 *
 * Operands are swapped: 64 rows of w are wgmma's m, rows of x its n, so that few rows cost little.
 * A block has 128 columns of y.  One thread loads w into a pipeline of as many stages as fit,
 * another x.  PARTS blocks, a cluster, split K; each leaves its sums in its own shared memory, and
 * all share the reduction and the epilogue.
 *
 * A row's bits depend neither on M nor on other rows.  Each part of K sums its steps of 64, 16 per
 * wgmma in order; then the parts are added from first to last.
 *
 * Shape: ../../forms/gemm_rows_shape.h. */
#ifndef TGC_GEMM_ROWS_SM90_CUH
#define TGC_GEMM_ROWS_SM90_CUH

#include "gemm_single_wave_sm90.cuh"
#ifdef TGC_SM90A

template <int ROWS_, int STAGES_>
struct RowsTile {
        static constexpr int ROWS = ROWS_, BN = 128, BK = 64, STAGES = STAGES_;
        static constexpr bool PAIR = false;
        /* A is w, B is x */
        static constexpr int A_BYTES = BN * BK * 2, B_BYTES = ROWS * BK * 2,
                             STAGE = A_BYTES + B_BYTES, SMEM = STAGES * (STAGE + 16);
        static constexpr int BOX = ROWS < 64 ? ROWS : 64;
        static constexpr int THREADS = 320;
        /* floats from row to row of the sums: no bank conflicts within a warp */
        static constexpr int LD = BN + 4;
        static_assert(ROWS * LD * 4 <= STAGES * STAGE, "sums lie where the stages were");
};

/* Producer thread: an operand's boxes of all steps. */
template <class Tile, bool W>
TGC_DEV void rows_load(Pipeline<Tile> pipe, const void *map, int first, int kt0, int kt1)
{
        constexpr int BOX = W ? 64 : Tile::BOX, BOXES = (W ? Tile::BN : Tile::ROWS) / BOX;
#pragma unroll 1
        for (int kt = kt0; kt < kt1; kt++, pipe.next()) {
                Mbar *const full = pipe.full(pipe.stage);
                pipe.wait_empty();
                mbarrier_expect_tx(full, BOXES * BOX * 128);
#pragma unroll
                for (int j = 0; j < BOXES; j++)
                        tma_load_2d((W ? pipe.a() : pipe.b()) + j * BOX * 128, map, full, kt * 64,
                                    first + j * BOX);
        }
}

/* Sums of a warpgroup's 64 columns of y over the steps of a part; d's columns are rows of y. */
template <class T, class Tile>
TGC_DEV void rows_multiply(float (&d)[Tile::ROWS / 2], Pipeline<Tile> pipe, int group, int steps)
{
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < Tile::ROWS / 2; i++)
                d[i] = 0.f;
#pragma unroll 1
        for (int k = 0; k < steps; k++, pipe.next()) {
                pipe.wait_full();
                const unsigned long long w = wgmma_desc_k128(pipe.a() + group * 8192),
                                         x = wgmma_desc_k128(pipe.b());
                wgmma_hold(d);
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < 4; i++)
                        wgmma<0, 0>(d, w + i * 2, x + i * 2, 1, T());
                wgmma_commit();
                if (k > 0) {
                        wgmma_wait<1>();
                        pipe.leave(pipe.before(1), lane);
                }
        }
        wgmma_wait<0>();
        wgmma_hold(d);
}

/* The sums of all parts for V columns of a row; p: their address in any part's shared memory. */
template <int PARTS, int V>
TGC_DEV void rows_sum(float (&v)[V], const float *p)
{
        if constexpr (PARTS == 1) {
                load<V>(v, p);
        } else {
                float part[PARTS][V];
#pragma unroll
                for (int q = 0; q < PARTS; q++)
                        load_cluster<V>(part[q], p, q);
#pragma unroll
                for (int j = 0; j < V; j++) {
                        v[j] = part[0][j];
#pragma unroll
                        for (int q = 1; q < PARTS; q++)
                                v[j] += part[q][j];
                }
        }
}

template <class T, class Tile, int PARTS, int PREFETCH, class Epilogue>
TGC_DEV void gemm_rows(const void *map_x, const void *map_w, int M, int N, int K, int tile,
                       char *smem, const Epilogue &epilogue)
{
        constexpr int V = Epilogue::MAXV < 8 ? Epilogue::MAXV : 8, ACROSS = Tile::BN / V;
        const int warp = (int)threadIdx.x / 32, lane = threadIdx.x & 31;
        const int part = PARTS > 1 ? (int)cluster_rank() : 0, n0 = tile / PARTS * Tile::BN;
        const int steps = (K + 63) / 64, kt0 = steps * part / PARTS,
                  kt1 = steps * (part + 1) / PARTS;
        float *const sums = (float *)smem;
        Pipeline<Tile> pipe(smem);
        if (threadIdx.x == 256) {
                for (int s = 0; s < Tile::STAGES; s++) {
                        mbarrier_init(pipe.full(s), 2);
                        mbarrier_init(pipe.empty(s), 8);
                }
                fence_barrier_init();
                fence_proxy_async();
        }
        __syncthreads();
        /* producers: warp 8 loads w, warp 9 x */
        if (warp == 8 && lane == 0) {
                tma_prefetch_map(map_w);
                if (!(PREFETCH & PREFETCH_B))
                        pdl_wait();
                rows_load<Tile, true>(pipe, map_w, n0, kt0, kt1);
        }
        if (warp == 9 && lane == 0) {
                tma_prefetch_map(map_x);
                if (!(PREFETCH & PREFETCH_A))
                        pdl_wait();
                rows_load<Tile, false>(pipe, map_x, 0, kt0, kt1);
        }
        __syncwarp();
        const int total = M * ACROSS;
        int u = part * 256 + (int)threadIdx.x;
        EpilogueReads<Epilogue, V> reads;
        /* consumers: this part's sums, to shared memory */
        if (warp < 8) {
                float d[Tile::ROWS / 2];
                const int group = __shfl_sync(0xffffffffu, warp / 4, 0);
                pdl_wait();
                rows_multiply<T, Tile>(d, pipe, group, kt1 - kt0);
                if (u < total && n0 + u % ACROSS * V < N)
                        reads.get(epilogue, u / ACROSS, n0 + u % ACROSS * V);
                bar_sync(1, 256); /* all stages have been read */
                float *const to = sums + lane % 4 * 2 * Tile::LD + warp * 16 + lane / 4;
#pragma unroll
                for (int j = 0; j < Tile::ROWS / 8; j++)
#pragma unroll
                        for (int e = 0; e < 4; e++)
                                to[(j * 8 + e % 2) * Tile::LD + e / 2 * 8] = d[j * 4 + e];
        }
        if (PARTS > 1) {
                cluster_arrive_block();
                cluster_wait();
        } else {
                __syncthreads();
        }
        /* all parts' sums and the epilogue, shared by the cluster's blocks */
        if (warp < 8) {
                for (bool first = true; u < total; u += PARTS * 256, first = false) {
                        const int row = u / ACROSS, across = u % ACROSS * V;
                        if (n0 + across >= N)
                                continue;
                        float v[V];
                        if (!first)
                                reads.get(epilogue, row, n0 + across);
                        rows_sum<PARTS>(v, sums + row * Tile::LD + across);
                        reads.call(epilogue, row, n0 + across, v);
                }
        }
        if (PARTS > 1)
                cluster_sync(); /* other blocks read this shared memory */
}

#endif
#endif
