/* block_random.c: blocks for a model that has no weights: random codes, whose values have the spread
 * that was asked for, all of them finite.  The same on every machine and for every number of
 * threads: word k of block i is a hash of (seed, i, k). */
#include <math.h>
#include <string.h>
#include "ck_tensor.h"

/* How a type scales its codes, and where: halves at d and, less a minimum or plus one, at m, which
 * is `centre` times d so that the mean is 0; or E8M0 or four E4M3 at the block's beginning. */
typedef struct Scales {
        enum { HALVES, POWER, FOUR_SMALL } kind;
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

static void set_scale(uint8_t *b, const Scales *s, float d)
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
                set_scale(b, &scales[dtype], 1);
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
                set_scale(b, s, d * u * (s->kind == HALVES && key & 1 ? -1 : 1));
        }
}
