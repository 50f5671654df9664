/* stored_blocks.h: random blocks of every type of ir/storage.def, for tests of kernels. */
#ifndef TGC_TEST_STORED_BLOCKS_H
#define TGC_TEST_STORED_BLOCKS_H

#include <string.h>
#include "stored.cuh"

#define STORAGE(e, name, gguf, values, bytes, is_float, decode)
#define BLOCKS(e, name, gguf, values, bytes, decode) TGC_STORED_TYPE(e, values, bytes, decode)
#include "../../ir/storage.def"

static unsigned blocks_seed = 1;
static unsigned blocks_random()
{
        blocks_seed = blocks_seed * 1664525u + 1013904223u;
        return blocks_seed >> 8;
}

/* A half between 2^-8 and 2^-5, or less than 0. */
static void blocks_half(unsigned char *p)
{
        const unsigned h = 0x1c00u + blocks_random() % 0x0c00u + (blocks_random() & 1) * 0x8000u;
        p[0] = (unsigned char)h;
        p[1] = (unsigned char)(h >> 8);
}

/* What a type has at the beginning or the end of a block that random bits would make too large. */
static void blocks_scale(const char *type, unsigned char *p, int bytes)
{
        static const struct {
                const char *type;
                int at[2];
        } halves[] = { { "Q4_0", { 0, -1 } },   { "Q4_1", { 0, 2 } },    { "Q5_0", { 0, -1 } },
                       { "Q5_1", { 0, 2 } },    { "Q8_0", { 0, -1 } },   { "Q2_K", { 80, 82 } },
                       { "Q3_K", { 108, -1 } }, { "Q4_K", { 0, 2 } },    { "Q5_K", { 0, 2 } },
                       { "Q6_K", { 208, -1 } }, { "IQ4_NL", { 0, -1 } }, { "IQ4_XS", { 0, -1 } } };
        for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
                if (!strcmp(type, halves[i].type)) {
                        for (int k = 0; k < 2; k++)
                                if (halves[i].at[k] >= 0)
                                        blocks_half(p + halves[i].at[k]);
                        return;
                }
        if (!strcmp(type, "MXFP4")) {
                p[0] = (unsigned char)(118 + blocks_random() % 6);
        } else if (strcmp(type, "NVFP4")) { /* the folders' */
                const float d = (float)(1 + blocks_random() % 64) / 512.f;
                const unsigned char zero = (unsigned char)(blocks_random() % 16);
                memcpy(p, &d, 4);
                if (type[0] == 'I' && type[1] == '4')
                        p[0] = zero;
                for (int i = 4; i < bytes && type[0] == 'F' && type[1] == '8'; i++)
                        p[i] &= 0xbf; /* no NaN */
        }
}

template <class S>
static void random_blocks(const char *type, unsigned char *p, long blocks)
{
        for (long b = 0; b < blocks; b++, p += S::BYTES) {
                for (int i = 0; i < S::BYTES; i++)
                        p[i] = (unsigned char)blocks_random();
                blocks_scale(type, p, S::BYTES);
        }
}

#endif
