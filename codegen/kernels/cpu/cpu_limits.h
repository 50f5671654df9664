/* cpu_limits.h: sizes that the kernels have room for.  The compiler refuses models beyond them
 * (compiler/limits.c); kernels do not check. */
#ifndef TGC_CPU_LIMITS_H
#define TGC_CPU_LIMITS_H

enum {
        LIMIT_HEAD = 256,      /* width of a head; CUDA: the last rows of attention_tiles.def */
        LIMIT_GROUP = 128,     /* query heads to a key head */
        LIMIT_NORM_ROW = 65536 /* columns of a norm, whose backward holds a row three times */
};

#endif
