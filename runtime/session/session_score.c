/* session_score.c: computes log-probabilities of texts.
 *
 * A text runs as a prompt would, but with the logits of every token.  If the plan is for several
 * sequences, a call holds tokens of many texts, one after the other.  A text that does not fit
 * continues in the next call.  Its slot of the cache serves another text once it has ended. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../weights/ck_tensor.h"
#include "session_impl.h"

typedef struct Score {
        Session *s;
        const Prog *g;
        const ScoreText *text;
        int n, rows; /* texts; slots of the cache */
        int room;    /* most tokens of a text in a call */
        bool logits; /* the host reads them */
        const Io *logits_io, *nll_io;
        void *logits_mem, *nll_mem;
        int *target;      /* (g->T) */
        float *row, *nll; /* (g->T,V), (g->T) */
        uint16_t *raw;    /* (g->T,V) as stored, when not float32 */
} Score;

/* Tokens that are run: the last one of a text that is one longer than the context is a target
 * alone. */
static int fed(const Score *x, const ScoreText *t) { return t->n - (t->n > x->s->m.ctx); }

/* -log softmax(row)[target], in double. */
static double row_nll(const float *row, int V, int target)
{
        double max = -INFINITY, sum = 0;
        for (int i = 0; i < V; i++)
                max = row[i] > max ? row[i] : max;
        for (int i = 0; i < V; i++)
                sum += exp(row[i] - max);
        return max + log(sum) - row[target];
}

static bool is_likeliest(const float *row, int V, int target)
{
        for (int i = 0; i < V; i++)
                if (!(row[i] < row[target]) && (i < target || row[i] != row[target]) && i != target)
                        return false;
        return true;
}

static int read_logits(Score *x, int n, Err *e)
{
        const size_t V = (size_t)x->s->m.vocab, count = (size_t)n * V;
        const int type = ck_dtype_find(x->logits_io->dtype);
        if (type == CK_F32)
                return dev_download(x->s->d, x->row, x->logits_mem, count * sizeof *x->row, e);
        if (!x->raw && !(x->raw = malloc((size_t)x->g->T * V * sizeof *x->raw)))
                return err_set(e, TGC_NO_MEMORY, "no memory for logits");
        int code = dev_download(x->s->d, x->raw, x->logits_mem, count * sizeof *x->raw, e);
        if (!code && !ck_convert(x->row, CK_F32, x->raw, type, count, 1))
                code = err_set(e, TGC_BAD_FILE,
                               "program %s: logits are of type %s, and must be f32, bf16 or f16: "
                               "compile the model again",
                               x->g->name, x->logits_io->dtype);
        return code;
}

/* What the call said of tokens [at, at + n) of a text, whose rows begin at `first`. */
static void take(Score *x, const ScoreText *t, int at, int n, int first)
{
        const int V = x->s->m.vocab;
        const float *row = x->logits ? x->row + (size_t)first * (size_t)V : NULL;
        if (t->logits)
                memcpy(t->logits + (size_t)at * (size_t)V, row,
                       (size_t)n * (size_t)V * sizeof *row);
        for (int i = 0; i < n; i++) {
                const int next = at + i + 1;
                if (next < t->from || next >= t->n)
                        continue;
                if (t->nll)
                        t->nll[next] = x->nll_io ? x->nll[first + i]
                                                 : row_nll(row + (size_t)i * (size_t)V, V,
                                                           t->ids[next]);
                if (t->likeliest)
                        t->likeliest[next] = is_likeliest(row + (size_t)i * (size_t)V, V,
                                                          t->ids[next]);
        }
}

/* The targets of tokens [at, at + n), from `first` on; how many of them count. */
static int targets(Score *x, const ScoreText *t, int at, int n, int first)
{
        int counted = 0;
        for (int i = 0; i < n; i++) {
                x->target[first + i] = at + i + 1 < t->n ? t->ids[at + i + 1] : -1;
                counted += x->target[first + i] >= 0;
        }
        return counted;
}

static int before_call(Score *x, int tokens, int counted, Err *e)
{
        x->s->rt.share = 1;
        x->s->rt.inv_tokens = counted ? 1.f / (float)counted : 0.f;
        return prog_io(x->g, "targets") ? session_write(x->s, x->g->name, "targets", x->target,
                                                        (size_t)tokens * sizeof(int), e)
                                        : TGC_OK;
}

static int after_call(Score *x, int tokens, Err *e)
{
        int code = x->logits ? read_logits(x, tokens, e) : TGC_OK;
        return code || !x->nll_io ? code
                                  : dev_download(x->s->d, x->nll, x->nll_mem,
                                                 (size_t)tokens * sizeof *x->nll, e);
}

/* A text alone, in chunks. */
static int score_alone(Score *x, const ScoreText *t, Err *e)
{
        Session *s = x->s;
        const int end = fed(x, t);
        int code = TGC_OK;
        for (int at = 0, n; at < end && !code; at += n) {
                n = end - at < x->g->T ? end - at : x->g->T;
                s->B = 1;
                s->pos = at;
                session_set_pos(s);
                if ((code = before_call(x, n, targets(x, t, at, n, 0), e)) ||
                    (code = session_write(s, x->g->name, "ids", t->ids + at,
                                          (size_t)n * sizeof(int), e)) ||
                    (code = session_run(s, x->g->name, 1, n, e)) || (code = after_call(x, n, e)))
                        break;
                take(x, t, at, n, 0);
        }
        return code;
}

/* One call: tokens of texts from *text, *at on, which move. */
static int score_call(Score *x, int *text, int *at, Err *e)
{
        SeqPart part[TGC_MAX_BATCH];
        const int first = *text;
        int n = 0, tokens = 0, counted = 0, code;
        while (*text < x->n && n < x->rows && tokens < x->g->T) {
                const ScoreText *t = &x->text[*text];
                const int left = fed(x, t) - *at, room = x->g->T - tokens,
                          most = room < x->room ? room : x->room, take = left < most ? left : most;
                part[n++] = (SeqPart) { *text % x->rows, *at, take, t->ids + *at, 0 };
                counted += targets(x, t, *at, take, tokens);
                tokens += take;
                *at += take;
                if (*at < fed(x, t))
                        break;
                ++*text;
                *at = 0;
        }
        if ((code = before_call(x, tokens, counted, e)) ||
            (code = session_ragged(x->s, x->g, part, n, e)) || (code = after_call(x, tokens, e)))
                return code;
        for (int i = 0, row = 0; i < n; row += part[i++].n)
                take(x, &x->text[first + i], part[i].pos, part[i].n, row);
        return TGC_OK;
}

int session_score_rows(const Session *s, int most, int longest)
{
        const int each = (longest + TGC_PAGE - 1) / TGC_PAGE;
        int rows = s->m.pages ? s->m.batch : 1;
        if (s->m.pages && rows > (s->m.pages - 1) / each)
                rows = (s->m.pages - 1) / each;
        return most && most < rows ? most : rows;
}

/* Where a program's results lie, and memory to read them. */
static int prepare(Score *x, bool logits, Err *e)
{
        Session *s = x->s;
        const size_t V = (size_t)s->m.vocab, T = (size_t)x->g->T;
        const char *name = x->g->name;
        size_t most;
        int code;
        if (prog_io(x->g, "nll") &&
            (code = find_io(s, name, "nll", &x->nll_io, &x->nll_mem, &most, e)))
                return code;
        x->logits = logits || !x->nll_io;
        if (x->logits &&
            (code = find_io(s, name, "logits", &x->logits_io, &x->logits_mem, &most, e)))
                return code;
        if (x->logits && most < T * V * x->logits_io->elem)
                return err_set(e, TGC_BAD_FILE,
                               "program %s: logits have %zu bytes of %s, and %zu tokens of %zu "
                               "are needed: compile the model again",
                               name, most, x->logits_io->dtype, T, V);
        x->target = malloc(T * sizeof *x->target);
        x->nll = malloc(T * sizeof *x->nll);
        x->row = x->logits ? malloc(T * V * sizeof *x->row) : NULL;
        return x->target && x->nll && (!x->logits || x->row)
                       ? TGC_OK
                       : err_set(e, TGC_NO_MEMORY, "no memory to score calls of %zu tokens", T);
}

static int check(Score *x, int *longest, bool *logits, Err *e)
{
        const bool window = !strcmp(x->g->name, "eval");
        *logits = false;
        *longest = 1;
        for (int i = 0; i < x->n; i++) {
                const ScoreText *t = &x->text[i];
                int code;
                if (t->n < 1 || t->n > x->s->m.ctx + !t->logits || t->from < 1)
                        return err_set(e, TGC_USAGE,
                                       "%d tokens to score; the plan takes 1 to %d, its context: "
                                       "compile with a larger --ctx-size",
                                       t->n, x->s->m.ctx);
                if (window && fed(x, t) > x->g->T)
                        return err_set(
                                e, TGC_USAGE,
                                "%d tokens to score; a plan for training takes its window of %d: "
                                "compile with --mode both or a larger --block-size",
                                t->n, x->g->T);
                if ((code = session_check_ids(x->s, t->ids, (size_t)t->n, e)))
                        return code;
                *logits |= t->logits || t->likeliest;
                *longest = fed(x, t) > *longest ? fed(x, t) : *longest;
        }
        return TGC_OK;
}

static int score_all(Score *x, int most, Err *e)
{
        bool logits;
        int longest, code;
        if ((code = find_prog(x->s, session_has(x->s, "score") ? "score" : "eval", &x->g, e)) ||
            (code = check(x, &longest, &logits, e)) || (code = prepare(x, logits, e)))
                return code;
        if (!x->s->m.pages) {
                for (int i = 0; i < x->n && !code; i++)
                        code = score_alone(x, &x->text[i], e);
                return code;
        }
        x->rows = session_score_rows(x->s, most, longest);
        if (x->rows < 1)
                return err_set(e, TGC_USAGE,
                               "a text of %d tokens needs %d pages of the cache, which has %d; "
                               "compile with a larger --cache-tokens",
                               longest, (longest + TGC_PAGE - 1) / TGC_PAGE, x->s->m.pages - 1);
        x->s->plain_pages = false;
        x->room = session_ring_room(x->s, x->rows);
        code = session_ring(x->s, x->rows, longest, e);
        for (int text = 0, at = 0; text < x->n && !code;)
                code = score_call(x, &text, &at, e);
        return code;
}

int session_score_texts(Session *s, const ScoreText *text, int n, int most, Err *e)
{
        Score x = { .s = s, .text = text, .n = n };
        int code = session_no_adapters(s, e);
        if (!code)
                code = score_all(&x, most, e);
        free(x.target);
        free(x.nll);
        free(x.row);
        free(x.raw);
        session_reset(s, 0);
        return code;
}

int session_score(Session *s, const int *ids, int n, float *logits, double *nll, Err *e)
{
        if (n < 1 || n > s->m.ctx)
                return err_set(e, TGC_USAGE,
                               "%d tokens to score; the plan takes 1 to %d, its context: compile "
                               "with a larger --ctx-size",
                               n, s->m.ctx);
        double *all = nll ? malloc((size_t)n * sizeof *all) : NULL; /* [0] is of no token */
        const ScoreText t = { ids, n, 1, logits, all, NULL };
        if (nll && !all)
                return err_set(e, TGC_NO_MEMORY, "no memory to score %d tokens", n);
        int code = session_score_texts(s, &t, 1, 1, e);
        if (!code && nll && n > 1)
                memcpy(nll, all + 1, (size_t)(n - 1) * sizeof *nll);
        free(all);
        return code;
}
