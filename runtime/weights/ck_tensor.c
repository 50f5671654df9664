/* ck_tensor.c: the table of element types; moves and converts elements. */
#include "ck_tensor.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "../util/parallel.h"
#include "block_decode.h"

static const struct {
        const char *name;
        int gguf;
        unsigned short values, bytes;
        bool is_float;
} dtypes[CK_N_DTYPES] = {
#define STORAGE(e, name, gguf, values, bytes, is_float, decode) \
        { name, gguf, values, bytes, is_float },
#include "../../ir/storage.def"
};

static bool known(int dtype) { return dtype >= 0 && dtype < CK_N_DTYPES; }
static bool in_blocks(int dtype) { return dtypes[dtype].values > 1; }

size_t ck_dtype_size(int dtype)
{
        return known(dtype) && !in_blocks(dtype) ? dtypes[dtype].bytes : 0;
}

int ck_block_values(int dtype) { return known(dtype) ? dtypes[dtype].values : 1; }
size_t ck_block_bytes(int dtype) { return known(dtype) ? dtypes[dtype].bytes : 0; }
const char *ck_dtype_name(int dtype) { return known(dtype) ? dtypes[dtype].name : "?"; }
bool ck_dtype_is_float(int dtype) { return known(dtype) && dtypes[dtype].is_float; }

int ck_dtype_find(const char *name)
{
        for (int i = 0; i < CK_N_DTYPES; i++)
                if (!in_blocks(i) && !strcasecmp(name, dtypes[i].name))
                        return i;
        return -1;
}

int ck_blocks_find(const char *name)
{
        for (int i = 0; i < CK_N_DTYPES; i++)
                if (in_blocks(i) && dtypes[i].is_float && !strcmp(name, dtypes[i].name))
                        return i;
        return -1;
}

int ck_dtype_of_gguf(uint32_t ggml)
{
        for (int i = 0; i < CK_N_DTYPES; i++)
                if (dtypes[i].gguf >= 0 && (uint32_t)dtypes[i].gguf == ggml)
                        return i;
        return -1;
}

int ck_gguf_of_dtype(int dtype) { return known(dtype) ? dtypes[dtype].gguf : -1; }

CkTensor ck_as_blocks(const CkTensor *t, int dtype)
{
        CkTensor b = *t;
        if (t->packed && t->blocks && t->blocks == dtype) {
                b.dtype = dtype;
                b.bytes = t->bytes / ck_dtype_size(t->dtype) / dtypes[dtype].values *
                          dtypes[dtype].bytes;
        }
        return b;
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
        uint16_t h;

        ck_round_bf16(&h, &x, 1);
        return h;
}

float ck_f32_from_f16(uint16_t x) { return half_to_float(x); }

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

static bool is_copy(int dst_dtype, int src_dtype, Affine by)
{
        return dst_dtype == src_dtype && by.scale == 1 && by.shift == 0;
}

bool ck_can_convert(int dst_dtype, int src_dtype, Affine by)
{
        return known(dst_dtype) && known(src_dtype) &&
               (is_copy(dst_dtype, src_dtype, by) ||
                (ck_dtype_is_float(dst_dtype) && ck_dtype_is_float(src_dtype) &&
                 !in_blocks(dst_dtype)));
}

/* Elements at a time: the floats stay in L1, and blocks divide it. */
enum { BLOCK = 1024, PER_THREAD = 1 << 16 };

static void load_block(float *v, const unsigned char *src, int dtype, size_t n)
{
        if (dtype != CK_F64)
                ck_decode(v, src, dtype, n / dtypes[dtype].values);
        for (size_t i = 0; dtype == CK_F64 && i < n; i++) {
                double d;
                memcpy(&d, src + 8 * i, 8);
                v[i] = (float)d;
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
        case CK_BF16: ck_round_bf16(dst, v, n); break;
        default:
                for (i = 0; i < n; i++) {
                        uint16_t h = ck_f16_from_f32(v[i]);
                        memcpy(dst + 2 * i, &h, 2);
                }
        }
}

typedef struct Convert {
        unsigned char *dst;
        const unsigned char *src;
        int dst_dtype, src_dtype;
        size_t n;
        Affine by;
} Convert;

static void convert_piece(void *ctx, int i)
{
        const Convert *c = ctx;
        const size_t ds = dtypes[c->dst_dtype].bytes, ss = dtypes[c->src_dtype].bytes,
                     values = dtypes[c->src_dtype].values, from = (size_t)i * PER_THREAD,
                     end = c->n - from < PER_THREAD ? c->n : from + PER_THREAD;
        float v[BLOCK];

        for (size_t at = from, k; at < end; at += k) {
                k = end - at < BLOCK ? end - at : BLOCK;
                load_block(v, c->src + at / values * ss, c->src_dtype, k);
                if (c->by.scale != 1 || c->by.shift != 0)
                        for (size_t j = 0; j < k; j++)
                                v[j] = (float)((double)v[j] * c->by.scale + c->by.shift);
                store_block(c->dst + at * ds, c->dst_dtype, v, k);
        }
}

bool ck_convert_affine(void *dst, int dst_dtype, const void *src, int src_dtype, size_t n,
                       Affine by)
{
        Convert c = { dst, src, dst_dtype, src_dtype, n, by };

        if (!ck_can_convert(dst_dtype, src_dtype, by) || n % dtypes[src_dtype].values)
                return false;
        if (is_copy(dst_dtype, src_dtype, by)) {
                if (n)
                        memcpy(dst, src, n / dtypes[src_dtype].values * dtypes[src_dtype].bytes);
                return true;
        }
        const size_t pieces = (n + PER_THREAD - 1) / PER_THREAD;
        for (size_t i = 0; i < pieces;) { /* parallel_for counts in int */
                const int k = pieces - i < 1 << 14 ? (int)(pieces - i) : 1 << 14;
                c.n = n - i * PER_THREAD;
                parallel_for(k, k > 3 ? 64 : 1, convert_piece, &c);
                i += (size_t)k;
                c.dst += (size_t)k * PER_THREAD * dtypes[dst_dtype].bytes;
                c.src += (size_t)k * PER_THREAD / dtypes[src_dtype].values *
                         dtypes[src_dtype].bytes;
        }
        return true;
}

bool ck_convert(void *dst, int dst_dtype, const void *src, int src_dtype, size_t n, double scale)
{
        return ck_convert_affine(dst, dst_dtype, src, src_dtype, n, (Affine) { scale, 0 });
}

bool ck_name_ok(const char *s)
{
        for (; *s; s++)
                if ((unsigned char)*s < 0x20 || *s == 0x7f)
                        return false;
        return true;
}
