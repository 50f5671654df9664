/* json_text.c: cursors over JSON that json_open (json_check.c) has checked, without a tree.
 *
 * A cursor is a place in the text.  Skipping a large list or object would mean reading it again, so
 * json_open records where each ends.  That is all the memory this takes. */
#include "json_impl.h"
#include "c_locale.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *past_value(Json v)
{
        const char *p = v.at, *end = v.in->text + v.in->n;
        int depth = 0;

        if (*p == '"')
                return past_string(p);
        if (*p != '{' && *p != '[') {
                while (p < end && !strchr(" \n\r\t,]}", *p))
                        p++;
                return p;
        }
        for (size_t lo = 0, hi = v.in->n_span; lo < hi;) {
                size_t mid = lo + (hi - lo) / 2;
                if (v.in->span[mid].from == p)
                        return v.in->span[mid].to;
                if (v.in->span[mid].from < p)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        do {
                if (*p == '"') {
                        p = past_string(p);
                        continue;
                }
                depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
                p++;
        } while (depth);
        return p;
}

char json_type(Json v)
{
        if (!v.at)
                return 0;
        return *v.at == '-' || (*v.at >= '0' && *v.at <= '9') ? '0' : *v.at;
}

JsonEach json_each(Json v)
{
        JsonEach i = { .in = v.in };

        if (v.at && (*v.at == '{' || *v.at == '[')) {
                i.shut = *v.at == '{' ? '}' : ']';
                i.p = past_space(v.at + 1);
        }
        return i;
}

bool json_next(JsonEach *i)
{
        if (!i->p || *i->p == i->shut)
                return false;
        if (*i->p == ',')
                i->p = past_space(i->p + 1);
        if (i->shut == '}') {
                i->key = (Json) { i->p, i->in };
                i->p = past_space(past_space(past_string(i->p)) + 1);
        }
        i->value = (Json) { i->p, i->in };
        i->p = past_space(past_value(i->value));
        return true;
}

Json json_get(Json o, const char *key)
{
        if (json_type(o) == '{')
                for (JsonEach i = json_each(o); json_next(&i);)
                        if (json_is(i.key, key))
                                return i.value;
        return (Json) { 0 };
}

size_t json_count(Json v)
{
        size_t n = 0;

        for (JsonEach i = json_each(v); json_next(&i);)
                n++;
        return n;
}

double json_number(Json v)
{
        static const double ten[] = { 1,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
        const char *p = v.at, *end;
        uint64_t x = 0;
        int digits = 0, below = 0;
        bool minus;

        if (json_type(v) != '0')
                return NAN;
        end = past_value(v);
        if ((minus = *p == '-'))
                p++;
        for (bool point = false; p < end && digits < 19; p++) {
                if (*p == '.') {
                        point = true;
                        continue;
                }
                if (*p < '0' || *p > '9')
                        break;
                x = 10 * x + (uint64_t)(*p - '0');
                digits += x > 0;
                below += point;
        }
        if (p == end && x <= (uint64_t)1 << 53 &&
            below <= 22) /* both exact, so the quotient is rounded once */
                return (minus ? -1 : 1) * ((double)x / ten[below]);

        char small[64],
                *s = (size_t)(end - v.at) < sizeof small ? small : malloc((size_t)(end - v.at) + 1);
        double d = NAN;

        if (s) {
                memcpy(s, v.at, (size_t)(end - v.at));
                s[end - v.at] = 0;
                d = c_strtod(s, NULL);
        }
        if (s != small)
                free(s);
        return d;
}

static size_t put_utf8(char *s, unsigned cp)
{
        if (cp < 0x80) {
                *s = (char)cp;
                return 1;
        }
        if (cp < 0x800) {
                s[0] = (char)(0xc0 | cp >> 6);
                s[1] = (char)(0x80 | (cp & 63));
                return 2;
        }
        if (cp < 0x10000) {
                s[0] = (char)(0xe0 | cp >> 12);
                s[1] = (char)(0x80 | (cp >> 6 & 63));
                s[2] = (char)(0x80 | (cp & 63));
                return 3;
        }
        s[0] = (char)(0xf0 | cp >> 18);
        s[1] = (char)(0x80 | (cp >> 12 & 63));
        s[2] = (char)(0x80 | (cp >> 6 & 63));
        s[3] = (char)(0x80 | (cp & 63));
        return 4;
}

const char *json_string(Json v, JsonBuf *b, size_t *n)
{
        static const char name[] = "bfnrt", stands[] = "\b\f\n\r\t";
        const char *p, *end;
        char *to;

        if (json_type(v) != '"')
                return NULL;
        p = v.at + 1;
        end = past_string(v.at) - 1;
        if (!memchr(p, '\\', (size_t)(end - p))) {
                *n = (size_t)(end - p);
                return p;
        }
        if ((size_t)(end - p) > b->cap) {
                if (!(to = realloc(b->p, (size_t)(end - p) * 2)))
                        return NULL;
                b->p = to;
                b->cap = (size_t)(end - p) * 2;
        }
        for (to = b->p; p < end;) {
                if (*p != '\\') {
                        *to++ = *p++;
                        continue;
                }
                if (*++p != 'u') {
                        const char *known = strchr(name, *p);
                        *to++ = known ? stands[known - name] : *p;
                        p++;
                        continue;
                }
                unsigned cp = (unsigned)hex4(p + 1);
                p += 5;
                if (cp >= 0xd800 && cp < 0xdc00) {
                        cp = 0x10000 + ((cp & 0x3ff) << 10 | ((unsigned)hex4(p + 2) & 0x3ff));
                        p += 6;
                }
                to += put_utf8(to, cp);
        }
        *n = (size_t)(to - b->p);
        return b->p;
}

bool json_is(Json v, const char *s)
{
        JsonBuf b = { 0 };
        size_t n;
        const char *p;
        bool is;

        if (json_type(v) != '"')
                return false;
        if (v.at[1] != '\\' && v.at[1] != *s &&
            v.at[1] != '"') /* most are known by their first byte */
                return false;
        p = json_string(v, &b, &n);
        is = p && n == strlen(s) && !memcmp(p, s, n);
        json_buf_free(&b);
        return is;
}

void json_buf_free(JsonBuf *b)
{
        free(b->p);
        *b = (JsonBuf) { 0 };
}

const char *json_place(Json v, char out[JSON_MOST_PLACE])
{
        size_t line = 1, col = 1;
        for (const char *s = v.in->text; s < v.at; s++) {
                line += *s == '\n';
                col = *s == '\n' ? 1 : col + 1;
        }
        if (v.in->one_line)
                snprintf(out, JSON_MOST_PLACE, "%.340s:%zu", v.in->name, col);
        else
                snprintf(out, JSON_MOST_PLACE, "%.340s:%zu:%zu", v.in->name, line, col);
        return out;
}

static bool is_among(Json key, const char *known)
{
        char word[64];
        for (size_t n; *known; known += n + (known[n] == ' ')) {
                n = strcspn(known, " ");
                snprintf(word, sizeof word, "%.*s", (int)n, known);
                if (json_is(key, word))
                        return true;
        }
        return false;
}

int json_only(Json o, const char *known, const char *what, Err *e)
{
        char place[JSON_MOST_PLACE];
        if (json_type(o) != '{')
                return TGC_OK;
        for (JsonEach i = json_each(o); json_next(&i);) {
                const long n = past_string(i.key.at) - i.key.at;
                if (!is_among(i.key, known))
                        return err_set(e, TGC_BAD_FILE, "%s: unknown key %.*s in %s; known: %s",
                                       json_place(i.key, place), (int)(n < 60 ? n : 60), i.key.at,
                                       what, known);
        }
        return TGC_OK;
}
