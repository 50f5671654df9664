/* test_tokenizer_scan.c: patterns that are scanned by hand cut as PCRE2 cuts with the same
 * pattern. */
#include "../runtime/tokenizer/tok.h"
#include "../runtime/tokenizer/tok_regex.h"
#include "test.h"

static const char *const regex[] = { RE_GPT2,  RE_CL100K, RE_QWEN2, RE_CL100K_OF("\\p{N}+"),
                                     RE_O200K, RE_TEKKEN };
enum { N = sizeof regex / sizeof *regex };

/* The pattern by hand, and the same one for PCRE2: in brackets it is not known. */
static void open_both(const char *re, Pattern pattern[2], Scan scan[2])
{
        char other[2048];
        Err e = { 0 };

        snprintf(other, sizeof other, "(?:%s)", re);
        CHECK_MSG(pattern_regex(&pattern[0], re, &e) == TGC_OK, "%s", e.msg);
        CHECK_MSG(pattern_regex(&pattern[1], other, &e) == TGC_OK, "%s", e.msg);
        CHECK(pattern[0].known && !pattern[0].code && !pattern[1].known && pattern[1].code);
        for (int i = 0; i < 2; i++)
                CHECK(scan_open(&scan[i], &pattern[i], &e) == TGC_OK);
}

static void close_both(Pattern pattern[2], Scan scan[2])
{
        for (int i = 0; i < 2; i++) {
                scan_close(&scan[i]);
                pattern_free(&pattern[i]);
        }
}

static void check_cuts(const char *re, Scan scan[2], const char *text, size_t n)
{
        size_t from[2], to[2];
        int more[2];
        Err e = { 0 };

        scan_text(&scan[0], text, n);
        scan_text(&scan[1], text, n);
        do {
                for (int i = 0; i < 2; i++) {
                        more[i] = scan_next(&scan[i], &from[i], &to[i], &e);
                        CHECK_MSG(more[i] >= 0, "%s", e.msg);
                }
                CHECK_MSG(more[0] == more[1], "%.30s...: one ends before the other in '%s'", re,
                          text);
                CHECK_MSG(!more[0] || (from[0] == from[1] && to[0] == to[1]),
                          "%.30s...: '%s' is cut at %zu .. %zu, PCRE2 says %zu .. %zu", re, text,
                          from[0], to[0], from[1], to[1]);
        } while (more[0]);
}

/* Every character after a letter, a blank, a digit and a line's end. */
TEST (every_character) {
        static const uint32_t part[][2] = { { 0, 0x20000 },
                                            { 0x2a6d0, 0x2a710 },
                                            { 0x32380, 0x323c0 },
                                            { 0xe0000, 0xe0200 },
                                            { 0x10fff0, 0x110000 } };
        static const char before[] = "aA 1\n'.";

        for (int i = 0; i < N; i++) {
                Pattern pattern[2];
                Scan scan[2];

                open_both(regex[i], pattern, scan);
                for (size_t k = 0; k < sizeof part / sizeof *part; k++)
                        for (uint32_t cp = part[k][0]; cp < part[k][1]; cp++) {
                                char text[64];
                                size_t n = 0;

                                if (cp >= 0xd800 && cp < 0xe000)
                                        continue;
                                for (const char *b = before; *b; b++) {
                                        text[n++] = *b;
                                        n += utf8_put(text + n, cp);
                                }
                                text[n] = 0;
                                check_cuts(regex[i], scan, text, n);
                        }
                close_both(pattern, scan);
        }
}

static uint32_t next(uint32_t *x, uint32_t below)
{
        *x = *x * 1664525 + 1013904223;
        return (uint32_t)((uint64_t)(*x >> 4) * below >> 28);
}

/* Text in which every branch of the patterns is likely. */
static size_t random_text(uint32_t *x, char *text)
{
        static const char *const some[] = { "a",
                                            "b",
                                            "Z",
                                            "Q",
                                            "s",
                                            "t",
                                            "'s",
                                            "'S",
                                            "'re",
                                            "'Ve",
                                            "'ll",
                                            "'LL",
                                            "'d",
                                            "'M",
                                            "'",
                                            "'\xc5\xbf",
                                            " ",
                                            "  ",
                                            "\n",
                                            "\r\n",
                                            "\t",
                                            "\xc2\xa0",
                                            "\xe3\x80\x80",
                                            "\xc2\x85",
                                            "1",
                                            "23",
                                            "456",
                                            "\xc2\xbd",
                                            "\xd9\xa3",
                                            ".",
                                            "!?",
                                            "/",
                                            "-",
                                            "_",
                                            "\xce\xbb",
                                            "\xce\x9b",
                                            "\xc7\x85",
                                            "\xca\xb0",
                                            "\xe4\xb8\xad",
                                            "\xcc\x81",
                                            "\xe0\xa4\xbf",
                                            "\xf0\x9f\x98\x80",
                                            "\xe2\x80\x8d",
                                            "\xff",
                                            "\xc3",
                                            "\xe1\xa0\x8e",
                                            "\xef\xbf\xbd",
                                            "\x1c",
                                            "\xe2\x80\xa8" };
        size_t n = 0;

        for (uint32_t k = 1 + next(x, 24); k; k--) {
                const char *s = some[next(x, sizeof some / sizeof *some)];
                for (uint32_t again = 1 + (next(x, 6) == 0 ? next(x, 4) : 0); again; again--) {
                        memcpy(text + n, s, strlen(s));
                        n += strlen(s);
                }
        }
        text[n] = 0;
        return n;
}

TEST (random_texts) {
        for (int i = 0; i < N; i++) {
                Pattern pattern[2];
                Scan scan[2];
                uint32_t x = 1;

                open_both(regex[i], pattern, scan);
                for (int k = 0; k < 40000; k++) {
                        char text[1024];
                        size_t n = random_text(&x, text);
                        check_cuts(regex[i], scan, text, n);
                }
                close_both(pattern, scan);
        }
}

TEST_MAIN
