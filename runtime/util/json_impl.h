/* json_impl.h: private to json_check.c and json_text.c: text that has been checked. */
#ifndef TGC_JSON_IMPL_H
#define TGC_JSON_IMPL_H

#include "json.h"

/* A large list or object, from its first byte to behind its last. */
struct JsonSpan {
        const char *from, *to;
};

static inline const char *past_space(const char *p)
{
        while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')
                p++;
        return p;
}

static inline const char *past_string(const char *p)
{
        for (p++; *p != '"'; p++)
                p += *p == '\\';
        return p + 1;
}

static inline int hex4(const char *s)
{
        int x = 0;

        for (int i = 0; i < 4; i++) {
                char d = s[i];
                x = x << 4 | (d <= '9' ? d - '0' : (d | 32) - 'a' + 10);
        }
        return x;
}

#endif
