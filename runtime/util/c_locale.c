/* c_locale.c: numbers with a decimal point in every locale (c_locale.h). */
#include "c_locale.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Of glibc and musl an object that is always there: nothing to free, no failure. */
static locale_t plain(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }

locale_t c_locale_begin(void) { return uselocale(plain()); }

void c_locale_end(locale_t was) { uselocale(was); }

double c_strtod(const char *s, char **end) { return strtod_l(s, end, plain()); }

int c_format(char *out, size_t cap, const char *fmt, ...)
{
        locale_t was = c_locale_begin();
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(out, cap, fmt, ap);
        va_end(ap);
        c_locale_end(was);
        return n;
}
