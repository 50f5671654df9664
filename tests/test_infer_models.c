/* test_infer_models.c: trained models against a reference, tests/data/make_story.py's or llama2.c's
 * run.c, through the library and through the command line; on the CPU, or where TGC_TEST_DEVICE
 * says. */
#include <math.h>
#include "e2e/infer/run.h"
#include "plan_file.h"

enum { MOST = 512, PROMPT = 5 };
#define NLL 0.540414102 /* expected/sample_nll.txt */

/* A prompt of n_prompt ids and the greedy ones after it; the logits of its first rows; a text's ids
 * and its loss. */
typedef struct Model {
        ModelKind kind;
        const char *path, *ids, *logits;
        int rows, vocab, n, n_prompt;
        const char *nll_text, *nll_ids;
        double nll;
} Model;

/* The project's model in both of its forms, or two others. */
static const Model models[2][2] = {
        { { MODEL_HF, "models/story", "story_ids.txt", "story_logits.f32", 16, 512, 160, PROMPT,
            "sample_text.txt", "sample_ids.txt", NLL },
          { MODEL_LLAMA2C, "models/story/story.bin", "story_ids.txt", "story_logits.f32", 16, 512,
            160, PROMPT, "sample_text.txt", "sample_ids.txt", NLL } },
        { { MODEL_HF, "models/tinystories656k", "ts656k_p0_ids.txt", "ts656k_p0_logits16.f32", 16,
            2048, 140, 6, "nll_sample_text.txt", "ts656k_nll_sample_ids.txt", 2.781337 },
          { MODEL_LLAMA2C, "models/stories260K/stories260K.bin", "stories260K_once_ids.txt",
            "stories260K_bos_logits32.f32", 32, 512, 0, 6, "nll_sample_text.txt",
            "stories260K_nll_sample_ids.txt", 1.238555 } }
};

/* In Hugging Face's form. */
static const Model *ts(void) { return &models[!data_is_own()][0]; }
static const Model *llama2c(void) { return &models[!data_is_own()][1]; }

static const char *expected(const char *name) { return data_at("expected/%s", name); }

static void open_model(Trial *r, const Model *m, int batch)
{
        const char *path = data_at("%s", m->path);
        data_need(path);
        run_open(r, (BuildOptions) { .kind = m->kind, .model = path, .opt = 3, .batch = batch },
                 path);
}

static int ids_file(const char *name, int *ids)
{
        const char *path = expected(name);
        data_need(path);
        char *text = text_of(path);
        int n = integers(text, NULL, ids, MOST);
        free(text);
        CHECK_MSG(n > 16, "%s: %d ids", path, n);
        return n;
}

static int best(const float *row, int n)
{
        int k = 0;
        for (int i = 1; i < n; i++)
                k = row[i] > row[k] ? i : k;
        return k;
}

/* Logits, the loss of a text, and the greedy path: decoded with the cache from prompts of several
 * lengths, and as the best of each row of one pass without decoding. */
static void check_model(const Model *m)
{
        int ids[MOST], text[MOST], got[MOST], n = ids_file(m->ids, ids),
                                              k = ids_file(m->nll_ids, text);
        double nll[MOST], sum = 0;
        Trial r;
        open_model(&r, m, 1);
        float *want = floats_of(expected(m->logits), (size_t)m->rows * r.vocab),
              *l = run_score(&r, ids, n, NULL);
        double d = worst(l, want, (size_t)m->rows * r.vocab);
        NOTE("%s: logits %.2e", m->path, d);
        CHECK_MSG(d <= 1e-4, "logits differ by %.3g", d);
        for (int i = m->n_prompt - 1; i + 1 < n; i++)
                CHECK_MSG(best(l + (size_t)i * r.vocab, r.vocab) == ids[i + 1],
                          "without the cache token %d is another", i + 1);
        for (int from = m->n_prompt; from < n; from += 83) {
                run_prefill(&r, ids, 1, from);
                run_greedy(&r, n - from, got);
                for (int i = 0; i < n - from; i++)
                        CHECK_MSG(got[i] == ids[from + i],
                                  "after %d tokens: token %d is %d, not %d", from, from + i, got[i],
                                  ids[from + i]);
        }
        free(run_score(&r, text, k, nll));
        for (int i = 0; i < k - 1; i++)
                sum += nll[i];
        NOTE("%s: %.6f nats per token over %d", m->path, sum / (k - 1), k - 1);
        CHECK_MSG(fabs(sum / (k - 1) - m->nll) < 2e-6, "%.6f nats per token, not %.6f",
                  sum / (k - 1), m->nll);
        free(want);
        free(l);
        run_end(&r);
}

TEST_DATA (hf_model) {
        check_model(ts());
}
TEST_DATA (llama2c_model) {
        check_model(llama2c());
}

/* Sequences decoded together get what each gets alone: two and three at once, with the decode
 * programs for as many. */
TEST_DATA (hf_model_batch_3) {
        enum { N = 60, P = 12 };
        int ids[MOST], other[MOST], prompt[3 * P], got[3 * N], alone[3][N];
        Trial r;
        ids_file(ts()->ids, ids);
        ids_file(ts()->nll_ids, other);
        memcpy(prompt, ids, P * sizeof *ids);
        memcpy(prompt + P, other, P * sizeof *other);
        memcpy(prompt + 2 * P, other + 40, P * sizeof *other);
        open_model(&r, ts(), 3);
        for (int b = 0; b < 3; b++) {
                run_prefill(&r, prompt + b * P, 1, P);
                run_greedy(&r, N, alone[b]);
        }
        for (int i = 0; i < N; i++)
                CHECK_MSG(alone[0][i] == ids[P + i], "step %d: %d, not %d", i, alone[0][i],
                          ids[P + i]);
        for (int B = 2; B <= 3; B++) {
                run_prefill(&r, prompt, B, P);
                run_greedy(&r, N, got);
                for (int i = 0; i < N * B; i++)
                        CHECK_MSG(got[i] == alone[i % B][i / B],
                                  "%d at once: sequence %d, step %d: %d, alone %d", B, i % B, i / B,
                                  got[i], alone[i % B][i / B]);
        }
        run_end(&r);
}

/* Text added after decoding, and decoding piece by piece, are as good as one prompt; the end of the
 * context is an error that leaves the tokens. */
TEST_DATA (hf_model_goes_on) {
        enum { P = 8, N = 20, MORE = 10 };
        int ids[MOST], other[MOST], all[MOST], got[MOST];
        Err e = { 0 };
        Trial r;
        ids_file(ts()->ids, ids);
        ids_file(ts()->nll_ids, other);
        open_model(&r, ts(), 1);
        run_prefill(&r, ids, 1, P);
        memcpy(all, ids, P * sizeof *ids);
        for (int i = 0; i < N; i += 5)
                run_greedy(&r, 5, all + P + i);
        memcpy(all + P + N, other + 30, MORE * sizeof *other);
        must(session_prefill(r.s, other + 30, 1, MORE, &e), &e);
        CHECK(session_pos(r.s) == P + N + MORE);
        run_greedy(&r, N, got);
        run_prefill(&r, all, 1, P + N + MORE);
        run_greedy(&r, N, all + P + N + MORE);
        for (int i = 0; i < N; i++)
                CHECK_MSG(got[i] == all[P + N + MORE + i], "step %d: %d, in one go %d", i, got[i],
                          all[P + N + MORE + i]);
        Sampling how = sampling_default();
        Taken t = { got, 0 };
        how.temp = 0;
        CHECK(session_decode(r.s, &how, MOST, run_take, &t, &e) == TGC_USAGE);
        CHECK_MSG(t.n == r.ctx - (P + 2 * N + MORE) + 1, "%d tokens until the context is full",
                  t.n);
        run_end(&r);
}

/* A prefix that is kept is as good as one computed again. */
TEST_DATA (hf_model_keeps_a_prefix) {
        enum { P = 8, N = 12, MORE = 7 };
        static const int keep[] = { P + N, P + 3, P, P - 1, 1, 0 };
        int ids[MOST], other[MOST], all[MOST], got[MOST], want[MOST];
        Err e = { 0 };
        Trial r;
        ids_file(ts()->ids, ids);
        ids_file(ts()->nll_ids, other);
        open_model(&r, ts(), 1);
        for (size_t k = 0; k < sizeof keep / sizeof *keep; k++) {
                run_prefill(&r, ids, 1, P);
                run_greedy(&r, N, all);
                must(session_truncate(r.s, keep[k], &e), &e);
                CHECK(session_pos(r.s) == keep[k]);
                if (keep[k] > P) { /* it says the same again */
                        run_greedy(&r, 4, got);
                        for (int i = 0; i < 4 && keep[k] - P + i < N; i++)
                                CHECK(got[i] == all[keep[k] - P + i]);
                        must(session_truncate(r.s, keep[k], &e), &e);
                }
                must(session_prefill(r.s, other + 30, 1, MORE, &e), &e);
                run_greedy(&r, N, got);
                memmove(all + P, all, N * sizeof *all);
                memcpy(all, ids, P * sizeof *all);
                memcpy(all + keep[k], other + 30, MORE * sizeof *all);
                run_prefill(&r, all, 1, keep[k] + MORE);
                run_greedy(&r, N, want);
                for (int i = 0; i < N; i++)
                        CHECK_MSG(got[i] == want[i], "%d kept, step %d: %d, computed again %d",
                                  keep[k], i, got[i], want[i]);
        }
        CHECK(session_truncate(r.s, session_pos(r.s) + 1, &e) == TGC_USAGE);
        CHECK(session_truncate(r.s, -1, &e) == TGC_USAGE);
        run_end(&r);
}

/* ---- the command line ---- */

/* Standard output of the tool; caller frees.  args are ours: no quoting is needed but what they
 * have. */
static char *tool(const char *args)
{
        const char *tgc = getenv("TGC");
        char command[2048];
        snprintf(command, sizeof command, "%s %s", tgc ? tgc : "build/tgc", args);
        FILE *f = popen(command, "r");
        CHECK(f);
        char *out = calloc(1, 1 << 16);
        size_t n = fread(out, 1, (1 << 16) - 1, f);
        out[n] = 0;
        int status = pclose(f);
        CHECK_MSG(status == 0, "%s: status %d", command, status);
        return out;
}

/* The same on the device under test. */
static char *tool_on_device(const char *args)
{
        char line[2048];
        snprintf(line, sizeof line, "%s -q %s", args,
                 run_on_gpu() ? "--device cuda" : "--device cpu -t 1");
        return tool(line);
}

/* Text that the model in llama2.c's form gives. */
static void same_text(const char *options, const char *file)
{
        char args[1024];
        snprintf(args, sizeof args, "run %s --temp 0 %s", data_at("%s", llama2c()->path), options);
        data_need(expected(file));
        char *got = tool_on_device(args), *want = text_of(expected(file));
        for (char *s = got + strlen(got); s > got && s[-1] == '\n';)
                *--s = 0;
        for (char *s = want + strlen(want); s > want && s[-1] == '\n';)
                *--s = 0;
        CHECK_MSG(!strcmp(got, want), "%s gives\n%s\nnot\n%s", args, got, want);
        free(got);
        free(want);
}

/* Of a logit in float32. */
static double tolerance(void) { return run_on_gpu() ? 1e-3 : 1e-4; }

TEST_DATA (run_with_a_prompt) {
        char options[100];
        snprintf(options, sizeof options, "-n %d -p 'Once upon a time'",
                 data_is_own() ? llama2c()->n - PROMPT : 252);
        same_text(options, data_is_own() ? "story_text.txt" : "stories260K_once_n256.txt");
}

TEST_DATA (run_without_a_prompt) {
        same_text(data_is_own() ? "-n 119" : "-n 200",
                  data_is_own() ? "story_alone.txt" : "stories260K_test_all_n200.txt");
}

#define LOGITS "build/infer_logits.npy"

/* The logits of the greedy path, by `tgc eval`. */
static void eval_path(const char *options, Npy *a)
{
        char args[1024];
        Err e = { 0 };
        snprintf(args, sizeof args, "eval %s %s --ids %s --logits " LOGITS,
                 data_at("%s", ts()->path), options, expected(ts()->ids));
        free(tool_on_device(args));
        must(npy_open(a, LOGITS, &e), &e);
        remove(LOGITS);
        CHECK(a->rank == 2 && a->dim[0] == ts()->n && a->dim[1] == ts()->vocab);
}

/* By how much the best of a row leads. */
static double lead(const float *row, int n)
{
        int k = best(row, n);
        double second = -INFINITY;
        for (int i = 0; i < n; i++)
                second = i != k && row[i] > second ? row[i] : second;
        return row[k] - second;
}

/* A GPU adds in another order: ids are owed up to the first choice whose best leads by less than
 * twice what a logit may be off.  (The closest lead by 0.0036, or 0.0042, so that is all of
 * them.) */
TEST_DATA (run_hf_model_ids) {
        int want[MOST], got[MOST], owed = 1, V = ts()->vocab;
        char args[1024];
        Npy a;
        int n = ids_file(ts()->ids, want);
        eval_path("", &a);
        while (owed < n && lead(a.u.f32 + (size_t)(owed - 1) * V, V) > 2 * tolerance())
                owed++;
        npy_close(&a);
        snprintf(args, sizeof args, "run %s --temp 0 --print-ids -p 'Once upon a time' -n %d",
                 data_at("%s", ts()->path), n - ts()->n_prompt);
        char *text = tool_on_device(args);
        CHECK_MSG(integers(text, NULL, got, MOST) == n ||
                          (owed < n && integers(text, NULL, got, MOST) >= owed),
                  "%d ids, of %d owed: %s", n, owed, text);
        NOTE("%s: %d of %d ids are owed", ts()->path, owed, n);
        CHECK_MSG(owed > 100, "only %d ids until a close choice", owed);
        for (int i = 0; i < owed; i++)
                CHECK_MSG(got[i] == want[i], "id %d is %d, not %d", i, got[i], want[i]);
        free(text);
}

/* Absolute in float32.  In bf16 relative to the largest logit, as `tgc check` has it: a logit of 20
 * is itself rounded by up to 0.06. */
static void check_logits(const char *options, bool relative, double allowed)
{
        Npy a;
        eval_path(options, &a);
        const size_t n = (size_t)ts()->rows * (size_t)ts()->vocab;
        float *want = floats_of(expected(ts()->logits), n);
        double most = largest(want, n), d = worst(a.u.f32, want, n);
        npy_close(&a);
        free(want);
        NOTE("%s %s: eval's logits %.2e, the largest is %.3g", ts()->path, options, d, most);
        CHECK_MSG(d <= allowed * (relative ? most : 1),
                  "logits differ by %.3g, the largest is %.3g, allowed %g%s", d, most, allowed,
                  relative ? " of that" : "");
}

TEST_DATA (eval_logits) {
        check_logits("--dtype f32", false, tolerance());
}
TEST_DATA (eval_logits_bf16) {
        check_logits("--dtype bf16", true, 5e-2);
}

TEST_DATA (eval_loss) {
        int ids[MOST];
        char args[1024], tokens[40];
        snprintf(tokens, sizeof tokens, "%d tokens", ids_file(ts()->nll_ids, ids) - 1);
        snprintf(args, sizeof args, "eval %s --data %s", data_at("%s", ts()->path),
                 expected(ts()->nll_text));
        char *text = tool_on_device(args);
        double d = fabs(atof(text) - ts()->nll);
        CHECK_MSG(d <= (run_on_gpu() ? 1e-5 : 1.5e-6) && strstr(text, tokens), "%s", text);
        free(text);
}

/* ---- the same bytes ---- */

static void same_bytes(const char *a, const char *b)
{
        FileMap x, y;
        Err e = { 0 };
        must(file_map(&x, a, &e), &e);
        must(file_map(&y, b, &e), &e);
        CHECK_MSG(x.size == y.size && !memcmp(x.data, y.data, x.size), "%s and %s differ", a, b);
        file_unmap(&x);
        file_unmap(&y);
}

TEST (plan_bytes) {
        free(tool("compile tests/e2e/infer/small.lua -q --target cpu -o build/infer_a.plan"));
        free(tool("compile tests/e2e/infer/small.lua -q --target cpu -o build/infer_b.plan"));
        same_bytes("build/infer_a.plan", "build/infer_b.plan");
        free(tool("dump tests/e2e/infer/small.lua --graph --json > build/infer.json"));
        free(tool("compile build/infer.json -q --target cpu -o build/infer_b.plan"));
        CHECK(without_model("build/infer_a.plan", "build/infer_c.plan"));
        same_bytes("build/infer_c.plan", "build/infer_b.plan");
        remove("build/infer_a.plan");
        remove("build/infer_c.plan");
        remove("build/infer_b.plan");
        remove("build/infer.json");
}

TEST_MAIN
