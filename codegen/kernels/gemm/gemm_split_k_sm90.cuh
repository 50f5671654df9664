/* gemm_split_k_sm90.cuh: split-K by N pairs of blocks (S...pN), for GEMMs with fewer tiles than
 * multiprocessors.  Each block finishes some of the tile's columns; the other blocks leave their
 * partial sums for these in L2. */
#ifndef TGC_GEMM_SPLIT_K_SM90_CUH
#define TGC_GEMM_SPLIT_K_SM90_CUH

#include "gemm_consumer_sm90.cuh"
#ifdef TGC_SM90A

/* One part of a tile.  If multiprocessors are fewer than blocks, pairs take parts in the order in
 * which they start: the first gets the first tile's first part, and so on.  (The blocks of a tile
 * wait for each other, and the hardware's start order is arbitrary: with fixed numbers, running
 * blocks could wait for blocks that have no multiprocessor.) */
template <class Tile, class Epilogue>
struct SplitKWork {
        typedef Epilogue End;
        int M, N, K;
        float *ws; /* per tile: each part's columns, as each of the other parts sends them */
        /* pairs that have started; then per tile the blocks that have sent theirs, in all
         * launches */
        int *joined;
        int sms, *pair; /* this pair's number, in shared memory of the cluster's first block */
        const Epilogue &epilogue;

        __device__ __forceinline__ bool in_order() const { return (int)gridDim.x <= sms; }
        /* One thread of that block, before the cluster synchronises.  The last pair to start
         * resets the count. */
        __device__ __forceinline__ void start() const
        {
                pdl_wait();
                *pair = atomicAdd(joined, 1);
                if (*pair == (int)gridDim.x / 2 - 1)
                        *joined = 0;
        }
        __device__ __forceinline__ bool get(int i, Piece &p, int &tile) const
        {
                const int at = in_order() ? (int)blockIdx.x / 2 : ld_cluster(pair, 0),
                          steps = k_steps<Tile>(K);
                tile = at / Tile::PARTS * 2 + (int)cluster_rank();
                const TileAt c = tile_of<Tile>(tile, M, N);
                p.m = c.m, p.n = c.n, p.split = at % Tile::PARTS;
                p.kt0 = steps * p.split / Tile::PARTS, p.kt1 = steps * (p.split + 1) / Tile::PARTS;
                return i == 0;
        }
        __device__ __forceinline__ bool get(int i, Piece &p) const
        {
                int tile;
                return get(i, p, tile);
        }
};

template <class Tile>
struct PartOf : Tile {
        static constexpr int BN = Tile::BN / Tile::PARTS;
};

/* Barrier of the n blocks that call it, with their earlier writes visible after it.  One thread
 * per block; n is a power of two, and the count is a multiple of it before and after. */
TGC_DEV void join_blocks(int *joined, int n)
{
        __threadfence();
        const int end = (atomicAdd(joined, 1) | (n - 1)) + 1;
#ifdef TGC_BOUNDED
        for (const long long from = clock64(); load_acquire(joined) - end < 0;)
                if (clock64() - from > 4000000000LL)
                        __trap();
#else
        while (load_acquire(joined) - end < 0) {}
#endif
}

/* A thread has the same elements in all parts, so what one sends its counterpart receives;
 * accesses coalesce. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, class Work>
TGC_DEV void wgmma_split_k(Pipeline<Tile> pipe, const Work &work)
{
        constexpr int MI = Tile::WM / 64, PARTS = Tile::PARTS, WIDE = Tile::BN / PARTS,
                      J = WIDE / 8;
        constexpr int SPARE = 8, EACH = 256 * 4; /* floats per step of all threads */
        static_assert(Tile::SHARE == 2 && Tile::PAIR && WIDE % 32 == 0 &&
                              (PARTS & (PARTS - 1)) == 0,
                      "parts of columns");
        const int consumer = (int)threadIdx.x / 128 - 1, warp = (int)threadIdx.x / 32 % 4,
                  lane = threadIdx.x & 31;
        const int row0 = consumer * Tile::WM + warp * 16, at = ((int)threadIdx.x - 128) * 4;
        const unsigned long long a0 = panel_desc<!TRANS_A, Tile::BK>(pipe.smem) +
                                      __shfl_sync(0xffffffffu, consumer, 0) * MI *
                                              desc_64<!TRANS_A, Tile::BK>();
        const unsigned long long b0 = panel_desc<TRANS_B, Tile::BK>(pipe.smem + Tile::A_BYTES);
        const WordsOfA<MI> words(row0, lane);
        const Mainloop<T, Tile, TRANS_A, TRANS_B, MI> mainloop = { a0, b0, 0, lane, words };
        float acc[MI][Tile::BN / 8][4], own[MI][J][4], none[MI][4];
        Piece p;
        int tile;
        work.get(0, p, tile);
        mainloop.template steps<false>(pipe, acc, none, 0, p.kt1 - p.kt0, 0);
        wgmma_wait<0>();
#pragma unroll
        for (int m = 0; m < MI; m++)
                wgmma_hold(reinterpret_cast<float(&)[Tile::BN / 2]>(acc[m]));

        /* for part `to`, from part `from` of the others */
        float *const all = work.ws + (long)tile * (PARTS * (PARTS - 1) * MI * J * EACH) + at;
        auto place = [&](int to, int from) {
                return all + (to * (PARTS - 1) + from - (from > to)) * (MI * J * EACH);
        };
#pragma unroll
        for (int q = 0; q < PARTS; q++) {
                float *const to = place(q, p.split);
#pragma unroll
                for (int i = 0; i < MI * J; i++) {
                        float(&x)[4] = acc[i / J][q * J + i % J];
                        if (q != p.split) {
                                *(float4 *)(to + i * EACH) = make_float4(x[0], x[1], x[2], x[3]);
                        } else {
#pragma unroll
                                for (int k = 0; k < 4; k++)
                                        own[i / J][i % J][k] = x[k];
                        }
                }
        }
        const int col0 = p.n + p.split * WIDE;
        Ends<PartOf<Tile>, MI, SPARE, typename Work::End> ends(work.epilogue, pipe.smem, p.m + row0,
                                                               col0, work.M, work.N,
                                                               is_whole<PartOf<Tile>>(work.M,
                                                                                      work.N));
        ends.start();
        bar_sync(1, 256);
        if (threadIdx.x == 128)
                join_blocks(work.joined + 1 + tile, PARTS);
        bar_sync(1, 256);
#pragma unroll
        for (int i = 0; i < MI * J; i++) {
                float sum[4];
#pragma unroll
                for (int q = 0; q < PARTS; q++) {
                        float(&x)[4] = own[i / J][i % J];
                        float4 y = make_float4(x[0], x[1], x[2], x[3]);
                        if (q != p.split)
                                y = __ldcg((const float4 *)(place(p.split, q) + i * EACH));
                        sum[0] = q ? sum[0] + y.x : y.x, sum[1] = q ? sum[1] + y.y : y.y;
                        sum[2] = q ? sum[2] + y.z : y.z, sum[3] = q ? sum[3] + y.w : y.w;
                }
#pragma unroll
                for (int k = 0; k < 4; k++)
                        own[i / J][i % J][k] = sum[k];
        }
        ends.run(own);
}

#endif
#endif
