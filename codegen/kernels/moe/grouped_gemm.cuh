/* grouped_gemm.cuh: GEMMs of a mixture of experts, each expert over its own slots.
 *
 * A slot is one (token, choice) pair, numbered token*k + j; there are P.  Routing sorts the slots
 * by expert:
 *
 *      int perm[P]             slot at sorted position p
 *      int offs[E+1]           expert e has positions offs[e] .. offs[e+1]-1;  E <= 1024
 *
 * Operands with one row per slot or token have a DIV: 0, row p (already sorted); d > 0, row
 * perm[p]/d (1: by slot, k: by token).  Results go to row p, or with SCATTER to row perm[p].
 * Epilogues get the expert as a fourth argument: epilogue(row, col, v, e).
 *
 *      grouped_gemm_task<T, Tile, TRANS_W, ADIV, SCATTER, ALIGN>(a, lda, w, perm, offs, E, N, K,
 *              tile, smem, epilogue)
 *              y_p = W_e a_p.  w (E,N,K) with TRANS_W, else (E,K,N).  (ceil(P/BM) + E) * ceil(N/BN)
 *              tiles suffice for every routing; surplus ones return.
 *      grouped_gemm_grad_task<T, Tile, YDIV, ADIV, ALIGN>(dy, ldy, a, lda, perm, offs, E, N, K,
 *              tile, smem, epilogue)
 *              dW_e (N,K) = sum over p of e of dy_p a_p^T; zeros for an expert without slots.
 *              E * ceil(N/BM) * ceil(K/BN) tiles; epilogue rows are N, columns K.
 *      grouped_gemv_task<T, N, K, THREADS, ROWS, SPLIT, ADIV, SCATTER, ALIGN>(w, perm, offs, E,
 *              tile, smem, prologue, epilogue)
 *              y_p = W_e a_p for few slots (decoding); w (E,N,K); the prologue's row is the row of
 *              a.  P * ceil(N/cols) tiles; cols and shared memory as gemv_task's with M = 1.
 *      grouped_rows_task<T, N, K, THREADS, ROWS, SPLIT, ADIV, MIX, ALIGN>(w, ids, bias, gates,
 *              tile, smem, prologue, epilogue)
 *              the same without sorting: ids[s] is the expert of slot s, bias (E,N) or null.
 *              MIX 0: row s of y from row s/ADIV of a; P * ceil(N/cols) tiles.  MIX k: row t of y
 *              is the sum of its k slots, times their gates (rows,k), as one GEMV over k * K
 *              columns; rows * ceil(N/cols) tiles, shared memory as gemv_task's for k * K.  An
 *              ordinary epilogue.
 *
 * ALIGN: as in gemm.cuh and gemv.cuh. */
#ifndef TGC_GROUPED_GEMM_CUH
#define TGC_GROUPED_GEMM_CUH

#include "gemm.cuh"
#include "gemv.cuh"

/* Row of an operand for the slot at sorted position first + r. */
template <int DIV>
struct SlotRows {
        static constexpr bool GATHER = DIV > 0;
        const int *perm; /* perm + first */
        int first;
        __device__ __forceinline__ int operator()(int r) const
        {
                if constexpr (DIV > 1)
                        return (int)((unsigned)perm[r] / DIV);
                else
                        return DIV ? perm[r] : first + r;
        }
};

/* Passes the result row and the expert to the epilogue. */
template <bool SCATTER, class Epilogue>
struct SlotEpilogue {
        static constexpr int MAXV = Epilogue::MAXV, MINV = Epilogue::MINV;
        const Epilogue &epilogue;
        const int *perm;
        int first, e;
        template <int V>
        __device__ __forceinline__ void operator()(int r, int col, float (&v)[V]) const
        {
                epilogue(SCATTER ? perm[first + r] : first + r, col, v, e);
        }
};

template <class Epilogue>
struct GradEpilogue {
        static constexpr int MAXV = Epilogue::MAXV, MINV = Epilogue::MINV;
        const Epilogue &epilogue;
        int e;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                epilogue(row, col, v, e);
        }
};

/* The expert that row tile `tile` belongs to, and the tile's number within it; false behind the
 * last.  Every warp searches by itself, 32 experts at a time. */
template <int BM>
TGC_DEV bool expert_of_tile(const int *offs, int E, int tile, int &expert, int &within)
{
        const int lane = threadIdx.x & 31;
        for (int base = 0; base < E; base += 32) {
                const int e = base + lane;
                int upto = e < E ? (offs[e + 1] - offs[e] + BM - 1) / BM : 0;
#pragma unroll
                for (int d = 1; d < 32; d <<= 1) {
                        const int below = __shfl_up_sync(0xffffffffu, upto, d);
                        upto += lane >= d ? below : 0;
                }
                const unsigned past = __ballot_sync(0xffffffffu, upto > tile);
                if (past) {
                        const int who = __ffs((int)past) - 1;
                        const int before = __shfl_sync(0xffffffffu, upto, who ? who - 1 : 0);
                        expert = base + who;
                        within = tile - (who ? before : 0);
                        return true;
                }
                tile -= __shfl_sync(0xffffffffu, upto, 31);
        }
        return false;
}

/* The expert of sorted position p. */
TGC_DEV int expert_of_slot(const int *offs, int E, int p)
{
        int e = 0;
        for (int base = 0; base < E; base += 32) {
                const int i = base + (int)(threadIdx.x & 31);
                const unsigned ended = __ballot_sync(0xffffffffu, i < E && offs[i + 1] <= p);
                if (ended != 0xffffffffu)
                        return base + __ffs((int)~ended) - 1;
                e = base + 32;
        }
        return e;
}

template <class T, class Tile, bool TRANS_W, int ADIV, bool SCATTER, int ALIGN, class Epilogue>
TGC_DEV void grouped_gemm_task(const T *a, long lda, const T *w, const int *perm, const int *offs,
                               int E, int N, int K, int tile, char *smem, const Epilogue &epilogue)
{
        const int across = (N + Tile::BN - 1) / Tile::BN;
        int e, m;
        if (!expert_of_tile<Tile::BM>(offs, E, tile / across, e, m))
                return;
        const int first = offs[e], count = offs[e + 1] - first;
        const TileAt at = { m * Tile::BM, tile % across * Tile::BN };
        const SlotRows<ADIV> rows = { perm + first, first };
        const SlotEpilogue<SCATTER, Epilogue> slot_epilogue = { epilogue, perm, first, e };
        gemm_block<T, Tile, false, TRANS_W, ALIGN>(a, lda, rows, w + (long)e * N * K,
                                                   TRANS_W ? K : N, SameRows(), count, N, K, at, 0,
                                                   (K + Tile::BK - 1) / Tile::BK, smem,
                                                   slot_epilogue);
}

template <class T, class Tile, int YDIV, int ADIV, int ALIGN, class Epilogue>
TGC_DEV void grouped_gemm_grad_task(const T *dy, long ldy, const T *a, long lda, const int *perm,
                                    const int *offs, int E, int N, int K, int tile, char *smem,
                                    const Epilogue &epilogue)
{
        const int tiles = gemm_tiles<Tile>(N, K), e = tile / tiles;
        const int first = offs[e], count = offs[e + 1] - first;
        const SlotRows<YDIV> rows_y = { perm + first, first };
        const SlotRows<ADIV> rows_a = { perm + first, first };
        const GradEpilogue<Epilogue> grad_epilogue = { epilogue, e };
        gemm_block<T, Tile, true, false, ALIGN>(dy, ldy, rows_y, a, lda, rows_a, N, K, count,
                                                tile_at<Tile>(tile - e * tiles, N, K), 0,
                                                (count + Tile::BK - 1) / Tile::BK, smem,
                                                grad_epilogue);
}

template <class T, int N, int K, int THREADS, int ROWS, int SPLIT, int ADIV, bool SCATTER,
          int ALIGN, class Prologue, class Epilogue>
TGC_DEV void grouped_gemv_task(const T *w, const int *perm, const int *offs, int E, int tile,
                               char *smem, const Prologue &prologue, const Epilogue &epilogue)
{
        constexpr int ACROSS = (N + THREADS / 32 / SPLIT * ROWS - 1) /
                               (THREADS / 32 / SPLIT * ROWS);
        const int p = tile / ACROSS, e = expert_of_slot(offs, E, p);
        const int row = ADIV ? perm[p] / (ADIV ? ADIV : 1) : p;
        /* gemv_rows counts rows from `row`: row + (p - row) is p */
        const SlotEpilogue<SCATTER, Epilogue> slot_epilogue = { epilogue, perm, p - row, e };
        const PlainRows<T, ROWS> at(w + (long)e * N * K, K,
                                    gemv_column<THREADS, ROWS, SPLIT>(tile % ACROSS), N);
        gemv_rows<T, 1, N, K, THREADS, ROWS, SPLIT, NORM_NONE, ALIGN>(at, 0.f, row, tile % ACROSS,
                                                                      smem, prologue,
                                                                      slot_epilogue);
}

/* PARTS weight rows of K columns, seen as one row of PARTS * K. */
template <class T, int ROWS, int K, int PARTS>
struct PartRows {
        PlainRows<T, ROWS> row;
        long skip[PARTS]; /* distance from position k of the whole to k of the part's row */
        __device__ __forceinline__ const T *at(int r, int k) const
        {
                long s = skip[0];
#pragma unroll
                for (int p = 1; p < PARTS; p++)
                        s = k >= p * K ? skip[p] : s;
                return row.at(r, k) + s;
        }
};

/* x of one slot, or of a row's MIX slots in a row, each times its gate. */
template <int K, int ADIV, int MIX, class Prologue>
struct SlotPrologue {
        static constexpr int MAXV = Prologue::MAXV, MINV = Prologue::MINV;
        const Prologue &prologue;
        const float *gates; /* of the row */
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                if constexpr (MIX) {
                        const int p = col / K;
                        const float gate = gates[p];
                        prologue(row * MIX + p, col - p * K, v);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[j] *= gate;
                } else {
                        prologue(row / ADIV, col, v);
                }
        }
};

/* Adds the experts' biases, (E,N) or null. */
template <class T, int N, int PARTS, class Epilogue>
struct BiasEpilogue {
        static constexpr int MAXV = Epilogue::MAXV, MINV = Epilogue::MINV;
        const Epilogue &epilogue;
        const T *bias;
        const float *gates; /* of the row; null: 1 */
        const int *ids;     /* of the parts */
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
#pragma unroll
                for (int p = 0; p < PARTS && bias; p++) {
                        float b[V];
                        load<V>(b, bias + (long)ids[p] * N + col);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[j] += gates ? gates[p] * b[j] : b[j];
                }
                epilogue(row, col, v);
        }
};

template <class T, int N, int K, int THREADS, int ROWS, int SPLIT, int ADIV, int MIX, int ALIGN,
          class Prologue, class Epilogue>
TGC_DEV void grouped_rows_task(const T *w, const int *ids, const T *bias, const float *gates,
                               int tile, char *smem, const Prologue &prologue,
                               const Epilogue &epilogue)
{
        constexpr int COLS = THREADS / 32 / SPLIT * ROWS, ACROSS = (N + COLS - 1) / COLS,
                      PARTS = MIX ? MIX : 1;
        const int y = tile / ACROSS, across = tile % ACROSS;
        PartRows<T, ROWS, K, PARTS> at = {
                PlainRows<T, ROWS>(w, K, gemv_column<THREADS, ROWS, SPLIT>(across), N)
        };
        ids += y * PARTS;
        gates = MIX ? gates + y * PARTS : nullptr;
#pragma unroll
        for (int p = 0; p < PARTS; p++)
                at.skip[p] = (long)ids[p] * N * K - p * K;
        const SlotPrologue<K, ADIV, MIX, Prologue> slot_prologue = { prologue, gates };
        const BiasEpilogue<T, N, PARTS, Epilogue> bias_epilogue = { epilogue, bias, gates, ids };
        gemv_rows<T, 1, N, PARTS * K, THREADS, ROWS, SPLIT, NORM_NONE, ALIGN>(at, 0.f, y, across,
                                                                              smem, slot_prologue,
                                                                              bias_epilogue);
}

#endif
