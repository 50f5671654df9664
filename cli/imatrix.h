/* imatrix.h: importance of the columns of linears: mean squares of what they are given. */
#ifndef TGC_IMATRIX_H
#define TGC_IMATRIX_H

#include "../runtime/util/err.h"
#include <stdint.h>

typedef struct Imatrix Imatrix;

/* llama.cpp's file, as GGUF (NAME.in_sum2, NAME.counts) or in its older form. */
int imatrix_open(Imatrix **out, const char *path, Err *e);
void imatrix_close(Imatrix *m); /* NULL is allowed */
/* Means of the `cols` columns of each of *matrices (1, or the experts); NULL: the file has none for
 * that tensor.  TGC_BAD_FILE: of another width. */
int imatrix_find(const Imatrix *m, const char *tensor, int64_t cols, const float **means,
                 int64_t *matrices, Err *e);
int imatrix_count(const Imatrix *m);

#endif
