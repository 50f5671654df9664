/* gemm_producer_sm90.cuh: the producer of gemm_sm90.cuh: tile shapes, which (parts of) tiles a
 * block computes, and the thread that loads their panels by TMA. */
#ifndef TGC_GEMM_PRODUCER_SM90_CUH
#define TGC_GEMM_PRODUCER_SM90_CUH

#include "epilogue_pair_sm90.cuh"
#include "pipeline_sm90.cuh"
#ifdef TGC_SM90A

/* ---- tile shapes -------------------------------------------------------- */

/* SHARE 2: cooperative, BM / 2 rows per consumer.  1: ping-pong.  BK: in 16-bit values. */
template <int BM_, int BN_, int SHARE_, int STAGES_, int LEAD_ = 2, bool PAIR_ = false,
          int PARTS_ = 1>
struct STile {
        static constexpr int BM = BM_, BN = BN_, BK = 64, SHARE = SHARE_, STAGES = STAGES_,
                             PARTS = PARTS_;
        static constexpr bool PAIR = PAIR_;
        /* no tile is cut if they divide C */
        static constexpr int WHOLE_M = PAIR ? 2 * BM : BM, WHOLE_N = BN;
        static constexpr int MINB = 1, THREADS = 128 * 3;
        static constexpr int WM = BM / SHARE; /* rows per consumer */
        static constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2,
                             STAGE = A_BYTES + B_BYTES;
        static constexpr int RING = STAGES * STAGE + 2 * STAGES * 8 + (PARTS > 1 ? 8 : 0);
        /* Epilogue panels: bytes, first offset, number per warp (2 for Boxed epilogues if they
         * fit). */
        static constexpr int PANEL = 2048, PANELS = (RING + 1023) / 1024 * 1024;
        static constexpr int EACH = PARTS == 1 && PANELS + 16 * PANEL <= (226 << 10) ? 2 : 1;
        /* Panels of Fetched epilogues, ping-pong only: as many as fit for a pair of warps, one of
         * each consumer; their barriers are behind the pipeline's. */
        static constexpr int BOTH = SHARE_ > 1 ? 0 : PANELS + 16 * PANEL <= (226 << 10) ? 4 : 3;
        static constexpr int SMEM = PANELS + (4 * BOTH > 8 * EACH ? 4 * BOTH : 8 * EACH) * PANEL;
        static_assert(RING + 8 * BOTH * 8 <= PANELS, "barriers fit");
        static constexpr bool SIMT = false;
        static constexpr int LEAD = SHARE == 2 ? LEAD_ : 0;
        /* threads that load by cp.async (grouped_gemm_sm90.cuh) */
        static constexpr int COPIERS = 0;
        static constexpr bool SLABS = false;
        static_assert(WM % 64 == 0 && BN % 64 == 0 && WM / 64 * BN <= 384,
                      "64 rows a product, sums in registers");
        static_assert(LEAD < STAGES, "what one consumer waits for does not wait for the other");
};

/* The rows of ../../forms/sm90_gemm_tiles.def. */
typedef STile<128, 256, 2, 4> S128x256;
typedef STile<128, 192, 2, 5> S128x192;
typedef STile<256, 128, 2, 4> S256x128;
typedef STile<128, 128, 2, 6> S128x128;
typedef STile<128, 128, 1, 6> S128x128t;
typedef STile<128, 192, 1, 5> S128x192t;
/* In pairs (clusters of two). */
typedef STile<128, 128, 1, 6, 0, true> S128x128p;
typedef STile<128, 192, 1, 5, 0, true> S128x192p;
/* Split-K. */
typedef STile<128, 128, 2, 6, 0, true, 2> S128x128p2;
typedef STile<128, 128, 2, 6, 0, true, 4> S128x128p4;

/* Tile in pairs, cooperative. */
template <class Tile>
struct Pairs : Tile {
        static constexpr bool PAIR = true;
        static constexpr int WHOLE_M = 2 * Tile::BM;
};

/* Tile for a B that is a copy in slabs (transpose.cuh), stacked: its map is that of (slabs * N,
 * 32) float. */
template <class Tile>
struct Slabs : Tile {
        static constexpr bool SLABS = true;
};

/* Tile with BK counted in T. */
template <class T, class Tile>
struct TileOf : Tile {
        static constexpr int BK = 128 / (int)sizeof(T);
};

/* ---- work: what a block computes, one piece after the other ----------------- */

/* C at (m, n), over the K-steps [kt0, kt1); split: which part of K that is. */
struct Piece {
        int m, n, kt0, kt1, split;
};

/* What a kind of work provides (here and in grouped_gemm_sm90.cuh):
 *
 *      Part, get(i, Part &)    the i-th piece of this block; false: none left
 *      EMPTY                   a piece may have no K-steps: zeros
 *      rows(p)                 end of the rows of C that are stored
 *      End, epilogue_of(p, i)  the epilogue of a piece
 *      KEEPS                   registers that this takes beyond a plain GEMM */

/* Corner of tile t; in pairs the tile rows are rounded up to an even number. */
template <class Tile>
TGC_DEV TileAt tile_of(int t, int M, int N)
{
        return tile_at<Tile>(t,
                             Tile::PAIR ? (M + Tile::WHOLE_M - 1) / Tile::WHOLE_M * Tile::WHOLE_M
                                        : M,
                             N);
}

template <class Tile>
TGC_DEV int k_steps(int K)
{
        return (K + Tile::BK - 1) / Tile::BK;
}

/* Tiles first, first + step, ... below end; the caller's epilogue. */
template <class Tile, class Epilogue>
struct TileWork {
        typedef Epilogue End;
        typedef Piece Part;
        static constexpr bool EMPTY = false;
        static constexpr int KEEPS = 0;
        int M, N, K, first, end, step;
        const Epilogue &epilogue;

        __device__ __forceinline__ bool get(int i, Piece &p) const
        {
                const int t = first + i * step;
                if (t >= end)
                        return false;
                const TileAt at = tile_of<Tile>(t, M, N);
                p.m = at.m, p.n = at.n, p.kt0 = 0, p.kt1 = k_steps<Tile>(K), p.split = 0;
                return true;
        }
        __device__ __forceinline__ const Epilogue &epilogue_of(const Piece &, int) const
        {
                return epilogue;
        }
        __device__ __forceinline__ int rows(const Piece &) const { return M; }
};

/* A batch of equal GEMMs, M x N each, whose matrices (results too) are stacked: p.m is a row of
 * the whole stack.  TRIANGLE: C is symmetric, tiles are square, and those below the diagonal are
 * skipped. */
template <class Tile, class Epilogue, bool TRIANGLE>
struct BatchWork {
        typedef Epilogue End;
        typedef Piece Part;
        static constexpr bool EMPTY = false;
        static constexpr int KEEPS = 0;
        static_assert(!TRIANGLE || (Tile::BM == Tile::BN && !Tile::PAIR), "squares");
        int M, N, K, batch, first, step;
        const Epilogue &epilogue;

        __device__ __forceinline__ bool get(int i, Piece &p) const
        {
                const int t = first + i * step, high = (M + Tile::BM - 1) / Tile::BM,
                          each = TRIANGLE ? high * (high + 1) / 2 : gemm_tiles<Tile>(M, N),
                          z = t / each;
                int at = t - z * each;
                p.kt0 = 0, p.kt1 = k_steps<Tile>(K), p.split = 0;
                if constexpr (TRIANGLE) {
                        int row = 0;
                        for (; at >= high - row; row++)
                                at -= high - row;
                        p.m = z * M + row * Tile::BM, p.n = (row + at) * Tile::BN;
                } else {
                        const TileAt tile = tile_of<Tile>(at, M, N);
                        p.m = z * M + tile.m, p.n = tile.n;
                }
                return z < batch;
        }
        __device__ __forceinline__ const Epilogue &epilogue_of(const Piece &, int) const
        {
                return epilogue;
        }
        __device__ __forceinline__ int rows(const Piece &p) const { return (p.m / M + 1) * M; }
};

/* Epilogue of TRIANGLE: stores tiles above the diagonal a second time, transposed. */
template <class Tile, class T, class Epilogue>
struct Mirrored {
        static constexpr int MAXV = Epilogue::MAXV, MINV = Epilogue::MINV;
        const Epilogue &epilogue;
        T *out;
        int N;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                const int z = row / N, r = row - z * N;
                epilogue(row, col, v);
                if (col / Tile::BN == r / Tile::BM)
                        return;
#pragma unroll
                for (int j = 0; j < V; j++) {
                        const float one[1] = { v[j] };
                        store<1>(out + (long)(z * N + col + j) * N + r, one);
                }
        }
};

/* Tiles of splits, numbered as in gemm_split_k_task: first, first + step, ...; splits <=
 * K-steps. */
template <class Tile, int V>
struct SplitWork {
        typedef SplitEpilogue<V> End;
        typedef Piece Part;
        static constexpr bool EMPTY = false;
        static constexpr int KEEPS = 0;
        int M, N, K, splits, first, step;
        float *ws; /* (splits, M, N) */

        __device__ __forceinline__ int tiles() const { return gemm_tiles<Tile>(M, N); }
        __device__ __forceinline__ bool get(int i, Piece &p) const
        {
                const int t = first + i * step, s = t / tiles(), steps = k_steps<Tile>(K);
                const TileAt at = tile_at<Tile>(t - s * tiles(), M, N);
                p.m = at.m, p.n = at.n, p.split = s;
                p.kt0 = (int)((long)steps * s / splits),
                p.kt1 = (int)((long)steps * (s + 1) / splits);
                return s < splits;
        }
        __device__ __forceinline__ SplitEpilogue<V> epilogue_of(const Piece &, int i) const
        {
                return { ws + (long)((first + i * step) / tiles()) * M * N, N };
        }
        __device__ __forceinline__ int rows(const Piece &) const { return M; }
};

/* ---- loads --------------------------------------------------------------------- */

/* First row and column of a piece's panel at K-step kt. */
template <int BOX>
struct OneProduct {
        __device__ __forceinline__ int2 a(const Piece &p, int kt) const
        {
                return make_int2(p.m, kt * BOX);
        }
        __device__ __forceinline__ int2 b(const Piece &p, int kt) const
        {
                return make_int2(p.n, kt * BOX);
        }
};
/* The same for BatchWork: where K is across rows (TRANS_A, not TRANS_B), K is a multiple of BOX. */
template <int BOX, bool TRANS_A, bool TRANS_B>
struct BatchProducts {
        int M, N, K;
        __device__ __forceinline__ int2 a(const Piece &p, int kt) const
        {
                const int z = p.m / M;
                return TRANS_A ? make_int2(p.m - z * M, z * K + kt * BOX)
                               : make_int2(p.m, kt * BOX);
        }
        __device__ __forceinline__ int2 b(const Piece &p, int kt) const
        {
                const int z = p.m / M;
                return TRANS_B ? make_int2(z * N + p.n, kt * BOX)
                               : make_int2(p.n, z * K + kt * BOX);
        }
};

/* Loads panels.  A box is 64 of C's side by 64 of K (float: 32 x 32), rows of 128 bytes as in the
 * matrix, 8 KB (float: 4 KB); boxes follow each other along C's side.  Swizzle: 16-byte chunk c of
 * a row is stored at c ^ (row % 8). */
template <class Tile, bool TRANS_A, bool TRANS_B, class Places = OneProduct<Tile::BK>>
struct Loader {
        static constexpr int REGS = 24, THREADS = 1, BOX = Tile::BK;
        const void *a, *b; /* tensor maps */
        int N;
        Places places;

        /* KMAJOR: K is contiguous, rows are C's side; else rows are K.  HALF: boxes `from`, from +
         * 2, ..., multicast to both blocks of the pair. */
        template <bool KMAJOR, int BOXES, bool HALF>
        static __device__ __forceinline__ void load(char *panel, const void *map, Mbar *bar,
                                                    int first, int k0, int from)
        {
#pragma unroll 1
                for (int j = from; j < BOXES; j += HALF ? 2 : 1) {
                        const int x = KMAJOR ? k0 : first + BOX * j,
                                  y = KMAJOR ? first + BOX * j : k0;
                        if (HALF)
                                tma_load_2d_multicast(panel + j * (BOX * 128), map, bar, x, y, 3);
                        else
                                tma_load_2d(panel + j * (BOX * 128), map, bar, x, y);
                }
        }

        __device__ __forceinline__ void load_a(const Pipeline<Tile> &pipe, const Piece &p,
                                               int kt) const
        {
                const int2 at = places.a(p, kt);
                load<!TRANS_A, Tile::BM / BOX, false>(pipe.a(), a, pipe.full(pipe.stage), at.x,
                                                      at.y, 0);
        }
        __device__ __forceinline__ void load_b(const Pipeline<Tile> &pipe, const Piece &p,
                                               int kt) const
        {
                const int2 at = places.b(p, kt);
                load<TRANS_B, Tile::BN / BOX, Tile::PAIR>(pipe.b(), b, pipe.full(pipe.stage),
                                                          at.x + (Tile::SLABS ? kt * N : 0),
                                                          Tile::SLABS ? 0 : at.y,
                                                          Tile::PAIR ? (cluster_rank() ^ kt) & 1
                                                                     : 0);
        }
        __device__ __forceinline__ void announce(const Pipeline<Tile> &pipe) const
        {
                mbarrier_expect_tx(pipe.full(pipe.stage), Tile::STAGE);
        }

        /* The producer loop; one thread.  WAITS: pdl_wait is still to come; the previous kernel
         * makes A and what the epilogue reads, but not B, so B of the first stages loads early.
         * (Elsewhere that slows training steps by 0.5 to 1.2%.) */
        template <bool WAITS, class Work>
        __device__ __forceinline__ void run(Pipeline<Tile> pipe, const Work &work) const
        {
                Piece p;
                int ahead = 0;
                if constexpr (WAITS) {
                        Pipeline<Tile> first = pipe;
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
                                        pipe.wait_empty();
                                        announce(pipe);
                                }
                                load_a(pipe, p, kt);
                                if (!has_b)
                                        load_b(pipe, p, kt);
                                pipe.next();
                        }
        }
};

/* ---- panels as wgmma operands -------------------------------------------------- */

/* Descriptor of an operand in the layout above (PTX ISA, wgmma "matrix descriptor format" and
 * canonical layouts).  sbo: from one block of 8 rows to the next, 1024 bytes.  lbo: ignored with K
 * contiguous, since the 16 k of a wgmma lie in one swizzled row; else from one block of 64 of C's
 * side to the next, BK rows of 128 bytes.  Base offset 0: panels are 1024-byte aligned. */
template <bool KMAJOR, int BK>
TGC_DEV unsigned long long panel_desc(const char *panel)
{
        return KMAJOR ? wgmma_desc_k128(panel) : wgmma_desc(panel, BK * 128, 1024, SWIZZLE_128);
}

/* Descriptor step to the next 16 of k, in units of 16 bytes: 32 bytes along a row, or 16 rows of
 * 128. */
template <bool KMAJOR>
TGC_DEV constexpr unsigned long long desc_k()
{
        return KMAJOR ? 2 : 128;
}
/* Descriptor step of 64 rows of C's side: 64 rows of 128 bytes, or the next block of BK rows. */
template <bool KMAJOR, int BK>
TGC_DEV constexpr unsigned long long desc_64()
{
        return KMAJOR ? 512 : BK * 8;
}

#endif
#endif
