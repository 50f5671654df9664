/* matmul_sm90.cuh: C = op(A) op(B) for bf16 and f16 on Hopper (sm_90a): wgmma fed by
 * a ring of shared memory stages.  Operands, tail and tiles are those of matmul.cuh;
 * only the way there differs, so a kernel built for sm_90a calls
 *
 *      matmul_sm90_task<T, Tile, TRANS_A, TRANS_B, 16>(a, lda, b, ldb, M, N, K, tile, smem, tail)
 *
 * where it called matmul_task.  Rows and columns at the edge of C, and K, may be
 * any size; ALIGN must be 16 (others stay on the portable path), K >= 1.
 *
 * Two ways of loading, one of multiplying:
 *
 *  matmul_sm90_*  plain pointers.  A warpgroup of 128 threads copies with cp.async, 16
 *                 bytes at a time, and swizzles by hand.  A stage of 128x256x64 is 24 copies per
 *                 thread, under a tenth of the issue slots the stage lasts.  (A flat cp.async.bulk
 *                 per row cannot serve: it does not swizzle, and the layout without swizzle
 *                 wants 8-row x 16-byte cores, one 16-byte bulk copy for each row of each.)
 *  matmul_tma_*   tensor maps in global memory.  One thread issues boxes of 64x64
 *                 values; the copy engine swizzles and fills with zeros outside.
 *
 * What the caller of matmul_tma_* does, once per operand when its address is known:
 * cuTensorMapEncodeTiled, BFLOAT16 or FLOAT16, rank 2, dims {columns, rows} of the matrix
 * as it lies in memory, one stride of ld * 2 bytes (a multiple of 16; address 16-byte
 * aligned), box {64, 64}, element strides 1, no interleave, SWIZZLE_128B, L2 promotion
 * 256 B, out of bounds zero.  The 128 bytes go to global memory, 64-byte aligned, before
 * the launch; the kernel gets their address as a plain pointer.  One map serves every
 * tile shape and both uses of a matrix (transposed or not).
 *
 * Per way of loading:
 *      _task         one tile per block                     tiles: matmul_tiles<Tile>(M, N), cluster tiles: 1/CLUSTER
 *      _persistent   tiles first, first + step, ...         loads of a tile run under the tail of the one before
 *      _split, _split_task   as matmul_split_task, sum with splitk_reduce_task
 *      _stream_task  weight gradients: `workers` blocks (clusters) take equal runs of all tiles'
 *                    K-steps; parts in ws, stream_reduce_task sums them in order and runs the tail
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
 *                      wait for a stage while the round before is still to come.  For
 *                      _persistent and _stream_task; with one tile per block one consumer idles. */
#ifndef TGC_MATMUL_SM90_CUH
#define TGC_MATMUL_SM90_CUH

#include "matmul.cuh"
#ifdef TGC_SM90A

/* ---- tile shapes -------------------------------------------------------- */

/* SHARE 2: the two consumers share a tile, BM / 2 rows each.  1: they take tiles in turns. */
template <int BM_, int BN_, int SHARE_, int STAGES_, int CLUSTER_, int LEAD_ = 2>
struct STile {
        static constexpr int BM = BM_, BN = BN_, BK = 64, SHARE = SHARE_, STAGES = STAGES_;
        static constexpr int CLUSTER = CLUSTER_, MINB = 1, THREADS = 128 * 3;
        static constexpr int WM = BM / SHARE;                   /* rows per consumer */
        static constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2, STAGE = A_BYTES + B_BYTES;
        static constexpr int SMEM = STAGES * STAGE + 2 * STAGES * 8;
        static constexpr bool SIMT = false;
        static constexpr int LEAD = SHARE == 2 ? LEAD_ : 0;
        /* cp.async: a step's loads are waited for when the LAG-th step after it is about to be
         * issued.  A consumer gives step i - STAGES back once it has begun the next one, so
         * that one must be signalled before the loader waits for the stage of step i. */
        static constexpr int LAG = 2;
        static_assert(WM % 64 == 0 && BN % 64 == 0 && WM / 64 * BN <= 384, "64 rows a product, sums in registers");
        static_assert(LAG <= STAGES - 1 && LEAD <= STAGES - LAG + 1, "consumers wait only for what is signalled");
};

/* The rows of ../matmul_tiles_sm90.def. */
typedef STile<128, 256, 2, 4, 1> S128x256;
typedef STile<128, 192, 2, 5, 1> S128x192;
typedef STile<256, 128, 2, 4, 1> S256x128;
typedef STile<128, 128, 2, 6, 1> S128x128;
typedef STile<128, 256, 2, 4, 2> S128x256c;
typedef STile<128, 192, 2, 5, 2> S128x192c;
typedef STile<128, 128, 1, 6, 1> S128x128t;
typedef STile<128, 192, 1, 5, 1> S128x192t;

/* What a block, or a cluster together, computes: a tile for tile_at and matmul_tiles. */
template <class Tile>
struct ClusterTile {
        static constexpr int BM = Tile::BM * Tile::CLUSTER, BN = Tile::BN;
};

/* ---- work: what a block computes, one piece after the other ----------------- */

/* C at (m, n), over the K-steps [kt0, kt1), at least one. */
struct Piece { int m, n, kt0, kt1; };

template <class Tile>
TGC_DEV int k_steps(int K) { return (K + Tile::BK - 1) / Tile::BK; }

/* Tiles first, first + step, ... below end; the caller's tail. */
template <class Tile, class Tail>
struct TileWork {
        int M, N, K, first, end, step;
        const Tail &tail;

        __device__ __forceinline__ bool get(int i, Piece &p) const
        {
                const int t = first + i * step;
                if (t >= end)
                        return false;
                const TileAt at = tile_at<ClusterTile<Tile>>(t, M, N);
                p.m = at.m, p.n = at.n, p.kt0 = 0, p.kt1 = k_steps<Tile>(K);
                return true;
        }
        __device__ __forceinline__ const Tail &tail_of(const Piece &, int) const { return tail; }
};

/* Tiles of splits, as matmul_split_task numbers them: first, first + step, ...; splits <= K-steps. */
template <class Tile, int V>
struct SplitWork {
        int M, N, K, splits, first, step;
        float *ws;                      /* (splits, M, N) */

        __device__ __forceinline__ int tiles() const { return matmul_tiles<ClusterTile<Tile>>(M, N); }
        __device__ __forceinline__ bool get(int i, Piece &p) const
        {
                const int t = first + i * step, s = t / tiles(), steps = k_steps<Tile>(K);
                const TileAt at = tile_at<ClusterTile<Tile>>(t - s * tiles(), M, N);
                p.m = at.m, p.n = at.n;
                p.kt0 = (int)((long)steps * s / splits), p.kt1 = (int)((long)steps * (s + 1) / splits);
                return s < splits;
        }
        __device__ __forceinline__ SplitTail<V> tail_of(const Piece &, int i) const
        {
                return { ws + (long)((first + i * step) / tiles()) * M * N, N };
        }
};

/* All tiles' K-steps in one row, cut into `workers` runs that differ by at most one step.
 * A run covers parts of a few tiles.  Walking along the row, each new part has a
 * larger worker + tile, so that sum is the part's place in ws. */
TGC_DEV int stream_cut(int worker, int workers, int steps) { return (int)((long)steps * worker / workers); }

template <class Tile>
struct StreamTail {
        static constexpr int MAXV = 4, MINV = 1;
        float *part;                    /* (BM * CLUSTER, BN) */
        int m, n;
        template <int W>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[W]) const
        {
                store<W>(part + (row - m) * Tile::BN + (col - n), v);
        }
};

template <class Tile>
struct StreamWork {
        int M, N, K, worker, workers;
        float *ws;                      /* (workers + tiles - 1, BM * CLUSTER, BN) */

        __device__ __forceinline__ int tile(int i) const
        {
                return stream_cut(worker, workers, matmul_tiles<ClusterTile<Tile>>(M, N) * k_steps<Tile>(K))
                     / k_steps<Tile>(K) + i;
        }
        __device__ __forceinline__ bool get(int i, Piece &p) const
        {
                const int steps = k_steps<Tile>(K), all = matmul_tiles<ClusterTile<Tile>>(M, N) * steps;
                const int from = stream_cut(worker, workers, all), to = stream_cut(worker + 1, workers, all);
                const int t = from / steps + i, at = t * steps;
                if (at >= to)
                        return false;
                const TileAt c = tile_at<ClusterTile<Tile>>(t, M, N);
                p.m = c.m, p.n = c.n;
                p.kt0 = from > at ? from - at : 0, p.kt1 = to - at < steps ? to - at : steps;
                return true;
        }
        __device__ __forceinline__ StreamTail<Tile> tail_of(const Piece &p, int i) const
        {
                return { ws + (long)(worker + tile(i)) * (Tile::BM * Tile::CLUSTER * Tile::BN), p.m, p.n };
        }
};

/* ---- instructions ------------------------------------------------------------ */

/* To be one of ptx_sm90.cuh: as mbarrier_arrive_cluster, but ordering only within this block,
 * which is enough when what went before were reads by wgmma that have been waited for.  At cluster scope
 * the arrival would wait until all of the thread's stores have reached L2. */
TGC_DEV void mbarrier_arrive_peer(Mbar *bar, unsigned rank)
{
        asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; "
                     "mbarrier.arrive.shared::cluster.b64 _, [r]; }"
                     :: "r"(smem_addr(bar)), "r"(rank) : "memory");
}

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

/* ---- loading: cp.async ----------------------------------------------------- */

/* Both loaders bring boxes of 64 values of C's side by 64 of K: 64 rows of 128 bytes as the matrix
 * has them, 8 KB, one box after the other along C's side.  In a row chunk c of 16 bytes stands at c ^ (row % 8).
 * That is the 128-byte swizzle, a function of the address: bits 4..6 xor bits 7..9.
 *
 * This thread's part of a box: chunk t % 8 of rows t / 8 + 16 i.  KMAJOR: K is contiguous, rows
 * are C's side; otherwise rows are K. */
template <class T, bool KMAJOR, int EXTENT>
struct Boxes {
        const T *src, *base;            /* the matrix; this thread's first chunk at k = 0 */
        long ld;
        int K, first, limit;            /* of C's side: this thread's first place, end of the matrix */
        bool whole;                     /* all of the tile lies inside */
        int to;                         /* place in a box, bytes */

        static __device__ __forceinline__ int row() { return (int)threadIdx.x / 8; }
        static __device__ __forceinline__ int col() { return (int)threadIdx.x % 8 * 8; }

        /* x, or the last place where the chunk fits. */
        __device__ __forceinline__ int inside(int x) const
        {
                constexpr int LONG = KMAJOR ? 1 : 8;
                return x <= limit - LONG ? x : limit - LONG;
        }

        __device__ __forceinline__ Boxes(const T *src_, long ld_, int first_, int limit_, int K_)
                : src(src_), ld(ld_), K(K_), first(first_ + (KMAJOR ? row() : col())), limit(limit_),
                  whole(limit_ % EXTENT == 0 || first_ + EXTENT <= limit_),
                  to(row() * 128 + ((int)threadIdx.x % 8 ^ row() % 8) * 16)
        {
                base = KMAJOR ? src + first * ld + col() : src + row() * ld + first;    /* used where `whole` */
        }

        /* Start the copies of the K-step at k0.  In steps of 16 rows, so that a run-time ld costs one
         * addition for each and not a register for each product; at the edge in a loop. */
        __device__ __forceinline__ void copy(char *panel, int k0) const
        {
                if (whole) {
                        const T *from = KMAJOR ? base + k0 : base + k0 * ld;
#pragma unroll
                        for (int r = 0; r < (KMAJOR ? EXTENT : 64); r += 16, from += 16 * ld)
#pragma unroll
                                for (int box = 0; box < (KMAJOR ? 1 : EXTENT / 64); box++)
                                        put(panel + box * 8192 + r * 128, from + box * 64,
                                            k0 + (KMAJOR ? col() : row() + r));
                } else {
#pragma unroll 1
                        for (int i = 0; i < EXTENT / 16; i++) {
                                const int rows = i % 4 * 16, x = first + i / 4 * 64 + (KMAJOR ? rows : 0);
                                const int k = k0 + (KMAJOR ? col() : row() + rows);
                                put(panel + i * 2048, KMAJOR ? src + inside(x) * ld + k : src + k * ld + inside(x), k);
                        }
                }
        }

        __device__ __forceinline__ void put(char *at, const T *from, int k) const
        {
                const bool valid = K % 64 == 0 || k < K;
                cp_async16(at + to, valid ? from : src, valid);
        }
};

template <class T, class Tile, bool TRANS_A, bool TRANS_B>
struct CopyLoader {
        static constexpr int FULL_COUNT = 4, REGS = 56;         /* arrivals: warps */
        const T *a, *b;
        long lda, ldb;
        int M, N, K;

        /* Everything this thread issued up to `stage` has landed: tell the consumers.  cp.async writes as
         * ordinary stores do, wgmma reads by the asynchronous proxy: the fence stands between. */
        static __device__ __forceinline__ void signal(const Ring<Tile> &ring, int stage)
        {
                fence_proxy_async();
                __syncwarp();
                if ((threadIdx.x & 31) == 0)
                        mbarrier_arrive(ring.full(stage));
        }

        /* Threads 0..127, all of them. */
        template <class Work>
        __device__ __forceinline__ void run(Ring<Tile> ring, const Work &work) const
        {
                int open = 0;           /* steps issued and not signalled */
                Piece p;
                for (int i = 0; work.get(i, p); i++) {
                        const Boxes<T, !TRANS_A, Tile::BM> pa(a, lda, p.m, M, K);
                        const Boxes<T, TRANS_B, Tile::BN> pb(b, ldb, p.n, N, K);
                        for (int kt = p.kt0; kt < p.kt1; kt++) {
                                if (open == Tile::LAG) {
                                        cp_async_wait<Tile::LAG - 1>();
                                        signal(ring, ring.before(Tile::LAG));
                                        open--;
                                }
                                ring.wait_empty();
                                pa.copy(ring.a(), kt * Tile::BK);
                                pb.copy(ring.b(), kt * Tile::BK);
                                cp_async_commit();
                                open++;
                                ring.next();
                        }
                }
                cp_async_wait<0>();
                for (; open; open--)
                        signal(ring, ring.before(open));
        }
};

/* ---- loading: tensor maps ---------------------------------------------------- */

template <class Tile, bool TRANS_A, bool TRANS_B>
struct TmaLoader {
        static constexpr int FULL_COUNT = 1, REGS = 40;
        const void *a, *b;              /* maps */

        /* Box j of an operand: 64 of C's side, 64 of K, 8 KB. */
        template <bool KMAJOR>
        static __device__ __forceinline__ void box(char *panel, const void *map, Mbar *bar, int first, int j, int k0,
                                                   int share)
        {
                const int x = KMAJOR ? k0 : first + 64 * j, y = KMAJOR ? first + 64 * j : k0;
                if (share)
                        tma_load_2d_multicast(panel + j * 8192, map, bar, x, y, (1 << Tile::CLUSTER) - 1);
                else
                        tma_load_2d(panel + j * 8192, map, bar, x, y);
        }

        /* One thread works.  In a cluster each block loads its own A and every
         * CLUSTER-th box of B, which lands in all blocks and counts at each one's barrier. */
        template <class Work>
        __device__ __forceinline__ void run(Ring<Tile> ring, const Work &work) const
        {
                if (threadIdx.x == 0) {
                        const int rank = Tile::CLUSTER > 1 ? (int)cluster_rank() : 0;
                        Piece p;
                        fence_tensormap(a);
                        fence_tensormap(b);
                        for (int i = 0; work.get(i, p); i++)
                                for (int kt = p.kt0; kt < p.kt1; kt++) {
                                        Mbar *bar = ring.full(ring.stage);
                                        ring.wait_empty();
                                        mbarrier_expect_tx(bar, Tile::STAGE);
#pragma unroll
                                        for (int j = 0; j < Tile::BM / 64; j++)
                                                box<!TRANS_A>(ring.a(), a, bar, p.m + rank * Tile::BM, j, kt * 64, 0);
#pragma unroll
                                        for (int j = 0; j < Tile::BN / 64; j++)
                                                if (j % Tile::CLUSTER == rank)
                                                        box<TRANS_B>(ring.b(), b, bar, p.n, j, kt * 64,
                                                                     Tile::CLUSTER > 1);
                                        ring.next();
                                }
                }
                __syncwarp();
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

/* This warp has read the stage: say so to whoever fills it, in a cluster the loaders of all blocks. */
template <class Tile>
TGC_DEV void give_back(const Ring<Tile> &ring, int stage, int lane)
{
        if constexpr (Tile::CLUSTER > 1) {
                if (lane < Tile::CLUSTER)
                        mbarrier_arrive_peer(ring.empty(stage), lane);
        } else if (lane == 0) {
                mbarrier_arrive(ring.empty(stage));
        }
}

/* Shape of one warp's share of a 64-row wgmma, for mma_tail. */
template <class Tile>
struct WarpShare {
        static constexpr int WM = 16, WN = Tile::BN;
};

template <class T, class Tile, bool TRANS_A, bool TRANS_B, class Work>
TGC_DEV void wgmma_consume(Ring<Tile> ring, const Work &work, int M, int N)
{
        constexpr int MI = Tile::WM / 64, KS = Tile::BK / 16;
        constexpr int SPARE = MI * Tile::BN / 2 > 160 ? 2 : 6;          /* registers left beside the sums */
        const int consumer = (int)threadIdx.x / 128 - 1, warp = (int)threadIdx.x / 32 % 4, lane = threadIdx.x & 31;
        const int part = Tile::SHARE == 2 ? consumer : 0;
        const int row0 = (Tile::CLUSTER > 1 ? (int)cluster_rank() * Tile::BM : 0) + part * Tile::WM + warp * 16;
        /* The same in all lanes and warps of the group, as wgmma wants its descriptors. */
        const unsigned long long a0 = panel_desc<!TRANS_A, Tile::BK>(ring.smem)
                                    + __shfl_sync(0xffffffffu, part, 0) * MI * desc_64<!TRANS_A, Tile::BK>();
        const unsigned long long b0 = panel_desc<TRANS_B, Tile::BK>(ring.smem + Tile::A_BYTES);
        Piece p, next;

        for (int i = 0; work.get(i, p); i++) {
                float acc[MI][1][Tile::BN / 8][4];
                if (Tile::SHARE == 1 && (i & 1) != consumer) {
                        ring.skip(p.kt1 - p.kt0);
                        continue;
                }
                if (Tile::SHARE == 1 ? i > 0 : Tile::LEAD > 0 && i == 0 && consumer == 1)
                        bar_sync(1 + (i & 1), 256);
                for (int kt = p.kt0; kt < p.kt1; kt++) {
                        const unsigned long long at = (unsigned long long)(ring.stage * (Tile::STAGE / 16));
                        ring.wait_full();
                        wgmma_fence();
#pragma unroll
                        for (int ks = 0; ks < KS; ks++)
#pragma unroll
                                for (int m = 0; m < MI; m++)
                                        wgmma<TRANS_A, !TRANS_B>(reinterpret_cast<float (&)[Tile::BN / 2]>(acc[m]),
                                                                 a0 + at + m * desc_64<!TRANS_A, Tile::BK>()
                                                                    + ks * desc_k<!TRANS_A>(),
                                                                 b0 + at + ks * desc_k<TRANS_B>(),
                                                                 ks > 0 || kt > p.kt0, T());
                        wgmma_commit();
                        wgmma_wait<1>();
                        if (kt > p.kt0)
                                give_back<Tile>(ring, ring.before(1), lane);
                        if (Tile::LEAD > 0 && i == 0 && consumer == 0
                            && kt - p.kt0 == (p.kt1 - p.kt0 < Tile::LEAD ? p.kt1 - p.kt0 : Tile::LEAD) - 1)
                                bar_arrive(1, 256);
                        ring.next();
                }
                if (Tile::SHARE == 1 && work.get(i + 1, next))
                        bar_arrive(1 + ((i + 1) & 1), 256);
                wgmma_wait<0>();
                give_back<Tile>(ring, ring.before(1), lane);
#pragma unroll
                for (int m = 0; m < MI; m++)
                        wgmma_hold(reinterpret_cast<float (&)[Tile::BN / 2]>(acc[m]));
#pragma unroll
                for (int m = 0; m < MI; m++)
                        mma_tail<WarpShare<Tile>, SPARE>(acc[m], p.m + row0 + m * 64, p.n, M, N, work.tail_of(p, i));
        }
}

/* ---- all together ------------------------------------------------------------ */

template <class T, class Tile, bool TRANS_A, bool TRANS_B, class Loader, class Work>
TGC_DEV void wgmma_run(const Loader &loader, const Work &work, int M, int N, char *smem)
{
        /* 168 registers at entry (65536 / 384, down to a multiple of 8); what a loading thread gives
         * up two multiplying ones share. */
        constexpr int REGS = (3 * 168 - Loader::REGS) / 2;
        Ring<Tile> ring(smem);
        if (threadIdx.x == 0) {
                for (int s = 0; s < Tile::STAGES; s++) {
                        mbarrier_init(ring.full(s), Loader::FULL_COUNT);
                        mbarrier_init(ring.empty(s), 4 * Tile::SHARE * Tile::CLUSTER);
                }
                fence_barrier_init();
                fence_proxy_async();
        }
        if constexpr (Tile::CLUSTER > 1)
                cluster_sync();
        else
                __syncthreads();
        if (threadIdx.x < 128) {
                setmaxnreg_dec<Loader::REGS>();
                loader.run(ring, work);
        } else {
                setmaxnreg_inc<REGS>();
                wgmma_consume<T, Tile, TRANS_A, TRANS_B>(ring, work, M, N);
        }
        /* No block leaves while another may still arrive at its barriers. */
        if constexpr (Tile::CLUSTER > 1)
                cluster_sync();
        else
                __syncthreads();
        if (threadIdx.x == 0)
                for (int s = 0; s < 2 * Tile::STAGES; s++)
                        mbarrier_inval(ring.full(s));
        __syncthreads();
}

/* ---- entries: plain pointers ---------------------------------------------------- */

template <class T, class Tile, bool TRANS_A, bool TRANS_B, int ALIGN, class Work>
TGC_DEV void matmul_sm90_run(const T *a, long lda, const T *b, long ldb, int M, int N, int K, char *smem,
                             const Work &work)
{
        static_assert(ALIGN == 16 && Tile::CLUSTER == 1, "16-byte copies; clusters only with tensor maps");
        const CopyLoader<T, Tile, TRANS_A, TRANS_B> loader = { a, b, lda, ldb, M, N, K };
        wgmma_run<T, Tile, TRANS_A, TRANS_B>(loader, work, M, N, smem);
}

/* Tiles first, first + step, ... of all. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, int ALIGN, class Tail>
TGC_DEV void matmul_sm90_persistent(const T *a, long lda, const T *b, long ldb, int M, int N, int K, int tiles,
                                    int first, int step, char *smem, const Tail &tail)
{
        const TileWork<Tile, Tail> work = { M, N, K, first, tiles, step, tail };
        matmul_sm90_run<T, Tile, TRANS_A, TRANS_B, ALIGN>(a, lda, b, ldb, M, N, K, smem, work);
}

template <class T, class Tile, bool TRANS_A, bool TRANS_B, int ALIGN, class Tail>
TGC_DEV void matmul_sm90_task(const T *a, long lda, const T *b, long ldb, int M, int N, int K, int tile, char *smem,
                              const Tail &tail)
{
        matmul_sm90_persistent<T, Tile, TRANS_A, TRANS_B, ALIGN>(a, lda, b, ldb, M, N, K, tile + 1, tile, 1, smem,
                                                                 tail);
}

/* V divides N; 16-byte accesses take V = 4.  splits <= ceil(K / 64). */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, int ALIGN, int V>
TGC_DEV void matmul_sm90_split_task(const T *a, long lda, const T *b, long ldb, int M, int N, int K, int splits,
                                    float *ws, int tile, char *smem)
{
        const SplitWork<Tile, V> work = { M, N, K, splits, tile, matmul_tiles<Tile>(M, N) * splits, ws };
        matmul_sm90_run<T, Tile, TRANS_A, TRANS_B, ALIGN>(a, lda, b, ldb, M, N, K, smem, work);
}

/* Run `worker` of `workers`; each has at least a step: workers <= tiles * ceil(K / 64).
 * ws: f32 (workers + tiles - 1, BM * CLUSTER, BN), summed by stream_reduce_task.  4 divides N. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, int ALIGN>
TGC_DEV void matmul_sm90_stream_task(const T *a, long lda, const T *b, long ldb, int M, int N, int K, int workers,
                                     float *ws, int worker, char *smem)
{
        const StreamWork<Tile> work = { M, N, K, worker, workers, ws };
        matmul_sm90_run<T, Tile, TRANS_A, TRANS_B, ALIGN>(a, lda, b, ldb, M, N, K, smem, work);
}

/* ---- entries: tensor maps -------------------------------------------------------- */

template <class T, class Tile, bool TRANS_A, bool TRANS_B, class Work>
TGC_DEV void matmul_tma_run(const void *map_a, const void *map_b, int M, int N, char *smem, const Work &work)
{
        const TmaLoader<Tile, TRANS_A, TRANS_B> loader = { map_a, map_b };
        wgmma_run<T, Tile, TRANS_A, TRANS_B>(loader, work, M, N, smem);
}

/* With CLUSTER c, here and below: tiles are those of ClusterTile<Tile>, and the shell passes
 * blockIdx.x / c and gridDim.x / c where it passed blockIdx.x and gridDim.x. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, class Tail>
TGC_DEV void matmul_tma_persistent(const void *map_a, const void *map_b, int M, int N, int K, int tiles, int first,
                                   int step, char *smem, const Tail &tail)
{
        const TileWork<Tile, Tail> work = { M, N, K, first, tiles, step, tail };
        matmul_tma_run<T, Tile, TRANS_A, TRANS_B>(map_a, map_b, M, N, smem, work);
}

template <class T, class Tile, bool TRANS_A, bool TRANS_B, class Tail>
TGC_DEV void matmul_tma_task(const void *map_a, const void *map_b, int M, int N, int K, int tile, char *smem,
                             const Tail &tail)
{
        matmul_tma_persistent<T, Tile, TRANS_A, TRANS_B>(map_a, map_b, M, N, K, tile + 1, tile, 1, smem, tail);
}

/* Tiles of splits: first, first + step, ... */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, int V>
TGC_DEV void matmul_tma_split(const void *map_a, const void *map_b, int M, int N, int K, int splits, float *ws,
                              int first, int step, char *smem)
{
        const SplitWork<Tile, V> work = { M, N, K, splits, first, step, ws };
        matmul_tma_run<T, Tile, TRANS_A, TRANS_B>(map_a, map_b, M, N, smem, work);
}

template <class T, class Tile, bool TRANS_A, bool TRANS_B>
TGC_DEV void matmul_tma_stream_task(const void *map_a, const void *map_b, int M, int N, int K, int workers, float *ws,
                                    int worker, char *smem)
{
        const StreamWork<Tile> work = { M, N, K, worker, workers, ws };
        matmul_tma_run<T, Tile, TRANS_A, TRANS_B>(map_a, map_b, M, N, smem, work);
}

/* ---- the sum of the streams' parts -------------------------------------------------- */

/* The run that holds this step of the row. */
TGC_DEV int stream_worker(int step, int workers, int steps)
{
        int w = (int)((long)step * workers / steps);
        while (stream_cut(w + 1, workers, steps) <= step)
                w++;
        return w;
}

/* THREADS * V elements of one tile of C, V = min(8, Tail::MAXV): part is below
 * tiles * (BM * CLUSTER * BN / (THREADS * V)). */
template <class Tile, int THREADS, class Tail>
TGC_DEV void stream_reduce_task(const float *ws, int workers, int M, int N, int K, int part, const Tail &tail)
{
        typedef ClusterTile<Tile> Area;
        constexpr int V = Tail::MAXV < 8 ? Tail::MAXV : 8, SIZE = Area::BM * Area::BN, PARTS = SIZE / (THREADS * V);
        static_assert(SIZE % (THREADS * V) == 0, "a tile is a whole number of parts");
        const int tile = part / PARTS, steps = k_steps<Tile>(K), all = matmul_tiles<Area>(M, N) * steps;
        const int i = (part - tile * PARTS) * (THREADS * V) + (int)threadIdx.x * V;
        const TileAt at = tile_at<Area>(tile, M, N);
        const int row = at.m + i / Area::BN, col = at.n + i % Area::BN;
        if (row >= M || col >= N)
                return;
        const int last = stream_worker((tile + 1) * steps - 1, workers, all);
        int w = stream_worker(tile * steps, workers, all);
        float sum[V];
        load<V>(sum, ws + (long)(w + tile) * SIZE + i);
        while (++w <= last) {
                float v[V];
                load<V>(v, ws + (long)(w + tile) * SIZE + i);
#pragma unroll
                for (int j = 0; j < V; j++)
                        sum[j] += v[j];
        }
        tail(row, col, sum);
}

#endif
#endif
