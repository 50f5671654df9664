/* few_experts.c: rewrites a mixture of experts for few tokens (decoding): no sorting, fewer
 * launches.
 * needs: final types.   keeps: types.
 *
 *      %p = softmax %logits                            %g = route %logits {k=2, renorm=1}
 *      %v = topk %p {k=2}                      ->      %c = item %g {index=1}
 *      %s = sum %v      %g = div %v, %s
 *
 *      %perm = bucket %c {k=E}                         (none)
 *      %u = expert_matmul %x, %w, %perm, %offs {adiv=2}
 *      %b = gather %bias, %sorted                      %h = expert_rows %x, %w, %c, %bias {adiv=2,
 *                                                      bias=1}
 *      %h = add %u, %b                         ->
 *      %d = expert_matmul %h, %v, %perm, %offs {scatter=1}
 *      %y = combine %d, %g                             %y = expert_rows %h, %v, %c, %g {mix=2}
 *
 *      %r = reshape %x                                 %m = matmul %x, %router
 *      %l = matmul %r, %router                 ->      %l = reshape %m
 *
 * Rows in the order of experts become rows in the order of slots.  This requires that all their
 * readers use the same permutation.  Softmax and top-k become one op for any number of tokens, if
 * nothing else reads them.  A GEMM that reads rows through a reshape reads the reshaped value
 * itself, so that a norm can join it. */
#include "../compiler.h"
#include <string.h>

enum { MOST_SLOTS = 16 };

typedef struct Ctx {
        Readers by;
        bool *renorm; /* topk -> a div takes it for its gates */
        Ref *softmax; /* topk -> what its softmax reads; 0: stays */
        Ref *gates;   /* div -> its topk */
        Ref *slots;   /* expert_matmul, gather by perm -> the ids that the bucket sorts; 0: stays */
} Ctx;

static bool is_item(const Graph *g, Ref u, Ref r)
{
        return NODE(g, u)->op == OP_ITEM && NODE(g, u)->in[0] == r;
}

/* topk of softmax, and the division by the sum of what was chosen, if nothing else reads either. */
static void find_route(Graph *g, Ref r, Ctx *c)
{
        const Node *n = NODE(g, r), *p = NODE(g, n->in[0]);
        Ref sum = 0, div = 0;
        int others = 0;
        if (p->op != OP_SOFTMAX || p->uses != 1 || n->a.k.k > 32)
                return;
        for (int k = c->by.start[r]; k < c->by.start[r + 1]; k++) {
                const Ref u = c->by.reader[k];
                if (!is_item(g, u, r)) {
                        others++;
                        sum = NODE(g, u)->op == OP_SUM ? u : sum;
                        div = NODE(g, u)->op == OP_DIV && NODE(g, u)->in[0] == r ? u : div;
                }
        }
        if (sum && div && others == 2 && n->uses <= 3 && NODE(g, div)->in[1] == sum &&
            NODE(g, sum)->uses == 1)
                c->gates[div] = r, c->renorm[r] = true;
        c->softmax[r] = p->in[0];
}

/* Is r read nowhere but as input `at` of products by experts, and, if ids are given, as the indices
 * of a gather from them? */
static bool by_experts(const Graph *g, const Readers *by, Ref r, int at, Ref ids)
{
        for (int k = by->start[r]; k < by->start[r + 1]; k++) {
                const Node *x = NODE(g, by->reader[k]);
                const bool expert = x->op == OP_EXPERT_MATMUL && x->a.expert.tb;
                for (int i = 0; i < x->n_in; i++)
                        if (x->in[i] == r && !(i == at && expert) &&
                            !is_item(g, by->reader[k], r) &&
                            !(ids && i == 1 && x->op == OP_GATHER && x->in[0] == ids))
                                return false;
        }
        return true;
}

/* Whether everything that reads the bucket's results can do without. */
static bool only_experts(const Graph *g, const Readers *by, Ref perm)
{
        for (int i = 0; i < g->n_out; i++)
                if (g->out[i].ref == perm)
                        return false;
        for (int k = by->start[perm]; k < by->start[perm + 1]; k++)
                if (is_item(g, by->reader[k], perm) && !by_experts(g, by, by->reader[k], 3, 0))
                        return false;
        return by_experts(g, by, perm, 2, NODE(g, perm)->in[0]);
}

static void find_slots(Graph *g, Ref perm, Ctx *c)
{
        const Type *t = &NODE(g, NODE(g, perm)->in[0])->type;
        if (t->rank != 1 || !dim_is_const(t->dim[0]) || t->dim[0].n > MOST_SLOTS ||
            !only_experts(g, &c->by, perm))
                return;
        for (int k = c->by.start[perm]; k < c->by.start[perm + 1]; k++) {
                const Ref u = c->by.reader[k];
                if ((NODE(g, u)->op == OP_EXPERT_MATMUL && NODE(g, u)->in[2] == perm) ||
                    (NODE(g, u)->op == OP_GATHER && NODE(g, u)->in[1] == perm))
                        c->slots[u] = NODE(g, perm)->in[0];
        }
}

/* A product by experts with or without its bias. */
typedef struct Product {
        Ref matmul, bias;
} Product;

static Product product_of(const Graph *g, Ref r, const Ctx *c)
{
        const Node *n = NODE(g, r), *b;
        Product p = { 0 };
        if (n->op == OP_EXPERT_MATMUL && c->slots[r])
                p.matmul = r;
        if (n->op != OP_ADD || NODE(g, n->in[0])->op != OP_EXPERT_MATMUL || !c->slots[n->in[0]] ||
            NODE(g, n->in[0])->uses != 1)
                return p;
        b = NODE(g, n->in[1]);
        if (b->op != OP_GATHER || NODE(g, b->in[0])->op != OP_PARAM ||
            NODE(g, b->in[0])->type.rank != 2 ||
            NODE(g, b->in[0])->type.dt != NODE(g, NODE(g, n->in[0])->in[1])->type.dt ||
            !shape_eq(&b->type, &n->type))
                return p;
        if (b->in[1] == c->slots[n->in[0]] || c->slots[b->in[1]] == c->slots[n->in[0]])
                p = (Product) { n->in[0], b->in[0] };
        return p;
}

/* gates: 0 or the combine's, with k slots a row. */
static Ref build(const Graph *old, Product p, Ref gates, int64_t k, const Node *as, Graph *g,
                 const Ref *map, const Ctx *c)
{
        const Node *m = NODE(old, p.matmul);
        Ref in[5] = { map[m->in[0]], map[m->in[1]], map[c->slots[p.matmul]] };
        int n = 3;
        Attr a = { .rows = { m->a.expert.adiv ? m->a.expert.adiv : 1, gates ? k : 0,
                             p.bias != 0 } };
        if (p.bias)
                in[n++] = map[p.bias];
        if (gates)
                in[n++] = map[gates];
        return graph_typed(g, OP_EXPERT_ROWS, &as->type, in, n, &a, as->loc, as->name);
}

/* A linear of a reshape that keeps the rows. */
static bool of_reshaped(const Graph *g, Ref r)
{
        const Node *n = NODE(g, r), *x = NODE(g, n->in[0]);
        if (n->op != OP_MATMUL || n->a.mm.ta || x->op != OP_RESHAPE ||
            NODE(g, n->in[1])->type.rank != 2)
                return false;
        const Type *from = &NODE(g, x->in[0])->type;
        return from->rank > 1 && dim_eq(from->dim[from->rank - 1], x->type.dim[x->type.rank - 1]);
}

static Ref before_reshape(const Graph *old, Ref r, Graph *g, const Ref *map)
{
        const Node *n = NODE(old, r);
        Ref in[2] = { map[NODE(old, n->in[0])->in[0]], map[n->in[1]] };
        Type t = NODE(old, NODE(old, n->in[0])->in[0])->type;
        t.dim[t.rank - 1] = n->type.dim[n->type.rank - 1];
        Ref y = graph_typed(g, OP_MATMUL, &t, in, 2, &n->a, n->loc, n->name);
        NODE(g, y)->type.dt = n->type.dt; /* its operands' type, or wider: what a router gives */
        return graph_typed(g, OP_RESHAPE, &n->type, &y, 1, NULL, n->loc, NULL);
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Ctx *c = ctx;
        const Node *n = NODE(old, r);
        Product p;
        if (n->op == OP_TOPK && c->softmax[r]) {
                Attr a = { .route = { n->a.k.k, c->renorm[r] } };
                return graph_add(g, OP_ROUTE, &map[c->softmax[r]], 1, &a, n->loc, n->name);
        }
        if (c->gates[r])
                return map[c->gates[r]];
        if (n->op == OP_GATHER && c->slots[r])
                return map[c->slots[r]];
        if (n->op == OP_COMBINE && n->n_in == 2 && n->type.rank == 2) {
                Ref y = n->in[0];
                const Type *t = &NODE(old, y)->type;
                while (NODE(old, y)->op == OP_RESHAPE && NODE(old, y)->uses == 1)
                        y = NODE(old, y)->in[0];
                p = product_of(old, y, c);
                if (p.matmul && NODE(old, y)->uses == 1 &&
                    NODE(old, p.matmul)->a.expert.adiv <= 1 && t->rank == 3)
                        return build(old, p, n->in[1], t->dim[1].n, n, g, map, c);
        }
        if (of_reshaped(old, r))
                return before_reshape(old, r, g, map);
        p = product_of(old, r, c);
        return p.matmul ? build(old, p, 0, 0, n, g, map, c) : graph_copy_node(old, r, g, map);
}

void few_experts(Graph *g, Arena *tmp)
{
        size_t n = (size_t)g->n_nodes;
        Ctx c = { graph_readers(g, NULL, tmp), arena_alloc(tmp, n),
                  arena_alloc(tmp, n * sizeof(Ref)), arena_alloc(tmp, n * sizeof(Ref)),
                  arena_alloc(tmp, n * sizeof(Ref)) };
        graph_count_uses(g);
        for (Ref r = 1; r < g->n_nodes; r++) {
                if (NODE(g, r)->op == OP_TOPK)
                        find_route(g, r, &c);
                if (NODE(g, r)->op == OP_BUCKET)
                        find_slots(g, r, &c);
        }
        graph_rebuild(g, visit, &c);
        graph_sweep(g);
}
