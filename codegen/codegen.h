/* codegen.h: from a fused graph to kernels, launches and buffers.
 *
 * A group of nodes (Node.group) is one kernel: an anchor with structure of its
 * own (matmul, norm, attention ...), prologues that feed it and epilogues that finish its
 * outputs; or no anchor: a map.  Functions are grouped by the file that defines
 * them. */
#ifndef TGC_CODEGEN_H
#define TGC_CODEGEN_H

#include "../ir/ir.h"

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
bool owns_storage(const Graph *g, Ref r);

/* ---- group.c: the structure of a fused group ---- */

/* The part of a kernel that is a function of one element position. */
typedef struct Functor {
        /* epilogue: the anchor's output that arrives as v; prologue: the value to deliver; map:
         * 0 */
        Ref root;
        Ref result; /* of an epilogue that hands a value back in v; else 0 */
        bool prologue;
        /* an epilogue whose 16-bit results `out` stores: of tiles, by EpilogueStores in
         * kernels/common/tgc.cuh */
        bool puts;
        Type shape; /* of the domain: rows are all but what makes up n */
        int64_t n;  /* columns */
        Dim rows;
        Ref *node; /* members in order */
        int n_nodes;
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
/* Whether its kernel may store the row that it standardises for itself: that costs one block a
 * little, where a launch would cost more. */
bool gemv_keeps(const Graph *g, Ref matmul);
Functor store_of(Graph *g, Ref r); /* an epilogue that stores r as it comes */

/* ---- group_order.c ---- */

int group_list(Graph *g, Arena *a, Group **out); /* in launch order */

/* ---- build.c: what the emitters produce ---- */

enum { TARGET_CUDA, TARGET_CPU, N_TARGETS };

/* A buffer a kernel reads or writes. */
typedef enum { SLOT_RT, SLOT_NODE, SLOT_GRAD, SLOT_WORK, SLOT_ARENA, SLOT_INT, SLOT_MAP } SlotKind;
/* id: node, parameter, work or map; or an arena's name.  off in bytes. */
typedef struct Slot {
        SlotKind kind;
        int id;
        const char *arena;
        int64_t off;
} Slot;

/* A matrix as Hopper's copy engine sees it: rows of `cols` elements, `ld` apart; of float32 tf32
 * come.  It moves boxes of 128 bytes by as many rows as these are elements; or of box_bytes (128,
 * 64, 32) by box_rows. */
typedef struct TensorMap {
        Slot of;
        DType dt;
        int64_t rows, cols, ld;
        int box_rows, box_bytes;
} TensorMap;

/* ---- form.c: what a kernel is on each architecture ---- */

typedef enum ArchId {
#define ARCH(id, ...) ARCH_##id,
#include "forms/arch.def"
#undef ARCH
        N_ARCHS
} ArchId;

/* Sizes as constants: ANY_SMS, SM90A_SMS, SM90A_SMEM ... */
enum {
#define ARCH(id, name, macro, sms, smem_sm, smem) \
        id##_SMS = sms, id##_SM_SMEM = smem_sm, id##_SMEM = smem,
#include "forms/arch.def"
#undef ARCH
};

typedef struct Arch {
        const char *name, *macro;
} Arch;
extern const Arch archs[N_ARCHS];

/* How a kernel's problem is done on one architecture.  ARCH_ANY's always is; threads 0: there is no
 * other, that one serves.  A form may have a launch of its own and the general one's text. */
typedef struct Form {
        const char *include;     /* header without its ending: "rows" is rows.cuh or cpu_rows.h */
        const char *decl, *body; /* what this form alone declares and does, or NULL */
        const char *grid;        /* text of the manifest's EXPR; "0": nothing is left to do */
        int threads, smem, min_blocks;
        int cluster;     /* blocks of a cluster; 0: none */
        bool persistent; /* blocks stay: one a multiprocessor, `grid` of them at most */
        bool pairs;      /* persistent ones, in clusters of two */
        bool waits;      /* its body calls pdl_wait */
} Form;

static inline bool form_is(const Form *form, ArchId arch) { return form[arch].threads > 0; }
/* Nothing is left to do there. */
bool form_none(const Form *f);
struct Piece;
bool form_waits(const struct Piece *p); /* the body of some form calls pdl_wait */
/* The one place where forms become text, with branches between them. */
void form_decl(const struct Piece *p, Text *out);
void form_body(const struct Piece *p, Text *out);
void form_includes(const struct Piece *p, const char *include[N_ARCHS + 1]);

/* Scratch between launches of one group.  keep: its name; it lives on, and starts as zeros. */
typedef struct Work {
        Dim elems;
        int size;
        const char *keep;
} Work;

/* What a launch does with an argument.  Of a concat's storage a launch may write some parts
 * alone: columns lo to hi; hi 0: any of it. */
typedef struct Use {
        bool written;
        int64_t lo, hi;
} Use;

/* What may be loaded while the launch before runs, unless that writes it: each slot by itself
 * (PREFETCH_A, PREFETCH_B); or everything but the first (true or false); or both, by which is known
 * what else to load: the piece waits by itself then. */
typedef enum PrefetchKind { PREFETCH_EACH, PREFETCH_REST, PREFETCH_BOTH } PrefetchKind;
typedef struct Prefetch {
        Slot slot[2];
        PrefetchKind kind;
} Prefetch;

/* A kernel as it was built, or one of those that schedule.c merged; \1 stands for its name. */
typedef struct Piece {
        const char *title;
        const char *decl, *body; /* struct of arguments and functors; what every form begins with */
        union {
                Form form[N_ARCHS];
                Form any;
        };
        int n_args;
        /* It can load before it waits: what it may is decided by launch_overlap.c, and stands as
         * PREFETCH at the beginning of prefetch_in, or of body (N_ARCHS). */
        const struct Prefetch *prefetch;
        ArchId prefetch_in;
        const char *prefetches;
        bool alone;      /* fills the GPU: not to be joined with others */
        bool fast;       /* 16-bit arguments: fast functions will do */
        int product;     /* it is work of product - 1 of the module's; 0: of none */
        bool plain;      /* calls no functions: does not care who is beside it */
        bool streams;    /* a GEMV: reads weights once */
        bool after_wait; /* the next launch is better started when this one has waited */
        bool beside;     /* sums beside a product: short, whatever its tile */
        /* on sm_90a a GEMM whose tiles all run at once, or NULL; schedule.c gives it `tile`, which
         * its form calls Tile */
        const struct SingleWave *single_wave;
        const char *tile;
        double us;                  /* of a block, where that is long: schedule.c; 0: it is not */
        int compile_ms;             /* estimate, for NVRTC's turns */
        double flops, bytes;        /* of one launch at the program's largest sizes */
        const char *where;          /* the ops fused into it, and their lines */
        int group;                  /* Group.id of these; 0: none */
        const char *reads, *writes; /* names, for people */
        /* [n_args] of the parameters after rt, as C: what stands before the name */
        const char **type, **name;
} Piece;

/* the type of those that are tensor maps, given by value; no others are */
extern const char map_param[];

typedef struct Launch {
        const char *kernel; /* its name, once kernels_name gave it one */
        Slot *arg;          /* those of all pieces, in order */
        Use *use;
        int n_args;
        /* launches alone, no texts; of several pieces another than ARCH_ANY's only where all have
         * single_wave */
        union {
                Form form[N_ARCHS];
                Form any;
        };
        Piece **piece; /* equal ones stand together */
        int n_pieces;
        /* one block does all pieces, one after the other; not: side by side */
        bool in_turn;
        bool overlaps;            /* on sm_90a it starts before the launch before has ended */
        bool triggers_after_wait; /* triggers_first, but not before it has waited itself */
        /* its shared memory there, where it has no form for it; 0: as everywhere */
        int spread;
} Launch;

typedef struct Kernel {
        const char *name, *title;
        const char *text; /* source; \1 stands for the name; */
        unsigned hash;    /* of it */
        int n_args;
        union {
                Form form[N_ARCHS];
                Form any;
        };
        int spread;          /* of Launch */
        bool pdl;            /* waits for the launch before it by itself */
        double flops, bytes; /* of one launch at the program's largest sizes */
        Piece **piece;
        int n_pieces;
        const char *used; /* "step 12, decode 24": launches by program */
        int n_now;        /* launches of the program being written */
} Kernel;

/* A tile that `tgc tune` found to be the fastest, for products of this key (tile_choice.c). */
typedef struct Choice {
        const char *key, *tile;
        int splits;
        Loc loc;
        bool used;
} Choice;
/* wrong: what is, and where; NULL: nothing.  Who has the memory of a compilation in hand says
 * it. */
typedef struct Choices {
        const char *gpu;
        Choice *choice;
        int n;
        Arena *arena;
        const char *wrong;
        Loc at;
} Choices;

/* Products of one key: the tile, that for sm_90a or NULL, what else promises something; joined:
 * there are launches that do it together with others. */
typedef struct Product {
        const char *key, *tile, *tile_sm90, *others;
        bool joined;
} Product;

/* All programs of one target share its kernels. */
typedef struct Module {
        Arena *arena;
        int target;
        Kernel *kernel;
        int n_kernels, cap;
        Choices *choices; /* or NULL */
        bool tf32;        /* products of float32 have tf32's factors */
        Text *launches;   /* of the plan's section, or NULL (launches_text.c) */
        Product *product;
        int n_products, cap_products;
} Module;

typedef struct Emit {
        Module *m;
        Graph *g;
        Place *place;
        Group *groups;
        int n_groups;
        Arena *tmp;
        bool *stored;    /* node values that lie in memory */
        bool *done_sm90; /* anchors whose work a product's kernel does on sm_90a */
        Launch *launch;
        int n_launch, cap_launch;
        Work *work;
        int n_work, cap_work;
        TensorMap *map;
        int n_map, cap_map;
        int most_b, most_t; /* largest sizes of the program */
        /* The cache is one of pages; and a call takes several tokens of each of several sequences,
         * which lie one after the other: the graph's B is 1, its T all tokens (rt.h). */
        bool paged, ragged;
        int64_t cache_rows;      /* tokens that its pages hold */
        int64_t weights;         /* bytes, once they are asked for */
        int *buffer_of;          /* program.c's: node, or number of nodes + work -> buffer */
        struct Scratch *scratch; /* functor.c's: one entry per node, empty between functors */
        struct Items *items;     /* row.c's: results by number */
        struct Norms *norms;     /* sm90_gemm_norm.c's: norms by what makes their input */
        struct Columns *columns; /* row.c's: which sums of columns are beside which product */
} Emit;

/* A kernel being written: arguments are collected as they are mentioned. */
typedef struct Args {
        Slot slot[64];
        const char *name[64], *type[64];
        Use use[64];
        int n;
} Args;

/* name of the storage of base in the struct */
const char *arg_of(Emit *e, Args *a, Ref base, bool write);
/* base is written where part lies, no more */
const char *arg_part(Emit *e, Args *a, Ref part, Ref base);
const char *arg_grad(Emit *e, Args *a, Ref param, DType dt);
/* read and written */
const char *arg_work(Emit *e, Args *a, int work, const char *type, const char *name);
/* read only */
const char *arg_done(Emit *e, Args *a, int work, const char *type, const char *name);
const char *arg_map(Emit *e, Args *a, const TensorMap *m, const char *name);
int work_new(Emit *e, Dim elems, int size);
int work_keep(Emit *e, Dim elems, int size, const char *name);
/* A constant integer that differs between layers: read from memory, so that their kernels are
 * equal. */
const char *arg_int(Emit *e, Args *a, int value, const char *name);
const char *arg_arena(Emit *e, Args *a, const char *arena, const char *type, const char *name);

/* An epilogue's store, or what it reads of rows: of two neighbouring sums `width` 16-bit values
 * (EpilogueStores in kernels/common/tgc.cuh), in a matrix of rows of cols elements, ld apart.  ld
 * 0: it does not lie so. */
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

/* One kernel under construction, for either target.  Text goes to all forms until form_begin; then
 * to that form. */
typedef struct Build {
        Emit *e;
        const Group *gr;
        Args args;
        const char *title;
        union {
                Form form[N_ARCHS];
                Form any;
        };
        struct {
                Text decl, body;         /* functors; of the entry point */
        } text[N_ARCHS + 1];             /* of a form; the last: of all */
        ArchId at;                       /* which is being written */
        const struct Prefetch *prefetch; /* of Piece */
        ArchId prefetch_in;
        bool alone, plain, streams, after_wait, beside; /* of Piece */
        const struct SingleWave *single_wave;
        const char *tile;
        int compile_ms;          /* beyond its headers' */
        double us, flops, bytes; /* us: of Piece */
} Build;

Build build_start(Emit *e, const Group *gr, const char *include, const char *title);
void build_line(Build *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* adds its text to decl */
FunctorText build_functor(Build *b, const Functor *f, const char *name);
/* The form that is being written from here on; its launch is to be filled in.  include NULL: as it
 * is.  ARCH_ANY ends the others. */
Form *form_begin(Build *b, ArchId arch, const char *include);
/* There is nothing to do on arch; what follows is for the others. */
void form_leave_out(Build *b, ArchId arch);
Text *build_body(Build *b); /* of what is being written */
Text *build_decl(Build *b);
/* A constant that differs between forms; its name, in what all forms have. */
const char *form_constant(Build *b, const char *name, const char *any, ArchId arch, int64_t value);
/* PREFETCH, in the text, is what may be loaded before the wait.  PREFETCH_REST: the second is
 * NULL */
void build_prefetch(Build *b, PrefetchKind kind, const Slot *first, const Slot *second);
/* this launch passes the argument's address plus bytes */
void build_shift(Build *b, const char *arg, int64_t bytes);
void build_end(Build *b, const char *grid); /* adds the launch; grid: of ARCH_ANY */
void build_drop(Build *b);                  /* or forgets it */
/* C: the loop over tiles; work: operations of one tile, decides about threads. */
void build_cpu_loop(Build *b, const char *tiles, double total_work, const char *call);
bool is_cuda(const Emit *e);
const char *short_name(Emit *e, Ref r);
const char *c_type(DType dt);
bool dim_known(const Emit *e, Dim d); /* a constant, in this program */
const char *dim_c(Emit *e, Dim d);    /* C text: constants, B and T */
const char *dim_grid(Emit *e, Dim d); /* manifest text */

/* ---- entry.c: pieces to entry points ---- */

int64_t grid_count(const char *expr); /* blocks; -1: they depend on B or T */
bool piece_equal(const Piece *a, const Piece *b);
/* kernels announce the next before they wait themselves, but for triggers_after_wait */
bool triggers_first(const Emit *e);
void kernels_name(Emit *e); /* every launch gets a kernel, equal texts the same one */
/* \1 as `to`, lines indented but empty ones */
void text_as(Text *out, const char *text, const char *to, const char *indent);

/* ---- module.c: all kernels of one target, as texts ---- */

Module *module_new(Arena *a, int target);
void module_text(const Module *m, Text *kernels, Text *source);
/* every kernel for people: ops, lines, launch, buffers, work */
void module_fused(const Module *m, Text *out);
/* ends a program: adds its launches to Kernel.used */
void module_count(Module *m, const char *program);

/* ---- launches_text.c: what every launch is made of, reads and writes ---- */

void launches_text(Emit *e, const char *program); /* once kernels have names */

/* ---- schedule.c: small launches that do not wait for each other become one ---- */

enum { LIGHT_SMEM = 16 << 10 }; /* a kernel with no more of it keeps no tiles in registers */
void schedule_launches(Emit *e, Arena *a);
bool same_storage(const Emit *e, const Slot *a, const Slot *b);

/* ---- launch_overlap.c: what of a launch runs before the launch before has ended, on sm_90a
 * ---- */

void launches_overlap(Emit *e);                            /* once launches are in order */
const Launch *launch_next(const Emit *e, const Launch *l); /* that sm_90a has, or NULL */

/* ---- functor.c: prologues and epilogues as text, CUDA and C ---- */

void functor_emit(Emit *e, Args *a, const Functor *f, const char *name, FunctorText *out);

/* ---- gemm.c: operands and tiles, also for the loss ---- */

/* What multiplies in a tile, and who: consumers that have the tile together, or whole ones in turns,
 * or a warpgroup for every 64 rows of a block's only tile. */
typedef enum TileMath { MATH_FMA, MATH_TF32X3, MATH_MMA, MATH_WGMMA } TileMath;
typedef enum TileSchedule { SINGLE_WAVE, PINGPONG, COOPERATIVE } TileSchedule;
/* A row of gemm_tiles.def or sm90_gemm_tiles.def, where each column is explained. */
typedef struct Tile {
        const char *name;
        ArchId arch;
        TileMath math;
        int bm, bn, threads, min_blocks, smem, ps, rounds;
        TileSchedule schedule; /* of sm_90a's, and what follows */
        int parts, ps_tf32;
        double ta;
} Tile;
const Tile *tile_next(ArchId arch, const Tile *t); /* NULL begins, and ends */

/* The fastest tile by estimate; into how many parts to split K, unless splits is NULL. */
const Tile *tile_pick(DType dt, int64_t M, int64_t N, int64_t K, int64_t batch, int *splits);
/* its estimate */
double tile_time(const Tile *t, int64_t M, int64_t N, int64_t K, int64_t batch, int splits);
/* A tile that can do a product, K in so many parts, and the estimate. */
typedef struct Candidate {
        const Tile *t;
        int splits;
        double us;
} Candidate;
enum { MOST_CANDIDATES = 512 };
int tile_list(DType dt, int64_t M, int64_t N, int64_t K, int64_t batch, bool cut, Candidate *out);
bool tile_known(const char *name); /* in either table */
/* Tiles of bm x bn, of `parts` matrices M x N, that the busiest multiprocessor of an H100 gets. */
int64_t tile_rounds(int bm, int bn, int64_t M, int64_t N, int64_t parts);
/* C text; align in elements; stride: ld where it is a constant, else 0 */
typedef struct Mat {
        const char *arg, *ld, *step;
        int64_t align, stride;
        DType dt;
} Mat;
bool mat_of(Emit *e, Build *b, Ref r, int lead, Mat *m) MUST_USE; /* lead: batch axes */
void mat_need(Emit *e, Build *b, Ref r, int lead, Mat *m);        /* or it is our mistake */
const char *plain_arg(Emit *e, Build *b, Ref r); /* address of a value that lies whole */
int64_t dim_most(Emit *e, Dim d);                /* value at the program's largest sizes */
int64_t pow2_of(Dim d); /* largest power of two that divides it, 8 at most */
/* read at a time where these divide: 16 at most */
int align_bytes(DType dt, int64_t x, int64_t y);
const char *ty(DType dt);               /* TY_F32 ... of tgc.h */
Ref item_of(Emit *e, Ref r, int index); /* the node that names output index, or 0 */

/* ---- sm90_gemm.c: a product's branch for sm_90a ---- */

/* C (M,N) = op(a) op(w): where the operands lie as rows of lda and ldw elements; bytes that divide
 * all addresses; bytes that the epilogue moves per element of C, and whether it reads some.  rows:
 * M, which a run may have fewer of unless it is fixed; a has memory for all. */
typedef struct Gemm {
        DType dt;
        bool ta, tb;
        Slot a, w;
        int64_t lda, ldw, M, N, K;
        int align;
        double epilogue_bytes;
        bool reads, fixed;
        Dim rows;
        bool single_wave; /* it may have a short tile */
        bool slabs;       /* w is sm90_gemm_transpose's copy */
        int n_stored;     /* of FunctorText */
        Stored stored[MOST_STORED], from;
} Gemm;
/* The fastest tile if it is faster than `other`, which runs elsewhere, else NULL; K is cut only if
 * it is there. */
const Tile *sm90_tile_pick(const Gemm *p, const Tile *other, int other_splits, int *splits);
int sm90_tile_list(const Gemm *p, bool cut, Candidate *out);
/* tile_time, and what its own epilogue moves */
double tile_time_epilogue(const Tile *t, const Gemm *p, int splits);
bool slot_of(Emit *e, Ref r, Slot *s, int64_t *ld) MUST_USE; /* false: r does not lie as rows */
void slot_need(Emit *e, Ref r, Slot *s, int64_t *ld);
const char *sm90_gemm_maps(Build *b, const Gemm *p); /* C text: maps, M, N, K */
/* Before sm90_gemm: of float32 w must have K contiguous; if it has not, a launch of its own makes
 * what has, of which p speaks then. */
void sm90_gemm_transpose(Build *b, Gemm *p);
bool sm90_gemm_takes(const Emit *e, DType dt); /* it does products of such matrices */
int64_t sm90_row_sums(const Gemm *p, const Tile *t, int splits);
/* a name for either number */

/* A product short enough for tiles that all run at once, a block each; t: which was asked for, or
 * NULL: as is best for the launch. */
typedef struct SingleWave {
        Gemm p;
        const Tile *t;
} SingleWave;
enum { MOST_SINGLE_WAVES = 4 };
/* The fastest tiles for n of them in one launch, and its microseconds; 0: they do not fit. */
double single_waves_pick(const SingleWave *const *s, int n, const Tile **best);
Form single_wave_form(Arena *a, const Tile *t, const SingleWave *s);

/* ---- products over experts ---- */

/* Of E experts: y (M slots, N) = a W_e^T (tb) or a W_e; grad: dW_e (M,N), the sum over K slots of
 * a_p w_p^t.  adiv, wdiv: 0, rows in the order of experts; else they are gathered
 * (kernels/moe/grouped_gemm.cuh).  rows_a, rows_w, order: C text, address and row stride of what a
 * and w are, and perm and offs. */
typedef struct GroupedGemm {
        bool grad, tb, scatter;
        DType dt;
        Ref a, w;
        int64_t E, M, N, K, adiv, wdiv;
        int align;
        double epilogue_bytes; /* per element of y or dW */
        const char *rows_a, *rows_w, *order;
        const Tile *any; /* what ARCH_ANY's form does it in; the body names `epilogue` */
} GroupedGemm;

/* ---- tile_choice.c: the tile of a product: one that was measured, else the cost model's ---- */

Choices *choices_read(Arena *a, const char *text, const char *name);
/* those that products took, sorted, as text; how many */
int choices_used(Choices *c, Text *out);
/* How a product may be done: K in parts; through tensor maps; M is the most it can be.  epilogue:
 * its name in the key. sums: of op(a)'s rows are wanted too. */
typedef struct Ways {
        bool cut, maps, most, sums;
        int64_t batch;
        const char *epilogue;
} Ways;
/* tile NULL: ARCH_ANY's does it there as well.  forced: measured. */
typedef struct Pick {
        const Tile *tile[N_ARCHS];
        int splits[N_ARCHS], product, first;
        bool forced;
} Pick;
Pick product_pick(Emit *e, const Gemm *p, const Ways *w);
void product_end(Emit *e, const Pick *k);            /* the launches since then are the product's */
const char *epilogue_key(Emit *e, const Functor *f); /* names of its ops */
/* for `tgc tune`, see runtime/plan/plan.h */
void products_run(Emit *e, const char *program, Text *out);
void products_text(const Module *m, Text *out); /* after the last products_run */

/* ---- forms.c: which forms a kernel gets (forms/forms.def) ---- */

typedef enum Family {
        FAMILY_gemm,
        FAMILY_gemm_norm,
        FAMILY_gemv,
        FAMILY_grouped_gemm,
        FAMILY_attention,
        FAMILY_attention_decode,
        FAMILY_attention_backward
} Family;

/* Adds to b the forms that its problem has on other architectures, in their rows' order; what is
 * written then is ARCH_ANY's alone.  problem: the struct of the family.  Is there any? */
bool forms_add(Build *b, Family family, const void *problem);

#define FORM(family, arch, adds) bool adds(Build *b, const void *problem);
#include "forms/forms.def"
#undef FORM

/* A product in the tile that was picked; splits above 1: parts of K go to the argument ws.  sums:
 * the argument for sums of op(a)'s rows, in sm90_row_sums parts, or NULL.  forced: the tile was
 * asked for.  Its body names `epilogue`. */
typedef struct GemmWork {
        const Gemm *p;
        const Pick *pick;
        bool forced;
        const char *ws, *sums;
} GemmWork;

/* The product's tile of either kind, and the norm of the rows that its epilogue makes; shape,
 * operands: C text, gemm_task's template arguments T to ALIGN and a to K. */
typedef struct GemmNormWork {
        const Group *norm;
        const Pick *pick;
        const Gemm *p;
        const char *shape, *operands;
} GemmNormWork;

/* A gemv_short product that has its prologue and epilogue.  minv: the epilogue's.  C text: template
 * arguments N to ALIGN; operands w, ldw and eps; gain and keep, each after a comma. */
struct GemvShort;
typedef struct GemvWork {
        const struct GemvShort *few;
        int minv;
        const char *shape, *operands, *rest;
} GemvWork;

/* r: the attention; lse: C text.  Bodies name `in` and `epilogue`. */
typedef struct AttentionWork {
        Ref r;
        const char *lse;
} AttentionWork;

/* Few queries, `rows` at a time, over a cache in `splits` parts; the grid is ARCH_ANY's.  parts,
 * done: C text. */
typedef struct DecodeWork {
        Ref r;
        int rows, splits;
        const char *grid, *parts, *done;
} DecodeWork;

/* What dq's kernel does of all: dq alone, or everything, and dk's and dv's is left out. */
typedef enum GradKind { GRAD_Q, GRAD_KV, GRAD_BOTH, GRAD_SHORT } GradKind;
/* sums: C text, lse and delta, for dq after the output and its strides, for both after { output, its
 * strides, its gradient, those }; of short sequences no delta.  Bodies name `epilogue`,
 * `epilogue_k` and `epilogue_v`. */
typedef struct BackwardWork {
        Ref r;
        GradKind kind;
        const char *sums;
} BackwardWork;

/* ---- sm90_attention.c ---- */

bool sm90_attention_backward_fits(Emit *e,
                                  Ref r); /* r: an attention's gradient with such kernels */
GradKind sm90_attention_backward_kind(Emit *e, Ref r);
void att_operands(Build *b, const Group *attention); /* attention.c: \1_att, and `in`, for CUDA */

/* ---- sm90_gemm_norm.c ---- */

/* The group of a norm that reads, as its rows of N, what the product's epilogue stores as `of`; or
 * NULL.  The epilogue is then to hand that back. */
void norms_find(Emit *e); /* before the first kernel */
const Group *gemm_norm_find(Emit *e, const Group *product, int64_t N, Ref *of);

/* ---- ops/: one group to kernels, by the class of its anchor ---- */

void gen_map(Emit *e, const Group *gr);
void gen_row(Emit *e, const Group *gr);
void gen_column(Emit *e, const Group *gr);
void gen_gemm(Emit *e, const Group *gr);
void gen_grouped_gemm(Emit *e, const Group *gr);
void gen_loss(Emit *e, const Group *gr);
void gen_attention(Emit *e, const Group *gr);
void gen_route(Emit *e, const Group *gr);
void gen_sample(Emit *e, const Group *gr);
void gen_group(Emit *e, const Group *gr); /* the switch over all of them */

/* A product dW = dy^T x can sum dy's columns by the way on sm_90a (row.c).  gen_column leaves the
 * group to gen_gemm, which calls column_sums after the product; parts_sm90: how many parts it put into
 * `work`, or 0. */
void columns_find(Emit *e);                       /* before the first kernel */
const Group *column_beside(Emit *e, Ref product); /* the sums' group, or NULL */
int column_work(Emit *e, const Group *gr, int64_t parts_sm90);
void column_sums(Emit *e, const Group *gr, int work, int64_t parts_sm90);
/* Gradient norm and AdamW over the arenas; the sums over micro-steps of the first n_low
 * gradients. */
void gen_update(Emit *e, int64_t n, int64_t n_decay, int64_t n_low, DType dt);
void gen_add_grads(Emit *e, int64_t n, int64_t n_low);

/* ---- program.c: a graph to one program of a module ---- */

typedef struct Layout Layout; /* element offsets of parameters, see program.c */

/* ---- memory.c ---- */

typedef struct Buffer {
        Slot slot;
        const char *name;
        int64_t bytes, offset;
        int first, last;
} Buffer;
/* Offsets for everything that lives in the activation arena, first fit by size. */
int64_t plan_memory(Emit *e, Arena *a, Buffer **out, int *n);

#endif
