/* index.c: index expressions as values: build, simplify, compare and query them (see index.h).
 *
 * A variable has digits, as a number has, each with its own base.  Over axes (B, 12, 64) with
 * strides (768, 0, 1):
 *
 *      col % 64 * 1   +   col / 64 % 12 * 0   +   col / 768 * 768
 *      innermost axis     a zero: dropped         the outermost needs no remainder
 *
 * Two neighbouring digits merge if the outer stride is the inner stride times the inner size:
 *
 *      x % 64  +  x / 64 % 12 * 64   =   x % 768 */
#include "index.h"
#include <string.h>

static Dim known(Dim d, const Sizes *s)
{
        for (int i = 0; i < N_SYM; i++)
                for (; d.e[i] && s->v[i]; d.e[i]--)
                        d.n *= s->v[i];
        return d;
}

static bool same(Dim a, Dim b, const Sizes *s) { return dim_eq(known(a, s), known(b, s)); }

static bool is_digit(const Term *t) { return t->var == IX_ROW || t->var == IX_COL; }

void index_add(Index *ix, Term t)
{
        if (t.coef.n == 0 && !t.of) /* an id is loaded, whatever the table's rows are apart */
                return;
        for (int i = 0; t.var == IX_ONE && i < ix->n; i++) {
                Term *x = &ix->term[i];
                if (x->var != IX_ONE || memcmp(x->coef.e, t.coef.e, sizeof t.coef.e))
                        continue;
                x->coef.n += t.coef.n;
                if (x->coef.n == 0)
                        memmove(x, x + 1, (size_t)(--ix->n - i) * sizeof *x);
                return;
        }
        if (is_digit(&t)) {
                Term *below = ix->n ? &ix->term[ix->n - 1] : NULL;
                if (below && below->var == t.var && below->mod.n &&
                    dim_eq(t.div, dim_mul(below->div, below->mod)) &&
                    dim_eq(t.coef, dim_mul(below->coef, below->mod))) {
                        below->mod = t.mod.n ? dim_mul(below->mod, t.mod) : DIM(0);
                        return;
                }
        }
        if (ix->n == MAX_TERMS)
                error_internal((Loc) { 0 }, "an index has too many terms");
        ix->term[ix->n++] = t;
}

void index_add_axes(Index *ix, IndexVar var, const Dim *size, const Dim *stride, int n)
{
        Dim inner = DIM(1);
        const int first = ix->n;
        for (int i = n - 1; i >= 0; i--) {
                if (dim_eq(size[i], DIM(1)))
                        continue;
                index_add(ix,
                          (Term) { .var = var, .coef = stride[i], .div = inner, .mod = size[i] });
                inner = dim_mul(inner, size[i]);
        }
        for (int i = first; i < ix->n; i++) /* nothing lies above the outermost */
                if (dim_eq(dim_mul(ix->term[i].div, ix->term[i].mod), inner))
                        ix->term[i].mod = DIM(0);
}

bool index_equal(const Index *a, const Index *b, const Sizes *s)
{
        if (a->n != b->n)
                return false;
        for (int i = 0; i < a->n; i++) {
                const Term *x = &a->term[i], *y = &b->term[i];
                if (x->var != y->var || x->storage != y->storage || !same(x->coef, y->coef, s) ||
                    !same(x->div, y->div, s) || !same(x->mod, y->mod, s) ||
                    !same(x->slots, y->slots, s) || x->pool != y->pool || !x->of != !y->of ||
                    (x->of && !index_equal(x->of, y->of, s)))
                        return false;
        }
        return true;
}

bool term_needs(const Term *t, IndexVar v)
{
        return t->var == v || (t->of && index_needs(t->of, v));
}

bool index_needs(const Index *ix, IndexVar v)
{
        for (int i = 0; i < ix->n; i++)
                if (term_needs(&ix->term[i], v))
                        return true;
        return false;
}

bool index_has_base(const Index *ix)
{
        for (int i = 0; i < ix->n; i++)
                if (!term_needs(&ix->term[i], IX_COL))
                        return true;
        return false;
}

/* The column's lowest digit, as it is. */
static bool is_unit(const Term *t)
{
        return t->var == IX_COL && dim_eq(t->coef, DIM(1)) && dim_eq(t->div, DIM(1));
}

bool index_contiguous(const Index *ix)
{
        bool unit = false;
        for (int i = 0; i < ix->n; i++) {
                if (ix->term[i].of && index_needs(ix->term[i].of, IX_COL))
                        return false;
                unit |= is_unit(&ix->term[i]);
        }
        return unit;
}

int64_t index_align(const Index *ix)
{
        int64_t m = 8;
        for (int i = 0; i < ix->n; i++)
                m |= is_unit(&ix->term[i]) ? ix->term[i].mod.n : ix->term[i].coef.n;
        return m & -m;
}

bool index_steps(const Index *ix, int64_t step)
{
        int found = 0;
        for (int i = 0; i < ix->n; i++) {
                const Term *t = &ix->term[i];
                if (!term_needs(t, IX_COL))
                        continue;
                if (t->var != IX_COL || t->mod.n || !dim_eq(t->div, DIM(1)) ||
                    !dim_eq(t->coef, DIM(step)))
                        return false;
                found++;
        }
        return found == 1;
}
