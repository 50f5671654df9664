/* cache_kv.c: keys and values of earlier calls come from a cache.
 *
 *      attention(q, k, v)  ->  attention(q, append(%kcache, k), append(%vcache, v))
 *
 * The caches are states (B,S,K,D) with S the context, one pair a layer; append
 * writes rows pos[b] .. pos[b]+T-1 and its result is the whole cache, of which
 * attention reads the first pos[b]+T rows.
 *
 * last_token: what comes after the last mixing of tokens is computed for the last
 * token of each sequence only: a gather of rows b*T + T-1 is put where the chain of
 * row-wise ops that leads to the logits begins.  A value that something else reads too
 * (a loss) stays whole. */
#include "../compiler.h"
#include <string.h>

typedef struct Ctx { int layer; } Ctx;

static Ref cached(Graph *g, Ref x, const char *what, int layer, Loc loc)
{
        const Type *t = &NODE(g, x)->type;
        Type s = type_of(t->dt, 4, t->dim[0], DIM_SYM(SYM_S), t->dim[2], t->dim[3]);
        Attr a = { .cache = { layer } };
        Ref state = graph_leaf(g, OP_STATE, s, &a, loc, arena_fmt(g->arena, "cache.%s%d", what, layer));
        return graph_add(g, OP_APPEND, (Ref[]) { state, x }, 2, NULL, loc,
                         arena_fmt(g->arena, "cached.%s%d", what, layer));
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Ref n = graph_copy_node(old, r, g, map);
        int *layer = &((Ctx *)ctx)->layer;
        if (NODE(g, n)->op == OP_ATTENTION) {
                /* the copy was only needed for its fields: take it back, add the appends before it */
                Node att = *NODE(g, n);
                g->n_nodes--;
                Ref k = cached(g, att.in[1], "k", *layer, att.loc);
                Ref v = cached(g, att.in[2], "v", *layer, att.loc);
                Ref in[4] = { att.in[0], k, v, att.in[3] };
                (*layer)++;
                return graph_add(g, OP_ATTENTION, in, att.n_in, &att.a, att.loc, att.name);
        }
        return n;
}

void cache_kv(Graph *g, Arena *tmp)
{
        Ctx c = { 0 };
        (void)tmp;
        graph_rebuild(g, visit, &c);
}

static bool has_tokens(const Type *t)
{
        for (int i = 0; i < t->rank; i++)
                if (t->dim[i].e[SYM_T])
                        return true;
        return false;
}

typedef struct Last { bool *after; Ref cut, row; } Last;         /* row: what those after the cut read */

static Type without_tokens(Type t)
{
        for (int i = 0; i < t.rank; i++)
                t.dim[i].e[SYM_T] = 0;
        return t;
}

static Ref visit_last(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Last *c = ctx;
        Node *n = NODE(old, r);
        if (c->after[r]) {                              /* the same op on one row a sequence */
                Ref in[MAX_IN];
                for (int i = 0; i < n->n_in; i++)
                        in[i] = n->in[i] == c->cut ? c->row : map[n->in[i]];
                Type t = without_tokens(n->type);
                return graph_typed(g, n->op, &t, in, n->n_in, &n->a, n->loc, n->name);
        }
        Ref m = graph_copy_node(old, r, g, map);
        if (r == c->cut) {
                Type t = n->type, flat = type_of(t.dt, 2, dim_mul(t.dim[0], t.dim[1]), t.dim[t.rank - 1]);
                Ref last = graph_leaf(g, OP_LAST_ROW, type_of(DT_I32, 1, t.dim[0]), NULL, n->loc,
                                      graph_name(g, "last_row"));
                Ref row = graph_reshape(g, m, flat);
                row = graph_add(g, OP_GATHER, (Ref[]){ row, last }, 2, NULL, n->loc, graph_name(g, n->name));
                c->row = graph_reshape(g, row, without_tokens(t));
        }
        return m;
}

void last_token(Graph *g, Arena *tmp)
{
        Ref r = graph_out(g, "logits");
        Last c = { arena_alloc(tmp, (size_t)g->n_nodes), 0, 0 };
        if (!r)
                return;
        graph_count_uses(g);
        while (NODE(g, r)->uses == 1) {
                const Node *n = NODE(g, r);
                Class cls = op_info[n->op].cls;
                Ref next = 0;
                int carriers = 0;
                for (int i = 0; i < n->n_in; i++)
                        if (has_tokens(&NODE(g, n->in[i])->type)) {
                                carriers++;
                                next = n->in[i];
                        }
                bool rowwise = carriers == 1 && n->op != OP_ROPE && n->op != OP_DROPOUT &&
                               (cls == CLASS_MAP || cls == CLASS_ROW ||
                                (n->op == OP_MATMUL && !n->a.mm.ta && next == n->in[0]) ||
                                (n->op == OP_RESHAPE && n->type.rank == NODE(g, n->in[0])->type.rank));
                /* only along [B,T,C] -> [B,T,C'] */
                if (!rowwise || NODE(g, next)->type.rank != 3 || !dim_eq(NODE(g, next)->type.dim[1], DIM_SYM(SYM_T)))
                        break;
                c.after[r] = true;
                r = next;
        }
        if (NODE(g, r)->type.rank != 3 || !dim_eq(NODE(g, r)->type.dim[1], DIM_SYM(SYM_T)))
                return;
        c.cut = r;
        bool all = r == graph_out(g, "logits");         /* nothing is saved, but the logits are those asked for */
        graph_rebuild(g, visit_last, &c);
        for (int i = 0; all && i < g->n_out; i++)
                if (!strcmp(g->out[i].name, "logits"))
                        g->out[i].ref = c.row;
        graph_sweep(g);
}
