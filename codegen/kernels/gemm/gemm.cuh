/* gemm.cuh: C = op(A) op(B), the portable kernel (sm_80 and up), any size.
 *
 *      A is (M,K) row-major with row stride lda, or (K,M) with TRANS_A;
 *      B is (K,N) row-major with row stride ldb, or (N,K) with TRANS_B (a Linear's weight).
 *
 *      y  = x W^T      TRANS_B            x (M,K), W (N,K)
 *      dx = dy W                          dy (M,N), W (N,K) read as (K,N) with K <-> N
 *      dW = dy^T x     TRANS_A            dy (T,N), x (T,K); M = N, N = K, K = T
 *
 *      gemm_task<T, Tile, TRANS_A, TRANS_B, ALIGN>(a, lda, b, ldb, M, N, K, tile, smem, epilogue)
 *      gemm_split_k_task<... , V>(a, lda, b, ldb, M, N, K, splits, ws, tile, smem)
 *              ws: f32 (splits,M,N)
 *      splitk_reduce_task<THREADS>(ws, splits, M, N, tile, epilogue)
 *
 * Sizes may be literals, which fold away after inlining, or run-time values.  The epilogue gets
 * every element of C once, in float32, V = Epilogue::MAXV at a time, or 4 if that is less (float32
 * tiles, and 16-bit tiles whose warps are 16 columns wide; a 32x32x32 tile: 2).  MAXV divides N.
 *
 * ALIGN (16, 8, 4, 2 bytes) divides both addresses, both row strides in bytes, and the contiguous
 * extent in bytes: of A, K (TRANS_A: M); of B, N (TRANS_B: K).  16 is the fast path; 8 and 4 issue
 * more copies, 2 copies through registers.
 *
 * Rows and columns beyond C are read from some row inside; they reach only elements of C that are
 * not stored.  Beyond K both operands are zero.
 *
 * Files: gemm_tile.cuh (tile shapes), gemm_operand.cuh (global to shared), the mainloops
 * gemm_mma.cuh, gemm_tf32.cuh and gemm_fma.cuh, gemm_epilogue.cuh. */
#ifndef TGC_GEMM_CUH
#define TGC_GEMM_CUH

#include "gemm_mma.cuh"
#include "gemm_fma.cuh"

/* Computes the tile at `at` over K-tiles [kt0, kt1); RowsA, RowsB: which rows of A and B. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, int ALIGN, class RowsA, class RowsB,
          class Epilogue>
TGC_DEV void gemm_block(const T *a, long lda, RowsA rows_a, const T *b, long ldb, RowsB rows_b,
                        int M, int N, int K, TileAt at, int kt0, int kt1, char *smem,
                        const Epilogue &epilogue)
{
        const Panel<T, !TRANS_A, Tile::BM, Tile::BK, Tile::THREADS, ALIGN, RowsA> pa(a, lda, at.m,
                                                                                     M, K, rows_a);
        const Panel<T, TRANS_B, Tile::BN, Tile::BK, Tile::THREADS, ALIGN, RowsB> pb(b, ldb, at.n, N,
                                                                                    K, rows_b);
        if constexpr (Tile::SIMT)
                fma_tile<Tile, TRANS_A, TRANS_B>(pa, pb, kt0, kt1, M, N, smem, epilogue);
        else if constexpr (Tile::TF32)
                tf32_tile<Tile, TRANS_A, TRANS_B>(pa, pb, kt0, kt1, M, N, smem, epilogue);
#ifdef TGC_SM90A
        else if constexpr (Tile::WGMMA)
                wgmma_tile<T, Tile, TRANS_A, TRANS_B>(pa, pb, kt0, kt1, M, N, smem, epilogue);
#endif
        else
                mma_tile<T, Tile, TRANS_A, TRANS_B>(pa, pb, kt0, kt1, M, N, smem, epilogue);
}

template <class T, class Tile, bool TRANS_A, bool TRANS_B, int ALIGN, class Epilogue>
TGC_DEV void gemm_task(const T *a, long lda, const T *b, long ldb, int M, int N, int K, int tile,
                       char *smem, const Epilogue &epilogue)
{
        gemm_block<T, Tile, TRANS_A, TRANS_B, ALIGN>(a, lda, SameRows(), b, ldb, SameRows(), M, N,
                                                     K, tile_at<Tile>(tile, M, N), 0,
                                                     (K + Tile::BK - 1) / Tile::BK, smem, epilogue);
}

/* Split-K: for weight gradients, whose C is small and K long.  Tiles are numbered split-major;
 * each split sums its K-tiles into its own M x N of ws. */
template <int V>
struct SplitEpilogue {
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
TGC_DEV void gemm_split_k_task(const T *a, long lda, const T *b, long ldb, int M, int N, int K,
                               int splits, float *ws, int tile, char *smem)
{
        const int tiles = gemm_tiles<Tile>(M, N), s = tile / tiles,
                  steps = (K + Tile::BK - 1) / Tile::BK;
        const int kt0 = (int)((long)steps * s / splits),
                  kt1 = (int)((long)steps * (s + 1) / splits);
        const SplitEpilogue<V> epilogue = { ws + (long)s * M * N, N };
        gemm_block<T, Tile, TRANS_A, TRANS_B, ALIGN>(a, lda, SameRows(), b, ldb, SameRows(), M, N,
                                                     K, tile_at<Tile>(tile - s * tiles, M, N), kt0,
                                                     kt1, smem, epilogue);
}

/* Sums ws over the splits, in order, and calls the epilogue.  A tile is THREADS * V elements of C,
 * V = Epilogue::MAXV: ceil(M*N / (THREADS*V)) tiles.  No shared memory. */
template <int THREADS, class Epilogue>
TGC_DEV void splitk_reduce_task(const float *ws, int splits, int M, int N, int tile,
                                const Epilogue &epilogue)
{
        constexpr int V = Epilogue::MAXV < 8 ? Epilogue::MAXV : 8;
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
        epilogue((int)(i / N), (int)(i % N), sum);
}

#endif
