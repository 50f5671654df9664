/* epilogue_sm90.cuh: epilogues on Hopper: from wgmma's accumulators to the functor, 16 rows of a
 * warp at a time.
 *
 * wgmma gives a lane two neighbours of every eight columns, in rows 8 apart; memory wants whole
 * lines.  Two epilogues stage through a panel of 2 KB of shared memory per warp, and load ahead
 * what the functor reads.  A third, MmaEpilogue (gemm_epilogue.cuh), exchanges values between
 * lanes.
 *
 *      PanelEpilogue<ROWS, BN, SPARE, Epilogue>        stages float32 sums: eight neighbours per
 *                                                      call, for any functor
 *      PairEpilogue<ROWS, BN, SPARE, Epilogue, PANELS> calls the functor in place, stages 16-bit
 *              results (epilogue_pair_sm90.cuh)
 *
 *      start()         issues the first reads, during the tile's last wgmmas
 *      run(acc)        the tile
 *
 * ROWS blocks of 16 rows per warp, 64 apart, and BN columns.  SPARE: 16-byte reads that fit in
 * registers beside the sums. */
#ifndef TGC_EPILOGUE_SM90_CUH
#define TGC_EPILOGUE_SM90_CUH

#include "epilogue_protocol.cuh"
#include "gemm.cuh"
#ifdef TGC_SM90A

/* A compiler barrier: nothing is computed from a read before this point. */
template <class Reads>
TGC_DEV void hold_reads(Reads &r)
{
        if constexpr (Reads::ROWS > 0) {
                unsigned(&w)[sizeof r / 4] = reinterpret_cast<unsigned(&)[sizeof r / 4]>(r);
#pragma unroll
                for (int i = 0; i < (int)(sizeof r / 4); i++)
                        asm volatile("" : "+r"(w[i]));
        }
}

/* Stages 8 rows x 64 columns at a time.  A lane then has eight neighbours of two rows, and eight
 * lanes a whole 128-byte line of 16-bit values (exchanging lanes reach half of that).
 *
 * A panel is two planes of 8 rows x 128 bytes: columns 0 to 3 of every eight, and 4 to 7.  The 16
 * bytes of column group c are at chunk c ^ row, in the second plane ^ 4 as well: no bank
 * conflicts. */
template <int ROWS, int BN, int SPARE, class Epilogue>
struct PanelEpilogue {
        typedef EpilogueReads<Epilogue, 8> Reads;
        static constexpr bool READS_AHEAD = Reads::ROWS > 0;
        /* panels; calls per lane */
        static constexpr int STEPS = ROWS * 2 * (BN / 64), COUNT = 2 * STEPS;
        static constexpr int FIT = Reads::ROWS ? SPARE / Reads::ROWS : 1;
        static constexpr int AHEAD = FIT < 4 && Reads::ROWS ? 4 : FIT > COUNT ? COUNT : FIT;
        Reads reads[AHEAD];
        const Epilogue &epilogue;
        char *panel;
        int row0, col0, M, N;
        bool whole;

        __device__ __forceinline__ PanelEpilogue(const Epilogue &epilogue_, char *panel_, int row0_,
                                                 int col0_, int M_, int N_, bool whole_)
            : epilogue(epilogue_), panel(panel_), row0(row0_), col0(col0_), M(M_), N(N_),
              whole(whole_)
        {
        }

        static __device__ __forceinline__ int lane() { return threadIdx.x & 31; }
        /* Of call p, the first or second of panel p / 2. */
        static __device__ __forceinline__ int row(int p)
        {
                return p / 4 % ROWS * 64 + p / 2 % 2 * 8 + p % 2 * 4 + lane() / 8;
        }
        static __device__ __forceinline__ int col(int p)
        {
                return p / (4 * ROWS) * 64 + lane() % 8 * 8;
        }
        __device__ __forceinline__ bool inside(int p) const
        {
                return whole || (row0 + row(p) < M && col0 + col(p) < N);
        }
        __device__ __forceinline__ void get_rows(int p)
        {
                if (inside(p))
                        reads[p % AHEAD].get_rows(epilogue, row0 + row(p), col0 + col(p));
        }
        __device__ __forceinline__ void get_cols(int p)
        {
                if (inside(p))
                        reads[p % AHEAD].get_cols(epilogue, col0 + col(p));
        }
        __device__ __forceinline__ void start()
        {
#pragma unroll
                for (int p = 0; p < AHEAD; p++)
                        get_rows(p);
        }
        __device__ __forceinline__ void put(const float (&acc)[ROWS][BN / 8][4], int s) const
        {
                const int g = lane() / 4, t = lane() % 4, c = s / (2 * ROWS), i = s / 2 % ROWS,
                          h = s % 2;
#pragma unroll
                for (int j = 0; j < 8; j++)
                        *(float2 *)(panel + t / 2 * 1024 + g * 128 + (j ^ g ^ t / 2 * 4) * 16 +
                                    t % 2 * 8) = make_float2(acc[i][c * 8 + j][2 * h],
                                                             acc[i][c * 8 + j][2 * h + 1]);
        }
        __device__ __forceinline__ void get(float (&v)[8], int half) const
        {
                const int r = half * 4 + lane() / 8, at = lane() % 8 ^ r;
                load<4>(reinterpret_cast<float(&)[4]>(v[0]),
                        (const float *)(panel + r * 128 + at * 16));
                load<4>(reinterpret_cast<float(&)[4]>(v[4]),
                        (const float *)(panel + 1024 + r * 128 + (at ^ 4) * 16));
        }
        __device__ __forceinline__ void run(const float (&acc)[ROWS][BN / 8][4])
        {
                get_cols(0);
                if (Reads::ROWS)
                        get_cols(1);
#pragma unroll
                for (int s = 0; s < STEPS; s++) {
                        put(acc, s);
                        __syncwarp();
                        if (Reads::ROWS && s + 1 < STEPS) {
                                get_cols(2 * s + 2);
                                get_cols(2 * s + 3);
                        }
#pragma unroll(Reads::ROWS ? 2 : 1) /* reads are registers; without any, a rolled loop is half as
                                     * long */
                        for (int p = 2 * s; p < 2 * s + 2; p++) {
                                float v[8];
                                get(v, p % 2);
                                if (p % 2)
                                        __syncwarp();
                                hold_reads(reads[p % AHEAD]);
                                if (inside(p))
                                        reads[p % AHEAD].call(epilogue, row0 + row(p),
                                                              col0 + col(p), v);
                                if (p + AHEAD < COUNT)
                                        get_rows(p + AHEAD);
                        }
                        if (!Reads::ROWS && s + 1 < STEPS && (s + 1) % (2 * ROWS) == 0)
                                get_cols(2 * s + 2);
                }
        }
};

#endif
#endif
