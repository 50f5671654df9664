/* cpu_fp8.h: the 8-bit KV cache (format: ir/fp8.c). */
#ifndef TGC_CPU_FP8_H
#define TGC_CPU_FP8_H

#include "cpu_limits.h"
#include "cpu_rows.h"

TGC_INLINE float fp8_bits(uint32_t u)
{
        union {
                uint32_t u;
                float f;
        } x = { .u = u };
        return x.f;
}
TGC_INLINE uint32_t fp8_of(float f)
{
        union {
                float f;
                uint32_t u;
        } x = { .f = f };
        return x.u;
}

/* to (n, ld) from rows of D codes, `next` bytes apart; a row's exponent is at `aside`. */
TGC_INLINE void fp8_rows(float *restrict to, long ld, const unsigned char *restrict p, long next,
                         long aside, int n, int D)
{
        for (int r = 0; r < n; r++, to += ld, p += next) {
                const unsigned e = p[aside];
                const float scale = fp8_bits(e == 255 ? 0x7fc00000u : e << 23);
                for (int d = 0; d < D; d++) {
                        const uint32_t c = p[d];
                        /* subnormal: m 2^-9, not 2^-7 (1 + m / 8) */
                        const float x = fp8_bits(((c & 127) << 20) + (120u << 23)),
                                    v = c & 0x78 ? x : 2.f * (x - 0x1p-7f);
                        to[d] = fp8_bits(fp8_of(v) | (c & 128) << 24) * scale;
                }
        }
}

/* x (|x| <= 448) as e4m3, to nearest, ties to even. */
TGC_INLINE unsigned char fp8_code(float x)
{
        const uint32_t bits = fp8_of(x), sign = bits >> 24 & 0x80, mag = bits & 0x7fffffffu;
        const uint32_t small = fp8_of(fp8_bits(mag < 0x3c800000u ? mag : 0) + 0x1p14f) & 15,
                       large = ((mag + 0x7ffffu + (mag >> 20 & 1)) >> 20) - (120u << 3);
        return (unsigned char)(sign | (mag < 0x3c800000u ? small : large));
}

/* Appends row `row` of (tokens, K) heads of D to the cache, at row `place`. */
TGC_INLINE void append_rows_task(int K, int D, long row_bytes, void *cache, long place, long row,
                                 const void *args, PrologueFn *prologue)
{
        float x[LIMIT_HEAD], most = 0.f;
        int finite = 1;
        EACH_SEG(c, n, D) { prologue(args, row, (int)c, (int)n, x + c); }
        for (int d = 0; d < D; d++) {
                const float a = fp8_bits(fp8_of(x[d]) & 0x7fffffffu);
                most = a > most ? a : most;
                finite &= (fp8_of(x[d]) & 0x7f800000u) != 0x7f800000u;
        }
        const uint32_t bits = fp8_of(most);
        /* most <= 1.75 * 2^e, which is 448 * 2^(e - 8) */
        int e = (int)(bits >> 23) - 8 + ((bits & 0x7fffffu) > 0x600000u);
        e = !finite ? 255 : e < 127 - 14 ? 127 - 14 : e;
        const float factor = fp8_bits((uint32_t)(254 - (finite ? e : 127)) << 23);
        unsigned char *to = (unsigned char *)cache + place * row_bytes;
        const int head = (int)(row % K);
        for (int d = 0; d < D; d++)
                to[head * D + d] = finite ? fp8_code(x[d] * factor) : 0;
        to[K * D + head] = (unsigned char)e;
}

#endif
