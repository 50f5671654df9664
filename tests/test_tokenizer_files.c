/* test_tokenizer_files.c: each part of a tokenizer.json, and files that are wrong in every way one
 * can think of.
 *
 * The ids of the tokenizers below are Hugging Face tokenizers' own. */
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tokenizer_test.h"

TEST (hf_parts) {
        static const struct {
                const char *name, *text;
                int n, ids[8];
                const char *back;
                Parts p;
        } row[] = {
                { "merges go by rank", "abc", 2, { 5, 3 }, "abc", { 0 } },
                { "merges as lists", "abc", 2, { 5, 3 }, "abc", { .merges = MERGE_LISTS } },
                { "a whole word first",
                  "abc",
                  1,
                  { 18 },
                  "abc",
                  { .model = "'ignore_merges':true," } },
                { "llama",
                  "ab éa",
                  7,
                  { 25, 4, 5, 4, 13, 14, 1 },
                  "ab éa",
                  { .norm = LLAMA_NORM,
                    .post = TEMPLATE,
                    .added = ADDED(25, "<s>", SPECIAL),
                    .dec = LLAMA_DECODE,
                    .model = "'unk_token':'<unk>','byte_fallback':true,'fuse_unk':true," } },
                { "each stretch is normalised",
                  "ab<s>ab",
                  5,
                  { 4, 5, 25, 4, 5 },
                  "ab ab",
                  { .norm = LLAMA_NORM, .added = ADDED(25, "<s>", SPECIAL), .dec = LLAMA_DECODE } },
                { "unknown ones fuse",
                  "axyzb",
                  3,
                  { 1, 0, 2 },
                  "a<unk>b",
                  { .model = "'unk_token':'<unk>','fuse_unk':true," } },
                { "unknown ones stay apart",
                  "axyzb",
                  5,
                  { 1, 0, 0, 0, 2 },
                  "a<unk><unk><unk>b",
                  { .model = "'unk_token':'<unk>','fuse_unk':false," } },
                { "unknown ones are dropped", "axyzb", 1, { 5 }, "ab", { 0 } },
                { "bytes overtake the unknown",
                  "axéb",
                  5,
                  { 1, 13, 14, 0, 2 },
                  "a<0xC3><0xA9><unk>b",
                  { .model = "'unk_token':'<unk>','byte_fallback':true," } },
                { "byte level",
                  "ab  aé",
                  5,
                  { 5, 7, 8, 22, 23 },
                  "ab  aé",
                  { .pre = BYTES("false", ""), .dec = BYTES("true", "") } },
                { "byte level, prefix",
                  "ab a",
                  3,
                  { 7, 5, 8 },
                  " ab a",
                  { .pre = BYTES("true", ""), .dec = BYTES("true", "") } },
                { "byte level, no regex",
                  "a12 a",
                  3,
                  { 1, 11, 8 },
                  "a12 a",
                  { .pre = BYTES("false", ",'use_regex':false"), .dec = BYTES("true", "") } },
                { "split isolated",
                  "abab",
                  4,
                  { 1, 2, 1, 2 },
                  "abab",
                  { .pre = SPLIT("'Regex':'b'", "Isolated", "false") } },
                { "split removed",
                  "abab",
                  2,
                  { 1, 1 },
                  "aa",
                  { .pre = SPLIT("'String':'b'", "Removed", "false") } },
                { "split with previous",
                  "abbcb",
                  4,
                  { 5, 2, 3, 2 },
                  "abbcb",
                  { .pre = SPLIT("'String':'b'", "MergedWithPrevious", "false") } },
                { "split with next",
                  "abcbb",
                  4,
                  { 1, 24, 2, 2 },
                  "abcbb",
                  { .pre = SPLIT("'String':'b'", "MergedWithNext", "false") } },
                { "split contiguous",
                  "abcab",
                  3,
                  { 5, 3, 5 },
                  "abcab",
                  { .pre = SPLIT("'Regex':'[ab]'", "Contiguous", "false") } },
                { "split inverted",
                  "abc!ab",
                  3,
                  { 5, 3, 5 },
                  "abcab",
                  { .pre = SPLIT("'Regex':'[a-c]+'", "Removed", "true") } },
                { "split at empty matches",
                  "abab",
                  4,
                  { 1, 2, 1, 2 },
                  "abab",
                  { .pre = SPLIT("'Regex':'(?=b)'", "Isolated", "false") } },
                { "metaspace",
                  "ab a  a",
                  5,
                  { 4, 5, 6, 4, 6 },
                  "ab a  a",
                  { .pre = METASPACE("always", "true"), .dec = METASPACE("always", "true") } },
                { "metaspace first",
                  "a<x>a",
                  3,
                  { 6, 25, 1 },
                  "a<x>a",
                  { .pre = METASPACE("first", "false"),
                    .added = ADDED(25, "<x>", RAW),
                    .dec = METASPACE("first", "false") } },
                { "metaspace never",
                  "ab a",
                  2,
                  { 5, 6 },
                  "ab a",
                  { .pre = METASPACE("never", "true"), .dec = METASPACE("never", "true") } },
                { "digits",
                  "a12a",
                  3,
                  { 1, 11, 1 },
                  "a12a",
                  { .pre = "{'type':'Digits','individual_digits':false}" } },
                { "each digit",
                  "a12a",
                  4,
                  { 1, 9, 10, 1 },
                  "a12a",
                  { .pre = "{'type':'Digits','individual_digits':true}" } },
                { "punctuation",
                  "a!b.c",
                  3,
                  { 1, 2, 3 },
                  "abc",
                  { .pre = "{'type':'Punctuation','behavior':'Removed'}" } },
                { "words, no decoder",
                  " ab! c",
                  3,
                  { 5, 12, 3 },
                  "ab ! c",
                  { .pre = "{'type':'Whitespace'}", .dec = "null" } },
                { "white space",
                  " ab! c",
                  3,
                  { 5, 12, 3 },
                  "ab!c",
                  { .pre = "{'type':'WhitespaceSplit'}" } },
                { "sequence",
                  "a12",
                  5,
                  { 8, 7, 9, 7, 10 },
                  " a 1 2",
                  { .pre = SEQUENCE("pretokenizers",
                                    "{'type':'Digits','individual_digits':true}," BYTES("true",
                                                                                        "")),
                    .dec = BYTES("true", "") } },
                { "lower case, stripped",
                  " \tABC\xe3\x80\x80",
                  2,
                  { 5, 3 },
                  "abc",
                  { .norm = SEQUENCE("normalizers",
                                     "{'type':'Lowercase'},"
                                     "{'type':'Strip','strip_left':true,'strip_right':true}") } },
                { "NFC",
                  "e\xcc\x81",
                  2,
                  { 22, 23 },
                  "é",
                  { .norm = "{'type':'NFC'}",
                    .pre = BYTES("false", ""),
                    .dec = BYTES("true", "") } },
                { "NFC loses nothing",
                  "가\xe1\x86\xa7"
                  "a",
                  2,
                  { 25, 1 },
                  "가\xe1\x86\xa7"
                  "a",
                  { .norm = "{'type':'NFC'}",
                    .vocab = VOCAB ",'가\xe1\x86\xa7':25,'가':26,'\xe1\x86\xa7':27",
                    .merges = "'가 \xe1\x86\xa7'" } },
                { "NFKC", "ａ①", 2, { 1, 9 }, "a1", { .norm = "{'type':'NFKC'}" } },
                { "accents off",
                  "é",
                  1,
                  { 16 },
                  "e",
                  { .norm = SEQUENCE("normalizers", "{'type':'NFD'},{'type':'StripAccents'}") } },
                { "replaced",
                  "axyb",
                  3,
                  { 1, 9, 2 },
                  "a1b",
                  { .norm = "{'type':'Replace','pattern':{'Regex':'[xy]+'},'content':'1'}" } },
                { "the longest added token",
                  "a<x><xb",
                  4,
                  { 1, 26, 25, 2 },
                  "a<x><xb",
                  { .added = ADDED(25, "<x", RAW) "," ADDED(26, "<x>", RAW) } },
                { "an added token with its spaces",
                  "a  <x>  b",
                  3,
                  { 1, 25, 2 },
                  "a<x>b",
                  { .added = ADDED(25, "<x>", RAW ",'lstrip':true,'rstrip':true") } },
                { "an added token as a word",
                  "1 a1 1",
                  6,
                  { 9, 20, 1, 9, 20, 9 },
                  "1 a1 1",
                  { .added = ADDED(9, "1", RAW ",'single_word':true") } },
                { "an added token, normalised",
                  "aB!",
                  2,
                  { 1, 25 },
                  "ab!",
                  { .norm = "{'type':'Lowercase'}",
                    .added = ADDED(25, "b!", ",'normalized':true") } },
        };

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                Tokenizer *t;
                Err e = { 0 };
                size_t n;
                char *back;

                CHECK_MSG(hf_new(&t, row[i].p, &e) == TGC_OK, "%s: %s", row[i].name, e.msg);
                check_ids(t, row[i].text, strlen(row[i].text), -1, row[i].ids, row[i].n);
                back = decode_all(t, row[i].ids, row[i].n, &n);
                CHECK_MSG(!strcmp(back, row[i].back), "%s: decoded '%s', expected '%s'",
                          row[i].name, back, row[i].back);
                free(back);
                tokenizer_free(t);
        }
}

/* Bytes that are not UTF-8 pass through a byte-level tokenizer, whatever its steps. */
TEST (hf_not_utf8) {
        size_t n = 0;
        char vocab[8192];
        Tokenizer *t;
        Err e = { 0 };

        for (int b = 0; b < 256;
             b++) /* the stand-ins: printable Latin-1 as it is, the others from U+0100 */
                if ((b > 32 && b < 127 && b != '"' && b != '\\' && b != '\'') ||
                    (b > 160 && b != 173))
                        n += (size_t)sprintf(vocab + n, "'\\u%04x':%d,", (unsigned)b, b);
        for (int b = 0, k = 0; b < 256; b++)
                if (b < 33 || (b > 126 && b < 161) || b == 173)
                        n += (size_t)sprintf(vocab + n, "'\\u%04x':%d,", (unsigned)(256 + k++), b);
        sprintf(vocab + n, "'\\u0022':34,'\\u005c':92,'\\u0027':39");
        CHECK_MSG(hf_new(&t,
                         (Parts) { .vocab = vocab,
                                   .merges = "",
                                   .pre = BYTES("false", ""),
                                   .dec = BYTES("true", ""),
                                   .norm = "{'type':'NFC'}" },
                         &e) == TGC_OK,
                  "%s", e.msg);
        CHECK(tokenizer_vocab(t) == 256);
        check_ids(t, "a\xff \xc3", 4, 0, (int[]) { 'a', 255, ' ', 0xc3 }, 4);
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

/* Precompiled sees a letter with its marks as one, also marks that are younger than utf8proc. */
TEST (young_marks) {
        Tokenizer *t;
        Err e = { 0 };

        CHECK_MSG(tokenizer_open(&t, "tests/data/tokenizers/unigram.json", 0, &e) == TGC_OK, "%s",
                  e.msg);
        check_ids(t,
                  "bA\xcc\x81"
                  "b",
                  5, 0, (int[]) { 41, 142 }, 2);
        check_ids(t,
                  "bA\xf0\x91\xad\xa6"
                  "b",
                  7, 0, (int[]) { 41, 142 }, 2);
        check_ids(t,
                  "bA\xf0\x91\xad\xa6\xf0\x91\xad\xa2"
                  "b",
                  11, 0, (int[]) { 41, 2, 142 }, 3);
        check_ids(t,
                  "b\t\xf0\x91\xad\xa6"
                  "b",
                  7, 0, (int[]) { 3, 142, 3, 2, 142 }, 5);
        tokenizer_free(t);
}

/* The first token may be empty; it lies somewhere all the same (run with SAN=1). */
TEST (empty_token) {
        Tokenizer *t;
        Err e = { 0 };

        CHECK_MSG(hf_new(&t, (Parts) { .vocab = "'':0,'a':1", .merges = "" }, &e) == TGC_OK, "%s",
                  e.msg);
        CHECK(tokenizer_find(t, "", 0) == 0);
        check_ids(t, "aa", 2, 0, (int[]) { 1, 1 }, 2);
        check_round_trip(t, "aa", 2);
        tokenizer_free(t);
}

/* NUL is a character like any other: in the vocabulary, in merges, in added tokens and in text. */
TEST (nul_character) {
        Tokenizer *t;
        char *text;
        size_t n;
        Err e = { 0 };

        CHECK_MSG(hf_new(&t,
                         (Parts) { .vocab = "'a':0,'\\u0000':1,'a\\u0000':2,'':3,'\\u0000<':4",
                                   .merges = "'a \\u0000'",
                                   .added = ADDED(4, "\\u0000<", RAW) },
                         &e) == TGC_OK,
                  "%s", e.msg);
        check_ids(t, "a\0\0aa\0<", 7, 0, (int[]) { 2, 1, 0, 0, 4 }, 5);
        check_round_trip(t, "a\0\0aa\0<", 7);
        CHECK(tokenizer_text(t, (int[]) { 2, 3, 4 }, 3, &text, &n, &e) == TGC_OK && n == 4 &&
              !memcmp(text, "a\0\0<", 5));
        free(text);
        tokenizer_free(t);
}

/* ---- refusals
 * --------------------------------------------------------------------------------- */

TEST (hf_refused_by_name) {
        static const struct {
                Parts p;
                const char *why;
        } row[] = {
                { { .norm = "{'type':'Precompiled'}" },
                  "Precompiled: 'precompiled_charsmap' should be a string" },
                { { .norm = "{'type':'Precompiled','precompiled_charsmap':'abc'}" }, "not base64" },
                { { .norm = "{'type':'Precompiled','precompiled_charsmap':'BAAAAA=='}" },
                  "its trie has 4 bytes, of 0" },
                { { .norm = "{'type':'Precompiled','precompiled_charsmap':'AAAAAP8='}" },
                  "replacements of the character map are not UTF-8" },
                { { .norm = SEQUENCE("normalizers", "{'type':'NFC'},{'type':'Nothing'}") },
                  "normalizer of type 'Nothing' is not supported" },
                { { .norm = "{'type':'BertNormalizer','lowercase':true}" },
                  "BertNormalizer: 'clean_text' should be true or false" },
                { { .norm = "{'type':'Replace','pattern':'x','content':'y'}" },
                  "'pattern' should be" },
                { { .norm = "{'type':'Strip','strip_left':1,'strip_right':true}" },
                  "'strip_left' should be true or false" },
                { { .norm = "[]" }, "normalizer of type ''" },
                { { .norm = "{'type':'Sequence'}" }, "'normalizers' should be a list" },
                { { .norm = "{'type':'Prepend','prepend':7}" }, "'prepend' should be a string" },
                { { .pre = SPLIT("'Regex':'a\\u0000b'", "Isolated", "false") },
                  "a NUL character in a regular expression" },
                { { .pre = SPLIT("'Regex':'[[:alpha:]]'", "Isolated", "false") }, "this [: :]" },
                { { .pre = "{'type':'UnicodeScripts'}" },
                  "pre_tokenizer of type 'UnicodeScripts'" },
                { { .pre = SPLIT("'Regex':'('", "Isolated", "false") },
                  "regular expression '(': missing" },
                { { .pre = SPLIT("'Regex':'[a&&b]'", "Isolated", "false") }, "&& within a class" },
                { { .pre = SPLIT("'Regex':'a{2}+'", "Isolated", "false") }, "+ after {}" },
                { { .pre = SPLIT("'Regex':'(?im:a)'", "Isolated", "false") }, "the flag m" },
                { { .pre = SPLIT("'Regex':'\\\\C'", "Isolated", "false") }, "\\C" },
                { { .pre = SPLIT("'Regex':'a'", "Sideways", "false") }, "behavior 'Sideways'" },
                { { .pre = "{'type':'Metaspace','replacement':'ab'}" },
                  "'replacement' should be one character" },
                { { .pre = "{'type':'Metaspace','replacement':'_','prepend_scheme':'last'}" },
                  "prepend_scheme 'last'" },
                { { .post = "{'type':'BertProcessing','sep':['a',1]}" }, "the ids of 'cls'" },
                { { .post = "{'type':'RobertaProcessing','cls':['a',1],'sep':['b']}" },
                  "the ids of 'sep'" },
                { { .post = "{'type':'TemplateProcessing','single':[{'Sequence':{'id':'B'}}]}" },
                  "should have the text A once" },
                { { .post = "{'type':'Other'}" }, "post_processor of type 'Other'" },
                { { .post = "{'type':'TemplateProcessing',"
                            "'single':[{'SpecialToken':{'id':'<s>'}}]}" },
                  "without ids" },
                { { .post = "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'s'}}],"
                            "'special_tokens':{'s':{'ids':[99]}}}" },
                  "id 99 is not in the vocabulary" },
                { { .post = "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'s'}}],"
                            "'special_tokens':{'s':{'ids':[1e300,-1]}}}" },
                  "whole numbers" },
                { { .dec = "{'type':'WordPiece'}" }, "WordPiece: 'prefix' should be a string" },
                { { .dec = "{'type':'CTC'}" }, "decoder of type 'CTC' is not supported" },
                { { .dec = "{'type':'BPEDecoder'}" }, "decoder of type 'BPEDecoder'" },
                { { .dec = SEQUENCE("decoders", FUSE ",{'type':'ByteFallback'}") },
                  "ByteFallback after Fuse" },
                { { .dec = SEQUENCE("decoders", FUSE
                                    ",{'type':'Replace','pattern':{'String':'a'},'content':'b'}") },
                  "Replace after Fuse" },
                { { .dec = SEQUENCE("decoders",
                                    "{'type':'ByteFallback'},{'type':'Strip','content':' "
                                    "','start':1,'stop':0}") },
                  "Strip after ByteFallback" },
                { { .dec = SEQUENCE("decoders",
                                    FUSE ",{'type':'Strip','content':' ','start':0,'stop':1}") },
                  "'stop'" },
                { { .dec = "{'type':'Strip','content':' ','start':-1,'stop':0}" },
                  "'start' should be a whole number" },
                { { .model = "'dropout':0.1," }, "dropout" },
                { { .model = "'end_of_word_suffix':'</w>'," }, "end_of_word_suffix" },
                { { .model = "'unk_token':'nobody'," }, "'unk_token' is not a token" },
                { { .model = "'byte_fallback':'yes'," },
                  "'byte_fallback' should be true or false" },
                { { .vocab = "", .merges = "" }, "no tokens" },
                { { .vocab = "'a':0,'a':1", .merges = "" }, "key \"a\" given twice" },
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
                { { .added = "{'id':99,'content':'a'}" },
                  "added token 'a' has id 99, and 1 in the vocabulary" },
                { { .added = "{'id':1,'content':'new'}" }, "two tokens have id 1" },
                { { .added = "{'id':-3,'content':'new'}" }, "'id' should be a whole number" },
                { { .added = "{'content':'new'}" }, "'id' should be a whole number" },
                { { .added = "3" }, "'content' should be a string" },
        };

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                Tokenizer *t;
                Err e = { 0 };
                int rc = hf_new(&t, row[i].p, &e);

                CHECK_MSG(rc == TGC_BAD_FILE && !t, "'%s' was accepted", row[i].why);
                CHECK_MSG(strstr(e.msg, row[i].why), "'%s', expected '%s'", e.msg, row[i].why);
        }
}

/* Other models than BPE. */
TEST (models_refused) {
        static const char *const row[][2] = {
                { "'type':'WordPiece','vocab':{'a':0}", "WordPiece: 'unk_token' is not a token" },
                { "'type':'WordPiece','unk_token':'b','vocab':{'a':0}",
                  "WordPiece: 'unk_token' is not a token" },
                { "'type':'WordPiece','unk_token':'a','vocab':['a']", "not an object" },
                { "'type':'WordPiece','unk_token':'a','vocab':{'a':0},"
                  "'max_input_chars_per_word':-1",
                  "'max_input_chars_per_word' should be a whole number" },
                { "'type':'WordPiece','unk_token':'a','vocab':{'a':0},'continuing_subword_prefix':'"
                  "0123456789012345678901234567890123456789012345678901234567890123'",
                  "longer than 63 bytes" },
                { "'type':'WordLevel','vocab':{'a':0}", "WordLevel: 'unk_token' is not a token" },
                { "'type':'Unigram','vocab':[['a',0]]", "'unk_id' should be a whole number" },
                { "'type':'Unigram','unk_id':null,'vocab':[['a',0]]", "'unk_id' should be" },
                { "'type':'Unigram','unk_id':1,'vocab':[['a',0]]",
                  "'unk_id' is 1, but 'vocab' has 1 pieces" },
                { "'type':'Unigram','unk_id':0,'vocab':{'a':0}", "'vocab' should be a list" },
                { "'type':'Unigram','unk_id':0,'vocab':[['a']]", "piece 0 should be" },
                { "'type':'Unigram','unk_id':0,'vocab':[['a','1']]", "piece 0 should be" },
                { "'type':'Unigram','unk_id':0,'vocab':[['a',1,2]]", "piece 0 should be" },
                { "'type':'Unigram','unk_id':0,'vocab':[['a',1],['a',1]]",
                  "token 'a' is there twice" },
                { "'type':'Other','vocab':{}", "model of type 'Other' is not supported" },
        };

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                char text[512];
                int n = snprintf(text, sizeof text, "{'model':{%s}}", row[i][0]);
                Tokenizer *t;
                Err e = { 0 };

                for (char *c = text; *c; c++)
                        *c = *c == '\'' ? '"' : *c;
                CHECK_MSG(tokenizer_new(&t, TOK_HF, text, (size_t)n, &e) == TGC_BAD_FILE && !t,
                          "%s was accepted", text);
                for (char *c = e.msg; *c; c++)
                        *c = *c == '"' ? '\'' : *c;
                CHECK_MSG(strstr(e.msg, row[i][1]), "'%s', expected '%s'", e.msg, row[i][1]);
        }
}

TEST (bert_refused) {
        static const struct {
                const char *settings, *vocab, *why;
        } row[] = { { "", "a\nb\n", "vocab.txt: no token [UNK]" },
                    { "", "[UNK]\na\na\n", "token 'a' is there twice" },
                    { "{", "[UNK]\n", "tokenizer_config.json" },
                    { "{\"do_lower_case\":1}", "[UNK]\n",
                      "'do_lower_case' should be true or false" },
                    { NULL, "[UNK]\n", "settings without vocab.txt" } };

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                char text[256];
                int n = row[i].settings ? snprintf(text, sizeof text, "%s%c%s", row[i].settings, 0,
                                                   row[i].vocab)
                                        : snprintf(text, sizeof text, "%s", row[i].vocab);
                Tokenizer *t;
                Err e = { 0 };

                CHECK(tokenizer_new(&t, TOK_BERT, text, (size_t)n, &e) == TGC_BAD_FILE && !t);
                CHECK_MSG(strstr(e.msg, row[i].why), "'%s', expected '%s'", e.msg, row[i].why);
        }
}

TEST (hf_not_json) {
        static const char *const text[] = {
                "",
                "{",
                "[]",
                "null",
                "7",
                "{}",
                "{\"model\":null}",
                "{\"model\":[]}",
                "{\"model\":{\"type\":\"BPE\"}}",
                "{\"model\":{\"type\":\"Unigram\"}}",
                "{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}",
                "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":{}}}"
        };

        for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
                Tokenizer *t;
                Err e = { 0 };
                CHECK_MSG(tokenizer_new(&t, TOK_HF, text[i], strlen(text[i]), &e) == TGC_BAD_FILE &&
                                  !t && *e.msg,
                          "%s", text[i]);
        }
}

TEST (llama2c_refused) {
        enum { N = 259 };
        unsigned char good[16384];
        size_t n = 4;
        Tokenizer *t;
        Err e = { 0 };

        memcpy(good, &(int32_t) { 7 }, 4);
        for (int id = 0; id < N; id++) {
                char s[16];
                float score = 0;
                int32_t len = id == 0   ? sprintf(s, "<unk>")
                              : id == 1 ? sprintf(s, "\n<s>\n")
                              : id == 2 ? sprintf(s, "\n</s>\n")
                                        : sprintf(s, "<0x%02X>", (unsigned)(id - 3));
                memcpy(good + n, &score, 4);
                memcpy(good + n + 4, &len, 4);
                memcpy(good + n + 8, s, (size_t)len);
                n += 8 + (size_t)len;
        }
        CHECK_MSG(tokenizer_new(&t, TOK_LLAMA2C, good, n, &e) == TGC_OK, "%s", e.msg);
        check_ids(t, "a", 1, 1, (int[]) { 1, 3 + ' ', 3 + 'a' }, 3);
        tokenizer_free(t);

        for (size_t cut = 0; cut < n; cut++) /* wherever it ends, it is refused */
                CHECK_MSG(tokenizer_new(&t, TOK_LLAMA2C, good, cut, &e) == TGC_BAD_FILE && !t,
                          "cut at %zu", cut);
        for (int i = 0; i < 4; i++) {
                static const int32_t len[] = { -1, INT32_MAX, INT32_MIN, 65536 };
                memcpy(good + 8, &len[i], 4);
                CHECK(tokenizer_new(&t, TOK_LLAMA2C, good, n, &e) == TGC_BAD_FILE &&
                      strstr(e.msg, "token 0"));
        }
}

TEST (tiktoken_refused) {
        static const struct {
                const char *text, *why;
        } row[] = { { "YQ== 0\n", "no vocabulary of 1 tokens is known" },
                    { "YQ==\n", "line 1" },
                    { "YQ== x\n", "line 1" },
                    { "YQ== 0\nYQ== 1\n", "twice" },
                    { "YQ== 0\nYg== 0\n", "two tokens have id 0" },
                    { "YQ= 0\n", "line 1" },
                    { "Y=Q= 0\n", "line 1" },
                    { " 0\n", "line 1" },
                    { "YQ== -1\n", "line 1" },
                    { "YQ== 99999999999999999999\n", "line 1" },
                    { "Y\xff== 1\n", "line 1" },
                    { "\n\n", "no vocabulary of 0" } };

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                Tokenizer *t;
                Err e = { 0 };
                CHECK(tokenizer_new(&t, TOK_TIKTOKEN, row[i].text, strlen(row[i].text), &e) ==
                              TGC_BAD_FILE &&
                      !t);
                CHECK_MSG(strstr(e.msg, row[i].why), "'%s', expected '%s'", e.msg, row[i].why);
        }
}

/* Damaged files load or are refused; either way nothing else happens (run with SAN=1). */
TEST (damaged_files) {
        static const struct {
                const char *path;
                int kind, n_try;
        } file[] = { { OWN "llama2.json", TOK_HF, 400 },
                     { OWN "llama3.json", TOK_HF, 400 },
                     { OWN "pieces.bin", TOK_LLAMA2C, 1500 },
                     { OWN "pieces_user.model", TOK_SPM, 1500 } };
        static const char text[] = "Once upon a time \xf0\x9f\xa6\x99\xff <s>12";
        uint32_t x = 1;

        for (size_t k = 0; k < sizeof file / sizeof *file; k++) {
                size_t n, m;
                char *good = slurp(file[k].path, &n), *s = malloc(n), *back;

                for (int i = 0; i < file[k].n_try; i++) {
                        Tokenizer *t;
                        int *ids, n_ids;
                        Err e = { 0 };

                        memcpy(s, good, n);
                        for (int j = 0; j <= i % 4; j++) {
                                x = x * 1664525 + 1013904223;
                                s[x % (j & 1 ? n : 2500)] = (char)(x >> 24 & (j & 2 ? 255 : 127));
                        }
                        if (tokenizer_new(&t, file[k].kind, s, i % 5 ? n : x % n, &e) != TGC_OK) {
                                CHECK(!t && *e.msg);
                                continue;
                        }
                        if (tokenizer_encode(t, text, sizeof text - 1, 1, &ids, &n_ids, &e) ==
                            TGC_OK) {
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

#ifndef __SANITIZE_ADDRESS__ /* which keeps what is freed */
/* A file takes memory in proportion to its bytes, whatever it is full of. */
TEST (memory) {
        static const char *const fill[] = { "0,", "[],", "\"\",", "{}," };

        for (size_t k = 0; k < sizeof fill / sizeof *fill; k++) {
                size_t n, m = 8 << 20, part = strlen(fill[k]);
                char *good = hf_json((Parts) { 0 }, &n), *s = malloc(n + m + 64), *p = s;
                pid_t pid;
                int status;

                memcpy(p, good, n - 1); /* all but its last brace */
                p += n - 1;
                p += sprintf(p, ",\"more\":[");
                for (size_t i = 0; i + part <= m; i += part, p += part)
                        memcpy(p, fill[k], part);
                p += sprintf(p, "0]}");
                if (!(pid = fork())) {
                        struct rusage before, after;
                        Tokenizer *t;
                        Err e = { 0 };

                        getrusage(RUSAGE_SELF, &before);
                        if (tokenizer_new(&t, TOK_HF, s, (size_t)(p - s), &e) != TGC_OK)
                                _exit(2);
                        getrusage(RUSAGE_SELF, &after);
                        _exit(after.ru_maxrss - before.ru_maxrss > 3 * (long)(m >> 10));
                }
                CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
                CHECK_MSG(WEXITSTATUS(status) == 0, "'%s': %s", fill[k],
                          WEXITSTATUS(status) == 1 ? "more than 4 times the file" : "refused");
                free(good);
                free(s);
        }
}
#endif

/* A pattern that backtracks without end gives up, and says so. */
TEST (regex_limit) {
        char text[64];
        Tokenizer *t;
        int *ids, n_ids;
        Err e = { 0 };

        memset(text, 'a', sizeof text);
        CHECK_MSG(hf_new(&t, (Parts) { .pre = SPLIT("'Regex':'(a+)+[!.]'", "Isolated", "false") },
                         &e) == TGC_OK,
                  "%s", e.msg);
        CHECK(tokenizer_encode(t, text, sizeof text, 0, &ids, &n_ids, &e) == TGC_FAIL && !ids);
        CHECK_MSG(strstr(e.msg, "gave up"), "%s", e.msg);
        tokenizer_free(t);
}

TEST_MAIN
