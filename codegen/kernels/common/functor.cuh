/* functor.cuh: functions that generated prologues and epilogues call. */
#ifndef TGC_FUNCTOR_CUH
#define TGC_FUNCTOR_CUH

#include "tgc.cuh"
#include "epilogue_protocol.cuh" /* Straight, in text of epilogues */
#include "ptx.cuh"

/* p = v, or p += v if `add`: gradients of several micro-steps, or of several uses of a
 * parameter. */
template <int V>
TGC_DEV void accumulate(float *p, float (&v)[V], bool add)
{
        if (add) {
                float old[V];
                load<V>(old, p);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] += old[j];
        }
        store<V>(p, v);
}

/* The same; `sum`, the value at p, was read early. */
template <int V>
TGC_DEV void accumulate(float *p, float (&v)[V], bool add, const Raw<V, float> &sum)
{
        if (add) {
                float old[V];
                sum.template floats<0, 1>(old);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] += old[j];
        }
        store<V>(p, v);
}

TGC_DEV void accumulate(float *p, float v, bool add) { *p = add ? *p + v : v; }

/* Reads memory that no kernel of the program writes, by the read-only cache. */
template <class T>
TGC_DEV T fixed(const T *p)
{
        return __ldg(p);
}

/* Sine and cosine for rotary embedding.  For 16-bit storage: the special function unit, accurate
 * to 1e-6 on one turn, after whole turns are subtracted in two steps.  (sincosf for large x would
 * be inlined at every use, and x, a rounded product, is already less accurate.) */
TGC_DEV void sine_cosine(float x, float *s, float *c)
{
#if TGC_FAST_MATH
        const float turns = rintf(x * 0.1591549431f);
        __sincosf(fmaf(turns, -0.0019353072f, fmaf(turns, -6.28125f, x)), s, c);
#else
        sincosf(x, s, c);
#endif
}

/* Rotate a pair by pos * freq (negative pos: back). */
TGC_DEV void rope(float x0, float x1, float pos, float freq, float *y0, float *y1)
{
        float s, c;
        sine_cosine(pos * freq, &s, &c);
        *y0 = x0 * c - x1 * s;
        *y1 = x0 * s + x1 * c;
}

/* Kernels on 16-bit storage use the special function unit: about 2 ulp, subnormals flushed to 0.
 * Kernels on float32 are accurate to about 1 ulp. */
#if TGC_FAST_MATH
TGC_DEV float epilogue_exp(float x) { return fast_exp2(x * 1.4426950409f); }
TGC_DEV float epilogue_div(float x, float y) { return x * fast_rcp(y); }
#else
TGC_DEV float epilogue_exp(float x) { return expf(x); }
TGC_DEV float epilogue_div(float x, float y) { return x / y; }
#endif

/* Truncates towards zero and saturates to int's range; NaN becomes 0. */
TGC_DEV float whole(float x)
{
        return x == x ? fminf(fmaxf(truncf(x), -2147483648.f), 2147483648.f) : 0.f;
}
TGC_DEV float sigmoid(float x) { return epilogue_div(1.f, 1.f + epilogue_exp(-x)); }
TGC_DEV float silu(float x) { return epilogue_div(x, 1.f + epilogue_exp(-x)); }

/* The normal distribution function at x; e = exp(-x^2 / 2).  For 16-bit storage: Abramowitz and
 * Stegun 7.1.26, within 8e-8; it uses e, which the slope needs too. */
TGC_DEV float normal_below(float x, float e)
{
#if TGC_FAST_MATH
        const float t = fast_rcp(fmaf(fabsf(x), 0.2316418882f, 1.f));
        float p = fmaf(t, 0.5307027150f, -0.7265760135f);
        p = fmaf(fmaf(fmaf(p, t, 0.7107068705f), t, -0.1422483680f), t, 0.1274147960f);
        const float above = p * t * e; /* of |x| */
        return x < 0 ? above : 1.f - above;
#else
        return 0.5f + 0.5f * erff(x * 0.7071067812f);
#endif
}

TGC_DEV float gelu(float x) { return x * normal_below(x, epilogue_exp(-0.5f * x * x)); }

/* sigmoid(2u), the factor of x in GELU's tanh form x/2 (1 + tanh(u)); u = sqrt(2/pi) (x + 0.044715
 * x^3), q = x^2. */
TGC_DEV float gelu_gate(float x, float q)
{
#if TGC_FAST_MATH
        return fast_rcp(1.f + fast_exp2(x * fmaf(q, -0.1029432397f, -2.3022081999f)));
#else
        return sigmoid(1.5957691216f * x * (1.f + 0.044715f * q));
#endif
}

TGC_DEV float gelu_tanh(float x) { return x * gelu_gate(x, x * x); }

/* Derivative of gelu_tanh.  y is gelu_tanh(x), usually computed nearby, so the compiler shares
 * it. */
TGC_DEV float gelu_tanh_slope(float x)
{
        const float q = x * x, s = gelu_gate(x, q), y = x * s;
        return fmaf(fmaf(-y, s, y), fmaf(q, 0.2140644488f, 1.5957691216f), s);
}

TGC_DEV float gelu_slope(float x)
{
        const float e = epilogue_exp(-0.5f * x * x);
        return normal_below(x, e) + x * 0.3989422804f * e;
}

/* exp of a logit relative to shift, bounded: see cross_entropy_exp.cuh. */
enum { CE_MOST = 100 };
TGC_DEV float ce_exp(float v, float shift)
{
        return fast_exp2(min_nan(fmaf(v, 1.4426950408889634f, -shift), (float)CE_MOST));
}

TGC_DEV float gelu_tanh_grad(float x, float dy) { return dy * gelu_tanh_slope(x); }
TGC_DEV float gelu_grad(float x, float dy) { return dy * gelu_slope(x); }

/* Derivative of silu.  y is silu(x), usually computed nearby. */
TGC_DEV float silu_slope(float x)
{
        const float s = sigmoid(x), y = x * s;
        return fmaf(-y, s, s + y);
}

TGC_DEV float silu_grad(float x, float dy) { return dy * silu_slope(x); }

#endif
