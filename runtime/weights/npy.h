/* npy.h: NumPy's array files, versions 1 and 2, C order, little-endian.  Reads int64 and float32,
 * writes float32. */
#ifndef TGC_NPY_H
#define TGC_NPY_H

#include "ck_tensor.h"
#include "../util/err.h"
#include "../util/file.h"

typedef struct Npy {
        int dtype; /* CK_I64 or CK_F32 */
        int rank;
        int64_t dim[CK_MAX_RANK];
        int64_t count;
        union {
                const void *data;
                const int64_t *i64;
                const float *f32;
        } u; /* aligned */
        FileMap map;
        void *copy; /* owned, when the file's data is not aligned */
} Npy;

int npy_open(Npy *a, const char *path, Err *e);
void npy_close(Npy *a); /* harmless on a zeroed Npy */

/* Streaming writer of float32; the shape is stated first and kept to. */
typedef struct NpyOut NpyOut;
int npy_out_open(NpyOut **out, const char *path, int rank, const int64_t *dim, Err *e);
int npy_out_write(NpyOut *o, const float *v, size_t n, Err *e);
int npy_out_commit(NpyOut *o, Err *e); /* frees o; TGC_FAIL when values are missing */
void npy_out_abort(NpyOut *o);         /* NULL is allowed */

#endif
