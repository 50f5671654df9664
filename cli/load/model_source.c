/* model_source.c: the source text that made a plan's graph, for the page of `dump --html` and for
 * exported folders.
 *
 * If a model belongs to no family, its exported folder has a config.json that only tgc reads.  It
 * names the model's file beside it:
 *
 *      {"model_type": "tgc", "tgc_model": "my.lua", "tgc_params": {"n_layer": 4, ...}, ...}
 *
 * tgc_model is a Lua file, with its parameters, or a JSON graph, which has none.  Modules that the
 * Lua requires lie beside it, unless they come with tgc. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../../runtime/util/json.h"
#include "../../runtime/weights/checkpoint.h"
#include "open.h"

/* Of one of "files": its "name" or "text". */
static const char *file_text(const cJSON *file, const char *key)
{
        return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(file, key));
}

int model_source(const Plan *p, cJSON **source, Err *e)
{
        const Section *s = plan_find(p, "model");
        const cJSON *files, *f;
        *source = NULL;
        if (!s)
                return TGC_OK;
        char *text = malloc(s->size + 1);
        if (!text)
                return err_set(e, TGC_NO_MEMORY, "no memory for the plan's model");
        memcpy(text, s->data, s->size);
        text[s->size] = 0;
        int code = json_parse(source, text, s->size, "the plan's model", e);
        free(text);
        files = cJSON_GetObjectItemCaseSensitive(*source, "files");
        bool good = cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(*source, "params")) &&
                    cJSON_IsArray(files) && files->child;
        cJSON_ArrayForEach(f, files)
        {
                good = good && file_text(f, "name") && file_text(f, "text");
        }
        if (!code && !good)
                code = err_set(e, TGC_BAD_FILE,
                               "the plan's section model is damaged: compile the model again");
        if (code) {
                cJSON_Delete(*source);
                *source = NULL;
        }
        return code;
}

const char *model_source_find(const cJSON *source, const char *name)
{
        const cJSON *f;
        cJSON_ArrayForEach(f, cJSON_GetObjectItemCaseSensitive(source, "files"))
        {
                if (!strcmp(file_text(f, "name"), name))
                        return file_text(f, "text");
        }
        return NULL;
}

/* ---- into a folder ---- */

/* Names come from a plan; these are files of a folder that they may take. */
static bool is_plain(const char *name, const char *tail)
{
        const size_t n = strlen(name), m = strlen(tail);
        return n > m && n < 200 && *name != '.' && !strchr(name, '/') &&
               !strcmp(name + n - m, tail);
}

static int put_lua(const char *dir, const cJSON *source, char name[200], Err *e)
{
        const cJSON *f;
        int code = TGC_OK;
        cJSON_ArrayForEach(f, cJSON_GetObjectItemCaseSensitive(source, "files"))
        {
                const char *own = file_text(f, "name"), *text = file_text(f, "text");
                const bool main = !*name;
                if (main)
                        snprintf(name, 200, "%s", is_plain(own, ".lua") ? own : "model.lua");
                else if (!is_plain(own, ".lua"))
                        return err_set(e, TGC_BAD_FILE,
                                       "the plan's model: '%.60s' is not the name of a file", own);
                if (!code && (main || !model_is_ours_by(own, text)))
                        code = file_write_in(dir, main ? name : own, text, strlen(text), e);
        }
        return code;
}

/* Ids that the manifest has in lines "meta KEY ID...". */
static bool add_ids(cJSON *o, const Plan *p, const char *key)
{
        char word[64], line[512];
        int id[16], n = 0, used = 0;
        snprintf(word, sizeof word, "meta %s", key);
        if (!manifest_word(p, word, line, sizeof line))
                return true;
        for (const char *s = line; n < 16 && sscanf(s, "%d%n", &id[n], &used) == 1; s += used)
                n++;
        return cJSON_AddItemToObject(o, key,
                                     n == 1 ? cJSON_CreateNumber(id[0])
                                            : cJSON_CreateIntArray(id, n));
}

/* cJSON indents by tabs, which stand nowhere else: inside of strings they are \\t. */
static void tabs_to_blanks(char *s)
{
        for (; s && *s; s++)
                if (*s == '\t')
                        *s = ' ';
}

static int put_config(const char *dir, const Plan *p, cJSON *source, const char *name,
                      const char *dtype, Err *e)
{
        char vocab[32] = "0", ctx[32] = "0";
        cJSON *o = cJSON_CreateObject(), *params = cJSON_DetachItemFromObject(source, "params");
        manifest_word(p, "vocab", vocab, sizeof vocab);
        manifest_word(p, "ctx", ctx, sizeof ctx);
        bool whole = cJSON_AddStringToObject(o, "model_type", "tgc") &&
                     cJSON_AddStringToObject(o, "tgc_model", name);
        if (params && !cJSON_AddItemToObject(o, "tgc_params", params)) {
                cJSON_Delete(params);
                whole = false;
        }
        whole = whole && cJSON_AddNumberToObject(o, "vocab_size", atoi(vocab)) &&
                add_ids(o, p, "bos_token_id") && add_ids(o, p, "eos_token_id") &&
                cJSON_AddStringToObject(o, "torch_dtype", dtype);
        char *text = whole ? cJSON_Print(o) : NULL;
        tabs_to_blanks(text);
        int code = text ? file_write_in(dir, "config.json", text, strlen(text), e)
                        : err_set(e, TGC_NO_MEMORY, "%s: no memory for config.json", dir);
        cJSON_free(text);
        cJSON_Delete(o);
        return code;
}

/* Is there a config.json that is no one of tgc's?  It is the user's, who writes a family of his
 * own. */
static bool has_config(const char *dir)
{
        char *model = NULL, *path = file_join(dir, "config.json");
        const bool there = path && file_exists(path) && !folder_model(dir, &model, NULL) && !model;
        free(path);
        free(model);
        return there;
}

int model_source_write(const Plan *p, const char *dir, const char *dtype, char name[200], Err *e)
{
        const Section *graph = plan_find(p, "graph.json");
        cJSON *source;
        int code = model_source(p, &source, e);
        *name = 0;
        if (code)
                return code;
        if (has_config(dir)) {
                cJSON_Delete(source);
                return TGC_OK;
        }
        if (source)
                code = put_lua(dir, source, name, e);
        else if (graph) {
                strcpy(name, "graph.json");
                code = file_write_in(dir, name, graph->data, graph->size, e);
        }
        if (!code && *name)
                code = put_config(dir, p, source, name, dtype, e);
        cJSON_Delete(source);
        return code;
}

/* ---- out of a folder ---- */

int folder_model(const char *dir, char **path, Err *e)
{
        char *text;
        cJSON *config = NULL;
        *path = NULL;
        int code = hf_config_read(dir, &text, e);
        if (code)
                return code;
        code = json_parse(&config, text, strlen(text), "config.json", e);
        const cJSON *model = cJSON_GetObjectItemCaseSensitive(config, "tgc_model");
        const char *name = cJSON_GetStringValue(model);
        if (!code && model && !(name && (is_plain(name, ".lua") || is_plain(name, ".json"))))
                code = err_set(
                        e, TGC_BAD_FILE,
                        "%s/config.json: \"tgc_model\" is no .lua or .json file of this folder",
                        dir);
        else if (!code && model && !(*path = file_join(dir, name)))
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        if (!code && *path && !file_exists(*path))
                code = err_set(e, TGC_BAD_FILE, "%s: config.json names it, and it is not there",
                               *path);
        if (code) {
                free(*path);
                *path = NULL;
        }
        cJSON_Delete(config);
        free(text);
        return code;
}
