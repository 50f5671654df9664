/* batch_step.c: the steps that serve a batch's sequences.
 *
 * A step does this: schedule; swap sequences out and in; one prefill call; one decode call, or one
 * call for both where the plan has a program for it; read the results of the oldest decode call
 * that is due.  The device executes everything in one order.  So a page or a slot may be given to
 * another sequence as soon as the last call that uses it is queued. */
#include "batch_impl.h"
#include <string.h>

static const Prog *prefill_for(const Batch *b, int tokens)
{
        const Prog *g = program_find(&b->s->p, "prefill"),
                   *more = program_find(&b->s->p, "prefill_long");
        return more && tokens > g->T && b->s->prog[more - b->s->p.prog].lacks < 0 ? more : g;
}

static int take_slot(Batch *b, Seq *q)
{
        for (int i = 0; i < b->rows; i++)
                if (!b->slot_used[i]) {
                        b->slot_used[i] = 1;
                        q->slot = i;
                        return i;
                }
        return -1;
}

static SchedState state_of(const Seq *q)
{
        return q->away                                   ? SCHED_AWAY
               : !q->started || q->pos < q->n_prompt - 1 ? SCHED_WAITS
                                                         : SCHED_DECODES;
}

/* Nothing is to be queued for it: what is under way is all that it may say, or all that fits. */
static bool waits_for_results(const Batch *b, const Seq *q)
{
        const int said = q->drawn + q->under_way;
        return (q->row < 0 && q->under_way) || (q->how.predict >= 0 && said >= q->how.predict) ||
               q->pos >= b->s->m.ctx;
}

/* Most tokens of prompts in a step.  Those that decode have room in the same call, if need be half
 * of it. */
static int most_tokens(const Batch *b)
{
        int most = prefill_for(b, INT32_MAX)->T, decode = 0;
        for (int i = 0; i < b->n_seq; i++)
                decode += decode < b->rows && state_of(b->seq[i]) == SCHED_DECODES;
        if (b->mixed && decode <= b->mixed->T / 2 && b->mixed->T - decode < most)
                most = b->mixed->T - decode;
        return b->o.chunk && b->o.chunk < most ? b->o.chunk : most;
}

static int ask_schedule(Batch *b)
{
        SchedBudget budget = { .rows = b->rows,
                               .tokens = most_tokens(b),
                               .each = TGC_PAGE,
                               .ahead = b->ahead,
                               .prompts_first = b->o.prompts_first };
        for (int k = 0; k < SCHED_POOLS; k++) /* one pool counts as two equal ones */
                budget.pages[k] = pages_free_count(b->pages[k < b->n_pools ? k : 0]);
        int n = 0;
        for (int i = 0; i < b->n_seq; i++) {
                const Seq *q = b->seq[i];
                if (q->started && !q->away && waits_for_results(b, q))
                        continue;
                b->in[n] = (SchedSeq) { .state = state_of(q),
                                        .pos = q->pos,
                                        .prompt = q->n_prompt - 1,
                                        .started = q->started };
                for (int k = 0; k < SCHED_POOLS; k++) {
                        b->in[n].gone[k] = q->gone[k < b->n_pools ? k : 0];
                        b->in[n].held[k] = q->n_page - b->in[n].gone[k];
                }
                b->who[n++] = b->seq[i];
        }
        schedule(b->in, n, &budget, b->out);
        return n;
}

static int leave_and_return(Batch *b, int n, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < n && !code; i++) {
                Seq *q = b->who[i];
                if (b->out[i].act != SCHED_LEAVE)
                        continue;
                if (q->row >= 0)
                        code = seq_leave_row(b, q, e);
                if (!code)
                        code = seq_leave(b, q, e);
        }
        for (int i = 0; i < n && !code; i++) {
                Seq *q = b->who[i];
                if (b->out[i].act != SCHED_RETURN)
                        continue;
                if (seq_regrow(b, q))
                        code = seq_return(b, q, e);
        }
        return code;
}

/* A slot, unless it has one: its row of the table, and how it is sampled.  q->slot stays -1 where
 * all are taken. */
static int need_slot(Batch *b, Seq *q, Err *e)
{
        int code;
        if (q->slot >= 0 || take_slot(b, q) < 0)
                return TGC_OK;
        if ((code = seq_upload(b, q, e)))
                return code;
        const SampleState state = { q->ids, q->n_ids, q->drawn, q->mu, q->how.sampling.seed };
        return sample_slot(b->s, &b->memory, &q->how.sampling, &state, q->slot, e);
}

/* Chunks of prompts that a call digests. */
typedef struct Chunks {
        SeqPart part[TGC_MAX_BATCH];
        Seq *of[TGC_MAX_BATCH];
        int n, tokens;
} Chunks;

static int choose_chunks(Batch *b, int n, Chunks *c, Err *e)
{
        int code = TGC_OK;
        c->n = c->tokens = 0;
        for (int i = 0; i < n && !code; i++) {
                Seq *q = b->who[i];
                if (b->out[i].act != SCHED_PREFILL)
                        continue;
                if ((code = need_slot(b, q, e)) || q->slot < 0)
                        continue;
                if (!q->started)
                        seq_find_prefix(b, q);
                q->started = true;
                const int left = q->n_prompt - 1 - q->pos,
                          take = left < b->out[i].tokens ? left : b->out[i].tokens;
                if (!seq_grow(b, q, q->pos + take))
                        continue;
                if (!(code = seq_upload(b, q, e)) && take > 0) {
                        c->part[c->n] = (SeqPart) { q->slot, q->pos, take, q->ids + q->pos,
                                                    q->how.adapter };
                        c->of[c->n++] = q;
                        c->tokens += take;
                        q->pos += take;
                        seq_name_pages(b, q);
                }
        }
        return code;
}

/* A call with these chunks is queued.  Until then its queries may look at pages that go now. */
static void chunks_queued(Batch *b, const Chunks *c)
{
        b->rt_stale = true; /* its rows were this call's */
        b->stats.prefilled += (uint64_t)c->tokens;
        for (int i = 0; i < c->n; i++)
                seq_trim(b, c->of[i]);
}

static int prefill(Batch *b, const Chunks *c, Err *e)
{
        int code = batch_settle(b, e);
        b->s->rt.share = 1;
        if (code || (code = session_ragged(b->s, prefill_for(b, c->tokens), c->part, c->n, e)))
                return code;
        chunks_queued(b, c);
        return TGC_OK;
}

/* The rows of this call; who was a row and is not served leaves. */
static int choose_rows(Batch *b, int n, Err *e)
{
        bool serve[TGC_MAX_BATCH] = { false };
        int code = TGC_OK;
        for (int i = 0; i < n && !code; i++) {
                Seq *q = b->who[i];
                if (b->out[i].act != SCHED_DECODE)
                        continue;
                const int had = q->n_page;
                if ((code = need_slot(b, q, e)) || q->slot < 0 ||
                    !seq_grow(b, q, q->pos + 1 + b->ahead))
                        continue;
                if (q->n_page != had || q->row < 0)
                        code = seq_upload(b, q, e);
                if (!code && q->row < 0)
                        code = seq_join_row(b, q, e);
                if (!code)
                        serve[q->row] = true;
        }
        for (int r = b->n_row - 1; r >= 0 && !code; r--)
                if (!serve[r]) {
                        serve[r] = serve[b->n_row - 1];
                        code = seq_leave_row(b, b->row[r], e);
                }
        return code;
}

static bool has_mask(const Seq *q) { return q->how.sampling.mask != NULL; }

static bool any_mask(const Batch *b)
{
        for (int r = 0; r < b->n_row; r++)
                if (has_mask(b->row[r]))
                        return true;
        return false;
}

/* All but the sampler; the masks, which the host makes while the device computes; the sampler. */
static int run_masked(Batch *b, const Prog *g, Err *e)
{
        int code = session_run_part(b->s, g->name, b->n_row, 1, RUN_BUT_LAST, e);
        for (int r = 0; r < b->n_row && !code; r++) {
                Seq *q = b->row[r];
                Err why;
                if (has_mask(q) && sample_mask(b->s, &b->memory, &q->how.sampling, q->id, q->slot,
                                               q->drawn ? q->ids[q->n_ids - 1] : -1, &why)) {
                        q->failed = true; /* the others' masks were made: their tokens are drawn */
                        batch_keep_error(b, &why);
                }
        }
        return code ? code : session_run_part(b->s, g->name, b->n_row, 1, RUN_LAST, e);
}

/* The next tokens of all rows are to be in the ids of g. */
static int take_ids(Batch *b, const Prog *g, size_t n, Err *e)
{
        int code = batch_settle(b, e);
        return code ? code
                    : dev_copy(b->s->d, ref_mem(b->s, prog_io(g, "ids")->at), b->next,
                               n * sizeof(int), e);
}

/* A call of g that decodes the rows is queued: its results are to be read. */
static int decode_queued(Batch *b, const Prog *g, Err *e)
{
        b->live = g;
        Call *c = &b->call[(b->first_call + b->n_call) % BATCH_CALLS];
        c->n = b->n_row;
        for (int r = 0; r < b->n_row; r++) {
                Seq *q = b->row[r];
                c->id[r] = q->id;
                q->pos++;
                q->under_way++;
                b->s->rt.pos[r] = q->pos;
                seq_trim(b, q);
        }
        b->n_drawn = (b->n_drawn + 1) % RT_DRAWN;
        b->n_call++;
        b->stats.decoded += (uint64_t)b->n_row;
        return dev_fetch(b->s->d, (int)(c - b->call),
                         b->memory.drawn + (size_t)((b->n_drawn + RT_DRAWN - 1) % RT_DRAWN) *
                                                   (size_t)b->memory.n,
                         (size_t)c->n * sizeof(RtDrawn), false, e);
}

static int decode(Batch *b, Err *e)
{
        Session *s = b->s;
        const Prog *g = program_decode(&s->p, b->n_row);
        int code = TGC_OK;
        if (b->live != g) { /* rows of no sequence have some token, too */
                if ((code = take_ids(b, g, (size_t)g->B, e)))
                        return code;
                b->rt_stale = true;
        }
        if (b->rt_stale) {
                for (int r = 0; r < b->n_row; r++) {
                        s->rt.pos[r] = b->row[r]->pos;
                        s->rt.slot[r] = b->row[r]->slot;
                        s->rt.n_out[r] = b->n_drawn;
                }
                session_rows(s, b->n_row);
                b->rt_stale = false;
        }
        int which[TGC_MAX_BATCH];
        for (int r = 0; r < b->n_row; r++)
                which[r] = b->row[r]->how.adapter;
        if ((code = session_write_adapters(s, g, which, b->n_row, e)) ||
            (code = any_mask(b) ? run_masked(b, g, e) : session_run(s, g->name, b->n_row, 1, e)))
                return code;
        return decode_queued(b, g, e);
}

/* Is there a program for both in one call, with room for these?  Masks are made within a call. */
static bool is_mixed(const Batch *b, const Chunks *c)
{
        return b->mixed && b->n_row && c->n && b->n_row + c->tokens <= b->mixed->T && !any_mask(b);
}

/* The rows come first, so that row r is sequence and token r of the call. */
static int decode_and_prefill(Batch *b, const Chunks *c, Err *e)
{
        SeqPart part[TGC_MAX_BATCH];
        const int rows = b->n_row;
        int code = take_ids(b, b->mixed, (size_t)rows, e);
        for (int r = 0; r < rows; r++) {
                const Seq *q = b->row[r];
                part[r] = (SeqPart) { q->slot, q->pos, 1, NULL, q->how.adapter };
                b->s->rt.n_out[r] = b->n_drawn;
        }
        memcpy(part + rows, c->part, (size_t)c->n * sizeof *part);
        b->s->rt.share = 1;
        if (code || (code = session_ragged(b->s, b->mixed, part, rows + c->n, e)))
                return code;
        b->stats.mixed++;
        chunks_queued(b, c);
        return decode_queued(b, b->mixed, e);
}

/* With the error of a sequence that has ended by it. */
static int hand_out(Batch *b, BatchToken *out, int *n, Err *e)
{
        *n = b->n_ready < TGC_MAX_BATCH ? b->n_ready : TGC_MAX_BATCH;
        memcpy(out, b->ready, (size_t)*n * sizeof *out);
        memmove(b->ready, b->ready + *n, (size_t)(b->n_ready - *n) * sizeof *b->ready);
        b->n_ready -= *n;
        const Err why = b->seq_error;
        b->seq_error.code = TGC_OK;
        return why.code ? err_set(e, why.code, "%s", why.msg) : TGC_OK;
}

static void count_shared(Batch *b)
{
        int named = 0;
        for (int i = 0; i < b->n_seq; i++)
                named += b->seq[i]->away ? 0 : b->seq[i]->n_page - b->seq[i]->gone[0];
        const int shared = named - (b->stats.pages - pages_free_count(b->pages[0]));
        if (shared > b->stats.most_shared)
                b->stats.most_shared = shared;
}

/* Is what was said last wanted before this step: since pages go, or since a mask depends on it? */
static bool must_know(const Batch *b, int n)
{
        for (int i = 0; i < n; i++)
                if (b->out[i].act == SCHED_LEAVE || (b->who[i]->under_way && has_mask(b->who[i])))
                        return b->n_call > 0;
        return false;
}

static bool acts(const Batch *b, int n)
{
        for (int i = 0; i < n; i++)
                if (b->out[i].act != SCHED_NOTHING)
                        return true;
        return false;
}

static int step(Batch *b, Err *e)
{
        Chunks chunks;
        int code;
        const int m = ask_schedule(b);
        if (must_know(b, m)) /* and look again then */
                return batch_drain(b, e);
        if ((code = leave_and_return(b, m, e)) || (code = choose_chunks(b, m, &chunks, e)) ||
            (code = choose_rows(b, m, e)))
                return code;
        const bool mixed = is_mixed(b, &chunks);
        if (chunks.n && !mixed && (code = prefill(b, &chunks, e)))
                return code;
        count_shared(b);
        const bool decodes = b->n_row > 0;
        if (!decodes && !b->n_call && b->n_seq && !acts(b, m))
                return err_set(e, TGC_FAIL, "internal error: %d sequences, and nothing to do",
                               b->n_seq);
        if (decodes && (code = mixed ? decode_and_prefill(b, &chunks, e) : decode(b, e)))
                return code;
        b->stats.steps++;
        if (any_mask(b))
                return batch_drain(b, e);
        return b->n_call > b->ahead || (b->n_call && !decodes) ? batch_read_call(b, e) : TGC_OK;
}

int batch_step(Batch *b, BatchToken *out, int *n, Err *e)
{
        int code = batch_whole(b, e);
        *n = 0;
        if (!code && !b->n_ready && b->n_seq && step(b, &b->broken))
                code = batch_whole(b, e);
        return code ? code : hand_out(b, out, n, e);
}
