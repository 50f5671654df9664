/* packed_blocks.c: turns a Packed into blocks of storage.def with the same values.
 *
 *      4-bit floats            NF4, FP4 by the table of values; MXFP4 with scales of powers of two
 *      integers to 4 bits      I4_n, where scales have 16 bits
 *      8 bits                  I8_n; SCB_n, bitsandbytes'; F8_n
 *
 * n is the largest of 128, 64, 32 that divides a row and a group.  These are decoded instead: codes
 * of 8 bits with zero points, scales of two levels, columns whose groups are not in order. */
#include <string.h>
#include "block_decode.h"
#include "packed.h"

enum { I4, I8, SCB, F8, N_FORMS, SIZES = 3 };

static const int64_t sizes[SIZES] = { 128, 64, 32 };
static const int form[N_FORMS][SIZES] = { [I4] = { CK_I4_128, CK_I4_64, CK_I4_32 },
                                          [I8] = { CK_I8_128, CK_I8_64, CK_I8_32 },
                                          [SCB] = { CK_SCB_128, CK_SCB_64, CK_SCB_32 },
                                          [F8] = { CK_F8_128, CK_F8_64, CK_F8_32 } };

static bool is_table(const Codes *c, const float *value)
{
        return !memcmp(c->table, value, sizeof c->table);
}

static bool is_e2m1(const Codes *c)
{
        for (int i = 0; i < 16; i++)
                if (2 * c->table[i] != (float)e2m1_values[i])
                        return false;
        return true;
}

/* Is each column's group the one that it would have in order? */
static bool groups_in_order(const Packed *p)
{
        for (int64_t k = 0; p->group_of && k < p->code.cols; k++)
                if ((int64_t)(int32_t)u32_at(p->group_of + 4 * k) != k / p->group)
                        return false;
        return true;
}

/* Of 4-bit floats; size: of a form's block. */
static int of_floats(const Packed *p, int64_t size)
{
        if (p->zero.kind || p->times != 0)
                return 0;
        if (p->scale.dtype == CK_F8_E8M0)
                return is_e2m1(&p->code) && p->group == 32 ? CK_MXFP4 : 0;
        return size < 64                        ? 0
               : is_table(&p->code, nf4_values) ? CK_NF4
               : is_table(&p->code, fp4_values) ? CK_FP4
                                                : 0;
}

static int form_of(const Packed *p)
{
        const bool half = p->scale.dtype == CK_F16 || p->scale.dtype == CK_BF16,
                   zero = p->zero.kind != CODES_NONE;
        switch (p->code.kind) {
        case CODES_ROWS:
        case CODES_COLUMNS:
        case CODES_AWQ:
                return p->code.bits <= 4 && half && p->times == 0 &&
                                       (!zero || p->zero.bits == p->code.bits)
                               ? I4
                               : N_FORMS;
        case CODES_I8:
                return zero ? N_FORMS : p->times == 0 ? I8 : p->times == 1 / 127.f ? SCB : N_FORMS;
        case CODES_F8: return zero || p->times != 0 ? N_FORMS : F8;
        default: return N_FORMS;
        }
}

int packed_blocks(const Packed *p, int64_t cols)
{
        int i = 0;
        /* a flat tensor's blocks go on over the ends of rows */
        const int64_t group = p->code.cols == cols && p->groups == 1 ? cols : p->group;
        if (p->divide != 0 || p->swap || p->batch > 1 || !groups_in_order(p))
                return 0;
        while (i < SIZES && (cols % sizes[i] || group % sizes[i]))
                i++;
        if (i == SIZES)
                return 0;
        if (p->code.kind == CODES_LOW || p->code.kind == CODES_HIGH)
                return of_floats(p, sizes[i]);
        const int f = form_of(p);
        return f == N_FORMS ? 0 : form[f][i];
}

Codes packed_block_codes(const Packed *p)
{
        Codes c = p->code;
        for (int i = 0; i < 16; i++)
                c.table[i] = (float)i;
        if (c.kind == CODES_F8)
                c.kind = CODES_I8;
        else if (c.kind != CODES_I8)
                c.less = 0;
        return c;
}

static void put_u32(uint8_t *to, uint32_t u)
{
        for (int i = 0; i < 4; i++)
                to[i] = (uint8_t)(u >> 8 * i);
}

/* 32 codes each: low nibbles, then high ones. */
static void put_nibbles(uint8_t *to, const float *code, int64_t n)
{
        for (int64_t at = 0; at < n; at += 32, to += 16)
                for (int j = 0; j < 16; j++)
                        to[j] = (uint8_t)((unsigned)code[at + j] | (unsigned)code[at + 16 + j]
                                                                           << 4);
}

static void put_bytes(uint8_t *to, const float *code, int64_t n)
{
        for (int64_t i = 0; i < n; i++)
                to[i] = (uint8_t)(int)code[i];
}

void packed_block_row(const Packed *p, int dtype, const float *scale, const float *zero,
                      const float *code, int64_t n, uint8_t *to)
{
        const int64_t values = ck_block_values(dtype);
        const bool nibbles = p->code.kind != CODES_I8 && p->code.kind != CODES_F8,
                   integers = nibbles && p->code.kind != CODES_LOW && p->code.kind != CODES_HIGH;
        for (int64_t c = 0; c < n; c += values, to += ck_block_bytes(dtype)) {
                const int64_t g = c / p->group;
                uint32_t head;
                memcpy(&head, scale + g, 4);
                if (dtype == CK_MXFP4) {
                        to[0] = (uint8_t)(head >> 23);
                        put_nibbles(to + 1, code + c, values);
                        continue;
                }
                if (integers)
                        head |= (uint32_t)((zero ? (int)zero[g] : 0) + p->code.less);
                put_u32(to, head);
                if (nibbles)
                        put_nibbles(to + 4, code + c, values);
                else
                        put_bytes(to + 4, code + c, values);
        }
}
