/* shape.h: what the files of the shape rules share.
 *
 * A rule, named in ops.def, fills the types of all outputs and returns their number.  It asks its
 * inputs by the functions below, which report the user's mistake with both sides. */
#ifndef TGC_SHAPE_H
#define TGC_SHAPE_H

#include "ir.h"

/* of the graph g and the node n that a rule is called with */
#define IN(i) (&NODE(g, n->in[i])->type)
#define NAME(i) (NODE(g, n->in[i])->name)
#define TEXT op_info[n->op].text

static inline Dim last(const Type *t) { return t->dim[t->rank - 1]; }

/* The element type of a result: that of its first float input. */
DType float_of(Graph *g, const Node *n);
void need_rank(Graph *g, Node *n, int i, int least);
void need_same(Graph *g, Node *n, int i, int j); /* shapes of inputs i and j */
void need_shape(Graph *g, Node *n, int i, const Type *want);
void need_int(Graph *g, Node *n, int i);
void need_inputs(const Node *n, int least, int most); /* where attributes ask for some */
/* Input t has a target for each row of input x. */
void need_targets(Graph *g, Node *n, int x, int t);

#endif
