/* eval_kl.h: a model beside a base model (eval_kl.c). */
#ifndef TGC_EVAL_KL_H
#define TGC_EVAL_KL_H

#include "work.h"

/* --kl and --save-base over n ids. */
int eval_kl(const Args *a, const Loaded *l, const int *ids, int n, int vocab, Err *e);

#endif
