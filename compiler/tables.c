/* tables.c: ensures that every index stays within its table.
 *
 * Kernels do not check indices.  ir/indices.c says which inputs are indices; ranges.c bounds them.
 * Three cases:
 *
 *      it stays inside    proved by its bounds: nothing to do
 *      it will leave      a position beyond the context or window, an id beyond the vocabulary: the
 *                         user's mistake, refused with its line
 *      not known          it comes from parameters, floats or other inputs: the index gets a clamp,
 *                         an elementwise op like any other
 *
 * The order that expert GEMMs sort by comes from one bucket, and the runtime fills `documents`:
 * neither needs a check. */
#include "compiler.h"
#include <math.h>
#include <string.h>

/* Up to here every whole number is a float32, and clamps are computed in that. */
enum { MOST_CLAMPED = 1 << 24 };

typedef struct Limits {
        const Model *m;
        const CompileOptions *o;
        int length;    /* positions of the longest sequence, */
        bool by_block; /* which is a training window's */
        Sizes least, most;
} Limits;

static Limits limits(const Model *m, const CompileOptions *o, int ctx, int block)
{
        const bool by_block = o->train && (!o->infer || block > ctx);
        const int T = ctx > block ? ctx : block;
        Limits l = { .m = m, .o = o, .length = by_block ? block : ctx, .by_block = by_block };
        l.least = (Sizes) { { 1, 1, 1 } };
        if (!o->infer)
                l.least = (Sizes) { { o->batch, block, 1 } };
        l.most = (Sizes) { { o->sequences > o->batch ? o->sequences : o->batch, T, T } };
        return l;
}

/* has: "position table %wpe.weight has 64 rows". */
static _Noreturn void too_short(const Limits *l, Loc loc, const char *has, int64_t rows,
                                int64_t need)
{
        const char *option = l->by_block ? "--block-size" : "--ctx-size";
        const bool given = l->by_block ? l->o->block : l->o->ctx;
        const long long fits = rows - (need - l->length);
        char longer[64] = "or give it more";
        if (l->o->has_params && rows == l->m->ctx)
                snprintf(longer, sizeof longer, "or with -D ctx=%lld", (long long)need);
        if (fits < 1)
                error_at(loc, "%s, %d tokens need %lld", has, l->length, (long long)need);
        error_code(given ? 2 : 3, loc, "%s, %s %d needs %lld; compile with %s %lld, %s", has,
                   given ? option : "the model's ctx of", l->length, (long long)need, option, fits,
                   longer);
}

/* An index that will leave its table; outside: it is never within. */
static _Noreturn void beyond(const Graph *g, const Node *n, int i, const Range *index, int64_t rows,
                             const Limits *l)
{
        const Node *from = NODE(g, n->in[i]);
        char has[300];
        if (n->op == OP_BUCKET)
                snprintf(has, sizeof has, "bucket sorts into %lld buckets", (long long)rows);
        else
                snprintf(has, sizeof has, "%stable %%%.200s has %lld rows",
                         index->position ? "position " : "",
                         NODE(g, n->in[n->op == OP_EXPERT_ROWS ? 1 : 0])->name, (long long)rows);
        if (index->least >= 0 && index->position && n->op == OP_GATHER)
                too_short(l, n->loc, has, rows, (int64_t)index->most + 1);
        if (index->least >= 0 && index->ids && n->op == OP_GATHER)
                error_at(n->loc,
                         "%s, and ids need %lld: there are %lld logits, and what they choose is "
                         "the next id; give it as many rows",
                         has, (long long)index->most + 1, (long long)l->m->vocab);
        error_at(n->loc,
                 "%s, and the index %%%.200s runs from %.0f to %.0f; bound it by 0 and %lld", has,
                 from->name, index->least + 0., index->most + 0., (long long)rows - 1);
}

/* The bucket of which r is result `index`. */
static Ref bucket_of(const Graph *g, Ref r, int index)
{
        while (NODE(g, r)->op == OP_RESHAPE ||
               (NODE(g, r)->op == OP_CAST && NODE(g, NODE(g, r)->in[0])->type.dt == DT_I32))
                r = NODE(g, r)->in[0];
        if (index && (NODE(g, r)->op != OP_ITEM || NODE(g, r)->a.item.index != index))
                return 0;
        r = index ? NODE(g, r)->in[0] : r;
        return NODE(g, r)->op == OP_BUCKET ? r : 0;
}

/* What perm and offs, inputs i and i + 1, must be. */
static bool sorted(const Graph *g, const Node *n, int i)
{
        const Ref bucket = bucket_of(g, n->in[i], 0);
        return bucket && bucket == bucket_of(g, n->in[i + 1], 1);
}

static bool is_documents(const Graph *g, Ref r)
{
        return NODE(g, r)->op == OP_INPUT && !strcmp(NODE(g, r)->name, "documents");
}

/* Does input i need a clamp to `rows`?  error_at if it is wrong. */
static bool needs_clamp(const Graph *g, const Node *n, int i, const Range *at, const Limits *l,
                        Dim *rows)
{
        const Range *index = &at[n->in[i]];
        switch (index_kind(g, n, i, rows)) {
        case INDEX_PERM:
                if (!sorted(g, n, i))
                        error_at(n->loc, "%s: %%%s and %%%s must be the two results of one bucket",
                                 op_info[n->op].text, NODE(g, n->in[i])->name,
                                 NODE(g, n->in[i + 1])->name);
                return false;
        case INDEX_DOCUMENTS:
                if (!is_documents(g, n->in[i]))
                        error_at(n->loc,
                                 "%s: documents are the input `documents`, which the runtime fills",
                                 op_info[n->op].text);
                return false;
        case INDEX_BELOW: break;
        default: return false;
        }
        const double least = (double)dim_value(*rows, &l->least),
                     most = (double)dim_value(*rows, &l->most);
        if (range_below(index, *rows, least))
                return false;
        if (!index->nan &&
            (index->most < 0 || index->least >= most || (index->exact && dim_is_const(*rows))))
                beyond(g, n, i, index, (int64_t)most, l);
        if (most > MOST_CLAMPED)
                error_at(n->loc,
                         "%s: %%%s picks of up to %.0f rows, and of the index %%%s nothing is "
                         "known; an index that is computed is exact up to %d",
                         op_info[n->op].text, n->name, most, NODE(g, n->in[i])->name,
                         (int)MOST_CLAMPED);
        return true;
}

/* A mask has a column for each key, and a row for each query, or one for all. */
static void check_mask(const Graph *g, const Node *n, const Limits *l)
{
        const Node *mask = n->a.att.mask && att_extra(n) ? NODE(g, n->in[att_extra(n)]) : NULL;
        char has[300];
        if (!mask || !mask->type.rank || dim_is_const(NODE(g, n->in[1])->type.dim[1]))
                return;
        Dim keys = mask->type.dim[mask->type.rank - 1];
        snprintf(has, sizeof has, "mask %%%.200s has %lld columns", mask->name, (long long)keys.n);
        if (dim_is_const(keys) && keys.n < l->length)
                too_short(l, n->loc, has, keys.n, l->length);
        Dim rows = mask->type.rank > 1 ? mask->type.dim[mask->type.rank - 2] : DIM(1);
        snprintf(has, sizeof has, "mask %%%.200s has %lld rows", mask->name, (long long)rows.n);
        if (dim_is_const(rows) && rows.n != 1 && rows.n < l->length)
                too_short(l, n->loc, has, rows.n, l->length);
}

/* A sequence may be as long as the shortest table of positions. */
static void note_positions(Model *m, const Graph *g, const Node *n, const Range *index,
                           const Limits *l)
{
        const Dim rows = NODE(g, n->in[0])->type.dim[0];
        int64_t most = rows.n - ((int64_t)index->most + 1 - l->length);
        if (index->position && dim_is_const(rows) && index->most < rows.n &&
            (!m->positions || most < m->positions))
                m->positions = most;
}

/* bit i: input i, of that many rows */
typedef struct Clamps {
        unsigned char *input;
        Dim *rows;
} Clamps;

static Ref visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Clamps *c = ctx;
        const Dim d = c->rows[r];
        const Attr a = { .below = { d.n, d.e[SYM_B], d.e[SYM_T], d.e[SYM_S] } };
        Ref in[MAX_IN];
        for (int i = 0; i < NODE(old, r)->n_in; i++) {
                in[i] = map[NODE(old, r)->in[i]];
                if (c->input[r] >> i & 1)
                        in[i] = graph_typed(g, OP_CLAMP, NULL, &in[i], 1, &a, NODE(old, r)->loc,
                                            graph_name(g, NODE(g, in[i])->name));
        }
        Ref n = graph_copy_node(old, r, g, map);
        for (int i = 0; i < NODE(old, r)->n_in; i++)
                NODE(g, n)->in[i] = in[i];
        return n;
}

static RangeFacts facts(const Limits *l)
{
        return (RangeFacts) { .vocab = l->m->vocab, .length = l->length, .dt = l->o->dtype };
}

void check_tables(Model *m, const CompileOptions *o, int ctx, int block)
{
        Graph *g = m->graph;
        const Limits l = limits(m, o, ctx, block);
        const RangeFacts f = facts(&l);
        const size_t n = (size_t)g->n_nodes;
        Range *at = ranges(g, &f, m->arena);
        Clamps c = { arena_alloc(m->arena, n), arena_alloc(m->arena, n * sizeof *c.rows) };
        bool any = false;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *x = NODE(g, r);
                for (int i = 0; i < x->n_in; i++)
                        if (needs_clamp(g, x, i, at, &l, &c.rows[r])) {
                                c.input[r] |= (unsigned char)(1u << i);
                                any = true;
                        }
                if (x->op == OP_GATHER)
                        note_positions(m, g, x, &at[x->in[1]], &l);
                else if (x->op == OP_ATTENTION)
                        check_mask(g, x, &l);
        }
        if (any)
                graph_rebuild(g, visit, &c);
}

void check_program_tables(const Graph *g, const Model *m, const CompileOptions *o, int ctx,
                          int block)
{
        const Limits l = limits(m, o, ctx, block);
        const RangeFacts f = facts(&l);
        Arena *tmp = arena_new();
        const Range *at = ranges(g, &f, tmp);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                Dim rows;
                for (int i = 0; i < n->n_in; i++) {
                        bool ok = true;
                        switch (index_kind(g, n, i, &rows)) {
                        case INDEX_BELOW:
                                ok = range_below(&at[n->in[i]], rows,
                                                 (double)dim_value(rows, &l.least));
                                break;
                        case INDEX_PERM: ok = sorted(g, n, i); break;
                        case INDEX_DOCUMENTS: ok = is_documents(g, n->in[i]); break;
                        default: break;
                        }
                        if (!ok)
                                error_internal(
                                        n->loc,
                                        "%%%s of @%s picks from outside of its table by %%%s",
                                        n->name, g->name, NODE(g, n->in[i])->name);
                }
        }
        arena_free(tmp);
}
