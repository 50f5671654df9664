/* eval_attention.c: attention forward and backward, one query row at a time.
 *
 * Query t of sequence b stands at p = pos[b] + t if k is the result of an append,
 * at t otherwise; there are S keys: p's offset + T, or all of k.  It attends key s
 * if (causal) s <= p, (window) s > p - window, (mask) mask(b,t,s) != 0, (documents) begin <= s <
 * end of the query's own document.  Score:
 *      x = scale q.k;   softcap: x = cap tanh(x / cap);   alibi: x += slope[h] (s - p)
 * Nothing to attend: 0 and lse = -inf.  Dropout acts on the probabilities, element
 * ((b*H + h)*T + t)*S + s. */
#include "eval.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Att {
        Job *j;
        const Attr *a;
        int64_t B, T, S, H, K, D, DV; /* S: rows of k; the keys of a sequence may be fewer */
        bool cached;
        const double *extra;     /* mask (B,T,S) or (T,S), or slopes (H) */
        int64_t mask_b, mask_t;  /* strides */
        const double *documents; /* (B,T,2): begin and end of each token's, or NULL */
        /* of one row: probabilities, d score / d (scale q.k), dropout factors */
        double *p, *slope, *keep;
} Att;

static int64_t keys(const Att *t, int64_t b)
{
        int64_t n = t->cached ? t->j->e->pos[b] + t->T : t->S;
        if (n > t->S)
                error_at(t->j->n->loc, "%%%s: %lld tokens do not fit a cache of %lld",
                         t->j->n->name, (long long)n, (long long)t->S);
        return n;
}

static bool same_document(const Att *t, int64_t b, int64_t q, int64_t s)
{
        if (!t->documents)
                return true;
        const double *of = t->documents + (b * t->T + q) * 2;
        return (double)s >= of[0] && (double)s < of[1];
}

/* Fill p, slope and keep for one query; returns the log of the sum. */
static double row(const Att *t, int64_t b, int64_t h, int64_t q)
{
        int64_t n = keys(t, b), p = (t->cached ? t->j->e->pos[b] : 0) + q, kh = h / (t->H / t->K);
        const double *x = t->j->x[0]->v + ((b * t->T + q) * t->H + h) * t->D;
        double top = -INFINITY, sum = 0;
        for (int64_t s = 0; s < n; s++) {
                const double *k = t->j->x[1]->v + ((b * t->S + s) * t->K + kh) * t->D;
                double v = 0, cap = t->a->att.softcap;
                for (int64_t d = 0; d < t->D; d++)
                        v += x[d] * k[d];
                v *= t->a->att.scale;
                t->slope[s] = 1;
                if (cap > 0) {
                        double th = tanh(v / cap);
                        v = cap * th;
                        t->slope[s] = 1 - th * th;
                }
                if (t->a->att.alibi && t->extra)
                        v += t->extra[h] * (double)(s - p);
                if ((t->a->att.causal && s > p) ||
                    (t->a->att.window > 0 && s <= p - t->a->att.window) ||
                    (t->a->att.mask && t->extra &&
                     t->extra[b * t->mask_b + q * t->mask_t + s] == 0) ||
                    !same_document(t, b, q, s))
                        v = -INFINITY;
                t->p[s] = v;
                top = fmax(top, v);
        }
        for (int64_t s = 0; s < n; s++) {
                t->p[s] = top == -INFINITY ? 0 : exp(t->p[s] - top);
                sum += t->p[s];
        }
        for (int64_t s = 0; s < n; s++) {
                double drop = t->a->att.p;
                t->p[s] = sum > 0 ? t->p[s] / sum : 0;
                t->keep[s] = drop == 0 ? 1
                             : eval_keeps(t->j->e, drop, t->a->att.id,
                                          ((b * t->H + h) * t->T + q) * n + s)
                                     ? 1 / (1 - drop)
                                     : 0;
        }
        return sum > 0 ? top + log(sum) : -INFINITY;
}

static void forward(const Att *t, int64_t b, int64_t h, int64_t q)
{
        double *o = t->j->y[0].v + ((b * t->T + q) * t->H + h) * t->DV;
        t->j->y[1].v[(b * t->H + h) * t->T + q] = row(t, b, h, q);
        for (int64_t s = 0; s < keys(t, b); s++) {
                const double *v = t->j->x[2]->v +
                                  ((b * t->S + s) * t->K + h / (t->H / t->K)) * t->DV;
                for (int64_t d = 0; d < t->DV; d++)
                        o[d] += t->p[s] * t->keep[s] * v[d];
        }
}

/* Product `at` of dp, as exact as a device's: dp - sum do o cancels, to nothing where there is one
 * key, and only one of the two may have tf32 factors. */
static double sampled(const Att *t, int64_t at)
{
        const Eval *e = t->j->e;
        return e->c.sample ? 1 + e->c.blur[DT_F32] * eval_chance(e, t->j->r, MAX_OUT - 1, at) : 1;
}

/* With P the probabilities and M the dropout factors: dv = (P M)^T do, dp = M (do v^T),
 * ds = P (dp - sum do o), and through softcap and scale to q and k. */
static void backward(const Att *t, int64_t b, int64_t h, int64_t q)
{
        int64_t at = (b * t->T + q) * t->H + h, n = keys(t, b), kh = h / (t->H / t->K);
        const double *g = t->j->x[5]->v + at * t->DV, *x = t->j->x[0]->v + at * t->D;
        const double *o = t->j->x[3]->v + at * t->DV;
        double *dq = t->j->y[0].v + at * t->D, *dp = eval_scratch(n), delta = 0;
        row(t, b, h, q);
        for (int64_t d = 0; d < t->DV; d++)
                delta += g[d] * o[d];
        for (int64_t s = 0; s < n; s++) {
                int64_t row = (b * t->S + s) * t->K + kh;
                const double *v = t->j->x[2]->v + row * t->DV;
                double *dv = t->j->y[2].v + row * t->DV;
                for (int64_t d = 0; d < t->DV; d++) {
                        dp[s] += t->keep[s] * g[d] * v[d] *
                                 sampled(t, (((b * t->H + h) * t->T + q) * n + s) * t->DV + d);
                        dv[d] += t->p[s] * t->keep[s] * g[d];
                }
        }
        if (t->j->e->c.round) { /* of the output as it was stored: what kernels have */
                const double *o = t->j->x[3]->v + at * t->DV;
                delta = 0;
                for (int64_t d = 0; d < t->DV; d++)
                        delta += o[d] * g[d];
        }
        for (int64_t s = 0; s < n; s++) {
                int64_t row = (b * t->S + s) * t->K + kh;
                const double *k = t->j->x[1]->v + row * t->D;
                double *dk = t->j->y[1].v + row * t->D,
                       ds = t->p[s] * (dp[s] - delta) * t->slope[s] * t->a->att.scale;
                for (int64_t d = 0; d < t->D; d++) {
                        dq[d] += ds * k[d];
                        dk[d] += ds * x[d];
                }
        }
        free(dp);
}

void eval_attention(Job *j)
{
        Eval *e = j->e;
        const Type *q = j->xt[0], *k = j->xt[1];
        bool grad = j->n->op == OP_ATTENTION_GRAD;
        int extra = att_extra(j->n);
        Att t = { .j = j,
                  .a = &j->n->a,
                  .cached = op_appends(NODE(j->g, j->n->in[1])->op),
                  .B = eval_dim(e, q->dim[0]),
                  .T = eval_dim(e, q->dim[1]),
                  .H = eval_dim(e, q->dim[2]),
                  .D = eval_last(e, q),
                  .S = eval_dim(e, k->dim[1]),
                  .K = eval_dim(e, k->dim[2]),
                  .DV = eval_last(e, j->xt[2]) };
        if (att_documents(j->n))
                t.documents = j->x[att_documents(j->n)]->v;
        if (extra) {
                const Type *m = j->xt[extra];
                t.extra = j->x[extra]->v;
                if (t.a->att.mask) {
                        t.mask_t = m->rank >= 2 && !dim_eq(m->dim[m->rank - 2], DIM(1))
                                           ? eval_last(e, m)
                                           : 0;
                        t.mask_b = m->rank == 3 && !dim_eq(m->dim[0], DIM(1))
                                           ? eval_last(e, m) * eval_dim(e, m->dim[1])
                                           : 0;
                        if (j->x[extra]->n < (t.B - 1) * t.mask_b + (t.T - 1) * t.mask_t + t.S)
                                error_at(j->n->loc, "%%%s: the mask must be (B,T,S) or (T,S)",
                                         j->n->name);
                } else if (j->x[extra]->n < t.H) {
                        error_at(j->n->loc, "%%%s: one slope a head is needed", j->n->name);
                }
        }
        double *own[2] = { NULL, NULL };
        Val kept[2];
        for (int i = 0; i < 2 && e->fp8 && !grad; i++) {
                const int64_t width = i ? t.DV : t.D, n = j->x[1 + i]->n;
                own[i] = eval_scratch(n);
                memcpy(own[i], j->x[1 + i]->v, (size_t)n * sizeof(double));
                for (int64_t at = 0; at < n; at += width)
                        fp8_round(own[i] + at, width);
                kept[i] = (Val) { own[i], n, true };
                j->x[1 + i] = &kept[i];
        }
        double *mem = eval_scratch(3 * t.S);
        t.p = mem;
        t.slope = mem + t.S;
        t.keep = mem + 2 * t.S;
        for (int64_t b = 0; b < t.B; b++)
                for (int64_t h = 0; h < t.H; h++)
                        for (int64_t i = 0; i < t.T; i++)
                                (grad ? backward : forward)(&t, b, h, i);
        free(own[0]);
        free(own[1]);
        free(mem);
}
