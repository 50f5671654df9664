/* dev_emulate.c: the emulated device: compiles the emitted CUDA with the host's C++ compiler over
 * emulate.h, which plays a GPU's threads.  Each group of units is a shared object with its own
 * tgc_emulate_launch.  Headers and shared functions are compiled in each.  So there are no more
 * groups than compilers at once, and no small groups.  The emulator itself, emulate_core.cpp, is
 * compiled once and linked with each.
 *
 * TGC_EMULATE_ARCH=sm_90a plays Hopper's form of each kernel, on as many multiprocessors as
 * arch.def says. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache.h"
#include "dev_impl.h"
#include "host_cc.h"
#include "../util/parallel.h"

typedef int LaunchFn(const char *kernel, unsigned grid, unsigned block, unsigned smem, void **args,
                     int n_args, char *err, int err_cap);

typedef void ClustersFn(unsigned cluster, unsigned together);

typedef void KeepFn(int keep);

typedef struct Unit {
        SharedObject so;
        LaunchFn *launch;
        KeepFn *keep; /* NULL: the plan's emulate.h has none */
        int kept;     /* stacks that it keeps, at most */
        ClustersFn *clusters;
        Err err;
        int code, cached;
} Unit;

typedef struct EmulateDevice {
        HostDevice host;
        Unit *unit;
        int n_units;
        int kept;                 /* stacks of all units */
        int *unit_of;             /* by kernel */
        void (*set_threads)(int); /* as in dev_cpu.c */
} EmulateDevice;

enum { MAX_FLAGS = 40 };

/* TGC_CXXFLAGS adds flags, for sanitizers.  last: one more, or NULL */
static void make_flags(const char **flag, char *own, size_t cap, int arch, const char *last)
{
        static const char *const base[] = {
                "-DTGC_EMULATE", "-std=c++17", "-O2",        "-fopenmp", "-fno-strict-aliasing",
                "-fPIC",         "-w",         "-Wno-psabi", "-include", "emulate.h"
        };
        const char *env = getenv("TGC_CXXFLAGS");
        char *rest;
        int n = 0;
        for (size_t i = 0; i < sizeof base / sizeof *base; i++)
                flag[n++] = base[i];
        const char *macro = program_archs[arch].macro;
        if (macro)
                snprintf(own, cap, "-D%s=1 %s", macro, env ? env : "");
        else
                snprintf(own, cap, "%s", env ? env : "");
        for (char *s = strtok_r(own, " ", &rest); s && n < MAX_FLAGS - 1;
             s = strtok_r(0, " ", &rest))
                flag[n++] = s;
        if (last && n < MAX_FLAGS - 1)
                flag[n++] = last;
        flag[n] = 0;
}

typedef struct Build {
        EmulateDevice *d;
        const HostCc *cc;
        HostBuild b;
        atomic_flag said; /* that something is compiled */
} Build;

/* Of a unit that is compiled with these flags and headers. */
static void unit_key(const Build *x, int i, char hex[33])
{
        CacheKey k;
        char cpu[33];
        host_cpu_key(cpu);
        cache_key_begin(&k);
        cache_key_text(&k, "emulate 2");
        cache_key_text(&k, x->cc->command);
        cache_key_text(&k, x->cc->version);
        cache_key_text(&k, cpu);
        for (int j = 0; x->b.flag[j]; j++)
                cache_key_text(&k, x->b.flag[j]);
        for (int j = 0; j < x->b.headers->n; j++) {
                cache_key_text(&k, x->b.headers->file[j].name);
                cache_key_add(&k, x->b.headers->file[j].data, x->b.headers->file[j].size);
        }
        cache_key_add(&k, x->b.units->file[i].data, x->b.units->file[i].size);
        cache_key_end(&k, hex);
}

static void say_compiling(Build *x)
{
        const DevOptions *o = &x->d->host.d.opt;
        if (o->compiling && !atomic_flag_test_and_set(&x->said))
                o->compiling(o->compiling_to, x->d->host.d.prog->n_kernels, "kernels", "emulate");
}

static void load_unit(void *ctx, int i)
{
        Build *x = ctx;
        Unit *u = &x->d->unit[i];
        int no_cache = x->d->host.d.opt.no_cache;
        void *so = 0, *sym;
        size_t size;
        char key[33];

        unit_key(x, i, key);
        u->cached = !no_cache && cache_get(key, &so, &size);
        if (!u->cached) {
                say_compiling(x);
                u->code = host_cc_build(x->cc, &x->b, i, 1, &so, &size, &u->err);
                if (!u->code && !no_cache)
                        cache_put(key, so, size);
        }
        if (!u->code && (u->code = so_open(&u->so, so, size, &u->err)) && u->cached) {
                free(so); /* what the cache has cannot be loaded: built again */
                so = 0;
                cache_remove(key);
                u->cached = 0;
                if (!(u->code = host_cc_build(x->cc, &x->b, i, 1, &so, &size, &u->err)))
                        u->code = so_open(&u->so, so, size, &u->err);
        }
        free(so);
        if (u->code)
                return;
        sym = so_symbol(&u->so, "tgc_emulate_launch");
        memcpy(&u->launch, &sym, sizeof sym);
        if (!sym)
                u->code = err_set(&u->err, TGC_BAD_FILE, "emulate.h defines no tgc_emulate_launch");
        sym = so_symbol(&u->so, "tgc_emulate_keep");
        memcpy(&u->keep, &sym, sizeof sym);
        sym = so_symbol(&u->so, "tgc_emulate_clusters");
        memcpy(&u->clusters, &sym, sizeof sym);
        if (!sym && x->d->host.d.arch)
                u->code =
                        err_set(&u->err, TGC_NO_DEVICE,
                                "the plan's emulate.h knows no clusters: compile the model again");
}

/* The emulator as an object, optimised whatever TGC_CXXFLAGS says; malloc'd. */
static int load_core(Build *x, void **core, size_t *size, Err *e)
{
        static char text[] = "#include \"emulate_core.cpp\"\n";
        PackFile file = { .name = "core", .data = text, .size = sizeof text - 1 };
        const Pack unit = { .file = &file, .n = 1 };
        const int no_cache = x->d->host.d.opt.no_cache;
        const char *flag[MAX_FLAGS];
        char own[1024], key[33];
        Build y = *x;
        make_flags(flag, own, sizeof own, x->d->host.d.arch, "-O2");
        y.b.flag = flag;
        y.b.units = &unit;
        unit_key(&y, 0, key);
        if (!no_cache && cache_get(key, core, size))
                return TGC_OK;
        say_compiling(x);
        const int code = host_cc_object(x->cc, &y.b, 0, core, size, e);
        if (!code && !no_cache)
                cache_put(key, *core, *size);
        return code;
}

static int has_emulator(const Pack *headers)
{
        int n = 0;
        for (int i = 0; i < headers->n; i++)
                n += !strcmp(headers->file[i].name, "emulate.h") ||
                     !strcmp(headers->file[i].name, "emulate_core.cpp");
        return n == 2;
}

static int load_units(EmulateDevice *d, const Pack *units, const Pack *headers, Err *e)
{
        HostCc cc;
        const char *flag[MAX_FLAGS];
        char own[1024];
        int code = host_cc_find(&cc, 1, e), cached = 0;
        double start = clock_ms();
        void *core = NULL;

        if (code)
                return code;
        if (!has_emulator(headers))
                return err_set(e, TGC_NO_DEVICE,
                               "the plan's CUDA headers lack this emulator: compile the model "
                               "again");
        make_flags(flag, own, sizeof own, d->host.d.arch, NULL);
        d->unit = calloc((size_t)units->n, sizeof *d->unit);
        if (!d->unit)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d units", units->n);
        d->n_units = units->n;
        for (int i = 0; i < units->n; i++)
                d->unit[i].so.fd = -1;
        Build x = { d,
                    &cc,
                    { .flag = flag,
                      .units = units,
                      .headers = headers,
                      .suffix = ".cu",
                      .what = "source.cuda",
                      .stop = d->host.d.opt.stop },
                    ATOMIC_FLAG_INIT };
        stop_begin(x.b.stop); /* over all of them: no moment in between looks idle */
        if (!(code = load_core(&x, &core, &x.b.object_size, e))) {
                x.b.object = core;
                parallel_for(units->n, host_compilers(), load_unit, &x);
        }
        stop_end(x.b.stop);
        free(core);
        if (code)
                return code;
        for (int i = 0; i < units->n; i++) {
                if (d->unit[i].code)
                        return err_set(e, d->unit[i].code, "%s", d->unit[i].err.msg);
                cached += d->unit[i].cached;
        }
        snprintf(d->host.d.note, sizeof d->host.d.note,
                 "%d unit%s compiled, %d from the cache, %.3f s", units->n - cached,
                 units->n - cached == 1 ? "" : "s", cached, (clock_ms() - start) / 1e3);
        return TGC_OK;
}

/* A compiler of LARGE_GROUP takes 300 MB. */
enum { SMALL_GROUP = 12, LARGE_GROUP = 128 };

static int group_size(int n_units)
{
        int each = (n_units + host_compilers() - 1) / host_compilers();
        return each < SMALL_GROUP ? SMALL_GROUP : each > LARGE_GROUP ? LARGE_GROUP : each;
}

static int emulate_load(Device *dev, const Plan *plan, const char *need, Err *e)
{
        (void)need;
        EmulateDevice *d = (EmulateDevice *)dev;
        Pack units, headers;
        int code = plan_source(plan, "cuda", &units, &headers, e);
        if (code)
                return code;
        if (!(code = kernel_units(dev->prog, &units, &d->unit_of, e))) {
                const int in_group = group_size(units.n);
                for (int k = 0; k < dev->prog->n_kernels; k++)
                        d->unit_of[k] /= in_group;
                pack_join(&units, in_group);
                code = load_units(d, &units, &headers, e);
        }
        void *sym = !code && dev->opt.threads && d->n_units
                            ? dlsym(d->unit[0].so.handle, "omp_set_num_threads")
                            : 0;
        memcpy(&d->set_threads, &sym, sizeof sym);
        pack_free(&units);
        pack_free(&headers);
        return code;
}

/* A guarded stack is two mappings, of which a process may have 65530. */
enum { MOST_STACKS = 8192 };

static void give_back_stacks(EmulateDevice *d)
{
        for (int i = 0; i < d->n_units; i++)
                if (d->unit[i].kept) {
                        d->unit[i].keep(0);
                        d->unit[i].kept = 0;
                }
        d->kept = 0;
}

/* The next launch of u, of blocks of so many threads, may keep its stacks. */
static void keep_stacks(EmulateDevice *d, Unit *u, int threads)
{
        const int host = d->host.d.opt.threads > 0 ? d->host.d.opt.threads : host_cores();
        const int stacks = threads * host;
        if (!u->keep || stacks <= u->kept)
                return;
        if (d->kept + stacks > MOST_STACKS)
                give_back_stacks(d);
        if (stacks > MOST_STACKS)
                return;
        u->keep(1);
        d->kept += stacks - u->kept;
        u->kept = stacks;
}

static int emulate_launch(Device *dev, int k, unsigned grid, void *const *arg, Err *e)
{
        EmulateDevice *d = (EmulateDevice *)dev;
        const KernelDef *def = &dev->prog->kernel[k];
        Unit *u = &d->unit[d->unit_of[k]];
        const FormDef *form = dev_form(dev, def);
        unsigned cluster = form->cluster;
        char why[900] = "";
        if (d->set_threads)
                d->set_threads(dev->opt.threads);
        if (form != &def->form[FORM_ANY]) {
                const unsigned sms = (unsigned)dev->sms;
                if (form->persistent && grid > sms)
                        grid = sms;
                /* pairs, where there are any, are clusters of two; what the GPU holds at once may
                 * wait for each other */
                cluster = cluster ? cluster : grid % 2 ? 1 : 2;
                u->clusters(cluster, grid <= sms ? grid : cluster);
        }
        keep_stacks(d, u, form->threads);
        if (u->launch(def->name, grid, (unsigned)form->threads, form->smem, (void **)arg,
                      def->n_args, why, sizeof why))
                return err_set(e, TGC_CHECK_FAILED, "%.60s: %.900s", def->name, why);
        return TGC_OK;
}

/* kernels/emulate/emulate_block.h's Map. */
static int emulate_tensor_map(Device *dev, void *out, const MapDef *m, void *matrix, Err *e)
{
        const struct {
                const void *matrix;
                uint64_t elem, rows, cols, ld;
                int box_rows, box_bytes;
        } map = { matrix, m->elem, m->rows, m->cols, m->ld, m->box_rows, m->box_bytes };
        (void)dev, (void)e;
        memcpy(out, &map, sizeof map);
        return TGC_OK;
}

static void emulate_close(Device *dev)
{
        EmulateDevice *d = (EmulateDevice *)dev;
        so_pin_openmp();
        give_back_stacks(d);
        for (int i = 0; i < d->n_units; i++)
                so_close(&d->unit[i].so);
        free(d->unit);
        free(d->unit_of);
        free(d);
}

static const DevOps emulate_ops = { HOST_OPS, .close = emulate_close, .load = emulate_load,
                                    .launch = emulate_launch, .tensor_map = emulate_tensor_map };

int dev_open_emulate(Device **out, const DevOptions *o, Err *e)
{
        EmulateDevice *d = calloc(1, sizeof *d);
        if (!d)
                return err_set(e, TGC_NO_MEMORY, "no memory for a device");
        d->host.d.ops = &emulate_ops;
        d->host.d.kind = DEV_EMULATE;
        d->host.d.opt = *o;
        const char *arch = getenv("TGC_EMULATE_ARCH");
        if (arch && !arch_of(arch)) {
                free(d);
                return err_set(e, TGC_USAGE,
                               "TGC_EMULATE_ARCH=%.40s: the emulator plays %s, and without it what "
                               "every GPU has",
                               arch, program_archs[N_FORMS - 1].name);
        }
        d->host.d.arch = arch ? arch_of(arch) : FORM_ANY;
        d->host.d.sms = arch ? program_archs[d->host.d.arch].sms : 0;
        snprintf(d->host.d.name, sizeof d->host.d.name, "emulated GPU%s%.20s", arch ? ", " : "",
                 arch ? program_archs[d->host.d.arch].name : "");
        *out = &d->host.d;
        return TGC_OK;
}
