/* functor.h: private to functor*.c: the state of a prologue, epilogue or map while its text is
 * written.
 *
 * Functions are grouped by the file that defines them.  The head of functor.c shows the way from a
 * node to its text. */
#ifndef TGC_FUNCTOR_H
#define TGC_FUNCTOR_H

#include "index.h"

enum { MAX_DOM = 40, MAX_LOAD = 64 };

typedef enum { DOM_ROOT, DOM_SLICE, DOM_HALF, DOM_TWICE } DomKind;

typedef struct Dom {
        DomKind kind;
        int parent, loop; /* loop: the domain that opens this one's loop */
        int64_t start, n;
        int num, den; /* elements here per element of the loop's domain */
        int lanes;    /* elements here per step of the loop */
} Dom;

/* Where an operand or a result lies. */
typedef struct Address {
        const char *arg; /* its storage, as the kernel names it */
        Ref base;        /* the node whose storage that is */
        Index at;
        DType dt;
        Storage blocks;
        bool vector; /* V neighbours are neighbours in memory, and aligned */
} Address;

/* A value that a functor reads.  Of equal addresses in one domain there is one. */
typedef struct Load {
        Address from;
        int dom;
        int half;    /* neighbours are every second element: 1 from the first, 2 from the second */
        bool scalar; /* one value for all columns */
        char name[40]; /* of the value */
        char ptr[40];
        Stored rows; /* a half with its other; ld 0: no such rows */
} Load;

typedef struct F {
        Emit *e;
        Args *a;
        const Functor *f;
        Graph *g;
        bool cuda;
        Dom dom[MAX_DOM];
        int n_dom;
        int *dom_of;    /* node -> domain + 1, 0: not here */
        bool *exported; /* read behind a slice: kept in an array */
        Load load[MAX_LOAD];
        int n_load;
        char (*name)[48]; /* node -> C name; */
        Ref *named;       /* those that have one */
        int n_named;
        int64_t align; /* widest vector that all addresses allow */
        IndexPrinter print;
        /* of an epilogue, CUDA: reads that can start early: of rows, the others */
        Text in_rows, in;
        Text get_rows, get_cols; /* their statements */
        int reads, row_reads;    /* how many, and of rows, in units of 16 bytes at V = 8 */
        /* the position is one of them; and so are the frequencies `freq` of heads of freq_D */
        bool pos_ahead;
        Ref freq;
        int64_t freq_D;
        /* of an epilogue, CUDA: those that `out` makes (EpilogueStores in
         * kernels/common/epilogue_protocol.cuh) */
        int stores, read;
        Stored stored[MOST_STORED], from; /* from: what is read of rows, if that is one matrix */
        bool mixed; /* it also reads or writes what is not a vector of 16-bit values */
        FunctorText *out;
        double elems;
} F;

#define LINE(d, ...)                                                                        \
        (text_add(&f->out->text, "%*s", 8 * (d), ""), text_add(&f->out->text, __VA_ARGS__), \
         text_add(&f->out->text, "\n"))

/* ---- functor.c ---- */

void f_size_lines(F *f, int d); /* T and B, where the text mentions them */

/* ---- functor_domain.c ---- */

int f_dom_seen(F *f, Ref r);
void f_place_members(F *f);

/* ---- functor_address.c ---- */

bool f_internal(F *f, Ref r);
/* computed where it is read; seen: through its views */
bool f_virtual(const F *f, Ref in, Access *seen);
/* Adds the address of element (row, col) of a domain of n columns, for strides over shape t;
 * between: a term between those of rows and columns, or NULL. */
void f_index(Index *ix, const Type *t, const Dim *stride, int64_t off, int64_t n,
             const Term *between);
/* May a call's neighbours of domain d be moved at once?  If so, V is bound by their alignment: of
 * a domain that has two for each column, 2 V of them move. */
bool f_vector(F *f, const Index *ix, int d);
void f_stretch(const Access *a, const Type *t, Dim *stride);
void f_plain_strides(const Type *t, Dim *stride);
/* The token (of B*T) that a row of n columns belongs to; shape's last two axes are heads and their
 * elements. */
Index f_token(const Type *shape, int64_t n);
Address f_load_address(F *f, const Access *a, const Type *shape, int64_t off, int64_t n);
Address f_store_address(F *f, Ref r);
void f_read_position(F *f); /* whoever prints a position calls it first */

/* ---- functor_read.c ---- */

Load *f_load_of(F *f, Ref r, Ref in);
void f_emit_loads(F *f, int loop, int depth);
void f_emit_plain_prologue(F *f, int depth);
void f_emit_in(F *f); /* CUDA: In, and the functions that read it */
bool f_blocks_at_once(const F *f, const Load *l);
/* reads of this loop are known before the functor's values are */
bool f_early(const F *f, int loop);

/* ---- functor_write.c ---- */

bool f_written(F *f, Ref r);                                         /* r is stored */
void f_emit_stores(F *f, int depth, Ref r);                          /* CUDA */
void f_emit_row(F *f, int depth, Ref r);                             /* C */
void f_store_lane(F *f, int depth, Ref r, int k, const char *value); /* C */

/* ---- functor_value.c ---- */

const char *f_width(F *f, int d);
const char *f_first_col(F *f, int d);
const char *f_lane(F *f, int d, int k);
const char *f_col_at(F *f, int d, int k);
const char *f_to_float(DType dt, const char *x, F *f);
const char *f_from_float(DType dt, const char *x, F *f);
const char *f_var(F *f, Ref r, int k);
const char *f_expr(F *f, Ref r, int k);
void f_rope_lines(F *f, int depth, Ref r, int k);
const char *f_fmt(F *f, const char *s, ...) __attribute__((format(printf, 2, 3)));
const char *f_name_of(F *f, Ref r);
const char *f_member(F *f, const char *arg);
const char *f_rt(F *f, const char *field);

#endif
