/* json_check.c: json_open reads every byte once and refuses what is not strict JSON (RFC 8259), so
 * that the cursors of json_text.c need not check anything.  It also refuses keys given twice, at
 * the cost of a few bytes for each key of an open object. */
#include "json_impl.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MAX_DEPTH = 1000, LARGE = 4096, FEW_KEYS = 16 };

typedef struct Check {
        JsonText *in;
        const char *p, *end;
        bool nul;      /* NUL may stand in strings, as an escape */
        uint32_t *key; /* places of the keys of all open objects */
        size_t n_key, cap_key, cap_large;
        Err *e;
        int rc;
} Check;

static bool fail(Check *c, const char *at, const char *what)
{
        char place[JSON_MOST_PLACE];
        if (c->rc == TGC_OK)
                c->rc = err_set(c->e, TGC_BAD_FILE, "%s: %s",
                                json_place((Json) { at, c->in }, place), what);
        return false;
}

static bool no_memory(Check *c, size_t bytes)
{
        if (c->rc == TGC_OK)
                c->rc = err_set(c->e, TGC_NO_MEMORY, "%s: no memory (%zu bytes)", c->in->name,
                                bytes);
        return false;
}

/* Room for one more of `size` bytes in an array. */
static bool grow(Check *c, void **p, size_t n, size_t *cap, size_t size)
{
        size_t want = *cap ? *cap + *cap / 2 : 64;
        void *q;

        if (n < *cap)
                return true;
        if (!(q = realloc(*p, want * size)))
                return no_memory(c, want * size);
        *p = q;
        *cap = want;
        return true;
}

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
                if (c == 0xe0)
                        lo = 0xa0;
                if (c == 0xed)
                        hi = 0x9f;
                if (c == 0xf0)
                        lo = 0x90;
                if (c == 0xf4)
                        hi = 0x8f;
                for (; more; more--, lo = 0x80, hi = 0xbf)
                        if (s == end || *s < lo || *s++ > hi)
                                return false;
        }
        return true;
}

/* Places behind what is known to be JSON. */
static void skip_space(Check *c)
{
        while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\r' || *c->p == '\t'))
                c->p++;
}

static bool is_hex4(const char *s, const char *end)
{
        for (int i = 0; i < 4; i++, s++)
                if (s == end ||
                    !((*s >= '0' && *s <= '9') || ((*s | 32) >= 'a' && (*s | 32) <= 'f')))
                        return false;
        return true;
}

static bool check_escape(Check *c)
{
        const char *at = c->p - 1, *s = c->p;
        int x;

        if (s == c->end || !strchr("\"\\/bfnrtu", *s) || !*s)
                return fail(c, at, "not valid JSON: an unknown escape");
        c->p++;
        if (*s != 'u')
                return true;
        if (!is_hex4(c->p, c->end))
                return fail(c, at, "not valid JSON: \\u wants four hexadecimal digits");
        x = hex4(c->p);
        c->p += 4;
        if (!x && !c->nul)
                return fail(c, at, "NUL character");
        if (x >= 0xdc00 && x < 0xe000)
                return fail(c, at, "not valid JSON: half a surrogate pair");
        if (x < 0xd800 || x >= 0xe000)
                return true;
        if (c->end - c->p < 6 || c->p[0] != '\\' || c->p[1] != 'u' || !is_hex4(c->p + 2, c->end) ||
            (hex4(c->p + 2) & 0xfc00) != 0xdc00)
                return fail(c, at, "not valid JSON: half a surrogate pair");
        c->p += 6;
        return true;
}

static bool check_string(Check *c)
{
        const char *begin = c->p++;

        while (c->p < c->end && *c->p != '"') {
                if (*c->p == '\\') {
                        c->p++;
                        if (!check_escape(c))
                                return false;
                } else if ((unsigned char)*c->p++ < 0x20) {
                        return fail(c, c->p - 1,
                                    c->p[-1] ? "not valid JSON: a control character in a string"
                                             : "NUL character");
                }
        }
        if (c->p == c->end)
                return fail(c, begin, "not valid JSON: a string that does not end");
        c->p++;
        return true;
}

static size_t digits(Check *c)
{
        const char *from = c->p;

        while (c->p < c->end && *c->p >= '0' && *c->p <= '9')
                c->p++;
        return (size_t)(c->p - from);
}

static bool check_number(Check *c)
{
        const char *begin = c->p;
        bool large;

        c->p += *c->p == '-';
        if (c->p < c->end && *c->p == '0')
                c->p++;
        else if (!digits(c))
                return fail(c, begin, "not valid JSON");
        large = c->p - begin > 300;
        if (c->p < c->end && *c->p == '.' && (c->p++, !digits(c)))
                return fail(c, begin, "not valid JSON: a number without digits behind its point");
        if (c->p < c->end && (*c->p | 32) == 'e') {
                c->p++;
                if (c->p < c->end && (*c->p == '+' || *c->p == '-'))
                        c->p++;
                if (!digits(c))
                        return fail(c, begin,
                                    "not valid JSON: a number without digits in its exponent");
                large = true;
        }
        if (large && !isfinite(json_number((Json) { begin, c->in })))
                return fail(c, begin, "a number is out of range");
        return true;
}

/* ---- keys given twice ---- */

static Json key_at(const Check *c, uint32_t at) { return (Json) { c->in->text + at, c->in }; }

static bool key_hash(const Check *c, uint32_t at, uint64_t seed, JsonBuf *scratch, uint64_t *hash)
{
        size_t n;
        const char *s = json_string(key_at(c, at), scratch, &n);

        *hash = s ? XXH3_64bits_withSeed(s, n, seed) : 0;
        return s;
}

/* 1: equal, 0: not, -1: no memory. */
static int same_key(const Check *c, uint32_t a, uint32_t b, JsonBuf *x, JsonBuf *y)
{
        size_t n, m;
        const char *s = json_string(key_at(c, a), x, &n), *t = json_string(key_at(c, b), y, &m);

        return !s || !t ? -1 : n == m && !memcmp(s, t, n);
}

static bool twice(Check *c, uint32_t at)
{
        const char *key = c->in->text + at;
        char what[256];

        snprintf(what, sizeof what, "key %.*s given twice",
                 (int)(past_string(key) - key > 200 ? 200 : past_string(key) - key), key);
        return fail(c, key, what);
}

/* The n keys behind `from` are those of the object that ends now. */
static bool check_keys(Check *c, size_t from)
{
        const uint32_t *key = c->key + from;
        size_t n = c->n_key - from, n_slot = n + n / 2, done = 0;
        uint32_t *slot = NULL; /* index of a key + 1 */
        JsonBuf x = { 0 }, y = { 0 };
        uint64_t seed, hash;
        int same = 0;

        c->n_key = from;
        if (n <= FEW_KEYS) {
                for (size_t i = 1; i < n && same == 0; i++)
                        for (size_t k = 0; k < i && same == 0; k++)
                                if ((same = same_key(c, key[i], key[k], &x, &y)) > 0)
                                        twice(c, key[i]);
        } else if (!(slot = calloc(n_slot, sizeof *slot))) {
                no_memory(c, n_slot * sizeof *slot);
        } else {
                seed = (uint64_t)(uintptr_t)slot * 0x9e3779b97f4a7c15u ^ (uint64_t)time(NULL);
                for (; done < n && same == 0; done++) {
                        size_t at;
                        if (!key_hash(c, key[done], seed, &x, &hash)) {
                                same = -1;
                                break;
                        }
                        for (at = (size_t)(hash % n_slot); slot[at] && same == 0;
                             at = at + 1 == n_slot ? 0 : at + 1)
                                if ((same = same_key(c, key[done], key[slot[at] - 1], &x, &y)) > 0)
                                        twice(c, key[done]);
                        if (same == 0)
                                slot[at] = (uint32_t)done + 1;
                }
        }
        if (same < 0)
                no_memory(c, x.cap + y.cap);
        free(slot);
        json_buf_free(&x);
        json_buf_free(&y);
        return c->rc == TGC_OK;
}

/* ---- values ---- */

static bool check_value(Check *c, int depth);

static bool note_span(Check *c, const char *from)
{
        JsonText *in = c->in;

        if (c->p - from < LARGE)
                return true;
        if (!grow(c, (void **)&in->span, in->n_span, &c->cap_large, sizeof *in->span))
                return false;
        in->span[in->n_span++] = (JsonSpan) { from, c->p };
        return true;
}

/* A list or an object; c->p is behind its bracket. */
static bool check_members(Check *c, char shut, int depth)
{
        const char *begin = c->p - 1;
        size_t keys = c->n_key;

        if (depth == MAX_DEPTH)
                return fail(c, begin, "not valid JSON: nested too deep");
        skip_space(c);
        if (c->p < c->end && *c->p == shut) {
                c->p++;
                return true;
        }
        for (;;) {
                if (shut == '}') {
                        if (c->p == c->end || *c->p != '"')
                                return fail(c, c->p, "not valid JSON: a key is missing");
                        if (!grow(c, (void **)&c->key, c->n_key, &c->cap_key, sizeof *c->key))
                                return false;
                        c->key[c->n_key++] = (uint32_t)(c->p - c->in->text);
                        if (!check_string(c))
                                return false;
                        skip_space(c);
                        if (c->p == c->end || *c->p++ != ':')
                                return fail(c, c->p - (c->p < c->end),
                                            "not valid JSON: a colon is missing");
                }
                if (!check_value(c, depth + 1))
                        return false;
                skip_space(c);
                if (c->p < c->end && *c->p == shut)
                        break;
                if (c->p == c->end || *c->p != ',')
                        return fail(c, c->p,
                                    c->p == c->end ? "not valid JSON: it ends too early"
                                                   : "not valid JSON: a comma is missing");
                c->p++;
                skip_space(c);
        }
        c->p++;
        return (shut == ']' || check_keys(c, keys)) && note_span(c, begin);
}

static bool check_word(Check *c, const char *word)
{
        size_t n = strlen(word);

        if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n))
                return fail(c, c->p, "not valid JSON");
        c->p += n;
        return true;
}

static bool check_value(Check *c, int depth)
{
        skip_space(c);
        if (c->p == c->end)
                return fail(c, c->p, "not valid JSON: a value is missing");
        switch (*c->p) {
        case '{': c->p++; return check_members(c, '}', depth);
        case '[': c->p++; return check_members(c, ']', depth);
        case '"': return check_string(c);
        case 't': return check_word(c, "true");
        case 'f': return check_word(c, "false");
        case 'n': return check_word(c, "null");
        default:
                if (*c->p == '-' || (*c->p >= '0' && *c->p <= '9'))
                        return check_number(c);
                return fail(c, c->p, *c->p ? "not valid JSON" : "NUL character");
        }
}

static int by_place(const void *a, const void *b)
{
        const JsonSpan *x = a, *y = b;
        return x->from < y->from ? -1 : x->from > y->from;
}

static int open_text(JsonText *in, Json *root, const char *text, size_t n, const char *name,
                     bool one_line, bool nul, Err *e)
{
        Check c = { .in = in, .p = text, .end = text + n, .nul = nul, .e = e };

        *in = (JsonText) { .text = text, .n = n, .name = name, .one_line = one_line };
        *root = (Json) { 0 };
        if (n >= UINT32_MAX)
                return err_set(e, TGC_BAD_FILE, "%s: larger than 4 GB", name);
        if (!json_utf8_ok(text, n))
                return err_set(e, TGC_BAD_FILE, "%s: not UTF-8", name);
        skip_space(&c);
        *root = (Json) { c.p, in };
        if (check_value(&c, 0)) {
                skip_space(&c);
                if (c.p < c.end)
                        fail(&c, c.p, *c.p ? "text after the JSON value" : "NUL character");
        }
        free(c.key);
        if (c.rc != TGC_OK) {
                json_close(in);
                *root = (Json) { 0 };
                return c.rc;
        }
        if (in->n_span)
                qsort(in->span, in->n_span, sizeof *in->span, by_place);
        return TGC_OK;
}

int json_open(JsonText *in, Json *root, const char *text, size_t n, const char *name, bool nul,
              Err *e)
{
        return open_text(in, root, text, n, name, false, nul, e);
}

int json_open_line(JsonText *in, Json *root, const char *text, size_t n, const char *name, bool nul,
                   Err *e)
{
        return open_text(in, root, text, n, name, true, nul, e);
}

void json_close(JsonText *in)
{
        free(in->span);
        *in = (JsonText) { 0 };
}
