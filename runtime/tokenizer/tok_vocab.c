/* tok_vocab.c: the vocabulary, an array by id and a hash table by text. */
#include "tok.h"
#include <time.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static size_t slot_of(const Vocab *v, const char *s, size_t n)
{
        return (size_t)XXH3_64bits_withSeed(s, n, v->seed) & (v->n_slot - 1);
}

int vocab_find(const Vocab *v, const char *s, size_t n)
{
        if (!v->n_slot || n > v->longest)
                return -1;
        for (size_t i = slot_of(v, s, n);; i = (i + 1) & (v->n_slot - 1)) {
                int id = v->slot[i];
                if (id < 0 || (v->len[id] == n && !memcmp(v->text.p + v->at[id], s, n)))
                        return id;
        }
}

const char *vocab_text(const Vocab *v, int id, size_t *n)
{
        if (id < 0 || id >= v->n || v->at[id] == VOCAB_NONE)
                return NULL;
        *n = v->len[id];
        return v->text.p + v->at[id];
}

static void insert(Vocab *v, int id)
{
        size_t i = slot_of(v, v->text.p + v->at[id], v->len[id]);

        while (v->slot[i] >= 0)
                i = (i + 1) & (v->n_slot - 1);
        v->slot[i] = id;
}

/* Keep the table at most half full. */
static bool more_slots(Vocab *v)
{
        size_t n = v->n_slot ? 2 * v->n_slot : 1024;
        int *slot;

        if ((size_t)v->count + 1 <= v->n_slot / 2)
                return true;
        if (!(slot = malloc(n * sizeof *slot)))
                return false;
        if (!v->seed)
                v->seed = (uint64_t)(uintptr_t)slot * 0x9e3779b97f4a7c15u ^ (uint64_t)time(NULL) ^
                          1;
        memset(slot, 0xff, n * sizeof *slot);
        free(v->slot);
        v->slot = slot;
        v->n_slot = n;
        for (int id = 0; id < v->n; id++)
                if (v->at[id] != VOCAB_NONE)
                        insert(v, id);
        return true;
}

static bool more_ids(Vocab *v, int id)
{
        int cap = v->cap ? v->cap : 1024;
        uint32_t *p;

        while (cap <= id)
                cap *= 2;
        if (cap == v->cap)
                return true;
        if (!(p = realloc(v->at, (size_t)cap * sizeof *p)))
                return false;
        v->at = p;
        if (!(p = realloc(v->len, (size_t)cap * sizeof *p)))
                return false;
        v->len = p;
        v->cap = cap;
        return true;
}

int vocab_put(Vocab *v, int id, const char *s, size_t n)
{
        if (id < 0 || id >= TOK_MAX_VOCAB)
                return VOCAB_BAD_ID;
        if (vocab_find(v, s, n) >= 0)
                return VOCAB_SAME_TEXT;
        if (id < v->n && v->at[id] != VOCAB_NONE)
                return VOCAB_SAME_ID;
        if (!more_ids(v, id) || !more_slots(v) || v->text.n + n >= VOCAB_NONE)
                return VOCAB_NO_MEMORY;
        if (!v->text.p) /* so that an empty token lies somewhere too */
                buf_put(&v->text, "", 1);
        while (v->n <= id)
                v->at[v->n++] = VOCAB_NONE;
        v->at[id] = (uint32_t)v->text.n;
        v->len[id] = (uint32_t)n;
        buf_put(&v->text, s, n);
        if (v->text.bad) {
                v->at[id] = VOCAB_NONE;
                return VOCAB_NO_MEMORY;
        }
        if (n > v->longest)
                v->longest = n;
        v->count++;
        insert(v, id);
        return VOCAB_OK;
}

void vocab_free(Vocab *v)
{
        buf_free(&v->text);
        free(v->at);
        free(v->len);
        free(v->slot);
        *v = (Vocab) { 0 };
}

int vocab_error(int status, const char *what, int id, const char *s, size_t n, Err *e)
{
        int show = n > 60 ? 60 : (int)n;

        switch (status) {
        case VOCAB_OK: return TGC_OK;
        case VOCAB_SAME_TEXT:
                return err_set(e, TGC_BAD_FILE, "%s: token '%.*s' is there twice", what, show, s);
        case VOCAB_SAME_ID:
                return err_set(e, TGC_BAD_FILE, "%s: two tokens have id %d, one is '%.*s'", what,
                               id, show, s);
        case VOCAB_BAD_ID:
                return err_set(e, TGC_BAD_FILE, "%s: token '%.*s' has id %d, ids are 0 to %d", what,
                               show, s, id, TOK_MAX_VOCAB - 1);
        default: return tok_no_memory(e);
        }
}
