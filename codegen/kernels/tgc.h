/* tgc.h: what every C kernel family shares, and the protocol they follow.
 *
 * The twin of tgc.cuh.  A family is one `static inline` always-inlined function
 *
 *      NAME_task(pointers, sizes, long tile, const void *args, HeadFn head, TailFn tail)
 *
 * that does the work of one tile on the calling thread.  The generated entry
 * point owns the loop over tiles and its OpenMP pragma, and names head and tail
 * directly, so that the compiler inlines both and specialises the family to the
 * model's constants:
 *
 *      void k3(const Rt *rt, void *const *arg)
 *      {
 *      #pragma omp parallel for schedule(static) if (parallel)
 *              for (long tile = 0; tile < tiles; tile++)
 *                      norm_task(NORM_RMS, 768, rows, 1e-5f, tile, &a, k3_head, k3_tail);
 *      }
 *
 * Heads and tails work on n neighbouring elements of one row, n <= TGC_SEG:
 *
 *      head(args, row, col, n, v)     fills v[0..n)
 *      tail(args, row, col, n, v)     consumes v[0..n), may overwrite it
 *
 * `row` counts all leading dimensions flattened, `col` the last one.  Where the
 * functor works on pairs (rotary, interleaved halves) col and n are even.  A
 * family never calls outside of rows x cols, and covers each element once.
 * Arithmetic is float32 whatever the storage.  The result does not depend on
 * the number of threads: a tile's sum has one order, tiles share nothing.
 *
 * Where several tiles need the same head values (matvec), or a row does not fit
 * the scratch (TGC_ROW_MAX), the head is called again: such heads must be pure.
 * Heads and tails are TGC_INLINE functions.  A storage type that the caller
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
#include "rt.h"

#define TGC_SEG 256
#define TGC_ROW_MAX 262144              /* longest row kept in scratch, elements */
#define TGC_INLINE static inline __attribute__((always_inline, unused))

typedef uint16_t bf16;
typedef _Float16 f16;

typedef void HeadFn(const void *args, long row, int col, int n, float *v);
typedef void TailFn(const void *args, long row, int col, int n, float *v);

TGC_INLINE float bf16_to_float(bf16 x)
{
        union { uint32_t u; float f; } c = { (uint32_t)x << 16 };
        return c.f;
}

/* Round to nearest even; NaN stays NaN. */
TGC_INLINE bf16 bf16_from_float(float x)
{
        union { float f; uint32_t u; } c = { x };
        if ((c.u & 0x7fffffffu) > 0x7f800000u)
                return (bf16)(c.u >> 16 | 0x40);
        return (bf16)((c.u + 0x7fffu + (c.u >> 16 & 1)) >> 16);
}

/* n neighbouring elements to and from float. */
#define TGC_LOADER(T, conv) \
TGC_INLINE void load_##T(float *restrict v, const T *restrict p, int n) \
{ for (int i = 0; i < n; i++) { T x = p[i]; v[i] = conv; } }
TGC_LOADER(float, x)
TGC_LOADER(bf16, bf16_to_float(x))
TGC_LOADER(f16, (float)x)
TGC_LOADER(int, (float)x)

#define TGC_STORER(T, conv) \
TGC_INLINE void store_##T(T *restrict p, const float *restrict v, int n) \
{ for (int i = 0; i < n; i++) { float x = v[i]; p[i] = conv; } }
TGC_STORER(float, x)
TGC_STORER(bf16, bf16_from_float(x))
TGC_STORER(f16, (f16)x)
TGC_STORER(int, (int)x)

/* Storage types as constants; same order as the compiler's DType. */
enum { TY_F32, TY_BF16, TY_F16, TY_I32 };

TGC_INLINE long ty_size(int ty) { return ty == TY_F32 || ty == TY_I32 ? 4 : 2; }
TGC_INLINE const void *ty_at(int ty, const void *p, long i) { return (const char *)p + i * ty_size(ty); }

/* Elements p[i..i+n) of storage type ty. */
TGC_INLINE void ty_load(int ty, float *restrict v, const void *p, long i, int n)
{
        switch (ty) {
        case TY_F32:  load_float(v, (const float *)p + i, n); break;
        case TY_BF16: load_bf16(v, (const bf16 *)p + i, n); break;
        case TY_F16:  load_f16(v, (const f16 *)p + i, n); break;
        default:      load_int(v, (const int *)p + i, n);
        }
}

TGC_INLINE void ty_store(int ty, void *p, long i, const float *restrict v, int n)
{
        switch (ty) {
        case TY_F32:  store_float((float *)p + i, v, n); break;
        case TY_BF16: store_bf16((bf16 *)p + i, v, n); break;
        case TY_F16:  store_f16((f16 *)p + i, v, n); break;
        default:      store_int((int *)p + i, v, n);
        }
}

TGC_INLINE float ty_get(int ty, const void *p, long i)
{
        float v;
        ty_load(ty, &v, p, i, 1);
        return v;
}

TGC_INLINE long tgc_min(long a, long b) { return a < b ? a : b; }
TGC_INLINE long tgc_max(long a, long b) { return a > b ? a : b; }
TGC_INLINE long tgc_ceil_div(long a, long b) { return (a + b - 1) / b; }

#endif
