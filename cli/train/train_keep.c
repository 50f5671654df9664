/* train_keep.c: --keep K: keeps the last K checkpoints under names of their own, and the best one.
 *
 * The state belongs to ckpt.safetensors (or the adapter).  ckpt-STEP.safetensors (adapter-STEP) and
 * best.safetensors (adapter-best) are hard links to such files, or copies on file systems without
 * links.  They are made after the state.  A run that is killed in between lacks one of them and
 * nothing else. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../runtime/util/c_locale.h"
#include "../../runtime/util/file.h"
#include "train.h"

static int copy(const char *from, const char *to, Err *e)
{
        FileMap m;
        int code = file_map(&m, from, e);
        if (code)
                return code;
        code = file_write_atomic(to, m.data, m.size, e);
        file_unmap(&m);
        return code;
}

static int link_file(const char *dir, const char *from, const char *to, Err *e)
{
        char *a = file_join(dir, from), *b = file_join(dir, to);
        int code = a && b ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        if (!code && unlink(b) && errno != ENOENT)
                code = err_set(e, TGC_IO, "%s: %s", b, strerror(errno));
        if (!code && link(a, b))
                code = copy(a, b, e);
        free(a);
        free(b);
        return code;
}

static const char *const in_adapter[] = { "adapter_config.json", "adapter_model.safetensors" };

/* Under the name of this checkpoint: a step, or "best". */
static int keep_as(const Train *t, bool lora, const char *which, Err *e)
{
        const char *dir = opt_str(t->a, O_OUT_DIR);
        char to[128], from[128];
        if (!lora) {
                snprintf(to, sizeof to,
                         strcmp(which, "best") ? "ckpt-%.60s.safetensors" : "%.60s.safetensors",
                         which);
                return link_file(dir, "ckpt.safetensors", to, e);
        }
        snprintf(to, sizeof to, "adapter-%.60s", which);
        char *folder = file_join(dir, to);
        int code = folder ? make_folder(folder, e) : err_set(e, TGC_NO_MEMORY, "no memory");
        for (int i = 0; i < 2 && !code; i++) {
                snprintf(from, sizeof from, "adapter/%s", in_adapter[i]);
                snprintf(to, sizeof to, "adapter-%.60s/%s", which, in_adapter[i]);
                code = link_file(dir, from, to, e);
        }
        free(folder);
        return code;
}

/* The step of a kept file or folder; -1: it is another one. */
static int64_t step_of(const char *name, bool lora)
{
        const char *head = lora ? "adapter-" : "ckpt-", *tail = lora ? "" : ".safetensors";
        const size_t n = strlen(head);
        char *end;
        if (strncmp(name, head, n) || name[n] < '0' || name[n] > '9')
                return -1;
        const long long step = strtoll(name + n, &end, 10);
        return strcmp(end, tail) ? -1 : step;
}

static int drop(const char *dir, const char *name, bool lora, Err *e)
{
        char *path = file_join(dir, name);
        int code = path ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        for (int i = 0; i < 2 && lora && !code; i++) {
                char *file = file_join(path, in_adapter[i]);
                if (!file)
                        code = err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
                else
                        unlink(file);
                free(file);
        }
        if (!code && (lora ? rmdir(path) : unlink(path)) && errno != ENOTEMPTY && errno != ENOENT)
                code = err_set(e, TGC_IO, "%s: %s", path, strerror(errno));
        free(path);
        return code;
}

/* All but the last K; those of later steps are of a run that was there before. */
static int drop_old(const Train *t, int64_t now, bool lora, Err *e)
{
        const char *dir = opt_str(t->a, O_OUT_DIR);
        const int keep = opt_int(t->a, O_KEEP);
        for (;;) {
                DIR *d = opendir(dir);
                char least[256] = "";
                int64_t first = INT64_MAX;
                int n = 0;
                if (!d)
                        return err_set(e, errno == ENOMEM ? TGC_NO_MEMORY : TGC_IO, "%s: %s", dir,
                                       strerror(errno));
                for (struct dirent *x; (x = readdir(d));) {
                        const int64_t step = step_of(x->d_name, lora);
                        const bool later = step > now;
                        if (step < 0)
                                continue;
                        n += later ? keep + 1 : 1;
                        if (later || step < first) {
                                first = later ? -1 : step;
                                snprintf(least, sizeof least, "%s", x->d_name);
                        }
                }
                closedir(d);
                int code = n > keep ? drop(dir, least, lora, e) : TGC_OK;
                if (code || n <= keep)
                        return code;
        }
}

int keep_checkpoint(const Train *t, int64_t now, bool lora, bool improved, Err *e)
{
        char step[32];
        if (!opt_int(t->a, O_KEEP))
                return TGC_OK;
        snprintf(step, sizeof step, "%lld", (long long)now);
        int code = keep_as(t, lora, step, e);
        if (!code && improved)
                code = keep_as(t, lora, "best", e);
        return code ? code : drop_old(t, now, lora, e);
}

/* "90", "90s", "15m", "2.5h"; seconds, 0: none */
int read_max_time(const Args *a, double *seconds, Err *e)
{
        const char *s = opt_str(a, O_MAX_TIME);
        char *end;
        *seconds = 0;
        if (!s)
                return TGC_OK;
        *seconds = c_strtod(s, &end);
        const double unit = !strcmp(end, "h") ? 3600 : !strcmp(end, "m") ? 60 : 1;
        if (end == s || (*end && unit == 1 && strcmp(end, "s")) || !(*seconds > 0) ||
            *seconds > 1e9)
                return err_set(e, TGC_USAGE, "--max_time %.40s: give a time, as 90, 15m or 2.5h",
                               s);
        *seconds *= unit;
        return TGC_OK;
}
