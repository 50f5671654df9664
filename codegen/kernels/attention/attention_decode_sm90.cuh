/* attention_decode_sm90.cuh: attention_decode.cuh with the splits merged in clusters, through
 * distributed shared memory.
 *
 *      attention_decode_cluster<E, Att, AttDecode<ROWS, SPLITS, THREADS>, CLUSTER>(in, work, done,
 *              B, T, rt, tile, smem, epilogue)
 *              as attention_decode_task, in clusters of CLUSTER blocks; CLUSTER divides SPLITS;
 *              attention_decode_cluster_smem<...>() bytes.
 *
 * Merging through global memory takes a fence, a counter and two dependent reads, half of the
 * time.  Here each block sends its rows' records to the first block of its cluster, whose mbarrier
 * counts the bytes.  A cache that one step of a cluster covers involves no other cluster.  For a
 * longer one, the first blocks of the clusters merge like attention_decode.cuh's splits. */
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
#endif

#endif
