/* cross_entropy.cuh: cross-entropy loss over a vocabulary of V, one row per tile.  (For bf16 see
 * cross_entropy_exp.cuh, which stores no logits.)
 *
 *      ce_task<T, V, THREADS>(logits, ld, targets, loss, lse, tile, smem)
 *              lse[row] = log(sum(exp(logits[row]))), loss[row] = lse - logits[row][target].
 *              lse may be null, here and in ce_both_task.
 *      ce_grad_task<T, V, THREADS>(logits, ld, dlogits, ldd, targets, lse, tile, dloss)
 *              dlogits = (softmax(logits) - onehot(target)) * dloss(row); dlogits: T (rows, ldd),
 *              possibly the logits themselves.
 *      ce_both_task<T, V, THREADS>(logits, ld, targets, loss, lse, tile, smem, dloss)
 *              both at once, the gradient in place of the logits.  A row of up to CE_HOLD(THREADS)
 *              bytes per thread (512 threads, bf16: V <= 57344) stays in registers between reading
 *              and writing; a longer one is read again, from L2.
 *
 * logits: T (rows, ld), ld >= V; columns from V on are neither used nor written.  Rows whose size
 * is a multiple of 16 bytes are read 16 bytes at a time, so round ld up.  targets: int (rows); a
 * target outside of [0, V) is ignored: loss 0, lse 0, gradient 0, and the logits are not read.
 * dloss(row, 0, v[1]) is a plain prologue; division by the token count is in it.
 *
 * tiles: rows.  THREADS: 32 below V = 1024, 256 below 8192, else 1024.  shared memory: CE_SMEM
 * bytes. */
#ifndef TGC_CROSS_ENTROPY_CUH
#define TGC_CROSS_ENTROPY_CUH

#include "ptx.cuh"

#define CE_SMEM 256
#define CE_HOLD(THREADS) ((THREADS) > 512 ? 64 : 224)

#define CE_LOG2E 1.4426950408889634f

/* A running sum of exponentials, s * 2^m, in base 2 (x * log2 e).  m starts low but finite, so a
 * row of -inf needs no special case. */
struct CeSum {
        float m, s;

        template <int W>
        __device__ void add(const float (&v)[W])
        {
                float top = v[0];
#pragma unroll
                for (int j = 1; j < W; j++)
                        top = fmaxf(top, v[j]);
                top *= CE_LOG2E;
                if (top > m) {
                        s *= fast_exp2(m - top);
                        m = top;
                }
#pragma unroll
                for (int j = 0; j < W; j++)
                        s += fast_exp2(fmaf(v[j], CE_LOG2E, -m));
        }
        template <int THREADS>
        __device__ void join(float *red)
        {
                float top = block_max<THREADS>(m, red);
                s = block_sum<THREADS>(s * fast_exp2(m - top), red);
                m = top;
        }
        __device__ float lse() const { return m * 0.6931471805599453f + logf(s); }
};

/* One row in vectors of W logits: vector i of a thread starts at column (i * THREADS + thread) *
 * W.  W = 1 where rows are not 16-byte aligned. */
template <class T, int V, int THREADS, int W>
struct CeRow {
        static constexpr int PER = (V + W * THREADS - 1) / (W * THREADS);
        struct alignas(W * sizeof(T)) Piece {
                T t[W];
        };

        static __device__ int col(int i) { return (i * THREADS + (int)threadIdx.x) * W; }
        /* Does vector i exist, completely?  A compile-time constant for all but the last. */
        static __device__ bool has(int i) { return (i + 1) * THREADS * W <= V || col(i) < V; }
        static __device__ bool whole(int i)
        {
                return V % W == 0 || (i + 1) * THREADS * W <= V || col(i) + W <= V;
        }
        static __device__ Piece get(const T *row, int i) { return *(const Piece *)(row + col(i)); }
        /* To floats; padding behind the last column counts as -inf. */
        static __device__ void open(float (&v)[W], const Piece &p, int i)
        {
#pragma unroll
                for (int j = 0; j < W; j++) {
                        bool in = V % W == 0 || (i + 1) * THREADS * W <= V || col(i) + j < V;
                        v[j] = in ? to_float(p.t[j]) : -INFINITY;
                }
        }
        static __device__ void put(T *row, int i, const float (&v)[W])
        {
                Piece p;
#pragma unroll
                for (int j = 0; j < W; j++)
                        from_float(&p.t[j], v[j]);
                if (whole(i))
                        *(Piece *)(row + col(i)) = p;
                else
                        for (int j = 0; j < W; j++)
                                if (col(i) + j < V)
                                        row[col(i) + j] = p.t[j];
        }
};

/* (softmax - onehot) * d; shift: lse in base 2. */
template <int W>
TGC_DEV void ce_grad_piece(float (&v)[W], int col, int target, float shift, float d)
{
#pragma unroll
        for (int j = 0; j < W; j++)
                v[j] = (fast_exp2(fmaf(v[j], CE_LOG2E, -shift)) - (col + j == target ? 1.f : 0.f)) *
                       d;
}

template <class T, int V, int THREADS, int W>
TGC_DEV float ce_row_lse(const T *row, float *red)
{
        typedef CeRow<T, V, THREADS, W> Row;
        CeSum sum = { -1e30f, 0.f };
#pragma unroll 4
        for (int i = 0; i < Row::PER; i++)
                if (Row::has(i)) {
                        float v[W];
                        Row::open(v, Row::get(row, i), i);
                        sum.add(v);
                }
        sum.template join<THREADS>(red);
        return sum.lse();
}

template <class T, int V, int THREADS, int W>
TGC_DEV void ce_row_grad(const T *row, T *drow, int target, float lse, float d)
{
        typedef CeRow<T, V, THREADS, W> Row;
        /* loads before the first store, which might alias them */
        constexpr int AHEAD = W > 1 ? 2 : 1;
        for (int i0 = 0; i0 < Row::PER; i0 += AHEAD) {
                typename Row::Piece p[AHEAD];
#pragma unroll
                for (int u = 0; u < AHEAD; u++)
                        if (Row::has(i0 + u))
                                p[u] = Row::get(row, i0 + u);
#pragma unroll
                for (int u = 0; u < AHEAD; u++)
                        if (Row::has(i0 + u)) {
                                float v[W];
                                Row::open(v, p[u], i0 + u);
                                ce_grad_piece(v, Row::col(i0 + u), target, lse * CE_LOG2E, d);
                                Row::put(drow, i0 + u, v);
                        }
        }
}

/* The row in registers, in storage format. */
template <class T, int V, int THREADS, int W>
TGC_DEV float ce_row_both(T *row, int target, float d, float *red)
{
        typedef CeRow<T, V, THREADS, W> Row;
        typename Row::Piece held[Row::PER];
#pragma unroll
        for (int i = 0; i < Row::PER; i++)
                if (Row::has(i))
                        held[i] = Row::get(row, i);
        CeSum sum = { -1e30f, 0.f };
#pragma unroll
        for (int i = 0; i < Row::PER; i++)
                if (Row::has(i)) {
                        float v[W];
                        Row::open(v, held[i], i);
                        sum.add(v);
                }
        sum.template join<THREADS>(red);
        float lse = sum.lse();
#pragma unroll
        for (int i = 0; i < Row::PER; i++)
                if (Row::has(i)) {
                        float v[W];
                        Row::open(v, held[i], i);
                        ce_grad_piece(v, Row::col(i), target, lse * CE_LOG2E, d);
                        Row::put(row, i, v);
                }
        return lse;
}

template <class T, int V, int THREADS>
TGC_DEV void ce_row_zero(T *row)
{
        for (int c = (int)threadIdx.x; c < V; c += THREADS)
                from_float(row + c, 0.f);
}

template <class T>
TGC_DEV bool ce_wide(const T *logits, int ld)
{
        return ((unsigned long long)logits | (unsigned long long)ld * sizeof(T)) % 16 == 0;
}

template <class T, int V, int THREADS>
TGC_DEV void ce_task(const T *logits, int ld, const int *targets, float *loss, float *lse, int tile,
                     char *smem)
{
        constexpr int W = 16 / (int)sizeof(T);
        const T *row = logits + (long long)tile * ld;
        int target = targets[tile];
        bool counts = target >= 0 && target < V;
        float l = 0.f;
        if (counts)
                l = ce_wide(logits, ld) ? ce_row_lse<T, V, THREADS, W>(row, (float *)smem)
                                        : ce_row_lse<T, V, THREADS, 1>(row, (float *)smem);
        if (threadIdx.x == 0) {
                loss[tile] = counts ? l - to_float(row[target]) : 0.f;
                if (lse)
                        lse[tile] = l;
        }
        __syncthreads();
}

template <class T, int V, int THREADS, class DLoss>
TGC_DEV void ce_grad_task(const T *logits, int ld, T *dlogits, int ldd, const int *targets,
                          const float *lse, int tile, const DLoss &dloss)
{
        constexpr int W = 16 / (int)sizeof(T);
        const T *row = logits + (long long)tile * ld;
        T *drow = dlogits + (long long)tile * ldd;
        int target = targets[tile];
        float d[1];
        if (target < 0 || target >= V) {
                ce_row_zero<T, V, THREADS>(drow);
                return;
        }
        dloss(tile, 0, d);
        if (ce_wide(logits, ld) && ce_wide(dlogits, ldd))
                ce_row_grad<T, V, THREADS, W>(row, drow, target, lse[tile], d[0]);
        else
                ce_row_grad<T, V, THREADS, 1>(row, drow, target, lse[tile], d[0]);
}

template <class T, int V, int THREADS, class DLoss>
TGC_DEV void ce_both_task(T *logits, int ld, const int *targets, float *loss, float *lse, int tile,
                          char *smem, const DLoss &dloss)
{
        constexpr int W = 16 / (int)sizeof(T);
        constexpr bool HOLD = CeRow<T, V, THREADS, W>::PER * 16 <= CE_HOLD(THREADS);
        T *row = logits + (long long)tile * ld;
        float *red = (float *)smem, d[1], l = 0.f, hit = 0.f;
        int target = targets[tile];
        if (target >= 0 && target < V) {
                /* read before its owner overwrites it; join() has barriers */
                hit = to_float(row[target]);
                dloss(tile, 0, d);
                if (!ce_wide(logits, ld)) {
                        l = ce_row_lse<T, V, THREADS, 1>(row, red);
                        ce_row_grad<T, V, THREADS, 1>(row, row, target, l, d[0]);
                } else if constexpr (HOLD) {
                        l = ce_row_both<T, V, THREADS, W>(row, target, d[0], red);
                } else {
                        l = ce_row_lse<T, V, THREADS, W>(row, red);
                        ce_row_grad<T, V, THREADS, W>(row, row, target, l, d[0]);
                }
        } else {
                ce_row_zero<T, V, THREADS>(row);
        }
        if (threadIdx.x == 0) {
                loss[tile] = l - hit;
                if (lse)
                        lse[tile] = l;
        }
        __syncthreads();
}

#endif
