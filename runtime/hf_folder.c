/* hf_folder.c: a Hugging Face model folder: config.json, and weights in one file
 * or in shards listed by an index {"weight_map": {TENSOR: FILE, ...}}. */
#include "checkpoint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "file.h"
#include "json.h"

enum { MAX_CONFIG = 1 << 20, MAX_INDEX = 64 << 20 };

typedef struct Listed { const char *file, *tensor; } Listed;

static int by_file_and_tensor(const void *a, const void *b)
{
        const Listed *x = a, *y = b;
        int c = strcmp(x->file, y->file);
        return c ? c : strcmp(x->tensor, y->tensor);
}

static int by_text(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A shard holds exactly the n tensors that the index lists for it (sorted). */
static int check_shard(const Checkpoint *ck, int first, const char *path, const Listed *want, int n, Err *e)
{
        int have = checkpoint_count(ck) - first, i = 0, k = 0, rc = TGC_OK;
        const char **name = malloc(((size_t)have + 1) * sizeof *name);

        if (!name)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        for (i = 0; i < have; i++)
                name[i] = checkpoint_at(ck, first + i)->name;
        qsort(name, (size_t)have, sizeof *name, by_text);
        for (i = 0; !rc && (i < have || k < n); i++, k++) {
                int c = i == have ? 1 : k == n ? -1 : strcmp(name[i], want[k].tensor);
                if (c > 0)
                        rc = err_set(e, TGC_BAD_FILE, "%s: no tensor %.200s, which the index says is here", path,
                                     want[k].tensor);
                else if (c < 0)
                        rc = err_set(e, TGC_BAD_FILE, "%s: tensor %.200s is not in the index", path, name[i]);
        }
        free(name);
        return rc;
}

/* Every file that the index names, before the first is read. */
static int all_there(const char *index_path, const char *dir, const Listed *item, int n, Err *e)
{
        char list[600] = "";
        size_t used = 0;
        int files = 0, missing = 0;

        for (int i = 0; i < n; i++) {
                char *path;
                if (i && !strcmp(item[i].file, item[i - 1].file))
                        continue;
                if (!(path = file_join(dir, item[i].file)))
                        return err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
                files++;
                if (!file_exists(path) && missing++ < 4 && used < sizeof list)
                        used += (size_t)snprintf(list + used, sizeof list - used, "%s%.140s", used ? ", " : "",
                                                 item[i].file);
                free(path);
        }
        return missing ? err_set(e, TGC_BAD_FILE, "%s: %d of its %d files %s missing: %s%s", index_path, missing, files,
                                 missing == 1 ? "is" : "are", list, missing > 4 ? ", ..." : "") : TGC_OK;
}

static int add_shards(Checkpoint *ck, const char *dir, const Listed *item, int n, Err *e)
{
        int rc = TGC_OK;

        for (int i = 0, next; i < n && !rc; i = next) {
                int first = checkpoint_count(ck);
                char *path = file_join(dir, item[i].file);

                for (next = i; next < n && !strcmp(item[next].file, item[i].file); next++)
                        ;
                if (!path)
                        return err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
                rc = checkpoint_add_safetensors(ck, path, e);
                if (!rc)
                        rc = check_shard(ck, first, path, item + i, next - i, e);
                free(path);
        }
        return rc;
}

/* A shard lies beside its index; anything else could name any file of the machine. */
static bool plain_name(const char *s)
{
        return *s && !strchr(s, '/') && *s != '.';
}

int checkpoint_add_hf_index(Checkpoint *ck, const char *index_path, Err *e)
{
        const char *slash = strrchr(index_path, '/');
        char *dir = slash ? strndup(index_path, slash == index_path ? 1 : (size_t)(slash - index_path)) : strdup(".");
        const cJSON *map, *c;
        cJSON *json = 0;
        Listed *item = 0;
        int n = 0, rc;

        if (!dir)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", index_path);
        rc = json_read(&json, index_path, MAX_INDEX, e);
        if (!rc)
                rc = json_get_object(json, "weight_map", &map, index_path, e);
        if (!rc) {
                item = malloc(((size_t)cJSON_GetArraySize(map) + 1) * sizeof *item);
                if (!item)
                        rc = err_set(e, TGC_NO_MEMORY, "%s: no memory", index_path);
                for (c = map->child; c && !rc; c = c->next) {
                        if (!cJSON_IsString(c) || !plain_name(c->valuestring))
                                rc = err_set(e, TGC_BAD_FILE, "%s: tensor %.200s: not the name of a file here",
                                             index_path, c->string);
                        else
                                item[n++] = (Listed){ c->valuestring, c->string };
                }
        }
        if (!rc && !n)
                rc = err_set(e, TGC_BAD_FILE, "%s: lists no tensors", index_path);
        if (!rc) {
                qsort(item, (size_t)n, sizeof *item, by_file_and_tensor);
                rc = all_there(index_path, dir, item, n, e);
        }
        if (!rc)
                rc = add_shards(ck, dir, item, n, e);
        free(item);
        cJSON_Delete(json);
        free(dir);
        return rc;
}

int checkpoint_add_hf_folder(Checkpoint *ck, const char *dir, Err *e)
{
        char *one = file_join(dir, "model.safetensors"), *index = file_join(dir, "model.safetensors.index.json");
        int rc;

        if (!one || !index)
                rc = err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        else if (file_exists(one))
                rc = checkpoint_add_safetensors(ck, one, e);
        else if (file_exists(index))
                rc = checkpoint_add_hf_index(ck, index, e);
        else
                rc = err_set(e, TGC_BAD_FILE, "%s: neither model.safetensors nor model.safetensors.index.json", dir);
        free(one);
        free(index);
        return rc;
}

int hf_config_read(const char *dir, char **json_text, Err *e)
{
        char *path = file_join(dir, "config.json"), *text = 0;
        cJSON *json = 0;
        size_t size;
        int rc;

        *json_text = 0;
        if (!path)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        rc = file_read_text(path, MAX_CONFIG, &text, &size, e);
        if (!rc)
                rc = json_parse(&json, text, size, path, e);
        if (!rc && !cJSON_IsObject(json))
                rc = err_set(e, TGC_BAD_FILE, "%s: not a JSON object", path);
        cJSON_Delete(json);
        free(path);
        if (rc)
                free(text);
        else
                *json_text = text;
        return rc;
}
