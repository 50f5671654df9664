/* eval_move.c: ops that copy, select, sort and add rows: views, gather, scatter, routing. */
#include "eval.h"
#include <math.h>
#include <string.h>

/* y[i0,i1,..] = x[from + sum i_k step_k] */
static void copy(Job *j, const int64_t *step, int64_t from)
{
        const Type *t = &j->yt[0];
        int64_t at[MAX_RANK] = { 0 }, dim[MAX_RANK] = { 0 };
        for (int i = 0; i < t->rank; i++)
                dim[i] = eval_dim(j->e, t->dim[i]);
        for (int64_t i = 0; i < j->y[0].n; i++) {
                j->y[0].v[i] = j->x[0]->v[from];
                for (int d = t->rank - 1; d >= 0; d--) {
                        from += step[d];
                        if (++at[d] < dim[d])
                                break;
                        from -= step[d] * dim[d];
                        at[d] = 0;
                }
        }
}

static void concat(Job *j)
{
        int64_t C = eval_last(j->e, &j->yt[0]), at = 0;
        for (int p = 0; p < j->n->n_in; p++) {
                int64_t c = eval_last(j->e, j->xt[p]);
                for (int64_t i = 0; i < j->x[p]->n; i++)
                        j->y[0].v[i / c * C + at + i % c] = j->x[p]->v[i];
                at += c;
        }
}

void eval_view(Job *j)
{
        const Type *x = j->xt[0], *y = &j->yt[0];
        int64_t stride[MAX_RANK] = { 0 }, step[MAX_RANK] = { 0 }, s = 1;
        for (int i = x->rank - 1; i >= 0; i--) {
                stride[i] = s;
                s *= eval_dim(j->e, x->dim[i]);
        }
        switch (j->n->op) {
        case OP_ITEM: {
                const Val *from = &j->e->val[j->n->in[0]][j->n->a.item.index];
                j->y[0] = (Val) { from->v, from->n, true };
                break;
        }
        case OP_RESHAPE: j->y[0] = (Val) { j->x[0]->v, j->x[0]->n, true }; break;
        case OP_EXPAND:
                for (int k = 1; k <= x->rank; k++)
                        step[y->rank - k] = dim_eq(x->dim[x->rank - k], DIM(1))
                                                    ? 0
                                                    : stride[x->rank - k];
                copy(j, step, 0);
                break;
        case OP_SLICE: {
                int ax = (int)j->n->a.slice.axis;
                memcpy(step, stride, sizeof step);
                step[ax] *= j->n->a.slice.step;
                copy(j, step, j->n->a.slice.start * stride[ax]);
                break;
        }
        case OP_TRANSPOSE:
                for (int i = 0; i < y->rank; i++)
                        step[i] = stride[j->n->a.perm.perm[i]];
                copy(j, step, 0);
                break;
        default: concat(j);
        }
}

/* An id outside of the table gives zeros. */
void eval_gather(Job *j)
{
        int64_t V = eval_dim(j->e, j->xt[0]->dim[0]), C = j->x[0]->n / V;
        for (int64_t i = 0; i < j->x[1]->n; i++) {
                double id = j->x[1]->v[i];
                if (id >= 0 && id < (double)V)
                        memcpy(j->y[0].v + i * C, j->x[0]->v + (int64_t)id * C,
                               (size_t)C * sizeof(double));
        }
}

/* dy, perm, offs: row b is the sum of dy's rows perm[offs[b]] .. perm[offs[b+1]-1]. */
void eval_scatter(Job *j)
{
        int64_t k = j->n->a.k.k, C = j->y[0].n / k, rows = j->x[0]->n / C;
        for (int64_t b = 0; b < k; b++)
                for (int64_t p = (int64_t)j->x[2]->v[b]; p < (int64_t)j->x[2]->v[b + 1]; p++) {
                        int64_t r = p >= 0 && p < j->x[1]->n ? (int64_t)j->x[1]->v[p] : -1;
                        if (r < 0 || r >= rows)
                                error_at(j->n->loc, "%%%s: bucket %lld names no row of its input",
                                         j->n->name, (long long)b);
                        for (int64_t c = 0; c < C; c++)
                                j->y[0].v[b * C + c] += j->x[0]->v[r * C + c];
                }
}

/* The k largest of each row, descending, the lowest index first on a tie; NaN is last. */
static void largest(Job *j, int64_t k)
{
        int64_t C = eval_last(j->e, j->xt[0]);
        for (int64_t r = 0; r < j->x[0]->n / C; r++) {
                const double *x = j->x[0]->v + r * C;
                double *val = j->y[0].v + r * k, *idx = j->y[1].v + r * k;
                for (int64_t i = 0; i < k; i++) {
                        int64_t best = -1;
                        for (int64_t c = 0; c < C; c++) {
                                bool taken = false;
                                for (int64_t q = 0; q < i; q++)
                                        taken |= (int64_t)idx[q] == c;
                                if (!taken && (best < 0 || x[c] > x[best] ||
                                               (isnan(x[best]) && !isnan(x[c]))))
                                        best = c;
                        }
                        val[i] = x[best];
                        idx[i] = (double)best;
                }
                for (int64_t c = 0; c < C && k; c++) { /* how far the next one was */
                        const double by = (val[k - 1] - x[c]) / fabs(val[k - 1]);
                        bool taken = false;
                        for (int64_t q = 0; q < k; q++)
                                taken |= (int64_t)idx[q] == c;
                        if (!taken && by < j->e->nearest)
                                j->e->nearest = by;
                }
        }
}

static void topk(Job *j) { largest(j, j->n->a.k.k); }

/* topk's choice, then the softmax of the row at what was chosen, over all of the row or over
 * that. */
static void route(Job *j)
{
        int64_t C = eval_last(j->e, j->xt[0]), k = j->n->a.route.k;
        largest(j, k);
        for (int64_t r = 0; r < j->x[0]->n / C; r++) {
                const double *x = j->x[0]->v + r * C;
                double *gate = j->y[0].v + r * k, top = gate[0], all = 0;
                bool some = j->n->a.route.renorm;
                for (int64_t i = 0; i < (some ? k : C); i++)
                        all += exp((some ? gate : x)[i] - top);
                for (int64_t i = 0; i < k; i++)
                        gate[i] = exp(gate[i] - top) / all;
        }
}

static void topk_grad(Job *j)
{
        int64_t k = eval_last(j->e, j->xt[0]), E = j->n->a.k.k;
        for (int64_t i = 0; i < j->x[0]->n; i++) {
                double c = j->x[1]->v[i];
                if (c >= 0 && c < (double)E)
                        j->y[0].v[i / k * E + (int64_t)c] += j->x[0]->v[i];
        }
}

/* A stable counting sort; ids outside of the buckets are dropped. */
static void bucket(Job *j)
{
        int64_t k = j->n->a.k.k, n = j->x[0]->n;
        const double *id = j->x[0]->v;
        double *perm = j->y[0].v, *offs = j->y[1].v;
        for (int64_t i = 0; i < n; i++)
                if (id[i] >= 0 && id[i] < (double)k)
                        offs[(int64_t)id[i] + 1]++;
        for (int64_t b = 0; b < k; b++)
                offs[b + 1] += offs[b];
        for (int64_t i = 0; i < n; i++) /* offs[b] runs through b's positions */
                if (id[i] >= 0 && id[i] < (double)k)
                        perm[(int64_t)offs[(int64_t)id[i]]++] = (double)i;
        for (int64_t b = k; b > 0; b--)
                offs[b] = offs[b - 1];
        offs[0] = 0;
}

void eval_route(Job *j)
{
        (j->n->op == OP_TOPK        ? topk
         : j->n->op == OP_ROUTE     ? route
         : j->n->op == OP_TOPK_GRAD ? topk_grad
                                    : bucket)(j);
}

/* y (...,k,C) [, gate (...,k)] -> (...,C) */
void eval_combine(Job *j)
{
        const Type *t = j->xt[0];
        int64_t C = eval_last(j->e, t), k = eval_dim(j->e, t->dim[t->rank - 2]);
        for (int64_t i = 0; i < j->x[0]->n; i++)
                j->y[0].v[i / (k * C) * C + i % C] += (j->n->n_in > 1 ? j->x[1]->v[i / C] : 1) *
                                                      j->x[0]->v[i];
}
