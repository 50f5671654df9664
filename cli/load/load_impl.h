/* load_impl.h: what the files behind load() share. */
#ifndef TGC_CLI_LOAD_IMPL_H
#define TGC_CLI_LOAD_IMPL_H

#include "open.h"

struct GgufModel;

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
