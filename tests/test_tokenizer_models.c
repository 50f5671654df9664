/* test_tokenizer_models.c: vocabularies of whole models against other programs' ids, and long
 * texts. */
#include <unistd.h>
#include "tokenizer_test.h"

static Tokenizer *open_or_skip(const char *path, int vocab)
{
        Tokenizer *t;
        Err e = { 0 };

        data_need(path);
        CHECK_MSG(tokenizer_open(&t, path, vocab, &e) == TGC_OK, "%s", e.msg);
        return t;
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

        snprintf(path, sizeof path, "%s",
                 data_at("tokenizers/ggml-vocab/ggml-vocab-%s.gguf.inp", name));
        text = in = slurp(path, &n_in);
        snprintf(path, sizeof path, "%s",
                 data_at("tokenizers/ggml-vocab/ggml-vocab-%s.gguf.out", name));
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

TEST_SHARED(gpt2_files) { vectors_of(data_at("tokenizers/gpt2"), "gpt-2"); }
TEST_SHARED(gpt2_ranks) { vectors_of(data_at("tokenizers/tiktoken/r50k_base.tiktoken"), "gpt-2"); }
TEST_SHARED(llama3_ranks) { vectors_of(data_at("tokenizers/llama3"), "llama-bpe"); }
TEST_SHARED(qwen_ranks) { vectors_of(data_at("tokenizers/qwen/qwen.tiktoken"), "qwen2"); }
TEST_SHARED(llama2_bin) { vectors_of(data_at("tokenizers/llama2/tokenizer.bin"), "llama-spm"); }

/* A merges list with ignore_merges must agree with the ranks. */
TEST_SHARED(llama3_merges)
{
        size_t n_vocab, n_merges;
        char *vocab = slurp(data_at("tokenizers/llama3/hf_vocab.json"), &n_vocab);
        char *merges = slurp(data_at("tokenizers/llama3/hf_merges.txt"), &n_merges);
        Tokenizer *t;
        Err e = { 0 };

        vocab = realloc(vocab, n_vocab + 1 + n_merges); /* the NUL behind vocab stays */
        memcpy(vocab + n_vocab + 1, merges, n_merges);
        CHECK_MSG(tokenizer_new(&t, TOK_GPT2, vocab, n_vocab + 1 + n_merges, &e) == TGC_OK, "%s",
                  e.msg);
        check_vectors(t, "llama-bpe", 1);
        CHECK(tokenizer_bos(t) == 128000 && tokenizer_is_eos(t, 128009) && tokenizer_adds_bos(t));
        tokenizer_free(t);
        free(vocab);
        free(merges);
}

/* sentencepiece's own file gives the ids that llama2.c's tool keeps. */
TEST_SHARED(sentencepiece_model)
{
        vectors_of(data_at("tokenizers/llama2/tokenizer.model"), "llama-spm");
}

TEST_DATA (llama2c_story) {
        const bool own = data_is_own();
        Tokenizer *t = open_or_skip(data_at(own ? "models/story/tok.bin"
                                                : "models/stories260K/tok512.bin"),
                                    512);
        char *text, *ids_text;
        const char *s;
        int want[512], n_want;
        size_t n, m;

        text = slurp(data_at(own ? "expected/sample_text.txt" : "expected/nll_sample_text.txt"),
                     &n);
        s = ids_text = slurp(data_at(own ? "expected/sample_ids.txt"
                                         : "expected/stories260K_nll_sample_ids.txt"),
                             &m);
        n_want = read_ids(&s, want, 512);
        CHECK(tokenizer_vocab(t) == 512 && tokenizer_bos(t) == 1 && tokenizer_adds_bos(t));
        check_ids(t, text, n, -1, want, n_want);
        check_round_trip(t, text, n);
        /* by bytes, UTF-8 or not */
        check_round_trip(t, "na\xc3\xafve \xe4\xb8\xad\xff\xfe \xf0\x9f\xa6\x99", 16);
        check_round_trip(t, " x", 2);
        check_ids(t, "", 0, 1, (int[]) { 1 }, 1);
        tokenizer_free(t);
        free(text);
        free(ids_text);
}

TEST_DATA (hf_story) {
        const bool own = data_is_own();
        Tokenizer *t = open_or_skip(data_at(own ? "models/story" : "models/tinystories656k"),
                                    own ? 512 : 2048);
        /* by Hugging Face tokenizers */
        static const struct {
                const char *text;
                int n, ids[20];
        } story_known[] = { { "Once upon a time", 5, { 1, 379, 378, 325, 381 } },
                            { "Tom and his dog", 9, { 1, 363, 310, 308, 348, 338, 361, 358, 508 } },
                            { "  two  spaces\nnewline",
                              19,
                              { 1, 322, 322, 323, 318, 310, 322, 334, 311, 296, 365, 314, 13, 309,
                                300, 318, 307, 332, 300 } },
                            { "na\xc3\xafve \xe4\xb8\xad \xf0\x9f\xa6\x99",
                              16,
                              { 1, 322, 309, 296, 198, 178, 345, 322, 231, 187, 176, 322, 243, 162,
                                169, 156 } },
                            { " x", 4, { 1, 322, 322, 319 } } },
          known[] = {
                  { "Once upon a time", 6, { 1, 80, 147, 201, 282, 57 } },
                  { "Tom and his dog", 5, { 1, 80, 875, 231, 604 } },
                  { "Lily's mom said, \"Hi!\"", 8, { 1, 80, 629, 816, 204, 1158, 4, 5 } },
                  { "  two  spaces\nnewline",
                    14,
                    { 1, 80, 80, 80, 1209, 80, 415, 53, 1499, 3, 1105, 64, 96, 57 } },
                  { "One day, she saw a big, red ball.", 7, { 1, 80, 299, 242, 1866, 1714, 10 } }
          };
        char *text, *ids_text, *story;
        const int *eos;
        const char *s;
        int want[512], n_want;
        size_t n, m;

        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
                const char *say = own ? story_known[i].text : known[i].text;
                check_ids(t, say, strlen(say), -1, own ? story_known[i].ids : known[i].ids,
                          own ? story_known[i].n : known[i].n);
        }
        CHECK(tokenizer_eos(t, &eos) == 1 && eos[0] == 2 && tokenizer_bos(t) == 1);
        CHECK(tokenizer_is_special(t, 0) && !tokenizer_is_special(t, 3));

        text = slurp(data_at(own ? "expected/sample_text.txt" : "expected/nll_sample_text.txt"),
                     &n);
        s = ids_text = slurp(data_at(own ? "expected/sample_ids.txt"
                                         : "expected/ts656k_nll_sample_ids.txt"),
                             &m);
        n_want = read_ids(&s, want, 512);
        check_ids(t, text, n, 1, want, n_want);
        check_ids(t, text, n, 0, want + 1, n_want - 1);
        check_round_trip(t, text, n);
        free(text);
        free(ids_text);

        s = ids_text = slurp(data_at(own ? "expected/story_ids.txt" : "expected/ts656k_p0_ids.txt"),
                             &m);
        n_want = read_ids(&s, want, 512);
        text = slurp(data_at(own ? "expected/story_text.txt" : "expected/ts656k_p0_text.txt"), &n);
        story = decode_all(t, want, n_want, &m);
        CHECK_MSG(!strncmp(story, text + !own, m), "decoded '%s', expected '%s'", story, text);
        free(story);
        free(text);
        free(ids_text);
        tokenizer_free(t);
}

/* nanoGPT publishes these counts for its split of the text. */
TEST_SHARED(gpt2_shakespeare_count)
{
        Tokenizer *t = open_or_skip(data_at("tokenizers/gpt2"), 50257);
        size_t n, cut = 1003854;
        char *text = slurp(data_at("text/tinyshakespeare.txt"), &n);
        int *ids, n_train, n_val;
        Err e = { 0 };

        CHECK(tokenizer_encode(t, text, cut, 0, &ids, &n_train, &e) == TGC_OK);
        free(ids);
        CHECK(tokenizer_encode(t, text + cut, n - cut, 0, &ids, &n_val, &e) == TGC_OK);
        free(ids);
        CHECK_MSG(n_train == 301966 && n_val == 36059,
                  "%d and %d tokens, expected 301966 and 36059", n_train, n_val);
        tokenizer_free(t);
        free(text);
}

/* A novel in a few seconds, with a pre-tokenizer and without; much slower is quadratic. */
TEST_SHARED(long_text)
{
        const char *const path[] = { data_at("tokenizers/gpt2"), data_at("tokenizers/llama3"),
                                     data_at("tokenizers/llama2/tokenizer.bin"),
                                     data_at("models/stories260K/tok512.bin"),
                                     data_at("tokenizers/tiktoken/o200k_base.tiktoken") };
        size_t n;
        char *text = slurp(data_at("text/war-and-peace.txt"), &n);

        for (size_t i = 0; i < sizeof path / sizeof *path; i++) {
                Tokenizer *t = open_or_skip(path[i], 0);
                double s = check_round_trip(t, text, n);
                CHECK_MSG(s < 60, "%s: %.1f s for %zu bytes", path[i], s, n);
                tokenizer_free(t);
        }
        free(text);
}

TEST_DATA (char_vocab_of_texts) {
        static const struct {
                const char *path;
                int n;
        } text[] = { { "text/tinyshakespeare.txt", 65 },
                     { "text/wizard_of_oz_naive_cu.txt", 77 },
                     { "text/names.txt", 27 },
                     { "text/stories.txt", 65 } };

        for (int i = data_is_own() ? 3 : 0; i < (data_is_own() ? 4 : 3); i++) {
                size_t n, m;
                char *s = slurp(data_at("%s", text[i].path), &n), *blob;
                Tokenizer *t;
                Err e = { 0 };

                CHECK(tokenizer_char_blob(s, n, &blob, &m, &e) == TGC_OK);
                CHECK(tokenizer_new(&t, TOK_CHAR, blob, m, &e) == TGC_OK);
                CHECK_MSG(tokenizer_vocab(t) == text[i].n, "%d characters, expected %d",
                          tokenizer_vocab(t), text[i].n);
                check_round_trip(t, s, n);
                tokenizer_free(t);
                free(blob);
                free(s);
        }
}

TEST_MAIN
