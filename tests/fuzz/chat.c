/* chat.c: a chat template, and behind a NUL the conversation that it renders. */
#include "fuzz.h"
#include "../../runtime/chat/chat.h"

static const char plain[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
        "\"content\": \" \xc3\xa9 1.5\"}, {\"role\": \"assistant\", \"content\": [{\"type\": "
        "\"text\", \"text\": \"t\"}], \"tool_calls\": [{\"id\": \"123456789\", \"function\": "
        "{\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, null, true]}}}]}], \"tools\": "
        "[{\"type\": \"function\"}]}";

FUZZ(chat)
{
        const uint8_t *nul = n ? memchr(data, 0, n) : NULL;
        const size_t m = nul ? (size_t)(nul - data) : n;
        const char *text = nul ? (const char *)nul + 1 : plain;
        const size_t k = nul ? n - m - 1 : sizeof plain - 1;
        ChatTemplate *t;
        JsonText in;
        Json root;
        Err e;
        if (chat_template_new(&t, (const char *)data, m, "t", &e)) {
                HOLDS(!t && e.code && *e.msg);
                return;
        }
        if (!json_open(&in, &root, text, k, "c", true, &e)) {
                ChatRendered r;
                ChatAsk ask = { .conversation = root, .generation_prompt = true };
                if (chat_render(t, &ask, &r, &e)) {
                        HOLDS(!r.text && !r.span && e.code && *e.msg);
                } else {
                        HOLDS(!r.text[r.n] && json_utf8_ok(r.text, r.n));
                        for (int i = 0; i < r.n_spans; i++)
                                HOLDS(r.span[2 * i] <= r.span[2 * i + 1]);
                }
                chat_rendered_free(&r);
                json_close(&in);
        }
        chat_template_free(t);
}
