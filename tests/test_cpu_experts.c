/* test_cpu_experts.c: routing and experts in C, against plain loops in double. */
#include "cpu_kernels.h"
#include "cpu_grouped_gemm.h"
#include "cpu_route.h"

TEST (topk_and_its_gradient) {
        long R = 7, N = 65;
        int k = 5, ids[35];
        float *x = floats(R * N), val[35], *y = floats(R * N), *d = floats(R * k);
        for (long i = 0; i < R * N; i++)
                x[i] = (float)(int)(x[i] * 8.f); /* many ties */
        for (long c = 0; c < N; c++)
                x[c] = NAN;
        Io io = { .x0 = x, .N = N }, iog = { .x0 = d, .y0 = y, .N = k, .n_out = N };
        RUN(R, ids, R * k, topk_task(N, k, val, ids, tile, &io, prologue0));
        RUN(R, y, R * N, topk_grad_task(N, k, ids, tile, &iog, prologue0, epilogue0));
        for (int j = 0; j < k; j++)
                CHECK(ids[j] == j && val[j] == -INFINITY);
        for (long r = 1; r < R; r++)
                for (int j = 0; j < k; j++) {
                        int at = ids[r * k + j], before = 0;
                        for (int c = 0; c < N; c++)
                                before += x[r * N + c] > x[r * N + at] ||
                                          (x[r * N + c] == x[r * N + at] && c < at);
                        CHECK(before == j && val[r * k + j] == x[r * N + at]);
                }
        for (long r = 0; r < R; r++)
                for (int c = 0; c < N; c++) {
                        float want = 0.f;
                        for (int j = 0; j < k; j++)
                                want = ids[r * k + j] == c ? d[r * k + j] : want;
                        CHECK(y[r * N + c] == want);
                }
        free(x), free(y), free(d);
}

TEST (buckets_scatter_and_combine) {
        enum { T = 50, KK = 3, P = T * KK, E = 6, N = 300 };
        int ids[P], perm[P], inv[P], offs[E + 1];
        for (int p = 0; p < P; p++)
                ids[p] = p % 10 == 7 ? (p & 1 ? -1 : E)
                                     : below(E - 1); /* the last bucket is empty */
        bucket_task(ids, P, E, perm, inv, offs);
        int at = 0;
        for (int e = 0; e < E; e++) {
                CHECK(offs[e] == at);
                for (int p = 0; p < P; p++)
                        if (ids[p] == e) {
                                CHECK(perm[at] == p && inv[p] == at);
                                at++;
                        }
        }
        CHECK(offs[E] == at && inv[7] == -1);
        float *x = floats(P * N), *y = floats(E * N), *z = floats(T * N), *w = floats(P);
        Io io = { .x0 = x, .y0 = y, .N = N, .n_out = N }, ioz = io;
        ioz.y0 = z;
        RUN(E, y, E * N, scatter_rows_task(N, perm, offs, 0, tile, &io, prologue0, epilogue0));
        RUN(T, z, T * N, combine_task(KK, N, w, tile, &ioz, prologue0, epilogue0));
        for (int c = 0; c < N; c++) {
                for (int e = 0; e < E; e++) {
                        double s = 0.;
                        for (int p = 0; p < P; p++)
                                s += ids[p] == e ? (double)x[p * N + c] : 0.;
                        NEAR(y[e * N + c], s, 1e-5, "bucket %d", e);
                }
                /* an epilogue that adds is not asked for the empty bucket */
                y[(E - 1) * N + c] = 7;
                for (int t = 0; t < T; t++) {
                        double s = 0.;
                        for (int j = 0; j < KK; j++)
                                s += (double)w[t * KK + j] * (double)x[(t * KK + j) * N + c];
                        NEAR(z[t * N + c], s, 1e-6, "token %d", t);
                }
        }
        scatter_rows_task(N, perm, offs, 1, E - 1, &io, prologue0, epilogue0);
        CHECK(y[(E - 1) * N] == 7 && y[E * N - 1] == 7);
        free(x), free(y), free(z), free(w);
}

TEST (experts) {
        enum { T = 211, KK = 2, P = T * KK, E = 5, N = 270, K = 300 };
        static int ids[P], perm[P], offs[E + 1], place[P];
        for (int p = 0; p < P; p++)
                ids[p] = p % 2 ? 4 : below(3); /* expert 3 gets nothing, 4 more than one block */
        bucket_task(ids, P, E, perm, place, offs);
        float *wf = floats((long)E * N * K), *x = floats(P * K), *y = floats(P * N),
              *bias = floats(E), *g = floats(P * N);
        float *dw = floats((long)E * N * K);
        for (int c = 0; c < 12; c++) {
                int tb = c & 1, scatter = c >> 1 & 1, adiv = c / 4, ty = c % 3;
                void *ws = stored(ty, wf, (long)E * N * K);
                Mat w = { ws, ty, tb, tb ? K : N, N * K };
                Io io = { .x0 = x, .y0 = y, .N = K, .n_out = N, .bias = bias },
                   iow = { .y0 = dw, .n_out = K };
                for (int way = 0; way < 2; way++) {
                        if (way == 0)
                                RUN(grouped_gemm_tiles(E, P, N), y, P * N,
                                    grouped_gemm_task(x, TY_F32, K, adiv, w, E, N, K, perm, offs,
                                                      scatter, tile, &io, expert_epilogue));
                        else
                                RUN(grouped_gemv_tiles(P, N, K), y, P * N,
                                    grouped_gemv_task(NORM_NONE, 0.f, w, E, N, K, adiv, perm, offs,
                                                      scatter, tile, &io, prologue0,
                                                      expert_epilogue));
                        for (int t = 0; t < 600; t++) {
                                int i = below(P), j = below(N), p = perm[i], e = ids[p],
                                    row = adiv ? p / adiv : i;
                                double s = (double)bias[e];
                                for (int k = 0; k < K; k++)
                                        s += (double)x[row * K + k] *
                                             (double)wf[(long)e * N * K +
                                                        (tb ? j * K + k : k * N + j)];
                                NEAR(y[(scatter ? p : i) * N + j], s, 2e-5,
                                     "way %d pair %d column %d", way, p, j);
                        }
                }
                if (c >= 4) {
                        free(ws);
                        continue;
                }
                int gdiv = scatter;
                RUN(grouped_gemm_grad_tiles(E, N, K), dw, (long)E * N * K,
                    grouped_gemm_grad_task(g, TY_F32, N, gdiv, x, TY_F32, K, adiv, N, K, perm, offs,
                                           tile, &iow, epilogue0));
                for (int t = 0; t < 600; t++) {
                        int e = below(E), n = below(N), k = below(K);
                        double s = 0.;
                        for (int i = offs[e]; i < offs[e + 1]; i++)
                                s += (double)g[(gdiv ? perm[i] / gdiv : i) * N + n] *
                                     (double)x[(adiv ? perm[i] / adiv : i) * K + k];
                        NEAR(dw[((long)e * N + n) * K + k], s, 2e-5, "dW of %d at %d,%d", e, n, k);
                }
                free(ws);
        }
        free(wf), free(x), free(y), free(bias), free(g), free(dw);
}

TEST_MAIN
