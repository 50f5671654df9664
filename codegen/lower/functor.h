/* functor.h: private to functor*.c: one prologue, epilogue or map while its text is written. */
#ifndef TGC_FUNCTOR_H
#define TGC_FUNCTOR_H

#include "../codegen.h"

enum { MAX_DOM = 40, MAX_LOAD = 64 };

typedef enum { DOM_ROOT, DOM_SLICE, DOM_HALF, DOM_TWICE } DomKind;

typedef struct Dom {
        DomKind kind;
        int parent, loop; /* loop: the domain that opens this one's loop */
        int64_t start, n;
        int num, den; /* elements here per element of the loop's domain */
        int lanes;    /* elements here per step of the loop */
} Dom;

/* A pointer into some storage, with the row's part of the address added. */
typedef struct Load {
        char key[1400]; /* what makes two loads one */
        int dom;
        char col[400]; /* the column's part, with \2 for the column */
        char name[40]; /* value */
        char ptr[40];
        bool vector, scalar; /* neighbours are neighbours in memory; one value for the row */
        int half; /* neighbours are every second element: 1 from the first, 2 from the second */
        DType dt;
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
        int n_load, n_name;
        char (*name)[48]; /* node -> C name; */
        Ref *named;       /* those that have one */
        int n_named;
        int64_t align; /* widest vector that all addresses allow */
        bool uses_T, uses_B;
        /* of an epilogue, CUDA: reads that can start early: of rows, the others */
        Text in_rows, in;
        Text get_rows, get_cols; /* their statements */
        int reads, row_reads;    /* how many, and of rows, in units of 16 bytes at V = 8 */
        /* the position is one of them; and so are those frequencies of prologues of freq_D */
        bool pos_ahead;
        const char *freq;
        int64_t freq_D;
        /* of an epilogue, CUDA: those that `out` makes (EpilogueStores in
         * kernels/common/tgc.cuh) */
        int stores, read;
        Stored stored[MOST_STORED], from; /* from: what is read of rows, if that is one matrix */
        bool mixed; /* it also reads or writes what is not a vector of 16-bit values */
        FunctorText *out;
        double elems;
} F;

typedef struct Index {
        char row[512], col[400];
        bool vector, scalar;
} Index;

#define LINE(d, ...)                                                                        \
        (text_add(&f->out->text, "%*s", 8 * (d), ""), text_add(&f->out->text, __VA_ARGS__), \
         text_add(&f->out->text, "\n"))

/* ---- functor_domain.c ---- */

int f_dom_seen(F *f, Ref r);
void f_place_members(F *f);

/* ---- functor_address.c ---- */

bool f_internal(F *f, Ref r);
/* computed where it is read; seen: through its views */
bool f_virtual(const F *f, Ref in, Access *seen);
const char *f_dimc(F *f, Dim d);
void f_index_of(F *f, const Type *t, const Dim *stride, int64_t off, int64_t n, Index *ix);
void f_stretch(const Access *a, const Type *t, Dim *stride);
void f_plain_strides(const Type *t, Dim *stride);
const char *f_name_of(F *f, Ref r);
const char *f_fmt(F *f, const char *s, ...) __attribute__((format(printf, 2, 3)));
const char *f_member(F *f, const char *arg);
const char *f_rt(F *f, const char *field);
const char *f_sequence(F *f, const char *x); /* of linear index x over (B,T) */
const char *f_position(F *f, const char *x);
const char *f_frequency(F *f, const char *freq, int d, int k, const char *col, int64_t D);
void f_subst(char *out, size_t cap, const char *s, const char *col);
Load *f_load_of(F *f, Ref r, Ref in);

/* ---- functor_value.c ---- */

const char *f_width(F *f, int d);
const char *f_first_col(F *f, int d);
const char *f_lane(F *f, int d, int k);
const char *f_col_at(F *f, int d, int k);
const char *f_to_float(DType dt, const char *x, F *f);
const char *f_from_float(DType dt, const char *x, F *f);
const char *f_var(F *f, Ref r, int k);
const char *f_expr(F *f, Ref r, int k);
const char *f_token(F *f, const Type *shape, int64_t n);
void f_rope_lines(F *f, int depth, Ref r, int k);
void f_store_index(F *f, Ref r, const char **ptr, Index *ix, DType *dt);

#endif
