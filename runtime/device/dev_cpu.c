/* dev_cpu.c: the CPU device: runs the emitted C, compiled into one shared object.  The object comes
 * from the plan (object.cpu, if it was made for this processor), else from the disk cache, else
 * from source.cpu by the system's compiler.  Functions that kernels call are compiled in every unit
 * that calls them.  So units are joined, into one for each compiler that runs at once. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache.h"
#include "dev_impl.h"
#include "host_cc.h"
#include "../util/parallel.h"
#include "../rt.h"

typedef void KernelFn(const Rt *rt, void *const *arg);
typedef void PartFn(void); /* TeamPart of cpu_team.h: only the object itself calls it */
typedef void ReplayFn(int n, PartFn *const *part, void *const *const *arg);

typedef struct CpuDevice {
        HostDevice host;
        SharedObject so;
        KernelFn **fn;            /* by kernel */
        void (*set_threads)(int); /* of the object's own OpenMP; NULL: leave it alone */
        PartFn **part;            /* by kernel; with `replay`, or NULL where the object has none */
        ReplayFn *replay;
        DevGraph *recording; /* or NULL */
} CpuDevice;

/* Launches to be replayed: part[i] with the addresses at arg[i]. */
struct DevGraph {
        int n, cap;
        PartFn **part;
        void ***arg;
};

enum { MAX_FLAGS = 40 };

static const char *const base[] = {
        "-O2",      "-ftree-vectorize", "-fvect-cost-model=dynamic", "-march=native", "-std=gnu11",
        "-fopenmp", "-fno-math-errno",  "-fno-trapping-math",        "-fPIC",         "-w"
};

/* The compiler's; those of TGC_CFLAGS come last, and are cut in `own`. */
typedef struct Flags {
        const char *flag[MAX_FLAGS];
        char own[1024];
} Flags;

static void make_flags(Flags *f)
{
        const char *env = getenv("TGC_CFLAGS");
        char *rest;
        int n = 0;
        for (size_t i = 0; i < sizeof base / sizeof *base; i++)
                f->flag[n++] = base[i];
        snprintf(f->own, sizeof f->own, "%s", env ? env : "");
        for (char *s = strtok_r(f->own, " ", &rest); s && n < MAX_FLAGS - 1;
             s = strtok_r(0, " ", &rest))
                f->flag[n++] = s;
        f->flag[n] = 0;
}

static void object_key(const HostCc *cc, const char *const *flags, const Pack *units,
                       const Pack *headers, char hex[33])
{
        CacheKey k;
        char cpu[33];
        const Pack *pack[] = { units, headers };

        host_cpu_key(cpu);
        cache_key_begin(&k);
        cache_key_text(&k, "cpu 1");
        cache_key_text(&k, cc->command);
        cache_key_text(&k, cc->version);
        cache_key_text(&k, cpu);
        for (int i = 0; flags[i]; i++)
                cache_key_text(&k, flags[i]);
        for (int i = 0; i < 2; i++)
                for (int j = 0; j < pack[i]->n; j++) {
                        cache_key_text(&k, pack[i]->file[j].name);
                        cache_key_add(&k, pack[i]->file[j].data, pack[i]->file[j].size);
                }
        cache_key_end(&k, hex);
}

/* The object for a plan's C source; *units, *cached: how it was come by; key: its in the cache. */
static int build(const Plan *plan, const DevOptions *o, int n_kernels, void **so, size_t *size,
                 int *n_units, int *cached, char key[33], Err *e)
{
        HostCc cc;
        Flags f;
        Pack units, headers;
        int code = plan_source(plan, "cpu", &units, &headers, e);

        if (code)
                return code;
        make_flags(&f);
        *n_units = units.n;
        *cached = 0;
        if (!(code = host_cc_find(&cc, 0, e))) {
                object_key(&cc, f.flag, &units, &headers, key);
                *cached = !o->no_cache && cache_get(key, so, size);
        }
        if (!code && !*cached) {
                const int at_once = host_compilers();
                pack_join(&units, (units.n + at_once - 1) / at_once);
                *n_units = units.n;
                HostBuild b = { .flag = f.flag,
                                .units = &units,
                                .headers = &headers,
                                .suffix = ".c",
                                .what = "source.cpu",
                                .stop = o->stop };
                if (o->compiling)
                        o->compiling(o->compiling_to, n_kernels, "kernels", "cpu");
                code = host_cc_build(&cc, &b, 0, units.n, so, size, e);
                if (!code && !o->no_cache)
                        cache_put(key, *so, *size);
        }
        pack_free(&units);
        pack_free(&headers);
        return code;
}

int cpu_compile_plan(const Plan *plan, int no_cache, Stop *stop, void **pack, size_t *size, Err *e)
{
        PackFile f = { 0 };
        Flags flags;
        void *so = 0;
        char key[33];
        int n, cached, code = no_cache ? TGC_OK : cache_check(e);
        const DevOptions o = { .no_cache = no_cache, .stop = stop };
        if (!code && !(code = build(plan, &o, 0, &so, &f.size, &n, &cached, key, e))) {
                char hex[33];
                host_cpu_key(hex);
                memcpy(f.name, hex, sizeof hex);
                f.data = so;
                make_flags(&flags);
                code = code_pack(plan, "cpu", flags.flag, &f, 1, pack, size, e);
        }
        free(so);
        return code;
}

static int find_kernels(CpuDevice *d, Err *e)
{
        const Program *p = d->host.d.prog;
        d->fn = calloc((size_t)p->n_kernels + 1, sizeof *d->fn);
        if (!d->fn)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d kernels", p->n_kernels);
        for (int i = 0; i < p->n_kernels; i++) {
                void *sym = so_symbol(&d->so, p->kernel[i].name);
                if (!sym)
                        return err_set(e, TGC_BAD_FILE, "kernel %.60s is not in the compiled code",
                                       p->kernel[i].name);
                memcpy(&d->fn[i], &sym, sizeof sym);
        }
        return TGC_OK;
}

/* What replaying needs, if the object has it: those of older plans do not. */
static void find_parts(CpuDevice *d)
{
        const Program *p = d->host.d.prog;
        void *sym = dlsym(d->so.handle, "tgc_replay");
        char name[256];
        d->part = sym ? calloc((size_t)p->n_kernels + 1, sizeof *d->part) : NULL;
        memcpy(&d->replay, &sym, sizeof sym);
        for (int i = 0; d->part && i < p->n_kernels; i++) {
                snprintf(name, sizeof name, "%.200s_part", p->kernel[i].name);
                if (!(sym = dlsym(d->so.handle, name))) {
                        free(d->part);
                        d->part = NULL;
                        break;
                }
                memcpy(&d->part[i], &sym, sizeof sym);
        }
}

/* The plan's own object, if it was made for this processor and has the kernels. */
static int load_from_plan(CpuDevice *d, const Plan *plan)
{
        const Section *s = plan_find(plan, "object.cpu");
        char key[33];
        Flags flags;
        Pack k;
        Err why;
        int ok = 0;

        if (!s)
                return 0;
        make_flags(&flags);
        if (code_unpack(&k, plan, s, "cpu", flags.flag, &why)) {
                snprintf(d->host.d.warning, sizeof d->host.d.warning, "%.100s: it is built again",
                         why.msg);
                return 0;
        }
        host_cpu_key(key);
        for (int i = 0; i < k.n && !ok; i++)
                ok = !strcmp(k.file[i].name, key) &&
                     !so_open(&d->so, k.file[i].data, k.file[i].size, 0);
        pack_free(&k);
        if (ok && find_kernels(d, 0)) {
                so_close(&d->so);
                free(d->fn);
                d->fn = 0;
                ok = 0;
        }
        return ok;
}

/* From the cache or the source.  What the cache has and cannot be loaded is built again. */
static int load_built(CpuDevice *d, const Plan *plan, int *n, int *cached, Err *e)
{
        const DevOptions *o = &d->host.d.opt;
        for (;;) {
                void *so = 0;
                size_t size;
                char key[33];
                int code = build(plan, o, d->host.d.prog->n_kernels, &so, &size, n, cached, key, e),
                    built = !code;
                if (!code && !(code = so_open(&d->so, so, size, e)))
                        code = find_kernels(d, e);
                free(so);
                if (!code || !built || !*cached)
                        return code;
                so_close(&d->so);
                free(d->fn);
                d->fn = 0;
                cache_remove(key);
        }
}

static int cpu_load(Device *dev, const Plan *plan, const char *need, Err *e)
{
        (void)need;
        CpuDevice *d = (CpuDevice *)dev;
        double start = clock_ms();
        int n = 0, cached = 0, code = TGC_OK;

        if (!dev->opt.from_source && load_from_plan(d, plan))
                snprintf(dev->note, sizeof dev->note, "compiled code from the plan, %.3f s",
                         (clock_ms() - start) / 1e3);
        else {
                code = load_built(d, plan, &n, &cached, e);
                if (code == TGC_NO_DEVICE && e && *dev->warning) {
                        char why[sizeof e->msg];
                        memcpy(why, e->msg, sizeof why);
                        err_set(e, code, "%.700s; %s", why, dev->warning);
                }
                snprintf(dev->note, sizeof dev->note, "%d unit%s %s in %.3f s", n,
                         n == 1 ? "" : "s", cached ? "from the cache" : "compiled",
                         (clock_ms() - start) / 1e3);
        }
        if (code)
                return code;
        so_pin_openmp();
        void *sym = dev->opt.threads ? dlsym(d->so.handle, "omp_set_num_threads") : 0;
        memcpy(&d->set_threads, &sym, sizeof sym);
        find_parts(d);
        dev->no_graphs = !d->part;
        return TGC_OK;
}

/* ---- graphs: a program's launches by one set of threads (tgc_replay) ---- */

static void cpu_graph_free(Device *dev, DevGraph *g)
{
        (void)dev;
        for (int i = 0; i < g->n; i++)
                free(g->arg[i]);
        free(g->part);
        free(g->arg);
        free(g);
}

static int cpu_capture_begin(Device *dev, Err *e)
{
        CpuDevice *d = (CpuDevice *)dev;
        d->recording = calloc(1, sizeof *d->recording);
        return d->recording ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for a graph");
}

static int cpu_capture_end(Device *dev, DevGraph **g, Err *e)
{
        CpuDevice *d = (CpuDevice *)dev;
        (void)e;
        *g = d->recording;
        d->recording = NULL;
        return TGC_OK;
}

static int record(CpuDevice *d, DevGraph *g, int k, void *const *arg, Err *e)
{
        const size_t n = (size_t)d->host.d.prog->kernel[k].n_args * sizeof *arg;
        if (g->n == g->cap) {
                const int cap = g->cap ? 2 * g->cap : 64;
                void *part = realloc(g->part, (size_t)cap * sizeof *g->part);
                g->part = part ? part : g->part;
                void *to = part ? realloc(g->arg, (size_t)cap * sizeof *g->arg) : NULL;
                g->arg = to ? to : g->arg;
                g->cap = to ? cap : g->cap;
        }
        if (g->n == g->cap || !(g->arg[g->n] = malloc(n + 1)))
                return err_set(e, TGC_NO_MEMORY, "no memory for a graph of %d launches", g->n + 1);
        memcpy(g->arg[g->n], arg, n);
        g->part[g->n++] = d->part[k];
        return TGC_OK;
}

static void use_threads(const CpuDevice *d)
{
        if (d->set_threads) /* OpenMP's setting belongs to the calling thread */
                d->set_threads(d->host.d.opt.threads);
}

static int cpu_replay(Device *dev, DevGraph *g, Err *e)
{
        const CpuDevice *d = (const CpuDevice *)dev;
        (void)e;
        use_threads(d);
        d->replay(g->n, g->part, (void *const *const *)g->arg);
        return TGC_OK;
}

static int cpu_launch(Device *dev, int k, unsigned grid, void *const *arg, Err *e)
{
        CpuDevice *d = (CpuDevice *)dev;
        (void)grid;
        if (d->recording)
                return record(d, d->recording, k, arg, e);
        use_threads(d);
        d->fn[k](arg[0], arg);
        return TGC_OK;
}

static void cpu_close(Device *dev)
{
        CpuDevice *d = (CpuDevice *)dev;
        so_close(&d->so);
        free(d->fn);
        free(d->part);
        free(d);
}

static const DevOps cpu_ops = { HOST_OPS,
                                .close = cpu_close,
                                .load = cpu_load,
                                .launch = cpu_launch,
                                .capture_begin = cpu_capture_begin,
                                .capture_end = cpu_capture_end,
                                .replay = cpu_replay,
                                .graph_free = cpu_graph_free };

static void cpu_name(char *out, size_t cap)
{
        char line[256], model[160] = "";
        FILE *f = fopen("/proc/cpuinfo", "re");
        while (f && !*model && fgets(line, sizeof line, f))
                sscanf(line, "model name : %159[^\n]", model);
        if (f)
                fclose(f);
        snprintf(out, cap, "%s, %d core%s", *model ? model : "CPU", host_cores(),
                 host_cores() == 1 ? "" : "s");
}

int dev_open_cpu(Device **out, const DevOptions *o, Err *e)
{
        CpuDevice *d = calloc(1, sizeof *d);
        if (!d)
                return err_set(e, TGC_NO_MEMORY, "no memory for a device");
        d->host.d.ops = &cpu_ops;
        d->host.d.kind = DEV_CPU;
        d->host.d.opt = *o;
        d->so.fd = -1;
        cpu_name(d->host.d.name, sizeof d->host.d.name);
        *out = &d->host.d;
        return TGC_OK;
}
