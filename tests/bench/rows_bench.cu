/* rows_bench.cu: time and check the families that are bound by memory, at the sizes
 * of GPT-2, Llama and mixture models.
 *
 *      nvcc -std=c++17 -O3 -arch=sm_90a -Icodegen/kernels -Iruntime tests/bench/rows_bench.cu -o rows_bench
 *      rows_bench [part of a name]
 *
 * GB/s counts each operand once, as if caches were perfect.  `error` is the worst
 * |got - want| / (1 + |want|) against loops in double over a few rows. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "map.cuh"
#include "rows.cuh"
#include "norm_back.cuh"
#include "columns.cuh"
#include "cross_entropy.cuh"
#include "cross_entropy_exp.cuh"
#include "route.cuh"
#include "update.cuh"
#include "sample.cuh"

static const char *only = "";

static void ok(cudaError_t e)
{
        if (e == cudaSuccess)
                return;
        fprintf(stderr, "%s\n", cudaGetErrorString(e));
        exit(4);
}

template <class T>
struct Dev {
        T *p;
        size_t n;
        explicit Dev(size_t count) : n(count)
        {
                ok(cudaMalloc(&p, n * sizeof(T)));
                ok(cudaMemset(p, 0, n * sizeof(T)));
        }
        ~Dev() { cudaFree(p); }
        Dev(const Dev &) = delete;
        std::vector<T> get(size_t at, size_t count) const
        {
                std::vector<T> v(count);
                ok(cudaMemcpy(v.data(), p + at, count * sizeof(T), cudaMemcpyDeviceToHost));
                return v;
        }
        void put(const std::vector<T> &v) { ok(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice)); }
};

template <class T>
__global__ void fill_kernel(T *p, size_t n, unsigned seed, float scale)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
                uint4 r = philox(make_uint4((unsigned)i, (unsigned)(i >> 32), seed, 0), 1, 2);
                float x = (float)(r.x >> 8) + (float)(r.y >> 8) + (float)(r.z >> 8) + (float)(r.w >> 8);
                from_float(p + i, (x / 16777216.f - 2.f) * 1.7f * scale);
        }
}

template <class T>
static void fill(Dev<T> &d, unsigned seed, float scale = 1.f)
{
        fill_kernel<<<1024, 256>>>(d.p, d.n, seed, scale);
}

template <int THREADS, class F>
__global__ void __launch_bounds__(THREADS, 1) shell(F f)
{
        TGC_SMEM(smem);
        f((int)blockIdx.x, smem);
}

template <int THREADS, class F>
static void launch(const F &f, int tiles, int smem)
{
        ok(cudaFuncSetAttribute(shell<THREADS, F>, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
        shell<THREADS, F><<<tiles, THREADS, smem>>>(f);
}

/* Milliseconds of one call, the median of 15 after 3. */
template <class Call>
static double time_ms(const Call &call)
{
        cudaEvent_t a, b;
        std::vector<float> ms;
        cudaEventCreate(&a);
        cudaEventCreate(&b);
        for (int i = 0; i < 18; i++) {
                float t;
                cudaEventRecord(a);
                call();
                cudaEventRecord(b);
                ok(cudaEventSynchronize(b));
                ok(cudaGetLastError());
                cudaEventElapsedTime(&t, a, b);
                if (i >= 3)
                        ms.push_back(t);
        }
        for (size_t i = 0; i < ms.size(); i++)
                for (size_t j = i + 1; j < ms.size(); j++)
                        if (ms[j] < ms[i])
                                std::swap(ms[i], ms[j]);
        cudaEventDestroy(a);
        cudaEventDestroy(b);
        return ms[ms.size() / 2];
}

static void report(const char *name, double ms, double bytes, double error)
{
        printf("%-44s %9.1f us %8.0f GB/s   error %.1e\n", name, ms * 1e3, bytes / ms * 1e-6, error);
}

static bool wanted(const char *name) { return strstr(name, only) != 0; }
static int ceil_div(long long a, long long b) { return (int)((a + b - 1) / b); }
static double host(bf16 x) { return __bfloat162float(x); }
static double worse(double e, double got, double want)
{
        double d = fabs(got - want) / (1 + fabs(want));
        return d <= e ? e : d;                  /* NaN is worst */
}

template <class T>
struct In {
        static constexpr int MAXV = 8, MINV = 1;
        const T *p;
        int ld;
        template <int V> __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                load<V>(v, p + (long long)row * ld + col);
        }
};

template <class T>
struct Out {
        static constexpr int MAXV = 8, MINV = 1;
        T *p;
        int ld;
        template <int V> __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                store<V>(p + (long long)row * ld + col, v);
        }
};

/* (x, gain) -> gained gradient; and the gain in a norm's tail. */
struct InGained {
        static constexpr int MAXV = 8, MINV = 1;
        const bf16 *p, *gain;
        int ld;
        template <int V> __device__ void operator()(int row, int col, float (&dy)[V], float (&g)[V]) const
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
        template <int V> __device__ void operator()(int row, int col, float (&v)[V]) const
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
        template <int V> __device__ void operator()(int row, int col, float (&v)[V]) const
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

/* ---- map --------------------------------------------------------------------- */

template <int N>
struct MapRun {
        int rows;
        Swiglu body;
        __device__ void operator()(int tile, char *) const { map_task<256, N>(rows, tile, body); }
};

template <int N>
static void bench_map(int rows)
{
        char name[64];
        snprintf(name, sizeof name, "map silu(g)*u bf16 %dx%d", rows, N);
        if (!wanted(name))
                return;
        Dev<bf16> g((size_t)rows * N), u(g.n), y(g.n);
        fill(g, 1, 2.f);
        fill(u, 2);
        double error = 0, ms = time_ms([&] {
                launch<256>(MapRun<N>{rows, {g.p, u.p, y.p, N}},
                            ceil_div((long long)rows * N, 256 * MAP_PER_THREAD), 0);
        });
        auto hg = g.get(g.n - N, N), hu = u.get(g.n - N, N), hy = y.get(g.n - N, N);
        for (int c = 0; c < N; c++)
                error = worse(error, host(hy[c]), host(hg[c]) / (1 + exp(-host(hg[c]))) * host(hu[c]));
        report(name, ms, 6. * g.n, error);
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
                norm_grad_task<KIND, N, THREADS, ACC>(rows, tile, tiles, 1e-5f, smem, in, dy, out, dgain, dbias);
        }
};

template <int KIND, int N, int THREADS, int ACC>
struct NormBackRun {
        int rows, tiles;
        const bf16 *x, *g, *gain;
        Out<bf16> out;
        float *dgain, *dbias;
        __device__ void operator()(int tile, char *smem) const
        {
                norm_back_task<KIND, N, THREADS, ACC>(rows, tile, tiles, 1e-5f, smem, x, N, g, N, gain, out, dgain, dbias);
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

template <int KIND, int N, int THREADS>
static void bench_norm(int rows)
{
        char name[64];
        snprintf(name, sizeof name, "%s bf16 %dx%d", KIND == NORM_RMS ? "rmsnorm" : "layernorm", rows, N);
        if (!wanted(name))
                return;
        Dev<bf16> x((size_t)rows * N), y(x.n), gain(N);
        fill(x, 1, 3.f);
        fill(gain, 2);
        double error = 0, ms = time_ms([&] {
                launch<THREADS>(NormRun<KIND, N, THREADS>{rows, {x.p, N}, {y.p, gain.p, N}},
                                ceil_div(rows, ROW_ROWS(N, THREADS)), ROW_SMEM);
        });
        auto hg = gain.get(0, N), hx = x.get(x.n - N, N), hy = y.get(x.n - N, N);
        double mean = 0, var = 0;
        for (int c = 0; c < N && KIND == NORM_LAYER; c++)
                mean += host(hx[c]) / N;
        for (int c = 0; c < N; c++)
                var += (host(hx[c]) - mean) * (host(hx[c]) - mean) / N;
        for (int c = 0; c < N; c++)
                error = worse(error, host(hy[c]), (host(hx[c]) - mean) / sqrt(var + 1e-5) * host(hg[c]));
        report(name, ms, 4. * x.n, error);
}

/* AHEAD: norm_back_task. */
template <int KIND, int N, int THREADS, bool AHEAD = false>
static void bench_norm_grad(int rows, int tiles)
{
        constexpr int ACC = KIND == NORM_RMS ? ACC_GAIN : ACC_GAIN | ACC_BIAS;
        char name[64];
        snprintf(name, sizeof name, "%s_%s bf16 %dx%d grid %d", KIND == NORM_RMS ? "rmsnorm" : "layernorm",
                 AHEAD ? "back" : "grad", rows, N, tiles);
        if (!wanted(name))
                return;
        Dev<bf16> x((size_t)rows * N), g(x.n), dx(x.n), gain(N);
        Dev<float> pg((size_t)tiles * N), pb(pg.n), dgain(N), dbias(N);
        fill(x, 1, 3.f);
        fill(g, 2);
        fill(gain, 3);
        double error = 0, ms = time_ms([&] {
                if (AHEAD)
                        launch<THREADS>(NormBackRun<KIND, N, THREADS, ACC>{rows, tiles, x.p, g.p, gain.p, {dx.p, N}, pg.p,
                                                                           pb.p}, tiles, NORM_BACK_SMEM(N, THREADS));
                else
                        launch<THREADS>(NormGradRun<KIND, N, THREADS, ACC>{rows, tiles, {x.p, N}, {g.p, gain.p, N}, {dx.p, N},
                                                                   pg.p, pb.p}, tiles, NORM_GRAD_SMEM(N));
                launch<256>(ReduceRun<N>{tiles, pg.p, {dgain.p, N}}, ceil_div(N, 32), COLUMNS_SMEM(256));
                if (ACC & ACC_BIAS)
                        launch<256>(ReduceRun<N>{tiles, pb.p, {dbias.p, N}}, ceil_div(N, 32), COLUMNS_SMEM(256));
        });
        auto hw = gain.get(0, N), hx = x.get(0, x.n), hg = g.get(0, x.n), hdx = dx.get(x.n - N, N);
        auto hgain = dgain.get(0, N);
        std::vector<double> want(N);
        for (int r = 0; r < rows; r++) {
                const bf16 *px = hx.data() + (size_t)r * N, *pd = hg.data() + (size_t)r * N;
                double mean = 0, var = 0, s1 = 0, s2 = 0;
                for (int c = 0; c < N && KIND == NORM_LAYER; c++)
                        mean += host(px[c]) / N;
                for (int c = 0; c < N; c++)
                        var += (host(px[c]) - mean) * (host(px[c]) - mean) / N;
                double rstd = 1 / sqrt(var + 1e-5);
                for (int c = 0; c < N; c++)
                        want[c] += host(pd[c]) * (host(px[c]) - mean) * rstd;
                if (r < rows - 1)
                        continue;
                for (int c = 0; c < N; c++) {
                        s1 += KIND == NORM_LAYER ? host(pd[c]) * host(hw[c]) / N : 0;
                        s2 += host(pd[c]) * host(hw[c]) * (host(px[c]) - mean) * rstd / N;
                }
                for (int c = 0; c < N; c++)
                        error = worse(error, host(hdx[c]), rstd * (host(pd[c]) * host(hw[c]) - s1
                                                                   - (host(px[c]) - mean) * rstd * s2));
        }
        for (int c = 0; c < N; c++)
                error = worse(error, hgain[c], want[c]);
        report(name, ms, 6. * x.n, error);
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
        double error = 0, sum = 0, ms = time_ms([&] {
                launch<THREADS>(SoftmaxRun<N, THREADS>{rows, n, {x.p, n}, {y.p, n}},
                                ceil_div(rows, ROW_ROWS(N, THREADS)), ROW_SMEM);
        });
        auto hx = x.get(x.n - n, n), hy = y.get(x.n - n, n);
        for (int c = 0; c < n; c++)
                sum += exp((double)hx[c]);
        for (int c = 0; c < n; c++)
                error = worse(error, hy[c], exp((double)hx[c]) / sum);
        report(name, ms, 8. * x.n, error);
}

/* ---- cross-entropy ---------------------------------------------------------------- */

template <int WHAT, int V, int THREADS>
struct CeRun {
        bf16 *logits;
        int ld;
        const int *targets;
        float *loss, *lse;
        In<float> dloss;
        __device__ void operator()(int tile, char *smem) const
        {
                if constexpr (WHAT == 0)
                        ce_task<bf16, V, THREADS>(logits, ld, targets, loss, lse, tile, smem);
                else if constexpr (WHAT == 1)
                        ce_grad_task<bf16, V, THREADS>(logits, logits, ld, targets, lse, tile, dloss);
                else
                        ce_both_task<bf16, V, THREADS>(logits, ld, targets, loss, lse, tile, smem, dloss);
        }
};

template <int WHAT, int V, int THREADS>
static void bench_ce(int rows, int ld)
{
        static const char *const kind[] = { "ce", "ce_grad", "ce_both" };
        char name[64];
        snprintf(name, sizeof name, "%s bf16 %dx%d, %d threads", kind[WHAT], rows, V, THREADS);
        if (!wanted(name))
                return;
        Dev<bf16> x((size_t)rows * ld);
        Dev<float> loss(rows), lse(rows), dloss(rows);
        Dev<int> targets(rows);
        std::vector<int> ht(rows);
        for (int r = 0; r < rows; r++)
                ht[r] = (int)((r * 7919ll) % V);
        targets.put(ht);
        fill(dloss, 2);
        fill(x, 1, 3.f);
        double error = 0, sum = 0;
        auto hx = x.get(x.n - ld, V);
        for (int c = 0; c < V; c++)
                sum += exp(host(hx[c]));
        auto call = [&] {
                launch<THREADS>(CeRun<WHAT, V, THREADS>{x.p, ld, targets.p, loss.p, lse.p, {dloss.p, 1}}, rows, CE_SMEM);
        };
        if (WHAT == 1)
                launch<THREADS>(CeRun<0, V, THREADS>{x.p, ld, targets.p, loss.p, lse.p, {dloss.p, 1}}, rows, CE_SMEM);
        call();
        auto hl = lse.get(rows - 1, 1), hd = dloss.get(rows - 1, 1);
        auto dx = x.get(x.n - ld, V);
        error = worse(error, hl[0], log(sum));
        for (int c = 0; c < V && WHAT; c++)
                error = worse(error, host(dx[c]), (exp(host(hx[c])) / sum - (c == ht[rows - 1])) * hd[0]);
        report(name, time_ms(call), (WHAT ? 4. : 2.) * rows * V, error);
}

/* What is left of it where the product's tail takes exponentials. */
template <int V, int C>
struct ShiftRun {
        const bf16 *x, *w;
        int rows;
        const int *targets;
        float *shift;
        __device__ void operator()(int tile, char *) const
        {
                ce_shift_task<bf16, C, 8>(x, C, w, C, V, rows, targets, shift, tile);
        }
};

template <int V, int C, int PARTS>
struct FinishRun {
        bf16 *e;
        int rows;
        const float *sums;
        const int *targets;
        float *loss;
        const bf16 *x;
        bf16 *xs;
        float *factor;
        In<float> dloss;
        __device__ void operator()(int tile, char *smem) const
        {
                ce_finish_task<bf16, V, C, 8, PARTS, true>(e, V, rows, sums, targets, loss, x, C, xs, factor, tile, smem, dloss);
        }
};

template <int V, int C, int PARTS>
static void bench_ce_exp(int rows)
{
        char name[64];
        snprintf(name, sizeof name, "ce_shift bf16 %dx%d, K %d", rows, V, C);
        if (!wanted(name))
                return;
        Dev<bf16> x((size_t)rows * C), w((size_t)V * C), e((size_t)rows * V), xs((size_t)rows * C);
        Dev<float> shift(rows), sums((size_t)rows * PARTS), loss(rows), factor(rows), dloss(rows);
        Dev<int> targets(rows);
        std::vector<int> ht(rows);
        for (int r = 0; r < rows; r++)
                ht[r] = (int)((r * 7919ll) % V);
        targets.put(ht);
        fill(dloss, 2);
        fill(x, 1);
        fill(w, 3);
        std::vector<float> hs(sums.n);
        for (size_t i = 0; i < hs.size(); i++)
                hs[i] = 1.f + (float)(i % 7);
        sums.put(hs);
        const int last = rows - 1;
        auto hx = x.get((size_t)last * C, C), hw = w.get((size_t)ht[last] * C, C);
        double dot = 0, sum = 0, error = 0;
        for (int c = 0; c < C; c++)
                dot += host(hx[c]) * host(hw[c]);
        for (int p = 0; p < PARTS; p++)
                sum += hs[(size_t)p * rows + last];
        double ms = time_ms([&] {
                launch<256>(ShiftRun<V, C>{x.p, w.p, rows, targets.p, shift.p}, ceil_div(rows, CE_SHIFT_ROWS), 0);
        });
        error = worse(error, shift.get(last, 1)[0], dot * 1.4426950408889634);
        report(name, ms, 4. * rows * C, error);
        snprintf(name, sizeof name, "ce_finish bf16 %dx%d, K %d", rows, V, C);
        ms = time_ms([&] {
                launch<256>(FinishRun<V, C, PARTS>{e.p, rows, sums.p, targets.p, loss.p, x.p, xs.p, factor.p, {dloss.p, 1}},
                            ceil_div(rows, CE_FINISH_ROWS), CE_FINISH_SMEM);
        });
        error = worse(0, loss.get(last, 1)[0], log(sum));
        error = worse(error, host(xs.get((size_t)last * C, 1)[0]), host(hx[0]) * dloss.get(last, 1)[0] / sum);
        report(name, ms, (double)rows * (4. * C + 4. * PARTS), error);
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
        double error = 0, ms = time_ms([&] {
                launch<256>(ColumnsRun<N>{rows, chunks, {x.p, N}, {partial.p}}, ceil_div(N, 256) * chunks,
                            COLUMNS_SMEM(256));
                launch<256>(ReduceRun<N>{chunks, partial.p, {sum.p, N}}, ceil_div(N, 32), COLUMNS_SMEM(256));
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
                scatter_rows_task<N, (N + 255) / 256 * 256, 256>(buckets, perm, offs, false, tile, smem, in, out);
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
                launch<1024>(BucketRun{ids.p, n, buckets, tiles, perm.p, inv.p, offs.p}, tiles,
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
        double error = 0, ms = time_ms([&] {
                launch<256>(ScatterRun<N>{buckets, perm.p, offs.p, {x.p, N}, {sum.p, N}}, ceil_div(buckets, 8),
                            COLUMNS_SMEM(256));
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
        __device__ void operator()(int tile, char *) const { combine_task<N, K, 256>(rows, tile, gate, in, out); }
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
        double error = 0, ms = time_ms([&] {
                launch<256>(CombineRun<N, K>{rows, gate.p, {x.p, N}, {y.p, N}},
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

/* ---- update ------------------------------------------------------------------------- */

struct GradNormRun {
        const Rt *rt;
        Grads g;
        int tiles;
        float *partial;
        int *done;
        float *norm;
        int *flag;
        __device__ void operator()(int tile, char *smem) const
        {
                grad_norm_task<256>(rt, g, tile, tiles, partial, done, norm, flag, smem);
        }
};

template <class Param>
struct AdamwRun {
        const Rt *rt;
        Param param;
        float *m, *v;
        Grads g;
        const float *norm;
        __device__ void operator()(int tile, char *) const
        {
                adamw_task<256>(rt, param, m, v, g, g.n / 2, norm, tile);
        }
};

/* The first n_low gradients are bf16; then the parameters are split, too. */
static void bench_update(long long n, long long n_low = 0)
{
        char name[64];
        if (!wanted("gradient norm") && !wanted("adamw"))
                return;
        Dev<float> p(n), m(n), v(n), g(n), partial(1056), norm(1);
        Dev<bf16> low(n), part(n_low);
        Dev<unsigned short> lo(n);
        Dev<int> flag(1), done(1);
        Dev<Rt> rt(1);
        const Grads grads = { part.p, 0, g.p, n_low, n };
        Rt h;
        memset(&h, 0, sizeof h);
        h.lr = 1e-3f, h.beta1 = 0.9f, h.beta2 = 0.95f, h.eps = 1e-8f, h.weight_decay = 0.1f;
        h.clip = 1.f, h.bias1 = 0.1f, h.bias2 = 0.05f;
        fill(p, 1);
        fill(low, 1);
        fill(g, 2, 1e-3f);
        fill(part, 3, 1e-3f);
        h.n_micro = 1;
        rt.put({h});
        done.put({0});
        auto square = [&] {
                launch<256>(GradNormRun{rt.p, grads, 1056, partial.p, done.p, norm.p, flag.p}, 1056, UPDATE_SMEM);
        };
        auto step = [&] {
                const int tiles = ceil_div(n, 256 * ADAMW_PER_THREAD);
                if (n_low)
                        launch<256>(AdamwRun<SplitParams>{rt.p, {low.p, lo.p}, m.p, v.p, grads, norm.p}, tiles, 0);
                else
                        launch<256>(AdamwRun<Params<bf16>>{rt.p, {p.p, low.p}, m.p, v.p, grads, norm.p}, tiles, 0);
        };
        auto value = [&] {
                auto x = p.get(0, 4096);
                auto w = low.get(0, 4096);
                auto rest = lo.get(0, 4096);
                for (int i = 0; i < 4096 && n_low; i++) {
                        unsigned bits = 0;
                        memcpy(&bits, &w[i], 2);
                        bits = (bits << 16) + (unsigned)(int)(short)rest[i];
                        memcpy(&x[i], &bits, 4);
                }
                return x;
        };
        auto hg = g.get(0, n), hp = value();
        auto hl = part.get(0, n_low);
        hg.resize(n - n_low);
        hg.insert(hg.begin(), n_low, 0.f);
        for (long long i = 0; i < n_low; i++)
                hg[i] = (float)host(hl[i]);
        double total = 0, error = 0;
        square();
        for (float x : hg)
                total += (double)x * x;
        snprintf(name, sizeof name, "gradient norm %lldM", n / 1000000);
        report(name, time_ms(square), 4. * n - 2. * n_low, worse(0, norm.get(0, 1)[0], sqrt(total)));
        step();
        auto got = value();
        double scale = fmin(1., 1 / (sqrt(total) + 1e-6));
        for (int i = 0; i < 4096; i++) {
                double gi = hg[i] * scale, wm = 0.1 * gi, wv = 0.05 * gi * gi;
                error = worse(error, got[i], hp[i] * (1 - 1e-4) - 1e-3 / 0.1 * wm / (sqrt(wv) / sqrt(0.05) + 1e-8));
        }
        snprintf(name, sizeof name, "adamw + bf16 copy %lldM", n / 1000000);
        report(name, time_ms(step), (n_low ? 28. : 30.) * n - 2. * n_low, error);
}

/* ---- sampling ------------------------------------------------------------------------- */

template <class T, int V>
struct SampleRun {
        Rt *rt;
        T *logits;
        int *hist, *next;
        __device__ void operator()(int tile, char *smem) const
        {
                sample_task<T, V, 1024>(rt, logits, V, hist, 4096, 1, next, tile, smem);
        }
};

template <int V>
static void bench_sample(const char *what, float temp, int top_k, float top_p, float min_p, float spread)
{
        char name[64];
        snprintf(name, sizeof name, "sample V %d %s", V, what);
        if (!wanted(name))
                return;
        Dev<float> x(V);
        Dev<int> hist(4096), next(1);
        Dev<Rt> rt(1);
        Rt h;
        memset(&h, 0, sizeof h);
        h.B = 1, h.T = 1, h.temp = temp, h.top_k = top_k, h.top_p = top_p, h.min_p = min_p;
        h.repeat_penalty = 1.1f, h.repeat_last_n = 64;
        rt.put({h});
        fill(x, 1, spread);
        double ms = time_ms([&] { launch<1024>(SampleRun<float, V>{rt.p, x.p, hist.p, next.p}, 1, SAMPLE_SMEM); });
        report(name, ms, 4. * V, 0);
}

int main(int argc, char **argv)
{
        only = argc > 1 ? argv[1] : "";
        setvbuf(stdout, 0, _IOLBF, 0);
        bench_map<3072>(32768);
        bench_map<11008>(8192);
        bench_norm<NORM_RMS, 128, 128>(262144);
        bench_norm<NORM_LAYER, 768, 128>(32768);
        bench_norm<NORM_RMS, 2048, 256>(16384);
        bench_norm<NORM_RMS, 4096, 256>(8192);
        bench_norm<NORM_RMS, 8192, 512>(4096);
        bench_norm<NORM_RMS, 4096, 256>(1);
        bench_norm_grad<NORM_LAYER, 768, 128>(32768, 264);
        bench_norm_grad<NORM_LAYER, 768, 128>(32768, 528);
        bench_norm_grad<NORM_LAYER, 768, 128>(32768, 1056);
        bench_norm_grad<NORM_LAYER, 768, 128, true>(32768, 396);
        bench_norm_grad<NORM_LAYER, 768, 128, true>(32768, 528);
        bench_norm_grad<NORM_LAYER, 768, 128, true>(32768, 1056);
        bench_norm_grad<NORM_RMS, 2048, 256>(8192, 528);
        bench_norm_grad<NORM_RMS, 2048, 256, true>(8192, 264);
        bench_norm_grad<NORM_RMS, 2048, 256, true>(8192, 528);
        bench_norm_grad<NORM_RMS, 2048, 256, true>(8192, 1056);
        bench_norm_grad<NORM_RMS, 4096, 256>(8192, 264);
        bench_norm_grad<NORM_RMS, 4096, 256>(8192, 528);
        bench_softmax<1024, 128>(65536, 1024);
        bench_softmax<0, 512>(65536, 1024);
        bench_ce<0, 50257, 512>(8192, 50304);
        bench_ce<0, 50257, 1024>(8192, 50304);
        bench_ce<1, 50257, 512>(8192, 50304);
        bench_ce<2, 50257, 512>(8192, 50304);
        bench_ce<2, 50257, 1024>(8192, 50304);
        bench_ce<2, 32000, 512>(8192, 32000);
        bench_ce<2, 32000, 1024>(8192, 32000);
        bench_ce<2, 128256, 512>(4096, 128256);
        bench_ce<2, 128256, 1024>(4096, 128256);
        bench_ce_exp<50304, 768, 262>(8192);
        bench_ce_exp<128256, 2048, 668>(8192);
        bench_columns<768>(32768);
        bench_columns<3072>(32768);
        bench_bucket<768>(32768, 50257, false);
        bench_bucket<768>(32768, 50257, true);
        bench_bucket<1024>(262144, 64, false);
        bench_combine<1024, 2>(32768);
        bench_update(124000000);
        bench_update(124000000, 80000000);
        bench_sample<50257>("greedy", 0.f, 0, 1.f, 0.f, 3.f);
        bench_sample<50257>("top_k 40, top_p 0.95, min_p 0.05", 0.8f, 40, 0.95f, 0.05f, 3.f);
        bench_sample<50257>("top_p 0.9", 1.f, 0, 0.9f, 0.f, 8.f);
        bench_sample<128256>("top_k 40, top_p 0.95, min_p 0.05", 0.8f, 40, 0.95f, 0.05f, 3.f);
        bench_sample<128256>("top_p 0.9, flat", 1.f, 0, 0.9f, 0.f, 1.f);
        bench_sample<128256>("plain", 1.f, 0, 1.f, 0.f, 3.f);
        return 0;
}
