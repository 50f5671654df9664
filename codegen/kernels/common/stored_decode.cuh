/* stored_decode.cuh: weights in blocks, decoded into memory, for kernels that read no blocks.
 *
 *      stored_decode_task<S, T, THREADS>(to, p, n, tile)     the first n values at p, n a multiple
 *                                                            of 32,
 *              as elements of T.  p: 4-byte aligned.  4 * ceil(n / 256) threads in all.
 *
 * Four threads share 256 values, each a quarter of every 32: neighbouring threads read and write
 * neighbouring bytes. */
#ifndef TGC_STORED_DECODE_CUH
#define TGC_STORED_DECODE_CUH

#include "stored_codes.cuh"

template <class S, class T, int THREADS>
TGC_DEV void stored_decode_task(T *to, const unsigned char *p, long n, int tile)
{
        typedef typename CodesOf<S>::Type C;
        const long i = ((long)tile * THREADS + threadIdx.x) / 4 * 256;
        const int t = threadIdx.x & 3;
        if (i >= n)
                return;
        p += i / S::VALUES * S::BYTES;
        TGC_ACCESS(p, 1);
        const typename C::Head head = C::head(p);
        typename C::Raw raw;
#pragma unroll
        for (int c = 0; c < 8; c++) {
                float v[8];
                Codes y;
                if (i + c * 32 >= n)
                        break;
                if (c % C::SHARE == 0)
                        raw = C::template fetch<CODES_RUN>(p, c, t);
                C::template codes<CODES_RUN>(y, head, raw, p, c, t);
#pragma unroll
                for (int s = 0; s < 2; s++) {
                        float part[4];
                        codes_values<C>(part, y, s);
#pragma unroll
                        for (int j = 0; j < 4; j++)
                                v[s * 4 + j] = part[j];
                }
                store<8>(to + i + c * 32 + t * 8, v);
        }
}

#endif
