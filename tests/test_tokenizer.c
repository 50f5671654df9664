/* test_tokenizer.c: ids against other programs' ids, text back from ids, and files
 * that are wrong in every way one can think of.
 *
 * The ids of the inline tokenizers below are Hugging Face tokenizers' own. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "../runtime/tokenizer.h"
#include "test.h"

#define DATA "../shared/data/"

/* A whole file, with a NUL behind it; skips the test where there is none. */
static char *slurp(const char *path, size_t *n)
{
        FILE *f = fopen(path, "rb");
        char *s;
        long size;

        if (!f)
                SKIP("no test data at ../shared/data");
        fseek(f, 0, SEEK_END);
        size = ftell(f);
        rewind(f);
        s = malloc((size_t)size + 1);
        *n = fread(s, 1, (size_t)size, f);
        fclose(f);
        CHECK(*n == (size_t)size);
        s[*n] = 0;
        return s;
}

static Tokenizer *open_or_skip(const char *path, int vocab)
{
        Tokenizer *t;
        Err e = {0};

        if (access(path, R_OK) != 0)
                SKIP("no test data at ../shared/data");
        CHECK_MSG(tokenizer_open(&t, path, vocab, &e) == TGC_OK, "%s", e.msg);
        return t;
}

static void check_ids(const Tokenizer *t, const char *text, size_t n, int add_bos, const int *want, int n_want)
{
        int *ids, n_ids;
        Err e = {0};

        CHECK_MSG(tokenizer_encode(t, text, n, add_bos, &ids, &n_ids, &e) == TGC_OK, "%s", e.msg);
        CHECK_MSG(n_ids == n_want, "'%.40s': %d ids, expected %d", text, n_ids, n_want);
        for (int i = 0; i < n_ids; i++)
                CHECK_MSG(ids[i] == want[i], "'%.40s': id %d is %d, expected %d", text, i, ids[i], want[i]);
        free(ids);
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

static char *decode_all(const Tokenizer *t, const int *ids, int n_ids, size_t *n)
{
        size_t cap = 64;
        char *s;

        for (int i = 0; i < n_ids; i++)
                cap += tokenizer_decode(t, i ? ids[i - 1] : -1, ids[i], NULL, 0);
        s = malloc(cap);
        *n = 0;
        for (int i = 0; i < n_ids; i++)
                *n += tokenizer_decode(t, i ? ids[i - 1] : -1, ids[i], s + *n, cap - *n);
        s[*n] = 0;
        return s;
}

/* Encode, decode, compare; returns the seconds encoding took. */
static double check_round_trip(const Tokenizer *t, const char *text, size_t n)
{
        struct timespec a, b;
        int *ids, n_ids;
        Err e = {0};
        size_t m;
        char *s;

        clock_gettime(CLOCK_MONOTONIC, &a);
        CHECK_MSG(tokenizer_encode(t, text, n, -1, &ids, &n_ids, &e) == TGC_OK, "%s", e.msg);
        clock_gettime(CLOCK_MONOTONIC, &b);
        s = decode_all(t, ids, n_ids, &m);
        CHECK_MSG(m == n && !memcmp(s, text, n), "'%.40s' came back as '%.40s'", text, s);
        free(s);
        free(ids);
        return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
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

/* A sentencepiece model becomes, byte for byte, what llama2.c's own tool makes of it. */
TEST(sentencepiece_model)
{
        Tokenizer *t = open_or_skip(DATA "tokenizers/llama2/tokenizer.model", 0);
        size_t n, m;
        char *bin = slurp(DATA "tokenizers/llama2/tokenizer.bin", &n);
        void *pack;
        Err e = {0};

        CHECK(tokenizer_kind(t) == TOK_LLAMA2C && tokenizer_pack(t, &pack, &m, &e) == TGC_OK);
        CHECK(m > n && !memcmp((char *)pack + m - n, bin, n));
        free(pack);
        free(bin);
        tokenizer_free(t);
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

/* ---- each part of a tokenizer.json ------------------------------------------------------- */

/* JSON with ' for ": base vocabulary, and parts that are null unless a row gives them. */
#define VOCAB "'<unk>':0,'a':1,'b':2,'c':3,'▁':4,'ab':5,'▁a':6,'Ġ':7,'Ġa':8,'1':9,'2':10,'12':11,'!':12,'<0xC3>':13," \
              "'<0xA9>':14,'A':15,'e':16,'Ċ':17,'abc':18,'ĠĠ':19,' ':20,'.':21,'Ã':22,'©':23,'bc':24"
#define MERGES "'a b','▁ a','Ġ a','1 2','b c','a bc','Ġ Ġ'"
#define MERGE_LISTS "['a','b'],['▁','a'],['Ġ','a'],['1','2'],['b','c'],['a','bc'],['Ġ','Ġ']"

#define ADDED(id, text, more) "{'id':" #id ",'content':'" text "'" more "}"
#define RAW                   ",'normalized':false"
#define SPECIAL               ",'special':true,'normalized':false"
#define SPLIT(pattern, cut, invert) "{'type':'Split','pattern':{" pattern "},'behavior':'" cut "','invert':" invert "}"
#define METASPACE(scheme, split) \
        "{'type':'Metaspace','replacement':'▁','prepend_scheme':'" scheme "','split':" split "}"
#define BYTES(prefix, more)   "{'type':'ByteLevel','add_prefix_space':" prefix ",'trim_offsets':true" more "}"
#define SEQUENCE(list, parts) "{'type':'Sequence','" list "':[" parts "]}"
#define FUSE                  "{'type':'Fuse'}"
#define LLAMA_NORM   SEQUENCE("normalizers", "{'type':'Prepend','prepend':'▁'}," \
                              "{'type':'Replace','pattern':{'String':' '},'content':'▁'}")
#define LLAMA_DECODE SEQUENCE("decoders", "{'type':'Replace','pattern':{'String':'▁'},'content':' '}," \
                              "{'type':'ByteFallback'}," FUSE ",{'type':'Strip','content':' ','start':1,'stop':0}")
#define TEMPLATE     "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>','type_id':0}}," \
                     "{'Sequence':{'id':'A','type_id':0}}],'special_tokens':{'<s>':{'id':'<s>','ids':[25]}}}"

typedef struct Parts { const char *norm, *pre, *post, *dec, *model, *added, *vocab, *merges; } Parts;

static char *hf_json(Parts p, size_t *n)
{
        char *s = NULL;
        int len = asprintf(&s, "{'added_tokens':[%s],'normalizer':%s,'pre_tokenizer':%s,'post_processor':%s,"
                           "'decoder':%s,'model':{'type':'BPE',%s'vocab':{%s},'merges':[%s]}}",
                           p.added ? p.added : "", p.norm ? p.norm : "null", p.pre ? p.pre : "null",
                           p.post ? p.post : "null", p.dec ? p.dec : FUSE, p.model ? p.model : "",
                           p.vocab ? p.vocab : VOCAB, p.merges ? p.merges : MERGES);

        for (char *c = s; *c; c++)
                if (*c == '\'')
                        *c = '"';
        *n = (size_t)len;
        return s;
}

static int hf_new(Tokenizer **t, Parts p, Err *e)
{
        size_t n;
        char *s = hf_json(p, &n);
        int rc = tokenizer_new(t, TOK_HF, s, n, e);

        free(s);
        return rc;
}

TEST(hf_parts)
{
        static const struct { const char *name, *text; int n, ids[8]; const char *back; Parts p; } row[] = {
        { "merges go by rank", "abc", 2, { 5, 3 }, "abc", { 0 } },
        { "merges as lists", "abc", 2, { 5, 3 }, "abc", { .merges = MERGE_LISTS } },
        { "a whole word first", "abc", 1, { 18 }, "abc", { .model = "'ignore_merges':true," } },
        { "llama", "ab éa", 7, { 25, 4, 5, 4, 13, 14, 1 }, "ab éa",
          { .norm = LLAMA_NORM, .post = TEMPLATE, .added = ADDED(25, "<s>", SPECIAL), .dec = LLAMA_DECODE,
            .model = "'unk_token':'<unk>','byte_fallback':true,'fuse_unk':true," } },
        { "each stretch is normalised", "ab<s>ab", 5, { 4, 5, 25, 4, 5 }, "ab ab",
          { .norm = LLAMA_NORM, .added = ADDED(25, "<s>", SPECIAL), .dec = LLAMA_DECODE } },
        { "unknown ones fuse", "axyzb", 3, { 1, 0, 2 }, "a<unk>b",
          { .model = "'unk_token':'<unk>','fuse_unk':true," } },
        { "unknown ones stay apart", "axyzb", 5, { 1, 0, 0, 0, 2 }, "a<unk><unk><unk>b",
          { .model = "'unk_token':'<unk>','fuse_unk':false," } },
        { "unknown ones are dropped", "axyzb", 1, { 5 }, "ab", { 0 } },
        { "bytes overtake the unknown", "axéb", 5, { 1, 13, 14, 0, 2 }, "a<0xC3><0xA9><unk>b",
          { .model = "'unk_token':'<unk>','byte_fallback':true," } },
        { "byte level", "ab  aé", 5, { 5, 7, 8, 22, 23 }, "ab  aé",
          { .pre = BYTES("false", ""), .dec = BYTES("true", "") } },
        { "byte level, prefix", "ab a", 3, { 7, 5, 8 }, " ab a",
          { .pre = BYTES("true", ""), .dec = BYTES("true", "") } },
        { "byte level, no regex", "a12 a", 3, { 1, 11, 8 }, "a12 a",
          { .pre = BYTES("false", ",'use_regex':false"), .dec = BYTES("true", "") } },
        { "split isolated", "abab", 4, { 1, 2, 1, 2 }, "abab", { .pre = SPLIT("'Regex':'b'", "Isolated", "false") } },
        { "split removed", "abab", 2, { 1, 1 }, "aa", { .pre = SPLIT("'String':'b'", "Removed", "false") } },
        { "split with previous", "abbcb", 4, { 5, 2, 3, 2 }, "abbcb",
          { .pre = SPLIT("'String':'b'", "MergedWithPrevious", "false") } },
        { "split with next", "abcbb", 4, { 1, 24, 2, 2 }, "abcbb",
          { .pre = SPLIT("'String':'b'", "MergedWithNext", "false") } },
        { "split contiguous", "abcab", 3, { 5, 3, 5 }, "abcab",
          { .pre = SPLIT("'Regex':'[ab]'", "Contiguous", "false") } },
        { "split inverted", "abc!ab", 3, { 5, 3, 5 }, "abcab",
          { .pre = SPLIT("'Regex':'[a-c]+'", "Removed", "true") } },
        { "split at empty matches", "abab", 4, { 1, 2, 1, 2 }, "abab",
          { .pre = SPLIT("'Regex':'(?=b)'", "Isolated", "false") } },
        { "metaspace", "ab a  a", 5, { 4, 5, 6, 4, 6 }, "ab a  a",
          { .pre = METASPACE("always", "true"), .dec = METASPACE("always", "true") } },
        { "metaspace first", "a<x>a", 3, { 6, 25, 1 }, "a<x>a",
          { .pre = METASPACE("first", "false"), .added = ADDED(25, "<x>", RAW), .dec = METASPACE("first", "false") } },
        { "metaspace never", "ab a", 2, { 5, 6 }, "ab a",
          { .pre = METASPACE("never", "true"), .dec = METASPACE("never", "true") } },
        { "digits", "a12a", 3, { 1, 11, 1 }, "a12a", { .pre = "{'type':'Digits','individual_digits':false}" } },
        { "each digit", "a12a", 4, { 1, 9, 10, 1 }, "a12a", { .pre = "{'type':'Digits','individual_digits':true}" } },
        { "punctuation", "a!b.c", 3, { 1, 2, 3 }, "abc", { .pre = "{'type':'Punctuation','behavior':'Removed'}" } },
        { "words, no decoder", " ab! c", 3, { 5, 12, 3 }, "ab ! c", { .pre = "{'type':'Whitespace'}", .dec = "null" } },
        { "white space", " ab! c", 3, { 5, 12, 3 }, "ab!c", { .pre = "{'type':'WhitespaceSplit'}" } },
        { "sequence", "a12", 5, { 8, 7, 9, 7, 10 }, " a 1 2",
          { .pre = SEQUENCE("pretokenizers", "{'type':'Digits','individual_digits':true}," BYTES("true", "")),
            .dec = BYTES("true", "") } },
        { "lower case, stripped", " \tABC\xe3\x80\x80", 2, { 5, 3 }, "abc",
          { .norm = SEQUENCE("normalizers", "{'type':'Lowercase'},"
                             "{'type':'Strip','strip_left':true,'strip_right':true}") } },
        { "NFC", "e\xcc\x81", 2, { 22, 23 }, "é",
          { .norm = "{'type':'NFC'}", .pre = BYTES("false", ""), .dec = BYTES("true", "") } },
        { "NFKC", "ａ①", 2, { 1, 9 }, "a1", { .norm = "{'type':'NFKC'}" } },
        { "accents off", "é", 1, { 16 }, "e",
          { .norm = SEQUENCE("normalizers", "{'type':'NFD'},{'type':'StripAccents'}") } },
        { "replaced", "axyb", 3, { 1, 9, 2 }, "a1b",
          { .norm = "{'type':'Replace','pattern':{'Regex':'[xy]+'},'content':'1'}" } },
        { "the longest added token", "a<x><xb", 4, { 1, 26, 25, 2 }, "a<x><xb",
          { .added = ADDED(25, "<x", RAW) "," ADDED(26, "<x>", RAW) } },
        { "an added token with its spaces", "a  <x>  b", 3, { 1, 25, 2 }, "a<x>b",
          { .added = ADDED(25, "<x>", RAW ",'lstrip':true,'rstrip':true") } },
        { "an added token as a word", "1 a1 1", 6, { 9, 20, 1, 9, 20, 9 }, "1 a1 1",
          { .added = ADDED(9, "1", RAW ",'single_word':true") } },
        { "an added token, normalised", "aB!", 2, { 1, 25 }, "ab!",
          { .norm = "{'type':'Lowercase'}", .added = ADDED(25, "b!", ",'normalized':true") } },
        };

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                Tokenizer *t;
                Err e = {0};
                size_t n;
                char *back;

                CHECK_MSG(hf_new(&t, row[i].p, &e) == TGC_OK, "%s: %s", row[i].name, e.msg);
                check_ids(t, row[i].text, strlen(row[i].text), -1, row[i].ids, row[i].n);
                back = decode_all(t, row[i].ids, row[i].n, &n);
                CHECK_MSG(!strcmp(back, row[i].back), "%s: decoded '%s', expected '%s'", row[i].name, back,
                          row[i].back);
                free(back);
                tokenizer_free(t);
        }
}

/* Bytes that are not UTF-8 pass through a byte-level tokenizer, whatever its steps. */
TEST(hf_not_utf8)
{
        size_t n = 0;
        char vocab[8192];
        Tokenizer *t;
        Err e = {0};

        for (int b = 0; b < 256; b++)           /* the stand-ins: printable Latin-1 as it is, the others from U+0100 */
                if ((b > 32 && b < 127 && b != '"' && b != '\\' && b != '\'') || (b > 160 && b != 173))
                        n += (size_t)sprintf(vocab + n, "'\\u%04x':%d,", (unsigned)b, b);
        for (int b = 0, k = 0; b < 256; b++)
                if (b < 33 || (b > 126 && b < 161) || b == 173)
                        n += (size_t)sprintf(vocab + n, "'\\u%04x':%d,", (unsigned)(256 + k++), b);
        sprintf(vocab + n, "'\\u0022':34,'\\u005c':92,'\\u0027':39");
        CHECK_MSG(hf_new(&t, (Parts){ .vocab = vocab, .merges = "", .pre = BYTES("false", ""), .dec = BYTES("true", ""),
                                      .norm = "{'type':'NFC'}" }, &e) == TGC_OK, "%s", e.msg);
        CHECK(tokenizer_vocab(t) == 256);
        check_ids(t, "a\xff \xc3", 4, 0, (int[]){ 'a', 255, ' ', 0xc3 }, 4);
        for (int i = 0; i < 2000; i++) {
                char s[9];
                for (int j = 0; j < 9; j++)
                        s[j] = (char)(i * 2654435761u >> (j + 8)) ^ (char)(i << j);
                int *ids, n_ids;
                CHECK_MSG(tokenizer_encode(t, s, 9, 0, &ids, &n_ids, &e) == TGC_OK, "%s", e.msg);
                free(ids);
        }
        check_round_trip(t, "\x80\xf0\x9f\xa6 \xed\xa0\x80!\xc0\x80", 11);
        tokenizer_free(t);
}

/* ---- refusals --------------------------------------------------------------------------------- */

TEST(hf_refused_by_name)
{
        static const struct { Parts p; const char *why; } row[] = {
        { { .norm = "{'type':'Precompiled'}" }, "normalizer of type 'Precompiled' is not supported" },
        { { .norm = SEQUENCE("normalizers", "{'type':'NFC'},{'type':'Nmt'}") }, "'Nmt'" },
        { { .norm = "{'type':'Replace','pattern':'x','content':'y'}" }, "'pattern' should be" },
        { { .norm = "{'type':'Strip','strip_left':1,'strip_right':true}" }, "'strip_left' should be true or false" },
        { { .norm = "[]" }, "normalizer of type ''" },
        { { .norm = "{'type':'Sequence'}" }, "'normalizers' should be a list" },
        { { .norm = "{'type':'Prepend','prepend':7}" }, "'prepend' should be a string" },
        { { .norm = "{'type':'Prepend','prepend':'a\\u0000b'}" }, "NUL" },
        { { .pre = "{'type':'UnicodeScripts'}" }, "pre_tokenizer of type 'UnicodeScripts'" },
        { { .pre = SPLIT("'Regex':'('", "Isolated", "false") }, "regular expression '(': missing" },
        { { .pre = SPLIT("'Regex':'[a&&b]'", "Isolated", "false") }, "&& within a class" },
        { { .pre = SPLIT("'Regex':'a{2}+'", "Isolated", "false") }, "+ after {}" },
        { { .pre = SPLIT("'Regex':'(?im:a)'", "Isolated", "false") }, "the flag m" },
        { { .pre = SPLIT("'Regex':'\\\\C'", "Isolated", "false") }, "\\C" },
        { { .pre = SPLIT("'Regex':'a'", "Sideways", "false") }, "behavior 'Sideways'" },
        { { .pre = "{'type':'Metaspace','replacement':'ab'}" }, "'replacement' should be one character" },
        { { .pre = "{'type':'Metaspace','replacement':'_','prepend_scheme':'last'}" }, "prepend_scheme 'last'" },
        { { .post = "{'type':'BertProcessing'}" }, "post_processor of type 'BertProcessing'" },
        { { .post = "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>'}}]}" }, "without ids" },
        { { .post = "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'s'}}],"
                    "'special_tokens':{'s':{'ids':[99]}}}" }, "id 99 is not in the vocabulary" },
        { { .post = "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'s'}}],"
                    "'special_tokens':{'s':{'ids':[1e300,-1]}}}" }, "whole numbers" },
        { { .dec = "{'type':'WordPiece'}" }, "decoder of type 'WordPiece'" },
        { { .dec = SEQUENCE("decoders", FUSE ",{'type':'ByteFallback'}") }, "ByteFallback after Fuse" },
        { { .dec = SEQUENCE("decoders", FUSE ",{'type':'Strip','content':' ','start':0,'stop':1}") }, "'stop'" },
        { { .dec = "{'type':'Strip','content':' ','start':-1,'stop':0}" }, "'start' should be a whole number" },
        { { .model = "'dropout':0.1," }, "dropout" },
        { { .model = "'end_of_word_suffix':'</w>'," }, "end_of_word_suffix" },
        { { .model = "'unk_token':'nobody'," }, "'unk_token' is not a token" },
        { { .model = "'byte_fallback':'yes'," }, "'byte_fallback' should be true or false" },
        { { .vocab = "" , .merges = "" }, "no tokens" },
        { { .vocab = "'a':0,'a':1", .merges = "" }, "'a' is there twice" },
        { { .vocab = "'a':0,'b':0", .merges = "" }, "two tokens have id 0" },
        { { .vocab = "'a':-1", .merges = "" }, "the id of token 'a'" },
        { { .vocab = "'a':1.5", .merges = "" }, "the id of token 'a'" },
        { { .vocab = "'a':4294967296", .merges = "" }, "the id of token 'a'" },
        { { .vocab = "'a':4194304", .merges = "" }, "the id of token 'a'" },
        { { .vocab = "'a':'1'", .merges = "" }, "the id of token 'a'" },
        { { .merges = "'a nobody'" }, "merge 0, 'a' and 'nobody': the second is not" },
        { { .merges = "'a a'" }, "merge 0, 'a' and 'a': their union is not" },
        { { .merges = "'ab'" }, "merge 0 should be" },
        { { .merges = "'a b c'" }, "merge 0 should be" },
        { { .merges = "['a','b','c']" }, "merge 0 should be" },
        { { .merges = "7" }, "merge 0 should be" },
        { { .added = "{'id':99,'content':'a'}" }, "added token 'a' has id 99, and 1 in the vocabulary" },
        { { .added = "{'id':1,'content':'new'}" }, "two tokens have id 1" },
        { { .added = "{'id':-3,'content':'new'}" }, "'id' should be a whole number" },
        { { .added = "{'content':'new'}" }, "'id' should be a whole number" },
        { { .added = "3" }, "'content' should be a string" },
        };

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                Tokenizer *t;
                Err e = {0};
                int rc = hf_new(&t, row[i].p, &e);

                CHECK_MSG(rc == TGC_BAD_FILE && !t, "'%s' was accepted", row[i].why);
                CHECK_MSG(strstr(e.msg, row[i].why), "'%s', expected '%s'", e.msg, row[i].why);
        }
}

TEST(hf_not_json)
{
        static const char *const text[] = {
                "", "{", "[]", "null", "7", "{}", "{\"model\":null}", "{\"model\":[]}",
                "{\"model\":{\"type\":\"BPE\"}}",
                "{\"model\":{\"type\":\"Unigram\"}}", "{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}",
                "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":{}}}"
        };

        for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
                Tokenizer *t;
                Err e = {0};
                CHECK_MSG(tokenizer_new(&t, TOK_HF, text[i], strlen(text[i]), &e) == TGC_BAD_FILE && !t && *e.msg,
                          "%s", text[i]);
        }
}

TEST(llama2c_refused)
{
        enum { N = 259 };
        unsigned char good[16384];
        size_t n = 4;
        Tokenizer *t;
        Err e = {0};

        memcpy(good, &(int32_t){ 7 }, 4);
        for (int id = 0; id < N; id++) {
                char s[16];
                float score = 0;
                int32_t len = id == 0 ? sprintf(s, "<unk>") : id == 1 ? sprintf(s, "\n<s>\n")
                            : id == 2 ? sprintf(s, "\n</s>\n") : sprintf(s, "<0x%02X>", (unsigned)(id - 3));
                memcpy(good + n, &score, 4);
                memcpy(good + n + 4, &len, 4);
                memcpy(good + n + 8, s, (size_t)len);
                n += 8 + (size_t)len;
        }
        CHECK_MSG(tokenizer_new(&t, TOK_LLAMA2C, good, n, &e) == TGC_OK, "%s", e.msg);
        check_ids(t, "a", 1, 1, (int[]){ 1, 3 + ' ', 3 + 'a' }, 3);
        tokenizer_free(t);

        for (size_t cut = 0; cut < n; cut++)            /* wherever it ends, it is refused */
                CHECK_MSG(tokenizer_new(&t, TOK_LLAMA2C, good, cut, &e) == TGC_BAD_FILE && !t, "cut at %zu", cut);
        for (int i = 0; i < 4; i++) {
                static const int32_t len[] = { -1, INT32_MAX, INT32_MIN, 65536 };
                memcpy(good + 8, &len[i], 4);
                CHECK(tokenizer_new(&t, TOK_LLAMA2C, good, n, &e) == TGC_BAD_FILE && strstr(e.msg, "token 0"));
        }
}

TEST(tiktoken_refused)
{
        static const struct { const char *text, *why; } row[] = {
                { "YQ== 0\n", "no vocabulary of 1 tokens is known" }, { "YQ==\n", "line 1" }, { "YQ== x\n", "line 1" },
                { "YQ== 0\nYQ== 1\n", "twice" }, { "YQ== 0\nYg== 0\n", "two tokens have id 0" },
                { "YQ= 0\n", "line 1" }, { "Y=Q= 0\n", "line 1" }, { " 0\n", "line 1" }, { "YQ== -1\n", "line 1" },
                { "YQ== 99999999999999999999\n", "line 1" }, { "Y\xff== 1\n", "line 1" },
                { "\n\n", "no vocabulary of 0" }
        };

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                Tokenizer *t;
                Err e = {0};
                CHECK(tokenizer_new(&t, TOK_TIKTOKEN, row[i].text, strlen(row[i].text), &e) == TGC_BAD_FILE && !t);
                CHECK_MSG(strstr(e.msg, row[i].why), "'%s', expected '%s'", e.msg, row[i].why);
        }
}

/* Damaged files load or are refused; either way nothing else happens (run with SAN=1). */
TEST(damaged_files)
{
        static const struct { const char *path; int kind, n_try; } file[] = {
                { DATA "models/tinystories656k/tokenizer.json", TOK_HF, 150 },
                { DATA "models/stories260K/tok512.bin", TOK_LLAMA2C, 1500 }
        };
        static const char text[] = "Once upon a time \xf0\x9f\xa6\x99\xff <s>12";
        uint32_t x = 1;

        for (size_t k = 0; k < sizeof file / sizeof *file; k++) {
                size_t n, m;
                char *good = slurp(file[k].path, &n), *s = malloc(n), *back;

                for (int i = 0; i < file[k].n_try; i++) {
                        Tokenizer *t;
                        int *ids, n_ids;
                        Err e = {0};

                        memcpy(s, good, n);
                        for (int j = 0; j <= i % 4; j++) {
                                x = x * 1664525 + 1013904223;
                                s[x % (j & 1 ? n : 2500)] = (char)(x >> 24 & (j & 2 ? 255 : 127));
                        }
                        if (tokenizer_new(&t, file[k].kind, s, i % 5 ? n : x % n, &e) != TGC_OK) {
                                CHECK(!t && *e.msg);
                                continue;
                        }
                        if (tokenizer_encode(t, text, sizeof text - 1, 1, &ids, &n_ids, &e) == TGC_OK) {
                                back = decode_all(t, ids, n_ids, &m);
                                free(back);
                                free(ids);
                        }
                        tokenizer_free(t);
                }
                free(s);
                free(good);
        }
}

/* A pattern that backtracks without end gives up, and says so. */
TEST(regex_limit)
{
        char text[64];
        Tokenizer *t;
        int *ids, n_ids;
        Err e = {0};

        memset(text, 'a', sizeof text);
        CHECK_MSG(hf_new(&t, (Parts){ .pre = SPLIT("'Regex':'(a+)+[!.]'", "Isolated", "false") }, &e) == TGC_OK, "%s",
                  e.msg);
        CHECK(tokenizer_encode(t, text, sizeof text, 0, &ids, &n_ids, &e) == TGC_FAIL && !ids);
        CHECK_MSG(strstr(e.msg, "gave up"), "%s", e.msg);
        tokenizer_free(t);
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
        CHECK_MSG(strstr(e.msg, "config.json:1: not JSON"), "%s", e.msg);
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
