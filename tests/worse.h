/* worse.h: the larger of two errors. */
#ifndef TGC_WORSE_H
#define TGC_WORSE_H

#include <math.h>

/* NaN is larger than any number, and stays: fmax would lose it. */
static inline double worse(double a, double b) { return isnan(a) || a >= b ? a : b; }

#endif
