/* keep_parts.c: stores the slices of a GEMM that are read, not the whole result.
 * needs: types.   keeps: types.   Runs after differentiate, before fusion.
 *
 *      %qkv = matmul %x, %w                              %qkv = matmul %x, %w
 *      %q = rope (slice %qkv)                            %q = rope (slice %qkv)
 *      %v = slice %qkv                           ->      %v = cast (slice %qkv)
 *      %y = attention %q, %k, %v                         %y = attention %q, %k, %v
 *
 * The GEMM's epilogue rotates q and k, and stores them rotated.  If attention read v inside the
 * GEMM's result, that whole result would be stored for v alone.  So v gets a copy of its own.  Only
 * slices beside rotated ones are copied: others may have readers in the backward pass that need the
 * whole. */
#include "../compiler.h"
#include "../../codegen/lower/lower.h"

typedef enum { UNREAD, ROTATED, READ, OTHER } PartUse; /* of a part; the larger one counts */

/* What r, or a reshape of it, is read by. */
static PartUse use_of(const Graph *g, const Readers *all, Ref r)
{
        PartUse use = UNREAD;
        for (int i = 0; i < g->n_out; i++)
                if (g->out[i].ref == r)
                        return OTHER;
        for (int i = all->start[r]; i < all->start[r + 1]; i++) {
                const Ref u = all->reader[i];
                Op op = g->node[u].op;
                PartUse here = op == OP_ROPE      ? ROTATED
                               : op == OP_RESHAPE ? use_of(g, all, u)
                               : is_member(g, u) || op_info[op].cls == CLASS_VIEW ? OTHER
                                                                                  : READ;
                use = here > use ? here : use;
        }
        return use;
}

/* Is product r read through parts alone, of which some are only rotated and the others not by
 * elementwise ops? */
static bool worth(const Graph *g, const Readers *all, Ref r, bool *copy)
{
        bool rotated = false, read = false;
        for (int i = 0; i < g->n_out; i++)
                if (g->out[i].ref == r)
                        return false;
        for (int i = all->start[r]; i < all->start[r + 1]; i++) {
                const Ref u = all->reader[i];
                PartUse use = g->node[u].op == OP_SLICE ? use_of(g, all, u) : OTHER;
                if (use == OTHER)
                        return false;
                rotated |= use == ROTATED;
                read |= use == READ;
        }
        for (int i = all->start[r]; rotated && read && i < all->start[r + 1]; i++)
                if (use_of(g, all, all->reader[i]) == READ)
                        copy[all->reader[i]] = true;
        return rotated && read;
}

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *copy)
{
        Ref n = graph_copy_node(old, r, g, map);
        if (!((bool *)copy)[r])
                return n;
        Type t = NODE(g, n)->type;
        return graph_typed(g, OP_CAST, &t, &n, 1, NULL, NODE(old, r)->loc,
                           graph_name(g, NODE(old, r)->name));
}

void keep_parts(Graph *g, Arena *tmp)
{
        bool *copy = arena_alloc(tmp, (size_t)g->n_nodes), any = false;
        const Readers all = graph_readers(g, NULL, tmp);
        for (Ref r = 1; r < g->n_nodes; r++)
                if (g->node[r].op == OP_MATMUL)
                        any |= worth(g, &all, r, copy);
        if (any)
                graph_rebuild(g, visit, copy);
}
