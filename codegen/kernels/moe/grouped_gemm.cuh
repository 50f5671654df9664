/* grouped_gemm.cuh: matmuls of a mixture of experts, each expert over its own slots.
 *
 * A slot is one (token, choice) pair, numbered token*k + j; there are P.  Routing
 * sorts the slots by expert:
 *
 *      int perm[P]             slot at sorted position p
 *      int offs[E+1]           expert e has the positions offs[e] .. offs[e+1]-1;  E <= 1024
 *
 * An operand with one row per slot or token is read with its own DIV: 0, row p of
 * an operand that is already sorted; d > 0, row perm[p]/d (1: by slot, k: by token).
 * Results go to row p, or to row perm[p] where SCATTER.
 *
 * Tails get the expert as a fourth argument:  tail(row, col, v, e).
 *
 *      expert_matmul_task<T, Tile, TRANS_W, ADIV, SCATTER, ALIGN>(a, lda, w, perm, offs, E, N, K, tile, smem, tail)
 *              y_p = W_e a_p.  w (E,N,K) when TRANS_W, else (E,K,N).
 *              (ceil(P/BM) + E) * ceil(N/BN) tiles are enough for every routing; those left over return.
 *      expert_grad_task<T, Tile, YDIV, ADIV, ALIGN>(dy, ldy, a, lda, perm, offs, E, N, K, tile, smem, tail)
 *              dW_e (N,K) = sum over p of e of dy_p a_pt; zeros for an expert without slots.
 *              E * ceil(N/BM) * ceil(K/BN) tiles; tail rows are N, columns K.
 *      expert_matvec_task<T, N, K, THREADS, ROWS, SPLIT, ADIV, SCATTER, ALIGN>(w, perm, offs, E, tile, smem,
 *                                                                             head, tail)
 *              the same product for a few slots (decoding); w (E,N,K); the head's row is the row of a.
 *              P * ceil(N/cols) tiles, cols and shared memory as matvec_task's with M = 1.
 *      expert_rows_task<T, N, K, THREADS, ROWS, SPLIT, ADIV, MIX, ALIGN>(w, ids, bias, gates, tile, smem, head, tail)
 *              the same for a few slots that need no sorting: ids[s] is the expert of slot s, bias (E,N) or null.
 *              MIX 0: row s of y from row s/ADIV of a; P * ceil(N/cols) tiles.  MIX k: row t of y is the sum of
 *              its k slots, each by its gate (rows,k), as one product of k * K columns; rows * ceil(N/cols) tiles,
 *              shared memory that of matvec_task's K = k * K.  An ordinary tail.
 *
 * ALIGN: as in gemm.cuh and gemv.cuh. */
#ifndef TGC_EXPERT_CUH
#define TGC_EXPERT_CUH

#include "gemm.cuh"
#include "gemv.cuh"

/* Row of an operand for the slot at sorted position first + r. */
template <int DIV>
struct SlotRows {
        static constexpr bool GATHER = DIV > 0;
        const int *perm;        /* perm + first */
        int first;
        __device__ __forceinline__ int operator()(int r) const
        {
                if constexpr (DIV > 1)
                        return (int)((unsigned)perm[r] / DIV);
                else
                        return DIV ? perm[r] : first + r;
        }
};

/* Passes the result row and the expert on to the tail. */
template <bool SCATTER, class Tail>
struct SlotTail {
        static constexpr int MAXV = Tail::MAXV, MINV = Tail::MINV;
        const Tail &tail;
        const int *perm;
        int first, e;
        template <int V>
        __device__ __forceinline__ void operator()(int r, int col, float (&v)[V]) const
        {
                tail(SCATTER ? perm[first + r] : first + r, col, v, e);
        }
};

template <class Tail>
struct GradTail {
        static constexpr int MAXV = Tail::MAXV, MINV = Tail::MINV;
        const Tail &tail;
        int e;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const { tail(row, col, v, e); }
};

/* The expert to which row tile `tile` belongs, and the tile's number within it;
 * false when there are fewer.  Every warp finds it for itself, 32 experts at a time. */
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

template <class T, class Tile, bool TRANS_W, int ADIV, bool SCATTER, int ALIGN, class Tail>
TGC_DEV void expert_matmul_task(const T *a, long lda, const T *w, const int *perm, const int *offs, int E, int N, int K,
                                int tile, char *smem, const Tail &tail)
{
        const int across = (N + Tile::BN - 1) / Tile::BN;
        int e, m;
        if (!expert_of_tile<Tile::BM>(offs, E, tile / across, e, m))
                return;
        const int first = offs[e], count = offs[e + 1] - first;
        const TileAt at = { m * Tile::BM, tile % across * Tile::BN };
        const SlotRows<ADIV> rows = { perm + first, first };
        const SlotTail<SCATTER, Tail> slot_tail = { tail, perm, first, e };
        matmul_block<T, Tile, false, TRANS_W, ALIGN>(a, lda, rows, w + (long)e * N * K, TRANS_W ? K : N, SameRows(),
                                                     count, N, K, at, 0, (K + Tile::BK - 1) / Tile::BK,
                                                     smem, slot_tail);
}

template <class T, class Tile, int YDIV, int ADIV, int ALIGN, class Tail>
TGC_DEV void expert_grad_task(const T *dy, long ldy, const T *a, long lda, const int *perm, const int *offs, int E,
                              int N, int K, int tile, char *smem, const Tail &tail)
{
        const int tiles = matmul_tiles<Tile>(N, K), e = tile / tiles;
        const int first = offs[e], count = offs[e + 1] - first;
        const SlotRows<YDIV> rows_y = { perm + first, first };
        const SlotRows<ADIV> rows_a = { perm + first, first };
        const GradTail<Tail> grad_tail = { tail, e };
        matmul_block<T, Tile, true, false, ALIGN>(dy, ldy, rows_y, a, lda, rows_a, N, K, count,
                                                  tile_at<Tile>(tile - e * tiles, N, K), 0,
                                                  (count + Tile::BK - 1) / Tile::BK, smem, grad_tail);
}

template <class T, int N, int K, int THREADS, int ROWS, int SPLIT, int ADIV, bool SCATTER, int ALIGN, class Head,
          class Tail>
TGC_DEV void expert_matvec_task(const T *w, const int *perm, const int *offs, int E, int tile, char *smem,
                                const Head &head, const Tail &tail)
{
        constexpr int ACROSS = (N + THREADS / 32 / SPLIT * ROWS - 1) / (THREADS / 32 / SPLIT * ROWS);
        const int p = tile / ACROSS, e = expert_of_slot(offs, E, p);
        const int row = ADIV ? perm[p] / (ADIV ? ADIV : 1) : p;
        /* matvec_rows counts the tail's rows from `row`: row + (p - row) is p */
        const SlotTail<SCATTER, Tail> slot_tail = { tail, perm, p - row, e };
        const PlainRows<T, ROWS> at(w + (long)e * N * K, K, matvec_column<THREADS, ROWS, SPLIT>(tile % ACROSS), N);
        matvec_rows<T, 1, N, K, THREADS, ROWS, SPLIT, NORM_NONE, ALIGN>(at, 0.f, row, tile % ACROSS, smem, head,
                                                                       slot_tail);
}

/* PARTS weights of K columns one after the other, as if each row had PARTS * K. */
template <class T, int ROWS, int K, int PARTS>
struct PartRows {
        PlainRows<T, ROWS> row;
        long skip[PARTS];               /* from k of the whole to k of the part's row */
        __device__ __forceinline__ const T *at(int r, int k) const
        {
                long s = skip[0];
#pragma unroll
                for (int p = 1; p < PARTS; p++)
                        s = k >= p * K ? skip[p] : s;
                return row.at(r, k) + s;
        }
};

/* x of a slot, or that of a row's MIX slots one after the other, weighted. */
template <int K, int ADIV, int MIX, class Head>
struct SlotHead {
        static constexpr int MAXV = Head::MAXV, MINV = Head::MINV;
        const Head &head;
        const float *gates;             /* of the row */
        template <int V> __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                if constexpr (MIX) {
                        const int p = col / K;
                        const float gate = gates[p];
                        head(row * MIX + p, col - p * K, v);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[j] *= gate;
                } else {
                        head(row / ADIV, col, v);
                }
        }
};

/* Adds the experts' biases, (E,N) or null. */
template <class T, int N, int PARTS, class Tail>
struct BiasTail {
        static constexpr int MAXV = Tail::MAXV, MINV = Tail::MINV;
        const Tail &tail;
        const T *bias;
        const float *gates;             /* of the row; null: 1 */
        const int *ids;                 /* of the parts */
        template <int V> __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
#pragma unroll
                for (int p = 0; p < PARTS && bias; p++) {
                        float b[V];
                        load<V>(b, bias + (long)ids[p] * N + col);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[j] += gates ? gates[p] * b[j] : b[j];
                }
                tail(row, col, v);
        }
};

template <class T, int N, int K, int THREADS, int ROWS, int SPLIT, int ADIV, int MIX, int ALIGN, class Head, class Tail>
TGC_DEV void expert_rows_task(const T *w, const int *ids, const T *bias, const float *gates, int tile, char *smem,
                              const Head &head, const Tail &tail)
{
        constexpr int COLS = THREADS / 32 / SPLIT * ROWS, ACROSS = (N + COLS - 1) / COLS, PARTS = MIX ? MIX : 1;
        const int y = tile / ACROSS, across = tile % ACROSS;
        PartRows<T, ROWS, K, PARTS> at = { PlainRows<T, ROWS>(w, K, matvec_column<THREADS, ROWS, SPLIT>(across), N) };
        ids += y * PARTS;
        gates = MIX ? gates + y * PARTS : nullptr;
#pragma unroll
        for (int p = 0; p < PARTS; p++)
                at.skip[p] = (long)ids[p] * N * K - p * K;
        const SlotHead<K, ADIV, MIX, Head> slot_head = { head, gates };
        const BiasTail<T, N, PARTS, Tail> bias_tail = { tail, bias, gates, ids };
        matvec_rows<T, 1, N, PARTS * K, THREADS, ROWS, SPLIT, NORM_NONE, ALIGN>(at, 0.f, y, across, smem, slot_head,
                                                                              bias_tail);
}

#endif
