/* fuse_bytes.c: counts the bytes of global memory that a kernel moves (fuse_bytes.h).
 *
 * A kernel loads each outside value once, however many of its nodes read it.  It stores those of
 * its values that are read outside.  A slice counts its own elements; an expanded value counts the
 * elements before expansion; a gather counts the rows that it picks.  A value without storage (a
 * fill, a position) costs nothing.  An update in place counts as one store.
 *
 * Unknown B and T count as 1: they are the same factor in every value of a prompt. */
#include "fuse_bytes.h"
#include "../../codegen/lower/lower.h"

struct FuseBytes {
        KernelOrder *o;
        Sizes sizes;
        int *seen, stamp; /* values counted already */
        bool *out;        /* values that leave the program */
};

FuseBytes *fuse_bytes_new(KernelOrder *o, Arena *a)
{
        FuseBytes *b = arena_alloc(a, sizeof *b);
        const Graph *g = o->g;
        *b = (FuseBytes) { .o = o, .sizes = g->sizes };
        for (int s = 0; s < N_SYM; s++)
                if (!b->sizes.v[s])
                        b->sizes.v[s] = 1;
        b->seen = arena_alloc(a, (size_t)g->n_nodes * sizeof *b->seen);
        b->out = arena_alloc(a, (size_t)g->n_nodes * sizeof *b->out);
        for (int i = 0; i < g->n_out; i++)
                b->out[o->base[g->out[i].ref]] = true;
        return b;
}

static bool is_inside(const FuseBytes *b, const Together *k, Ref r)
{
        const int id = b->o->g->node[r].group;
        return r == k->node[0] || r == k->node[1] ||
               (id && (id == k->kernel[0] || id == k->kernel[1]));
}

static int64_t elements(const FuseBytes *b, Ref r)
{
        return type_count(&b->o->g->node[r].type, &b->sizes);
}

/* Input i of node r. */
static int64_t loaded(FuseBytes *b, const Together *k, Ref r, int i)
{
        const Graph *g = b->o->g;
        const Node *n = &g->node[r];
        Ref v = n->in[i];
        int64_t elems = elements(b, v);
        if (op_updates(n->op, i) || n->op == OP_ITEM || is_inside(b, k, b->o->base[v]))
                return 0;
        while (op_is_view(g->node[v].op)) {
                v = g->node[v].in[0];
                elems = elements(b, v) < elems ? elements(b, v) : elems;
        }
        if (is_inside(b, k, v) || (is_virtual(g, v) && !g->node[v].group))
                return 0;
        if (op_reads(n->op, i) == 'm')
                elems = elements(b, r) < elems ? elements(b, r) : elems;
        const Ref what = elems == elements(b, v) ? v : n->in[i];
        if (b->seen[what] == b->stamp)
                return 0;
        b->seen[what] = b->stamp;
        return elems * dt_size[g->node[v].type.dt];
}

static int64_t stored(const FuseBytes *b, const Together *k, Ref r)
{
        const KernelOrder *o = b->o;
        const Node *n = &o->g->node[r];
        bool needed = b->out[r];
        if (op_updates(n->op, 0))
                return n->n_in < 2 ? 0 : elements(b, n->in[1]) * dt_size[n->type.dt];
        for (int i = o->base_readers.start[r]; i < o->base_readers.start[r + 1] && !needed; i++) {
                const Ref u = o->base_readers.reader[i];
                const Op op = o->g->node[u].op; /* an item is another result of the same op */
                needed = !op_is(op, FACT_FOLLOWED) && op != OP_ITEM && !is_inside(b, k, u);
        }
        return needed ? elements(b, r) * dt_size[n->type.dt] : 0;
}

static int64_t moved(FuseBytes *b, const Together *k, Ref r)
{
        const Node *n = &b->o->g->node[r];
        int64_t sum = stored(b, k, r);
        for (int i = 0; i < n->n_in; i++)
                sum += loaded(b, k, r, i);
        return sum;
}

int64_t kernel_bytes(FuseBytes *b, const Together *k)
{
        int64_t sum = 0;
        b->stamp++;
        for (int i = 0; i < 2; i++) {
                if (k->node[i])
                        sum += moved(b, k, k->node[i]);
                for (Ref r = k->kernel[i] ? b->o->first[k->kernel[i]] : 0; r; r = b->o->next[r])
                        sum += moved(b, k, r);
        }
        return sum;
}

int64_t saved_bytes(FuseBytes *b, const Together *one, const Together *other)
{
        const Together both = { { one->kernel[0], other->kernel[0] },
                                { one->node[0], other->node[0] } };
        return kernel_bytes(b, one) + kernel_bytes(b, other) - kernel_bytes(b, &both);
}
