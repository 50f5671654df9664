/* test_infer_emulate.c: the emitted CUDA, run on the CPU by the emulator, decodes what the
 * reference decodes.  A few tokens each: a block of threads is hundreds of fibers. */
#include "e2e/infer/run.h"

static void check_tokens(ModelKind kind, const char *path, const int *ids, int start, int n,
                         int ctx)
{
        int got[64];
        Trial r;
        run_open(&r,
                 (BuildOptions) { .kind = kind,
                                  .model = path,
                                  .opt = 3,
                                  .batch = 1,
                                  .ctx = ctx,
                                  .chunk = 16,
                                  .cuda = true },
                 path);
        run_prefill(&r, ids, 1, start);
        run_greedy(&r, n, got);
        for (int i = 0; i < n; i++)
                CHECK_MSG(got[i] == ids[start + i], "%s: token %d is %d, not %d", path, start + i,
                          got[i], ids[start + i]);
        run_end(&r);
}

static void check_family(const char *name)
{
        char path[256], file[300];
        int ids[64];
        snprintf(path, sizeof path, "%s", data_at("families/%s", name));
        snprintf(file, sizeof file, "%s/expected.json", path);
        char *text = text_of(file);
        CHECK(integers(text, "greedy_ids", ids, 64) == 48);
        free(text);
        check_tokens(MODEL_HF, path, ids, 16, 3, 64);
}

/* In bfloat16 products go through the tensor cores' instructions. */
static void check_bf16(const char *name)
{
        char path[256], file[300];
        int ids[40];
        Err e = { 0 };
        Npy want;
        Trial r;
        snprintf(path, sizeof path, "%s", data_at("families/%s", name));
        snprintf(file, sizeof file, "%s/expected.json", path);
        char *text = text_of(file);
        CHECK(integers(text, "prompt_ids", ids, 40) == 40);
        free(text);
        snprintf(file, sizeof file, "%s/expected_logits.npy", path);
        must(npy_open(&want, file, &e), &e);
        run_open(&r,
                 (BuildOptions) { .kind = MODEL_HF,
                                  .model = path,
                                  .dtype = "bf16",
                                  .opt = 3,
                                  .batch = 1,
                                  .ctx = 64,
                                  .chunk = 32,
                                  .cuda = true },
                 path);
        float *got = run_score(&r, ids, 40, NULL);
        double d = worst(got, want.u.f32, 40 * (size_t)r.vocab) /
                   largest(want.u.f32, 40 * (size_t)r.vocab);
        NOTE("%s bf16: %.2e", path, d);
        CHECK_MSG(d <= 5e-2, "%s: bfloat16 logits differ by %.3g of the largest", path, d);
        free(got);
        npy_close(&want);
        run_end(&r);
}

TEST (emulate_llama_bf16) {
        check_bf16("llama");
}
TEST (emulate_mixtral_bf16) {
        check_bf16("mixtral");
}
TEST (emulate_llama) {
        check_family("llama");
}
TEST (emulate_mixtral) {
        check_family("mixtral");
}

TEST_DATA (emulate_story) {
        int ids[512];
        const char *model = data_at(data_is_own() ? "models/story" : "models/tinystories656k");
        data_need(model);
        char *text = text_of(
                data_at(data_is_own() ? "expected/story_ids.txt" : "expected/ts656k_p0_ids.txt"));
        CHECK(integers(text, NULL, ids, 512) == (data_is_own() ? 160 : 140));
        free(text);
        check_tokens(MODEL_HF, model, ids, 6, 4, 64);
}

/* Logits after a prompt that one call takes, by the program for many tokens, or six of 96. */
static void long_prompt(int chunk, float *logits)
{
        enum { B = 2, N = 540 };
        static const char *define[] = { "n_layer=1",  "n_embd=32", "n_head=4", "n_kv_head=2",
                                        "head_dim=8", "n_ff=48",   "vocab=64", "ctx=600" };
        int ids[B * N], next[B];
        Trial r;
        run_open(&r,
                 (BuildOptions) { .kind = MODEL_LUA,
                                  .model = "llama",
                                  .define = define,
                                  .n_define = 8,
                                  .opt = 3,
                                  .batch = B,
                                  .chunk = chunk,
                                  .cuda = true },
                 NULL);
        CHECK(!program_find(session_program(r.s), "prefill_long") == (chunk != 0));
        for (int i = 0; i < B * N; i++)
                ids[i] = (int)(i * 2654435761u >> 9) % 64;
        run_prefill(&r, ids, B, N);
        run_greedy(&r, 1, next);
        run_logits(&r, "decode", B, logits);
        run_end(&r);
}

TEST (emulate_a_long_prompt) {
        float one[2 * 64], six[2 * 64];
        long_prompt(0, one);
        long_prompt(96, six);
        double d = worst(one, six, 128) / largest(six, 128);
        CHECK_MSG(d < 1e-5, "logits differ by %.3g of the largest", d);
}

TEST_MAIN
