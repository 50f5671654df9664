/* loss_bench.cu: time and check cross-entropy, with logits and without a pass over them, at the
 * sizes of GPT-2, Llama and mixture models (rows_bench.h).
 *
 *      nvcc -std=c++17 -O3 -arch=sm_90a -Icodegen/forms $(make -s kernel-includes)
 *      -Iruntime tests/bench/loss_bench.cu -o loss_bench loss_bench [part of a name] */
#include "rows_bench.h"
#include "cross_entropy.cuh"
#include "cross_entropy_exp.cuh"

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
                        ce_grad_task<bf16, V, THREADS>(logits, ld, logits, ld, targets, lse, tile,
                                                       dloss);
                else
                        ce_both_task<bf16, V, THREADS>(logits, ld, targets, loss, lse, tile, smem,
                                                       dloss);
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
                launch<THREADS>(
                        CeRun<WHAT, V, THREADS> {
                                x.p, ld, targets.p, loss.p, lse.p, { dloss.p, 1 } },
                        rows, CE_SMEM);
        };
        if (WHAT == 1)
                launch<THREADS>(
                        CeRun<0, V, THREADS> { x.p, ld, targets.p, loss.p, lse.p, { dloss.p, 1 } },
                        rows, CE_SMEM);
        call();
        auto hl = lse.get(rows - 1, 1), hd = dloss.get(rows - 1, 1);
        auto dx = x.get(x.n - ld, V);
        error = worse(error, hl[0], log(sum));
        for (int c = 0; c < V && WHAT; c++)
                error = worse(error, host(dx[c]),
                              (exp(host(hx[c])) / sum - (c == ht[rows - 1])) * hd[0]);
        report(name, time_ms(call), (WHAT ? 4. : 2.) * rows * V, error);
}

/* What is left of it where the product's epilogue takes exponentials. */
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
                ce_finish_task<bf16, V, C, 8, PARTS, true>(e, V, rows, sums, targets, loss, x, C,
                                                           xs, factor, tile, smem, dloss);
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
                launch<256>(ShiftRun<V, C> { x.p, w.p, rows, targets.p, shift.p },
                            ceil_div(rows, CE_SHIFT_ROWS), 0);
        });
        error = worse(error, shift.get(last, 1)[0], dot * 1.4426950408889634);
        report(name, ms, 4. * rows * C, error);
        snprintf(name, sizeof name, "ce_finish bf16 %dx%d, K %d", rows, V, C);
        ms = time_ms([&] {
                launch<256>(FinishRun<V, C, PARTS> { e.p,
                                                     rows,
                                                     sums.p,
                                                     targets.p,
                                                     loss.p,
                                                     x.p,
                                                     xs.p,
                                                     factor.p,
                                                     { dloss.p, 1 } },
                            ceil_div(rows, CE_FINISH_ROWS), CE_FINISH_SMEM);
        });
        error = worse(0, loss.get(last, 1)[0], log(sum));
        error = worse(error, host(xs.get((size_t)last * C, 1)[0]),
                      host(hx[0]) * dloss.get(last, 1)[0] / sum);
        report(name, ms, (double)rows * (4. * C + 4. * PARTS), error);
}

int main(int argc, char **argv)
{
        only = argc > 1 ? argv[1] : "";
        setvbuf(stdout, 0, _IOLBF, 0);
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
        return 0;
}
