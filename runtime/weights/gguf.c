/* gguf.c: opens a GGUF model of one file or of several (gguf.h), and finds tensors by name. */
#include "gguf_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 4096 };

static int by_name(const void *a, const void *b)
{
        return strcmp((*(const CkTensor *const *)a)->name, (*(const CkTensor *const *)b)->name);
}

static int index_tensors(Gguf *g, Err *e)
{
        g->by_name = malloc(((size_t)g->n_tensors + 1) * sizeof *g->by_name);
        if (!g->by_name)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", g->path);
        for (int i = 0; i < g->n_tensors; i++)
                g->by_name[i] = &g->tensor[i];
        qsort(g->by_name, (size_t)g->n_tensors, sizeof *g->by_name, by_name);
        for (int i = 1; i < g->n_tensors; i++)
                if (!by_name(&g->by_name[i - 1], &g->by_name[i]))
                        return err_set(e, TGC_BAD_FILE, "%s: tensor %s is given twice", g->path,
                                       g->by_name[i]->name);
        return TGC_OK;
}

/* An integer key of a split file, or `none`. */
static int split_key(const Gguf *g, const char *path, const char *name, int64_t none, int64_t *out,
                     Err *e)
{
        const GgufValue *v = gguf_find(g, name);

        *out = none;
        if (v && (!gguf_int(v, out) || *out < 0 || *out > INT32_MAX))
                return err_set(e, TGC_BAD_FILE, "%s: %s is %s, not a whole number from 0 to %d",
                               path, name, gguf_type_name(v->type), INT32_MAX);
        return TGC_OK;
}

/* "dir/NAME-00001-of-00005.gguf": the name of file i of n; NULL: it is called otherwise, or no
 * memory.  Caller frees. */
static char *file_name(const char *first, int64_t i, int64_t n)
{
        const size_t len = strlen(first), tail = strlen("-00001-of-00001.gguf");
        char want[32], *out = malloc(len + 1);

        snprintf(want, sizeof want, "-%05lld-of-%05lld.gguf", 1ll, (long long)n);
        if (!out || len < tail || strcmp(first + len - tail, want)) {
                free(out);
                return 0;
        }
        snprintf(out, len + 1, "%.*s-%05lld-of-%05lld.gguf", (int)(len - tail), first,
                 (long long)i + 1, (long long)n);
        return out;
}

static int open_rest(Gguf *g, int64_t n, Err *e)
{
        FileMap *maps = realloc(g->map, (size_t)n * sizeof *maps);

        if (!maps)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", g->path);
        g->map = maps;
        for (int64_t i = 1; i < n; i++) {
                Gguf rest = { 0 };
                int64_t no, count;
                char *path = file_name(g->path, i, n);
                int rc;

                if (!path)
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: the first of %lld files, which are found by its name, "
                                       "NAME-00001-of-%05lld.gguf",
                                       g->path, (long long)n, (long long)n);
                if (!(rc = file_map(&g->map[i], path, e))) {
                        g->n_maps++;
                        rc = gguf_take_file(g, &rest, g->map[i].data, g->map[i].size, path, e);
                }
                if (!rc && !(rc = split_key(&rest, path, "split.no", -1, &no, e)) &&
                    !(rc = split_key(&rest, path, "split.count", -1, &count, e)) &&
                    (no != i || count != n))
                        rc = err_set(e, TGC_BAD_FILE,
                                     "%s: is file %lld of %lld by its metadata, and %lld of %lld "
                                     "by its name",
                                     path, (long long)no + 1, (long long)count, (long long)i + 1,
                                     (long long)n);
                free(rest.key);
                free(path);
                if (rc)
                        return rc;
        }
        return TGC_OK;
}

static int open_all(Gguf *g, const char *path, Err *e)
{
        int64_t no, n, tensors;
        int rc;

        if (!(g->map = calloc(1, sizeof *g->map)))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        if ((rc = file_map(&g->map[0], path, e)))
                return rc;
        g->n_maps = 1;
        if ((rc = gguf_take_file(g, NULL, g->map[0].data, g->map[0].size, path, e)) ||
            (rc = split_key(g, path, "split.count", 1, &n, e)) ||
            (rc = split_key(g, path, "split.no", 0, &no, e)))
                return rc;
        if (n > MAX_FILES)
                return err_set(e, TGC_BAD_FILE, "%s: split.count is %lld, at most %d", path,
                               (long long)n, MAX_FILES);
        if (n > 1 && no)
                return err_set(e, TGC_USAGE,
                               "%s: file %lld of %lld; give the first one, it finds the others",
                               path, (long long)no + 1, (long long)n);
        if (n > 1 && (rc = open_rest(g, n, e)))
                return rc;
        if ((rc = split_key(g, path, "split.tensors.count", g->n_tensors, &tensors, e)))
                return rc;
        if (n > 1 && tensors != g->n_tensors)
                return err_set(e, TGC_BAD_FILE,
                               "%s: split.tensors.count is %lld, and the %lld files have %d", path,
                               (long long)tensors, (long long)n, g->n_tensors);
        return index_tensors(g, e);
}

static int new_gguf(Gguf **out, const char *path, Err *e)
{
        Gguf *g = calloc(1, sizeof *g);

        *out = 0;
        if (!g || !(g->path = strdup(path))) {
                free(g);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        }
        *out = g;
        return TGC_OK;
}

static int keep_or_free(Gguf **out, Gguf *g, int rc)
{
        if (rc)
                gguf_free(g);
        else
                *out = g;
        return rc;
}

int gguf_open(Gguf **out, const char *path, Err *e)
{
        Gguf *g;
        int rc = new_gguf(&g, path, e);

        *out = 0;
        return rc ? rc : keep_or_free(out, g, open_all(g, path, e));
}

int gguf_parse(Gguf **out, const void *data, size_t size, const char *name, Err *e)
{
        Gguf *g;
        int rc = new_gguf(&g, name, e);

        *out = 0;
        if (rc)
                return rc;
        rc = gguf_take_file(g, NULL, data, size, name, e);
        return keep_or_free(out, g, rc ? rc : index_tensors(g, e));
}

void gguf_free(Gguf *g)
{
        if (!g)
                return;
        for (int i = 0; i < g->n_maps; i++)
                file_unmap(&g->map[i]);
        for (int i = 0; i < g->n_blocks; i++)
                free(g->block[i]);
        free(g->block);
        free(g->map);
        free(g->key);
        free(g->tensor);
        free(g->by_name);
        free(g->path);
        free(g);
}

/* ---- what is in it ---- */

const char *gguf_path(const Gguf *g) { return g->path; }
int gguf_version(const Gguf *g) { return g->version; }
int gguf_n_keys(const Gguf *g) { return g->n_keys; }
const GgufKey *gguf_key(const Gguf *g, int i) { return &g->key[i]; }
int gguf_n_tensors(const Gguf *g) { return g->n_tensors; }
const CkTensor *gguf_tensor(const Gguf *g, int i) { return &g->tensor[i]; }

const CkTensor *gguf_find_tensor(const Gguf *g, const char *name)
{
        const CkTensor key = { .name = name }, *at = &key, **hit = 0;
        if (g->n_tensors)
                hit = bsearch(&at, g->by_name, (size_t)g->n_tensors, sizeof *hit, by_name);
        return hit ? *hit : 0;
}

uint64_t gguf_tensor_bytes(const Gguf *g)
{
        uint64_t n = 0;
        for (int i = 0; i < g->n_tensors; i++)
                n += g->tensor[i].bytes;
        return n;
}

static void release_gguf(void *g) { gguf_free(g); }

int checkpoint_add_gguf(Checkpoint *ck, Gguf *g, Err *e)
{
        int rc = checkpoint_own(ck, release_gguf, g, e);

        for (int i = 0; !rc && i < g->n_tensors; i++)
                rc = checkpoint_add(ck, &g->tensor[i], e);
        return rc;
}
