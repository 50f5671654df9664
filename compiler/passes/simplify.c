/* simplify.c: removes nodes that compute nothing, and computes equal things once.
 * needs: types.   keeps: types, names of what stays.
 *
 * - two nodes with the same op, attributes, inputs and type are one
 * - reshape of reshape, reshape to the same shape, scale by 1, offset by 0,
 *   double negation, transposition there and back, item 0 go away
 * - an expand that only elementwise ops read goes away: they broadcast
 * - scale by 0 becomes a fill, so that its input may die
 * Leaves, dropout (its id tells masks apart) and updates are never merged with
 * others unless equal in everything. */
#include "../compiler.h"
#include <stdlib.h>
#include <string.h>

typedef struct Ctx {
        Ref *slot; /* hash table of new nodes */
        unsigned cap;
        bool *maps_only; /* of old nodes: all readers are MAPs */
} Ctx;

static unsigned mix(unsigned h, const void *p, size_t n)
{
        for (const unsigned char *s = p; n--; s++)
                h = (h ^ *s) * 16777619u;
        return h;
}

static bool same(const Node *a, const Node *b)
{
        return a->op == b->op && a->n_in == b->n_in && type_eq(&a->type, &b->type) &&
               !memcmp(a->in, b->in, sizeof a->in) && attr_equal(a->op, &a->a, &b->a);
}

static Ref unique(Graph *g, Ref r, Ctx *c)
{
        const Node *n = NODE(g, r);
        Class cls = op_info[n->op].cls;
        unsigned h;
        if ((cls == CLASS_LEAF && n->op != OP_CONST) || cls == CLASS_UPDATE || n->op == OP_CONST)
                return r;
        h = mix(2166136261u, &n->op, sizeof n->op);
        h = mix(h, n->in, sizeof n->in);
        for (const AttrField *f = attr_fields[op_info[n->op].attr]; f->name; f++)
                h = mix(h, (const char *)&n->a + f->offset, attr_bytes(f));
        for (h &= c->cap - 1; c->slot[h]; h = (h + 1) & (c->cap - 1))
                if (same(NODE(g, c->slot[h]), n)) {
                        graph_pop(g); /* it was just appended */
                        return c->slot[h];
                }
        return c->slot[h] = r;
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Node *n = NODE(old, r);
        Ref a = n->n_in ? map[n->in[0]] : 0;
        const Node *in = a ? NODE(g, a) : NULL;
        switch (n->op) {
        case OP_RESHAPE:
                if (shape_eq(&n->type, &in->type))
                        return a;
                if (in->op == OP_RESHAPE) {
                        Ref b = in->in[0];
                        if (shape_eq(&NODE(g, b)->type, &n->type))
                                return b;
                        Ref s = graph_copy_node(old, r, g, map);
                        NODE(g, s)->in[0] = b;
                        return unique(g, s, ctx);
                }
                break;
        case OP_EXPAND:
                if (shape_eq(&n->type, &in->type) || ((Ctx *)ctx)->maps_only[r])
                        return a;
                break;
        case OP_CAST:
                if (type_eq(&n->type, &in->type))
                        return a;
                break;
        case OP_SCALE:
                if (n->a.num.x == 1)
                        return a;
                if (n->a.num.x == 0) {
                        Attr z = { .num = { 0 } };
                        return unique(g, graph_leaf(g, OP_FILL, n->type, &z, n->loc, n->name), ctx);
                }
                if (in->op == OP_SCALE) {
                        Ref s = graph_copy_node(old, r, g, map);
                        NODE(g, s)->a.num.x *= in->a.num.x;
                        NODE(g, s)->in[0] = in->in[0];
                        return unique(g, s, ctx);
                }
                break;
        case OP_OFFSET:
                if (n->a.num.x == 0)
                        return a;
                break;
        case OP_NEG:
                if (in->op == OP_NEG)
                        return in->in[0];
                break;
        case OP_ITEM: /* the first result is the node itself */
                if (n->a.item.index == 0)
                        return a;
                break;
        case OP_TRANSPOSE:
                if (in->op == OP_TRANSPOSE && shape_eq(&NODE(g, in->in[0])->type, &n->type)) {
                        bool back = true;
                        for (int i = 0; i < n->type.rank; i++)
                                back &= in->a.perm.perm[n->a.perm.perm[i]] == i;
                        if (back)
                                return in->in[0];
                }
                break;
        default: break;
        }
        return unique(g, graph_copy_node(old, r, g, map), ctx);
}

void simplify(Graph *g, Arena *tmp)
{
        for (int round = 0; round < 3; round++) {
                int before = g->n_nodes;
                Ctx c = { .cap = 1024 };
                while (c.cap < (unsigned)g->n_nodes * 4)
                        c.cap *= 2;
                c.slot = arena_alloc(tmp, c.cap * sizeof *c.slot);
                c.maps_only = arena_alloc(tmp, (size_t)g->n_nodes);
                memset(c.maps_only, 1, (size_t)g->n_nodes);
                for (Ref r = 1; r < g->n_nodes; r++)
                        for (int i = 0; i < NODE(g, r)->n_in; i++) {
                                const Node *n = NODE(g, r), *in = NODE(g, n->in[i]);
                                Type full = n->type;
                                full.dt = in->type.dt;
                                /* the reader must still have its shape without the expand */
                                bool other = false;
                                for (int j = 0; j < n->n_in; j++)
                                        other |= j != i && NODE(g, n->in[j])->op != OP_EXPAND &&
                                                 shape_eq(&NODE(g, n->in[j])->type, &n->type);
                                if (op_info[n->op].cls != CLASS_MAP ||
                                    op_info[n->op].shape != op_info[OP_ADD].shape ||
                                    !shape_eq(&full, &in->type) || !other)
                                        c.maps_only[n->in[i]] = false;
                        }
                for (int i = 0; i < g->n_out; i++)
                        c.maps_only[g->out[i].ref] = false;
                graph_rebuild(g, visit, &c);
                graph_sweep(g);
                if (g->n_nodes == before)
                        break;
        }
}
