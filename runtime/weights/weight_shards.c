/* weight_shards.c: writes weights in the files of a Hugging Face folder.
 *
 *      model.safetensors                       where all fit one file, else
 *      model-00001-of-0000N.safetensors ...    in the order of the map, none over the limit but for
 *                                              a tensor that is larger by itself
 *      model.safetensors.index.json            {"metadata": {"total_size": BYTES},
 *                                               "weight_map": {TENSOR: FILE, ...}}
 *
 * The index is written last, and an old index is removed first.  So a folder whose writing was
 * interrupted has no weights, rather than a mixture of both. */
#include "weight_map_internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../util/file.h"

static const char WHOLE[] = "model.safetensors", INDEX[] = "model.safetensors.index.json";
enum { SHARD_NAME = 48 };

typedef struct Shards {
        const Export *x;
        int *order; /* tensors as the map has them */
        int *shard; /* of tensor i, from 0 */
        int n;
        uint64_t total;
} Shards;

static void shard_name(char out[SHARD_NAME], int i, int of)
{
        snprintf(out, SHARD_NAME, "model-%05d-of-%05d.safetensors", i + 1, of);
}

/* Is it one of some number of shards? */
static bool is_shard(const char *name)
{
        int i, of, n = 0;
        return sscanf(name, "model-%5d-of-%5d.safetensors%n", &i, &of, &n) == 2 && n && !name[n];
}

typedef struct Rank {
        const Entry *first;
        int tensor;
} Rank;

static int by_entry(const void *a, const void *b)
{
        const Rank *x = a, *y = b;
        return (x->first > y->first) - (x->first < y->first);
}

static int cut(Shards *s, const Export *x, uint64_t most, Err *e)
{
        Rank *rank = malloc(((size_t)x->n + 1) * sizeof *rank);
        uint64_t used = 0;
        *s = (Shards) { .x = x, .order = malloc(((size_t)x->n + 1) * sizeof *s->order) };
        s->shard = malloc(((size_t)x->n + 1) * sizeof *s->shard);
        if (!rank || !s->order || !s->shard) {
                free(rank);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", x->map->name);
        }
        for (int i = 0; i < x->n; i++)
                rank[i] = (Rank) { x->piece[x->first[i]].entry, i };
        qsort(rank, (size_t)x->n, sizeof *rank, by_entry);
        for (int i = 0; i < x->n; i++) {
                const uint64_t bytes = x->tensor[rank[i].tensor].bytes;
                if (used && used + bytes > most) {
                        s->n++;
                        used = 0;
                }
                s->order[i] = rank[i].tensor;
                s->shard[rank[i].tensor] = s->n;
                used += bytes;
                s->total += bytes;
        }
        s->n++;
        free(rank);
        return TGC_OK;
}

static int remove_file(const char *dir, const char *name, Err *e)
{
        char *path = file_join(dir, name);
        int rc = TGC_OK;
        if (!path)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        if (unlink(path) && errno != ENOENT)
                rc = err_set(e, TGC_IO, "%s: %s", path, strerror(errno));
        free(path);
        return rc;
}

/* Shards of another number: no index names them any more. */
static int remove_shards(const char *dir, int but_of, Err *e)
{
        struct dirent *x;
        DIR *d = opendir(dir);
        int rc = TGC_OK;
        while (d && !rc && (x = readdir(d))) {
                char mine[SHARD_NAME];
                int i = 0;
                if (!is_shard(x->d_name))
                        continue;
                sscanf(x->d_name, "model-%5d", &i);
                shard_name(mine, i - 1, but_of);
                if (!but_of || i < 1 || i > but_of || strcmp(mine, x->d_name))
                        rc = remove_file(dir, x->d_name, e);
        }
        if (d)
                closedir(d);
        return rc;
}

static int write_shards(const Shards *s, const char *dir, const StMeta *meta, int n_meta, Err *e)
{
        int *which = malloc(((size_t)s->x->n + 1) * sizeof *which), rc = TGC_OK;
        if (!which)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        for (int k = 0; k < s->n && !rc; k++) {
                char name[SHARD_NAME], *path;
                int n = 0;
                for (int i = 0; i < s->x->n; i++)
                        if (s->shard[s->order[i]] == k)
                                which[n++] = s->order[i];
                shard_name(name, k, s->n);
                rc = (path = file_join(dir, name))
                             ? wm_export_file(s->x, which, n, path, meta, n_meta, e)
                             : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
                free(path);
        }
        free(which);
        return rc;
}

/* safetensors_out has found that it has no control characters. */
static void put_name(FILE *f, const char *s)
{
        for (; *s; s++) {
                if (*s == '"' || *s == '\\')
                        fputc('\\', f);
                fputc(*s, f);
        }
}

static int write_index(const Shards *s, const char *dir, Err *e)
{
        char *path = file_join(dir, INDEX), *text = NULL;
        size_t n = 0;
        FILE *f = path ? open_memstream(&text, &n) : NULL;
        int rc = TGC_OK;
        if (f)
                fprintf(f,
                        "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {",
                        (unsigned long long)s->total);
        for (int i = 0; f && i < s->x->n; i++) {
                char name[SHARD_NAME];
                shard_name(name, s->shard[i], s->n);
                fprintf(f, "%s\n    \"", i ? "," : "");
                put_name(f, s->x->tensor[i].name);
                fprintf(f, "\": \"%s\"", name);
        }
        if (f)
                fprintf(f, "\n  }\n}\n");
        const bool whole = f && !ferror(f);
        if (!f || fclose(f) || !whole || !text)
                rc = err_set(e, TGC_NO_MEMORY, "%s: no memory for %s", dir, INDEX);
        else
                rc = file_write_atomic(path, text, n, e);
        free(text);
        free(path);
        return rc;
}

static int write_folder(const Shards *s, const char *dir, const StMeta *meta, int n_meta, Err *e)
{
        int rc;
        if (s->n > 1) {
                if (!(rc = remove_file(dir, INDEX, e)) &&
                    !(rc = write_shards(s, dir, meta, n_meta, e)) &&
                    !(rc = write_index(s, dir, e)) && !(rc = remove_file(dir, WHOLE, e)))
                        rc = remove_shards(dir, s->n, e);
                return rc;
        }
        char *path = file_join(dir, WHOLE);
        if (!path)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        if (!(rc = wm_export_file(s->x, NULL, s->x->n, path, meta, n_meta, e)) &&
            !(rc = remove_file(dir, INDEX, e)))
                rc = remove_shards(dir, 0, e);
        free(path);
        return rc;
}

int weight_map_export_folder(const WeightMap *m, const WeightSet *set, int dtype, const char *dir,
                             uint64_t most, const StMeta *meta, int n_meta, int *n_files, Err *e)
{
        Export x;
        Shards s = { 0 };
        int rc = wm_export_open(&x, m, set, dtype, e);
        if (rc)
                return rc;
        if (!(rc = cut(&s, &x, most, e)))
                rc = write_folder(&s, dir, meta, n_meta, e);
        *n_files = s.n;
        free(s.order);
        free(s.shard);
        wm_export_close(&x);
        return rc;
}
