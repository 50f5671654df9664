/* input_sums.c: adds outputs with the sums of squares of linears' inputs over tokens, column by
 * column.
 * needs: the model as it was read, before linears are merged.
 *
 *      %y = matmul %x, %w {tb=1}       ->      sum.0 = colsum (square %x)              (K)
 *      %y = expert_matmul %x, %w, %perm, %offs
 *                                      ->      sum.1 = expert_grad (square %x), 1      (E,1,K)
 *                                              sum.2 = expert_grad 1, 1                (E,1,1)
 *
 * The gradient of an expert by a column of ones is the sum over its slots; for x = 1 it is their
 * number.  Linears that read one x share its sum.  The lines say which sum belongs to which
 * parameter: "PARAM SUM COUNT K E".  COUNT is the index of the output with the slots' numbers, or
 * -1, with E 0, if all tokens count. */
#include "../compiler.h"

typedef struct Ctx {
        Graph *g;
        Text *lines;
        int n;    /* outputs made */
        int *sum; /* by node: 1 + its output, or 0 */
} Ctx;

static int output(Ctx *c, Ref r)
{
        char name[32];
        snprintf(name, sizeof name, "sum.%d", c->n);
        graph_output(c->g, arena_str(c->g->arena, name), r);
        return c->n++;
}

static Ref ones(Graph *g, Dim rows, Loc loc)
{
        const Attr a = { .num = { 1 } };
        return graph_leaf(g, OP_FILL, type_of(DT_F32, 2, rows, DIM(1)), &a, loc,
                          graph_name(g, "ones"));
}

static void of_linear(Ctx *c, Ref r)
{
        Graph *g = c->g;
        const Ref x = NODE(g, r)->in[0], w = NODE(g, r)->in[1];
        const int rank = NODE(g, x)->type.rank;
        const long long K = (long long)NODE(g, x)->type.dim[rank - 1].n;
        const Attr a = { .k = { rank - 1 } };
        if (!c->sum[x]) {
                Ref sq = op1(g, OP_SQUARE, x);
                c->sum[x] = 1 + output(c, graph_add(g, OP_COLSUM, &sq, 1, &a, NODE(g, r)->loc,
                                                    graph_name(g, "sum")));
        }
        text_add(c->lines, "%s %d -1 %lld 0\n", NODE(g, w)->name, c->sum[x] - 1, K);
}

/* One sum for each product: an x may be read through other slots elsewhere. */
static void of_experts(Ctx *c, Ref r)
{
        Graph *g = c->g;
        const Node n = *NODE(g, r);
        const long long K = (long long)NODE(g, n.in[0])->type.dim[1].n,
                        E = (long long)NODE(g, n.in[1])->type.dim[0].n;
        const Ref one = ones(g, NODE(g, n.in[2])->type.dim[0], n.loc);
        Attr a = { .expert = { .tb = 1, .adiv = n.a.expert.adiv } }, b = { .expert = { .tb = 1 } };
        const Ref in[] = { op1(g, OP_SQUARE, n.in[0]), one, n.in[2], n.in[3] },
                  slots[] = { one, one, n.in[2], n.in[3] };
        const int sum = output(c, graph_add(g, OP_EXPERT_GRAD, in, 4, &a, n.loc,
                                            graph_name(g, "sum"))),
                  count = output(c, graph_add(g, OP_EXPERT_GRAD, slots, 4, &b, n.loc,
                                              graph_name(g, "slots")));
        text_add(c->lines, "%s %d %d %lld %lld\n", NODE(g, n.in[1])->name, sum, count, K, E);
}

void input_sums(Model *m, Text *lines)
{
        Arena *tmp = arena_new();
        Ctx c = { .g = m->graph, .lines = lines };
        const Ref n = c.g->n_nodes;
        c.sum = arena_alloc(tmp, (size_t)n * sizeof *c.sum);
        for (Ref r = 1; r < n; r++) {
                const Node *x = NODE(c.g, r);
                if (x->n_in < 2 || NODE(c.g, x->in[1])->op != OP_PARAM)
                        continue;
                if (x->op == OP_MATMUL && !x->a.mm.ta && NODE(c.g, x->in[1])->type.rank == 2)
                        of_linear(&c, r);
                else if (x->op == OP_EXPERT_MATMUL)
                        of_experts(&c, r);
        }
        arena_free(tmp);
}
