/* ck_tensor.h: a tensor as it lies in a file of weights, its element types, and
 * conversions between the floating types (round to nearest, ties to even).
 *
 * These are the types of files.  They are kept apart from the compiler's own
 * (ir/), which the runtime does not know. */
#ifndef TGC_CK_TENSOR_H
#define TGC_CK_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_MAX_RANK 8

/* In the order of the table in ck_tensor.c; the names are those of safetensors. */
enum {
        CK_F64,
        CK_F32,
        CK_F16,
        CK_BF16,
        CK_I64,
        CK_I32,
        CK_I16,
        CK_I8,
        CK_U8,
        CK_BOOL,
        CK_N_DTYPES
};

/* data need not be aligned to its element: read it with memcpy or ck_convert. */
typedef struct CkTensor {
        const char *name; /* UTF-8, no control characters */
        int dtype;        /* CK_F32, ... */
        int rank;         /* 0 (a scalar) .. CK_MAX_RANK */
        int64_t dim[CK_MAX_RANK];
        const void *data;
        size_t bytes; /* == product(dim) * size of dtype */
} CkTensor;

size_t ck_dtype_size(int dtype);
const char *ck_dtype_name(int dtype); /* "BF16" */
int ck_dtype_find(const char *name);  /* also "bf16"; -1: no such type */
bool ck_dtype_is_float(int dtype);

/* Product of dim[0..rank); false when a dimension is negative or the product
 * exceeds INT64_MAX / 8, so that count * size never overflows. */
bool ck_count(int rank, const int64_t *dim, int64_t *count);

/* "[3,4]", "[]"; returns buf. */
const char *ck_shape_text(char *buf, size_t size, int rank, const int64_t *dim);

/* No control characters: names end up in messages and in lists of one name per line. */
bool ck_name_ok(const char *name);

/* n elements from src to dst, times scale; the regions do not overlap, neither
 * needs alignment.  Equal types and scale 1 are a memcpy; otherwise both must be
 * floating types, and values pass through float32.  False: no such conversion. */
bool ck_convert(void *dst, int dst_dtype, const void *src, int src_dtype, size_t n, double scale);
bool ck_can_convert(int dst_dtype, int src_dtype, double scale);

uint16_t ck_bf16_from_f32(float x);
uint16_t ck_f16_from_f32(float x);
float ck_f32_from_bf16(uint16_t x);
float ck_f32_from_f16(uint16_t x);

#endif
