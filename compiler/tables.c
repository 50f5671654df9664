/* tables.c: what picks rows of a table stays within it.
 *
 * Kernels do not look: the row after the last is somebody else's memory.  Positions run to the end of the context or of
 * the training window, ids to that of the vocabulary; where an index is made of them by sums, bounds and casts, its largest
 * value is known here and compared with the table.  Of other indices nothing is known: a sort's are in range by itself. */
#include "compiler.h"
#include <math.h>
#include <string.h>

/* Values of a node; not a number: not known. */
typedef struct Range { double least, most; bool position; } Range;

typedef struct Limits {
        const Model *m;
        const CompileOptions *o;
        int  length;                    /* positions of the longest sequence, */
        bool by_block;                  /* which is a training window's */
} Limits;

static double lower(double x, double y) { return x <= y ? x : x > y ? y : NAN; }
static double upper(double x, double y) { return x >= y ? x : x < y ? y : NAN; }

static Range range_of_input(const Node *n, const Limits *l)
{
        if (!strcmp(n->name, "ids") && l->m->vocab)
                return (Range){ 0, (double)l->m->vocab - 1, false };
        if (!strcmp(n->name, "documents"))
                return (Range){ 0, l->length, false };
        return (Range){ NAN, NAN, false };
}

/* r: those of its inputs. */
static Range range_of(const Node *n, const Range *r, const Limits *l)
{
        const Range none = { NAN, NAN, false }, a = n->n_in > 0 ? r[n->in[0]] : none, b = n->n_in > 1 ? r[n->in[1]] : none;
        const bool position = a.position || b.position;
        const double x = n->a.num.x;
        switch (n->op) {
        case OP_POSITION: return (Range){ 0, l->length - 1, true };
        case OP_INPUT:    return range_of_input(n, l);
        case OP_FILL:     return (Range){ x, x, false };
        case OP_ADD:      return (Range){ a.least + b.least, a.most + b.most, position };
        case OP_SUB:      return (Range){ a.least - b.most, a.most - b.least, position };
        case OP_MIN:      return (Range){ lower(a.least, b.least), lower(a.most, b.most), position };
        case OP_MAX:      return (Range){ upper(a.least, b.least), upper(a.most, b.most), position };
        case OP_OFFSET:   return (Range){ a.least + x, a.most + x, position };
        case OP_SCALE:    return (Range){ lower(a.least * x, a.most * x), upper(a.least * x, a.most * x), position };
        case OP_RELU:     return (Range){ upper(a.least, 0), upper(a.most, 0), position };
        case OP_CAST:
        case OP_RESHAPE:
        case OP_EXPAND:
        case OP_SLICE:
        case OP_TRANSPOSE: return a;
        default:          return none;
        }
}

/* has: "position table %wpe.weight has 64 rows". */
static _Noreturn void too_short(const Limits *l, Loc loc, const char *has, int64_t rows, int64_t need)
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
                   given ? option : "the model's ctx of", l->length, (long long)need, option, fits, longer);
}

static void check_gather(const Graph *g, const Node *n, const Range *index, const Limits *l)
{
        const Node *table = NODE(g, n->in[0]);
        const int64_t rows = table->type.dim[0].n;
        char has[300];
        if (!dim_is_const(table->type.dim[0]) || !(floor(index->most) >= (double)rows))
                return;
        snprintf(has, sizeof has, "%stable %%%.200s has %lld rows", index->position ? "position " : "", table->name,
                 (long long)rows);
        if (index->position)
                too_short(l, n->loc, has, rows, (int64_t)index->most + 1);
        error_at(n->loc, "%s, and ids need %lld: there are %lld logits, and what they choose is the next id; give it as "
                 "many rows", has, (long long)index->most + 1, (long long)l->m->vocab);
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
static void note_positions(Model *m, const Graph *g, const Node *n, const Range *index, const Limits *l)
{
        const Dim rows = NODE(g, n->in[0])->type.dim[0];
        int64_t most = rows.n - ((int64_t)index->most + 1 - l->length);
        if (index->position && dim_is_const(rows) && isfinite(index->most) && (!m->positions || most < m->positions))
                m->positions = most;
}

void check_tables(Model *m, const CompileOptions *o, int ctx, int block)
{
        const Graph *g = m->graph;
        const bool by_block = o->train && (!o->infer || block > ctx);
        const Limits l = { m, o, by_block ? block : ctx, by_block };
        Range *r = arena_alloc(m->arena, (size_t)g->n_nodes * sizeof *r);
        for (Ref i = 1; i < g->n_nodes; i++) {
                const Node *n = NODE(g, i);
                r[i] = range_of(n, r, &l);
                if (n->op == OP_GATHER) {
                        check_gather(g, n, &r[n->in[1]], &l);
                        note_positions(m, g, n, &r[n->in[1]], &l);
                } else if (n->op == OP_ATTENTION) {
                        check_mask(g, n, &l);
                }
        }
}
