/* kv_bench.c: what the cache saves: milliseconds of one thread's CPU time per token at several
 * contexts, decoding with the cache and by a whole pass per token.  Weights are random.
 *
 *      make BUILD=build && gcc -std=c11 -D_GNU_SOURCE -O2 -Itests -I. -o build/kv_bench \
 *              tests/e2e/infer/kv_bench.c build/libtgc_all.a $(LIBS of the Makefile) &&
 *              build/kv_bench */
#include <time.h>
#include "run.h"

static double cpu_s(void)
{
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { N = 8 }; /* tokens timed, after one that warms up */

TEST (kv_bench) {
        static const int context[] = { 32, 64, 128, 192, 256 };
        int ids[256], got[N];
        Trial r;
        for (int i = 0; i < 256; i++)
                ids[i] = (i * 997 + 13) % 4096;
        run_open(&r,
                 (BuildOptions) {
                         .kind = MODEL_LUA, .model = "models/tinylm.lua", .opt = 3, .batch = 1 },
                 NULL);
        printf("| context | cache, ms/token | tok/s | whole pass, ms/token | tok/s |\n"
               "|---|---|---|---|---|\n");
        for (size_t i = 0; i < sizeof context / sizeof *context; i++) {
                int n = context[i];
                double t, with, without;
                run_prefill(&r, ids, 1, n - N - 1);
                run_greedy(&r, 1, got);
                t = cpu_s();
                run_greedy(&r, N, got);
                with = (cpu_s() - t) / N;
                free(run_score(&r, ids, n, NULL));
                t = cpu_s();
                free(run_score(&r, ids, n, NULL));
                without = cpu_s() - t;
                printf("| %d | %.3f | %.1f | %.3f | %.1f |\n", n, with * 1e3, 1 / with,
                       without * 1e3, 1 / without);
        }
        run_end(&r);
}

TEST_MAIN
