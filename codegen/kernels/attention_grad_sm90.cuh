/* attention_grad_sm90.cuh: attention_grad.cuh's kernels on Hopper (sm_90a), bf16 and f16, heads of
 * 64 or 128, scores without soft cap, alibi, mask and dropout; documents only if causal.
 *
 *   attention_dq_tma<E, Att, Tile>(in, o, so, lse, delta, B, T, first, step, smem, tail)     writes delta, too
 *   attention_dkv_tma<E, Att, Tile>(in, lse, delta, B, T, first, step, smem, tail_k, tail_v)
 *      block `first` of `step`, which takes job after job.  in: AttGradMaps; o, so: the output and its strides,
 *      16-byte aligned rows.
 *   attention_both_tma<E, Att, Tile>(in, rows, lse, delta, B, T, tile, smem, tail, tail_k, tail_v)
 *      the two side by side, where neither fills the GPU: a block for each job; those of keys make the deltas that they
 *      need for themselves.  rows: o and its gradient.  H = K; shared memory: att_both90_smem.  (Of both kinds in one
 *      kernel ptxas waits for each product, C7515, which costs short jobs less than a launch.)
 *
 * A job is 128 own rows of one head (keys and values of a kv head, or queries and gradients of the output),
 * which stay, and all rows that they meet, 64 at a step, which stream through a ring.  Warpgroup 0 loads; 1 and 2
 * have 64 own rows each, and nothing to tell each other:
 *
 *      dq    S = q k^T   Y = g v^T   P = 2^(S - lse)   dS = P (Y - delta)   dq += dS k
 *      dkv   S = k q^T   Y = v g^T   the same                               dv += P g   dk += dS q
 *
 * Scores of dkv are transposed, so that in both P and dS become A operands where they were computed, in
 * registers.  Products are begun in this order, and are waited for only when their results or the registers of
 * their operands are needed, so that they run under the exponentials and under each other:
 *
 *      dq    P(i)  S(i+1)  dS(i)  Y(i+1)  dq(i)
 *      dkv   P(i)  dv(i)  dS(i)  dk(i)  S(i+1)  Y(i+1)
 *
 * dq begins S(i+1) once P(i) has been read out of S's registers; in dkv two sums leave none to do so, and while a
 * warpgroup computes dS the other one's products fill the tensor cores.
 *
 * All sums are one thread's own, in order of the rows. */
#ifndef TGC_ATTENTION_GRAD_SM90_CUH
#define TGC_ATTENTION_GRAD_SM90_CUH

#include "attention_grad.cuh"
#include "attention_sm90.cuh"
#ifdef TGC_SM90A

/* ring_wait.  The way out that is never taken: without it ptxas (13.0) wants every product to be waited for at
 * once ("wgmma.mma_async instructions are serialized", C7514). */
TGC_DEV void att_wait90(Mbar *bar, unsigned parity)
{
#ifdef TGC_BOUNDED
        ring_wait(bar, parity);
#else
        for (int tries = 0; !mbarrier_try_wait(bar, parity); tries++)
                if (tries == 1 << 30)
                        __trap();
#endif
}

struct AttGradMaps {
        AttMap q, k, v, g;
        const int *documents;                   /* as AttIn's */
};

template <class E>
struct AttGradRows {
        const E *o;
        Strides so;
        const E *g;
        Strides sg;
};

/* OWNS: jobs whose own rows are in shared memory; with 2 the next one's come while one is computed.  KEEP: both own
 * operands are held in registers, so that products read only the step from shared memory. */
template <int D_, int STAGES_, int OWNS_, bool KEEP_>
struct AttGradTile90 {
        static constexpr int D = D_, BM = 128, BN = 64, STAGES = STAGES_, OWNS = OWNS_, THREADS = 384;
        static constexpr bool KEEP = KEEP_;
        typedef AttPanel<BM, D> Own;
        typedef AttPanel<BN, D> Step;
        /* Shared memory: own rows of both kinds; the ring and its barriers; barriers full and empty of the own
         * rows; lse and delta of each stage. */
        static constexpr int STAGE = 2 * Step::BYTES, OWN = 2 * Own::BYTES, RING = OWNS * OWN;
        static constexpr int OWN_BAR = RING + STAGES * (STAGE + 16), ROWS = OWN_BAR + OWNS * 16;
        static constexpr int SMEM = ROWS + STAGES * BN * 8;
        /* From a step's descriptor as an operand whose k is D to that whose k are the rows: another lbo. */
        static constexpr unsigned TALL = (BN * 128 - 16) >> 4 << 16;
        static_assert(D == 64 || D == 128, "whole boxes");

        /* Of job i: its own rows, their barriers, and how often those went round before. */
        static __device__ __forceinline__ char *own(char *smem, int i) { return smem + i % OWNS * OWN; }
        static __device__ __forceinline__ Mbar *full(char *smem, int i) { return (Mbar *)(smem + OWN_BAR) + i % OWNS; }
        static __device__ __forceinline__ Mbar *empty(char *smem, int i) { return full(smem, i) + OWNS; }
        static __device__ __forceinline__ unsigned round(int i) { return i / OWNS & 1; }
};

/* ---- jobs ------------------------------------------------------------------- */

/* Job i of a block: head of the batch, row block.  Causal jobs differ in length.  Many jobs: a long and a short
 * one of the same head follow each other, and neighbouring blocks share heads, which stay in L2.
 * Few: the longest of all heads first, dealt to the blocks forth and back.  false: there is none. */
TGC_DEV bool att_job(int i, int first, int step, int heads, int blocks, bool last_first, int &bh, int &m)
{
        if (blocks % 2 == 0 && heads * (blocks / 2) >= 4 * step) {
                const int t = first + i / 2 * step, half = blocks / 2;
                bh = t / half;
                m = i & 1 ? blocks - 1 - t % half : t % half;
                return bh < heads;
        }
        const int t = i * step + (i & 1 ? step - 1 - first : first);
        bh = t % heads;
        m = last_first ? blocks - 1 - t / heads : t / heads;
        return t < heads * blocks;
}

/* The own rows [row, row + 128) of a job and the steps [lo, hi) that some of them meet. */
struct AttJob { int b, h, row, lo, hi; };

/* ---- registers ----------------------------------------------------------------- */

/* x (64,64) as A operand. */
template <class E>
TGC_DEV void att_pack90(unsigned (&p)[4][4], const float (&x)[32])
{
#pragma unroll
        for (int i = 0; i < 16; i++)
                p[i / 4][i % 4] = pack2<E>(x[2 * i], x[2 * i + 1]);
}

/* Descriptors differ in their lower words: all panels are swizzled alike, 8 rows are 1024 bytes. */
TGC_DEV unsigned long long att_desc90(unsigned low)
{
        return low | (unsigned long long)(1024 >> 4) << 32 | (unsigned long long)SWIZZLE_128 << 62;
}

/* 64 own rows (of them this warp's 16) as A operand, where they are kept; read at each use where not. */
template <class Tile>
struct AttOwn {
        unsigned f[Tile::KEEP ? Tile::D / 16 : 1][4];

        /* panel: of all own rows; row: this warp's first one. */
        __device__ __forceinline__ void init(const char *panel, int row)
        {
                const int lane = threadIdx.x & 31, r = row + (lane & 15);
                if constexpr (Tile::KEEP)
#pragma unroll
                        for (int ks = 0; ks < Tile::D / 16; ks++)
                                ldmatrix_x4(f[ks], panel + ks / 4 * (Tile::BM * 128) + r * 128
                                                   + ((ks % 4 * 2 + (lane >> 4)) ^ (r & 7)) * 16);
        }
        /* x = own rows times rows of the step, transposed. */
        template <class E>
        __device__ __forceinline__ void product(float (&x)[32], unsigned own_, unsigned step_, E tag) const
        {
                const unsigned long long own = att_desc90(own_), step = att_desc90(step_);
#pragma unroll
                for (int ks = 0; ks < Tile::D / 16; ks++)
                        if constexpr (Tile::KEEP)
                                wgmma<0>(x, f[ks], step + Tile::Step::wide_k(ks), ks > 0, tag);
                        else
                                wgmma<0, 0>(x, own + Tile::Own::wide_k(ks), step + Tile::Step::wide_k(ks), ks > 0, tag);
        }
};

/* acc (64,D) += p (64,64) times rows of the step. */
template <class Tile, class E>
TGC_DEV void att_add90(float (&acc)[Tile::D / 2], const unsigned (&p)[4][4], unsigned step_, E tag)
{
        const unsigned long long step = att_desc90(step_ + Tile::TALL);
#pragma unroll
        for (int ks = 0; ks < 4; ks++)
                wgmma<1>(acc, p[ks], step + Tile::Step::tall_k(ks), 1, tag);
}

/* Whether the pair of x[j] attends.  gap: query minus key at x[0]; along a row of x the query (ROW_QUERY) or the
 * key grows; of the latter those from `end` on, counted from x[0]'s, do not exist.  reach: of documents, how far query
 * and key may be apart, + 1, in either row. */
template <class Att, bool ROW_QUERY>
TGC_DEV bool att_attends90(int j, int gap, int end, const int (&reach)[2])
{
        const int along = j / 4 * 8 + (j & 1), down = (j >> 1 & 1) * 8;
        const int d = gap + (ROW_QUERY ? along - down : down - along);
        return (!Att::CAUSAL || d >= 0) && (Att::WINDOW == 0 || d < Att::WINDOW)
            && (!Att::DOCUMENTS || d < reach[j >> 1 & 1])
            && (Att::CAUSAL || ROW_QUERY || along < end);
}

/* Row of a step's column c of 64 in shared memory: what one lane reads lies together. */
TGC_DEV int att_column90(int c) { return c / 16 * 16 + c % 8 / 2 * 4 + c / 8 % 2 * 2 + c % 2; }

/* ---- a warpgroup's place in the ring --------------------------------------------- */

/* Here: the stage of this step; before: that of the one before it, not yet given back, or -1. */
template <class Tile>
struct AttPlace90 {
        Ring<Tile> ring;
        int here, before;
        unsigned step;                          /* descriptor of the ring's first panel */
        int reach[2], edge;                     /* documents: of this lane's own rows; up to where all of the warp's meet
                                                   all (keys: its first one's end, queries: its last one's begin) */

        __device__ __forceinline__ AttPlace90(char *smem)
                : ring(smem + Tile::RING), here(0), before(-1), step((unsigned)Tile::Step::wide(smem + Tile::RING)) {}

        __device__ __forceinline__ unsigned at(int stage, int panel) const
        {
                return step + stage * (Tile::STAGE / 16) + panel * (Tile::Step::BYTES / 16);
        }
        __device__ __forceinline__ void enter()
        {
                att_wait90(ring.full(ring.stage), ring.round);
                here = ring.stage;
                ring.next();
        }
        static __device__ __forceinline__ void arrive(Mbar *bar)
        {
                if ((threadIdx.x & 31) == 0)
                        mbarrier_arrive(bar);
        }
        /* All products of the step before have been waited for. */
        __device__ __forceinline__ void give_back(int now)
        {
                if (before >= 0)
                        arrive(ring.empty(before));
                before = now;
        }
        /* The same of this step, once they are done: before a wait for steps that may need its place. */
        __device__ __forceinline__ void give_back_now()
        {
                wgmma_wait<0>();
                give_back(-1);
        }
        /* Steps that the warpgroup's rows do not meet. */
        __device__ __forceinline__ void skip(int n)
        {
                for (; n > 0; n--) {
                        att_wait90(ring.full(ring.stage), ring.round);
                        arrive(ring.empty(ring.stage));
                        ring.next();
                }
        }
};

/* A warp's 16 rows of acc, scaled, to the tail: row0 + .. of the tokens, those below `end`; head h. */
template <int D>
struct AttShare90 { static constexpr int WM = 16, WN = D; };

template <int D, class Tail>
TGC_DEV void att_put90(float (&acc)[D / 2], float scale, int row0, int end, int h, const Tail &tail)
{
#pragma unroll
        for (int i = 0; i < D / 2; i++)
                acc[i] *= scale;
        mma_tail<AttShare90<D>, 2>(reinterpret_cast<const float (&)[1][D / 8][4]>(acc), row0, h * D, end, h * D + D,
                                   tail);
}

/* ---- dk, dv ----------------------------------------------------------------------- */

/* OWN: the block has one job, and makes its queries' deltas in the shared memory behind the tile's. */
template <class E, class Att, class Tile, bool OWN, class TailK, class TailV>
struct AttDkv90 {
        static constexpr int D = Tile::D, GROUP = Att::H / Att::K;
        static constexpr float BASE2 = Att::SCALE * ATT_LOG2E;
        static_assert(!OWN || GROUP == 1, "one head's queries");
        const AttGradMaps &in;
        const AttGradRows<E> &rows;
        const float *lse, *delta;
        int B, T, first, step;
        TailK &tail_k;
        TailV &tail_v;

        /* Queries that meet keys [s, s + n) of sequence b, in steps. */
        __device__ __forceinline__ int lo(int s) const { return Att::CAUSAL ? s / Tile::BN : 0; }
        __device__ __forceinline__ int hi(int b, int s, int n) const
        {
                const int t = s + n - 1 + Att::WINDOW;
                const int steps = ((Att::WINDOW > 0 && t < T ? t : T) + Tile::BN - 1) / Tile::BN;
                const int own = Att::DOCUMENTS ? (end(b, s + n - 1) + Tile::BN - 1) / Tile::BN : steps;
                return own < steps ? own : steps;
        }
        __device__ __forceinline__ int end(int b, int t) const { return att_end(in.documents + (long)b * T * 2, t, T); }
        __device__ __forceinline__ bool get(int i, AttJob &j) const
        {
                int bh, n;
                if (!att_job(i, first, step, B * Att::K, (T + Tile::BM - 1) / Tile::BM, false, bh, n))
                        return false;
                j = { bh / Att::K, bh % Att::K, n * Tile::BM, lo(n * Tile::BM),
                      hi(bh / Att::K, n * Tile::BM, Tile::BM) };
                return true;
        }

        /* One thread. */
        __device__ __forceinline__ void load(char *smem) const
        {
                Ring<Tile> ring(smem + Tile::RING);
                AttJob j;
                for (int i = 0; get(i, j); i++) {
                        Mbar *own = Tile::full(smem, i);
                        ring_wait(Tile::empty(smem, i), Tile::round(i) ^ 1);
                        mbarrier_expect_tx(own, Tile::OWN);
                        Tile::Own::load(Tile::own(smem, i), in.k, j.h, j.b * T + j.row, own);
                        Tile::Own::load(Tile::own(smem, i) + Tile::Own::BYTES, in.v, j.h, j.b * T + j.row, own);
                        for (int h = j.h * GROUP; h < j.h * GROUP + GROUP; h++)
                                for (int m = j.lo; m < j.hi; m++) {
                                        Mbar *full = ring.full(ring.stage);
                                        ring.wait_empty();
                                        mbarrier_expect_tx(full, Tile::STAGE);
                                        Tile::Step::load(ring.a(), in.q, h, j.b * T + m * 64, full);
                                        Tile::Step::load(ring.a() + Tile::Step::BYTES, in.g, h, j.b * T + m * 64, full);
                                        ring.next();
                                }
                }
        }

        /* By the warpgroups that compute, while the panels are on their way. */
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
                for (int r = ((int)threadIdx.x - 128) / LANES; r < (j.hi - j.lo) * 64; r += 256 / LANES) {
                        const int t = j.lo * 64 + r < T ? j.lo * 64 + r : T - 1;
                        float u[8], w[8], sum = 0.f;
                        ::load(u, o + t * rows.so.t);
                        ::load(w, g + t * rows.sg.t);
#pragma unroll
                        for (int d = 0; d < 8; d++)
                                sum = fmaf(u[d], w[d], sum);
#pragma unroll
                        for (int d = LANES / 2; d; d >>= 1)
                                sum += __shfl_xor_sync(0xffffffffu, sum, d);
                        if (lane == 0)
                                to[r] = sum;
                }
                bar_arrive(1, 256 + 32);
        }

        /* One warp: lse, in powers of two, and delta.  Queries that do not exist get lse = inf, so that P = 0. */
        __device__ __forceinline__ void load_rows(char *smem) const
        {
                Ring<Tile> ring(smem + Tile::RING);
                const int lane = threadIdx.x & 31;
                AttJob j;
                if (OWN)
                        bar_sync(1, 256 + 32);
                for (int i = 0; get(i, j); i++)
                        for (int h = j.h * GROUP; h < j.h * GROUP + GROUP; h++)
                                for (int m = j.lo; m < j.hi; m++) {
                                        const float *own = (const float *)(smem + Tile::SMEM) + (m - j.lo) * 64;
                                        const long at = ((long)j.b * Att::H + h) * T + m * 64;
                                        float *to = (float *)(smem + Tile::ROWS) + ring.stage * 128, l[2], d[2];
#pragma unroll
                                        for (int u = 0; u < 2; u++) {
                                                const bool ok = m * 64 + u * 32 + lane < T;
                                                l[u] = ok ? lse[at + u * 32 + lane] * ATT_LOG2E : INFINITY;
                                                d[u] = !ok ? 0.f : OWN ? own[u * 32 + lane] : delta[at + u * 32 + lane];
                                        }
                                        ring.wait_empty();
#pragma unroll
                                        for (int u = 0; u < 2; u++) {
                                                to[att_column90(u * 32 + lane)] = l[u];
                                                to[64 + att_column90(u * 32 + lane)] = d[u];
                                        }
                                        __syncwarp();
                                        if (lane == 0)
                                                mbarrier_arrive(ring.full(ring.stage));
                                        ring.next();
                                }
        }
        __device__ __forceinline__ int loaders() const { return 2; }

        /* Of one warpgroup. */
        struct State : AttPlace90<Tile> {
                int m, lo, hi, gap;                     /* step and its range; steps of others between two heads */
                unsigned k, v;                          /* descriptors of own rows */
                const float *rows;
                int w0;                                 /* first own row */
                AttOwn<Tile> own_k, own_v;

                __device__ __forceinline__ State(char *smem)
                        : AttPlace90<Tile>(smem), rows((const float *)(smem + Tile::ROWS)) {}
                __device__ __forceinline__ void move_on()
                {
                        if (++m == hi) {
                                m = lo;
                                if (Att::DOCUMENTS && GROUP > 1)        /* gaps as long as a document, not a step or two */
                                        this->give_back_now();
                                this->skip(gap);
                        }
                        this->enter();
                }
                __device__ __forceinline__ void put(const unsigned (&)[4][4]) {}        /* dS: nobody else wants it */
        };

        /* Probabilities from products; FULL: all pairs attend.  Accumulators are read and not written here and below: a
         * write between products that are under way would make the compiler wait for them all. */
        template <bool FULL>
        static __device__ __forceinline__ void exps(float (&e)[32], const float (&x)[32], const float *rows, int gap,
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
                                if (!FULL && !att_attends90<Att, true>(j, gap, 0, reach))
                                        e[j] = 0.f;
                        }
                }
        }

        /* own_empty: where the last step says that the own rows are not needed any more.  S: State, or as it. */
        template <bool NEXT, class S>
        static __device__ __forceinline__ void one_step(S &s, float (&x)[32], float (&y)[32], float (&dk)[D / 2],
                                                        float (&dv)[D / 2], Mbar *own_empty)
        {
                const int lane = threadIdx.x & 31, t0 = s.m * 64, here = s.here;
                const float *rows = s.rows + here * 128 + (lane & 3) * 4;
                float e[32];
                unsigned p[4][4], ds[4][4];

                wgmma_wait<1>();                        /* S(i), and dk(i-1) before it */
                wgmma_hold(x);
                s.give_back(here);
                if ((Att::CAUSAL && t0 < s.w0 + 63) || (Att::WINDOW > 0 && t0 + 63 - s.w0 >= Att::WINDOW)
                    || (Att::DOCUMENTS && t0 + 63 >= s.edge))
                        exps<false>(e, x, rows,
                                    t0 + (lane & 3) * 2 - s.w0 - (int)threadIdx.x / 32 % 4 * 16 - (lane >> 2), s.reach);
                else
                        exps<true>(e, x, rows, 0, s.reach);
                att_pack90<E>(p, e);
                wgmma_fence();
                att_add90<Tile>(dv, p, s.at(here, 1), E());
                wgmma_commit();
                wgmma_wait<1>();                        /* Y(i) */
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
                att_pack90<E>(ds, e);
                wgmma_fence();
                att_add90<Tile>(dk, ds, s.at(here, 0), E());
                wgmma_commit();
                if (NEXT) {
                        float to_x[32], to_y[32];
                        s.move_on();
                        wgmma_wait<1>();                /* dv(i): its operand's registers are free */
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
                const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0), warp = threadIdx.x / 32 % 4;
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
                        s.k = (unsigned)Tile::Own::wide(Tile::own(smem, i)) + group * Tile::Own::WIDE_64;
                        s.v = s.k + Tile::Own::BYTES / 16;
                        const int n = (s.hi - s.lo) * GROUP;
                        ring_wait(Tile::full(smem, i), Tile::round(i));
                        if (n <= 0) {                   /* none of the rows exists */
                                s.arrive(Tile::empty(smem, i));
                                s.skip((j.hi - j.lo) * GROUP);
                                continue;
                        }
                        s.own_k.init(Tile::own(smem, i), group * 64 + warp * 16);
                        s.own_v.init(Tile::own(smem, i) + Tile::Own::BYTES, group * 64 + warp * 16);
#pragma unroll
                        for (int c = 0; c < D / 2; c++)
                                dk[c] = dv[c] = 0.f;
                        wgmma_hold(dk);                 /* zeroed here, not between products */
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
                        s.arrive(s.ring.empty(s.here));
                        s.skip(j.hi - s.hi);
                        const int row = j.b * T + s.w0 + warp * 16, end = j.b * T + T;
                        att_put90<D>(dk, Att::SCALE, row, end, j.h, tail_k);
                        att_put90<D>(dv, 1.f, row, end, j.h, tail_v);
                }
        }
};

/* ---- dq ------------------------------------------------------------------------------ */

template <class E, class Att, class Tile, class Tail>
struct AttDq90 {
        static constexpr int D = Tile::D, GROUP = Att::H / Att::K;
        static constexpr float BASE2 = Att::SCALE * ATT_LOG2E;
        const AttGradMaps &in;
        const E *o;
        Strides so;
        const float *lse;
        float *delta;
        int B, T, first, step;
        Tail &tail;

        /* Keys that meet queries [t, t + n) of sequence b, in steps. */
        __device__ __forceinline__ int lo(int b, int t) const
        {
                const int steps = Att::WINDOW > 0 && t >= Att::WINDOW ? (t - Att::WINDOW + 1) / Tile::BN : 0;
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
                if (!att_job(i, first, step, B * Att::H, (T + Tile::BM - 1) / Tile::BM, Att::CAUSAL, bh, m))
                        return false;
                j = { bh / Att::H, bh % Att::H, m * Tile::BM, lo(bh / Att::H, m * Tile::BM),
                      hi(m * Tile::BM, Tile::BM) };
                return true;
        }

        __device__ __forceinline__ void load(char *smem) const
        {
                Ring<Tile> ring(smem + Tile::RING);
                AttJob j;
                for (int i = 0; get(i, j); i++) {
                        Mbar *own = Tile::full(smem, i);
                        ring_wait(Tile::empty(smem, i), Tile::round(i) ^ 1);
                        mbarrier_expect_tx(own, Tile::OWN);
                        Tile::Own::load(Tile::own(smem, i), in.q, j.h, j.b * T + j.row, own);
                        Tile::Own::load(Tile::own(smem, i) + Tile::Own::BYTES, in.g, j.h, j.b * T + j.row, own);
                        for (int m = j.lo; m < j.hi; m++) {
                                Mbar *full = ring.full(ring.stage);
                                ring.wait_empty();
                                mbarrier_expect_tx(full, Tile::STAGE);
                                Tile::Step::load(ring.a(), in.k, j.h / GROUP, j.b * T + m * 64, full);
                                Tile::Step::load(ring.a() + Tile::Step::BYTES, in.v, j.h / GROUP, j.b * T + m * 64,
                                                 full);
                                ring.next();
                        }
                }
        }
        __device__ __forceinline__ void load_rows(char *) const {}
        __device__ __forceinline__ int loaders() const { return 1; }

        struct State : AttPlace90<Tile> {
                int m, w0, T;                           /* step; first own row of the warpgroup */
                unsigned q, g;
                float lse[2], delta[2];
                AttOwn<Tile> own_q, own_g;

                __device__ __forceinline__ State(char *smem, int T_) : AttPlace90<Tile>(smem), T(T_) {}
        };

        template <bool FULL>
        static __device__ __forceinline__ void exps(float (&e)[32], const float (&x)[32], const float (&l)[2], int gap,
                                                    int end, const int (&reach)[2])
        {
#pragma unroll
                for (int j = 0; j < 32; j++) {
                        e[j] = fast_exp2(x[j] * BASE2 - l[j >> 1 & 1]);
                        if (!FULL && !att_attends90<Att, false>(j, gap, end, reach))
                                e[j] = 0.f;
                }
        }

        template <bool NEXT>
        static __device__ __forceinline__ void one_step(State &s, float (&x)[32], float (&y)[32], float (&dq)[D / 2],
                                                        Mbar *own_empty)
        {
                const int lane = threadIdx.x & 31, s0 = s.m * 64, here = s.here;
                float e[32];
                unsigned ds[4][4];

                wgmma_wait<2>();                        /* S(i) */
                wgmma_hold(x);
                if ((Att::CAUSAL && s0 + 63 > s.w0) || (Att::WINDOW > 0 && s.w0 + 63 - s0 >= Att::WINDOW)
                    || (!Att::CAUSAL && s0 + 64 > s.T) || (Att::DOCUMENTS && s0 < s.edge)) {
                        const int row = s.w0 + (int)threadIdx.x / 32 % 4 * 16 + (lane >> 2), col = s0 + (lane & 3) * 2;
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
                wgmma_wait<NEXT ? 2 : 1>();             /* Y(i) */
                wgmma_hold(y);
                if (!NEXT)
                        s.arrive(own_empty);
#pragma unroll
                for (int i = 0; i < 32; i++)
                        e[i] *= y[i] - s.delta[i >> 1 & 1];
                wgmma_wait<NEXT>();                     /* dq(i-1): ds is free, and its stage */
                s.give_back(here);
                att_pack90<E>(ds, e);
                wgmma_fence();
                if (NEXT) {
                        float to[32];
                        s.own_g.product(to, s.g, s.at(s.here, 1), E());
                        wgmma_commit();
                        wgmma_move(y, to);
                }
                wgmma_fence();
                att_add90<Tile>(dq, ds, s.at(here, 0), E());
                wgmma_commit();
        }

        __device__ __forceinline__ void reaches(State &s, int b, int query) const
        {
                const int last = begin(b, query + 8);
                s.reach[0] = query + 1 - begin(b, query);
                s.reach[1] = query + 9 - last;
                s.edge = __shfl_sync(0xffffffffu, last, 31);
        }

        /* sum_d o g of own row r, by the lanes of a quad: each has 8 of every 32 elements, of g in its panel. */
        static __device__ __forceinline__ float row_delta(const Raw<8, E> (&out)[D / 32], const char *panel, int r)
        {
                float sum = 0.f;
#pragma unroll
                for (int c = 0; c < D / 32; c++) {
                        const int k = c * 4 + (threadIdx.x & 3);
                        float u[8], w[8];
                        out[c].template floats<0, 1>(u);
                        ::load(w, (const E *)(panel + k / 8 * (Tile::BM * 128) + r * 128 + ((k ^ r) & 7) * 16));
#pragma unroll
                        for (int d = 0; d < 8; d++)
                                sum = fmaf(u[d], w[d], sum);
                }
                return att_quad_sum(sum);
        }

        /* What of the job's rows lies in memory and not in panels: o and lse, by the lane that needs them. */
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

        __device__ __forceinline__ void multiply(char *smem) const
        {
                const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0), warp = threadIdx.x / 32 % 4;
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
                        const int end = hi(s.w0, 64), from = lo(j.b, s.w0) < end ? lo(j.b, s.w0) : end - 1;
                        s.m = from;
                        s.before = -1;
                        if (Att::DOCUMENTS)
                                reaches(s, j.b, j.row + row);
                        s.q = (unsigned)Tile::Own::wide(own) + group * Tile::Own::WIDE_64;
                        s.g = s.q + Tile::Own::BYTES / 16;
                        ring_wait(Tile::full(smem, i), Tile::round(i));
                        s.own_q.init(own, group * 64 + warp * 16);
                        s.own_g.init(own + Tile::Own::BYTES, group * 64 + warp * 16);
#pragma unroll
                        for (int c = 0; c < D / 2; c++)
                                dq[c] = 0.f;
                        wgmma_hold(dq);
                        s.skip(from - j.lo);
                        s.enter();
                        wgmma_fence();
                        s.own_q.product(x, s.q, s.at(s.here, 0), E());
                        wgmma_commit();
                        s.own_g.product(y, s.g, s.at(s.here, 1), E());
                        wgmma_commit();
                        wgmma_commit();                 /* in the place of dq before it */
#pragma unroll
                        for (int u = 0; u < 2; u++) {
                                const int t = j.row + row + u * 8;
                                const float sum = row_delta(out[u], own + Tile::Own::BYTES, row + u * 8);
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
                                fetch(j, row, out, l);  /* on its way under the last product and the tail */
                        wgmma_wait<0>();
                        wgmma_hold(dq);
                        s.arrive(s.ring.empty(s.here));
                        s.skip(last.hi - end);
                        att_put90<D>(dq, Att::SCALE, last.b * T + s.w0 + warp * 16, last.b * T + T, last.h, tail);
                }
        }
};

/* ---- the tasks ------------------------------------------------------------------------- */

template <class Tile, class Work>
TGC_DEV void att_grad90_run(const Work &work, char *smem)
{
        Ring<Tile> ring(smem + Tile::RING);
        if (threadIdx.x == 0) {
                for (int s = 0; s < Tile::STAGES; s++) {
                        mbarrier_init(ring.full(s), work.loaders());
                        mbarrier_init(ring.empty(s), 8);
                }
                for (int i = 0; i < Tile::OWNS; i++) {
                        mbarrier_init(Tile::full(smem, i), 1);
                        mbarrier_init(Tile::empty(smem, i), 8);
                }
                fence_barrier_init();
                fence_proxy_async();
        }
        __syncthreads();
        if (threadIdx.x < 128) {
                setmaxnreg_dec<24>();
                if (threadIdx.x == 0)
                        work.load(smem);
                else if (threadIdx.x / 32 == 1)
                        work.load_rows(smem);
                __syncwarp();
        } else {
                setmaxnreg_inc<240>();
                work.multiply(smem);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
                for (int s = 0; s < 2 * Tile::STAGES; s++)
                        mbarrier_inval(ring.full(s));
                for (int i = 0; i < 2 * Tile::OWNS; i++)
                        mbarrier_inval(Tile::full(smem, 0) + i);
        }
        __syncthreads();
}

template <class E, class Att>
__host__ __device__ constexpr bool att_grad90_serves()
{
        return sizeof(E) == 2 && (Att::D == 64 || Att::D == 128) && !AttHead<E, Att>::SHAPED && !Att::MASK
            && !Att::CACHED && Att::DROPOUT == 0.f && (!Att::DOCUMENTS || Att::CAUSAL);
}

template <class E, class Att, class Tile, class TailK, class TailV>
TGC_DEV void attention_dkv_tma(const AttGradMaps &in, const float *lse, const float *delta, int B, int T, int first,
                               int step, char *smem, TailK tail_k, TailV tail_v)
{
        static_assert(att_grad90_serves<E, Att>() && Tile::D == Att::D, "what the Hopper form computes");
        const AttGradRows<E> rows = {};
        const AttDkv90<E, Att, Tile, false, TailK, TailV> work = { in, rows, lse, delta, B, T, first, step, tail_k,
                                                                   tail_v };
        att_grad90_run<Tile>(work, smem);
}

template <class E, class Att, class Tile, class Tail>
TGC_DEV void attention_dq_tma(const AttGradMaps &in, const E *o, Strides so, const float *lse, float *delta, int B,
                              int T, int first, int step, char *smem, Tail tail)
{
        static_assert(att_grad90_serves<E, Att>() && Tile::D == Att::D, "what the Hopper form computes");
        const AttDq90<E, Att, Tile, Tail> work = { in, o, so, lse, delta, B, T, first, step, tail };
        att_grad90_run<Tile>(work, smem);
}

template <class Tile>
__host__ __device__ constexpr int att_both90_smem(int T) { return Tile::SMEM + (T + 63) / 64 * 256; }

/* One of two kinds of job. */
template <class Keys, class Queries>
struct AttEither90 {
        const bool is_keys;
        const AttGradMaps &in;
        const Keys &keys;
        const Queries &queries;

        __device__ __forceinline__ int loaders() const { return is_keys ? keys.loaders() : queries.loaders(); }
        __device__ __forceinline__ void load(char *smem) const { is_keys ? keys.load(smem) : queries.load(smem); }
        __device__ __forceinline__ void load_rows(char *smem) const
        {
                is_keys ? keys.load_rows(smem) : queries.load_rows(smem);
        }
        __device__ __forceinline__ void multiply(char *smem) const
        {
                is_keys ? keys.multiply(smem) : queries.multiply(smem);
        }
};

/* Blocks go by the length of their jobs, longest first: causal keys' row block r takes as long as queries' r-th from
 * the last.  Of queries and keys the former begin in every second pair, as the last row block may be a short one. */
template <class E, class Att, class Tile, class Tail, class TailK, class TailV>
TGC_DEV void attention_both_tma(const AttGradMaps &in, const AttGradRows<E> &rows, const float *lse, float *delta,
                                int B, int T, int tile, char *smem, Tail tail, TailK tail_k, TailV tail_v)
{
        static_assert(att_grad90_serves<E, Att>() && Tile::D == Att::D, "what the Hopper form computes");
        static_assert(Att::H == Att::K, "as many jobs of either kind");
        typedef AttDkv90<E, Att, Tile, true, TailK, TailV> Keys;
        typedef AttDq90<E, Att, Tile, Tail> Queries;
        const int heads = B * Att::H, jobs = heads * ((T + Tile::BM - 1) / Tile::BM);
        const int row = tile / heads, pair = row / 2, first = pair * heads + tile % heads;
        const Keys keys = { in, rows, lse, delta, B, T, first, jobs, tail_k, tail_v };
        const Queries queries = { in, rows.o, rows.so, lse, delta, B, T, first, jobs, tail };
        const AttEither90<Keys, Queries> work = { row % 2 == pair % 2, in, keys, queries };
        att_grad90_run<Tile>(work, smem);
}

#endif
#endif
