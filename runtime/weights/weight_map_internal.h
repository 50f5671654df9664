/* weight_map_internal.h: private to weight_*.c: a weight map in memory. */
#ifndef TGC_WEIGHT_MAP_INTERNAL_H
#define TGC_WEIGHT_MAP_INTERNAL_H

#include "weight_map.h"

enum { MAP_MAX_NAMES = 4, MAP_MAX_STEPS = 8, MAP_MAX_ENTRIES = 1 << 18 };

enum {
        STEP_T,
        STEP_ROWS,
        STEP_COLS,
        STEP_INDEX,
        STEP_RESHAPE,
        STEP_ROPE,
        STEP_UNROPE,
        STEP_GROUP,
        STEP_SCALE,
        STEP_ADD,
        N_STEPS
};

typedef struct Step {
        int op, n; /* n arguments */
        union {
                int64_t arg[CK_MAX_RANK];
                double x;
        } u;
} Step;

/* One axis of the target. */
typedef struct Range {
        enum { RANGE_ALL, RANGE_ONE, RANGE_SLICE } kind;
        int64_t begin, end, step;
} Range;

typedef struct Entry {
        int line;
        bool optional;
        const char *param;
        int n_ranges;
        Range range[CK_MAX_RANK];
        int n_names;
        const char *name[MAP_MAX_NAMES];
        /* the checkpoint's shape; rank -1: not stated */
        int rank;
        int64_t dim[CK_MAX_RANK];
        int n_steps;
        Step step[MAP_MAX_STEPS];
} Entry;

struct WeightMap {
        char *name; /* for messages */
        char *text; /* owns the strings */
        Entry *entry;
        int n;
        const char **ignore;
        int n_ignore;
};

/* ---- weight_geometry.c ---- */

typedef struct Shape {
        int rank;
        int64_t dim[CK_MAX_RANK];
} Shape;

Shape wm_shape(int rank, const int64_t *dim);
int64_t wm_count(const Shape *s); /* -1: negative or too large */
bool wm_same_shape(const Shape *a, const Shape *b);

/* What a transform, or all of an entry's, makes of *s; the reason when it cannot be, NULL
 * otherwise. */
const char *wm_step_shape(const Step *st, Shape *s);
const char *wm_entry_shape(const Entry *n, Shape *s);
Affine wm_entry_affine(const Entry *n); /* its scales and additions in one */
/* The same transforms on blocks of `values` elements of the last axis, as an entry of its own.
 * False: blocks would be cut, so elements must be moved. */
bool wm_entry_in_blocks(const Entry *n, Shape s, int values, Entry *out);

typedef struct Axis {
        int64_t begin, step, len;
} Axis;

/* Part of a parameter: one Axis per axis of the parameter; shape is what is
 * left when axes of a single index go. */
typedef struct Box {
        int rank;
        Axis axis[CK_MAX_RANK];
        int64_t dim[CK_MAX_RANK];
        Shape shape;
        int64_t count;
} Box;

/* the reason when the target is wrong */
const char *wm_box(const Entry *n, const WeightParam *p, Box *b);
bool wm_boxes_meet(const Box *a, const Box *b);  /* an element in common? */
bool wm_box_in_blocks(const Box *b, int values); /* consecutive elements are whole blocks */
/* Either may be of blocks where the box is (wm_box_in_blocks); blocks are copied, never made. */
void wm_box_move(const Box *b, unsigned char *param, int param_dtype, unsigned char *flat,
                 int flat_dtype, bool into_param, Affine by);

typedef struct Array {
        Shape shape;
        size_t size;            /* bytes of an element, 1, 2, 4, 8, or of a block */
        const unsigned char *p; /* NULL: element i is index base + i */
        int64_t base;
        unsigned char *own; /* p, when allocated here; the caller frees */
} Array;

/* All transforms; wm_entry_shape has checked the shape.  False: no memory. */
bool wm_array_run(Array *a, const Entry *n);

/* ---- weight_import.c, used by export too ---- */

typedef struct Name {
        const char *name;
        int i;
} Name;

/* sorted; the caller frees */
int wm_index_params(const WeightMap *m, const WeightSet *set, Name **out, Err *e);
int wm_find_param(const Name *index, int n, const char *name); /* -1: none */

/* One entry against its parameter and the tensor `source` of `file`, of shape `from`; fills b. */
int wm_check_entry(const char *file, const Entry *n, const WeightParam *p, const char *source,
                   Shape from, Box *b, Err *e);

/* ---- weight_export.c, used by weight_shards.c too ---- */

/* of one tensor of the checkpoint */
typedef struct Piece {
        const Entry *entry;
        int param;
        Box box;
} Piece;

/* All that the map makes of a set: n tensors by name, the pieces of tensor i from first[i] on. */
typedef struct Export {
        const WeightMap *map;
        const WeightSet *set;
        Piece *piece;
        CkTensor *tensor;
        int *first, n;
} Export;

int wm_export_open(Export *x, const WeightMap *m, const WeightSet *set, int dtype, Err *e);
void wm_export_close(Export *x);
/* A file of n of the tensors; which NULL: of the first n. */
int wm_export_file(const Export *x, const int *which, int n, const char *path, const StMeta *meta,
                   int n_meta, Err *e);

#endif
