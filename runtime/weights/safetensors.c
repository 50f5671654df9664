/* safetensors.c: reads safetensors files (safetensors.h).
 *
 * The header is read in one pass by a small reader of exactly the grammar that the format allows.
 * Its depth is fixed and no tree is built: a header of 100 MB costs its own size again and the
 * table of tensors. */
#include "safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../util/json.h"

typedef struct Reader {
        const char *at, *end, *begin;
        const char *name; /* of the file, for messages */
        /* next free byte for a decoded string; the header's size is room enough */
        char *text;
        Err *e;
} Reader;

typedef struct Entry {
        CkTensor t;
        uint64_t begin, end;
        bool has_dtype, has_shape, has_range;
} Entry;

static int bad(Reader *r, const char *what)
{
        return err_set(r->e, TGC_BAD_FILE, "%s: header, byte %zu: %s", r->name,
                       (size_t)(r->at - r->begin) + 8, what);
}

static void blanks(Reader *r)
{
        while (r->at < r->end &&
               (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
                r->at++;
}

static bool take(Reader *r, char c)
{
        blanks(r);
        if (r->at == r->end || *r->at != c)
                return false;
        r->at++;
        return true;
}

static int need(Reader *r, char c)
{
        char what[] = "expected 'x'";

        what[10] = c;
        return take(r, c) ? TGC_OK : bad(r, what);
}

static int hex4(Reader *r, unsigned *u)
{
        *u = 0;
        if (r->end - r->at < 4)
                return bad(r, "escape cut short");
        for (int i = 0; i < 4; i++) {
                char c = *r->at++;
                int d = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
                if (d < 0)
                        return bad(r, "bad hexadecimal digit");
                *u = *u << 4 | (unsigned)d;
        }
        return TGC_OK;
}

/* After "\u": one code point, surrogate pairs joined, as UTF-8. */
static int escape_u(Reader *r)
{
        unsigned u, v;
        int rc = hex4(r, &u);

        if (rc)
                return rc;
        if (u >= 0xd800 && u < 0xe000) {
                if (u >= 0xdc00 || r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
                        return bad(r, "unpaired surrogate");
                r->at += 2;
                rc = hex4(r, &v);
                if (rc)
                        return rc;
                if (v < 0xdc00 || v >= 0xe000)
                        return bad(r, "unpaired surrogate");
                u = 0x10000 + ((u & 0x3ff) << 10 | (v & 0x3ff));
        }
        if (u == 0)
                return bad(r, "NUL in a string");
        if (u < 0x80) {
                *r->text++ = (char)u;
        } else if (u < 0x800) {
                *r->text++ = (char)(0xc0 | u >> 6);
                *r->text++ = (char)(0x80 | (u & 63));
        } else if (u < 0x10000) {
                *r->text++ = (char)(0xe0 | u >> 12);
                *r->text++ = (char)(0x80 | (u >> 6 & 63));
                *r->text++ = (char)(0x80 | (u & 63));
        } else {
                *r->text++ = (char)(0xf0 | u >> 18);
                *r->text++ = (char)(0x80 | (u >> 12 & 63));
                *r->text++ = (char)(0x80 | (u >> 6 & 63));
                *r->text++ = (char)(0x80 | (u & 63));
        }
        return TGC_OK;
}

/* A decoded string and its NUL are never longer than the quoted form. */
static int string(Reader *r, const char **s)
{
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        int rc = need(r, '"');

        if (rc)
                return rc;
        *s = r->text;
        for (;;) {
                const char *esc;
                unsigned char c;

                if (r->at == r->end)
                        return bad(r, "string without end");
                c = (unsigned char)*r->at++;
                if (c == '"')
                        break;
                if (c < 0x20)
                        return bad(r, "control character in a string");
                if (c != '\\') {
                        *r->text++ = (char)c;
                        continue;
                }
                c = r->at < r->end ? (unsigned char)*r->at++ : 0;
                if (c == 'u') {
                        rc = escape_u(r);
                        if (rc)
                                return rc;
                } else if (c && (esc = strchr(from, c))) {
                        *r->text++ = to[esc - from];
                } else {
                        return bad(r, "unknown escape");
                }
        }
        *r->text++ = 0;
        return TGC_OK;
}

/* Offsets and dimensions: digits only, below 2^63. */
static int number(Reader *r, uint64_t *v)
{
        const char *first;

        blanks(r);
        first = r->at;
        *v = 0;
        for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
                if (__builtin_mul_overflow(*v, 10u, v) ||
                    __builtin_add_overflow(*v, (unsigned)(*r->at - '0'), v) || *v > INT64_MAX)
                        return bad(r, "number too large");
        if (r->at == first)
                return bad(r, "expected an unsigned integer");
        if (*first == '0' && r->at - first > 1)
                return bad(r, "number with a leading zero");
        return TGC_OK;
}

static int shape(Reader *r, CkTensor *t)
{
        int rc = need(r, '[');
        uint64_t v;

        if (rc || take(r, ']'))
                return rc;
        do {
                rc = number(r, &v);
                if (rc)
                        return rc;
                if (t->rank == CK_MAX_RANK)
                        return bad(r, "more than 8 dimensions");
                t->dim[t->rank++] = (int64_t)v;
        } while (take(r, ','));
        return need(r, ']');
}

/* After a field's name: its colon, and that it is the first of its name. */
static int field(Reader *r, bool *seen)
{
        if (*seen)
                return bad(r, "field given twice");
        *seen = true;
        return need(r, ':');
}

static int tensor_body(Reader *r, Entry *n)
{
        int rc = need(r, '{');

        if (rc)
                return rc;
        do {
                const char *key, *dtype;
                char *keep = r->text;

                rc = string(r, &key);
                if (rc)
                        return rc;
                if (!strcmp(key, "dtype")) {
                        if ((rc = field(r, &n->has_dtype)) || (rc = string(r, &dtype)))
                                return rc;
                        n->t.dtype = ck_dtype_find(dtype);
                        if (n->t.dtype < 0)
                                return err_set(r->e, TGC_BAD_FILE,
                                               "%s: tensor %.200s: dtype %.40s is not supported",
                                               r->name, n->t.name, dtype);
                } else if (!strcmp(key, "shape")) {
                        if ((rc = field(r, &n->has_shape)) || (rc = shape(r, &n->t)))
                                return rc;
                } else if (!strcmp(key, "data_offsets")) {
                        if ((rc = field(r, &n->has_range)) || (rc = need(r, '[')) ||
                            (rc = number(r, &n->begin)) || (rc = need(r, ',')) ||
                            (rc = number(r, &n->end)) || (rc = need(r, ']')))
                                return rc;
                } else {
                        return bad(r, "field other than dtype, shape, data_offsets");
                }
                r->text = keep; /* these strings are not kept */
        } while (take(r, ','));
        rc = need(r, '}');
        if (rc)
                return rc;
        return n->has_dtype && n->has_shape && n->has_range
                       ? TGC_OK
                       : bad(r, "tensor without dtype, shape or data_offsets");
}

/* An array of n elements with room for one more; NULL: no memory, the old one stands. */
static void *grow(Reader *r, void *array, int n, size_t size)
{
        void *p;

        if (n & (n - 1) || n == 1) /* grows at 0, 2, 4, 8, ... */
                return array;
        p = realloc(array, (n ? 2 * (size_t)n : 2) * size);
        if (!p)
                err_set(r->e, TGC_NO_MEMORY, "%s: no memory for the table of tensors", r->name);
        return p;
}

static int metadata(Reader *r, Safetensors *st)
{
        int rc = need(r, '{');

        if (rc || take(r, '}'))
                return rc;
        do {
                StMeta *more = grow(r, st->meta, st->n_meta, sizeof *more);

                if (!more)
                        return TGC_NO_MEMORY;
                st->meta = more;
                if ((rc = string(r, &st->meta[st->n_meta].key)) || (rc = need(r, ':')) ||
                    (rc = string(r, &st->meta[st->n_meta].value)))
                        return rc;
                st->n_meta++;
        } while (take(r, ','));
        return need(r, '}');
}

static int header(Reader *r, Safetensors *st, Entry **entry)
{
        int rc = need(r, '{'), n = 0;
        bool has_meta = false;

        if (rc)
                return rc;
        if (!take(r, '}')) {
                do {
                        const char *key;

                        if ((rc = string(r, &key)) || (rc = need(r, ':')))
                                return rc;
                        if (!strcmp(key, "__metadata__")) {
                                if (has_meta)
                                        return bad(r, "__metadata__ given twice");
                                has_meta = true;
                                rc = metadata(r, st);
                        } else {
                                Entry *more = grow(r, *entry, n, sizeof *more);

                                if (!more)
                                        return TGC_NO_MEMORY;
                                *entry = more;
                                (*entry)[n] = (Entry) { .t.name = key };
                                rc = tensor_body(r, &(*entry)[n++]);
                        }
                        if (rc)
                                return rc;
                } while (take(r, ','));
                if ((rc = need(r, '}')))
                        return rc;
        }
        blanks(r);
        st->n_tensors = n;
        return r->at == r->end ? TGC_OK : bad(r, "text after the header");
}

static int by_meta_key(const void *a, const void *b)
{
        return strcmp(((const StMeta *)a)->key, ((const StMeta *)b)->key);
}

static int by_name(const void *a, const void *b)
{
        return strcmp(((const Entry *)a)->t.name, ((const Entry *)b)->t.name);
}

static int by_offset(const void *a, const void *b)
{
        const Entry *x = a, *y = b;

        if (x->begin != y->begin)
                return x->begin < y->begin ? -1 : 1;
        if (x->end != y->end) /* empty tensors first */
                return x->end < y->end ? -1 : 1;
        return strcmp(x->t.name, y->t.name);
}

/* Names differ; the data of all tensors is the whole rest of the file, in order,
 * without gaps. */
static int layout(Reader *r, Safetensors *st, Entry *entry, const char *data, size_t size)
{
        uint64_t at = 0;
        int n = st->n_tensors;
        char text[200];

        if (n)
                qsort(entry, (size_t)n, sizeof *entry, by_name);
        for (int i = 0; i < n; i++) {
                if (i && !strcmp(entry[i - 1].t.name, entry[i].t.name))
                        return err_set(r->e, TGC_BAD_FILE, "%s: tensor %.200s given twice", r->name,
                                       entry[i].t.name);
                if (!ck_name_ok(entry[i].t.name))
                        return err_set(r->e, TGC_BAD_FILE,
                                       "%s: control character in a tensor's name", r->name);
        }
        if (st->n_meta)
                qsort(st->meta, (size_t)st->n_meta, sizeof *st->meta, by_meta_key);
        for (int i = 1; i < st->n_meta; i++)
                if (!strcmp(st->meta[i - 1].key, st->meta[i].key))
                        return err_set(r->e, TGC_BAD_FILE, "%s: metadata %.200s given twice",
                                       r->name, st->meta[i].key);
        if (n)
                qsort(entry, (size_t)n, sizeof *entry, by_offset);
        for (int i = 0; i < n; i++) {
                Entry *x = &entry[i];
                int64_t count;

                if (x->begin > x->end || x->end > size)
                        return err_set(r->e, TGC_BAD_FILE,
                                       "%s: tensor %.200s: bytes %llu .. %llu of %zu", r->name,
                                       x->t.name, (unsigned long long)x->begin,
                                       (unsigned long long)x->end, size);
                if (x->begin != at)
                        return err_set(r->e, TGC_BAD_FILE,
                                       "%s: tensor %.200s begins at byte %llu, %s at %llu", r->name,
                                       x->t.name, (unsigned long long)x->begin,
                                       x->begin < at ? "within another that ends" : "after a hole",
                                       (unsigned long long)at);
                if (!ck_count(x->t.rank, x->t.dim, &count) ||
                    (uint64_t)count * ck_dtype_size(x->t.dtype) != x->end - x->begin)
                        return err_set(r->e, TGC_BAD_FILE,
                                       "%s: tensor %.200s: %s%s does not take %llu bytes", r->name,
                                       x->t.name, ck_dtype_name(x->t.dtype),
                                       ck_shape_text(text, sizeof text, x->t.rank, x->t.dim),
                                       (unsigned long long)(x->end - x->begin));
                x->t.data = data + x->begin;
                x->t.bytes = (size_t)(x->end - x->begin);
                at = x->end;
        }
        if (at != size)
                return err_set(r->e, TGC_BAD_FILE, "%s: %llu bytes after the last tensor", r->name,
                               (unsigned long long)(size - at));
        return TGC_OK;
}

static uint64_t le64(const unsigned char *p)
{
        uint64_t v = 0;
        for (int i = 7; i >= 0; i--)
                v = v << 8 | p[i];
        return v;
}

bool safetensors_probe(const void *data, size_t size)
{
        const unsigned char *p = data;
        return size >= 10 && le64(p) <= size - 8 && le64(p) >= 2 &&
               le64(p) <= SAFETENSORS_MAX_HEADER && p[8] == '{';
}

int safetensors_parse(Safetensors *st, const void *data, size_t size, const char *name, Err *e)
{
        const char *text = data;
        Entry *entry = 0;
        Reader r = { 0 };
        uint64_t n;
        int rc;

        memset(st, 0, sizeof *st);
        if (size < 8)
                return err_set(e, TGC_BAD_FILE, "%s: %zu bytes, too short for a safetensors file",
                               name, size);
        n = le64(data);
        if (n > SAFETENSORS_MAX_HEADER || n > size - 8)
                return err_set(e, TGC_BAD_FILE, "%s: header of %llu bytes, %s %llu", name,
                               (unsigned long long)n,
                               n > size - 8 ? "but the file has" : "but the limit is",
                               (unsigned long long)(n > size - 8 ? size - 8
                                                                 : SAFETENSORS_MAX_HEADER));
        if (n < 2 || text[8] != '{')
                return err_set(e, TGC_BAD_FILE, "%s: the header does not begin with '{'", name);
        if (!json_utf8_ok(text + 8, n))
                return err_set(e, TGC_BAD_FILE, "%s: the header is not UTF-8", name);
        st->text = malloc(n);
        if (!st->text)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for the header", name);
        r = (Reader) { text + 8, text + 8 + n, text + 8, name, st->text, e };
        rc = header(&r, st, &entry);
        if (!rc)
                rc = layout(&r, st, entry, text + 8 + n, size - 8 - n);
        if (!rc && st->n_tensors) {
                st->tensor = malloc((size_t)st->n_tensors * sizeof *st->tensor);
                if (!st->tensor)
                        rc = err_set(e, TGC_NO_MEMORY, "%s: no memory for the table of tensors",
                                     name);
                for (int i = 0; !rc && i < st->n_tensors; i++)
                        st->tensor[i] = entry[i].t;
        }
        free(entry);
        if (rc)
                safetensors_free(st);
        return rc;
}

void safetensors_free(Safetensors *st)
{
        free(st->tensor);
        free(st->meta);
        free(st->text);
        memset(st, 0, sizeof *st);
}
