/* cache.c: the cache's files.  An entry is HEX.bin: magic, key, size and XXH3-128 of the value, the
 * value.
 *
 * The folder is opened and checked once, then used through its descriptor alone, so that it cannot
 * be exchanged in between.  Any number of processes may use it.  Entries appear by rename and are
 * removed by unlink, so a process that has one open keeps it.  One process at a time counts the
 * entries. */
#include "cache.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { PATH_CAP = 1024, NAME_CAP = 80, STALE_SECONDS = 3600 };
#define MAX_ENTRY ((uint64_t)1 << 30)
#define DEFAULT_MOST ((uint64_t)2 << 30)

typedef struct EntryHeader {
        char magic[8], key[32];
        uint64_t size, hash[2];
} EntryHeader;

static const char MAGIC[8] = "tgcache2";

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

void cache_key_text(CacheKey *k, const char *s) { cache_key_add(k, s, strlen(s)); }

/* Without memory for the state the key is empty, which names no entry. */
void cache_key_end(CacheKey *k, char hex[33])
{
        *hex = 0;
        if (!k->state)
                return;
        XXH128_hash_t h = XXH3_128bits_digest(k->state);
        snprintf(hex, 33, "%016llx%016llx", (unsigned long long)h.high64,
                 (unsigned long long)h.low64);
        XXH3_freeState(k->state);
        k->state = 0;
}

/* ---- the folder ---- */

void cache_dir(char *out, size_t cap)
{
        const struct {
                const char *var, *tail;
        } place[] = { { "TGC_CACHE_DIR", "" },
                      { "XDG_CACHE_HOME", "/tgc" },
                      { "HOME", "/.cache/tgc" } };
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
        for (char *p = path + 1;; p++) {
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

/* TGC_CACHE_MAX: bytes, or with K, M or G; 0: any number. */
static bool most_bytes(uint64_t *most)
{
        const char *s = getenv("TGC_CACHE_MAX");
        char *end;
        *most = DEFAULT_MOST;
        if (!s || !*s)
                return true;
        errno = 0;
        unsigned long long n = strtoull(s, &end, 10);
        int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
        if (*s < '0' || *s > '9' || errno || end[shift != 0] || n > UINT64_MAX >> shift)
                return false;
        *most = n ? (uint64_t)n << shift : UINT64_MAX;
        return true;
}

/* The folder's descriptor; -1: there is none that may be used. */
static int open_folder(bool make, CacheState *state, char *why, size_t cap)
{
        char dir[PATH_CAP];
        struct stat st;
        uint64_t most;
        const char *given = getenv("TGC_CACHE_DIR");
        int fd = -1, bad_max = !most_bytes(&most);
        cache_dir(dir, sizeof dir);
        *state = CACHE_NONE;
        *why = 0;
        if (bad_max) {
                *state = CACHE_REFUSED;
                snprintf(why, cap,
                         "TGC_CACHE_MAX: '%.40s' is not a number of bytes, like 500M "
                         "or 2G",
                         getenv("TGC_CACHE_MAX"));
                return -1;
        }
        if (!*dir)
                snprintf(why, cap, "no folder for it");
        else if ((make && !make_dirs(dir)) ||
                 (fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || fstat(fd, &st))
                snprintf(why, cap, "%s cannot be %s: %s", dir, make ? "written" : "opened",
                         strerror(errno));
        else if (st.st_uid != geteuid() || (st.st_mode & 022)) {
                *state = given && *given ? CACHE_REFUSED : CACHE_SKIPPED;
                snprintf(why, cap, "the cache folder %s %s, who could put code there: %s", dir,
                         st.st_uid != geteuid() ? "belongs to another user"
                                                : "can be written by other users",
                         st.st_uid != geteuid()
                                 ? "set TGC_CACHE_DIR to a folder of your own"
                                 : "chmod go-w it, or set TGC_CACHE_DIR to a folder of your own");
        } else {
                *state = CACHE_OK;
                return fd;
        }
        if (fd >= 0)
                close(fd);
        return -1;
}

CacheState cache_state(char *why, size_t cap)
{
        CacheState state;
        int fd = open_folder(false, &state, why, cap);
        if (fd >= 0)
                close(fd);
        return state;
}

int cache_check(Err *e)
{
        char why[sizeof e->msg];
        return cache_state(why, sizeof why) == CACHE_REFUSED ? err_set(e, TGC_IO, "%s", why)
                                                             : TGC_OK;
}

static int use_folder(bool make)
{
        CacheState state;
        char why[PATH_CAP + 256];
        return open_folder(make, &state, why, sizeof why);
}

/* A name beside the entries that nobody else has. */
static int open_temp(int dir, const char *hex, char name[NAME_CAP])
{
        static atomic_uint count;
        snprintf(name, NAME_CAP, "%.32s.tmp-%ld-%u", hex, (long)getpid(),
                 atomic_fetch_add(&count, 1));
        unlinkat(dir, name, 0); /* of a killed process that had our number */
        return openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
}

int cache_try(Err *e)
{
        CacheState state;
        char why[sizeof e->msg], name[NAME_CAP], path[PATH_CAP];
        int dir = open_folder(true, &state, why, sizeof why);
        if (dir < 0)
                return err_set(e, TGC_IO, "%s", why);
        int fd = open_temp(dir, "try", name);
        if (fd < 0) {
                cache_dir(path, sizeof path);
                err_set(e, TGC_IO, "%s cannot be written: %s", path, strerror(errno));
        } else {
                close(fd);
                unlinkat(dir, name, 0);
        }
        close(dir);
        return fd < 0 ? TGC_IO : TGC_OK;
}

static bool entry_name(const char *hex, char name[NAME_CAP])
{
        return *hex && snprintf(name, NAME_CAP, "%s.bin", hex) < NAME_CAP;
}

/* ---- how much there is ---- */

typedef struct Old {
        char name[NAME_CAP];
        uint64_t size;
        struct timespec used;
} Old;

static int by_use(const void *a, const void *b)
{
        const Old *x = a, *y = b;
        if (x->used.tv_sec != y->used.tv_sec)
                return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

/* All entries; what killed processes left goes.  Their number, -1: unknown.  *list may be NULL. */
static int list_entries(int dir, Old **list, uint64_t *bytes)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0, cap = 0;
        DIR *d = fd < 0 ? 0 : fdopendir(fd);
        struct dirent *x;
        struct stat st;
        *bytes = 0;
        if (!d && fd >= 0)
                close(fd);
        while (d && (x = readdir(d))) {
                size_t len = strlen(x->d_name);
                if (len < 5 || len >= NAME_CAP ||
                    fstatat(dir, x->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
                        continue;
                if (strstr(x->d_name, ".tmp-") && st.st_mtime < time(0) - STALE_SECONDS)
                        unlinkat(dir, x->d_name, 0);
                if (strcmp(x->d_name + len - 4, ".bin"))
                        continue;
                if (list && n == cap) {
                        Old *grown = realloc(*list,
                                             (size_t)(cap = cap ? cap * 2 : 256) * sizeof *grown);
                        if (!grown)
                                break;
                        *list = grown;
                }
                if (list) {
                        memcpy((*list)[n].name, x->d_name, len + 1);
                        (*list)[n].size = (uint64_t)st.st_size;
                        (*list)[n].used = st.st_mtim;
                }
                *bytes += (uint64_t)st.st_size;
                n++;
        }
        if (!d)
                return -1;
        closedir(d);
        return n;
}

/* The entries that were not used for longest go, until the others fit; `keep` was made just now. */
static void trim(int dir, const char *keep)
{
        uint64_t bytes, most;
        Old *list = 0;
        if (!most_bytes(&most) || flock(dir, LOCK_EX | LOCK_NB)) /* somebody else is at it */
                return;
        if (list_entries(dir, 0, &bytes) > 0 && bytes > most) {
                int n = list_entries(dir, &list, &bytes);
                if (n > 0)
                        qsort(list, (size_t)n, sizeof *list, by_use);
                for (int i = 0; i < n && bytes > most; i++)
                        if (strcmp(list[i].name, keep) && !unlinkat(dir, list[i].name, 0))
                                bytes -= list[i].size;
                free(list);
        }
        flock(dir, LOCK_UN);
}

void cache_use(CacheUse *u)
{
        int dir = use_folder(false);
        *u = (CacheUse) { 0 };
        most_bytes(&u->most);
        if (dir < 0)
                return;
        u->entries = list_entries(dir, 0, &u->bytes);
        close(dir);
}

/* ---- entries ---- */

static bool read_all(int fd, void *to, size_t n)
{
        for (char *p = to; n;) {
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
        for (const char *p = from; n;) {
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
        char name[NAME_CAP];
        EntryHeader h;
        struct stat st;
        void *value = 0;
        int dir, fd;

        *data = 0;
        if (!entry_name(hex, name) || (dir = use_folder(false)) < 0)
                return false;
        fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
        if (fd < 0) {
                close(dir);
                return false;
        }
        bool ok = !fstat(fd, &st) && S_ISREG(st.st_mode) && read_all(fd, &h, sizeof h) &&
                  !memcmp(h.magic, MAGIC, sizeof MAGIC) && !memcmp(h.key, hex, sizeof h.key) &&
                  h.size <= MAX_ENTRY && (uint64_t)st.st_size == sizeof h + h.size &&
                  (value = malloc(h.size + 1)) && read_all(fd, value, h.size);
        if (ok) {
                XXH128_hash_t x = XXH3_128bits(value, h.size);
                ok = x.high64 == h.hash[0] && x.low64 == h.hash[1];
        }
        if (ok)
                futimens(fd, 0); /* used now */
        else
                unlinkat(dir, name, 0); /* damaged: out of the way of the next writer */
        close(fd);
        close(dir);
        if (!ok) {
                free(value);
                return false;
        }
        *data = value;
        *size = h.size;
        return true;
}

/* No fsync: after a crash the checksum finds a torn entry, which costs one rebuild. */
bool cache_put(const char *hex, const void *data, size_t size)
{
        char name[NAME_CAP], temp[NAME_CAP];
        EntryHeader h = { .size = size };
        XXH128_hash_t x = XXH3_128bits(data, size);
        int dir, fd;

        if (size > MAX_ENTRY || strlen(hex) != sizeof h.key || !entry_name(hex, name) ||
            (dir = use_folder(true)) < 0)
                return false;
        memcpy(h.magic, MAGIC, sizeof MAGIC);
        memcpy(h.key, hex, sizeof h.key);
        h.hash[0] = x.high64;
        h.hash[1] = x.low64;
        fd = open_temp(dir, hex, temp);
        bool ok = fd >= 0 && write_all(fd, &h, sizeof h) && write_all(fd, data, size);
        if (fd >= 0)
                ok = !close(fd) && ok;
        ok = ok && !renameat(dir, temp, dir, name);
        if (!ok && fd >= 0)
                unlinkat(dir, temp, 0);
        if (ok)
                trim(dir, name);
        close(dir);
        return ok;
}

void cache_remove(const char *hex)
{
        char name[NAME_CAP];
        int dir = entry_name(hex, name) ? use_folder(false) : -1;
        if (dir < 0)
                return;
        unlinkat(dir, name, 0);
        close(dir);
}
