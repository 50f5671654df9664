/* diag.c: reports errors in the user's input.  error_at formats the place, the line and a caret,
 * and unwinds to the nearest DIAG_CATCH, as Lua's errors do. */
#include "ir.h"
#include <stdlib.h>
#include <string.h>

_Thread_local Diag *diag_top;
enum { DEEPEST = 16 };
static _Thread_local Diag *stack[DEEPEST];
static _Thread_local int depth;

void diag_begin(Diag *d)
{
        if (depth == DEEPEST)
                abort();
        d->msg[0] = 0;
        d->code = 0;
        d->source = diag_top ? diag_top->source : NULL;
        d->source_file = diag_top ? diag_top->source_file : NULL;
        stack[depth++] = diag_top;
        diag_top = d;
}

void diag_end(Diag *d)
{
        (void)d;
        diag_top = stack[--depth];
}

/* Bytes of the character at s, if it is one that may be printed: UTF-8 beyond the control
 * characters; 0: not. */
static size_t plain_char(const unsigned char *s)
{
        size_t n = *s < 0x80                 ? 1
                   : *s >= 0xc2 && *s < 0xe0 ? 2
                   : *s >= 0xe0 && *s < 0xf0 ? 3
                   : *s >= 0xf0 && *s < 0xf5 ? 4
                                             : 0;
        for (size_t i = 1; i < n; i++)
                if ((s[i] & 0xc0) != 0x80)
                        return 0;
        if ((n == 1 && (*s < ' ' || *s == 127)) || (*s == 0xc2 && s[1] < 0xa0) ||
            (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) ||
            (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] > 0x8f))
                return 0;
        return n;
}

const char *loc_name(Loc loc, char *buf)
{
        const char *slash = strrchr(loc.file, '/');
        const unsigned char *s = (const unsigned char *)(slash && slash[1] ? slash + 1 : loc.file);
        size_t at = 0;
        while (*s && at < LOC_NAME - 5) {
                size_t n = plain_char(s);
                if (n)
                        memcpy(buf + at, s, n);
                else
                        buf[at] = '?';
                if (buf[at] == ' ')
                        buf[at] = '_';
                at += n ? n : 1;
                s += n ? n : 1;
        }
        buf[at] = 0;
        return buf;
}

/* The line of the source and a caret under the column. */
static void show_line(Diag *d, Loc loc, size_t n)
{
        const char *s = d->source;
        int line = 1;
        if (!s || !loc.line || !loc.file || !d->source_file || strcmp(loc.file, d->source_file))
                return;
        while (line < loc.line && (s = strchr(s, '\n')))
                s++, line++;
        if (!s || n >= sizeof d->msg - 2)
                return;
        int len = (int)strcspn(s, "\n");
        n += (size_t)snprintf(d->msg + n, sizeof d->msg - n, "\n    %.*s", len > 160 ? 160 : len,
                              s);
        if (loc.col > 0 && loc.col <= 160 && n < sizeof d->msg - 2)
                snprintf(d->msg + n, sizeof d->msg - n, "\n    %*s^", loc.col - 1, "");
}

static _Noreturn void fail(int code, Loc loc, const char *fmt, va_list ap)
{
        Diag *d = diag_top;
        size_t n = 0;
        if (!d) {
                vfprintf(stderr, fmt, ap);
                fputc('\n', stderr);
                abort();
        }
        if (loc.file && loc.line && loc.col)
                n = (size_t)snprintf(d->msg, sizeof d->msg, "%s:%d:%d: error: ", loc.file, loc.line,
                                     loc.col);
        else if (loc.file && loc.line)
                n = (size_t)snprintf(d->msg, sizeof d->msg, "%s:%d: error: ", loc.file, loc.line);
        else if (loc.file)
                n = (size_t)snprintf(d->msg, sizeof d->msg, "%s: error: ", loc.file);
        if (n < sizeof d->msg)
                n += (size_t)vsnprintf(d->msg + n, sizeof d->msg - n, fmt, ap);
        if (n < sizeof d->msg)
                show_line(d, loc, n);
        d->code = code;
        diag_end(d);
        longjmp(d->out, 1);
}

void error_at(Loc loc, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        fail(3, loc, fmt, ap);
}

void error_code(int code, Loc loc, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        fail(code, loc, fmt, ap);
}

/* What no graph should bring about, where going on would write wrong code. */
void error_internal(Loc loc, const char *fmt, ...)
{
        char what[1024];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(what, sizeof what, fmt, ap);
        va_end(ap);
        error_code(1, loc,
                   "internal error: %s; this is a mistake in tgc, please report it with the model",
                   what);
}

void diag_pass_on(const Diag *from)
{
        Diag *d = diag_top;
        if (!d) {
                fprintf(stderr, "%s\n", from->msg);
                abort();
        }
        snprintf(d->msg, sizeof d->msg, "%s", from->msg);
        d->code = from->code;
        diag_end(d);
        longjmp(d->out, 1);
}
