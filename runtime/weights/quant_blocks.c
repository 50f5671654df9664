/* quant_blocks.c: bitsandbytes, fp8 with scales of blocks, and gpt-oss's MXFP4.
 *
 *      bitsandbytes 4 bits     weight (bytes), the high half first; weight.absmax, of each block of
 *                              the flat tensor; weight.quant_map f32 (16);
 *                              weight.quant_state.bitsandbytes__nf4 is JSON: shape, blocksize ...
 *                              Twice quantised: absmax is u8, weight.nested_absmax,
 *                              weight.nested_quant_map f32 (256), nested_offset
 *      bitsandbytes 8 bits     weight i8 (N,K), SCB f32 (N): value = code * SCB / 127
 *      fp8                     weight E4M3 (N,K); weight_scale_inv, which multiplies, of blocks
 *      gpt-oss                 X_blocks u8 (E,R,G,16), X_scales u8 (E,R,G), the low half first;
 *                              X is (E,32G,R), as transformers has it */
#include <math.h>
#include <string.h>
#include "quant_folder.h"

/* The parsed quant_state; *shape: of the weight. */
static int quant_state(Layer *l, const CkTensor *t, cJSON **out, int64_t shape[2])
{
        char name[300];
        const cJSON *dim;
        snprintf(name, sizeof name, "%.80s: %.200s", l->file, t->name);
        int rc = json_parse(out, t->data, t->bytes, name, l->e);
        if (rc)
                return rc;
        dim = cJSON_GetObjectItemCaseSensitive(*out, "shape");
        for (int i = 0; i < 2; i++) {
                const cJSON *v = cJSON_GetArrayItem(dim, i);
                shape[i] = cJSON_IsNumber(v) ? v->valueint : 0;
        }
        return cJSON_GetArraySize(dim) == 2 && shape[0] > 0 && shape[1] > 0 &&
                               shape[0] < INT32_MAX && shape[1] < INT32_MAX
                       ? TGC_OK
                       : err_set(l->e, TGC_BAD_FILE,
                                 "%s: \"shape\" must be two whole numbers above 0", name);
}

static int twice_quantised(Layer *l, const cJSON *state, int64_t blocks)
{
        const CkTensor *nested, *map;
        Packed *p = &l->p;
        const cJSON *offset = cJSON_GetObjectItemCaseSensitive(state, "nested_offset");
        int rc = layer_need(l, ".weight.nested_absmax", CK_F32, 1, &nested);
        if (rc || (rc = layer_need(l, ".weight.nested_quant_map", CK_F32, 1, &map)))
                return rc;
        p->nested_block = config_int(state, "nested_blocksize", 0);
        if (p->nested_block < 1 || !cJSON_IsNumber(offset))
                return err_set(l->e, TGC_BAD_FILE,
                               "%s: %.200s.weight: its quant_state has no nested_blocksize or no "
                               "nested_offset",
                               l->file, l->base);
        if (map->dim[0] != 256)
                return layer_disagrees(l, map, "values are", map->dim[0], 256);
        if (nested->dim[0] != (blocks + p->nested_block - 1) / p->nested_block)
                return layer_disagrees(l, nested, "blocks are", nested->dim[0],
                                       (blocks + p->nested_block - 1) / p->nested_block);
        p->map = map->data;
        p->nested = nested->data;
        p->offset = (float)offset->valuedouble;
        return TGC_OK;
}

static int blocks_of(Layer *l, const cJSON *state, const int64_t shape[2])
{
        const CkTensor *w = layer_part(l, ".weight"), *absmax = layer_part(l, ".weight.absmax"),
                       *map;
        Packed *p = &l->p;
        const int64_t n = shape[0] * shape[1], size = config_int(state, "blocksize", 0);
        int rc;
        if (!w)
                return layer_need(l, ".weight", CK_U8, 2, &w);
        if ((int64_t)w->bytes != (n + 1) / 2)
                return layer_disagrees(l, w, "bytes are", (int64_t)w->bytes, (n + 1) / 2);
        if (size < 1)
                return err_set(l->e, TGC_BAD_FILE,
                               "%s: %.200s.weight: its quant_state has no "
                               "blocksize",
                               l->file, l->base);
        const int64_t blocks = (n + size - 1) / size;
        if (!absmax || absmax->rank != 1 || (absmax->dtype != CK_F32 && absmax->dtype != CK_U8))
                return layer_need(l, ".weight.absmax", CK_F32, 1, &absmax);
        if (absmax->dim[0] != blocks)
                return layer_disagrees(l, absmax, "blocks are", absmax->dim[0], blocks);
        if ((rc = layer_need(l, ".weight.quant_map", CK_F32, 1, &map)))
                return rc;
        if (map->dim[0] != 16)
                return layer_disagrees(l, map, "values are", map->dim[0], 16);
        layer_is(l, shape[0], shape[1]);
        p->code = (Codes) { .kind = CODES_HIGH, .data = w->data, .rows = blocks, .cols = size };
        memcpy(p->code.table, map->data, sizeof p->code.table);
        for (int i = 0; i < 16; i++)
                if (!isfinite(p->code.table[i]))
                        return err_set(l->e, TGC_BAD_FILE,
                                       "%s: tensor %.200s: value %d is %g, and must be finite",
                                       l->file, map->name, i, (double)p->code.table[i]);
        p->scale = *absmax;
        p->scale_rows = blocks;
        p->groups = p->block_rows = 1;
        p->group = size;
        return absmax->dtype == CK_U8 ? twice_quantised(l, state, blocks) : TGC_OK;
}

int quant_bnb4(Layer *l)
{
        static const char *const tail[] = { ".weight.quant_state.bitsandbytes__nf4",
                                            ".weight.quant_state.bitsandbytes__fp4" };
        cJSON *state = NULL;
        int64_t shape[2];
        const CkTensor *t = layer_part(l, tail[0]);
        if (!t)
                t = layer_part(l, tail[1]);
        int rc = quant_state(l, t, &state, shape);
        if (!rc)
                rc = blocks_of(l, state, shape);
        cJSON_Delete(state);
        return rc;
}

int quant_bnb8(Layer *l)
{
        const CkTensor *w, *s;
        int rc = layer_need(l, ".weight", CK_I8, 2, &w);
        if (rc || (rc = layer_need(l, ".SCB", CK_F32, 1, &s)))
                return rc;
        l->p.code = (Codes) { .kind = CODES_I8, .data = w->data };
        l->p.times = 1 / 127.f;
        layer_is(l, w->dim[0], w->dim[1]);
        if (s->dim[0] != w->dim[0])
                return layer_disagrees(l, s, "rows are", s->dim[0], w->dim[0]);
        return layer_scales(l, s, false, 0, 0);
}

int quant_fp8(Layer *l)
{
        const cJSON *block = cJSON_GetObjectItemCaseSensitive(l->config, "weight_block_size");
        const CkTensor *w, *s = layer_part(l, ".weight_scale_inv");
        int64_t size[2];
        int rc = layer_need(l, ".weight", CK_F8_E4M3, 2, &w);
        if (rc)
                return rc;
        for (int i = 0; i < 2; i++) {
                const cJSON *v = cJSON_GetArrayItem(block, i);
                size[i] = cJSON_IsNumber(v) && v->valueint > 0 ? v->valueint : 0;
        }
        if (!s)
                s = layer_part(l, ".weight_scale");
        l->p.code = (Codes) { .kind = CODES_F8, .data = w->data };
        layer_is(l, w->dim[0], w->dim[1]);
        return layer_scales(l, s, false, size[1] ? size[0] : 0, size[0] ? size[1] : 0);
}

int quant_mxfp4(Layer *l)
{
        const CkTensor *w, *s;
        Packed *p = &l->p;
        int rc = layer_need(l, "_blocks", CK_U8, 4, &w);
        if (rc || (rc = layer_need(l, "_scales", CK_U8, 3, &s)))
                return rc;
        if (w->dim[3] != 16)
                return layer_disagrees(l, w, "bytes of a block are", w->dim[3], 16);
        for (int i = 0; i < 3; i++)
                if (s->dim[i] != w->dim[i])
                        return layer_disagrees(l, s, "elements of a dimension are", s->dim[i],
                                               w->dim[i]);
        if (w->bytes == 0)
                return layer_disagrees(l, w, "elements are", 0, 1);
        const int64_t E = w->dim[0], R = w->dim[1], G = w->dim[2];
        layer_fp4(l, w->data);
        layer_is(l, E * R, 32 * G);
        p->scale = *s;
        p->scale.dtype = CK_F8_E8M0;
        p->scale_rows = E * R;
        p->groups = G;
        p->block_rows = 1;
        p->group = 32;
        p->batch = E;
        p->swap = true;
        l->out.dtype = CK_BF16; /* two bits and an exponent: exact */
        l->out.rank = 3;
        l->out.dim[0] = E;
        l->out.dim[1] = 32 * G;
        l->out.dim[2] = R;
        return TGC_OK;
}
