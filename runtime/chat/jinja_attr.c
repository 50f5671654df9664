/* jinja_attr.c: x.name and x[key], as jinja2's sandbox answers them.
 *
 * Python's attribute comes first, so `message.items` is a dict's method even if the dict has such a
 * key; then the item.  Methods that change a list or a dict, and names that begin with an
 * underscore, are undefined: using them fails, as in the sandbox. */
#include <math.h>
#include <string.h>
#include "jinja.h"

/* ---- methods of lists and dicts ---- */

static Val seq_count(J *j, Val self, const Args *a)
{
        Val x[1];
        int64_t n = 0;
        args_take(j, a, "count", "value /", x);
        for (size_t i = 0; i < self.l->n; i++)
                n += v_equal(j, self.l->v[i], x[0]);
        return v_int(n);
}

static Val seq_index(J *j, Val self, const Args *a)
{
        Val x[3];
        args_take(j, a, "index", "value start? stop? /", x);
        if (x[1].t != V_MISSING)
                j_lacks(j, "index with a start");
        for (size_t i = 0; i < self.l->n; i++)
                if (v_equal(j, self.l->v[i], x[0]))
                        return v_int((int64_t)i);
        j_fail(j, "the value is not in the %s", v_type(self));
}

static Val seq_copy(J *j, Val self, const Args *a)
{
        (void)j;
        args_take(j, a, "copy", "", NULL);
        return self;
}

static Val view(J *j, Val self, const Args *a, char what)
{
        args_take(j, a, "keys", "", NULL);
        self.t = V_VIEW;
        self.markup = (uint8_t)what;
        return self;
}

static Val dict_keys(J *j, Val self, const Args *a) { return view(j, self, a, 'k'); }
static Val dict_values(J *j, Val self, const Args *a) { return view(j, self, a, 'v'); }
static Val dict_items(J *j, Val self, const Args *a) { return view(j, self, a, 'i'); }

static Val dict_get(J *j, Val self, const Args *a)
{
        Val x[2], *at;
        args_take(j, a, "get", "key default? /", x);
        at = dict_find(j, self.m, x[0]);
        return at ? *at : x[1].t == V_MISSING ? v_none() : x[1];
}

static Val dict_fromkeys(J *j, Val self, const Args *a)
{
        Val x[2], key, d = v_dict(j);
        (void)self;
        args_take(j, a, "fromkeys", "iterable value? /", x);
        for (Iter *it = iter_of(j, x[0]); iter_next(j, it, &key);)
                dict_set(j, d.m, key, x[1].t == V_MISSING ? v_none() : x[1]);
        return d;
}

static Val float_is_integer(J *j, Val self, const Args *a)
{
        args_take(j, a, "is_integer", "", NULL);
        return v_bool(isfinite(self.d) && floor(self.d) == self.d);
}

/* fn NULL and changes: undefined here; fn NULL: Python has it, this does not. */
typedef struct Method {
        VType t;
        const char *name;
        Builtin *fn;
        bool changes;
} Method;

static const Method method[] = {
        { V_LIST, "count", seq_count, 0 },
        { V_LIST, "index", seq_index, 0 },
        { V_LIST, "copy", seq_copy, 0 },
        { V_LIST, "append", NULL, 1 },
        { V_LIST, "clear", NULL, 1 },
        { V_LIST, "extend", NULL, 1 },
        { V_LIST, "insert", NULL, 1 },
        { V_LIST, "pop", NULL, 1 },
        { V_LIST, "remove", NULL, 1 },
        { V_LIST, "reverse", NULL, 1 },
        { V_LIST, "sort", NULL, 1 },
        { V_TUPLE, "count", seq_count, 0 },
        { V_TUPLE, "index", seq_index, 0 },
        { V_DICT, "keys", dict_keys, 0 },
        { V_DICT, "values", dict_values, 0 },
        { V_DICT, "items", dict_items, 0 },
        { V_DICT, "get", dict_get, 0 },
        { V_DICT, "copy", seq_copy, 0 },
        { V_DICT, "fromkeys", dict_fromkeys, 0 },
        { V_DICT, "clear", NULL, 1 },
        { V_DICT, "pop", NULL, 1 },
        { V_DICT, "popitem", NULL, 1 },
        { V_DICT, "setdefault", NULL, 1 },
        { V_DICT, "update", NULL, 1 },
        { V_VIEW, "mapping", NULL, 0 },
        { V_VIEW, "isdisjoint", NULL, 0 },
        { V_RANGE, "start", NULL, 0 },
        { V_RANGE, "stop", NULL, 0 },
        { V_RANGE, "step", NULL, 0 },
        { V_RANGE, "count", NULL, 0 },
        { V_RANGE, "index", NULL, 0 },
        { V_FLOAT, "is_integer", float_is_integer, 0 },
        { V_FLOAT, "as_integer_ratio", NULL, 0 },
        { V_FLOAT, "conjugate", NULL, 0 },
        { V_FLOAT, "fromhex", NULL, 0 },
        { V_FLOAT, "hex", NULL, 0 },
        { V_FLOAT, "imag", NULL, 0 },
        { V_FLOAT, "real", NULL, 0 },
        { V_INT, "as_integer_ratio", NULL, 0 },
        { V_INT, "bit_count", NULL, 0 },
        { V_INT, "bit_length", NULL, 0 },
        { V_INT, "conjugate", NULL, 0 },
        { V_INT, "denominator", NULL, 0 },
        { V_INT, "from_bytes", NULL, 0 },
        { V_INT, "imag", NULL, 0 },
        { V_INT, "numerator", NULL, 0 },
        { V_INT, "real", NULL, 0 },
        { V_INT, "to_bytes", NULL, 0 },
        { V_ITER, "send", NULL, 0 },
        { V_ITER, "throw", NULL, 0 },
        { V_ITER, "close", NULL, 0 },
        { V_ITER, "gi_frame", NULL, 1 },
        { V_ITER, "gi_code", NULL, 1 },
        { V_ITER, "gi_running", NULL, 0 },
        { V_ITER, "gi_suspended", NULL, 0 },
        { V_ITER, "gi_yieldfrom", NULL, 0 },
};

static Val unsafe(J *j, Val v, const char *name)
{
        return v_undef(j, "access to attribute '%.60s' of '%s' object is unsafe", name, v_type(v));
}

static Val macro_attr(J *j, const Func *f, const char *name, bool *found)
{
        const Node *m = f->macro;
        *found = true;
        if (!strcmp(name, "name"))
                return m->t == N_MACRO ? v_text(j, f->name) : v_none();
        if (!strcmp(name, "arguments")) {
                Val l = v_list(j, V_TUPLE, (size_t)m->list.n);
                for (int i = 0; i < m->list.n; i++)
                        l.l->v[i] = v_text(j, m->list.p[i]->name);
                return l;
        }
        if (!strcmp(name, "catch_kwargs"))
                return v_bool(m->kwargs_at.slot >= 0);
        if (!strcmp(name, "catch_varargs"))
                return v_bool(m->varargs.slot >= 0);
        if (!strcmp(name, "caller"))
                return v_bool(m->caller.slot != -1);
        if (!strcmp(name, "explicit_caller"))
                j_lacks(j, "the attribute %s of a macro", name);
        *found = false;
        return v_none();
}

/* Python's attribute; *found false: it has none of this name. */
static Val attribute(J *j, Val v, const char *name, bool *found)
{
        const VType t = v.t == V_BOOL ? V_INT : (VType)v.t;
        size_t n = strlen(name);
        Val out, *at;
        *found = true;
        if (t == V_UNDEF)
                j_fail(j, "%s", v.u->why);
        if (t == V_SPACE && !strncmp(name, "_Namespace__", 12))
                return unsafe(j, v, name);
        if (t == V_SPACE && (at = dict_at(j, v.m, name)))
                return *at;
        if (t == V_LOOP && *name != '_' && (out = loop_attr(j, v.loop, name, found), *found))
                return out;
        if (t == V_FUNC && !v.f->fn && *name != '_' &&
            (out = macro_attr(j, v.f, name, found), *found))
                return out;
        *found = true;
        if (n > 4 && !strncmp(name, "__", 2) && !strcmp(name + n - 2, "__"))
                return unsafe(j, v, name);
        if (t == V_STR && str_method(j, v, name, &out))
                return out;
        for (size_t i = 0; i < sizeof method / sizeof *method; i++) {
                if (method[i].t != t || strcmp(method[i].name, name))
                        continue;
                if (method[i].changes)
                        return unsafe(j, v, name);
                if (!method[i].fn)
                        j_lacks(j, "the attribute %s of a %s", name, v_type(v));
                return v_func(j, method[i].name, method[i].fn, v);
        }
        if (t == V_FUNC && v.f->fn && !strcmp(v.f->name, "dict") && !strcmp(name, "fromkeys"))
                return v_func(j, "fromkeys", dict_fromkeys, v);
        *found = false;
        return v_none();
}

static bool hashable(Val v)
{
        if (v.t == V_TUPLE)
                for (size_t i = 0; i < v.l->n; i++)
                        if (!hashable(v.l->v[i]))
                                return false;
        return v.t != V_LIST && v.t != V_DICT && v.t != V_VIEW;
}

/* v[key]; *found false: TypeError or LookupError. */
static Val item(J *j, Val v, Val key, bool *found)
{
        int64_t i;
        *found = false;
        switch (v.t) {
        case V_UNDEF: j_fail(j, "%s", v.u->why);
        case V_DICT:
                if (hashable(key)) {
                        Val *at = dict_find(j, v.m, key);
                        *found = at != NULL;
                        return at ? *at : v_none();
                }
                return v_none();
        case V_STR:
        case V_LIST:
        case V_TUPLE:
        case V_RANGE:
                if (is_integer(key, &i))
                        return v_index(j, v, i, found);
                return v_none();
        default: return v_none();
        }
}

static Val nothing(J *j, Val v, Val key)
{
        Buf b = { 0 };
        put_repr(j, &b, key);
        return v_undef(j,
                       is_str(key) ? "'%s object' has no attribute %.100s"
                                   : "%s object has no element %.100s",
                       v_type(v), b.p ? b.p : "");
}

Val v_getattr(J *j, Val v, const char *name)
{
        bool found;
        Val out = attribute(j, v, name, &found);
        if (found)
                return out;
        Val key = v_text(j, name);
        out = item(j, v, key, &found);
        return found ? out : nothing(j, v, key);
}

Val v_getitem(J *j, Val v, Val key)
{
        bool found;
        Val out = item(j, v, key, &found);
        if (!found && is_str(key) && !memchr(key.s->p, 0, key.s->n))
                out = attribute(j, v, j_copy(j, key.s->p, key.s->n), &found);
        return found ? out : nothing(j, v, key);
}

Val v_attribute(J *j, Val v, const char *name)
{
        bool found;
        Val out = attribute(j, v, name, &found);
        return found ? out : nothing(j, v, v_text(j, name));
}
