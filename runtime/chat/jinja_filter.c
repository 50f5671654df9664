/* jinja_filter.c: filters of one value.  self is the value. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../util/c_locale.h"
#include "jinja.h"

static bool given(Val v) { return v.t != V_MISSING && v.t != V_NONE; }

static int64_t int_arg(J *j, Val v, int64_t dflt, const char *what)
{
        int64_t i = dflt;
        if (v.t != V_MISSING && !is_integer(v, &i))
                j_fail(j, "%s: an integer is wanted, not %s", what, v_type(v));
        return i;
}

static Val method(J *j, const char *name, Val v, const Val *x, int n)
{
        return str_builtin(name)(j, v, &(Args) { .v = (Val *)x, .n = n });
}

/* ---- text ---- */

static Val f_string(J *j, Val v, const Args *a)
{
        args_take(j, a, "string", "", NULL);
        return soft_str(j, v);
}

static Val f_safe(J *j, Val v, const Args *a)
{
        args_take(j, a, "safe", "", NULL);
        return v_markup(soft_str(j, v), true);
}

static Val f_escape(J *j, Val v, const Args *a)
{
        args_take(j, a, "escape", "", NULL);
        return escape_html(j, v);
}

static Val f_forceescape(J *j, Val v, const Args *a)
{
        args_take(j, a, "forceescape", "", NULL);
        return escape_html(j, to_str(j, v));
}

static Val f_trim(J *j, Val v, const Args *a)
{
        Val x[1];
        args_take(j, a, "trim", "chars?", x);
        return method(j, "strip", soft_str(j, v), x, x[0].t != V_MISSING);
}

static Val plain(J *j, const char *name, Val v, const Args *a)
{
        args_take(j, a, name, "", NULL);
        return method(j, name, soft_str(j, v), NULL, 0);
}

static Val f_upper(J *j, Val v, const Args *a) { return plain(j, "upper", v, a); }
static Val f_lower(J *j, Val v, const Args *a) { return plain(j, "lower", v, a); }
static Val f_capitalize(J *j, Val v, const Args *a) { return plain(j, "capitalize", v, a); }

/* Words begin behind -, white space and opening brackets. */
static Val f_title(J *j, Val v, const Args *a)
{
        Buf b = { 0 };
        bool begins = true;
        args_take(j, a, "title", "", NULL);
        v = soft_str(j, v);
        const char *begin = v.s->p, *end = begin + v.s->n, *word = begin;
        for (const char *p = begin, *q; p < end; p = q) {
                q = p;
                uint32_t c = next_code(&q, end);
                bool cut = is_space_code(c) || (c < 128 && c && strchr("-({[<", (int)c));
                const char *stop = q;
                if (begins)
                        word = q;
                while (!cut && c == 0x3a3 && stop < end) { /* a sigma looks as far as its word */
                        const char *k = stop;
                        uint32_t d = next_code(&k, end);
                        if (is_space_code(d) || (d < 128 && d && strchr("-({[<", (int)d)))
                                break;
                        stop = k;
                }
                j_step(j, 1);
                if (cut)
                        out_put(j, &b, p, (size_t)(q - p));
                else
                        put_case(j, &b, begins ? CASE_UPPER : CASE_LOWER, begins ? p : word, p,
                                 stop);
                begins = cut;
        }
        return out_str(j, &b);
}

static Val f_center(J *j, Val v, const Args *a)
{
        Val x[1];
        args_take(j, a, "center", "width?", x);
        x[0] = x[0].t == V_MISSING ? v_int(80) : x[0];
        return method(j, "center", soft_str(j, v), x, 1);
}

static Val f_replace(J *j, Val v, const Args *a)
{
        Val x[3];
        args_take(j, a, "replace", "old new count?", x);
        x[0] = to_str(j, x[0]);
        x[1] = to_str(j, x[1]);
        return method(j, "replace", to_str(j, v), x, 2 + given(x[2]));
}

static Val f_indent(J *j, Val v, const Args *a)
{
        Val x[3];
        Buf b = { 0 };
        args_take(j, a, "indent", "width? first? blank?", x);
        bool first = x[1].t != V_MISSING && v_true(j, x[1]),
             blank = x[2].t != V_MISSING && v_true(j, x[2]);
        Val by = x[0].t == V_MISSING ? v_text(j, "    ")
                 : is_str(x[0])      ? x[0]
                                     : v_binary(j, N_MUL, v_text(j, " "), x[0]);
        if (v.t == V_UNDEF)
                j_fail(j, "%s", v.u->why);
        if (!is_str(v))
                j_fail(j, "indent: a str is wanted, not %s", v_type(v));
        if (v.markup && is_str(x[0]) && !x[0].markup)
                by = v_markup(by, true);
        Val lines = method(j, "splitlines",
                           v_binary(j, N_ADD, v, v_markup(v_text(j, "\n"), v.markup)), NULL, 0);
        if (by.markup && !v.markup)
                j_lacks(j, "indent by Markup");
        for (size_t i = 0; i < lines.l->n; i++) {
                const Str *line = lines.l->v[i].s;
                if (i)
                        out_text(j, &b, "\n");
                j_step(j, by.s->n / 64);
                if (i ? line->n || blank : first)
                        out_put(j, &b, by.s->p, by.s->n);
                out_put(j, &b, line->p, line->n);
        }
        return v_markup(out_str(j, &b), v.markup);
}

static Val f_truncate(J *j, Val v, const Args *a)
{
        Val x[4];
        args_take(j, a, "truncate", "length? killwords? end? leeway?", x);
        int64_t most = int_arg(j, x[0], 255, "truncate"),
                leeway = given(x[3]) ? int_arg(j, x[3], 5, "truncate") : 5;
        Val end = x[2].t == V_MISSING ? v_text(j, "...") : x[2];
        if (!is_str(v) || !is_str(end) || v.markup || end.markup)
                j_lacks(j, "truncate of a %s", v_type(v));
        if (most < (int64_t)end.s->chars || leeway < 0)
                j_fail(j, "truncate: the length is less than that of the end");
        if ((int64_t)v.s->chars <= most + leeway)
                return v;
        Val head = v_slice(j, v, v_none(), v_int(most - (int64_t)end.s->chars), v_none());
        if (x[1].t == V_MISSING || !v_true(j, x[1])) {
                Val by[2] = { v_text(j, " "), v_int(1) };
                head = method(j, "rsplit", head, by, 2).l->v[0];
        }
        return v_binary(j, N_ADD, head, end);
}

static Val f_wordcount(J *j, Val v, const Args *a)
{
        int64_t n = 0;
        bool in = false;
        args_take(j, a, "wordcount", "", NULL);
        v = soft_str(j, v);
        for (const char *p = v.s->p, *end = p + v.s->n; p < end;) {
                uint32_t c = next_code(&p, end);
                bool word = c == '_' || is_class(c, CLASS_ALNUM);
                n += word && !in;
                in = word;
        }
        return v_int(n);
}

static Val f_format(J *j, Val v, const Args *a)
{
        Val args = v_list(j, V_TUPLE, (size_t)a->n), d = v_dict(j);
        if (a->n && a->n_kw)
                j_fail(j, "can't handle positional and keyword arguments at the same time");
        for (int i = 0; i < a->n; i++)
                args.l->v[i] = a->v[i];
        for (int i = 0; i < a->n_kw; i++)
                dict_set(j, d.m, v_text(j, a->key[i]), a->kw[i]);
        return format_percent(j, soft_str(j, v), a->n_kw ? d : args);
}

/* ---- JSON ---- */

static Val f_tojson(J *j, Val v, const Args *a)
{
        Val x[4];
        Buf b = { 0 };
        int64_t i;
        args_take(j, a, "tojson", "ensure_ascii? indent? separators? sort_keys?", x);
        JsonHow how = { x[0].t != V_MISSING && v_true(j, x[0]),
                        x[3].t != V_MISSING && v_true(j, x[3]), v_none(), ", ", ": " };
        if (given(x[1])) {
                how.item = ",";
                how.indent = is_str(x[1]) ? x[1]
                             : is_integer(x[1], &i)
                                     ? v_int(i)
                                     : (j_fail(j, "tojson: indent is a %s", v_type(x[1])),
                                        v_none());
                if (how.indent.t == V_INT && how.indent.i > 1000)
                        j_lacks(j, "tojson with an indent beyond 1000");
        }
        if (given(x[2])) {
                if ((x[2].t != V_TUPLE && x[2].t != V_LIST) || x[2].l->n != 2 ||
                    !is_str(x[2].l->v[0]) || !is_str(x[2].l->v[1]))
                        j_fail(j, "tojson: separators are two strings");
                how.item = j_copy(j, x[2].l->v[0].s->p, x[2].l->v[0].s->n);
                how.key = j_copy(j, x[2].l->v[1].s->p, x[2].l->v[1].s->n);
        }
        put_json_value(j, &b, v, &how, 0);
        return out_str(j, &b);
}

/* ---- numbers ---- */

/* What int() and float() read: no space around, no _ between digits; false: they raise. */
static bool clean_number(J *j, const Str *s, char *out, size_t cap)
{
        const char *p = s->p, *end = p + s->n, *k;
        size_t n = 0;
        while (p < end && (k = p, is_space_code(next_code(&k, end))))
                p = k;
        for (; p < end; p++) {
                if (*p == '_' && n && p + 1 < end && p > s->p &&
                    strchr("0123456789abcdefABCDEFxXoObB", p[-1]) &&
                    strchr("0123456789abcdefABCDEF", p[1]) && p[1])
                        continue;
                if ((unsigned char)*p >= 0x80 || is_space_code((unsigned char)*p))
                        break;
                if (n + 1 == cap)
                        j_lacks(j, "a number of more than %d characters", (int)cap - 1);
                out[n++] = *p;
        }
        out[n] = 0;
        for (const char *q = p; q < end;) {
                uint32_t c = next_code(&q, end);
                if (is_class(c, CLASS_DECIMAL) && c > 127)
                        j_lacks(j, "a number in other digits than 0 to 9");
                if (!is_space_code(c))
                        return false;
        }
        return n && strlen(out) == n;
}

static bool parse_float(J *j, const Str *s, double *d)
{
        char t[400], *end;
        if (!clean_number(j, s, t, sizeof t))
                return false;
        const char *p = t + (*t == '-' || *t == '+');
        static const char *const named[] = { "inf", "infinity", "nan" };
        bool ok = (*p >= '0' && *p <= '9') || *p == '.';
        for (int i = 0; i < 3; i++)
                ok |= !strcasecmp(p, named[i]);
        if (!ok || strpbrk(p, "xX"))
                return false;
        *d = c_strtod(t, &end);
        return !*end;
}

static bool parse_int(J *j, const Str *s, int64_t base, int64_t *out)
{
        char t[400];
        uint64_t v = 0;
        if (!clean_number(j, s, t, sizeof t))
                return false;
        const char *p = t;
        bool minus = *p == '-';
        p += *p == '-' || *p == '+';
        if (*p == '0' && p[1]) {
                char c = (char)(p[1] | 32);
                int64_t b = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
                if (b && (base == b || !base)) {
                        base = b;
                        p += 2;
                } else if (!base && strspn(p, "0") != strlen(p)) {
                        return false;
                }
        }
        base = base ? base : 10;
        if (!*p)
                return false;
        for (; *p; p++) {
                int d = *p >= '0' && *p <= '9'                 ? *p - '0'
                        : (*p | 32) >= 'a' && (*p | 32) <= 'z' ? (*p | 32) - 'a' + 10
                                                               : 99;
                if (d >= base)
                        return false;
                if (__builtin_mul_overflow(v, (uint64_t)base, &v) ||
                    __builtin_add_overflow(v, (uint64_t)d, &v) || v > (uint64_t)INT64_MAX)
                        j_lacks(j, "an integer beyond 64 bits");
        }
        *out = minus ? -(int64_t)v : (int64_t)v;
        return true;
}

static Val int_of(J *j, double d)
{
        if (!(fabs(d) < 9.2e18))
                j_lacks(j, "an integer beyond 64 bits");
        return v_int((int64_t)d);
}

static Val f_int(J *j, Val v, const Args *a)
{
        Val x[2];
        int64_t i;
        double d;
        args_take(j, a, "int", "default? base?", x);
        Val dflt = x[0].t == V_MISSING ? v_int(0) : x[0];
        int64_t base = int_arg(j, x[1], 10, "int");
        if (v.t == V_UNDEF)
                j_fail(j, "%s", v.u->why);
        if (is_integer(v, &i))
                return v_int(i);
        if (v.t == V_FLOAT && isinf(v.d))
                j_fail(j, "cannot convert float infinity to integer");
        if (v.t == V_FLOAT)
                return isnan(v.d) ? dflt : int_of(j, v.d);
        if (!is_str(v))
                return dflt;
        bool ok = (base == 0 || (base >= 2 && base <= 36)) && parse_int(j, v.s, base, &i);
        if (ok)
                return v_int(i);
        return parse_float(j, v.s, &d) && isfinite(d) ? int_of(j, d) : dflt;
}

static Val f_float(J *j, Val v, const Args *a)
{
        Val x[1];
        double d;
        args_take(j, a, "float", "default?", x);
        if (v.t == V_UNDEF)
                j_fail(j, "%s", v.u->why);
        if (is_number(v))
                return v_float(number_of(v));
        if (is_str(v) && parse_float(j, v.s, &d))
                return v_float(d);
        return x[0].t == V_MISSING ? v_float(0) : x[0];
}

static Val f_abs(J *j, Val v, const Args *a)
{
        args_take(j, a, "abs", "", NULL);
        if (!is_number(v))
                j_fail(j, "bad operand type for abs(): '%s'", v_type(v));
        if (v.t == V_FLOAT)
                return v_float(fabs(v.d));
        return number_of(v) < 0 ? v_negate(j, v, true) : v_negate(j, v, false);
}

static Val f_round(J *j, Val v, const Args *a)
{
        Val x[2];
        char t[800];
        args_take(j, a, "round", "precision? method?", x);
        int64_t n = int_arg(j, x[0], 0, "round");
        const char *how = "common";
        if (x[1].t != V_MISSING)
                how = is_str(x[1]) ? j_copy(j, x[1].s->p, x[1].s->n) : "";
        if (strcmp(how, "common") && strcmp(how, "ceil") && strcmp(how, "floor"))
                j_fail(j, "round: method must be common, ceil or floor");
        if (!is_number(v))
                j_fail(j, "round: a number is wanted, not %s", v_type(v));
        if (n < 0 || (*how != 'c' && n > 15))
                j_lacks(j, "round to %lld digits", (long long)n);
        if (!strcmp(how, "common")) {
                if (v.t != V_FLOAT)
                        return v_negate(j, v, false);
                if (!isfinite(v.d) || n > 300)
                        return v;
                c_format(t, sizeof t, "%.*f", (int)n, v.d);
                return v_float(c_strtod(t, NULL));
        }
        if (n > 15)
                j_lacks(j, "round to %lld digits", (long long)n);
        double ten = 1, d;
        for (int64_t i = 0; i < n; i++)
                ten *= 10;
        d = number_of(v) * ten;
        if (!isfinite(d) || fabs(d) > 9e15)
                j_lacks(j, "rounding a number as large");
        d = *how == 'c' ? ceil(d) : floor(d);
        return v_float((d == 0 ? 0 : d) / ten);
}

/* ---- anything ---- */

static Val f_default(J *j, Val v, const Args *a)
{
        Val x[2];
        args_take(j, a, "default", "default_value? boolean?", x);
        bool too = x[1].t != V_MISSING && v_true(j, x[1]);
        if (v.t != V_UNDEF && !(too && !v_true(j, v)))
                return v;
        return x[0].t == V_MISSING ? v_text(j, "") : x[0];
}

static Val f_length(J *j, Val v, const Args *a)
{
        args_take(j, a, "length", "", NULL);
        return v_int(v_len(j, v));
}

static Val f_attr(J *j, Val v, const Args *a)
{
        Val x[1];
        args_take(j, a, "attr", "name", x);
        if (!is_str(x[0]) || memchr(x[0].s->p, 0, x[0].s->n))
                j_fail(j, "attr: a name is wanted, not %s", v_type(x[0]));
        return v_attribute(j, v, j_copy(j, x[0].s->p, x[0].s->n));
}

/* fn NULL: jinja2 has it, this does not. */
static const Named filter[] = {
        { "abs", f_abs },
        { "attr", f_attr },
        { "capitalize", f_capitalize },
        { "center", f_center },
        { "count", f_length },
        { "d", f_default },
        { "default", f_default },
        { "e", f_escape },
        { "escape", f_escape },
        { "filesizeformat", NULL },
        { "float", f_float },
        { "forceescape", f_forceescape },
        { "format", f_format },
        { "indent", f_indent },
        { "int", f_int },
        { "length", f_length },
        { "lower", f_lower },
        { "pprint", NULL },
        { "random", NULL },
        { "replace", f_replace },
        { "round", f_round },
        { "safe", f_safe },
        { "string", f_string },
        { "striptags", NULL },
        { "title", f_title },
        { "tojson", f_tojson },
        { "trim", f_trim },
        { "truncate", f_truncate },
        { "upper", f_upper },
        { "urlencode", NULL },
        { "urlize", NULL },
        { "wordcount", f_wordcount },
        { "wordwrap", NULL },
        { "xmlattr", NULL },
};

const Named *filter_find(const char *name)
{
        for (size_t i = 0; i < sizeof filter / sizeof *filter; i++)
                if (!strcmp(filter[i].name, name))
                        return &filter[i];
        return items_filter_find(name);
}

Val filter_call(J *j, const char *name, Val v, const Args *a)
{
        const Named *f = filter_find(name);
        if (!f)
                j_fail(j, "no filter is called %.60s", name);
        if (!f->fn)
                j_lacks(j, "the filter %s", name);
        j_down(j);
        Val out = f->fn(j, v, a);
        j->depth--;
        return out;
}
