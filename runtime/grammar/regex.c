/* regex.c: translates ECMA 262 patterns into rules over the characters of a JSON string.
 *
 * A pattern may match anywhere in a string.  So without ^ any characters may precede it, and
 * without $ any may follow.  Anchors are allowed at the ends of alternatives: of the pattern, or of
 * a group that is all of one.  Look-around, back references and word boundaries are refused, since
 * rules cannot express them. */
#include <stdlib.h>
#include <string.h>
#include "rules.h"

enum { MAX_CLASS = 64 };

typedef struct Regex {
        Build *b;
        const char *p, *end;
        const char *wrong;
        int depth;
} Regex;

typedef struct Part {
        int rule;
        Lengths len;
} Part;

static const CharRange digits[] = { { '0', '9' } };
static const CharRange word[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
static const CharRange space[] = { { 9, 13 },          { ' ', ' ' },       { 0xa0, 0xa0 },
                                   { 0x1680, 0x1680 }, { 0x2000, 0x200a }, { 0x2028, 0x2029 },
                                   { 0x202f, 0x202f }, { 0x205f, 0x205f }, { 0x3000, 0x3000 },
                                   { 0xfeff, 0xfeff } };
static const CharRange line_end[] = { { '\n', '\n' }, { '\r', '\r' }, { 0x2028, 0x2029 } };

static void refuse(Regex *x, const char *what)
{
        if (!x->wrong)
                x->wrong = what;
}

static bool at(const Regex *x, char c) { return x->p < x->end && *x->p == c; }

static long add_len(long a, long b)
{
        return a < 0 || b < 0 ? -1 : a + b > 1 << 24 ? 1 << 24 : a + b;
}

static int any_char(Build *b)
{
        if (!b->any_char)
                b->any_char = gr_json_class(b, NULL, 0, true);
        return b->any_char;
}

/* The class of \d and the like; 0: it is none. */
static int known_class(char c, const CharRange **r, bool *negated)
{
        *negated = c == 'D' || c == 'W' || c == 'S';
        switch (c) {
        case 'd':
        case 'D': *r = digits; return 1;
        case 'w':
        case 'W': *r = word; return 4;
        case 's':
        case 'S': *r = space; return sizeof space / sizeof *space;
        }
        return 0;
}

static uint32_t hex(Regex *x, int n)
{
        uint32_t c = 0;
        for (int i = 0; i < n; i++, x->p++) {
                const char *all = "0123456789abcdef", *k;
                char d = x->p < x->end ? *x->p : 0;
                d = d >= 'A' && d <= 'F' ? (char)(d + 32) : d;
                if (!d || !(k = strchr(all, d))) {
                        refuse(x, "an escape without its digits");
                        return 0;
                }
                c = c << 4 | (uint32_t)(k - all);
        }
        return c;
}

/* A character behind a backslash that stands for one. */
static uint32_t escape(Regex *x)
{
        static const char from[] = "nrtfv0", to[] = "\n\r\t\f\v\0";
        char c = x->p < x->end ? *x->p++ : 0;
        const char *k = c ? strchr(from, c) : NULL;
        uint32_t r = 0;
        int n;
        if (k)
                return (unsigned char)to[k - from];
        if (c == 'x')
                return hex(x, 2);
        if (c == 'u') {
                if (at(x, '{'))
                        refuse(x, "\\u{...}");
                uint32_t u = hex(x, 4);
                if (u >= 0xd800 && u < 0xe000)
                        refuse(x, "half of a surrogate pair");
                return u;
        }
        if (c == 'c' || c == 'p' || c == 'P' || c == 'k' || c == 'b' || c == 'B' ||
            (c >= '1' && c <= '9') || !c) {
                refuse(x, c == 'b' || c == 'B'                 ? "word boundaries"
                          : c == 'p' || c == 'P'               ? "\\p{...}"
                          : (c >= '1' && c <= '9') || c == 'k' ? "back references"
                                                               : "this escape");
                return 0;
        }
        x->p--;
        if (!(n = char_read(x->p, (size_t)(x->end - x->p), &r)))
                refuse(x, "bytes that are not UTF-8");
        x->p += n;
        return r;
}

static int bracket(Regex *x)
{
        CharRange r[MAX_CLASS + 16];
        int n = 0;
        bool negated = at(x, '^');
        x->p += negated;
        while (!at(x, ']') && !x->wrong) {
                const CharRange *known;
                bool other;
                int k;
                if (x->p >= x->end || n >= MAX_CLASS) {
                        refuse(x, n >= MAX_CLASS ? "a class of that many parts" : "[ without ]");
                        return 0;
                }
                if (at(x, '\\') && x->p + 1 < x->end &&
                    (k = known_class(x->p[1], &known, &other))) {
                        if (other) {
                                refuse(x, "\\D, \\W or \\S within []");
                                return 0;
                        }
                        if (n + k > MAX_CLASS) {
                                refuse(x, "a class of that many parts");
                                return 0;
                        }
                        memcpy(r + n, known, (size_t)k * sizeof *r);
                        n += k;
                        x->p += 2;
                        continue;
                }
                uint32_t c[2];
                for (int i = 0; i < 2; i++) {
                        if (at(x, '\\') && x->p + 1 < x->end && x->p[1] == 'b') {
                                c[i] = '\b';
                                x->p += 2;
                        } else if (at(x, '\\')) {
                                x->p++;
                                c[i] = escape(x);
                        } else {
                                int len = char_read(x->p, (size_t)(x->end - x->p), &c[i]);
                                if (!len)
                                        refuse(x, "bytes that are not UTF-8");
                                x->p += len;
                        }
                        c[1] = i ? c[1] : c[0];
                        const CharRange *ignored;
                        bool no;
                        if (x->wrong || i || !at(x, '-') || x->p + 1 >= x->end || x->p[1] == ']' ||
                            (x->p[1] == '\\' && x->p + 2 < x->end &&
                             known_class(x->p[2], &ignored, &no)))
                                break;
                        x->p++;
                }
                if (c[1] < c[0])
                        refuse(x, "a range that ends before it begins");
                r[n++] = (CharRange) { c[0], c[1] };
        }
        x->p++;
        return x->wrong ? 0 : gr_json_class(x->b, r, n, negated);
}

static Part alternatives(Regex *x, bool whole);

static Part atom(Regex *x)
{
        Part one = { 0, { 1, 1 } };
        const CharRange *known;
        bool other;
        uint32_t c;
        int n;
        if (at(x, '(')) {
                x->p++;
                if (at(x, '?')) {
                        if (x->end - x->p >= 2 && x->p[1] == ':')
                                x->p += 2;
                        else if (x->end - x->p >= 3 && x->p[1] == '<' && x->p[2] != '=' &&
                                 x->p[2] != '!')
                                while (x->p < x->end && *x->p++ != '>')
                                        ;
                        else
                                refuse(x, "look-around");
                }
                if (++x->depth > GR_MAX_NEST)
                        refuse(x, "parentheses that deep");
                if (x->wrong)
                        return one;
                Part inner = alternatives(x, false);
                if (!at(x, ')'))
                        refuse(x, "( without )");
                x->p++;
                x->depth--;
                return inner;
        }
        if (at(x, '[')) {
                x->p++;
                one.rule = bracket(x);
        } else if (at(x, '.')) {
                x->p++;
                one.rule = gr_json_class(x->b, line_end, 3, true);
        } else if (at(x, '\\')) {
                x->p++;
                if (x->p < x->end && (n = known_class(*x->p, &known, &other))) {
                        x->p++;
                        one.rule = gr_json_class(x->b, known, n, other);
                } else {
                        c = escape(x);
                        if (!x->wrong)
                                one.rule = gr_json_class(x->b, &(CharRange) { c, c }, 1, false);
                }
        } else if (at(x, '^') || at(x, '$')) {
                refuse(x, "^ or $ within a pattern");
        } else if (at(x, '*') || at(x, '+') || at(x, '?')) {
                refuse(x, "a repetition of nothing");
        } else if (!(n = char_read(x->p, (size_t)(x->end - x->p), &c))) {
                refuse(x, "bytes that are not UTF-8");
        } else {
                x->p += n;
                one.rule = gr_json_class(x->b, &(CharRange) { c, c }, 1, false);
        }
        return one;
}

/* {m}, {m,}, {m,n}; false: it is none of these, and stands for itself. */
static bool braces(Regex *x, int *min, int *max)
{
        const char *p = x->p + 1;
        char *end;
        if (p >= x->end || *p < '0' || *p > '9')
                return false;
        long a = strtol(p, &end, 10), b = a;
        if (*end == ',' && end[1] == '}')
                b = -1, end++;
        else if (*end == ',')
                b = strtol(end + 1, &end, 10);
        if (*end != '}')
                return false;
        if (a > GR_MAX_REPEAT || b > GR_MAX_REPEAT || (b >= 0 && b < a)) {
                refuse(x, "such a number of repetitions");
                return true;
        }
        *min = (int)a, *max = (int)b;
        x->p = end + 1;
        return true;
}

static Part repeated(Regex *x)
{
        Part a = atom(x);
        while (x->p < x->end && !x->wrong && !x->b->code) {
                int min = 0, max = -1;
                if (at(x, '*')) {
                        x->p++;
                } else if (at(x, '+')) {
                        x->p++, min = 1;
                } else if (at(x, '?')) {
                        x->p++, max = 1;
                } else if (!at(x, '{') || !braces(x, &min, &max)) {
                        break;
                }
                if (at(x, '?')) /* lazy: the same strings */
                        x->p++;
                if (x->wrong)
                        break;
                a.rule = gr_repeat(x->b, a.rule, min, max);
                long least = (long)a.len.min * min, most = max < 0 || a.len.max < 0
                                                                   ? (a.len.max == 0 ? 0 : -1)
                                                                   : (long)a.len.max * max;
                a.len.min = least > 1 << 24 ? 1 << 24 : (int)least;
                a.len.max = most > 1 << 24 ? -1 : (int)most;
        }
        return a;
}

/* Is what follows one group, to the end of the alternative? */
static bool one_group(const Regex *x)
{
        int depth = 0;
        if (!at(x, '(') || (x->end - x->p > 2 && x->p[1] == '?' && x->p[2] != ':'))
                return false;
        for (const char *p = x->p; p < x->end; p++) {
                if (*p == '\\') {
                        p++;
                } else if (*p == '[') {
                        while (p < x->end && *p != ']')
                                p += *p == '\\' ? 2 : 1;
                } else if (*p == '(') {
                        depth++;
                } else if (*p == ')' && !--depth) {
                        return p + 1 >= x->end || p[1] == '|' || p[1] == ')';
                }
        }
        return false;
}

/* One alternative into `rule`; whole: it is searched for in the string. */
static Lengths sequence(Regex *x, int rule, bool whole)
{
        Lengths len = { 0, 0 };
        bool start = false, end = false;
        if (whole && one_group(x)) {
                x->p += x->p[1] == '?' ? 3 : 1;
                if (++x->depth > GR_MAX_NEST) {
                        refuse(x, "parentheses that deep");
                        return len;
                }
                Part all = alternatives(x, true);
                gr_ref(x->b, rule, all.rule);
                x->p++;
                x->depth--;
                return all.len;
        }
        while (whole && at(x, '^')) {
                x->p++;
                start = true;
        }
        if (whole && !start) {
                gr_ref(x->b, rule, gr_repeat(x->b, any_char(x->b), 0, -1));
                len.max = -1;
        }
        while (x->p < x->end && *x->p != '|' && *x->p != ')' && !x->wrong && !x->b->code) {
                if (whole && at(x, '$')) {
                        x->p++;
                        end = true;
                        if (x->p < x->end && *x->p != '|' && *x->p != ')' && *x->p != '$')
                                refuse(x, "^ or $ within a pattern");
                        continue;
                }
                Part a = repeated(x);
                gr_ref(x->b, rule, a.rule);
                len.min = (int)add_len(len.min, a.len.min);
                len.max = (int)add_len(len.max, a.len.max);
        }
        if (whole && !end) {
                gr_ref(x->b, rule, gr_repeat(x->b, any_char(x->b), 0, -1));
                len.max = -1;
        }
        return len;
}

static Part alternatives(Regex *x, bool whole)
{
        Part all = { gr_rule(x->b), { 0, 0 } };
        all.len = sequence(x, all.rule, whole);
        while (at(x, '|') && !x->wrong && !x->b->code) {
                x->p++;
                gr_alt(x->b, all.rule);
                Lengths n = sequence(x, all.rule, whole);
                all.len.min = n.min < all.len.min ? n.min : all.len.min;
                all.len.max = all.len.max < 0 || n.max < 0 ? -1
                              : n.max > all.len.max        ? n.max
                                                           : all.len.max;
        }
        return all;
}

int gr_regex(Build *b, const char *pattern, Lengths *len, const char **wrong)
{
        Regex x = { .b = b, .p = pattern, .end = pattern + strlen(pattern) };
        Part all = alternatives(&x, true);
        if (x.p < x.end)
                refuse(&x, ") without (");
        *wrong = x.wrong;
        *len = all.len;
        return all.rule;
}
