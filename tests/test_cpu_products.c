/* test_cpu_products.c: elementary functions, 16-bit types, random numbers and products in C,
 * against plain loops in double. */
#include "cpu_kernels.h"
#include "cpu_math.h"
#include "cpu_gemv.h"

/* ---- numbers ----------------------------------------------------------- */

#define ULPS(f, ref, lo, hi, most)                                                                 \
        for (int i_ = 0; i_ < 20000; i_++) {                                                       \
                float x_ = (float)((lo) + ((hi) - (lo)) * uniform());                              \
                double w_ = ref((double)x_), u_ = ldexp(1., (int)fmax(ilogb(w_), -126.) - 23);     \
                CHECK_MSG(fabs((double)f(x_) - w_) <= (most)*u_, #f "(%.9g): got %.9g, want %.9g", \
                          (double)x_, (double)f(x_), w_);                                          \
        }

static double sigmoid(double x) { return 1. / (1. + exp(-x)); }

TEST (elementary_functions_are_within_3_ulp) {
        ULPS(fast_expf, exp, -103., 88.7, 3.)
        ULPS(fast_exp_negf, exp, -86.9, 0., 3.)
        ULPS(fast_logf, log, 0., 3., 3.)
        ULPS(fast_logf, log, 0., 1e38, 3.)
        ULPS(fast_logf, log, 0., 1e-37, 3.)
        ULPS(fast_tanhf, tanh, -10., 10., 3.)
        ULPS(fast_tanhf, tanh, -1., 1., 3.)
        ULPS(fast_erff, erf, -5., 5., 3.)
        ULPS(fast_erff, erf, -1., 1., 3.)
        ULPS(fast_sigmoidf, sigmoid, -80., 80., 3.)
        for (int i = 0; i < 20000; i++) {
                float x = 1e5f * noise();
                NEAR(fast_sinf(x), sin((double)x), 2e-7, "sin %g", (double)x);
                NEAR(fast_cosf(x), cos((double)x), 2e-7, "cos %g", (double)x);
        }
}

TEST (elementary_functions_at_the_ends) {
        CHECK(fast_expf(INFINITY) == INFINITY && fast_expf(-INFINITY) == 0.f &&
              isnan(fast_expf(NAN)));
        CHECK(fast_expf(1e30f) == INFINITY && fast_expf(-1e30f) == 0.f && fast_expf(0.f) == 1.f);
        CHECK(fast_exp_negf(-INFINITY) == 0.f && isnan(fast_exp_negf(NAN)) &&
              fast_exp_negf(0.f) == 1.f);
        CHECK(fast_logf(0.f) == -INFINITY && fast_logf(INFINITY) == INFINITY &&
              fast_logf(1.f) == 0.f);
        CHECK(isnan(fast_logf(-1.f)) && isnan(fast_logf(NAN)) && isnan(fast_logf(-INFINITY)));
        CHECK(fast_tanhf(INFINITY) == 1.f && fast_tanhf(-INFINITY) == -1.f &&
              isnan(fast_tanhf(NAN)));
        CHECK(fast_erff(INFINITY) == 1.f && fast_erff(-INFINITY) == -1.f && isnan(fast_erff(NAN)));
        CHECK(fast_sigmoidf(INFINITY) == 1.f && fast_sigmoidf(-INFINITY) == 0.f &&
              isnan(fast_sigmoidf(NAN)));
}

TEST (half_types_round_trip_and_round_to_even) {
        for (unsigned u = 0; u < 65536; u++) {
                f16 h = { (uint16_t)u };
                float x = f16_to_float(h), v = bf16_to_float((bf16)u);
                int e = (int)(u >> 10 & 31), m = (int)(u & 1023);
                double want = e == 31 ? (m ? NAN : INFINITY)
                              : e     ? ldexp(1024 + m, e - 25)
                                      : ldexp(m, -24);
                want = u & 0x8000 ? -want : want;
                CHECK_MSG(isnan(want) ? isnan(x) : (double)x == want, "f16 %04x: %g", u, (double)x);
                CHECK(isnan(x) || f16_from_float(x).u == u);
                CHECK(isnan(v) || bf16_from_float(v) == u);
                if (e < 30) { /* half way to the next goes to the even one */
                        f16 up = { (uint16_t)(u + 1) };
                        float mid = (float)(((double)x + (double)f16_to_float(up)) / 2.);
                        CHECK(f16_from_float(mid).u == (u & 1 ? u + 1 : u));
                }
        }
        CHECK(f16_from_float(65519.f).u == 0x7bff && f16_from_float(65520.f).u == 0x7c00);
        CHECK(isnan(f16_to_float(f16_from_float(NAN))) &&
              isnan(bf16_to_float(bf16_from_float(NAN))));
        f16 many[37];
        float x[37], y[37];
        for (int i = 0; i < 37; i++)
                x[i] = noise() * 1e-4f;
        store_f16(many, x, 37);
        load_f16(y, many, 37);
        for (int i = 0; i < 37; i++)
                CHECK(many[i].u == f16_from_float(x[i]).u && y[i] == f16_to_float(many[i]));
}

TEST (philox_known_answers_and_dropout) {
        uint32_t c[4] = { 0 }, ones[4] = { ~0u, ~0u, ~0u, ~0u };
        static const uint32_t zero_out[4] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };
        static const uint32_t ones_out[4] = { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd };
        philox(c, 0, 0);
        philox(ones, ~0u, ~0u);
        CHECK(!memcmp(c, zero_out, sizeof c) && !memcmp(ones, ones_out, sizeof c));
        static Rt rt;
        rt.step = 3, rt.n_micro = 2, rt.micro = 1, rt.seed[0] = 7;
        float v[1001];
        int kept = 0;
        for (int i = 0; i < 1001; i++)
                v[i] = 1.f;
        dropout_n(v, 1001, .25f, 5, 4294967290u * 4ull + 2, &rt);
        for (int i = 0; i < 1001; i++) {
                CHECK(v[i] == dropout(1.f, .25f, 5, 4294967290u * 4ull + 2 + (unsigned)i, &rt));
                CHECK(v[i] == 0.f || v[i] == 1.f / .75f);
                kept += v[i] != 0.f;
        }
        CHECK_MSG(kept > 690 && kept < 810, "%d of 1001 kept", kept);
}

/* ---- products ---------------------------------------------------------- */

/* Types and layouts are constants, as in what is emitted, each in a function of its own: gcc takes
 * four times as long for all of them in one. */
#define GEMM(a_ty, b_ty, ta, tb)                                                                \
        TGC_NOINLINE void gemm_##a_ty##_##b_ty##_##ta##tb(Mat a, Mat b, long Z, long M, long N, \
                                                          long K, long tile, const Io *io)      \
        {                                                                                       \
                a.ty = a_ty, b.ty = b_ty, a.trans = ta, b.trans = tb;                           \
                gemm_task(a, b, Z, M, N, K, tile, io, epilogue0);                               \
        }
#define GEMV(ty_, tb)                                                                          \
        TGC_NOINLINE void gemv_##ty_##_##tb(int norm, Mat w, int M, long N, long K, long tile, \
                                            const Io *io, EpilogueFn *gain)                    \
        {                                                                                      \
                w.ty = ty_, w.trans = tb;                                                      \
                gemv_gain_task(norm, 1e-5f, w, M, N, K, tile, io, prologue0, gain, NULL,       \
                               epilogue0);                                                     \
        }
#define LAYOUTS(a_ty, b_ty)    \
        GEMM(a_ty, b_ty, 0, 0) \
        GEMM(a_ty, b_ty, 0, 1) \
        GEMM(a_ty, b_ty, 1, 0) GEMM(a_ty, b_ty, 1, 1)
LAYOUTS(TY_F32, TY_F32)
LAYOUTS(TY_BF16, TY_F16)
GEMV(TY_F32, 0)
GEMV(TY_F32, 1)
GEMV(TY_BF16, 0)
GEMV(TY_BF16, 1)
GEMV(TY_F16, 0)
GEMV(TY_F16, 1)

typedef void GemmFn(Mat a, Mat b, long Z, long M, long N, long K, long tile, const Io *io);
typedef void GemvFn(int norm, Mat w, int M, long N, long K, long tile, const Io *io,
                    EpilogueFn *gain);

static void check_product(const Io *io, const float *a, long ar, long ac, const float *b, long br,
                          long bc, long M, long N, long K, long at)
{
        for (long x = 0; x < (M * N < 4000 ? M * N : 4000); x++) {
                long i = M * N < 4000 ? x / N : below((int)M),
                     j = M * N < 4000 ? x % N : below((int)N);
                double want = 0.;
                for (long k = 0; k < K; k++)
                        want += (double)a[i * ar + k * ac] * (double)b[k * br + j * bc];
                NEAR(io->y0[at + i * N + j], want, 1e-6 * sqrt((double)K) + 1e-7,
                     "%ldx%ldx%ld at %ld,%ld", M, N, K, i, j);
        }
}

TEST (gemm_in_all_layouts_types_and_odd_sizes) {
        static const long size[][4] = { /* batch, M, N, K */
                                        { 1, 1, 1, 1 },       { 1, 3, 65, 172 },
                                        { 1, 65, 3, 1 },      { 2, 64, 64, 64 },
                                        { 1, 172, 65, 1000 }, { 1, 200, 600, 300 },
                                        { 3, 9, 33, 257 },    { 1, 7, 1000, 3 },
                                        { 1, 5, 5, 0 },       { 1, 520, 520, 260 }
        };
        for (unsigned c = 0; c < sizeof size / sizeof *size * 8; c++) {
                const long *s = size[c / 8], Z = s[0], M = s[1], N = s[2], K = s[3];
                int ta = (int)(c >> 1 & 1), tb = (int)(c & 1), half = (int)(c >> 2 & 1);
                int a_ty = half ? TY_BF16 : TY_F32, b_ty = half ? TY_F16 : TY_F32;
                float *af = floats(Z * M * K), *bf = floats(Z * N * K), *y = floats(Z * M * N);
                void *as = stored(a_ty, af, Z * M * K), *bs = stored(b_ty, bf, Z * N * K);
                Mat a = { as, a_ty, ta, ta ? M : K, M * K },
                    b = { bs, b_ty, tb, tb ? K : N, N * K };
                Io io = { .y0 = y, .n_out = N };
                static GemmFn *const gemm[] = {
                        gemm_TY_F32_TY_F32_00,  gemm_TY_F32_TY_F32_01,  gemm_TY_F32_TY_F32_10,
                        gemm_TY_F32_TY_F32_11,  gemm_TY_BF16_TY_F16_00, gemm_TY_BF16_TY_F16_01,
                        gemm_TY_BF16_TY_F16_10, gemm_TY_BF16_TY_F16_11,
                };
                RUN(gemm_tiles(a, b, Z, M, N, K), y, Z * M * N,
                    gemm[c & 7](a, b, Z, M, N, K, tile, &io));
                for (long z = 0; z < Z; z++)
                        check_product(&io, af + z * M * K, ta ? 1 : K, ta ? M : 1, bf + z * N * K,
                                      tb ? 1 : N, tb ? K : 1, M, N, K, z * M * N);
                free(af), free(bf), free(y), free(as), free(bs);
        }
}

/* 16 threads, each with a tile at a time, are seldom without one. */
TEST (gemm_tiles_suit_16_threads) {
        for (long M = 256; M <= 1024; M += 256)
                for (long N = 1024; N <= 8192; N += 1024) {
                        const Mat a = { 0, TY_F32, 0, 0, 0 }, b = { 0, TY_BF16, 1, 0, 0 };
                        const long tiles = gemm_tiles(a, b, 1, M, N, 2048);
                        CHECK_MSG(4 * tiles >= 3 * ((tiles + 15) / 16 * 16),
                                  "M %ld, N %ld: %ld tiles", M, N, tiles);
                }
}

TEST (gemm_tiles_do_not_depend_on_the_bits_of_others) {
        /* The same element in a small and in a large product. */
        long K = 700;
        float *a = floats(300 * K), *b = floats(700 * K), *y = floats(300 * 700), one[32];
        Io io = { .y0 = y, .n_out = 700 }, small = { .y0 = one, .n_out = 32 };
        const Mat am = { a, TY_F32, 0, K, 0 }, bm = { b, TY_F32, 1, K, 0 };
        RUN(gemm_tiles(am, bm, 1, 300, 700, K), y, 300 * 700,
            gemm_TY_F32_TY_F32_01(am, bm, 1, 300, 700, K, tile, &io));
        gemm_TY_F32_TY_F32_01((Mat) { a + 299 * K, TY_F32, 0, K, 0 },
                              (Mat) { b + 665 * K, TY_F32, 1, K, 0 }, 1, 1, 32, K, 0, &small);
        CHECK(!memcmp(one, y + 299 * 700 + 665, sizeof one));
        free(a), free(b), free(y);
}

static void double_odd(const void *args, long row, int col, int n, float *v)
{
        (void)args, (void)row;
        for (int i = 0; i < n; i++)
                v[i] *= (col + i) % 2 ? 2.f : 1.f;
}

TEST (gemv_in_both_layouts_types_and_odd_sizes) {
        static const long size[][2] = { /* N, K */
                                        { 1, 1 },    { 3, 5 },     { 64, 64 },
                                        { 172, 64 }, { 64, 172 },  { 65, 3 },
                                        { 7, 1000 }, { 1000, 65 }, { 2000, 300 }
        };
        for (unsigned c = 0; c < sizeof size / sizeof *size * 2 * 8 * 3; c++) {
                long N = size[c / 48][0], K = size[c / 48][1];
                int tb = (int)(c & 1), M = (int)(c >> 1 & 7) + 1, ty = (int)(c / 16 % 3),
                    norm = (int)(c % 3);
                float *x = floats(M * K), *wf = floats(N * K), *y = floats(M * N);
                void *ws = stored(ty, wf, N * K);
                Mat w = { ws, ty, tb, tb ? K : N, 0 };
                Io io = { .x0 = x, .y0 = y, .N = K, .n_out = N };
                static GemvFn *const gemv[][2] = { { gemv_TY_F32_0, gemv_TY_F32_1 },
                                                   { gemv_TY_BF16_0, gemv_TY_BF16_1 },
                                                   { gemv_TY_F16_0, gemv_TY_F16_1 } };
                RUN(gemv_tiles(N, K), y, M * N,
                    gemv[ty][tb](norm, w, M, N, K, tile, &io, norm ? double_odd : NULL));
                for (int i = 0; i < M && norm != NORM_NONE; i++) {
                        double m = 0., q = 0.;
                        for (long k = 0; k < K && norm == NORM_LAYER; k++)
                                m += (double)x[i * K + k] / (double)K;
                        for (long k = 0; k < K; k++)
                                q += ((double)x[i * K + k] - m) * ((double)x[i * K + k] - m) /
                                     (double)K;
                        for (long k = 0; k < K; k++)
                                x[i * K + k] = (float)(((double)x[i * K + k] - m) /
                                                       sqrt(q + 1e-5)) *
                                               (k % 2 ? 2.f : 1.f);
                }
                double scale = norm == NORM_NONE ? 1. : 8.;
                for (long i = 0; i < M; i++)
                        for (long j = 0; j < N; j++) {
                                double want = 0.;
                                for (long k = 0; k < K; k++)
                                        want += (double)x[i * K + k] *
                                                (double)wf[tb ? j * K + k : k * N + j];
                                NEAR(y[i * N + j], want,
                                     1e-6 * (scale * sqrt((double)K) + fabs(want)),
                                     "M%d N%ld K%ld trans %d type %d norm %d at %ld,%ld", M, N, K,
                                     tb, ty, norm, i, j);
                        }
                free(x), free(wf), free(ws), free(y);
        }
}

TEST_MAIN
