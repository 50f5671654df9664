/* select_params.h: --train and --group: select which parameters train.  Includes the compiler's
 * headers. */
#ifndef TGC_SELECT_PARAMS_H
#define TGC_SELECT_PARAMS_H

#include "../../compiler/compiler.h"
#include "../option.h"
#include "../load/build.h"

/* Freezes what --train and --group of o leave out; before programs are made. */
int select_params(Model *m, const BuildOptions *o, Err *e);

#endif
