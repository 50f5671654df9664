/* epilogue_pair_sm90.cuh: PairEpilogue of epilogue_sm90.cuh, for functors with STORES and 16-bit
 * results.
 *
 * wgmma gives a lane two neighbours of every 8 columns.  The functor is called for just these two:
 * lanes exchange no values and no sums are copied (registers are free only after the last sum was
 * read).  Results of 16 rows x WIDE columns at a time go through the warp's panel in shared
 * memory.  What the epilogue reads of rows takes the same way in reverse.
 *
 *      mode        panel to memory                  what is read of rows to the panel
 *      plain       PairLines: the warp stores       PairReads: lanes read ahead
 *      Boxed       PairBoxes: TMA stores            PairReads
 *      Fetched     PairBoxes                        PairFetches: TMA loads
 *
 * PairMode chooses by the epilogue's type (epilogue_tma_sm90.cuh). */
#ifndef TGC_EPILOGUE_PAIR_SM90_CUH
#define TGC_EPILOGUE_PAIR_SM90_CUH

#include "epilogue_pair_reads_sm90.cuh"
#ifdef TGC_SM90A

/* The Out that packs the results of two neighbours into one or two words and adds up their
 * sums. */
struct OfRow {
        float own, sum;
};
template <int N>
struct PairOut {
        unsigned (&words)[N][2];
        OfRow &row;
        template <int K, int W, class T>
        __device__ __forceinline__ void put(T *, const float (&v)[W]) const
        {
                words[K][0] = pack2<T>(v[0], v[W > 1]);
                if (W == 4)
                        words[K][1] = pack2<T>(v[W - 2], v[W - 1]);
        }
        template <class Epilogue>
        __device__ __forceinline__ float of_row(const Epilogue &, int) const
        {
                return row.own;
        }
        __device__ __forceinline__ void sum(const float (&v)[2]) const { row.sum += v[0] + v[1]; }
};

/* The panel, and how it is filled and emptied. */
template <int ROWS, int BN, int SPARE, class Epilogue, int PANELS, bool BOXED, bool FETCHED>
struct PairMode;
template <int ROWS, int BN, int SPARE, class Epilogue, int PANELS>
struct PairMode<ROWS, BN, SPARE, Epilogue, PANELS, false, false> {
        typedef PairReads<SPARE, Epilogue, PairLines<ROWS, BN, Epilogue>> Type;
};
template <int ROWS, int BN, int SPARE, class Epilogue, int PANELS>
struct PairMode<ROWS, BN, SPARE, Epilogue, PANELS, true, false> {
        typedef PairReads<SPARE, Epilogue, PairBoxes<ROWS, BN, Epilogue, PANELS>> Type;
};
template <int ROWS, int BN, int SPARE, class Epilogue, int PANELS>
struct PairMode<ROWS, BN, SPARE, Epilogue, PANELS, true, true> {
        typedef PairFetches<ROWS, BN, Epilogue, PANELS> Type;
};

/* A warp's ROWS x 16 rows by BN columns of C, rows 64 apart.  SPARE: 16-byte reads that registers
 * have room for.  PANELS: the warp's panels, of 2048 bytes. */
template <int ROWS, int BN, int SPARE, class Epilogue, int PANELS = 1>
struct PairEpilogue : PairMode<ROWS, BN, SPARE, Epilogue, PANELS, EpilogueBoxes<Epilogue>::ON,
                               EpilogueBoxes<Epilogue>::FETCHED>::Type {
        typedef typename PairMode<ROWS, BN, SPARE, Epilogue, PANELS, EpilogueBoxes<Epilogue>::ON,
                                  EpilogueBoxes<Epilogue>::FETCHED>::Type Mode;
        using Mode::col0;
        using Mode::col_of;
        using Mode::epilogue;
        using Mode::FRAGMENTS;
        using Mode::inside;
        using Mode::lane;
        using Mode::M;
        using Mode::read_pairs;
        using Mode::row_of;
        using Mode::STEPS;
        using Mode::STORES;
        using Mode::whole;
        using typename Mode::Lines;

        /* In whole words, which lanes exchange: one value per pair takes half a word. */
        struct alignas(4) alignas(EpilogueReads<Epilogue, 2>) Pairs : EpilogueReads<Epilogue, 2> {
        };
        static constexpr bool SHARES = Pairs::N > Pairs::ROWS;
        /* the row reads, first member of Pairs */
        static constexpr int WORDS_READ = Lines::ROWS > 0 ? EpilogueStores<Epilogue>::READ / 2 : 0;
        /* Fragments computed before the first is written to the panel, in their accumulators'
         * registers: a single warp must hide the latency of exponentials. */
        static constexpr int AT_ONCE = Lines::ROWS ? 2 : FRAGMENTS;
        /* column reads: this lane's pair of every 64 columns (see of_cols) */
        Pairs shared[SHARES ? (BN + 63) / 64 : 1];
        OfRow own[ROWS][2]; /* per row of the lane: EpilogueSums */

        __device__ __forceinline__ PairEpilogue(const Epilogue &epilogue_, char *panel_, int row0_,
                                                int col0_, int M_, int N_, bool whole_)
            : Mode(epilogue_, panel_, row0_, col0_, M_, N_, whole_)
        {
                get_cols();
        }

        /* What all rows share is read once per tile, a few words per lane, before the wgmmas;
         * lanes exchange them at the end. */
        __device__ __forceinline__ void get_cols()
        {
#pragma unroll
                for (int k = 0; SHARES && k < BN; k += 64) {
                        const int c = k + lane() * 2;
                        if ((BN % 64 == 0 || c < BN) && inside(0, col0 + c))
                                shared[k / 64].get_cols(epilogue, col0 + c);
                }
        }
        /* The column reads of fragment f's columns. */
        __device__ __forceinline__ Pairs of_cols(int f) const
        {
                Pairs p;
#pragma unroll
                for (int i = WORDS_READ; SHARES && i < (int)sizeof(Pairs) / 4; i++)
                        (&reinterpret_cast<unsigned &>(p))[i] =
                                __shfl_sync(0xffffffffu,
                                            (&reinterpret_cast<const unsigned &>(shared[f / 8]))[i],
                                            f % 8 * 4 + lane() % 4);
                return p;
        }
        __device__ __forceinline__ void get_own()
        {
#pragma unroll
                for (int i = 0; i < 2 * ROWS; i++) {
                        const int r = row_of(i / 2) + i % 2 * 8 + lane() / 4;
                        own[i / 2][i % 2] = { whole || r < M ? epilogue.get_row(r) : 0.f, 0.f };
                }
        }
        /* Sums over the four lanes that share a row. */
        __device__ __forceinline__ void put_sums()
        {
#pragma unroll
                for (int i = 0; i < 2 * ROWS; i++) {
                        const int r = row_of(i / 2) + i % 2 * 8 + lane() / 4;
                        float x = own[i / 2][i % 2].sum;
                        x += __shfl_xor_sync(0xffffffffu, x, 1);
                        x += __shfl_xor_sync(0xffffffffu, x, 2);
                        if (lane() % 4 == 0 && (whole || r < M))
                                epilogue.put_sum(r, col0 / BN, x);
                }
        }
        /* Computes pair h of fragment j of panel s; in: column reads, read: row reads. */
        __device__ __forceinline__ void call(float a, float b, int s, int j, int h, Pairs in,
                                             const unsigned (&read)[2], unsigned (&out)[STORES][2])
        {
                const int r = row_of(s) + h * 8 + lane() / 4,
                          c = col_of(s) + j * 8 + lane() % 4 * 2;
                float v[2] = { a, b };
                if (EpilogueSums<Epilogue>::ASKS &&
                    !inside(r, c)) /* other epilogues only fill `out`; store_lines checks */
                        return;
                if (Lines::ROWS) {
                        reinterpret_cast<unsigned &>(in) = read[0];
                        if constexpr (EpilogueStores<Epilogue>::READ == 4)
                                (&reinterpret_cast<unsigned &>(in))[1] = read[1];
                }
                in.call(epilogue, r, c, v, PairOut<STORES> { out, own[s % ROWS][h] });
        }
        /* Per step: reads to the panel, the functor on AT_ONCE fragments at a time, results to the
         * panel, and from there to memory. */
        __device__ __forceinline__ void run(const float (&acc)[ROWS][BN / 8][4])
        {
                if constexpr (EpilogueSums<Epilogue>::ASKS)
                        get_own();
#pragma unroll
                for (int s = 0; s < STEPS; s++) {
                        this->begin(s);
#pragma unroll
                        for (int j0 = 0; j0 < FRAGMENTS; j0 += AT_ONCE) {
                                unsigned out[AT_ONCE / 2][4][STORES][2] = {};
                                Pairs in[AT_ONCE];
#pragma unroll
                                for (int j = 0; j < AT_ONCE; j++)
                                        in[j] = of_cols(s / ROWS * FRAGMENTS + j0 + j);
#pragma unroll
                                for (int j = 0; j < AT_ONCE; j += 2) {
                                        unsigned read[4][2] = {};
                                        if (Lines::ROWS)
                                                read_pairs(read, j0 + j);
#pragma unroll
                                        for (int i = 0; i < 4; i++) {
                                                const float(&v)[4] =
                                                        acc[s % ROWS]
                                                           [s / ROWS * FRAGMENTS + j0 + j + i / 2];
                                                call(v[i % 2 * 2], v[i % 2 * 2 + 1], s,
                                                     j0 + j + i / 2, i % 2, in[j + i / 2], read[i],
                                                     out[j / 2][i]);
                                        }
                                }
#pragma unroll
                                for (int j = 0; j < AT_ONCE; j += 2) {
                                        this->template write_pairs<0>(out[j / 2], j0 + j);
                                        if constexpr (STORES > 1)
                                                this->template write_pairs<1>(out[j / 2], j0 + j);
                                }
                        }
                        this->end(s);
                }
                this->finish();
                if constexpr (EpilogueSums<Epilogue>::SUMS)
                        put_sums();
        }
};

#endif
#endif
