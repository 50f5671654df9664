/* mem.h: allocation that records the size that was refused.
 *
 * Files that include err.h get these in place of malloc and its kin.  They behave the same.  When
 * one fails, err_set adds the size to the message of the TGC_NO_MEMORY that follows.  free is
 * unchanged. */
#ifndef TGC_MEM_H
#define TGC_MEM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *mem_alloc(size_t n) __attribute__((malloc));
void *mem_zeroed(size_t n, size_t size) __attribute__((malloc));
void *mem_resize(void *p, size_t n);
void *mem_aligned(size_t align, size_t n) __attribute__((malloc));
char *mem_copy(const char *s, size_t most) __attribute__((malloc)); /* strndup */
/* vasprintf; NULL when it fails */
int mem_print(char **out, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* What the last failed allocation of this thread wanted, once; 0: nothing failed since. */
size_t mem_refused(void);

#undef strdup
#undef strndup
#define malloc(n) mem_alloc(n)
#define calloc(n, size) mem_zeroed(n, size)
#define realloc(p, n) mem_resize(p, n)
#define aligned_alloc(a, n) mem_aligned(a, n)
#define strdup(s) mem_copy(s, (size_t)-1)
#define strndup(s, n) mem_copy(s, n)
#define vasprintf(p, f, ap) mem_print(p, f, ap)

#endif
