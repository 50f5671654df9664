/* fuse_bytes.h: private to fuse*.c: the bytes that kernels move, by which fusion is decided. */
#ifndef TGC_FUSE_BYTES_H
#define TGC_FUSE_BYTES_H

#include "kernel_order.h"

typedef struct FuseBytes FuseBytes;

/* What would be one kernel: whole kernels by number and nodes that are in none; 0: none. */
typedef struct Together {
        int kernel[2];
        Ref node[2];
} Together;

FuseBytes *fuse_bytes_new(KernelOrder *o, Arena *a);
/* Bytes that one kernel of all these loads and stores, at the sizes of the graph's program. */
int64_t kernel_bytes(FuseBytes *b, const Together *k);
/* What both parts move as kernels of their own, less what they move as one: stores and loads that
 * vanish, and values that both read. */
int64_t saved_bytes(FuseBytes *b, const Together *one, const Together *other);

#endif
