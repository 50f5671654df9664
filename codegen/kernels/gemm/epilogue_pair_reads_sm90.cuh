/* epilogue_pair_reads_sm90.cuh: what an epilogue reads of rows, on its way into a panel of
 * PairEpilogue (epilogue_pair_sm90.cuh): by lanes, or by TMA.
 *
 * PairReads: lanes read 16 bytes at a time, AHEAD of them in flight, and put them into the panel
 * of their step.
 *
 * PairFetches (Fetched epilogues): TMA loads to where the first store's results will go.  Two
 * ping-pong consumers share the panels (a warp of each), so that a warp has enough of them to fetch
 * early.  The warp that is done with a panel issues, for the other one, the loads of the next tile.
 * Separate panels would cost a pipeline stage: 15% with five stages, more than the reads take. */
#ifndef TGC_EPILOGUE_PAIR_READS_SM90_CUH
#define TGC_EPILOGUE_PAIR_READS_SM90_CUH

#include "epilogue_pair_boxes_sm90.cuh"
#include "epilogue_pair_lines_sm90.cuh"
#include "pipeline_sm90.cuh"
#ifdef TGC_SM90A

/* Panel: PairLines or PairBoxes.  SPARE: 16-byte reads that registers have room for. */
template <int SPARE, class Epilogue, class Panel>
struct PairReads : Panel {
        using Panel::col;
        using Panel::COUNT;
        using Panel::EACH;
        using Panel::epilogue;
        using Panel::inside;
        using Panel::Panel;
        using Panel::put;
        using Panel::row;
        using typename Panel::Lines;
        static constexpr bool READS_AHEAD = Lines::ROWS > 0;
        static constexpr int AHEAD = !READS_AHEAD    ? 1
                                     : SPARE < EACH  ? EACH
                                     : SPARE > COUNT ? COUNT
                                                     : SPARE;
        Lines lines[AHEAD];

        __device__ __forceinline__ void get_rows(int p)
        {
                const int s = p / EACH, r = row(s, p % EACH, 0), c = col(s, 0);
                if (inside(r, c))
                        lines[p % AHEAD].get_rows(epilogue, r, c);
        }
        __device__ __forceinline__ void start()
        {
#pragma unroll
                for (int p = 0; p < AHEAD && Lines::ROWS; p++)
                        get_rows(p);
        }
        /* Writes to the panel what was read for panel s, and issues reads for a later one. */
        __device__ __forceinline__ void put_lines(int s)
        {
#pragma unroll
                for (int p = EACH * s; p < EACH * (s + 1); p++) {
                        hold_reads(lines[p % AHEAD]);
                        put(p % EACH, reinterpret_cast<const uint4 &>(lines[p % AHEAD]));
                        if (p + AHEAD < COUNT)
                                get_rows(p + AHEAD);
                }
        }

        /* Step s: its panel holds its reads; its results are sent. */
        __device__ __forceinline__ void begin(int s)
        {
                this->take_panel(s);
                if (READS_AHEAD) {
                        put_lines(s);
                        __syncwarp();
                }
        }
        __device__ __forceinline__ void end(int s) { this->send(s); }
        __device__ __forceinline__ void finish() const {}
};

template <int ROWS, int BN, class Epilogue, int PANELS>
struct PairFetches : PairBoxes<ROWS, BN, Epilogue, PANELS> {
        typedef PairBoxes<ROWS, BN, Epilogue, PANELS> Panel;
        using Panel::col_of;
        using Panel::epilogue;
        using Panel::lane;
        using Panel::panel;
        using Panel::Panel;
        using Panel::panels;
        using Panel::row_of;
        using Panel::STEPS;
        using Panel::WIDE;
        using Panel::width;
        static constexpr bool READS_AHEAD = false;
        static_assert(STEPS % PANELS == 0, "panels take turns a whole number of rounds a tile");
        Mbar *full, *next_full; /* a barrier per panel; the other consumer's */
        unsigned phase;         /* parity of the first step's */
        int next_row, next_col; /* the next tile's corner, of the other consumer */
        bool more;              /* there is a next tile */

        /* One lane requests the reads of step s (behind the last: the next tile's) into
         * its free panel. */
        __device__ __forceinline__ void ask(int s) const
        {
                const int row = s < STEPS ? row_of(s) : next_row + s % STEPS % ROWS * 64,
                          col = s < STEPS ? col_of(s) : next_col + s % STEPS / ROWS * WIDE;
                if (s >= STEPS && !more)
                        return;
                Mbar *const bar = (s < STEPS ? full : next_full) + s % PANELS;
                mbarrier_expect_tx(bar, 16 * WIDE * width(0));
                tma_load_2d(panels + s % PANELS * 2048, epilogue.from, bar, col * width(0) / 2,
                            row);
        }
        /* Before the block's tile number `tile`.  Its first reads were requested already,
         * except for the first tile's.  own, other: panel barriers, a set per consumer; with a
         * common set the later consumer could see a parity one round old. */
        __device__ __forceinline__ void fetch(Mbar *own, Mbar *other, int tile, bool more_,
                                              int next_row_, int next_col_)
        {
                static_assert(EpilogueStores<Epilogue>::READ == width(0),
                              "in the place of the first result");
                full = own, next_full = other, phase = tile / 2 * (STEPS / PANELS) & 1;
                more = more_, next_row = next_row_, next_col = next_col_;
                if (tile == 0 && lane() == 0)
#pragma unroll
                        for (int s = 0; s < PANELS; s++)
                                ask(s);
        }
        /* After step s is sent: the panel of step s - BUT is free once all but the last
         * BUT stores have been read. */
        template <int BUT>
        __device__ __forceinline__ void ask_again(int s) const
        {
                if (s >= BUT && lane() == 0) {
                        bulk_wait_read<BUT>();
                        ask(s - BUT + PANELS);
                }
        }

        __device__ __forceinline__ void begin(int s)
        {
                panel = panels + s % PANELS * 2048;
                pipeline_wait(full + s % PANELS, phase ^ (s / PANELS & 1));
        }
        __device__ __forceinline__ void end(int s)
        {
                this->send(s);
                ask_again<1>(s);
        }
        __device__ __forceinline__ void finish() const { ask_again<0>(STEPS - 1); }
};

#endif
#endif
