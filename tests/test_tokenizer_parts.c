/* test_tokenizer_parts.c: tokenizers built from pieces in memory, as a GGUF reader builds them,
 * against the same vocabularies read from files. */
#include <stdint.h>
#include "../runtime/util/file.h"
#include "tokenizer_test.h"

/* Room for a vocabulary. */
typedef struct Pieces {
        TokText *piece, *merge;
        float *score;
        int *kind, n, n_merge;
} Pieces;

static void pieces_free(Pieces *p)
{
        free(p->piece);
        free(p->merge);
        free(p->score);
        free(p->kind);
}

static TokParts parts_of(const Pieces *p, const char *model, const char *pre)
{
        TokParts q = TOK_PARTS_NONE;

        q.model = model;
        q.pre = pre;
        q.piece = p->piece;
        q.n_piece = p->n;
        q.merge = p->merge;
        q.n_merge = p->n_merge;
        q.score = p->score;
        q.kind = p->kind;
        return q;
}

static Tokenizer *build(const TokParts *p)
{
        Tokenizer *t;
        Err e = { 0 };

        CHECK_MSG(tok_from_parts(&t, p, &e) == TGC_OK, "%s", e.msg);
        return t;
}

static Tokenizer *open_own(const char *path)
{
        Tokenizer *t;
        Err e = { 0 };

        CHECK_MSG(tokenizer_open(&t, path, 0, &e) == TGC_OK, "%s", e.msg);
        return t;
}

/* a and b give the same ids for texts of many kinds, and texts back that are the same. */
static void check_same(const Tokenizer *a, const Tokenizer *b)
{
        static const char *const some[] = { "Hello",
                                            " world",
                                            "don't",
                                            "I'LL",
                                            "  ",
                                            "\n",
                                            "\t",
                                            "12",
                                            "2024",
                                            "3.14",
                                            "na\xc3\xafve",
                                            "\xe4\xb8\xad\xe6\x96\x87",
                                            "\xf0\x9f\x98\x80",
                                            "\xce\xbc",
                                            "e\xcc\x81",
                                            "x=1;",
                                            "<s>",
                                            "\xe2\x96\x81",
                                            "ba de ko",
                                            "th",
                                            "\r\n",
                                            "\xff",
                                            "/" };
        uint32_t x = 7;
        Err e = { 0 };

        for (int i = 0; i < 400; i++) {
                char text[256];
                int *ia, *ib, na, nb;
                size_t n = 0, ma, mb;
                char *ta, *tb;

                for (int k = 0; k < 1 + i % 12; k++) {
                        x = x * 1664525 + 1013904223;
                        const char *s = some[(x >> 8) % (sizeof some / sizeof *some)];
                        memcpy(text + n, s, strlen(s));
                        n += strlen(s);
                }
                CHECK(tokenizer_encode(a, text, n, 0, &ia, &na, &e) == TGC_OK);
                CHECK(tokenizer_encode(b, text, n, 0, &ib, &nb, &e) == TGC_OK);
                text[n] = 0;
                CHECK_MSG(na == nb && !memcmp(ia, ib, (size_t)na * sizeof *ia),
                          "'%s': other ids than the file's", text);
                ta = decode_all(a, ia, na, &ma);
                tb = decode_all(b, ib, nb, &mb);
                CHECK_MSG(ma == mb && !memcmp(ta, tb, ma), "'%s' came back as '%s' and '%s'", text,
                          ta, tb);
                free(ia);
                free(ib);
                free(ta);
                free(tb);
        }
}

/* tokenizer.bin's scores and lengths; its texts as sentencepiece writes them are in `from`. */
static Pieces sentence_pieces(const Tokenizer *from, const char *bin)
{
        Pieces p = { .n = tokenizer_vocab(from) };
        size_t at = 4;

        p.piece = calloc((size_t)p.n, sizeof *p.piece);
        p.score = calloc((size_t)p.n, sizeof *p.score);
        p.kind = calloc((size_t)p.n, sizeof *p.kind);
        for (int i = 0; i < p.n; i++) {
                int len;
                memcpy(&p.score[i], bin + at, 4);
                memcpy(&len, bin + at + 4, 4);
                at += 8 + (size_t)len;
                p.piece[i].p = tokenizer_piece(from, i, &p.piece[i].n);
                p.kind[i] = i == 0    ? TOK_UNKNOWN
                            : i < 3   ? TOK_CONTROL
                            : i < 259 ? TOK_BYTE
                                      : TOK_NORMAL;
        }
        return p;
}

TEST (llama_parts) {
        Tokenizer *file = open_own(OWN "pieces.model"), *t, *again;
        size_t n;
        char *bin = slurp(OWN "pieces.bin", &n);
        Pieces p = sentence_pieces(file, bin);
        TokParts q = parts_of(&p, "llama", NULL);
        void *blob;
        Err e = { 0 };

        q.bos = 1;
        q.unk = 0;
        q.eos[q.n_eos++] = 2;
        t = build(&q);
        CHECK(tokenizer_bos(t) == 1 && tokenizer_adds_bos(t) && tokenizer_is_eos(t, 2));
        CHECK(tokenizer_is_special(t, 0) && !tokenizer_is_special(t, 259));
        /* a control piece is found in the text, as Hugging Face finds it; sentencepiece does not */
        int ids[] = { 1, 1 }, *got, n_got;
        CHECK(tokenizer_encode(t, "<s>", 3, -1, &got, &n_got, &e) == TGC_OK);
        CHECK(n_got == 2 && !memcmp(got, ids, sizeof ids));
        free(got);
        p.kind[1] = p.kind[2] = p.kind[0] = TOK_UNUSED;
        again = build(&q);
        check_same(file, again);
        tokenizer_free(again);

        q.add_bos = 0;
        q.add_space_prefix = 0;
        again = build(&q);
        CHECK(!tokenizer_adds_bos(again));
        CHECK(tokenizer_encode(again, " a", 2, 0, &got, &n_got, &e) == TGC_OK);
        check_ids(file, "a", 1, 0, got, n_got); /* which puts the space there itself */
        free(got);
        tokenizer_free(again);

        CHECK(tokenizer_pack(t, &blob, &n, &e) == TGC_OK);
        CHECK_MSG(tokenizer_unpack(&again, blob, n, &e) == TGC_OK, "%s", e.msg);
        check_same(t, again);
        free(blob);
        tokenizer_free(again);
        tokenizer_free(t);
        tokenizer_free(file);
        pieces_free(&p);
        free(bin);
}

/* vocab.json + merges.txt */
static Pieces byte_pieces(const Tokenizer *from, char *merges)
{
        Pieces p = { .n = tokenizer_vocab(from) };

        p.piece = calloc((size_t)p.n, sizeof *p.piece);
        p.kind = calloc((size_t)p.n, sizeof *p.kind);
        p.merge = calloc(4096, sizeof *p.merge);
        for (int i = 0; i < p.n; i++) {
                p.piece[i].p = tokenizer_piece(from, i, &p.piece[i].n);
                p.kind[i] = tokenizer_is_special(from, i) ? TOK_CONTROL : TOK_NORMAL;
        }
        for (char *line = strtok(merges, "\n"); line; line = strtok(NULL, "\n"))
                if (strncmp(line, "#version", 8))
                        p.merge[p.n_merge++] = (TokText) { line, strlen(line) };
        return p;
}

TEST (gpt2_parts) {
        Tokenizer *file = open_own(OWN "gpt2"), *t;
        size_t n;
        char *merges = slurp(OWN "gpt2/merges.txt", &n);
        Pieces p = byte_pieces(file, merges);
        TokParts q = parts_of(&p, "gpt2", "gpt-2");

        t = build(&q);
        check_same(file, t);
        CHECK(tokenizer_bos(t) == -1 && !tokenizer_adds_bos(t));
        tokenizer_free(t);
        tokenizer_free(file);
        pieces_free(&p);
        free(merges);
}

/* The same vocabulary as make.py's files, cut as they are. */
TEST (pre_tokenizers) {
        static const struct {
                const char *pre, *file;
        } row[] = { { "llama-bpe", OWN "llama3.json" },    { "gpt-4o", OWN "o200k.json" },
                    { "starcoder", OWN "starcoder.json" }, { "falcon", OWN "falcon.json" },
                    { "bloom", OWN "bloom.json" },         { "gpt-2", OWN "gpt2.json" } };

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                Tokenizer *file = open_own(row[i].file), *t;
                size_t n;
                char *merges = slurp(OWN "gpt2/merges.txt", &n);
                Pieces p = byte_pieces(file, merges);
                TokParts q = parts_of(&p, "gpt2", row[i].pre);

                q.bos = tokenizer_bos(file);
                q.add_bos = tokenizer_adds_bos(file);
                t = build(&q);
                check_same(file, t);
                tokenizer_free(t);
                tokenizer_free(file);
                pieces_free(&p);
                free(merges);
        }
}

/* WordPiece: GGUF marks where words begin, Hugging Face where they go on. */
TEST (bert_parts) {
        Tokenizer *file = open_own(OWN "wordpiece.json"), *t;
        Pieces p = { .n = tokenizer_vocab(file) };
        const int *ids;
        TokParts q;
        char *text;

        p.piece = calloc((size_t)p.n, sizeof *p.piece);
        p.kind = calloc((size_t)p.n, sizeof *p.kind);
        text = calloc((size_t)p.n, 64);
        for (int i = 0; i < p.n; i++) {
                size_t n;
                const char *s = tokenizer_piece(file, i, &n);
                bool special = tokenizer_is_special(file, i), on = n > 2 && !memcmp(s, "##", 2);
                char *to = text + 64 * i;
                int len = sprintf(to, "%s%.*s", special || on ? "" : "\xe2\x96\x81",
                                  (int)(on ? n - 2 : n), on ? s + 2 : s);
                p.piece[i] = (TokText) { to, (size_t)len };
                p.kind[i] = special ? TOK_CONTROL : TOK_NORMAL;
        }
        q = parts_of(&p, "bert", NULL);
        q.unk = tokenizer_find(file, "[UNK]", 5);
        q.bos = tokenizer_find(file, "[CLS]", 5);
        q.sep = tokenizer_find(file, "[SEP]", 5);
        t = build(&q);
        check_same(file, t);
        CHECK(tokenizer_bos(t) == tokenizer_bos(file) && tokenizer_adds_bos(t));
        CHECK(tokenizer_suffix(t, &ids) == 1 && ids[0] == q.sep);
        check_ids(t, "[CLS]", 5, 1, (int[]) { q.bos, q.bos }, 2);
        tokenizer_free(t);
        tokenizer_free(file);
        pieces_free(&p);
        free(text);
}

/* ---- sentencepiece's file, taken apart (tests only: nothing is checked) ---------------------- */

static uint64_t varint(const char **p)
{
        uint64_t x = 0;
        for (int shift = 0;; shift += 7) {
                unsigned char c = (unsigned char)*(*p)++;
                x |= (uint64_t)(c & 127) << shift;
                if (c < 128)
                        return x;
        }
}

/* The next field; its bytes, or its value, are *s. */
static int field(const char **p, TokText *s, uint64_t *value)
{
        uint64_t tag = varint(p);

        s->n = (tag & 7) == 5 ? 4 : (tag & 7) == 1 ? 8 : 0;
        *value = (tag & 7) == 0 || (tag & 7) == 2 ? varint(p) : 0;
        if ((tag & 7) == 2)
                s->n = (size_t)*value;
        s->p = *p;
        *p += s->n;
        return (int)(tag >> 3);
}

static void take_apart(const char *file, size_t n, Pieces *out, TokText *map)
{
        const char *p = file, *q;
        TokText message, s;
        uint64_t value;

        out->piece = calloc(n, sizeof *out->piece);
        out->score = calloc(n, sizeof *out->score);
        out->kind = calloc(n, sizeof *out->kind);
        while (p < file + n) {
                int id = field(&p, &message, &value), i = out->n;
                for (q = message.p; q < message.p + message.n && (id == 1 || id == 3);) {
                        int f = field(&q, &s, &value);
                        if (id == 3 && f == 2)
                                *map = s;
                        else if (id == 1 && f == 1)
                                out->piece[i] = s;
                        else if (id == 1 && f == 2)
                                memcpy(&out->score[i], s.p, 4);
                        else if (id == 1 && f == 3)
                                out->kind[i] = (int)value;
                }
                if (id == 1 && !out->kind[i])
                        out->kind[i] = TOK_NORMAL;
                out->n += id == 1;
        }
}

TEST (t5_parts) {
        Tokenizer *file = open_own(OWN "spm_unigram.model"), *t;
        size_t n;
        char *model = slurp(OWN "spm_unigram.model", &n);
        Pieces p = { 0 };
        TokText map = { 0 };
        const int *ids;
        TokParts q;

        take_apart(model, n, &p, &map);
        CHECK(p.n == tokenizer_vocab(file) && map.n);
        for (int i = 0; i < 3; i++)
                p.kind[i] = TOK_UNUSED; /* sentencepiece does not find these in a text */
        q = parts_of(&p, "t5", NULL);
        q.unk = 0;
        q.eos[q.n_eos++] = 2;
        q.charsmap = map.p;
        q.n_charsmap = map.n;
        t = build(&q);
        check_same(file, t);
        CHECK(!tokenizer_adds_bos(t) && tokenizer_suffix(t, &ids) == 1 && ids[0] == 2);
        tokenizer_free(t);
        tokenizer_free(file);
        pieces_free(&p);
        free(model);
}

TEST (every_name) {
        static const char *const name[] = { "llama-bpe", "llama3",       "qwen2",
                                            "gpt-2",     "deepseek-llm", "deepseek-coder",
                                            "falcon",    "olmo",         "starcoder",
                                            "refact",    "command-r",    "deepseek-v3",
                                            "smollm",    "dbrx",         "stablelm2",
                                            "tekken",    "chatglm-bpe",  "deepseek-r1-qwen",
                                            "gpt-4o",    "llama4",       "exaone",
                                            "exaone4",   "minerva-7b",   "mpt",
                                            "bloom",     "viking",       "bailingmoe",
                                            "seed-coder" };
        Tokenizer *file = open_own(OWN "gpt2"), *t;
        size_t n;
        char *merges = slurp(OWN "gpt2/merges.txt", &n);
        Pieces p = byte_pieces(file, merges);
        static const char text[] = "I'll  go to Zoo 12345\n\n \xe4\xb8\xad! (x_y)";

        for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
                TokParts q = parts_of(&p, "gpt2", name[i]);
                t = build(&q);
                check_round_trip(t, text, sizeof text - 1);
                tokenizer_free(t);
        }
        tokenizer_free(file);
        pieces_free(&p);
        free(merges);
}

/* The other way: vocabularies of files as parts, which cut a text as the file does. */
TEST (parts_of_files) {
        static const struct {
                const char *file, *model, *pre; /* model NULL: it has no parts */
        } want[] = {
                { "gpt2.json", "gpt2", "gpt-2" },
                { "llama3.json", "gpt2", "llama-bpe" },
                { "o200k.json", "gpt2", "gpt-4o" },
                { "starcoder.json", "gpt2", "starcoder" },
                { "falcon.json", "gpt2", "falcon" },
                { "bloom.json", "gpt2", "bloom" },
                /* its vocabulary here is too small to tell this from deepseek-v3 */
                { "deepseek.json", "gpt2", "llama-bpe" },
                { "llama2.json", "llama", "default" },
                { "phi3.json", "llama", "default" },
                { "wordpiece.json", NULL, "BPE" },
                { "unigram.json", NULL, "BPE" },
                { "digits.json", NULL, "no way to cut" },
                { "qwen.json", NULL, "no way to cut" }, /* a token is looked for after NFC */
        };
        size_t n;
        char *text;
        Err err;
        CHECK(!file_read_text("tests/data/text/stories.txt", 1 << 20, &text, &n, &err));
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
                char path[200];
                Tokenizer *t, *made;
                TokParts p;
                void *owned;
                int *a, *b, na, nb;
                snprintf(path, sizeof path, "tests/data/tokenizers/%s", want[i].file);
                CHECK_MSG(!tokenizer_open(&t, path, 0, &err), "%s", err.msg);
                const int code = tok_to_parts(t, tokenizer_vocab(t) + 2, &p, &owned, &err);
                if (!want[i].model) {
                        CHECK_MSG(code == TGC_USAGE && strstr(err.msg, want[i].pre) && !owned,
                                  "%s: %s", path, code ? err.msg : "has parts");
                        tokenizer_free(t);
                        continue;
                }
                CHECK_MSG(!code, "%s: %s", path, err.msg);
                CHECK_MSG(!strcmp(p.model, want[i].model) && !strcmp(p.pre, want[i].pre),
                          "%s: %s, %s", path, p.model, p.pre);
                CHECK(p.n_piece == tokenizer_vocab(t) + 2 && p.kind[p.n_piece - 1] == TOK_UNUSED);
                CHECK_MSG(!tok_from_parts(&made, &p, &err), "%s: %s", path, err.msg);
                CHECK(!tokenizer_encode(t, text, n, -1, &a, &na, &err) &&
                      !tokenizer_encode(made, text, n, -1, &b, &nb, &err));
                CHECK_MSG(na == nb && !memcmp(a, b, (size_t)na * sizeof *a), "%s: other ids", path);
                free(b);
                /* and as files of a folder */
                char *json, *settings;
                CHECK_MSG(!tokenizer_json(made, "{{ \"x\" }}", &json, &settings, &err), "%s",
                          err.msg);
                CHECK_MSG((json != NULL) == !strcmp(p.model, "gpt2"), "%s: %s tokenizer.json", path,
                          json ? "has a" : "has no");
                if (json) {
                        Tokenizer *again;
                        CHECK_MSG(strstr(settings, "\"chat_template\": \"{{ \\\"x\\\" }}\""), "%s",
                                  settings);
                        CHECK_MSG(!tokenizer_new(&again, TOK_HF, json, strlen(json), &err), "%s",
                                  err.msg);
                        CHECK(!tokenizer_encode(again, text, n, -1, &b, &nb, &err));
                        CHECK_MSG(na == nb && !memcmp(a, b, (size_t)na * sizeof *a),
                                  "%s: other ids by its tokenizer.json", path);
                        CHECK(tokenizer_vocab(again) == tokenizer_vocab(made));
                        free(b);
                        tokenizer_free(again);
                }
                free(json);
                free(settings);
                free(a);
                free(owned);
                tokenizer_free(made);
                tokenizer_free(t);
        }
        free(text);
}

TEST (wrong_parts) {
        static const TokText piece[] = { { "a", 1 }, { "b", 1 }, { "ab", 2 }, { "<s>", 3 } },
                             same[] = { { "a", 1 }, { "a", 1 } }, merge[] = { { "a b", 3 } },
                             odd[] = { { "ab", 2 } }, gone[] = { { "a c", 3 } };
        static const float score[] = { 0, 0, 0, 0 };
        static const int kind[] = { TOK_BYTE, 1, 1, 1 };
        static const struct {
                const char *why;
                TokParts p;
        } row[] = {
                { "model 'rwkv' is not supported",
                  { .model = "rwkv", .piece = piece, .n_piece = 4 } },
                { "model '' is not supported", { .piece = piece, .n_piece = 4 } },
                { "0 pieces", { .model = "gpt2" } },
                { "token 'a' is there twice", { .model = "gpt2", .piece = same, .n_piece = 2 } },
                { "model 'llama' without scores",
                  { .model = "llama", .piece = piece, .n_piece = 4 } },
                { "model 'gpt2' without merges",
                  { .model = "gpt2", .piece = piece, .n_piece = 4 } },
                { "the pre-tokenizer 'default' is not known",
                  { .model = "gpt2",
                    .pre = "default",
                    .piece = piece,
                    .n_piece = 4,
                    .merge = merge,
                    .n_merge = 1 } },
                { "names no pre-tokenizer",
                  { .model = "gpt2", .piece = piece, .n_piece = 4, .merge = merge, .n_merge = 1 } },
                { "merge 0, 'ab', is not two tokens",
                  { .model = "gpt2",
                    .pre = "gpt-2",
                    .piece = piece,
                    .n_piece = 4,
                    .merge = odd,
                    .n_merge = 1 } },
                { "the second is not in the vocabulary",
                  { .model = "gpt2",
                    .pre = "gpt-2",
                    .piece = piece,
                    .n_piece = 4,
                    .merge = gone,
                    .n_merge = 1 } },
                { "token 0 'a' is said to be a byte",
                  { .model = "llama",
                    .piece = piece,
                    .n_piece = 4,
                    .score = score,
                    .kind = kind } },
                { "model 'bert' without an unknown id",
                  { .model = "bert", .piece = piece, .n_piece = 4, .unk = -1 } },
                { "model 't5' without an unknown id",
                  { .model = "t5", .piece = piece, .n_piece = 4, .score = score, .unk = -1 } },
                { "the character map says its trie has",
                  { .model = "t5",
                    .piece = piece,
                    .n_piece = 4,
                    .score = score,
                    .charsmap = "\xff\0\0\0",
                    .n_charsmap = 4 } },
                { "the BOS id is 4, but the vocabulary has 4",
                  { .model = "llama", .piece = piece, .n_piece = 4, .score = score, .bos = 4 } },
                { "the EOS id is 9",
                  { .model = "llama",
                    .piece = piece,
                    .n_piece = 4,
                    .score = score,
                    .eos = { 9 },
                    .n_eos = 1 } },
                { "no id of BOS is given",
                  { .model = "llama",
                    .piece = piece,
                    .n_piece = 4,
                    .score = score,
                    .bos = -1,
                    .add_bos = 1 } },
        };

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                Tokenizer *t;
                Err e = { 0 };
                CHECK_MSG(tok_from_parts(&t, &row[i].p, &e) == TGC_BAD_FILE && !t, "%s",
                          row[i].why);
                CHECK_MSG(strstr(e.msg, row[i].why), "'%s', expected '%s'", e.msg, row[i].why);
        }
}

/* ---- llama.cpp's files that hold only a vocabulary ------------------------------------------ */

static uint64_t u64_at(const char *p)
{
        uint64_t x;
        memcpy(&x, p, 8);
        return x;
}

/* The items of an array of a GGUF file, by its key; *n of them.  Tests only: nothing is checked. */
static const char *gguf_array(const char *file, size_t size, const char *key, int *n)
{
        char head[64];
        size_t k = strlen(key);
        uint64_t len = k;
        const char *p;

        memcpy(head, &len, 8);
        memcpy(head + 8, key, k);
        *n = 0;
        if (!(p = memmem(file, size, head, 8 + k)))
                return NULL;
        p += 8 + k + 8; /* array, of what */
        *n = (int)u64_at(p);
        return p + 8;
}

static TokText *gguf_strings(const char *file, size_t size, const char *key, int *n)
{
        const char *p = gguf_array(file, size, key, n);
        TokText *s = calloc((size_t)*n + 1, sizeof *s);

        for (int i = 0; i < *n; i++) {
                s[i] = (TokText) { p + 8, (size_t)u64_at(p) };
                p += 8 + s[i].n;
        }
        return s;
}

static void check_gguf(const char *name, const char *model, const char *pre, const char *other)
{
        size_t size;
        char *file = slurp(data_at("tokenizers/ggml-vocab/ggml-vocab-%s.gguf", name), &size);
        Pieces p = { 0 };
        const char *scores, *kinds;
        Tokenizer *t, *ref = open_own(data_at("%s", other));
        TokParts q;
        int n;

        p.piece = gguf_strings(file, size, "tokenizer.ggml.tokens", &p.n);
        p.merge = gguf_strings(file, size, "tokenizer.ggml.merges", &p.n_merge);
        if ((scores = gguf_array(file, size, "tokenizer.ggml.scores", &n))) {
                p.score = calloc((size_t)p.n, sizeof *p.score);
                memcpy(p.score, scores, (size_t)n * 4);
        }
        kinds = gguf_array(file, size, "tokenizer.ggml.token_type", &n);
        CHECK(kinds && n == p.n);
        p.kind = calloc((size_t)p.n, sizeof *p.kind);
        memcpy(p.kind, kinds, (size_t)n * 4);
        q = parts_of(&p, model, pre);
        q.unk = p.score ? 0 : -1;
        for (int i = 0; i < 3 && p.score; i++)
                p.kind[i] = TOK_UNUSED; /* the file that it is compared with does not find these */
        t = build(&q);
        check_same(ref, t);
        tokenizer_free(ref);
        tokenizer_free(t);
        pieces_free(&p);
        free(file);
}

TEST_SHARED(gguf_gpt2) { check_gguf("gpt-2", "gpt2", "gpt-2", "tokenizers/gpt2"); }
TEST_SHARED(gguf_llama)
{
        check_gguf("llama-spm", "llama", NULL, "tokenizers/llama2/tokenizer.model");
}

TEST_MAIN
