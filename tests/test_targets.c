/* test_targets.c: NVRTC takes every kernel of every model, in the form that all GPUs have and in
 * Hopper's.  Needs a CUDA toolkit, no GPU.
 *
 * Each by itself, optimised and for every architecture, 4000 units take 20 minutes of one core.  So
 * units that define the same macros are compiled together, which parses the headers once, and
 * quickly (--Ofast-compile); and the form that all GPUs have is compiled once: architectures take
 * it by turns, for the headers say the same for all but Hopper (a test says so).  sm_90a takes,
 * too, all that has a form of its own there.  All are compiled to PTX; the assembler, which takes
 * two thirds of the time, gets those with inline assembly that it has not seen yet, and those that
 * call what is elsewhere: the rest is the compiler's own.  (test_ptx.c assembles all of ptx.cuh.)
 * TGC_TEST_ALL=1 gives every unit to every architecture and its assembler, as FULL=1 of
 * test_check.sh does.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include "cli/load/load.h"
#include "runtime/device/cuda_api.h"
#include "runtime/util/parallel.h"
#include "runtime/device/dev_impl.h"
#include "test.h"
#include "model_files.h"

enum { MOST = 64, MOST_HEADERS = 256, TOGETHER = 8 };

/* of several units */
typedef struct Source {
        const char *model;
        char *text;
        const Pack *headers;
        bool hopper;
} Source;

static Source source[16 * MOST];
static int n_sources, n_models;
static char error[4096];
static Nvrtc nvrtc;
static char include[700];
static bool quick;
static int (*ptx_size)(NvrtcProgram, size_t *), (*ptx_text)(NvrtcProgram, char *); /* or NULL */

/* The macros that a unit defines before its headers: what it has in common with those it may stand
 * beside. */
static size_t macros(const char *text)
{
        const char *first = strstr(text, "#define "), *headers = strstr(text, "#include ");
        return first && first < headers ? (size_t)(headers - first) : 0;
}

static bool same_macros(const char *a, const char *b)
{
        const size_t n = macros(a);
        return n == macros(b) && !memcmp(strstr(a, "#include ") - n, strstr(b, "#include ") - n, n);
}

/* Has it a form for sm_90a? */
static bool for_hopper(const char *text)
{
        return strstr(text, "TGC_SM90A") != NULL || strstr(text, "sm90") != NULL;
}

/* A unit's text but for its comments, its kernels' numbers (k12_) and sizes of a model: of numbers
 * from 600 on the largest power of two up to 64 that divides them is left, what they are aligned
 * to. */
static uint64_t kind_of(const char *text)
{
        uint64_t h = 1469598103934665603u;
        for (const char *c = text, *end; *c; c = end) {
                long n = 0;
                const bool in_name = c > text && (isalnum((unsigned char)c[-1]) || c[-1] == '_');
                end = c + 1;
                if (c[0] == '/' && c[1] == '/') { /* where it comes from */
                        end = c + strcspn(c, "\n");
                        continue;
                }
                if (isdigit((unsigned char)*c) && (!in_name || c[-1] == 'k')) {
                        n = strtol(c, (char **)&end, 10);
                        if (in_name && *end == '_') /* a kernel's number */
                                continue;
                }
                if (n >= 600 && !in_name) {
                        h = (h ^ (uint64_t)(256 + (n & -n & 127 ? n & -n & 127 : 64))) *
                            1099511628211u;
                        continue;
                }
                for (const char *k = c; k < end; k++)
                        h = (h ^ (unsigned char)*k) * 1099511628211u;
        }
        return h;
}

/* Of two models' kernels of one kind one is compiled. */
static bool is_new(const char *text)
{
        static uint64_t seen[1 << 14];
        static int n;
        const uint64_t h = kind_of(text);
        for (int i = 0; i < n; i++)
                if (seen[i] == h)
                        return getenv("TGC_TEST_ALL") != NULL;
        CHECK(n < 1 << 14);
        seen[n++] = h;
        return true;
}

static void put_together(const char *model, const Pack *units, const Pack *headers)
{
        char *done = calloc((size_t)units->n, 1);
        size_t all = 1;
        for (int i = 0; i < units->n; i++)
                all += units->file[i].size + 200;
        for (int i = 0; i < units->n; i++)
                done[i] = !is_new(units->file[i].data);
        for (int i = 0; i < units->n; i++) {
                char *text = done[i] ? NULL : malloc(all), *end = text;
                for (int k = i, n = 0; text && k < units->n && n < TOGETHER; k++) {
                        const PackFile *u = &units->file[k];
                        if (done[k] || !same_macros(units->file[i].data, u->data) ||
                            for_hopper(units->file[i].data) != for_hopper(u->data))
                                continue;
                        end += sprintf(end, "#line 1 \"%s.cu\"\n%s", u->name, u->data);
                        done[k] = 1;
                        n++;
                }
                if (text)
                        source[n_sources++] = (Source) { model, text, headers, for_hopper(text) };
        }
        free(done);
}

static int longer(const void *a, const void *b)
{
        const size_t x = strlen(((const Source *)a)->text), y = strlen(((const Source *)b)->text);
        return x < y ? 1 : x > y ? -1 : 0;
}

static void write_units(const BuildOptions *o, bool has_second_form)
{
        static Pack units[MOST], headers[MOST];
        Pack *u = &units[n_models], *h = &headers[n_models++];
        Plan p = { 0 };
        Err e;
        CHECK_MSG(n_models < MOST && !build_plan(&p, o, &e) && !plan_add_headers(&p, &e) &&
                          !plan_source(&p, "cuda", u, h, &e),
                  "%s: %s", o->model, e.msg);
        bool second = false;
        for (int i = 0; i < u->n; i++)
                second |= strstr(u->file[i].data, "gemm_tma") != NULL;
        CHECK_MSG(second == has_second_form, "%s: what is for sm_90a alone", o->model);
        put_together(o->model, u, h);
        plan_close(&p);
}

/* Training and inference at a size that has the second form of products and attention, sm_90a's; 11
 * sequences have gpt.lua's attention make all gradients at once; of 192 tokens it is whole in
 * shared memory. */
static void write_kernels(const char *path, int block, const int *documents)
{
        char ctx[24];
        const char *define[] = { "n_layer=1", "vocab=8195", ctx };
        snprintf(ctx, sizeof ctx, "ctx=%d", block);
        write_units(&(BuildOptions) { .kind = MODEL_LUA,
                                      .model = path,
                                      .dtype = "bf16",
                                      .define = define,
                                      .n_define = 3,
                                      .mode = BUILD_TRAIN | BUILD_INFER,
                                      .opt = 3,
                                      .batch = 11,
                                      .ctx = block,
                                      .block = block,
                                      .cuda = true,
                                      .documents = documents },
                    true);
}

/* Of a source's PTX: the statements of inline assembly, each once, and how long it is. */
typedef struct Statements {
        uint64_t *hash;
        int n, left; /* left: not given to the assembler yet */
        size_t size;
        bool whole; /* the assembler gets it whatever it says */
} Statements;

static bool has(const Statements *s, uint64_t h)
{
        for (int i = 0; i < s->n; i++)
                if (s->hash[i] == h)
                        return true;
        return false;
}

/* Registers count by their kinds: %r12 is as %r7 is, and not as %f7. */
static Statements statements_of(const char *ptx)
{
        static const char begin[] = "// begin inline asm", end[] = "// end inline asm";
        Statements s = { .size = strlen(ptx), .whole = strstr(ptx, ".extern .func") };
        for (const char *c = ptx; (c = strstr(c, begin));) {
                const char *stop = strstr(c, end);
                uint64_t h = 1469598103934665603u;
                for (bool in_register = false; c < stop; c++) {
                        in_register = *c == '%' || (in_register && isalnum((unsigned char)*c));
                        if (!in_register || !isdigit((unsigned char)*c))
                                h = (h ^ (unsigned char)*c) * 1099511628211u;
                }
                if (has(&s, h))
                        continue;
                s.hash = realloc(s.hash, (size_t)(s.n + 1) * sizeof *s.hash);
                s.hash[s.n++] = h;
        }
        s.left = s.n;
        return s;
}

/* Those that the assembler gets: together they have every statement, and little else. */
static int choose(Statements *s, int n, int *chosen)
{
        Statements seen = { 0 };
        int n_chosen = 0;
        for (int most; n_chosen < n; chosen[n_chosen++] = most) {
                most = -1;
                for (int i = 0; i < n; i++) {
                        s[i].left = s[i].whole ? s[i].n + 1 : 0;
                        for (int k = 0; k < s[i].n && !s[i].whole; k++)
                                s[i].left += !has(&seen, s[i].hash[k]);
                        if (s[i].left &&
                            (most < 0 || (double)s[i].left * (double)s[most].size >
                                                 (double)s[most].left * (double)s[i].size))
                                most = i;
                }
                if (most < 0)
                        break;
                s[most].whole = false;
                seen.hash = realloc(seen.hash,
                                    (size_t)(seen.n + s[most].n + 1) * sizeof *seen.hash);
                for (int k = 0; k < s[most].n; k++)
                        if (!has(&seen, s[most].hash[k]))
                                seen.hash[seen.n++] = s[most].hash[k];
        }
        free(seen.hash);
        return n_chosen;
}

/* 0, or what NVRTC says; gpu: sm_80 for its machine code, compute_80 for PTX, which goes to *ptx if
 * ptx is not NULL. */
static int compile_for(const char *gpu, const char *text, const Pack *h, char **ptx, char *said,
                       size_t cap)
{
        const char *option[8], *header_text[MOST_HEADERS], *header_name[MOST_HEADERS];
        char arch[64], *log;
        NvrtcProgram prog = NULL;
        size_t size = 0;
        int n = 0;
        snprintf(arch, sizeof arch, "--gpu-architecture=%s", gpu);
        option[n++] = arch;
        option[n++] = include;
        option[n++] = "-std=c++17";
        option[n++] = "-default-device";
        option[n++] = "-w";
        if (quick)
                option[n++] = "--Ofast-compile=max";
        if (strstr(gpu, "_90a"))
                option[n++] = "-DTGC_SM90A=1";
        if (h && h->n > MOST_HEADERS) {
                snprintf(said, cap, "%d headers: MOST_HEADERS is %d", h->n, MOST_HEADERS);
                return 1;
        }
        for (int i = 0; h && i < h->n; i++) {
                header_text[i] = h->file[i].data;
                header_name[i] = h->file[i].name;
        }
        int r = nvrtc.nvrtcCreateProgram(&prog, text, "unit.cu", h ? h->n : 0, header_text,
                                         header_name);
        if (!r && (r = nvrtc.nvrtcCompileProgram(prog, n, option)) &&
            !nvrtc.nvrtcGetProgramLogSize(prog, &size) && (log = calloc(1, size + 1))) {
                nvrtc.nvrtcGetProgramLog(prog, log);
                snprintf(said, cap, "%s", log);
                free(log);
        }
        if (!r && ptx && !(r = ptx_size(prog, &size)) && (*ptx = calloc(1, size + 1)))
                r = ptx_text(prog, *ptx);
        nvrtc.nvrtcDestroyProgram(&prog);
        return r;
}

/* Of many families kernels are much the same, and all of them take minutes: FULL=1 has them. */
static bool is_tried(const char *path)
{
        static const char *const some[] = { "deepseek", "falcon", "gemma2",    "gpt",  "gptoss",
                                            "llama",    "moe",    "naive_gpt", "olmo", "tinylm" };
        const char *name = strrchr(path, '/') + 1;
        const size_t n = strcspn(name, ".");
        if (getenv("FULL"))
                return is_model_file(path);
        for (size_t i = 0; i < sizeof some / sizeof *some; i++)
                if (strlen(some[i]) == n && !strncmp(name, some[i], n))
                        return true;
        return false;
}

static void set_up(void)
{
        static glob_t models; /* their names stay */
        char said[256];
        Err e;
        if (n_sources)
                return;
        if (nvrtc_open(&nvrtc, 0, &e) || !*nvrtc.include)
                SKIP("no NVRTC, or no CUDA headers (CUDA_HOME)");
        snprintf(include, sizeof include, "-I%s", nvrtc.include);
        quick = true;
        quick = !compile_for("sm_80", "__global__ void k() {}\n", NULL, NULL, said, sizeof said);
        void *lib = dlopen(nvrtc.path, RTLD_NOW);
        *(void **)&ptx_size = lib ? dlsym(lib, "nvrtcGetPTXSize") : NULL;
        *(void **)&ptx_text = lib ? dlsym(lib, "nvrtcGetPTX") : NULL;
        CHECK(!glob("models/*.lua", 0, NULL, &models));
        for (size_t i = 0; i < models.gl_pathc; i++)
                if (is_tried(models.gl_pathv[i]))
                        write_kernels(models.gl_pathv[i], 1024, NULL);
        write_kernels("models/gpt.lua", 1024, &(int) { 0 });
        write_kernels("models/tinylm.lua", 192, NULL);
        /* rows of odd widths */
        write_units(&(BuildOptions) { .kind = MODEL_LUA,
                                      .model = "tests/e2e/check/heads.lua",
                                      .dtype = "bf16",
                                      .mode = BUILD_TRAIN | BUILD_INFER,
                                      .opt = 3,
                                      .batch = 2,
                                      .cuda = true },
                    false);
        qsort(source, (size_t)n_sources, sizeof *source, longer);
}

/* Sources first, first + step, ..., and all that have a form for this architecture alone. */
typedef struct Part {
        const char *arch;
        int first, step;
        int chosen[sizeof source / sizeof *source]; /* for the assembler */
} Part;

static Statements said_of[sizeof source / sizeof *source]; /* by source */

/* gpu: as compile_for has it */
static void compile_as(const Part *p, const char *gpu, int i, char **ptx)
{
        const Source *s = &source[i];
        char said[2000] = "";
        if (compile_for(gpu, s->text, s->headers, ptx, said, sizeof said))
                snprintf(error, sizeof error, "%s for %s: %s", s->model, p->arch, said);
}

static void compile_one(void *ctx, int i)
{
        const Part *p = ctx;
        char virtual[64], *ptx = NULL;
        said_of[i] = (Statements) { 0 };
        if (i % p->step != p->first && !(source[i].hopper && !strcmp(p->arch, "sm_90a")))
                return;
        if (!ptx_size || !ptx_text || getenv("TGC_TEST_ALL")) {
                compile_as(p, p->arch, i, NULL);
                return;
        }
        snprintf(virtual, sizeof virtual, "compute%s", strchr(p->arch, '_'));
        compile_as(p, virtual, i, &ptx);
        if (ptx)
                said_of[i] = statements_of(ptx);
        free(ptx);
}

static void assemble_one(void *ctx, int i)
{
        const Part *p = ctx;
        compile_as(p, p->arch, p->chosen[i], NULL);
}

static bool knows(const char *arch)
{
        int sm = atoi(strchr(arch, '_') + 1), n = 0, known[128];
        bool found = false;
        CHECK(!nvrtc.nvrtcGetNumSupportedArchs(&n) && n <= 128 &&
              !nvrtc.nvrtcGetSupportedArchs(known));
        while (n-- > 0)
                found |= known[n] == sm;
        return found;
}

/* What has no form for sm_90a is for it what it is for all. */
static const char *const alike[] = { "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120" };

static void takes(const char *arch)
{
        static Part part;
        part = (Part) { .arch = arch, .step = 1 };
        int n_alike = 0;
        set_up();
        if (!knows(arch))
                SKIP("this NVRTC does not know the architecture");
        if (!getenv("TGC_TEST_ALL")) {
                for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
                        if (!strcmp(alike[i], arch))
                                part.first = n_alike;
                        n_alike += knows(alike[i]);
                }
                part.step = n_alike;
        }
        *error = 0;
        parallel_for(n_sources, MOST, compile_one, &part);
        const int n = choose(said_of, n_sources, part.chosen);
        parallel_for(n, MOST, assemble_one, &part);
        for (int i = 0; i < n_sources; i++)
                free(said_of[i].hash);
        CHECK_MSG(!*error, "%s", error);
}

TEST (sm_80) {
        takes("sm_80");
}
TEST (sm_86) {
        takes("sm_86");
}
TEST (sm_89) {
        takes("sm_89");
}
TEST (sm_90a) {
        takes("sm_90a");
}
TEST (sm_100) {
        takes("sm_100");
}
TEST (sm_120) {
        takes("sm_120");
}

/* What taking turns rests on: our headers ask for 900 and nothing else. */
TEST (headers_know_two_kinds) {
        int n = 0;
        set_up();
        for (int i = 0; i < source[0].headers->n; i++)
                for (const char *at = source[0].headers->file[i].data;
                     (at = strstr(at, "__CUDA_ARCH__ ")); at++, n++)
                        CHECK_MSG(!strncmp(at, "__CUDA_ARCH__ && ", 17) ||
                                          !strncmp(at, "__CUDA_ARCH__ >= 900", 20),
                                  "%s: %.40s", source[0].headers->file[i].name, at);
        CHECK(n >= 2);
}

TEST_MAIN
