/* jinja_test.c: tests (`x is defined`), and the functions that every template may call. */
#include <math.h>
#include <string.h>
#include <time.h>
#include "jinja.h"

static Val one(J *j, const Args *a, const char *what)
{
        Val x[1];
        args_take(j, a, what, "other", x);
        return x[0];
}

static void none(J *j, const Args *a) { args_take(j, a, "this test", "", NULL); }

static Val remainder_of(J *j, Val v, Val by)
{
        if (v.t == V_STR)
                j_lacks(j, "odd, even and divisibleby of a str");
        return v_binary(j, N_MOD, v, by);
}

#define TEST_OF_TYPE(name, cond)                        \
        static Val t_##name(J *j, Val v, const Args *a) \
        {                                               \
                none(j, a);                             \
                return v_bool(cond);                    \
        }

TEST_OF_TYPE(defined, v.t != V_UNDEF)
TEST_OF_TYPE(undefined, v.t == V_UNDEF)
TEST_OF_TYPE(none, v.t == V_NONE)
TEST_OF_TYPE(boolean, v.t == V_BOOL)
TEST_OF_TYPE(false, v.t == V_BOOL && !v.b)
TEST_OF_TYPE(true, v.t == V_BOOL && v.b)
TEST_OF_TYPE(integer, v.t == V_INT)
TEST_OF_TYPE(float, v.t == V_FLOAT)
TEST_OF_TYPE(string, v.t == V_STR)
TEST_OF_TYPE(mapping, v.t == V_DICT)
TEST_OF_TYPE(number, is_number(v))
TEST_OF_TYPE(sequence, v.t == V_STR || v.t == V_LIST || v.t == V_TUPLE || v.t == V_DICT ||
                               v.t == V_RANGE || v.t == V_UNDEF)
TEST_OF_TYPE(iterable, has_iter(v))
TEST_OF_TYPE(callable, v.t == V_FUNC || v.t == V_LOOP || v.t == V_UNDEF)
TEST_OF_TYPE(escaped, v.t == V_STR && v.markup)
TEST_OF_TYPE(odd, v_equal(j, remainder_of(j, v, v_int(2)), v_int(1)))
TEST_OF_TYPE(even, v_equal(j, remainder_of(j, v, v_int(2)), v_int(0)))
TEST_OF_TYPE(lower, v_true(j, str_builtin("islower")(j, to_str(j, v), &(Args) { 0 })))
TEST_OF_TYPE(upper, v_true(j, str_builtin("isupper")(j, to_str(j, v), &(Args) { 0 })))
TEST_OF_TYPE(filter, is_str(v) && filter_find(j_copy(j, v.s->p, v.s->n)))
TEST_OF_TYPE(test, is_str(v) && test_find(j_copy(j, v.s->p, v.s->n)))

static Val t_divisibleby(J *j, Val v, const Args *a)
{
        Val x[1];
        args_take(j, a, "divisibleby", "num", x);
        return v_bool(v_equal(j, remainder_of(j, v, x[0]), v_int(0)));
}

/* Only of what there is one of can it be said. */
static Val t_sameas(J *j, Val v, const Args *a)
{
        Val o = one(j, a, "sameas");
        bool single = v.t == V_NONE || v.t == V_BOOL || o.t == V_NONE || o.t == V_BOOL;
        if (!single && v.t == o.t)
                j_lacks(j, "sameas of a %s", v_type(v));
        return v_bool(v.t == o.t && (v.t != V_BOOL || v.b == o.b));
}

static Val t_in(J *j, Val v, const Args *a)
{
        Val x[1];
        args_take(j, a, "in", "seq", x);
        return v_bool(v_in(j, v, x[0]));
}

static Val t_eq(J *j, Val v, const Args *a) { return v_bool(v_equal(j, v, one(j, a, "eq"))); }
static Val t_ne(J *j, Val v, const Args *a) { return v_bool(!v_equal(j, v, one(j, a, "ne"))); }
static Val t_gt(J *j, Val v, const Args *a)
{
        return v_bool(v_order(j, v, one(j, a, "gt"), OP_GT));
}
static Val t_ge(J *j, Val v, const Args *a)
{
        return v_bool(v_order(j, v, one(j, a, "ge"), OP_GE));
}
static Val t_lt(J *j, Val v, const Args *a)
{
        return v_bool(v_order(j, v, one(j, a, "lt"), OP_LT));
}
static Val t_le(J *j, Val v, const Args *a)
{
        return v_bool(v_order(j, v, one(j, a, "le"), OP_LE));
}

static const Named test[] = {
        { "odd", t_odd },
        { "even", t_even },
        { "divisibleby", t_divisibleby },
        { "defined", t_defined },
        { "undefined", t_undefined },
        { "filter", t_filter },
        { "test", t_test },
        { "none", t_none },
        { "boolean", t_boolean },
        { "false", t_false },
        { "true", t_true },
        { "integer", t_integer },
        { "float", t_float },
        { "lower", t_lower },
        { "upper", t_upper },
        { "string", t_string },
        { "mapping", t_mapping },
        { "number", t_number },
        { "sequence", t_sequence },
        { "iterable", t_iterable },
        { "callable", t_callable },
        { "sameas", t_sameas },
        { "escaped", t_escaped },
        { "in", t_in },
        { "==", t_eq },
        { "eq", t_eq },
        { "equalto", t_eq },
        { "!=", t_ne },
        { "ne", t_ne },
        { ">", t_gt },
        { "gt", t_gt },
        { "greaterthan", t_gt },
        { "ge", t_ge },
        { ">=", t_ge },
        { "<", t_lt },
        { "lt", t_lt },
        { "lessthan", t_lt },
        { "<=", t_le },
        { "le", t_le },
};

const Named *test_find(const char *name)
{
        for (size_t i = 0; i < sizeof test / sizeof *test; i++)
                if (!strcmp(test[i].name, name))
                        return &test[i];
        return NULL;
}

bool test_call(J *j, const char *name, Val v, const Args *a)
{
        const Named *t = test_find(name);
        if (!t)
                j_fail(j, "no test is called %.60s", name);
        return v_true(j, t->fn(j, v, a));
}

/* ---- globals ---- */

static Val g_raise(J *j, Val self, const Args *a)
{
        Val x[1];
        Buf b = { 0 };
        (void)self;
        args_take(j, a, "raise_exception", "message", x);
        put_str(j, &b, x[0]);
        j_fail(j, "the template refuses this conversation: %.600s", b.p ? b.p : "");
}

static void merge(J *j, Dict *d, Val from)
{
        Val x;
        if (from.t == V_DICT) {
                for (size_t i = 0; i < from.m->n; i++)
                        dict_set(j, d, from.m->e[i].key, from.m->e[i].value);
                return;
        }
        for (Iter *it = iter_of(j, from); iter_next(j, it, &x);) {
                Val pair = list_of(j, x, V_LIST);
                if (pair.l->n != 2)
                        j_fail(j, "a dict is made of pairs");
                dict_set(j, d, pair.l->v[0], pair.l->v[1]);
        }
}

static Val g_dict(J *j, Val self, const Args *a)
{
        Val d = v_dict(j);
        (void)self;
        if (a->n > 1)
                j_fail(j, "dict expected at most 1 argument, got %d", a->n);
        if (a->n)
                merge(j, d.m, a->v[0]);
        for (int i = 0; i < a->n_kw; i++)
                dict_set(j, d.m, v_text(j, a->key[i]), a->kw[i]);
        return d;
}

static Val g_namespace(J *j, Val self, const Args *a)
{
        Val d = g_dict(j, self, a);
        for (size_t i = 0; i < d.m->n; i++) {
                Val k = d.m->e[i].key;
                if (is_str(k) && k.s->n && *k.s->p == '_')
                        j_fail(j, "a namespace stores no attribute with an underscore in front");
        }
        d.t = V_SPACE;
        return d;
}

static Val g_range(J *j, Val self, const Args *a)
{
        int64_t x[3] = { 0, 0, 1 }, n;
        (void)self;
        if (a->n_kw || a->n < 1 || a->n > 3)
                j_fail(j, "range takes 1 to 3 integers");
        for (int i = 0; i < a->n; i++)
                if (!is_integer(a->v[i], &x[i]))
                        j_fail(j, "'%s' object cannot be interpreted as an integer",
                               v_type(a->v[i]));
        if (a->n == 1) {
                x[1] = x[0];
                x[0] = 0;
        }
        if (!x[2])
                j_fail(j, "range() arg 3 must not be zero");
        int64_t lo = x[2] > 0 ? x[0] : x[1], hi = x[2] > 0 ? x[1] : x[0];
        uint64_t span = hi > lo ? (uint64_t)hi - (uint64_t)lo - 1 : 0,
                 by = x[2] > 0 ? (uint64_t)x[2] : 0 - (uint64_t)x[2];
        if (hi > lo && span / by >= MOST_RANGE)
                j_fail(j, "Range too big. The sandbox blocks ranges larger than %d.", MOST_RANGE);
        n = hi > lo ? (int64_t)(span / by) + 1 : 0;
        Range *r = j_get(j, sizeof *r);
        *r = (Range) { x[0], x[1], x[2], n };
        return (Val) { .t = V_RANGE, .r = r };
}

static Val g_strftime_now(J *j, Val self, const Args *a)
{
        Val x[1];
        struct tm tm;
        char *fmt, out[1024];
        time_t now = (time_t)j->now;
        (void)self;
        args_take(j, a, "strftime_now", "format", x);
        if (!is_str(x[0]))
                j_fail(j, "strftime_now: a str is wanted, not %s", v_type(x[0]));
        if (x[0].s->n > 200 || memchr(x[0].s->p, 0, x[0].s->n))
                j_lacks(j, "strftime_now with a format as long");
        fmt = j_copy(j, x[0].s->p, x[0].s->n);
        if (!localtime_r(&now, &tm))
                j_fail(j, "strftime_now: the time is out of range");
        for (const char *p = fmt; *p; p++)
                if (*p == '%' && (!*++p || !strchr("aAwdbBmyYHIpMSjUWcxXGuV%eDFTRhnt", *p)))
                        j_lacks(j, "strftime_now with %%%c", *p ? *p : ' ');
        size_t n = *fmt ? strftime(out, sizeof out, fmt, &tm) : 0;
        return v_str(j, out, n);
}

static Val g_lacks(J *j, Val self, const Args *a)
{
        (void)a;
        j_lacks(j, "the function %.40s", self.s->p);
}

static const Named global[] = {
        { "raise_exception", g_raise },
        { "namespace", g_namespace },
        { "dict", g_dict },
        { "range", g_range },
        { "strftime_now", g_strftime_now },
        { "lipsum", g_lacks },
        { "cycler", g_lacks },
        { "joiner", g_lacks },
};

bool global_find(J *j, const char *name, Val *out)
{
        if (!strcmp(name, "self"))
                j_lacks(j, "the name self");
        for (size_t i = 0; i < sizeof global / sizeof *global; i++)
                if (!strcmp(global[i].name, name)) {
                        *out = v_func(j, global[i].name, global[i].fn, v_text(j, global[i].name));
                        return true;
                }
        return false;
}
