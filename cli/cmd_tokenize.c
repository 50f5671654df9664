/* cmd_tokenize.c: tgc tokenize */
#include <stdlib.h>
#include <string.h>
#include "../runtime/util/file.h"
#include "work.h"

/* A plan's own tokenizer, a model's, or a tokenizer file or folder. */
static int open_tokenizer(Tokenizer **tok, const char *path, Err *e)
{
        char real[4400];
        ModelKind kind;
        Err unused;
        Plan p = { 0 };
        *tok = NULL;
        if (!strncmp(path, "char:", 5))
                return tokenizer_for(tok, path, "", MODEL_LUA, 0, e);
        if (!file_exists(path) && !file_is_dir(path))
                return err_set(e, TGC_IO, "%s: no such file or folder", path);
        if (model_kind(path, &kind, real, sizeof real, &unused) || kind != MODEL_PLAN)
                return tokenizer_open(tok, path, 0, e);
        int code = plan_open(&p, real, e);
        const Section *s = code ? NULL : plan_find(&p, "tokenizer");
        if (!code)
                code = s ? tokenizer_unpack(tok, s->data, s->size, e)
                         : err_set(e, TGC_BAD_FILE,
                                   "%s: the plan has no "
                                   "tokenizer",
                                   real);
        plan_close(&p);
        return code;
}

static int print_text_json(const Tokenizer *tok, const int *ids, int k, Err *e)
{
        char *text;
        size_t n;
        int code = tokenizer_text(tok, ids, k, &text, &n, e);
        if (code)
                return code;
        cJSON *o = cJSON_CreateObject();
        json_add_text(o, "text", text, n);
        cJSON_AddNumberToObject(o, "tokens", k);
        cJSON_AddNumberToObject(o, "text_bytes", (double)n);
        free(text);
        return json_print(o, e);
}

/* As they are: what is no UTF-8 comes back as it went in, but for a terminal. */
static int print_text(const Tokenizer *tok, const int *ids, int k, Err *e)
{
        char *text;
        size_t n;
        int code = tokenizer_text(tok, ids, k, &text, &n, e);
        if (code)
                return code;
        put_generated(text, n);
        free(text);
        return TGC_OK;
}

static int to_text(const Args *a, const Tokenizer *tok, const char *in, size_t n, Err *e)
{
        int *ids, k, code = ids_parse(in, n, tokenizer_vocab(tok), "standard input", &ids, &k, e);
        if (code)
                return code;
        if (opt_flag(a, O_JSON))
                code = print_text_json(tok, ids, k, e);
        else
                code = print_text(tok, ids, k, e);
        free(ids);
        return code;
}

static int to_ids(const Args *a, const Tokenizer *tok, const char *in, size_t n, Err *e)
{
        int *ids, k, bos = opt_set(a, O_ADD_BOS) ? opt_flag(a, O_ADD_BOS) : -1;
        int code = tokenizer_encode(tok, in, n, bos, &ids, &k, e);
        if (code)
                return code == TGC_USAGE ? TGC_BAD_FILE : code;
        if (opt_flag(a, O_JSON)) {
                cJSON *o = cJSON_CreateObject();
                cJSON_AddItemToObject(o, "ids", cJSON_CreateIntArray(ids, k));
                cJSON_AddNumberToObject(o, "tokens", k);
                cJSON_AddNumberToObject(o, "text_bytes", (double)n);
                code = json_print(o, e);
        } else {
                for (int i = 0; i < k; i++)
                        printf("%s%d", i ? " " : "", ids[i]);
                printf("\n");
        }
        free(ids);
        return code;
}

int cmd_tokenize(const Args *a, Err *e)
{
        Tokenizer *tok;
        char *in;
        size_t n;
        int code = open_tokenizer(&tok, a->pos[0], e);
        if (code)
                return code;
        if (!(code = read_stdin(&in, &n, e))) {
                code = opt_flag(a, O_TO_TEXT) ? to_text(a, tok, in, n, e)
                                              : to_ids(a, tok, in, n, e);
                free(in);
        }
        tokenizer_free(tok);
        return code;
}
