/* matmul_sm90.cuh: C = op(A) op(B) for bf16, f16 and tf32 on Hopper (sm_90a): wgmma fed by
 * a ring of shared memory stages.  Operands, tail and tiles are those of matmul.cuh;
 * only the way there differs, so a kernel built for sm_90a calls
 *
 *      matmul_tma_persistent<T, Tile, TRANS_A, TRANS_B>(map_a, map_b, M, N, K, first, step, smem, tail)
 *      matmul_tma_split<T, Tile, TRANS_A, TRANS_B, V>(map_a, map_b, M, N, K, splits, ws, first, step, smem)
 *      matmul_tma_joint<T, Tile, TRANS_A, TRANS_B>(map_a, map_b, M, N, K, ws, joined, sms, smem, tail)
 *
 * where it called matmul_task or matmul_split_task: tiles first, first + step, ... of all, so that the loads of a
 * tile run under the tail of the one before.  Rows and columns at the edge of C, and K, may be any size, K >= 1.
 * M may be less than the rows that A's map has (prompts): what these hold reaches only rows of C that are not stored.
 * One more argument, RowSums, has A's rows summed by the way.
 *
 * T float: of float32 matrices, whose values the copy engine rounds to tf32.  In bytes all is the same, since a row of a box has
 * 32 values and a wgmma 8 of K; but it takes words with K contiguous alone.  So B without TRANS_B comes as a copy that has
 * (Slabs<Tile>, and TRANS_B then), and TRANS_A's operand goes through registers (WordsOfA).
 *
 * Operands come through tensor maps: one thread issues boxes of 64x64 values, of float 32x32; the copy
 * engine swizzles and fills with zeros outside.  What the caller does once per operand, when its address is
 * known: cuTensorMapEncodeTiled, BFLOAT16, FLOAT16 or TFLOAT32, rank 2, dims {columns, rows} of the matrix
 * as it lies in memory, one stride of ld elements (in bytes a multiple of 16; address 16-byte
 * aligned), that box, element strides 1, no interleave, SWIZZLE_128B, L2 promotion
 * 256 B, out of bounds zero.  The 128 bytes are a parameter of the kernel, by value (TmaMap in
 * tgc.cuh), and map_a and map_b its address.  One map serves every tile shape and both uses of a
 * matrix (transposed or not).
 *
 * How the warpgroups meet.  Stage s has two mbarriers: full[s] (loads have landed)
 * and empty[s] (every warp that reads it is done).  Each side counts steps through
 * all its tiles; stage and parity follow from the count.  Warpgroup 0 loads, ahead into the next
 * tile too, and gives most of its registers to the two that multiply.  So that a tail runs while the
 * tensor cores are busy:
 *
 *      sharing a tile  consumer 0 starts LEAD steps ahead of consumer 1, which still multiplies
 *                      while 0 is in its tail.  No more than the ring holds is hidden, but a 128x256
 *                      tile needs the least shared memory traffic.
 *      taking turns    (S...t) each has whole tiles; one's tail, however long, hides under the other's
 *                      products.  A named barrier hands the turn over once the last step has begun:
 *                      a parity tells only neighbouring rounds of a stage apart, so nobody may
 *                      wait for a stage while the round before is still to come.
 *
 * In pairs (S...p) two blocks of a cluster take tiles one above the other, which multiply the same part of B: each
 * block loads every other box of it into both.  A stage is empty when the warps of both blocks are done with it.
 * Without that 128x128 tiles ask for more than the 48 bytes a clock that L2 gives a multiprocessor.  An even number of
 * rows of tiles (jointly: or the last ones multiply what nobody wants); the kernel has __cluster_dims__(2, 1, 1); first is
 * blockIdx.x and step gridDim.x, an even number.
 *
 * Jointly (S...pN) N pairs of blocks have a tile's K in parts, where tiles are too few for the multiprocessors.  Each
 * finishes some of its columns, whose sums the others leave for it in L2.
 *
 * So that a tail does not wait for memory, its reads start LAST_STEPS before its products end, as many as there are
 * registers left. */
#ifndef TGC_MATMUL_SM90_CUH
#define TGC_MATMUL_SM90_CUH

#include "tail_sm90.cuh"
#ifdef TGC_SM90A

/* ---- tile shapes -------------------------------------------------------- */

/* SHARE 2: the two consumers share a tile, BM / 2 rows each.  1: they take tiles in turns.  BK: of 16-bit values. */
template <int BM_, int BN_, int SHARE_, int STAGES_, int LEAD_ = 2, bool PAIR_ = false, int PARTS_ = 1>
struct STile {
        static constexpr int BM = BM_, BN = BN_, BK = 64, SHARE = SHARE_, STAGES = STAGES_, PARTS = PARTS_;
        static constexpr bool PAIR = PAIR_;
        static constexpr int WHOLE_M = PAIR ? 2 * BM : BM, WHOLE_N = BN;        /* if they divide C no tile is cut */
        static constexpr int MINB = 1, THREADS = 128 * 3;
        static constexpr int WM = BM / SHARE;                   /* rows per consumer */
        static constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2, STAGE = A_BYTES + B_BYTES;
        static constexpr int RING = STAGES * STAGE + 2 * STAGES * 8 + (PARTS > 1 ? 8 : 0);
        static constexpr int PANEL = 2048, PANELS = (RING + 127) / 128 * 128;   /* a warp's for its tail; where they begin */
        static constexpr int SMEM = PANELS + 8 * PANEL;
        static constexpr bool SIMT = false;
        static constexpr int LEAD = SHARE == 2 ? LEAD_ : 0;
        static constexpr int COPIERS = 0;                       /* threads that load by cp.async (expert_sm90.cuh) */
        static constexpr bool SLABS = false;
        static_assert(WM % 64 == 0 && BN % 64 == 0 && WM / 64 * BN <= 384, "64 rows a product, sums in registers");
        static_assert(LEAD < STAGES, "what one consumer waits for does not wait for the other");
};

/* The rows of ../matmul_tiles_sm90.def. */
typedef STile<128, 256, 2, 4> S128x256;
typedef STile<128, 192, 2, 5> S128x192;
typedef STile<256, 128, 2, 4> S256x128;
typedef STile<128, 128, 2, 6> S128x128;
typedef STile<128, 128, 1, 6> S128x128t;
typedef STile<128, 192, 1, 5> S128x192t;
/* The same in pairs. */
typedef STile<128, 128, 1, 6, 0, true> S128x128p;
typedef STile<128, 192, 1, 5, 0, true> S128x192p;
/* Jointly. */
typedef STile<128, 128, 2, 6, 0, true, 2> S128x128p2;
typedef STile<128, 128, 2, 6, 0, true, 4> S128x128p4;

/* The same in pairs, where the two consumers share a tile. */
template <class Tile>
struct Pairs : Tile {
        static constexpr bool PAIR = true;
        static constexpr int WHOLE_M = 2 * Tile::BM;
};

/* The same where B is a copy in slabs (transpose.cuh), each a matrix of its own, all below each other: its map is that of
 * (slabs * N, 32) float. */
template <class Tile>
struct Slabs : Tile { static constexpr bool SLABS = true; };

/* The same, BK of T. */
template <class T, class Tile>
struct TileOf : Tile { static constexpr int BK = 128 / (int)sizeof(T); };

/* ---- sums of op(A)'s rows, of its columns as they lie where TRANS_A: bias gradients beside dW ----------- */

/* parts: float (splits * tiles across N, M), to be added up in order.  The tiles that share rows of A share its K-steps
 * out among themselves, one more product each against a matrix of ones, the ROW_SUMS_SMEM bytes behind the tile's; words
 * that go through registers are added there. */
enum { ROW_SUMS_SMEM = 256 };
struct RowSums { static constexpr bool ON = true; float *parts; };
struct NoSums { static constexpr bool ON = false; };

/* ---- work: what a block computes, one piece after the other ----------------- */

/* C at (m, n), over the K-steps [kt0, kt1); split: which part of K that is. */
struct Piece { int m, n, kt0, kt1, split; };

/* What the kinds of work have (and those of expert_sm90.cuh):
 *
 *      Part, get(i, Part &)    the i-th piece of this block; false: there are fewer
 *      EMPTY                   a piece may have no steps: zeros
 *      rows(p)                 rows of C, or p's last one and one more: those below are not stored
 *      End, tail_of(p, i)      what finishes a piece
 *      KEEPS                   registers that all this takes more than a plain product does */

/* Tile t; of pairs the rows of tiles are an even number. */
template <class Tile>
TGC_DEV TileAt tile_of(int t, int M, int N)
{
        return tile_at<Tile>(t, Tile::PAIR ? (M + Tile::WHOLE_M - 1) / Tile::WHOLE_M * Tile::WHOLE_M : M, N);
}

template <class Tile>
TGC_DEV int k_steps(int K) { return (K + Tile::BK - 1) / Tile::BK; }

/* Tiles first, first + step, ... below end; the caller's tail. */
template <class Tile, class Tail>
struct TileWork {
        typedef Tail End;
        typedef Piece Part;
        static constexpr bool EMPTY = false;
        static constexpr int KEEPS = 0;
        int M, N, K, first, end, step;
        const Tail &tail;

        __device__ __forceinline__ bool get(int i, Piece &p) const
        {
                const int t = first + i * step;
                if (t >= end)
                        return false;
                const TileAt at = tile_of<Tile>(t, M, N);
                p.m = at.m, p.n = at.n, p.kt0 = 0, p.kt1 = k_steps<Tile>(K), p.split = 0;
                return true;
        }
        __device__ __forceinline__ const Tail &tail_of(const Piece &, int) const { return tail; }
        __device__ __forceinline__ int rows(const Piece &) const { return M; }
};

/* Tiles of splits, as matmul_split_task numbers them: first, first + step, ...; splits <= K-steps. */
template <class Tile, int V>
struct SplitWork {
        typedef SplitTail<V> End;
        typedef Piece Part;
        static constexpr bool EMPTY = false;
        static constexpr int KEEPS = 0;
        int M, N, K, splits, first, step;
        float *ws;                      /* (splits, M, N) */

        __device__ __forceinline__ int tiles() const { return matmul_tiles<Tile>(M, N); }
        __device__ __forceinline__ bool get(int i, Piece &p) const
        {
                const int t = first + i * step, s = t / tiles(), steps = k_steps<Tile>(K);
                const TileAt at = tile_at<Tile>(t - s * tiles(), M, N);
                p.m = at.m, p.n = at.n, p.split = s;
                p.kt0 = (int)((long)steps * s / splits), p.kt1 = (int)((long)steps * (s + 1) / splits);
                return s < splits;
        }
        __device__ __forceinline__ SplitTail<V> tail_of(const Piece &, int i) const
        {
                return { ws + (long)((first + i * step) / tiles()) * M * N, N };
        }
        __device__ __forceinline__ int rows(const Piece &) const { return M; }
};

/* One part of a tile.  Where multiprocessors are fewer than blocks the first pair to start has the first tiles' first
 * part, and so on: the hardware starts them in an order of its own, and a tile's wait for each other, so that those that
 * run could wait for others that have no place. */
template <class Tile, class Tail>
struct JointWork {
        typedef Tail End;
        int M, N, K;
        float *ws;                      /* for each tile its columns of each part, as each of the others sends them */
        int *joined;                    /* pairs that have started; for each tile, blocks that had sent theirs, ever */
        int sms, *pair;                 /* which we are, in shared memory of the cluster's first block */
        const Tail &tail;

        __device__ __forceinline__ bool in_order() const { return (int)gridDim.x <= sms; }
        /* One thread of that block, before the cluster meets.  The last pair to start leaves 0. */
        __device__ __forceinline__ void start() const
        {
                pdl_wait();
                *pair = atomicAdd(joined, 1);
                if (*pair == (int)gridDim.x / 2 - 1)
                        *joined = 0;
        }
        __device__ __forceinline__ bool get(int i, Piece &p, int &tile) const
        {
                const int at = in_order() ? (int)blockIdx.x / 2 : ld_cluster(pair, 0), steps = k_steps<Tile>(K);
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

/* ---- the ring ------------------------------------------------------------ */

/* TGC_BOUNDED: give up with a trap after two seconds instead of hanging. */
TGC_DEV void ring_wait(Mbar *bar, unsigned parity)
{
#ifdef TGC_BOUNDED
        if (mbarrier_try_wait(bar, parity))
                return;
        for (const long long from = clock64(); !mbarrier_try_wait(bar, parity); )
                if (clock64() - from > 4000000000LL)
                        __trap();
#else
        mbarrier_wait(bar, parity);
#endif
}

/* Where one side stands: its stage, and how often (mod 2) it went round. */
template <class Tile>
struct Ring {
        char *smem;
        int stage;
        unsigned round;

        __device__ __forceinline__ Ring(char *smem_) : smem(smem_), stage(0), round(0) {}
        __device__ __forceinline__ Mbar *full(int s) const { return (Mbar *)(smem + Tile::STAGES * Tile::STAGE) + s; }
        __device__ __forceinline__ Mbar *empty(int s) const { return full(s) + Tile::STAGES; }
        __device__ __forceinline__ char *a() const { return smem + stage * Tile::STAGE; }
        __device__ __forceinline__ char *b() const { return a() + Tile::A_BYTES; }
        __device__ __forceinline__ void wait_full() const { ring_wait(full(stage), round); }
        /* A warp is done with stage s. */
        __device__ __forceinline__ void leave(int s, int lane) const
        {
                if constexpr (Tile::PAIR) {
                        if (lane < 2)
                                mbarrier_arrive_cluster(empty(s), lane);
                } else if (lane == 0) {
                        mbarrier_arrive(empty(s));
                }
        }
        __device__ __forceinline__ bool is_full() const { return mbarrier_try_wait(full(stage), round); }
        /* In the first round nothing is to be waited for: a fresh barrier counts the phase before its first,
         * which has the other parity, as done. */
        __device__ __forceinline__ void wait_empty() const { ring_wait(empty(stage), round ^ 1); }
        /* Over n steps that others do. */
        __device__ __forceinline__ void skip(int n)
        {
                const int to = stage + n;
                stage = to % Tile::STAGES;
                round ^= to / Tile::STAGES & 1;
        }
        __device__ __forceinline__ void next()
        {
                if (++stage == Tile::STAGES)
                        stage = 0, round ^= 1;
        }
        /* The stage `back` steps ago. */
        __device__ __forceinline__ int before(int back) const
        {
                return stage >= back ? stage - back : stage - back + Tile::STAGES;
        }
};

/* ---- loading ----------------------------------------------------------------- */

/* Boxes of BK values of C's side by BK of K: BK rows of 128 bytes as the matrix has them, 8 KB (float: 4), one box after the
 * other along C's side.  In a row chunk c of 16 bytes stands at c ^ (row % 8). */
template <class Tile, bool TRANS_A, bool TRANS_B>
struct Loader {
        static constexpr int REGS = 24, THREADS = 1, BOX = Tile::BK;
        const void *a, *b;              /* maps */
        int N;

        /* KMAJOR: K is contiguous, rows are C's side; otherwise rows are K.  HALF: boxes `from`, from + 2, ..., for both
         * blocks of the pair. */
        template <bool KMAJOR, int BOXES, bool HALF>
        static __device__ __forceinline__ void load(char *panel, const void *map, Mbar *bar, int first, int k0, int from)
        {
#pragma unroll 1
                for (int j = from; j < BOXES; j += HALF ? 2 : 1) {
                        const int x = KMAJOR ? k0 : first + BOX * j, y = KMAJOR ? first + BOX * j : k0;
                        if (HALF)
                                tma_load_2d_multicast(panel + j * (BOX * 128), map, bar, x, y, 3);
                        else
                                tma_load_2d(panel + j * (BOX * 128), map, bar, x, y);
                }
        }

        __device__ __forceinline__ void load_a(const Ring<Tile> &ring, const Piece &p, int kt) const
        {
                load<!TRANS_A, Tile::BM / BOX, false>(ring.a(), a, ring.full(ring.stage), p.m, kt * BOX, 0);
        }
        __device__ __forceinline__ void load_b(const Ring<Tile> &ring, const Piece &p, int kt) const
        {
                load<TRANS_B, Tile::BN / BOX, Tile::PAIR>(ring.b(), b, ring.full(ring.stage),
                                                         p.n + (Tile::SLABS ? kt * N : 0), Tile::SLABS ? 0 : kt * BOX,
                                                         Tile::PAIR ? (cluster_rank() ^ kt) & 1 : 0);
        }
        __device__ __forceinline__ void announce(const Ring<Tile> &ring) const
        {
                mbarrier_expect_tx(ring.full(ring.stage), Tile::STAGE);
        }

        /* One thread.  WAITS: the caller has not waited for the kernel before, which makes A and what the tail reads, but not
         * B; of the first stages B comes meanwhile.  (Elsewhere that costs steps of training 0.5 to 1.2%.) */
        template <bool WAITS, class Work>
        __device__ __forceinline__ void run(Ring<Tile> ring, const Work &work) const
        {
                Piece p;
                int ahead = 0;
                if constexpr (WAITS) {
                        Ring<Tile> first = ring;
                        ahead = work.get(0, p) ? p.kt1 - p.kt0 : 0;
                        ahead = ahead < Tile::STAGES ? ahead : Tile::STAGES;
                        for (int k = 0; k < ahead; k++, first.next()) {
                                announce(first);
                                load_b(first, p, p.kt0 + k);
                        }
                        pdl_wait();
                }
                for (int i = 0; work.get(i, p); i++)
                        for (int kt = p.kt0; kt < p.kt1; kt++) {
                                const bool has_b = WAITS && ahead-- > 0;
                                if (!has_b) {
                                        ring.wait_empty();
                                        announce(ring);
                                }
                                load_a(ring, p, kt);
                                if (!has_b)
                                        load_b(ring, p, kt);
                                ring.next();
                        }
        }
};

/* ---- multiplying ----------------------------------------------------------- */

/* Descriptor of an operand in the layout above (PTX ISA, "matrix descriptor format" of wgmma, and the
 * canonical layouts beside it).  sbo: from one block of 8 rows to the next, 1024 bytes.  lbo: with K
 * contiguous not looked at, since the 16 values of k that one wgmma reads lie in one swizzled row; otherwise from one
 * block of 64 of C's side to the next, BK rows of 128 bytes.  The base offset is 0: panels are 1024-byte aligned. */
template <bool KMAJOR, int BK>
TGC_DEV unsigned long long panel_desc(const char *panel)
{
        return KMAJOR ? wgmma_desc_k128(panel) : wgmma_desc(panel, BK * 128, 1024, SWIZZLE_128);
}

/* To the next 16 of k, in the descriptor's 16-byte units: 32 bytes along a row, or 16 rows of 128. */
template <bool KMAJOR> TGC_DEV constexpr unsigned long long desc_k() { return KMAJOR ? 2 : 128; }
/* To rows 64 further on of C's side: 64 rows of 128 bytes, or the next block of BK rows. */
template <bool KMAJOR, int BK> TGC_DEV constexpr unsigned long long desc_64() { return KMAJOR ? 512 : BK * 8; }

/* Of which T's A the lanes read and hand to wgmma: whose rows are K. */
template <class T, bool TRANS_A>
TGC_DEV constexpr bool by_words() { return sizeof(T) == 4 && TRANS_A; }

/* A stage's A by words, of MI times 64 rows of C: fragments as of mma_1688_tf32, for 8 of K each.  Lane g * 4 + t wants rows g
 * and g + 8, k t and t + 4; of one k those of g >= 4 stand in another chunk, so that two lanes would meet in every bank,
 * were it not that these read t + 4 first. */
template <int MI>
struct WordsOfA {
        int at;
        bool turned;

        /* row0: of C, within the tile. */
        __device__ __forceinline__ WordsOfA(int row0, int lane) : turned(lane & 16)
        {
                const int g = lane / 4, k = lane % 4 + g / 4 * 4, m = row0 % 32 + g;
                at = row0 / 32 * 4096 + k * 128 + (m / 4 ^ k) * 16 + m % 4 * 4;
        }
        __device__ __forceinline__ unsigned read(const char *panel, int m, int ks, int row, int k) const
        {
                return *(const unsigned *)(panel + (at ^ row * 32 ^ k * (512 + 64)) + m * 8192 + ks * 1024);
        }
        __device__ __forceinline__ void read(unsigned (&a)[4], const char *panel, int m, int ks) const
        {
#pragma unroll
                for (int row = 0; row < 2; row++) {
                        const unsigned x = read(panel, m, ks, row, 0), y = read(panel, m, ks, row, 1);
                        a[row] = turned ? y : x;
                        a[row + 2] = turned ? x : y;
                }
        }
};

/* Step k of a tile whose A comes by words. */
template <bool SUM, class T, class Tile, int MI>
TGC_DEV void words_step(Ring<Tile> &ring, const WordsOfA<MI> &words, unsigned long long b0,
                        float (&acc)[MI][Tile::BN / 8][4], float (&sums)[MI][4], unsigned (&a)[MI][4][4], int k, int lane)
{
        const unsigned long long at = (unsigned long long)(ring.stage * (Tile::STAGE / 16));
        ring.wait_full();
#pragma unroll
        for (int i = 0; i < MI * 4; i++) {
                unsigned (&f)[4] = a[i / 4][i % 4];
                words.read(f, ring.a(), i / 4, i % 4);
                if (SUM) {
                        sums[i / 4][0] += __uint_as_float(f[0]) + __uint_as_float(f[2]);
                        sums[i / 4][2] += __uint_as_float(f[1]) + __uint_as_float(f[3]);
                }
        }
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 4; ks++)
#pragma unroll
                for (int m = 0; m < MI; m++)
                        wgmma<0>(reinterpret_cast<float (&)[Tile::BN / 2]>(acc[m]), a[m][ks], b0 + at + ks * desc_k<true>(),
                                 ks > 0 || k > 0, T());
        wgmma_commit();
        wgmma_wait<1>();
        if (k > 0)
                ring.leave(ring.before(1), lane);
        ring.next();
}

/* Two by two: while the products of one step read their registers, the next one's words come into others.  (Where ptxas is
 * not sure of that, it waits for every product: "wgmma.mma_async instructions are serialized".) */
template <bool SUM, class T, class Tile, int MI>
TGC_DEV void words_steps(Ring<Tile> &ring, const WordsOfA<MI> &words, unsigned long long b0,
                         float (&acc)[MI][Tile::BN / 8][4], float (&sums)[MI][4], int k0, int k1, int lane, int lead)
{
        unsigned a[2][MI][4][4];
        int k = k0;
#pragma unroll 1
        for (; k + 2 <= k1; k += 2) {
                words_step<SUM, T>(ring, words, b0, acc, sums, a[0], k, lane);
                words_step<SUM, T>(ring, words, b0, acc, sums, a[1], k + 1, lane);
                if (Tile::LEAD > 0 && (k == lead - 2 || k == lead - 1))
                        bar_arrive(1, 256);
        }
        if (k < k1) {
                wgmma_wait<0>();
                words_step<SUM, T>(ring, words, b0, acc, sums, a[0], k, lane);
                if (Tile::LEAD > 0 && k == lead - 1)
                        bar_arrive(1, 256);
        }
        wgmma_wait<0>();
}

/* Step k of a tile: its products start, those of the step before are waited for.  SUM: A's against ones as
 * well, from step `first` on. */
template <bool SUM, class T, class Tile, bool TRANS_A, bool TRANS_B, int MI>
TGC_DEV void wgmma_step(Ring<Tile> &ring, unsigned long long a0, unsigned long long b0, unsigned long long ones,
                        float (&acc)[MI][Tile::BN / 8][4], float (&sums)[MI][4], int k, int first, int lane)
{
        const unsigned long long at = (unsigned long long)(ring.stage * (Tile::STAGE / 16));
        ring.wait_full();
        if (Tile::COPIERS)
                fence_proxy_async();            /* what cp.async wrote, for wgmma */
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 4; ks++)          /* of 32 bytes */
#pragma unroll
                for (int m = 0; m < MI; m++) {
                        const unsigned long long am = a0 + at + m * desc_64<!TRANS_A, Tile::BK>()
                                                    + ks * desc_k<!TRANS_A>();
                        wgmma<TRANS_A, !TRANS_B>(reinterpret_cast<float (&)[Tile::BN / 2]>(acc[m]), am,
                                                 b0 + at + ks * desc_k<TRANS_B>(), ks > 0 || k > 0, T());
                        if constexpr (SUM)
                                wgmma<TRANS_A, 0>(sums[m], am, ones, ks > 0 || k > first, T());
                }
        wgmma_commit();
        wgmma_wait<1>();
        if (k > 0)
                ring.leave(ring.before(1), lane);
        ring.next();
}

/* Steps [k0, k1); after `lead` of them the other consumer may start. */
template <bool SUM, class T, class Tile, bool TRANS_A, bool TRANS_B, int MI>
TGC_DEV void wgmma_steps(Ring<Tile> &ring, unsigned long long a0, unsigned long long b0, unsigned long long ones,
                         float (&acc)[MI][Tile::BN / 8][4], float (&sums)[MI][4], int k0, int k1, int lane, int lead,
                         const WordsOfA<MI> &words)
{
        if constexpr (by_words<T, TRANS_A>()) {
                words_steps<SUM, T>(ring, words, b0, acc, sums, k0, k1, lane, lead);
        } else {
#pragma unroll 1                                /* the last steps, written out, cost ptxas half of its time */
                for (int k = k0; k < k1; k++) {
                        wgmma_step<SUM, T, Tile, TRANS_A, TRANS_B>(ring, a0, b0, ones, acc, sums, k, k0, lane);
                        if (Tile::LEAD > 0 && k == lead - 1)
                                bar_arrive(1, 256);
                }
        }
}

/* ---- tails ------------------------------------------------------------------------ */

/* Which of the three, of a consumer's warp.  PanelTail: beside 192 sums there are no registers for a panel's rows and
 * for reads (the residual at K = 3072: 4% slower than trading; GELU with two stores at K = 768: 9%). */
enum { BY_TRADING, BY_PANEL, BY_PAIRS };
template <class Tile, class Tail>
TGC_DEV constexpr int end_of()
{
        if (Tail::MAXV == 8 && TailStores<Tail>::pairs())
                return BY_PAIRS;
        if (Tail::MAXV == 8 && Tile::SHARE < 2 && (Tile::BN < 192 || TailReads<Tail, 8>::N == 0))
                return BY_PANEL;
        return BY_TRADING;
}

template <class Tile>
TGC_DEV constexpr bool is_whole(int M, int N) { return M % Tile::WHOLE_M == 0 && N % Tile::WHOLE_N == 0; }

template <class Tile, int MI, int SPARE, class Tail, int HOW = end_of<Tile, Tail>()>
struct Ends : MmaTail<MI, Tile::BN, 64, SPARE, Tail> {
        __device__ __forceinline__ Ends(const Tail &tail, char *, int row0, int col0, int M, int N)
                : MmaTail<MI, Tile::BN, 64, SPARE, Tail>(tail, row0, col0, M, N, is_whole<Tile>(M, N)) {}
};
template <class Tile, int MI, int SPARE, class Tail>
struct Ends<Tile, MI, SPARE, Tail, BY_PANEL> : PanelTail<MI, Tile::BN, SPARE, Tail> {
        __device__ __forceinline__ Ends(const Tail &tail, char *smem, int row0, int col0, int M, int N)
                : PanelTail<MI, Tile::BN, SPARE, Tail>(tail, smem + Tile::PANELS + (int)(threadIdx.x / 32 - 4) * Tile::PANEL,
                                                       row0, col0, M, N, is_whole<Tile>(M, N)) {}
};
template <class Tile, int MI, int SPARE, class Tail>
struct Ends<Tile, MI, SPARE, Tail, BY_PAIRS> : PairTail<MI, Tile::BN, SPARE, Tail> {
        __device__ __forceinline__ Ends(const Tail &tail, char *smem, int row0, int col0, int M, int N)
                : PairTail<MI, Tile::BN, SPARE, Tail>(tail, smem + Tile::PANELS + (int)(threadIdx.x / 32 - 4) * Tile::PANEL,
                                                       row0, col0, M, N, is_whole<Tile>(M, N)) {}
};

/* The same address, but one that ptxas cannot make again: in every step it would, from the block's place in the
 * cluster (0.6% of GPT-2's step). */
TGC_DEV char *from_lane0(char *smem)
{
        return (char *)__cvta_shared_to_generic(__shfl_sync(0xffffffffu, (unsigned)__cvta_generic_to_shared(smem), 0));
}

/* Reads of a tail start this many steps before the end of a tile: two microseconds or more. */
enum { LAST_STEPS = 4 };

template <class T, class Tile, bool TRANS_A, bool TRANS_B, class Work, class Sums>
TGC_DEV void wgmma_consume(Ring<Tile> ring, const Work &work, int N, const Sums &rows)
{
        constexpr int MI = Tile::WM / 64, SUMS = MI * Tile::BN / 2;
        /* Reads of 16 bytes that fit beside the sums. */
        /* What a call reads and stores of words is spread over more calls, and A's words want registers too. */
        constexpr int KEEPS = Work::KEEPS + (sizeof(T) == 4 ? 32 : 0) + (by_words<T, TRANS_A>() ? MI * 32 : 0);
        constexpr int SPARE = SUMS + KEEPS > 172 ? 2 : (180 - KEEPS - SUMS) / 4;
        const int consumer = (int)threadIdx.x / 128 - 1, warp = (int)threadIdx.x / 32 % 4, lane = threadIdx.x & 31;
        ring.smem = from_lane0(ring.smem);
        const int part = Tile::SHARE == 2 ? consumer : 0;
        const int row0 = part * Tile::WM + warp * 16;
        /* The same in all lanes and warps of the group, as wgmma wants its descriptors. */
        const unsigned long long a0 = panel_desc<!TRANS_A, Tile::BK>(ring.smem)
                                    + __shfl_sync(0xffffffffu, part, 0) * MI * desc_64<!TRANS_A, Tile::BK>();
        const unsigned long long b0 = panel_desc<TRANS_B, Tile::BK>(ring.smem + Tile::A_BYTES);
        const unsigned long long ones = wgmma_desc(ring.smem + Tile::SMEM, 128, 128, SWIZZLE_NONE);
        typename Work::Part p, next;
        WordsOfA<MI> words(row0, lane);

        for (int i = 0; work.get(i, p); i++) {
                if (Tile::SHARE == 1 && (i & 1) != consumer) {
                        ring.skip(p.kt1 - p.kt0);
                        continue;
                }
                if (Tile::SHARE == 1 ? i > 0 : Tile::LEAD > 0 && i == 0 && consumer == 1)
                        bar_sync(1 + (i & 1), 256);
                float acc[MI][Tile::BN / 8][4];
                const auto &tail = work.tail_of(p, i);
                const int M = work.rows(p);
                Ends<Tile, MI, SPARE, typename Work::End> ends(tail, ring.smem, p.m + row0, p.n, M, N);
                const int steps = p.kt1 - p.kt0, early = !ends.READS_AHEAD ? steps : steps < LAST_STEPS ? 0 : steps - LAST_STEPS;
                int more = Tile::SHARE == 1 && work.get(i + 1, next);
                asm volatile("" : "+r"(more));          /* known here, not looked up while the other consumer waits */
                const int lead = i > 0 || consumer > 0 ? 0 : steps < Tile::LEAD ? steps : Tile::LEAD;
                const int across = (N + Tile::BN - 1) / Tile::BN, at = p.n / Tile::BN;
                float sums[MI][4];
                int k = 0, k0 = 0;
                if constexpr (Sums::ON) {
                        k0 = steps * at / across, k = steps * (at + 1) / across;
                        if constexpr (by_words<T, TRANS_A>()) {
#pragma unroll
                                for (int m = 0; m < MI; m++)
                                        sums[m][0] = sums[m][2] = 0.f;
                        }
                        wgmma_steps<false, T, Tile, TRANS_A, TRANS_B>(ring, a0, b0, ones, acc, sums, 0, k0, lane, lead, words);
                        wgmma_steps<true, T, Tile, TRANS_A, TRANS_B>(ring, a0, b0, ones, acc, sums, k0, k, lane, lead, words);
                }
                wgmma_steps<false, T, Tile, TRANS_A, TRANS_B>(ring, a0, b0, ones, acc, sums, k, early, lane, lead, words);
                if constexpr (ends.READS_AHEAD) {
                        ends.start();
                        wgmma_steps<false, T, Tile, TRANS_A, TRANS_B>(ring, a0, b0, ones, acc, sums, k > early ? k : early,
                                                                      steps, lane, lead, words);
                }
                if (more)
                        bar_arrive(1 + ((i + 1) & 1), 256);
                wgmma_wait<0>();
                if (!Work::EMPTY || steps > 0)
                        ring.leave(ring.before(1), lane);
#pragma unroll
                for (int m = 0; m < MI; m++)
                        wgmma_hold(reinterpret_cast<float (&)[Tile::BN / 2]>(acc[m]));
                if (Work::EMPTY && steps == 0) {
                        if (Tile::LEAD > 0 && i == 0 && consumer == 0)
                                bar_arrive(1, 256);
#pragma unroll
                        for (int m = 0; m < MI * Tile::BN / 2; m++)
                                acc[m / (Tile::BN / 2)][m / 4 % (Tile::BN / 8)][m % 4] = 0.f;
                }
                if constexpr (Sums::ON) {               /* all columns are equal: those of the quad's first lane */
                        float *to = rows.parts + (long)(p.split * across + at) * M;
#pragma unroll
                        for (int m = 0; m < MI; m++)
#pragma unroll
                                for (int h = 0; h < 2; h++) {
                                        const int row = p.m + row0 + m * 64 + h * 8 + lane / 4;
                                        wgmma_hold(sums[m]);
                                        if (by_words<T, TRANS_A>()) {
                                                sums[m][2 * h] += __shfl_xor_sync(0xffffffffu, sums[m][2 * h], 1);
                                                sums[m][2 * h] += __shfl_xor_sync(0xffffffffu, sums[m][2 * h], 2);
                                        }
                                        if (lane % 4 == 0 && row < M)
                                                to[row] = k > k0 ? sums[m][2 * h] : 0.f;
                                }
                }
                ends.run(acc);
        }
}

/* ---- jointly ------------------------------------------------------------------- */

template <class Tile>
struct PartOf : Tile { static constexpr int BN = Tile::BN / Tile::PARTS; };

/* Until all n blocks that call it have: what they wrote before is to be seen after.  One thread; n a power of two, and
 * the count always a multiple of it before and after. */
TGC_DEV void join_blocks(int *joined, int n)
{
        __threadfence();
        const int end = (atomicAdd(joined, 1) | (n - 1)) + 1;
#ifdef TGC_BOUNDED
        for (const long long from = clock64(); load_acquire(joined) - end < 0; )
                if (clock64() - from > 4000000000LL)
                        __trap();
#else
        while (load_acquire(joined) - end < 0) { }
#endif
}

/* A thread has the same places of all tiles, so what one sends its like receives; neighbours' 16 bytes are neighbours. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, class Work>
TGC_DEV void wgmma_joint(Ring<Tile> ring, const Work &work)
{
        constexpr int MI = Tile::WM / 64, PARTS = Tile::PARTS, WIDE = Tile::BN / PARTS, J = WIDE / 8;
        constexpr int SPARE = 8, EACH = 256 * 4;                /* floats of all threads */
        static_assert(Tile::SHARE == 2 && Tile::PAIR && WIDE % 32 == 0 && (PARTS & (PARTS - 1)) == 0, "parts of columns");
        const int consumer = (int)threadIdx.x / 128 - 1, warp = (int)threadIdx.x / 32 % 4, lane = threadIdx.x & 31;
        const int row0 = consumer * Tile::WM + warp * 16, at = ((int)threadIdx.x - 128) * 4;
        const unsigned long long a0 = panel_desc<!TRANS_A, Tile::BK>(ring.smem)
                                    + __shfl_sync(0xffffffffu, consumer, 0) * MI * desc_64<!TRANS_A, Tile::BK>();
        const unsigned long long b0 = panel_desc<TRANS_B, Tile::BK>(ring.smem + Tile::A_BYTES);
        WordsOfA<MI> words(row0, lane);
        float acc[MI][Tile::BN / 8][4], own[MI][J][4], none[MI][4];
        Piece p;
        int tile;
        work.get(0, p, tile);
        wgmma_steps<false, T, Tile, TRANS_A, TRANS_B>(ring, a0, b0, 0, acc, none, 0, p.kt1 - p.kt0, lane, 0, words);
        wgmma_wait<0>();
#pragma unroll
        for (int m = 0; m < MI; m++)
                wgmma_hold(reinterpret_cast<float (&)[Tile::BN / 2]>(acc[m]));

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
                        float (&x)[4] = acc[i / J][q * J + i % J];
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
        Ends<PartOf<Tile>, MI, SPARE, typename Work::End> ends(work.tail, ring.smem, p.m + row0, col0, work.M, work.N);
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
                        float (&x)[4] = own[i / J][i % J];
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

/* ---- all together ------------------------------------------------------------ */

template <class T, class Tile, bool TRANS_A, bool TRANS_B, bool WAITS, class Load, class Work, class Sums>
TGC_DEV void matmul_tma_run(const Load &load, char *smem, const Work &work, const Sums &rows)
{
        /* 168 registers at entry (65536 / 384, down to a multiple of 8); what a loading thread gives
         * up two multiplying ones share. */
        constexpr int REGS = (3 * 168 - Load::REGS) / 2;
        Ring<Tile> ring(smem);
        if (threadIdx.x == 0) {
                for (int s = 0; s < Tile::STAGES; s++) {
                        mbarrier_init(ring.full(s), 1 + Tile::COPIERS);
                        mbarrier_init(ring.empty(s), 4 * Tile::SHARE * (Tile::PAIR ? 2 : 1));
                }
                fence_barrier_init();
                fence_proxy_async();
        }
        if constexpr (Sums::ON) {
                if (threadIdx.x < ROW_SUMS_SMEM / sizeof(T)) {
                        from_float((T *)(smem + Tile::SMEM) + threadIdx.x, 1.f);
                        fence_proxy_async();
                }
        }
        __syncthreads();
        if (Tile::PAIR)
                cluster_sync();                 /* the other block's barriers are there */
        if (threadIdx.x < 128) {
                setmaxnreg_dec<Load::REGS>();
                if (threadIdx.x < Load::THREADS)
                        load.template run<WAITS>(ring, work);
                __syncwarp();
        } else {
                setmaxnreg_inc<REGS>();
                if (WAITS)
                        pdl_wait();
                if constexpr (Tile::PARTS > 1)
                        wgmma_joint<T, Tile, TRANS_A, TRANS_B>(ring, work);
                else
                        wgmma_consume<T, Tile, TRANS_A, TRANS_B>(ring, work, work.N, rows);
        }
        __syncthreads();
        if (Tile::PAIR)
                cluster_sync();                 /* and are no longer needed */
        if (threadIdx.x == 0)
                for (int s = 0; s < 2 * Tile::STAGES; s++)
                        mbarrier_inval(ring.full(s));
        __syncthreads();
}

/* Tiles first, first + step, ... of all.  WAITS: see Loader. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, bool WAITS = false, class Tail, class Sums = NoSums>
TGC_DEV void matmul_tma_persistent(const void *map_a, const void *map_b, int M, int N, int K, int first, int step,
                                   char *smem, const Tail &tail, const Sums &rows = Sums())
{
        typedef TileOf<T, Tile> Own;
        const TileWork<Own, Tail> work = { M, N, K, first, matmul_tiles<Own>(M, N), step, tail };
        const Loader<Own, TRANS_A, TRANS_B> load = { map_a, map_b, N };
        matmul_tma_run<T, Own, TRANS_A, TRANS_B, WAITS>(load, smem, work, rows);
}

/* A part of a tile, of PARTS blocks for each, the rows of tiles rounded up to pairs; PARTS <= ceil(K / 64).
 * joined: 0 at the start of the program, then left to kernels of as many parts, an int more than tiles; ws:
 * (PARTS - 1) * BM * BN floats for each tile; sms: multiprocessors, or 0. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, bool WAITS = false, class Tail>
TGC_DEV void matmul_tma_joint(const void *map_a, const void *map_b, int M, int N, int K, float *ws, int *joined, int sms,
                              char *smem, const Tail &tail)
{
        typedef TileOf<T, Tile> Own;
        const JointWork<Own, Tail> work = { M, N, K, ws, joined, sms, (int *)(smem + Tile::RING - 8), tail };
        if (threadIdx.x == 0 && cluster_rank() == 0 && !work.in_order())
                work.start();
        const Loader<Own, TRANS_A, TRANS_B> load = { map_a, map_b, N };
        matmul_tma_run<T, Own, TRANS_A, TRANS_B, WAITS>(load, smem, work, NoSums());
}

/* Tiles of splits: first, first + step, ...; V divides N.  splits <= ceil(K / 64). */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, int V, bool WAITS = false, class Sums = NoSums>
TGC_DEV void matmul_tma_split(const void *map_a, const void *map_b, int M, int N, int K, int splits, float *ws,
                              int first, int step, char *smem, const Sums &rows = Sums())
{
        typedef TileOf<T, Tile> Own;
        const SplitWork<Own, V> work = { M, N, K, splits, first, step, ws };
        const Loader<Own, TRANS_A, TRANS_B> load = { map_a, map_b, N };
        matmul_tma_run<T, Own, TRANS_A, TRANS_B, WAITS>(load, smem, work, rows);
}

#endif
#endif
