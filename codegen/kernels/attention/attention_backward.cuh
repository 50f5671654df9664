/* attention_backward.cuh: gradients of attention.cuh's function, from q, k, v, lse and g = dL/do.
 *
 * With P = exp(score - lse) (0 where a query does not attend), D the dropout mask / (1 - p):
 *
 *      delta = sum_d o g               attention_delta_task
 *      dS = P * (D * (g v^T) - delta)  * derivative of the soft cap
 *      dv = (P * D)^T g    dk = SCALE dS^T q      attention_dkv_task: one block per key tile
 *      dq = SCALE dS k                            attention_dq_task:  one block per query tile
 *
 * Two kernels recompute the scores: seven GEMMs, where a fused kernel needs five.  But a fused
 * kernel adds dq from all key tiles through memory, which is deterministic only if blocks wait for
 * each other.  Here every sum is one thread's own, in order; heads that share a kv head are summed
 * inside the block.
 *
 * dkv works on transposed scores (rows are keys).  So in both kernels the block's own rows are
 * resident A operands, scores become the A operand of the next GEMM in registers, and all streamed
 * data is B operands.
 *
 * Signatures, strides, tiles, epilogues: attention.cuh.  CACHED is false and S = T. */
#ifndef TGC_ATTENTION_BACKWARD_CUH
#define TGC_ATTENTION_BACKWARD_CUH

#include "attention.cuh"

/* ---- delta ---------------------------------------------------------------- */

template <class E, class Att, int THREADS>
__host__ __device__ constexpr int att_delta_rows()
{
        return THREADS / AttLanes<E, Att>::LANES;
}

/* Rows are (b, t, h), h fastest, so that rows adjacent in memory go to adjacent lanes. */
template <class E, class Att, int THREADS>
TGC_DEV void attention_delta_task(const E *o, Strides so, const E *g, Strides sg, float *delta,
                                  int B, int T, int tile)
{
        typedef AttLanes<E, Att> L;
        const long row = (long)tile * (THREADS / L::LANES) + threadIdx.x / L::LANES;
        const int lane = threadIdx.x % L::LANES;
        const int h = (int)(row % Att::H), t = (int)(row / Att::H % T), b = (int)(row / Att::H / T);
        const bool in = b < B;
        float sum = 0.f;
        if (in) {
                float u[L::C * L::V] = {}, w[L::C * L::V] = {};
                L::read(u, o + b * so.b + t * so.t + h * so.h, lane);
                L::read(w, g + b * sg.b + t * sg.t + h * sg.h, lane);
#pragma unroll
                for (int i = 0; i < L::C * L::V; i++)
                        sum = fmaf(u[i], w[i], sum);
        }
        sum = lanes_sum<L::LANES>(sum);
        if (in && lane == 0)
                delta[((long)b * Att::H + h) * T + t] = sum;
}

/* P and dS of one query and key from q.k (x) and g.v (y).  Out: x = P after dropout, y = dS.
 * FULL: the pair is known to attend.  lse2: lse in powers of two. */
template <bool FULL, class E, class Att>
TGC_DEV void att_grad(float &x, float &y, const AttHead<E, Att> &hd, int t, int s, float lse2,
                      float delta)
{
        float derivative = 1.f;
        if (hd.SHAPED)
                x = hd.score(x, t, s, derivative);
        float p = fast_exp2(x * hd.BASE2 - lse2);
        if (!FULL && !hd.attends(t, s))
                p = 0.f;
        x = p;
        if (Att::DROPOUT > 0.f) {
                float keep = hd.drop(1.f, t, s);
                x *= keep;
                y *= keep;
        }
        y = p * (y - delta);
        if (Att::SOFTCAP > 0.f)
                y *= derivative;
}

/* ---- tensor cores --------------------------------------------------------- */

template <class E, class Att, class Tile>
struct AttGradMma {
        typedef AttPath<E, Att> Path;
        static constexpr int BM = Tile::BM, BN = Tile::BN, SUB = Tile::SUB, THREADS = Tile::THREADS,
                             LD = Path::LD;
        static constexpr int WR = THREADS / 32 / Tile::COLS; /* warps that share the rows */
        static constexpr int MT = BM / (WR * 16);
        static constexpr int NT = SUB / 8, KT = Path::KT;
        /* accumulator columns per warp */
        static constexpr int DW = Path::DP / Tile::COLS, DT = DW / 8;
        static constexpr int SMEM_DQ = (2 * BM + 4 * BN) * LD * (int)sizeof(E);
        /* lse of streamed query i is at sums(...)[i * SL], delta at [(BN + i) * SL]: behind all
         * rows, or for floats in the rows' padding, as D = 128 leaves no other room in 99 KiB. */
        static constexpr int SL = Path::TF32 ? LD : 1;
        static constexpr int SMEM_DKV = SMEM_DQ + (Path::TF32 ? 0 : 16 * BN);
        static_assert(BM % (WR * 16) == 0 && BN % SUB == 0 && SUB % 16 == 0 && DW % 16 == 0,
                      "tile of the mma path");
        /* Own rows stay in registers if they and the accumulators fit the budget. */
        typedef AttRows<E, MT, KT, LD, (MT * (2 * DT + 2 * KT) * 4 <= Path::KEEP)> RowsDkv;
        typedef AttRows<E, MT, KT, LD, (MT * (DT + 2 * KT) * 4 <= Path::KEEP)> RowsDq;

        /* sx: start of the stages. */
        static __device__ __forceinline__ float *sums(E *sx, int stage)
        {
                return Path::TF32 ? (float *)(sx + stage * 2 * BN * LD + Path::DP)
                                  : (float *)(sx + 4 * BN * LD) + stage * 2 * BN;
        }

        /* Requests queries [m0, m0 + BN) of head h with g, lse and delta, into one stage. */
        static __device__ __forceinline__ void fetch(E *sx, float *sl, const AttIn<E, Att> &in,
                                                     const E *g, Strides sg, const float *lse,
                                                     const float *delta, int b, int h, int m0,
                                                     int T)
        {
                att_copy<BN, THREADS, Path, Att::D>(sx, in.q + b * in.sq.b + h * in.sq.h, in.sq.t,
                                                    m0, T);
                att_copy<BN, THREADS, Path, Att::D>(sx + BN * LD, g + b * sg.b + h * sg.h, sg.t, m0,
                                                    T);
                const long base = ((long)b * Att::H + h) * T;
#pragma unroll
                for (int i = threadIdx.x; i < 2 * BN; i += THREADS) {
                        bool ok = m0 + i % BN < T;
                        cp_async4(sl + i * SL,
                                  (i < BN ? lse : delta) + (ok ? base + m0 + i % BN : 0), ok);
                }
                cp_async_commit();
        }

        /* att_grad of a fragment whose columns are queries from t0 on; lse and delta at l in
         * shared memory ... */
        template <bool FULL>
        static __device__ __forceinline__ void by_column(float (&x)[MT][NT][4],
                                                         float (&y)[MT][NT][4],
                                                         const AttHead<E, Att> &hd, int t0, int key,
                                                         const float *l)
        {
                const int col = (threadIdx.x & 3) * 2;
#pragma unroll
                for (int n = 0; n < NT; n++) {
                        float ls[2], de[2];
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                                ls[i] = l[(n * 8 + col + i) * SL] * ATT_LOG2E;
                                de[i] = l[(BN + n * 8 + col + i) * SL];
                        }
#pragma unroll
                        for (int m = 0; m < MT; m++)
#pragma unroll
                                for (int i = 0; i < 4; i++)
                                        att_grad<FULL>(x[m][n][i], y[m][n][i], hd,
                                                       t0 + n * 8 + col + (i & 1),
                                                       key + m * 16 + (i >> 1) * 8, ls[i & 1],
                                                       de[i & 1]);
                }
        }

        /* ... and of one whose rows are queries. */
        template <bool FULL>
        static __device__ __forceinline__ void by_row(float (&x)[MT][NT][4], float (&y)[MT][NT][4],
                                                      const AttHead<E, Att> &hd, int row, int s0,
                                                      const float (&ls)[MT][2],
                                                      const float (&de)[MT][2])
        {
                const int col = s0 + (threadIdx.x & 3) * 2;
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int n = 0; n < NT; n++)
#pragma unroll
                                for (int i = 0; i < 4; i++)
                                        att_grad<FULL>(x[m][n][i], y[m][n][i], hd,
                                                       row + m * 16 + (i >> 1) * 8,
                                                       col + n * 8 + (i & 1), ls[m][i >> 1],
                                                       de[m][i >> 1]);
        }

        template <class EpilogueK, class EpilogueV>
        static __device__ __forceinline__ void dkv(const AttIn<E, Att> &in, const E *g, Strides sg,
                                                   const float *lse, const float *delta, int b,
                                                   int hk, int n0, int T, const Rt *rt, char *smem,
                                                   EpilogueK &epilogue_k, EpilogueV &epilogue_v)
        {
                constexpr int GROUP = Att::H / Att::K;
                E *sk = (E *)smem, *sv = sk + BM * LD, *sx = sv + BM * LD;
                const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
                const int w0 = n0 + warp % WR * MT * 16, c0 = warp / WR * DW;
                const int key = w0 + (lane >> 2);
                const AttHead<E, Att> first(in, rt, b, hk * GROUP, T);
                const int lo = first.first_query(n0) / BN,
                          hi = (first.end_query(n0 + BM) + BN - 1) / BN;
                const int steps = hi > lo ? (hi - lo) * GROUP : 0;

                RowsDkv k, v;
                float dk[MT][DT][4], dv[MT][DT][4];
                att_fill(dk, 0.f);
                att_fill(dv, 0.f);
                att_copy<BM, THREADS, Path, Att::D>(sk, in.k + b * in.sk.b + hk * in.sk.h, in.sk.t,
                                                    n0, T);
                att_copy<BM, THREADS, Path, Att::D>(sv, in.v + b * in.sv.b + hk * in.sv.h, in.sv.t,
                                                    n0, T);
                if (steps)
                        fetch(sx, sums(sx, 0), in, g, sg, lse, delta, b, hk * GROUP, lo * BN, T);
                cp_async_commit();
                cp_async_wait<0>();
                __syncthreads();
                k.init(sk + (w0 - n0) * LD);
                v.init(sv + (w0 - n0) * LD);

                /* head j of the group, query block m */
                for (int i = 0, j = 0, m = lo; i < steps; i++) {
                        const E *q = sx + (i & 1) * 2 * BN * LD, *dy = q + BN * LD;
                        const float *l = sums(sx, i & 1);
                        const int h = hk * GROUP + j, m0 = m * BN;
                        cp_async_wait<0>();
                        __syncthreads();
                        if (++m == hi) {
                                m = lo;
                                j++;
                        }
                        if (i + 1 < steps)
                                fetch(sx + (~i & 1) * 2 * BN * LD, sums(sx, ~i & 1), in, g, sg, lse,
                                      delta, b, hk * GROUP + j, m * BN, T);
                        const AttHead<E, Att> hd(in, rt, b, h, T);
#pragma unroll
                        for (int u = 0; u < BN; u += SUB) {
                                const int t0 = m0 + u;
                                if (hd.empty(t0, t0 + SUB, w0, w0 + MT * 16))
                                        continue;
                                const bool full = hd.full(t0, t0 + SUB, w0, w0 + MT * 16);
                                float x[MT][NT][4], y[MT][NT][4];
                                AttScores<E, MT, NT> p;
                                att_fill(x, 0.f);
                                att_mma_nt(x, k, q + u * LD);
                                att_fill(y, 0.f);
                                att_mma_nt(y, v, dy + u * LD);
                                if (full)
                                        by_column<true>(x, y, hd, t0, key, l + u * SL);
                                else
                                        by_column<false>(x, y, hd, t0, key, l + u * SL);
                                p.set(x);
                                att_mma_nn<LD>(dv, p, dy + u * LD + c0);
                                p.set(y);
                                att_mma_nn<LD>(dk, p, q + u * LD + c0);
                        }
                }
                float f[MT][2];
                att_fill(f, Att::SCALE);
                att_store<Att::D>(dk, f, key, T, b * T, c0, hk * Att::D, epilogue_k, E());
                att_fill(f, 1.f);
                att_store<Att::D>(dv, f, key, T, b * T, c0, hk * Att::D, epilogue_v, E());
                __syncthreads();
        }

        template <class Epilogue>
        static __device__ __forceinline__ void dq(const AttIn<E, Att> &in, const E *g, Strides sg,
                                                  const float *lse, const float *delta, int b,
                                                  int h, int m0, int T, const Rt *rt, char *smem,
                                                  Epilogue &epilogue)
        {
                E *sq = (E *)smem, *sg_ = sq + BM * LD, *sx = sg_ + BM * LD;
                const int hk = h / (Att::H / Att::K);
                const E *k = in.k + b * in.sk.b + hk * in.sk.h,
                        *v = in.v + b * in.sv.b + hk * in.sv.h;
                const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
                const int w0 = m0 + warp % WR * MT * 16, c0 = warp / WR * DW,
                          row = w0 + (lane >> 2);
                const AttHead<E, Att> hd(in, rt, b, h, T);
                const int lo = hd.first_key(m0) / BN * BN, hi = hd.end_key(m0 + BM);

                att_copy<BM, THREADS, Path, Att::D>(sq, in.q + b * in.sq.b + h * in.sq.h, in.sq.t,
                                                    m0, T);
                att_copy<BM, THREADS, Path, Att::D>(sg_, g + b * sg.b + h * sg.h, sg.t, m0, T);
                att_copy<BN, THREADS, Path, Att::D>(sx, k, in.sk.t, lo, T);
                att_copy<BN, THREADS, Path, Att::D>(sx + BN * LD, v, in.sv.t, lo, T);
                cp_async_commit();

                RowsDq q, dy;
                float acc[MT][DT][4], ls[MT][2], de[MT][2];
                att_fill(acc, 0.f);
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                                int t = row + m * 16 + i * 8;
                                ls[m][i] = t < T ? lse[(long)hd.bh * T + t] * ATT_LOG2E : 0.f;
                                de[m][i] = t < T ? delta[(long)hd.bh * T + t] : 0.f;
                        }
                cp_async_wait<0>();
                __syncthreads();
                q.init(sq + (w0 - m0) * LD);
                dy.init(sg_ + (w0 - m0) * LD);

                for (int n0 = lo, stage = 0; n0 < hi; n0 += BN, stage ^= 1) {
                        const E *sk = sx + stage * 2 * BN * LD, *sv = sk + BN * LD;
                        cp_async_wait<0>();
                        __syncthreads();
                        if (n0 + BN < hi) {
                                E *next = sx + (stage ^ 1) * 2 * BN * LD;
                                att_copy<BN, THREADS, Path, Att::D>(next, k, in.sk.t, n0 + BN, T);
                                att_copy<BN, THREADS, Path, Att::D>(next + BN * LD, v, in.sv.t,
                                                                    n0 + BN, T);
                                cp_async_commit();
                        }
#pragma unroll
                        for (int u = 0; u < BN; u += SUB) {
                                const int s0 = n0 + u;
                                if (hd.empty(w0, w0 + MT * 16, s0, s0 + SUB))
                                        continue;
                                const bool full = hd.full(w0, w0 + MT * 16, s0, s0 + SUB);
                                float x[MT][NT][4], y[MT][NT][4];
                                AttScores<E, MT, NT> p;
                                att_fill(x, 0.f);
                                att_mma_nt(x, q, sk + u * LD);
                                att_fill(y, 0.f);
                                att_mma_nt(y, dy, sv + u * LD);
                                if (full)
                                        by_row<true>(x, y, hd, row, s0, ls, de);
                                else
                                        by_row<false>(x, y, hd, row, s0, ls, de);
                                p.set(y);
                                att_mma_nn<LD>(acc, p, sk + u * LD + c0);
                        }
                }
                float f[MT][2];
                att_fill(f, Att::SCALE);
                att_store<Att::D>(acc, f, row, T, b * T, c0, h * Att::D, epilogue, E());
                __syncthreads();
        }
};

/* ---- float32 FMA ---------------------------------------------------------- */

template <class E, class Att, class Tile>
struct AttGradSimt {
        typedef AttSimt<Att, Tile> G;
        static constexpr int BM = Tile::BM, BN = Tile::BN, RM = G::RM, RN = G::RN, DC = G::DC;
        static constexpr int SMEM_DKV = (2 * (BM + BN) * G::LD + BM * G::LP + 2 * BN) * 4;
        static constexpr int SMEM_DQ = SMEM_DKV;

        template <class EpilogueK, class EpilogueV>
        static __device__ __forceinline__ void dkv(const AttIn<E, Att> &in, const E *g, Strides sg,
                                                   const float *lse, const float *delta, int b,
                                                   int hk, int n0, int T, const Rt *rt, char *smem,
                                                   EpilogueK &epilogue_k, EpilogueV &epilogue_v)
        {
                constexpr int GROUP = Att::H / Att::K;
                float *sk = (float *)smem, *sv = sk + BM * G::LD, *sq = sv + BM * G::LD,
                      *sy = sq + BN * G::LD;
                float *sp = sy + BN * G::LD, *sl = sp + BM * G::LP, *sd = sl + BN;
                float dk[RM][DC][2], dv[RM][DC][2];
                G::zero(dk);
                G::zero(dv);
                G::template copy<BM>(sk, in.k + b * in.sk.b + hk * in.sk.h, in.sk.t, n0, T);
                G::template copy<BM>(sv, in.v + b * in.sv.b + hk * in.sv.h, in.sv.t, n0, T);
                for (int h = hk * GROUP; h < hk * GROUP + GROUP; h++) {
                        const AttHead<E, Att> hd(in, rt, b, h, T);
                        const int hi = hd.end_query(n0 + BM);
                        for (int m0 = hd.first_query(n0) / BN * BN; m0 < hi; m0 += BN) {
                                float x[RM][RN], y[RM][RN];
                                __syncthreads();
                                G::template copy<BN>(sq, in.q + b * in.sq.b + h * in.sq.h, in.sq.t,
                                                     m0, T);
                                G::template copy<BN>(sy, g + b * sg.b + h * sg.h, sg.t, m0, T);
                                for (int i = threadIdx.x; i < BN; i += 256) {
                                        sl[i] = m0 + i < T
                                                        ? lse[(long)hd.bh * T + m0 + i] * ATT_LOG2E
                                                        : 0.f;
                                        sd[i] = m0 + i < T ? delta[(long)hd.bh * T + m0 + i] : 0.f;
                                }
                                __syncthreads();
                                G::dot(x, sk, sq);
                                G::dot(y, sv, sy);
#pragma unroll
                                for (int i = 0; i < RM; i++)
#pragma unroll
                                        for (int j = 0; j < RN; j++) {
                                                int c = G::tx() + 16 * j;
                                                att_grad<false>(x[i][j], y[i][j], hd, m0 + c,
                                                                n0 + G::ty() * RM + i, sl[c],
                                                                sd[c]);
                                        }
                                G::put(sp, x);
                                G::acc(dv, sp, sy);
                                G::put(sp, y);
                                G::acc(dk, sp, sq);
                        }
                }
                float f[RM];
#pragma unroll
                for (int i = 0; i < RM; i++)
                        f[i] = Att::SCALE;
                G::out(dk, f, n0, T, b * T, hk * Att::D, epilogue_k);
#pragma unroll
                for (int i = 0; i < RM; i++)
                        f[i] = 1.f;
                G::out(dv, f, n0, T, b * T, hk * Att::D, epilogue_v);
                __syncthreads();
        }

        template <class Epilogue>
        static __device__ __forceinline__ void dq(const AttIn<E, Att> &in, const E *g, Strides sg,
                                                  const float *lse, const float *delta, int b,
                                                  int h, int m0, int T, const Rt *rt, char *smem,
                                                  Epilogue &epilogue)
        {
                const int hk = h / (Att::H / Att::K);
                float *sq = (float *)smem, *sy = sq + BM * G::LD, *sk = sy + BM * G::LD,
                      *sv = sk + BN * G::LD;
                float *sp = sv + BN * G::LD;
                const AttHead<E, Att> hd(in, rt, b, h, T);
                const int hi = hd.end_key(m0 + BM);
                float acc[RM][DC][2], ls[RM], de[RM];
                G::zero(acc);
                G::template copy<BM>(sq, in.q + b * in.sq.b + h * in.sq.h, in.sq.t, m0, T);
                G::template copy<BM>(sy, g + b * sg.b + h * sg.h, sg.t, m0, T);
#pragma unroll
                for (int i = 0; i < RM; i++) {
                        int t = m0 + G::ty() * RM + i;
                        ls[i] = t < T ? lse[(long)hd.bh * T + t] * ATT_LOG2E : 0.f;
                        de[i] = t < T ? delta[(long)hd.bh * T + t] : 0.f;
                }
                for (int n0 = hd.first_key(m0) / BN * BN; n0 < hi; n0 += BN) {
                        float x[RM][RN], y[RM][RN];
                        __syncthreads();
                        G::template copy<BN>(sk, in.k + b * in.sk.b + hk * in.sk.h, in.sk.t, n0, T);
                        G::template copy<BN>(sv, in.v + b * in.sv.b + hk * in.sv.h, in.sv.t, n0, T);
                        __syncthreads();
                        G::dot(x, sq, sk);
                        G::dot(y, sy, sv);
#pragma unroll
                        for (int i = 0; i < RM; i++)
#pragma unroll
                                for (int j = 0; j < RN; j++)
                                        att_grad<false>(x[i][j], y[i][j], hd, m0 + G::ty() * RM + i,
                                                        n0 + G::tx() + 16 * j, ls[i], de[i]);
                        G::put(sp, y);
                        G::acc(acc, sp, sk);
                }
                float f[RM];
#pragma unroll
                for (int i = 0; i < RM; i++)
                        f[i] = Att::SCALE;
                G::out(acc, f, m0, T, b * T, h * Att::D, epilogue);
                __syncthreads();
        }
};

/* ---- the tasks ------------------------------------------------------------ */

template <class E, class Att, class Tile>
struct AttGrad {
        typedef typename AttPick<AttPath<E, Att>::MMA, AttGradMma<E, Att, Tile>,
                                 AttGradSimt<E, Att, Tile>>::Type Impl;
};

template <class E, class Att, class Tile>
__host__ __device__ constexpr int attention_dkv_smem()
{
        return AttGrad<E, Att, Tile>::Impl::SMEM_DKV;
}
template <class E, class Att, class Tile>
__host__ __device__ constexpr int attention_dq_smem()
{
        return AttGrad<E, Att, Tile>::Impl::SMEM_DQ;
}

template <class E, class Att, class Tile, class EpilogueK, class EpilogueV>
TGC_DEV void attention_dkv_task(const AttIn<E, Att> &in, const E *g, Strides sg, const float *lse,
                                const float *delta, int B, int T, const Rt *rt, int tile,
                                char *smem, EpilogueK epilogue_k, EpilogueV epilogue_v)
{
        static_assert(Att::H % Att::K == 0 && !Att::CACHED,
                      "training: keys are those of this call");
        int bh, n;
        att_order<E, Att>(tile, B * Att::K, 1, (T + Tile::BM - 1) / Tile::BM, T, false, bh, n);
        AttGrad<E, Att, Tile>::Impl::dkv(in, g, sg, lse, delta, bh / Att::K, bh % Att::K,
                                         n * Tile::BM, T, rt, smem, epilogue_k, epilogue_v);
}

template <class E, class Att, class Tile, class Epilogue>
TGC_DEV void attention_dq_task(const AttIn<E, Att> &in, const E *g, Strides sg, const float *lse,
                               const float *delta, int B, int T, const Rt *rt, int tile, char *smem,
                               Epilogue epilogue)
{
        static_assert(Att::H % Att::K == 0 && !Att::CACHED,
                      "training: keys are those of this call");
        int bh, m;
        att_order<E, Att>(tile, B * Att::H, Att::H / Att::K, (T + Tile::BM - 1) / Tile::BM, T,
                          Att::CAUSAL, bh, m);
        AttGrad<E, Att, Tile>::Impl::dq(in, g, sg, lse, delta, bh / Att::H, bh % Att::H,
                                        m * Tile::BM, T, rt, smem, epilogue);
}

#endif
