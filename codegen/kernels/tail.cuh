/* tail.cuh: what generated heads and tails call. */
#ifndef TGC_TAIL_CUH
#define TGC_TAIL_CUH

#include "tgc.cuh"

/* p = v, or p += v: gradients of several micro-steps, or of one parameter's several uses. */
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

TGC_DEV void accumulate(float *p, float v, bool add) { *p = add ? *p + v : v; }

/* Rotate a pair by pos * freq (negative pos: back). */
TGC_DEV void rope(float x0, float x1, float pos, float freq, float *y0, float *y1)
{
        float s, c;
        sincosf(pos * freq, &s, &c);
        *y0 = x0 * c - x1 * s;
        *y1 = x0 * s + x1 * c;
}

/* GELU's tanh form: x/2 (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3). */
TGC_DEV float gelu_tanh(float x)
{
        float u = 0.7978845608f * (x + 0.044715f * x * x * x);
        return x / (1.f + expf(-2.f * u));
}

TGC_DEV float gelu_tanh_grad(float x, float dy)
{
        float u = 0.7978845608f * (x + 0.044715f * x * x * x), s = 1.f / (1.f + expf(-2.f * u));
        return dy * (s + x * s * (1.f - s) * 1.5957691216f * (1.f + 0.134145f * x * x));
}

TGC_DEV float gelu_grad(float x, float dy)
{
        return dy * (0.5f * (1.f + erff(x * 0.7071067812f)) + x * 0.3989422804f * expf(-0.5f * x * x));
}

TGC_DEV float silu_grad(float x, float dy)
{
        float s = 1.f / (1.f + expf(-x));
        return dy * (s + x * s * (1.f - s));
}

#endif
