/* imatrix.c: see imatrix.h.
 *
 * The older form: i32 entries; of each i32 length and name, i32 calls, i32 n, f32 sums (n), where
 * sums / calls are the means; then the text's name.  Experts lie one behind the other. */
#include "imatrix.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../runtime/util/file.h"
#include "../runtime/weights/gguf.h"

typedef struct Means {
        char *name;
        float *v;
        int64_t n, matrices; /* matrices 0: not known */
} Means;

struct Imatrix {
        char *path;
        Means *means;
        int n;
};

void imatrix_close(Imatrix *m)
{
        if (!m)
                return;
        for (int i = 0; i < m->n; i++) {
                free(m->means[i].name);
                free(m->means[i].v);
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
                     : err_set(e, TGC_BAD_FILE, "%s: no importance matrix, or it is cut short",
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
                code = err_set(e, TGC_BAD_FILE, "%s: no importance matrix", path);
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
