/* sentence.c: implements sentence.h. */
#include "sentence.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../util/file.h"
#include "../util/json.h"

enum { MOST_BYTES = 1 << 20, MOST_TOKENS = 1 << 24 };

const char *const pooling_name[N_POOLINGS] = { "mean", "cls", "max", "last", "mean_sqrt_len" };

/* or -1 */
static int pooling_find(const char *name)
{
        for (int i = 0; i < N_POOLINGS; i++)
                if (!strcmp(name, pooling_name[i]))
                        return i;
        return -1;
}

void sentence_free(Sentence *s)
{
        free(s->prompt);
        *s = (Sentence) { 0 };
}

static const cJSON *member(const cJSON *o, const char *key)
{
        return cJSON_GetObjectItemCaseSensitive(o, key);
}

/* dir/sub/name; *o NULL where it is not there. */
static int read_object(const char *dir, const char *sub, const char *name, bool must, cJSON **o,
                       char path[4400], Err *e)
{
        *o = NULL;
        if (snprintf(path, 4400, "%s/%s%s%s", dir, sub, *sub ? "/" : "", name) >= 4400)
                return err_set(e, TGC_IO, "%s: its name is too long", dir);
        if (!must && !file_exists(path))
                return TGC_OK;
        return json_read(o, path, MOST_BYTES, e);
}

/* A whole number of at least 1 under key, or null, or nothing: 0. */
static int read_count(const cJSON *o, const char *key, const char *path, int *n, Err *e)
{
        const cJSON *v = member(o, key);
        *n = 0;
        if (!v || cJSON_IsNull(v))
                return TGC_OK;
        if (!cJSON_IsNumber(v) || v->valuedouble != floor(v->valuedouble) || v->valuedouble < 1)
                return err_set(e, TGC_BAD_FILE,
                               "%s: \"%s\" should be a whole number of at least 1, or null", path,
                               key);
        *n = v->valuedouble < MOST_TOKENS ? (int)v->valuedouble : MOST_TOKENS;
        return TGC_OK;
}

/* ---- pooling ---- */

/* The keys of a Pooling module's config.json; one of them is true. */
static const struct {
        const char *key;
        int pooling; /* -1: not supported */
} modes[] = { { "pooling_mode_cls_token", POOL_CLS },
              { "pooling_mode_mean_tokens", POOL_MEAN },
              { "pooling_mode_max_tokens", POOL_MAX },
              { "pooling_mode_mean_sqrt_len_tokens", POOL_MEAN_SQRT },
              { "pooling_mode_weightedmean_tokens", -1 },
              { "pooling_mode_lasttoken", POOL_LAST } };

/* `pooling_mode`, which newer files have instead: a word. */
static int read_mode_word(Sentence *s, const cJSON *v, const char *path, Err *e)
{
        const char *word = cJSON_GetStringValue(v);
        const int known = !word ? -1 : !strcmp(word, "lasttoken") ? POOL_LAST : pooling_find(word);
        if (known < 0)
                return err_set(e, TGC_BAD_FILE,
                               "%s: \"pooling_mode\": %.60s is not supported, only cls, mean, max, "
                               "mean_sqrt_len and lasttoken are, one of them",
                               path, word ? word : "what is no string");
        s->pooling = (Pooling)known;
        return TGC_OK;
}

static int read_pooling(Sentence *s, const char *dir, const char *sub, bool *all, Err *e)
{
        char path[4400];
        cJSON *o;
        const char *first = NULL;
        int code = read_object(dir, sub, "config.json", true, &o, path, e);
        if (code)
                return code;
        *all = !cJSON_IsFalse(member(o, "include_prompt"));
        if (member(o, "pooling_mode")) {
                code = read_mode_word(s, member(o, "pooling_mode"), path, e);
                cJSON_Delete(o);
                return code;
        }
        for (size_t i = 0; i < sizeof modes / sizeof *modes && !code; i++) {
                const cJSON *v = member(o, modes[i].key);
                if (v && !cJSON_IsBool(v))
                        code = err_set(e, TGC_BAD_FILE, "%s: \"%s\" should be true or false", path,
                                       modes[i].key);
                else if (!cJSON_IsTrue(v))
                        continue;
                else if (modes[i].pooling < 0)
                        code = err_set(e, TGC_BAD_FILE, "%s: \"%s\" is not supported", path,
                                       modes[i].key);
                else if (first)
                        code = err_set(e, TGC_BAD_FILE,
                                       "%s: \"%s\" and \"%s\" are both true; vectors side by side "
                                       "are not supported, one of them is",
                                       path, first, modes[i].key);
                else
                        first = modes[i].key, s->pooling = (Pooling)modes[i].pooling;
        }
        if (!code && !first)
                code = err_set(e, TGC_BAD_FILE, "%s: none of pooling_mode_* is true", path);
        cJSON_Delete(o);
        return code;
}

/* ---- modules ---- */

/* The last word of a class's name. */
static const char *class_of(const cJSON *module)
{
        const char *type = cJSON_GetStringValue(member(module, "type")),
                   *dot = type ? strrchr(type, '.') : NULL;
        return dot ? dot + 1 : type ? type : "";
}

/* A folder beside modules.json: no other place of this machine. */
static bool is_plain(const char *sub) { return sub && !strchr(sub, '/') && *sub != '.'; }

static int read_modules(Sentence *s, const cJSON *list, const char *dir, const char *path,
                        bool *all, Err *e)
{
        static const char *const order[] = { "Transformer", "Pooling", "Normalize" };
        const cJSON *m;
        int n = 0, code;
        if (!cJSON_IsArray(list))
                return err_set(e, TGC_BAD_FILE, "%s: not a list of modules", path);
        cJSON_ArrayForEach(m, list)
        {
                const char *class = class_of(m), *sub = cJSON_GetStringValue(member(m, "path"));
                if (n == 3 || strcmp(class, order[n]))
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: module %d is a %.60s; what is supported is "
                                       "Transformer, Pooling and perhaps Normalize, in this order",
                                       path, n, *class ? class : "thing without a type");
                if (n ? !is_plain(sub) : !sub || *sub)
                        return err_set(e, TGC_BAD_FILE, "%s: module %d (%s): \"path\" should be %s",
                                       path, n, class,
                                       n ? "a folder beside this file"
                                         : "\"\": config.json lies beside this file");
                if (n == 1 && (code = read_pooling(s, dir, sub, all, e)))
                        return code;
                s->unit |= n == 2;
                n++;
        }
        return n < 2 ? err_set(e, TGC_BAD_FILE, "%s: no Pooling, so a text has no vector", path)
                     : TGC_OK;
}

/* ---- the files beside ---- */

static int read_length(Sentence *s, const char *dir, Err *e)
{
        char path[4400];
        cJSON *o;
        int code = read_object(dir, "", "sentence_bert_config.json", false, &o, path, e);
        if (!code && o)
                code = read_count(o, "max_seq_length", path, &s->max_tokens, e);
        if (!code && cJSON_IsTrue(member(o, "do_lower_case")))
                code = err_set(e, TGC_BAD_FILE,
                               "%s: \"do_lower_case\": true is not supported; the tokenizer's own "
                               "setting of that name is",
                               path);
        cJSON_Delete(o);
        if (code || s->max_tokens ||
            (code = read_object(dir, "", "tokenizer_config.json", false, &o, path, e)))
                return code;
        if (o) /* of a tokenizer without a limit it is 1e30 */
                code = read_count(o, "model_max_length", path, &s->max_tokens, e);
        cJSON_Delete(o);
        return code;
}

static int read_prompt(Sentence *s, const char *dir, bool all, Err *e)
{
        char path[4400];
        cJSON *o;
        int code = read_object(dir, "", "config_sentence_transformers.json", false, &o, path, e);
        const cJSON *name = member(o, "default_prompt_name"), *prompt;
        if (code || !name || cJSON_IsNull(name)) {
                cJSON_Delete(o);
                return code;
        }
        prompt = cJSON_IsString(name) ? member(member(o, "prompts"), name->valuestring) : NULL;
        if (!cJSON_IsString(prompt))
                code = err_set(e, TGC_BAD_FILE,
                               "%s: \"default_prompt_name\" names no text of \"prompts\"", path);
        else if (*prompt->valuestring && !all)
                code = err_set(e, TGC_BAD_FILE,
                               "%s: there is a prompt before each text, and its tokens are not to "
                               "be pooled (\"include_prompt\": false), which is not supported",
                               path);
        else if (*prompt->valuestring && !(s->prompt = strdup(prompt->valuestring)))
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        cJSON_Delete(o);
        return code;
}

int sentence_folder(Sentence *s, const char *dir, Err *e)
{
        char path[4400];
        cJSON *modules;
        bool all = true;
        *s = (Sentence) { 0 };
        int code = read_object(dir, "", "modules.json", false, &modules, path, e);
        if (!code && modules)
                code = read_modules(s, modules, dir, path, &all, e);
        cJSON_Delete(modules);
        if (!code)
                code = read_length(s, dir, e);
        if (!code)
                code = read_prompt(s, dir, all, e);
        if (code)
                sentence_free(s);
        return code;
}

/* ---- the section ---- */

int sentence_pack(const Sentence *s, char **text, size_t *n, Err *e)
{
        cJSON *o = cJSON_CreateObject();
        bool ok = cJSON_AddStringToObject(o, "pooling", pooling_name[s->pooling]) &&
                  cJSON_AddBoolToObject(o, "normalize", s->unit) &&
                  cJSON_AddNumberToObject(o, "max_tokens", s->max_tokens) &&
                  (!s->prompt || cJSON_AddStringToObject(o, "prompt", s->prompt));
        *text = ok ? cJSON_PrintUnformatted(o) : NULL;
        cJSON_Delete(o);
        if (!*text)
                return err_set(e, TGC_NO_MEMORY, "no memory for the section embedding");
        *n = strlen(*text);
        return TGC_OK;
}

int sentence_unpack(Sentence *s, const char *text, size_t n, Err *e)
{
        static const char name[] = "section embedding";
        cJSON *o;
        *s = (Sentence) { 0 };
        int code = n > MOST_BYTES ? err_set(e, TGC_BAD_FILE, "%s: longer than 1 MiB", name)
                                  : json_parse(&o, text, n, name, e);
        if (code)
                return code;
        const cJSON *pooling = member(o, "pooling"), *most = member(o, "max_tokens"),
                    *prompt = member(o, "prompt"), *unit = member(o, "normalize");
        const int known = cJSON_IsString(pooling) ? pooling_find(pooling->valuestring) : -1;
        if (known < 0 || !cJSON_IsBool(unit) || !cJSON_IsNumber(most) ||
            !(most->valuedouble >= 0 && most->valuedouble <= MOST_TOKENS) ||
            (prompt && !cJSON_IsString(prompt)))
                code = err_set(e, TGC_BAD_FILE,
                               "%s: should have a pooling that is known, normalize, max_tokens "
                               "and perhaps a prompt",
                               name);
        else if (prompt && !(s->prompt = strdup(prompt->valuestring)))
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", name);
        if (!code) {
                s->pooling = (Pooling)known;
                s->unit = cJSON_IsTrue(unit);
                s->max_tokens = (int)most->valuedouble;
        }
        cJSON_Delete(o);
        return code;
}
