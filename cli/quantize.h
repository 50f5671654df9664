/* quantize.h: what cmd_quantize.c and quantize_folder.c share. */
#ifndef TGC_QUANTIZE_H
#define TGC_QUANTIZE_H

#include "cli.h"

int finite_values(const char *file, const char *name, const float *v, int64_t n, Err *e);
int quantize_folder(const Args *a, Err *e);

#endif
