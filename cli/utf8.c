/* utf8.c: UTF-8 that arrives in pieces: how many bytes can be printed now. */
#include "cli.h"

/* Bytes of a sequence that begins with c; 1 for what cannot begin one. */
static size_t length(unsigned char c)
{
        return c >= 0xf0 && c < 0xf5   ? 4
               : c >= 0xe0 && c < 0xf0 ? 3
               : c >= 0xc2 && c < 0xe0 ? 2
                                       : 1;
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
