/* stored_decode.cuh: decodes block-quantised weights to memory, for kernels that take no blocks.
 *
 *      stored_decode_task<S, T, THREADS>(to, p, n, tile)
 *              to[0..n) = the first n values of the blocks at p, as T.  n is a multiple of 32, p is
 *              4-byte aligned.  The launch has ceil(n / STORED_DECODED) warps in all.
 *
 * A warp decodes STORED_DECODED values in slices of 256, 8 neighbouring values per lane, so reads
 * and writes coalesce.  All reads of a warp precede its first write, which might else delay
 * them. */
#ifndef TGC_STORED_DECODE_CUH
#define TGC_STORED_DECODE_CUH

#include "stored_codes.cuh"

enum { STORED_DECODED = 1024 }; /* values per warp */

template <class S, class T, int THREADS>
TGC_DEV void stored_decode_task(T *to, const unsigned char *p, long n, int tile)
{
        typedef typename CodesOf<S>::Type C;
        constexpr int SLICES = STORED_DECODED / 256;
        const int lane = (int)threadIdx.x & 31, c = lane >> 2, t = lane & 3;
        const long first = ((long)tile * (THREADS / 32) + ((int)threadIdx.x >> 5)) * STORED_DECODED;
        Codes y[SLICES];
        TGC_ACCESS(p, 1);
#pragma unroll
        for (int s = 0; s < SLICES; s++) {
                const long at = first + s * 256;
                if (at + c * 32 < n) {
                        const unsigned char *b = p + at / S::VALUES * S::BYTES;
                        const typename C::Head head = C::head(b);
                        const typename C::Raw raw = C::template fetch<CODES_RUN>(b, c, t);
                        C::template codes<CODES_RUN>(y[s], head, raw, b, c, t);
                }
        }
#pragma unroll
        for (int s = 0; s < SLICES; s++) {
                const long at = first + s * 256 + c * 32;
                float v[8];
                if (at >= n)
                        break;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        float part[4];
                        codes_values<C>(part, y[s], i);
#pragma unroll
                        for (int j = 0; j < 4; j++)
                                v[i * 4 + j] = part[j];
                }
                store<8>(to + at + t * 8, v);
        }
}

#endif
