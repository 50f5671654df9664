/* targets.c: adds a plan's kernel headers and machine code. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/device/device.h"
#include "load.h"
#include "../embedded.h"

static int add_headers(Plan *p, const char *section, const struct EmbeddedFile *file, Err *e)
{
        int n = 0, code;
        void *blob;
        size_t size;
        while (file[n].name)
                n++;
        PackFile *pack = calloc((size_t)n + 1, sizeof *pack);
        if (!pack)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", section);
        for (int i = 0; i < n; i++) {
                const char *slash = strrchr(file[i].name, '/');
                snprintf(pack[i].name, sizeof pack[i].name, "%s", slash ? slash + 1 : file[i].name);
                pack[i].data = file[i].text;
                pack[i].size = file[i].n;
        }
        code = pack_write(pack, n, &blob, &size, e);
        free(pack);
        if (code)
                return code == TGC_STOPPED ? 128 + signal_seen() : code;
        code = plan_add(p, section, blob, size, e);
        free(blob);
        return code;
}

int plan_add_headers(Plan *p, Err *e)
{
        int code = plan_find(p, "source.cuda")
                           ? add_headers(p, "headers.cuda", kernel_files_cuda, e)
                           : TGC_OK;
        if (!code && plan_find(p, "source.cpu"))
                code = add_headers(p, "headers.cpu", kernel_files_cpu, e);
        return code;
}

int plan_add_target(Plan *p, const char *target, Err *e)
{
        char section[32] = "object.cpu";
        void *pack;
        size_t size;
        int code;
        if (!strcmp(target, "cpu")) {
                code = cpu_compile_plan(p, 0, signals_stop(), &pack, &size, e);
        } else {
                snprintf(section, sizeof section, "cubin.%.16s", target);
                code = cuda_compile_plan(p, target, 0, &pack, &size, e);
        }
        if (code)
                return code == TGC_STOPPED ? 128 + signal_seen() : code;
        code = plan_add(p, section, pack, size, e);
        free(pack);
        return code;
}
