/* quick_check.h: the check that `tgc compile` makes of a user's own graph before it makes kernels.
 * The evaluator compares the programs after all passes with the graph as the model states it, at
 * small sizes.  Includes the compiler's headers. */
#ifndef TGC_QUICK_CHECK_H
#define TGC_QUICK_CHECK_H

#include "../../compiler/compiler.h"
#include "../../runtime/util/err.h"

/* m and ir as compile() leaves them; which programs there are.  TGC_CHECK_FAILED: a program is not
 * what the model says. said: a line where nothing could be compared, else "". */
int quick_check(const Model *m, const CompileOptions *o, const Text *ir, bool logits, bool loss,
                char *said, size_t cap, Err *e);

/* oracle.c: inputs objective.NAME as feed_trial has them */
void feed_eval(const Graph *g, Eval *e);

#endif
