/* packed.h: a quantised tensor that several tensors make up: codes of a few bits, their scales,
 * their zero points.
 *
 *      value(r,c) = (code(r,c) - zero(r,g)) * scale(r,g),      g the group of column c
 *
 * in float32, as the packages that define the formats compute it, up to rounding to 16 bits.
 * quant_folder.c makes a Packed from a Hugging Face folder.  On import it is decoded, one at a
 * time, or it becomes blocks of storage.def.  Its parts lie in mapped files, which must outlive
 * it. */
#ifndef TGC_PACKED_H
#define TGC_PACKED_H

#include "ck_tensor.h"
#include "../util/err.h"

/* A matrix of small numbers. */
typedef struct Codes {
        enum {
                CODES_NONE,
                CODES_ROWS,    /* i32 (rows, words): value c of a row in its bits from c*bits on */
                CODES_COLUMNS, /* i32 (words, rows): the same, word w of row r at [w][r] */
                CODES_AWQ,     /* i32 (cols, rows/8): row 8j + k in bits 4*order[k] of [c][j] */
                CODES_I8,      /* i8 (rows, cols) */
                CODES_F8,      /* E4M3 (rows, cols) */
                CODES_LOW,     /* a value of `table` by 4 bits; the low half of a byte is first */
                CODES_HIGH     /* the same; the high half is first */
        } kind;
        int bits, less; /* `less` is subtracted from what ROWS and COLUMNS have */
        const uint8_t *data;
        int64_t rows, cols;
        float table[16];
} Codes;

typedef struct Packed {
        const char *file; /* for messages */
        Codes code;
        int64_t count; /* of values; the last row of a flat tensor may be short */
        Codes zero;    /* as scale */
        bool zero_across;
        CkTensor scale;             /* (scale_rows, groups), or (groups, scale_rows) */
        bool scale_across;          /* it is (groups, scale_rows) */
        int64_t scale_rows, groups; /* of a scale: block_rows rows, `group` columns */
        int64_t block_rows, group;
        const uint8_t *group_of; /* i32 (cols): the group of each column; NULL: c / group */
        float times;             /* every value once more; 0: no */
        float divide;            /* every scale by it; 0: no */
        /* scale is u8, and a scale is map[u8] * nested[i / nested_block] + offset */
        const uint8_t *map, *nested;
        int64_t nested_block;
        float offset;
        int64_t batch; /* rows are batch times rows / batch; 0: 1 */
        bool swap;     /* each of the batch is wanted transposed */
} Packed;

/* All t->bytes of it, t->dtype: F32, BF16 where that is exact, or the blocks of packed_blocks.
 * TGC_BAD_FILE: a scale is not finite, a group is none. */
int ck_unpack(const CkTensor *t, void *to, Err *e);

/* ---- packed_blocks.c ---- */

/* The type of blocks that holds the same values in rows of `cols`; 0: none does. */
int packed_blocks(const Packed *p, int64_t cols);
/* p->code, read as what blocks have: indices of 4 bits, or bytes as they are. */
Codes packed_block_codes(const Packed *p);
/* n codes of one row, as packed_block_codes has them, with the row's scales and zero points. */
void packed_block_row(const Packed *p, int dtype, const float *scale, const float *zero,
                      const float *code, int64_t n, uint8_t *to);

#endif
