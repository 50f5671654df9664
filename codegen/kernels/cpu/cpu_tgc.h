/* cpu_tgc.h: what every C kernel family shares, and the protocol they follow.
 *
 * The twin of tgc.cuh.  A family is one `static inline` always-inlined function
 *
 *      NAME_task(pointers, sizes, long tile, const void *args, PrologueFn prologue, EpilogueFn
 *              epilogue)
 *
 * that does the work of one tile on the calling thread.  The generated entry
 * point owns the loop over tiles and its OpenMP pragma, and names prologue and epilogue
 * directly, so that the compiler inlines both and specialises the family to the
 * model's constants:
 *
 *      void k3(const Rt *rt, void *const *arg)
 *      {
 *      #pragma omp parallel for schedule(static) if (parallel)
 *              for (long tile = 0; tile < tiles; tile++)
 *                      norm_task(NORM_RMS, 768, rows, 1e-5f, tile, &a, k3_prologue, k3_epilogue);
 *      }
 *
 * Prologues and epilogues work on n neighbouring elements of one row, n <= TGC_SEG:
 *
 *      prologue(args, row, col, n, v)     fills v[0..n)
 *      epilogue(args, row, col, n, v)     consumes v[0..n), may overwrite it
 *
 * `row` counts all leading dimensions flattened, `col` the last one.  Where the
 * functor works on pairs (rotary, interleaved halves) col and n are even.  A
 * family never calls outside of rows x cols, and covers each element once.
 * Arithmetic is float32 whatever the storage.  The result does not depend on
 * the number of threads: a tile's sum has one order, tiles share nothing.
 *
 * Where several tiles need the same prologue values (gemv), or a row does not fit
 * the scratch (TGC_ROW_MAX), the prologue is called again: such prologues must be pure.
 * Prologues and epilogues are TGC_INLINE functions.  A storage type that the caller
 * passes as a constant (TY_BF16) is folded away.
 *
 * NAME_tiles(sizes) says how many tiles there are; it never depends on the
 * number of threads.
 *
 * gcc and clang, C11 with GNU vector extensions, -O3 -march=native
 * -ffp-contract=fast -fno-math-errno -fno-trapping-math (no -ffast-math: NaN and
 * inf keep their meaning).  -std=c11 turns contraction off, so it must be named. */
#ifndef TGC_H
#define TGC_H

#include <math.h>
#include <stdint.h>
#include <string.h>
/* Tests that must compile quickly take the portable forms: reading this header is a third of such
 * a compilation.  Block-quantised weights keep theirs. */
#if defined __AVX2__ && (!defined TGC_CALLS || defined TGC_STORED)
#define TGC_X86 1
#include <immintrin.h>
#endif
#include "rt.h"

#define TGC_SEG 256
#define TGC_ROW_MAX 262144 /* longest row kept in scratch, elements */
#ifdef TGC_CALLS /* for tests: functions are not inlined, which -O0 compiles in a tenth of the
                  * time */
#define TGC_INLINE static __attribute__((unused))
#else
#define TGC_INLINE static inline __attribute__((always_inline, unused))
#endif
#define TGC_NOINLINE static __attribute__((noinline, unused))
#define TGC_HIDE(p) __asm__("" : "+r"(p))     /* hides p's origin from the compiler */
#define TGC_PREFETCH(p) __builtin_prefetch(p) /* p may be any address */
#define TGC_PREFETCH_L2(p) __builtin_prefetch(p, 0, 2)

typedef void PrologueFn(const void *args, long row, int col, int n, float *v);
typedef void EpilogueFn(const void *args, long row, int col, int n, float *v);

TGC_INLINE long tgc_min(long a, long b) { return a < b ? a : b; }
TGC_INLINE long tgc_max(long a, long b) { return a > b ? a : b; }
TGC_INLINE long tgc_ceil_div(long a, long b) { return (a + b - 1) / b; }

/* ---- storage types ----------------------------------------------------- */

typedef uint16_t bf16;
/* a struct, so that it converts only by its functions */
typedef struct f16 {
        uint16_t u;
} f16;

/* The same as constants, in the order of the compiler's DType. */
enum { TY_F32, TY_BF16, TY_F16, TY_I32, TY_FP8 = -1 }; /* TY_FP8: cpu_fp8.h */

/* Storage types in blocks (../../ir/storage.def).  A source that reads any defines TGC_STORED(X)
 * before its kernels, as X(NAME, values, bytes, decoder) for each.  Indices count values. */
#ifdef TGC_STORED
#include "block_decode.h"
enum {
        TY_BEFORE_STORED = TY_I32,
#define X(name, values, bytes, decode) TY_##name,
        TGC_STORED(X)
#undef X
};

#define X(name, values, bytes, decode)                                                             \
        static const void *at_##name(const void *p, long i)                                        \
        {                                                                                          \
                return (const unsigned char *)p + i / (values) * (bytes);                          \
        }                                                                                          \
        static __attribute__((noinline, unused)) void load_##name(float *v, const void *p, long i, \
                                                                  int n)                           \
        {                                                                                          \
                for (; n > 0; n -= DECODE_CHUNK, v += DECODE_CHUNK, i += DECODE_CHUNK)             \
                        chunk_##decode(v, (const unsigned char *)at_##name(p, i),                  \
                                       (int)(i % (values)) / DECODE_CHUNK);                        \
        }
TGC_STORED(X)
#undef X

/* Whole chunks of 32. */
static inline void stored_chunks(int ty, float *v, const void *p, long i, int n)
{
        switch (ty) {
#define X(name, values, bytes, decode) \
        case TY_##name: load_##name(v, p, i, n); break;
                TGC_STORED(X)
#undef X
        }
}

/* Elements i..i+n, aligned or not. */
static __attribute__((noinline, unused)) void stored_load(int ty, float *v, const void *p, long i,
                                                          int n)
{
        float part[DECODE_CHUNK];
        while (n > 0) {
                const int from = (int)(i % DECODE_CHUNK);
                int k = n / DECODE_CHUNK * DECODE_CHUNK;
                if (!from && k) {
                        stored_chunks(ty, v, p, i, k);
                } else {
                        k = DECODE_CHUNK - from < n ? DECODE_CHUNK - from : n;
                        stored_chunks(ty, part, p, i - from, DECODE_CHUNK);
                        memcpy(v, part + from, sizeof(float) * (size_t)k);
                }
                v += k, i += k, n -= k;
        }
}

static inline __attribute__((unused)) float stored_get(int ty, const void *p, long i)
{
        float v;
        stored_load(ty, &v, p, i, 1);
        return v;
}
#define TY_IS_STORED(ty) ((ty) > TY_BEFORE_STORED)
#else
#define TY_IS_STORED(ty) 0
#define stored_load(ty, v, p, i, n) ((void)0)
#endif

TGC_INLINE long ty_size(int ty) { return ty == TY_F32 || ty == TY_I32 ? 4 : 2; }
TGC_INLINE uint32_t float_bits(float x)
{
        union {
                float f;
                uint32_t u;
        } c = { x };
        return c.u;
}
TGC_INLINE float float_of_bits(uint32_t u)
{
        union {
                uint32_t u;
                float f;
        } c = { u };
        return c.f;
}

TGC_INLINE float bf16_to_float(bf16 x) { return float_of_bits((uint32_t)x << 16); }

/* Round to nearest even; NaN stays NaN. */
TGC_INLINE bf16 bf16_from_float(float x)
{
        uint32_t u = float_bits(x);
        uint32_t r = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
        return (bf16)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40 : r);
}

/* The multiplication adjusts the exponent, for denormals too. */
TGC_INLINE float f16_to_float(f16 x)
{
        uint32_t m = (uint32_t)(x.u & 0x7fff) << 13;
        uint32_t big = (x.u & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
        return float_of_bits(float_bits(float_of_bits(m) * 0x1p112f) | big |
                             (uint32_t)(x.u & 0x8000) << 16);
}

/* Rounds to nearest even: below 2^-14 by adding 1/2, whose last bit is a denormal half's; above in
 * integers. */
TGC_INLINE f16 f16_from_float(float x)
{
        uint32_t u = float_bits(x), a = u & 0x7fffffffu, sign = u >> 16 & 0x8000;
        uint32_t small = float_bits(float_of_bits(a) + 0.5f) - 0x3f000000u;
        uint32_t normal = ((a + 0xfffu + (a >> 13 & 1)) >> 13) - (112u << 10);
        uint32_t r = a < 0x38800000u ? small : normal;
        r = a >= 0x477ff000u ? 0x7c00 : r;
        r = a > 0x7f800000u ? 0x7e00 : r;
        return (f16) { (uint16_t)(sign | r) };
}

/* ---- vectors as wide as the registers ------------------------------------ */

#if defined __AVX512F__
#define TGC_VEC 16
#elif defined __AVX__
#define TGC_VEC 8
#else
#define TGC_VEC 4
#endif
typedef float Vec __attribute__((vector_size(4 * TGC_VEC)));

#if defined __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define TGC_SHUFFLE __builtin_shufflevector
#endif
#endif

/* p need not be aligned. */
TGC_INLINE Vec vec_load(const float *p)
{
        Vec v;
        memcpy(&v, p, sizeof v);
        return v;
}
TGC_INLINE void vec_store(float *p, Vec v) { memcpy(p, &v, sizeof v); }
TGC_INLINE Vec vec_all(float x) { return x - (Vec) { 0 }; }

/* The larger of each pair; b where a is NaN. */
TGC_INLINE Vec vec_max(Vec a, Vec b)
{
#if defined TGC_X86 && defined __AVX512F__
        return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined TGC_X86
        return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
        for (int i = 0; i < TGC_VEC; i++)
                b[i] = a[i] > b[i] ? a[i] : b[i];
        return b;
#endif
}

/* v with the upper h of 2h lanes moved to the lower h; other lanes are undefined. */
TGC_INLINE Vec vec_upper(Vec v, int h)
{
#if defined TGC_SHUFFLE && TGC_VEC == 16
        switch (h) {
        case 8:
                return TGC_SHUFFLE(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14,
                                   15);
        case 4: return TGC_SHUFFLE(v, v, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
        case 2: return TGC_SHUFFLE(v, v, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3);
        default: return TGC_SHUFFLE(v, v, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
        }
#else
        Vec r = v;
        for (int i = 0; i < h; i++)
                r[i] = v[i + h];
        return r;
#endif
}

/* Sum and maximum of the elements, always by halves. */
TGC_INLINE float vec_sum(Vec v)
{
#pragma GCC unroll 4
        for (int h = TGC_VEC / 2; h; h /= 2)
                v += vec_upper(v, h);
        return v[0];
}

TGC_INLINE float vec_top(Vec v)
{
#pragma GCC unroll 4
        for (int h = TGC_VEC / 2; h; h /= 2)
                v = vec_max(v, vec_upper(v, h));
        return v[0];
}

#if defined TGC_X86 && defined __AVX512F__
TGC_INLINE Vec vec_load_bf16(const bf16 *p)
{
        return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(
                                              _mm256_loadu_si256((const __m256i *)(const void *)p)),
                                      16);
}
TGC_INLINE Vec vec_load_f16(const f16 *p)
{
        return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
TGC_INLINE void vec_store_f16(f16 *p, Vec v)
{
        _mm256_storeu_si256((__m256i *)(void *)p,
                            _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined TGC_X86 && defined __F16C__
TGC_INLINE Vec vec_load_bf16(const bf16 *p)
{
        return (Vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(
                                              _mm_loadu_si128((const __m128i *)(const void *)p)),
                                      16);
}
TGC_INLINE Vec vec_load_f16(const f16 *p)
{
        return (Vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
TGC_INLINE void vec_store_f16(f16 *p, Vec v)
{
        _mm_storeu_si128((__m128i *)(void *)p,
                         _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
#else
TGC_INLINE Vec vec_load_bf16(const bf16 *p)
{
        float x[TGC_VEC];
        for (int i = 0; i < TGC_VEC; i++)
                x[i] = bf16_to_float(p[i]);
        return vec_load(x);
}
TGC_INLINE Vec vec_load_f16(const f16 *p)
{
        float x[TGC_VEC];
        for (int i = 0; i < TGC_VEC; i++)
                x[i] = f16_to_float(p[i]);
        return vec_load(x);
}
TGC_INLINE void vec_store_f16(f16 *p, Vec v)
{
        float x[TGC_VEC];
        vec_store(x, v);
        for (int i = 0; i < TGC_VEC; i++)
                p[i] = f16_from_float(x[i]);
}
#endif

/* Saturates; NaN becomes 0, as on GPUs. */
TGC_INLINE int int_from_float(float x)
{
        return x >= 2147483648.f   ? 2147483647
               : x > -2147483648.f ? (int)x
               : x == x            ? -2147483647 - 1
                                   : 0;
}

/* ---- n neighbouring elements to and from float -------------------------- */

#define TGC_LOADER(T, conv)                                                     \
        TGC_INLINE void load_##T(float *restrict v, const T *restrict p, int n) \
        {                                                                       \
                for (int i = 0; i < n; i++) {                                   \
                        T x = p[i];                                             \
                        v[i] = conv;                                            \
                }                                                               \
        }
TGC_LOADER(float, x)
TGC_LOADER(bf16, bf16_to_float(x))
TGC_LOADER(int, (float)x)

#define TGC_STORER(T, conv)                                                      \
        TGC_INLINE void store_##T(T *restrict p, const float *restrict v, int n) \
        {                                                                        \
                for (int i = 0; i < n; i++) {                                    \
                        float x = v[i];                                          \
                        p[i] = conv;                                             \
                }                                                                \
        }
TGC_STORER(float, x)
TGC_STORER(bf16, bf16_from_float(x))
TGC_STORER(int, int_from_float(x))

TGC_INLINE void load_f16(float *restrict v, const f16 *restrict p, int n)
{
        int i = 0;
        for (; i + TGC_VEC <= n; i += TGC_VEC)
                vec_store(v + i, vec_load_f16(p + i));
        for (; i < n; i++)
                v[i] = f16_to_float(p[i]);
}

TGC_INLINE void store_f16(f16 *restrict p, const float *restrict v, int n)
{
        int i = 0;
        for (; i + TGC_VEC <= n; i += TGC_VEC)
                vec_store_f16(p + i, vec_load(v + i));
        for (; i < n; i++)
                p[i] = f16_from_float(v[i]);
}

/* Elements p[i..i+n) of type ty. */
TGC_INLINE void ty_load(int ty, float *restrict v, const void *p, long i, int n)
{
        switch (ty) {
        case TY_F32: load_float(v, (const float *)p + i, n); break;
        case TY_BF16: load_bf16(v, (const bf16 *)p + i, n); break;
        case TY_F16: load_f16(v, (const f16 *)p + i, n); break;
        case TY_I32: load_int(v, (const int *)p + i, n); break;
        default: stored_load(ty, v, p, i, n);
        }
}

TGC_INLINE void ty_store(int ty, void *p, long i, const float *restrict v, int n)
{
        switch (ty) {
        case TY_F32: store_float((float *)p + i, v, n); break;
        case TY_BF16: store_bf16((bf16 *)p + i, v, n); break;
        case TY_F16: store_f16((f16 *)p + i, v, n); break;
        default: store_int((int *)p + i, v, n);
        }
}

TGC_INLINE float ty_get(int ty, const void *p, long i)
{
        switch (ty) {
        case TY_F32: return ((const float *)p)[i];
        case TY_BF16: return bf16_to_float(((const bf16 *)p)[i]);
        case TY_F16: return f16_to_float(((const f16 *)p)[i]);
        default: return (float)((const int *)p)[i];
        }
}

/* Elements p[i..i+TGC_VEC). */
TGC_INLINE Vec vec_load_ty(int ty, const void *p, long i)
{
        float x[TGC_VEC];
        switch (ty) {
        case TY_F32: return vec_load((const float *)p + i);
        case TY_BF16: return vec_load_bf16((const bf16 *)p + i);
        case TY_F16: return vec_load_f16((const f16 *)p + i);
        default: load_int(x, (const int *)p + i, TGC_VEC); return vec_load(x);
        }
}

/* Elements p[i..i+n), n < TGC_VEC, the rest 0; nothing beyond is read. */
TGC_INLINE Vec vec_load_part(int ty, const void *p, long i, int n)
{
#if defined TGC_X86 && defined __AVX512F__
        if (ty == TY_F32)
                return (Vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), (const float *)p + i);
#endif
        float x[TGC_VEC] = { 0 };
        for (int j = 0; j < n; j++)
                x[j] = ty_get(ty, p, i + j);
        return vec_load(x);
}

/* Scratch of the running task; its contents do not outlive the task. */
#define TGC_SCRATCH 320000
static _Thread_local float tgc_scratch[TGC_SCRATCH] __attribute__((aligned(64), unused));

#endif
