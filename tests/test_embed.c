/* test_embed.c: encoders: vectors of texts, beside those of sentence-transformers (data/encoders,
 * made by data/make_encoders.py); what is refused. */
#include <math.h>
#include <sys/stat.h>
#include "cli_test.h"
#include "runtime/tgc.h"
#include "runtime/util/file.h"
#include "runtime/util/json.h"
#include "runtime/weights/npy.h"
#include "runtime/weights/sentence.h"

static const char *const folders[] = { "minilm", "plain", "roberta" };
enum { N_FOLDERS = sizeof folders / sizeof *folders, MOST = 16, WIDE = 24 };

static cJSON *expected(const char *folder)
{
        char path[300];
        cJSON *x;
        Err e;
        snprintf(path, sizeof path, "tests/data/encoders/%s/expected.json", folder);
        CHECK_MSG(!json_read(&x, path, 1 << 20, &e), "%s", e.msg);
        CHECK(cJSON_GetArraySize(x) > 5 && cJSON_GetArraySize(x) <= MOST);
        return x;
}

static const cJSON *get(const cJSON *o, const char *key)
{
        return cJSON_GetObjectItemCaseSensitive(o, key);
}

/* The largest difference of two vectors, over the largest value of the second. */
static double apart(const float *v, const cJSON *want)
{
        double worst = 0, most = 0;
        for (int i = 0; i < WIDE; i++) {
                const double w = cJSON_GetArrayItem(want, i)->valuedouble, d = fabs(v[i] - w);
                worst = d <= worst ? worst : d;
                most = fabs(w) > most ? fabs(w) : most;
        }
        return worst / most;
}

static Tgc *open_folder(const char *folder, const char *more, const char *device)
{
        char line[700], plan[300];
        Tgc *t;
        TgcError e;
        snprintf(plan, sizeof plan, "%s", scratch("encoder.plan"));
        snprintf(line, sizeof line, "compile tests/data/encoders/%s -q -o %s %s", folder, plan,
                 more);
        EXPECT(line, 0, "");
        CHECK_MSG(!tgc_open(&t, plan, &(TgcOptions) { .device = device, .threads = 1 }, &e), "%s",
                  e.message);
        return t;
}

/* Lines of numbers that are equal but for the last bits: a text's place in a call decides how C
 * kernels cut it. */
static void check_lines(const char *got, const char *want, int lines, const char *what)
{
        char *g = (char *)got, *w = (char *)want;
        for (int i = 0; i < lines * WIDE; i++) {
                const char *at = g;
                const double x = strtod(g, &g), y = strtod(w, &w);
                CHECK_MSG(g != at && fabs(x - y) < 2e-6, "%s: %g, not %g", what, x, y);
        }
        CHECK_MSG(!strcmp(g, "\n"), "%s: more than %d lines: %s", what, lines, g);
}

/* All texts in one call, then each alone; tolerance: of float32 3e-6 is measured, and the issue's
 * bound is 1e-4. */
static void compare(const char *folder, const char *more, const char *device, double tolerance)
{
        cJSON *x = expected(folder);
        Tgc *t = open_folder(folder, more, device);
        const int n = cJSON_GetArraySize(x);
        const char *text[MOST];
        size_t size[MOST];
        float v[MOST][WIDE], one[WIDE];
        TgcError e;
        CHECK(tgc_width(t) == WIDE);
        for (int i = 0; i < n; i++) {
                text[i] = get(cJSON_GetArrayItem(x, i), "text")->valuestring;
                size[i] = strlen(text[i]);
        }
        CHECK_MSG(!tgc_embed(t, text, size, n, v[0], &e), "%s", e.message);
        for (int i = 0; i < n; i++) {
                const cJSON *want = get(get(cJSON_GetArrayItem(x, i), "vectors"), "folder");
                CHECK_MSG(apart(v[i], want) < tolerance, "%s on %s, '%s': %.2g off", folder, device,
                          text[i], apart(v[i], want));
                CHECK_MSG(!tgc_embed(t, &text[i], &size[i], 1, one, &e), "%s", e.message);
                for (int c = 0; c < WIDE; c++)
                        CHECK_MSG(fabsf(one[c] - v[i][c]) < 2e-6f, "'%s' alone: %g, not %g",
                                  text[i], (double)one[c], (double)v[i][c]);
        }
        tgc_close(t);
        cJSON_Delete(x);
}

TEST (vectors_are_those_of_sentence_transformers) {
        for (int i = 0; i < N_FOLDERS; i++)
                compare(folders[i], "", "cpu", 1e-5);
}

/* 40 tokens a call: several calls, and texts that fill one. */
TEST (texts_of_several_calls) {
        compare("roberta", "--chunk-size 40 -O0", "cpu", 1e-5);
        compare("minilm", "-c 14 --chunk-size 14", "cpu", 1e-5);
}

TEST (vectors_emulated) {
        compare("minilm", "", "emulate", 1e-5);
        compare("roberta", "--chunk-size 45 -O1", "emulate", 1e-5);
}

/* ---- GGUF files: the folders' weights, vocabulary and pooling (data/make_gguf.py) ---- */

/* Texts of the folder's own vectors, made of length 1; what a file does not say, its user does. */
static void compare_file(const char *name, const char *more, const char *prompt)
{
        cJSON *x = expected(name);
        char line[700], plan[300], text[300];
        float v[WIDE];
        Tgc *t;
        TgcError e;
        snprintf(plan, sizeof plan, "%s", scratch("file.plan"));
        snprintf(line, sizeof line, "compile tests/data/gguf/%s.gguf -q -o %s %s", name, plan,
                 more);
        EXPECT(line, 0, "");
        CHECK_MSG(!tgc_open(&t, plan, &(TgcOptions) { .device = "cpu", .threads = 1 }, &e), "%s",
                  e.message);
        for (int i = 0; i < cJSON_GetArraySize(x); i++) {
                const cJSON *item = cJSON_GetArrayItem(x, i);
                cJSON *want = cJSON_Duplicate(get(get(item, "vectors"), "folder"), true), *c;
                double square = 0;
                const char *at = text;
                snprintf(text, sizeof text, "%s%s", prompt, get(item, "text")->valuestring);
                cJSON_ArrayForEach(c, want) square += c->valuedouble * c->valuedouble;
                cJSON_ArrayForEach(c, want) c->valuedouble /= sqrt(square);
                CHECK_MSG(!tgc_embed(t, &at, &(size_t) { strlen(text) }, 1, v, &e), "%s",
                          e.message);
                CHECK_MSG(apart(v, want) < 1e-5, "%s.gguf, '%s': %.2g off", name, text,
                          apart(v, want));
                cJSON_Delete(want);
        }
        tgc_close(t);
        cJSON_Delete(x);
}

TEST (vectors_of_gguf_files) {
        compare_file("minilm", "-c 14", "");
        compare_file("roberta", "", "quick: ");
        compare_file("nomic", "", "");
        compare_file("nomic", "-O0", "");
}

/* The folder of nomic.gguf, with a config.json of the published code's names. */
TEST (nomic_of_a_folder) {
        static const char config[] =
                "{\"model_type\": \"nomic_bert\", \"architectures\": [\"NomicBertModel\"], "
                "\"n_embd\": 24, \"n_layer\": 1, \"n_head\": 4, \"intermediate_size\": 16, "
                "\"n_positions\": 64, \"max_trained_positions\": 64, \"vocab_size\": 47, "
                "\"pad_vocab_size_multiple\": 16, \"activation_function\": \"swiglu\", "
                "\"layer_norm_epsilon\": 1e-12, \"rotary_emb_fraction\": 1.0, "
                "\"rotary_emb_interleaved\": false, \"rotary_scaling_factor\": null, "
                "\"qkv_proj_bias\": false, \"mlp_fc1_bias\": false, \"mlp_fc2_bias\": false, "
                "\"prenorm\": false, \"causal\": false%s}";
        static const struct {
                const char *more, *says;
        } cases[] = { { ", \"rotary_emb_base\": 1000", NULL },
                      { ", \"rope_parameters\": {\"rope_theta\": 1000.0}", NULL },
                      { "", "\"rotary_emb_base\": (absent) is needed" },
                      { ", \"rotary_emb_base\": 1000, \"moe_every_n_layers\": 2",
                        "\"moe_every_n_layers\": 2 is not supported for nomic_bert" },
                      { ", \"rotary_emb_base\": 1000, \"n_inner\": 16", "[512,24]" } };
        char line[900], folder[300], path[400], text[1200], want[sizeof r.out];
        EXPECT("embed tests/data/gguf/nomic.gguf --device cpu -q -p the~fox~runs", 0, "");
        snprintf(want, sizeof want, "%s", r.out);
        snprintf(line, sizeof line, "compile tests/data/gguf/nomic.gguf -q -o %s",
                 scratch("n.plan"));
        EXPECT(line, 0, "");
        snprintf(folder, sizeof folder, "%s", scratch("nomic"));
        snprintf(line, sizeof line, "export %s -q -o %s", scratch("n.plan"), folder);
        EXPECT(line, 0, "");
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                snprintf(path, sizeof path, "%s/config.json", folder);
                snprintf(text, sizeof text, config, cases[i].more);
                write_file(path, text);
                snprintf(line, sizeof line, "embed %s --device cpu -q -p the~fox~runs", folder);
                EXPECT(line, cases[i].says ? 3 : 0, cases[i].says ? cases[i].says : "");
                CHECK(cases[i].says || !strcmp(r.out, want));
        }
}

/* minilm.gguf with other bytes behind a key's name. */
static const char *changed(const char *key, const void *value, size_t n)
{
        static char path[300];
        char *data;
        size_t size, at = 0;
        Err e;
        FILE *f;
        CHECK_MSG(!file_read_text("tests/data/gguf/minilm.gguf", 1 << 20, &data, &size, &e), "%s",
                  e.msg);
        while (at + strlen(key) < size && memcmp(data + at, key, strlen(key)))
                at++;
        CHECK(at + strlen(key) + n < size);
        memcpy(data + at + strlen(key), value, n);
        snprintf(path, sizeof path, "%s", scratch("changed.gguf"));
        CHECK((f = fopen(path, "wb")) && fwrite(data, 1, size, f) == size && !fclose(f));
        free(data);
        return path;
}

TEST (what_gguf_files_of_encoders_may_say) {
        static const struct {
                const char *key;
                unsigned char value[8];
                size_t n;
                const char *says;
        } cases[] = {
                { "bert.pooling_type", { 4, 0, 0, 0, 4 }, 5, "bert.pooling_type is 4, which" },
                { "bert.pooling_type", { 6, 0, 0, 0, 0, 0, 0, 0 }, 8, "bert.pooling_type is 0" },
                { "bert.attention.causal",
                  { 7, 0, 0, 0, 1 },
                  5,
                  "bert.attention.causal: true is not supported for bert, only false is" },
                { "bert.attention.causa", "m", 1, "bert.attention.causal: is missing" },
                { "tokenizer.ggml.cls_token_id",
                  { 4, 0, 0, 0, 200, 0 },
                  6,
                  "cls_token_id is the id of none of the" },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                char line[400];
                snprintf(line, sizeof line, "compile %s -q -o /dev/null",
                         changed(cases[i].key, cases[i].value, cases[i].n));
                EXPECT(line, 3, cases[i].says);
        }
        EXPECT("quantize tests/data/encoders/minilm --type q8_0 -o /dev/null", 3, "not written");
}

/* The ids of a text; until the next run. */
static const char *ids_of(const char *model, const char *text)
{
        char line[400], from[300];
        write_file(scratch("text"), text);
        snprintf(from, sizeof from, "%s", scratch("text"));
        snprintf(line, sizeof line, "tokenize %s", model);
        input = from;
        EXPECT(line, 0, "");
        input = "/dev/null";
        return r.out;
}

/* A vocabulary with capital letters is of texts with capital letters. */
TEST (a_cased_vocabulary_of_gguf) {
        const char *path = changed("\xe2\x96\x81happ", "Y", 1);
        char cased[400], small[400];
        snprintf(cased, sizeof cased, "%s", ids_of(path, "happY"));
        snprintf(small, sizeof small, "%s", ids_of(path, "happy"));
        const char *want = ids_of("tests/data/gguf/minilm.gguf", "happY");
        CHECK_MSG(!strcmp(cased, want) && strcmp(small, want), "%s, %s, %s", cased, small, want);
}

/* A folder that `export` writes: pooling, length, prompt and vocabulary are the model's. */
TEST (exported_folders) {
        static const char *const from[] = { "encoders/minilm", "encoders/roberta",
                                            "gguf/minilm.gguf", "gguf/nomic.gguf" };
        for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
                static const char texts[] =
                        "--device cpu -q -p A~happy~dog~runs. -p unbelievable~Stra\xc3\x9f"
                        "e -p the~fox~jumps~over~the~dog~again~and~again~and~again~and~again~!";
                char line[900], plan[300], folder[300], want[sizeof r.out];
                snprintf(plan, sizeof plan, "%s", scratch("out.plan"));
                snprintf(folder, sizeof folder, "%s%zu", scratch("out_folder"), i);
                snprintf(line, sizeof line, "embed tests/data/%s %s", from[i], texts);
                EXPECT(line, 0, "");
                snprintf(want, sizeof want, "%s", r.out);
                snprintf(line, sizeof line, "compile tests/data/%s -q -o %s", from[i], plan);
                EXPECT(line, 0, "");
                snprintf(line, sizeof line, "export %s -o %s", plan, folder);
                EXPECT(line, 0, "written");
                CHECK(!strstr(r.err, "no tokenizer"));
                snprintf(line, sizeof line, "embed %s %s", folder, texts);
                EXPECT(line, 0, "");
                CHECK_MSG(!strcmp(r.out, want), "%s: other vectors", from[i]);
        }
}

TEST (vectors_of_16_bits) {
        compare("minilm", "--dtype bf16", "cpu", 3e-2);
        compare("plain", "--dtype f16", "cpu", 4e-3);
}

TEST (every_pooling) {
        cJSON *x = expected("minilm");
        for (int p = 0; p < N_POOLINGS; p++) {
                char line[400];
                cJSON *o;
                Err e;
                snprintf(line, sizeof line,
                         "embed tests/data/encoders/minilm --device cpu -q --json --pooling %s "
                         "--no-normalize -p A~happy~dog~runs. -p a",
                         pooling_name[p]);
                EXPECT(line, 0, "");
                CHECK_MSG(!json_parse(&o, r.out, strlen(r.out), "out", &e), "%s", e.msg);
                for (int i = 0; i < 2; i++) {
                        const cJSON *got = get(cJSON_GetArrayItem(get(o, "embeddings"), i),
                                               "embedding"),
                                    *want = get(get(cJSON_GetArrayItem(x, i), "vectors"),
                                                pooling_name[p]);
                        float v[WIDE];
                        for (int c = 0; c < WIDE; c++)
                                v[c] = (float)cJSON_GetArrayItem(got, c)->valuedouble;
                        CHECK_MSG(apart(v, want) < 1e-5, "%s: %.2g off", pooling_name[p],
                                  apart(v, want));
                }
                cJSON_Delete(o);
        }
        cJSON_Delete(x);
}

#define MINILM "embed tests/data/encoders/minilm --device cpu "

/* -p, --prompts, --file and standard input say the same; -o writes numpy's. */
TEST (texts_from_everywhere) {
        char line[700], want[sizeof r.out];
        float v[2][WIDE];
        Npy a;
        Err e;
        write_file(scratch("lines"), "A happy dog runs.\n\n{\"prompt\": \"a\"}\r\n");
        write_file(scratch("one"), "a\n");
        EXPECT(MINILM "-q -p A~happy~dog~runs. -p a", 0, "");
        snprintf(want, sizeof want, "%s", r.out);
        snprintf(line, sizeof line, MINILM "-q --prompts %s", scratch("lines"));
        EXPECT(line, 0, "");
        check_lines(r.out, want, 2, "--prompts");
        const char *second = strchr(want, '\n') + 1;
        snprintf(line, sizeof line, MINILM "-q --file %s", scratch("one"));
        EXPECT(line, 0, "");
        check_lines(r.out, second, 1, "--file");
        char from[300];
        snprintf(from, sizeof from, "%s", scratch("one"));
        input = from;
        EXPECT(MINILM "-q", 0, "");
        input = "/dev/null";
        check_lines(r.out, second, 1, "standard input");
        snprintf(line, sizeof line, MINILM "-p A~happy~dog~runs. -p a -o %s", scratch("v.npy"));
        EXPECT(line, 0, "");
        CHECK(!*r.out);
        CHECK_MSG(!npy_open(&a, scratch("v.npy"), &e), "%s", e.msg);
        CHECK(a.rank == 2 && a.dim[0] == 2 && a.dim[1] == WIDE);
        memcpy(v, a.u.f32, sizeof v);
        npy_close(&a);
        char *at = want;
        for (int i = 0; i < 2 * WIDE; i++)
                CHECK(fabsf(strtof(at, &at) - v[i / WIDE][i % WIDE]) < 2e-6f);
}

TEST (a_long_text_says_so) {
        EXPECT(MINILM "-p the~quick~brown~fox~jumps~over~the~lazy~dog~again~and~again~and~again", 0,
               "1 of 1 texts are longer than 14 tokens and lost their ends");
        EXPECT(MINILM "-c 5 -p a -p the~quick~brown~fox", 0,
               "1 of 2 texts are longer than 5 tokens");
        EXPECT(MINILM "-c 2 -p a", 2, "may have 2 tokens, and the tokenizer puts 2 around it");
        EXPECT(MINILM "-c 41 -p a", 2, "needs 41");
}

TEST (encoders_make_no_text) {
        char wrong[400];
        static const char *const refused[] = { "run %s -p a", "chat %s", "eval %s --data Makefile",
                                               "bench %s --decode" };
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
                char line[200];
                snprintf(line, sizeof line, refused[i], "tests/data/encoders/minilm");
                EXPECT(line, 2, "is an encoder");
                CHECK(strstr(r.err, "tgc embed"));
        }
        EXPECT("train bert --data Makefile", 2, "is an encoder");
        EXPECT("embed tests/data/models/story -p a", 2, "only encoders");
        EXPECT("compile bert --mode train -o /dev/null", 3, "cannot be trained");
        EXPECT("compile bert --chunk-size 100 -o /dev/null", 2, "reads a text whole");
        EXPECT(MINILM "-p a --file Makefile", 2, "give one of --prompt, --file and --prompts");
        EXPECT(MINILM "--prompts /dev/null", 3, "/dev/null");
        write_file(scratch("lines"), "{\"prompt\": \"a\", \"dimensions\": 3}\n");
        snprintf(wrong, sizeof wrong, MINILM "--prompts %s", scratch("lines"));
        EXPECT(wrong, 3, ":1:17: unknown key \"dimensions\" in a text to embed; known: prompt");
        EXPECT("embed bert -D n_layer=1 -p a", 2, "has no tokenizer");
        TgcError e;
        Tgc *t;
        char line[400];
        snprintf(line, sizeof line, "compile tests/data/models/story -q -o %s", scratch("s.plan"));
        EXPECT(line, 0, "");
        CHECK(!tgc_open(&t, scratch("s.plan"), &(TgcOptions) { .device = "cpu" }, &e));
        float v[WIDE];
        const char *text = "a";
        CHECK(tgc_width(t) == 0);
        CHECK(tgc_embed(t, &text, &(size_t) { 1 }, 1, v, &e) == TGC_STATUS_USAGE);
        CHECK(strstr(e.message, "only encoders"));
        tgc_close(t);
}

TEST (ids_are_checked) {
        Tgc *t = open_folder("minilm", "", "cpu");
        TgcError e;
        float v[WIDE];
        int ids[50] = { 2, 3 };
        const int *p = ids;
        CHECK(!tgc_embed_ids(t, &p, &(int) { 2 }, 1, v, &e));
        CHECK(!tgc_embed_ids(t, NULL, NULL, 0, v, &e));
        CHECK(tgc_embed_ids(t, &(const int *) { NULL }, &(int) { 2 }, 1, v, &e) ==
                      TGC_STATUS_USAGE &&
              strstr(e.message, "ids[0] is NULL"));
        CHECK(tgc_embed_ids(t, &p, &(int) { 2 }, 1, NULL, &e) == TGC_STATUS_USAGE);
        CHECK(tgc_embed(t, &(const char *) { NULL }, &(size_t) { 2 }, 1, v, &e) ==
                      TGC_STATUS_USAGE &&
              strstr(e.message, "text[0] is NULL"));
        CHECK(tgc_embed_ids(t, &p, &(int) { 0 }, 1, v, &e) == TGC_STATUS_USAGE);
        CHECK(tgc_embed_ids(t, &p, &(int) { 41 }, 1, v, &e) == TGC_STATUS_USAGE);
        CHECK(strstr(e.message, "1 to 40"));
        ids[1] = 100;
        CHECK(tgc_embed_ids(t, &p, &(int) { 2 }, 1, v, &e) == TGC_STATUS_USAGE);
        tgc_close(t);
}

/* ---- folders ---- */

#define POOL "{\"path\": \"1_Pooling\", \"type\": \"a.Pooling\"}"
#define FIRST "{\"path\": \"\", \"type\": \"a.b.Transformer\"}"

static const struct {
        const char *modules, *pooling, *length, *prompts;
        const char *why; /* "": it is fine */
        Pooling how;
        bool unit;
        int most;
} cases[] = {
        { NULL, NULL, NULL, NULL, "", POOL_MEAN, false, 0 },
        { "[" FIRST "," POOL "]", "{\"pooling_mode\": \"lasttoken\"}", "{\"max_seq_length\": 9}",
          NULL, "", POOL_LAST, false, 9 },
        { "[" FIRST "," POOL ", {\"path\": \"2_Normalize\", \"type\": \"x.Normalize\"}]",
          "{\"pooling_mode_max_tokens\": true, \"pooling_mode_cls_token\": false}",
          "{\"max_seq_length\": null}", "{\"prompts\": {}, \"default_prompt_name\": null}", "",
          POOL_MAX, true, 0 },
        { "{}", NULL, NULL, NULL, "not a list", 0, 0, 0 },
        { "[]", NULL, NULL, NULL, "no Pooling", 0, 0, 0 },
        { "[" FIRST "]", NULL, NULL, NULL, "no Pooling", 0, 0, 0 },
        { "[" POOL "]", NULL, NULL, NULL, "module 0 is a Pooling", 0, 0, 0 },
        { "[3]", NULL, NULL, NULL, "thing without a type", 0, 0, 0 },
        { "[" FIRST "," POOL ", {\"path\": \"2_Dense\", \"type\": \"x.Dense\"}]",
          "{\"pooling_mode\": \"cls\"}", NULL, NULL, "module 2 is a Dense", 0, 0, 0 },
        { "[{\"path\": \"0_T\", \"type\": \"Transformer\"}]", NULL, NULL, NULL,
          "config.json lies beside", 0, 0, 0 },
        { "[" FIRST ", {\"path\": \"../p\", \"type\": \"a.Pooling\"}]", NULL, NULL, NULL,
          "a folder beside this file", 0, 0, 0 },
        { "[" FIRST "," POOL "]", NULL, NULL, NULL, "1_Pooling/config.json", 0, 0, 0 },
        { "[" FIRST "," POOL "]", "{}", NULL, NULL, "none of pooling_mode_*", 0, 0, 0 },
        { "[" FIRST "," POOL "]", "{\"pooling_mode\": [\"cls\", \"max\"]}", NULL, NULL,
          "is not supported", 0, 0, 0 },
        { "[" FIRST "," POOL "]", "{\"pooling_mode_cls_token\": 1}", NULL, NULL, "true or false", 0,
          0, 0 },
        { "[" FIRST "," POOL "]", "{\"pooling_mode_weightedmean_tokens\": true}", NULL, NULL,
          "weightedmean_tokens\" is not supported", 0, 0, 0 },
        { "[" FIRST "," POOL "]",
          "{\"pooling_mode_max_tokens\": true, \"pooling_mode_mean_tokens\": true}", NULL, NULL,
          "both true", 0, 0, 0 },
        { NULL, NULL, "{\"max_seq_length\": 1.5}", NULL, "whole number", 0, 0, 0 },
        { NULL, NULL, "{\"do_lower_case\": true}", NULL, "do_lower_case", 0, 0, 0 },
        { NULL, NULL, "{\"max_seq_length\": ", NULL, "sentence_bert_config.json", 0, 0, 0 },
        { NULL, NULL, NULL, "{\"prompts\": {\"q\": 3}, \"default_prompt_name\": \"q\"}",
          "names no text", 0, 0, 0 },
        { "[" FIRST "," POOL "]", "{\"pooling_mode\": \"cls\", \"include_prompt\": false}", NULL,
          "{\"prompts\": {\"q\": \"Q: \"}, \"default_prompt_name\": \"q\"}", "include_prompt", 0, 0,
          0 },
};

static void put(const char *name, const char *text)
{
        if (text)
                write_file(scratch(name), text);
        else
                unlink(scratch(name));
}

TEST (settings_of_folders) {
        scratch("");
        mkdir(scratch("1_Pooling"), 0777);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                Sentence s;
                Err e = { 0 };
                put("modules.json", cases[i].modules);
                put("1_Pooling/config.json", cases[i].pooling);
                put("sentence_bert_config.json", cases[i].length);
                put("config_sentence_transformers.json", cases[i].prompts);
                const int code = sentence_folder(&s, dir, &e);
                CHECK_MSG(code == (*cases[i].why ? TGC_BAD_FILE : TGC_OK) ||
                                  (code == TGC_IO && strstr(cases[i].why, "config.json")),
                          "case %zu: %d, %s", i, code, e.msg);
                CHECK_MSG(strstr(e.msg, cases[i].why), "case %zu: no '%s' in: %s", i, cases[i].why,
                          e.msg);
                if (!code)
                        CHECK_MSG(s.pooling == cases[i].how && s.unit == cases[i].unit &&
                                          s.max_tokens == cases[i].most,
                                  "case %zu: %s, %d, %d", i, pooling_name[s.pooling], s.unit,
                                  s.max_tokens);
                sentence_free(&s);
        }
        put("modules.json", NULL);
        put("1_Pooling/config.json", NULL);
        rmdir(scratch("1_Pooling"));
        put("sentence_bert_config.json", NULL);
        put("config_sentence_transformers.json", NULL);
}

/* The plan keeps what the folder said, whatever runs it. */
TEST (the_section) {
        Sentence s = { POOL_CLS, true, 77, NULL }, back;
        char *text;
        size_t n;
        Err e;
        CHECK((s.prompt = strdup("query: \"\xc3\xa9\n")));
        CHECK(!sentence_pack(&s, &text, &n, &e));
        CHECK_MSG(!sentence_unpack(&back, text, n, &e), "%s", e.msg);
        CHECK(back.pooling == s.pooling && back.unit && back.max_tokens == 77 &&
              !strcmp(back.prompt, s.prompt));
        sentence_free(&back);
        sentence_free(&s);
        free(text);
        static const char *const bad[] = { "",
                                           "[]",
                                           "{\"pooling\": \"sum\"}",
                                           "{\"pooling\": \"cls\", \"normalize\": 1}",
                                           "{\"pooling\": \"cls\", \"normalize\": true}",
                                           "{\"pooling\":\"cls\",\"normalize\":true,"
                                           "\"max_tokens\":-1}",
                                           "{\"pooling\":\"cls\",\"normalize\":true,"
                                           "\"max_tokens\":1,\"prompt\":1}" };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                CHECK_MSG(sentence_unpack(&back, bad[i], strlen(bad[i]), &e) == TGC_BAD_FILE, "%s",
                          bad[i]);
}

TEST_MAIN
