/* keep_blocks.h: decides which weights stay in blocks: those of a file, or random ones.  Includes
 * the compiler's headers. */
#ifndef TGC_KEEP_BLOCKS_H
#define TGC_KEEP_BLOCKS_H

#include "../../compiler/compiler.h"
#include "load.h"

/* Sets `storage` of what can stay as it lies in the file `weights`; before programs are made.
 * act_fp8: NULL, or becomes the columns that a scale of activations has (CompileOptions). */
int keep_blocks(Model *m, const char *weights, int *act_fp8, Err *e);
/* The same as if a file had the types of this mixture (mixtures.def). */
int keep_mixture(Model *m, const char *mixture, int *act_fp8, Err *e);

#endif
