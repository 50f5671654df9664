/* attention_softmax.cuh: softmax in powers of two.
 *
 * exp(score) = 2^(BASE2 x) for a score x of AttHead (attention_mask.cuh).  The state of a row's
 * online softmax is
 *
 *      top      the largest BASE2 x so far (-inf before the first key), or a little below
 *      sum      sum of 2^(BASE2 x - top)
 *      o        sum of 2^(BASE2 x - top) v
 *
 * When top rises, sum and o are multiplied by 2^(old - new).  At the end y = o / sum and
 * lse = (top + log2(sum)) ATT_LN2. */
#ifndef TGC_ATTENTION_SOFTMAX_CUH
#define TGC_ATTENTION_SOFTMAX_CUH

#include "tgc.cuh"
#include "ptx.cuh"

#define ATT_LOG2E 1.4426950408889634f
#define ATT_LN2 0.6931471805599453f

/* 2^x: accurate for float, the hardware's approximation for 16-bit types. */
template <class E>
TGC_DEV float att_exp2(float x)
{
        return sizeof(E) == 4 ? exp2f(x) : fast_exp2(x);
}

#endif
