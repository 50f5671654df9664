/* test_ptx.c: NVRTC and its assembler take tgc.cuh and all of ptx.cuh, for every
 * architecture of interest.  Needs a CUDA toolkit, no GPU. */
#include <dlfcn.h>
#include <stdlib.h>
#include "test.h"

typedef struct Nvrtc {
        void *lib;
        int (*create)(void **prog, const char *src, const char *name, int n, const char **headers,
                      const char **names);
        int (*compile)(void *prog, int n, const char **options);
        int (*log_size)(void *prog, size_t *size);
        int (*log)(void *prog, char *log);
        int (*cubin_size)(void *prog, size_t *size);
        int (*destroy)(void **prog);
} Nvrtc;

static const char *cuda_home(void)
{
        const char *home = getenv("CUDA_HOME");
        return home ? home : "/usr/local/cuda";
}

static const Nvrtc *nvrtc(void)
{
        static Nvrtc n;
        static const char *name[] = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", 0 };
        char path[512];
        if (n.lib)
                return &n;
        for (int i = 0; name[i] && !n.lib; i++)
                n.lib = dlopen(name[i], RTLD_NOW);
        snprintf(path, sizeof path, "%s/lib64/libnvrtc.so", cuda_home());
        if (!n.lib)
                n.lib = dlopen(path, RTLD_NOW);
        snprintf(path, sizeof path, "%s/include/cuda_fp16.h", cuda_home());
        FILE *f = fopen(path, "r");
        if (!n.lib || !f)
                SKIP("no NVRTC, or no CUDA headers (CUDA_HOME)");
        fclose(f);
        *(void **)&n.create = dlsym(n.lib, "nvrtcCreateProgram");
        *(void **)&n.compile = dlsym(n.lib, "nvrtcCompileProgram");
        *(void **)&n.log_size = dlsym(n.lib, "nvrtcGetProgramLogSize");
        *(void **)&n.log = dlsym(n.lib, "nvrtcGetProgramLog");
        *(void **)&n.cubin_size = dlsym(n.lib, "nvrtcGetCUBINSize");
        *(void **)&n.destroy = dlsym(n.lib, "nvrtcDestroyProgram");
        return &n;
}

/* Compile the file to machine code; a warning counts as a failure too. */
static void compiles(const char *file, const char *arch, int sm90a)
{
        const Nvrtc *n = nvrtc();
        char src[600], gpu[64], inc[600], *log;
        size_t size = 0, cubin = 0;
        void *prog;
        snprintf(src, sizeof src, "#include \"%s\"\n", file);
        snprintf(gpu, sizeof gpu, "--gpu-architecture=%s", arch);
        snprintf(inc, sizeof inc, "-I%s/include", cuda_home());
        const char *opt[] = { gpu,
                              inc,
                              "-std=c++17",
                              "-Icodegen/kernels/common",
                              "-Iruntime",
                              "-Itests/emulate",
                              "-DTGC_SM90A=1" };
        CHECK(n->create(&prog, src, "unit.cu", 0, NULL, NULL) == 0);
        int rc = n->compile(prog, sm90a ? 7 : 6, opt);
        n->log_size(prog, &size);
        log = calloc(1, size + 1);
        n->log(prog, log);
        CHECK_MSG(rc == 0 && !strstr(log, "error") && !strstr(log, "warning"), "%s for %s: %s",
                  file, arch, log);
        CHECK(n->cubin_size(prog, &cubin) == 0 && cubin > 0);
        n->destroy(&prog);
        free(log);
}

TEST (portable_sm_80) {
        compiles("kernels.cuh", "sm_80", 0);
}
TEST (portable_sm_90) {
        compiles("kernels.cuh", "sm_90", 0);
}
TEST (portable_sm_120) {
        compiles("kernels.cuh", "sm_120", 0);
}
TEST (hopper_sm_90a) {
        compiles("hopper.cu", "sm_90a", 1);
}

TEST_MAIN
