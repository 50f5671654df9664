/* quant_folder.h: presents the quantised tensors of a Hugging Face folder as the weights they
 * encode (packed.h).  quant_folder.c chooses the format by config.json's quantization_config;
 * quant_*.c decode it.
 *
 * A layer is quantised if its tensors are.  Lists of excluded layers in config.json are not
 * read. */
#ifndef TGC_QUANT_FOLDER_H
#define TGC_QUANT_FOLDER_H

#include "checkpoint.h"
#include "packed.h"
#include "../util/json.h"

/* Of a folder whose tensors have been added and sealed: nothing where it is not quantised. */
int checkpoint_unpack_folder(Checkpoint *ck, const char *dir, Err *e);

/* Does its config.json say so, or a file beside it? */
bool folder_is_quantised(const char *dir);
/* How scales of activations in fp8 are found that its config.json speaks of: "dynamic", "static";
 * NULL: it speaks of none. */
const char *folder_fp8_activations(const char *dir);

/* ---- for quant_*.c ---- */

/* One layer at a time: the tensors of `base`. */
typedef struct Layer {
        const Checkpoint *ck;
        const cJSON *config; /* quantization_config */
        const char *file;
        const char *base; /* "model.layers.0.mlp.up_proj" */
        bool *used;       /* of each of ck's tensors: it is a part of another */
        CkTensor out;     /* name: base and `tail`; packed is p */
        Packed p;
        Err *e;
} Layer;

/* The tensor base + tail, which is then used; NULL: there is none. */
const CkTensor *layer_part(Layer *l, const char *tail);
/* The same, which must be there, of that type and rank. */
int layer_need(Layer *l, const char *tail, int dtype, int rank, const CkTensor **out);
/* The codes are 4-bit floats E2M1, the low half of a byte first. */
void layer_fp4(Layer *l, const void *data);
/* The result's shape and its type, F32 as a rule. */
void layer_is(Layer *l, int64_t rows, int64_t cols);
/* TGC_BAD_FILE: what is `has` in tensor t, and should be `wants`. */
int layer_disagrees(Layer *l, const CkTensor *t, const char *what, int64_t has, int64_t wants);
/* t as float scales of l->p for code.rows x code.cols: of every row or of all, of every group or
 * of all, as its shape says; across: it is (groups, rows).  block_rows, block_cols: 0, or scales
 * are of blocks of that shape. */
int layer_scales(Layer *l, const CkTensor *t, bool across, int64_t block_rows, int64_t block_cols);
int64_t config_int(const cJSON *o, const char *key, int64_t absent);
bool config_is(const cJSON *o, const char *key, const char *word);

/* quant_bits.c */
int quant_gptq(Layer *l);
int quant_awq(Layer *l);
/* quant_compressed.c: by weight_packed, by weight_scale */
int quant_packed(Layer *l);
int quant_plain(Layer *l);
/* quant_blocks.c: bitsandbytes; fp8 with scales of blocks; gpt-oss */
int quant_bnb4(Layer *l);
int quant_bnb8(Layer *l);
int quant_fp8(Layer *l);
int quant_mxfp4(Layer *l);

#endif
