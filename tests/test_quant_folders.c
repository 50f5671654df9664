/* test_quant_folders.c: quantised Hugging Face folders: what each kind's weights decode to, whole
 * models of them, folders that do not hold together.
 *
 * data/quant is made by data/make_quant.py, with hashes of what the packages decode. */
#include <math.h>
#include "../runtime/util/json.h"
#include "../runtime/weights/block_decode.h"
#include "../runtime/weights/packed.h"
#include "../runtime/weights/safetensors.h"
#include "eval_models.h"

static const char *const kinds[] = {
        "awq",
        "bnb_fp4",
        "bnb_int8",
        "bnb_nf4",
        "bnb_nf4_double",
        "ct_fp8",
        "ct_fp8_block",
        "ct_int3_channel_zero",
        "ct_int4",
        "ct_int4_zero_act",
        "ct_int8_zero",
        "ct_mxfp4",
        "ct_nvfp4",
        "fp8_block",
        "fp8_tensor",
        "gptq_2_act",
        "gptq_3",
        "gptq_4",
        "gptq_4_act_v2",
        "gptq_8_column",
        "mxfp4",
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static uint64_t fnv(const void *data, size_t n)
{
        uint64_t h = 0xcbf29ce484222325u;
        for (size_t i = 0; i < n; i++)
                h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
        return h;
}

static void check_decoded(const Checkpoint *ck, const char *kind, const char *name,
                          const char *want)
{
        const CkTensor *t = checkpoint_find(ck, name);
        char has[17];
        CHECK_MSG(t && t->packed && !t->data, "%s: %s is no quantised weight", kind, name);
        const size_t n = t->bytes / ck_dtype_size(t->dtype);
        void *mem = malloc(t->bytes);
        float *v = malloc(n * sizeof *v);
        CHECK_MSG(!ck_unpack(t, mem, &err), "%s: %s", kind, err.msg);
        CHECK(ck_convert(v, CK_F32, mem, t->dtype, n, 1));
        snprintf(has, sizeof has, "%016llx", (unsigned long long)fnv(v, n * sizeof *v));
        CHECK_MSG(!strcmp(has, want), "%s: %s decodes to %s, not %s", kind, name, has, want);
        free(v);
        free(mem);
}

TEST (values_are_those_of_the_packages) {
        for (int i = 0; i < N_KINDS; i++) {
                char dir[80], path[100];
                Checkpoint *ck;
                cJSON *want;
                const cJSON *c;
                int n = 0;
                snprintf(dir, sizeof dir, "tests/data/quant/%s", kinds[i]);
                snprintf(path, sizeof path, "%s/decoded.json", dir);
                CHECK_MSG(!checkpoint_open(&ck, dir, &err), "%s", err.msg);
                CHECK_MSG(!json_read(&want, path, 1 << 20, &err), "%s", err.msg);
                cJSON_ArrayForEach(c, want)
                {
                        check_decoded(ck, kinds[i], c->string, c->valuestring);
                        n++;
                }
                for (int k = 0; k < checkpoint_count(ck); k++)
                        n -= checkpoint_at(ck, k)->packed != NULL;
                CHECK_MSG(!n, "%s: not as many weights as decoded.json has", kinds[i]);
                cJSON_Delete(want);
                checkpoint_close(ck);
        }
}

/* Every tensor of the folder has its place, and every parameter its tensor. */
TEST (whole_models) {
        const double ids[] = { 1, 5, 9 };
        for (int i = 0; i < N_KINDS; i++) {
                char dir[80];
                int64_t n;
                snprintf(dir, sizeof dir, "tests/data/quant/%s", kinds[i]);
                Loaded l = load(hf_model(dir, NULL), dir);
                Eval *e = evaluate(&l, 1, 3, ids, ids);
                const double *y = eval_output(e, "logits", &n);
                for (int64_t k = 0; k < n; k++)
                        CHECK_MSG(isfinite(y[k]), "%s: logit %lld is %g", kinds[i], (long long)k,
                                  y[k]);
                eval_free(e);
                unload(&l);
        }
}

/* ---- the same values in blocks ---- */

static uint64_t seed = 1;
static uint32_t bits32(void)
{
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return (uint32_t)(seed >> 32);
}

static uint8_t *random_bytes(int64_t n)
{
        uint8_t *b = malloc((size_t)n + 4);
        for (int64_t i = 0; i < n; i++)
                b[i] = (uint8_t)bits32();
        return b;
}

/* Finite scales of all sizes, subnormal and 0 and negative ones too. */
static CkTensor random_scales(int dtype, int64_t n)
{
        static const uint32_t nan_of[CK_N_DTYPES] = {
                [CK_F32] = 0x7f800000, [CK_F16] = 0x7c00, [CK_BF16] = 0x7f80, [CK_F8_E8M0] = 0xff
        };
        const size_t size = ck_dtype_size(dtype);
        uint8_t *b = malloc((size_t)n * size + 4);
        for (int64_t i = 0; i < n; i++) {
                uint32_t u = bits32() >> (32 - 8 * (int)size);
                if (!(bits32() % 50))
                        u &= 0xff;
                if ((u & nan_of[dtype]) == nan_of[dtype])
                        u ^= dtype == CK_F8_E8M0 ? 1 : nan_of[dtype] & (0u - nan_of[dtype]);
                memcpy(b + (size_t)i * size, &u, size);
        }
        return (CkTensor) { .name = "scale", .dtype = dtype, .data = b };
}

typedef struct InBlocks {
        const char *name;
        int kind, bits, less, zero_bits, zero_less, scale;
        int64_t rows, cols, group, block_rows;
        bool across, scb;
        int want; /* the blocks; 0: none hold it */
} InBlocks;

static const InBlocks in_blocks[] = {
        { "nf4 64", CODES_HIGH, 1, 0, 0, 0, CK_F32, 7, 192, 64, 1, 0, 0, CK_NF4 },
        { "nf4 of 128", CODES_HIGH, 1, 0, 0, 0, CK_F32, 5, 192, 128, 1, 0, 0, CK_NF4 },
        { "nf4 of 4096", CODES_HIGH, 1, 0, 0, 0, CK_F32, 67, 64, 4096, 1, 0, 0, CK_NF4 },
        { "nf4 of 32", CODES_HIGH, 1, 0, 0, 0, CK_F32, 7, 192, 32, 1, 0, 0, 0 },
        { "nf4 of 100", CODES_HIGH, 1, 0, 0, 0, CK_F32, 25, 64, 100, 1, 0, 0, 0 },
        { "nf4, cut by rows", CODES_HIGH, 1, 0, 0, 0, CK_F32, 4, 96, 64, 1, 0, 0, 0 },
        { "fp4 64", CODES_HIGH, 2, 0, 0, 0, CK_F32, 3, 128, 64, 1, 0, 0, CK_FP4 },
        { "mxfp4", CODES_LOW, 3, 0, 0, 0, CK_F8_E8M0, 9, 96, 32, 1, 0, 0, CK_MXFP4 },
        { "int4 128", CODES_ROWS, 4, 8, 0, 0, CK_BF16, 9, 256, 128, 1, 0, 0, CK_I4_128 },
        { "int4 64", CODES_ROWS, 4, 8, 0, 0, CK_F16, 9, 192, 64, 1, 0, 0, CK_I4_64 },
        { "int4 of a row", CODES_ROWS, 4, 8, 0, 0, CK_F16, 9, 160, 160, 1, 0, 0, CK_I4_32 },
        { "int4 of 256", CODES_ROWS, 4, 8, 0, 0, CK_F16, 9, 512, 256, 1, 0, 0, CK_I4_128 },
        { "int4 in f32", CODES_ROWS, 4, 8, 0, 0, CK_F32, 9, 256, 128, 1, 0, 0, 0 },
        { "int4 of 16", CODES_ROWS, 4, 8, 0, 0, CK_F16, 9, 256, 16, 1, 0, 0, 0 },
        { "int4 zero", CODES_ROWS, 4, 8, 4, 8, CK_BF16, 16, 256, 128, 1, 0, 0, CK_I4_128 },
        { "int3", CODES_ROWS, 3, 4, 0, 0, CK_BF16, 9, 64, 32, 1, 0, 0, CK_I4_32 },
        { "gptq", CODES_COLUMNS, 4, 0, 4, -1, CK_F16, 16, 256, 128, 1, 1, 0, CK_I4_128 },
        { "gptq 8", CODES_COLUMNS, 8, 0, 8, -1, CK_F16, 16, 256, 128, 1, 1, 0, 0 },
        { "awq", CODES_AWQ, 4, 0, 4, 0, CK_F16, 16, 96, 32, 1, 1, 0, CK_I4_32 },
        { "int8", CODES_I8, 8, 0, 0, 0, CK_F32, 9, 192, 192, 1, 0, 0, CK_I8_64 },
        { "int8 128", CODES_I8, 8, 0, 0, 0, CK_BF16, 9, 256, 256, 1, 0, 0, CK_I8_128 },
        { "SCB", CODES_I8, 8, 0, 0, 0, CK_F32, 9, 256, 256, 1, 0, 1, CK_SCB_128 },
        { "SCB 32", CODES_I8, 8, 0, 0, 0, CK_F32, 9, 96, 96, 1, 0, 1, CK_SCB_32 },
        { "fp8 of all", CODES_F8, 8, 0, 0, 0, CK_F32, 9, 192, 192, 9, 0, 0, CK_F8_64 },
        { "fp8 of rows", CODES_F8, 8, 0, 0, 0, CK_BF16, 9, 96, 96, 1, 0, 0, CK_F8_32 },
        { "fp8 of blocks", CODES_F8, 8, 0, 0, 0, CK_F32, 150, 256, 128, 128, 0, 0, CK_F8_128 },
        { "fp8, short", CODES_F8, 8, 0, 0, 0, CK_F32, 150, 192, 128, 128, 0, 0, CK_F8_64 },
        { "fp8 of 48", CODES_F8, 8, 0, 0, 0, CK_F32, 9, 144, 48, 1, 0, 0, 0 },
};

/* A Packed of random codes and scales; its parts lie in p. */
static Packed packed_of(const InBlocks *c)
{
        const int64_t N = c->rows, K = c->cols,
                      flat = c->kind == CODES_HIGH ? (N * K + c->group - 1) / c->group : 0,
                      G = flat ? 1 : (K + c->group - 1) / c->group,
                      R = flat ? flat : (N + c->block_rows - 1) / c->block_rows;
        Packed p = { .file = "x",
                     .code = { .kind = c->kind,
                               .bits = c->bits,
                               .less = c->less,
                               .data = random_bytes(N * K + 4096),
                               .rows = flat ? flat : N,
                               .cols = flat ? c->group : K },
                     .count = N * K,
                     .scale = random_scales(c->scale, R * G),
                     .scale_rows = R,
                     .groups = G,
                     .block_rows = c->block_rows,
                     .group = c->group,
                     .scale_across = c->across,
                     .times = c->scb ? 1 / 127.f : 0 };
        const float *table = c->bits == 1 ? nf4_values : fp4_values;
        for (int i = 0; i < 16; i++)
                p.code.table[i] = c->bits == 3 ? (float)e2m1_values[i] / 2 : table[i];
        if (c->zero_bits)
                p.zero = (Codes) { .kind = c->kind == CODES_AWQ ? CODES_AWQ : CODES_ROWS,
                                   .bits = c->zero_bits,
                                   .less = c->zero_less,
                                   .data = random_bytes(R * G + 4096),
                                   .rows = c->across && c->kind != CODES_AWQ ? G : R,
                                   .cols = c->across && c->kind != CODES_AWQ ? R : G };
        p.zero_across = c->across && c->kind != CODES_AWQ;
        return p;
}

TEST (blocks_hold_the_same_values) {
        for (size_t i = 0; i < sizeof in_blocks / sizeof *in_blocks; i++)
                for (int round = 0; round < 20; round++) {
                        const InBlocks *c = &in_blocks[i];
                        const int64_t n = c->rows * c->cols;
                        Packed p = packed_of(c);
                        CkTensor t = { .name = "w",
                                       .dtype = CK_F32,
                                       .rank = 2,
                                       .dim = { c->rows, c->cols },
                                       .bytes = (size_t)n * 4,
                                       .packed = &p };
                        t.blocks = packed_blocks(&p, c->cols);
                        CHECK_MSG(t.blocks == c->want, "%s: blocks of %s, not %s", c->name,
                                  ck_dtype_name(t.blocks), ck_dtype_name(c->want));
                        const CkTensor b = ck_as_blocks(&t, c->want);
                        if (c->want) {
                                float *plain = malloc(t.bytes), *got = malloc(t.bytes);
                                uint8_t *mem = malloc(b.bytes);
                                CHECK(b.dtype == c->want);
                                CHECK_MSG(!ck_unpack(&t, plain, &err), "%s: %s", c->name, err.msg);
                                CHECK_MSG(!ck_unpack(&b, mem, &err), "%s: %s", c->name, err.msg);
                                CHECK(ck_convert(got, CK_F32, mem, b.dtype, (size_t)n, 1));
                                for (int64_t k = 0; k < n; k++)
                                        CHECK_MSG(!memcmp(got + k, plain + k, 4) ||
                                                          (isnan(got[k]) && isnan(plain[k])),
                                                  "%s: value %lld is %a, not %a", c->name,
                                                  (long long)k, (double)got[k], (double)plain[k]);
                                free(plain);
                                free(got);
                                free(mem);
                        }
                        free((void *)(uintptr_t)p.code.data);
                        free((void *)(uintptr_t)p.zero.data);
                        free((void *)(uintptr_t)p.scale.data);
                }
}

/* ---- folders that are wrong ---- */

static char broken[300];

__attribute__((constructor)) static void make_folder(void)
{
        const char *base = getenv("TMPDIR");
        snprintf(broken, sizeof broken, "%s/tgc-quant-XXXXXX", base ? base : P_tmpdir);
        if (!mkdtemp(broken))
                abort();
}

static void put(const char *name, const char *text)
{
        char path[400];
        snprintf(path, sizeof path, "%s/%s", broken, name);
        CHECK_MSG(!file_write_atomic(path, text, strlen(text), &err), "%s", err.msg);
}

__attribute__((destructor)) static void remove_folder(void)
{
        char path[400];
        static const char *const name[] = { "model.safetensors", "config.json",
                                            "quantize_config.json" };
        for (int i = 0; i < 3; i++) {
                snprintf(path, sizeof path, "%s/%s", broken, name[i]);
                unlink(path);
        }
        rmdir(broken);
}

/* One tensor is another: it is gone, of another type or shape (its bytes are zeros), or its first
 * element has other bits. */
typedef struct Change {
        const char *kind, *tensor; /* by the end of its name; the first of several */
        const char *dtype;         /* NULL: as it was; "": it goes */
        int64_t dim[3];            /* dim[0] 0: as it was */
        uint32_t bits;
        const char *from, *to; /* in config.json */
        const char *says[3];
} Change;

static const Change changes[] = {
        { "bnb_nf4", ".absmax", "F32", { 3 }, 0, 0, 0, { "down_proj.weight.absmax", " 3,", "32" } },
        { "bnb_nf4", ".absmax", 0, { 0 }, 0x7f800000, 0, 0, { "absmax", "scale 0 of", "inf" } },
        { "bnb_nf4", ".absmax", "", { 0 }, 0, 0, 0, { "no", "weight.absmax", 0 } },
        { "bnb_nf4", "proj.weight", "U8", { 100, 1 }, 0, 0, 0, { "bytes are 100", "1024", 0 } },
        { "bnb_nf4", "quant_map", 0, { 0 }, 0x7fc00000, 0, 0, { "quant_map", "nan", "finite" } },
        { "bnb_nf4_double", ".nested_absmax", "F32", { 4 }, 0, 0, 0, { "blocks are 4", "1", 0 } },
        { "bnb_nf4_double", ".nested_absmax", 0, { 0 }, 0xff800000, 0, 0, { "-inf", 0, 0 } },
        { "bnb_int8", ".SCB", "F32", { 31 }, 0, 0, 0, { "rows are 31", "32", 0 } },
        { "bnb_int8", ".SCB", 0, { 0 }, 0x7fc00000, 0, 0, { "SCB", "nan", 0 } },
        { "gptq_4", ".qzeros", "I32", { 1, 8 }, 0, 0, 0, { "qzeros", "groups are 1", "4" } },
        { "gptq_4",
          ".qzeros",
          "I32",
          { 4, 3 },
          0,
          0,
          0,
          { "qzeros", "32 bits in a row are 3", 0 } },
        { "gptq_4", ".qweight", "I32", { 9, 32 }, 0, 0, 0, { "qweight", "are 9", "8" } },
        { "gptq_4", ".scales", "", { 0 }, 0, 0, 0, { "no", ".scales", 0 } },
        { "gptq_4", ".scales", 0, { 0 }, 0x7c007c00, 0, 0, { ".scales", "inf", 0 } },
        { "gptq_4", ".g_idx", 0, { 0 }, 77, 0, 0, { "g_idx of column 0 is 77", "groups", 0 } },
        { "gptq_4",
          0,
          0,
          { 0 },
          0,
          "\"bits\": 4",
          "\"bits\": 8",
          { "bits of a value are 4", "8", 0 } },
        { "gptq_4",
          0,
          0,
          { 0 },
          0,
          "\"gptq\", \"damp",
          "\"gptx\", \"damp",
          { "checkpoint_format", "gptx", 0 } },
        { "gptq_4",
          0,
          0,
          { 0 },
          0,
          "\"quant_method\": \"gptq\"",
          "\"quant_method\": \"hqq\"",
          { "hqq", "gptq, awq", 0 } },
        { "awq", ".qzeros", "I32", { 1, 4 }, 0, 0, 0, { "qzeros", "groups are 1", "4" } },
        { "awq", 0, 0, { 0 }, 0, "\"gemm\"", "\"gemv\"", { "version", "gemv", "gemm" } },
        { "awq", ".qweight", "I64", { 64, 4 }, 0, 0, 0, { "qweight", "I64", "I32" } },
        { "ct_int4",
          ".weight_packed",
          "I32",
          { 32, 7 },
          0,
          0,
          0,
          { "weight_packed", "are 7", "8" } },
        { "ct_int4",
          ".weight_scale",
          "F32",
          { 32, 3 },
          0,
          0,
          0,
          { "weight_scale", "groups are 3", "64" } },
        { "ct_int4", ".weight_shape", "", { 0 }, 0, 0, 0, { "weight_shape", 0, 0 } },
        { "ct_int4_zero_act",
          ".weight_zero_point",
          "I32",
          { 3, 4 },
          0,
          0,
          0,
          { "zero_point", "are 3", "4" } },
        { "ct_int4_zero_act",
          ".weight_g_idx",
          0,
          { 0 },
          9,
          0,
          0,
          { "column 0 is 9", "4 groups", 0 } },
        { "ct_nvfp4", ".weight_global_scale", 0, { 0 }, 0, 0, 0, { "global_scale", "0", 0 } },
        { "ct_nvfp4",
          ".weight_scale",
          "F8_E4M3",
          { 32, 2 },
          0,
          0,
          0,
          { "columns of a group are 32", "16", 0 } },
        { "ct_mxfp4", ".weight_scale", 0, { 0 }, 0xffffffff, 0, 0, { "weight_scale", "nan", 0 } },
        { "ct_fp8_block", ".weight_scale", "F32", { 3, 4 }, 0, 0, 0, { "rows are 3", "2", 0 } },
        { "ct_fp8", ".weight_scale", "", { 0 }, 0, 0, 0, { "F8_E4M3", "no scale", 0 } },
        { "fp8_block", ".weight_scale_inv", "F32", { 2, 3 }, 0, 0, 0, { "groups are 3", "4", 0 } },
        { "fp8_block", 0, 0, { 0 }, 0, "[24, 20]", "[24, 50]", { "groups are 4", "2", 0 } },
        { "mxfp4", "_scales", "U8", { 3, 32, 2 }, 0, 0, 0, { "_scales", "are 2", "1" } },
        { "mxfp4", "_scales", 0, { 0 }, 0xffffffff, 0, 0, { "_scales", "nan", 0 } },
};

static bool ends_with(const char *s, const char *tail)
{
        const size_t n = strlen(s), k = strlen(tail);
        return n >= k && !strcmp(s + n - k, tail);
}

static void put_config(const char *dir, const Change *c)
{
        char path[200], *text, *at, *out;
        size_t n;
        snprintf(path, sizeof path, "%s/config.json", dir);
        CHECK_MSG(!file_read_text(path, 1 << 20, &text, &n, &err), "%s", err.msg);
        out = calloc(n + 100, 1);
        at = c->from ? strstr(text, c->from) : NULL;
        CHECK_MSG(!c->from || at, "%s has no %s", path, c->from);
        if (at)
                sprintf(out, "%.*s%s%s", (int)(at - text), text, c->to, at + strlen(c->from));
        put("config.json", at ? out : text);
        free(text);
        free(out);
}

static void put_tensors(const char *dir, const Change *c)
{
        char path[400];
        Checkpoint *ck;
        SafetensorsOut *o;
        snprintf(path, sizeof path, "%s/model.safetensors", dir);
        CHECK_MSG(!checkpoint_open(&ck, path, &err), "%s", err.msg);
        const int all = checkpoint_count(ck);
        CkTensor *t = calloc((size_t)all, sizeof *t);
        int n = 0, hit = -1;
        for (int i = 0; i < all; i++) {
                t[n] = *checkpoint_at(ck, i);
                if (c->tensor && hit < 0 && ends_with(t[n].name, c->tensor)) {
                        hit = n;
                        if (c->dtype && !*c->dtype)
                                continue;
                        if (c->dtype) {
                                int64_t count;
                                t[n].dtype = ck_dtype_find(c->dtype);
                                for (t[n].rank = 0; t[n].rank < 3 && c->dim[t[n].rank]; t[n].rank++)
                                        t[n].dim[t[n].rank] = c->dim[t[n].rank];
                                CHECK(ck_count(t[n].rank, t[n].dim, &count));
                                t[n].bytes = (size_t)count * ck_dtype_size(t[n].dtype);
                        }
                }
                n++;
        }
        CHECK_MSG(!c->tensor || hit >= 0, "%s: no tensor %s", c->kind, c->tensor);
        snprintf(path, sizeof path, "%s/model.safetensors", broken);
        CHECK_MSG(!safetensors_out_open(&o, path, t, n, NULL, 0, &err), "%s", err.msg);
        for (int k = 0; k < n; k++) {
                const int i = safetensors_out_order(o)[k];
                unsigned char *data = calloc(t[i].bytes + 4, 1);
                if (i != hit || !c->dtype)
                        memcpy(data, t[i].data, t[i].bytes);
                if (i == hit && !c->dtype)
                        memcpy(data, &c->bits, t[i].bytes < 4 ? t[i].bytes : 4);
                CHECK(!safetensors_out_write(o, data, t[i].bytes, &err));
                free(data);
        }
        CHECK_MSG(!safetensors_out_commit(o, &err), "%s", err.msg);
        free(t);
        checkpoint_close(ck);
}

/* What opening the folder and decoding all of it says; TGC_OK: nothing. */
static int decode_all(void)
{
        Checkpoint *ck;
        int code = checkpoint_open(&ck, broken, &err);
        for (int i = 0; !code && i < checkpoint_count(ck); i++) {
                const CkTensor *t = checkpoint_at(ck, i);
                void *mem = t->packed ? malloc(t->bytes) : NULL;
                if (t->packed)
                        code = ck_unpack(t, mem, &err);
                free(mem);
        }
        checkpoint_close(ck);
        return code;
}

TEST (folders_that_do_not_hold_together) {
        for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
                const Change *c = &changes[i];
                char dir[80];
                snprintf(dir, sizeof dir, "tests/data/quant/%s", c->kind);
                put_config(dir, c);
                put_tensors(dir, c);
                const int code = decode_all();
                CHECK_MSG(code == TGC_BAD_FILE, "%s, %s: code %d", c->kind,
                          c->tensor ? c->tensor : c->to, code);
                CHECK_MSG(strstr(err.msg, broken) == err.msg, "%s: no file in: %s", c->kind,
                          err.msg);
                for (int k = 0; k < 3 && c->says[k]; k++)
                        CHECK_MSG(strstr(err.msg, c->says[k]), "%s: no '%s' in: %s", c->kind,
                                  c->says[k], err.msg);
        }
}

/* What older tools wrote: config.json says nothing, a file beside it does. */
TEST (a_file_beside_config) {
        Change c = { .kind = "gptq_4", .from = "\"quantization_config\"", .to = "\"other\"" };
        put_config("tests/data/quant/gptq_4", &c);
        put_tensors("tests/data/quant/gptq_4", &c);
        put("quantize_config.json", "{\"bits\": 4, \"group_size\": 16, \"desc_act\": false}");
        CHECK_MSG(!decode_all(), "%s", err.msg);
        char path[400];
        snprintf(path, sizeof path, "%s/quantize_config.json", broken);
        unlink(path);
}

TEST_MAIN
