/* imatrix.h: importance matrices: for each linear, the mean square of each column of its inputs. */
#ifndef TGC_IMATRIX_H
#define TGC_IMATRIX_H

#include "../../runtime/util/err.h"
#include "../option.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct Imatrix Imatrix;

/* llama.cpp's file, as GGUF (NAME.in_sum2, NAME.counts) or in its older form. */
int imatrix_open(Imatrix **out, const char *path, Err *e);
void imatrix_close(Imatrix *m); /* NULL is allowed */
/* Means of the `cols` columns of each of *matrices (1, or the experts); NULL: the file has none for
 * that tensor.  TGC_BAD_FILE: of another width. */
int imatrix_find(const Imatrix *m, const char *tensor, int64_t cols, const float **means,
                 int64_t *matrices, Err *e);
int imatrix_count(const Imatrix *m);

/* ---- calibrate.c: measured here ---- */

typedef struct Calibration {
        const char *model, *text, *ids;                   /* a text, or a file of ids */
        const char *dtype, *device, *threads, *tokenizer; /* as typed, or NULL */
        int window;                                       /* tokens at once; 0: 512 */
        bool gguf_names; /* a folder's tensors are called as in a GGUF file of it */
        bool quiet;
} Calibration;

/* Runs the text through the model, window by window, and sums the squares of what each of its
 * linears is given.  Tensors are called as in the model's file or folder, or as gguf_names says. */
int imatrix_measure(Imatrix **out, const Calibration *c, Err *e);
/* As `tgc quantize --calibrate` says. */
int imatrix_calibrate(Imatrix **out, const Args *a, Err *e);
/* For that: an empty one; matrix `at` of the tensor's. */
int imatrix_new(Imatrix **out, const char *text, int windows, int window, Err *e);
int imatrix_put(Imatrix *m, const char *tensor, int64_t matrices, int64_t at, const double *sum,
                int64_t cols, double count, Err *e);
/* llama.cpp's file, in its GGUF form: of what was measured. */
int imatrix_write(const Imatrix *m, const char *path, Err *e);

#endif
