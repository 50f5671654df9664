/* lower.h: splits a fused graph into groups, and writes their members as text.
 *
 * A group of nodes (Node.group) is one kernel.  It has an anchor with structure of its own (matmul,
 * norm, attention ...), prologues that feed the anchor, and epilogues that finish its outputs.  A
 * group without an anchor is a map.  Functions are grouped by the file that defines them. */
#ifndef TGC_LOWER_H
#define TGC_LOWER_H

#include "../../ir/ir.h"

enum { CACHE_PAGE = 64 }; /* tokens of a page of the cache: TGC_PAGE */

/* ---- access.c: where a value lies ---- */

/* A value as strides over somebody's storage. */
typedef struct Access {
        Ref base;             /* node that owns the storage */
        Type t;               /* shape and element type as read */
        int64_t off;          /* elements */
        Dim stride[MAX_RANK]; /* 0 where an axis is stretched */
} Access;

/* Where a value lies.  Parts of a concat are written straight into it. */
typedef struct Place {
        Ref whole;  /* the concat it is a part of, 0: none; */
        int64_t at; /* its first column there */
        bool ok;    /* strides describe it: `lies` says how */
        Access lies;
} Place;

/* What may fail says so, and nobody may overlook it: after materialize (which uses it to find what
 * has to be copied) a value that cannot be addressed is a mistake of the compiler's, which
 * access_need names. */
#define MUST_USE __attribute__((warn_unused_result))

Place *place_concats(const Graph *g, Arena *a); /* one per node */
/* again, over what lies at `in` */
void place_view(const Graph *g, Place *p, Ref view, const Access *in);
bool access_of(const Graph *g, const Place *p, Ref r, Access *out) MUST_USE;
void access_need(const Graph *g, const Place *p, Ref r, Access *out);
bool access_reshape(Access *a, const Type *shape) MUST_USE;
bool access_contiguous(const Access *a) MUST_USE;
/* (...,C) as rows of stride ld with C contiguous */
bool access_rows(const Access *a, Dim *ld) MUST_USE;
void access_plain(Access *a, Ref base, const Type *t); /* storage of its own */
/* elements, a power of two up to 8: every row starts at a multiple */
int64_t access_align(const Access *a);
/* the part is that value itself, seen through reshapes */
Ref part_value(const Graph *g, Ref part);

/* ---- group.c: the structure of a fused group ---- */

/* The part of a kernel that is a function of one element position. */
typedef struct Functor {
        /* epilogue: the anchor's output that arrives as v; prologue: the value to deliver; map:
         * 0 */
        Ref root;
        Ref result; /* of an epilogue that hands a value back in v; else 0 */
        bool prologue;
        /* an epilogue whose 16-bit results `out` stores: of tiles, by EpilogueStores in
         * kernels/common/epilogue_protocol.cuh */
        bool puts;
        Type shape; /* of the domain: rows are all but what makes up n */
        int64_t n;  /* columns */
        Dim rows;
        Ref *node; /* members in order */
        int n_nodes;
        int least; /* columns it must be able to deliver at a time; 0: one */
} Functor;

typedef struct Group {
        int id;
        Ref anchor;                /* 0: a map */
        Functor prologue[MAX_IN];  /* of the anchor's inputs; n_nodes 0: read as it lies */
        Functor epilogue[MAX_OUT]; /* of its outputs; of a map: epilogue[0] */
        int n_out;
        Ref *node; /* all members */
        int n_nodes;
} Group;

/* computed wherever it is read: position, share, fill ... */
bool is_virtual(const Graph *g, Ref r);
bool is_member(const Graph *g, Ref r);    /* can live inside a functor */
Ref value_base(const Graph *g, Ref r);    /* through views that a functor sees through */
Ref anchor_output(const Graph *g, Ref r); /* anchor of r if r is one of its outputs, else 0 */
bool domain_of(const Type *t, int64_t *n, Dim *rows); /* how a map walks a shape */
/* Columns of the domain `n` that r, seen through views from base, occupies. */
typedef struct Span {
        int64_t start, len;
        int step;
} Span;
bool span_of(const Graph *g, Ref r, Ref base, int64_t n, Span *s);
/* How a kernel standardises rows, and the C text of it (NORM_RMS ...). */
typedef enum NormKind { NORM_NONE, NORM_RMS, NORM_LAYER } NormKind;
NormKind norm_kind(Op op);
const char *norm_text(NormKind kind);
/* A prologue that standardises: what comes before its norm, the norm, what comes after (root: the
 * norm). */
typedef struct NormPrologue {
        Functor before, gain;
        Ref norm;
} NormPrologue;
/* false: no norm in it */
bool norm_prologue(Graph *g, const Functor *prologue, Arena *a, NormPrologue *out);
bool gemv_norms(const Graph *g, Ref matmul); /* it can standardise its rows itself */
/* rows, where the matrix-vector kernel takes it; else 0 */
int64_t gemv_m(const Graph *g, Ref matmul);
/* Weights in blocks whose rows a GEMV takes, but which a GPU multiplies faster as tiles
 * (kernels/gemm/gemm_stored.cuh). */
bool gemm_over_blocks(const Graph *g, Ref matmul);
/* Whether its kernel may store the row that it standardises for itself: that costs one block a
 * little, where a launch would cost more. */
bool gemv_keeps(const Graph *g, Ref matmul);
Functor store_of(Graph *g, Ref r); /* an epilogue that stores r as it comes */

/* ---- group_order.c ---- */

int group_list(Graph *g, Arena *a, Group **out); /* in launch order */

/* ---- functor.c: prologues and epilogues as text, CUDA and C ---- */

/* A buffer a kernel reads or writes. */
typedef enum { SLOT_RT, SLOT_NODE, SLOT_GRAD, SLOT_WORK, SLOT_ARENA, SLOT_INT, SLOT_MAP } SlotKind;
/* id: node, parameter, work or map; or an arena's name.  off in bytes. */
typedef struct Slot {
        SlotKind kind;
        int id;
        const char *arena;
        int64_t off;
} Slot;

/* An epilogue's store, or what it reads of rows: of two neighbouring sums `width` 16-bit values
 * (EpilogueStores in kernels/common/epilogue_protocol.cuh), in a matrix of rows of cols elements,
 * ld apart.  ld 0: it does not lie so. */
typedef struct Stored {
        Slot slot;
        DType dt;
        int64_t cols, ld;
        int width;
} Stored;
enum { MOST_STORED = 2 };

typedef struct FunctorText {
        Text text; /* the functor's definition */
        int maxv, minv;
        bool reads;          /* something in every row */
        bool by_row;         /* what it reads is not the same for all rows */
        double bytes, flops; /* per whole domain, at the largest sizes */
        /* CUDA: all that an epilogue stores, if the copy engine may do that; else 0 */
        int n_stored;
        Stored stored[MOST_STORED], from; /* from: and reads of rows, as much as it stores first */
} FunctorText;

/* of program/build.c */
typedef struct Emit Emit;
typedef struct Args Args;
void functor_emit(Emit *e, Args *a, const Functor *f, const char *name, FunctorText *out);

#endif
