/* graph_test.h: what tests of the IR share: text to graph, random leaves, comparing values. */
#ifndef TGC_GRAPH_TEST_H
#define TGC_GRAPH_TEST_H

#include "test.h"
#include "../ir/ir.h"
#include <math.h>
#include <stdlib.h>

/* splitmix64; a test states its seed. */
static inline uint64_t rng_next(uint64_t *s)
{
        uint64_t z = *s += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
}

static inline double rng_real(uint64_t *s, double lo, double hi)
{
        return lo + (hi - lo) * ((double)(rng_next(s) >> 11) * 0x1p-53);
}

/* Every PARAM gets numbers in [lo,hi) that depend on its name and the seed only, so
 * that a graph before and after a pass gets the same ones. */
static inline void set_params(Eval *e, Graph *g, const Sizes *sizes, uint64_t seed, double lo,
                              double hi)
{
        for (Ref r = 1; r < g->n_nodes; r++) {
                Node *n = NODE(g, r);
                if (n->op != OP_PARAM)
                        continue;
                uint64_t s = seed;
                for (const char *c = n->name; *c; c++)
                        s = s * 31 + (unsigned char)*c;
                int64_t k = type_count(&n->type, sizes);
                double *v = malloc((size_t)k * sizeof *v);
                for (int64_t i = 0; i < k; i++)
                        v[i] = rng_real(&s, lo, hi);
                eval_set(e, n->name, v, k);
                free(v);
        }
}

static inline void set_ids(Eval *e, Graph *g, const Sizes *sizes, const char *name, int vocab,
                           uint64_t seed)
{
        Ref r = graph_find(g, name);
        if (!r)
                return;
        int64_t k = type_count(&NODE(g, r)->type, sizes);
        double *v = malloc((size_t)k * sizeof *v);
        for (int64_t i = 0; i < k; i++)
                v[i] = (double)(rng_next(&seed) % (uint64_t)vocab);
        eval_set(e, name, v, k);
        free(v);
}

static inline double worst_difference(const double *a, const double *b, int64_t n)
{
        double worst = 0;
        for (int64_t i = 0; i < n; i++) {
                double d = fabs(a[i] - b[i]) / (1 + fabs(b[i]));
                if (!(d <= worst))
                        worst = isnan(d) && !(isnan(a[i]) && isnan(b[i])) ? INFINITY : d;
        }
        return worst;
}

/* Run fn with errors of the user's kind caught: they fail the test. */
static inline void guarded(void (*fn)(const void *), const void *arg)
{
        Diag d = { 0 };
        jmp_buf outer;
        volatile int failed = 0;
        memcpy(&outer, &test_out, sizeof outer);
        if (DIAG_CATCH(&d)) {
                failed = setjmp(test_out);
                if (!failed)
                        fn(arg);
                diag_end(&d);
        } else {
                printf("  %s\n", d.msg);
                failed = 1;
        }
        memcpy(&test_out, &outer, sizeof outer);
        if (failed)
                longjmp(test_out, failed);
}

#endif
