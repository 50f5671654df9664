/* eval.c: the double-precision evaluator: leaves, the walk over the nodes, results.
 *
 * Plain loops, one op at a time, every value kept.  Back ends, fusions and gradients are compared
 * with it, so it is written to be obviously right. */
#include "eval.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MOST = (int64_t)1 << 30; /* doubles an Eval may hold: 8 GiB */

double *eval_scratch(int64_t n)
{
        double *p = calloc((size_t)(n > 0 ? n : 1), sizeof *p);
        if (!p)
                error_code(5, (Loc) { 0 }, "out of memory for %lld numbers (%lld bytes)",
                           (long long)n, (long long)n * 8);
        return p;
}

/* Zeros that count against the limit. */
static Val hold(Eval *e, int64_t n, Loc loc)
{
        if (n > MOST - e->held)
                error_code(5, loc, "evaluating this graph needs more than %lld numbers",
                           (long long)MOST);
        e->held += n;
        return (Val) { eval_scratch(n), n, false };
}

static void drop(Eval *e, Val *v)
{
        if (v->v && !v->alias) {
                free(v->v);
                e->held -= v->n;
        }
        *v = (Val) { 0 };
}

int64_t eval_dim(Eval *e, Dim d)
{
        int64_t v = d.n;
        for (int i = 0; i < N_SYM; i++)
                for (int k = 0; k < d.e[i]; k++)
                        if (__builtin_mul_overflow(v, e->c.sizes.v[i], &v))
                                error_at((Loc) { 0 }, "a dimension is too large to evaluate");
        return v;
}

int64_t eval_last(Eval *e, const Type *t) { return t->rank ? eval_dim(e, t->dim[t->rank - 1]) : 1; }

static int64_t count(Eval *e, const Type *t, const Node *n)
{
        int64_t v = 1;
        for (int i = 0; i < t->rank; i++) {
                int64_t d = eval_dim(e, t->dim[i]);
                if (d < 1)
                        error_at(n->loc, "%%%s: the sizes of B, T and S must be positive", n->name);
                if (__builtin_mul_overflow(v, d, &v) || v > MOST)
                        error_code(5, n->loc, "%%%s is too large to evaluate", n->name);
        }
        return v;
}

int eval_position(const Eval *e, int64_t row)
{
        int64_t T = e->c.sizes.v[SYM_T], B = e->c.sizes.v[SYM_B];
        T = T > 0 ? T : 1;
        return (row / T < B ? e->pos[row / T] : 0) + (int)(row % T);
}

/* Round to `bits` of significand; 2^low is the smallest number above 0. */
static double nearest(double x, int bits, int low, double most)
{
        int exp;
        if (x == 0 || !isfinite(x))
                return x;
        frexp(x, &exp);
        exp = exp - bits < low ? low : exp - bits;
        x = ldexp(nearbyint(ldexp(x, -exp)), exp);
        return fabs(x) > most ? copysign(INFINITY, x) : x;
}

double dt_round(DType dt, double x)
{
        switch (dt) {
        case DT_F32: return (double)(float)x;
        case DT_BF16: return nearest(x, 8, -133, 0x1.fep127);
        case DT_F16: return nearest(x, 11, -24, 65504);
        default: return isnan(x) ? 0 : trunc(fmin(fmax(x, INT32_MIN), INT32_MAX)); /* as GPUs do */
        }
}

static void round_all(Val *v, DType dt)
{
        for (int64_t i = 0; i < v->n; i++)
                v->v[i] = dt_round(dt, v->v[i]);
}

double eval_chance(const Eval *e, Ref r, int out, int64_t i)
{
        uint64_t seed = (((uint64_t)e->c.sample << 32 | (uint64_t)r) * MAX_OUT + (uint64_t)out) *
                        0x9E3779B97F4A7C15u;
        uint64_t h = (seed + (uint64_t)i) * 0xBF58476D1CE4E5B9u;
        h = (h ^ h >> 31) * 0x94D049BB133111EBu;
        return (double)(h >> 11) * 0x1p-52 - 1;
}

/* Monte Carlo arithmetic: a value that its type cannot hold is off by chance.  What can be held is
 * exact, so that integers stay equal and copies stay what they were; only float32 parameters are
 * off as well, instead of the sums of their products. */
static void blur_all(const Eval *e, Ref r, int out, Val *v, DType dt)
{
        const bool param = NODE(e->g, r)->op == OP_PARAM && dt == DT_F32;
        for (int64_t i = 0; i < v->n; i++)
                if (param || dt_round(dt, v->v[i]) != v->v[i])
                        v->v[i] *= 1 + e->c.blur[dt] * eval_chance(e, r, out, i);
}

void eval_fp8(Eval *e) { e->fp8 = true; }

static void set_ctx(Eval *e, const EvalCtx *c)
{
        e->c = *c;
        for (int i = 0; i < N_SYM; i++)
                if (!e->c.sizes.v[i])
                        e->c.sizes.v[i] = e->g->sizes.v[i];
        int64_t B = e->c.sizes.v[SYM_B] > 0 ? e->c.sizes.v[SYM_B] : 1;
        if (B > 1 << 20)
                error_at((Loc) { 0 }, "a batch of %lld is too large to evaluate", (long long)B);
        free(e->pos);
        e->pos = NULL;
        e->pos = mem_new((size_t)B * sizeof *e->pos);
        if (c->pos)
                memcpy(e->pos, c->pos, (size_t)B * sizeof *e->pos);
        e->c.pos = NULL;
        e->c.n_micro = c->n_micro ? c->n_micro : 1;
        e->c.share = c->share == 0 ? 1 : c->share;
        e->c.inv_tokens = c->inv_tokens == 0 ? 1 : c->inv_tokens;
}

Eval *eval_new(Graph *g, const EvalCtx *c)
{
        Eval *e = mem_new(sizeof *e);
        size_t n = (size_t)g->n_nodes;
        e->g = g;
        e->val = mem_new(n * sizeof *e->val);
        e->leaf = mem_new(n * sizeof *e->leaf);
        e->grad = mem_new(n * sizeof *e->grad);
        set_ctx(e, c);
        return e;
}

static void forget(Eval *e)
{
        for (Ref r = 1; r < e->g->n_nodes; r++)
                for (int i = 0; i < MAX_OUT; i++)
                        drop(e, &e->val[r][i]);
}

void eval_again(Eval *e, const EvalCtx *c)
{
        forget(e);
        set_ctx(e, c);
}

void eval_free(Eval *e)
{
        if (!e)
                return;
        forget(e);
        for (Ref r = 1; r < e->g->n_nodes; r++) {
                drop(e, &e->leaf[r]);
                drop(e, &e->grad[r]);
        }
        free(e->val);
        free(e->leaf);
        free(e->grad);
        free(e->pos);
        free(e);
}

void eval_set(Eval *e, const char *leaf, const double *v, int64_t n)
{
        Ref r = graph_find(e->g, leaf);
        if (!r || op_info[NODE(e->g, r)->op].cls != CLASS_LEAF)
                error_at((Loc) { 0 }, "%%%s is not a leaf of @%s", leaf, e->g->name);
        if (e->leaf[r].n != n || !e->leaf[r].v) {
                drop(e, &e->leaf[r]);
                e->leaf[r] = hold(e, n, NODE(e->g, r)->loc);
        }
        memcpy(e->leaf[r].v, v, (size_t)n * sizeof *v);
}

/* A leaf's value is the stored array itself, or a copy where it must be rounded:
 * the optimiser goes on working on the unrounded one. */
static void eval_leaf_node(Job *j)
{
        Eval *e = j->e;
        Val *leaf = &e->leaf[j->r];
        int64_t need = count(e, &j->yt[0], j->n);
        if (!leaf->v && j->n->op == OP_CONST && j->n->a.data.n) {
                if (j->n->a.data.n != need)
                        error_at(j->n->loc, "const %%%s has %lld numbers, its shape %lld",
                                 j->n->name, (long long)j->n->a.data.n, (long long)need);
                *leaf = hold(e, need, j->n->loc);
                memcpy(leaf->v, j->n->a.data.data, (size_t)need * sizeof(double));
        } else if (!leaf->v && j->n->op == OP_STATE) {
                *leaf = hold(e, need, j->n->loc);
        } else if (!leaf->v) {
                error_at(j->n->loc, "no value was given for %s %%%s", op_info[j->n->op].text,
                         j->n->name);
        }
        if (leaf->n != need)
                error_at(j->n->loc, "%%%s was given %lld numbers, its shape needs %lld", j->n->name,
                         (long long)leaf->n, (long long)need);
        if (e->c.round && j->n->op != OP_STATE) {
                j->y[0] = hold(e, need, j->n->loc);
                memcpy(j->y[0].v, leaf->v, (size_t)need * sizeof(double));
        } else {
                j->y[0] = (Val) { leaf->v, need, true };
        }
}

typedef void Run(Job *j);

/* Which function executes an op: its own, or its class's. */
static Run *const by_op[N_OPS] = {
        [OP_ROPE] = eval_rope,
        [OP_INTERLEAVE] = eval_interleave,
        [OP_RMSNORM_BACK] = eval_norm_back,
        [OP_LAYERNORM_BACK] = eval_norm_back,
        [OP_CE] = eval_ce,
        [OP_CE_GRAD] = eval_ce,
        [OP_MATMUL] = eval_matmul,
        [OP_EXPERT_MATMUL] = eval_expert,
        [OP_EXPERT_GRAD] = eval_expert_grad,
        [OP_EXPERT_ROWS] = eval_expert_rows,
        [OP_LINEAR_CE] = eval_linear_ce,
        [OP_LINEAR_CE_GRAD] = eval_linear_ce,
        [OP_SCATTER] = eval_scatter,
        [OP_COMBINE] = eval_combine,
        [OP_APPEND_ROWS] = eval_update,
};
static Run *const by_class[N_CLASS] = {
        [CLASS_LEAF] = eval_leaf_node,
        [CLASS_MAP] = eval_map,
        [CLASS_ROW] = eval_row,
        [CLASS_COL] = eval_colsum,
        [CLASS_ATTENTION] = eval_attention,
        [CLASS_GATHER] = eval_gather,
        [CLASS_VIEW] = eval_view,
        [CLASS_ROUTE] = eval_route,
        [CLASS_UPDATE] = eval_update,
};

static bool aliases(const Node *n)
{
        return op_info[n->op].cls == CLASS_LEAF || n->op == OP_RESHAPE || n->op == OP_ITEM ||
               op_appends(n->op);
}

static void run_node(Eval *e, Ref r)
{
        Job j = { .e = e, .g = e->g, .r = r, .n = NODE(e->g, r), .y = e->val[r] };
        j.n_out = graph_types(e->g, r, j.yt);
        for (int i = 0; i < j.n->n_in; i++) {
                j.x[i] = &e->val[j.n->in[i]][0];
                j.xt[i] = &NODE(e->g, j.n->in[i])->type;
        }
        if (!aliases(j.n))
                for (int i = 0; i < j.n_out; i++)
                        j.y[i] = hold(e, count(e, &j.yt[i], j.n), j.n->loc);
        (by_op[j.n->op] ? by_op[j.n->op] : by_class[op_info[j.n->op].cls])(&j);
        if (node_storage(j.n)) /* decoded, and not rounded */
                j.yt[0].dt = DT_F32;
        for (int i = 0; e->c.round && i < j.n_out; i++)
                if (!j.y[i].alias) {
                        if (e->c.sample && dt_is_float(j.yt[i].dt))
                                blur_all(e, r, i, &j.y[i], j.yt[i].dt);
                        round_all(&j.y[i], j.yt[i].dt);
                }
}

void eval_run(Eval *e)
{
        forget(e);
        e->nearest = 1;
        for (Ref r = 1; r < e->g->n_nodes; r++)
                run_node(e, r);
}

double eval_nearest(const Eval *e) { return e->nearest; }

static const double *result(const Val *v, int64_t *n)
{
        if (n)
                *n = v ? v->n : 0;
        return v ? v->v : NULL;
}

const double *eval_get(Eval *e, Ref r, int item, int64_t *n)
{
        bool ok = r > 0 && r < e->g->n_nodes && item >= 0 && item < MAX_OUT;
        return result(ok ? &e->val[r][item] : NULL, n);
}

const double *eval_output(Eval *e, const char *name, int64_t *n)
{
        return eval_get(e, graph_out(e->g, name), 0, n);
}

const double *eval_grad(Eval *e, const char *param, int64_t *n)
{
        Ref r = graph_find(e->g, param);
        return result(r ? &e->grad[r] : NULL, n);
}

const double *eval_leaf(Eval *e, const char *leaf, int64_t *n)
{
        Ref r = graph_find(e->g, leaf);
        return result(r ? &e->leaf[r] : NULL, n);
}
