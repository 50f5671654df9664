/* epilogue_pair_boxes_sm90.cuh: PairBoxes, the panel of PairEpilogue (epilogue_pair_sm90.cuh) whose
 * results TMA stores (Boxed epilogues): a box of 16 rows per store.
 *
 * With PANELS 2 the warp continues in its other panel meanwhile.  The results of each store lie
 * apart, as in memory: rows of 128, 64 or 32 bytes with TMA's swizzle.  This takes less power,
 * which limits large GEMMs. */
#ifndef TGC_EPILOGUE_PAIR_BOXES_SM90_CUH
#define TGC_EPILOGUE_PAIR_BOXES_SM90_CUH

#include "epilogue_pair_tile_sm90.cuh"
#ifdef TGC_SM90A

template <int ROWS, int BN, class Epilogue, int PANELS>
struct PairBoxes : PairTile<ROWS, BN, Epilogue> {
        typedef PairTile<ROWS, BN, Epilogue> Tile;
        using Tile::chunks;
        using Tile::col_of;
        using Tile::epilogue;
        using Tile::lane;
        using Tile::line;
        using Tile::panel;
        using Tile::row_of;
        using Tile::STORES;
        using Tile::WIDE;
        using Tile::WIDE_READ;
        using Tile::width;
        using typename Tile::Words;
        static_assert(EpilogueBoxes<Epilogue>::COLUMNS == 0 ||
                              EpilogueBoxes<Epilogue>::COLUMNS == WIDE,
                      "boxes as sm90_gemm.c has them");
        char *panels;

        __device__ __forceinline__ PairBoxes(const Epilogue &epilogue_, char *panels_, int row0_,
                                             int col0_, int M_, int N_, bool whole_)
            : Tile(epilogue_, panels_, row0_, col0_, M_, N_, whole_), panels(panels_)
        {
        }

        /* Chunk c of store K's results in row r.  128-byte rows: eight differ; 64-byte rows:
         * four. */
        template <int K>
        __device__ __forceinline__ char *chunk(int r, int c) const
        {
                constexpr int ROW = WIDE * (K ? width(STORES - 1) : width(0));
                return panel + (K ? 16 * WIDE * width(0) : 0) + r * ROW +
                       (c ^ r * ROW / 128 % (ROW / 16)) * 16;
        }
        /* Address for ldmatrix and stmatrix: chunks c and c + 1; rows 0 to 7, then 8 to 15 of
         * each. */
        template <int K>
        __device__ __forceinline__ char *matrices(int c) const
        {
                return chunk<K>(lane() % 16, c + lane() / 16);
        }

        /* Waits until TMA has stored what was in step s's panel. */
        __device__ __forceinline__ void take_panel(int s)
        {
                panel = panels + s % PANELS * 2048;
                if (lane() == 0)
                        bulk_wait_read<PANELS - 1>();
                __syncwarp();
        }

        /* A lane's 16 bytes from memory to the panel. */
        __device__ __forceinline__ void put(int p, const uint4 &x) const
        {
                *(uint4 *)chunk<0>(line(p, 0), lane() % chunks(0)) = x;
        }
        /* Where the four values of pair i of fragments j and j + 1 belong. */
        template <int K>
        __device__ __forceinline__ char *four(int i, int j) const
        {
                return chunk<K>(i % 2 * 8 + lane() / 4, 2 * (j + i / 2) + lane() % 4 / 2) +
                       lane() % 2 * 8;
        }
        /* Reads of fragments j and j + 1, rows 0 to 7 and 8 to 15 of each. */
        __device__ __forceinline__ void read_pairs(unsigned (&read)[4][2], int j) const
        {
                if constexpr (WIDE_READ) {
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                                const uint2 x = *(const uint2 *)four<0>(i, j);
                                read[i][0] = x.x, read[i][1] = x.y;
                        }
                } else {
                        unsigned x[4];
                        ldmatrix_x4(x, matrices<0>(j));
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                read[i][0] = x[i];
                }
        }
        /* The one value of each pair; of two lanes the first writes both values of fragment
         * j, the other those of j + 1. */
        template <int K>
        __device__ __forceinline__ void write_ones(const unsigned (&out)[4][STORES][2], int j) const
        {
                const bool second = lane() % 2;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                        const unsigned a = out[h][K][0], b = out[2 + h][K][0];
                        const unsigned other = __shfl_xor_sync(0xffffffffu, second ? a : b, 1);
                        const int f = j + second;
                        *(unsigned *)(chunk<K>(h * 8 + lane() / 4, f / 2) + f % 2 * 8 +
                                      lane() % 4 / 2 * 4) = second ? __byte_perm(other, b, 0x5410)
                                                                   : __byte_perm(a, other, 0x5410);
                }
        }
        /* Results of store K, fragments j and j + 1. */
        template <int K>
        __device__ __forceinline__ void write_pairs(const Words &out, int j) const
        {
                if (width(K) == 2) {
                        stmatrix_x4(matrices<K>(j),
                                    { out[0][K][0], out[1][K][0], out[2][K][0], out[3][K][0] });
                } else if (width(K) == 1) {
                        write_ones<K>(out, j);
                } else {
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                *(uint2 *)four<K>(i, j) = make_uint2(out[i][K][0], out[i][K][1]);
                }
        }

        template <int K>
        __device__ __forceinline__ void send_store(int s) const
        {
                tma_store_2d(epilogue.box[K], chunk<K>(0, 0), col_of(s) * width(K) / 2, row_of(s));
        }
        /* The results of step s, from the panel to memory. */
        __device__ __forceinline__ void send(int s) const
        {
                fence_proxy_async();
                __syncwarp();
                if (lane() == 0) {
                        send_store<0>(s);
                        if constexpr (STORES > 1)
                                send_store<1>(s);
                        bulk_commit();
                }
        }
};

#endif
#endif
