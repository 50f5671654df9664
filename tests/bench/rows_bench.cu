/* rows_bench.cu: time and check maps, norms, softmax, sums of columns and routing, at the sizes
 * of GPT-2, Llama and mixture models (rows_bench.h).  Maps and norms are timed as a step has them,
 * launches in a graph with arrays that L2 has forgotten (time_queued_ms), a backward norm with the
 * launch that adds up its gains' (and biases') partial gradients; the others one launch at a time.
 *
 *      nvcc -std=c++17 -O3 -arch=sm_90a -Icodegen/forms $(make -s kernel-includes)
 *      -Iruntime tests/bench/rows_bench.cu -o rows_bench rows_bench [part of a name] */
#include "rows_bench.h"
#include "map.cuh"
#include "norm_backward.cuh"
#include "softmax.cuh"
#include "columns.cuh"
#include "route.cuh"

/* (x, gain) -> gained gradient; and the gain in a norm's epilogue. */
struct InGained {
        static constexpr int MAXV = 8, MINV = 1;
        const bf16 *p, *gain;
        int ld;
        template <int V>
        __device__ void operator()(int row, int col, float (&dy)[V], float (&g)[V]) const
        {
                float w[V];
                load<V>(g, p + (long long)row * ld + col);
                load<V>(w, gain + col);
#pragma unroll
                for (int j = 0; j < V; j++)
                        dy[j] = g[j] * w[j];
        }
};

struct OutGained {
        static constexpr int MAXV = 8, MINV = 1;
        bf16 *p;
        const bf16 *gain;
        int ld;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                float w[V];
                load<V>(w, gain + col);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] *= w[j];
                store<V>(p + (long long)row * ld + col, v);
        }
};

struct Swiglu {
        static constexpr int MAXV = 8, MINV = 1;
        const bf16 *g, *u;
        bf16 *y;
        int ld;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                float w[V];
                long long at = (long long)row * ld + col;
                load<V>(v, g + at);
                load<V>(w, u + at);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] = v[j] / (1.f + __expf(-v[j])) * w[j];
                store<V>(y + at, v);
        }
};

struct SwigluGrad {
        static constexpr int MAXV = 8, MINV = 1;
        const bf16 *dy, *g, *u;
        bf16 *dg, *du;
        int ld;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                float w[V], d[V];
                long long at = (long long)row * ld + col;
                load<V>(v, g + at);
                load<V>(w, u + at);
                load<V>(d, dy + at);
#pragma unroll
                for (int j = 0; j < V; j++) {
                        const float s = 1.f / (1.f + __expf(-v[j]));
                        w[j] *= d[j] * s * (1.f + v[j] * (1.f - s));
                        v[j] *= d[j] * s;
                }
                store<V>(dg + at, w);
                store<V>(du + at, v);
        }
};

/* ---- map --------------------------------------------------------------------- */

template <int N, class Body>
struct MapRun {
        int rows;
        Body body;
        __device__ void operator()(int tile, char *) const { map_task<256, N>(rows, tile, body); }
};

template <int N>
static void bench_map(int rows)
{
        char name[64], name_grad[64];
        snprintf(name, sizeof name, "map silu(g)*u bf16 %dx%d", rows, N);
        snprintf(name_grad, sizeof name_grad, "map silu(g)*u gradients bf16 %dx%d", rows, N);
        if (!wanted(name) && !wanted(name_grad))
                return;
        const size_t n = (size_t)rows * N;
        const int sets = sets_of(6. * n), tiles = ceil_div((long long)n, 256 * MAP_PER_THREAD);
        Dev<bf16> g(sets * n), u(g.n), y(g.n), dg(g.n), du(g.n);
        fill(g, 1, 2.f);
        fill(u, 2);
        double error = 0, ms = time_queued_ms(sets, [&](int k) {
                                  launch<256>(MapRun<N, Swiglu> { rows,
                                                                  { g.p + k * n, u.p + k * n,
                                                                    y.p + k * n, N } },
                                              tiles, 0);
                          });
        auto hg = g.get(n - N, N), hu = u.get(n - N, N), hy = y.get(n - N, N);
        for (int c = 0; c < N; c++)
                error = worse(error, host(hy[c]),
                              host(hg[c]) / (1 + exp(-host(hg[c]))) * host(hu[c]));
        report(name, ms, 6. * n, error);

        fill(y, 3);
        ms = time_queued_ms(sets, [&](int k) {
                launch<256>(MapRun<N, SwigluGrad> { rows,
                                                    { y.p + k * n, g.p + k * n, u.p + k * n,
                                                      dg.p + k * n, du.p + k * n, N } },
                            tiles, 0);
        });
        hy = y.get(n - N, N);
        auto hdg = dg.get(n - N, N), hdu = du.get(n - N, N);
        error = 0;
        for (int c = 0; c < N; c++) {
                const double x = host(hg[c]), t = 1 / (1 + exp(-x));
                error = worse(error, host(hdg[c]),
                              host(hy[c]) * host(hu[c]) * t * (1 + x * (1 - t)));
                error = worse(error, host(hdu[c]), host(hy[c]) * x * t);
        }
        report(name_grad, ms, 10. * n, error);
}

/* ---- norms --------------------------------------------------------------------- */

template <int KIND, int N, int THREADS>
struct NormRun {
        int rows;
        In<bf16> in;
        OutGained out;
        __device__ void operator()(int tile, char *smem) const
        {
                norm_task<KIND, N, THREADS>(rows, tile, 1e-5f, smem, in, out);
        }
};

template <int KIND, int N, int THREADS, int ACC>
struct NormGradRun {
        int rows, tiles;
        In<bf16> in;
        InGained dy;
        Out<bf16> out;
        float *dgain, *dbias;
        __device__ void operator()(int tile, char *smem) const
        {
                norm_grad_task<KIND, N, THREADS, ACC>(rows, tile, tiles, 1e-5f, smem, in, dy, out,
                                                      dgain, dbias);
        }
};

template <int N>
struct ReduceRun {
        int n;
        const float *partial;
        Out<float> out;
        __device__ void operator()(int tile, char *smem) const
        {
                columns_reduce_task<N, 256>(n, partial, tile, smem, out);
        }
};

/* Two side by side, as programs have them. */
template <int N>
struct ReduceRuns {
        ReduceRun<N> run[2];
        __device__ void operator()(int tile, char *smem) const
        {
                constexpr int TILES = (N + 31) / 32;
                run[tile / TILES](tile % TILES, smem);
        }
};

/* A backward norm's epilogue: the gradient that went around the block is added. */
template <bool ADDS>
struct OutAdded {
        static constexpr int MAXV = 8, MINV = 1, READS = ADDS, ROW_READS = ADDS;
        bf16 *p;
        const bf16 *other;
        int ld;
        template <int V>
        struct In {
                Raw<V, bf16> other;
        };
        template <int V>
        __device__ void get_rows(int row, int col, In<V> &in) const
        {
                if (ADDS)
                        in.other.get(other + (long long)row * ld + col);
        }
        template <int V>
        __device__ void get_cols(int, In<V> &) const
        {
        }
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V], const In<V> &in) const
        {
                float w[V] = {};
                if (ADDS)
                        in.other.template floats<0, 1>(w);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] += w[j];
                store<V>(p + (long long)row * ld + col, v);
        }
};

template <int KIND, int N, int THREADS, int ACC, bool ADDS>
struct NormBackRun {
        int rows, tiles;
        const bf16 *x, *g, *gain;
        OutAdded<ADDS> out;
        float *dgain, *dbias;
        __device__ void operator()(int tile, char *smem) const
        {
                norm_back_task<KIND, N, THREADS, ACC>(rows, tile, tiles, 1e-5f, smem, x, N, g, N,
                                                      gain, out, dgain, dbias);
        }
};

template <int KIND, int N, int THREADS>
static void bench_norm(int rows)
{
        char name[64];
        snprintf(name, sizeof name, "%s bf16 %dx%d", KIND == NORM_RMS ? "rmsnorm" : "layernorm",
                 rows, N);
        if (!wanted(name))
                return;
        const size_t n = (size_t)rows * N;
        const int sets = sets_of(4. * n);
        Dev<bf16> x(sets * n), y(x.n), gain(N);
        fill(x, 1, 3.f);
        fill(gain, 2);
        double error = 0,
               ms = time_queued_ms(sets, [&](int k) {
                       launch<THREADS>(NormRun<KIND, N, THREADS> { rows,
                                                                   { x.p + k * n, N },
                                                                   { y.p + k * n, gain.p, N } },
                                       ceil_div(rows, ROW_ROWS(N, THREADS)), ROW_SMEM);
               });
        auto hg = gain.get(0, N), hx = x.get(n - N, N), hy = y.get(n - N, N);
        double mean = 0, var = 0;
        for (int c = 0; c < N && KIND == NORM_LAYER; c++)
                mean += host(hx[c]) / N;
        for (int c = 0; c < N; c++)
                var += (host(hx[c]) - mean) * (host(hx[c]) - mean) / N;
        for (int c = 0; c < N; c++)
                error = worse(error, host(hy[c]),
                              (host(hx[c]) - mean) / sqrt(var + 1e-5) * host(hg[c]));
        report(name, ms, 4. * n, error);
}

/* WHAT: norm_grad_task, norm_back_task, or that with a gradient to be added. */
enum { GRAD, BACK, BACK_ADDS };
template <int WHAT, int KIND, int N>
static void bench_norm_grad(int rows)
{
        constexpr int ACC = KIND == NORM_RMS ? ACC_GAIN : ACC_GAIN | ACC_BIAS;
        constexpr int THREADS = WHAT        ? NORM_BACK_THREADS(N)
                                : N <= 1024 ? 128
                                            : 256,
                      MOST = WHAT ? NORM_BACK_BLOCKS(N) : 1;
        const int tiles = WHAT ? 132 * MOST : 528;
        char name[64];
        snprintf(name, sizeof name, "%s_%s bf16 %dx%d%s",
                 KIND == NORM_RMS ? "rmsnorm" : "layernorm", WHAT ? "back" : "grad", rows, N,
                 WHAT == BACK_ADDS ? " and add" : "");
        if (!wanted(name))
                return;
        const size_t n = (size_t)rows * N;
        const int sets = sets_of(6. * n);
        Dev<bf16> x(sets * n), g(x.n), dx(x.n), other(x.n), gain(N);
        Dev<float> pg((size_t)tiles * N), pb(pg.n), dgain(N), dbias(N);
        fill(x, 1, 3.f);
        fill(g, 2);
        fill(gain, 3);
        fill(other, 4);
        double error = 0,
               ms = time_queued_ms(sets, [&](int k) {
                       if constexpr (WHAT != GRAD)
                               launch<THREADS, MOST>(
                                       NormBackRun<KIND, N, THREADS, ACC, WHAT == BACK_ADDS> {
                                               rows,
                                               tiles,
                                               x.p + k * n,
                                               g.p + k * n,
                                               gain.p,
                                               { dx.p + k * n, other.p + k * n, N },
                                               pg.p,
                                               pb.p },
                                       tiles, NORM_BACK_SMEM(N, THREADS));
                       else
                               launch<THREADS>(
                                       NormGradRun<KIND, N, THREADS, ACC> {
                                               rows,
                                               tiles,
                                               { x.p + k * n, N },
                                               { g.p + k * n, gain.p, N },
                                               { dx.p + k * n, N },
                                               pg.p,
                                               pb.p },
                                       tiles, NORM_GRAD_SMEM(N));
                       launch<256>(ReduceRuns<N> { { { tiles, pg.p, { dgain.p, N } },
                                                     { tiles, pb.p, { dbias.p, N } } } },
                                   ceil_div(N, 32) * (ACC & ACC_BIAS ? 2 : 1), COLUMNS_SMEM(256));
               });
        /* the last call in the graph had this set */
        const size_t at = (QUEUED - 1) % sets * n;
        auto hw = gain.get(0, N), hx = x.get(at, n), hg = g.get(at, n), hdx = dx.get(at + n - N, N),
             ho = other.get(at + n - N, N);
        auto hgain = dgain.get(0, N), hbias = dbias.get(0, N);
        std::vector<double> want(N), want_bias(N), dx_row(N);
        for (int r = 0; r < rows; r++) {
                const bf16 *px = hx.data() + (size_t)r * N, *pd = hg.data() + (size_t)r * N;
                double mean = 0, var = 0, s1 = 0, s2 = 0;
                for (int c = 0; c < N && KIND == NORM_LAYER; c++)
                        mean += host(px[c]) / N;
                for (int c = 0; c < N; c++)
                        var += (host(px[c]) - mean) * (host(px[c]) - mean) / N;
                double rstd = 1 / sqrt(var + 1e-5);
                for (int c = 0; c < N; c++) {
                        want[c] += host(pd[c]) * (host(px[c]) - mean) * rstd;
                        want_bias[c] += host(pd[c]);
                }
                if (r < rows - 1)
                        continue;
                for (int c = 0; c < N; c++) {
                        s1 += KIND == NORM_LAYER ? host(pd[c]) * host(hw[c]) / N : 0;
                        s2 += host(pd[c]) * host(hw[c]) * (host(px[c]) - mean) * rstd / N;
                }
                for (int c = 0; c < N; c++)
                        error = worse(error, host(hdx[c]),
                                      rstd * (host(pd[c]) * host(hw[c]) - s1 -
                                              (host(px[c]) - mean) * rstd * s2) +
                                              (WHAT == BACK_ADDS ? host(ho[c]) : 0));
        }
        for (int c = 0; c < N; c++) {
                error = worse(error, hgain[c], want[c]);
                if (ACC & ACC_BIAS)
                        error = worse(error, hbias[c], want_bias[c]);
        }
        report(name, ms, (WHAT == BACK_ADDS ? 8. : 6.) * n, error);
}

/* ---- softmax -------------------------------------------------------------------- */

template <int N, int THREADS>
struct SoftmaxRun {
        int rows, n;
        In<float> in;
        Out<float> out;
        __device__ void operator()(int tile, char *smem) const
        {
                softmax_task<N, THREADS>(rows, n, tile, smem, in, out);
        }
};

template <int N, int THREADS>
static void bench_softmax(int rows, int n)
{
        char name[64];
        snprintf(name, sizeof name, "softmax f32 %dx%d%s", rows, n, N ? "" : " (run time)");
        if (!wanted(name))
                return;
        Dev<float> x((size_t)rows * n), y(x.n);
        fill(x, 1, 3.f);
        double error = 0, sum = 0,
               ms = time_ms([&] {
                       launch<THREADS>(SoftmaxRun<N, THREADS> { rows, n, { x.p, n }, { y.p, n } },
                                       ceil_div(rows, ROW_ROWS(N, THREADS)), ROW_SMEM);
               });
        auto hx = x.get(x.n - n, n), hy = y.get(x.n - n, n);
        for (int c = 0; c < n; c++)
                sum += exp((double)hx[c]);
        for (int c = 0; c < n; c++)
                error = worse(error, hy[c], exp((double)hx[c]) / sum);
        report(name, ms, 8. * x.n, error);
}

/* ---- columns ---------------------------------------------------------------------- */

template <int N>
struct ColumnsRun {
        int rows, chunks;
        In<bf16> in;
        ColumnsStore<N> out;
        __device__ void operator()(int tile, char *smem) const
        {
                column_sum_task<N, 256, 256>(rows, chunks, tile, smem, in, out);
        }
};

template <int N>
static void bench_columns(int rows)
{
        char name[64];
        int chunks = 400 / ceil_div(N, 256);
        snprintf(name, sizeof name, "column sum bf16 %dx%d", rows, N);
        if (!wanted(name))
                return;
        Dev<bf16> x((size_t)rows * N);
        Dev<float> partial((size_t)chunks * N), sum(N);
        fill(x, 1);
        double error = 0,
               ms = time_ms([&] {
                       launch<256>(ColumnsRun<N> { rows, chunks, { x.p, N }, { partial.p } },
                                   ceil_div(N, 256) * chunks, COLUMNS_SMEM(256));
                       launch<256>(ReduceRun<N> { chunks, partial.p, { sum.p, N } },
                                   ceil_div(N, 32), COLUMNS_SMEM(256));
               });
        auto hx = x.get(0, x.n);
        auto hs = sum.get(0, N);
        for (int c = 0; c < N; c++) {
                double want = 0;
                for (int r = 0; r < rows; r++)
                        want += host(hx[(size_t)r * N + c]);
                error = worse(error, hs[c], want);
        }
        report(name, ms, 2. * x.n, error);
}

/* ---- routing ------------------------------------------------------------------------ */

struct BucketRun {
        const int *ids;
        int n, buckets, tiles, *perm, *inv, *offs;
        __device__ void operator()(int tile, char *smem) const
        {
                bucket_task<1024>(ids, n, buckets, tile, tiles, perm, inv, offs, smem);
        }
};

template <int N>
struct ScatterRun {
        int buckets;
        const int *perm, *offs;
        In<bf16> in;
        Out<float> out;
        __device__ void operator()(int tile, char *smem) const
        {
                scatter_rows_task<N, (N + 255) / 256 * 256, 256>(buckets, perm, offs, false, tile,
                                                                 smem, in, out);
        }
};

/* zipf: ids fall off as 1/rank, as tokens of text do. */
template <int N>
static void bench_bucket(int n, int buckets, bool zipf)
{
        char name[64];
        Dev<int> ids(n), perm(n), inv(n), offs(buckets + 1);
        std::vector<int> h(n);
        std::vector<std::vector<int>> want(buckets);
        unsigned s = 1;
        for (int i = 0; i < n; i++) {
                s = s * 1664525u + 1013904223u;
                double u = (double)s / 4294967296.;
                h[i] = zipf ? (int)exp(u * log((double)buckets)) % buckets : (int)(u * buckets);
                want[h[i]].push_back(i);
        }
        ids.put(h);
        int tiles = ceil_div(buckets, BUCKET_MAX), least = buckets < 128 ? buckets : 128;
        tiles = tiles > least ? tiles : least;
        auto sort = [&] {
                launch<1024>(BucketRun { ids.p, n, buckets, tiles, perm.p, inv.p, offs.p }, tiles,
                             BUCKET_SMEM(1024, ceil_div(buckets, tiles)));
        };
        sort();
        snprintf(name, sizeof name, "bucket %d ids to %d%s", n, buckets, zipf ? " zipf" : "");
        if (wanted(name)) {
                auto hp = perm.get(0, n);
                double error = 0;
                int at = 0;
                for (auto &list : want)
                        for (int i : list)
                                error = worse(error, hp[at++], i);
                report(name, time_ms(sort), 12. * n, error);
        }
        snprintf(name, sizeof name, "scatter %dx%d to %d%s", n, N, buckets, zipf ? " zipf" : "");
        if (!wanted(name))
                return;
        Dev<bf16> x((size_t)n * N);
        Dev<float> sum((size_t)buckets * N);
        fill(x, 1);
        double error = 0,
               ms = time_ms([&] {
                       launch<256>(
                               ScatterRun<N> { buckets, perm.p, offs.p, { x.p, N }, { sum.p, N } },
                               ceil_div(buckets, 8), COLUMNS_SMEM(256));
               });
        auto hx = x.get(0, x.n);
        for (int b = 0; b < buckets; b += buckets / 7 + 1) {
                auto got = sum.get((size_t)b * N, N);
                for (int c = 0; c < N; c++) {
                        double w = 0;
                        for (int i : want[b])
                                w += host(hx[(size_t)i * N + c]);
                        error = worse(error, got[c], w);
                }
        }
        report(name, ms, 2. * x.n + 4. * sum.n, error);
}

template <int N, int K>
struct CombineRun {
        int rows;
        const float *gate;
        In<bf16> in;
        Out<bf16> out;
        __device__ void operator()(int tile, char *) const
        {
                combine_task<N, K, 256>(rows, tile, gate, in, out);
        }
};

template <int N, int K>
static void bench_combine(int rows)
{
        char name[64];
        snprintf(name, sizeof name, "combine %d of %dx%d", K, rows, N);
        if (!wanted(name))
                return;
        Dev<bf16> x((size_t)rows * K * N), y((size_t)rows * N);
        Dev<float> gate((size_t)rows * K);
        fill(x, 1);
        fill(gate, 2);
        double error = 0,
               ms = time_ms([&] {
                       launch<256>(CombineRun<N, K> { rows, gate.p, { x.p, N }, { y.p, N } },
                                   ceil_div((long long)rows * N, 256 * MAP_PER_THREAD), 0);
               });
        auto hx = x.get(x.n - K * N, K * N), hy = y.get(y.n - N, N);
        auto hg = gate.get(gate.n - K, K);
        for (int c = 0; c < N; c++) {
                double want = 0;
                for (int k = 0; k < K; k++)
                        want += hg[k] * host(hx[k * N + c]);
                error = worse(error, host(hy[c]), want);
        }
        report(name, ms, 2. * x.n + 2. * y.n, error);
}

int main(int argc, char **argv)
{
        only = argc > 1 ? argv[1] : "";
        setvbuf(stdout, 0, _IOLBF, 0);
        bench_map<3072>(32768);
        bench_map<8192>(16384);
        bench_map<11008>(8192);
        bench_norm<NORM_RMS, 128, 128>(262144);
        bench_norm<NORM_LAYER, 768, 128>(32768);
        bench_norm<NORM_RMS, 2048, 256>(8192);
        bench_norm<NORM_RMS, 2048, 256>(16384);
        bench_norm<NORM_LAYER, 2048, 256>(16384);
        bench_norm<NORM_RMS, 4096, 256>(8192);
        bench_norm<NORM_RMS, 8192, 512>(4096);
        bench_norm<NORM_RMS, 4096, 256>(1);
        bench_norm_grad<GRAD, NORM_LAYER, 768>(32768);
        bench_norm_grad<GRAD, NORM_RMS, 2048>(8192);
        bench_norm_grad<BACK, NORM_RMS, 128>(262144);
        bench_norm_grad<BACK, NORM_LAYER, 768>(32768);
        bench_norm_grad<BACK_ADDS, NORM_LAYER, 768>(32768);
        bench_norm_grad<BACK, NORM_RMS, 2048>(8192);
        bench_norm_grad<BACK_ADDS, NORM_RMS, 2048>(8192);
        bench_norm_grad<BACK, NORM_RMS, 2048>(16384);
        bench_norm_grad<BACK, NORM_LAYER, 2048>(16384);
        bench_norm_grad<BACK_ADDS, NORM_RMS, 4096>(8192);
        bench_norm_grad<BACK_ADDS, NORM_RMS, 8192>(4096);
        bench_softmax<1024, 128>(65536, 1024);
        bench_softmax<0, 512>(65536, 1024);
        bench_columns<768>(32768);
        bench_columns<3072>(32768);
        bench_bucket<768>(32768, 50257, false);
        bench_bucket<768>(32768, 50257, true);
        bench_bucket<1024>(262144, 64, false);
        bench_combine<1024, 2>(32768);
        return 0;
}
