/* jinja_scope.c: gives each name of a template its place, by the rules of jinja2's idtracking.py.
 *
 * A scope is a loop's body, a macro, a captured block and so on.  It knows before it runs which
 * names it stores and which it only reads.  A name gets its place in the innermost scope that meets
 * it first.  At the scope's start its value is undefined, the context's, or that of the enclosing
 * scope (Load).  So a `set` in a loop is gone after it, and a macro sees what its template sets
 * later. */
#include <string.h>
#include "jinja.h"

typedef struct Fn { /* a function: its names are slots of an Act */
        int depth, n_slots;
} Fn;

/* The names of one scope; branches of an `if` look at copies, whose names are the same places. */
typedef struct Places {
        const char **name;
        int *slot;
        int n, cap;
} Places;

typedef struct Sym {
        const char *name;
        int slot;
        bool stored;
        LoadKind load;
        struct Syms *from; /* LOAD_ALIAS: the scope that has it, and there: */
        int from_slot;
} Sym;

typedef struct Syms {
        struct Syms *up;
        Fn *fn;
        Places *places;
        Sym *s;
        int n, cap;
} Syms;

/* ---- jinja2's Symbols ---- */

static Syms syms_new(J *j, Syms *up, Fn *fn)
{
        return (Syms) { .up = up, .fn = fn, .places = j_get(j, sizeof(Places)) };
}

static Sym *own(J *j, const Syms *s, const char *name)
{
        for (int i = 0; i < s->n; i++)
                if (s->s[i].name == name) {
                        j_step(j, (size_t)i + 1);
                        return &s->s[i];
                }
        j_step(j, (size_t)s->n + 1);
        return NULL;
}

static Sym *find_ref(J *j, Syms *s, const char *name, Syms **in)
{
        for (; s; s = s->up) {
                Sym *k = own(j, s, name);
                if (k) {
                        *in = s;
                        return k;
                }
        }
        return NULL;
}

static int place_of(J *j, Syms *s, const char *name)
{
        Places *p = s->places;
        j_step(j, (size_t)p->n + 1);
        for (int i = 0; i < p->n; i++)
                if (p->name[i] == name)
                        return p->slot[i];
        if (p->n == p->cap) {
                size_t more = (size_t)p->cap + 8;
                p->name = j_grow(j, p->name, (size_t)p->n * sizeof *p->name,
                                 more * sizeof *p->name);
                p->slot = j_grow(j, p->slot, (size_t)p->n * sizeof *p->slot,
                                 more * sizeof *p->slot);
                p->cap = p->cap * 2 + 8;
        }
        p->name[p->n] = name;
        p->slot[p->n] = s->fn->n_slots++;
        return p->slot[p->n++];
}

static Sym *define(J *j, Syms *s, const char *name, LoadKind load)
{
        Sym *k = own(j, s, name);
        if (!k) {
                if (s->n == s->cap) {
                        s->s = j_grow(j, s->s, (size_t)s->n * sizeof *s->s,
                                      (size_t)(s->cap + 8) * sizeof *s->s);
                        s->cap = s->cap * 2 + 8;
                }
                k = &s->s[s->n++];
                *k = (Sym) { .name = name, .slot = place_of(j, s, name) };
        }
        k->load = load;
        return k;
}

static void alias(Sym *k, Syms *in, const Sym *outer)
{
        k->load = LOAD_ALIAS;
        k->from = in;
        k->from_slot = outer->slot;
}

static void store(J *j, Syms *s, const char *name)
{
        Sym *k = own(j, s, name), *outer;
        Syms *in;
        if (!k) {
                outer = s->up ? find_ref(j, s->up, name, &in) : NULL;
                k = define(j, s, name, LOAD_UNDEF);
                if (outer)
                        alias(k, in, outer);
        }
        k->stored = true;
}

static int declare_parameter(J *j, Syms *s, const char *name)
{
        Sym *k = define(j, s, name, LOAD_PARAM);
        k->stored = true;
        return k->slot;
}

static void load(J *j, Syms *s, const char *name)
{
        Syms *in;
        if (!find_ref(j, s, name, &in))
                define(j, s, name, LOAD_RESOLVE);
}

static Syms copy(J *j, const Syms *s)
{
        Syms c = *s;
        j_step(j, (size_t)s->n + 1);
        c.s = j_grow(j, s->s, (size_t)s->n * sizeof *s->s, sizeof *s->s);
        c.cap = s->n;
        return c;
}

/* What branches of an `if` store is, where it is not stored before, what it was outside. */
static void branch_update(J *j, Syms *s, const Syms *branch, int n)
{
        const int before = s->n;
        bool *stored = j_get(j, (size_t)before + 1);
        for (int i = 0; i < before; i++)
                stored[i] = s->s[i].stored;
        for (int b = 0; b < n; b++)
                for (int i = 0; i < branch[b].n; i++) {
                        const Sym *k = &branch[b].s[i];
                        Sym *to = define(j, s, k->name, k->load);
                        bool was = to->stored;
                        *to = *k;
                        to->stored |= was;
                }
        for (int i = 0; i < s->n; i++) {
                Syms *in;
                if (!s->s[i].stored || (i < before && stored[i]))
                        continue;
                Sym *outer = s->up ? find_ref(j, s->up, s->s[i].name, &in) : NULL;
                if (outer)
                        alias(&s->s[i], in, outer);
                else
                        s->s[i].load = LOAD_RESOLVE;
        }
}

/* ---- children, in the order of jinja2's fields ---- */

typedef void Each(J *j, Node *n, void *to);

static void all(J *j, const Nodes *l, Each *each, void *to)
{
        for (int i = 0; i < l->n; i++)
                each(j, l->p[i], to);
}

static void one(J *j, Node *n, Each *each, void *to)
{
        if (n)
                each(j, n, to);
}

static void children(J *j, Node *n, Each *each, void *to)
{
        j_step(j, 1);
        switch (n->t) {
        case N_FOR:
                one(j, n->a, each, to);
                one(j, n->b, each, to);
                all(j, &n->body, each, to);
                all(j, &n->other, each, to);
                one(j, n->c, each, to);
                return;
        case N_IF:
                one(j, n->a, each, to);
                all(j, &n->body, each, to);
                all(j, &n->list, each, to);
                all(j, &n->other, each, to);
                return;
        case N_FILTERBLOCK:
                all(j, &n->body, each, to);
                one(j, n->a, each, to);
                return;
        default:
                one(j, n->a, each, to);
                one(j, n->b, each, to);
                one(j, n->c, each, to);
                all(j, &n->list, each, to);
                all(j, &n->args, each, to);
                for (int i = 0; i < n->kwargs.n; i++)
                        one(j, n->kwargs.p[i]->a, each, to);
                one(j, n->dyn_args, each, to);
                one(j, n->dyn_kwargs, each, to);
                all(j, &n->body, each, to);
        }
}

/* find_undeclared: which of these names are read before they are anything else. */
typedef struct Wanted {
        const char *name;
        bool gone, found;
} Wanted;

static void look_for(J *j, Node *n, void *to)
{
        if (n->t == N_NAME) {
                for (Wanted *w = to; w->name; w++)
                        if (!strcmp(w->name, n->name)) {
                                w->found |= n->ctx == CTX_LOAD && !w->gone;
                                w->gone |= n->ctx != CTX_LOAD;
                        }
                return;
        }
        j_down(j);
        children(j, n, look_for, to);
        j->depth--;
}

static void no_loop(J *j, Node *n, void *to)
{
        if (n->t == N_NAME && n->ctx == CTX_STORE && !strcmp(n->name, "loop")) {
                j->line = n->line;
                j->col = n->col;
                j_fail(j, "cannot assign to the special variable loop");
        }
        j_down(j);
        children(j, n, no_loop, to);
        j->depth--;
}

/* ---- jinja2's FrameSymbolVisitor ---- */

static void visit(J *j, Node *n, void *to);

static void visit_if(J *j, Node *n, Syms *s)
{
        visit(j, n->a, s);
        Syms branch[3] = { copy(j, s), copy(j, s), copy(j, s) };
        all(j, &n->body, visit, &branch[0]);
        all(j, &n->list, visit, &branch[1]);
        all(j, &n->other, visit, &branch[2]);
        branch_update(j, s, branch, 3);
}

static void visit(J *j, Node *n, void *to)
{
        Syms *s = to;
        j_down(j);
        switch (n->t) {
        case N_NAME:
                if (n->ctx == CTX_LOAD)
                        load(j, s, n->name);
                else if (n->ctx == CTX_STORE)
                        store(j, s, n->name);
                else
                        declare_parameter(j, s, n->name);
                break;
        case N_NSREF: load(j, s, n->name); break;
        case N_IF: visit_if(j, n, s); break;
        case N_MACRO: store(j, s, n->name); break;
        case N_SET:
                visit(j, n->b, s);
                visit(j, n->a, s);
                break;
        case N_FOR: visit(j, n->b, s); break;
        case N_CALLBLOCK:
        case N_FILTERBLOCK:
        case N_SETBLOCK: visit(j, n->a, s); break;
        case N_WITH: all(j, &n->args, visit, s); break;
        case N_GENERATION: break;
        default: children(j, n, visit, s);
        }
        j->depth--;
}

static void visit_param(J *j, Node *n, void *to)
{
        if (n->t == N_NAME)
                declare_parameter(j, to, n->name);
        else
                children(j, n, visit_param, to);
}

/* ---- places into the tree, scope by scope, as compiler.py goes ---- */

typedef struct Frame {
        Syms *s;
        bool soft; /* an unknown filter is an error when it is used, not before */
} Frame;

static void place(J *j, Node *n, void *to);

static void set_ref(J *j, Node *n, Syms *s)
{
        Syms *in;
        Sym *k = find_ref(j, s, n->name, &in);
        if (!k) {
                j->line = n->line;
                j->col = n->col;
                j_fail(j, "the name %s is not known to its block", n->name);
        }
        n->ref = (Ref) { s->fn->depth - in->fn->depth, k->slot };
}

static Loads loads_of(J *j, const Syms *s)
{
        Loads l = { j_get(j, (size_t)(s->n + 1) * sizeof(Load)), 0 };
        for (int i = 0; i < s->n; i++) {
                const Sym *k = &s->s[i];
                if (k->load == LOAD_PARAM || k->load == LOAD_NONE)
                        continue;
                l.load[l.n++] = (Load) { k->load, k->slot, k->name,
                                         k->load == LOAD_ALIAS
                                                 ? (Ref) { s->fn->depth - k->from->fn->depth,
                                                           k->from_slot }
                                                 : (Ref) { 0, 0 } };
        }
        return l;
}

static void known(J *j, const Node *n, bool soft)
{
        bool filter = n->t == N_FILTER;
        if (soft || (filter ? filter_find(n->name) : test_find(n->name)))
                return;
        j->line = n->line;
        j->col = n->col;
        j_fail(j, "no %s is called %s", filter ? "filter" : "test", n->name);
}

static Node *clone_target(J *j, const Node *n)
{
        Node *c = j_copy(j, n, sizeof *n);
        c->list.p = j_get(j, (size_t)(n->list.n + 1) * sizeof *c->list.p);
        for (int i = 0; i < n->list.n; i++)
                c->list.p[i] = clone_target(j, n->list.p[i]);
        return c;
}

static void place_for(J *j, Node *n, Frame *f)
{
        Fn inner = { f->s->fn->depth + 1, 0 }, *fn = n->flag ? &inner : f->s->fn;
        Syms body = syms_new(j, f->s, fn), other = syms_new(j, f->s, fn),
             test = syms_new(j, f->s, fn);
        Wanted loop[2] = { { .name = "loop" } };
        all(j, &n->body, look_for, loop);
        n->ref.slot = -1;
        no_loop(j, n, NULL);
        if ((n->flag || loop->found) && j->special[NAME_LOOP])
                n->ref.slot = declare_parameter(j, &body, j->special[NAME_LOOP]);
        visit_param(j, n->a, &body);
        all(j, &n->body, visit, &body);
        all(j, &n->other, visit, &other);
        place(j, n->b, f);
        if (n->c) {
                Frame in = { &test, false };
                visit_param(j, n->a, &test);
                visit(j, n->c, &test);
                nodes_add(&(Parser) { .j = j }, &n->args, clone_target(j, n->a));
                place(j, n->args.p[0], &in);
                place(j, n->c, &in);
                n->test_scope = loads_of(j, &test);
        }
        Frame in = { &body, false }, els = { &other, false };
        place(j, n->a, &in);
        n->scope = loads_of(j, &body);
        all(j, &n->body, place, &in);
        n->else_scope = loads_of(j, &other);
        all(j, &n->other, place, &els);
        n->n_slots = inner.n_slots;
}

/* A macro, the caller of a {% call %}, the body of a {% generation %}. */
static void place_function(J *j, Node *n, Frame *f)
{
        Fn fn = { f->s->fn->depth + 1, 0 };
        Syms s = syms_new(j, f->s, &fn);
        Wanted special[4] = { { .name = "caller" }, { .name = "kwargs" }, { .name = "varargs" } };
        Ref *at[3] = { &n->caller, &n->kwargs_at, &n->varargs };
        all(j, &n->list, visit, &s);
        all(j, &n->args, visit, &s);
        all(j, &n->body, visit, &s);
        all(j, &n->body, look_for, special);
        for (int k = 0; k < 3; k++) {
                int arg = -1;
                at[k]->slot = -1;
                for (int i = 0; i < n->list.n; i++)
                        if (!strcmp(n->list.p[i]->name, special[k].name))
                                arg = i;
                if (!special[k].found)
                        continue;
                if (arg >= 0) {
                        if (k == 0 && n->list.n - arg > n->args.n) {
                                j->line = n->line;
                                j->col = n->col;
                                j_fail(j, "the special parameter caller needs a default");
                        }
                        if (k == 0)
                                at[k]->slot = -2; /* among the parameters */
                        continue;
                }
                at[k]->slot = declare_parameter(j, &s, j->special[NAME_CALLER + k]);
        }
        Frame in = { &s, false };
        all(j, &n->list, place, &in);
        n->scope = loads_of(j, &s);
        all(j, &n->args, place, &in);
        all(j, &n->body, place, &in);
        n->n_slots = fn.n_slots;
        if (n->t == N_MACRO)
                set_ref(j, n, f->s);
        if (n->t == N_CALLBLOCK)
                place(j, n->a, f);
}

/* {% filter %}, {% set %} with a body, {% with %}. */
static void place_block(J *j, Node *n, Frame *f)
{
        Syms s = syms_new(j, f->s, f->s->fn);
        Frame in = { &s, false };
        if (n->t == N_WITH)
                all(j, &n->list, visit, &s);
        all(j, &n->body, visit, &s);
        if (n->t == N_FILTERBLOCK)
                visit(j, n->a, &s);
        n->scope = loads_of(j, &s);
        all(j, &n->list, place, &in);
        all(j, &n->args, place, f);
        all(j, &n->body, place, &in);
        if (n->t == N_FILTERBLOCK)
                place(j, n->a, &in);
        if (n->t == N_SETBLOCK) {
                place(j, n->a, f);
                if (n->b)
                        place(j, n->b, &in);
        }
}

static void place(J *j, Node *n, void *to)
{
        Frame *f = to, soft = { f->s, true };
        j_down(j);
        switch (n->t) {
        case N_NAME:
        case N_NSREF: set_ref(j, n, f->s); break;
        case N_FOR: place_for(j, n, f); break;
        case N_MACRO:
        case N_CALLBLOCK:
        case N_GENERATION: place_function(j, n, f); break;
        case N_FILTERBLOCK:
        case N_SETBLOCK:
        case N_WITH: place_block(j, n, f); break;
        case N_IF:
        case N_COND: children(j, n, place, &soft); break;
        case N_FILTER:
        case N_TEST:
                known(j, n, f->soft);
                /* fall through */
        default: children(j, n, place, f);
        }
        j->depth--;
}

void jinja_scope(J *j, Node *root)
{
        Fn fn = { 0, 0 };
        Syms s = syms_new(j, NULL, &fn);
        Frame f = { &s, false };
        all(j, &root->body, visit, &s);
        root->scope = loads_of(j, &s);
        all(j, &root->body, place, &f);
        root->n_slots = fn.n_slots;
}
