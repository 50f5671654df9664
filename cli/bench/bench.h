/* bench.h: `tgc bench --sequences`: steps that decode several sequences at once. */
#ifndef TGC_BENCH_H
#define TGC_BENCH_H

#include "../load/open.h"

/* ---- bench_sequences.c ---- */

enum { MOST_COUNTS = 32 };

/* The numbers of --sequences; none where there is no such option. */
int sequences_read(const Args *a, int list[MOST_COUNTS], int *n, Err *e);
int sequences_most(const Args *a);       /* 0: none */
int64_t sequences_tokens(const Args *a); /* that each of them may come to */
/* json NULL: a table */
int bench_sequences(Session *s, const Args *a, cJSON *json, Err *e);

#endif
