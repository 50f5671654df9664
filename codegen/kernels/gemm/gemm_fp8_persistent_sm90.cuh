/* gemm_fp8_persistent_sm90.cuh: gemm_fp8_sm90.cuh's GEMM for many rows of x: warp-specialised,
 * persistent.
 *
 *      fp8_gemm_persistent<S, Tile, N, K, G>(map_x, x, ldx, w, M, down, first, step, smem,
 *              epilogue)
 *              Tiles first, first + step, ... of down * N/BN, in clusters of two.  map_x: a tensor
 *              map of x's rows as 16-bit values (the first K / 2 are the codes), boxes of 64 x 64.
 *              N is a multiple of 2 BN, K of 512.  The rest as in fp8_gemm_task; bitwise the same
 *              sums.
 *
 * Roles and loads: gemm_stream_sm90.cuh.  A consumer has x's tokens in pieces of 64: while the
 * tensor cores have one piece, the previous piece's sums are scaled and added. */
#ifndef TGC_GEMM_FP8_PERSISTENT_SM90_CUH
#define TGC_GEMM_FP8_PERSISTENT_SM90_CUH

#include "gemm_fp8_sm90.cuh"
#include "gemm_stream_sm90.cuh"
#ifdef TGC_SM90A

/* ROWS of x; one scale beside each row of a step. */
template <int ROWS_>
struct Fp8Stream : StreamTile<ROWS_, ROWS_ == 256 ? 3 : 5, 3, 4> {
};

/* The producer warpgroup. */
template <class S, class Tile, int N, int K, int G>
TGC_DEV void fp8_produce(const void *map, const unsigned char *x, long ldx, const unsigned char *w,
                         int M, int down, int first, int step, int tiles, char *smem)
{
        constexpr int W_BYTES = Tile::BN * StoredSlice<S, K>::STRIDE;
        const int rank = (int)cluster_rank();
        float *const scales = (float *)(smem + Tile::SCALES);
        Pipeline<typename Tile::X> of_x(smem + Tile::BARS_X);
        Pipeline<typename Tile::W> of_w(smem + Tile::BARS_W);
        for (int tile = first; tile < tiles; tile += step) {
                const TileAt at = stream_tile<Tile>(tile, down);
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
                        if (threadIdx.x == 0)
                                stream_load_x<Tile>(smem + of_x.stage * Tile::X_BYTES, map, full, i,
                                                    at.m, rank);
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

/* The consumer warpgroups. */
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
                const TileAt at = stream_tile<Tile>(tile, down);
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
                stream_epilogue<Tile>(acc, own, at.m, at.n + warp * 16, M, epilogue);
        }
}

template <class S, class Tile, int N, int K, int G, class Epilogue>
TGC_DEV void fp8_gemm_persistent(const void *map_x, const unsigned char *x, long ldx,
                                 const unsigned char *w, int M, int down, int first, int step,
                                 char *smem, const Epilogue &epilogue)
{
        const int tiles = down * (N / Tile::BN);
        static_assert(S::VALUES == 128 && K % 128 == 0 && (G == 128 || G == K), "a block a step");
        static_assert(N % (2 * Tile::BN) == 0 && K % 512 == 0, "W's rows and slices are whole");
        stream_begin<Tile>(smem, G != K ? 129 : 1);
        if (threadIdx.x < 128) {
                setmaxnreg_dec<Tile::LOADS>();
                fp8_produce<S, Tile, N, K, G>(map_x, x, ldx, w, M, down, first, step, tiles, smem);
        } else {
                setmaxnreg_inc<Tile::MULTIPLIES>();
                pdl_wait();
                fp8_consume<S, Tile, N, K, G>(x, ldx, w, M, down, first, step, tiles, smem,
                                              epilogue);
        }
        stream_end<Tile>(smem);
}

#endif
#endif
