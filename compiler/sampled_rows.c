/* sampled_rows.c: of a program that takes many tokens, the logits of a few.
 *
 * The new input `sampled` (B) names the tokens.  What only the logits need (the head, the last
 * norm, the last layer's MLP) is computed for these tokens.  It reads their rows of what all
 * tokens have, by a gather:
 *
 *      %h = add %x, %y : f32[1,T,64]           %r = reshape %x : f32[T,64]
 *      %n = rmsnorm %h : f32[1,T,64]     ->    %g = gather %r, %sampled : f32[B,64]
 *      %l = matmul %n, %w : f32[1,T,V]         %s = reshape %g : f32[1,B,64]     (and %y)
 *                                              %h = add %s, ... : f32[1,B,64]
 * needs: use counts, cached keys and values, outputs logits alone.   B is a number. */
#include "pipeline.h"

typedef struct Ctx {
        Dim B;
        Ref logits, sampled;
        bool *few;  /* old nodes that are computed for the sampled tokens alone */
        Ref *rows;  /* of an old node: its rows of these tokens; 0: none yet */
        bool *read; /* nodes of all tokens, which a node of `few` reads */
} Ctx;

/* The axis of tokens, T alone behind axes of one; -1: there is none, or it is none of these. */
static int token_axis(const Type *t)
{
        int at = 0;
        while (at < t->rank && dim_eq(t->dim[at], DIM(1)))
                at++;
        if (at == t->rank || !dim_eq(t->dim[at], DIM_SYM(SYM_T)))
                return -1;
        for (int i = at + 1; i < t->rank; i++)
                if (!dim_is_const(t->dim[i]))
                        return -1;
        return at;
}

static bool all_const(const Type *t) { return dim_is_const(type_elems(t)); }

/* Are its rows made of the same rows of its inputs? */
static bool by_rows(const Graph *g, const Node *n)
{
        const OpInfo *o = &op_info[n->op];
        const int axis = token_axis(&n->type);
        if (axis < 0 || axis == n->type.rank - 1 || !n->n_in)
                return false;
        const bool maps = o->cls == CLASS_MAP && !op_is(n->op, FACT_PAIRS | FACT_RANDOM) &&
                          n->op != OP_CLAMP,
                   norms = op_is(n->op, FACT_NORM), multiplies = n->op == OP_MATMUL && !n->a.mm.ta,
                   parts = n->op == OP_SLICE && n->a.slice.axis == n->type.rank - 1;
        for (int i = 0; i < n->n_in; i++) {
                const Type *t = &NODE(g, n->in[i])->type;
                if (!all_const(t) &&
                    (token_axis(t) != axis || t->rank != n->type.rank || (multiplies && i)))
                        return false;
        }
        return maps || norms || multiplies || parts;
}

static Type few_type(Type t, Dim B)
{
        t.dim[token_axis(&t)] = B;
        return t;
}

/* The sampled tokens' rows of r. */
static Ref gather_rows(Graph *g, Ref r, Ref sampled, Dim B)
{
        const Node *n = NODE(g, r);
        const Type t = n->type;
        const Loc loc = n->loc;
        const int axis = token_axis(&t);
        Type flat = { .dt = t.dt, .rank = t.rank - axis };
        for (int i = axis; i < t.rank; i++)
                flat.dim[i - axis] = t.dim[i];
        const Ref in[2] = { axis ? graph_reshape(g, r, flat) : r, sampled };
        const Ref y = graph_add(g, OP_GATHER, in, 2, NULL, loc, graph_name(g, "sampled"));
        return axis ? graph_reshape(g, y, few_type(t, B)) : y;
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Ctx *c = ctx;
        const Node *x = NODE(old, r);
        const Ref n = graph_copy_node(old, r, g, map);
        if (c->few[r]) {
                for (int i = 0; i < x->n_in; i++)
                        if (c->rows[x->in[i]])
                                NODE(g, n)->in[i] = c->rows[x->in[i]];
                NODE(g, n)->type = few_type(NODE(g, n)->type, c->B);
                c->rows[r] = n;
        } else if (c->read[r]) {
                if (!c->sampled)
                        c->sampled = graph_leaf(g, OP_INPUT, type_of(DT_I32, 1, c->B), NULL, x->loc,
                                                "sampled");
                c->rows[r] = gather_rows(g, n, c->sampled, c->B);
        }
        return r == c->logits ? c->rows[r] : n;
}

void sampled_rows(Graph *g, int B, Arena *tmp)
{
        graph_sweep(g);
        graph_count_uses(g);
        const Ref logits = graph_out(g, "logits");
        const size_t n = (size_t)g->n_nodes;
        Ctx c = { .B = DIM(B),
                  .logits = logits,
                  .few = arena_alloc(tmp, n * sizeof *c.few),
                  .rows = arena_alloc(tmp, n * sizeof *c.rows),
                  .read = arena_alloc(tmp, n * sizeof *c.read) };
        int *by_few = arena_alloc(tmp, n * sizeof *by_few); /* readers in `few` */
        by_few[logits] = 1;                                 /* the return list */
        for (Ref r = logits; r > 0; r--) {
                const Node *x = NODE(g, r);
                if (!by_few[r] || all_const(&x->type))
                        continue;
                c.few[r] = by_few[r] == x->uses && by_rows(g, x);
                c.read[r] = !c.few[r];
                for (int i = 0; i < x->n_in && c.few[r]; i++)
                        by_few[x->in[i]]++;
        }
        graph_rebuild(g, visit, &c);
        graph_sweep(g);
}
