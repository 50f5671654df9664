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
 * gcc and clang, C11 with GNU vector extensions, -O3 -march=native
 * -fno-math-errno -fno-trapping-math (no -ffast-math: NaN and inf keep their meaning). */
#ifndef TGC_H
#define TGC_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include "rt.h"

#define TGC_SEG 256
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

#endif
