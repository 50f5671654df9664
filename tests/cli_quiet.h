/* cli_quiet.h: tgc in a child process of which only standard error is kept, for tests that run it
 * often. */
#ifndef CLI_QUIET_H
#define CLI_QUIET_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cli/work.h"
#include "runtime/util/file.h"
#include "test.h"

static char dir[256]; /* scratch, for all tests of the process */
static char err[1 << 14];

static inline void scratch_make(void)
{
        if (*dir)
                return;
        snprintf(dir, sizeof dir, "%s/tgc-test-XXXXXX",
                 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
        CHECK(mkdtemp(dir));
}

/* Its exit code; 1000 + the signal where one ended it. */
static inline int run(char **argv, int argc)
{
        char path[300];
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
                int null = open("/dev/null", O_RDWR), f;
                snprintf(path, sizeof path, "%s/err", dir);
                f = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0666);
                dup2(null, 0);
                dup2(null, 1);
                dup2(f, 2);
                int code = tgc_main(argc, argv);
                fflush(stdout);
                _exit(code);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        snprintf(path, sizeof path, "%s/err", dir);
        FILE *f = fopen(path, "rb");
        size_t n = f ? fread(err, 1, sizeof err - 1, f) : 0;
        err[n] = 0;
        if (f)
                fclose(f);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* '@' stands for the scratch folder; words are separated by blanks. */
static inline int tgc(const char *line)
{
        static char words[4096];
        char *argv[64] = { "tgc" };
        size_t n = 0;
        int argc = 1;
        scratch_make();
        for (; *line && n + 1 < sizeof words; line++)
                n += (size_t)snprintf(words + n, sizeof words - n, "%.*s", *line == '@' ? 255 : 1,
                                      *line == '@' ? dir : line);
        words[n] = 0;
        for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
                argv[argc++] = w;
        return run(argv, argc);
}

#endif
