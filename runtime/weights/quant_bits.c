/* quant_bits.c: GPTQ and AWQ: qweight, qzeros and scales, with the columns of W^T adjacent.
 *
 *      GPTQ    qweight i32 (K*b/32, N), qzeros i32 (G, N*b/32), scales (G, N), g_idx i32 (K).
 *              checkpoint_format "gptq" has zero points less one, "gptq_v2" as they are.
 *      AWQ     version "gemm": qweight i32 (K, N/8), qzeros i32 (G, N/8), scales (G, N). */
#include <strings.h>
#include "quant_folder.h"

static int no_option(Layer *l, const char *key, const char *only)
{
        char *has = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(l->config, key));
        const int rc =
                err_set(l->e, TGC_BAD_FILE,
                        "%s: quantization config: \"%s\": %.60s is not supported, only %s is",
                        l->file, key, has ? has : "(absent)", only);
        cJSON_free(has);
        return rc;
}

/* The bits of a value follow from the shapes; a layer's own may differ where `dynamic` says so. */
static int gptq_bits(Layer *l, const CkTensor *w, int64_t K, int *bits)
{
        const int64_t said = config_int(l->config, "bits", 0), b = K ? w->dim[0] * 32 / K : 0;
        const cJSON *own = cJSON_GetObjectItemCaseSensitive(l->config, "dynamic");
        if ((b != 2 && b != 3 && b != 4 && b != 8) || w->dim[0] * 32 != K * b)
                return layer_disagrees(l, w, "words of 32 bits in a column are", w->dim[0],
                                       K * said / 32);
        if (b != said && !cJSON_IsObject(own))
                return layer_disagrees(l, w, "bits of a value are", b, said);
        *bits = (int)b;
        return TGC_OK;
}

static int gptq_zeros(Layer *l, const CkTensor *z, int64_t N, int bits)
{
        const bool v2 = config_is(l->config, "checkpoint_format", "gptq_v2");
        const cJSON *format = cJSON_GetObjectItemCaseSensitive(l->config, "checkpoint_format");
        Packed *p = &l->p;
        if (format && !cJSON_IsNull(format) && !v2 &&
            !config_is(l->config, "checkpoint_format", "gptq"))
                return no_option(l, "checkpoint_format", "\"gptq\" or \"gptq_v2\"");
        if (z->dim[0] != p->groups)
                return layer_disagrees(l, z, "groups are", z->dim[0], p->groups);
        if (z->dim[1] != (N * bits + 31) / 32)
                return layer_disagrees(l, z, "words of 32 bits in a row are", z->dim[1],
                                       (N * bits + 31) / 32);
        p->zero = (Codes) { .kind = CODES_ROWS,
                            .bits = bits,
                            .less = v2 ? 0 : -1,
                            .data = z->data,
                            .rows = p->groups,
                            .cols = N };
        p->zero_across = true;
        return TGC_OK;
}

int quant_gptq(Layer *l)
{
        const CkTensor *w, *z, *s, *g;
        Packed *p = &l->p;
        int bits = 0, rc = layer_need(l, ".qweight", CK_I32, 2, &w);
        if (rc || (rc = layer_need(l, ".qzeros", CK_I32, 2, &z)))
                return rc;
        if (!(s = layer_part(l, ".scales")))
                return layer_need(l, ".scales", CK_F16, 2, &s);
        if ((g = layer_part(l, ".g_idx")) && (rc = layer_need(l, ".g_idx", CK_I32, 1, &g)))
                return rc;
        const int64_t N = w->dim[1], said = config_int(l->config, "bits", 0),
                      K = g          ? g->dim[0]
                          : said > 0 ? w->dim[0] * 32 / said
                                     : 0;
        if ((rc = gptq_bits(l, w, K, &bits)))
                return rc;
        p->code = (Codes) { .kind = CODES_COLUMNS, .bits = bits, .data = w->data };
        p->group_of = g ? g->data : NULL;
        layer_is(l, N, K);
        if (s->rank != 2)
                return layer_disagrees(l, s, "dimensions are", s->rank, 2);
        if ((rc = layer_scales(l, s, true, 0, 0)))
                return rc;
        return gptq_zeros(l, z, N, bits);
}

int quant_awq(Layer *l)
{
        const CkTensor *w, *z, *s;
        Packed *p = &l->p;
        const char *version = cJSON_GetStringValue(
                cJSON_GetObjectItemCaseSensitive(l->config, "version"));
        int rc;
        if (version && strcasecmp(version, "gemm"))
                return no_option(l, "version", "\"gemm\"");
        if ((rc = layer_need(l, ".qweight", CK_I32, 2, &w)) ||
            (rc = layer_need(l, ".qzeros", CK_I32, 2, &z)))
                return rc;
        if (!(s = layer_part(l, ".scales")) || s->rank != 2)
                return layer_need(l, ".scales", CK_F16, 2, &s);
        const int64_t bits = config_int(l->config, "bits", config_int(l->config, "w_bit", 4));
        if (bits != 4)
                return no_option(l, "bits", "4");
        if (w->dim[1] > INT64_MAX / 64)
                return layer_disagrees(l, w, "words of 32 bits in a row are", w->dim[1], 1);
        const int64_t K = w->dim[0], N = 8 * w->dim[1];
        p->code = (Codes) { .kind = CODES_AWQ, .bits = 4, .data = w->data };
        layer_is(l, N, K);
        if ((rc = layer_scales(l, s, true, 0, 0)))
                return rc;
        if (z->dim[0] != p->groups)
                return layer_disagrees(l, z, "groups are", z->dim[0], p->groups);
        if (z->dim[1] != w->dim[1])
                return layer_disagrees(l, z, "words of 32 bits in a row are", z->dim[1], w->dim[1]);
        p->zero = (Codes) {
                .kind = CODES_AWQ, .bits = 4, .data = z->data, .rows = N, .cols = p->groups
        };
        return TGC_OK;
}
