/* attention.cuh: scaled dot-product attention, forward; scores are never stored (Dao,
 * FlashAttention-2, 2023).
 *
 *      o = softmax(x) v over the keys s that query t attends
 *      x = SCALE q.k;   SOFTCAP > 0: x = SOFTCAP tanh(x / SOFTCAP);   ALIBI: x += slopes[h] (s - p)
 *
 * Query t of sequence b stands at p = rt->pos[b] + t (Att::CACHED) or p = t; there are S =
 * rt->pos[b] + T (or T) keys.  It attends key s < S if, as Att says,
 *
 *      CAUSAL  s <= p        WINDOW > 0  s > p - WINDOW        MASK  mask(b,t,s) != 0
 *      DOCUMENTS  begin(b,t) <= s < end(b,t): several texts, packed into one row of tokens
 *
 * A query with no key gives o = 0 and lse = -inf.  Query head h reads kv head h / (H/K).
 *
 * Att::PAGE: the cache is paged.  Att::RAGGED: the queries of rt->B sequences are packed, those of
 * b at rt->start[b] .. rt->start[b + 1] - 1; the graph's B is 1, T is their total, and
 * B*H*ceil(T/BM) tiles become at most H * (ceil(T/BM) + rt->B).
 *
 * All attention families take the same description of the problem, which the generator writes,
 *
 *      struct Att7 : AttBase { static constexpr int D = 64, H = 12, K = 4;
 *                              static constexpr float SCALE = 0.125f; };
 *      AttIn<bf16, Att7> in = { q, k, v, {bq, tq, hq}, {bk, tk, hk}, {bv, tv, hv} };
 *
 * and a tile AttTile<BM, BN, SUB, COLS, THREADS>, a row of attention_tiles.def:
 *
 *      attention_task<E, Att, Tile>(in, lse, B, T, rt, tile, smem, epilogue)
 *              B*H*ceil(T/BM) tiles.  lse (B,H,T) float, natural log, or null.
 *              epilogue(row = b*T + t, col = h*D + d, v).
 *
 *      attention_backward.cuh:
 *      attention_delta_task<E, Att, THREADS>(o, so, g, sg, delta, B, T, tile)
 *              delta (B,H,T) float = sum_d o g; g is the gradient of o; so, sg are strides.
 *              ceil(B*H*T / att_delta_rows<E, Att, THREADS>()) tiles.
 *      attention_dkv_task<E, Att, Tile>(in, g, sg, lse, delta, B, T, rt, tile, smem, epilogue_k,
 *              epilogue_v)
 *              B*K*ceil(T/BM) tiles.  epilogue(row = b*T + s, col = kvh*D + d, v).  Not CACHED.
 *      attention_dq_task<E, Att, Tile>(in, g, sg, lse, delta, B, T, rt, tile, smem, epilogue)
 *              B*H*ceil(T/BM) tiles.  epilogue as forward.
 *
 *      attention_decode.cuh: the same function for few queries and a long cache.
 *
 * Epilogues are called with V <= 4; MINV may be 1 or 2 (2 needs an even D).  Shared memory: the
 * SMEM column of the table.
 *
 * Each task has three implementations (AttPath).  Tensor cores serve 16-bit types with VEC == 8
 * (attention_mma.cuh; probabilities are rounded to E before P V, as usual), and floats with VEC ==
 * 4 and D <= 128 (attention_tf32.cuh).  Everything else uses float32 FMA (attention_simt.cuh).
 *
 * Each warp owns whole query rows.  So softmax reduces within a quad, and the score accumulator
 * becomes the A operand of P V without leaving registers. */
#ifndef TGC_ATTENTION_CUH
#define TGC_ATTENTION_CUH

#include "attention_simt.cuh"
#include "attention_tf32.cuh"

/* ---- tensor cores -------------------------------------------------------- */

template <class E, class Att, class Tile>
struct AttForwardMma {
        typedef AttPath<E, Att> Path;
        static constexpr int BM = Tile::BM, BN = Tile::BN, THREADS = Tile::THREADS, LD = Path::LD;
        static constexpr int MT = BM / (THREADS / 32 * 16); /* 16-row blocks per warp */
        static constexpr int NT = BN / 8, KT = Path::KT, DT = Path::DP / 8;
        static constexpr int SMEM = (BM + 4 * BN) * LD * (int)sizeof(E);
        static_assert(BM % (THREADS / 32 * 16) == 0 && BN % 16 == 0, "tile of the mma path");

        template <class Epilogue>
        static __device__ __forceinline__ void run(const AttIn<E, Att> &in, float *lse,
                                                   const AttHead<E, Att> &hd, int b, int h, int m0,
                                                   char *smem, Epilogue &epilogue)
        {
                E *sq = (E *)smem, *skv = sq + BM * LD;
                const int hk = h / (Att::H / Att::K);
                const E *q = hd.queries(in, b, h);
                const AttKeys<E, Att> k(in.k, in.sk, hd.rt, b, hk), v(in.v, in.sv, hd.rt, b, hk);
                const int lane = threadIdx.x & 31, w0 = m0 + (threadIdx.x >> 5) * MT * 16;
                const int lo = hd.first_key(m0) / BN * BN, hi = hd.end_key(m0 + BM);
                const int row = w0 + (lane >> 2); /* row of fragment half 0 */

                AttRows<E, MT, KT, LD, (MT * KT <= (Path::TF32 && TGC_TF32 ? 16 : 8))> rows;
                float o[MT][DT][4], top[MT][2], sum[MT][2];
                att_fill(o, 0.f);
                att_fill(top, -INFINITY);
                att_fill(sum, 0.f);

                att_copy<BM, THREADS, Path, Att::D>(sq, q, in.sq.t, m0, hd.T);
                att_copy_keys<BN, THREADS, Path, Att::D>(skv, k, lo, hd.S);
                att_copy_keys<BN, THREADS, Path, Att::D>(skv + BN * LD, v, lo, hd.S);
                cp_async_commit();
                cp_async_wait<0>();
                __syncthreads();
                rows.init(sq + (w0 - m0) * LD);

                /* one key tile per step: S = Q K^T, softmax, O += P V; the next tile is copied
                 * meanwhile */
                for (int n0 = lo, stage = 0; n0 < hi; n0 += BN, stage ^= 1) {
                        E *sk = skv + stage * 2 * BN * LD, *sv = sk + BN * LD;
                        cp_async_wait<0>();
                        __syncthreads(); /* this stage has landed, the other is free */
                        if (n0 + BN < hi) {
                                E *next = skv + (stage ^ 1) * 2 * BN * LD;
                                att_copy_keys<BN, THREADS, Path, Att::D>(next, k, n0 + BN, hd.S);
                                att_copy_keys<BN, THREADS, Path, Att::D>(next + BN * LD, v, n0 + BN,
                                                                         hd.S);
                                cp_async_commit();
                        }
                        if (hd.empty(w0, w0 + MT * 16, n0, n0 + BN))
                                continue;
                        float x[MT][NT][4];
                        att_fill(x, 0.f);
                        att_mma_nt(x, rows, (const E *)sk);
                        mask(x, hd, w0, row, n0);
                        AttScores<E, MT, NT> p;
                        softmax(x, o, top, sum, hd, row, n0);
                        p.set(x);
                        att_mma_nn<LD>(o, p, (const E *)sv);
                }

                float inv[MT][2];
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                                float s = quad_sum(sum[m][i]);
                                int t = row + m * 16 + i * 8;
                                inv[m][i] = s > 0.f ? 1.f / s : 0.f;
                                if (lse && (lane & 3) == 0 && t < hd.T)
                                        lse[(long)hd.bh * hd.T + t] =
                                                s > 0.f ? (top[m][i] * hd.BASE2 +
                                                           (Path::TF32 ? log2f(s) : fast_log2(s))) *
                                                                  ATT_LN2
                                                        : -INFINITY;
                        }
                att_store<Att::D>(o, inv, row, hd.T, hd.row0, 0, h * Att::D, epilogue, E());
                __syncthreads();
        }

        /* Scores from q.k; -inf where a query does not attend. */
        static __device__ __forceinline__ void mask(float (&x)[MT][NT][4],
                                                    const AttHead<E, Att> &hd, int w0, int row,
                                                    int n0)
        {
                const bool full = hd.full(w0, w0 + MT * 16, n0, n0 + BN);
                if (!hd.SHAPED && full)
                        return;
                const int col = n0 + (threadIdx.x & 3) * 2;
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int n = 0; n < NT; n++)
#pragma unroll
                                for (int i = 0; i < 4; i++) {
                                        int t = row + m * 16 + (i >> 1) * 8,
                                            s = col + n * 8 + (i & 1);
                                        float d;
                                        if (hd.SHAPED)
                                                x[m][n][i] = hd.score(x[m][n][i], t, s, d);
                                        if (!full && !hd.attends(t, s))
                                                x[m][n][i] = -INFINITY;
                                }
        }

        /* The exponent subtracted from all scores of a row.  A row without keys so far has top =
         * -inf; zero is then 0, so that 2^(-inf - 0) = 0 and inf - inf never occurs. */
        static __device__ __forceinline__ float zero(float top)
        {
                return top == -INFINITY ? 0.f : top * AttHead<E, Att>::BASE2;
        }

        /* One step of online softmax: x becomes probabilities relative to `top`.  The textbook top
         * is the running maximum, and every step rescales o.  Any top near it gives the same
         * quotient, so here it is raised only when some row of the warp exceeds it by 2^8, well
         * within float32 sums and 16-bit probabilities.  With several sequences, only the rows
         * that exceed it are raised: a row's bits must not depend on its neighbours. */
        static __device__ __forceinline__ void softmax(float (&x)[MT][NT][4], float (&o)[MT][DT][4],
                                                       float (&top)[MT][2], float (&sum)[MT][2],
                                                       const AttHead<E, Att> &hd, int row, int n0)
        {
                float most[MT][2];
                bool raise = false;
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                                const float t = att_row_max<true>(att_flat(x[m]), i);
                                most[m][i] = fmaxf(top[m][i], quad_max(t));
                                raise |= most[m][i] * hd.BASE2 > top[m][i] * hd.BASE2 + 8.f;
                        }
                if (__any_sync(0xffffffffu, raise))
#pragma unroll
                        for (int m = 0; m < MT; m++)
#pragma unroll
                                for (int i = 0; i < 2; i++) {
                                        if (Att::RAGGED &&
                                            !(most[m][i] * hd.BASE2 > top[m][i] * hd.BASE2 + 8.f))
                                                continue;
                                        const float scale = fast_exp2(top[m][i] * hd.BASE2 -
                                                                      zero(most[m][i]));
                                        top[m][i] = most[m][i];
                                        sum[m][i] *= scale;
                                        att_scale_row(att_flat(o[m]), i, scale);
                                }
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int i = 0; i < 2; i++)
                                sum[m][i] += att_row_exp<true>(att_flat(x[m]), i, hd.BASE2,
                                                               zero(top[m][i]));
                if (Att::DROPOUT > 0.f) {
                        const int col = n0 + (threadIdx.x & 3) * 2;
#pragma unroll
                        for (int m = 0; m < MT; m++)
#pragma unroll
                                for (int n = 0; n < NT; n++)
#pragma unroll
                                        for (int i = 0; i < 4; i++)
                                                x[m][n][i] = hd.drop(x[m][n][i],
                                                                     row + m * 16 + (i >> 1) * 8,
                                                                     col + n * 8 + (i & 1));
                }
        }
};

/* ---- the task ------------------------------------------------------------- */

template <bool FIRST, class A, class B>
struct AttPick {
        typedef A Type;
};
template <class A, class B>
struct AttPick<false, A, B> {
        typedef B Type;
};

template <class E, class Att, class Tile>
struct AttForward {
        typedef typename AttPick<AttPath<E, Att>::MMA, AttForwardMma<E, Att, Tile>,
                                 AttForwardSimt<E, Att, Tile>>::Type Impl;
};

/* Shared memory of attention_task; the generator asserts that it equals the table's. */
template <class E, class Att, class Tile>
__host__ __device__ constexpr int attention_smem()
{
        return AttForward<E, Att, Tile>::Impl::SMEM;
}

template <class E, class Att, class Tile, class Epilogue>
TGC_DEV void attention_task(const AttIn<E, Att> &in, float *lse, int B, int T, const Rt *rt,
                            int tile, char *smem, Epilogue epilogue)
{
        static_assert(Att::H % Att::K == 0, "query heads are a multiple of kv heads");
        int bh, m;
        if constexpr (Att::RAGGED) {
                const AttSequence q = att_sequence<Tile::BM, Att::MIXED>(rt, Att::H, tile);
                if (q.b == rt->B)
                        return;
                att_order<E, Att>(q.tile, Att::H, Att::H / Att::K, (q.T + Tile::BM - 1) / Tile::BM,
                                  q.T, Att::CAUSAL, bh, m);
                const AttHead<E, Att> hd(in, rt, q, bh);
                float *own = lse ? lse + (long)bh * T + q.start - (long)hd.bh * q.T : nullptr;
                AttForward<E, Att, Tile>::Impl::run(in, own, hd, q.b, bh, m * Tile::BM, smem,
                                                    epilogue);
        } else {
                att_order<E, Att>(tile, B * Att::H, Att::H / Att::K, (T + Tile::BM - 1) / Tile::BM,
                                  T, Att::CAUSAL, bh, m);
                const int b = bh / Att::H, h = bh % Att::H;
                const AttHead<E, Att> hd(in, rt, b, h, T);
                AttForward<E, Att, Tile>::Impl::run(in, lse, hd, b, h, m * Tile::BM, smem,
                                                    epilogue);
        }
}

#endif
