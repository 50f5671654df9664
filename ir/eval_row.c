/* eval_row.c: reductions and normalisations of rows, cross-entropy, column sums. */
#include "eval.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double row_max(const double *x, int64_t n)
{
        double m = -INFINITY;
        for (int64_t i = 0; i < n; i++)
                m = fmax(m, x[i]);
        return m;
}

static double row_sum(const double *x, int64_t n)
{
        double s = 0;
        for (int64_t i = 0; i < n; i++)
                s += x[i];
        return s;
}

static double dot(const double *x, const double *y, int64_t n)
{
        double s = 0;
        for (int64_t i = 0; i < n; i++)
                s += x[i] * y[i];
        return s;
}

static double row_lse(const double *x, int64_t n)
{
        double m = row_max(x, n), s = 0;
        if (!isfinite(m))
                return m;
        for (int64_t i = 0; i < n; i++)
                s += exp(x[i] - m);
        return m + log(s);
}

static int64_t row_argmax(const double *x, int64_t n)
{
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++)
                if (x[i] > x[best] || isnan(x[best]))
                        best = i;
        return best;
}

/* xhat = (x - mean) * r with r = rsqrt(var + eps); mean is 0 for rmsnorm. */
static void norm(const double *x, int64_t n, double eps, bool centre, double *mean, double *r)
{
        double v = 0;
        *mean = centre ? row_sum(x, n) / (double)n : 0;
        for (int64_t i = 0; i < n; i++)
                v += (x[i] - *mean) * (x[i] - *mean);
        *r = 1 / sqrt(v / (double)n + eps);
}

/* dx of a norm, g the gradient of xhat: r (g - mean(g) - xhat mean(g xhat)); the first mean only if
 * centred. */
static void norm_dx(double *dx, const double *x, const double *g, int64_t n, double eps,
                    bool centre)
{
        double mean, r, a, b = 0;
        norm(x, n, eps, centre, &mean, &r);
        a = centre ? row_sum(g, n) / (double)n : 0;
        for (int64_t i = 0; i < n; i++)
                b += g[i] * (x[i] - mean) * r / (double)n;
        for (int64_t i = 0; i < n; i++)
                dx[i] = r * (g[i] - a - (x[i] - mean) * r * b);
}

static void row(const Node *n, double *y, const double *x, const double *x2, int64_t C)
{
        double m, r;
        switch (n->op) {
        case OP_SUM: y[0] = row_sum(x, C); break;
        case OP_ROWMAX: y[0] = row_max(x, C); break;
        case OP_LOGSUMEXP: y[0] = row_lse(x, C); break;
        case OP_ARGMAX: y[0] = (double)row_argmax(x, C); break;
        case OP_SOFTMAX:
                m = row_max(x, C);
                r = row_lse(x, C) - m;
                for (int64_t i = 0; i < C; i++)
                        y[i] = exp(x[i] - m - r);
                break;
        case OP_SOFTMAX_GRAD: /* x is the softmax, x2 its gradient */
                m = dot(x, x2, C);
                for (int64_t i = 0; i < C; i++)
                        y[i] = x[i] * (x2[i] - m);
                break;
        case OP_RMSNORM:
        case OP_LAYERNORM:
                norm(x, C, n->a.num.x, n->op == OP_LAYERNORM, &m, &r);
                for (int64_t i = 0; i < C; i++)
                        y[i] = (x[i] - m) * r;
                break;
        case OP_RMSNORM_GRAD:
        case OP_LAYERNORM_GRAD: norm_dx(y, x, x2, C, n->a.num.x, n->op == OP_LAYERNORM_GRAD); break;
        case OP_ROUND_FP8:
                for (int64_t i = 0, k; i < C; i += k) {
                        k = n->a.k.k && n->a.k.k < C - i ? n->a.k.k : C - i;
                        memcpy(y + i, x + i, (size_t)k * sizeof *y);
                        fp8_round_scaled(y + i, k);
                }
                break;
        default: error_at(n->loc, "%s has no evaluator", op_info[n->op].text);
        }
}

void eval_row(Job *j)
{
        int64_t C = eval_last(j->e, j->xt[0]), rows = j->x[0]->n / C, out = j->y[0].n / rows;
        for (int64_t i = 0; i < rows; i++)
                row(j->n, j->y[0].v + i * out, j->x[0]->v + i * C,
                    j->n->n_in > 1 ? j->x[1]->v + i * C : NULL, C);
}

/* x, dy, gain -> dx, dgain, and for layernorm dbias. */
void eval_norm_back(Job *j)
{
        bool centre = j->n->op == OP_LAYERNORM_BACK;
        int64_t C = eval_last(j->e, j->xt[0]);
        double eps = j->n->a.num.x, mean, r, *g = eval_scratch(C);
        for (int64_t i = 0; i < j->x[0]->n; i += C) {
                const double *x = j->x[0]->v + i, *dy = j->x[1]->v + i;
                norm(x, C, eps, centre, &mean, &r);
                for (int64_t c = 0; c < C; c++) {
                        g[c] = dy[c] * j->x[2]->v[c];
                        j->y[1].v[c] += dy[c] * (x[c] - mean) * r;
                        if (centre)
                                j->y[2].v[c] += dy[c];
                }
                norm_dx(j->y[0].v + i, x, g, C, eps, centre);
        }
        free(g);
}

/* ce: loss and lse of a row; ce_grad: dloss (softmax - one_hot).  A target outside
 * of the row is ignored: all zeros. */
void eval_ce(Job *j)
{
        int64_t V = eval_last(j->e, j->xt[0]);
        for (int64_t i = 0; i < j->x[1]->n; i++) {
                const double *x = j->x[0]->v + i * V;
                double t = j->x[1]->v[i];
                if (!(t >= 0 && t < (double)V))
                        continue;
                if (j->n->op == OP_CE) {
                        j->y[1].v[i] = row_lse(x, V);
                        j->y[0].v[i] = j->y[1].v[i] - x[(int64_t)t];
                        continue;
                }
                for (int64_t c = 0; c < V; c++)
                        j->y[0].v[i * V + c] = j->x[3]->v[i] *
                                               (exp(x[c] - j->x[2]->v[i]) - (c == (int64_t)t));
        }
}

void eval_colsum(Job *j)
{
        int64_t C = j->y[0].n;
        for (int64_t i = 0; i < j->x[0]->n; i++)
                j->y[0].v[i % C] += j->x[0]->v[i];
}
