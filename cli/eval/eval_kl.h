/* eval_kl.h: `tgc eval --save-base` writes a base model's logits, `--kl` compares a model's
 * distributions with them. */
#ifndef TGC_EVAL_KL_H
#define TGC_EVAL_KL_H

#include "../load/open.h"

/* --kl and --save-base over n ids. */
int eval_kl(const Args *a, const Loaded *l, const int *ids, int n, int vocab, Err *e);

#endif
