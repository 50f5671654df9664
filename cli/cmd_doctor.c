/* cmd_doctor.c: tgc doctor: prints what this machine offers, and how to get what is missing. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../runtime/device/cache.h"
#include "../runtime/util/file.h"
#include "load/open.h"

static int cc(char *out, size_t cap, Err *e) { return host_cc_describe(out, cap, 0, e); }

static int cxx(char *out, size_t cap, Err *e) { return host_cc_describe(out, cap, 1, e); }

static int cache(char *out, size_t cap, Err *e)
{
        char dir[4096];
        cache_dir(dir, sizeof dir);
        bool read_only = *dir && file_is_dir(dir) && !access(dir, R_OK | X_OK) && access(dir, W_OK);
        CacheUse u;
        char have[32], most[32];
        int code = cache_try(e);
        if (code && !read_only)
                return code;
        cache_use(&u);
        snprintf(out, cap, "%s%s, %d entries, %s of at most %s", dir,
                 read_only ? " (read only)" : "", u.entries,
                 text_bytes(have, sizeof have, (double)u.bytes),
                 u.most == UINT64_MAX ? "any number"
                                      : text_bytes(most, sizeof most, (double)u.most));
        return TGC_OK;
}

static int memory(char *out, size_t cap, Err *e)
{
        Device *d;
        uint64_t free_bytes, total;
        char f[32], t[32];
        int code = dev_open(&d, DEV_CPU, NULL, e);
        if (code)
                return code;
        if (!(code = dev_memory(d, &free_bytes, &total, e)))
                snprintf(out, cap, "%s, %s of %s free", dev_name(d),
                         text_bytes(f, sizeof f, (double)free_bytes),
                         text_bytes(t, sizeof t, (double)total));
        dev_close(d);
        return code;
}

/* advice: what is missing without it. */
static const struct Probe {
        const char *name;
        int (*probe)(char *out, size_t cap, Err *e);
        const char *advice;
} probe[] = {
        { "GPU", cuda_describe, "the CPU will be used; for a GPU install NVIDIA's driver" },
        { "NVRTC", nvrtc_describe,
          "plans need a cubin for their GPU; install the CUDA toolkit or nvidia-cuda-nvrtc" },
        { "C compiler", cc,
          "--device cpu needs one, unless the plan was compiled with --target cpu" },
        { "C++ compiler", cxx, "--device emulate needs one" },
        { "cache", cache,
          "kernels will be compiled again every time; set TGC_CACHE_DIR to a folder that can be "
          "written" },
        { "CPU", memory, "" }
};

int cmd_doctor(const Args *a, Err *e)
{
        cJSON *o = opt_flag(a, O_JSON) ? cJSON_CreateObject() : NULL;
        bool usable[sizeof probe / sizeof *probe];
        for (size_t i = 0; i < sizeof probe / sizeof *probe; i++) {
                char text[1024] = "";
                Err why = { 0 };
                int code = probe[i].probe(text, sizeof text, &why);
                usable[i] = !code;
                if (code == TGC_NO_MEMORY) {
                        cJSON_Delete(o);
                        *e = why;
                        return code;
                }
                if (o) {
                        cJSON *x = cJSON_AddObjectToObject(o, probe[i].name);
                        cJSON_AddBoolToObject(x, "usable", usable[i]);
                        cJSON_AddStringToObject(x, "text", usable[i] ? text : why.msg);
                } else if (usable[i]) {
                        print("%-13s ok       %s\n", probe[i].name, text);
                } else {
                        print("%-13s missing  %s\n%23s%s\n", probe[i].name, why.msg, "",
                              probe[i].advice);
                }
        }
        if (o) {
                int code = json_print(o, e);
                if (code)
                        return code;
        }
        if (!(usable[0] && usable[1]) && !usable[2])
                return err_set(e, TGC_NO_DEVICE,
                               "neither a GPU with NVRTC nor a C compiler: nothing can run here");
        return TGC_OK;
}
