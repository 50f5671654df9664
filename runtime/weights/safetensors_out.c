/* safetensors_out.c: writes safetensors files (safetensors.h). */
#include "safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the size of a state */
#include <xxhash.h>
#include "../util/file.h"
#include "../util/json.h"

struct SafetensorsOut {
        FileOut *file;
        char *path;
        int *order;
        uint64_t left;    /* bytes of data still to come */
        uint64_t hash_at; /* where the hash goes; 0: none is wanted */
        XXH3_state_t *hash;
};

typedef struct Text {
        char *s;
        size_t n, room;
        bool failed;
} Text;

static void put(Text *t, const char *s, size_t n)
{
        if (t->failed)
                return;
        if (n > t->room - t->n) {
                size_t room = 2 * t->room + n + 4096;
                char *p = realloc(t->s, room);
                if (!p) {
                        t->failed = true;
                        return;
                }
                t->s = p;
                t->room = room;
        }
        memcpy(t->s + t->n, s, n);
        t->n += n;
}

static void puts_(Text *t, const char *s) { put(t, s, strlen(s)); }

static void put_string(Text *t, const char *s)
{
        puts_(t, "\"");
        for (; *s; s++) {
                char buf[8];
                if (*s == '"' || *s == '\\') {
                        buf[0] = '\\';
                        buf[1] = *s;
                        put(t, buf, 2);
                } else if ((unsigned char)*s < 0x20) {
                        snprintf(buf, sizeof buf, "\\u%04x", (unsigned)*s);
                        put(t, buf, 6);
                } else {
                        put(t, s, 1);
                }
        }
        puts_(t, "\"");
}

static void put_tensor(Text *t, const CkTensor *x, uint64_t begin, uint64_t end)
{
        char buf[256], dims[200];

        put_string(t, x->name);
        snprintf(buf, sizeof buf, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}",
                 ck_dtype_name(x->dtype), ck_shape_text(dims, sizeof dims, x->rank, x->dim),
                 (unsigned long long)begin, (unsigned long long)end);
        puts_(t, buf);
}

typedef struct Rank {
        const CkTensor *t;
        int index;
} Rank;

static int by_size_and_name(const void *a, const void *b)
{
        const CkTensor *x = ((const Rank *)a)->t, *y = ((const Rank *)b)->t;
        size_t sx = ck_dtype_size(x->dtype), sy = ck_dtype_size(y->dtype);

        return sx != sy ? (sx > sy ? -1 : 1) : strcmp(x->name, y->name);
}

/* Fill o->order and the header's text. */
static int plan_out(SafetensorsOut *o, Text *t, const CkTensor *tensor, int n, const StMeta *meta,
                    int n_meta, Err *e)
{
        Rank *rank = malloc(((size_t)n + 1) * sizeof *rank);
        const char *sep = "{";
        uint64_t at = 0;
        int rc = TGC_OK;

        o->order = malloc(((size_t)n + 1) * sizeof *o->order);
        if (!rank || !o->order) {
                free(rank);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for the table of tensors", o->path);
        }
        for (int i = 0; i < n; i++)
                rank[i] = (Rank) { &tensor[i], i };
        qsort(rank, (size_t)n, sizeof *rank, by_size_and_name);
        if (n_meta) {
                puts_(t, "{\"__metadata__\":");
                for (int i = 0; i < n_meta; i++) {
                        puts_(t, i ? "," : "{");
                        put_string(t, meta[i].key);
                        puts_(t, ":");
                        put_string(t, meta[i].value);
                }
                puts_(t, "}");
                sep = ",";
        }
        for (int i = 0; i < n && !rc; i++) {
                const CkTensor *x = rank[i].t;
                int64_t count;
                uint64_t end = at;

                if (x->rank < 0 || x->rank > CK_MAX_RANK || !ck_dtype_size(x->dtype) ||
                    !ck_count(x->rank, x->dim, &count) ||
                    __builtin_add_overflow(at, (uint64_t)count * ck_dtype_size(x->dtype), &end))
                        rc = err_set(e, TGC_FAIL, "%s: tensor %.200s cannot be written", o->path,
                                     x->name);
                else if (!ck_name_ok(x->name) || !*x->name || !strcmp(x->name, "__metadata__") ||
                         !json_utf8_ok(x->name, strlen(x->name)))
                        rc = err_set(e, TGC_FAIL, "%s: a tensor's name cannot be written", o->path);
                else if (i && !strcmp(rank[i - 1].t->name, x->name))
                        rc = err_set(e, TGC_FAIL, "%s: tensor %.200s given twice", o->path,
                                     x->name);
                if (rc)
                        break;
                puts_(t, sep);
                put_tensor(t, x, at, end);
                sep = ",";
                at = end;
                o->order[i] = rank[i].index;
        }
        puts_(t, n || n_meta ? "}" : "{}");
        while (t->n & 7)
                puts_(t, " ");
        o->left = at;
        free(rank);
        if (!rc && t->failed)
                rc = err_set(e, TGC_NO_MEMORY, "%s: no memory for the header", o->path);
        if (!rc && t->n > SAFETENSORS_MAX_HEADER)
                rc = err_set(e, TGC_FAIL, "%s: a header of %zu bytes exceeds the format's limit",
                             o->path, t->n);
        return rc;
}

static int begin_hash(SafetensorsOut *o, const unsigned char *size, const Text *t, Err *e)
{
        static const char mark[] = "\"" SAFETENSORS_HASH "\":\"" SAFETENSORS_NO_HASH "\"";
        const char *at = memmem(t->s, t->n, mark, sizeof mark - 1);

        if (!at)
                return TGC_OK;
        o->hash_at = 8 + (uint64_t)(at - t->s) + sizeof SAFETENSORS_HASH + 3;
        if (!(o->hash = XXH3_createState()))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for a checksum (%zu bytes)",
                               o->path, sizeof *o->hash);
        XXH3_64bits_reset(o->hash);
        XXH3_64bits_update(o->hash, size, 8);
        XXH3_64bits_update(o->hash, t->s, t->n);
        return TGC_OK;
}

static int end_hash(SafetensorsOut *o, Err *e)
{
        char hex[17];

        if (!o->hash)
                return TGC_OK;
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)XXH3_64bits_digest(o->hash));
        return file_out_patch(o->file, o->hash_at, hex, 16, e);
}

int safetensors_check_hash(const void *data, size_t size, bool *there, const char *name, Err *e)
{
        static const char mark[] = "\"" SAFETENSORS_HASH "\":\"";
        const char *s = data, *at;
        uint64_t n = 0;
        char hex[17];
        XXH3_state_t *x;

        *there = false;
        for (size_t i = 0; i < 8 && size >= 8; i++)
                n |= (uint64_t)((const unsigned char *)s)[i] << 8 * i;
        if (size < 8 || n > size - 8 || !(at = memmem(s + 8, (size_t)n, mark, sizeof mark - 1)))
                return TGC_OK;
        at += sizeof mark - 1;
        if ((size_t)(at - s) + 16 > size)
                return TGC_OK;
        *there = true;
        if (!(x = XXH3_createState()))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for a checksum (%zu bytes)", name,
                               sizeof *x);
        XXH3_64bits_reset(x);
        XXH3_64bits_update(x, s, (size_t)(at - s));
        XXH3_64bits_update(x, SAFETENSORS_NO_HASH, 16);
        XXH3_64bits_update(x, at + 16, size - (size_t)(at - s) - 16);
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)XXH3_64bits_digest(x));
        XXH3_freeState(x);
        return memcmp(hex, at, 16)
                       ? err_set(e, TGC_BAD_FILE,
                                 "%s: damaged: it says that its checksum is %.16s, its bytes have "
                                 "%s",
                                 name, at, hex)
                       : TGC_OK;
}

int safetensors_out_open(SafetensorsOut **out, const char *path, const CkTensor *tensor, int n,
                         const StMeta *meta, int n_meta, Err *e)
{
        SafetensorsOut *o = calloc(1, sizeof *o);
        unsigned char size[8];
        Text t = { 0 };
        int rc;

        *out = 0;
        if (!o || !(o->path = strdup(path))) {
                free(o);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        }
        rc = plan_out(o, &t, tensor, n, meta, n_meta, e);
        if (!rc)
                rc = file_out_open(&o->file, path, e);
        for (int i = 0; i < 8; i++)
                size[i] = (unsigned char)(t.n >> 8 * i);
        if (!rc)
                rc = begin_hash(o, size, &t, e);
        if (!rc)
                rc = file_out_write(o->file, size, 8, e);
        if (!rc)
                rc = file_out_write(o->file, t.s, t.n, e);
        free(t.s);
        if (rc) {
                safetensors_out_abort(o);
                return rc;
        }
        *out = o;
        return TGC_OK;
}

const int *safetensors_out_order(const SafetensorsOut *o) { return o->order; }

int safetensors_out_write(SafetensorsOut *o, const void *data, size_t bytes, Err *e)
{
        if (bytes > o->left)
                return err_set(e, TGC_FAIL, "%s: more data than the header states", o->path);
        o->left -= bytes;
        if (o->hash)
                XXH3_64bits_update(o->hash, data, bytes);
        return file_out_write(o->file, data, bytes, e);
}

int safetensors_out_commit(SafetensorsOut *o, Err *e)
{
        int rc;

        if (o->left) {
                rc = err_set(e, TGC_FAIL, "%s: %llu bytes of data are missing", o->path,
                             (unsigned long long)o->left);
        } else if (!(rc = end_hash(o, e))) {
                rc = file_out_commit(o->file, e);
                o->file = 0;
        }
        safetensors_out_abort(o);
        return rc;
}

void safetensors_out_abort(SafetensorsOut *o)
{
        if (!o)
                return;
        file_out_abort(o->file);
        XXH3_freeState(o->hash);
        free(o->path);
        free(o->order);
        free(o);
}
