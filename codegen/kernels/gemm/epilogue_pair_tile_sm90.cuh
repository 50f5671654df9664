/* epilogue_pair_tile_sm90.cuh: PairTile, what the three modes of PairEpilogue
 * (epilogue_pair_sm90.cuh) share: steps, panels and their positions in C.
 *
 * A step is 16 rows x WIDE columns of C, FRAGMENTS of the accumulator, and a panel in shared
 * memory.  A warp has ROWS x BN / WIDE steps, rows first.  A store has a line of 16 bytes per lane
 * and chunk pair: line p of a lane is row line(p, k) of the panel. */
#ifndef TGC_EPILOGUE_PAIR_TILE_SM90_CUH
#define TGC_EPILOGUE_PAIR_TILE_SM90_CUH

#include "epilogue_tma_sm90.cuh"
#include "epilogue_sm90.cuh"
#ifdef TGC_SM90A

template <int ROWS, int BN, class Epilogue>
struct PairTile {
        static constexpr int STORES = EpilogueStores<Epilogue>::N;
        static __device__ __forceinline__ constexpr int width(int k)
        {
                return EpilogueStores<Epilogue>::width(k);
        }
        /* bytes of a fragment's row */
        static constexpr int WORDS = 8 * (width(0) + (STORES > 1 ? width(STORES - 1) : 0));
        static constexpr int FRAGMENTS = WORDS <= 16 && BN % 64 == 0 ? 8
                                         : WORDS <= 32               ? 4
                                                                     : 2,
                             WIDE = 8 * FRAGMENTS;
        /* Chunks of store k in a row of the panel. */
        static __device__ __forceinline__ constexpr int chunks(int k)
        {
                return FRAGMENTS * width(k) / 2;
        }
        /* a warp's steps; first store's lines per lane, of a step and of all */
        static constexpr int STEPS = ROWS * (BN / WIDE), EACH = chunks(0) / 2, COUNT = EACH * STEPS;

        /* 16 bytes of what the epilogue reads of rows. */
        typedef EpilogueReads<Epilogue, 16 / EpilogueStores<Epilogue>::READ> Lines;
        static constexpr bool WIDE_READ = EpilogueStores<Epilogue>::READ == 4;
        /* A lane's results of fragments j and j + 1, by store: of j rows 0 to 7 and 8 to 15, then
         * of j + 1. */
        typedef unsigned Words[4][STORES][2];

        const Epilogue &epilogue;
        char *panel; /* of the current step */
        int row0, col0, M, N;
        bool whole;

        __device__ __forceinline__ PairTile(const Epilogue &epilogue_, char *panel_, int row0_,
                                            int col0_, int M_, int N_, bool whole_)
            : epilogue(epilogue_), panel(panel_), row0(row0_), col0(col0_), M(M_), N(N_),
              whole(whole_)
        {
        }

        static __device__ __forceinline__ int lane() { return threadIdx.x & 31; }
        __device__ __forceinline__ bool inside(int row, int col) const
        {
                return whole || (row < M && col < N);
        }
        /* Corner of panel s. */
        __device__ __forceinline__ int row_of(int s) const { return row0 + s % ROWS * 64; }
        __device__ __forceinline__ int col_of(int s) const { return col0 + s / ROWS * WIDE; }
        /* Line p of a lane in a panel, of store k, and its position in C. */
        static __device__ __forceinline__ int line(int p, int k)
        {
                return chunks(k) == 8   ? p * 4 + lane() / 8
                       : chunks(k) == 4 ? p * 8 + lane() / 4 % 2 * 4 + lane() / 8
                                        : lane() / 16 * 8 + lane() % 8 / 2 * 2 + lane() / 8 % 2;
        }
        __device__ __forceinline__ int row(int s, int p, int k) const
        {
                return row_of(s) + line(p, k);
        }
        __device__ __forceinline__ int col(int s, int k) const
        {
                return col_of(s) + lane() % chunks(k) * (16 / width(k));
        }
};

#endif
#endif
