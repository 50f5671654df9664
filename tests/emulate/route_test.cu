/* route_test.cu: choosing experts, sorting rows into their buckets and putting results together,
 * against plain loops in double.
 *
 *      tests/emulate/play.sh route_test            the emulator
 *      tests/emulate/play.sh --gpu route_test      a GPU
 *
 * Sizes are odd on purpose: one row, buckets with none, a last tile that is not full. */
#include "near.h"
#include "route.cuh"
#include <algorithm>

template <int E, int K>
struct TopkRun {
        int rows;
        In<float, 1> x;
        float *values;
        int *index;
        __device__ void operator()(int tile, char *) const
        {
                topk_task<E, K, 64>(rows, tile, x, values, index);
        }
};

template <int E, int K>
struct TopkGradRun {
        int rows;
        const int *index;
        In<float, 1> d;
        Out<float> out;
        __device__ void operator()(int tile, char *) const
        {
                topk_grad_task<E, K, 64>(rows, tile, index, d, out);
        }
};

template <int E, int K>
static void topk_test(int rows)
{
        Buf<float> x((size_t)rows * E), values((size_t)rows * K), d((size_t)rows * K),
                dx((size_t)rows * E);
        Buf<int> index((size_t)rows * K);
        x.fill(E);
        d.fill(E + 1);
        for (size_t i = 0; i < x.n; i++) /* coarse values: many ties, 0 and -0 among them */
                x[i] = i / E % 3 == 1 ? roundf(x[i]) : i / E % 3 == 2 && i % 2 ? -INFINITY : x[i];
        shell_run<64>(ceil_div(rows, 2), 0, TopkRun<E, K> { rows, { x.p, E }, values.p, index.p });
        shell_run<64>(ceil_div((long long)rows * E, 64 * MAP_PER_THREAD), 0,
                      TopkGradRun<E, K> { rows, index.p, { d.p, K }, { dx.p, E } });
        for (int r = 0; r < rows; r++) {
                std::vector<int> order(E);
                Vec want(E);
                for (int c = 0; c < E; c++)
                        order[c] = c;
                std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
                        return x[(size_t)r * E + a] > x[(size_t)r * E + b];
                });
                for (int k = 0; k < K; k++) {
                        CHECK_NEAR(index[(size_t)r * K + k], order[k], 0,
                                   "topk index E %d row %d k %d", E, r, k);
                        CHECK_NEAR(values[(size_t)r * K + k], x[(size_t)r * E + order[k]], 0,
                                   "topk value E %d", E);
                        want[order[k]] = d[(size_t)r * K + k];
                }
                for (int c = 0; c < E; c++)
                        CHECK_NEAR(dx[(size_t)r * E + c], want[c], 0, "topk_grad E %d at %d,%d", E,
                                   r, c);
        }
}

struct BucketRun {
        const int *ids;
        int n, buckets, tiles, *perm, *inv, *offs;
        __device__ void operator()(int tile, char *smem) const
        {
                bucket_task<1024>(ids, n, buckets, tile, tiles, perm, inv, offs, smem);
        }
};

template <int N, int COLS, int BUCKETS>
struct ScatterRun {
        int buckets;
        const int *perm, *offs;
        bool adds;
        In<bf16> in;
        Out<float> out;
        __device__ void operator()(int tile, char *smem) const
        {
                scatter_rows_task<N, COLS, 256, BUCKETS>(buckets, perm, offs, adds, tile, smem, in,
                                                         out);
        }
};

template <int N, int COLS, int BUCKETS>
static void scatter_run(int buckets, const Buf<int> &perm, const Buf<int> &offs, bool adds,
                        const Buf<bf16> &x, Buf<float> &sum)
{
        shell_run<256>(ceil_div(buckets, BUCKETS) * ceil_div(N, COLS), COLUMNS_SMEM(256),
                       ScatterRun<N, COLS, BUCKETS> {
                               buckets, perm.p, offs.p, adds, { x.p, N }, { sum.p, N } });
}

/* narrow 0: tiles of whole rows; 1: of 64 columns; 2: and of one bucket. */
template <int N>
static void bucket_test(int n, int buckets, int tiles, bool skewed, int narrow)
{
        Buf<int> ids(n), perm(n), inv(n), offs(buckets + 1);
        Buf<bf16> x((size_t)n * N);
        Buf<float> sum((size_t)buckets * N);
        std::vector<std::vector<int>> want(buckets);
        unsigned s = 1;
        x.fill(n);
        for (int i = 0; i < n; i++) {
                s = s * 1664525u + 1013904223u;
                /* -1 and `buckets` are dropped */
                ids[i] = (int)((s >> 8) % (unsigned)(buckets + 2)) - 1;
                if (skewed && i % 4)
                        ids[i] = buckets / 2;
                if (ids[i] >= 0 && ids[i] < buckets)
                        want[ids[i]].push_back(i);
        }
        shell_run<1024>(tiles, BUCKET_SMEM(1024, ceil_div(buckets, tiles)),
                        BucketRun { ids.p, n, buckets, tiles, perm.p, inv.p, offs.p });
        if (narrow == 2)
                scatter_run<N, 64, 1>(buckets, perm, offs, skewed, x, sum);
        else if (narrow)
                scatter_run<N, 64, 8>(buckets, perm, offs, skewed, x, sum);
        else
                scatter_run<N, ceil_div(N, 256) * 256, 8>(buckets, perm, offs, skewed, x, sum);
        int at = 0;
        for (int b = 0; b < buckets; b++) {
                CHECK_NEAR(offs[b], at, 0, "offs[%d] n %d buckets %d tiles %d", b, n, buckets,
                           tiles);
                Vec total(N);
                for (int i : want[b]) {
                        CHECK_NEAR(perm[at], i, 0, "perm[%d] n %d buckets %d tiles %d", at, n,
                                   buckets, tiles);
                        CHECK_NEAR(inv[i], at, 0, "inv[%d]", i);
                        for (int c = 0; c < N; c++)
                                total[c] += x.get((size_t)i * N + c);
                        at++;
                }
                for (int c = 0; c < N && !(skewed && want[b].empty()); c++)
                        CHECK_NEAR(sum[(size_t)b * N + c], total[c], 1e-5,
                                   "scatter bucket %d col %d", b, c);
        }
        CHECK_NEAR(offs[buckets], at, 0, "offs[last] n %d buckets %d", n, buckets);
        for (int i = 0; i < n; i++)
                if (ids[i] < 0 || ids[i] >= buckets)
                        CHECK_NEAR(inv[i], -1, 0, "inv of a dropped id");
}

template <int N, int K>
struct CombineRun {
        int rows;
        const float *gate;
        In<float> in;
        Out<float> out;
        __device__ void operator()(int tile, char *) const
        {
                combine_task<N, K, 64>(rows, tile, gate, in, out);
        }
};

template <int N, int K>
static void combine_test(int rows, bool gated)
{
        Buf<float> x((size_t)rows * K * N), gate((size_t)rows * K), y((size_t)rows * N);
        x.fill(N);
        gate.fill(K);
        shell_run<64>(ceil_div((long long)rows * N, 64 * MAP_PER_THREAD), 0,
                      CombineRun<N, K> { rows, gated ? gate.p : 0, { x.p, N }, { y.p, N } });
        for (int r = 0; r < rows; r++)
                for (int c = 0; c < N; c++) {
                        double want = 0;
                        for (int k = 0; k < K; k++)
                                want += (gated ? gate[(size_t)r * K + k] : 1) *
                                        x[((size_t)r * K + k) * N + c];
                        CHECK_NEAR(y[(size_t)r * N + c], want, 1e-5, "combine N %d at %d,%d", N, r,
                                   c);
                }
}

static void all_route()
{
        topk_test<3, 3>(5), topk_test<8, 2>(33), topk_test<65, 8>(4), topk_test<256, 16>(3);
        for (int narrow = 0; narrow < 3; narrow++) {
                bucket_test<3>(0, 4, 2, false, narrow);
                bucket_test<8>(1, 1, 1, false, narrow);
                bucket_test<100>(300, 8, 8, false, narrow);
                bucket_test<64>(1000, 3, 2, true, narrow);
                bucket_test<300>(400, 20, 2, false, narrow);
                bucket_test<8>(5000, 300, 2, false, narrow);
                bucket_test<16>(9000, 1000, 7, true, narrow);
        }
        combine_test<100, 2>(7, true), combine_test<3, 8>(5, false), combine_test<64, 1>(1, true);
}

int main(int argc, char **argv)
{
        static const NamedTest tests[] = {
                { "route", all_route },
        };
        return run_tests(tests, argc, argv);
}
