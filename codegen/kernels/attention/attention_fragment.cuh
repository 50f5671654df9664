/* attention_fragment.cuh: operations on score and output accumulators, in registers, shared by all
 * attention kernels.
 *
 * mma.sync (m16n8k16, m16n8k8) and wgmma give a warp's 16 rows the same layout.  With g = lane / 4
 * and t = lane % 4, block n of 8 columns is
 *
 *      x[4n], x[4n + 1]            row g,      columns 8n + 2t and 8n + 2t + 1
 *      x[4n + 2], x[4n + 3]        row g + 8,  the same columns
 *
 * So row i of a lane (i = 0, 1) is g + 8i, and element e belongs to row e / 2 % 2.  The four lanes
 * of a quad share their rows (quad_sum, quad_max in tgc.cuh).  wgmma's accumulator is float[4 NT];
 * mma.sync's is float[MT][NT][4], which att_flat views as MT of those.
 *
 *      att_fill            x = v
 *      att_scale           x *= f; att_scale_row, att_scale_rows: row i; row i by f[i]
 *      att_row_max         maximum of row i in this lane
 *      att_row_exp         row i = 2^(base2 x - zero); returns its sum in this lane
 *      att_row_delta       x *= y - delta[i]: dS from P and dP
 *      att_pack            x as A fragments of the next mma */
#ifndef TGC_ATTENTION_FRAGMENT_CUH
#define TGC_ATTENTION_FRAGMENT_CUH

#include "ptx.cuh"

/* 16 rows of an mma.sync accumulator, in wgmma's form. */
template <int NT>
TGC_DEV float (&att_flat(float (&x)[NT][4]))[NT * 4]
{
        return reinterpret_cast<float(&)[NT * 4]>(x);
}

template <int N>
TGC_DEV void att_fill(float (&x)[N], float v)
{
#pragma unroll
        for (int e = 0; e < N; e++)
                x[e] = v;
}
template <int M, int N>
TGC_DEV void att_fill(float (&x)[M][N], float v)
{
#pragma unroll
        for (int m = 0; m < M; m++)
                att_fill(x[m], v);
}
template <int MT, int NT>
TGC_DEV void att_fill(float (&x)[MT][NT][4], float v)
{
#pragma unroll
        for (int m = 0; m < MT; m++)
                att_fill(x[m], v);
}

template <int N>
TGC_DEV void att_scale(float (&x)[N], float f)
{
#pragma unroll
        for (int e = 0; e < N; e++)
                x[e] *= f;
}

template <int N>
TGC_DEV void att_scale_row(float (&x)[N], int i, float f)
{
#pragma unroll
        for (int n = 0; n < N / 4; n++) {
                x[4 * n + 2 * i] *= f;
                x[4 * n + 2 * i + 1] *= f;
        }
}

template <int N>
TGC_DEV void att_scale_rows(float (&x)[N], const float (&f)[2])
{
#pragma unroll
        for (int e = 0; e < N; e++)
                x[e] *= f[e >> 1 & 1];
}

/* A row's maximum and sum have one of two orders.  PAIRS: one chain that adds neighbours first
 * (mma.sync kernels).  Else two independent chains, even and odd columns.  The order decides the
 * last bit of the sum, and ptxas's code. */
template <bool PAIRS = false, int N>
TGC_DEV float att_row_max(const float (&x)[N], int i)
{
        float even = x[2 * i], odd = x[2 * i + 1];
        if (PAIRS)
                even = fmaxf(even, odd);
#pragma unroll
        for (int n = 1; n < N / 4; n++)
                if (PAIRS) {
                        even = fmaxf(even, fmaxf(x[4 * n + 2 * i], x[4 * n + 2 * i + 1]));
                } else {
                        even = fmaxf(even, x[4 * n + 2 * i]);
                        odd = fmaxf(odd, x[4 * n + 2 * i + 1]);
                }
        return PAIRS ? even : fmaxf(even, odd);
}

/* zero: the exponent subtracted from all scores of the row. */
template <bool PAIRS = false, int N>
TGC_DEV float att_row_exp(float (&x)[N], int i, float base2, float zero)
{
        float even = 0.f, odd = 0.f;
#pragma unroll
        for (int n = 0; n < N / 4; n++) {
                float &a = x[4 * n + 2 * i], &b = x[4 * n + 2 * i + 1];
                a = fast_exp2(a * base2 - zero);
                b = fast_exp2(b * base2 - zero);
                if (PAIRS) {
                        even += a + b;
                } else {
                        even += a;
                        odd += b;
                }
        }
        return PAIRS ? even : even + odd;
}

template <int N>
TGC_DEV void att_row_delta(float (&x)[N], const float (&y)[N], const float (&delta)[2])
{
#pragma unroll
        for (int e = 0; e < N; e++)
                x[e] *= y[e] - delta[e >> 1 & 1];
}

/* Two neighbouring blocks of 8 columns are one A fragment of 16 columns. */
template <class E, int N>
TGC_DEV void att_pack(unsigned (&p)[N / 8][4], const float (&x)[N])
{
#pragma unroll
        for (int i = 0; i < N / 2; i++)
                p[i / 4][i % 4] = pack2<E>(x[2 * i], x[2 * i + 1]);
}

#endif
