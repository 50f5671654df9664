/* imatrix.c: implements imatrix.h.
 *
 * llama.cpp's older format: i32 number of entries; for each entry i32 length and name, i32 calls,
 * i32 n, f32 sums (n), where sums / calls are the means; then the text's name.  Experts follow one
 * another. */
#include "imatrix.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../../runtime/weights/gguf_out.h"

typedef struct Means {
        char *name;
        float *v;
        int64_t n, matrices; /* matrices 0: not known */
        double *sum, *count; /* what was measured: (n), (matrices); else NULL */
} Means;

struct Imatrix {
        char *path; /* or the text that was measured */
        Means *means;
        int n, windows, window;
};

void imatrix_close(Imatrix *m)
{
        if (!m)
                return;
        for (int i = 0; i < m->n; i++) {
                free(m->means[i].name);
                free(m->means[i].v);
                free(m->means[i].sum);
                free(m->means[i].count);
        }
        free(m->means);
        free(m->path);
        free(m);
}

int imatrix_count(const Imatrix *m) { return m->n; }

/* Values are finite and not below 0, or the file is wrong. */
static int check(const Imatrix *m, const Means *x, Err *e)
{
        for (int64_t i = 0; i < x->n; i++)
                if (!isfinite(x->v[i]) || x->v[i] < 0)
                        return err_set(e, TGC_BAD_FILE, "%s: %.200s: mean %lld of %lld is %g",
                                       m->path, x->name, (long long)i, (long long)x->n,
                                       (double)x->v[i]);
        return TGC_OK;
}

/* Room for n means of `name`, in the table. */
static Means *add(Imatrix *m, const char *name, size_t length, int64_t n, Err *e)
{
        Means *more = realloc(m->means, ((size_t)m->n + 1) * sizeof *more);
        if (more) {
                m->means = more;
                more += m->n;
                *more = (Means) { .name = strndup(name, length),
                                  .v = malloc((size_t)n * sizeof(float) + 1),
                                  .n = n };
                m->n++;
        }
        if (!more || !more->name || !more->v) {
                err_set(e, TGC_NO_MEMORY, "%s: no memory", m->path);
                return NULL;
        }
        return more;
}

/* ---- GGUF ---- */

static int read_gguf(Imatrix *m, Err *e)
{
        static const char tail[] = ".in_sum2";
        Gguf *g;
        int code = gguf_open(&g, m->path, e);
        if (code)
                return code;
        for (int i = 0; i < gguf_n_tensors(g) && !code; i++) {
                const CkTensor *t = gguf_tensor(g, i), *counts;
                const size_t n = strlen(t->name), k = sizeof tail - 1;
                char name[300];
                if (n <= k || n > 200 || strcmp(t->name + n - k, tail))
                        continue;
                snprintf(name, sizeof name, "%.*s.counts", (int)(n - k), t->name);
                counts = gguf_find_tensor(g, name);
                const int64_t matrices = counts ? (int64_t)(counts->bytes / 4) : 0,
                              values = (int64_t)(t->bytes / 4);
                if (!counts || counts->dtype != CK_F32 || t->dtype != CK_F32 || matrices < 1 ||
                    values % matrices) {
                        code = err_set(e, TGC_BAD_FILE, "%s: %.200s: no float32 counts of it",
                                       m->path, t->name);
                        break;
                }
                Means *x = add(m, t->name, n - k, values, e);
                if (!x) {
                        code = TGC_NO_MEMORY;
                        break;
                }
                x->matrices = matrices;
                memcpy(x->v, t->data, t->bytes);
                for (int64_t v = 0; v < values; v++) {
                        float count;
                        memcpy(&count, (const char *)counts->data + v / (values / matrices) * 4, 4);
                        x->v[v] = count > 0 ? x->v[v] / count
                                            : 1; /* an expert that nothing went to */
                }
                code = check(m, x, e);
        }
        gguf_free(g);
        return code;
}

/* ---- the older form ---- */

typedef struct Bytes {
        const char *at;
        size_t left;
} Bytes;

static bool take(Bytes *b, void *to, size_t n)
{
        if (b->left < n)
                return false;
        memcpy(to, b->at, n);
        b->at += n;
        b->left -= n;
        return true;
}

static int read_dat(Imatrix *m, const FileMap *map, Err *e)
{
        Bytes b = { map->data, map->size };
        int32_t entries = 0, length, calls, n;
        bool whole = take(&b, &entries, 4) && entries > 0;
        for (int32_t i = 0; whole && i < entries; i++) {
                whole = take(&b, &length, 4) && length > 0 && (size_t)length <= b.left &&
                        length < 200;
                const char *name = b.at;
                if (whole) {
                        b.at += length;
                        b.left -= (size_t)length;
                }
                whole = whole && take(&b, &calls, 4) && take(&b, &n, 4) && n > 0 && calls >= 0 &&
                        (size_t)n <= b.left / 4;
                if (!whole)
                        break;
                Means *x = add(m, name, (size_t)length, n, e);
                if (!x)
                        return TGC_NO_MEMORY;
                take(&b, x->v, (size_t)n * 4);
                for (int32_t v = 0; v < n && calls; v++)
                        x->v[v] /= (float)calls;
                const int code = check(m, x, e);
                if (code)
                        return code;
        }
        return whole ? TGC_OK
                     : err_set(e, TGC_BAD_FILE,
                               "%s: not an importance matrix, or cut short; `tgc imatrix` makes "
                               "one",
                               m->path);
}

int imatrix_open(Imatrix **out, const char *path, Err *e)
{
        Imatrix *m = calloc(1, sizeof *m);
        FileMap map = { 0 };
        int code = m && (m->path = strdup(path)) ? file_map(&map, path, e)
                                                 : err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        *out = NULL;
        if (!code)
                code = map.size >= 4 && !memcmp(map.data, "GGUF", 4) ? read_gguf(m, e)
                                                                     : read_dat(m, &map, e);
        file_unmap(&map);
        if (!code && !m->n)
                code = err_set(e, TGC_BAD_FILE,
                               "%s: not an importance matrix; `tgc imatrix` makes one", path);
        if (code)
                imatrix_close(m);
        else
                *out = m;
        return code;
}

int imatrix_find(const Imatrix *m, const char *tensor, int64_t cols, const float **means,
                 int64_t *matrices, Err *e)
{
        *means = NULL;
        for (int i = 0; i < m->n; i++) {
                const Means *x = &m->means[i];
                if (strcmp(x->name, tensor))
                        continue;
                if (x->n % cols || (x->matrices && x->n != cols * x->matrices))
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: %.200s has %lld means, and a row of the tensor %lld "
                                       "values",
                                       m->path, tensor, (long long)x->n, (long long)cols);
                *means = x->v;
                *matrices = x->n / cols;
        }
        return TGC_OK;
}

/* ---- measured ---- */

int imatrix_new(Imatrix **out, const char *text, int windows, int window, Err *e)
{
        Imatrix *m = *out = calloc(1, sizeof *m);
        if (!m || !(m->path = strdup(text)))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", text);
        m->windows = windows;
        m->window = window;
        return TGC_OK;
}

/* The means of a tensor, all of whose matrices may not be here yet. */
static int room_for(Imatrix *m, const char *tensor, int64_t matrices, int64_t cols, Means **out,
                    Err *e)
{
        for (int i = 0; i < m->n; i++)
                if (!strcmp(m->means[i].name, tensor)) {
                        *out = &m->means[i];
                        return TGC_OK;
                }
        Means *x = *out = add(m, tensor, strlen(tensor), matrices * cols, e);
        if (!x)
                return TGC_NO_MEMORY;
        x->matrices = matrices;
        x->sum = calloc((size_t)x->n + 1, sizeof *x->sum);
        x->count = calloc((size_t)matrices + 1, sizeof *x->count);
        for (int64_t i = 0; i < x->n; i++)
                x->v[i] = 1; /* as what nothing went to */
        return x->sum && x->count ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", m->path);
}

int imatrix_put(Imatrix *m, const char *tensor, int64_t matrices, int64_t at, const double *sum,
                int64_t cols, double count, Err *e)
{
        Means *x;
        const int code = room_for(m, tensor, matrices, cols, &x, e);
        if (code)
                return code;
        if (at >= x->matrices || x->n != x->matrices * cols)
                return err_set(
                        e, TGC_FAIL,
                        "%s: sums of %lld columns of matrix %lld, and there are %lld numbers of "
                        "%lld matrices",
                        tensor, (long long)cols, (long long)at, (long long)x->n,
                        (long long)x->matrices);
        memcpy(x->sum + at * cols, sum, (size_t)cols * sizeof *sum);
        x->count[at] = count;
        for (int64_t c = 0; c < cols && count > 0; c++)
                x->v[at * cols + c] = (float)(sum[c] / count);
        return check(m, x, e);
}

static int by_name(const void *a, const void *b)
{
        return strcmp(((const Means *)a)->name, ((const Means *)b)->name);
}

static int write_floats(GgufOut *o, const double *v, int64_t n, Err *e)
{
        float *f = malloc((size_t)n * sizeof *f + 1);
        if (!f)
                return err_set(e, TGC_NO_MEMORY, "no memory for sums");
        for (int64_t i = 0; i < n; i++)
                f[i] = (float)v[i];
        const int code = gguf_out_write(o, f, (size_t)n * sizeof *f, e);
        free(f);
        return code;
}

/* name.in_sum2 (matrices, cols) and name.counts (matrices, 1). */
static int tensors_of(const Imatrix *m, CkTensor *t, Err *e)
{
        for (int i = 0; i < 2 * m->n; i++) {
                const Means *x = &m->means[i / 2];
                const int64_t cols = i % 2 ? 1 : x->n / x->matrices;
                char *name = malloc(strlen(x->name) + 16);
                if (!name)
                        return err_set(e, TGC_NO_MEMORY, "%s: no memory", m->path);
                sprintf(name, "%s.%s", x->name, i % 2 ? "counts" : "in_sum2");
                t[i] = (CkTensor) { .name = name,
                                    .dtype = CK_F32,
                                    .rank = 2,
                                    .dim = { x->matrices, cols },
                                    .bytes = (size_t)(x->matrices * cols) * sizeof(float) };
        }
        return TGC_OK;
}

int imatrix_write(const Imatrix *m, const char *path, Err *e)
{
        GgufKeys *k = gguf_keys_new();
        CkTensor *t = calloc(2 * (size_t)m->n + 1, sizeof *t);
        GgufOut *o = NULL;
        int code = k && t ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        qsort(m->means, (size_t)m->n, sizeof *m->means, by_name);
        if (!code && !(code = tensors_of(m, t, e))) {
                gguf_put_text(k, "general.type", "imatrix", 7);
                gguf_put_array(k, "imatrix.datasets", GGUF_STRING, 1);
                gguf_put_text_item(k, m->path, strlen(m->path));
                gguf_put_u32(k, "imatrix.chunk_count", (uint32_t)m->windows);
                gguf_put_u32(k, "imatrix.chunk_size", (uint32_t)m->window);
                code = gguf_out_open(&o, path, NULL, k, t, 2 * m->n, e);
        }
        for (int i = 0; i < m->n && !code; i++)
                if (!(code = write_floats(o, m->means[i].sum, m->means[i].n, e)))
                        code = write_floats(o, m->means[i].count, m->means[i].matrices, e);
        if (!code)
                code = gguf_out_commit(o, e);
        else
                gguf_out_abort(o);
        for (int i = 0; t && i < 2 * m->n; i++)
                free((char *)(uintptr_t)t[i].name);
        free(t);
        gguf_keys_free(k);
        return code;
}
