/* cpu_math.h: elementary functions that a compiler vectorises, and the random
 * words of dropout and sampling.
 *
 * Branch-free polynomials on scalars: a plain loop around them becomes vector
 * code (gcc's libm calls do not).  Errors are within 3 ulp of the true value,
 * except where a comment says otherwise; NaN gives NaN, overflow gives inf,
 * underflow a denormal or 0.  The polynomials interpolate at Chebyshev nodes. */
#ifndef TGC_CPU_MATH_H
#define TGC_CPU_MATH_H

#include "cpu_tgc.h"

/* Added to a float below 2^22 it leaves the nearest integer in the low bits. */
#define ROUND_MAGIC 12582912.f /* 1.5 * 2^23 */

/* exp(x) = 2^n exp(r), |r| <= ln(2)/2; 2^n in two factors, so that denormals come out. */
TGC_INLINE float fast_expf(float x)
{
        x = x > 89.f ? 89.f : x;
        x = x < -104.f ? -104.f : x;
        float t = x * 1.44269504f + ROUND_MAGIC;
        float n = t - ROUND_MAGIC;
        float r = x - n * 0.693145752f;
        r = r - n * 1.42860677e-6f;
        float p = 1.392692661e-03f;
        p = p * r + 8.363773874e-03f;
        p = p * r + 4.166655011e-02f;
        p = p * r + 1.666657338e-01f;
        p = p * r + 0.5f;
        p = p * (r * r) + r + 1.f;
        int32_t i = (int32_t)(float_bits(t) - float_bits(ROUND_MAGIC));
        int32_t half = i >> 1;
        return p * float_of_bits((uint32_t)(half + 127) << 23) *
               float_of_bits((uint32_t)(i - half + 127) << 23);
}

/* exp(x) for x <= 0, as softmax needs it: below -87 the result is 0, never a denormal
 * (which some processors take a hundred cycles to make). */
TGC_INLINE float fast_exp_negf(float x)
{
        float t = (x < -87.f ? -87.f : x) * 1.44269504f + ROUND_MAGIC;
        float n = t - ROUND_MAGIC;
        float r = (x < -87.f ? -87.f : x) - n * 0.693145752f;
        r = r - n * 1.42860677e-6f;
        float p = 1.392692661e-03f;
        p = p * r + 8.363773874e-03f;
        p = p * r + 4.166655011e-02f;
        p = p * r + 1.666657338e-01f;
        p = p * r + 0.5f;
        p = p * (r * r) + r + 1.f;
        p *= float_of_bits((float_bits(t) - float_bits(ROUND_MAGIC) + 127) << 23);
        return x < -87.f ? 0.f : p;
}

/* log(x) = k ln(2) + log(1 + f), 1 + f in [sqrt(1/2), sqrt(2)), by the series in
 * s = f / (2 + f).  log(0) = -inf, of negatives NaN. */
TGC_INLINE float fast_logf(float x)
{
        int tiny = x < 1.17549435e-38f;
        uint32_t u = float_bits(tiny ? x * 8388608.f : x) + (0x3f800000u - 0x3f3504f3u);
        float k = (float)((int32_t)(u >> 23) - 127 - (tiny ? 23 : 0));
        float f = float_of_bits((u & 0x007fffffu) + 0x3f3504f3u) - 1.f;
        float s = f / (2.f + f), z = s * s, h = 0.5f * f * f;
        float p = 2.335380498e-01f;
        p = p * z + 2.854995429e-01f;
        p = p * z + 4.000012956e-01f;
        p = p * z + 6.666666654e-01f;
        float y = k * 0.693145752f - ((h - (s * (h + p * z) + k * 1.42860677e-6f)) - f);
        y = x == INFINITY ? x : y;
        y = x == 0.f ? -INFINITY : y;
        return x >= 0.f ? y : NAN;
}

TGC_INLINE float fast_tanhf(float x)
{
        float a = fabsf(x), z = x * x;
        float p = -6.269119728e-03f;
        p = p * z + 2.111095906e-02f;
        p = p * z - 5.387394885e-02f;
        p = p * z + 1.333291537e-01f;
        p = p * z - 3.333333033e-01f;
        float small = x + x * (z * p);
        float large = copysignf(1.f - 2.f / (fast_expf(2.f * a) + 1.f), x);
        return a < 0.6f ? small : large;
}

/* Below 0.92 an odd polynomial, above 1 - exp(polynomial for log erfc). */
TGC_INLINE float fast_erff(float x)
{
        float a = fabsf(x), z = x * x;
        float p = 8.387074550e-05f;
        p = p * z - 8.147081116e-04f;
        p = p * z + 5.201456326e-03f;
        p = p * z - 2.685958812e-02f;
        p = p * z + 1.128369935e-01f;
        p = p * z - 3.761263402e-01f;
        float small = x * (p * z + 1.128379167f);
        float b = a > 4.f ? 4.f : a;
        float q = 1.643063655e-06f;
        q = q * b - 4.616385862e-05f;
        q = q * b + 5.975857702e-04f;
        q = q * b - 4.762625832e-03f;
        q = q * b + 2.642763715e-02f;
        q = q * b - 1.100871665e-01f;
        q = q * b - 6.318239181e-01f;
        q = q * b - 1.130231055e+00f;
        q = q * b + 3.185396622e-04f;
        float large = copysignf(1.f - fast_expf(q), x);
        return a < 0.92f ? small : large;
}

/* 1 / (1 + exp(-x)); below -88 the result is 0. */
TGC_INLINE float fast_sigmoidf(float x) { return 1.f / (1.f + fast_expf(-x)); }

/* Sine of x + quarters * pi/2, for |x| up to 2^30; the reduction is in double.
 * Near a zero of the function the error is 1e-7 absolute, not relative. */
TGC_INLINE float sin_quarters(float x, uint32_t quarters)
{
        double t = (double)x * 0.63661977236758134 + 6755399441055744.0; /* 1.5 * 2^52 */
        union {
                double d;
                uint64_t u;
        } c = { t };
        double n = t - 6755399441055744.0;
        float r = (float)((double)x - n * 1.5707963267948966);
        uint32_t q = (uint32_t)c.u + quarters;
        float z = r * r;
        float s = r + r * (z * ((2.724992492e-06f * z - 1.984008672e-04f) * z * z +
                                8.333331875e-03f * z - 1.666666666e-01f));
        float k = 1.f - 0.5f * z +
                  z * z * ((2.454794189e-05f * z - 1.388830303e-03f) * z + 4.166666466e-02f);
        float y = q & 1 ? k : s;
        return q & 2 ? -y : y;
}

TGC_INLINE float fast_sinf(float x) { return sin_quarters(x, 0); }
TGC_INLINE float fast_cosf(float x) { return sin_quarters(x, 1); }

/* Philox4x32-10 (Salmon et al., SC 2011): four words from counter c and key
 * (k0, k1), in place. */
TGC_INLINE void philox(uint32_t c[4], uint32_t k0, uint32_t k1)
{
        for (int r = 0; r < 10; r++) {
                uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
                c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
                c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
                c[1] = (uint32_t)b;
                c[3] = (uint32_t)a;
                k0 += 0x9E3779B9u;
                k1 += 0xBB67AE85u;
        }
}

/* Dropout of element i of tensor id: which word of which counter is tgc.cuh's choice. */
TGC_INLINE float dropout(float x, float p, uint32_t id, uint64_t i, const Rt *rt)
{
        uint32_t c[4] = { (uint32_t)(i >> 2), (uint32_t)(i >> 34), id,
                          (uint32_t)(rt->step * rt->n_micro + rt->micro) };
        philox(c, rt->seed[0], rt->seed[1]);
        return (float)(c[i & 3] >> 8) * (1.f / 16777216.f) < p ? 0.f : x * (1.f / (1.f - p));
}

/* n neighbouring elements in place, four to a Philox call. */
TGC_INLINE void dropout_n(float *v, int n, float p, uint32_t id, uint64_t i, const Rt *rt)
{
        float keep = 1.f / (1.f - p);
        for (int j = 0; j < n;) {
                uint64_t e = i + (uint64_t)j;
                uint32_t c[4] = { (uint32_t)(e >> 2), (uint32_t)(e >> 34), id,
                                  (uint32_t)(rt->step * rt->n_micro + rt->micro) };
                philox(c, rt->seed[0], rt->seed[1]);
                for (int w = (int)(e & 3); w < 4 && j < n; w++, j++)
                        v[j] = (float)(c[w] >> 8) * (1.f / 16777216.f) < p ? 0.f : v[j] * keep;
        }
}

#endif
