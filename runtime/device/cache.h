/* cache.h: compiled code on disk, by key.
 *
 * A key is the XXH3-128 of everything that affects the bytes.  Entries carry a checksum and appear
 * by rename; a damaged one is deleted and counts as absent.  No function here fails: a cache that
 * cannot be read or written behaves as an empty one.
 *
 * Entries are run as code, so the folder must belong to the user and be writable by nobody else.
 * If TGC_CACHE_DIR names another folder, loading code fails (cache_check).  If the default folder
 * is not safe, it is not used.  At most TGC_CACHE_MAX bytes (2 GiB; 500M, 4G; 0: any) are kept; the
 * least recently used entries go first. */
#ifndef TGC_CACHE_H
#define TGC_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../util/err.h"

typedef struct CacheKey {
        void *state;
} CacheKey; /* being built */

void cache_key_begin(CacheKey *k);
/* length-prefixed, so fields do not run together */
void cache_key_add(CacheKey *k, const void *data, size_t n);
void cache_key_text(CacheKey *k, const char *s);
void cache_key_end(CacheKey *k, char hex[33]);

/* The directory: TGC_CACHE_DIR, else XDG_CACHE_HOME/tgc, else ~/.cache/tgc; "" if none. */
void cache_dir(char *out, size_t cap);
typedef enum { CACHE_OK, CACHE_NONE, CACHE_SKIPPED, CACHE_REFUSED } CacheState;
/* of the folder as it is; why: a sentence, "" if it is OK */
CacheState cache_state(char *why, size_t cap);
int cache_check(Err *e); /* TGC_IO: it is refused */
typedef struct CacheUse {
        int entries;
        uint64_t bytes, most;
} CacheUse;
void cache_use(CacheUse *u); /* for people */
int cache_try(Err *e);       /* TGC_IO: nothing could be put there, and why; makes the folder */
bool cache_get(const char *hex, void **data, size_t *size); /* *data is malloc'd */
bool cache_put(const char *hex, const void *data, size_t size);
void cache_remove(const char *hex); /* what was read is of no use */

#endif
