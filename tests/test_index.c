/* test_index.c: index values (codegen/lower/index.c) against sums over axes, and their text.
 *
 * Shapes and strides are random.  The direct evaluator takes a row and a column apart into
 * coordinates, axis by axis, and adds up coordinate times stride; the index must give the same, and
 * what it says of itself must be true of these numbers. */
#include "test.h"
#include <stdlib.h>
#include "codegen/lower/index.h"

enum { MOST_AXES = MAX_RANK, TRIALS = 20000 };

static uint64_t state = 20;

static int64_t draw(int64_t n)
{
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (int64_t)((state >> 33) % (uint64_t)n);
}

/* Axes before `split` are the rows', the others the columns'. */
typedef struct Case {
        int rank, split;
        Dim size[MOST_AXES], stride[MOST_AXES];
        int64_t off, rows, cols;
        Index ix;
} Case;

static const int64_t ids[8] = { 3, 0, 7, 1, 1, 6, 2, 5 };

/* Positions count from 100 in sequences of 4 tokens. */
static int64_t value(const Index *ix, int64_t row, int64_t col)
{
        int64_t sum = 0;
        for (int i = 0; i < ix->n; i++) {
                const Term *t = &ix->term[i];
                int64_t x = t->var == IX_ROW   ? row
                            : t->var == IX_COL ? col
                            : t->of            ? value(t->of, row, col)
                                               : 1;
                if (t->var == IX_ROW || t->var == IX_COL) {
                        x /= t->div.n;
                        x = t->mod.n ? x % t->mod.n : x;
                } else if (t->var == IX_LOADED) {
                        x = ids[x % 8];
                } else if (t->var == IX_POSITION) {
                        x = 100 + x % 4;
                } else if (t->var == IX_PLACE) {
                        x = x / 4 * t->slots.n + 100 + x % 4;
                }
                sum += x * t->coef.n;
        }
        return sum;
}

static int64_t over_axes(const Dim *size, const Dim *stride, int lo, int hi, int64_t x)
{
        int64_t sum = 0;
        for (int i = hi - 1; i >= lo; i--) {
                sum += x % size[i].n * stride[i].n;
                x /= size[i].n;
        }
        return sum;
}

static int64_t direct(const Case *c, int64_t row, int64_t col)
{
        return c->off + over_axes(c->size, c->stride, 0, c->split, row) +
               over_axes(c->size, c->stride, c->split, c->rank, col);
}

/* Half of the axes lie as if nothing were between them and the next. */
static Case random_case(void)
{
        static const int64_t sizes[] = { 1, 2, 3, 4, 8, 16 }, strides[] = { 0, 1, 2, 8, 24, 64, 5 };
        Case c = { .rank = 1 + (int)draw(MOST_AXES),
                   .off = draw(3) ? 8 * draw(4) : draw(9),
                   .rows = 1,
                   .cols = 1 };
        c.split = (int)draw(c.rank + 1);
        for (int i = c.rank - 1; i >= 0; i--) {
                c.size[i] = DIM(sizes[draw(i < c.split ? 4 : 6)]);
                c.stride[i] = DIM(strides[draw(7)]);
                if (i + 1 == c.rank && draw(2))
                        c.stride[i] = DIM(1);
                else if (i + 1 < c.rank && draw(2))
                        c.stride[i] = dim_mul(c.stride[i + 1], c.size[i + 1]);
                *(i < c.split ? &c.rows : &c.cols) *= c.size[i].n;
        }
        index_add_axes(&c.ix, IX_ROW, c.size, c.stride, c.split);
        index_add(&c.ix, (Term) { .var = IX_ONE, .coef = DIM(c.off) });
        index_add_axes(&c.ix, IX_COL, c.size + c.split, c.stride + c.split, c.rank - c.split);
        return c;
}

TEST (a_value_is_the_sum_over_axes) {
        for (int k = 0; k < TRIALS; k++) {
                const Case c = random_case();
                for (int i = 0; i < 64; i++) {
                        const int64_t row = draw(c.rows), col = draw(c.cols);
                        CHECK_MSG(value(&c.ix, row, col) == direct(&c, row, col),
                                  "case %d, row %lld, column %lld: %lld, and over axes %lld", k,
                                  (long long)row, (long long)col, (long long)value(&c.ix, row, col),
                                  (long long)direct(&c, row, col));
                }
        }
}

TEST (contiguous_and_aligned_are_true) {
        int yes = 0, wide = 0;
        for (int k = 0; k < TRIALS; k++) {
                const Case c = random_case();
                const int64_t align = index_align(&c.ix);
                const int64_t row = draw(c.rows);
                CHECK(align == 1 || align == 2 || align == 4 || align == 8);
                if (!index_contiguous(&c.ix)) {
                        CHECK(c.cols == 1 || direct(&c, 0, 1) != direct(&c, 0, 0) + 1);
                        continue;
                }
                yes++;
                wide += align == 8;
                for (int64_t col = 0; col < c.cols; col += align) {
                        const int64_t at = direct(&c, row, col);
                        CHECK_MSG(at % align == 0, "case %d: %lld is no multiple of %lld", k,
                                  (long long)at, (long long)align);
                        for (int64_t i = 1; i < align && col + i < c.cols; i++)
                                CHECK_MSG(direct(&c, row, col + i) == at + i,
                                          "case %d: column %lld + %lld", k, (long long)col,
                                          (long long)i);
                }
        }
        CHECK_MSG(yes > TRIALS / 8 && wide > TRIALS / 64, "%d contiguous, %d of them by eights",
                  yes, wide);
}

TEST (what_it_depends_on) {
        for (int k = 0; k < TRIALS; k++) {
                const Case c = random_case();
                bool row = false, col = false, twice = c.cols > 1;
                for (int i = 0; i < c.rank; i++)
                        if (c.size[i].n > 1 && c.stride[i].n)
                                *(i < c.split ? &row : &col) = true;
                for (int64_t i = 0; i < c.cols; i++)
                        twice &= direct(&c, 0, i) == c.off + 2 * i;
                CHECK(index_needs(&c.ix, IX_ROW) == row);
                CHECK(index_needs(&c.ix, IX_COL) == col);
                CHECK(index_has_base(&c.ix) == (row || c.off));
                CHECK(index_steps(&c.ix, 2) == twice);
        }
}

TEST (equal_indices_have_equal_values) {
        const Sizes s = { { 0 } };
        for (int k = 0; k < TRIALS; k++) {
                const Case c = random_case();
                Case d = c;
                const int64_t row = draw(c.rows), col = draw(c.cols);
                const int i = (int)draw(c.rank);
                CHECK(index_equal(&c.ix, &d.ix, &s));
                d.stride[i].n++;
                d.ix = (Index) { 0 };
                index_add_axes(&d.ix, IX_ROW, d.size, d.stride, d.split);
                index_add(&d.ix, (Term) { .var = IX_ONE, .coef = DIM(d.off) });
                index_add_axes(&d.ix, IX_COL, d.size + d.split, d.stride + d.split,
                               d.rank - d.split);
                CHECK(index_equal(&c.ix, &d.ix, &s) == (c.size[i].n == 1));
                if (index_equal(&c.ix, &d.ix, &s))
                        CHECK(value(&c.ix, row, col) == value(&d.ix, row, col));
        }
}

TEST (known_sizes_stand_for_their_symbols) {
        Index a = { 0 }, b = { 0 };
        const Dim T = DIM_SYM(SYM_T);
        index_add(&a, (Term) { .var = IX_ROW, .coef = dim_mul(T, DIM(2)), .div = DIM(1) });
        index_add(&b, (Term) { .var = IX_ROW, .coef = DIM(128), .div = DIM(1) });
        CHECK(index_equal(&a, &b, &(Sizes) { { 0, 64, 0 } }));
        CHECK(!index_equal(&a, &b, &(Sizes) { { 0, 32, 0 } }));
        CHECK(!index_equal(&a, &b, &(Sizes) { { 0 } }));
}

TEST (simplification) {
        const Dim whole[] = { DIM(4), DIM(8), DIM(16) };
        Index joined = { 0 }, broken = { 0 }, sum = { 0 };
        index_add_axes(&joined, IX_COL, whole, (Dim[]) { DIM(128), DIM(16), DIM(1) }, 3);
        CHECK(joined.n == 1 && joined.term[0].mod.n == 0);
        index_add_axes(&broken, IX_COL, whole, (Dim[]) { DIM(16), DIM(0), DIM(1) }, 3);
        CHECK(broken.n == 2 && broken.term[0].mod.n == 16 && broken.term[1].div.n == 128);
        index_add(&sum, (Term) { .var = IX_ONE, .coef = DIM(5) });
        index_add(&sum, (Term) { .var = IX_ROW, .coef = DIM(0), .div = DIM(1) });
        index_add(&sum, (Term) { .var = IX_ONE, .coef = DIM(3) });
        CHECK(sum.n == 1 && sum.term[0].coef.n == 8);
        index_add(&sum, (Term) { .var = IX_ONE, .coef = DIM(-8) });
        CHECK(sum.n == 0);
}

/* ids (rows of them, or one a column of 2) into a table of rows of 8 */
static Index gather(Index *of, IndexVar by)
{
        Index ix = { 0 };
        *of = (Index) { 0 };
        index_add(of, (Term) { .var = by, .coef = DIM(1), .div = by == IX_COL ? DIM(8) : DIM(1) });
        index_add(&ix, (Term) { .var = IX_LOADED,
                                .coef = DIM(8),
                                .of = of,
                                .storage = 7,
                                .arg = "a.ids" });
        index_add_axes(&ix, IX_COL, (Dim[]) { DIM(2), DIM(8) }, (Dim[]) { DIM(0), DIM(1) }, 2);
        return ix;
}

TEST (loaded_indices) {
        Index by_row, by_col, other;
        const Index a = gather(&by_row, IX_ROW), b = gather(&by_col, IX_COL),
                    same = gather(&other, IX_ROW);
        const Sizes s = { { 0 } };
        CHECK(value(&a, 2, 5) == ids[2] * 8 + 5 && value(&b, 0, 13) == ids[1] * 8 + 5);
        CHECK(index_contiguous(&a) && index_align(&a) == 8 && index_has_base(&a));
        CHECK(!index_contiguous(&b) && !index_has_base(&b));
        CHECK(index_needs(&a, IX_ROW) && !index_needs(&b, IX_ROW));
        CHECK(index_equal(&a, &same, &s) && !index_equal(&a, &b, &s));
        other.term[0].coef = DIM(2);
        CHECK(!index_equal(&a, &same, &s));
}

/* The texts that the heads of index.h and index_text.c show. */
TEST (text) {
        Graph g = { .sizes = { { 0, 0, 0 } } };
        Arena *tmp = arena_new();
        Emit e = { .g = &g, .tmp = tmp };
        IndexPrinter cuda = { .e = &e, .cuda = true }, c = { .e = &e };
        Index ix = { 0 }, of, token = { 0 }, place = { 0 };
        index_add_axes(&ix, IX_ROW, (Dim[]) { DIM(9), DIM(12), DIM(64) },
                       (Dim[]) { DIM(0), DIM(768), DIM(0) }, 3);
        index_add(&ix, (Term) { .var = IX_ONE, .coef = DIM(256) });
        index_add_axes(&ix, IX_COL, (Dim[]) { DIM(2), DIM(64) }, (Dim[]) { DIM(0), DIM(1) }, 2);
#define SAYS(text, want) CHECK_MSG(!strcmp(text, want), "%s, not %s", text, want)
        SAYS(index_pointer(&cuda, "a.x", &ix), "a.x + (long)(row / 64 % 12) * 768 + 256");
        SAYS(index_column_text(&cuda, &ix, "col"), "(col % 64)");
        SAYS(index_column_text(&c, &ix, "(col + j)"), "((col + j) % 64)");
        ix = gather(&of, IX_ROW);
        SAYS(index_pointer(&cuda, "a.w", &ix), "a.w + (long)(a.ids[row]) * 8");
        ix = gather(&of, IX_COL);
        SAYS(index_pointer(&cuda, "a.w", &ix), "a.w");
        SAYS(index_column_text(&c, &ix, "col"), "(long)a.ids[0 + (col / 8)] * 8 + (col % 8)");
        CHECK(!c.uses_T && !cuda.uses_T);
        index_add(&token, (Term) { .var = IX_ROW, .coef = DIM(1), .div = DIM(1) });
        index_add(&place,
                  (Term) { .var = IX_PLACE, .coef = DIM(256), .of = &token, .slots = DIM(2048) });
        SAYS(index_base_text(&c, &place),
             "((long)((row) / T) * 2048 + a->rt->pos[(row) / T] + (row) % T) * 256");
        CHECK(c.uses_T);
        g.sizes.v[SYM_B] = 1; /* one sequence */
        SAYS(index_base_text(&cuda, &place),
             "((long)(0) * 2048 + fixed(&a.rt->pos[0]) + (row)) * 256");
        g.sizes.v[SYM_T] = 1; /* of one token, whose position was read before */
        cuda.position = "in.pos";
        SAYS(index_base_text(&cuda, &place), "((long)((row)) * 2048 + in.pos) * 256");
        CHECK(value(&place, 6, 0) == (2048 + 102) * 256);
        arena_free(tmp);
}

TEST_MAIN
