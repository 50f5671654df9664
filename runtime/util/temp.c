/* temp.c: implements temp.h.  The list of temporary files is global, since a signal handler has no
 * arguments of its own. */
#include "temp.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 64 }; /* at once; more are not in the list, and are swept by the next run */

static struct {
        _Atomic(char *) path;
        int fd;
} live[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the handler goes without */
static atomic_int ending;
static atomic_long owner; /* a child between fork and exec has the list too */

static int find(const char *path)
{
        for (int i = 0; i < MOST; i++) {
                const char *p = atomic_load(&live[i].path);
                if (p && !strcmp(p, path))
                        return i;
        }
        return -1;
}

void temp_begin(const char *path)
{
        char *copy = strdup(path);
        pthread_mutex_lock(&lock);
        atomic_store(&owner, (long)getpid());
        for (int i = 0; i < MOST && copy; i++)
                if (!atomic_load(&live[i].path)) {
                        live[i].fd = -1;
                        atomic_store(&live[i].path, copy);
                        copy = NULL;
                }
        pthread_mutex_unlock(&lock);
        free(copy);
}

void temp_made(const char *path, int fd)
{
        pthread_mutex_lock(&lock);
        int i = find(path);
        if (i >= 0 && (live[i].fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) >= 0)
                flock(live[i].fd,
                      LOCK_EX |
                              LOCK_NB); /* where there are no locks, the process's number must do */
        pthread_mutex_unlock(&lock);
        if (atomic_load(&ending)) /* made after the handler had looked */
                unlink(path);
}

void temp_end(const char *path)
{
        char *copy = NULL;
        pthread_mutex_lock(&lock);
        int i = find(path);
        if (i >= 0) {
                if (live[i].fd >= 0)
                        close(live[i].fd);
                copy = atomic_exchange(&live[i].path, NULL);
        }
        pthread_mutex_unlock(&lock);
        free(copy);
}

void temps_unlink(void)
{
        if (atomic_load(&owner) != (long)getpid())
                return;
        atomic_store(&ending, 1);
        for (int i = 0; i < MOST; i++) {
                const char *path = atomic_exchange(&live[i].path, NULL);
                if (path)
                        unlink(path);
        }
}

/* ---- what killed processes left ---- */

/* The number in a name of ours; 0: it is another's. */
static long owner_of(const char *name, bool folder)
{
        const char *at = folder ? name : *name == '.' ? strstr(name + 1, ".tgc-") : NULL;
        char *end;
        for (const char *s = at; !folder && s; s = strstr(s + 1, ".tgc-"))
                at = s; /* the last: the target's own name may have one */
        if (!at || (folder && strncmp(at, "tgc-", 4)))
                return 0;
        at += folder ? 4 : 5;
        if (!isdigit((unsigned char)*at))
                return 0;
        long pid = strtol(at, &end, 10);
        if (*end != '-' || pid <= 0 || pid > 1L << 30)
                return 0;
        at = end + 1;
        if (folder)
                return strlen(at) == 6 ? pid : 0;
        return *at && !at[strspn(at, "0123456789")] ? pid : 0;
}

static void remove_folder(int dir, const char *name)
{
        int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        if (!d && fd >= 0)
                close(fd);
        for (struct dirent *f; d && (f = readdir(d));) /* it is flat */
                if (strcmp(f->d_name, ".") && strcmp(f->d_name, ".."))
                        unlinkat(fd, f->d_name, 0);
        if (d)
                closedir(d);
        unlinkat(dir, name, AT_REMOVEDIR);
}

/* By an owner whose number means another process here, or none: of another container or machine. */
static bool held(int dir, const char *name, bool folder)
{
        char path[300];
        snprintf(path, sizeof path, folder ? "%.255s/" TEMP_OWNER : "%.255s", name);
        int fd = openat(dir, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
        if (fd >= 0)
                close(fd);
        return locked;
}

void temp_sweep(const char *path, bool folders)
{
        DIR *d = opendir(path);
        for (struct dirent *x; d && (x = readdir(d));) {
                long pid = owner_of(x->d_name, folders);
                struct stat st;
                if (!pid || !kill((pid_t)pid, 0) || errno != ESRCH)
                        continue;
                if (fstatat(dirfd(d), x->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
                    st.st_uid != geteuid() ||
                    !(folders ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode)) ||
                    held(dirfd(d), x->d_name, folders))
                        continue;
                if (folders)
                        remove_folder(dirfd(d), x->d_name);
                else
                        unlinkat(dirfd(d), x->d_name, 0);
        }
        if (d)
                closedir(d);
}
