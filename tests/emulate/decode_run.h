/* decode_run.h: the values of weights in blocks, decoded chunk after chunk, for tests of products:
 * 64 threads for each 2,048 of them. */
#ifndef TGC_TEST_DECODE_RUN_H
#define TGC_TEST_DECODE_RUN_H

template <class S>
struct DecodeRun {
        const unsigned char *w;
        float *to;
        long n;
        __device__ void operator()(int tile, char *) const
        {
                const long i = ((long)tile * 64 + threadIdx.x) * 32;
                float v[32];
                if (i >= n)
                        return;
                S::chunk(v, w, i);
                for (int j = 0; j < 32; j++) {
                        to[i + j] = v[j];
                }
        }
};

#endif
