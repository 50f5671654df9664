/* keep_slope.c: keeps an activation's slope for the backward pass, in place of its input.
 * needs: a differentiated graph, types.   keeps: types.
 *
 *      gelu(x) ... gelu_grad(x, dy)    ->      gelu(x), s = gelu_slope(x) ... mul(s, dy)
 *
 * if nothing else reads x and a GEMM makes it.  That GEMM's epilogue computes s beside gelu(x),
 * from the same exponential, and stores s in the place of x.  The backward pass then needs one
 * multiplication, which matters since its GEMMs have no time to spare.  A gated activation, whose
 * gate and factor are interleaved columns of one GEMM, keeps both slopes there:
 *
 *      %x = slice %m {step=2}   %u = slice %m {start=1, step=2}
 *      %a = silu %x             %h = mul %a, %u
 *      ...
 *      %du = mul %dh, %a
 *      %t = mul %dh, %u
 *      %dx = silu_grad %x, %t
 *
 * becomes
 *
 *      %s = silu_slope %x       %k = mul %u, %s       %k.a = interleave %k, %a
 *      ...
 *      %du = mul %dh, (slice %k.a {start=1, step=2})
 *      %dx = mul %dh, (slice %k.a {step=2})
 *
 * h is then stored as well, for the gradient of the next weight, since recompute.c can no longer
 * make it from x and u. */
#include "../compiler.h"

static const struct {
        Op of, grad, slope;
} rules[] = {
        { OP_GELU, OP_GELU_GRAD, OP_GELU_SLOPE },
        { OP_GELU_TANH, OP_GELU_TANH_GRAD, OP_GELU_TANH_SLOPE },
        { OP_SILU, OP_SILU_GRAD, OP_SILU_SLOPE },
};

enum { N_RULES = sizeof rules / sizeof *rules };

/* A gated activation: what the rewrite takes the place of, and the two slopes once they are
 * made. */
typedef struct Gated {
        Ref dx, du; /* its gradients */
        Ref dh, up, act, x;
        Op slope;
        Ref kept_x, kept_up; /* new nodes: slices of k.a */
} Gated;

/* of: node -> 1 + the place in gated of what happens there */
typedef struct Ctx {
        Readers by;
        Gated *gated;
        int *of;
} Ctx;

static bool is_product(const Graph *g, Ref x)
{
        return g->node[x].op == OP_MATMUL || g->node[x].op == OP_EXPERT_MATMUL;
}

/* A product, or a sum with one: its bias. */
static bool by_product(const Graph *g, Ref x)
{
        const Node *n = &g->node[x];
        return is_product(g, x) ||
               (n->op == OP_ADD && (is_product(g, n->in[0]) || is_product(g, n->in[1])));
}

/* The rule whose gradient r is, or -1. */
static int rule_of(const Graph *g, Ref r)
{
        int k = N_RULES - 1;
        while (k >= 0 && rules[k].grad != g->node[r].op)
                k--;
        return k;
}

/* The activation of x that rule k is about, before r; 0: there is none. */
static Ref activation(const Graph *g, const Readers *by, int k, Ref x, Ref r)
{
        for (int i = by->start[x]; i < by->start[x + 1] && by->reader[i] < r; i++)
                if (g->node[by->reader[i]].op == rules[k].of)
                        return by->reader[i];
        return 0;
}

static bool plain(const Graph *g, const Readers *by, Ref r, int k)
{
        const Node *n = &g->node[r];
        const Ref x = n->in[0];
        return g->node[x].uses == 2 && by_product(g, x) && shape_eq(&g->node[x].type, &n->type) &&
               activation(g, by, k, x, r);
}

/* Of product r's last axis every other column, from `start` on, which two nodes read. */
static bool every_other(const Graph *g, Ref r, int64_t start)
{
        const Node *n = &g->node[r];
        return n->op == OP_SLICE && n->uses == 2 && n->a.slice.axis == n->type.rank - 1 &&
               n->a.slice.step == 2 && n->a.slice.start == start;
}

/* The factor beside x in product r, or 0. */
static Ref factor(const Graph *g, Ref r, Ref x)
{
        const Node *n = &g->node[r];
        return n->op != OP_MUL ? 0 : n->in[0] == x ? n->in[1] : n->in[1] == x ? n->in[0] : 0;
}

/* Is r, under rule k, the gradient of a gated activation's gate? */
static bool gated(const Graph *g, const Readers *by, Ref r, int k, Gated *s)
{
        const Ref x = g->node[r].in[0], t = g->node[r].in[1];
        const Node *n = &g->node[t];
        const Ref act = activation(g, by, k, x, r), m = g->node[x].in[0];
        if (!act || !every_other(g, x, 0) || n->op != OP_MUL || n->uses != 1 ||
            g->node[act].uses != 2 || !by_product(g, m) || g->node[m].uses != 2)
                return false;
        const int i = every_other(g, n->in[0], 1) ? 0 : 1;
        *s = (Gated) { .dx = r,
                       .up = n->in[i],
                       .dh = n->in[1 - i],
                       .act = act,
                       .x = x,
                       .slope = rules[k].slope };
        if (!every_other(g, s->up, 1) || g->node[s->up].in[0] != m ||
            !shape_eq(&g->node[s->dh].type, &g->node[act].type))
                return false;
        bool h = false;
        for (int i = by->start[act]; i < by->start[act + 1]; i++) {
                const Ref u = by->reader[i], other = factor(g, u, act);
                h |= other == s->up;
                if (other == s->dh)
                        s->du = u;
        }
        return h && s->du;
}

/* In the forward pass, where recompute.c takes them for values that are kept. */
static void make_slopes(Graph *g, const Graph *old, Ref x, Ref up, Ref act, Gated *s)
{
        const Node *n = &old->node[s->x], *u = &old->node[s->up];
        const Attr a = n->a, b = u->a;
        const Loc loc = n->loc;
        Ref slope = graph_add(g, s->slope, &x, 1, NULL, loc, graph_name(g, n->name));
        Ref k = graph_add(g, OP_MUL, (Ref[]) { up, slope }, 2, NULL, loc, graph_name(g, n->name));
        Ref pair = graph_add(g, OP_INTERLEAVE, (Ref[]) { k, act }, 2, NULL, loc,
                             graph_name(g, n->name));
        s->kept_x = graph_add(g, OP_SLICE, &pair, 1, &a, loc, graph_name(g, n->name));
        s->kept_up = graph_add(g, OP_SLICE, &pair, 1, &b, loc, graph_name(g, u->name));
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Ctx *c = ctx;
        const Node *n = NODE(old, r);
        const int k = rule_of(old, r);
        Gated *s = c->of[r] ? &c->gated[c->of[r] - 1] : NULL;
        if (s && (r == s->dx || r == s->du))
                return graph_add(g, OP_MUL,
                                 (Ref[]) { map[s->dh], r == s->dx ? s->kept_x : s->kept_up }, 2,
                                 NULL, n->loc, n->name);
        if (k >= 0 && plain(old, &c->by, r, k)) {
                const char *name = arena_fmt(g->arena, "%s.slope", NODE(old, n->in[0])->name);
                Ref slope = graph_add(g, rules[k].slope, (Ref[]) { map[n->in[0]] }, 1, &n->a,
                                      n->loc, name);
                return graph_add(g, OP_MUL, (Ref[]) { slope, map[n->in[1]] }, 2, &n->a, n->loc,
                                 n->name);
        }
        Ref here = graph_copy_node(old, r, g, map);
        if (s) /* the later one of the factors */
                make_slopes(g, old, map[s->x], r == s->up ? here : map[s->up],
                            r == s->act ? here : map[s->act], s);
        return here;
}

void keep_slope(Graph *g, Arena *tmp)
{
        Ctx c = { graph_readers(g, NULL, tmp), arena_alloc(tmp, (size_t)g->n_nodes * sizeof(Gated)),
                  arena_alloc(tmp, (size_t)g->n_nodes * sizeof(int)) };
        int n = 0;
        graph_count_uses(g);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const int k = rule_of(g, r);
                if (k >= 0 && gated(g, &c.by, r, k, &c.gated[n])) {
                        const Gated *s = &c.gated[n++];
                        c.of[s->dx] = c.of[s->du] = c.of[s->act > s->up ? s->act : s->up] = n;
                }
        }
        graph_rebuild(g, visit, &c);
        graph_sweep(g);
}
