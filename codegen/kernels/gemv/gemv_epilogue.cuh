/* gemv_epilogue.cuh: what all GEMV kernels do after they have multiplied: add up the parts of K, in
 * the order of the parts, and hand neighbouring results to the epilogue.
 *
 *      epilogue_width       neighbours that one call of the epilogue takes, of N
 *      parts_sum            partial sums that lie `stride` floats apart */
#ifndef TGC_GEMV_EPILOGUE_CUH
#define TGC_GEMV_EPILOGUE_CUH

#include "tgc.cuh"

template <class Epilogue, int N>
__host__ __device__ constexpr int epilogue_width()
{
        return Epilogue::MAXV < N ? Epilogue::MAXV : Epilogue::MINV > N ? Epilogue::MINV : N;
}

/* v[j] = the sum over p of parts[first + p * stride + j]. */
template <int PARTS, int V>
TGC_DEV void parts_sum(float (&v)[V], const float *parts, int first, int stride)
{
#pragma unroll
        for (int j = 0; j < V; j++) {
                v[j] = 0.f;
#pragma unroll
                for (int p = 0; p < PARTS; p++)
                        v[j] += parts[first + p * stride + j];
        }
}

#endif
