/* cli_test.h: tgc in a child process, for tests of the command line. */
#ifndef CLI_TEST_H
#define CLI_TEST_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cli/work.h"
#include "runtime/util/file.h"
#include "test.h"

typedef struct Result {
        int code;
        char out[1 << 18], err[1 << 14];
} Result;
static Result r;
static char dir[256];                   /* scratch, for all tests of the process */
static const char *input = "/dev/null"; /* standard input of what is run */

static inline void slurp(const char *path, char *to, size_t cap)
{
        FILE *f = fopen(path, "rb");
        size_t n = f ? fread(to, 1, cap - 1, f) : 0;
        to[n] = 0;
        if (f)
                fclose(f);
}

static inline void redirect(const char *path, int fd, int flags)
{
        int f = open(path, flags, 0666);
        if (f < 0 || dup2(f, fd) < 0)
                _exit(99);
}

static inline const char *scratch(const char *name)
{
        static char path[8][512];
        static int k;
        if (!*dir) {
                snprintf(dir, sizeof dir, "%s/tgc-test-cli-XXXXXX",
                         getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
                CHECK(mkdtemp(dir));
        }
        k = (k + 1) % 8;
        snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
        return path[k];
}

/* Words are separated by blanks; '~' stands for a blank within one. */
static inline pid_t begin(const char *line)
{
        static char words[4096];
        char *argv[64] = { "tgc" };
        int argc = 1;
        const char *out = scratch("out"), *err = scratch("err");
        snprintf(words, sizeof words, "%s", line);
        for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) {
                for (char *s = w; *s; s++)
                        *s = *s == '~' ? ' ' : *s;
                argv[argc++] = w;
        }
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
                redirect(input, 0, O_RDONLY);
                redirect(out, 1, O_CREAT | O_WRONLY | O_TRUNC);
                redirect(err, 2, O_CREAT | O_WRONLY | O_TRUNC);
                int code = tgc_main(argc, argv);
                fflush(stdout);
                _exit(code);
        }
        return pid;
}

static inline int finish(pid_t pid)
{
        int status = 0;
        waitpid(pid, &status, 0);
        slurp(scratch("out"), r.out, sizeof r.out);
        slurp(scratch("err"), r.err, sizeof r.err);
        return r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static inline int tgc(const char *line) { return finish(begin(line)); }

/* '@' stands for the scratch folder. */
static inline void in_dir(char *to, size_t cap, const char *text)
{
        size_t n = 0;
        for (; *text && n + 1 < cap; text++)
                n += (size_t)snprintf(to + n, cap - n, "%.*s", *text == '@' ? 255 : 1,
                                      *text == '@' ? dir : text);
}

static inline void write_file(const char *path, const char *text)
{
        Err e;
        CHECK_MSG(!file_write_atomic(path, text, strlen(text), &e), "%s", e.msg);
}

#define EXPECT(line, want, text)                                                              \
        do {                                                                                  \
                tgc(line);                                                                    \
                CHECK_MSG(r.code == (want), "tgc %s: exit code %d, not %d: %s", line, r.code, \
                          want, r.err);                                                       \
                CHECK_MSG(strstr(r.err, text), "tgc %s: no '%s' in: %s", line, text, r.err);  \
        } while (0)

#endif
