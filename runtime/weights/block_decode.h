/* block_decode.h: decodes one block, for every type of storage.def that has a decoder.
 *
 *      chunk_TYPE(y, b, c)     y: 32 values, float32: number c of those of the block whose bytes
 *                              are at b, anywhere; of a block of 32 c is 0.  Of F32, F16 and BF16:
 *                              the element
 *
 * The bits are those of the package gguf (gguf-py, quants.py): same products, same order, each
 * rounded to float32, so a multiplication and an addition must not become one (STDC FP_CONTRACT).
 * tests/e2e/gguf/decode.py compares them.  Sub-blocks have a loop of constant length each, which
 * compilers vectorise.  (Kernels are compiled with contraction: theirs may differ by a rounding.)
 *
 * Depends on nothing of ours, so that kernels may include it; CUDA C++ too. */
#ifndef TGC_BLOCK_DECODE_H
#define TGC_BLOCK_DECODE_H

#if defined(__clang__) && !defined(__CUDA__)
#pragma STDC FP_CONTRACT OFF
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define DECODE static __device__ __forceinline__
#define DECODE_TABLE static __device__ const
#else
#define DECODE static inline __attribute__((unused))
#define DECODE_TABLE static const
#endif

enum { DECODE_CHUNK = 32 };

DECODE float bits_float(unsigned u)
{
        union {
                unsigned u;
                float f;
        } c;
        c.u = u;
        return c.f;
}

/* IEEE half to float32, exact; NaN payloads stay.  Without branches, so that loops vectorise. */
DECODE float half_to_float(unsigned short x)
{
        const unsigned exp = x >> 10 & 31, man = x & 0x3ff;
        const unsigned is_small = 0u - (unsigned)(exp == 0), is_inf = 0u - (unsigned)(exp == 31);
        union {
                float f;
                unsigned u;
        } small;
        small.f = (float)(int)man * 0x1p-24f; /* zero, subnormal */
        const unsigned u = (small.u & is_small) | ((man << 13 | (exp + 112) << 23) & ~is_small);
        return bits_float(u | (unsigned)(x & 0x8000) << 16 | (0x7f800000u & is_inf));
}

DECODE float half_at(const unsigned char *b)
{
        return half_to_float((unsigned short)(b[0] | b[1] << 8));
}

DECODE unsigned u32_at(const unsigned char *b)
{
        return b[0] | (unsigned)b[1] << 8 | (unsigned)b[2] << 16 | (unsigned)b[3] << 24;
}

/* ---- elements by themselves ---- */

DECODE void chunk_f32(float *y, const unsigned char *b, int c)
{
        (void)c;
        *y = bits_float(u32_at(b));
}
DECODE void chunk_f16(float *y, const unsigned char *b, int c)
{
        (void)c;
        *y = half_at(b);
}
DECODE void chunk_bf16(float *y, const unsigned char *b, int c)
{
        (void)c;
        *y = bits_float((unsigned)(b[0] | b[1] << 8) << 16);
}

/* Without infinities; 0x7f and 0xff are NaN. */
DECODE void chunk_f8_e4m3(float *y, const unsigned char *b, int c)
{
        const unsigned e = *b >> 3 & 15, m = *b & 7;
        const float v = e == 15 && m == 7 ? bits_float(0x7fc00000u)
                        : e               ? bits_float((e + 120) << 23 | m << 20)
                                          : (float)(int)m * 0x1p-9f;
        (void)c;
        *y = *b & 0x80 ? -v : v;
}

/* 2^(e-127); 0xff is NaN. */
DECODE void chunk_f8_e8m0(float *y, const unsigned char *b, int c)
{
        (void)c;
        *y = bits_float(*b == 0xff ? 0x7fc00000u : *b ? (unsigned)*b << 23 : 0x00400000u);
}

/* ---- blocks of 32: low nibbles are the first 16 values, high ones the others ---- */

DECODE void chunk_q4_0(float *y, const unsigned char *b, int c)
{
        const float d = half_at(b);
        const unsigned char *q = b + 2;
        (void)c;
        for (int j = 0; j < 16; j++)
                y[j] = d * (float)((q[j] & 15) - 8);
        for (int j = 0; j < 16; j++)
                y[j + 16] = d * (float)((q[j] >> 4) - 8);
}

DECODE void chunk_q4_1(float *y, const unsigned char *b, int c)
{
        const float d = half_at(b), m = half_at(b + 2);
        const unsigned char *q = b + 4;
        (void)c;
        for (int j = 0; j < 16; j++)
                y[j] = d * (float)(q[j] & 15) + m;
        for (int j = 0; j < 16; j++)
                y[j + 16] = d * (float)(q[j] >> 4) + m;
}

DECODE void chunk_q5_0(float *y, const unsigned char *b, int c)
{
        const float d = half_at(b);
        const unsigned h = u32_at(b + 2);
        const unsigned char *q = b + 6;
        (void)c;
        for (int j = 0; j < 16; j++)
                y[j] = d * (float)((int)((q[j] & 15) | (h >> j & 1) << 4) - 16);
        for (int j = 0; j < 16; j++)
                y[j + 16] = d * (float)((int)((q[j] >> 4) | (h >> (j + 16) & 1) << 4) - 16);
}

DECODE void chunk_q5_1(float *y, const unsigned char *b, int c)
{
        const float d = half_at(b), m = half_at(b + 2);
        const unsigned h = u32_at(b + 4);
        const unsigned char *q = b + 8;
        (void)c;
        for (int j = 0; j < 16; j++)
                y[j] = d * (float)(int)((q[j] & 15) | (h >> j & 1) << 4) + m;
        for (int j = 0; j < 16; j++)
                y[j + 16] = d * (float)(int)((q[j] >> 4) | (h >> (j + 16) & 1) << 4) + m;
}

DECODE void chunk_q8_0(float *y, const unsigned char *b, int c)
{
        const float d = half_at(b);
        const signed char *q = (const signed char *)b + 2;
        (void)c;
        for (int j = 0; j < 32; j++)
                y[j] = d * (float)q[j];
}

/* ---- blocks of 256 with scales of their own for 16 or 32 values ---- */

/* Values come 32 at a time: bits 0-1 of 32 bytes, then bits 2-3, 4-5, 6-7; then the next bytes. */
DECODE void chunk_q2_k(float *y, const unsigned char *b, int c)
{
        const float d = half_at(b + 80), dmin = half_at(b + 82);
        const int shift = c % 4 * 2;
        for (int s = 0; s < 2; s++) {
                const unsigned char scale = b[2 * c + s], *q = b + 16 + c / 4 * 32 + s * 16;
                const float dl = d * (float)(scale & 15), ml = dmin * (float)(scale >> 4);
                for (int l = 0; l < 16; l++)
                        y[16 * s + l] = dl * (float)(q[l] >> shift & 3) - ml;
        }
}

/* The same order; a value's third bit is in hmask, and 4 goes where it is not set. */
DECODE void chunk_q3_k(float *y, const unsigned char *b, int c)
{
        const unsigned char *hmask = b, *packed = b + 96;
        const float d = half_at(b + 108);
        const int shift = c % 4 * 2;
        for (int k = 0; k < 2; k++) {
                const int s = 2 * c + k, low = packed[s % 8] >> (s < 8 ? 0 : 4) & 15,
                          high = packed[8 + s % 4] >> s / 4 * 2 & 3;
                const float dl = d * (float)((low | high << 4) - 32);
                const unsigned char *q = b + 32 + c / 4 * 32 + k * 16, *h = hmask + k * 16;
                for (int l = 0; l < 16; l++)
                        y[16 * k + l] = dl *
                                        (float)((q[l] >> shift & 3) - ((h[l] >> c & 1) ? 0 : 4));
        }
}

/* The eight 6-bit scales and minima of Q4_K and Q5_K. */
DECODE void k_scale(const unsigned char *q, int j, int *scale, int *min)
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
DECODE void chunk_q4_k(float *y, const unsigned char *b, int c)
{
        const float d = half_at(b), dmin = half_at(b + 2);
        const unsigned char *q = b + 16 + c / 2 * 32;
        const int shift = c % 2 * 4;
        int scale, min;
        k_scale(b + 4, c, &scale, &min);
        const float dl = d * (float)scale, ml = dmin * (float)min;
        for (int l = 0; l < 32; l++)
                y[l] = dl * (float)(q[l] >> shift & 15) - ml;
}

DECODE void chunk_q5_k(float *y, const unsigned char *b, int c)
{
        const float d = half_at(b), dmin = half_at(b + 2);
        const unsigned char *h = b + 16, *q = b + 48 + c / 2 * 32;
        const int shift = c % 2 * 4;
        int scale, min;
        k_scale(b + 4, c, &scale, &min);
        const float dl = d * (float)scale, ml = dmin * (float)min;
        for (int l = 0; l < 32; l++)
                y[l] = dl * (float)((q[l] >> shift & 15) | (h[l] >> c & 1) << 4) - ml;
}

/* 128 at a time: of 64 bytes ql the low nibbles, then the high ones, with 2 bits each of 32 bytes
 * qh above them. */
DECODE void chunk_q6_k(float *y, const unsigned char *b, int c)
{
        const signed char *scale = (const signed char *)b + 192 + 2 * c;
        const float d = half_at(b + 208);
        const int part = c % 4; /* of 32 values, in their half of the block */
        const int low = part / 2 * 4, high = part * 2;
        for (int s = 0; s < 2; s++) {
                const unsigned char *l = b + c / 4 * 64 + part % 2 * 32 + s * 16,
                                    *h = b + 128 + c / 4 * 32 + s * 16;
                const float dl = d * (float)scale[s];
                for (int i = 0; i < 16; i++)
                        y[16 * s + i] = dl *
                                        (float)(((l[i] >> low & 15) | (h[i] >> high & 3) << 4) -
                                                32);
        }
}

/* ---- 4 bits that choose a value of a table ---- */

DECODE_TABLE signed char iq4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113 };
/* Twice the values of E2M1; the scales are halves for it. */
DECODE_TABLE signed char e2m1_values[16] = {
        0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
};

/* n bytes: n low nibbles, then n high ones. */
DECODE void decode_nibbles(float *y, const unsigned char *q, int n, const signed char *value,
                           float d)
{
        for (int j = 0; j < n; j++) {
                y[j] = d * (float)value[q[j] & 15];
                y[j + n] = d * (float)value[q[j] >> 4];
        }
}

DECODE void chunk_iq4_nl(float *y, const unsigned char *b, int c)
{
        (void)c;
        decode_nibbles(y, b + 2, 16, iq4_values, half_at(b));
}

DECODE void chunk_iq4_xs(float *y, const unsigned char *b, int c)
{
        const unsigned high = (unsigned)(b[2] | b[3] << 8);
        const int low = b[4 + c / 2] >> c % 2 * 4 & 15,
                  scale = (low | (int)(high >> 2 * c & 3) << 4) - 32;
        decode_nibbles(y, b + 8 + 16 * c, 16, iq4_values, half_at(b) * (float)scale);
}

/* The scale is E8M0: 2^(e-127), of which the half is 2^(e-128). */
DECODE void chunk_mxfp4(float *y, const unsigned char *b, int c)
{
        (void)c;
        decode_nibbles(y, b + 1, 16, e2m1_values,
                       bits_float(b[0] < 2 ? 0x00200000u << b[0] : (unsigned)(b[0] - 1) << 23));
}

/* Four scales, E4M3 without a sign (bit 7 is not looked at); 0x7f is 0. */
DECODE void chunk_nvfp4(float *y, const unsigned char *b, int c)
{
        for (int k = 0; k < 2; k++) {
                const int s = 2 * c + k;
                const unsigned e = b[s] >> 3 & 15, m = b[s] & 7;
                const float half = e ? bits_float((e + 119) << 23 | m << 20) : (float)m * 0x1p-10f;
                decode_nibbles(y + 16 * k, b + 4 + 8 * s, 8, e2m1_values, b[s] == 0x7f ? 0 : half);
        }
}

/* ---- blocks of quantised folders: a scale in float32, then codes ---- */

/* The values of bitsandbytes' 4 bits. */
DECODE_TABLE float nf4_values[16] = { -1.0f,
                                      -0.6961928009986877f,
                                      -0.5250730514526367f,
                                      -0.39491748809814453f,
                                      -0.28444138169288635f,
                                      -0.18477343022823334f,
                                      -0.09105003625154495f,
                                      0.0f,
                                      0.07958029955625534f,
                                      0.16093020141124725f,
                                      0.24611230194568634f,
                                      0.33791524171829224f,
                                      0.44070982933044434f,
                                      0.5626170039176941f,
                                      0.7229568362236023f,
                                      1.0f };
DECODE_TABLE float fp4_values[16] = {
        0, 1 / 192.f,  2 / 3.f,  1,  1 / 3.f,  .5f,  1 / 6.f,  .25f,
        0, -1 / 192.f, -2 / 3.f, -1, -1 / 3.f, -.5f, -1 / 6.f, -.25f
};

/* 16 bytes: 16 low nibbles, then their high ones. */
DECODE void decode_floats(float *y, const unsigned char *q, const float *value, float d)
{
        for (int j = 0; j < 16; j++) {
                y[j] = d * value[q[j] & 15];
                y[j + 16] = d * value[q[j] >> 4];
        }
}

DECODE void chunk_nf4(float *y, const unsigned char *b, int c)
{
        decode_floats(y, b + 4 + 16 * c, nf4_values, bits_float(u32_at(b)));
}

DECODE void chunk_fp4(float *y, const unsigned char *b, int c)
{
        decode_floats(y, b + 4 + 16 * c, fp4_values, bits_float(u32_at(b)));
}

/* Nibbles as in Q4_0; the zero point, 0 to 255, is the scale's last byte. */
DECODE void chunk_i4(float *y, const unsigned char *b, int c)
{
        const unsigned u = u32_at(b);
        const float d = bits_float(u & ~255u);
        const int zero = (int)(u & 255);
        const unsigned char *q = b + 4 + 16 * c;
        for (int j = 0; j < 16; j++) {
                y[j] = (float)((q[j] & 15) - zero) * d;
                y[j + 16] = (float)((q[j] >> 4) - zero) * d;
        }
}

DECODE void chunk_i8(float *y, const unsigned char *b, int c)
{
        const float d = bits_float(u32_at(b));
        const signed char *q = (const signed char *)b + 4 + 32 * c;
        for (int j = 0; j < 32; j++)
                y[j] = d * (float)q[j];
}

/* Of bitsandbytes, whose scale is of 127 steps: two roundings. */
DECODE void chunk_scb(float *y, const unsigned char *b, int c)
{
        const float d = bits_float(u32_at(b));
        const signed char *q = (const signed char *)b + 4 + 32 * c;
        for (int j = 0; j < 32; j++)
                y[j] = d * (float)q[j] * (1 / 127.f);
}

DECODE void chunk_f8(float *y, const unsigned char *b, int c)
{
        const float d = bits_float(u32_at(b));
        for (int j = 0; j < 32; j++) {
                float v;
                chunk_f8_e4m3(&v, b + 4 + 32 * c + j, 0);
                y[j] = d * v;
        }
}

#endif
