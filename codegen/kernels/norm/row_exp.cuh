/* row_exp.cuh: sum of a row's exponentials in one pass (online softmax), for softmax.cuh and
 * reduce.cuh.  Each lane keeps the running maximum m and a sum s, which stand for s * exp(m). */
#ifndef TGC_ROW_EXP_CUH
#define TGC_ROW_EXP_CUH

#include "row_part.cuh"

/* The reference exponent: m, or 0 while m = -inf (nothing but -inf so far), so that a NaN still
 * reaches s. */
TGC_DEV float exp_ref(float m) { return m == -INFINITY ? 0.f : m; }

template <int V>
TGC_DEV void exp_add(float &m, float &s, const float (&v)[V])
{
        float top = m;
#pragma unroll
        for (int j = 0; j < V; j++)
                top = fmaxf(top, v[j]);
        if (top > m) {
                s *= expf(m - top);
                m = top;
        }
#pragma unroll
        for (int j = 0; j < V; j++)
                s += expf(v[j] - exp_ref(m));
}

/* Merges all lanes of a row; each gets the row's m and s. */
template <int LANES, int THREADS>
TGC_DEV void exp_join(float &m, float &s, float *red)
{
        float top = lanes_max<LANES, THREADS>(m, red);
        s = lanes_sum<LANES, THREADS>(m == -INFINITY ? s : s * expf(m - top), red);
        m = top;
}

#endif
