/* stored.cuh: reads block-quantised weights (ir/storage.def) as float32, 32 values at a time.
 *
 * The emitted source has TGC_STORED_TYPE(NAME, values, bytes, decoder) for each type that it
 * reads, which defines
 *
 *      Stored_NAME::chunk(v, p, i)     v = values i .. i+31 of the blocks at p; 32 divides i
 *
 *      load_stored<Stored_NAME>(v, p, i)     V neighbours within one chunk; V = 1: any */
#ifndef TGC_STORED_CUH
#define TGC_STORED_CUH

#include "tgc.cuh"
#include "block_decode.h"

#define TGC_STORED_TYPE(name, values, bytes, decode)                                         \
        struct Stored_##name {                                                               \
                static constexpr int VALUES = values, BYTES = bytes;                         \
                typedef struct Decoder_##decode Decoder;                                     \
                static __device__ __forceinline__ void chunk(float (&v)[DECODE_CHUNK],       \
                                                             const unsigned char *p, long i) \
                {                                                                            \
                        constexpr int CHUNKS = (values) / DECODE_CHUNK;                      \
                        p += i / (values) * (bytes);                                         \
                        TGC_ACCESS(p, 1);                                                    \
                        TGC_ACCESS(p + (bytes)-1, 1);                                        \
                        chunk_##decode(v, p, (int)(i / DECODE_CHUNK % CHUNKS));              \
                }                                                                            \
        };

template <class S, int V>
TGC_DEV void load_stored(float (&v)[V], const unsigned char *p, long i)
{
        const int from = (int)(i % DECODE_CHUNK) / V;
        float all[DECODE_CHUNK];
        S::chunk(all, p, i - i % DECODE_CHUNK);
#pragma unroll
        for (int g = 0; g < DECODE_CHUNK / V; g++)
                if (g == from) {
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[j] = all[g * V + j];
                }
}

#endif
