/* block_search.h: searches the codes and scales of a block for the least weighted squared error.
 *
 * A block has `subs` parts of `len` values.  The weight of a value is importance * sqrt(mean of x^2
 * + x^2): large values matter more, and every value matters.  Each part starts with the best of
 * several ranges and its least-squares scale.  Then parts' scales, the block's scale and codes are
 * improved in turn, with the others fixed. */
#ifndef TGC_BLOCK_SEARCH_H
#define TGC_BLOCK_SEARCH_H

#include <stdint.h>

enum { SEARCH_MOST = 256 };

/* importance NULL: 1. */
void search_weights(float *w, const float *x, int n, const float *importance);

/* x = d * scale * q - m * min, q in 0..most, scale and min in 0..scales; d and m are halves. */
typedef struct MinBlock {
        int subs, len, most, scales;
        float d, m;
        uint8_t scale[16], min[16], q[SEARCH_MOST];
} MinBlock;
void search_min(MinBlock *b, const float *x, const float *w);

/* x = d * scale * value[q], q in 0..values-1, scale in low..high; d is a half.  low == high == 1: d
 * is the only scale. */
typedef struct ValueBlock {
        int subs, len, values, low, high;
        const int8_t *value; /* ascending */
        float d;
        int8_t scale[16];
        uint8_t q[SEARCH_MOST];
} ValueBlock;
void search_values(ValueBlock *b, const float *x, const float *w);

#endif
