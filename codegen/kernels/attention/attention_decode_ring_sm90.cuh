/* attention_decode_ring_sm90.cuh: attention_decode.cuh's function on mma.sync, with keys and values
 * through rings in shared memory.
 *
 *      attention_decode_ring<E, Att, AttDecode<ROWS, SPLITS, THREADS, LEAST>, BLOCKS, CLUSTERS,
 *              STAGES>(map_k, map_v, in, work, done, B, T, rt, tile, smem, epilogue)
 *              B * K * ceil(T * H/K / ROWS) * BLOCKS * CLUSTERS tiles in clusters of BLOCKS blocks;
 *              attention_decode_ring_smem<...>() bytes.
 *              map_k, map_v (16-bit caches): boxes of 16 rows and 64 columns.
 *
 * A cluster has ROWS query rows of a kv head of a sequence.  Block `rank` does the cache's parts
 * rank, rank + BLOCKS, ...; the first block gets a record of each part and merges them in their
 * order.  With CLUSTERS > 1 cluster c does parts c * BLOCKS .. c * BLOCKS + BLOCKS - 1, one a
 * block; of a longer cache the last cluster to end merges all records, through `work` and `done`
 * (as in attention_decode_task; both null if CLUSTERS is 1).
 *
 * How a cache is parted and in which order sums are added depends on the cache alone.  So BLOCKS,
 * CLUSTERS and STAGES do not change a bit of the result.
 *
 * Every warp has its own ring of stages with 16 keys and values each, across the boundary between
 * parts.  No other warp takes part in it.  Stages are filled before pdl_wait, as far as keys were
 * in the cache before this step. */
#ifndef TGC_ATTENTION_DECODE_RING_SM90_CUH
#define TGC_ATTENTION_DECODE_RING_SM90_CUH

#include "attention_rings_sm90.cuh"

#ifdef TGC_SM90A

/* A thread's share of ROWS rows of the result: pairs of columns u * THREADS + threadIdx.x, over
 * all rows.  Parts are added in the order of the calls. */
template <class E, class Att, class Tile>
struct AttParts {
        static constexpr int PAIRS = (Att::D + 1) / 2,
                             UNITS = (Tile::ROWS * PAIRS + Tile::THREADS - 1) / Tile::THREADS;
        float o[UNITS][2], top[UNITS], sum[UNITS];

        __device__ __forceinline__ AttParts()
        {
#pragma unroll
                for (int u = 0; u < UNITS; u++) {
                        top[u] = -INFINITY;
                        sum[u] = o[u][0] = o[u][1] = 0.f;
                }
        }
        /* each(u, r, d): unit u of this thread, columns d and d + 1 of row r. */
        template <class Each>
        static __device__ __forceinline__ void for_each(int n_rows, const Each &each)
        {
#pragma unroll
                for (int u = 0; u < UNITS; u++) {
                        const int i = u * Tile::THREADS + threadIdx.x, r = i / PAIRS;
                        if (r < n_rows)
                                each(u, r, i % PAIRS * 2);
                }
        }
        /* ms: the part's maximum score and sum of weights.  fmaf: every caller rounds alike. */
        __device__ __forceinline__ void add(int u, const float (&part)[2], const float (&ms)[2])
        {
                float f, f2;
                att_merge<E>(top[u], ms[0], f, f2);
                sum[u] = fmaf(f2, ms[1], sum[u] * f);
                o[u][0] = fmaf(f2, part[0], o[u][0] * f);
                o[u][1] = fmaf(f2, part[1], o[u][1] * f);
        }
        /* All of n records of each row: row r's first one at from(r), the others `next` floats
         * apart. */
        template <class From>
        __device__ __forceinline__ void add_all(int n, int next, int n_rows, const From &from)
        {
                constexpr int RECORD = att_record<Att>();
                for_each(n_rows, [&](int u, int r, int d) {
                        const float *p = from(r);
                        for (int s = 0; s < n; s++, p += next) {
                                float part[2], ms[2];
                                load(part, p + d);
                                load(ms, p + RECORD - 2);
                                add(u, part, ms);
                        }
                });
        }
        template <class Epilogue>
        __device__ __forceinline__ void put(int n_rows, const AttQueries<Att, Tile> &rows, int T,
                                            const Epilogue &epilogue) const
        {
                for_each(n_rows, [&](int u, int r, int d) {
                        const float inv = sum[u] > 0.f ? 1.f / sum[u] : 0.f,
                                    out[2] = { o[u][0] * inv, o[u][1] * inv };
                        att_put2<Att::D>(epilogue, rows.b * T + rows.t(r), rows.h(r) * Att::D, d,
                                         out);
                });
        }
};

/* Shared memory: the ring; the warps' records of a part; of several blocks the records of the
 * cluster's parts, and their mbarrier. */
template <class E, class Att, class Tile, int BLOCKS, int CLUSTERS, int STAGES>
struct AttRingSmem {
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
        static constexpr int PARTS = CLUSTERS > 1 ? BLOCKS : Tile::SPLITS, /* of a cluster */
                WARPS = Ring::SIZE, ALL = WARPS + Sh::SMEM,
                             BAR = (ALL +
                                    (BLOCKS > 1 ? PARTS * Tile::ROWS * att_record<Att>() * 4 : 0) +
                                    15) /
                                   16 * 16,
                             SIZE = BAR + 16;
};

template <class E, class Att, class Tile, int BLOCKS, int CLUSTERS, int STAGES>
__host__ __device__ constexpr int attention_decode_ring_smem()
{
        return AttRingSmem<E, Att, Tile, BLOCKS, CLUSTERS, STAGES>::SIZE;
}

/* Where a block stands: its query rows, and its parts mine, mine + BLOCKS * CLUSTERS, ... */
template <class Att, class Tile, int BLOCKS, int CLUSTERS>
struct AttRingPlace {
        int rank, cluster, mine, n; /* n: number of the rows among all sequences and heads */
        AttQueries<Att, Tile> rows;
        int n_rows;

        __device__ __forceinline__ AttRingPlace(int tile, int T)
            : rank(tile % BLOCKS), cluster(tile / BLOCKS % CLUSTERS), mine(cluster * BLOCKS + rank),
              n(tile / (BLOCKS * CLUSTERS))
        {
                constexpr int GROUP = Att::H / Att::K, ROWS = Tile::ROWS;
                const int groups = (T * GROUP + ROWS - 1) / ROWS;
                rows = { n % groups * ROWS, n / groups % Att::K, n / groups / Att::K };
                n_rows = T * GROUP - rows.r0 < ROWS ? T * GROUP - rows.r0 : ROWS;
        }
};

/* Fills the ring and waits for the previous launch; returns the position.  `walk(pos)`: this warp's
 * steps.  Before the wait come keys that the cache had before this step.  If the position turns out
 * to be another, they are loaded again. */
template <class Att, class Ring, class Walk>
TGC_DEV int att_ring_fill(Ring &ring, const Rt *rt, int b, int keys, const Walk &walk)
{
        /* one lane's reading for all, which share the ring; warps may read different positions */
        const int early = Att::CACHED ? __shfl_sync(0xffffffffu, load_acquire(rt->pos + b), 0) : 0;
        int filled = 0;
        ring.begin(walk(early));
        while (filled < Ring::AHEAD && ring.walk.key + keys <= early) {
                ring.copy();
                filled++;
        }
        const int pos = PdlReady<Att> { rt, b }();
        if (pos != early) {
                ring.drop(filled);
                filled = 0;
                ring.begin(walk(pos));
        }
        for (; filled < Ring::AHEAD; filled++)
                ring.copy();
        return pos;
}

/* Columns d and d + 1 of a record, with its maximum and sum if d is 0, to the cluster's first
 * block. */
template <class Att>
TGC_DEV void att_send(float *to, Mbar *bar, int d, const float (&o)[2], const float (&ms)[2])
{
        constexpr int RECORD = att_record<Att>();
        send_cluster((unsigned *)to + d, bar, 0, __float_as_uint(o[0]));
        send_cluster((unsigned *)to + d + 1, bar, 0, __float_as_uint(o[1]));
        if (d == 0) {
                send_cluster((unsigned *)to + RECORD - 2, bar, 0, __float_as_uint(ms[0]));
                send_cluster((unsigned *)to + RECORD - 1, bar, 0, __float_as_uint(ms[1]));
        }
}

template <class E, class Att, class Tile, int BLOCKS, int CLUSTERS, int STAGES, class Epilogue>
TGC_DEV void attention_decode_ring(const AttMap &map_k, const AttMap &map_v,
                                   const AttIn<E, Att> &in, float *work, int *done, int, int T,
                                   const Rt *rt, int tile, char *smem, Epilogue epilogue)
{
        typedef AttDecodeShape<E, Att, Tile> Sh;
        typedef AttRingSmem<E, Att, Tile, BLOCKS, CLUSTERS, STAGES> S;
        typedef typename S::Ring Ring;
        typedef AttParts<E, Att, Tile> Parts;
        constexpr int ROWS = Tile::ROWS, SPLITS = Tile::SPLITS, GROUP = Att::H / Att::K,
                      RECORD = att_record<Att>(), STEP = Sh::STEP, KEYS = Sh::Step::WARP_KEYS,
                      NEXT = BLOCKS * CLUSTERS;
        static_assert(Sh::Step::FETCHES && Att::PAGE % KEYS == 0 && STAGES > 1,
                      "a warp's keys of a step lie in one page");
        static_assert(BLOCKS <= SPLITS && (CLUSTERS == 1 || NEXT == SPLITS),
                      "every part has a block");
        const AttRingPlace<Att, Tile, BLOCKS, CLUSTERS> at(tile, T);
        const AttQueries<Att, Tile> &rows = at.rows;
        const int warp = threadIdx.x >> 5;
        if (Att::MIXED && rows.b >= rt->sampled) /* the whole cluster exits */
                return;
        float *const warps = (float *)(smem + S::WARPS), *const all = (float *)(smem + S::ALL);
        Mbar *const bar = (Mbar *)(smem + S::BAR);
        if (BLOCKS > 1) {
                if (threadIdx.x == 0) {
                        mbarrier_init(bar, 1);
                        fence_barrier_init();
                }
                __syncwarp();
                cluster_arrive_relaxed();
        }

        /* 1. keys and values under way */
        const AttKeys<E, Att> k(in.k, in.sk, rt, rows.b, rows.hk),
                v(in.v, in.sv, rt, rows.b, rows.hk);
        Ring ring = [&] {
                if constexpr (Att::FP8)
                        return Ring(smem, k, v);
                else
                        return Ring(smem, k, map_k, map_v, rows.hk,
                                    Att::PAGE ? 0 : rows.b * (int)(in.sk.b / in.sk.t));
        }();
        AttPart first; /* part 0 of the cache */
        int each = 0;  /* keys of a part: whole steps in all but the last */
        const int pos = att_ring_fill<Att>(ring, rt, rows.b, KEYS, [&](int p) {
                first = att_part<E, Att, Tile>(p, T, 0);
                each = first.s1 - first.s0;
                return AttWalk { first.s0 + at.mine * each + warp * KEYS,
                                 p + T,
                                 STEP,
                                 (each + STEP - 1) / STEP,
                                 each * (NEXT - 1),
                                 0 };
        });
        const AttHead<E, Att> hd(in, rt, rows.b, rows.hk * GROUP, T, pos);
        const int parts = first.parts, end = pos + T, begin = at.cluster * BLOCKS,
                  here = CLUSTERS == 1 || parts - begin < BLOCKS ? parts - begin : BLOCKS;
        if (BLOCKS > 1)
                cluster_wait(); /* the first block's mbarrier is initialised */
        if (at.mine >= parts)
                return;
        if (BLOCKS > 1 && at.rank == 0 && threadIdx.x == 0)
                mbarrier_expect_tx(bar, (unsigned)(here * at.n_rows * RECORD * 4));

        /* 2. this block's parts: online softmax in every warp; the warps' records merge into one
         *    of each row, which goes to the first block */
        Parts result;
        typename Sh::Step step;
        for (int part = at.mine; part < parts; part += NEXT) {
                const int p0 = first.s0 + part * each, p1 = p0 + each < end ? p0 + each : end;
                typename Sh::Sums sums(in, rows, T);
                for (int n0 = p0 + warp * KEYS; n0 < p1; n0 += STEP) {
                        ring.take(step, n0, end);
                        sums.add(step, hd, rows, n0, p1);
                        ring.copy();
                }
                __syncthreads(); /* the previous part is merged */
                sums.put(warps + warp * ROWS * RECORD);
                __syncthreads();
                Parts::for_each(at.n_rows, [&](int u, int r, int d) {
                        float o[2], ms[2];
                        att_merge_warps<E, Att, Tile>((const char *)warps, r, d, o, ms);
                        if (BLOCKS == 1)
                                result.add(u, o, ms);
                        else
                                att_send<Att>(all + ((part - begin) * ROWS + r) * RECORD, bar, d, o,
                                              ms);
                });
        }
        if constexpr (Att::FP8)
                cp_async_wait<0>();
        if (at.rank)
                return;

        /* 3. the first block merges the cluster's parts; the last of several clusters all parts */
        if (BLOCKS > 1)
                mbarrier_wait(bar, 0);
        if (CLUSTERS > 1 && parts > BLOCKS) {
                auto row = [&](int r) {
                        return work + (((long)rows.b * T + rows.t(r)) * Att::H + rows.h(r)) *
                                              (SPLITS * RECORD);
                };
                for (int i = threadIdx.x; i < here * at.n_rows * RECORD; i += Tile::THREADS) {
                        const int s = i / (at.n_rows * RECORD), r = i / RECORD % at.n_rows;
                        row(r)[(begin + s) * RECORD + i % RECORD] =
                                all[(s * ROWS + r) * RECORD + i % RECORD];
                }
                if (!att_is_last(done + at.n, (parts + BLOCKS - 1) / BLOCKS, (int *)warps))
                        return;
                result.add_all(parts, RECORD, at.n_rows, row);
        } else if (BLOCKS > 1) {
                result.add_all(parts, ROWS * RECORD, at.n_rows,
                               [&](int r) { return all + r * RECORD; });
        }
        result.put(at.n_rows, rows, T, epilogue);
}
#endif

#endif
