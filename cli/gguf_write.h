/* gguf_write.h: a GGUF file of a Hugging Face folder; sees the compiler. */
#ifndef TGC_GGUF_WRITE_H
#define TGC_GGUF_WRITE_H

#include "imatrix.h"
#include "quantize.h"

/* Can --type be of a GGUF file made of a folder: a mixture, f32, f16, bf16? */
bool is_gguf_type(const char *type);
/* folder's model, tokenizer and chat template as `path`, in `type`; imatrix: by the names of the
 * file's tensors, or NULL. */
int gguf_of_folder(const Args *a, const char *folder, const char *path, const char *type,
                   Imatrix *imatrix, Err *e);
/* The names that tensors of a folder have in a file of it: a map, as read_gguf makes it. */
int gguf_names_of_folder(const char *folder, char **map, Err *e);

#endif
