/* order.c: in which order kernels run.
 * needs: groups.   keeps: everything; only renumbers groups, and launches follow the numbers.
 *
 * The written order keeps related kernels together.  A greedy one, that among the
 * kernels that are ready takes the one after which the fewest bytes stay alive, often
 * needs less memory at its peak: it is taken where it does. */
#include "../compiler.h"
#include "../../codegen/codegen.h"
#include <stdlib.h>
#include <string.h>

typedef struct Kern { int *reads, n_reads, *deps, n_deps; int64_t makes; } Kern;       /* groups; bytes of results */

typedef struct Order { Graph *g; Kern *k; int n; int *readers; } Order;

static int64_t bytes(const Graph *g, Ref r)
{
        Sizes s = g->sizes;
        for (int i = 0; i < N_SYM; i++)
                s.v[i] = s.v[i] ? s.v[i] : 64;
        return type_count(&g->node[r].type, &s) * dt_size[g->node[r].type.dt];
}

static void add(int **list, int *n, int x, Arena *a)
{
        for (int i = 0; i < *n; i++)
                if ((*list)[i] == x)
                        return;
        if ((*n & (*n - 1)) == 0) {                     /* grow at powers of two */
                int *more = arena_alloc(a, (size_t)(*n ? *n * 2 : 1) * sizeof *more);
                if (*n)
                        memcpy(more, *list, (size_t)*n * sizeof *more);
                *list = more;
        }
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

/* list: out; greedy or as written. */
static void schedule(Order *o, bool greedy, int *list)
{
        int *left = mem_new((size_t)(o->n + 1) * sizeof *left);
        bool *done = mem_new((size_t)o->n + 1);
        memcpy(left, o->readers, (size_t)(o->n + 1) * sizeof *left);
        for (int at = 0; at < o->n; at++) {
                int best = 0;
                int64_t least = 0;
                for (int id = 1; id <= o->n; id++) {
                        const Kern *k = &o->k[id];
                        bool ready = !done[id];
                        for (int j = 0; j < k->n_deps && ready; j++)
                                ready = done[k->deps[j]];
                        if (!ready)
                                continue;
                        int64_t grows = k->makes;
                        for (int j = 0; j < k->n_reads; j++)
                                if (left[k->reads[j]] == 1)
                                        grows -= o->k[k->reads[j]].makes;
                        if (!best || (greedy && grows < least)) {
                                best = id;
                                least = grows;
                        }
                        if (!greedy)
                                break;
                }
                if (!best)
                        abort();                        /* a circle: fusion never makes one */
                done[best] = true;
                list[at] = best;
                for (int j = 0; j < o->k[best].n_reads; j++)
                        left[o->k[best].reads[j]]--;
        }
        free(left);
        free(done);
}

void order(Graph *g, Arena *tmp)
{
        Order o = { .g = g };
        Ref *accum = arena_alloc(tmp, (size_t)g->n_nodes * sizeof *accum);
        for (Ref r = 1; r < g->n_nodes; r++)
                o.n = NODE(g, r)->group > o.n ? NODE(g, r)->group : o.n;
        o.k = arena_alloc(tmp, (size_t)(o.n + 1) * sizeof *o.k);
        o.readers = arena_alloc(tmp, (size_t)(o.n + 1) * sizeof *o.readers);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                int id = n->group;
                if (!id)
                        continue;
                if (n->op == OP_ACCUM) {                /* those of one parameter keep their order */
                        Ref before = accum[n->in[0]];
                        if (before && NODE(g, before)->group != id)
                                add(&o.k[id].deps, &o.k[id].n_deps, NODE(g, before)->group, tmp);
                        accum[n->in[0]] = r;
                } else if (n->op != OP_APPEND) {
                        bool outside = false;
                        for (Ref u = r + 1; u < g->n_nodes && !outside; u++)
                                for (int i = 0; i < NODE(g, u)->n_in; i++)
                                        outside |= NODE(g, u)->in[i] == r && NODE(g, u)->group != id;
                        if (outside)
                                o.k[id].makes += bytes(g, r);
                }
                for (int i = 0; i < n->n_in; i++)
                        sources(&o, n->in[i], id, tmp);
        }
        for (int id = 1; id <= o.n; id++)
                for (int j = 0; j < o.k[id].n_reads; j++)
                        o.readers[o.k[id].reads[j]]++;
        int *plain = arena_alloc(tmp, (size_t)(o.n + 1) * sizeof *plain),
            *greedy = arena_alloc(tmp, (size_t)(o.n + 1) * sizeof *greedy);
        schedule(&o, false, plain);
        schedule(&o, true, greedy);
        const int *list = peak_of(&o, greedy) < peak_of(&o, plain) ? greedy : plain;
        int *number = arena_alloc(tmp, (size_t)(o.n + 1) * sizeof *number);
        for (int i = 0; i < o.n; i++)
                number[list[i]] = i + 1;
        for (Ref r = 1; r < g->n_nodes; r++)
                NODE(g, r)->group = number[NODE(g, r)->group];
}
