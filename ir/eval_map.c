/* eval_map.c: elementwise ops with broadcasting, and those that know their index. */
#include "eval.h"
#include <math.h>
#include <string.h>

typedef struct LineReader {
        uint32_t w[4];
} LineReader;

/* Philox4x32-10 (Salmon et al., SC 2011). */
static LineReader philox(LineReader c, uint32_t k0, uint32_t k1)
{
        for (int r = 0; r < 10; r++) {
                uint64_t p = 0xD2511F53ull * c.w[0], q = 0xCD9E8D57ull * c.w[2];
                c = (LineReader) { { (uint32_t)(q >> 32) ^ c.w[1] ^ k0, (uint32_t)q,
                                     (uint32_t)(p >> 32) ^ c.w[3] ^ k1, (uint32_t)p } };
                k0 += 0x9E3779B9u;
                k1 += 0xBB67AE85u;
        }
        return c;
}

/* One call serves four elements: word i&3 of counter {i>>2, id, micro-steps so far}. */
bool eval_keeps(const Eval *e, double p, int64_t id, int64_t i)
{
        uint64_t u = (uint64_t)i;
        LineReader c = { { (uint32_t)(u >> 2), (uint32_t)(u >> 34), (uint32_t)id,
                           (uint32_t)e->c.step * (uint32_t)e->c.n_micro + (uint32_t)e->c.micro } };
        c = philox(c, e->c.seed[0], e->c.seed[1]);
        return (c.w[i & 3] >> 8) * (1. / 16777216.) >= (double)(float)p;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static const double ROOT_2_PI = 0.79788456080286535588; /* sqrt(2/pi) */

static double gelu_tanh_arg(double x) { return ROOT_2_PI * (x + 0.044715 * x * x * x); }

/* d gelu = Phi(x) + x phi(x) */
static double gelu_slope(double x)
{
        return 0.5 * (1 + erf(x * M_SQRT1_2)) +
               x * exp(-0.5 * x * x) * M_SQRT1_2 * M_2_SQRTPI * 0.5;
}

static double gelu_tanh_slope(double x)
{
        double t = tanh(gelu_tanh_arg(x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT_2_PI * (1 + 3 * 0.044715 * x * x);
}

static double silu_slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }
static double gelu(double x) { return 0.5 * x * (1 + erf(x * M_SQRT1_2)); }
static double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(gelu_tanh_arg(x))); }

/* One element: a, b, c the inputs, x the attribute. */
static double scalar(Op op, double a, double b, double c, double x)
{
        switch (op) {
#define OP(e, text, inputs, cls, attr, shape, grad, stored, facts, tokens)
#define VALUE(e, value) \
        case OP_##e:    \
                return value;
#define MAP(e, text, inputs, attr, shape, grad, stored, facts, scalar, value) VALUE(e, value)
#include "ops.def"
        default: error_at((Loc) { 0 }, "%s has no evaluator", op_info[op].text);
        }
}

/* Steps of input t along each axis of the output: 0 where it is stretched. */
static void strides(Eval *e, const Type *out, const Type *t, int64_t *step)
{
        int64_t s = 1;
        memset(step, 0, MAX_RANK * sizeof *step);
        for (int k = 1; k <= t->rank; k++) {
                int64_t d = eval_dim(e, t->dim[t->rank - k]);
                if (k <= out->rank && !dim_eq(t->dim[t->rank - k], DIM(1)))
                        step[out->rank - k] = s;
                s *= d;
        }
}

static void clamp(Job *j)
{
        const double most = (double)eval_dim(j->e, clamp_rows(&j->n->a)) - 1;
        for (int64_t i = 0; i < j->y[0].n; i++)
                j->y[0].v[i] = fmin(fmax(j->x[0]->v[i], 0), most);
}

static void elementwise(Job *j)
{
        static const double zero[1];
        const double *in[3] = { zero, zero, zero };
        int64_t step[3][MAX_RANK] = { 0 }, dim[MAX_RANK] = { 0 }, at[MAX_RANK] = { 0 },
                off[3] = { 0 };
        const Type *t = &j->yt[0];
        double k = op_info[j->n->op].attr == ATTR_NUM ? j->n->a.num.x : 0;
        for (int i = 0; i < t->rank; i++)
                dim[i] = eval_dim(j->e, t->dim[i]);
        for (int i = 0; i < j->n->n_in; i++) {
                in[i] = j->x[i]->v;
                strides(j->e, t, j->xt[i], step[i]);
        }
        for (int64_t i = 0; i < j->y[0].n; i++) {
                j->y[0].v[i] = scalar(j->n->op, in[0][off[0]], in[1][off[1]], in[2][off[2]], k);
                for (int d = t->rank - 1; d >= 0; d--) {
                        for (int q = 0; q < 3; q++)
                                off[q] += step[q][d];
                        if (++at[d] < dim[d])
                                break;
                        for (int q = 0; q < 3; q++)
                                off[q] -= step[q][d] * dim[d];
                        at[d] = 0;
                }
        }
        if (j->n->op == OP_CAST && t->dt == DT_I32)
                for (int64_t i = 0; i < j->y[0].n; i++)
                        j->y[0].v[i] = dt_round(DT_I32, j->y[0].v[i]);
}

void eval_map(Job *j)
{
        Val *y = &j->y[0];
        const EvalCtx *c = &j->e->c;
        switch (j->n->op) {
        case OP_SHARE: y->v[0] = c->share; break;
        case OP_INV_TOKENS: y->v[0] = c->inv_tokens; break;
        case OP_POSITION:
                for (int64_t i = 0; i < y->n; i++)
                        y->v[i] = eval_position(j->e, i);
                break;
        case OP_CLAMP: clamp(j); break;
        case OP_DROPOUT:
                for (int64_t i = 0; i < y->n; i++)
                        y->v[i] = eval_keeps(j->e, j->n->a.drop.p, j->n->a.drop.id, i)
                                          ? j->x[0]->v[i] / (1 - j->n->a.drop.p)
                                          : 0;
                break;
        default: elementwise(j);
        }
}

/* x (B,T,H,D): neighbouring pairs turn by position * freq; columns past `dims` stay. */
void eval_rope(Job *j)
{
        const Type *t = &j->yt[0];
        int64_t D = eval_last(j->e, t), H = eval_dim(j->e, t->dim[t->rank - 2]);
        int64_t rot = j->n->a.rope.dims ? j->n->a.rope.dims : D;
        const double *x = j->x[0]->v, *freq = j->x[1]->v;
        double *y = j->y[0].v;
        for (int64_t i = 0; i < j->y[0].n; i += D) {
                double pos = eval_position(j->e, i / D / H);
                for (int64_t d = 0; d < D; d += 2) {
                        double a = d < rot ? pos * freq[d / 2] : 0,
                               s = j->n->a.rope.back ? -sin(a) : sin(a);
                        y[i + d] = x[i + d] * cos(a) - x[i + d + 1] * s;
                        y[i + d + 1] = x[i + d + 1] * cos(a) + x[i + d] * s;
                }
        }
}

void eval_interleave(Job *j)
{
        for (int64_t i = 0; i < j->x[0]->n; i++) {
                j->y[0].v[2 * i] = j->x[0]->v[i];
                j->y[0].v[2 * i + 1] = j->x[1]->v[i];
        }
}
