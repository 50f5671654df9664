/* test_infer_vectors.c: single blocks and a small GPT against tensors that PyTorch gave: inputs,
 * weights and outputs in float32.
 *
 * The weights go the usual way, through a safetensors file and the model's map. */
#include "e2e/infer/run.h"
#include "vectors.h"

#define CHECKPOINT "build/infer_vectors.safetensors"

enum { MAX_TENSORS = 64 };

/* A checkpoint being put together. */
typedef struct Tensors {
        int n;
        char name[MAX_TENSORS][80];
        int dim[MAX_TENSORS][2];
        float *v[MAX_TENSORS];
} Tensors;

static size_t count(const Tensors *t, int i)
{
        return (size_t)t->dim[i][0] * (size_t)(t->dim[i][1] ? t->dim[i][1] : 1);
}

/* cols 0: a vector.  v is taken over. */
static void add(Tensors *t, const char *name, int rows, int cols, float *v)
{
        CHECK(t->n < MAX_TENSORS);
        snprintf(t->name[t->n], sizeof *t->name, "%s", name);
        t->dim[t->n][0] = rows;
        t->dim[t->n][1] = cols;
        t->v[t->n++] = v;
}

static void add_vector(Tensors *t, const char *name, int rows, int cols, const char *vector)
{
        add(t, name, rows, cols, vector_of(vector, (size_t)rows * (size_t)(cols ? cols : 1)));
}

static void write_checkpoint(Tensors *t)
{
        char head[16384];
        size_t at = 0;
        int n = snprintf(head, sizeof head, "{");
        for (int i = 0; i < t->n; i++) {
                char cols[16] = "";
                if (t->dim[i][1])
                        snprintf(cols, sizeof cols, ",%d", t->dim[i][1]);
                n += snprintf(head + n, sizeof head - (size_t)n,
                              "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d%s],\"data_offsets\":"
                              "[%zu,%zu]}",
                              i ? "," : "", t->name[i], t->dim[i][0], cols, at,
                              at + count(t, i) * 4);
                at += count(t, i) * 4;
        }
        n += snprintf(head + n, sizeof head - (size_t)n, "}");
        while (n % 8)
                head[n++] = ' ';
        FILE *f = fopen(CHECKPOINT, "wb");
        CHECK(f);
        uint64_t size = (uint64_t)n;
        fwrite(&size, 8, 1, f);
        fwrite(head, 1, (size_t)n, f);
        for (int i = 0; i < t->n; i++) {
                fwrite(t->v[i], 4, count(t, i), f);
                free(t->v[i]);
        }
        CHECK(!fclose(f));
}

/* define: what and sizes, "what=mlp". */
static void open_block(Trial *r, Tensors *t, const char *what, int opt, const char **more,
                       int n_more)
{
        char first[64];
        const char *define[16] = { first };
        snprintf(first, sizeof first, "what=%s", what);
        for (int i = 0; i < n_more; i++)
                define[i + 1] = more[i];
        write_checkpoint(t);
        run_open(r,
                 (BuildOptions) { .kind = MODEL_LUA,
                                  .model = "tests/e2e/infer/vectors.lua",
                                  .opt = opt,
                                  .batch = 1,
                                  .define = define,
                                  .n_define = n_more + 1 },
                 CHECKPOINT);
        remove(CHECKPOINT);
}

/* n rows of output from the tokens first.. of the tables against want. */
static void check_rows(Trial *r, const char *what, int first, int skip, int n, const float *want)
{
        int ids[64];
        for (int i = 0; i < skip + n; i++)
                ids[i] = first + i;
        float *got = run_score(r, ids, skip + n, NULL);
        double d = worst(got + (size_t)skip * r->vocab, want, (size_t)n * r->vocab);
        free(got);
        NOTE("%s: %.2e", what, d);
        CHECK_MSG(d <= 1e-5, "%s: differs by %.3g", what, d);
}

/* ---- blocks: x (2,3,4), each of the two sequences by itself ---- */

typedef struct Piece {
        const char *name, *file;
        int rows, cols;
} Piece;

static void check_block(const char *what, const char *test, const Piece *part, int n)
{
        static const char *const sizes[] = { "rows=3" };
        char path[256];
        for (int i = 0; i < 4; i++) {
                int opt = i & 1 ? 3 : 0, at = i / 2 * 12;
                Tensors t = { 0 };
                Trial r;
                snprintf(path, sizeof path, "%s_input", test);
                float *x = vector_of(path, 24);
                memmove(x, x + at, 12 * sizeof *x);
                add(&t, "x", 3, 4, x);
                for (int k = 0; k < n; k++) {
                        snprintf(path, sizeof path, "%s_%s", test, part[k].file);
                        add_vector(&t, part[k].name, part[k].rows, part[k].cols, path);
                }
                open_block(&r, &t, what, opt, (const char **)sizes, 1);
                snprintf(path, sizeof path, "%s_output", test);
                float *want = vector_of(path, 24);
                check_rows(&r, what, 0, 0, 3, want + at);
                free(want);
                run_end(&r);
        }
}
#define CHECK_BLOCK(what, test, part) \
        check_block(what, test, part, (int)(sizeof part / sizeof *part))

TEST_DATA (layernorm) {
        static const Piece part[] = { { "ln1.weight", "gamma", 4, 0 },
                                      { "ln1.bias", "beta", 4, 0 } };
        CHECK_BLOCK("layernorm", "layernorm_test", part);
}

TEST_DATA (mlp) {
        static const Piece part[] = { { "linear1.weight", "linear1_weight", 8, 4 },
                                      { "linear1.bias", "linear1_bias", 8, 0 },
                                      { "linear2.weight", "linear2_weight", 4, 8 },
                                      { "linear2.bias", "linear2_bias", 4, 0 } };
        CHECK_BLOCK("mlp", "mlp_test", part);
}

TEST_DATA (mhsa) {
        static const Piece part[] = { { "w_q.weight", "w_q", 4, 4 },
                                      { "w_k.weight", "w_k", 4, 4 },
                                      { "w_v.weight", "w_v", 4, 4 },
                                      { "w_o.weight", "w_o", 4, 4 },
                                      { "w_o.bias", "w_o_bias", 4, 0 } };
        CHECK_BLOCK("mhsa", "mhsa_test", part);
}

TEST_DATA (transformer_block) {
        static const Piece part[] = {
                { "ln1.weight", "ln1_gamma", 4, 0 },   { "ln1.bias", "ln1_beta", 4, 0 },
                { "ln2.weight", "ln2_gamma", 4, 0 },   { "ln2.bias", "ln2_beta", 4, 0 },
                { "w_q.weight", "mhsa_w_q", 4, 4 },    { "w_k.weight", "mhsa_w_k", 4, 4 },
                { "w_v.weight", "mhsa_w_v", 4, 4 },    { "w_o.weight", "mhsa_w_o", 4, 4 },
                { "w_o.bias", "mhsa_w_o_bias", 4, 0 }, { "linear1.weight", "mlp_w1", 8, 4 },
                { "linear1.bias", "mlp_b1", 8, 0 },    { "linear2.weight", "mlp_w2", 4, 8 },
                { "linear2.bias", "mlp_b2", 4, 0 }
        };
        CHECK_BLOCK("block", "transformer_block_test", part);
}

static void check_gpt(const char *test, const int *ids, int n)
{
        static const Piece part[] = { { "ln1.weight", "ln1_gamma", 4, 0 },
                                      { "ln1.bias", "ln1_beta", 4, 0 },
                                      { "ln2.weight", "ln2_gamma", 4, 0 },
                                      { "ln2.bias", "ln2_beta", 4, 0 },
                                      { "attention.w_q.weight", "mhsa_w_q", 4, 4 },
                                      { "attention.w_k.weight", "mhsa_w_k", 4, 4 },
                                      { "attention.w_v.weight", "mhsa_w_v", 4, 4 },
                                      { "attention.w_o.weight", "mhsa_w_o", 4, 4 },
                                      { "attention.w_o.bias", "mhsa_w_o_bias", 4, 0 },
                                      { "mlp.linear1.weight", "mlp_w1", 8, 4 },
                                      { "mlp.linear1.bias", "mlp_b1", 8, 0 },
                                      { "mlp.linear2.weight", "mlp_w2", 4, 8 },
                                      { "mlp.linear2.bias", "mlp_b2", 4, 0 } };
        static const Piece whole[] = { { "token_embedding.weight", "token_embedding", 10, 4 },
                                       { "pos_embedding.pos_embedding.weight", "pos_embedding", 5,
                                         4 },
                                       { "ln_f.weight", "final_ln_gamma", 4, 0 },
                                       { "ln_f.bias", "final_ln_beta", 4, 0 },
                                       { "lm_head.weight", "lm_head_weight", 10, 4 } };
        const char *define[] = { "vocab=10", "ctx=5",  "n_layer=2", "n_head=2",
                                 "n_embd=4", "n_ff=8", "tied=false" };
        char path[256], name[80];
        Tensors t = { 0 };
        Trial r;
        for (int l = 0; l < 2; l++)
                for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
                        snprintf(path, sizeof path, "%s_layer_%d_%s", test, l, part[i].file);
                        snprintf(name, sizeof name, "blocks.%d.%s", l, part[i].name);
                        add_vector(&t, name, part[i].rows, part[i].cols, path);
                }
        for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
                snprintf(path, sizeof path, "%s_%s", test, whole[i].file);
                add_vector(&t, whole[i].name, whole[i].rows, whole[i].cols, path);
        }
        write_checkpoint(&t);
        run_open(&r,
                 (BuildOptions) { .kind = MODEL_LUA,
                                  .model = "models/lhk_gpt.lua",
                                  .opt = 3,
                                  .batch = 1,
                                  .define = define,
                                  .n_define = sizeof define / sizeof *define },
                 CHECKPOINT);
        remove(CHECKPOINT);
        snprintf(path, sizeof path, "%s_logits", test);
        float *want = vector_of(path, (size_t)n * 10), *got = run_score(&r, ids, n, NULL);
        double d = worst(got, want, (size_t)n * 10);
        NOTE("%s: %.2e", test, d);
        CHECK_MSG(d <= 1e-5, "%s: logits differ by %.3g", test, d);
        free(want);
        free(got);
        run_end(&r);
}

TEST_DATA (gpt_forward_single_token) {
        check_gpt("gpt_forward_single_token_test", (int[]) { 3 }, 1);
}
TEST_DATA (gpt_forward_multi_token) {
        check_gpt("gpt_forward_multi_token_test", (int[]) { 1, 4, 2, 7 }, 4);
}

TEST_DATA (rope) {
        enum { B = 4, N = 12, D = 64 };
        static const char *const sizes[] = { "rows=48", "width=64", "ctx=16" };
        Tensors t = { 0 };
        Trial r;
        add_vector(&t, "x", B * N, D, "rope_x");
        open_block(&r, &t, "rope", 3, (const char **)sizes, 3);
        float *want = vector_of("rope_out", B * N * D);
        for (int b = 0; b < B; b++)
                check_rows(&r, "rope", b * N, 0, N, want + (size_t)b * N * D);
        free(want);
        run_end(&r);
}

TEST_MAIN
