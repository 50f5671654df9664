/* test_score.c: many texts scored together: each as it is alone.  C kernels take rows in blocks,
 * and those at the end of a call may differ in their last bits. */
#include <math.h>
#include "small_gpt.h"
#include "cli/eval/continuations.h"

enum { TEXTS = 23 };

static int ids[TEXTS][CTX + 1];
static double nll[TEXTS][CTX + 1];
static bool likeliest[TEXTS][CTX + 1];
static ScoreText text[TEXTS];

static void make_texts(int longest)
{
        unsigned rng = 99;
        for (int i = 0; i < TEXTS; i++) {
                for (int k = 0; k <= CTX; k++) {
                        rng = rng * 1664525u + 1013904223u;
                        ids[i][k] = (int)((rng >> 8) % V);
                }
                const int n = i == 0   ? 1
                              : i == 1 ? longest + 1
                              : i == 2 ? longest
                                       : 2 + ids[i][0] * 11 % (longest - 1);
                text[i] = (ScoreText) { .ids = ids[i],
                                        .n = n,
                                        .from = 1 + ids[i][1] % n,
                                        .nll = nll[i],
                                        .likeliest = likeliest[i] };
        }
}

/* `one` has the plan that takes a text alone. */
static void check_texts(Bench *x, Bench *one, int most, double tolerance)
{
        static float logits[CTX][V];
        static double alone[CTX + 1];
        for (int i = 0; i < TEXTS; i++)
                for (int k = 0; k <= CTX; k++)
                        nll[i][k] = -1;
        MUST(session_score_texts(x->s, text, TEXTS, most, &e));
        for (int i = 0; i < TEXTS; i++) {
                const ScoreText *t = &text[i];
                const int n = t->n <= CTX ? t->n : CTX;
                MUST(session_score(one->s, t->ids, n, logits[0], alone, &e));
                for (int k = 0; k < t->from; k++)
                        CHECK_MSG(nll[i][k] == -1, "text %d: token %d was not asked for", i, k);
                for (int k = t->from; k < t->n; k++) {
                        CHECK_MSG(k >= n || fabs(nll[i][k] - alone[k - 1]) <= tolerance,
                                  "text %d of %d tokens, token %d: %.9g, alone %.9g", i, t->n, k,
                                  nll[i][k], alone[k - 1]);
                        int best = 0;
                        for (int v = 1; v < V; v++)
                                best = logits[k - 1][v] > logits[k - 1][best] ? v : best;
                        CHECK_MSG(likeliest[i][k] == (best == t->ids[k]) || tolerance > 0,
                                  "text %d, token %d", i, k);
                        CHECK(nll[i][k] > 0);
                }
        }
}

TEST (together_as_alone) {
        Bench x, one;
        open_model(&x, "f32", 6, 0, DEV_CPU);
        open_model(&one, "f32", 1, 0, DEV_CPU);
        make_texts(CTX);
        check_texts(&x, &x, 0, 1e-5);
        check_texts(&x, &x, 2, 1e-5);
        check_texts(&one, &one, 0, 0);
        check_texts(&x, &one, 5, 1e-4); /* another order of sums */
        CHECK(session_score_rows(x.s, 0, CTX) == 6 && session_score_rows(x.s, 4, CTX) == 4 &&
              session_score_rows(one.s, 4, CTX) == 1);
        /* the session decodes as before */
        MUST(session_prefill(x.s, ids[0], 1, 5, &e));
        MUST(session_decode(x.s, NULL, 3, NULL, NULL, &e));
        close_model(&x);
        close_model(&one);
}

/* As many rows as there are pages for. */
TEST (few_pages) {
        Bench x;
        open_model(&x, "f32", 6, 2 * 64, DEV_CPU);
        make_texts(100);
        CHECK(session_score_rows(x.s, 0, 100) == 1 && session_score_rows(x.s, 0, 64) == 2);
        check_texts(&x, &x, 0, 1e-5);
        text[5].n = CTX; /* three pages */
        CHECK(session_score_texts(x.s, text, TEXTS, 0, &e) == TGC_USAGE &&
              strstr(e.msg, "needs 3 pages of the cache, which has 2"));
        close_model(&x);
}

TEST (in_the_emulator) {
        Bench x;
        open_model(&x, "bf16", 3, 0, DEV_EMULATE);
        make_texts(50);
        for (int i = 0; i < TEXTS; i++) /* it is slow */
                text[i].n = i % 8 == 2 ? text[i].n : 1, text[i].from = 1;
        check_texts(&x, &x, 0, 1e-5);
        close_model(&x);
}

TEST (wrong_texts) {
        Bench x;
        open_model(&x, "f32", 6, 0, DEV_CPU);
        make_texts(20);
        ScoreText t = text[1];
        t.n = CTX + 2;
        CHECK(session_score_texts(x.s, &t, 1, 0, &e) == TGC_USAGE && strstr(e.msg, "1 to 150"));
        t = text[1];
        t.from = 0;
        CHECK(session_score_texts(x.s, &t, 1, 0, &e) == TGC_USAGE);
        t = text[1];
        ids[1][3] = V;
        CHECK(session_score_texts(x.s, &t, 1, 0, &e) == TGC_USAGE && strstr(e.msg, "vocabulary"));
        CHECK(session_score(x.s, ids[2], 0, NULL, NULL, &e) == TGC_USAGE);
        MUST(session_score_texts(x.s, &t, 0, 0, &e));
        close_model(&x);
}

/* ---- what is asked for ---- */

static int read_lines(Continuations *c, const char *lines, const Tokenizer *tok)
{
        return continuations_read(c, lines, strlen(lines), "in", tok, 260, 8, &e);
}

TEST (ids_of_continuations) {
        Continuations c;
        MUST(read_lines(&c,
                        "{\"prompt_ids\":[1,2,3],\"continuation_ids\":[4,5],\"id\":7}\r\n\n"
                        "{\"prompt_ids\":[1,2,3,4,5,6],\"continuation_ids\":[7,8,9,10]}",
                        NULL));
        CHECK(c.n == 2 && c.list[0].n == 5 && c.list[0].from == 3 && !c.list[0].cut);
        CHECK(c.list[1].n == 9 && c.list[1].from == 5 && c.list[1].cut == 1 &&
              c.list[1].ids[0] == 2);
        continuations_free(&c);
}

TEST (wrong_lines) {
        static const struct {
                int code;
                const char *line, *why;
        } bad[] = {
                { TGC_BAD_FILE, "", "in: no continuations" },
                { TGC_BAD_FILE, "\n3", "in:2: not an object with" },
                { TGC_BAD_FILE, "{\"prompt\":\"a\"}", "in:1: not an object with" },
                { TGC_BAD_FILE, "{\"prompt\":\"a\",\"continuation\":[1]}", "not an object with" },
                { TGC_BAD_FILE, "{\"prompt\":\"a\",\"continuation\":\"b\",\"prompt_ids\":[1]}",
                  "not an object with" },
                { TGC_USAGE, "{\"prompt\":\"a\",\"continuation\":\"b\"}", "no tokenizer" },
                { TGC_BAD_FILE, "{\"prompt_ids\":[],\"continuation_ids\":[1]}",
                  "prompt_ids is empty" },
                { TGC_BAD_FILE, "{\"prompt_ids\":[1],\"continuation_ids\":[]}",
                  "continuation_ids is empty" },
                { TGC_BAD_FILE, "{\"prompt_ids\":[1],\"continuation_ids\":[260]}",
                  "continuation_ids[0] is no token of a vocabulary of 260" },
                { TGC_BAD_FILE, "{\"prompt_ids\":[1.5],\"continuation_ids\":[2]}",
                  "prompt_ids[0] is no token" },
                { TGC_USAGE, "{\"prompt_ids\":[1],\"continuation_ids\":[1,2,3,4,5,6,7,8,9]}",
                  "the continuation has 9 tokens, the context is 8" },
                { TGC_BAD_FILE, "{\"prompt_ids\":[1],\"continuation_ids\":[1]} x", "in:1" },
                { TGC_BAD_FILE, "{\"prompt_ids\":[1],\"continuation_ids\":[1],\"doc\":7}",
                  "in:1:42: unknown key \"doc\" in a request; known: prompt continuation" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                Continuations c;
                const int code = read_lines(&c, bad[i].line, NULL);
                CHECK_MSG(code == bad[i].code && strstr(e.msg, bad[i].why), "%s: %d %s",
                          bad[i].line, code, e.msg);
                continuations_free(&c);
        }
}

/* Blanks that end a prompt go to the continuation; nothing at all is the token that begins
 * texts. */
TEST (texts_of_continuations) {
        Tokenizer *tok;
        Continuations c;
        int *own, n;
        MUST(tokenizer_open(&tok, "tests/data/tokenizers/llama2.json", 0, &e));
        const char *lines = "{\"prompt\":\"a b \",\"continuation\":\"c\"}\n"
                            "{\"prompt\":\"\",\"continuation\":\"c\"}\n";
        MUST(continuations_read(&c, lines, strlen(lines), "in", tok, 1 << 20, 64, &e));
        MUST(tokenizer_encode(tok, "a b", 3, -1, &own, &n, &e));
        CHECK(c.n == 2 && c.list[0].from == n && !memcmp(c.list[0].ids, own, (size_t)n * sizeof n));
        free(own);
        MUST(tokenizer_encode(tok, "a b c", 5, -1, &own, &n, &e));
        CHECK(c.list[0].n == n && !memcmp(c.list[0].ids, own, (size_t)n * sizeof n));
        free(own);
        CHECK(c.list[1].from == 1 && c.list[1].ids[0] == tokenizer_bos(tok));
        continuations_free(&c);
        tokenizer_free(tok);
}

TEST_MAIN
