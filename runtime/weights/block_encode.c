/* block_encode.c: implements block_encode.h.  The layouts are those of block_decode.h. */
#include "block_encode.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../util/parallel.h"
#include "block_decode.h"
#include "block_search.h"

/* One block: x and its importance (NULL: none).  False: a scale is no finite half. */
typedef bool Encoder(uint8_t *to, const float *x, const float *importance);

static bool put_half(uint8_t *to, float v)
{
        const uint16_t h = ck_f16_from_f32(v);
        memcpy(to, &h, 2);
        return (h & 0x7c00) != 0x7c00;
}

static void put_nibbles(uint8_t *to, const uint8_t *q, int n)
{
        for (int j = 0; j < n; j++)
                to[j] = (uint8_t)((q[j] & 15) | (q[j + n] & 15) << 4);
}

static void put_high_bits(uint8_t *to, const uint8_t *q)
{
        memset(to, 0, 4);
        for (int j = 0; j < 32; j++)
                to[j / 8] |= (uint8_t)(q[j] >> 4 << j % 8);
}

/* ---- blocks of 32 ---- */

static uint8_t code(float v, int most) { return (uint8_t)(v > (float)most ? most : (int)v); }

static void ends(const float *x, float *low, float *high)
{
        *low = *high = x[0];
        for (int j = 1; j < 32; j++) {
                *low = x[j] < *low ? x[j] : *low;
                *high = x[j] > *high ? x[j] : *high;
        }
}

/* d * (q - half): the value farthest from 0 is -half. */
static float centred(uint8_t *q, const float *x, const float *importance, int half)
{
        float most = 0;
        if (importance) {
                int8_t value[32];
                float w[32];
                ValueBlock b = { .subs = 1,
                                 .len = 32,
                                 .values = 2 * half,
                                 .low = 1,
                                 .high = 1,
                                 .value = value };
                for (int i = 0; i < 2 * half; i++)
                        value[i] = (int8_t)(i - half);
                search_weights(w, x, 32, importance);
                search_values(&b, x, w);
                memcpy(q, b.q, 32);
                return b.d;
        }
        for (int j = 0; j < 32; j++)
                most = fabsf(x[j]) > fabsf(most) ? x[j] : most;
        const float d = most / (float)-half, by = d != 0 ? 1 / d : 0;
        for (int j = 0; j < 32; j++)
                q[j] = code(x[j] * by + ((float)half + 0.5f), 2 * half - 1);
        return d;
}

/* d * q + low */
static float from_low(uint8_t *q, const float *x, const float *importance, int most, float *low)
{
        float high;
        if (importance) {
                float w[32];
                MinBlock b = { .subs = 1, .len = 32, .most = most, .scales = 1 };
                float lowest, shifted[32];
                /* the minimum may be above 0 here: values are moved below it first */
                ends(x, &lowest, &high);
                const float up = lowest > 0 ? lowest : 0;
                for (int j = 0; j < 32; j++)
                        shifted[j] = x[j] - up;
                search_weights(w, x, 32, importance);
                search_min(&b, shifted, w);
                *low = up - b.m * (float)b.min[0];
                const float d = b.d * (float)b.scale[0], by = d > 0 ? 1 / d : 0;
                for (int j = 0; j < 32; j++) {
                        const float v = (x[j] - *low) * by + 0.5f;
                        q[j] = v < 0 ? 0 : code(v, most);
                }
                return d;
        }
        ends(x, low, &high);
        const float d = (high - *low) / (float)most, by = d != 0 ? 1 / d : 0;
        for (int j = 0; j < 32; j++)
                q[j] = code((x[j] - *low) * by + 0.5f, most);
        return d;
}

static bool encode_q4_0(uint8_t *to, const float *x, const float *importance)
{
        uint8_t q[32];
        const float d = centred(q, x, importance, 8);
        put_nibbles(to + 2, q, 16);
        return put_half(to, d);
}

static bool encode_q5_0(uint8_t *to, const float *x, const float *importance)
{
        uint8_t q[32];
        const float d = centred(q, x, importance, 16);
        put_high_bits(to + 2, q);
        put_nibbles(to + 6, q, 16);
        return put_half(to, d);
}

static bool encode_q4_1(uint8_t *to, const float *x, const float *importance)
{
        uint8_t q[32];
        float low;
        const float d = from_low(q, x, importance, 15, &low);
        put_nibbles(to + 4, q, 16);
        return put_half(to, d) & put_half(to + 2, low);
}

static bool encode_q5_1(uint8_t *to, const float *x, const float *importance)
{
        uint8_t q[32];
        float low;
        const float d = from_low(q, x, importance, 31, &low);
        put_high_bits(to + 4, q);
        put_nibbles(to + 8, q, 16);
        return put_half(to, d) & put_half(to + 2, low);
}

static bool encode_q8_0(uint8_t *to, const float *x, const float *importance)
{
        float most = 0;
        (void)importance; /* a block's scale is given by its largest value */
        for (int j = 0; j < 32; j++)
                most = fabsf(x[j]) > most ? fabsf(x[j]) : most;
        const float d = most / 127, by = d != 0 ? 1 / d : 0;
        for (int j = 0; j < 32; j++)
                to[2 + j] = (uint8_t)(int8_t)roundf(x[j] * by);
        return put_half(to, d);
}

static bool encode_mxfp4(uint8_t *to, const float *x, const float *importance)
{
        float most = 0, unit;
        uint8_t q[32];
        (void)importance; /* the scale is a power of two, given by the largest value */
        for (int j = 0; j < 32; j++)
                most = fabsf(x[j]) > most ? fabsf(x[j]) : most;
        const float e = most > 0 ? floorf(log2f(most)) - 2 + 127 : 0;
        to[0] = (uint8_t)(e < 0 ? 0 : e);
        const uint32_t u = to[0] < 2 ? 0x00200000u << to[0] : (uint32_t)(to[0] - 1) << 23;
        memcpy(&unit, &u, 4);
        for (int j = 0; j < 32; j++) {
                float best = INFINITY;
                for (int k = 0; k < 16; k++) {
                        const float off = fabsf(unit * (float)e2m1_values[k] - x[j]);
                        if (off < best) {
                                best = off;
                                q[j] = (uint8_t)k;
                        }
                }
        }
        put_nibbles(to + 1, q, 16);
        return true;
}

static bool encode_iq4_nl(uint8_t *to, const float *x, const float *importance)
{
        float w[32];
        ValueBlock b = {
                .subs = 1, .len = 32, .values = 16, .low = 1, .high = 1, .value = iq4_values
        };
        search_weights(w, x, 32, importance);
        search_values(&b, x, w);
        put_nibbles(to + 2, b.q, 16);
        return put_half(to, b.d);
}

/* ---- blocks of 256 ---- */

/* Weights of each part by itself. */
static void part_weights(float *w, const float *x, const float *importance, int subs, int len)
{
        for (int s = 0; s < subs; s++)
                search_weights(w + s * len, x + s * len, len,
                               importance ? importance + s * len : NULL);
}

/* Two bits of each of 256 codes, in the order of Q2_K and Q3_K. */
static void put_pairs(uint8_t *to, const uint8_t *q)
{
        memset(to, 0, 64);
        for (int i = 0; i < 256; i++)
                to[i / 128 * 32 + i % 32] |= (uint8_t)((q[i] & 3) << i % 128 / 32 * 2);
}

static bool encode_q2_k(uint8_t *to, const float *x, const float *importance)
{
        float w[256];
        MinBlock b = { .subs = 16, .len = 16, .most = 3, .scales = 15 };
        part_weights(w, x, importance, 16, 16);
        search_min(&b, x, w);
        for (int s = 0; s < 16; s++)
                to[s] = (uint8_t)(b.scale[s] | b.min[s] << 4);
        put_pairs(to + 16, b.q);
        return put_half(to + 80, b.d) & put_half(to + 82, b.m);
}

static bool encode_q3_k(uint8_t *to, const float *x, const float *importance)
{
        static const int8_t value[8] = { -4, -3, -2, -1, 0, 1, 2, 3 };
        float w[256];
        ValueBlock b = {
                .subs = 16, .len = 16, .values = 8, .low = -32, .high = 31, .value = value
        };
        part_weights(w, x, importance, 16, 16);
        search_values(&b, x, w);
        memset(to, 0, 110);
        for (int i = 0; i < 256; i++)
                to[i % 32] |= (uint8_t)(b.q[i] >> 2 << i / 32);
        put_pairs(to + 32, b.q);
        for (int s = 0; s < 16; s++) {
                const int scale = b.scale[s] + 32;
                to[96 + s % 8] |= (uint8_t)((scale & 15) << (s < 8 ? 0 : 4));
                to[104 + s % 4] |= (uint8_t)(scale >> 4 << s / 4 * 2);
        }
        return put_half(to + 108, b.d);
}

/* Eight scales and minima of 6 bits, as k_scale reads them. */
static void put_k_scales(uint8_t *to, const MinBlock *b)
{
        for (int j = 0; j < 4; j++) {
                const int scale = b->scale[j + 4], min = b->min[j + 4];
                to[j] = (uint8_t)(b->scale[j] | scale >> 4 << 6);
                to[j + 4] = (uint8_t)(b->min[j] | min >> 4 << 6);
                to[j + 8] = (uint8_t)((scale & 15) | (min & 15) << 4);
        }
}

static bool encode_q4_k(uint8_t *to, const float *x, const float *importance)
{
        float w[256];
        MinBlock b = { .subs = 8, .len = 32, .most = 15, .scales = 63 };
        part_weights(w, x, importance, 8, 32);
        search_min(&b, x, w);
        put_k_scales(to + 4, &b);
        for (int s = 0; s < 4; s++)
                put_nibbles(to + 16 + 32 * s, b.q + 64 * s, 32);
        return put_half(to, b.d) & put_half(to + 2, b.m);
}

static bool encode_q5_k(uint8_t *to, const float *x, const float *importance)
{
        float w[256];
        MinBlock b = { .subs = 8, .len = 32, .most = 31, .scales = 63 };
        part_weights(w, x, importance, 8, 32);
        search_min(&b, x, w);
        put_k_scales(to + 4, &b);
        memset(to + 16, 0, 32);
        for (int i = 0; i < 256; i++)
                to[16 + i % 32] |= (uint8_t)(b.q[i] >> 4 << i / 32);
        for (int s = 0; s < 4; s++)
                put_nibbles(to + 48 + 32 * s, b.q + 64 * s, 32);
        return put_half(to, b.d) & put_half(to + 2, b.m);
}

static bool encode_q6_k(uint8_t *to, const float *x, const float *importance)
{
        int8_t value[64];
        float w[256];
        ValueBlock b = {
                .subs = 16, .len = 16, .values = 64, .low = -128, .high = 127, .value = value
        };
        for (int i = 0; i < 64; i++)
                value[i] = (int8_t)(i - 32);
        part_weights(w, x, importance, 16, 16);
        search_values(&b, x, w);
        memset(to, 0, 192);
        for (int i = 0; i < 256; i++) {
                const int half = i / 128, part = i % 128 / 32, l = i % 32;
                to[64 * half + part % 2 * 32 + l] |= (uint8_t)((b.q[i] & 15) << part / 2 * 4);
                to[128 + 32 * half + l] |= (uint8_t)(b.q[i] >> 4 << 2 * part);
        }
        memcpy(to + 192, b.scale, 16);
        return put_half(to + 208, b.d);
}

static bool encode_iq4_xs(uint8_t *to, const float *x, const float *importance)
{
        float w[256];
        unsigned high = 0;
        ValueBlock b = {
                .subs = 8, .len = 32, .values = 16, .low = -32, .high = 31, .value = iq4_values
        };
        part_weights(w, x, importance, 8, 32);
        search_values(&b, x, w);
        memset(to, 0, 8);
        for (int s = 0; s < 8; s++) {
                const int scale = b.scale[s] + 32;
                to[4 + s / 2] |= (uint8_t)((scale & 15) << s % 2 * 4);
                high |= (unsigned)(scale >> 4) << 2 * s;
                put_nibbles(to + 8 + 16 * s, b.q + 32 * s, 16);
        }
        to[2] = (uint8_t)high;
        to[3] = (uint8_t)(high >> 8);
        return put_half(to, b.d);
}

/* ---- many ---- */

/* What a half times any type's codes and scales may reach, by far. */
static bool in_range(const float *x, int n)
{
        bool ok = true;
        for (int i = 0; i < n; i++)
                ok &= fabsf(x[i]) < 1e9f;
        return ok;
}

static Encoder *const encoders[CK_N_DTYPES] = {
        [CK_Q4_0] = encode_q4_0,   [CK_Q4_1] = encode_q4_1,     [CK_Q5_0] = encode_q5_0,
        [CK_Q5_1] = encode_q5_1,   [CK_Q8_0] = encode_q8_0,     [CK_Q2_K] = encode_q2_k,
        [CK_Q3_K] = encode_q3_k,   [CK_Q4_K] = encode_q4_k,     [CK_Q5_K] = encode_q5_k,
        [CK_Q6_K] = encode_q6_k,   [CK_IQ4_NL] = encode_iq4_nl, [CK_IQ4_XS] = encode_iq4_xs,
        [CK_MXFP4] = encode_mxfp4,
};

bool ck_can_encode(int dtype) { return dtype >= 0 && dtype < CK_N_DTYPES && encoders[dtype]; }

bool ck_can_weigh(int dtype)
{
        return ck_can_encode(dtype) && dtype != CK_Q8_0 && dtype != CK_MXFP4;
}

typedef struct Job {
        uint8_t *to;
        const float *x, *importance;
        int dtype;
        int64_t rows, cols, at_once;
        bool *failed;
} Job;

static void encode_rows(void *ctx, int i)
{
        const Job *j = ctx;
        const int64_t values = ck_block_values(j->dtype), bytes = (int64_t)ck_block_bytes(j->dtype),
                      from = i * j->at_once,
                      end = from + j->at_once < j->rows ? from + j->at_once : j->rows;
        for (int64_t r = from; r < end; r++)
                for (int64_t c = 0; c < j->cols; c += values) {
                        const int64_t at = r * j->cols + c;
                        if (j->dtype != CK_MXFP4 && !in_range(j->x + at, (int)values))
                                j->failed[i] = true;
                        else if (!encoders[j->dtype](j->to + at / values * bytes, j->x + at,
                                                     j->importance ? j->importance + c : NULL))
                                j->failed[i] = true;
                }
}

bool ck_encode(void *to, int dtype, const float *x, int64_t rows, int64_t cols,
               const float *importance)
{
        enum { PIECES = 256 };
        bool failed[PIECES + 1] = { false }, any = false;
        Job j = { to, x, importance, dtype, rows, cols, (rows + PIECES - 1) / PIECES, failed };
        if (rows < 1)
                return true;
        const int n = (int)((rows + j.at_once - 1) / j.at_once);
        parallel_for(n, 64, encode_rows, &j);
        for (int i = 0; i < n; i++)
                any |= failed[i];
        return !any;
}
