/* epilogue_pair_lines_sm90.cuh: PairLines, the panel of PairEpilogue (epilogue_pair_sm90.cuh) whose
 * results the warp stores.
 *
 * A lane stores eight neighbours; four or eight lanes store a line.  A panel is 16 rows of 128
 * bytes.  A row holds the results side by side, the first one where the reads were.  16-byte chunk
 * c is at c ^ (row % 8), against bank conflicts.  The words of a chunk depend on how many values
 * the store has per two columns (WIDTHk in epilogue_protocol.cuh):
 *
 *      2 values        as in memory
 *      1               two fragments in one chunk: a word is the two values of columns 8 apart
 *      4               a fragment in two chunks: first words of all lanes, then second words
 *
 * The lane that stores a chunk puts its words in order. */
#ifndef TGC_EPILOGUE_PAIR_LINES_SM90_CUH
#define TGC_EPILOGUE_PAIR_LINES_SM90_CUH

#include "epilogue_pair_tile_sm90.cuh"
#ifdef TGC_SM90A

/* PlaceOut only takes the address of store K0. */
template <int K0>
struct PlaceOut {
        void *&to;
        template <int K, int W, class T>
        __device__ __forceinline__ void put(T *p, const float (&)[W]) const
        {
                if (K == K0)
                        to = p;
        }
        template <class Epilogue>
        __device__ __forceinline__ float of_row(const Epilogue &, int) const
        {
                return 0.f;
        }
        template <int W>
        __device__ __forceinline__ void sum(const float (&)[W]) const
        {
        }
};

template <int ROWS, int BN, class Epilogue>
struct PairLines : PairTile<ROWS, BN, Epilogue> {
        typedef PairTile<ROWS, BN, Epilogue> Tile;
        using Tile::chunks;
        using Tile::col;
        using Tile::epilogue;
        using Tile::inside;
        using Tile::lane;
        using Tile::line;
        using Tile::panel;
        using Tile::row;
        using Tile::STORES;
        using Tile::Tile;
        using Tile::WIDE_READ;
        using Tile::width;
        using typename Tile::Words;

        static __device__ __forceinline__ constexpr int first(int k) { return k ? chunks(0) : 0; }
        /* Chunk c of store K's results in row r. */
        template <int K>
        __device__ __forceinline__ char *chunk(int r, int c) const
        {
                return panel + r * 128 + (first(K) + c ^ r % 8) * 16;
        }
        /* Address for ldmatrix and stmatrix: chunks c and c + 1; rows 0 to 7, then 8 to 15 of
         * each. */
        template <int K>
        __device__ __forceinline__ char *matrices(int c) const
        {
                return chunk<K>(lane() % 16, c + lane() / 16);
        }

        /* The panel of step s is free. */
        __device__ __forceinline__ void take_panel(int) {}

        /* A lane's 16 bytes from memory to the panel, and back. */
        __device__ __forceinline__ void put(int p, const uint4 &x) const
        {
                const int r = line(p, 0), c = lane() % chunks(0);
                if (width(0) == 4) {
                        *(uint2 *)(chunk<0>(r, c & ~1) + c % 2 * 8) = make_uint2(x.x, x.z);
                        *(uint2 *)(chunk<0>(r, c | 1) + c % 2 * 8) = make_uint2(x.y, x.w);
                } else {
                        *(uint4 *)chunk<0>(r, c) = x;
                }
        }
        template <int K>
        __device__ __forceinline__ uint4 take(int p) const
        {
                const int r = line(p, K), c = lane() % chunks(K);
                if (width(K) == 4) {
                        const uint2 a = *(const uint2 *)(chunk<K>(r, c & ~1) + c % 2 * 8),
                                    b = *(const uint2 *)(chunk<K>(r, c | 1) + c % 2 * 8);
                        return make_uint4(a.x, b.x, a.y, b.y);
                }
                const uint4 x = *(const uint4 *)chunk<K>(r, c);
                if (width(K) == 2)
                        return x;
                return make_uint4(__byte_perm(x.x, x.y, 0x5410), __byte_perm(x.z, x.w, 0x5410),
                                  __byte_perm(x.x, x.y, 0x7632), __byte_perm(x.z, x.w, 0x7632));
        }

        /* Reads of fragments j and j + 1, rows 0 to 7 and 8 to 15 of each. */
        __device__ __forceinline__ void read_pairs(unsigned (&read)[4][2], int j) const
        {
#pragma unroll
                for (int f = 0; f < 1 + WIDE_READ; f++) {
                        unsigned x[4];
                        ldmatrix_x4(x, matrices<0>(WIDE_READ ? 2 * (j + f) : j));
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                read[WIDE_READ ? 2 * f + i % 2 : i][WIDE_READ ? i / 2 : 0] = x[i];
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
                        stmatrix_x2(chunk<K>(lane() % 16, j / 2),
                                    { __byte_perm(out[0][K][0], out[2][K][0], 0x5410),
                                      __byte_perm(out[1][K][0], out[3][K][0], 0x5410) });
                } else {
#pragma unroll
                        for (int f = 0; f < 2; f++)
                                stmatrix_x4(matrices<K>(2 * (j + f)),
                                            { out[2 * f][K][0], out[2 * f + 1][K][0],
                                              out[2 * f][K][1], out[2 * f + 1][K][1] });
                }
        }

        /* Where store K puts the results of eight columns. */
        template <int K>
        __device__ __forceinline__ void *place(int r, int c) const
        {
                void *to = 0;
                float none[8];
                EpilogueReads<Epilogue, 8> nothing;
                nothing.call(epilogue, r, c, none, PlaceOut<K> { to });
                return to;
        }
        template <int K>
        __device__ __forceinline__ void store_lines(int s)
        {
#pragma unroll
                for (int p = 0; p < chunks(K) / 2; p++) {
                        const int r = row(s, p, K), c = col(s, K);
                        if (!inside(r, c))
                                continue;
                        const uint4 x = take<K>(p);
                        if (width(K) == 1) { /* 8 bytes for eight columns, 8-byte aligned */
                                *(uint2 *)place<K>(r, c) = make_uint2(x.x, x.y);
                                if (inside(r, c + 8))
                                        *(uint2 *)place<K>(r, c + 8) = make_uint2(x.z, x.w);
                        } else {
                                *(uint4 *)place<K>(r, c) = x;
                        }
                }
        }
        /* The results of step s, from the panel to memory. */
        __device__ __forceinline__ void send(int s)
        {
                __syncwarp();
                store_lines<0>(s);
                if constexpr (STORES > 1)
                        store_lines<1>(s);
                __syncwarp();
        }
};

#endif
#endif
