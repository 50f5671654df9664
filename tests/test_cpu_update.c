/* test_cpu_update.c: the update and the sampler in C, against plain loops in double. */
#include "cpu_kernels.h"
#include "cpu_sample.h"
#include "cpu_adamw.h"

/* ---- update ------------------------------------------------------------ */

TEST (gradient_norm_and_adamw) {
        long n = 2 * UPDATE_TILE + 1001, n_decay = UPDATE_TILE + 77;
        float *p = floats(n), *g = floats(n), *m = floats(n), *v = floats(n), *p0 = floats(n), norm;
        bf16 *low = calloc((size_t)n, sizeof *low);
        double partial[3], q = 0.;
        static Rt rt;
        rt = (Rt) { .lr = 1e-3f,
                    .beta1 = .9f,
                    .beta2 = .95f,
                    .eps = 1e-8f,
                    .weight_decay = .1f,
                    .clip = 1.f,
                    .bias1 = .1f,
                    .bias2 = .05f };
        CHECK(update_tiles(n) == 3);
        RUN(3, partial, 3, sumsq_task(g, n, partial, tile));
        int flag = 7;
        norm_finish_task(partial, 3, &norm, &flag);
        for (long i = 0; i < n; i++)
                q += (double)g[i] * (double)g[i];
        NEAR(norm, sqrt(q), 1e-5 * sqrt(q), "norm");
        for (long i = 0; i < n; i++)
                p0[i] = p[i], v[i] = fabsf(v[i]);
        float *m0 = malloc(4 * (size_t)n), *v0 = malloc(4 * (size_t)n);
        memcpy(m0, m, 4 * (size_t)n), memcpy(v0, v, 4 * (size_t)n);
        for (long tile = 0; tile < 3; tile++)
                adamw_task(&rt, p, m, v, g, low, TY_BF16, n, n_decay, &norm, tile);
        for (long i = 0; i < n; i++) {
                double gi = (double)g[i] / ((double)norm + 1e-6), mi = .9 * (double)m0[i] + .1 * gi,
                       vi = .95 * (double)v0[i] + .05 * gi * gi;
                double want = (double)p0[i] * (i < n_decay ? 1. - 1e-4 : 1.) -
                              1e-3 * (mi / .1) / (sqrt(vi / .05) + 1e-8);
                NEAR(p[i], want, 1e-6 * (1. + fabs(mi / .1 / sqrt(vi / .05))), "parameter %ld", i);
                NEAR(m[i], mi, 1e-6, "m %ld", i);
                NEAR(v[i], vi, 1e-6, "v %ld", i);
                CHECK(low[i] == bf16_from_float(p[i]));
        }
        memcpy(p0, p, 4 * (size_t)n);
        partial[1] = NAN;
        norm_finish_task(partial, 3, &norm, &flag);
        CHECK(flag == 1);
        for (long tile = 0; tile < 3; tile++)
                adamw_task(&rt, p, m, v, g, low, TY_BF16, n, n_decay, &norm, tile);
        CHECK(!memcmp(p, p0, 4 * (size_t)n));
        free(p), free(g), free(m), free(v), free(p0), free(low), free(m0), free(v0);
}

/* ---- sampling ---------------------------------------------------------- */

enum { SV = 300 };

/* One draw with the plain definition: sort, filter, walk in order of index. */
static int plain_sample(const Rt *rt, const float *x, int V, uint32_t u)
{
        int keep[SV];
        float max = -INFINITY;
        for (int i = 0; i < V; i++)
                max = x[i] > max ? x[i] : max;
        double z = 0.;
        for (int i = 0; i < V; i++) {
                int above = 0;
                for (int j = 0; j < V; j++)
                        above += x[j] > x[i];
                keep[i] = rt->top_k <= 0 || above < rt->top_k;
                z += keep[i] ? floor((double)fast_exp_negf(x[i] - max) * 0x1p32) : 0.;
        }
        for (int i = 0; i < V && rt->top_p < 1.f; i++) {
                double above = 0.;
                for (int j = 0; j < V; j++)
                        above += keep[j] && x[j] > x[i]
                                         ? floor((double)fast_exp_negf(x[j] - max) * 0x1p32)
                                         : 0.;
                /* 2: out */
                keep[i] = keep[i] ? above >= fmax(1., floor((double)rt->top_p * z)) ? 2 : 1 : 0;
        }
        double total = 0., run = 0.;
        for (int pass = 0; pass < 2; pass++)
                for (int i = 0; i < V; i++) {
                        if (keep[i] != 1 || (rt->min_p > 0.f && !(x[i] - max >= logf(rt->min_p))))
                                continue;
                        double w = floor((double)fast_exp_negf((x[i] - max) / rt->temp) * 0x1p32);
                        if (pass == 0)
                                total += w;
                        else if ((run += w) > floor(total * (double)u * 0x1p-32))
                                return i;
                }
        return -1;
}

TEST (sampling) {
        static Rt rt;
        float x[2 * SV], copy[2 * SV];
        int hist[2 * 16], next[2];
        for (int c = 0; c < 400; c++) {
                rt = (Rt) { .B = 2,
                            .T = 1,
                            .pos = { c, 3 * c },
                            .seed = { (unsigned)c, 5 },
                            .top_p = 1.f,
                            .repeat_penalty = 1.f,
                            .temp = c % 7 == 0 ? 0.f : .8f };
                rt.top_k = c & 1 ? 20 : 0;
                rt.top_p = c & 2 ? .9f : 1.f;
                rt.min_p = c & 4 ? .05f : 0.f;
                rt.repeat_penalty = c & 8 ? 1.3f : 1.f;
                rt.repeat_last_n = c & 16 ? -1 : 5;
                for (int i = 0; i < 2 * SV; i++)
                        copy[i] = x[i] = 4.f * noise();
                x[5] = copy[5] = x[9];
                x[11] = copy[11] = -INFINITY;
                const int odd = c % 3 == 2; /* a row with nothing to choose from */
                if (odd && c % 2)
                        x[SV + 299] = c % 4 == 1 ? INFINITY : NAN;
                for (int i = 0; odd && c % 2 == 0 && i < SV; i++)
                        x[SV + i] = -INFINITY;
                for (int i = c % 14 ? 290 : 7; i < SV && c % 7 == 0;
                     i += 283) /* greedy: the first of the largest */
                        x[i] = copy[i] = 20.f;
                for (int i = 0; i < 32; i++)
                        hist[i] = below(SV);
                int seen[32];
                memcpy(seen, hist, sizeof seen);
                for (long tile = 0; tile < 3; tile++)
                        sample_task(&rt, TY_F32, x, SV, SV, hist, 16, 2, next, tile);
                CHECK(rt.n_out == 1);
                for (int b = 0; b < 2; b++) {
                        int S = (b ? 3 * c : c) + 1, n = S < 16 ? S : 16, done[SV] = { 0 };
                        float *y = copy + b * SV;
                        n = rt.repeat_last_n < 0 || rt.repeat_last_n > n ? n : rt.repeat_last_n;
                        for (int i = 0; i < n && rt.repeat_penalty != 1.f; i++) {
                                int t = seen[(S - 1 - i) % 16 * 2 + b];
                                y[t] = done[t]++ ? y[t] : y[t] > 0.f ? y[t] / 1.3f : y[t] * 1.3f;
                        }
                        uint32_t r[4] = { (uint32_t)S, (uint32_t)b, SAMPLE_ID, 0 };
                        philox(r, rt.seed[0], rt.seed[1]);
                        int want = plain_sample(&rt, y, SV, r[0]), best = 0;
                        for (int i = 0; i < SV; i++)
                                best = y[i] > y[best] ? i : best;
                        want = rt.temp > 0.f ? want : best;
                        want = b && odd ? 0 : want;
                        CHECK_MSG(next[b] == want, "case %d sequence %d: got %d, want %d", c, b,
                                  next[b], want);
                        CHECK(hist[S % 16 * 2 + b] == (b && odd ? -1 : want) && rt.pos[b] == S);
                }
        }
}

TEST_MAIN
