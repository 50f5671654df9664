/* block_encode.h: encodes float32 rows as blocks of a type of storage.def.
 *
 * Without importance, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and MXFP4 have the same bytes as the package
 * gguf (gguf-py, quants.py) makes.  Q2_K to Q6_K and IQ4 are searched (block_search.h). */
#ifndef TGC_BLOCK_ENCODE_H
#define TGC_BLOCK_ENCODE_H

#include "ck_tensor.h"

bool ck_can_encode(int dtype);
/* Does importance change the bytes?  Not where the largest value gives the scale. */
bool ck_can_weigh(int dtype);
/* rows x cols values, cols a multiple of the type's block; importance: of each column, for all
 * rows, or NULL.  In threads.  False: a scale is beyond a half's range. */
bool ck_encode(void *to, int dtype, const float *x, int64_t rows, int64_t cols,
               const float *importance);

#endif
