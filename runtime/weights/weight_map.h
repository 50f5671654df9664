/* weight_map.h: from a checkpoint's tensors to a model's parameters, and back.
 *
 * A map is text, one line each; parser and printer are inverses.  All lines begin
 * with `map`, so that they can stand in a plan's manifest as they are:
 *
 *      # comment
 *      map  PARAM[target] = NAME || NAME2: 768x768 | transform | transform ...
 *      map  PARAM =? NAME                      optional: the tensor may be absent
 *      map  ignore GLOB                        tensors that may go unused; * and ? as in file names
 *      map  ignore NAME=OTHER                  NAME may go unused where OTHER is absent or holds
 *                                              the same bytes
 *
 * NAME2... are fallbacks, tried in order; export writes the first name.  The
 * shape after the colon is the checkpoint's ("scalar" for rank 0): checked on
 * import, needed by export unless the transforms are only t, rope and scale.
 * Tokens are parted by blanks; names hold no blanks, '[', '=', '|'.
 *
 * Target: one bracket per leading axis of the parameter, the rest taken whole.
 *      [b:e] [b:e:step] rows b, b+step, ... below e    [i] one row, the axis goes    [:] all
 *
 * Transforms, applied in order to the checkpoint's tensor; what comes out must
 * have exactly the target's shape:
 *      t                 swap the last two axes
 *      rows A B          elements A..B-1 of the first axis
 *      cols A B          elements A..B-1 of the second axis
 *      index I           element I of the first axis, which goes
 *      reshape d0 d1 ..  same elements, new shape
 *      rope H [R]        first axis is H heads of D rows; of each head's first R (default D) rows,
 *                        row i < R/2 goes to 2i and row i+R/2 to 2i+1: rotate-half to interleaved
 *      unrope H [R]      the inverse: interleaved to rotate-half
 *      group H K         first axis is H heads of q, K of k, K of v; they become K times
 *                        (H/K heads of q, one of k, one of v)
 *      scale X           every element times X (not 0)
 *      add X             every element plus X
 *
 * Export runs the same transforms over the indices of the source tensor, so it
 * is the inverse of import by construction. */
#ifndef TGC_WEIGHT_MAP_H
#define TGC_WEIGHT_MAP_H

#include "checkpoint.h"
#include "safetensors.h"

typedef struct WeightMap WeightMap;

/* `name` begins messages: NAME:LINE: error: ... */
int weight_map_parse(WeightMap **out, const char *text, const char *name, Err *e);
char *weight_map_print(const WeightMap *m); /* caller frees; NULL: out of memory */
void weight_map_free(WeightMap *m);         /* NULL is allowed */

/* `names` says how a file's tensors make those that m reads: `map TENSOR OF m = TENSOR OF THE FILE
 * | transform ...`.  After this m reads the file itself; names may go then, all but its strings:
 *   keep
 * it as long as m.  Checks shapes that m states.  What m names and `names` does not stays. */
int weight_map_compose(WeightMap *m, const WeightMap *names, const Checkpoint *ck, Err *e);

/* Write the checkpoint's shapes into entries that state none, for export. */
void weight_map_annotate(WeightMap *m, const Checkpoint *ck);

typedef struct WeightParam {
        const char *name;
        int dtype; /* CK_F32, ... */
        int rank;
        int64_t dim[CK_MAX_RANK];
        void *data;        /* C order, host; may be NULL where begin() is given */
        const char *place; /* where the model makes it, for messages; NULL: unknown */
} WeightParam;

/* All parameters of a model.  begin and end (may be NULL) bracket the work on
 * parameter i, one parameter at a time: begin may put its host memory into
 * *data (import: to be filled; export: filled), end takes it back.  That lets
 * weights on a device pass through one buffer.  When begin succeeded end is
 * called, with ok false where the work between failed.  Import visits a parameter
 * once, export once for every tensor that it gives a part to. */
typedef struct WeightSet {
        int n;
        const WeightParam *param;
        void *ctx;
        int (*begin)(void *ctx, int i, void **data, Err *e);
        int (*end)(void *ctx, int i, bool ok, Err *e);
        /* what to do about tensors that are left over, for the message; NULL: nothing */
        const char *left_over;
} WeightSet;

/* left_over of a model's own tensors */
#define PASS_OVER "  (ignore \"GLOB\" in the model file passes over tensors)"

/* What import found worth a warning.  Names belong to the checkpoint and map. */
typedef struct WeightReport {
        const char **absent;
        int n_absent; /* parameters left as they were: optional, no tensor */
} WeightReport;
void weight_report_free(WeightReport *r);

/* Everything is checked before the first parameter is written: every element of
 * every parameter comes from exactly one entry, shapes agree, types convert, and
 * every tensor is read by an entry or ignored by a glob.
 * report may be NULL. */
int weight_map_import(const WeightMap *m, const Checkpoint *ck, const WeightSet *params,
                      WeightReport *report, Err *e);

/* TGC_BAD_FILE: a NAME of `ignore NAME=OTHER` holds other bytes than OTHER. */
int weight_map_twins(const WeightMap *m, const Checkpoint *ck, Err *e);

/* type[i]: the type of blocks in which all of parameter i lies in the file, if all of them could be
 * copied as they are; else below 0.  For set's names and shapes. */
int weight_map_blocks(const WeightMap *m, const Checkpoint *ck, const WeightSet *set, int *type,
                      Err *e);

/* Line i of the map: which tensor makes what of which parameter; false: there are no more lines. */
typedef struct WeightLine {
        const char *param;
        const char *name;       /* the tensor's */
        const CkTensor *tensor; /* NULL: it is not there, or ck is NULL */
        int64_t to, from; /* the one of the first axis that it makes, that it is made of; -1: all */
        int64_t of;       /* how many there are, where its shape is stated; else 1 */
} WeightLine;
bool weight_map_line(const WeightMap *m, const Checkpoint *ck, int i, WeightLine *line);

/* A safetensors file with the checkpoint's names and shapes; floating parameters
 * become `dtype` (CK_F32, CK_BF16, CK_F16), others stay.  Every element of every
 * tensor must come from some parameter; from two only if they agree. */
int weight_map_export(const WeightMap *m, const WeightSet *params, int dtype, const char *path,
                      const StMeta *meta, int n_meta, Err *e);

/* The same tensors one at a time, sorted by name, for files of other kinds; m and params must
 * last. */
typedef struct WeightExport WeightExport;
int weight_export_open(WeightExport **out, const WeightMap *m, const WeightSet *params, int dtype,
                       Err *e);
void weight_export_close(WeightExport *x); /* NULL is allowed */
int weight_export_count(const WeightExport *x);
const CkTensor *weight_export_tensor(const WeightExport *x, int i);
int weight_export_make(const WeightExport *x, int i, void *out, Err *e); /* all its bytes */

/* Into a Hugging Face folder: model.safetensors, or, where that would have more than `most` bytes
 * of data, shards and their index.  Weights of that folder before are gone then.
 * *n_files: shards, or 1. */
int weight_map_export_folder(const WeightMap *m, const WeightSet *params, int dtype,
                             const char *dir, uint64_t most, const StMeta *meta, int n_meta,
                             int *n_files, Err *e);

#endif
