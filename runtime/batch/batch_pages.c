/* batch_pages.c: the cache pages of one sequence: take, share, find, swap out and bring back. */
#include <stdlib.h>
#include <string.h>
#include "batch_impl.h"

static void count_used(Batch *b)
{
        const int used = b->stats.pages - pages_free_count(b->pages[0]),
                  narrow = b->n_pools > 1 ? b->stats.narrow_pages - pages_free_count(b->pages[1])
                                          : 0;
        BatchStats *s = &b->stats;
        s->most_used = used > s->most_used ? used : s->most_used;
        s->narrow_most_used = narrow > s->narrow_most_used ? narrow : s->narrow_most_used;
}

bool seq_grow(Batch *b, Seq *q, int pos)
{
        const int n = sched_pages(pos, TGC_PAGE);
        while (q->n_page < n) {
                for (int k = 0; k < b->n_pools; k++)
                        if (!(q->page[k][q->n_page] = pages_take(b->pages[k]))) {
                                while (k--)
                                        pages_drop(b->pages[k], q->page[k][q->n_page]);
                                return false;
                        }
                q->n_page++;
                b->rt_stale = true;
        }
        count_used(b);
        return true;
}

bool seq_regrow(Batch *b, Seq *q)
{
        for (int k = 0; k < b->n_pools; k++)
                for (int i = q->gone[k]; i < q->n_page; i++)
                        if (!(q->page[k][i] = pages_take(b->pages[k]))) {
                                for (; k >= 0; k--, i = q->n_page)
                                        while (--i >= q->gone[k])
                                                pages_drop(b->pages[k], q->page[k][i]);
                                return false;
                        }
        b->rt_stale = true;
        count_used(b);
        return true;
}

static void drop_pages(Batch *b, Seq *q)
{
        for (int k = 0; k < b->n_pools; k++)
                for (int i = q->gone[k]; i < q->n_page; i++)
                        pages_drop(b->pages[k], q->page[k][i]);
}

static void leave_slot(Batch *b, Seq *q)
{
        if (q->slot >= 0)
                b->slot_used[q->slot] = 0;
        q->slot = -1;
}

void seq_release(Batch *b, Seq *q)
{
        if (!q->away)
                drop_pages(b, q);
        q->n_page = 0;
        memset(q->gone, 0, sizeof q->gone);
        leave_slot(b, q);
}

/* Pages that no query looks at any more, once pos tokens are in the cache. */
static int pages_gone(const Batch *b, int pool, int pos)
{
        const int window = session_pool_window(b->s, pool), n = pos - window - TGC_MARGIN;
        return window && n > 0 ? n / TGC_PAGE : 0;
}

void seq_trim(Batch *b, Seq *q)
{
        for (int k = 0; k < b->n_pools; k++)
                for (const int gone = pages_gone(b, k, q->pos); q->gone[k] < gone; q->gone[k]++) {
                        pages_drop(b->pages[k], q->page[k][q->gone[k]]);
                        q->page[k][q->gone[k]] = 0;
                }
}

int seq_upload(Batch *b, Seq *q, Err *e)
{
        int code = TGC_OK;
        for (int k = 0; k < b->n_pools && !code; k++)
                code = session_set_pages(b->s, k, q->slot, 0, q->page[k], q->n_page, e);
        return code;
}

/* Bytes of all its pages. */
static size_t seq_bytes(const Batch *b, const Seq *q)
{
        size_t n = 0;
        for (int k = 0; k < b->n_pools; k++)
                n += (size_t)(q->n_page - q->gone[k]) * b->page_bytes[k];
        return n;
}

/* Every page of every cache, to or from the host's copy. */
static int move(Batch *b, Seq *q, bool back, Err *e)
{
        const Program *p = &b->s->p;
        char *host = q->aside;
        int code = TGC_OK;
        for (int c = 0; c < p->n_caches; c++) {
                const int pool = p->cache[c].pool;
                for (int i = q->gone[pool]; i < q->n_page && !code; i++) {
                        const size_t n = p->cache[c].page_bytes;
                        char *dev = (char *)ref_mem(b->s, p->cache[c].at) +
                                    (size_t)q->page[pool][i] * n;
                        code = back ? dev_upload(b->s->d, dev, host, n, e)
                                    : dev_download(b->s->d, host, dev, n, e);
                        host += n;
                }
        }
        return code;
}

static int make_aside(const Batch *b, const Seq *from, Seq *q, Err *e)
{
        const size_t n = seq_bytes(b, from);
        q->aside = malloc(n + 1);
        return q->aside ? TGC_OK
                        : err_set(e, TGC_NO_MEMORY, "no memory to set %zu bytes of cache aside", n);
}

int seq_leave(Batch *b, Seq *q, Err *e)
{
        int code = make_aside(b, q, q, e);
        if (code)
                return code;
        code = move(b, q, false, e);
        drop_pages(b, q);
        leave_slot(b, q);
        q->away = true;
        b->stats.set_aside++;
        return code;
}

int seq_return(Batch *b, Seq *q, Err *e)
{
        int code = move(b, q, true, e);
        free(q->aside);
        q->aside = NULL;
        q->away = false;
        return code;
}

static int copy_page(Batch *b, const Seq *from, const Seq *to, int i, Err *e)
{
        const Program *p = &b->s->p;
        int code = TGC_OK;
        for (int c = 0; c < p->n_caches && !code; c++) {
                const size_t n = p->cache[c].page_bytes, k = (size_t)p->cache[c].pool;
                char *at = ref_mem(b->s, p->cache[c].at);
                code = dev_copy(b->s->d, at + (size_t)to->page[k][i] * n,
                                at + (size_t)from->page[k][i] * n, n, e);
        }
        return code;
}

static void copy_pages(const Batch *b, const Seq *from, Seq *to, int n)
{
        for (int k = 0; k < b->n_pools; k++)
                memcpy(to->page[k], from->page[k], (size_t)n * sizeof *to->page[k]);
        to->n_page = n;
}

/* The same bytes of the host's. */
static int copy_aside(Batch *b, const Seq *from, Seq *to, Err *e)
{
        int code = make_aside(b, from, to, e);
        if (code)
                return code;
        copy_pages(b, from, to, from->n_page);
        to->away = true;
        if (!from->away)
                return move(b, to, false, e);
        memcpy(to->aside, from->aside, seq_bytes(b, from));
        return TGC_OK;
}

int seq_fork_pages(Batch *b, const Seq *from, Seq *to, Err *e)
{
        const int whole = from->pos / TGC_PAGE, part = sched_pages(from->pos, TGC_PAGE) - whole;
        bool room = true;
        to->pos = from->pos;
        memcpy(to->gone, from->gone, sizeof to->gone);
        for (int k = 0; k < b->n_pools; k++)
                room &= pages_free_count(b->pages[k]) >= part;
        if (from->away || !room)
                return copy_aside(b, from, to, e);
        copy_pages(b, from, to, whole);
        for (int k = 0; k < b->n_pools; k++)
                for (int i = from->gone[k]; i < whole; i++)
                        pages_share(b->pages[k], to->page[k][i]);
        if (!part)
                return TGC_OK;
        seq_grow(b, to, from->pos);
        return copy_page(b, from, to, whole, e);
}

/* ---- equal beginnings ---- */

/* Full pages that prefill made: what decoding makes differs in its last bits. */
static int nameable(const Seq *q) { return (q->n_prompt - 1) / TGC_PAGE; }

/* In the second pool a page's name is that page of the first pool which holds the same tokens, and
 * that page's generation: so it is found wherever the text before it is known, though pages before
 * it may be gone there. */
enum { NARROW_NAME = 2 };
static void narrow_name(const Batch *b, int page, int name[NARROW_NAME])
{
        name[0] = page;
        name[1] = (int)pages_generation(b->pages[0], page);
}

static int narrow_find(const Batch *b, int page)
{
        int name[NARROW_NAME];
        narrow_name(b, page, name);
        return pages_find(b->pages[1], 0, name);
}

/* Of n pages of the first pool, which q->page[0] names: the most for which the second pool has
 * those that queries after them look at.  Its pages to q->page[1]. */
static int narrow_prefix(const Batch *b, Seq *q, int n)
{
        for (; n > 0; n--) {
                int i = n - 1;
                const int gone = pages_gone(b, 1, n * TGC_PAGE);
                while (i >= gone && (q->page[1][i] = narrow_find(b, q->page[0][i])))
                        i--;
                if (i < gone)
                        break;
        }
        return n;
}

/* What names a page of q's: its tokens, and what made its values. */
static const int *name_ids(const Batch *b, const Seq *q, int page, int to[TGC_PAGE])
{
        const int *ids = q->ids + page * TGC_PAGE;
        if (!q->how.adapter)
                return ids;
        for (int i = 0; i < TGC_PAGE; i++) /* no token has such a number */
                to[i] = -1 - ids[i] - (q->how.adapter - 1) * b->s->m.vocab;
        return to;
}

void seq_find_prefix(Batch *b, Seq *q)
{
        int n = 0, name[TGC_PAGE];
        if (b->o.no_prefix || q->n_page)
                return;
        for (int before = 0; n < nameable(q); n++)
                if (!(before = q->page[0][n] = pages_find(b->pages[0], before,
                                                          name_ids(b, q, n, name))))
                        break;
                else
                        pages_share(b->pages[0], before);
        const int found = n;
        if (b->n_pools > 1)
                n = narrow_prefix(b, q, n);
        for (int i = found; i-- > n;)
                pages_drop(b->pages[0], q->page[0][i]);
        for (int i = 0; i < n && b->n_pools > 1; i++)
                if (i < pages_gone(b, 1, n * TGC_PAGE))
                        q->page[1][i] = 0;
                else
                        pages_share(b->pages[1], q->page[1][i]);
        if (n == 0)
                return;
        if (b->n_pools > 1)
                q->gone[1] = pages_gone(b, 1, n * TGC_PAGE);
        q->n_page = n;
        q->pos = n * TGC_PAGE;
        b->stats.from_prefix += (uint64_t)q->pos;
        b->rt_stale = true;
}

void seq_name_pages(Batch *b, Seq *q)
{
        for (int i = q->gone[0]; i < nameable(q) && (i + 1) * TGC_PAGE <= q->pos; i++) {
                int name[NARROW_NAME], ids[TGC_PAGE];
                if (b->o.no_prefix || (i && !q->page[0][i - 1]))
                        continue;
                pages_name(b->pages[0], q->page[0][i], i ? q->page[0][i - 1] : 0,
                           name_ids(b, q, i, ids));
                if (b->n_pools < 2 || i < q->gone[1])
                        continue;
                narrow_name(b, q->page[0][i], name);
                pages_name(b->pages[1], q->page[1][i], 0, name);
        }
}
