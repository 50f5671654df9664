/* update_test.cu: the gradients' norm, and the rules of the optimiser against ir/optimizer.c.
 *
 *      tests/emulate/play.sh update_test            the emulator
 *      tests/emulate/play.sh --gpu update_test      a GPU
 *
 * Sizes are odd on purpose: one element, parts of a vector, a last tile that is not full. */
#include "../../ir/optimizer.c"
#include "near.h"
#include "update_runs.h"

/* The device's, which the host cannot read. */
static const float host_map[512] = { DYNAMIC_SIGNED, DYNAMIC_UNSIGNED };

/* ---- update ---------------------------------------------------------------------- */

struct GradAddRun {
        const Rt *rt;
        Grads g;
        float *sum;
        __device__ void operator()(int tile, char *) const { grad_add_task<256>(rt, g, sum, tile); }
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

/* The first n_low gradients are bf16, and of n_micro micro-steps; then parameters are split,
 * too. */
/* SCALED: gradients of the loss times 64. */
template <class Rule, bool SCALED>
static void update_test(Optimizer rule, int n, int n_decay, float clip, bool bad, int n_low = 0,
                        int n_micro = 1)
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
        const float loss_scale = SCALED ? 64.f : 1.f;
        g.fill(4, 3.f * loss_scale);
        flag[0] = 7;
        if (bad)
                g[n - 1] = NAN;
        memset((void *)rt, 0, sizeof *rt);
        rt->n_micro = n_micro;
        for (rt->micro = 0; rt->micro < n_micro; rt->micro++) {
                part.fill(40 + rt->micro, 3.f * loss_scale);
                for (int i = 0; i < n_low; i++)
                        g[i] = (float)((rt->micro ? g[i] : 0) + part.get(i));
                if (n_micro > 1)
                        shell_run<256>(ceil_div(n_low, 256 * 8), 0,
                                       GradAddRun { rt, grads, sum.p });
        }
        for (int i = n_low; i < n; i++)
                rest[i - n_low] = g[i];
        rt->unscale = 1.f / loss_scale;
        rt->lr = 1e-2f, rt->beta1 = 0.9f, rt->beta2 = 0.95f, rt->eps = 1e-8f,
        rt->weight_decay = 0.1f;
        rt->clip = clip, rt->bias1 = 0.19f, rt->bias2 = 0.0975f;
        for (int i = 0; i < n; i++)
                p0[i] = p[i], m0[i] = m[i], v0[i] = v[i] = fabsf(v[i]);
        done[0] = 0;
        shell_run<256>(7, UPDATE_SMEM,
                       GradNormRun { rt, grads, 7, partial.p, done.p, norm.p, flag.p });
        CHECK_NEAR(done[0], 0, 0, "counter, n %d", n);
        const int tiles = ceil_div(n, 256 * UPDATE_PER_THREAD);
        if (n_low)
                shell_run<256>(ceil_div(n, 256), 0, SplitRun { split, p.p, n, true });
        States<Rule::STATES> st;
        for (int k = 0; k < Rule::STATES; k++)
                st.s[k] = k ? v.p : m.p;
        if (n_low)
                shell_run<256>(tiles, UPDATE_SMEM,
                               UpdateRun<Rule, SplitParams, SCALED> { rt, split, st, grads, n_decay,
                                                                      norm.p });
        else
                shell_run<256>(tiles, UPDATE_SMEM,
                               UpdateRun<Rule, Params<bf16>, SCALED> {
                                       rt, { p.p, low.p }, st, grads, n_decay, norm.p });
        if (n_low)
                shell_run<256>(ceil_div(n, 256), 0, SplitRun { split, p.p, n, false });
        double total = 0;
        for (int i = 0; i < n; i++)
                total += (double)g[i] * g[i];
        CHECK_NEAR(norm[0], sqrt(total), 1e-5, "gradient norm, n %d", n);
        CHECK_NEAR(flag[0], bad, 0, "flag, n %d", n);
        double scale = clip > 0 ? std::min(1., clip / (sqrt(total) / loss_scale + 1e-6)) : 1;
        const OptimizerStep c = { rt->lr,           rt->beta1, rt->beta2, rt->eps,
                                  rt->weight_decay, rt->bias1, rt->bias2 };
        for (int i = 0; i < n; i++) {
                double wp = p0[i], s[] = { m0[i], v0[i] };
                if (!bad)
                        optimizer_step(rule, &c, &wp, g[i] / loss_scale * scale, s, i < n_decay);
                CHECK_NEAR(p[i], wp, bad ? 0 : 2e-6, "p[%d] of %d", i, n);
                CHECK_NEAR(m[i], s[0], bad ? 0 : 2e-6, "m[%d] of %d", i, n);
                CHECK_NEAR(v[i], s[1], bad ? 0 : 2e-6, "v[%d] of %d", i, n);
                if (!bad)
                        CHECK_NEAR(low.get(i), p[i], 4e-3, "low[%d] of %d", i, n);
        }
}

template <class Rule, bool SCALED = false>
static void all_updates(Optimizer rule)
{
        static const struct {
                int n, n_decay;
                float clip;
                bool bad;
                int n_low, n_micro;
        } c[] = { { 1, 0, 0.f, false, 0, 1 },          { 3, 3, 1.f, false, 0, 1 },
                  { 1030, 515, 1.f, false, 0, 1 },     { 20001, 7, 1e9f, false, 0, 1 },
                  { 4099, 100, 1.f, true, 0, 1 },      { 1030, 515, 1.f, false, 512, 1 },
                  { 4099, 4000, 1.f, false, 2056, 3 }, { 1024, 1024, 0.f, false, 1024, 1 } };
        for (const auto &x : c)
                update_test<Rule, SCALED>(rule, x.n, x.n_decay, x.clip, x.bad, x.n_low, x.n_micro);
}

/* bf16 alone, by chance: each is a neighbour of the exact value, and the mean is right; the words
 * are those of cpu_update.h: four elements share a call. */
static void stochastic_test(int n)
{
        Buf<Rt> rts(1);
        Rt *rt = rts.p;
        Buf<float> m(n), g(n);
        Buf<bf16> w(n);
        memset((void *)rt, 0, sizeof *rt);
        rt->lr = 1e-3f, rt->n_micro = 1, rt->seed[0] = 5, rt->step = 3;
        double sum = 0;
        const double want = 1 - 1e-3;
        for (int i = 0; i < n; i++)
                w.set(i, 1), m[i] = 0, g[i] = 1.f;
        const Grads grads = { 0, 0, g.p, 0, n };
        shell_run<256>(ceil_div(n, 256 * UPDATE_PER_THREAD), UPDATE_SMEM,
                       UpdateRun<Sgd, StochasticParams> { rt, { w.p, rt }, { m.p }, grads, 0, 0 });
        for (int i = 0; i < n; i++) {
                CHECK_NEAR(w.get(i) == 1 || w.get(i) == 1 - 1.f / 256, true, 0, "w[%d] of %d", i,
                           n);
                sum += w.get(i);
        }
        CHECK_NEAR(sum / n, want, 2e-4, "mean of %d", n);
}

struct NearestRun {
        const float *x;
        int *out, n;
        __device__ void operator()(int tile, char *smem) const
        {
                const Map8 map(smem);
                map.fill<256>();
                const int i = tile * 256 + (int)threadIdx.x;
                if (i >= n)
                        return;
                out[2 * i] = map.nearest<true>(x[i]);
                out[2 * i + 1] = map.nearest<false>(fabsf(x[i]));
        }
};

/* The nearest entry of `got` and its neighbours, the lower one on a tie; by subtraction, which
 * rounds: of two as near as that tells, got. */
static int nearest_by_search(const float *map, float x, int got, bool sign)
{
        int lo = 0, hi = 255;
        while (hi - lo > 1)
                *(map[(lo + hi) / 2] <= x ? &lo : &hi) = (lo + hi) / 2;
        const double a = (double)x - map[lo], b = (double)map[hi] - x;
        int c = a <= b ? lo : hi;
        if (fabs(a - b) < 2e-7 * fabs(x) && a != b && (got == lo || got == hi))
                c = got;
        return sign && x < 0 && c > 126 ? 126 : c;
}

/* Entries, what lies midway between them, the ends of decades, and their neighbours; all sizes. */
static void nearest_test()
{
        const int n = 2 * 9 * 256 + 7 * 9 + 30000;
        Buf<float> x(n);
        Buf<int> got(2 * n);
        int at = 0;
        for (int i = 0; i < 512; i++) {
                const float a = host_map[i], b = i % 256 < 255 ? host_map[i + 1] : a;
                for (int k = -4; k <= 4; k++)
                        x[at++] = ((i ^ k) & 1 ? a : 0.5f * (a + b)) * (1.f + k * 6e-8f);
        }
        for (int d = 0; d < 7; d++)
                for (int k = -4; k <= 4; k++)
                        x[at++] = (float)pow(10, -d) * (1.f + k * 6e-8f);
        for (unsigned r = 1; at < n; r = r * 1664525u + 1013904223u)
                x[at++] = (float)((r >> 8 & 1 ? 1 : -1) * pow(10, -8 * (r >> 9) / 8388608.0));
        for (int i = 0; i < n; i++)
                x[i] = fminf(fmaxf(x[i], -1.f), 1.f);
        shell_run<256>(ceil_div(n, 256), ADAMW8BIT_SMEM, NearestRun { x.p, got.p, n });
        for (int i = 0; i < n; i++) {
                CHECK_NEAR(got[2 * i], nearest_by_search(host_map, x[i], got[2 * i], true), 0,
                           "signed, of %.9g", x[i]);
                CHECK_NEAR(got[2 * i + 1],
                           nearest_by_search(host_map + 256, fabsf(x[i]), got[2 * i + 1], false), 0,
                           "unsigned, of %.9g", fabsf(x[i]));
        }
}

/* Two steps of states of 8 bits: the first is AdamW's, then each stored state is the nearest entry
 * of the map; block 2 is of a small parameter, whose states are float32 and go on as AdamW's. */
static void states8_test()
{
        const int n = 11 * 256, n_decay = 512;
        Buf<Rt> rts(1);
        Rt *rt = rts.p;
        Buf<float> p(n), g(n), m_max(11), v_max(11), m(256), v(256);
        Buf<unsigned char> m8(n), v8(n);
        Buf<SmallState> small(1);
        small[0] = { 2, 3, 0 };
        p.fill(1), g.fill(2, 3.f);
        memset(m8.p, 0, n), memset(v8.p, 0, n);
        for (int i = 0; i < 11; i++)
                m_max[i] = v_max[i] = 0;
        for (int i = 0; i < 256; i++)
                m[i] = v[i] = 0;
        g[700] = 0.f, g[701] = -1e-12f;
        Vec wp(n), wm(n), wv(n);
        for (int i = 0; i < n; i++)
                wp[i] = p[i];
        memset((void *)rt, 0, sizeof *rt);
        rt->n_micro = 1, rt->lr = 1e-2f, rt->beta1 = 0.9f, rt->beta2 = 0.95f, rt->eps = 1e-8f;
        rt->weight_decay = 0.1f;
        const Grads grads = { 0, 0, g.p, 0, n };
        const States8 s = { m8.p, v8.p, m_max.p, v_max.p, m.p, v.p };
        for (int t = 0; t < 2; t++) {
                rt->bias1 = (float)(1 - pow(0.9, t + 1)), rt->bias2 = (float)(1 - pow(0.95, t + 1));
                const OptimizerStep c = { rt->lr,           rt->beta1, rt->beta2, rt->eps,
                                          rt->weight_decay, rt->bias1, rt->bias2 };
                const int tiles = t ? 1 : 3; /* a warp has a block or none; or several */
                shell_run<256>(tiles, ADAMW8BIT_SMEM,
                               Adamw8Run<Params<bf16>> {
                                       rt, { p.p, 0 }, s, small.p, 1, grads, n_decay, 0, tiles });
                for (int i = 0; i < n; i++) {
                        double x[] = { wm[i], wv[i] };
                        optimizer_step(OPTIMIZER_ADAMW8BIT, &c, &wp[i], g[i], x, i < n_decay);
                        CHECK_NEAR(p[i], wp[i], 1e-5, "p[%d], step %d", i, t);
                        if (i / 256 == 2) {
                                CHECK_NEAR(m[i % 256], x[0], 1e-6, "m[%d], step %d", i, t);
                                wm[i] = x[0], wv[i] = x[1];
                                continue;
                        }
                        const double got[] = { host_map[m8[i]] * m_max[i / 256],
                                               host_map[256 + v8[i]] * v_max[i / 256] };
                        for (int k = 0; k < 2; k++) { /* within half a step of the map */
                                const double most = k ? v_max[i / 256] : m_max[i / 256];
                                CHECK_NEAR(fabs(got[k] - x[k]) <= 0.008 * most + 1e-9, true, 0,
                                           "state %d of %d, step %d", k, i, t);
                        }
                        CHECK_NEAR(x[0] == 0 || (got[0] < 0) == (x[0] < 0), true, 0, "sign of %d",
                                   i);
                        wm[i] = got[0], wv[i] = got[1];
                }
        }
}

struct EmaRun {
        const Rt *rt;
        SplitParams param;
        float *ema;
        int n;
        const float *norm; /* null: swap */
        __device__ void operator()(int tile, char *) const
        {
                if (norm)
                        ema_task<256>(rt, param, ema, n, norm, tile);
                else
                        ema_swap_task<256>(param, ema, n, tile);
        }
};

/* The average of parameters in halves; swapped twice, each is what it was to the bit. */
static void ema_test(int n)
{
        Buf<Rt> rts(1);
        Rt *rt = rts.p;
        Buf<float> p(n), ema(n), norm(1);
        Buf<bf16> w(n);
        Buf<unsigned short> lo(n);
        const SplitParams split = { w.p, lo.p };
        const int tiles = ceil_div(n, 1024);
        Vec want(n);
        memset((void *)rt, 0, sizeof *rt);
        norm[0] = 1.f;
        ema.fill(9);
        for (int t = 0; t < 6; t++) {
                p.fill(20 + t);
                shell_run<256>(ceil_div(n, 256), 0, SplitRun { split, p.p, n, true });
                rt->ema_weight = t == 0 ? 1.f : t % 2 ? 0.01f : 0.7f;
                norm[0] = t == 3 ? INFINITY : 1.f;
                shell_run<256>(tiles, 0, EmaRun { rt, split, ema.p, n, norm.p });
                for (int i = 0; i < n; i++) {
                        if (t != 3)
                                want[i] = t ? want[i] + (double)rt->ema_weight * (p[i] - want[i])
                                            : p[i];
                        CHECK_NEAR(ema[i], want[i], t ? 1e-6 : 0, "average[%d] of %d", i, n);
                        want[i] = ema[i];
                }
        }
        for (int k = 0; k < 2; k++) {
                Buf<float> now(n);
                shell_run<256>(tiles, 0, EmaRun { rt, split, ema.p, n, 0 });
                shell_run<256>(ceil_div(n, 256), 0, SplitRun { split, now.p, n, false });
                for (int i = 0; i < n; i++) {
                        CHECK_NEAR(now[i], k ? p[i] : want[i], 0, "p[%d], swap %d", i, k);
                        CHECK_NEAR(ema[i], k ? want[i] : p[i], 0, "average[%d], swap %d", i, k);
                }
        }
}

static void all_update()
{
        for (int n : { 1, 3, 1024, 4099 })
                ema_test(n);
        stochastic_test(4099);
        nearest_test();
        states8_test();
        all_updates<AdamW, true>(OPTIMIZER_ADAMW);
#define OPTIMIZER(id, name, states, kernel, rule, beta1, beta2, eps, text) \
        if (!strcmp(name, #kernel)) /* Muon's rule is AdamW's */           \
                all_updates<rule>(OPTIMIZER_##id);
#include "../../ir/optimizers.def"
#undef OPTIMIZER
}
int main(int argc, char **argv)
{
        static const NamedTest tests[] = {
                { "update", all_update },
        };
        return run_tests(tests, argc, argv);
}
