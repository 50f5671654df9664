/* checkpoint.h: one view of every source of weights.
 *
 *      FILE.safetensors                one file
 *      FILE.safetensors.index.json     its shards, which must hold what the index says, and no more
 *      FOLDER                          Hugging Face: model.safetensors, or
 *                                      model.safetensors.index.json; quantised weights as those
 *                                      they stand for (quant_folder.h)
 *      FILE.gguf                       GGUF, tensors in blocks among them (gguf.h)
 *      FILE.bin                        llama2.c, version 0, 1 (float32) or 2 (int8 with a float32
 *                                      scale for a group: blocks I8_32, I8_64 or I8_128; other
 *                                      groups are decoded to float32)
 *
 * llama2.c tensors are named tok_emb, layers.N.rms_att, .wq, .wk, .wv, .wo,
 * .rms_ffn, .w1, .w2, .w3, rms_final and, when the head is not tied, wcls.
 *
 * Another reader can fill a Checkpoint itself: see the builder below. */
#ifndef TGC_CHECKPOINT_H
#define TGC_CHECKPOINT_H

#include "ck_tensor.h"
#include "../util/err.h"

typedef struct Checkpoint Checkpoint;

int checkpoint_open(Checkpoint **out, const char *path, Err *e);
void checkpoint_close(Checkpoint *ck); /* NULL is allowed */

const char *checkpoint_path(const Checkpoint *ck);
int checkpoint_count(const Checkpoint *ck);
/* Sorted by name, one array: checkpoint_at(ck, 0) + i == checkpoint_at(ck, i). */
const CkTensor *checkpoint_at(const Checkpoint *ck, int i);
/* NULL: no such tensor.  Where a name has no tensor but the file's metadata maps
 * it to one that exists (tied weights, stored once), that one is the answer. */
const CkTensor *checkpoint_find(const Checkpoint *ck, const char *name);
const char *checkpoint_meta(const Checkpoint *ck, const char *key); /* NULL: none */

/* Builder.  Tensors' names and data must live as long as the checkpoint; give
 * what owns them to checkpoint_own, which calls release(owner) at close. */
int checkpoint_new(Checkpoint **out, const char *path, Err *e);
/* on error released at once */
int checkpoint_own(Checkpoint *ck, void (*release)(void *), void *owner, Err *e);
int checkpoint_add(Checkpoint *ck, const CkTensor *t, Err *e);
int checkpoint_add_meta(Checkpoint *ck, const char *key, const char *value, Err *e);
void checkpoint_drop(Checkpoint *ck, const bool *which); /* of checkpoint_at(ck, i) */
int checkpoint_seal(Checkpoint *ck, Err *e); /* sorts; TGC_BAD_FILE on a name given twice */

/* Sources; checkpoint_open chooses among them. */
int checkpoint_add_safetensors(Checkpoint *ck, const char *path, Err *e);
int checkpoint_add_llama2c(Checkpoint *ck, const char *path, Err *e);
int checkpoint_add_hf_index(Checkpoint *ck, const char *index_path, Err *e);
int checkpoint_add_hf_folder(Checkpoint *ck, const char *dir, Err *e);

/* Header of a llama2.c .bin, checked against the file's size. */
typedef struct Llama2cConfig {
        int dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len;
        bool shared; /* the head is the embedding */
        int version; /* 0, 1, 2 */
        int group;   /* values per scale; 0 but for version 2 */
} Llama2cConfig;
int llama2c_config(const char *path, Llama2cConfig *c, Err *e);
bool llama2c_has_blocks(const char *path); /* version 2, in groups that are blocks */

/* Text of dir/config.json: at most 1 MiB, a JSON object, no key twice.  The
 * caller frees. */
int hf_config_read(const char *dir, char **json_text, Err *e);

#endif
