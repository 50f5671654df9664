/* find_nan.h: --find_nan: names the first value of a step that is not finite. */
#ifndef TGC_FIND_NAN_H
#define TGC_FIND_NAN_H

#include <stddef.h>
#include "../../runtime/session/session.h"

typedef struct NanBatch {
        int B, T;
        const int *ids, *targets, *documents; /* (B,T), (B,T), (B,T,2) or NULL */
        const Feed *feed;                     /* of this batch alone */
        int n_feeds;
} NanBatch;

enum { NAN_SAYS = 600 };
/* One row after the other through the evaluator, with what the session has for weights and values
 * rounded to the plan's type.  says: what was found, one line. */
int find_nan(Session *s, const Section *ir, const NanBatch *b, char says[NAN_SAYS], Err *e);

#endif
