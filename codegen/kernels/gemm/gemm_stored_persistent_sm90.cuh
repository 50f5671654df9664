/* gemm_stored_persistent_sm90.cuh: gemm_stored_sm90.cuh's product for many rows of x:
 * warp-specialised, in blocks that stay.
 *
 *      stored_gemm_persistent<T, S, Tile, N, K>(map_x, w, M, down, first, step, smem, epilogue)
 *              Tiles first, first + step, ... of down * N/BN, in a cluster of two.  map_x: a tensor
 *              map of x (M,K), in boxes of 64 x 64.  N is a multiple of 2 BN, K of 256.
 *
 * Warpgroups and loads are those of gemm_stream_sm90.cuh.  A consumer decodes 64 of K of its 64
 * rows of W into registers while the tensor cores have the 64 before: W is read in blocks and
 * decoded once for each tile, and nothing decoded is ever stored. */
#ifndef TGC_GEMM_STORED_PERSISTENT_SM90_CUH
#define TGC_GEMM_STORED_PERSISTENT_SM90_CUH

#include "gemm_stored_sm90.cuh"
#include "gemm_stream_sm90.cuh"
#ifdef TGC_SM90A

/* ROWS of x; W_STAGES slices of W. */
template <int ROWS_, int W_STAGES, StoredHow HOW_ = STORED_BF16>
struct StoredStream : StreamTile<ROWS_, ROWS_ == 256 ? 4 : 6, W_STAGES, 0> {
        static constexpr StoredHow HOW = HOW_;
};

/* stored_copy in few registers: rows that begin at multiples of 16 alike. */
template <class S, class Tile, int N, int K>
TGC_DEV void stored_stream_copy(char *to, const unsigned char *w, int n0, int kt)
{
        typedef StoredSlice<S, K> Slice;
        if constexpr (Slice::ROW % 16 == 0)
                stored_copy_pieces<S, typename Tile::Copies, N, K, 0, Slice::PIECES>(to, w, n0, kt);
        else
                stored_copy<S, typename Tile::Copies, N, K>(to, w, n0, kt);
}

/* Warpgroup 0's part. */
template <class S, class Tile, int N, int K>
TGC_DEV void stored_produce(const void *map, const unsigned char *w, int down, int first, int step,
                            int tiles, char *smem)
{
        constexpr int W_BYTES = Tile::BN * StoredSlice<S, K>::STRIDE;
        const int rank = (int)cluster_rank();
        Pipeline<typename Tile::X> of_x(smem + Tile::BARS_X);
        Pipeline<typename Tile::W> of_w(smem + Tile::BARS_W);
        for (int tile = first; tile < tiles; tile += step) {
                const TileAt at = stream_tile<Tile>(tile, down);
#pragma unroll 1
                for (int kt = 0; kt < K / 256; kt++) {
                        of_w.wait_empty();
                        stored_stream_copy<S, Tile, N, K>(smem + Tile::BLOCKS +
                                                                  of_w.stage * W_BYTES,
                                                          w, at.n, kt);
                        cp_async_arrive(of_w.full(of_w.stage));
                        of_w.next();
                        if (kt == 0 && tile == first)
                                pdl_wait();
#pragma unroll 1
                        for (int s = 0; s < 4; s++, of_x.next()) {
                                of_x.wait_empty();
                                if (threadIdx.x == 0)
                                        stream_load_x<Tile>(smem + of_x.stage * Tile::X_BYTES, map,
                                                            of_x.full(of_x.stage), kt * 4 + s, at.m,
                                                            rank);
                        }
                }
        }
        cp_async_commit();
        cp_async_wait<0>();
}

/* The others'. */
template <class T, class S, class Tile, int N, int K, class Epilogue>
TGC_DEV void stored_consume(const unsigned char *w, int M, int down, int first, int step, int tiles,
                            char *smem, const Epilogue &epilogue)
{
        typedef StoredSlice<S, K> Slice;
        typedef typename CodesOf<S>::Type C;
        constexpr int W_BYTES = Tile::BN * Slice::STRIDE;
        const unsigned long long panels = panel_desc<true, 64>(smem, 0);
        Pipeline<typename Tile::X> of_x(smem + Tile::BARS_X);
        Pipeline<typename Tile::W> of_w(smem + Tile::BARS_W);
        const int warp = (int)threadIdx.x / 32 - 4, lane = threadIdx.x & 31,
                  row = warp * 16 + lane / 4;
        float *const own = (float *)(smem + Tile::PANELS + warp * Tile::PANEL_BYTES);
        for (int tile = first; tile < tiles; tile += step) {
                const TileAt at = stream_tile<Tile>(tile, down);
                float acc[Tile::PIECES][Tile::PIECE / 2];
                float(&d)[Tile::BM / 2] = reinterpret_cast<float(&)[Tile::BM / 2]>(acc);
                unsigned a[2][4][4];
#pragma unroll 1
                for (int kt = 0; kt < K / 256; kt++) {
                        const unsigned char *rows[2];
                        typename C::Head head[2];
                        typename C::Raw raw[2];
                        of_w.wait_full();
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                                const int r = row + 8 * h;
                                rows[h] = (const unsigned char *)smem + Tile::BLOCKS +
                                          of_w.stage * W_BYTES + r * Slice::STRIDE +
                                          Slice::shift(w, (at.n + r) * (int)Slice::ROW +
                                                                  kt * Slice::BYTES);
                                head[h] = C::head(rows[h]);
                        }
#pragma unroll
                        for (int s = 0; s < 4; s++) {
                                stored_fragments<T, C, true, Tile::HOW>(a[s & 1], head, raw, rows,
                                                                        2 * s, 256);
                                if (s == 3) {
                                        __syncwarp();
                                        of_w.leave(of_w.stage, lane);
                                        of_w.next();
                                }
                                of_x.wait_full();
                                const unsigned long long panel =
                                        panels +
                                        (unsigned long long)(of_x.stage * (Tile::X_BYTES / 16));
                                wgmma_fence();
#pragma unroll
                                for (int ks = 0; ks < 4; ks++)
                                        wgmma<0>(d, a[s & 1][ks], panel + ks * 2,
                                                 s > 0 || ks > 0 || kt > 0, T());
                                wgmma_commit();
                                wgmma_wait<1>();
                                if (s > 0 || kt > 0)
                                        of_x.leave(of_x.before(1), lane);
                                of_x.next();
                        }
                }
                wgmma_wait<0>();
                wgmma_hold(d);
                of_x.leave(of_x.before(1), lane);
                stream_epilogue<Tile>(acc, own, at.m, at.n + warp * 16, M, epilogue);
        }
}

template <class T, class S, class Tile, int N, int K, class Epilogue>
TGC_DEV void stored_gemm_persistent(const void *map_x, const unsigned char *w, int M, int down,
                                    int first, int step, char *smem, const Epilogue &epilogue)
{
        const int tiles = down * (N / Tile::BN);
        static_assert(N % (2 * Tile::BN) == 0 && K % 256 == 0, "W's rows and slices are whole");
        stream_begin<Tile>(smem, 1);
        if (threadIdx.x < 128) {
                setmaxnreg_dec<Tile::LOADS>();
                stored_produce<S, Tile, N, K>(map_x, w, down, first, step, tiles, smem);
        } else {
                setmaxnreg_inc<Tile::MULTIPLIES>();
                pdl_wait();
                stored_consume<T, S, Tile, N, K>(w, M, down, first, step, tiles, smem, epilogue);
        }
        stream_end<Tile>(smem);
}

#endif
#endif
