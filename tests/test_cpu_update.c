/* test_cpu_update.c: the update in C, against plain loops in double. */
#include "cpu_kernels.h"
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

TEST_MAIN
