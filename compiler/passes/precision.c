/* precision.c: chooses the storage type of every value; arithmetic is float32.
 * keeps: shapes, and structure up to the casts that matmuls need.
 *
 * With policy bf16 or f16, parameters, caches and what is computed from them are stored in 16 bits.
 * These stay float32: losses, statistics, sums, gradients of parameters (except those of GRADS
 * below), gate probabilities, tables, logits that leave the graph, and maps whose float inputs are
 * all float32.  The operands of a matmul have one type: the narrower one is cast to the wider. */
#include "../compiler.h"
#include <stdlib.h>

/* Its values are those of its inputs, in another place. */
static bool moves(Op op) { return op_is_view(op) || op == OP_CONCAT; }

/* All readers (through views) are accumulations into float32 gradients. */
static void mark_grads(Graph *g, bool *grad)
{
        for (Ref r = g->n_nodes - 1; r > 0; r--) {
                const Node *n = NODE(g, r);
                if (n->op == OP_ACCUM)
                        grad[n->in[1]] = true;
                else if (moves(n->op) && grad[r])
                        grad[n->in[0]] = true;
        }
}

/* Values that softmax, top-k or the outside read, or an input that is float32 always (gates),
 * through views and maps by parameters. */
static void mark_wide(Graph *g, bool *wide)
{
        for (int i = 0; i < g->n_out; i++)
                wide[g->out[i].ref] = true;
        for (Ref r = g->n_nodes - 1; r > 0; r--) {
                const Node *n = NODE(g, r);
                if (op_is(n->op, FACT_WIDE))
                        wide[n->in[0]] = true;
                for (int i = 0; i < n->n_in; i++)
                        if (op_input_is(n->op, i, '!'))
                                wide[n->in[i]] = true;
                bool map = op_info[n->op].cls == CLASS_MAP && n->n_in &&
                           shape_eq(&n->type, &NODE(g, n->in[0])->type);
                if (wide[r] && (moves(n->op) || map) &&
                    op_info[NODE(g, n->in[0])->op].cls != CLASS_LEAF)
                        wide[n->in[0]] = true;
        }
}

static bool is_narrow(Graph *g, Ref r)
{
        DType dt = NODE(g, r)->type.dt;
        return dt == DT_BF16 || dt == DT_F16;
}

/* GRADS.  With bf16 the gradient of a weight with decay that one product makes whole is stored in
 * bf16 too: its sums are float32 still, and nothing is added to it but, over micro-batches, in
 * float32 (plan.h: add_grads).  f16 would lose the small ones. */
static void mark_narrow(const Graph *g, bool *narrow)
{
        int *accums = mem_new((size_t)g->n_nodes * sizeof *accums); /* of a parameter */
        for (Ref r = 1; r < g->n_nodes; r++)
                if (NODE(g, r)->op == OP_ACCUM)
                        accums[NODE(g, r)->in[0]]++;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r), *p;
                if (n->op != OP_ACCUM)
                        continue;
                Ref d = n->in[1];
                while (moves(NODE(g, d)->op))
                        d = NODE(g, d)->in[0];
                p = NODE(g, n->in[0]);
                narrow[r] = p->a.param.decay && accums[n->in[0]] == 1 &&
                            (NODE(g, d)->op == OP_MATMUL || NODE(g, d)->op == OP_EXPERT_GRAD);
        }
        free(accums);
}

typedef struct Ctx {
        DType dt;
        bool *grad, *wide, *narrow;
} Ctx;

/* How results are stored whose op has a rule of its own. */
static DType own_type(const Ctx *c, Graph *g, const Node *o, Ref r, const Ref *in, bool narrow)
{
        switch (o->op) {
        case OP_CAST: return o->type.dt;
        case OP_LINEAR_CE_GRAD: return narrow && !o->a.ce.both ? c->dt : DT_F32;
        case OP_ACCUM: return c->narrow[r] ? c->dt : DT_F32;
        default: { /* item */
                const Node *from = NODE(g, in[0]);
                const int dx = from->op == OP_LINEAR_CE_GRAD && from->a.ce.both ? 1 : -1;
                return (from->op == OP_ATTENTION_GRAD || o->a.item.index == dx) &&
                                       is_narrow(g, from->in[0])
                               ? c->dt
                               : DT_F32;
        }
        }
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Ctx *c = ctx;
        const Node *o = NODE(old, r);
        Ref in[MAX_IN];
        DType dt = DT_F32;
        bool narrow = false;
        for (int i = 0; i < o->n_in; i++) {
                in[i] = map[o->in[i]];
                narrow |= is_narrow(g, in[i]) && !op_input_is(o->op, i, '!');
        }
        if (o->type.dt == DT_I32)
                return graph_copy_node(old, r, g, map);
        for (int i = 0; i < o->n_in; i++)
                if (op_input_is(o->op, i, '!'))
                        in[i] = graph_cast(g, in[i], DT_F32);
                else if (narrow && op_input_is(o->op, i, '='))
                        in[i] = graph_cast(g, in[i], c->dt);
        if (op_info[o->op].cls == CLASS_ATTENTION && att_extra(o)) {
                const int mask = att_extra(o); /* kernels read masks and slopes as floats */
                in[mask] = graph_cast(g, in[mask], DT_F32);
        }
        switch (op_info[o->op].stored) {
        case STORED_AUTO: dt = narrow && !c->grad[r] && !c->wide[r] ? c->dt : DT_F32; break;
        case STORED_ANY: dt = narrow ? c->dt : DT_F32; break;
        case STORED_F32: break;
        case STORED_POLICY: dt = c->dt; break;
        case STORED_FIRST: dt = NODE(g, in[0])->type.dt; break;
        case STORED_OWN: dt = own_type(c, g, o, r, in, narrow); break;
        }
        Ref n = graph_copy_node(old, r, g, map);
        /* casts were added before the copy was made; it reads them */
        for (int i = 0; i < o->n_in; i++)
                NODE(g, n)->in[i] = in[i];
        NODE(g, n)->type.dt = dt;
        return n;
}

void precision(Graph *g, DType dt)
{
        if (dt == DT_F32)
                return;
        size_t n = (size_t)g->n_nodes;
        Ctx c = { dt, mem_new(n), mem_new(n), mem_new(n) };
        if (dt == DT_BF16)
                mark_narrow(g, c.narrow);
        mark_grads(g, c.grad);
        mark_wide(g, c.wide);
        graph_rebuild(g, visit, &c);
        free(c.grad);
        free(c.wide);
        free(c.narrow);
}
