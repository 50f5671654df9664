/* jinja_call.c: arguments, functions, macros. */
#include <string.h>
#include "jinja.h"

Val v_func(J *j, const char *name, Builtin *fn, Val self)
{
        Func *f = j_get(j, sizeof *f);
        *f = (Func) { .name = name, .fn = fn, .self = self };
        return (Val) { .t = V_FUNC, .f = f };
}

/* The next word of names: its length, whether it may be left out. */
static const char *next_name(const char *s, size_t *n, bool *optional)
{
        while (*s == ' ')
                s++;
        *n = strcspn(s, " ");
        *optional = *n && s[*n - 1] == '?';
        *n -= *optional;
        return s;
}

void args_take(J *j, const Args *a, const char *what, const char *names, Val *out)
{
        const size_t all = strlen(names);
        bool by_name = !all || names[all - 1] != '/', optional;
        size_t n;
        int k = 0, used = 0;
        for (const char *s = names; *(s = next_name(s, &n, &optional)) && *s != '/';
             s += n + optional, k++) {
                out[k] = (Val) { .t = V_MISSING };
                if (k < a->n)
                        out[k] = a->v[k];
                for (int i = 0; by_name && i < a->n_kw; i++) {
                        if (strlen(a->key[i]) != n || memcmp(a->key[i], s, n))
                                continue;
                        if (out[k].t != V_MISSING)
                                j_fail(j, "%s: argument %.*s is given twice", what, (int)n, s);
                        out[k] = a->kw[i];
                        used++;
                }
                if (out[k].t == V_MISSING && !optional)
                        j_fail(j, "%s: argument %.*s is missing", what, (int)n, s);
        }
        if (a->n > k)
                j_fail(j, "%s takes at most %d argument%s, not %d", what, k, k == 1 ? "" : "s",
                       a->n);
        for (int i = 0; i < a->n_kw && used < a->n_kw; i++) {
                bool known = false;
                for (const char *s = names;
                     by_name && *(s = next_name(s, &n, &optional)) && *s != '/'; s += n + optional)
                        known |= strlen(a->key[i]) == n && !memcmp(a->key[i], s, n);
                if (!known)
                        j_fail(j, "%s takes no argument %.60s", what, a->key[i]);
        }
}

/* ---- macros: jinja2's Macro.__call__ ---- */

static int find_kw(const Args *a, const char *name)
{
        for (int i = 0; i < a->n_kw; i++)
                if (!strcmp(a->key[i], name))
                        return i;
        return -1;
}

static void macro_args(J *j, const Func *f, const Args *a, Act *act)
{
        const Node *m = f->macro;
        bool *taken = j_get(j, (size_t)a->n_kw + 1);
        const char *name = f->name;
        for (int i = 0; i < m->list.n; i++) {
                const Node *arg = m->list.p[i];
                int k = i < a->n ? -1 : find_kw(a, arg->name);
                if (i < a->n)
                        act->slot[arg->ref.slot] = a->v[i];
                else if (k >= 0)
                        act->slot[arg->ref.slot] = a->kw[k];
                if (k >= 0)
                        taken[k] = true;
        }
        if (m->caller.slot >= 0) {
                int k = find_kw(a, "caller");
                if (k >= 0)
                        taken[k] = true;
                act->slot[m->caller.slot] = k >= 0 && a->kw[k].t != V_NONE
                                                    ? a->kw[k]
                                                    : v_undef(j, "No caller defined");
        }
        Val more = v_dict(j);
        for (int i = 0; i < a->n_kw; i++)
                if (!taken[i]) {
                        if (m->kwargs_at.slot < 0)
                                j_fail(j, "macro '%s' takes no keyword argument '%.60s'", name,
                                       a->key[i]);
                        dict_set(j, more.m, v_text(j, a->key[i]), a->kw[i]);
                }
        if (m->kwargs_at.slot >= 0)
                act->slot[m->kwargs_at.slot] = more;
        int rest = a->n > m->list.n ? a->n - m->list.n : 0;
        if (rest && m->varargs.slot < 0)
                j_fail(j, "macro '%s' takes not more than %d argument(s)", name, m->list.n);
        if (m->varargs.slot >= 0) {
                Val l = v_list(j, V_TUPLE, (size_t)rest);
                for (int i = 0; i < rest; i++)
                        l.l->v[i] = a->v[m->list.n + i];
                act->slot[m->varargs.slot] = l;
        }
}

static Act *new_act(J *j, const Node *n, Act *up)
{
        Act *act = j_get(j, sizeof *act);
        j_step(j, (size_t)n->n_slots);
        act->up = up;
        act->slot = j_get(j, (size_t)(n->n_slots + 1) * sizeof *act->slot);
        return act;
}

Val call_macro(J *j, const Func *f, const Args *a)
{
        const Node *m = f->macro;
        Act *was = j->act, *act = new_act(j, m, f->act);
        Buf *out = j->buf, b = { 0 };
        j_down(j);
        macro_args(j, f, a, act);
        j->act = act;
        j->buf = &b;
        enter_scope(j, &m->scope);
        for (int i = 0; i < m->list.n; i++) {
                Val *at = &act->slot[m->list.p[i]->ref.slot];
                int k = i - (m->list.n - m->args.n);
                if (at->t == V_MISSING)
                        *at = k >= 0 ? eval(j, m->args.p[k])
                                     : v_undef(j, "parameter '%.60s' was not provided",
                                               m->list.p[i]->name);
        }
        walk_all(j, &m->body);
        j->act = was;
        j->buf = out;
        j->depth--;
        return out_str(j, &b);
}

/* loop(items) of a recursive loop. */
static Val call_loop(J *j, Val self, const Args *a)
{
        Loop *l = self.loop;
        Val x[1];
        args_take(j, a, "loop", "iterable", x);
        if (!l->node->flag)
                j_fail(j, "the loop must have the 'recursive' marker to be called recursively");
        return walk_recursive(j, l->node, l->act->up, x[0], l->depth0 + 1);
}

Val walk_recursive(J *j, const Node *n, Act *up, Val items, int depth0)
{
        Act *was = j->act;
        Buf *out = j->buf, b = { 0 };
        j_down(j);
        j->act = new_act(j, n, up);
        j->buf = &b;
        walk_loop(j, n, items, depth0);
        j->act = was;
        j->buf = out;
        j->depth--;
        return out_str(j, &b);
}

Val call_value(J *j, Val f, const Args *a)
{
        j_step(j, 1);
        if (f.t == V_UNDEF)
                j_fail(j, "%s", f.u->why);
        if (f.t == V_LOOP)
                return call_loop(j, f, a);
        if (f.t != V_FUNC)
                j_fail(j, "'%s' object is not callable", v_type(f));
        return f.f->fn ? f.f->fn(j, f.f->self, a) : call_macro(j, f.f, a);
}
