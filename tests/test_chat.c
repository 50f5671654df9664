/* test_chat.c: chat templates, against what jinja2 makes of them (tests/chat/compare.py --write).
 *
 * data/chat/expressions.jsonl has small templates, templates.jsonl ones in the style of each family
 * over the conversations of conversations.json. */
#include <time.h>
#include "../runtime/chat/chat.h"
#include "../runtime/util/file.h"
#include "test.h"

static char *string(Json v, size_t *n)
{
        JsonBuf b = { 0 };
        const char *s = json_string(v, &b, n);
        char *out = s ? malloc(*n + 1) : NULL;
        if (s)
                memcpy(out, s, *n);
        if (s)
                out[*n] = 0;
        json_buf_free(&b);
        return out;
}

static void add_tokens(ChatSource *s, Json tokens)
{
        for (JsonEach i = json_each(tokens); json_next(&i);) {
                size_t n;
                char *name = string(i.key, &n), *text = string(i.value, &n);
                CHECK(!chat_add_token(s, name, text, NULL));
                free(name);
                free(text);
        }
}

static uint64_t fnv(const char *s, size_t n)
{
        uint64_t h = 14695981039346656037u;
        for (size_t i = 0; i < n; i++)
                h = (h ^ (unsigned char)s[i]) * 1099511628211u;
        return h;
}

/* One vector: the text, its hash, or an error; and the spans.  t NULL: e says why. */
static void same(const ChatTemplate *t, const ChatAsk *ask, Json want, const char *name, Err e)
{
        ChatRendered r = { 0 };
        size_t n;
        int code = t ? chat_render(t, ask, &r, &e) : TGC_BAD_FILE, k = 0;
        char *text = string(json_get(want, "text"), &n), *hash = string(json_get(want, "fnv"), &n),
             mine[20];
        if (json_get(want, "error").at) {
                CHECK_MSG(code, "%s: jinja2 raises an error, this gives %s", name, r.text);
        } else {
                CHECK_MSG(!code || strstr(e.msg, "not supported"), "%s: %s", name, e.msg);
                snprintf(mine, sizeof mine, "%016llx",
                         (unsigned long long)fnv(r.text ? r.text : "", r.n));
                if (!code && text)
                        CHECK_MSG(!strcmp(text, r.text), "%s:\n<%s>\nwant\n<%s>", name, r.text,
                                  text);
                if (!code && hash)
                        CHECK_MSG(!strcmp(hash, mine), "%s: another text: %s", name, r.text);
                for (JsonEach i = json_each(json_get(want, "spans")); json_next(&i) && !code; k++)
                        CHECK_MSG(k < 2 * r.n_spans && (size_t)json_number(i.value) == r.span[k],
                                  "%s: span %d", name, k);
                CHECK_MSG(code || k == 2 * r.n_spans, "%s: %d spans", name, r.n_spans);
        }
        free(text);
        free(hash);
        chat_rendered_free(&r);
}

/* fn(line) for each line of a file. */
static int each_line(const char *path, void (*fn)(Json line, void *to), void *to)
{
        char *text, *at;
        size_t n;
        int lines = 0;
        Err e;
        CHECK_MSG(!file_read_text(path, 64 << 20, &text, &n, &e), "%s", e.msg);
        for (at = text; *at; lines++) {
                char *end = strchr(at, '\n');
                JsonText in;
                Json root;
                CHECK_MSG(!json_open(&in, &root, at, (size_t)(end - at), path, true, &e), "%s",
                          e.msg);
                fn(root, to);
                json_close(&in);
                at = end + 1;
        }
        free(text);
        return lines;
}

/* What all vectors share. */
typedef struct Suite {
        JsonText in;
        Json all;
        ChatSource tokens;
        ChatTemplate *t;
        char name[64], *text;
} Suite;

enum { NOW = 1753876800 };

static void open_suite(Suite *s)
{
        size_t n;
        Err e;
        setenv("TZ", "UTC", 1);
        tzset();
        *s = (Suite) { 0 };
        CHECK(!file_read_text("tests/data/chat/conversations.json", 1 << 20, &s->text, &n, NULL));
        CHECK_MSG(!json_open(&s->in, &s->all, s->text, n, "conversations", true, &e), "%s", e.msg);
        add_tokens(&s->tokens, json_get(s->all, "tokens"));
}

static void close_suite(Suite *s)
{
        chat_template_free(s->t);
        chat_source_free(&s->tokens);
        json_close(&s->in);
        free(s->text);
}

static void expression(Json line, void *to)
{
        Suite *s = to;
        size_t n;
        char *text = string(json_get(line, "template"), &n);
        Err e;
        chat_template_free(s->t);
        ChatAsk ask = { .conversation = json_get(json_get(s->all, "conversations"), "pair"),
                        .source = &s->tokens,
                        .generation_prompt = true,
                        .now = NOW };
        chat_template_new(&s->t, text, n, "t", &e);
        same(s->t, &ask, line, text, e);
        free(text);
}

TEST (expressions_and_statements) {
        Suite s;
        open_suite(&s);
        CHECK(each_line("tests/data/chat/expressions.jsonl", expression, &s) > 600);
        close_suite(&s);
}

static void family(Json line, void *to)
{
        Suite *s = to;
        size_t n;
        Err e;
        char *text = string(json_get(line, "template"), &n), *name, what[160];
        if (text) {
                chat_template_free(s->t);
                CHECK_MSG(!chat_template_new(&s->t, text, n, "t", &e), "%s", e.msg);
                free(text);
                name = string(json_get(line, "name"), &n);
                snprintf(s->name, sizeof s->name, "%s", name);
                free(name);
                return;
        }
        name = string(json_get(line, "use"), &n);
        int k = (int)json_number(json_get(line, "vars"));
        Json vars = { NULL, NULL };
        for (JsonEach i = json_each(json_get(s->all, "vars")); json_next(&i); k--)
                if (!k)
                        vars = i.value;
        ChatAsk ask = { json_get(json_get(s->all, "conversations"), name), vars, &s->tokens,
                        json_type(json_get(line, "prompt")) == 't', NOW };
        snprintf(what, sizeof what, "%s %s", s->name, name);
        same(s->t, &ask, line, what, (Err) { 0 });
        free(name);
}

TEST (templates_of_each_family) {
        Suite s;
        open_suite(&s);
        CHECK(each_line("tests/data/chat/templates.jsonl", family, &s) > 2000);
        close_suite(&s);
}

/* ---- what is refused ---- */

static const char *render(const char *text, const char *conversation)
{
        static char out[4096];
        ChatTemplate *t;
        ChatRendered r = { 0 };
        JsonText in;
        Json root;
        Err e = { 0 };
        CHECK_MSG(!json_open(&in, &root, conversation, strlen(conversation), "c", true, &e), "%s",
                  e.msg);
        int code = chat_template_new(&t, text, strlen(text), "dir/chat.jinja", &e);
        if (!code)
                code = chat_render(t, &(ChatAsk) { .conversation = root }, &r, &e);
        snprintf(out, sizeof out, "%s", code ? e.msg : r.text);
        chat_rendered_free(&r);
        chat_template_free(t);
        json_close(&in);
        return out;
}

TEST (errors_name_file_line_and_column) {
        static const char *const c[][2] = {
                { "a\n  {{ x.y }}", "dir/chat.jinja:2:7: error: 'x' is undefined" },
                { "{{ raise_exception('only user') }}",
                  "dir/chat.jinja:1:19: error: the template refuses this conversation: only user" },
                { "\n\n{% include 'x' %}",
                  "dir/chat.jinja:3:4: error: the statement {% include %} is not supported in "
                  "chat templates" },
                { "{% if x %}",
                  "dir/chat.jinja:1:9: error: the template ends where this block needs its "
                  "{% endif %}" },
                { "é {{ 1 | pprint }}",
                  "dir/chat.jinja:1:10: error: the filter pprint is not supported" },
                { "{{ 1 | nope }}", "dir/chat.jinja:1:8: error: no filter is called nope" },
                { "{{ 'x'.encode() }}",
                  "dir/chat.jinja:1:7: error: the method str.encode is not supported" },
        };
        for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
                const char *got = render(c[i][0], "[]");
                CHECK_MSG(!strcmp(got, c[i][1]), "%s:\n%s\nwant\n%s", c[i][0], got, c[i][1]);
        }
}

TEST (limits_hold) {
        static const char *const c[][2] = {
                { "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                  "steps" },
                { "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(99999) %}{% set ns.s = "
                  "ns.s + ns.s %}{% endfor %}",
                  "MB of values" },
                { "{{ 'x' * 99999999999 }}", "MB of values" },
                { "{% set s = 'x' * 9999999 %}{% for a in range(99999) %}{{ s }}{% endfor %}",
                  "MB of" },
                { "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested deeper" },
                { "{% set ns = namespace(l=[]) %}{% for a in range(9999) %}{% set ns.l = [ns.l] "
                  "%}{% endfor %}{{ ns.l }}",
                  "nested deeper" },
                { "{{ range(100001) }}", "Range too big" },
                { "{{ 9223372036854775807 + 1 }}", "beyond 64 bits" },
        };
        for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
                const char *got = render(c[i][0], "[]");
                CHECK_MSG(strstr(got, c[i][1]), "%s:\n%s\nwant\n%s", c[i][0], got, c[i][1]);
        }
        char deep[3002];
        memset(deep, '(', 3000);
        memcpy(deep, "{{", 2);
        deep[3000] = 0;
        CHECK(strstr(render(deep, "[]"), "nested deeper"));
}

TEST (conversations_that_are_none) {
        CHECK(strstr(render("x", "{\"messages\": 5}"), "no list of messages"));
        CHECK(strstr(render("x", "5"), "no list of messages"));
        CHECK(strstr(render("x", "[5]"), "a message is not an object"));
        CHECK(strstr(render("x", "{\"messages\": [], \"tools\": 5}"), "tools is not a list"));
        CHECK(!strcmp(render("{{ messages[0] }}", "[{\"role\": null, \"n\": 1e2}]"),
                      "{'n': 100.0}"));
}

/* A real model's chats, through a template of the same kind. */
TEST_SHARED(smollm2)
{
        static const char template[] =
                "{% for message in messages %}{% if loop.first and messages[0]['role'] != "
                "'system' %}{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, "
                "trained by Hugging Face<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + "
                "message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor "
                "%}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
        char path[600], *text;
        size_t n;
        JsonText in;
        Json root;
        ChatTemplate *t;
        Err e;
        int chats = 0;
        snprintf(path, sizeof path, "%sreal/smollm2-135m-instruct-q4_1.json", data_root());
        if (access(path, R_OK))
                SKIP("not there");
        CHECK_MSG(!file_read_text(path, 64 << 20, &text, &n, &e), "%s", e.msg);
        CHECK_MSG(!json_open(&in, &root, text, n, path, true, &e), "%s", e.msg);
        CHECK_MSG(!chat_template_new(&t, template, sizeof template - 1, "t", &e), "%s", e.msg);
        for (JsonEach i = json_each(json_get(root, "runs")); json_next(&i);) {
                Json talk = json_get(i.value, "messages");
                ChatRendered r;
                if (!talk.at)
                        continue;
                CHECK_MSG(!chat_render(t,
                                       &(ChatAsk) { .conversation = talk,
                                                    .generation_prompt = true },
                                       &r, &e),
                          "%s", e.msg);
                CHECK_MSG(json_is(json_get(i.value, "rendered"), r.text), "another text:\n%s",
                          r.text);
                chat_rendered_free(&r);
                chats++;
        }
        CHECK(chats == 2);
        chat_template_free(t);
        json_close(&in);
        free(text);
}

/* ---- where templates come from ---- */

static void put(const char *dir, const char *name, const char *text)
{
        char path[300];
        snprintf(path, sizeof path, "%s/%s", dir, name);
        CHECK(!file_write_atomic(path, text, strlen(text), NULL));
}

TEST (sources_of_a_folder) {
        char dir[] = "/tmp/tgc-chat-XXXXXX", more[300], cmd[400];
        ChatSource s = { 0 }, u = { 0 };
        char *text;
        size_t n;
        CHECK(mkdtemp(dir));
        put(dir, "tokenizer_config.json",
            "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", \"pad_token\": "
            "null, \"image_token\": \"<i>\", \"chat_template\": [{\"name\": \"default\", "
            "\"template\": \"D\"}, {\"name\": \"tool_use\", \"template\": \"T\"}]}");
        put(dir, "special_tokens_map.json", "{\"eos_token\": \"<eos>\"}");
        CHECK(!chat_source_folder(&s, dir, NULL));
        CHECK(!strcmp(chat_template(&s, "default"), "D") &&
              !strcmp(chat_template(&s, "tool_use"), "T"));
        CHECK(s.n_tokens == 3);
        CHECK(!chat_source_pack(&s, &text, &n, NULL) &&
              !chat_source_unpack(&u, text, n, "chat", NULL));
        CHECK(u.n_tokens == 3 && u.n_templates == 2 && !strcmp(u.token[1].text, "<eos>"));
        free(text);
        chat_source_free(&s);
        chat_source_free(&u);
        snprintf(more, sizeof more, "%s/additional_chat_templates", dir);
        snprintf(cmd, sizeof cmd, "mkdir %s", more);
        CHECK(!system(cmd));
        put(dir, "chat_template.jinja", "file");
        put(more, "rag.jinja", "R");
        CHECK(!chat_source_folder(&s, dir, NULL)); /* files come before the config */
        CHECK(!strcmp(chat_template(&s, "default"), "file") &&
              !strcmp(chat_template(&s, "rag"), "R"));
        CHECK(!chat_template(&s, "tool_use"));
        chat_source_free(&s);
        put(dir, "chat_template.jinja", "\xff");
        Err e;
        CHECK(chat_source_folder(&s, dir, &e) == TGC_BAD_FILE && strstr(e.msg, "UTF-8"));
        chat_source_free(&s);
        snprintf(cmd, sizeof cmd, "rm -r %s", dir);
        CHECK(!system(cmd));
}

TEST_MAIN
