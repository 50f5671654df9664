/* grouped_stored.cuh: grouped_gemm.cuh's GEMVs for few slots with block-quantised expert weights
 * (../gemv/gemv_chunks.cuh).  Only the chosen experts' blocks are read.
 *
 *      grouped_stored_gemv_task<S, N, K, THREADS, ROWS, ADIV, SCATTER>(w, perm, offs, E, tile,
 *              smem, prologue, epilogue)
 *              as grouped_gemv_task; w (E,N,K)
 *      grouped_stored_rows_task<T, S, N, K, THREADS, ROWS, ADIV, MIX>(w, ids, bias, gates, tile,
 *              smem, prologue, epilogue)
 *              as grouped_rows_task; T: type of the biases
 *
 * Tiles and shared memory: one row of x, of K or MIX * K (GemvChunks in
 * ../../forms/gemv_shape.h). */
#ifndef TGC_GROUPED_STORED_CUH
#define TGC_GROUPED_STORED_CUH

#include "grouped_gemm.cuh"
#include "gemv_chunks.cuh"

template <class S, int N, int K, int THREADS, int ROWS, int ADIV, bool SCATTER, class Prologue,
          class Epilogue>
TGC_DEV void grouped_stored_gemv_task(const unsigned char *w, const int *perm, const int *offs,
                                      int E, int tile, char *smem, const Prologue &prologue,
                                      const Epilogue &epilogue)
{
        constexpr int COLS = THREADS / 32 * ROWS, ACROSS = (N + COLS - 1) / COLS;
        const int p = tile / ACROSS, e = expert_of_slot(offs, E, p);
        const int row = ADIV ? perm[p] / (ADIV ? ADIV : 1) : p;
        const SlotEpilogue<SCATTER, Epilogue> slot_epilogue = { epilogue, perm, p - row, e };
        const ChunksRows<ROWS> at = { gemv_column<THREADS, ROWS, 1>(tile % ACROSS), N - 1, K,
                                      (long)e * N * K };
        gemv_chunks_rows<S, 1, N, K, THREADS, ROWS, NORM_NONE>(w, at, 0.f, row, tile % ACROSS, smem,
                                                               prologue, slot_epilogue);
}

/* Rows of PARTS experts, seen as one row of PARTS * K columns. */
template <int ROWS, int K, int PARTS>
struct StoredPartRows {
        ChunksRows<ROWS> row;
        long skip[PARTS]; /* distance from position k of the whole to k of the part's row */
        __device__ __forceinline__ long at(int r, int k) const
        {
                long s = skip[0];
#pragma unroll
                for (int p = 1; p < PARTS; p++)
                        s = k >= p * K ? skip[p] : s;
                return row.at(r, k) + s;
        }
};

template <class T, class S, int N, int K, int THREADS, int ROWS, int ADIV, int MIX, class Prologue,
          class Epilogue>
TGC_DEV void grouped_stored_rows_task(const unsigned char *w, const int *ids, const T *bias,
                                      const float *gates, int tile, char *smem,
                                      const Prologue &prologue, const Epilogue &epilogue)
{
        constexpr int COLS = THREADS / 32 * ROWS, ACROSS = (N + COLS - 1) / COLS,
                      PARTS = MIX ? MIX : 1;
        const int y = tile / ACROSS, across = tile % ACROSS;
        StoredPartRows<ROWS, K, PARTS> at = {
                { gemv_column<THREADS, ROWS, 1>(across), N - 1, K, 0 }, {}
        };
        ids += y * PARTS;
        gates = MIX ? gates + y * PARTS : nullptr;
#pragma unroll
        for (int p = 0; p < PARTS; p++)
                at.skip[p] = (long)ids[p] * N * K - p * K;
        const SlotPrologue<K, ADIV, MIX, Prologue> slot_prologue = { prologue, gates };
        const BiasEpilogue<T, N, PARTS, Epilogue> bias_epilogue = { epilogue, bias, gates, ids };
        gemv_chunks_rows<S, 1, N, PARTS * K, THREADS, ROWS, NORM_NONE>(w, at, 0.f, y, across, smem,
                                                                       slot_prologue,
                                                                       bias_epilogue);
}

#endif
