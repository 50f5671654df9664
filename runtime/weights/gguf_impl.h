/* gguf_impl.h: private to gguf*.c: an open GGUF model. */
#ifndef TGC_GGUF_IMPL_H
#define TGC_GGUF_IMPL_H

#include "gguf.h"
#include "../util/file.h"

struct Gguf {
        char *path;
        int version;
        FileMap *map; /* of the files that gguf_open opened */
        int n_maps;
        GgufKey *key;
        int n_keys;
        CkTensor *tensor;
        int n_tensors;
        const CkTensor **by_name; /* sorted */
        char **block;             /* names */
        int n_blocks;
        size_t block_left;
};

/* gguf_read.c: a file's tensors join g; its metadata too, when it is the first, else it goes to
 * *rest, whose keys the caller frees.  What is left by an error, gguf_free frees. */
int gguf_take_file(Gguf *g, Gguf *rest, const void *data, size_t size, const char *path, Err *e);
/* gguf_values.c: bytes of a value of such a type; 0: not of one size.  type: of the format. */
size_t gguf_type_size(int type);

#endif
