/* gguf_model.h: a GGUF file as a model: its configuration, weights, tokenizer, templates. */
#ifndef TGC_GGUF_MODEL_H
#define TGC_GGUF_MODEL_H

#include <stdbool.h>
#include "../../runtime/chat/chat_source.h"
#include "../../runtime/tokenizer/tokenizer.h"
#include "../../runtime/util/err.h"
#include "../../runtime/weights/sentence.h"

/* What its metadata says, by models/gguf.lua.  Both are NULL where the architecture is not known
 * and the model is the user's own. */
typedef struct GgufModel {
        char *config; /* a config.json */
        char *names;  /* of its tensors, for weight_map_compose */
        char *meta;   /* all of it, as JSON (gguf_json) */
        bool blocks;  /* has weights in blocks: Q4_K, ... */
} GgufModel;

bool is_gguf(const char *path); /* by its first bytes */
/* May weights of it lie in blocks?  A GGUF file, a quantised folder, llama2.c's version 2. */
bool path_has_blocks(const char *path);
int gguf_model(GgufModel *m, const char *path, bool own, Err *e);
void gguf_model_free(GgufModel *m);

/* NULL: the file has none.  vocab: rows of the model's embedding; 0: not known. */
int gguf_tokenizer(Tokenizer **tok, const char *path, int vocab, Err *e);
int gguf_chat(ChatSource *s, const char *path, Err *e);
/* How an encoder's text gets its vector: by pooling_type (without one: the mean), of length 1,
 * which files do not say and what embeds with them does. */
int gguf_sentence(Sentence *s, const char *path, Err *e);

/* gguf_info.c: metadata and tensors, as a table or in `o`.
 * type: general.type of a file that is no model (imatrix, adapter, mmproj), else "". */
struct cJSON;
enum { GGUF_MOST_TYPE = 80 };
int gguf_print(const char *path, struct cJSON *o, char type[GGUF_MOST_TYPE], Err *e);

#endif
