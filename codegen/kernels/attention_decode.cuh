/* attention_decode.cuh: attention.cuh's function for a few queries and a long cache.
 *
 * The cost is reading k and v once, so one block serves all query heads of a kv head
 * (ROWS query rows: T x H/K, in groups of ROWS where there are more), and the
 * cache is split over SPLITS blocks:
 *
 *   attention_decode_task<E, Att, AttDecode<ROWS, SPLITS, THREADS>>(in, work, done, B, T, rt, tile, smem, tail)
 *      B * K * ceil(T * H/K / ROWS) * SPLITS tiles; attention_decode_smem<...>() bytes of shared memory;
 *      tail as in attention_task.  SPLITS > 1: partial results go to work, floats
 *      (B*T*H, SPLITS, att_record<Att>()); the block that is done last of those that share rows and have keys
 *      merges them, in order of the splits whichever it is.  done, an int for each SPLITS tiles, counts
 *      them: 0 before and after.  SPLITS == 1: both are null.
 *
 * Launch sizes depend on B and T only; what part of the cache a block reads follows from
 * rt->pos, so a captured graph serves every position.  Choose ROWS as the power of two
 * (1..8) at or above T * H/K, SPLITS (1..32) so that the tiles fill the device at the
 * longest context.
 *
 * LANES lanes share a key, 16 bytes each, and keep q and their part of the output
 * in registers; each such group runs its own online softmax, and the groups are merged at
 * the end: in a warp by shuffles, then over warps through shared memory. */
#ifndef TGC_ATTENTION_DECODE_CUH
#define TGC_ATTENTION_DECODE_CUH

#include "attention.cuh"

template <int ROWS_, int SPLITS_, int THREADS_>
struct AttDecode { static constexpr int ROWS = ROWS_, SPLITS = SPLITS_, THREADS = THREADS_; };

/* Floats of one row's part: D sums (D even or one more), the largest score, the sum of weights. */
template <class Att> __host__ __device__ constexpr int att_record() { return (Att::D + 1) / 2 * 2 + 2; }

template <class E, class Att, class Tile>
struct AttDecodeShape {
        typedef AttLanes<E, Att> L;
        static constexpr int WARPS = Tile::THREADS / 32;
        static constexpr int KEYS = 32 / L::LANES;                      /* keys a warp reads at once */
        static constexpr int CV = L::C * L::V;                          /* elements of a lane        */
        /* such reads in flight; of one row, as many as leave registers for the blocks of the next launch */
        static constexpr int UNROLL = Tile::ROWS * CV <= 8 && Tile::THREADS <= 192 ? 8 : Tile::ROWS * CV <= 32 ? 4 : 2;
        static constexpr int STEP = WARPS * KEYS * UNROLL;
        static constexpr int SMEM = WARPS * Tile::ROWS * att_record<Att>() * 4;
};

template <class E, class Att, class Tile>
__host__ __device__ constexpr int attention_decode_smem() { return AttDecodeShape<E, Att, Tile>::SMEM; }

/* The keys [s0, s1) of a split, equal parts of those that any row attends, and how many splits have any. */
struct AttPart { int s0, s1, parts; };

template <class E, class Att, class Tile>
TGC_DEV AttPart att_part(int pos, int T, int split)
{
        constexpr int STEP = AttDecodeShape<E, Att, Tile>::STEP;
        const int lo = Att::WINDOW > 0 && pos + 1 > Att::WINDOW ? pos + 1 - Att::WINDOW : 0, hi = pos + T;
        const int chunk = ((hi - lo + Tile::SPLITS - 1) / Tile::SPLITS + STEP - 1) / STEP * STEP;
        const int s0 = lo + split * chunk, s1 = s0 + chunk < hi ? s0 + chunk : hi;
        return { s0, s1, hi > lo ? (hi - lo + chunk - 1) / chunk : 1 };
}

/* Before the wait: the part's keys and values come into L2.  Only the last one is still being written, and if even
 * the position is not yet this step's, other lines of the cache come. */
template <class E, class Att, class Tile>
TGC_DEV void att_fetch(const AttPart &at, const E *k, long k_step, const E *v, long v_step)
{
        for (int s = at.s0 + (int)threadIdx.x; s < at.s1; s += Tile::THREADS)
#pragma unroll
                for (int d = 0; d < Att::D; d += 128 / (int)sizeof(E)) {
                        prefetch_l2(k + s * k_step + d);
                        prefetch_l2(v + s * v_step + d);
                }
}

/* One step's keys and values of this lane's group, 0 where there is none. */
template <class E, class Att, class Tile>
struct AttStep {
        typedef AttDecodeShape<E, Att, Tile> Sh;
        typedef typename Sh::L::Bytes Bytes;
        Bytes k[Sh::UNROLL][Sh::L::C], v[Sh::UNROLL][Sh::L::C];

        __device__ __forceinline__ void clear()
        {
#pragma unroll
                for (int u = 0; u < Sh::UNROLL; u++)
#pragma unroll
                        for (int c = 0; c < Sh::L::C; c++)
                                k[u][c] = v[u][c] = Bytes{};
        }
        /* Positions n0, n0 + KEYS, ... that lie in [lo, hi). */
        template <bool PAST_L1>
        __device__ __forceinline__ void read(const E *kp, long k_step, const E *vp, long v_step, int n0, int lo,
                                             int hi, int lane)
        {
#pragma unroll
                for (int u = 0; u < Sh::UNROLL; u++) {
                        const int s = n0 + u * Sh::KEYS;
                        if (s >= lo && s < hi) {
                                Sh::L::template get<PAST_L1>(k[u], kp + s * k_step, lane);
                                Sh::L::template get<PAST_L1>(v[u], vp + s * v_step, lane);
                        }
                }
        }
};

/* Two online softmaxes become one: (top, sum, acc) += (top2, sum2, acc2) brought to a common scale.
 * The factors for each; both 0 where neither has seen a key. */
template <class E>
TGC_DEV void att_merge(float &top, float top2, float &f, float &f2)
{
        float t = fmaxf(top, top2), zero = t == -INFINITY ? 0.f : t;
        f = att_exp2<E>(top - zero);
        f2 = att_exp2<E>(top2 - zero);
        top = t;
}

/* A warp merges the first n parts of one row of (B*T, H); lane i holds the weight of split i. */
template <class Att, int SPLITS, class Tail>
TGC_DEV void att_combine(const float *work, int n, long row, Tail tail)
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
                        att_put2<Att::D>(tail, (int)(row / Att::H), (int)(row % Att::H) * Att::D, d, o);
        }
}

/* The position of a sequence, once the launch before has ended. */
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

/* A block's part of the cache for ROWS query rows: where it is, and who they are. */
template <class Att, class Tile>
struct AttQueries {
        static constexpr int GROUP = Att::H / Att::K;
        int r0, hk, b;                                  /* rows r0.. of kv head hk of sequence b */
        __device__ int t(int r) const { return (r0 + r) / GROUP; }
        __device__ int h(int r) const { return hk * GROUP + (r0 + r) % GROUP; }
};

/* The softmax sums of split `split` of the cache: a record per warp and row, smem[(warp * ROWS + r) * RECORD]: D sums,
 * the largest score, the sum of weights.  Ends with a barrier, unless split >= parts of what it returns: then there
 * is nothing to do and nothing done.  ready() comes back when q and the last keys are there, with the position.
 * new_k, new_v: the one token's own key and value, of this head, if they do not lie in the cache. */
template <class E, class Att, class Tile, class Ready>
TGC_DEV AttPart att_sums(const AttIn<E, Att> &in, const AttQueries<Att, Tile> &rows, int T, const Rt *rt, int split,
                         char *smem, const Ready &ready, const E *new_k = nullptr, const E *new_v = nullptr)
{
        typedef AttDecodeShape<E, Att, Tile> Sh;
        typedef typename Sh::L L;
        constexpr int ROWS = Tile::ROWS, GROUP = Att::H / Att::K, RECORD = att_record<Att>(), U = Sh::UNROLL;
        const int b = rows.b, hk = rows.hk;
        const int warp = threadIdx.x >> 5, lane = threadIdx.x % L::LANES, key = (threadIdx.x & 31) / L::LANES;
        const E *k = in.k + b * in.sk.b + hk * in.sk.h, *v = in.v + b * in.sv.b + hk * in.sv.h;
        /* Before the wait: the first step's keys and values that lie in the cache already.  If this position is
         * not yet this step's, they are read again. */
        AttStep<E, Att, Tile> step;
        const int own = warp * Sh::KEYS * U + key;
        const int early = Att::CACHED ? load_acquire(rt->pos + b) : 0;
        const AttPart guess = att_part<E, Att, Tile>(early, T, split);
        att_fetch<E, Att, Tile>(guess, k, in.sk.t, v, in.sv.t);
        step.clear();
        step.template read<true>(k, in.sk.t, v, in.sv.t, guess.s0 + own, 0, guess.s1 < early ? guess.s1 : early, lane);
        const AttHead<E, Att> hd(in, rt, b, hk * GROUP, T, ready());
        float q[ROWS][Sh::CV], acc[ROWS][Sh::CV], top[ROWS], sum[ROWS], slope[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
                const int t = rows.t(r), h = rows.h(r);
                const bool row = t < T;
                slope[r] = Att::ALIBI && row ? in.slopes[h] : 0.f;
                top[r] = -INFINITY;
                sum[r] = 0.f;
#pragma unroll
                for (int c = 0; c < Sh::CV; c++)
                        q[r][c] = acc[r][c] = 0.f;
                if (row)
                        L::read(q[r], in.q + b * in.sq.b + t * in.sq.t + h * in.sq.h, lane);
        }
        const AttPart at = att_part<E, Att, Tile>(hd.pos, T, split);
        const int s0 = at.s0, s1 = at.s1;
        if (split >= at.parts)
                return at;
        const int cached = new_k && hd.pos < s1 ? hd.pos : s1;

        for (int n0 = s0 + own; n0 - key < s1; n0 += Sh::STEP) {
                float x[ROWS][U];
                const int have = n0 == s0 + own && hd.pos == early ? early : 0;
                if (!have)
                        step.clear();
                if (have < cached)
                        step.template read<false>(k, in.sk.t, v, in.sv.t, n0, have, cached, lane);
                if (new_k)
                        step.template read<false>(new_k - hd.pos * in.sk.t, in.sk.t, new_v - hd.pos * in.sv.t, in.sv.t,
                                                  n0, hd.pos, s1, lane);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        const int t = rows.t(r);
                        AttHead<E, Att> hr = hd;
                        hr.slope = slope[r];
                        float mx = top[r];
#pragma unroll
                        for (int u = 0; u < U; u++) {
                                const int s = n0 + u * Sh::KEYS;
                                float dot = 0.f, derivative;
#pragma unroll
                                for (int c = 0; c < Sh::CV; c++)
                                        dot = fmaf(q[r][c], L::value(step.k[u], c), dot);
#pragma unroll
                                for (int d = L::LANES / 2; d; d >>= 1)
                                        dot += __shfl_xor_sync(0xffffffffu, dot, d);
                                x[r][u] = s < s1 && hr.attends(t, s)
                                        ? (hr.SHAPED ? hr.score(dot, t, s, derivative) : dot) * hr.BASE2 : -INFINITY;
                                mx = fmaxf(mx, x[r][u]);
                        }
                        const float zero = mx == -INFINITY ? 0.f : mx, scale = att_exp2<E>(top[r] - zero);
                        top[r] = mx;
                        sum[r] *= scale;
#pragma unroll
                        for (int c = 0; c < Sh::CV; c++)
                                acc[r][c] *= scale;
#pragma unroll
                        for (int u = 0; u < U; u++) {
                                const float p = att_exp2<E>(x[r][u] - zero);
                                sum[r] += p;
#pragma unroll
                                for (int c = 0; c < Sh::CV; c++)
                                        acc[r][c] = fmaf(p, L::value(step.v[u], c), acc[r][c]);
                        }
                }
        }

        float *part = (float *)smem + warp * ROWS * RECORD;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
                for (int d = L::LANES; d < 32; d <<= 1) {
                        float f, f2, other = __shfl_xor_sync(0xffffffffu, top[r], d);
                        att_merge<E>(top[r], other, f, f2);
                        sum[r] = sum[r] * f + __shfl_xor_sync(0xffffffffu, sum[r], d) * f2;
#pragma unroll
                        for (int c = 0; c < Sh::CV; c++)
                                acc[r][c] = acc[r][c] * f + __shfl_xor_sync(0xffffffffu, acc[r][c], d) * f2;
                }
                if (key == 0)
#pragma unroll
                        for (int c = 0; c < Sh::CV; c++)
                                if (L::column(lane, c) < Att::D)
                                        part[r * RECORD + L::column(lane, c)] = acc[r][c];
                if ((threadIdx.x & 31) == 0) {
                        part[r * RECORD + RECORD - 2] = top[r];
                        part[r * RECORD + RECORD - 1] = sum[r];
                }
        }
        __syncthreads();
        return at;
}

/* Columns d and d + 1 of row r, not divided yet: the records of all warps together. */
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

/* Whether this block is the last of n to come here, which then sees what the others wrote before.  *count: 0 before and after;
 * last: in shared memory. */
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

template <class E, class Att, class Tile, class Tail>
TGC_DEV void attention_decode_task(const AttIn<E, Att> &in, float *work, int *done, int B, int T, const Rt *rt,
                                   int tile, char *smem, Tail tail)
{
        typedef AttDecodeShape<E, Att, Tile> Sh;
        constexpr int ROWS = Tile::ROWS, SPLITS = Tile::SPLITS, GROUP = Att::H / Att::K, RECORD = att_record<Att>();
        static_assert(SPLITS >= 1 && SPLITS <= 32, "att_combine keeps one split per lane");
        const int groups = (T * GROUP + ROWS - 1) / ROWS, split = tile % SPLITS, warp = threadIdx.x >> 5;
        const AttQueries<Att, Tile> rows = { tile / SPLITS % groups * ROWS, tile / SPLITS / groups % Att::K,
                                          tile / SPLITS / groups / Att::K };
        const int r0 = rows.r0, hk = rows.hk, b = rows.b;
        const int parts = att_sums<E, Att, Tile>(in, rows, T, rt, split, smem, PdlReady<Att>{ rt, b }).parts;
        if (split >= parts)
                return;

        /* Merge the warps, two columns per thread. */
        constexpr int PAIRS = (Att::D + 1) / 2;
        for (int i = threadIdx.x; i < ROWS * PAIRS; i += Tile::THREADS) {
                const int r = i / PAIRS, d = i % PAIRS * 2, t = rows.t(r);
                if (t >= T)
                        break;
                const int h = rows.h(r);
                float o[2], ms[2];
                att_merge_warps<E, Att, Tile>(smem, r, d, o, ms);
                if (SPLITS > 1 && parts > 1) {
                        float *w = work + (((long)b * T + t) * Att::H + h) * (SPLITS * RECORD) + split * RECORD;
                        store(w + d, o);
                        if (d == 0)
                                store(w + RECORD - 2, ms);
                } else {
                        const float inv = ms[1] > 0.f ? 1.f / ms[1] : 0.f;
                        o[0] *= inv;
                        o[1] *= inv;
                        att_put2<Att::D>(tail, b * T + t, h * Att::D, d, o);
                }
        }
        if (SPLITS > 1 && parts > 1) {
                if (att_is_last(done + tile / SPLITS, parts, (int *)smem))
                        for (int r = r0 + warp; r < r0 + ROWS && r / GROUP < T; r += Sh::WARPS)
                                att_combine<Att, SPLITS>(work, parts, ((long)b * T + r / GROUP) * Att::H + hk * GROUP
                                                                  + r % GROUP, tail);
        }
        __syncthreads();
}

#endif
