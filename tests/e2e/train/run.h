/* run.h: tgc's command line in a child, and what a training run leaves behind.
 *
 * Whatever cannot be done fails the test that asked.  Kernels run on one thread
 * unless a test says otherwise: the models are small. */
#ifndef TGC_E2E_TRAIN_RUN_H
#define TGC_E2E_TRAIN_RUN_H

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../../child.h"
#include "../../test.h"
#include "../../../runtime/weights/checkpoint.h"
#include "../../../runtime/util/file.h"
#include "../../../runtime/weights/npy.h"

/* 65 different characters. */
static inline const char *text_file(void)
{
        return data_at(data_is_own() ? "text/stories.txt" : "text/tinyshakespeare.txt");
}

static char run_dir[256];      /* scratch, for all tests of the process */
static char run_said[1 << 14]; /* what the last run wrote to standard error */

/* ---- scratch ---- */

static inline const char *in_scratch(const char *name)
{
        static char path[16][512];
        static int k;
        if (!*run_dir) {
                const char *tmp = getenv("TMPDIR");
                snprintf(run_dir, sizeof run_dir, "%s/tgc-test-train-XXXXXX", tmp ? tmp : "/tmp");
                CHECK(mkdtemp(run_dir));
        }
        k = (k + 1) % 16;
        snprintf(path[k], sizeof path[k], "%s/%s", run_dir, name);
        return path[k];
}

static inline void must(int code, const Err *e) { CHECK_MSG(!code, "%s", e->msg); }

static inline void wait_ms(int ms)
{
        nanosleep(&(struct timespec) { ms / 1000, ms % 1000 * 1000000L }, NULL);
}

/* ---- running ---- */

/* Words are separated by blanks. */
static inline pid_t begin(const char *line)
{
        static char words[8192];
        char *argv[128] = { "tgc" };
        int argc = 1;
        snprintf(words, sizeof words, "%s", line);
        for (char *w = strtok(words, " "); w && argc < 127; w = strtok(NULL, " "))
                argv[argc++] = w;
        return child_begin(argc, argv, "/dev/null", in_scratch("out"), in_scratch("err"));
}

/* Its exit code; 1000 + the signal where one ended it. */
static inline int finish(pid_t pid)
{
        const int code = child_end(pid);
        child_read(in_scratch("err"), run_said, sizeof run_said);
        return code;
}

static inline void tgc(int want, const char *fmt, ...)
{
        char line[8192];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        int code = finish(begin(line));
        CHECK_MSG(code == want, "tgc %s\n  gave exit code %d, not %d: %s", line, code, want,
                  run_said);
}

/* ---- what is left behind ---- */

typedef struct Row {
        double step, lr, loss, aux_loss, grad_norm;
} Row;

static inline int read_csv(const char *path, Row *row, int most)
{
        char line[512];
        int n = 0;
        FILE *f = fopen(path, "r");
        CHECK_MSG(f, "%s: cannot be opened", path);
        while (n < most && fgets(line, sizeof line, f))
                n += sscanf(line, "%lf,%lf,%lf,%lf,%lf", &row[n].step, &row[n].lr, &row[n].loss,
                            &row[n].aux_loss, &row[n].grad_norm) == 5;
        fclose(f);
        return n;
}

static inline bool same_bytes(const char *a, const char *b)
{
        FileMap x = { 0 }, y = { 0 };
        bool same = !file_map(&x, a, NULL) && !file_map(&y, b, NULL) && x.size == y.size &&
                    !memcmp(x.data, y.data, x.size);
        file_unmap(&x);
        file_unmap(&y);
        return same;
}

/* Offsets as --batch_offsets takes them: int64 [steps, accumulation, batch]. */
static inline void write_offsets(const char *path, int steps, int accum, int batch,
                                 const int64_t *at)
{
        char head[128];
        Err e = { 0 };
        size_t n = (size_t)steps * (size_t)accum * (size_t)batch * sizeof *at;
        char *mem = malloc(sizeof head + n);
        CHECK(mem);
        memset(head, ' ', sizeof head);
        memcpy(head, "\x93NUMPY\1\0\x76\0", 10);
        int k = snprintf(head + 10, 110,
                         "{'descr': '<i8', 'fortran_order': False, 'shape': (%d, %d, %d), }", steps,
                         accum, batch);
        head[10 + k] = ' ';
        head[127] = '\n';
        memcpy(mem, head, sizeof head);
        memcpy(mem + sizeof head, at, n);
        int code = file_write_atomic(path, mem, sizeof head + n, &e);
        free(mem);
        must(code, &e);
}

/* ---- tensors ---- */

static inline Checkpoint *weights_of(const char *path)
{
        Checkpoint *ck;
        Err e = { 0 };
        must(checkpoint_open(&ck, path, &e), &e);
        return ck;
}

/* Sums of squares, for relative norms. */
typedef struct Gap {
        double diff, size;
} Gap;

static inline double gap_of(Gap g) { return sqrt(g.diff / (g.size > 0 ? g.size : 1e-30)); }

static inline Gap gap(const float *a, const float *b, size_t n)
{
        Gap g = { 0, 0 };
        for (size_t i = 0; i < n; i++) {
                g.diff += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
                g.size += (double)b[i] * b[i];
        }
        return g;
}

#endif
