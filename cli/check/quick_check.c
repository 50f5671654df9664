/* quick_check.c: compares a model's programs with the model itself, in double precision, before
 * kernels are made.
 *
 *      decode    the graph with caches, one token after another    = logits of the whole text
 *      step      the graph that trains                             = loss and gradients of the
 *                                                                  plain one
 *      gradient  of the plain one                                  = differences of the loss in a
 *                                                                  random direction
 *
 * It uses a few tokens and weights of its own, not a checkpoint's.  A difference is a bug of this
 * compiler.  No kernel runs, since that would need a compiler; `tgc check` runs them.  A model that
 * would take more than a second or two is skipped, with a message. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "oracle.h"
#include "quick_check.h"

typedef struct Quick {
        const Model *m;
        const CompileOptions *o;
        const Text *ir;
        int B, T;
        double ids[2 * 8], targets[2 * 8], documents[2 * 8 * 2];
        double *x; /* one parameter */
        Err *e;
} Quick;

/* Operations of the evaluator that fit into a small part of a second, and into two. */
static const double SOON = 1e8, LATE = 1.2e9;
static const double TOLERANCE = 1e-6, SLOPE_TOLERANCE = 1e-3;

static uint64_t hash(uint64_t x)
{
        x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
        x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
        return x ^ x >> 33;
}

/* Between -1 and 1. */
static double noise(uint64_t x) { return (double)(hash(x) >> 11) * 0x1p-52 - 1; }

static uint64_t name_hash(const char *s)
{
        uint64_t h = 1469598103934665603u;
        for (; *s; s++)
                h = (h ^ (unsigned char)*s) * 1099511628211u;
        return h;
}

/* Parameter n: near what it begins with, so that no bias is 0 and no gain 1; plus step times
 * direction number `way`. */
static int64_t fill(const Quick *q, const Node *n, double step, int way)
{
        const int64_t count = type_elems(&n->type).n;
        const uint64_t key = name_hash(n->name);
        const double a = n->a.param.a, b = n->a.param.b;
        for (int64_t i = 0; i < count; i++) {
                double u = noise(key + (uint64_t)i), base = 0.1 * u;
                switch (n->a.param.init) {
                case INIT_NORMAL: base = 1.7 * a * u + 0.02 * noise(key ^ (uint64_t)i * 3); break;
                case INIT_UNIFORM: base = (a + b) / 2 + (b - a) / 2 * u; break;
                case INIT_ONES: base += 1; break;
                case INIT_VALUE: base += a; break;
                default: break;
                }
                q->x[i] = base;
                if (step != 0 && n->a.param.trainable)
                        q->x[i] += step * noise(key * 31 + (uint64_t)way * 1000003 + (uint64_t)i);
        }
        return count;
}

static int set_weights(const Quick *q, Oracle *o, double step, int way)
{
        int code = TGC_OK;
        for (Ref r = 1; r < q->m->graph->n_nodes && !code; r++) {
                const Node *n = &q->m->graph->node[r];
                if (n->op == OP_PARAM)
                        code = oracle_set(o, n->name, q->x, fill(q, n, step, way), q->e);
        }
        return code;
}

/* The plain model. */
static int ask(const Quick *q, Oracle **o, bool grads, double step, int way)
{
        const unsigned seed[2] = { 1, 2 };
        const int n = q->B * q->T;
        int code = oracle_new(o, q->ir->s, q->ir->n, grads, q->B, q->T, seed, NULL, q->e);
        if (!code && !(code = set_weights(q, *o, step, way)) &&
            !(code = oracle_set(*o, "ids", q->ids, n, q->e)) &&
            !(code = oracle_set(*o, "targets", q->targets, n, q->e)) &&
            !(code = oracle_set(*o, "documents", q->documents, 2 * n, q->e)))
                code = oracle_run(*o, q->e);
        return code;
}

static void set_leaf(const Graph *g, Eval *e, const char *name, const double *v, int64_t n)
{
        if (graph_find(g, name))
                eval_set(e, name, v, n);
}

static void set_params(const Quick *q, const Graph *g, Eval *e)
{
        for (Ref r = 1; r < q->m->graph->n_nodes; r++) {
                const Node *n = &q->m->graph->node[r];
                if (n->op == OP_PARAM && graph_find(g, n->name))
                        eval_set(e, n->name, q->x, fill(q, n, 0, 0));
        }
}

/* The largest difference over the largest value; least: a value that counts as none.  Infinite
 * where only one is finite. */
static double distance(const double *got, const double *want, int64_t n, double least)
{
        double scale = least, worst = 0;
        for (int64_t i = 0; i < n; i++) {
                if (!isfinite(want[i]))
                        return 0; /* the model's own affair */
                scale = fabs(want[i]) > scale ? fabs(want[i]) : scale;
        }
        for (int64_t i = 0; i < n; i++) {
                double d = fabs(got[i] - want[i]);
                if (!(d <= worst))
                        worst = isnan(d) ? INFINITY : d;
        }
        return scale > 0 ? worst / scale : worst;
}

static int differs(const Quick *q, const Node *at, const char *what, double by)
{
        char where[300] = "", value[300] = "";
        if (at && at->loc.file && at->loc.line)
                snprintf(where, sizeof where, "%.250s:%d: error: ", at->loc.file, at->loc.line);
        if (at)
                snprintf(value, sizeof value, ", first in %%%.200s = %s", at->name,
                         op_info[at->op].text);
        return err_set(
                q->e, TGC_CHECK_FAILED,
                "%squick check: %s by %.1e of the largest value%s.  This is a mistake of tgc's, "
                "not of the model's: please report the graph.  -O0 may do without it, `tgc check` "
                "tells more, and --no-check compiles it all the same",
                where, what, by, value);
}

/* ---- decode ---- */

/* The first node of the program whose value at token t is not that of the same node in the whole
 * text. */
static const Node *first_wrong(const Quick *q, Graph *g, Eval *e, Oracle *o, int t)
{
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                int64_t have, all;
                const double *got = eval_get(e, r, 0, &have),
                             *want = oracle_value(o, n->name, n->op, &all);
                if (op_info[n->op].cls == CLASS_LEAF || !got || !want || all != have * q->T)
                        continue;
                for (int b = 0; b < q->B; b++)
                        if (distance(got + b * (have / q->B),
                                     want + ((int64_t)b * q->T + t) * (have / q->B), have / q->B,
                                     1e-3) > TOLERANCE)
                                return n;
        }
        return NULL;
}

static int check_decode(const Quick *q)
{
        Diag d = { 0 };
        Oracle *o = NULL;
        Graph *volatile g = NULL;
        Eval *volatile e = NULL;
        int64_t n;
        volatile int code = ask(q, &o, false, 0, 0);
        const double *want = code ? NULL : oracle_output(o, "logits", &n);
        const int64_t V = want ? n / (q->B * q->T) : 0;
        if (want && DIAG_CATCH(&d)) {
                g = compile_program(q->m, q->o, "decode", q->B, 1, q->T);
                EvalCtx c = { .sizes = { { q->B, 1, q->T } }, .inv_tokens = 1, .share = 1 };
                e = eval_new(g, &c);
                set_params(q, g, e);
                for (int t = 0; t < q->T && !code; t++) {
                        double now[2];
                        int pos[2] = { t, t };
                        c.pos = pos;
                        eval_again(e, &c);
                        for (int b = 0; b < q->B; b++)
                                now[b] = q->ids[b * q->T + t];
                        set_leaf(g, e, "ids", now, q->B);
                        eval_run(e);
                        const double *got = eval_output(e, "logits", &n);
                        for (int b = 0; b < q->B && !code; b++) {
                                double by = distance(got + b * V,
                                                     want + ((int64_t)b * q->T + t) * V, V, 0);
                                if (by > TOLERANCE)
                                        code = differs(
                                                q, first_wrong(q, g, e, o, t),
                                                "the logits of the decode program, which keeps "
                                                "keys and values of earlier tokens, differ from "
                                                "those of the whole text",
                                                by);
                        }
                }
                diag_end(&d);
        } else if (want) {
                code = err_set(q->e, d.code ? d.code : TGC_FAIL, "%s", d.msg);
        }
        eval_free(e);
        if (g)
                graph_free(g);
        oracle_free(o);
        return code;
}

/* ---- step ---- */

static int compare_step(const Quick *q, Graph *g, Eval *e, Oracle *o)
{
        static const char *const loss[] = { "loss", "aux_loss", "ce" };
        double most = 0;
        int64_t n, k;
        for (int i = 0; i < 3; i++) {
                const double *want = oracle_output(o, loss[i], &n),
                             *got = graph_out(g, loss[i]) ? eval_output(e, loss[i], &k) : NULL;
                double by = want && got ? distance(got, want, 1, 1e-3) : 0;
                char what[80];
                snprintf(what, sizeof what, "the %s of the training step differs from the model's",
                         loss[i]);
                if (by > TOLERANCE)
                        return differs(q, NODE(q->m->graph, graph_out(q->m->graph, loss[i])), what,
                                       by);
        }
        for (Ref r = 1; r < q->m->graph->n_nodes; r++) {
                const Node *p = &q->m->graph->node[r];
                const double *want = p->op == OP_PARAM ? oracle_grad(o, p->name, &n) : NULL;
                for (int64_t i = 0; want && i < n; i++)
                        most = fabs(want[i]) > most ? fabs(want[i]) : most;
        }
        for (Ref r = 1; r < q->m->graph->n_nodes; r++) {
                const Node *p = &q->m->graph->node[r];
                const double *want = p->op == OP_PARAM && p->a.param.trainable
                                             ? oracle_grad(o, p->name, &n)
                                             : NULL,
                             *got;
                if (!want || !isfinite(most))
                        continue;
                got = eval_grad(e, p->name, &k);
                double by = got && k == n ? distance(got, want, n, most * 1e-3) : 1;
                if (by > TOLERANCE)
                        return differs(q, p,
                                       "a gradient of the training step differs from the model's",
                                       by);
        }
        return TGC_OK;
}

static int check_step(const Quick *q, Oracle *o)
{
        Diag d = { 0 };
        Graph *volatile g = NULL;
        Eval *volatile e = NULL;
        volatile int code = TGC_OK;
        const int n = q->B * q->T;
        if (DIAG_CATCH(&d)) {
                g = compile_program(q->m, q->o, "step", q->B, q->T, 0);
                EvalCtx c = { .sizes = { { q->B, q->T, q->T } },
                              .n_micro = 1,
                              .share = 1,
                              .inv_tokens = 1.0 / n,
                              .seed = { 1, 2 } };
                e = eval_new(g, &c);
                set_params(q, g, e);
                set_leaf(g, e, "ids", q->ids, n);
                set_leaf(g, e, "targets", q->targets, n);
                set_leaf(g, e, "documents", q->documents, 2 * n);
                feed_eval(g, e);
                eval_run(e);
                code = compare_step(q, g, e, o);
                diag_end(&d);
        } else {
                code = err_set(q->e, d.code ? d.code : TGC_FAIL, "%s", d.msg);
        }
        eval_free(e);
        if (g)
                graph_free(g);
        return code;
}

/* ---- gradients ---- */

static int loss_at(const Quick *q, double step, int way, double *loss)
{
        Oracle *o = NULL;
        int64_t n;
        int code = ask(q, &o, true, step, way);
        const double *v = code ? NULL : oracle_output(o, "loss", &n);
        *loss = v ? *v : NAN;
        oracle_free(o);
        return code;
}

/* By the gradient: the slope of the loss in direction `way`. */
static double slope_of(const Quick *q, Oracle *o, int way)
{
        double sum = 0;
        int64_t n;
        for (Ref r = 1; r < q->m->graph->n_nodes; r++) {
                const Node *p = &q->m->graph->node[r];
                const double *g = p->op == OP_PARAM && p->a.param.trainable
                                          ? oracle_grad(o, p->name, &n)
                                          : NULL;
                for (int64_t i = 0; g && i < n; i++)
                        sum += g[i] * noise(name_hash(p->name) * 31 + (uint64_t)way * 1000003 +
                                            (uint64_t)i);
        }
        return sum;
}

/* Where a maximum or a choice changes on the way there is no slope: only what is wrong in every
 * direction is wrong. */
static int check_slope(const Quick *q, Oracle *o)
{
        double by = INFINITY;
        for (int way = 1; way <= 4 && by > SLOPE_TOLERANCE; way++) {
                double step = way < 3 ? 1e-5 : 1e-7, up, down, slope = slope_of(q, o, way);
                int code = loss_at(q, step, way, &up);
                if (code || (code = loss_at(q, -step, way, &down)))
                        return code;
                double by_steps = (up - down) / (2 * step),
                       size = fabs(by_steps) > fabs(slope) ? fabs(by_steps) : fabs(slope);
                if (!isfinite(by_steps) || !isfinite(slope))
                        return TGC_OK;
                double this = fabs(by_steps - slope) / (size > 1e-4 ? size : 1e-4);
                by = this < by ? this : by;
        }
        return by <= SLOPE_TOLERANCE
                       ? TGC_OK
                       : differs(q, NODE(q->m->graph, graph_out(q->m->graph, "loss")),
                                 "the loss's gradient differs from its differences", by);
}

/* ---- all ---- */

/* Operations of one pass over B x T tokens, and the elements of the largest parameter. */
static double work_of(const Graph *g, int B, int T, int64_t *largest)
{
        const Sizes s = { { B, T, T } };
        double sum = 0;
        *largest = 1;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = &g->node[r];
                double elems = (double)type_count(&n->type, &s);
                if (n->op == OP_PARAM && elems > (double)*largest)
                        *largest = type_count(&n->type, &s);
                if (op_info[n->op].cls == CLASS_MATMUL && n->n_in > 1) {
                        const Type *a = &g->node[n->in[0]].type, *w = &g->node[n->in[1]].type;
                        double k = n->op == OP_MATMUL && n->a.mm.ta && a->rank > 1
                                           ? (double)dim_value(a->dim[a->rank - 2], &s)
                                           : (double)dim_value(a->dim[a->rank - 1], &s);
                        sum += n->op == OP_LINEAR_CE ? 2 * elems * (double)type_count(w, &s)
                                                     : 2 * elems * k;
                }
                sum += (n->op == OP_PARAM ? 8 : 20) * elems;
        }
        return sum;
}

int quick_check(const Model *m, const CompileOptions *o, const Text *ir, bool logits, bool loss,
                char *said, size_t cap, Err *e)
{
        static const struct {
                int B, T;
                bool slope;
        } how[] = { { 2, 4, true }, { 1, 3, true }, { 1, 2, false } };
        Quick q = { .m = m, .o = o, .ir = ir, .e = e };
        int64_t largest;
        size_t i;
        int code = TGC_OK;
        for (i = 0; i < 3; i++) {
                double once = work_of(m->graph, how[i].B, how[i].T, &largest),
                       passes = 2.0 * logits + (loss ? 6 : 0) + (loss && how[i].slope ? 6 : 0);
                if (once * passes <= (i < 2 ? SOON : LATE) &&
                    (o->ctx ? o->ctx : m->ctx) >= how[i].T && (!o->block || o->block >= how[i].T))
                        break;
        }
        snprintf(said, cap, "%s", "");
        if (i == 3) {
                snprintf(said, cap,
                         "not checked, for it is too large for that: `tgc check` on a smaller one "
                         "(-D) does it");
                return TGC_OK;
        }
        q.B = how[i].B;
        q.T = how[i].T;
        if (!(q.x = malloc((size_t)largest * sizeof *q.x)))
                return err_set(e, TGC_NO_MEMORY, "no memory for a quick check");
        for (int k = 0; k < q.B * q.T; k++) {
                q.ids[k] = (double)(hash((uint64_t)k + 17) % (uint64_t)(m->vocab ? m->vocab : 1));
                q.targets[k] = (double)(hash((uint64_t)k + 71) %
                                        (uint64_t)(m->vocab ? m->vocab : 1));
                q.documents[2 * k + 1] = q.T;
        }
        if (logits && graph_out(m->graph, "logits"))
                code = check_decode(&q);
        Oracle *plain = NULL;
        if (!code && loss && !(code = ask(&q, &plain, true, 0, 0)) &&
            !(code = check_step(&q, plain)) && how[i].slope)
                code = check_slope(&q, plain);
        oracle_free(plain);
        free(q.x);
        if (code && code != TGC_CHECK_FAILED) { /* the evaluator cannot follow */
                snprintf(said, cap, "not checked: %.300s", e->msg);
                code = TGC_OK;
        }
        return code;
}
