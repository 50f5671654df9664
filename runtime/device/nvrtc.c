/* nvrtc.c: compiles CUDA units to cubins by NVRTC (nvrtc.h).  Units that the disk cache lacks go to
 * child processes, one for each core, slowest units first.  Threads of this process compile what
 * the children leave undone. */
#include "nvrtc.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "cache.h"
#include "device.h"
#include "dev_impl.h"
#include "host_cc.h"
#include "../util/parallel.h"

enum { MAX_OPTIONS = 8, MAX_AT_ONCE = 16, MAX_CUBIN = 4 << 20, LATE_S = 120 };

typedef struct Job {
        const Nvrtc *n;
        const Pack *units, *headers;
        const char *want; /* by unit, or NULL: all */
        const char *option[MAX_OPTIONS];
        int n_options, no_cache;
        const char **header_text, **header_name;
        PackFile *cubin;
        int *cached, *code;
        Err *err;
        char (*key)[33];
        struct Turn {
                int unit, ms;
                size_t size;
        } * turn;
        int n_turns; /* of those wanted, without those found in the cache */
} Job;

/* The key has the inputs only: NVRTC's output is free to carry random names. */
static void unit_key(const Job *j, int i, char hex[33])
{
        CacheKey k;
        char version[64];
        snprintf(version, sizeof version, "cubin 1 nvrtc %d.%d", j->n->major, j->n->minor);
        cache_key_begin(&k);
        cache_key_text(&k, version);
        for (int o = 0; o < j->n_options; o++)
                cache_key_text(&k, j->option[o]);
        for (int h = 0; h < j->headers->n; h++) {
                cache_key_text(&k, j->headers->file[h].name);
                cache_key_add(&k, j->headers->file[h].data, j->headers->file[h].size);
        }
        cache_key_add(&k, j->units->file[i].data, j->units->file[i].size);
        cache_key_end(&k, hex);
}

static int report(const Job *j, int i, NvrtcProgram prog, const char *name, int r, Err *e)
{
        char path[512], *log = 0;
        size_t n = 0;
        int lines = 0, end = 0;

        if (prog && !j->n->nvrtcGetProgramLogSize(prog, &n) && (log = calloc(1, n + 1)))
                j->n->nvrtcGetProgramLog(prog, log);
        for (; log && log[end] && end < 600; end++)
                if (log[end] == '\n' && ++lines == 8)
                        break;
        keep_source(name, j->units->file[i].data, j->units->file[i].size, path, sizeof path);
        err_set(e, TGC_NO_DEVICE,
                "NVRTC %d.%d refuses unit %s for %s, error %d (source kept in %s)%s:\n%.*s",
                j->n->major, j->n->minor, j->units->file[i].name, strchr(j->option[0], '=') + 1, r,
                *path ? path : "no place",
                *j->n->include ? "" : "; the toolkit's headers were not found, set CUDA_HOME", end,
                log ? log : "");
        free(log);
        return TGC_NO_DEVICE;
}

static int compile(const Job *j, int i, Err *e)
{
        NvrtcProgram prog = 0;
        char name[128], *cubin = 0;
        size_t size = 0;
        int code = TGC_OK;

        snprintf(name, sizeof name, "%s.cu", j->units->file[i].name);
        int r = j->n->nvrtcCreateProgram(&prog, j->units->file[i].data, name, j->headers->n,
                                         j->header_text, j->header_name);
        if (!r)
                r = j->n->nvrtcCompileProgram(prog, j->n_options, j->option);
        if (!r)
                r = j->n->nvrtcGetCUBINSize(prog, &size);
        if (!r && !(cubin = malloc(size + 1)))
                code = err_set(e, TGC_NO_MEMORY, "no memory for a cubin of %zu bytes", size);
        else if (!r)
                r = j->n->nvrtcGetCUBIN(prog, cubin);
        if (r) {
                code = report(j, i, prog, name, r, e);
                free(cubin);
                cubin = 0;
        }
        if (prog)
                j->n->nvrtcDestroyProgram(&prog);
        j->cubin[i].data = cubin;
        j->cubin[i].size = size;
        return code;
}

/* The longest go first, so that nobody is left with one at the end. */
static int heavier(const void *a, const void *b)
{
        const struct Turn *x = a, *y = b;
        if (x->ms != y->ms)
                return x->ms < y->ms ? 1 : -1;
        if (x->size != y->size)
                return x->size < y->size ? 1 : -1;
        return x->unit - y->unit;
}

static void order_units(Job *j)
{
        for (int i = 0; i < j->units->n; i++)
                if (!j->cached[i] && (!j->want || j->want[i]))
                        j->turn[j->n_turns++] = (struct Turn) { i, j->units->file[i].compile_ms,
                                                                j->units->file[i].size };
        qsort(j->turn, (size_t)j->n_turns, sizeof *j->turn, heavier);
}

static void find_unit(void *ctx, int i)
{
        Job *j = ctx;
        void *data;

        if (j->want && !j->want[i])
                return;
        unit_key(j, i, j->key[i]);
        memcpy(j->cubin[i].name, j->units->file[i].name, sizeof j->cubin[i].name);
        if (j->no_cache || !cache_get(j->key[i], &data, &j->cubin[i].size))
                return;
        /* whoever put it there, it is no cubin */
        if (j->cubin[i].size < 64 || memcmp(data, "\177ELF", 4)) {
                free(data);
                cache_remove(j->key[i]);
                return;
        }
        j->cubin[i].data = data;
        j->cached[i] = 1;
}

static void compile_unit(void *ctx, int turn)
{
        Job *j = ctx;
        int i = j->turn[turn].unit;

        if (j->cubin[i].data || j->code[i])
                return;
        j->code[i] = compile(j, i, &j->err[i]);
        if (!j->code[i] && !j->no_cache)
                cache_put(j->key[i], j->cubin[i].data, j->cubin[i].size);
}

/* ---- children ----
 * In one process NVRTC parses one unit at a time: 54 units of GPT-2's training step took 4.4 s with
 * 16 threads, of which 4.1 with nothing left to do but to parse.  So units are compiled by
 * children, which leave their cubins in memory they share with us.  What they do not get done, for
 * whatever reason, is compiled here. */

typedef struct Shared {
        atomic_int next, done;
        struct Result {
                atomic_int there;
                int code;
                size_t size;
                Err err;
        } result[];
} Shared;

static char *place(const Job *j, Shared *s, int turn)
{
        return (char *)&s->result[j->n_turns] + (size_t)turn * MAX_CUBIN;
}

static void child(Job *j, Shared *s)
{
        for (int t; (t = atomic_fetch_add(&s->next, 1)) < j->n_turns;
             atomic_fetch_add(&s->done, 1)) {
                int i = j->turn[t].unit;
                compile_unit(j, t);
                if (j->cubin[i].size > MAX_CUBIN)
                        continue;
                if (!j->code[i])
                        memcpy(place(j, s, t), j->cubin[i].data, j->cubin[i].size);
                s->result[t].code = j->code[i];
                s->result[t].err = j->err[i];
                s->result[t].size = j->cubin[i].size;
                atomic_store(&s->result[t].there, 1);
        }
}

/* Until all have ended; those that get nothing done for LATE_S are put down: a lock that another
 * thread of ours held when they were born stays held in them. */
static void wait_for(const pid_t *pid, int n, Shared *s)
{
        const struct timespec ms = { .tv_nsec = 1000000 };
        int gone = 0, done = -1;
        double since = 0;

        for (; gone < n; nanosleep(&ms, 0)) {
                pid_t r;
                while (gone < n &&
                       ((r = waitpid(pid[gone], 0, WNOHANG)) > 0 || (r < 0 && errno != EINTR)))
                        gone++;
                if (atomic_load(&s->done) != done) {
                        done = atomic_load(&s->done);
                        since = clock_ms();
                }
                for (int k = gone; k < n && clock_ms() - since > LATE_S * 1e3; k++)
                        kill(pid[k], SIGKILL);
        }
}

static void compile_in_children(Job *j)
{
        int n = host_cores(), started = 0;
        pid_t pid[MAX_AT_ONCE], own = getpid();
        size_t size = sizeof(Shared) + (size_t)j->n_turns * (sizeof(struct Result) + MAX_CUBIN);

        n = n < j->n_turns ? n : j->n_turns;
        n = n < MAX_AT_ONCE ? n : MAX_AT_ONCE;
        if (n < 2)
                return;
        Shared *s = mmap(0, size, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (s == MAP_FAILED)
                return;
        for (; started < n && (pid[started] = fork()) >= 0; started++)
                if (!pid[started]) {
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        if (getppid() == own)
                                child(j, s);
                        _exit(0);
                }
        wait_for(pid, started, s);
        for (int t = 0; t < j->n_turns; t++) {
                const struct Result *r = &s->result[t];
                int i = j->turn[t].unit;
                char *data = 0;
                if (!atomic_load(&r->there) || (!r->code && !(data = malloc(r->size + 1))))
                        continue;
                if (data)
                        memcpy(data, place(j, s, t), r->size);
                j->cubin[i].data = data;
                j->cubin[i].size = r->size;
                j->code[i] = r->code;
                j->err[i] = r->err;
        }
        munmap(s, size);
}

int cuda_compile_units(const Nvrtc *n, const Pack *units, const char *want, const Pack *headers,
                       const char *arch, const DevOptions *o, PackFile *cubin, int *n_cached,
                       Err *e)
{
        const char *macro = program_archs[arch_of(arch)].macro;
        char arch_option[64], define[64], include[640];
        Job j = { .n = n,
                  .units = units,
                  .want = want,
                  .headers = headers,
                  .no_cache = o->no_cache,
                  .cubin = cubin };
        int code = TGC_OK;

        memset(cubin, 0, (size_t)units->n * sizeof *cubin);
        snprintf(arch_option, sizeof arch_option, "--gpu-architecture=%.40s", arch);
        snprintf(include, sizeof include, "-I%s", n->include);
        j.option[j.n_options++] = arch_option;
        j.option[j.n_options++] = "-std=c++17";
        j.option[j.n_options++] = "-default-device";
        j.option[j.n_options++] = "-w";
        if (n->major >= 13) /* without textures and launches from kernels: 6 of 60 ms a unit */
                j.option[j.n_options++] = "--minimal";
        if (macro) {
                snprintf(define, sizeof define, "-D%s=1", macro);
                j.option[j.n_options++] = define;
        }
        if (*n->include)
                j.option[j.n_options++] = include;
        j.header_text = calloc((size_t)headers->n + 1, sizeof *j.header_text);
        j.header_name = calloc((size_t)headers->n + 1, sizeof *j.header_name);
        j.cached = calloc((size_t)units->n + 1, sizeof *j.cached);
        j.code = calloc((size_t)units->n + 1, sizeof *j.code);
        j.err = calloc((size_t)units->n + 1, sizeof *j.err);
        j.key = calloc((size_t)units->n + 1, sizeof *j.key);
        j.turn = calloc((size_t)units->n + 1, sizeof *j.turn);
        if (!j.header_text || !j.header_name || !j.cached || !j.code || !j.err || !j.key || !j.turn)
                code = err_set(e, TGC_NO_MEMORY, "no memory to compile %d units", units->n);
        else {
                for (int h = 0; h < headers->n; h++) {
                        j.header_text[h] = headers->file[h].data;
                        j.header_name[h] = headers->file[h].name;
                }
                parallel_for(units->n, MAX_AT_ONCE, find_unit, &j);
                order_units(&j);
                if (j.n_turns && o->compiling)
                        o->compiling(o->compiling_to, j.n_turns, "units", arch);
                compile_in_children(&j);
                parallel_for(j.n_turns, MAX_AT_ONCE, compile_unit, &j);
        }
        for (int i = 0; i < units->n && !code; i++)
                if (j.code[i])
                        code = err_set(e, j.code[i], "%s", j.err[i].msg);
        if (n_cached) {
                *n_cached = 0;
                for (int i = 0; j.cached && i < units->n; i++)
                        *n_cached += j.cached[i];
        }
        free(j.header_text);
        free(j.header_name);
        free(j.cached);
        free(j.code);
        free(j.err);
        free(j.key);
        free(j.turn);
        return code;
}

void cubins_free(PackFile *cubin, int n)
{
        for (int i = 0; cubin && i < n; i++)
                free((void *)cubin[i].data);
        free(cubin);
}

/* sm_80, sm_90a, sm_120: digits, then perhaps one letter. */
static int arch_ok(const Nvrtc *n, const char *arch)
{
        int want = 0, count = 0, list[128];
        if (strncmp(arch, "sm_", 3) || arch[3] < '1' || arch[3] > '9')
                return 0;
        const char *p = arch + 3;
        for (; *p >= '0' && *p <= '9' && want < 1000; p++)
                want = want * 10 + (*p - '0');
        if (*p && (p[1] || (*p != 'a' && *p != 'f')))
                return 0;
        if (n->nvrtcGetNumSupportedArchs(&count) || count < 1 || count > 128 ||
            n->nvrtcGetSupportedArchs(list))
                return 1;
        while (count-- > 0)
                if (list[count] == want)
                        return 1;
        return 0;
}

int cuda_compile_plan(const Plan *plan, const char *arch, int no_cache, void **pack, size_t *size,
                      Err *e)
{
        Nvrtc n;
        Pack units, headers;
        int code = no_cache ? TGC_OK : cache_check(e);

        *pack = 0;
        if (code || (code = nvrtc_open(&n, 0, e)))
                return code;
        if (!arch_ok(&n, arch))
                return err_set(
                        e, TGC_USAGE,
                        "NVRTC %d.%d does not know the architecture '%.40s'; give one like sm_80 "
                        "or sm_90a",
                        n.major, n.minor, arch);
        if ((code = plan_source(plan, "cuda", &units, &headers, e)))
                return code;
        PackFile *cubin = calloc((size_t)units.n, sizeof *cubin);
        code = cubin ? cuda_compile_units(&n, &units, 0, &headers, arch,
                                          &(DevOptions) { .no_cache = no_cache }, cubin, 0, e)
                     : err_set(e, TGC_NO_MEMORY, "no memory for %d cubins", units.n);
        if (!code)
                code = code_pack(plan, "cuda", (const char *const[]) { arch, 0 }, cubin, units.n,
                                 pack, size, e);
        cubins_free(cubin, units.n);
        pack_free(&units);
        pack_free(&headers);
        return code;
}
