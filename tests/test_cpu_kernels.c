/* test_cpu_kernels.c: the C kernel families against plain loops in double.
 *
 * Sizes are odd on purpose (1, 3, 65, 172, 1000).  Every case runs its tiles with
 * OpenMP where the compiler has it on, and again backwards on one thread: the bits must
 * agree.  Tolerances: float32 sums of n terms of size 1 are within a few n * 2^-24. */
#include <stdlib.h>
#include "test.h"
#include "cpu_attention.h"
#include "cpu_cross_entropy.h"
#include "cpu_expert.h"
#include "cpu_route.h"
#include "cpu_sample.h"
#include "cpu_update.h"

/* ---- helpers ----------------------------------------------------------- */

static uint64_t seed = 88172645463325252u;
static double uniform(void)
{
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        return (double)(seed >> 11) * 0x1p-53;
}
static float noise(void) { return (float)(2. * uniform() - 1.); }
static int below(int n) { return (int)(uniform() * n); }

/* Exactly n elements, so that a sanitizer sees one too many. */
static float *floats(long n)
{
        float *p = malloc((size_t)(n > 0 ? n : 1) * sizeof *p);
        for (long i = 0; i < n; i++)
                p[i] = noise();
        return p;
}

/* The same numbers in storage type ty; x is rounded to what the copy holds. */
static void *stored(int ty, float *x, long n)
{
        void *p = malloc((size_t)(n > 0 ? n : 1) * (size_t)ty_size(ty));
        for (long i = 0; i < n; i++)
                ty_store(ty, p, i, x + i, 1);
        for (long i = 0; i < n; i++)
                x[i] = ty_get(ty, p, i);
        return p;
}

#ifdef _OPENMP
#define PARALLEL_FOR _Pragma("omp parallel for schedule(static)")
#else
#define PARALLEL_FOR
#endif

/* Run tile 0..n-1 in parallel (into out), then again backwards: same bits. */
#define RUN(tiles, out, count, stmt) do { \
        long n_ = (tiles); size_t bytes_ = (size_t)(count) * sizeof *(out); \
        void *copy_ = malloc(bytes_ + 1); \
        for (int back_ = 0; back_ < 2; back_++) { \
                memcpy(copy_, out, bytes_); \
                memset(out, 0xff, bytes_); \
                PARALLEL_FOR \
                for (long i_ = 0; i_ < n_; i_++) { long tile = back_ ? n_ - 1 - i_ : i_; stmt; } \
        } \
        int same_ = !memcmp(copy_, out, bytes_); \
        free(copy_); \
        CHECK(same_); \
} while (0)

#define NEAR(got, want, tol, ...) do { \
        double g_ = (got), w_ = (want), t_ = (tol); \
        if (!(fabs(g_ - w_) <= t_)) { printf("  at "); printf(__VA_ARGS__); printf("\n"); } \
        CHECK_MSG(fabs(g_ - w_) <= t_, "got %.9g, want %.9g, tolerance %.2g", g_, w_, t_); } while (0)

/* Heads and tails over plain arrays: x0, x1, x2 in, y0, y1 out, rows of N (resp. n_out). */
typedef struct Io { const float *x0, *x1, *x2; float *y0, *y1; long N, n_out; const float *bias; } Io;
#define IO ((const Io *)args)
TGC_INLINE void head0(const void *args, long row, int col, int n, float *v)
{
        load_float(v, IO->x0 + row * IO->N + col, n);
}
TGC_INLINE void head1(const void *args, long row, int col, int n, float *v)
{
        load_float(v, IO->x1 + row * IO->N + col, n);
}
TGC_INLINE void scale_head(const void *args, long row, int col, int n, float *v)
{
        (void)col, (void)n;
        v[0] = IO->x2[row];
}
TGC_INLINE void tail0(const void *args, long row, int col, int n, float *v)
{
        store_float(IO->y0 + row * IO->n_out + col, v, n);
        for (int i = 0; i < n; i++)
                v[i] = NAN;             /* tails may overwrite */
}
TGC_INLINE void tail1(const void *args, long row, int col, int n, float *v)
{
        store_float(IO->y1 + row * IO->n_out + col, v, n);
}
TGC_INLINE void expert_tail(const void *args, long row, int col, int n, float *v, int e)
{
        for (int i = 0; i < n; i++)
                v[i] += IO->bias[e];
        tail0(args, row, col, n, v);
}
TGC_INLINE void pair_head(const void *args, long row, int col, int n, float *dy, float *g)
{
        for (int i = 0; i < n; i++) {
                g[i] = IO->x1[row * IO->N + col + i];
                dy[i] = g[i] * IO->bias[col + i];
        }
}

/* ---- numbers ----------------------------------------------------------- */

#define ULPS(f, ref, lo, hi, most) for (int i_ = 0; i_ < 20000; i_++) { \
        float x_ = (float)((lo) + ((hi) - (lo)) * uniform()); \
        double w_ = ref((double)x_), u_ = ldexp(1., (int)fmax(ilogb(w_), -126.) - 23); \
        CHECK_MSG(fabs((double)f(x_) - w_) <= (most) * u_, #f "(%.9g): got %.9g, want %.9g", \
                  (double)x_, (double)f(x_), w_); }

static double sigmoid(double x) { return 1. / (1. + exp(-x)); }

TEST(elementary_functions_are_within_3_ulp)
{
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

TEST(elementary_functions_at_the_ends)
{
        CHECK(fast_expf(INFINITY) == INFINITY && fast_expf(-INFINITY) == 0.f && isnan(fast_expf(NAN)));
        CHECK(fast_expf(1e30f) == INFINITY && fast_expf(-1e30f) == 0.f && fast_expf(0.f) == 1.f);
        CHECK(fast_exp_negf(-INFINITY) == 0.f && isnan(fast_exp_negf(NAN)) && fast_exp_negf(0.f) == 1.f);
        CHECK(fast_logf(0.f) == -INFINITY && fast_logf(INFINITY) == INFINITY && fast_logf(1.f) == 0.f);
        CHECK(isnan(fast_logf(-1.f)) && isnan(fast_logf(NAN)) && isnan(fast_logf(-INFINITY)));
        CHECK(fast_tanhf(INFINITY) == 1.f && fast_tanhf(-INFINITY) == -1.f && isnan(fast_tanhf(NAN)));
        CHECK(fast_erff(INFINITY) == 1.f && fast_erff(-INFINITY) == -1.f && isnan(fast_erff(NAN)));
        CHECK(fast_sigmoidf(INFINITY) == 1.f && fast_sigmoidf(-INFINITY) == 0.f && isnan(fast_sigmoidf(NAN)));
}

TEST(half_types_round_trip_and_round_to_even)
{
        for (unsigned u = 0; u < 65536; u++) {
                f16 h = { (uint16_t)u };
                float x = f16_to_float(h), v = bf16_to_float((bf16)u);
                int e = (int)(u >> 10 & 31), m = (int)(u & 1023);
                double want = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
                want = u & 0x8000 ? -want : want;
                CHECK_MSG(isnan(want) ? isnan(x) : (double)x == want, "f16 %04x: %g", u, (double)x);
                CHECK(isnan(x) || f16_from_float(x).u == u);
                CHECK(isnan(v) || bf16_from_float(v) == u);
                if (e < 30) {           /* half way to the next goes to the even one */
                        f16 up = { (uint16_t)(u + 1) };
                        float mid = (float)(((double)x + (double)f16_to_float(up)) / 2.);
                        CHECK(f16_from_float(mid).u == (u & 1 ? u + 1 : u));
                }
        }
        CHECK(f16_from_float(65519.f).u == 0x7bff && f16_from_float(65520.f).u == 0x7c00);
        CHECK(isnan(f16_to_float(f16_from_float(NAN))) && isnan(bf16_to_float(bf16_from_float(NAN))));
        f16 many[37];
        float x[37], y[37];
        for (int i = 0; i < 37; i++)
                x[i] = noise() * 1e-4f;
        store_f16(many, x, 37);
        load_f16(y, many, 37);
        for (int i = 0; i < 37; i++)
                CHECK(many[i].u == f16_from_float(x[i]).u && y[i] == f16_to_float(many[i]));
}

TEST(philox_known_answers_and_dropout)
{
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

static void check_product(const Io *io, const float *a, long ar, long ac, const float *b, long br, long bc,
                          long M, long N, long K, long at)
{
        for (long x = 0; x < (M * N < 4000 ? M * N : 4000); x++) {
                long i = M * N < 4000 ? x / N : below((int)M), j = M * N < 4000 ? x % N : below((int)N);
                double want = 0.;
                for (long k = 0; k < K; k++)
                        want += (double)a[i * ar + k * ac] * (double)b[k * br + j * bc];
                NEAR(io->y0[at + i * N + j], want, 1e-6 * sqrt((double)K) + 1e-7, "%ldx%ldx%ld at %ld,%ld", M, N,
                        K, i, j);
        }
}

TEST(matmul_in_all_layouts_types_and_odd_sizes)
{
        static const long size[][4] = {        /* batch, M, N, K */
                { 1, 1, 1, 1 }, { 1, 3, 65, 172 }, { 1, 65, 3, 1 }, { 2, 64, 64, 64 }, { 1, 172, 65, 1000 },
                { 1, 200, 600, 300 }, { 3, 9, 33, 257 }, { 1, 7, 1000, 3 }, { 1, 5, 5, 0 }, { 1, 520, 520, 260 }
        };
        for (unsigned c = 0; c < sizeof size / sizeof *size * 8; c++) {
                const long *s = size[c / 8], Z = s[0], M = s[1], N = s[2], K = s[3];
                int ta = (int)(c >> 1 & 1), tb = (int)(c & 1), half = (int)(c >> 2 & 1);
                int a_ty = half ? TY_BF16 : TY_F32, b_ty = half ? TY_F16 : TY_F32;
                float *af = floats(Z * M * K), *bf = floats(Z * N * K), *y = floats(Z * M * N);
                void *as = stored(a_ty, af, Z * M * K), *bs = stored(b_ty, bf, Z * N * K);
                Mat a = { as, a_ty, ta, ta ? M : K, M * K }, b = { bs, b_ty, tb, tb ? K : N, N * K };
                Io io = { .y0 = y, .n_out = N };
                RUN(matmul_tiles(Z, M, N, K), y, Z * M * N, matmul_task(a, b, Z, M, N, K, tile, &io, tail0));
                for (long z = 0; z < Z; z++)
                        check_product(&io, af + z * M * K, ta ? 1 : K, ta ? M : 1, bf + z * N * K, tb ? 1 : N, tb
                                ? K : 1,
                                      M, N, K, z * M * N);
                free(af), free(bf), free(y), free(as), free(bs);
        }
}

TEST(matmul_tiles_do_not_depend_on_the_bits_of_others)
{
        /* The same element in a small and in a large product. */
        long K = 700;
        float *a = floats(300 * K), *b = floats(700 * K), *y = floats(300 * 700), one[32];
        Io io = { .y0 = y, .n_out = 700 }, small = { .y0 = one, .n_out = 32 };
        RUN(matmul_tiles(1, 300, 700, K), y, 300 * 700,
            matmul_task((Mat){ a, TY_F32, 0, K, 0 }, (Mat){ b, TY_F32, 1, K, 0 }, 1, 300, 700, K, tile, &io, tail0));
        matmul_task((Mat){ a + 299 * K, TY_F32, 0, K, 0 }, (Mat){ b + 665 * K, TY_F32, 1, K, 0 }, 1, 1, 32, K, 0,
                &small, tail0);
        CHECK(!memcmp(one, y + 299 * 700 + 665, sizeof one));
        free(a), free(b), free(y);
}

static void double_odd(const void *args, long row, int col, int n, float *v)
{
        (void)args, (void)row;
        for (int i = 0; i < n; i++)
                v[i] *= (col + i) % 2 ? 2.f : 1.f;
}

TEST(matvec_in_both_layouts_types_and_odd_sizes)
{
        static const long size[][2] = {        /* N, K */
                { 1, 1 }, { 3, 5 }, { 64, 64 }, { 172, 64 }, { 64, 172 }, { 65, 3 }, { 7, 1000 }, { 1000, 65 },
                        { 2000, 300 }
        };
        for (unsigned c = 0; c < sizeof size / sizeof *size * 2 * 8 * 3; c++) {
                long N = size[c / 48][0], K = size[c / 48][1];
                int tb = (int)(c & 1), M = (int)(c >> 1 & 7) + 1, ty = (int)(c / 16 % 3), norm = (int)(c % 3);
                float *x = floats(M * K), *wf = floats(N * K), *y = floats(M * N);
                void *ws = stored(ty, wf, N * K);
                Mat w = { ws, ty, tb, tb ? K : N, 0 };
                Io io = { .x0 = x, .y0 = y, .N = K, .n_out = N };
                if (norm == NORM_NONE)
                        RUN(matvec_tiles(N, K), y, M * N, matvec_task(norm, 1e-5f, w, M, N, K, tile, &io, head0, tail0));
                else
                        RUN(matvec_tiles(N, K), y, M * N,
                            matvec_gain_task(norm, 1e-5f, w, M, N, K, tile, &io, head0, double_odd, NULL, tail0));
                for (int i = 0; i < M && norm != NORM_NONE; i++) {
                        double m = 0., q = 0.;
                        for (long k = 0; k < K && norm == NORM_LAYER; k++)
                                m += (double)x[i * K + k] / (double)K;
                        for (long k = 0; k < K; k++)
                                q += ((double)x[i * K + k] - m) * ((double)x[i * K + k] - m) / (double)K;
                        for (long k = 0; k < K; k++)
                                x[i * K + k] = (float)(((double)x[i * K + k] - m) / sqrt(q + 1e-5)) * (k % 2 ? 2.f : 1.f);
                }
                double scale = norm == NORM_NONE ? 1. : 8.;
                for (long i = 0; i < M; i++)
                        for (long j = 0; j < N; j++) {
                                double want = 0.;
                                for (long k = 0; k < K; k++)
                                        want += (double)x[i * K + k] * (double)wf[tb ? j * K + k : k * N + j];
                                NEAR(y[i * N + j], want, 1e-6 * (scale * sqrt((double)K) + fabs(want)),
                                        "M%d N%ld K%ld trans %d type %d norm %d at %ld,%ld",
                                     M, N, K, tb, ty, norm, i, j);
                        }
                free(x), free(wf), free(ws), free(y);
        }
}

/* ---- attention --------------------------------------------------------- */

typedef struct AttCase {
        int B, T, pos0, pos1, H, K, D, DV, causal, window, alibi, mask, ty;
        float softcap, drop;
        int documents;          /* 1: rows hold several, no cache */
} AttCase;

static const AttCase att_case[] = {
        { 1, 1, 0, 0, 1, 1, 8, 0, 1, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 2, 3, 0, 0, 4, 2, 16, 0, 1, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 2, 1, 300, 7, 8, 4, 8, 0, 1, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 2, 1, 299, 0, 6, 1, 64, 0, 1, 100, 1, 0, TY_BF16, 0, 0, 0 },
        { 2, 65, 0, 0, 3, 3, 33, 20, 1, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 1, 172, 40, 0, 4, 2, 64, 0, 1, 50, 0, 0, TY_F16, 0, 0, 0 },
        { 2, 65, 0, 0, 4, 2, 40, 0, 0, 0, 1, 1, TY_F32, 20, 0, 0 },
        { 1, 130, 0, 0, 2, 1, 128, 0, 1, 0, 0, 0, TY_F32, 0, .3f, 0 },
        { 2, 33, 0, 0, 4, 4, 5, 7, 1, 7, 1, 1, TY_BF16, 5, .1f, 0 },
        { 1, 3, 0, 0, 80, 1, 16, 0, 1, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 1, 200, 0, 0, 2, 2, 256, 0, 0, 0, 0, 0, TY_F32, 0, 0, 0 },
        { 2, 301, 0, 0, 4, 2, 24, 0, 1, 0, 0, 0, TY_F32, 0, 0, 1 },
        { 2, 140, 0, 0, 2, 2, 33, 20, 1, 9, 1, 0, TY_BF16, 0, .2f, 1 },
        { 1, 170, 0, 0, 2, 1, 16, 0, 0, 0, 0, 0, TY_F32, 3, 0, 1 },
};

/* Documents of 1 to 60 tokens: where that of each token begins and ends. */
static void documents_make(int *d, int T)
{
        for (int begin = 0, end; begin < T; begin = end) {
                end = begin + 1 + below(60);
                end = end < T ? end : T;
                for (int t = begin; t < end; t++)
                        d[2 * t] = begin, d[2 * t + 1] = end;
        }
}

/* A case with its tensors, (B,T,H,D) and (B,S,K,D) with a gap between heads. */
typedef struct Att {
        AttCase c;
        Rt      rt;
        int     S, DV;
        float  *q, *k, *v, *slopes, *lse, *g;
        void   *qs, *ks, *vs, *gs;
        float *mask;
        int *documents;         /* (B,T,2) */
        Attention a;
        double *out, *ref_lse, *dq, *dk, *dv;
} Att;

static void att_make(Att *t, AttCase c)
{
        memset(t, 0, sizeof *t);
        t->c = c;
        t->rt.B = c.B, t->rt.T = c.T, t->rt.n_micro = 1;
        t->rt.pos[0] = c.pos0, t->rt.pos[1] = c.pos1;
        t->rt.seed[1] = 11;
        int DV = t->DV = c.DV ? c.DV : c.D, D = c.D, S = t->S = (c.pos0 > c.pos1 ? c.pos0 : c.pos1) + c.T;
        long dq = D + 1, dv = DV + 3;
        t->q = floats(c.B * c.T * c.H * dq), t->k = floats(c.B * S * c.K * dq), t->v = floats(c.B * S * c.K * dv);
        t->g = floats(c.B * c.T * c.H * DV), t->slopes = floats(c.H), t->lse = floats(c.B * c.H * c.T);
        t->qs = stored(c.ty, t->q, c.B * c.T * c.H * dq), t->ks = stored(c.ty, t->k, c.B * S * c.K * dq);
        t->vs = stored(c.ty, t->v, c.B * S * c.K * dv), t->gs = stored(c.ty, t->g, c.B * c.T * c.H * DV);
        t->mask = malloc((size_t)(c.B * c.T * S) * sizeof *t->mask);
        for (int i = 0; i < c.B * c.T * S; i++)
                t->mask[i] = below(4) != 0 && i / S % 5 != 2;   /* some rows see nothing */
        t->documents = malloc((size_t)(c.B * c.T * 2) * sizeof *t->documents);
        for (int b = 0; b < c.B; b++)
                documents_make(t->documents + b * c.T * 2, c.T);
        t->a = (Attention){
                .H = c.H, .K = c.K, .D = D, .DV = c.DV,
                .q = { t->qs, c.ty, c.T * c.H * dq, c.H * dq, dq }, .k = { t->ks, c.ty, S * c.K * dq, c.K * dq, dq },
                .v = { t->vs, c.ty, S * c.K * dv, c.K * dv, dv },
                .scale = 2.f / sqrtf((float)D), .softcap = c.softcap, .causal = c.causal, .cached = !c.documents,
                        .window = c.window,
                .slopes = c.alibi ? t->slopes : 0, .mask = c.mask ? t->mask : 0, .mask_b = c.T * S, .mask_h = 0,
                        .mask_t = S,
                .documents = c.documents ? t->documents : 0, .drop = c.drop, .drop_id = 3, .lse = t->lse
        };
        /* the plain loops, forward and backward */
        size_t n = (size_t)(c.B * c.T * c.H), m = (size_t)(c.B * S * c.K);
        t->out = calloc(n * (size_t)DV, 8), t->ref_lse = calloc(n, 8), t->dq = calloc(n * (size_t)D, 8);
        t->dk = calloc(m * (size_t)D, 8), t->dv = calloc(m * (size_t)DV, 8);
        double *p = malloc(8 * (size_t)S), *dp = malloc(8 * (size_t)S), *sl = malloc(8 * (size_t)S);
        for (int b = 0; b < c.B; b++) for (int i = 0; i < c.T; i++) for (int h = 0; h < c.H; h++) {
                int pos = t->rt.pos[b], Sb = pos + c.T, kh = h / (c.H / c.K), at = pos + i;
                float *q = t->q + ((b * c.T + i) * c.H + h) * dq, *g = t->g + ((long)(b * c.T + i) * c.H + h) * DV;
                const int *of = t->documents + (b * c.T + i) * 2;
                double max = -INFINITY, sum = 0., delta = 0., *o = t->out + ((b * c.T + i) * c.H + h) * DV;
                for (int s = 0; s < Sb; s++) {
                        float *k = t->k + ((b * S + s) * c.K + kh) * dq;
                        double x = 0.;
                        for (int d = 0; d < D; d++)
                                x += (double)q[d] * (double)k[d];
                        x *= (double)t->a.scale;
                        double th = c.softcap > 0.f ? tanh(x / (double)c.softcap) : 0.;
                        x = c.softcap > 0.f ? (double)c.softcap * th : x;
                        sl[s] = 1. - th * th;
                        x += c.alibi ? (double)t->slopes[h] * (s - at) : 0.;
                        int ok = (!c.causal || s <= at) && (!c.window || s > at - c.window)
                                 && (!c.mask || t->mask[(b * c.T + i) * S + s])
                                 && (!c.documents || (s >= of[0] && s < of[1]));
                        p[s] = ok ? x : -INFINITY;
                        max = fmax(max, p[s]);
                }
                for (int s = 0; s < Sb; s++)
                        sum += p[s] = max == -INFINITY ? 0. : exp(p[s] - max);
                t->ref_lse[(b * c.H + h) * c.T + i] = max == -INFINITY ? -INFINITY : max + log(sum);
                for (int s = 0; s < Sb; s++) {
                        uint64_t at_s = (((uint64_t)b * (unsigned)c.H + (unsigned)h) * (unsigned)c.T + (unsigned)i)
                                        * (unsigned)Sb + (unsigned)s;
                        double keep = c.drop > 0.f ? (double)dropout(1.f, c.drop, 3, at_s, &t->rt) : 1.;
                        float *v = t->v + ((b * S + s) * c.K + kh) * dv;
                        p[s] = sum > 0. ? p[s] / sum : 0.;
                        dp[s] = 0.;
                        for (int d = 0; d < DV; d++) {
                                o[d] += p[s] * keep * (double)v[d];
                                dp[s] += keep * (double)g[d] * (double)v[d];
                                t->dv[((b * S + s) * c.K + kh) * DV + d] += p[s] * keep * (double)g[d];
                        }
                }
                for (int d = 0; d < DV; d++)
                        delta += o[d] * (double)g[d];
                for (int s = 0; s < Sb; s++) {
                        double ds = p[s] * (dp[s] - delta) * sl[s] * (double)t->a.scale;
                        float *k = t->k + ((b * S + s) * c.K + kh) * dq;
                        for (int d = 0; d < D; d++) {
                                t->dq[((b * c.T + i) * c.H + h) * D + d] += ds * (double)k[d];
                                t->dk[((b * S + s) * c.K + kh) * D + d] += ds * (double)q[d];
                        }
                }
        }
        free(p), free(dp), free(sl);
}

static void att_drop_case(Att *t)
{
        free(t->q), free(t->k), free(t->v), free(t->g), free(t->slopes), free(t->lse), free(t->mask);
        free(t->documents);
        free(t->qs), free(t->ks), free(t->vs), free(t->gs);
        free(t->out), free(t->ref_lse), free(t->dq), free(t->dk), free(t->dv);
}

static void near_all(const float *got, const double *want, long n, double tol, const char *what, unsigned c)
{
        for (long i = 0; i < n; i++)
                NEAR(got[i], want[i], tol * (1. + fabs(want[i])), "case %u, %s[%ld]", c, what, i);
}

/* Compiled once: a family with sizes and types known only at run time is much code. */
static __attribute__((noinline)) void att_forward(const Att *t, long tile, const Io *io)
{
        attention_task(&t->a, &t->rt, tile, io, tail0);
}

TEST(attention_forward)
{
        for (unsigned c = 0; c < sizeof att_case / sizeof *att_case; c++) {
                Att t;
                att_make(&t, att_case[c]);
                long n = (long)t.c.B * t.c.T * t.c.H;
                float *y = floats(n * t.DV);
                Io io = { .y0 = y, .n_out = t.c.H * t.DV };
                RUN(attention_tiles(&t.a, &t.rt), y, n * t.DV, att_forward(&t, tile, &io));
                near_all(y, t.out, n * t.DV, 2e-6, "out", c);
                for (long i = 0; i < n; i++)
                        CHECK(t.ref_lse[i] == -INFINITY ? t.lse[i] == -INFINITY
                                : fabs((double)t.lse[i] - t.ref_lse[i]) < 1e-5);
                free(y);
                att_drop_case(&t);
        }
}

TEST(attention_backward)
{
        for (unsigned c = 0; c < sizeof att_case / sizeof *att_case; c++) {
                Att t;
                if (att_case[c].pos0 != att_case[c].pos1 && att_case[c].B > 1)
                        continue;
                att_make(&t, att_case[c]);
                long n = (long)t.c.B * t.c.T * t.c.H, m = (long)t.c.B * t.S * t.c.K;
                float *o = floats(n * t.DV), *dq = floats(n * t.c.D), *dk = floats(m * (t.c.D + t.DV)),
                        *dv = dk + m * t.c.D;
                Io io = { .y0 = o, .n_out = t.c.H * t.DV }, ioq = { .y0 = dq, .n_out = t.c.H * t.c.D };
                struct { Io k; } iok = { { .y0 = dk, .y1 = dv, .n_out = t.c.K * t.c.D } };
                const Attention *a = &t.a;
                const Rt *rt = &t.rt;
                RUN(attention_tiles(a, rt), o, n * t.DV, att_forward(&t, tile, &io));
                Heads out = { o, TY_F32, t.c.T * t.c.H * t.DV, t.c.H * t.DV, t.DV };
                Heads g = { t.gs, t.c.ty, t.c.T * t.c.H * t.DV, t.c.H * t.DV, t.DV };
                RUN(attention_grad_q_tiles(a, rt), dq, n * t.c.D, attention_grad_q_task(a, out, g, rt, tile, &ioq,
                        tail0));
                near_all(dq, t.dq, n * t.c.D, 1e-5, "dq", c);
                if (t.DV == t.c.D) {
                        RUN(attention_grad_kv_tiles(a, rt), dk, m * 2 * t.c.D,
                            attention_grad_kv_task(a, out, g, rt, tile, &iok, tail0, tail1));
                        near_all(dk, t.dk, m * t.c.D, 1e-5, "dk", c);
                        near_all(dv, t.dv, m * t.DV, 1e-5, "dv", c);
                }
                free(o), free(dq), free(dk);
                att_drop_case(&t);
        }
}

/* ---- rows -------------------------------------------------------------- */

static const long row_size[][2] = { { 1, 1 }, { 3, 65 }, { 5, 172 }, { 2, 1000 }, { 70, 3 }, { 130, 257 } };
#define EACH_SIZE(R, N) for (unsigned z_ = 0; z_ < sizeof row_size / sizeof *row_size; z_++) \
        for (long R = row_size[z_][0], N = row_size[z_][1], once_ = 1; once_; once_ = 0)

TEST(norms_and_their_gradients)
{
        for (int kind = NORM_RMS; kind <= NORM_LAYER; kind++) EACH_SIZE(R, N) {
                float *x = floats(R * N), *g = floats(R * N), *y = floats(R * N), *dx = floats(R * N),
                        *st = floats(2 * R);
                float *gain = floats(N), *dg = floats(2 * NORM_ACC_TILES * N), *dx2 = floats(R * N);
                double *sg = calloc((size_t)N, 8), *sb = calloc((size_t)N, 8);
                Io io = { .x0 = x, .x1 = g, .y0 = y, .N = N, .n_out = N, .bias = gain }, iog = io, ioa = io;
                iog.y0 = dx, ioa.y0 = dx2;
                RUN(R, y, R * N, norm_task(kind, N, 1e-5f, st, st + R, tile, &io, head0, tail0));
                RUN(R, dx, R * N, norm_grad_task(kind, N, 1e-5f, st, st + R, tile, &iog, head0, head1, tail0));
                for (long r = 0; r < R; r++) {
                        double m = 0., q = 0., gm = 0., gx = 0.;
                        for (long c = 0; c < N && kind == NORM_LAYER; c++)
                                m += (double)x[r * N + c] / (double)N;
                        for (long c = 0; c < N; c++)
                                q += pow((double)x[r * N + c] - m, 2.) / (double)N;
                        double rstd = 1. / sqrt(q + 1e-5);
                        for (long c = 0; c < N; c++) {
                                double xh = ((double)x[r * N + c] - m) * rstd;
                                gm += kind == NORM_LAYER ? (double)g[r * N + c] / (double)N : 0.;
                                gx += (double)g[r * N + c] * xh / (double)N;
                                sg[c] += (double)g[r * N + c] * xh;
                                sb[c] += (double)g[r * N + c];
                        }
                        for (long c = 0; c < N; c++) {
                                double xh = ((double)x[r * N + c] - m) * rstd;
                                NEAR(y[r * N + c], xh, 1e-5, "row %ld of %ld, %ld", r, N, c);
                                NEAR(dx[r * N + c], rstd * ((double)g[r * N + c] - gm - xh * gx),
                                        2e-6 * rstd + 1e-6, "dx %ld,%ld", r, c);
                        }
                }
                float *dgain = dg, *dbias = dg + NORM_ACC_TILES * N;
                RUN(norm_acc_tiles(R), dx2, R * N,
                    norm_grad_acc_task(kind, N, 1e-5f, R, dgain, dbias, tile, &ioa, head0, pair_head, tail0));
                for (long c = 0; c < N; c++) {
                        double a = 0., b = 0.;
                        for (long t = 0; t < norm_acc_tiles(R); t++)
                                a += (double)dgain[t * N + c], b += (double)dbias[t * N + c];
                        NEAR(a, sg[c], 1e-4, "dgain %ld", c);
                        NEAR(b, sb[c], 1e-4, "dbias %ld", c);
                }
                free(x), free(g), free(y), free(dx), free(st), free(gain), free(dg), free(dx2), free(sg), free(sb);
        }
}

TEST(softmax_reductions_argmax_and_column_sums)
{
        EACH_SIZE(R, N) {
                float *x = floats(R * N), *g = floats(R * N), *y = floats(R * N), *dx = floats(R * N), *red = floats(R);
                int *arg = malloc(sizeof *arg * (size_t)R);
                Io io = { .x0 = x, .x1 = g, .y0 = y, .N = N, .n_out = N }, ior = io, iog = io, ioc = io;
                ior.y0 = red, ior.n_out = 1, iog.x0 = y, iog.y0 = dx;
                for (long c = 0; c < N; c++)
                        x[c] = -INFINITY;
                RUN(R, y, R * N, softmax_task(N, tile, &io, head0, tail0));
                RUN(R, dx, R * N, softmax_grad_task(N, tile, &iog, head0, head1, tail0));
                for (long r = 0; r < R; r++) {
                        double s = 0., dot = 0.;
                        for (long c = 0; c < N; c++)
                                s += exp((double)x[r * N + c]), dot += (double)y[r * N + c] * (double)g[r * N + c];
                        for (long c = 0; c < N; c++) {
                                NEAR(y[r * N + c], s > 0. ? exp((double)x[r * N + c]) / s : 0., 1e-6,
                                        "softmax %ld,%ld", r, c);
                                NEAR(dx[r * N + c], (double)y[r * N + c] * ((double)g[r * N + c] - dot), 1e-6,
                                        "grad %ld,%ld", r, c);
                        }
                }
                if (R > 1)
                        x[N + N / 2] = x[N + N - 1] = 3.f, x[N] = NAN;
                RUN(R, arg, R, arg[tile] = argmax_task(N, tile, &io, head0));
                if (R > 1 && N > 1)
                        CHECK_MSG(arg[1] == N / 2, "argmax %d, want %ld", arg[1], N / 2);
                CHECK(arg[0] == 0);
                if (R > 1)
                        x[N] = 0.f;
                for (int kind = RED_SUM; kind <= RED_LOGSUMEXP; kind++) {
                        RUN(R, red, R, reduce_task(kind, N, tile, &ior, head0, tail0));
                        CHECK(red[0] == -INFINITY);
                        for (long r = 1; r < R; r++) {
                                double s = 0., m = -INFINITY, e = 0.;
                                for (long c = 0; c < N; c++) {
                                        double v = (double)x[r * N + c];
                                        s += v, m = fmax(m, v), e += exp(v);
                                }
                                NEAR(red[r], kind == RED_SUM ? s : kind == RED_MAX ? m : log(e), 1e-5,
                                        "reduce %d row %ld", kind, r);
                        }
                }
                ioc.x0 = g;
                RUN(column_sum_tiles(N), y, N, column_sum_task(R, N, tile, &ioc, head0, tail0));
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
        head0(args, row, col, n, v);
        for (int i = 0; i < n; i++)
                v[i] = fast_tanhf(v[i]);
        tail0(args, row, col, n, v);
}

TEST(map_covers_each_element_once)
{
        static const long size[][2] = { { 1, 1 }, { 1, 20001 }, { 5000, 3 }, { 130, 257 }, { 3, 8192 } };
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

TEST(rows_longer_than_the_scratch)
{
        long N = TGC_ROW_MAX + 1001;
        float *x = floats(N), *y = floats(N), one;
        double s = 0.;
        for (long i = 0; i < N; i++)
                s += exp((double)x[i]);
        Io io = { .x0 = x, .y0 = y, .N = N, .n_out = N }, ior = io;
        ior.y0 = &one;
        RUN(1, y, N, softmax_task(N, tile, &io, head0, tail0));
        for (long i = 0; i < N; i++)
                NEAR(y[i] * 1e5f, 1e5 * exp((double)x[i]) / s, 1e-5, "%ld", i);
        reduce_task(RED_LOGSUMEXP, N, 0, &ior, head0, tail0);
        NEAR(one, log(s), 1e-5, "logsumexp");
        free(x), free(y);
}

/* ---- cross entropy ----------------------------------------------------- */

TEST(cross_entropy)
{
        EACH_SIZE(R, V) {
                float *x = floats(R * V), *y = floats(R * V), *y2 = floats(R * V), *loss = floats(4 * R),
                        *scale = floats(R);
                int *target = malloc(sizeof *target * (size_t)R);
                for (long r = 0; r < R; r++) {
                        target[r] = r % 4 == 3 ? (r & 4 ? -1 : (int)V) : below((int)V);
                        for (long c = 0; c < V; c++)
                                x[r * V + c] *= 20.f;
                }
                Io io = { .x0 = x, .x2 = scale, .y0 = y, .N = V, .n_out = V }, io2 = io;
                io2.y0 = y2;
                RUN(R, loss, 2 * R, ce_task(V, target, loss, loss + R, tile, &io, head0));
                RUN(R, y, R * V, ce_grad_task(V, target, loss + R, tile, &io, head0, scale_head, tail0));
                RUN(R, y2, R * V, ce_both_task(V, target, loss + 2 * R, loss + 3 * R, tile, &io2, head0,
                        scale_head, tail0));
                CHECK(!memcmp(loss, loss + 2 * R, 2 * sizeof(float) * (size_t)R));
                CHECK(!memcmp(y, y2, sizeof(float) * (size_t)(R * V)));
                for (long r = 0; r < R; r++) {
                        double s = 0.;
                        int counts = target[r] >= 0 && target[r] < V;
                        for (long c = 0; c < V; c++)
                                s += exp((double)x[r * V + c]);
                        NEAR(loss[r], counts ? log(s) - (double)x[r * V + target[r]] : 0., 1e-5, "loss %ld", r);
                        for (long c = 0; c < V; c++) {
                                double p = exp((double)x[r * V + c]) / s - (c == target[r]);
                                NEAR(y[r * V + c], counts ? (double)scale[r] * p : 0., 3e-6, "gradient %ld,%ld", r, c);
                        }
                }
                free(x), free(y), free(y2), free(loss), free(scale), free(target);
        }
}

/* ---- routing ----------------------------------------------------------- */

TEST(topk_and_its_gradient)
{
        long R = 7, N = 65;
        int k = 5, ids[35];
        float *x = floats(R * N), val[35], *y = floats(R * N), *d = floats(R * k);
        for (long i = 0; i < R * N; i++)
                x[i] = (float)(int)(x[i] * 8.f);        /* many ties */
        for (long c = 0; c < N; c++)
                x[c] = NAN;
        Io io = { .x0 = x, .N = N }, iog = { .x0 = d, .y0 = y, .N = k, .n_out = N };
        RUN(R, ids, R * k, topk_task(N, k, val, ids, tile, &io, head0));
        RUN(R, y, R * N, topk_grad_task(N, k, ids, tile, &iog, head0, tail0));
        for (int j = 0; j < k; j++)
                CHECK(ids[j] == j && val[j] == -INFINITY);
        for (long r = 1; r < R; r++)
                for (int j = 0; j < k; j++) {
                        int at = ids[r * k + j], before = 0;
                        for (int c = 0; c < N; c++)
                                before += x[r * N + c] > x[r * N + at] || (x[r * N + c] == x[r * N + at] && c < at);
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

TEST(buckets_scatter_and_combine)
{
        enum { T = 50, KK = 3, P = T * KK, E = 6, N = 300 };
        int ids[P], perm[P], inv[P], offs[E + 1];
        for (int p = 0; p < P; p++)
                ids[p] = p % 10 == 7 ? (p & 1 ? -1 : E) : below(E - 1);        /* the last bucket is empty */
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
        RUN(E, y, E * N, scatter_rows_task(N, perm, offs, 0, tile, &io, head0, tail0));
        RUN(T, z, T * N, combine_task(KK, N, w, tile, &ioz, head0, tail0));
        for (int c = 0; c < N; c++) {
                for (int e = 0; e < E; e++) {
                        double s = 0.;
                        for (int p = 0; p < P; p++)
                                s += ids[p] == e ? (double)x[p * N + c] : 0.;
                        NEAR(y[e * N + c], s, 1e-5, "bucket %d", e);
                }
                y[(E - 1) * N + c] = 7;         /* a tail that adds is not asked for the empty bucket */
                for (int t = 0; t < T; t++) {
                        double s = 0.;
                        for (int j = 0; j < KK; j++)
                                s += (double)w[t * KK + j] * (double)x[(t * KK + j) * N + c];
                        NEAR(z[t * N + c], s, 1e-6, "token %d", t);
                }
        }
        scatter_rows_task(N, perm, offs, 1, E - 1, &io, head0, tail0);
        CHECK(y[(E - 1) * N] == 7 && y[E * N - 1] == 7);
        free(x), free(y), free(z), free(w);
}

TEST(experts)
{
        enum { T = 211, KK = 2, P = T * KK, E = 5, N = 270, K = 300 };
        static int ids[P], perm[P], offs[E + 1], place[P];
        for (int p = 0; p < P; p++)
                ids[p] = p % 2 ? 4 : below(3);  /* expert 3 gets nothing, 4 more than one block */
        bucket_task(ids, P, E, perm, place, offs);
        float *wf = floats((long)E * N * K), *x = floats(P * K), *y = floats(P * N), *bias = floats(E),
                *g = floats(P * N);
        float *dw = floats((long)E * N * K);
        for (int c = 0; c < 12; c++) {
                int tb = c & 1, scatter = c >> 1 & 1, adiv = c / 4, ty = c % 3;
                void *ws = stored(ty, wf, (long)E * N * K);
                Mat w = { ws, ty, tb, tb ? K : N, N * K };
                Io io = { .x0 = x, .y0 = y, .N = K, .n_out = N, .bias = bias }, iow = { .y0 = dw, .n_out = K };
                for (int way = 0; way < 2; way++) {
                        if (way == 0)
                                RUN(expert_matmul_tiles(E, P, N), y, P * N,
                                    expert_matmul_task(x, TY_F32, K, adiv, w, E, N, K, perm, offs, scatter, tile,
                                            &io, expert_tail));
                        else
                                RUN(expert_matvec_tiles(P, N, K), y, P * N,
                                    expert_matvec_task(NORM_NONE, 0.f, w, E, N, K, adiv, perm, offs, scatter, tile,
                                            &io, head0, expert_tail));
                        for (int t = 0; t < 600; t++) {
                                int i = below(P), j = below(N), p = perm[i], e = ids[p], row = adiv ? p / adiv : i;
                                double s = (double)bias[e];
                                for (int k = 0; k < K; k++)
                                        s += (double)x[row * K + k] * (double)wf[(long)e * N * K + (tb ? j * K + k
                                                : k * N + j)];
                                NEAR(y[(scatter ? p : i) * N + j], s, 2e-5, "way %d pair %d column %d", way, p, j);
                        }
                }
                if (c >= 4) {
                        free(ws);
                        continue;
                }
                int gdiv = scatter;
                RUN(expert_grad_tiles(E, N, K), dw, (long)E * N * K,
                    expert_grad_task(g, TY_F32, N, gdiv, x, TY_F32, K, adiv, N, K, perm, offs, tile, &iow, tail0));
                for (int t = 0; t < 600; t++) {
                        int e = below(E), n = below(N), k = below(K);
                        double s = 0.;
                        for (int i = offs[e]; i < offs[e + 1]; i++)
                                s += (double)g[(gdiv ? perm[i] / gdiv : i) * N + n] * (double)x[(adiv
                                        ? perm[i] / adiv : i) * K + k];
                        NEAR(dw[((long)e * N + n) * K + k], s, 2e-5, "dW of %d at %d,%d", e, n, k);
                }
                free(ws);
        }
        free(wf), free(x), free(y), free(bias), free(g), free(dw);
}

/* ---- update ------------------------------------------------------------ */

TEST(gradient_norm_and_adamw)
{
        long n = 2 * UPDATE_TILE + 1001, n_decay = UPDATE_TILE + 77;
        float *p = floats(n), *g = floats(n), *m = floats(n), *v = floats(n), *p0 = floats(n), norm;
        bf16 *low = calloc((size_t)n, sizeof *low);
        double partial[3], q = 0.;
        static Rt rt;
        rt = (Rt){ .lr = 1e-3f, .beta1 = .9f, .beta2 = .95f, .eps = 1e-8f, .weight_decay = .1f, .clip = 1.f,
                .bias1 = .1f, .bias2 = .05f };
        CHECK(update_tiles(n) == 3);
        RUN(3, partial, 3, sumsq_task(g, n, partial, tile));
        norm_finish_task(partial, 3, &norm);
        for (long i = 0; i < n; i++)
                q += (double)g[i] * (double)g[i];
        NEAR(norm, sqrt(q), 1e-5 * sqrt(q), "norm");
        for (long i = 0; i < n; i++)
                p0[i] = p[i], v[i] = fabsf(v[i]);
        float *m0 = malloc(4 * (size_t)n), *v0 = malloc(4 * (size_t)n);
        memcpy(m0, m, 4 * (size_t)n), memcpy(v0, v, 4 * (size_t)n);
        int flag = 0;
        for (long tile = 0; tile < 3; tile++)
                adamw_task(&rt, p, m, v, g, low, TY_BF16, n, n_decay, &norm, &flag, tile);
        CHECK(flag == 0);
        for (long i = 0; i < n; i++) {
                double gi = (double)g[i] / ((double)norm + 1e-6), mi = .9 * (double)m0[i] + .1 * gi,
                       vi = .95 * (double)v0[i] + .05 * gi * gi;
                double want = (double)p0[i] * (i < n_decay ? 1. - 1e-4
                        : 1.) - 1e-3 * (mi / .1) / (sqrt(vi / .05) + 1e-8);
                NEAR(p[i], want, 1e-6 * (1. + fabs(mi / .1 / sqrt(vi / .05))), "parameter %ld", i);
                NEAR(m[i], mi, 1e-6, "m %ld", i);
                NEAR(v[i], vi, 1e-6, "v %ld", i);
                CHECK(low[i] == bf16_from_float(p[i]));
        }
        memcpy(p0, p, 4 * (size_t)n);
        norm = NAN;
        for (long tile = 0; tile < 3; tile++)
                adamw_task(&rt, p, m, v, g, low, TY_BF16, n, n_decay, &norm, &flag, tile);
        CHECK(flag == 1 && !memcmp(p, p0, 4 * (size_t)n));
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
                        above += keep[j] && x[j] > x[i] ? floor((double)fast_exp_negf(x[j] - max) * 0x1p32) : 0.;
                keep[i] = keep[i] ? above >= fmax(1., floor((double)rt->top_p * z)) ? 2 : 1 : 0;        /* 2: out */
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

TEST(sampling)
{
        static Rt rt;
        float x[2 * SV], copy[2 * SV];
        int hist[2 * 16], next[2];
        for (int c = 0; c < 400; c++) {
                rt = (Rt){ .B = 2, .T = 1, .pos = { c, 3 * c }, .seed = { (unsigned)c, 5 }, .top_p = 1.f,
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
                x[11] = copy[11] = NAN;
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
                        y[11] = y[11] == y[11] ? y[11] : -INFINITY;
                        uint32_t r[4] = { (uint32_t)S, (uint32_t)b, SAMPLE_ID, 0 };
                        philox(r, rt.seed[0], rt.seed[1]);
                        int want = plain_sample(&rt, y, SV, r[0]), best = 0;
                        for (int i = 0; i < SV; i++)
                                best = y[i] > y[best] ? i : best;
                        want = rt.temp > 0.f ? want : best;
                        CHECK_MSG(next[b] == want, "case %d sequence %d: got %d, want %d", c, b, next[b], want);
                        CHECK(hist[S % 16 * 2 + b] == next[b] && rt.pos[b] == S);
                }
        }
}

TEST_MAIN
