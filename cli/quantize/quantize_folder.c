/* quantize_folder.c: converts a Hugging Face folder's linears to another type, one after the other:
 *
 *      nf4         bitsandbytes, blocks of 64: the package's bytes
 *      int4:G      compressed-tensors pack-quantized, symmetric, a scale for G columns
 *      fp8         compressed-tensors float-quantized, E4M3, a scale for each row
 *
 * The output layer, embeddings, norms and routers keep their type.  Files beside the weights are
 * copied. */
#include <dirent.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "../../runtime/util/file.h"
#include "../../runtime/util/json.h"
#include "../../runtime/weights/block_decode.h"
#include "../../runtime/weights/checkpoint.h"
#include "../../runtime/weights/safetensors.h"
#include "imatrix.h"
#include "quantize.h"

enum { NF4, INT4, FP8, PARTS = 4, BLOCK = 64, MOST_CONFIG = 1 << 20, MOST_FILE = 256 << 20 };

typedef struct Job {
        const Args *a;
        Checkpoint *from;
        int type, group;
        Imatrix *imatrix; /* or NULL */
        CkTensor *out;    /* what is written */
        int *source;      /* of each: the tensor of `from` */
        int n, n_quantised;
        char **owned; /* names and quant_states */
        int n_owned;
} Job;

static bool contains(const char *s, const char *part) { return strstr(s, part) != NULL; }

/* A linear inside of a layer: model.layers.0.mlp.up_proj.weight. */
static bool is_linear(const Job *j, const CkTensor *t)
{
        static const char *const not [] = { "norm", "embed",  "lm_head",     "wte",
                                            "wpe",  "router", ".gate.weight" };
        const size_t n = strlen(t->name);
        const OptionValue *keep = &j->a->v[O_KEEP_TYPE];
        bool yes = t->rank == 2 && ck_dtype_is_float(t->dtype) && n > 7 &&
                   !strcmp(t->name + n - 7, ".weight") && strpbrk(t->name, "0123456789");
        for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
                yes = yes && !contains(t->name, not [i]);
        for (int i = 0; i < keep->n; i++)
                yes = yes && fnmatch(keep->list[i], t->name, 0);
        return yes;
}

/* ---- what is written of a weight ---- */

static char *owned(Job *j, const char *a, size_t n, const char *tail)
{
        char *s = malloc(n + strlen(tail) + 1);
        if (s) {
                memcpy(s, a, n);
                strcpy(s + n, tail);
                j->owned[j->n_owned++] = s;
        }
        return s;
}

static int add(Job *j, int source, const char *base, size_t n, const char *tail, int dtype,
               int rank, int64_t a, int64_t b, Err *e)
{
        CkTensor *t = &j->out[j->n];
        *t = (CkTensor) {
                .name = owned(j, base, n, tail), .dtype = dtype, .rank = rank, .dim = { a, b }
        };
        t->bytes = (size_t)(a * (rank == 2 ? b : 1)) * ck_dtype_size(dtype);
        j->source[j->n++] = source;
        return t->name ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for names");
}

static int quant_state(char *to, size_t room, const CkTensor *t)
{
        return snprintf(to, room,
                        "{\"quant_type\": \"nf4\", \"blocksize\": %d, \"dtype\": \"bfloat16\", "
                        "\"shape\": [%lld, %lld]}",
                        BLOCK, (long long)t->dim[0], (long long)t->dim[1]);
}

static int plan_linear(Job *j, int i, Err *e)
{
        const CkTensor *t = checkpoint_at(j->from, i);
        const size_t n = strlen(t->name), base = n - 7;
        const int64_t N = t->dim[0], K = t->dim[1];
        char state[200];
        int code;
        j->n_quantised++;
        switch (j->type) {
        case NF4:
                if ((code = add(j, i, t->name, n, "", CK_U8, 2, (N * K + 1) / 2, 1, e)) ||
                    (code = add(j, i, t->name, n, ".absmax", CK_F32, 1, (N * K + BLOCK - 1) / BLOCK,
                                1, e)) ||
                    (code = add(j, i, t->name, n, ".quant_map", CK_F32, 1, 16, 1, e)))
                        return code;
                return add(j, i, t->name, n, ".quant_state.bitsandbytes__nf4", CK_U8, 1,
                           quant_state(state, sizeof state, t), 1, e);
        case INT4:
                if (K % j->group)
                        return err_set(e, TGC_USAGE,
                                       "--type int4:%d: rows of %.200s have %lld columns, which "
                                       "groups do not divide",
                                       j->group, t->name, (long long)K);
                if ((code = add(j, i, t->name, base, ".weight_packed", CK_I32, 2, N, (K + 7) / 8,
                                e)) ||
                    (code = add(j, i, t->name, base, ".weight_scale", CK_BF16, 2, N, K / j->group,
                                e)))
                        return code;
                return add(j, i, t->name, base, ".weight_shape", CK_I64, 1, 2, 1, e);
        default:
                if ((code = add(j, i, t->name, n, "", CK_F8_E4M3, 2, N, K, e)))
                        return code;
                return add(j, i, t->name, base, ".weight_scale", CK_F32, 2, N, 1, e);
        }
}

/* ---- bytes ---- */

static float bf16(float x) { return ck_f32_from_bf16(ck_bf16_from_f32(x)); }

static void nf4_block(uint8_t *code, float *absmax, const float *x, int n, bool whole)
{
        float most = 0;
        for (int i = 0; i < n; i++)
                most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        if (!whole && most < 1e-38f) /* as the package: of the last block alone */
                most = 1e-38f;
        *absmax = most;
        const float least = most < 1e-38f ? 1e-38f : most, by = 1.0f / least;
        for (int i = 0; i < n; i++) {
                const float v = whole ? x[i] * by : x[i] / least;
                int q = 0;
                for (int k = 0; k < 15; k++)
                        q += v > (nf4_values[k] + nf4_values[k + 1]) / 2;
                code[i] = (uint8_t)q;
        }
}

static void put_nf4(uint8_t *code, float *absmax, const float *x, int64_t n)
{
        for (int64_t at = 0; at < n; at += BLOCK) {
                uint8_t q[BLOCK + 1] = { 0 };
                const int k = n - at < BLOCK ? (int)(n - at) : BLOCK;
                nf4_block(q, &absmax[at / BLOCK], x + at, k, k == BLOCK);
                for (int i = 0; i < k; i += 2)
                        code[(at + i) / 2] = (uint8_t)(q[i] << 4 | (i + 1 < k ? q[i + 1] : 0));
        }
}

/* The scale of a group with the least squared error, weighed by `means` where there are any, among
 * some below the largest value's. */
static float int4_scale(const float *x, const float *means, int n)
{
        float most = 0, best = INFINITY, scale = 0;
        for (int i = 0; i < n; i++)
                most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        for (int r = 0; r < 24 && most > 0; r++) {
                const float s = bf16(most / 7.5f * (1.1f - 0.025f * (float)r));
                float sum = 0;
                for (int i = 0; i < n && s > 0; i++) {
                        float q = roundf(x[i] / s);
                        q = q < -8 ? -8 : q > 7 ? 7 : q;
                        sum += (means ? means[i] : 1) * (q * s - x[i]) * (q * s - x[i]);
                }
                if (s > 0 && sum < best) {
                        best = sum;
                        scale = s;
                }
        }
        return scale > 0 ? scale : bf16(1e-30f);
}

static void put_int4(uint32_t *word, uint16_t *scale, const float *x, const float *means, int64_t N,
                     int64_t K, int group)
{
        const int64_t words = (K + 7) / 8;
        memset(word, 0, (size_t)(N * words) * 4);
        for (int64_t r = 0; r < N; r++)
                for (int64_t g = 0; g < K / group; g++) {
                        const float *at = x + r * K + g * group,
                                    s = int4_scale(at, means ? means + g * group : NULL, group);
                        scale[r * (K / group) + g] = ck_bf16_from_f32(s);
                        for (int i = 0; i < group; i++) {
                                const int64_t c = g * group + i;
                                float q = roundf(at[i] / s);
                                q = q < -8 ? -8 : q > 7 ? 7 : q;
                                word[r * words + c / 8] |= (uint32_t)((int)q + 8) << c % 8 * 4;
                        }
                }
}

/* To the nearest, ties to even; beyond 448 stays 448. */
static uint8_t e4m3(float x)
{
        const uint8_t sign = signbit(x) ? 0x80 : 0;
        const float a = fabsf(x) > 448 ? 448 : fabsf(x);
        int e = 0;
        if (a < 0x1p-6f)
                return (uint8_t)(sign | (int)rintf(a * 512)); /* 8 is the least normal one */
        frexpf(a, &e);
        const int m = (int)rintf(ldexpf(a, 4 - e)); /* 8 .. 16 */
        return (uint8_t)(sign | ((e + 6) * 8 + (m - 8)));
}

static void put_fp8(uint8_t *code, float *scale, const float *x, int64_t N, int64_t K)
{
        for (int64_t r = 0; r < N; r++) {
                float most = 0;
                for (int64_t c = 0; c < K; c++)
                        most = fabsf(x[r * K + c]) > most ? fabsf(x[r * K + c]) : most;
                scale[r] = most > 0 ? most / 448 : 1;
                for (int64_t c = 0; c < K; c++)
                        code[r * K + c] = e4m3(x[r * K + c] / scale[r]);
        }
}

/* All parts of a linear, into part[], in the order of plan_linear. */
static int encode(const Job *j, const CkTensor *t, void *const part[PARTS], Err *e)
{
        const int64_t N = t->dim[0], K = t->dim[1], n = N * K;
        float *x = malloc((size_t)n * sizeof *x + 1);
        int code = x ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for %.200s", t->name);
        if (!code) {
                ck_convert(x, CK_F32, t->data, t->dtype, (size_t)n, 1);
                code = finite_values(j->a->pos[0], t->name, x, n, e);
        }
        if (!code && j->type == NF4) {
                char state[200];
                put_nf4(part[0], part[1], x, n);
                memcpy(part[2], nf4_values, sizeof nf4_values);
                const size_t length = (size_t)quant_state(state, sizeof state, t);
                memcpy(part[3], state, length);
        } else if (!code && j->type == INT4) {
                const float *means = NULL;
                int64_t matrices = 1;
                if (j->imatrix)
                        code = imatrix_find(j->imatrix, t->name, K, &means, &matrices, e);
                put_int4(part[0], part[1], x, matrices == 1 ? means : NULL, N, K, j->group);
                memcpy(part[2], (int64_t[]) { N, K }, 16);
        } else if (!code) {
                put_fp8(part[0], part[1], x, N, K);
        }
        free(x);
        return code;
}

/* The file's order parts a weight's tensors: what is not written yet is made again. */
static int write_one(const Job *j, SafetensorsOut *o, int i, Err *e)
{
        const int source = j->source[i];
        const CkTensor *t = checkpoint_at(j->from, source);
        void *part[PARTS] = { 0 };
        int first = i, n = 0, code = TGC_OK;
        if (j->out[i].data)
                return safetensors_out_write(o, t->data, t->bytes, e);
        while (first && j->source[first - 1] == source)
                first--;
        for (; first + n < j->n && j->source[first + n] == source && !code; n++)
                if (!(part[n] = malloc(j->out[first + n].bytes + 1)))
                        code = err_set(e, TGC_NO_MEMORY, "no memory for %.200s", t->name);
        if (!code)
                code = encode(j, t, part, e);
        if (!code)
                code = safetensors_out_write(o, part[i - first], j->out[i].bytes, e);
        for (int k = 0; k < PARTS; k++)
                free(part[k]);
        return code;
}

static int write_weights(const Job *j, const char *path, Err *e)
{
        static const StMeta meta[] = { { "format", "pt" } };
        Progress talk = progress_new(j->a);
        SafetensorsOut *o;
        int code = safetensors_out_open(&o, path, j->out, j->n, meta, 1, e);
        if (code)
                return code;
        for (int k = 0; k < j->n && !code; k++) {
                progress_bar(&talk, (double)k / j->n, "%d of %d tensors", k, j->n);
                code = write_one(j, o, safetensors_out_order(o)[k], e);
        }
        progress_bar_end(&talk);
        if (code) {
                safetensors_out_abort(o);
                return code;
        }
        return safetensors_out_commit(o, e);
}

/* ---- the other files ---- */

static int put_config(const Job *j, const char *dir, const char *text, Err *e)
{
        const char *brace = strchr(text, '{');
        char quant[700], *out = NULL, *path = file_join(dir, "config.json");
        size_t n = 0;
        FILE *f = brace && path ? open_memstream(&out, &n) : NULL;
        if (j->type == NF4)
                snprintf(quant, sizeof quant,
                         "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, "
                         "\"load_in_8bit\": false, \"bnb_4bit_quant_type\": \"nf4\", "
                         "\"bnb_4bit_use_double_quant\": false, \"bnb_4bit_compute_dtype\": "
                         "\"bfloat16\", \"bnb_4bit_quant_storage\": \"uint8\", "
                         "\"llm_int8_skip_modules\": [\"lm_head\"]}");
        else
                snprintf(quant, sizeof quant,
                         "{\"quant_method\": \"compressed-tensors\", \"format\": \"%s\", "
                         "\"quantization_status\": \"compressed\", \"ignore\": [\"lm_head\"], "
                         "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], "
                         "\"input_activations\": null, \"output_activations\": null, \"weights\": "
                         "{\"num_bits\": %d, \"type\": \"%s\", \"symmetric\": true, \"strategy\": "
                         "\"%s\", \"group_size\": %.*s, \"dynamic\": false}}}}",
                         j->type == INT4 ? "pack-quantized" : "float-quantized",
                         j->type == INT4 ? 4 : 8, j->type == INT4 ? "int" : "float",
                         j->type == INT4 ? "group" : "channel", 12,
                         j->type == INT4 ? strchr(opt_str(j->a, O_TYPE), ':')
                                                   ? strchr(opt_str(j->a, O_TYPE), ':') + 1
                                                   : "128"
                                         : "null");
        if (f)
                fprintf(f, "%.*s\n  \"quantization_config\": %s,%s", (int)(brace - text) + 1, text,
                        quant, brace + 1);
        const bool whole = f && !ferror(f);
        int code = f && !fclose(f) && whole ? file_write_atomic(path, out, n, e)
                                            : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        free(out);
        free(path);
        return code;
}

/* Tokenizer, template, generation_config: small files that are no weights. */
static bool is_copied(const char *name)
{
        static const char *const tail[] = { ".json", ".model", ".txt", ".jinja" };
        const size_t n = strlen(name);
        for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
                if (n > strlen(tail[i]) && !strcmp(name + n - strlen(tail[i]), tail[i]))
                        return strcmp(name, "config.json") && !contains(name, ".index.json");
        return false;
}

static int copy_files(const char *from, const char *to, Err *e)
{
        DIR *d = opendir(from);
        int code = TGC_OK;
        for (struct dirent *x; d && !code && (x = readdir(d));) {
                char *a, *b, *text = NULL;
                size_t n;
                if (!is_copied(x->d_name))
                        continue;
                a = file_join(from, x->d_name);
                b = file_join(to, x->d_name);
                code = a && b ? file_read_text(a, MOST_FILE, &text, &n, e)
                              : err_set(e, TGC_NO_MEMORY, "%s: no memory", from);
                if (!code)
                        code = file_write_atomic(b, text, n, e);
                free(text);
                free(a);
                free(b);
        }
        if (d)
                closedir(d);
        return code;
}

/* ---- all of it ---- */

static int read_type(Job *j, Err *e)
{
        const char *s = opt_str(j->a, O_TYPE);
        j->group = 128;
        if (!strcasecmp(s, "nf4"))
                j->type = NF4;
        else if (!strcasecmp(s, "fp8"))
                j->type = FP8;
        else if (!strcasecmp(s, "int4") || !strcasecmp(s, "int4:32") || !strcasecmp(s, "int4:64") ||
                 !strcasecmp(s, "int4:128")) {
                j->type = INT4;
                j->group = s[4] ? atoi(s + 5) : 128;
        } else
                return err_set(
                        e, TGC_USAGE,
                        "--type %.40s: a folder can become nf4, int4:32, int4:64, int4:128 or "
                        "fp8; other types are for GGUF files",
                        s);
        return TGC_OK;
}

/* A model that linears of others can take the place of. */
static int check_config(const Job *j, const char *text, Err *e)
{
        cJSON *c = NULL;
        int code = json_parse(&c, text, strlen(text), "config.json", e);
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(c, "model_type");
        const cJSON *quant = cJSON_GetObjectItemCaseSensitive(c, "quantization_config");
        const char *name = cJSON_GetStringValue(type);
        if (!code && quant && !cJSON_IsNull(quant))
                code = err_set(e, TGC_USAGE, "%s: config.json: it is quantised already",
                               j->a->pos[0]);
        if (!code && name &&
            (!strcmp(name, "gpt2") || !strcmp(name, "gpt_oss") || !strcmp(name, "tgc")))
                code = err_set(e, TGC_USAGE,
                               "%s: config.json: model_type \"%s\" has no linears as other "
                               "packages quantise them",
                               j->a->pos[0], name);
        cJSON_Delete(c);
        return code;
}

static int check_keep(const Job *j, Err *e)
{
        const OptionValue *keep = &j->a->v[O_KEEP_TYPE];
        for (int i = 0; i < keep->n; i++) {
                bool any = false;
                for (int k = 0; k < checkpoint_count(j->from); k++)
                        any |= !fnmatch(keep->list[i], checkpoint_at(j->from, k)->name, 0);
                if (!any)
                        return err_set(e, TGC_USAGE, "--keep %.100s: no tensor has such a name%s",
                                       keep->list[i],
                                       strchr(keep->list[i], '=')
                                               ? "; in a folder what is kept has its own type: "
                                                 "give PATTERN alone"
                                               : "");
        }
        return TGC_OK;
}

static int plan(Job *j, Err *e)
{
        int code = check_keep(j, e);
        for (int i = 0; i < checkpoint_count(j->from) && !code; i++) {
                const CkTensor *t = checkpoint_at(j->from, i);
                if (is_linear(j, t))
                        code = plan_linear(j, i, e);
                else {
                        j->source[j->n] = i;
                        j->out[j->n++] = *t;
                }
        }
        if (!code && !j->n_quantised)
                code = err_set(e, TGC_BAD_FILE, "%s: has no linear to quantise", j->a->pos[0]);
        return code;
}

static void say_what(const Job *j, const char *dir)
{
        Progress talk = progress_new(j->a);
        uint64_t bytes = 0;
        char size[32];
        for (int i = 0; i < j->n; i++)
                bytes += j->out[i].bytes;
        say(&talk, "%s: %s, %d of %d tensors as %s\n", dir,
            text_bytes(size, sizeof size, (double)bytes), j->n_quantised, checkpoint_count(j->from),
            opt_str(j->a, O_TYPE));
}

int quantize_folder(const Args *a, Err *e)
{
        Job j = { .a = a };
        const char *dir = opt_str(a, O_OUT);
        char *text = NULL, *path = file_join(dir, "model.safetensors");
        int code = path ? read_type(&j, e) : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        if (!code)
                code = hf_config_read(a->pos[0], &text, e);
        if (!code && !(code = check_config(&j, text, e)))
                code = checkpoint_open(&j.from, a->pos[0], e);
        const size_t room = j.from ? (size_t)checkpoint_count(j.from) * PARTS + 1 : 1;
        j.out = calloc(room, sizeof *j.out);
        j.source = calloc(room, sizeof *j.source);
        j.owned = calloc(room, sizeof *j.owned);
        if (!code && (!j.out || !j.source || !j.owned))
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", a->pos[0]);
        if (!code)
                code = plan(&j, e);
        if (!code && opt_str(a, O_CALIBRATE))
                code = imatrix_calibrate(&j.imatrix, a, e);
        if (!code && !file_is_dir(dir) && mkdir(dir, 0777))
                code = err_set(e, TGC_IO, "%s: cannot be made", dir);
        if (!code && !(code = write_weights(&j, path, e)) &&
            !(code = copy_files(a->pos[0], dir, e)))
                code = put_config(&j, dir, text, e);
        if (!code)
                say_what(&j, dir);
        for (int i = 0; i < j.n_owned; i++)
                free(j.owned[i]);
        free(j.owned);
        free(j.out);
        free(j.source);
        checkpoint_close(j.from);
        imatrix_close(j.imatrix);
        free(text);
        free(path);
        return code;
}
