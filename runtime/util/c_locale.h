/* c_locale.h: numbers in files have a decimal point, whatever the program's locale is.
 *
 * Between begin and end the calling thread has the locale "C".  printf, strtod and libraries see
 * it; other threads do not.  The library's entry points and its threads use this pair.  Code that
 * reads or writes one number uses the two functions below. */
#ifndef TGC_C_LOCALE_H
#define TGC_C_LOCALE_H

#include <locale.h>
#include <stddef.h>

locale_t c_locale_begin(void); /* the thread's own, for end */
void c_locale_end(locale_t was);

double c_strtod(const char *s, char **end);
/* snprintf */
int c_format(char *out, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
