/* ir.h: the graph that every part of the compiler works on.
 *
 * A Graph is a list of nodes in topological order: a node's inputs have smaller
 * indices.  Node 0 is unused, so that Ref 0 means "none".  Everything a graph
 * points at (nodes, strings, tables) lives in its Arena and is freed with it.
 *
 * Functions are grouped by the file that defines them. */
#ifndef TGC_IR_H
#define TGC_IR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "optimizer.h"

/* ---- arena.c: memory freed all at once; allocation never returns NULL ---- */

typedef struct Arena Arena;
Arena *arena_new(void);
void *mem_new(size_t n);           /* zeroed; both unwind with code 5 when there is no memory */
void *mem_grow(void *p, size_t n); /* realloc */
void arena_free(Arena *a);
void arena_clear(Arena *a);            /* forget all, keep the first block */
size_t arena_size(const Arena *a);     /* bytes that it takes */
void *arena_alloc(Arena *a, size_t n); /* zeroed, aligned to 16 */
/* An array of n elements of `size` bytes, *cap of them taken: as it is where another one fits, else
 * a copy twice as long (the old one stays in the arena).  *cap 0: a first one of 64. */
void *arena_grow(Arena *a, void *array, int n, int *cap, size_t size);
char *arena_str(Arena *a, const char *s);
char *arena_fmt(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A growing text. */
typedef struct Text {
        char *s;
        size_t n, cap;
} Text;
void text_add(Text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_put(Text *t, const char *s, size_t n);
void text_free(Text *t);

/* ---- diag.c: the user's mistakes ---- */

typedef struct Loc {
        const char *file;
        int line, col;
} Loc; /* line 0: unknown */

typedef struct Diag {
        jmp_buf out;        /* error_at comes here */
        char msg[2048];     /* file:line:col: error: ... and the caret */
        int code;           /* exit code */
        const char *source; /* text of the file being read, for the caret, or NULL */
        const char *source_file;
} Diag;

/* The name a plan's texts give the file: without its folders, which differ between machines and
 * ways to say the same path, with '_' for a space and '?' for control characters and what is no
 * UTF-8.  buf of LOC_NAME. */
enum { LOC_NAME = 256 };
const char *loc_name(Loc loc, char *buf);

extern _Thread_local Diag *diag_top; /* where error_at unwinds to; set by DIAG_CATCH */

/* if (DIAG_CATCH(&d)) { work; diag_end(&d); } else { d.msg says why } */
#define DIAG_CATCH(d) (diag_begin(d), setjmp((d)->out) == 0)
void diag_begin(Diag *d);
void diag_end(Diag *d);
_Noreturn void diag_pass_on(const Diag *from); /* after cleaning up: to the next DIAG_CATCH */
_Noreturn void error_at(Loc loc, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void error_code(int code, Loc loc, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
/* our mistake */
_Noreturn void error_internal(Loc loc, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- type.c: element types, symbolic dimensions, shapes ---- */

/* DT_FP8: of caches alone, rows of 8-bit floats that share a power of two (fp8.c). */
typedef enum { DT_F32, DT_BF16, DT_F16, DT_I32, DT_FP8, N_DT } DType;
extern const char *const dt_name[N_DT]; /* f32 bf16 f16 i32 fp8 */
extern const int dt_size[N_DT];

/* ---- fp8.c ---- */

enum { FP8_LEAST = -14 };                    /* exponent of the least power of two of a row */
int64_t fp8_row_bytes(int64_t K, int64_t D); /* a token's, of K heads of D */
void fp8_round(double *v, int64_t n);        /* one row; NAN throughout where it is not finite */
/* The same of an activation: e4m3 times the largest / 448, no power of two. */
void fp8_round_scaled(double *v, int64_t n);

enum { SYM_B, SYM_T, SYM_S, N_SYM }; /* batch, tokens of this call, tokens cached */

/* A monomial n * B^e0 * T^e1 * S^e2. */
typedef struct Dim {
        int64_t n;
        signed char e[N_SYM];
} Dim;

enum { MAX_RANK = 6 };
typedef struct Type {
        DType dt;
        int rank;
        Dim dim[MAX_RANK];
} Type;

typedef struct Sizes {
        int64_t v[N_SYM];
} Sizes; /* values of B, T, S */

#define DIM(c) ((Dim) { (c), { 0, 0, 0 } })
#define DIM_SYM(s) ((Dim) { 1, { (s) == SYM_B, (s) == SYM_T, (s) == SYM_S } })
bool dim_eq(Dim a, Dim b);
Dim dim_mul(Dim a, Dim b);
bool dim_div(Dim a, Dim b, Dim *q); /* exact quotient, if there is one */
bool dim_is_const(Dim a);
int64_t dim_value(Dim a, const Sizes *s);
bool shape_eq(const Type *a, const Type *b);
bool type_eq(const Type *a, const Type *b);
Dim type_elems(const Type *t);
Dim type_rows(const Type *t); /* product of all but the last dimension */
int64_t type_count(const Type *t, const Sizes *s);
bool dt_is_float(DType dt);
Type type_of(DType dt, int rank, ...);           /* rank Dims follow */
const char *dim_text(Dim d, char *buf);          /* buf of 64 */
const char *type_text(const Type *t, char *buf); /* buf of 256: f32[B,T,768] */
const char *shape_text(const Type *t, char *buf);

/* How a parameter's values lie in memory where that is not as elements of its type: a row of
 * storage.def.  Its node still has float values of its shape; blocks run along the last axis. */
typedef enum {
        STORAGE_PLAIN,
#define STORAGE(e, name, gguf, values, bytes, is_float, decode) STORAGE_##e,
#include "storage.def"
        N_STORAGE
} Storage;
extern const char *const storage_name[N_STORAGE + 1]; /* "", "Q4_0" ...; ends with NULL */
bool storage_is_blocks(int64_t s);                    /* of floats, with a decoder */
int storage_values(int64_t s);                        /* of a block */
int64_t storage_bytes(int64_t s, int64_t elems);      /* of whole blocks */

/* ---- ops: one row each in ops.def ---- */

typedef enum {
        CLASS_LEAF,
        CLASS_MAP,
        CLASS_ROW,
        CLASS_COL,
        CLASS_MATMUL,
        CLASS_ATTENTION,
        CLASS_GATHER,
        CLASS_VIEW,
        CLASS_ROUTE,
        CLASS_UPDATE,
        N_CLASS
} Class;

typedef enum {
        OP_NONE,
#define OP(e, text, inputs, cls, attr, shape, grad, stored, facts, tokens) OP_##e,
#include "ops.def"
        N_OPS
} Op;

typedef int Ref;
typedef struct Graph Graph;
typedef struct Node Node;

typedef enum {
        ATTR_NONE,
        ATTR_NUM,
        ATTR_DROP,
        ATTR_ROPE,
        ATTR_MM,
        ATTR_EXPERT,
        ATTR_ATT,
        ATTR_SLICE,
        ATTR_PERM,
        ATTR_ITEM,
        ATTR_K,
        ATTR_PARAM,
        ATTR_DATA,
        ATTR_ACCUM,
        ATTR_CACHE,
        ATTR_CE,
        ATTR_ROUTE,
        ATTR_ROWS,
        ATTR_BELOW,
        N_ATTR
} AttrKind;

enum { INIT_ZEROS, INIT_ONES, INIT_NORMAL, INIT_UNIFORM, INIT_VALUE };

typedef struct Attr {
        union {
                struct {
                        double x;
                } num; /* factor, addend, exponent, eps */
                struct {
                        double p;
                        int64_t id;
                } drop; /* probability, tensor id for Philox */
                /* back: rotate the other way; dims: rotated, 0 all */
                struct {
                        int64_t back, dims;
                } rope;
                struct {
                        int64_t ta, tb;
                } mm; /* operand is stored transposed */
                struct {
                        int64_t tb, adiv, bdiv, scatter;
                } expert;
                struct {
                        double scale;
                        int64_t causal, window;
                        double softcap, p;
                        int64_t id, mask, alibi, documents;
                } att;
                struct {
                        int64_t axis, start, len, step;
                } slice;
                struct {
                        int64_t perm[MAX_RANK];
                } perm;
                struct {
                        int64_t index;
                } item;
                struct {
                        int64_t k;
                } k; /* how many: top-k, buckets, expert count */
                struct {
                        int64_t init;
                        double a, b;
                        int64_t trainable, decay, storage;
                        /* of a group: its learning rate by the run's, its weight decay; 0: the
                         * run's */
                        double rate, own_decay;
                } param;
                /* table of a constant, n elements */
                struct {
                        const double *data;
                        int64_t n;
                } data;
                struct {
                        int64_t more;
                } accum; /* not the first contribution of this step */
                struct {
                        int64_t layer,
                                window; /* of its attention: most tokens it looks back, 0: all */
                } cache;
                struct {
                        int64_t both;
                } ce;
                struct {
                        int64_t k, renorm;
                } route;
                /* slots of one row of a; slots summed to one row, 0: none */
                struct {
                        int64_t adiv, mix, bias;
                } rows;
                /* rows times these powers of the symbols */
                struct {
                        int64_t rows, B, T, S;
                } below;
        };
} Attr;

typedef struct AttrField {
        const char *name;
        size_t offset;
        bool real;
        double dflt;
        int count;
        const char *const *word; /* its values as words, ends with NULL; NULL: they are numbers */
} AttrField;
extern const AttrField *const attr_fields[N_ATTR]; /* ends with name NULL */

enum { MAX_IN = 8, MAX_OUT = 4 };

/* Columns of ops.def, where they are explained. */
typedef enum {
        STORED_AUTO,
        STORED_ANY,
        STORED_F32,
        STORED_POLICY,
        STORED_FIRST,
        STORED_OWN
} StoredAs;

typedef enum {
        TOKENS_NEVER,
        TOKENS_LEAF,
        TOKENS_EACH,
        TOKENS_LAST,
        TOKENS_COLSUM,
        TOKENS_RESHAPE,
        TOKENS_EXPAND,
        TOKENS_TRANSPOSE,
        TOKENS_SLICE,
        TOKENS_CONCAT,
        TOKENS_ITEM,
        TOKENS_MATMUL,
        TOKENS_GATHER,
        TOKENS_ATTENTION,
        TOKENS_BUCKET,
        TOKENS_EXPERT,
        TOKENS_COMBINE
} TokenRule;

enum {
        FACT_NONE,
        FACT_INNER = 1 << 0,
        FACT_STATED = 1 << 1,
        FACT_MEMBER = 1 << 2,
        FACT_FINAL = 1 << 3,
        FACT_FOLLOWED = 1 << 4,
        FACT_OWNS = 1 << 5,
        FACT_NORM = 1 << 6,
        FACT_ACTIVATION = 1 << 7,
        FACT_PAIRS = 1 << 8,
        FACT_RANDOM = 1 << 9,
        FACT_WIDE = 1 << 10,
        FACT_PLAIN = 1 << 11,
        FACT_WIDE_FINAL = FACT_WIDE | FACT_FINAL,
        FACT_INNER_FINAL = FACT_INNER | FACT_FINAL,
        FACT_INNER_PLAIN = FACT_INNER | FACT_PLAIN,
        FACT_STATED_PLAIN = FACT_STATED | FACT_PLAIN,
        FACT_FOLLOWED_STATED = FACT_FOLLOWED | FACT_STATED,
};

typedef struct OpInfo {
        Op op;
        const char *text;
        const char *inputs; /* see op_reads */
        Class cls;
        AttrKind attr;
        /* types of all outputs; returns how many */
        int (*shape)(Graph *g, Node *n, Type *out);
        void (*grad)(Graph *g, Ref n, const Ref *dout, Ref *din);
        StoredAs stored;
        unsigned facts;
        TokenRule tokens;
        const char *scalar; /* C text of a MAP: $0 $1 inputs, $x attribute; or NULL */
} OpInfo;
extern const OpInfo op_info[N_OPS];
Op op_find(const char *text);
char op_reads(Op op, int input);               /* the letter of ops.def; 0: no such input */
bool op_input_is(Op op, int input, char mark); /* a mark behind that letter */
int op_least_inputs(Op op), op_most_inputs(Op op);
int64_t attr_word(const AttrField *f, const char *word); /* -1: none of its values */
size_t attr_bytes(const AttrField *f);
/* What an op has not may differ: the rest of the union is anything. */
bool attr_equal(Op op, const Attr *a, const Attr *b);
bool op_is(Op op, unsigned facts); /* has one of these facts, of its own or by its class */
bool op_is_view(Op op); /* reshape, expand, slice, transpose: no data moves, no storage is made */
/* Writes to a cache; what it makes is the cache. */
static inline bool op_appends(Op op) { return op == OP_APPEND || op == OP_APPEND_ROWS; }
bool op_takes_rows(Op op, int input);  /* whole rows, which a prologue may make */
bool op_from_memory(Op op, int input); /* this input lies in memory before the kernel begins */
bool op_updates(Op op, int input);     /* it is changed in place */

struct Node {
        Op op;
        Type type;      /* of output 0 */
        Ref in[MAX_IN]; /* 0 ends the list */
        int n_in;
        int uses;         /* readers, the return list included; set by graph_count_uses */
        int group;        /* kernel it was fused into, 0: none yet */
        Loc loc;          /* where the user wrote it */
        const char *name; /* as printed, without the % */
        Attr a;
};

typedef struct NodeName NodeName;
typedef struct TakenName TakenName;
typedef struct NameRun NameRun;
typedef struct Output {
        const char *name;
        Ref ref;
} Output;

struct Graph {
        Arena *arena;
        const char *name;
        Node *node;
        int n_nodes, cap;
        Node *spare; /* nodes of the rebuild before, to be overwritten */
        int cap_spare;
        Output *out;
        int n_out, cap_out;
        Sizes sizes; /* known values of the symbols; 0: run time */
        int next_id; /* for dropout */
        struct NodeName {
                const char *name;
                Ref ref;
        } * index; /* see graph_find */
        unsigned n_index, cap_index;
        int n_indexed;
        struct TakenName {
                const char *name;
                unsigned hash;
        } * taken; /* names in use, an open-addressing table; see graph_name */
        unsigned n_taken, cap_taken;
        const Node *before; /* and those of these nodes, which are not in it yet */
        int n_before;
        struct NameRun {
                const char *base;
                size_t n;
                int from, end;
        } * runs; /* see graph_name */
        unsigned n_runs, cap_runs;
};

/* ---- graph.c ---- */

Graph *graph_new(const char *name);
void graph_free(Graph *g);
/* Another of that name, with nodes of its own; strings stay with the first. */
Graph *graph_copy(const Graph *from, const char *name);
#define NODE(g, r) (&(g)->node[r])

/* Append a node; its type comes from the shape rule (error_at on mismatch).
 * n_in inputs are copied.  a may be NULL.  name may be NULL: one is made. */
Ref graph_add(Graph *g, Op op, const Ref *in, int n_in, const Attr *a, Loc loc, const char *name);
Ref graph_leaf(Graph *g, Op op, Type t, const Attr *a, Loc loc, const char *name);
/* The same with a type stated: needed by leaves, reshape, expand and cast. */
Ref graph_typed(Graph *g, Op op, const Type *t, const Ref *in, int n_in, const Attr *a, Loc loc,
                const char *name);
Ref graph_item(Graph *g, Ref r, int index, const char *name); /* output `index` of a node */
Ref graph_reshape(Graph *g, Ref r, Type shape);               /* dtype of r is kept */
Ref graph_cast(Graph *g, Ref r, DType dt);                    /* r itself, where that is its type */
void graph_output(Graph *g, const char *name, Ref r);
Ref graph_find(const Graph *g, const char *name); /* 0 if absent */
unsigned hash_name(const char *name);
void graph_pop(Graph *g);                             /* the last node goes again */
void graph_rename(Graph *g, Ref r, const char *name); /* name: of the graph's arena */
Ref graph_out(const Graph *g, const char *name);
int graph_types(Graph *g, Ref r, Type out[MAX_OUT]); /* types of all outputs */
void graph_count_uses(Graph *g);
/* Who reads node r: reader[start[r]] .. reader[start[r + 1] - 1], ascending; one that reads it
 * twice is there twice. */
typedef struct Readers {
        int *start;
        Ref *reader;
} Readers;
/* base: NULL, or whom a reader of each node is counted for */
Readers graph_readers(const Graph *g, const Ref *base, Arena *a);
const char *graph_name(Graph *g, const char *base); /* base.N, not yet taken */

/* Shorthands for passes: location and name prefix come from the first input. */
Ref op1(Graph *g, Op op, Ref a);
Ref op2(Graph *g, Op op, Ref a, Ref b);
Ref op3(Graph *g, Op op, Ref a, Ref b, Ref c);
Ref op1x(Graph *g, Op op, Ref a, double x); /* ATTR_NUM */
Ref op_slice(Graph *g, Ref a, int axis, int64_t start, int64_t len, int64_t step);
Ref op_matmul(Graph *g, Ref a, Ref b, bool ta, bool tb);

/* Of a parameter: as which row of storage.def it lies; STORAGE_PLAIN for all other nodes. */
Storage node_storage(const Node *n);

/* Rebuild g node by node: visit(old graph, ref, new graph, map, ctx) appends what
 * replaces node r (inputs through map) and returns its new Ref, 0 to drop it. */
typedef Ref Visit(Graph *old, Ref r, Graph *g, Ref *map, void *ctx);
void graph_rebuild(Graph *g, Visit *visit, void *ctx);
/* the visitor that keeps a node */
Ref graph_copy_node(Graph *old, Ref r, Graph *g, const Ref *map);
void graph_sweep(Graph *g); /* drop nodes no output needs */

/* ---- shape_attention.c ---- */

/* Of an attention or its gradient: which input is the mask or the slopes; */
int att_extra(const Node *n);
int att_documents(const Node *n); /* ... where documents begin and end; 0: none */

/* ---- indices.c: which inputs pick rows, and of how many ---- */

/* Kernels do not look whether an index is one, but where it says so here; compiler/tables.c sees to
 * it before. */
typedef enum {
        INDEX_NONE,  /* no index: only values of other types may be read there */
        INDEX_BELOW, /* 0 .. rows - 1 */
        INDEX_ANY,   /* kernels look: one outside is left out */
        INDEX_PERM,
        INDEX_OFFS,      /* the two results of one bucket */
        INDEX_DOCUMENTS, /* the input `documents`, which the runtime fills */
} IndexKind;
/* rows: of INDEX_BELOW */
IndexKind index_kind(const Graph *g, const Node *n, int input, Dim *rows);
Dim clamp_rows(const Attr *a);

/* ---- print.c, parse.c: inverses ---- */

enum { PRINT_LOC = 1, PRINT_GROUP = 2 };
void graph_print(const Graph *g, Text *out, int flags);
Graph *graph_parse(const char *text, const char *file); /* error_at on mistakes */
void num_text(double x, char *buf);                     /* shortest that reads back; buf of 32 */
double num_read(const char *s, char **end);             /* strtod, with a point in every locale */

/* ---- verify.c ---- */

void verify(Graph *g, const char *after); /* aborts naming the pass: a broken graph is our bug */

/* ---- eval.c, eval_*.c: the oracle ---- */

/* Executes any graph op by op in double precision.  Values of leaves are set by
 * name; a missing INPUT or PARAM is an error, a STATE starts as zeros, a CONST has
 * its own table.  UPDATE ops act on the stored leaves: APPEND writes into the state,
 * ADAMW changes p, m and v, ACCUM adds into an array of gradients per parameter.
 * Leaves, states and gradients live until eval_free; the graph must not change
 * meanwhile.  Errors go to error_at; the Eval is then still to be freed. */
typedef struct Eval Eval;
typedef struct EvalCtx {
        Sizes sizes;              /* a 0 takes the graph's own size */
        const int *pos;           /* per sequence (B), copied; or NULL for zeros */
        int step, micro, n_micro; /* n_micro 0 counts as 1 */
        unsigned seed[2];
        double share, inv_tokens; /* 0 counts as 1 */
        double lr, beta1, beta2, eps, weight_decay, clip, bias1, bias2;
        int64_t n_decay; /* ADAMW of a p that is no PARAM: elements below it decay */
        bool round;      /* every value is rounded to its node's type when stored */
        unsigned sample; /* with round: not 0: values that are rounded are off by chance as well, by
                            no more than `blur` of their type, otherwise for each sample */
        double blur[N_DT];
} EvalCtx;
Eval *eval_new(Graph *g, const EvalCtx *c);
void eval_again(Eval *e, const EvalCtx *c); /* next call: leaves and states stay */
void eval_fp8(Eval *e); /* attention sees its keys and values as an fp8 cache has them */
void eval_set(Eval *e, const char *leaf, const double *v, int64_t n); /* copies */
void eval_run(Eval *e);
/* Of the last run: by how much of itself the last value that a top-k chose was above the next,
 * where that was least; 1: none did. */
double eval_nearest(const Eval *e);
/* What the last eval_run computed, until the next one; NULL if there is none. */
const double *eval_get(Eval *e, Ref r, int item, int64_t *n);
const double *eval_output(Eval *e, const char *name, int64_t *n);
const double *eval_grad(Eval *e, const char *param, int64_t *n); /* NULL before the first ACCUM */
const double *eval_leaf(Eval *e, const char *leaf, int64_t *n);  /* as set, or as updated */
void eval_free(Eval *e);
double dt_round(DType dt, double x); /* nearest even; DT_I32: truncates, NaN is 0 */

#endif
