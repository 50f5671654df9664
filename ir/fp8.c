/* fp8.c: cached keys and values of 8 bits: the format.
 *
 * The D elements of one head of one token are e4m3 (4 bits of exponent, 3 of fraction, at most 448)
 * times one power of two.  It is the smallest for which all of them fit, but not below FP8_LEAST.
 * A power of two rounds nothing, so bf16, f16 and float32 compute with the stored value itself.
 * Rows are independent: a token's bits depend on no other token.
 *
 * In memory a token is K heads of D codes, then K exponents (+ 127; 255: something was not finite),
 * padded to a multiple of 16 bytes. */
#include "ir.h"
#include <math.h>

int64_t fp8_row_bytes(int64_t K, int64_t D) { return (K * D + K + 15) / 16 * 16; }

void fp8_round(double *v, int64_t n)
{
        double most = 0;
        int top;
        for (int64_t i = 0; i < n; i++)
                most = isfinite(v[i]) ? fmax(most, fabs(v[i])) : INFINITY;
        if (!isfinite(most)) {
                for (int64_t i = 0; i < n; i++)
                        v[i] = NAN;
                return;
        }
        int shift = frexp(most, &top) <= 0.875 ? top - 9 : top - 8;
        if (most == 0 || shift < FP8_LEAST)
                shift = FP8_LEAST;
        for (int64_t i = 0; i < n; i++) {
                int exp;
                frexp(v[i], &exp);
                exp = exp - 4 < shift - 9 ? shift - 9 : exp - 4;
                v[i] = ldexp(nearbyint(ldexp(v[i], -exp)), exp);
        }
}
