/* oracle.h: the double-precision evaluator, with types of its own, for files that include the
 * runtime's headers, whose names clash with the compiler's. */
#ifndef TGC_ORACLE_H
#define TGC_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../../runtime/util/err.h"

typedef struct Oracle Oracle;

/* Arithmetic as exact as that of a device: values are rounded as a plan stores them, and those that
 * rounding changes are off by chance as well, for sums have another order there and functions are
 * approximate. */
typedef struct Rounding {
        const char *stored; /* the plan's type */
        bool tf32;
        unsigned sample; /* which chance; 0: none, rounding alone */
} Rounding;

/* ir: a plan's section, whose first graph is the whole model.  grads: gradients of
 * its loss are wanted.  B and T are this oracle's sizes.  rounding: NULL for double precision. */
int oracle_new(Oracle **o, const char *ir, size_t n, bool grads, int B, int T,
               const unsigned seed[2], const Rounding *rounding, Err *e);
void oracle_fp8(Oracle *o);                  /* as a cache of 8 bits has it (eval_fp8) */
char *oracle_text(const char *ir, size_t n); /* that graph's; caller frees, NULL: no memory */
void oracle_free(Oracle *o);                 /* NULL is fine */
/* A leaf by name; what the graph does not have is passed over. */
int oracle_set(Oracle *o, const char *leaf, const double *v, int64_t n, Err *e);
/* Inputs objective.NAME have numbers of their own until then: element i of that of this name. */
double feed_trial(const char *name, int64_t i);
int oracle_run(Oracle *o, Err *e);
/* eval_nearest of its graph. */
double oracle_nearest(const Oracle *o);
/* NULL: there is none.  The evaluator's memory. */
const double *oracle_output(Oracle *o, const char *name, int64_t *n);
/* Of the node that has this name and op. */
const double *oracle_value(Oracle *o, const char *name, int op, int64_t *n);
/* After oracle_run: the first node with a value that is not finite, or beyond what its type holds,
 * as "%name = op(%a, %b)  file:line: ..."; false: there is none. */
bool oracle_first_bad(Oracle *o, char *says, size_t n);
const double *oracle_grad(Oracle *o, const char *param, int64_t *n);

#endif
