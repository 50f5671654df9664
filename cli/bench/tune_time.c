/* tune_time.c: lists a plan's products and measures them in one round. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/line_reader.h"
#include "tune.h"

enum { LEAST_RUNS = 3 };
static const double WARM_S = 0.3;
/* Operations for a byte from which a kernel's time is the clock's. */
static const double BUSY = 50;

const char *const tuned_progs[MOST_PROGS] = { "step", "prefill", "prefill_long", "score" };

/* One that is timed: launch number `at` of a program is of a product; -1: of one that is timed
 * elsewhere. */
typedef struct Launch {
        int prog, at, product;
} Launch;

/* ---- products of a plan ---- */

static int open_words(LineReader *w, const Plan *p, char **mem, Err *e)
{
        const Section *s = plan_find(p, "products");
        *w = (LineReader) { .what = "products", .e = e };
        *mem = s ? strndup(s->data, s->size) : NULL;
        w->rest = *mem;
        if (!s)
                return err_set(e, TGC_BAD_FILE,
                               "the plan has no section products: compile the model again");
        return *mem ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for the products");
}

static int find_product(const Tune *t, const char *key)
{
        for (int i = 0; i < t->n; i++)
                if (!strcmp(t->product[i].key, key))
                        return i;
        return -1;
}

static int prog_of(const char *name)
{
        for (int i = 0; i < MOST_PROGS; i++)
                if (!strcmp(tuned_progs[i], name))
                        return i;
        return -1;
}

static void add_tile(Product *p, const char *tile, bool sm90)
{
        if (*tile == 'S' && !sm90)
                return;
        for (int i = 0; i < p->n; i++)
                if (!strcmp(p->tile[i], tile))
                        return;
        if (p->n < MOST_TRIED)
                p->tile[p->n++] = tile;
}

/* product KEY has TILE [TILE90] or TILE...; on sm_90a the second is what runs. */
static void read_product(Tune *t, LineReader *w, bool sm90)
{
        Product p = { .key = line_need(w, "key"), .prog = -1 };
        line_keyword(w, "has");
        const char *here = line_need(w, "tile"), *s = line_need(w, "or");
        if (strcmp(s, "or")) {
                here = sm90 ? s : here;
                line_keyword(w, "or");
        }
        add_tile(&p, here, true);
        while ((s = line_word(w)))
                add_tile(&p, s, sm90);
        t->product[t->n++] = p;
}

/* Of the programs that have it the first one is where it is timed. */
int tune_products(Tune *t, const Plan *p, bool sm90, char **mem, Err *e)
{
        LineReader w;
        int code = open_words(&w, p, mem, e);
        if (code)
                return code;
        if (!(t->product = calloc(text_count(*mem, strlen(*mem), "product") + 1,
                                  sizeof *t->product)))
                return err_set(e, TGC_NO_MEMORY, "no memory for the products");
        while (!w.code && line_next(&w)) {
                const char *s = line_need(&w, "statement");
                if (!strcmp(s, "product"))
                        read_product(t, &w, sm90);
                if (strcmp(s, "run"))
                        continue;
                int prog = prog_of(line_need(&w, "program"));
                line_need(&w, "launch");
                int i = find_product(t, line_need(&w, "key"));
                if (i < 0 || prog < 0)
                        continue;
                Product *x = &t->product[i];
                if (x->prog < 0 || prog < x->prog)
                        x->prog = prog, x->launches = 0;
                x->launches += x->prog == prog;
        }
        return w.code;
}

/* The launches of products in a plan with other tiles.  *out is malloc'd. */
static int read_launches(const Tune *t, const Plan *p, Launch **out, int *n, Err *e)
{
        LineReader w;
        char *mem;
        int code = open_words(&w, p, &mem, e);
        *out = NULL;
        *n = 0;
        if (code)
                return code;
        bool *alone = calloc((size_t)t->n + 1, sizeof *alone);
        *out = calloc(text_count(mem, strlen(mem), "run") + 1, sizeof **out);
        if (!alone || !*out)
                code = err_set(e, TGC_NO_MEMORY, "no memory for the launches");
        while (!code && !w.code && line_next(&w)) {
                const char *s = line_need(&w, "statement");
                if (!strcmp(s, "product")) {
                        int i = find_product(t, line_need(&w, "key"));
                        if (i >= 0)
                                alone[i] = true;
                } else if (!strcmp(s, "run")) {
                        Launch x = { prog_of(line_need(&w, "program")),
                                     (int)line_int(&w, "launch", 1 << 24), 0 };
                        x.product = find_product(t, line_need(&w, "key"));
                        if (x.product >= 0 &&
                            !(alone[x.product] && t->product[x.product].prog == x.prog))
                                x.product = -1;
                        if (x.prog >= 0)
                                (*out)[(*n)++] = x;
                }
        }
        free(alone);
        free(mem);
        return code ? code : w.code;
}

/* ---- one round ---- */

static void fill_ids(int *ids, size_t n, int vocab)
{
        for (size_t i = 0; i < n; i++)
                ids[i] = (int)((i * 2654435761u >> 7) % (size_t)vocab);
}

/* What a program needs before it can run by itself: tokens and, for a step, what training steps
 * leave behind. */
static int prepare(Session *s, const Prog *g, Err *e)
{
        size_t n = (size_t)g->B * (size_t)g->T;
        int *ids = malloc(n * sizeof *ids), code;
        if (!ids)
                return err_set(e, TGC_NO_MEMORY, "no memory for %zu ids", n);
        fill_ids(ids, n, session_manifest(s)->vocab);
        if (!strcmp(g->name, "step")) {
                TrainResult r;
                TrainStep in = plain_step(g, ids);
                code = session_train_step(s, &in, &r, e);
        } else {
                memset(session_rt(s)->pos, 0, sizeof session_rt(s)->pos);
                session_rt(s)->share = 1;
                session_rt_changed(s);
                code = session_write(s, g->name, "ids", ids, n * sizeof *ids, e);
                if (!code)
                        code = session_write_documents(s, g->name, ids, g->B, g->T, e);
        }
        free(ids);
        return code;
}

/* Milliseconds of each launch of a program: the median of runs in a row, after some that warm the
 * GPU.  *out is malloc'd. */
static int time_program(Tune *t, Session *s, const Prog *g, double **out, Err *e)
{
        int most = opt_int(t->a, O_REPS), n = g->n_run, got = 0, runs = 0, code = prepare(s, g, e);
        double *all = malloc(((size_t)most + 1) * (size_t)n * sizeof *all);
        *out = calloc((size_t)n + 1, sizeof **out);
        Times x = { malloc(((size_t)most + 1) * sizeof *x.v), 0 };
        if (!code && (!all || !*out || !x.v))
                code = err_set(e, TGC_NO_MEMORY, "no memory for the times of %d launches", n);
        for (double t0 = clock_s();
             !code && !signal_seen() && (runs < LEAST_RUNS || clock_s() - t0 < WARM_S); runs++)
                code = session_time_kernels(s, g->name, g->B, g->T, all, n, &got, e);
        for (runs = 0; !code && !signal_seen() && runs < most; runs++)
                code = session_time_kernels(s, g->name, g->B, g->T, all + (size_t)runs * n, n, &got,
                                            e);
        for (int i = 0; i < n && runs && !code; i++) {
                for (x.n = 0; x.n < runs; x.n++)
                        x.v[x.n] = all[(size_t)x.n * n + i];
                (*out)[i] = times_median(&x);
        }
        free(all);
        free(x.v);
        return code;
}

/* The program as it runs in earnest, one run behind the other: kernels at the limit of power share
 * it, so that their own times do not add up to this. */
static int time_whole(Tune *t, Session *s, const Prog *g, double *ms, Err *e)
{
        int runs = opt_int(t->a, O_REPS), code = TGC_OK;
        double start = 0;
        for (int i = -LEAST_RUNS; i < runs && !code && !signal_seen(); i++) {
                if (i == 0 && !(code = session_sync(s, e)))
                        start = clock_s();
                code = code ? code : session_run(s, g->name, g->B, g->T, e);
        }
        if (!code && !(code = session_sync(s, e)))
                *ms = (clock_s() - start) * 1e3 / runs;
        return code;
}

static bool is_busy(const Program *p, const Prog *g, int run)
{
        const KernelDef *d = &p->kernel[g->run[run].kernel];
        return d->flops > BUSY * d->bytes;
}

static int time_plan(Tune *t, const Plan *p, Session *s, Round *r, Err *e)
{
        Launch *l;
        int n, code = read_launches(t, p, &l, &n, e);
        for (int k = 0; k < MOST_PROGS && !code && !signal_seen(); k++) {
                const Prog *g = program_find(session_program(s), tuned_progs[k]);
                double *each = NULL;
                bool wanted = false;
                for (int i = 0; i < n; i++)
                        wanted |= l[i].prog == k && l[i].product >= 0;
                if (!g || !wanted)
                        continue;
                if (!(code = time_program(t, s, g, &each, e)))
                        code = time_whole(t, s, g, &r->ms[k], e);
                for (int i = 0; i < g->n_run && !code; i++)
                        r->clock += is_busy(session_program(s), g, i) ? each[i] : 0;
                for (int i = 0; i < n && !code; i++) {
                        if (l[i].prog != k || l[i].at >= g->n_run)
                                continue;
                        r->clock -= is_busy(session_program(s), g, l[i].at) ? each[l[i].at] : 0;
                        if (l[i].product >= 0)
                                r->us[l[i].product] += each[l[i].at] * 1e3;
                }
                free(each);
        }
        free(l);
        return code;
}

static void show_round(const Tune *t, double part, const char *what)
{
        progress_bar(&t->talk, (t->round + part) / t->rounds, "round %d of %d: %s", t->round + 1,
                     t->rounds, what);
}

int tune_measure(Tune *t, const char *choices, Round *r, Err *e)
{
        Plan p = { 0 };
        Session *s = NULL;
        *r = (Round) { .us = memset(r->us, 0, (size_t)t->n * sizeof *r->us) };
        show_round(t, 0, "compiling");
        int code = signal_seen() ? 128 + signal_seen() : plan_again(&p, &t->l.plan, choices, e);
        if (!code)
                code = open_session(&s, &p, t->a, 0, (uint64_t)t->a->v[O_TRAIN_SEED].i, NULL, 0, e);
        show_round(t, 0.5, "measuring");
        if (!code && !(code = time_plan(t, &p, s, r, e)) && signal_seen())
                code = 128 + signal_seen();
        session_close(s);
        plan_close(&p);
        t->round++;
        return code;
}
