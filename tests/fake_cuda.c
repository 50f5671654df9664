/* fake_cuda.c: a CUDA driver for one imaginary GPU, so that dev_cuda.c is tested
 * where there is none.  Built by test_played_driver.c as libcuda.so.1, together with C
 * kernels that stand for what a cubin holds.
 *
 * Device addresses are host addresses plus a shift: whoever mixes the two crashes.  Pinned memory
 * alone is addressed by both sides alike.
 * Work is done at once; a graph is a list of launches; what a real driver refuses
 * during a capture is refused here.  fake_live counts what was not given back. */
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define SHIFT (1ull << 60)
typedef unsigned long long Ptr;
typedef void Kernel(const void *rt, void *const *arg);
/* map[i]: argument i, where bit i of maps says that it is 128 bytes by value.  fn NULL: a copy of
 * `bytes` from arg[1] to arg[0]. */
typedef struct Launch {
        Kernel *fn;
        size_t bytes;
        int n;
        void *arg[16];
        unsigned maps;
        char map[16][128];
} Launch;
typedef struct Graph {
        Launch l[64];
        int n;
} Graph;

int fake_live, fake_launches, fake_replays, fake_calls, fake_fail_at;
static int current, primary;
static size_t used; /* device memory */
size_t fake_room = 1ull << 34;
static Graph *capture;
/* The streams that capture follows: that which it began with, and who waits for an event of it. */
static void *followed[4], *marked[64];

static int is_in(void *const *set, int n, const void *x)
{
        while (n-- && set[n] != x)
                ;
        return n >= 0;
}

static void put_in(void **set, int n, void *x)
{
        for (int i = 0; i < n && !is_in(set, n, x); i++)
                if (!set[i])
                        set[i] = x;
}

extern int fake_n_args(const char *name);
extern unsigned fake_maps(const char *name);
static struct Named {
        Kernel *fn;
        int n;
        unsigned maps;
} named[32];
static int n_named;

static struct Pinned {
        void *mem;
        size_t n;
} pinned[64];

static void *host(Ptr p)
{
        for (int i = 0; i < 64; i++)
                if (p - (Ptr)pinned[i].mem < pinned[i].n)
                        return (void *)p;
        return (void *)(p - SHIFT);
}
static void *made(size_t n)
{
        fake_live++;
        return calloc(1, n + 1);
}
static int gone(void *p)
{
        fake_live--;
        free(p);
        return 0;
}
/* Refused without a context, inside of a capture, and when it is call fake_fail_at;
 * what gives back never fails in that way. */
#define GIVE_BACK                \
        if (!current || capture) \
        return 201
#define READY                             \
        GIVE_BACK;                        \
        if (++fake_calls == fake_fail_at) \
        return 2

/* What may be done during a capture as well. */
#define ALWAYS                            \
        if (!current)                     \
                return 201;               \
        if (++fake_calls == fake_fail_at) \
        return 2

int cuInit(unsigned f) { return f != 0; }
int cuDriverGetVersion(int *v)
{
        *v = 13000;
        return 0;
}
int cuGetErrorName(int r, const char **s)
{
        *s = r ? "CUDA_ERROR_FAKE" : "CUDA_SUCCESS";
        return 0;
}
int cuGetErrorString(int r, const char **s)
{
        *s = r ? "the fake driver refuses" : "no error";
        return 0;
}
/* NVRTC asks for tables of functions of its own; it can do without. */
int cuGetExportTable(const void **t, const void *id)
{
        (void)id;
        *t = 0;
        return 500;
}
int cuDeviceGetCount(int *n)
{
        *n = 1;
        return 0;
}
int cuDeviceGet(int *d, int i)
{
        *d = 7;
        return i != 0;
}
int cuDeviceGetName(char *s, int cap, int d)
{
        (void)cap;
        strcpy(s, "Fake GPU");
        return d != 7;
}
int cuDeviceGetAttribute(int *v, int a, int d)
{
        *v = a == 75 ? 9 : a == 76 ? 0 : a == 97 ? 232448 : 132;
        return d != 7;
}
int cuDevicePrimaryCtxRetain(void **c, int d)
{
        *c = &primary;
        fake_live++;
        return d != 7;
}
int cuDevicePrimaryCtxRelease_v2(int d)
{
        fake_live--;
        return d != 7;
}
int cuCtxSetCurrent(void *c)
{
        current = c == &primary;
        return 0;
}
int cuMemGetInfo_v2(size_t *a, size_t *t)
{
        READY;
        *t = fake_room;
        *a = *t > used ? *t - used : 0;
        return 0;
}
int cuMemAlloc_v2(Ptr *p, size_t n)
{
        READY;
        if (n > fake_room || used > fake_room - n)
                return 2;
        void *m = made(n + 4096);
        memset(m, 0xa5, n); /* not zero */
        *p = (Ptr)m + SHIFT;
        used += malloc_usable_size(m);
        return 0;
}
int cuMemFree_v2(Ptr p)
{
        GIVE_BACK;
        used -= malloc_usable_size(host(p));
        return gone(host(p));
}
int cuMemAllocHost_v2(void **p, size_t n)
{
        int i = 0;
        READY;
        while (pinned[i].mem)
                i++;
        *p = pinned[i].mem = memset(made(n), 0xa5, n);
        pinned[i].n = n;
        return 0;
}
int cuMemFreeHost(void *p)
{
        GIVE_BACK;
        for (int i = 0; i < 64; i++)
                if (pinned[i].mem == p)
                        pinned[i] = (struct Pinned) { 0 };
        return gone(p);
}
/* fake_register: 0 is an old driver that cannot; -1: kernels would have another address. */
int fake_register = 1, fake_registered;
int cuMemHostRegister_v2(void *p, size_t n, unsigned flags)
{
        int i = 0;
        READY;
        if (!fake_register || flags != 2)
                return 801;
        while (pinned[i].mem)
                i++;
        pinned[i] = (struct Pinned) { p, n };
        fake_live++;
        fake_registered++;
        return 0;
}
int cuMemHostUnregister(void *p)
{
        GIVE_BACK;
        for (int i = 0; i < 64; i++)
                if (pinned[i].mem == p)
                        pinned[i] = (struct Pinned) { 0 };
        fake_live--;
        fake_registered--;
        return 0;
}
int cuMemHostGetDevicePointer_v2(Ptr *to, void *p, unsigned flags)
{
        READY;
        *to = (Ptr)p + (fake_register < 0);
        return flags != 0;
}
/* Into the graph where the stream is captured. */
static int copy(void *to, const void *from, size_t n, void *s)
{
        if (capture && is_in(followed, 4, s))
                capture->l[capture->n++] = (Launch) { .bytes = n,
                                                      .arg = { to, (void *)(size_t)from } };
        else if (capture)
                return 900;
        else
                memcpy(to, from, n);
        return !s;
}
int cuMemcpyHtoDAsync_v2(Ptr to, const void *from, size_t n, void *s)
{
        ALWAYS;
        return copy(host(to), from, n, s);
}
int cuMemcpyDtoHAsync_v2(void *to, Ptr from, size_t n, void *s)
{
        ALWAYS;
        return copy(to, host(from), n, s);
}
int cuMemcpyDtoDAsync_v2(Ptr to, Ptr from, size_t n, void *s)
{
        READY;
        memmove(host(to), host(from), n);
        return !s;
}
int cuMemsetD8Async(Ptr p, unsigned char x, size_t n, void *s)
{
        READY;
        memset(host(p), x, n);
        return !s;
}
int cuStreamCreate(void **s, unsigned f)
{
        READY;
        *s = made(1);
        return f != 1;
}
int cuStreamSynchronize(void *s)
{
        READY;
        return !s;
}
int cuStreamDestroy_v2(void *s)
{
        GIVE_BACK;
        return gone(s);
}
int cuStreamBeginCapture_v2(void *s, int mode)
{
        READY;
        capture = made(sizeof *capture);
        memset(followed, 0, sizeof followed), memset(marked, 0, sizeof marked);
        put_in(followed, 4, s);
        return !s || mode != 1;
}
int cuStreamEndCapture(void *s, void **g)
{
        *g = capture;
        capture = 0;
        return !s || !*g;
}
int cuGraphInstantiateWithFlags(void **x, void *g, unsigned long long f)
{
        READY;
        *x = made(sizeof(Graph));
        memcpy(*x, g, sizeof(Graph));
        return f != 0;
}
static void run(Launch *l)
{
        if (!l->fn) {
                memcpy(l->arg[0], l->arg[1], l->bytes);
                return;
        }
        for (int i = 0; i < l->n; i++)
                if (l->maps >> i & 1)
                        l->arg[i] = l->map[i];
        l->fn(l->arg[0], l->arg);
}

int cuGraphLaunch(void *x, void *s)
{
        READY;
        Graph *g = x;
        for (int i = 0; i < g->n; i++)
                run(&g->l[i]);
        fake_replays++;
        return !s;
}
int cuGraphExecDestroy(void *x)
{
        GIVE_BACK;
        return gone(x);
}
int cuGraphDestroy(void *g)
{
        GIVE_BACK;
        return gone(g);
}
int cuEventCreate(void **v, unsigned f)
{
        READY;
        (void)f;
        *v = made(1);
        return 0;
}
int cuEventRecord(void *v, void *s)
{
        ALWAYS;
        if (capture && !is_in(followed, 4, s))
                return 900;
        if (capture)
                put_in(marked, 64, v);
        return !v || !s;
}
int cuStreamWaitEvent(void *s, void *v, unsigned f)
{
        ALWAYS;
        if (capture && !is_in(marked, 64, v))
                return 900;
        if (capture)
                put_in(followed, 4, s);
        return !s || !v || f;
}
int cuEventSynchronize(void *v)
{
        READY;
        return !v;
}
int cuEventElapsedTime(float *ms, void *a, void *b)
{
        READY;
        *ms = 0.5f;
        return !a || !b;
}
int cuEventDestroy_v2(void *v)
{
        GIVE_BACK;
        return gone(v);
}
int cuModuleLoadData(void **m, const void *image)
{
        READY;
        *m = made(1);
        return !image;
}
int cuModuleUnload(void *m)
{
        GIVE_BACK;
        return gone(m);
}
int cuFuncSetAttribute(void *f, int a, int v)
{
        READY;
        (void)v;
        return !f || a != 8;
}

int cuModuleGetFunction(void **f, void *m, const char *name)
{
        READY;
        void *sym = dlsym(RTLD_DEFAULT, name);
        int i = 0;
        while (i < n_named && named[i].fn != (Kernel *)sym)
                i++;
        if (!sym || !m || i == 32)
                return 500;
        named[i].fn = (Kernel *)sym;
        named[i].n = fake_n_args(name);
        named[i].maps = fake_maps(name);
        *f = &named[i];
        n_named += i == n_named;
        return 0;
}

int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned smem, void *s, void **params, void **extra)
{
        struct Named *k = f;
        Launch l = { .fn = k->fn, .n = k->n, .maps = k->maps };
        if (++fake_calls == fake_fail_at)
                return 2;
        if (!current || !s || extra || !gx || gy != 1 || gz != 1 || !bx || by != 1 || bz != 1 ||
            smem > 232448)
                return 1;
        for (int i = 0; i < k->n; i++)
                if (k->maps >> i & 1)
                        memcpy(l.map[i], params[i], sizeof l.map[i]);
                else
                        l.arg[i] = host(*(Ptr *)params[i]);
        fake_launches++;
        if (capture)
                capture->l[capture->n++] = l;
        else
                run(&l);
        return 0;
}

/* A map says what it is of: address, dimensions, stride. */
int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *p, const void *dims,
                           const void *strides, const unsigned *box, const unsigned *step,
                           int interleave, int swizzle, int l2, int fill)
{
        READY;
        (void)type, (void)rank, (void)box, (void)step, (void)interleave, (void)swizzle, (void)l2,
                (void)fill;
        if (!map || !p || (Ptr)map % 64)
                return 1;
        memset(map, 0x77, 128);
        memcpy(map, &p, 8);
        memcpy((char *)map + 8, dims, 16);
        memcpy((char *)map + 24, strides, 8);
        return 0;
}

/* Of the ways to launch only the early start is known, which here is none. */
int cuLaunchKernelEx(const void *config, void *f, void **params, void **extra)
{
        const struct {
                unsigned x[7];
                void *s;
                const struct {
                        int id, pad, allowed;
                } * attr;
                unsigned n;
        } *c = config;
        if (c->n != 1 || c->attr->id != 6 || c->attr->allowed != 1)
                return 1;
        return cuLaunchKernel(f, c->x[0], c->x[1], c->x[2], c->x[3], c->x[4], c->x[5], c->x[6],
                              c->s, params, extra);
}
