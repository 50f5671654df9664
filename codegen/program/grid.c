/* grid.c: how many blocks a launch has, as a value; its text is the manifest's EXPR.
 *
 * B and T that the program knows are numbers here. */
#include "program.h"

Grid grid_blocks(int64_t n) { return (Grid) { .n = 1, .factor = { { .of = DIM(n) } } }; }

Grid grid_dim(const Emit *e, Dim d)
{
        return (Grid) { .n = 1, .factor = { { .of = dim_here(e, d) } } };
}

Grid grid_ceil(const Emit *e, Dim d, int64_t by)
{
        return (Grid) { .n = 1, .factor = { { .of = dim_here(e, d), .by = by } } };
}

Grid grid_ragged(const Emit *e, Dim d, int64_t by)
{
        Grid g = grid_ceil(e, d, by);
        g.factor[0].sequences = true;
        return g;
}

Grid grid_times(Grid a, Grid b)
{
        if (a.n + b.n > MOST_FACTORS)
                error_internal((Loc) { 0 }, "a grid has more than %d factors", MOST_FACTORS);
        for (int i = 0; i < b.n; i++)
                a.factor[a.n++] = b.factor[i];
        return a;
}

bool grid_equal(const Grid *a, const Grid *b)
{
        bool same = a->n == b->n;
        for (int i = 0; i < a->n && same; i++) {
                const GridFactor *x = &a->factor[i], *y = &b->factor[i];
                same = dim_eq(x->of, y->of) && x->by == y->by && x->sequences == y->sequences;
        }
        return same;
}

int64_t grid_count(const Grid *g)
{
        int64_t blocks = 1;
        for (int i = 0; i < g->n; i++) {
                const GridFactor *f = &g->factor[i];
                if (!dim_is_const(f->of) || f->sequences)
                        return -1;
                blocks *= f->by ? (f->of.n + f->by - 1) / f->by : f->of.n;
        }
        return blocks;
}

const char *grid_text(Arena *a, const Grid *g)
{
        const char *text = NULL;
        for (int i = 0; i < g->n; i++) {
                const GridFactor *f = &g->factor[i];
                char of[64];
                const char *s = dim_text(f->of, of);
                if (f->by)
                        s = arena_fmt(a, f->sequences ? "(ceil(%s/%lld)+B)" : "ceil(%s/%lld)", s,
                                      (long long)f->by);
                text = text ? arena_fmt(a, "%s*%s", text, s) : arena_str(a, s);
        }
        return text;
}
