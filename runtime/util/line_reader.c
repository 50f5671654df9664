/* line_reader.c: reads a text as lines and words, and reports errors with the line
 * (line_reader.h). */
#include "line_reader.h"
#include "c_locale.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool line_next(LineReader *w)
{
        while (w->rest && *w->rest) {
                w->line = w->rest;
                char *nl = strchr(w->line, '\n');
                w->rest = nl ? nl + 1 : 0;
                if (nl)
                        *nl = 0;
                w->at = w->line;
                w->n++;
                if (*w->line)
                        return true;
        }
        return false;
}

char *line_word(LineReader *w)
{
        char *s = w->at;
        if (!s || !*s)
                return 0;
        char *space = strchr(s, ' ');
        if (space)
                *space = 0;
        w->at = space ? space + 1 : s + strlen(s);
        return *s ? s : 0;
}

char *line_rest(LineReader *w)
{
        char *s = w->at;
        w->at += strlen(s);
        return s;
}

int line_fail(LineReader *w, const char *fmt, ...)
{
        if (!w->code) {
                char msg[900];
                va_list ap;
                va_start(ap, fmt);
                vsnprintf(msg, sizeof msg, fmt, ap);
                va_end(ap);
                w->code = err_set(w->e, TGC_BAD_FILE, "%s:%d: %s", w->what, w->n, msg);
        }
        return w->code;
}

char *line_need(LineReader *w, const char *name)
{
        static char none[] = "";
        char *s = line_word(w);
        if (!s)
                line_fail(w, "%s is missing", name);
        return s ? s : none;
}

bool line_keyword(LineReader *w, const char *word)
{
        char *s = line_word(w);
        if (s && !strcmp(s, word))
                return true;
        line_fail(w, "'%s' expected, '%.60s' found", word, s ? s : "");
        return false;
}

bool line_optional(LineReader *w, const char *word)
{
        size_t n = strlen(word);
        if (!w->at || strncmp(w->at, word, n) || (w->at[n] && w->at[n] != ' '))
                return false;
        line_word(w);
        return true;
}

bool text_int(const char *s, uint64_t max, uint64_t *value)
{
        uint64_t x = 0;
        if (!*s)
                return false;
        for (; *s; s++) {
                if (*s < '0' || *s > '9')
                        return false;
                uint64_t d = (uint64_t)(*s - '0');
                if (x > (UINT64_MAX - d) / 10)
                        return false;
                x = x * 10 + d;
        }
        *value = x;
        return x <= max;
}

uint64_t line_int(LineReader *w, const char *name, uint64_t max)
{
        uint64_t x = 0;
        char *s = line_need(w, name);
        if (*s && !text_int(s, max, &x)) {
                line_fail(w, "%s: '%.60s' is not a number from 0 to %llu", name, s,
                          (unsigned long long)max);
                return 0;
        }
        return x;
}

double line_real(LineReader *w, const char *name)
{
        char *s = line_need(w, name), *end;
        double x = c_strtod(s, &end);
        if (*s && (*end || end == s || !isfinite(x))) {
                line_fail(w, "%s: '%.60s' is not a finite number", name, s);
                return 0;
        }
        return x;
}

void line_end(LineReader *w)
{
        if (w->at && *w->at)
                line_fail(w, "unexpected '%.60s'", w->at);
}

size_t text_count(const char *text, size_t size, const char *word)
{
        const char *p = text, *end = text + size;
        size_t n = 0, len = strlen(word);
        while (p < end) {
                n += (size_t)(end - p) >= len && !memcmp(p, word, len) &&
                     (p + len == end || p[len] == ' ' || p[len] == '\n');
                p = memchr(p, '\n', (size_t)(end - p));
                if (!p)
                        break;
                p++;
        }
        return n;
}

bool text_ends(const char *s, const char *tail)
{
        const size_t n = strlen(s), m = strlen(tail);
        return n >= m && !strcmp(s + n - m, tail);
}
