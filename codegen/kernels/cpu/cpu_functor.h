/* cpu_functor.h: functions that generated prologues and epilogues call; the twin of functor.cuh. */
#ifndef TGC_CPU_FUNCTOR_H
#define TGC_CPU_FUNCTOR_H

#include "cpu_math.h"

/* A loop's iterations are independent, although pointers might alias. */
#if defined __clang__
#define TGC_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TGC_IVDEP _Pragma("GCC ivdep")
#endif

#define expf fast_expf
#define logf fast_logf
#define tanhf fast_tanhf
#define erff fast_erff
#define sinf fast_sinf
#define cosf fast_cosf

/* Used by text that codegen/ops/loss.c emits. */
TGC_INLINE void accumulate_n(float *p, const float *v, int n, int add)
{
        if (add)
                for (int j = 0; j < n; j++)
                        p[j] += v[j];
        else
                for (int j = 0; j < n; j++)
                        p[j] = v[j];
}

TGC_INLINE void rope(float x0, float x1, float pos, float freq, float *y0, float *y1)
{
        float s = fast_sinf(pos * freq), c = fast_cosf(pos * freq);
        *y0 = x0 * c - x1 * s;
        *y1 = x0 * s + x1 * c;
}

/* Truncates towards zero and saturates to int's range; NaN becomes 0. */
TGC_INLINE float whole(float x)
{
        return x == x ? fminf(fmaxf(truncf(x), -2147483648.f), 2147483648.f) : 0.f;
}
TGC_INLINE float sigmoid(float x) { return 1.f / (1.f + fast_expf(-x)); }
TGC_INLINE float silu(float x) { return x / (1.f + fast_expf(-x)); }
TGC_INLINE float gelu(float x) { return 0.5f * x * (1.f + fast_erff(x * 0.7071067812f)); }

TGC_INLINE float gelu_tanh(float x)
{
        return x * sigmoid(1.5957691216f * x * (1.f + 0.044715f * x * x));
}

TGC_INLINE float gelu_tanh_slope(float x)
{
        float s = sigmoid(1.5957691216f * x * (1.f + 0.044715f * x * x));
        return s + x * s * (1.f - s) * 1.5957691216f * (1.f + 0.134145f * x * x);
}

TGC_INLINE float gelu_slope(float x)
{
        return 0.5f * (1.f + fast_erff(x * 0.7071067812f)) +
               x * 0.3989422804f * fast_expf(-0.5f * x * x);
}

TGC_INLINE float gelu_tanh_grad(float x, float dy) { return dy * gelu_tanh_slope(x); }
TGC_INLINE float gelu_grad(float x, float dy) { return dy * gelu_slope(x); }

TGC_INLINE float silu_slope(float x)
{
        float s = sigmoid(x);
        return s + x * s * (1.f - s);
}

TGC_INLINE float silu_grad(float x, float dy) { return dy * silu_slope(x); }

#endif
