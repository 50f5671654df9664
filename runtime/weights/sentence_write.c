/* sentence_write.c: writes the sentence-transformers files that sentence.c reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../util/file.h"
#include "../util/json.h"
#include "sentence.h"

/* Deletes o, which may be NULL: no memory. */
static int put(const char *dir, const char *name, cJSON *o, bool whole, Err *e)
{
        char *text = o && whole ? cJSON_PrintUnformatted(o) : NULL, *path = file_join(dir, name);
        int code = text && path ? file_write_atomic(path, text, strlen(text), e)
                                : err_set(e, TGC_NO_MEMORY, "%s: no memory for %s", dir, name);
        cJSON_Delete(o);
        cJSON_free(text);
        free(path);
        return code;
}

static bool add_module(cJSON *list, int i, const char *path, const char *class)
{
        cJSON *m = cJSON_CreateObject();
        char type[100], name[8];
        snprintf(type, sizeof type, "sentence_transformers.models.%s", class);
        snprintf(name, sizeof name, "%d", i);
        bool whole = m && cJSON_AddNumberToObject(m, "idx", i) &&
                     cJSON_AddStringToObject(m, "name", name) &&
                     cJSON_AddStringToObject(m, "path", path) &&
                     cJSON_AddStringToObject(m, "type", type);
        if (whole && cJSON_AddItemToArray(list, m))
                return true;
        cJSON_Delete(m);
        return false;
}

static int put_modules(const Sentence *s, const char *dir, Err *e)
{
        cJSON *list = cJSON_CreateArray();
        bool whole = list && add_module(list, 0, "", "Transformer") &&
                     add_module(list, 1, "1_Pooling", "Pooling") &&
                     (!s->unit || add_module(list, 2, "2_Normalize", "Normalize"));
        return put(dir, "modules.json", list, whole, e);
}

static int put_pooling(const Sentence *s, const char *dir, int width, Err *e)
{
        static const struct {
                const char *key;
                Pooling pooling;
        } mode[] = { { "pooling_mode_cls_token", POOL_CLS },
                     { "pooling_mode_mean_tokens", POOL_MEAN },
                     { "pooling_mode_max_tokens", POOL_MAX },
                     { "pooling_mode_mean_sqrt_len_tokens", POOL_MEAN_SQRT },
                     { "pooling_mode_weightedmean_tokens", N_POOLINGS },
                     { "pooling_mode_lasttoken", POOL_LAST } };
        cJSON *o = cJSON_CreateObject();
        bool whole = o && cJSON_AddNumberToObject(o, "word_embedding_dimension", width);
        for (size_t i = 0; i < sizeof mode / sizeof *mode && whole; i++)
                whole = cJSON_AddBoolToObject(o, mode[i].key, s->pooling == mode[i].pooling);
        whole = whole && cJSON_AddTrueToObject(o, "include_prompt");
        return put(dir, "1_Pooling/config.json", o, whole, e);
}

static int put_length(const Sentence *s, const char *dir, Err *e)
{
        cJSON *o = cJSON_CreateObject();
        bool whole = o &&
                     (s->max_tokens ? cJSON_AddNumberToObject(o, "max_seq_length", s->max_tokens)
                                    : cJSON_AddNullToObject(o, "max_seq_length")) &&
                     cJSON_AddFalseToObject(o, "do_lower_case");
        return put(dir, "sentence_bert_config.json", o, whole, e);
}

static int put_prompt(const Sentence *s, const char *dir, Err *e)
{
        cJSON *o = cJSON_CreateObject(), *all = o ? cJSON_AddObjectToObject(o, "prompts") : NULL;
        bool whole = all && (!s->prompt || cJSON_AddStringToObject(all, "default", s->prompt)) &&
                     (s->prompt ? cJSON_AddStringToObject(o, "default_prompt_name", "default")
                                : cJSON_AddNullToObject(o, "default_prompt_name"));
        return put(dir, "config_sentence_transformers.json", o, whole, e);
}

int sentence_write(const Sentence *s, const char *dir, int width, Err *e)
{
        int code = put_modules(s, dir, e);
        if (!code)
                code = put_pooling(s, dir, width, e);
        if (!code)
                code = put_length(s, dir, e);
        return code ? code : put_prompt(s, dir, e);
}
