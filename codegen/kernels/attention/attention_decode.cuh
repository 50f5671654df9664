/* attention_decode.cuh: attention.cuh's function for few queries and a long cache (flash-decoding:
 * split-KV).
 *
 * Memory-bound: k and v are read once.  One block serves all query heads of a kv head, ROWS of the
 * T x H/K query rows (more go in groups), and the cache is split over SPLITS blocks:
 *
 *      attention_decode_task<E, Att, AttDecode<ROWS, SPLITS, THREADS>>(in, work, done, B, T, rt,
 *              tile, smem, epilogue)
 *              B * K * ceil(T * H/K / ROWS) * SPLITS tiles; attention_decode_smem<...>() bytes;
 *              epilogue as in attention_task
 *
 * SPLITS > 1: each block writes a partial result to work, (B*T*H, SPLITS, att_record<Att>())
 * floats.  The last block to finish among those that share rows merges them in the order of the
 * splits, so the result does not depend on which one it is.  done has an int per SPLITS tiles, 0
 * before and after.  SPLITS == 1: work and done are null.
 *
 * The launch depends on B and T only; which part of the cache a block reads follows from rt->pos,
 * so one CUDA graph serves every position.  ROWS: the power of two (1..8) at or above T * H/K.
 * SPLITS (1..32): so many that the tiles fill the device at the longest context.
 *
 * Within a block every warp has its own keys; the warps are merged through shared memory.  A
 * warp's loop is in attention_decode_lanes.cuh, or for several rows of 16-bit values in
 * attention_decode_mma.cuh. */
#ifndef TGC_ATTENTION_DECODE_CUH
#define TGC_ATTENTION_DECODE_CUH

#include "attention.cuh"
#include "attention_decode_lanes.cuh"
#include "attention_decode_mma.cuh"

template <bool MMA, class E, class Att, class Tile>
struct AttDecodeForm {
        typedef AttLanesStep<E, Att, Tile> Step;
        typedef AttLanesSums<E, Att, Tile> Sums;
};
template <class E, class Att, class Tile>
struct AttDecodeForm<true, E, Att, Tile> {
        typedef AttMmaStep<E, Att, Tile> Step;
        typedef AttMmaSums<E, Att, Tile> Sums;
};

template <class E, class Att, class Tile>
struct AttDecodeShape : AttDecodeForm<att_decode_mma<E, Att, Tile>(), E, Att, Tile> {
        typedef AttDecodeForm<att_decode_mma<E, Att, Tile>(), E, Att, Tile> Form;
        static constexpr int WARPS = Tile::THREADS / 32, STEP = WARPS * Form::Step::WARP_KEYS;
        static constexpr int SMEM = WARPS * Tile::ROWS * att_record<Att>() * 4;
};

template <class E, class Att, class Tile>
__host__ __device__ constexpr int attention_decode_smem()
{
        return AttDecodeShape<E, Att, Tile>::SMEM;
}

/* The keys [s0, s1) of a split: equal parts of the keys that any row attends.  parts: how many
 * splits have any. */
struct AttPart {
        int s0, s1, parts;
};

template <class E, class Att, class Tile>
TGC_DEV AttPart att_part(int pos, int T, int split)
{
        constexpr int STEP = AttDecodeShape<E, Att, Tile>::STEP,
                      UNIT = Tile::LEAST > STEP ? Tile::LEAST : STEP;
        static_assert(UNIT % STEP == 0, "whole steps in a part");
        /* keys of one warp and step lie in one page where they fit */
        const int first = Att::WINDOW > 0 && pos + 1 > Att::WINDOW ? pos + 1 - Att::WINDOW : 0,
                  lo = Att::PAGE ? first & ~(Att::PAGE - 1) : first, hi = pos + T;
        const int chunk = ((hi - lo + Tile::SPLITS - 1) / Tile::SPLITS + UNIT - 1) / UNIT * UNIT;
        const int s0 = lo + split * chunk, s1 = s0 + chunk < hi ? s0 + chunk : hi;
        return { s0, s1, hi > lo ? (hi - lo + chunk - 1) / chunk : 1 };
}

/* Before pdl_wait: prefetches the part's keys and values into L2 (tensor cores: only the first
 * step's, the others being loaded a step ahead).  If rt->pos is still the previous step's, a few
 * wrong lines are fetched, which is harmless. */
template <class E, class Att, class Tile>
TGC_DEV void att_fetch(const AttPart &at, const AttKeys<E, Att> &k, const AttKeys<E, Att> &v)
{
        typedef AttDecodeShape<E, Att, Tile> Sh;
        const int first = at.s0 + Sh::STEP, s1 = Sh::Step::FETCHES && first < at.s1 ? first : at.s1;
        for (int s = at.s0 + (int)threadIdx.x; s < s1; s += Tile::THREADS)
#pragma unroll
                for (int d = 0; d < Att::D;
                     d += 128 / (int)sizeof(typename AttIn<E, Att>::Stored)) {
                        att_prefetch(k.at(s), d);
                        att_prefetch(v.at(s), d);
                }
}

/* Loads a warp's keys and values from n0 on, those within [lo, hi). */
template <bool PAST_L1, class Step, class E, class Att>
TGC_DEV void att_read(Step &step, const AttKeys<E, Att> &k, const AttKeys<E, Att> &v, int n0,
                      int lo, int hi)
{
        constexpr bool WHOLE = !Att::PAGE || (Att::PAGE ? Att::PAGE : 1) % Step::WARP_KEYS == 0;
        if constexpr (WHOLE) {
                if (!Att::PAGE || (n0 < hi && n0 + Step::WARP_KEYS > lo))
                        step.template read<PAST_L1>(k.near(n0), k.step, v.near(n0), v.step, n0, lo,
                                                    hi);
        } else {
                step.template read_pages<PAST_L1>(k, v, n0, lo, hi);
        }
}

/* A warp merges the first n parts of one row of (B*T, H); lane i holds the weight of split i. */
template <class Att, int SPLITS, class Epilogue>
TGC_DEV void att_combine(const float *work, int n, long row, Epilogue epilogue)
{
        constexpr int RECORD = att_record<Att>();
        const int lane = threadIdx.x & 31;
        work += row * (SPLITS * RECORD);
        float ms[2] = { -INFINITY, 0.f };
        if (lane < n)
                load(ms, work + lane * RECORD + RECORD - 2);
        const float mx = warp_max(ms[0]);
        const float f = exp2f(ms[0] - (mx == -INFINITY ? 0.f : mx));
        const float all = warp_sum(f * ms[1]), inv = all > 0.f ? 1.f / all : 0.f;
#pragma unroll
        for (int c = 0; c < (Att::D + 63) / 64; c++) {
                const int d = (lane + 32 * c) * 2;
                float o[2] = { 0.f, 0.f };
#pragma unroll 8
                for (int s = 0; s < n; s++) {
                        const float w = __shfl_sync(0xffffffffu, f, s) * inv;
                        float a[2] = { 0.f, 0.f };
                        if (d < Att::D)
                                load(a, work + s * RECORD + d);
                        o[0] = fmaf(w, a[0], o[0]);
                        o[1] = fmaf(w, a[1], o[1]);
                }
                if (d < Att::D)
                        att_put2<Att::D>(epilogue, (int)(row / Att::H),
                                         (int)(row % Att::H) * Att::D, d, o);
        }
}

/* The position of a sequence, valid after pdl_wait. */
template <class Att>
struct PdlReady {
        const Rt *rt;
        int b;
        __device__ __forceinline__ int operator()() const
        {
                pdl_wait();
                return Att::CACHED ? rt->pos[b] : 0;
        }
};

/* Computes the softmax sums of split `split`: a record per warp and row at smem[(warp * ROWS + r)
 * * RECORD]: D sums, the maximum score, the sum of weights.  Ends with a barrier.  Returns
 * `parts`; if split >= parts nothing was done.  ready() waits until q and the newest keys are
 * there and returns the position.  new_k, new_v: the new token's key and value of this head, if
 * not in the cache. */
template <class E, class Att, class Tile, class Ready>
TGC_DEV AttPart att_sums(const AttIn<E, Att> &in, const AttQueries<Att, Tile> &rows, int T,
                         const Rt *rt, int split, char *smem, const Ready &ready,
                         const E *new_k = nullptr, const E *new_v = nullptr)
{
        typedef AttDecodeShape<E, Att, Tile> Sh;
        constexpr int GROUP = Att::H / Att::K;
        const int b = rows.b, hk = rows.hk, warp = threadIdx.x >> 5,
                  own = warp * Sh::Step::WARP_KEYS;
        const AttKeys<E, Att> k(in.k, in.sk, rt, b, hk), v(in.v, in.sv, rt, b, hk);
        /* Before pdl_wait: loads the first step's keys and values, which are in the cache already.
         * If rt->pos is still the previous step's, they are loaded again. */
        typename Sh::Step step;
        const int early = Att::CACHED ? load_acquire(rt->pos + b) : 0;
        const AttPart guess = att_part<E, Att, Tile>(early, T, split);
        att_fetch<E, Att, Tile>(guess, k, v);
        step.clear();
        att_read<true>(step, k, v, guess.s0 + own, 0, guess.s1 < early ? guess.s1 : early);
        const AttHead<E, Att> hd(in, rt, b, hk * GROUP, T, ready());
        typename Sh::Sums sums(in, rows, T);
        const AttPart at = att_part<E, Att, Tile>(hd.pos, T, split);
        const int s0 = at.s0, s1 = at.s1;
        if (split >= at.parts)
                return at;
        const int cached = new_k && hd.pos < s1 ? hd.pos : s1;

        for (int n0 = s0 + own; n0 < s1; n0 += Sh::STEP) {
                const int have = n0 == s0 + own && hd.pos == early ? early : 0;
                if (!have)
                        step.clear();
                if (have < cached)
                        att_read<false>(step, k, v, n0, have, cached);
                if constexpr (Sh::Step::FETCHES)
                        if (!Att::PAGE || n0 + Sh::STEP < s1)
                                step.fetch(k.near(n0 + Sh::STEP), k.step, v.near(n0 + Sh::STEP),
                                           v.step, n0 + Sh::STEP, s1);
                if constexpr (!Att::FP8)
                        if (new_k)
                                step.template read<false>(new_k - hd.pos * in.sk.t, in.sk.t,
                                                          new_v - hd.pos * in.sv.t, in.sv.t, n0,
                                                          hd.pos, s1);
                sums.add(step, hd, rows, n0, s1);
        }
        sums.put((float *)smem + warp * Tile::ROWS * att_record<Att>());
        __syncthreads();
        return at;
}

/* Merges the records of all warps: columns d and d + 1 of row r, not yet divided. */
template <class E, class Att, class Tile>
TGC_DEV void att_merge_warps(const char *smem, int r, int d, float (&o)[2], float (&ms)[2])
{
        typedef AttDecodeShape<E, Att, Tile> Sh;
        constexpr int RECORD = att_record<Att>(), NEXT = Tile::ROWS * RECORD;
        const float *p = (const float *)smem + r * RECORD;
        ms[0] = -INFINITY;
        ms[1] = o[0] = o[1] = 0.f;
#pragma unroll
        for (int w = 0; w < Sh::WARPS; w++)
                ms[0] = fmaxf(ms[0], p[w * NEXT + RECORD - 2]);
#pragma unroll
        for (int w = 0; w < Sh::WARPS; w++) {
                const float *pw = p + w * NEXT;
                const float f = att_exp2<E>(pw[RECORD - 2] - (ms[0] == -INFINITY ? 0.f : ms[0]));
                ms[1] += f * pw[RECORD - 1];
                o[0] += f * pw[d];
                o[1] += d + 1 < Att::D ? f * pw[d + 1] : 0.f;
        }
}

/* Is this block the last of n to arrive?  If so it sees what the others wrote before.  *count is 0
 * before and after; last: in shared memory. */
TGC_DEV bool att_is_last(int *count, int n, int *last)
{
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
                *last = atomicAdd(count, 1) == n - 1;
                if (*last)
                        *count = 0;
                __threadfence();
        }
        __syncthreads();
        return *last;
}

template <class E, class Att, class Tile, class Epilogue>
TGC_DEV void attention_decode_task(const AttIn<E, Att> &in, float *work, int *done, int B, int T,
                                   const Rt *rt, int tile, char *smem, Epilogue epilogue)
{
        typedef AttDecodeShape<E, Att, Tile> Sh;
        constexpr int ROWS = Tile::ROWS, SPLITS = Tile::SPLITS, GROUP = Att::H / Att::K,
                      RECORD = att_record<Att>();
        static_assert(SPLITS >= 1 && SPLITS <= 32, "att_combine keeps one split per lane");
        const int groups = (T * GROUP + ROWS - 1) / ROWS, split = tile % SPLITS,
                  warp = threadIdx.x >> 5;
        const AttQueries<Att, Tile> rows = { tile / SPLITS % groups * ROWS,
                                             tile / SPLITS / groups % Att::K,
                                             tile / SPLITS / groups / Att::K };
        const int r0 = rows.r0, hk = rows.hk, b = rows.b;
        if (Att::MIXED && b >= rt->sampled)
                return;
        const int parts =
                att_sums<E, Att, Tile>(in, rows, T, rt, split, smem, PdlReady<Att> { rt, b }).parts;
        if (split >= parts)
                return;

        /* merges the warps, two columns per thread */
        constexpr int PAIRS = (Att::D + 1) / 2;
        for (int i = threadIdx.x; i < ROWS * PAIRS; i += Tile::THREADS) {
                const int r = i / PAIRS, d = i % PAIRS * 2, t = rows.t(r);
                if (t >= T)
                        break;
                const int h = rows.h(r);
                float o[2], ms[2];
                att_merge_warps<E, Att, Tile>(smem, r, d, o, ms);
                if (SPLITS > 1 && parts > 1) {
                        float *w = work + (((long)b * T + t) * Att::H + h) * (SPLITS * RECORD) +
                                   split * RECORD;
                        store(w + d, o);
                        if (d == 0)
                                store(w + RECORD - 2, ms);
                } else {
                        const float inv = ms[1] > 0.f ? 1.f / ms[1] : 0.f;
                        o[0] *= inv;
                        o[1] *= inv;
                        att_put2<Att::D>(epilogue, b * T + t, h * Att::D, d, o);
                }
        }
        if (SPLITS > 1 && parts > 1) {
                if (att_is_last(done + tile / SPLITS, parts, (int *)smem))
                        for (int r = r0 + warp; r < r0 + ROWS && r / GROUP < T; r += Sh::WARPS)
                                att_combine<Att, SPLITS>(work, parts,
                                                         ((long)b * T + r / GROUP) * Att::H +
                                                                 hk * GROUP + r % GROUP,
                                                         epilogue);
        }
        __syncthreads();
}

#endif
