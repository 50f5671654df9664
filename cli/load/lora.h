/* lora.h: adapters on the command line: --lora r=16,... or --lora DIR[:scale]. */
#ifndef TGC_LORA_H
#define TGC_LORA_H

#include "../../runtime/weights/peft_config.h"
#include "../option.h"
#include "build.h"

enum { MOST_ADAPTERS = 16 };

/* ---- lora.c: what was asked for; sees the compiler ---- */

typedef struct Adapter {
        PeftConfig *config;
        char *dir;    /* of one that is there, or a GGUF file; NULL: it begins anew */
        char *names;  /* of a GGUF file: how its tensors make those of a folder (weight_map.h) */
        double scale; /* of the whole: DIR:scale */
} Adapter;

typedef struct Adapters {
        Adapter a[MOST_ADAPTERS];
        int n;
} Adapters;

/* base: the model that they are for, whose names a GGUF file has */
int adapters_open(Adapters *s, const char *const *typed, int n, const char *base, Err *e);
void adapters_free(Adapters *s);

struct Model;
/* Beside the linears of the model, which is frozen then; a line `meta lora` each. */
int adapters_add(struct Model *m, const BuildOptions *o, Err *e);

/* ---- adapter.c: their tensors ---- */

struct Session;
/* Has the plan adapters? */
bool plan_has_lora(const Plan *p);
/* --lora DIR into the plan's weights, those that begin anew as training begins. */
int adapters_import(Plan *p, void *weights, const Adapters *s, Err *e);
/* Into float32 of the plan's parameters, by their numbers. */
int adapters_read(const Plan *p, const Adapters *s, float *const *into, Err *e);
/* --lora DIR into a session. */
int adapters_into_session(struct Session *s, const Plan *p, const Adapters *from, Err *e);
/* A folder as PEFT writes it, of the plan's one adapter, from a session or, s NULL, the plan's
 * weights.  base: the model's name, or NULL.  file: only the tensors, there. */
int adapter_export(struct Session *s, const Plan *p, const char *dir, const char *file,
                   const char *base, Err *e);
/* Of that folder what is no tensor: adapter_config.json, README.md. */
int adapter_words(const Plan *p, const char *dir, const char *base, Err *e);
bool map_line_is_adapters(const char *line);

/* ---- gguf_adapter.c ---- */

int gguf_adapter(PeftConfig **config, char **names, const char *path, const char *base, Err *e);

/* ---- merge.c ---- */

/* The model of the plan, unmerged at -O0, with the weights of `base`, into a folder as one with its
 * adapters.  *dtype: NULL becomes the base's. */
int merge_export(const Plan *p, const char *base, const Adapters *s, const char *folder,
                 const char **dtype, uint64_t shard, int *n_files, Err *e);
/* The largest difference of a logit, on a few tokens, between MODEL with its adapters and the
 * folder; and the largest logit. */
int merge_compare(const Args *a, const char *folder, const char *dtype, double *change,
                  double *largest, Err *e);

#endif
