/* chat_section.c: a plan's section `chat`; what is read is written the same way. */
#include "fuzz.h"
#include "../../runtime/chat/chat_source.h"

FUZZ(chat_section)
{
        ChatSource s = { 0 }, u = { 0 };
        char *text = NULL, *again = NULL;
        size_t k = 0, l = 0;
        Err e;
        if (!chat_source_unpack(&s, (const char *)data, n, "chat", &e)) {
                HOLDS(!chat_source_pack(&s, &text, &k, &e));
                if (text) {
                        HOLDS(!chat_source_unpack(&u, text, k, "chat", &e));
                        HOLDS(!chat_source_pack(&u, &again, &l, &e) && l == k &&
                              !memcmp(text, again, k));
                }
        }
        free(text);
        free(again);
        chat_source_free(&s);
        chat_source_free(&u);
}
