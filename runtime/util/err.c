/* err.c: a status and its message (err.h). */
#include "err.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(Err *e, int code, const char *fmt, ...)
{
        if (e) {
                va_list ap;
                e->code = code;
                va_start(ap, fmt);
                vsnprintf(e->msg, sizeof e->msg, fmt, ap);
                va_end(ap);
                size_t n = code == TGC_NO_MEMORY ? mem_refused() : 0, at = strlen(e->msg);
                if (n && !strstr(e->msg, " bytes") && at < sizeof e->msg)
                        snprintf(e->msg + at, sizeof e->msg - at, " (%zu bytes)", n);
        }
        return code;
}
