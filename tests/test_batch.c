/* test_batch.c: sequences of unequal length, decoded together: each says what it says alone. */
#include <math.h>
#include "test.h"
#include "cli/load/load.h"
#include "runtime/batch/batch.h"

enum { CTX = 2304, MOST_SEQ = 64 };

static const char *const gpt[] = { "n_layer=2", "n_embd=48", "n_head=3", "vocab=65", "ctx=300" };
static const char *const llama[] = { "n_layer=2",   "n_embd=64",   "n_head=4",
                                     "n_kv_head=2", "head_dim=16", "n_ff=44",
                                     "vocab=65",    "ctx=300",     "window=40" };

/* Layers with a window and layers without: two pools of pages. */
static const char *const mixed[] = { "n_layer=2",  "n_embd=16", "n_head=2", "n_kv_head=1",
                                     "head_dim=8", "n_ff=44",   "vocab=65", "ctx=1600",
                                     "window=40",  "pattern=sf" };

typedef struct Bench {
        Plan p;
        Session *s;
} Bench;

static Err e;
static int chunk_size, set_aside; /* of what is opened; times in the last company */
static int mixed_calls;           /* of the last company */
static bool fast;                 /* what is opened is compiled with --fast */
static const char *cache;         /* --cache-type of what is opened */
#define NOTE(...) (getenv("NOTES") ? printf("  " __VA_ARGS__), printf("\n") : 0)
#define MUST(call) CHECK_MSG(!(call), "%s: %s", #call, e.msg)

static void open_model(Bench *x, const char *model, const char *const *define, int n_define,
                       const char *dtype, int batch, int64_t cache_tokens, const char *device)
{
        const char *copy[16];
        memcpy(copy, define, (size_t)n_define * sizeof *copy);
        BuildOptions o = { .kind = MODEL_LUA,
                           .model = model,
                           .dtype = dtype,
                           .define = copy,
                           .n_define = n_define,
                           .mode = BUILD_INFER,
                           .opt = 3,
                           .batch = batch,
                           .cache_tokens = cache_tokens,
                           .chunk = chunk_size,
                           .fast = fast,
                           .cache = cache,
                           .cuda = strcmp(device, "cpu") != 0,
                           .cpu = !strcmp(device, "cpu") };
        memset(x, 0, sizeof *x);
        MUST(build_plan(&x->p, &o, &e));
        MUST(plan_add_headers(&x->p, &e));
        const DevKind kind = !strcmp(device, "cuda") ? DEV_CUDA : o.cuda ? DEV_EMULATE : DEV_CPU;
        SessionOptions so = { .device = kind, .seed = 7 };
        MUST(session_open(&x->s, &x->p, &so, &e));
}

static void close_model(Bench *x)
{
        session_close(x->s);
        plan_close(&x->p);
}

static unsigned rng = 12345;
static int below(int n)
{
        rng = rng * 1664525u + 1013904223u;
        return (int)((rng >> 8) % (unsigned)n);
}

typedef struct Text {
        int ids[CTX + 2], n, prompt, predict;
        BatchEnd end;
        float logprob[CTX + 2];
} Text;

static BatchHow how_of(const Text *t, int i, bool sampled)
{
        BatchHow h = { .sampling = sampling_default(), .predict = t->predict };
        h.sampling.temp = sampled ? 0.9f : 0.f;
        h.sampling.seed = 100u + (unsigned)i;
        h.sampling.logprobs = true;
        if (sampled && i % 3 == 0)
                h.sampling.repeat_penalty = 1.3f;
        return h;
}

/* Runs until all have ended; t[i] is sequence first + i. */
static void run_all(Batch *b, Text *t, const int *id, int n)
{
        static BatchToken out[TGC_MAX_BATCH];
        for (int steps = 0; batch_left(b); steps++) {
                int got;
                CHECK(steps < 100000);
                MUST(batch_step(b, out, &got, &e));
                for (int k = 0; k < got; k++)
                        for (int i = 0; i < n; i++)
                                if (id[i] == out[k].seq) {
                                        CHECK(t[i].n <= CTX && !t[i].end);
                                        t[i].logprob[t[i].n] = out[k].drawn.logprob;
                                        t[i].ids[t[i].n++] = out[k].token;
                                        t[i].end = out[k].end;
                                }
        }
}

static void make_texts(Text *t, int n, int longest, int most)
{
        for (int i = 0; i < n; i++) {
                t[i] = (Text) { .n = 1 + below(longest), .predict = 1 + below(most) };
                for (int k = 0; k < t[i].n; k++)
                        t[i].ids[k] = i && below(2) && k < t[i - 1].prompt ? t[i - 1].ids[k]
                                                                           : below(65);
                if (i && below(3) == 0) { /* begins as the one before */
                        const int same = t[i].n < t[i - 1].n ? t[i].n : t[i - 1].n;
                        memcpy(t[i].ids, t[i - 1].ids, (size_t)same * sizeof(int));
                }
                t[i].prompt = t[i].n;
        }
}

static bool exact; /* log-probabilities are the same bits, not to a thousandth alone */
static bool ties;  /* where two tokens are as likely, either may be said, and all after it differs:
                    * fp8 makes a last bit of float32 a sixteenth of a key, now and then */

/* Tokens, the end, and log-probabilities. */
static bool same(const Text *a, const Text *b, int i, const char *what)
{
        if (a->n != b->n || a->end != b->end) {
                printf("  %s, sequence %d: %d tokens (end %d), alone %d (%d)\n", what, i, a->n,
                       a->end, b->n, b->end);
                return false;
        }
        for (int k = a->prompt; k < a->n; k++) {
                const bool near = fabsf(a->logprob[k] - b->logprob[k]) <= (exact ? 0.f : 1e-3f);
                if (ties && near && a->ids[k] != b->ids[k])
                        return true;
                if (a->ids[k] != b->ids[k] || !near) {
                        printf("  %s, sequence %d, prompt of %d: token %d is %d (%g), alone %d "
                               "(%g)\n",
                               what, i, a->prompt, k, a->ids[k], (double)a->logprob[k], b->ids[k],
                               (double)b->logprob[k]);
                        return false;
                }
        }
        return true;
}

/* n sequences in one batch, some of them added late; and each alone. */
static void check_company(Bench *x, int n, int longest, int most, const BatchOptions *o,
                          bool sampled, const char *what)
{
        static Text together[MOST_SEQ], alone[MOST_SEQ];
        static BatchToken out[TGC_MAX_BATCH];
        int id[MOST_SEQ], others = 0;
        Batch *b;
        make_texts(together, n, longest, most);
        memcpy(alone, together, sizeof alone);
        MUST(batch_open(&b, x->s, o, &e));
        for (int i = 0; i < n; i++) {
                const BatchHow h = how_of(&together[i], i, sampled);
                MUST(batch_add(b, together[i].ids, together[i].n, &h, &id[i], &e));
                for (int steps = i % 4; steps && i % 2; steps--) {
                        int got;
                        MUST(batch_step(b, out, &got, &e));
                        for (int k = 0; k < got; k++)
                                for (int j = 0; j <= i; j++)
                                        if (id[j] == out[k].seq) {
                                                Text *t = &together[j];
                                                t->logprob[t->n] = out[k].drawn.logprob;
                                                t->ids[t->n++] = out[k].token;
                                                t->end = out[k].end;
                                        }
                }
        }
        run_all(b, together, id, n);
        BatchStats st = batch_stats(b);
        CHECK_MSG(st.pages_free == st.pages && st.narrow_free == st.narrow_pages,
                  "%s: %d of %d pages are free, %d of %d", what, st.pages_free, st.pages,
                  st.narrow_free, st.narrow_pages);
        NOTE("%s: %d calls, %d mixed, %d prefilled, %d from prefixes, %d and %d pages at most, "
             "%d set aside",
             what, (int)st.steps, (int)st.mixed, (int)st.prefilled, (int)st.from_prefix,
             st.most_used, st.narrow_most_used, st.set_aside);
        set_aside = st.set_aside;
        mixed_calls = (int)st.mixed;
        CHECK_MSG(fast || !st.mixed, "%s: %d mixed calls without --fast", what, mixed_calls);
        batch_close(b);
        for (int i = 0; i < n; i++) {
                const BatchOptions plain = { .no_prefix = true };
                const BatchHow h = how_of(&alone[i], i, sampled);
                MUST(batch_open(&b, x->s, &plain, &e));
                MUST(batch_add(b, alone[i].ids, alone[i].n, &h, &id[i], &e));
                run_all(b, &alone[i], &id[i], 1);
                batch_close(b);
                others += !same(&together[i], &alone[i], i, what);
        }
        CHECK_MSG(!others, "%s: %d of %d say something else alone", what, others, n);
}

TEST (company_on_the_cpu) {
        Bench x;
        open_model(&x, "gpt", gpt, 5, "f32", 8, 0, "cpu");
        exact = true; /* of up to eight at once */
        check_company(&x, 12, 150, 60, NULL, false, "gpt");
        exact = false;
        check_company(&x, 12, 150, 60, &(BatchOptions) { .chunk = 7 }, true, "gpt in chunks");
        check_company(&x, 6, 299, 400, &(BatchOptions) { .rows = 3 }, true, "gpt to the end");
        close_model(&x);
        open_model(&x, "llama", llama, 8, "bf16", 16, 0, "cpu");
        exact = true; /* of 16 bits up to sixteen */
        check_company(&x, 16, 100, 30, NULL, false, "llama, bf16");
        exact = false;
        close_model(&x);
}

TEST (windows_give_pages_back) {
        Bench x;
        open_model(&x, "llama", llama, 9, "f32", 6, 0, "cpu");
        check_company(&x, 9, 200, 90, NULL, true, "llama");
        close_model(&x);
}

/* A page that no query looks at after a call is not another prompt's in this call: both would
 * write there. */
TEST (windows_hold_pages_for_their_call) {
        Bench x;
        static const char *const one_window[] = { "n_layer=12",  "n_embd=16",  "n_head=2",
                                                  "n_kv_head=1", "head_dim=8", "n_ff=44",
                                                  "vocab=65",    "ctx=600",    "window=40" };
        const BatchOptions plain = { .no_prefix = true };
        static Text t[2], alone[2];
        int id[2];
        Batch *b;
        exact = true;
        open_model(&x, "llama", one_window, 9, "f32", 4, 0, "cpu");
        for (int i = 0; i < 2; i++) {
                t[i] = (Text) { .n = i ? 90 : 420, .prompt = i ? 90 : 420, .predict = 12 };
                for (int k = 0; k < t[i].n; k++)
                        t[i].ids[k] = below(65);
        }
        memcpy(alone, t, sizeof alone);
        MUST(batch_open(&b, x.s, &plain, &e));
        for (int i = 0; i < 2; i++) {
                const BatchHow h = how_of(&t[i], i, false);
                MUST(batch_add(b, t[i].ids, t[i].n, &h, &id[i], &e));
        }
        run_all(b, t, id, 2);
        batch_close(b);
        for (int i = 0; i < 2; i++) {
                const BatchHow h = how_of(&t[i], i, false);
                MUST(batch_open(&b, x.s, &plain, &e));
                MUST(batch_add(b, alone[i].ids, alone[i].n, &h, &id[i], &e));
                run_all(b, &alone[i], &id[i], 1);
                batch_close(b);
                CHECK(same(&t[i], &alone[i], i, "in one call"));
        }
        exact = false;
        close_model(&x);
}

static int keep_token(void *user, int step, const int *token, int B)
{
        Text *t = user;
        (void)step, (void)B;
        t->ids[t->n++] = token[0];
        return 0;
}

/* Calls of equal lengths, where pages of the second pool are rings: prefill, decode, and going back
 * further than the ring. */
static void check_rings(Bench *x, Bench *one)
{
        static Text t[2], u;
        static int ids[2 * 1400];
        const Sampling how = sampling_default();
        for (int i = 0; i < 2 * 1400; i++)
                ids[i] = below(65);
        for (int i = 0; i < 2; i++) {
                Bench *b = i ? one : x;
                t[i].n = 0;
                MUST(session_prefill(b->s, ids, 1, 1400, &e));
                MUST(session_decode(b->s, &how, 20, keep_token, &t[i], &e));
                MUST(session_truncate(b->s, 1390, &e));
                MUST(session_decode(b->s, &how, 20, keep_token, &t[i], &e));
                MUST(session_truncate(b->s, 300, &e));
                MUST(session_decode(b->s, &how, 20, keep_token, &t[i], &e));
                MUST(session_shift(b->s, 4, &u.n, &e));
                MUST(session_decode(b->s, &how, 20, keep_token, &t[i], &e));
                session_reset(b->s, &e);
        }
        CHECK(t[0].n == 80 && !memcmp(t[0].ids, t[1].ids, 80 * sizeof(int)));
        /* two at once, and their scores */
        double nll[2][1400];
        MUST(session_prefill(x->s, ids, 2, 1400, &e));
        t[0].n = t[1].n = 0;
        MUST(session_decode(x->s, &how, 20, keep_token, &t[0], &e));
        session_reset(x->s, &e);
        MUST(session_prefill(one->s, ids, 1, 1400, &e));
        MUST(session_decode(one->s, &how, 20, keep_token, &t[1], &e));
        session_reset(one->s, &e);
        CHECK(!memcmp(t[0].ids, t[1].ids, 20 * sizeof(int)));
        MUST(session_score(x->s, ids, 1400, NULL, nll[0], &e));
        MUST(session_score(one->s, ids, 1400, NULL, nll[1], &e));
        for (int i = 0; i < 1399; i++)
                CHECK_MSG(fabs(nll[0][i] - nll[1][i]) < 1e-4, "token %d: %g, in one piece %g", i,
                          nll[0][i], nll[1][i]);
}

/* Tokens and log-probabilities of a plan for one sequence, whose cache has no pages. */
static void check_one(Bench *x, Bench *one, int longest, int most)
{
        static Text t, u;
        int id;
        Batch *b;
        make_texts(&t, 1, longest, most);
        t.predict = most;
        u = t;
        const BatchHow h = how_of(&t, 0, false);
        MUST(batch_open(&b, x->s, NULL, &e));
        MUST(batch_add(b, t.ids, t.n, &h, &id, &e));
        run_all(b, &t, &id, 1);
        batch_close(b);
        MUST(session_prefill(one->s, u.ids, 1, u.n, &e));
        MUST(session_decode(one->s, &h.sampling, most, keep_token, &u, &e));
        CHECK(t.n == u.n && !memcmp(t.ids, u.ids, (size_t)t.n * sizeof(int)));
        session_reset(one->s, &e);
}

TEST (layers_with_windows_keep_fewer_pages) {
        Bench x, one;
        rng = 12345; /* sequences of which some are set aside */
        open_model(&x, "llama", mixed, 10, "f32", 4, 0, "cpu");
        const Manifest *m = session_manifest(x.s);
        CHECK_MSG(m->narrow_pages && m->narrow_window == 40 && !m->window &&
                          m->narrow_pages < m->pages,
                  "%d pages, %d of a window of %d", m->pages, m->narrow_pages, m->narrow_window);
        check_company(&x, 6, 1500, 60, NULL, true, "mixed");
        check_company(&x, 4, 700, 60, &(BatchOptions) { .chunk = 37 }, false, "mixed in chunks");
        open_model(&one, "llama", mixed, 10, "f32", 1, 0, "cpu");
        check_one(&x, &one, 1500, 60);
        check_rings(&x, &one);
        close_model(&one);
        close_model(&x);
        chunk_size = 64; /* few pages: some leave */
        open_model(&x, "llama", mixed, 10, "f32", 4, 40 * 64, "cpu");
        CHECK(session_manifest(x.s)->narrow_pages);
        set_aside = 0;
        check_company(&x, 6, 800, 900, NULL, true, "mixed, 40 pages");
        CHECK_MSG(set_aside > 0, "nobody was set aside");
        chunk_size = 0;
        close_model(&x);
}

TEST (caches_of_8_bits) {
        Bench x;
        cache = "fp8";
        open_model(&x, "llama", llama, 9, "f32", 6, 0, "cpu");
        check_company(&x, 9, 200, 60, NULL, true, "llama, fp8");
        check_company(&x, 9, 200, 60, &(BatchOptions) { .chunk = 13 }, false, "fp8 in chunks");
        close_model(&x);
        open_model(&x, "gpt", gpt, 5, "f32", 8, 6 * 64, "cpu");
        check_company(&x, 14, 120, 120, NULL, true, "fp8, six pages");
        close_model(&x);
        chunk_size = 64;
        open_model(&x, "llama", mixed, 10, "bf16", 4, 0, "cpu");
        CHECK(session_manifest(x.s)->narrow_pages && session_manifest(x.s)->cache == STORE_FP8);
        check_company(&x, 5, 700, 60, NULL, true, "mixed, fp8");
        close_model(&x);
        chunk_size = 0;
        cache = NULL;
}

/* Portable forms (0), then Hopper's (1); no others. */
static bool emulator(int i)
{
        CHECK(!(i == 1 ? setenv("TGC_EMULATE_ARCH", "sm_90a", 1) : unsetenv("TGC_EMULATE_ARCH")));
        return i < 2;
}

/* Keys of heads of 64 on tensor cores; of 16, which is a chunk of each lane, without. */
TEST (caches_of_8_bits_in_the_emulator) {
        static const char *const heads64[] = { "n_layer=1",   "n_embd=32",   "n_head=4",
                                               "n_kv_head=1", "head_dim=64", "n_ff=44",
                                               "vocab=65",    "ctx=300" };
        cache = "fp8";
        for (int hopper = 0; emulator(hopper); hopper++) {
                Bench x;
                exact = hopper;
                open_model(&x, "llama", heads64, 8, "bf16", 3, 0, "emulate");
                check_company(&x, 4, 120, 6, &(BatchOptions) { .chunk = 50 }, false,
                              hopper ? "fp8, sm_90a" : "fp8, emulated");
                close_model(&x);
        }
        exact = false;
        cache = NULL;
}

TEST (few_pages) {
        Bench x;
        open_model(&x, "gpt", gpt, 5, "f32", 8, 6 * 64, "cpu");
        check_company(&x, 14, 120, 120, NULL, true, "six pages");
        CHECK(session_pos(x.s) == 0);
        close_model(&x);
}

TEST (company_in_the_emulator) {
        Bench x;
        open_model(&x, "llama", llama, 9, "bf16", 4, 5 * 64, "emulate");
        check_company(&x, 4, 90, 8, &(BatchOptions) { .chunk = 50 }, false, "llama, bf16");
        close_model(&x);
}

TEST (pools_in_the_emulator) {
        static const char *const heads64[] = { "n_layer=2",   "n_embd=32",   "n_head=2",
                                               "n_kv_head=1", "head_dim=64", "n_ff=44",
                                               "vocab=65",    "ctx=1600",    "window=40",
                                               "pattern=sf" };
        chunk_size = 256;
        for (int hopper = 0; emulator(hopper); hopper++) {
                Bench x;
                open_model(&x, "llama", heads64, 10, "bf16", 2, 0, "emulate");
                CHECK(session_manifest(x.s)->narrow_pages);
                check_company(&x, 3, 460, 6, NULL, false, hopper ? "pools, sm_90a" : "pools");
                close_model(&x);
        }
        chunk_size = 0;
}

/* Hopper's linears give a row the same bits in programs of 1 to 24 rows. */
TEST (company_on_hopper_emulated) {
        Bench x;
        CHECK(!setenv("TGC_EMULATE_ARCH", "sm_90a", 1));
        exact = true;
        open_model(&x, "llama", llama, 9, "bf16", 24, 0, "emulate");
        check_company(&x, 18, 12, 4, NULL, false, "llama, bf16, sm_90a");
        close_model(&x);
        exact = false;
        unsetenv("TGC_EMULATE_ARCH");
}

/* Parts of the cache by how many there are: 16 alone, 8 of 24, and 4 without --fast; of eight
 * heads one, which Hopper streams.  The same tokens, and log-probabilities to a thousandth. */
TEST (fast_company_in_the_emulator) {
        static const char *const one_head[] = { "n_layer=1",   "n_embd=32",   "n_head=2",
                                                "n_kv_head=1", "head_dim=64", "n_ff=44",
                                                "vocab=65",    "ctx=1600" },
                                 *const eight_heads[] = { "n_layer=1",   "n_embd=32",   "n_head=16",
                                                          "n_kv_head=8", "head_dim=64", "n_ff=44",
                                                          "vocab=65",    "ctx=160" };
        fast = true;
        for (int hopper = 0; emulator(hopper); hopper++) {
                Bench x;
                open_model(&x, "llama", one_head, 8, "bf16", 24, 0, "emulate");
                CHECK(session_manifest(x.s)->fast);
                check_company(&x, 17, 40, 2, NULL, false, hopper ? "fast, sm_90a" : "fast");
                close_model(&x);
                if (!hopper)
                        continue;
                open_model(&x, "llama", eight_heads, 8, "bf16", 24, 0, "emulate");
                check_company(&x, 17, 12, 2, NULL, false, "fast, one part");
                close_model(&x);
        }
        fast = false;
}

/* Rows decode and prompts are read by one call; alone there is never both.  Some arrive while
 * others decode, and prompts come in chunks. */
TEST (mixed_calls_on_the_cpu) {
        Bench x;
        fast = true;
        open_model(&x, "gpt", gpt, 5, "f32", 8, 0, "cpu");
        check_company(&x, 12, 150, 60, NULL, false, "gpt, mixed");
        CHECK(mixed_calls > 2);
        check_company(&x, 12, 150, 40, &(BatchOptions) { .chunk = 7 }, true, "gpt, mixed, chunks");
        CHECK(mixed_calls > 20);
        check_company(&x, 6, 150, 40, &(BatchOptions) { .prompts_first = true }, true, "first");
        CHECK(mixed_calls == 0);
        close_model(&x);
        open_model(&x, "gpt", gpt, 5, "f32", 8, 6 * 64, "cpu");
        set_aside = 0;
        check_company(&x, 14, 120, 120, NULL, true, "mixed, six pages");
        CHECK(set_aside > 0 && mixed_calls > 2);
        close_model(&x);
        chunk_size = 8; /* of which up to four may be rows: with more there are two calls */
        open_model(&x, "gpt", gpt, 5, "f32", 8, 0, "cpu");
        check_company(&x, 12, 60, 30, NULL, true, "mixed, eight tokens");
        CHECK(mixed_calls > 10);
        close_model(&x);
        chunk_size = 1; /* a token of a prompt beside a row is no room for both */
        open_model(&x, "gpt", gpt, 5, "f32", 8, 0, "cpu");
        check_company(&x, 4, 20, 10, NULL, true, "mixed, one token");
        CHECK(mixed_calls == 0);
        close_model(&x);
        chunk_size = 0;
        fast = false;
}

/* Pages of the second pool go once their call is queued. */
TEST (mixed_calls_with_two_pools_and_8_bits) {
        Bench x;
        fast = true;
        chunk_size = 256;
        open_model(&x, "llama", mixed, 10, "f32", 4, 0, "cpu");
        CHECK(session_manifest(x.s)->narrow_pages);
        check_company(&x, 8, 1200, 300, NULL, false, "mixed, windows");
        CHECK(mixed_calls > 4);
        close_model(&x);
        chunk_size = 0;
        cache = "fp8";
        open_model(&x, "llama", llama, 9, "f32", 6, 0, "cpu");
        check_company(&x, 9, 200, 60, &(BatchOptions) { .chunk = 13 }, false, "mixed, fp8");
        CHECK(mixed_calls > 4);
        close_model(&x);
        cache = NULL;
        fast = false;
}

TEST (mixed_calls_in_the_emulator) {
        static const char *const heads64[] = { "n_layer=2",   "n_embd=32",   "n_head=2",
                                               "n_kv_head=1", "head_dim=64", "n_ff=44",
                                               "vocab=65",    "ctx=300" };
        fast = true;
        for (int hopper = 0; emulator(hopper); hopper++) {
                Bench x;
                open_model(&x, "llama", heads64, 8, "bf16", 4, 0, "emulate");
                check_company(&x, 6, 60, 8, &(BatchOptions) { .chunk = 24 }, false,
                              hopper ? "mixed, sm_90a" : "mixed");
                CHECK(mixed_calls > 1);
                close_model(&x);
        }
        fast = false;
}

/* 64 of 1 to 2,000 tokens, with TGC_TEST_DEVICE=cuda. */
static void check_on_the_gpu(const char *dtype, const char *cache_type, bool windows,
                             const char *what)
{
        static const char *const large[] = { "n_layer=3",   "n_embd=512",  "n_head=8",
                                             "n_kv_head=2", "head_dim=64", "n_ff=1024",
                                             "vocab=999",   "ctx=2304",    "window=100",
                                             "pattern=ssf" };
        Bench x;
        exact = !strcmp(dtype, "bf16"); /* Hopper's linears sum in one order, whatever the rows */
        cache = cache_type;
        open_model(&x, "llama", large, windows ? 10 : 8, dtype, 64, 64 * 1024, "cuda");
        CHECK(!session_manifest(x.s)->narrow_pages == !windows);
        ties = !exact && cache_type;
        check_company(&x, 64, 2000, 200, NULL, !exact && !ties, what);
        close_model(&x);
        exact = ties = false;
        cache = NULL;
}

static bool on_the_gpu(void)
{
        const char *device = getenv("TGC_TEST_DEVICE");
        return device && !strcmp(device, "cuda");
}

TEST (company_on_the_gpu) {
        if (!on_the_gpu())
                SKIP("TGC_TEST_DEVICE=cuda runs it");
        check_on_the_gpu("f32", NULL, false, "64, f32");
        check_on_the_gpu("bf16", NULL, false, "64, bf16");
}

TEST (pools_on_the_gpu) {
        if (!on_the_gpu())
                SKIP("TGC_TEST_DEVICE=cuda runs it");
        check_on_the_gpu("bf16", NULL, true, "64, bf16, windows");
}

TEST (mixed_calls_on_the_gpu) {
        if (!on_the_gpu())
                SKIP("TGC_TEST_DEVICE=cuda runs it");
        fast = true;
        check_on_the_gpu("f32", NULL, false, "mixed, f32");
        CHECK(mixed_calls > 4);
        fast = false;
}

TEST (fp8_on_the_gpu) {
        if (!on_the_gpu())
                SKIP("TGC_TEST_DEVICE=cuda runs it");
        check_on_the_gpu("bf16", "fp8", true, "64, bf16, windows, fp8");
        check_on_the_gpu("f32", "fp8", false, "64, f32, fp8");
}

/* ---- masks ---- */

/* Tokens of sequence i: those that follow its last one in steps of i + 2, to 9 of them. */
typedef struct Masked {
        int step, calls, last;
        uint32_t bits[(65 + 31) / 32];
} Masked;

static const uint32_t *next_mask(void *user, int sequence, int token)
{
        Masked *m = user;
        CHECK(sequence > 0 && (token < 0) == (m->calls == 0));
        m->calls++;
        m->last = token;
        memset(m->bits, 0, sizeof m->bits);
        for (int k = 1; k < 10; k++) {
                const int v = (token + k * m->step + 65) % 65;
                m->bits[v / 32] |= 1u << v % 32;
        }
        return m->bits;
}

/* Every second sequence has a mask. */
static void check_masks(Bench *x, int n, int longest, int most, const BatchOptions *o,
                        const char *what)
{
        static Text together[MOST_SEQ], alone[MOST_SEQ];
        static Masked mask[MOST_SEQ], own[MOST_SEQ];
        int id[MOST_SEQ], others = 0;
        Batch *b;
        make_texts(together, n, longest, most);
        memcpy(alone, together, sizeof alone);
        MUST(batch_open(&b, x->s, o, &e));
        for (int i = 0; i < n; i++) {
                BatchHow h = how_of(&together[i], i, true);
                mask[i] = own[i] = (Masked) { .step = i + 2 };
                h.sampling.mask = i % 2 ? next_mask : NULL;
                h.sampling.mask_user = &mask[i];
                MUST(batch_add(b, together[i].ids, together[i].n, &h, &id[i], &e));
        }
        run_all(b, together, id, n);
        batch_close(b);
        for (int i = 0; i < n; i++) {
                BatchHow h = how_of(&alone[i], i, true);
                h.sampling.mask = i % 2 ? next_mask : NULL;
                h.sampling.mask_user = &own[i];
                MUST(batch_open(&b, x->s, NULL, &e));
                MUST(batch_add(b, alone[i].ids, alone[i].n, &h, &id[i], &e));
                run_all(b, &alone[i], &id[i], 1);
                batch_close(b);
                others += !same(&together[i], &alone[i], i, what);
                CHECK_MSG(i % 2 == 0 || mask[i].calls == together[i].n - together[i].prompt,
                          "%s: a mask for every token, %d for %d", what, mask[i].calls,
                          together[i].n - together[i].prompt);
                for (int k = together[i].prompt, was = -1; k < together[i].n && i % 2; k++) {
                        const int d = (together[i].ids[k] - was + 65 * 2) % 65;
                        bool may = false;
                        for (int j = 1; j < 10; j++)
                                may |= j * mask[i].step % 65 == d;
                        CHECK_MSG(may, "%s, sequence %d: %d after %d", what, i, together[i].ids[k],
                                  was);
                        was = together[i].ids[k];
                }
        }
        CHECK_MSG(!others, "%s: %d of %d say something else alone", what, others, n);
}

TEST (masks_are_of_a_sequence) {
        Bench x;
        open_model(&x, "gpt", gpt, 5, "f32", 8, 0, "cpu");
        check_masks(&x, 12, 100, 40, NULL, "masks");
        close_model(&x);
        fast = true; /* where a row has a mask, two calls */
        open_model(&x, "gpt", gpt, 5, "f32", 8, 0, "cpu");
        check_masks(&x, 12, 100, 40, NULL, "masks, fast");
        close_model(&x);
        fast = false;
        open_model(&x, "gpt", gpt, 5, "f32", 8, 6 * 64, "cpu");
        check_masks(&x, 10, 120, 100, NULL, "masks, six pages");
        close_model(&x);
        open_model(&x, "llama", llama, 9, "bf16", 4, 5 * 64, "emulate");
        check_masks(&x, 4, 20, 6, NULL, "masks, emulated");
        close_model(&x);
}

static const uint32_t *no_mask(void *user, int sequence, int token)
{
        (void)user, (void)sequence, (void)token;
        return NULL;
}

/* A sequence that fails after some tokens: its mask is NULL, or holds a banned token alone. */
typedef struct Failing {
        int calls, most;
        bool banned;
        uint32_t bits[(65 + 31) / 32];
} Failing;

static const uint32_t *failing_mask(void *user, int sequence, int token)
{
        Failing *f = user;
        (void)sequence, (void)token;
        memset(f->bits, ++f->calls > f->most ? 0 : 0xff, sizeof f->bits);
        if (f->calls > f->most && f->banned)
                f->bits[0] = 1u << 5;
        return f->calls > f->most && f->most == 3 ? NULL : f->bits;
}

/* The second of four ends by itself, with its error; the others, one with a mask, say what they say
 * alone, and their masks are asked for once a token. */
static void check_failure(Bench *x, Failing fails, int status, const char *words)
{
        enum { N = 4 };
        static Text together[N], alone[N];
        static BatchToken out[TGC_MAX_BATCH];
        const TgcBias ban = { 5, -INFINITY };
        Masked mask = { .step = 3 }, own = mask;
        int id[N], other, got, errors = 0;
        Batch *b;
        make_texts(together, N, 90, 20);
        for (int i = 0; i < N; i++)
                together[i].predict = 20;
        memcpy(alone, together, sizeof alone);
        MUST(batch_open(&b, x->s, NULL, &e));
        for (int i = 0; i < N; i++) {
                BatchHow h = how_of(&together[i], i, true);
                if (i == 1) {
                        h.sampling.mask = failing_mask;
                        h.sampling.mask_user = &fails;
                        h.sampling.bias = &ban;
                        h.sampling.n_bias = 1;
                } else if (i == 2) {
                        h.sampling.mask = next_mask;
                        h.sampling.mask_user = &mask;
                }
                MUST(batch_add(b, together[i].ids, together[i].n, &h, &id[i], &e));
        }
        for (int steps = 0; batch_left(b); steps++) {
                const int code = batch_step(b, out, &got, &e);
                CHECK(steps < 1000);
                CHECK_MSG(!code || (code == status && strstr(e.msg, words)), "%d: %s", code, e.msg);
                errors += code != 0;
                for (int k = 0; k < got; k++)
                        for (int i = 0; i < N; i++)
                                if (id[i] == out[k].seq &&
                                    (together[i].end = out[k].end) != BATCH_FAILED) {
                                        together[i].logprob[together[i].n] = out[k].drawn.logprob;
                                        together[i].ids[together[i].n++] = out[k].token;
                                } else if (id[i] == out[k].seq) {
                                        CHECK(i == 1 && out[k].token == -1 && code);
                                        CHECK(batch_drop(b, id[i], &e) == TGC_USAGE);
                                }
        }
        CHECK_MSG(errors == 1 && together[1].end == BATCH_FAILED &&
                          together[1].n == together[1].prompt + fails.most,
                  "%d errors, %d tokens after %d", errors, together[1].n, together[1].prompt);
        CHECK(mask.calls == 20 && batch_stats(b).pages_free == batch_stats(b).pages);
        BatchHow h = how_of(&together[0], 0, true);
        MUST(batch_add(b, together[0].ids, 3, &h, &other, &e)); /* and it serves on */
        while (batch_left(b))
                MUST(batch_step(b, out, &got, &e));
        batch_close(b);
        for (int i = 0; i < N; i++) {
                if (i == 1)
                        continue;
                h = how_of(&alone[i], i, true);
                h.sampling.mask = i == 2 ? next_mask : NULL;
                h.sampling.mask_user = &own;
                MUST(batch_open(&b, x->s, NULL, &e));
                MUST(batch_add(b, alone[i].ids, alone[i].n, &h, &id[i], &e));
                run_all(b, &alone[i], &id[i], 1);
                batch_close(b);
                CHECK(same(&together[i], &alone[i], i, words));
        }
}

TEST (who_fails_ends_alone) {
        Bench x;
        open_model(&x, "gpt", gpt, 5, "f32", 8, 0, "cpu");
        check_failure(&x, (Failing) { .most = 3 }, TGC_FAIL, "may come next in sequence 2");
        check_failure(&x, (Failing) { .most = 4 }, TGC_FAIL, "may come next in sequence 2");
        check_failure(&x, (Failing) { .most = 5, .banned = true }, TGC_NON_FINITE,
                      "of sequence 2 are not finite");
        close_model(&x);
}

/* Forks say what a sequence with the same text and the same random numbers says. */
static void check_forks(void)
{
        Bench x;
        Batch *b;
        static Text t[4], alone;
        static BatchToken out[TGC_MAX_BATCH];
        int id[4], other, got;
        open_model(&x, "gpt", gpt, 5, "f32", 8, 0, "cpu");
        make_texts(t, 1, 150, 30);
        t[0].predict = 30;
        alone = t[0];
        BatchHow h = how_of(&t[0], 0, false);
        MUST(batch_open(&b, x.s, NULL, &e));
        MUST(batch_add(b, t[0].ids, t[0].n, &h, &id[0], &e));
        for (int i = 0; i < 9; i++) {
                MUST(batch_step(b, out, &got, &e));
                for (int k = 0; k < got; k++)
                        t[0].ids[t[0].n++] = out[k].token;
        }
        CHECK(t[0].n > t[0].prompt);
        const int shared = batch_stats(b).pages_free;
        for (int i = 1; i < 4; i++) {
                h.predict = alone.prompt + 30 - t[0].n;
                MUST(batch_fork(b, id[0], &h, &id[i], &e));
                t[i] = t[0];
        }
        CHECK_MSG(shared - batch_stats(b).pages_free == 3, "a page each: %d to %d", shared,
                  batch_stats(b).pages_free);
        /* and a prompt is read meanwhile */
        MUST(batch_add(b, alone.ids, alone.prompt, &h, &other, &e));
        run_all(b, t, id, 4);
        CHECK(!fast == !batch_stats(b).mixed);
        for (int i = 1; i < 4; i++)
                for (int k = 0; k < t[0].n; k++)
                        CHECK_MSG(t[i].ids[k] == t[0].ids[k], "fork %d, token %d", i, k);
        batch_close(b);
        close_model(&x);
}

TEST (forks) {
        check_forks();
        fast = true;
        check_forks();
        fast = false;
}

TEST (wrong_calls) {
        Bench x;
        Batch *b;
        int id, other, got, ids[301] = { 1, 2, 3 };
        static BatchToken out[TGC_MAX_BATCH];
        BatchHow h = { .sampling = sampling_default(), .predict = 2 };
        open_model(&x, "gpt", gpt, 5, "f32", 2, 128, "cpu");
        MUST(batch_open(&b, x.s, NULL, &e));
        MUST(batch_step(b, out, &got, &e));
        CHECK(!got);
        CHECK(batch_add(b, ids, 0, &h, &id, &e) == TGC_USAGE && strstr(e.msg, "0 tokens"));
        CHECK(batch_add(b, ids, 301, &h, &id, &e) == TGC_USAGE && strstr(e.msg, "--ctx-size"));
        ids[1] = 65;
        CHECK(batch_add(b, ids, 3, &h, &id, &e) == TGC_USAGE && strstr(e.msg, "vocabulary of 65"));
        ids[1] = 2;
        h.predict = 200;
        CHECK(batch_add(b, ids, 3, &h, &id, &e) == TGC_USAGE && strstr(e.msg, "which has 2"));
        h.predict = 0;
        CHECK(batch_add(b, ids, 3, &h, &id, &e) == TGC_USAGE);
        h.predict = 2;
        h.sampling.mask = no_mask;
        MUST(batch_add(b, ids, 3, &h, &id, &e));
        CHECK(batch_step(b, out, &got, &e) == TGC_OK || strstr(e.msg, "no token may come next"));
        batch_close(b);
        h.sampling.mask = NULL;
        MUST(batch_open(&b, x.s, NULL, &e));
        h.predict = 2;
        MUST(batch_add(b, ids, 3, &h, &id, &e));
        CHECK(batch_drop(b, id + 1, &e) == TGC_USAGE);
        MUST(batch_drop(b, id, &e));
        CHECK(batch_drop(b, id, &e) == TGC_USAGE && batch_fork(b, id, &h, &other, &e) == TGC_USAGE);
        CHECK(batch_left(b) == 0 && batch_stats(b).pages_free == 2);
        batch_close(b);
        close_model(&x);
        open_model(&x, "gpt", gpt, 5, "f32", 1, 0, "cpu");
        CHECK(batch_open(&b, x.s, NULL, &e) == TGC_USAGE && strstr(e.msg, "--batch-size"));
        close_model(&x);
}

TEST_MAIN
