/* ck_blocks.c: decodes many blocks by storage.def's decoders, and rounds to bf16.
 *
 * On x86-64 each function is compiled twice, and the processor's features choose at run time.  AVX2
 * is about twice as fast as SSE2, which every such processor has. */
#include <stddef.h>
#include <string.h>
#include "block_decode.h"
#include "ck_tensor.h"

typedef void Decoder(float *y, const uint8_t *b, size_t n);

static inline void chunk_none(float *y, const uint8_t *b, int c)
{
        (void)y;
        (void)b;
        (void)c;
}

/* To the nearest, ties to even; a NaN stays one, which a carry could make infinite. */
static inline void round_bf16(uint8_t *to, const float *v, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                uint32_t u;
                memcpy(&u, v + i, 4);
                const uint32_t nan = u >> 16 | 0x40, near = (u + 0x7fff + (u >> 16 & 1)) >> 16;
                const uint16_t h = (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : near);
                memcpy(to + 2 * i, &h, 2);
        }
}

/* All of it for the processors of `target`: decoders any_Q4_0 ..., table any, any_round. */
#define FOR(set, attribute)                                                      \
        static attribute void set##_round(uint8_t *to, const float *v, size_t n) \
        {                                                                        \
                round_bf16(to, v, n);                                            \
        }
#define DECODER(set, attribute, e, values, bytes, decode)                           \
        static attribute void set##_##e(float *y, const uint8_t *b, size_t n)       \
        {                                                                           \
                const int chunks = (values) > 1 ? (values) / DECODE_CHUNK : 1;      \
                for (size_t i = 0; i < n; i++)                                      \
                        for (int c = 0; c < chunks; c++)                            \
                                chunk_##decode(y + i * (values) + c * DECODE_CHUNK, \
                                               b + i * (bytes), c);                 \
        }

#if defined(__clang__)
#define ANY __attribute__((flatten))
#define AVX2 __attribute__((flatten, target("avx2")))
#else
#define ANY __attribute__((flatten, optimize("O3")))
#define AVX2 __attribute__((flatten, optimize("O3"), target("avx2")))
#endif

FOR(any, ANY)
#define STORAGE(e, name, gguf, values, bytes, is_float, decode) \
        DECODER(any, ANY, e, values, bytes, decode)
#include "../../ir/storage.def"
static Decoder *const any[CK_N_DTYPES] = {
#define STORAGE(e, name, gguf, values, bytes, is_float, decode) any_##e,
#include "../../ir/storage.def"
};

#if defined(__x86_64__) && defined(__GNUC__)
FOR(avx2, AVX2)
#define STORAGE(e, name, gguf, values, bytes, is_float, decode) \
        DECODER(avx2, AVX2, e, values, bytes, decode)
#include "../../ir/storage.def"
static Decoder *const avx2[CK_N_DTYPES] = {
#define STORAGE(e, name, gguf, values, bytes, is_float, decode) avx2_##e,
#include "../../ir/storage.def"
};
static bool is_avx2(void) { return __builtin_cpu_supports("avx2"); }
#else
#define avx2 any
#define avx2_round any_round
static bool is_avx2(void) { return false; }
#endif

void ck_decode(float *y, const void *blocks, int dtype, size_t n)
{
        (is_avx2() ? avx2 : any)[dtype](y, blocks, n);
}

void ck_round_bf16(void *dst, const float *v, size_t n)
{
        (is_avx2() ? avx2_round : any_round)(dst, v, n);
}
