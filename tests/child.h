/* child.h: tgc in a child process, its standard files in files: for tests of the command line. */
#ifndef TGC_TEST_CHILD_H
#define TGC_TEST_CHILD_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cli/cli.h"

/* Within a child: it ends with 99 where that cannot be. */
static inline void redirect(const char *path, int fd, int flags)
{
        int f = open(path, flags, 0666);
        if (f < 0 || dup2(f, fd) < 0)
                _exit(99);
}

/* The file of that name, as far as to[cap] holds it; empty where there is none. */
static inline void child_read(const char *path, char *to, size_t cap)
{
        FILE *f = fopen(path, "rb");
        size_t n = f ? fread(to, 1, cap - 1, f) : 0;
        to[n] = 0;
        if (f)
                fclose(f);
}

/* Starts tgc with these words, argv[0] its name; out and err are made anew. */
static inline pid_t child_begin(int argc, char **argv, const char *in, const char *out,
                                const char *err)
{
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
                redirect(in, 0, O_RDONLY);
                redirect(out, 1, O_CREAT | O_WRONLY | O_TRUNC);
                redirect(err, 2, O_CREAT | O_WRONLY | O_TRUNC);
                int code = tgc_main(argc, argv);
                fflush(stdout);
                _exit(code);
        }
        return pid;
}

/* Its exit code; 1000 + the signal where one ended it. */
static inline int child_end(pid_t pid)
{
        int status = 0;
        waitpid(pid, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#endif
