/* rows_test.cu: maps, norms, softmax, reductions, cross-entropy and sums of columns, against
 * plain loops in double.
 *
 *      tests/emulate/play.sh rows_test            the emulator
 *      tests/emulate/play.sh --gpu rows_test      a GPU
 *
 * Sizes are odd on purpose: one element, one row, a last tile that is not full,
 * rows that fit a lane, a warp, a block, and none of these. */
#include "near.h"
#include "map.cuh"
#include "norm_backward.cuh"
#include "softmax.cuh"
#include "reduce.cuh"
#include "round_fp8.cuh"
#include "columns.cuh"
#include "cross_entropy.cuh"

/* Gradient of the gained output: dy = g * gain. */
template <class T>
struct InGained {
        static constexpr int MAXV = 8, MINV = 1;
        const T *p;
        const float *gain;
        int ld;
        template <int V>
        __device__ void operator()(int row, int col, float (&dy)[V], float (&g)[V]) const
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
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
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
        shell_run<64>(ceil_div((long long)rows * N, 64 * MAP_PER_THREAD), 0,
                      MapRun<N> { rows, { x.p, N } });
        for (int r = 0; r < rows; r++)
                for (int c = 0; c < N; c++)
                        CHECK_NEAR(x[(size_t)r * N + c], 0.5 + r * 7 + c, 0,
                                   "N %d rows %d at %d,%d", N, rows, r, c);
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
                        norm_grad_task<KIND, N, THREADS, ACC, ONCE>(rows, tile, tiles, 1e-5f, smem,
                                                                    in, dy, out, dgain, dbias);
                else
                        norm_grad_task<KIND, N, THREADS, 0>(rows, tile, tiles, 1e-5f, smem, in,
                                                            plain, out, 0, 0);
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
                           NormRun<KIND, N, THREADS, FEW, T> { rows, { x.p, N }, { y.p, N } });
        Vec row(N), xhat(N);
        for (int r = 0; r < rows; r++) {
                for (int c = 0; c < N; c++)
                        row[c] = x.get((size_t)r * N + c);
                norm_reference(KIND, N, row.data(), xhat.data(), rstd);
                for (int c = 0; c < N; c++)
                        CHECK_NEAR(y.get((size_t)r * N + c), xhat[c], tol, "norm %d N %d at %d,%d",
                                   KIND, N, r, c);
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
                           NormGradRun<KIND, N, THREADS, ACC, ONCE, T> { rows,
                                                                         tiles,
                                                                         { x.p, N },
                                                                         { g.p, gain.p, N },
                                                                         { dy.p, N },
                                                                         { dx.p, N },
                                                                         pg.p,
                                                                         pb.p });
        if (ACC & ACC_GAIN)
                shell_run<256>(ceil_div(N, 32), COLUMNS_SMEM(256),
                               ColumnsReduceRun<N> { tiles, pg.p, { dgain.p, N } });
        if (ACC & ACC_BIAS)
                shell_run<256>(ceil_div(N, 32), COLUMNS_SMEM(256),
                               ColumnsReduceRun<N> { tiles, pb.p, { dbias.p, N } });
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
                        CHECK_NEAR(dx[(size_t)r * N + c],
                                   rstd * (dy[(size_t)r * N + c] - s1 - xhat[c] * s2),
                                   N < 4 ? 2e-3 : 2e-5, "norm_grad %d N %d rows %d at %d,%d", KIND,
                                   N, rows, r, c);
        }
        for (int c = 0; c < N; c++) {
                if (ACC & ACC_GAIN)
                        CHECK_NEAR(dgain[c], wg[c], 1e-4, "gain gradient, N %d rows %d at %d", N,
                                   rows, c);
                if (ACC & ACC_BIAS)
                        CHECK_NEAR(dbias[c], wb[c], 1e-4, "bias gradient, N %d rows %d at %d", N,
                                   rows, c);
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
                norm_back_task<KIND, N, THREADS, ACC>(rows, tile, tiles, 1e-5f, smem, x, ld, g, ld,
                                                      gain, out, dgain, dbias);
        }
};

template <int KIND, int N, int ACC>
static void norm_back_test(int rows, int tiles)
{
        constexpr int LD = N + 8, THREADS = NORM_BACK_THREADS(N);
        Buf<bf16> x((size_t)rows * LD), g((size_t)rows * LD);
        Buf<float> gain(N), dx((size_t)rows * N), pg((size_t)tiles * N), pb((size_t)tiles * N);
        x.fill(N, 2.f, 0.5f);
        g.fill(N + 1);
        gain.fill(N + 2);
        shell_run<THREADS>(tiles, NORM_BACK_SMEM(N, THREADS),
                           NormBackRun<KIND, N, THREADS, ACC> {
                                   rows, tiles, LD, x.p, g.p, gain.p, { dx.p, N }, pg.p, pb.p });
        Vec row(N), xhat(N), wg(N), wb(N);
        for (int r = 0; r < rows; r++) {
                double rstd, s1 = 0, s2 = 0;
                for (int c = 0; c < N; c++)
                        row[c] = x.get((size_t)r * LD + c);
                norm_reference(KIND, N, row.data(), xhat.data(), rstd);
                for (int c = 0; c < N; c++) {
                        const double g0 = g.get((size_t)r * LD + c);
                        s1 += KIND == NORM_LAYER ? g0 * gain[c] / N : 0;
                        s2 += g0 * gain[c] * xhat[c] / N;
                        wg[c] += g0 * xhat[c];
                        wb[c] += g0;
                }
                for (int c = 0; c < N; c++)
                        CHECK_NEAR(dx[(size_t)r * N + c],
                                   rstd * (g.get((size_t)r * LD + c) * gain[c] - s1 - xhat[c] * s2),
                                   2e-5, "norm_back %d N %d rows %d at %d,%d", KIND, N, rows, r, c);
        }
        for (int c = 0; c < N; c++) {
                double dgain = 0, dbias = 0;
                for (int t = 0; t < tiles; t++) {
                        dgain += pg[(size_t)t * N + c];
                        dbias += pb[(size_t)t * N + c];
                }
                CHECK_NEAR(dgain, wg[c], 1e-4, "norm_back gain, N %d rows %d at %d", N, rows, c);
                if (ACC & ACC_BIAS)
                        CHECK_NEAR(dbias, wb[c], 1e-4, "norm_back bias, N %d rows %d at %d", N,
                                   rows, c);
        }
}

/* ---- e4m3 with a scale ---------------------------------------------------------- */

template <int N, int G, int THREADS, class T>
struct RoundRun {
        int rows;
        In<T> x;
        Out<float> out;
        __device__ void operator()(int tile, char *smem) const
        {
                round_fp8_task<N, G, THREADS>(rows, tile, smem, x, out);
        }
};

/* Of code 0 .. 126. */
static double e4m3(int code)
{
        const int e = code >> 3, m = code & 7;
        return e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
}

/* The first group has every value of e4m3 and every middle of two, as far as it goes; one is of
 * zeros, one not finite. */
template <int N, int G, int THREADS, class T>
static void round_test(int rows)
{
        constexpr int PER = (N + G - 1) / G;
        Buf<T> x((size_t)rows * N);
        Buf<float> y((size_t)rows * N);
        x.fill(N, 3.f);
        for (int c = 0; c < G; c++) {
                const int code = c / 2 % 126;
                if (sizeof(T) == 4)
                        x[c] = (T)(float)(c == G - 1 ? 448.
                                          : c % 2    ? -(e4m3(code) + e4m3(code + 1)) / 2
                                                     : e4m3(code));
                if (rows > 1)
                        x[(size_t)N + c] = (T)0.f;
        }
        if (rows > 2)
                x[2 * (size_t)N + G / 2] = (T)-INFINITY;
        shell_run<THREADS>(ceil_div((long long)rows * PER, ROW_ROWS(G, THREADS)), ROW_SMEM,
                           RoundRun<N, G, THREADS, T> { rows, { x.p, N }, { y.p, N } });
        for (size_t i = 0; i < (size_t)rows * N; i++) {
                const size_t row = i / N * N, from = row + i % N / G * G,
                             to = from + G < row + N ? from + G : row + N;
                float most = 0;
                double least = 1e30, want = 0;
                for (size_t k = from; k < to; k++)
                        most = fmaxf(most, fabsf((float)x[k]));
                const double scale = fmax(most / 448.f, 0x1p-126),
                             at = fabs((double)((float)x[i] / (float)scale));
                for (int code = 0; code < 127; code++) {
                        const double off = fabs(e4m3(code) - at);
                        if (off < least || (off == least && !(code & 1)))
                                least = off, want = e4m3(code);
                }
                if (most == INFINITY)
                        want = NAN;
                CHECK_NEAR(y[i], (float)x[i] < 0 ? -want * scale : want * scale, 1e-7,
                           "round N %d G %d at %d", N, G, (int)i);
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
        for (int c = 0; c < n && rows > 1; c++) /* a masked row, ties, NaN, and a lone value */
                x[(size_t)n + c] = -INFINITY;
        if (rows > 2)
                for (int c = 0; c < n; c++)
                        x[2 * (size_t)n + c] = c == n / 2 ? 3.f : c < n / 2 ? -INFINITY : 3.f;
        if (rows > 3)
                x[3 * (size_t)n] = NAN;
        for (int what = 0; what < 6; what++) {
                bool whole = what < 2;
                shell_run<THREADS>(ceil_div(rows, ROW_ROWS(N, THREADS)), ROW_SMEM,
                                   RowsRun<N, THREADS> { what,
                                                         rows,
                                                         n,
                                                         { x.p, n },
                                                         { dy.p, n },
                                                         { whole ? y.p : one.p, whole ? n : 1 },
                                                         index.p });
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
                                printf("not ok argmax: N %d n %d row %d: got %d, want %d\n", N, n,
                                       r, index[r], at);
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
                                              : sum == 0
                                                      ? 0
                                                      : exp(v[c] - (top == -INFINITY ? 0 : top)) /
                                                                sum;
                                if (what == 1 && r >= 1 &&
                                    r <= 3) /* infinite inputs: no gradient to speak of */
                                        continue;
                                CHECK_NEAR(y[(size_t)r * n + c], want, 1e-4,
                                           "softmax%s N %d n %d at %d,%d", what ? "_grad" : "", N,
                                           n, r, c);
                        }
                }
        }
}

/* ---- cross-entropy ------------------------------------------------------------- */

template <class T, int V, int THREADS>
struct CeRun {
        int what;
        T *logits, *dlogits;
        int ld, ldd;
        const int *targets;
        float *loss, *lse;
        In<float, 1> dloss;
        __device__ void operator()(int tile, char *smem) const
        {
                switch (what) {
                case 0: ce_task<T, V, THREADS>(logits, ld, targets, loss, lse, tile, smem); break;
                case 1:
                        ce_grad_task<T, V, THREADS>(logits, ld, dlogits, ldd, targets, lse, tile,
                                                    dloss);
                        break;
                default:
                        ce_both_task<T, V, THREADS>(logits, ld, targets, loss, lse, tile, smem,
                                                    dloss);
                }
        }
};

template <class T, int V, int THREADS>
static void ce_test(int ld)
{
        constexpr int ROWS = 5;
        const int ldd = ld + (V % 2 ? 3 : 8); /* the gradient may lie elsewhere than the logits */
        Buf<T> x((size_t)ROWS * ld), dx((size_t)ROWS * ldd), both((size_t)ROWS * ld);
        Buf<int> targets(ROWS);
        Buf<float> loss(ROWS), lse(ROWS), loss2(ROWS), lse2(ROWS), dloss(ROWS);
        x.fill(V, 4.f);
        dloss.fill(3);
        for (int c = 0; c < V; c++) /* mostly masked, and large */
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
        CeRun<T, V, THREADS> run = {
                0, x.p, dx.p, ld, ldd, targets.p, loss.p, lse.p, { dloss.p, 1 }
        };
        shell_run<THREADS>(ROWS, CE_SMEM, run);
        run.what = 1;
        shell_run<THREADS>(ROWS, CE_SMEM, run);
        shell_run<THREADS>(
                ROWS, CE_SMEM,
                CeRun<T, V, THREADS> {
                        2, both.p, 0, ld, 0, targets.p, loss2.p, lse2.p, { dloss.p, 1 } });
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
                CHECK_NEAR(loss[r], counts ? want - x.get((size_t)r * ld + t) : 0, 1e-5,
                           "loss V %d row %d", V, r);
                CHECK_NEAR(lse2[r], lse[r], 1e-6, "both: lse V %d row %d", V, r);
                CHECK_NEAR(loss2[r], loss[r], 1e-5, "both: loss V %d row %d", V, r);
                for (int c = 0; c < V; c++) {
                        double d = counts ? (exp(x.get((size_t)r * ld + c) - want) - (c == t)) *
                                                    dloss[r]
                                          : 0;
                        CHECK_NEAR(dx.get((size_t)r * ldd + c), d, tol, "dlogits V %d at %d,%d", V,
                                   r, c);
                        CHECK_NEAR(both.get((size_t)r * ld + c), d, tol,
                                   "both: dlogits V %d at %d,%d", V, r, c);
                }
                for (int c = V; c < ld; c++)
                        CHECK_NEAR(both.get((size_t)r * ld + c), x.get((size_t)r * ld + c), 0,
                                   "padding V %d", V);
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
                       ColumnsRun<N, 256> { rows, chunks, { x.p, N }, { partial.p, N } });
        shell_run<256>(ceil_div(N, 32), COLUMNS_SMEM(256),
                       ColumnsReduceRun<N> { chunks, partial.p, { sum.p, N } });
        for (int c = 0; c < N; c++) {
                double want = 0;
                for (int r = 0; r < rows; r++)
                        want += x.get((size_t)r * N + c);
                CHECK_NEAR(sum[c], want, 1e-5, "columns N %d rows %d chunks %d at %d", N, rows,
                           chunks, c);
        }
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
        norm_grad_test<NORM_LAYER, N, THREADS, ACC_GAIN | ACC_BIAS, bf16, true>(
                ROW_ROWS(N, THREADS) * 2 - 1, 2);
        norm_grad_test<NORM_RMS, N, THREADS, ACC_GAIN, float, true>(1, 1);
}

static void all_map()
{
        map_test<1>(1), map_test<3>(50), map_test<65>(7), map_test<100>(41), map_test<768>(3),
                map_test<1000>(2);
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
        norm_tests<20000, 1024>(); /* too long for registers */
        norm_back_test<NORM_LAYER, 8, ACC_GAIN | ACC_BIAS>(70, 2);
        norm_back_test<NORM_RMS, 24, ACC_GAIN>(600, 2);
        norm_back_test<NORM_LAYER, 768, ACC_GAIN | ACC_BIAS>(41, 2);
        norm_back_test<NORM_LAYER, 1000, ACC_GAIN>(5, 3);
        norm_back_test<NORM_RMS, 2048, ACC_GAIN>(7, 2);
        norm_back_test<NORM_LAYER, 2056, ACC_GAIN | ACC_BIAS>(5, 2);
        norm_back_test<NORM_RMS, 4096, ACC_GAIN>(4, 1);
        norm_back_test<NORM_LAYER, 4104, ACC_GAIN | ACC_BIAS>(3, 1);
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
static void all_rounded()
{
        round_test<256, 256, 128, float>(5);
        round_test<512, 128, 128, float>(5);
        round_test<200, 128, 128, bf16>(3);
        round_test<96, 32, 128, bf16>(7);
        round_test<2048, 2048, 256, bf16>(3);
        round_test<20000, 20000, 1024, float>(3); /* too long for registers */
}
static void all_cross_entropy()
{
        ce_test<bf16, 3, 64>(3);
        ce_test<bf16, 1000, 256>(1000);
        ce_test<bf16, 1003, 256>(1008);
        ce_test<bf16, 5003, 256>(5008);
        ce_test<float, 1003, 256>(1003);
        ce_test<float, 5000, 256>(5000);
        ce_test<bf16, 50257, 512>(50304);
        ce_test<bf16, 50257, 1024>(50304);
        ce_test<bf16, 70001, 1024>(70008);
}
static void all_columns()
{
        columns_test<1>(5, 2), columns_test<3>(1000, 7), columns_test<100>(1, 1),
                columns_test<768>(77, 5);
        columns_test<300>(3, 9);
}

int main(int argc, char **argv)
{
        static const NamedTest tests[] = {
                { "map", all_map },         { "norm", all_norm },
                { "rows", all_rows },       { "cross_entropy", all_cross_entropy },
                { "columns", all_columns }, { "round", all_rounded },
        };
        return run_tests(tests, argc, argv);
}
