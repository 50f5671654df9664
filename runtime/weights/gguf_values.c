/* gguf_values.c: the metadata of a GGUF model: types, keys, numbers, lists (gguf.h).  gguf_read.c
 * has checked all bounds, so only types are checked here. */
#include "gguf_impl.h"
#include <string.h>

static const struct {
        const char *name;
        unsigned char size; /* 0: not of one size */
} types[GGUF_N_TYPES] = {
        [GGUF_U8] = { "u8", 1 },       [GGUF_I8] = { "i8", 1 },     [GGUF_U16] = { "u16", 2 },
        [GGUF_I16] = { "i16", 2 },     [GGUF_U32] = { "u32", 4 },   [GGUF_I32] = { "i32", 4 },
        [GGUF_F32] = { "f32", 4 },     [GGUF_BOOL] = { "bool", 1 }, [GGUF_STRING] = { "string", 0 },
        [GGUF_ARRAY] = { "array", 0 }, [GGUF_U64] = { "u64", 8 },   [GGUF_I64] = { "i64", 8 },
        [GGUF_F64] = { "f64", 8 },
};

const char *gguf_type_name(int type)
{
        return type >= 0 && type < GGUF_N_TYPES ? types[type].name : "?";
}

size_t gguf_type_size(int type) { return types[type].size; }

const GgufValue *gguf_find(const Gguf *g, const char *name)
{
        for (int i = 0; i < g->n_keys; i++)
                if (!strcmp(g->key[i].name, name))
                        return &g->key[i].value;
        return 0;
}

#define READ(T)                              \
        {                                    \
                T x;                         \
                memcpy(&x, v->at, sizeof x); \
                *out = x;                    \
                return true;                 \
        }

bool gguf_int(const GgufValue *v, int64_t *out)
{
        switch (v ? v->type : GGUF_N_TYPES) {
        case GGUF_U8: READ(uint8_t)
        case GGUF_I8: READ(int8_t)
        case GGUF_U16: READ(uint16_t)
        case GGUF_I16: READ(int16_t)
        case GGUF_U32: READ(uint32_t)
        case GGUF_I32: READ(int32_t)
        case GGUF_I64: READ(int64_t)
        case GGUF_U64: {
                uint64_t x;
                memcpy(&x, v->at, sizeof x);
                *out = (int64_t)x;
                return x <= INT64_MAX;
        }
        default: return false;
        }
}

bool gguf_number(const GgufValue *v, double *out)
{
        int64_t i;

        switch (v ? v->type : GGUF_N_TYPES) {
        case GGUF_F32: READ(float)
        case GGUF_F64: READ(double)
        default:
                if (!gguf_int(v, &i))
                        return false;
                *out = (double)i;
                return true;
        }
}

bool gguf_bool(const GgufValue *v, bool *out)
{
        if (!v || v->type != GGUF_BOOL)
                return false;
        *out = *v->at;
        return true;
}

const char *gguf_string(const GgufValue *v, size_t *n)
{
        if (!v || v->type != GGUF_STRING)
                return 0;
        *n = (size_t)v->n;
        return (const char *)v->at;
}

GgufEach gguf_each(const GgufValue *v)
{
        if (!v || v->type != GGUF_ARRAY)
                return (GgufEach) { 0 };
        return (GgufEach) { .at = v->at, .left = v->n, .value = { .type = v->item } };
}

/* Behind the value of v->type at `at`, which take_value has walked over before. */
static const uint8_t *behind(GgufValue *v, const uint8_t *at)
{
        uint32_t item;

        v->at = at;
        if (types[v->type].size)
                return at + types[v->type].size;
        if (v->type == GGUF_ARRAY) {
                memcpy(&item, at, 4);
                v->item = (int)item;
                at += 4;
        }
        memcpy(&v->n, at, 8);
        v->at = at += 8;
        if (v->type == GGUF_STRING)
                return at + v->n;
        GgufValue x = { .type = v->item };
        for (uint64_t i = 0; i < v->n; i++)
                at = behind(&x, at);
        return at;
}

bool gguf_next(GgufEach *i)
{
        if (!i->left)
                return false;
        i->left--;
        i->at = behind(&i->value, i->at);
        return true;
}
