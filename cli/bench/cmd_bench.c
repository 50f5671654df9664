/* cmd_bench.c: tgc bench */
#include <stdlib.h>
#include <string.h>
#include "bench.h"

enum { WARM_UP = 3 };

typedef struct Bench {
        const Args *a;
        Session *s;
        const Manifest *m;
        int B;
        int *ids;                 /* enough for any call */
        double compile_s, open_s; /* reading the model or plan; kernels and weights */
        cJSON *json;              /* NULL: text */
        Ceiling most;             /* of the device; measured once */
        bool most_known;
} Bench;

static void report(Bench *b, const char *what, Times *t, int tokens, int B, int T)
{
        double mid = times_median(t), lo = t->v[0], hi = t->v[t->n - 1], sum = 0;
        for (int i = 0; i < t->n; i++)
                sum += t->v[i];
        if (b->json) {
                cJSON *o = cJSON_AddObjectToObject(b->json, what);
                cJSON_AddNumberToObject(o, "batch", B);
                cJSON_AddNumberToObject(o, "tokens", T);
                cJSON_AddNumberToObject(o, "median_ms", mid * 1e3);
                cJSON_AddNumberToObject(o, "mean_ms", sum / t->n * 1e3);
                cJSON_AddNumberToObject(o, "min_ms", lo * 1e3);
                cJSON_AddNumberToObject(o, "max_ms", hi * 1e3);
                cJSON_AddNumberToObject(o, "repetitions", t->n);
                cJSON_AddNumberToObject(o, "tokens_per_s", tokens / mid);
        } else {
                print("%-8s %3d x %-5d median %10.3f ms, %.3f to %.3f over %d, %.1f tok/s\n", what,
                      B, T, mid * 1e3, lo * 1e3, hi * 1e3, t->n, tokens / mid);
                fflush(stdout);
        }
}

static int new_times(Times *t, const Args *a, Err *e)
{
        *t = (Times) { calloc((size_t)opt_int(a, O_REPS) + WARM_UP, sizeof *t->v), 0 };
        return t->v ? TGC_OK
                    : err_set(e, TGC_NO_MEMORY, "no memory for %d times", opt_int(a, O_REPS));
}

/* ---- kernels ---- */

typedef struct Row {
        const KernelDef *k;
        double ms;
        int n;
} Row;

static int slower(const void *a, const void *b)
{
        double x = ((const Row *)a)->ms, y = ((const Row *)b)->ms;
        return x > y ? -1 : x < y;
}

/* Seconds of one launch at the ceiling: of memory or of arithmetic, whichever takes longer. */
static double least_time(const Bench *b, const KernelDef *k)
{
        double flops = b->most.flops[b->m->dtype != STORE_F32],
               work = flops > 0 ? k->flops / flops : 0;
        double memory = b->most.bytes > 0 ? k->bytes / b->most.bytes : 0;
        return memory > work ? memory : work;
}

static void print_row(Bench *b, cJSON *list, const Row *r, double total)
{
        double s = r->ms * 1e-3 / r->n; /* of one launch */
        double gb = s > 0 ? r->k->bytes / s / 1e9 : 0, tf = s > 0 ? r->k->flops / s / 1e12 : 0;
        double most = s > 0 ? least_time(b, r->k) / s : 0;
        if (!b->json) {
                char share[16] = "-";
                if (most > 0)
                        snprintf(share, sizeof share, "%.0f%%", 100 * most);
                print("%9.4f %5.1f%% %4d  %8.1f %8.3f %8s  %-10s %s\n", r->ms, 100 * r->ms / total,
                      r->n, gb, tf, share, r->k->name, r->k->title ? r->k->title : "");
                return;
        }
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "kernel", r->k->name);
        cJSON_AddStringToObject(o, "title", r->k->title ? r->k->title : "");
        cJSON_AddNumberToObject(o, "launches", r->n);
        cJSON_AddNumberToObject(o, "ms", r->ms);
        cJSON_AddNumberToObject(o, "bytes", r->k->bytes);
        cJSON_AddNumberToObject(o, "flops", r->k->flops);
        cJSON_AddNumberToObject(o, "gb_per_s", gb);
        cJSON_AddNumberToObject(o, "tflop_per_s", tf);
        if (most > 0)
                cJSON_AddNumberToObject(o, "of_ceiling", most);
        cJSON_AddItemToArray(list, o);
}

/* The shortest time of every launch of a program, so that a host that is late once does not show. 
 * Every run begins where the host's Rt says, so a decoding program stays within its cache. */
static int time_launches(Bench *b, const char *prog, int B, int T, double *ms, int cap, int *n,
                         Err *e)
{
        enum { RUNS = 5 };
        double *one = calloc((size_t)cap + 1, sizeof *one);
        int code = one ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for %d launches", cap);
        for (int r = 0; r < RUNS && !code && !signal_seen(); r++) {
                session_rt_changed(b->s);
                code = session_time_kernels(b->s, prog, B, T, one, cap, n, e);
                for (int i = 0; i < *n && !code; i++)
                        if (!r || one[i] < ms[i])
                                ms[i] = one[i];
        }
        free(one);
        return code;
}

/* Launches of a run added up by kernel; bandwidth as if at the largest shape. */
static int kernels(Bench *b, const char *prog, int B, int T, Err *e)
{
        const Program *g = session_program(b->s);
        const Prog *p = program_find(g, prog);
        if (!opt_flag(b->a, O_B_KERNELS) || !p)
                return TGC_OK;
        double *ms = calloc((size_t)p->n_run + 1, sizeof *ms), total = 0;
        Row *row = calloc((size_t)g->n_kernels + 1, sizeof *row);
        int n = 0,
            code = ms && row ? time_launches(b, prog, B, T, ms, p->n_run, &n, e)
                             : err_set(e, TGC_NO_MEMORY, "no memory for %d launches", p->n_run);
        if (!code && !b->most_known) {
                code = dev_ceiling(session_device(b->s), &b->most, e);
                b->most_known = true;
        }
        for (int i = 0; i < g->n_kernels && !code; i++)
                row[i].k = &g->kernel[i];
        for (int i = 0; i < n && !code; i++) {
                row[p->run[i].kernel].ms += ms[i];
                row[p->run[i].kernel].n++;
                total += ms[i];
        }
        if (!code) {
                char key[64];
                snprintf(key, sizeof key, "%s_kernels", prog);
                cJSON *list = b->json ? cJSON_AddArrayToObject(b->json, key) : NULL;
                qsort(row, (size_t)g->n_kernels, sizeof *row, slower);
                if (!b->json)
                        print("\n"
                              "%s: %d launches, %.4f ms\n"
                              "       ms  share    n      GB/s  TFLOP/s   ceiling  kernel\n",
                              prog, n, total);
                for (int i = 0; i < g->n_kernels && row[i].n; i++)
                        print_row(b, list, &row[i], total > 0 ? total : 1);
        }
        free(ms);
        free(row);
        return code;
}

/* ---- programs ---- */

static int bench_prefill(Bench *b, Err *e)
{
        int n = opt_int(b->a, O_PROMPT_TOKENS), reps = opt_int(b->a, O_REPS), code;
        const Prog *p = program_find(session_program(b->s), "prefill"), *more;
        Times t;
        if (!n)
                n = b->m->ctx < 512 ? b->m->ctx : 512;
        if (p && n - 1 > p->T && (more = program_find(session_program(b->s), "prefill_long")))
                p = more;
        if (n > b->m->ctx || n < 2)
                return err_set(
                        e, TGC_USAGE,
                        "--prompt-tokens %d: the plan's context is %d, and decoding needs one "
                        "token of it",
                        n, b->m->ctx);
        if ((code = new_times(&t, b->a, e)))
                return code;
        for (int i = 0; i < reps + WARM_UP && !code && !signal_seen(); i++) {
                if ((code = session_reset(b->s, e)))
                        break;
                double t0 = clock_s();
                if (!(code = session_prefill(b->s, b->ids, b->B, n, e)))
                        code = session_sync(b->s, e);
                if (i >= WARM_UP)
                        t.v[t.n++] = clock_s() - t0;
        }
        if (!code && t.n)
                report(b, "prefill", &t, b->B * (n - 1), b->B, n - 1);
        /* from the beginning: behind the last chunk there may be no room for one more */
        if (!code && p && !(code = session_reset(b->s, e)))
                code = kernels(b, p->name, b->B < p->B ? b->B : p->B, n < p->T ? n : p->T, e);
        free(t.v);
        return code;
}

typedef struct Beat {
        Times *t;
        double last;
        int skip;
} Beat;

static int on_token(void *user, int i, const int *token, int B)
{
        Beat *b = user;
        double now = clock_s();
        (void)token, (void)B;
        if (i >= b->skip)
                b->t->v[b->t->n++] = now - b->last;
        b->last = now;
        return signal_seen();
}

static int bench_decode(Bench *b, Err *e)
{
        Sampling greedy = sampling_default();
        int reps = opt_int(b->a, O_REPS), prompt = opt_int(b->a, O_PROMPT_TOKENS), code;
        Times t;
        greedy.temp = 0;
        if (!prompt)
                prompt = 8 < b->m->ctx / 2 ? 8 : 1;
        if (prompt >= b->m->ctx)
                return err_set(e, TGC_USAGE, "--prompt-tokens %d: the plan's context is %d", prompt,
                               b->m->ctx);
        if ((code = new_times(&t, b->a, e)))
                return code;
        /* from the prompt again when the context is full */
        while (t.n < reps && !code && !signal_seen()) {
                int room = b->m->ctx - prompt,
                    n = reps - t.n + WARM_UP < room ? reps - t.n + WARM_UP : room;
                Beat beat = { &t, 0, n > WARM_UP ? WARM_UP : n - 1 };
                if ((code = session_reset(b->s, e)) ||
                    (code = session_prefill(b->s, b->ids, b->B, prompt, e)) ||
                    (code = session_sync(b->s, e)))
                        break;
                beat.last = clock_s();
                code = session_decode(b->s, &greedy, n, on_token, &beat, e);
        }
        if (!code && t.n)
                report(b, "decode", &t, b->B, b->B, 1);
        if (!code && program_find(session_program(b->s), "decode")->B == b->B)
                code = kernels(b, "decode", b->B, 1, e);
        free(t.v);
        return code;
}

/* As tgc train does: a step is queued while the one before it runs.  A time is
 * from the end of one step to the end of the next. */
static int bench_train(Bench *b, Err *e)
{
        const Prog *p = program_find(session_program(b->s), "step");
        int reps = opt_int(b->a, O_REPS), code;
        TrainResult r;
        Times t;
        if ((code = new_times(&t, b->a, e)))
                return code;
        TrainStep in = plain_step(p, b->ids);
        double last = 0;
        int end = reps + WARM_UP + 1; /* the last one has nothing queued behind it */
        for (int i = 0; i <= end && !code; i++) {
                if (signal_seen() && i < end)
                        end = i; /* what is queued is waited for */
                in.step = i;
                if (i < end && (code = session_train_begin(b->s, &in, e)))
                        break;
                if (i > 0 && !(code = session_train_end(b->s, &r, e))) {
                        double now = clock_s();
                        if (i > WARM_UP && i < end)
                                t.v[t.n++] = now - last;
                        last = now;
                }
        }
        if (!code && t.n)
                report(b, "train", &t, p->B * p->T, p->B, p->T);
        if (!code && !(code = kernels(b, "step", p->B, p->T, e)))
                code = kernels(b, "update", 1, 1, e);
        free(t.v);
        return code;
}

enum { MAX_ARENAS = 64 };

static void describe(Bench *b)
{
        ArenaUse use[MAX_ARENAS];
        int n = session_arenas(b->s, use, MAX_ARENAS);
        double bytes = 0, host = 0;
        for (int i = 0; i < n && i < MAX_ARENAS; i++)
                *(use[i].host ? &host : &bytes) += use[i].allocated ? (double)use[i].size : 0;
        cJSON_AddStringToObject(b->json, "device", dev_name(session_device(b->s)));
        cJSON_AddStringToObject(b->json, "load", dev_load_note(session_device(b->s)));
        cJSON_AddNumberToObject(b->json, "compile_s", b->compile_s);
        cJSON_AddNumberToObject(b->json, "open_s", b->open_s);
        cJSON_AddNumberToObject(b->json, "memory_bytes", bytes);
        if (host > 0)
                cJSON_AddNumberToObject(b->json, "host_memory_bytes", host);
}

static int bench(Bench *b, Err *e)
{
        bool train = session_mode(b->s) & SESSION_TRAIN,
             all = !opt_flag(b->a, O_B_PREFILL) && !opt_flag(b->a, O_B_DECODE);
        const Prog *step = program_find(session_program(b->s), "step");
        size_t n;
        int code = TGC_OK;
        b->m = session_manifest(b->s);
        b->B = opt_int(b->a, O_BATCH) ? opt_int(b->a, O_BATCH) : train ? b->m->batch : 1;
        if (b->B > b->m->batch)
                return err_set(e, TGC_USAGE, "--batch-size %d: the plan was compiled for %d", b->B,
                               b->m->batch);
        n = (size_t)b->B * (size_t)b->m->ctx;
        if (step && (size_t)step->B * (size_t)step->T > n)
                n = (size_t)step->B * (size_t)step->T;
        if (!(b->ids = malloc(n * sizeof *b->ids)))
                return err_set(e, TGC_NO_MEMORY, "no memory for %zu ids", n);
        for (size_t i = 0; i < n; i++)
                b->ids[i] = (int)((i * 2654435761u >> 7) % (size_t)b->m->vocab);
        for (size_t i = 0; b->m->documents >= 0 && i < n; i += 100 + (i * 2654435761u >> 7) % 201)
                b->ids[i] = b->m->documents; /* of 100 to 300 tokens */
        if (!b->json)
                print("%s, %s\n", dev_name(session_device(b->s)),
                      dev_load_note(session_device(b->s)));
        else
                describe(b);
        if (train)
                return bench_train(b, e);
        if (opt_str(b->a, O_SEQUENCES))
                return bench_sequences(b->s, b->a, b->json, e);
        if (all || opt_flag(b->a, O_B_PREFILL))
                code = bench_prefill(b, e);
        if (!code && (all || opt_flag(b->a, O_B_DECODE)))
                code = bench_decode(b, e);
        return code;
}

int cmd_bench(const Args *a, Err *e)
{
        bool train = opt_flag(a, O_B_TRAIN);
        Bench b = { .a = a };
        Loaded l;
        if (train && (opt_flag(a, O_B_PREFILL) || opt_flag(a, O_B_DECODE)))
                return err_set(e, TGC_USAGE,
                               "bench: --train cannot be combined with other "
                               "measurements");
        if (opt_str(a, O_SEQUENCES) &&
            (train || opt_flag(a, O_B_PREFILL) || opt_flag(a, O_B_DECODE)))
                return err_set(e, TGC_USAGE,
                               "bench: --sequences cannot be combined with other "
                               "measurements");
        int counts[MOST_COUNTS], n_counts, code = sequences_read(a, counts, &n_counts, e);
        if (code)
                return code;
        double t0 = clock_s();
        code = load(&l, a,
                    &(LoadHow) { .mode = train ? BUILD_TRAIN : BUILD_INFER, .any_weights = true },
                    e);
        if (code)
                return code;
        b.compile_s = clock_s() - t0;
        if (opt_flag(a, O_JSON))
                b.json = cJSON_CreateObject();
        signals_defer();
        t0 = clock_s();
        code = open_session(&b.s, &l.plan, a, train ? SESSION_TRAIN : SESSION_INFER,
                            (uint64_t)a->v[O_TRAIN_SEED].i,
                            train ? "step update" : "prefill prefill_long decode",
                            opt_int(a, O_BATCH) ? opt_int(a, O_BATCH)
                            : n_counts          ? sequences_most(a)
                                                : 1,
                            e);
        b.open_s = clock_s() - t0;
        if (!code)
                code = offload_check(b.s, a, e);
        if (!code)
                code = bench(&b, e);
        if (!code && b.json) {
                code = json_print(b.json, e);
                b.json = NULL;
        }
        if (!code && signal_seen())
                code = 128 + signal_seen();
        cJSON_Delete(b.json);
        free(b.ids);
        session_close(b.s);
        loaded_free(&l);
        return code;
}
