/* packed.c: decodes a Packed, a few rows at a time on each thread. */
#include "packed.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../util/parallel.h"
#include "block_decode.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

enum { TILE = 16 }; /* rows at a time: COLUMNS has them next to each other, a cache line of words */

typedef struct Job {
        const Packed *p;
        Codes code;                /* p's, as elements or as blocks want them */
        const float *scale, *zero; /* (scale_rows, groups) */
        uint8_t *to;
        int dtype;
        bool *failed; /* of each tile: no memory */
} Job;

/* ---- codes ---- */

static uint32_t word_at(const uint8_t *b, int64_t i) { return u32_at(b + 4 * i); }

/* Bits at .. at + bits of words that lie `stride` apart. */
static int bits_at(const uint8_t *words, int64_t stride, int64_t at, int bits)
{
        const int64_t w = at / 32;
        const int first = (int)(at % 32);
        uint64_t v = word_at(words, w * stride);
        if (first + bits > 32)
                v |= (uint64_t)word_at(words, (w + 1) * stride) << 32;
        return (int)(v >> first & ((1u << bits) - 1));
}

static void rows_of_bits(const Codes *c, int64_t row, int64_t n, float *y)
{
        const int64_t words = (c->cols * c->bits + 31) / 32;
        for (int64_t r = 0; r < n; r++, y += c->cols)
                for (int64_t k = 0; k < c->cols; k++)
                        y[k] = (float)(bits_at(c->data + 4 * (row + r) * words, 1, k * c->bits,
                                               c->bits) -
                                       c->less);
}

static void columns_of_bits(const Codes *c, int64_t row, int64_t n, float *y)
{
        for (int64_t k = 0; k < c->cols; k++)
                for (int64_t r = 0; r < n; r++)
                        y[r * c->cols + k] = (float)(bits_at(c->data + 4 * (row + r), c->rows,
                                                             k * c->bits, c->bits) -
                                                     c->less);
}

static void awq(const Codes *c, int64_t row, int64_t n, float *y)
{
        static const int place[8] = { 0, 4, 1, 5, 2, 6, 3, 7 }; /* of column k within a word */
        for (int64_t k = 0; k < c->cols; k++)
                for (int64_t r = 0; r < n; r++) {
                        const uint32_t w = word_at(c->data, k * (c->rows / 8) + (row + r) / 8);
                        y[r * c->cols + k] = (float)(w >> 4 * place[(row + r) % 8] & 15);
                }
}

/* n rows from `row` on; the last may lie partly beyond `count` values, and is then not all read. */
static void read_codes(const Codes *c, int64_t row, int64_t n, int64_t count, float *y)
{
        const int64_t from = row * c->cols, end = from + n * c->cols,
                      last = end < count ? end : count;
        switch (c->kind) {
        case CODES_NONE: break;
        case CODES_ROWS: rows_of_bits(c, row, n, y); break;
        case CODES_COLUMNS: columns_of_bits(c, row, n, y); break;
        case CODES_AWQ: awq(c, row, n, y); break;
        case CODES_I8:
                for (int64_t i = from; i < last; i++)
                        y[i - from] = (float)(int8_t)c->data[i];
                break;
        case CODES_F8:
                for (int64_t i = from; i < last; i++)
                        chunk_f8_e4m3(&y[i - from], c->data + i, 0);
                break;
        case CODES_LOW:
        case CODES_HIGH: {
                const int even = c->kind == CODES_LOW ? 0 : 4;
                for (int64_t i = from; i < last; i++)
                        y[i - from] = c->table[c->data[i / 2] >> (i % 2 ? 4 - even : even) & 15];
        }
        }
}

/* ---- scales and zero points ---- */

static float *transposed(float *m, int64_t rows, int64_t cols)
{
        float *t = m ? malloc(((size_t)(rows * cols) + 1) * sizeof *t) : NULL;
        for (int64_t r = 0; t && r < rows; r++)
                for (int64_t c = 0; c < cols; c++)
                        t[c * rows + r] = m[r * cols + c];
        free(m);
        return t;
}

static float f32_at(const uint8_t *b, int64_t i)
{
        float v;
        memcpy(&v, b + 4 * i, 4);
        return v;
}

static int read_scales(const CkTensor *t, float **out, Err *e)
{
        const Packed *p = t->packed;
        const int64_t n = p->scale_rows * p->groups;
        float *s = malloc(((size_t)n + 1) * sizeof *s);
        if (!s)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory to decode %.200s", p->file,
                               t->name);
        if (p->map)
                for (int64_t i = 0; i < n; i++) {
                        const float by = f32_at(p->map, ((const uint8_t *)p->scale.data)[i]) *
                                         f32_at(p->nested, i / p->nested_block);
                        s[i] = by + p->offset;
                }
        else
                ck_convert(s, CK_F32, p->scale.data, p->scale.dtype, (size_t)n, 1);
        for (int64_t i = 0; i < n; i++) {
                if (p->divide != 0)
                        s[i] /= p->divide;
                if (!isfinite(s[i])) {
                        const double v = s[i];
                        free(s);
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: tensor %.200s: scale %lld of %lld is %g, and scales "
                                       "must be finite",
                                       p->file, p->scale.name, (long long)i, (long long)n, v);
                }
        }
        if (p->scale_across && !(s = transposed(s, p->groups, p->scale_rows)))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory to decode %.200s", p->file,
                               t->name);
        *out = s;
        return TGC_OK;
}

static int read_zeros(const CkTensor *t, float **out, Err *e)
{
        const Packed *p = t->packed;
        const int64_t n = p->zero.rows * p->zero.cols;
        float *z = malloc(((size_t)n + 1) * sizeof *z);
        if (z)
                read_codes(&p->zero, 0, p->zero.rows, n, z);
        if (p->zero_across)
                z = transposed(z, p->zero.rows, p->zero.cols);
        *out = z;
        return z ? TGC_OK
                 : err_set(e, TGC_NO_MEMORY, "%s: no memory to decode %.200s", p->file, t->name);
}

static int check_groups(const CkTensor *t, Err *e)
{
        const Packed *p = t->packed;
        for (int64_t c = 0; p->group_of && c < p->code.cols; c++) {
                const int32_t g = (int32_t)word_at(p->group_of, c);
                if (g < 0 || g >= p->groups)
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: tensor %.200s: g_idx of column %lld is %d, and there "
                                       "are %lld groups",
                                       p->file, t->name, (long long)c, g, (long long)p->groups);
        }
        return TGC_OK;
}

/* ---- values ---- */

static void scale_row(const Job *j, int64_t row, int64_t n, float *y)
{
        const Packed *p = j->p;
        const int64_t first = row / p->block_rows * p->groups;
        const float *s = j->scale + first, *z = j->zero ? j->zero + first : NULL;
        if (p->group_of) {
                for (int64_t c = 0; c < n; c++) {
                        const int64_t g = word_at(p->group_of, c);
                        y[c] = (y[c] - (z ? z[g] : 0)) * s[g];
                }
        } else {
                for (int64_t c = 0, g = 0; c < n; g++) {
                        const int64_t end = c + p->group < n ? c + p->group : n;
                        const float by = s[g], less = z ? z[g] : 0;
                        for (; c < end; c++)
                                y[c] = (y[c] - less) * by;
                }
        }
        for (int64_t c = 0; p->times != 0 && c < n; c++)
                y[c] *= p->times;
}

static void store(const Job *j, int64_t at, const float *v, int64_t n)
{
        if (j->dtype == CK_BF16)
                ck_round_bf16(j->to + 2 * at, v, (size_t)n);
        else
                memcpy(j->to + 4 * at, v, (size_t)n * 4);
}

/* n rows of one matrix of the batch as columns: `some` next to each other for each column. */
static void store_swapped(const Job *j, int64_t row, int64_t n, const float *v)
{
        const int64_t cols = j->p->code.cols, rows = j->p->code.rows / j->p->batch;
        for (int64_t r = 0, some; r < n; r += some) {
                const int64_t b = (row + r) / rows, in = (row + r) % rows;
                some = rows - in < n - r ? rows - in : n - r;
                for (int64_t c = 0; c < cols; c++) {
                        float line[TILE];
                        for (int64_t k = 0; k < some; k++)
                                line[k] = v[(r + k) * cols + c];
                        store(j, (b * cols + c) * rows + in, line, some);
                }
        }
}

static void unpack_tile(void *ctx, int i)
{
        const Job *j = ctx;
        const Codes *c = &j->code;
        const int64_t row = (int64_t)i * TILE, n = c->rows - row < TILE ? c->rows - row : TILE;
        const size_t values = (size_t)ck_block_values(j->dtype), size = ck_block_bytes(j->dtype);
        float *y = malloc((size_t)(n * c->cols) * sizeof *y);
        j->failed[i] = !y;
        if (!y)
                return;
        read_codes(c, row, n, j->p->count, y);
        for (int64_t r = 0; r < n; r++) {
                const int64_t left = j->p->count - (row + r) * c->cols,
                              k = left < c->cols ? left : c->cols,
                              first = (row + r) / j->p->block_rows * j->p->groups;
                if (values > 1) {
                        packed_block_row(j->p, j->dtype, j->scale + first,
                                         j->zero ? j->zero + first : NULL, y + r * c->cols, k,
                                         j->to + (size_t)((row + r) * c->cols) / values * size);
                        continue;
                }
                scale_row(j, row + r, k, y + r * c->cols);
                if (!j->p->swap)
                        store(j, (row + r) * c->cols, y + r * c->cols, k);
        }
        if (j->p->swap)
                store_swapped(j, row, n, y);
        free(y);
}

int ck_unpack(const CkTensor *t, void *to, Err *e)
{
        const Packed *p = t->packed;
        const int64_t tiles = (p->code.rows + TILE - 1) / TILE;
        float *scale = NULL, *zero = NULL;
        bool *failed = tiles < INT32_MAX ? calloc((size_t)tiles + 1, 1) : NULL;
        int rc = failed ? check_groups(t, e)
                        : err_set(e, TGC_NO_MEMORY, "%s: no memory to decode %.200s", p->file,
                                  t->name);
        if (!rc)
                rc = read_scales(t, &scale, e);
        if (!rc && p->zero.kind)
                rc = read_zeros(t, &zero, e);
        if (!rc) {
                const bool blocks = ck_block_values(t->dtype) > 1;
                Job j = { p,     blocks ? packed_block_codes(p) : p->code,
                          scale, zero,
                          to,    t->dtype,
                          failed };
                parallel_for((int)tiles, 64, unpack_tile, &j);
                for (int64_t i = 0; i < tiles && !rc; i++)
                        if (failed[i])
                                rc = err_set(e, TGC_NO_MEMORY, "%s: no memory to decode %.200s",
                                             p->file, t->name);
        }
        free(failed);
        free(scale);
        free(zero);
        return rc;
}
