/* gbnf.c: reads GBNF, llama.cpp's notation for grammars.
 *
 *      root  ::= item ("," item)*          # a comment
 *      item  ::= [a-z]+ | "\"" [^"]* "\"" | . | item2{2,5}
 *
 * A rule is a name, `::=` and alternatives.  It may continue on the next line inside parentheses
 * and after `|`.  Escapes: \n \r \t \\ \" \' \[ \] \- \^ \/ \b \f, \xHH, \uHHHH, \UHHHHHHHH. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rules.h"

typedef struct Named {
        const char *p;
        size_t n;
        int rule;
        const char *used, *defined; /* where; NULL: not */
} Named;

typedef struct Gbnf {
        Build b;
        const char *text, *end, *p, *file;
        Named *name;
        int n_name, cap_name, depth;
        char said[80]; /* of name_of */
} Gbnf;

static int fail(Gbnf *g, const char *at, const char *fmt, ...)
{
        char what[200];
        int line = 1, col = 1;
        va_list a;
        if (g->b.code)
                return g->b.code;
        for (const char *p = g->text; p < at; p++) {
                line += *p == '\n';
                col = *p == '\n' ? 1 : col + 1;
        }
        va_start(a, fmt);
        vsnprintf(what, sizeof what, fmt, a);
        va_end(a);
        return g->b.code = err_set(g->b.e, TGC_BAD_FILE, "%s:%d:%d: %s", g->file, line, col, what);
}

static bool more(const Gbnf *g) { return g->p < g->end; }
static bool at(const Gbnf *g, char c) { return more(g) && *g->p == c; }

/* Blanks and comments; lines: newlines too. */
static void blanks(Gbnf *g, bool lines)
{
        while (more(g) && (*g->p == ' ' || *g->p == '\t' || *g->p == '#' ||
                           (lines && (*g->p == '\n' || *g->p == '\r')))) {
                if (*g->p == '#')
                        while (more(g) && *g->p != '\n' && *g->p != '\r')
                                g->p++;
                else
                        g->p++;
        }
}

static bool is_word(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_';
}

/* The rule of the name that begins here, made at its first use. */
static Named *name(Gbnf *g)
{
        const char *p = g->p;
        while (more(g) && is_word(*g->p))
                g->p++;
        size_t n = (size_t)(g->p - p);
        if (!n) {
                fail(g, p, "expected the name of a rule");
                return NULL;
        }
        for (int i = 0; i < g->n_name; i++)
                if (g->name[i].n == n && !memcmp(g->name[i].p, p, n))
                        return &g->name[i];
        if (g->n_name == g->cap_name) {
                int cap = g->cap_name * 2 + 16;
                Named *x = realloc(g->name, (size_t)cap * sizeof *x);
                if (!x) {
                        g->b.code = err_set(g->b.e, TGC_NO_MEMORY, "no memory for a grammar");
                        return NULL;
                }
                g->name = x;
                g->cap_name = cap;
        }
        bool root = n == 4 && !memcmp(p, "root", 4);
        g->name[g->n_name] = (Named) { p, n, root ? 0 : gr_rule(&g->b), NULL, NULL };
        return &g->name[g->n_name++];
}

static int hex(Gbnf *g, int digits, uint32_t *c)
{
        const char *start = g->p;
        *c = 0;
        for (int i = 0; i < digits; i++, g->p++) {
                char x = more(g) ? *g->p : 0;
                int v = x >= '0' && x <= '9'   ? x - '0'
                        : x >= 'a' && x <= 'f' ? x - 'a' + 10
                        : x >= 'A' && x <= 'F' ? x - 'A' + 10
                                               : -1;
                if (v < 0)
                        return fail(g, start, "expected %d hexadecimal digits", digits);
                *c = *c << 4 | (uint32_t)v;
        }
        if (*c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000))
                return fail(g, start, "there is no character U+%X", *c);
        return TGC_OK;
}

/* One character of a literal or a class. */
static int character(Gbnf *g, uint32_t *c)
{
        static const char from[] = "nrtbf\\\"'[]-^/", to[] = "\n\r\t\b\f\\\"'[]-^/";
        int n;
        if (at(g, '\\')) {
                const char *start = g->p++;
                char x = more(g) ? *g->p++ : 0;
                const char *k = x ? strchr(from, x) : NULL;
                if (x == 'x' || x == 'u' || x == 'U')
                        return hex(g, x == 'x' ? 2 : x == 'u' ? 4 : 8, c);
                if (!k)
                        return fail(g, start, "there is no escape \\%c", x > ' ' ? x : '?');
                *c = (unsigned char)to[k - from];
                return TGC_OK;
        }
        if (!(n = char_read(g->p, (size_t)(g->end - g->p), c)))
                return fail(g, g->p, "this is not UTF-8");
        g->p += n;
        return TGC_OK;
}

static void literal(Gbnf *g, int rule)
{
        const char *start = g->p++;
        char bytes[4];
        uint32_t c;
        while (!at(g, '"')) {
                if (!more(g) || *g->p == '\n') {
                        fail(g, start, "this string does not end in its line");
                        return;
                }
                if (character(g, &c))
                        return;
                gr_text(&g->b, rule, bytes, (size_t)char_write(c, bytes));
        }
        g->p++;
}

static int class(Gbnf *g)
{
        const char *start = g->p++;
        CharRange *r = NULL;
        int n = 0, cap = 0, rule = 0;
        bool negated = at(g, '^');
        g->p += negated;
        while (!at(g, ']') && !g->b.code) {
                if (!more(g) || *g->p == '\n') {
                        fail(g, start, "this class does not end in its line");
                        break;
                }
                if (n == cap) {
                        CharRange *x = realloc(r, (size_t)(cap = cap * 2 + 8) * sizeof *x);
                        if (!x) {
                                g->b.code = err_set(g->b.e, TGC_NO_MEMORY, "no memory for a class");
                                break;
                        }
                        r = x;
                }
                const char *first = g->p;
                if (character(g, &r[n].lo))
                        break;
                r[n].hi = r[n].lo;
                if (at(g, '-') && g->p + 1 < g->end && g->p[1] != ']') {
                        g->p++;
                        if (character(g, &r[n].hi))
                                break;
                        if (r[n].hi < r[n].lo)
                                fail(g, first, "this range ends before it begins");
                }
                n++;
        }
        if (!g->b.code) {
                g->p++;
                rule = gr_class(&g->b, r, n, negated);
        }
        free(r);
        return rule;
}

static int number(Gbnf *g)
{
        const char *start = g->p;
        long n = 0;
        while (more(g) && *g->p >= '0' && *g->p <= '9') {
                n = n * 10 + (*g->p++ - '0');
                if (n > GR_MAX_REPEAT)
                        return fail(g, start, "a repetition has at most %d", GR_MAX_REPEAT), 0;
        }
        if (g->p == start)
                fail(g, start, "expected a number");
        return (int)n;
}

/* A rule for `what` with its * + ? {}. */
static int repeated(Gbnf *g, int what)
{
        while (more(g) && strchr("*+?{", *g->p) && *g->p && !g->b.code) {
                const char *start = g->p;
                int min = 0, max = -1;
                switch (*g->p++) {
                case '+': min = 1; break;
                case '?': max = 1; break;
                case '{':
                        blanks(g, true);
                        if (!at(g, ','))
                                min = max = number(g);
                        blanks(g, true);
                        if (at(g, ',')) {
                                g->p++;
                                blanks(g, true);
                                max = at(g, '}') ? -1 : number(g);
                                blanks(g, true);
                        }
                        if (!at(g, '}'))
                                fail(g, g->p, "} stands here");
                        g->p++;
                        if (max >= 0 && max < min)
                                fail(g, start, "from %d to %d times", min, max);
                        break;
                }
                if (!g->b.code)
                        what = gr_repeat(&g->b, what, min, max);
                blanks(g, g->depth > 0);
        }
        return what;
}

static void alternatives(Gbnf *g, int rule);

static void sequence(Gbnf *g, int rule)
{
        CharRange none;
        while (more(g) && !g->b.code) {
                int item = -1;
                char c = *g->p;
                if (c == '"') {
                        literal(g, item = gr_rule(&g->b));
                } else if (c == '[') {
                        item = class(g);
                } else if (c == '.') {
                        g->p++;
                        item = gr_class(&g->b, &none, 0, true);
                } else if (c == '(') {
                        const char *start = g->p++;
                        if (++g->depth > GR_MAX_NEST) {
                                fail(g, start, "parentheses nest deeper than %d", GR_MAX_NEST);
                                return;
                        }
                        blanks(g, true);
                        alternatives(g, item = gr_rule(&g->b));
                        if (!at(g, ')'))
                                fail(g, more(g) ? g->p : start, "( without )");
                        g->p++;
                        g->depth--;
                } else if (c == '<' || c == '!') {
                        fail(g, g->p,
                             "tokens in grammars (<...>) are not supported: write their text");
                } else if (is_word(c)) {
                        const char *start = g->p;
                        Named *x = name(g);
                        if (!x)
                                return;
                        x->used = x->used ? x->used : start;
                        item = x->rule;
                } else {
                        return;
                }
                if (g->b.code)
                        return;
                blanks(g, g->depth > 0);
                gr_ref(&g->b, rule, repeated(g, item));
        }
}

static void alternatives(Gbnf *g, int rule)
{
        sequence(g, rule);
        while (at(g, '|') && !g->b.code) {
                g->p++;
                blanks(g, true);
                gr_alt(&g->b, rule);
                sequence(g, rule);
        }
}

static void rule_line(Gbnf *g)
{
        const char *start = g->p;
        Named *x = name(g);
        if (!x)
                return;
        int rule = x->rule;
        blanks(g, false);
        if (g->end - g->p < 3 || memcmp(g->p, "::=", 3)) {
                fail(g, g->p, "expected ::=");
                return;
        }
        if (x->defined) {
                fail(g, start, "rule %.*s is defined twice", (int)(x->n < 60 ? x->n : 60), x->p);
                return;
        }
        x->defined = start;
        g->p += 3;
        blanks(g, true);
        alternatives(g, rule);
        if (!g->b.code && more(g) && *g->p != '\n' && *g->p != '\r')
                fail(g, g->p, "expected the end of the rule's line, found '%c'",
                     (unsigned char)*g->p >= ' ' && (unsigned char)*g->p < 127 ? *g->p : '?');
}

static const char *name_of(void *user, int rule)
{
        Gbnf *g = user;
        for (int i = 0; i < g->n_name; i++)
                if (g->name[i].rule == rule) {
                        snprintf(g->said, sizeof g->said, "%.*s",
                                 (int)(g->name[i].n < 60 ? g->name[i].n : 60), g->name[i].p);
                        return g->said;
                }
        return NULL;
}

int grammar_gbnf(Grammar **out, const char *text, size_t n, const char *file, Err *e)
{
        Gbnf g = { .text = text, .p = text, .end = text + n, .file = file };
        bool root = false;
        *out = NULL;
        if (n > GR_MAX_TEXT)
                return err_set(e, TGC_BAD_FILE,
                               "%s: the grammar has %zu bytes, the limit is "
                               "%d",
                               file, n, GR_MAX_TEXT);
        gr_begin(&g.b, e);
        for (blanks(&g, true); more(&g) && !g.b.code; blanks(&g, true))
                rule_line(&g);
        for (int i = 0; i < g.n_name && !g.b.code; i++) {
                root |= g.name[i].rule == 0 && g.name[i].defined;
                if (!g.name[i].defined)
                        fail(&g, g.name[i].used, "rule %.*s is not defined",
                             (int)(g.name[i].n < 60 ? g.name[i].n : 60), g.name[i].p);
        }
        if (!g.b.code && !root)
                g.b.code = err_set(e, TGC_BAD_FILE, "%s: rule root is not defined", file);
        int code = gr_end(&g.b, out, file, name_of, &g);
        free(g.name);
        return code;
}
