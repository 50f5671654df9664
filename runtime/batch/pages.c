/* pages.c: implements pages.h.
 *
 * Free pages are in one list, those without a name in front.  A page's name is its tokens, the page
 * before it, and that page's generation.  The generation changes when a page is taken anew, which
 * invalidates all names after it.  Names are found by a hash and then compared in full. */
#include "pages.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct Page {
        int owners;
        int next, prev;      /* in the list of free pages, page 0 being its head */
        unsigned generation; /* times it was taken */
        bool named;
        int before; /* of its name */
        unsigned before_generation;
        int chain; /* next of the same hash, 0: none */
} Page;

struct Pages {
        int n, each, n_free, n_buckets;
        Page *page;
        int *tokens; /* (n, each), of named ones */
        int *bucket;
};

int pages_new(Pages **out, int n, int each, Err *e)
{
        Pages *p = calloc(1, sizeof *p);
        *out = p;
        if (p) {
                p->n = n;
                p->each = each;
                for (p->n_buckets = 64; p->n_buckets < n; p->n_buckets *= 2)
                        ;
                p->page = calloc((size_t)n, sizeof *p->page);
                p->tokens = calloc((size_t)n * (size_t)each, sizeof *p->tokens);
                p->bucket = calloc((size_t)p->n_buckets, sizeof *p->bucket);
        }
        if (!p || !p->page || !p->tokens || !p->bucket) {
                pages_delete(p);
                *out = NULL;
                return err_set(e, TGC_NO_MEMORY, "no memory for a list of %d pages", n);
        }
        for (int i = 0; i < n; i++) {
                p->page[i].next = (i + 1) % n;
                p->page[i].prev = (i + n - 1) % n;
        }
        p->n_free = n - 1;
        return TGC_OK;
}

void pages_delete(Pages *p)
{
        if (!p)
                return;
        free(p->page);
        free(p->tokens);
        free(p->bucket);
        free(p);
}

int pages_free_count(const Pages *p) { return p->n_free; }
int pages_owners(const Pages *p, int page) { return p->page[page].owners; }
unsigned pages_generation(const Pages *p, int page) { return p->page[page].generation; }

static int *bucket_of(const Pages *p, int before, unsigned generation, const int *ids)
{
        const uint64_t seed = (uint64_t)(unsigned)before << 32 | generation;
        const uint64_t h = XXH3_64bits_withSeed(ids, (size_t)p->each * sizeof *ids, seed);
        return &p->bucket[h & (uint64_t)(p->n_buckets - 1)];
}

static int *tokens_of(const Pages *p, int page)
{
        return p->tokens + (size_t)page * (size_t)p->each;
}

static void forget_name(Pages *p, int page)
{
        Page *x = &p->page[page];
        if (!x->named)
                return;
        int *at = bucket_of(p, x->before, x->before_generation, tokens_of(p, page));
        while (*at != page)
                at = &p->page[*at].chain;
        *at = x->chain;
        x->chain = 0;
        x->named = false;
}

static void unlink_free(Pages *p, int page)
{
        Page *x = &p->page[page];
        p->page[x->prev].next = x->next;
        p->page[x->next].prev = x->prev;
        p->n_free--;
}

/* Behind `at` in the list. */
static void link_free(Pages *p, int page, int at)
{
        Page *x = &p->page[page], *y = &p->page[at];
        x->prev = at;
        x->next = y->next;
        p->page[x->next].prev = page;
        y->next = page;
        p->n_free++;
}

int pages_take(Pages *p)
{
        const int page = p->page[0].next;
        if (!page)
                return 0;
        forget_name(p, page);
        unlink_free(p, page);
        p->page[page].owners = 1;
        p->page[page].generation++;
        return page;
}

void pages_share(Pages *p, int page)
{
        if (!p->page[page].owners++)
                unlink_free(p, page);
}

void pages_drop(Pages *p, int page)
{
        Page *x = &p->page[page];
        if (--x->owners == 0)
                link_free(p, page, x->named ? p->page[0].prev : 0);
}

int pages_find(const Pages *p, int before, const int *ids)
{
        const unsigned generation = p->page[before].generation;
        for (int i = *bucket_of(p, before, generation, ids); i; i = p->page[i].chain) {
                const Page *x = &p->page[i];
                if (x->before == before && x->before_generation == generation &&
                    !memcmp(tokens_of(p, i), ids, (size_t)p->each * sizeof *ids))
                        return i;
        }
        return 0;
}

void pages_name(Pages *p, int page, int before, const int *ids)
{
        Page *x = &p->page[page];
        if (x->named || pages_find(p, before, ids))
                return;
        x->before = before;
        x->before_generation = p->page[before].generation;
        memcpy(tokens_of(p, page), ids, (size_t)p->each * sizeof *ids);
        int *at = bucket_of(p, before, x->before_generation, ids);
        x->chain = *at;
        x->named = true;
        *at = page;
}

bool pages_sound(const Pages *p)
{
        int in_list = 0, named = 0, in_buckets = 0;
        for (int i = p->page[0].next; i; i = p->page[i].next)
                if (p->page[i].owners || p->page[p->page[i].next].prev != i || ++in_list > p->n)
                        return false;
        for (int i = 1; i < p->n; i++) {
                named += p->page[i].named;
                in_list += p->page[i].owners > 0;
        }
        for (int b = 0; b < p->n_buckets; b++)
                for (int i = p->bucket[b]; i; i = p->page[i].chain)
                        in_buckets += p->page[i].named;
        return in_list == p->n - 1 && named == in_buckets;
}
