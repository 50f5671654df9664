/* group.h: private to group.c and group_order.c. */
#ifndef TGC_GROUP_H
#define TGC_GROUP_H

#include "lower.h"

/* Prologues and epilogues of a group whose nodes and anchor are known.  side: of each node, 1+k
 * prologue k, -(1+o) epilogue o; in: false.  Both are for all groups, who leave them empty. */
void group_fill(Graph *g, Group *gr, Arena *a, int *side, bool *in);

#endif
