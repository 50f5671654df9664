/* index.h: an index as a value: which element of a storage a kernel's (row, column) is.
 *
 * An index is a sum of terms.  A term is a coefficient times a digit of a variable:
 *
 *      coef * (var / div % mod)
 *
 * One slice of a packed projection, from the graph to the emitted text:
 *
 *      node      %k = slice %qkv, axis=2, start=256, len=256 : bf16[B,T,256]    (%qkv: [B,T,768])
 *        |
 *      domain    rows: the B*T tokens; columns: 256
 *        |
 *      address   row * 768  +  256  +  col                          three terms: a value
 *        |
 *      text      const bf16 *p0 = a.qkv + (long)row * 768 + 256;    what the columns share
 *                load<V>(k, p0 + col);                              what depends on the column
 *
 * Everything is decided on this value (index.c).  index_text.c prints it, once. */
#ifndef TGC_INDEX_H
#define TGC_INDEX_H

#include "../program/program.h"

typedef enum IndexVar {
        IX_ONE,      /* a constant: its coefficient */
        IX_ROW,      /* of the domain */
        IX_COL,      /* of the domain */
        IX_LOADED,   /* storage[of]: what a gather's index says */
        IX_POSITION, /* of token `of` (of B*T) in its sequence */
        IX_PLACE     /* of token `of` in a cache: its sequence * slots + its position */
} IndexVar;

typedef struct Index Index;

typedef struct Term {
        IndexVar var;
        Dim coef, div, mod; /* div and mod: of IX_ROW and IX_COL; mod 0: no remainder */
        const Index *of;    /* below: of those variables that are functions of another index */
        Ref storage;        /* of IX_LOADED */
        const char *arg;    /* of IX_LOADED: how the kernel names the storage */
        Dim slots;          /* of IX_PLACE: the cache's, of a sequence */
        int pool;           /* of IX_PLACE: of a paged cache (rt.h) */
} Term;

/* Every axis gives one term at most; beside these a constant, and an id or a place in a cache. */
enum { MAX_TERMS = MAX_RANK + 2 };
struct Index {
        int n;
        Term term[MAX_TERMS];
};

/* ---- index.c: build, simplify, compare, ask ---- */

/* Adds a term.  Zeros vanish, constants add up, and a digit joins the one below it where the two
 * are one digit of a larger base. */
void index_add(Index *ix, Term t);
/* Adds the digits of var over axes, outermost first, each times its stride. */
void index_add_axes(Index *ix, IndexVar var, const Dim *size, const Dim *stride, int n);
/* The same terms, once the sizes that are known stand for their symbols. */
bool index_equal(const Index *a, const Index *b, const Sizes *s);
bool term_needs(const Term *t, IndexVar v); /* its value depends on v */
bool index_needs(const Index *ix, IndexVar v);
bool index_has_base(const Index *ix); /* a term that all columns share */
/* Neighbouring columns are neighbours in memory, in groups of index_align columns, the first of
 * which is at a multiple of that. */
bool index_contiguous(const Index *ix);
int64_t index_align(const Index *ix); /* a power of two up to 8 */
/* What depends on the column is step * column, no more. */
bool index_steps(const Index *ix, int64_t step);

/* ---- index_text.c: an index as C or CUDA ---- */

typedef struct IndexPrinter {
        Emit *e;
        bool cuda;
        const char *position; /* of the only token, where that was read ahead; else NULL */
        bool uses_T, uses_B;  /* out: what was printed mentions these */
} IndexPrinter;

const char *index_dim(IndexPrinter *p, Dim d);
const char *index_field(const IndexPrinter *p, const char *field); /* of the kernel's arguments */
/* Terms that all columns share, "0" if there are none; and as a pointer into arg. */
const char *index_base_text(IndexPrinter *p, const Index *ix);
const char *index_pointer(IndexPrinter *p, const char *arg, const Index *ix);
/* Terms that depend on the column, "0" if there are none; col: the column's text. */
const char *index_column_text(IndexPrinter *p, const Index *ix, const char *col);
const char *index_whole_text(IndexPrinter *p, const Index *ix, const char *col); /* both */
/* Of the token with this text, of B*T. */
const char *index_position_text(IndexPrinter *p, const char *token);

#endif
