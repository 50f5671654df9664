/* run.h: a model compiled in memory and opened on a device, for the end-to-end tests of inference.
 *
 * Whatever cannot be done fails the test that asked.  Threads are one: the models are small. */
#ifndef TGC_E2E_RUN_H
#define TGC_E2E_RUN_H

#include <math.h>
#include <stdlib.h>
#include "../../test.h"
#include "../../../cli/load/load.h"
#include "../../../runtime/util/file.h"
#include "../../../runtime/weights/npy.h"
#include "../../../runtime/session/session.h"

typedef struct Trial {
        Plan plan;
        void *weights;
        Session *s;
        int vocab, ctx;
} Trial;

static inline void must(int code, const Err *e) { CHECK_MSG(!code, "%s", e->msg); }

/* tests/cuda.sh sends everything to the GPU. */
static inline bool run_on_gpu(void)
{
        const char *d = getenv("TGC_TEST_DEVICE");
        return d && !strcmp(d, "cuda");
}

/* o: kind, model and whatever differs from float32, -O3, one sequence. */
static inline void run_compile(Trial *r, BuildOptions o, const char *weights)
{
        Err e = { 0 };
        Progress quiet = { .quiet = true };
        if (!o.dtype)
                o.dtype = "f32";
        if (!o.mode)
                o.mode = BUILD_INFER;
        o.cuda |= run_on_gpu();
        o.cpu |= !o.cuda;
        *r = (Trial) { 0 };
        must(build_plan(&r->plan, &o, &e), &e);
        must(plan_add_headers(&r->plan, &e), &e);
        if (weights)
                must(weights_import(&r->plan, weights, &r->weights, &quiet, &e), &e);
}

static inline void run_start(Trial *r, DevKind device)
{
        Err e = { 0 };
        SessionOptions o = { .device = device, .dev = { .threads = 1 }, .seed = 1 };
        must(session_open(&r->s, &r->plan, &o, &e), &e);
        r->vocab = session_manifest(r->s)->vocab;
        r->ctx = session_manifest(r->s)->ctx;
}

static inline void run_open(Trial *r, BuildOptions o, const char *weights)
{
        run_compile(r, o, weights);
        run_start(r, run_on_gpu() ? DEV_CUDA : o.cuda ? DEV_EMULATE : DEV_CPU);
}

static inline void run_end(Trial *r)
{
        session_close(r->s);
        plan_close(&r->plan);
        free(r->weights);
        *r = (Trial) { 0 };
}

/* ---- what a run gives ---- */

/* (n,V) logits of one pass; caller frees. */
static inline float *run_score(Trial *r, const int *ids, int n, double *nll)
{
        Err e = { 0 };
        float *l = calloc((size_t)n * r->vocab, sizeof *l);
        must(session_score(r->s, ids, n, l, nll, &e), &e);
        return l;
}

typedef struct Taken {
        int *to, n;
} Taken;

static inline int run_take(void *user, int i, const int *token, int B)
{
        Taken *t = user;
        for (int b = 0; b < B; b++)
                t->to[i * B + b] = token[b];
        t->n = i + 1;
        return 0;
}

/* n greedy tokens for each of B sequences, to (n,B). */
static inline void run_greedy(Trial *r, int n, int *to)
{
        Err e = { 0 };
        Sampling how = sampling_default();
        Taken t = { to, 0 };
        how.temp = 0;
        must(session_decode(r->s, &how, n, run_take, &t, &e), &e);
        CHECK_MSG(t.n == n, "%d tokens instead of %d", t.n, n);
}

static inline void run_prefill(Trial *r, const int *ids, int B, int n)
{
        Err e = { 0 };
        must(session_reset(r->s, &e), &e);
        must(session_prefill(r->s, ids, B, n, &e), &e);
}

/* The logits of the decode step just made, (B,V); the plan's dtype must be float32. */
static inline void run_logits(Trial *r, const char *prog, int B, float *to)
{
        Err e = { 0 };
        must(session_read(r->s, prog, "logits", to, (size_t)B * r->vocab * sizeof *to, &e), &e);
}

/* ---- numbers ---- */

/* Largest difference; infinite where one side is not a number. */
static inline double worst(const float *a, const float *b, size_t n)
{
        double w = 0;
        for (size_t i = 0; i < n; i++) {
                double d = fabs((double)a[i] - b[i]);
                if (!(d <= w))
                        w = isnan(d) ? INFINITY : d;
        }
        return w;
}

static inline double largest(const float *a, size_t n)
{
        double w = 0;
        for (size_t i = 0; i < n; i++)
                w = fabs(a[i]) > w ? fabs(a[i]) : w;
        return w;
}

/* The numbers after "key": [ in a JSON text (or, key NULL, all of a text), at most cap. */
static inline int numbers(const char *text, const char *key, double *to, int cap)
{
        int n = 0;
        char quoted[64], *end;
        snprintf(quoted, sizeof quoted, "\"%s\"", key ? key : "");
        const char *at = key ? strstr(text, quoted) : text;
        if (!at || (key && !(at = strchr(at, '['))))
                return 0;
        for (at += key != NULL; *at && *at != ']' && n < cap; at = end) {
                while (*at == ',' || *at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')
                        at++;
                double v = strtod(at, &end);
                if (end == at)
                        break;
                to[n++] = v;
        }
        return n;
}

static inline int integers(const char *text, const char *key, int *to, int cap)
{
        double v[4096];
        int n = numbers(text, key, v, cap < 4096 ? cap : 4096);
        for (int i = 0; i < n; i++)
                to[i] = (int)v[i];
        return n;
}

/* Not inline: gcc 12 then takes the result for a pointer to s. */
static __attribute__((noinline, unused)) char *text_of(const char *path)
{
        Err e = { 0 };
        char *s;
        size_t n;
        must(file_read_text(path, 1 << 26, &s, &n, &e), &e);
        return s;
}

/* Raw float32, exactly n of them; caller frees. */
static inline float *floats_of(const char *path, size_t n)
{
        float *v = malloc(n * sizeof *v + 1);
        FILE *f = fopen(path, "rb");
        size_t got = f ? fread(v, sizeof *v, n, f) : 0;
        if (f)
                fclose(f);
        CHECK_MSG(got == n, "%s: %zu numbers instead of %zu", path, got, n);
        return v;
}

/* VERBOSE=1 shows what was measured. */
#define NOTE(...) (getenv("VERBOSE") ? printf("  # " __VA_ARGS__), printf("\n") : 0)

#endif
