/* attention_dkv_sm90.cuh: dk and dv, the gradients of attention's keys and values, on Hopper.
 * Jobs as in attention_backward_tile_sm90.cuh, with keys as own rows.
 *
 *      attention_dkv_tma<E, Att, Tile>(in, lse, delta, B, T, first, step, smem, epilogue_k,
 *              epilogue_v)
 *              Block `first` of `step`, persistent over jobs.  in: AttGradMaps; delta: from the dq
 *              kernel.
 *
 *      S = k q^T   Y = v g^T   P = 2^(S - lse)   dS = P (Y - delta)   dv += P g   dk += dS q
 *
 * Scores are transposed, so that P and dS are A operands in the registers where they were
 * computed.  wgmmas are issued in this order, and waited for as late as in dq:
 *
 *      P(i)  dv(i)  dS(i)  dk(i)  S(i+1)  Y(i+1)
 *
 * Two accumulators leave no registers for S(i+1) beside P(i).  While one warpgroup computes dS,
 * the other one's wgmmas keep the tensor cores busy. */
#ifndef TGC_ATTENTION_DKV_SM90_CUH
#define TGC_ATTENTION_DKV_SM90_CUH

#include "attention_backward_tile_sm90.cuh"
#ifdef TGC_SM90A

/* OWN: the block has one job and computes its queries' deltas itself, in shared memory behind the
 * tile's. */
template <class E, class Att, class Tile, bool OWN, class EpilogueK, class EpilogueV>
struct AttDkvSm90 {
        static constexpr int D = Tile::D, GROUP = Att::H / Att::K;
        static constexpr float BASE2 = Att::SCALE * ATT_LOG2E;
        static_assert(!OWN || GROUP == 1, "one head's queries");
        const AttGradMaps &in;
        const AttGradRows<E> &rows;
        const float *lse, *delta;
        int B, T, first, step;
        EpilogueK &epilogue_k;
        EpilogueV &epilogue_v;

        /* Range of steps of queries that meet keys [s, s + n) of sequence b. */
        __device__ __forceinline__ int lo(int s) const { return Att::CAUSAL ? s / Tile::BN : 0; }
        __device__ __forceinline__ int hi(int b, int s, int n) const
        {
                const int t = s + n - 1 + Att::WINDOW;
                const int steps = ((Att::WINDOW > 0 && t < T ? t : T) + Tile::BN - 1) / Tile::BN;
                const int own = Att::DOCUMENTS ? (end(b, s + n - 1) + Tile::BN - 1) / Tile::BN
                                               : steps;
                return own < steps ? own : steps;
        }
        __device__ __forceinline__ int end(int b, int t) const
        {
                return att_end(in.documents + (long)b * T * 2, t, T);
        }
        __device__ __forceinline__ bool get(int i, AttJob &j) const
        {
                int bh, n;
                if (!att_job(i, first, step, B * Att::K, (T + Tile::BM - 1) / Tile::BM, false, bh,
                             n))
                        return false;
                j = { bh / Att::K, bh % Att::K, n * Tile::BM, lo(n * Tile::BM),
                      hi(bh / Att::K, n * Tile::BM, Tile::BM) };
                return true;
        }

        /* One thread. */
        __device__ __forceinline__ void load(char *smem) const
        {
                Pipeline<Tile> pipe(smem + Tile::RING);
                AttJob j;
                for (int i = 0; get(i, j); i++) {
                        att_load_own_sm90<Tile>(smem, i, in.k, in.v, j, T);
                        for (int h = j.h * GROUP; h < j.h * GROUP + GROUP; h++)
                                for (int m = j.lo; m < j.hi; m++)
                                        att_load_step_sm90(pipe, in.q, in.g, h, j.b * T, m);
                }
        }

        /* Called by the consumer warpgroups while the panels are in flight. */
        __device__ __forceinline__ void make_deltas(char *smem) const
        {
                constexpr int LANES = D / 8;
                const int lane = threadIdx.x % LANES;
                float *to = (float *)(smem + Tile::SMEM);
                AttJob j;
                get(0, j);
                const E *o = rows.o + j.b * rows.so.b + j.h * rows.so.h + lane * 8;
                const E *g = rows.g + j.b * rows.sg.b + j.h * rows.sg.h + lane * 8;
#pragma unroll 4
                for (int r = ((int)threadIdx.x - 128) / LANES; r < (j.hi - j.lo) * 64;
                     r += 256 / LANES) {
                        const int t = j.lo * 64 + r < T ? j.lo * 64 + r : T - 1;
                        float u[8], w[8], sum = 0.f;
                        ::load(u, o + t * rows.so.t);
                        ::load(w, g + t * rows.sg.t);
#pragma unroll
                        for (int d = 0; d < 8; d++)
                                sum = fmaf(u[d], w[d], sum);
                        sum = lanes_sum<LANES>(sum);
                        if (lane == 0)
                                to[r] = sum;
                }
                bar_arrive(1, 256 + 32);
        }

        /* One warp: lse (in powers of two) and delta.  Queries behind T get lse = inf, so that P =
         * 0. */
        __device__ __forceinline__ void load_rows(char *smem) const
        {
                Pipeline<Tile> pipe(smem + Tile::RING);
                const int lane = threadIdx.x & 31;
                AttJob j;
                if (OWN)
                        bar_sync(1, 256 + 32);
                for (int i = 0; get(i, j); i++)
                        for (int h = j.h * GROUP; h < j.h * GROUP + GROUP; h++)
                                for (int m = j.lo; m < j.hi; m++) {
                                        const float *own = (const float *)(smem + Tile::SMEM) +
                                                           (m - j.lo) * 64;
                                        const long at = ((long)j.b * Att::H + h) * T + m * 64;
                                        float *to = (float *)(smem + Tile::ROWS) + pipe.stage * 128,
                                              l[2], d[2];
#pragma unroll
                                        for (int u = 0; u < 2; u++) {
                                                const bool ok = m * 64 + u * 32 + lane < T;
                                                l[u] = ok ? lse[at + u * 32 + lane] * ATT_LOG2E
                                                          : INFINITY;
                                                d[u] = !ok   ? 0.f
                                                       : OWN ? own[u * 32 + lane]
                                                             : delta[at + u * 32 + lane];
                                        }
                                        pipe.wait_empty();
#pragma unroll
                                        for (int u = 0; u < 2; u++) {
                                                to[att_column_sm90(u * 32 + lane)] = l[u];
                                                to[64 + att_column_sm90(u * 32 + lane)] = d[u];
                                        }
                                        __syncwarp();
                                        if (lane == 0)
                                                mbarrier_arrive(pipe.full(pipe.stage));
                                        pipe.next();
                                }
        }
        __device__ __forceinline__ int loaders() const { return 2; }

        /* State of one consumer warpgroup. */
        struct State : AttPlaceSm90<Tile> {
                int m, lo, hi, gap; /* step and its range; steps of others between two heads */
                unsigned k, v;      /* descriptors of own rows */
                const float *rows;
                int w0; /* first own row */
                AttOwn<Tile> own_k, own_v;

                __device__ __forceinline__ State(char *smem)
                    : AttPlaceSm90<Tile>(smem), rows((const float *)(smem + Tile::ROWS))
                {
                }
                __device__ __forceinline__ void move_on()
                {
                        if (++m == hi) {
                                m = lo;
                                if (Att::DOCUMENTS &&
                                    GROUP > 1) /* whole documents are skipped, not a step or two */
                                        this->give_back_now();
                                this->skip(gap);
                        }
                        this->enter();
                }
                /* dS is used by this warpgroup alone */
                __device__ __forceinline__ void put(const unsigned (&)[4][4]) {}
        };

        /* Probabilities from scores; FULL: all pairs attend.  Here and below accumulators are only
         * read: a write while wgmmas are in flight would make the compiler serialise them. */
        template <bool FULL>
        static __device__ __forceinline__ void exps(float (&e)[32], const float (&x)[32],
                                                    const float *rows, int gap,
                                                    const int (&reach)[2])
        {
#pragma unroll
                for (int c = 0; c < 4; c++) {
                        float l[4];
                        ::load(l, rows + c * 16);
#pragma unroll
                        for (int i = 0; i < 8; i++) {
                                const int j = c * 8 + i;
                                e[j] = fast_exp2(x[j] * BASE2 - l[i / 4 * 2 + (i & 1)]);
                                if (!FULL && !att_attends_sm90<Att, true>(j, gap, 0, reach))
                                        e[j] = 0.f;
                        }
                }
        }

        /* own_empty: signalled in the last step, when the own rows are no longer needed.  S: State
         * or a struct like it. */
        template <bool NEXT, class S>
        static __device__ __forceinline__ void one_step(S &s, float (&x)[32], float (&y)[32],
                                                        float (&dk)[D / 2], float (&dv)[D / 2],
                                                        Mbar *own_empty)
        {
                const int lane = threadIdx.x & 31, t0 = s.m * 64, here = s.here;
                const float *rows = s.rows + here * 128 + (lane & 3) * 4;
                float e[32];
                unsigned p[4][4], ds[4][4];

                wgmma_wait<1>(); /* S(i), and dk(i-1) before it, are done */
                wgmma_hold(x);
                s.give_back(here);
                if ((Att::CAUSAL && t0 < s.w0 + 63) ||
                    (Att::WINDOW > 0 && t0 + 63 - s.w0 >= Att::WINDOW) ||
                    (Att::DOCUMENTS && t0 + 63 >= s.edge))
                        exps<false>(e, x, rows,
                                    t0 + (lane & 3) * 2 - s.w0 - (int)threadIdx.x / 32 % 4 * 16 -
                                            (lane >> 2),
                                    s.reach);
                else
                        exps<true>(e, x, rows, 0, s.reach);
                att_pack<E>(p, e);
                wgmma_fence();
                att_add_sm90<Tile>(dv, p, s.at(here, 1), E());
                wgmma_commit();
                wgmma_wait<1>(); /* Y(i) is done */
                wgmma_hold(y);
                if (!NEXT)
                        s.arrive(own_empty);
#pragma unroll
                for (int c = 0; c < 4; c++) {
                        float d[4];
                        ::load(d, rows + 64 + c * 16);
#pragma unroll
                        for (int i = 0; i < 8; i++)
                                e[c * 8 + i] *= y[c * 8 + i] - d[i / 4 * 2 + (i & 1)];
                }
                att_pack<E>(ds, e);
                wgmma_fence();
                att_add_sm90<Tile>(dk, ds, s.at(here, 0), E());
                wgmma_commit();
                if (NEXT) {
                        float to_x[32], to_y[32];
                        s.move_on();
                        wgmma_wait<1>(); /* dv(i) is done: its operand's registers are free */
                        wgmma_fence();
                        s.own_k.product(to_x, s.k, s.at(s.here, 0), E());
                        wgmma_commit();
                        wgmma_move(x, to_x);
                        s.own_v.product(to_y, s.v, s.at(s.here, 1), E());
                        wgmma_commit();
                        wgmma_move(y, to_y);
                }
                s.put(ds);
        }

        __device__ __forceinline__ void reaches(State &s, int b, int key) const
        {
                const int first = end(b, key);
                s.reach[0] = first - key;
                s.reach[1] = end(b, key + 8) - key - 8;
                s.edge = __shfl_sync(0xffffffffu, first, 0);
        }

        __device__ __forceinline__ void multiply(char *smem) const
        {
                const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0),
                          warp = threadIdx.x / 32 % 4;
                State s(smem);
                AttJob j;
                if (OWN)
                        make_deltas(smem);
                for (int i = 0; get(i, j); i++) {
                        float x[32], y[32], dk[D / 2], dv[D / 2];
                        s.w0 = j.row + group * 64;
                        s.lo = lo(s.w0);
                        s.hi = hi(j.b, s.w0, 64);
                        s.hi = s.hi < j.hi ? s.hi : j.hi;
                        if (Att::DOCUMENTS)
                                reaches(s, j.b, s.w0 + warp * 16 + (threadIdx.x & 31) / 4);
                        s.gap = j.hi - j.lo - (s.hi - s.lo);
                        s.m = s.lo;
                        s.before = -1;
                        s.k = (unsigned)Tile::Own::wide(Tile::own(smem, i)) +
                              group * Tile::Own::WIDE_64;
                        s.v = s.k + Tile::Own::BYTES / 16;
                        const int n = (s.hi - s.lo) * GROUP;
                        pipeline_wait(Tile::full(smem, i), Tile::round(i));
                        if (n <= 0) { /* none of the rows exists */
                                s.arrive(Tile::empty(smem, i));
                                s.skip((j.hi - j.lo) * GROUP);
                                continue;
                        }
                        s.own_k.init(Tile::own(smem, i), group * 64 + warp * 16);
                        s.own_v.init(Tile::own(smem, i) + Tile::Own::BYTES, group * 64 + warp * 16);
#pragma unroll
                        for (int c = 0; c < D / 2; c++)
                                dk[c] = dv[c] = 0.f; /* not att_fill, which compiles to other
                                                      * code */
                        wgmma_hold(dk);              /* zeroed here, not between wgmmas */
                        wgmma_hold(dv);
                        s.skip(s.lo - j.lo);
                        s.enter();
                        wgmma_fence();
                        s.own_k.product(x, s.k, s.at(s.here, 0), E());
                        wgmma_commit();
                        s.own_v.product(y, s.v, s.at(s.here, 1), E());
                        wgmma_commit();
#pragma unroll 1
                        for (int left = n; left > 1; left--)
                                one_step<true>(s, x, y, dk, dv, 0);
                        one_step<false>(s, x, y, dk, dv, Tile::empty(smem, i));
                        wgmma_wait<0>();
                        wgmma_hold(dk);
                        wgmma_hold(dv);
                        s.arrive(s.pipe.empty(s.here));
                        s.skip(j.hi - s.hi);
                        const int row = j.b * T + s.w0 + warp * 16, end = j.b * T + T;
                        att_put_sm90<D>(dk, Att::SCALE, row, end, j.h, epilogue_k);
                        att_put_sm90<D>(dv, 1.f, row, end, j.h, epilogue_v);
                }
        }
};

template <class E, class Att, class Tile, class EpilogueK, class EpilogueV>
TGC_DEV void attention_dkv_tma(const AttGradMaps &in, const float *lse, const float *delta, int B,
                               int T, int first, int step, char *smem, EpilogueK epilogue_k,
                               EpilogueV epilogue_v)
{
        static_assert(att_grad_sm90_serves<E, Att>() && Tile::D == Att::D,
                      "what the Hopper form computes");
        const AttGradRows<E> rows = {};
        const AttDkvSm90<E, Att, Tile, false, EpilogueK, EpilogueV> work = {
                in, rows, lse, delta, B, T, first, step, epilogue_k, epilogue_v
        };
        att_grad_sm90_run<Tile>(work, smem);
}

#endif
#endif
