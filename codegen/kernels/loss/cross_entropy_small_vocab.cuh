/* cross_entropy_small_vocab.cuh: last linear, loss and gradients for a small vocabulary in one
 * kernel: a block has whole rows of logits, and all of w.
 *
 *      ce_small_vocab_task<Ce, PREFETCH>(x, ldx, w, ldw, bias, targets, rows, d, loss, dx, tile,
 *              tiles, smem, dloss)
 *              logits = x w^T (+ bias), never stored;
 *              loss[row] = log(sum(exp(logits[row]))) - logits[row][target];
 *              d (rows, Ce::LD) = (softmax(logits) - onehot(target)) * dloss(row), zeros from
 *              column V on; dx (rows, C) = d w.
 *
 * Ce: CeSmallVocab<T, V, C>.  x: T (rows, C), row stride ldx; w: T (V, C), ldw; rows of both are
 * 16-byte aligned.  bias: (V) or null.  targets: int (rows); one outside of [0, V) does not count:
 * loss and d are 0.  dloss(row, 0, v[1]) is a plain prologue.  C is a multiple of 16, V at most
 * MOST_V.  GEMMs use mma.sync: 16-bit, or 3xTF32 for float32 (one tf32 mma with TGC_TF32).
 *
 * Per ROWS rows: each of the eight warps computes its k steps for all logits; the parts are added;
 * each warp does the softmax of two rows; then each warp computes its columns of dx.  w is
 * requested before pdl_wait, which the task calls; PREFETCH: everything but x may be read before
 * it.  tiles: any number; 256 threads; shared memory: Ce::SMEM. */
#ifndef TGC_CROSS_ENTROPY_SMALL_VOCAB_CUH
#define TGC_CROSS_ENTROPY_SMALL_VOCAB_CUH

#include "cross_entropy.cuh"
#include "gemm_tf32.cuh"

/* A fragments of 16 rows at one k step; float32 as hi and lo. */
template <class T>
struct CeRows {
        unsigned a[4];
        __device__ __forceinline__ void split() {}
        __device__ __forceinline__ void mma(float (&d)[4], unsigned b0, unsigned b1) const
        {
                mma_16816<T>(d, a, b0, b1);
        }
};

template <>
struct CeRows<float> {
        unsigned a[4], lo[4];
#if TGC_TF32
        __device__ __forceinline__ void split()
        {
#pragma unroll
                for (int i = 0; i < 4; i++)
                        a[i] = to_tf32(__uint_as_float(a[i]));
        }
        __device__ __forceinline__ void mma(float (&d)[4], unsigned b0, unsigned b1) const
        {
                mma_1688_tf32(d, a, to_tf32(__uint_as_float(b0)), to_tf32(__uint_as_float(b1)));
        }
#else
        __device__ __forceinline__ void split()
        {
#pragma unroll
                for (int i = 0; i < 4; i++)
                        lo[i] = split_tf32(a[i]);
        }
        __device__ __forceinline__ void mma(float (&d)[4], unsigned b0, unsigned b1) const
        {
                const unsigned l0 = split_tf32(b0), l1 = split_tf32(b1);
                mma_1688_tf32(d, lo, b0, b1);
                mma_1688_tf32(d, a, l0, l1);
                mma_1688_tf32(d, a, b0, b1);
        }
#endif
};

template <class T_, int V_, int C_>
struct CeSmallVocab {
        typedef T_ T;
        static constexpr int V = V_, C = C_, MOST_V = 128, LD = (V + 7) / 8 * 8;
        static constexpr int ROWS = 16, WARPS = 8, THREADS = 32 * WARPS, UNIT = 16 / (int)sizeof(T);
        static constexpr int STEP = 32 / (int)sizeof(T); /* of K per mma */
        /* logits in pairs of 8 columns */
        static constexpr int VP = (V + 15) / 16 * 16, TILES = VP / 8;
        /* of dx, per warp at most */
        static constexpr int PAIRS = (C / 16 + WARPS - 1) / WARPS;
        /* softmax: rows per warp, logits per lane */
        static constexpr int OWN = ROWS / WARPS, N = (VP + 31) / 32;
        /* Row strides in shared memory: of w and x, of partial logits, of d; then offsets. */
        static constexpr int LW = C + 8, LR = VP + 4, LT = VP + 8, PARTS = WARPS / 2;
        static constexpr int AT_X = VP * LW * (int)sizeof(T), X = ROWS * LW * (int)sizeof(T),
                             RED = PARTS * ROWS * LR * 4;
        static constexpr int AT_D = AT_X + (X > RED ? X : RED),
                             SMEM = AT_D + ROWS * LT * (int)sizeof(T);
        static_assert(C % 16 == 0 && V <= MOST_V && V > 0, "see above");

        static __device__ __forceinline__ int lane() { return (int)threadIdx.x & 31; }
        static __device__ __forceinline__ int warp() { return (int)threadIdx.x >> 5; }

        /* Copies TO rows of C, zeros from `from` on. */
        template <int TO>
        static __device__ __forceinline__ void copy(T *s, const T *x, long ld, int from)
        {
                constexpr int CHUNKS = TO * (C / UNIT);
#pragma unroll
                for (int i0 = 0; i0 < CHUNKS; i0 += THREADS) {
                        const int i = i0 + (int)threadIdx.x, r = i / (C / UNIT),
                                  c = i % (C / UNIT) * UNIT;
                        if (i0 + THREADS <= CHUNKS || i < CHUNKS)
                                cp_async16(s + r * LW + c, x + (r < from ? r : 0) * ld + c,
                                           r < from);
                }
        }
        /* Fragments of 16 rows at column k. */
        static __device__ __forceinline__ void rows_at(CeRows<T> &f, const T *s, int ld, int k)
        {
                ldmatrix_x4(f.a, s + (lane() & 15) * ld + k + (lane() >> 4) * (STEP / 2));
                f.split();
        }

        /* Partial logits, one per pair of warps, to red. */
        static __device__ __forceinline__ void logits(float *red, const T *xs, const T *ws)
        {
                float d[TILES][4] = {};
#pragma unroll
                for (int i = 0; i < (C / STEP + WARPS - 1) / WARPS; i++) {
                        const int k = (i * WARPS + warp()) * STEP;
                        if (k >= C)
                                break;
                        CeRows<T> f;
                        rows_at(f, xs, LW, k);
#pragma unroll
                        for (int j = 0; j < TILES; j += 2) {
                                unsigned b[4];
                                ldmatrix_x4(b,
                                            ws + (j * 8 + (lane() & 7) + (lane() >> 4) * 8) * LW +
                                                    k + (lane() >> 3 & 1) * (STEP / 2));
                                f.mma(d[j], b[0], b[1]);
                                f.mma(d[j + 1], b[2], b[3]);
                        }
                }
                red += (warp() % PARTS * ROWS + lane() / 4) * LR + lane() % 4 * 2;
#pragma unroll
                for (int late = 1; late >= 0; late--) {
                        /* red overlaps x, which has been read; then the second half's */
                        __syncthreads();
                        if (warp() / PARTS != late)
                                continue;
#pragma unroll
                        for (int x = 0; x < TILES * 2; x++) {
                                float *at = red + (x & 1) * 8 * LR + (x >> 1) * 8,
                                      sum[2] = { 0.f, 0.f };
                                if (!late)
                                        load<2>(sum, at);
                                sum[0] += d[x >> 1][(x & 1) * 2],
                                        sum[1] += d[x >> 1][(x & 1) * 2 + 1];
                                store<2>(at, sum);
                        }
                }
                __syncthreads();
        }

        static __device__ __forceinline__ float logit(const float *part)
        {
                return part[0] + part[ROWS * LR] + (part[2 * ROWS * LR] + part[3 * ROWS * LR]);
        }

        /* Softmax of the warp's rows: logits to d; returns their losses, in every lane.  target:
         * -1 where a row does not count. */
        template <class Bias>
        static __device__ __forceinline__ void softmax(float (&loss)[OWN], T *ds, T *d, int there,
                                                       const float *red, const Bias *bias,
                                                       const float (&add)[N],
                                                       const int (&target)[OWN],
                                                       const float (&scale)[OWN])
        {
                float v[OWN][N], top[OWN], sum[OWN], hit[OWN];
#pragma unroll
                for (int i = 0; i < OWN; i++) {
                        const int at = target[i] < 0 ? 0 : target[i];
                        hit[i] = logit(red + i * LR + at) + (bias ? to_float(bias[at]) : 0.f);
                        top[i] = -INFINITY, sum[i] = 0.f;
#pragma unroll
                        for (int q = 0; q < N; q++) {
                                const int col = lane() + 32 * q;
                                v[i][q] = col < V ? logit(red + i * LR + (col < V ? col : 0)) +
                                                            add[q]
                                                  : -INFINITY;
                                top[i] = fmaxf(top[i], v[i][q]);
                        }
                }
#pragma unroll
                for (int i = 0; i < OWN; i++)
                        top[i] = warp_max(top[i]) * CE_LOG2E;
#pragma unroll
                for (int i = 0; i < OWN; i++) {
#pragma unroll
                        for (int q = 0; q < N; q++)
                                sum[i] += fast_exp2(fmaf(v[i][q], CE_LOG2E, -top[i]));
                        sum[i] = warp_sum(sum[i]);
                }
#pragma unroll
                for (int i = 0; i < OWN; i++) {
                        const float shift = top[i] + log2f(sum[i]);
                        loss[i] = target[i] < 0 ? 0.f : shift * 0.6931471805599453f - hit[i];
#pragma unroll
                        for (int q = 0; q < N; q++) {
                                const int col = lane() + 32 * q;
                                float p[1] = { v[i][q] };
                                ce_grad_piece(p, col, target[i], shift, scale[i]);
                                T t;
                                from_float(&t, col < V && target[i] >= 0 ? p[0] : 0.f);
                                if (col < VP)
                                        ds[i * LT + col] = t;
                                if (i < there && col < LD)
                                        d[(long)i * LD + col] = t;
                        }
                }
        }

        /* dx's rows, `rows` of which exist. */
        template <class Out>
        static __device__ __forceinline__ void grad_x(Out *dx, const T *ds, const T *ws, int rows)
        {
                float o[PAIRS][2][4] = {};
#pragma unroll
                for (int k = 0; k < VP; k += STEP) {
                        CeRows<T> f;
                        rows_at(f, ds, LT, k);
#pragma unroll
                        for (int i = 0; i < PAIRS; i++) {
                                const int n = (i * WARPS + warp()) * 16;
                                if (n >= C)
                                        break;
                                unsigned b[4];
                                if constexpr (sizeof(T) == 2) {
                                        ldmatrix_x4_trans(b, ws + (k + (lane() & 15)) * LW + n +
                                                                     (lane() >> 4) * 8);
                                } else {
#pragma unroll
                                        for (int x = 0; x < 4; x++)
                                                b[x] = __float_as_uint(
                                                        ws[(k + lane() % 4 + x % 2 * 4) * LW + n +
                                                           x / 2 * 8 + lane() / 4]);
                                }
                                f.mma(o[i][0], b[0], b[1]);
                                f.mma(o[i][1], b[2], b[3]);
                        }
                }
#pragma unroll
                for (int i = 0; i < PAIRS; i++)
#pragma unroll
                        for (int x = 0; x < 4; x++) {
                                const int n = (i * WARPS + warp()) * 16 + x / 2 * 8,
                                          r = lane() / 4 + x % 2 * 8;
                                const float v[2] = { o[i][x / 2][x % 2 * 2],
                                                     o[i][x / 2][x % 2 * 2 + 1] };
                                if (n < C && r < rows)
                                        store<2>(dx + (long)r * C + n + lane() % 4 * 2, v);
                        }
        }
};

template <class Ce, bool PREFETCH, class Bias, class Out, class DLoss>
TGC_DEV void ce_small_vocab_task(const typename Ce::T *x, long ldx, const typename Ce::T *w,
                                 long ldw, const Bias *bias, const int *targets, int rows,
                                 typename Ce::T *d, float *loss, Out *dx, int tile, int tiles,
                                 char *smem, const DLoss &dloss)
{
        typedef typename Ce::T T;
        constexpr int ROWS = Ce::ROWS, OWN = Ce::OWN, N = Ce::N;
        T *ws = (T *)smem, *xs = (T *)(smem + Ce::AT_X), *ds = (T *)(smem + Ce::AT_D);
        float *red = (float *)(smem + Ce::AT_X), add[N];
        const int own = Ce::warp() * OWN;
        Ce::template copy<Ce::VP>(ws, w, ldw, Ce::V);
#pragma unroll
        for (int q = 0; q < N; q++)
                add[q] = bias && Ce::lane() + 32 * q < Ce::V ? to_float(bias[Ce::lane() + 32 * q])
                                                             : 0.f;
        int target[OWN];
        float scale[OWN], l[OWN];
        const auto wanted = [&](int r0) {
#pragma unroll
                for (int i = 0; i < OWN; i++) {
                        const int r = r0 + own + i < rows ? r0 + own + i : 0;
                        float to[1];
                        dloss(r, 0, to);
                        scale[i] = to[0];
                        target[i] = r0 + own + i < rows && targets[r] < Ce::V ? targets[r] : -1;
                }
        };
        if (PREFETCH)
                wanted(tile * ROWS);
        pdl_wait();
        for (int r0 = tile * ROWS; r0 < rows; r0 += tiles * ROWS) {
                const int n = rows - r0 < ROWS ? rows - r0 : ROWS;
                Ce::template copy<ROWS>(xs, x + r0 * ldx, ldx, n);
                cp_async_commit();
                if (!PREFETCH || r0 != tile * ROWS)
                        wanted(r0);
                cp_async_wait<0>();
                __syncthreads();
                Ce::logits(red, xs, ws);
                Ce::softmax(l, ds + own * Ce::LT, d + (long)(r0 + own) * Ce::LD, n - own,
                            red + own * Ce::LR, bias, add, target, scale);
#pragma unroll
                for (int i = 0; i < OWN; i++)
                        if (own + i < n && Ce::lane() == 0)
                                loss[r0 + own + i] = l[i];
                __syncthreads();
                Ce::grad_x(dx + (long)r0 * Ce::C, ds, ws, n);
                __syncthreads();
        }
}

#endif
