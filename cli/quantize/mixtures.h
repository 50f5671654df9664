/* mixtures.h: chooses the type of each tensor of a GGUF file, by mixture (mixtures.def). */
#ifndef TGC_MIXTURES_H
#define TGC_MIXTURES_H

#include "../../runtime/weights/gguf.h"

/* "q4_k_m", in any case; also q3_k, q4_k, q5_k: the M ones.  -1: none. */
int mixture_find(const char *name);
const char *mixture_names(void); /* for messages */
int mixture_file_type(int mixture);
/* What rules ask of a model. */
typedef struct MixtureModel {
        int64_t n_layers, experts;
        bool grouped; /* 4 heads or more share keys */
        bool tied;    /* its embedding is its output, too */
} MixtureModel;
/* CK_* for a matrix with rows of `cols` values, by GGUF's name for it or by our models' own; -1: it
 * is left as it is. */
int mixture_type_of(int mixture, const MixtureModel *m, const char *name, int rank, int64_t cols);
/* CK_* for tensor t of g, which may be what it has. */
int mixture_type(int mixture, const Gguf *g, const CkTensor *t);

#endif
