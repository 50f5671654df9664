/* jinja_format.c: Python's `%` on strings, and str.format. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../util/c_locale.h"
#include "jinja.h"

enum { MOST_WIDTH = 1 << 20, MOST_PRECISION = 300 };

/* What a conversion asks for, in both languages. */
typedef struct Spec {
        bool minus, plus, blank, alt, zero, comma;
        char align; /* < > ^ =, or 0 */
        const char *fill;
        size_t n_fill;
        int width, prec; /* prec -1: not given */
        char type;
} Spec;

static void put_pad(J *j, Buf *b, const Spec *s, int n)
{
        j_step(j, (size_t)(n > 0 ? n : 0));
        for (; n > 0; n--)
                out_put(j, b, s->fill, s->n_fill);
}

/* sign and digits, padded; text: sign "" */
static void put_field(J *j, Buf *b, const Spec *s, const char *sign, const char *p, size_t n)
{
        int room = s->width - (int)(strlen(sign) + count_codes(p, n));
        char align = s->align;
        room = room < 0 ? 0 : room;
        int left = align == '>' ? room : align == '^' ? room / 2 : 0;
        put_pad(j, b, s, left);
        out_text(j, b, sign);
        if (align == '=')
                put_pad(j, b, s, room);
        out_put(j, b, p, n);
        if (align != '=')
                put_pad(j, b, s, room - left);
}

static const char *sign_of(const Spec *s, bool negative)
{
        return negative ? "-" : s->plus ? "+" : s->blank ? " " : "";
}

static void group(char *s)
{
        char out[96];
        size_t n = strlen(s), k = 0;
        for (size_t i = 0; i < n; i++) {
                if (i && (n - i) % 3 == 0)
                        out[k++] = ',';
                out[k++] = s[i];
        }
        out[k] = 0;
        memcpy(s, out, k + 1);
}

static void put_integer(J *j, Buf *b, const Spec *s, int64_t i)
{
        char digits[96], whole[400], sign[4];
        uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
        const char *fmt = s->type == 'x'   ? "%llx"
                          : s->type == 'X' ? "%llX"
                          : s->type == 'o' ? "%llo"
                                           : "%llu";
        c_format(digits, sizeof digits, fmt, (unsigned long long)u);
        if (s->comma)
                group(digits);
        int zeros = s->prec - (int)strlen(digits), n = 0;
        for (; zeros > 0; zeros--)
                whole[n++] = '0';
        strcpy(whole + n, digits);
        c_format(sign, sizeof sign, "%s%s", sign_of(s, i < 0),
                 !s->alt          ? ""
                 : s->type == 'x' ? "0x"
                 : s->type == 'X' ? "0X"
                 : s->type == 'o' ? "0o"
                                  : "");
        put_field(j, b, s, sign, whole, strlen(whole));
}

static void put_real(J *j, Buf *b, const Spec *s, double d)
{
        char fmt[8] = "%.*f", digits[800];
        fmt[3] = s->type;
        if (s->alt)
                j_lacks(j, "# with a float");
        if (isnan(d) || isinf(d)) {
                Spec plain = *s;
                bool big = s->type >= 'A' && s->type <= 'Z';
                if (s->align == '=' && *s->fill == '0')
                        j_lacks(j, "zeros before inf or nan");
                c_format(digits, sizeof digits, "%s",
                         isnan(d) ? big ? "NAN" : "nan"
                         : big    ? "INF"
                                  : "inf");
                put_field(j, b, &plain, sign_of(s, d < 0), digits, 3);
                return;
        }
        c_format(digits, sizeof digits, fmt, s->prec < 0 ? 6 : s->prec, fabs(d));
        if (s->comma)
                j_lacks(j, "a comma in a float");
        put_field(j, b, s, sign_of(s, signbit(d)), digits, strlen(digits));
}

static int number(J *j, const char **p, const char *end, int most, const char *what)
{
        int64_t n = 0;
        for (; *p < end && **p >= '0' && **p <= '9'; ++*p)
                if ((n = n * 10 + (**p - '0')) > most)
                        j_fail(j, "a %s of more than %d", what, most);
        return (int)n;
}

/* ---- `%` ---- */

typedef struct Percent {
        Val args;
        size_t next; /* of a tuple, or 1 when the only one is taken */
        bool mapping, markup;
} Percent;

static Val next_arg(J *j, Percent *x)
{
        if (x->args.t == V_TUPLE) {
                if (x->next < x->args.l->n)
                        return x->args.l->v[x->next++];
        } else if (!x->next++) {
                return x->args;
        }
        j_fail(j, "not enough arguments for format string");
}

static int star(J *j, Percent *x, const char **p, const char *end, int most, const char *what)
{
        int64_t i;
        if (*p >= end || **p != '*')
                return number(j, p, end, most, what);
        ++*p;
        if (!is_integer(next_arg(j, x), &i))
                j_fail(j, "* wants int");
        if (i < 0 || i > most)
                j_lacks(j, "a %s of %lld", what, (long long)i);
        return (int)i;
}

static void convert(J *j, Buf *b, Spec *s, Percent *x, Val v)
{
        Buf t = { 0 };
        int64_t i;
        char c[4];
        switch (s->type) {
        case 's':
        case 'r':
                if (s->type == 'r')
                        put_repr(j, &t, v);
                else
                        put_str(j, &t, v);
                Val text = out_str(j, &t);
                if (x->markup)
                        text = escape_html(j, s->type == 's' ? v : text);
                size_t n = text.s->n;
                if (s->prec >= 0)
                        n = (size_t)(skip_codes(text.s->p, text.s->p + n, (size_t)s->prec) -
                                     text.s->p);
                s->align = s->minus ? '<' : '>';
                s->fill = " ";
                put_field(j, b, s, "", text.s->p, n);
                return;
        case 'c':
                s->align = s->minus ? '<' : '>';
                s->fill = " ";
                if (is_str(v) && v.s->chars == 1) {
                        put_field(j, b, s, "", v.s->p, v.s->n);
                        return;
                }
                if (!is_integer(v, &i) || i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
                        j_fail(j, "%%c wants an int in range or a character");
                put_field(j, b, s, "", c, put_code(c, (uint32_t)i));
                return;
        case 'd':
        case 'i':
        case 'u':
                if (v.t == V_FLOAT) {
                        if (!(fabs(v.d) < 9e18))
                                j_lacks(j, "an integer beyond 64 bits");
                        v = v_int((int64_t)v.d);
                }
                /* fall through */
        case 'x':
        case 'X':
        case 'o':
                if (!is_integer(v, &i))
                        j_fail(j, "%%%c: a number is required, not %s", s->type, v_type(v));
                put_integer(j, b, s, i);
                return;
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G':
                if (is_str(v) || !is_number(v))
                        j_fail(j, "must be real number, not %s", v_type(v));
                put_real(j, b, s, number_of(v));
                return;
        default: j_fail(j, "unsupported format character '%c'", s->type);
        }
}

/* Behind the `%`: one conversion. */
static const char *percent(J *j, Buf *b, Percent *x, const char *p, const char *end)
{
        Spec s = { .prec = -1, .fill = " ", .n_fill = 1 };
        Val v = { .t = V_MISSING };
        if (p < end && *p == '(') {
                const char *q = memchr(p, ')', (size_t)(end - p));
                if (!x->mapping)
                        j_fail(j, "format requires a mapping");
                if (!q || memchr(p + 1, '(', (size_t)(q - p - 1)))
                        j_lacks(j, "this key in a format string");
                Val key = v_str_at(j, p + 1, (size_t)(q - p) - 1), *at;
                if (x->args.t != V_DICT || !(at = dict_find(j, x->args.m, key)))
                        j_fail(j, "the format string's key '%.60s' is not there",
                               to_str(j, key).s->n ? p + 1 : "");
                v = *at;
                p = q + 1;
        }
        for (; p < end && strchr("-+ #0", *p); p++) {
                s.minus |= *p == '-';
                s.plus |= *p == '+';
                s.blank |= *p == ' ';
                s.alt |= *p == '#';
                s.zero |= *p == '0';
        }
        s.width = star(j, x, &p, end, MOST_WIDTH, "width");
        if (p < end && *p == '.') {
                p++;
                s.prec = star(j, x, &p, end, MOST_PRECISION, "precision");
        }
        if (p < end && strchr("hlL", *p))
                p++;
        if (p >= end)
                j_fail(j, "incomplete format");
        s.type = *p++;
        s.align = s.minus ? '<' : s.zero ? '=' : '>';
        s.fill = s.align == '=' ? "0" : " ";
        if (s.type == '%') {
                if (s.width || s.prec >= 0)
                        j_lacks(j, "a width before %%%%");
                out_text(j, b, "%");
                return p;
        }
        if (v.t == V_MISSING)
                v = next_arg(j, x);
        convert(j, b, &s, x, v);
        return p;
}

Val format_percent(J *j, Val fmt, Val args)
{
        /* what Python's PyMapping_Check takes */
        bool mapping = args.t == V_DICT || args.t == V_LIST || args.t == V_RANGE ||
                       args.t == V_UNDEF;
        Percent x = { args, 0, mapping, fmt.markup };
        const char *p = fmt.s->p, *end = p + fmt.s->n;
        Buf b = { 0 };
        while (p < end) {
                const char *q = memchr(p, '%', (size_t)(end - p));
                out_put(j, &b, p, (size_t)((q ? q : end) - p));
                j_step(j, 1);
                p = q ? percent(j, &b, &x, q + 1, end) : end;
        }
        if (!x.mapping && x.next < (args.t == V_TUPLE ? args.l->n : 1))
                j_fail(j, "not all arguments converted during string formatting");
        return v_markup(out_str(j, &b), fmt.markup);
}

/* ---- str.format ---- */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static Spec read_spec(J *j, const char *p, const char *end)
{
        Spec s = { .prec = -1, .fill = " ", .n_fill = 1 };
        const char *q = p;
        if (p < end)
                next_code(&q, end);
        if (q < end && strchr("<>^=", *q)) {
                s.fill = p;
                s.n_fill = (size_t)(q - p);
                s.align = *q;
                p = q + 1;
        } else if (p < end && strchr("<>^=", *p)) {
                s.align = *p++;
        }
        if (p < end && strchr("+- ", *p)) {
                s.plus = *p == '+';
                s.blank = *p++ == ' ';
        }
        if (p < end && *p == '#') {
                s.alt = true;
                p++;
        }
        if (p < end && *p == '0') {
                p++;
                s.zero = true;
                if (!s.align) {
                        s.align = '=';
                        s.fill = "0";
                        s.n_fill = 1;
                }
        }
        s.width = number(j, &p, end, MOST_WIDTH, "width");
        if (p < end && *p == ',') {
                s.comma = true;
                p++;
        }
        if (p < end && *p == '.') {
                const char *begin = ++p;
                s.prec = number(j, &p, end, MOST_PRECISION, "precision");
                if (p == begin)
                        j_fail(j, "format specifier missing precision");
        }
        if (p < end)
                s.type = *p++;
        if (p < end)
                j_fail(j, "invalid format specifier");
        return s;
}

static void put_formatted(J *j, Buf *b, Val v, const char *p, const char *end)
{
        Buf t = { 0 };
        int64_t i;
        if (p == end) {
                put_str(j, b, v);
                return;
        }
        Spec s = read_spec(j, p, end);
        if (is_str(v)) {
                if ((s.type && s.type != 's') || s.plus || s.blank || s.alt || s.comma ||
                    (s.align == '=' && !s.zero))
                        j_fail(j, "this format specifier is not for a str");
                if (s.zero)
                        j_lacks(j, "a zero in the format specifier of a str");
                size_t n = s.prec < 0
                                   ? v.s->n
                                   : (size_t)(skip_codes(v.s->p, v.s->p + v.s->n, (size_t)s.prec) -
                                              v.s->p);
                s.align = s.align ? s.align : '<';
                put_field(j, b, &s, "", v.s->p, n);
                return;
        }
        s.align = s.align ? s.align : '>';
        if (is_integer(v, &i) && (!s.type || strchr("dxXo", s.type))) {
                if (s.prec >= 0)
                        j_fail(j, "precision not allowed in integer format specifier");
                if (s.comma && (s.align == '=' || (s.type && s.type != 'd')))
                        j_lacks(j, "this comma in a format specifier");
                put_integer(j, b, &s, i);
        } else if (is_number(v) && s.type && strchr("eEfFgG", s.type)) {
                put_real(j, b, &s, number_of(v));
        } else if (v.t == V_FLOAT && !s.type && s.prec < 0 && !s.comma && !s.alt && isfinite(v.d)) {
                put_float(j, &t, fabs(v.d));
                put_field(j, b, &s, sign_of(&s, signbit(v.d)), t.p, t.n);
        } else if (is_number(v)) {
                j_lacks(j, "this format specifier of a %s", v_type(v));
        } else {
                j_fail(j, "a %s takes no format specifier", v_type(v));
        }
}

typedef struct Fields {
        const Args *a;
        int next; /* of {}; -1: numbers are given */
} Fields;

static Val arg_at(J *j, Fields *x, const char *p, const char *q)
{
        const Args *a = x->a;
        bool digits = q > p;
        for (const char *k = p; k < q; k++)
                digits &= *k >= '0' && *k <= '9';
        int64_t i = p == q ? x->next : digits ? number(j, &p, q, 1 << 20, "place") : -1;
        if (p == q && !digits && x->next++ < 0)
                j_fail(j, "cannot switch from manual field specification to automatic");
        if (digits && x->next > 0)
                j_fail(j, "cannot switch from automatic field numbering to manual");
        if (digits)
                x->next = -1;
        if (i >= a->n)
                j_fail(j, "the format string wants more arguments than there are");
        if (i >= 0)
                return a->v[i];
        for (int k = 0; k < a->n_kw; k++)
                if (strlen(a->key[k]) == (size_t)(q - p) && !memcmp(a->key[k], p, (size_t)(q - p)))
                        return a->kw[k];
        j_fail(j, "the format string's name '%.*s' is not there", (int)(q - p < 60 ? q - p : 60),
               p);
}

/* Behind `{`: NAME(.attr|[item])*[!r|!s][:spec]} */
static const char *field(J *j, Buf *b, Fields *x, const char *p, const char *end)
{
        const char *shut = memchr(p, '}', (size_t)(end - p)), *q = p, *r;
        char how = 0;
        if (!shut)
                j_fail(j, "expected '}' before end of string");
        if (memchr(p, '{', (size_t)(shut - p)))
                j_lacks(j, "a field within a field of a format string");
        while (q < shut && !strchr(".[!:", *q))
                q++;
        Val v = arg_at(j, x, p, q);
        while (q < shut && *q != '!' && *q != ':') {
                bool item = *q == '[';
                for (r = q + 1; r < shut && (item ? *r != ']' : !strchr(".[!:", *r));)
                        r++;
                if (item && r == shut)
                        j_fail(j, "missing ']' in format string");
                Val key = v_str(j, q + 1, (size_t)(r - q) - 1);
                const char *d = key.s->p;
                int64_t i = key.s->n ? number(j, &d, d + key.s->n, 1 << 30, "place") : 0;
                v = item ? v_getitem(j, v, key.s->n && !*d ? v_int(i) : key)
                         : v_getattr(j, v, key.s->p);
                q = r + item;
        }
        if (q < shut && *q == '!') {
                how = ++q < shut ? *q++ : 0;
                if (how != 'r' && how != 's')
                        j_lacks(j, "this conversion in a format string");
        }
        if (q < shut && *q++ != ':')
                j_fail(j, "expected ':' after conversion specifier");
        if (how) {
                Buf t = { 0 };
                if (how == 'r')
                        put_repr(j, &t, v);
                else
                        put_str(j, &t, v);
                v = out_str(j, &t);
        }
        put_formatted(j, b, v, q, shut);
        return shut + 1;
}

Val str_format(J *j, Val self, const Args *a)
{
        Fields x = { a, 0 };
        const char *p = self.s->p, *end = p + self.s->n;
        Buf b = { 0 };
        if (self.markup)
                j_lacks(j, "format of Markup");
        while (p < end) {
                const char c = *p;
                j_step(j, 1);
                if (c != '{' && c != '}') {
                        const char *q = p;
                        while (q < end && *q != '{' && *q != '}')
                                q++;
                        out_put(j, &b, p, (size_t)(q - p));
                        p = q;
                } else if (p + 1 < end && p[1] == c) {
                        out_put(j, &b, p, 1);
                        p += 2;
                } else if (c == '}') {
                        j_fail(j, "single '}' encountered in format string");
                } else {
                        p = field(j, &b, &x, p + 1, end);
                }
        }
        return out_str(j, &b);
}
