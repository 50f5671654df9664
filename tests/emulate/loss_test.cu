/* loss_test.cu: cross_entropy_exp.cuh against plain loops in double: the whole way from x, w and
 * targets to losses and to what the gradients' products get.  A stand-in for the product stores
 * exponentials and sums them by parts of the columns.  And cross_entropy_small_vocab.cuh, from x to
 * dx. */
#include "near.h"
#include "functor.cuh"
#include "cross_entropy_exp.cuh"
#include "cross_entropy_small_vocab.cuh"

template <class T, int C, int W>
struct Shift {
        const T *x, *w;
        int V, rows;
        const int *targets;
        float *shift;
        __device__ void operator()(int tile, char *) const
        {
                ce_shift_task<T, C, W>(x, C, w, C, V, rows, targets, shift, tile);
        }
};

/* One row a tile, one part of the columns a thread. */
template <class T, int PARTS>
struct Exps {
        const T *x, *w;
        int C, V, ld, rows;
        const float *shift;
        T *e;
        float *sums;
        __device__ void operator()(int row, char *) const
        {
                const int part = (int)threadIdx.x;
                if (part >= PARTS)
                        return;
                float sum = 0.f;
                for (int v = V * part / PARTS; v < V * (part + 1) / PARTS; v++) {
                        float l = 0.f;
                        for (int c = 0; c < C; c++)
                                l += to_float(x[(long)row * C + c]) * to_float(w[(long)v * C + c]);
                        const float y = ce_exp(l, shift[row]);
                        from_float(e + (long)row * ld + v, y);
                        sum += y;
                }
                sums[(long)part * rows + row] = sum;
        }
};

template <class T, int V, int C, int W, int PARTS, bool GRAD>
struct Finish {
        T *e;
        int ld, rows;
        const float *sums;
        const int *targets;
        float *loss;
        const T *x;
        T *xs;
        float *factor;
        In<float, 1> dloss;
        __device__ void operator()(int tile, char *smem) const
        {
                ce_finish_task<T, V, C, W, PARTS, GRAD>(e, ld, rows, sums, targets, loss, x, C, xs,
                                                        factor, tile, smem, dloss);
        }
};

/* Rows with a purpose: targets that do not count, one that is nearly certain, one more improbable
 * than exponentials reach (its loss is bounded), one whose x is no number. */
enum { OUTSIDE = 1, BELOW = 2, CERTAIN = 3, LOST = 4, BROKEN = 5 };

template <class T, int V, int C, int W, int PARTS>
static void loss_test(int rows, int ld)
{
        const int tiles = ceil_div(rows, CE_FINISH_ROWS);
        Buf<T> x((size_t)rows * C), w((size_t)V * C), e((size_t)rows * ld), xs((size_t)rows * C);
        Buf<int> targets((size_t)rows);
        Buf<float> shift((size_t)rows), sums((size_t)rows * PARTS), loss((size_t)rows),
                again((size_t)rows), factor((size_t)rows), dloss((size_t)rows);
        x.fill(C, 0.5f);
        w.fill(C, 1.f);
        dloss.fill(3);
        for (int r = 0; r < rows; r++)
                targets[(size_t)r] = r * 7 % V;
        targets[0] = V - 1;
        for (int c = 0; c < C; c++) /* likely: its e is seen in the sum */
                x.set((size_t)c, 0.3f * (float)w.get((size_t)(V - 1) * C + (size_t)c));
        if (rows > BROKEN) {
                targets[OUTSIDE] = V;
                targets[BELOW] = -100;
                for (int c = 0; c < C; c++) { /* along its own w, and against it */
                        x.set((size_t)CERTAIN * C + (size_t)c,
                              0.3f * (float)w.get((size_t)targets[CERTAIN] * C + (size_t)c));
                        x.set((size_t)LOST * C + (size_t)c,
                              -300.f * (float)w.get((size_t)targets[LOST] * C + (size_t)c));
                }
                x.set((size_t)BROKEN * C, NAN);
        }
        shell_run<256>(ceil_div(rows, CE_SHIFT_ROWS), 0,
                       Shift<T, C, W> { x.p, w.p, V, rows, targets.p, shift.p });
        shell_run<32>(rows, 0, Exps<T, PARTS> { x.p, w.p, C, V, ld, rows, shift.p, e.p, sums.p });
        shell_run<256>(
                tiles, CE_FINISH_SMEM,
                Finish<T, V, C, W, 0, false> {
                        e.p, ld, rows, sums.p, targets.p, again.p, 0, 0, 0, { dloss.p, 1 } });
        shell_run<256>(tiles, CE_FINISH_SMEM,
                       Finish<T, V, C, W, PARTS, true> { e.p,
                                                         ld,
                                                         rows,
                                                         sums.p,
                                                         targets.p,
                                                         loss.p,
                                                         x.p,
                                                         xs.p,
                                                         factor.p,
                                                         { dloss.p, 1 } });
        Vec l(V);
        for (int r = 0; r < rows; r++) {
                const int t = targets[(size_t)r];
                const bool counts = t >= 0 && t < V;
                double top = -INFINITY, sum = 0;
                for (int v = 0; v < V; v++) {
                        l[v] = 0;
                        for (int c = 0; c < C; c++)
                                l[v] += x.get((size_t)r * C + c) * w.get((size_t)v * C + c);
                        top = std::isnan(l[v]) || l[v] > top ? l[v] : top;
                }
                for (int v = 0; v < V; v++)
                        sum += exp(l[v] - top);
                const double lse = top + log(sum), want = counts ? lse - l[t] : 0;
                if (rows > BROKEN && r == LOST) {
                        CHECK_NEAR(want > 69 && loss[r] > 69 && loss[r] < want &&
                                           std::isfinite(factor[r]),
                                   1, 0, "loss out of reach");
                        continue;
                }
                CHECK_NEAR(loss[r], want, 1e-5, "loss V %d C %d row %d", V, C, r);
                CHECK_NEAR(again[r], want, 4e-3, "loss from e V %d C %d row %d", V, C, r);
                if (std::isnan(want))
                        continue;
                for (int v = 0; v < V; v++)
                        CHECK_NEAR(e.get((size_t)r * ld + v) * factor[r],
                                   counts ? (exp(l[v] - lse) - (v == t)) * dloss[r] : 0, 4e-3,
                                   "dlogits V %d at %d,%d", V, r, v);
                if (rows > BROKEN &&
                    r == CERTAIN) /* a difference of nearly equal numbers, had it been one */
                        CHECK_NEAR(e.get((size_t)r * ld + t) * factor[r] /
                                           (expm1(-want) * dloss[r]),
                                   1, 1e-2, "certain V %d", V);
                for (int c = 0; c < C; c++)
                        CHECK_NEAR(xs.get((size_t)r * C + c), x.get((size_t)r * C + c) * factor[r],
                                   4e-3, "x scaled, row %d", r);
        }
}

template <class Ce, bool BIAS, class O>
struct SingleWave {
        const typename Ce::T *x, *w;
        long ldx, ldw;
        const float *bias;
        const int *targets;
        int rows, tiles;
        typename Ce::T *d;
        float *loss;
        O *dx;
        In<float, 1> dloss;
        __device__ void operator()(int tile, char *smem) const
        {
                ce_small_vocab_task<Ce, BIAS>(x, ldx, w, ldw, BIAS ? bias : (const float *)0,
                                              targets, rows, d, loss, dx, tile, tiles, smem, dloss);
        }
};

/* more: elements of a row of x and of w that are not theirs. */
template <class T, int V, int C, bool BIAS, class O>
static void short_test(int rows, int tiles, int more)
{
        typedef CeSmallVocab<T, V, C> Ce;
        const int ldx = C + more, ldw = C + 2 * more;
        const double tol = sizeof(T) == 2 ? 4e-3 : 1e-5, loss_tol = sizeof(T) == 2 ? 1e-3 : 1e-5;
        Buf<T> x((size_t)rows * ldx), w((size_t)V * ldw), d((size_t)rows * Ce::LD);
        Buf<O> dx((size_t)rows * C);
        Buf<int> targets((size_t)rows);
        Buf<float> loss((size_t)rows), dloss((size_t)rows), bias((size_t)V);
        x.fill(C, 0.5f);
        w.fill(C, 1.f);
        bias.fill(5);
        dloss.fill(3);
        for (int r = 0; r < rows; r++)
                targets[(size_t)r] = r % 5 == 1 ? V : r % 5 == 2 ? -100 : r * 7 % V;
        shell_run<256>(tiles, Ce::SMEM,
                       SingleWave<Ce, BIAS, O> { x.p,
                                                 w.p,
                                                 ldx,
                                                 ldw,
                                                 bias.p,
                                                 targets.p,
                                                 rows,
                                                 tiles,
                                                 d.p,
                                                 loss.p,
                                                 dx.p,
                                                 { dloss.p, 1 } });
        Vec l(V), g(V);
        for (int r = 0; r < rows; r++) {
                const int t = targets[(size_t)r];
                const bool counts = t >= 0 && t < V;
                double top = -INFINITY, sum = 0;
                for (int v = 0; v < V; v++) {
                        l[v] = BIAS ? bias.get((size_t)v) : 0;
                        for (int c = 0; c < C; c++)
                                l[v] += x.get((size_t)r * ldx + c) * w.get((size_t)v * ldw + c);
                        top = l[v] > top ? l[v] : top;
                }
                for (int v = 0; v < V; v++)
                        sum += exp(l[v] - top);
                const double lse = top + log(sum);
                CHECK_NEAR(loss[r], counts ? lse - l[t] : 0, loss_tol, "loss V %d C %d row %d", V,
                           C, r);
                for (int v = 0; v < Ce::LD; v++) {
                        const double want = v < V && counts
                                                    ? (exp(l[v] - lse) - (v == t)) * dloss[r]
                                                    : 0;
                        if (v < V)
                                g[v] = want;
                        CHECK_NEAR(d.get((size_t)r * Ce::LD + v), want, tol,
                                   "dlogits V %d at %d,%d", V, r, v);
                }
                for (int c = 0; c < C; c++) {
                        double want = 0;
                        for (int v = 0; v < V; v++)
                                want += g[v] * w.get((size_t)v * ldw + c);
                        CHECK_NEAR(dx.get((size_t)r * C + c), want, 2 * tol,
                                   "dx V %d C %d at %d,%d", V, C, r, c);
                }
        }
}

static void all_single_waves()
{
        short_test<bf16, 65, 384, false, bf16>(37, 3, 0);
        short_test<bf16, 65, 48, true, float>(33, 1, 8); /* one block goes round */
        short_test<bf16, 128, 144, false, float>(16, 1, 16);
        short_test<bf16, 1, 16, true, bf16>(1, 1, 0);
        short_test<float, 80, 128, true, float>(50, 4, 4);
        short_test<float, 3, 16, false, float>(17, 2, 0);
}

static void all_losses()
{
        loss_test<bf16, 1003, 40, 8, 5>(37, 1024);
        loss_test<bf16, 300, 37, 1, 32>(8, 320);
        loss_test<bf16, 264, 64, 8, 1>(1, 264);
        loss_test<float, 75, 36, 4, 3>(33, 76);
}

int main(int argc, char **argv)
{
        static const NamedTest tests[] = { { "losses", all_losses },
                                           { "short", all_single_waves } };
        return run_tests(tests, argc, argv);
}
