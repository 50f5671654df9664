/* eval.h: private to the evaluator (eval*.c).
 *
 * A Val is the value of one output: n doubles in row-major order.  Views that move nothing alias
 * their input; APPEND aliases its state.  An op's function finds its inputs in x[], writes y[]
 * (zeroed, of the right size) and knows their types. */
#ifndef TGC_EVAL_H
#define TGC_EVAL_H

#include "ir.h"

typedef struct Val {
        double *v;
        int64_t n;
        bool alias;
} Val;

struct Eval {
        Graph *g;
        EvalCtx c;           /* defaults filled in */
        bool fp8;            /* eval_fp8 */
        int *pos;            /* (B) */
        Val (*val)[MAX_OUT]; /* per node, of this run */
        Val *leaf, *grad;    /* per node: stored leaves; gradients of parameters */
        int64_t held;        /* doubles allocated */
        double nearest;      /* eval_nearest, of this run */
};

/* One node being executed. */
typedef struct Job {
        Eval *e;
        Graph *g;
        Ref r;
        Node *n;
        const Val *x[MAX_IN]; /* inputs */
        const Type *xt[MAX_IN];
        Val *y; /* outputs */
        Type yt[MAX_OUT];
        int n_out;
} Job;

int64_t eval_dim(Eval *e, Dim d);              /* its value in this run */
int64_t eval_last(Eval *e, const Type *t);     /* last dimension, 1 of a scalar */
double *eval_scratch(int64_t n);               /* zeroed; the caller frees */
int eval_position(const Eval *e, int64_t row); /* of row b*T + t */
/* does dropout keep element i */
bool eval_keeps(const Eval *e, double p, int64_t id, int64_t i);
/* Between -1 and 1, otherwise for each sample, node, `out` (below MAX_OUT) and i. */
double eval_chance(const Eval *e, Ref r, int out, int64_t i);

/* One function a class or family, by file. */
void eval_map(Job *j); /* eval_map.c */
void eval_rope(Job *j);
void eval_interleave(Job *j);
void eval_row(Job *j); /* eval_row.c */
void eval_norm_back(Job *j);
void eval_ce(Job *j);
void eval_colsum(Job *j);
void eval_matmul(Job *j); /* eval_matmul.c */
void eval_expert(Job *j);
void eval_expert_rows(Job *j);
void eval_expert_grad(Job *j);
void eval_linear_ce(Job *j);
void eval_attention(Job *j); /* eval_attention.c */
void eval_view(Job *j);      /* eval_move.c */
void eval_gather(Job *j);
void eval_scatter(Job *j);
void eval_route(Job *j);
void eval_combine(Job *j);
void eval_update(Job *j); /* eval_update.c */

#endif
