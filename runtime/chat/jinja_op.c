/* jinja_op.c: Python's operators. */
#include <math.h>
#include <string.h>
#include "jinja.h"

bool is_number(Val v) { return v.t == V_INT || v.t == V_FLOAT || v.t == V_BOOL; }

bool is_integer(Val v, int64_t *i)
{
        if (v.t != V_INT && v.t != V_BOOL)
                return false;
        *i = v.t == V_BOOL ? v.b : v.i;
        return true;
}

double number_of(Val v) { return v.t == V_FLOAT ? v.d : v.t == V_BOOL ? (double)v.b : (double)v.i; }

bool v_has_len(Val v)
{
        switch (v.t) {
        case V_STR:
        case V_LIST:
        case V_TUPLE:
        case V_DICT:
        case V_VIEW:
        case V_RANGE:
        case V_UNDEF:
        case V_LOOP: return true;
        default: return false;
        }
}

int64_t v_len(J *j, Val v)
{
        bool found;
        switch (v.t) {
        case V_STR: return (int64_t)v.s->chars;
        case V_LIST:
        case V_TUPLE: return (int64_t)v.l->n;
        case V_DICT:
        case V_VIEW: return (int64_t)v.m->n;
        case V_RANGE: return v.r->n;
        case V_UNDEF: return 0;
        case V_LOOP: return loop_attr(j, v.loop, "length", &found).i;
        default: j_fail(j, "object of type '%s' has no len()", v_type(v));
        }
}

bool v_true(J *j, Val v)
{
        switch (v.t) {
        case V_MISSING:
        case V_UNDEF:
        case V_NONE: return false;
        case V_BOOL: return v.b;
        case V_INT: return v.i != 0;
        case V_FLOAT: return v.d != 0;
        default: return !v_has_len(v) || v_len(j, v) != 0;
        }
}

/* ---- comparison ---- */

/* Exactly: <0, 0, >0; 2 for NaN. */
static int compare_int_double(int64_t i, double d)
{
        if (isnan(d))
                return 2;
        if (d >= 9223372036854775808.)
                return -1;
        if (d < -9223372036854775808.)
                return 1;
        int64_t whole = (int64_t)d;
        double rest = d - (double)whole;
        return i < whole ? -1 : i > whole ? 1 : rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static int compare_numbers(Val a, Val b)
{
        int64_t i, k;
        bool ai = is_integer(a, &i), bi = is_integer(b, &k);
        if (ai && bi)
                return i < k ? -1 : i > k;
        if (ai)
                return compare_int_double(i, b.d);
        if (bi) {
                int c = compare_int_double(k, a.d);
                return c == 2 ? 2 : -c;
        }
        return isnan(a.d) || isnan(b.d) ? 2 : a.d < b.d ? -1 : a.d > b.d;
}

static int compare_str(J *j, const Str *a, const Str *b)
{
        size_t n = a->n < b->n ? a->n : b->n;
        j_step(j, n / 64);
        int c = n ? memcmp(a->p, b->p, n) : 0;
        return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

static bool equal_dicts(J *j, const Dict *a, const Dict *b)
{
        if (a->n != b->n)
                return false;
        for (size_t i = 0; i < a->n; i++) {
                const Val *v = dict_find(j, b, a->e[i].key);
                if (!v || !v_equal(j, a->e[i].value, *v))
                        return false;
        }
        return true;
}

static bool equal_lists(J *j, const List *a, const List *b)
{
        if (a->n != b->n)
                return false;
        for (size_t i = 0; i < a->n; i++)
                if (!v_equal(j, a->v[i], b->v[i]))
                        return false;
        return true;
}

/* Of the same kind. */
static bool equal_same(J *j, Val a, Val b)
{
        switch (a.t) {
        case V_STR: return !compare_str(j, a.s, b.s);
        case V_LIST:
        case V_TUPLE: return a.l == b.l || equal_lists(j, a.l, b.l);
        case V_DICT: return a.m == b.m || equal_dicts(j, a.m, b.m);
        case V_RANGE:
                return a.r->n == b.r->n && (!a.r->n || (a.r->start == b.r->start &&
                                                        (a.r->n == 1 || a.r->step == b.r->step)));
        case V_VIEW: j_lacks(j, "a comparison of %s", v_type(a));
        case V_NONE:
        case V_UNDEF: return true;
        case V_FUNC: return a.f == b.f;
        default: return a.it == b.it;
        }
}

bool v_equal(J *j, Val a, Val b)
{
        bool same;
        j_step(j, 1);
        if (is_number(a) && is_number(b))
                return compare_numbers(a, b) == 0;
        if (a.t != b.t)
                return false;
        j_down(j);
        same = equal_same(j, a, b);
        j->depth--;
        return same;
}

static int compare_lists(J *j, const List *a, const List *b, const char *op)
{
        for (size_t i = 0; i < a->n && i < b->n; i++)
                if (!v_equal(j, a->v[i], b->v[i]))
                        return v_compare(j, a->v[i], b->v[i], op);
        return a->n < b->n ? -1 : a->n > b->n;
}

int v_compare(J *j, Val a, Val b, const char *op)
{
        int c = 0;
        j_step(j, 1);
        if (is_number(a) && is_number(b))
                return compare_numbers(a, b);
        if (a.t == V_UNDEF || b.t == V_UNDEF)
                j_fail(j, "%s", (a.t == V_UNDEF ? a : b).u->why);
        if (a.t == V_STR && b.t == V_STR)
                return compare_str(j, a.s, b.s);
        if (a.t != b.t || (a.t != V_LIST && a.t != V_TUPLE)) {
                if (a.t == V_VIEW && b.t == V_VIEW)
                        j_lacks(j, "a comparison of %s", v_type(a));
                j_fail(j, "'%s' not supported between instances of '%s' and '%s'", op, v_type(a),
                       v_type(b));
        }
        j_down(j);
        c = compare_lists(j, a.l, b.l, op);
        j->depth--;
        return c;
}

bool v_order(J *j, Val a, Val b, int op)
{
        int c;
        switch (op) {
        case OP_EQ: return v_equal(j, a, b);
        case OP_NE: return !v_equal(j, a, b);
        case OP_IN: return v_in(j, a, b);
        case OP_NOTIN: return !v_in(j, a, b);
        case OP_LT: c = v_compare(j, a, b, "<"); return c < 0;
        case OP_LE: c = v_compare(j, a, b, "<="); return c <= 0;
        case OP_GT: c = v_compare(j, a, b, ">"); return c > 0 && c != 2;
        default: c = v_compare(j, a, b, ">="); return c >= 0 && c != 2;
        }
}

static bool str_in(J *j, Val item, const Str *s)
{
        if (item.t != V_STR)
                j_fail(j, "'in <string>' requires string as left operand, not %s", v_type(item));
        j_step(j, s->n / 64);
        return !item.s->n || memmem(s->p, s->n, item.s->p, item.s->n);
}

bool v_in(J *j, Val item, Val in)
{
        Val x;
        if (in.t == V_STR)
                return str_in(j, item, in.s);
        if (in.t == V_DICT || (in.t == V_VIEW && in.markup == 'k'))
                return dict_find(j, in.m, item) != NULL;
        if (!has_iter(in))
                j_fail(j, "argument of type '%s' is not iterable", v_type(in));
        for (Iter *it = iter_of(j, in); iter_next(j, it, &x);)
                if (v_equal(j, x, item))
                        return true;
        return false;
}

/* ---- arithmetic ---- */

static _Noreturn void bad_operands(J *j, const char *op, Val a, Val b)
{
        if (a.t == V_UNDEF || b.t == V_UNDEF)
                j_fail(j, "%s", (a.t == V_UNDEF ? a : b).u->why);
        j_fail(j, "unsupported operand type(s) for %s: '%s' and '%s'", op, v_type(a), v_type(b));
}

static _Noreturn void too_large(J *j) { j_lacks(j, "an integer beyond 64 bits"); }

static Val int_pow(J *j, int64_t a, int64_t b)
{
        if (b < 0) {
                if (!a)
                        j_fail(j, "0.0 cannot be raised to a negative power");
                return v_float(pow((double)a, (double)b));
        }
        int64_t r = 1;
        if (b > 64 && (a > 1 || a < -1))
                too_large(j);
        if (b > 64)
                return v_int(a == -1 && b % 2 == 0 ? 1 : a);
        for (int64_t i = 0; i < b; i++)
                if (__builtin_mul_overflow(r, a, &r))
                        too_large(j);
        return v_int(r);
}

static Val int_op(J *j, NodeType op, int64_t a, int64_t b)
{
        int64_t r, q;
        if ((op == N_DIV || op == N_FLOORDIV || op == N_MOD) && !b)
                j_fail(j, "division by zero");
        switch (op) {
        case N_ADD:
                if (__builtin_add_overflow(a, b, &r))
                        too_large(j);
                return v_int(r);
        case N_SUB:
                if (__builtin_sub_overflow(a, b, &r))
                        too_large(j);
                return v_int(r);
        case N_MUL:
                if (__builtin_mul_overflow(a, b, &r))
                        too_large(j);
                return v_int(r);
        case N_DIV:
                if (a > 1ll << 53 || a < -(1ll << 53) || b > 1ll << 53 || b < -(1ll << 53))
                        j_lacks(j, "division of integers beyond 2^53");
                return v_float((double)a / (double)b);
        case N_POW: return int_pow(j, a, b);
        default:
                if (b == -1) /* the smallest integer has no negative */
                        return op == N_MOD ? v_int(0) : int_op(j, N_SUB, 0, a);
                q = a / b;
                r = a % b;
                if (r && (r < 0) != (b < 0)) {
                        q--;
                        r += b;
                }
                return v_int(op == N_MOD ? r : q);
        }
}

/* CPython's float_divmod. */
static Val float_divmod(double a, double b, bool mod)
{
        double m = fmod(a, b), div = (a - m) / b, floor_div;
        if (m) {
                if ((b < 0) != (m < 0)) {
                        m += b;
                        div -= 1;
                }
        } else {
                m = copysign(0, b);
        }
        if (div) {
                floor_div = floor(div);
                if (div - floor_div > 0.5)
                        floor_div += 1;
        } else {
                floor_div = copysign(0, a / b);
        }
        return v_float(mod ? m : floor_div);
}

static Val float_op(J *j, NodeType op, double a, double b)
{
        if ((op == N_DIV || op == N_FLOORDIV || op == N_MOD) && b == 0)
                j_fail(j, "float division by zero");
        switch (op) {
        case N_ADD: return v_float(a + b);
        case N_SUB: return v_float(a - b);
        case N_MUL: return v_float(a * b);
        case N_DIV: return v_float(a / b);
        case N_POW: {
                double r = pow(a, b);
                if (a < 0 && isfinite(b) && floor(b) != b && isfinite(a))
                        j_lacks(j, "a complex number");
                if (a == 0 && b < 0)
                        j_fail(j, "0.0 cannot be raised to a negative power");
                if (isinf(r) && isfinite(a) && isfinite(b))
                        j_fail(j, "the power is too large");
                return v_float(r);
        }
        default: return float_divmod(a, b, op == N_MOD);
        }
}

static Val repeat(J *j, Val v, int64_t times)
{
        size_t n = times < 0 ? 0 : (size_t)times, each = v.t == V_STR ? v.s->n : v.l->n;
        if (each && n > MOST_POOL / each)
                j_no_memory(j);
        if (!each)
                n = 0;
        j_step(j, n + n * each / 64);
        if (v.t == V_STR) {
                Buf b = { .p = j_get(j, n * each + 1), .cap = n * each + 1 };
                for (size_t i = 0; i < n; i++)
                        out_put(j, &b, v.s->p, each);
                return v_markup(out_str(j, &b), v.markup);
        }
        Val out = v_list(j, (VType)v.t, n * each);
        for (size_t i = 0; i < n * each; i++)
                out.l->v[i] = v.l->v[i % each];
        return out;
}

static Val add(J *j, Val a, Val b)
{
        if (a.t == V_STR && b.t == V_STR) {
                bool markup = a.markup || b.markup;
                if (markup) {
                        a = escape_html(j, a);
                        b = escape_html(j, b);
                }
                Buf buf = { .p = j_get(j, a.s->n + b.s->n + 1), .cap = a.s->n + b.s->n + 1 };
                j_step(j, (a.s->n + b.s->n) / 64);
                out_put(j, &buf, a.s->p, a.s->n);
                out_put(j, &buf, b.s->p, b.s->n);
                return v_markup(out_str(j, &buf), markup);
        }
        if ((a.t == V_LIST || a.t == V_TUPLE) && a.t == b.t) {
                Val out = v_list(j, (VType)a.t, a.l->n + b.l->n);
                j_step(j, out.l->n);
                memcpy(out.l->v, a.l->v, a.l->n * sizeof *a.l->v);
                memcpy(out.l->v + a.l->n, b.l->v, b.l->n * sizeof *b.l->v);
                return out;
        }
        bad_operands(j, "+", a, b);
}

Val v_binary(J *j, NodeType op, Val a, Val b)
{
        static const char *const sign[] = { "+", "-", "*", "/", "//", "%", "**" };
        int64_t i, k;
        if (is_number(a) && is_number(b)) {
                if (is_integer(a, &i) && is_integer(b, &k))
                        return int_op(j, op, i, k);
                return float_op(j, op, number_of(a), number_of(b));
        }
        if (op == N_MOD && a.t == V_STR)
                return format_percent(j, a, b);
        if (op == N_ADD)
                return add(j, a, b);
        if (op == N_MUL && is_integer(b, &k) && (a.t == V_STR || a.t == V_LIST || a.t == V_TUPLE))
                return repeat(j, a, k);
        if (op == N_MUL && is_integer(a, &i) && (b.t == V_STR || b.t == V_LIST || b.t == V_TUPLE))
                return repeat(j, b, i);
        if (a.t == V_VIEW || b.t == V_VIEW)
                j_lacks(j, "arithmetic with %s", v_type(a.t == V_VIEW ? a : b));
        bad_operands(j, sign[op - N_ADD], a, b);
}

Val v_negate(J *j, Val v, bool minus)
{
        int64_t i;
        if (is_integer(v, &i))
                return minus ? int_op(j, N_SUB, 0, i) : v_int(i);
        if (v.t == V_FLOAT)
                return v_float(minus ? -v.d : v.d);
        if (v.t == V_UNDEF)
                j_fail(j, "%s", v.u->why);
        j_fail(j, "bad operand type for unary %c: '%s'", minus ? '-' : '+', v_type(v));
}

/* ---- parts ---- */

static Val str_part(J *j, Val v, size_t from, size_t n)
{
        const char *end = v.s->p + v.s->n, *p, *q;
        j_step(j, v.s->n / 64);
        if (v.s->chars == v.s->n) {
                p = v.s->p + from;
                q = p + n;
        } else {
                p = skip_codes(v.s->p, end, from);
                q = skip_codes(p, end, n);
        }
        return v_markup(v_str_at(j, p, (size_t)(q - p)), v.markup);
}

Val v_index(J *j, Val v, int64_t i, bool *found)
{
        int64_t n = v_len(j, v);
        i += i < 0 ? n : 0;
        *found = i >= 0 && i < n;
        if (!*found)
                return v_none();
        if (v.t == V_STR)
                return str_part(j, v, (size_t)i, 1);
        if (v.t == V_RANGE)
                return v_int(v.r->start + i * v.r->step);
        return v.l->v[i];
}

static int64_t bound(J *j, Val v, int64_t n, int64_t lo, int64_t hi, int64_t dflt)
{
        int64_t i;
        if (v.t == V_NONE)
                return dflt;
        if (!is_integer(v, &i))
                j_fail(j, "slice indices must be integers or None, not %s", v_type(v));
        if (i < 0)
                i = i < -n ? lo : i + n < lo ? lo : i + n;
        return i > hi ? hi : i;
}

Val v_slice(J *j, Val v, Val start, Val stop, Val step)
{
        int64_t by = 1, n;
        if (v.t == V_UNDEF)
                j_fail(j, "%s", v.u->why);
        if (v.t == V_RANGE)
                j_lacks(j, "a slice of a range");
        if (v.t != V_STR && v.t != V_LIST && v.t != V_TUPLE)
                j_fail(j, "a %s has no slices", v_type(v));
        if (step.t != V_NONE && !is_integer(step, &by))
                j_fail(j, "slice indices must be integers or None, not %s", v_type(step));
        if (!by)
                j_fail(j, "slice step cannot be zero");
        n = v_len(j, v);
        by = by > n + 1 ? n + 1 : by < -n - 1 ? -n - 1 : by;
        int64_t from = bound(j, start, n, by < 0 ? -1 : 0, by < 0 ? n - 1 : n, by < 0 ? n - 1 : 0),
                to = bound(j, stop, n, by < 0 ? -1 : 0, by < 0 ? n - 1 : n, by < 0 ? -1 : n);
        int64_t count = by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0)
                               : (from > to ? (from - to - 1) / -by + 1 : 0);
        if (v.t == V_STR && by == 1)
                return str_part(j, v, (size_t)from, (size_t)count);
        j_step(j, (size_t)count);
        if (v.t != V_STR) {
                Val out = v_list(j, (VType)v.t, (size_t)count);
                for (int64_t i = 0; i < count; i++)
                        out.l->v[i] = v.l->v[from + i * by];
                return out;
        }
        const char *end = v.s->p + v.s->n, *p = v.s->p, **at;
        at = j_get(j, (v.s->chars + 1) * sizeof *at);
        for (size_t i = 0; i <= v.s->chars; i++, p = skip_codes(p, end, 1))
                at[i] = p;
        Buf b = { 0 };
        for (int64_t i = 0; i < count; i++) {
                int64_t k = from + i * by;
                out_put(j, &b, at[k], (size_t)(at[k + 1] - at[k]));
        }
        return v_markup(out_str(j, &b), v.markup);
}
