/* ck_tensor.c: the table of element types, and moving elements between them. */
#include "ck_tensor.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
        const char *name;
        unsigned char size, is_float;
} dtypes[CK_N_DTYPES] = {
        [CK_F64] = { "F64", 8, 1 },   [CK_F32] = { "F32", 4, 1 }, [CK_F16] = { "F16", 2, 1 },
        [CK_BF16] = { "BF16", 2, 1 }, [CK_I64] = { "I64", 8, 0 }, [CK_I32] = { "I32", 4, 0 },
        [CK_I16] = { "I16", 2, 0 },   [CK_I8] = { "I8", 1, 0 },   [CK_U8] = { "U8", 1, 0 },
        [CK_BOOL] = { "BOOL", 1, 0 },
};

static bool known(int dtype) { return dtype >= 0 && dtype < CK_N_DTYPES; }

size_t ck_dtype_size(int dtype) { return known(dtype) ? dtypes[dtype].size : 0; }
const char *ck_dtype_name(int dtype) { return known(dtype) ? dtypes[dtype].name : "?"; }
bool ck_dtype_is_float(int dtype) { return known(dtype) && dtypes[dtype].is_float; }

int ck_dtype_find(const char *name)
{
        for (int i = 0; i < CK_N_DTYPES; i++)
                if (!strcasecmp(name, dtypes[i].name))
                        return i;
        return -1;
}

bool ck_count(int rank, const int64_t *dim, int64_t *count)
{
        int64_t n = 1;
        bool zero = false;

        for (int i = 0; i < rank; i++) {
                if (dim[i] < 0)
                        return false;
                if (dim[i] == 0)
                        zero = true;
                else if (__builtin_mul_overflow(n, dim[i], &n) || n > INT64_MAX / 8)
                        return false;
        }
        *count = zero ? 0 : n;
        return true;
}

const char *ck_shape_text(char *buf, size_t size, int rank, const int64_t *dim)
{
        size_t at = 0;

        if (!size)
                return "";
        for (int i = 0; i <= rank && at < size; i++) {
                int n = i < rank ? snprintf(buf + at, size - at, "%s%lld", i ? "," : "[",
                                            (long long)dim[i])
                                 : snprintf(buf + at, size - at, "%s", rank ? "]" : "[]");
                at += (size_t)n;
        }
        return buf;
}

float ck_f32_from_bf16(uint16_t x)
{
        uint32_t u = (uint32_t)x << 16;
        float f;
        memcpy(&f, &u, 4);
        return f;
}

uint16_t ck_bf16_from_f32(float x)
{
        uint32_t u;

        memcpy(&u, &x, 4);
        if ((u & 0x7fffffffu) >
            0x7f800000u) /* keep a NaN a NaN: rounding could carry it to infinity */
                return (uint16_t)(u >> 16 | 0x40);
        return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

float ck_f32_from_f16(uint16_t x)
{
        uint32_t sign = (uint32_t)(x & 0x8000) << 16, exp = x >> 10 & 31, man = x & 0x3ff, u;
        float f;

        if (exp == 0) { /* zero, subnormal: man * 2^-24 */
                f = (float)man * 0x1p-24f;
                return sign ? -f : f;
        }
        u = exp == 31 ? sign | 0x7f800000u | man << 13 : sign | (exp + 112) << 23 | man << 13;
        memcpy(&f, &u, 4);
        return f;
}

uint16_t ck_f16_from_f32(float x)
{
        uint32_t u, sign, man, half;
        int exp, shift;

        memcpy(&u, &x, 4);
        sign = u >> 16 & 0x8000;
        u &= 0x7fffffffu;
        if (u >= 0x7f800000u)
                return (uint16_t)(sign | 0x7c00 |
                                  (u > 0x7f800000u ? 0x200 | (u >> 13 & 0x3ff) : 0));
        if (u >= 0x477ff000u) /* 65520 and above round to infinity */
                return (uint16_t)(sign | 0x7c00);
        exp = (int)(u >> 23) - 112;
        if (exp > 0) { /* normal: drop 13 bits; a carry enters the exponent rightly */
                u -= 112u << 23;
                return (uint16_t)(sign | (u + 0xfff + (u >> 13 & 1)) >> 13);
        }
        if (exp < -10) /* below half the smallest subnormal */
                return (uint16_t)sign;
        man = (u & 0x7fffff) | 0x800000;
        shift = 14 - exp; /* 14 .. 24 */
        half = man >> shift;
        man &= (1u << shift) - 1;
        if (man > 1u << (shift - 1) || (man == 1u << (shift - 1) && (half & 1)))
                half++;
        return (uint16_t)(sign | half);
}

bool ck_can_convert(int dst_dtype, int src_dtype, double scale)
{
        return known(dst_dtype) && ((dst_dtype == src_dtype && scale == 1) ||
                                    (ck_dtype_is_float(dst_dtype) && ck_dtype_is_float(src_dtype)));
}

enum { BLOCK = 1024 }; /* elements at a time: the floats stay in L1 */

static void load_block(float *v, const unsigned char *src, int dtype, size_t n)
{
        size_t i;

        switch (dtype) {
        case CK_F64:
                for (i = 0; i < n; i++) {
                        double d;
                        memcpy(&d, src + 8 * i, 8);
                        v[i] = (float)d;
                }
                break;
        case CK_F32: memcpy(v, src, 4 * n); break;
        case CK_BF16:
                for (i = 0; i < n; i++) {
                        uint16_t h;
                        memcpy(&h, src + 2 * i, 2);
                        v[i] = ck_f32_from_bf16(h);
                }
                break;
        default:
                for (i = 0; i < n; i++) {
                        uint16_t h;
                        memcpy(&h, src + 2 * i, 2);
                        v[i] = ck_f32_from_f16(h);
                }
        }
}

static void store_block(unsigned char *dst, int dtype, const float *v, size_t n)
{
        size_t i;

        switch (dtype) {
        case CK_F64:
                for (i = 0; i < n; i++) {
                        double d = v[i];
                        memcpy(dst + 8 * i, &d, 8);
                }
                break;
        case CK_F32: memcpy(dst, v, 4 * n); break;
        case CK_BF16:
                for (i = 0; i < n; i++) {
                        uint16_t h = ck_bf16_from_f32(v[i]);
                        memcpy(dst + 2 * i, &h, 2);
                }
                break;
        default:
                for (i = 0; i < n; i++) {
                        uint16_t h = ck_f16_from_f32(v[i]);
                        memcpy(dst + 2 * i, &h, 2);
                }
        }
}

bool ck_convert(void *dst, int dst_dtype, const void *src, int src_dtype, size_t n, double scale)
{
        size_t ds = ck_dtype_size(dst_dtype), ss = ck_dtype_size(src_dtype);
        unsigned char *d = dst;
        const unsigned char *s = src;
        float v[BLOCK];

        if (!ck_can_convert(dst_dtype, src_dtype, scale))
                return false;
        if (dst_dtype == src_dtype && scale == 1) {
                if (n)
                        memcpy(dst, src, n * ds);
                return true;
        }
        while (n) {
                size_t k = n < BLOCK ? n : BLOCK;

                load_block(v, s, src_dtype, k);
                if (scale != 1)
                        for (size_t i = 0; i < k; i++)
                                v[i] = (float)((double)v[i] * scale);
                store_block(d, dst_dtype, v, k);
                d += k * ds;
                s += k * ss;
                n -= k;
        }
        return true;
}

bool ck_name_ok(const char *s)
{
        for (; *s; s++)
                if ((unsigned char)*s < 0x20 || *s == 0x7f)
                        return false;
        return true;
}
