/* fp8.c: cached keys and values of 8 bits: the format; and activations of 8 bits.
 *
 * Of a cache: the D elements of one head of one token are e4m3 (4 bits of exponent, 3 of fraction,
 * at most 448) times one power of two.  It is the smallest for which all of them fit, but not below
 * FP8_LEAST.  A power of two rounds nothing, so bf16, f16 and float32 compute with the stored value
 * itself.  Rows are independent: a token's bits depend on no other token.
 *
 * In memory a token is K heads of D codes, then K exponents (+ 127; 255: something was not finite),
 * padded to a multiple of 16 bytes.
 *
 * Of an activation (--act fp8): e4m3 times a scale, the largest / 448 in float32, as
 * compressed-tensors and DeepSeek have it.  The scale is no less than the least normal float32. */
#include "ir.h"
#include <math.h>

int64_t fp8_row_bytes(int64_t K, int64_t D) { return (K * D + K + 15) / 16 * 16; }

/* The largest of them; INFINITY: one is not finite. */
static double largest(const double *v, int64_t n)
{
        double most = 0;
        for (int64_t i = 0; i < n; i++)
                most = isfinite(v[i]) ? fmax(most, fabs(v[i])) : INFINITY;
        return most;
}

/* To 4 bits of fraction, not below 2^least; nearest, ties to even. */
static double to_e4m3(double x, int least)
{
        int exp;
        frexp(x, &exp);
        exp = exp - 4 < least ? least : exp - 4;
        return ldexp(nearbyint(ldexp(x, -exp)), exp);
}

static void not_finite(double *v, int64_t n)
{
        for (int64_t i = 0; i < n; i++)
                v[i] = NAN;
}

void fp8_round(double *v, int64_t n)
{
        const double most = largest(v, n);
        int top;
        if (!isfinite(most)) {
                not_finite(v, n);
                return;
        }
        int shift = frexp(most, &top) <= 0.875 ? top - 9 : top - 8;
        if (most == 0 || shift < FP8_LEAST)
                shift = FP8_LEAST;
        for (int64_t i = 0; i < n; i++)
                v[i] = to_e4m3(v[i], shift - 9);
}

void fp8_round_scaled(double *v, int64_t n)
{
        const double most = largest(v, n);
        if (!isfinite(most)) {
                not_finite(v, n);
                return;
        }
        const double scale = fmax((float)(most / 448), 0x1p-126);
        for (int64_t i = 0; i < n; i++)
                v[i] = to_e4m3(v[i] / scale, -9) * scale;
}
