/* load_weights.c: finds a model's weights and its adapters. */
#include <dirent.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../../runtime/util/line_reader.h"
#include "load_impl.h"
#include "lora.h"

/* Weights by the names that other programs give them; tgc reads none of these but a .gguf, which is
 * a model by itself. */
static bool is_foreign_weights(const char *name)
{
        static const char *const tail[] = { ".safetensors", ".pth",     ".pt",
                                            ".h5",          ".msgpack", ".gguf" };
        for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
                if (text_ends(name, tail[i]))
                        return true;
        return text_ends(name, ".bin.index.json") ||
               (!strncmp(name, "pytorch_model", 13) && text_ends(name, ".bin"));
}

int folder_weights(const char *dir, const char *way_out, bool *there, Err *e)
{
        char first[256] = "";
        struct dirent *x;
        *there = path_has(dir, "model.safetensors") ||
                 path_has(dir, "model.safetensors.index.json");
        DIR *d = *there ? NULL : opendir(dir);
        while (d && (x = readdir(d)))
                if (is_foreign_weights(x->d_name) && (!*first || strcmp(x->d_name, first) < 0))
                        snprintf(first, sizeof first, "%s", x->d_name);
        if (d)
                closedir(d);
        if (text_ends(first, ".gguf"))
                return err_set(e, TGC_BAD_FILE,
                               "%s: neither model.safetensors nor model.safetensors.index.json is "
                               "here; a GGUF file is: give its name, %s/%s, or say %s",
                               dir, dir, first, way_out);
        if (text_ends(first, ".safetensors"))
                return err_set(e, TGC_BAD_FILE,
                               "%s: neither model.safetensors nor model.safetensors.index.json is "
                               "here; the index says what %s and the others hold: fetch it as "
                               "well, or say %s",
                               dir, first, way_out);
        if (*first)
                return err_set(
                        e, TGC_BAD_FILE,
                        "%s: neither model.safetensors nor model.safetensors.index.json is here; "
                        "%s cannot be read in their place: save the model as safetensors, or say "
                        "%s",
                        dir, first, way_out);
        return TGC_OK;
}

/* A folder is a checkpoint: it runs on random weights only when that was asked for. */
static int find_weights(const Loaded *l, const Args *a, const char *path, const LoadHow *how,
                        const char **from, Err *e)
{
        bool there, trains = !(load_mode(a, how, l->kind) & BUILD_INFER);
        int code;
        *from = how->weights ? how->weights : opt_str(a, O_WEIGHTS);
        if (how->no_weights || (*from && !strcmp(*from, "random"))) {
                *from = NULL;
                return TGC_OK;
        }
        if (!*from && (l->kind == MODEL_LLAMA2C || l->kind == MODEL_GGUF))
                *from = path;
        if (*from || l->kind != MODEL_HF)
                return TGC_OK;
        if ((code = folder_weights(path, "--weights random", &there, how->any_weights ? NULL : e)))
                return how->any_weights ? TGC_OK : code;
        if (there)
                *from = path;
        if (there || trains || how->any_weights)
                return TGC_OK;
        return err_set(
                e, TGC_BAD_FILE,
                "%s: no weights: neither model.safetensors nor model.safetensors.index.json is "
                "here; --weights FILE names others, --weights random does without",
                path);
}

/* --lora; training puts them into its session, and what does not run needs none. */
static int add_adapters(Loaded *l, const Args *a, Err *e)
{
        const OptionValue *v = &a->v[O_LORA];
        Adapters s;
        int code = v->n && a->cmd != CMD_TRAIN ? adapters_open(&s, v->list, v->n, a->pos[0], e)
                                               : TGC_OK;
        if (code || !v->n || a->cmd == CMD_TRAIN)
                return code;
        const bool needs = a->cmd == CMD_RUN || a->cmd == CMD_CHAT || a->cmd == CMD_EVAL ||
                           a->cmd == CMD_COMPILE;
        if (l->weights)
                code = adapters_import(&l->plan, l->weights, &s, e);
        else if (needs && s.a[0].dir)
                code = err_set(e, TGC_USAGE,
                               "--lora %.200s: the model beneath it has no weights (--weights)",
                               s.a[0].dir);
        adapters_free(&s);
        return code;
}

int load_weights(Loaded *l, const Args *a, const char *path, const LoadHow *how, Err *e)
{
        const char *from;
        Progress talk = progress_new(a);
        int code = find_weights(l, a, path, how, &from, e);
        if (!code && from)
                code = weights_import(&l->plan, from, &l->weights, &talk, e);
        return code ? code : add_adapters(l, a, e);
}
