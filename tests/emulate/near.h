/* near.h: values near what plain loops in double give, plain prologues and epilogues, and a
 * program's list of tests. */
#ifndef TGC_TEST_NEAR_H
#define TGC_TEST_NEAR_H

#include "shell.h"
#include <vector>

typedef std::vector<double> Vec;
static int failures;
static const char *test_name = "";

/* |got - want| <= tol * (1 + |want|); NaN and infinities must agree. */
static bool near(double got, double want, double tol)
{
        if (std::isnan(want) || std::isinf(want))
                return std::isnan(want) ? std::isnan(got) : got == want;
        return fabs(got - want) <= tol * (1 + fabs(want));
}

#define CHECK_NEAR(got, want, tol, ...)                            \
        do {                                                       \
                double g_ = (got), w_ = (want);                    \
                if (!near(g_, w_, tol)) {                          \
                        printf("not ok %s: ", test_name);          \
                        printf(__VA_ARGS__);                       \
                        printf(": got %.9g, want %.9g\n", g_, w_); \
                        failures++;                                \
                        return;                                    \
                }                                                  \
        } while (0)

static constexpr int ceil_div(long long a, long long b) { return (int)((a + b - 1) / b); }

/* ---- plain prologues and epilogues -------------------------------------------------- */

template <class T, int MV = 8>
struct In {
        static constexpr int MAXV = MV, MINV = 1;
        const T *p;
        int ld;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                load<V>(v, p + (long long)row * ld + col);
        }
};

template <class T, int MV = 8>
struct Out {
        static constexpr int MAXV = MV, MINV = 1;
        T *p;
        int ld;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                store<V>(p + (long long)row * ld + col, v);
        }
};

struct NamedTest {
        const char *name;
        void (*fn)();
};

/* All tests, or those whose name contains argv[1]. */
template <int N>
static int run_tests(const NamedTest (&tests)[N], int argc, char **argv)
{
        int bad = 0;
        setvbuf(stdout, 0, _IOLBF, 0);
        for (auto &t : tests) {
                if (argc > 1 && !strstr(t.name, argv[1]))
                        continue;
                failures = 0;
                test_name = t.name;
                t.fn();
                if (!failures)
                        printf("ok %s\n", t.name);
                bad |= failures != 0;
        }
        return bad;
}

#endif
