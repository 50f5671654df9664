/* cli_quiet.h: tgc in a child process of which only standard error is kept, for tests that run it
 * often. */
#ifndef CLI_QUIET_H
#define CLI_QUIET_H

#include <stdlib.h>
#include "cli/load/open.h"
#include "runtime/util/file.h"
#include "child.h"
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
        snprintf(path, sizeof path, "%s/err", dir);
        int code = child_end(child_begin(argc, argv, "/dev/null", "/dev/null", path));
        child_read(path, err, sizeof err);
        return code;
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
