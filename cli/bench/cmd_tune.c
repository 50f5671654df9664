/* cmd_tune.c: tgc tune: measures the GEMM tiles of a plan.
 *
 * In each round every GEMM uses one of its candidates, so there are as many compilations as
 * candidates, not as many as pairs.  Kernels are timed in place.
 *
 * All kernels share the card's power limit: among slow kernels all clocks are higher (10% for some
 * GEMMs on an H100).  So different GEMMs take their candidates in different orders.  Each round's
 * remaining clock difference is divided out, by the busy kernels that are not GEMMs.
 *
 * Then the winners run together against the cost model's choices, again and again until all of them
 * win.  A winner by chance does not win twice, and a faster kernel may slow the others down. */
#include <stdlib.h>
#include <string.h>
#include "tune.h"

/* LEAST_GAIN: what two measurements of one kernel may differ by. */
enum { MOST_DECISIONS = 3 };
static const double LEAST_GAIN = 0.015;

/* ---- all rounds ---- */

/* Number i of the products has which of its tiles?  Each has all of them in as many rounds as it
 * has tiles. */
static int rotated(const Tune *t, int i)
{
        const Product *p = &t->product[i];
        return p->prog >= 0 ? (t->round + i) % p->n : 0;
}

static int winner(const Tune *t, int i) { return t->product[i].best; }
static int model(const Tune *t, int i)
{
        (void)t, (void)i;
        return 0;
}

typedef int Which(const Tune *t, int i);

static int count(const Tune *t, Which *which)
{
        int n = 0;
        for (int i = 0; i < t->n; i++)
                n += which(t, i) > 0;
        return n;
}

/* Choices that are not the model's, as the compiler reads them; NULL: there is none, or no
 * memory. */
static char *choices_text(const Tune *t, Which *which)
{
        char *text = NULL;
        size_t size;
        FILE *f = count(t, which) ? open_memstream(&text, &size) : NULL;
        if (!f)
                return NULL;
        fprintf(f, "tgc-choices 1\ngpu %s\n", t->gpu);
        for (int i = 0; i < t->n; i++)
                if (which(t, i))
                        fprintf(f, "choose %s %s\n", t->product[i].key,
                                t->product[i].tile[which(t, i)]);
        return fclose(f) ? NULL : text;
}

static int round_of(Tune *t, Which *which, Round *r, Err *e)
{
        char *text = choices_text(t, which);
        int code = text || !count(t, which)
                           ? tune_measure(t, text, r, e)
                           : err_set(e, TGC_NO_MEMORY, "no memory for the choices");
        free(text);
        return code;
}

/* A candidate that shares launches has no time of its own and does not win. */
static void find_winners(Tune *t)
{
        for (int i = 0; i < t->n; i++) {
                Product *p = &t->product[i];
                double least = (1 - LEAST_GAIN) * p->us[0];
                for (int k = 1; k < p->n; k++)
                        if (p->us[k] > 0 && p->us[k] < least)
                                p->best = k, least = p->us[k];
        }
}

/* What does not win once more goes back to the model's choice.  true: nothing had to, and all
 * programs together are faster. */
static bool confirmed(Tune *t)
{
        double model_ms = 0, won_ms = 0;
        bool all = true;
        for (int k = 0; k < MOST_PROGS; k++)
                model_ms += t->model_ms[k], won_ms += t->won_ms[k];
        for (int i = 0; i < t->n; i++) {
                Product *p = &t->product[i];
                if (p->best && !(p->won > 0 && p->won < (1 - LEAST_GAIN) * p->model)) {
                        p->best = 0;
                        all = false;
                }
        }
        return all && won_ms < model_ms;
}

/* Winners, model, winners: the mean of the outer rounds has drifted as far as the inner one. */
static int decide(Tune *t, Round *r, Err *e)
{
        int code = round_of(t, winner, r, e);
        for (int i = 0; i < t->n; i++)
                t->product[i].won = r->us[i] / 2;
        for (int k = 0; k < MOST_PROGS; k++)
                t->won_ms[k] = r->ms[k] / 2;
        if (!code)
                code = round_of(t, model, r, e);
        for (int i = 0; i < t->n; i++)
                t->product[i].model = r->us[i];
        memcpy(t->model_ms, r->ms, sizeof r->ms);
        if (!code)
                code = round_of(t, winner, r, e);
        for (int i = 0; i < t->n; i++)
                t->product[i].won += r->us[i] / 2;
        for (int k = 0; k < MOST_PROGS; k++)
                t->won_ms[k] += r->ms[k] / 2;
        return code;
}

static int tune(Tune *t, Err *e)
{
        Round r = { .us = calloc((size_t)t->n + 1, sizeof *r.us) };
        double clock = 0;
        bool sure = false;
        int tried = 1, code = r.us ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for the times");
        for (int i = 0; i < t->n; i++)
                if (t->product[i].prog >= 0 && t->product[i].n > tried)
                        tried = t->product[i].n;
        t->rounds = tried + 3;
        while (t->round < tried && !code) {
                int now = t->round; /* measure counts */
                if ((code = round_of(t, rotated, &r, e)))
                        break;
                clock = clock > 0 ? clock : r.clock;
                for (int i = 0; i < t->n; i++) {
                        Product *p = &t->product[i];
                        p->us[p->prog >= 0 ? (now + i) % p->n : 0] = r.clock > 0 ? r.us[i] * clock /
                                                                                           r.clock
                                                                                 : r.us[i];
                }
        }
        if (!code)
                find_winners(t);
        for (int k = 0; k < MOST_DECISIONS && count(t, winner) && !sure && !code; k++) {
                t->rounds = t->round + 3;
                if (!(code = decide(t, &r, e)))
                        sure = confirmed(t);
        }
        for (int i = 0; i < t->n && !sure; i++)
                t->product[i].best = 0;
        progress_bar_end(&t->talk);
        free(r.us);
        return code;
}

/* ---- what came of it ---- */

static double model_us(const Product *p) { return p->model > 0 ? p->model : p->us[0]; }
static double best_us(const Product *p) { return p->best ? p->won : model_us(p); }

static int by_time(const void *a, const void *b)
{
        double x = model_us(a), y = model_us(b);
        return x > y ? -1 : x < y;
}

static int print_json(const Tune *t, const char *path, Err *e)
{
        cJSON *o = cJSON_CreateObject(), *list;
        cJSON_AddStringToObject(o, "plan", path);
        cJSON_AddStringToObject(o, "gpu", t->gpu);
        for (int k = 0; k < MOST_PROGS; k++)
                if (t->model_ms[k] > 0) {
                        cJSON *x = cJSON_AddObjectToObject(o, tuned_progs[k]);
                        cJSON_AddNumberToObject(x, "model_ms", t->model_ms[k]);
                        cJSON_AddNumberToObject(x, "won_ms", t->won_ms[k]);
                }
        list = cJSON_AddArrayToObject(o, "products");
        for (int i = 0; i < t->n; i++) {
                const Product *p = &t->product[i];
                if (p->prog < 0)
                        continue;
                cJSON *x = cJSON_CreateObject(), *tried = cJSON_CreateObject();
                cJSON_AddStringToObject(x, "product", p->key);
                cJSON_AddStringToObject(x, "program", tuned_progs[p->prog]);
                cJSON_AddNumberToObject(x, "launches", p->launches);
                cJSON_AddStringToObject(x, "model", p->tile[0]);
                cJSON_AddNumberToObject(x, "model_us", model_us(p));
                cJSON_AddStringToObject(x, "best", p->tile[p->best]);
                cJSON_AddNumberToObject(x, "best_us", best_us(p));
                if (p->won > 0)
                        cJSON_AddNumberToObject(x, "won_us", p->won);
                for (int k = 0; k < p->n; k++)
                        cJSON_AddNumberToObject(tried, p->tile[k], p->us[k]);
                cJSON_AddItemToObject(x, "tried_us", tried);
                cJSON_AddItemToArray(list, x);
        }
        return json_print(o, e);
}

static void print_table(const Tune *t)
{
        double before = 0, after = 0;
        print("%s\n%10s %10s %6s %3s  %-18s %-18s %s\n", t->gpu, "model us", "best us", "gain", "n",
              "model's tile", "best tile", "product");
        for (int i = 0; i < t->n; i++) {
                const Product *p = &t->product[i];
                double x = model_us(p), y = best_us(p);
                if (p->prog < 0 || !(x > 0))
                        continue;
                before += x;
                after += y;
                print("%10.1f %10.1f %5.1f%% %3d  %-18s %-18s %s %s\n", x, y, 100 * (1 - y / x),
                      p->launches, p->tile[0], p->best ? p->tile[p->best] : "",
                      tuned_progs[p->prog], p->key);
        }
        print("%10.1f %10.1f %5.1f%%      all products\n", before, after,
              before > 0 ? 100 * (1 - after / before) : 0);
        for (int k = 0; k < MOST_PROGS; k++)
                if (t->model_ms[k] > 0)
                        print("%s: %.3f ms with the model's tiles, %.3f with those that won "
                              "before\n",
                              tuned_progs[k], t->model_ms[k], t->won_ms[k]);
}

static int write_plan(Tune *t, const char *path, Err *e)
{
        Plan p = { 0 };
        int n = count(t, winner);
        if (!n && !opt_str(t->a, O_OUT) && !plan_find(&t->l.plan, "choices")) {
                say(&t->talk, "%s: the model's choices stay\n", path);
                return TGC_OK;
        }
        char *text = choices_text(t, winner);
        int code = text || !n ? plan_again(&p, &t->l.plan, text, e)
                              : err_set(e, TGC_NO_MEMORY, "no memory for the choices");
        if (!code)
                code = plan_write(&p, path, e);
        if (!code)
                say(&t->talk, "%s: %d of %d products have another tile now\n", path, n, t->n);
        plan_close(&p);
        free(text);
        return code;
}

/* A GPU, and what its tiles are; before anything is compiled. */
static int find_gpu(Tune *t, bool *sm90, Err *e)
{
        const char *name = opt_str(t->a, O_DEVICE) ? opt_str(t->a, O_DEVICE) : getenv("TGC_DEVICE");
        int kind = name && *name ? dev_kind(name) : DEV_AUTO;
        DevOptions o = { .index = opt_int(t->a, O_GPU) };
        Device *d = NULL;
        Err why;
        if (kind == DEV_CPU)
                return err_set(
                        e, TGC_USAGE,
                        "tune: the CPU's kernels have no tiles to choose; --device cuda has");
        int code = dev_open(&d, kind == DEV_EMULATE ? DEV_EMULATE : DEV_CUDA, &o, &why);
        if (code)
                return err_set(
                        e, code,
                        "%s; tune measures on the GPU that the plan will run on, `tgc doctor` "
                        "tells what is missing",
                        why.msg);
        snprintf(t->gpu, sizeof t->gpu, "%s", dev_name(d));
        *sm90 = dev_arch(d) == FORM_SM90A;
        dev_close(d);
        return TGC_OK;
}

/* As the model has them, also of a plan that was tuned before. */
static int products_of_model(Tune *t, bool sm90, char **mem, Err *e)
{
        Plan p = { 0 };
        int code = plan_again(&p, &t->l.plan, NULL, e);
        if (!code)
                code = tune_products(t, &p, sm90, mem, e);
        plan_close(&p);
        return code;
}

int cmd_tune(const Args *a, Err *e)
{
        Tune t = { .a = a, .talk = progress_new(a) };
        const char *path = opt_str(a, O_OUT) ? opt_str(a, O_OUT) : a->pos[0];
        char real[4400], *mem = NULL;
        ModelKind kind;
        bool sm90 = false;
        int code = model_kind(a->pos[0], &kind, real, sizeof real, e);
        if (!code && kind != MODEL_PLAN && !opt_str(a, O_OUT))
                code = err_set(e, TGC_USAGE,
                               "tune: -o PLAN is missing: tgc tune %s -o "
                               "PLAN",
                               a->pos[0]);
        if (!code && kind == MODEL_PLAN && !opt_str(a, O_OUT))
                path = real;
        if (code || (code = find_gpu(&t, &sm90, e)) || (code = load(&t.l, a, &(LoadHow) { 0 }, e)))
                return code;
        signals_defer();
        code = products_of_model(&t, sm90, &mem, e);
        if (!code)
                code = tune(&t, e);
        if (!code)
                code = write_plan(&t, path, e);
        if (!code) {
                qsort(t.product, (size_t)t.n, sizeof *t.product, by_time);
                if (opt_flag(a, O_JSON))
                        code = print_json(&t, path, e);
                else
                        print_table(&t);
        }
        free(t.product);
        free(mem);
        loaded_free(&t.l);
        return code;
}
