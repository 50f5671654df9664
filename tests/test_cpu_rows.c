/* test_cpu_rows.c: norms, softmax, reductions, maps and cross-entropy in C, against plain loops in
 * double. */
#include "cpu_kernels.h"
#include "cpu_cross_entropy.h"
#include "cpu_round_fp8.h"

/* ---- rows -------------------------------------------------------------- */

static const long row_size[][2] = { { 1, 1 },    { 3, 65 }, { 5, 172 },
                                    { 2, 1000 }, { 70, 3 }, { 130, 257 } };
#define EACH_SIZE(R, N)                                                      \
        for (unsigned z_ = 0; z_ < sizeof row_size / sizeof *row_size; z_++) \
                for (long R = row_size[z_][0], N = row_size[z_][1], once_ = 1; once_; once_ = 0)

TEST (norms_and_their_gradients) {
        for (int kind = NORM_RMS; kind <= NORM_LAYER; kind++)
                EACH_SIZE(R, N)
                {
                        float *x = floats(R * N), *g = floats(R * N), *y = floats(R * N),
                              *dx = floats(R * N), *st = floats(2 * R);
                        float *gain = floats(N), *dg = floats(2 * NORM_ACC_TILES * N),
                              *dx2 = floats(R * N);
                        double *sg = calloc((size_t)N, 8), *sb = calloc((size_t)N, 8);
                        Io io = { .x0 = x, .x1 = g, .y0 = y, .N = N, .n_out = N, .bias = gain },
                           iog = io, ioa = io;
                        iog.y0 = dx, ioa.y0 = dx2;
                        RUN(R, y, R * N,
                            norm_task(kind, N, 1e-5f, st, st + R, tile, &io, prologue0, epilogue0));
                        RUN(R, dx, R * N,
                            norm_grad_task(kind, N, 1e-5f, st, st + R, tile, &iog, prologue0, head1,
                                           epilogue0));
                        for (long r = 0; r < R; r++) {
                                double m = 0., q = 0., gm = 0., gx = 0.;
                                for (long c = 0; c < N && kind == NORM_LAYER; c++)
                                        m += (double)x[r * N + c] / (double)N;
                                for (long c = 0; c < N; c++)
                                        q += pow((double)x[r * N + c] - m, 2.) / (double)N;
                                double rstd = 1. / sqrt(q + 1e-5);
                                for (long c = 0; c < N; c++) {
                                        double xh = ((double)x[r * N + c] - m) * rstd;
                                        gm += kind == NORM_LAYER ? (double)g[r * N + c] / (double)N
                                                                 : 0.;
                                        gx += (double)g[r * N + c] * xh / (double)N;
                                        sg[c] += (double)g[r * N + c] * xh;
                                        sb[c] += (double)g[r * N + c];
                                }
                                for (long c = 0; c < N; c++) {
                                        double xh = ((double)x[r * N + c] - m) * rstd;
                                        NEAR(y[r * N + c], xh, 1e-5, "row %ld of %ld, %ld", r, N,
                                             c);
                                        NEAR(dx[r * N + c],
                                             rstd * ((double)g[r * N + c] - gm - xh * gx),
                                             2e-6 * rstd + 1e-6, "dx %ld,%ld", r, c);
                                }
                        }
                        float *dgain = dg, *dbias = dg + NORM_ACC_TILES * N;
                        RUN(norm_acc_tiles(R), dx2, R * N,
                            norm_grad_acc_task(kind, N, 1e-5f, R, dgain, dbias, tile, &ioa,
                                               prologue0, pair_head, epilogue0));
                        for (long c = 0; c < N; c++) {
                                double a = 0., b = 0.;
                                for (long t = 0; t < norm_acc_tiles(R); t++)
                                        a += (double)dgain[t * N + c],
                                                b += (double)dbias[t * N + c];
                                NEAR(a, sg[c], 1e-4, "dgain %ld", c);
                                NEAR(b, sb[c], 1e-4, "dbias %ld", c);
                        }
                        free(x), free(g), free(y), free(dx), free(st), free(gain), free(dg),
                                free(dx2), free(sg), free(sb);
                }
}

TEST (softmax_reductions_argmax_and_column_sums) {
        EACH_SIZE(R, N)
        {
                float *x = floats(R * N), *g = floats(R * N), *y = floats(R * N),
                      *dx = floats(R * N), *red = floats(R);
                int *arg = malloc(sizeof *arg * (size_t)R);
                Io io = { .x0 = x, .x1 = g, .y0 = y, .N = N, .n_out = N }, ior = io, iog = io,
                   ioc = io;
                ior.y0 = red, ior.n_out = 1, iog.x0 = y, iog.y0 = dx;
                for (long c = 0; c < N; c++)
                        x[c] = -INFINITY;
                RUN(R, y, R * N, softmax_task(N, tile, &io, prologue0, epilogue0));
                RUN(R, dx, R * N, softmax_grad_task(N, tile, &iog, prologue0, head1, epilogue0));
                for (long r = 0; r < R; r++) {
                        double s = 0., dot = 0.;
                        for (long c = 0; c < N; c++)
                                s += exp((double)x[r * N + c]),
                                        dot += (double)y[r * N + c] * (double)g[r * N + c];
                        for (long c = 0; c < N; c++) {
                                NEAR(y[r * N + c], s > 0. ? exp((double)x[r * N + c]) / s : 0.,
                                     1e-6, "softmax %ld,%ld", r, c);
                                NEAR(dx[r * N + c],
                                     (double)y[r * N + c] * ((double)g[r * N + c] - dot), 1e-6,
                                     "grad %ld,%ld", r, c);
                        }
                }
                if (R > 1)
                        x[N + N / 2] = x[N + N - 1] = 3.f, x[N] = NAN;
                RUN(R, arg, R, arg[tile] = argmax_task(N, tile, &io, prologue0));
                if (R > 1 && N > 1)
                        CHECK_MSG(arg[1] == N / 2, "argmax %d, want %ld", arg[1], N / 2);
                CHECK(arg[0] == 0);
                if (R > 1)
                        x[N] = 0.f;
                for (int kind = RED_SUM; kind <= RED_LOGSUMEXP; kind++) {
                        RUN(R, red, R, reduce_task(kind, N, tile, &ior, prologue0, epilogue0));
                        CHECK(red[0] == -INFINITY);
                        for (long r = 1; r < R; r++) {
                                double s = 0., m = -INFINITY, e = 0.;
                                for (long c = 0; c < N; c++) {
                                        double v = (double)x[r * N + c];
                                        s += v, m = fmax(m, v), e += exp(v);
                                }
                                NEAR(red[r],
                                     kind == RED_SUM   ? s
                                     : kind == RED_MAX ? m
                                                       : log(e),
                                     1e-5, "reduce %d row %ld", kind, r);
                        }
                }
                ioc.x0 = g;
                RUN(column_sum_tiles(N), y, N,
                    column_sum_task(R, N, tile, &ioc, prologue0, epilogue0));
                for (long c = 0; c < N; c++) {
                        double s = 0.;
                        for (long r = 0; r < R; r++)
                                s += (double)g[r * N + c];
                        NEAR(y[c], s, 1e-5, "column %ld", c);
                }
                free(x), free(g), free(y), free(dx), free(red), free(arg);
        }
}

TGC_INLINE void map_body(const void *args, long row, int col, int n, float *v)
{
        prologue0(args, row, col, n, v);
        for (int i = 0; i < n; i++)
                v[i] = fast_tanhf(v[i]);
        epilogue0(args, row, col, n, v);
}

TEST (map_covers_each_element_once) {
        static const long size[][2] = {
                { 1, 1 }, { 1, 20001 }, { 5000, 3 }, { 130, 257 }, { 3, 8192 }
        };
        for (int z = 0; z < 5; z++) {
                long R = size[z][0], N = size[z][1];
                float *x = floats(R * N), *y = floats(R * N);
                Io io = { .x0 = x, .y0 = y, .N = N, .n_out = N };
                RUN(map_tiles(R, N), y, R * N, map_task(R, N, tile, &io, map_body));
                for (long i = 0; i < R * N; i++)
                        CHECK(y[i] == fast_tanhf(x[i]));
                free(x), free(y);
        }
}

TEST (rows_longer_than_the_scratch) {
        long N = TGC_ROW_MAX + 1001;
        float *x = floats(N), *y = floats(N), one;
        double s = 0.;
        for (long i = 0; i < N; i++)
                s += exp((double)x[i]);
        Io io = { .x0 = x, .y0 = y, .N = N, .n_out = N }, ior = io;
        ior.y0 = &one;
        RUN(1, y, N, softmax_task(N, tile, &io, prologue0, epilogue0));
        for (long i = 0; i < N; i++)
                NEAR(y[i] * 1e5f, 1e5 * exp((double)x[i]) / s, 1e-5, "%ld", i);
        reduce_task(RED_LOGSUMEXP, N, 0, &ior, prologue0, epilogue0);
        NEAR(one, log(s), 1e-5, "logsumexp");
        free(x), free(y);
}

/* ---- e4m3 ------------------------------------------------------------- */

/* Of code 0 .. 126. */
static double e4m3(int code)
{
        const int e = code >> 3, m = code & 7;
        return e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
}

/* Between two neighbours, a hair to each side and in the middle, which goes to the even one; 448
 * beside them makes the scale 1. */
TEST (every_value_of_e4m3) {
        for (int code = 0; code < 126; code++) {
                const double a = e4m3(code), b = e4m3(code + 1), middle = (a + b) / 2;
                float x[8] = { 448.f,
                               (float)a,
                               (float)b,
                               (float)middle,
                               nextafterf((float)middle, 0.f),
                               -nextafterf((float)middle, 500.f),
                               -(float)middle,
                               -448.f },
                      y[8];
                const double even = code & 1 ? b : a,
                             want[8] = { 448, a, b, even, a, -b, -even, -448 };
                Io io = { .x0 = x, .y0 = y, .N = 8, .n_out = 8 };
                RUN(1, y, 8, round_fp8_task(8, 8, tile, &io, prologue0, epilogue0));
                for (int i = 0; i < 8; i++)
                        NEAR(y[i], want[i], 0., "code %d, %d", code, i);
        }
}

/* G of N of each of R rows, the last fewer; longer than a segment, than the scratch; a row that is
 * not finite. */
TEST (rows_rounded_to_e4m3) {
        static const long size[][3] = { { 3, 64, 64 },
                                        { 5, 200, 128 },
                                        { 2, 4096, 4096 },
                                        { 4, 96, 32 },
                                        { 1, TGC_ROW_MAX + 72, TGC_ROW_MAX + 72 } };
        double value[127];
        for (int code = 0; code < 127; code++)
                value[code] = e4m3(code);
        for (int z = 0; z < 5; z++) {
                const long R = size[z][0], N = size[z][1], G = size[z][2];
                float *x = floats(R * N), *y = floats(R * N);
                for (long i = 0; i < R * N; i++)
                        x[i] *= x[i] * x[i] * 100.f;
                for (long c = 0; c < G && R > 2; c++)
                        x[N + c] = 0.f;
                if (R > 2)
                        x[2 * N + G - 1] = INFINITY;
                Io io = { .x0 = x, .y0 = y, .N = N, .n_out = N };
                RUN(R, y, R * N, round_fp8_task(N, G, tile, &io, prologue0, epilogue0));
                float most = 0.f; /* of the part */
                for (long i = 0; i < R * N; i++) {
                        const long end = (i / N + 1) * N, to = i + G < end ? i + G : end;
                        double near = 1e9;
                        if (i % N % G == 0) {
                                most = 0.f;
                                for (long k = i; k < to; k++)
                                        most = fabsf(x[k]) > most ? fabsf(x[k]) : most;
                        }
                        if (isinf(most)) {
                                CHECK(isnan(y[i]));
                                continue;
                        }
                        const double scale = (double)(most / 448.f), at = fabs((double)x[i]);
                        for (int code = 0; code < 127; code++)
                                near = fmin(near, fabs(value[code] * scale - at));
                        NEAR(fabs((double)y[i] - (double)x[i]), near, 1e-6 * at,
                             "%ld of %ld by %ld", i, N, G);
                }
                free(x), free(y);
        }
}

/* ---- cross entropy ----------------------------------------------------- */

TEST (cross_entropy) {
        EACH_SIZE(R, V)
        {
                float *x = floats(R * V), *y = floats(R * V), *y2 = floats(R * V),
                      *loss = floats(4 * R), *scale = floats(R);
                int *target = malloc(sizeof *target * (size_t)R);
                for (long r = 0; r < R; r++) {
                        target[r] = r % 4 == 3 ? (r & 4 ? -1 : (int)V) : below((int)V);
                        for (long c = 0; c < V; c++)
                                x[r * V + c] *= 20.f;
                }
                Io io = { .x0 = x, .x2 = scale, .y0 = y, .N = V, .n_out = V }, io2 = io;
                io2.y0 = y2;
                RUN(R, loss, 2 * R, ce_task(V, target, loss, loss + R, tile, &io, prologue0));
                RUN(R, y, R * V,
                    ce_grad_task(V, target, loss + R, tile, &io, prologue0, scale_head, epilogue0));
                RUN(R, y2, R * V,
                    ce_both_task(V, target, loss + 2 * R, loss + 3 * R, tile, &io2, prologue0,
                                 scale_head, epilogue0));
                CHECK(!memcmp(loss, loss + 2 * R, 2 * sizeof(float) * (size_t)R));
                CHECK(!memcmp(y, y2, sizeof(float) * (size_t)(R * V)));
                for (long r = 0; r < R; r++) {
                        double s = 0.;
                        int counts = target[r] >= 0 && target[r] < V;
                        for (long c = 0; c < V; c++)
                                s += exp((double)x[r * V + c]);
                        NEAR(loss[r], counts ? log(s) - (double)x[r * V + target[r]] : 0., 1e-5,
                             "loss %ld", r);
                        for (long c = 0; c < V; c++) {
                                double p = exp((double)x[r * V + c]) / s - (c == target[r]);
                                NEAR(y[r * V + c], counts ? (double)scale[r] * p : 0., 3e-6,
                                     "gradient %ld,%ld", r, c);
                        }
                }
                free(x), free(y), free(y2), free(loss), free(scale), free(target);
        }
}

TEST_MAIN
