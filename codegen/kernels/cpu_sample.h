/* cpu_sample.h: the next token from a row of logits; twin of sample.cuh.  A tile is one
 * row (sequence). */
#ifndef TGC_CPU_SAMPLE_H
#define TGC_CPU_SAMPLE_H

#include "cpu_math.h"

/* logits (V) of row; last: the n_last most recent tokens of the row, for the penalty. */
TGC_INLINE int sample_row(const float *logits, int V, const int *last, int n_last, const Rt *rt, int row);

#endif
