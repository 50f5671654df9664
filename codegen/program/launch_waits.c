/* launch_waits.c: finds which launches of a program must wait for which.
 *
 * A launch waits for an earlier one that writes what it reads or writes, or that reads what it
 * writes.  Two that write different parts of a storage do not wait for each other. */
#include "program.h"
#include <string.h>

static Ref storage(const Emit *e, Ref r)
{
        while (e->place && e->place[r].whole)
                r = e->place[r].whole;
        return r;
}

bool same_storage(const Emit *e, const Slot *a, const Slot *b)
{
        if (a->kind != b->kind)
                return false;
        switch (a->kind) {
        case SLOT_NODE: return storage(e, a->id) == storage(e, b->id);
        case SLOT_GRAD: return a->id == b->id;
        case SLOT_ARENA: return !strcmp(a->arena, b->arena);
        case SLOT_WORK: {
                const char *x = e->work[a->id].keep, *y = e->work[b->id].keep;
                return a->id == b->id || (x && y && !strcmp(x, y));
        }
        default: return false; /* constants, and what the host wrote */
        }
}

static bool apart(const Slot *a, const Use *x, const Slot *b, const Use *y)
{
        bool parts = a->id == b->id && x->written && y->written && x->hi && y->hi;
        return parts && (x->hi <= y->lo || y->hi <= x->lo);
}

/* ---- who touched a storage before: its writers, and those that only read it ---- */

typedef struct Touch {
        int launch, arg;
        struct Touch *next;
} Touch;
typedef struct Touched {
        Touch *of[2];
} Touched; /* [1]: writers; the last first */
typedef struct Storages {
        Touched *node, *work, *grad;
        struct Named {
                const char *name;
                Touched t;
        } named[96];
        int n_named;
} Storages;

static Touched *named(Storages *x, const char *name)
{
        for (int i = 0; i < x->n_named; i++)
                if (!strcmp(x->named[i].name, name))
                        return &x->named[i].t;
        if (x->n_named == (int)(sizeof x->named / sizeof *x->named))
                error_internal((Loc) { 0 }, "more than %d arenas", x->n_named);
        x->named[x->n_named].name = name;
        return &x->named[x->n_named++].t;
}

/* NULL: constants, and what the host wrote. */
static Touched *touched(const Emit *e, Storages *x, const Slot *a)
{
        switch (a->kind) {
        case SLOT_NODE: return &x->node[storage(e, a->id)];
        case SLOT_GRAD: return &x->grad[a->id];
        case SLOT_ARENA: return named(x, a->arena);
        case SLOT_WORK:
                return e->work[a->id].keep
                               ? named(x, arena_fmt(e->tmp, "keep %s", e->work[a->id].keep))
                               : &x->work[a->id];
        default: return NULL;
        }
}

typedef struct Waits {
        const Emit *e;
        Arena *a;
        int **waits, *n_waits, *cap_waits, *mark; /* mark: who waits for it already */
} Waits;

static void wait_for(Waits *s, int i, const Touch *list, const Launch *l, int arg)
{
        for (const Touch *t = list; t; t = t->next) {
                const Launch *m = &s->e->launch[t->launch];
                if (s->mark[t->launch] == i || t->launch == i ||
                    apart(&l->arg[arg], &l->use[arg], &m->arg[t->arg], &m->use[t->arg]))
                        continue;
                s->mark[t->launch] = i;
                s->waits[i] = arena_grow(s->a, s->waits[i], s->n_waits[i], &s->cap_waits[i],
                                         sizeof **s->waits);
                s->waits[i][s->n_waits[i]++] = t->launch;
        }
}

void launch_waits(const Emit *e, Arena *a, int **waits, int *n_waits)
{
        const size_t n = (size_t)e->n_launch;
        Waits own = { .e = e, .a = a, .waits = waits, .n_waits = n_waits }, *s = &own;
        Storages x = { .n_named = 0 };
        const size_t nodes = (size_t)e->g->n_nodes;
        own.cap_waits = arena_alloc(a, n * sizeof *own.cap_waits);
        own.mark = arena_alloc(a, n * sizeof *own.mark);
        x.node = arena_alloc(s->a, nodes * sizeof *x.node);
        x.grad = arena_alloc(s->a, nodes * sizeof *x.grad);
        x.work = arena_alloc(s->a, ((size_t)e->n_work + 1) * sizeof *x.work);
        for (int i = 0; i < e->n_launch; i++)
                s->mark[i] = -1;
        for (int i = 0; i < e->n_launch; i++) {
                const Launch *l = &e->launch[i];
                for (int k = 0; k < l->n_args; k++) {
                        const Touched *t = touched(e, &x, &l->arg[k]);
                        if (!t)
                                continue;
                        wait_for(s, i, t->of[1], l, k);
                        if (l->use[k].written)
                                wait_for(s, i, t->of[0], l, k);
                }
                for (int k = 0; k < l->n_args; k++) {
                        Touched *t = touched(e, &x, &l->arg[k]);
                        if (!t)
                                continue;
                        Touch *one = arena_alloc(s->a, sizeof *one);
                        Touch **list = &t->of[l->use[k].written];
                        *one = (Touch) { i, k, *list };
                        *list = one;
                }
        }
}
