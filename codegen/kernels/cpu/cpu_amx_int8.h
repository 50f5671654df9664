/* cpu_amx_int8.h: cpu_stored_gemm.h's block by AMX.  Every 32 values of k have their own scales,
 * so each tile dot product yields integers, which are added to float32 sums: 16 rows by 16 columns
 * in 16 registers, while the tiles work on the next 32.  Bitwise equal to quant_block. */
#ifndef TGC_CPU_AMX_INT8_H
#define TGC_CPU_AMX_INT8_H

/* sum += d scale s, for 16 rows; plus m times the sums of x. */
TGC_INLINE void amx_take(const int32_t (*s)[16], const float *scale, const float *d, __m512 *y)
{
        const __m512 by = _mm512_loadu_ps(d);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
                y[i] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(s[i])),
                                                     _mm512_set1_ps(scale[i])),
                                       by, y[i]);
}

/* Columns 16 h .. of the panels; `rows` of the 16 exist. */
TGC_INLINE void amx_micro(int two, int mins, int rows, const QuantBlock *x, const QuantPanel *w,
                          int h, int chunks, float *c, long ldc, int add)
{
        int32_t s[2][16][16] __attribute__((aligned(64)));
        __m512 y[16];
        const int steps = two ? 2 * chunks : chunks;
#define AMX_STEP(n, C, A, B)                                                \
        do {                                                                \
                const int k_ = two ? (n) / 2 : (n), half_ = two && (n) % 2; \
                AMX_ZERO(C);                                                \
                AMX_LOAD(A, x[k_].q[0] + 16 * half_, QG_CHUNK);             \
                AMX_LOAD(B, w[k_].w[h][4 * half_], 64);                     \
                AMX_INT8(C, A, B);                                          \
                AMX_STORE(C, s[C], 64);                                     \
        } while (0)
#define AMX_TAKE(n, C)                                                                          \
        do {                                                                                    \
                const int k_ = two ? (n) / 2 : (n), half_ = two && (n) % 2;                     \
                amx_take((const int32_t(*)[16])s[C], x[k_].scale,                               \
                         (half_ ? w[k_].d1 : w[k_].d0) + 16 * h, y);                            \
                if (mins && (!two || half_)) {                                                  \
                        const __m512 m_ = _mm512_loadu_ps(w[k_].m + 16 * h);                    \
                        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++)                   \
                                y[i] = _mm512_fmadd_ps(m_, _mm512_set1_ps(x[k_].sum[i]), y[i]); \
                }                                                                               \
        } while (0)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
                y[i] = _mm512_setzero_ps();
        AMX_STEP(0, 0, 4, 6);
        for (int n = 0; n < steps; n += 2) {
                if (n + 1 < steps)
                        AMX_STEP(n + 1, 1, 5, 7);
                AMX_TAKE(n, 0);
                if (n + 2 < steps)
                        AMX_STEP(n + 2, 0, 4, 6);
                if (n + 1 < steps)
                        AMX_TAKE(n + 1, 1);
        }
#undef AMX_STEP
#undef AMX_TAKE
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++, c += ldc) {
                if (i >= rows)
                        continue;
                if (add)
                        y[i] = _mm512_add_ps(y[i], _mm512_loadu_ps(c));
                _mm512_storeu_ps(c, y[i]);
        }
}

/* As quant_block; but the panels' bytes are signed. */
TGC_NOINLINE TGC_QUANT_O3 void amx_block(int two, int mins, int m, int n, int chunks,
                                         const QuantBlock *x, long ldx, const QuantPanel *w,
                                         float *c, long ldc, int add)
{
        amx_configure(two ? amx_shapes(16, 16, 4) : amx_shapes(16, 32, 8));
        for (int i = 0; i < m; i += 16)
                for (int j = 0; j < n; j += 16)
                        if (two)
                                amx_micro(1, 0, m - i, x + i / 16 * ldx, w + j / 32 * chunks,
                                          j / 16 % 2, chunks, c + i * ldc + j, ldc, add);
                        else if (mins)
                                amx_micro(0, 1, m - i, x + i / 16 * ldx, w + j / 32 * chunks,
                                          j / 16 % 2, chunks, c + i * ldc + j, ldc, add);
                        else
                                amx_micro(0, 0, m - i, x + i / 16 * ldx, w + j / 32 * chunks,
                                          j / 16 % 2, chunks, c + i * ldc + j, ldc, add);
        AMX_RELEASE();
}

#endif
