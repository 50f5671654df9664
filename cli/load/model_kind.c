/* model_kind.c: tells what a path is: a plan, a folder, a GGUF file, a model's source. */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include "../../runtime/util/file.h"
#include "../../runtime/util/line_reader.h"
#include "gguf_model.h"
#include "load_impl.h"

bool is_plan(const char *path)
{
        char magic[8];
        return file_head(path, magic, sizeof magic) == sizeof magic &&
               !memcmp(magic, "tgcplan\n", sizeof magic);
}

/* The first of the folder's GGUF files, by name. */
static bool gguf_within(const char *dir, char *name, size_t cap)
{
        DIR *d = opendir(dir);
        *name = 0;
        for (struct dirent *f; d && (f = readdir(d));)
                if (text_ends(f->d_name, ".gguf") && strlen(f->d_name) < cap &&
                    (!*name || strcmp(f->d_name, name) < 0))
                        snprintf(name, cap, "%s", f->d_name);
        if (d)
                closedir(d);
        return *name;
}

static int folder_kind(const char *path, ModelKind *kind, char *real, size_t cap, Err *e)
{
        char *plan;
        int code = run_file(path, "model.plan", &plan, e);
        if (code)
                return code;
        bool there = file_exists(plan);
        if (there) {
                snprintf(real, cap, "%s", plan);
                *kind = MODEL_PLAN;
        }
        free(plan);
        if (there)
                return TGC_OK;
        *kind = MODEL_HF;
        if (path_has(path, "config.json"))
                return TGC_OK;
        if (path_has(path, "state.safetensors"))
                return err_set(e, TGC_BAD_FILE,
                               "%s: training has not finished here, so there is no model.plan; go "
                               "on with "
                               "`tgc train MODEL --out_dir %s --resume`",
                               path, path);
        char file[300];
        if (gguf_within(path, file, sizeof file))
                return err_set(e, TGC_BAD_FILE,
                               "%s: a folder with neither config.json nor model.plan; a GGUF file "
                               "is named itself: %s/%s",
                               path, path, file);
        return err_set(e, TGC_BAD_FILE, "%s: a folder with neither config.json nor model.plan",
                       path);
}

/* An address, or the name of a repository: no folder here has its first part. */
static bool is_remote(const char *path)
{
        const char *slash = strchr(path, '/');
        char first[200];
        if (strstr(path, "://"))
                return true;
        if (!slash || slash == path || strchr(slash + 1, '/') || *path == '.' || *path == '~')
                return false;
        snprintf(first, sizeof first, "%.*s", (int)(slash - path), path);
        return slash[1] && slash - path < (int)sizeof first && !file_exists(first);
}

int model_kind(const char *path, ModelKind *kind, char *real, size_t cap, Err *e)
{
        static const struct {
                const char *tail;
                ModelKind kind;
        } by_name[] = { { ".lua", MODEL_LUA },
                        { ".json", MODEL_JSON },
                        { ".bin", MODEL_LLAMA2C },
                        { ".gguf", MODEL_GGUF },
                        { ".plan", MODEL_PLAN } };
        struct stat st;
        if (!*path)
                return err_set(e, TGC_USAGE, "the name of the MODEL or PLAN is empty");
        snprintf(real, cap, "%s", path);
        if (file_is_dir(path))
                return folder_kind(path, kind, real, cap, e);
        if (!file_exists(path)) { /* the name of a model inside tgc is left to the reader */
                *kind = MODEL_LUA;
                if (!strpbrk(path, "/.") || (text_ends(path, ".lua") && !strchr(path, '/')))
                        return TGC_OK;
                return err_set(e, TGC_IO, "%s: no such file or folder%s", path,
                               is_remote(path) ? "; tgc downloads nothing: give a folder or a file "
                                                 "that is here"
                                               : "");
        }
        if (stat(path, &st) || !S_ISREG(st.st_mode)) /* opening a pipe would wait for its writer */
                return err_set(e, TGC_BAD_FILE, "%s: a device or pipe, not a regular file", path);
        if (is_plan(path)) {
                *kind = MODEL_PLAN;
                return TGC_OK;
        }
        if (is_gguf(path)) { /* whatever its name: some programs keep models under a hash */
                *kind = MODEL_GGUF;
                return TGC_OK;
        }
        if (text_ends(path, "config.json") && strlen(path) > 12)
                return err_set(e, TGC_USAGE, "%s: give the folder it lies in", path);
        for (size_t i = 0; i < sizeof by_name / sizeof *by_name; i++)
                if (text_ends(path, by_name[i].tail)) {
                        *kind = by_name[i].kind;
                        return TGC_OK;
                }
        return err_set(e, TGC_BAD_FILE,
                       "%s: neither a plan nor a .lua, .json, .bin, .gguf or Hugging Face folder",
                       path);
}
