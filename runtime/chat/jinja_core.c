/* jinja_core.c: memory and failures of a parse or a rendering. */
#include <stdlib.h>
#include <string.h>
#include "jinja.h"

typedef struct PoolChunk {
        struct PoolChunk *next;
        size_t n, cap;
        max_align_t at[];
} PoolChunk;

enum { CHUNK = 64 << 10 };

/* Zeroed; NULL: no memory, or beyond most. */
static void *pool_get(Pool *p, size_t n)
{
        const size_t align = sizeof(max_align_t);
        PoolChunk *c = p->chunk;
        if (n > p->most)
                return NULL;
        n = (n + align - 1) / align * align;
        if (!c || c->cap - c->n < n) {
                size_t cap = n > CHUNK ? n : CHUNK;
                if (p->used + cap > p->most || !(c = malloc(sizeof *c + cap)))
                        return NULL;
                *c = (PoolChunk) { p->chunk, 0, cap };
                p->chunk = c;
                p->used += cap;
        }
        void *at = (char *)c->at + c->n;
        c->n += n;
        return memset(at, 0, n);
}

void pool_free(Pool *p)
{
        while (p->chunk) {
                PoolChunk *next = p->chunk->next;
                free(p->chunk);
                p->chunk = next;
        }
        p->used = 0;
}

void *j_get(J *j, size_t n)
{
        void *p = pool_get(j->pool, n);
        if (!p)
                j_no_memory(j);
        return p;
}

void *j_copy(J *j, const void *p, size_t n)
{
        void *out = j_get(j, n + 1);
        if (n)
                memcpy(out, p, n);
        return out;
}

/* n bytes moved to where there is room for more. */
void *j_grow(J *j, void *p, size_t n, size_t more)
{
        void *out = j_get(j, n + more);
        if (n)
                memcpy(out, p, n);
        return out;
}

static _Noreturn void unwind(J *j, int code, const char *msg)
{
        err_set(j->e, code, "%s:%d:%d: error: %s", j->name, j->line, j->col, msg);
        longjmp(j->out, 1);
}

void j_fail(J *j, const char *fmt, ...)
{
        char msg[700];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(msg, sizeof msg, fmt, ap);
        va_end(ap);
        unwind(j, TGC_BAD_FILE, msg);
}

void j_lacks(J *j, const char *fmt, ...)
{
        char msg[600];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(msg, sizeof msg, fmt, ap);
        va_end(ap);
        j_fail(j, "%s is not supported", msg);
}

void j_no_memory(J *j)
{
        if (j->pool->used + CHUNK > j->pool->most || !mem_refused())
                j_fail(j, "the template makes more than %zu MB of values", j->pool->most >> 20);
        unwind(j, TGC_NO_MEMORY, "no memory for the template's values");
}

void j_step(J *j, size_t n)
{
        if (n > (size_t)MOST_STEPS || (j->steps += (long)n) > MOST_STEPS)
                j_fail(j, "the template takes more than %d steps", MOST_STEPS);
}

void j_down(J *j)
{
        if (++j->depth > MOST_DEPTH)
                j_fail(j, "nested deeper than %d", MOST_DEPTH);
}
