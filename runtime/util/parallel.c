/* parallel.c: runs pieces of work on a few threads; a thread that is done takes the next piece
 * (parallel.h). */
#include "parallel.h"
#include "c_locale.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

typedef struct Work {
        atomic_int next;
        int n;
        void (*fn)(void *ctx, int i);
        void *ctx;
} Work;

static void *worker(void *arg)
{
        Work *w = arg;
        locale_t was = c_locale_begin();
        int i;
        while ((i = atomic_fetch_add(&w->next, 1)) < w->n)
                w->fn(w->ctx, i);
        c_locale_end(was);
        return 0;
}

int host_cores(void)
{
        cpu_set_t set;
        int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
        return n < 1 ? 1 : n;
}

void parallel_for(int n, int max_threads, void (*fn)(void *ctx, int i), void *ctx)
{
        enum { MOST = 64 };
        pthread_t thread[MOST];
        Work w = { 0, n, fn, ctx };
        int want = host_cores(), started = 0;

        want = want < n ? want : n;
        want = want < max_threads ? want : max_threads;
        want = want < MOST ? want : MOST;
        while (started < want - 1 && !pthread_create(&thread[started], 0, worker, &w))
                started++;
        worker(&w);
        for (int i = 0; i < started; i++)
                pthread_join(thread[i], 0);
}
