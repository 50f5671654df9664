/* jinja_iter.c: iterates over values, one item at a time. */
#include "jinja.h"

bool has_iter(Val v) { return (v_has_len(v) || v.t == V_ITER); }

Val v_iter(J *j, bool (*next)(J *, Iter *, Val *), Val of, void *state)
{
        Iter *it = j_get(j, sizeof *it);
        *it = (Iter) { next, of, 0, state };
        return (Val) { .t = V_ITER, .it = it };
}

bool iter_next(J *j, Iter *it, Val *out)
{
        j_step(j, 1);
        j_down(j);
        bool more = it->next(j, it, out);
        j->depth--;
        return more;
}

static bool next_nothing(J *j, Iter *it, Val *out)
{
        (void)j, (void)it, (void)out;
        return false;
}

static bool next_item(J *j, Iter *it, Val *out)
{
        (void)j;
        if (it->i >= it->of.l->n)
                return false;
        *out = it->of.l->v[it->i++];
        return true;
}

/* i: a byte */
static bool next_char(J *j, Iter *it, Val *out)
{
        const Str *s = it->of.s;
        const char *p = s->p + it->i, *q = p;
        if (it->i >= s->n)
                return false;
        next_code(&q, s->p + s->n);
        *out = v_str_at(j, p, (size_t)(q - p));
        it->i += (size_t)(q - p);
        return true;
}

static bool next_entry(J *j, Iter *it, Val *out)
{
        const Dict *d = it->of.m;
        if (it->i >= d->n)
                return false;
        const Entry *e = &d->e[it->i++];
        if (it->of.t == V_DICT || it->of.markup == 'k') {
                *out = e->key;
        } else if (it->of.markup == 'v') {
                *out = e->value;
        } else {
                *out = v_list(j, V_TUPLE, 2);
                out->l->v[0] = e->key;
                out->l->v[1] = e->value;
        }
        return true;
}

static bool next_number(J *j, Iter *it, Val *out)
{
        const Range *r = it->of.r;
        (void)j;
        if ((int64_t)it->i >= r->n)
                return false;
        *out = v_int(r->start + (int64_t)it->i++ * r->step);
        return true;
}

Iter *iter_of(J *j, Val v)
{
        switch (v.t) {
        case V_ITER: return v.it;
        case V_LIST:
        case V_TUPLE: return v_iter(j, next_item, v, NULL).it;
        case V_STR: return v_iter(j, next_char, v, NULL).it;
        case V_DICT:
        case V_VIEW: return v_iter(j, next_entry, v, NULL).it;
        case V_RANGE: return v_iter(j, next_number, v, NULL).it;
        case V_UNDEF: return v_iter(j, next_nothing, v, NULL).it;
        case V_LOOP: j_lacks(j, "going through loop itself");
        default: j_fail(j, "'%s' object is not iterable", v_type(v));
        }
}

Val list_of(J *j, Val v, VType t)
{
        size_t n = 0, cap = v_has_len(v) && v.t != V_LOOP ? (size_t)v_len(j, v) : 8;
        Val x, *all = j_get(j, (cap + 1) * sizeof *all);
        for (Iter *it = iter_of(j, v); iter_next(j, it, &x);) {
                if (n == cap) {
                        all = j_grow(j, all, n * sizeof *all, (n + 16) * sizeof *all);
                        cap = n * 2 + 16;
                }
                all[n++] = x;
        }
        Val out = v_list(j, t, 0);
        ((List *)out.l)->v = all;
        ((List *)out.l)->n = n;
        return out;
}
