/* graph.c: builds and rewrites graphs. */
#include "ir.h"
#include <stdlib.h>
#include <string.h>

Graph *graph_new(const char *name)
{
        Arena *a = arena_new();
        Graph *g = arena_alloc(a, sizeof *g);
        g->arena = a;
        g->name = arena_str(a, name);
        g->n_nodes = 1;
        g->cap = 256;
        g->node = arena_alloc(a, (size_t)g->cap * sizeof *g->node);
        g->next_id = 1;
        return g;
}

void graph_free(Graph *g)
{
        if (g)
                arena_free(g->arena);
}

static Node *grow(Graph *g)
{
        g->node = arena_grow(g->arena, g->node, g->n_nodes, &g->cap, sizeof *g->node);
        return &g->node[g->n_nodes];
}

unsigned hash_name(const char *name)
{
        unsigned h = 2166136261u;
        for (const char *c = name; *c; c++)
                h = (h ^ (unsigned char)*c) * 16777619u;
        return h;
}

/* ---- nodes by name: an index of those up to n_indexed, made when it is asked for ---- */

static NodeName *find_slot(const Graph *g, const char *name)
{
        unsigned h = hash_name(name);
        while (g->index[h &= g->cap_index - 1].name && strcmp(g->index[h].name, name))
                h++;
        return &g->index[h];
}

static bool holds(const Graph *g, const NodeName *s)
{
        return s->name && s->ref < g->n_nodes && !strcmp(g->node[s->ref].name, s->name);
}

static void index_node(Graph *g, Ref r)
{
        if (g->n_index * 2 >= g->cap_index) {
                const NodeName *old = g->index;
                const unsigned cap = g->cap_index;
                g->cap_index = cap ? cap * 2 : 512;
                g->index = arena_alloc(g->arena, g->cap_index * sizeof *g->index);
                for (unsigned i = 0; i < cap; i++)
                        if (old[i].name)
                                *find_slot(g, old[i].name) = old[i];
        }
        NodeName *s = find_slot(g, g->node[r].name);
        g->n_index += !s->name;
        if (!holds(g, s)) /* the first of that name */
                *s = (NodeName) { g->node[r].name, r };
}

Ref graph_find(const Graph *from, const char *name)
{
        Graph *g = (Graph *)from;
        for (g->n_indexed = g->n_indexed ? g->n_indexed : 1; g->n_indexed < g->n_nodes;
             g->n_indexed++)
                index_node(g, g->n_indexed);
        const NodeName *s = g->cap_index ? find_slot(g, name) : NULL;
        return s && holds(g, s) ? s->ref : 0;
}

void graph_pop(Graph *g)
{
        g->n_nodes--;
        g->n_indexed = g->n_indexed < g->n_nodes ? g->n_indexed : g->n_nodes;
}

void graph_rename(Graph *g, Ref r, const char *name)
{
        g->node[r].name = name;
        if (r < g->n_indexed)
                index_node(g, r);
}

/* ---- names in use: a table, made when it is asked for ---- */

/* The place of a name in the table. */
static TakenName *taken_at(const Graph *g, const char *name, unsigned h)
{
        unsigned at = h & (g->cap_taken - 1);
        while (g->taken[at].name &&
               (g->taken[at].hash != h || strcmp(g->taken[at].name, name) != 0))
                at = (at + 1) & (g->cap_taken - 1);
        return &g->taken[at];
}

static void put_name(Graph *g, const char *name)
{
        if (g->n_taken * 2 >= g->cap_taken) {
                const TakenName *old = g->taken;
                unsigned cap = g->cap_taken;
                g->cap_taken = cap ? cap * 2 : 512;
                g->taken = arena_alloc(g->arena, g->cap_taken * sizeof *g->taken);
                for (unsigned i = 0; i < cap; i++)
                        if (old[i].name)
                                *taken_at(g, old[i].name, old[i].hash) = old[i];
        }
        const unsigned h = hash_name(name);
        TakenName *t = taken_at(g, name, h);
        g->n_taken += !t->name;
        *t = (TakenName) { name, h };
}

/* Those of the nodes that the last rebuild began with: most rebuilds make no name. */
static void take_names_before(Graph *g)
{
        const int n = g->n_before;
        g->n_before = 0;
        for (Ref r = 1; r < n; r++)
                put_name(g, g->before[r].name);
}

static bool is_taken(Graph *g, const char *name)
{
        take_names_before(g);
        return g->cap_taken && taken_at(g, name, hash_name(name))->name;
}

static void take_name(Graph *g, const char *name)
{
        take_names_before(g);
        put_name(g, name);
}

/* The table anew, from the nodes there are: what is generated next depends on
 * nothing else, whichever way the graph came about. */
static void retake_names(Graph *g)
{
        g->runs = NULL;
        g->n_runs = g->cap_runs = 0;
        if (g->n_taken)
                memset(g->taken, 0, g->cap_taken * sizeof *g->taken);
        g->n_taken = 0;
        g->before = g->node;
        g->n_before = g->n_nodes;
}

/* Of names base.N those from `from` on, before `end`, are taken: many of one base are made in a
 * row. */
static NameRun *run_of(Graph *g, const char *base, size_t n)
{
        if (g->n_runs * 2 >= g->cap_runs) {
                const NameRun *old = g->runs;
                const unsigned cap = g->cap_runs;
                g->cap_runs = cap ? cap * 2 : 64;
                g->runs = arena_alloc(g->arena, g->cap_runs * sizeof *g->runs);
                g->n_runs = 0;
                for (unsigned i = 0; i < cap; i++)
                        if (old[i].base)
                                *run_of(g, old[i].base, old[i].n) = old[i];
        }
        unsigned h = 2166136261u;
        for (size_t i = 0; i < n; i++)
                h = (h ^ (unsigned char)base[i]) * 16777619u;
        for (h &= g->cap_runs - 1; g->runs[h].base; h = (h + 1) & (g->cap_runs - 1))
                if (g->runs[h].n == n && !memcmp(g->runs[h].base, base, n))
                        return &g->runs[h];
        g->n_runs++;
        g->runs[h] = (NameRun) { arena_fmt(g->arena, "%.*s", (int)n, base), n, 0, 0 };
        return &g->runs[h];
}

/* base.N where N is the number of nodes or the next that is free.  The name is
 * taken at once, so that two made for one call differ. */
const char *graph_name(Graph *g, const char *base)
{
        size_t n = strlen(base);
        const char *dot = strrchr(base, '.'), *name;
        char buf[256];
        int i = g->n_nodes;
        if (dot && dot[1] && strspn(dot + 1, "0123456789") == strlen(dot + 1))
                n = (size_t)(dot - base);
        NameRun *run = run_of(g, base, n);
        if (i < run->from || i > run->end) /* another run */
                run->from = run->end = i;
        do {
                i = run->end++;
                if (n + 13 < sizeof buf)
                        snprintf(buf, sizeof buf, "%.*s.%d", (int)n, base, i);
                name = n + 13 < sizeof buf ? buf : arena_fmt(g->arena, "%.*s.%d", (int)n, base, i);
        } while (is_taken(g, name));
        name = arena_str(g->arena, name);
        take_name(g, name);
        return name;
}

int graph_types(Graph *g, Ref r, Type out[MAX_OUT])
{
        Node *n = NODE(g, r);
        int k = op_info[n->op].shape(g, n, out);
        out[0] = n->type;
        return k;
}

/* Sizes are bounded here, so that shape rules and passes may multiply them unchecked. */
static void check_type(const Node *n, const Type *t)
{
        int64_t most = (int64_t)1 << 48;
        int e[N_SYM] = { 0 };
        for (int i = 0; i < t->rank; i++) {
                bool ok = t->dim[i].n >= 1 && t->dim[i].n <= most;
                most = ok ? most / t->dim[i].n : 0;
                for (int k = 0; k < N_SYM; k++)
                        ok &= t->dim[i].e[k] >= 0 && (e[k] += t->dim[i].e[k]) <= 16;
                if (!ok)
                        error_at(n->loc, "%%%s: %s has a dimension of 0 or too many elements",
                                 n->name, type_text(t, (char[256]) { 0 }));
        }
}

Ref graph_typed(Graph *g, Op op, const Type *t, const Ref *in, int n_in, const Attr *a, Loc loc,
                const char *name)
{
        Node *n = grow(g);
        Type out[MAX_OUT];
        memset(n, 0, sizeof *n);
        n->op = op;
        n->loc = loc;
        if (name && is_taken(g, name) && graph_find(g, name))
                name = graph_name(
                        g, name); /* a pass's own name for something, which the user had too */
        n->name = name ? arena_str(g->arena, name) : graph_name(g, op_info[op].text);
        if (a)
                n->a = *a;
        if (t) {
                n->type = *t;
                check_type(n, t);
        }
        if (n_in > MAX_IN)
                error_at(loc, "%s: %d inputs, at most %d", op_info[op].text, n_in, MAX_IN);
        const int least = op_least_inputs(op), most = op_most_inputs(op);
        if (n_in < least || n_in > most)
                error_at(loc,
                         least == most ? "%s: %d inputs given, %d needed"
                                       : "%s: %d inputs given, %d to %d needed",
                         op_info[op].text, n_in, least, most);
        n->n_in = n_in;
        for (int i = 0; i < n_in; i++) {
                if (in[i] <= 0 || in[i] >= g->n_nodes)
                        error_at(loc, "%s: input %d is not a value of this graph", op_info[op].text,
                                 i + 1);
                n->in[i] = in[i];
        }
        for (int i = 0, k = op_info[op].shape(g, n, out); i < k; i++)
                check_type(n, &out[i]);
        n->type = out[0];
        take_name(g, n->name);
        return g->n_nodes++;
}

Ref graph_add(Graph *g, Op op, const Ref *in, int n_in, const Attr *a, Loc loc, const char *name)
{
        return graph_typed(g, op, NULL, in, n_in, a, loc, name);
}

Ref graph_leaf(Graph *g, Op op, Type t, const Attr *a, Loc loc, const char *name)
{
        return graph_typed(g, op, &t, NULL, 0, a, loc, name);
}

static Ref derived(Graph *g, Op op, const Type *t, const Ref *in, int n_in, const Attr *a)
{
        const Node *n = NODE(g, in[0]);
        return graph_typed(g, op, t, in, n_in, a, n->loc, graph_name(g, n->name));
}

Ref graph_item(Graph *g, Ref r, int index, const char *name)
{
        Attr a = { .item = { index } };
        if (index == 0)
                return r;
        return graph_typed(g, OP_ITEM, NULL, &r, 1, &a, NODE(g, r)->loc,
                           name ? name : graph_name(g, NODE(g, r)->name));
}

Ref graph_reshape(Graph *g, Ref r, Type shape)
{
        if (shape_eq(&NODE(g, r)->type, &shape))
                return r;
        return derived(g, OP_RESHAPE, &shape, &r, 1, NULL);
}

Ref graph_cast(Graph *g, Ref r, DType dt)
{
        Type t = NODE(g, r)->type;
        if (t.dt == dt)
                return r;
        t.dt = dt;
        return graph_typed(g, OP_CAST, &t, &r, 1, NULL, NODE(g, r)->loc,
                           graph_name(g, NODE(g, r)->name));
}

void graph_output(Graph *g, const char *name, Ref r)
{
        g->out = arena_grow(g->arena, g->out, g->n_out, &g->cap_out, sizeof *g->out);
        g->out[g->n_out++] = (Output) { arena_str(g->arena, name), r };
}

Ref graph_out(const Graph *g, const char *name)
{
        for (int i = 0; i < g->n_out; i++)
                if (!strcmp(g->out[i].name, name))
                        return g->out[i].ref;
        return 0;
}

void graph_count_uses(Graph *g)
{
        for (Ref r = 1; r < g->n_nodes; r++)
                g->node[r].uses = 0;
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; i < g->node[r].n_in; i++)
                        g->node[g->node[r].in[i]].uses++;
        for (int i = 0; i < g->n_out; i++)
                g->node[g->out[i].ref].uses++;
}

Readers graph_readers(const Graph *g, const Ref *base, Arena *a)
{
        size_t edges = 0;
        for (Ref r = 1; r < g->n_nodes; r++)
                edges += (size_t)g->node[r].n_in;
        int *start = arena_alloc(a, ((size_t)g->n_nodes + 2) * sizeof *start);
        Ref *reader = arena_alloc(a, (edges + 1) * sizeof *reader);
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; i < g->node[r].n_in; i++)
                        start[(base ? base[g->node[r].in[i]] : g->node[r].in[i]) + 1]++;
        for (Ref r = 1; r <= g->n_nodes; r++)
                start[r] += start[r - 1];
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; i < g->node[r].n_in; i++)
                        reader[start[base ? base[g->node[r].in[i]] : g->node[r].in[i]]++] = r;
        for (Ref r = g->n_nodes; r > 0; r--)
                start[r] = start[r - 1];
        start[0] = 0;
        return (Readers) { start, reader };
}

Ref op1(Graph *g, Op op, Ref a) { return derived(g, op, NULL, &a, 1, NULL); }

Ref op2(Graph *g, Op op, Ref a, Ref b) { return derived(g, op, NULL, (Ref[]) { a, b }, 2, NULL); }

Ref op3(Graph *g, Op op, Ref a, Ref b, Ref c)
{
        return derived(g, op, NULL, (Ref[]) { a, b, c }, 3, NULL);
}

Ref op1x(Graph *g, Op op, Ref a, double x)
{
        Attr t = { .num = { x } };
        return derived(g, op, NULL, &a, 1, &t);
}

Ref op_slice(Graph *g, Ref a, int axis, int64_t start, int64_t len, int64_t step)
{
        Attr t = { .slice = { axis, start, len, step } };
        if (start == 0 && step == 1 && dim_eq(NODE(g, a)->type.dim[axis], DIM(len)))
                return a;
        return derived(g, OP_SLICE, NULL, &a, 1, &t);
}

Ref op_matmul(Graph *g, Ref a, Ref b, bool ta, bool tb)
{
        Attr t = { .mm = { ta, tb } };
        return derived(g, OP_MATMUL, NULL, (Ref[]) { a, b }, 2, &t);
}

Ref graph_copy_node(Graph *old, Ref r, Graph *g, const Ref *map)
{
        Node *o = NODE(old, r), *n = grow(g);
        *n = *o;
        for (int i = 0; i < n->n_in; i++)
                n->in[i] = map[o->in[i]];
        return g->n_nodes++;
}

/* The new nodes go into another array of the same arena, that of the rebuild before where it has
 * room; the old ones stay readable until the next rebuild. */
void graph_rebuild(Graph *g, Visit *visit, void *ctx)
{
        retake_names(g);
        Graph old = *g;
        g->index = NULL;
        g->n_index = g->cap_index = 0;
        g->n_indexed = 0;
        Ref *map = mem_new((size_t)old.n_nodes * sizeof *map);
        g->cap = old.n_nodes + old.n_nodes / 4 + 64;
        if (g->cap <= g->cap_spare) {
                g->node = g->spare;
                g->cap = g->cap_spare;
        } else {
                g->node = arena_alloc(g->arena, (size_t)g->cap * sizeof *g->node);
        }
        g->spare = old.node;
        g->cap_spare = old.cap;
        g->n_nodes = 1;
        for (Ref r = 1; r < old.n_nodes; r++)
                map[r] = visit(&old, r, g, map, ctx);
        for (int i = 0; i < g->n_out; i++)
                g->out[i].ref = map[g->out[i].ref];
        free(map);
}

static Ref visit_copy(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        (void)ctx;
        return graph_copy_node(old, r, g, map);
}

Graph *graph_copy(const Graph *from, const char *name)
{
        Graph *g = graph_new(name);
        Arena *a = g->arena;
        const char *n = g->name;
        *g = *from;
        g->arena = a;
        g->name = n;
        g->out = NULL;
        g->n_out = g->cap_out = 0;
        g->taken = NULL;
        g->n_taken = g->cap_taken = 0;
        g->spare = NULL;
        g->cap_spare = 0;
        for (int i = 0; i < from->n_out; i++)
                graph_output(g, from->out[i].name, from->out[i].ref);
        graph_rebuild(g, visit_copy, NULL);
        take_names_before(g);
        g->spare = NULL; /* these are the other graph's */
        g->cap_spare = 0;
        return g;
}

static Ref keep_live(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        return ((bool *)ctx)[r] ? graph_copy_node(old, r, g, map) : 0;
}

void graph_sweep(Graph *g)
{
        bool *live = mem_new((size_t)g->n_nodes);
        for (int i = 0; i < g->n_out; i++)
                live[g->out[i].ref] = true;
        for (Ref r = g->n_nodes - 1; r > 0; r--) {
                Op op = g->node[r].op;
                live[r] = live[r] || op == OP_ACCUM || op == OP_ADAMW || op == OP_INPUT;
                for (int i = 0; live[r] && i < g->node[r].n_in; i++)
                        live[g->node[r].in[i]] = true;
        }
        graph_rebuild(g, keep_live, live);
        free(live);
}
