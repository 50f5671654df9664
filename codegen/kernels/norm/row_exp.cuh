/* row_exp.cuh: a row's sum of exponentials in one pass, for softmax.cuh and reduce.cuh.  Each lane
 * keeps the largest value met so far, m, and a sum s; what they stand for is s * exp(m). */
#ifndef TGC_ROW_EXP_CUH
#define TGC_ROW_EXP_CUH

#include "row_part.cuh"

/* Sum of exponentials met so far, s * exp(m): add v.  m = -inf stands for "nothing
 * but -inf yet", where the reference is 0, so that a NaN still reaches s. */
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

/* The same over all lanes: afterwards each has the row's m and s. */
template <int LANES, int THREADS>
TGC_DEV void exp_join(float &m, float &s, float *red)
{
        float top = lanes_max<LANES, THREADS>(m, red);
        s = lanes_sum<LANES, THREADS>(m == -INFINITY ? s : s * expf(m - top), red);
        m = top;
}

#endif
