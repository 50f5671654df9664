/* route.cuh: top-k routing and bucket sort of rows, for mixtures of experts and for the gradient
 * of an embedding (the same problem with V buckets).
 *
 *      topk_task<E, K, THREADS>(rows, tile, prologue, float *values, int *index)
 *              the K largest of each row of E, descending; ties: lowest index first; NaN counts as
 *              -inf.  values: (rows, K) or null, index: (rows, K).  A row of more than TOPK_HELD is
 *              read K times.  tiles: ceil(rows / (THREADS / 32)).
 *      route_task<E, K, RENORM, THREADS>(rows, tile, prologue, float *gates, int *index)
 *              topk_task's choice of logits, and its softmax over the row or, with RENORM, over the
 *              choice.  tiles: as topk_task.
 *      topk_grad_task<E, K, THREADS>(rows, tile, index, prologue, epilogue)
 *              epilogue(row, col, v): v = prologue(row, j) where col = index[row][j], else 0.
 *              tiles: as map_task over rows x E.
 *      bucket_task<THREADS>(ids, n, buckets, tile, tiles, perm, inv, offs, smem)
 *              stable counting sort.  ids: int (n); offs: int (buckets + 1); perm: int (n): bucket
 *              b has positions perm[offs[b]..offs[b+1]), ascending; inv: int (n) or null, the
 *              inverse (perm[inv[i]] = i).  An id outside of [0, buckets) is dropped: inv is -1,
 *              offs[buckets] < n, and perm from there on is not written.  Each tile owns
 *              ceil(buckets / tiles) <= THREADS buckets and reads all ids twice.  tiles:
 *              max(ceil(buckets / BUCKET_MAX), min(buckets, 128)).  THREADS: BUCKET_MAX or more.
 *              shared memory: BUCKET_SMEM(THREADS, ceil(buckets / tiles)).
 *      scatter_rows_task<N, COLS, THREADS, BUCKETS>(buckets, perm, offs, adds, tile, smem,
 *              prologue, epilogue)
 *              epilogue(b, col, v): v = sum of prologue(perm[p], col) over p in
 *              [offs[b], offs[b+1]), in a fixed order; 0 for an empty bucket, which is skipped if
 *              the epilogue only adds.  A warp per bucket; a bucket of more than SCATTER_SMALL rows
 *              gets the whole block.  A tile has COLS columns of BUCKETS buckets.  COLS: 64 if
 *              buckets are so few that blocks share them, else a multiple of 256.  BUCKETS: THREADS
 *              / 32, or 1 if most get the block.  tiles: ceil(buckets / BUCKETS) * ceil(N / COLS).
 *              THREADS: 256.  shared memory: COLUMNS_SMEM(THREADS).
 *      combine_task<N, K, THREADS>(rows, tile, gate, prologue, epilogue)
 *              epilogue(row, col, v): v = sum over j < K of gate[row*K + j] *
 *              prologue(row*K + j, col), in order of j; gate: float (rows, K), or null (all ones).
 *              tiles: as map_task over rows x N. */
#ifndef TGC_ROUTE_CUH
#define TGC_ROUTE_CUH

#include "columns.cuh"
#include "order.cuh"

#define TOPK_HELD 256 /* longest row that a warp keeps in registers; longer ones are read K times */
#define BUCKET_MAX 256
#define BUCKET_SMEM(THREADS, R) (((THREADS) / 32 * (R) + 64) * 4)
#define SCATTER_SMALL 32

/* This lane's elements of a row as keys (order.cuh); 0: absent, or taken already. */
template <int E, class Prologue>
TGC_DEV void topk_keys(u64 (&key)[(E + 31) / 32], int row, int rows, const Prologue &prologue)
{
        static_assert(E <= TOPK_HELD && Prologue::MINV == 1, "topk: a row in registers");
#pragma unroll
        for (int i = 0; i < (E + 31) / 32; i++) {
                const int c = ((int)threadIdx.x & 31) + 32 * i;
                float v[1];
                key[i] = 0;
                if (c < E && row < rows) {
                        prologue(row, c, v);
                        key[i] = order_key_at(v[0], c);
                }
        }
}

/* The largest of the warp's keys, which is then removed. */
template <int PER>
TGC_DEV u64 topk_next(u64 (&key)[PER])
{
        u64 best = 0;
#pragma unroll
        for (int i = 0; i < PER; i++)
                best = key[i] > best ? key[i] : best;
        best = lanes_max_u64<32>(best);
#pragma unroll
        for (int i = 0; i < PER; i++)
                if (key[i] == best)
                        key[i] = 0;
        return best;
}

/* The largest key of a long row below `last`; all keys are different. */
template <int E, class Prologue>
TGC_DEV u64 topk_below(u64 last, int row, int rows, const Prologue &prologue)
{
        static_assert(Prologue::MINV == 1, "topk: one column at a time");
        u64 best = 0;
        for (int c = (int)threadIdx.x & 31; c < E && row < rows; c += 32) {
                float v[1];
                prologue(row, c, v);
                const u64 key = order_key_at(v[0], c);
                best = key < last && key > best ? key : best;
        }
        return lanes_max_u64<32>(best);
}

template <int E, int K, class Prologue>
TGC_DEV void topk_long(int row, int rows, const Prologue &prologue, float *values, int *index)
{
        u64 last = ~0ull;
        for (int k = 0; k < K; k++) {
                last = topk_below<E>(last, row, rows, prologue);
                if (((int)threadIdx.x & 31) == 0 && row < rows) {
                        index[(long long)row * K + k] = order_index(last);
                        if (values)
                                values[(long long)row * K + k] = order_value(
                                        (unsigned)(last >> 32));
                }
        }
}

/* Lane k % 32 computes a row's k-th gate from what it wrote itself, so there is nothing to wait
 * for. */
template <int E, int K, bool RENORM, class Prologue>
TGC_DEV void route_long(int row, int rows, const Prologue &prologue, float *gates, int *index)
{
        const int lane = (int)threadIdx.x & 31;
        u64 last = ~0ull;
        float all = 0.f, top = 0.f;
        for (int k = 0; k < K; k++) {
                last = topk_below<E>(last, row, rows, prologue);
                const float x = order_value((unsigned)(last >> 32));
                top = k ? top : x;
                if (lane == k % 32 && row < rows) {
                        gates[(long long)row * K + k] = expf(x - top);
                        index[(long long)row * K + k] = order_index(last);
                        all += RENORM ? expf(x - top) : 0.f;
                }
        }
        for (int c = lane; !RENORM && c < E && row < rows; c += 32) {
                float v[1];
                prologue(row, c, v);
                all += expf(order_value(order_key(v[0])) - top);
        }
        all = warp_sum(all);
        for (int k = lane; k < K && row < rows; k += 32)
                gates[(long long)row * K + k] /= all;
}

template <int E, int K, int THREADS, class Prologue>
TGC_DEV void topk_task(int rows, int tile, const Prologue &prologue, float *values, int *index)
{
        static_assert(K <= E, "topk: no more than there are");
        int lane = (int)threadIdx.x & 31, row = tile * (THREADS / 32) + (int)threadIdx.x / 32;
        if constexpr (E > TOPK_HELD) {
                topk_long<E, K>(row, rows, prologue, values, index);
        } else {
                u64 key[(E + 31) / 32];
                topk_keys<E>(key, row, rows, prologue);
                for (int k = 0; k < K; k++) {
                        const u64 best = topk_next(key);
                        if (lane == 0 && row < rows) {
                                index[(long long)row * K + k] = order_index(best);
                                if (values)
                                        values[(long long)row * K + k] = order_value(
                                                (unsigned)(best >> 32));
                        }
                }
        }
}

template <int E, int K, bool RENORM, int THREADS, class Prologue>
TGC_DEV void route_task(int rows, int tile, const Prologue &prologue, float *gates, int *index)
{
        static_assert(K <= E, "route: no more than there are");
        int lane = (int)threadIdx.x & 31, row = tile * (THREADS / 32) + (int)threadIdx.x / 32;
        if constexpr (E > TOPK_HELD || K > 32) {
                route_long<E, K, RENORM>(row, rows, prologue, gates, index);
        } else {
                u64 key[(E + 31) / 32], mine = 0;
                float all = 0.f, top = 0.f;
                topk_keys<E>(key, row, rows, prologue);
                u64 row_key[(E + 31) / 32];
#pragma unroll
                for (int i = 0; i < (E + 31) / 32; i++)
                        row_key[i] = key[i];
                for (int k = 0; k < K; k++) {
                        const u64 best = topk_next(key);
                        top = k ? top : order_value((unsigned)(best >> 32));
                        mine = lane == k ? best : mine;
                }
                const float gate = mine ? expf(order_value((unsigned)(mine >> 32)) - top) : 0.f;
                if (RENORM) {
                        all = gate;
                } else {
#pragma unroll
                        for (int i = 0; i < (E + 31) / 32; i++)
                                all += row_key[i] ? expf(order_value((unsigned)(row_key[i] >> 32)) -
                                                         top)
                                                  : 0.f;
                }
                all = warp_sum(all);
                if (lane < K && row < rows) {
                        gates[(long long)row * K + lane] = gate / all;
                        index[(long long)row * K + lane] = order_index(mine);
                }
        }
}

template <int K, class Prologue, class Epilogue>
struct TopkGradBody {
        static constexpr int MAXV = Epilogue::MAXV, MINV = Epilogue::MINV;
        const int *index;
        const Prologue &prologue;
        const Epilogue &epilogue;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] = 0.f;
                for (int k = 0; k < K; k++) {
                        int at = index[(long long)row * K + k] - col;
                        if (at < 0 || at >= V)
                                continue;
                        float d[1];
                        prologue(row, k, d);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[j] = j == at ? d[0] : v[j];
                }
                epilogue(row, col, v);
        }
};

template <int E, int K, int THREADS, class Prologue, class Epilogue>
TGC_DEV void topk_grad_task(int rows, int tile, const int *index, const Prologue &prologue,
                            const Epilogue &epilogue)
{
        map_task<THREADS, E>(rows, tile,
                             TopkGradBody<K, Prologue, Epilogue> { index, prologue, epilogue });
}

/* The lanes of the warp in the same bucket as the lowest lane of `left`. */
TGC_DEV unsigned bucket_peers(unsigned left, int bucket)
{
        int first = __shfl_sync(0xffffffffu, bucket, __ffs((int)left) - 1);
        return __ballot_sync(0xffffffffu, bucket == first) & left;
}

/* A warp's next ids, -1 beyond the end; several loads in flight. */
#define BUCKET_AHEAD 8
TGC_DEV void bucket_fetch(int (&id)[BUCKET_AHEAD], const int *ids, int i0, int end)
{
#pragma unroll
        for (int u = 0; u < BUCKET_AHEAD; u++) {
                int i = i0 + 32 * u + ((int)threadIdx.x & 31);
                id[u] = i < end ? ids[i] : -1;
        }
}

/* Each warp owns a run of ids and a row of counters, one per bucket of the tile, so the sort is
 * stable without atomics: count; turn counts into offsets (scan); place. */
template <int THREADS>
TGC_DEV void bucket_task(const int *ids, int n, int buckets, int tile, int tiles, int *perm,
                         int *inv, int *offs, char *smem)
{
        constexpr int WARPS = THREADS / 32;
        static_assert(THREADS >= BUCKET_MAX, "bucket: one thread per bucket of the tile");
        int tid = (int)threadIdx.x, lane = tid & 31, warp = tid >> 5;
        int range = (buckets + tiles - 1) / tiles;
        int lo = tile * range < buckets ? tile * range : buckets;
        int own = range < buckets - lo ? range : buckets - lo; /* buckets [lo, lo + own) */
        int *red = (int *)smem, *count = red + 64, *mine = count + warp * range;
        int per = (int)(((long long)n + WARPS - 1) / WARPS);
        int begin = (long long)warp * per < n ? warp * per : n,
            end = n - begin < per ? n : begin + per;
        int below = 0;

        for (int b = lane; b < range; b += 32)
                mine[b] = 0;
        __syncwarp();
        for (int i0 = begin; i0 < end; i0 += 32 * BUCKET_AHEAD) {
                int id[BUCKET_AHEAD];
                bucket_fetch(id, ids, i0, end);
#pragma unroll
                for (int u = 0; u < BUCKET_AHEAD; u++) {
                        int i = i0 + 32 * u + lane;
                        bool here = id[u] >= lo && id[u] < lo + own;
                        below += id[u] >= 0 && id[u] < lo;
                        if (i < end && (id[u] < 0 || id[u] >= buckets) && tile == 0 && inv)
                                inv[i] = -1;
                        unsigned left = __ballot_sync(0xffffffffu, here);
                        while (left) {
                                unsigned peers = bucket_peers(left, id[u]);
                                if (lane == __ffs((int)peers) - 1)
                                        mine[id[u] - lo] += __popc(peers);
                                left &= ~peers;
                        }
                        __syncwarp();
                }
        }

        /* base: number of ids below lo; then an exclusive scan over buckets, and within each over
         * warps. */
#pragma unroll
        for (int d = 16; d; d >>= 1)
                below += __shfl_xor_sync(0xffffffffu, below, d);
        if (lane == 0)
                red[warp] = below;
        __syncthreads();
        int base = 0, total = 0;
        for (int w = 0; w < WARPS; w++) {
                base += red[w];
                total += tid < own ? count[w * range + tid] : 0;
        }
        int scan = total;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
                int up = __shfl_up_sync(0xffffffffu, scan, d);
                scan += lane >= d ? up : 0;
        }
        if (lane == 31)
                red[32 + warp] = scan;
        __syncthreads();
        for (int w = 0; w < warp; w++)
                scan += red[32 + w];
        if (tid < own) {
                int at = base + scan - total;
                offs[lo + tid] = at;
                if (lo + tid == buckets - 1)
                        offs[buckets] = base + scan;
                for (int w = 0; w < WARPS; w++) {
                        int c = count[w * range + tid];
                        count[w * range + tid] = at;
                        at += c;
                }
        }
        __syncthreads();

        for (int i0 = begin; i0 < end; i0 += 32 * BUCKET_AHEAD) {
                int id[BUCKET_AHEAD];
                bucket_fetch(id, ids, i0, end);
#pragma unroll
                for (int u = 0; u < BUCKET_AHEAD; u++) {
                        bool here = id[u] >= lo && id[u] < lo + own;
                        unsigned left = __ballot_sync(0xffffffffu, here), same = 0;
                        while (left) {
                                unsigned peers = bucket_peers(left, id[u]);
                                same = peers >> lane & 1 ? peers : same;
                                left &= ~peers;
                        }
                        int at = here ? mine[id[u] - lo] : 0;
                        __syncwarp();
                        if (here) {
                                if (lane == __ffs((int)same) - 1)
                                        mine[id[u] - lo] = at + __popc(same);
                                at += __popc(same & ((1u << lane) - 1));
                                perm[at] = i0 + 32 * u + lane;
                                if (inv)
                                        inv[i0 + 32 * u + lane] = at;
                        }
                        __syncwarp();
                }
        }
        __syncthreads();
}

/* The rows of one bucket as a matrix, for column_sum_task. */
template <class Prologue>
struct BucketPrologue {
        static constexpr int MAXV = Prologue::MAXV, MINV = Prologue::MINV;
        const int *perm;
        const Prologue &prologue;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                prologue(perm[row], col, v);
        }
};

template <class Epilogue>
struct BucketEpilogue {
        static constexpr int MAXV = Epilogue::MAXV, MINV = Epilogue::MINV;
        int bucket;
        const Epilogue &epilogue;
        template <int V>
        __device__ void operator()(int, int col, float (&v)[V]) const
        {
                epilogue(bucket, col, v);
        }
};

template <int N, int COLS, int THREADS, int BUCKETS = THREADS / 32, class Prologue, class Epilogue>
TGC_DEV void scatter_rows_task(int buckets, const int *perm, const int *offs, bool adds, int tile,
                               char *smem, const Prologue &prologue, const Epilogue &epilogue)
{
        constexpr int V = vec_of(N, vec_min(vec_min(Prologue::MAXV, Epilogue::MAXV), COLS / 32));
        constexpr int ACROSS = (N + COLS - 1) / COLS, SUM = vec_min(COLS, 256);
        static_assert(V >= Prologue::MINV && V >= Epilogue::MINV,
                      "scatter_rows: needs wider vectors than the row has");
        static_assert(COLS % SUM == 0 && SCATTER_SMALL == 32, "a lane knows the place of one row");
        static_assert(BUCKETS <= THREADS / 32, "a warp per bucket");
        const int first = tile / ACROSS * BUCKETS,
                  last = first + BUCKETS < buckets ? first + BUCKETS : buckets;
        const int b = first + (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31;
        const int col0 = tile % ACROSS * COLS, end = col0 + COLS < N ? col0 + COLS : N;
        const int p0 = b < last ? offs[b] : 0, n = b < last ? offs[b + 1] - p0 : 0;

        if (b < last && n <= SCATTER_SMALL && !(adds && n == 0)) {
                const int mine = lane < n ? perm[p0 + lane] : 0;
                for (int c = col0; c < end; c += 32 * V) {
                        const int col = c + lane * V;
                        float sum[V] = {};
#pragma unroll 8
                        for (int p = 0; p < n; p++) {
                                const int row = __shfl_sync(0xffffffffu, mine, p);
                                float v[V] = {};
                                if (col < end)
                                        prologue(row, col, v);
#pragma unroll
                                for (int j = 0; j < V; j++)
                                        sum[j] += v[j];
                        }
                        if (col < end)
                                epilogue(b, col, sum);
                }
        }
        for (int i = first; i < last; i++) {
                const int from = offs[i], rows = offs[i + 1] - from;
                if (rows > SCATTER_SMALL)
                        for (int c = col0; c < end; c += SUM)
                                column_sum_task<N, SUM, THREADS>(
                                        rows, 1, c / SUM, smem,
                                        BucketPrologue<Prologue> { perm + from, prologue },
                                        BucketEpilogue<Epilogue> { i, epilogue });
        }
}

template <int K, class Prologue, class Epilogue>
struct CombineBody {
        static constexpr int MAXV = vec_min(Prologue::MAXV, Epilogue::MAXV),
                             MINV = vec_max(Prologue::MINV, Epilogue::MINV);
        const float *gate; /* (rows, K), or null */
        const Prologue &prologue;
        const Epilogue &epilogue;
        template <int V>
        __device__ void operator()(int row, int col, float (&sum)[V]) const
        {
#pragma unroll
                for (int j = 0; j < V; j++)
                        sum[j] = 0.f;
#pragma unroll(K <= 8 ? K : 4)
                for (int k = 0; k < K; k++) {
                        float v[V], g = gate ? gate[(long long)row * K + k] : 1.f;
                        prologue(row * K + k, col, v);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                sum[j] += g * v[j];
                }
                epilogue(row, col, sum);
        }
};

template <int N, int K, int THREADS, class Prologue, class Epilogue>
TGC_DEV void combine_task(int rows, int tile, const float *gate, const Prologue &prologue,
                          const Epilogue &epilogue)
{
        map_task<THREADS, N>(rows, tile,
                             CombineBody<K, Prologue, Epilogue> { gate, prologue, epilogue });
}

#endif
