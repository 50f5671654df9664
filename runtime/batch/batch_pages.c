/* batch_pages.c: the pages of one sequence: taken, shared, found, set aside and brought back. */
#include <stdlib.h>
#include <string.h>
#include "batch_impl.h"

bool seq_grow(Batch *b, Seq *q, int pos)
{
        const int n = sched_pages(pos, TGC_PAGE);
        while (q->n_page < n) {
                const int page = pages_take(b->pages);
                if (!page)
                        return false;
                q->page[q->n_page++] = page;
                b->rt_stale = true;
        }
        const int used = b->stats.pages - pages_free_count(b->pages);
        b->stats.most_used = used > b->stats.most_used ? used : b->stats.most_used;
        return true;
}

void seq_release(Batch *b, Seq *q)
{
        for (int i = q->gone; i < q->n_page && !q->away; i++)
                pages_drop(b->pages, q->page[i]);
        q->n_page = q->gone = 0;
        if (q->slot >= 0)
                b->slot_used[q->slot] = 0;
        q->slot = -1;
}

/* No query looks further back than the window; tiles of keys may begin up to MARGIN earlier. */
void seq_trim(Batch *b, Seq *q)
{
        enum { MARGIN = 256 };
        const int window = b->s->m.window;
        while (window && (q->gone + 1) * TGC_PAGE + window + MARGIN <= q->pos) {
                pages_drop(b->pages, q->page[q->gone]);
                q->page[q->gone++] = 0;
        }
}

int seq_upload(Batch *b, Seq *q, Err *e)
{
        return session_set_pages(b->s, q->slot, 0, q->page, q->n_page, e);
}

/* Every page of every cache, to or from the host's copy. */
static int move(Batch *b, Seq *q, bool back, Err *e)
{
        const Program *p = &b->s->p;
        char *host = q->aside;
        int code = TGC_OK;
        for (int c = 0; c < p->n_caches; c++)
                for (int i = q->gone; i < q->n_page && !code; i++) {
                        const size_t n = p->cache[c].page_bytes;
                        char *dev = (char *)ref_mem(b->s, p->cache[c].at) + (size_t)q->page[i] * n;
                        code = back ? dev_upload(b->s->d, dev, host, n, e)
                                    : dev_download(b->s->d, host, dev, n, e);
                        host += n;
                }
        return code;
}

int seq_leave(Batch *b, Seq *q, Err *e)
{
        const size_t n = (size_t)(q->n_page - q->gone) * (size_t)b->page_bytes;
        if (!(q->aside = malloc(n)))
                return err_set(e, TGC_NO_MEMORY, "no memory to set %zu bytes of cache aside", n);
        int code = move(b, q, false, e);
        for (int i = q->gone; i < q->n_page; i++)
                pages_drop(b->pages, q->page[i]);
        if (q->slot >= 0)
                b->slot_used[q->slot] = 0;
        q->slot = -1;
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

static int copy_page(Batch *b, int from, int to, Err *e)
{
        const Program *p = &b->s->p;
        int code = TGC_OK;
        for (int c = 0; c < p->n_caches && !code; c++) {
                const size_t n = p->cache[c].page_bytes;
                char *at = ref_mem(b->s, p->cache[c].at);
                code = dev_copy(b->s->d, at + (size_t)to * n, at + (size_t)from * n, n, e);
        }
        return code;
}

/* The same bytes of the host's. */
static int copy_aside(Batch *b, const Seq *from, Seq *to, Err *e)
{
        const size_t n = (size_t)(from->n_page - from->gone) * b->page_bytes;
        if (!(to->aside = malloc(n + 1)))
                return err_set(e, TGC_NO_MEMORY, "no memory to set %zu bytes of cache aside", n);
        memcpy(to->page, from->page, (size_t)from->n_page * sizeof *to->page);
        to->n_page = from->n_page;
        to->away = true;
        if (!from->away)
                return move(b, to, false, e);
        memcpy(to->aside, from->aside, n);
        return TGC_OK;
}

int seq_fork_pages(Batch *b, const Seq *from, Seq *to, Err *e)
{
        const int whole = from->pos / TGC_PAGE, part = sched_pages(from->pos, TGC_PAGE) - whole;
        to->pos = from->pos;
        to->gone = from->gone;
        if (from->away || pages_free_count(b->pages) < part)
                return copy_aside(b, from, to, e);
        memcpy(to->page, from->page, (size_t)whole * sizeof *to->page);
        for (int i = from->gone; i < whole; i++)
                pages_share(b->pages, to->page[i]);
        to->n_page = whole;
        if (!part)
                return TGC_OK;
        seq_grow(b, to, from->pos);
        return copy_page(b, from->page[whole], to->page[whole], e);
}

/* Full pages that prefill made: what decoding makes differs in its last bits. */
static int nameable(const Seq *q) { return (q->n_prompt - 1) / TGC_PAGE; }

void seq_find_prefix(Batch *b, Seq *q)
{
        for (int before = 0; !b->o.no_prefix && q->n_page < nameable(q);) {
                const int page = pages_find(b->pages, before, q->ids + q->n_page * TGC_PAGE);
                if (!page)
                        break;
                pages_share(b->pages, page);
                q->page[q->n_page++] = before = page;
                q->pos += TGC_PAGE;
                b->stats.from_prefix += TGC_PAGE;
                b->rt_stale = true;
        }
}

void seq_name_pages(Batch *b, Seq *q)
{
        for (int i = q->gone; i < nameable(q) && (i + 1) * TGC_PAGE <= q->pos; i++)
                if (!b->o.no_prefix && (i == 0 || q->page[i - 1]))
                        pages_name(b->pages, q->page[i], i ? q->page[i - 1] : 0,
                                   q->ids + i * TGC_PAGE);
}
