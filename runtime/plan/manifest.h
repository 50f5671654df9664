/* manifest.h: a plan's manifest, parsed (the format is in plan.h). */
#ifndef TGC_MANIFEST_H
#define TGC_MANIFEST_H

#include <stddef.h>
#include <stdint.h>
#include "../util/err.h"

enum { MANIFEST_MAX_DIMS = 8, MANIFEST_MAX_TEXT = 256 << 20 };

typedef enum { STORE_F32, STORE_BF16, STORE_F16, STORE_FP8 } Store; /* fp8: of caches alone */

typedef enum { INIT_NORMAL, INIT_UNIFORM, INIT_ZEROS, INIT_ONES, INIT_VALUE } InitKind;

typedef struct Param {
        const char *name;
        int64_t dim[MANIFEST_MAX_DIMS];
        int n_dims;             /* 0: a scalar */
        uint64_t offset, count; /* elements */
        int blocks;             /* CK_Q4_0 ...: its values lie in blocks; 0: in elements */
        uint64_t slots;         /* elements of the arena that it takes */
        int trainable;
        double rate, decay; /* its learning rate by the run's, its weight decay; 0: the run's */
        InitKind init;
        double init_arg[2];
} Param;

/* A matrix that optimiser muon trains: rows of cols elements, ld apart, from the first on. */
typedef struct ParamMatrix {
        uint64_t first, rows, cols, ld;
} ParamMatrix;

typedef struct Manifest {
        const char *model;
        Store dtype, cache; /* cache: of keys and values; as dtype, unless the plan says so */
        int infer, train;   /* mode */
        int vocab, ctx, batch, chunk;
        int pages;  /* of the cache, one of them nobody's; 0: it has none */
        int window; /* most tokens that any layer of a paged cache looks back; 0: all */
        /* the same of the second pool, of layers that look back less; 0: there is none */
        int narrow_pages, narrow_window;
        int act8; /* on a CPU values that meet weights in blocks are rounded to 8 bits */
        /* What meets weights of fp8 is rounded to e4m3; columns of a scale, 1: a token has one; 0:
         * it is not. */
        int act_fp8;
        int tf32;              /* products of float32 have tf32's factors on a GPU */
        int n_adapters;        /* each sequence may have one of so many (meta adapter); 0: none */
        int fast;              /* on a GPU a sequence's bits depend on how many others there are */
        const char *optimizer; /* its name in ir/optimizers.def */
        int hidden; /* width of what an encoder makes of a token (program embed); 0: it is none */
        int documents; /* token that begins one in a row of training tokens; -1: none does */
        uint64_t n_train, n_decay, n_all;
        Param *param;
        int n_params;
        ParamMatrix *matrix;
        int n_matrices;
        void *mem;
} Manifest;

/* Checked: parameters lie inside n_all, trainable ones inside n_train, none
 * overlap, names are unique. */
int manifest_parse(Manifest *m, const char *text, size_t size, Err *e);
void manifest_free(Manifest *m);
int manifest_param(const Manifest *m, const char *name); /* index or -1 */
uint64_t manifest_elements(const Manifest *m);           /* n_all, with values of blocks counted */
size_t store_size(Store t);                              /* bytes of one element */
int store_ck(Store t);                                   /* CK_F32 ... */
int param_ck(const Manifest *m, int param);              /* as what its values lie */
size_t param_bytes(const Manifest *m, int param);
const char *store_name(Store t);

#endif
