/* update_test.cu: the gradients' norm, AdamW and the sampler, against plain loops in double.
 *
 *      g++ -std=c++17 -O1 -fno-strict-aliasing -x c++ -Icodegen/forms $(make -s kernel-includes) -Iruntime -include codegen/kernels/emulate/emulate.h update_test.cu nvcc
 *      -std=c++17 -arch=sm_80 -Icodegen/forms $(make -s kernel-includes) -Iruntime
 *      update_test.cu
 *
 * Sizes are odd on purpose: one element, parts of a vector, a last tile that is not full. */
#include "near.h"
#include "update_runs.h"
#include "sample.cuh"
#include <algorithm>

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
        flag[0] = 7;
        if (bad)
                g[n - 1] = NAN;
        memset((void *)rt, 0, sizeof *rt);
        rt->n_micro = n_micro;
        for (rt->micro = 0; rt->micro < n_micro; rt->micro++) {
                part.fill(40 + rt->micro, 3.f);
                for (int i = 0; i < n_low; i++)
                        g[i] = (float)((rt->micro ? g[i] : 0) + part.get(i));
                if (n_micro > 1)
                        shell_run<256>(ceil_div(n_low, 256 * 8), 0,
                                       GradAddRun { rt, grads, sum.p });
        }
        for (int i = n_low; i < n; i++)
                rest[i - n_low] = g[i];
        rt->lr = 1e-2f, rt->beta1 = 0.9f, rt->beta2 = 0.95f, rt->eps = 1e-8f,
        rt->weight_decay = 0.1f;
        rt->clip = clip, rt->bias1 = 0.19f, rt->bias2 = 0.0975f;
        for (int i = 0; i < n; i++)
                p0[i] = p[i], m0[i] = m[i], v0[i] = v[i] = fabsf(v[i]);
        done[0] = 0;
        shell_run<256>(7, UPDATE_SMEM,
                       GradNormRun { rt, grads, 7, partial.p, done.p, norm.p, flag.p });
        CHECK_NEAR(done[0], 0, 0, "counter, n %d", n);
        const int tiles = ceil_div(n, 256 * ADAMW_PER_THREAD);
        if (n_low)
                shell_run<256>(ceil_div(n, 256), 0, SplitRun { split, p.p, n, true });
        if (n_low)
                shell_run<256>(tiles, UPDATE_SMEM,
                               AdamwRun<SplitParams> { rt, split, m.p, v.p, grads, n_decay,
                                                       norm.p });
        else
                shell_run<256>(tiles, UPDATE_SMEM,
                               AdamwRun<Params<bf16>> {
                                       rt, { p.p, low.p }, m.p, v.p, grads, n_decay, norm.p });
        if (n_low)
                shell_run<256>(ceil_div(n, 256), 0, SplitRun { split, p.p, n, false });
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
                wp -= rt->lr / (double)rt->bias1 * wm /
                      (sqrt(wv) / sqrt((double)rt->bias2) + rt->eps);
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

/* sample.cuh's definition by sorting; -1: nothing to choose.  x has its penalties already. */
static int sample_reference(const Rt *rt, std::vector<float> x, int S, int b)
{
        int V = (int)x.size(), top = 0;
        for (int i = 0; i < V; i++) {
                if (!(x[i] < INFINITY))
                        return -1;
                top = x[i] > x[top] ? i : top;
        }
        float M = x[top], t = -INFINITY;
        if (rt->temp <= 0 || std::isinf(M))
                return std::isinf(M) ? -1 : top;
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
        u64 r = (u64)(((unsigned __int128)Z * philox_first((unsigned)S, (unsigned)b, SAMPLE_ID,
                                                           rt->seed[0], rt->seed[1])) >>
                      32);
        for (int i = 0; i < V; i++)
                if ((run += kept(x[i]) ? weight((x[i] - M) / rt->temp) : 0) > r)
                        return i;
        return -1;
}

template <class T, int V>
static void sample_test(float temp, int top_k, float top_p, float min_p, float penalty, int last_n, float spread, int odd = 0)
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
        logits.set(ld + V / 2, -INFINITY);
        if (odd)
                logits.set(2 * ld + V - 1, odd > 1 ? INFINITY : NAN);
        for (int i = 0; i < B * CAP; i++)
                hist[i] = i * i % (V + 2) - 1; /* repeats, and two that are no tokens */
        memcpy((void *)kept.p, (void *)logits.p, logits.n * sizeof(T));
        std::vector<int> old(hist.p, hist.p + B * CAP);
        shell_run<1024>(B + 1, SAMPLE_SMEM,
                        SampleRun<T, V> { rt, logits.p, ld, hist.p, CAP, B, next.p });
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
                CHECK_NEAR(next[b], want < 0 ? 0 : want, 0,
                           "V %d temp %g top_k %d top_p %g min_p %g sequence %d", V, temp, top_k,
                           top_p, min_p, b);
                CHECK_NEAR(hist[S % CAP * B + b], want, 0, "hist of sequence %d", b);
                CHECK_NEAR(rt->pos[b], S, 0, "pos of sequence %d", b);
        }
        CHECK_NEAR(rt->n_out, 6, 0, "n_out");
}

template <class T, int V>
static void sample_tests()
{
        sample_test<T, V>(0.f, 40, 0.9f, 0.f, 1.3f, 8, 4.f);
        sample_test<T, V>(1.f, 0, 1.f, 0.f, 1.f, 0, 2.f);
        sample_test<T, V>(0.8f, 40, 0.95f, 0.05f, 1.1f, 64, 3.f);
        sample_test<T, V>(1.5f, 3, 1.f, 0.f, 1.1f, -1, 1.f);
        sample_test<T, V>(1.f, 0, 0.9f, 0.f, 1.f, 0, 6.f, 1);
        sample_test<T, V>(0.f, 0, 1.f, 0.f, 1.2f, 8, 3.f, 2);
        sample_test<T, V>(1.f, 0, 0.9f, 0.f, 1.f, 0, 0.1f);
        sample_test<T, V>(2.f, 0, 1.f, 0.2f, 1.f, 0, 3.f);
        sample_test<T, V>(1.f, V - 1, 0.f, 0.f, 1.f, 0, 3.f);
}

static void all_update()
{
        update_test(1, 0, 0.f, false), update_test(3, 3, 1.f, false),
                update_test(1030, 515, 1.f, false);
        update_test(20001, 7, 1e9f, false), update_test(4099, 100, 1.f, true);
        update_test(1030, 515, 1.f, false, 512), update_test(4099, 4000, 1.f, false, 2056, 3),
                update_test(1024, 1024, 0.f, false, 1024);
}
static void all_sample() {
        sample_tests<float, 5>(), sample_tests<bf16, 1000>(), sample_tests<float, 9001>(); }

int main(int argc, char **argv)
{
        static const NamedTest tests[] = {
                { "update", all_update },
                { "sample", all_sample },
        };
        return run_tests(tests, argc, argv);
}
