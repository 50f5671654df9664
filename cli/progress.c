/* progress.c: messages on standard error, a progress bar, numbers with units. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "cli.h"

Progress progress_new(const Args *a)
{
        const char *log = getenv("TGC_LOG"), *no = getenv("NO_COLOR"), *term = getenv("TERM");
        Progress s = { .quiet = opt_flag(a, O_QUIET) || (log && !strcmp(log, "quiet")) };
        s.color = isatty(2) && !(no && *no) && term && strcmp(term, "dumb");
        s.tty = s.color && !s.quiet;
        return s;
}

void say(const Progress *s, const char *fmt, ...)
{
        va_list ap;
        if (s->quiet)
                return;
        va_start(ap, fmt);
        vprint_plain(stderr, fmt, ap);
        va_end(ap);
}

/* Messages of readers begin with a place, and say "error:" themselves. */
void say_error(const char *msg)
{
        const char *no = getenv("NO_COLOR");
        bool placed = strstr(msg, ": error: ") != NULL, color = isatty(2) && !(no && *no);
        if (!placed)
                fprintf(stderr, "tgc: %serror:%s ", color ? "\033[1;31m" : "",
                        color ? "\033[0m" : "");
        put_message(stderr, msg);
        fputc('\n', stderr);
}

void progress_bar(const Progress *s, double part, const char *fmt, ...)
{
        enum { WIDTH = 24 };
        va_list ap;
        if (!s->tty)
                return;
        int full = (int)(WIDTH * (part < 0 ? 0 : part > 1 ? 1 : part));
        fprintf(stderr, "\r[");
        for (int i = 0; i < WIDTH; i++)
                fputc(i < full ? '#' : '.', stderr);
        fprintf(stderr, "] ");
        va_start(ap, fmt);
        vprint_plain(stderr, fmt, ap);
        va_end(ap);
        fprintf(stderr, "\033[K");
        fflush(stderr);
}

void progress_bar_end(const Progress *s)
{
        if (s->tty)
                fprintf(stderr, "\r\033[K");
}

double clock_s(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const char *scaled(char *buf, size_t cap, double x, const char *const *unit, int n)
{
        int k = 0;
        while (k + 1 < n && fabs(x) >= 999.5) {
                x /= 1000;
                k++;
        }
        snprintf(buf, cap, k ? "%.3g%s" : "%.0f%s", x, unit[k]);
        return buf;
}

const char *text_bytes(char *buf, size_t cap, double bytes)
{
        static const char *const unit[] = { " B", " kB", " MB", " GB", " TB" };
        return scaled(buf, cap, bytes, unit, 5);
}

const char *text_count_si(char *buf, size_t cap, double n)
{
        static const char *const unit[] = { "", "k", "M", "G", "T" };
        return scaled(buf, cap, n, unit, 5);
}

int out_done(Err *e)
{
        if (print_lost)
                return err_set(e, TGC_NO_MEMORY, "no memory for what is printed");
        errno = 0;
        if (fflush(stdout) || ferror(stdout))
                return err_set(e, TGC_IO, "standard output: %s",
                               errno ? strerror(errno) : "cannot be written");
        return TGC_OK;
}
