/* host_cc.c: runs the system's compiler without a shell, and loads what it built. */
#include "host_cc.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cache.h"
#include "../util/file.h"
#include "../util/parallel.h"
#include "../util/temp.h"

enum { MAX_ARGV = 96, MAX_LOG = 64 << 10, MAX_OBJECT = 1 << 30 };

/* ---- temporary folders ---- */

static const char *tmp_root(void)
{
        const char *s = getenv("TMPDIR");
        return s && *s == '/' && strlen(s) < 400 ? s : "/tmp";
}

int tmpdir_make(char path[512], Err *e)
{
        temp_sweep(tmp_root(), true);
        snprintf(path, 512, "%s/tgc-%ld-XXXXXX", tmp_root(), (long)getpid());
        if (mkdtemp(path)) {
                char held[sizeof TEMP_OWNER + 512];
                snprintf(held, sizeof held, "%s/" TEMP_OWNER, path);
                temp_begin(held);
                int fd = open(held, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
                if (fd >= 0) {
                        temp_made(held, fd);
                        close(fd);
                }
                return TGC_OK;
        }
        err_set(e, TGC_IO, "cannot make a temporary folder %s: %s", path, strerror(errno));
        *path = 0;
        return TGC_IO;
}

void tmpdir_remove(const char *path)
{
        DIR *d = *path ? opendir(path) : 0;
        if (!d)
                return;
        for (struct dirent *f; (f = readdir(d));) /* the folder is flat: files only */
                if (strcmp(f->d_name, ".") && strcmp(f->d_name, ".."))
                        unlinkat(dirfd(d), f->d_name, 0);
        closedir(d);
        rmdir(path);
        char held[sizeof TEMP_OWNER + 512];
        snprintf(held, sizeof held, "%.511s/" TEMP_OWNER, path);
        temp_end(held);
}

void keep_source(const char *name, const char *text, size_t n, char *path, size_t cap)
{
        const char *dot = strrchr(name, '.');
        snprintf(path, cap, "%s/tgc-%.*s-XXXXXX%s", tmp_root(),
                 (int)(dot ? dot - name : (long)strlen(name)), name, dot ? dot : "");
        int fd = mkostemps(path, dot ? (int)strlen(dot) : 0, O_CLOEXEC);
        if (fd < 0 || write(fd, text, n) != (ssize_t)n)
                *path = 0;
        if (fd >= 0)
                close(fd);
}

/* ---- children ---- */

enum { LOOK_MS = 50, PATIENCE = 20 };

/* What child_run returns instead of an exit status; NO_ROOM - errno: the system had no memory or no
 * processes left. */
enum { NOT_RUN = -1, NO_ROOM = -1000 };

static int no_room(int why) { return why == ENOMEM || why == EAGAIN ? NO_ROOM - why : NOT_RUN; }

/* Called every LOOK_MS once it was asked to stop: the group is told to end, which
 * lets a compiler remove its own temporary files, and later made to.  Returns 1
 * when there is nothing left to wait for. */
static int put_down(pid_t group, int times)
{
        if (times == 0)
                kill(-group, SIGTERM);
        if (times >= PATIENCE)
                kill(-group, SIGKILL);
        return times > PATIENCE;
}

/* Run argv; what it says on stdout and stderr goes to out (cut at cap, never
 * NULL-less).  Returns its exit status, or less than 0 when it could not be started or was
 * stopped.  Where somebody may ask for that the child has a process group of its
 * own, since compilers have children, and a terminal's Ctrl-C reaches only us. */
static int child_run(char *const argv[], Stop *stop, char *out, size_t cap)
{
        static const char *const keep[] = { "PATH", "TMPDIR", "LD_LIBRARY_PATH" };
        char *env[8], lc[] = "LC_ALL=C", sink[4096];
        posix_spawn_file_actions_t fa;
        posix_spawnattr_t attr;
        int pipe_fd[2], status = -1, n_env = 0, told = 0, bad = 0;
        size_t used = 0;
        pid_t pid;

        *out = 0;
        if (pipe2(pipe_fd, O_CLOEXEC))
                return no_room(errno);
        for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) {
                const char *v = getenv(keep[i]);
                char *s = v ? malloc(strlen(keep[i]) + strlen(v) + 2) : 0;
                bad = v && !s ? ENOMEM : bad;
                if (s) {
                        sprintf(s, "%s=%s", keep[i], v);
                        env[n_env++] = s;
                }
        }
        int n_own = n_env;
        env[n_env++] = lc;
        env[n_env] = 0;
        posix_spawn_file_actions_init(&fa);
        int added = posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
        added = added ? added : posix_spawn_file_actions_adddup2(&fa, pipe_fd[1], 1);
        added = added ? added : posix_spawn_file_actions_adddup2(&fa, pipe_fd[1], 2);
        added = added ? added : posix_spawn_file_actions_addclosefrom_np(&fa, 3);
        bad = bad ? bad : added;
        posix_spawnattr_init(&attr);
        if (stop)
                posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP); /* group 0: its own */
        bad = bad ? bad : posix_spawnp(&pid, argv[0], &fa, &attr, argv, env);
        const bool started = !bad;
        posix_spawnattr_destroy(&attr);
        posix_spawn_file_actions_destroy(&fa);
        close(pipe_fd[1]);
        while (started) {
                struct pollfd talk = { .fd = pipe_fd[0], .events = POLLIN };
                if (stop_asked(stop) && put_down(pid, told++))
                        break;
                if (poll(&talk, 1, stop ? LOOK_MS : -1) <= 0)
                        continue; /* nothing said yet, or a signal */
                size_t room = cap - 1 - used;
                ssize_t n = read(pipe_fd[0], room ? out + used : sink, room ? room : sizeof sink);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        break;
                used += room ? (size_t)n : 0;
        }
        out[used] = 0;
        close(pipe_fd[0]);
        while (started && waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        for (int i = 0; i < n_own; i++)
                free(env[i]);
        if (bad)
                return no_room(bad);
        return WIFEXITED(status) && WEXITSTATUS(status) != 127 ? WEXITSTATUS(status) : NOT_RUN;
}

typedef char LineReader[sizeof((HostCc *)0)->command];
enum { MAX_WORDS = 8 };

/* The words of a command, cut in `words`, as the first of argv; how many.  No quotes: make has none
 * either. */
static int put_command(char **argv, const char *command, LineReader words)
{
        char *rest;
        int n = 0;
        snprintf(words, sizeof(LineReader), "%s", command);
        for (char *w = strtok_r(words, " \t", &rest); w && n < MAX_WORDS;
             w = strtok_r(NULL, " \t", &rest))
                argv[n++] = w;
        return n;
}

/* 0, or as child_run says. */
static int try_compiler(HostCc *cc, const char *command)
{
        char log[1024], *argv[MAX_WORDS + 2] = { 0 };
        LineReader words;
        int n = strlen(command) < sizeof words ? put_command(argv, command, words) : 0;
        argv[n] = "--version";
        int status = n ? child_run(argv, 0, log, sizeof log) : NOT_RUN;
        if (status)
                return status;
        snprintf(cc->command, sizeof cc->command, "%s", command);
        snprintf(cc->version, sizeof cc->version, "%.*s", (int)strcspn(log, "\n"), log);
        return 0;
}

static int not_started(const char *command, int status, Err *e)
{
        return err_set(e, TGC_NO_MEMORY, "%.200s cannot be started: %s", command,
                       strerror(NO_ROOM - status));
}

int host_cc_find(HostCc *cc, int cxx, Err *e)
{
        static const char *const c_names[] = { "gcc", "cc", "clang" }, *const cxx_names[] = {
                "g++", "c++", "clang++"
        };
        const char *var = cxx ? "CXX" : "CC", *own = getenv(var);

        *cc = (HostCc) { .cxx = cxx };
        int status = own && *own ? try_compiler(cc, own) : 0;
        if (status <= NO_ROOM)
                return not_started(own, status, e);
        if (own && *own)
                return !status ? TGC_OK
                               : err_set(e, TGC_NO_DEVICE,
                                         "%s=%.200s: `%.200s --version` does not run; name a "
                                         "compiler that does, or unset it",
                                         var, own, own);
        for (int i = 0; i < 3; i++)
                if ((status = try_compiler(cc, cxx ? cxx_names[i] : c_names[i])) <= NO_ROOM)
                        return not_started(cxx ? cxx_names[i] : c_names[i], status, e);
                else if (!status)
                        return TGC_OK;
        return err_set(e, TGC_NO_DEVICE,
                       "no %s compiler runs here (tried %s and %s); install gcc%s with OpenMP "
                       "(Debian, Ubuntu: apt install g++) or set %s",
                       cxx ? "C++" : "C", cxx ? "g++, c++" : "gcc, cc", cxx ? "clang++" : "clang",
                       cxx ? "'s g++" : "", var);
}

int host_cc_describe(char *out, size_t cap, int cxx, Err *e)
{
        HostCc cc;
        int code = host_cc_find(&cc, cxx, e);
        snprintf(out, cap, "%.200s", code ? "" : cc.version);
        return code;
}

int host_compilers(void)
{
        const char *s = getenv("TGC_COMPILERS");
        const int n = s && *s >= '1' && *s <= '9' ? atoi(s) : host_cores();
        return n < 1 ? 1 : n;
}

/* ---- building ---- */

typedef struct Job {
        const HostCc *cc;
        const HostBuild *b;
        const PackFile *unit;
        const char *dir;
        char (*object)[640];
        int *status;
        char (*log)[MAX_LOG];
} Job;

/* clang takes an unknown -f option for an error. */
static int takes(const HostCc *cc, const char *flag)
{
        return !strstr(cc->version, "clang") || strncmp(flag, "-fvect-cost-model", 17);
}

static void compile_unit(void *ctx, int i)
{
        Job *j = ctx;
        char source[640], include[640], *argv[MAX_ARGV];
        LineReader words;
        int n = put_command(argv, j->cc->command, words);

        snprintf(source, sizeof source, "%.500s/%.96s%s", j->dir, j->unit[i].name, j->b->suffix);
        snprintf(include, sizeof include, "-I%.500s", j->dir);
        for (const char *const *f = j->b->flag; *f && n < MAX_ARGV - 10; f++)
                if (takes(j->cc, *f))
                        argv[n++] = (char *)*f;
        argv[n++] = include;
        argv[n++] = "-x";
        argv[n++] = j->cc->cxx ? "c++" : "c";
        argv[n++] = "-c";
        argv[n++] = source;
        argv[n++] = "-o";
        argv[n++] = j->object[i];
        argv[n] = 0;
        j->status[i] = stop_asked(j->b->stop) ? -1
                                              : child_run(argv, j->b->stop, j->log[i], MAX_LOG);
}

static int link_objects(const Job *j, int n, char *target, char *log)
{
        LineReader words;
        char **argv = calloc((size_t)n + MAX_ARGV, sizeof *argv);
        if (!argv)
                return NO_ROOM - ENOMEM;
        int k = put_command(argv, j->cc->command, words);
        for (const char *const *f = j->b->flag; *f && k < MAX_ARGV - 10; f++)
                if (strcmp(*f, "-include") == 0)
                        f++;
                else if (takes(j->cc, *f))
                        argv[k++] = (char *)*f;
        argv[k++] = "-shared";
        for (int i = 0; i < n; i++)
                argv[k++] = j->object[i];
        if (j->b->object)
                argv[k++] = j->object[n];
        argv[k++] = "-o";
        argv[k++] = target;
        argv[k++] = "-lm";
        int status = child_run(argv, j->b->stop, log, MAX_LOG);
        free(argv);
        return status;
}

/* The first lines of a compiler's log, for a message. */
static int log_head(const char *log)
{
        int lines = 0, n = 0;
        for (; n < 600 && log[n]; n++)
                if (log[n] == '\n' && ++lines == 8)
                        break;
        return n;
}

static int write_files(const char *dir, const PackFile *f, int n, const char *suffix, Err *e)
{
        char path[768];
        for (int i = 0; i < n; i++) {
                snprintf(path, sizeof path, "%.500s/%.96s%s", dir, f[i].name, suffix);
                FILE *out = fopen(path, "wxe");
                int bad = !out || fwrite(f[i].data, 1, f[i].size, out) != f[i].size;
                bad = (out && fclose(out)) || bad;
                if (bad)
                        return err_set(e, TGC_IO, "cannot write %s: %s", path, strerror(errno));
        }
        return TGC_OK;
}

/* Did the compiler have too little memory?  What the kernel kills for that, the driver reports. */
static bool starved(const char *log)
{
        return strstr(log, "Killed signal terminated program") ||
               strstr(log, "out of memory allocating") || strstr(log, "virtual memory exhausted") ||
               strstr(log, "Cannot allocate memory");
}

static int report_failure(const Job *j, int n, Err *e)
{
        for (int i = 0; i < n; i++) {
                char name[128], path[640];
                if (j->status[i] == 0)
                        continue;
                if (j->status[i] <= NO_ROOM)
                        return not_started(j->cc->command, j->status[i], e);
                if (starved(j->log[i]))
                        return err_set(e, TGC_NO_MEMORY,
                                       "%s had no memory for unit %s of %s:\n%.*s", j->cc->command,
                                       j->unit[i].name, j->b->what, log_head(j->log[i]), j->log[i]);
                if (j->status[i] < 0)
                        return err_set(e, TGC_NO_DEVICE, "%s could not be run on unit %s",
                                       j->cc->command, j->unit[i].name);
                snprintf(name, sizeof name, "%s%s", j->unit[i].name, j->b->suffix);
                keep_source(name, j->unit[i].data, j->unit[i].size, path, sizeof path);
                return err_set(e, TGC_NO_DEVICE,
                               "%s refuses unit %s of %s (source kept in %s):\n%.*s",
                               j->cc->command, j->unit[i].name, j->b->what,
                               *path ? path : "no place", log_head(j->log[i]), j->log[i]);
        }
        return TGC_OK;
}

/* The object that is given, as the n-th of those that are made. */
static int put_object(const Job *j, int n, Err *e)
{
        const PackFile f = { .name = "given.o",
                             .data = (char *)j->b->object,
                             .size = j->b->object_size };
        if (!j->b->object)
                return TGC_OK;
        snprintf(j->object[n], sizeof *j->object, "%.500s/%s", j->dir, f.name);
        return write_files(j->dir, &f, 1, "", e);
}

/* Into target: the shared object of n objects and the one that is given. */
static int link_all(const Job *j, int n, char *target, Err *e)
{
        char *log = j->log[0];
        int code = put_object(j, n, e), linked;
        if (code || !(linked = link_objects(j, n, target, log)))
                return code;
        if (linked <= NO_ROOM)
                return not_started(j->cc->command, linked, e);
        return starved(log) ? err_set(e, TGC_NO_MEMORY, "%s had no memory to link %s:\n%.*s",
                                      j->cc->command, j->b->what, log_head(log), log)
                            : err_set(e, TGC_NO_DEVICE, "%s cannot link %s:\n%.*s", j->cc->command,
                                      j->b->what, log_head(log), log);
}

static int build(const HostCc *cc, const HostBuild *b, int first, int n, bool links, void **so,
                 size_t *size, Err *e)
{
        char dir[512] = "", target[640];
        Job j = { cc, b, b->units->file + first, dir, 0, 0, 0 };
        int code = TGC_OK;

        *so = 0;
        j.object = calloc((size_t)n + 1, sizeof *j.object);
        j.status = calloc((size_t)n + 1, sizeof *j.status);
        j.log = malloc(((size_t)n + 1) * MAX_LOG);
        stop_begin(b->stop);
        if (!j.object || !j.status || !j.log) {
                code = err_set(e, TGC_NO_MEMORY, "no memory to compile %s", b->what);
                goto out;
        }
        if ((code = tmpdir_make(dir, e)) ||
            (code = write_files(dir, b->headers->file, b->headers->n, "", e)) ||
            (code = write_files(dir, j.unit, n, b->suffix, e)))
                goto out;
        for (int i = 0; i < n; i++)
                snprintf(j.object[i], sizeof *j.object, "%.500s/%d.o", dir, i);
        parallel_for(n, host_compilers(), compile_unit, &j);
        if (stop_asked(b->stop) || (code = report_failure(&j, n, e)))
                goto out;
        snprintf(target, sizeof target, "%.500s/all.so", dir);
        if (links && (code = link_all(&j, n, target, e)))
                goto out;
        char *bytes;
        if (!(code = file_read_text(links ? target : j.object[0], MAX_OBJECT, &bytes, size, e)))
                *so = bytes;
out:
        tmpdir_remove(dir);
        free(j.object);
        free(j.status);
        free(j.log);
        stop_end(b->stop);
        if (!stop_asked(b->stop)) /* after stop_end: who saw us working is not overlooked */
                return code;
        free(*so);
        *so = 0;
        return err_set(e, TGC_STOPPED, "compiling %s was stopped", b->what);
}

int host_cc_build(const HostCc *cc, const HostBuild *b, int first, int n, void **so, size_t *size,
                  Err *e)
{
        return build(cc, b, first, n, true, so, size, e);
}

int host_cc_object(const HostCc *cc, const HostBuild *b, int first, void **object, size_t *size,
                   Err *e)
{
        return build(cc, b, first, 1, false, object, size, e);
}

/* ---- shared objects in memory ---- */

/* The folder of temporary files may forbid execution, /proc may be absent: try
 * both ways.  A memfd stays open until so_close, since dlopen knows libraries by
 * name, and a later /proc/self/fd/N of the same N would be taken for this one. */
/* Of a path or a file that it knows dlopen gives the object it has from there: another one, where
 * that could not be unloaded when its file was closed and the number went to a new file. */
static bool is_known(const char *path)
{
        void *other = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
        if (other)
                dlclose(other);
        return other;
}

int so_open(SharedObject *so, const void *data, size_t size, Err *e)
{
        char path[512] = "";

        *so = (SharedObject) { 0, memfd_create("tgc", MFD_CLOEXEC) };
        if (so->fd >= 0) {
                size_t done = 0;
                while (done < size) {
                        ssize_t n = write(so->fd, (const char *)data + done, size - done);
                        if (n < 0 && errno == EINTR)
                                continue;
                        if (n <= 0)
                                break;
                        done += (size_t)n;
                }
                snprintf(path, sizeof path, "/proc/self/fd/%d", so->fd);
                if (done == size && !is_known(path) &&
                    (so->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
                        return TGC_OK;
                close(so->fd);
                so->fd = -1;
        }
        char why[400];
        const char *msg = dlerror();
        snprintf(why, sizeof why, "%s", msg ? msg : "no memory file");
        snprintf(path, sizeof path, "%s/tgc-XXXXXX.so", tmp_root());
        int fd = mkostemps(path, 3, O_CLOEXEC);
        if (fd >= 0) {
                if (write(fd, data, size) == (ssize_t)size)
                        so->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
                close(fd);
                unlink(path);
        }
        return so->handle ? TGC_OK
                          : err_set(e, TGC_NO_DEVICE, "compiled code cannot be loaded: %s", why);
}

/* libgomp's threads outlive the object that started them. */
void so_pin_openmp(void)
{
        static const char *const name[] = { "libgomp.so.1", "libomp.so.5" };
        for (int i = 0; i < 2; i++)
                dlopen(name[i], RTLD_NOW | RTLD_NODELETE | RTLD_NOLOAD);
}

void *so_symbol(const SharedObject *so, const char *name)
{
        return so->handle ? dlsym(so->handle, name) : 0;
}

void so_close(SharedObject *so)
{
        if (so->handle)
                dlclose(so->handle);
        if (so->handle && so->fd >= 0)
                close(so->fd);
        *so = (SharedObject) { 0, -1 };
}

/* ---- this processor ---- */

void host_cpu_key(char hex[33])
{
        static const char *const want[] = { "model name", "flags", "Features", "CPU part",
                                            "CPU implementer" };
        CacheKey k;
        char *line = 0;
        size_t cap = 0;
        FILE *f = fopen("/proc/cpuinfo", "re");

        cache_key_begin(&k);
        while (f && getline(&line, &cap, f) > 0 && *line != '\n') /* the first processor's lines */
                for (size_t i = 0; i < sizeof want / sizeof *want; i++)
                        if (!strncmp(line, want[i], strlen(want[i])))
                                cache_key_text(&k, line);
        free(line);
        if (f)
                fclose(f);
        cache_key_end(&k, hex);
}
