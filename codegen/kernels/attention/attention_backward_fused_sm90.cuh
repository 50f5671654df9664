/* attention_backward_fused_sm90.cuh: all gradients of attention on Hopper with scores and their
 * gradients computed once: five products of every pair of blocks where
 * attention_backward_sm90.cuh's two kernels take seven.  bf16 and f16, heads of 64 with keys of
 * their own, causal, no window.
 *
 *   attention_backward_fused_tma<E, Att, Tile>(in, out, lse, sums, turns, B, T, first, step, smem,
 *   epilogue, epilogue_k, epilogue_v)
 *      block `first` of `step`, all of which must be on the GPU at the same time.  in: AttGradMaps,
 *      out: o's map; sums: att_backward_fused_sums floats; turns: 32 words for each block, which
 *      are zero before the first call and then left alone between calls with as many blocks.
 *
 * A team of blocks takes one head after the other and shares its keys: 128 of them at a time for a
 * block, which all queries that meet them stream past, 64 at a step.  Two warpgroups have 64 keys
 * each and make dk and dv as AttDkvSm90 does.  They leave dS, transposed, in shared memory, where a
 * third takes it up:
 *
 *      dq part = dS k          (64 queries of 128 keys)
 *
 * and adds that to sums in memory, which stay in L2 as long as few heads are in work at a time: of
 * 132 heads at once, a block to each, they would not.  Every sum has one
 * order.  In a round every block of the team has one block of keys, and the last member comes
 * first.  It has the latest keys in even rounds, so that its queries begin furthest along, and the
 * earliest in odd ones, which makes the members' shares equal.  A block adds a step's part when the
 * one before it in that order says that it has; as a rule that one is two steps ahead.  The last
 * one finishes the sums instead.  (Teams of four wait longer for each other than L2 gains them.)
 *
 * The first warpgroup's warps: one loads; two fetch lse and make delta = sum(o g) from what lies in
 * shared memory; one tells the next block how far this one's sums are. */
#ifndef TGC_ATTENTION_GRAD_ONCE_SM90_CUH
#define TGC_ATTENTION_GRAD_ONCE_SM90_CUH

#include "attention_dkv_sm90.cuh"
#ifdef TGC_SM90A

/* PARTS: of dS on their way.  KEEP_K, KEEP_V: the operand is held in registers.  MANY, SOME:
 * registers of a thread that makes dk and dv, or dq. */
template <int D_, int STAGES_, int PARTS_, bool KEEP_K_, bool KEEP_V_, int MANY_, int SOME_,
          int TEAM_>
struct AttBackwardFusedTile {
        static constexpr int D = D_, BM = 128, BN = 64, STAGES = STAGES_, OWNS = 2, PARTS = PARTS_,
                             TEAM = TEAM_;
        static constexpr int THREADS = 512, MANY = MANY_, SOME = SOME_, FEW = 32;
        typedef AttPanel<BM, D> Own;
        typedef AttPanel<BN, D> Step;
        typedef AttPanel<BM, BN> Part; /* dS: keys, queries */
        template <bool KEEP_>          /* as AttOwn wants it */
        struct Side {
                static constexpr int D = D_, BM = 128;
                static constexpr bool KEEP = KEEP_;
                typedef AttPanel<128, D_> Own;
                typedef AttPanel<64, D_> Step;
        };
        typedef Side<KEEP_K_> K;
        typedef Side<KEEP_V_> V;
        /* Shared memory: own rows of both kinds; dS; the pipeline of q, g and o and its barriers;
         * lse and delta of each stage; barriers: q, g and o of a stage have landed; full and empty
         * of the own rows; full and empty of dS, and its part of dq was added. */
        static constexpr int STAGE = 3 * Step::BYTES, OWN = 2 * Own::BYTES;
        static constexpr int PART = OWNS * OWN, RING = PART + PARTS * Part::BYTES;
        static constexpr int ROWS = RING + STAGES * (STAGE + 16), LANDED = ROWS + STAGES * BN * 8;
        static constexpr int OWN_BAR = LANDED + STAGES * 8, PART_BAR = OWN_BAR + OWNS * 16;
        static constexpr int SMEM = PART_BAR + PARTS * 24;
        static constexpr unsigned TALL = (BN * 128 - 16) >> 4 << 16;
        static_assert(D == 64, "one box across");
        static_assert(FEW + SOME + 2 * MANY <= 512, "registers");
        static_assert(SMEM <= 232448, "shared memory");

        static __device__ __forceinline__ char *own(char *smem, int i)
        {
                return smem + i % OWNS * OWN;
        }
        static __device__ __forceinline__ Mbar *full(char *smem, int i)
        {
                return (Mbar *)(smem + OWN_BAR) + i % OWNS;
        }
        static __device__ __forceinline__ Mbar *empty(char *smem, int i)
        {
                return full(smem, i) + OWNS;
        }
        static __device__ __forceinline__ unsigned round(int i) { return i / OWNS & 1; }
        static __device__ __forceinline__ Mbar *landed(char *smem, int s)
        {
                return (Mbar *)(smem + LANDED) + s;
        }
};

/* Floats of sums for so many blocks: a head's of each team. */
template <class Att, class Tile>
__host__ __device__ constexpr long att_backward_fused_sums(int T, int blocks)
{
        return (long)(blocks / Tile::TEAM) * ((T + 63) / 64) * 64 * Att::D;
}

/* dS on its way from those who make it to the one who uses it. */
template <class Tile>
struct AttPartsSm90 {
        char *smem;
        int at;
        unsigned round;

        __device__ __forceinline__ AttPartsSm90(char *smem_) : smem(smem_), at(0), round(0) {}
        __device__ __forceinline__ char *part() const
        {
                return smem + Tile::PART + at * Tile::Part::BYTES;
        }
        __device__ __forceinline__ Mbar *full() const
        {
                return (Mbar *)(smem + Tile::PART_BAR) + at;
        }
        __device__ __forceinline__ Mbar *empty() const { return full() + Tile::PARTS; }
        __device__ __forceinline__ Mbar *added() const { return full() + 2 * Tile::PARTS; }
        __device__ __forceinline__ void wait_full() const { att_wait_sm90(full(), round); }
        __device__ __forceinline__ void wait_empty() const { att_wait_sm90(empty(), round ^ 1); }
        __device__ __forceinline__ void wait_added() const { att_wait_sm90(added(), round); }
        __device__ __forceinline__ void next()
        {
                if (++at == Tile::PARTS)
                        at = 0, round ^= 1;
        }
};

/* Round `round` of the team's nth head: key block n, keys [row, row + 128) of head h of sequence b,
 * bh of all; steps [lo, hi) of queries that meet some of them. */
struct AttBackwardFusedJob {
        int nth, round, b, h, bh, n, row, lo, hi;
};

/* How far block after block is: counts from `base`, what all words were when the call began. */
struct AttTurnSm90 {
        const unsigned *word;
        unsigned base, seen;

        __device__ __forceinline__ bool has(const unsigned *word_, int count)
        {
                if (word_ != word)
                        word = word_, seen = base;
                return (int)(seen - base) >= count;
        }
        __device__ __forceinline__ void look() { seen = load_acquire(word); }
        __device__ __forceinline__ void wait(const unsigned *word_, int count)
        {
#ifdef TGC_BOUNDED
                const long long from = clock64();
#endif
                while (!has(word_, count)) {
                        look();
#ifdef TGC_BOUNDED
                        if (clock64() - from > 4000000000LL)
                                __trap();
#endif
                }
        }
};

template <class E, class Att, class Tile, class Epilogue, class EpilogueK, class EpilogueV>
struct AttBackwardFused {
        static constexpr int D = Tile::D, TEAM = Tile::TEAM;
        typedef AttDkvSm90<E, Att, Tile, false, EpilogueK, EpilogueV> Dkv;
        static_assert(Att::CAUSAL && Att::WINDOW == 0, "every query meets all keys before it");
        static_assert(Att::H == Att::K, "a head has keys of its own");
        const AttGradMaps &in;
        const AttMap &out;
        const float *lse;
        float4 *sums;
        unsigned *turns;
        int B, T, team, teams, member;
        Epilogue &epilogue;
        EpilogueK &epilogue_k;
        EpilogueV &epilogue_v;

        __device__ __forceinline__ int steps() const { return (T + 63) / 64; }
        __device__ __forceinline__ int rounds() const
        {
                return ((T + 127) / 128 + TEAM - 1) / TEAM;
        }
        /* Key block of a member in a round; how many steps of queries a head has for it, perhaps
         * none. */
        static __device__ __forceinline__ int keys(int round, int member)
        {
                return round * TEAM + (round & 1 ? TEAM - 1 - member : member);
        }
        __device__ __forceinline__ int length(int round, int member) const
        {
                const int n = steps() - 2 * keys(round, member);
                return n > 0 ? n : 0;
        }
        /* Job i of this block, which may have no steps. */
        __device__ __forceinline__ bool get(int i, AttBackwardFusedJob &j) const
        {
                j.nth = i / rounds(), j.round = i % rounds();
                j.bh = team + j.nth * teams;
                j.b = j.bh / Att::H, j.h = j.bh % Att::H;
                j.n = keys(j.round, member);
                j.row = j.n * 128;
                j.lo = 2 * j.n, j.hi = steps();
                return team < teams && j.bh < B * Att::H;
        }

        /* How many steps a block's sums have, in this call and before: all blocks' words are equal
         * between calls. */
        __device__ __forceinline__ unsigned *word(int member_) const
        {
                return turns + (team * TEAM + member_) * 32;
        }
        /* More steps than a block has, and what every word advances by. */
        __device__ __forceinline__ unsigned all() const
        {
                return (unsigned)((B * Att::H + teams - 1) / teams * rounds() * steps());
        }

        /* ---- the first warpgroup ---- */

        __device__ __forceinline__ void load(char *smem) const
        {
                Pipeline<Tile> pipe(smem + Tile::RING);
                AttBackwardFusedJob j;
                for (int i = 0, o = 0; get(i, j); i++) {
                        if (j.lo >= j.hi)
                                continue;
                        att_load_own_sm90<Tile>(smem, o, in.k, in.v, j, T);
                        o++;
                        for (int m = j.lo; m < j.hi; m++) {
                                Mbar *landed = Tile::landed(smem, pipe.stage);
                                const int row = j.b * T + m * 64;
                                pipe.wait_empty();
                                mbarrier_expect_tx(landed, Tile::STAGE);
                                Tile::Step::load(pipe.a() + Tile::Step::BYTES, in.g, j.h, row,
                                                 landed);
                                Tile::Step::load(pipe.a() + 2 * Tile::Step::BYTES, out, j.h, row,
                                                 landed);
                                Tile::Step::load(pipe.a(), in.q, j.h, row, landed);
                                pipe.next();
                        }
                }
        }

        /* Of two warps, the half-th: lse, in powers of two, and delta of its 32 rows of each step. 
         * Every block makes delta for itself and at every step: to fetch what was made before takes
         * longer. Queries that do not exist get lse = inf, so that P =
         * 0. */
        __device__ __forceinline__ void load_rows(char *smem, int half) const
        {
                Pipeline<Tile> pipe(smem + Tile::RING);
                const int r = half * 32 + (threadIdx.x & 31);
                AttBackwardFusedJob j;
                for (int i = 0; get(i, j); i++)
                        for (int m = j.lo; m < j.hi; m++) {
                                const bool ok = m * 64 + r < T;
                                const float l = ok ? lse[(long)j.bh * T + m * 64 + r] : INFINITY;
                                /* of a swizzled panel, the first 16 bytes of row r */
                                const int at = Tile::RING + pipe.stage * Tile::STAGE +
                                               Tile::Step::BYTES + r * 128 + (r & 7) * 16;
                                float d = 0.f, d2 = 0.f;
                                Raw<8, E> o, g;
                                pipeline_wait(Tile::landed(smem, pipe.stage), pipe.round);
                                o.get((const E *)(smem + at + Tile::Step::BYTES));
                                g.get((const E *)(smem + at));
#pragma unroll
                                for (int c = 1; c <= 8; c++) { /* the next ones are on their way */
                                        float u[8], w[8];
                                        o.template floats<0, 1>(u);
                                        g.template floats<0, 1>(w);
                                        if (c < 8) {
                                                o.get((const E *)(smem + (at ^ c * 16) +
                                                                  Tile::Step::BYTES));
                                                g.get((const E *)(smem + (at ^ c * 16)));
                                        }
#pragma unroll
                                        for (int x = 0; x < 8; x += 2)
                                                d = fmaf(u[x], w[x], d),
                                                d2 = fmaf(u[x + 1], w[x + 1], d2);
                                }
                                float *to = (float *)(smem + Tile::ROWS) + pipe.stage * 128 +
                                            att_column_sm90(r);
                                to[0] = l * ATT_LOG2E;
                                to[64] = ok ? d + d2 : 0.f;
                                __syncwarp();
                                AttPlaceSm90<Tile>::arrive(pipe.full(pipe.stage));
                                pipe.next();
                        }
        }

        /* Steps of a member before round `round` of the nth head. */
        __device__ __forceinline__ int before(int member_, int nth, int round) const
        {
                int sum = 0, part = 0;
                for (int i = 0; i < rounds(); i++) {
                        if (i == round)
                                part = sum;
                        sum += length(i, member_);
                }
                return nth * sum + part;
        }

        /* One thread. */
        __device__ __forceinline__ void tell(char *smem) const
        {
                AttPartsSm90<Tile> parts(smem);
                AttBackwardFusedJob j;
                unsigned *const to = word(member);
                unsigned n = *(volatile unsigned *)to;
                const unsigned end = n + all();
                for (int i = 0; get(i, j); i++)
                        for (int left = j.hi - j.lo; left > 0; left--) {
                                parts.wait_added();
                                mbarrier_arrive(parts.empty());
                                store_release(to, ++n);
                                parts.next();
                        }
                store_release(to, end);
        }

        /* ---- dk, dv ---- */

        struct State : AttPlaceSm90<Tile> {
                AttPartsSm90<Tile> parts;
                int m, w0;     /* step; first own row */
                int place;     /* where a lane's dS goes */
                unsigned k, v; /* descriptors of own rows */
                const float *rows;
                AttOwn<typename Tile::K> own_k;
                AttOwn<typename Tile::V> own_v;

                __device__ __forceinline__ State(char *smem)
                    : AttPlaceSm90<Tile>(smem), parts(smem),
                      rows((const float *)(smem + Tile::ROWS))
                {
                        const int lane = threadIdx.x & 31;
                        place = ((int)threadIdx.x / 32 % 8 * 16 + (lane & 15)) * 128 +
                                ((lane >> 4) ^ (lane & 7)) * 16;
                }
                __device__ __forceinline__ void move_on()
                {
                        m++;
                        this->enter();
                }
                /* dS (16 keys of each warp, 64 queries), as att_pack_sm90 has it.  The fence
                 * between these stores and the products that read them is the reader's, who has
                 * more time. */
                __device__ __forceinline__ void put(const unsigned (&ds)[4][4])
                {
                        const int to = Tile::PART + parts.at * Tile::Part::BYTES + place;
                        parts.wait_empty();
#pragma unroll
                        for (int ks = 0; ks < 4; ks++)
                                stmatrix_x4(parts.smem + (to ^ ks * 32), ds[ks]);
                        __syncwarp();
                        this->arrive(parts.full());
                        parts.next();
                }
                __device__ __forceinline__ void skip_parts(int n)
                {
                        for (; n > 0; n--) {
                                parts.wait_empty();
                                this->arrive(parts.full());
                                parts.next();
                        }
                }
        };

        __device__ __forceinline__ void multiply(char *smem) const
        {
                const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 & 1, 0),
                          warp = threadIdx.x / 32 % 4;
                State s(smem);
                AttBackwardFusedJob j;
                for (int i = 0, o = 0; get(i, j); i++) {
                        if (j.lo >= j.hi)
                                continue;
                        float x[32], y[32], dk[D / 2], dv[D / 2];
                        const int own = o++;
                        s.w0 = j.row + group * 64;
                        /* the second one's keys come after the first queries */
                        s.m = j.lo + group;
                        s.before = -1;
                        s.k = (unsigned)Tile::Own::wide(Tile::own(smem, own)) +
                              group * Tile::Own::WIDE_64;
                        s.v = s.k + Tile::Own::BYTES / 16;
                        pipeline_wait(Tile::full(smem, own), Tile::round(own));
                        if (s.m >= j.hi) { /* none of the rows exists */
                                s.arrive(Tile::empty(smem, own));
                                s.skip(j.hi - j.lo);
                                s.skip_parts(j.hi - j.lo);
                                continue;
                        }
                        s.own_k.init(Tile::own(smem, own), group * 64 + warp * 16);
                        s.own_v.init(Tile::own(smem, own) + Tile::Own::BYTES,
                                     group * 64 + warp * 16);
#pragma unroll
                        for (int c = 0; c < D / 2; c++)
                                dk[c] = dv[c] = 0.f;
                        wgmma_hold(dk); /* zeroed here, not between products */
                        wgmma_hold(dv);
                        s.skip(group);
                        s.skip_parts(group);
                        s.enter();
                        wgmma_fence();
                        s.own_k.product(x, s.k, s.at(s.here, 0), E());
                        wgmma_commit();
                        s.own_v.product(y, s.v, s.at(s.here, 1), E());
                        wgmma_commit();
#pragma unroll 1
                        for (int left = j.hi - s.m; left > 1; left--)
                                Dkv::template one_step<true>(s, x, y, dk, dv, 0);
                        Dkv::template one_step<false>(s, x, y, dk, dv, Tile::empty(smem, own));
                        wgmma_wait<0>();
                        wgmma_hold(dk);
                        wgmma_hold(dv);
                        s.arrive(s.pipe.empty(s.here));
                        const int row = j.b * T + s.w0 + warp * 16, stop = j.b * T + T;
                        att_put_sm90<D>(dk, Att::SCALE, row, stop, j.h, epilogue_k);
                        att_put_sm90<D>(dv, 1.f, row, stop, j.h, epilogue_v);
                }
        }

        /* ---- dq ---- */

        /* acc (64 queries of a step, D) += or = dS times the keys: of both warpgroups, or of the
         * first. */
        template <bool BOTH>
        static __device__ __forceinline__ void part(float (&acc)[D / 2],
                                                    const AttPartsSm90<Tile> &parts,
                                                    unsigned long long k, int add)
        {
                parts.wait_full();
                fence_proxy_async();
                const unsigned long long ds = Tile::Part::tall(parts.part());
                wgmma_fence();
#pragma unroll
                for (int ks = 0; ks < (BOTH ? 8 : 4); ks++)
                        wgmma<1, 1>(acc, ds + Tile::Part::tall_k(ks), k + Tile::Own::tall_k(ks),
                                    ks > 0 ? 1 : add, E());
                wgmma_commit();
        }

        /* who, count: what must have been added before; fresh: nothing, the sums begin here. */
        template <bool BOTH>
        __device__ __forceinline__ void add_step(const AttBackwardFusedJob &j, int m,
                                                 AttPartsSm90<Tile> &parts, unsigned long long k,
                                                 AttTurnSm90 &turn, const unsigned *who, int count,
                                                 bool fresh) const
        {
                /* their last round, and all other members had their turn */
                const bool done = m / 2 / TEAM == j.round &&
                                  (j.round & 1 ? m / 2 == j.n : member == 0);
                float4 *const sum = sums + ((long)team * steps() + m) * 1024 + threadIdx.x % 128;
                float acc[D / 2];
                if (done) {
                        turn.wait(who, count);
#pragma unroll
                        for (int c = 0; c < 8; c++) {
                                const float4 x = fresh ? make_float4(0.f, 0.f, 0.f, 0.f)
                                                       : __ldcg(sum + c * 128);
                                acc[4 * c] = x.x, acc[4 * c + 1] = x.y, acc[4 * c + 2] = x.z,
                                        acc[4 * c + 3] = x.w;
                        }
                        part<BOTH>(acc, parts, k, 1);
                        wgmma_wait<0>();
                        wgmma_hold(acc);
                        AttPlaceSm90<Tile>::arrive(parts.empty());
                        const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0);
                        att_put_sm90<D>(acc, Att::SCALE, j.b * T + m * 64 + warp * 16, j.b * T + T,
                                        j.h, epilogue);
                } else {
                        if (!turn.has(who, count))
                                turn.look(); /* while dS is on its way */
                        part<BOTH>(acc, parts, k, 0);
                        turn.wait(who, count);
                        wgmma_wait<0>();
                        wgmma_hold(acc);
                        AttPlaceSm90<Tile>::arrive(parts.empty());
#pragma unroll
                        for (int c = 0; c < 8; c++)
                                if (fresh)
                                        __stcg(sum + c * 128,
                                               make_float4(acc[4 * c], acc[4 * c + 1],
                                                           acc[4 * c + 2], acc[4 * c + 3]));
                                else
                                        add_relaxed(sum + c * 128, acc[4 * c], acc[4 * c + 1],
                                                    acc[4 * c + 2], acc[4 * c + 3]);
                }
                __syncwarp();
                AttPlaceSm90<Tile>::arrive(parts.added());
                parts.next();
        }

        __device__ __forceinline__ void add_up(char *smem) const
        {
                AttPartsSm90<Tile> parts(smem);
                AttBackwardFusedJob j;
                const unsigned base = *(volatile unsigned *)word(member);
                AttTurnSm90 turn = { 0, base, base };
                for (int i = 0, o = 0; get(i, j); i++) {
                        if (j.lo >= j.hi)
                                continue;
                        const int own = o++;
                        const unsigned long long k = Tile::Own::tall(Tile::own(smem, own));
                        /* Who adds before this block: the next member in this round, where it meets
                         * the queries; else member 0 in the round before.  The first of all waits
                         * until the sums of the head before it have been read. */
                        const int next = member + 1 < TEAM ? 2 * keys(j.round, member + 1)
                                                           : 1 << 30;
                        const int by_next = before(member + 1, j.nth, j.round) - next + 1;
                        const int by_last = before(0, j.nth, j.round - 1) -
                                            2 * keys(j.round - 1, 0) + 1;
                        pipeline_wait(Tile::full(smem, own), Tile::round(own));
#pragma unroll 1
                        for (int m = j.lo; m < j.hi; m++) {
                                const unsigned *who = word(member);
                                int count = 0;
                                bool fresh = false;
                                if (m >= next) {
                                        who = word(member + 1), count = by_next + m;
                                } else if (j.round > 0) {
                                        who = word(0), count = by_last + m;
                                } else {
                                        fresh = true;
                                        if (j.nth > 0) {
                                                const int round = m / 2 / TEAM;
                                                const int x = round & 1 ? round * TEAM + TEAM - 1 -
                                                                                  m / 2
                                                                        : 0;
                                                who = word(x);
                                                count = before(x, j.nth - 1, round) + m -
                                                        2 * keys(round, x) + 1;
                                        }
                                }
                                if (m > j.lo)
                                        add_step<true>(j, m, parts, k, turn, who, count, fresh);
                                else
                                        add_step<false>(j, m, parts, k, turn, who, count, fresh);
                        }
                        AttPlaceSm90<Tile>::arrive(Tile::empty(smem, own));
                }
        }
};

template <class E, class Att, class Tile, class Epilogue, class EpilogueK, class EpilogueV>
TGC_DEV void attention_backward_fused_tma(const AttGradMaps &in, const AttMap &out,
                                          const float *lse, float *sums, unsigned *turns, int B,
                                          int T, int first, int step, char *smem, Epilogue epilogue,
                                          EpilogueK epilogue_k, EpilogueV epilogue_v)
{
        static_assert(att_grad_sm90_serves<E, Att>() && Tile::D == Att::D,
                      "what the Hopper form computes");
        constexpr int TEAM = Tile::TEAM;
        const AttBackwardFused<E, Att, Tile, Epilogue, EpilogueK, EpilogueV> work = {
                in,           out,         lse,          (float4 *)sums, turns,      B,         T,
                first / TEAM, step / TEAM, first % TEAM, epilogue,       epilogue_k, epilogue_v
        };
        Pipeline<Tile> pipe(smem + Tile::RING);
        Mbar *parts = (Mbar *)(smem + Tile::PART_BAR);
        if (threadIdx.x == 0) {
                for (int s = 0; s < Tile::STAGES; s++) {
                        mbarrier_init(pipe.full(s), 2);
                        mbarrier_init(pipe.empty(s), 8);
                        mbarrier_init(Tile::landed(smem, s), 1);
                }
                for (int i = 0; i < Tile::OWNS; i++) {
                        mbarrier_init(Tile::full(smem, i), 1);
                        mbarrier_init(Tile::empty(smem, i), 12);
                }
                for (int i = 0; i < Tile::PARTS; i++) {
                        mbarrier_init(parts + i, 8);
                        mbarrier_init(parts + Tile::PARTS + i, 5);
                        mbarrier_init(parts + 2 * Tile::PARTS + i, 4);
                }
                fence_barrier_init();
                fence_proxy_async();
        }
        __syncthreads();
        const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
        if (group == 0) {
                setmaxnreg_dec<Tile::FEW>();
                if (threadIdx.x == 0)
                        work.load(smem);
                else if (threadIdx.x / 32 == 1 || threadIdx.x / 32 == 2)
                        work.load_rows(smem, threadIdx.x / 32 - 1);
                else if (threadIdx.x == 96)
                        work.tell(smem);
                __syncwarp();
        } else if (group == 1) {
                setmaxnreg_dec<Tile::SOME>();
                work.add_up(smem);
        } else {
                setmaxnreg_inc<Tile::MANY>();
                work.multiply(smem);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
                for (int s = 0; s < 2 * Tile::STAGES; s++)
                        mbarrier_inval(pipe.full(s));
                for (int s = 0; s < Tile::STAGES + 2 * Tile::OWNS + 3 * Tile::PARTS; s++)
                        mbarrier_inval(Tile::landed(smem, s));
        }
        __syncthreads();
}

#endif
#endif
