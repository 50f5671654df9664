/* cmd_export.c: tgc export: a plan as a Hugging Face folder, or its weights alone. */
#include <stdlib.h>
#include <string.h>
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

static bool is_file(const char *out)
{
        size_t n = strlen(out);
        return n > 12 && !strcmp(out + n - 12, ".safetensors");
}

/* What a folder lacks, by name. */
static void say_missing(const Progress *talk, const Loaded *l, const char *folder, bool config,
                        bool tokenizer)
{
        if (!config)
                say(talk,
                    "%s: no config.json: the plan has none, as its model is no Hugging Face folder, or was "
                    "changed by -D or --model; --config FILE puts one there\n",
                    folder);
        if (!tokenizer && l->tok)
                say(talk,
                    "%s: no tokenizer: the plan's own is not kept as a file; give `tgc run` --tokenizer FILE\n",
                    folder);
}

static int write_folder(const Loaded *l, const Args *a, const char *folder, const char *dtype,
                        Err *e)
{
        const bool all = !opt_flag(a, O_WEIGHTS_ONLY);
        const char *own = opt_str(a, O_CONFIG);
        Progress talk = progress_new(a);
        char stored[32] = "f32", *path = file_join(folder, "model.safetensors");
        bool config = false, tokenizer = false;
        int code = path ? make_folder(folder, e)
                        : err_set(e, TGC_NO_MEMORY, "%s: no memory", folder);
        manifest_word(&l->plan, "dtype", stored, sizeof stored);
        if (!code)
                code = weights_export(&l->plan, path, dtype, e);
        if (!code && all)
                code = model_files_write(l, folder, dtype ? dtype : stored, &config, &tokenizer, e);
        if (!code && own)
                code = copy_config(own, folder, e);
        if (!code)
                say(&talk, "%s: written\n", path);
        if (!code && all)
                say_missing(&talk, l, folder, config || own, tokenizer);
        free(path);
        return code;
}

int cmd_export(const Args *a, Err *e)
{
        const char *out = opt_str(a, O_OUT),
                   *dtype = opt_set(a, O_DTYPE) ? opt_str(a, O_DTYPE) : NULL;
        Progress talk = progress_new(a);
        Loaded l;
        if (!out)
                return err_set(e, TGC_USAGE, "export: where to? tgc export %s -o FOLDER",
                               a->pos[0]);
        const bool file = is_file(out) && !file_is_dir(out);
        if (file && opt_str(a, O_CONFIG))
                return err_set(e, TGC_USAGE, "export: --config has no effect: %s is no folder",
                               out);
        Args plain = *a; /* here --dtype is the file's, not the plan's */
        plain.v[O_DTYPE].set = false;
        int code = load(&l, &plain, &(LoadHow) { 0 }, e);
        if (code)
                return code;
        if (!file)
                code = write_folder(&l, a, out, dtype, e);
        else if (!(code = weights_export(&l.plan, out, dtype, e)))
                say(&talk, "%s: written\n", out);
        loaded_free(&l);
        return code;
}
