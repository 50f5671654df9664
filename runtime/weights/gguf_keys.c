/* gguf_keys.c: writes the metadata of a GGUF file, key by key (gguf_out.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "gguf_out.h"

struct GgufKeys {
        FILE *f; /* to bytes */
        char *bytes;
        size_t size;
        char **name;
        int n, cap;
        bool failed;
};

/* Little-endian, as all machines are that tgc runs on. */
static void put(GgufKeys *k, const void *v, size_t n) { fwrite(v, 1, n, k->f); }
static void put_u32(GgufKeys *k, uint32_t v) { put(k, &v, 4); }
static void put_u64(GgufKeys *k, uint64_t v) { put(k, &v, 8); }

static void put_text(GgufKeys *k, const char *s, size_t n)
{
        put_u64(k, n);
        put(k, s, n);
}

GgufKeys *gguf_keys_new(void)
{
        GgufKeys *k = calloc(1, sizeof *k);
        if (k && !(k->f = open_memstream(&k->bytes, &k->size))) {
                free(k);
                k = NULL;
        }
        return k;
}

void gguf_keys_free(GgufKeys *k)
{
        if (!k)
                return;
        fclose(k->f);
        free(k->bytes);
        for (int i = 0; i < k->n; i++)
                free(k->name[i]);
        free(k->name);
        free(k);
}

static void begin(GgufKeys *k, const char *name, uint32_t type)
{
        if (k->n == k->cap) {
                const int cap = k->cap ? 2 * k->cap : 32;
                char **more = realloc(k->name, (size_t)cap * sizeof *more);
                if (more) {
                        k->name = more;
                        k->cap = cap;
                }
        }
        char *own = k->n < k->cap ? strdup(name) : NULL;
        if (own)
                k->name[k->n++] = own;
        else
                k->failed = true;
        put_text(k, name, strlen(name));
        put_u32(k, type);
}

void gguf_put_u32(GgufKeys *k, const char *name, uint32_t v)
{
        begin(k, name, GGUF_U32);
        put_u32(k, v);
}

void gguf_put_f32(GgufKeys *k, const char *name, float v)
{
        begin(k, name, GGUF_F32);
        put(k, &v, 4);
}

void gguf_put_bool(GgufKeys *k, const char *name, bool v)
{
        const uint8_t b = v;
        begin(k, name, GGUF_BOOL);
        put(k, &b, 1);
}

void gguf_put_text(GgufKeys *k, const char *name, const char *s, size_t n)
{
        begin(k, name, GGUF_STRING);
        put_text(k, s, n);
}

void gguf_put_array(GgufKeys *k, const char *name, int item, uint64_t n)
{
        begin(k, name, GGUF_ARRAY);
        put_u32(k, (uint32_t)item);
        put_u64(k, n);
}

void gguf_put_item(GgufKeys *k, const void *v, size_t n) { put(k, v, n); }
void gguf_put_text_item(GgufKeys *k, const char *s, size_t n) { put_text(k, s, n); }

bool gguf_keys_have(const GgufKeys *k, const char *name)
{
        for (int i = 0; k && i < k->n; i++)
                if (!strcmp(name, k->name[i]))
                        return true;
        return false;
}

int gguf_keys_count(const GgufKeys *k) { return k ? k->n : 0; }

const void *gguf_keys_bytes(GgufKeys *k, size_t *n)
{
        if (fflush(k->f) || ferror(k->f) || k->failed)
                return NULL;
        *n = k->size;
        return k->bytes;
}
