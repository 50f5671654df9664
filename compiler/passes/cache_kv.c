/* cache_kv.c: reads the keys and values of earlier calls from a cache.
 *
 *      attention(q, k, v)  ->  attention(q, append(%kcache, k), append(%vcache, v))
 *
 * The caches are states (B,S,K,D) with S the context, one pair a layer.  append writes rows pos[b]
 * .. pos[b]+T-1; its result is the whole cache, of which attention reads the first pos[b]+T rows.
 * Prefill only has to fill the caches: the last token of a prompt is the first that decode
 * processes. */
#include "../compiler.h"

typedef struct Ctx {
        int layer;
} Ctx;

static Ref cached(Graph *g, Ref x, const char *what, int layer, int64_t window, Loc loc)
{
        const Type *t = &NODE(g, x)->type;
        Type s = type_of(t->dt, 4, t->dim[0], DIM_SYM(SYM_S), t->dim[2], t->dim[3]);
        Attr a = { .cache = { layer, window } };
        Ref state = graph_leaf(g, OP_STATE, s, &a, loc,
                               arena_fmt(g->arena, "cache.%s%d", what, layer));
        return graph_add(g, OP_APPEND, (Ref[]) { state, x }, 2, NULL, loc,
                         arena_fmt(g->arena, "cached.%s%d", what, layer));
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Ref n = graph_copy_node(old, r, g, map);
        int *layer = &((Ctx *)ctx)->layer;
        if (NODE(g, n)->op == OP_ATTENTION) {
                /* the copy was only needed for its fields: take it back, add the appends before
                 * it */
                Node att = *NODE(g, n);
                graph_pop(g);
                Ref k = cached(g, att.in[1], "k", *layer, att.a.att.window, att.loc);
                Ref v = cached(g, att.in[2], "v", *layer, att.a.att.window, att.loc);
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
