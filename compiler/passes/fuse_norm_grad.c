/* fuse_norm_grad.c: computes a norm's backward and the gradients of its gain and bias in one pass.
 *
 *      rmsnorm_grad(x, mul(dy, gain)), colsum(mul(dy, rmsnorm(x)))   ->  rmsnorm_back(x, dy, gain)
 *      the same for layernorm, with colsum(dy), the bias gradient
 *
 * x and dy are read once instead of twice, and the normalised value need not be
 * kept for the backward pass. */
#include "../compiler.h"
#include <string.h>

typedef struct Ctx {
        Ref *dx_of; /* norm_grad node -> itself when matched */
        Ref *role;  /* node -> the norm_grad it belongs to */
        int *item;  /* which output replaces it */
        Ref *dy, *gain;
        Ref *made;
} Ctx;

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Ctx *c = ctx;
        Ref k = c->role[r];
        if (!k)
                return graph_copy_node(old, r, g, map);
        Node *n = NODE(old, k);
        if (!c->made[k]) {
                Op op = n->op == OP_RMSNORM_GRAD ? OP_RMSNORM_BACK : OP_LAYERNORM_BACK;
                c->made[k] = graph_add(g, op,
                                       (Ref[]) { map[n->in[0]], map[c->dy[k]], map[c->gain[k]] }, 3,
                                       &n->a, n->loc, n->name);
        }
        return graph_item(g, c->made[k], c->item[r], NODE(old, r)->name);
}

/* Blocks keep sums of gain and bias in shared memory, of which small GPUs have 99 KB. */
enum { MOST_COLUMNS = 12288 };

/* A gradient of a vector that no norm has taken yet. */
static bool is_sum(const Graph *g, const Ctx *c, Ref r)
{
        return NODE(g, r)->op == OP_COLSUM && NODE(g, r)->type.rank == 1 && !c->role[r];
}

static Ref *refs(Arena *tmp, int n) { return arena_alloc(tmp, (size_t)n * sizeof(Ref)); }

void fuse_norm_grad(Graph *g, Arena *tmp)
{
        int n = g->n_nodes;
        Ctx c = {
                refs(tmp, n), refs(tmp, n), refs(tmp, n), refs(tmp, n), refs(tmp, n), refs(tmp, n)
        };
        const Readers by = graph_readers(g, NULL, tmp);
        graph_count_uses(g);
        for (Ref r = 1; r < n; r++) {
                const Node *d = NODE(g, r), *m;
                if (d->op != OP_RMSNORM_GRAD && d->op != OP_LAYERNORM_GRAD)
                        continue;
                m = NODE(g, d->in[1]);
                if (d->type.dim[d->type.rank - 1].n > MOST_COLUMNS)
                        continue;
                if (m->op != OP_MUL || m->uses != 1 || NODE(g, m->in[1])->type.rank != 1 ||
                    NODE(g, m->in[0])->type.rank < 2)
                        continue;
                Ref dy = m->in[0], gain = m->in[1], dgain = 0, dbias = 0, first;
                Op fwd = d->op == OP_RMSNORM_GRAD ? OP_RMSNORM : OP_LAYERNORM;
                for (int i = by.start[dy]; i < by.start[dy + 1]; i++) {
                        const Ref u = by.reader[i];
                        const Node *p = NODE(g, u), *f = NODE(g, p->in[1]);
                        if (is_sum(g, &c, u))
                                dbias = u;
                        if (p->op == OP_MUL && p->uses == 1 && p->in[0] == dy && f->op == fwd &&
                            f->in[0] == d->in[0] && f->a.num.x == d->a.num.x &&
                            by.start[u] < by.start[u + 1] &&
                            is_sum(g, &c, by.reader[by.start[u]]) && by.reader[by.start[u]] > dgain)
                                dgain = by.reader[by.start[u]];
                }
                if (!dgain || (fwd == OP_LAYERNORM && !dbias))
                        continue;
                first = r < dgain ? r : dgain;
                if (fwd == OP_LAYERNORM && dbias < first)
                        first = dbias;
                if (first <= d->in[0] || first <= dy || first <= gain)
                        continue;
                c.role[r] = r;
                c.role[dgain] = r;
                c.item[dgain] = 1;
                if (fwd == OP_LAYERNORM) {
                        c.role[dbias] = r;
                        c.item[dbias] = 2;
                }
                c.dy[r] = dy;
                c.gain[r] = gain;
        }
        graph_rebuild(g, visit, &c);
        graph_sweep(g);
}
