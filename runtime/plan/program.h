/* program.h: a plan's program text, parsed (the format is in plan.h).
 *
 * Everything a Program points to lives in the one allocation behind it and is
 * freed by program_free.  After program_parse every name is resolved, every
 * reference lies inside its arena, and every expression evaluates without
 * overflow at the largest B and T of its program. */
#ifndef TGC_PROGRAM_H
#define TGC_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../util/err.h"

enum {
        PROGRAM_MAX_TEXT = 256 << 20, /* bytes of program text                        */
        PROGRAM_MAX_ARGS = 256,       /* of one kernel; CUDA's limit is about 500     */
        PROGRAM_MAX_THREADS = 1024,
        PROGRAM_MAX_SMEM = 1 << 20,
        PROGRAM_MAX_CLUSTER = 8 /* what every GPU with clusters forms           */
};

#define REF_RT (-1)
#define REF_MAP (-2)

/* An address: Rt itself, or an offset in an arena.  Or tensor map number `offset`, by value. */
typedef struct Ref {
        int arena;
        uint64_t offset;
} Ref;

typedef struct ArenaDef {
        const char *name;
        uint64_t size;
} ArenaDef;

/* Architectures that kernels have forms for (program_archs); the first is everybody's. */
enum {
#define ARCH(id, ...) FORM_##id,
#include "arch.def"
#undef ARCH
        N_FORMS
};
typedef struct ArchDef {
        const char *name, *macro; /* as plans have it; defined for its code, or NULL */
        int sms;                  /* multiprocessors of the GPU that is emulated */
} ArchDef;
extern const ArchDef program_archs[N_FORMS];
int arch_of(const char *name); /* which has forms for the GPU "sm_XX": FORM_ANY, if none */

/* How a kernel is launched on one architecture.  threads 0: as FORM_ANY says. */
typedef struct FormDef {
        int threads;
        unsigned smem;    /* bytes of dynamic shared memory */
        unsigned cluster; /* blocks of a cluster, which divides the grid; 0: none */
        int persistent;   /* blocks stay: at most as many as multiprocessors */
} FormDef;

typedef struct KernelDef {
        const char *name, *unit, *title;
        int n_args;
        int pdl; /* may start before the launch before it has ended */
        FormDef form[N_FORMS];
        double flops, bytes; /* of one launch at the largest shape; 0: not known */
        const Ref *arg; /* of its first run, or NULL: tensor maps are in the same places in all */
} KernelDef;

typedef struct Io {
        const char *name;
        const char *dtype; /* f32 bf16 f16 i32 */
        Ref at;
        const char *shape; /* expression; its value is the number of elements */
        size_t elem;       /* bytes of one element */
} Io;

typedef struct Run {
        int kernel;                /* index in Program.kernel */
        const char *grid[N_FORMS]; /* expressions; NULL where the kernel has no such form */
        const Ref *arg;            /* n_args of the kernel */
} Run;

/* A copy between an arena and arena host, beside the runs: it begins before run `begin` and is done
 * before run `end`; those from begin to end - 1 touch neither side. */
typedef struct Move {
        Ref here, host;
        uint64_t size;
        bool out;       /* to the host */
        int begin, end; /* begin <= end <= n_run */
} Move;

typedef struct Prog {
        const char *name;
        int B, T; /* largest shape */
        Io *io;
        int n_io;
        Run *run;
        int n_run;
        Move *move; /* in the order in which they begin */
        int n_move;
} Prog;

typedef struct Zero {
        Ref at;
        uint64_t size;
} Zero;

/* Keys or values of one layer: page i is page_bytes at at + i * page_bytes. */
typedef struct CacheDef {
        Ref at;
        uint64_t page_bytes;
        int pages, pool; /* rt.h */
} CacheDef;

/* A tensor map of a matrix at `of`. */
enum { MAP_BYTES = 128 };
/* tf32: float32, rounded on the way */
typedef enum MapType { MAP_BF16, MAP_F16, MAP_TF32 } MapType;

typedef struct MapDef {
        Ref of;
        MapType type;
        uint64_t elem;           /* bytes of an element */
        uint64_t rows, cols, ld; /* elements */
        /* what moves at once; 0, 128: as many rows as 128 bytes are elements */
        int box_rows, box_bytes;
} MapDef;

typedef struct Program {
        ArenaDef *arena;
        int n_arenas;
        KernelDef *kernel;
        int n_kernels;
        Prog *prog;
        int n_progs;
        Zero *zero;
        int n_zeros;
        CacheDef *cache; /* of paged ones */
        int n_caches;
        MapDef *map;
        int n_maps;
        void *mem;
} Program;

/* program_parse.c.  `what` names the text in messages, which carry its line: `program.cuda:12:
 * ...`. */
int program_parse(Program *p, const char *text, size_t size, const char *what, Err *e);

/* program.c */
void program_free(Program *p);

int program_arena(const Program *p, const char *name);        /* index or -1 */
const Prog *program_find(const Program *p, const char *name); /* or NULL */
/* the smallest that takes so many sequences, or NULL */
const Prog *program_decode(const Program *p, int B);
const Io *prog_io(const Prog *p, const char *name); /* or NULL */

/* expr.c.  Value of EXPR; -1 when the text is malformed or the value exceeds 2^62.  A
 * parsed program's expressions do not fail within the program's B and T. */
int64_t expr_eval(const char *expr, int B, int T);

#endif
