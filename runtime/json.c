/* json.c: see json.h. */
#include "json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "file.h"

/* Well-formed UTF-8 (RFC 3629): no overlong forms, no surrogates, at most U+10FFFF. */
bool json_utf8_ok(const char *text, size_t n)
{
        const unsigned char *s = (const unsigned char *)text, *end = s + n;

        while (s < end) {
                unsigned c = *s++, more, lo = 0x80, hi = 0xbf;

                if (c < 0x80)
                        continue;
                if (c < 0xc2 || c > 0xf4)
                        return false;
                more = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
                if (c == 0xe0) lo = 0xa0;
                if (c == 0xed) hi = 0x9f;
                if (c == 0xf0) lo = 0x90;
                if (c == 0xf4) hi = 0x8f;
                for (; more; more--, lo = 0x80, hi = 0xbf)
                        if (s == end || *s < lo || *s++ > hi)
                                return false;
        }
        return true;
}

static int line_of(const char *text, const char *at)
{
        int line = 1;
        for (; text < at; text++)
                line += *text == '\n';
        return line;
}

/* cJSON ends a string at an escaped NUL, so `"a\u0000b"` would pass for "a". */
static const char *find_nul(const char *s, const char *end)
{
        bool in = false;

        for (; s < end; s++) {
                if (*s == 0)
                        return s;
                if (*s == '"') {
                        in = !in;
                } else if (in && *s == '\\') {
                        if (end - s > 5 && !memcmp(s, "\\u0000", 6))
                                return s;
                        s++;
                }
        }
        return 0;
}

static int by_text(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Depth is bounded by cJSON's own limit of nesting, 1000. */
static int check_tree(const cJSON *o, const char *name, Err *e)
{
        const cJSON *c;
        size_t n = 0, i;
        char **key;

        if (cJSON_IsNumber(o) && !isfinite(o->valuedouble))
                return err_set(e, TGC_BAD_FILE, "%s: a number is out of range", name);
        for (c = o->child; c; c = c->next, n++) {
                int rc = check_tree(c, name, e);
                if (rc)
                        return rc;
        }
        if (!cJSON_IsObject(o) || n < 2)
                return TGC_OK;
        key = malloc(n * sizeof *key);
        if (!key)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", name);
        for (i = 0, c = o->child; c; c = c->next)
                key[i++] = c->string;
        qsort(key, n, sizeof *key, by_text);
        for (i = 1; i < n; i++)
                if (!strcmp(key[i - 1], key[i])) {
                        int rc = err_set(e, TGC_BAD_FILE, "%s: key \"%.200s\" given twice", name, key[i]);
                        free(key);
                        return rc;
                }
        free(key);
        return TGC_OK;
}

int json_parse(cJSON **out, const char *text, size_t size, const char *name, Err *e)
{
        const char *end = 0, *nul, *all = text + size;
        cJSON *o;
        int rc;

        *out = 0;
        if (!json_utf8_ok(text, size))
                return err_set(e, TGC_BAD_FILE, "%s: not UTF-8", name);
        nul = find_nul(text, all);
        if (nul)
                return err_set(e, TGC_BAD_FILE, "%s:%d: NUL character", name, line_of(text, nul));
        o = cJSON_ParseWithLengthOpts(text, size, &end, 0);
        if (!o)
                return err_set(e, TGC_BAD_FILE, "%s:%d: not valid JSON", name,
                               end && end >= text && end <= all ? line_of(text, end) : 1);
        while (end < all && (*end == ' ' || *end == '\n' || *end == '\t' || *end == '\r'))
                end++;
        if (end < all) {
                cJSON_Delete(o);
                return err_set(e, TGC_BAD_FILE, "%s:%d: text after the JSON value", name, line_of(text, end));
        }
        rc = check_tree(o, name, e);
        if (rc) {
                cJSON_Delete(o);
                return rc;
        }
        *out = o;
        return TGC_OK;
}

int json_read(cJSON **out, const char *path, size_t max_bytes, Err *e)
{
        char *text;
        size_t size;
        int rc = file_read_text(path, max_bytes, &text, &size, e);

        *out = 0;
        if (rc)
                return rc;
        rc = json_parse(out, text, size, path, e);
        free(text);
        return rc;
}

/* Typed fields -------------------------------------------------------------- */

static int get(const cJSON *o, const char *key, const cJSON **field, const char *name, Err *e)
{
        *field = cJSON_GetObjectItemCaseSensitive(o, key);
        return *field ? TGC_OK : err_set(e, TGC_BAD_FILE, "%s: no \"%s\"", name, key);
}

static int kind(const char *key, const char *wanted, const char *name, Err *e)
{
        return err_set(e, TGC_BAD_FILE, "%s: \"%s\" is not %s", name, key, wanted);
}

int json_get_str(const cJSON *o, const char *key, const char **out, const char *name, Err *e)
{
        const cJSON *f;
        int rc = get(o, key, &f, name, e);

        if (rc)
                return rc;
        if (!cJSON_IsString(f))
                return kind(key, "a string", name, e);
        *out = f->valuestring;
        return TGC_OK;
}

int json_get_int(const cJSON *o, const char *key, int64_t min, int64_t max, int64_t *out, const char *name, Err *e)
{
        const cJSON *f;
        int rc = get(o, key, &f, name, e);
        double v;

        if (rc)
                return rc;
        v = cJSON_IsNumber(f) ? f->valuedouble : NAN;
        if (!(fabs(v) <= 9007199254740992.0) || v != floor(v))      /* 2^53: exact in cJSON's double */
                return kind(key, "an integer", name, e);
        if ((int64_t)v < min || (int64_t)v > max)
                return err_set(e, TGC_BAD_FILE, "%s: \"%s\" is %lld, not in %lld .. %lld", name, key,
                               (long long)v, (long long)min, (long long)max);
        *out = (int64_t)v;
        return TGC_OK;
}

int json_get_num(const cJSON *o, const char *key, double *out, const char *name, Err *e)
{
        const cJSON *f;
        int rc = get(o, key, &f, name, e);

        if (rc)
                return rc;
        if (!cJSON_IsNumber(f))
                return kind(key, "a number", name, e);
        *out = f->valuedouble;
        return TGC_OK;
}

int json_get_bool(const cJSON *o, const char *key, bool *out, const char *name, Err *e)
{
        const cJSON *f;
        int rc = get(o, key, &f, name, e);

        if (rc)
                return rc;
        if (!cJSON_IsBool(f))
                return kind(key, "true or false", name, e);
        *out = cJSON_IsTrue(f);
        return TGC_OK;
}

int json_get_object(const cJSON *o, const char *key, const cJSON **out, const char *name, Err *e)
{
        int rc = get(o, key, out, name, e);

        if (rc)
                return rc;
        return cJSON_IsObject(*out) ? TGC_OK : kind(key, "an object", name, e);
}
