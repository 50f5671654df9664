/* merge_linears.c: merges linears that read the same value.
 * needs: types, the model's map.   keeps: types.   Runs before differentiation.
 *
 *      %q = matmul %x, %wq {tb=1}            %y = matmul %x, %wq_wk_wv {tb=1}
 *      %k = matmul %x, %wk {tb=1}      ->    %q = slice %y {axis=2, len=64}
 *      %v = matmul %x, %wv {tb=1}            %k = slice %y {axis=2, start=64, len=32} ...
 *
 * Weights are stored (N,K), so the rows of one follow those of the other.  A gate and an up
 * projection of one width, multiplied later, are interleaved instead (step 2): the matmul's
 * epilogue then has both factors in neighbouring columns and stores only the product.  Of experts'
 * linears (E,N,K) only gate and up merge.  A parameter stays alone if something else reads it, or
 * if it differs in initialiser, training or decay.  The map's lines follow the rows. */
#include "../compiler.h"
#include <string.h>

enum { MOST = 512 };

typedef struct Merge {
        Ref first; /* the matmul at which the merged one is built */
        Ref *part; /* matmuls, in order */
        int n;
        bool interleave;
        Ref y; /* new node, once built */
} Merge;

/* which[r]: 1 + index into of.  Lines of the map, by the parameter that they fill: 1 + an index
 * into it; 0 ends the list. */
typedef struct Ctx {
        Merge *of;
        int *which;
        Model *m;
        int *first_line, *next_line;
} Ctx;

/* The axis of a linear's weight that has its results: (N,K), or of experts (E,N,K). */
static int rows_axis(const Type *w) { return w->rank - 2; }
static int64_t rows_of(const Node *w) { return w->type.dim[rows_axis(&w->type)].n; }

/* A line of the map has only one bracket: of experts, so that another can follow. */
static bool has_plain_map(const Ctx *c, Ref param)
{
        for (int i = c->first_line[param]; i; i = c->next_line[i - 1])
                if (*c->m->map[i - 1].deeper)
                        return false;
        return true;
}

static void find_lines(Ctx *c, Arena *tmp)
{
        const Model *m = c->m;
        c->first_line = arena_alloc(tmp, (size_t)m->graph->n_nodes * sizeof *c->first_line);
        c->next_line = arena_alloc(tmp, (size_t)(m->n_map + 1) * sizeof *c->next_line);
        for (int i = m->n_map; i > 0; i--) {
                const Ref r = graph_find(m->graph, m->map[i - 1].param);
                c->next_line[i - 1] = c->first_line[r];
                c->first_line[r] = i;
        }
}

static bool candidate(const Ctx *c, Ref r)
{
        Graph *g = c->m->graph;
        const Node *n = NODE(g, r), *w;
        const bool expert = n->op == OP_EXPERT_MATMUL;
        if (expert ? !n->a.expert.tb : n->op != OP_MATMUL || n->a.mm.ta || !n->a.mm.tb)
                return false;
        w = NODE(g, n->in[1]);
        return w->op == OP_PARAM && w->type.rank == 2 + expert && w->uses == 1 &&
               NODE(g, n->in[0])->op != OP_PARAM && (!expert || has_plain_map(c, n->in[1]));
}

static bool alike(Graph *g, Ref a, Ref b)
{
        const Node *x = NODE(g, a), *y = NODE(g, b), *v = NODE(g, x->in[1]), *w = NODE(g, y->in[1]);
        if (x->op != y->op || !attr_equal(x->op, &x->a, &y->a))
                return false;
        for (int i = 0; i < x->n_in; i++)
                if (i != 1 && x->in[i] != y->in[i])
                        return false;
        return v->type.dt == w->type.dt && v->op == w->op && attr_equal(v->op, &v->a, &w->a);
}

/* A bias, or what an adapter adds (lora.c). */
static bool is_addend(Graph *g, Ref r)
{
        return NODE(g, r)->op == OP_PARAM ||
               (NODE(g, r)->op == OP_MATMUL && NODE(g, NODE(g, r)->in[1])->op == OP_PARAM);
}

/* The value of matmul r after addends, reshapes and one activation, if it has one reader each. */
static Ref follow(Graph *g, Ref r, const Ref *reader, bool *activated)
{
        *activated = false;
        while (NODE(g, r)->uses == 1) {
                Ref u = reader[r];
                if (!u)
                        return r;
                Op op = NODE(g, u)->op;
                if (op_is(op, FACT_ACTIVATION))
                        *activated = true;
                else if (op != OP_RESHAPE && !(op == OP_ADD && NODE(g, u)->in[0] == r &&
                                               is_addend(g, NODE(g, u)->in[1])))
                        return r;
                r = u;
        }
        return r;
}

/* Gate and up: one activated, and one mul reads both. */
static bool gated(Graph *g, const Merge *m, const Ref *reader)
{
        bool a, b;
        Ref x, y;
        if (m->n != 2 || !shape_eq(&NODE(g, m->part[0])->type, &NODE(g, m->part[1])->type))
                return false;
        x = follow(g, m->part[0], reader, &a);
        y = follow(g, m->part[1], reader, &b);
        return a != b && reader[x] && reader[x] == reader[y] && NODE(g, reader[x])->op == OP_MUL;
}

static const char *short_name(const char *s)
{
        const char *dot = strrchr(s, '.');
        if (dot && (!strcmp(dot, ".weight") || !strncmp(dot, ".lora_", 6))) {
                while (dot > s && dot[-1] != '.')
                        dot--;
                return dot;
        }
        return dot ? dot + 1 : s;
}

/* Rows of `from` become those of `to` from `start` on, every `step`-th.  Experts' are of the second
 * axis. */
static void move_map(const Ctx *c, Graph *old, Ref param, const char *to, int64_t start,
                     int64_t step)
{
        Model *m = c->m;
        const Node *from = NODE(old, param);
        const int64_t rows = rows_of(from);
        for (int i = c->first_line[param]; i; i = c->next_line[i - 1]) {
                MapLine *l = &m->map[i - 1];
                l->param = to;
                if (rows_axis(&from->type) == 1) {
                        l->deeper = arena_fmt(m->arena, "[%lld:%lld:%lld]", (long long)start,
                                              (long long)(start + (rows - 1) * step + 1),
                                              (long long)step);
                        continue;
                }
                if (!l->end)
                        l->end = rows;
                l->begin = start + l->begin * step;
                l->end = start + (l->end - 1) * step + 1;
                l->step *= step;
        }
}

static Ref build(Graph *old, Merge *mg, Graph *g, Ref *map, const Ctx *c)
{
        const Node *a = NODE(old, mg->part[0]), *w = NODE(old, a->in[1]);
        Text name = { 0 };
        int64_t rows = 0, at = 0;
        text_add(&name, "%s", w->name);
        for (int i = 1; i < mg->n && mg->n <= 4; i++)
                text_add(&name, "_%s", short_name(NODE(old, NODE(old, mg->part[i])->in[1])->name));
        if (mg->n > 4)
                text_add(&name, "_x%d", mg->n);
        for (int i = 0; i < mg->n; i++)
                rows += rows_of(NODE(old, NODE(old, mg->part[i])->in[1]));
        Type t = w->type;
        t.dim[rows_axis(&t)] = DIM(rows);
        Ref merged = graph_leaf(g, OP_PARAM, t, &w->a, w->loc, name.s);
        text_free(&name);
        for (int i = 0; i < mg->n; i++) {
                const Ref p = NODE(old, mg->part[i])->in[1];
                move_map(c, old, p, NODE(g, merged)->name, mg->interleave ? i : at,
                         mg->interleave ? mg->n : 1);
                at += rows_of(NODE(old, p));
        }
        Ref in[4] = { map[a->in[0]], merged };
        for (int i = 2; i < a->n_in; i++)
                in[i] = map[a->in[i]];
        return graph_add(g, a->op, in, a->n_in, &a->a, a->loc, graph_name(g, a->name));
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Ctx *c = ctx;
        Merge *mg = c->which[r] ? &c->of[c->which[r] - 1] : NULL;
        int64_t at = 0;
        int i = 0;
        if (!mg)
                return graph_copy_node(old, r, g, map);
        if (!mg->y)
                mg->y = build(old, mg, g, map, c);
        for (; mg->part[i] != r; i++)
                at += rows_of(NODE(old, NODE(old, mg->part[i])->in[1]));
        const Node *n = NODE(old, r);
        int64_t len = n->type.dim[n->type.rank - 1].n;
        Attr s = { .slice = { n->type.rank - 1, mg->interleave ? i : at, len,
                              mg->interleave ? mg->n : 1 } };
        return graph_add(g, OP_SLICE, &mg->y, 1, &s, n->loc, n->name);
}

void merge_linears(Model *m, Arena *tmp)
{
        Graph *g = m->graph;
        size_t n = (size_t)g->n_nodes;
        Ctx c = { arena_alloc(tmp, n * sizeof(Merge)), arena_alloc(tmp, n * sizeof(int)), m, NULL,
                  NULL };
        find_lines(&c, tmp);
        Ref *reader = arena_alloc(tmp, n * sizeof *reader);
        const Readers all = graph_readers(g, NULL, tmp);
        int n_merge = 0;
        graph_count_uses(g);
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; i < NODE(g, r)->n_in; i++)
                        reader[NODE(g, r)->in[i]] = r;
        for (Ref r = 1; r < g->n_nodes; r++) {
                Merge mg = { .first = r };
                if (c.which[r] || !candidate(&c, r))
                        continue;
                mg.part = arena_alloc(tmp, MOST * sizeof *mg.part);
                const Ref x = NODE(g, r)->in[0]; /* alike ones read it, too */
                for (int i = all.start[x]; i < all.start[x + 1] && mg.n < MOST; i++) {
                        const Ref s = all.reader[i];
                        if (s >= r && (i == all.start[x] || s != all.reader[i - 1]) &&
                            !c.which[s] && candidate(&c, s) && alike(g, r, s))
                                mg.part[mg.n++] = s;
                }
                if (mg.n < 2)
                        continue;
                mg.interleave = gated(g, &mg, reader);
                if (NODE(g, r)->op == OP_EXPERT_MATMUL &&
                    !mg.interleave) /* their epilogues would have no pairs */
                        continue;
                c.of[n_merge++] = mg;
                for (int i = 0; i < mg.n; i++)
                        c.which[mg.part[i]] = n_merge;
        }
        if (n_merge) {
                graph_rebuild(g, visit, &c);
                graph_sweep(g);
        }
}
