/* heads.h: shapes of heads, random numbers, launches in clusters and comparisons of the programs
 * that test decoding's attention in the emulator. */
#ifndef TGC_TEST_HEADS_H
#define TGC_TEST_HEADS_H

#define TGC_SM90A 1
#include "ptx.cuh"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "attention_decode_ring_sm90.cuh"
#include "attention_decode_sm90.cuh"

static int failures;

#define CHECK_NEAR(x, y, tol, ...)                                \
        do {                                                      \
                const double x_ = (x), y_ = (y);                  \
                if (!(fabs(x_ - y_) <= (tol))) {                  \
                        if (failures++ < 20) {                    \
                                printf("not ok %s: ", what);      \
                                printf(__VA_ARGS__);              \
                                printf(": %g, not %g\n", x_, y_); \
                        }                                         \
                }                                                 \
        } while (0)

/* The program's exit status. */
static int finish()
{
        if (failures)
                printf("%d failures\n", failures);
        return failures != 0;
}

template <class A>
static void run(const char *what, void (*fn)(const A *), int grid, int cluster, int threads,
                int smem, const A *a)
{
        emu::Entry<1> k(what, fn);
        void *args[1] = { (void *)a };
        char err[600];
        tgc_emulate_clusters((unsigned)cluster, (unsigned)cluster);
        if (tgc_emulate_launch(what, (unsigned)grid, (unsigned)threads, (unsigned)smem, args, 1,
                               err, sizeof err) &&
            failures++ < 20)
                printf("not ok %s: %s\n", what, err);
        emu::kernels = k.next;
}

static float noise(unsigned *seed)
{
        return (float)((*seed = *seed * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
}

/* ---- heads ---- */

template <int H_, int K_, int D_, int WINDOW_ = 0, bool ALIBI_ = false, int CAP = 0>
struct Heads : AttBase {
        static constexpr int D = D_, H = H_, K = K_, VEC = 4, WINDOW = WINDOW_;
        static constexpr float SCALE = 0.25f, SOFTCAP = CAP;
        static constexpr bool CAUSAL = true, CACHED = true, ALIBI = ALIBI_;
};

/* Of 16-bit values, eight at a time: tensor cores'. */
template <int H, int K, int D, int WINDOW = 0>
struct Wide : Heads<H, K, D, WINDOW> {
        static constexpr int VEC = 8;
};

#endif
