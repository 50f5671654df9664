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

enum {
#define STORAGE(e, name, gguf, values, bytes, is_float, decode) CK_##e,
#include "../../ir/storage.def"
        CK_N_DTYPES
};

/* data need not be aligned to its element: read it with memcpy or ck_convert.  Where packed is not
 * NULL other tensors make it (packed.h): it has no data, ck_unpack makes its bytes; those of
 * `blocks` as well, where that is not 0 (ck_as_blocks). */
typedef struct CkTensor {
        const char *name; /* UTF-8, no control characters */
        int dtype;        /* CK_F32, ... */
        int rank;         /* 0 (a scalar) .. CK_MAX_RANK */
        int64_t dim[CK_MAX_RANK];
        const void *data;
        size_t bytes; /* == product(dim) / values of a block * its bytes */
        const struct Packed *packed;
        int blocks;  /* the type of blocks that could hold the same values */
        bool may_go; /* a model that has no place for it loses nothing: a bias of zeros */
} CkTensor;

/* A type has elements, each by itself, or blocks of elements: Q4_K. */
size_t ck_dtype_size(int dtype); /* of an element; 0: they come in blocks */
int ck_block_values(int dtype);  /* 1, 32, 256 */
size_t ck_block_bytes(int dtype);
const char *ck_dtype_name(int dtype); /* "BF16" */
int ck_dtype_find(const char *name);  /* of elements; also "bf16"; -1: no such type */
int ck_blocks_find(const char *name); /* of blocks that can be decoded: "Q4_0"; -1: no such type */
int ck_dtype_of_gguf(uint32_t ggml);  /* ggml's number of a type; -1: none of ours */
int ck_gguf_of_dtype(int dtype);      /* -1: GGUF has none */
bool ck_dtype_is_float(int dtype);

/* t, or what it is in blocks of `dtype`, where it can be in those. */
CkTensor ck_as_blocks(const CkTensor *t, int dtype);

/* Product of dim[0..rank); false when a dimension is negative or the product
 * exceeds INT64_MAX / 8, so that count * size never overflows. */
bool ck_count(int rank, const int64_t *dim, int64_t *count);

/* "[3,4]", "[]"; returns buf. */
const char *ck_shape_text(char *buf, size_t size, int rank, const int64_t *dim);

/* No control characters: names end up in messages and in lists of one name per line. */
bool ck_name_ok(const char *name);

/* n elements from src to dst, times scale; the regions do not overlap, neither
 * needs alignment.  Equal types and scale 1 are a memcpy; otherwise both must be
 * floating types, and values pass through float32.  Blocks are read, not made, and n is a multiple
 * of theirs.  False: no such conversion. */
bool ck_convert(void *dst, int dst_dtype, const void *src, int src_dtype, size_t n, double scale);
/* The same, then plus shift; in several threads where there is much. */
typedef struct Affine {
        double scale, shift;
} Affine;
bool ck_convert_affine(void *dst, int dst_dtype, const void *src, int src_dtype, size_t n,
                       Affine by);
bool ck_can_convert(int dst_dtype, int src_dtype, Affine by);

/* ck_blocks.c: n blocks of `dtype` to float32. */
void ck_decode(float *y, const void *blocks, int dtype, size_t n);
/* block_random.c: n blocks, the first of them number `first`, whose values have mean 0 and about
 * this standard deviation. */
void ck_random_blocks(void *out, int dtype, uint64_t first, size_t n, float std, uint64_t seed);
void ck_round_bf16(void *dst, const float *v, size_t n);

uint16_t ck_bf16_from_f32(float x);
uint16_t ck_f16_from_f32(float x);
float ck_f32_from_bf16(uint16_t x);
float ck_f32_from_f16(uint16_t x);

#endif
