/* cpu_bench.c: the C kernels against the core's own peak, one thread.
 *
 *      cc -std=c11 -D_GNU_SOURCE -O3 -march=native -ffp-contract=fast -fno-math-errno
 *      -fno-trapping-math
 *         -Iruntime -Icodegen/forms $(make -s kernel-includes) tests/bench/cpu_bench.c
 *         -o build/cpu_bench -lm && build/cpu_bench
 *
 * Every figure is the best of several runs: the machine may be shared. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "cpu_attention.h"

static double now(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best time of one `stmt`, repeated to fill about a millisecond per sample. */
#define BEST(best, stmt)                                                       \
        do {                                                                   \
                double t0_ = now();                                            \
                stmt;                                                          \
                double one_ = now() - t0_;                                     \
                int reps_ = one_ > 1e-3 ? 1 : (int)(1e-3 / (one_ + 1e-9)) + 1; \
                best = 1e9;                                                    \
                for (int s_ = 0; s_ < 40; s_++) {                              \
                        t0_ = now();                                           \
                        for (int r_ = 0; r_ < reps_; r_++) {                   \
                                stmt;                                          \
                        }                                                      \
                        double t_ = (now() - t0_) / reps_;                     \
                        if (t_ < best)                                         \
                                best = t_;                                     \
                }                                                              \
        } while (0)

static float *data(long n)
{
        float *p = aligned_alloc(64, (size_t)(n + 64) / 16 * 64 + 64);
        for (long i = 0; i < n; i++)
                p[i] = (float)rand() / (float)RAND_MAX - .5f;
        return p;
}

/* Independent multiply-adds in registers: what one core can do. */
static __attribute__((noinline)) float peak_loop(long n)
{
        Vec s[12];
        for (int i = 0; i < 12; i++)
                s[i] = vec_all((float)i);
        Vec x = vec_all(1.0001f), y = vec_all(.5f);
        for (long r = 0; r < n; r++) {
#pragma GCC unroll 12
                for (int i = 0; i < 12; i++)
                        s[i] = s[i] * x + y;
        }
        for (int i = 1; i < 12; i++)
                s[0] += s[i];
        return vec_sum(s[0]);
}

typedef struct Out {
        float *p;
        long ld;
} Out;
TGC_INLINE void put(const void *args, long row, int col, int n, float *v)
{
        const Out *o = args;
        store_float(o->p + row * o->ld + col, v, n);
}

static __attribute__((noinline)) void matmul(Mat a, Mat b, long M, long N, long K, Out o)
{
        long tiles = gemm_tiles(a, b, 1, M, N, K);
        for (long t = 0; t < tiles; t++)
                gemm_task(a, b, 1, M, N, K, t, &o, put);
}

static double bench_peak(void)
{
        volatile float sink;
        double t;
        long n = 200000;
        BEST(t, sink = peak_loop(n++));
        n = 200000;
        (void)sink;
        return (double)n * 12 * TGC_VEC * 2 / t * 1e-9;
}

static void bench_gemm(double peak)
{
        static const long size[][3] = { { 64, 64, 64 },     { 128, 128, 128 },    { 256, 256, 256 },
                                        { 512, 512, 512 },  { 1024, 1024, 1024 }, { 256, 768, 768 },
                                        { 256, 3072, 768 }, { 1000, 1000, 1000 }, { 65, 172, 64 },
                                        { 16, 4096, 1024 } };
        for (unsigned i = 0; i < sizeof size / sizeof *size; i++)
                for (int tr = 0; tr < 4; tr++) {
                        long M = size[i][0], N = size[i][1], K = size[i][2];
                        Mat a = { data(M * K), TY_F32, tr >> 1, tr >> 1 ? M : K, 0 };
                        Mat b = { data(N * K), TY_F32, tr & 1, tr & 1 ? K : N, 0 };
                        Out o = { data(M * N), N };
                        double t;
                        BEST(t, matmul(a, b, M, N, K, o));
                        double g = 2. * (double)(M * N * K) / t * 1e-9;
                        printf("matmul %4ldx%4ldx%4ld %c%c  %9.2f us  %6.1f GFLOP/s  %4.0f%% of "
                               "peak\n",
                               M, N, K, tr >> 1 ? 'T' : 'N', tr & 1 ? 'T' : 'N', t * 1e6, g,
                               100 * g / peak);
                        free((void *)a.p), free((void *)b.p), free(o.p);
                }
}

typedef struct Vecs {
        const float *x;
        float *y;
        long K, N;
} Vecs;
TGC_INLINE void get_x(const void *args, long row, int col, int n, float *v)
{
        const Vecs *a = args;
        load_float(v, a->x + row * a->K + col, n);
}
TGC_INLINE void put_y(const void *args, long row, int col, int n, float *v)
{
        const Vecs *a = args;
        store_float(a->y + row * a->N + col, v, n);
}

/* Constants, as in emitted code. */
#define GEMV(m, n, k, ty, tr)                                                                 \
        do {                                                                                  \
                Mat w = { data((long)(n) * (k)), ty, tr, tr ? k : n, 0 };                     \
                Vecs a = { data((m) * (k)), data((m) * (n)), k, n };                          \
                double t;                                                                     \
                BEST(                                                                         \
                        t, for (long i_ = 0; i_ < gemv_tiles(n, k); i_++) {                   \
                                gemv_task(NORM_RMS, 1e-5f, w, m, n, k, i_, &a, get_x, put_y); \
                                __asm__ volatile("" ::: "memory");                            \
                        });                                                                   \
                printf("gemv M%d %5dx%-5d %-4s %s  %9.3f us  %6.1f GB/s\n", m, n, k,          \
                       ty == TY_F32    ? "f32"                                                \
                       : ty == TY_BF16 ? "bf16"                                               \
                                       : "f16",                                               \
                       tr ? "(N,K)" : "(K,N)", t * 1e6,                                       \
                       (double)(n) * (k) * (ty == TY_F32 ? 4 : 2) / t * 1e-9);                \
                free((void *)w.p), free((void *)a.x), free(a.y);                              \
        } while (0)

static __attribute__((noinline)) void bench_gemv(void)
{
        GEMV(1, 64, 64, TY_F32, 1);
        GEMV(1, 64, 64, TY_F32, 0);
        GEMV(1, 172, 64, TY_F32, 1);
        GEMV(1, 172, 64, TY_F32, 0);
        GEMV(1, 64, 172, TY_F32, 1);
        GEMV(1, 64, 172, TY_F32, 0);
        GEMV(1, 512, 64, TY_F32, 1);
        GEMV(1, 512, 64, TY_F32, 0);
        GEMV(1, 768, 768, TY_F32, 1);
        GEMV(1, 768, 768, TY_F32, 0);
        GEMV(1, 768, 768, TY_BF16, 1);
        GEMV(1, 768, 768, TY_F16, 1);
        GEMV(4, 768, 768, TY_F32, 1);
        GEMV(8, 768, 768, TY_F32, 1);
        GEMV(8, 768, 768, TY_F32, 0);
        GEMV(1, 8192, 2048, TY_F32, 1);
        GEMV(1, 8192, 2048, TY_F32, 0);
        GEMV(1, 8192, 2048, TY_BF16, 1);
        GEMV(2, 8192, 2048, TY_F32, 1);
        GEMV(4, 8192, 2048, TY_F32, 1);
        GEMV(8, 8192, 2048, TY_F32, 1);
        GEMV(4, 8192, 2048, TY_BF16, 1);
        GEMV(8, 8192, 2048, TY_BF16, 1);
}

/* One token of a stories260K-shaped model (5 layers, 64 wide, 8 heads on 4, 172, 512 words), norms
 * in the gemvs, weights (N,K); `s` keys in a (B,S,K,D) cache. */
typedef struct Tiny {
        float *x, *qkv, *o, *h, *y, *kc, *vc;
        int pos;
} Tiny;
#define TINY ((Tiny *)(uintptr_t)args)
#define TINY_IO(name, call, a, b)                                                  \
        TGC_INLINE void name(const void *args, long row, int col, int n, float *v) \
        {                                                                          \
                (void)row;                                                         \
                call(a, b, n);                                                     \
        }
TINY_IO(tiny_x, load_float, v, TINY->x + col)
TINY_IO(tiny_o, load_float, v, TINY->o + col)
TINY_IO(tiny_put_o, store_float, TINY->o + col, v)
TINY_IO(tiny_put_h, store_float, TINY->h + col, v)
TINY_IO(tiny_put_y, store_float, TINY->y + col, v)
TGC_INLINE void tiny_act(const void *args, long row, int col, int n, float *v)
{
        (void)row;
        for (int i = 0; i < n; i++) {
                float g = TINY->h[2 * (col + i)], u = TINY->h[2 * (col + i) + 1];
                v[i] = g * fast_sigmoidf(g) * u;
        }
}
TGC_INLINE void tiny_qkv(const void *args, long row, int col, int n, float *v)
{
        (void)row;
        for (int i = 0; i < n; i++) {
                int c = col + i;
                float *kv = (c < 96 ? TINY->kc : TINY->vc) + TINY->pos * 32 + (c & 31);
                float *to = c < 64 ? TINY->qkv + c : kv;
                *to = v[i];
        }
}
TGC_INLINE void tiny_add(const void *args, long row, int col, int n, float *v)
{
        (void)row;
        for (int i = 0; i < n; i++)
                TINY->x[col + i] = .5f * TINY->x[col + i] + v[i];
}

static __attribute__((noinline)) void tiny_attention(const Rt *rt, Tiny *t)
{
        const Attention a = { .H = 8,
                              .K = 4,
                              .D = 8,
                              .scale = .35f,
                              .causal = 1,
                              .cached = 1,
                              .q = { t->qkv, TY_F32, 64, 64, 8 },
                              .k = { t->kc, TY_F32, 512 * 32, 32, 8 },
                              .v = { t->vc, TY_F32, 512 * 32, 32, 8 } };
        for (long i = 0; i < attention_tiles(&a, rt); i++)
                attention_task(&a, rt, i, t, tiny_put_o);
}

#define TINY_LAYER(norm, n, k, w, head, epilogue) \
        gemv_task(norm, 1e-5f, (Mat) { w, TY_F32, 1, k, 0 }, 1, n, k, 0, t, head, epilogue)

static __attribute__((noinline)) void tiny_token(Tiny *t, const float *w, const Rt *rt)
{
        for (int l = 0; l < 5; l++) {
                TINY_LAYER(NORM_RMS, 128, 64, w, tiny_x, tiny_qkv);
                w += 128 * 64;
                tiny_attention(rt, t);
                TINY_LAYER(NORM_NONE, 64, 64, w, tiny_o, tiny_add);
                w += 64 * 64;
                TINY_LAYER(NORM_RMS, 344, 64, w, tiny_x, tiny_put_h);
                w += 344 * 64;
                TINY_LAYER(NORM_NONE, 64, 172, w, tiny_act, tiny_add);
                w += 64 * 172;
        }
        TINY_LAYER(NORM_RMS, 512, 64, w, tiny_x, tiny_put_y);
}

static void bench_tiny(void)
{
        Tiny t = { data(64),  data(128),      data(64),       data(344),
                   data(512), data(512 * 32), data(512 * 32), 0 };
        float *w = data(300000);
        static Rt rt;
        for (int pos = 0; pos < 512; pos += 255) {
                double sec, att;
                rt.B = rt.T = 1;
                rt.pos[0] = t.pos = pos;
                BEST(sec, tiny_token(&t, w, &rt));
                BEST(att, tiny_attention(&rt, &t));
                printf("stories260K shape, one token at %3d: %6.2f us, %6.0f tokens/s (attention "
                       "%.2f us a layer)\n",
                       pos, sec * 1e6, 1. / sec, att * 1e6);
        }
}

/* The weights of one token of a llama2.c model, one after another as they lie in a plan: what
 * decoding reads once it is larger than the caches.  norms and attention are left out. */
typedef struct Chain {
        const char *w;
        float *x, *y;
} Chain;
TGC_INLINE void chain_x(const void *args, long row, int col, int n, float *v)
{
        (void)row;
        load_float(v, ((const Chain *)args)->x + col, n);
}
TGC_INLINE void chain_y(const void *args, long row, int col, int n, float *v)
{
        (void)row;
        store_float(((const Chain *)args)->y + col, v, n);
}
#define CHAIN_GEMV(ty, n, k)                                                               \
        do {                                                                               \
                Mat w_ = { c->w, ty, 1, k, 0 };                                            \
                for (long i_ = 0; i_ < gemv_tiles(n, k); i_++)                             \
                        gemv_task(NORM_NONE, 1e-5f, w_, 1, n, k, i_, c, chain_x, chain_y); \
                c->w += (size_t)(n) * (k) * (ty == TY_F32 ? 4 : 2);                        \
        } while (0)
#define CHAIN_MODEL(name, ty, layers, C, F, V)                            \
        static __attribute__((noinline)) TGC_UNROLLED void name(Chain *c) \
        {                                                                 \
                for (int l = 0; l < layers; l++) {                        \
                        CHAIN_GEMV(ty, 3 * C, C);                         \
                        CHAIN_GEMV(ty, C, C);                             \
                        CHAIN_GEMV(ty, 2 * F, C);                         \
                        CHAIN_GEMV(ty, C, F);                             \
                }                                                         \
                CHAIN_GEMV(ty, V, C);                                     \
        }
CHAIN_MODEL(stories15m_f32, TY_F32, 6, 288, 768, 32000)
CHAIN_MODEL(stories15m_bf16, TY_BF16, 6, 288, 768, 32000)
CHAIN_MODEL(stories15m_f16, TY_F16, 6, 288, 768, 32000)
CHAIN_MODEL(stories110m_f32, TY_F32, 12, 768, 2048, 32000)
CHAIN_MODEL(stories110m_bf16, TY_BF16, 12, 768, 2048, 32000)
CHAIN_MODEL(stories110m_f16, TY_F16, 12, 768, 2048, 32000)

/* Threads of a real run sum memory as fast as this: one stream, no products. */
static __attribute__((noinline)) float read_all(const float *p, long n)
{
        Vec s[4] = { vec_all(0.f), vec_all(0.f), vec_all(0.f), vec_all(0.f) };
        for (long i = 0; i + 4 * TGC_VEC <= n; i += 4 * TGC_VEC)
                for (int j = 0; j < 4; j++)
                        s[j] += vec_load(p + i + j * TGC_VEC);
        return vec_sum(s[0] + s[1] + s[2] + s[3]);
}

static void bench_chain(void)
{
        static const struct {
                const char *name;
                void (*run)(Chain *);
                int bytes;
                long layers, C, F, V;
        } model[] = { { "stories15M f32", stories15m_f32, 4, 6, 288, 768, 32000 },
                      { "stories15M bf16", stories15m_bf16, 2, 6, 288, 768, 32000 },
                      { "stories15M f16", stories15m_f16, 2, 6, 288, 768, 32000 },
                      { "stories110M f32", stories110m_f32, 4, 12, 768, 2048, 32000 },
                      { "stories110M bf16", stories110m_bf16, 2, 12, 768, 2048, 32000 },
                      { "stories110M f16", stories110m_f16, 2, 12, 768, 2048, 32000 } };
        const long most = 12L * (4 * 768 * 768 + 3 * 768 * 2048) + 32000L * 768;
        float *w = data(most), *x = data(4096), *y = data(40000);
        volatile float sink;
        double t;
        BEST(t, sink = read_all(w, most));
        (void)sink;
        printf("reading memory, one thread: %.1f GB/s\n", (double)most * 4 / t * 1e-9);
        for (unsigned i = 0; i < sizeof model / sizeof *model; i++) {
                long n = model[i].layers *
                                 (4 * model[i].C * model[i].C + 3 * model[i].C * model[i].F) +
                         model[i].V * model[i].C;
                Chain c = { .x = x, .y = y };
                BEST(t, c.w = (const char *)w; model[i].run(&c));
                printf("%-17s weights of a token %9.3f ms, %6.1f tokens/s, %5.1f GB/s\n",
                       model[i].name, t * 1e3, 1. / t, (double)n * model[i].bytes / t * 1e-9);
        }
        free(w), free(x), free(y);
}

int main(void)
{
        double peak = bench_peak();
        printf("peak of one core: %.1f GFLOP/s, %d-wide vectors\n", peak, TGC_VEC);
        bench_chain();
        bench_tiny();
        bench_gemv();
        bench_gemm(peak);
        return 0;
}
