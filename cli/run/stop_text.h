/* stop_text.h: texts that end a generation. */
#ifndef TGC_STOP_TEXT_H
#define TGC_STOP_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define STOP_NONE SIZE_MAX

/* Where the first of them stands in the text; none of them is empty. */
size_t stop_find(const char *const *stop, int n, const char *text, size_t len);
/* Bytes at the end of the text that one of them may begin with: not to be shown yet. */
size_t stop_begun(const char *const *stop, int n, const char *text, size_t len);

#endif
