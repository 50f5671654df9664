/* block_decode.h: the values of one block, for every type of storage.def that has a decoder.
 *
 *      decode_TYPE(y, b)       y: float32, as many as a block has; b: its bytes, anywhere
 *
 * The bits are those of the package gguf (gguf-py, quants.py): same products, same order, each
 * rounded to float32, so a multiplication and an addition must not become one (STDC FP_CONTRACT).
 * tests/e2e/gguf/decode.py compares them.  Sub-blocks have a loop of constant length each, which
 * compilers vectorise.
 *
 * Depends on nothing of ours, so that kernels of a CPU may include it. */
#ifndef TGC_BLOCK_DECODE_H
#define TGC_BLOCK_DECODE_H

#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

/* IEEE half to float32, exact; NaN payloads stay.  Without branches, so that loops vectorise. */
static inline float half_to_float(uint16_t x)
{
        const uint32_t exp = x >> 10 & 31, man = x & 0x3ff;
        const uint32_t is_small = -(uint32_t)(exp == 0), is_inf = -(uint32_t)(exp == 31);
        const float small = (float)(int)man * 0x1p-24f; /* zero, subnormal */
        uint32_t u;
        float f;
        memcpy(&u, &small, 4);
        u = (u & is_small) | ((man << 13 | (exp + 112) << 23) & ~is_small);
        u |= (uint32_t)(x & 0x8000) << 16 | (0x7f800000u & is_inf);
        memcpy(&f, &u, 4);
        return f;
}

static inline float half_at(const uint8_t *b)
{
        return half_to_float((uint16_t)(b[0] | b[1] << 8));
}

static inline uint32_t u32_at(const uint8_t *b)
{
        return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* ---- elements by themselves ---- */

static inline void decode_f32(float *y, const uint8_t *b) { memcpy(y, b, 4); }

static inline void decode_f16(float *y, const uint8_t *b)
{
        uint16_t x;
        memcpy(&x, b, 2);
        *y = half_to_float(x);
}

static inline void decode_bf16(float *y, const uint8_t *b)
{
        uint16_t x;
        memcpy(&x, b, 2);
        const uint32_t u = (uint32_t)x << 16;
        memcpy(y, &u, 4);
}

/* ---- blocks of 32: low nibbles are the first 16 values, high ones the others ---- */

static inline void decode_q4_0(float *y, const uint8_t *b)
{
        const float d = half_at(b);
        const uint8_t *q = b + 2;
        for (int j = 0; j < 16; j++)
                y[j] = d * (float)((q[j] & 15) - 8);
        for (int j = 0; j < 16; j++)
                y[j + 16] = d * (float)((q[j] >> 4) - 8);
}

static inline void decode_q4_1(float *y, const uint8_t *b)
{
        const float d = half_at(b), m = half_at(b + 2);
        const uint8_t *q = b + 4;
        for (int j = 0; j < 16; j++)
                y[j] = d * (float)(q[j] & 15) + m;
        for (int j = 0; j < 16; j++)
                y[j + 16] = d * (float)(q[j] >> 4) + m;
}

static inline void decode_q5_0(float *y, const uint8_t *b)
{
        const float d = half_at(b);
        const uint32_t h = u32_at(b + 2);
        const uint8_t *q = b + 6;
        for (int j = 0; j < 16; j++)
                y[j] = d * (float)((int)((q[j] & 15) | (h >> j & 1) << 4) - 16);
        for (int j = 0; j < 16; j++)
                y[j + 16] = d * (float)((int)((q[j] >> 4) | (h >> (j + 16) & 1) << 4) - 16);
}

static inline void decode_q5_1(float *y, const uint8_t *b)
{
        const float d = half_at(b), m = half_at(b + 2);
        const uint32_t h = u32_at(b + 4);
        const uint8_t *q = b + 8;
        for (int j = 0; j < 16; j++)
                y[j] = d * (float)(int)((q[j] & 15) | (h >> j & 1) << 4) + m;
        for (int j = 0; j < 16; j++)
                y[j + 16] = d * (float)(int)((q[j] >> 4) | (h >> (j + 16) & 1) << 4) + m;
}

static inline void decode_q8_0(float *y, const uint8_t *b)
{
        const float d = half_at(b);
        const int8_t *q = (const int8_t *)b + 2;
        for (int j = 0; j < 32; j++)
                y[j] = d * (float)q[j];
}

/* ---- blocks of 256 with scales of their own for 16 or 32 values ---- */

/* Values come 32 at a time: bits 0-1 of 32 bytes, then bits 2-3, 4-5, 6-7; then the next bytes. */
static inline void decode_q2_k(float *y, const uint8_t *b)
{
        const uint8_t *scale = b, *q = b + 16;
        const float d = half_at(b + 80), dmin = half_at(b + 82);
        for (int s = 0; s < 16; s++) {
                const float dl = d * (float)(scale[s] & 15), ml = dmin * (float)(scale[s] >> 4);
                const uint8_t *at = q + s / 8 * 32 + s % 2 * 16;
                const int shift = s % 8 / 2 * 2;
                for (int l = 0; l < 16; l++)
                        y[16 * s + l] = dl * (float)(at[l] >> shift & 3) - ml;
        }
}

/* The same order; a value's third bit is in hmask, and 4 goes where it is not set. */
static inline void decode_q3_k(float *y, const uint8_t *b)
{
        const uint8_t *hmask = b, *q = b + 32, *packed = b + 96;
        const float d = half_at(b + 108);
        for (int s = 0; s < 16; s++) {
                const int low = packed[s % 8] >> (s < 8 ? 0 : 4) & 15,
                          high = packed[8 + s % 4] >> s / 4 * 2 & 3;
                const float dl = d * (float)((low | high << 4) - 32);
                const uint8_t *at = q + s / 8 * 32 + s % 2 * 16, *h = hmask + s % 2 * 16;
                const int shift = s % 8 / 2 * 2, bit = s / 2;
                for (int l = 0; l < 16; l++)
                        y[16 * s + l] = dl *
                                        (float)((at[l] >> shift & 3) - ((h[l] >> bit & 1) ? 0 : 4));
        }
}

/* The eight 6-bit scales and minima of Q4_K and Q5_K. */
static inline void k_scale(const uint8_t *q, int j, int *scale, int *min)
{
        if (j < 4) {
                *scale = q[j] & 63;
                *min = q[j + 4] & 63;
        } else {
                *scale = (q[j + 4] & 15) | q[j - 4] >> 6 << 4;
                *min = q[j + 4] >> 4 | q[j] >> 6 << 4;
        }
}

/* 64 at a time: low nibbles of 32 bytes, then their high ones. */
static inline void decode_q4_k(float *y, const uint8_t *b)
{
        const float d = half_at(b), dmin = half_at(b + 2);
        for (int s = 0; s < 8; s++) {
                const uint8_t *q = b + 16 + s / 2 * 32;
                const int shift = s % 2 * 4;
                int scale, min;
                k_scale(b + 4, s, &scale, &min);
                const float dl = d * (float)scale, ml = dmin * (float)min;
                for (int l = 0; l < 32; l++)
                        y[32 * s + l] = dl * (float)(q[l] >> shift & 15) - ml;
        }
}

static inline void decode_q5_k(float *y, const uint8_t *b)
{
        const float d = half_at(b), dmin = half_at(b + 2);
        const uint8_t *h = b + 16;
        for (int s = 0; s < 8; s++) {
                const uint8_t *q = b + 48 + s / 2 * 32;
                const int shift = s % 2 * 4;
                int scale, min;
                k_scale(b + 4, s, &scale, &min);
                const float dl = d * (float)scale, ml = dmin * (float)min;
                for (int l = 0; l < 32; l++)
                        y[32 * s + l] = dl * (float)((q[l] >> shift & 15) | (h[l] >> s & 1) << 4) -
                                        ml;
        }
}

/* 128 at a time: of 64 bytes ql the low nibbles, then the high ones, with 2 bits each of 32 bytes
 * qh above them. */
static inline void decode_q6_k(float *y, const uint8_t *b)
{
        const int8_t *scale = (const int8_t *)b + 192;
        const float d = half_at(b + 208);
        for (int s = 0; s < 16; s++) {
                const int part = s % 8 / 2; /* of 32 values, in their half of the block */
                const uint8_t *l = b + s / 8 * 64 + part % 2 * 32 + s % 2 * 16,
                              *h = b + 128 + s / 8 * 32 + s % 2 * 16;
                const int low = part / 2 * 4, high = part * 2;
                const float dl = d * (float)scale[s];
                for (int i = 0; i < 16; i++)
                        y[16 * s + i] = dl *
                                        (float)(((l[i] >> low & 15) | (h[i] >> high & 3) << 4) -
                                                32);
        }
}

/* ---- 4 bits that choose a value of a table ---- */

static const int8_t iq4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113 };
/* Twice the values of E2M1; the scales are halves for it. */
static const int8_t e2m1_values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

/* n bytes: n low nibbles, then n high ones. */
static inline void decode_nibbles(float *y, const uint8_t *q, int n, const int8_t *value, float d)
{
        for (int j = 0; j < n; j++) {
                y[j] = d * (float)value[q[j] & 15];
                y[j + n] = d * (float)value[q[j] >> 4];
        }
}

static inline void decode_iq4_nl(float *y, const uint8_t *b)
{
        decode_nibbles(y, b + 2, 16, iq4_values, half_at(b));
}

static inline void decode_iq4_xs(float *y, const uint8_t *b)
{
        const float d = half_at(b);
        const unsigned high = (unsigned)(b[2] | b[3] << 8);
        for (int s = 0; s < 8; s++) {
                const int low = b[4 + s / 2] >> s % 2 * 4 & 15,
                          scale = (low | (int)(high >> 2 * s & 3) << 4) - 32;
                decode_nibbles(y + 32 * s, b + 8 + 16 * s, 16, iq4_values, d * (float)scale);
        }
}

/* The scale is E8M0: 2^(e-127), of which the half is 2^(e-128). */
static inline void decode_mxfp4(float *y, const uint8_t *b)
{
        const uint32_t u = b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23;
        float half;
        memcpy(&half, &u, 4);
        decode_nibbles(y, b + 1, 16, e2m1_values, half);
}

/* Four scales, E4M3 without a sign (bit 7 is not looked at); 0x7f is 0. */
static inline void decode_nvfp4(float *y, const uint8_t *b)
{
        for (int s = 0; s < 4; s++) {
                const uint32_t e = b[s] >> 3 & 15, m = b[s] & 7, u = (e + 119) << 23 | m << 20;
                float half;
                memcpy(&half, &u, 4);
                if (!e)
                        half = (float)m * 0x1p-10f;
                decode_nibbles(y + 16 * s, b + 4 + 8 * s, 8, e2m1_values, b[s] == 0x7f ? 0 : half);
        }
}

#endif
