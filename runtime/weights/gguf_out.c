/* gguf_out.c: implements gguf_out.h. */
#include "gguf_out.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../util/file.h"

enum { ALIGNMENT = 32 };

struct GgufOut {
        FileOut *file;
        char *path;
};

/* Little-endian, as all machines are that tgc runs on. */
static void put(FILE *f, const void *v, size_t n) { fwrite(v, 1, n, f); }
static void put_u32(FILE *f, uint32_t v) { put(f, &v, 4); }
static void put_u64(FILE *f, uint64_t v) { put(f, &v, 8); }

static void put_string(FILE *f, const void *s, size_t n)
{
        put_u64(f, n);
        put(f, s, n);
}

static const uint8_t size_of[GGUF_N_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

static void put_value(FILE *f, const GgufValue *v)
{
        if (v->type == GGUF_STRING) {
                put_string(f, v->at, v->n);
        } else if (v->type != GGUF_ARRAY) {
                put(f, v->at, size_of[v->type]);
        } else {
                put_u32(f, (uint32_t)v->item);
                put_u64(f, v->n);
                if (v->item != GGUF_STRING && v->item != GGUF_ARRAY) {
                        put(f, v->at, (size_t)v->n * size_of[v->item]);
                        return;
                }
                for (GgufEach i = gguf_each(v); gguf_next(&i);)
                        put_value(f, &i.value);
        }
}

static bool is_left_out(const char *name, const GgufKeys *more)
{
        return gguf_keys_have(more, name) || !strncmp(name, "split.", 6) ||
               !strcmp(name, "general.alignment");
}

static uint64_t aligned(uint64_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* False: no memory for the keys. */
static bool put_head(FILE *f, const Gguf *keys, GgufKeys *more, const CkTensor *tensor, int n)
{
        uint64_t n_keys = (uint64_t)gguf_keys_count(more), at = 0;
        const int n_old = keys ? gguf_n_keys(keys) : 0;
        size_t size = 0;
        const void *bytes = gguf_keys_bytes(more, &size);
        for (int i = 0; i < n_old; i++)
                n_keys += !is_left_out(gguf_key(keys, i)->name, more);
        put(f, "GGUF", 4);
        put_u32(f, 3);
        put_u64(f, (uint64_t)n);
        put_u64(f, n_keys);
        for (int i = 0; i < n_old; i++) {
                const GgufKey *k = gguf_key(keys, i);
                if (is_left_out(k->name, more))
                        continue;
                put_string(f, k->name, strlen(k->name));
                put_u32(f, (uint32_t)k->value.type);
                put_value(f, &k->value);
        }
        if (bytes)
                put(f, bytes, size);
        for (int i = 0; i < n; i++) {
                const CkTensor *t = &tensor[i];
                put_string(f, t->name, strlen(t->name));
                put_u32(f, (uint32_t)t->rank);
                for (int k = t->rank - 1; k >= 0; k--)
                        put_u64(f, (uint64_t)t->dim[k]);
                put_u32(f, (uint32_t)ck_gguf_of_dtype(t->dtype));
                put_u64(f, at);
                at += aligned(t->bytes);
        }
        return bytes != NULL;
}

static int pad(GgufOut *o, Err *e)
{
        static const uint8_t zeros[ALIGNMENT];
        const uint64_t n = file_out_size(o->file);
        return file_out_write(o->file, zeros, (size_t)(aligned(n) - n), e);
}

int gguf_out_open(GgufOut **out, const char *path, const Gguf *keys, GgufKeys *more,
                  const CkTensor *tensor, int n, Err *e)
{
        GgufOut *o = calloc(1, sizeof *o);
        char *head = NULL;
        size_t size = 0;
        FILE *f = o && (o->path = strdup(path)) ? open_memstream(&head, &size) : NULL;
        *out = NULL;
        const bool whole = f && more && put_head(f, keys, more, tensor, n) && !ferror(f);
        int code = f && !fclose(f) && whole ? file_out_open(&o->file, path, e)
                                            : err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        if (!code && !(code = file_out_write(o->file, head, size, e)))
                code = pad(o, e);
        free(head);
        if (code)
                gguf_out_abort(o);
        else
                *out = o;
        return code;
}

int gguf_out_write(GgufOut *o, const void *data, size_t bytes, Err *e)
{
        const int code = file_out_write(o->file, data, bytes, e);
        return code ? code : pad(o, e);
}

int gguf_out_commit(GgufOut *o, Err *e)
{
        const int code = file_out_commit(o->file, e);
        free(o->path);
        free(o);
        return code;
}

void gguf_out_abort(GgufOut *o)
{
        if (!o)
                return;
        file_out_abort(o->file);
        free(o->path);
        free(o);
}
