/* utf8.c: text that arrives in pieces. */
#include <stdlib.h>
#include <string.h>
#include "../runtime/json.h"
#include "cli.h"

/* Bytes of a sequence that begins with c; 1 for what cannot begin one. */
static size_t length(unsigned char c)
{
        return c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 1;
}

size_t utf8_ready(const char *s, size_t n)
{
        for (size_t back = 1; back < 4 && back <= n; back++) {
                unsigned char c = (unsigned char)s[n - back];
                if ((c & 0xc0) != 0x80)
                        return length(c) > back ? n - back : n;
        }
        return n;
}

char *utf8_clean(const char *s, size_t n)
{
        char *out = malloc(3 * n + 1), *to = out;
        for (size_t i = 0; i < n && out; ) {
                size_t k = length((unsigned char)s[i]);
                if (i + k <= n && s[i] && json_utf8_ok(s + i, k)) {
                        memcpy(to, s + i, k);
                        to += k;
                        i += k;
                } else {
                        memcpy(to, "\xef\xbf\xbd", 3);
                        to += 3;
                        i++;
                }
        }
        if (out)
                *to = 0;
        return out;
}
