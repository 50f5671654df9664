/* cpu_stored.h: dot products of block-quantised rows of weights (TGC_STORED, cpu_tgc.h) with one
 * row of x.  32 weights are decoded into registers, or at worst L1, and multiplied there.
 * Products and sums are float32, in an order that depends only on K and the vector width.
 *
 * Included by cpu_gemv.h if the source has such weights. */
#ifndef TGC_CPU_STORED_H
#define TGC_CPU_STORED_H

#include "cpu_gemm.h"

#if defined TGC_X86 && defined __FMA__
#include "cpu_stored_x86.h"
#define QUANT_OF(decode) QUANT_##decode
#else
#define QUANT_OR(name, decode, arguments)
#define QUANT_OF(decode) 0
#define quant_x(x, K, room) (void)0
#endif

enum { STORED_VECS = DECODE_CHUNK / TGC_VEC };

TGC_INLINE void stored_step(Vec *s, const float *w, const float *x)
{
#pragma GCC unroll 8
        for (int v = 0; v < STORED_VECS; v++)
                s[v] = vec_load(w + v * TGC_VEC) * vec_load(x + v * TGC_VEC) + s[v];
}

TGC_INLINE float stored_sum(Vec *s)
{
#pragma GCC unroll 8
        for (int v = 1; v < STORED_VECS; v++)
                s[0] += s[v];
        return vec_sum(s[0]);
}

/* dots_TYPE: y[j] = sum_k x[k] w[at + j*ld + k], j < N. */
#define X(name, values, bytes, decode)                                                         \
        TGC_NOINLINE TGC_UNROLLED void dots_##name(const void *w, long at, long ld, long N,    \
                                                   long K, const float *x, float *y)           \
        {                                                                                      \
                for (long j = 0; j < N; j++) {                                                 \
                        const unsigned char *row = at_##name(w, at + j * ld);                  \
                        Vec s[STORED_VECS];                                                    \
                        for (int v = 0; v < STORED_VECS; v++)                                  \
                                s[v] = vec_all(0.f);                                           \
                        for (long k = 0; k < K; k += (values), row += (bytes))                 \
                                _Pragma("GCC unroll 8") for (int c = 0;                        \
                                                             c < (values) / DECODE_CHUNK; c++) \
                                {                                                              \
                                        float chunk[DECODE_CHUNK];                             \
                                        chunk_##decode(chunk, row, c);                         \
                                        stored_step(s, chunk, x + k + c * DECODE_CHUNK);       \
                                }                                                              \
                        y[j] = stored_sum(s);                                                  \
                }                                                                              \
        }
TGC_STORED(X)
#undef X

/* Prepares x for stored_dots with weights of type ty; room: 22 K / 32 + 16 floats. */
TGC_INLINE void stored_rounds(int ty, const float *x, long K, float *room)
{
        switch (ty) {
#define X(name, values, bytes, decode)       \
        case TY_##name:                      \
                if (QUANT_OF(decode))        \
                        quant_x(x, K, room); \
                break;
                TGC_STORED(X)
#undef X
        }
        (void)x, (void)K, (void)room;
}

TGC_INLINE void stored_dots(int ty, const void *w, long at, long ld, long N, long K, const float *x,
                            float *room, float *y)
{
        switch (ty) {
#define X(name, values, bytes, decode)                                                            \
        case TY_##name:                                                                           \
                QUANT_OR(name, decode,                                                            \
                         ((const unsigned char *)at_##name(w, at), ld / (values) * (bytes), N, K, \
                          x, room, y))                                                            \
                dots_##name(w, at, ld, N, K, x, y);                                               \
                break;
                TGC_STORED(X)
#undef X
        }
        (void)room;
}

#endif
