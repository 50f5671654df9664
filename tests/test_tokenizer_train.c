/* test_tokenizer_train.c: vocabularies learned from text, against a learner that counts everything
 * anew for each merge, and against the reference of Stanford's CS336. */
#include <stdint.h>
#include "../runtime/util/json.h"
#include "tokenizer_test.h"

/* ---- the slow way ------------------------------------------------------------------------ */

typedef struct Bytes {
        unsigned char s[64];
        int n;
} Bytes;
typedef struct Slow {
        Bytes token[1024]; /* the first 256 are the bytes */
        int n_token, merges[1024][2], n_merge;
        int sym[1 << 14], word[1 << 14], n; /* symbols, and the word each is of */
} Slow;

static int order(const Slow *s, int a, int b)
{
        const Bytes *x = &s->token[a], *y = &s->token[b];
        int c = memcmp(x->s, y->s, (size_t)(x->n < y->n ? x->n : y->n));
        return c ? c : x->n - y->n;
}

static int count_of(const Slow *s, int left, int right)
{
        int n = 0;
        for (int i = 0; i + 1 < s->n; i++)
                n += s->sym[i] == left && s->sym[i + 1] == right && s->word[i] == s->word[i + 1];
        return n;
}

/* One merge; false: no pair is left. */
static bool slow_step(Slow *s)
{
        int left = -1, right = -1, best = 0, id, n = 0;
        Bytes both;

        for (int i = 0; i + 1 < s->n; i++) {
                int a = s->sym[i], b = s->sym[i + 1], c, o;
                if (s->word[i] != s->word[i + 1])
                        continue;
                c = count_of(s, a, b);
                o = c != best           ? c - best
                    : order(s, a, left) ? order(s, a, left)
                                        : order(s, b, right);
                if (left < 0 || o > 0) {
                        left = a;
                        right = b;
                        best = c;
                }
        }
        if (left < 0)
                return false;
        both = s->token[left];
        memcpy(both.s + both.n, s->token[right].s, (size_t)s->token[right].n);
        both.n += s->token[right].n;
        for (id = 0; id < s->n_token; id++)
                if (s->token[id].n == both.n && !memcmp(s->token[id].s, both.s, (size_t)both.n))
                        break;
        if (id == s->n_token)
                s->token[s->n_token++] = both;
        s->merges[s->n_merge][0] = left;
        s->merges[s->n_merge++][1] = right;
        for (int i = 0; i < s->n; n++) {
                bool hit = i + 1 < s->n && s->sym[i] == left && s->sym[i + 1] == right &&
                           s->word[i] == s->word[i + 1];
                s->word[n] = s->word[i];
                s->sym[n] = hit ? id : s->sym[i];
                i += 1 + hit;
        }
        s->n = n;
        return true;
}

/* ---- comparing ---------------------------------------------------------------------------- */

static char *learn(const char *text, size_t n, int vocab, const char *const *special, int n_special,
                   size_t *n_json, TokTrained *what)
{
        TokTrainer *t;
        char *json;
        Err e = { 0 };

        CHECK_MSG(tok_trainer_new(&t, vocab, special, n_special, &e) == TGC_OK, "%s", e.msg);
        CHECK_MSG(tok_trainer_add(t, text, n, &e) == TGC_OK, "%s", e.msg);
        CHECK_MSG(tok_trainer_run(t, &json, n_json, what, &e) == TGC_OK, "%s", e.msg);
        tok_trainer_free(t);
        return json;
}

/* A byte-level string of printable ASCII and the sign for a space. */
static bool says(Json v, const Bytes *b)
{
        char want[256];
        size_t n = 0, m;
        JsonBuf buf = { 0 };
        const char *s = json_string(v, &buf, &m);

        for (int i = 0; i < b->n; i++)
                if (b->s[i] == ' ')
                        n += (size_t)sprintf(want + n, "\xc4\xa0");
                else
                        want[n++] = (char)b->s[i];
        bool same = s && m == n && !memcmp(s, want, n);
        json_buf_free(&buf);
        return same;
}

static void check_merges(const char *json, size_t n, const Slow *slow, const char *text)
{
        JsonText in;
        Json o, list;
        int i = 0;
        Err e = { 0 };

        CHECK_MSG(json_open(&in, &o, json, n, "json", true, &e) == TGC_OK, "%s", e.msg);
        list = json_get(json_get(o, "model"), "merges");
        for (JsonEach m = json_each(list); json_next(&m); i++) {
                JsonEach k = json_each(m.value);
                CHECK(i < slow->n_merge);
                for (int side = 0; side < 2; side++)
                        CHECK_MSG(json_next(&k) &&
                                          says(k.value, &slow->token[slow->merges[i][side]]),
                                  "'%s': merge %d is another one", text, i);
        }
        CHECK_MSG(i == slow->n_merge, "'%s': %d merges, expected %d", text, i, slow->n_merge);
        json_close(&in);
}

TEST (learns_as_the_slow_way) {
        static Slow slow;
        uint32_t x = 3;

        for (int round = 0; round < 300; round++) {
                /* few letters, so that ties and runs of one letter are common */
                int letters = 1 + round % 5, n = 20 + round, want = 256 + 5 + round % 60;
                char *text = malloc((size_t)n + 1), *json;
                size_t n_json;
                TokTrained what;

                slow = (Slow) { .n_token = 256 };
                for (int b = 0; b < 256; b++)
                        slow.token[b] = (Bytes) { { (unsigned char)b }, 1 };
                /* words with single spaces between; a space goes with what follows */
                for (int i = 0, word = 0; i < n; i++) {
                        bool space;
                        x = x * 1664525 + 1013904223;
                        space = i && i + 1 < n && text[i - 1] != ' ' && !((x >> 8) % 7);
                        text[i] = space ? ' ' : (char)('a' + (x >> 12) % (uint32_t)letters);
                        word += space;
                        slow.sym[slow.n] = (unsigned char)text[i];
                        slow.word[slow.n++] = word;
                }
                text[n] = 0;
                while (slow.n_token < want && slow_step(&slow))
                        ;
                json = learn(text, (size_t)n, want, NULL, 0, &n_json, &what);
                CHECK(what.merges == slow.n_merge && what.vocab == slow.n_token);
                CHECK(what.bytes == (uint64_t)n);
                check_merges(json, n_json, &slow, text);
                free(json);
                free(text);
        }
}

/* Special tokens are cut out, come first, and are found again; the file encodes and comes back. */
TEST (special_tokens) {
        static const char text[] = "ab ab<|end|>ab<|x|>ab \xc3\xa9\xc3\xa9\xff\n\n<|end|>12 12";
        static const char *const special[] = { "<|end|>", "<|x|>" };
        TokTrained what;
        size_t n;
        char *json = learn(text, sizeof text - 1, 256 + 2 + 4, special, 2, &n, &what);
        Tokenizer *t;
        Err e = { 0 };

        CHECK(what.vocab == 262 && what.merges == 4);
        CHECK_MSG(tokenizer_new(&t, TOK_HF, json, n, &e) == TGC_OK, "%s", e.msg);
        CHECK(tokenizer_find(t, "<|end|>", 7) == 0 && tokenizer_find(t, "<|x|>", 5) == 1);
        CHECK(tokenizer_find(t, "!", 1) == 2 && tokenizer_is_special(t, 1));
        check_ids(t, "<|x|>!", 6, 0, (int[]) { 1, 2 }, 2);
        check_round_trip(t, "ab 12 \xc3\xa9!", 9);
        tokenizer_free(t);
        free(json);
}

/* A text without a pair to join gives the bytes alone; several texts add up. */
TEST (little_text) {
        TokTrainer *t;
        TokTrained what;
        size_t n;
        char *json = learn("", 0, 300, NULL, 0, &n, &what);
        Err e = { 0 };

        CHECK(what.vocab == 256 && what.merges == 0 && what.words == 0);
        free(json);
        json = learn("a b c", 5, 300, NULL, 0, &n, &what);
        CHECK(what.vocab == 258 && what.merges == 2 && what.words == 3);
        free(json);
        CHECK(tok_trainer_new(&t, 257, NULL, 0, &e) == TGC_OK);
        CHECK(tok_trainer_add(t, "ab cd", 5, &e) == TGC_OK);
        CHECK(tok_trainer_add(t, "cd", 2, &e) == TGC_OK);
        CHECK(tok_trainer_run(t, &json, &n, &what, &e) == TGC_OK);
        CHECK(what.words == 3 && strstr(json, "\"merges\":[[\"c\",\"d\"]]"));
        free(json);
        tok_trainer_free(t);
}

TEST (wrong_requests) {
        static const struct {
                int vocab;
                const char *special[2];
                int n_special;
                const char *why;
        } row[] = { { 255, { NULL }, 0, "256 bytes and 0 special tokens are in it" },
                    { 257, { "<a>", "<b>" }, 2, "258 to" },
                    { 5000000, { NULL }, 0, "a vocabulary of 5000000" },
                    { 300, { "" }, 1, "should be UTF-8 text" },
                    { 300, { "\xff" }, 1, "should be UTF-8 text" },
                    { 300, { "a" }, 1, "'a' is the name of a byte" },
                    { 300, { "\xc4\xa0" }, 1, "is the name of a byte" },
                    { 300, { "<a>", "<a>" }, 2, "'<a>' is given twice" } };
        TokTrainer *t;
        TokTrained what;
        char *json;
        size_t n;
        Err e = { 0 };

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                CHECK(tok_trainer_new(&t, row[i].vocab, row[i].special, row[i].n_special, &e) ==
                              TGC_USAGE &&
                      !t);
                CHECK_MSG(strstr(e.msg, row[i].why), "'%s', expected '%s'", e.msg, row[i].why);
        }
        CHECK(tok_trainer_new(&t, 300,
                              (const char *const[]) { "\xc4\xa0"
                                                      "a" },
                              1, &e) == TGC_OK);
        CHECK(tok_trainer_add(t, "b a a", 5, &e) == TGC_OK);
        CHECK(tok_trainer_run(t, &json, &n, &what, &e) == TGC_USAGE);
        CHECK_MSG(strstr(e.msg, "is the name of bytes that were learned"), "%s", e.msg);
        tok_trainer_free(t);
}

/* ---- CS336 --------------------------------------------------------------------------------- */

/* The reference's vocabulary and merges, by their text. */
TEST_SHARED(cs336)
{
        static const char *const special[] = { "<|endoftext|>" };
        size_t n, m, n_vocab, n_merges;
        char *text = slurp(data_at("vectors/cs336/corpus.en"), &n);
        char *vocab = slurp(data_at("vectors/cs336/train-bpe-reference-vocab.json"), &n_vocab);
        char *merges = slurp(data_at("vectors/cs336/train-bpe-reference-merges.txt"), &n_merges);
        const char *line = merges;
        TokTrained what;
        char *json = learn(text, n, 500, special, 1, &m, &what);
        JsonText in, in2;
        JsonBuf a = { 0 }, b = { 0 };
        Json mine, theirs;
        int count = 0;
        Err e = { 0 };

        CHECK(json_open(&in, &mine, json, m, "mine", true, &e) == TGC_OK);
        CHECK(json_open(&in2, &theirs, vocab, n_vocab, "theirs", true, &e) == TGC_OK);
        JsonEach i = json_each(json_get(json_get(mine, "model"), "vocab")), k = json_each(theirs);
        for (; json_next(&i); count++) {
                size_t na, nb;
                CHECK(json_next(&k) && json_number(i.value) == json_number(k.value));
                const char *x = json_string(i.key, &a, &na), *y = json_string(k.key, &b, &nb);
                CHECK_MSG(na == nb && !memcmp(x, y, na), "token %d", count);
        }
        CHECK(count == 500 && !json_next(&k));
        for (i = json_each(json_get(json_get(mine, "model"), "merges")); json_next(&i);) {
                JsonEach side = json_each(i.value);
                for (int h = 0; h < 2; h++) {
                        size_t na, len = strcspn(line, h ? "\n" : " ");
                        CHECK(json_next(&side));
                        const char *x = json_string(side.value, &a, &na);
                        CHECK_MSG(na == len && !memcmp(x, line, na), "merge %.20s", line);
                        line += len + 1;
                }
        }
        CHECK(line >= merges + n_merges);
        json_close(&in);
        json_close(&in2);
        json_buf_free(&a);
        json_buf_free(&b);
        free(json);
        free(text);
        free(vocab);
        free(merges);
}

TEST_MAIN
