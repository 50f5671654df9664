/* gemm_tile.cuh: tile shapes of gemm.cuh, and which tile of C a tile number is. */
#ifndef TGC_GEMM_TILE_CUH
#define TGC_GEMM_TILE_CUH

#include "tgc.cuh"
#include "ptx.cuh"
#include "gemm_tf32.cuh"

/* ---- tile shapes -------------------------------------------------------- */

/* 16-bit operands: BM x BN of C per block, BK of K per stage, STAGES stages; WARPS_M x WARPS_N
 * warps; MINB blocks per multiprocessor. */
template <int BM_, int BN_, int BK_, int WARPS_M_, int WARPS_N_, int STAGES_, int MINB_>
struct HTile {
        static constexpr int BM = BM_, BN = BN_, BK = BK_, WARPS_M = WARPS_M_, WARPS_N = WARPS_N_;
        static constexpr int STAGES = STAGES_, THREADS = 32 * WARPS_M * WARPS_N, MINB = MINB_;
        static constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N; /* of C, per warp */
        static constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2;
        static constexpr int SMEM = STAGES * (A_BYTES + B_BYTES);
        static constexpr bool SIMT = false, WGMMA = false, TF32 = false;
        static_assert(WM % 16 == 0 && WN % 16 == 0 && BK % 32 == 0,
                      "mma is 16x8x16, loaded as 16x16x16");
};

/* 16-bit operands; on sm_90a by wgmma: a warpgroup owns 64 rows of C, each warp 16.  PENDING (0,
 * 1): K-tiles of wgmmas that stay in flight while the next K-tile is awaited.  On other
 * architectures an HTile of the same block, stages and bytes, so that one launch serves all. */
#ifdef TGC_SM90A
template <int BM_, int BN_, int BK_, int WARPS_M_, int WARPS_N_, int STAGES_, int MINB_,
          int PENDING_>
struct WTile : HTile<BM_, BN_, BK_, BM_ / 16, 1, STAGES_, MINB_> {
        static constexpr int PENDING = PENDING_;
        static constexpr bool WGMMA = true;
        static_assert(BM_ / 16 == WARPS_M_ * WARPS_N_, "as many threads on either path");
        static_assert(BM_ % 64 == 0 && (BN_ == 64 || BN_ == 128 || BN_ == 192 || BN_ == 256),
                      "a product is 64xBNx16");
        static_assert(BK_ == 64 || BK_ == 32, "rows of 128 or 64 bytes, swizzled");
};
#else
template <int BM_, int BN_, int BK_, int WARPS_M_, int WARPS_N_, int STAGES_, int MINB_,
          int PENDING_>
struct WTile : HTile<BM_, BN_, BK_, WARPS_M_, WARPS_N_, STAGES_, MINB_> {
};
#endif

/* float32 FMA: a warp owns WM x WN of C, its lanes as 4 x 8. */
template <int BM_, int BN_, int BK_, int WARPS_M_, int WARPS_N_, int MINB_>
struct FTile {
        static constexpr int BM = BM_, BN = BN_, BK = BK_, WARPS_M = WARPS_M_, WARPS_N = WARPS_N_;
        static constexpr int STAGES = 2, THREADS = 32 * WARPS_M * WARPS_N, MINB = MINB_;
        static constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;
        static constexpr int LDA = BM + 4, LDB = BN + 4; /* padded rows, in floats */
        static constexpr int SMEM = STAGES * BK * (LDA + LDB) * 4;
        static constexpr bool SIMT = true, WGMMA = false, TF32 = false;
        static_assert(WM % 16 == 0 && WN % 16 == 0, "a lane owns at least 4x2");
};

/* The rows of ../../forms/gemm_tiles.def, which says when each serves. */
typedef HTile<128, 256, 64, 2, 4, 4, 1> H128x256x64;
typedef HTile<128, 256, 32, 2, 4, 4, 1> H128x256x32;
typedef HTile<256, 128, 32, 4, 2, 4, 1> H256x128x32;
typedef HTile<128, 128, 64, 2, 2, 3, 2> H128x128x64;
typedef HTile<128, 128, 32, 2, 2, 4, 2> H128x128x32;
typedef HTile<128, 64, 64, 2, 2, 4, 2> H128x64x64;
typedef HTile<64, 128, 64, 2, 2, 4, 2> H64x128x64;
typedef HTile<64, 64, 64, 2, 2, 4, 3> H64x64x64;
typedef HTile<32, 64, 64, 1, 4, 4, 4> H32x64x64;
typedef HTile<16, 64, 64, 1, 4, 4, 4> H16x64x64;
typedef HTile<16, 128, 64, 1, 4, 4, 3> H16x128x64;
typedef WTile<128, 256, 64, 2, 4, 4, 1, 1> W128x256x64;
typedef WTile<128, 256, 32, 2, 4, 4, 1, 1> W128x256x32;
typedef WTile<128, 192, 32, 2, 4, 4, 2, 1> W128x192x32;
typedef WTile<128, 128, 64, 2, 4, 3, 2, 0> W128x128x64;
typedef WTile<64, 128, 64, 2, 2, 4, 2, 0> W64x128x64;
typedef WTile<64, 128, 64, 2, 2, 3, 3, 0> W64x128x64_3;
typedef WTile<64, 64, 64, 2, 2, 4, 3, 0> W64x64x64;
typedef FTile<128, 128, 8, 4, 2, 2> F128x128x8;
typedef FTile<64, 64, 16, 2, 2, 4> F64x64x16;
typedef FTile<32, 32, 32, 2, 2, 4> F32x32x32;
typedef FTile<16, 64, 32, 1, 4, 4> F16x64x32;
typedef TTile<64, 64, 32, 1, 4, 3> T64x64x32;
typedef TTile<32, 32, 64, 4, 4, 3> T32x32x64;

/* ---- which tile --------------------------------------------------------- */

#ifndef TILE_GROUP
#define TILE_GROUP 16
#endif

/* Tile order: down groups of sixteen block rows, so that blocks that run together share a few rows
 * of A and a few columns of B in L2. */
struct TileAt {
        int m, n;
}; /* first row and column of C */

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

/* Tiles of one M x N matrix.  A batched GEMM launches batch * n tiles: tile % n of item tile / n,
 * whose strides are added to the pointers. */
template <class Tile>
TGC_DEV int gemm_tiles(int M, int N)
{
        return ((M + Tile::BM - 1) / Tile::BM) * ((N + Tile::BN - 1) / Tile::BN);
}

#endif
