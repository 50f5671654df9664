/* tail_sm90.cuh: the end of a tile on Hopper: sums in wgmma's registers, a warp's rows 16 by 16, to a functor.
 *
 * wgmma leaves a lane two neighbours of every eight columns, of rows 8 apart; memory wants whole lines.  Both ways here go
 * through a panel of 2 KB of shared memory a warp, and read what the functor reads of rows ahead; matmul.cuh's MmaTail, in
 * which lanes trade, is the third.
 *
 *      PanelTail<ROWS, BN, SPARE, Tail>        float32 sums: eight neighbours to a call, for any functor
 *      PairTail<ROWS, BN, SPARE, Tail>         the functor is called where the sums are: 16-bit results alone
 *
 *      start()         reads begin, while the tile's last products run
 *      run(acc)        the tile
 *
 * ROWS times 16 rows of a warp, 64 apart, and BN columns; SPARE: reads of 16 bytes that fit in registers beside the sums. */
#ifndef TGC_TAIL_SM90_CUH
#define TGC_TAIL_SM90_CUH

#include "matmul.cuh"
#ifdef TGC_SM90A

/* Nothing is computed from a read before this. */
template <class Reads>
TGC_DEV void hold_reads(Reads &r)
{
        if constexpr (Reads::ROWS > 0) {
                unsigned (&w)[sizeof r / 4] = reinterpret_cast<unsigned (&)[sizeof r / 4]>(r);
#pragma unroll
                for (int i = 0; i < (int)(sizeof r / 4); i++)
                        asm volatile("" : "+r"(w[i]));
        }
}

/* MmaTail for eight columns a call, by way of shared memory: 8 rows x 64 columns at a time, of which a lane
 * then has eight neighbours of two rows, and eight lanes a whole 128-byte line of 16-bit values.  (Lanes that trade
 * reach half of that.)
 *
 * A panel is two planes of 8 rows x 128 bytes, of columns 0 to 3 and 4 to 7 of every eight.  Eight columns' 16 bytes
 * stand at chunk ^ row, in the second plane ^ 4 as well: no two lanes of an access meet in a bank. */
template <int ROWS, int BN, int SPARE, class Tail>
struct PanelTail {
        typedef TailReads<Tail, 8> Reads;
        static constexpr bool READS_AHEAD = Reads::ROWS > 0;
        static constexpr int STEPS = ROWS * 2 * (BN / 64), COUNT = 2 * STEPS;   /* panels; calls of a lane */
        static constexpr int FIT = Reads::ROWS ? SPARE / Reads::ROWS : 1;
        static constexpr int AHEAD = FIT < 4 && Reads::ROWS ? 4 : FIT > COUNT ? COUNT : FIT;
        Reads reads[AHEAD];
        const Tail &tail;
        char *panel;
        int row0, col0, M, N;
        bool whole;

        __device__ __forceinline__ PanelTail(const Tail &tail_, char *panel_, int row0_, int col0_, int M_, int N_, bool whole_)
                : tail(tail_), panel(panel_), row0(row0_), col0(col0_), M(M_), N(N_), whole(whole_) {}

        static __device__ __forceinline__ int lane() { return threadIdx.x & 31; }
        /* Of call p, the first or second of panel p / 2. */
        static __device__ __forceinline__ int row(int p) { return p / 4 % ROWS * 64 + p / 2 % 2 * 8 + p % 2 * 4 + lane() / 8; }
        static __device__ __forceinline__ int col(int p) { return p / (4 * ROWS) * 64 + lane() % 8 * 8; }
        __device__ __forceinline__ bool inside(int p) const
        {
                return whole || (row0 + row(p) < M && col0 + col(p) < N);
        }
        __device__ __forceinline__ void get_rows(int p)
        {
                if (inside(p))
                        reads[p % AHEAD].get_rows(tail, row0 + row(p), col0 + col(p));
        }
        __device__ __forceinline__ void get_cols(int p)
        {
                if (inside(p))
                        reads[p % AHEAD].get_cols(tail, col0 + col(p));
        }
        __device__ __forceinline__ void start()
        {
#pragma unroll
                for (int p = 0; p < AHEAD; p++)
                        get_rows(p);
        }
        __device__ __forceinline__ void put(const float (&acc)[ROWS][BN / 8][4], int s) const
        {
                const int g = lane() / 4, t = lane() % 4, c = s / (2 * ROWS), i = s / 2 % ROWS, h = s % 2;
#pragma unroll
                for (int j = 0; j < 8; j++)
                        *(float2 *)(panel + t / 2 * 1024 + g * 128 + (j ^ g ^ t / 2 * 4) * 16 + t % 2 * 8) =
                                make_float2(acc[i][c * 8 + j][2 * h], acc[i][c * 8 + j][2 * h + 1]);
        }
        __device__ __forceinline__ void get(float (&v)[8], int half) const
        {
                const int r = half * 4 + lane() / 8, at = lane() % 8 ^ r;
                load<4>(reinterpret_cast<float (&)[4]>(v[0]), (const float *)(panel + r * 128 + at * 16));
                load<4>(reinterpret_cast<float (&)[4]>(v[4]), (const float *)(panel + 1024 + r * 128 + (at ^ 4) * 16));
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
#pragma unroll (Reads::ROWS ? 2 : 1)            /* reads are registers; without any a loop is half as long */
                        for (int p = 2 * s; p < 2 * s + 2; p++) {
                                float v[8];
                                get(v, p % 2);
                                if (p % 2)
                                        __syncwarp();
                                hold_reads(reads[p % AHEAD]);
                                if (inside(p))
                                        reads[p % AHEAD].call(tail, row0 + row(p), col0 + col(p), v);
                                if (p + AHEAD < COUNT)
                                        get_rows(p + AHEAD);
                        }
                        if (!Reads::ROWS && s + 1 < STEPS && (s + 1) % (2 * ROWS) == 0)
                                get_cols(2 * s + 2);
                }
        }
};

/* Puts what two neighbours make aside, in a word or two, and adds it up; asks only where eight would go. */
struct OfRow { float own, sum; };
template <int N>
struct PairOut {
        unsigned (&words)[N][2];
        OfRow &row;
        template <int K, int W, class T> __device__ __forceinline__ void put(T *, const float (&v)[W]) const
        {
                words[K][0] = pack2<T>(v[0], v[W > 1]);
                if (W == 4)
                        words[K][1] = pack2<T>(v[W - 2], v[W - 1]);
        }
        template <class Tail> __device__ __forceinline__ float of_row(const Tail &, int) const { return row.own; }
        __device__ __forceinline__ void sum(const float (&v)[2]) const { row.sum += v[0] + v[1]; }
};
template <int K0>
struct PlaceOut {
        void *&to;
        template <int K, int W, class T> __device__ __forceinline__ void put(T *p, const float (&)[W]) const
        {
                if (K == K0)
                        to = p;
        }
        template <class Tail> __device__ __forceinline__ float of_row(const Tail &, int) const { return 0.f; }
        template <int W> __device__ __forceinline__ void sum(const float (&)[W]) const {}
};

/* MmaTail for tails with STORES, which are called for the two neighbours that a lane has of every 8 columns: 16 rows x
 * WIDE columns at a time, whose results, already 16 bits wide, go through the warp's panel by stmatrix, so that a lane then
 * stores eight neighbours and eight lanes, or four, a line.  What the tail reads of rows comes the other way.  Nothing
 * is traded between lanes, and nothing kept: of the sums' registers none is free before the last sum is read.
 *
 * A panel is 16 rows of 128 bytes, in each of which the results lie side by side, the first where the reads were; chunk
 * c of 16 bytes stands at c ^ (row % 8): no two lanes of an access meet in a bank.  Of two sums a store has
 *
 *      2 values        as they lie in memory
 *      1               two fragments in one: a word is the two values of columns 8 apart
 *      4               a fragment in two chunks: the first has the first words of all lanes' two, the other the second
 *
 * and the lane that stores a chunk puts its words in order. */
template <int ROWS, int BN, int SPARE, class Tail>
struct PairTail {
        static constexpr int STORES = TailStores<Tail>::N;
        static __device__ __forceinline__ constexpr int width(int k) { return TailStores<Tail>::width(k); }
        static constexpr int WORDS = 8 * (width(0) + (STORES > 1 ? width(STORES - 1) : 0));     /* bytes of a fragment's row */
        static constexpr int FRAGMENTS = WORDS <= 16 && BN % 64 == 0 ? 8 : WORDS <= 32 ? 4 : 2, WIDE = 8 * FRAGMENTS;
        /* Chunks of store k in a row of the panel, and the first of them. */
        static __device__ __forceinline__ constexpr int chunks(int k) { return FRAGMENTS * width(k) / 2; }
        static __device__ __forceinline__ constexpr int first(int k) { return k ? chunks(0) : 0; }
        static constexpr int STEPS = ROWS * (BN / WIDE), EACH = chunks(0) / 2, COUNT = EACH * STEPS; /* a lane's lines */

        typedef TailReads<Tail, 16 / TailStores<Tail>::READ> Lines;
        typedef TailReads<Tail, 2> Pairs;
        static constexpr bool READS_AHEAD = Lines::ROWS > 0;
        static constexpr int AHEAD = !Lines::ROWS ? 1 : SPARE < EACH ? EACH : SPARE > COUNT ? COUNT : SPARE;
        Lines lines[AHEAD];
        Pairs pairs[4];                 /* of the columns at hand and the next */
        OfRow own[ROWS][2];             /* of a lane's rows: TailSums */
        const Tail &tail;
        char *panel;
        int row0, col0, M, N;
        bool whole;

        __device__ __forceinline__ PairTail(const Tail &tail_, char *panel_, int row0_, int col0_, int M_, int N_,
                                            bool whole_)
                : tail(tail_), panel(panel_), row0(row0_), col0(col0_), M(M_), N(N_), whole(whole_) {}

        static __device__ __forceinline__ int lane() { return threadIdx.x & 31; }
        __device__ __forceinline__ bool inside(int row, int col) const { return whole || (row < M && col < N); }
        /* Corner of panel s. */
        __device__ __forceinline__ int row_of(int s) const { return row0 + s % ROWS * 64; }
        __device__ __forceinline__ int col_of(int s) const { return col0 + s / ROWS * WIDE; }

        /* Line p of a lane in a panel, of store k, and where that lies in C. */
        static __device__ __forceinline__ int line(int p, int k)
        {
                return chunks(k) == 8 ? p * 4 + lane() / 8
                     : chunks(k) == 4 ? p * 8 + lane() / 4 % 2 * 4 + lane() / 8
                                      : lane() / 16 * 8 + lane() % 8 / 2 * 2 + lane() / 8 % 2;
        }
        __device__ __forceinline__ int row(int s, int p, int k) const { return row_of(s) + line(p, k); }
        __device__ __forceinline__ int col(int s, int k) const { return col_of(s) + lane() % chunks(k) * (16 / width(k)); }
        __device__ __forceinline__ char *chunk(int r, int c) const { return panel + r * 128 + (c ^ r % 8) * 16; }
        /* For ldmatrix and stmatrix: chunks c and c + 1, of each rows 0 to 7, then 8 to 15. */
        __device__ __forceinline__ char *matrices(int c) const { return chunk(lane() % 16, c + lane() / 16); }

        /* A lane's 16 bytes of memory to the panel, and back. */
        __device__ __forceinline__ void put(int p, const uint4 &x) const
        {
                const int r = line(p, 0), c = lane() % chunks(0);
                if (width(0) == 4) {
                        *(uint2 *)(chunk(r, c & ~1) + c % 2 * 8) = make_uint2(x.x, x.z);
                        *(uint2 *)(chunk(r, c | 1) + c % 2 * 8) = make_uint2(x.y, x.w);
                } else {
                        *(uint4 *)chunk(r, c) = x;
                }
        }
        template <int K>
        __device__ __forceinline__ uint4 take(int p) const
        {
                const int r = line(p, K), c = lane() % chunks(K);
                if (width(K) == 4) {
                        const uint2 a = *(const uint2 *)(chunk(r, first(K) + (c & ~1)) + c % 2 * 8),
                                    b = *(const uint2 *)(chunk(r, first(K) + (c | 1)) + c % 2 * 8);
                        return make_uint4(a.x, b.x, a.y, b.y);
                }
                const uint4 x = *(const uint4 *)chunk(r, first(K) + c);
                if (width(K) == 2)
                        return x;
                return make_uint4(__byte_perm(x.x, x.y, 0x5410), __byte_perm(x.z, x.w, 0x5410),
                                  __byte_perm(x.x, x.y, 0x7632), __byte_perm(x.z, x.w, 0x7632));
        }

        __device__ __forceinline__ void get_rows(int p)
        {
                const int s = p / EACH, r = row(s, p % EACH, 0), c = col(s, 0);
                if (inside(r, c))
                        lines[p % AHEAD].get_rows(tail, r, c);
        }
        /* Of fragments j and j + 1 of panel s. */
        __device__ __forceinline__ void get_cols(int s, int j)
        {
#pragma unroll
                for (int f = j; f < j + 2; f++) {
                        const int c = col_of(s) + f * 8 + lane() % 4 * 2;
                        if (inside(0, c))
                                pairs[f % 4].get_cols(tail, c);
                }
        }
        __device__ __forceinline__ void start()
        {
#pragma unroll
                for (int p = 0; p < AHEAD && Lines::ROWS; p++)
                        get_rows(p);
        }
        /* What was read of panel s; reads for a later one start. */
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
        /* Of fragments j and j + 1, rows 0 to 7 and 8 to 15 of each. */
        __device__ __forceinline__ void read_pairs(unsigned (&read)[4][2], int j) const
        {
                constexpr bool WIDE_READ = TailStores<Tail>::READ == 4;
#pragma unroll
                for (int f = 0; f < 1 + WIDE_READ; f++) {
                        unsigned x[4];
                        ldmatrix_x4(x, matrices(WIDE_READ ? 2 * (j + f) : j));
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                read[WIDE_READ ? 2 * f + i % 2 : i][WIDE_READ ? i / 2 : 0] = x[i];
                }
        }
        template <int K>
        __device__ __forceinline__ void write_pairs(const unsigned (&out)[4][STORES][2], int j) const
        {
                if (width(K) == 2) {
                        stmatrix_x4(matrices(first(K) + j), { out[0][K][0], out[1][K][0], out[2][K][0], out[3][K][0] });
                } else if (width(K) == 1) {
                        stmatrix_x2(chunk(lane() % 16, first(K) + j / 2), { __byte_perm(out[0][K][0], out[2][K][0], 0x5410),
                                                                           __byte_perm(out[1][K][0], out[3][K][0], 0x5410) });
                } else {
#pragma unroll
                        for (int f = 0; f < 2; f++)
                                stmatrix_x4(matrices(first(K) + 2 * (j + f)), { out[2 * f][K][0], out[2 * f + 1][K][0],
                                                                                out[2 * f][K][1], out[2 * f + 1][K][1] });
                }
        }
        __device__ __forceinline__ void get_own()
        {
#pragma unroll
                for (int i = 0; i < 2 * ROWS; i++) {
                        const int r = row_of(i / 2) + i % 2 * 8 + lane() / 4;
                        own[i / 2][i % 2] = { whole || r < M ? tail.get_row(r) : 0.f, 0.f };
                }
        }
        /* Of all four lanes that share a row. */
        __device__ __forceinline__ void put_sums()
        {
#pragma unroll
                for (int i = 0; i < 2 * ROWS; i++) {
                        const int r = row_of(i / 2) + i % 2 * 8 + lane() / 4;
                        float x = own[i / 2][i % 2].sum;
                        x += __shfl_xor_sync(0xffffffffu, x, 1);
                        x += __shfl_xor_sync(0xffffffffu, x, 2);
                        if (lane() % 4 == 0 && (whole || r < M))
                                tail.put_sum(r, col0 / BN, x);
                }
        }
        /* Results of pair h of fragment j of panel s; read: of its row. */
        __device__ __forceinline__ void call(float a, float b, int s, int j, int h, const unsigned (&read)[2],
                                             unsigned (&out)[STORES][2])
        {
                const int r = row_of(s) + h * 8 + lane() / 4, c = col_of(s) + j * 8 + lane() % 4 * 2;
                float v[2] = { a, b };
                if (TailSums<Tail>::ASKS && !inside(r, c))      /* the others only make `out`: store_lines asks */
                        return;
                Pairs in = pairs[j % 4];
                if (Lines::ROWS) {
                        reinterpret_cast<unsigned &>(in) = read[0];
                        if constexpr (TailStores<Tail>::READ == 4)
                                (&reinterpret_cast<unsigned &>(in))[1] = read[1];
                }
                in.call(tail, r, c, v, PairOut<STORES>{ out, own[s % ROWS][h] });
        }
        /* Where store K of eight sums goes. */
        template <int K>
        __device__ __forceinline__ void *place(int r, int c) const
        {
                void *to = 0;
                float none[8];
                TailReads<Tail, 8> nothing;
                nothing.call(tail, r, c, none, PlaceOut<K>{ to });
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
                        if (width(K) == 1) {            /* of eight sums 8 bytes, aligned to as many */
                                *(uint2 *)place<K>(r, c) = make_uint2(x.x, x.y);
                                if (inside(r, c + 8))
                                        *(uint2 *)place<K>(r, c + 8) = make_uint2(x.z, x.w);
                        } else {
                                *(uint4 *)place<K>(r, c) = x;
                        }
                }
        }
        __device__ __forceinline__ void run(const float (&acc)[ROWS][BN / 8][4])
        {
                if constexpr (TailSums<Tail>::ASKS)
                        get_own();
                get_cols(0, 0);
#pragma unroll
                for (int s = 0; s < STEPS; s++) {
                        if (Lines::ROWS) {
                                put_lines(s);
                                __syncwarp();
                        }
#pragma unroll
                        for (int j = 0; j < FRAGMENTS; j += 2) {
                                unsigned read[4][2] = {}, out[4][STORES][2] = {};
                                if (Lines::ROWS)
                                        read_pairs(read, j);
                                if (j + 2 < FRAGMENTS || s + 1 < STEPS)
                                        get_cols(s + (j + 2) / FRAGMENTS, (j + 2) % FRAGMENTS);
#pragma unroll
                                for (int i = 0; i < 4; i++) {
                                        const float (&v)[4] = acc[s % ROWS][s / ROWS * FRAGMENTS + j + i / 2];
                                        call(v[i % 2 * 2], v[i % 2 * 2 + 1], s, j + i / 2, i % 2, read[i], out[i]);
                                }
                                write_pairs<0>(out, j);
                                if constexpr (STORES > 1)
                                        write_pairs<1>(out, j);
                        }
                        __syncwarp();
                        store_lines<0>(s);
                        if constexpr (STORES > 1)
                                store_lines<1>(s);
                        __syncwarp();
                }
                if constexpr (TailSums<Tail>::SUMS)
                        put_sums();
        }
};

#endif
#endif
