/* chat_source.c: implements chat_source.h. */
#include "chat_source.h"
#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "../util/file.h"
#include "../util/json.h"

enum { MOST_BYTES = 16 << 20 };

static int put(ChatText **list, int *n, const char *name, const char *text, Err *e)
{
        ChatText new = { strdup(name), strdup(text) }, *p = NULL;
        int i = 0;
        while (i < *n && strcmp((*list)[i].name, name))
                i++;
        if (!new.name || !new.text ||
            (i == *n && !(p = realloc(*list, (size_t)(i + 1) * sizeof *p)))) {
                free(new.name);
                free(new.text);
                return err_set(e, TGC_NO_MEMORY, "no memory for the chat template");
        }
        if (p) {
                *list = p;
                ++*n;
        } else {
                free((*list)[i].name);
                free((*list)[i].text);
        }
        (*list)[i] = new;
        return TGC_OK;
}

int chat_add_template(ChatSource *s, const char *name, const char *text, Err *e)
{
        return put(&s->template, &s->n_templates, name, text, e);
}

int chat_add_token(ChatSource *s, const char *name, const char *text, Err *e)
{
        return put(&s->token, &s->n_tokens, name, text, e);
}

static void drop(ChatText *list, int n)
{
        for (int i = 0; i < n; i++) {
                free(list[i].name);
                free(list[i].text);
        }
        free(list);
}

void chat_source_free(ChatSource *s)
{
        drop(s->template, s->n_templates);
        drop(s->token, s->n_tokens);
        *s = (ChatSource) { 0 };
}

const char *chat_template(const ChatSource *s, const char *name)
{
        for (int i = 0; i < s->n_templates; i++)
                if (!strcmp(s->template[i].name, name))
                        return s->template[i].text;
        return NULL;
}

/* ---- a folder ---- */

static bool ends(const char *s, const char *tail)
{
        size_t n = strlen(s), m = strlen(tail);
        return n > m && !strcmp(s + n - m, tail);
}

static const cJSON *member(const cJSON *o, const char *key)
{
        return cJSON_GetObjectItemCaseSensitive(o, key);
}

/* A token is a string, or an object with a string "content". */
static const char *token_text(const cJSON *v)
{
        return cJSON_GetStringValue(cJSON_IsObject(v) ? member(v, "content") : v);
}

static int take_tokens(ChatSource *s, const cJSON *o, Err *e)
{
        const cJSON *extra = member(o, "extra_special_tokens"), *v;
        int code = TGC_OK;
        cJSON_ArrayForEach(v, o) if (!code && ends(v->string, "_token") && token_text(v))
                code = chat_add_token(s, v->string, token_text(v), e);
        if (cJSON_IsObject(extra))
                cJSON_ArrayForEach(v, extra) if (!code && token_text(v))
                        code = chat_add_token(s, v->string, token_text(v), e);
        return code;
}

/* `chat_template`: a text, a list of {name, template}, or an object of texts. */
static int take_templates(ChatSource *s, const cJSON *t, const char *path, Err *e)
{
        const cJSON *v;
        int code = TGC_OK;
        if (!t || cJSON_IsNull(t))
                return TGC_OK;
        if (cJSON_IsString(t))
                return chat_add_template(s, "default", t->valuestring, e);
        if (!cJSON_IsArray(t) && !cJSON_IsObject(t))
                return err_set(e, TGC_BAD_FILE,
                               "%s: chat_template is neither a text nor a list of "
                               "{\"name\", \"template\"}",
                               path);
        cJSON_ArrayForEach(v, t)
        {
                const char *name = cJSON_IsArray(t) ? cJSON_GetStringValue(member(v, "name"))
                                                    : v->string,
                           *text = cJSON_GetStringValue(cJSON_IsArray(t) ? member(v, "template")
                                                                         : v);
                if (!name || !text)
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: chat_template: an entry without a text for "
                                       "\"name\" and \"template\"",
                                       path);
                if ((code = chat_add_template(s, name, text, e)))
                        return code;
        }
        return TGC_OK;
}

static int take_file(ChatSource *s, const char *dir, const char *file, const char *name, Err *e)
{
        char *path = file_join(dir, file), *text = NULL;
        size_t n;
        int code = path ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        if (!code && file_exists(path) && !(code = file_read_text(path, MOST_BYTES, &text, &n, e)))
                code = strlen(text) == n && json_utf8_ok(text, n)
                               ? chat_add_template(s, name, text, e)
                               : err_set(e, TGC_BAD_FILE, "%s: the template is not UTF-8 text",
                                         path);
        free(text);
        free(path);
        return code;
}

/* additional_chat_templates/NAME.jinja */
static int take_more(ChatSource *s, const char *dir, Err *e)
{
        char *more = file_join(dir, "additional_chat_templates"), name[256];
        DIR *d = more ? opendir(more) : NULL;
        struct dirent *x;
        int code = more ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        while (d && !code && (x = readdir(d)))
                if (ends(x->d_name, ".jinja")) {
                        snprintf(name, sizeof name, "%.*s", (int)strlen(x->d_name) - 6, x->d_name);
                        code = take_file(s, more, x->d_name, name, e);
                }
        if (d)
                closedir(d);
        free(more);
        return code;
}

static int read_object(cJSON **o, const char *dir, const char *file, char **path, Err *e)
{
        *o = NULL;
        if (!(*path = file_join(dir, file)))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        if (!file_exists(*path))
                return TGC_OK;
        int code = json_read(o, *path, MOST_BYTES, e);
        if (!code && !cJSON_IsObject(*o))
                code = err_set(e, TGC_BAD_FILE, "%s: not a JSON object", *path);
        return code;
}

static int by_name(const void *a, const void *b)
{
        return strcmp(((const ChatText *)a)->name, ((const ChatText *)b)->name);
}

int chat_source_folder(ChatSource *s, const char *dir, Err *e)
{
        char *path = NULL, *legacy = NULL;
        cJSON *config = NULL, *map = NULL;
        int code = take_file(s, dir, "chat_template.jinja", "default", e);
        if (!code)
                code = take_more(s, dir, e);
        if (!code)
                code = read_object(&config, dir, "tokenizer_config.json", &path, e);
        if (!code && !s->n_templates)
                code = take_templates(s, member(config, "chat_template"), path, e);
        if (!code)
                code = take_tokens(s, config, e);
        if (!code && !member(config, "added_tokens_decoder")) {
                code = read_object(&map, dir, "special_tokens_map.json", &legacy, e);
                if (!code)
                        code = take_tokens(s, map, e);
        }
        if (s->n_templates) /* a folder's files come in any order */
                qsort(s->template, (size_t)s->n_templates, sizeof *s->template, by_name);
        cJSON_Delete(config);
        cJSON_Delete(map);
        free(path);
        free(legacy);
        return code;
}

/* ---- the section ---- */

static cJSON *object_of(const ChatText *list, int n)
{
        cJSON *o = cJSON_CreateObject();
        for (int i = 0; i < n && o; i++)
                if (!cJSON_AddStringToObject(o, list[i].name, list[i].text)) {
                        cJSON_Delete(o);
                        o = NULL;
                }
        return o;
}

int chat_source_pack(const ChatSource *s, char **text, size_t *n, Err *e)
{
        *text = NULL;
        *n = 0;
        if (!s->n_templates && !s->n_tokens)
                return TGC_OK;
        cJSON *o = cJSON_CreateObject(), *t = object_of(s->template, s->n_templates),
              *k = object_of(s->token, s->n_tokens);
        if (o && t && k && cJSON_AddItemToObject(o, "template", t))
                t = NULL;
        if (o && !t && k && cJSON_AddItemToObject(o, "token", k))
                k = NULL;
        if (o && !t && !k)
                *text = cJSON_Print(o);
        cJSON_Delete(o);
        cJSON_Delete(t);
        cJSON_Delete(k);
        if (!*text)
                return err_set(e, TGC_NO_MEMORY, "no memory for the chat template");
        *n = strlen(*text);
        return TGC_OK;
}

int chat_source_unpack(ChatSource *s, const char *text, size_t n, const char *name, Err *e)
{
        cJSON *o;
        int code = json_parse(&o, text, n, name, e);
        if (code)
                return code;
        const cJSON *t = member(o, "template"), *k = member(o, "token"), *v;
        if (!cJSON_IsObject(t) || !cJSON_IsObject(k))
                code = err_set(e, TGC_BAD_FILE, "%s: no objects \"template\" and \"token\"", name);
        if (!code)
                code = take_templates(s, t, name, e);
        if (!code)
                cJSON_ArrayForEach(v, k)
                {
                        if (!code && !cJSON_IsString(v))
                                code = err_set(e, TGC_BAD_FILE, "%s: token %.60s is no text", name,
                                               v->string);
                        else if (!code)
                                code = chat_add_token(s, v->string, v->valuestring, e);
                }
        cJSON_Delete(o);
        return code;
}
