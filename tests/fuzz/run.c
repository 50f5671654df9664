/* run.c: bytes choose a random graph (random_graph.h) and how it is compiled; every program's graph
 * after all passes then computes, in double precision, what the model does: loss, gradients, logits
 * of chunks and of a token at a time.
 *
 * libFuzzer's runs compile one program of them, chosen by a byte; but all of them, and write the
 * code, where the length asks for it: in a thirtieth, since that takes most of the time.  The code
 * is not run: a compiler would take a hundred times as long; test_random runs it.  test_fuzz does
 * all that with every seed. */
#include <math.h>
#include "file.h"
#include "../../cli/check/oracle.h"
#include "../../compiler/pipeline.h"
#include "../random_graph.h"

enum { RUN_CTX = 8, RUN_TOKENS = 6 };

typedef struct Run {
        CompileOptions o;
        const Graph *model;
        const char *ir; /* graphs; the first is the whole model */
        size_t n;
        int vocab;
} Run;

#ifdef FUZZ_ALONE      /* in place of the compiler's (ld's --wrap) */
static int run_chosen; /* -1: all */

int __real_specs_of(const Model *m, const CompileOptions *o, int ctx, int chunk, int block,
                    Spec *spec);
int __wrap_specs_of(const Model *m, const CompileOptions *o, int ctx, int chunk, int block,
                    Spec *spec);

int __wrap_specs_of(const Model *m, const CompileOptions *o, int ctx, int chunk, int block,
                    Spec *spec)
{
        const int n = __real_specs_of(m, o, ctx, chunk, block, spec);
        if (run_chosen < 0)
                return n;
        spec[0] = spec[run_chosen % n];
        return 1;
}
#endif

static double run_number(const char *name, int64_t i)
{
        uint64_t x = (uint64_t)i * 0x9E3779B97F4A7C15u + 1;
        for (; *name; name++)
                x = (x ^ (unsigned char)*name) * 0x100000001b3u;
        x ^= x >> 29;
        x *= 0xBF58476D1CE4E5B9u;
        return (double)(x >> 11) * 0x1p-53;
}

/* Leaf `name` of n numbers; row: of tokens in the reference, from: the first of these tokens
 * here. */
static double *run_leaf(const Run *r, const char *name, int64_t n, int T, int row, int from)
{
        double *v = malloc((size_t)(n + 1) * sizeof *v);
        bool ids = !strcmp(name, "ids"), targets = !strcmp(name, "targets"),
             documents = !strcmp(name, "documents");
        HOLDS(v);
        for (int64_t i = 0; i < n; i++)
                v[i] = documents ? (double)(i % 2 * row)
                       : ids || targets
                               ? floor(run_number(name, i / T * row + i % T + from) * r->vocab)
                               : run_number(name, i) - 0.5;
        return v;
}

static void run_fill(const Run *r, Eval *e, Graph *g, const Sizes *s, int row, int from,
                     bool params)
{
        for (Ref i = 1; i < g->n_nodes; i++) {
                const Node *x = NODE(g, i);
                if (x->op != OP_INPUT && !(x->op == OP_PARAM && params))
                        continue;
                int64_t n = type_count(&x->type, s);
                double *v = run_leaf(r, x->name, n, s->v[SYM_T], row, from);
                eval_set(e, x->name, v, n);
                free(v);
        }
}

/* The model itself. */
static Oracle *run_reference(const Run *r, bool grads, int B, int T)
{
        const unsigned seed[2] = { 7, 9 };
        Sizes s = { { B, T, T } };
        Oracle *o;
        Err e = { 0 };

        HOLDS(!oracle_new(&o, r->ir, r->n, grads, B, T, seed, NULL, &e));
        for (Ref i = 1; i < r->model->n_nodes; i++) {
                const Node *x = NODE(r->model, i);
                if (x->op != OP_INPUT && x->op != OP_PARAM)
                        continue;
                int64_t n = type_count(&x->type, &s);
                double *v = run_leaf(r, x->name, n, T, T, 0);
                HOLDS(!oracle_set(o, x->name, v, n, &e));
                free(v);
        }
        HOLDS(!oracle_run(o, &e));
        return o;
}

static void run_same(const double *got, const double *want, int64_t n, const char *what,
                     const Oracle *o)
{
        double most = 1e-3, worst = 0;
        if (!got || !want || oracle_nearest(o) < 1e-6) /* chosen by a hair */
                return;
        for (int64_t i = 0; i < n; i++) {
                if (!isfinite(want[i]) || fabs(want[i]) > 1e12)
                        return;
                most = fabs(want[i]) > most ? fabs(want[i]) : most;
        }
        for (int64_t i = 0; i < n; i++)
                if (!isnan(worst) && !(fabs(got[i] - want[i]) <= worst))
                        worst = fabs(got[i] - want[i]);
        if (!(worst <= 1e-6 * most)) {
                fprintf(stderr, "%s: %g of %g\n", what, worst, most);
                abort();
        }
}

static void run_loss(const Run *r, Graph *g, bool grads)
{
        const int B = r->o.batch, T = r->o.block;
        Sizes s = { { B, T, 0 } };
        EvalCtx c = {
                .sizes = s, .n_micro = 1, .share = 1, .inv_tokens = 1.0 / (B * T), .seed = { 7, 9 }
        };
        Oracle *o = run_reference(r, grads, B, T);
        Eval *e = eval_new(g, &c);
        int64_t n, m;

        run_fill(r, e, g, &s, T, 0, true);
        eval_run(e);
        for (int i = 0; i < g->n_out; i++) {
                const double *got = eval_output(e, g->out[i].name, &n),
                             *want = oracle_output(o, g->out[i].name, &m);
                if (want && n == m)
                        run_same(got, want, n, g->out[i].name, o);
        }
        for (Ref i = 1; i < g->n_nodes && grads; i++)
                if (NODE(g, i)->op == OP_PARAM) {
                        const double *got = eval_grad(e, NODE(g, i)->name, &n),
                                     *want = oracle_grad(o, NODE(g, i)->name, &m);
                        if (want && got && n == m)
                                run_same(got, want, n, NODE(g, i)->name, o);
                }
        eval_free(e);
        oracle_free(o);
}

/* `each` tokens at a time, through the cache. */
static void run_text(const Run *r, Graph *g, int B, int each)
{
        const int V = r->vocab;
        int pos[2] = { 0 };
        Oracle *o = run_reference(r, false, B, RUN_TOKENS);
        EvalCtx c = { .sizes = { { B, each, RUN_CTX } },
                      .n_micro = 1,
                      .share = 1,
                      .inv_tokens = 1,
                      .pos = pos };
        Eval *e = eval_new(g, &c);
        int64_t n, m;
        const double *want = oracle_output(o, "logits", &m), *got;

        for (int at = 0; at < RUN_TOKENS && want; at += each) {
                c.sizes.v[SYM_T] = RUN_TOKENS - at < each ? RUN_TOKENS - at : each;
                for (int b = 0; b < B; b++)
                        pos[b] = at;
                eval_again(e, &c);
                run_fill(r, e, g, &c.sizes, RUN_TOKENS, at, at == 0);
                eval_run(e);
                got = eval_output(e, "logits", &n);
                HOLDS(got && n == (int64_t)B * c.sizes.v[SYM_T] * V);
                for (int b = 0; b < B; b++)
                        run_same(got + (int64_t)b * c.sizes.v[SYM_T] * V,
                                 want + ((int64_t)b * RUN_TOKENS + at) * V,
                                 (int64_t)c.sizes.v[SYM_T] * V, each == 1 ? "decode" : "score", o);
        }
        eval_free(e);
        oracle_free(o);
}

static void run_programs(const Run *r)
{
        const char *s = r->ir;
        bool whole = true;

        for (const char *end; (end = strstr(s, "\n}\n")); s = end + 3, whole = false) {
                char *text = text_of_bytes((const uint8_t *)s, (size_t)(end + 3 - s));
                Diag d = { 0 };
                Graph *volatile g = NULL;
                if (!whole && DIAG_CATCH(&d)) {
                        g = graph_parse(text, "ir");
                        if (!strcmp(g->name, "step") || !strcmp(g->name, "eval"))
                                run_loss(r, g, *g->name == 's');
                        else if (!strcmp(g->name, "score"))
                                run_text(r, g, 1, 4);
                        else if (!strcmp(g->name, "decode"))
                                run_text(r, g, r->o.train ? 1 : r->o.batch, 1);
                        diag_end(&d);
                        graph_free(g);
                } else if (!whole) {
                        fprintf(stderr, "%s\n", d.msg);
                        abort();
                }
                free(text);
        }
}

static __attribute__((noinline)) Model *run_model(const Draw *from)
{
        Model *volatile m = NULL;
        Diag d = { 0 };

        if (DIAG_CATCH(&d)) {
                m = random_model(*from);
                diag_end(&d);
        } else {
                fprintf(stderr, "%s\n", d.msg);
        }
        HOLDS(m);
        return m;
}

static __attribute__((noinline)) bool run_compile(Model *m, const CompileOptions *o, Compiled *out)
{
        Diag d = { 0 };

        if (!DIAG_CATCH(&d)) {
                HOLDS(d.code == 2 || d.code == 3); /* refused: no mistake of ours */
                return false;
        }
        compile(m, o, out);
        diag_end(&d);
        return true;
}

/* Widths multiply; a model of more values takes seconds, and memory that the fuzzer forbids. */
static bool run_is_small(const Model *m)
{
        enum { MOST_VALUES = 1 << 20 };
        const Sizes s = { { 2, RUN_CTX, RUN_CTX } };
        int64_t left = MOST_VALUES;
        for (Ref r = 1; r < m->graph->n_nodes && left >= 0; r++)
                left -= type_count(&NODE(m->graph, r)->type, &s);
        return left >= 0;
}

FUZZ(run)
{
        static const DType type[] = { DT_F32, DT_F32, DT_BF16, DT_F16 };
        Draw d = { .byte = data, .n = n };
        Compiled out = { 0 };

        if (n < 2)
                return;
        const int how = draw(&d, 256), more = draw(&d, 256);
#ifdef FUZZ_ALONE
        const bool code = n % 8 == 1;
#else
        const bool code = true;
#endif
        const CompileOptions o = { .dtype = type[how & 3],
                                   .opt = how & 4 ? 3 : 0,
                                   .infer = !(how & 24) || how & 8,
                                   .train = !(how & 8),
                                   .batch = 1 + (how >> 5 & 1),
                                   .block = 1 + (how >> 6) * 2,
                                   .ctx = RUN_CTX,
                                   .cuda = code && !(more & 7),
                                   .cpu = code && (more & 7) == 1,
                                   .recompute = !(more & 24),
                                   .tf32 = (how & 3) == 1 && more & 32 };
        Model *m = run_model(&d);
#ifdef FUZZ_ALONE
        run_chosen = o.cuda || o.cpu ? -1 : more >> 6;
#endif
        if (run_is_small(m) && run_compile(m, &o, &out)) {
                Run r = { .o = o,
                          .model = m->graph,
                          .ir = out.ir.s,
                          .n = out.ir.n,
                          .vocab = (int)m->vocab };
                run_programs(&r);
        }
        compiled_free(&out);
        model_free(m);
}
