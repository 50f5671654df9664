/* session_pages.c: the table of a paged cache, and calls with several tokens of several sequences.
 *
 * The cache is a pool of pages of TGC_PAGE tokens.  Page 0 belongs to no sequence: rows of a call
 * that stand for no sequence read and write there.  A slot is a row of the table and names one
 * sequence's pages in order.  The last slot (m.batch) stands for no sequence; all its pages are 0.
 * Layers with narrower windows than others may have a pool and a table of their own.  The caller
 * decides who owns which page. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "session_impl.h"

bool is_ragged(const Session *s, const Prog *g)
{
        return s->m.pages && (!strncmp(g->name, "prefill", 7) || !strcmp(g->name, "score") ||
                              !strcmp(g->name, "mixed"));
}

/* Page 0 included. */
static int pool_pages(const Session *s, int pool) { return pool ? s->m.narrow_pages : s->m.pages; }

int session_pages_open(Session *s, Err *e)
{
        const int T = TGC_MAX_BATCH;
        int code, most = T;
        if (!s->m.pages)
                return TGC_OK;
        for (int i = 0; i < s->p.n_progs; i++)
                if (is_ragged(s, &s->p.prog[i]) && s->p.prog[i].T > most)
                        most = s->p.prog[i].T;
        s->n_pools = s->m.narrow_pages ? 2 : 1;
        for (int i = 0; i < s->p.n_caches; i++) {
                const CacheDef *c = &s->p.cache[i];
                if (c->pool >= s->n_pools || c->pages != pool_pages(s, c->pool))
                        return err_set(
                                e, TGC_BAD_FILE,
                                "a cache has %d pages, where the manifest says %d: compile the "
                                "model again",
                                c->pages, pool_pages(s, c->pool));
        }
        if (s->m.pages < 2)
                return err_set(e, TGC_BAD_FILE,
                               "the manifest says %d pages; 2 are the least, as page 0 is no "
                               "sequence's: compile the model again",
                               s->m.pages);
        if (s->m.narrow_pages &&
            (s->m.narrow_window < 1 || s->m.batch < 1 ||
             (s->m.narrow_pages - 1) / s->m.batch < TGC_KEPT(s->m.narrow_window)))
                return err_set(
                        e, TGC_BAD_FILE,
                        "the manifest says %d pages for windows of %d tokens of %d sequences, "
                        "which are too few: compile the model again",
                        s->m.narrow_pages, s->m.narrow_window, s->m.batch);
        s->slot_pages = (s->m.ctx + TGC_PAGE - 1) / TGC_PAGE;
        s->table_bytes = (size_t)(s->m.batch + 1) * (size_t)s->slot_pages * sizeof **s->table;
        s->token_bytes = (size_t)most * sizeof *s->token;
        bool tables = true;
        for (int i = 0; i < s->n_pools; i++)
                tables &= (s->table[i] = calloc(1, s->table_bytes)) != NULL;
        s->token = calloc(1, s->token_bytes);
        s->call_ids = calloc((size_t)most, sizeof *s->call_ids);
        if (!tables || !s->token || !s->call_ids)
                return err_set(e, TGC_NO_MEMORY, "no memory for a table of %d pages",
                               (s->m.batch + 1) * s->slot_pages);
        if ((code = dev_alloc(s->d, s->table_bytes * (size_t)s->n_pools, &s->table_mem, e)) ||
            (code = dev_alloc(s->d, s->token_bytes, &s->token_mem, e)))
                return code;
        for (int i = 0; i < s->n_pools; i++)
                s->rt.pages[i] = (int *)((char *)s->table_mem + s->table_bytes * (size_t)i);
        s->rt.slot_pages = s->slot_pages;
        s->rt.token = s->token_mem;
        return TGC_OK;
}

void session_pages_close(Session *s)
{
        if (s->d) {
                dev_free(s->d, s->table_mem, s->table_bytes * (size_t)s->n_pools);
                dev_free(s->d, s->token_mem, s->token_bytes);
        }
        for (int i = 0; i < TGC_POOLS; i++)
                free(s->table[i]);
        free(s->token);
        free(s->call_ids);
}

int session_pool_window(const Session *s, int pool)
{
        return pool ? s->m.narrow_window : s->m.window;
}

static int *table_on_device(const Session *s, int pool)
{
        return (int *)((char *)s->table_mem + s->table_bytes * (size_t)pool);
}

int session_set_pages(Session *s, int pool, int slot, int first, const int *page, int n, Err *e)
{
        const size_t at = (size_t)slot * (size_t)s->slot_pages + (size_t)first;
        if (slot < 0 || slot > s->m.batch || first < 0 || n < 0 || n > s->slot_pages - first)
                return err_set(e, TGC_USAGE,
                               "pages %d to %d of slot %d; there are slots 0 to %d, of %d pages",
                               first, first + n, slot, s->m.batch, s->slot_pages);
        memcpy(s->table[pool] + at, page, (size_t)n * sizeof *page);
        return dev_upload(s->d, table_on_device(s, pool) + at, s->table[pool] + at,
                          (size_t)n * sizeof *page, e);
}

/* Pages of a slot's ring. */
static int ring_pages(const Session *s, int rows)
{
        const int n = (s->m.narrow_pages - 1) / rows;
        return n < s->slot_pages ? n : s->slot_pages;
}

/* Of the pages from the first key that is read to the last token that is written two are begun. */
int session_ring_room(const Session *s, int rows)
{
        const int n = s->n_pools > 1 ? ring_pages(s, rows) : s->slot_pages;
        return n == s->slot_pages ? INT32_MAX
                                  : n * TGC_PAGE - s->m.narrow_window - TGC_MARGIN - 2 * TGC_PAGE;
}

int session_ring(Session *s, int rows, int tokens, Err *e)
{
        const int each = (tokens + TGC_PAGE - 1) / TGC_PAGE;
        int code = TGC_OK;
        for (int pool = 0; pool < s->n_pools && !code; pool++) {
                const int ring = pool ? ring_pages(s, rows) : each;
                for (int slot = 0; slot < rows; slot++)
                        for (int i = 0; i < each; i++)
                                s->table[pool][(size_t)slot * (size_t)s->slot_pages + (size_t)i] =
                                        1 + slot * ring + i % ring;
                code = dev_upload(s->d, table_on_device(s, pool), s->table[pool], s->table_bytes,
                                  e);
        }
        return code;
}

/* Sequence b's pages follow each other in slot b.  A cache with room for fewer sequences than the
 * plan takes has slots for as many as fit. */
int session_plain_pages(Session *s, int B, Err *e)
{
        if (!s->m.pages)
                return TGC_OK;
        const int fit = (s->m.pages - 1) / s->slot_pages;
        const int rows = fit < s->m.batch ? fit : s->m.batch;
        if (B > rows)
                return err_set(
                        e, TGC_USAGE,
                        "the cache has room for %lld tokens, and %d sequences of equal length "
                        "want %lld; compile with a larger --cache-tokens",
                        (long long)(s->m.pages - 1) * TGC_PAGE, B,
                        (long long)B * s->slot_pages * TGC_PAGE);
        if (s->plain_pages)
                return TGC_OK;
        s->plain_pages = true;
        return session_ring(s, rows, s->m.ctx, e);
}

/* Of a position: its place in the cache. */
static int session_place(const Session *s, int pool, int slot, int position)
{
        if (position / TGC_PAGE >= s->slot_pages || pool >= s->n_pools)
                return 0;
        return s->table[pool]
                       [(size_t)slot * (size_t)s->slot_pages + (size_t)(position / TGC_PAGE)] *
                       TGC_PAGE +
               position % TGC_PAGE;
}

/* Rows from `B` on stand for no sequence. */
void session_rows(Session *s, int B)
{
        for (int b = 0; s->m.pages && b < TGC_MAX_BATCH; b++) {
                if (b >= B) {
                        s->rt.pos[b] = 0;
                        s->rt.slot[b] = s->m.batch;
                }
                for (int i = 0; i < s->n_pools; i++)
                        s->rt.place[i][b] = b < B ? session_place(s, i, s->rt.slot[b], s->rt.pos[b])
                                                  : b % TGC_PAGE;
        }
        session_rt_changed(s);
}

/* The tokens of a ragged call whose sequences stand at rt.pos and have rt.start. */
static int upload_tokens(Session *s, int B, Err *e)
{
        for (int b = 0; b < B; b++)
                for (int i = s->rt.start[b]; i < s->rt.start[b + 1]; i++) {
                        const int position = s->rt.pos[b] + i - s->rt.start[b];
                        s->token[i].position = position;
                        for (int k = 0; k < s->n_pools; k++)
                                s->token[i].place[k] = session_place(s, k, s->rt.slot[b], position);
                }
        session_rt_changed(s);
        return dev_upload(s->d, s->token_mem, s->token, (size_t)s->rt.start[B] * sizeof *s->token,
                          e);
}

int session_even_call(Session *s, int B, int T, Err *e)
{
        for (int b = 0; b <= B; b++)
                s->rt.start[b] = (int)((int64_t)T * b / B);
        for (int b = 0; b < B; b++)
                s->rt.slot[b] = b;
        int code = session_plain_pages(s, B, e);
        return code ? code : upload_tokens(s, B, e);
}

int session_write_adapters(Session *s, const Prog *g, const int *which, int n, Err *e)
{
        const size_t each = (size_t)s->m.n_adapters;
        float *x;
        if (!each)
                return TGC_OK;
        if (!(x = calloc((size_t)n * each, sizeof *x)))
                return err_set(e, TGC_NO_MEMORY, "no memory for adapters of %d tokens", n);
        for (int i = 0; i < n; i++)
                if (which[i])
                        x[(size_t)i * each + (size_t)which[i] - 1] = 1;
        int code = session_write(s, g->name, "adapters", x, (size_t)n * each * sizeof *x, e);
        free(x);
        return code;
}

static int ragged_adapters(Session *s, const Prog *g, const SeqPart *part, int B, Err *e)
{
        int code, *which = s->m.n_adapters ? malloc((size_t)s->rt.start[B] * sizeof *which) : NULL;
        if (!s->m.n_adapters)
                return TGC_OK;
        if (!which)
                return err_set(e, TGC_NO_MEMORY, "no memory for adapters of %d tokens",
                               s->rt.start[B]);
        for (int b = 0; b < B; b++)
                for (int i = s->rt.start[b]; i < s->rt.start[b + 1]; i++)
                        which[i] = part[b].adapter;
        code = session_write_adapters(s, g, which, s->rt.start[B], e);
        free(which);
        return code;
}

/* The call's ids behind those that the device has, and which tokens are sampled. */
static int write_ragged(Session *s, const Prog *g, int sampled, int T, Err *e)
{
        const size_t each = sizeof(int);
        int rows[TGC_MAX_BATCH] = { 0 }, code = TGC_OK;
        const Io *x;
        void *ids;
        size_t bytes;
        s->rt.sampled = sampled;
        for (int b = 0; b < sampled; b++)
                rows[b] = b;
        if (prog_io(g, "sampled") &&
            (code = session_write(s, g->name, "sampled", rows, (size_t)g->B * each, e)))
                return code;
        if ((code = find_io(s, g->name, "ids", &x, &ids, &bytes, e)))
                return code;
        return dev_upload(s->d, (char *)ids + (size_t)sampled * each, s->call_ids + sampled,
                          (size_t)(T - sampled) * each, e);
}

int session_ragged(Session *s, const Prog *g, const SeqPart *part, int B, Err *e)
{
        int T = 0, sampled = 0, code;
        for (int b = 0; b < B; b++) {
                s->rt.start[b] = T;
                s->rt.pos[b] = part[b].pos;
                s->rt.slot[b] = part[b].slot;
                sampled += !part[b].ids;
                if (part[b].n < 1 || part[b].n > g->T - T || part[b].pos < 0 ||
                    part[b].pos > s->m.ctx - part[b].n)
                        return err_set(e, TGC_USAGE,
                                       "program %s: %d tokens of sequence %d from position %d; a "
                                       "call takes %d, the context %d",
                                       g->name, part[b].n, b, part[b].pos, g->T, s->m.ctx);
                if (part[b].ids)
                        memcpy(s->call_ids + T, part[b].ids,
                               (size_t)part[b].n * sizeof *s->call_ids);
                T += part[b].n;
        }
        s->rt.start[B] = T;
        if ((code = upload_tokens(s, B, e)) || (code = write_ragged(s, g, sampled, T, e)) ||
            (code = ragged_adapters(s, g, part, B, e)))
                return code;
        s->laid = true;
        return session_run(s, g->name, B, T, e);
}
