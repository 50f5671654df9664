/* grouped_gemm_stored.cuh: grouped_gemm_task (grouped_gemm.cuh) with block-quantised expert
 * weights (../gemm/gemm_stored.cuh).
 *
 *      grouped_gemm_stored_task<T, S, Tile, N, K, ADIV, SCATTER, ALIGN>(a, lda, w, perm, offs, E,
 *              tile, smem, epilogue)
 *              (ceil(P/BM) + E) * ceil(N/BN) tiles; w (E,N,K) */
#ifndef TGC_GROUPED_GEMM_STORED_CUH
#define TGC_GROUPED_GEMM_STORED_CUH

#include "grouped_gemm.cuh"
#include "gemm_stored.cuh"

template <class T, class S, class Tile, int N, int K, int ADIV, bool SCATTER, int ALIGN,
          class Epilogue>
TGC_DEV void grouped_gemm_stored_task(const T *a, long lda, const unsigned char *w, const int *perm,
                                      const int *offs, int E, int tile, char *smem,
                                      const Epilogue &epilogue)
{
        constexpr int ACROSS = (N + Tile::BN - 1) / Tile::BN;
        int e, m;
        pdl_wait(); /* the routing is written by the launches before, as x is */
        if (!expert_of_tile<Tile::BM>(offs, E, tile / ACROSS, e, m))
                return;
        const int first = offs[e], count = offs[e + 1] - first;
        const TileAt at = { m * Tile::BM, tile % ACROSS * Tile::BN };
        const SlotRows<ADIV> rows = { perm + first, first };
        const SlotEpilogue<SCATTER, Epilogue> slot_epilogue = { epilogue, perm, first, e };
        float acc[Tile::MI][Tile::MJ][4], *c = (float *)smem;
        stored_block<T, S, Tile, N, K, ALIGN>(acc, a, lda, rows,
                                              w + e * (N * StoredSlice<S, K>::ROW), count, at, 0,
                                              (K + Tile::BK - 1) / Tile::BK, smem);
        stored_sums<Tile>(c, acc);
        __syncthreads();
        stored_epilogue<Tile>(c, at, count, N, slot_epilogue);
        __syncthreads();
}

#endif
