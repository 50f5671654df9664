/* render.c: renders templates for compare.py: a JSON object a line in, one a line out.
 *
 * In: {"template": TEXT, "conversation": MESSAGES or {"messages", "tools", "documents"}, "vars":
 * {}, "tokens": {}, "prompt": bool, "now": seconds}.  Out: {"text": TEXT, "spans": [...]} or
 * {"error": MESSAGE, "code": N}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/chat/chat.h"

static void put_string(const char *s, size_t n)
{
        putchar('"');
        for (size_t i = 0; i < n; i++) {
                unsigned char c = (unsigned char)s[i];
                if (c < 32 || c == '"' || c == '\\')
                        printf("\\u%04x", c);
                else
                        putchar(c);
        }
        putchar('"');
}

static void fail(const Err *e)
{
        printf("{\"code\": %d, \"error\": ", e->code);
        put_string(e->msg, strlen(e->msg));
        printf("}\n");
}

static int read_tokens(ChatSource *s, Json tokens, Err *e)
{
        JsonBuf k = { 0 }, v = { 0 };
        int code = TGC_OK;
        for (JsonEach i = json_each(tokens); json_next(&i) && !code;) {
                size_t n, m;
                const char *a = json_string(i.key, &k, &n), *b = json_string(i.value, &v, &m);
                char *name = strndup(a, n), *text = strndup(b, m);
                code = chat_add_token(s, name, text, e);
                free(name);
                free(text);
        }
        json_buf_free(&k);
        json_buf_free(&v);
        return code;
}

static void render(Json o)
{
        static ChatTemplate *last;
        static char *last_text;
        static size_t last_n;
        ChatSource s = { 0 };
        ChatRendered r;
        JsonBuf b = { 0 };
        size_t n;
        Err e = { 0 };
        const char *text = json_string(json_get(o, "template"), &b, &n);
        int code = TGC_OK;
        if (!last || n != last_n || memcmp(text, last_text, n)) {
                chat_template_free(last);
                free(last_text);
                last_text = malloc(n + 1);
                memcpy(last_text, text, n);
                last_n = n;
                code = chat_template_new(&last, text, n, "t", &e);
        }
        if (!code)
                code = read_tokens(&s, json_get(o, "tokens"), &e);
        Json now = json_get(o, "now");
        ChatAsk ask = { json_get(o, "conversation"), json_get(o, "vars"), &s,
                        json_type(json_get(o, "prompt")) == 't',
                        now.at ? (int64_t)json_number(now) : 0 };
        if (!code)
                code = chat_render(last, &ask, &r, &e);
        if (code) {
                fail(&e);
        } else {
                printf("{\"text\": ");
                put_string(r.text, r.n);
                printf(", \"spans\": [");
                for (int i = 0; i < 2 * r.n_spans; i++)
                        printf("%s%zu", i ? ", " : "", r.span[i]);
                printf("]}\n");
                chat_rendered_free(&r);
        }
        chat_source_free(&s);
        json_buf_free(&b);
}

int main(void)
{
        char *line = NULL;
        size_t cap = 0;
        ssize_t n;
        while ((n = getline(&line, &cap, stdin)) > 0) {
                JsonText in;
                Json o;
                Err e = { 0 };
                if (json_open(&in, &o, line, (size_t)n, "line", true, &e)) {
                        fail(&e);
                        continue;
                }
                render(o);
                json_close(&in);
                fflush(stdout);
        }
        fflush(stdout);
        free(line);
        return 0;
}
