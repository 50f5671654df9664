/* select_params.h: patterns of parameters' names; sees the compiler. */
#ifndef TGC_SELECT_PARAMS_H
#define TGC_SELECT_PARAMS_H

#include "../compiler/compiler.h"
#include "cli.h"

/* The whole name, or parts of it between dots. */
bool name_matches(const char *pattern, const char *name);
/* The first name of a checkpoint in a MapLine's rest. */
bool map_first_name(const char *rest, char *name, size_t cap);
/* Freezes what --train and --group of o leave out; before programs are made. */
int select_params(Model *m, const BuildOptions *o, Err *e);

#endif
