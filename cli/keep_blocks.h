/* keep_blocks.h: weights stay in a file's own blocks; sees the compiler. */
#ifndef TGC_KEEP_BLOCKS_H
#define TGC_KEEP_BLOCKS_H

#include "../compiler/compiler.h"
#include "cli.h"

/* Sets `storage` of what can stay as it lies in the file `weights`; before programs are made. */
int keep_blocks(Model *m, const char *weights, Err *e);

#endif
