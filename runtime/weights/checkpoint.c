/* checkpoint.c: the table of tensors behind checkpoint.h; recognises what a path is. */
#include "checkpoint.h"
#include <stdlib.h>
#include <string.h>
#include "../util/file.h"
#include "gguf.h"
#include "quant_folder.h"
#include "safetensors.h"

typedef struct Owner {
        void (*release)(void *);
        void *owner;
} Owner;

struct Checkpoint {
        char *path;
        CkTensor *tensor;
        int n_tensors, room_tensors;
        StMeta *meta;
        int n_meta, room_meta;
        Owner *owner;
        int n_owners, room_owners;
        bool sealed;
};

int checkpoint_new(Checkpoint **out, const char *path, Err *e)
{
        Checkpoint *ck = calloc(1, sizeof *ck);

        *out = 0;
        if (!ck || !(ck->path = strdup(path))) {
                free(ck);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        }
        *out = ck;
        return TGC_OK;
}

void checkpoint_close(Checkpoint *ck)
{
        if (!ck)
                return;
        while (ck->n_owners--)
                ck->owner[ck->n_owners].release(ck->owner[ck->n_owners].owner);
        free(ck->owner);
        free(ck->tensor);
        free(ck->meta);
        free(ck->path);
        free(ck);
}

/* The array with room for one more of `size` bytes; NULL (and a message): no memory. */
static void *grow(const Checkpoint *ck, void *array, int n, int *room, size_t size, Err *e)
{
        void *p = array;

        if (n == *room) {
                int more = *room ? 2 * *room : 32;

                p = more < INT32_MAX / 4 ? realloc(array, (size_t)more * size) : 0;
                if (p)
                        *room = more;
                else
                        err_set(e, TGC_NO_MEMORY, "%s: no memory for the table of tensors",
                                ck->path);
        }
        return p;
}

int checkpoint_own(Checkpoint *ck, void (*release)(void *), void *owner, Err *e)
{
        Owner *p = grow(ck, ck->owner, ck->n_owners, &ck->room_owners, sizeof *p, e);

        if (!p) {
                release(owner);
                return TGC_NO_MEMORY;
        }
        ck->owner = p;
        ck->owner[ck->n_owners++] = (Owner) { release, owner };
        return TGC_OK;
}

int checkpoint_add(Checkpoint *ck, const CkTensor *t, Err *e)
{
        CkTensor *p = grow(ck, ck->tensor, ck->n_tensors, &ck->room_tensors, sizeof *p, e);

        if (!p)
                return TGC_NO_MEMORY;
        ck->tensor = p;
        ck->tensor[ck->n_tensors++] = *t;
        ck->sealed = false;
        return TGC_OK;
}

int checkpoint_add_meta(Checkpoint *ck, const char *key, const char *value, Err *e)
{
        StMeta *p = grow(ck, ck->meta, ck->n_meta, &ck->room_meta, sizeof *p, e);

        if (!p)
                return TGC_NO_MEMORY;
        ck->meta = p;
        ck->meta[ck->n_meta++] = (StMeta) { key, value };
        return TGC_OK;
}

void checkpoint_drop(Checkpoint *ck, const bool *which)
{
        int n = 0;

        for (int i = 0; i < ck->n_tensors; i++)
                if (!which[i])
                        ck->tensor[n++] = ck->tensor[i];
        ck->n_tensors = n;
}

static int by_name(const void *a, const void *b)
{
        return strcmp(((const CkTensor *)a)->name, ((const CkTensor *)b)->name);
}

int checkpoint_seal(Checkpoint *ck, Err *e)
{
        if (ck->n_tensors)
                qsort(ck->tensor, (size_t)ck->n_tensors, sizeof *ck->tensor, by_name);
        for (int i = 1; i < ck->n_tensors; i++)
                if (!strcmp(ck->tensor[i - 1].name, ck->tensor[i].name))
                        return err_set(e, TGC_BAD_FILE, "%s: tensor %.200s given twice", ck->path,
                                       ck->tensor[i].name);
        ck->sealed = true;
        return TGC_OK;
}

const char *checkpoint_path(const Checkpoint *ck) { return ck->path; }
int checkpoint_count(const Checkpoint *ck) { return ck->n_tensors; }
const CkTensor *checkpoint_at(const Checkpoint *ck, int i) { return &ck->tensor[i]; }

const char *checkpoint_meta(const Checkpoint *ck, const char *key)
{
        for (int i = 0; i < ck->n_meta; i++)
                if (!strcmp(ck->meta[i].key, key))
                        return ck->meta[i].value;
        return 0;
}

const CkTensor *checkpoint_find(const Checkpoint *ck, const char *name)
{
        /* Aliases are followed a few steps only: metadata may go in circles. */
        for (int step = 0; step < 4 && name; step++) {
                CkTensor key = { .name = name }, *t = 0;

                if (ck->sealed && ck->n_tensors)
                        t = bsearch(&key, ck->tensor, (size_t)ck->n_tensors, sizeof key, by_name);
                if (t)
                        return t;
                name = checkpoint_meta(ck, name);
        }
        return 0;
}

/* Sources -------------------------------------------------------------- */

typedef struct StFile {
        FileMap map;
        Safetensors st;
} StFile;

static void release_safetensors(void *p)
{
        StFile *f = p;

        safetensors_free(&f->st);
        file_unmap(&f->map);
        free(f);
}

int checkpoint_add_safetensors(Checkpoint *ck, const char *path, Err *e)
{
        StFile *f = calloc(1, sizeof *f);
        int rc;

        if (!f)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        rc = checkpoint_own(ck, release_safetensors, f, e);
        if (!rc)
                rc = file_map(&f->map, path, e);
        if (!rc)
                rc = safetensors_parse(&f->st, f->map.data, f->map.size, path, e);
        for (int i = 0; !rc && i < f->st.n_tensors; i++)
                rc = checkpoint_add(ck, &f->st.tensor[i], e);
        for (int i = 0; !rc && i < f->st.n_meta; i++)
                rc = checkpoint_add_meta(ck, f->st.meta[i].key, f->st.meta[i].value, e);
        return rc;
}

static bool ends_with(const char *s, const char *tail)
{
        size_t n = strlen(s), k = strlen(tail);
        return n >= k && !strcmp(s + n - k, tail);
}

/* The name decides for an index, the first bytes for all others. */
static int add_file(Checkpoint *ck, const char *path, Err *e)
{
        unsigned char head[16] = { 0 };
        FileMap map;
        bool st;
        int rc;

        if (ends_with(path, ".index.json"))
                return checkpoint_add_hf_index(ck, path, e);
        rc = file_map(&map, path, e);
        if (rc)
                return rc;
        st = safetensors_probe(map.data, map.size) || ends_with(path, ".safetensors");
        memcpy(head, map.data, map.size < sizeof head ? map.size : sizeof head);
        file_unmap(&map);
        if (st)
                return checkpoint_add_safetensors(ck, path, e);
        if (!memcmp(head, "GGUF", 4)) {
                Gguf *g;
                rc = gguf_open(&g, path, e);
                return rc ? rc : checkpoint_add_gguf(ck, g, e);
        }
        if (!memcmp(head, "PK\3\4", 4) || !memcmp(head, "\x80\2\x8a", 3))
                return err_set(e, TGC_BAD_FILE, "%s: a PyTorch pickle; convert it to safetensors",
                               path);
        if (ends_with(path, ".bin"))
                return checkpoint_add_llama2c(ck, path, e);
        return err_set(e, TGC_BAD_FILE,
                       "%s: not a checkpoint: a .safetensors file, its .safetensors.index.json, "
                       "a Hugging Face folder, a .gguf or a llama2.c .bin is wanted",
                       path);
}

int checkpoint_open(Checkpoint **out, const char *path, Err *e)
{
        Checkpoint *ck;
        int rc = checkpoint_new(&ck, path, e);

        *out = 0;
        if (rc)
                return rc;
        rc = file_is_dir(path) ? checkpoint_add_hf_folder(ck, path, e) : add_file(ck, path, e);
        if (!rc)
                rc = checkpoint_seal(ck, e);
        if (!rc && file_is_dir(path))
                rc = checkpoint_unpack_folder(ck, path, e);
        if (rc) {
                checkpoint_close(ck);
                return rc;
        }
        *out = ck;
        return TGC_OK;
}
