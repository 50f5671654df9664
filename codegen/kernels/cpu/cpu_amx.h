/* cpu_amx.h: Intel AMX, if processor and system have it (TGC_AMX).
 *
 * Eight tile registers of up to 16 rows of 64 bytes; a configuration sets their shapes.  A tile
 * dot product adds A B to C (rows x 16 words): row r of B holds, for each of 16 columns, four
 * bytes or two bf16 that are neighbours in k.  A thread configures the tiles and releases them
 * after a step, so that the system need not save them.
 *
 * TGC_AMX_PLAYED (tests): amx_played.h emulates them. */
#ifndef TGC_CPU_AMX_H
#define TGC_CPU_AMX_H

#include "cpu_tgc.h"

typedef struct AmxConfig {
        uint8_t palette, start, none[14];
        uint16_t bytes[16]; /* per row */
        uint8_t rows[16];
} AmxConfig;

/* Tiles 0 to 3 are C, 4 and 5 A, 6 and 7 B.  rows: of A and C; a: bytes of A's rows; b: rows of
 * B. */
TGC_INLINE AmxConfig amx_shapes(int rows, int a, int b)
{
        AmxConfig c = { .palette = 1 };
        for (int i = 0; i < 8; i++) {
                c.bytes[i] = (uint16_t)(i == 4 || i == 5 ? a : 64);
                c.rows[i] = (uint8_t)(i < 6 ? rows : b);
        }
        return c;
}

#ifdef TGC_AMX_PLAYED
#include "amx_played.h" /* the tests' */
#else
#include <sys/syscall.h>
#include <unistd.h>
#define AMX_ZERO(t) _tile_zero(t)
#define AMX_LOAD(t, p, stride) _tile_loadd(t, p, stride)
#define AMX_STORE(t, p, stride) _tile_stored(t, p, stride)
#define AMX_INT8(c, a, b) _tile_dpbssd(c, a, b)
#define AMX_BF16(c, a, b) _tile_dpbf16ps(c, a, b)
#define AMX_RELEASE() _tile_release()
TGC_INLINE void amx_configure(AmxConfig c)
{
        const AmxConfig *p = &c;
        __asm__ volatile("" : "+r"(p)::"memory");
        _tile_loadconfig(p);
}

/* Every unit defines it; the linker keeps one. */
__attribute__((weak, noinline)) int tgc_amx_asked(void)
{
        enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
        static int known; /* 1: no, 2: yes */
        int k = __atomic_load_n(&known, __ATOMIC_RELAXED);
        if (!k) {
                k = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) ? 1 : 2;
                __atomic_store_n(&known, k, __ATOMIC_RELAXED);
        }
        return k == 2;
}
TGC_INLINE int amx_allowed(void) { return tgc_amx_asked(); }
#endif

#endif
