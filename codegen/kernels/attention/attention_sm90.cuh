/* attention_sm90.cuh: forward attention on Hopper (sm_90a), bf16 and f16, heads of 64 or 128
 * (after FlashAttention-3, Shah et al., 2024).
 *
 *      attention_sm90_persistent<E, Att, Tile>(q, k, v, in, lse, B, T, rt, first, step, smem,
 *              epilogue)
 *              Block `first` of `step` computes query blocks first, first + step, ...
 *              (attention_work_sm90.cuh).  q, k, v: tensor maps (attention_panel_sm90.cuh).  in: as
 *              attention_task's; of its q, k, v only the cache's strides are used.  No MASK, no
 *              DROPOUT; DOCUMENTS only if CAUSAL.
 *
 * Roles: warpgroup 0 loads (one thread for keys and values, one for queries); warpgroups 1 ..
 * GROUPS compute.  A computing warpgroup owns 64 queries: their scores, probabilities and output
 * stay in its registers.  Keys and values come in panels of BN tokens through a pipeline that all
 * groups read.
 *
 * Overlap: a group computes the softmax of panel j while the tensor cores compute P V of panel j -
 * 1, and groups are at different stages (ping-pong if TURNS).  This hides the exponentials, which
 * take as long as the GEMMs at D = 64, half as long at D = 128. */
#ifndef TGC_ATTENTION_SM90_CUH
#define TGC_ATTENTION_SM90_CUH

#include "attention_work_sm90.cuh"
#ifdef TGC_SM90A

/* The pipeline's panels in order of use: K0, K1, V0, K2, V1, ..., V(n-1).  Step j of n + 1 uses
 * K(j) if j < n, and V(j-1) if j > 0. */
template <class E, class Att, class Tile>
struct AttForwardSm90 {
        static constexpr int D = Att::D, BN = Tile::BN, GROUPS = Tile::GROUPS, NT = BN / 8;
        typedef AttPanel<64, D> Queries;
        typedef AttPanel<BN, D> Keys;
        typedef AttHead<E, Att> Head;
        typedef AttWork<E, Att, Tile> Work;
        /* the queries of a group start at different keys */
        static constexpr bool RAGGED = Att::WINDOW > 0 || Att::DOCUMENTS;
        static_assert(Att::D == Tile::D && !Att::MASK && Att::DROPOUT == 0.f, "kept portable");
        static_assert(!Att::DOCUMENTS || Att::CAUSAL, "no query looks for its document's end");

        /* Shared memory of queries: two panels per group (this block's and the next one's), then
         * two barriers each: landed, and read.  at = block % 2 * GROUPS + group. */
        static __device__ __forceinline__ char *queries(char *smem, int at)
        {
                return smem + at * Tile::Q;
        }
        static __device__ __forceinline__ char *pipeline_at(char *smem)
        {
                return smem + 2 * GROUPS * Tile::Q;
        }
        static __device__ __forceinline__ Mbar *landed(char *smem, int at)
        {
                return (Mbar *)(pipeline_at(smem) + Tile::STAGES * Tile::STAGE) + 2 * Tile::STAGES +
                       at;
        }
        static __device__ __forceinline__ Mbar *was_read(char *smem, int at)
        {
                return landed(smem, at) + 2 * GROUPS;
        }

        /* ---- producer: one thread of warp 0 loads keys and values, one of warp 1 queries ---- */

        static __device__ __forceinline__ void put(Pipeline<Tile> &pipe, const AttMap &m, int head,
                                                   int row)
        {
                Mbar *bar = pipe.full(pipe.stage);
                pipe.wait_empty();
                mbarrier_expect_tx(bar, Tile::STAGE);
                Keys::load(pipe.a(), m, head, row, bar);
                pipe.next();
        }
        static __device__ __forceinline__ void put_pages(Pipeline<Tile> &pipe, const AttMap &m,
                                                         int head, const int *page, int n)
        {
                Mbar *bar = pipe.full(pipe.stage);
                pipe.wait_empty();
                mbarrier_expect_tx(bar, Tile::STAGE);
                Keys::load_pages(pipe.a(), m, head, page, n, bar);
                pipe.next();
        }

        /* The producer of keys and values: for every query block K0, K1, V0, K2, V1, ...,
         * V(n-1). */
        static __device__ __forceinline__ void load_keys(const AttMap &k, const AttMap &v,
                                                         const Work &work, char *smem)
        {
                Pipeline<Tile> pipe(pipeline_at(smem));
                AttBlock w;
                for (int i = 0; work.get(i, w); i++) {
                        const int each = Att::CACHED ? (int)(work.in.sk.b / work.in.sk.t) : work.T;
                        const int hk = w.h / (Att::H / Att::K), row = w.b * each + w.n0 * BN;
                        if constexpr (Att::PAGE) {
                                constexpr int PAGES = BN / (Att::PAGE ? Att::PAGE : 1);
                                static_assert(!Att::PAGE || Att::PAGE == 64, "a box is a page");
                                const int *page = work.rt->pages[Att::POOL] +
                                                  (long)work.rt->slot[w.b] * work.rt->slot_pages +
                                                  w.n0 * PAGES;
                                const int have = (work.head(w).S + 63) / 64 - w.n0 * PAGES;
                                for (int j = 0; j <= w.n; j++) {
                                        if (j < w.n)
                                                put_pages(pipe, k, hk, page + j * PAGES,
                                                          have - j * PAGES);
                                        if (j > 0)
                                                put_pages(pipe, v, hk, page + (j - 1) * PAGES,
                                                          have - (j - 1) * PAGES);
                                }
                                continue;
                        }
                        for (int j = 0; j <= w.n; j++) {
                                if (j < w.n)
                                        put(pipe, k, hk, row + j * BN);
                                if (j > 0)
                                        put(pipe, v, hk, row + (j - 1) * BN);
                        }
                }
        }

        /* The producer of queries: one panel per group and query block, one block ahead. */
        static __device__ __forceinline__ void load_queries(const AttMap &q, const Work &work,
                                                            char *smem)
        {
                AttBlock w;
                for (int i = 0; work.get(i, w); i++)
                        for (int g = 0; g < GROUPS; g++) {
                                const int at = i % 2 * GROUPS + g;
                                pipeline_wait(was_read(smem, at), ~(i / 2) & 1);
                                mbarrier_expect_tx(landed(smem, at), Tile::Q);
                                Queries::load(queries(smem, at), q, w.h,
                                              (Att::RAGGED ? w.row0 : w.b * work.T) + w.m0 + g * 64,
                                              landed(smem, at));
                        }
        }

        /* ---- consumers: a warpgroup each ---- */

        /* This warp has read what `bar` guards. */
        static __device__ __forceinline__ void read(Mbar *bar)
        {
                if ((threadIdx.x & 31) == 0)
                        mbarrier_arrive(bar);
        }

        static __device__ __forceinline__ void skip(Pipeline<Tile> &pipe)
        {
                pipe.wait_full();
                read(pipe.empty(pipe.stage));
                pipe.next();
        }

        static __device__ __forceinline__ void pingpong_begin(int g)
        {
                if (Tile::TURNS)
                        bar_sync(1 + g, 256);
        }
        static __device__ __forceinline__ void pingpong_end(int g)
        {
                if (Tile::TURNS)
                        bar_arrive(1 + (g + 1) % GROUPS, 256);
        }

        static __device__ __forceinline__ void skip_step(Pipeline<Tile> &pipe, int g, int j, int n)
        {
                pingpong_begin(g);
                pingpong_end(g);
                if (j < n)
                        skip(pipe);
                if (j > 0)
                        skip(pipe);
        }

        static __device__ __forceinline__ void scores(float (&x)[BN / 2], unsigned long long q,
                                                      const char *panel)
        {
                const unsigned long long k = Keys::wide(panel);
#pragma unroll
                for (int ks = 0; ks < D / 16; ks++)
                        wgmma<0, 0>(x, q + Queries::wide_k(ks), k + Keys::wide_k(ks), ks > 0, E());
                wgmma_commit();
        }

        static __device__ __forceinline__ void values(float (&o)[D / 2],
                                                      const unsigned (&p)[BN / 16][4],
                                                      const Pipeline<Tile> &pipe)
        {
                const unsigned long long v = Keys::tall(pipe.a());
#pragma unroll
                for (int ks = 0; ks < BN / 16; ks++)
                        wgmma<1>(o, p[ks], v + Keys::tall_k(ks), 1, E());
                wgmma_commit();
        }

        /* Zeroes the rows of a value panel from row `from` on; called by all threads of group g. */
        static __device__ __forceinline__ void clear(char *panel, int from, int g)
        {
                for (int i = threadIdx.x & 127; i < (BN - from) * (D / 8); i += 128) {
                        const int row = from + i / (D / 8), c = i % (D / 8);
                        *(uint4 *)(panel + c / 8 * (BN * 128) + row * 128 +
                                   c % 8 * 16) = make_uint4(0, 0, 0, 0);
                }
                fence_proxy_async();
                bar_sync(8 + g, 128);
        }

        /* Begins of the documents of this lane's two queries, and of the warp's last query. */
        struct Begins {
                int own[2], last;

                __device__ __forceinline__ Begins(const Head &hd, int row) : own(), last(0)
                {
                        if (!Att::DOCUMENTS)
                                return;
#pragma unroll
                        for (int i = 0; i < 2; i++)
                                own[i] = hd.begin(row + i * 8 < 0 ? 0 : row + i * 8);
                        last = __shfl_sync(0xffffffffu, own[1], 31);
                }
        };

        /* Turns q.k into scores; -inf where a query does not attend.  Element 4n + i of x: query
         * row + i/2*8, key n0 + 8n + 2(lane%4) + i%2. */
        static __device__ __forceinline__ void mask(float (&x)[BN / 2], const Head &hd,
                                                    const Begins &begins, int row, int n0)
        {
                const int w0 = row & ~15, s0 = n0 + (threadIdx.x & 3) * 2;
                if (hd.SHAPED)
#pragma unroll
                        for (int e = 0; e < BN / 2; e++) {
                                float d;
                                x[e] = hd.score(x[e], row + (e >> 1 & 1) * 8,
                                                s0 + e / 4 * 8 + (e & 1), d);
                        }
                if (hd.one_full(w0, w0 + 16, n0, n0 + BN) && (!Att::DOCUMENTS || n0 >= begins.last))
                        return;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const int from = hd.first_key(row + i * 8, begins.own[i]) - s0;
                        const int to = (Att::COUNTED && row + i * 8 >= hd.T
                                                ? 0
                                                : hd.end_key(row + i * 8 + 1)) -
                                       s0;
#pragma unroll
                        for (int n = 0; n < NT; n++)
#pragma unroll
                                for (int c = 0; c < 2; c++) {
                                        const int s = n * 8 + c;
                                        if (s >= to || (RAGGED && s < from))
                                                x[n * 4 + i * 2 + c] = -INFINITY;
                                }
                }
        }

        /* The exponent subtracted from a row's scores; 0 for a row without keys so far (top =
         * -inf). */
        static __device__ __forceinline__ float zero(float top)
        {
                return top == -INFINITY ? 0.f : top;
        }

        /* Raises top (in powers of two) if some row of the warp exceeds it by 2^8 (see
         * AttForwardMma::softmax).  True: the caller multiplies its sums by scale.  RAGGED: only
         * rows that exceed it and ask are raised. */
        static __device__ __forceinline__ bool raise(const float (&x)[BN / 2], float (&top)[2],
                                                     float (&scale)[2], const bool (&asks)[2])
        {
                const float most[2] = { att_row_max(x, 0), att_row_max(x, 1) };
                const bool any = most[0] * Head::BASE2 > top[0] + 8.f ||
                                 most[1] * Head::BASE2 > top[1] + 8.f;
                if (!__any_sync(0xffffffffu, any))
                        return false;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        float to = fmaxf(top[i], quad_max(most[i]) * Head::BASE2);
                        if (Att::RAGGED && !(asks[i] && to > top[i] + 8.f))
                                to = top[i];
                        scale[i] = fast_exp2(top[i] - zero(to));
                        top[i] = to;
                }
                return true;
        }

        /* x becomes probabilities relative to top; sum: this lane's sums. */
        static __device__ __forceinline__ void exponents(float (&x)[BN / 2], const float (&top)[2],
                                                         float (&sum)[2])
        {
                sum[0] = att_row_exp(x, 0, Head::BASE2, zero(top[0]));
                sum[1] = att_row_exp(x, 1, Head::BASE2, zero(top[1]));
        }

        /* The usual check, the maximum before the exponentials, takes a fifth of a step.  Instead
         * the lane's sums tell afterwards: a sum above 4096 means that some probability exceeded
         * 2^7.  That is rare; then the panel, still in shared memory, is multiplied again and top
         * raised. */
        static __device__ __forceinline__ bool too_large(const float (&top)[2],
                                                         const float (&part)[2])
        {
                return !(part[0] <= 4096.f && part[1] <= 4096.f) ||
                       (RAGGED && (top[0] == -INFINITY || top[1] == -INFINITY));
        }

        /* RAGGED: per row, equal in a quad: is it too_large? */
        static __device__ __forceinline__ void ask(const float (&top)[2], const float (&part)[2],
                                                   bool (&asks)[2])
        {
                if constexpr (Att::RAGGED) {
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                                const float own[2] = { top[i], top[i] }, of[2] = { part[i], 0.f };
                                asks[i] = quad_max(too_large(own, of) ? 1.f : 0.f) > 0.f;
                        }
                }
        }

        /* What a lane keeps of its queries, rows `row` and row + 8: scores or probabilities of a
         * panel, P as wgmma takes it, the softmax's state. */
        struct Rows {
                float acc[1][D / 8][4], x[BN / 2], top[2], sum[2], scale[2];
                unsigned p[BN / 16][4];
                bool asks[2];

                __device__ __forceinline__ Rows()
                    : top { -INFINITY, -INFINITY }, sum { 0.f, 0.f }, asks { true, true }
                {
                        att_fill(acc, 0.f);
                }
                __device__ __forceinline__ float (&o())[D / 2]
                {
                        return reinterpret_cast<float(&)[D / 2]>(acc);
                }
        };

        /* A group's queries, of one block. */
        struct Group {
                const AttBlock &w;
                const Head &hd;
                const Begins &begins;
                unsigned long long q;
                int g, row;
                int a, b; /* steps [a, b) have keys for these queries */
        };

        /* Probabilities of panel j, whose scores x are.  The first panel sets top; a later one
         * seldom raises it, and then its scores are computed again.  part: this lane's sums.
         * Returns true if sums so far must be multiplied by scale. */
        static __device__ __forceinline__ bool softmax(const Group &t, Rows &r, const char *panel,
                                                       int j, float (&part)[2], bool &here,
                                                       const Pipeline<Tile> &pipe)
        {
                const int n0 = (t.w.n0 + j) * BN;
                mask(r.x, t.hd, t.begins, t.row, n0);
                exponents(r.x, r.top, part);
                here = pipe.is_full();
                if (!bar_any(8 + t.g, 128, too_large(r.top, part)))
                        return false;
                ask(r.top, part, r.asks);
                wgmma_fence();
                scores(r.x, t.q, panel);
                wgmma_wait<0>();
                wgmma_hold(r.x);
                wgmma_hold(r.o());
                mask(r.x, t.hd, t.begins, t.row, n0);
                const bool raised = raise(r.x, r.top, r.scale, r.asks);
                exponents(r.x, r.top, part);
                return raised;
        }

        /* Step j: issues S(j) = q K(j) if SCORES, o += P(j-1) V(j-1) if VALUES; the softmax of S(j)
         * overlaps with the latter.  The first step has no P yet, the last no K. */
        template <bool SCORES, bool VALUES>
        static __device__ __forceinline__ void step(Pipeline<Tile> &pipe, const Group &t, Rows &r,
                                                    int j)
        {
                pingpong_begin(t.g);
                if (!SCORES && t.b < t.w.n)
                        skip(pipe);
                const int at = pipe.stage;
                const char *const panel = pipe.a();
                if constexpr (SCORES) {
                        if (!VALUES)
                                pipe.wait_full(); /* else the step before waited */
                        wgmma_fence();
                        scores(r.x, t.q, panel);
                        if (!VALUES)
                                pingpong_end(t.g);
                        pipe.next();
                        if (!VALUES && t.a > 0)
                                skip(pipe);
                }
                const int at_v = pipe.stage;
                if constexpr (VALUES) {
                        pipe.wait_full();
                        if (!SCORES && Att::COUNTED && (t.w.n0 + j) * BN > t.hd.S)
                                clear(pipe.a(), t.hd.S - (t.w.n0 + j - 1) * BN, t.g);
                        wgmma_fence();
                        values(r.o(), r.p, pipe);
                        if (SCORES)
                                pipe.next();
                        pingpong_end(t.g);
                        if (!SCORES)
                                pipe.next();
                }
                bool raised = false, here = false;
                if constexpr (SCORES) {
                        wgmma_wait<VALUES>();
                        wgmma_hold(r.x);
                        if constexpr (VALUES) {
                                float part[2];
                                raised = softmax(t, r, panel, j, part, here, pipe);
                                read(pipe.empty(at));
                                if (raised)
                                        r.sum[0] *= r.scale[0], r.sum[1] *= r.scale[1];
                                r.sum[0] += part[0], r.sum[1] += part[1];
                                if (!here)
                                        pipe.wait_full();
                        } else {
                                read(pipe.empty(at));
                                mask(r.x, t.hd, t.begins, t.row, (t.w.n0 + j) * BN);
                                raise(r.x, r.top, r.scale, r.asks);
                                exponents(r.x, r.top, r.sum);
                        }
                }
                if constexpr (VALUES) {
                        wgmma_wait<0>();
                        wgmma_hold(r.o());
                        read(pipe.empty(at_v));
                        if (raised)
                                att_scale_rows(r.o(), r.scale);
                }
                if constexpr (SCORES)
                        att_pack<E>(r.p, r.x);
                if constexpr (SCORES && !VALUES)
                        pipe.wait_full();
        }

        template <class Epilogue>
        static __device__ __forceinline__ void compute(const Work &work, float *lse, char *smem,
                                                       const Epilogue &epilogue)
        {
                const int warp = (int)threadIdx.x / 32 % 4, lane = threadIdx.x & 31;
                const int g = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0);
                const unsigned long long q0 = Queries::wide(queries(smem, g));
                Pipeline<Tile> pipe(pipeline_at(smem));
                AttBlock w;

                /* ping-pong: group 0 gets the first turn */
                if (Tile::TURNS && g == GROUPS - 1)
                        bar_arrive(1, 256);
                for (int i = 0; work.get(i, w); i++) {
                        const Head hd = work.head(w);
                        const int t0 = w.m0 + g * 64, w0 = t0 + warp * 16, row = w0 + lane / 4;
                        const Begins begins(hd, row);
                        const int a = t0 < 0 ? 0 : hd.first_key(t0) / BN - w.n0;
                        const int b = t0 < 0 ? 0 : (hd.end_key(t0 + 64) + BN - 1) / BN - w.n0;
                        Rows r;
                        const unsigned long long q = q0 +
                                                     (unsigned long long)(i % 2 *
                                                                          (GROUPS * Tile::Q / 16));
                        const Group t = { w, hd, begins, q, g, row, a, b };
                        Mbar *const done = was_read(smem, i % 2 * GROUPS + g);
                        pipeline_wait(landed(smem, i % 2 * GROUPS + g), i / 2 & 1);
                        int j = 0;
                        /* panels before this group's first keys */
                        for (; j < a; j++)
                                skip_step(pipe, g, j, w.n);
                        if (a < b) {
                                step<true, false>(pipe, t, r, a);
                                for (j = a + 1; j < b; j++)
                                        step<true, true>(pipe, t, r, j);
                                read(done);
                                step<false, true>(pipe, t, r, b);
                                j = b + 1;
                        } else {
                                read(done);
                        }
                        /* panels behind this group's last keys */
                        for (; j <= w.n; j++)
                                skip_step(pipe, g, j, w.n);
                        if (t0 >= 0)
                                finish(r.acc, r.top, r.sum, hd, lse, w, w0, work.T, epilogue);
                }
                if (Tile::TURNS && g == 0)
                        bar_sync(1, 256);
        }

        struct WarpRows {
                static constexpr int WM = 16, WN = D;
        };

        /* Divides o by the sums; stores lse and o. */
        template <class Epilogue>
        static __device__ __forceinline__ void finish(float (&acc)[1][D / 8][4],
                                                      const float (&top)[2], const float (&sum)[2],
                                                      const Head &hd, float *lse, const AttBlock &w,
                                                      int w0, int T, const Epilogue &epilogue)
        {
                const int lane = threadIdx.x & 31;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const float s = quad_sum(sum[i]), inv = s > 0.f ? fast_rcp(s) : 0.f;
                        const int t = w0 + lane / 4 + i * 8;
                        if (lse && lane % 4 == 0 && t < hd.T)
                                lse[(Att::RAGGED ? (long)w.h * T + w.row0 : (long)hd.bh * T) + t] =
                                        s > 0.f ? (top[i] + fast_log2(s)) * ATT_LN2 : -INFINITY;
                        att_scale_row(att_flat(acc[0]), i, inv);
                }
                mma_epilogue<WarpRows>(acc, hd.row0 + w0, w.h * D, hd.row0 + hd.T, Att::H * D,
                                       epilogue);
        }
};

template <class E, class Att, class Tile, class Epilogue>
TGC_DEV void attention_sm90_persistent(const AttMap &q, const AttMap &k, const AttMap &v,
                                       const AttIn<E, Att> &in, float *lse, int B, int T,
                                       const Rt *rt, int first, int step, char *smem,
                                       const Epilogue &epilogue)
{
        typedef AttForwardSm90<E, Att, Tile> F;
        const AttWork<E, Att, Tile> work = { in, rt, B, T, first, step };
        const Pipeline<Tile> pipe(F::pipeline_at(smem));
        if (threadIdx.x == 0) {
                for (int s = 0; s < Tile::STAGES; s++) {
                        mbarrier_init(pipe.full(s), 1);
                        mbarrier_init(pipe.empty(s), 4 * Tile::GROUPS);
                }
                for (int at = 0; at < 2 * Tile::GROUPS; at++) {
                        mbarrier_init(F::landed(smem, at), 1);
                        mbarrier_init(F::was_read(smem, at), 4);
                }
                fence_barrier_init();
                fence_proxy_async();
        }
        __syncthreads();
        if (threadIdx.x < 128) {
                setmaxnreg_dec<Tile::FEW>();
                if (threadIdx.x == 0)
                        F::load_keys(k, v, work, smem);
                else if (threadIdx.x == 32)
                        F::load_queries(q, work, smem);
                __syncwarp();
        } else {
                setmaxnreg_inc<Tile::MANY>();
                F::compute(work, lse, smem, epilogue);
        }
        __syncthreads();
        if (threadIdx.x == 0)
                for (int s = 0; s < 2 * Tile::STAGES + 4 * Tile::GROUPS; s++)
                        mbarrier_inval(pipe.full(0) + s);
        __syncthreads();
}

#endif
#endif
