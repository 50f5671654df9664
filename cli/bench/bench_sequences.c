/* bench_sequences.c: tgc bench --sequences: the time of a step that decodes N sequences.
 *
 * Each sequence has a prompt of its own; no cache pages are shared, all prompts are read before the
 * first step, and all sequences stay until the end.  A time runs from the end of one step that only
 * decodes to the end of the next.  On a GPU results arrive a step or two late, so this is the time
 * of a step in a running pipeline. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/batch/batch.h"
#include "bench.h"

enum {
        WARM = 8,
        AHEAD = 4
}; /* steps before those that count, until the pipeline is full; beyond them */

int sequences_read(const Args *a, int list[MOST_COUNTS], int *n, Err *e)
{
        const char *text = opt_str(a, O_SEQUENCES);
        *n = 0;
        for (const char *s = text; s && *s;) {
                char *end;
                const long x = strtol(s, &end, 10);
                if (end == s || x < 1 || x > TGC_MAX_BATCH || (*end && (*end != ',' || !end[1])) ||
                    *n == MOST_COUNTS)
                        return err_set(e, TGC_USAGE,
                                       "--sequences %.60s: give up to %d numbers from 1 to %d, as "
                                       "1,8,32",
                                       text, MOST_COUNTS, TGC_MAX_BATCH);
                list[(*n)++] = (int)x;
                s = *end ? end + 1 : end;
        }
        return *n || !text ? TGC_OK : err_set(e, TGC_USAGE, "--sequences is empty");
}

int sequences_most(const Args *a)
{
        int list[MOST_COUNTS], n, most = 0;
        if (sequences_read(a, list, &n, NULL))
                return 0;
        for (int i = 0; i < n; i++)
                most = list[i] > most ? list[i] : most;
        return most;
}

static int prompt_tokens(const Args *a) { return opt_int(a, O_PROMPT_TOKENS); }

/* Of each sequence: the prompt, what is said, and room for steps that are queued. */
int64_t sequences_tokens(const Args *a)
{
        enum { DEFAULT = 32 };
        const int prompt = prompt_tokens(a) ? prompt_tokens(a) : DEFAULT;
        return (int64_t)prompt + opt_int(a, O_REPS) + WARM + AHEAD;
}

typedef struct Count {
        int sequences, prompt;
        double prefill; /* tokens a second */
        Times t;
} Count;

static void report(cJSON *list, Count *c)
{
        const double mid = times_median(&c->t), rate = c->sequences / mid;
        if (!list) {
                print("%9d %8d %10.3f %10.3f %10.3f %12.1f %12.1f\n", c->sequences, c->prompt,
                      mid * 1e3, c->t.v[0] * 1e3, c->t.v[c->t.n - 1] * 1e3, rate, c->prefill);
                fflush(stdout);
                return;
        }
        cJSON *o = cJSON_CreateObject();
        cJSON_AddNumberToObject(o, "sequences", c->sequences);
        cJSON_AddNumberToObject(o, "prompt_tokens", c->prompt);
        cJSON_AddNumberToObject(o, "median_ms", mid * 1e3);
        cJSON_AddNumberToObject(o, "min_ms", c->t.v[0] * 1e3);
        cJSON_AddNumberToObject(o, "max_ms", c->t.v[c->t.n - 1] * 1e3);
        cJSON_AddNumberToObject(o, "repetitions", c->t.n);
        cJSON_AddNumberToObject(o, "tokens_per_s", rate);
        cJSON_AddNumberToObject(o, "prefill_tokens_per_s", c->prefill);
        cJSON_AddItemToArray(list, o);
}

static int add_all(Batch *b, const Count *c, int reps, int vocab, int *ids, Err *e)
{
        BatchHow how = { .sampling = sampling_default(), .predict = reps + WARM + AHEAD };
        unsigned rng = 1;
        int code = TGC_OK, id;
        how.sampling.temp = 0;
        for (int i = 0; i < c->sequences && !code; i++) {
                for (int k = 0; k < c->prompt; k++) {
                        rng = rng * 1664525u + 1013904223u;
                        ids[k] = (int)((rng >> 8) % (unsigned)vocab);
                }
                code = batch_add(b, ids, c->prompt, &how, &id, e);
        }
        return code;
}

static int time_steps(Batch *b, Session *s, Count *c, int reps, Err *e)
{
        BatchToken *out = malloc(TGC_MAX_BATCH * sizeof *out);
        const double start = clock_s();
        double last = 0;
        int code = out ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for tokens"), seen = 0;
        while (!code && c->t.n < reps && batch_left(b) == c->sequences && !signal_seen()) {
                const BatchStats was = batch_stats(b);
                int n;
                if ((code = batch_step(b, out, &n, e)))
                        break;
                const BatchStats is = batch_stats(b);
                const bool decodes = is.decoded - was.decoded == (uint64_t)c->sequences &&
                                     is.prefilled == was.prefilled;
                if (decodes && !seen && !(code = session_sync(s, e)))
                        c->prefill = (double)is.prefilled / (clock_s() - start);
                const double now = clock_s();
                if (decodes && seen++ >= WARM)
                        c->t.v[c->t.n++] = now - last;
                last = now;
        }
        free(out);
        return code;
}

static int bench_count(Session *s, const Args *a, Count *c, Err *e)
{
        const BatchOptions apart = { .no_prefix = true, .prompts_first = true };
        const int reps = opt_int(a, O_REPS);
        Batch *b = NULL;
        int *ids = malloc((size_t)c->prompt * sizeof *ids), code = TGC_OK;
        c->t = (Times) { calloc((size_t)reps, sizeof *c->t.v), 0 };
        if (!ids || !c->t.v)
                code = err_set(e, TGC_NO_MEMORY, "no memory for %d times", reps);
        if (!code && !(code = batch_open(&b, s, &apart, e)) &&
            !(code = add_all(b, c, reps, session_manifest(s)->vocab, ids, e)))
                code = time_steps(b, s, c, reps, e);
        batch_close(b);
        free(ids);
        return code;
}

int bench_sequences(Session *s, const Args *a, cJSON *json, Err *e)
{
        const Manifest *m = session_manifest(s);
        const int64_t tokens = sequences_tokens(a);
        int count[MOST_COUNTS], n, code = sequences_read(a, count, &n, e);
        if (code)
                return code;
        if (tokens > m->ctx)
                return err_set(e, TGC_USAGE,
                               "%d tokens of prompt and %d steps: the plan's context is %d; "
                               "--prompt-tokens or --reps say fewer",
                               (int)tokens - opt_int(a, O_REPS) - WARM - AHEAD,
                               opt_int(a, O_REPS) + WARM + AHEAD, m->ctx);
        for (int i = 0; i < n; i++) {
                const int64_t need = count[i] * ((tokens + TGC_PAGE - 1) / TGC_PAGE);
                if (count[i] > m->batch)
                        return err_set(e, TGC_USAGE,
                                       "--sequences %d: the plan was compiled for %d; compile with "
                                       "--mode infer --batch-size %d",
                                       count[i], m->batch, count[i]);
                if (m->pages && need > m->pages - 1)
                        return err_set(e, TGC_USAGE,
                                       "%d sequences of %d tokens need %lld pages of the cache, "
                                       "which has %d; compile with a larger --cache-tokens",
                                       count[i], (int)tokens, (long long)need, m->pages - 1);
        }
        cJSON *list = json ? cJSON_AddArrayToObject(json, "sequences") : NULL;
        if (!json)
                print("%9s %8s %10s %10s %10s %12s %12s\n", "sequences", "prompt", "ms a step",
                      "least", "most", "tok/s", "prefill/s");
        for (int i = 0; i < n && !code && !signal_seen(); i++) {
                Count c = { .sequences = count[i],
                            .prompt = (int)tokens - opt_int(a, O_REPS) - WARM - AHEAD };
                code = bench_count(s, a, &c, e);
                if (!code && !c.t.n && !signal_seen())
                        code = err_set(e, TGC_FAIL, "--sequences %d: no step decoded all of them",
                                       count[i]);
                if (!code && c.t.n)
                        report(list, &c);
                free(c.t.v);
        }
        return code;
}
