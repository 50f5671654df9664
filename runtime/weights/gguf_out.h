/* gguf_out.h: writes a GGUF file (version 3): the keys of another one, tensors in order. */
#ifndef TGC_GGUF_OUT_H
#define TGC_GGUF_OUT_H

#include "gguf.h"

/* A key that is added, or stands in place of the other file's. */
typedef struct GgufSet {
        const char *name;
        uint32_t value;
} GgufSet;

typedef struct GgufOut GgufOut;

/* tensor[i] gives name, dtype and shape (rows first); `split.` keys are left out. */
int gguf_out_open(GgufOut **out, const char *path, const Gguf *keys, const GgufSet *set, int n_set,
                  const CkTensor *tensor, int n, Err *e);
/* The next tensor's bytes, all of them. */
int gguf_out_write(GgufOut *o, const void *data, size_t bytes, Err *e);
int gguf_out_commit(GgufOut *o, Err *e); /* frees o, also on error */
void gguf_out_abort(GgufOut *o);         /* NULL is allowed */

#endif
