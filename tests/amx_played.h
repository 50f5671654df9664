/* amx_played.h: cpu_amx.h's tiles in plain C; shapes that the instructions refuse abort. */
#ifndef TGC_AMX_PLAYED_H
#define TGC_AMX_PLAYED_H

#include <stdlib.h>
#include <string.h>

static struct {
        int on;
        int bytes[8], rows[8];
        uint8_t tile[8][16][64];
} amx;

static void amx_configure(AmxConfig c)
{
        amx.on = c.palette == 1;
        memset(amx.tile, 0, sizeof amx.tile);
        for (int i = 0; i < 8; i++) {
                amx.bytes[i] = c.bytes[i];
                amx.rows[i] = c.rows[i];
                if (c.bytes[i] > 64 || c.rows[i] > 16 || c.bytes[i] % 4)
                        abort();
        }
}

static void amx_need(int ok)
{
        if (!ok || !amx.on)
                abort();
}

static void amx_load(int t, const void *p, long stride)
{
        amx_need(1);
        memset(amx.tile[t], 0, sizeof amx.tile[t]);
        for (int r = 0; r < amx.rows[t]; r++)
                memcpy(amx.tile[t][r], (const char *)p + r * stride, (size_t)amx.bytes[t]);
}

static void amx_store(int t, void *p, long stride)
{
        amx_need(1);
        for (int r = 0; r < amx.rows[t]; r++)
                memcpy((char *)p + r * stride, amx.tile[t][r], (size_t)amx.bytes[t]);
}

/* C's words that a dot product adds to: op(sum, four bytes of A, four of B). */
static void amx_dot(int c, int a, int b, void (*op)(void *, const void *, const void *))
{
        amx_need(amx.rows[c] == amx.rows[a] && amx.bytes[c] == amx.bytes[b] &&
                 amx.bytes[a] == 4 * amx.rows[b] && c != a && c != b && a != b);
        for (int i = 0; i < amx.rows[c]; i++)
                for (int k = 0; k < amx.rows[b]; k++)
                        for (int j = 0; j < amx.bytes[c]; j += 4)
                                op(&amx.tile[c][i][j], &amx.tile[a][i][4 * k], &amx.tile[b][k][j]);
}

static void amx_op_int8(void *to, const void *x, const void *y)
{
        int32_t s;
        const int8_t *a = x, *b = y;
        memcpy(&s, to, 4);
        for (int i = 0; i < 4; i++)
                s += a[i] * b[i];
        memcpy(to, &s, 4);
}

/* A processor without AVX-512 BF16 compiles no product of bf16 tiles. */
__attribute__((unused)) static void amx_op_bf16(void *to, const void *x, const void *y)
{
        float s;
        bf16 a[2], b[2];
        memcpy(&s, to, 4), memcpy(a, x, 4), memcpy(b, y, 4);
        for (int i = 0; i < 2; i++)
                s += bf16_to_float(a[i]) * bf16_to_float(b[i]);
        memcpy(to, &s, 4);
}

static int amx_uses, amx_refused;
static int amx_allowed(void) { return !amx_refused; }
#define AMX_ZERO(t) memset(amx.tile[t], 0, sizeof amx.tile[t])
#define AMX_LOAD(t, p, stride) amx_load(t, p, (long)(stride))
#define AMX_STORE(t, p, stride) amx_store(t, p, (long)(stride))
#define AMX_INT8(c, a, b) (amx_uses++, amx_dot(c, a, b, amx_op_int8))
#define AMX_BF16(c, a, b) (amx_uses++, amx_dot(c, a, b, amx_op_bf16))
#define AMX_RELEASE() (amx.on = 0)

#endif
