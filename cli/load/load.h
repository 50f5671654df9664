/* load.h: loads what a command works on (load.c, load_*.c): a MODEL or a plan, its tokenizer and
 * its weights. */
#ifndef TGC_CLI_LOAD_H
#define TGC_CLI_LOAD_H

#include "../cli.h"
#include "../work.h"

struct GgufModel;

/* ---- model_kind.c ---- */

bool path_has(const char *dir, const char *name); /* a file, or a folder */

/* ---- load_tokenizer.c ---- */

bool folder_has_tokenizer(const char *dir);
/* The section `chat`, of what lies beside the tokenizer. */
int plan_add_chat_beside(Plan *p, const char *spec, const char *model, ModelKind kind, Err *e);
/* The section `embedding` of an encoder, of what lies in its folder. */
int plan_add_embedding(Plan *p, const char *path, ModelKind kind, Err *e);

/* ---- load_weights.c ---- */

/* Into l->plan, with the adapters of --lora; a model may have none. */
int load_weights(Loaded *l, const Args *a, const char *path, const LoadHow *how, Err *e);

/* ---- load_compile.c ---- */

int load_mode(const Args *a, const LoadHow *how, ModelKind kind); /* BUILD_* */
int load_compiled(Loaded *l, const Args *a, const char *path, const LoadHow *how,
                  const struct GgufModel *gguf, Err *e);

#endif
