/* test.h: a test program is a list of TEST blocks and TEST_MAIN.
 *
 * Each test prints one line, `ok NAME`, `not ok NAME` or `skip NAME: reason`;
 * tests/run.sh adds them up over all programs.  A failing CHECK prints where and
 * goes on with the next test. */
#ifndef TGC_TEST_H
#define TGC_TEST_H

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct Test { const char *name; void (*fn)(void); struct Test *next; } Test;
static Test *test_list, **test_end = &test_list;
static jmp_buf test_out;
static const char *test_skip_reason = "";

#define TEST(id) \
        static void test_##id(void); \
        static Test test_node_##id = { #id, test_##id, 0 }; \
        __attribute__((constructor)) static void test_add_##id(void) \
        { *test_end = &test_node_##id; test_end = &test_node_##id.next; } \
        static void test_##id(void)

#define CHECK(cond) CHECK_MSG(cond, "%s", #cond)

/* The message gives both sides. */
#define CHECK_MSG(cond, ...) do { if (!(cond)) { \
        printf("  %s:%d: ", __FILE__, __LINE__); printf(__VA_ARGS__); printf("\n"); \
        longjmp(test_out, 1); } } while (0)

#define SKIP(reason) do { test_skip_reason = (reason); longjmp(test_out, 2); } while (0)

/* Processor time of this process and of those that it started and waited for, in seconds. */
static __attribute__((noinline, unused)) double test_cpu(void)
{
        static const int who[] = { RUSAGE_SELF, RUSAGE_CHILDREN };
        double s = 0;
        for (int i = 0; i < 2; i++) {
                struct rusage u;
                if (!getrusage(who[i], &u))
                        s += (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
        }
        return s;
}

/* Run all tests, or those whose name contains argv[1].  TIMES=1 shows the processor time of each. */
#define TEST_MAIN int main(int argc, char **argv) \
{ \
        volatile int bad = 0; \
        Test *volatile t; \
        setvbuf(stdout, 0, _IOLBF, 0); \
        for (t = test_list; t; t = t->next) { \
                if (argc > 1 && !strstr(t->name, argv[1])) continue; \
                volatile double t0 = test_cpu(); \
                switch (setjmp(test_out)) { \
                case 0: t->fn(); printf("ok %s\n", t->name); break; \
                case 1: printf("not ok %s\n", t->name); bad = 1; break; \
                default: printf("skip %s: %s\n", t->name, test_skip_reason); \
                } \
                if (getenv("TIMES")) printf("# %s %.2f s\n", t->name, test_cpu() - t0); \
        } \
        return bad; \
}

#endif
