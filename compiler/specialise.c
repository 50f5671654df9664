/* specialise.c: makes a program's own copy of the model's forward graph.
 *
 * Sizes that the program knows become constants.  Outputs that it does not return are removed, and
 * then inputs that nothing reads.  Only training steps keep dropout. */
#include "pipeline.h"
#include <string.h>

static Dim bind_dim(Dim d, const Sizes *s)
{
        for (int i = 0; i < N_SYM; i++)
                while (d.e[i] && s->v[i]) {
                        d.n *= s->v[i];
                        d.e[i]--;
                }
        return d;
}

static void bind_clamp(Attr *a, const Sizes *s)
{
        const Dim d = bind_dim(clamp_rows(a), s);
        a->below.rows = d.n;
        a->below.B = d.e[SYM_B];
        a->below.T = d.e[SYM_T];
        a->below.S = d.e[SYM_S];
}

typedef struct Bind {
        const Sizes *s;
        bool drop;
} Bind;

/* Known sizes become constants; outside of training steps dropout is the identity. */
static Ref visit_bind(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Bind *b = ctx;
        if (NODE(old, r)->op == OP_DROPOUT && !b->drop)
                return map[NODE(old, r)->in[0]];
        Ref n = graph_copy_node(old, r, g, map);
        Node *x = NODE(g, n);
        for (int i = 0; i < x->type.rank; i++)
                x->type.dim[i] = bind_dim(x->type.dim[i], b->s);
        if (x->op == OP_CLAMP)
                bind_clamp(&x->a, b->s);
        if (!b->drop && x->op == OP_ATTENTION)
                x->a.att.p = 0;
        return n;
}

static bool wanted(const Spec *s, const char *output)
{
        if (s->kind == SUMS)
                return !strncmp(output, "sum.", 4);
        for (int i = 0; i < 4 && s->outputs[i]; i++)
                if (!strcmp(s->outputs[i], output))
                        return true;
        return false;
}

bool has_input(const Graph *g, const char *name)
{
        Ref r = graph_find(g, name);
        return r && NODE(g, r)->op == OP_INPUT;
}

/* Inputs that nothing reads any more (targets, where only logits are wanted). */
static Ref visit_used(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        (void)ctx;
        if (NODE(old, r)->op == OP_INPUT && !NODE(old, r)->uses)
                return 0;
        return graph_copy_node(old, r, g, map);
}

void specialise(Graph *g, const Spec *s, Arena *tmp)
{
        Bind b = { &s->fixed, s->kind == STEP };
        int k = 0;
        for (int i = 0; i < g->n_out; i++)
                if (wanted(s, g->out[i].name))
                        g->out[k++] = g->out[i];
        g->n_out = k;
        graph_rebuild(g, visit_bind, &b);
        g->sizes = s->fixed;
        if (s->kind & (CACHED | SUMS))
                forget_documents(g, tmp);
        if (s->kind & EMBED)
                bound_texts(g);
        graph_sweep(g);
        graph_count_uses(g);
        graph_rebuild(g, visit_used, NULL);
        if (s->kind & CACHED && has_input(g, "documents"))
                error_at(NODE(g, graph_find(g, "documents"))->loc,
                         "only attention and `position() - begin` may read the "
                         "input `documents` of a model that generates text");
        if (s->kind & CACHED && has_input(g, "targets"))
                error_at(NODE(g, graph_find(g, "targets"))->loc,
                         "the logits depend on the input `targets`, which nobody knows "
                         "where text is generated; compile with --mode train");
}

void finish_outputs(Graph *g, const Spec *s, Arena *tmp)
{
        if (s->kind & MIXED)
                sampled_rows(g, s->B, tmp);
        if (s->kind & PREFILL) {
                g->n_out = 0;
                for (Ref r = 1; r < g->n_nodes; r++)
                        if (op_appends(NODE(g, r)->op))
                                graph_output(g, NODE(g, r)->name, r);
                graph_sweep(g);
        } else if (s->kind & (DECODE | MIXED)) {
                Ref l = graph_out(g, "logits");
                Type t = type_of(NODE(g, l)->type.dt, 2, DIM(s->B),
                                 NODE(g, l)->type.dim[NODE(g, l)->type.rank - 1]);
                l = graph_reshape(g, l, t);
                g->n_out = 0;
                graph_output(g, "logits", l);
                graph_output(g, "next",
                             graph_add(g, OP_SAMPLE, &l, 1, NULL, NODE(g, l)->loc, "next"));
        }
}
