/* checkpoints.c: chooses the forward values that --recompute block keeps (Chen et al., Training
 * deep nets with sublinear memory cost, 2016).
 *
 * A cut is a value through which everything later depends on everything earlier: the residual
 * stream between two sublayers.  Small values do not count as dependencies, and are kept: values
 * that depend on no parameter (rotations, masks) and narrow ones (a router's output, sums of
 * auxiliary losses, an adapter's middle).
 *
 * A block begins at a cut if an attention comes between it and the next cut (in a graph without
 * attention: a product).  The block's first value is kept; all others are computed again before its
 * backward pass.  What lies behind the last block (the last norm, the loss) is kept.  So are the
 * choices of experts, since 16 bits might choose another one. */
#include "../compiler.h"

/* Of the widest linear's input a narrow value has a smaller part: a residual stream is an eighth at
 * least of an MLP's width, a router's row an eighth at most of the stream. */
enum { NARROW = 16 };

/* The widest input of a linear. */
static int64_t widest(const Graph *g, Ref seed)
{
        int64_t most = 1;
        for (Ref r = 1; r < seed; r++) {
                const Node *n = &g->node[r];
                if (op_info[n->op].cls != CLASS_MATMUL || g->node[n->in[1]].op != OP_PARAM)
                        continue;
                const Type *t = &g->node[n->in[0]].type;
                most = t->dim[t->rank - 1].n > most ? t->dim[t->rank - 1].n : most;
        }
        return most;
}

/* Values that depend on a parameter and are not narrow. */
static void mark_heavy(const Graph *g, Ref seed, Arena *tmp, bool *heavy)
{
        bool *depends = arena_alloc(tmp, (size_t)g->n_nodes);
        const int64_t least = g->sizes.v[SYM_B] * g->sizes.v[SYM_T] * widest(g, seed) / NARROW;
        for (Ref r = 1; r < seed; r++) {
                const Node *n = &g->node[r];
                for (int i = 0; i < n->n_in; i++)
                        depends[r] |= depends[n->in[i]] || g->node[n->in[i]].op == OP_PARAM;
                heavy[r] = depends[r] && type_count(&n->type, &g->sizes) >= least;
        }
}

/* The last forward reader of each value; outputs of the graph that training reads are losses. */
static void find_last(const Graph *g, Ref seed, Ref *last)
{
        for (Ref r = 1; r < seed; r++)
                for (int i = 0; i < g->node[r].n_in; i++)
                        last[g->node[r].in[i]] = r;
}

static bool is_route(const Graph *g, Ref r)
{
        const Op op = g->node[r].op;
        return op == OP_TOPK || op == OP_ROUTE || op == OP_BUCKET;
}

static bool begins(const Graph *g, Ref from, Ref to, bool attends)
{
        for (Ref r = from + 1; r <= to; r++) {
                const Class c = op_info[g->node[r].op].cls;
                if (c == CLASS_ATTENTION || (!attends && c == CLASS_MATMUL))
                        return true;
        }
        return false;
}

void checkpoints(const Graph *g, Ref seed, Arena *tmp, bool *again)
{
        bool *heavy = arena_alloc(tmp, (size_t)g->n_nodes), attends = false;
        Ref *last = arena_alloc(tmp, (size_t)g->n_nodes * sizeof *last),
            *cut = arena_alloc(tmp, (size_t)g->n_nodes * sizeof *cut);
        int n_cuts = 0;
        Ref reach = 0,
            end = 0; /* who reads last of what came before; the first value of the head */
        mark_heavy(g, seed, tmp, heavy);
        find_last(g, seed, last);
        for (Ref r = 1; r < seed; r++) {
                attends |= op_info[g->node[r].op].cls == CLASS_ATTENTION;
                if (heavy[r] && reach <= r && op_info[g->node[r].op].cls != CLASS_VIEW)
                        cut[n_cuts++] = r;
                if (heavy[r] && last[r] > reach)
                        reach = last[r];
        }
        for (int i = 0; i + 1 < n_cuts; i++)
                if (begins(g, cut[i], cut[i + 1], attends))
                        end = cut[i + 1];
        for (Ref r = 1; r < end; r++)
                again[r] = heavy[r] && !is_route(g, r) &&
                           !(g->node[r].op == OP_ITEM && is_route(g, g->node[r].in[0]));
        for (int i = 0; i + 1 < n_cuts; i++)
                if (begins(g, cut[i], cut[i + 1], attends))
                        again[cut[i]] = false;
}
