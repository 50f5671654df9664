/* jinja_walk.c: statements. */
#include <string.h>
#include "jinja.h"

static Leave walk(J *j, const Node *n);

Leave walk_all(J *j, const Nodes *l)
{
        for (int i = 0; i < l->n; i++) {
                Leave how = walk(j, l->p[i]);
                if (how != GO_ON)
                        return how;
        }
        return GO_ON;
}

static void put(J *j, Val v)
{
        size_t before = j->buf->n;
        put_str(j, j->buf, v);
        j_step(j, (j->buf->n - before) / 64);
        if ((j->out_bytes += j->buf->n - before) > MOST_OUTPUT)
                j_fail(j, "the template writes more than %d MB of text", MOST_OUTPUT >> 20);
}

/* ---- loops ---- */

/* `for x in items if test`: the items that pass; the names of the test are its own. */
static bool next_passing(J *j, Iter *it, Val *out)
{
        const Loop *l = it->state;
        const Node *n = l->node;
        Act *was = j->act;
        Iter *from = it->of.it;
        bool more;
        j->act = l->act;
        if (!it->i++)
                enter_scope(j, &n->test_scope);
        while ((more = iter_next(j, from, out))) {
                assign(j, n->args.p[0], *out);
                if (v_true(j, eval(j, n->c)))
                        break;
        }
        j->act = was;
        return more;
}

static bool peek(J *j, Loop *l)
{
        if (l->after.t == V_MISSING && !iter_next(j, l->it, &l->after))
                l->after = (Val) { .t = V_MISSING };
        return l->after.t != V_MISSING;
}

/* jinja2's LoopContext.length: what has no length is read to its end. */
static int64_t loop_length(J *j, Loop *l)
{
        if (l->length >= 0)
                return l->length;
        if (v_has_len(l->of))
                return l->length = v_len(j, l->of);
        Val rest = list_of(j, (Val) { .t = V_ITER, .it = l->it }, V_LIST);
        l->it = iter_of(j, rest);
        return l->length = (int64_t)rest.l->n + l->index0 + 1 + (l->after.t != V_MISSING);
}

static Val loop_cycle(J *j, Val self, const Args *a)
{
        if (!a->n || a->n_kw)
                j_fail(j, "no items for cycling given");
        return a->v[self.loop->index0 % a->n];
}

static Val loop_changed(J *j, Val self, const Args *a)
{
        Val now = v_list(j, V_TUPLE, (size_t)a->n);
        if (a->n_kw)
                j_fail(j, "changed takes no keyword argument");
        for (int i = 0; i < a->n; i++)
                now.l->v[i] = a->v[i];
        if (self.loop->changed.t == V_TUPLE && v_equal(j, self.loop->changed, now))
                return v_bool(false);
        self.loop->changed = now;
        return v_bool(true);
}

Val loop_attr(J *j, Loop *l, const char *name, bool *found)
{
        Val self = { .t = V_LOOP, .loop = l };
        *found = true;
        if (!strcmp(name, "index0"))
                return v_int(l->index0);
        if (!strcmp(name, "index"))
                return v_int(l->index0 + 1);
        if (!strcmp(name, "first"))
                return v_bool(l->index0 == 0);
        if (!strcmp(name, "last"))
                return v_bool(!peek(j, l));
        if (!strcmp(name, "length"))
                return v_int(loop_length(j, l));
        if (!strcmp(name, "revindex"))
                return v_int(loop_length(j, l) - l->index0);
        if (!strcmp(name, "revindex0"))
                return v_int(loop_length(j, l) - l->index0 - 1);
        if (!strcmp(name, "previtem"))
                return l->index0 ? l->before : v_undef(j, "there is no previous item");
        if (!strcmp(name, "nextitem"))
                return peek(j, l) ? l->after : v_undef(j, "there is no next item");
        if (!strcmp(name, "depth"))
                return v_int(l->depth0 + 1);
        if (!strcmp(name, "depth0"))
                return v_int(l->depth0);
        if (!strcmp(name, "cycle"))
                return v_func(j, "cycle", loop_cycle, self);
        if (!strcmp(name, "changed"))
                return v_func(j, "changed", loop_changed, self);
        *found = false;
        return v_none();
}

static bool loop_next(J *j, Loop *l, Val *x)
{
        if (l->after.t != V_MISSING) {
                *x = l->after;
                l->after = (Val) { .t = V_MISSING };
        } else if (!iter_next(j, l->it, x)) {
                return false;
        }
        l->index0++;
        l->before = l->current;
        l->current = *x;
        return true;
}

/* A body that was left by break or continue does not count for else: jinja2 marks at its end. */
Leave walk_loop(J *j, const Node *n, Val items, int depth0)
{
        Loop *l = j_get(j, sizeof *l);
        bool none = true;
        Val x;
        *l = (Loop) {
                .of = items, .index0 = -1, .length = -1, .depth0 = depth0, .node = n, .act = j->act
        };
        l->it = iter_of(j, items);
        if (n->c) {
                l->of = v_iter(j, next_passing, (Val) { .t = V_ITER, .it = l->it }, l);
                l->it = l->of.it;
        }
        if (n->ref.slot >= 0)
                j->act->slot[n->ref.slot] = (Val) { .t = V_LOOP, .loop = l };
        while (loop_next(j, l, &x)) {
                j_step(j, 1);
                assign(j, n->a, x);
                enter_scope(j, &n->scope);
                Leave how = walk_all(j, &n->body);
                if (how == BREAK)
                        break;
                none &= how == CONTINUE;
        }
        if (!none || !n->other.n)
                return GO_ON;
        enter_scope(j, &n->else_scope);
        return walk_all(j, &n->other);
}

static Leave walk_for(J *j, const Node *n)
{
        Val items = eval(j, n->b);
        if (!n->flag)
                return walk_loop(j, n, items, 0);
        put(j, walk_recursive(j, n, j->act, items, 0));
        return GO_ON;
}

/* ---- the others ---- */

static Leave walk_if(J *j, const Node *n)
{
        if (v_true(j, eval(j, n->a)))
                return walk_all(j, &n->body);
        for (int i = 0; i < n->list.n; i++)
                if (v_true(j, eval(j, n->list.p[i]->a)))
                        return walk_all(j, &n->list.p[i]->body);
        return walk_all(j, &n->other);
}

static Val function_value(J *j, const Node *n)
{
        Func *f = j_get(j, sizeof *f);
        *f = (Func) { .name = n->t == N_MACRO ? n->name : "caller", .macro = n, .act = j->act };
        return (Val) { .t = V_FUNC, .f = f };
}

/* {% set x %}, {% filter f %}: the body is text first. */
static Leave walk_captured(J *j, const Node *n)
{
        Buf *out = j->buf, b = { 0 };
        enter_scope(j, &n->scope);
        j->buf = &b;
        Leave how = walk_all(j, &n->body);
        j->buf = out;
        if (how != GO_ON)
                return how;
        Val text = out_str(j, &b);
        if (n->t == N_FILTERBLOCK)
                put(j, eval_block_filter(j, n->a, text));
        else
                assign(j, n->a, n->b ? eval_block_filter(j, n->b, text) : text);
        return GO_ON;
}

static Leave walk_with(J *j, const Node *n)
{
        enter_scope(j, &n->scope);
        for (int i = 0; i < n->list.n; i++)
                assign(j, n->list.p[i], eval(j, n->args.p[i]));
        return walk_all(j, &n->body);
}

/* Where the answers lie in the text, as transformers notes it. */
static void walk_generation(J *j, const Node *n)
{
        Val f = function_value(j, n), text = call_macro(j, f.f, &(Args) { 0 });
        if (j->n_spans == j->cap_spans) {
                j->span = j_grow(j, j->span, (size_t)j->n_spans * 2 * sizeof *j->span,
                                 (size_t)(j->cap_spans + 16) * 2 * sizeof *j->span);
                j->cap_spans = j->cap_spans * 2 + 16;
        }
        j->span[2 * j->n_spans] = j->text.n;
        j->span[2 * j->n_spans++ + 1] = j->text.n + text.s->n;
        put(j, text);
}

static Leave walk_statement(J *j, const Node *n)
{
        switch (n->t) {
        case N_DATA: put(j, n->val); return GO_ON;
        case N_OUTPUT:
                for (int i = 0; i < n->body.n; i++)
                        put(j, eval(j, n->body.p[i]));
                return GO_ON;
        case N_FOR: return walk_for(j, n);
        case N_IF: return walk_if(j, n);
        case N_SET: assign_set(j, n); return GO_ON;
        case N_MACRO: j->act->slot[n->ref.slot] = function_value(j, n); return GO_ON;
        case N_CALLBLOCK: put(j, eval_call(j, n->a, function_value(j, n))); return GO_ON;
        case N_SETBLOCK:
        case N_FILTERBLOCK: return walk_captured(j, n);
        case N_WITH: return walk_with(j, n);
        case N_GENERATION: walk_generation(j, n); return GO_ON;
        case N_BREAK: return BREAK;
        default: return CONTINUE;
        }
}

static Leave walk(J *j, const Node *n)
{
        j_step(j, 1);
        j_down(j);
        j->line = n->line;
        j->col = n->col;
        Leave how = walk_statement(j, n);
        j->depth--;
        return how;
}

void jinja_walk(J *j, const Node *root)
{
        Act act = { NULL, j_get(j, (size_t)(root->n_slots + 1) * sizeof(Val)) };
        j->act = &act;
        j->buf = &j->text;
        enter_scope(j, &root->scope);
        walk_all(j, &root->body);
        j->act = NULL;
}
