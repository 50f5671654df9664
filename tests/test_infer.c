/* test_infer.c: families of checkpoints against the logits and tokens that PyTorch gave, on the
 * CPU.
 *
 * The logits are sums of up to 160 products in float32, taken in another order: 1e-4 is some
 * ten times what was seen.  A greedy token is owed where the best leads by more than 1e-3. */
#include "e2e/infer/run.h"

enum { N_PROMPT = 40, N_START = 16, N_GREEDY = 48, CHUNK = 16, MOST_VOCAB = 320 };

typedef struct Family {
        char dir[256];
        int prompt[N_PROMPT], greedy[N_GREEDY];
        double margin[N_GREEDY - N_START];
        Npy want;
        int vocab;
} Family;

static Family family_read(const char *dir)
{
        Family f;
        char path[400];
        Err e = { 0 };
        snprintf(f.dir, sizeof f.dir, "%s", dir);
        snprintf(path, sizeof path, "%s/expected.json", f.dir);
        char *text = text_of(path);
        CHECK(integers(text, "prompt_ids", f.prompt, N_PROMPT) == N_PROMPT);
        CHECK(integers(text, "greedy_ids", f.greedy, N_GREEDY) == N_GREEDY);
        CHECK(numbers(text, "margins", f.margin, N_GREEDY - N_START) == N_GREEDY - N_START);
        free(text);
        snprintf(path, sizeof path, "%s/expected_logits.npy", f.dir);
        must(npy_open(&f.want, path, &e), &e);
        CHECK(f.want.rank == 2 && f.want.dim[0] <= N_PROMPT && f.want.dtype == CK_F32);
        f.vocab = (int)f.want.dim[1];
        CHECK(f.vocab <= MOST_VOCAB);
        return f;
}

/* The prompt's token whose logits come first: of some families the last ones are kept. */
static int first_row(const Family *f) { return N_PROMPT - (int)f->want.dim[0]; }

static void check_score(Trial *r, const Family *f, double tolerance, const char *what)
{
        float *l = run_score(r, f->prompt, N_PROMPT, NULL);
        double scale = tolerance < 1e-3 ? 1 : largest(f->want.u.f32, (size_t)f->want.count);
        double d = worst(l + (size_t)first_row(f) * f->vocab, f->want.u.f32,
                         (size_t)f->want.count) /
                   scale;
        free(l);
        NOTE("%s %s: score %.2e", f->dir, what, d);
        CHECK_MSG(d <= tolerance, "%s %s: logits differ by %.3g, allowed %g", f->dir, what, d,
                  tolerance);
}

/* Prompts of every length, and the logits of the one decode step that follows. */
static void check_prompts(Trial *r, const Family *f)
{
        float got[MOST_VOCAB];
        double most = 0;
        for (int n = 1 + first_row(f); n <= N_PROMPT; n++) {
                int next;
                run_prefill(r, f->prompt, 1, n);
                run_greedy(r, 1, &next);
                run_logits(r, "decode", 1, got);
                double d = worst(got, f->want.u.f32 + (size_t)(n - 1 - first_row(f)) * f->vocab,
                                 f->vocab);
                CHECK_MSG(d <= 1e-4, "%s: after a prompt of %d tokens logits differ by %.3g",
                          f->dir, n, d);
                most = d > most ? d : most;
        }
        NOTE("%s: prompts of 1 to %d tokens %.2e", f->dir, N_PROMPT, most);
}

/* Decoding one by one follows the reference's path, and its logits are those of one whole pass. */
static void check_decode(Trial *r, const Family *f)
{
        float *whole = run_score(r, f->greedy, N_GREEDY, NULL), got[MOST_VOCAB];
        double most = 0;
        run_prefill(r, f->greedy, 1, N_START);
        for (int i = 0; i < N_GREEDY - N_START; i++) {
                int next;
                run_greedy(r, 1, &next);
                run_logits(r, "decode", 1, got);
                double d = worst(got, whole + (size_t)(N_START + i - 1) * f->vocab, f->vocab);
                CHECK_MSG(d <= 1e-4, "%s: step %d: cached logits differ from a whole pass by %.3g",
                          f->dir, i, d);
                most = d > most ? d : most;
                if (f->margin[i] <= 1e-3)
                        break;
                CHECK_MSG(next == f->greedy[N_START + i], "%s: token %d is %d, not %d (margin %g)",
                          f->dir, i, next, f->greedy[N_START + i], f->margin[i]);
        }
        free(whole);
        NOTE("%s: cache against whole pass %.2e", f->dir, most);
}

/* In narrow storage decoding need not take the reference's path, but each token must be as good as
 * the best of a whole pass over what was decoded, within twice the tolerance. */
static void check_path(Trial *r, const Family *f, double tolerance)
{
        int ids[N_GREEDY];
        memcpy(ids, f->greedy, sizeof ids);
        run_prefill(r, ids, 1, N_START);
        run_greedy(r, N_GREEDY - N_START, ids + N_START);
        float *l = run_score(r, ids, N_GREEDY, NULL);
        double most = largest(l, (size_t)N_GREEDY * f->vocab);
        for (int i = N_START; i < N_GREEDY; i++) {
                const float *row = l + (size_t)(i - 1) * f->vocab;
                float best = row[0];
                for (int k = 1; k < f->vocab; k++)
                        best = row[k] > best ? row[k] : best;
                CHECK_MSG(row[ids[i]] >= best - 2 * tolerance * most,
                          "%s: token %d, %d, has logit %g in a whole pass, "
                          "the best %g",
                          f->dir, i, ids[i], row[ids[i]], best);
        }
        free(l);
}

static BuildOptions options(const Family *f, const char *dtype, int opt)
{
        return (BuildOptions) { .kind = MODEL_HF,
                                .model = f->dir,
                                .dtype = dtype,
                                .opt = opt,
                                .batch = 1,
                                .chunk = CHUNK };
}

static void check_folder(const char *dir)
{
        Family f = family_read(dir);
        Trial r;
        run_open(&r, options(&f, "f32", 3), f.dir);
        check_score(&r, &f, 1e-4, "f32");
        check_prompts(&r, &f);
        check_decode(&r, &f);
        run_end(&r);
        npy_close(&f.want);
}

/* Two are built as for users, and two variants below; the kernels of the others are theirs with
 * other sizes, and built quickly (kernels/cpu/cpu_tgc.h). */
static void check_family(const char *name)
{
        static const char *const built_whole[] = { "gpt2", "mixtral" };
        const char *dir = data_at("families/%s", name);
        bool whole = getenv("TGC_TEST_ALL") != NULL;
        data_need(dir);
        for (size_t i = 0; i < sizeof built_whole / sizeof *built_whole; i++)
                whole |= !strcmp(name, built_whole[i]);
        if (whole)
                unsetenv("TGC_CFLAGS");
        else
                setenv("TGC_CFLAGS", "-O0 -DTGC_CALLS", 1);
        check_folder(dir);
}

/* In narrow storage a token may take another expert than in float32, where two are near: then all
 * of them are taken, and what is wanted is what float32 gives, which the reference's logits have
 * confirmed for fewer. */
static bool take_all_experts(Family *f, BuildOptions *o, const char *name)
{
        static const struct {
                const char *name, *define[2];
        } all[] = { { "mixtral", { "top_k=4" } },
                    { "qwen3_moe", { "top_k=4" } },
                    { "olmoe", { "top_k=4" } },
                    { "qwen2_moe", { "top_k=4" } },
                    { "gpt_oss", { "top_k=4" } },
                    { "deepseek_v2", { "top_k=8", "top_group=4" } },
                    { "deepseek_v3", { "top_k=8", "top_group=4" } } };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
                Trial r;
                if (strcmp(name, all[i].name) || !strcmp(o->dtype, "f32"))
                        continue;
                BuildOptions wide = options(f, "f32", 3);
                wide.define = o->define = (const char **)all[i].define;
                wide.n_define = o->n_define = all[i].define[1] ? 2 : 1;
                run_open(&r, wide, f->dir);
                float *whole = run_score(&r, f->prompt, N_PROMPT, NULL);
                memmove(whole, whole + (size_t)first_row(f) * f->vocab,
                        (size_t)f->want.count * sizeof *whole);
                f->want.u.f32 = whole;
                run_end(&r);
                return true;
        }
        return false;
}

/* Built as for users, or quickly where the caller has said so. */
static void check_variant(const char *name, const char *dtype, int opt, double tolerance)
{
        Family f = family_read(data_at("families/%s", name));
        BuildOptions o = options(&f, dtype, opt);
        char what[32];
        Trial r;
        bool own = take_all_experts(&f, &o, name);
        snprintf(what, sizeof what, "%s -O%d", dtype, opt);
        run_open(&r, o, f.dir);
        check_score(&r, &f, tolerance, what);
        check_path(&r, &f, tolerance);
        run_end(&r);
        if (own)
                free((void *)f.want.u.f32);
        npy_close(&f.want);
}

#define FAMILY(name)                 \
        TEST_DATA (name) {           \
                check_family(#name); \
        }
#include "families.def"

/* Storage of 8 or 11 bits of precision moves logits by a few hundredths of the largest. */
TEST (gpt2_O0) {
        setenv("TGC_CFLAGS", "-O0 -DTGC_CALLS", 1);
        check_variant("gpt2", "f32", 0, 1e-4);
}
TEST (gpt2_f16) {
        unsetenv("TGC_CFLAGS");
        check_variant("gpt2", "f16", 3, 5e-2);
}
TEST (llama_bf16) {
        unsetenv("TGC_CFLAGS");
        check_variant("llama", "bf16", 3, 5e-2);
}
TEST (mixtral_O0) {
        setenv("TGC_CFLAGS", "-O0 -DTGC_CALLS", 1);
        check_variant("mixtral", "f32", 0, 1e-4);
}
TEST (mixtral_bf16) {
        setenv("TGC_CFLAGS", "-O0 -DTGC_CALLS", 1);
        check_variant("mixtral", "bf16", 3, 5e-2);
}

/* Gates that are computed of what top-k gives and of a parameter. */
TEST (deepseek_v3_bf16) {
        setenv("TGC_CFLAGS", "-O0 -DTGC_CALLS", 1);
        check_variant("deepseek_v3", "bf16", 3, 5e-2);
}
TEST (deepseek_v3_f16) {
        setenv("TGC_CFLAGS", "-O0 -DTGC_CALLS", 1);
        check_variant("deepseek_v3", "f16", 3, 5e-2);
}

/* For the table of docs/families.md: every family in bfloat16, or one. */
TEST (families_bf16) {
        static const char *const name[] = {
#define FAMILY(n) #n,
#include "families.def"
        };
        const char *which = getenv("TGC_TEST_BF16");
        if (!which)
                SKIP("takes a minute; TGC_TEST_BF16=all runs it, or the name of a family");
        setenv("TGC_CFLAGS", "-O0 -DTGC_CALLS", 1);
        for (size_t i = 0; i < sizeof name / sizeof *name; i++)
                if (!strcmp(which, "all") || !strcmp(which, name[i]))
                        check_variant(name[i], "bf16", 3, 5e-2);
}

/* Every family in every variant takes minutes of compiling. */
TEST (all_variants) {
        static const char *const name[] = {
#define FAMILY(n) #n,
#include "families.def"
        };
        if (!getenv("TGC_TEST_ALL"))
                SKIP("takes minutes; TGC_TEST_ALL=1 runs it");
        unsetenv("TGC_CFLAGS");
        for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
                for (int opt = 0; opt < 3; opt++)
                        check_variant(name[i], "f32", opt, 1e-4);
                check_variant(name[i], "bf16", 3, 5e-2);
                check_variant(name[i], "f16", 3, 5e-2);
        }
}

TEST_MAIN
