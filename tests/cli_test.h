/* cli_test.h: tgc in a child process, for tests of the command line. */
#ifndef CLI_TEST_H
#define CLI_TEST_H

#include <stdlib.h>
#include "cli/load/open.h"
#include "runtime/util/file.h"
#include "child.h"
#include "test.h"

typedef struct Result {
        int code;
        char out[1 << 18], err[1 << 14];
} Result;
static Result r;
static char dir[256];                   /* scratch, for all tests of the process */
static const char *input = "/dev/null"; /* standard input of what is run */

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
        snprintf(words, sizeof words, "%s", line);
        for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) {
                for (char *s = w; *s; s++)
                        *s = *s == '~' ? ' ' : *s;
                argv[argc++] = w;
        }
        return child_begin(argc, argv, input, scratch("out"), scratch("err"));
}

static inline int finish(pid_t pid)
{
        r.code = child_end(pid);
        child_read(scratch("out"), r.out, sizeof r.out);
        child_read(scratch("err"), r.err, sizeof r.err);
        return r.code;
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
