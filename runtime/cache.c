/* cache.c: an entry is HEX.bin: magic, size and XXH3-128 of the value, the value. */
#include "cache.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { PATH_CAP = 1024 };
#define MAX_ENTRY ((uint64_t)1 << 30)

typedef struct EntryHeader { char magic[8]; uint64_t size, hash[2]; } EntryHeader;

static const char MAGIC[8] = "tgcache1";

/* ---- keys ---- */

void cache_key_begin(CacheKey *k)
{
        k->state = XXH3_createState();
        if (k->state)
                XXH3_128bits_reset(k->state);
}

void cache_key_add(CacheKey *k, const void *data, size_t n)
{
        uint64_t len = n;
        if (!k->state)
                return;
        XXH3_128bits_update(k->state, &len, sizeof len);
        XXH3_128bits_update(k->state, data, n);
}

void cache_key_text(CacheKey *k, const char *s)
{
        cache_key_add(k, s, strlen(s));
}

/* Without memory for the state the key is empty, which names no entry. */
void cache_key_end(CacheKey *k, char hex[33])
{
        *hex = 0;
        if (!k->state)
                return;
        XXH128_hash_t h = XXH3_128bits_digest(k->state);
        snprintf(hex, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
        XXH3_freeState(k->state);
        k->state = 0;
}

/* ---- the folder ---- */

void cache_dir(char *out, size_t cap)
{
        const struct { const char *var, *tail; } place[] = {
                { "TGC_CACHE_DIR", "" }, { "XDG_CACHE_HOME", "/tgc" }, { "HOME", "/.cache/tgc" }
        };
        for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
                const char *dir = getenv(place[i].var);
                if (!dir || !*dir)
                        continue;
                if ((size_t)snprintf(out, cap, "%s%s", dir, place[i].tail) < cap)
                        return;
        }
        *out = 0;
}

static bool make_dirs(char *path)
{
        for (char *p = path + 1; ; p++) {
                if (*p && *p != '/')
                        continue;
                char c = *p;
                *p = 0;
                int bad = mkdir(path, 0700) && errno != EEXIST;
                *p = c;
                if (bad)
                        return false;
                if (!c)
                        return true;
        }
}

int cache_try(Err *e)
{
        char dir[PATH_CAP], temp[PATH_CAP + 16];
        cache_dir(dir, sizeof dir);
        if (!*dir)
                return err_set(e, TGC_IO, "no folder for it");
        snprintf(temp, sizeof temp, "%s/try.XXXXXX", dir);
        int fd = make_dirs(dir) ? mkostemp(temp, O_CLOEXEC) : -1;
        if (fd < 0)
                return err_set(e, TGC_IO, "%s cannot be written: %s", dir, strerror(errno));
        close(fd);
        unlink(temp);
        return TGC_OK;
}

static bool entry_path(const char *hex, char *path, size_t cap)
{
        char dir[PATH_CAP];
        cache_dir(dir, sizeof dir);
        return *dir && *hex && (size_t)snprintf(path, cap, "%s/%s.bin", dir, hex) < cap;
}

/* ---- entries ---- */

static bool read_all(int fd, void *to, size_t n)
{
        for (char *p = to; n; ) {
                ssize_t got = read(fd, p, n);
                if (got <= 0 && !(got < 0 && errno == EINTR))
                        return false;
                if (got > 0)
                        p += got, n -= (size_t)got;
        }
        return true;
}

static bool write_all(int fd, const void *from, size_t n)
{
        for (const char *p = from; n; ) {
                ssize_t put = write(fd, p, n);
                if (put <= 0 && !(put < 0 && errno == EINTR))
                        return false;
                if (put > 0)
                        p += put, n -= (size_t)put;
        }
        return true;
}

bool cache_get(const char *hex, void **data, size_t *size)
{
        char path[PATH_CAP + 64];
        EntryHeader h;
        struct stat st;
        void *value = 0;

        *data = 0;
        if (!entry_path(hex, path, sizeof path))
                return false;
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
                return false;
        bool ok = !fstat(fd, &st) && S_ISREG(st.st_mode) && read_all(fd, &h, sizeof h)
               && !memcmp(h.magic, MAGIC, sizeof MAGIC) && h.size <= MAX_ENTRY
               && (uint64_t)st.st_size == sizeof h + h.size
               && (value = malloc(h.size + 1)) && read_all(fd, value, h.size);
        close(fd);
        if (ok) {
                XXH128_hash_t x = XXH3_128bits(value, h.size);
                ok = x.high64 == h.hash[0] && x.low64 == h.hash[1];
        }
        if (!ok) {                              /* damaged: out of the way of the next writer */
                free(value);
                unlink(path);
                return false;
        }
        *data = value;
        *size = h.size;
        return true;
}

/* No fsync: after a crash the checksum finds a torn entry, which costs one rebuild. */
bool cache_put(const char *hex, const void *data, size_t size)
{
        char path[PATH_CAP + 64], temp[PATH_CAP + 80], dir[PATH_CAP];
        EntryHeader h = { .size = size };
        XXH128_hash_t x = XXH3_128bits(data, size);

        memcpy(h.magic, MAGIC, sizeof MAGIC);
        h.hash[0] = x.high64;
        h.hash[1] = x.low64;
        cache_dir(dir, sizeof dir);
        if (size > MAX_ENTRY || !entry_path(hex, path, sizeof path) || !make_dirs(dir))
                return false;
        snprintf(temp, sizeof temp, "%s.XXXXXX", path);
        int fd = mkostemp(temp, O_CLOEXEC);
        if (fd < 0)
                return false;
        bool ok = write_all(fd, &h, sizeof h) && write_all(fd, data, size);
        ok = !close(fd) && ok;
        if (!ok || rename(temp, path)) {
                unlink(temp);
                return false;
        }
        return true;
}
