/* group_order.c: orders the groups of a graph so that each kernel runs after those it depends on.
 *
 *      group 1 --> group 3 --> group 2         an arrow: is read by
 *      order: 1, 3, 2
 *
 * A group waits for all groups whose values it reads, also through views, and for the group that
 * adds to the same gradient before it. */
#include "group.h"

/* Kernels to come, least number first. */
typedef struct Heap {
        int *id, n;
} Heap;

static void heap_add(Heap *h, int id)
{
        int i = h->n++;
        for (; i && h->id[(i - 1) / 2] > id; i = (i - 1) / 2)
                h->id[i] = h->id[(i - 1) / 2];
        h->id[i] = id;
}

static int heap_take(Heap *h)
{
        const int least = h->id[0], last = h->id[--h->n];
        int i = 0;
        for (int k; (k = 2 * i + 1) < h->n; i = k) {
                k += k + 1 < h->n && h->id[k + 1] < h->id[k];
                if (h->id[k] >= last)
                        break;
                h->id[i] = h->id[k];
        }
        h->id[i] = last;
        return least;
}

typedef struct Edge {
        int to;
        struct Edge *next;
} Edge;
typedef struct Lists {
        Graph *g;
        Arena *a;
        Edge **readers;
        int *waits, *seen, *mark, stamp;
        Ref *stack;
} Lists;

/* Kernels that kernel id reads, each once. */
static void find_waits(Lists *l, const Group *gr, const Ref *before, int id)
{
        int top = 0;
        l->stamp++;
        for (int k = 0; k < gr->n_nodes; k++) {
                const Node *x = NODE(l->g, gr->node[k]);
                for (int j = -1; j < x->n_in; j++) {
                        Ref r = j < 0 ? before[gr->node[k]] : x->in[j];
                        if (r && l->mark[r] != l->stamp)
                                l->mark[r] = l->stamp, l->stack[top++] = r;
                }
        }
        while (top) {
                const Node *x = NODE(l->g, l->stack[--top]);
                if (!x->group && op_info[x->op].cls == CLASS_VIEW)
                        for (int j = 0; j < x->n_in; j++)
                                if (l->mark[x->in[j]] != l->stamp)
                                        l->mark[x->in[j]] = l->stamp, l->stack[top++] = x->in[j];
                if (!x->group || x->group == id || l->seen[x->group] == id)
                        continue;
                Edge *e = arena_alloc(l->a, sizeof *e);
                l->seen[x->group] = id;
                *e = (Edge) { id, l->readers[x->group] };
                l->readers[x->group] = e;
                l->waits[id]++;
        }
}

/* A group runs when all it reads has run; the groups are gone through by number again and again,
 * and each time those run that can. */
int group_list(Graph *g, Arena *a, Group **out)
{
        int n = 0, kept = 0, groups = 0;
        for (Ref r = 1; r < g->n_nodes; r++)
                if (NODE(g, r)->group > n)
                        n = NODE(g, r)->group;
        const size_t m = (size_t)n + 1, nodes = (size_t)g->n_nodes;
        Group *all = arena_alloc(a, m * sizeof *all), *list = arena_alloc(a, m * sizeof *list);
        Ref *accum = arena_alloc(a, nodes * sizeof *accum),
            *before = arena_alloc(a, nodes * sizeof *before);
        for (Ref r = 1; r < g->n_nodes; r++) {
                int id = NODE(g, r)->group;
                if (NODE(g, r)->op == OP_ACCUM) {
                        before[r] = accum[NODE(g, r)->in[0]];
                        accum[NODE(g, r)->in[0]] = r;
                }
                if (!id)
                        continue;
                all[id].id = id;
                all[id].n_nodes++;
        }
        for (int i = 1; i <= n; i++) {
                groups += all[i].n_nodes != 0;
                all[i].node = arena_alloc(a, (size_t)(all[i].n_nodes + 1) * sizeof(Ref));
                all[i].n_nodes = 0;
        }
        for (Ref r = 1; r < g->n_nodes; r++) {
                int id = NODE(g, r)->group;
                if (!id)
                        continue;
                all[id].node[all[id].n_nodes++] = r;
                if (!is_member(g, r) && !is_virtual(g, r) &&
                    op_info[NODE(g, r)->op].cls != CLASS_VIEW)
                        all[id].anchor = r;
        }
        int *side = arena_alloc(a, nodes * sizeof *side);
        bool *in = arena_alloc(a, nodes);
        Lists l = { .g = g, .a = a };
        l.readers = arena_alloc(a, m * sizeof *l.readers);
        l.waits = arena_alloc(a, m * sizeof *l.waits), l.seen = arena_alloc(a, m * sizeof *l.seen);
        l.mark = arena_alloc(a, nodes * sizeof *l.mark),
        l.stack = arena_alloc(a, nodes * sizeof *l.stack);
        Heap now = { arena_alloc(a, m * sizeof(int)), 0 },
             later = { arena_alloc(a, m * sizeof(int)), 0 };
        for (int i = 1; i <= n; i++) {
                find_waits(&l, &all[i], before, i);
                if (all[i].n_nodes && !l.waits[i])
                        heap_add(&now, i);
        }
        while (now.n) {
                const int id = heap_take(&now);
                list[kept] = all[id];
                group_fill(g, &list[kept++], a, side, in);
                for (const Edge *e = l.readers[id]; e; e = e->next)
                        if (!--l.waits[e->to])
                                heap_add(e->to > id ? &now : &later, e->to);
                if (!now.n) {
                        const Heap empty = now;
                        now = later;
                        later = (Heap) { empty.id, 0 };
                }
        }
        if (kept < groups)
                error_internal((Loc) { 0 }, "fused kernels depend on each other in a circle");
        *out = list;
        return kept;
}
