/* gguf_write.h: writes a GGUF file from a Hugging Face folder.  Includes the compiler's headers. */
#ifndef TGC_GGUF_WRITE_H
#define TGC_GGUF_WRITE_H

#include "../../runtime/chat/chat_source.h"
#include "../quantize/imatrix.h"
#include "../quantize/quantize.h"

/* Can --type be of a GGUF file made of a folder: a mixture, f32, f16, bf16? */
bool is_gguf_type(const char *type);
typedef struct GgufOf {
        const Args *a;
        const char *folder, *type;
        const char *name;       /* of the model; NULL: the folder's */
        Imatrix *imatrix;       /* by the names of the file's tensors, or NULL */
        const Tokenizer *tok;   /* NULL: the folder's */
        const ChatSource *chat; /* the same */
} GgufOf;

/* The model, its tokenizer and chat template as `path`. */
int gguf_of_folder(const GgufOf *of, const char *path, Err *e);
/* The names that tensors of a folder have in a file of it: a map, as read_gguf makes it. */
int gguf_names_of_folder(const char *folder, char **map, Err *e);

#endif
