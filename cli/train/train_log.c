/* train_log.c: implements train_log.h.  A row is one system call, so earlier rows are in the file
 * at any moment. */
#include "train_log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../../runtime/util/file.h"

int log_write(const LogFile *f, const void *data, size_t n, Err *e)
{
        for (const char *p = data; n;) {
                ssize_t k = write(f->fd, p, n);
                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return err_set(e, TGC_IO, "%s: %s", f->path,
                                       strerror(k < 0 ? errno : ENOSPC));
                p += k;
                n -= (size_t)k;
        }
        return TGC_OK;
}

/* Lines of which step the file has; head is what stands before the number. */
static int open_file(LogFile *f, const char *head, int64_t from, size_t *keep, Err *e)
{
        struct stat st;
        char *old = NULL;
        size_t n = 0;
        int code = TGC_OK;
        *keep = 0;
        bool file = stat(f->path, &st) || S_ISREG(st.st_mode);
        if (from && file && file_exists(f->path) &&
            (code = file_read_text(f->path, 1 << 30, &old, &n, e)))
                return code;
        while (*keep < n) {
                const char *line = old + *keep, *eol = memchr(line, '\n', n - *keep),
                           *at = line + strlen(head);
                if (!eol || (!strncmp(line, head, strlen(head)) && *at >= '0' && *at <= '9' &&
                             strtoll(at, NULL, 10) >= from))
                        break;
                *keep += (size_t)(eol - line) + 1;
        }
        free(old);
        f->fd = open(f->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666);
        if (f->fd < 0 || (file && ftruncate(f->fd, (off_t)*keep)))
                return err_set(e, TGC_IO, "%s: %s", f->path, strerror(errno));
        return TGC_OK;
}

int log_open(TrainLog *l, const char *dir, const char *csv, int events, int64_t from, Err *e)
{
        static const char head[] = "step,lr,loss,aux_loss,grad_norm,val_loss\n";
        size_t keep;
        l->csv.path = csv ? strdup(csv) : file_join(dir, "log.csv");
        l->jsonl.path = file_join(dir, "log.jsonl");
        if (!l->csv.path || !l->jsonl.path)
                return err_set(e, TGC_NO_MEMORY, "no memory for the log");
        int code = open_file(&l->csv, "", from, &keep, e);
        if (!code && !keep)
                code = log_write(&l->csv, head, sizeof head - 1, e);
        if (!code)
                code = open_file(&l->jsonl, "{\"step\":", from, &keep, e);
        return !code && events ? tb_open(&l->events, dir, from, e) : code;
}

static int csv_row(TrainLog *l, const LogRow *r, Err *e)
{
        char line[512];
        int k;
        if (isnan(r->lr))
                k = snprintf(line, sizeof line, "%lld,,,,,", (long long)r->step);
        else
                k = snprintf(line, sizeof line, "%lld,%.9g,%.8f,%.8f,%.8f,", (long long)r->step,
                             r->lr, r->loss, r->aux_loss, r->grad_norm);
        k += snprintf(line + k, sizeof line - (size_t)k, isnan(r->val_loss) ? "\n" : "%.8f\n",
                      r->val_loss);
        return log_write(&l->csv, line, (size_t)k, e);
}

static int other_rows(TrainLog *l, const LogRow *r, Err *e)
{
        const TbScalar s[] = { { "loss", r->loss },
                               { "val_loss", r->val_loss },
                               { "lr", r->lr },
                               { "grad_norm", r->grad_norm },
                               { "tokens_per_s", r->tokens_per_s },
                               { "score", r->score },
                               /* of the JSON alone */
                               { "aux_loss", r->aux_loss },
                               { "tokens", r->tokens },
                               { "seconds", r->seconds } };
        enum { ALL = sizeof s / sizeof *s, SHOWN = 6 };
        char line[1024];
        int k = snprintf(line, sizeof line, "{\"step\":%lld", (long long)r->step);
        for (int i = 0; i < ALL; i++)
                if (isfinite(s[i].value))
                        k += snprintf(line + k, sizeof line - (size_t)k, ",\"%s\":%.9g", s[i].tag,
                                      s[i].value);
        k += snprintf(line + k, sizeof line - (size_t)k, "}\n");
        int code = log_write(&l->jsonl, line, (size_t)k, e);
        /* TensorBoard has no step before the first */
        return code || l->events.fd < 0 ? code : tb_scalars(&l->events, r->step + 1, s, SHOWN, e);
}

int log_step_row(TrainLog *l, const LogRow *r, Err *e)
{
        int code = csv_row(l, r, e);
        return code ? code : other_rows(l, r, e);
}

int log_score_row(TrainLog *l, const LogRow *r, Err *e) { return other_rows(l, r, e); }

void log_sync(TrainLog *l)
{
        const int fd[] = { l->csv.fd, l->jsonl.fd, l->events.fd };
        for (int i = 0; i < 3; i++)
                if (fd[i] >= 0)
                        fsync(fd[i]); /* a pipe has none */
}

void log_close(TrainLog *l)
{
        LogFile *f[] = { &l->csv, &l->jsonl, &l->events };
        for (int i = 0; i < 3; i++) {
                if (f[i]->path && f[i]->fd >= 0)
                        close(f[i]->fd);
                free(f[i]->path);
                *f[i] = (LogFile) { .fd = -1 };
        }
}
