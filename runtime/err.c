#include "err.h"
#include <stdarg.h>
#include <stdio.h>

int err_set(Err *e, int code, const char *fmt, ...)
{
        if (e) {
                va_list ap;
                e->code = code;
                va_start(ap, fmt);
                vsnprintf(e->msg, sizeof e->msg, fmt, ap);
                va_end(ap);
        }
        return code;
}
