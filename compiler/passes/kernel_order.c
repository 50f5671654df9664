/* kernel_order.c: tracks which kernel waits for which (kernel_order.h).
 *
 * A unit is a kernel, or a node that is in no kernel.  Units are kept in a topological order
 * (Pearce and Kelly, A dynamic topological sort algorithm, 2006), at first that of the nodes.  When
 * two units merge, the earlier one moves behind everything that the later one waits for.  The units
 * between them that wait for the earlier one move with it.  "Does a unit wait for a kernel?" looks
 * only at the units between the two.  If these are far apart, a path that covers the whole graph
 * answers first. */
#include "kernel_order.h"
#include <stdlib.h>
#include <string.h>

static int unit(const KernelOrder *o, Ref r)
{
        const int id = o->g->node[r].group;
        return id ? o->g->n_nodes + id : r;
}

static Ref first_of(const KernelOrder *o, int u)
{
        return u > o->g->n_nodes ? o->first[u - o->g->n_nodes] : u;
}
static Ref next_of(const KernelOrder *o, int u, Ref r)
{
        return u > o->g->n_nodes ? o->next[r] : 0;
}

/* A longest path v1, v2 ...  up: the last one of it that r waits for, or is; down: the first that
 * waits for r, or is r. */
static void find_path(KernelOrder *o, Arena *a)
{
        const Graph *g = o->g;
        int *depth = arena_alloc(a, (size_t)g->n_nodes * sizeof *depth);
        Ref deepest = 0;
        for (Ref r = 1; r < g->n_nodes; r++) {
                depth[r] = 1;
                for (int i = 0; i < g->node[r].n_in; i++)
                        if (depth[g->node[r].in[i]] >= depth[r])
                                depth[r] = depth[g->node[r].in[i]] + 1;
                if (depth[r] > depth[deepest])
                        deepest = r;
        }
        for (Ref r = 1; r < g->n_nodes; r++)
                o->down[r] = g->n_nodes;
        for (Ref r = deepest; r;) {
                Ref in = 0;
                o->up[r] = o->down[r] = depth[r];
                for (int i = 0; i < g->node[r].n_in && !in; i++)
                        if (depth[g->node[r].in[i]] == depth[r] - 1)
                                in = g->node[r].in[i];
                r = in;
        }
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; i < g->node[r].n_in; i++)
                        if (o->up[g->node[r].in[i]] > o->up[r])
                                o->up[r] = o->up[g->node[r].in[i]];
        for (Ref r = g->n_nodes - 1; r > 0; r--)
                for (int i = 0; i < g->node[r].n_in; i++)
                        if (o->down[r] < o->down[g->node[r].in[i]])
                                o->down[g->node[r].in[i]] = o->down[r];
}

static int *ints(Arena *a, size_t n) { return arena_alloc(a, n * sizeof(int)); }

KernelOrder *order_new(Graph *g, Arena *a)
{
        KernelOrder *o = arena_alloc(a, sizeof *o);
        const size_t n = (size_t)g->n_nodes;
        Ref *accum = ints(a, n);
        o->g = g;
        o->base = ints(a, n), o->before = ints(a, n), o->after = ints(a, n), o->next = ints(a, n);
        o->first = ints(a, n + 1), o->least = ints(a, n + 1);
        o->ord = ints(a, 2 * n + 2), o->mark = ints(a, 2 * n + 2), o->stack = ints(a, 2 * n + 2),
        o->at = ints(a, n);
        o->up = ints(a, n), o->down = ints(a, n), o->kernel_down = ints(a, n + 1);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *x = &g->node[r];
                o->base[r] = op_is(x->op, FACT_FOLLOWED) ? o->base[x->in[0]] : r;
                o->ord[r] = o->at[r] = r;
                if (x->op == OP_ACCUM) {
                        if ((o->before[r] = accum[x->in[0]]))
                                o->after[o->before[r]] = r;
                        accum[x->in[0]] = r;
                }
        }
        o->readers = graph_readers(g, NULL, a);
        o->base_readers = graph_readers(g, o->base, a);
        find_path(o, a);
        return o;
}

/* down: the first on that path that waits for unit `to`, or is it */
static bool waits_for(KernelOrder *o, Ref r, int to, int down)
{
        const Graph *g = o->g;
        int n = 0;
        if (unit(o, r) == to || o->up[r] >= down)
                return true;
        o->stamp++;
        o->stack[n++] = unit(o, r);
        o->mark[unit(o, r)] = o->stamp;
        while (n) {
                const int u = o->stack[--n];
                o->steps++;
                if (o->ord[u] < o->ord[to])
                        continue;
                for (Ref m = first_of(o, u); m; m = next_of(o, u, m)) {
                        if (o->up[m] >= down)
                                return true;
                        for (int i = 0; i <= g->node[m].n_in; i++) {
                                const Ref in = i < g->node[m].n_in ? g->node[m].in[i]
                                                                   : o->before[m];
                                const int x = in ? unit(o, in) : 0;
                                if (x == to)
                                        return true;
                                if (x && o->mark[x] != o->stamp) {
                                        o->mark[x] = o->stamp;
                                        o->stack[n++] = x;
                                }
                        }
                }
        }
        return false;
}

bool order_waits(KernelOrder *o, Ref r, int goal)
{
        return o->first[goal] && waits_for(o, r, o->g->n_nodes + goal, o->kernel_down[goal]);
}

bool order_waits_node(KernelOrder *o, Ref r, Ref goal)
{
        return waits_for(o, r, goal, o->down[goal]);
}

static int last_input(const KernelOrder *o, int u, int but)
{
        const Graph *g = o->g;
        int last = 0;
        for (Ref m = first_of(o, u); m; m = next_of(o, u, m))
                for (int i = 0; i <= g->node[m].n_in; i++) {
                        const Ref in = i < g->node[m].n_in ? g->node[m].in[i] : o->before[m];
                        const int x = in ? unit(o, in) : 0;
                        if (x && x != u && x != but && o->ord[x] > last)
                                last = o->ord[x];
                }
        return last;
}

static void mark_unit(KernelOrder *o, Ref r, int last, int *n)
{
        const int x = unit(o, r);
        if (o->mark[x] != o->stamp && o->ord[x] <= last) {
                o->mark[x] = o->stamp;
                o->stack[(*n)++] = x;
        }
}

/* Unit u, and those up to place `last` that wait for it, go behind that place. */
static void move_behind(KernelOrder *o, int u, int last)
{
        const int from = o->ord[u];
        int n = 0, to = from, moved = 0;
        o->stamp++;
        o->stack[n++] = u;
        o->mark[u] = o->stamp;
        while (n) {
                const int x = o->stack[--n];
                o->steps++;
                for (Ref m = first_of(o, x); m; m = next_of(o, x, m)) {
                        for (int i = o->readers.start[m]; i < o->readers.start[m + 1]; i++)
                                mark_unit(o, o->readers.reader[i], last, &n);
                        if (o->after[m])
                                mark_unit(o, o->after[m], last, &n);
                }
        }
        for (int p = from; p <= last; p++) {
                const int x = o->at[p];
                o->steps++;
                if (!x)
                        continue;
                if (o->mark[x] == o->stamp) {
                        o->stack[moved++] = x;
                } else {
                        o->at[to] = x;
                        o->ord[x] = to++;
                }
        }
        for (int i = 0; i < moved; i++) {
                o->at[to] = o->stack[i];
                o->ord[o->stack[i]] = to++;
        }
        while (to <= last)
                o->at[to++] = 0;
}

/* Units a and b are one from now on, at the place of either; returns that place. */
static int unite(KernelOrder *o, int a, int b)
{
        const int low = o->ord[a] < o->ord[b] ? a : b, high = low == a ? b : a,
                  last = last_input(o, high, low);
        if (last > o->ord[low])
                move_behind(o, low, last);
        o->at[o->ord[high]] = 0;
        return o->ord[low];
}

static void put(KernelOrder *o, Ref r, int id)
{
        o->g->node[r].group = id;
        o->next[r] = o->first[id];
        o->first[id] = r;
        if (!o->least[id] || r < o->least[id])
                o->least[id] = r;
        if (!o->kernel_down[id] || o->down[r] < o->kernel_down[id])
                o->kernel_down[id] = o->down[r];
}

void order_enter(KernelOrder *o, Ref r, int id)
{
        const int u = o->g->n_nodes + id, place = o->first[id] ? unite(o, u, r) : o->ord[r];
        put(o, r, id);
        o->ord[u] = place;
        o->at[place] = u;
}

void order_merge(KernelOrder *o, int from, int to)
{
        const int place = unite(o, o->g->n_nodes + from, o->g->n_nodes + to);
        for (Ref r = o->first[from], next; r; r = next) {
                next = o->next[r];
                put(o, r, to);
        }
        o->first[from] = 0;
        o->ord[o->g->n_nodes + to] = place;
        o->at[place] = o->g->n_nodes + to;
}
