/* eval_matmul.c: products: dense, batched, by expert, and the last linear with its loss. */
#include "eval.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* C (m,n) += A (m,k) B (k,n), all row-major.  Rows of b stay in cache while a row of c is built. */
static void multiply(double *c, const double *a, const double *b, int64_t m, int64_t n, int64_t k)
{
        for (int64_t i = 0; i < m; i++)
                for (int64_t q = 0; q < k; q++) {
                        double x = a[i * k + q];
                        const double *row = b + q * n;
                        for (int64_t l = 0; l < n; l++)
                                c[i * n + l] += x * row[l];
                }
}

/* Rows of A up to which a transposed copy of B costs more than the product. */
enum { FEW_ROWS = 8 };

/* C (m,n) += A (m,k) B (n,k)^T, with the order of sums of multiply(): eight columns at once. */
static void multiply_nt(double *c, const double *a, const double *b, int64_t m, int64_t n,
                        int64_t k)
{
        int64_t l = 0;
        for (; l + 8 <= n; l += 8)
                for (int64_t i = 0; i < m; i++) {
                        const double *x = a + i * k, *row = b + l * k;
                        double sum[8];
                        memcpy(sum, c + i * n + l, sizeof sum);
                        for (int64_t q = 0; q < k; q++)
                                for (int r = 0; r < 8; r++)
                                        sum[r] += x[q] * row[r * k + q];
                        memcpy(c + i * n + l, sum, sizeof sum);
                }
        for (; l < n; l++)
                for (int64_t i = 0; i < m; i++)
                        for (int64_t q = 0; q < k; q++)
                                c[i * n + l] += a[i * k + q] * b[l * k + q];
}

/* A transposed copy, tile by tile; the caller frees. */
static double *transposed(const double *a, int64_t rows, int64_t cols)
{
        enum { TILE = 16 };
        double *t = eval_scratch(rows * cols);
        for (int64_t i = 0; i < rows; i += TILE)
                for (int64_t j = 0; j < cols; j += TILE)
                        for (int64_t y = i; y < rows && y < i + TILE; y++)
                                for (int64_t x = j; x < cols && x < j + TILE; x++)
                                        t[x * rows + y] = a[y * cols + x];
        return t;
}

void eval_matmul(Job *j)
{
        bool ta = j->n->a.mm.ta, tb = j->n->a.mm.tb;
        const Type *t = j->xt[0], *u = j->xt[1];
        int64_t last = eval_last(j->e, t),
                prev = t->rank > 1 ? eval_dim(j->e, t->dim[t->rank - 2]) : 1;
        int64_t m = ta ? last : prev, k = ta ? prev : last;
        int64_t n = eval_dim(j->e, u->dim[u->rank - (tb ? 2 : 1)]);
        for (int64_t i = 0; i < j->x[0]->n / (m * k); i++) {
                const double *a = j->x[0]->v + i * m * k,
                             *b = j->x[1]->v + (u->rank > 2 ? i * k * n : 0);
                double *at = ta ? transposed(a, k, m) : NULL, *c = j->y[0].v + i * m * n;
                if (tb && m <= FEW_ROWS) {
                        multiply_nt(c, at ? at : a, b, m, n, k);
                } else {
                        double *bt = tb ? transposed(b, n, k) : NULL;
                        multiply(c, at ? at : a, bt ? bt : b, m, n, k);
                        free(bt);
                }
                free(at);
        }
}

/* The row of an operand that belongs to sorted position p: itself, or by slot. */
static int64_t row_of(Job *j, int64_t div, int64_t p, int64_t rows)
{
        int64_t r = div ? (int64_t)j->x[2]->v[p] / div : p;
        if (r < 0 || r >= rows)
                error_at(j->n->loc, "%%%s: slot %lld reads row %lld of %lld", j->n->name,
                         (long long)p, (long long)r, (long long)rows);
        return r;
}

/* The expert's positions: [*p, *end). */
static void slots(Job *j, int64_t expert, int64_t *p, int64_t *end)
{
        *p = (int64_t)j->x[3]->v[expert];
        *end = (int64_t)j->x[3]->v[expert + 1];
        if (*p < 0 || *end > j->x[2]->n)
                error_at(j->n->loc, "%%%s: expert %lld has positions %lld to %lld of %lld",
                         j->n->name, (long long)expert, (long long)*p, (long long)*end,
                         (long long)j->x[2]->n);
}

/* a, w (E,K,N) or (E,N,K), perm, offs -> rows in sorted or slot order. */
void eval_expert(Job *j)
{
        const Attr *at = &j->n->a;
        int64_t E = eval_dim(j->e, j->xt[1]->dim[0]), K = eval_last(j->e, j->xt[0]),
                N = eval_last(j->e, &j->yt[0]);
        for (int64_t x = 0, p, end; x < E; x++) {
                const double *w = j->x[1]->v + x * K * N;
                slots(j, x, &p, &end);
                const bool few = end - p <= FEW_ROWS;
                double *wt = at->expert.tb && !few ? transposed(w, N, K) : NULL;
                for (; p < end; p++) {
                        int64_t from = row_of(j, at->expert.adiv, p, j->x[0]->n / K);
                        int64_t to = row_of(j, at->expert.scatter ? 1 : 0, p, j->y[0].n / N);
                        (at->expert.tb && few ? multiply_nt : multiply)(j->y[0].v + to * N,
                                                                        j->x[0]->v + from * K,
                                                                        wt ? wt : w, 1, N, K);
                }
                free(wt);
        }
}

/* a, w (E,N,K), ids [, bias] [, gates] -> rows by slot, or their sums by token. */
void eval_expert_rows(Job *j)
{
        const Attr *at = &j->n->a;
        int64_t E = eval_dim(j->e, j->xt[1]->dim[0]), K = eval_last(j->e, j->xt[0]),
                N = eval_last(j->e, &j->yt[0]);
        const double *bias = at->rows.bias ? j->x[3]->v : NULL;
        const double *gate = at->rows.mix ? j->x[at->rows.bias ? 4 : 3]->v : NULL;
        for (int64_t s = 0; s < j->x[2]->n; s++) {
                int64_t e = (int64_t)j->x[2]->v[s];
                if (e < 0 || e >= E)
                        error_at(j->n->loc, "%%%s: slot %lld chose expert %lld of %lld", j->n->name,
                                 (long long)s, (long long)e, (long long)E);
                const double *a = j->x[0]->v + s / at->rows.adiv * K, *w = j->x[1]->v + e * N * K;
                double *y = j->y[0].v + (gate ? s / at->rows.mix : s) * N;
                for (int64_t n = 0; n < N; n++) {
                        double sum = bias ? bias[e * N + n] : 0;
                        for (int64_t k = 0; k < K; k++)
                                sum += a[k] * w[n * K + k];
                        y[n] += gate ? gate[s] * sum : sum;
                }
        }
}

/* a, dy, perm, offs -> dw: the sum over an expert's slots of a^T dy. */
void eval_expert_grad(Job *j)
{
        const Attr *at = &j->n->a;
        int64_t K = eval_last(j->e, j->xt[0]), N = eval_last(j->e, j->xt[1]), E = j->x[3]->n - 1;
        for (int64_t x = 0, p, end; x < E; x++) {
                slots(j, x, &p, &end);
                for (; p < end; p++) {
                        const double *a = j->x[0]->v +
                                          row_of(j, at->expert.adiv, p, j->x[0]->n / K) * K;
                        const double *d = j->x[1]->v +
                                          row_of(j, at->expert.bdiv, p, j->x[1]->n / N) * N;
                        double *y = j->y[0].v + x * K * N;
                        if (at->expert.tb)
                                multiply(y, d, a, N, K, 1);
                        else
                                multiply(y, a, d, K, N, 1);
                }
        }
}

/* x, w (V,C), targets [, dloss] [, bias] -> loss, lse; or [loss,] dx, dw [, dbias]. */
void eval_linear_ce(Job *j)
{
        bool grad = j->n->op == OP_LINEAR_CE_GRAD, both = grad && j->n->a.ce.both;
        int64_t C = eval_last(j->e, j->xt[0]), V = j->x[1]->n / C, rows = j->x[0]->n / C;
        const double *x = j->x[0]->v, *w = j->x[1]->v,
                     *bias = j->n->n_in == (grad ? 5 : 4) ? j->x[grad ? 4 : 3]->v : NULL;
        double *loss = grad ? both ? j->y[0].v : NULL : j->y[0].v, *lse = grad ? NULL : j->y[1].v;
        double *wt = transposed(w, V, C), *s = eval_scratch(V);
        Val *d = j->y + (both ? 1 : 0); /* dx, dw, dbias */
        for (int64_t i = 0; i < rows; i++) {
                double t = j->x[2]->v[i], m = -INFINITY, z = 0;
                if (!(t >= 0 && t < (double)V))
                        continue;
                memset(s, 0, (size_t)V * sizeof *s);
                if (bias)
                        memcpy(s, bias, (size_t)V * sizeof *s);
                multiply(s, x + i * C, wt, 1, V, C);
                for (int64_t v = 0; v < V; v++)
                        m = fmax(m, s[v]);
                for (int64_t v = 0; v < V; v++)
                        z += exp(s[v] - m);
                z = m + log(z);
                if (loss)
                        loss[i] = z - s[(int64_t)t];
                if (lse)
                        lse[i] = z;
                if (!grad)
                        continue;
                for (int64_t v = 0; v < V; v++)
                        s[v] = j->x[3]->v[i] * (exp(s[v] - z) - (v == (int64_t)t));
                multiply(d[0].v + i * C, s, w, 1, C, V);
                multiply(d[1].v, s, x + i * C, V, C, 1);
                for (int64_t v = 0; bias && v < V; v++)
                        d[2].v[v] += s[v];
        }
        free(wt);
        free(s);
}
