/* order.c: chooses the order in which kernels run.
 * needs: groups.   keeps: everything; only renumbers groups, and launches follow the numbers.
 *
 * There are two candidates.  The written order keeps related kernels together.  The greedy order
 * takes, among the kernels that are ready, the one after which the fewest bytes stay alive.  The
 * one with the lower peak of memory is used. */
#include "../compiler.h"
#include "../../codegen/lower/lower.h"
#include <stdlib.h>
#include <string.h>

/* Groups: whose results it reads, all that it waits for, who waits for it; bytes of its results. */
typedef struct Kern {
        int *reads, n_reads, *deps, n_deps, *users, n_users;
        int64_t makes;
} Kern;

typedef struct Order {
        Graph *g;
        Kern *k;
        int n;
        int *readers;
} Order;

static int64_t bytes(const Graph *g, Ref r)
{
        Sizes s = g->sizes;
        for (int i = 0; i < N_SYM; i++)
                s.v[i] = s.v[i] ? s.v[i] : 64;
        return type_count(&g->node[r].type, &s) * dt_size[g->node[r].type.dt];
}

/* Room for one more; at powers of two there is none. */
static void grow(int **list, int n, Arena *a)
{
        if (n & (n - 1))
                return;
        int *more = arena_alloc(a, (size_t)(n ? n * 2 : 1) * sizeof *more);
        if (n)
                memcpy(more, *list, (size_t)n * sizeof *more);
        *list = more;
}

static void add(int **list, int *n, int x, Arena *a)
{
        for (int i = 0; i < *n; i++)
                if ((*list)[i] == x)
                        return;
        grow(list, *n, a);
        (*list)[(*n)++] = x;
}

/* Groups that node r's value comes from, through views and concats. */
static void sources(Order *o, Ref r, int id, Arena *a)
{
        const Node *n = NODE(o->g, r);
        if (n->group && n->group != id) {
                add(&o->k[id].reads, &o->k[id].n_reads, n->group, a);
                add(&o->k[id].deps, &o->k[id].n_deps, n->group, a);
        } else if (!n->group && op_info[n->op].cls == CLASS_VIEW) {
                for (int i = 0; i < n->n_in; i++)
                        sources(o, n->in[i], id, a);
        }
}

/* Peak bytes of results alive when groups run as listed. */
static int64_t peak_of(Order *o, const int *list)
{
        int64_t alive = 0, peak = 0;
        int *left = mem_new((size_t)(o->n + 1) * sizeof *left);
        memcpy(left, o->readers, (size_t)(o->n + 1) * sizeof *left);
        for (int i = 0; i < o->n; i++) {
                const Kern *k = &o->k[list[i]];
                alive += k->makes;
                peak = alive > peak ? alive : peak;
                for (int j = 0; j < k->n_reads; j++)
                        if (--left[k->reads[j]] == 0)
                                alive -= o->k[k->reads[j]].makes;
        }
        free(left);
        return peak;
}

/* Those that are ready, and for how much each was when it was put in: least first, then by
 * number. */
typedef struct Ready {
        int64_t grows;
        int id;
} Ready;
typedef struct Heap {
        Ready *x;
        int n, cap;
} Heap;

static bool sooner(Ready a, Ready b)
{
        return a.grows != b.grows ? a.grows < b.grows : a.id < b.id;
}

static void heap_add(Heap *h, Ready r, Arena *a)
{
        h->x = arena_grow(a, h->x, h->n, &h->cap, sizeof *h->x);
        int i = h->n++;
        for (; i && sooner(r, h->x[(i - 1) / 2]); i = (i - 1) / 2)
                h->x[i] = h->x[(i - 1) / 2];
        h->x[i] = r;
}

static Ready heap_take(Heap *h)
{
        const Ready first = h->x[0], last = h->x[--h->n];
        int i = 0;
        for (int k; (k = 2 * i + 1) < h->n; i = k) {
                k += k + 1 < h->n && sooner(h->x[k + 1], h->x[k]);
                if (!sooner(h->x[k], last))
                        break;
                h->x[i] = h->x[k];
        }
        h->x[i] = last;
        return first;
}

/* What lives on when it has run, more than before; as written: nothing. */
static int64_t grows(const Order *o, int id, const int *left, bool greedy)
{
        const Kern *k = &o->k[id];
        int64_t x = greedy ? k->makes : 0;
        for (int j = 0; j < k->n_reads && greedy; j++)
                if (left[k->reads[j]] == 1)
                        x -= o->k[k->reads[j]].makes;
        return x;
}

/* list: out; greedy or as written.  What a kernel frees only gets more while it waits: it is put in
 * again each time. */
static void schedule(Order *o, bool greedy, int *list, Arena *tmp)
{
        int *left = arena_alloc(tmp, (size_t)(o->n + 1) * sizeof *left),
            *waits = arena_alloc(tmp, (size_t)(o->n + 1) * sizeof *waits);
        bool *done = arena_alloc(tmp, (size_t)o->n + 1);
        Heap h = { 0 };
        memcpy(left, o->readers, (size_t)(o->n + 1) * sizeof *left);
        for (int id = 1; id <= o->n; id++)
                if (!(waits[id] = o->k[id].n_deps))
                        heap_add(&h, (Ready) { grows(o, id, left, greedy), id }, tmp);
        for (int at = 0; at < o->n; at++) {
                Ready best;
                do {
                        if (!h.n)
                                abort(); /* a circle: fusion never makes one */
                        best = heap_take(&h);
                } while (done[best.id]);
                const Kern *k = &o->k[best.id];
                done[best.id] = true;
                list[at] = best.id;
                for (int j = 0; j < k->n_users; j++)
                        if (!--waits[k->users[j]])
                                heap_add(&h,
                                         (Ready) { grows(o, k->users[j], left, greedy),
                                                   k->users[j] },
                                         tmp);
                for (int j = 0; j < k->n_reads; j++) {
                        const Kern *from = &o->k[k->reads[j]];
                        if (--left[k->reads[j]] != 1 || !greedy)
                                continue;
                        for (int i = 0; i < from->n_users;
                             i++) /* the one that is left: if it is ready, it frees more now */
                                if (!done[from->users[i]] && !waits[from->users[i]])
                                        heap_add(&h,
                                                 (Ready) { grows(o, from->users[i], left, greedy),
                                                           from->users[i] },
                                                 tmp);
                }
        }
}

void order(Graph *g, Arena *tmp)
{
        Order o = { .g = g };
        Ref *accum = arena_alloc(tmp, (size_t)g->n_nodes * sizeof *accum);
        for (Ref r = 1; r < g->n_nodes; r++)
                o.n = NODE(g, r)->group > o.n ? NODE(g, r)->group : o.n;
        o.k = arena_alloc(tmp, (size_t)(o.n + 1) * sizeof *o.k);
        o.readers = arena_alloc(tmp, (size_t)(o.n + 1) * sizeof *o.readers);
        /* another kernel, or a view, reads it */
        bool *outside = arena_alloc(tmp, (size_t)g->n_nodes);
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; i < NODE(g, r)->n_in; i++)
                        outside[NODE(g, r)->in[i]] |= NODE(g, r)->group !=
                                                      NODE(g, NODE(g, r)->in[i])->group;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                int id = n->group;
                if (!id)
                        continue;
                if (n->op == OP_ACCUM) { /* those of one parameter keep their order */
                        Ref before = accum[n->in[0]];
                        if (before && NODE(g, before)->group != id)
                                add(&o.k[id].deps, &o.k[id].n_deps, NODE(g, before)->group, tmp);
                        accum[n->in[0]] = r;
                } else if (!op_appends(n->op)) {
                        if (outside[r])
                                o.k[id].makes += bytes(g, r);
                }
                for (int i = 0; i < n->n_in; i++)
                        sources(&o, n->in[i], id, tmp);
        }
        for (int id = 1; id <= o.n; id++) {
                for (int j = 0; j < o.k[id].n_reads; j++)
                        o.readers[o.k[id].reads[j]]++;
                for (int j = 0; j < o.k[id].n_deps; j++) {
                        Kern *k = &o.k[o.k[id].deps[j]];
                        grow(&k->users, k->n_users, tmp);
                        k->users[k->n_users++] = id;
                }
        }
        int *plain = arena_alloc(tmp, (size_t)(o.n + 1) * sizeof *plain),
            *greedy = arena_alloc(tmp, (size_t)(o.n + 1) * sizeof *greedy);
        schedule(&o, false, plain, tmp);
        schedule(&o, true, greedy, tmp);
        const int *list = peak_of(&o, greedy) < peak_of(&o, plain) ? greedy : plain;
        int *number = arena_alloc(tmp, (size_t)(o.n + 1) * sizeof *number);
        for (int i = 0; i < o.n; i++)
                number[list[i]] = i + 1;
        for (Ref r = 1; r < g->n_nodes; r++)
                NODE(g, r)->group = number[NODE(g, r)->group];
}
