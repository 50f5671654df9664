/* small_gpt.h: a small GPT in a session, the same one for every test that decodes with it: what is
 * compiled for one is in the cache for the others. */
#ifndef TGC_TESTS_SMALL_GPT_H
#define TGC_TESTS_SMALL_GPT_H

#include "test.h"
#include "cli/load/load.h"
#include "runtime/session/session.h"

enum { CTX = 150, V = 65 };

static Err e;
#define MUST(call) CHECK_MSG(!(call), "%s: %s", #call, e.msg)

typedef struct Bench {
        Plan p;
        Session *s;
} Bench;

/* cache_tokens: 0 is room for all. */
static void open_model(Bench *x, const char *dtype, int batch, int64_t cache_tokens, DevKind kind)
{
        const char *layers = kind == DEV_CPU ? "n_layer=2" : "n_layer=1"; /* the emulator is slow */
        const char *define[] = { layers, "n_embd=48", "n_head=3", "vocab=65", "ctx=150" };
        BuildOptions o = { .kind = MODEL_LUA,
                           .model = "gpt",
                           .dtype = dtype,
                           .define = define,
                           .n_define = 5,
                           .mode = BUILD_INFER,
                           .opt = 3,
                           .batch = batch,
                           .chunk = 40, /* so that most texts go on in another call */
                           .cache_tokens = cache_tokens,
                           .cuda = kind != DEV_CPU,
                           .cpu = kind == DEV_CPU };
        memset(x, 0, sizeof *x);
        MUST(build_plan(&x->p, &o, &e));
        MUST(plan_add_headers(&x->p, &e));
        MUST(session_open(&x->s, &x->p, &(SessionOptions) { .device = kind, .seed = 7 }, &e));
}

static void close_model(Bench *x)
{
        session_close(x->s);
        plan_close(&x->p);
}

#endif
