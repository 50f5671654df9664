/* oracle.c: implements oracle.h.  Includes the compiler's headers, not the runtime's. */
#include "oracle.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../compiler/compiler.h"

struct Oracle {
        Graph *g;
        Eval *eval;
};

/* Up to a brace that stands alone. */
char *oracle_text(const char *ir, size_t n)
{
        char *s = malloc(n + 1), *end;
        if (!s)
                return NULL;
        memcpy(s, ir, n);
        s[n] = 0;
        if ((end = strstr(s, "\n}\n")))
                end[3] = 0;
        return s;
}

/* What a check feeds to an objective: log-probabilities are below 0, the rest are small whole
 * numbers, so that signs, masks and places are met. */
double feed_trial(const char *name, int64_t i)
{
        uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + (unsigned char)name[strlen(name) - 1];
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x ^= x >> 27;
        const char *dot = strrchr(name, '.');
        if (dot && (!strcmp(dot, ".old") || !strcmp(dot, ".reference")))
                return -2.5 - 0.5 * (double)(x % 8);
        return (double)(x % 5) - 1;
}

void feed_eval(const Graph *g, Eval *e)
{
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                if (n->op != OP_INPUT || strncmp(n->name, "objective.", 10))
                        continue;
                const int64_t count = type_elems(&n->type).n;
                double *v = mem_new((size_t)count * sizeof *v);
                for (int64_t i = 0; i < count; i++)
                        v[i] = feed_trial(n->name, i);
                eval_set(e, n->name, v, count);
                free(v);
        }
}

static int fail(const Diag *d, Err *e)
{
        return err_set(e, d->code ? d->code : TGC_FAIL, "%s", d->msg);
}

typedef struct Bind {
        const Sizes *s;
        bool train;
} Bind;

/* With the sizes known, since gradients of means need them; outside of training
 * dropout is the identity. */
static Ref visit_bind(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Bind *b = ctx;
        if (NODE(old, r)->op == OP_DROPOUT && !b->train)
                return map[NODE(old, r)->in[0]];
        Ref n = graph_copy_node(old, r, g, map);
        Type *t = &NODE(g, n)->type;
        for (int i = 0; i < t->rank; i++)
                for (int k = 0; k < N_SYM; k++)
                        while (t->dim[i].e[k] && b->s->v[k]) {
                                t->dim[i].n *= b->s->v[k];
                                t->dim[i].e[k]--;
                        }
        if (NODE(g, n)->op == OP_ATTENTION && !b->train)
                NODE(g, n)->a.att.p = 0;
        return n;
}

static void keep_losses(Graph *g)
{
        int k = 0;
        for (int i = 0; i < g->n_out; i++)
                if (strcmp(g->out[i].name, "logits"))
                        g->out[k++] = g->out[i];
        g->n_out = k;
        graph_sweep(g);
}

int oracle_new(Oracle **out, const char *ir, size_t n, bool grads, int B, int T,
               const unsigned seed[2], const Rounding *rounding, Err *e)
{
        Diag d = { 0 };
        char *volatile text = oracle_text(ir, n);
        Oracle *volatile o = *out = calloc(1, sizeof *o);
        Arena *volatile tmp = NULL;
        if (!text || !o) {
                free(text);
                return err_set(e, TGC_NO_MEMORY, "no memory for the reference");
        }
        EvalCtx c = { .sizes = { { B, T, T } },
                      .n_micro = 1,
                      .share = 1,
                      .inv_tokens = 1.0 / ((double)B * T),
                      .seed = { seed[0], seed[1] },
                      .round = rounding != NULL };
        const char *stored = rounding ? rounding->stored : NULL;
        if (rounding) {
                c.sample = rounding->sample;
                /* eight units of float32: a function's error, or a sum's; else one unit */
                c.blur[DT_F32] = rounding->tf32 ? 0x1p-11 : 0x1p-21;
                c.blur[DT_BF16] = 0x1p-8;
                c.blur[DT_F16] = 0x1p-11;
        }
        if (!DIAG_CATCH(&d)) {
                free(text);
                arena_free(tmp);
                oracle_free(o);
                *out = NULL;
                return fail(&d, e);
        }
        o->g = graph_parse(text, "ir");
        if (grads)
                keep_losses(o->g);
        graph_rebuild(o->g, visit_bind, &(Bind) { &c.sizes, grads });
        o->g->sizes = c.sizes;
        if (grads) {
                tmp = arena_new();
                differentiate(o->g, tmp);
        }
        if (stored && strcmp(stored, dt_name[DT_F32]))
                precision(o->g, strcmp(stored, dt_name[DT_BF16]) ? DT_F16 : DT_BF16);
        o->eval = eval_new(o->g, &c);
        feed_eval(o->g, o->eval);
        diag_end(&d);
        if (tmp)
                arena_free(tmp);
        free(text);
        return TGC_OK;
}

void oracle_fp8(Oracle *o) { eval_fp8(o->eval); }

void oracle_free(Oracle *o)
{
        if (!o)
                return;
        if (o->eval)
                eval_free(o->eval);
        if (o->g)
                graph_free(o->g);
        free(o);
}

int oracle_set(Oracle *o, const char *leaf, const double *v, int64_t n, Err *e)
{
        Diag d = { 0 };
        if (!graph_find(o->g, leaf))
                return TGC_OK;
        if (!DIAG_CATCH(&d))
                return fail(&d, e);
        eval_set(o->eval, leaf, v, n);
        diag_end(&d);
        return TGC_OK;
}

int oracle_run(Oracle *o, Err *e)
{
        Diag d = { 0 };
        if (!DIAG_CATCH(&d))
                return fail(&d, e);
        eval_run(o->eval);
        diag_end(&d);
        return TGC_OK;
}

double oracle_nearest(const Oracle *o) { return eval_nearest(o->eval); }

const double *oracle_output(Oracle *o, const char *name, int64_t *n)
{
        return graph_out(o->g, name) ? eval_output(o->eval, name, n) : NULL;
}

const double *oracle_value(Oracle *o, const char *name, int op, int64_t *n)
{
        Ref r = graph_find(o->g, name);
        return r && (int)NODE(o->g, r)->op == op ? eval_get(o->eval, r, 0, n) : NULL;
}

static double largest_of(DType t)
{
        return t == DT_F16 ? 65504 : t == DT_BF16 ? 0x1.fep127 : FLT_MAX;
}

static void say_node(const Graph *g, Ref r, int64_t at, double v, const double *in_most, char *says,
                     size_t n)
{
        const Node *x = NODE(g, r);
        size_t k = (size_t)snprintf(says, n, "%%%.80s = %s(", x->name ? x->name : "?",
                                    op_info[x->op].text);
        for (int i = 0; i < x->n_in && k < n; i++)
                k += (size_t)snprintf(says + k, n - k, "%s%%%.40s", i ? ", " : "",
                                      NODE(g, x->in[i])->name ? NODE(g, x->in[i])->name : "?");
        if (k < n)
                k += (size_t)snprintf(says + k, n - k, ")");
        if (k < n && x->loc.file && x->loc.line)
                k += (size_t)snprintf(says + k, n - k, "  %.60s:%d", x->loc.file, x->loc.line);
        if (k < n)
                snprintf(says + k, n - k, ": element %lld is %g, its inputs are %.3g at most",
                         (long long)at, v, *in_most);
}

bool oracle_first_bad(Oracle *o, char *says, size_t n)
{
        for (Ref r = 1; r < o->g->n_nodes; r++) {
                const Node *x = NODE(o->g, r);
                int64_t k = 0;
                const double *v = eval_get(o->eval, r, 0, &k);
                const double most = largest_of((DType)x->type.dt);
                double in_most = 0;
                for (int64_t i = 0; v && i < k; i++) {
                        if (fabs(v[i]) <= most)
                                continue;
                        for (int a = 0; a < x->n_in; a++) {
                                int64_t m = 0;
                                const double *u = eval_get(o->eval, x->in[a], 0, &m);
                                for (int64_t j = 0; u && j < m; j++)
                                        in_most = fabs(u[j]) > in_most ? fabs(u[j]) : in_most;
                        }
                        say_node(o->g, r, i, v[i], &in_most, says, n);
                        return true;
                }
        }
        return false;
}

const double *oracle_grad(Oracle *o, const char *param, int64_t *n)
{
        return eval_grad(o->eval, param, n);
}
