/* test_infer_emulate.c: the emitted CUDA, run on the CPU by the emulator, decodes what the reference
 * decodes.  A few tokens each: a block of threads is hundreds of fibers. */
#include "e2e/infer/run.h"

static void check_tokens(ModelKind kind, const char *path, const int *ids, int start, int n, int ctx)
{
        int got[64];
        Trial r;
        run_open(&r, (BuildOptions){ .kind = kind, .model = path, .opt = 3, .batch = 1, .ctx = ctx, .chunk = 16, .cuda = true },
                 path);
        run_prefill(&r, ids, 1, start);
        run_greedy(&r, n, got);
        for (int i = 0; i < n; i++)
                CHECK_MSG(got[i] == ids[start + i], "%s: token %d is %d, not %d", path, start + i, got[i], ids[start + i]);
        run_end(&r);
}

static void check_family(const char *name)
{
        char path[256];
        int ids[64];
        snprintf(path, sizeof path, DATA "families/%s/expected.json", name);
        need(path);
        char *text = text_of(path);
        CHECK(integers(text, "greedy_ids", ids, 64) == 48);
        free(text);
        snprintf(path, sizeof path, DATA "families/%s", name);
        check_tokens(MODEL_HF, path, ids, 16, 3, 64);
}

TEST(emulate_llama) { check_family("llama"); }
TEST(emulate_mixtral) { check_family("mixtral"); }

TEST(emulate_tinystories656k)
{
        int ids[512];
        need(DATA "models/tinystories656k");
        char *text = text_of(DATA "expected/ts656k_p0_ids.txt");
        CHECK(integers(text, NULL, ids, 512) == 140);
        free(text);
        check_tokens(MODEL_HF, DATA "models/tinystories656k", ids, 6, 4, 64);
}

TEST_MAIN
