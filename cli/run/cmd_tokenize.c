/* cmd_tokenize.c: tgc tokenize */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../chat/chat.h"

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
        bool model = !model_kind(path, &kind, real, sizeof real, &unused);
        if (model && kind == MODEL_GGUF) {
                int code = tokenizer_for(tok, NULL, real, kind, 0, e);
                return code || *tok
                               ? code
                               : err_set(e, TGC_BAD_FILE, "%s: the file has no tokenizer", real);
        }
        if (!model || kind != MODEL_PLAN)
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

/* from: where the ids were read, for messages */
static int to_text(const Args *a, const Tokenizer *tok, const char *in, size_t n, const char *from,
                   Err *e)
{
        int *ids, k, code = ids_parse(in, n, tokenizer_vocab(tok), from, &ids, &k, e);
        if (code)
                return code;
        if (opt_flag(a, O_JSON))
                code = print_text_json(tok, ids, k, e);
        else
                code = print_text(tok, ids, k, e);
        free(ids);
        return code;
}

/* text_bytes -1: not said */
static int print_ids(const Args *a, const int *ids, int k, double text_bytes, Err *e)
{
        if (opt_flag(a, O_JSON)) {
                cJSON *o = cJSON_CreateObject();
                cJSON_AddItemToObject(o, "ids", cJSON_CreateIntArray(ids, k));
                cJSON_AddNumberToObject(o, "tokens", k);
                if (text_bytes >= 0)
                        cJSON_AddNumberToObject(o, "text_bytes", text_bytes);
                return json_print(o, e);
        }
        for (int i = 0; i < k; i++)
                printf("%s%d", i ? " " : "", ids[i]);
        printf("\n");
        return TGC_OK;
}

static int to_ids(const Args *a, const Tokenizer *tok, const char *in, size_t n, Err *e)
{
        int *ids, k, bos = opt_set(a, O_ADD_BOS) ? opt_flag(a, O_ADD_BOS) : -1;
        int code = tokenizer_encode(tok, in, n, bos, &ids, &k, e);
        if (code)
                return code == TGC_USAGE ? TGC_BAD_FILE : code;
        code = print_ids(a, ids, k, (double)n, e);
        free(ids);
        return code;
}

/* ---- --messages ---- */

/* A plan's section, a .gguf, or the folder that the tokenizer is in. */
static int open_chat(Chat *c, const Args *a, Plan *p, Err *e)
{
        char real[4400], dir[4400];
        ModelKind kind = MODEL_HF;
        const char *path = a->pos[0];
        bool model = !model_kind(path, &kind, real, sizeof real, NULL);
        if (model && kind == MODEL_PLAN) {
                int code = plan_open(p, real, e);
                return code ? code : chat_open(c, a, plan_find(p, "chat"), path, e);
        }
        if (file_is_dir(path) || (model && kind == MODEL_GGUF))
                return chat_open_file(c, a, path, kind, e);
        snprintf(dir, sizeof dir, "%s", path);
        char *slash = strrchr(dir, '/');
        strcpy(slash ? slash : dir, slash ? "" : ".");
        int code = chat_open_file(c, a, dir, MODEL_HF, e);
        c->of = path;
        return code;
}

static int print_conversation(const Args *a, Chat *c, const Tokenizer *tok, Json talk, Err *e)
{
        ChatRendered r;
        int *ids, k, code;
        if (opt_flag(a, O_TO_TEXT)) {
                if ((code = chat_ids(c, a, talk, tok, 0, &ids, &k, e)))
                        return code;
                code = print_ids(a, ids, k, -1, e);
                free(ids);
                return code;
        }
        if ((code = chat_text(c, talk, true, &r, e)))
                return code;
        if (opt_flag(a, O_JSON)) {
                cJSON *o = cJSON_CreateObject();
                json_add_text(o, "text", r.text, r.n);
                code = json_print(o, e);
        } else {
                put_generated(r.text, r.n);
        }
        chat_rendered_free(&r);
        return code;
}

static int conversation(const Args *a, const Tokenizer *tok, Err *e)
{
        Chat c = { 0 };
        Plan p = { 0 };
        JsonText in;
        Json talk;
        char *text;
        size_t n;
        int code = open_chat(&c, a, &p, e);
        if (!code && !(code = messages_read(a, &text, &n, e))) {
                if (!(code = json_open(&in, &talk, text, n, opt_str(a, O_MESSAGES), true, e))) {
                        code = print_conversation(a, &c, tok, talk, e);
                        json_close(&in);
                }
                free(text);
        }
        chat_close(&c);
        plan_close(&p);
        return code;
}

/* Each --prompt is a line. */
static int given(const Args *a, const Tokenizer *tok, Err *e)
{
        const OptionValue *p = &a->v[O_PROMPT];
        int code = TGC_OK;
        for (int i = 0; i < p->n && !code; i++) {
                const size_t n = strlen(p->list[i]);
                code = opt_flag(a, O_TO_TEXT) ? to_text(a, tok, p->list[i], n, "--prompt", e)
                                              : to_ids(a, tok, p->list[i], n, e);
                if (!code && opt_flag(a, O_TO_TEXT) && !opt_flag(a, O_JSON))
                        putchar('\n');
        }
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
        if (opt_str(a, O_MESSAGES)) {
                code = conversation(a, tok, e);
        } else if (a->v[O_PROMPT].n) {
                code = given(a, tok, e);
        } else if (!(code = read_stdin(&in, &n, e))) {
                code = opt_flag(a, O_TO_TEXT) ? to_text(a, tok, in, n, "standard input", e)
                                              : to_ids(a, tok, in, n, e);
                free(in);
        }
        tokenizer_free(tok);
        return code;
}
