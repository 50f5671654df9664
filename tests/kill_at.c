/* kill_at.c: for LD_PRELOAD: the process gets SIGKILL, or SIG$KILL_WITH, before its KILL_AT-th call that changes a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static void count(void)
{
        static int calls;
        const char *at = getenv("KILL_AT"), *with = getenv("KILL_WITH");
        if (at && ++calls == atoi(at))
                kill(getpid(), !with ? SIGKILL : *with == 'I' ? SIGINT : *with == 'T' ? SIGTERM : SIGHUP);
}

#define REAL(type, name, ...) type (*real)(__VA_ARGS__) = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

int rename(const char *a, const char *b) { REAL(int, rename, const char *, const char *); count(); return real(a, b); }
int unlink(const char *a) { REAL(int, unlink, const char *); count(); return real(a); }
int unlinkat(int d, const char *a, int f) { REAL(int, unlinkat, int, const char *, int); count(); return real(d, a, f); }
int fsync(int fd) { REAL(int, fsync, int); count(); return real(fd); }
int ftruncate(int fd, off_t n) { REAL(int, ftruncate, int, off_t); count(); return real(fd, n); }
ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
        REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
        count();
        return real(fd, p, n, at);
}
ssize_t write(int fd, const void *p, size_t n)
{
        REAL(ssize_t, write, int, const void *, size_t);
        if (fd > 2)
                count();
        return real(fd, p, n);
}
int open(const char *path, int flags, ...)
{
        REAL(int, open, const char *, int, ...);
        va_list ap;
        va_start(ap, flags);
        int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
        va_end(ap);
        if (flags & O_CREAT)
                count();
        return real(path, flags, mode);
}
