/* merge.c: tgc export --merge: folds adapters into a model's weights, W += s B A.
 *
 * Parameters are merged one at a time: read from the base model's checkpoint, added to the
 * adapters' products (summed in double), rounded to the base's type, written to the folder.  The
 * graph is the model with adapters beside its linears, unmerged (-O0), so that the rows of a weight
 * and of its B correspond.  Adapters stay in float32. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/plan/manifest.h"
#include "../../runtime/util/file.h"
#include "../../runtime/util/parallel.h"
#include "../../runtime/weights/weight_map.h"
#include "../load/gguf_model.h"
#include "../load/lora.h"
#include "../load/open.h"

/* A linear's part of an adapter: B (rows, r), A (r, cols). */
typedef struct Product {
        int w, a, b, r; /* parameters; */
        double scale;
} Product;

typedef struct Merge {
        Manifest m;
        Checkpoint *base;
        GgufModel gguf;  /* of the base, where it is such a file */
        float **adapter; /* by parameter: of those that are an adapter's */
        Product *product;
        int n_products;
        char *map; /* the model's, without adapters */
        int *base_param;
        int n_base; /* of the set */
        float *x;
} Merge;

/* ---- the adapters ---- */

/* "base_model.model.MODULE.lora_B.weight" in the line of a parameter; false: it is no adapter's. */
static bool module_of(const char *map, const char *param, char module[512], bool *is_b, int *number)
{
        const size_t n = strlen(param);
        for (const char *s = map; s && (s = strstr(s, "map ")); s += 4) {
                if (strncmp(s + 4, param, n) || s[4 + n] != ' ')
                        continue;
                const char *name = strstr(s, "base_model.model."), *eol = strchr(s, '\n');
                if (!name || (eol && name > eol))
                        return false;
                *number = name[-1] == '/' ? atoi(strstr(s, "=? ") + 3) : 0;
                name += 17;
                size_t len = strcspn(name, " :\n");
                const char *tail = len > 14 ? name + len - 14 : "";
                *is_b = !strncmp(tail, ".lora_B.weight", 14);
                if (!*is_b && strncmp(tail, ".lora_A.weight", 14))
                        return false;
                snprintf(module, 512, "%.*s", (int)(len - 14), name);
                return true;
        }
        return false;
}

/* The weight of the linear whose B has this name. */
static int weight_of(const Manifest *m, const char *b)
{
        const char *tail = strstr(b, ".lora_B");
        char name[600];
        for (const char *s = tail; s; s = strstr(s + 1, ".lora_B"))
                tail = s;
        for (int i = 0; i < 2 && tail; i++) {
                snprintf(name, sizeof name, "%.*s%s", (int)(tail - b), b, i ? "" : ".weight");
                const int w = manifest_param(m, name);
                if (w >= 0)
                        return w;
        }
        return -1;
}

static int find_products(Merge *g, const char *map, const Adapters *s, Err *e)
{
        char module[512], other[512];
        bool is_b;
        int number, k;
        g->product = calloc((size_t)g->m.n_params + 1, sizeof *g->product);
        if (!g->product)
                return err_set(e, TGC_NO_MEMORY, "no memory to merge");
        for (int i = 0; i < g->m.n_params; i++) {
                Product *p = &g->product[g->n_products];
                if (!module_of(map, g->m.param[i].name, module, &is_b, &number) || !is_b)
                        continue;
                *p = (Product) { .w = weight_of(&g->m, g->m.param[i].name), .a = -1, .b = i };
                for (int j = 0; j < g->m.n_params && p->a < 0; j++)
                        if (module_of(map, g->m.param[j].name, other, &is_b, &k) && !is_b &&
                            k == number && !strcmp(module, other))
                                p->a = j;
                p->r = peft_config_rank(s->a[number].config, module, false, &p->scale);
                p->scale *= s->a[number].scale;
                const Param *w = p->w < 0 ? NULL : &g->m.param[p->w];
                if (!w || p->a < 0 || w->dim[0] != g->m.param[i].dim[0] ||
                    w->dim[1] != g->m.param[p->a].dim[1] || p->r != g->m.param[i].dim[1])
                        return err_set(e, TGC_FAIL, "%s: no weight to merge it with",
                                       g->m.param[i].name);
                g->n_products++;
        }
        return TGC_OK;
}

/* ---- one parameter ---- */

/* The lines of the map that are about the parameter, and nothing of the rest is missed. */
static char *lines_of(const char *map, const char *param)
{
        const size_t n = strlen(param);
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);
        for (const char *s = map; f && *s; s += strcspn(s, "\n") + (s[strcspn(s, "\n")] != 0))
                if (!strncmp(s, "map ", 4) && !strncmp(s + 4, param, n) &&
                    (s[4 + n] == ' ' || s[4 + n] == '['))
                        fprintf(f, "%.*s\n", (int)strcspn(s, "\n"), s);
        if (f) {
                fputs("map ignore *\n", f);
                fclose(f);
        }
        return text;
}

static int read_base(Merge *g, int i, Err *e)
{
        const Param *q = &g->m.param[i];
        WeightParam p = { .name = q->name, .dtype = CK_F32, .rank = q->n_dims, .data = g->x };
        WeightSet set = { .n = 1, .param = &p };
        WeightMap *map = NULL, *names = NULL;
        char *text = lines_of(g->map, q->name);
        memcpy(p.dim, q->dim, sizeof p.dim);
        int code = text ? weight_map_parse(&map, text, "manifest", e)
                        : err_set(e, TGC_NO_MEMORY, "no memory to merge");
        if (!code && g->gguf.names &&
            !(code = weight_map_parse(&names, g->gguf.names, checkpoint_path(g->base), e)))
                code = weight_map_compose(map, names, g->base, e);
        if (!code)
                code = weight_map_import(map, g->base, &set, NULL, e);
        weight_map_free(map);
        weight_map_free(names);
        free(text);
        return code;
}

typedef struct Rows {
        const Merge *g;
        const Product *p;
} Rows;

/* Row n of W: += s sum_j B[n][j] A[j], in double. */
static void add_row(void *ctx, int n)
{
        const Rows *r = ctx;
        const Product *p = r->p;
        const int64_t K = r->g->m.param[p->w].dim[1];
        const float *b = r->g->adapter[p->b] + (int64_t)n * p->r, *a = r->g->adapter[p->a];
        float *w = r->g->x + (int64_t)n * K;
        for (int64_t k = 0; k < K; k++) {
                double sum = 0;
                for (int j = 0; j < p->r; j++)
                        sum += (double)b[j] * a[(int64_t)j * K + k];
                w[k] = (float)(w[k] + p->scale * sum);
        }
}

static int begin(void *ctx, int i, void **data, Err *e)
{
        Merge *g = ctx;
        const int param = g->base_param[i];
        int code = read_base(g, param, e);
        for (int k = 0; k < g->n_products && !code; k++)
                if (g->product[k].w == param)
                        parallel_for((int)g->m.param[param].dim[0], 16, add_row,
                                     &(Rows) { g, &g->product[k] });
        *data = g->x;
        return code;
}

/* ---- all of them ---- */

/* The type that most of the base's elements have. */
static int stored_type(const Checkpoint *ck)
{
        double n[3] = { 0 };
        static const int type[3] = { CK_F32, CK_BF16, CK_F16 };
        int best = 0;
        for (int i = 0; i < checkpoint_count(ck); i++)
                for (int k = 0; k < 3; k++)
                        if (checkpoint_at(ck, i)->dtype == type[k])
                                n[k] += (double)checkpoint_at(ck, i)->bytes / (k ? 2 : 4);
        for (int k = 1; k < 3; k++)
                best = n[k] > n[best] ? k : best;
        return n[best] > 0 ? type[best] : CK_BF16; /* in blocks */
}

static int open_merge(Merge *g, const Plan *p, const Adapters *s, Err *e)
{
        const Section *man = plan_find(p, "manifest");
        uint64_t most = 1;
        int code = man ? manifest_parse(&g->m, man->data, man->size, e)
                       : err_set(e, TGC_BAD_FILE,
                                 "the plan has no manifest: compile the model again");
        char *all = code ? NULL : manifest_map(p);
        if (code)
                return code;
        g->adapter = calloc((size_t)g->m.n_params + 1, sizeof *g->adapter);
        g->base_param = calloc((size_t)g->m.n_params + 1, sizeof *g->base_param);
        g->map = all ? calloc(strlen(all) + 1, 1) : NULL;
        if (!g->map || !g->adapter || !g->base_param)
                code = err_set(e, TGC_NO_MEMORY, "no memory to merge");
        char *to = g->map;
        for (char *line = all, *eol; !code && (eol = strchr(line, '\n')); line = eol + 1) {
                *eol = 0;
                if (!map_line_is_adapters(line))
                        to += sprintf(to, "%s\n", line);
                *eol = '\n';
        }
        if (!code)
                code = find_products(g, all, s, e);
        for (int i = 0; i < g->m.n_params && !code; i++) {
                char module[512];
                bool is_b;
                int number;
                most = g->m.param[i].count > most ? g->m.param[i].count : most;
                if (!module_of(all, g->m.param[i].name, module, &is_b, &number))
                        g->base_param[g->n_base++] = i;
                else if (!(g->adapter[i] = malloc(g->m.param[i].count * sizeof(float))))
                        code = err_set(e, TGC_NO_MEMORY, "no memory for the adapter");
        }
        if (!code && !(g->x = malloc(most * sizeof *g->x)))
                code = err_set(e, TGC_NO_MEMORY, "no memory for a parameter");
        free(all);
        return code;
}

static void close_merge(Merge *g)
{
        for (int i = 0; i < g->m.n_params && g->adapter; i++)
                free(g->adapter[i]);
        checkpoint_close(g->base);
        gguf_model_free(&g->gguf);
        free(g->adapter);
        free(g->base_param);
        free(g->product);
        free(g->map);
        free(g->x);
        manifest_free(&g->m);
}

static int write_all(Merge *g, const char *folder, int dtype, uint64_t shard, int *n_files, Err *e)
{
        static const StMeta meta[] = { { "format", "pt" } };
        WeightMap *map = NULL;
        WeightParam *w = calloc((size_t)g->n_base + 1, sizeof *w);
        int code = w ? weight_map_parse(&map, g->map, "manifest", e)
                     : err_set(e, TGC_NO_MEMORY, "no memory to merge");
        for (int i = 0; i < g->n_base && !code; i++) {
                const Param *q = &g->m.param[g->base_param[i]];
                w[i] = (WeightParam) { .name = q->name, .dtype = CK_F32, .rank = q->n_dims };
                memcpy(w[i].dim, q->dim, sizeof w[i].dim);
        }
        if (!code) {
                WeightSet set = { .n = g->n_base, .param = w, .ctx = g, .begin = begin };
                weight_map_annotate(map, g->base);
                code = weight_map_export_folder(map, &set, dtype, folder, shard, meta, 1, n_files,
                                                e);
        }
        weight_map_free(map);
        free(w);
        return code;
}

int merge_export(const Plan *p, const char *base, const Adapters *s, const char *folder,
                 const char **dtype, uint64_t shard, int *n_files, Err *e)
{
        Merge g = { 0 };
        int code = open_merge(&g, p, s, e);
        if (!code)
                code = adapters_read(p, s, g.adapter, e);
        if (!code && is_gguf(base))
                code = gguf_model(&g.gguf, base, true, e);
        if (!code)
                code = checkpoint_open(&g.base, base, e);
        if (!code) {
                const int type = *dtype ? ck_dtype_find(*dtype) : stored_type(g.base);
                *dtype = type == CK_F32 ? "f32" : type == CK_BF16 ? "bf16" : "f16";
                code = write_all(&g, folder, type, shard, n_files, e);
        }
        close_merge(&g);
        return code;
}

/* ---- what it changed ---- */

enum { SAMPLE = 16 };

/* Logits of a few tokens; *logits is malloc'd. */
static int sample(const Args *a, const char *model, bool merged, const char *dtype, float **logits,
                  int *vocab, Err *e)
{
        Args b = *a;
        Loaded l;
        Session *s;
        int ids[SAMPLE];
        b.cmd = CMD_EVAL;
        b.pos = &model;
        if (merged)
                b.v[O_LORA] = (OptionValue) { 0 };
        b.v[O_DTYPE].s = dtype;
        b.v[O_DTYPE].set = true; /* or a file in blocks would be compiled in bf16 */
        b.v[O_CTX].i = SAMPLE;
        b.v[O_QUICK_CHECK].i = 0;
        int code = load(&l, &b, &(LoadHow) { .mode = BUILD_INFER }, e);
        *logits = NULL;
        if (code)
                return code;
        if (!(code = open_session(&s, &l.plan, &b, SESSION_INFER, 0, "score", 0, e))) {
                *vocab = session_manifest(s)->vocab;
                for (int i = 0; i < SAMPLE; i++)
                        ids[i] = (int)((i * 7919u + 13u) % (unsigned)*vocab);
                *logits = malloc((size_t)SAMPLE * (size_t)*vocab * sizeof **logits);
                code = *logits ? session_score(s, ids, SAMPLE, *logits, NULL, e)
                               : err_set(e, TGC_NO_MEMORY, "no memory for logits");
                session_close(s);
        }
        loaded_free(&l);
        return code;
}

int merge_compare(const Args *a, const char *folder, const char *dtype, double *change,
                  double *largest, Err *e)
{
        float *apart = NULL, *one = NULL;
        int V, W;
        int code = sample(a, a->pos[0], false, dtype, &apart, &V, e);
        *change = *largest = 0;
        if (!code)
                code = sample(a, folder, true, dtype, &one, &W, e);
        if (!code && V != W)
                code = err_set(e, TGC_FAIL, "%s has a vocabulary of %d, %s has %d", a->pos[0], V,
                               folder, W);
        for (size_t i = 0; !code && i < (size_t)SAMPLE * (size_t)V; i++) {
                *change = fmax(*change, fabs((double)apart[i] - one[i]));
                *largest = fmax(*largest, fabs((double)apart[i]));
        }
        free(apart);
        free(one);
        return code;
}
