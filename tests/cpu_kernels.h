/* cpu_kernels.h: what the tests of the C kernel families share.
 *
 * Sizes are odd on purpose (1, 3, 65, 172, 1000).  Every case runs its tiles with
 * OpenMP where the compiler has it on, and again backwards on one thread: the bits must
 * agree.  Tolerances: float32 sums of n terms of size 1 are within a few n * 2^-24. */
#ifndef TGC_TEST_CPU_KERNELS_H
#define TGC_TEST_CPU_KERNELS_H

#include <stdlib.h>
#include "test.h"
#include "cpu_tgc.h"

static uint64_t seed = 88172645463325252u;
static inline double uniform(void)
{
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        return (double)(seed >> 11) * 0x1p-53;
}
static inline float noise(void) { return (float)(2. * uniform() - 1.); }
static inline int below(int n) { return (int)(uniform() * n); }

/* Exactly n elements, so that a sanitizer sees one too many. */
static inline float *floats(long n)
{
        float *p = malloc((size_t)(n > 0 ? n : 1) * sizeof *p);
        for (long i = 0; i < n; i++)
                p[i] = noise();
        return p;
}

/* The same numbers in storage type ty; x is rounded to what the copy holds. */
static inline void *stored(int ty, float *x, long n)
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
#define RUN(tiles, out, count, stmt)                                  \
        do {                                                          \
                long n_ = (tiles);                                    \
                size_t bytes_ = (size_t)(count) * sizeof *(out);      \
                void *copy_ = malloc(bytes_ + 1);                     \
                for (int back_ = 0; back_ < 2; back_++) {             \
                        memcpy(copy_, out, bytes_);                   \
                        memset(out, 0xff, bytes_);                    \
                        PARALLEL_FOR                                  \
                        for (long i_ = 0; i_ < n_; i_++) {            \
                                long tile = back_ ? n_ - 1 - i_ : i_; \
                                stmt;                                 \
                        }                                             \
                }                                                     \
                int same_ = !memcmp(copy_, out, bytes_);              \
                free(copy_);                                          \
                CHECK(same_);                                         \
        } while (0)

#define NEAR(got, want, tol, ...)                                                                  \
        do {                                                                                       \
                double g_ = (got), w_ = (want), t_ = (tol);                                        \
                if (!(fabs(g_ - w_) <= t_)) {                                                      \
                        printf("  at ");                                                           \
                        printf(__VA_ARGS__);                                                       \
                        printf("\n");                                                              \
                }                                                                                  \
                CHECK_MSG(fabs(g_ - w_) <= t_, "got %.9g, want %.9g, tolerance %.2g", g_, w_, t_); \
        } while (0)

/* Heads and epilogues over plain arrays: x0, x1, x2 in, y0, y1 out, rows of N (resp. n_out). */
typedef struct Io {
        const float *x0, *x1, *x2;
        float *y0, *y1;
        long N, n_out;
        const float *bias;
} Io;
#define IO ((const Io *)args)
TGC_INLINE void prologue0(const void *args, long row, int col, int n, float *v)
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
TGC_INLINE void epilogue0(const void *args, long row, int col, int n, float *v)
{
        store_float(IO->y0 + row * IO->n_out + col, v, n);
        for (int i = 0; i < n; i++)
                v[i] = NAN; /* epilogues may overwrite */
}
TGC_INLINE void epilogue1(const void *args, long row, int col, int n, float *v)
{
        store_float(IO->y1 + row * IO->n_out + col, v, n);
}
TGC_INLINE void expert_epilogue(const void *args, long row, int col, int n, float *v, int e)
{
        for (int i = 0; i < n; i++)
                v[i] += IO->bias[e];
        epilogue0(args, row, col, n, v);
}
TGC_INLINE void pair_head(const void *args, long row, int col, int n, float *dy, float *g)
{
        for (int i = 0; i < n; i++) {
                g[i] = IO->x1[row * IO->N + col + i];
                dy[i] = g[i] * IO->bias[col + i];
        }
}

#endif
