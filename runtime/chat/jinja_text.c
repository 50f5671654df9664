/* jinja_text.c: values as Python's str, repr and json.dumps write them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../util/c_locale.h"
#include "jinja.h"

/* repr of a float: the shortest decimal that reads back. */
void put_float(J *j, Buf *b, double d)
{
        char s[40], digits[32];
        int n = 0, exp10 = 0;
        if (isnan(d) || isinf(d)) {
                out_text(j, b, isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
                return;
        }
        for (int p = 0; p < 17; p++) {
                c_format(s, sizeof s, "%.*e", p, d);
                if (c_strtod(s, NULL) == d)
                        break;
        }
        char *e = strchr(s, 'e'), *at = s;
        exp10 = atoi(e + 1);
        if (*at == '-') {
                out_text(j, b, "-");
                at++;
        }
        for (; at < e; at++)
                if (*at != '.')
                        digits[n++] = *at;
        while (n > 1 && digits[n - 1] == '0')
                n--;
        if (exp10 < -4 || exp10 >= 16) {
                out_put(j, b, digits, 1);
                if (n > 1) {
                        out_text(j, b, ".");
                        out_put(j, b, digits + 1, (size_t)n - 1);
                }
                c_format(s, sizeof s, "e%c%02d", exp10 < 0 ? '-' : '+', abs(exp10));
                out_text(j, b, s);
        } else if (exp10 < 0) {
                out_text(j, b, "0.");
                for (int i = -1; i > exp10; i--)
                        out_text(j, b, "0");
                out_put(j, b, digits, (size_t)n);
        } else {
                for (int i = 0; i <= exp10 || i < n; i++) {
                        if (i == exp10 + 1)
                                out_text(j, b, ".");
                        out_put(j, b, i < n ? &digits[i] : "0", 1);
                }
                if (n <= exp10 + 1)
                        out_text(j, b, ".0");
        }
}

static void put_int(J *j, Buf *b, int64_t i)
{
        char s[32];
        c_format(s, sizeof s, "%lld", (long long)i);
        out_text(j, b, s);
}

/* ---- repr ---- */

static void repr_str(J *j, Buf *b, const Str *s)
{
        const char *p = s->p, *end = p + s->n;
        char quote = memchr(p, '\'', s->n) && !memchr(p, '"', s->n) ? '"' : '\'', t[16];
        out_put(j, b, &quote, 1);
        while (p < end) {
                const char *q = p;
                uint32_t c = next_code(&q, end);
                if (c == (uint32_t)quote || c == '\\') {
                        out_text(j, b, "\\");
                        out_put(j, b, p, 1);
                } else if (c == '\n' || c == '\r' || c == '\t') {
                        out_text(j, b, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
                } else if (is_printable(c)) {
                        out_put(j, b, p, (size_t)(q - p));
                } else {
                        c_format(t, sizeof t,
                                 c < 256     ? "\\x%02x"
                                 : c < 65536 ? "\\u%04x"
                                             : "\\U%08x",
                                 (unsigned)c);
                        out_text(j, b, t);
                }
                p = q;
        }
        out_put(j, b, &quote, 1);
}

static void repr_items(J *j, Buf *b, const List *l)
{
        for (size_t i = 0; i < l->n; i++) {
                if (i)
                        out_text(j, b, ", ");
                put_repr(j, b, l->v[i]);
        }
}

static void repr_dict(J *j, Buf *b, const Dict *d)
{
        out_text(j, b, "{");
        for (size_t i = 0; i < d->n; i++) {
                if (i)
                        out_text(j, b, ", ");
                put_repr(j, b, d->e[i].key);
                out_text(j, b, ": ");
                put_repr(j, b, d->e[i].value);
        }
        out_text(j, b, "}");
}

static void repr_range(J *j, Buf *b, const Range *r)
{
        out_text(j, b, "range(");
        put_int(j, b, r->start);
        out_text(j, b, ", ");
        put_int(j, b, r->stop);
        if (r->step != 1) {
                out_text(j, b, ", ");
                put_int(j, b, r->step);
        }
        out_text(j, b, ")");
}

static void repr_other(J *j, Buf *b, Val v)
{
        Val s;
        switch (v.t) {
        case V_VIEW:
                out_text(j, b, v_type(v));
                out_text(j, b, "([");
                repr_items(j, b, list_of(j, v, V_LIST).l);
                out_text(j, b, "])");
                return;
        case V_RANGE: repr_range(j, b, v.r); return;
        case V_SPACE:
                out_text(j, b, "<Namespace ");
                repr_dict(j, b, v.m);
                out_text(j, b, ">");
                return;
        case V_LOOP:
                out_text(j, b, "<LoopContext ");
                put_int(j, b, v.loop->index0 + 1);
                out_text(j, b, "/");
                put_int(j, b, v_len(j, v));
                out_text(j, b, ">");
                return;
        case V_FUNC:
                if (v.f->fn)
                        break;
                if (v.f->macro->t != N_MACRO) {
                        out_text(j, b, "<Macro anonymous>");
                        return;
                }
                out_text(j, b, "<Macro ");
                s = v_text(j, v.f->name);
                repr_str(j, b, s.s);
                out_text(j, b, ">");
                return;
        default: break;
        }
        j_lacks(j, "a %s as text", v_type(v));
}

void put_repr(J *j, Buf *b, Val v)
{
        j_step(j, 1);
        j_down(j);
        switch (v.t) {
        case V_MISSING:
        case V_UNDEF: out_text(j, b, "Undefined"); break;
        case V_NONE: out_text(j, b, "None"); break;
        case V_BOOL: out_text(j, b, v.b ? "True" : "False"); break;
        case V_INT: put_int(j, b, v.i); break;
        case V_FLOAT: put_float(j, b, v.d); break;
        case V_STR:
                if (v.markup)
                        out_text(j, b, "Markup(");
                repr_str(j, b, v.s);
                if (v.markup)
                        out_text(j, b, ")");
                break;
        case V_LIST:
                out_text(j, b, "[");
                repr_items(j, b, v.l);
                out_text(j, b, "]");
                break;
        case V_TUPLE:
                out_text(j, b, "(");
                repr_items(j, b, v.l);
                out_text(j, b, v.l->n == 1 ? ",)" : ")");
                break;
        case V_DICT: repr_dict(j, b, v.m); break;
        default: repr_other(j, b, v);
        }
        j->depth--;
}

/* ---- str ---- */

void put_str(J *j, Buf *b, Val v)
{
        if (v.t == V_STR)
                out_put(j, b, v.s->p, v.s->n);
        else if (v.t != V_UNDEF)
                put_repr(j, b, v);
}

Val to_str(J *j, Val v)
{
        Buf b = { 0 };
        if (v.t == V_STR)
                return v_markup(v, false);
        put_str(j, &b, v);
        return out_str(j, &b);
}

Val soft_str(J *j, Val v) { return v.t == V_STR ? v : to_str(j, v); }

Val escape_html(J *j, Val v)
{
        Buf b = { 0 };
        if (v.t == V_STR && v.markup)
                return v;
        v = to_str(j, v);
        for (size_t i = 0; i < v.s->n; i++)
                switch (v.s->p[i]) {
                case '&': out_text(j, &b, "&amp;"); break;
                case '<': out_text(j, &b, "&lt;"); break;
                case '>': out_text(j, &b, "&gt;"); break;
                case '\'': out_text(j, &b, "&#39;"); break;
                case '"': out_text(j, &b, "&#34;"); break;
                default: out_put(j, &b, v.s->p + i, 1);
                }
        return v_markup(out_str(j, &b), true);
}

/* ---- json.dumps ---- */

static void json_str(J *j, Buf *b, const Str *s, bool ascii)
{
        static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
        const char *p = s->p, *end = p + s->n, *k;
        char t[16];
        out_text(j, b, "\"");
        while (p < end) {
                const char *q = p;
                uint32_t c = next_code(&q, end);
                if (c < 128 && c && (k = strchr(from, (int)c))) {
                        out_text(j, b, "\\");
                        out_put(j, b, &to[k - from], 1);
                } else if (c < 32 || (ascii && c > 126 && c < 65536)) {
                        c_format(t, sizeof t, "\\u%04x", (unsigned)c);
                        out_text(j, b, t);
                } else if (ascii && c >= 65536) {
                        c -= 65536;
                        c_format(t, sizeof t, "\\u%04x\\u%04x", (unsigned)(0xd800 + (c >> 10)),
                                 (unsigned)(0xdc00 + (c & 0x3ff)));
                        out_text(j, b, t);
                } else {
                        out_put(j, b, p, (size_t)(q - p));
                }
                p = q;
        }
        out_text(j, b, "\"");
}

static void json_float(J *j, Buf *b, double d)
{
        if (isnan(d))
                out_text(j, b, "NaN");
        else if (isinf(d))
                out_text(j, b, d < 0 ? "-Infinity" : "Infinity");
        else
                put_float(j, b, d);
}

static void new_line(J *j, Buf *b, const JsonHow *how, int level)
{
        if (how->indent.t == V_NONE)
                return;
        out_text(j, b, "\n");
        for (int i = 0; i < level; i++) {
                if (is_str(how->indent))
                        out_put(j, b, how->indent.s->p, how->indent.s->n);
                for (int64_t k = 0; !is_str(how->indent) && k < how->indent.i; k++)
                        out_text(j, b, " ");
        }
}

static void json_key(J *j, Buf *b, Val k, const JsonHow *how)
{
        if (is_str(k)) {
                json_str(j, b, k.s, how->ascii);
                return;
        }
        if (k.t != V_NONE && !is_number(k))
                j_fail(j, "tojson: keys must be str, int, float, bool or None, not %s", v_type(k));
        out_text(j, b, "\"");
        put_json_value(j, b, k, how, 0);
        out_text(j, b, "\"");
}

static void json_dict(J *j, Buf *b, const Dict *d, const JsonHow *how, int level)
{
        Val order = v_list(j, V_LIST, d->n);
        for (size_t i = 0; i < d->n; i++)
                order.l->v[i] = v_int((int64_t)i);
        for (size_t i = 1; how->sort && i < d->n; i++) /* insertion: stable */
                for (size_t k = i; k; k--) {
                        Val *x = &order.l->v[k - 1], *y = &order.l->v[k], was = *x;
                        j_step(j, 1);
                        if (v_compare(j, d->e[y->i].key, d->e[x->i].key, "<") >= 0)
                                break;
                        *x = *y;
                        *y = was;
                }
        if (!d->n) {
                out_text(j, b, "{}");
                return;
        }
        out_text(j, b, "{");
        for (size_t i = 0; i < d->n; i++) {
                const Entry *e = &d->e[order.l->v[i].i];
                if (i)
                        out_text(j, b, how->item);
                new_line(j, b, how, level + 1);
                json_key(j, b, e->key, how);
                out_text(j, b, how->key);
                put_json_value(j, b, e->value, how, level + 1);
        }
        new_line(j, b, how, level);
        out_text(j, b, "}");
}

void put_json_value(J *j, Buf *b, Val v, const JsonHow *how, int level)
{
        j_step(j, 1);
        j_down(j);
        switch (v.t) {
        case V_NONE: out_text(j, b, "null"); break;
        case V_BOOL: out_text(j, b, v.b ? "true" : "false"); break;
        case V_INT: put_int(j, b, v.i); break;
        case V_FLOAT: json_float(j, b, v.d); break;
        case V_STR: json_str(j, b, v.s, how->ascii); break;
        case V_LIST:
        case V_TUPLE:
                if (!v.l->n) {
                        out_text(j, b, "[]");
                        break;
                }
                out_text(j, b, "[");
                for (size_t i = 0; i < v.l->n; i++) {
                        if (i)
                                out_text(j, b, how->item);
                        new_line(j, b, how, level + 1);
                        put_json_value(j, b, v.l->v[i], how, level + 1);
                }
                new_line(j, b, how, level);
                out_text(j, b, "]");
                break;
        case V_DICT: json_dict(j, b, v.m, how, level); break;
        case V_UNDEF: j_fail(j, "tojson: %s", v.u->why);
        default: j_fail(j, "tojson: a %s cannot be written as JSON", v_type(v));
        }
        j->depth--;
}
