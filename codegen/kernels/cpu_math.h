/* cpu_math.h: elementary functions that a compiler vectorises, and the random
 * words of dropout and sampling.
 *
 * Branch-free polynomials on scalars: a plain loop around them becomes vector
 * code (gcc's libm calls do not).  Errors are within 2 ulp of the true value over
 * the whole range, except where a comment says otherwise; NaN gives NaN, overflow
 * gives inf, underflow gives 0 or a denormal. */
#ifndef TGC_CPU_MATH_H
#define TGC_CPU_MATH_H

#include "tgc.h"

TGC_INLINE float fast_expf(float x);
TGC_INLINE float fast_logf(float x);
TGC_INLINE float fast_tanhf(float x);
TGC_INLINE float fast_erff(float x);
TGC_INLINE float fast_sigmoidf(float x);        /* 1 / (1 + exp(-x)) */
TGC_INLINE float fast_sinf(float x);            /* |x| up to 1e5 */
TGC_INLINE float fast_cosf(float x);

/* Philox4x32-10: four words from counter c and key (k0, k1), in place. */
TGC_INLINE void philox(uint32_t c[4], uint32_t k0, uint32_t k1);

/* Dropout of element i of tensor id, as in tgc.cuh. */
TGC_INLINE float dropout(float x, float p, uint32_t id, uint64_t i, const Rt *rt);
/* The same for n neighbouring elements, in place. */
TGC_INLINE void dropout_n(float *v, int n, float p, uint32_t id, uint64_t i, const Rt *rt);

#endif
