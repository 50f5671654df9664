/* eval_kl.h: how far a model's distributions are from a base model's: `tgc eval --save-base` writes
 * the base's, --kl compares with them. */
#ifndef TGC_EVAL_KL_H
#define TGC_EVAL_KL_H

#include "work.h"

/* --kl and --save-base over n ids. */
int eval_kl(const Args *a, const Loaded *l, const int *ids, int n, int vocab, Err *e);

#endif
