/* test_checkpoints.c: safetensors, Hugging Face folders and shards, llama2.c's files. */
#include <math.h>
#include "../runtime/weights/checkpoint.h"
#include "../runtime/util/json.h"
#include "../runtime/weights/safetensors.h"
#include "files_test.h"

/* ---- safetensors ---- */

static unsigned char *st_bytes(const char *header, uint64_t n_header, size_t n_data, size_t *size)
{
        size_t n = strlen(header);
        /* exact, so that the sanitizer sees a step beyond */
        unsigned char *p = malloc(8 + n + n_data);

        for (int i = 0; i < 8; i++)
                p[i] = (unsigned char)(n_header >> 8 * i);
        memcpy(p + 8, header, n);
        for (size_t i = 0; i < n_data; i++)
                p[8 + n + i] = (unsigned char)i;
        *size = 8 + n + n_data;
        return p;
}

#define T(name, dtype, shape, a, b)                                                              \
        "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #a "," #b \
        "]}"

TEST (safetensors_good) {
        static const struct {
                const char *header;
                size_t data;
                int n;
        } good[] = {
                { "{}", 0, 0 },
                { "{\"__metadata__\":{}}  \n", 0, 0 },
                { "{" T("a", "F32", "[2]", 0, 8) "}", 8, 1 },
                { "{" T("b", "BF16", "[3,1]", 4, 10) "," T("a", "F32", "[]", 0, 4) "}", 10, 2 },
                { "{" T("e", "F32", "[0,5]", 0, 0) "," T("a", "I8", "[3]", 0,
                                                         3) "," T("z", "U8", "[7,0]", 3, 3) "}",
                  3, 3 },
                { "{ \"a\" : { \"shape\" : [ 1 , 2 ] , \"data_offsets\" : [ 0 , 2 ] , \"dtype\" : "
                  "\"BOOL\" } } ",
                  2, 1 },
                { "{" T("r", "U8", "[1,1,1,1,1,1,1,1]", 0, 1) "}", 1, 1 },
        };
        const char *escaped = "{\"__metadata__\":{\"k\\n\":\"\\u00e9\\ud83d\\ude00\"}," T(
                "a\\\"\\u0062", "F32", "[1]", 0, 4) "}";
        Safetensors st;
        size_t size;
        unsigned char *p;

        for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
                p = st_bytes(good[i].header, strlen(good[i].header), good[i].data, &size);
                CHECK_MSG(!safetensors_parse(&st, p, size, "x", &err), "%s", err.msg);
                CHECK(st.n_tensors == good[i].n);
                safetensors_free(&st);
                free(p);
        }
        p = st_bytes(escaped, strlen(escaped), 4, &size);
        CHECK_MSG(!safetensors_parse(&st, p, size, "x", &err), "%s", err.msg);
        CHECK(!strcmp(st.meta[0].key, "k\n") &&
              !strcmp(st.meta[0].value, "\xc3\xa9\xf0\x9f\x98\x80"));
        CHECK(!strcmp(st.tensor[0].name, "a\"b") && st.tensor[0].data == p + size - 4);
        safetensors_free(&st);
        free(p);
}

TEST (safetensors_bad) {
        static const struct {
                const char *header;
                size_t data;
                const char *says;
        } bad[] = {
                { "{", 0, "header does not begin" },
                { "[]", 0, "does not begin" },
                { " {}", 0, "does not begin" },
                { "{}x", 0, "after the header" },
                { "{,}", 0, "expected" },
                { "{" T("a", "F32", "[2]", 0, 8) ",}", 8, "expected" },
                { "{" T("a", "F32", "[2]", 0, 8) "," T("a", "F32", "[0]", 8, 8) "}", 8,
                  "given twice" },
                { "{" T("a", "F32", "[2]", 0, 8) "," T("\\u0061", "F32", "[0]", 8, 8) "}", 8,
                  "given twice" },
                { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "given twice" },
                { "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "given twice" },
                { "{\"__metadata__\":{\"a\":1}}", 0, "expected" },
                { "{" T("a", "F8_E5M2", "[2]", 0, 2) "}", 2, "F8_E5M2" },
                { "{" T("a", "F32", "[2]", 0, 8) "}", 7, "bytes 0 .. 8 of 7" },
                { "{" T("a", "F32", "[2]", 0, 8) "}", 9, "1 bytes after" },
                { "{" T("a", "F32", "[2]", 8, 0) "}", 8, "bytes 8 .. 0" },
                { "{" T("a", "F32", "[2]", 4, 12) "}", 12, "hole" },
                { "{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", 12,
                  "within another" },
                { "{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 0, 8) "}", 8,
                  "within another" },
                { "{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[1]", 12, 16) "}", 16, "hole" },
                { "{" T("a", "F32", "[3]", 0, 8) "}", 8, "F32[3] does not take 8" },
                { "{" T("a", "F32", "[4294967296,4294967296,4]", 0, 0) "}", 0, "does not take" },
                { "{" T("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, "does not take" },
                { "{" T("a", "F32", "[9223372036854775807]", 0, 0) "}", 0, "does not take" },
                { "{" T("a", "F32", "[18446744073709551617]", 0, 4) "}", 4, "too large" },
                { "{" T("a", "F32", "[1]", 0, 18446744073709551620) "}", 4, "too large" },
                { "{" T("a", "F32", "[-1]", 0, 4) "}", 4, "unsigned" },
                { "{" T("a", "F32", "[1.0]", 0, 4) "}", 4, "expected" },
                { "{" T("a", "F32", "[01]", 0, 4) "}", 4, "leading zero" },
                { "{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "8 dimensions" },
                { "{" T("a\\u0000b", "F32", "[1]", 0, 4) "}", 4, "NUL" },
                { "{" T("a\\nb", "F32", "[1]", 0, 4) "}", 4, "control" },
                { "{" T("a\nb", "F32", "[1]", 0, 4) "}", 4, "control" },
                { "{" T("a\xff", "F32", "[1]", 0, 4) "}", 4, "UTF-8" },
                { "{" T("a\\ud800", "F32", "[1]", 0, 4) "}", 4, "surrogate" },
                { "{" T("a\\x", "F32", "[1]", 0, 4) "}", 4, "escape" },
                { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "without" },
                { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,"
                  "4]}}",
                  4, "twice" },
                { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
                  "other than" },
                { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4,
                  "expected" },
                { "{\"a\":[[[[[[[[", 4, "expected" },
                { "{\"a", 4, "without end" },
        };
        static const uint64_t length[] = { 3, 100000001, 1ull << 63, ~0ull, ~0ull - 7, 1, 0 };
        Safetensors st;
        size_t size;
        unsigned char *p;

        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                p = st_bytes(bad[i].header, strlen(bad[i].header), bad[i].data, &size);
                CHECK_MSG(safetensors_parse(&st, p, size, "file.st", &err) == TGC_BAD_FILE,
                          "accepted %s", bad[i].header);
                CHECK_MSG(strstr(err.msg, bad[i].says) && strstr(err.msg, "file.st"), "%s: %s",
                          bad[i].header, err.msg);
                free(p);
        }
        for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
                p = st_bytes("{}", length[i], 0, &size);
                CHECK(safetensors_parse(&st, p, size, "x", &err) == TGC_BAD_FILE);
                CHECK(!safetensors_probe(p, size));
                free(p);
        }
        for (size_t n = 0; n < 8; n++) {
                p = malloc(n + !n);
                memset(p, 0, n);
                CHECK(safetensors_parse(&st, p, n, "x", &err) == TGC_BAD_FILE &&
                      !safetensors_probe(p, n));
                free(p);
        }
}

/* A real file: each prefix is refused, damage never crashes. */
TEST_DATA (safetensors_damaged) {
        FileMap m;
        Safetensors st;
        int accepted = 0;

        CHECK(!file_map(&m, data_at("training/llama_accum2/init/model.safetensors"), &err));
        for (size_t n = 0; n < m.size; n += n < 5000 ? 7 : 9973) {
                unsigned char *p = malloc(n + 1);
                memcpy(p, m.data, n);
                p = realloc(p, n + !n);
                CHECK(safetensors_parse(&st, p, n, "x", &err) == TGC_BAD_FILE);
                free(p);
        }
        for (int i = 0; i < 3000; i++) {
                unsigned char *p = malloc(m.size);
                memcpy(p, m.data, m.size);
                for (unsigned k = 0; k <= random_u() % 3; k++)
                        p[random_u() % 2500] =
                                i % 2 ? (unsigned char)random_u()
                                      : (unsigned char)"0123456789{}[],:\"\\ex "[random_u() % 20];
                if (!safetensors_parse(&st, p, m.size, "x", &err)) {
                        accepted++; /* a letter of a name changed */
                        safetensors_free(&st);
                }
                free(p);
        }
        CHECK(accepted > 0 && accepted < 2500);
        file_unmap(&m);
}

TEST (safetensors_writer) {
        const char *a = tmp("a.safetensors"), *b = tmp("b.safetensors");
        CkTensor t[] = {
                { .name = "z", .dtype = CK_F32, .rank = 2, .dim = { 3, 5 } },
                { .name = "h\"\\", .dtype = CK_BF16, .rank = 1, .dim = { 3 } },
                { .name = "a", .dtype = CK_F32, .rank = 0 },
                { .name = "odd", .dtype = CK_U8, .rank = 1, .dim = { 5 } },
                { .name = "wide", .dtype = CK_F64, .rank = 2, .dim = { 0, 4 } },
        };
        StMeta meta[] = { { "format", "pt" }, { "note", "caf\xc3\xa9 \"x\"\n" } };
        char data[96];
        SafetensorsOut *o;
        Checkpoint *ck;
        FileMap m;

        for (int i = 0; i < 96; i++)
                data[i] = (char)i;
        for (int round = 0; round < 2; round++) {
                size_t at = 0;
                CHECK_MSG(!safetensors_out_open(&o, round ? b : a, t, 5, meta, 2, &err), "%s",
                          err.msg);
                for (int i = 0; i < 5; i++) {
                        const CkTensor *x = &t[safetensors_out_order(o)[i]];
                        int64_t n;
                        CHECK(ck_count(x->rank, x->dim, &n));
                        CHECK(!safetensors_out_write(o, data + at,
                                                     (size_t)n * ck_dtype_size(x->dtype), &err));
                        at += (size_t)n * ck_dtype_size(x->dtype);
                }
                CHECK(safetensors_out_write(o, data, 1, &err) == TGC_FAIL);
                CHECK_MSG(!safetensors_out_commit(o, &err), "%s", err.msg);
        }
        CHECK(!file_map(&m, a, &err) && holds(b, m.data, m.size));
        CHECK(((const unsigned char *)m.data)[0] % 8 == 0);
        file_unmap(&m);
        CHECK_MSG(!checkpoint_open(&ck, a, &err), "%s", err.msg);
        CHECK(checkpoint_count(ck) == 5 && !strcmp(checkpoint_meta(ck, "note"), meta[1].value));
        for (int i = 0; i < 5; i++) {
                const CkTensor *x = checkpoint_find(ck, t[i].name);
                CHECK(x && x->dtype == t[i].dtype && x->rank == t[i].rank);
                CHECK(!memcmp(x->dim, t[i].dim, sizeof *x->dim * (size_t)x->rank));
                CHECK((uintptr_t)x->data % ck_dtype_size(x->dtype) == 0);
        }
        CHECK(!memcmp(checkpoint_find(ck, "a")->data, data, 4));
        CHECK(!memcmp(checkpoint_find(ck, "z")->data, data + 4, 60));
        checkpoint_close(ck);

        CHECK(!safetensors_out_open(&o, a, t, 5, 0, 0, &err));
        CHECK(safetensors_out_commit(o, &err) == TGC_FAIL && strstr(err.msg, "missing"));
        CHECK(!checkpoint_open(&ck, a, &err)); /* the old one stands */
        checkpoint_close(ck);
        t[0].name = "a";
        CHECK(safetensors_out_open(&o, a, t, 5, 0, 0, &err) == TGC_FAIL &&
              strstr(err.msg, "twice"));
        t[0].name = "\xff";
        CHECK(safetensors_out_open(&o, a, t, 5, 0, 0, &err) == TGC_FAIL);
        t[0].name = "line\n";
        CHECK(safetensors_out_open(&o, a, t, 5, 0, 0, &err) == TGC_FAIL);
}

/* ---- checkpoints ---- */

static float at(const Checkpoint *ck, const char *name, size_t i)
{
        const CkTensor *t = checkpoint_find(ck, name);
        float v = NAN;

        if (t && t->dtype == CK_F32 && 4 * i < t->bytes)
                memcpy(&v, (const char *)t->data + 4 * i, 4);
        return v;
}

/* The figures that the model's source asserts in its own tests. */
TEST_SHARED(tinystories656k)
{
        static const struct {
                const char *name;
                size_t i;
                float v;
        } want[] = {
                { "model.embed_tokens.weight", 50, 0.14453125f }, /* by the metadata's alias */
                { "lm_head.weight", 50, 0.14453125f },
                { "model.layers.0.input_layernorm.weight", 10, 0.18652344f },
                { "model.layers.1.post_attention_layernorm.weight", 10, 0.32421875f },
                { "model.norm.weight", 100, 0.73046875f },
                { "model.layers.0.mlp.down_proj.weight", 100, -0.0625f },
                { "model.layers.0.mlp.up_proj.weight", 100, 1.46875f },
                { "model.layers.1.mlp.gate_proj.weight", 100, 0.296875f },
                { "model.layers.1.self_attn.q_proj.weight", 100, 0.032226563f },
                { "model.layers.1.self_attn.k_proj.weight", 100, -0.21386719f },
                { "model.layers.0.self_attn.v_proj.weight", 100, 0.041015625f },
                { "model.layers.0.self_attn.o_proj.weight", 100, 0.01965332f },
        };
        Checkpoint *ck;

        data_need(data_at("models/tinystories656k"));
        CHECK_MSG(!checkpoint_open(&ck, data_at("models/tinystories656k"), &err), "%s", err.msg);
        for (size_t i = 0; i < sizeof want / sizeof *want; i++)
                CHECK_MSG(at(ck, want[i].name, want[i].i) == want[i].v, "%s: %.9g, not %.9g",
                          want[i].name, at(ck, want[i].name, want[i].i), want[i].v);
        CHECK(!checkpoint_find(ck, "no.such") && !checkpoint_find(ck, "format"));
        checkpoint_close(ck);
}

TEST (alias_circle) {
        Checkpoint *ck;

        CHECK(!checkpoint_new(&ck, "x", &err) && !checkpoint_add_meta(ck, "a", "b", &err));
        CHECK(!checkpoint_add_meta(ck, "b", "a", &err) && !checkpoint_seal(ck, &err));
        CHECK(!checkpoint_find(ck, "a"));
        checkpoint_close(ck);
}

TEST_DATA (real_files) {
        static const char *const folder[] = {
#define FAMILY(name) #name,
#include "families.def"
                "../training/gpt2/init",
                "../training/llama_accum2/final",
                "../training/mixtral_aux/init",
        };
        Checkpoint *ck;
        char path[300], *text;

        for (size_t i = 0; i < sizeof folder / sizeof *folder; i++) {
                cJSON *json;

                snprintf(path, sizeof path, "%s", data_at("families/%s", folder[i]));
                data_need(path);
                CHECK_MSG(!checkpoint_open(&ck, path, &err), "%s", err.msg);
                CHECK(checkpoint_count(ck) > 10);
                for (int k = 1; k < checkpoint_count(ck); k++)
                        CHECK(strcmp(checkpoint_at(ck, k - 1)->name, checkpoint_at(ck, k)->name) <
                              0);
                checkpoint_close(ck);
                CHECK_MSG(!hf_config_read(path, &text, &err), "%s", err.msg);
                CHECK(!json_parse(&json, text, strlen(text), path, &err));
                CHECK(cJSON_GetNumberValue(cJSON_GetObjectItem(json, "vocab_size")) > 0);
                cJSON_Delete(json);
                free(text);
        }
        CHECK(!checkpoint_open(&ck, data_at("training/naive_postnorm/init.safetensors"), &err));
        checkpoint_close(ck);
}

/* ---- llama2.c ---- */

/* The same model in another version of the format. */
/* Version 1 of a file of version 0: norms first, behind a header of 256 bytes. */
static const char *write_version_1(const char *of)
{
        static char path[512];
        FileMap m;
        int c[7]; /* dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len */
        unsigned char head[256] = { '2', '4', 'k', 'a', 1 };
        CHECK(!file_map(&m, of, &err));
        memcpy(c, m.data, sizeof c);
        const size_t C = (size_t)c[0], L = (size_t)c[2], KD = C / (size_t)c[3] * (size_t)c[4],
                     F = L * C * (size_t)c[1];
        enum { TABLE, NORM_1, Q, K, V, O, NORM_2, W1, W2, W3, NORM, N_TENSORS };
        static const int first[] = { NORM_1, NORM_2, NORM },
                         rest[] = { TABLE, Q, K, V, O, W1, W2, W3 };
        const size_t n[N_TENSORS] = { (size_t)c[5] * C,
                                      L * C,
                                      L * C * C,
                                      L * C * KD,
                                      L * C * KD,
                                      L * C * C,
                                      L * C,
                                      F,
                                      F,
                                      F,
                                      C };
        const float *at[N_TENSORS] = { (const float *)(const void *)((const char *)m.data + 28) };
        for (int i = 1; i < N_TENSORS; i++)
                at[i] = at[i - 1] + n[i - 1];
        memcpy(head + 8, c, sizeof c);
        head[36] = 1; /* one table for both ends */
        snprintf(path, sizeof path, "%s", tmp("v1.bin"));
        FILE *f = fopen(path, "wb");
        CHECK(f && fwrite(head, 1, sizeof head, f) == sizeof head);
        for (int i = 0; i < 3; i++)
                CHECK(fwrite(at[first[i]], 4, n[first[i]], f) == n[first[i]]);
        for (int i = 0; i < 8; i++)
                CHECK(fwrite(at[rest[i]], 4, n[rest[i]], f) == n[rest[i]]);
        CHECK(!fclose(f));
        file_unmap(&m);
        return path;
}

static const char *llama2c_file(const char *version)
{
        if (data_is_own() && !strcmp(version, "_v1"))
                return write_version_1(llama2c_file(""));
        const char *name = data_is_own() ? "story" : "stories260K";
        return data_at("models/%s/%s%s.bin", name, name, version);
}

TEST_DATA (llama2c_versions) {
        Checkpoint *v0, *v1, *v2;
        Llama2cConfig c;
        const int L = data_is_own() ? 2 : 5;
        char name[40];

        CHECK(!llama2c_config(llama2c_file(""), &c, &err));
        if (data_is_own())
                CHECK(c.dim == 48 && c.hidden_dim == 128 && c.n_heads == 4 && c.n_kv_heads == 2 &&
                      c.seq_len == 256);
        else
                CHECK(c.dim == 64 && c.hidden_dim == 172 && c.n_heads == 8 && c.n_kv_heads == 4 &&
                      c.seq_len == 512);
        CHECK(c.vocab_size == 512 && c.n_layers == L && c.shared && c.version == 0);
        CHECK(!llama2c_config(llama2c_file("_q80_gs4"), &c, &err) && c.group == 4);
        CHECK(!checkpoint_open(&v0, llama2c_file(""), &err));
        CHECK(!checkpoint_open(&v1, llama2c_file("_v1"), &err));
        CHECK(!checkpoint_open(&v2, llama2c_file("_q80_gs4"), &err));
        CHECK(checkpoint_count(v0) == L * 9 + 2);
        CHECK(checkpoint_count(v1) == checkpoint_count(v0) &&
              checkpoint_count(v2) == checkpoint_count(v0));
        snprintf(name, sizeof name, "layers.%d.w2", L - 1);
        CHECK(checkpoint_find(v0, name)->dim[1] == c.hidden_dim && !checkpoint_find(v0, "wcls"));
        for (int i = 0; i < checkpoint_count(v0); i++) {
                const CkTensor *a = checkpoint_at(v0, i), *b = checkpoint_at(v1, i),
                               *q = checkpoint_at(v2, i);
                const float *x = a->data, *y = q->data;

                CHECK(!strcmp(a->name, b->name) && !strcmp(a->name, q->name));
                CHECK(a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes));
                /* error: half a step, 1/127 of the group's largest */
                for (size_t k = 0; k < a->bytes / 4; k += 4) {
                        float most = 0;
                        for (size_t j = k; j < k + 4; j++)
                                most = fmaxf(most, fabsf(x[j]));
                        for (size_t j = k; j < k + 4; j++)
                                CHECK(fabsf(x[j] - y[j]) <= most / 127 * 0.501f);
                }
        }
        checkpoint_close(v0);
        checkpoint_close(v1);
        checkpoint_close(v2);
}

TEST_DATA (llama2c_damaged) {
        static const char *const files[] = { "", "_v1", "_q80_gs4" };

        for (int f = 0; f < 3; f++) {
                unsigned char *p;
                Checkpoint *ck;
                FileMap m;

                CHECK(!file_map(&m, llama2c_file(files[f]), &err));
                p = malloc(m.size + 1);
                memcpy(p, m.data, m.size);
                for (int cut = -1; cut < 10; cut++) {
                        size_t n = cut < 0 ? m.size + 1 : m.size * (unsigned)cut / 10;
                        put(tmp("cut.bin"), p, n);
                        CHECK(checkpoint_open(&ck, tmp("cut.bin"), &err) == TGC_BAD_FILE);
                }
                for (int i = 0; i < 300; i++) { /* wild headers: int32 extremes and noise */
                        static const unsigned wild[] = { 0,          1,          0x7fffffff,
                                                         0x80000000, 0xffffffff, 1 << 24,
                                                         4096,       0x616b3432 };
                        unsigned v = i % 2 ? wild[random_u() % 8] : random_u() << 1;
                        memcpy(p, m.data, 300);
                        memcpy(p + random_u() % 11 * 4, &v, 4);
                        put(tmp("cut.bin"), p, 1000);
                        CHECK(checkpoint_open(&ck, tmp("cut.bin"), &err) == TGC_BAD_FILE);
                }
                free(p);
                file_unmap(&m);
        }
}

/* A version 2 file of random values: one layer, C 64, F 96, V 3, tied; scale number `bad` (-1:
 * none) of the embedding is a NaN. */
static void put_version_2(const char *path, int group, int bad)
{
        static const int head[] = { 0x616b3432, 2, 64, 96, 1, 2, 1, 3, 8 },
                         size[] = { 3 * 64,  64 * 64, 32 * 64, 32 * 64,
                                    64 * 64, 96 * 64, 64 * 96, 96 * 64 };
        unsigned char *file = calloc(1, 1 << 17), *p = file + 256;
        memcpy(file, head, sizeof head);
        file[36] = 1;
        memcpy(file + 37, &group, 4);
        p += 3 * 64 * 4; /* norms */
        for (int i = 0; i < 8; i++) {
                for (int k = 0; k < size[i]; k++)
                        *p++ = (unsigned char)random_u();
                for (int k = 0; k < size[i] / group; k++, p += 4) {
                        const float scale = !i && k == bad ? NAN
                                                           : (float)(random_u() % 2001) * .001f - 1;
                        memcpy(p, &scale, 4);
                }
        }
        put(path, file, (size_t)(p - file));
        free(file);
}

/* Version 2 gives blocks, the largest that hold whole groups of whole rows; else floats. */
TEST (llama2c_blocks) {
        static const struct {
                int group, embedding, down; /* tok_emb has rows of 64 values, w2 of 96 */
        } is[] = { { 32, CK_I8_32, CK_I8_32 }, { 64, CK_I8_64, CK_F32 }, { 16, CK_F32, CK_F32 } };
        for (int i = 0; i < 3; i++) {
                Checkpoint *ck;
                FileMap file;
                put_version_2(tmp("v2.bin"), is[i].group, -1);
                CHECK(llama2c_has_blocks(tmp("v2.bin")) == (i < 2));
                CHECK_MSG(!checkpoint_open(&ck, tmp("v2.bin"), &err), "%s", err.msg);
                const CkTensor *t = checkpoint_find(ck, "tok_emb");
                CHECK(t->dtype == is[i].embedding &&
                      checkpoint_find(ck, "layers.0.w2")->dtype == is[i].down);
                const int values = ck_block_values(t->dtype);
                CHECK(t->bytes == 192u / (unsigned)values * (values > 1 ? values + 4u : 4u));
                float v[192], scale;
                CHECK(ck_convert(v, CK_F32, t->data, t->dtype, 192, 1));
                CHECK(!file_map(&file, tmp("v2.bin"), &err));
                const signed char *q = (const signed char *)file.data + 256 + 3 * 64 * 4;
                for (int k = 0; k < 192; k++) {
                        memcpy(&scale, q + 192 + k / is[i].group * 4, 4);
                        CHECK(v[k] == (float)q[k] * scale);
                }
                file_unmap(&file);
                checkpoint_close(ck);
        }
        for (int i = 0; i < 3; i++) {
                Checkpoint *ck;
                put_version_2(tmp("v2.bin"), is[i].group, 1);
                CHECK(checkpoint_open(&ck, tmp("v2.bin"), &err) == TGC_BAD_FILE);
                CHECK_MSG(strstr(err.msg, "tok_emb: scale 1 is") && strstr(err.msg, "finite"), "%s",
                          err.msg);
        }
}

/* ---- shards ---- */

static void put_shard(const char *path, const char *x, const char *y)
{
        CkTensor t[2] = { { .name = x, .dtype = CK_F32, .rank = 1, .dim = { 2 } },
                          { .name = y, .dtype = CK_F32, .rank = 1, .dim = { 2 } } };
        float v[4] = { 1, 2, 3, 4 };
        SafetensorsOut *o;

        CHECK(!safetensors_out_open(&o, path, t, 2, 0, 0, &err) &&
              !safetensors_out_write(o, v, 16, &err));
        CHECK(!safetensors_out_commit(o, &err));
}

TEST (shards) {
        static const struct {
                const char *index, *says;
        } bad[] = {
                { "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\","
                  "\"c\":\"2.safetensors\"}}",
                  "not in the index" },
                { "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\","
                  "\"c\":\"2.safetensors\",\"d\":\"1.safetensors\"}}",
                  "no tensor d" },
                { "{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "not the name of a file" },
                { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "not the name of a file" },
                { "{\"weight_map\":{\"a\":7}}", "not the name of a file" },
                { "{\"weight_map\":{}}", "no tensors" },
                { "{\"weight_map\":[]}", "not an object" },
                { "{}", "no \"weight_map\"" },
                { "{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}}", "twice" },
                { "{\"weight_map\":{\"a\":\"3.safetensors\"}}", "3.safetensors" },
                { "{\"weight_map\":", "not valid JSON" },
        };
        const char *index =
                "{\"metadata\":{\"total_size\":32},\"weight_map\":{\"a\":\"1.safetensors\","
                "\"b\":\"1.safetensors\","
                "\"c\":\"2.safetensors\",\"d\":\"2.safetensors\"}}";
        char path[300];
        Checkpoint *ck;

        files_in_dir(true);
        CHECK(checkpoint_open(&ck, dir, &err) == TGC_BAD_FILE && strstr(err.msg, "neither"));
        snprintf(path, sizeof path, "%s", tmp("model.safetensors.index.json"));
        put_shard(tmp("1.safetensors"), "a", "b");
        put_shard(tmp("2.safetensors"), "c", "d");
        put(path, index, strlen(index));
        CHECK_MSG(!checkpoint_open(&ck, path, &err), "%s", err.msg);
        CHECK(checkpoint_count(ck) == 4 && at(ck, "d", 1) == 4);
        checkpoint_close(ck);
        CHECK_MSG(!checkpoint_open(&ck, dir, &err), "%s", err.msg);
        checkpoint_close(ck);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                int rc;
                put(path, bad[i].index, strlen(bad[i].index));
                rc = checkpoint_open(&ck, path, &err);
                CHECK_MSG((rc == TGC_BAD_FILE || rc == TGC_IO) && strstr(err.msg, bad[i].says),
                          "%s", err.msg);
        }
        put_shard(tmp("2.safetensors"), "a", "d");
        put(path, index, strlen(index));
        CHECK(checkpoint_open(&ck, path, &err) == TGC_BAD_FILE);
        put(tmp("x.pt"), "PK\3\4", 4);
        CHECK(checkpoint_open(&ck, tmp("x.pt"), &err) == TGC_BAD_FILE &&
              strstr(err.msg, "PyTorch"));
        put(tmp("x"), "hello", 5);
        CHECK(checkpoint_open(&ck, tmp("x"), &err) == TGC_BAD_FILE &&
              strstr(err.msg, "not a checkpoint"));
        CHECK(checkpoint_open(&ck, tmp("absent"), &err) == TGC_IO);
        files_in_dir(true);
}

TEST_MAIN
