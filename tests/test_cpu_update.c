/* test_cpu_update.c: the update in C, against plain loops in double. */
#include "cpu_kernels.h"
#include "cpu_adamw8bit.h"
#include "cpu_ema.h"
#include "cpu_lion.h"
#include "cpu_gemm.h"
#include "cpu_muon.h"
#include "cpu_sgd.h"
#include "ir/optimizer.h"

/* ---- update ------------------------------------------------------------ */

TEST (gradient_norm_and_adamw) {
        long n = 2 * UPDATE_TILE + 1001, n_decay = UPDATE_TILE + 77;
        float *p = floats(n), *g = floats(n), *m = floats(n), *v = floats(n), *p0 = floats(n), norm;
        bf16 *low = calloc((size_t)n, sizeof *low);
        double partial[3], q = 0.;
        const UpdateParams to = { p, low, TY_BF16, false };
        float *const st[2] = { m, v };
        static Rt rt;
        rt = (Rt) { .lr = 1e-3f,
                    .beta1 = .9f,
                    .beta2 = .95f,
                    .eps = 1e-8f,
                    .weight_decay = .1f,
                    .unscale = 1.f,
                    .clip = 1.f,
                    .bias1 = .1f,
                    .bias2 = .05f };
        CHECK(update_tiles(n) == 3);
        RUN(3, partial, 3, sumsq_task(g, n, partial, tile));
        int flag = 7;
        norm_finish_task(&rt, partial, 3, &norm, &flag);
        for (long i = 0; i < n; i++)
                q += (double)g[i] * (double)g[i];
        NEAR(norm, sqrt(q), 1e-5 * sqrt(q), "norm");
        for (long i = 0; i < n; i++)
                p0[i] = p[i], v[i] = fabsf(v[i]);
        float *m0 = malloc(4 * (size_t)n), *v0 = malloc(4 * (size_t)n);
        memcpy(m0, m, 4 * (size_t)n), memcpy(v0, v, 4 * (size_t)n);
        for (long tile = 0; tile < 3; tile++)
                update_task(&rt, to, st, g, n, n_decay, &norm, tile, adamw_rule);
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
        rt.most_norm = norm * 1.01f;
        norm_finish_task(&rt, partial, 3, &norm, &flag);
        CHECK(flag == 0 && isfinite(norm));
        rt.most_norm = norm * .99f;
        norm_finish_task(&rt, partial, 3, &norm, &flag);
        CHECK(flag == 2 && isinf(norm));
        partial[1] = NAN;
        norm_finish_task(&rt, partial, 3, &norm, &flag);
        CHECK(flag == 1);
        for (long tile = 0; tile < 3; tile++)
                update_task(&rt, to, st, g, n, n_decay, &norm, tile, adamw_rule);
        CHECK(!memcmp(p, p0, 4 * (size_t)n));
        free(p), free(g), free(m), free(v), free(p0), free(low), free(m0), free(v0);
}

/* Steps of every rule, next to its definition in double (ir/optimizer.c), from states that are
 * zero. */
TEST (every_rule_is_its_definition) {
#define adamw8bit_rule NULL /* no rule of float32: test_emulate and test_train see its states */
        static UpdateRule *const rule[N_OPTIMIZERS] = {
#define OPTIMIZER(id, name, states, kernel, struct_, beta1, beta2, eps, text) kernel##_rule,
#include "ir/optimizers.def"
#undef OPTIMIZER
        };
        enum { N = UPDATE_TILE + 333, DECAY = UPDATE_TILE - 101, STEPS = 5 };
        for (int o = 0; o < N_OPTIMIZERS; o++) {
                if (!rule[o])
                        continue;
                const OptimizerInfo *info = &optimizer_info[o];
                float *p = floats(N), *m = calloc(N, 4), *v = calloc(N, 4);
                bf16 *low = calloc(N, sizeof *low);
                double *want = malloc(N * sizeof *want), (*s)[2] = calloc(N, sizeof *s);
                const UpdateParams to = { p, low, TY_BF16, false };
                float *const st[2] = { m, v };
                CHECK(optimizer_find(info->name) == (Optimizer)o);
                for (long i = 0; i < N; i++)
                        want[i] = p[i];
                for (int t = 0; t < STEPS; t++) {
                        float *g = floats(N), norm = 3.f * 64,
                              /* of gradients with a scale */ was = p[7];
                        OptimizerStep c = { 1e-2,
                                            info->beta1,
                                            fmax(info->beta2, 0),
                                            1e-8,
                                            .1,
                                            1 - pow(info->beta1, t + 1.),
                                            1 - pow(fmax(info->beta2, 0), t + 1.) };
                        static Rt rt;
                        rt = (Rt) { .lr = 1e-2f,
                                    .beta1 = (float)c.beta1,
                                    .beta2 = (float)c.beta2,
                                    .eps = 1e-8f,
                                    .weight_decay = .1f,
                                    .unscale = 1.f / 64,
                                    .clip = 1.f,
                                    .bias1 = (float)c.bias1,
                                    .bias2 = (float)c.bias2 };
                        float bad = NAN; /* changes nothing */
                        update_task(&rt, to, st, g, N, DECAY, &bad, 0, rule[o]);
                        CHECK(p[7] == was);
                        for (long tile = 0; tile < update_tiles(N); tile++)
                                update_task(&rt, to, st, g, N, DECAY, &norm, tile, rule[o]);
                        for (long i = 0; i < N; i++) {
                                optimizer_step((Optimizer)o, &c, &want[i],
                                               (double)g[i] / 64 / (3. + 1e-6), s[i], i < DECAY);
                                NEAR(p[i], want[i], 2e-6 * (1 + t), "%s step %d, parameter %ld",
                                     info->name, t, i);
                                NEAR(m[i], s[i][0], 2e-6 * (1 + t), "%s step %d, m %ld", info->name,
                                     t, i);
                        }
                        free(g);
                }
                for (long i = 0; i < N; i++)
                        CHECK(low[i] == bf16_from_float(p[i]));
                free(p), free(m), free(v), free(low), free(want), free(s);
        }
}

/* The average next to its definition in double; swapped twice nothing has changed, swapped once low
 * is of the average. */
TEST (average_of_parameters) {
        enum { N = UPDATE_TILE + 333, STEPS = 20 };
        static const float weight[] = { 1.f, 0.001f, 0.6f };
        bf16 *low = calloc(N, sizeof *low);
        float *p = NULL, *ema = floats(N), *was = malloc(N * 4), norm = 1.f, bad = NAN;
        double *want = malloc(N * sizeof *want);
        static Rt rt;
        for (int t = 0; t < STEPS; t++) {
                free(p);
                p = floats(N);
                const UpdateParams to = { p, low, TY_BF16, false };
                rt = (Rt) { .ema_weight = weight[t ? 1 + t % 2 : 0] };
                memcpy(was, ema, N * 4);
                for (long tile = 0; tile < update_tiles(N); tile++)
                        ema_task(&rt, to, ema, N, &bad, tile);
                CHECK(!memcmp(was, ema, N * 4));
                for (long tile = 0; tile < update_tiles(N); tile++)
                        ema_task(&rt, to, ema, N, &norm, tile);
                for (long i = 0; i < N; i++) {
                        const double w = rt.ema_weight;
                        want[i] = t ? want[i] + w * ((double)p[i] - want[i]) : p[i];
                        NEAR(ema[i], want[i], t ? 1e-6 : 0, "step %d, average %ld", t, i);
                }
        }
        const UpdateParams to = { p, low, TY_BF16, false };
        float *p0 = malloc(N * 4);
        memcpy(was, ema, N * 4), memcpy(p0, p, N * 4);
        for (int k = 0; k < 2; k++) {
                for (long tile = 0; tile < update_tiles(N); tile++)
                        ema_swap_task(to, ema, N, tile);
                CHECK(!memcmp(k ? p : ema, p0, N * 4) && !memcmp(k ? ema : p, was, N * 4));
                for (long i = 0; i < N; i++)
                        CHECK(low[i] == bf16_from_float(p[i]));
        }
        free(p), free(ema), free(was), free(p0), free(low), free(want);
}

/* Weights of 16 bits alone: to nearest, small steps are lost; by chance, they count on average. */
TEST (weights_without_masters) {
        enum { N = UPDATE_TILE + 2049, STEPS = 64 };
        bf16 *w = malloc(N * sizeof *w);
        float *m = calloc(N, 4), *g = malloc(N * 4), x;
        float *const st[2] = { m, NULL };
        static Rt rt;
        for (int stochastic = 0; stochastic < 2; stochastic++) {
                const UpdateParams to = { NULL, w, TY_BF16, stochastic };
                double sum = 0;
                for (long i = 0; i < N; i++)
                        w[i] = bf16_from_float(1.f), g[i] = 1.f;
                for (int t = 0; t < STEPS; t++) {
                        rt = (Rt) { .lr = 1e-4f, .unscale = 1, .step = t, .seed = { 7, 8 } };
                        for (long tile = 0; tile < update_tiles(N); tile++)
                                update_task(&rt, to, st, g, N, 0, NULL, tile, sgd_rule);
                }
                for (long i = 0; i < N; i++) {
                        load_bf16(&x, w + i, 1);
                        sum += x;
                }
                if (stochastic) /* 64 steps of 1e-4 */
                        NEAR(sum / N, 1 - STEPS * 1e-4, 2e-4, "mean of weights");
                else
                        CHECK(sum == N);
        }
        free(w), free(m), free(g);
}

/* tests/e2e/train/adamw8bit.py's numbers. */
static uint32_t word;
static void numbers(float *x, long n)
{
        for (long i = 0; i < n; i++) {
                word = 1664525u * word + 1013904223u;
                float f = (float)(word >> 8) * (1.f / 8388608) - 1.f;
                x[i] = f * f * f;
        }
}

/* 100 steps of bitsandbytes' AdamW8bit; of a small parameter the states are AdamW's. */
TEST (states_of_8_bits) {
        enum { N = 4096 + 512, STEPS = 100, SMALL = 300, ALL = N + 512 };
        uint8_t *m8 = calloc(ALL, 1), *v8 = calloc(ALL, 1),
                *file = malloc(2 * N + 8 * N / 256 + 4 * N);
        float *p = calloc(ALL, 4), *g = calloc(ALL, 4), *max = calloc(2 * ALL / 256, 4),
              *states = calloc(1024, 4), want;
        float q[SMALL], qm[SMALL] = { 0 }, qv[SMALL] = { 0 };
        const SmallState small[] = { { N / 256, N / 256 + 2, 0 } };
        const States8 s = { m8, v8, max, max + ALL / 256, states, states + 512 };
        FILE *f = fopen("tests/data/train/adamw8bit.bin", "rb");
        static Rt rt;
        int same = 0, near = 0; /* a byte that differs can move its parameter: v may be 0 or not */
        CHECK(f && fread(file, 1, 6 * N + 8 * N / 256, f) == 6 * N + 8 * N / 256);
        fclose(f);
        word = 1;
        numbers(p, N);
        for (int i = 0; i < SMALL; i++)
                q[i] = p[N + i] = p[i];
        for (int t = 0; t < STEPS; t++) {
                numbers(g, N);
                memcpy(g + N, g, 4 * SMALL);
                rt = (Rt) { .lr = 1e-3f,
                            .beta1 = .9f,
                            .beta2 = .95f,
                            .eps = 1e-8f,
                            .weight_decay = .1f,
                            .unscale = 1.f,
                            .bias1 = (float)(1 - pow(.9, t + 1)),
                            .bias2 = (float)(1 - pow(.95, t + 1)) };
                adamw8bit_task(&rt, (UpdateParams) { .f32 = p }, s, small, 1, g, ALL, N, NULL, 0);
                adamw_rule(&rt, q, (float *const[2]) { qm, qv }, g, SMALL, 1, 0);
        }
        for (int i = 0; i < N; i++) {
                same += (m8[i] == file[i]) + (v8[i] == file[N + i]);
                memcpy(&want, file + 2 * N + 8 * N / 256 + 4 * i, 4);
                near += fabsf(p[i] - want) < 2e-4f;
        }
        CHECK_MSG(same >= 2 * N - 2 * N / 1000, "%d of %d bytes of states are the same", same,
                  2 * N);
        for (int i = 0; i < N / 256; i++) {
                memcpy(&want, file + 2 * N + 4 * i, 4);
                NEAR(s.m_max[i], want, 1e-5, "largest m of block %d", i);
        }
        for (int i = 0; i < SMALL; i++)
                CHECK(p[N + i] == q[i] && s.m[i] == qm[i] && s.v[i] == qv[i]);
        free(m8), free(v8), free(file), free(p), free(g), free(max), free(states);
}

/* ---- Muon ---- */

typedef struct MuonTo {
        bf16 *out;
        const bf16 *plus;
        long ld;
        float alpha, beta;
} MuonTo;

static void muon_epilogue(const void *args, long row, int col, int n, float *v)
{
        const MuonTo *a = args;
        for (int j = 0; j < n; j++) {
                const long at = row * a->ld + col + j;
                const float plus = a->plus ? bf16_to_float(a->plus[at]) : 0.f;
                a->out[at] = bf16_from_float(a->plus ? a->alpha * v[j] + a->beta * plus : v[j]);
        }
}

static void muon_product(MuonTo to, const bf16 *x, int ta, long ldx, const bf16 *y, int tb,
                         long ldy, long M, long N, long K)
{
        to.ld = N;
        const Mat a = { x, TY_BF16, ta, ldx, 0 }, b = { y, TY_BF16, tb, ldy, 0 };
        for (long t = 0; t < gemm_tiles(a, b, 1, M, N, K); t++)
                gemm_task(a, b, 1, M, N, K, t, &to, muon_epilogue);
}

/* As codegen/ops/muon.c has it emitted. */
static void muon_kernels(const Rt *rt, MuonMatrix w, UpdateParams to, const float *g, float *m,
                         const float *norm, int decays)
{
        const long r = w.rows < w.cols ? w.rows : w.cols, most = w.rows > w.cols ? w.rows : w.cols,
                   n = w.rows * w.cols;
        const int wide = w.rows <= w.cols;
        bf16 *x = malloc(2 * (size_t)n), *y = malloc(2 * (size_t)n),
             *gram = malloc(2 * (size_t)(r * r)), *poly = malloc(2 * (size_t)(r * r));
        double *partial = malloc(sizeof *partial * (size_t)muon_tiles(w.rows));
        for (long t = 0; t < muon_tiles(w.rows); t++)
                muon_momentum_task(rt, w, g, m, x, partial, norm, t);
        for (long t = 0; t < muon_tiles(w.rows); t++)
                muon_scale_task(w, x, partial, t);
        for (int i = 0; i < 5; i++) {
                muon_product((MuonTo) { .out = gram }, x, !wide, w.cols, x, wide, w.cols, r, r,
                             most);
                muon_product((MuonTo) { poly, gram, 0, 2.0315f, -4.775f }, gram, 0, r, gram, 0, r,
                             r, r, r);
                if (wide)
                        muon_product((MuonTo) { y, x, 0, 1.f, 3.4445f }, poly, 0, r, x, 0, w.cols,
                                     w.rows, w.cols, r);
                else
                        muon_product((MuonTo) { y, x, 0, 1.f, 3.4445f }, x, 0, w.cols, poly, 0, r,
                                     w.rows, w.cols, r);
                bf16 *swap = x;
                x = y, y = swap;
        }
        for (long t = 0; t < muon_tiles(w.rows); t++)
                muon_apply_task(rt, w, to, x, 0.2f * sqrtf((float)most), decays, norm, t);
        free(x), free(y), free(gram), free(poly), free(partial);
}

/* Matrices that are wide, tall, square, and rows of others, over steps from no momentum, next to
 * the definition.  Gradients have full rank, so what bf16 rounds stays small. */
TEST (muon_is_its_definition) {
        seed = 88172645463325252u; /* what comes before does not matter */
        static const long shape[][3] = {
                { 24, 70, 70 }, { 70, 24, 24 }, { 33, 33, 99 }, { 1, 9, 9 }
        };
        for (int k = 0; k < 4; k++) {
                const MuonMatrix w = { 5, shape[k][2], shape[k][0], shape[k][1] };
                const long n = w.first + w.rows * w.ld;
                float *p = floats(n), *m = calloc((size_t)n, 4), norm = 2.f, *kept = floats(n);
                double *want = malloc(sizeof *want * (size_t)n),
                       *gd = malloc(sizeof *gd * (size_t)n), *md = calloc((size_t)n, sizeof *md),
                       off = 0;
                static Rt rt;
                rt = (Rt) { .lr = 0.02f, .weight_decay = .1f, .unscale = 1.f, .clip = 1.f };
                const OptimizerStep step = { .lr = 0.02f, .weight_decay = .1f };
                for (long i = 0; i < n; i++)
                        kept[i] = p[i], want[i] = p[i];
                for (int t = 0; t < 6; t++) {
                        float *g = floats(n);
                        for (long i = 0; i < n; i++)
                                gd[i] = (double)g[i] / (2 + 1e-6);
                        muon_kernels(&rt, w, (UpdateParams) { .f32 = p }, g, m, &norm, 1);
                        muon_step(&step, want + w.first, gd + w.first, md + w.first, w.rows, w.cols,
                                  w.ld, true);
                        free(g);
                }
                for (long i = 0; i < n; i++) {
                        const long at = i - w.first;
                        if (at < 0 || at % w.ld >= w.cols)
                                CHECK_MSG(p[i] == kept[i], "element %ld beside it", i);
                        else
                                off = worse(off, fabs(p[i] - want[i]));
                }
                /* six steps of 0.02 * 0.2: a hundredth of them */
                CHECK_MSG(off < 2.4e-4, "%ld x %ld: %g", w.rows, w.cols, off);
                memcpy(kept, p, 4 * (size_t)n);
                norm = INFINITY;
                muon_kernels(&rt, w, (UpdateParams) { .f32 = p }, kept, m, &norm, 1);
                CHECK(!memcmp(kept, p, 4 * (size_t)n));
                free(p), free(m), free(kept), free(want), free(gd), free(md);
        }
}

TEST_MAIN
