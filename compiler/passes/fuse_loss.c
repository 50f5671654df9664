/* fuse_loss.c: makes the last linear and the cross-entropy one op, so that logits never exist whole
 * in memory.
 *
 * fuse_loss, before differentiation:
 *      ce(add(matmul(x, w {tb=1}), bias), targets)  ->  linear_ce(x, w, targets, bias)
 * where nothing else reads the logits.
 *
 * fuse_loss_grad, after it: linear_ce and linear_ce_grad of the same operands become one op that
 * also gives the loss, so that the logits are computed once.  This is allowed since the gradient of
 * a loss that enters the total linearly does not depend on it. */
#include "../compiler.h"
#include <string.h>

/* The matmul under a ce, through reshapes and a bias; 0 if the shape is another. */
static Ref linear_of(Graph *g, Ref ce, Ref *bias)
{
        Ref r = NODE(g, ce)->in[0];
        *bias = 0;
        while (NODE(g, r)->uses == 1) {
                const Node *n = NODE(g, r);
                if (n->op == OP_RESHAPE && n->type.rank &&
                    dim_eq(n->type.dim[n->type.rank - 1],
                           NODE(g, n->in[0])->type.dim[NODE(g, n->in[0])->type.rank - 1])) {
                        r = n->in[0];
                } else if (n->op == OP_ADD && !*bias && NODE(g, n->in[1])->op == OP_PARAM &&
                           NODE(g, n->in[1])->type.rank == 1 &&
                           dim_eq(NODE(g, n->in[1])->type.dim[0], n->type.dim[n->type.rank - 1])) {
                        *bias = n->in[1];
                        r = n->in[0];
                } else if (n->op == OP_MATMUL && !n->a.mm.ta && n->a.mm.tb &&
                           NODE(g, n->in[1])->type.rank == 2) {
                        return r;
                } else {
                        return 0;
                }
        }
        return 0;
}

static Ref visit_loss(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Node *n = NODE(old, r);
        Ref bias, mm;
        (void)ctx;
        if (n->op != OP_CE || !(mm = linear_of(old, r, &bias)))
                return graph_copy_node(old, r, g, map);
        Type xt = NODE(old, r)->type;
        const Node *m = NODE(old, mm);
        Ref x = map[m->in[0]];
        xt.dt = NODE(g, x)->type.dt;
        xt.dim[xt.rank++] = NODE(g, x)->type.dim[NODE(g, x)->type.rank - 1];
        x = graph_reshape(g, x, xt);
        Ref in[4] = { x, map[m->in[1]], map[n->in[1]], bias ? map[bias] : 0 };
        return graph_add(g, OP_LINEAR_CE, in, bias ? 4 : 3, NULL, n->loc, n->name);
}

void fuse_loss(Graph *g, Arena *tmp)
{
        (void)tmp;
        graph_count_uses(g);
        graph_rebuild(g, visit_loss, NULL);
        graph_sweep(g);
}

/* linear_ce -> its gradient; made[grad]: the joint node */
typedef struct Ctx {
        Ref *grad_of;
        Ref *made;
} Ctx;

/* d(loss) must be free of the forward pass: made of maps, views and constants only. */
static bool *mark_simple(const Graph *g, Arena *tmp)
{
        bool *simple = arena_alloc(tmp, (size_t)g->n_nodes);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = &g->node[r];
                Class c = op_info[n->op].cls;
                simple[r] = c == CLASS_MAP || c == CLASS_VIEW || n->op == OP_CONST;
                for (int i = 0; i < n->n_in; i++)
                        simple[r] &= simple[n->in[i]];
        }
        return simple;
}

/* The same loss: of the same rows, weights, targets and bias, and read for its loss only. */
static bool belongs(const Graph *g, Ref loss, const Node *d)
{
        const Node *p = &g->node[loss];
        for (int i = 0; i < 3; i++)
                if (p->in[i] != d->in[i])
                        return false;
        for (Ref r = loss + 1; r < g->n_nodes; r++)
                if (g->node[r].op == OP_ITEM && g->node[r].in[0] == loss)
                        return false;
        return p->in[3] == d->in[4];
}

static Ref clone(Graph *old, Ref r, Graph *g, Ref *map)
{
        if (!map[r]) {
                for (int i = 0; i < NODE(old, r)->n_in; i++)
                        clone(old, NODE(old, r)->in[i], g, map);
                map[r] = graph_copy_node(old, r, g, map);
        }
        return map[r];
}

static Ref visit_grad(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Ctx *c = ctx;
        Node *n = NODE(old, r);
        if (map[r]) /* cloned ahead */
                return map[r];
        if (n->op == OP_LINEAR_CE && c->grad_of[r]) {
                Node *d = NODE(old, c->grad_of[r]);
                Attr both = { .ce = { 1 } };
                Ref in[MAX_IN];
                clone(old, d->in[3], g, map);
                for (int i = 0; i < d->n_in; i++)
                        in[i] = map[d->in[i]];
                return c->made[c->grad_of[r]] = graph_add(g, OP_LINEAR_CE_GRAD, in, d->n_in, &both,
                                                          n->loc, n->name);
        }
        if (n->op == OP_LINEAR_CE_GRAD && c->made[r])
                return graph_item(g, c->made[r], 1, n->name);
        if (n->op == OP_ITEM && NODE(old, n->in[0])->op == OP_LINEAR_CE_GRAD && c->made[n->in[0]])
                return graph_item(g, c->made[n->in[0]], (int)n->a.item.index + 1, n->name);
        return graph_copy_node(old, r, g, map);
}

void fuse_loss_grad(Graph *g, Arena *tmp)
{
        Ctx c = { arena_alloc(tmp, (size_t)g->n_nodes * sizeof(Ref)),
                  arena_alloc(tmp, (size_t)g->n_nodes * sizeof(Ref)) };
        bool *simple = mark_simple(g, tmp);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                if (n->op != OP_LINEAR_CE_GRAD || n->a.ce.both || !simple[n->in[3]])
                        continue;
                for (Ref f = 1; f < r; f++)
                        if (NODE(g, f)->op == OP_LINEAR_CE && belongs(g, f, n))
                                c.grad_of[f] = r;
        }
        graph_rebuild(g, visit_grad, &c);
        graph_sweep(g);
}
