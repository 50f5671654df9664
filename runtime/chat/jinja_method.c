/* jinja_method.c: the methods of Python's str. */
#include <string.h>
#include "jinja.h"

static bool markup(Val v) { return v.markup; }

static Val want_str(J *j, Val v, const char *what)
{
        if (v.t != V_STR)
                j_fail(j, "%s: a str is wanted, not %s", what, v_type(v));
        return v;
}

static int64_t want_int(J *j, Val v, const char *what, int64_t dflt)
{
        int64_t i = dflt;
        if (v.t != V_MISSING && !is_integer(v, &i))
                j_fail(j, "%s: an integer is wanted, not %s", what, v_type(v));
        return i;
}

/* ---- searching ---- */

/* Bytes of v[start:end], as find, count and startswith take them. */
static bool window(J *j, Val v, Val start, Val end, const char **p, const char **q)
{
        int64_t n = (int64_t)v.s->chars, from = start.t == V_MISSING || start.t == V_NONE ? 0 : 1,
                to = end.t == V_MISSING || end.t == V_NONE ? 0 : 1;
        from = from ? want_int(j, start, "start", 0) : 0;
        to = to ? want_int(j, end, "end", 0) : n;
        from = from < 0 ? (from + n < 0 ? 0 : from + n) : from;
        to = to < 0 ? (to + n < 0 ? 0 : to + n) : to > n ? n : to;
        j_step(j, v.s->n / 64);
        if (from > to || from > n)
                return false;
        *p = skip_codes(v.s->p, v.s->p + v.s->n, (size_t)from);
        *q = skip_codes(*p, v.s->p + v.s->n, (size_t)(to - from));
        return true;
}

static const char *find_last(const char *p, const char *q, const Str *s)
{
        for (const char *at = q - s->n; s->n <= (size_t)(q - p) && at >= p; at--)
                if (!memcmp(at, s->p, s->n))
                        return at;
        return NULL;
}

static Val find(J *j, Val self, const Args *a, bool last, bool must)
{
        Val x[3];
        const char *p, *q, *at = NULL;
        args_take(j, a, "find", "sub start? end? /", x);
        Val sub = want_str(j, x[0], "find");
        if (window(j, self, x[1], x[2], &p, &q)) {
                j_step(j, last ? (size_t)(q - p) * (sub.s->n / 16 + 1) / 16 : 1);
                at = last       ? find_last(p, q, sub.s)
                     : sub.s->n ? memmem(p, (size_t)(q - p), sub.s->p, sub.s->n)
                                : p;
        }
        if (!at && must)
                j_fail(j, "substring not found");
        return v_int(at ? (int64_t)count_codes(self.s->p, (size_t)(at - self.s->p)) : -1);
}

static Val m_find(J *j, Val self, const Args *a) { return find(j, self, a, false, false); }
static Val m_rfind(J *j, Val self, const Args *a) { return find(j, self, a, true, false); }
static Val m_index(J *j, Val self, const Args *a) { return find(j, self, a, false, true); }
static Val m_rindex(J *j, Val self, const Args *a) { return find(j, self, a, true, true); }

static Val m_count(J *j, Val self, const Args *a)
{
        Val x[3];
        const char *p, *q;
        int64_t n = 0;
        args_take(j, a, "count", "sub start? end? /", x);
        Val sub = want_str(j, x[0], "count");
        if (!window(j, self, x[1], x[2], &p, &q))
                return v_int(0);
        if (!sub.s->n)
                return v_int((int64_t)count_codes(p, (size_t)(q - p)) + 1);
        for (const char *at; (at = memmem(p, (size_t)(q - p), sub.s->p, sub.s->n)); n++)
                p = at + sub.s->n;
        return v_int(n);
}

static bool has_end(Val v, const char *p, const char *q, bool tail)
{
        return v.s->n <= (size_t)(q - p) && !memcmp(tail ? q - v.s->n : p, v.s->p, v.s->n);
}

static Val with(J *j, Val self, const Args *a, bool tail)
{
        Val x[3];
        const char *p, *q;
        args_take(j, a, tail ? "endswith" : "startswith", "prefix start? end? /", x);
        if (x[0].t != V_STR && x[0].t != V_TUPLE)
                j_fail(j, "%s: a str or a tuple of str is wanted, not %s",
                       tail ? "endswith" : "startswith", v_type(x[0]));
        bool inside = window(j, self, x[1], x[2], &p, &q), yes = false;
        if (x[0].t == V_STR)
                return v_bool(inside && has_end(x[0], p, q, tail));
        for (size_t i = 0; i < x[0].l->n && !yes; i++)
                yes = inside && has_end(want_str(j, x[0].l->v[i], "a prefix"), p, q, tail);
        return v_bool(yes);
}

static Val m_startswith(J *j, Val self, const Args *a) { return with(j, self, a, false); }
static Val m_endswith(J *j, Val self, const Args *a) { return with(j, self, a, true); }

/* ---- cutting ---- */

static const char *before(const char *p, const char *begin)
{
        do
                p--;
        while (p > begin && ((unsigned char)*p & 0xc0) == 0x80);
        return p;
}

static bool in_set(J *j, const Str *set, uint32_t c)
{
        if (!set)
                return is_space_code(c);
        j_step(j, 1);
        for (const char *p = set->p, *end = p + set->n; p < end;)
                if (next_code(&p, end) == c)
                        return true;
        return false;
}

static Val strip(J *j, Val self, const Args *a, int ends, const char *what)
{
        Val x[1];
        args_take(j, a, what, "chars? /", x);
        const Str *set = x[0].t == V_MISSING || x[0].t == V_NONE ? NULL : want_str(j, x[0], what).s;
        const char *p = self.s->p, *q = p + self.s->n, *k;
        while ((ends & 1) && p < q) {
                k = p;
                if (!in_set(j, set, next_code(&k, q)))
                        break;
                p = k;
        }
        while ((ends & 2) && p < q) {
                const char *last = k = before(q, p);
                if (!in_set(j, set, next_code(&k, q)))
                        break;
                q = last;
        }
        return v_markup(v_str_at(j, p, (size_t)(q - p)), markup(self));
}

static Val m_strip(J *j, Val self, const Args *a) { return strip(j, self, a, 3, "strip"); }
static Val m_lstrip(J *j, Val self, const Args *a) { return strip(j, self, a, 1, "lstrip"); }
static Val m_rstrip(J *j, Val self, const Args *a) { return strip(j, self, a, 2, "rstrip"); }

typedef struct Parts {
        Val *v;
        size_t n, cap;
} Parts;

static void part(J *j, Parts *l, Val self, const char *p, const char *q)
{
        if (l->n == l->cap) {
                l->v = j_grow(j, l->v, l->n * sizeof *l->v, (l->n + 8) * sizeof *l->v);
                l->cap = l->n * 2 + 8;
        }
        j_step(j, 1);
        l->v[l->n++] = v_markup(v_str_at(j, p, (size_t)(q - p)), markup(self));
}

static Val parts_list(J *j, const Parts *l, bool turn)
{
        Val out = v_list(j, V_LIST, l->n);
        for (size_t i = 0; i < l->n; i++)
                out.l->v[i] = l->v[turn ? l->n - 1 - i : i];
        return out;
}

static const char *skip_set(const char *p, const char *q, bool space)
{
        while (p < q) {
                const char *k = p;
                if (is_space_code(next_code(&k, q)) != space)
                        break;
                p = k;
        }
        return p;
}

static const char *skip_back(const char *p, const char *q, bool space)
{
        while (q > p) {
                const char *last = before(q, p), *k = last;
                if (is_space_code(next_code(&k, q)) != space)
                        break;
                q = last;
        }
        return q;
}

static Val m_split(J *j, Val self, const Args *a)
{
        Val x[2];
        Parts l = { 0 };
        args_take(j, a, "split", "sep? maxsplit?", x);
        int64_t most = want_int(j, x[1], "maxsplit", -1);
        const char *p = self.s->p, *end = p + self.s->n, *q;
        if (x[0].t == V_MISSING || x[0].t == V_NONE) {
                for (p = skip_set(p, end, true); p < end; p = skip_set(q, end, true)) {
                        q = most-- == 0 ? end : skip_set(p, end, false);
                        part(j, &l, self, p, q);
                }
                return parts_list(j, &l, false);
        }
        const Str *sep = want_str(j, x[0], "split").s;
        if (!sep->n)
                j_fail(j, "empty separator");
        while (most-- != 0 && (q = memmem(p, (size_t)(end - p), sep->p, sep->n))) {
                part(j, &l, self, p, q);
                p = q + sep->n;
        }
        part(j, &l, self, p, end);
        return parts_list(j, &l, false);
}

static Val m_rsplit(J *j, Val self, const Args *a)
{
        Val x[2];
        Parts l = { 0 };
        args_take(j, a, "rsplit", "sep? maxsplit?", x);
        int64_t most = want_int(j, x[1], "maxsplit", -1);
        const char *p = self.s->p, *end = p + self.s->n, *q;
        if (x[0].t == V_MISSING || x[0].t == V_NONE) {
                for (end = skip_back(p, end, true); end > p; end = skip_back(p, q, true)) {
                        q = most-- == 0 ? p : skip_back(p, end, false);
                        part(j, &l, self, q, end);
                }
                return parts_list(j, &l, true);
        }
        const Str *sep = want_str(j, x[0], "rsplit").s;
        if (!sep->n)
                j_fail(j, "empty separator");
        j_step(j, self.s->n * (sep->n / 16 + 1) / 16);
        while (most-- != 0 && (q = find_last(p, end, sep))) {
                part(j, &l, self, q + sep->n, end);
                end = q;
        }
        part(j, &l, self, p, end);
        return parts_list(j, &l, true);
}

static bool is_line_end(uint32_t c)
{
        return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 ||
               c == 0x2029;
}

static Val m_splitlines(J *j, Val self, const Args *a)
{
        Val x[1];
        Parts l = { 0 };
        args_take(j, a, "splitlines", "keepends?", x);
        bool keep = x[0].t != V_MISSING && v_true(j, x[0]);
        const char *p = self.s->p, *end = p + self.s->n, *q, *k;
        for (; p < end; p = k) {
                for (q = k = p; k < end; q = k)
                        if (is_line_end(next_code(&k, end)))
                                break;
                if (q < end && *q == '\r' && k < end && *k == '\n')
                        k++;
                part(j, &l, self, p, keep ? k : q);
        }
        return parts_list(j, &l, false);
}

static Val partition(J *j, Val self, const Args *a, bool last)
{
        Val x[1], out = v_list(j, V_TUPLE, 3);
        args_take(j, a, "partition", "sep /", x);
        const Str *sep = want_str(j, x[0], "partition").s;
        const char *p = self.s->p, *end = p + self.s->n, *q;
        if (!sep->n)
                j_fail(j, "empty separator");
        j_step(j, self.s->n * (sep->n / 16 + 1) / 16);
        q = last ? find_last(p, end, sep) : memmem(p, self.s->n, sep->p, sep->n);
        const char *cut[4] = { p, q, q ? q + sep->n : 0, end };
        if (!q)
                cut[1] = cut[2] = last ? p : end;
        for (int i = 0; i < 3; i++)
                out.l->v[i] = v_markup(v_str_at(j, cut[i], (size_t)(cut[i + 1] - cut[i])),
                                       markup(self));
        return out;
}

static Val m_partition(J *j, Val self, const Args *a) { return partition(j, self, a, false); }
static Val m_rpartition(J *j, Val self, const Args *a) { return partition(j, self, a, true); }

static Val remove_end(J *j, Val self, const Args *a, bool tail)
{
        Val x[1];
        args_take(j, a, "removeprefix", "prefix /", x);
        const char *p = self.s->p, *q = p + self.s->n;
        if (has_end(want_str(j, x[0], "removeprefix"), p, q, tail)) {
                p += tail ? 0 : x[0].s->n;
                q -= tail ? x[0].s->n : 0;
        }
        return v_markup(v_str_at(j, p, (size_t)(q - p)), markup(self));
}

static Val m_removeprefix(J *j, Val self, const Args *a) { return remove_end(j, self, a, false); }
static Val m_removesuffix(J *j, Val self, const Args *a) { return remove_end(j, self, a, true); }

/* ---- putting together ---- */

static Val m_replace(J *j, Val self, const Args *a)
{
        Val x[3];
        Buf b = { 0 };
        args_take(j, a, "replace", "old new count? /", x);
        const Str *old = want_str(j, x[0], "replace").s,
                  *new = (markup(self) ? escape_html(j, x[1]) : want_str(j, x[1], "replace")).s;
        int64_t most = want_int(j, x[2], "count", -1);
        const char *p = self.s->p, *end = p + self.s->n, *q;
        j_step(j, self.s->n / 64);
        if (!old->n) { /* before each character and at the end */
                for (; most-- != 0; p = q) {
                        j_step(j, 1 + new->n / 64);
                        out_put(j, &b, new->p, new->n);
                        q = skip_codes(p, end, 1);
                        out_put(j, &b, p, (size_t)(q - p));
                        if (p == end)
                                break;
                }
        } else {
                while (most-- != 0 && (q = memmem(p, (size_t)(end - p), old->p, old->n))) {
                        j_step(j, 1 + new->n / 64);
                        out_put(j, &b, p, (size_t)(q - p));
                        out_put(j, &b, new->p, new->n);
                        p = q + old->n;
                }
        }
        out_put(j, &b, p, (size_t)(end - p));
        return v_markup(out_str(j, &b), markup(self));
}

static Val str_join(J *j, Val sep, Val list)
{
        Buf b = { 0 };
        Val x;
        bool first = true;
        for (Iter *it = iter_of(j, list); iter_next(j, it, &x); first = false) {
                if (!first)
                        out_put(j, &b, sep.s->p, sep.s->n);
                x = sep.markup ? escape_html(j, x) : want_str(j, x, "join");
                j_step(j, (x.s->n + sep.s->n) / 64);
                out_put(j, &b, x.s->p, x.s->n);
        }
        return v_markup(out_str(j, &b), sep.markup);
}

static Val m_join(J *j, Val self, const Args *a)
{
        Val x[1];
        args_take(j, a, "join", "iterable /", x);
        return str_join(j, self, x[0]);
}

static Val pad(J *j, Val self, const Args *a, int where, const char *what)
{
        Val x[2];
        Buf b = { 0 };
        args_take(j, a, what, "width fillchar? /", x);
        int64_t more = want_int(j, x[0], what, 0) - (int64_t)self.s->chars, left;
        Val fill = x[1].t == V_MISSING ? v_text(j, " ") : want_str(j, x[1], what);
        fill = markup(self) ? escape_html(j, fill) : fill;
        if (fill.s->chars != 1)
                j_fail(j, "%s: the fill character must be exactly one character long", what);
        more = more < 0 ? 0 : more;
        if (more > MOST_OUTPUT)
                j_fail(j, "%s: the width is too large", what);
        left = where == 'l'   ? 0
               : where == 'r' ? more
                              : more / 2 + (more & (more + (int64_t)self.s->chars) & 1);
        j_step(j, (size_t)more);
        for (int64_t i = 0; i < left; i++)
                out_put(j, &b, fill.s->p, fill.s->n);
        out_put(j, &b, self.s->p, self.s->n);
        for (int64_t i = left; i < more; i++)
                out_put(j, &b, fill.s->p, fill.s->n);
        return v_markup(out_str(j, &b), markup(self));
}

static Val m_center(J *j, Val self, const Args *a) { return pad(j, self, a, 'c', "center"); }
static Val m_ljust(J *j, Val self, const Args *a) { return pad(j, self, a, 'l', "ljust"); }
static Val m_rjust(J *j, Val self, const Args *a) { return pad(j, self, a, 'r', "rjust"); }

static Val m_zfill(J *j, Val self, const Args *a)
{
        Val x[1];
        Buf b = { 0 };
        args_take(j, a, "zfill", "width /", x);
        int64_t more = want_int(j, x[0], "zfill", 0) - (int64_t)self.s->chars;
        bool sign = self.s->n && strchr("+-", *self.s->p);
        if (more > MOST_OUTPUT)
                j_fail(j, "zfill: the width is too large");
        out_put(j, &b, self.s->p, sign);
        for (; more > 0; more--)
                out_text(j, &b, "0");
        out_put(j, &b, self.s->p + sign, self.s->n - sign);
        return v_markup(out_str(j, &b), markup(self));
}

/* ---- case ---- */

static Val cased(J *j, Val self, const Args *a, int how)
{
        Buf b = { 0 };
        bool after = false;
        args_take(j, a, "a method of case", "", NULL);
        const char *begin = self.s->p, *end = begin + self.s->n;
        j_step(j, self.s->n / 8);
        for (const char *p = begin, *q; p < end; p = q) {
                q = p;
                uint32_t c = next_code(&q, end);
                Case to = how == 'u'   ? CASE_UPPER
                          : how == 'l' ? CASE_LOWER
                          : how == 't' ? (after ? CASE_LOWER : CASE_TITLE)
                          : how == 'c' ? (p > begin ? CASE_LOWER : CASE_TITLE)
                                       : (is_upper_code(c) ? CASE_LOWER : CASE_UPPER);
                if (how == 's' && !is_upper_code(c) && !is_lower_code(c))
                        out_put(j, &b, p, (size_t)(q - p));
                else
                        put_case(j, &b, to, begin, p, end);
                after = is_cased(c);
        }
        return v_markup(out_str(j, &b), markup(self));
}

static Val m_upper(J *j, Val self, const Args *a) { return cased(j, self, a, 'u'); }
static Val m_lower(J *j, Val self, const Args *a) { return cased(j, self, a, 'l'); }
static Val m_title(J *j, Val self, const Args *a) { return cased(j, self, a, 't'); }
static Val m_capitalize(J *j, Val self, const Args *a) { return cased(j, self, a, 'c'); }
static Val m_swapcase(J *j, Val self, const Args *a) { return cased(j, self, a, 's'); }

/* ---- questions ---- */

static Val is_case(J *j, Val self, const Args *a, bool upper)
{
        bool any = false;
        args_take(j, a, "islower", "", NULL);
        for (const char *p = self.s->p, *end = p + self.s->n; p < end;) {
                uint32_t c = next_code(&p, end);
                if (is_cased(c) && !(upper ? is_upper_code(c) : is_lower_code(c)))
                        return v_bool(false);
                any |= is_cased(c);
        }
        return v_bool(any);
}

static Val m_islower(J *j, Val self, const Args *a) { return is_case(j, self, a, false); }
static Val m_isupper(J *j, Val self, const Args *a) { return is_case(j, self, a, true); }

static Val is_all(J *j, Val self, const Args *a, int what)
{
        args_take(j, a, "isalpha", "", NULL);
        for (const char *p = self.s->p, *end = p + self.s->n; p < end;) {
                uint32_t c = next_code(&p, end);
                if (!(what == -1   ? is_space_code(c)
                      : what == -2 ? c < 128
                                   : is_class(c, (CodeClass)what)))
                        return v_bool(false);
        }
        return v_bool(self.s->n > 0 || what == -2);
}

static Val m_isspace(J *j, Val self, const Args *a) { return is_all(j, self, a, -1); }
static Val m_isascii(J *j, Val self, const Args *a) { return is_all(j, self, a, -2); }
static Val m_isalpha(J *j, Val self, const Args *a) { return is_all(j, self, a, CLASS_ALPHA); }
static Val m_isdecimal(J *j, Val self, const Args *a) { return is_all(j, self, a, CLASS_DECIMAL); }
static Val m_isdigit(J *j, Val self, const Args *a) { return is_all(j, self, a, CLASS_DIGIT); }
static Val m_isnumeric(J *j, Val self, const Args *a) { return is_all(j, self, a, CLASS_NUMERIC); }
static Val m_isalnum(J *j, Val self, const Args *a) { return is_all(j, self, a, CLASS_ALNUM); }

static const Named method[] = { { "capitalize", m_capitalize },
                                { "casefold", NULL },
                                { "center", m_center },
                                { "count", m_count },
                                { "encode", NULL },
                                { "endswith", m_endswith },
                                { "expandtabs", NULL },
                                { "find", m_find },
                                { "format", str_format },
                                { "format_map", NULL },
                                { "index", m_index },
                                { "isalnum", m_isalnum },
                                { "isalpha", m_isalpha },
                                { "isascii", m_isascii },
                                { "isdecimal", m_isdecimal },
                                { "isdigit", m_isdigit },
                                { "isidentifier", NULL },
                                { "islower", m_islower },
                                { "isnumeric", m_isnumeric },
                                { "isprintable", NULL },
                                { "isspace", m_isspace },
                                { "istitle", NULL },
                                { "isupper", m_isupper },
                                { "join", m_join },
                                { "ljust", m_ljust },
                                { "lower", m_lower },
                                { "lstrip", m_lstrip },
                                { "maketrans", NULL },
                                { "partition", m_partition },
                                { "removeprefix", m_removeprefix },
                                { "removesuffix", m_removesuffix },
                                { "replace", m_replace },
                                { "rfind", m_rfind },
                                { "rindex", m_rindex },
                                { "rjust", m_rjust },
                                { "rpartition", m_rpartition },
                                { "rsplit", m_rsplit },
                                { "rstrip", m_rstrip },
                                { "split", m_split },
                                { "splitlines", m_splitlines },
                                { "startswith", m_startswith },
                                { "strip", m_strip },
                                { "swapcase", m_swapcase },
                                { "title", m_title },
                                { "translate", NULL },
                                { "upper", m_upper },
                                { "zfill", m_zfill } };

Builtin *str_builtin(const char *name)
{
        for (size_t i = 0; i < sizeof method / sizeof *method; i++)
                if (!strcmp(method[i].name, name))
                        return method[i].fn;
        return NULL;
}

bool str_method(J *j, Val v, const char *name, Val *out)
{
        for (size_t i = 0; i < sizeof method / sizeof *method; i++) {
                if (strcmp(method[i].name, name))
                        continue;
                if (!method[i].fn)
                        j_lacks(j, "the method str.%s", name);
                *out = v_func(j, method[i].name, method[i].fn, v);
                return true;
        }
        if (v.markup &&
            (!strcmp(name, "unescape") || !strcmp(name, "striptags") || !strcmp(name, "escape")))
                j_lacks(j, "the method Markup.%s", name);
        return false;
}
