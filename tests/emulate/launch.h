/* launch.h: run a kernel from a test program, on a GPU (nvcc) or emulated. */
#ifndef TGC_TEST_LAUNCH_H
#define TGC_TEST_LAUNCH_H

#include <cstdlib>
#include <cstring>
#include "test.h"

/* Zeroed memory that host and kernel both see, kept to the end: tests are short. */
static void *kept[1000];
static int n_kept;

template <class T>
static T *shared_memory(size_t n)
{
        void *p = 0;
        size_t size = (n * sizeof(T) + 255) / 256 * 256;
#ifdef TGC_EMULATE
        p = aligned_alloc(256, size);
#else
        CHECK(cudaMallocManaged(&p, size) == cudaSuccess);
#endif
        CHECK(p && n_kept < 1000);
        kept[n_kept++] = p;
        memset(p, 0, size);
        return (T *)p;
}

/* NULL, or the message of the failure. */
template <class... P, class... A>
static const char *launch(const char *name, void (*kernel)(P...), unsigned grid, unsigned block,
                          unsigned smem, A *...a)
{
        static char err[800];
#ifdef TGC_EMULATE
        (void)kernel;
        void *args[] = { (void *)a... };
        return tgc_emulate_launch(name, grid, block, smem, args, sizeof...(A), err, sizeof err)
                       ? err
                       : 0;
#else
        kernel<<<grid, block, smem>>>((P)a...);
        cudaError_t e = cudaDeviceSynchronize();
        snprintf(err, sizeof err, "%s: %s", name, cudaGetErrorString(e));
        return e == cudaSuccess ? 0 : err;
#endif
}

#define LAUNCH(kernel, grid, block, smem, ...)                                                  \
        do {                                                                                    \
                const char *message_ = launch(#kernel, kernel, grid, block, smem, __VA_ARGS__); \
                CHECK_MSG(!message_, "%s", message_);                                           \
        } while (0)

/* A small generator, the same everywhere. */
static unsigned random_state = 1;
static unsigned random_word()
{
        return (random_state = random_state * 1664525u + 1013904223u) >> 8;
}
static float random_float() { return (float)(random_word() % 2001) / 1000.f - 1.f; }

#endif
