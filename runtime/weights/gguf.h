/* gguf.h: GGUF files, version 2 and 3 (ggml-org/ggml, docs/gguf.md): metadata and tensors.
 *
 * A model may lie in several files, NAME-00001-of-00005.gguf and so on; the first one is opened.
 * Files are mapped, and what is large (a vocabulary, tensors) is not copied. */
#ifndef TGC_GGUF_H
#define TGC_GGUF_H

#include "ck_tensor.h"
#include "checkpoint.h"
#include "../util/err.h"

/* In the order of the format. */
enum {
        GGUF_U8,
        GGUF_I8,
        GGUF_U16,
        GGUF_I16,
        GGUF_U32,
        GGUF_I32,
        GGUF_F32,
        GGUF_BOOL,
        GGUF_STRING,
        GGUF_ARRAY,
        GGUF_U64,
        GGUF_I64,
        GGUF_F64,
        GGUF_N_TYPES
};

typedef struct GgufValue {
        int type;          /* GGUF_STRING, ... */
        int item;          /* of an array's items */
        uint64_t n;        /* bytes of a string, items of an array */
        const uint8_t *at; /* the number, the string's bytes, the first item */
} GgufValue;

typedef struct GgufKey {
        const char *name;
        GgufValue value;
} GgufKey;

typedef struct Gguf Gguf;

int gguf_open(Gguf **out, const char *path, Err *e); /* with the other files of a split model */
/* One file in memory, which must last as long; name: for messages. */
int gguf_parse(Gguf **out, const void *data, size_t size, const char *name, Err *e);
void gguf_free(Gguf *g); /* NULL is allowed */

const char *gguf_path(const Gguf *g);
int gguf_version(const Gguf *g);
int gguf_n_keys(const Gguf *g);
const GgufKey *gguf_key(const Gguf *g, int i);               /* in the file's order */
const GgufValue *gguf_find(const Gguf *g, const char *name); /* NULL: none */
int gguf_n_tensors(const Gguf *g);
const CkTensor *gguf_tensor(const Gguf *g,
                            int i); /* in the files' order; rows first, as safetensors */
const CkTensor *gguf_find_tensor(const Gguf *g, const char *name);
uint64_t gguf_tensor_bytes(const Gguf *g); /* of all tensors */

const char *gguf_type_name(int type);
/* Values of the wanted type, whatever the width of an integer; false: it is another type, or out of
 * range. */
bool gguf_int(const GgufValue *v, int64_t *out);
bool gguf_number(const GgufValue *v, double *out); /* integers too */
bool gguf_bool(const GgufValue *v, bool *out);
/* A string's bytes, no NUL behind them; NULL: none. */
const char *gguf_string(const GgufValue *v, size_t *n);

/* Items of an array, one after the other:
 * for (GgufEach i = gguf_each(v); gguf_next(&i);) i.value */
typedef struct GgufEach {
        const uint8_t *at;
        uint64_t left;
        GgufValue value;
} GgufEach;
GgufEach gguf_each(const GgufValue *v); /* nothing to do where v is no array */
bool gguf_next(GgufEach *i);

/* gguf_json.c: metadata as a JSON object, caller frees: numbers, strings and lists of numbers, none
 * of the tokenizer's lists; and "tensors", {NAME: {"type": "Q4_K", "shape": [N,K]}}, with "values"
 * of those float32 ones whose name begins with rope_. */
int gguf_json(const Gguf *g, char **text, Err *e);

/* Its tensors under their own names; the checkpoint takes g over. */
int checkpoint_add_gguf(Checkpoint *ck, Gguf *g, Err *e);

#endif
