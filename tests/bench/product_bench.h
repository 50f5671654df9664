/* product_bench.h: what the benches of Hopper's products share: tests in processes of their own,
 * times, `test` and `speed`. */
#ifndef BENCH_PRODUCT_H
#define BENCH_PRODUCT_H

#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "hopper.h"
#include "tgc.cuh"

template <class T>
struct IsHalf {
        static constexpr bool is = false;
};
template <>
struct IsHalf<f16> {
        static constexpr bool is = true;
};
/* Of its tensor maps. */
template <class T>
constexpr int map_type()
{
        return sizeof(T) == 4 ? MAP_TF32 : IsHalf<T>::is ? MAP_F16 : MAP_BF16;
}

/* Normal numbers. */
template <class T>
__global__ void fill_normal(T *p, long n, unsigned seed)
{
        for (long i = blockIdx.x * 256L + threadIdx.x; i < n; i += gridDim.x * 256L) {
                uint4 r = philox(make_uint4((unsigned)i, (unsigned)(i >> 32), 0, 0), seed, 0);
                float u = ((r.x >> 8) + 1) * (1.f / 16777217.f),
                      v = (r.y >> 8) * (6.2831853f / 16777216.f);
                from_float(p + i, sqrtf(-2.f * logf(u)) * cosf(v));
        }
}

static int sms; /* multiprocessors */

static cudaDeviceProp find_gpu()
{
        cudaDeviceProp prop;
        CUDA(cudaGetDeviceProperties(&prop, 0));
        sms = prop.multiProcessorCount;
        return prop;
}

/* run() says whether it is right, in a process of its own and for two minutes at most: a kernel
 * that hangs or traps takes no other test with it.  0 when right; without a GPU this process
 * ends. */
template <class Run>
static int apart(const char *name, const Run &run)
{
        fflush(stdout);
        const pid_t pid = fork();
        int status = 1;
        if (pid == 0) {
                alarm(120);
                find_gpu();
                const bool ok = run();
                fflush(stdout);
                _exit(!ok);
        }
        if (pid < 0 || waitpid(pid, &status, 0) < 0)
                return 1;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 4)
                exit(4);
        if (WIFSIGNALED(status))
                printf("FAIL  %s: signal %d\n", name, WTERMSIG(status));
        return status;
}

static int by_value(const void *a, const void *b)
{
        float x = *(const float *)a, y = *(const float *)b;
        return x < y ? -1 : x > y;
}

/* Milliseconds of launch(i), i < LAUNCHES: the median of RUNS means, after one more. */
template <int RUNS, int LAUNCHES, class Launch>
static double time_ms(const Launch &launch)
{
        cudaEvent_t from, to;
        float t[RUNS];
        CUDA(cudaEventCreate(&from));
        CUDA(cudaEventCreate(&to));
        for (int r = -1; r < RUNS; r++) {
                CUDA(cudaEventRecord(from));
                for (int i = 0; i < LAUNCHES; i++)
                        launch(i);
                CUDA(cudaEventRecord(to));
                CUDA(cudaEventSynchronize(to));
                if (r >= 0)
                        CUDA(cudaEventElapsedTime(t + r, from, to));
        }
        cudaEventDestroy(from);
        cudaEventDestroy(to);
        qsort(t, RUNS, sizeof *t, by_value);
        return t[RUNS / 2] / LAUNCHES;
}

/* What a bench does for `speed`, and its main.  part: only what has it in its name, or NULL.  Both
 * functions give how much was wrong. */
static int speed_main(const char *part, int (*speed_all)(const char *part, unsigned seed))
{
        const unsigned seed = (unsigned)time(0);
        printf("%s, ", find_gpu().name);
        printf("%d multiprocessors, seed %u\n", sms, seed);
        return speed_all(part, seed) != 0;
}

static int bench_main(int argc, char **argv, const char *name, int (*test_all)(const char *part),
                      int (*speed_all)(const char *part, unsigned seed))
{
        const bool test = argc < 2 || !strcmp(argv[1], "test"),
                   speed = argc < 2 || !strcmp(argv[1], "speed");
        const char *part = argc > 2 ? argv[2] : 0;
        if (!test && !speed) {
                fprintf(stderr, "usage: %s [test | speed [part of a name]]\n", name);
                return 2;
        }
        if (test &&
            test_all(part)) /* before this process has a context: children cannot share it */
                return 1;
        return speed ? speed_main(part, speed_all) : 0;
}

#endif
