/* test_tokenizer.c: ids against other programs' ids, character vocabularies, folders of files, packing. */
#include <stdint.h>
#include <unistd.h>
#include "tokenizer_test.h"

static Tokenizer *open_or_skip(const char *path, int vocab)
{
        Tokenizer *t;
        Err e = {0};

        if (access(path, R_OK) != 0)
                SKIP("no test data at ../shared/data");
        CHECK_MSG(tokenizer_open(&t, path, vocab, &e) == TGC_OK, "%s", e.msg);
        return t;
}

/* Numbers in text, up to a line's end; returns how many. */
static int read_ids(const char **s, int *ids, int cap)
{
        int n = 0;

        while (**s && **s != '\n') {
                char *end;
                long x = strtol(*s, &end, 10);
                if (end == *s) {
                        (*s)++;
                        continue;
                }
                CHECK(n < cap);
                ids[n++] = (int)x;
                *s = end;
        }
        *s += **s == '\n';
        return n;
}

/* ---- published vectors --------------------------------------------------------------- */

/* llama.cpp's files: texts between separator lines, and a line of ids for each. */
static void check_vectors(const Tokenizer *t, const char *name, int round_trip)
{
        static const char sep[] = "\n__ggml_vocab_test__\n";
        char path[256], *in, *out;
        const char *text, *line, *end;
        int want[512], n_text = 0;
        size_t n_in, n_out;

        snprintf(path, sizeof path, DATA "tokenizers/ggml-vocab/ggml-vocab-%s.gguf.inp", name);
        text = in = slurp(path, &n_in);
        snprintf(path, sizeof path, DATA "tokenizers/ggml-vocab/ggml-vocab-%s.gguf.out", name);
        line = out = slurp(path, &n_out);
        while (*line) {
                int n_want = read_ids(&line, want, 512);
                if (!(end = strstr(text, sep)))
                        end = in + n_in;
                check_ids(t, text, (size_t)(end - text), 0, want, n_want);
                if (round_trip)
                        check_round_trip(t, text, (size_t)(end - text));
                n_text++;
                text = end + sizeof sep - 1;
        }
        CHECK_MSG(n_text == 46, "%d texts, expected 46", n_text);
        free(in);
        free(out);
}

static void vectors_of(const char *path, const char *name)
{
        Tokenizer *t = open_or_skip(path, 0);

        check_vectors(t, name, 1);
        tokenizer_free(t);
}

TEST(gpt2_files)    { vectors_of(DATA "tokenizers/gpt2", "gpt-2"); }
TEST(gpt2_ranks)    { vectors_of(DATA "tokenizers/tiktoken/r50k_base.tiktoken", "gpt-2"); }
TEST(llama3_ranks)  { vectors_of(DATA "tokenizers/llama3", "llama-bpe"); }
TEST(qwen_ranks)    { vectors_of(DATA "tokenizers/qwen/qwen.tiktoken", "qwen2"); }
TEST(llama2_bin)    { vectors_of(DATA "tokenizers/llama2/tokenizer.bin", "llama-spm"); }

/* A merges list with ignore_merges must agree with the ranks. */
TEST(llama3_merges)
{
        size_t n_vocab, n_merges;
        char *vocab = slurp(DATA "tokenizers/llama3/hf_vocab.json", &n_vocab);
        char *merges = slurp(DATA "tokenizers/llama3/hf_merges.txt", &n_merges);
        Tokenizer *t;
        Err e = {0};

        vocab = realloc(vocab, n_vocab + 1 + n_merges);         /* the NUL behind vocab stays */
        memcpy(vocab + n_vocab + 1, merges, n_merges);
        CHECK_MSG(tokenizer_new(&t, TOK_GPT2, vocab, n_vocab + 1 + n_merges, &e) == TGC_OK, "%s", e.msg);
        check_vectors(t, "llama-bpe", 1);
        CHECK(tokenizer_bos(t) == 128000 && tokenizer_is_eos(t, 128009) && tokenizer_adds_bos(t));
        tokenizer_free(t);
        free(vocab);
        free(merges);
}

/* sentencepiece's own file gives the ids that llama2.c's tool keeps. */
TEST(sentencepiece_model)
{
        vectors_of(DATA "tokenizers/llama2/tokenizer.model", "llama-spm");
}

TEST(llama2c_story)
{
        Tokenizer *t = open_or_skip(DATA "models/stories260K/tok512.bin", 512);
        char *text, *ids_text;
        const char *s;
        int want[512], n_want;
        size_t n, m;

        text = slurp(DATA "expected/nll_sample_text.txt", &n);
        s = ids_text = slurp(DATA "expected/stories260K_nll_sample_ids.txt", &m);
        n_want = read_ids(&s, want, 512);
        CHECK(tokenizer_vocab(t) == 512 && tokenizer_bos(t) == 1 && tokenizer_adds_bos(t));
        check_ids(t, text, n, -1, want, n_want);
        check_round_trip(t, text, n);
        check_round_trip(t, "na\xc3\xafve \xe4\xb8\xad\xff\xfe \xf0\x9f\xa6\x99", 16);  /* by bytes, UTF-8 or not */
        check_round_trip(t, " x", 2);
        check_ids(t, "", 0, 1, (int[]){ 1 }, 1);
        tokenizer_free(t);
        free(text);
        free(ids_text);
}

TEST(hf_story)
{
        Tokenizer *t = open_or_skip(DATA "models/tinystories656k", 2048);
        static const struct { const char *text; int n, ids[16]; } known[] = {   /* by Hugging Face tokenizers */
                { "Once upon a time", 6, { 1, 80, 147, 201, 282, 57 } },
                { "Tom and his dog", 5, { 1, 80, 875, 231, 604 } },
                { "Lily's mom said, \"Hi!\"", 8, { 1, 80, 629, 816, 204, 1158, 4, 5 } },
                { "  two  spaces\nnewline", 14, { 1, 80, 80, 80, 1209, 80, 415, 53, 1499, 3, 1105, 64, 96, 57 } },
                { "One day, she saw a big, red ball.", 7, { 1, 80, 299, 242, 1866, 1714, 10 } }
        };
        char *text, *ids_text, *story;
        const int *eos;
        const char *s;
        int want[512], n_want;
        size_t n, m;

        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                check_ids(t, known[i].text, strlen(known[i].text), -1, known[i].ids, known[i].n);
        CHECK(tokenizer_eos(t, &eos) == 1 && eos[0] == 2 && tokenizer_bos(t) == 1);
        CHECK(tokenizer_is_special(t, 0) && !tokenizer_is_special(t, 3));

        text = slurp(DATA "expected/nll_sample_text.txt", &n);
        s = ids_text = slurp(DATA "expected/ts656k_nll_sample_ids.txt", &m);
        n_want = read_ids(&s, want, 512);
        check_ids(t, text, n, 1, want, n_want);
        check_ids(t, text, n, 0, want + 1, n_want - 1);
        check_round_trip(t, text, n);
        free(text);
        free(ids_text);

        s = ids_text = slurp(DATA "expected/ts656k_p0_ids.txt", &m);
        n_want = read_ids(&s, want, 512);
        text = slurp(DATA "expected/ts656k_p0_text.txt", &n);        /* begins with the space put before a text */
        story = decode_all(t, want, n_want, &m);
        CHECK_MSG(!strncmp(story, text + 1, m), "decoded '%s', expected '%s'", story, text);
        free(story);
        free(text);
        free(ids_text);
        tokenizer_free(t);
}

/* nanoGPT publishes these counts for its split of the text. */
TEST(gpt2_shakespeare_count)
{
        Tokenizer *t = open_or_skip(DATA "tokenizers/gpt2", 50257);
        size_t n, cut = 1003854;
        char *text = slurp(DATA "text/tinyshakespeare.txt", &n);
        int *ids, n_train, n_val;
        Err e = {0};

        CHECK(tokenizer_encode(t, text, cut, 0, &ids, &n_train, &e) == TGC_OK);
        free(ids);
        CHECK(tokenizer_encode(t, text + cut, n - cut, 0, &ids, &n_val, &e) == TGC_OK);
        free(ids);
        CHECK_MSG(n_train == 301966 && n_val == 36059, "%d and %d tokens, expected 301966 and 36059", n_train, n_val);
        tokenizer_free(t);
        free(text);
}

/* A novel in a few seconds, with a pre-tokenizer and without; much slower is quadratic. */
TEST(long_text)
{
        static const char *const path[] = {
                DATA "tokenizers/gpt2", DATA "tokenizers/llama3", DATA "tokenizers/llama2/tokenizer.bin",
                DATA "models/stories260K/tok512.bin", DATA "tokenizers/tiktoken/o200k_base.tiktoken"
        };
        size_t n;
        char *text = slurp(DATA "text/war-and-peace.txt", &n);

        for (size_t i = 0; i < sizeof path / sizeof *path; i++) {
                Tokenizer *t = open_or_skip(path[i], 0);
                double s = check_round_trip(t, text, n);
                CHECK_MSG(s < 60, "%s: %.1f s for %zu bytes", path[i], s, n);
                tokenizer_free(t);
        }
        free(text);
}

/* One byte over and over gives pieces as long as the text. */
TEST(one_long_word)
{
        Tokenizer *t = open_or_skip(DATA "tokenizers/gpt2", 0);
        size_t n = 1 << 20;
        char *text = malloc(n);

        for (const char *c = "a \n-"; *c; c++) {
                memset(text, *c, n);
                CHECK(check_round_trip(t, text, n) < 60);
        }
        free(text);
        tokenizer_free(t);
}

/* ---- char vocabularies ----------------------------------------------------------------- */

TEST(char_vocab)
{
        static const char text[] = "hello, w\xc3\xb6rld \xe4\xb8\xad\xf0\x9f\xa6\x99\n";
        Tokenizer *t;
        char *blob;
        size_t n;
        Err e = {0};
        int *ids, n_ids;

        CHECK(tokenizer_char_blob(text, sizeof text - 1, &blob, &n, &e) == TGC_OK);
        CHECK_MSG(n == 19 && !memcmp(blob, "\n ,dehlorw\xc3\xb6\xe4\xb8\xad\xf0\x9f\xa6\x99", 19), "%zu: %.*s", n,
                  (int)n, blob);
        CHECK(tokenizer_new(&t, TOK_CHAR, blob, n, &e) == TGC_OK);
        CHECK(tokenizer_vocab(t) == 13 && tokenizer_bos(t) == -1);
        check_ids(t, "he\xc3\xb6", 4, 1, (int[]){ 5, 4, 10 }, 3);
        check_round_trip(t, text, sizeof text - 1);

        CHECK(tokenizer_encode(t, "hex", 3, 0, &ids, &n_ids, &e) == TGC_BAD_FILE && !ids);
        CHECK_MSG(strstr(e.msg, "'x' (U+0078, byte 2)"), "%s", e.msg);
        CHECK(tokenizer_encode(t, "h\xff", 2, 0, &ids, &n_ids, &e) == TGC_BAD_FILE);
        CHECK_MSG(strstr(e.msg, "byte 1 is not UTF-8"), "%s", e.msg);
        tokenizer_free(t);
        free(blob);

        CHECK(tokenizer_new(&t, TOK_CHAR, "aba", 3, &e) == TGC_BAD_FILE && strstr(e.msg, "twice"));
        CHECK(tokenizer_char_blob("a\xc3", 2, &blob, &n, &e) == TGC_BAD_FILE);
        CHECK(tokenizer_char_blob("", 0, &blob, &n, &e) == TGC_BAD_FILE);
}

TEST(char_vocab_of_texts)
{
        static const struct { const char *path; int n; } text[] = {
                { DATA "text/tinyshakespeare.txt", 65 }, { DATA "text/wizard_of_oz_naive_cu.txt", 77 },
                { DATA "text/names.txt", 27 }
        };

        for (int i = 0; i < 3; i++) {
                size_t n, m;
                char *s = slurp(text[i].path, &n), *blob;
                Tokenizer *t;
                Err e = {0};

                CHECK(tokenizer_char_blob(s, n, &blob, &m, &e) == TGC_OK);
                CHECK(tokenizer_new(&t, TOK_CHAR, blob, m, &e) == TGC_OK);
                CHECK_MSG(tokenizer_vocab(t) == text[i].n, "%d characters, expected %d", tokenizer_vocab(t), text[i].n);
                check_round_trip(t, s, n);
                tokenizer_free(t);
                free(blob);
                free(s);
        }
}

/* ---- files ----------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/test_tokenizer.XXXXXX";

static void write_file(const char *name, const void *p, size_t n)
{
        char path[256];
        FILE *f;

        snprintf(path, sizeof path, "%s/%s", folder, name);
        CHECK((f = fopen(path, "wb")));
        CHECK(fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

static void remove_file(const char *name)
{
        char path[256];

        snprintf(path, sizeof path, "%s/%s", folder, name);
        remove(path);
}

static void write_text(const char *name, const char *text)
{
        write_file(name, text, strlen(text));
}

TEST(folders)
{
        static const char *const name[] = { "tokenizer.json", "tokenizer_config.json", "generation_config.json",
                                            "config.json", "vocab.json", "merges.txt", "tokenizer.model" };
        const int *eos;
        Tokenizer *t;
        size_t n, m;
        char *json = hf_json((Parts){ 0 }, &n), *model, path[256];
        Err e = {0};

        CHECK(mkdtemp(folder));
        CHECK(tokenizer_open(&t, folder, 0, &e) == TGC_BAD_FILE && !t && strstr(e.msg, "no tokenizer.json"));

        write_file("tokenizer.json", json, n);
        write_text("config.json", "{\"bos_token_id\":9,\"eos_token_id\":3,\"vocab_size\":25}");
        write_text("generation_config.json", "{\"bos_token_id\":5,\"eos_token_id\":[7,3,99,\"x\"]}");
        write_text("tokenizer_config.json",
                   "{\"eos_token\":{\"content\":\"A\"},\"add_bos_token\":true,\"bos_token\":null}");
        CHECK_MSG(tokenizer_open(&t, folder, 25, &e) == TGC_OK, "%s", e.msg);
        CHECK(tokenizer_bos(t) == 5 && tokenizer_adds_bos(t));
        CHECK(tokenizer_eos(t, &eos) == 3 && eos[0] == 15 && eos[1] == 7 && eos[2] == 3);
        check_ids(t, "ab", 2, -1, (int[]){ 5, 5 }, 2);
        check_ids(t, "ab", 2, 0, (int[]){ 5 }, 1);
        tokenizer_free(t);

        snprintf(path, sizeof path, "%s/tokenizer.json", folder);       /* by file, and without its BOS */
        write_text("tokenizer_config.json", "{\"add_bos_token\":false}");
        CHECK(tokenizer_open(&t, path, 0, &e) == TGC_OK && !tokenizer_adds_bos(t) && tokenizer_bos(t) == 5);
        tokenizer_free(t);
        write_text("config.json", "{\"bos_token_id\":");
        CHECK(tokenizer_open(&t, path, 0, &e) == TGC_BAD_FILE && !t);
        CHECK_MSG(strstr(e.msg, "config.json:1: not valid JSON"), "%s", e.msg);
        for (int i = 0; i < 4; i++)
                remove_file(name[i]);

        write_text("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}");
        write_text("merges.txt", "#version: 0.2\r\na b\r\n");
        CHECK_MSG(tokenizer_open(&t, folder, 0, &e) == TGC_OK, "%s", e.msg);
        check_ids(t, "ab<|endoftext|>ba", 17, -1, (int[]){ 2, 3, 1, 0 }, 4);
        CHECK(tokenizer_is_eos(t, 3) && tokenizer_bos(t) == -1);
        tokenizer_free(t);
        remove_file("vocab.json");

        if (access(DATA "tokenizers/llama2/tokenizer.model", R_OK) == 0) {
                model = slurp(DATA "tokenizers/llama2/tokenizer.model", &m);
                for (size_t cut = 1; cut < m; cut += 49999) {           /* a sentencepiece model, cut off */
                        write_file("tokenizer.model", model, cut);
                        CHECK(tokenizer_open(&t, folder, 0, &e) == TGC_BAD_FILE && !t);
                        CHECK_MSG(strstr(e.msg, "sentencepiece"), "%s", e.msg);
                }
                free(model);
        }
        for (size_t i = 0; i < sizeof name / sizeof *name; i++)
                remove_file(name[i]);
        CHECK(rmdir(folder) == 0);
        free(json);
}

/* ---- packing and settings ------------------------------------------------------------------------ */

TEST(pack)
{
        Tokenizer *t, *u;
        Err e = {0};
        void *a, *b;
        size_t n, m;
        const int *eos;
        char *bad;

        CHECK(hf_new(&t, (Parts){ .norm = LLAMA_NORM, .dec = LLAMA_DECODE }, &e) == TGC_OK);
        CHECK(tokenizer_set_bos(t, 3, 1, &e) == TGC_OK && tokenizer_set_eos(t, (int[]){ 7, 2 }, 2, &e) == TGC_OK);
        CHECK(tokenizer_set_bos(t, 25, 1, &e) == TGC_USAGE && tokenizer_set_eos(t, (int[]){ -1 }, 1, &e) == TGC_USAGE);
        CHECK(tokenizer_pack(t, &a, &n, &e) == TGC_OK);
        CHECK_MSG(tokenizer_unpack(&u, a, n, &e) == TGC_OK, "%s", e.msg);
        CHECK(tokenizer_bos(u) == 3 && tokenizer_adds_bos(u) && tokenizer_eos(u, &eos) == 2 && eos[0] == 7
              && eos[1] == 2 && tokenizer_is_eos(u, 2) && !tokenizer_is_eos(u, 3) && tokenizer_kind(u) == TOK_HF);
        check_ids(u, "ab", 2, -1, (int[]){ 3, 4, 5 }, 3);
        CHECK(tokenizer_pack(u, &b, &m, &e) == TGC_OK && m == n && !memcmp(a, b, n));
        tokenizer_free(u);
        tokenizer_free(t);
        free(b);

        for (size_t cut = 0; cut < n; cut += cut < 100 ? 1 : 37)
                CHECK(tokenizer_unpack(&u, a, cut, &e) == TGC_BAD_FILE && !u);
        bad = malloc(n);
        for (size_t at = 0; at < 68; at++) {            /* head: nothing there may do worse than be refused */
                memcpy(bad, a, n);
                bad[at] = (char)(bad[at] ^ 0x81);
                if (tokenizer_unpack(&u, bad, n, &e) == TGC_OK)
                        tokenizer_free(u);
        }
        free(bad);
        free(a);
}

TEST(model_smaller_than_tokenizer)
{
        Tokenizer *t = open_or_skip(DATA "models/tinystories656k/tokenizer.json", 81);
        int *ids, n_ids;
        Err e = {0};

        CHECK(tokenizer_encode(t, "Once", 4, 0, &ids, &n_ids, &e) == TGC_BAD_FILE && !ids);
        CHECK_MSG(strstr(e.msg, "147, but the model has 81"), "%s", e.msg);
        tokenizer_free(t);
        CHECK(tokenizer_open(&t, DATA "models/stories260K/tok512.bin", 513, &e) == TGC_BAD_FILE);
        CHECK_MSG(strstr(e.msg, "has 512 tokens, the model 513"), "%s", e.msg);
        CHECK(tokenizer_open(&t, "no/such/file.json", 0, &e) == TGC_BAD_FILE && !t && strstr(e.msg, "no/such/file"));
}

TEST_MAIN
