/* test_tokenizer.c: ids and texts against those of Hugging Face tokenizers and sentencepiece
 * (data/tokenizers/make.py), character vocabularies, folders of files, packing. */
#include <fnmatch.h>
#include <stdint.h>
#include <unistd.h>
#include "tokenizer_test.h"

static Tokenizer *open_own(const char *name, int vocab)
{
        char path[256];
        Tokenizer *t;
        Err e = { 0 };

        snprintf(path, sizeof path, OWN "%s", name);
        CHECK_MSG(tokenizer_open(&t, path, vocab, &e) == TGC_OK, "%s", e.msg);
        return t;
}

/* ---- vectors.txt ------------------------------------------------------------------------- */

/* The rank file of `count` tokens that make.py has: bytes, pairs, then triples. */
static Tokenizer *open_ranks(int count)
{
        static const char digit[] =
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        char *text = malloc((size_t)count * 16), *p = text;
        Tokenizer *t;
        Err e = { 0 };

        for (int i = 0; i < count; i++) {
                int j = i - 256 - 65536, n = i < 256 ? 1 : j < 0 ? 2 : 3;
                unsigned x = n == 1   ? (unsigned)i << 16
                             : n == 2 ? (unsigned)(i - 256) << 8
                                      : (unsigned)(32 + (j >> 16)) << 16 | (unsigned)(j & 65535);
                p += sprintf(p, "%c%c%c%c %d\n", digit[x >> 18], digit[x >> 12 & 63],
                             n > 1 ? digit[x >> 6 & 63] : '=', n > 2 ? digit[x & 63] : '=', i);
        }
        CHECK_MSG(tokenizer_new(&t, TOK_TIKTOKEN, text, (size_t)(p - text), &e) == TGC_OK,
                  "%d ranks: %s", count, e.msg);
        free(text);
        return t;
}

/* Undo \HH up to a space; returns how many bytes there are. */
static size_t unspell(const char **s, char *out)
{
        size_t n = 0;

        for (; **s && **s != ' '; ++*s) {
                unsigned x = (unsigned char)**s;
                if (x == '\\') {
                        if ((*s)[1] == ' ' || sscanf(*s + 1, "%2x", &x) != 1)
                                continue;
                        *s += 2;
                }
                out[n++] = (char)x;
        }
        out[n] = 0;
        return n;
}

/* One line: e, b or d, a text, ids. */
static void check_line(const Tokenizer *t, const char *name, const char *line)
{
        static char text[1 << 16];
        static int ids[1 << 14], *got;
        const char *s = line + 2;
        size_t n = unspell(&s, text), m;
        int n_ids = read_ids(&s, ids, 1 << 14), n_got;
        char *back;
        Err e = { 0 };

        if (*line == 'd') {
                CHECK_MSG(tokenizer_text(t, ids, n_ids, &back, &m, &e) == TGC_OK, "%s", e.msg);
                CHECK_MSG(m == n && !memcmp(back, text, n), "%s: decoded '%s': %.400s", name, back,
                          line);
                free(back);
                return;
        }
        CHECK_MSG(tokenizer_encode(t, text, n, *line == 'b', &got, &n_got, &e) == TGC_OK, "%s: %s",
                  name, e.msg);
        CHECK_MSG(*line == 'b' || n_got == n_ids, "%s: %d ids: %.400s", name, n_got, line);
        for (int i = 0; i < n_got;
             i++) /* with BOS the reference may add something behind the text too */
                CHECK_MSG(i < n_ids && got[i] == ids[i], "%s: id %d is %d: %.400s", name, i, got[i],
                          line);
        free(got);
}

/* The lines of each file that a pattern is for; returns how many. */
static int check_files(const char *pattern)
{
        size_t n;
        char *all = slurp(OWN "vectors.txt", &n), *line = all, *name = all;
        Tokenizer *t = NULL;
        int lines = 0;

        for (char *eol; (eol = strchr(line, '\n')); line = eol + 1) {
                *eol = 0;
                if (!strncmp(line, "file ", 5)) {
                        tokenizer_free(t);
                        name = line + 5;
                        t = fnmatch(pattern, name, 0)     ? NULL
                            : !strncmp(name, "ranks ", 6) ? open_ranks(atoi(name + 6))
                                                          : open_own(name, 0);
                } else if (t) {
                        check_line(t, name, line);
                        lines++;
                }
        }
        tokenizer_free(t);
        free(all);
        return lines;
}

TEST (tokenizer_json) {
        CHECK(check_files("*.json") > 1000);
}
TEST (sentencepiece) {
        CHECK(check_files("*.model") > 170);
}
TEST (llama2c) {
        CHECK(check_files("*.bin") > 20);
}
TEST (rank_files) {
        CHECK(check_files("ranks *") > 190);
}
TEST (bert_vocab) {
        const int *ids;
        Tokenizer *t = open_own("bert_txt", 0);

        CHECK(check_files("bert_txt") > 22);
        CHECK(tokenizer_adds_bos(t) && tokenizer_suffix(t, &ids) == 1 &&
              ids[0] == tokenizer_find(t, "[SEP]", 5));
        tokenizer_free(t);
}
TEST (vocab_and_merges) {
        CHECK(check_files("gpt2") > 22);
}

/* One byte over and over gives pieces as long as the text. */
TEST (one_long_word) {
        Tokenizer *t = open_own("gpt2.json", 0);
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

TEST (char_vocab) {
        static const char text[] = "hello, w\xc3\xb6rld \xe4\xb8\xad\xf0\x9f\xa6\x99\n";
        Tokenizer *t;
        char *blob;
        size_t n;
        Err e = { 0 };
        int *ids, n_ids;

        CHECK(tokenizer_char_blob(text, sizeof text - 1, &blob, &n, &e) == TGC_OK);
        CHECK_MSG(n == 19 && !memcmp(blob, "\n ,dehlorw\xc3\xb6\xe4\xb8\xad\xf0\x9f\xa6\x99", 19),
                  "%zu: %.*s", n, (int)n, blob);
        CHECK(tokenizer_new(&t, TOK_CHAR, blob, n, &e) == TGC_OK);
        CHECK(tokenizer_vocab(t) == 13 && tokenizer_bos(t) == -1);
        check_ids(t, "he\xc3\xb6", 4, 1, (int[]) { 5, 4, 10 }, 3);
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

/* ---- files
 * ----------------------------------------------------------------------------------------- */

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

static void write_text(const char *name, const char *text) { write_file(name, text, strlen(text)); }

TEST (folders) {
        static const char *const name[] = { "tokenizer.json",
                                            "tokenizer_config.json",
                                            "generation_config.json",
                                            "config.json",
                                            "vocab.json",
                                            "merges.txt",
                                            "tokenizer.model" };
        const int *eos;
        Tokenizer *t;
        size_t n, m;
        char *json = hf_json((Parts) { 0 }, &n), *model, path[256];
        Err e = { 0 };

        CHECK(mkdtemp(folder));
        CHECK(tokenizer_open(&t, folder, 0, &e) == TGC_BAD_FILE && !t &&
              strstr(e.msg, "no tokenizer.json"));

        write_file("tokenizer.json", json, n);
        write_text("config.json", "{\"bos_token_id\":9,\"eos_token_id\":3,\"vocab_size\":25}");
        write_text("generation_config.json", "{\"bos_token_id\":5,\"eos_token_id\":[7,3,\"x\"]}");
        write_text("tokenizer_config.json",
                   "{\"eos_token\":{\"content\":\"A\"},\"add_bos_token\":true,\"bos_token\":null}");
        CHECK_MSG(tokenizer_open(&t, folder, 25, &e) == TGC_OK, "%s", e.msg);
        CHECK(tokenizer_bos(t) == 5 && tokenizer_adds_bos(t));
        CHECK(tokenizer_eos(t, &eos) == 2 && eos[0] == 7 && eos[1] == 3);
        check_ids(t, "ab", 2, -1, (int[]) { 5, 5 }, 2);
        check_ids(t, "ab", 2, 0, (int[]) { 5 }, 1);
        tokenizer_free(t);

        /* EOS as transformers' generate has it: config.json counts without generation_config.json
         * alone, and the tokenizer where neither names one */
        static const struct {
                const char *generation, *config;
                int n, eos;
        } ends[] = { { "{\"eos_token_id\":[7]}", "{\"eos_token_id\":[3,4]}", 1, 7 },
                     { "{\"eos_token_id\":null}", "{\"eos_token_id\":3}", 1, 15 },
                     { NULL, "{\"eos_token_id\":[3,4]}", 2, 3 },
                     { NULL, "{}", 1, 15 } };
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
                remove_file("generation_config.json");
                if (ends[i].generation)
                        write_text("generation_config.json", ends[i].generation);
                write_text("config.json", ends[i].config);
                CHECK(tokenizer_open(&t, folder, 25, &e) == TGC_OK);
                CHECK_MSG(tokenizer_eos(t, &eos) == ends[i].n && eos[0] == ends[i].eos, "case %zu",
                          i);
                tokenizer_free(t);
        }

        /* an id that no token has would never end a text */
        static const char *const none[] = { "{\n\"eos_token_id\":25}",
                                            "{\n\"eos_token_id\":[3,-1]}",
                                            "{\n\"eos_token_id\":1.5}", "{\n\"bos_token_id\":99}" };
        for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
                write_text("generation_config.json", none[i]);
                CHECK(tokenizer_open(&t, folder, 0, &e) == TGC_BAD_FILE && !t);
                CHECK_MSG(strstr(e.msg, "generation_config.json:2: \"") &&
                                  strstr(e.msg, "is the id of none of the tokenizer's 25 tokens"),
                          "%s", e.msg);
        }
        write_text("generation_config.json", "{\"eos_token_id\":50256}"); /* GPT-2's, by default */
        CHECK(tokenizer_open(&t, folder, 0, &e) == TGC_OK && tokenizer_bos(t) < 50256);
        tokenizer_free(t);
        write_text("generation_config.json", "{\"eos_token_id\":[0,1,2,3,4,5,6,7,8]}");
        CHECK(tokenizer_open(&t, folder, 0, &e) == TGC_BAD_FILE);
        CHECK_MSG(strstr(e.msg, "\"eos_token_id\" has more than 8 ids"), "%s", e.msg);
        write_text("generation_config.json", "{\"bos_token_id\":5}");

        /* by file, and without its BOS */
        snprintf(path, sizeof path, "%s/tokenizer.json", folder);
        write_text("tokenizer_config.json", "{\"add_bos_token\":false}");
        CHECK(tokenizer_open(&t, path, 0, &e) == TGC_OK && !tokenizer_adds_bos(t) &&
              tokenizer_bos(t) == 5);
        tokenizer_free(t);
        write_text("config.json", "{\"bos_token_id\":");
        CHECK(tokenizer_open(&t, path, 0, &e) == TGC_BAD_FILE && !t);
        CHECK_MSG(strstr(e.msg, "config.json:1:17: not valid JSON"), "%s", e.msg);
        for (int i = 0; i < 4; i++)
                remove_file(name[i]);

        write_text("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}");
        write_text("merges.txt", "#version: 0.2\r\na b\r\n");
        CHECK_MSG(tokenizer_open(&t, folder, 0, &e) == TGC_OK, "%s", e.msg);
        check_ids(t, "ab<|endoftext|>ba", 17, -1, (int[]) { 2, 3, 1, 0 }, 4);
        CHECK(tokenizer_is_eos(t, 3) && tokenizer_bos(t) == -1);
        tokenizer_free(t);
        remove_file("vocab.json");

        model = slurp(OWN "pieces_user.model", &m);
        for (size_t cut = 1; cut < m; cut += 1 + m / 50) { /* a sentencepiece model, cut off */
                write_file("tokenizer.model", model, cut);
                if (tokenizer_open(&t, folder, 0, &e) == TGC_OK)
                        tokenizer_free(t);
                else
                        CHECK_MSG(!t && (strstr(e.msg, "sentencepiece") ||
                                         strstr(e.msg, "no tokens")),
                                  "%s", e.msg);
        }
        free(model);
        for (size_t i = 0; i < sizeof name / sizeof *name; i++)
                remove_file(name[i]);
        CHECK(rmdir(folder) == 0);
        free(json);
}

/* ---- packing and settings
 * ------------------------------------------------------------------------ */

TEST (pack) {
        Tokenizer *t, *u;
        Err e = { 0 };
        void *a, *b;
        size_t n, m;
        const int *eos;
        char *bad;

        CHECK(hf_new(&t, (Parts) { .norm = LLAMA_NORM, .dec = LLAMA_DECODE }, &e) == TGC_OK);
        CHECK(tokenizer_set_bos(t, 3, 1, &e) == TGC_OK &&
              tokenizer_set_eos(t, (int[]) { 7, 2 }, 2, &e) == TGC_OK);
        CHECK(tokenizer_set_bos(t, 25, 1, &e) == TGC_USAGE &&
              tokenizer_set_eos(t, (int[]) { -1 }, 1, &e) == TGC_USAGE);
        CHECK(tokenizer_pack(t, &a, &n, &e) == TGC_OK);
        CHECK_MSG(tokenizer_unpack(&u, a, n, &e) == TGC_OK, "%s", e.msg);
        CHECK(tokenizer_bos(u) == 3 && tokenizer_adds_bos(u) && tokenizer_eos(u, &eos) == 2 &&
              eos[0] == 7 && eos[1] == 2 && tokenizer_is_eos(u, 2) && !tokenizer_is_eos(u, 3) &&
              tokenizer_kind(u) == TOK_HF);
        check_ids(u, "ab", 2, -1, (int[]) { 3, 4, 5 }, 3);
        CHECK(tokenizer_pack(u, &b, &m, &e) == TGC_OK && m == n && !memcmp(a, b, n));
        tokenizer_free(u);
        tokenizer_free(t);
        free(b);

        for (size_t cut = 0; cut < n; cut += cut < 100 ? 1 : 37)
                CHECK(tokenizer_unpack(&u, a, cut, &e) == TGC_BAD_FILE && !u);
        bad = malloc(n);
        for (size_t at = 0; at < 68; at++) { /* head: nothing there may do worse than be refused */
                memcpy(bad, a, n);
                bad[at] = (char)(bad[at] ^ 0x81);
                if (tokenizer_unpack(&u, bad, n, &e) == TGC_OK)
                        tokenizer_free(u);
        }
        free(bad);
        free(a);
}

TEST (model_smaller_than_tokenizer) {
        Tokenizer *t = open_own("llama2.json", 262);
        int *ids, n_ids;
        Err e = { 0 };

        CHECK(tokenizer_encode(t, "12", 2, 0, &ids, &n_ids, &e) == TGC_BAD_FILE && !ids);
        CHECK_MSG(strstr(e.msg, "but the model has 262"), "%s", e.msg);
        tokenizer_free(t);
        CHECK(tokenizer_open(&t, OWN "pieces.bin", 5000, &e) == TGC_BAD_FILE);
        CHECK_MSG(strstr(e.msg, "tokens, the model 5000"), "%s", e.msg);
        CHECK(tokenizer_open(&t, "no/such/file.json", 0, &e) == TGC_BAD_FILE && !t &&
              strstr(e.msg, "no/such/file"));
}

TEST_MAIN
