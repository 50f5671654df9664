/* index_text.c: prints an index as text, the same for CUDA and C (see index.h).
 *
 *      term                              text
 *      row / 64 % 12 * 768               (long)(row / 64 % 12) * 768
 *      col % 64                          (col % 64)
 *      256                               256
 *      ids[row] * 768                    (long)(a.ids[row]) * 768
 *      position of row * 768             (long)(a.rt->pos[...] + ...) * 768
 *      place of row in a cache * 256     ((long)(sequence) * 2048 + position) * 256
 *                      of pages          (long)a.rt->place[0][row] * 256
 *
 * Terms are printed in the order in which they were added. */
#include "index.h"

const char *index_dim(IndexPrinter *p, Dim d)
{
        const Sizes *s = &p->e->g->sizes;
        p->uses_T |= d.e[SYM_T] && !s->v[SYM_T];
        p->uses_B |= d.e[SYM_B] && !s->v[SYM_B];
        return dim_c(p->e, d);
}

const char *index_field(const IndexPrinter *p, const char *field)
{
        return arena_fmt(p->e->tmp, p->cuda ? "a.%s" : "a->%s", field);
}

/* Tokens of one sequence need no division. */
static bool one_sequence(const IndexPrinter *p) { return p->e->g->sizes.v[SYM_B] == 1; }
static bool one_token_each(const IndexPrinter *p) { return p->e->g->sizes.v[SYM_T] == 1; }

/* Of a ragged call every token says where it is. */
static const char *token_text(IndexPrinter *p, const char *token, const char *field)
{
        return arena_fmt(p->e->tmp, p->cuda ? "fixed(&%s[%s].%s)" : "%s[%s].%s",
                         index_field(p, "rt->token"), token, field);
}

/* Which sequence the token with this text is of. */
static const char *sequence_text(IndexPrinter *p, const char *token)
{
        Arena *a = p->e->tmp;
        if (one_token_each(p))
                return arena_fmt(a, "(%s)", token);
        return one_sequence(p) ? "0"
                               : arena_fmt(a, "(%s) / %s", token, index_dim(p, DIM_SYM(SYM_T)));
}

/* In the cache, which has `slots` for each sequence, or pages of a pool. */
static const char *index_place_text(IndexPrinter *p, const char *token, Dim slots, int pool)
{
        Arena *a = p->e->tmp;
        if (p->e->ragged)
                return token_text(p, token, arena_fmt(a, "place[%d]", pool));
        if (p->e->paged)
                return arena_fmt(a, "%s[%d][%s]", index_field(p, "rt->place"), pool, token);
        return arena_fmt(a, "(long)(%s) * %s + %s", sequence_text(p, token), index_dim(p, slots),
                         index_position_text(p, token));
}

const char *index_position_text(IndexPrinter *p, const char *token)
{
        Arena *a = p->e->tmp;
        const char *all = index_field(p, "rt->pos");
        if (p->position)
                return p->position;
        if (one_token_each(p))
                return arena_fmt(a, "%s[%s]", all, token);
        if (p->e->ragged)
                return token_text(p, token, "position");
        /* otherwise positions are the host's */
        const char *first = arena_fmt(a, p->cuda ? "fixed(&%s[%s])" : "%s[%s]", all,
                                      sequence_text(p, token));
        return one_sequence(p) ? arena_fmt(a, "%s + (%s)", first, token)
                               : arena_fmt(a, "%s + (%s) %% %s", first, token,
                                           index_dim(p, DIM_SYM(SYM_T)));
}

/* The index that a term is a function of. */
static const char *inner_text(IndexPrinter *p, const Index *of, const char *col)
{
        return index_needs(of, IX_COL) ? index_whole_text(p, of, col) : index_base_text(p, of);
}

/* x / div % mod * coef */
static void print_digit(IndexPrinter *p, Text *out, const Term *t, const char *x)
{
        const bool one = dim_eq(t->coef, DIM(1)), div = !dim_eq(t->div, DIM(1)), mod = t->mod.n;
        text_add(out, "%s%s%s", one ? "" : "(long)", div || mod ? "(" : "", x);
        if (div)
                text_add(out, " / %s", index_dim(p, t->div));
        if (mod)
                text_add(out, " %% %s", index_dim(p, t->mod));
        text_add(out, "%s", div || mod ? ")" : "");
        if (!one)
                text_add(out, " * %s", index_dim(p, t->coef));
}

static void print_term(IndexPrinter *p, Text *out, const Term *t, const char *col)
{
        const char *coef, *x = t->of ? inner_text(p, t->of, col) : NULL;
        switch (t->var) {
        case IX_ONE: text_add(out, "%s", index_dim(p, t->coef)); return;
        case IX_ROW: print_digit(p, out, t, "row"); return;
        case IX_COL: print_digit(p, out, t, col); return;
        case IX_LOADED:
                coef = index_dim(p, t->coef);
                text_add(out, term_needs(t, IX_COL) ? "(long)%s[%s] * %s" : "(long)(%s[%s]) * %s",
                         t->arg, x, coef);
                return;
        case IX_POSITION:
                coef = index_dim(p, t->coef);
                text_add(out, "(long)(%s) * %s",
                         index_position_text(p, arena_fmt(p->e->tmp, "(%s)", x)), coef);
                return;
        case IX_PLACE:
                coef = index_dim(p, t->coef);
                text_add(out, p->e->paged ? "(long)%s * %s" : "(%s) * %s",
                         index_place_text(p, x, t->slots, t->pool), coef);
                return;
        }
}

/* Those terms that depend on the column, or those that do not. */
static const char *part_text(IndexPrinter *p, const Index *ix, bool column, const char *col)
{
        Text t = { 0 };
        for (int i = 0; i < ix->n; i++)
                if (term_needs(&ix->term[i], IX_COL) == column) {
                        text_add(&t, "%s", t.n ? " + " : "");
                        print_term(p, &t, &ix->term[i], col);
                }
        const char *s = t.n ? arena_str(p->e->tmp, t.s) : "0";
        text_free(&t);
        return s;
}

const char *index_base_text(IndexPrinter *p, const Index *ix)
{
        return part_text(p, ix, false, NULL);
}

const char *index_column_text(IndexPrinter *p, const Index *ix, const char *col)
{
        return part_text(p, ix, true, col);
}

const char *index_whole_text(IndexPrinter *p, const Index *ix, const char *col)
{
        return arena_fmt(p->e->tmp, "%s + %s", index_base_text(p, ix),
                         index_column_text(p, ix, col));
}

const char *index_pointer(IndexPrinter *p, const char *arg, const Index *ix)
{
        return index_has_base(ix) ? arena_fmt(p->e->tmp, "%s + %s", arg, index_base_text(p, ix))
                                  : arg;
}
