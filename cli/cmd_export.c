/* cmd_export.c: tgc export: a plan's weights as a Hugging Face folder. */
#include <stdlib.h>
#include "../runtime/util/file.h"
#include "work.h"

static int copy_config(const char *from, const char *folder, Err *e)
{
        char *text, *to = file_join(folder, "config.json");
        size_t n;
        int code = to ? file_read_text(from, 1 << 20, &text, &n, e)
                      : err_set(e, TGC_NO_MEMORY, "%s: no memory", from);
        if (!code) {
                code = file_write_atomic(to, text, n, e);
                free(text);
        }
        free(to);
        return code;
}

int cmd_export(const Args *a, Err *e)
{
        const char *folder = opt_str(a, O_OUT),
                   *dtype = opt_set(a, O_DTYPE) ? opt_str(a, O_DTYPE) : NULL;
        Progress talk = progress_new(a);
        Loaded l;
        if (!folder)
                return err_set(e, TGC_USAGE, "export: where to? tgc export %s -o FOLDER",
                               a->pos[0]);
        Args plain = *a; /* here --dtype is the file's, not the plan's */
        plain.v[O_DTYPE].set = false;
        int code = load(&l, &plain, &(LoadHow) { 0 }, e);
        if (code)
                return code;
        char *path = file_join(folder, "model.safetensors");
        if (!path)
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", folder);
        else if (!(code = make_folder(folder, e)))
                code = weights_export(&l.plan, path, dtype, e);
        if (!code && opt_str(a, O_CONFIG))
                code = copy_config(opt_str(a, O_CONFIG), folder, e);
        if (!code)
                say(&talk, "%s: written\n", path);
        free(path);
        loaded_free(&l);
        return code;
}
