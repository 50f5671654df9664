/* route.cuh: sending rows to buckets and back: mixtures of experts, and the
 * gradient of an embedding, which is the same problem with V buckets.
 *
 *      topk_task<E, K, THREADS>(rows, tile, head, float *values, int *index)
 *              the K largest of each row of E <= 256, descending, ties by lowest index, NaN greatest.
 *              values: (rows, K) or null, index: (rows, K).  tiles: ceil(rows / (THREADS / 32)).
 *      topk_grad_task<E, K, THREADS>(rows, tile, index, head, tail)
 *              tail(row, col, v): head(row, j)'s value where col = index[row][j], 0 elsewhere.
 *              tiles: as map_task over rows x E.
 *      bucket_task<THREADS>(ids, n, buckets, tile, tiles, perm, inv, offs, smem)
 *              a stable counting sort: ids: int (n); offs: int (buckets + 1); perm: int (n), the
 *              positions of bucket b are perm[offs[b]..offs[b+1]) in rising order; inv: int (n), the place of
 *              position i in perm (perm[inv[i]] = i), may be null.  An id outside of [0, buckets) is
 *              dropped: inv is -1, offs[buckets] < n, and perm from there on is not written.
 *              Each tile owns ceil(buckets / tiles) <= BUCKET_MAX buckets and reads all ids twice.
 *              tiles: max(ceil(buckets / BUCKET_MAX), min(buckets, 128)).  THREADS: 512.
 *              shared memory: BUCKET_SMEM(THREADS, ceil(buckets / tiles)).
 *      scatter_rows_task<N, THREADS>(buckets, perm, offs, tile, smem, head, tail)
 *              tail(b, col, v): the sum of head(perm[p], col) over p in [offs[b], offs[b+1]) in a fixed
 *              order; 0 for an empty bucket.  A warp per bucket; a bucket of more than
 *              SCATTER_SMALL rows gets the whole block.  tiles: ceil(buckets / (THREADS / 32)).
 *              THREADS: 256.  shared memory: COLUMNS_SMEM(THREADS).
 *      combine_task<N, K, THREADS>(rows, tile, gate, head, tail)
 *              tail(row, col, v): sum over j < K of gate[row*K + j] * head(row*K + j, col), j rising;
 *              gate: float (rows, K), null for all ones.  tiles: as map_task over rows x N. */
#ifndef TGC_ROUTE_CUH
#define TGC_ROUTE_CUH

#include "columns.cuh"

#define BUCKET_MAX 512
#define BUCKET_SMEM(THREADS, R) (((THREADS) / 32 * (R) + 64) * 4)
#define SCATTER_SMALL 32

template <int E, int K, int THREADS, class Head>
TGC_DEV void topk_task(int rows, int tile, const Head &head, float *values, int *index);

template <int E, int K, int THREADS, class Head, class Tail>
TGC_DEV void topk_grad_task(int rows, int tile, const int *index, const Head &head, const Tail &tail);

template <int THREADS>
TGC_DEV void bucket_task(const int *ids, int n, int buckets, int tile, int tiles, int *perm, int *inv, int *offs,
                         char *smem);

template <int N, int THREADS, class Head, class Tail>
TGC_DEV void scatter_rows_task(int buckets, const int *perm, const int *offs, int tile, char *smem,
                               const Head &head, const Tail &tail);

template <int N, int K, int THREADS, class Head, class Tail>
TGC_DEV void combine_task(int rows, int tile, const float *gate, const Head &head, const Tail &tail);

#endif
