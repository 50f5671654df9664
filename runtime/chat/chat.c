/* chat.c: implements chat.h. */
#include "chat.h"
#include <stdlib.h>
#include <string.h>
#include "../util/c_locale.h"
#include "jinja.h"

struct ChatTemplate {
        Pool pool;
        Node *root;
        char name[512];
};

/* ---- parsing ---- */

static int parse(J *j, ChatTemplate *t, const char *text, size_t n)
{
        if (setjmp(j->out))
                return j->e->code;
        t->root = jinja_parse(j, text, n);
        return TGC_OK;
}

int chat_template_new(ChatTemplate **out, const char *text, size_t n, const char *name, Err *e)
{
        Err unused = { 0 };
        ChatTemplate *t = calloc(1, sizeof *t);
        *out = NULL;
        if (!t)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for the template", name);
        t->pool.most = MOST_POOL;
        snprintf(t->name, sizeof t->name, "%s", name);
        if (n > MOST_TEMPLATE || !json_utf8_ok(text, n)) {
                free(t);
                return err_set(e, TGC_BAD_FILE,
                               n > MOST_TEMPLATE ? "%s: a chat template of more than 4 MB"
                                                 : "%s: the chat template is not UTF-8",
                               name);
        }
        J j = { .e = e ? e : &unused, .name = t->name, .pool = &t->pool, .line = 1, .col = 1 };
        locale_t was = c_locale_begin();
        int code = parse(&j, t, text, n);
        c_locale_end(was);
        if (code)
                chat_template_free(t);
        else
                *out = t;
        return code;
}

void chat_template_free(ChatTemplate *t)
{
        if (t)
                pool_free(&t->pool);
        free(t);
}

/* ---- JSON to values ---- */

static Val value(J *j, Json v, JsonBuf *b);

static Val number(J *j, Json v)
{
        static const char part[] = "+-.eE0123456789";
        char s[512];
        const char *end = v.in->text + v.in->n;
        size_t n = 0;
        bool real = false;
        for (const char *p = v.at; p < end && memchr(part, *p, sizeof part - 1); p++) {
                if (n == sizeof s - 1)
                        j_lacks(j, "a number of more than 500 characters in the messages");
                real |= *p == '.' || *p == 'e' || *p == 'E';
                s[n++] = *p;
        }
        s[n] = 0;
        if (real)
                return v_float(c_strtod(s, NULL));
        int64_t i = 0;
        bool minus = *s == '-';
        for (const char *p = s + minus; *p; p++)
                if (__builtin_mul_overflow(i, 10, &i) || __builtin_sub_overflow(i, *p - '0', &i))
                        j_lacks(j, "an integer beyond 64 bits in the messages");
        if (!minus && i == INT64_MIN)
                j_lacks(j, "an integer beyond 64 bits in the messages");
        return v_int(minus ? i : -i);
}

static Val string(J *j, Json v, JsonBuf *b)
{
        size_t n;
        const char *s = json_string(v, b, &n);
        if (!s)
                j_no_memory(j);
        return v_str(j, s, n);
}

static Val object(J *j, Json v, JsonBuf *b, bool with_null)
{
        Val d = v_dict(j);
        for (JsonEach i = json_each(v); json_next(&i);)
                if (with_null || json_type(i.value) != 'n') {
                        Val key = string(j, i.key, b);
                        dict_set(j, d.m, key, value(j, i.value, b));
                }
        return d;
}

static Val list(J *j, Json v, JsonBuf *b, Val (*item)(J *, Json, JsonBuf *))
{
        Val l = v_list(j, V_LIST, json_count(v));
        size_t n = 0;
        for (JsonEach i = json_each(v); json_next(&i);)
                l.l->v[n++] = item(j, i.value, b);
        return l;
}

static Val value(J *j, Json v, JsonBuf *b)
{
        Val out;
        j_step(j, 1);
        j_down(j);
        switch (json_type(v)) {
        case '{': out = object(j, v, b, true); break;
        case '[': out = list(j, v, b, value); break;
        case '"': out = string(j, v, b); break;
        case '0': out = number(j, v); break;
        case 't': out = v_bool(true); break;
        case 'f': out = v_bool(false); break;
        default: out = v_none();
        }
        j->depth--;
        return out;
}

/* As transformers hands messages on: without what is null, and reasoning under each of its
 * names. */
static Val message(J *j, Json v, JsonBuf *b)
{
        static const char *const field[] = { "reasoning_content", "thinking", "reasoning" };
        Val *at = NULL, said;
        if (json_type(v) != '{')
                j_fail(j, "a message is not an object");
        Val m = object(j, v, b, false);
        for (int i = 0; i < 3 && !at; i++)
                at = dict_at(j, m.m, field[i]);
        if (!at)
                return m;
        said = *at;
        Val out = v_dict(j);
        dict_set(j, out.m, v_text(j, "thinking"), said);
        for (size_t i = 0; i < m.m->n; i++)
                dict_set(j, out.m, m.m->e[i].key, m.m->e[i].value);
        dict_set(j, out.m, v_text(j, "reasoning_content"), said);
        return out;
}

/* ---- rendering ---- */

static Json part(const ChatAsk *ask, const char *key)
{
        Json o = ask->conversation, none = { NULL, NULL };
        if (json_type(o) != '{')
                return strcmp(key, "messages") ? none : o;
        return json_get(o, key);
}

bool chat_has_tools(Json conversation) { return json_type(json_get(conversation, "tools")) == '['; }

static void set(J *j, const char *name, Val v) { dict_set(j, j->context, v_text(j, name), v); }

static Val objects(J *j, const ChatAsk *ask, const char *key, JsonBuf *b)
{
        Json v = part(ask, key);
        if (!v.at || json_type(v) == 'n')
                return v_none();
        if (json_type(v) != '[')
                j_fail(j, "%s is not a list", key);
        for (JsonEach i = json_each(v); json_next(&i);)
                if (json_type(i.value) != '{')
                        j_fail(j, "%s: one of them is not an object", key);
        return value(j, v, b);
}

static void context(J *j, const ChatAsk *ask, JsonBuf *b)
{
        static const char *const own[] = { "messages", "tools", "documents",
                                           "add_generation_prompt" };
        const ChatSource *s = ask->source;
        j->context = v_dict(j).m;
        for (int i = 0; s && i < s->n_tokens; i++)
                set(j, s->token[i].name, v_text(j, s->token[i].text));
        if (ask->vars.at && json_type(ask->vars) != '{')
                j_fail(j, "the template's variables are not an object");
        for (JsonEach i = json_each(ask->vars); json_next(&i);) {
                for (int k = 0; k < 4; k++)
                        if (json_is(i.key, own[k]))
                                j_fail(j, "%s is not among the template's variables", own[k]);
                Val key = string(j, i.key, b);
                dict_set(j, j->context, key, value(j, i.value, b));
        }
        Json messages = part(ask, "messages");
        if (json_type(messages) != '[')
                j_fail(j, "no list of messages");
        set(j, "messages", list(j, messages, b, message));
        set(j, "tools", objects(j, ask, "tools", b));
        set(j, "documents", objects(j, ask, "documents", b));
        set(j, "add_generation_prompt", v_bool(ask->generation_prompt));
}

static int take(J *j, ChatRendered *out, Err *e)
{
        const size_t spans = (size_t)j->n_spans * 2 * sizeof *out->span;
        out->text = malloc(j->text.n + 1);
        out->span = malloc(spans + 1);
        if (!out->text || !out->span) {
                chat_rendered_free(out);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for the text", j->name);
        }
        memcpy(out->text, j->text.p ? j->text.p : "", j->text.n);
        out->text[out->n = j->text.n] = 0;
        for (int i = 0; i < 2 * j->n_spans;
             i++) /* one that was captured may reach beyond the end */
                out->span[i] = j->span[i] < out->n ? j->span[i] : out->n;
        out->n_spans = j->n_spans;
        return TGC_OK;
}

/* What a failure leaves is the caller's: it may not be local where setjmp is. */
static int render(J *j, const ChatTemplate *t, const ChatAsk *ask, JsonBuf *b, ChatRendered *out)
{
        if (setjmp(j->out))
                return j->e->code;
        context(j, ask, b);
        jinja_walk(j, t->root);
        return take(j, out, j->e);
}

/* A template that reads a key which is null in some message: says which, since it is seen as not
 * there. */
static void explain_null(const ChatAsk *ask, Err *e)
{
        int at = 0;
        for (JsonEach m = json_each(part(ask, "messages")); json_next(&m);) {
                at++;
                for (JsonEach i = json_each(m.value); json_next(&i);) {
                        JsonBuf b = { 0 };
                        char lacks[100] = "";
                        size_t n;
                        const char *key = json_type(i.value) == 'n' ? json_string(i.key, &b, &n)
                                                                    : NULL;
                        if (key && n < 60)
                                snprintf(lacks, sizeof lacks, "has no attribute '%.*s'", (int)n,
                                         key);
                        json_buf_free(&b);
                        if (!*lacks || !strstr(e->msg, lacks))
                                continue;
                        n = strlen(e->msg);
                        snprintf(
                                e->msg + n, sizeof e->msg - n,
                                "; it is null in message %d, and to a template that is the same as "
                                "absent (as in transformers), which this one does not allow there: "
                                "give a text, if only \"\"",
                                at);
                        return;
                }
        }
}

int chat_render(const ChatTemplate *t, const ChatAsk *ask, ChatRendered *out, Err *e)
{
        Err unused = { 0 };
        Pool pool = { .most = MOST_POOL };
        JsonBuf b = { 0 };
        J j = { .e = e ? e : &unused,
                .name = t->name,
                .pool = &pool,
                .line = 1,
                .col = 1,
                .now = ask->now };
        locale_t was = c_locale_begin();
        *out = (ChatRendered) { 0 };
        int code = render(&j, t, ask, &b, out);
        if (code && code != TGC_NO_MEMORY)
                explain_null(ask, j.e);
        json_buf_free(&b);
        pool_free(&pool);
        c_locale_end(was);
        return code;
}

void chat_rendered_free(ChatRendered *r)
{
        free(r->text);
        free(r->span);
        *r = (ChatRendered) { 0 };
}
