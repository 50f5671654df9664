/* fault.c: for LD_PRELOAD: one call of a process goes wrong.  Its children run undisturbed: tgc
 * gives them no LD_PRELOAD.
 *
 *      KILL_AT=N       SIGKILL, or SIG$KILL_WITH, before the N-th call that changes a file
 *      FAULT=alloc     the FAULT_AT-th allocation fails; with FAULT_ALL=1 every later one too
 *      FAULT=call      the FAULT_AT-th system call fails, for the FAULT_ROUND-th of its reasons (0:
 *                      the first); short_write: half is written
 *      FAULT_LOG=FILE  gets "calls N", or what failed: "malloc 64" or "write ENOSPC", and with
 *      FAULT_TRACE=1 the stack FAULT_LIST=FILE gets a line for each call: its number and a hash of
 *      the stack, equal where the place is
 *
 * Not counted: what the loader, libgomp, NVRTC and the driver ask for: they end the process by
 * themselves. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
        *__libc_memalign(size_t, size_t);

#define REAL(type, name, ...)             \
        static type (*real)(__VA_ARGS__); \
        if (!real)                        \
        real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static enum { NOTHING, ALLOC, CALL } what;
static int at, all, reason;
static atomic_int calls;
static _Thread_local int inside; /* the shim's own calls do not count */
static uint32_t list[1 << 20];   /* hashes of the stacks */
static bool listing;
typedef struct Range {
        uintptr_t from, to;
} Range;
static Range quiet[16]; /* the text of libraries that are left alone */
static atomic_int n_quiet;

static void put_text(const char *var, const char *text)
{
        const char *path = getenv(var);
        int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path,
                                     O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
                      : -1;
        if (fd < 0)
                return;
        syscall(SYS_write, fd, text, strlen(text));
        if (at && getenv("FAULT_TRACE")) {
                void *stack[40];
                backtrace_symbols_fd(stack, backtrace(stack, 40), fd);
        }
        syscall(SYS_close, fd);
}

static int quiet_library(struct dl_phdr_info *x, size_t n, void *ctx)
{
        (void)n, (void)ctx;
        static const char *const name[] = { "ld-linux", "libgomp", "libomp",
                                            "libnvrtc", "libcuda", "libLLVM" };
        bool is = false;
        for (size_t i = 0; i < sizeof name / sizeof *name; i++)
                is |= strstr(x->dlpi_name, name[i]) != NULL;
        if (!is)
                return 0;
        for (int i = 0; i < x->dlpi_phnum; i++)
                if (x->dlpi_phdr[i].p_type == PT_LOAD && x->dlpi_phdr[i].p_flags & PF_X &&
                    n_quiet < 16) {
                        uintptr_t from = x->dlpi_addr + x->dlpi_phdr[i].p_vaddr;
                        quiet[n_quiet] = (Range) { from, from + x->dlpi_phdr[i].p_memsz };
                        n_quiet++;
                }
        return 0;
}

static void look_at_libraries(void)
{
        inside++;
        n_quiet = 0;
        dl_iterate_phdr(quiet_library, NULL);
        inside--;
}

__attribute__((constructor)) static void begin(void)
{
        const char *f = getenv("FAULT");
        void *stack[1];
        inside++;
        backtrace(stack, 1); /* it loads a library the first time */
        look_at_libraries();
        at = getenv("FAULT_AT") ? atoi(getenv("FAULT_AT")) : 0;
        all = getenv("FAULT_ALL") != NULL;
        reason = getenv("FAULT_ROUND") ? atoi(getenv("FAULT_ROUND")) : 0;
        listing = getenv("FAULT_LIST") != NULL;
        inside--;
        what = !f || !strcmp(program_invocation_short_name, "timeout") ? NOTHING
               : !strcmp(f, "alloc")                                   ? ALLOC
                                                                       : CALL;
}

__attribute__((destructor)) static void end(void)
{
        char line[64];
        inside++;
        snprintf(line, sizeof line, "calls %d\n", calls);
        if (what && !at)
                put_text("FAULT_LOG", line);
        FILE *f = what && listing ? fopen(getenv("FAULT_LIST"), "w") : NULL;
        for (int i = 1; f && i <= calls && i < 1 << 20; i++)
                fprintf(f, "%d %08x\n", i, list[i]);
        if (f)
                fclose(f);
}

/* Is it this one's turn? */
static bool turn(int kind, void *from)
{
        if (what != (typeof(what))kind || inside)
                return false;
        for (int i = 0; i < n_quiet; i++)
                if ((uintptr_t)from >= quiet[i].from && (uintptr_t)from < quiet[i].to)
                        return false;
        int n = ++calls;
        if (listing && n < 1 << 20) {
                void *stack[24];
                uint32_t h = 2166136261u;
                inside++;
                int depth = backtrace(stack, 24);
                inside--;
                for (int i = 2; i < depth && i < 8; i++)
                        h = (h ^ (uint32_t)((uintptr_t)stack[i] & 0xfff) ^
                             (uint32_t)((uintptr_t)stack[i] >> 12 << 4)) *
                            16777619u;
                list[n] = h;
        }
        return n == at || (all && at && n > at);
}

/* ---- memory ---- */

static bool no_memory(const char *name, size_t size, void *from)
{
        char line[64];
        if (!turn(ALLOC, from))
                return false;
        inside++;
        snprintf(line, sizeof line, "%s %zu\n", name, size);
        if (calls == at)
                put_text("FAULT_LOG", line);
        inside--;
        errno = ENOMEM;
        return true;
}

#define FROM __builtin_return_address(0)
void *malloc(size_t n) { return no_memory("malloc", n, FROM) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t m)
{
        return no_memory("calloc", n * m, FROM) ? NULL : __libc_calloc(n, m);
}
void *realloc(void *p, size_t n)
{
        return n && no_memory("realloc", n, FROM) ? NULL : __libc_realloc(p, n);
}
void *aligned_alloc(size_t a, size_t n)
{
        return no_memory("aligned_alloc", n, FROM) ? NULL : __libc_memalign(a, n);
}
int posix_memalign(void **p, size_t a, size_t n)
{
        return no_memory("posix_memalign", n, FROM) || !(*p = __libc_memalign(a, n)) ? ENOMEM : 0;
}

/* ---- system calls ---- */

/* The errno of this call, or 0; SHORT: half of it succeeds. */
enum { SHORT = -1, MOST_REASONS = 4 };
typedef int Reasons[MOST_REASONS];

static int fault(const char *name, const Reasons why, void *from)
{
        char line[64];
        int n = 0, r;
        if (!turn(CALL, from))
                return 0;
        while (n < MOST_REASONS && why[n])
                n++;
        r = why[reason % n];
        inside++;
        snprintf(line, sizeof line, "%s %s\n", name, r == SHORT ? "SHORT" : strerrorname_np(r));
        put_text("FAULT_LOG", line);
        inside--;
        if (r != SHORT)
                errno = r;
        return r;
}

#define FAULT(name, ...) fault(name, (const Reasons) { __VA_ARGS__ }, FROM)

static void changes(void)
{
        static int n;
        const char *kill_at = getenv("KILL_AT"), *with = getenv("KILL_WITH");
        if (kill_at && ++n == atoi(kill_at))
                kill(getpid(), !with          ? SIGKILL
                               : *with == 'I' ? SIGINT
                               : *with == 'T' ? SIGTERM
                                              : SIGHUP);
}

int rename(const char *a, const char *b)
{
        REAL(int, rename, const char *, const char *);
        changes();
        return FAULT("rename", EIO, ENOSPC) ? -1 : real(a, b);
}

int unlink(const char *a)
{
        REAL(int, unlink, const char *);
        changes();
        return FAULT("unlink", EIO, EACCES) ? -1 : real(a);
}

int unlinkat(int d, const char *a, int f)
{
        REAL(int, unlinkat, int, const char *, int);
        changes();
        return FAULT("unlinkat", EIO, EACCES) ? -1 : real(d, a, f);
}

int fsync(int fd)
{
        REAL(int, fsync, int);
        changes();
        return FAULT("fsync", EIO, ENOSPC) ? -1 : real(fd);
}

int ftruncate(int fd, off_t n)
{
        REAL(int, ftruncate, int, off_t);
        changes();
        return FAULT("ftruncate", ENOSPC, EIO) ? -1 : real(fd, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t o)
{
        REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
        changes();
        int r = FAULT("pwrite", ENOSPC, EINTR, SHORT, EIO);
        return r > 0 ? -1 : real(fd, p, r && n > 1 ? n / 2 : n, o);
}

ssize_t write(int fd, const void *p, size_t n)
{
        REAL(ssize_t, write, int, const void *, size_t);
        if (fd > 2)
                changes();
        int r = FAULT("write", ENOSPC, EINTR, SHORT, EIO);
        return r > 0 ? -1 : real(fd, p, r && n > 1 ? n / 2 : n);
}

ssize_t pread(int fd, void *p, size_t n, off_t o)
{
        REAL(ssize_t, pread, int, void *, size_t, off_t);
        int r = FAULT("pread", EIO, EINTR, SHORT);
        return r > 0 ? -1 : real(fd, p, r && n > 1 ? n / 2 : n, o);
}

ssize_t read(int fd, void *p, size_t n)
{
        REAL(ssize_t, read, int, void *, size_t);
        int r = FAULT("read", EIO, EINTR, SHORT);
        return r > 0 ? -1 : real(fd, p, r && n > 1 ? n / 2 : n);
}

int open(const char *path, int flags, ...)
{
        REAL(int, open, const char *, int, ...);
        va_list ap;
        va_start(ap, flags);
        int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, int) : 0;
        va_end(ap);
        if (flags & O_CREAT)
                changes();
        return FAULT("open", EMFILE, EIO, ENOMEM, flags & O_CREAT ? ENOSPC : EMFILE)
                       ? -1
                       : real(path, flags, mode);
}

int openat(int d, const char *path, int flags, ...)
{
        REAL(int, openat, int, const char *, int, ...);
        va_list ap;
        va_start(ap, flags);
        int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, int) : 0;
        va_end(ap);
        return FAULT("openat", EMFILE, EIO, ENOMEM) ? -1 : real(d, path, flags, mode);
}

int close(int fd)
{
        REAL(int, close, int);
        int r = FAULT("close", EIO, EINTR, ENOSPC), rc = real(fd);
        if (r)
                errno = r;
        return r ? -1 : rc;
}

void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t o)
{
        REAL(void *, mmap, void *, size_t, int, int, int, off_t);
        return FAULT("mmap", ENOMEM) ? MAP_FAILED : real(p, n, prot, flags, fd, o);
}

int mkdir(const char *path, mode_t mode)
{
        REAL(int, mkdir, const char *, mode_t);
        return FAULT("mkdir", ENOSPC, EIO) ? -1 : real(path, mode);
}

char *mkdtemp(char *path)
{
        REAL(char *, mkdtemp, char *);
        return FAULT("mkdtemp", ENOSPC, EIO) ? NULL : real(path);
}

int mkostemps(char *path, int suffix, int flags)
{
        REAL(int, mkostemps, char *, int, int);
        return FAULT("mkostemps", ENOSPC, EMFILE) ? -1 : real(path, suffix, flags);
}

int memfd_create(const char *name, unsigned flags)
{
        REAL(int, memfd_create, const char *, unsigned);
        return FAULT("memfd_create", EMFILE, ENOSYS, ENOMEM) ? -1 : real(name, flags);
}

DIR *opendir(const char *path)
{
        REAL(DIR *, opendir, const char *);
        return FAULT("opendir", EMFILE, EIO) ? NULL : real(path);
}

FILE *fopen(const char *path, const char *mode)
{
        REAL(FILE *, fopen, const char *, const char *);
        return FAULT("fopen", EMFILE, EIO) ? NULL : real(path, mode);
}

int fflush(FILE *f)
{
        REAL(int, fflush, FILE *);
        return FAULT("fflush", ENOSPC, EIO) ? EOF : real(f);
}

int fclose(FILE *f)
{
        REAL(int, fclose, FILE *);
        int r = FAULT("fclose", ENOSPC, EIO), rc = real(f);
        if (r)
                errno = r;
        return r ? EOF : rc;
}

int pipe2(int fd[2], int flags)
{
        REAL(int, pipe2, int *, int);
        return FAULT("pipe2", EMFILE) ? -1 : real(fd, flags);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *fa,
                const posix_spawnattr_t *attr, char *const argv[], char *const env[])
{
        REAL(int, posix_spawn, pid_t *, const char *, const posix_spawn_file_actions_t *,
             const posix_spawnattr_t *, char *const *, char *const *);
        int r = FAULT("posix_spawn", EAGAIN, ENOMEM);
        return r ? r : real(pid, path, fa, attr, argv, env);
}

int posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *fa,
                 const posix_spawnattr_t *attr, char *const argv[], char *const env[])
{
        REAL(int, posix_spawnp, pid_t *, const char *, const posix_spawn_file_actions_t *,
             const posix_spawnattr_t *, char *const *, char *const *);
        int r = FAULT("posix_spawnp", EAGAIN, ENOMEM);
        return r ? r : real(pid, path, fa, attr, argv, env);
}

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
        REAL(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
        int r = FAULT("pthread_create", EAGAIN);
        return r ? r : real(t, attr, fn, arg);
}

/* The compiled code's OpenMP comes with it. */
void *dlopen(const char *path, int flags)
{
        REAL(void *, dlopen, const char *, int);
        inside++;
        void *so = real(path, flags);
        inside--;
        look_at_libraries();
        return so;
}
