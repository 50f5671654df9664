/* jinja_eval.c: expressions. */
#include <string.h>
#include "jinja.h"

static Val *slot_of(J *j, Ref r)
{
        Act *a = j->act;
        for (int i = 0; i < r.up; i++)
                a = a->up;
        return &a->slot[r.slot];
}

/* What a scope's names are where it begins. */
void enter_scope(J *j, const Loads *l)
{
        for (int i = 0; i < l->n; i++) {
                const Load *k = &l->load[i];
                Val *to = &j->act->slot[k->slot], *at;
                *to = (Val) { .t = V_MISSING };
                if (k->kind == LOAD_ALIAS)
                        *to = *slot_of(j, k->from);
                if (k->kind != LOAD_RESOLVE)
                        continue;
                if ((at = dict_at(j, j->context, k->name)))
                        *to = *at;
                else
                        global_find(j, k->name, to);
        }
}

/* ---- assignment ---- */

static void check_space(J *j, const Node *t)
{
        if (t->t == N_NSREF && slot_of(j, t->ref)->t != V_SPACE)
                j_fail(j, "cannot assign attribute on non-namespace object");
        for (int i = 0; t->t == N_TUPLE && i < t->list.n; i++)
                check_space(j, t->list.p[i]);
}

void assign(J *j, const Node *t, Val v)
{
        Val x;
        if (t->t == N_NAME) {
                *slot_of(j, t->ref) = v;
        } else if (t->t == N_NSREF) {
                Val *space = slot_of(j, t->ref);
                if (t->val.s->n && *t->val.s->p == '_')
                        j_fail(j, "a namespace stores no attribute with an underscore in front");
                if (space->t != V_SPACE)
                        j_fail(j, "cannot assign attribute on non-namespace object");
                dict_set(j, space->m, t->val, v);
        } else {
                Val l;
                if (!has_iter(v))
                        j_fail(j, "cannot unpack non-iterable %s object", v_type(v));
                if (v_has_len(v) && v.t != V_LOOP && v_len(j, v) != t->list.n)
                        j_fail(j, "%d values are wanted to unpack, there are %lld", t->list.n,
                               (long long)v_len(j, v));
                l = v_list(j, V_TUPLE, (size_t)t->list.n);
                Iter *it = iter_of(j, v);
                for (int i = 0; i < t->list.n; i++) {
                        if (!iter_next(j, it, &x))
                                j_fail(j, "%d values are wanted to unpack, there are %d", t->list.n,
                                       i);
                        l.l->v[i] = x;
                }
                if (iter_next(j, it, &x))
                        j_fail(j, "too many values to unpack (expected %d)", t->list.n);
                for (int i = 0; i < t->list.n; i++)
                        assign(j, t->list.p[i], l.l->v[i]);
        }
}

void assign_set(J *j, const Node *n)
{
        check_space(j, n->a);
        assign(j, n->a, eval(j, n->b));
}

/* ---- calls ---- */

static void add_kw(J *j, Args *a, const char *key, Val v)
{
        for (int i = 0; i < a->n_kw; i++)
                if (!strcmp(a->key[i], key))
                        j_fail(j, "got multiple values for keyword argument '%.60s'", key);
        a->key[a->n_kw] = key;
        a->kw[a->n_kw++] = v;
}

static Args eval_args(J *j, const Node *n, Val caller)
{
        Args a = { 0 };
        Val dyn = { .t = V_MISSING }, kw = { .t = V_MISSING };
        Val *own = j_get(j, (size_t)(n->kwargs.n + 1) * sizeof *own);
        a.v = j_get(j, (size_t)(n->args.n + 1) * sizeof *a.v);
        for (int i = 0; i < n->args.n; i++)
                a.v[a.n++] = eval(j, n->args.p[i]);
        for (int i = 0; i < n->kwargs.n; i++)
                own[i] = eval(j, n->kwargs.p[i]->a);
        if (n->dyn_args) {
                dyn = list_of(j, eval(j, n->dyn_args), V_TUPLE);
                if (dyn.l->n > 100000)
                        j_lacks(j, "a call with more than 100000 arguments");
                a.v = j_grow(j, a.v, (size_t)a.n * sizeof *a.v, (dyn.l->n + 1) * sizeof *a.v);
                for (size_t i = 0; i < dyn.l->n; i++)
                        a.v[a.n++] = dyn.l->v[i];
        }
        if (n->dyn_kwargs) {
                kw = eval(j, n->dyn_kwargs);
                if (kw.t != V_DICT)
                        j_fail(j, "argument after ** must be a mapping, not %s", v_type(kw));
                if (kw.m->n > 1000)
                        j_lacks(j, "a call with more than 1000 keyword arguments");
        }
        size_t most = (size_t)n->kwargs.n + 1 + (kw.t == V_DICT ? kw.m->n : 0);
        a.key = j_get(j, (most + 1) * sizeof *a.key);
        a.kw = j_get(j, (most + 1) * sizeof *a.kw);
        for (int i = 0; i < n->kwargs.n; i++)
                add_kw(j, &a, n->kwargs.p[i]->name, own[i]);
        if (caller.t != V_MISSING)
                add_kw(j, &a, "caller", caller);
        for (size_t i = 0; kw.t == V_DICT && i < kw.m->n; i++) {
                Val k = kw.m->e[i].key;
                if (!is_str(k))
                        j_fail(j, "keywords must be strings");
                if (memchr(k.s->p, 0, k.s->n))
                        j_lacks(j, "a NUL in a keyword");
                add_kw(j, &a, j_copy(j, k.s->p, k.s->n), kw.m->e[i].value);
        }
        return a;
}

Val eval_call(J *j, const Node *n, Val caller)
{
        Val f = eval(j, n->a);
        Args a = eval_args(j, n, caller);
        j->line = n->line;
        j->col = n->col;
        return call_value(j, f, &a);
}

static Val eval_filter(J *j, const Node *n, Val v)
{
        Args a = eval_args(j, n, (Val) { .t = V_MISSING });
        j->line = n->line;
        j->col = n->col;
        return filter_call(j, n->name, v, &a);
}

/* The filters of a block, first one first: the innermost has no value of its own. */
Val eval_block_filter(J *j, const Node *n, Val text)
{
        j_down(j);
        Val v = n->a ? eval_block_filter(j, n->a, text) : text;
        j->depth--;
        return eval_filter(j, n, v);
}

static Val eval_test(J *j, const Node *n)
{
        Val v = eval(j, n->a);
        Args a = eval_args(j, n, (Val) { .t = V_MISSING });
        j->line = n->line;
        j->col = n->col;
        return v_bool(test_call(j, n->name, v, &a));
}

/* ---- the rest ---- */

static Val eval_name(J *j, const Node *n)
{
        Val v = *slot_of(j, n->ref);
        return v.t == V_MISSING ? v_undef(j, "'%.100s' is undefined", n->name) : v;
}

static Val eval_compare(J *j, const Node *n)
{
        Val left = eval(j, n->a), right;
        for (int i = 0; i < n->list.n; i++, left = right) {
                right = eval(j, n->list.p[i]->a);
                j->line = n->line;
                j->col = n->col;
                if (!v_order(j, left, right, n->list.p[i]->op))
                        return v_bool(false);
        }
        return v_bool(true);
}

static Val eval_concat(J *j, const Node *n)
{
        Buf b = { 0 };
        for (int i = 0; i < n->list.n; i++) {
                Val v = eval(j, n->list.p[i]);
                put_str(j, &b, v);
                j_step(j, is_str(v) ? v.s->n / 64 : 0);
        }
        return out_str(j, &b);
}

static Val eval_dict(J *j, const Node *n)
{
        Val d = v_dict(j);
        for (int i = 0; i < n->list.n; i++) {
                Val key = eval(j, n->list.p[i]);
                dict_set(j, d.m, key, eval(j, n->body.p[i]));
        }
        return d;
}

static Val eval_or_none(J *j, const Node *n) { return n ? eval(j, n) : v_none(); }

static Val eval_item(J *j, const Node *n)
{
        Val v = eval(j, n->a);
        if (n->b->t != N_SLICE)
                return v_getitem(j, v, eval(j, n->b));
        Val a = eval_or_none(j, n->b->a), b = eval_or_none(j, n->b->b),
            c = eval_or_none(j, n->b->c);
        return v_slice(j, v, a, b, c);
}

static Val eval_cond(J *j, const Node *n)
{
        if (v_true(j, eval(j, n->a)))
                return eval(j, n->b);
        if (n->c)
                return eval(j, n->c);
        return v_undef(j,
                       "the inline if-expression on line %d evaluated to false and no else "
                       "section was defined.",
                       n->line);
}

static Val eval_list(J *j, const Node *n)
{
        Val l = v_list(j, n->t == N_LIST ? V_LIST : V_TUPLE, (size_t)n->list.n);
        for (int i = 0; i < n->list.n; i++)
                l.l->v[i] = eval(j, n->list.p[i]);
        return l;
}

static Val eval_binary(J *j, const Node *n)
{
        Val a = eval(j, n->a), b = eval(j, n->b);
        j->line = n->line;
        j->col = n->col;
        return v_binary(j, (NodeType)n->t, a, b);
}

static Val eval_node(J *j, const Node *n)
{
        Val v;
        switch (n->t) {
        case N_CONST: return n->val;
        case N_NAME: return eval_name(j, n);
        case N_TUPLE:
        case N_LIST: return eval_list(j, n);
        case N_DICT: return eval_dict(j, n);
        case N_ATTR:
                v = eval(j, n->a);
                j->line = n->line;
                j->col = n->col;
                return v_getattr(j, v, n->name);
        case N_ITEM: return eval_item(j, n);
        case N_CALL: return eval_call(j, n, (Val) { .t = V_MISSING });
        case N_FILTER: v = eval(j, n->a); return eval_filter(j, n, v);
        case N_TEST: return eval_test(j, n);
        case N_NOT: return v_bool(!v_true(j, eval(j, n->a)));
        case N_NEG:
        case N_POS: return v_negate(j, eval(j, n->a), n->t == N_NEG);
        case N_AND: v = eval(j, n->a); return v_true(j, v) ? eval(j, n->b) : v;
        case N_OR: v = eval(j, n->a); return v_true(j, v) ? v : eval(j, n->b);
        case N_COMPARE: return eval_compare(j, n);
        case N_CONCAT: return eval_concat(j, n);
        case N_COND: return eval_cond(j, n);
        default: return eval_binary(j, n);
        }
}

Val eval(J *j, const Node *n)
{
        j_step(j, 1);
        j_down(j);
        j->line = n->line;
        j->col = n->col;
        Val v = eval_node(j, n);
        j->depth--;
        return v;
}
