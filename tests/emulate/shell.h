/* shell.h: run a task from a test, on a GPU (nvcc) or in the emulator (g++ with
 * emulate.h in front).  A test states the task as a functor f(tile, smem);
 * memory is visible to both sides. */
#ifndef TGC_TEST_SHELL_H
#define TGC_TEST_SHELL_H

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include "ptx.cuh"

template <int THREADS, class F>
__global__ void __launch_bounds__(THREADS, 1) shell(const F *f)
{
        TGC_SMEM(smem);
        (*f)((int)blockIdx.x, smem);
}

#ifdef TGC_EMULATE

static void *shell_alloc(size_t n) { return aligned_alloc(256, (n + 255) / 256 * 256 + 256); }
static void shell_free(void *p) { free(p); }

template <int THREADS, class F>
static void shell_run(int tiles, int smem, const F &f)
{
        static emu::Entry<1> entry(__PRETTY_FUNCTION__, shell<THREADS, F>);
        void *arg = (void *)&f;
        char err[600];
        if (!tgc_emulate_launch(entry.name, (unsigned)tiles, (unsigned)THREADS, (unsigned)smem,
                                &arg, 1, err, 600))
                return;
        printf("not ok: %s\n", err);
        exit(1);
}

#else

static void shell_ok(cudaError_t e)
{
        if (e == cudaSuccess)
                return;
        printf("not ok: %s\n", cudaGetErrorString(e));
        exit(1);
}
static void *shell_alloc(size_t n)
{
        void *p;
        shell_ok(cudaMallocManaged(&p, n + 256));
        return p;
}
static void shell_free(void *p) { cudaFree(p); }

template <int THREADS, class F>
static void shell_run(int tiles, int smem, const F &f)
{
        F *g = (F *)shell_alloc(sizeof(F));
        memcpy((void *)g, (const void *)&f, sizeof f);
        shell_ok(cudaFuncSetAttribute(shell<THREADS, F>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
        shell<THREADS, F><<<tiles, THREADS, smem>>>(g);
        shell_ok(cudaGetLastError());
        shell_ok(cudaDeviceSynchronize());
        shell_free(g);
}

#endif

/* n elements of T, freed at the end of the scope.  guard bytes behind it must stay. */
template <class T>
struct Buf {
        T *p;
        size_t n;
        explicit Buf(size_t count) : p((T *)shell_alloc(count * sizeof(T) + 64)), n(count)
        {
                memset((void *)p, 0x5a, n * sizeof(T) + 64);
        }
        ~Buf()
        {
                for (int i = 0; i < 64; i++)
                        if (((unsigned char *)(p + n))[i] != 0x5a) {
                                printf("not ok: bytes behind a buffer were overwritten\n");
                                exit(1);
                        }
                shell_free(p);
        }
        Buf(const Buf &) = delete;
        T &operator[](size_t i) { return p[i]; }
        double get(size_t i) const { return (double)to_host(p[i]); }
        static float to_host(float x) { return x; }
        static float to_host(int x) { return (float)x; }
        static float to_host(bf16 x)
        {
                unsigned short s;
                memcpy(&s, &x, 2);
                unsigned u = (unsigned)s << 16;
                float f;
                memcpy(&f, &u, 4);
                return f;
        }
        void set(size_t i, float x)
        {
                if constexpr (sizeof(T) == 2) {
                        unsigned u;
                        memcpy(&u, &x, 4);
                        u = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
                        unsigned short s = (unsigned short)u;
                        memcpy((void *)&p[i], &s, 2);
                } else {
                        p[i] = (T)x;
                }
        }
        /* Reproducible values of about unit variance (sum of uniforms). */
        void fill(unsigned seed, float scale = 1.f, float shift = 0.f)
        {
                unsigned s = seed * 2654435761u + 12345u;
                for (size_t i = 0; i < n; i++) {
                        float x = 0.f;
                        for (int j = 0; j < 4; j++) {
                                s = s * 1664525u + 1013904223u;
                                x += (float)(s >> 8) / 16777216.f - 0.5f;
                        }
                        set(i, x * 1.7f * scale + shift);
                }
        }
};

#endif
