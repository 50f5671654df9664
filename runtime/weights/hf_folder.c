/* hf_folder.c: reads a Hugging Face model folder: config.json, and weights in one file or in shards
 * that an index lists, {"weight_map": {TENSOR: FILE, ...}}. */
#include "checkpoint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../util/file.h"
#include "../util/json.h"

enum { MAX_CONFIG = 1 << 20, MAX_INDEX = 64 << 20 };

typedef struct Listed {
        const char *file, *tensor;
} Listed;

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
static int check_shard(const Checkpoint *ck, int first, const char *path, const Listed *want, int n,
                       Err *e)
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
                        rc = err_set(e, TGC_BAD_FILE,
                                     "%s: no tensor %.200s, which the index says is here", path,
                                     want[k].tensor);
                else if (c < 0)
                        rc = err_set(e, TGC_BAD_FILE, "%s: tensor %.200s is not in the index", path,
                                     name[i]);
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
                        used += (size_t)snprintf(list + used, sizeof list - used, "%s%.140s",
                                                 used ? ", " : "", item[i].file);
                free(path);
        }
        return missing ? err_set(e, TGC_BAD_FILE, "%s: %d of its %d files %s missing: %s%s",
                                 index_path, missing, files, missing == 1 ? "is" : "are", list,
                                 missing > 4 ? ", ..." : "")
                       : TGC_OK;
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
static bool plain_name(const char *s) { return *s && !strchr(s, '/') && *s != '.'; }

/* The string v with a NUL behind it, at *to, which moves on; NULL: not a string. */
static const char *keep(Json v, JsonBuf *b, char **to)
{
        size_t n;
        const char *s = json_string(v, b, &n);

        if (!s)
                return NULL;
        char *kept = memcpy(*to, s, n);
        kept[n] = 0;
        *to += n + 1;
        return kept;
}

/* The members of "weight_map"; *strings holds their texts, and is like *item the caller's to
 * free. */
static int read_index(const char *path, Listed **item, char **strings, int *n_item, Err *e)
{
        JsonText json;
        JsonBuf b = { 0 };
        Json root, map;
        char *text, *to;
        size_t size;
        int n = 0, rc = file_read_text(path, MAX_INDEX, &text, &size, e);

        if (rc)
                return rc;
        if ((rc = json_open(&json, &root, text, size, path, false, e))) {
                free(text);
                return rc;
        }
        map = json_get(root, "weight_map");
        *item = malloc((json_count(map) + 1) * sizeof **item);
        to = *strings = malloc(size + 1);
        if (!json_type(map))
                rc = err_set(e, TGC_BAD_FILE, "%s: no \"weight_map\"", path);
        else if (json_type(map) != '{')
                rc = err_set(e, TGC_BAD_FILE, "%s: \"weight_map\" is not an object", path);
        else if (!*item || !*strings)
                rc = err_set(e, TGC_NO_MEMORY, "%s: no memory (%zu bytes)", path, size);
        for (JsonEach i = json_each(map); !rc && json_next(&i); n++) {
                const char *tensor = keep(i.key, &b, &to), *file = keep(i.value, &b, &to);
                if (!tensor || (!file && json_type(i.value) == '"'))
                        rc = err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
                else if (!file || !plain_name(file))
                        rc = err_set(e, TGC_BAD_FILE,
                                     "%s: tensor %.200s: not the name of a file here", path,
                                     tensor);
                else
                        (*item)[n] = (Listed) { file, tensor };
        }
        if (!rc && !n)
                rc = err_set(e, TGC_BAD_FILE, "%s: lists no tensors", path);
        *n_item = n;
        json_buf_free(&b);
        json_close(&json);
        free(text);
        return rc;
}

int checkpoint_add_hf_index(Checkpoint *ck, const char *index_path, Err *e)
{
        const char *slash = strrchr(index_path, '/');
        char *dir = slash ? strndup(index_path,
                                    slash == index_path ? 1 : (size_t)(slash - index_path))
                          : strdup(".");
        char *strings = 0;
        Listed *item = 0;
        int n = 0, rc;

        if (!dir)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", index_path);
        rc = read_index(index_path, &item, &strings, &n, e);
        if (!rc) {
                qsort(item, (size_t)n, sizeof *item, by_file_and_tensor);
                rc = all_there(index_path, dir, item, n, e);
        }
        if (!rc)
                rc = add_shards(ck, dir, item, n, e);
        free(item);
        free(strings);
        free(dir);
        return rc;
}

int checkpoint_add_hf_folder(Checkpoint *ck, const char *dir, Err *e)
{
        char *one = file_join(dir, "model.safetensors"),
             *index = file_join(dir, "model.safetensors.index.json");
        int rc;

        if (!one || !index)
                rc = err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        else if (file_exists(one))
                rc = checkpoint_add_safetensors(ck, one, e);
        else if (file_exists(index))
                rc = checkpoint_add_hf_index(ck, index, e);
        else
                rc = err_set(e, TGC_BAD_FILE,
                             "%s: neither model.safetensors nor model.safetensors.index.json", dir);
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
