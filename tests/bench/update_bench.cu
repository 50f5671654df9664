/* update_bench.cu: time and check the gradients' norm and AdamW at GPT-2's size (rows_bench.h).
 *
 *      nvcc -std=c++17 -O3 -arch=sm_90a -Icodegen/forms $(make -s kernel-includes)
 *      -Iruntime tests/bench/update_bench.cu -o update_bench update_bench [part of a name] */
#include "rows_bench.h"
#include "../emulate/update_runs.h"

/* ---- update ------------------------------------------------------------------------- */

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
        rt.put({ h });
        done.put({ 0 });
        auto square = [&] {
                launch<256>(GradNormRun { rt.p, grads, 1056, partial.p, done.p, norm.p, flag.p },
                            1056, UPDATE_SMEM);
        };
        auto step = [&] {
                const int tiles = ceil_div(n, 256 * UPDATE_PER_THREAD);
                if (n_low)
                        launch<256>(
                                UpdateRun<AdamW, SplitParams> {
                                        rt.p, { low.p, lo.p }, { m.p, v.p }, grads, n / 2, norm.p },
                                tiles, 0);
                else
                        launch<256>(
                                UpdateRun<AdamW, Params<bf16>> {
                                        rt.p, { p.p, low.p }, { m.p, v.p }, grads, n / 2, norm.p },
                                tiles, 0);
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
        report(name, time_ms(square), 4. * n - 2. * n_low,
               worse(0, norm.get(0, 1)[0], sqrt(total)));
        step();
        auto got = value();
        double scale = fmin(1., 1 / (sqrt(total) + 1e-6));
        for (int i = 0; i < 4096; i++) {
                double gi = hg[i] * scale, wm = 0.1 * gi, wv = 0.05 * gi * gi;
                error = worse(error, got[i],
                              hp[i] * (1 - 1e-4) -
                                      1e-3 / 0.1 * wm / (sqrt(wv) / sqrt(0.05) + 1e-8));
        }
        snprintf(name, sizeof name, "adamw + bf16 copy %lldM", n / 1000000);
        report(name, time_ms(step), (n_low ? 28. : 30.) * n - 2. * n_low, error);
}

/* AdamW with states of 8 bits, parameters in halves; beside it a copy of as many bytes. */
template <int BLOCKS>
static void bench_update8(long long n, int waves)
{
        char name[64];
        if (!wanted("adamw8bit"))
                return;
        Dev<float> m_max(n / 256), v_max(n / 256), small(256), norm(1);
        Dev<bf16> low(n), g(n);
        Dev<unsigned short> lo(n);
        Dev<unsigned char> m8(n), v8(n);
        Dev<SmallState> none(1);
        Dev<Rt> rt(1);
        const Grads grads = { g.p, 0, 0, n, n };
        Rt h;
        memset(&h, 0, sizeof h);
        h.lr = 1e-3f, h.beta1 = 0.9f, h.beta2 = 0.95f, h.eps = 1e-8f, h.weight_decay = 0.1f;
        h.clip = 1.f, h.bias1 = 0.1f, h.bias2 = 0.05f, h.n_micro = 1;
        fill(low, 1);
        fill(g, 3, 1e-3f);
        rt.put({ h });
        norm.put({ 0.5f });
        none.put({ { 1 << 30, 1 << 30, 0 } });
        const States8 s = { m8.p, v8.p, m_max.p, v_max.p, small.p, small.p };
        const int tiles = std::min(ceil_div(n, 2048), 132 * waves);
        const double bytes = 14. * n + 16. * n / 256;
        const double ms = time_ms([&] {
                launch<256, BLOCKS>(
                        Adamw8Run<SplitParams> {
                                rt.p, { low.p, lo.p }, s, none.p, 1, grads, n / 2, norm.p, tiles },
                        tiles, ADAMW8BIT_SMEM);
        });
        Dev<unsigned char> from((size_t)(bytes / 2)), to((size_t)(bytes / 2));
        const double copy = time_ms([&] {
                ok(cudaMemcpyAsync(to.p, from.p, from.n, cudaMemcpyDeviceToDevice, stream()));
        });
        snprintf(name, sizeof name, "adamw8bit %lldM, %d of %d, %.0f%% of copy", n / 1000000, waves,
                 BLOCKS, 100 * copy / ms);
        report(name, ms, bytes, 0);
}

int main(int argc, char **argv)
{
        only = argc > 1 ? argv[1] : "";
        setvbuf(stdout, 0, _IOLBF, 0);
        bench_update(124000000);
        bench_update(124000000, 80000000);
        bench_update8<4>(124000256, 4);
        return 0;
}
