/* gemm_epilogue.cuh: passes the accumulators in a warp's registers to the epilogue functor. */
#ifndef TGC_GEMM_EPILOGUE_CUH
#define TGC_GEMM_EPILOGUE_CUH

#include "epilogue_protocol.cuh"
#include "gemm_tile.cuh"

/* Lanes DISTANCE apart exchange a run of W columns: the lower lane ends with both lanes' `lo`, the
 * upper one with both lanes' `hi`. */
template <int DISTANCE, int W>
TGC_DEV void lanes_join(float (&v)[2 * W], const float (&lo)[W], const float (&hi)[W])
{
        const bool upper = threadIdx.x & DISTANCE;
#pragma unroll
        for (int i = 0; i < W; i++) {
                const float got = __shfl_xor_sync(0xffffffffu, upper ? lo[i] : hi[i], DISTANCE);
                v[i] = upper ? got : lo[i];
                v[W + i] = upper ? hi[i] : got;
        }
}

/* How a warp's fragments are cut into calls of the epilogue: ROWS blocks of 16 rows, APART rows
 * from one to the next, WN columns.  A lane holds two neighbouring columns of each 8-column
 * fragment.  By exchanging with its quad over V/2 fragments it gets V neighbours, and a quad 4V. */
template <int ROWS, int WN, int APART, int V>
struct EpilogueCalls {
        static constexpr int STEP = V < 2 ? 1 : V / 2; /* fragments per step */
        static constexpr int PARTS = V < 2 ? 2 : 1;    /* calls per step */
        static constexpr int ACROSS = WN / 8 / STEP * 2 * PARTS, COUNT = ROWS * ACROSS;

        /* Of call p: fragment row and column, upper or lower half, and for V = 1 which of the two
         * columns. */
        static __device__ __forceinline__ constexpr int i(int p) { return p / ACROSS; }
        static __device__ __forceinline__ constexpr int j(int p)
        {
                return p % ACROSS / (2 * PARTS) * STEP;
        }
        static __device__ __forceinline__ constexpr int h(int p) { return p / PARTS % 2; }
        static __device__ __forceinline__ constexpr int c(int p) { return p % PARTS; }

        static __device__ __forceinline__ int row(int p)
        {
                return i(p) * APART + h(p) * 8 + (threadIdx.x >> 2) % 8;
        }
        static __device__ __forceinline__ int col(int p)
        {
                const int t = threadIdx.x & 3;
                return V == 8   ? (j(p) + t) * 8
                       : V == 4 ? (j(p) + (t & 1)) * 8 + (t >> 1) * 4
                                : j(p) * 8 + t * 2 + c(p);
        }
        static __device__ __forceinline__ void values(const float (&acc)[ROWS][WN / 8][4], int p,
                                                      float (&v)[V])
        {
                float x[STEP][2];
#pragma unroll
                for (int f = 0; f < STEP; f++) {
                        x[f][0] = acc[i(p)][j(p) + f][2 * h(p)];
                        x[f][1] = acc[i(p)][j(p) + f][2 * h(p) + 1];
                }
                if constexpr (V == 8) {
                        float lo[4], hi[4];
                        lanes_join<1>(lo, x[0], x[1]);
                        lanes_join<1>(hi, x[2], x[3]);
                        lanes_join<2>(v, lo, hi);
                } else if constexpr (V == 4) {
                        lanes_join<1>(v, x[0], x[1]);
                } else {
#pragma unroll
                        for (int k = 0; k < V; k++)
                                v[k] = x[0][c(p) + k];
                }
        }
};

/* Passes a warp's fragments, whose corner is (row0, col0), to the epilogue.  Reads that depend on
 * rows are issued AHEAD calls before the stores, within SPARE times 16 bytes of registers; start()
 * issues the first of them and may run before the sums are final.  Reads shared by all rows are
 * issued one call ahead.  whole: no tile reaches beyond (M, N), so calls may overlap where
 * registers are left. */
template <int ROWS, int WN, int APART, int SPARE, class Epilogue>
struct MmaEpilogue {
        static constexpr int MOST = WN % 32 ? 4 : 8,
                             V = Epilogue::MAXV < MOST ? Epilogue::MAXV : MOST;
        typedef EpilogueCalls<ROWS, WN, APART, V> Calls;
        typedef EpilogueReads<Epilogue, V> Reads;
        static constexpr bool READS_AHEAD = Reads::ROWS > 0;
        static constexpr int COUNT = Calls::COUNT,
                             FIT = Reads::ROWS ? SPARE * 8 / (Reads::ROWS * V) : 2;
        static constexpr int AHEAD = FIT < 2 ? 2 : FIT > COUNT ? COUNT : FIT;
        Reads reads[AHEAD];
        const Epilogue &epilogue;
        int row0, col0, M, N;
        bool whole;

        __device__ __forceinline__ MmaEpilogue(const Epilogue &epilogue_, int row0_, int col0_,
                                               int M_, int N_, bool whole_)
            : epilogue(epilogue_), row0(row0_), col0(col0_), M(M_), N(N_), whole(whole_)
        {
        }

        __device__ __forceinline__ bool inside(int row, int col) const
        {
                return whole || (row < M && col < N);
        }
        __device__ __forceinline__ void get_rows(int p)
        {
                const int row = row0 + Calls::row(p), col = col0 + Calls::col(p);
                if (inside(row, col))
                        reads[p % AHEAD].get_rows(epilogue, row, col);
        }
        __device__ __forceinline__ void get_cols(int p)
        {
                const int row = row0 + Calls::row(p), col = col0 + Calls::col(p);
                if (inside(row, col))
                        reads[p % AHEAD].get_cols(epilogue, col);
        }
        __device__ __forceinline__ void start()
        {
#pragma unroll
                for (int p = 0; p < AHEAD; p++)
                        get_rows(p);
        }
        /* v: per call, or for the current one; what the epilogue leaves there. */
        template <int KEEP>
        __device__ __forceinline__ void run(const float (&acc)[ROWS][WN / 8][4],
                                            float (&v)[KEEP][V])
        {
                get_cols(0);
#pragma unroll
                for (int p = 0; p < COUNT; p++) {
                        const int row = row0 + Calls::row(p), col = col0 + Calls::col(p);
                        Calls::values(acc, p, v[p % KEEP]);
                        if (p + 1 < COUNT)
                                get_cols(p + 1);
                        if (inside(row, col))
                                reads[p % AHEAD].call(epilogue, row, col, v[p % KEEP]);
                        if (p + AHEAD < COUNT)
                                get_rows(p + AHEAD);
                }
        }
        __device__ __forceinline__ void run(const float (&acc)[ROWS][WN / 8][4])
        {
                float v[1][V];
                run(acc, v);
        }
};

/* The fragments of a warp that owns Tile::WM x Tile::WN. */
template <class Tile, int SPARE = 3, class Epilogue>
TGC_DEV void mma_epilogue(const float (&acc)[Tile::WM / 16][Tile::WN / 8][4], int row0, int col0,
                          int M, int N, const Epilogue &epilogue)
{
        if constexpr (EpilogueRows<Epilogue>::WHOLE) {
                epilogue.template fragments<Tile::WM / 16, Tile::WN>(acc, row0, col0);
        } else {
                MmaEpilogue<Tile::WM / 16, Tile::WN, 16, SPARE, Epilogue> t(epilogue, row0, col0, M,
                                                                            N, false);
                t.start();
                t.run(acc);
        }
}

#endif
