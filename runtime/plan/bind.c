/* bind.c: ties compiled code to the sources it was made from.
 *
 * A pack of compiled code ends with a file "sources": a key of source.TARGET, headers.TARGET and
 * everything else that decides the bits.  Code with another key is not run.  This detects changed
 * sources.  It does not detect forged code with a forged key: only rebuilding can. */
#include <stdlib.h>
#include <string.h>
#include "../device/cache.h"
#include "plan.h"

static const char KEY_FILE[] = "sources";

static void sources_key(const Plan *p, const char *target, const char *const *flag, char hex[33])
{
        static const char *const part[] = { "source", "headers" };
        char name[32];
        CacheKey k;
        cache_key_begin(&k);
        cache_key_text(&k, target);
        for (int i = 0; flag[i]; i++)
                cache_key_text(&k, flag[i]);
        for (int i = 0; i < 2; i++) {
                strcpy(name, part[i]);
                strcat(strcat(name, "."), target);
                const Section *s = plan_find(p, name);
                cache_key_add(&k, s ? s->data : "", s ? s->size : 0);
        }
        cache_key_end(&k, hex);
}

int code_pack(const Plan *p, const char *target, const char *const *flag, const PackFile *file,
              int n, void **blob, size_t *size, Err *e)
{
        char key[33];
        PackFile *all = calloc((size_t)n + 1, sizeof *all);
        if (!all)
                return err_set(e, TGC_NO_MEMORY, "no memory to pack %d files", n);
        sources_key(p, target, flag, key);
        if (n)
                memcpy(all, file, (size_t)n * sizeof *all);
        memcpy(all[n].name, KEY_FILE, sizeof KEY_FILE);
        all[n].data = key;
        all[n].size = strlen(key);
        int code = pack_write(all, n + 1, blob, size, e);
        free(all);
        return code;
}

int code_unpack(Pack *k, const Plan *p, const Section *s, const char *target,
                const char *const *flag, Err *e)
{
        char key[33];
        int code = pack_read(k, s->data, s->size, s->name, e);
        if (code)
                return code;
        sources_key(p, target, flag, key);
        const PackFile *last = k->n ? &k->file[k->n - 1] : 0;
        if (last && *key && !strcmp(last->name, KEY_FILE) && last->size == strlen(key) &&
            !memcmp(last->data, key, last->size)) {
                k->n--;
                return TGC_OK;
        }
        pack_free(k);
        return err_set(e, TGC_BAD_FILE, "%s was not made of the plan's %s sources and flags",
                       s->name, target);
}
