/* cpu_round_fp8.h: quantises activations for fp8 weights to e4m3 with scales (ir/fp8.c). */
#ifndef TGC_CPU_ROUND_FP8_H
#define TGC_CPU_ROUND_FP8_H

#include "cpu_fp8.h"

/* x (|x| <= 448) to the nearest e4m3, ties to even. */
TGC_INLINE float to_e4m3(float x)
{
        const uint32_t bits = fp8_of(x), mag = bits & 0x7fffffffu;
        /* below 2^-6: adding 2^14 rounds to a multiple of 2^-9 */
        const float small = fp8_bits(mag) + 0x1p14f - 0x1p14f;
        const uint32_t large = (mag + 0x7ffffu + (mag >> 20 & 1)) & ~0xfffffu;
        return fp8_bits((mag < 0x3c800000u ? fp8_of(small) : large) | (bits & 0x80000000u));
}

/* Every G of the N values of a row; the last group may be shorter. */
TGC_INLINE void round_fp8_task(long N, long G, long row, const void *args, PrologueFn *prologue,
                               EpilogueFn *epilogue)
{
        float buf[TGC_SEG];
        Row r = row_fetch(N, row, args, prologue, tgc_scratch, TGC_ROW_MAX);
        for (long g = 0; g < N; g += G) {
                const long len = tgc_min(N - g, G);
                uint32_t most = 0; /* largest magnitude, as bits, which have the same order */
                EACH_SEG(c, n, len)
                {
                        const float *x = row_seg(r, prologue, g + c, n, buf);
                        for (long i = 0; i < n; i++) {
                                const uint32_t mag = fp8_of(x[i]) & 0x7fffffffu;
                                most = mag > most ? mag : most;
                        }
                }
                float scale = fp8_bits(most) / 448.f;
                scale = most >= 0x7f800000u ? fp8_bits(0x7fc00000u)
                        : scale < 0x1p-126f ? 0x1p-126f
                                            : scale;
                EACH_SEG(c, n, len)
                {
                        float *x = row_seg(r, prologue, g + c, n, buf);
                        for (long i = 0; i < n; i++)
                                x[i] = to_e4m3(x[i] / scale) * scale;
                        epilogue(args, row, (int)(g + c), (int)n, x);
                }
        }
}

#endif
