/* program.h: kernels under construction, their launches, and the programs made of them.
 *
 * A Build becomes a Piece, pieces become a Launch, equal launches share a Kernel of the Module.
 * Functions are grouped by the file that defines them. */
#ifndef TGC_CODEGEN_PROGRAM_H
#define TGC_CODEGEN_PROGRAM_H

#include "../lower/lower.h"

/* ---- form.c: what a kernel is on each architecture ---- */

typedef enum ArchId {
#define ARCH(id, ...) ARCH_##id,
#include "../../runtime/plan/arch.def"
#undef ARCH
        N_ARCHS
} ArchId;

/* Sizes as constants: ANY_SMS, SM90A_SMS, SM90A_SMEM ... */
enum {
#define ARCH(id, name, macro, sms, smem_sm, smem) \
        id##_SMS = sms, id##_SM_SMEM = smem_sm, id##_SMEM = smem,
#include "../../runtime/plan/arch.def"
#undef ARCH
};

typedef struct Arch {
        const char *name, *macro;
} Arch;
extern const Arch archs[N_ARCHS];

/* Blocks of a launch (grid.c): a product of dimensions, of dimensions by parts of `by` (0: whole),
 * and of such parts and one more for each sequence of the call. */
enum { MOST_FACTORS = 4 };
typedef struct GridFactor {
        Dim of;
        int64_t by;
        bool sequences;
} GridFactor;
typedef struct Grid {
        GridFactor factor[MOST_FACTORS];
        int n; /* 0: it is not set */
} Grid;

/* How a kernel's problem is done on one architecture.  ARCH_ANY's always is; threads 0: there is no
 * other, that one serves.  A form may have a launch of its own and the general one's text. */
typedef struct Form {
        const char *include; /* header without its ending: "sample" is sample.cuh or cpu_sample.h */
        const char *decl, *body; /* what this form alone declares and does, or NULL */
        Grid grid;
        int threads, smem, min_blocks;
        int cluster;     /* blocks of a cluster; 0: none */
        bool persistent; /* blocks stay: one a multiprocessor, `grid` of them at most */
        bool pairs;      /* persistent ones, in clusters of two */
        bool waits;      /* its body calls pdl_wait */
        bool none;       /* nothing is left to do there: the grid is 0 */
} Form;

static inline bool form_is(const Form *form, ArchId arch) { return form[arch].threads > 0; }

struct Build;
struct Piece;
bool form_waits(const struct Piece *p); /* the body of some form calls pdl_wait */
/* The one place where forms become text, with branches between them. */
void form_decl(const struct Piece *p, Text *out);
void form_body(const struct Piece *p, Text *out);
void form_includes(const struct Piece *p, const char *include[N_ARCHS + 1]);

/* The form that is being written from here on; its launch is to be filled in.  include NULL: as it
 * is.  ARCH_ANY ends the others. */
Form *form_begin(struct Build *b, ArchId arch, const char *include);
/* There is nothing to do on arch; what follows is for the others. */
void form_leave_out(struct Build *b, ArchId arch);
Text *build_body(struct Build *b); /* of what is being written */
Text *build_decl(struct Build *b);
/* A constant that differs between forms; its name, in what all forms have. */
const char *form_constant(struct Build *b, const char *name, const char *any, ArchId arch,
                          int64_t value);

/* ---- build.c: what the emitters produce ---- */

enum { TARGET_CUDA, TARGET_CPU, N_TARGETS };

/* A matrix as Hopper's copy engine sees it: rows of `cols` elements, `ld` apart; of float32 tf32
 * come.  It moves boxes of 128 bytes by as many rows as these are elements; or of box_bytes (128,
 * 64, 32) by box_rows. */
typedef struct TensorMap {
        Slot of;
        DType dt;
        int64_t rows, cols, ld;
        int box_rows, box_bytes;
} TensorMap;

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

/* The C type of an argument's elements. */
typedef enum CType { C_F32, C_BF16, C_F16, C_I32, C_U8, C_U16, C_F64, C_MAP } CType;

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
        bool alone;           /* fills the GPU: not to be joined with others */
        bool fast;            /* 16-bit arguments: fast functions will do */
        int product;          /* it is work of product - 1 of the module's; 0: of none */
        bool plain;           /* calls no functions: does not care who is beside it */
        bool streams;         /* a GEMV: reads weights once */
        bool shared;          /* C: threads share its tiles (build_cpu_loop) */
        bool after_wait;      /* the next launch is better started when this one has waited */
        bool late;            /* ... when its body says so (pdl_launch_late) */
        bool beside;          /* sums beside a product: short, whatever its tile */
        bool multiplies_bf16; /* some matrix that it multiplies lies in bf16 */
        /* on sm_90a a GEMM whose tiles all run at once, or NULL; schedule.c gives it `tile`, which
         * its form calls Tile */
        const struct SingleWave *single_wave;
        const char *tile;
        bool joins;                 /* its form on sm_90a stands beside others that say so, too */
        double us;                  /* of a block, where that is long: schedule.c; 0: it is not */
        int compile_ms;             /* estimate, for NVRTC's turns */
        double flops, bytes;        /* of one launch at the program's largest sizes */
        const char *where;          /* the ops fused into it, and their lines */
        int group;                  /* Group.id of these; 0: none */
        const char *reads, *writes; /* names, for people */
        /* [n_args] of the parameters after rt, as C: what stands before the name */
        const char **type, **name;
        CType *ctype;
} Piece;

/* the type of those that are tensor maps, given by value; no others are */
extern const char map_param[];

typedef struct Launch {
        const char *kernel; /* its name, once kernels_name gave it one */
        Slot *arg;          /* those of all pieces, in order */
        Use *use;
        int n_args;
        /* launches alone, no texts; of several pieces another than ARCH_ANY's only where all have
         * single_wave, or all join */
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
        bool triggers_late;       /* not before its body says so */
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

/* All programs of one target share its kernels. */
typedef struct Module {
        Arena *arena;
        int target;
        Kernel *kernel;
        int n_kernels, cap;
        struct Choices *choices; /* or NULL */
        bool tf32;               /* products of float32 have tf32's factors */
        bool fast;               /* bits of a sequence may depend on how many there are, */
        bool act_int8;           /* C: values that meet blocks are rounded to 8 bits */
        uint64_t stored;         /* bit s: a kernel reads blocks of Storage s */
        Text *launches;          /* of the plan's section, or NULL (launches_text.c) */
        struct Product *product;
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
        int slots;          /* most sequences of the plan */
        /* The cache is one of pages; and a call takes several tokens of each of several sequences,
         * which lie one after the other: the graph's B is 1, its T all tokens (rt.h). */
        bool paged, ragged;
        bool mixed; /* ragged, and its first sequences decode: one token each (rt->sampled) */
        int64_t cache_rows;  /* tokens that its pages hold, */
        int64_t narrow_rows; /* those of its second pool, or 0: there is none; */
        int64_t window;      /* and how far layers of the first one look back */
        int64_t weights;     /* bytes, once they are asked for */
        bool offload;        /* offload.c's: it is asked for, what it found, bytes of the host */
        struct HostMove *move;
        int n_move, at_launch; /* at_launch: that whose addresses are being written */
        int64_t host_bytes;
        int *buffer_of;          /* memory.c's: node, or number of nodes + work -> buffer */
        struct Scratch *scratch; /* functor.c's: one entry per node, empty between functors */
        struct Items *items;     /* row.c's: results by number */
        struct Norms *norms;     /* sm90_gemm_norm.c's: norms by what makes their input */
        /* stored.c's: by parameter, 1 + the work where its values lie decoded; or NULL */
        int *decoded;
        struct Attentions *attentions; /* sm90_qkv_attention.c's: those of a cache */
        struct Columns *columns; /* column.c's: which sums of columns are beside which product */
} Emit;

/* A kernel being written: arguments are collected as they are mentioned. */
typedef struct Args {
        Slot slot[64];
        const char *name[64];
        CType type[64];
        Use use[64];
        int n;
} Args;

/* name of the storage of base in the struct */
const char *arg_of(Emit *e, Args *a, Ref base, bool write);
/* base is written where part lies, no more */
const char *arg_part(Emit *e, Args *a, Ref part, Ref base);
const char *arg_grad(Emit *e, Args *a, Ref param, DType dt);
/* read and written */
const char *arg_work(Emit *e, Args *a, int work, CType type, const char *name);
/* read only */
const char *arg_done(Emit *e, Args *a, int work, CType type, const char *name);
const char *arg_map(Emit *e, Args *a, const TensorMap *m, const char *name);
int work_new(Emit *e, Dim elems, int size);
int work_keep(Emit *e, Dim elems, int size, const char *name);
/* A constant integer that differs between layers: read from memory, so that their kernels are
 * equal. */
const char *arg_int(Emit *e, Args *a, int value, const char *name);
const char *arg_arena(Emit *e, Args *a, const char *arena, CType type, const char *name);

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
        bool alone, plain, streams, shared, after_wait, late, beside; /* of Piece */
        const struct SingleWave *single_wave;
        bool joins, multiplies_bf16;
        const char *tile;
        int compile_ms;          /* beyond its headers' */
        double us, flops, bytes; /* us: of Piece */
} Build;

Build build_start(Emit *e, const Group *gr, const char *include, const char *title);
void build_line(Build *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* adds its text to decl */
FunctorText build_functor(Build *b, const Functor *f, const char *name);
/* PREFETCH, in the text, is what may be loaded before the wait.  PREFETCH_REST: the second is
 * NULL */
void build_prefetch(Build *b, PrefetchKind kind, const Slot *first, const Slot *second);
/* this launch passes the argument's address plus bytes */
void build_shift(Build *b, const char *arg, int64_t bytes);
void build_end(Build *b, Grid grid); /* adds the launch; grid: of ARCH_ANY */
void build_drop(Build *b);           /* or forgets it */
/* C: the functor \1_NAME: body is the text of its lines, which know row, col, n, v and a. */
void build_cpu_functor(Build *b, const char *name, const char *body);
/* C: the functor \1_prologue that loads rows of the matrix `arg`, ld elements apart. */
void build_cpu_rows(Build *b, DType dt, const char *arg, int64_t ld);
/* C: the loop over tiles; work: operations of all, decides about threads.  first: what a thread
 * does before its first tile.  One loop a kernel; without, one thread runs it. */
void build_cpu_loop(Build *b, const char *tiles, double total_work, const char *call);
void build_cpu_loop_after(Build *b, const char *tiles, double total_work, const char *first,
                          const char *call);
bool is_cuda(const Emit *e);
const char *short_name(Emit *e, Ref r);
const char *c_type(DType dt);
CType ctype_of(DType dt);
bool dim_known(const Emit *e, Dim d);       /* a constant, in this program */
Dim dim_here(const Emit *e, Dim d);         /* with the symbols that this program knows */
const char *dim_c(Emit *e, Dim d);          /* C text: constants, B and T */
int64_t dim_most(Emit *e, Dim d);           /* value at the program's largest sizes */
const char *ty(DType dt);                   /* TY_F32 ... of tgc.h */
Storage blocks_of(const Emit *e, Ref base); /* of ops/stored.c: as they lie now */
/* of ops/stored.c: where the blocks lie, even while others get them decoded */
const char *blocks_arg(Emit *e, Args *a, Ref param);
const char *ty_of(Emit *e, Ref base); /* of what lies there: TY_Q4_0, too */
/* Rows of storage.def, those of the bits, as kernels know them.  C: a list, X(Q4_0, 32, 18, q4_0)
 * ...  (cpu_tgc.h); CUDA: a class each, once (stored.cuh). */
void stored_list_text(uint64_t bits, Text *t);
void stored_types_text(uint64_t bits, Text *t);
const char *plain_arg(Emit *e, Build *b, Ref r); /* address of a value that lies whole */
Ref item_of(Emit *e, Ref r, int index);          /* the node that names output index, or 0 */

/* ---- grid.c: how many blocks a launch has ---- */

Grid grid_blocks(int64_t n);
Grid grid_dim(const Emit *e, Dim d);
Grid grid_ceil(const Emit *e, Dim d, int64_t by);   /* d / by, rounded up */
Grid grid_ragged(const Emit *e, Dim d, int64_t by); /* and one more for each sequence */
Grid grid_times(Grid a, Grid b);
bool grid_equal(const Grid *a, const Grid *b);
int64_t grid_count(const Grid *g);              /* -1: they depend on B or T */
const char *grid_text(Arena *a, const Grid *g); /* of the manifest's EXPR */

/* ---- entry.c: pieces to entry points ---- */

bool piece_equal(const Piece *a, const Piece *b);
/* kernels announce the next before they wait themselves, but for triggers_after_wait and _late */
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

/* ---- launch_waits.c: which launches wait for which ---- */

/* waits (n_launch), n_waits: zeros that become, of each launch, the earlier ones it waits for. */
void launch_waits(const Emit *e, Arena *a, int **waits, int *n_waits);
bool same_storage(const Emit *e, const Slot *a, const Slot *b);

/* ---- launch_overlap.c: what of a launch runs before the launch before has ended, on sm_90a
 * ---- */

void launches_overlap(Emit *e);                            /* once launches are in order */
const Launch *launch_next(const Emit *e, const Launch *l); /* that sm_90a has, or NULL */

/* ---- memory.c: which values lie in memory, and where ---- */

typedef struct Buffer {
        Slot slot;
        const char *name;
        int64_t bytes, offset;
        int first, last; /* launches between which it is alive */
        int again;       /* 1 + the buffer that launches from its `from` on have instead, or 0 */
        int from;
} Buffer;
/* offload.c: values that rest between the forward and the backward pass.  Buffers of a plan without
 * offsets become two each, the second behind the others, and Emit.move says what is copied when.
 * b has room for twice as many; n of them, then. */
int offload_split(Emit *e, Arena *a, Buffer *b, int n);
/* A copy of a buffer to the host or back: of begin .. end - 1 no launch touches either side. */
typedef struct HostMove {
        int buffer, begin, end;
        int64_t host;
        bool out;
} HostMove;
void stored_find(Emit *e); /* Emit.stored: some reader needs the value in memory */
/* The node whose storage r has: parts of a concat lie in the whole, a token that was chosen lies
 * where the next step reads it. */
Ref storage_of(Emit *e, Ref r);
int64_t buffer_bytes(Emit *e, const Slot *s);
bool in_act(Emit *e, const Slot *s); /* it lies in the arena of activations */
/* Argument i of launch l, by what holds its storage; false: it is not in that arena. */
bool act_argument(Emit *e, int l, int i, Slot *s);
/* Which buffer a node or a work has, counted from 1; 0: none. */
int *buffer_of(Emit *e, const Slot *s);
/* Offsets in the arena of activations: the largest buffer first, each at the lowest offset that no
 * buffer alive at the same time covers.  Returns the bytes of all. */
int64_t plan_memory(Emit *e, Arena *a, Buffer **out, int *n);

/* ---- program.c: a graph to one program of a module ---- */

enum { MAX_KEEP = 64, MAX_STATE = 2048 };

typedef struct ParamPlace {
        const char *name;
        int64_t offset, count;
} ParamPlace; /* elements */

/* Trainable elements of one group of parameters, from a multiple of UPDATE_ALIGN on: learning rate
 * by the run's, weight decay; 0: the run's. */
enum { UPDATE_ALIGN = 16384 };
typedef struct UpdateRange {
        int64_t begin, end;
        double rate, decay;
        bool muon; /* its matrices are sh->matrix's */
} UpdateRange;

/* A matrix that Muon trains: element (r, c) is number first + r * ld + c of the trainable ones. */
typedef struct MuonMatrix {
        int64_t first, ld, rows, cols;
        double rate, decay; /* of its group, as UpdateRange has them */
        bool decays;
} MuonMatrix;

typedef struct Shared {
        Arena *arena;
        const ParamPlace *param;
        int n_params, *by_name; /* by_name: see param_place */
        int64_t n_train, n_decay, n_all;
        UpdateRange *range; /* where parameters are in groups */
        int n_ranges;
        const MuonMatrix *matrix;
        int n_matrices;
        Optimizer optimizer;
        Masters masters;
        bool ema;      /* the average of the parameters is kept */
        int64_t n_low; /* of them, the first: gradients in bf16 */
        int64_t batch;
        int64_t cache_rows; /* tokens that a paged cache has room for; 0: it has no pages */
        /* Layers that look back less than `window`, the most of all layers (0: all tokens), have a
         * pool of their own with room for so many; 0: there is none. */
        int64_t narrow_rows, window;
        int64_t narrow; /* the most that one of them looks back */
        bool merge;     /* small launches of a training step, see schedule.c */
        bool offload;   /* activations move to the host */
        int64_t act_bytes, kv_bytes, keep_bytes, host_bytes; /* arena sizes so far */
        struct {
                const char *name;
                int64_t offset, bytes;
        } keep[MAX_KEEP];
        int n_keep;
        struct {
                const char *name;
                int64_t offset, bytes;
                int pool;
        } state[MAX_STATE];
        int n_state;
        Text consts;      /* bytes of arena const */
        const char **map; /* tensor maps: the ends of their lines, by number */
        int n_map, cap_map, *by_line;
        unsigned cap_by_line;
} Shared;

/* The pool of a paged cache's layers that look back so far, and the tokens that it has room for. */
int pool_of(const Emit *e, int64_t window);
int64_t pool_rows(const Emit *e, int pool);

/* after the last one is there; NULL: none */
const ParamPlace *param_place(Shared *sh, const char *name);
/* g is fused.  B, T: most sequences and tokens.  memory gets the plan as a table, products the
 * launches of products (products_run); both may be NULL. */
void program_emit(Module *m, Graph *g, Shared *sh, const char *name, int B, int T, Text *out,
                  Text *products, Text *memory);
void program_update(Module *m, Shared *sh, DType dt, Text *out);

#endif
