/* tok_scan.c: hand-written scanners for well-known patterns, several times as fast as PCRE2's
 * compiled code.
 *
 * A scanner serves exactly the pattern whose text stands beside it in `known`.  Each of these
 * patterns matches at every place, so a match begins where the last one ended.  A scanner gets
 * valid UTF-8 and a start i < n, and returns the end of the match.  test_tokenizer_scan.c compares
 * them with PCRE2. */
#include <utf8proc.h>
#include "tok.h"
#include "tok_regex.h"

/* What these patterns ask of a character. */
enum {
        LETTER = 1, /* \p{L}                */
        NUMBER = 2, /* \p{N}                */
        SPACE = 4,  /* \s                   */
        UPPER = 8,  /* RE_UPPER, with marks */
        LOWER = 16, /* RE_LOWER, with marks */
        BREAK = 32, /* \r \n                */
        SLASH = 64
};

#define X4(a) a, a, a, a
#define X16(a) X4(a), X4(a), X4(a), X4(a)
static const unsigned char ascii[128] = {
        X4(0),
        X4(0),
        0,
        SPACE,
        SPACE | BREAK,
        SPACE,
        SPACE,
        SPACE | BREAK,
        0,
        0,      /* 0 */
        X16(0), /* 1 */
        SPACE,
        0,
        0,
        0,
        X4(0),
        X4(0),
        0,
        0,
        0,
        SLASH, /* 2 */
        X4(NUMBER),
        X4(NUMBER),
        NUMBER,
        NUMBER,
        0,
        0,
        X4(0), /* 3 */
        0,
        LETTER | UPPER,
        LETTER | UPPER,
        LETTER | UPPER,
        X4(LETTER | UPPER),
        X4(LETTER | UPPER),
        X4(LETTER | UPPER), /* 4 */
        X4(LETTER | UPPER),
        X4(LETTER | UPPER),
        LETTER | UPPER,
        LETTER | UPPER,
        LETTER | UPPER,
        0,
        X4(0), /* 5 */
        0,
        LETTER | LOWER,
        LETTER | LOWER,
        LETTER | LOWER,
        X4(LETTER | LOWER),
        X4(LETTER | LOWER),
        X4(LETTER | LOWER), /* 6 */
        X4(LETTER | LOWER),
        X4(LETTER | LOWER),
        LETTER | LOWER,
        LETTER | LOWER,
        LETTER | LOWER,
        0,
        X4(0) /* 7 */
};

static unsigned class_of(uint32_t cp)
{
        if (cp == 0x85)
                return SPACE;
        switch (utf8proc_category((utf8proc_int32_t)cp_stand_in(cp))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LT: return LETTER | UPPER;
        case UTF8PROC_CATEGORY_LL: return LETTER | LOWER;
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO: return LETTER | UPPER | LOWER;
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME: return UPPER | LOWER;
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_NO: return NUMBER;
        case UTF8PROC_CATEGORY_ZS:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP: return SPACE;
        default: return 0;
        }
}

typedef struct Text {
        const unsigned char *s;
        size_t n;
} Text;

/* The class of the character at i < n, and its length. */
static inline unsigned class_at(Text t, size_t i, size_t *len)
{
        const unsigned char *s = t.s + i;
        uint32_t c = s[0];

        if (c < 0x80) {
                *len = 1;
                return ascii[c];
        }
        if (c < 0xe0) {
                *len = 2;
                return class_of((c & 0x1f) << 6 | (s[1] & 0x3fu));
        }
        if (c < 0xf0) {
                *len = 3;
                return class_of((c & 0x0f) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu));
        }
        *len = 4;
        return class_of((c & 7) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 |
                        (s[3] & 0x3fu));
}

/* The end of the run from i of characters with a bit of `yes`, or with none of `no`; at most
 * `most` of them. */
static inline size_t run_of(Text t, size_t i, unsigned yes, size_t most)
{
        size_t len;

        while (i < t.n && most-- && class_at(t, i, &len) & yes)
                i += len;
        return i;
}

static inline size_t run_without(Text t, size_t i, unsigned no)
{
        size_t len;

        while (i < t.n && !(class_at(t, i, &len) & no))
                i += len;
        return i;
}

/* 's|'t|'re|'ve|'m|'ll|'d at i: its end, or i. */
static size_t contraction(Text t, size_t i, bool any_case)
{
        unsigned char a, b, fold = any_case ? 0x20 : 0;

        if (t.n - i < 2 || t.s[i] != '\'')
                return i;
        if (any_case && t.n - i >= 3 && t.s[i + 1] == 0xc5 && t.s[i + 2] == 0xbf)
                return i + 3; /* the long s */
        a = t.s[i + 1] | fold;
        b = t.n - i > 2 ? t.s[i + 2] | fold : 0;
        if (a == 's' || a == 't' || a == 'm' || a == 'd')
                return i + 2;
        return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? i + 3
                                                                                          : i;
}

/* ` ?[^\s\p{L}\p{N}]+`, then `more`: the end, or i. */
static size_t marks(Text t, size_t i, unsigned more)
{
        size_t from = i + (t.s[i] == ' '), to = run_without(t, from, SPACE | LETTER | NUMBER);

        if (to == from)
                return i;
        while (to < t.n && t.s[to] < 0x80 && ascii[t.s[to]] & more)
                to++;
        return to;
}

/* `\s*[\r\n]+` where lines, then `\s+(?!\S)|\s+`, at white space. */
static size_t blanks(Text t, size_t i, bool lines)
{
        size_t at = i, last = i, broken = i, len;
        unsigned c;

        for (; at < t.n && (c = class_at(t, at, &len)) & SPACE; at += len) {
                last = at;
                if (c & BREAK)
                        broken = at + 1;
        }
        if (lines && broken > i)
                return broken;
        return at == t.n || last == i ? at : last;
}

static size_t scan_gpt2(Text t, size_t i, size_t digits)
{
        size_t to = contraction(t, i, false), from, len;
        unsigned c;

        (void)digits;
        if (to > i)
                return to;
        from = i + (t.s[i] == ' ');
        if (from < t.n) {
                c = class_at(t, from, &len);
                if (c & LETTER)
                        return run_of(t, from + len, LETTER, SIZE_MAX);
                if (c & NUMBER)
                        return run_of(t, from + len, NUMBER, SIZE_MAX);
                if (!(c & SPACE))
                        return run_without(t, from + len, SPACE | LETTER | NUMBER);
        }
        return blanks(t, i, false);
}

static size_t scan_cl100k(Text t, size_t i, size_t digits)
{
        size_t to = contraction(t, i, true), len, next;
        unsigned c;

        if (to > i)
                return to;
        c = class_at(t, i, &len);
        if (c & LETTER)
                return run_of(t, i + len, LETTER, SIZE_MAX);
        if (c & NUMBER)
                return run_of(t, i + len, NUMBER, digits - 1);
        if (!(c & BREAK) && i + len < t.n && class_at(t, i + len, &next) & LETTER)
                return run_of(t, i + len + next, LETTER, SIZE_MAX);
        if ((to = marks(t, i, BREAK)) > i)
                return to;
        return blanks(t, i, true);
}

/* U*W+ at i, where U is RE_UPPER and W is RE_LOWER: the end, or i.  What U* takes too much it gives
 * back, from its end, until a W is among it. */
static size_t lower_word(Text t, size_t i)
{
        size_t to = run_of(t, i, UPPER, SIZE_MAX), back = to, len;

        if (to < t.n && class_at(t, to, &len) & LOWER)
                return run_of(t, to, LOWER, SIZE_MAX);
        while (back > i) {
                for (back--; (t.s[back] & 0xc0) == 0x80;)
                        back--;
                if (class_at(t, back, &len) & LOWER)
                        return run_of(t, back, LOWER, SIZE_MAX);
        }
        return i;
}

/* U+W* */
static size_t upper_word(Text t, size_t i)
{
        size_t to = run_of(t, i, UPPER, SIZE_MAX);

        return to > i ? run_of(t, to, LOWER, SIZE_MAX) : i;
}

static size_t scan_cased(Text t, size_t i, size_t digits, bool tail)
{
        size_t len, to, from;
        unsigned c = class_at(t, i, &len);

        if (c & NUMBER)
                return run_of(t, i + len, NUMBER, digits - 1);
        for (int lower = 1; lower >= 0; lower--) {
                size_t (*word)(Text, size_t) = lower ? lower_word : upper_word;
                /* with one character before it, else without */
                from = c & (LETTER | BREAK) ? i : i + len;
                to = from < t.n ? word(t, from) : from;
                if (to == from && from > i)
                        to = word(t, from = i);
                if (to > from)
                        return tail && to < t.n ? contraction(t, to, true) : to;
        }
        if ((to = marks(t, i, BREAK | SLASH)) > i)
                return to;
        return blanks(t, i, true);
}

static size_t scan_o200k(Text t, size_t i, size_t digits) { return scan_cased(t, i, digits, true); }
static size_t scan_tekken(Text t, size_t i, size_t digits)
{
        return scan_cased(t, i, digits, false);
}

struct Known {
        const char *regex;
        size_t (*scan)(Text t, size_t i, size_t digits);
        size_t digits; /* in a row, at most */
};
static const Known known[] = {
        { RE_GPT2, scan_gpt2, SIZE_MAX }, { RE_CL100K, scan_cl100k, 3 },
        { RE_QWEN2, scan_cl100k, 1 },     { RE_CL100K_OF("\\p{N}+"), scan_cl100k, SIZE_MAX },
        { RE_O200K, scan_o200k, 3 },      { RE_TEKKEN, scan_tekken, 1 }
};

const Known *known_pattern(const char *regex)
{
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                if (!strcmp(regex, known[i].regex))
                        return &known[i];
        return NULL;
}

size_t known_scan(const Known *k, const char *s, size_t n, size_t i)
{
        return k->scan((Text) { (const unsigned char *)s, n }, i, k->digits);
}
