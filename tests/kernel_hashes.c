/* kernel_hashes.c: the machine code of every kernel of every model, as hashes: for changes that
 * must not change it.
 *
 *     build/tests/kernel_hashes > before;  (change, build);  build/tests/kernel_hashes > after;
 *     diff before after
 *
 * Arguments choose part of it: [MODEL [CONFIGURATION [HEADER]]], each a part of a name. HEADER
 * compiles only the kernels whose text includes such a header: `kernel_hashes gpt "" gemv`.
 *
 * A line per kernel and architecture: configuration, architecture, hash of its code and constants
 * (not of names), registers aside; and a line per program: its launches, buffers and memory. 
 * Cubins come from the cache where texts are the same. TGC_HASH_TEXT=1 compares texts alone,
 * without NVRTC; =show prints them, too. */
#include <elf.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>
#include "cli/load/load.h"
#include "runtime/device/cuda_api.h"
#include "runtime/device/dev_impl.h"
#include "runtime/device/nvrtc.h"

static const char *const arch[] = { "sm_80", "sm_90a" };

/* Of an ELF file: the bytes of .text.*, .nv.constant* and the sizes of shared memory. */
static uint64_t code_hash(const char *data, size_t size)
{
        const Elf64_Ehdr *h = (const void *)data;
        XXH3_state_t *s = XXH3_createState();
        XXH3_64bits_reset(s);
        if (size < sizeof *h || memcmp(data, ELFMAG, 4))
                return 0;
        const Elf64_Shdr *sec = (const void *)(data + h->e_shoff);
        const char *names = data + sec[h->e_shstrndx].sh_offset;
        for (int i = 0; i < h->e_shnum; i++) {
                const char *name = names + sec[i].sh_name;
                bool code = !strncmp(name, ".text.", 6),
                     constant = !strncmp(name, ".nv.constant", 12),
                     shared = !strncmp(name, ".nv.shared", 10);
                if (code || constant || shared)
                        XXH3_64bits_update(s, &sec[i].sh_size, sizeof sec[i].sh_size);
                if ((code || constant) && sec[i].sh_type != SHT_NOBITS)
                        XXH3_64bits_update(s, data + sec[i].sh_offset, sec[i].sh_size);
        }
        uint64_t x = XXH3_64bits_digest(s);
        XXH3_freeState(s);
        return x;
}

typedef struct Config {
        const char *name, *dtype;
        int mode, batch, block, ctx, opt;
        bool tf32, documents, all;
} Config;

/* Of a source: all but comments of a line and includes, which a move of files changes. */
static uint64_t text_hash(const char *s)
{
        XXH3_state_t *x = XXH3_createState();
        XXH3_64bits_reset(x);
        for (size_t n; *s; s += n) {
                n = strcspn(s, "\n") + (s[strcspn(s, "\n")] == '\n');
                if (!strncmp(s, "#include", 8) || !strncmp(s, "//", 2))
                        continue;
                XXH3_64bits_update(x, s, n);
                if (!strcmp(getenv("TGC_HASH_TEXT"), "show"))
                        fwrite(s, 1, n, stdout);
        }
        uint64_t h = XXH3_64bits_digest(x);
        XXH3_freeState(x);
        return h;
}

/* Whether some #include "..." of the text has a name with this part. */
static bool includes(const char *text, const char *part)
{
        for (const char *p = text; (p = strstr(p, "#include \"")); p++) {
                char line[200];
                snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
                if (strstr(line, part))
                        return true;
        }
        return false;
}

static const Config config[] = {
        { "bf16 train 11x192", "bf16", BUILD_TRAIN, 11, 192, 192, 3, false, false, true },
        { "bf16 train 4x1024", "bf16", BUILD_TRAIN, 4, 1024, 1024, 3, false, false, false },
        { "bf16 train documents", "bf16", BUILD_TRAIN, 8, 256, 256, 3, false, true, false },
        { "f32 train 8x256", "f32", BUILD_TRAIN, 8, 256, 256, 3, false, false, false },
        { "tf32 train 8x256", "f32", BUILD_TRAIN, 8, 256, 256, 3, true, false, false },
        { "f16 train 8x256", "f16", BUILD_TRAIN, 8, 256, 256, 3, false, false, false },
        { "bf16 infer 2048", "bf16", BUILD_INFER, 1, 0, 2048, 3, false, false, true },
        { "bf16 infer 8 x 2048", "bf16", BUILD_INFER, 8, 0, 2048, 3, false, false, false },
        { "f32 infer 1024", "f32", BUILD_INFER, 1, 0, 1024, 3, false, false, false },
        { "bf16 -O0 both 64", "bf16", BUILD_TRAIN | BUILD_INFER, 2, 64, 64, 0, false, false,
          false },
};

/* A line for every kernel of the plan whose text includes a header named like this. */
static void compile_units(const Plan *p, const char *target, const char *path, const char *what,
                          const char *config_name, const char *header)
{
        Nvrtc n;
        Pack units, headers;
        Err e;
        if (nvrtc_open(&n, 0, &e) || plan_source(p, "cuda", &units, &headers, &e)) {
                printf("%s%s [%s] %s: %s\n", path, what, config_name, target, e.msg);
                return;
        }
        PackFile *cubin = calloc((size_t)units.n + 1, sizeof *cubin);
        char *want = calloc((size_t)units.n + 1, 1);
        for (int i = 0; want && i < units.n; i++)
                want[i] = includes(units.file[i].data, header);
        if (!cubin || !want ||
            cuda_compile_units(&n, &units, want, &headers, target, &(DevOptions) { 0 }, cubin, 0,
                               &e))
                printf("%s%s [%s] %s: %s\n", path, what, config_name, target,
                       cubin && want ? e.msg : "no memory");
        else
                for (int i = 0; i < units.n; i++)
                        if (want[i])
                                printf("%s%s [%s] %s %s %016llx\n", path, what, config_name, target,
                                       units.file[i].name,
                                       (unsigned long long)code_hash(cubin[i].data, cubin[i].size));
        cubins_free(cubin, units.n);
        free(want);
        pack_free(&units);
        pack_free(&headers);
}

static void one(const char *path, const Config *c, const char *const *define, int n_define,
                const char *what, const char *header)
{
        const char *copy[4];
        memcpy(copy, define, (size_t)n_define * sizeof *copy);
        BuildOptions o = { .kind = MODEL_LUA,
                           .model = path,
                           .dtype = c->dtype,
                           .define = copy,
                           .n_define = n_define,
                           .mode = c->mode,
                           .opt = c->opt,
                           .batch = c->batch,
                           .ctx = c->ctx,
                           .block = c->block,
                           .tf32 = c->tf32,
                           .cuda = true,
                           .cpu = true,
                           .documents = c->documents ? &(int) { 0 } : NULL };
        Plan p = { 0 };
        Err e;
        if (build_plan(&p, &o, &e) || plan_add_headers(&p, &e)) {
                printf("%s%s [%s]: %s\n", path, what, c->name, e.msg);
                return;
        }
        for (int i = 0; i < p.n_sections; i++)
                if (!strncmp(p.section[i].name, "program", 7))
                        printf("%s%s [%s] %s %016llx\n", path, what, c->name, p.section[i].name,
                               (unsigned long long)XXH3_64bits(p.section[i].data,
                                                               p.section[i].size));
        for (int t = 0; t < 2; t++) {
                Pack units, headers;
                const char *target = t ? "cpu" : "cuda";
                if (plan_source(&p, target, &units, &headers, &e)) {
                        printf("%s%s [%s] %s: %s\n", path, what, c->name, target, e.msg);
                        continue;
                }
                for (int i = 0; getenv("TGC_HASH_TEXT") && i < units.n; i++)
                        printf("%s%s [%s] text %s %s %016llx\n", path, what, c->name, target,
                               units.file[i].name,
                               (unsigned long long)text_hash(units.file[i].data));
                pack_free(&units);
                pack_free(&headers);
        }
        for (size_t a = 0; !getenv("TGC_HASH_TEXT") && a < sizeof arch / sizeof *arch; a++)
                compile_units(&p, arch[a], path, what, c->name, header);
        plan_close(&p);
        fflush(stdout);
}

/* Whether `tgc help models` lists a file: the others of models/ are what models are made with. */
static bool makes_a_graph(const char *path)
{
        const char *file = strrchr(path, '/') + 1;
        char name[64], *argv[] = { "tgc", "help", "models", name };
        int status = 0;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(file, "."), file);
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
                if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
                        _exit(99);
                _exit(tgc_main(4, argv));
        }
        waitpid(pid, &status, 0);
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
        static const char *const small[] = { "n_layer=1", "vocab=8195" };
        glob_t models;
        glob("models/*.lua", 0, NULL, &models);
        for (size_t i = 0; i < models.gl_pathc; i++) {
                const char *path = models.gl_pathv[i];
                if ((argc > 1 && !strstr(path, argv[1])) || !makes_a_graph(path))
                        continue;
                for (size_t c = 0; c < sizeof config / sizeof *config; c++) {
                        char ctx[24];
                        const char *define[] = { small[0], small[1], ctx };
                        if (argc > 2 && !strstr(config[c].name, argv[2]))
                                continue;
                        if (!config[c].all && !strstr(path, "/gpt.lua") &&
                            !strstr(path, "/llama.lua") && !strstr(path, "/moe.lua"))
                                continue;
                        snprintf(ctx, sizeof ctx, "ctx=%d", config[c].ctx);
                        one(path, &config[c], define, 3, "", argc > 3 ? argv[3] : "");
                }
        }
        return 0;
}
