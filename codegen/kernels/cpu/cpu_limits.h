/* cpu_limits.h: sizes that kernels have room for.  What a model asks beyond them is refused when it
 * is compiled (compiler/limits.c): kernels do not look. */
#ifndef TGC_CPU_LIMITS_H
#define TGC_CPU_LIMITS_H

enum {
        LIMIT_HEAD = 256,      /* width of a head; CUDA: the last rows of attention_tiles.def */
        LIMIT_GROUP = 128,     /* query heads to a key head */
        LIMIT_NORM_ROW = 65536 /* columns of a norm, whose backward holds a row three times */
};

#endif
