/* test.h: a test program is a list of TEST blocks and TEST_MAIN.
 *
 * Each test prints one line, `ok NAME`, `not ok NAME` or `skip NAME: reason`;
 * tests/run.sh adds them up over all programs.  A failing CHECK prints where and
 * goes on with the next test.
 *
 * Reference data lies in tests/data, which is part of the project, and more of it may lie at
 * ../shared/data, or where TGC_TEST_DATA says.  A TEST_DATA block runs on each of the two that is
 * there, a TEST_SHARED block on the second alone.  TGC_TEST_SHARED=none leaves the second out;
 * =only runs nothing else. */
#ifndef TGC_TEST_H
#define TGC_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "worse.h"

enum { ON_NO_DATA, ON_OWN = 1, ON_SHARED = 2 };

typedef struct Test {
        const char *name;
        void (*fn)(void);
        int on;
        struct Test *next;
} Test;
static Test *test_list, **test_end = &test_list;
static jmp_buf test_out;
static const char *test_skip_reason = "";

#define TEST(id) TEST_ON (id, ON_NO_DATA)
#define TEST_DATA(id) TEST_ON (id, ON_OWN | ON_SHARED)
#define TEST_SHARED(id) TEST_ON (id, ON_SHARED)

#define TEST_ON(id, where)                                           \
        static void test_##id(void);                                 \
        static Test test_node_##id = { #id, test_##id, where, 0 };   \
        __attribute__((constructor)) static void test_add_##id(void) \
        {                                                            \
                *test_end = &test_node_##id;                         \
                test_end = &test_node_##id.next;                     \
        }                                                            \
        static void test_##id(void)

#define CHECK(cond) CHECK_MSG(cond, "%s", #cond)

/* The message gives both sides. */
#define CHECK_MSG(cond, ...)                                     \
        do {                                                     \
                if (!(cond)) {                                   \
                        printf("  %s:%d: ", __FILE__, __LINE__); \
                        printf(__VA_ARGS__);                     \
                        printf("\n");                            \
                        longjmp(test_out, 1);                    \
                }                                                \
        } while (0)

#define SKIP(reason)                         \
        do {                                 \
                test_skip_reason = (reason); \
                longjmp(test_out, 2);        \
        } while (0)

/* ---- reference data ---- */

static int data_on; /* of the test that runs */

static inline bool data_is_own(void) { return data_on != ON_SHARED; }

/* Where the data of the test lies, with a / at the end. */
static inline const char *data_root(void)
{
        const char *other = getenv("TGC_TEST_DATA");
        return data_is_own() ? "tests/data/" : other && *other ? other : "../shared/data/";
}

/* A file of it. */
static __attribute__((format(printf, 1, 2), unused)) const char *data_at(const char *fmt, ...)
{
        static char path[16][512];
        static int k;
        va_list ap;
        k = (k + 1) % 16;
        int n = snprintf(path[k], sizeof path[k], "%s", data_root());
        va_start(ap, fmt);
        vsnprintf(path[k] + n, sizeof path[k] - (size_t)n, fmt, ap);
        va_end(ap);
        return path[k];
}

/* The project has all that its tests ask for; of the rest some may be absent. */
static inline void data_need(const char *path)
{
        if (access(path, R_OK)) {
                CHECK_MSG(!data_is_own(), "%s is absent", path);
                SKIP("not in this data");
        }
}

/* Whether a test runs on these data: 1, or 2 where its name says so. */
static inline int test_runs(const Test *t, int on)
{
        const char *mode = getenv("TGC_TEST_SHARED");
        const int none = mode && !strcmp(mode, "none"), only = mode && !strcmp(mode, "only");
        data_on = on;
        if (on == ON_SHARED)
                return t->on & ON_SHARED && !none && !access(data_root(), R_OK) ? 2 : 0;
        return !only && (on == ON_OWN ? t->on & ON_OWN : t->on == ON_NO_DATA);
}

/* Processor time of this process and of those that it started and waited for, in seconds. */
static __attribute__((noinline, unused)) double test_cpu(void)
{
        static const int who[] = { RUSAGE_SELF, RUSAGE_CHILDREN };
        double s = 0;
        for (int i = 0; i < 2; i++) {
                struct rusage u;
                if (!getrusage(who[i], &u))
                        s += (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                             1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
        }
        return s;
}

static __attribute__((noinline, unused)) int test_run(const Test *t, int on)
{
        const int runs = test_runs(t, on);
        const char *volatile where = runs == 2 ? " (shared)" : "";
        const double t0 = test_cpu();
        volatile int code = 0;
        if (!runs)
                return 0;
        switch (setjmp(test_out)) {
        case 0:
                t->fn();
                printf("ok %s%s\n", t->name, where);
                break;
        case 1:
                printf("not ok %s%s\n", t->name, where);
                code = 1;
                break;
        default: printf("skip %s%s: %s\n", t->name, where, test_skip_reason);
        }
        if (getenv("TIMES"))
                printf("# %s%s %.2f s\n", t->name, where, test_cpu() - t0);
        return code;
}

/* Run all tests, or those whose name contains argv[1].  TIMES=1 shows the processor time of
 * each. */
#define TEST_MAIN                                                         \
        int main(int argc, char **argv)                                   \
        {                                                                 \
                int bad = 0;                                              \
                setvbuf(stdout, 0, _IOLBF, 0);                            \
                for (const Test *t = test_list; t; t = t->next)           \
                        for (int on = ON_NO_DATA; on <= ON_SHARED; on++)  \
                                if (argc < 2 || strstr(t->name, argv[1])) \
                                        bad |= test_run(t, on);           \
                return bad;                                               \
        }

#endif
