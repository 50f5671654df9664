/* session_infer.c: prefill and decode.
 *
 * The cache holds positions 0..pos-1.  Each sequence has one more token that is pending: the
 * prompt's last, or the one sampled last.  So decoding always begins with a token to process and
 * ends with one sampled.  It needs no logits from the prefill. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "session_impl.h"

void session_set_pos(Session *s)
{
        for (int b = 0; b < TGC_MAX_BATCH; b++) {
                s->rt.pos[b] = b < s->B ? s->pos : 0;
                s->rt.slot[b] = b;
        }
        session_rt_changed(s);
        session_rows(s, s->B);
}

int session_reset(Session *s, Err *e)
{
        (void)e;
        s->B = s->pos = s->n_drawn = 0;
        memset(s->mu, 0, sizeof s->mu);
        s->has_pending = false;
        session_set_pos(s);
        return TGC_OK;
}

int session_pos(const Session *s) { return s->pos + s->has_pending; }

int session_check_ids(const Session *s, const int *ids, size_t n, Err *e)
{
        for (size_t i = 0; i < n; i++)
                if (ids[i] < 0 || ids[i] >= s->m.vocab)
                        return err_set(e, TGC_USAGE, "token %d is outside the vocabulary of %d",
                                       ids[i], s->m.vocab);
        return TGC_OK;
}

/* Make room for the batch and check that n more tokens fit. */
static int begin_batch(Session *s, int B, int n, Err *e)
{
        if (!(s->mode & SESSION_INFER))
                return err_set(
                        e, TGC_USAGE,
                        "this session was opened for training only: open the plan for inference");
        if (n < 1)
                return err_set(e, TGC_USAGE, "a prompt of %d tokens: it needs one at least", n);
        if (B < 1 || B > s->m.batch)
                return err_set(e, TGC_USAGE, "%d sequences; the plan takes 1 to %d", B, s->m.batch);
        if (session_pos(s) && B != s->B)
                return err_set(e, TGC_USAGE,
                               "%d sequences cannot follow %d: reset the session first", B, s->B);
        if (n > s->m.ctx - session_pos(s))
                return err_set(e, TGC_USAGE,
                               "%d tokens after %d exceed the context of %d; compile with a larger "
                               "--ctx-size",
                               n, session_pos(s), s->m.ctx);
        if (!s->hist && !(s->hist = calloc((size_t)s->m.batch * (size_t)s->m.ctx, sizeof *s->hist)))
                return err_set(e, TGC_NO_MEMORY, "no memory for the tokens");
        s->B = B;
        return session_plain_pages(s, B, e);
}

/* The program for n tokens or as many of them as it takes. */
static int prefill_prog(Session *s, int n, const Prog **g, Err *e)
{
        const Prog *more = program_find(&s->p, "prefill_long");
        int code = find_prog(s, "prefill", g, e);
        if (!code && more && n > (*g)->T && s->B <= more->B && s->prog[more - s->p.prog].lacks < 0)
                *g = more;
        return code;
}

/* The same by ragged calls.  Each takes what fits of one sequence after the other, and of a
 * sequence what its ring of pages has room for. */
static int digest_pages(Session *s, int end, Err *e)
{
        const Prog *g = 0;
        int code = TGC_OK, at[TGC_MAX_BATCH];
        const int room = session_ring_room(s, s->m.batch);
        for (int b = 0; b < s->B; b++)
                at[b] = s->pos;
        for (int first = 0; first < s->B && !code;) {
                SeqPart part[TGC_MAX_BATCH];
                int n = 0, left;
                if ((code = prefill_prog(s, (s->B - first - 1) * (end - s->pos) + end - at[first],
                                         &g, e)))
                        break;
                left = g->T;
                for (int b = first; b < s->B && left > 0; b++) {
                        int take = end - at[b] < left ? end - at[b] : left;
                        take = take < room ? take : room;
                        if (!take)
                                continue;
                        part[n++] = (SeqPart) { b, at[b], take,
                                                s->hist + (size_t)b * s->m.ctx + at[b], 0 };
                        left -= take;
                        at[b] += take;
                }
                while (first < s->B && at[first] == end)
                        first++;
                s->rt.share = 1;
                code = session_ragged(s, g, part, n, e);
        }
        if (!code)
                s->pos = end;
        return code;
}

/* Digest positions [pos, end) of the history, in chunks. */
static int digest(Session *s, int end, Err *e)
{
        const Prog *g = 0;
        int code = TGC_OK, *chunk;
        if (end <= s->pos)
                return TGC_OK;
        if (s->m.pages)
                return digest_pages(s, end, e);
        if (!(chunk = malloc((size_t)s->B * (size_t)(end - s->pos) * sizeof *chunk)))
                return err_set(e, TGC_NO_MEMORY, "no memory for %d tokens", end - s->pos);
        while (s->pos < end && !(code = prefill_prog(s, end - s->pos, &g, e))) {
                int n = end - s->pos < g->T ? end - s->pos : g->T;
                for (int b = 0; b < s->B; b++)
                        memcpy(chunk + (size_t)b * n, s->hist + (size_t)b * s->m.ctx + s->pos,
                               (size_t)n * sizeof *chunk);
                session_set_pos(s);
                s->rt.share = 1;
                if ((code = session_write(s, g->name, "ids", chunk,
                                          (size_t)s->B * n * sizeof *chunk, e)) ||
                    (code = session_run(s, g->name, s->B, n, e)))
                        break;
                s->pos += n;
        }
        free(chunk);
        return code;
}

int session_truncate(Session *s, int n, Err *e)
{
        if (n < 0 || n > session_pos(s))
                return err_set(e, TGC_USAGE, "%d tokens to keep of %d", n, session_pos(s));
        if (n == session_pos(s))
                return TGC_OK;
        /* calls ahead and drafts wrote a few tokens more */
        if (s->m.pages && n > 1 && s->pos + TGC_PAGE - (n - 1) > session_ring_room(s, s->m.batch)) {
                s->pos = 0; /* keys of the window are gone: they are made again */
                int code = digest(s, n - 1, e);
                if (code)
                        return code;
        }
        s->pos = n ? n - 1 : 0;
        s->has_pending = n > 0;
        for (int b = 0; b < s->B && n; b++)
                s->pending[b] = s->hist[(size_t)b * s->m.ctx + n - 1];
        session_set_pos(s);
        return TGC_OK;
}

/* Which adapter a sequence has is known to a batch alone. */
int session_no_adapters(const Session *s, Err *e)
{
        return s->m.n_adapters ? err_set(e, TGC_USAGE,
                                         "sequences of this plan choose among %d adapters, which "
                                         "only `tgc run --prompts` and tgc_batch_add do",
                                         s->m.n_adapters)
                               : TGC_OK;
}

int session_prefill(Session *s, const int *ids, int B, int n, Err *e)
{
        int code = session_no_adapters(s, e);
        if (!code)
                code = begin_batch(s, B, n, e);
        const int first = session_pos(s);
        if (code || (code = session_check_ids(s, ids, (size_t)B * n, e)))
                return code;
        for (int b = 0; b < B; b++)
                memcpy(s->hist + (size_t)b * s->m.ctx + first, ids + (size_t)b * n,
                       (size_t)n * sizeof *ids);
        s->has_pending = false; /* it lies in the history, before the new ones */
        if ((code = digest(s, first + n - 1, e)))
                return code;
        for (int b = 0; b < B; b++)
                s->pending[b] = ids[(size_t)b * n + n - 1];
        s->has_pending = true;
        return TGC_OK;
}

int session_shift(Session *s, int keep, int *gone, Err *e)
{
        /* the token that fills the context is sampled, but has no place in the history */
        const int last = s->pos == s->m.ctx, n = session_pos(s) + last;
        if (keep < 0 || n - keep < 2)
                return err_set(e, TGC_USAGE, "%d tokens to keep of %d", keep, n);
        *gone = (n - keep) / 2;
        const int rest = n - keep - *gone;
        int *ids = malloc((size_t)s->B * (size_t)rest * sizeof *ids), code;
        if (!ids)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d tokens", rest);
        for (int b = 0; b < s->B; b++) {
                int *to = ids + (size_t)b * (size_t)rest;
                memcpy(to, s->hist + (size_t)b * s->m.ctx + keep + *gone,
                       (size_t)(rest - last) * sizeof *ids);
                if (last)
                        to[rest - 1] = s->pending[b];
        }
        if (!(code = session_truncate(s, keep, e)))
                code = session_prefill(s, ids, s->B, rest, e);
        free(ids);
        return code;
}

/* ---- decoding ---- */

/* All of them need the same arenas. */
static const Prog *decode_prog(const Session *s, int B)
{
        const Prog *g = program_decode(&s->p, B);
        return g && s->prog[g - s->p.prog].lacks < 0 ? g : 0;
}

/* Take the tokens of step i from its slot and hand them on. */
int decode_deliver(Decode *x, int i, Err *e)
{
        Session *s = x->s;
        int token[TGC_MAX_BATCH];
        void *to = x->m.drawn ? (void *)s->drawn : token;
        size_t each = x->m.drawn ? sizeof *s->drawn : sizeof *token;
        int code = dev_fetched(s->d, i % DEV_FETCH_SLOTS, to, (size_t)s->B * each, e);
        for (int b = 0; b < s->B && !code && x->m.drawn; b++) {
                token[b] = s->drawn[b].token;
                s->mu[b] = s->drawn[b].mirostat_mu;
                if (token[b] < 0) /* how the sampler says it */
                        code = err_set(
                                e, TGC_NON_FINITE,
                                "the logits after %d tokens are not finite, so there is no next "
                                "token; `tgc check` tells whether the weights or the kernels are "
                                "to blame",
                                x->first + i);
        }
        for (int b = 0; b < s->B && !code; b++)
                if (token[b] < 0 || token[b] >= s->m.vocab)
                        code = err_set(e, TGC_FAIL,
                                       "the sampler returned token %d, and the vocabulary has %d: "
                                       "`tgc check` tells whether the kernels are to blame",
                                       token[b], s->m.vocab);
        if (code)
                return code;
        for (int b = 0; b < s->B; b++) {
                if (x->first + i < s->m.ctx)
                        s->hist[(size_t)b * s->m.ctx + x->first + i] = token[b];
                s->pending[b] = token[b];
        }
        x->delivered = i + 1;
        x->stop = x->fn && x->fn(x->user, i, token, s->B);
        return TGC_OK;
}

/* What each step drew has a place of its own for RT_DRAWN steps: no later step need wait until it
 * is read. */
int decode_queue(Decode *x, int i, Err *e)
{
        Session *s = x->s;
        size_t bytes = (size_t)s->B * sizeof(int);
        const RtDrawn *drawn = x->m.drawn ? x->m.drawn + (size_t)(i % RT_DRAWN) * x->m.n : 0;
        int code = TGC_OK;
        if (x->how->mask && x->m.slots) {
                code = session_run_part(s, x->g->name, s->B, 1, RUN_BUT_LAST, e);
                if (!code)
                        code = sample_masks(s, &x->m, x->how, i ? s->pending : NULL, e);
                if (!code)
                        code = session_run_part(s, x->g->name, s->B, 1, RUN_LAST, e);
        } else {
                code = session_run(s, x->g->name, s->B, 1, e);
        }
        if (!code)
                code = drawn ? dev_fetch(s->d, i % DEV_FETCH_SLOTS, drawn,
                                         (size_t)s->B * sizeof *drawn, true, e)
                             : dev_fetch(s->d, i % DEV_FETCH_SLOTS, x->next, bytes, false, e);
        if (!code && x->ids != x->next)
                code = dev_copy(s->d, x->ids, x->next, bytes, e);
        return code;
}

/* Steps that a GPU has been given when the first of them is read. */
enum { AHEAD = 3 };

/* A GPU is given steps before the last ones are read, so that it never waits for the
 * host; the steps too many after a stop only write where the next tokens will. */
static int decode_steps(Decode *x, int n, Err *e)
{
        int lag = dev_host_memory(x->s->d) || x->how->mask ? 0
                  : x->m.drawn                             ? AHEAD
                                                           : 1,
            queued = 0, code = TGC_OK;
        while (x->delivered < n && !x->stop && !code) {
                if (queued < n)
                        code = decode_queue(x, queued++, e);
                if (!code && (queued - x->delivered > lag || queued == n))
                        code = decode_deliver(x, x->delivered, e);
        }
        return code;
}

int session_decode(Session *s, const Sampling *how, int n, TokenFn *fn, void *user, Err *e)
{
        return session_decode_drafted(s, how, n, NULL, fn, user, e);
}

int session_decode_drafted(Session *s, const Sampling *how, int n, Draft *draft, TokenFn *fn,
                           void *user, Err *e)
{
        const Prog *g = s->has_pending ? decode_prog(s, s->B) : 0;
        const Io *ids, *next;
        Decode x = { .s = s, .g = g, .fn = fn, .user = user, .first = s->pos + 1 };
        Sampling d = sampling_default();
        size_t bytes;
        int code;

        x.how = how = how ? how : &d;
        if (s->pos >= s->m.ctx)
                return err_set(e, TGC_USAGE,
                               "the context of %d tokens is full; compile with a larger --ctx-size",
                               s->m.ctx);
        if (!s->has_pending)
                return err_set(e, TGC_USAGE, "decoding needs at least one token of prompt");
        if (!g)
                return err_set(e, TGC_USAGE,
                               "the plan has no decode program for %d sequences: compile the "
                               "model with --mode infer --batch-size %d",
                               s->B, s->B);
        if ((code = find_io(s, g->name, "ids", &ids, &x.ids, &bytes, e)) ||
            (code = find_io(s, g->name, "next", &next, &x.next, &bytes, e)))
                return code;
        if (bytes < (size_t)s->B * sizeof(int) || bytes > sizeof s->pending ||
            strcmp(ids->dtype, "i32") || strcmp(next->dtype, "i32"))
                return err_set(e, TGC_BAD_FILE,
                               "program %s: ids are %s, next is %s of %zu bytes, and %d "
                               "sequences need an i32 each: compile the model again",
                               g->name, ids->dtype, next->dtype, bytes, s->B);
        memset(s->rt.n_out, 0, sizeof s->rt.n_out);
        s->rt.share = 1;
        session_set_pos(s);
        /* rows of no sequence get some token, too: they pick rows of tables */
        if ((code = dev_upload(s->d, x.ids, s->pending, bytes, e)) ||
            (code = sample_memory(s, g, &x.m, e)) || (code = sample_begin(s, &x.m, how, e)))
                return code;
        const int room = s->m.ctx - s->pos, most = n >= 0 && n < room ? n : room;
        const int first = s->pos;
        code = draft ? decode_drafted(&x, most, draft, e) : decode_steps(&x, most, e);
        s->pos = first;
        s->n_drawn += x.delivered;
        s->pos += x.delivered; /* every token sampled stands for one digested */
        s->has_pending = s->pos < s->m.ctx;
        if (!code && x.delivered == most && most < n && !x.stop)
                code = err_set(e, TGC_USAGE,
                               "the context of %d tokens is full; compile with a larger --ctx-size",
                               s->m.ctx);
        return code;
}
