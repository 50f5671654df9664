/* run_together.c: decodes several prompts, or several continuations of one prompt, together. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/batch/batch.h"
#include "run.h"

typedef struct Together {
        Batch *b;
        Gen *gen;
        int *id;        /* of each in the batch; 0: it has ended */
        int n, printed; /* printed: texts; with in_order those before it, too */
        bool in_order;  /* ids are printed in the order of the prompts */
        const Sampling *how;
        Clock *c;
        Session *s;
} Together;

static uint64_t seed_of(const Together *t, int i, int parallel)
{
        return t->how->seed + (uint64_t)(i % parallel);
}

static int add_all(Together *t, const Prompts *p, int parallel, int predict, int ctx, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < t->n && !code; i++) {
                Gen *r = &t->gen[i];
                const int room = ctx - p->prompt[i / parallel].n + 1;
                BatchHow how = { .sampling = *t->how };
                how.sampling.seed = seed_of(t, i, parallel);
                how.sampling.mask_user = &r->grammar;
                how.adapter = p->prompt[i / parallel].adapter;
                how.predict = predict < 0 || predict > room ? room : predict;
                r->which = i;
                r->of = t->n;
                r->ctx = ctx;
                if ((code = gen_begin(r, &p->prompt[i / parallel])))
                        break;
                r->stop = how.predict == room && predict != room ? "context" : "length";
                if (how.predict > 0)
                        code = batch_add(t->b, r->ids, r->n, &how, &t->id[i], e);
                else if (!t->in_order)
                        r->follows = t->printed > 0, t->printed++,
                        code = gen_report(r, t->c, t->s, how.sampling.seed, e);
        }
        return code;
}

static int print_ended(Together *t, int parallel, Err *e)
{
        int code = TGC_OK;
        for (; t->printed < t->n && !t->id[t->printed] && !code; t->printed++)
                code = gen_report(&t->gen[t->printed], t->c, t->s, seed_of(t, t->printed, parallel),
                                  e);
        return code;
}

/* What a sequence says; whether it ends is gen_take's to say, or the batch's. */
static int take(Together *t, const BatchToken *x, int parallel, Err *e)
{
        int i = 0, code = TGC_OK;
        while (i < t->n && t->id[i] != x->seq)
                i++;
        if (i == t->n)
                return TGC_OK; /* it was dropped */
        Gen *r = &t->gen[i];
        const char *otherwise = r->stop;
        r->stop = NULL;
        if (gen_take(r, x->token, &x->drawn) && !x->end)
                code = batch_drop(t->b, x->seq, e);
        else if (!x->end)
                return r->stop = otherwise, r->code;
        r->stop = r->stop ? r->stop : otherwise;
        t->id[i] = 0;
        grammar_text_end(&r->grammar);
        r->follows = t->printed > 0;
        if (!code && !r->code && !t->in_order)
                t->printed++, code = gen_report(r, t->c, t->s, seed_of(t, i, parallel), e);
        return code ? code : r->code;
}

/* Of so many pages of each pool. */
static double mib(int pages, int narrow, const BatchStats *st)
{
        return ((double)pages * (double)st->page_bytes +
                (double)narrow * (double)st->narrow_page_bytes) /
               (1 << 20);
}

int run_together(const Gen *like, Session *s, const Prompts *p, int parallel, const Sampling *how,
                 Clock *c, Err *e)
{
        BatchToken *out = malloc(TGC_MAX_BATCH * sizeof *out);
        const int ctx = opt_int(like->a, O_CTX) ? opt_int(like->a, O_CTX)
                                                : session_manifest(s)->ctx;
        Together t = { .n = p->n * parallel, .how = how, .c = c, .s = s };
        uint64_t said = 0;
        int code = TGC_OK;
        t.in_order = opt_flag(like->a, O_PRINT_IDS) || !like->tok;
        t.gen = calloc((size_t)t.n, sizeof *t.gen);
        t.id = calloc((size_t)t.n, sizeof *t.id);
        if (!out || !t.gen || !t.id)
                code = err_set(e, TGC_NO_MEMORY, "no memory for %d sequences", t.n);
        for (int i = 0; i < t.n && !code; i++) {
                t.gen[i] = *like;
                t.gen[i].whole = true;
                t.gen[i].text = false;
        }
        const double before = clock_s();
        if (!code && !(code = batch_open(&t.b, s, NULL, e)))
                code = add_all(&t, p, parallel, opt_int(like->a, O_PREDICT), ctx, e);
        if (!code && t.in_order)
                code = print_ended(&t, parallel, e);
        while (!code && batch_left(t.b) && !signal_seen()) {
                int n;
                code = batch_step(t.b, out, &n, e);
                for (int i = 0; i < n && !code; i++, said++)
                        code = take(&t, &out[i], parallel, e);
                if (!code && t.in_order)
                        code = print_ended(&t, parallel, e);
        }
        if (!code && !opt_flag(like->a, O_JSON)) {
                Progress talk = progress_new(like->a);
                const BatchStats st = batch_stats(t.b);
                const double seconds = clock_s() - before;
                say(&talk, "%s: load %.2f s, %d sequences, %llu tokens in %.2f s, %.1f tok/s\n",
                    dev_name(session_device(s)), c->load, t.n, (unsigned long long)said, seconds,
                    seconds > 0 ? (double)said / seconds : 0);
                say(&talk,
                    "cache: %llu tokens of prompts digested, %llu more were there already; %d of "
                    "%d pages of %d tokens at most (%.1f of %.1f MiB), where %d would be without "
                    "sharing\n",
                    (unsigned long long)st.prefilled, (unsigned long long)st.from_prefix,
                    st.most_used, st.pages, TGC_PAGE, mib(st.most_used, st.narrow_most_used, &st),
                    mib(st.pages, st.narrow_pages, &st), st.most_used + st.most_shared);
                if (st.mixed)
                        say(&talk, "%llu of %llu steps decoded and read prompts by one call\n",
                            (unsigned long long)st.mixed, (unsigned long long)st.steps);
                if (st.narrow_pages)
                        say(&talk, "of layers with narrower windows: %d of %d pages at most\n",
                            st.narrow_most_used, st.narrow_pages);
        }
        batch_close(t.b);
        for (int i = 0; i < t.n && t.gen; i++) {
                grammar_text_end(&t.gen[i].grammar);
                gen_free(&t.gen[i]);
        }
        free(t.gen);
        free(t.id);
        free(out);
        return code;
}
