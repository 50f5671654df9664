/* outputs.c: refuses an output that is a file which the same command reads, or whose folder is not
 * there: that is better said before the work than behind it.
 *
 * Two paths are the same file if device and inode agree.  A plan may be written over itself
 * (compile adds code to it, tune compiles it again); no other file may, and no folder of weights
 * may. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../runtime/util/file.h"
#include "../runtime/util/line_reader.h"
#include "load/load.h"

static const OptionId outputs[] = { O_OUT,       O_LOGITS, O_SAVE_BASE, O_LOG_CSV, O_SUMMARY_CSV,
                                    O_GRADS_OUT, O_D_HTML, O_CHAT_LOG,  O_GGUF };
enum { N_OUTPUTS = sizeof outputs / sizeof *outputs };

static bool is_output(OptionId o)
{
        for (int i = 0; i < N_OUTPUTS; i++)
                if (outputs[i] == o)
                        return true;
        return false;
}

static bool same_file(const struct stat *out, const char *path)
{
        struct stat in;
        if (path && !strncmp(path, "char:", 5)) /* of --tokenizer */
                path += 5;
        return path && !stat(path, &in) && in.st_dev == out->st_dev && in.st_ino == out->st_ino;
}

bool paths_same(const char *a, const char *b)
{
        struct stat st;
        return !stat(a, &st) && same_file(&st, b);
}

/* Is the name one of a folder, which the command makes? */
static bool makes_folder(const Args *a, OptionId o)
{
        static const char *const file[] = { ".gguf", ".json" };
        const char *path = opt_str(a, o);
        if (o != O_OUT ||
            (a->cmd != CMD_EXPORT && a->cmd != CMD_QUANTIZE && a->cmd != CMD_TOKENIZER))
                return false;
        for (size_t i = 0; i < sizeof file / sizeof *file; i++)
                if (text_ends(path, file[i]))
                        return false;
        return true;
}

static int check_folder(const Args *a, OptionId o, Err *e)
{
        const char *path = opt_str(a, o), *slash = path ? strrchr(path, '/') : NULL,
                   *own = a->cmd == CMD_TRAIN ? opt_str(a, O_OUT_DIR) : NULL;
        if (!slash || slash == path || makes_folder(a, o))
                return TGC_OK;
        /* train makes its own one */
        const size_t n = own ? strlen(own) : 0;
        if (n && !strncmp(path, own, n) && (path[n] == '/' || own[n - 1] == '/'))
                return TGC_OK;
        char *dir = strndup(path, (size_t)(slash - path));
        struct stat st;
        int code = TGC_OK;
        if (!dir)
                code = err_set(e, TGC_NO_MEMORY, "no memory");
        else if (stat(dir, &st))
                code = err_set(e, TGC_IO, "--%s %s: there is no folder %s", option_info[o].name,
                               path, dir);
        else if (!S_ISDIR(st.st_mode))
                code = err_set(e, TGC_IO, "--%s %s: %s is a file, no folder", option_info[o].name,
                               path, dir);
        free(dir);
        return code;
}

/* A folder of weights that the command reads: it is no output, and neither are its files.  A run's
 * folder may get what export writes: its model is model.plan. */
static int check_model(const Args *a, OptionId o, Err *e)
{
        const char *path = opt_str(a, o), *slash = path ? strrchr(path, '/') : NULL;
        struct stat out;
        if (!path || stat(path, &out))
                return TGC_OK;
        const bool folder = S_ISDIR(out.st_mode);
        if (folder ? o != O_OUT || (a->cmd != CMD_EXPORT && a->cmd != CMD_QUANTIZE)
                   : !text_ends(path, ".safetensors") && !text_ends(path, ".json"))
                return TGC_OK;
        char *dir = folder  ? strdup(path)
                    : slash ? strndup(path, (size_t)(slash - path) + 1)
                            : strdup(".");
        char *plan = dir ? file_join(dir, "model.plan") : NULL;
        int code = plan ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory");
        for (int p = 0; p < a->n_pos && !code && !stat(dir, &out); p++)
                if (same_file(&out, a->pos[p]) && !file_exists(plan))
                        code = err_set(e, TGC_USAGE,
                                       "--%s %s is %s folder that %s reads: write to another one",
                                       option_info[o].name, path, folder ? "the" : "a file of the",
                                       command_info[a->cmd].name);
        free(dir);
        free(plan);
        return code;
}

int out_dir_check(const Args *a, Err *e)
{
        const char *dir = opt_str(a, O_OUT_DIR);
        if (!opt_set(a, O_OUT_DIR) || opt_flag(a, O_EVAL_ONLY) || !file_exists(dir) ||
            file_is_dir(dir))
                return TGC_OK;
        return err_set(e, TGC_IO, "--out_dir %s: is a file, and a folder is needed", dir);
}

int outputs_check(const Args *a, Err *e)
{
        for (int i = 0; i < N_OUTPUTS; i++) {
                int code = check_folder(a, outputs[i], e);
                if (code || (code = check_model(a, outputs[i], e)))
                        return code;
        }
        for (int i = 0; i < N_OUTPUTS; i++) {
                const char *path = opt_str(a, outputs[i]), *name = option_info[outputs[i]].name,
                           *input = NULL;
                struct stat out;
                if (!path || stat(path, &out) || !S_ISREG(out.st_mode) ||
                    (outputs[i] == O_OUT && is_plan(path)))
                        continue;
                for (int o = 0; o < N_OPTIONS && !input; o++)
                        if (option_info[o].kind == OPT_FILE && !is_output((OptionId)o) &&
                            same_file(&out, opt_str(a, (OptionId)o)))
                                input = option_info[o].name;
                static const OptionId lists[] = { O_TRAIN_DATA, O_VAL_DATA };
                for (int l = 0; l < 2; l++)
                        for (int k = 0; k < a->v[lists[l]].n && !input; k++)
                                if (same_file(&out, a->v[lists[l]].list[k]))
                                        input = option_info[lists[l]].name;
                if (input)
                        return err_set(e, TGC_USAGE,
                                       "--%s %s is the file that --%s reads: write to another one",
                                       name, path, input);
                for (int p = 0; p < a->n_pos; p++)
                        if (same_file(&out, a->pos[p]))
                                return err_set(e, TGC_USAGE,
                                               "--%s %s is the file that %s reads: write to "
                                               "another one",
                                               name, path, command_info[a->cmd].name);
        }
        return TGC_OK;
}
