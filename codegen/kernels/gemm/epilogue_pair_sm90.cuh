/* epilogue_pair_sm90.cuh: PairEpilogue of epilogue_sm90.cuh, for functors with STORES and 16-bit
 * results.
 *
 * wgmma gives a lane two neighbours of every 8 columns.  The functor is called for just these two:
 * lanes exchange no values and no sums are copied (registers are free only after the last sum was
 * read).  Results of 16 rows x WIDE columns at a time go through the warp's panel in shared
 * memory.  What the epilogue reads of rows takes the same way in reverse.
 *
 * From the panel to memory there are two ways.
 *
 * 1. The warp stores.  A lane stores eight neighbours; four or eight lanes store a line.  A panel
 *    is 16 rows of 128 bytes.  A row holds the results side by side, the first one where the reads
 *    were.  16-byte chunk c is at c ^ (row % 8), against bank conflicts.  The words of a chunk
 *    depend on how many values the store has per two columns (WIDTHk in
 *    epilogue_protocol.cuh):
 *
 *      2 values        as in memory
 *      1               two fragments in one chunk: a word is the two values of columns 8 apart
 *      4               a fragment in two chunks: first words of all lanes, then second words
 *
 * The lane that stores a chunk puts its words in order.
 *
 * 2. TMA stores (Boxed epilogues): a box of 16 rows per store.  With PANELS 2 the warp continues
 *    in its other panel meanwhile.  The results of each store lie apart, as in memory: rows of
 *    128, 64 or 32 bytes with TMA's swizzle.  This takes less power, which limits large GEMMs.
 *
 * With a Fetched epilogue TMA also loads what is read, to where the first store's results will go.
 * Two ping-pong consumers share the panels (a warp of each), so that a warp has enough of them to
 * fetch early.  The warp that is done with a panel issues, for the other one, the loads of the
 * next tile.  Separate panels would cost a pipeline stage: 15% with five stages, more than the
 * reads take. */
#ifndef TGC_EPILOGUE_PAIR_SM90_CUH
#define TGC_EPILOGUE_PAIR_SM90_CUH

#include "pipeline_sm90.cuh"
#include "epilogue_tma_sm90.cuh"
#include "epilogue_sm90.cuh"
#ifdef TGC_SM90A

/* Out objects (epilogue_protocol.cuh).  PairOut packs the results of two neighbours into one or two
 * words and adds up their sums; PlaceOut only takes the address of store K0. */
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

template <int ROWS, int BN, int SPARE, class Epilogue, int PANELS = 1>
struct PairEpilogue {
        static constexpr int STORES = EpilogueStores<Epilogue>::N;
        static constexpr bool BOXED = EpilogueBoxes<Epilogue>::ON,
                              FETCHED = EpilogueBoxes<Epilogue>::FETCHED;
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
        static_assert(EpilogueBoxes<Epilogue>::COLUMNS == 0 ||
                              EpilogueBoxes<Epilogue>::COLUMNS == WIDE,
                      "boxes as sm90_gemm.c has them");
        /* Chunks of store k in a row of the panel, and the first of them. */
        static __device__ __forceinline__ constexpr int chunks(int k)
        {
                return FRAGMENTS * width(k) / 2;
        }
        static __device__ __forceinline__ constexpr int first(int k) { return k ? chunks(0) : 0; }
        /* lines per lane */
        static constexpr int STEPS = ROWS * (BN / WIDE), EACH = chunks(0) / 2, COUNT = EACH * STEPS;
        static_assert(!FETCHED || STEPS % PANELS == 0,
                      "panels take turns a whole number of rounds a tile");

        typedef EpilogueReads<Epilogue, 16 / EpilogueStores<Epilogue>::READ> Lines;
        /* In whole words, which lanes exchange: one value per pair takes half a word. */
        struct alignas(4) alignas(EpilogueReads<Epilogue, 2>) Pairs : EpilogueReads<Epilogue, 2> {
        };
        static constexpr bool SHARES = Pairs::N > Pairs::ROWS;
        /* the row reads, first member of Pairs */
        static constexpr int WORDS_READ = Lines::ROWS > 0 ? EpilogueStores<Epilogue>::READ / 2 : 0;
        static constexpr bool READS_AHEAD = Lines::ROWS > 0 && !FETCHED;
        /* Fragments computed before the first is written to the panel, in their accumulators'
         * registers: a single warp must hide the latency of exponentials. */
        static constexpr int AT_ONCE = Lines::ROWS ? 2 : FRAGMENTS;
        static constexpr int AHEAD = !READS_AHEAD    ? 1
                                     : SPARE < EACH  ? EACH
                                     : SPARE > COUNT ? COUNT
                                                     : SPARE;
        Lines lines[AHEAD];
        /* column reads: this lane's pair of every 64 columns (see of_cols) */
        Pairs shared[SHARES ? (BN + 63) / 64 : 1];
        OfRow own[ROWS][2]; /* per row of the lane: EpilogueSums */
        const Epilogue &epilogue;
        char *panel, *panels;
        int row0, col0, M, N;
        bool whole;
        Mbar *full, *next_full; /* Fetched: a barrier per panel; the other consumer's */
        unsigned phase;         /* parity of the first step's */
        int next_row, next_col; /* the next tile's corner, of the other consumer */
        bool more;              /* there is a next tile */

        __device__ __forceinline__ PairEpilogue(const Epilogue &epilogue_, char *panel_, int row0_,
                                                int col0_, int M_, int N_, bool whole_)
            : epilogue(epilogue_), panel(panel_), panels(panel_), row0(row0_), col0(col0_), M(M_),
              N(N_), whole(whole_)
        {
                get_cols();
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
        /* Chunk c of store K's results in row r. */
        template <int K>
        __device__ __forceinline__ char *chunk(int r, int c) const
        {
                if (!BOXED)
                        return panel + r * 128 + (first(K) + c ^ r % 8) * 16;
                /* 128-byte rows: eight differ; 64-byte rows: four */
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

        /* A lane's 16 bytes from memory to the panel, and back. */
        __device__ __forceinline__ void put(int p, const uint4 &x) const
        {
                const int r = line(p, 0), c = lane() % chunks(0);
                if (width(0) == 4 && !BOXED) {
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

        __device__ __forceinline__ void get_rows(int p)
        {
                const int s = p / EACH, r = row(s, p % EACH, 0), c = col(s, 0);
                if (inside(r, c))
                        lines[p % AHEAD].get_rows(epilogue, r, c);
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
        /* Boxed: stores the four values of pair i of fragments j and j + 1 where they belong. */
        template <int K>
        __device__ __forceinline__ char *four(int i, int j) const
        {
                return chunk<K>(i % 2 * 8 + lane() / 4, 2 * (j + i / 2) + lane() % 4 / 2) +
                       lane() % 2 * 8;
        }
        /* Boxed: the one value of each pair; of two lanes the first writes both values of fragment
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
        /* Reads of fragments j and j + 1, rows 0 to 7 and 8 to 15 of each. */
        __device__ __forceinline__ void read_pairs(unsigned (&read)[4][2], int j) const
        {
                constexpr bool WIDE_READ = EpilogueStores<Epilogue>::READ == 4;
                if constexpr (WIDE_READ && BOXED) {
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                                const uint2 x = *(const uint2 *)four<0>(i, j);
                                read[i][0] = x.x, read[i][1] = x.y;
                        }
                } else {
#pragma unroll
                        for (int f = 0; f < 1 + WIDE_READ; f++) {
                                unsigned x[4];
                                ldmatrix_x4(x, matrices<0>(WIDE_READ ? 2 * (j + f) : j));
#pragma unroll
                                for (int i = 0; i < 4; i++)
                                        read[WIDE_READ ? 2 * f + i % 2 : i][WIDE_READ ? i / 2 : 0] =
                                                x[i];
                        }
                }
        }
        template <int K>
        __device__ __forceinline__ void write_pairs(const unsigned (&out)[4][STORES][2],
                                                    int j) const
        {
                if (width(K) == 2) {
                        stmatrix_x4(matrices<K>(j),
                                    { out[0][K][0], out[1][K][0], out[2][K][0], out[3][K][0] });
                } else if (BOXED && width(K) == 1) {
                        write_ones<K>(out, j);
                } else if (BOXED) {
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                *(uint2 *)four<K>(i, j) = make_uint2(out[i][K][0], out[i][K][1]);
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
        /* Boxed: waits until TMA has stored step s's panel; Fetched: and has loaded the reads. */
        __device__ __forceinline__ void take_panel(int s)
        {
                panel = panels + s % PANELS * 2048;
                if (FETCHED) {
                        pipeline_wait(full + s % PANELS, phase ^ (s / PANELS & 1));
                        return;
                }
                if (lane() == 0)
                        bulk_wait_read<PANELS - 1>();
                __syncwarp();
        }
        /* Fetched: one lane requests the reads of step s (behind the last: the next tile's) into
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
        /* Fetched: before the block's tile number `tile`.  Its first reads were requested already,
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
        /* Fetched, after step s is sent: the panel of step s - BUT is free once all but the last
         * BUT stores have been read. */
        template <int BUT>
        __device__ __forceinline__ void ask_again(int s) const
        {
                if (s >= BUT && lane() == 0) {
                        bulk_wait_read<BUT>();
                        ask(s - BUT + PANELS);
                }
        }
        /* Boxed: sends the results of step s. */
        template <int K>
        __device__ __forceinline__ void send(int s) const
        {
                tma_store_2d(epilogue.box[K], chunk<K>(0, 0), col_of(s) * width(K) / 2, row_of(s));
        }
        __device__ __forceinline__ void send_all(int s) const
        {
                fence_proxy_async();
                __syncwarp();
                if (lane() == 0) {
                        send<0>(s);
                        if constexpr (STORES > 1)
                                send<1>(s);
                        bulk_commit();
                }
        }
        /* Per step: reads to the panel, the functor on AT_ONCE fragments at a time, results to the
         * panel, and from there to memory. */
        __device__ __forceinline__ void run(const float (&acc)[ROWS][BN / 8][4])
        {
                if constexpr (EpilogueSums<Epilogue>::ASKS)
                        get_own();
#pragma unroll
                for (int s = 0; s < STEPS; s++) {
                        if constexpr (BOXED)
                                take_panel(s);
                        if (READS_AHEAD) {
                                put_lines(s);
                                __syncwarp();
                        }
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
                                        write_pairs<0>(out[j / 2], j0 + j);
                                        if constexpr (STORES > 1)
                                                write_pairs<1>(out[j / 2], j0 + j);
                                }
                        }
                        if constexpr (BOXED) {
                                send_all(s);
                                if constexpr (FETCHED)
                                        ask_again<1>(s);
                        } else {
                                __syncwarp();
                                store_lines<0>(s);
                                if constexpr (STORES > 1)
                                        store_lines<1>(s);
                                __syncwarp();
                        }
                }
                if constexpr (FETCHED)
                        ask_again<0>(STEPS - 1);
                if constexpr (EpilogueSums<Epilogue>::SUMS)
                        put_sums();
        }
};

#endif
#endif
