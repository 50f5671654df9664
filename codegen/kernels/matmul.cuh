/* matmul.cuh: C = op(A) op(B), the portable path (sm_80 and up), any size.
 *
 *      A is (M,K) row-major with row stride lda, or (K,M) when TRANS_A;
 *      B is (K,N) row-major with row stride ldb, or (N,K) when TRANS_B (a Linear's weight).
 *
 *      y  = x Wt       TRANS_B            x (M,K), W (N,K)
 *      dx = dy W                          dy (M,N), W (N,K) read as (K,N) with K <-> N
 *      dW = dyt x      TRANS_A            dy (T,N), x (T,K); M = N, N = K, K = T
 *
 *      matmul_task<T, Tile, TRANS_A, TRANS_B, ALIGN>(a, lda, b, ldb, M, N, K, tile, smem, tail)
 *      matmul_split_task<... , V>(a, lda, b, ldb, M, N, K, splits, ws, tile, smem)     ws: f32 (splits,M,N)
 *      splitk_reduce_task<THREADS>(ws, splits, M, N, tile, tail)
 *
 * Sizes passed as literals fold away after inlining; run-time ones work as well.
 * The tail gets every element of C once, float32, V = Tail::MAXV at a time, or 4
 * where that is less (float32 tiles, and 16-bit ones whose warps are 16 columns
 * wide; a 32x32x32 tile: 2).  MAXV must divide N.
 *
 * ALIGN (16, 8, 4, 2 bytes) divides both base addresses, both row strides in
 * bytes, and in bytes the extent that is contiguous in memory: of A, K or (TRANS_A) M;
 * of B, N or (TRANS_B) K.  16 is the fast path; 8 and 4 issue more copies, 2 copies by hand.
 *
 * Rows and columns beyond C are read as some row inside: they only reach elements
 * of C that are not stored.  Beyond K both operands are zero. */
#ifndef TGC_MATMUL_CUH
#define TGC_MATMUL_CUH

#include "tgc.cuh"
#include "ptx.cuh"
#include "matmul_tf32.cuh"

/* ---- tile shapes -------------------------------------------------------- */

/* 16-bit operands: BM x BN of C per block, BK of K per stage, a ring of STAGES. */
template <int BM_, int BN_, int BK_, int WARPS_M_, int WARPS_N_, int STAGES_, int MINB_>
struct HTile {
        static constexpr int BM = BM_, BN = BN_, BK = BK_, WARPS_M = WARPS_M_, WARPS_N = WARPS_N_;
        static constexpr int STAGES = STAGES_, THREADS = 32 * WARPS_M * WARPS_N, MINB = MINB_;
        static constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;      /* of C, per warp */
        static constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2;
        static constexpr int SMEM = STAGES * (A_BYTES + B_BYTES);
        static constexpr bool SIMT = false, WGMMA = false, TF32 = false;
        static_assert(WM % 16 == 0 && WN % 16 == 0 && BK % 32 == 0, "mma is 16x8x16, loaded as 16x16x16");
};

/* 16-bit operands, on sm_90a by wgmma: four warps own 64 rows of C, each of them 16.
 * PENDING (0, 1) K-tiles of products stay under way while the next K-tile is awaited.
 * Elsewhere an HTile with the same block, stages and bytes, so one launch serves all. */
#ifdef TGC_SM90A
template <int BM_, int BN_, int BK_, int WARPS_M_, int WARPS_N_, int STAGES_, int MINB_, int PENDING_>
struct WTile : HTile<BM_, BN_, BK_, BM_ / 16, 1, STAGES_, MINB_> {
        static constexpr int PENDING = PENDING_;
        static constexpr bool WGMMA = true;
        static_assert(BM_ / 16 == WARPS_M_ * WARPS_N_, "as many threads on either path");
        static_assert(BM_ % 64 == 0 && (BN_ == 64 || BN_ == 128 || BN_ == 192 || BN_ == 256), "a product is 64xBNx16");
        static_assert(BK_ == 64 || BK_ == 32, "rows of 128 or 64 bytes, swizzled");
};
#else
template <int BM_, int BN_, int BK_, int WARPS_M_, int WARPS_N_, int STAGES_, int MINB_, int PENDING_>
struct WTile : HTile<BM_, BN_, BK_, WARPS_M_, WARPS_N_, STAGES_, MINB_> { };
#endif

/* float32: a warp owns WM x WN, its lanes lie 4 x 8 over it. */
template <int BM_, int BN_, int BK_, int WARPS_M_, int WARPS_N_, int MINB_>
struct FTile {
        static constexpr int BM = BM_, BN = BN_, BK = BK_, WARPS_M = WARPS_M_, WARPS_N = WARPS_N_;
        static constexpr int STAGES = 2, THREADS = 32 * WARPS_M * WARPS_N, MINB = MINB_;
        static constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;
        static constexpr int LDA = BM + 4, LDB = BN + 4;                /* padded rows, in floats */
        static constexpr int SMEM = STAGES * BK * (LDA + LDB) * 4;
        static constexpr bool SIMT = true, WGMMA = false, TF32 = false;
        static_assert(WM % 16 == 0 && WN % 16 == 0, "a lane owns at least 4x2");
};

/* The table, as in ../matmul_tiles.def, where each row says when it serves. */
typedef HTile<128, 256, 64, 2, 4, 4, 1> H128x256x64;
typedef HTile<128, 256, 32, 2, 4, 4, 1> H128x256x32;
typedef HTile<256, 128, 32, 4, 2, 4, 1> H256x128x32;
typedef HTile<128, 128, 64, 2, 2, 3, 2> H128x128x64;
typedef HTile<128, 128, 32, 2, 2, 4, 2> H128x128x32;
typedef HTile<128,  64, 64, 2, 2, 4, 2> H128x64x64;
typedef HTile< 64, 128, 64, 2, 2, 4, 2> H64x128x64;
typedef HTile< 64,  64, 64, 2, 2, 4, 3> H64x64x64;
typedef HTile< 32,  64, 64, 1, 4, 4, 4> H32x64x64;
typedef HTile< 16,  64, 64, 1, 4, 4, 4> H16x64x64;
typedef HTile< 16, 128, 64, 1, 4, 4, 3> H16x128x64;
typedef WTile<128, 256, 64, 2, 4, 4, 1, 1> W128x256x64;
typedef WTile<128, 256, 32, 2, 4, 4, 1, 1> W128x256x32;
typedef WTile<128, 192, 32, 2, 4, 4, 2, 1> W128x192x32;
typedef WTile<128, 128, 64, 2, 4, 3, 2, 0> W128x128x64;
typedef WTile< 64, 128, 64, 2, 2, 4, 2, 0> W64x128x64;
typedef WTile< 64, 128, 64, 2, 2, 3, 3, 0> W64x128x64_3;
typedef WTile< 64,  64, 64, 2, 2, 4, 3, 0> W64x64x64;
typedef FTile<128, 128,  8, 4, 2, 2> F128x128x8;
typedef FTile< 64,  64, 16, 2, 2, 4> F64x64x16;
typedef FTile< 32,  32, 32, 2, 2, 4> F32x32x32;
typedef FTile< 16,  64, 32, 1, 4, 4> F16x64x32;
typedef TTile< 64,  64, 32, 1, 4, 3> T64x64x32;
typedef TTile< 32,  32, 64, 4, 4, 3> T32x32x64;

/* ---- which tile --------------------------------------------------------- */

#ifndef TILE_GROUP
#define TILE_GROUP 16
#endif

/* Tiles are numbered down groups of sixteen block rows, so that the blocks that run
 * together share both a few rows of A and a few columns of B in L2. */
struct TileAt { int m, n; };    /* first row and column of C */

template <class Tile>
TGC_DEV TileAt tile_at(int tile, int M, int N)
{
        constexpr int GROUP = TILE_GROUP;
        const int tm = (M + Tile::BM - 1) / Tile::BM, tn = (N + Tile::BN - 1) / Tile::BN;
        const int group = tile / (GROUP * tn), at = tile - group * (GROUP * tn);
        const int left = tm - group * GROUP, high = left < GROUP ? left : GROUP;
        TileAt t = { (group * GROUP + at % high) * Tile::BM, at / high * Tile::BN };
        return t;
}

/* Tiles of one M x N matrix.  A batched matmul launches batch * n tiles: item
 * tile / n, with its strides added to the pointers, and tile % n of it. */
template <class Tile>
TGC_DEV int matmul_tiles(int M, int N)
{
        return ((M + Tile::BM - 1) / Tile::BM) * ((N + Tile::BN - 1) / Tile::BN);
}

/* ---- panels: an operand's way into shared memory ------------------------- */

/* Which row of the matrix stands at row r of the operand: the same one, or (expert.cuh) a gathered one. */
struct SameRows {
        static constexpr bool GATHER = false;
        __device__ __forceinline__ int operator()(int r) const { return r; }
};

/* The part of one operand that a block needs: EXTENT rows of C's side and BK of K
 * at a time.  KMAJOR: K is contiguous in memory, a row of the panel is a row of the
 * matrix; otherwise C's side is contiguous and the panel's rows are K. */
template <class T, bool KMAJOR, int EXTENT, int BK, int THREADS, int ALIGN, class Rows>
struct Panel {
        static constexpr int ROWS = KMAJOR ? EXTENT : BK, COLS = KMAJOR ? BK : EXTENT;
        static constexpr int UNIT = ALIGN / (int)sizeof(T);             /* elements per copy */
        static constexpr int PER_ROW = COLS / UNIT, COPIES = ROWS * PER_ROW / THREADS;
        static_assert(ROWS * PER_ROW % THREADS == 0, "every thread copies as much");

        const T *src, *base;            /* the matrix; this thread's first copy at k = 0 */
        long ld;
        Rows rows;
        int K, first, limit;            /* of C's side: first of the tile, end of the matrix */
        long at[KMAJOR && Rows::GATHER ? COPIES : 1];

        /* Place in the panel of this thread's copy i. */
        static __device__ __forceinline__ int row(int i)
        {
                if constexpr (THREADS % PER_ROW == 0)
                        return (int)threadIdx.x / PER_ROW + i * (THREADS / PER_ROW);
                else
                        return ((int)threadIdx.x + i * THREADS) / PER_ROW;
        }
        static __device__ __forceinline__ int col(int i)
        {
                if constexpr (THREADS % PER_ROW == 0)
                        return (int)threadIdx.x % PER_ROW * UNIT;
                else
                        return ((int)threadIdx.x + i * THREADS) % PER_ROW * UNIT;
        }

        __device__ __forceinline__ Panel(const T *src_, long ld_, int first_, int limit_, int K_, Rows rows_)
                : src(src_), ld(ld_), rows(rows_), K(K_), first(first_), limit(limit_)
        {
                if constexpr (Rows::GATHER && KMAJOR) {
                        base = src + col(0);
#pragma unroll
                        for (int i = 0; i < COPIES; i++)
                                at[i] = (long)rows(inside(first + row(i), 1)) * ld;
                } else if constexpr (KMAJOR) {
                        base = src + rows(inside(first + row(0), 1)) * ld + col(0);
                } else {
                        base = src + (Rows::GATHER ? 0 : rows(row(0)) * ld) + inside(first + col(0), UNIT);
                }
        }

        /* x, or the last place where `unit` elements fit. */
        __device__ __forceinline__ int inside(int x, int unit) const { return x <= limit - unit ? x : limit - unit; }

        /* inside(first + x) - inside(first + x0): plainly x - x0 where all of the tile is inside. */
        __device__ __forceinline__ int apart(int x, int x0, int unit) const
        {
                return limit % EXTENT == 0 ? x - x0 : inside(first + x, unit) - inside(first + x0, unit);
        }

        /* Where copy i of the K-tile at k0 comes from; false when beyond K.  Written as
         * base + what all copies share + what is constant where sizes are. */
        __device__ __forceinline__ bool source(int i, int k0, const T *&p) const
        {
                const int k = k0 + (KMAJOR ? col(i) : row(i));
                const bool valid = K % BK == 0 || k < K;
                if constexpr (KMAJOR && Rows::GATHER)
                        p = base + k0 + (at[i] + (col(i) - col(0)));
                else if constexpr (KMAJOR)
                        p = base + k0 + (apart(row(i), row(0), 1) * ld + (col(i) - col(0)));
                else if constexpr (Rows::GATHER)
                        p = base + (rows(valid ? k : 0) * ld + apart(col(i), col(0), UNIT));
                else
                        p = base + k0 * ld + ((row(i) - row(0)) * ld + apart(col(i), col(0), UNIT));
                if (!valid)
                        p = src;
                return valid;
        }
};

/* Byte offset of 16-byte chunk c of row r in a panel of 16-bit elements.  The
 * chunks of a row are permuted so that eight rows' chunk c lie in eight different
 * bank groups: ldmatrix and the copies run without conflicts. */
template <int COLS>
TGC_DEV int swizzle(int r, int c)
{
        constexpr int N = COLS / 8;
        const int x = N >= 8 ? r & 7 : N == 4 ? (r >> 1) & 3 : (r >> 2) & 1;
        return (r * N + (c ^ x)) * 16;
}

/* The same as wgmma wants it: a panel wider than 64 columns lies in blocks of 64, one after the other. */
template <int ROWS, int COLS>
TGC_DEV int swizzle_blocks(int r, int c)
{
        if constexpr (COLS < 64)
                return swizzle<COLS>(r, c);
        else
                return c / 8 * (ROWS * 128) + swizzle<64>(r, c % 8);
}

/* Start the copies of the K-tile at k0 whose index is `part` modulo PARTS. */
template <int PARTS, bool BLOCKS, class P>
TGC_DEV void panel_copy(const P &p, char *smem, int k0, int part)
{
        typedef decltype(p.src) Ptr;
        constexpr int BYTES = P::UNIT * 2;
#pragma unroll
        for (int i = 0; i < P::COPIES; i++) {
                if (i % PARTS != part)
                        continue;
                Ptr from;
                const bool valid = p.source(i, k0, from);
                const int c = P::col(i);
                const int at = BLOCKS ? swizzle_blocks<P::ROWS, P::COLS>(P::row(i), c / 8)
                                      : swizzle<P::COLS>(P::row(i), c / 8);
                char *to = smem + at + c % 8 * 2;
                if constexpr (BYTES == 16)
                        cp_async16(to, from, valid);
                else if constexpr (BYTES == 8)
                        cp_async8(to, from, valid);
                else if constexpr (BYTES == 4)
                        cp_async4(to, from, valid);
                else
                        *(unsigned short *)to = valid ? *(const unsigned short *)from : (unsigned short)0;
        }
}

/* ---- the tail ------------------------------------------------------------ */

/* Lanes DISTANCE apart each give away one of two runs of W columns: the lower lane
 * ends with both lanes' `lo`, the upper one with both lanes' `hi`. */
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

/* How a warp's fragments are cut into calls of the tail: ROWS blocks of 16 rows, APART rows from one to the next,
 * WN columns.  A lane holds two neighbouring columns of each 8-column fragment; by trading with its quad over V/2
 * fragments it gets V neighbours, and a quad 4V. */
template <int ROWS, int WN, int APART, int V>
struct TailCalls {
        static constexpr int STEP = V < 2 ? 1 : V / 2;          /* fragments at a time */
        static constexpr int PARTS = V < 2 ? 2 : 1;             /* calls that they take */
        static constexpr int ACROSS = WN / 8 / STEP * 2 * PARTS, COUNT = ROWS * ACROSS;

        /* Of call p: fragment row and column, upper or lower half, and for V 1 which of the two columns. */
        static __device__ __forceinline__ constexpr int i(int p) { return p / ACROSS; }
        static __device__ __forceinline__ constexpr int j(int p) { return p % ACROSS / (2 * PARTS) * STEP; }
        static __device__ __forceinline__ constexpr int h(int p) { return p / PARTS % 2; }
        static __device__ __forceinline__ constexpr int c(int p) { return p % PARTS; }

        static __device__ __forceinline__ int row(int p) { return i(p) * APART + h(p) * 8 + (threadIdx.x >> 2) % 8; }
        static __device__ __forceinline__ int col(int p)
        {
                const int t = threadIdx.x & 3;
                return V == 8 ? (j(p) + t) * 8 : V == 4 ? (j(p) + (t & 1)) * 8 + (t >> 1) * 4 : j(p) * 8 + t * 2 + c(p);
        }
        static __device__ __forceinline__ void values(const float (&acc)[ROWS][WN / 8][4], int p, float (&v)[V])
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

/* A warp's fragments, whose corner is (row0, col0), to the tail.  What it reads of rows is asked for AHEAD calls before
 * the stores: as far as SPARE times 16 bytes reach, the first of it by start(), which may run before the sums
 * are there.  What all rows read alike comes one call before.  whole: no tile reaches beyond (M, N), so that calls may
 * overlap where registers are left. */
template <int ROWS, int WN, int APART, int SPARE, class Tail>
struct MmaTail {
        static constexpr int MOST = WN % 32 ? 4 : 8, V = Tail::MAXV < MOST ? Tail::MAXV : MOST;
        typedef TailCalls<ROWS, WN, APART, V> Calls;
        typedef TailReads<Tail, V> Reads;
        static constexpr bool READS_AHEAD = Reads::ROWS > 0;
        static constexpr int COUNT = Calls::COUNT, FIT = Reads::ROWS ? SPARE * 8 / (Reads::ROWS * V) : 2;
        static constexpr int AHEAD = FIT < 2 ? 2 : FIT > COUNT ? COUNT : FIT;
        Reads reads[AHEAD];
        const Tail &tail;
        int row0, col0, M, N;
        bool whole;

        __device__ __forceinline__ MmaTail(const Tail &tail_, int row0_, int col0_, int M_, int N_, bool whole_)
                : tail(tail_), row0(row0_), col0(col0_), M(M_), N(N_), whole(whole_) {}

        __device__ __forceinline__ bool inside(int row, int col) const { return whole || (row < M && col < N); }
        __device__ __forceinline__ void get_rows(int p)
        {
                const int row = row0 + Calls::row(p), col = col0 + Calls::col(p);
                if (inside(row, col))
                        reads[p % AHEAD].get_rows(tail, row, col);
        }
        __device__ __forceinline__ void get_cols(int p)
        {
                const int row = row0 + Calls::row(p), col = col0 + Calls::col(p);
                if (inside(row, col))
                        reads[p % AHEAD].get_cols(tail, col);
        }
        __device__ __forceinline__ void start()
        {
#pragma unroll
                for (int p = 0; p < AHEAD; p++)
                        get_rows(p);
        }
        /* v: of each call, or of the one at hand; what the tail leaves there. */
        template <int KEEP>
        __device__ __forceinline__ void run(const float (&acc)[ROWS][WN / 8][4], float (&v)[KEEP][V])
        {
                get_cols(0);
#pragma unroll
                for (int p = 0; p < COUNT; p++) {
                        const int row = row0 + Calls::row(p), col = col0 + Calls::col(p);
                        Calls::values(acc, p, v[p % KEEP]);
                        if (p + 1 < COUNT)
                                get_cols(p + 1);
                        if (inside(row, col))
                                reads[p % AHEAD].call(tail, row, col, v[p % KEEP]);
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
template <class Tile, int SPARE = 3, class Tail>
TGC_DEV void mma_tail(const float (&acc)[Tile::WM / 16][Tile::WN / 8][4], int row0, int col0, int M, int N,
                      const Tail &tail)
{
        if constexpr (TailRows<Tail>::WHOLE) {
                tail.template fragments<Tile::WM / 16, Tile::WN>(acc, row0, col0);
        } else {
                MmaTail<Tile::WM / 16, Tile::WN, 16, SPARE, Tail> t(tail, row0, col0, M, N, false);
                t.start();
                t.run(acc);
        }
}

/* ---- 16-bit: tensor cores ------------------------------------------------ */

/* A's 16x16 fragments at k = 16*ks of the stage, for a warp whose rows start at m0. */
template <bool KMAJOR, class Tile>
TGC_DEV void frag_a(unsigned (&f)[Tile::WM / 16][4], const char *panel, int m0, int ks)
{
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < Tile::WM / 16; i++)
                if constexpr (KMAJOR)
                        ldmatrix_x4(f[i], panel + swizzle<Tile::BK>(m0 + i * 16 + (lane & 15), ks * 2 + (lane >> 4)));
                else
                        ldmatrix_x4_trans(f[i], panel + swizzle<Tile::BM>(ks * 16 + (lane & 7) + (lane >> 4) * 8,
                                                                         m0 / 8 + i * 2 + (lane >> 3 & 1)));
}

/* B's: f[j] holds two 16x8 fragments, columns 16j.. and 16j+8.. */
template <bool KMAJOR, class Tile>
TGC_DEV void frag_b(unsigned (&f)[Tile::WN / 16][4], const char *panel, int n0, int ks)
{
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int j = 0; j < Tile::WN / 16; j++)
                if constexpr (KMAJOR)
                        ldmatrix_x4(f[j], panel + swizzle<Tile::BK>(n0 + j * 16 + (lane & 7) + (lane >> 4) * 8,
                                                                   ks * 2 + (lane >> 3 & 1)));
                else
                        ldmatrix_x4_trans(f[j], panel + swizzle<Tile::BN>(ks * 16 + (lane & 15),
                                                                         n0 / 8 + j * 2 + (lane >> 4)));
}

/* One tile of C over the K-tiles [kt0, kt1).  Copies run STAGES-1 tiles ahead and
 * fragments one k-step ahead; one barrier per K-tile. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, class PA, class PB, class Tail>
TGC_DEV void mma_tile(const PA &pa, const PB &pb, int kt0, int kt1, int M, int N, char *smem, const Tail &tail)
{
        constexpr int MI = Tile::WM / 16, NJ = Tile::WN / 16, KS = Tile::BK / 16, STAGES = Tile::STAGES;
        constexpr int STAGE = Tile::A_BYTES + Tile::B_BYTES;
        const int warp = threadIdx.x >> 5;
        const int m0 = warp / Tile::WARPS_N * Tile::WM, n0 = warp % Tile::WARPS_N * Tile::WN;
        float acc[MI][NJ * 2][4];
        unsigned fa[2][MI][4], fb[2][NJ][4];

#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
                for (int j = 0; j < NJ * 2; j++)
                        acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0.f;

#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
                if (kt0 + s < kt1) {
                        panel_copy<1, false>(pa, smem + s * STAGE, (kt0 + s) * Tile::BK, 0);
                        panel_copy<1, false>(pb, smem + s * STAGE + Tile::A_BYTES, (kt0 + s) * Tile::BK, 0);
                }
                cp_async_commit();
        }
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        frag_a<!TRANS_A, Tile>(fa[0], smem, m0, 0);
        frag_b<TRANS_B, Tile>(fb[0], smem + Tile::A_BYTES, n0, 0);

        int now = 0, into = (STAGES - 1) * STAGE;       /* byte offsets of the stages read and filled */
        for (int kt = kt0; kt < kt1; kt++) {
#pragma unroll
                for (int ks = 0; ks < KS; ks++) {
                        if (kt + STAGES - 1 < kt1) {
                                panel_copy<KS, false>(pa, smem + into, (kt + STAGES - 1) * Tile::BK, ks);
                                panel_copy<KS, false>(pb, smem + into + Tile::A_BYTES, (kt + STAGES - 1) * Tile::BK, ks);
                        }
                        if (ks == KS - 1) {
                                /* This warp holds the last fragments of the stage: once all do, it may be
                                 * filled.  After the last K-tile the next stage is stale and unused. */
                                cp_async_commit();
                                cp_async_wait<STAGES - 2>();
                                __syncthreads();
                                into = now;
                                now = now == (STAGES - 1) * STAGE ? 0 : now + STAGE;
                        }
                        frag_a<!TRANS_A, Tile>(fa[(ks + 1) & 1], smem + now, m0, (ks + 1) % KS);
                        frag_b<TRANS_B, Tile>(fb[(ks + 1) & 1], smem + now + Tile::A_BYTES, n0, (ks + 1) % KS);
#pragma unroll
                        for (int j = 0; j < NJ; j++)
#pragma unroll
                                for (int i = 0; i < MI; i++) {
                                        mma_16816<T>(acc[i][2 * j], fa[ks & 1][i], fb[ks & 1][j][0], fb[ks & 1][j][1]);
                                        mma_16816<T>(acc[i][2 * j + 1], fa[ks & 1][i],
                                                     fb[ks & 1][j][2], fb[ks & 1][j][3]);
                                }
                }
        }
        mma_tail<Tile>(acc, pa.first + m0, pb.first + n0, M, N, tail);
        __syncthreads();
}

/* ---- 16-bit on sm_90a: warpgroups ------------------------------------------ */

#ifdef TGC_SM90A

/* 16 of K at ks*16 of a panel whose rows on C's side start at smem.  KMAJOR: rows of BK, swizzled
 * over 8 rows; otherwise rows of 64 of C's side, whose blocks of BK rows follow each other. */
template <bool KMAJOR, int BK>
TGC_DEV unsigned long long panel_desc(const char *smem, int ks)
{
        if constexpr (KMAJOR)
                return wgmma_desc(smem + ks * 32, 16, 8 * BK * 2, BK == 64 ? SWIZZLE_128 : SWIZZLE_64);
        else
                return wgmma_desc(smem + ks * 16 * 128, BK * 128, 1024, SWIZZLE_128);
}

/* mma_tile on the warpgroup's tensor cores.  Copies run AHEAD K-tiles in front: a stage is
 * filled again once all groups have waited for the products that read it. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, class PA, class PB, class Tail>
TGC_DEV void wgmma_tile(const PA &pa, const PB &pb, int kt0, int kt1, int M, int N, char *smem, const Tail &tail)
{
        constexpr int STAGES = Tile::STAGES, STAGE = Tile::A_BYTES + Tile::B_BYTES, AHEAD = STAGES - 1 - Tile::PENDING;
        constexpr int BLOCK = 64 * Tile::BK * 2, LAST = (STAGES - 1) * STAGE;   /* 64 rows of A, in bytes */
        const int warp = threadIdx.x >> 5;
        float d[Tile::BN / 2], acc[1][Tile::BN / 8][4];

#pragma unroll
        for (int i = 0; i < Tile::BN / 2; i++)
                d[i] = 0.f;
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
                if (kt0 + s < kt1) {
                        panel_copy<1, true>(pa, smem + s * STAGE, (kt0 + s) * Tile::BK, 0);
                        panel_copy<1, true>(pb, smem + s * STAGE + Tile::A_BYTES, (kt0 + s) * Tile::BK, 0);
                }
                cp_async_commit();
        }
        int now = 0, into = AHEAD * STAGE;              /* byte offsets of the stages read and filled */
        for (int kt = kt0; kt < kt1; kt++) {
                cp_async_wait<AHEAD - 1>();
                fence_proxy_async();
                __syncthreads();
                const char *a = smem + now + warp / 4 * BLOCK, *b = smem + now + Tile::A_BYTES;
                wgmma_fence();
#pragma unroll
                for (int ks = 0; ks < Tile::BK / 16; ks++)
                        wgmma<TRANS_A, !TRANS_B>(d, panel_desc<!TRANS_A, Tile::BK>(a, ks),
                                                 panel_desc<TRANS_B, Tile::BK>(b, ks), 1, T());
                wgmma_commit();
                if (kt + AHEAD < kt1) {
                        panel_copy<1, true>(pa, smem + into, (kt + AHEAD) * Tile::BK, 0);
                        panel_copy<1, true>(pb, smem + into + Tile::A_BYTES, (kt + AHEAD) * Tile::BK, 0);
                }
                cp_async_commit();
                wgmma_wait<Tile::PENDING>();
                now = now == LAST ? 0 : now + STAGE;
                into = into == LAST ? 0 : into + STAGE;
        }
        wgmma_wait<0>();
        wgmma_hold(d);
#pragma unroll
        for (int i = 0; i < Tile::BN / 2; i++)
                acc[0][i / 4][i % 4] = d[i];
        mma_tail<Tile>(acc, pa.first + warp * 16, pb.first, M, N, tail);
        __syncthreads();
}

#endif

/* ---- float32: FMA units -------------------------------------------------- */

/* A K-tile of float32 from memory to registers, and from there to shared memory
 * with K outermost: s[k][place on C's side], rows of LD floats. */
template <class P>
TGC_DEV void panel_fetch(const P &p, float (&r)[P::COPIES][P::UNIT], int k0)
{
#pragma unroll
        for (int i = 0; i < P::COPIES; i++) {
                const float *from;
                if (p.source(i, k0, from)) {
                        load<P::UNIT>(r[i], from);
                } else {
#pragma unroll
                        for (int j = 0; j < P::UNIT; j++)
                                r[i][j] = 0.f;
                }
        }
}

template <bool KMAJOR, int LD, class P>
TGC_DEV void panel_put(const P &, const float (&r)[P::COPIES][P::UNIT], float *s)
{
#pragma unroll
        for (int i = 0; i < P::COPIES; i++)
                if constexpr (KMAJOR) {
#pragma unroll
                        for (int j = 0; j < P::UNIT; j++)
                                s[(P::col(i) + j) * LD + P::row(i)] = r[i][j];
                } else {
                        store<P::UNIT>(s + P::row(i) * LD + P::col(i), r[i]);
                }
}

/* A lane's rows and columns: blocks of 4 rows 16 apart, of VN columns 8*VN apart. */
template <class Tile, bool TRANS_A, bool TRANS_B, class PA, class PB, class Tail>
TGC_DEV void fma_tile(const PA &pa, const PB &pb, int kt0, int kt1, int M, int N, char *smem, const Tail &tail)
{
        constexpr int TM = Tile::WM / 4, TN = Tile::WN / 8, VN = TN < 4 ? TN : 4;
        constexpr int STAGE = Tile::BK * (Tile::LDA + Tile::LDB);
        constexpr int V = Tail::MAXV < VN ? Tail::MAXV : VN;
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
        const int m0 = warp / Tile::WARPS_N * Tile::WM + lane / 8 * 4;
        const int n0 = warp % Tile::WARPS_N * Tile::WN + lane % 8 * VN;
        float acc[TM][TN], ra[PA::COPIES][PA::UNIT], rb[PB::COPIES][PB::UNIT];
        float *s = (float *)smem;

#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                        acc[i][j] = 0.f;

        if (kt0 < kt1) {
                panel_fetch(pa, ra, kt0 * Tile::BK);
                panel_fetch(pb, rb, kt0 * Tile::BK);
                panel_put<!TRANS_A, Tile::LDA>(pa, ra, s);
                panel_put<TRANS_B, Tile::LDB>(pb, rb, s + Tile::BK * Tile::LDA);
        }
        __syncthreads();
        for (int kt = kt0; kt < kt1; kt++) {
                const float *sa = s + ((kt - kt0) & 1) * STAGE, *sb = sa + Tile::BK * Tile::LDA;
                float *next = s + ((kt - kt0 + 1) & 1) * STAGE;
                if (kt + 1 < kt1) {
                        panel_fetch(pa, ra, (kt + 1) * Tile::BK);
                        panel_fetch(pb, rb, (kt + 1) * Tile::BK);
                }
#pragma unroll
                for (int k = 0; k < Tile::BK; k++) {
                        float a[TM / 4][4], b[TN / VN][VN];
#pragma unroll
                        for (int i = 0; i < TM / 4; i++)
                                load<4>(a[i], sa + k * Tile::LDA + m0 + i * 16);
#pragma unroll
                        for (int j = 0; j < TN / VN; j++)
                                load<VN>(b[j], sb + k * Tile::LDB + n0 + j * 8 * VN);
#pragma unroll
                        for (int i = 0; i < TM; i++)
#pragma unroll
                                for (int j = 0; j < TN; j++)
                                        acc[i][j] = fmaf(a[i / 4][i % 4], b[j / VN][j % VN], acc[i][j]);
                }
                if (kt + 1 < kt1) {
                        panel_put<!TRANS_A, Tile::LDA>(pa, ra, next);
                        panel_put<TRANS_B, Tile::LDB>(pb, rb, next + Tile::BK * Tile::LDA);
                }
                __syncthreads();
        }

#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j += V) {
                        const int row = pa.first + m0 + i / 4 * 16 + i % 4;
                        const int col = pb.first + n0 + j / VN * 8 * VN + j % VN;
                        if (row < M && col < N) {
                                float v[V];
#pragma unroll
                                for (int x = 0; x < V; x++)
                                        v[x] = acc[i][j + x];
                                tail(row, col, v);
                        }
                }
}

/* ---- entries ------------------------------------------------------------- */

/* The tile at `at`, over the K-tiles [kt0, kt1), rows of A as RowsA says, rows of B as RowsB. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, int ALIGN, class RowsA, class RowsB, class Tail>
TGC_DEV void matmul_block(const T *a, long lda, RowsA rows_a, const T *b, long ldb, RowsB rows_b,
                          int M, int N, int K, TileAt at, int kt0, int kt1, char *smem, const Tail &tail)
{
        const Panel<T, !TRANS_A, Tile::BM, Tile::BK, Tile::THREADS, ALIGN, RowsA> pa(a, lda, at.m, M, K, rows_a);
        const Panel<T, TRANS_B, Tile::BN, Tile::BK, Tile::THREADS, ALIGN, RowsB> pb(b, ldb, at.n, N, K, rows_b);
        if constexpr (Tile::SIMT)
                fma_tile<Tile, TRANS_A, TRANS_B>(pa, pb, kt0, kt1, M, N, smem, tail);
        else if constexpr (Tile::TF32)
                tf32_tile<Tile, TRANS_A, TRANS_B>(pa, pb, kt0, kt1, M, N, smem, tail);
#ifdef TGC_SM90A
        else if constexpr (Tile::WGMMA)
                wgmma_tile<T, Tile, TRANS_A, TRANS_B>(pa, pb, kt0, kt1, M, N, smem, tail);
#endif
        else
                mma_tile<T, Tile, TRANS_A, TRANS_B>(pa, pb, kt0, kt1, M, N, smem, tail);
}

template <class T, class Tile, bool TRANS_A, bool TRANS_B, int ALIGN, class Tail>
TGC_DEV void matmul_task(const T *a, long lda, const T *b, long ldb, int M, int N, int K, int tile, char *smem,
                         const Tail &tail)
{
        matmul_block<T, Tile, TRANS_A, TRANS_B, ALIGN>(a, lda, SameRows(), b, ldb, SameRows(), M, N, K,
                                                       tile_at<Tile>(tile, M, N), 0,
                                                       (K + Tile::BK - 1) / Tile::BK, smem, tail);
}

/* Split K: for weight gradients, whose C is small and K long.  Tiles are numbered
 * split-major; each split sums its own run of K-tiles into its own M x N of ws. */
template <int V>
struct SplitTail {
        static constexpr int MAXV = V, MINV = 1;
        float *ws;
        int N;
        template <int W>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[W]) const
        {
                store<W>(ws + (long)row * N + col, v);
        }
};

/* V (8, 4, 2, 1) divides N. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, int ALIGN, int V>
TGC_DEV void matmul_split_task(const T *a, long lda, const T *b, long ldb, int M, int N, int K, int splits,
                               float *ws, int tile, char *smem)
{
        const int tiles = matmul_tiles<Tile>(M, N), s = tile / tiles, steps = (K + Tile::BK - 1) / Tile::BK;
        const int kt0 = (int)((long)steps * s / splits), kt1 = (int)((long)steps * (s + 1) / splits);
        const SplitTail<V> tail = { ws + (long)s * M * N, N };
        matmul_block<T, Tile, TRANS_A, TRANS_B, ALIGN>(a, lda, SameRows(), b, ldb, SameRows(), M, N, K,
                                                       tile_at<Tile>(tile - s * tiles, M, N), kt0, kt1, smem, tail);
}

/* Sums ws over the splits, in order, and calls the tail.  THREADS * V elements of C
 * per tile, V = Tail::MAXV: ceil(M*N / (THREADS*V)) tiles.  No shared memory. */
template <int THREADS, class Tail>
TGC_DEV void splitk_reduce_task(const float *ws, int splits, int M, int N, int tile, const Tail &tail)
{
        constexpr int V = Tail::MAXV < 8 ? Tail::MAXV : 8;
        const long size = (long)M * N, i = ((long)tile * THREADS + threadIdx.x) * V;
        if (i >= size)
                return;
        float sum[V];
        load<V>(sum, ws + i);
        for (int s = 1; s < splits; s++) {
                float v[V];
                load<V>(v, ws + s * size + i);
#pragma unroll
                for (int j = 0; j < V; j++)
                        sum[j] += v[j];
        }
        tail((int)(i / N), (int)(i % N), sum);
}

#endif
