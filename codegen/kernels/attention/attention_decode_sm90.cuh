/* attention_decode_sm90.cuh: attention_decode.cuh with the splits merged in clusters, through
 * distributed shared memory.
 *
 *      attention_decode_cluster<E, Att, AttDecode<ROWS, SPLITS, THREADS>, CLUSTER>(in, work, done,
 *              B, T, rt, tile, smem, epilogue)
 *              as attention_decode_task, in clusters of CLUSTER blocks; CLUSTER divides SPLITS;
 *              attention_decode_cluster_smem<...>() bytes.
 *
 *      attention_decode_stream<E, Att, Tile, CLUSTER, STAGES, ROOM>(map_k, map_v, ...)
 *              bitwise the same result: one block does the parts of a cluster one after the other,
 *              for batches that fill the device that way.  B * K * ceil(T * H/K / ROWS) * SPLITS /
 *              CLUSTER tiles.  ROOM (1 or CLUSTER): parts whose records have their own place in
 *              shared memory; with CLUSTER no warp waits for another until all parts are done.
 *              map_k, map_v (16-bit caches): boxes of 16 rows and 64 columns.
 *
 * Merging through global memory takes a fence, a counter and two dependent reads, half of the
 * time.  Here each block sends its rows' records to the first block of its cluster, whose mbarrier
 * counts the bytes.  A cache that one step of a cluster covers involves no other cluster.  For a
 * longer one, the first blocks of the clusters merge like attention_decode.cuh's splits.
 *
 * A stream loads keys and values some steps ahead into shared memory, across the boundary between
 * parts.  Every warp has its own ring of stages, so the block needs no barrier. */
#ifndef TGC_ATTENTION_DECODE_SM90_CUH
#define TGC_ATTENTION_DECODE_SM90_CUH

#include "attention_decode.cuh"
#include "ptx.cuh"

#ifdef TGC_SM90A

/* Shared memory: the warps' records (attention_decode.cuh); the records of the cluster's blocks;
 * the mbarrier. */
template <class E, class Att, class Tile, int CLUSTER>
struct AttClusterSmem {
        static constexpr int ALL = AttDecodeShape<E, Att, Tile>::SMEM;
        static constexpr int BAR = (ALL + CLUSTER * Tile::ROWS * att_record<Att>() * 4 + 15) / 16 *
                                   16,
                             SIZE = BAR + 16;
};

template <class E, class Att, class Tile, int CLUSTER>
__host__ __device__ constexpr int attention_decode_cluster_smem()
{
        return AttClusterSmem<E, Att, Tile, CLUSTER>::SIZE;
}

/* Merges columns d and d + 1 of n records of one row, `next` floats apart; not yet divided. */
template <class E, class Att>
TGC_DEV void att_merge_parts(const float *p, int next, int n, int d, float (&o)[2], float (&ms)[2])
{
        constexpr int RECORD = att_record<Att>();
        ms[0] = -INFINITY;
        ms[1] = o[0] = o[1] = 0.f;
        for (int s = 0; s < n; s++)
                ms[0] = fmaxf(ms[0], p[s * next + RECORD - 2]);
        for (int s = 0; s < n; s++) {
                const float f = att_exp2<E>(p[s * next + RECORD - 2] -
                                            (ms[0] == -INFINITY ? 0.f : ms[0]));
                ms[1] += f * p[s * next + RECORD - 1];
                o[0] += f * p[s * next + d];
                o[1] += f * p[s * next + d + 1];
        }
}

/* Merges the records of one cluster, which lie in `all`.  The result goes to the epilogue, or, if
 * the cache has more clusters, to a record in work; the last of the clusters merges those.  Every
 * thread sees all of `all`. */
template <class E, class Att, class Tile, int CLUSTER, class Epilogue>
TGC_DEV void att_finish(const float *all, float *work, int *done, int B, int T, int tile,
                        const AttQueries<Att, Tile> &rows, int parts, int own, char *smem,
                        const Epilogue &epilogue)
{
        constexpr int ROWS = Tile::ROWS, SPLITS = Tile::SPLITS, GROUP = Att::H / Att::K,
                      RECORD = att_record<Att>(), PAIRS = (Att::D + 1) / 2;
        const int split = tile % SPLITS, r0 = rows.r0, hk = rows.hk, b = rows.b,
                  n_rows = T * GROUP - r0 < ROWS ? T * GROUP - r0 : ROWS;
        for (int i = threadIdx.x; i < n_rows * PAIRS; i += Tile::THREADS) {
                const int r = i / PAIRS, d = i % PAIRS * 2, t = rows.t(r), h = rows.h(r);
                float o[2], ms[2];
                att_merge_parts<E, Att>(all + r * RECORD, ROWS * RECORD, own, d, o, ms);
                if (parts > CLUSTER) {
                        float *w = work + (((long)b * T + t) * Att::H + h) * (SPLITS * RECORD) +
                                   split / CLUSTER * RECORD;
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
        if (SPLITS > CLUSTER && parts > CLUSTER) {
                const int clusters = (parts + CLUSTER - 1) / CLUSTER, warp = threadIdx.x >> 5;
                if (att_is_last(done + tile / SPLITS, clusters, (int *)smem))
                        for (int r = r0 + warp; r < r0 + n_rows;
                             r += AttDecodeShape<E, Att, Tile>::WARPS)
                                att_combine<Att, SPLITS>(work, clusters,
                                                         ((long)b * T + r / GROUP) * Att::H +
                                                                 hk * GROUP + r % GROUP,
                                                         epilogue);
        }
}

template <class E, class Att, class Tile, int CLUSTER, class Epilogue>
TGC_DEV void attention_decode_cluster(const AttIn<E, Att> &in, float *work, int *done, int B, int T,
                                      const Rt *rt, int tile, char *smem, Epilogue epilogue)
{
        typedef AttDecodeShape<E, Att, Tile> Sh;
        typedef AttClusterSmem<E, Att, Tile, CLUSTER> S;
        constexpr int ROWS = Tile::ROWS, SPLITS = Tile::SPLITS, GROUP = Att::H / Att::K,
                      RECORD = att_record<Att>();
        constexpr int PAIRS = (Att::D + 1) / 2;
        static_assert(SPLITS % CLUSTER == 0 && SPLITS <= 32,
                      "clusters of splits; att_combine keeps one split per lane");
        const int groups = (T * GROUP + ROWS - 1) / ROWS, split = tile % SPLITS,
                  rank = split % CLUSTER;
        const AttQueries<Att, Tile> rows = { tile / SPLITS % groups * ROWS,
                                             tile / SPLITS / groups % Att::K,
                                             tile / SPLITS / groups / Att::K };
        const int r0 = rows.r0, hk = rows.hk, b = rows.b,
                  n_rows = T * GROUP - r0 < ROWS ? T * GROUP - r0 : ROWS;
        if (Att::MIXED && b >= rt->sampled) /* the whole cluster exits */
                return;
        float *all = (float *)(smem + S::ALL);
        Mbar *const bar = (Mbar *)(smem + S::BAR);
        if (threadIdx.x == 0) {
                mbarrier_init(bar, 1);
                fence_barrier_init();
        }
        __syncwarp();
        cluster_arrive_relaxed();
        const int parts =
                att_sums<E, Att, Tile>(in, rows, T, rt, split, smem, PdlReady<Att> { rt, b }).parts;
        /* parts of this cluster */
        const int left = parts - (split - rank), own = left < CLUSTER ? left : CLUSTER;
        cluster_wait(); /* the first block's mbarrier is initialised */
        if (rank >= own)
                return;
        if (rank == 0 && threadIdx.x == 0)
                mbarrier_expect_tx(bar, (unsigned)(own * n_rows * RECORD * 4));
        /* send this block's records to the first block of the cluster */
        for (int i = threadIdx.x; i < n_rows * PAIRS; i += Tile::THREADS) {
                const int r = i / PAIRS, d = i % PAIRS * 2;
                float o[2], ms[2], *to = all + (rank * ROWS + r) * RECORD;
                att_merge_warps<E, Att, Tile>(smem, r, d, o, ms);
                send_cluster((unsigned *)to + d, bar, 0, __float_as_uint(o[0]));
                send_cluster((unsigned *)to + d + 1, bar, 0, __float_as_uint(o[1]));
                if (d == 0) {
                        send_cluster((unsigned *)to + RECORD - 2, bar, 0, __float_as_uint(ms[0]));
                        send_cluster((unsigned *)to + RECORD - 1, bar, 0, __float_as_uint(ms[1]));
                }
        }
        if (rank)
                return;
        mbarrier_wait(bar, 0);
        att_finish<E, Att, Tile, CLUSTER>(all, work, done, B, T, tile, rows, parts, own, smem,
                                          epilogue);
}

/* ---- stream: one block does the parts of a cluster one after the other ---- */

/* A warp's ring of STAGES steps, each 16 keys and values.  ahead: the next key to request.  Its
 * `row` is looked up one step early, as a page number takes as long to load as keys do. */

/* 8-bit caches: a lane copies by cp.async what it will read itself. */
template <class E, class Att, class Tile, int STAGES>
struct AttCopies {
        typedef AttDecodeShape<E, Att, Tile> Sh;
        static constexpr int STAGE = Tile::THREADS * Sh::Step::PIECES, /* in 16-byte pieces */
                SIZE = STAGES * STAGE * 16, AHEAD = STAGES - 1;
        uint4 *ring;
        const AttKeys<E, Att> &k, &v;
        int ahead, s1, put, at;
        long row;

        __device__ __forceinline__ AttCopies(char *smem, const AttKeys<E, Att> &k_,
                                             const AttKeys<E, Att> &v_, int first, int s1_)
            : ring((uint4 *)smem), k(k_), v(v_), ahead(first), s1(s1_), put(0), at(0),
              row(first < s1_ ? k_.row(first) - first : 0)
        {
        }
        __device__ __forceinline__ void copy()
        {
                if (ahead < s1)
                        Sh::Step::copy(ring + put * STAGE, k.base + row * k.step, k.step,
                                       v.base + row * v.step, v.step, ahead, s1);
                cp_async_commit();
                ahead += Sh::STEP;
                row = ahead < s1 ? k.row(ahead) - ahead : 0;
                put = put + 1 < STAGES ? put + 1 : 0;
        }
        __device__ __forceinline__ void take(typename Sh::Step &step, int)
        {
                cp_async_wait<STAGES - 2>();
                step.take_codes(ring + at * STAGE, k.base.shift());
                at = at + 1 < STAGES ? at + 1 : 0;
        }
};

/* 16-bit caches: TMA boxes of 16 rows and 64 columns with 128-byte swizzle, first keys, then
 * values. */
template <class E, class Att, class Tile, int STAGES>
struct AttBoxes {
        typedef AttDecodeShape<E, Att, Tile> Sh;
        static constexpr int KEYS = 16, BOX = KEYS * 128, HALF = KEYS * Att::D * 2,
                             STAGE = 2 * HALF, RINGS = Tile::THREADS / 32 * STAGES * STAGE,
                             SIZE = RINGS + Tile::THREADS / 32 * STAGES * 8, AHEAD = STAGES;
        const AttKeys<E, Att> &k;
        const AttMap &map_k, &map_v;
        char *ring;
        Mbar *bar;
        int hk, base, ahead, s1, put, at, row;
        unsigned round;

        __device__ __forceinline__ AttBoxes(char *smem, const AttKeys<E, Att> &k_, const AttMap &mk,
                                            const AttMap &mv, int hk_, int base_, int first,
                                            int s1_)
            : k(k_), map_k(mk), map_v(mv), ring(smem + (threadIdx.x >> 5) * (STAGES * STAGE)),
              bar((Mbar *)(smem + RINGS) + (threadIdx.x >> 5) * STAGES), hk(hk_), base(base_),
              ahead(first), s1(s1_), put(0), at(0),
              row(first < s1_ ? base_ + (int)k_.row(first) : 0), round(0)
        {
                if ((threadIdx.x & 31) == 0) {
                        for (int i = 0; i < STAGES; i++)
                                mbarrier_init(bar + i, 1);
                        fence_barrier_init();
                        fence_proxy_async();
                }
        }
        __device__ __forceinline__ void copy()
        {
                __syncwarp(); /* all lanes have read this stage */
                if (ahead < s1 && (threadIdx.x & 31) == 0) {
                        char *to = ring + put * STAGE;
                        mbarrier_expect_tx(bar + put, STAGE);
#pragma unroll
                        for (int c = 0; c < Att::D / 64; c++)
                                tma_load_2d(to + c * BOX, map_k.map, bar + put,
                                            map_k.col + hk * map_k.head + c * 64, row);
#pragma unroll
                        for (int c = 0; c < Att::D / 64; c++)
                                tma_load_2d(to + HALF + c * BOX, map_v.map, bar + put,
                                            map_v.col + hk * map_v.head + c * 64, row);
                }
                ahead += Sh::STEP;
                row = ahead < s1 ? base + (int)k.row(ahead) : 0;
                put = put + 1 < STAGES ? put + 1 : 0;
        }
        /* Keys from n0 on.  Behind the last one there may be anything: scores are masked, values
         * set to 0. */
        __device__ __forceinline__ void take(typename Sh::Step &step, int n0)
        {
                typedef typename Sh::Step Step;
                const int g = Step::g(), t = Step::t();
                const char *from = ring + at * STAGE;
                mbarrier_wait(bar + at, round);
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                        for (int c = 0; c < Step::KC; c++)
                                step.k[i][c] = *(const uint4 *)(from + c / 2 * BOX +
                                                                (g + 8 * i) * 128 +
                                                                ((c % 2 * 4 + t) ^ g) * 16);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        const int key = Step::key(i);
#pragma unroll
                        for (int c = 0; c < Step::VC; c++) {
                                step.v[i][c] = *(const uint4 *)(from + HALF + c * BOX + key * 128 +
                                                                (g ^ (key & 7)) * 16);
                                if (n0 + key >= s1)
                                        step.v[i][c] = uint4 { 0, 0, 0, 0 };
                        }
                }
                at = at + 1 < STAGES ? at + 1 : 0;
                round ^= at == 0;
        }
};

/* Shared memory: the ring; the warps' records of ROOM parts; the records of all parts. */
template <class E, class Att, class Tile, int CLUSTER, int STAGES, int ROOM>
struct AttStreamSmem {
        typedef AttDecodeShape<E, Att, Tile> Sh;
        template <bool CODES, int>
        struct RingOf {
                typedef AttCopies<E, Att, Tile, STAGES> Is;
        };
        template <int N>
        struct RingOf<false, N> {
                typedef AttBoxes<E, Att, Tile, STAGES> Is;
        };
        typedef typename RingOf<Att::FP8, 0>::Is Ring;
        static constexpr int WARPS = Ring::SIZE, ALL = WARPS + ROOM * Sh::SMEM,
                             SIZE = (ALL + CLUSTER * Tile::ROWS * att_record<Att>() * 4 + 15) / 16 *
                                    16;
};

template <class E, class Att, class Tile, int CLUSTER, int STAGES, int ROOM>
__host__ __device__ constexpr int attention_decode_stream_smem()
{
        return AttStreamSmem<E, Att, Tile, CLUSTER, STAGES, ROOM>::SIZE;
}

template <class E, class Att, class Tile, int CLUSTER, int STAGES, int ROOM, class Epilogue>
TGC_DEV void attention_decode_stream(const AttMap &map_k, const AttMap &map_v,
                                     const AttIn<E, Att> &in, float *work, int *done, int B, int T,
                                     const Rt *rt, int tile, char *smem, Epilogue epilogue)
{
        typedef AttDecodeShape<E, Att, Tile> Sh;
        typedef AttStreamSmem<E, Att, Tile, CLUSTER, STAGES, ROOM> S;
        typedef typename S::Ring Ring;
        constexpr int ROWS = Tile::ROWS, SPLITS = Tile::SPLITS, GROUP = Att::H / Att::K,
                      RECORD = att_record<Att>(), PAIRS = (Att::D + 1) / 2, STEP = Sh::STEP;
        static_assert(Sh::Step::FETCHES && Att::PAGE % Sh::Step::WARP_KEYS == 0 && STAGES > 1,
                      "a warp's keys of a step lie in one page");
        static_assert(ROOM == 1 || ROOM == CLUSTER, "parts are merged one by one, or all at once");
        const int groups = (T * GROUP + ROWS - 1) / ROWS, n = tile / (SPLITS / CLUSTER),
                  split = tile % (SPLITS / CLUSTER) * CLUSTER, warp = threadIdx.x >> 5;
        const AttQueries<Att, Tile> rows = { n % groups * ROWS, n / groups % Att::K,
                                             n / groups / Att::K };
        const int n_rows = T * GROUP - rows.r0 < ROWS ? T * GROUP - rows.r0 : ROWS;
        if (Att::MIXED && rows.b >= rt->sampled)
                return;
        const AttKeys<E, Att> k(in.k, in.sk, rt, rows.b, rows.hk),
                v(in.v, in.sv, rt, rows.b, rows.hk);
        float *const warps = (float *)(smem + S::WARPS), *const all = (float *)(smem + S::ALL);

        const AttPart guess = att_part<E, Att, Tile>(Att::CACHED ? load_acquire(rt->pos + rows.b)
                                                                 : 0,
                                                     T, split);
        att_fetch<E, Att, Tile>(guess, k, v);
        const AttHead<E, Att> hd(in, rt, rows.b, rows.hk * GROUP, T,
                                 PdlReady<Att> { rt, rows.b }());
        const AttPart first = att_part<E, Att, Tile>(hd.pos, T, split);
        const int left = first.parts - split, own = left < CLUSTER ? left : CLUSTER;
        if (own <= 0)
                return;
        /* this block's keys [s0, s1), `each` per part: whole steps in all but the last */
        const int s0 = first.s0, each = first.s1 - s0,
                  s1 = att_part<E, Att, Tile>(hd.pos, T, split + own - 1).s1;
        Ring ring = [&] {
                const int from = s0 + warp * Sh::Step::WARP_KEYS;
                if constexpr (Att::FP8)
                        return Ring(smem, k, v, from, s1);
                else
                        return Ring(smem, k, map_k, map_v, rows.hk,
                                    Att::PAGE ? 0 : rows.b * (int)(in.sk.b / in.sk.t), from, s1);
        }();
#pragma unroll
        /* fill the ring */
        for (int i = 0; i < Ring::AHEAD; i++)
                ring.copy();
        /* Merges the warps' records of parts [from, to), in `warps`, into one per row. */
        auto merge = [&](int from, int to) {
                const int units = n_rows * PAIRS;
                for (int i = threadIdx.x; i < (to - from) * units; i += Tile::THREADS) {
                        const int p = i / units, r = i % units / PAIRS, d = i % PAIRS * 2;
                        float o[2], ms[2], *part = all + ((from + p) * ROWS + r) * RECORD;
                        att_merge_warps<E, Att, Tile>((const char *)warps + p * Sh::SMEM, r, d, o,
                                                      ms);
                        store(part + d, o);
                        if (d == 0)
                                store(part + RECORD - 2, ms);
                }
        };
        typename Sh::Step step;
        for (int part = 0, p0 = s0; part < own; part++, p0 += each) {
                const int p1 = p0 + each < s1 ? p0 + each : s1;
                typename Sh::Sums sums(in, rows, T);
                for (int n0 = p0 + warp * Sh::Step::WARP_KEYS; n0 < p1; n0 += STEP) {
                        ring.take(step, n0);
                        ring.copy();
                        sums.add(step, hd, rows, n0, p1);
                }
                if (ROOM == 1)
                        __syncthreads(); /* the previous part is merged */
                sums.put(warps + ((ROOM > 1 ? part * Sh::WARPS : 0) + warp) * ROWS * RECORD);
                if (ROOM == 1) {
                        __syncthreads();
                        merge(part, part + 1);
                }
        }
        if (ROOM > 1) {
                __syncthreads();
                merge(0, own);
        }
        __syncthreads();
        if constexpr (Att::FP8)
                cp_async_wait<0>();
        att_finish<E, Att, Tile, CLUSTER>(all, work, done, B, T, n * SPLITS + split, rows,
                                          first.parts, own, (char *)warps, epilogue);
}
#endif

#endif
