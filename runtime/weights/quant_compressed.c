/* quant_compressed.c: compressed-tensors.  A layer's tensors show which of its formats it has:
 *
 *      weight_packed i32 (N, ceil(K*b/32)), weight_shape i64 (2)       pack-quantized
 *      weight_packed u8 (N, K/2), weight_global_scale                  nvfp4-pack-quantized
 *      weight_packed u8 (N, K/2), weight_scale u8 or E8M0              mxfp4-pack-quantized
 *      weight i8                                                       int-quantized
 *      weight E4M3                                                     float-quantized
 *
 * weight_scale belongs to the whole tensor, a row, a group of a row's columns, or a block. */
#include <math.h>
#include <string.h>
#include "block_decode.h"
#include "quant_folder.h"

/* The `weights` of config_groups that hold `key`: its value where all agree; -1: they do not. */
static int64_t of_groups(const Layer *l, const char *key, int at)
{
        const cJSON *groups = cJSON_GetObjectItemCaseSensitive(l->config, "config_groups"), *g;
        int64_t found = 0;
        cJSON_ArrayForEach(g, groups)
        {
                const cJSON *v = cJSON_GetObjectItemCaseSensitive(
                        cJSON_GetObjectItemCaseSensitive(g, "weights"), key);
                if (at >= 0)
                        v = cJSON_GetArrayItem(v, at);
                if (!cJSON_IsNumber(v))
                        continue;
                if (found && found != v->valueint)
                        return -1;
                found = v->valueint;
        }
        return found;
}

/* Does a group of the configuration have that many bits? */
static bool bits_known(const Layer *l, int64_t bits)
{
        const cJSON *g;
        cJSON_ArrayForEach(g, cJSON_GetObjectItemCaseSensitive(l->config, "config_groups"))
        {
                if (config_int(cJSON_GetObjectItemCaseSensitive(g, "weights"), "num_bits", 0) ==
                    bits)
                        return true;
        }
        return false;
}

static int scales(Layer *l, const CkTensor *s)
{
        const int64_t rows = of_groups(l, "block_structure", 0),
                      cols = of_groups(l, "block_structure", 1), N = l->p.code.rows;
        const bool blocks = s->rank == 2 && s->dim[0] != N && rows > 0 && cols > 0;
        return layer_scales(l, s, false, blocks ? rows : 0, blocks ? cols : 0);
}

/* Groups of columns in another order than theirs. */
static int groups(Layer *l)
{
        const CkTensor *g = layer_part(l, ".weight_g_idx");
        int rc;
        if (!g)
                return TGC_OK;
        if ((rc = layer_need(l, ".weight_g_idx", CK_I32, 1, &g)))
                return rc;
        if (g->dim[0] != l->p.code.cols)
                return layer_disagrees(l, g, "columns are", g->dim[0], l->p.code.cols);
        /* -1 everywhere: none */
        if (g->dim[0] && (int32_t)u32_at(g->data) != -1)
                l->p.group_of = g->data;
        return TGC_OK;
}

static int packed_zeros(Layer *l, int bits)
{
        const CkTensor *z = layer_part(l, ".weight_zero_point");
        Packed *p = &l->p;
        const int64_t N = p->code.rows, words = (N * bits + 31) / 32;
        int rc;
        if (!z)
                return TGC_OK;
        if ((rc = layer_need(l, ".weight_zero_point", CK_I32, 2, &z)))
                return rc;
        if (z->dim[0] != words)
                return layer_disagrees(l, z, "words of 32 bits in a column are", z->dim[0], words);
        if (z->dim[1] != p->groups)
                return layer_disagrees(l, z, "groups are", z->dim[1], p->groups);
        p->zero = (Codes) { .kind = CODES_COLUMNS,
                            .bits = bits,
                            .less = 1 << (bits - 1),
                            .data = z->data,
                            .rows = p->groups,
                            .cols = N };
        p->zero_across = true;
        return TGC_OK;
}

/* Integers of the bits that the shapes leave: of several, those of the configuration. */
static int pack_quantized(Layer *l, const CkTensor *w, const CkTensor *s)
{
        const CkTensor *shape;
        int64_t dim[2];
        int bits = 0, rc = layer_need(l, ".weight_shape", CK_I64, 1, &shape);
        if (rc)
                return rc;
        if (shape->dim[0] != 2)
                return layer_disagrees(l, shape, "dimensions are", shape->dim[0], 2);
        memcpy(dim, shape->data, sizeof dim);
        if (w->rank != 2 || w->dim[0] != dim[0])
                return layer_disagrees(l, w, "rows are", w->rank ? w->dim[0] : 0, dim[0]);
        if (dim[0] < 1 || dim[1] < 1 || dim[1] > INT32_MAX)
                return layer_disagrees(l, shape, "columns are", dim[1], w->dim[1]);
        for (int b = 1; b <= 8; b++)
                if ((dim[1] * b + 31) / 32 == w->dim[1] && bits_known(l, b))
                        bits = b;
        if (!bits)
                return layer_disagrees(l, w, "words of 32 bits in a row are", w->dim[1],
                                       (dim[1] * of_groups(l, "num_bits", -1) + 31) / 32);
        l->p.code = (Codes) {
                .kind = CODES_ROWS, .bits = bits, .less = 1 << (bits - 1), .data = w->data
        };
        layer_is(l, dim[0], dim[1]);
        if ((rc = groups(l)) || (rc = scales(l, s)))
                return rc;
        return packed_zeros(l, bits);
}

/* 4-bit floats, the low half of a byte first. */
static int fp4(Layer *l, const CkTensor *w, const CkTensor *s)
{
        const CkTensor *global = layer_part(l, ".weight_global_scale");
        CkTensor scale = *s;
        int rc;
        if (w->rank != 2)
                return layer_disagrees(l, w, "dimensions are", w->rank, 2);
        if (w->dim[1] > INT64_MAX / 4)
                return layer_disagrees(l, w, "columns are", w->dim[1], 1);
        layer_fp4(l, w->data);
        layer_is(l, w->dim[0], 2 * w->dim[1]);
        if (s->dtype == CK_U8)
                scale.dtype = CK_F8_E8M0;
        const int64_t group = scale.dtype == CK_F8_E8M0 ? 32 : 16;
        if ((rc = layer_scales(l, &scale, false, 0, 0)))
                return rc;
        if (l->p.group != group)
                return layer_disagrees(l, s, "columns of a group are", l->p.group, group);
        if (group == 32)
                return TGC_OK;
        if (!global || (rc = layer_need(l, ".weight_global_scale", CK_F32, global->rank, &global)))
                return global ? rc : layer_need(l, ".weight_global_scale", CK_F32, 1, &global);
        if (global->bytes != 4)
                return layer_disagrees(l, global, "elements are", (int64_t)(global->bytes / 4), 1);
        memcpy(&l->p.divide, global->data, 4);
        return isfinite(l->p.divide) && l->p.divide != 0
                       ? TGC_OK
                       : err_set(l->e, TGC_BAD_FILE,
                                 "%s: tensor %.200s is %g, and must be finite and not 0", l->file,
                                 global->name, (double)l->p.divide);
}

int quant_packed(Layer *l)
{
        const CkTensor *w = layer_part(l, ".weight_packed"), *s = layer_part(l, ".weight_scale");
        if (!s)
                return layer_need(l, ".weight_scale", CK_F32, 2, &s);
        if (w->dtype == CK_U8)
                return fp4(l, w, s);
        if (w->dtype == CK_I32)
                return pack_quantized(l, w, s);
        return layer_need(l, ".weight_packed", CK_I32, 2, &w);
}

int quant_plain(Layer *l)
{
        const CkTensor *w = layer_part(l, ".weight"), *s = layer_part(l, ".weight_scale"), *z;
        int rc;
        if (layer_part(l, ".weight_packed"))
                return quant_packed(l);
        if (!w || w->rank != 2 || (w->dtype != CK_I8 && w->dtype != CK_F8_E4M3))
                return layer_need(l, ".weight", CK_I8, 2, &w);
        l->p.code = (Codes) { .kind = w->dtype == CK_I8 ? CODES_I8 : CODES_F8, .data = w->data };
        layer_is(l, w->dim[0], w->dim[1]);
        if ((rc = groups(l)) || (rc = scales(l, s)))
                return rc;
        if (!(z = layer_part(l, ".weight_zero_point")))
                return TGC_OK;
        if (z->dtype != CK_I8)
                return layer_need(l, ".weight_zero_point", CK_I8, s->rank, &z);
        if (z->bytes != (size_t)(l->p.scale_rows * l->p.groups))
                return layer_disagrees(l, z, "zero points are", (int64_t)z->bytes,
                                       l->p.scale_rows * l->p.groups);
        l->p.zero = (Codes) {
                .kind = CODES_I8, .data = z->data, .rows = l->p.scale_rows, .cols = l->p.groups
        };
        return TGC_OK;
}
