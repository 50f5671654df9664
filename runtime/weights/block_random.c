/* block_random.c: random blocks for a model without weights.  Values are finite and have the spread
 * that was asked for.  The bytes are the same on every machine and for every number of threads:
 * word k of block i is a hash of (seed, i, k). */
#include <math.h>
#include <string.h>
#include "ck_tensor.h"

/* How a type scales its codes, and where: halves at d and, less a minimum or plus one, at m, which
 * is `centre` times d so that the mean is 0; or E8M0 or four E4M3 at the block's beginning; or
 * float32 there, of WIDE_I4 with a zero point of 8 in its last byte, of WIDE_F8 before codes that
 * may be NaN. */
typedef struct Scales {
        enum { HALVES, POWER, FOUR_SMALL, WIDE, WIDE_I4, WIDE_F8 } kind;
        int d, m; /* m -1: none */
        float centre;
} Scales;

static const Scales scales[CK_N_DTYPES] = {
        [CK_Q4_0] = { HALVES, 0, -1, 0 },    [CK_Q4_1] = { HALVES, 0, 2, -7.5f },
        [CK_Q5_0] = { HALVES, 0, -1, 0 },    [CK_Q5_1] = { HALVES, 0, 2, -15.5f },
        [CK_Q8_0] = { HALVES, 0, -1, 0 },    [CK_Q2_K] = { HALVES, 80, 82, 1.5f },
        [CK_Q3_K] = { HALVES, 108, -1, 0 },  [CK_Q4_K] = { HALVES, 0, 2, 7.5f },
        [CK_Q5_K] = { HALVES, 0, 2, 15.5f }, [CK_Q6_K] = { HALVES, 208, -1, 0 },
        [CK_IQ4_NL] = { HALVES, 0, -1, 0 },  [CK_IQ4_XS] = { HALVES, 0, -1, 0 },
        [CK_MXFP4] = { POWER, 0, -1, 0 },    [CK_NVFP4] = { FOUR_SMALL, 0, -1, 0 },
        [CK_NF4] = { WIDE, 0, -1, 0 },       [CK_FP4] = { WIDE, 0, -1, 0 },
        [CK_I4_32] = { WIDE_I4, 0, -1, 0 },  [CK_I4_64] = { WIDE_I4, 0, -1, 0 },
        [CK_I4_128] = { WIDE_I4, 0, -1, 0 }, [CK_I8_32] = { WIDE, 0, -1, 0 },
        [CK_I8_64] = { WIDE, 0, -1, 0 },     [CK_I8_128] = { WIDE, 0, -1, 0 },
        [CK_SCB_32] = { WIDE, 0, -1, 0 },    [CK_SCB_64] = { WIDE, 0, -1, 0 },
        [CK_SCB_128] = { WIDE, 0, -1, 0 },   [CK_F8_32] = { WIDE_F8, 0, -1, 0 },
        [CK_F8_64] = { WIDE_F8, 0, -1, 0 },  [CK_F8_128] = { WIDE_F8, 0, -1, 0 },
};

static uint64_t mix(uint64_t x)
{
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        return x ^ x >> 31;
}

static void put_half(uint8_t *b, float v)
{
        const uint16_t h = ck_f16_from_f32(v);
        b[0] = (uint8_t)h;
        b[1] = (uint8_t)(h >> 8);
}

/* The E4M3 nearest to v, 0 <= v < 240. */
static uint8_t small_float(float v)
{
        int e;
        const float f = frexpf(v, &e); /* v = f 2^e, f in [1/2, 1) */
        const int up = e + 6;          /* the exponent's bits, where it is no subnormal */
        return (uint8_t)(up < 1 ? lrintf(v * 512) : (up << 3) + lrintf((f - 0.5f) * 16));
}

static void put_float(uint8_t *b, float v) { memcpy(b, &v, sizeof v); }

static void set_scale(uint8_t *b, size_t bytes, const Scales *s, float d)
{
        int e;
        switch (s->kind) {
        case HALVES:
                put_half(b + s->d, d);
                if (s->m >= 0)
                        put_half(b + s->m, d * s->centre);
                break;
        case POWER:
                (void)frexpf(d, &e);
                b[0] = (uint8_t)(e + 126);
                break;
        case WIDE: put_float(b, d); break;
        case WIDE_I4:
                put_float(b, ck_f32_from_bf16(ck_bf16_from_f32(d)));
                b[0] = 8;
                break;
        case WIDE_F8:
                put_float(b, d);
                for (size_t i = 4; i < bytes; i++)
                        b[i] ^= (b[i] & 0x7f) == 0x7f;
                break;
        default:
                for (int i = 0; i < 4; i++)
                        b[i] = small_float(d * (1 + 0.25f * (float)i));
        }
}

static void random_codes(uint8_t *b, size_t bytes, uint64_t key)
{
        for (size_t k = 0; k < bytes; k += 8) {
                const uint64_t word = mix(key + k * 0x9e3779b97f4a7c15u);
                memcpy(b + k, &word, bytes - k < 8 ? bytes - k : 8);
        }
}

/* Root of the mean square of values whose block's scale is 1. */
static float spread_of(int dtype)
{
        enum { N = 64 };
        uint8_t b[512];
        float y[256];
        double sum = 0;
        const int values = ck_block_values(dtype);
        for (int i = 0; i < N; i++) {
                random_codes(b, ck_block_bytes(dtype), mix((uint64_t)i));
                set_scale(b, ck_block_bytes(dtype), &scales[dtype], 1);
                ck_decode(y, b, dtype, 1);
                for (int k = 0; k < values; k++)
                        sum += (double)y[k] * y[k];
        }
        return (float)sqrt(sum / (N * values));
}

void ck_random_blocks(void *out, int dtype, uint64_t first, size_t n, float std, uint64_t seed)
{
        const size_t bytes = ck_block_bytes(dtype);
        const Scales *s = &scales[dtype];
        const float d = std / spread_of(dtype);
        uint8_t *b = out;
        for (size_t i = 0; i < n; i++, b += bytes) {
                const uint64_t key = mix(mix(seed) + first + i);
                const float u = 0.5f + (float)(mix(key + 1) >> 40) * 0x1p-24f;
                random_codes(b, bytes, key);
                set_scale(b, bytes, s, d * u * (s->kind == HALVES && key & 1 ? -1 : 1));
        }
}
