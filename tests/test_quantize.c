/* test_quantize.c: float32 to blocks: bytes of the package gguf, errors of what is searched,
 * importance; GGUF files written; importance matrices read. */
#include <math.h>
#include "../cli/quantize/imatrix.h"
#include "../cli/quantize/mixtures.h"
#include "../runtime/weights/block_encode.h"
#include "../runtime/weights/gguf_out.h"
#include "files_test.h"

static uint64_t fnv(const uint8_t *p, size_t n)
{
        uint64_t h = 0xcbf29ce484222325u;
        for (size_t i = 0; i < n; i++)
                h = (h ^ p[i]) * 0x100000001b3u;
        return h;
}

/* 640 blocks of 32, exact in float32: of 40 scales, one of zeros. */
enum { N = 32 * 640 };
static void fill(float *x)
{
        for (uint64_t i = 0; i < N; i++) {
                const double v = (double)((i * 2654435761u & 0xffffffffu) >> 8) / 16777216.0 - 0.5;
                x[i] = i / 32 == 7 ? 0 : (float)ldexp(v, (int)(i / 32 % 40) - 28);
        }
}

/* What gguf.quants.quantize of gguf 0.19 makes of them. */
TEST (bytes_are_those_of_gguf) {
        static const struct {
                int type;
                uint64_t hash;
        } want[] = {
                { CK_Q4_0, 0x0608fc0d9c1ee3ecu }, { CK_Q4_1, 0xf52eeb9b7b89efbcu },
                { CK_Q5_0, 0x749427622341d9f4u }, { CK_Q5_1, 0xe2728e8a759fe4ebu },
                { CK_Q8_0, 0x7d385212dcbb482bu }, { CK_MXFP4, 0x2801090f64f0bd92u },
        };
        static float x[N];
        static uint8_t out[N / 32 * 34];
        fill(x);
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
                const size_t bytes = N / 32 * ck_block_bytes(want[i].type);
                CHECK(ck_encode(out, want[i].type, x, N / 256, 256, NULL));
                CHECK_MSG(fnv(out, bytes) == want[i].hash, "%s: other bytes",
                          ck_dtype_name(want[i].type));
        }
}

/* Finite, centred, as wide as asked for, and the same whoever makes a part of them. */
TEST (random_blocks) {
        for (int t = 0; t < CK_N_DTYPES; t++) {
                enum { BLOCKS = 512, HALF = 200 };
                static uint8_t all[BLOCKS * 512], part[BLOCKS * 512];
                static float y[BLOCKS * 256];
                const int values = ck_block_values(t);
                const size_t bytes = ck_block_bytes(t);
                if (values == 1 || !ck_dtype_is_float(t))
                        continue;
                for (int k = 0; k < 2; k++) {
                        const float std = k ? 0.02f : 0.5f;
                        double sum = 0, squares = 0;
                        ck_random_blocks(all, t, 7, BLOCKS, std, 42);
                        ck_random_blocks(part, t, 7, HALF, std, 42);
                        ck_random_blocks(part + HALF * bytes, t, 7 + HALF, BLOCKS - HALF, std, 42);
                        CHECK(!memcmp(all, part, BLOCKS * bytes));
                        ck_decode(y, all, t, BLOCKS);
                        for (int i = 0; i < BLOCKS * values; i++) {
                                sum += y[i];
                                squares += (double)y[i] * y[i];
                        }
                        const double n = BLOCKS * values, width = sqrt(squares / n) / std;
                        CHECK_MSG(width > 0.7 && width < 1.5, "%s: %g times as wide as asked for",
                                  ck_dtype_name(t), width);
                        CHECK_MSG(fabs(sum / n) < 0.15 * std, "%s: mean %g", ck_dtype_name(t),
                                  sum / n);
                }
        }
}

/* A parameter of ours gets what the tensor of a file with that role does. */
TEST (mixtures_of_our_names) {
        static const char *const names[][2] = {
                { "output.weight", "logits.weight" },
                { "token_embd.weight", "embed.weight" },
                { "token_embd.weight", "wte.weight" },
                { "blk.7.attn_v.weight", "blk7.attn.v.weight" },
                { "blk.6.attn_output.weight", "blk6.attn.out.weight" },
                { "blk.1.ffn_down.weight", "blk1.mlp.down.weight" },
                { "blk.5.attn_q.weight", "blk5.attn.q.weight" },
                { "blk.5.attn_norm.weight", "blk5.attn.norm.weight" },
        };
        const MixtureModel m = { .n_layers = 8, .grouped = true };
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                for (int k = 0; k < 2; k++) {
                        const int mixture = mixture_find(k ? "q4_k_m" : "iq4_xs");
                        CHECK(mixture_type_of(mixture, &m, names[i][0], 2, 512) ==
                              mixture_type_of(mixture, &m, names[i][1], 2, 512));
                }
        const int q4_k_m = mixture_find("q4_k_m");
        CHECK(mixture_type_of(q4_k_m, &m, "blk7.attn.v.weight", 2, 512) == CK_Q6_K);
        CHECK(mixture_type_of(q4_k_m, &m, "blk5.attn.v.weight", 2, 512) == CK_Q4_K);
        CHECK(mixture_type_of(q4_k_m, &m, "blk5.attn.q.weight", 2, 96) == CK_Q5_0);
        CHECK(mixture_type_of(q4_k_m, &m, "logits.weight", 2, 512) == CK_Q6_K);
        CHECK(mixture_type_of(q4_k_m, &m, "blk5.mlp.router.weight", 2, 512) == -1);
        CHECK(mixture_type_of(q4_k_m, &m, "positions.weight", 2, 512) == -1);
}

/* Sums of four uniform numbers, which are nearly normal. */
static void fill_normal(float *x, int n)
{
        for (int i = 0; i < n; i++) {
                float sum = 0;
                for (int k = 0; k < 4; k++)
                        sum += (float)random_u() / 2147483648.0f - 0.5f;
                x[i] = sum;
        }
}

/* sqrt(sum w (y-x)^2 / sum w x^2) of x encoded and decoded. */
static double error_of(int type, const float *x, int rows, int cols, const float *importance,
                       const float *w)
{
        uint8_t *blocks = malloc((size_t)rows * (size_t)cols * 2);
        float *y = malloc((size_t)rows * (size_t)cols * sizeof *y);
        double off = 0, all = 0;
        CHECK(ck_encode(blocks, type, x, rows, cols, importance));
        CHECK(ck_convert(y, CK_F32, blocks, type, (size_t)rows * (size_t)cols, 1));
        for (int i = 0; i < rows * cols; i++) {
                const double d = y[i] - x[i], by = w ? w[i % cols] : 1;
                off += by * d * d;
                all += by * x[i] * x[i];
        }
        free(blocks);
        free(y);
        return sqrt(off / all);
}

static const struct {
        int type;
        double most; /* of nearly normal values */
} searched[] = {
        { CK_Q2_K, 0.265 }, { CK_Q3_K, 0.145 },   { CK_Q4_K, 0.070 },   { CK_Q5_K, 0.035 },
        { CK_Q6_K, 0.017 }, { CK_IQ4_NL, 0.075 }, { CK_IQ4_XS, 0.076 },
};

TEST (errors_of_searched_types) {
        static float x[64 * 512];
        fill_normal(x, 64 * 512);
        for (size_t i = 0; i < sizeof searched / sizeof *searched; i++) {
                const double e = error_of(searched[i].type, x, 64, 512, NULL, NULL);
                CHECK_MSG(e < searched[i].most, "%s: %g", ck_dtype_name(searched[i].type), e);
        }
}

/* Columns that matter come out better; of all types but those that have one way. */
TEST (importance) {
        static const int types[] = { CK_Q4_0, CK_Q4_1, CK_Q5_0,   CK_Q5_1,   CK_Q2_K, CK_Q3_K,
                                     CK_Q4_K, CK_Q5_K, CK_IQ4_NL, CK_IQ4_XS, CK_Q6_K };
        static float x[64 * 512], w[512];
        fill_normal(x, 64 * 512);
        for (int i = 0; i < 512; i++)
                w[i] = i % 7 ? 0.01f : 10;
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
                const double with = error_of(types[i], x, 64, 512, w, w),
                             without = error_of(types[i], x, 64, 512, NULL, w);
                CHECK_MSG(with < without, "%s: %g with, %g without", ck_dtype_name(types[i]), with,
                          without);
        }
}

TEST (blocks_of_one_kind_of_value) {
        static const float value[] = { 0, 1, -1, 1e-30f, -3e4f, 6.1e-5f };
        float x[256];
        for (int t = 0; t < CK_N_DTYPES; t++)
                for (size_t v = 0; ck_can_encode(t) && v < sizeof value / sizeof *value; v++) {
                        uint8_t b[256 * 2];
                        float y[256];
                        for (int i = 0; i < 256; i++)
                                x[i] = value[v];
                        CHECK(ck_encode(b, t, x, 1, 256, NULL));
                        CHECK(ck_convert(y, CK_F32, b, t, 256, 1));
                        for (int i = 0; i < 256; i++)
                                CHECK_MSG(fabsf(y[i] - x[i]) <= 0.35f * fabsf(x[i]) + 1e-8f,
                                          "%s: %g becomes %g", ck_dtype_name(t), (double)x[i],
                                          (double)y[i]);
                }
}

/* A scale that is no half: not silently infinite. */
TEST (values_beyond_a_half) {
        float x[256] = { 0 };
        uint8_t b[512];
        x[3] = 3e38f;
        CHECK(!ck_encode(b, CK_Q8_0, x, 1, 256, NULL) && !ck_encode(b, CK_Q4_K, x, 1, 256, NULL));
}

TEST (a_file_written_is_the_file_read) {
        Gguf *a, *b;
        GgufOut *o;
        GgufKeys *set = gguf_keys_new();
        gguf_put_u32(set, "general.file_type", 7);
        CHECK_MSG(!gguf_open(&a, "tests/data/gguf/kinds.gguf", &err), "%s", err.msg);
        const int n = gguf_n_tensors(a);
        CkTensor *t = calloc((size_t)n, sizeof *t);
        for (int i = 0; i < n; i++)
                t[i] = *gguf_tensor(a, i);
        CHECK_MSG(!gguf_out_open(&o, tmp("x.gguf"), a, set, t, n, &err), "%s", err.msg);
        gguf_keys_free(set);
        for (int i = 0; i < n; i++)
                CHECK(!gguf_out_write(o, t[i].data, t[i].bytes, &err));
        CHECK_MSG(!gguf_out_commit(o, &err), "%s", err.msg);
        CHECK_MSG(!gguf_open(&b, tmp("x.gguf"), &err), "%s", err.msg);
        CHECK(gguf_n_tensors(b) == n);
        for (int i = 0; i < n; i++) {
                const CkTensor *x = gguf_find_tensor(b, t[i].name);
                CHECK(x && x->dtype == t[i].dtype && x->rank == t[i].rank &&
                      !memcmp(x->dim, t[i].dim, sizeof x->dim) && x->bytes == t[i].bytes &&
                      !memcmp(x->data, t[i].data, x->bytes));
        }
        for (int i = 0; i < gguf_n_keys(a); i++) {
                const GgufKey *k = gguf_key(a, i);
                const GgufValue *v = gguf_find(b, k->name);
                CHECK_MSG(v && v->type == k->value.type && v->n == k->value.n &&
                                  v->item == k->value.item,
                          "%s", k->name);
        }
        free(t);
        gguf_free(a);
        gguf_free(b);
        files_in_dir(true);
}

/* ---- importance matrices ---- */

typedef struct Dat {
        uint8_t b[400];
        size_t n;
} Dat;

static void i32(Dat *d, int32_t v)
{
        memcpy(d->b + d->n, &v, 4);
        d->n += 4;
}

static Dat dat(float third)
{
        Dat d = { .n = 0 };
        const float v[4] = { 2, 4, third, 8 };
        i32(&d, 1);
        i32(&d, 3);
        memcpy(d.b + d.n, "a.w", 3);
        d.n += 3;
        i32(&d, 2);
        i32(&d, 4);
        memcpy(d.b + d.n, v, 16);
        d.n += 16;
        return d;
}

static int open_dat(Imatrix **m, const Dat *d, size_t n)
{
        put(tmp("m.dat"), d->b, n);
        const int code = imatrix_open(m, tmp("m.dat"), &err);
        files_in_dir(true);
        return code;
}

TEST (importance_matrices) {
        Imatrix *m;
        const float *means;
        int64_t matrices;
        Dat d = dat(6);
        CHECK_MSG(!open_dat(&m, &d, d.n), "%s", err.msg);
        CHECK(imatrix_count(m) == 1 && !imatrix_find(m, "a.w", 4, &means, &matrices, &err));
        CHECK(matrices == 1 && means[0] == 1 && means[3] == 4);
        CHECK(!imatrix_find(m, "a.w", 2, &means, &matrices, &err) && matrices == 2);
        CHECK(!imatrix_find(m, "b.w", 2, &means, &matrices, &err) && !means);
        CHECK(imatrix_find(m, "a.w", 3, &means, &matrices, &err) == TGC_BAD_FILE &&
              strstr(err.msg, "4 means") && strstr(err.msg, "3 values"));
        imatrix_close(m);
        for (size_t n = 0; n < d.n; n++)
                CHECK_MSG(open_dat(&m, &d, n) == TGC_BAD_FILE && !m, "%zu bytes are accepted", n);
        d = dat(NAN);
        CHECK(open_dat(&m, &d, d.n) == TGC_BAD_FILE && strstr(err.msg, "mean 2 of 4"));
        d = dat(-1);
        CHECK(open_dat(&m, &d, d.n) == TGC_BAD_FILE);
}

TEST_MAIN
