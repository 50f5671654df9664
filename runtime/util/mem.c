/* mem.c: malloc and its kin, which record for each thread how many bytes the last failed call
 * wanted (mem.h). */
#include "mem.h"
#undef malloc
#undef calloc
#undef realloc
#undef aligned_alloc

static _Thread_local size_t refused;

size_t mem_refused(void)
{
        size_t n = refused;
        refused = 0;
        return n;
}

static void *look(void *p, size_t n)
{
        if (!p)
                refused = n;
        return p;
}

void *mem_alloc(size_t n) { return look(malloc(n), n); }
void *mem_resize(void *p, size_t n) { return look(realloc(p, n), n); }
void *mem_aligned(size_t align, size_t n) { return look(aligned_alloc(align, n), n); }

void *mem_zeroed(size_t n, size_t size)
{
        return look(calloc(n, size), size && n > (size_t)-1 / size ? (size_t)-1 : n * size);
}

char *mem_copy(const char *s, size_t most)
{
        size_t n = strnlen(s, most);
        char *p = mem_alloc(n + 1);
        if (p) {
                memcpy(p, s, n);
                p[n] = 0;
        }
        return p;
}

int mem_print(char **out, const char *fmt, va_list ap)
{
        va_list aq;
        va_copy(aq, ap);
        int n = vsnprintf(NULL, 0, fmt, aq);
        va_end(aq);
        *out = n < 0 ? NULL : mem_alloc((size_t)n + 1);
        return *out ? vsnprintf(*out, (size_t)n + 1, fmt, ap) : -1;
}
