/* eval_update.c: ops that change stored leaves: gradients, caches, the optimiser; and the
 * sampler. */
#include "eval.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The stored array behind input i. */
static Val *stored(Job *j, int i, const char *what)
{
        Ref r = j->n->in[i];
        if (op_info[NODE(j->g, r)->op].cls != CLASS_LEAF)
                error_at(j->n->loc, "%s: %%%s is not %s", op_info[j->n->op].text,
                         NODE(j->g, r)->name, what);
        return &j->e->leaf[r];
}

/* param, gradient -> the gradient so far.  The first of a step overwrites. */
static void accum(Job *j)
{
        Eval *e = j->e;
        Val *sum = &e->grad[j->n->in[0]];
        bool first = e->c.micro == 0 && !j->n->a.accum.more;
        stored(j, 0, "a parameter");
        if (!sum->v) {
                *sum = (Val) { eval_scratch(j->x[1]->n), j->x[1]->n, false };
                e->held += sum->n;
        }
        for (int64_t i = 0; i < sum->n; i++) {
                double s = (first ? 0 : sum->v[i]) + j->x[1]->v[i];
                sum->v[i] = j->y[0].v[i] = e->c.round ? dt_round(DT_F32, s) : s;
        }
}

/* state (B,S,K,D), x (B,T,K,D): rows pos[b] .. pos[b]+T-1 are written. */
static void append(Job *j)
{
        Eval *e = j->e;
        Val *state = stored(j, 0, "a state");
        int64_t S = eval_dim(e, j->xt[0]->dim[1]), B = eval_dim(e, j->xt[1]->dim[0]),
                T = eval_dim(e, j->xt[1]->dim[1]);
        int64_t C = j->x[1]->n / (B * T);
        for (int64_t b = 0; b < B; b++)
                for (int64_t t = 0; t < T; t++) {
                        int64_t at = eval_position(e, b * T) + t;
                        if (at < 0 || at >= S)
                                error_at(j->n->loc,
                                         "%%%s: position %lld is outside of a cache of %lld",
                                         j->n->name, (long long)at, (long long)S);
                        const DType dt = j->xt[0]->dt;
                        double *to = state->v + (b * S + at) * C;
                        const int64_t D = eval_last(e, j->xt[0]);
                        for (int64_t c = 0; c < C; c++) {
                                double x = j->x[1]->v[(b * T + t) * C + c];
                                to[c] = e->c.round && dt != DT_FP8 ? dt_round(dt, x) : x;
                        }
                        for (int64_t c = 0; c < C && e->c.round && dt == DT_FP8; c += D)
                                fp8_round(to + c, D);
                }
        j->y[0] = (Val) { state->v, state->n, true };
}

/* p, g, m, v, norm^2.
 * A norm that is not finite changes nothing. */
static void adamw(Job *j)
{
        const EvalCtx *c = &j->e->c;
        const Node *param = NODE(j->g, j->n->in[0]);
        Val *p = stored(j, 0, "a leaf"), *m = stored(j, 2, "a leaf"), *v = stored(j, 3, "a leaf");
        double size = sqrt(j->x[4]->v[0]),
               scale = c->clip > 0 ? fmin(1, c->clip / (size + 1e-6)) : 1;
        OptimizerStep step = { c->lr,           c->beta1, c->beta2, c->eps,
                               c->weight_decay, c->bias1, c->bias2 };
        if (param->op == OP_PARAM && param->a.param.rate != 0)
                step.lr *= param->a.param.rate;
        if (param->op == OP_PARAM && param->a.param.own_decay != 0)
                step.weight_decay = param->a.param.own_decay;
        for (int64_t i = 0; isfinite(size) && i < p->n; i++) {
                double s[] = { m->v[i], v->v[i] };
                optimizer_step(OPTIMIZER_ADAMW, &step, &p->v[i], j->x[1]->v[i] * scale, s,
                               param->op == OP_PARAM ? param->a.param.decay != 0 : i < c->n_decay);
                m->v[i] = s[0];
                v->v[i] = s[1];
        }
        memcpy(j->y[0].v, p->v, (size_t)p->n * sizeof(double));
}

/* Greedy: the largest logit, the lowest index on a tie. */
static void sample(Job *j)
{
        int64_t V = eval_last(j->e, j->xt[0]);
        for (int64_t b = 0; b < j->y[0].n; b++) {
                const double *x = j->x[0]->v + b * V;
                int64_t best = 0;
                for (int64_t i = 1; i < V; i++)
                        if (x[i] > x[best] || isnan(x[best]))
                                best = i;
                j->y[0].v[b] = (double)best;
        }
}

void eval_update(Job *j)
{
        switch (j->n->op) {
        case OP_ACCUM: accum(j); break;
        case OP_APPEND:
        case OP_APPEND_ROWS: append(j); break;
        case OP_ADAMW: adamw(j); break;
        case OP_SAMPLE: sample(j); break;
        default: /* sumsq */
                for (int64_t i = 0; i < j->x[0]->n; i++)
                        j->y[0].v[0] += j->x[0]->v[i] * j->x[0]->v[i];
        }
}
