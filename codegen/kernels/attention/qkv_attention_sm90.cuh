/* qkv_attention_sm90.cuh: single-token decode: the QKV projection and the attention over the cache
 * that consumes it, in one launch.
 *
 *      qkv_attention_task<E, Att, QkvAttentionTile<CLUSTER, THREADS, ROWS, SPLIT, QUERIES, SMEM>,
 *              QkvColumns<Q, K, V, STAGE>, N, K, NORM, ALIGN>(w, ldw, eps, in, rt, smem, near_q,
 *              near_k, near_v, prologue, epilogue, att_epilogue[, gain[, keep]])
 *              Att::K clusters of CLUSTER blocks; attend_smem<...>() bytes of shared memory
 *
 * Both parts are short, and a launch boundary would idle the GPU about as long.  A kv head's q, k
 * and v concern no other head, so one cluster does a kv head:
 * 1. Request the existing cache and W; pdl_wait.
 * 2. Each block computes its share of the head's (H/K + 2) D columns (gemv_short.cuh).  The
 *    results go straight to the shared memory of every block that has a part of the cache, 4 bytes
 *    at a time; that block's mbarrier counts the bytes.
 * 3. Each block attends its part of the cache (attention_decode.cuh).
 * 4. The parts are merged in the first block's shared memory.  The first block then stores q, k
 *    and v for later kernels.
 *
 * w .. keep, ROWS, SPLIT: as in gemv_short_task; its epilogue stores q and appends k and v.
 * att_epilogue: as in attention_task.  near_q, near_k, near_v: the pointers that the epilogue
 * stores by; they are redirected to shared memory.  Columns of the projection: q of head h begins
 * at Q + h D, k of kv head h at K + h D, v at V + h D; at most STAGE elements lie from near_q on.
 * QUERIES: the power of two at or above H/K.  CLUSTER * THREADS / 32 / SPLIT * ROWS columns cover
 * a kv head; ROWS divides D and is a multiple of 4 bytes.  Heads are contiguous (strides of D).
 * One sequence, one token. */
#ifndef TGC_QKV_ATTENTION_SM90_CUH
#define TGC_QKV_ATTENTION_SM90_CUH

#include "gemv_short.cuh"
#include "ptx.cuh"

#ifdef TGC_SM90A
#include "attention_decode.cuh"

/* SMEM: the launch's shared memory, to be checked; 0: unchecked. */
template <int CLUSTER_, int THREADS_, int ROWS_, int SPLIT_, int QUERIES_, int SMEM_ = 0>
struct QkvAttentionTile {
        static constexpr int CLUSTER = CLUSTER_, THREADS = THREADS_, ROWS = ROWS_, SPLIT = SPLIT_,
                             QUERIES = QUERIES_;
        static constexpr int SMEM = SMEM_;
        typedef AttDecode<QUERIES, CLUSTER, THREADS> Decode;
};

template <int Q_, int K_, int V_, int STAGE_>
struct QkvColumns {
        static constexpr int Q = Q_, K = K_, V = V_, STAGE = STAGE_;
};

/* Shared memory: records of attention_decode.cuh; the cluster's records, per block and query; the
 * cluster's q, k, v and the mbarrier that counts them; where the epilogue stores k and v, and q. */
template <class E, class Att, class Tile, class Columns>
struct AttendSmem {
        static constexpr int HEAD = (Att::H / Att::K + 2) * Att::D * (int)sizeof(E),
                             D = Att::D * (int)sizeof(E);
        static constexpr int ALL = AttDecodeShape<E, Att, typename Tile::Decode>::SMEM;
        static constexpr int MADE = (ALL + Tile::CLUSTER * Tile::QUERIES * att_record<Att>() * 4 +
                                     15) /
                                    16 * 16;
        static constexpr int BAR = MADE + (HEAD + 15) / 16 * 16, STAGE_KV = BAR + 16;
        static constexpr int STAGE_Q = STAGE_KV + (2 * D + 15) / 16 * 16;
        static constexpr int SIZE = STAGE_Q + Columns::STAGE * (int)sizeof(E);
};

template <class E, class Att, class Tile, class Columns>
__host__ __device__ constexpr int attend_smem()
{
        return AttendSmem<E, Att, Tile, Columns>::SIZE;
}

/* The first of this warp's ROWS columns within the kv head's columns (q, k, v). */
template <class Att, class Tile>
TGC_DEV int attend_first(int rank)
{
        constexpr int COLS = Tile::THREADS / 32 / Tile::SPLIT * Tile::ROWS;
        static_assert(COLS * Tile::CLUSTER == (Att::H / Att::K + 2) * Att::D &&
                              Att::D % Tile::ROWS == 0,
                      "a kv head is a cluster's");
        return rank * COLS + (int)(threadIdx.x >> 5) / Tile::SPLIT * Tile::ROWS;
}

/* The same column within the projection. */
template <class Att, class Columns>
TGC_DEV int qkv_column(int hk, int c)
{
        constexpr int D = Att::D, GROUP = Att::H / Att::K;
        return c < GROUP * D         ? Columns::Q + hk * GROUP * D + c
               : c < (GROUP + 1) * D ? Columns::K + hk * D + c - GROUP * D
                                     : Columns::V + hk * D + c - (GROUP + 1) * D;
}

/* `to`, displaced as far as p is from `from`.  (The sum starts at `to`, so that the compiler
 * infers its memory space.) */
template <class E>
TGC_DEV E *qkv_attention_turn(E *to, const E *p, const E *from)
{
        return (E *)((char *)to + ((const char *)p - (const char *)from));
}

/* Merges the records (maximum and sums) of one row's parts into its D values. */
template <class E, class Att, class Tile, class Epilogue>
TGC_DEV void attend_combine(const float *all, int parts, int hk, const Epilogue &epilogue)
{
        constexpr int RECORD = att_record<Att>(), NEXT = Tile::QUERIES * RECORD,
                      PAIRS = (Att::D + 1) / 2, GROUP = Att::H / Att::K;
        for (int i = threadIdx.x; i < GROUP * PAIRS; i += Tile::THREADS) {
                const int r = i / PAIRS, d = i % PAIRS * 2;
                const float *p = all + r * RECORD;
                float top = -INFINITY, sum = 0.f, o[2] = { 0.f, 0.f };
                for (int s = 0; s < parts; s++)
                        top = fmaxf(top, p[s * NEXT + RECORD - 2]);
                for (int s = 0; s < parts; s++) {
                        const float f = att_exp2<E>(p[s * NEXT + RECORD - 2] -
                                                    (top == -INFINITY ? 0.f : top));
                        sum += f * p[s * NEXT + RECORD - 1];
                        o[0] += f * p[s * NEXT + d];
                        o[1] += d + 1 < Att::D ? f * p[s * NEXT + d + 1] : 0.f;
                }
                const float inv = sum > 0.f ? 1.f / sum : 0.f;
                o[0] *= inv;
                o[1] *= inv;
                att_put2<Att::D>(epilogue, 0, (hk * GROUP + r) * Att::D, d, o);
        }
}

template <class E, class Att, class Tile, class Columns, int N, int K, int NORM, int ALIGN,
          class Prologue, class Epilogue, class AttEpilogue, class Gain = NoGain,
          class Keep = NoKeep>
TGC_DEV void qkv_attention_task(const E *w, long ldw, float eps, const AttIn<E, Att> &in,
                                const Rt *rt, char *smem, E *&near_q, E *&near_k, E *&near_v,
                                const Prologue &prologue, const Epilogue &epilogue,
                                const AttEpilogue &att_epilogue, const Gain &gain = Gain(),
                                const Keep &keep = Keep())
{
        typedef typename Tile::Decode Decode;
        typedef AttendSmem<E, Att, Tile, Columns> S;
        constexpr int D = Att::D, RECORD = att_record<Att>(), PAIRS = (D + 1) / 2,
                      GROUP = Att::H / Att::K;
        constexpr int WORDS = Tile::ROWS * (int)sizeof(E) / 4;
        static_assert(!Tile::SMEM || Tile::SMEM == S::SIZE,
                      "attend: as ../sm90_qkv_attention.c counts it");
        static_assert(WORDS * 4 == Tile::ROWS * (int)sizeof(E) && WORDS * Tile::CLUSTER <= 32,
                      "attend: a warp's columns");
        const int rank = (int)cluster_rank(), hk = (int)blockIdx.x / Tile::CLUSTER,
                  lane = threadIdx.x & 31;
        const AttQueries<Att, Decode> rows = { 0, hk, 0 };
        E *made = (E *)(smem + S::MADE), *stage_k = (E *)(smem + S::STAGE_KV),
          *stage_v = stage_k + D;
        E *const stage_q = (E *)(smem + S::STAGE_Q);
        /* this kv head's, as stored by the epilogue */
        const E *const own_q = stage_q + (in.q - near_q) + hk * GROUP * D;
        Mbar *const bar = (Mbar *)(smem + S::BAR);
        if (threadIdx.x == 0) {
                mbarrier_init(bar, 1);
                fence_barrier_init();
        }
        __syncwarp();
        cluster_arrive_relaxed();
        AttIn<E, Att> here = in;
        here.q = made - hk * GROUP * D;
        int pos = 0;
        const AttPart at = att_sums<E, Att, Decode>(
                here, rows, 1, rt, rank, smem,
                [&] {
                        const int c = attend_first<Att, Tile>(rank);
                        gemv_short_columns<E, N, K, Tile::THREADS, Tile::ROWS, Tile::SPLIT, NORM,
                                           ALIGN>(
                                w, ldw, eps, qkv_column<Att, Columns>(hk, c), blockIdx.x == 0, smem,
                                prologue, epilogue, gain, keep, [&] {
                                        pos = rt->pos[0];
                                        near_q = stage_q;
                                        near_k = qkv_attention_turn(stage_k, near_k,
                                                                    in.k + pos * in.sk.t + hk * D);
                                        near_v = qkv_attention_turn(stage_v, near_v,
                                                                    in.v + pos * in.sv.t + hk * D);
                                });
                        /* all barriers are initialised; bytes may arrive before they are
                         * expected */
                        cluster_wait();
                        if (threadIdx.x == 0)
                                mbarrier_expect_tx(bar, S::HEAD);
                        __syncwarp();
                        const int parts = att_part<E, Att, Decode>(pos, 1, rank).parts;
                        if ((threadIdx.x >> 5) % Tile::SPLIT == 0 && lane < WORDS * parts) {
                                const E *from = c < GROUP * D ? own_q + c : stage_k + c - GROUP * D;
                                send_cluster((unsigned *)(made + c) + lane % WORDS, bar,
                                             lane / WORDS, ((const unsigned *)from)[lane % WORDS]);
                        }
                        if (rank < parts)
                                mbarrier_wait(bar, 0);
                        return pos;
                },
                made + GROUP * D, made + (GROUP + 1) * D);
        /* last threads first: the first ones finish the output */
        for (int i = Tile::THREADS - 1 - (int)threadIdx.x; rank == 0 && i < (GROUP + 2) * D;
             i += Tile::THREADS) {
                const E *to = i < GROUP * D ? in.q + hk * GROUP * D + i
                              : i < (GROUP + 1) * D
                                      ? in.k + pos * in.sk.t + hk * D + i - GROUP * D
                                      : in.v + pos * in.sv.t + hk * D + i - (GROUP + 1) * D;
                *(E *)to = made[i];
        }
        if (at.parts == 1) {
                for (int i = threadIdx.x; rank == 0 && i < GROUP * PAIRS; i += Tile::THREADS) {
                        const int r = i / PAIRS, d = i % PAIRS * 2;
                        float o[2], ms[2];
                        att_merge_warps<E, Att, Decode>(smem, r, d, o, ms);
                        const float inv = ms[1] > 0.f ? 1.f / ms[1] : 0.f;
                        o[0] *= inv;
                        o[1] *= inv;
                        att_put2<Att::D>(att_epilogue, 0, (hk * GROUP + r) * Att::D, d, o);
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
        attend_combine<E, Att, Tile>(all, at.parts, hk, att_epilogue);
}
#endif

#endif
