/* attend_sm90.cuh: one token's q, k and v, and the attention over the cache that reads them, in one launch.
 *
 * Both are short, and between them lies a launch's worth of waiting; but a kv head's queries, keys and values
 * concern no other head.  So the blocks of one cluster make the columns of one kv head (matvec_short.cuh), meet at the
 * cluster's barrier, share its cache (attention_decode.cuh) and bring their sums together in the first block's shared
 * memory.  The cache's part that is there already is under way before anything is waited for.
 *
 *      attend_task<E, Att, AttendTile<CLUSTER, THREADS, ROWS, SPLIT, QUERIES>, AttendColumns<Q, K, V>, N, K, NORM, ALIGN>(
 *              w, ldw, eps, in, rt, smem, head, tail, att_tail[, gain[, keep]])
 *      Att::K clusters of CLUSTER blocks; attend_smem<...>() bytes of shared memory.
 *
 * w to keep, and ROWS, SPLIT: as in matvec_short_task, whose tail stores q and appends k and v; att_tail: as in
 * attention_task.  Of the product's columns those of head h's q begin at Q + h D, of kv head h's k at K + h D.
 * QUERIES: a power of two at or above H/K.  CLUSTER blocks of THREADS / 32 / SPLIT warps times ROWS columns make a kv
 * head's (H/K + 2) D columns, and ROWS divides D.  One sequence, one token. */
#ifndef TGC_ATTEND_SM90_CUH
#define TGC_ATTEND_SM90_CUH

#include "matvec_short.cuh"

#ifdef TGC_SM90A
#include "attention_decode.cuh"
#include "ptx_sm90.cuh"

template <int CLUSTER_, int THREADS_, int ROWS_, int SPLIT_, int QUERIES_>
struct AttendTile {
        static constexpr int CLUSTER = CLUSTER_, THREADS = THREADS_, ROWS = ROWS_, SPLIT = SPLIT_, QUERIES = QUERIES_;
        typedef AttDecode<QUERIES, CLUSTER, THREADS> Decode;
};

template <int Q_, int K_, int V_> struct AttendColumns { static constexpr int Q = Q_, K = K_, V = V_; };

template <class E, class Att, class Tile>
__host__ __device__ constexpr int attend_smem()
{
        return (Tile::THREADS / 32 + Tile::CLUSTER) * Tile::QUERIES * att_record<Att>() * 4;
}

/* The first of this warp's columns, of which there are ROWS. */
template <class Att, class Tile, class Columns>
TGC_DEV int attend_column(int hk, int rank)
{
        constexpr int D = Att::D, GROUP = Att::H / Att::K, COLS = Tile::THREADS / 32 / Tile::SPLIT * Tile::ROWS;
        static_assert(COLS * Tile::CLUSTER == (GROUP + 2) * D && D % Tile::ROWS == 0, "a kv head is a cluster's");
        const int c = rank * COLS + (int)(threadIdx.x >> 5) / Tile::SPLIT * Tile::ROWS;
        return c < GROUP * D ? Columns::Q + hk * GROUP * D + c
             : c < (GROUP + 1) * D ? Columns::K + hk * D + c - GROUP * D : Columns::V + hk * D + c - (GROUP + 1) * D;
}

/* Parts of one row, each the maximum and sums of its keys, to its D values. */
template <class E, class Att, class Tile, class Tail>
TGC_DEV void attend_combine(const float *all, int parts, int hk, const Tail &tail)
{
        constexpr int RECORD = att_record<Att>(), NEXT = Tile::QUERIES * RECORD, PAIRS = (Att::D + 1) / 2,
                      GROUP = Att::H / Att::K;
        for (int i = threadIdx.x; i < GROUP * PAIRS; i += Tile::THREADS) {
                const int r = i / PAIRS, d = i % PAIRS * 2;
                const float *p = all + r * RECORD;
                float top = -INFINITY, sum = 0.f, o[2] = { 0.f, 0.f };
                for (int s = 0; s < parts; s++)
                        top = fmaxf(top, p[s * NEXT + RECORD - 2]);
                for (int s = 0; s < parts; s++) {
                        const float f = att_exp2<E>(p[s * NEXT + RECORD - 2] - (top == -INFINITY ? 0.f : top));
                        sum += f * p[s * NEXT + RECORD - 1];
                        o[0] += f * p[s * NEXT + d];
                        o[1] += d + 1 < Att::D ? f * p[s * NEXT + d + 1] : 0.f;
                }
                const float inv = sum > 0.f ? 1.f / sum : 0.f;
                o[0] *= inv;
                o[1] *= inv;
                att_put2<Att::D>(tail, 0, (hk * GROUP + r) * Att::D, d, o);
        }
}

template <class E, class Att, class Tile, class Columns, int N, int K, int NORM, int ALIGN, class Head, class Tail,
          class AttTail, class Gain = NoGain, class Keep = NoKeep>
TGC_DEV void attend_task(const E *w, long ldw, float eps, const AttIn<E, Att> &in, const Rt *rt, char *smem,
                         const Head &head, const Tail &tail, const AttTail &att_tail, const Gain &gain = Gain(),
                         const Keep &keep = Keep())
{
        typedef typename Tile::Decode Decode;
        constexpr int RECORD = att_record<Att>(), PAIRS = (Att::D + 1) / 2, GROUP = Att::H / Att::K;
        const int rank = (int)cluster_rank(), hk = (int)blockIdx.x / Tile::CLUSTER;
        const AttQueries<Att, Decode> rows = { 0, hk, 0 };
        const AttPart at = att_sums<E, Att, Decode>(in, rows, 1, rt, rank, smem, [&] {
                matvec_short_columns<E, N, K, Tile::THREADS, Tile::ROWS, Tile::SPLIT, NORM, ALIGN>(
                        w, ldw, eps, attend_column<Att, Tile, Columns>(hk, rank), blockIdx.x == 0, smem, head, tail, gain,
                        keep);
                const int pos = rt->pos[0];     /* on its way while the blocks meet */
                cluster_arrive_block();
                cluster_wait();
                return pos;
        });
        if (at.parts == 1) {
                for (int i = threadIdx.x; rank == 0 && i < GROUP * PAIRS; i += Tile::THREADS) {
                        const int r = i / PAIRS, d = i % PAIRS * 2;
                        float o[2], ms[2];
                        att_merge_warps<E, Att, Decode>(smem, r, d, o, ms);
                        const float inv = ms[1] > 0.f ? 1.f / ms[1] : 0.f;
                        o[0] *= inv;
                        o[1] *= inv;
                        att_put2<Att::D>(att_tail, 0, (hk * GROUP + r) * Att::D, d, o);
                }
                return;
        }
        float *all = (float *)(smem + AttDecodeShape<E, Att, Decode>::SMEM);
        for (int i = threadIdx.x; rank < at.parts && i < GROUP * PAIRS; i += Tile::THREADS) {
                const int r = i / PAIRS, d = i % PAIRS * 2;
                float o[2], ms[2], *to = all + (rank * Tile::QUERIES + r) * RECORD;
                att_merge_warps<E, Att, Decode>(smem, r, d, o, ms);
                st_cluster(to + d, 0, o[0]);
                st_cluster(to + d + 1, 0, o[1]);
                if (d == 0) {
                        st_cluster(to + RECORD - 2, 0, ms[0]);
                        st_cluster(to + RECORD - 1, 0, ms[1]);
                }
        }
        cluster_arrive_block();
        if (rank)
                return;
        cluster_wait();
        attend_combine<E, Att, Tile>(all, at.parts, hk, att_tail);
}
#endif

#endif
