/* gemm_stored_persistent_sm90.cuh: gemm_stored_sm90.cuh's GEMM for many rows of x:
 * warp-specialised, persistent.
 *
 *      stored_gemm_persistent<T, S, Tile, N, K, SPLITS>(map_x, w, M, down, ws, joined, first, step,
 *              smem, epilogue)
 *              Parts first, first + step, ... of down * N/BN tiles times SPLITS, in clusters of
 *              two.  map_x: a tensor map of x (M,K), boxes of 64 x 64.  N is a multiple of 2 BN, K
 *              of 256.  With split-K, ws has BM * BN floats per part and joined 8 ints per tile: 0
 *              before the first launch, and after each.
 *
 * Roles and loads: gemm_stream_sm90.cuh.  A consumer decodes 64 of K of its 64 rows of W into
 * registers while the tensor cores have the previous 64.  W is decoded once per tile, never
 * stored.  The last split of a warp to finish adds them in order. */
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

/* stored_copy in fewer registers, for rows of equal alignment. */
template <class S, class Tile, int N, int K>
TGC_DEV void stored_stream_copy(char *to, const unsigned char *w, int n0, int kt)
{
        typedef StoredSlice<S, K> Slice;
        if constexpr (Slice::ROW % 16 == 0)
                stored_copy_pieces<S, typename Tile::Copies, N, K, 0, Slice::PIECES>(to, w, n0, kt);
        else
                stored_copy<S, typename Tile::Copies, N, K>(to, w, n0, kt);
}

/* Part `tile`: the tile at `place` over slices [kt0, kt1), the same slices for both blocks of a
 * cluster. */
struct StreamPart {
        TileAt at;
        int place, split, kt0, kt1;
};
template <class Tile, int K, int SPLITS>
TGC_DEV StreamPart stored_stream_part(int tile, int down)
{
        constexpr int STEPS = K / 256;
        const int split = tile / 2 % SPLITS, place = tile / 2 / SPLITS * 2 + tile % 2;
        return { stream_tile<Tile>(place, down), place, split, STEPS * split / SPLITS,
                 STEPS * (split + 1) / SPLITS };
}

/* The producer warpgroup. */
template <class S, class Tile, int N, int K, int SPLITS>
TGC_DEV void stored_produce(const void *map, const unsigned char *w, int down, int first, int step,
                            int tiles, char *smem)
{
        constexpr int W_BYTES = Tile::BN * StoredSlice<S, K>::STRIDE;
        const int rank = (int)cluster_rank();
        Pipeline<typename Tile::X> of_x(smem + Tile::BARS_X);
        Pipeline<typename Tile::W> of_w(smem + Tile::BARS_W);
        for (int tile = first; tile < tiles; tile += step) {
                const StreamPart part = stored_stream_part<Tile, K, SPLITS>(tile, down);
#pragma unroll 1
                for (int kt = part.kt0; kt < part.kt1; kt++) {
                        of_w.wait_empty();
                        stored_stream_copy<S, Tile, N, K>(smem + Tile::BLOCKS +
                                                                  of_w.stage * W_BYTES,
                                                          w, part.at.n, kt);
                        cp_async_arrive(of_w.full(of_w.stage));
                        of_w.next();
                        if (kt == part.kt0 && tile == first)
                                pdl_wait();
#pragma unroll 1
                        for (int s = 0; s < 4; s++, of_x.next()) {
                                of_x.wait_empty();
                                if (threadIdx.x == 0)
                                        stream_load_x<Tile>(smem + of_x.stage * Tile::X_BYTES, map,
                                                            of_x.full(of_x.stage), kt * 4 + s,
                                                            part.at.m, rank);
                        }
                }
        }
        cp_async_commit();
        cp_async_wait<0>();
}

/* Stores a warp's sums of one split to ws.  True in the last split to finish: their sum is then
 * back. */
template <class Tile, int SPLITS>
TGC_DEV bool stored_stream_join(float (&acc)[Tile::PIECES][Tile::PIECE / 2], const StreamPart &part,
                                float *ws, int *joined, int warp, int lane)
{
        constexpr int QUADS = Tile::PIECE / 8, EACH = 32 * Tile::BM / 2; /* floats per warp */
        float *const all = ws + ((long)part.place * 8 + warp) * SPLITS * EACH;
        int last = 0;
#pragma unroll
        for (int p = 0; p < Tile::PIECES; p++)
#pragma unroll
                for (int i = 0; i < QUADS; i++)
                        *(float4 *)(all + part.split * EACH + ((p * QUADS + i) * 32 + lane) * 4) =
                                make_float4(acc[p][4 * i], acc[p][4 * i + 1], acc[p][4 * i + 2],
                                            acc[p][4 * i + 3]);
        __threadfence();
        __syncwarp();
        if (lane == 0) {
                int *const n = joined + part.place * 8 + warp;
                last = atomicAdd(n, 1) == SPLITS - 1;
                if (last)
                        *n = 0;
                __threadfence();
        }
        last = __shfl_sync(~0u, last, 0);
        __syncwarp(); /* all lanes see what lane 0 has seen */
        if (!last)
                return false;
#pragma unroll
        for (int p = 0; p < Tile::PIECES; p++)
#pragma unroll
                for (int i = 0; i < QUADS; i++) {
                        const float *from = all + ((p * QUADS + i) * 32 + lane) * 4;
                        float4 sum = __ldcg((const float4 *)from);
#pragma unroll
                        for (int k = 1; k < SPLITS; k++) {
                                const float4 v = __ldcg((const float4 *)(from + k * EACH));
                                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
                        }
                        acc[p][4 * i] = sum.x, acc[p][4 * i + 1] = sum.y;
                        acc[p][4 * i + 2] = sum.z, acc[p][4 * i + 3] = sum.w;
                }
        return true;
}

/* The consumer warpgroups. */
template <class T, class S, class Tile, int N, int K, int SPLITS, class Epilogue>
TGC_DEV void stored_consume(const unsigned char *w, int M, int down, float *ws, int *joined,
                            int first, int step, int tiles, char *smem, const Epilogue &epilogue)
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
                const StreamPart part = stored_stream_part<Tile, K, SPLITS>(tile, down);
                float acc[Tile::PIECES][Tile::PIECE / 2];
                float(&d)[Tile::BM / 2] = reinterpret_cast<float(&)[Tile::BM / 2]>(acc);
                unsigned a[2][4][4];
#pragma unroll 1
                for (int kt = part.kt0; kt < part.kt1; kt++) {
                        const unsigned char *rows[2];
                        typename C::Head head[2];
                        typename C::Raw raw[2];
                        of_w.wait_full();
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                                const int r = row + 8 * h;
                                rows[h] = (const unsigned char *)smem + Tile::BLOCKS +
                                          of_w.stage * W_BYTES + r * Slice::STRIDE +
                                          Slice::shift(w, (part.at.n + r) * (int)Slice::ROW +
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
                                                 s > 0 || ks > 0 || kt > part.kt0, T());
                                wgmma_commit();
                                wgmma_wait<1>();
                                if (s > 0 || kt > part.kt0)
                                        of_x.leave(of_x.before(1), lane);
                                of_x.next();
                        }
                }
                wgmma_wait<0>();
                wgmma_hold(d);
                of_x.leave(of_x.before(1), lane);
                bool all = true;
                if constexpr (SPLITS > 1)
                        all = stored_stream_join<Tile, SPLITS>(acc, part, ws, joined, warp, lane);
                if (all)
                        stream_epilogue<Tile>(acc, own, part.at.m, part.at.n + warp * 16, M,
                                              epilogue);
        }
}

template <class T, class S, class Tile, int N, int K, int SPLITS, class Epilogue>
TGC_DEV void stored_gemm_persistent(const void *map_x, const unsigned char *w, int M, int down,
                                    float *ws, int *joined, int first, int step, char *smem,
                                    const Epilogue &epilogue)
{
        const int tiles = down * (N / Tile::BN) * SPLITS;
        static_assert(N % (2 * Tile::BN) == 0 && K % 256 == 0, "W's rows and slices are whole");
        stream_begin<Tile>(smem, 1);
        if (threadIdx.x < 128) {
                setmaxnreg_dec<Tile::LOADS>();
                stored_produce<S, Tile, N, K, SPLITS>(map_x, w, down, first, step, tiles, smem);
        } else {
                setmaxnreg_inc<Tile::MULTIPLIES>();
                pdl_wait();
                stored_consume<T, S, Tile, N, K, SPLITS>(w, M, down, ws, joined, first, step, tiles,
                                                         smem, epilogue);
        }
        stream_end<Tile>(smem);
}

#endif
#endif
