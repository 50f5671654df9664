/* batch.c: sequences of a batch: added, decoded, dropped (see batch.h).
 *
 * Each row of a decode call is a sequence.  Its next token stays on the device: in the program's
 * ids, where its sampler puts it, or in `next` while another program runs or the rows change. */
#include "batch_impl.h"
#include <stdlib.h>
#include <string.h>

static const Prog *mixed_program(const Session *s)
{
        const Prog *g = program_find(&s->p, "mixed");
        return g && s->prog[g - s->p.prog].lacks < 0 && prog_io(g, "ids") && prog_io(g, "next") &&
                               prog_io(g, "sampled")
                       ? g
                       : NULL;
}

int batch_open(Batch **out, Session *s, const BatchOptions *o, Err *e)
{
        static const BatchOptions none;
        const Prog *g = 0;
        int code;
        *out = NULL;
        if (!s->m.pages)
                return err_set(
                        e, TGC_USAGE,
                        "the plan decodes one sequence; compile with --batch-size 2 or more");
        if ((code = find_prog(s, "prefill", &g, e)) || (code = find_prog(s, "decode", &g, e)))
                return code;
        Batch *b = calloc(1, sizeof *b);
        if (!b)
                return err_set(e, TGC_NO_MEMORY, "no memory for a batch");
        b->s = s;
        b->o = o ? *o : none;
        b->mixed = mixed_program(s);
        b->rows = b->o.rows > 0 && b->o.rows < s->m.batch ? b->o.rows : s->m.batch;
        b->ahead = dev_host_memory(s->d) ? 0 : BATCH_MOST_AHEAD;
        b->next_id = 1;
        b->stats.pages = s->m.pages - 1;
        b->stats.narrow_pages = s->m.narrow_pages ? s->m.narrow_pages - 1 : 0;
        b->n_pools = s->n_pools;
        for (int i = 0; i < s->p.n_caches; i++)
                b->page_bytes[s->p.cache[i].pool] += s->p.cache[i].page_bytes;
        b->cap_ready = (BATCH_CALLS + 1) * TGC_MAX_BATCH;
        b->ready = malloc((size_t)b->cap_ready * sizeof *b->ready);
        b->slot_used = calloc((size_t)b->rows, 1);
        if (!b->slot_used || !b->ready)
                code = err_set(e, TGC_NO_MEMORY, "no memory for a batch of %d", b->rows);
        if (!code)
                code = pages_new(&b->pages[0], s->m.pages, TGC_PAGE, e);
        if (!code && b->n_pools > 1)
                code = pages_new(&b->pages[1], s->m.narrow_pages, 2, e);
        void *next = NULL;
        if (!code && !(code = dev_alloc(s->d, TGC_MAX_BATCH * sizeof(int), &next, e)))
                b->next = next;
        if (!code)
                code = sample_memory(s, g, &b->memory, e);
        s->plain_pages = false; /* the table is this batch's now */
        if (code)
                batch_close(b);
        else
                *out = b;
        return code;
}

static void seq_free(Seq *q)
{
        free(q->ids);
        for (int k = 0; k < TGC_POOLS; k++)
                free(q->page[k]);
        free(q->aside);
        free(q);
}

void batch_close(Batch *b)
{
        if (!b)
                return;
        dev_sync(b->s->d, NULL);
        for (int i = 0; i < b->n_seq; i++)
                seq_free(b->seq[i]);
        dev_free(b->s->d, b->next, TGC_MAX_BATCH * sizeof(int));
        for (int k = 0; k < TGC_POOLS; k++)
                pages_delete(b->pages[k]);
        free(b->seq);
        free(b->in);
        free(b->out);
        free(b->who);
        free(b->slot_used);
        free(b->ready);
        session_reset(b->s, NULL);
        free(b);
}

int batch_left(const Batch *b) { return b->n_seq; }

int batch_whole(const Batch *b, Err *e)
{
        const Err *why = &b->broken;
        return why->code ? err_set(e, why->code, "%s", why->msg) : TGC_OK;
}

BatchStats batch_stats(const Batch *b)
{
        BatchStats s = b->stats;
        s.pages_free = pages_free_count(b->pages[0]);
        s.page_bytes = b->page_bytes[0];
        if (b->n_pools > 1)
                s.narrow_free = pages_free_count(b->pages[1]);
        s.narrow_page_bytes = b->page_bytes[1];
        return s;
}

static Seq *seq_of(const Batch *b, int id)
{
        for (int i = 0; i < b->n_seq; i++)
                if (b->seq[i]->id == id)
                        return b->seq[i];
        return NULL;
}

/* ---- sequences come and go ---- */

static int room_for_one_more(Batch *b, Err *e)
{
        if (b->n_seq < b->cap_seq)
                return TGC_OK;
        const int cap = b->cap_seq ? b->cap_seq * 2 : 64;
        void *seq = realloc(b->seq, (size_t)cap * sizeof *b->seq),
             *in = realloc(b->in, (size_t)cap * sizeof *b->in),
             *out = realloc(b->out, (size_t)cap * sizeof *b->out),
             *who = realloc(b->who, (size_t)cap * sizeof *b->who);
        b->seq = seq ? seq : b->seq;
        b->in = in ? in : b->in;
        b->out = out ? out : b->out;
        b->who = who ? who : b->who;
        if (!seq || !in || !out || !who)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d sequences", cap);
        b->cap_seq = cap;
        return TGC_OK;
}

/* Most tokens it may have in the cache, and those that queued calls write beyond. */
static int most_tokens(const Batch *b, int n, const BatchHow *how)
{
        const int ctx = b->s->m.ctx;
        const int64_t all = how->predict < 0 ? ctx : (int64_t)n + how->predict;
        return all < ctx ? (int)all : ctx;
}

static int check_new(const Batch *b, const int *ids, int n, const BatchHow *how, Err *e)
{
        const Manifest *m = &b->s->m;
        for (int i = 0; i < n; i++)
                if (ids[i] < 0 || ids[i] >= m->vocab)
                        return err_set(e, TGC_USAGE, "token %d is outside the vocabulary of %d",
                                       ids[i], m->vocab);
        if (n < 1 || n > m->ctx)
                return err_set(e, TGC_USAGE,
                               "the sequence has %d tokens, the context takes 1 to %d; compile "
                               "with a larger --ctx-size",
                               n, m->ctx);
        if (how->n_stop < 0 || how->n_stop > BATCH_STOPS)
                return err_set(e, TGC_USAGE, "%d tokens stop the sequence, the limit is %d",
                               how->n_stop, BATCH_STOPS);
        if (how->adapter < 0 || how->adapter > m->n_adapters)
                return err_set(e, TGC_USAGE, "the sequence asks for adapter %d, the plan has %d",
                               how->adapter, m->n_adapters);
        if (how->predict == 0)
                return err_set(e, TGC_USAGE,
                               "the sequence may generate no token: predict must "
                               "be at least 1");
        /* the second pool has what windows want of every sequence */
        const int most = most_tokens(b, n, how), kept = TGC_KEPT(m->window) * TGC_PAGE,
                  need = sched_pages((m->window && kept < most ? kept : most) + 1 + b->ahead,
                                     TGC_PAGE);
        if (need > m->pages - 1)
                return err_set(
                        e, TGC_USAGE,
                        "a sequence of up to %d tokens needs %d pages of the cache, which has "
                        "%d; compile with a larger --cache-tokens",
                        most, need, m->pages - 1);
        return sample_check(b->s, &b->memory, &how->sampling, e);
}

static int seq_new(Batch *b, const int *ids, int n, const BatchHow *how, Seq **out, Err *e)
{
        Seq *q = calloc(1, sizeof *q);
        int code = room_for_one_more(b, e);
        *out = q;
        if (!code && q) {
                q->cap_ids = b->s->m.ctx + 1;
                q->ids = malloc((size_t)q->cap_ids * sizeof *q->ids);
                for (int k = 0; k < b->n_pools; k++)
                        q->page[k] = calloc((size_t)b->s->slot_pages + 1, sizeof *q->page[k]);
        }
        if (!code && (!q || !q->ids || !q->page[0] || !q->page[b->n_pools - 1]))
                code = err_set(e, TGC_NO_MEMORY, "no memory for a sequence of %d tokens",
                               b->s->m.ctx);
        if (code) {
                if (q)
                        seq_free(q);
                return code;
        }
        memcpy(q->ids, ids, (size_t)n * sizeof *ids);
        q->n_ids = q->n_prompt = n;
        q->how = *how;
        q->slot = q->row = -1;
        q->id = b->next_id++;
        b->seq[b->n_seq++] = q;
        return TGC_OK;
}

int batch_add(Batch *b, const int *ids, int n, const BatchHow *how, int *seq, Err *e)
{
        Seq *q;
        int code = batch_whole(b, e);
        if (!code && !(code = check_new(b, ids, n, how, e)) &&
            !(code = seq_new(b, ids, n, how, &q, e)))
                *seq = q->id;
        return code;
}

static int end_seq(Batch *b, Seq *q, Err *e)
{
        int code = q->row >= 0 ? seq_leave_row(b, q, e) : TGC_OK, i = 0;
        seq_release(b, q);
        while (b->seq[i] != q)
                i++;
        memmove(b->seq + i, b->seq + i + 1, (size_t)(--b->n_seq - i) * sizeof *b->seq);
        seq_free(q);
        return code;
}

int batch_drop(Batch *b, int id, Err *e)
{
        Seq *q = seq_of(b, id);
        int code = batch_whole(b, e);
        return code ? code
               : q  ? end_seq(b, q, e)
                    : err_set(e, TGC_USAGE, "there is no sequence %d, or it has ended", id);
}

/* ---- rows of decode calls ---- */

int batch_settle(Batch *b, Err *e)
{
        const Prog *g = b->live;
        b->live = NULL;
        if (!g || !b->n_row)
                return TGC_OK;
        return dev_copy(b->s->d, b->next, ref_mem(b->s, prog_io(g, "next")->at),
                        (size_t)b->n_row * sizeof(int), e);
}

int seq_leave_row(Batch *b, Seq *q, Err *e)
{
        const int at = q->row, last = b->n_row - 1;
        int code = batch_settle(b, e);
        if (!code && at != last)
                code = dev_copy(b->s->d, b->next + at, b->next + last, sizeof(int), e);
        b->row[at] = b->row[last];
        b->row[at]->row = at;
        b->n_row--;
        q->row = -1;
        b->rt_stale = true;
        return code;
}

int seq_join_row(Batch *b, Seq *q, Err *e)
{
        int code = batch_settle(b, e);
        q->row = b->n_row++;
        b->row[q->row] = q;
        b->rt_stale = true;
        return code ? code
                    : dev_upload(b->s->d, b->next + q->row, &q->ids[q->n_ids - 1], sizeof(int), e);
}

/* ---- results ---- */

static BatchEnd end_of(const Batch *b, const Seq *q)
{
        for (int i = 0; i < q->how.n_stop; i++)
                if (q->how.stop[i] == q->ids[q->n_ids - 1])
                        return BATCH_STOPPED;
        return q->how.predict >= 0 && q->drawn >= q->how.predict ? BATCH_ENOUGH
               : q->n_ids > b->s->m.ctx                          ? BATCH_FULL
                                                                 : BATCH_GOES_ON;
}

void batch_keep_error(Batch *b, const Err *why)
{
        if (!b->seq_error.code)
                b->seq_error = *why;
}

/* Did the sampler find one?  An error of its mask is known already. */
static bool is_token(Batch *b, const Seq *q, int token)
{
        Err why;
        if (q->failed)
                return false;
        if (token >= 0 && token < b->s->m.vocab)
                return true;
        if (token < 0)
                err_set(&why, TGC_NON_FINITE,
                        "the logits after %d tokens of sequence %d are not finite, so there is no "
                        "next token; `tgc check` tells whether the weights or the kernels are to "
                        "blame",
                        q->n_ids, q->id);
        else
                err_set(&why, TGC_FAIL,
                        "the sampler returned token %d for sequence %d, and the vocabulary has %d",
                        token, q->id, b->s->m.vocab);
        batch_keep_error(b, &why);
        return false;
}

int batch_read_call(Batch *b, Err *e)
{
        Call *c = &b->call[b->first_call];
        RtDrawn drawn[TGC_MAX_BATCH];
        const int slot = b->first_call;
        int code = dev_fetched(b->s->d, slot, drawn, (size_t)c->n * sizeof *drawn, e);
        b->first_call = (b->first_call + 1) % BATCH_CALLS;
        b->n_call--;
        for (int r = 0; r < c->n && !code; r++) {
                Seq *q = seq_of(b, c->id[r]);
                if (!q)
                        continue; /* it has ended: nobody asked for this token */
                q->under_way--;
                if (!is_token(b, q, drawn[r].token)) {
                        b->ready[b->n_ready++] = (BatchToken) { q->id, -1, BATCH_FAILED, drawn[r] };
                        code = end_seq(b, q, e);
                        continue;
                }
                q->drawn++;
                q->ids[q->n_ids++] = drawn[r].token;
                q->mu = drawn[r].mirostat_mu;
                BatchToken *t = &b->ready[b->n_ready++];
                *t = (BatchToken) { q->id, drawn[r].token, end_of(b, q), drawn[r] };
                if (t->end)
                        code = end_seq(b, q, e);
        }
        return code;
}

int batch_drain(Batch *b, Err *e)
{
        int code = TGC_OK;
        while (b->n_call && !code)
                code = batch_read_call(b, e);
        return code;
}

int batch_fork(Batch *b, int id, const BatchHow *how, int *child, Err *e)
{
        Seq *q = seq_of(b, id), *c;
        int code = batch_whole(b, e);
        if (!code)
                code = q ? check_new(b, q->ids, q->n_ids, how, e)
                         : err_set(e, TGC_USAGE, "there is no sequence %d, or it has ended", id);
        if (code || (code = batch_drain(b, e)))
                return code;
        if (!(q = seq_of(b, id)))
                return err_set(e, TGC_USAGE, "sequence %d has ended", id);
        if ((code = seq_new(b, q->ids, q->n_ids, how, &c, e)))
                return code;
        c->how.adapter = q->how.adapter; /* what the cache has was made by it */
        *child = c->id;
        if (!q->started) /* equal beginnings are found when it begins */
                return TGC_OK;
        c->n_prompt = q->n_prompt;
        c->started = true;
        return seq_fork_pages(b, q, c, e);
}
