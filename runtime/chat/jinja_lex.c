/* jinja_lex.c: a template as tokens, by the rules of jinja2's lexer.py.
 *
 * Newlines become \n, and one at the end of the text is dropped.  {%- and -%} take the white space
 * beside them; trim_blocks takes the newline after a block or a comment, lstrip_blocks the blanks
 * from the line's begin to one.  {%+ and +%} keep both. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "../util/c_locale.h"
#include "jinja.h"

typedef struct Lexer {
        J *j;
        const char *at, *end;
        const char *seen; /* up to where lines and columns are counted */
        int line, col;
        bool line_starting;
        Token *tok;
        int n, cap;
        char *open; /* brackets that are open */
        int n_open, cap_open;
} Lexer;

static void place(Lexer *x, const char *p)
{
        for (; x->seen < p; x->seen++)
                if (*x->seen == '\n') {
                        x->line++;
                        x->col = 1;
                } else {
                        x->col += ((unsigned char)*x->seen & 0xc0) != 0x80;
                }
        x->j->line = x->line;
        x->j->col = x->col;
}

static Token *add(Lexer *x, TokenType t, const char *p, size_t n)
{
        if (x->n == x->cap) {
                x->tok = j_grow(x->j, x->tok, (size_t)x->cap * sizeof *x->tok,
                                (size_t)(x->cap + 64) * sizeof *x->tok);
                x->cap = x->cap * 2 + 64;
        }
        Token *k = &x->tok[x->n++];
        *k = (Token) { .t = t, .line = x->j->line, .col = x->j->col, .p = p, .n = n };
        return k;
}

static bool at(const Lexer *x, const char *p, const char *s)
{
        size_t n = strlen(s);
        return (size_t)(x->end - p) >= n && !memcmp(p, s, n);
}

static const char *skip_space(const Lexer *x, const char *p)
{
        while (p < x->end) {
                const char *q = p;
                if (!is_space_code(next_code(&q, x->end)))
                        break;
                p = q;
        }
        return p;
}

static const char *rstrip(const char *begin, const char *end)
{
        while (end > begin) {
                const char *p = end - 1, *q;
                while (p > begin && ((unsigned char)*p & 0xc0) == 0x80)
                        p--;
                q = p;
                if (!is_space_code(next_code(&q, end)))
                        break;
                end = p;
        }
        return end;
}

/* ---- text between tags ---- */

/* What is left of the text before a tag with this sign. */
static const char *strip(const Lexer *x, const char *begin, const char *end, char sign, bool block)
{
        const char *line = end;
        if (sign == '-')
                return rstrip(begin, end);
        if (sign == '+' || !block)
                return end;
        while (line > begin && line[-1] != '\n')
                line--;
        if ((line > begin || x->line_starting) && skip_space(x, line) >= end)
                return line;
        return end;
}

static void text(Lexer *x, const char *begin, const char *end)
{
        if (end <= begin)
                return;
        place(x, begin);
        add(x, T_DATA, begin, (size_t)(end - begin));
}

/* `-%}` and the space after it, `+%}`, or `%}` and with trim a newline: where it ends, or NULL. */
static const char *closes(const Lexer *x, const char *p, const char *close, bool plus, bool trim)
{
        if (p < x->end && *p == '-' && at(x, p + 1, close))
                return skip_space(x, p + 3);
        if (plus && p < x->end && *p == '+' && at(x, p + 1, close))
                return p + 3;
        if (!at(x, p, close))
                return NULL;
        p += 2;
        return trim && p < x->end && *p == '\n' ? p + 1 : p;
}

static void ended(Lexer *x, const char *p)
{
        x->line_starting = p > x->at && p[-1] == '\n';
        x->at = p;
}

static char sign_at(const Lexer *x, const char *p)
{
        return p < x->end && (*p == '-' || *p == '+') ? *p : 0;
}

/* `{% WORD %}` at p: where it ends, or NULL. */
static const char *word_tag(const Lexer *x, const char *p, const char *word, bool end)
{
        if (!at(x, p, "{%"))
                return NULL;
        p += 2 + (sign_at(x, p + 2) != 0);
        p = skip_space(x, p);
        if (!at(x, p, word))
                return NULL;
        return closes(x, skip_space(x, p + strlen(word)), "%}", end, end);
}

/* From behind `{% raw %}` to behind `{% endraw %}`. */
static void raw(Lexer *x)
{
        for (const char *p = x->at; p < x->end; p++) {
                const char *q = *p == '{' ? word_tag(x, p, "endraw", true) : NULL;
                if (!q)
                        continue;
                text(x, x->at, strip(x, x->at, p, sign_at(x, p + 2), true));
                ended(x, q);
                return;
        }
        j_fail(x->j, "missing end of raw directive");
}

static void comment(Lexer *x)
{
        for (const char *p = x->at; p < x->end; p++) {
                const char *q = closes(x, p, "#}", true, true);
                if (q) {
                        ended(x, q);
                        return;
                }
        }
        j_fail(x->j, "missing end of comment tag");
}

/* ---- words in tags ---- */

static int digit(char c, int base)
{
        int v = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 99;
        return v < base ? v : -1;
}

/* (_?D)*: where these digits end. */
static const char *digits(const Lexer *x, const char *p, int base)
{
        for (;;) {
                const char *q = p + (p < x->end && *p == '_');
                if (q >= x->end || digit(*q, base) < 0)
                        return p;
                p = q + 1;
        }
}

/* (\d+_)*\d+, as float_re has it; NULL: no digit. */
static const char *float_digits(const Lexer *x, const char *p)
{
        return p < x->end && digit(*p, 10) >= 0 ? digits(x, p, 10) : NULL;
}

static const char *float_end(const Lexer *x, const char *p)
{
        const char *whole = float_digits(x, p), *q, *frac = NULL;
        if (!whole || (p > x->at && p[-1] == '.'))
                return NULL;
        q = whole;
        if (q < x->end && *q == '.' && (frac = float_digits(x, q + 1)))
                q = frac;
        if (q < x->end && (*q == 'e' || *q == 'E')) {
                const char *s = q + 1 + (q + 1 < x->end && (q[1] == '+' || q[1] == '-'));
                const char *exp = float_digits(x, s);
                if (exp)
                        return exp;
        }
        return frac;
}

static void number_text(Lexer *x, const char *p, const char *end, char out[64])
{
        size_t n = 0;
        for (; p < end; p++)
                if (*p != '_') {
                        if (n == 62)
                                j_lacks(x->j, "a number of more than 62 digits");
                        out[n++] = *p;
                }
        out[n] = 0;
}

static bool number(Lexer *x)
{
        const char *p = x->at, *q = float_end(x, p);
        char s[64];
        /* lookbehind: `.5` after a name is no float */
        if (q && !(x->n && x->tok[x->n - 1].t == T_DOT && x->tok[x->n - 1].p == p - 1)) {
                number_text(x, p, q, s);
                add(x, T_FLOAT, p, (size_t)(q - p))->d = c_strtod(s, NULL);
                ended(x, q);
                return true;
        }
        if (digit(*p, 10) < 0)
                return false;
        int base = 10;
        if (*p == '0') {
                char c = p + 1 < x->end ? (char)(p[1] | 32) : 0;
                base = c == 'b' ? 2 : c == 'o' ? 8 : c == 'x' ? 16 : 10;
                q = base == 10 ? p : digits(x, p + 2, base);
                if (base != 10 && q == p + 2)
                        base = 10;
                if (base == 10) /* 0(_?0)* */
                        for (q = p + 1; q < x->end;) {
                                const char *r = q + (*q == '_');
                                if (r >= x->end || *r != '0')
                                        break;
                                q = r + 1;
                        }
        } else {
                q = digits(x, p, 10);
        }
        number_text(x, base == 10 ? p : p + 2, q, s);
        errno = 0;
        Token *t = add(x, T_INT, p, (size_t)(q - p));
        t->i = strtoll(s, NULL, base);
        if (errno)
                j_lacks(x->j, "an integer beyond 64 bits");
        ended(x, q);
        return true;
}

static bool name(Lexer *x)
{
        const char *p = x->at, *q = p;
        uint32_t c = next_code(&q, x->end);
        if (!is_name_begin(c))
                return false;
        for (p = q; p < x->end; p = q)
                if (!is_name_code(next_code(&q, x->end)))
                        break;
        add(x, T_NAME, x->at, (size_t)(p - x->at));
        ended(x, p);
        return true;
}

/* ---- strings: Python's unicode-escape of the text with \xNN for what is not ASCII ---- */

static uint32_t hex(Lexer *x, const char *p, const char *end, int n)
{
        uint32_t c = 0;
        for (int i = 0; i < n; i++) {
                int d = p + i < end ? digit(p[i], 16) : -1;
                if (d < 0)
                        j_fail(x->j, "a string has a broken \\ escape");
                c = c * 16 + (uint32_t)d;
        }
        if (c > 0x10ffff)
                j_fail(x->j, "a string has an escape beyond U+10FFFF");
        if (c >= 0xd800 && c < 0xe000)
                j_lacks(x->j, "half a surrogate pair in a string");
        return c;
}

static const char *escape(Lexer *x, Buf *b, const char *p, const char *end)
{
        static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
        const char *q = p + 1, *k;
        uint32_t c = next_code(&q, end);
        if (c == '\n')
                return q;
        if (c < 128 && c && (k = strchr(from, (int)c))) {
                out_put(x->j, b, &to[k - from], 1);
                return q;
        }
        if (c >= '0' && c <= '7') {
                uint32_t v = c - '0';
                for (int i = 0; i < 2 && q < end && *q >= '0' && *q <= '7'; i++)
                        v = v * 8 + (uint32_t)(*q++ - '0');
                out_code(x->j, b, v);
                return q;
        }
        if (c == 'x' || c == 'u' || c == 'U') {
                int n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
                out_code(x->j, b, hex(x, q, end, n));
                return q + n;
        }
        if (c == 'N')
                j_lacks(x->j, "\\N in a string");
        if (c >= 128) { /* its backslash meets that of the replacement */
                char s[16];
                c_format(s, sizeof s, c < 256 ? "\\x%02x" : c < 65536 ? "\\u%04x" : "\\U%08x", c);
                out_text(x->j, b, s);
                return q;
        }
        out_put(x->j, b, p, (size_t)(q - p));
        return q;
}

static bool string(Lexer *x)
{
        const char *p = x->at + 1, *q = p;
        if (*x->at != '\'' && *x->at != '"')
                return false;
        while (q < x->end && *q != *x->at)
                q += 1 + (*q == '\\');
        if (q >= x->end)
                j_fail(x->j, "a string that does not end");
        Buf b = { 0 };
        int line = x->j->line, col = x->j->col;
        while (p < q) {
                const char *r = memchr(p, '\\', (size_t)(q - p));
                out_put(x->j, &b, p, (size_t)((r ? r : q) - p));
                p = r ? escape(x, &b, r, q) : q;
        }
        x->j->line = line;
        x->j->col = col;
        add(x, T_STRING, b.p ? b.p : "", b.n);
        ended(x, q + 1);
        return true;
}

static const struct {
        const char *text;
        TokenType t;
} operator[] = { { "//", T_FLOORDIV }, { "**", T_POW },     { "==", T_EQ },    { "!=", T_NE },
                 { ">=", T_GE },       { "<=", T_LE },      { "+", T_ADD },    { "-", T_SUB },
                 { "/", T_DIV },       { "*", T_MUL },      { "%", T_MOD },    { "~", T_TILDE },
                 { "[", T_LBRACKET },  { "]", T_RBRACKET }, { "(", T_LPAREN }, { ")", T_RPAREN },
                 { "{", T_LBRACE },    { "}", T_RBRACE },   { ">", T_GT },     { "<", T_LT },
                 { "=", T_ASSIGN },    { ".", T_DOT },      { ":", T_COLON },  { "|", T_PIPE },
                 { ",", T_COMMA },     { ";", T_SEMICOLON } };
enum { N_OPERATORS = sizeof operator/ sizeof * operator};

static void bracket(Lexer *x, char c)
{
        if (c == '(' || c == '[' || c == '{') {
                if (x->n_open == x->cap_open) {
                        x->open = j_grow(x->j, x->open, (size_t)x->n_open, (size_t)x->n_open + 64);
                        x->cap_open = x->cap_open * 2 + 64;
                }
                x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
                if (!x->n_open)
                        j_fail(x->j, "unexpected '%c'", c);
                if (x->open[--x->n_open] != c)
                        j_fail(x->j, "unexpected '%c', expected '%c'", c, x->open[x->n_open]);
        }
}

static void word(Lexer *x)
{
        place(x, x->at);
        if (number(x) || name(x) || string(x))
                return;
        for (int i = 0; i < N_OPERATORS; i++)
                if (at(x, x->at, operator[i].text)) {
                        const char *p = x->at, *s = operator[i].text;
                        if (!s[1])
                                bracket(x, *s);
                        add(x, operator[i].t, p, strlen(s));
                        ended(x, p + strlen(s));
                        return;
                }
        const char *p = x->at;
        uint32_t c = next_code(&p, x->end);
        j_fail(x->j, "unexpected character U+%04X", (unsigned)c);
}

/* Behind `{{` or `{%` to behind what closes it; at the text's end without it, the parser says
 * so. */
static void tag(Lexer *x, bool block)
{
        while (x->at < x->end) {
                const char *p = x->n_open ? NULL
                                : block   ? closes(x, x->at, "%}", true, true)
                                          : closes(x, x->at, "}}", false, false);
                if (p) {
                        place(x, x->at);
                        add(x, block ? T_BLOCK_END : T_VAR_END, x->at, 0);
                        ended(x, p);
                        return;
                }
                if ((p = skip_space(x, x->at)) > x->at)
                        ended(x, p);
                else
                        word(x);
        }
}

static void root(Lexer *x)
{
        const char *p = x->at, *q = NULL;
        while (p < x->end &&
               !(*p == '{' && p + 1 < x->end && (p[1] == '{' || p[1] == '%' || p[1] == '#')))
                p++;
        if (p >= x->end) {
                text(x, x->at, x->end);
                x->at = x->end;
                return;
        }
        q = word_tag(x, p, "raw", false);
        char sign = sign_at(x, p + 2), kind = p[1];
        const char *begin = x->at;
        text(x, begin, strip(x, begin, p, sign, kind != '{'));
        ended(x, q ? q : p + 2 + (sign != 0));
        place(x, p);
        if (q) {
                raw(x);
        } else if (kind == '#') {
                comment(x);
        } else {
                add(x, kind == '{' ? T_VAR_BEGIN : T_BLOCK_BEGIN, p, 0);
                tag(x, kind == '%');
        }
}

/* Newlines are \n; the last one goes. */
static char *normal(J *j, const char *s, size_t n, size_t *out_n)
{
        char *out = j_get(j, n + 1), *to = out;
        for (size_t i = 0; i < n; i++)
                if (s[i] == '\r') {
                        *to++ = '\n';
                        i += i + 1 < n && s[i + 1] == '\n';
                } else {
                        *to++ = s[i];
                }
        if (to > out && to[-1] == '\n')
                to--;
        *out_n = (size_t)(to - out);
        *to = 0;
        return out;
}

Token *jinja_lex(J *j, const char *s, size_t n, int *n_tokens)
{
        size_t m;
        char *t = normal(j, s, n, &m);
        Lexer x = {
                .j = j, .at = t, .end = t + m, .seen = t, .line = 1, .col = 1, .line_starting = true
        };
        while (x.at < x.end)
                root(&x);
        place(&x, x.end);
        add(&x, T_EOF, x.end, 0);
        *n_tokens = x.n;
        return x.tok;
}

const char *token_text(const Token *t)
{
        for (int i = 0; i < N_OPERATORS; i++)
                if (operator[i].t == t->t)
                        return operator[i].text;
        switch (t->t) {
        case T_EOF: return "the end of the template";
        case T_DATA: return "text";
        case T_VAR_BEGIN: return "{{";
        case T_VAR_END: return "}}";
        case T_BLOCK_BEGIN: return "{%";
        case T_BLOCK_END: return "%}";
        case T_STRING: return "a string";
        case T_INT:
        case T_FLOAT: return "a number";
        default: return "a name";
        }
}
