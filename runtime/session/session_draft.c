/* session_draft.c: speculative decoding: several tokens by one call, if a draft of them is right.
 *
 * Program `score` runs the pending token and the draft, and gives the logits after each token.
 * Then the sampler of the decode program draws from one row after the other, with the same random
 * numbers, penalties and masks as single steps would use.  The first token that differs from the
 * draft becomes the next pending one.  The cache behind it is overwritten later.  So a draft, good
 * or bad, does not change what is drawn. */
#include <string.h>
#include "session_impl.h"

/* Longer matches say more; a single token says too little. */
enum { LONGEST = 4, SHORTEST = 2 };

int ngram_draft(const int *ids, int n, int most, int *out)
{
        int best = SHORTEST - 1, from = 0;
        for (int i = n - 2; i >= best && best < LONGEST; i--) { /* a match may end here */
                int len = 0;
                while (len < LONGEST && len <= i && ids[i - len] == ids[n - 1 - len])
                        len++;
                if (len > best) {
                        best = len;
                        from = i + 1;
                }
        }
        if (!from)
                return 0;
        for (int k = 0; k < most; k++) /* what repeats itself goes on doing so */
                out[k] = from + k < n ? ids[from + k] : out[from + k - n];
        return most;
}

typedef struct Verify {
        Decode *x;
        const Prog *g;   /* that scores */
        char *rows;      /* (most + 1, V): the logits, aside */
        size_t row;      /* bytes of one */
        void *from, *to; /* logits of g, and of the decode program */
} Verify;

static int open_verify(Verify *v, int most, Err *e)
{
        Session *s = v->x->s;
        const Io *from, *to;
        size_t have, room;
        void *rows = NULL;
        int code = find_prog(s, "score", &v->g, e);
        if (code || (code = find_io(s, v->g->name, "logits", &from, &v->from, &have, e)) ||
            (code = find_io(s, v->x->g->name, "logits", &to, &v->to, &room, e)))
                return code;
        v->row = (size_t)s->m.vocab * to->elem;
        if (from->elem != to->elem || strcmp(from->dtype, to->dtype) || room < v->row ||
            have < (size_t)v->g->T * v->row)
                return err_set(e, TGC_BAD_FILE,
                               "programs %s and %s have logits of other types: compile the model "
                               "again",
                               v->g->name, v->x->g->name);
        code = dev_alloc(s->d, (size_t)(most + 1) * v->row, &rows, e);
        v->rows = rows;
        return code;
}

/* Where the next token is drawn, as a step begins. */
static void stand_at(Decode *x, int position)
{
        Session *s = x->s;
        s->pos = position;
        s->rt.n_out[0] = x->delivered;
        session_set_pos(s);
}

/* Logits after the pending token and after each of the draft. */
static int run_draft(Verify *v, const int *draft, int k, Err *e)
{
        Session *s = v->x->s;
        int ids[DRAFT_MOST + 1] = { s->pending[0] }, code;
        memcpy(ids + 1, draft, (size_t)k * sizeof *ids);
        s->rt.share = 1;
        const SeqPart part = { 0, s->pos, k + 1, ids, 0 };
        if (s->m.pages)
                code = session_ragged(s, v->g, &part, 1, e);
        else if (!(code = session_write(s, v->g->name, "ids", ids, (size_t)(k + 1) * sizeof *ids,
                                        e)))
                code = session_run(s, v->g->name, 1, k + 1, e);
        return code ? code : dev_copy(s->d, v->rows, v->from, (size_t)(k + 1) * v->row, e);
}

/* Draws from row i, and hands the token on. */
static int draw(Verify *v, int first, int i, Err *e)
{
        Decode *x = v->x;
        Session *s = x->s;
        const int step = x->delivered;
        int code = dev_copy(s->d, v->to, v->rows + (size_t)i * v->row, v->row, e);
        if (code)
                return code;
        stand_at(x, first + i);
        if (x->how->mask && x->m.slots &&
            (code = sample_masks(s, &x->m, x->how, step ? s->pending : NULL, e)))
                return code;
        if ((code = session_run_part(s, x->g->name, 1, 1, RUN_LAST, e)))
                return code;
        const RtDrawn *drawn = x->m.drawn ? x->m.drawn + (size_t)(step % RT_DRAWN) * (size_t)x->m.n
                                          : NULL;
        code = drawn ? dev_fetch(s->d, step % DEV_FETCH_SLOTS, drawn, sizeof *drawn, true, e)
                     : dev_fetch(s->d, step % DEV_FETCH_SLOTS, x->next, sizeof(int), false, e);
        return code ? code : decode_deliver(x, step, e);
}

/* One call for the draft; the tokens until one is another. */
static int verify(Verify *v, const int *draft, int k, Draft *d, Err *e)
{
        Decode *x = v->x;
        Session *s = x->s;
        const int first = s->pos;
        int code;
        stand_at(x, first);
        if ((code = run_draft(v, draft, k, e)))
                return code;
        d->proposed += k;
        for (int i = 0; i <= k && !code && !x->stop; i++) {
                if ((code = draw(v, first, i, e)))
                        break;
                s->pos = first + i + 1;
                if (i == k || s->pending[0] != draft[i])
                        break;
                d->accepted++;
        }
        return code;
}

static int plain_step(Decode *x, Err *e)
{
        Session *s = x->s;
        const int first = s->pos;
        stand_at(x, first);
        int code = dev_upload(s->d, x->ids, s->pending, sizeof(int), e);
        if (!code && !(code = decode_queue(x, x->delivered, e)))
                code = decode_deliver(x, x->delivered, e);
        s->pos = first + 1;
        return code;
}

int decode_drafted(Decode *x, int n, Draft *d, Err *e)
{
        Session *s = x->s;
        Verify v = { .x = x };
        int draft[DRAFT_MOST], code;
        if (s->B != 1)
                return err_set(e, TGC_USAGE, "drafts are for one sequence, and there are %d", s->B);
        if (d->most < 1 || d->most > DRAFT_MOST)
                return err_set(e, TGC_USAGE, "drafts of %d tokens; 1 to %d", d->most, DRAFT_MOST);
        code = open_verify(&v, d->most, e);
        while (!code && x->delivered < n && !x->stop) {
                /* the last token of all needs no draft */
                int most = n - x->delivered - 1;
                most = most < d->most ? most : d->most;
                most = most < v.g->T - 1 ? most : v.g->T - 1;
                const int k = most > 0 ? ngram_draft(s->hist, s->pos + 1, most, draft) : 0;
                code = k ? verify(&v, draft, k, d, e) : plain_step(x, e);
        }
        if (v.rows) {
                dev_sync(s->d, NULL);
                dev_free(s->d, v.rows, (size_t)(d->most + 1) * v.row);
        }
        return code;
}
