/* chat_ask.c: turns a conversation into text and ids, by the model's chat template. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../../runtime/util/file.h"
#include "chat.h"
#include "../load/gguf_model.h"

enum { MOST_TEMPLATE_FILE = 4 << 20, MOST_MESSAGES = 256 << 20 };

/* ---- the template ---- */

static int template_of_file(Chat *c, const char *path, Err *e)
{
        char *text;
        size_t n;
        int code = file_read_text(path, MOST_TEMPLATE_FILE, &text, &n, e);
        if (code)
                return code;
        code = chat_template_new(&c->plain, text, n, path, e);
        free(text);
        return code;
}

static int template_named(const Chat *c, const char *name, ChatTemplate **t, Err *e)
{
        char what[600];
        const char *text = chat_template(&c->source, name);
        snprintf(what, sizeof what,
                 strcmp(name, "default") ? "%.500s: chat template %.60s" : "%.500s: chat template",
                 c->of, name);
        return text ? chat_template_new(t, text, strlen(text), what, e) : TGC_OK;
}

static int check_vars(Chat *c, const char *text, Err *e)
{
        JsonText in;
        Json root;
        int code = json_open(&in, &root, text, strlen(text), "--chat-template-kwargs", true, e);
        if (code)
                return code == TGC_BAD_FILE ? TGC_USAGE : code;
        if (json_type(root) != '{')
                code = err_set(
                        e, TGC_USAGE,
                        "--chat-template-kwargs takes a JSON object, as '{\"enable_thinking\": "
                        "false}'");
        json_close(&in);
        if (!code && !(c->vars = strdup(text)))
                code = err_set(e, TGC_NO_MEMORY, "no memory for --chat-template-kwargs");
        return code;
}

/* The source is there. */
static int open_templates(Chat *c, const Args *a, Err *e)
{
        int code = TGC_OK;
        if (opt_str(a, O_CHAT_KWARGS))
                code = check_vars(c, opt_str(a, O_CHAT_KWARGS), e);
        if (!code && opt_str(a, O_TEMPLATE))
                return template_of_file(c, opt_str(a, O_TEMPLATE), e);
        if (!code)
                code = template_named(c, "default", &c->plain, e);
        if (!code)
                code = template_named(c, "tool_use", &c->with_tools, e);
        if (!code && !c->plain && !c->with_tools)
                code = err_set(
                        e, TGC_USAGE,
                        "%s has no chat template, so the format of its conversations is unknown; "
                        "--template FILE gives one (Jinja), tgc run -p TEXT goes on "
                        "with a text as it is",
                        c->of);
        return code;
}

int chat_open(Chat *c, const Args *a, const Section *s, const char *of, Err *e)
{
        *c = (Chat) { .of = of };
        int code = s ? chat_source_unpack(&c->source, s->data, s->size, "section chat", e) : TGC_OK;
        return code ? code : open_templates(c, a, e);
}

int chat_open_file(Chat *c, const Args *a, const char *path, ModelKind kind, Err *e)
{
        *c = (Chat) { .of = path };
        int code = kind == MODEL_GGUF ? gguf_chat(&c->source, path, e)
                                      : chat_source_folder(&c->source, path, e);
        return code ? code : open_templates(c, a, e);
}

void chat_close(Chat *c)
{
        chat_template_free(c->plain);
        chat_template_free(c->with_tools);
        chat_source_free(&c->source);
        free(c->vars);
        *c = (Chat) { 0 };
}

/* ---- rendering ---- */

int chat_text(const Chat *c, Json conversation, bool answer, ChatRendered *r, Err *e)
{
        const ChatTemplate *t = (chat_has_tools(conversation) || !c->plain) && c->with_tools
                                        ? c->with_tools
                                        : c->plain;
        JsonText in;
        ChatAsk ask = { .conversation = conversation,
                        .source = &c->source,
                        .generation_prompt = answer,
                        .now = c->now ? c->now : (int64_t)time(NULL) };
        if (!c->vars)
                return chat_render(t, &ask, r, e);
        int code = json_open(&in, &ask.vars, c->vars, strlen(c->vars), "--chat-template-kwargs",
                             true, e);
        if (code)
                return code;
        code = chat_render(t, &ask, r, e);
        json_close(&in);
        return code;
}

int chat_ids(Chat *c, const Args *a, Json conversation, const Tokenizer *tok, int vocab, int **ids,
             int *n, Err *e)
{
        ChatRendered r;
        Err why;
        Progress talk = progress_new(a);
        int code = chat_text(c, conversation, true, &r, e);
        *ids = NULL;
        if (code)
                return code;
        if ((code = tokenizer_encode(tok, r.text, r.n, 0, ids, n, &why)))
                code = err_set(e, code, "the rendered conversation: %s", why.msg);
        for (int i = 0; i < *n && !code; i++)
                if (vocab && (*ids)[i] >= vocab)
                        code = err_set(e, TGC_BAD_FILE,
                                       "the tokenizer gives id %d, the model's vocabulary is %d",
                                       (*ids)[i], vocab);
        if (!code && !*n)
                code = err_set(e, TGC_USAGE,
                               "%s: the chat template gives an empty text for this "
                               "conversation",
                               c->of);
        const int bos = tokenizer_bos(tok);
        if (!code && *n > 1 && bos >= 0 && (*ids)[0] == bos && (*ids)[1] == bos && !c->warned) {
                c->warned = true;
                say(&talk,
                    "%s: warning: the conversation begins with two BOS tokens (%d); models are "
                    "trained with one\n",
                    c->of, bos);
        }
        chat_rendered_free(&r);
        if (code) {
                free(*ids);
                *ids = NULL;
        }
        return code;
}

int chat_end_of_turn(const Chat *c, const Tokenizer *tok)
{
        static const char talk[] = "[{\"role\": \"user\", \"content\": \"ask\"}, {\"role\": "
                                   "\"assistant\", \"content\": \"an4nswer\"}]";
        JsonText in;
        Json root;
        ChatRendered r = { 0 };
        int *ids = NULL, n = 0, id = -1;
        if (json_open(&in, &root, talk, sizeof talk - 1, "", true, NULL))
                return -1;
        if (!chat_text(c, root, false, &r, NULL)) {
                const char *at = strstr(r.text, "an4nswer");
                for (const char *next; at && (next = strstr(at + 1, "an4nswer"));)
                        at = next;
                if (at && !tokenizer_encode(tok, at + 8, strlen(at + 8), 0, &ids, &n, NULL) && n &&
                    tokenizer_is_special(tok, ids[0]))
                        id = ids[0];
        }
        free(ids);
        chat_rendered_free(&r);
        json_close(&in);
        return id;
}

/* ---- --messages ---- */

/* The text of a list of messages, or of an object that has one, with a system message before
 * them. */
static int add_system(const char *path, Json root, const char *system, char **text, size_t *n,
                      Err *e)
{
        Json list = json_type(root) == '{' ? json_get(root, "messages") : root;
        char *quoted = NULL, *out = NULL;
        size_t k;
        if (json_type(list) != '[')
                return err_set(e, TGC_BAD_FILE, "%s: no list of messages", path);
        for (JsonEach i = json_each(list); json_next(&i);)
                if (json_is(json_get(i.value, "role"), "system"))
                        return err_set(e, TGC_USAGE, "--system: %s already has a system message",
                                       path);
        cJSON *s = cJSON_CreateString(system);
        quoted = s ? cJSON_PrintUnformatted(s) : NULL;
        cJSON_Delete(s);
        FILE *f = quoted ? open_memstream(&out, &k) : NULL;
        if (f) {
                const char *from = *text, *at = list.at + 1;
                fwrite(from, 1, (size_t)(at - from), f);
                fprintf(f, "{\"role\": \"system\", \"content\": %s}%s", quoted,
                        json_count(list) ? ", " : "");
                fwrite(at, 1, *n - (size_t)(at - from), f);
        }
        free(quoted);
        const bool whole = f && !ferror(f);
        if (!f || fclose(f) || !whole || !out) {
                free(out);
                return err_set(e, TGC_NO_MEMORY, "no memory for the messages");
        }
        free(*text);
        *text = out;
        *n = k;
        return TGC_OK;
}

int messages_read(const Args *a, char **text, size_t *n, Err *e)
{
        const char *path = opt_str(a, O_MESSAGES),
                   *name = strcmp(path, "-") ? path : "standard input";
        JsonText in;
        Json root;
        int code = strcmp(path, "-") ? file_read_text(path, MOST_MESSAGES, text, n, e)
                                     : read_stdin(text, n, e);
        if (code)
                return code;
        *n = drop_mark(*text, *n, name, NULL); /* no part of JSON */
        if (!(code = json_open(&in, &root, *text, *n, name, true, e))) {
                if (json_type(root) != '[' && json_type(json_get(root, "messages")) != '[')
                        code = err_set(
                                e, TGC_BAD_FILE,
                                "%s: want a list of messages, or an object with \"messages\" and "
                                "optionally \"tools\"",
                                name);
                else if ((code = json_only(root, "messages tools documents", "a conversation", e)))
                        ; /* said */
                else if (opt_str(a, O_SYSTEM))
                        code = add_system(name, root, opt_str(a, O_SYSTEM), text, n, e);
                json_close(&in);
        }
        if (code) {
                free(*text);
                *text = NULL;
        }
        return code;
}

int messages_prompt(const Args *a, const Plan *p, const Tokenizer *tok, int vocab, Prompts *out,
                    int *end_of_turn, Err *e)
{
        Chat c = { 0 };
        JsonText in;
        Json talk;
        char *text;
        size_t n;
        int *ids, k, code;
        if (a->v[O_PROMPT].n || opt_str(a, O_FILE) || opt_str(a, O_PROMPT_IDS))
                return err_set(e, TGC_USAGE,
                               "run: give one of --messages, --prompt, --file and --prompt-ids");
        if (!tok)
                return err_set(
                        e, TGC_USAGE,
                        "run: --messages needs a tokenizer, and %s has none; --tokenizer FILE "
                        "gives one",
                        a->pos[0]);
        code = chat_open(&c, a, plan_find(p, "chat"), a->pos[0], e);
        if (!code && !(code = messages_read(a, &text, &n, e))) {
                if (!(code = json_open(&in, &talk, text, n, opt_str(a, O_MESSAGES), true, e))) {
                        code = chat_ids(&c, a, talk, tok, vocab, &ids, &k, e);
                        if (!code)
                                code = prompts_add(out, ids, k, e);
                        json_close(&in);
                }
                free(text);
        }
        if (!code)
                *end_of_turn = chat_end_of_turn(&c, tok);
        chat_close(&c);
        return code;
}
