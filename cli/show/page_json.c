/* page_json.c: writes JSON that is safe inside a page's script.
 *
 * Whoever made the plan chose its names.  So `<`, `>` and `&` are written as \u003c and so on: no
 * text can end the script or begin a tag, wherever it stands. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/json.h"
#include "page.h"

static void js_raw(JsonOut *j, const char *s, size_t n)
{
        if (j->n + n + 1 > j->cap) {
                size_t cap = 2 * (j->n + n) + 4096;
                char *more = j->lost ? NULL : realloc(j->s, cap);
                j->lost |= !more;
                if (!more)
                        return;
                j->s = more;
                j->cap = cap;
        }
        memcpy(j->s + j->n, s, n);
        j->n += n;
        j->s[j->n] = 0;
}

static void word(JsonOut *j, const char *s) { js_raw(j, s, strlen(s)); }

static void text(JsonOut *j, const char *s, size_t n)
{
        char code[8];
        word(j, "\"");
        for (size_t i = 0, k; i < n; i += k) {
                const unsigned char c = (unsigned char)s[i];
                k = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
                const bool ok = i + k <= n && (k == 1 || json_utf8_ok(s + i, k));
                /* U+2028 and U+2029 end lines of JavaScript */
                const bool ends = ok && k == 3 && !memcmp(s + i, "\xe2\x80", 2) &&
                                  ((unsigned char)s[i + 2] & 0xfe) == 0xa8;
                if (!ok) {
                        word(j, "\\ufffd");
                        k = 1;
                } else if (ends) {
                        word(j, s[i + 2] & 1 ? "\\u2029" : "\\u2028");
                } else if (k == 1 && (c < ' ' || c == 0x7f || strchr("\"\\<>&", c))) {
                        snprintf(code, sizeof code, "\\u%04x", (unsigned)c);
                        word(j, c == '\n' ? "\\n" : c == '\t' ? "\\t" : code);
                } else {
                        size_t to = i + k; /* what needs nothing, at once */
                        while (k == 1 && to < n && (unsigned char)s[to] < 0x7f && s[to] >= ' ' &&
                               !strchr("\"\\<>&", s[to]))
                                to++;
                        js_raw(j, s + i, to - i);
                        k = to - i;
                }
        }
        word(j, "\"");
}

static void key_of(JsonOut *j, const char *key)
{
        if (j->comma)
                word(j, ",");
        if (key) {
                text(j, key, strlen(key));
                word(j, ":");
        }
        j->comma = true;
}

void js_begin(JsonOut *j, const char *key, char bracket)
{
        key_of(j, key);
        js_raw(j, &bracket, 1);
        j->comma = false;
}

void js_end(JsonOut *j, char bracket)
{
        js_raw(j, &bracket, 1);
        if (bracket == '}')
                word(j, "\n");
        j->comma = true;
}

void js_num(JsonOut *j, const char *key, double x)
{
        char s[40];
        key_of(j, key);
        if (!isfinite(x))
                snprintf(s, sizeof s, "null");
        else
                snprintf(s, sizeof s, x == floor(x) && fabs(x) < 9e15 ? "%.0f" : "%.9g", x);
        word(j, s);
}

void js_strn(JsonOut *j, const char *key, const char *s, size_t n)
{
        key_of(j, key);
        text(j, s, n);
}

void js_str(JsonOut *j, const char *key, const char *s) { js_strn(j, key, s, strlen(s)); }

void js_free(JsonOut *j)
{
        free(j->s);
        *j = (JsonOut) { 0 };
}
