/* test_session.c: sessions over a plan written by hand, on each device that is there, and the
 * public interface over them. */
#include "../cli/load/load.h"
#include "../runtime/weights/ck_tensor.h"
#include "../runtime/tgc.h"
#include "session_checks.h"

/* ---- the same on every device ---- */

TEST (cpu_inference) {
        check_inference(DEV_CPU);
}
TEST (cpu_score) {
        check_score(DEV_CPU);
}
TEST (cpu_training) {
        check_training(DEV_CPU);
}
TEST (cpu_timing) {
        check_timing(DEV_CPU);
}
TEST (emulate_inference) {
        check_inference(DEV_EMULATE);
}
TEST (emulate_score) {
        check_score(DEV_EMULATE);
}
TEST (emulate_training) {
        check_training(DEV_EMULATE);
}
TEST (cuda_inference) {
        check_inference(DEV_CUDA);
}
TEST (cuda_score) {
        check_score(DEV_CUDA);
}
TEST (cuda_training) {
        check_training(DEV_CUDA);
}
TEST (cuda_timing) {
        check_timing(DEV_CUDA);
}

/* Experts in bf16: every arena, kernels with much shared memory, some forty launches in a graph. */
static Plan make_real_plan(void)
{
        static const char *define[] = { "n_layer=2",   "n_embd=256",  "n_head=4",
                                        "n_kv_head=2", "head_dim=64", "n_ff=384",
                                        "n_expert=4",  "vocab=1000",  "ctx=128" };
        BuildOptions o = { .kind = MODEL_LUA,
                           .model = "models/moe.lua",
                           .dtype = "bf16",
                           .define = define,
                           .n_define = sizeof define / sizeof *define,
                           .mode = BUILD_INFER | BUILD_TRAIN,
                           .opt = 3,
                           .batch = 2,
                           .block = 64,
                           .cuda = true };
        Plan p = { 0 };
        Err e;
        CHECK_MSG(!build_plan(&p, &o, &e) && !plan_add_headers(&p, &e), "%s", e.msg);
        return p;
}

TEST (cuda_leaves_memory_as_it_was) {
        need(DEV_CUDA);
        Plan p = make_real_plan();
        check_memory_returns(&p);
        plan_close(&p);
}

/* ---- parameters ---- */

static void check_masters(const char *program)
{
        need(DEV_CPU);
        static const char m[] = "tgc 1\n"
                                "model sum\n"
                                "dtype bf16\n"
                                "mode both\n"
                                "vocab 16\nctx 32\n"
                                "batch 3\n"
                                "chunk 5\n"
                                "params 33 33 40\n"
                                "param x 3x11 0 trainable normal 0.5\n"
                                "param frozen 7 33 frozen uniform 2 3\n";
        Plan p = make_plan(m, program);
        Session *s = open_on(&p, DEV_CPU, 0);
        Err e;
        float x[33], y[33];
        uint16_t w[40], again[33];

        CHECK(session_has_part(s, PART_MASTER) && session_part_size(s, PART_WEIGHT, 0) == 66);
        CHECK(session_part_size(s, PART_MASTER, 0) == 132 &&
              session_part_size(s, PART_MASTER, 1) == 0);
        CHECK(!session_param_get(s, 0, x, &e) && !session_part_read(s, PART_WEIGHT, 0, w, &e));
        for (int i = 0; i < 33; i++)
                CHECK(ck_bf16_from_f32(x[i]) == w[i] && x[i] == x[i]);
        for (int i = 0; i < 33; i++)
                x[i] = 1.f + (float)i / 1000;
        CHECK(!session_param_set(s, 0, x, &e) && !session_param_get(s, 0, y, &e) &&
              !memcmp(x, y, sizeof x));
        CHECK(!session_part_read(s, PART_WEIGHT, 0, again, &e) &&
              again[9] == ck_bf16_from_f32(x[9]));
        CHECK(!session_part_write(s, PART_V, 0, x, &e) && !session_part_read(s, PART_V, 0, y, &e));
        CHECK(!memcmp(x, y, sizeof x));
        CHECK(session_part_read(s, PART_M, 1, y, &e) == TGC_USAGE);
        CHECK(!session_param_get(s, 1, y, &e) && y[0] >= 2.f && y[6] <= 3.f);
        session_close(s);
        for (int i = 0; i < 40; i++) /* weights of the plan become masters */
                w[i] = ck_bf16_from_f32((float)i);
        CHECK(!plan_add(&p, "weights", w, sizeof w, &e));
        s = open_on(&p, DEV_CPU, SESSION_TRAIN);
        CHECK(!session_param_get(s, 0, x, &e) && !session_part_read(s, PART_WEIGHT, 1, again, &e));
        CHECK(x[0] == 0.f && x[32] == 32.f && again[6] == w[39]);
        session_close(s);
        plan_close(&p);
}

TEST (bf16_masters) {
        check_masters(PROGRAM("arena p 132\n", "p+0"));
}
TEST (bf16_masters_in_halves) {
        check_masters(PROGRAM("arena lo 66\n", "lo+0"));
}

TEST (weights_of_the_plan) {
        need(DEV_CPU);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        static _Alignas(64) float w[40];
        float x[33];
        Err e;
        for (int i = 0; i < 40; i++)
                w[i] = (float)i / 8;
        CHECK(!plan_add(&p, "weights", w, sizeof w, &e));
        Session *s = open_on(&p, DEV_CPU, SESSION_INFER); /* uses the plan's bytes themselves */
        CHECK(!session_param_get(s, 0, x, &e) && !memcmp(x, w, sizeof x));
        x[5] = 77;
        CHECK(!session_param_set(s, 0, x, &e) && w[5] == 5.f / 8);
        x[5] = 0;
        CHECK(!session_param_get(s, 0, x, &e) && x[5] == 77.f);
        CHECK(!session_prefill(s, (int[]) { 1, 2, 3 }, 1, 3, &e)); /* kernels see the copy */
        session_close(s);
        p.section[p.n_sections - 1].size = 156;
        CHECK(session_open(&s, &p, &(SessionOptions) { .device = DEV_CPU }, &e) == TGC_BAD_FILE &&
              !s);
        plan_close(&p);
}

/* Inputs that the runtime does not know, or knows otherwise. */
TEST (cpu_refuses_unfed_inputs) {
        need(DEV_CPU);
        static const struct {
                const char *from, *to, *want;
        } bad[] = {
                { "io targets i32", "io segment i32",
                  "nothing feeds or reads segment of program step" },
                { "io targets i32 act+256 B*T", "io targets i32 act+256 B",
                  "input targets of program step has 2 numbers of type i32, and must have 8" },
                { "io ids i32 act+0 B*T", "io ids f32 act+0 B*T",
                  "input ids of program prefill has 15 numbers of type f32" },
                { "io next i32 act+8192 B", "io targets i32 act+0 B",
                  "nothing feeds or reads targets of program decode" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                const char *whole = PROGRAM("", "w+0"), *at = strstr(whole, bad[i].from);
                char text[8192];
                Session *s;
                Err e;
                snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, bad[i].to,
                         at + strlen(bad[i].from));
                Plan p = make_plan(manifest, text);
                CHECK(session_open(&s, &p, &(SessionOptions) { .device = DEV_CPU }, &e) ==
                              TGC_BAD_FILE &&
                      !s);
                CHECK_MSG(strstr(e.msg, bad[i].want), "%s", e.msg);
                plan_close(&p);
        }
}

TEST (init_is_reproducible) {
        enum { M = 100000 };
        static float a[M], b[M];
        Param p = { .name = "x", .count = M, .init = INIT_NORMAL, .init_arg = { 0.02 } };
        double sum = 0, square = 0;
        param_init(&p, 3, 42, 0, M, a);
        for (uint64_t at = 0; at < M; at += 997) /* in pieces that do not fit the quads */
                param_init(&p, 3, 42, at, M - at < 997 ? M - at : 997, b + at);
        CHECK(!memcmp(a, b, sizeof a));
        for (int i = 0; i < M; i++) {
                sum += a[i];
                square += (double)a[i] * a[i];
        }
        CHECK(fabs(sum / M) < 5 * 0.02 / sqrt(M) &&
              fabs(sqrt(square / M) - 0.02) < 0.02 * 5 / sqrt(2.0 * M));
        param_init(&p, 4, 42, 0, M, b);
        CHECK(a[0] != b[0] && a[17] != b[17]);
        param_init(&p, 3, 43, 0, M, b);
        CHECK(a[0] != b[0] && a[17] != b[17]);
        p.init = INIT_UNIFORM;
        p.init_arg[0] = -1;
        p.init_arg[1] = 1;
        param_init(&p, 0, 1, 0, M, b);
        for (int i = 0; i < M; i++)
                CHECK(b[i] >= -1.f && b[i] <= 1.f);
}

/* Word i of a counter, by the papers' own definitions. */
static uint32_t philox_word(uint64_t quad, int index, uint64_t seed, int i)
{
        uint32_t c[4] = { (uint32_t)quad, (uint32_t)(quad >> 32), (uint32_t)index, 0x74696e69 },
                 k[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
        for (int r = 0; r < 10; r++) {
                const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
                const uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                                           (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a };
                memcpy(c, next, sizeof c);
                k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
        }
        return c[i];
}

/* Vectors of counters, and logarithm, sine and cosine as sums, give what libm gives. */
TEST (init_is_box_and_muller) {
        enum { M = 40000 };
        static float a[M];
        const Param p = { .name = "x", .count = M, .init = INIT_NORMAL, .init_arg = { 0.02 } };
        const uint64_t seed = 0x123456789abcdef, first = ((uint64_t)1 << 34) - 9999;
        int other = 0;
        param_init(&p, 7, seed, first, M, a);
        for (uint64_t i = 0; i < M; i++) {
                const uint64_t at = first + i;
                const int pair = (int)(at % 4) & 2;
                const double u = (philox_word(at / 4, 7, seed, pair) + 0.5) * 0x1p-32,
                             v = (philox_word(at / 4, 7, seed, pair + 1) + 0.5) * 0x1p-32,
                             r = 0.02 * sqrt(-2 * log(u)), angle = 6.283185307179586 * v,
                             want = at % 2 ? r * sin(angle) : r * cos(angle);
                CHECK(fabs(a[i] - want) <= 1e-7 * fabs(want));
                other += a[i] != (float)want;
        }
        CHECK_MSG(other < 4, "%d floats of %d are not libm's", other, M);
}

/* ---- memory ---- */

TEST (too_large_is_refused_with_numbers) {
        Plan p = make_plan(manifest,
                           "tgc-program 2\narena w 160\narena kv 999999999999999\narena act 64\n");
        Session *s;
        Err e;
        use_cache();
        CHECK(session_open(&s, &p, &(SessionOptions) { .device = DEV_CPU }, &e) == TGC_NO_MEMORY &&
              !s);
        CHECK_MSG(strstr(e.msg, "kv") && strstr(e.msg, "GB free"), "%s", e.msg);
        plan_close(&p);
}

/* ---- the public interface ---- */

static int first_token(void *user, int token)
{
        *(int *)user = token;
        return 1;
}

static int count_token(void *user, int token)
{
        (void)token;
        ++*(int *)user;
        return 0;
}

/* A callback that begins something else is told why it may not. */
static int intrude(void *user, int token)
{
        Tgc *t = user;
        TgcError err;
        TgcBatch *b;
        TgcStep step = { .ids = &token, .targets = &token };
        double nll;
        float x[33] = { 0 };
        int refused = 0;
        refused += tgc_prompt(t, &token, 1, &err) == TGC_STATUS_USAGE;
        refused += tgc_generate(t, 0, 1, NULL, NULL, &err) == TGC_STATUS_USAGE;
        refused += tgc_reset(t, &err) == TGC_STATUS_USAGE;
        refused += tgc_score(t, &token, 1, 0, &nll, &err) == TGC_STATUS_USAGE;
        refused += tgc_train_step(t, &step, &err) == TGC_STATUS_USAGE;
        refused += tgc_param_set(t, 0, x, &err) == TGC_STATUS_USAGE;
        refused += tgc_batch_open(&b, t, &err) == TGC_STATUS_USAGE && !b;
        CHECK_MSG(refused == 7 && strstr(err.message, "until tgc_generate returns") &&
                          !tgc_param_get(t, 0, x, &err),
                  "%d of 7 are refused: %s", refused, err.message);
        return 0;
}

/* Each refusal is a usage error that says which pointer is NULL. */
static void check_null(Tgc *t)
{
        TgcError e;
        TgcSampling how = tgc_sampling();
        TgcBatch *b = NULL;
        TgcToken token[TGC_MOST_TOKENS];
        TgcStep step = { .batch = 1, .tokens = 2, .micro = 1, .targets = (int[]) { 1, 2 } };
        Tgc *other = t;
        int *ids = &(int) { 1 }, n;
        char *text = "x", first;
        size_t size;
#define IS_NULL(call, says)                                                                   \
        CHECK_MSG((call) == TGC_STATUS_USAGE && strstr(e.message, says " is NULL"), "%s: %s", \
                  #call, e.message)
        IS_NULL(tgc_open(&other, NULL, NULL, &e), "tgc_open: path");
        CHECK(!other);
        IS_NULL(tgc_open(NULL, "x.plan", NULL, &e), "tgc_open: t");
        CHECK(tgc_open(NULL, NULL, NULL, NULL) == TGC_STATUS_USAGE);
        IS_NULL(tgc_encode(t, NULL, 1, &ids, &n, &e), "tgc_encode: text");
        CHECK(!ids);
        IS_NULL(tgc_encode(t, "a", 1, NULL, &n, &e), "tgc_encode: ids");
        IS_NULL(tgc_encode(NULL, "a", 1, &ids, &n, &e), "tgc_encode: t");
        IS_NULL(tgc_text(t, NULL, 1, &text, &size, &e), "tgc_text: ids");
        IS_NULL(tgc_text(t, &n, 0, &text, NULL, &e), "tgc_text: n");
        IS_NULL(tgc_reset(NULL, &e), "tgc_reset: t");
        IS_NULL(tgc_prompt(t, NULL, 2, &e), "tgc_prompt: ids");
        IS_NULL(tgc_generate(NULL, NULL, 1, NULL, NULL, &e), "tgc_generate: t");
        how.n_bias = 1;
        CHECK(!tgc_prompt(t, (int[]) { 1 }, 1, &e));
        IS_NULL(tgc_generate(t, &how, 1, NULL, NULL, &e), "n_bias is 1, and bias");
        how.n_bias = 0;
        how.n_dry_breakers = 2;
        IS_NULL(tgc_generate(t, &how, 1, NULL, NULL, &e), "dry_breakers is 2, and dry_breakers");
        IS_NULL(tgc_score(t, NULL, 2, NULL, NULL, &e), "tgc_score: ids");
        IS_NULL(tgc_embed(t, NULL, &size, 1, NULL, &e), "tgc_embed: text");
        IS_NULL(tgc_embed_ids(t, NULL, NULL, 1, NULL, &e), "tgc_embed_ids: ids");
        IS_NULL(tgc_train_step(t, NULL, &e), "tgc_train_step: step");
        IS_NULL(tgc_train_step(t, &step, &e), "tgc_train_step: step->ids");
        IS_NULL(tgc_param_get(t, 0, NULL, &e), "tgc_param_get: data");
        IS_NULL(tgc_param_set(t, 0, NULL, &e), "tgc_param_set: data");
        IS_NULL(tgc_batch_open(NULL, t, &e), "tgc_batch_open: b");
        IS_NULL(tgc_batch_open(&b, NULL, &e), "tgc_batch_open: t");
        IS_NULL(tgc_batch_add(NULL, ids, 0, NULL, &n, &e), "tgc_batch_add: b");
        IS_NULL(tgc_batch_fork(NULL, 1, NULL, &n, &e), "tgc_batch_fork: b");
        IS_NULL(tgc_batch_drop(NULL, 1, &e), "tgc_batch_drop: b");
        IS_NULL(tgc_batch_step(NULL, token, &n, &e), "tgc_batch_step: b");
#undef IS_NULL
        CHECK(!b && !tgc_device(NULL) && !tgc_vocab(NULL) && !tgc_context(NULL) &&
              !tgc_batch(NULL) && !tgc_width(NULL) && !tgc_is_end(NULL, 1) &&
              !tgc_adapter(NULL, "a") && !tgc_adapter(t, NULL) && !tgc_batch_left(NULL) &&
              !tgc_param_count(NULL) && !tgc_param_name(NULL, 0) &&
              !tgc_decode(t, -1, 1, NULL, 4) && !tgc_decode(NULL, -1, 1, &first, 1) &&
              tgc_param_shape(t, 0, NULL, NULL) > 0);
        CHECK(!tgc_reset(t, &e));
}

TEST (public_interface) {
        need(DEV_CPU);
        char path[] = "/tmp/tgc-test-XXXXXX";
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Err e;
        TgcError err;
        Tgc *t;
        int token = -1, fd = mkstemp(path);
        double nll[2];
        float x[33];
        use_cache();
        close(fd);
        CHECK_MSG(!plan_write(&p, path, &e), "%s", e.msg);
        plan_close(&p);
        int code = tgc_open(&t, path, &(TgcOptions) { .device = "cpu" }, &err);
        CHECK_MSG(!code, "%s", err.message);
        CHECK(tgc_vocab(t) == V && tgc_context(t) == CTX && tgc_batch(t) == BATCH);
        CHECK(!tgc_prompt(t, (int[]) { 1, 2, 3 }, 3, &err) &&
              !tgc_generate(t, 0, 9, first_token, &token, &err));
        CHECK(token == 8);
        /* as many as fit */
        int said = 0;
        CHECK(!tgc_reset(t, &err) && !tgc_prompt(t, (int[]) { 1, 2, 3 }, 3, &err) &&
              !tgc_generate(t, 0, -1, count_token, &said, &err) && said == CTX - 2);
        CHECK(!tgc_reset(t, &err) && !tgc_prompt(t, (int[]) { 1, 2, 3 }, 3, &err) &&
              !tgc_generate(t, 0, 1, intrude, t, &err));
        CHECK(tgc_prompt(t, 0, 0, &err) == TGC_STATUS_USAGE && strstr(err.message, "0 tokens"));
        CHECK(!tgc_reset(t, &err));
        CHECK(!tgc_score(t, (int[]) { 1, 3, 2 }, 3, 0, nll, &err) && nll[0] < nll[1]);
        CHECK(tgc_encode(t, "a", 1, 0, 0, &err) == TGC_STATUS_USAGE);
        check_null(t);
        CHECK(tgc_param_count(t) == 2 && !strcmp(tgc_param_name(t, 0), "x") &&
              !tgc_param_name(t, 2));
        CHECK(!tgc_param_get(t, 0, x, &err) && tgc_param_get(t, 9, x, &err));
        TgcStep step = { .batch = 1,
                         .tokens = 2,
                         .micro = 1,
                         .ids = (int[]) { 1, 2 },
                         .targets = (int[]) { 3, 4 },
                         .lr = 0.1 };
        CHECK(!tgc_train_step(t, &step, &err) && step.loss > 0 && step.grad_norm > 0 &&
              !step.skipped);
        tgc_close(t);
        CHECK(tgc_open(&t, path, &(TgcOptions) { .device = "tpu" }, &err) == TGC_STATUS_USAGE &&
              !t);
        CHECK(tgc_open(&t, "/nonexistent", 0, &err) == TGC_STATUS_IO &&
              strstr(err.message, "/nonexistent"));
        unlink(path);
}

TEST_MAIN
