/* test_emulate.c: builds tests/emulate with the host's C++ compiler and runs it, in several thread
 * orders, and with sanitizers where SAN is set; then loads two units as one object.  The emulator
 * itself is compiled once. */
#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <unistd.h>
#include "test.h"
#include "runtime/rt.h"

#define WARNINGS                                                 \
        "-Wall -Wextra -Werror -Wno-unknown-pragmas -Wno-psabi " \
        "-Wno-unknown-warning-option -Wno-format-overflow "
#define FLAGS                                                      \
        "-std=c++17 -fno-strict-aliasing -fPIC -fopenmp " WARNINGS \
        "-Icodegen/forms " KERNEL_INCLUDES " -Iruntime -Iruntime/weights -Itests "
#define EMULATE "codegen/kernels/emulate/"

static bool there(const char *compiler)
{
        char cmd[600];
        snprintf(cmd, sizeof cmd, "command -v %s >/dev/null 2>&1", compiler);
        return system(cmd) == 0;
}

static const char *cxx(void)
{
        static const char *name[] = { "g++", "c++", "clang++", 0 };
        const char *env = getenv("CXX");
        if (env && *env)
                return env;
        for (int i = 0; name[i]; i++)
                if (there(name[i]))
                        return name[i];
        SKIP("no C++ compiler");
        return 0;
}

/* A folder for this process, removed at exit. */
static char folder[300];

static void folder_remove(void)
{
        char cmd[400];
        snprintf(cmd, sizeof cmd, "rm -rf '%s'", folder);
        if (system(cmd) != 0)
                fprintf(stderr, "cannot remove %s\n", folder);
}

static void folder_make(void)
{
        const char *tmp = getenv("TMPDIR");
        if (folder[0])
                return;
        snprintf(folder, sizeof folder, "%s/emulate.XXXXXX", tmp ? tmp : "/tmp");
        if (!mkdtemp(folder)) {
                folder[0] = 0;
                SKIP("no folder for temporary files");
        }
        atexit(folder_remove);
}

static void must(const char *cmd) { CHECK_MSG(system(cmd) == 0, "failed: %s", cmd); }

static void build_by(const char *compiler, const char *flags, const char *sources, const char *out)
{
        static bool made[2];
        const bool sanitized = strstr(flags, "-fsanitize");
        char cmd[2000];
        folder_make();
        if (!made[sanitized]) {
                snprintf(cmd, sizeof cmd,
                         "%s " FLAGS " -O2 %s -c " EMULATE "emulate_core.cpp -o '%s/core%d.o'",
                         cxx(), sanitized ? flags : "", folder, sanitized);
                must(cmd);
                made[sanitized] = true;
        }
        snprintf(cmd, sizeof cmd,
                 "%s " FLAGS " %s -x c++ -include " EMULATE
                 "emulate.h %s -x none '%s/core%d.o' -o '%s/%s'",
                 compiler, flags, sources, folder, sanitized, folder, out);
        must(cmd);
}

static void build(const char *flags, const char *sources, const char *out)
{
        build_by(cxx(), flags, sources, out);
}

/* Run the program in one thread order, by so many host threads; its own failures are printed on
 * ours. */
static void run_on(const char *program, const char *order, int threads)
{
        char cmd[1000];
        snprintf(cmd, sizeof cmd, "OMP_NUM_THREADS=%d TGC_EMULATE_ORDER=%s '%s/%s' >'%s/out' 2>&1",
                 threads, order, folder, program, folder);
        if (system(cmd) == 0)
                return;
        snprintf(cmd, sizeof cmd, "grep -v '^ok ' '%s/out' | head -40", folder);
        CHECK(system(cmd) == 0);
        CHECK_MSG(0, "%s fails in order %s", program, order);
}

static void run(const char *program, const char *order) { run_on(program, order, 1); }

/* The last with blocks in parallel. */
TEST (kernels_in_every_order) {
        static const char *order[] = { "forward", "backward", "1", "2", "3" };
        build("-O1", "tests/emulate/kernels.cu", "kernels");
        for (int i = 0; i < 5; i++)
                run("kernels", order[i]);
        run_on("kernels", "forward", 4);
}

TEST (kernels_under_sanitizers) {
        if (!getenv("SAN"))
                SKIP("SAN is not set");
        build("-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all",
              "tests/emulate/kernels.cu", "sanitized");
        run("sanitized", "forward");
        run("sanitized", "4");
}

/* A program in the orders that hide the least.  clang, where it is, takes a tenth of the time of
 * optimisation at -O0; `runs_long` is of programs that make up for it. */
static void play_as(bool runs_long, const char *flags, const char *source)
{
        static const char *order[] = { "backward", "1" };
        const char *env = getenv("CXX");
        const char *by = !(env && *env) && there("clang++") ? "clang++" : cxx();
        char all[300];
        snprintf(all, sizeof all, "-w %s %s",
                 runs_long             ? "-O1"
                 : strstr(by, "clang") ? "-O0"
                                       : "-Og",
                 flags);
        build_by(by, all, source, "played");
        for (int i = 0; i < 2; i++)
                run("played", order[i]);
}

static void play(const char *source) { play_as(false, "", source); }
static void play_long(const char *source) { play_as(true, "", source); }

/* Hopper's instructions, and mistakes with them. */
TEST (what_is_late) {
        play("tests/emulate/late_test.cu");
}
TEST (single_wave_gemms) {
        play("tests/emulate/short_test.cu");
}
TEST (products_in_batches) {
        play_long("tests/emulate/batch_test.cu");
}
TEST (products_of_few_rows) {
        play_long("tests/emulate/rows_gemm_test.cu");
}
TEST (products_with_weights_in_blocks) {
        play("tests/emulate/stored_gemm_test.cu");
        play("tests/emulate/fp8_gemm_test.cu");
        play_long("tests/emulate/stored_stream_test.cu");
}
TEST (gemvs_with_weights_in_blocks) {
        play("tests/emulate/stored_gemv_test.cu");
        play_as(false, "-DTGC_SM90A=1 -DSOME_TYPES", "tests/emulate/stored_gemv_test.cu");
        play_as(false, "-DSOME_TYPES", "tests/emulate/stored_gemv_sm90_test.cu");
}
TEST (results_by_the_copy_engine) {
        play("tests/emulate/boxes_test.cu");
}
TEST (attention_in_clusters) {
        play("tests/emulate/attend_test.cu");
}
TEST (decode_attention_in_clusters) {
        play("tests/emulate/attend_decode_test.cu");
}

TEST (sampler) {
        build("-w -O1", "tests/emulate/sample_test.cu", "sampler");
        run("sampler", "1");
}

/* Every kernel family's own program, tests/emulate/NAME_test.cu: most of a minute
 * of compiling.  A random order shows what the forward one hides. */
TEST (families) {
        static const char *order[] = { "1", "forward", "backward", "2" };
        glob_t found;
        if (!getenv("FULL") && !getenv("SAN"))
                SKIP("neither FULL nor SAN is set");
        CHECK(glob("tests/emulate/*_test.cu", 0, NULL, &found) == 0);
        for (size_t i = 0; i < found.gl_pathc; i++) {
                build("-w -O1", found.gl_pathv[i], "family");
                for (int j = 0; j < 4; j++)
                        run("family", order[j]);
        }
        globfree(&found);
}

/* Two units in one object share the launcher and see each other's kernels. */
TEST (two_units_in_one_object) {
        typedef int Launch(const char *, unsigned, unsigned, unsigned, void **, int, char *, int);
        static Rt rt;
        static unsigned y[16] __attribute__((aligned(16)));
        void *args[2] = { &rt, y };
        char path[400], err[600] = "";
        Launch *launch;
        build("-O1 -shared", "tests/emulate/kernels.cuh tests/emulate/wrong.cuh", "units.so");
        snprintf(path, sizeof path, "%s/units.so", folder);
        for (int i = 0; i < 2; i++) { /* and it can be loaded again */
                void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
                CHECK_MSG(so, "%s", dlerror());
                *(void **)&launch = dlsym(so, "tgc_emulate_launch");
                CHECK(launch);
                y[0] = 0;
                CHECK_MSG(launch("k_philox", 1, 32, 0, args, 2, err, sizeof err) == 0, "%s", err);
                CHECK(y[0] == 0x6627e8d5 && y[7] == 0x6d5451fd);
                CHECK(launch("w_half_barrier", 1, 64, 1024, args, 2, err, sizeof err) == 1);
                CHECK_MSG(strstr(err, "w_half_barrier: block 0: divergent barrier"), "%s", err);
                dlclose(so);
        }
}

TEST_MAIN
