/* kernels.cu: the kernels of kernels.cuh against plain loops.
 *
 * One program for both worlds: `tests/emulate/play.sh kernels` runs it emulated
 * (tests/test_emulate.c does, in several orders), `play.sh --gpu kernels` on a GPU.  The wrong
 * kernels are for the emulator alone. */
#include <cmath>
#include "launch.h"
#include "kernels.cuh"

static const Rt *zero_rt() { return shared_memory<Rt>(1); }

/* ---- arithmetic -------------------------------------------------------- */

TEST (philox_known_answers) {
        static const unsigned want[12] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8,
                                           0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd,
                                           0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 };
        uint4 *y = shared_memory<uint4>(3);
        LAUNCH(k_philox, 1, 32, 0, zero_rt(), y);
        for (int i = 0; i < 12; i++)
                CHECK_MSG(((unsigned *)y)[i] == want[i], "word %d: %08x, should be %08x", i,
                          ((unsigned *)y)[i], want[i]);
}

TEST (dropout_keeps_three_quarters) {
        enum { N = 64 * 256 };
        float *y = shared_memory<float>(N);
        Rt *rt = shared_memory<Rt>(1);
        rt->seed[0] = 42;
        rt->n_micro = 1;
        LAUNCH(k_dropout, 64, 256, 0, rt, y);
        int kept = 0;
        for (int i = 0; i < N; i++) {
                CHECK(y[i] == 0.f || fabsf(y[i] - 1 / 0.75f) < 1e-6f);
                kept += y[i] != 0.f;
        }
        CHECK_MSG(abs(kept - N * 3 / 4) < 4 * 56, "%d of %d kept", kept, N); /* four deviations */
}

/* Far below what 16-bit storage rounds away. */
TEST (gelu_without_erf) {
        enum { N = 64 * 256 };
        float *x = shared_memory<float>(N), *y = shared_memory<float>(N),
              *slope = shared_memory<float>(N);
        for (int i = 0; i < N; i++)
                x[i] = (float)(i - N / 2) / 1024 + 1.f / 4096;
        LAUNCH(k_gelu, 64, 256, 0, zero_rt(), x, y, slope);
        for (int i = 0; i < N; i++) {
                const double v = x[i], below = 0.5 * erfc(-v * 0.70710678118654752),
                             dense = 0.39894228040143268 * exp(-0.5 * v * v);
                CHECK_MSG(fabs(y[i] - v * below) < 1e-6, "gelu of %g: %.9g, should be %.9g", v,
                          y[i], v * below);
                CHECK_MSG(fabs(slope[i] - below - v * dense) < 1e-6, "its slope at %g: %.9g", v,
                          slope[i]);
        }
}

/* The 16-bit float with these bits, from the definition of the format. */
static double float_of_bits(int bits, int mantissa)
{
        int bias = mantissa == 7 ? 127 : 15, exp = (bits & 0x7fff) >> mantissa,
            m = bits & ((1 << mantissa) - 1);
        double v = exp ? ldexp(1. + ldexp(m, -mantissa), exp - bias)
                       : ldexp(m, 1 - bias - mantissa);
        return bits & 0x8000 ? -v : v;
}

static int is_finite_bits(int bits, int mantissa)
{
        int all = mantissa == 7 ? 0xff : 0x1f;
        return (bits & 0x7fff) >> mantissa != all;
}

/* Every 16-bit value rounds to itself, every midpoint of two to the even one, and
 * the floats beside the midpoint to their own side. */
static void check_rounding(int mantissa, int word)
{
        enum { N = 65536 };
        float *x = shared_memory<float>(4 * N);
        unsigned *y = shared_memory<unsigned>(16 * N);
        for (int h = 0; h < N; h++) {
                if (!is_finite_bits(h, mantissa))
                        continue;
                /* past the largest finite value the step stays what it was */
                double a = float_of_bits(h, mantissa);
                double b = is_finite_bits(h + 1, mantissa) ? float_of_bits(h + 1, mantissa)
                                                           : 2 * a - float_of_bits(h - 1, mantissa);
                float mid = (float)((a + b) / 2);
                x[4 * h] = (float)a;
                x[4 * h + 1] = mid;
                x[4 * h + 2] = nextafterf(mid, (float)a);
                x[4 * h + 3] = nextafterf(mid, h & 0x8000 ? -INFINITY : INFINITY);
        }
        LAUNCH(k_round, N * 4 / 256, 256, 0, zero_rt(), y, x);
        for (int i = 0; i < 4 * N; i++) {
                int h = i / 4;
                if (!is_finite_bits(h, mantissa))
                        continue;
                unsigned want = i % 4 == 0 || i % 4 == 2 || (i % 4 == 1 && h % 2 == 0) ? h : h + 1;
                unsigned got = y[4 * i + word];
                CHECK_MSG(got == (want << 16 | want), "%a: %08x, should be twice %04x", x[i], got,
                          want);
        }
}
TEST (rounds_to_bf16) {
        check_rounding(7, 0);
}
TEST (rounds_to_f16) {
        check_rounding(10, 1);
}

TEST (rounds_special) {
        static const float in[8] = { INFINITY, -INFINITY, NAN,      3e38f,
                                     1e-45f,   -1e-30f,   65519.9f, 65520.f };
        static const unsigned bf[8] = { 0x7f80, 0xff80, 0x7fff, 0x7f62, 0, 0x8da2, 0x4780, 0x4780 };
        static const unsigned hf[8] = { 0x7c00, 0xfc00, 0x7fff, 0x7c00, 0, 0x8000, 0x7bff, 0x7c00 };
        float *x = shared_memory<float>(32);
        unsigned *y = shared_memory<unsigned>(128);
        memcpy(x, in, sizeof in);
        LAUNCH(k_round, 1, 32, 0, zero_rt(), y, x);
        for (int i = 0; i < 8; i++) {
                CHECK_MSG(y[4 * i] >> 16 == bf[i], "%g: bf16 %08x, should be %04x", in[i], y[4 * i],
                          bf[i]);
                CHECK_MSG(y[4 * i + 1] >> 16 == hf[i], "%g: f16 %08x, should be %04x", in[i],
                          y[4 * i + 1], hf[i]);
        }
}

TEST (rounds_to_tf32) {
        float *x = shared_memory<float>(256);
        unsigned *y = shared_memory<unsigned>(1024);
        for (int i = 0; i < 256; i++)
                x[i] = random_float() * ldexpf(1, i % 40 - 20);
        x[0] = 1.f + ldexpf(1, -11); /* a tie: away from zero */
        x[1] = -1.f - ldexpf(1, -11);
        LAUNCH(k_round, 1, 256, 0, zero_rt(), y, x);
        for (int i = 0; i < 256; i++) {
                float got;
                memcpy(&got, &y[4 * i + 2], 4);
                CHECK((y[4 * i + 2] & 0x1fff) == 0);
                CHECK(fabs((double)got - x[i]) <= fabs((double)x[i]) * ldexp(1, -11));
        }
        CHECK(y[2] == 0x3f802000 && y[6] == 0xbf802000);
}

TEST (fast_functions) {
        float *x = shared_memory<float>(64), *y = shared_memory<float>(320);
        for (int i = 0; i < 64; i++)
                x[i] = 0.01f + i * 0.37f;
        LAUNCH(k_fast, 1, 64, 0, zero_rt(), y, x);
        for (int i = 0; i < 64; i++) {
                double v = x[i], want[5] = { exp2(v), 1 / v, 1 / sqrt(v), log2(v), tanh(v) };
                for (int j = 0; j < 5; j++) {
                        /* a few ulp; log2 near 1 and tanh as the PTX ISA bounds them */
                        double tol = j == 4 ? 1e-3 : j == 3 ? 1e-6 : 4e-7;
                        double size = j == 3 ? fmax(1, fabs(want[j])) : fabs(want[j]);
                        CHECK_MSG(fabs(y[5 * i + j] - want[j]) <= tol * size,
                                  "function %d of %g: %g, should be %g", j, v, y[5 * i + j],
                                  want[j]);
                }
        }
}

/* ---- load and store ---------------------------------------------------- */

TEST (load_and_store) {
        enum { N = 1000 }; /* a multiple of 8, not of a block's 8 V */
        float *xf = shared_memory<float>(N), *yf = shared_memory<float>(4 * N);
        bf16 *xb = shared_memory<bf16>(N), *yb = shared_memory<bf16>(4 * N);
        f16 *xh = shared_memory<f16>(N), *yh = shared_memory<f16>(4 * N);
        int *xi = shared_memory<int>(N), *yi = shared_memory<int>(4 * N);
        Rt *rt = shared_memory<Rt>(1);
        rt->T = N;
        for (int i = 0; i < N; i++) {
                xf[i] = random_float();
                xi[i] = (int)random_word() - (1 << 23);
                ((unsigned short *)xb)[i] = ((
                        unsigned short *)xh)[i] = (unsigned short)(random_word() & 0xbbff);
        }
        LAUNCH(k_copy, 1, 96, 0, rt, yf, yb, yh, yi, xf, xb, xh, xi);
        for (int v = 0; v < 4; v++) {
                CHECK(!memcmp(yf + v * N, xf, N * 4));
                CHECK(!memcmp(yb + v * N, xb, N * 2));
                CHECK(!memcmp(yh + v * N, xh, N * 2));
                CHECK(!memcmp(yi + v * N, xi, N * 4));
        }
}

TEST (streaming) {
        uint4 *x = shared_memory<uint4>(32), *y = shared_memory<uint4>(32);
        for (unsigned i = 0; i < 32; i++)
                x[i] = make_uint4(i, 2 * i, 3 * i, ~i);
        LAUNCH(k_stream, 1, 32, 0, zero_rt(), y, x);
        for (unsigned i = 0; i < 32; i++)
                CHECK(y[i].x == 3 * i && y[i].y == 2 * i && y[i].z == 3 * i && y[i].w == ~i);
}

/* ---- warps and blocks -------------------------------------------------- */

TEST (shuffles_and_votes) {
        enum { N = 64 };
        int *x = shared_memory<int>(N), *y = shared_memory<int>(17 * N);
        for (int i = 0; i < N; i++)
                x[i] = (int)(random_word() % 100);
        LAUNCH(k_shuffle, 1, N, 0, zero_rt(), y, x);
        int odd = 0;
        for (int i = 0; i < N; i++)
                odd += x[i] & 1;
        for (int i = 0; i < N; i++) {
                int w = i & ~31, l = i & 31, ballot = 0, sum = 0, most = -1000, any = 0, all = 1;
                for (int j = 0; j < 32; j++) {
                        ballot |= (int)((unsigned)(x[w + j] & 1) << j);
                        sum += x[w + j];
                        most = x[w + j] - 50 > most ? x[w + j] - 50 : most;
                        any |= x[w + j] == x[0];
                        all &= x[w + j] == x[0];
                }
                int want[17] = {
                        x[w + 5],
                        x[w + ((i * 7 + 3) & 31)],
                        x[w + (l & 24) + 3],
                        x[l ? i - 1 : i],
                        x[l % 8 >= 3 ? i - 3 : i],
                        x[l < 30 ? i + 2 : i],
                        x[l % 16 < 11 ? i + 5 : i],
                        x[w + (l ^ 9)],
                        x[w + (l ^ 1)],
                        ballot,
                        any,
                        all,
                        l < 16 ? x[w + 15 - l] : x[w + 16 + (l & 3)],
                        sum,
                        most,
                        odd,
                        x[w + (l ^ 16)] + x[w + 31] * 1000 + 9 * 1000000,
                };
                for (int j = 0; j < 17; j++)
                        CHECK_MSG(y[17 * i + j] == want[j], "thread %d, value %d: %d, should be %d",
                                  i, j, y[17 * i + j], want[j]);
        }
}

#define CHECK_REDUCE(kernel, n)                                                           \
        do {                                                                              \
                enum { N_ = 3 * (n) };                                                    \
                float *x = shared_memory<float>(N_), *y = shared_memory<float>(2 * N_);   \
                for (int i = 0; i < N_; i++)                                              \
                        x[i] = (float)(random_word() % 1000) - 600.f;                     \
                LAUNCH(kernel, 3, n, 128, zero_rt(), y, x);                               \
                for (int b = 0; b < 3; b++) {                                             \
                        float s = 0, m = -INFINITY;                                       \
                        for (int i = b * (n); i < (b + 1) * (n); i++)                     \
                                s += x[i], m = fmaxf(m, x[i]);                            \
                        for (int i = b * (n); i < (b + 1) * (n); i++)                     \
                                CHECK_MSG(y[2 * i] == s && y[2 * i + 1] == m,             \
                                          "thread %d: %g and %g, should be %g and %g", i, \
                                          y[2 * i], y[2 * i + 1], s, m);                  \
                }                                                                         \
        } while (0)

TEST (block_reductions) {
        CHECK_REDUCE(k_reduce32, 32);
        CHECK_REDUCE(k_reduce96, 96);
        CHECK_REDUCE(k_reduce256, 256);
        CHECK_REDUCE(k_reduce1024, 1024);
}

TEST (named_barriers) {
        int *y = shared_memory<int>(320);
        LAUNCH(k_named, 1, 96, 128, zero_rt(), y);
        for (int i = 0; i < 320; i++)
                CHECK_MSG(y[i] == i / 64 * 100 + i % 32, "%d: %d", i, y[i]);
}

TEST (last_block) {
        int *y = shared_memory<int>(3), *part = shared_memory<int>(50),
            *count = shared_memory<int>(1);
        LAUNCH(k_last, 50, 64, 4, zero_rt(), y, part, count);
        CHECK_MSG(y[0] == 1275 && y[1] == 100 && y[2] == 49, "%d %d %d", y[0], y[1], y[2]);
}

/* ---- matrices ---------------------------------------------------------- */

TEST (ldmatrix_layout) {
        unsigned *x = shared_memory<unsigned>(128), *y = shared_memory<unsigned>(384);
        const unsigned short *h = (const unsigned short *)x; /* (32,8): four matrices */
        for (int i = 0; i < 128; i++)
                x[i] = random_word() << 8 ^ random_word();
        LAUNCH(k_ldmatrix, 1, 32, 512, zero_rt(), y, x);
        for (int l = 0; l < 32; l++)
                for (int m = 0; m < 4; m++) {
                        int g = l / 4, t = 2 * (l % 4);
                        const unsigned short *a = h + 64 * m;
                        unsigned plain = a[8 * g + t] | (unsigned)a[8 * g + t + 1] << 16;
                        unsigned trans = a[8 * t + g] | (unsigned)a[8 * (t + 1) + g] << 16;
                        CHECK(y[12 * l + m] == plain && y[12 * l + 4 + m] == trans);
                        if (m < 2)
                                CHECK(y[12 * l + 8 + m] == plain && y[12 * l + 10 + m] == trans);
                }
}

/* |got - want| <= tol * sum of |products|: float32 sums differ by order only. */
template <class T>
static void check_product(const float *D, const T *A, const T *B, const float *C, int M, int N,
                          int K)
{
        for (int i = 0; i < M; i++)
                for (int j = 0; j < N; j++) {
                        double s = C ? C[i * N + j] : 0, size = fabs(s);
                        for (int k = 0; k < K; k++) {
                                double p = (double)(float)A[i * K + k] *
                                           (double)(float)B[k * N + j];
                                s += p;
                                size += fabs(p);
                        }
                        CHECK_MSG(fabs(D[i * N + j] - s) <= 1e-6 * size,
                                  "(%d,%d) is %.9g, should be %.9g", i, j, D[i * N + j], s);
                }
}

#define CHECK_MMA(kernel, T, K)                                                       \
        do {                                                                          \
                T *A = shared_memory<T>(16 * K), *B = shared_memory<T>(8 * K);        \
                float *C = shared_memory<float>(128), *D = shared_memory<float>(128); \
                for (int i = 0; i < 16 * K; i++)                                      \
                        A[i] = T(truncf(random_float() * 128) / 128);                 \
                for (int i = 0; i < 8 * K; i++)                                       \
                        B[i] = T(truncf(random_float() * 128) / 128);                 \
                for (int i = 0; i < 128; i++)                                         \
                        C[i] = random_float();                                        \
                LAUNCH(kernel, 1, 32, 0, zero_rt(), D, A, B, C);                      \
                check_product(D, A, B, C, 16, 8, K);                                  \
        } while (0)

TEST (mma_layouts) {
        CHECK_MMA(k_mma_bf16, bf16, 16);
        CHECK_MMA(k_mma_f16, f16, 16);
        CHECK_MMA(k_mma_tf32, float, 8);
}

#define MATMUL_SMEM (2 * 2 * (64 * 40 + 32 * 72))

template <class T>
struct Problem {
        int M, N, K;
        T *A, *B;
        float *Y;
        Rt *rt;
        Problem(int m, int n, int k)
            : M(m), N(n), K(k), A(shared_memory<T>(m * k)), B(shared_memory<T>(k * n)),
              Y(shared_memory<float>(m * n)), rt(shared_memory<Rt>(1))
        {
                for (int i = 0; i < M * K; i++)
                        A[i] = T(random_float());
                for (int i = 0; i < K * N; i++)
                        B[i] = T(random_float());
                rt->B = M;
                rt->T = N;
                rt->step = K;
        }
        unsigned tiles() const { return (M + 63) / 64 * ((N + 63) / 64); }
};

TEST (gemm_tiles) {
        Problem<bf16> p(64, 64, 128), q(77, 136, 96);
        LAUNCH(k_gemm_bf16, p.tiles(), 256, MATMUL_SMEM, p.rt, p.Y, p.A, p.B);
        check_product(p.Y, p.A, p.B, 0, p.M, p.N, p.K);
        LAUNCH(k_gemm_bf16, q.tiles(), 256, MATMUL_SMEM, q.rt, q.Y, q.A, q.B);
        check_product(q.Y, q.A, q.B, 0, q.M, q.N, q.K);
        Problem<f16> r(1, 8, 32);
        LAUNCH(k_gemm_f16, 1, 256, MATMUL_SMEM, r.rt, r.Y, r.A, r.B);
        check_product(r.Y, r.A, r.B, 0, r.M, r.N, r.K);
}

TEST (cp_async_sizes_and_zero_fill) {
        unsigned *x = shared_memory<unsigned>(256), *y = shared_memory<unsigned>(448);
        for (int i = 0; i < 256; i++)
                x[i] = random_word();
        LAUNCH(k_cp_async, 1, 64, 2304, zero_rt(), y, x);
        for (int i = 0; i < 64; i++) {
                for (int j = 0; j < 4; j++)
                        CHECK(y[4 * i + j] == (i % 3 ? x[4 * i + j] : 0));
                for (int j = 0; j < 2; j++)
                        CHECK(y[256 + 2 * i + j] == (i % 5 ? x[2 * i + j] : 0));
                CHECK(y[384 + i] == (i % 7 ? x[i] : 0));
        }
}

TEST (surplus_threads_leave) {
        int *y = shared_memory<int>(192);
        for (int i = 0; i < 192; i++)
                y[i] = -1;
        LAUNCH(k_surplus, 2, 96, 384, zero_rt(), y);
        for (int i = 0; i < 96; i++) {
                CHECK(y[i] == (i < 32 ? 31 - i : -1));
                CHECK(y[96 + i] == 95 - i);
        }
}

/* ---- what only the emulator can show ----------------------------------- */

#ifdef TGC_EMULATE
#include "wrong.cuh"

static void expect_failure(const char *kernel, const char *part)
{
        int *y = shared_memory<int>(512);
        void *args[] = { (void *)zero_rt(), y };
        size_t sizes[] = { sizeof(Rt), 512 };
        char err[800] = "";
        tgc_emulate_sizes(sizes, 2);
        int rc = tgc_emulate_launch(kernel, 3, 64, 1024, args, 2, err, sizeof err);
        CHECK_MSG(rc && !strncmp(err, kernel, strlen(kernel)) && strstr(err, "block ") &&
                          strstr(err, part),
                  "%s gave %d, \"%s\"; should say \"%s\"", kernel, rc, err, part);
}

TEST (names_divergent_barriers) {
        expect_failure("w_half_barrier", "divergent barrier");
        expect_failure("w_two_places", "while others wait at wrong.cuh:");
        expect_failure("w_early_exit", "thread 40");
        expect_failure("w_early_exit", "wrong.cuh:");
        expect_failure("w_surplus_exit", "thread 40");
        expect_failure("w_left_arrivals", "32 of 64 arrivals at named barrier 3");
        expect_failure("w_named", "nobody can go on");
}

TEST (names_missing_lanes) {
        expect_failure("w_missing_lane", "thread 7");
        expect_failure("w_own_lane", "leaves out its own lane 31");
        expect_failure("w_outside_mask", "reads lane 20");
        expect_failure("w_two_calls", "__ballot_sync");
        expect_failure("w_barrier_and_shuffle", "nobody can go on");
        expect_failure("w_unaligned_code", "from different places, a:2 and a:1");
}

TEST (names_bad_addresses) {
        expect_failure("w_misaligned", "not a multiple of 16");
        expect_failure("w_foreign", "of 1024 bytes of shared memory");
        expect_failure("w_copy_outside", "cp_async at byte 1024");
        expect_failure("w_unaligned_load", "load of 16 bytes at the misaligned address");
        expect_failure("w_outside", "store of 8 bytes at byte");
        expect_failure("w_outside_copy", "of argument 1");
        expect_failure("w_outside_nc", "load_nc of 4 bytes");
#ifndef EMU_ASAN
        expect_failure("w_overrun", "writes past its 1024 bytes");
#endif
}

TEST (names_copies_not_waited_for) {
        expect_failure("w_not_waited", "1 asynchronous copies not waited for");
}
TEST (names_spins) {
        expect_failure("w_spin", "waits in a loop");
}

TEST (stale_data_shows) {
        Problem<bf16> p(64, 64, 128);
        LAUNCH(k_gemm_stale, 1, 256, MATMUL_SMEM, p.rt, p.Y, p.A, p.B);
        int bad = 0;
        for (int i = 0; i < p.M * p.N; i++)
                bad += p.Y[i] != p.Y[i];
        CHECK_MSG(bad == p.M * p.N, "%d of %d outputs are NaN without the wait", bad, p.M * p.N);
}

/* Each race must show in one of the orders; which, depends on its direction. */
static bool shows(const char *kernel, const char *order, int (*want)(int))
{
        int *y = shared_memory<int>(64);
        void *args[] = { (void *)zero_rt(), y };
        char err[800] = "";
        setenv("TGC_EMULATE_ORDER", order, 1);
        int rc = tgc_emulate_launch(kernel, 1, 64, 1024, args, 2, err, sizeof err);
        CHECK_MSG(!rc, "%s", err);
        bool bad = false;
        for (int i = 0; i < 64; i++)
                bad |= y[i] != want(i);
        return bad;
}

static int left(int i) { return (i + 63) & 63; }
static int right(int i) { return (i + 1) & 63; }
static int across(int i) { return i ^ 32; }

TEST (races_show) {
        static const char *order[] = { "forward", "backward", "1", "2", "3" };
        char was[32];
        const char *env = getenv("TGC_EMULATE_ORDER");
        snprintf(was, sizeof was, "%s", env ? env : "");
        int n[4] = { 0 };
        for (int i = 0; i < 5; i++) {
                n[0] += shows("r_left", order[i], left);
                n[1] += shows("r_right", order[i], right);
                n[2] += shows("r_warp", order[i], across);
                n[3] += shows("r_again", order[i], across);
        }
        setenv("TGC_EMULATE_ORDER", was, 1);
        for (int i = 0; i < 4; i++)
                CHECK_MSG(n[i] >= 2, "race %d shows in %d of 5 orders", i, n[i]);
}

TEST (every_block_runs_once) {
        for (unsigned order = 0; order < 12; order++)
                for (unsigned n = 1; n < 130; n += n < 40 ? 1 : 7) {
                        char seen[130] = { 0 };
                        for (unsigned i = 0; i < n; i++) {
                                unsigned b = emu::block_number(order * 77, i, n);
                                CHECK_MSG(b < n && !seen[b], "order %u: block %u of %u", order * 77,
                                          b, n);
                                seen[b] = 1;
                        }
                }
}

TEST (refuses_bad_launches) {
        char err[200];
        void *args[2] = { 0, 0 };
        CHECK(tgc_emulate_launch("nothing", 1, 32, 0, args, 2, err, sizeof err) &&
              strstr(err, "no such kernel"));
        CHECK(tgc_emulate_launch("k_philox", 1, 32, 0, args, 3, err, sizeof err) &&
              strstr(err, "takes 2 pointers"));
        CHECK(tgc_emulate_launch("k_philox", 1, 1056, 0, args, 2, err, sizeof err) &&
              strstr(err, "1056 threads"));
        CHECK(tgc_emulate_launch("k_philox", 0, 32, 0, args, 2, err, sizeof err));
        CHECK(tgc_emulate_launch("k_philox", 1, 32, 1 << 20, args, 2, err, sizeof err));
}
#endif

TEST_MAIN
