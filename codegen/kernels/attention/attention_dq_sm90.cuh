/* attention_dq_sm90.cuh: dq, the gradient of attention's queries, on Hopper.  Jobs as in
 * attention_backward_tile_sm90.cuh, with queries as own rows.
 *
 *      attention_dq_tma<E, Att, Tile>(in, o, so, lse, delta, B, T, first, step, smem, epilogue)
 *              Block `first` of `step`, persistent over jobs.  Also writes delta.  in: AttGradMaps;
 *              o, so: the output and its strides, 16-byte aligned rows.
 *
 *      S = q k^T   Y = g v^T   P = 2^(S - lse)   dS = P (Y - delta)   dq += dS k
 *
 * wgmmas are issued in this order, and waited for only when their results or operand registers are
 * needed, so that they overlap the exponentials and each other:
 *
 *      P(i)  S(i+1)  dS(i)  Y(i+1)  dq(i)
 *
 * S(i+1) is issued once P(i) has been read out of S's registers. */
#ifndef TGC_ATTENTION_DQ_SM90_CUH
#define TGC_ATTENTION_DQ_SM90_CUH

#include "attention_backward_tile_sm90.cuh"
#ifdef TGC_SM90A

template <class E, class Att, class Tile, class Epilogue>
struct AttDqSm90 {
        static constexpr int D = Tile::D, GROUP = Att::H / Att::K;
        static constexpr float BASE2 = Att::SCALE * ATT_LOG2E;
        const AttGradMaps &in;
        const E *o;
        Strides so;
        const float *lse;
        float *delta;
        int B, T, first, step;
        Epilogue &epilogue;

        /* Range of steps of keys that meet queries [t, t + n) of sequence b. */
        __device__ __forceinline__ int lo(int b, int t) const
        {
                const int steps = Att::WINDOW > 0 && t >= Att::WINDOW
                                          ? (t - Att::WINDOW + 1) / Tile::BN
                                          : 0;
                const int own = Att::DOCUMENTS ? begin(b, t) / Tile::BN : steps;
                return own > steps ? own : steps;
        }
        __device__ __forceinline__ int begin(int b, int t) const
        {
                return att_begin(in.documents + (long)b * T * 2, t, T);
        }
        __device__ __forceinline__ int hi(int t, int n) const
        {
                return ((Att::CAUSAL && t + n < T ? t + n : T) + Tile::BN - 1) / Tile::BN;
        }
        __device__ __forceinline__ bool get(int i, AttJob &j) const
        {
                int bh, m;
                if (!att_job(i, first, step, B * Att::H, (T + Tile::BM - 1) / Tile::BM, Att::CAUSAL,
                             bh, m))
                        return false;
                j = { bh / Att::H, bh % Att::H, m * Tile::BM, lo(bh / Att::H, m * Tile::BM),
                      hi(m * Tile::BM, Tile::BM) };
                return true;
        }

        __device__ __forceinline__ void load(char *smem) const
        {
                Pipeline<Tile> pipe(smem + Tile::RING);
                AttJob j;
                for (int i = 0; get(i, j); i++) {
                        att_load_own_sm90<Tile>(smem, i, in.q, in.g, j, T);
                        for (int m = j.lo; m < j.hi; m++)
                                att_load_step_sm90(pipe, in.k, in.v, j.h / GROUP, j.b * T, m);
                }
        }
        __device__ __forceinline__ void load_rows(char *) const {}
        __device__ __forceinline__ int loaders() const { return 1; }

        struct State : AttPlaceSm90<Tile> {
                int m, w0, T; /* step; first own row of the warpgroup */
                unsigned q, g;
                float lse[2], delta[2];
                AttOwn<Tile> own_q, own_g;

                __device__ __forceinline__ State(char *smem, int T_)
                    : AttPlaceSm90<Tile>(smem), T(T_)
                {
                }
        };

        template <bool FULL>
        static __device__ __forceinline__ void exps(float (&e)[32], const float (&x)[32],
                                                    const float (&l)[2], int gap, int end,
                                                    const int (&reach)[2])
        {
#pragma unroll
                for (int j = 0; j < 32; j++) {
                        e[j] = fast_exp2(x[j] * BASE2 - l[j >> 1 & 1]);
                        if (!FULL && !att_attends_sm90<Att, false>(j, gap, end, reach))
                                e[j] = 0.f;
                }
        }

        /* Step i, in the order of the head; NEXT: also issues S(i+1) and Y(i+1).  On entry S(i),
         * Y(i) and dq(i-1) are in flight. */
        template <bool NEXT>
        static __device__ __forceinline__ void one_step(State &s, float (&x)[32], float (&y)[32],
                                                        float (&dq)[D / 2], Mbar *own_empty)
        {
                const int lane = threadIdx.x & 31, s0 = s.m * 64, here = s.here;
                float e[32];
                unsigned ds[4][4];

                wgmma_wait<2>(); /* S(i) is done */
                wgmma_hold(x);
                if ((Att::CAUSAL && s0 + 63 > s.w0) ||
                    (Att::WINDOW > 0 && s.w0 + 63 - s0 >= Att::WINDOW) ||
                    (!Att::CAUSAL && s0 + 64 > s.T) || (Att::DOCUMENTS && s0 < s.edge)) {
                        const int row = s.w0 + (int)threadIdx.x / 32 % 4 * 16 + (lane >> 2),
                                  col = s0 + (lane & 3) * 2;
                        exps<false>(e, x, s.lse, row - col, s.T - col, s.reach);
                } else {
                        exps<true>(e, x, s.lse, 0, 0, s.reach);
                }
                if (NEXT) {
                        float to[32];
                        s.m++;
                        s.enter();
                        wgmma_fence();
                        s.own_q.product(to, s.q, s.at(s.here, 0), E());
                        wgmma_commit();
                        wgmma_move(x, to);
                }
                wgmma_wait<NEXT ? 2 : 1>(); /* Y(i) is done */
                wgmma_hold(y);
                if (!NEXT)
                        s.arrive(own_empty);
                att_row_delta(e, y, s.delta);
                wgmma_wait<NEXT>(); /* dq(i-1) is done: ds is free, and its stage */
                s.give_back(here);
                att_pack<E>(ds, e);
                wgmma_fence();
                if (NEXT) {
                        float to[32];
                        s.own_g.product(to, s.g, s.at(s.here, 1), E());
                        wgmma_commit();
                        wgmma_move(y, to);
                }
                wgmma_fence();
                att_add_sm90<Tile>(dq, ds, s.at(here, 0), E());
                wgmma_commit();
        }

        __device__ __forceinline__ void reaches(State &s, int b, int query) const
        {
                const int last = begin(b, query + 8);
                s.reach[0] = query + 1 - begin(b, query);
                s.reach[1] = query + 9 - last;
                s.edge = __shfl_sync(0xffffffffu, last, 31);
        }

        /* sum_d o g of own row r, by the lanes of a quad: each has 8 of every 32 elements; g is in
         * its panel. */
        static __device__ __forceinline__ float row_delta(const Raw<8, E> (&out)[D / 32],
                                                          const char *panel, int r)
        {
                float sum = 0.f;
#pragma unroll
                for (int c = 0; c < D / 32; c++) {
                        const int k = c * 4 + (threadIdx.x & 3);
                        float u[8], w[8];
                        out[c].template floats<0, 1>(u);
                        ::load(w, (const E *)(panel + k / 8 * (Tile::BM * 128) + r * 128 +
                                              ((k ^ r) & 7) * 16));
#pragma unroll
                        for (int d = 0; d < 8; d++)
                                sum = fmaf(u[d], w[d], sum);
                }
                return quad_sum(sum);
        }

        /* Loads what is not in panels, o and lse, into the lane that needs it. */
        __device__ __forceinline__ void fetch(const AttJob &j, int row, Raw<8, E> (&out)[2][D / 32],
                                              float (&l)[2]) const
        {
#pragma unroll
                for (int u = 0; u < 2; u++) {
                        const int t = j.row + row + u * 8 < T ? j.row + row + u * 8 : T - 1;
                        const E *p = o + j.b * so.b + t * so.t + j.h * so.h + (threadIdx.x & 3) * 8;
                        l[u] = lse[((long)j.b * Att::H + j.h) * T + t];
#pragma unroll
                        for (int c = 0; c < D / 32; c++)
                                out[u][c].get(p + c * 32);
                }
        }

        /* The consumer loop of a warpgroup, over jobs. */
        __device__ __forceinline__ void multiply(char *smem) const
        {
                const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0),
                          warp = threadIdx.x / 32 % 4;
                const int lane = threadIdx.x & 31, row = group * 64 + warp * 16 + (lane >> 2);
                State s(smem, T);
                Raw<8, E> out[2][D / 32];
                float l[2];
                AttJob j;
                bool more = get(0, j);
                if (more)
                        fetch(j, row, out, l);
                for (int i = 0; more; i++) {
                        float x[32], y[32], dq[D / 2];
                        char *own = Tile::own(smem, i);
                        s.w0 = j.row + group * 64;
                        const int end = hi(s.w0, 64),
                                  from = lo(j.b, s.w0) < end ? lo(j.b, s.w0) : end - 1;
                        s.m = from;
                        s.before = -1;
                        if (Att::DOCUMENTS)
                                reaches(s, j.b, j.row + row);
                        s.q = (unsigned)Tile::Own::wide(own) + group * Tile::Own::WIDE_64;
                        s.g = s.q + Tile::Own::BYTES / 16;
                        pipeline_wait(Tile::full(smem, i), Tile::round(i));
                        s.own_q.init(own, group * 64 + warp * 16);
                        s.own_g.init(own + Tile::Own::BYTES, group * 64 + warp * 16);
                        att_fill(dq, 0.f);
                        wgmma_hold(dq);
                        s.skip(from - j.lo);
                        s.enter();
                        wgmma_fence();
                        s.own_q.product(x, s.q, s.at(s.here, 0), E());
                        wgmma_commit();
                        s.own_g.product(y, s.g, s.at(s.here, 1), E());
                        wgmma_commit();
                        wgmma_commit(); /* an empty group in place of dq(i-1), for the waits
                                         * below */
#pragma unroll
                        for (int u = 0; u < 2; u++) {
                                const int t = j.row + row + u * 8;
                                const float sum = row_delta(out[u], own + Tile::Own::BYTES,
                                                            row + u * 8);
                                s.lse[u] = t < T ? l[u] * ATT_LOG2E : INFINITY;
                                s.delta[u] = t < T ? sum : 0.f;
                                if (t < T && (lane & 3) == 0)
                                        delta[((long)j.b * Att::H + j.h) * T + t] = sum;
                        }
#pragma unroll 1
                        for (int left = end - from; left > 1; left--)
                                one_step<true>(s, x, y, dq, 0);
                        one_step<false>(s, x, y, dq, Tile::empty(smem, i));
                        const AttJob last = j;
                        more = get(i + 1, j);
                        if (more)
                                fetch(j, row, out,
                                      l); /* in flight during the last wgmma and the epilogue */
                        wgmma_wait<0>();
                        wgmma_hold(dq);
                        s.arrive(s.pipe.empty(s.here));
                        s.skip(last.hi - end);
                        att_put_sm90<D>(dq, Att::SCALE, last.b * T + s.w0 + warp * 16,
                                        last.b * T + T, last.h, epilogue);
                }
        }
};

template <class E, class Att, class Tile, class Epilogue>
TGC_DEV void attention_dq_tma(const AttGradMaps &in, const E *o, Strides so, const float *lse,
                              float *delta, int B, int T, int first, int step, char *smem,
                              Epilogue epilogue)
{
        static_assert(att_grad_sm90_serves<E, Att>() && Tile::D == Att::D,
                      "what the Hopper form computes");
        const AttDqSm90<E, Att, Tile, Epilogue> work = { in, o, so,    lse,  delta,
                                                         B,  T, first, step, epilogue };
        att_grad_sm90_run<Tile>(work, smem);
}

#endif
#endif
