/* gemm_fp8_persistent_sm90.cuh: gemm_fp8_sm90.cuh's product for many rows of x: warp-specialised,
 * in blocks that stay.
 *
 *      fp8_gemm_persistent<S, Tile, N, K, G>(map_x, x, ldx, w, M, down, first, step, smem,
 *              epilogue)
 *              Tiles first, first + step, ... of down * N/BN, in a cluster of two.  map_x: a tensor
 *              map of x's rows as 16-bit values, of which the first K / 2 are the codes, in boxes
 *              of 64 x 64.  N is a multiple of 2 BN, K of 512.  The rest as fp8_gemm_task, whose
 *              sums these are, in the same order.
 *
 * Warpgroup 0 loads, into the next tile too: slices of 256 of K of W, and steps of 128 of K of x
 * with their scales.  Each other warpgroup has 64 rows of W, and x's tokens in pieces of 64: while
 * the tensor cores have one piece, the last one's sums are scaled and added.
 *
 * L2's traffic is the limit.  So the two blocks of a cluster have the same tokens, and each brings
 * half of them to both.  A slice of W begins at no multiple of 16 bytes, so no tensor map has it;
 * and 128 threads copy it in time only where that takes few instructions (stored_copy of rows that
 * begin alike; with 24 for 16 bytes, or a bulk copy for each row, steps took twice as long).
 *
 * A warp's sums, W's rows down, go to the epilogue through a panel of its own, 16 tokens at a time:
 * a token's 16 values of the warp are neighbours in a row of y. */
#ifndef TGC_GEMM_FP8_PERSISTENT_SM90_CUH
#define TGC_GEMM_FP8_PERSISTENT_SM90_CUH

#include "gemm_fp8_sm90.cuh"
#include "pipeline_sm90.cuh"
#ifdef TGC_SM90A

/* ROWS of x (128, 256) by 64 of W for each of two consumers. */
template <int ROWS_>
struct Fp8Stream {
        static constexpr int BM = ROWS_, BN = 128, THREADS = 384, MINB = 1;
        static constexpr int PIECE = 64, PIECES = BM / PIECE;
        static constexpr int X_BYTES = BM * 128, PIECE_BYTES = PIECE * 128;
        static constexpr int TOKENS = 16, LDT = 20, PANEL_BYTES = TOKENS * LDT * 4;
        /* 168 registers at entry */
        static constexpr int LOADS = 40, MULTIPLIES = (168 * 3 - LOADS) / 2;
        struct X {
                static constexpr int STAGES = ROWS_ == 256 ? 3 : 5, STAGE = 0, A_BYTES = 0;
                static constexpr bool PAIR = true;
        };
        struct W {
                static constexpr int STAGES = 3, STAGE = 0, A_BYTES = 0;
                static constexpr bool PAIR = false;
        };
        struct Copies { /* what stored_copy asks of a tile */
                static constexpr int BN = 128, THREADS = 128;
        };
        /* Offsets: x's panels from 0, then these. */
        static constexpr int BARS_X = X::STAGES * X_BYTES, BARS_W = BARS_X + 16 * X::STAGES,
                             SCALES = BARS_W + 16 * W::STAGES, PANELS = SCALES + X::STAGES * BM * 4,
                             BLOCKS = PANELS + 8 * PANEL_BYTES;

        template <class S, int K>
        static __host__ __device__ constexpr int smem()
        {
                return BLOCKS + W::STAGES * BN * StoredSlice<S, K>::STRIDE;
        }
};

/* A block's tiles: the two of a cluster have the same tokens and neighbouring rows of W. */
template <class Tile>
TGC_DEV TileAt fp8_tile(int tile, int down)
{
        return { tile / 2 % down * Tile::BM, (tile / 2 / down * 2 + tile % 2) * Tile::BN };
}

/* Warpgroup 0's part. */
template <class S, class Tile, int N, int K, int G>
TGC_DEV void fp8_produce(const void *map, const unsigned char *x, long ldx, const unsigned char *w,
                         int M, int down, int first, int step, int tiles, char *smem)
{
        constexpr int HALF = Tile::BM / 2, W_BYTES = Tile::BN * StoredSlice<S, K>::STRIDE;
        const int rank = (int)cluster_rank();
        float *const scales = (float *)(smem + Tile::SCALES);
        Pipeline<typename Tile::X> of_x(smem + Tile::BARS_X);
        Pipeline<typename Tile::W> of_w(smem + Tile::BARS_W);
        for (int tile = first; tile < tiles; tile += step) {
                const TileAt at = fp8_tile<Tile>(tile, down);
#pragma unroll 1
                for (int i = 0; i < K / 128; i++, of_x.next()) {
                        if (i % 2 == 0) {
                                of_w.wait_empty();
                                stored_copy<S, typename Tile::Copies, N, K>(
                                        smem + Tile::BLOCKS + of_w.stage * W_BYTES, w, at.n, i / 2);
                                cp_async_arrive(of_w.full(of_w.stage));
                                of_w.next();
                                if (i == 0 && tile == first)
                                        pdl_wait();
                        }
                        Mbar *const full = of_x.full(of_x.stage);
                        of_x.wait_empty();
                        if (threadIdx.x == 0) {
                                char *const to = smem + of_x.stage * Tile::X_BYTES;
                                mbarrier_expect_tx(full, Tile::X_BYTES);
#pragma unroll
                                for (int r = 0; r < HALF; r += 64)
                                        tma_load_2d_multicast(to + (rank * HALF + r) * 128, map,
                                                              full, i * 64, at.m + rank * HALF + r,
                                                              3);
                        }
                        if constexpr (G != K) {
                                fp8_copy_scales<Tile::BM, 128>(scales + of_x.stage * Tile::BM, x,
                                                               ldx, at.m, M, K + 4 * i);
                                cp_async_arrive(full);
                        }
                }
        }
        cp_async_commit();
        cp_async_wait<0>();
}

/* A warp's sums of a tile to the epilogue, from column n on. */
template <class Tile, class Epilogue>
TGC_DEV void fp8_epilogue(const float (&acc)[Tile::PIECES][Tile::PIECE / 2], float *panel, int m,
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

/* The others'. */
template <class S, class Tile, int N, int K, int G, class Epilogue>
TGC_DEV void fp8_consume(const unsigned char *x, long ldx, const unsigned char *w, int M, int down,
                         int first, int step, int tiles, char *smem, const Epilogue &epilogue)
{
        constexpr int STEPS = K / 128, W_BYTES = Tile::BN * StoredSlice<S, K>::STRIDE,
                      PIECES = Tile::PIECES, R = Tile::PIECE / 2;
        const float *const scales = (const float *)(smem + Tile::SCALES);
        const unsigned long long panels = panel_desc<true, 64>(smem, 0);
        Pipeline<typename Tile::X> of_x(smem + Tile::BARS_X);
        Pipeline<typename Tile::W> of_w(smem + Tile::BARS_W);
        const int warp = (int)threadIdx.x / 32 - 4, lane = threadIdx.x & 31,
                  row = warp * 16 + lane / 4;
        float *const own = (float *)(smem + Tile::PANELS + warp * Tile::PANEL_BYTES);
        for (int tile = first; tile < tiles; tile += step) {
                const TileAt at = fp8_tile<Tile>(tile, down);
                float acc[PIECES][R], part[2][R];
                Fp8Rows<S> mine;
#pragma unroll
                for (int p = 0; p < PIECES; p++)
#pragma unroll
                        for (int i = 0; i < R; i++)
                                acc[p][i] = 0.f;
#pragma unroll 1
                for (int i = 0; i < STEPS; i++) {
                        const unsigned char *rows[2];
                        const float *const token = scales + of_x.stage * Tile::BM;
                        const unsigned long long panel = panels +
                                                         (unsigned long long)(of_x.stage *
                                                                              (Tile::X_BYTES / 16));
                        if (i % 2 == 0)
                                of_w.wait_full();
                        fp8_rows<S, N, K>(rows, smem + Tile::BLOCKS + of_w.stage * W_BYTES, w, row,
                                          at.n, i / 2);
                        mine.load(i % 2, rows);
                        if (i % 2) {
                                __syncwarp();
                                of_w.leave(of_w.stage, lane);
                                of_w.next();
                        }
                        of_x.wait_full();
                        const auto add = [&](int p) {
                                wgmma_hold(part[p % 2]);
                                fp8_add<G != K>(acc[p], part[p % 2], mine.scale,
                                                token + p * Tile::PIECE);
                        };
#pragma unroll
                        for (int p = 0; p < PIECES; p++) {
                                mine.multiply(part[p % 2],
                                              panel + (unsigned long long)(p * (Tile::PIECE_BYTES /
                                                                                16)));
                                if (p) {
                                        wgmma_wait<1>();
                                        add(p - 1);
                                }
                        }
                        wgmma_wait<0>();
                        add(PIECES - 1);
                        __syncwarp();
                        of_x.leave(of_x.stage, lane);
                        of_x.next();
                }
                if constexpr (G == K)
                        fp8_scale_tokens(acc, x, ldx, at.m, M, K);
                fp8_epilogue<Tile>(acc, own, at.m, at.n + warp * 16, M, epilogue);
        }
}

template <class S, class Tile, int N, int K, int G, class Epilogue>
TGC_DEV void fp8_gemm_persistent(const void *map_x, const unsigned char *x, long ldx,
                                 const unsigned char *w, int M, int down, int first, int step,
                                 char *smem, const Epilogue &epilogue)
{
        const int tiles = down * (N / Tile::BN);
        const Pipeline<typename Tile::X> of_x(smem + Tile::BARS_X);
        const Pipeline<typename Tile::W> of_w(smem + Tile::BARS_W);
        static_assert(S::VALUES == 128 && K % 128 == 0 && (G == 128 || G == K), "a block a step");
        static_assert(N % (2 * Tile::BN) == 0 && K % 512 == 0, "W's rows and slices are whole");
        if (threadIdx.x == 0) {
                for (int s = 0; s < Tile::X::STAGES; s++) {
                        mbarrier_init(of_x.full(s), G != K ? 129 : 1);
                        mbarrier_init(of_x.empty(s), 16); /* of both blocks */
                }
                for (int s = 0; s < Tile::W::STAGES; s++) {
                        mbarrier_init(of_w.full(s), 128);
                        mbarrier_init(of_w.empty(s), 8);
                }
                fence_barrier_init();
                fence_proxy_async();
        }
        __syncthreads();
        cluster_sync(); /* the other block's barriers are there */
        if (threadIdx.x < 128) {
                setmaxnreg_dec<Tile::LOADS>();
                fp8_produce<S, Tile, N, K, G>(map_x, x, ldx, w, M, down, first, step, tiles, smem);
        } else {
                setmaxnreg_inc<Tile::MULTIPLIES>();
                pdl_wait();
                fp8_consume<S, Tile, N, K, G>(x, ldx, w, M, down, first, step, tiles, smem,
                                              epilogue);
        }
        cluster_sync(); /* and are no longer needed */
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
