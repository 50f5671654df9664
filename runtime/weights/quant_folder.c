/* quant_folder.c: implements quant_folder.h. */
#include "quant_folder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../util/file.h"

enum { MAX_CONFIG = 1 << 20 };

/* Which tensor says that a layer is quantised, what its weight is called, who makes it. */
static const struct {
        const char *method, *anchor, *tail;
        int (*make)(Layer *l);
} layouts[] = {
        { "bitsandbytes", ".weight.quant_state.bitsandbytes__nf4", ".weight", quant_bnb4 },
        { "bitsandbytes", ".weight.quant_state.bitsandbytes__fp4", ".weight", quant_bnb4 },
        { "bitsandbytes", ".SCB", ".weight", quant_bnb8 },
        { "gptq", ".qweight", ".weight", quant_gptq },
        { "awq", ".qweight", ".weight", quant_awq },
        { "compressed-tensors", ".weight_packed", ".weight", quant_packed },
        { "compressed-tensors", ".weight_scale", ".weight", quant_plain },
        { "fp8", ".weight_scale_inv", ".weight", quant_fp8 },
        { "fp8", ".weight_scale", ".weight", quant_fp8 },
        { "mxfp4", "_blocks", "", quant_mxfp4 },
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

/* What goes: of activations and of the cache, which are not quantised here. */
static const struct {
        const char *method, *tail;
} dropped[] = {
        { "bitsandbytes", ".weight_format" },
        { "compressed-tensors", ".input_scale" },
        { "compressed-tensors", ".input_zero_point" },
        { "compressed-tensors", ".input_global_scale" },
        { "compressed-tensors", ".output_scale" },
        { "compressed-tensors", ".output_zero_point" },
        { "compressed-tensors", ".k_scale" },
        { "compressed-tensors", ".v_scale" },
        { "compressed-tensors", ".q_scale" },
        { "fp8", ".input_scale" },
        { "fp8", ".activation_scale" },
        { "fp8", ".k_scale" },
        { "fp8", ".v_scale" },
};

/* What is made, for as long as the checkpoint. */
typedef struct Made {
        int n;
        Packed *packed;
        CkTensor *tensor;
        char **name;
} Made;

static void release(void *p)
{
        Made *m = p;
        for (int i = 0; i < m->n; i++)
                free(m->name[i]);
        free(m->packed);
        free(m->tensor);
        free(m->name);
        free(m);
}

/* ---- parts of a layer ---- */

static char *joined(const char *a, const char *b)
{
        const size_t n = strlen(a), k = strlen(b);
        char *s = malloc(n + k + 1);
        if (s) {
                memcpy(s, a, n);
                memcpy(s + n, b, k + 1);
        }
        return s;
}

const CkTensor *layer_part(Layer *l, const char *tail)
{
        char *name = joined(l->base, tail);
        const CkTensor *t = name ? checkpoint_find(l->ck, name) : NULL;
        free(name);
        if (t)
                l->used[t - checkpoint_at(l->ck, 0)] = true;
        return t;
}

int layer_need(Layer *l, const char *tail, int dtype, int rank, const CkTensor **out)
{
        const CkTensor *t = *out = layer_part(l, tail);
        char has[96];
        if (!t)
                return err_set(l->e, TGC_BAD_FILE, "%s: %.200s is quantised, and has no %.200s%s",
                               l->file, l->base, l->base, tail);
        if (t->dtype != dtype || t->rank != rank)
                return err_set(l->e, TGC_BAD_FILE,
                               "%s: tensor %.200s is %s%s, and should be %s with %d dimensions",
                               l->file, t->name, ck_dtype_name(t->dtype),
                               ck_shape_text(has, sizeof has, t->rank, t->dim),
                               ck_dtype_name(dtype), rank);
        return TGC_OK;
}

int layer_disagrees(Layer *l, const CkTensor *t, const char *what, int64_t has, int64_t wants)
{
        char shape[96];
        return err_set(l->e, TGC_BAD_FILE,
                       "%s: tensor %.200s is %s: %s %lld, where the layer's other tensors and "
                       "config.json make it %lld",
                       l->file, t->name, ck_shape_text(shape, sizeof shape, t->rank, t->dim), what,
                       (long long)has, (long long)wants);
}

void layer_fp4(Layer *l, const void *data)
{
        static const float e2m1[16] = { 0,    .5f,  1,  1.5f,  2,  3,  4,  6,
                                        -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6 };
        l->p.code = (Codes) { .kind = CODES_LOW, .data = data };
        memcpy(l->p.code.table, e2m1, sizeof e2m1);
}

void layer_is(Layer *l, int64_t rows, int64_t cols)
{
        l->p.code.rows = rows;
        l->p.code.cols = cols;
        l->p.count = rows * cols;
        l->out.dtype = CK_F32;
        l->out.rank = 2;
        l->out.dim[0] = rows;
        l->out.dim[1] = cols;
}

int layer_scales(Layer *l, const CkTensor *t, bool across, int64_t block_rows, int64_t block_cols)
{
        Packed *p = &l->p;
        const int64_t N = p->code.rows, K = p->code.cols;
        int64_t rows = 1, groups = 1;
        if (!ck_dtype_is_float(t->dtype))
                return err_set(l->e, TGC_BAD_FILE,
                               "%s: tensor %.200s: scales are of type %s, and must be F32, F16 or "
                               "BF16",
                               l->file, t->name, ck_dtype_name(t->dtype));
        if (t->rank > 2)
                return layer_disagrees(l, t, "dimensions are", t->rank, 2);
        if (t->rank == 2) {
                rows = t->dim[across ? 1 : 0];
                groups = t->dim[across ? 0 : 1];
        } else if (t->rank == 1) {
                rows = t->dim[0];
        }
        const bool whole = rows == 1 && groups == 1, blocks = block_rows && !whole;
        const int64_t want = blocks                     ? (N + block_rows - 1) / block_rows
                             : rows == 1 && groups == 1 ? 1
                                                        : N;
        if (rows != want)
                return layer_disagrees(l, t, "rows are", rows, want);
        if (blocks && groups != (K + block_cols - 1) / block_cols)
                return layer_disagrees(l, t, "groups are", groups,
                                       (K + block_cols - 1) / block_cols);
        if (groups < 1 || (!blocks && !p->group_of && K % groups))
                return layer_disagrees(l, t, "groups are", groups, K);
        p->scale = *t;
        p->scale_across = across && t->rank == 2;
        p->scale_rows = rows;
        p->groups = groups;
        p->block_rows = blocks ? block_rows : rows == 1 ? N : 1;
        p->group = blocks ? block_cols : K / groups;
        return TGC_OK;
}

int64_t config_int(const cJSON *o, const char *key, int64_t absent)
{
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
        return cJSON_IsNumber(v) ? v->valueint : absent;
}

bool config_is(const cJSON *o, const char *key, const char *word)
{
        const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));
        return s && !strcmp(s, word);
}

/* ---- the folder ---- */

/* `name` without `tail`, if it ends so; malloc'd. */
static char *before(const char *name, const char *tail)
{
        const size_t n = strlen(name), k = strlen(tail);
        return n > k && !strcmp(name + n - k, tail) ? strndup(name, n - k) : NULL;
}

static int add_made(Made *m, const Layer *l, const char *tail, Err *e)
{
        char *name = joined(l->base, tail);
        if (!name)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", l->file);
        m->name[m->n] = name;
        m->packed[m->n] = l->p;
        m->tensor[m->n] = l->out;
        CkTensor *t = &m->tensor[m->n];
        int64_t count;
        t->name = name;
        t->packed = &m->packed[m->n++];
        if (!ck_count(t->rank, t->dim, &count) || count < 1)
                return err_set(e, TGC_BAD_FILE, "%s: tensor %.200s has no elements", l->file, name);
        t->bytes = (size_t)count * ck_dtype_size(t->dtype);
        t->blocks = packed_blocks(t->packed, t->dim[t->rank - 1]);
        const Codes *z = &l->p.zero;
        if (z->kind && ((l->p.zero_across ? z->cols : z->rows) != l->p.scale_rows ||
                        (l->p.zero_across ? z->rows : z->cols) != l->p.groups))
                return err_set(e, TGC_BAD_FILE,
                               "%s: tensor %.200s: %lld x %lld zero points for %lld x %lld scales",
                               l->file, name, (long long)z->rows, (long long)z->cols,
                               (long long)l->p.scale_rows, (long long)l->p.groups);
        return TGC_OK;
}

static bool is_zero(const CkTensor *t)
{
        for (size_t i = 0; i < t->bytes; i++)
                if (((const uint8_t *)t->data)[i])
                        return false;
        return true;
}

/* AutoGPTQ gives every layer a bias; those of zeros need no place in the model. */
static int keep_bias(Made *m, Layer *l, Err *e)
{
        const CkTensor *t = layer_part(l, ".bias");
        if (!t)
                return TGC_OK;
        l->out = *t;
        l->out.may_go = is_zero(t);
        char *name = strdup(t->name);
        if (!name)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", l->file);
        m->name[m->n] = name;
        m->tensor[m->n] = l->out;
        m->tensor[m->n++].name = name;
        return TGC_OK;
}

static int make_all(Checkpoint *ck, const char *method, const cJSON *config, bool *used, Made *m,
                    Err *e)
{
        const int n = checkpoint_count(ck);
        int rc = TGC_OK;
        for (int i = 0; i < n && !rc; i++)
                for (int k = 0; k < N_LAYOUTS && !rc; k++) {
                        char *base = strcmp(layouts[k].method, method)
                                             ? NULL
                                             : before(checkpoint_at(ck, i)->name,
                                                      layouts[k].anchor);
                        if (base && !used[i]) {
                                Layer l = { .ck = ck,
                                            .config = config,
                                            .file = checkpoint_path(ck),
                                            .base = base,
                                            .used = used,
                                            .e = e };
                                used[i] = true;
                                l.p.file = l.file;
                                rc = layouts[k].make(&l);
                                if (!rc)
                                        rc = add_made(m, &l, layouts[k].tail, e);
                                if (!rc && !strcmp(method, "gptq"))
                                        rc = keep_bias(m, &l, e);
                        }
                        free(base);
                }
        for (int i = 0; i < n && !rc; i++)
                for (size_t k = 0; k < sizeof dropped / sizeof *dropped; k++) {
                        char *base = strcmp(dropped[k].method, method)
                                             ? NULL
                                             : before(checkpoint_at(ck, i)->name, dropped[k].tail);
                        used[i] |= base != NULL;
                        free(base);
                }
        for (int i = 0; i < n && !rc; i++)
                if (!used[i] && checkpoint_at(ck, i)->dtype == CK_F8_E4M3)
                        rc = err_set(e, TGC_BAD_FILE,
                                     "%s: tensor %.200s is F8_E4M3, and has no scale beside it",
                                     checkpoint_path(ck), checkpoint_at(ck, i)->name);
        return rc;
}

static int unpack(Checkpoint *ck, const char *method, const cJSON *config, Err *e)
{
        const size_t n = (size_t)checkpoint_count(ck) + 1;
        Made *m = calloc(1, sizeof *m);
        bool *used = calloc(n, 1);
        if (m) {
                m->packed = calloc(2 * n, sizeof *m->packed);
                m->tensor = calloc(2 * n, sizeof *m->tensor);
                m->name = calloc(2 * n, sizeof *m->name);
        }
        const bool room = m && m->packed && m->tensor && m->name && used;
        int rc = room ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", checkpoint_path(ck));
        if (m) {
                const int code = checkpoint_own(ck, release, m, e);
                rc = rc ? rc : code;
        }
        if (!rc)
                rc = make_all(ck, method, config, used, m, e);
        if (!rc)
                checkpoint_drop(ck, used);
        for (int i = 0; !rc && i < m->n; i++)
                rc = checkpoint_add(ck, &m->tensor[i], e);
        free(used);
        return rc ? rc : checkpoint_seal(ck, e);
}

/* A file of a folder as a JSON object; *out NULL: it is not there. */
static int read_object(const char *dir, const char *name, cJSON **out, Err *e)
{
        char *path = file_join(dir, name);
        int rc = path ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        *out = NULL;
        if (!rc && file_exists(path))
                rc = json_read(out, path, MAX_CONFIG, e);
        free(path);
        return rc;
}

/* Of older folders, whose config.json does not say it. */
static int beside_config(const char *dir, const char **method, cJSON **config, Err *e)
{
        static const char *const file[][2] = { { "quantize_config.json", "gptq" },
                                               { "quant_config.json", "awq" } };
        int rc = TGC_OK;
        for (int i = 0; i < 2 && !rc && !*config; i++) {
                *method = file[i][1];
                rc = read_object(dir, file[i][0], config, e);
        }
        return rc;
}

/* The folder's quantization_config and its method, "?" where it has none; *config NULL: it is not
 * quantised.  *all owns it. */
static int read_config(const char *dir, cJSON **all, const cJSON **config, const char **method,
                       Err *e)
{
        int rc = read_object(dir, "config.json", all, e);
        const cJSON *own = cJSON_GetObjectItemCaseSensitive(*all, "quantization_config"), *v;
        *config = NULL;
        *method = NULL;
        if (rc)
                return rc;
        if (cJSON_IsObject(own)) {
                *config = own;
                v = cJSON_GetObjectItemCaseSensitive(own, "quant_method");
                *method = v && !cJSON_IsString(v) ? "?" : cJSON_GetStringValue(v);
                return TGC_OK;
        }
        cJSON_Delete(*all);
        *all = NULL;
        rc = beside_config(dir, method, all, e);
        *config = cJSON_IsObject(*all) ? *all : NULL;
        return rc;
}

bool folder_is_quantised(const char *dir)
{
        cJSON *all;
        const cJSON *config;
        const char *method;
        Err ignored;
        const bool is = !read_config(dir, &all, &config, &method, &ignored) && config;
        cJSON_Delete(all);
        return is;
}

/* fp8 says it of all layers, compressed-tensors of each group of them. */
static const char *fp8_activations(const cJSON *config, const char *method)
{
        const cJSON *g, *groups = cJSON_GetObjectItemCaseSensitive(config, "config_groups");
        if (!method)
                return NULL;
        if (!strcmp(method, "fp8"))
                return config_is(config, "activation_scheme", "dynamic")  ? "dynamic"
                       : config_is(config, "activation_scheme", "static") ? "static"
                                                                          : NULL;
        if (strcmp(method, "compressed-tensors") != 0)
                return NULL;
        cJSON_ArrayForEach(g, groups)
        {
                const cJSON *in = cJSON_GetObjectItemCaseSensitive(g, "input_activations");
                if (config_int(in, "num_bits", 0) == 8 && config_is(in, "type", "float"))
                        return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(in, "dynamic"))
                                       ? "dynamic"
                                       : "static";
        }
        return NULL;
}

const char *folder_fp8_activations(const char *dir)
{
        cJSON *all;
        const cJSON *config;
        const char *method;
        Err ignored;
        const char *how = !read_config(dir, &all, &config, &method, &ignored) && config
                                  ? fp8_activations(config, method)
                                  : NULL;
        cJSON_Delete(all);
        return how;
}

int checkpoint_unpack_folder(Checkpoint *ck, const char *dir, Err *e)
{
        const char *method;
        cJSON *all;
        const cJSON *config;
        int rc = read_config(dir, &all, &config, &method, e);
        if (!rc && config) {
                bool known = false;
                for (int k = 0; method && k < N_LAYOUTS; k++)
                        known |= !strcmp(layouts[k].method, method);
                rc = known ? unpack(ck, method, config, e)
                           : err_set(e, TGC_BAD_FILE,
                                     "%s: config.json: quantization_config: quant_method \"%.60s\" "
                                     "is not supported; bitsandbytes, gptq, awq, "
                                     "compressed-tensors, fp8 and mxfp4 are",
                                     checkpoint_path(ck), method ? method : "(absent)");
        }
        cJSON_Delete(all);
        return rc;
}
