/* gguf_read.c: reads one GGUF file.  Every count and size is checked against the rest of the file
 * before it is used; a message names the file and the field. */
#include "gguf_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../util/json.h"

enum {
        MAX_KEYS = 1 << 16,
        MAX_TENSORS = 1 << 20,
        MAX_KEY = 65535,
        MAX_NAME = 255,               /* of a tensor; ggml has 63 */
        MAX_DEPTH = 4,                /* of arrays in arrays */
        KEY_BYTES = 8 + 4 + 1,        /* at least, in the file */
        TENSOR_BYTES = 8 + 4 + 4 + 8, /* the same */
        DEFAULT_ALIGNMENT = 32
};

typedef struct Reader {
        const uint8_t *begin, *at, *end;
        const char *path;
        Gguf *g; /* keeps the names */
        Err *e;
} Reader;

static size_t left(const Reader *r) { return (size_t)(r->end - r->at); }

static int cut(Reader *r, const char *field)
{
        return err_set(r->e, TGC_BAD_FILE, "%s: %.200s: the file ends there, at byte %zu", r->path,
                       field, (size_t)(r->end - r->begin));
}

static int take_u32(Reader *r, uint32_t *v, const char *field)
{
        *v = 0;
        if (left(r) < 4)
                return cut(r, field);
        memcpy(v, r->at, 4);
        r->at += 4;
        return TGC_OK;
}

static int take_u64(Reader *r, uint64_t *v, const char *field)
{
        *v = 0;
        if (left(r) < 8)
                return cut(r, field);
        memcpy(v, r->at, 8);
        r->at += 8;
        return TGC_OK;
}

/* n bytes that live as long as g; NULL: no memory. */
static char *keep(Gguf *g, size_t n)
{
        enum { BLOCK = 1 << 16 };

        if (n > g->block_left) {
                const size_t size = n > BLOCK ? n : BLOCK;
                char **blocks = realloc(g->block, ((size_t)g->n_blocks + 1) * sizeof *blocks);

                if (!blocks)
                        return 0;
                g->block = blocks;
                if (!(g->block[g->n_blocks] = malloc(size)))
                        return 0;
                g->n_blocks++;
                g->block_left = size;
        }
        char *last = g->block[g->n_blocks - 1];
        g->block_left -= n;
        return last + g->block_left;
}

/* Length and bytes, copied, with a NUL behind them. */
static int take_name(Reader *r, const char **name, size_t most, const char *field)
{
        uint64_t n;
        char *to;
        int rc = take_u64(r, &n, field);

        if (rc)
                return rc;
        if (n > most || n == 0)
                return err_set(r->e, TGC_BAD_FILE, "%s: %s has %llu bytes, 1 to %zu are allowed",
                               r->path, field, (unsigned long long)n, most);
        if (n > left(r))
                return cut(r, field);
        if (!(to = keep(r->g, n + 1)))
                return err_set(r->e, TGC_NO_MEMORY, "%s: no memory for its names", r->path);
        memcpy(to, r->at, n);
        to[n] = 0;
        if (strlen(to) != n || !ck_name_ok(to) || !json_utf8_ok(to, n))
                return err_set(r->e, TGC_BAD_FILE, "%s: %s has control characters or is not UTF-8",
                               r->path, field);
        *name = to;
        r->at += n;
        return TGC_OK;
}

/* Walk over a value of v->type at r->at. */
static int take_value(Reader *r, GgufValue *v, const char *field, int depth)
{
        uint32_t item = 0;
        int rc;

        v->at = r->at;
        v->n = 0;
        if (v->type < 0 || v->type >= GGUF_N_TYPES)
                return err_set(r->e, TGC_BAD_FILE, "%s: %.200s is of type %u, which GGUF has not",
                               r->path, field, (unsigned)v->type);
        if (gguf_type_size(v->type)) {
                if (left(r) < gguf_type_size(v->type))
                        return cut(r, field);
                if (v->type == GGUF_BOOL && *r->at > 1)
                        return err_set(r->e, TGC_BAD_FILE, "%s: %.200s is a bool of value %d",
                                       r->path, field, *r->at);
                r->at += gguf_type_size(v->type);
                return TGC_OK;
        }
        if (v->type == GGUF_ARRAY && (rc = take_u32(r, &item, field)))
                return rc;
        if ((rc = take_u64(r, &v->n, field)))
                return rc;
        v->at = r->at;
        if (v->type == GGUF_STRING) {
                if (v->n > left(r))
                        return cut(r, field);
                r->at += v->n;
                return TGC_OK;
        }
        if (item >= GGUF_N_TYPES || depth == MAX_DEPTH)
                return err_set(r->e, TGC_BAD_FILE, "%s: %.200s: an array of %s", r->path, field,
                               item < GGUF_N_TYPES ? "arrays, too deep" : "an unknown type");
        v->item = (int)item;
        if (gguf_type_size(item)) {
                if (v->n > left(r) / gguf_type_size(item))
                        return cut(r, field);
                r->at += v->n * gguf_type_size(item);
                return TGC_OK;
        }
        if (v->n > left(r) / 8) /* each has a length at least */
                return cut(r, field);
        for (uint64_t i = 0; i < v->n; i++) {
                GgufValue x = { .type = v->item };
                if ((rc = take_value(r, &x, field, depth + 1)))
                        return rc;
        }
        return TGC_OK;
}

static int take_keys(Reader *r, Gguf *g, uint64_t n)
{
        int rc = TGC_OK;

        for (uint64_t i = 0; i < n && !rc; i++) {
                GgufKey *k = &g->key[i];
                uint32_t type;
                char field[64];

                snprintf(field, sizeof field, "the name of metadata key %llu",
                         (unsigned long long)i);
                if ((rc = take_name(r, &k->name, MAX_KEY, field)) ||
                    (rc = take_u32(r, &type, k->name)))
                        break;
                k->value.type = type < GGUF_N_TYPES ? (int)type : GGUF_N_TYPES;
                if (type >= GGUF_N_TYPES)
                        return err_set(r->e, TGC_BAD_FILE,
                                       "%s: %.200s is of type %u, which GGUF has not", r->path,
                                       k->name, type);
                rc = take_value(r, &k->value, k->name, 0);
                g->n_keys++;
        }
        return rc;
}

static int take_tensor(Reader *r, CkTensor *t, uint64_t *offset, int number)
{
        uint32_t rank, type;
        uint64_t dim;
        int64_t count;
        char field[64], shape[96];
        int rc;

        snprintf(field, sizeof field, "the name of tensor %d", number);
        if ((rc = take_name(r, &t->name, MAX_NAME, field)) || (rc = take_u32(r, &rank, t->name)))
                return rc;
        if (rank > 4)
                return err_set(r->e, TGC_BAD_FILE, "%s: tensor %s has %u dimensions, 4 at most",
                               r->path, t->name, rank);
        t->rank = (int)rank;
        for (int i = (int)rank - 1; i >= 0; i--) { /* the file begins with the contiguous one */
                if ((rc = take_u64(r, &dim, t->name)))
                        return rc;
                if (dim == 0 || dim > (uint64_t)INT64_MAX)
                        return err_set(r->e, TGC_BAD_FILE, "%s: tensor %s has a dimension of %llu",
                                       r->path, t->name, (unsigned long long)dim);
                t->dim[i] = (int64_t)dim;
        }
        if ((rc = take_u32(r, &type, t->name)) || (rc = take_u64(r, offset, t->name)))
                return rc;
        t->dtype = ck_dtype_of_gguf(type);
        if (t->dtype < 0)
                return err_set(r->e, TGC_BAD_FILE,
                               "%s: tensor %s is of ggml type %u, not known here", r->path, t->name,
                               type);
        ck_shape_text(shape, sizeof shape, t->rank, t->dim);
        const int values = ck_block_values(t->dtype);
        if (!ck_count(t->rank, t->dim, &count) ||
            (uint64_t)count / (uint64_t)values > SIZE_MAX / ck_block_bytes(t->dtype))
                return err_set(r->e, TGC_BAD_FILE, "%s: tensor %s is too large: %s", r->path,
                               t->name, shape);
        if (values > 1 && (!rank || t->dim[rank - 1] % values))
                return err_set(
                        r->e, TGC_BAD_FILE,
                        "%s: tensor %s is %s: rows of %lld are no multiple of %s's %d values",
                        r->path, t->name, shape, (long long)(rank ? t->dim[rank - 1] : 1),
                        ck_dtype_name(t->dtype), values);
        t->bytes = (size_t)(count / values) * ck_block_bytes(t->dtype);
        return TGC_OK;
}

static int by_place(const void *a, const void *b)
{
        const CkTensor *const *x = a, *const *y = b;
        return ((*x)->data > (*y)->data) - ((*x)->data < (*y)->data);
}

/* Of the tensors from `first` on, the offsets in offset[]: each in the file, and none over
 * another. */
static int place_tensors(Reader *r, Gguf *g, int first, const uint64_t *offset, uint32_t alignment)
{
        const int n = g->n_tensors - first;
        const size_t head = (size_t)(r->at - r->begin), size = (size_t)(r->end - r->begin),
                     data = (head + alignment - 1) / alignment * alignment;
        const CkTensor **by = malloc(((size_t)n + 1) * sizeof *by);
        int rc = by ? TGC_OK : err_set(r->e, TGC_NO_MEMORY, "%s: no memory", r->path);

        for (int i = 0; i < n && !rc; i++) {
                CkTensor *t = &g->tensor[first + i];
                by[i] = t;
                if (offset[i] % alignment)
                        rc = err_set(
                                r->e, TGC_BAD_FILE,
                                "%s: tensor %s: offset %llu is no multiple of the alignment %u",
                                r->path, t->name, (unsigned long long)offset[i], alignment);
                else if (data > size || offset[i] > size - data ||
                         t->bytes > size - data - offset[i])
                        rc = err_set(
                                r->e, TGC_BAD_FILE,
                                "%s: tensor %s: bytes %llu to %llu of the data, and the file has "
                                "%zu: is it cut?",
                                r->path, t->name, (unsigned long long)offset[i],
                                (unsigned long long)(offset[i] + t->bytes),
                                data > size ? (size_t)0 : size - data);
                else
                        t->data = r->begin + data + offset[i];
        }
        if (!rc)
                qsort(by, (size_t)n, sizeof *by, by_place);
        for (int i = 1; i < n && !rc; i++)
                if ((const char *)by[i - 1]->data + by[i - 1]->bytes > (const char *)by[i]->data)
                        rc = err_set(r->e, TGC_BAD_FILE, "%s: tensors %s and %s overlap", r->path,
                                     by[i - 1]->name, by[i]->name);
        free(by);
        return rc;
}

static int alignment_of(const Gguf *g, const char *path, uint32_t *out, Err *e)
{
        const GgufValue *v = gguf_find(g, "general.alignment");
        int64_t x = DEFAULT_ALIGNMENT;

        if (v && (!gguf_int(v, &x) || x < 8 || x % 8 || x > 1 << 20))
                return err_set(e, TGC_BAD_FILE,
                               "%s: general.alignment is %lld (%s), not a multiple of 8", path,
                               (long long)x, gguf_type_name(v->type));
        *out = (uint32_t)x;
        return TGC_OK;
}

static int by_key(const void *a, const void *b)
{
        return strcmp((*(const GgufKey *const *)a)->name, (*(const GgufKey *const *)b)->name);
}

static int no_key_twice(const Gguf *g, const char *path, Err *e)
{
        const GgufKey **by = malloc(((size_t)g->n_keys + 1) * sizeof *by);
        int rc = by ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", path);

        for (int i = 0; i < g->n_keys && by; i++)
                by[i] = &g->key[i];
        if (by)
                qsort(by, (size_t)g->n_keys, sizeof *by, by_key);
        for (int i = 1; i < g->n_keys && !rc; i++)
                if (!strcmp(by[i - 1]->name, by[i]->name))
                        rc = err_set(e, TGC_BAD_FILE, "%s: metadata key %.200s is given twice",
                                     path, by[i]->name);
        free(by);
        return rc;
}

int gguf_take_file(Gguf *g, Gguf *rest, const void *data, size_t size, const char *path, Err *e)
{
        Reader r = { data, data, (const uint8_t *)data + size, path, g, e };
        Gguf *keys = rest ? rest : g;
        uint64_t n, n_keys, *offset;
        uint32_t magic, version, alignment = DEFAULT_ALIGNMENT;
        const int first = g->n_tensors;
        int rc;

        if ((rc = take_u32(&r, &magic, "the magic number")))
                return rc;
        if (memcmp(data, "GGUF", 4))
                return err_set(e, TGC_BAD_FILE, "%s: does not begin with GGUF", path);
        if ((rc = take_u32(&r, &version, "the version")))
                return rc;
        if (version != 2 && version != 3)
                return err_set(e, TGC_BAD_FILE,
                               "%s: GGUF version %u%s; versions 2 and 3 are read%s", path, version,
                               version && !(version & 0xffff) ? " (big-endian)" : "",
                               version == 1 ? ": convert the model again" : "");
        if ((rc = take_u64(&r, &n, "the number of tensors")) ||
            (rc = take_u64(&r, &n_keys, "the number of metadata keys")))
                return rc;
        if (n > MAX_TENSORS || n > left(&r) / TENSOR_BYTES)
                return err_set(e, TGC_BAD_FILE,
                               "%s: says that it has %llu tensors; the limit is %d, and the %zu "
                               "bytes that follow have room for %zu",
                               path, (unsigned long long)n, MAX_TENSORS, left(&r),
                               left(&r) / TENSOR_BYTES);
        if (n_keys > MAX_KEYS || n_keys > left(&r) / KEY_BYTES)
                return err_set(e, TGC_BAD_FILE,
                               "%s: says that it has %llu metadata keys; the limit is %d, and the "
                               "%zu bytes that follow have room for %zu",
                               path, (unsigned long long)n_keys, MAX_KEYS, left(&r),
                               left(&r) / KEY_BYTES);
        g->version = (int)version;
        CkTensor *room = realloc(g->tensor, ((size_t)g->n_tensors + n + 1) * sizeof *room);
        if (room)
                g->tensor = room;
        keys->key = calloc(n_keys + 1, sizeof *keys->key);
        offset = malloc((n + 1) * sizeof *offset);
        if (!room || !keys->key || !offset) {
                free(offset);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for its %llu tensors", path,
                               (unsigned long long)n);
        }
        if (!(rc = take_keys(&r, keys, n_keys)) && !(rc = no_key_twice(keys, path, e)))
                rc = alignment_of(keys, path, &alignment, e);
        for (uint64_t i = 0; i < n && !rc; i++) {
                CkTensor *t = &g->tensor[g->n_tensors];
                *t = (CkTensor) { 0 };
                if (!(rc = take_tensor(&r, t, &offset[i], (int)i)))
                        g->n_tensors++;
        }
        if (!rc)
                rc = place_tensors(&r, g, first, offset, alignment);
        free(offset);
        return rc;
}
