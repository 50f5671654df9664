/* npy.c: implements npy.h.
 *
 *      "\x93NUMPY" | major, minor | u16 (version 1) or u32 (version 2) length | header | data
 *
 * The header is a Python dict literal with exactly the keys descr, fortran_order
 * and shape. */
#include "npy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 65536 };

typedef struct Reader {
        const char *at, *end;
} Reader;

static bool take(Reader *r, const char *word)
{
        size_t n = strlen(word);

        while (r->at < r->end && (*r->at == ' ' || *r->at == '\n'))
                r->at++;
        if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n))
                return false;
        r->at += n;
        return true;
}

/* A quoted word without escapes. */
static bool quoted(Reader *r, char *buf, size_t size)
{
        char quote = take(r, "'") ? '\'' : take(r, "\"") ? '"' : 0;
        size_t n = 0;

        if (!quote)
                return false;
        for (; r->at < r->end && *r->at != quote; r->at++) {
                if (n + 1 >= size || *r->at < ' ' || *r->at == '\\')
                        return false;
                buf[n++] = *r->at;
        }
        buf[n] = 0;
        return take(r, quote == '"' ? "\"" : "'");
}

static bool shape(Reader *r, Npy *a)
{
        if (!take(r, "("))
                return false;
        while (!take(r, ")")) {
                int64_t v = 0;
                bool any = false;

                take(r, "");
                for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++, any = true)
                        if (__builtin_mul_overflow(v, 10, &v) ||
                            __builtin_add_overflow(v, *r->at - '0', &v))
                                return false;
                if (!any || a->rank == CK_MAX_RANK)
                        return false;
                a->dim[a->rank++] = v;
                if (!take(r, ",")) {
                        if (a->rank == 1) /* (3) is a number, (3,) a tuple */
                                return false;
                        return take(r, ")");
                }
        }
        return true;
}

static int parse_header(Npy *a, Reader r, const char *path, Err *e)
{
        bool descr = false, order = false, dims = false, ok = take(&r, "{");
        char key[32], type[32] = "";

        while (ok && !take(&r, "}")) {
                ok = quoted(&r, key, sizeof key) && take(&r, ":");
                if (ok && !strcmp(key, "descr") && !descr) {
                        ok = descr = quoted(&r, type, sizeof type);
                } else if (ok && !strcmp(key, "fortran_order") && !order) {
                        if (take(&r, "True"))
                                return err_set(e, TGC_BAD_FILE,
                                               "%s: Fortran order; C order is wanted, as "
                                               "numpy.ascontiguousarray makes it",
                                               path);
                        ok = order = take(&r, "False");
                } else if (ok && !strcmp(key, "shape") && !dims) {
                        ok = dims = shape(&r, a);
                } else {
                        ok = false;
                }
                if (ok && !take(&r, ",")) {
                        ok = take(&r, "}");
                        break;
                }
        }
        take(&r, "");
        if (!ok || !descr || !order || !dims || r.at != r.end)
                return err_set(e, TGC_BAD_FILE, "%s: the .npy header is damaged", path);
        a->dtype = !strcmp(type, "<i8") ? CK_I64 : !strcmp(type, "<f4") ? CK_F32 : -1;
        if (a->dtype < 0)
                return err_set(e, TGC_BAD_FILE,
                               "%s: elements are %s; int64 (<i8) or float32 (<f4) is wanted", path,
                               type);
        return TGC_OK;
}

static int parse(Npy *a, const char *path, Err *e)
{
        const unsigned char *p = a->map.data;
        size_t size = a->map.size, head, length;
        char text[200];
        int rc;

        if (size < 12 || memcmp(p, "\x93NUMPY", 6))
                return err_set(e, TGC_BAD_FILE, "%s: not a .npy file", path);
        if ((p[6] != 1 && p[6] != 2) || p[7])
                return err_set(e, TGC_BAD_FILE, "%s: .npy version %d.%d; 1.0 or 2.0 is wanted",
                               path, p[6], p[7]);
        head = p[6] == 1 ? 10 : 12;
        length = p[8] | (size_t)p[9] << 8;
        if (p[6] == 2)
                length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
        if (length > MAX_HEADER || length > size - head)
                return err_set(e, TGC_BAD_FILE,
                               "%s: a header of %zu bytes; the file has %zu, the limit is %d", path,
                               length, size, MAX_HEADER);
        rc = parse_header(a, (Reader) { (const char *)p + head, (const char *)p + head + length },
                          path, e);
        if (rc)
                return rc;
        size -= head + length;
        if (!ck_count(a->rank, a->dim, &a->count) ||
            (uint64_t)a->count * ck_dtype_size(a->dtype) != size)
                return err_set(e, TGC_BAD_FILE, "%s: %zu bytes of data do not make %s%s", path,
                               size, ck_dtype_name(a->dtype),
                               ck_shape_text(text, sizeof text, a->rank, a->dim));
        a->u.data = p + head + length;
        if ((uintptr_t)a->u.data % 8) {
                a->copy = malloc(size + 1);
                if (!a->copy)
                        return err_set(e, TGC_NO_MEMORY, "%s: no memory for %zu bytes", path, size);
                a->u.data = memcpy(a->copy, a->u.data, size);
        }
        return TGC_OK;
}

int npy_open(Npy *a, const char *path, Err *e)
{
        int rc;

        memset(a, 0, sizeof *a);
        rc = file_map(&a->map, path, e);
        if (!rc)
                rc = parse(a, path, e);
        if (rc)
                npy_close(a);
        return rc;
}

void npy_close(Npy *a)
{
        free(a->copy);
        file_unmap(&a->map);
        memset(a, 0, sizeof *a);
}

/* Writer -------------------------------------------------------------- */

struct NpyOut {
        FileOut *file;
        char *path;
        uint64_t left;
};

int npy_out_open(NpyOut **out, const char *path, int rank, const int64_t *dim, Err *e)
{
        NpyOut *o;
        char head[512];
        int64_t count;
        int n = 10, pad, rc;

        *out = 0;
        if (rank < 0 || rank > CK_MAX_RANK || !ck_count(rank, dim, &count))
                return err_set(e, TGC_FAIL, "%s: no such shape can be written", path);
        o = calloc(1, sizeof *o);
        if (!o || !(o->path = strdup(path))) {
                free(o);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        }
        o->left = (uint64_t)count;
        n += snprintf(head + n, sizeof head - (size_t)n,
                      "{'descr': '<f4', 'fortran_order': False, 'shape': (");
        for (int i = 0; i < rank; i++)
                n += snprintf(head + n, sizeof head - (size_t)n, "%s%lld%s", i ? " " : "",
                              (long long)dim[i], i + 1 < rank || rank == 1 ? "," : "");
        n += snprintf(head + n, sizeof head - (size_t)n, "), }");
        pad = (64 - (n + 1) % 64) % 64; /* the data begins at a multiple of 64 */
        memset(head + n, ' ', (size_t)pad);
        n += pad;
        head[n++] = '\n';
        memcpy(head, "\x93NUMPY\1\0", 8);
        head[8] = (char)((n - 10) & 255);
        head[9] = (char)((n - 10) >> 8);
        rc = file_out_open(&o->file, path, e);
        if (!rc)
                rc = file_out_write(o->file, head, (size_t)n, e);
        if (rc) {
                npy_out_abort(o);
                return rc;
        }
        *out = o;
        return TGC_OK;
}

int npy_out_write(NpyOut *o, const float *v, size_t n, Err *e)
{
        if (n > o->left)
                return err_set(e, TGC_FAIL, "%s: more values than the shape holds", o->path);
        o->left -= n;
        return file_out_write(o->file, v, n * sizeof *v, e);
}

int npy_out_commit(NpyOut *o, Err *e)
{
        int rc;

        if (o->left) {
                rc = err_set(e, TGC_FAIL, "%s: %llu values are missing", o->path,
                             (unsigned long long)o->left);
        } else {
                rc = file_out_commit(o->file, e);
                o->file = 0;
        }
        npy_out_abort(o);
        return rc;
}

void npy_out_abort(NpyOut *o)
{
        if (!o)
                return;
        file_out_abort(o->file);
        free(o->path);
        free(o);
}
