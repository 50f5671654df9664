/* rows_test.cu: every kernel family that is not a product or attention, against
 * plain loops in double.
 *
 *      g++ -std=c++17 -O1 -fno-strict-aliasing -x c++ -Icodegen/kernels -Iruntime -include emulate.h rows_test.cu
 *      nvcc -std=c++17 -arch=sm_80 -Icodegen/kernels -Iruntime rows_test.cu
 *
 * Sizes are odd on purpose: one element, one row, a last tile that is not full,
 * rows that fit a lane, a warp, a block, and none of these. */
#include "shell.h"
#include "map.cuh"
#include "rows.cuh"
#include "norm_back.cuh"
#include "columns.cuh"
#include "cross_entropy.cuh"
#include "route.cuh"
#include "update.cuh"
#include "sample.cuh"
#include <algorithm>
#include <vector>

typedef std::vector<double> Vec;
static int failures;
static const char *test_name = "";

/* |got - want| <= tol * (1 + |want|); NaN and infinities must agree. */
static bool near(double got, double want, double tol)
{
        if (std::isnan(want) || std::isinf(want))
                return std::isnan(want) ? std::isnan(got) : got == want;
        return fabs(got - want) <= tol * (1 + fabs(want));
}

#define CHECK_NEAR(got, want, tol, ...) do { double g_ = (got), w_ = (want); \
        if (!near(g_, w_, tol)) { printf("not ok %s: ", test_name); printf(__VA_ARGS__); \
        printf(": got %.9g, want %.9g\n", g_, w_); failures++; return; } } while (0)

static constexpr int ceil_div(long long a, long long b) { return (int)((a + b - 1) / b); }

/* ---- plain heads and tails -------------------------------------------------- */

template <class T, int MV = 8>
struct In {
        static constexpr int MAXV = MV, MINV = 1;
        const T *p;
        int ld;
        template <int V> __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                load<V>(v, p + (long long)row * ld + col);
        }
};

template <class T, int MV = 8>
struct Out {
        static constexpr int MAXV = MV, MINV = 1;
        T *p;
        int ld;
        template <int V> __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                store<V>(p + (long long)row * ld + col, v);
        }
};

/* Gradient of the gained output: dy = g * gain. */
template <class T>
struct InGained {
        static constexpr int MAXV = 8, MINV = 1;
        const T *p;
        const float *gain;
        int ld;
        template <int V> __device__ void operator()(int row, int col, float (&dy)[V], float (&g)[V]) const
        {
                float w[V];
                load<V>(g, p + (long long)row * ld + col);
                load<V>(w, gain + col);
                for (int j = 0; j < V; j++)
                        dy[j] = g[j] * w[j];
        }
};

/* ---- map --------------------------------------------------------------------- */

struct CountBody {
        static constexpr int MAXV = 8, MINV = 1;
        float *p;
        int ld;
        template <int V> __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                float *at = p + (long long)row * ld + col;
                load<V>(v, at);
                for (int j = 0; j < V; j++)
                        v[j] += (float)(row * 7 + col + j);
                store<V>(at, v);
        }
};

template <int N>
struct MapRun {
        int rows;
        CountBody body;
        __device__ void operator()(int tile, char *) const { map_task<64, N>(rows, tile, body); }
};

template <int N>
static void map_test(int rows)
{
        Buf<float> x((size_t)rows * N);
        for (size_t i = 0; i < x.n; i++)
                x[i] = 0.5f;
        shell_run<64>(ceil_div((long long)rows * N, 64 * MAP_PER_THREAD), 0, MapRun<N>{rows, {x.p, N}});
        for (int r = 0; r < rows; r++)
                for (int c = 0; c < N; c++)
                        CHECK_NEAR(x[(size_t)r * N + c], 0.5 + r * 7 + c, 0, "N %d rows %d at %d,%d", N, rows, r, c);
}

/* ---- norms ------------------------------------------------------------------- */

template <int KIND, int N, int THREADS, bool FEW, class T>
struct NormRun {
        int rows;
        In<T> in;
        Out<T> out;
        __device__ void operator()(int tile, char *smem) const
        {
                norm_task<KIND, N, THREADS, FEW>(rows, tile, 1e-5f, smem, in, out);
        }
};

template <int KIND, int N, int THREADS, int ACC, bool ONCE, class T>
struct NormGradRun {
        int rows, tiles;
        In<T> in;
        InGained<T> dy;
        In<float> plain;
        Out<float> out;
        float *dgain, *dbias;
        __device__ void operator()(int tile, char *smem) const
        {
                if constexpr (ACC != 0)
                        norm_grad_task<KIND, N, THREADS, ACC, ONCE>(rows, tile, tiles, 1e-5f, smem, in, dy, out, dgain,
                                                                    dbias);
                else
                        norm_grad_task<KIND, N, THREADS, 0>(rows, tile, tiles, 1e-5f, smem, in, plain, out, 0, 0);
        }
};

template <int N>
struct ColumnsReduceRun {
        int n;
        const float *partial;
        Out<float> out;
        __device__ void operator()(int tile, char *smem) const
        {
                columns_reduce_task<N, 256>(n, partial, tile, smem, out);
        }
};

static void norm_reference(int kind, int n, const double *x, double *xhat, double &rstd)
{
        double mean = 0, var = 0;
        for (int c = 0; c < n && kind == NORM_LAYER; c++)
                mean += x[c] / n;
        for (int c = 0; c < n; c++)
                var += (x[c] - mean) * (x[c] - mean) / n;
        rstd = 1 / sqrt(var + (double)1e-5f);
        for (int c = 0; c < n; c++)
                xhat[c] = (x[c] - mean) * rstd;
}

template <int KIND, int N, int THREADS, class T, bool FEW = false>
static void norm_test(int rows)
{
        /* bf16 keeps 8 bits */
        double tol = sizeof(T) == 2 ? 5e-3 : 2e-5, rstd;
        Buf<T> x((size_t)rows * N), y((size_t)rows * N);
        x.fill(N + rows, 2.f, 0.5f);
        shell_run<THREADS>(ceil_div(rows, ROW_ROWS(N, THREADS)), ROW_SMEM,
                  NormRun<KIND, N, THREADS, FEW, T>{rows, {x.p, N}, {y.p, N}});
        Vec row(N), xhat(N);
        for (int r = 0; r < rows; r++) {
                for (int c = 0; c < N; c++)
                        row[c] = x.get((size_t)r * N + c);
                norm_reference(KIND, N, row.data(), xhat.data(), rstd);
                for (int c = 0; c < N; c++)
                        CHECK_NEAR(y.get((size_t)r * N + c), xhat[c], tol, "norm %d N %d at %d,%d", KIND, N, r, c);
        }
}

template <int KIND, int N, int THREADS, int ACC, class T, bool ONCE = false>
static void norm_grad_test(int rows, int tiles)
{
        Buf<T> x((size_t)rows * N), g((size_t)rows * N);
        Buf<float> gain(N), dy((size_t)rows * N), dx((size_t)rows * N), dgain(N), dbias(N);
        Buf<float> pg((size_t)tiles * N), pb((size_t)tiles * N);
        x.fill(N, 2.f, 0.5f);
        g.fill(N + 1);
        gain.fill(N + 2);
        for (size_t i = 0; i < dy.n; i++)
                dy[i] = (float)(g.get(i) * gain[i % N]);
        shell_run<THREADS>(tiles, NORM_GRAD_SMEM(N),
                  NormGradRun<KIND, N, THREADS, ACC, ONCE, T>{rows, tiles, {x.p, N}, {g.p, gain.p, N}, {dy.p, N},
                                                              {dx.p, N}, pg.p, pb.p});
        if (ACC & ACC_GAIN)
                shell_run<256>(ceil_div(N, 32), COLUMNS_SMEM(256), ColumnsReduceRun<N>{tiles, pg.p, {dgain.p, N}});
        if (ACC & ACC_BIAS)
                shell_run<256>(ceil_div(N, 32), COLUMNS_SMEM(256), ColumnsReduceRun<N>{tiles, pb.p, {dbias.p, N}});
        Vec row(N), xhat(N), wg(N), wb(N);
        for (int r = 0; r < rows; r++) {
                double rstd, s1 = 0, s2 = 0;
                for (int c = 0; c < N; c++)
                        row[c] = x.get((size_t)r * N + c);
                norm_reference(KIND, N, row.data(), xhat.data(), rstd);
                for (int c = 0; c < N; c++) {
                        double g0 = g.get((size_t)r * N + c);
                        s1 += KIND == NORM_LAYER ? dy[(size_t)r * N + c] / N : 0;
                        s2 += dy[(size_t)r * N + c] * xhat[c] / N;
                        wg[c] += g0 * xhat[c];
                        wb[c] += g0;
                }
                for (int c = 0; c < N; c++)
                        CHECK_NEAR(dx[(size_t)r * N + c], rstd * (dy[(size_t)r * N + c] - s1 - xhat[c] * s2),
                                   N < 4 ? 2e-3 : 2e-5, "norm_grad %d N %d rows %d at %d,%d", KIND, N, rows, r, c);
        }
        for (int c = 0; c < N; c++) {
                if (ACC & ACC_GAIN)
                        CHECK_NEAR(dgain[c], wg[c], 1e-4, "gain gradient, N %d rows %d at %d", N, rows, c);
                if (ACC & ACC_BIAS)
                        CHECK_NEAR(dbias[c], wb[c], 1e-4, "bias gradient, N %d rows %d at %d", N, rows, c);
        }
}

template <int KIND, int N, int THREADS, int ACC>
struct NormBackRun {
        int rows, tiles, ld;
        const bf16 *x, *g;
        const float *gain;
        Out<float> out;
        float *dgain, *dbias;
        __device__ void operator()(int tile, char *smem) const
        {
                norm_back_task<KIND, N, THREADS, ACC>(rows, tile, tiles, 1e-5f, smem, x, ld, g, ld, gain, out, dgain,
                                                      dbias);
        }
};

/* norm_back_task beside norm_grad_task, which was compared with doubles. */
template <int KIND, int N, int THREADS, int ACC>
static void norm_back_test(int rows, int tiles)
{
        constexpr int LD = N + 8;
        Buf<bf16> x((size_t)rows * LD), g((size_t)rows * LD);
        Buf<float> gain(N), dy((size_t)rows * N), dx[2] = { Buf<float>((size_t)rows * N), Buf<float>((size_t)rows * N) };
        Buf<float> pg[2] = { Buf<float>((size_t)tiles * N), Buf<float>((size_t)tiles * N) };
        Buf<float> pb[2] = { Buf<float>((size_t)tiles * N), Buf<float>((size_t)tiles * N) };
        x.fill(N, 2.f, 0.5f);
        g.fill(N + 1);
        gain.fill(N + 2);
        shell_run<THREADS>(tiles, NORM_GRAD_SMEM(N), NormGradRun<KIND, N, THREADS, ACC, false, bf16>{
                rows, tiles, {x.p, LD}, {g.p, gain.p, LD}, {dy.p, N}, {dx[0].p, N}, pg[0].p, pb[0].p});
        shell_run<THREADS>(tiles, NORM_BACK_SMEM(N, THREADS), NormBackRun<KIND, N, THREADS, ACC>{
                rows, tiles, LD, x.p, g.p, gain.p, {dx[1].p, N}, pg[1].p, pb[1].p});
        for (size_t i = 0; i < dx[0].n; i++)
                CHECK_NEAR(dx[1][i], dx[0][i], 1e-5, "norm_back %d N %d rows %d at %zu", KIND, N, rows, i);
        for (size_t i = 0; i < pg[0].n; i++) {
                CHECK_NEAR(pg[1][i], pg[0][i], 1e-5, "norm_back gain, N %d rows %d at %zu", N, rows, i);
                if (ACC & ACC_BIAS)
                        CHECK_NEAR(pb[1][i], pb[0][i], 1e-5, "norm_back bias, N %d rows %d at %zu", N, rows, i);
        }
}

/* ---- softmax, reductions, argmax: N, or run time (0) --------------------------- */

template <int N, int THREADS>
struct RowsRun {
        int what, rows, n;
        In<float> x, dy;
        Out<float> out;
        int *index;
        __device__ void operator()(int tile, char *smem) const
        {
                switch (what) {
                case 0: softmax_task<N, THREADS>(rows, n, tile, smem, x, out); break;
                case 1: softmax_grad_task<N, THREADS>(rows, n, tile, smem, x, dy, out); break;
                case 2: reduce_task<RED_SUM, N, THREADS>(rows, n, tile, smem, x, out); break;
                case 3: reduce_task<RED_MAX, N, THREADS>(rows, n, tile, smem, x, out); break;
                case 4: reduce_task<RED_LOGSUMEXP, N, THREADS>(rows, n, tile, smem, x, out); break;
                default: argmax_task<N, THREADS>(rows, n, tile, smem, x, index);
                }
        }
};

template <int N, int THREADS>
static void rows_test(int rows, int n)
{
        Buf<float> x((size_t)rows * n), dy((size_t)rows * n), y((size_t)rows * n), one(rows);
        Buf<int> index(rows);
        x.fill(n, 5.f);
        dy.fill(n + 1);
        for (int c = 0; c < n && rows > 1; c++)         /* a masked row, ties, NaN, and a lone value */
                x[(size_t)n + c] = -INFINITY;
        if (rows > 2)
                for (int c = 0; c < n; c++)
                        x[2 * (size_t)n + c] = c == n / 2 ? 3.f : c < n / 2 ? -INFINITY : 3.f;
        if (rows > 3)
                x[3 * (size_t)n] = NAN;
        for (int what = 0; what < 6; what++) {
                bool whole = what < 2;
                shell_run<THREADS>(ceil_div(rows, ROW_ROWS(N, THREADS)), ROW_SMEM,
                          RowsRun<N, THREADS>{what, rows, n, {x.p, n}, {dy.p, n}, {whole ? y.p : one.p, whole ? n : 1},
                                              index.p});
                for (int r = 0; r < rows; r++) {
                        const float *v = x.p + (size_t)r * n;
                        double top = -INFINITY, sum = 0, dot = 0, plain = 0;
                        int at = 0;
                        for (int c = 0; c < n; c++) {
                                if (v[c] > top)
                                        top = v[at = c];
                                plain += v[c];
                                dot += (double)v[c] * dy[(size_t)r * n + c];
                        }
                        for (int c = 0; c < n; c++)
                                sum += exp(v[c] - (top == -INFINITY ? 0 : top));
                        if (what == 5 && index[r] != at) {
                                printf("not ok argmax: N %d n %d row %d: got %d, want %d\n", N, n, r, index[r], at);
                                failures++;
                                return;
                        }
                        if (what == 2)
                                CHECK_NEAR(one[r], plain, 1e-4, "sum N %d n %d row %d", N, n, r);
                        if (what == 3)
                                CHECK_NEAR(one[r], top, 0, "max N %d n %d row %d", N, n, r);
                        if (what == 4)
                                CHECK_NEAR(one[r], log(sum) + (top == -INFINITY ? 0 : top), 1e-5,
                                           "logsumexp N %d n %d row %d", N, n, r);
                        for (int c = 0; c < n && whole; c++) {
                                double want = what == 1 ? v[c] * (dy[(size_t)r * n + c] - dot)
                                            : sum == 0 ? 0 : exp(v[c] - (top == -INFINITY ? 0 : top)) / sum;
                                if (what == 1 && r >= 1 && r <= 3)      /* infinite inputs: no gradient to speak of */
                                        continue;
                                CHECK_NEAR(y[(size_t)r * n + c], want, 1e-4, "softmax%s N %d n %d at %d,%d",
                                           what ? "_grad" : "", N, n, r, c);
                        }
                }
        }
}

/* ---- cross-entropy ------------------------------------------------------------- */

template <class T, int V, int THREADS>
struct CeRun {
        int what;
        T *logits, *dlogits;
        int ld;
        const int *targets;
        float *loss, *lse;
        In<float, 1> dloss;
        __device__ void operator()(int tile, char *smem) const
        {
                switch (what) {
                case 0: ce_task<T, V, THREADS>(logits, ld, targets, loss, lse, tile, smem); break;
                case 1: ce_grad_task<T, V, THREADS>(logits, dlogits, ld, targets, lse, tile, dloss); break;
                default: ce_both_task<T, V, THREADS>(logits, ld, targets, loss, lse, tile, smem, dloss);
                }
        }
};

template <class T, int V, int THREADS, int SLOTS>
struct CeRingRun {
        T *logits;
        int ld, rows, tiles;
        const int *targets;
        float *loss, *lse;
        In<float, 1> dloss;
        __device__ void operator()(int tile, char *smem) const
        {
                ce_ring_task<T, V, THREADS, SLOTS>(logits, ld, rows, targets, loss, lse, tile, tiles, smem, dloss);
        }
};

/* SLOTS: of ce_ring_task, 0: it is not tested. */
template <class T, int V, int THREADS, int SLOTS = 0>
static void ce_test(int ld)
{
        constexpr int ROWS = 5;
        Buf<T> x((size_t)ROWS * ld), dx((size_t)ROWS * ld), both((size_t)ROWS * ld);
        Buf<int> targets(ROWS);
        Buf<float> loss(ROWS), lse(ROWS), loss2(ROWS), lse2(ROWS), dloss(ROWS);
        x.fill(V, 4.f);
        dloss.fill(3);
        for (int c = 0; c < V; c++)                     /* mostly masked, and large */
                if (c != V / 2)
                        x.set(4 * (size_t)ld + c, -INFINITY);
                else
                        x.set(4 * (size_t)ld + c, 80.f);
        targets[0] = 0;
        targets[1] = V - 1;
        targets[2] = -100;
        targets[3] = V;
        targets[4] = V / 2;
        memcpy((void *)both.p, (void *)x.p, sizeof(T) * x.n);
        CeRun<T, V, THREADS> run = {0, x.p, dx.p, ld, targets.p, loss.p, lse.p, {dloss.p, 1}};
        shell_run<THREADS>(ROWS, CE_SMEM, run);
        run.what = 1;
        shell_run<THREADS>(ROWS, CE_SMEM, run);
        shell_run<THREADS>(ROWS, CE_SMEM,
                           CeRun<T, V, THREADS>{2, both.p, 0, ld, targets.p, loss2.p, lse2.p, {dloss.p, 1}});
        if constexpr (SLOTS > 0) {
                constexpr int TILES = 2;
                Buf<T> ring((size_t)ROWS * ld);
                Buf<float> loss3(ROWS), lse3(ROWS);
                memcpy((void *)ring.p, (void *)x.p, sizeof(T) * x.n);
                shell_run<THREADS>(TILES, CE_RING_SMEM(THREADS, SLOTS),
                                   CeRingRun<T, V, THREADS, SLOTS>{ring.p, ld, ROWS, TILES, targets.p, loss3.p, lse3.p,
                                                                   {dloss.p, 1}});
                for (int r = 0; r < ROWS; r++) {
                        CHECK_NEAR(lse3[r], lse2[r], 1e-6, "ring lse V %d row %d", V, r);
                        CHECK_NEAR(loss3[r], loss2[r], 1e-5, "ring loss V %d row %d", V, r);
                        for (int c = 0; c < V; c++)
                                CHECK_NEAR(ring.get((size_t)r * ld + c), both.get((size_t)r * ld + c),
                                           sizeof(T) == 2 ? 4e-3 : 2e-6, "ring V %d row %d col %d", V, r, c);
                }
        }
        double tol = sizeof(T) == 2 ? 4e-3 : 2e-6;
        for (int r = 0; r < ROWS; r++) {
                double top = -INFINITY, sum = 0;
                int t = targets[r];
                for (int c = 0; c < V; c++)
                        top = std::max(top, x.get((size_t)r * ld + c));
                for (int c = 0; c < V; c++)
                        sum += exp(x.get((size_t)r * ld + c) - top);
                double want = log(sum) + top;
                bool counts = t >= 0 && t < V;
                CHECK_NEAR(lse[r], counts ? want : 0, 1e-5, "lse V %d row %d", V, r);
                CHECK_NEAR(loss[r], counts ? want - x.get((size_t)r * ld + t) : 0, 1e-5, "loss V %d row %d", V, r);
                CHECK_NEAR(lse2[r], lse[r], 1e-6, "both: lse V %d row %d", V, r);
                CHECK_NEAR(loss2[r], loss[r], 1e-5, "both: loss V %d row %d", V, r);
                for (int c = 0; c < V; c++) {
                        double d = counts ? (exp(x.get((size_t)r * ld + c) - want) - (c == t)) * dloss[r] : 0;
                        CHECK_NEAR(dx.get((size_t)r * ld + c), d, tol, "dlogits V %d at %d,%d", V, r, c);
                        CHECK_NEAR(both.get((size_t)r * ld + c), d, tol, "both: dlogits V %d at %d,%d", V, r, c);
                }
                for (int c = V; c < ld; c++)
                        CHECK_NEAR(both.get((size_t)r * ld + c), x.get((size_t)r * ld + c), 0, "padding V %d", V);
        }
}

/* ---- columns -------------------------------------------------------------------- */

template <int N, int COLS>
struct ColumnsRun {
        int rows, chunks;
        In<bf16> in;
        Out<float> out;
        __device__ void operator()(int tile, char *smem) const
        {
                column_sum_task<N, COLS, 256>(rows, chunks, tile, smem, in, out);
        }
};

template <int N>
static void columns_test(int rows, int chunks)
{
        Buf<bf16> x((size_t)rows * N);
        Buf<float> partial((size_t)chunks * N), sum(N);
        x.fill(N + rows);
        shell_run<256>(ceil_div(N, 256) * chunks, COLUMNS_SMEM(256),
                  ColumnsRun<N, 256>{rows, chunks, {x.p, N}, {partial.p, N}});
        shell_run<256>(ceil_div(N, 32), COLUMNS_SMEM(256), ColumnsReduceRun<N>{chunks, partial.p, {sum.p, N}});
        for (int c = 0; c < N; c++) {
                double want = 0;
                for (int r = 0; r < rows; r++)
                        want += x.get((size_t)r * N + c);
                CHECK_NEAR(sum[c], want, 1e-5, "columns N %d rows %d chunks %d at %d", N, rows, chunks, c);
        }
}

/* ---- routing --------------------------------------------------------------------- */

template <int E, int K>
struct TopkRun {
        int rows;
        In<float, 1> x;
        float *values;
        int *index;
        __device__ void operator()(int tile, char *) const { topk_task<E, K, 64>(rows, tile, x, values, index); }
};

template <int E, int K>
struct TopkGradRun {
        int rows;
        const int *index;
        In<float, 1> d;
        Out<float> out;
        __device__ void operator()(int tile, char *) const { topk_grad_task<E, K, 64>(rows, tile, index, d, out); }
};

template <int E, int K>
static void topk_test(int rows)
{
        Buf<float> x((size_t)rows * E), values((size_t)rows * K), d((size_t)rows * K), dx((size_t)rows * E);
        Buf<int> index((size_t)rows * K);
        x.fill(E);
        d.fill(E + 1);
        for (size_t i = 0; i < x.n; i++)                /* coarse values: many ties, 0 and -0 among them */
                x[i] = i / E % 3 == 1 ? roundf(x[i]) : i / E % 3 == 2 && i % 2 ? -INFINITY : x[i];
        shell_run<64>(ceil_div(rows, 2), 0, TopkRun<E, K>{rows, {x.p, E}, values.p, index.p});
        shell_run<64>(ceil_div((long long)rows * E, 64 * MAP_PER_THREAD), 0,
                  TopkGradRun<E, K>{rows, index.p, {d.p, K}, {dx.p, E}});
        for (int r = 0; r < rows; r++) {
                std::vector<int> order(E);
                Vec want(E);
                for (int c = 0; c < E; c++)
                        order[c] = c;
                std::stable_sort(order.begin(), order.end(),
                                 [&](int a, int b) { return x[(size_t)r * E + a] > x[(size_t)r * E + b]; });
                for (int k = 0; k < K; k++) {
                        CHECK_NEAR(index[(size_t)r * K + k], order[k], 0, "topk index E %d row %d k %d", E, r, k);
                        CHECK_NEAR(values[(size_t)r * K + k], x[(size_t)r * E + order[k]], 0, "topk value E %d", E);
                        want[order[k]] = d[(size_t)r * K + k];
                }
                for (int c = 0; c < E; c++)
                        CHECK_NEAR(dx[(size_t)r * E + c], want[c], 0, "topk_grad E %d at %d,%d", E, r, c);
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

template <int N, int COLS>
struct ScatterRun {
        int buckets;
        const int *perm, *offs;
        bool adds;
        In<bf16> in;
        Out<float> out;
        __device__ void operator()(int tile, char *smem) const
        {
                scatter_rows_task<N, COLS, 256>(buckets, perm, offs, adds, tile, smem, in, out);
        }
};

template <int N, int COLS>
static void scatter_run(int buckets, const Buf<int> &perm, const Buf<int> &offs, bool adds, const Buf<bf16> &x,
                        Buf<float> &sum)
{
        shell_run<256>(ceil_div(buckets, 8) * ceil_div(N, COLS), COLUMNS_SMEM(256),
                       ScatterRun<N, COLS>{buckets, perm.p, offs.p, adds, {x.p, N}, {sum.p, N}});
}

template <int N>
static void bucket_test(int n, int buckets, int tiles, bool skewed, bool narrow)
{
        Buf<int> ids(n), perm(n), inv(n), offs(buckets + 1);
        Buf<bf16> x((size_t)n * N);
        Buf<float> sum((size_t)buckets * N);
        std::vector<std::vector<int>> want(buckets);
        unsigned s = 1;
        x.fill(n);
        for (int i = 0; i < n; i++) {
                s = s * 1664525u + 1013904223u;
                ids[i] = (int)((s >> 8) % (unsigned)(buckets + 2)) - 1; /* -1 and `buckets` are dropped */
                if (skewed && i % 4)
                        ids[i] = buckets / 2;
                if (ids[i] >= 0 && ids[i] < buckets)
                        want[ids[i]].push_back(i);
        }
        shell_run<1024>(tiles, BUCKET_SMEM(1024, ceil_div(buckets, tiles)),
                  BucketRun{ids.p, n, buckets, tiles, perm.p, inv.p, offs.p});
        if (narrow)
                scatter_run<N, 64>(buckets, perm, offs, skewed, x, sum);
        else
                scatter_run<N, ceil_div(N, 256) * 256>(buckets, perm, offs, skewed, x, sum);
        int at = 0;
        for (int b = 0; b < buckets; b++) {
                CHECK_NEAR(offs[b], at, 0, "offs[%d] n %d buckets %d tiles %d", b, n, buckets, tiles);
                Vec total(N);
                for (int i : want[b]) {
                        CHECK_NEAR(perm[at], i, 0, "perm[%d] n %d buckets %d tiles %d", at, n, buckets, tiles);
                        CHECK_NEAR(inv[i], at, 0, "inv[%d]", i);
                        for (int c = 0; c < N; c++)
                                total[c] += x.get((size_t)i * N + c);
                        at++;
                }
                for (int c = 0; c < N && !(skewed && want[b].empty()); c++)
                        CHECK_NEAR(sum[(size_t)b * N + c], total[c], 1e-5, "scatter bucket %d col %d", b, c);
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
        __device__ void operator()(int tile, char *) const { combine_task<N, K, 64>(rows, tile, gate, in, out); }
};

template <int N, int K>
static void combine_test(int rows, bool gated)
{
        Buf<float> x((size_t)rows * K * N), gate((size_t)rows * K), y((size_t)rows * N);
        x.fill(N);
        gate.fill(K);
        shell_run<64>(ceil_div((long long)rows * N, 64 * MAP_PER_THREAD), 0,
                  CombineRun<N, K>{rows, gated ? gate.p : 0, {x.p, N}, {y.p, N}});
        for (int r = 0; r < rows; r++)
                for (int c = 0; c < N; c++) {
                        double want = 0;
                        for (int k = 0; k < K; k++)
                                want += (gated ? gate[(size_t)r * K + k] : 1) * x[((size_t)r * K + k) * N + c];
                        CHECK_NEAR(y[(size_t)r * N + c], want, 1e-5, "combine N %d at %d,%d", N, r, c);
                }
}

/* ---- update ---------------------------------------------------------------------- */

struct GradAddRun {
        const Rt *rt;
        Grads g;
        float *sum;
        __device__ void operator()(int tile, char *) const { grad_add_task<256>(rt, g, sum, tile); }
};

struct GradNormRun {
        const Rt *rt;
        Grads g;
        int tiles;
        float *partial;
        int *done;
        float *norm;
        __device__ void operator()(int tile, char *smem) const
        {
                grad_norm_task<256>(rt, g, tile, tiles, partial, done, norm, smem);
        }
};

template <class Param>
struct AdamwRun {
        const Rt *rt;
        Param param;
        float *m, *v;
        Grads g;
        long long n_decay;
        const float *norm;
        int *flag;
        __device__ void operator()(int tile, char *) const
        {
                adamw_task<256>(rt, param, m, v, g, n_decay, norm, flag, tile);
        }
};

struct SplitRun {
        SplitParams split;
        float *p;
        int n;
        bool put;
        __device__ void operator()(int tile, char *) const
        {
                const int i = tile * 256 + (int)threadIdx.x;
                float v[1];
                if (i >= n)
                        return;
                v[0] = p[i];
                if (put)
                        split.put(i, v);
                else
                        split.get(v, i);
                p[i] = v[0];
        }
};

/* The first n_low gradients are bf16, and of n_micro micro-steps; then parameters are split, too. */
static void update_test(int n, int n_decay, float clip, bool bad, int n_low = 0, int n_micro = 1)
{
        Buf<Rt> rts(1);
        Rt *rt = rts.p;
        Buf<float> p(n), m(n), v(n), g(n), sum(n_low), rest(n - n_low), partial(7), norm(1);
        Buf<bf16> low(n), part(n_low);
        Buf<unsigned short> lo(n);
        const SplitParams split = { low.p, lo.p };
        const Grads grads = { part.p, n_micro > 1 ? sum.p : 0, rest.p, n_low, n };
        Buf<int> flag(1), done(1);
        Vec p0(n), m0(n), v0(n);
        p.fill(1);
        m.fill(2, 0.1f);
        v.fill(3, 0.1f, 0.5f);
        g.fill(4, 3.f);
        flag[0] = 0;
        if (bad)
                g[n - 1] = NAN;
        memset((void *)rt, 0, sizeof *rt);
        rt->n_micro = n_micro;
        for (rt->micro = 0; rt->micro < n_micro; rt->micro++) {
                part.fill(40 + rt->micro, 3.f);
                for (int i = 0; i < n_low; i++)
                        g[i] = (float)((rt->micro ? g[i] : 0) + part.get(i));
                if (n_micro > 1)
                        shell_run<256>(ceil_div(n_low, 256 * 8), 0, GradAddRun{rt, grads, sum.p});
        }
        for (int i = n_low; i < n; i++)
                rest[i - n_low] = g[i];
        rt->lr = 1e-2f, rt->beta1 = 0.9f, rt->beta2 = 0.95f, rt->eps = 1e-8f, rt->weight_decay = 0.1f;
        rt->clip = clip, rt->bias1 = 0.19f, rt->bias2 = 0.0975f;
        for (int i = 0; i < n; i++)
                p0[i] = p[i], m0[i] = m[i], v0[i] = v[i] = fabsf(v[i]);
        done[0] = 0;
        shell_run<256>(7, UPDATE_SMEM, GradNormRun{rt, grads, 7, partial.p, done.p, norm.p});
        CHECK_NEAR(done[0], 0, 0, "counter, n %d", n);
        const int tiles = ceil_div(n, 256 * ADAMW_PER_THREAD);
        if (n_low)
                shell_run<256>(ceil_div(n, 256), 0, SplitRun{split, p.p, n, true});
        if (n_low)
                shell_run<256>(tiles, UPDATE_SMEM,
                               AdamwRun<SplitParams>{rt, split, m.p, v.p, grads, n_decay, norm.p, flag.p});
        else
                shell_run<256>(tiles, UPDATE_SMEM,
                               AdamwRun<Params<bf16>>{rt, {p.p, low.p}, m.p, v.p, grads, n_decay, norm.p, flag.p});
        if (n_low)
                shell_run<256>(ceil_div(n, 256), 0, SplitRun{split, p.p, n, false});
        double total = 0;
        for (int i = 0; i < n; i++)
                total += (double)g[i] * g[i];
        CHECK_NEAR(norm[0], sqrt(total), 1e-5, "gradient norm, n %d", n);
        CHECK_NEAR(flag[0], bad, 0, "flag, n %d", n);
        double scale = clip > 0 ? std::min(1., clip / (sqrt(total) + 1e-6)) : 1;
        for (int i = 0; i < n; i++) {
                double gi = g[i] * scale, wm = m0[i] + (1 - (double)rt->beta1) * (gi - m0[i]);
                double wv = rt->beta2 * v0[i] + (1 - (double)rt->beta2) * gi * gi;
                double wp = p0[i] * (i < n_decay ? 1 - (double)rt->lr * rt->weight_decay : 1);
                wp -= rt->lr / (double)rt->bias1 * wm / (sqrt(wv) / sqrt((double)rt->bias2) + rt->eps);
                CHECK_NEAR(p[i], bad ? p0[i] : wp, bad ? 0 : 2e-6, "p[%d] of %d", i, n);
                CHECK_NEAR(m[i], bad ? m0[i] : wm, bad ? 0 : 2e-6, "m[%d] of %d", i, n);
                CHECK_NEAR(v[i], bad ? v0[i] : wv, bad ? 0 : 2e-6, "v[%d] of %d", i, n);
                if (!bad)
                        CHECK_NEAR(low.get(i), p[i], 4e-3, "low[%d] of %d", i, n);
        }
}

/* ---- sampling ---------------------------------------------------------------------- */

template <class T, int V>
struct SampleRun {
        Rt *rt;
        T *logits;
        int ld, *hist, cap, B, *next;
        __device__ void operator()(int tile, char *smem) const
        {
                sample_task<T, V, 1024>(rt, logits, ld, hist, cap, B, next, tile, smem);
        }
};

static unsigned philox_first(unsigned c0, unsigned c1, unsigned c2, unsigned k0, unsigned k1)
{
        unsigned c[4] = { c0, c1, c2, 0 };
        for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
                unsigned long long a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
                unsigned d[4] = { (unsigned)(b >> 32) ^ c[1] ^ k0, (unsigned)b,
                                  (unsigned)(a >> 32) ^ c[3] ^ k1, (unsigned)a };
                memcpy(c, d, sizeof c);
        }
        return c[0];
}

/* sample.cuh's definition by sorting.  x has its penalties already. */
static int sample_reference(const Rt *rt, std::vector<float> x, int S, int b)
{
        int V = (int)x.size(), top = 0;
        for (float &v : x)
                v = v == v ? v : -INFINITY;
        for (int i = 1; i < V; i++)
                top = x[i] > x[top] ? i : top;
        float M = x[top], t = -INFINITY;
        if (rt->temp <= 0 || std::isinf(M))
                return top;
        std::vector<float> sorted = x;
        std::sort(sorted.begin(), sorted.end(), [](float p, float q) { return p > q; });
        if (rt->top_k > 0 && rt->top_k < V)
                t = sorted[rt->top_k - 1];
        auto weight = [](float d) { return (u64)(expf(d) * 4294967296.f); };
        if (rt->top_p < 1) {
                u64 Z = 0, run = 0;
                for (float v : x)
                        Z += v >= t ? weight(v - M) : 0;
                u64 need = rt->top_p > 0 ? (u64)(rt->top_p * (double)Z) : 0;
                for (float v : sorted)
                        if ((run += weight(v - M)) >= std::max(need, (u64)1)) {
                                t = std::max(t, v);
                                break;
                        }
        }
        auto kept = [&](float v) { return v >= t && !(rt->min_p > 0 && v - M < logf(rt->min_p)); };
        u64 Z = 0, run = 0;
        for (float v : x)
                Z += kept(v) ? weight((v - M) / rt->temp) : 0;
        u64 r = (u64)(((unsigned __int128)Z * philox_first((unsigned)S, (unsigned)b, SAMPLE_ID, rt->seed[0],
                                                            rt->seed[1])) >> 32);
        for (int i = 0; i < V; i++)
                if ((run += kept(x[i]) ? weight((x[i] - M) / rt->temp) : 0) > r)
                        return i;
        return -1;
}

template <class T, int V>
static void sample_test(float temp, int top_k, float top_p, float min_p, float penalty, int last_n, float spread)
{
        constexpr int B = 3, CAP = 16;
        int ld = V + 3;
        Buf<Rt> rts(1);
        Rt *rt = rts.p;
        Buf<T> logits((size_t)B * ld), kept((size_t)B * ld);
        Buf<int> hist(B * CAP), next(B + 1);
        memset((void *)rt, 0, sizeof *rt);
        rt->B = B, rt->T = 2, rt->seed[0] = 11, rt->seed[1] = 22, rt->n_out = 5;
        rt->temp = temp, rt->top_k = top_k, rt->top_p = top_p, rt->min_p = min_p;
        rt->repeat_penalty = penalty, rt->repeat_last_n = last_n;
        rt->pos[0] = 3, rt->pos[1] = 20, rt->pos[2] = 0;
        logits.fill(V + top_k, spread);
        logits.set(ld + V / 2, NAN);
        for (int i = 0; i < B * CAP; i++)
                hist[i] = i * i % (V + 2) - 1;          /* repeats, and two that are no tokens */
        memcpy((void *)kept.p, (void *)logits.p, logits.n * sizeof(T));
        std::vector<int> old(hist.p, hist.p + B * CAP);
        shell_run<1024>(B + 1, SAMPLE_SMEM, SampleRun<T, V>{rt, logits.p, ld, hist.p, CAP, B, next.p});
        for (int b = 0; b < B; b++) {
                int S = (b == 0 ? 3 : b == 1 ? 20 : 0) + 2, n = std::min(S, (int)CAP);
                n = last_n < 0 ? n : std::min(n, last_n);
                std::vector<bool> seen(V);
                for (int i = 0; i < n; i++) {
                        int token = old[(S - 1 - i) % CAP * B + b];
                        if (token < 0 || token >= V || seen[token])
                                continue;
                        seen[token] = true;
                        float v = (float)kept.get((size_t)b * ld + token);
                        if (penalty != 1)
                                kept.set((size_t)b * ld + token, v > 0 ? v / penalty : v * penalty);
                }
                std::vector<float> x(V);
                for (int i = 0; i < V; i++)
                        x[i] = (float)kept.get((size_t)b * ld + i);
                int want = sample_reference(rt, x, S, b);
                CHECK_NEAR(next[b], want, 0, "V %d temp %g top_k %d top_p %g min_p %g sequence %d", V, temp, top_k,
                           top_p, min_p, b);
                CHECK_NEAR(hist[S % CAP * B + b], want, 0, "hist of sequence %d", b);
                CHECK_NEAR(rt->pos[b], S, 0, "pos of sequence %d", b);
        }
        CHECK_NEAR(rt->n_out, 6, 0, "n_out");
}

/* ---- all of them --------------------------------------------------------------------- */

template <int N, int THREADS>
static void norm_tests()
{
        norm_test<NORM_RMS, N, THREADS, bf16>(1);
        norm_test<NORM_LAYER, N, THREADS, float>(7);
        norm_test<NORM_LAYER, N, THREADS, bf16, true>(7);
        norm_grad_test<NORM_RMS, N, THREADS, ACC_GAIN, float>(9, 2);
        norm_grad_test<NORM_LAYER, N, THREADS, ACC_GAIN | ACC_BIAS, bf16>(1, 3);
        norm_grad_test<NORM_LAYER, N, THREADS, 0, float>(3, 3);
        norm_grad_test<NORM_LAYER, N, THREADS, ACC_GAIN | ACC_BIAS, bf16, true>(ROW_ROWS(N, THREADS) * 2 - 1, 2);
        norm_grad_test<NORM_RMS, N, THREADS, ACC_GAIN, float, true>(1, 1);
}

template <class T, int V>
static void sample_tests()
{
        sample_test<T, V>(0.f, 40, 0.9f, 0.f, 1.3f, 8, 4.f);
        sample_test<T, V>(1.f, 0, 1.f, 0.f, 1.f, 0, 2.f);
        sample_test<T, V>(0.8f, 40, 0.95f, 0.05f, 1.1f, 64, 3.f);
        sample_test<T, V>(1.5f, 3, 1.f, 0.f, 1.1f, -1, 1.f);
        sample_test<T, V>(1.f, 0, 0.9f, 0.f, 1.f, 0, 6.f);
        sample_test<T, V>(1.f, 0, 0.9f, 0.f, 1.f, 0, 0.1f);
        sample_test<T, V>(2.f, 0, 1.f, 0.2f, 1.f, 0, 3.f);
        sample_test<T, V>(1.f, V - 1, 0.f, 0.f, 1.f, 0, 3.f);
}

static void all_map()
{
        map_test<1>(1), map_test<3>(50), map_test<65>(7), map_test<100>(41), map_test<768>(3), map_test<1000>(2);
}
static void all_norm()
{
        norm_tests<1, 64>();
        norm_tests<3, 64>();
        norm_tests<65, 64>();
        norm_tests<100, 128>();
        norm_tests<128, 128>();
        norm_tests<768, 128>();
        norm_tests<1000, 128>();
        norm_tests<1536, 256>();
        norm_tests<8190, 512>();
        norm_tests<20000, 1024>();                      /* too long for registers */
        norm_back_test<NORM_LAYER, 8, 128, ACC_GAIN | ACC_BIAS>(70, 2);
        norm_back_test<NORM_LAYER, 768, 128, ACC_GAIN | ACC_BIAS>(23, 2);
        norm_back_test<NORM_LAYER, 1000, 128, ACC_GAIN>(5, 3);
        norm_back_test<NORM_RMS, 2048, 256, ACC_GAIN>(7, 2);
        norm_back_test<NORM_RMS, 4104, 512, ACC_GAIN>(3, 1);
}
static void all_rows()
{
        rows_test<1, 64>(1, 1);
        rows_test<3, 64>(70, 3);
        rows_test<65, 64>(6, 65);
        rows_test<768, 128>(5, 768);
        rows_test<1000, 64>(5, 1000);
        rows_test<5000, 256>(5, 5000);
        rows_test<20000, 1024>(4, 20000);
        rows_test<0, 256>(4, 1);
        rows_test<0, 256>(5, 77);
        rows_test<0, 256>(5, 4096);
}
static void all_cross_entropy()
{
        ce_test<bf16, 3, 64>(3);
        ce_test<bf16, 1000, 256>(1000);
        ce_test<bf16, 1003, 256, 1>(1008);
        ce_test<bf16, 5003, 256, 7>(5008);
        ce_test<float, 1003, 256>(1003);
        ce_test<float, 5000, 256, 4>(5000);
        ce_test<bf16, 50257, 512>(50304);
        ce_test<bf16, 50257, 1024, 14>(50304);
        ce_test<bf16, 128256, 1024, 14>(128256);
        ce_test<bf16, 70001, 1024>(70008);
}
static void all_columns()
{
        columns_test<1>(5, 2), columns_test<3>(1000, 7), columns_test<100>(1, 1), columns_test<768>(77, 5);
        columns_test<300>(3, 9);
}
static void all_route()
{
        topk_test<3, 3>(5), topk_test<8, 2>(33), topk_test<65, 8>(4), topk_test<256, 16>(3);
        for (bool narrow : { false, true }) {
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
static void all_update()
{
        update_test(1, 0, 0.f, false), update_test(3, 3, 1.f, false), update_test(1030, 515, 1.f, false);
        update_test(20001, 7, 1e9f, false), update_test(4099, 100, 1.f, true);
        update_test(1030, 515, 1.f, false, 512), update_test(4099, 4000, 1.f, false, 2056, 3), update_test(1024, 1024, 0.f, false, 1024);
}
static void all_sample() { sample_tests<float, 5>(), sample_tests<bf16, 1000>(), sample_tests<float, 9001>(); }

int main(int argc, char **argv)
{
        struct { const char *name; void (*fn)(); } tests[] = {
                { "map", all_map }, { "norm", all_norm }, { "rows", all_rows }, { "cross_entropy", all_cross_entropy },
                { "columns", all_columns }, { "route", all_route }, { "update", all_update }, { "sample", all_sample },
        };
        int bad = 0;
        setvbuf(stdout, 0, _IOLBF, 0);
        for (auto &t : tests) {
                if (argc > 1 && !strstr(t.name, argv[1]))
                        continue;
                failures = 0;
                test_name = t.name;
                t.fn();
                if (!failures)
                        printf("ok %s\n", t.name);
                bad |= failures != 0;
        }
        return bad;
}
