/* cuda_api.c: finds and opens libcuda and libnvrtc.  Neither is closed again, since the driver
 * keeps threads. */
#include "cuda_api.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "device.h"

/* POSIX lets a function pointer be stored through a void pointer's bytes. */
static int get_symbol(void *lib, const char *name, void *to)
{
        void *sym = dlsym(lib, name);
        memcpy(to, &sym, sizeof sym);
        return sym != 0;
}

int cuda_api_open(Cuda *c, Err *e)
{
        *c = (Cuda) { 0 };
        void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NODELETE);
        if (!lib)
                return err_set(e, TGC_NO_DEVICE,
                               "no NVIDIA driver: libcuda.so.1 cannot be opened (%s)", dlerror());
#define F(name, args)                                                                             \
        if (!get_symbol(lib, #name, &c->name))                                                    \
                return err_set(e, TGC_NO_DEVICE,                                                  \
                               "the NVIDIA driver is too old: it has no %s; CUDA 12 or later is " \
                               "needed",                                                          \
                               #name);
        CUDA_FUNCTIONS(F)
#undef F
        CUresult r = c->cuInit(0);
        c->cuDriverGetVersion(&c->driver);
        if (r == CUDA_ERROR_NO_DEVICE)
                return err_set(e, TGC_NO_DEVICE, "the NVIDIA driver finds no GPU%s",
                               getenv("CUDA_VISIBLE_DEVICES") ? " (CUDA_VISIBLE_DEVICES is set)"
                                                              : "");
        if (r) {
                const char *name = "?", *text = "?";
                c->cuGetErrorName(r, &name);
                c->cuGetErrorString(r, &text);
                return err_set(e, TGC_NO_DEVICE, "the NVIDIA driver does not start: %s (%s)", text,
                               name);
        }
        return TGC_OK;
}

int cuda_describe(char *out, size_t cap, Err *e)
{
        Cuda c;
        int n = 0, code = cuda_api_open(&c, e);
        *out = 0;
        if (code)
                return code;
        c.cuDeviceGetCount(&n);
        snprintf(out, cap, "driver for CUDA %d.%d, %d GPU%s", c.driver / 1000, c.driver % 1000 / 10,
                 n, n == 1 ? "" : "s");
        return TGC_OK;
}

/* ---- NVRTC ---- */

/* NVRTC opens its builtins by name when it compiles, and its own folder is not on
 * the loader's path: open them first. */
static void preload_builtins(const Nvrtc *n, const char *dir)
{
        char path[640];
        snprintf(path, sizeof path, "%s/libnvrtc-builtins.so.%d.%d", dir, n->major, n->minor);
        if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE)) {
                snprintf(path, sizeof path, "%s/libnvrtc-builtins.so", dir);
                dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
        }
}

static const char *const home_vars[] = { "TGC_CUDA_HOME", "CUDA_HOME", "CUDA_PATH" };
enum { N_HOMES = 3 };

static int try_include(Nvrtc *n, const char *base, const char *tail)
{
        char path[640];
        if (snprintf(path, sizeof path, "%s%s/cuda_fp16.h", base, tail) >= (int)sizeof n->include ||
            access(path, R_OK))
                return 0;
        snprintf(n->include, sizeof n->include, "%.400s%s", base, tail);
        return 1;
}

static void find_include(Nvrtc *n, const char *dir)
{
        static const char *const beside[] = { "/../include", "/../../../include",
                                              "/../../cuda_runtime/include" };
        for (int i = 0; i < N_HOMES; i++) {
                const char *home = getenv(home_vars[i]);
                if (home && *home && try_include(n, home, "/include"))
                        return;
        }
        for (int i = 0; i < 3; i++)
                if (try_include(n, dir, beside[i]))
                        return;
        if (!try_include(n, "/usr/local/cuda", "/include"))
                try_include(n, "/usr", "/include");
}

static int try_nvrtc(Nvrtc *n, const char *path, char *why, size_t cap)
{
        Dl_info info;
        void *lib = dlopen(path, RTLD_NOW | RTLD_NODELETE);
        if (!lib) {
                const char *msg = dlerror();
                if (!*why || strstr(why, "No such file") || strstr(why, "cannot open shared"))
                        snprintf(why, cap, "%s", msg ? msg : path);
                return 0;
        }
#define F(name, args)                                            \
        if (!get_symbol(lib, #name, &n->name)) {                 \
                snprintf(why, cap, "%s has no %s", path, #name); \
                return 0;                                        \
        }
        NVRTC_FUNCTIONS(F)
#undef F
        n->nvrtcVersion(&n->major, &n->minor);
        void *sym;
        memcpy(&sym, &n->nvrtcVersion, sizeof sym);
        char dir[512] = "";
        if (dladdr(sym, &info) && info.dli_fname && strchr(info.dli_fname, '/')) {
                char *real = realpath(info.dli_fname, 0);
                snprintf(n->path, sizeof n->path, "%s", real ? real : info.dli_fname);
                free(real);
                snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(n->path, '/') - n->path), n->path);
        } else
                snprintf(n->path, sizeof n->path, "%s", path);
        preload_builtins(n, dir);
        find_include(n, dir);
        return 1;
}

int nvrtc_open(Nvrtc *n, int driver, Err *e)
{
        static const char *const lib_dirs[] = { "/lib64", "/lib", "/targets/x86_64-linux/lib",
                                                "/targets/sbsa-linux/lib" };
        const char *name[] = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so" };
        const char *homes[N_HOMES + 2], *own = getenv("TGC_NVRTC");
        char path[640], why[300] = "";
        int n_homes = 0;

        *n = (Nvrtc) { 0 };
        if (driver && driver < 13000) {
                name[0] = "libnvrtc.so.12";
                name[1] = "libnvrtc.so.13";
        }
        if (own && *own)
                return try_nvrtc(n, own, why, sizeof why)
                               ? TGC_OK
                               : err_set(e, TGC_NO_DEVICE, "TGC_NVRTC: %s", why);
        for (int i = 0; i < N_HOMES; i++)
                if ((homes[n_homes] = getenv(home_vars[i])) && *homes[n_homes])
                        n_homes++;
        homes[n_homes++] = 0; /* the loader's own places */
        homes[n_homes++] = "/usr/local/cuda";
        for (int i = 0; i < n_homes; i++)
                for (int k = 0; k < 3; k++)
                        for (int j = 0; j < (homes[i] ? 4 : 1); j++) {
                                snprintf(path, sizeof path, "%.400s%s%s%s",
                                         homes[i] ? homes[i] : "", homes[i] ? lib_dirs[j] : "",
                                         homes[i] ? "/" : "", name[k]);
                                if (try_nvrtc(n, path, why, sizeof why))
                                        return TGC_OK;
                        }
        return err_set(
                e, TGC_NO_DEVICE,
                "NVRTC, CUDA's run-time compiler, is not found (%s); install the CUDA toolkit "
                "12 or 13 or set CUDA_HOME",
                why);
}

int nvrtc_describe(char *out, size_t cap, Err *e)
{
        Nvrtc n;
        int code = nvrtc_open(&n, 0, e);
        *out = 0;
        if (!code)
                snprintf(out, cap, "NVRTC %d.%d in %s, headers in %s", n.major, n.minor, n.path,
                         *n.include ? n.include : "no known place");
        return code;
}
