/* parallel.h: run independent pieces of work on a few threads. */
#ifndef TGC_PARALLEL_H
#define TGC_PARALLEL_H

/* Call fn(ctx, 0..n-1), each once, on at most min(n, max_threads, cores) threads,
 * the caller's among them.  Returns when all are done; needs no thread to succeed. */
void parallel_for(int n, int max_threads, void (*fn)(void *ctx, int i), void *ctx);
int host_cores(void);

#endif
