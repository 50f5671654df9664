/* gguf_out.h: writes a GGUF file (version 3): keys, copied from another file or new, then tensors
 * in order. */
#ifndef TGC_GGUF_OUT_H
#define TGC_GGUF_OUT_H

#include "gguf.h"

/* ---- gguf_keys.c: keys and their values, in order ---- */

typedef struct GgufKeys GgufKeys;

GgufKeys *gguf_keys_new(void);    /* NULL: no memory; what fails later gguf_out_open says */
void gguf_keys_free(GgufKeys *k); /* NULL is allowed */
void gguf_put_u32(GgufKeys *k, const char *name, uint32_t v);
void gguf_put_f32(GgufKeys *k, const char *name, float v);
void gguf_put_bool(GgufKeys *k, const char *name, bool v);
void gguf_put_text(GgufKeys *k, const char *name, const char *s, size_t n);
/* n items of a type follow: bytes of numbers, or texts. */
void gguf_put_array(GgufKeys *k, const char *name, int item, uint64_t n);
void gguf_put_item(GgufKeys *k, const void *v, size_t n);
void gguf_put_text_item(GgufKeys *k, const char *s, size_t n);
bool gguf_keys_have(const GgufKeys *k, const char *name);
int gguf_keys_count(const GgufKeys *k);
const void *gguf_keys_bytes(GgufKeys *k, size_t *n); /* as a file has them; NULL: no memory */

/* ---- gguf_out.c ---- */

typedef struct GgufOut GgufOut;

/* The keys of the file `keys` (may be NULL), and those of `more` behind them or in their place.
 * tensor[i] gives name, dtype and shape (rows first); `split.` keys are left out. */
int gguf_out_open(GgufOut **out, const char *path, const Gguf *keys, GgufKeys *more,
                  const CkTensor *tensor, int n, Err *e);
/* The next tensor's bytes, all of them. */
int gguf_out_write(GgufOut *o, const void *data, size_t bytes, Err *e);
int gguf_out_commit(GgufOut *o, Err *e); /* frees o, also on error */
void gguf_out_abort(GgufOut *o);         /* NULL is allowed */

#endif
