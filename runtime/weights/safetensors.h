/* safetensors.h: one file in the safetensors format.
 *
 *      u64 LE n | n bytes of JSON {"name":{"dtype","shape","data_offsets"},...} | data
 *
 * The reader takes the file's bytes and trusts none of them. */
#ifndef TGC_SAFETENSORS_H
#define TGC_SAFETENSORS_H

#include "ck_tensor.h"
#include "../util/err.h"

#define SAFETENSORS_MAX_HEADER 100000000u /* the format's own limit */

typedef struct StMeta {
        const char *key, *value;
} StMeta;

/* tensor[] in the order of their data; names and metadata live here, the data
 * in the caller's bytes, which must outlive it. */
typedef struct Safetensors {
        CkTensor *tensor;
        int n_tensors;
        StMeta *meta;
        int n_meta;
        char *text; /* owns the strings */
} Safetensors;

/* Is this the beginning of such a file?  (A plausible length, then '{'.) */
bool safetensors_probe(const void *data, size_t size);

/* TGC_BAD_FILE with the reason; `name` (the path) begins the message. */
int safetensors_parse(Safetensors *st, const void *data, size_t size, const char *name, Err *e);
void safetensors_free(Safetensors *st);
/* *there: the file has a hash.  TGC_BAD_FILE when it is not that of its bytes. */
int safetensors_check_hash(const void *data, size_t size, bool *there, const char *name, Err *e);

/* Streaming writer.  tensor[i] gives name, dtype and shape (data is not read).
 * The file's order is larger elements first, so that all are aligned, then by
 * name; the same input gives the same bytes.  The data then follows in that
 * order: safetensors_out_order()[k] is the index of the k-th tensor. */
typedef struct SafetensorsOut SafetensorsOut;

/* Metadata SAFETENSORS_HASH = SAFETENSORS_NO_HASH gets the XXH3-64 of the whole file, with those
 * zeros in its place. */
#define SAFETENSORS_HASH "xxh3"
#define SAFETENSORS_NO_HASH "0000000000000000"

int safetensors_out_open(SafetensorsOut **out, const char *path, const CkTensor *tensor, int n,
                         const StMeta *meta, int n_meta, Err *e);
const int *safetensors_out_order(const SafetensorsOut *o);
int safetensors_out_write(SafetensorsOut *o, const void *data, size_t bytes, Err *e);
/* frees o; TGC_FAIL when data is missing */
int safetensors_out_commit(SafetensorsOut *o, Err *e);
void safetensors_out_abort(SafetensorsOut *o); /* NULL is allowed */

#endif
