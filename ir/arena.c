/* arena.c: memory that is freed all at once, and a growing text. */
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

/* vsnprintf with a point in numbers, whatever the program's locale has. */
static int format(char *to, size_t cap, const char *fmt, va_list ap)
{
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
        va_list ap, aq;
        int n;
        char *s;
        va_start(ap, fmt);
        va_copy(aq, ap);
        n = format(NULL, 0, fmt, ap);
        s = arena_alloc(a, (size_t)n + 1);
        format(s, (size_t)n + 1, fmt, aq);
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
