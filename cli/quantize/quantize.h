/* quantize.h: quantizes a GGUF file (cmd_quantize.c), a folder (quantize_folder.c), and a folder to
 * a GGUF file (gguf_write.c). */
#ifndef TGC_QUANTIZE_H
#define TGC_QUANTIZE_H

#include "../../runtime/weights/ck_tensor.h"
#include "../load/load.h"
#include "imatrix.h"

/* quantize_tensor.c.  Blocks hold no infinity and no NaN. */
int finite_values(const char *file, const char *name, const float *v, int64_t n, Err *e);
/* n values to blocks: to's; without counts tensors that the importance matrix lacks. */
int encode_tensor(const char *file, Imatrix *imatrix, const CkTensor *to, void *mem, const float *v,
                  int64_t n, int *without, Err *e);
/* An importance matrix (may be NULL) that could weigh no tensor is a mistake. */
int check_importance(const Args *a, const Imatrix *m, const CkTensor *to, int n, Err *e);
/* --keep's type of a tensor of a GGUF file; -1: none, -2: an error. */
int kept_type(const Args *a, const CkTensor *t, Err *e);
/* A pattern of --keep that fits no tensor is a mistake. */
int check_patterns(const Args *a, const CkTensor *tensor, int n, Err *e);
/* How large the file is, and of which types. */
void say_tensors(const Args *a, const char *path, const CkTensor *tensor, int n, int without);

/* quantize_folder.c */
int quantize_folder(const Args *a, Err *e);

#endif
