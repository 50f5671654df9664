/* arena.c: an allocator that is freed all at once, and a growing text. */
#include "ir.h"
#include <locale.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 16 };

typedef struct Block {
        struct Block *next;
        size_t used, cap;
        _Alignas(16) char mem[];
} Block;
struct Arena {
        Block *top;
        size_t size;
};

/* Has it no directives but %s, %d, %lld and %%? */
static bool is_plain(const char *fmt)
{
        while ((fmt = strchr(fmt, '%')))
                if (fmt[1] == 's' || fmt[1] == 'd' || fmt[1] == '%')
                        fmt += 2;
                else if (!strncmp(fmt + 1, "lld", 3))
                        fmt += 4;
                else
                        return false;
        return true;
}

/* The digits of v, which end at `end`. */
static char *digits(char *end, long long v)
{
        unsigned long long u = v < 0 ? 0ull - (unsigned long long)v : (unsigned long long)v;
        do
                *--end = (char)('0' + u % 10);
        while (u /= 10);
        if (v < 0)
                *--end = '-';
        return end;
}

/* vsnprintf of such a format.  A fifth of the time to compile goes into text. */
static int format_plain(char *to, size_t cap, const char *fmt, va_list ap)
{
        size_t at = 0;
        while (*fmt) {
                char number[24], *end = number + sizeof number;
                const char *s = fmt;
                size_t n = *fmt == '%' ? 1 : strcspn(fmt, "%");
                if (*fmt != '%') {
                        fmt += n;
                } else if (fmt[1] == '%') {
                        fmt += 2;
                } else if (fmt[1] == 's') {
                        s = va_arg(ap, const char *);
                        n = strlen(s);
                        fmt += 2;
                } else {
                        s = digits(end, fmt[1] == 'd' ? va_arg(ap, int) : va_arg(ap, long long));
                        n = (size_t)(end - s);
                        fmt += fmt[1] == 'd' ? 2 : 4;
                }
                if (at < cap)
                        memcpy(to + at, s, n < cap - at ? n : cap - at);
                at += n;
        }
        if (cap)
                to[at < cap ? at : cap - 1] = 0;
        return (int)at;
}

/* vsnprintf with a point in numbers, whatever the program's locale has. */
static int format(char *to, size_t cap, const char *fmt, va_list ap)
{
        if (is_plain(fmt))
                return format_plain(to, cap, fmt, ap);
        locale_t was = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
        int n = vsnprintf(to, cap, fmt, ap);
        uselocale(was);
        return n;
}

/* Unwinds to the driver; what is lost on the way hardly matters now. */
static _Noreturn void no_memory(size_t n)
{
        error_code(5, (Loc) { 0 }, "the compiler is out of memory: no %zu bytes more", n);
}

void *mem_new(size_t n)
{
        void *p = calloc(1, n ? n : 1);
        if (!p)
                no_memory(n);
        return p;
}

void *mem_grow(void *p, size_t n)
{
        p = realloc(p, n);
        if (!p)
                no_memory(n);
        return p;
}

static Block *block_new(Block *next, size_t cap)
{
        Block *b = mem_grow(NULL, sizeof *b + cap);
        b->next = next;
        b->used = 0;
        b->cap = cap;
        return b;
}

Arena *arena_new(void)
{
        Arena *a = mem_new(sizeof *a);
        a->top = block_new(NULL, BLOCK);
        a->size = BLOCK;
        return a;
}

size_t arena_size(const Arena *a) { return a->size; }

void arena_clear(Arena *a)
{
        while (a->top->next) {
                Block *b = a->top;
                a->top = b->next;
                a->size -= b->cap;
                free(b);
        }
        a->top->used = 0;
}

void arena_free(Arena *a)
{
        if (!a)
                return;
        arena_clear(a);
        free(a->top);
        free(a);
}

void *arena_alloc(Arena *a, size_t n)
{
        void *p;
        n = (n + 15) & ~(size_t)15;
        if (a->top->cap - a->top->used < n) {
                a->top = block_new(a->top, n > BLOCK / 4 ? n : BLOCK);
                a->size += a->top->cap;
        }
        p = a->top->mem + a->top->used;
        a->top->used += n;
        return memset(p, 0, n);
}

void *arena_grow(Arena *a, void *array, int n, int *cap, size_t size)
{
        if (n < *cap)
                return array;
        *cap = *cap ? *cap * 2 : 64;
        void *to = arena_alloc(a, (size_t)*cap * size);
        return n ? memcpy(to, array, (size_t)n * size) : to;
}

char *arena_str(Arena *a, const char *s)
{
        size_t n = strlen(s) + 1;
        return memcpy(arena_alloc(a, n), s, n);
}

char *arena_fmt(Arena *a, const char *fmt, ...)
{
        char buf[512], *s;
        va_list ap, aq;
        va_start(ap, fmt);
        va_copy(aq, ap);
        const size_t n = (size_t)format(buf, sizeof buf, fmt, ap) + 1;
        s = arena_alloc(a, n);
        if (n <= sizeof buf)
                memcpy(s, buf, n);
        else
                format(s, n, fmt, aq);
        va_end(aq);
        va_end(ap);
        return s;
}

void text_put(Text *t, const char *s, size_t n)
{
        if (t->n + n + 1 > t->cap) {
                size_t cap = (t->n + n + 1) * 2;
                t->s = mem_grow(t->s, cap);
                t->cap = cap;
        }
        memcpy(t->s + t->n, s, n);
        t->n += n;
        t->s[t->n] = 0;
}

void text_add(Text *t, const char *fmt, ...)
{
        char buf[512];
        va_list ap, aq;
        int n;
        va_start(ap, fmt);
        va_copy(aq, ap);
        n = format(buf, sizeof buf, fmt, ap);
        if ((size_t)n < sizeof buf) {
                text_put(t, buf, (size_t)n);
        } else {
                char *big = mem_new((size_t)n + 1);
                format(big, (size_t)n + 1, fmt, aq);
                text_put(t, big, (size_t)n);
                free(big);
        }
        va_end(aq);
        va_end(ap);
}

void text_free(Text *t)
{
        free(t->s);
        *t = (Text) { 0 };
}
