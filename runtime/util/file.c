/* file.c: implements file.h. */
#include "file.h"
#include "temp.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "parallel.h"

/* Open for reading without ever hanging on a pipe; only regular files pass. */
static int open_regular(const char *path, struct stat *st, int *fd, Err *e)
{
        *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (*fd < 0)
                return err_set(e, TGC_IO, "%s: %s", path, strerror(errno));
        if (fstat(*fd, st)) {
                int why = errno;
                close(*fd);
                *fd = -1;
                return err_set(e, TGC_IO, "%s: %s", path, strerror(why));
        }
        if (!S_ISREG(st->st_mode)) {
                close(*fd);
                *fd = -1;
                return err_set(e, TGC_BAD_FILE, "%s: %s, not a regular file", path,
                               S_ISDIR(st->st_mode) ? "a folder" : "a device or pipe");
        }
        return TGC_OK;
}

enum { COPY_PIECE = 16 << 20, SMALL_FILE = 1 << 20 };

typedef struct Copy {
        int fd;
        char *to;
        size_t size;
        atomic_int bad;
} Copy;

static void copy_piece(void *ctx, int i)
{
        Copy *c = ctx;
        size_t at = (size_t)i * COPY_PIECE,
               end = c->size - at < COPY_PIECE ? c->size : at + COPY_PIECE;
        while (at < end) {
                ssize_t n = pread(c->fd, c->to + at, end - at, (off_t)at);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0) {
                        atomic_store(&c->bad, n < 0 ? errno : -1);
                        return;
                }
                at += (size_t)n;
        }
}

static int view(FileMap *m, const char *path, size_t copy_up_to, Err *e)
{
        struct stat st;
        int fd, rc;

        *m = (FileMap) { "", 0 };
        rc = open_regular(path, &st, &fd, e);
        if (rc || !st.st_size)
                goto done;
        if ((uint64_t)st.st_size > SIZE_MAX) {
                rc = err_set(e, TGC_IO, "%s: larger than the address space", path);
                goto done;
        }
        Copy c = { .fd = fd, .size = (size_t)st.st_size };
        const bool copy = c.size <= copy_up_to;
        c.to = copy ? mmap(0, c.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                    : mmap(0, c.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (c.to == MAP_FAILED) {
                rc = err_set(e, errno == ENOMEM ? TGC_NO_MEMORY : TGC_IO,
                             "%s: no memory for %zu bytes: %s", path, c.size, strerror(errno));
                goto done;
        }
        *m = (FileMap) { c.to, c.size };
        if (!copy)
                goto done;
        parallel_for((int)((c.size - 1) / COPY_PIECE + 1), 16, copy_piece, &c);
        if (c.bad) {
                rc = err_set(e, TGC_IO, "%s: %s", path,
                             c.bad > 0 ? strerror(c.bad) : "got shorter while it was read");
                file_unmap(m);
        } else {
                mprotect(c.to, c.size, PROT_READ);
        }
done:
        if (fd >= 0)
                close(fd);
        return rc;
}

int file_map(FileMap *m, const char *path, Err *e) { return view(m, path, SMALL_FILE, e); }

int file_copy(FileMap *m, const char *path, Err *e) { return view(m, path, SIZE_MAX, e); }

void file_unmap(FileMap *m)
{
        if (m->size)
                munmap((void *)(uintptr_t)m->data, m->size);
        *m = (FileMap) { "", 0 };
}

size_t text_mark(const char *text, size_t n)
{
        return n > 2 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
}

int text_is_utf8(const char *text, size_t n, const char *name, Err *e)
{
        if (n < 2 || (memcmp(text, "\xff\xfe", 2) && memcmp(text, "\xfe\xff", 2)))
                return TGC_OK;
        return err_set(e, TGC_BAD_FILE,
                       "%s: begins with UTF-16's byte order mark; only UTF-8 is read, which `iconv "
                       "-f UTF-16 -t UTF-8` makes of it",
                       name);
}

int file_read_text(const char *path, size_t max, char **text, size_t *size, Err *e)
{
        struct stat st;
        size_t at = 0, want;
        int fd, rc;
        char *s;

        *text = 0;
        rc = open_regular(path, &st, &fd, e);
        if (rc)
                return rc;
        if ((uint64_t)st.st_size > max) {
                close(fd);
                return err_set(e, TGC_BAD_FILE, "%s: %lld bytes, more than the limit of %zu", path,
                               (long long)st.st_size, max);
        }
        want = (size_t)st.st_size;
        s = malloc(want + 1);
        if (!s) {
                close(fd);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for %zu bytes", path, want);
        }
        while (at < want) {
                ssize_t n = read(fd, s + at, want - at);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0) {
                        int why = errno;
                        free(s);
                        close(fd);
                        return err_set(e, TGC_IO, "%s: read: %s", path, strerror(why));
                }
                if (n == 0)
                        break; /* shrunk meanwhile: what there is counts */
                at += (size_t)n;
        }
        close(fd);
        if ((rc = text_is_utf8(s, at, path, e))) {
                free(s);
                return rc;
        }
        s[at] = 0;
        *text = s;
        if (size)
                *size = at;
        return TGC_OK;
}

size_t file_head(const char *path, void *head, size_t n)
{
        struct stat st;
        int fd;

        if (open_regular(path, &st, &fd, 0))
                return 0;
        size_t at = 0;
        while (at < n) {
                ssize_t got = pread(fd, (char *)head + at, n - at, (off_t)at);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got <= 0)
                        break;
                at += (size_t)got;
        }
        close(fd);
        return at;
}

bool file_exists(const char *path)
{
        struct stat st;
        return stat(path, &st) == 0;
}

bool file_is_dir(const char *path)
{
        struct stat st;
        return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *file_join(const char *dir, const char *name)
{
        size_t n = strlen(dir), size = n + strlen(name) + 2;
        char *s = malloc(size);

        if (s)
                snprintf(s, size, "%s%s%s", dir, n && dir[n - 1] != '/' ? "/" : "", name);
        return s;
}

/* Writing -------------------------------------------------------------- */

enum { OUT_BUFFER = 1 << 16 };

struct FileOut {
        int fd;
        bool failed; /* nothing more is written; commit refuses */
        char *path;  /* the target, links followed */
        char *temp;  /* 0: writing straight into path */
        uint64_t size;
        size_t used;
        char buf[OUT_BUFFER];
};

static void out_free(FileOut *f)
{
        if (f->fd >= 0)
                close(f->fd);
        if (f->temp)
                temp_end(f->temp);
        free(f->path);
        free(f->temp);
        free(f);
}

static int out_fail(FileOut *f, const char *what, int why, Err *e)
{
        f->failed = true;
        return err_set(e, TGC_IO, "%s: %s: %s", f->path, what, strerror(why));
}

/* A name of its own beside the target: ".NAME.tgc-PID-K". */
static int open_temp(FileOut *f, mode_t mode, Err *e)
{
        static atomic_int number;
        const char *slash = strrchr(f->path, '/'), *base = slash ? slash + 1 : f->path;
        size_t size = strlen(f->path) + 64;

        f->temp = malloc(size);
        if (!f->temp)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", f->path);
        snprintf(f->temp, size, "%.*s", slash ? (int)(slash == f->path ? 1 : slash - f->path) : 1,
                 slash ? f->path : ".");
        temp_sweep(f->temp, false);
        for (int k = 0; k < 1000; k++) {
                snprintf(f->temp, size, "%.*s.%s.tgc-%ld-%d", (int)(base - f->path), f->path, base,
                         (long)getpid(), atomic_fetch_add(&number, 1));
                temp_begin(f->temp);
                f->fd = open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
                if (f->fd >= 0) {
                        temp_made(f->temp, f->fd);
                        return TGC_OK;
                }
                int why = errno;
                temp_end(f->temp);
                errno = why;
                if (errno != EEXIST)
                        break;
        }
        const int why = errno, n = slash ? (int)(slash == f->path ? 1 : slash - f->path) : 1;
        if (why == ENOENT)
                return err_set(e, TGC_IO, "%s: there is no folder %.*s", f->path, n,
                               slash ? f->path : ".");
        return err_set(e, TGC_IO, "%s: no file can be made in %.*s: %s", f->path, n,
                       slash ? f->path : ".", strerror(why));
}

int file_out_open(FileOut **out, const char *path, Err *e)
{
        FileOut *f = malloc(sizeof *f);
        struct stat st;
        bool there;
        int rc = TGC_OK;

        *out = 0;
        if (!f)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        if (!*path) {
                free(f);
                return err_set(e, TGC_IO, "cannot write to a file without a name");
        }
        f->fd = -1;
        f->failed = false;
        f->temp = 0;
        f->size = 0;
        f->used = 0;
        f->path = realpath(path, 0); /* NULL when it does not exist yet */
        if (!f->path)
                f->path = strdup(path);
        if (!f->path) {
                free(f);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        }
        there = stat(f->path, &st) == 0;
        if (there && S_ISDIR(st.st_mode)) {
                rc = err_set(e, TGC_IO, "%s: is a folder", path);
        } else if (there && !S_ISREG(st.st_mode)) { /* never replace a device or pipe by a file */
                f->fd = open(f->path, O_WRONLY | O_CLOEXEC);
                if (f->fd < 0)
                        rc = err_set(e, TGC_IO, "%s: %s", path, strerror(errno));
        } else {
                rc = open_temp(f, 0666, e);
                if (!rc && there)
                        fchmod(f->fd,
                               st.st_mode & 07777); /* where refused, the umask's mode stays */
        }
        if (rc) {
                out_free(f);
                return rc;
        }
        *out = f;
        return TGC_OK;
}

static int write_all(FileOut *f, const char *p, size_t n, Err *e)
{
        while (n) {
                ssize_t k = write(f->fd, p, n < (1u << 30) ? n : (1u << 30));
                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return out_fail(f, "write", k < 0 ? errno : ENOSPC, e);
                p += k;
                n -= (size_t)k;
        }
        return TGC_OK;
}

static int flush(FileOut *f, Err *e)
{
        size_t n = f->used;

        f->used = 0;
        return write_all(f, f->buf, n, e);
}

int file_out_write(FileOut *f, const void *data, size_t size, Err *e)
{
        int rc;

        if (f->failed)
                return err_set(e, TGC_IO, "%s: an earlier write failed", f->path);
        f->size += size;
        if (size > OUT_BUFFER - f->used) {
                rc = flush(f, e);
                if (rc)
                        return rc;
        }
        if (size >= OUT_BUFFER)
                return write_all(f, data, size, e);
        if (size) {
                memcpy(f->buf + f->used, data, size);
                f->used += size;
        }
        return TGC_OK;
}

int file_out_patch(FileOut *f, uint64_t at, const void *data, size_t size, Err *e)
{
        const char *p = data;
        int rc = f->failed ? err_set(e, TGC_IO, "%s: an earlier write failed", f->path)
                           : flush(f, e);

        while (!rc && size) {
                ssize_t k = pwrite(f->fd, p, size, (off_t)at);
                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return out_fail(f, "write", k < 0 ? errno : ENOSPC, e);
                p += k;
                at += (size_t)k;
                size -= (size_t)k;
        }
        return rc;
}

uint64_t file_out_size(const FileOut *f) { return f->size; }

/* A rename is durable only once the folder itself is on disk. */
static int sync_folder(const char *path, Err *e)
{
        const char *slash = strrchr(path, '/');
        char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
        int fd, rc = TGC_OK;

        if (!dir)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || (fsync(fd) && errno != EINVAL && errno != ENOTSUP))
                rc = err_set(e, TGC_IO, "%s: fsync of the folder: %s", path, strerror(errno));
        if (fd >= 0)
                close(fd);
        free(dir);
        return rc;
}

int file_out_commit(FileOut *f, Err *e)
{
        int rc;

        if (f->failed) {
                rc = err_set(e, TGC_IO, "%s: an earlier write failed", f->path);
                goto fail;
        }
        rc = flush(f, e);
        if (rc)
                goto fail;
        if (fsync(f->fd) && f->temp) { /* a pipe cannot be synced */
                rc = out_fail(f, "fsync", errno, e);
                goto fail;
        }
        rc = close(f->fd);
        f->fd = -1;
        if (rc) {
                rc = out_fail(f, "close", errno, e);
                goto fail;
        }
        if (f->temp) {
                if (rename(f->temp, f->path)) { /* still locked: nobody sweeps it before */
                        rc = out_fail(f, "rename", errno, e);
                        goto fail;
                }
                temp_end(f->temp);
                rc = sync_folder(f->path, e); /* the new file stands either way */
        }
        out_free(f);
        return rc;
fail:
        file_out_abort(f);
        return rc;
}

void file_out_abort(FileOut *f)
{
        if (!f)
                return;
        if (f->temp)
                unlink(f->temp);
        out_free(f);
}

/* Locks ---------------------------------------------------------------- */

int file_lock(int *fd, const char *path, const char *what, Err *e)
{
        char text[32] = "";

        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (*fd < 0)
                return err_set(e, TGC_IO, "%s: %s", path, strerror(errno));
        if (flock(*fd, LOCK_EX | LOCK_NB)) {
                int why = errno, rc = TGC_OK;
                if (why == EWOULDBLOCK) {
                        ssize_t n = pread(*fd, text, sizeof text - 1, 0);
                        rc = err_set(e, TGC_USAGE, "%s is in use by another run%s%.*s", what,
                                     n > 0 ? ", process " : "",
                                     n > 0 ? (int)strspn(text, "0123456789") : 0, text);
                }
                close(*fd);
                *fd = -1;
                return rc; /* no locks here: as before there were any */
        }
        snprintf(text, sizeof text, "%ld\n", (long)getpid());
        if (ftruncate(*fd, 0) || pwrite(*fd, text, strlen(text), 0) < 0)
                text[0] = 0; /* the lock holds without its owner's number */
        return TGC_OK;
}

void file_unlock(int fd)
{
        if (fd >= 0)
                close(fd);
}

int file_write_atomic(const char *path, const void *data, size_t size, Err *e)
{
        FileOut *f;
        int rc = file_out_open(&f, path, e);

        if (rc)
                return rc;
        rc = file_out_write(f, data, size, e);
        if (rc) {
                file_out_abort(f);
                return rc;
        }
        return file_out_commit(f, e);
}

int file_write_in(const char *dir, const char *name, const void *data, size_t size, Err *e)
{
        char *path = file_join(dir, name);
        int code = path ? file_write_atomic(path, data, size, e)
                        : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        free(path);
        return code;
}
